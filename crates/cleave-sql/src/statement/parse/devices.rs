//! CREATE DEVICE, ALTER DEVICE … DRAIN, UNDRAIN, REBUILD and RESYNC, DROP DEVICE: devices of an open database.
//! PostgreSQL has no such statements.

use std::path::PathBuf;

use cleave_catalog::catalog::{DeviceKind, LocalDevice, RemoteDevice};
use cleave_catalog::error::{Error, Fault, Position, Result};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement, fold, position_of};

/// A statement about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceStatement {
    /// CREATE DEVICE name WITH (option = value, …).
    Create {
        /// Its name in the database.
        name: String,
        /// How it is reached; of a remote device without its certificate.
        way: DeviceKind,
        /// File of the certificate that a remote device's descends from.
        ca: Option<PathBuf>,
    },
    /// CREATE DEVICE name WITH (mirrors = 'name, name, …').
    CreateMirror {
        /// Its name in the database.
        name: String,
        /// The devices that are its copies, in the order in which they are read.
        copies: Vec<String>,
    },
    /// ALTER DEVICE name DRAIN [TO name, …].
    Drain {
        /// The device.
        name: String,
        /// Where its tablets go; empty: to the others.
        to: Vec<String>,
    },
    /// ALTER DEVICE name UNDRAIN: it may get tablets by itself again.
    Undrain {
        /// The device.
        name: String,
    },
    /// ALTER DEVICE name REBUILD [TO name, …] FROM 'backup' [ARCHIVE 'folder'].
    Rebuild {
        /// The device, which is lost.
        name: String,
        /// Where its tablets are rebuilt; empty: on the others.
        to: Vec<String>,
        /// The folder of a backup.
        backup: PathBuf,
        /// The folder of the archived log; None: that of `archive_directory`.
        archive: Option<PathBuf>,
    },
    /// ALTER DEVICE name RESYNC.
    Resync {
        /// The mirror.
        name: String,
    },
    /// DROP DEVICE [IF EXISTS] name.
    Drop {
        /// The device.
        name: String,
        /// It need not be there.
        if_exists: bool,
    },
}

/// The options of CREATE DEVICE as written.
#[derive(Default)]
struct Options {
    address: Option<(String, u16)>,
    local: Option<PathBuf>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    mirrors: Option<Vec<String>>,
}

impl Reader<'_> {
    /// Whether the second word is DEVICE.
    pub(super) fn is_of_device(&self) -> bool {
        self.word_at(1) == "device"
    }

    /// CREATE, ALTER or DROP DEVICE, as `word` says.
    pub(super) fn device_statement(&mut self, word: &str) -> Result<Statement> {
        self.parser.advance_token();
        self.parser.advance_token();
        let statement = match word {
            "create" => self.create_device()?,
            "alter" => {
                let name = self.device_name()?;
                if self.take("drain") {
                    DeviceStatement::Drain { name, to: self.targets()? }
                } else if self.take("undrain") {
                    DeviceStatement::Undrain { name }
                } else if self.take("rebuild") {
                    let to = self.targets()?;
                    self.must_take("from")?;
                    let backup = self.folder("the folder of a backup")?;
                    let archive = match self.take("archive") {
                        true => Some(self.folder("the folder of the archived log")?),
                        false => None,
                    };
                    DeviceStatement::Rebuild { name, to, backup, archive }
                } else if self.take("resync") {
                    DeviceStatement::Resync { name }
                } else {
                    return Err(self.expected("DRAIN, UNDRAIN, REBUILD or RESYNC"));
                }
            }
            _ => {
                let if_exists = self.if_exists()?;
                DeviceStatement::Drop { name: self.device_name()?, if_exists }
            }
        };
        Ok(Statement::Device(Box::new(statement)))
    }

    /// [TO name, …].
    pub(super) fn targets(&mut self) -> Result<Vec<String>> {
        let mut to = Vec::new();
        if self.take("to") {
            to.push(self.device_name()?);
            while self.parser.consume_token(&Token::Comma) {
                to.push(self.device_name()?);
            }
        }
        Ok(to)
    }

    /// The whole path of a folder.
    fn folder(&mut self, what: &'static str) -> Result<PathBuf> {
        let at = position_of(self.parser.peek_token().span.start);
        whole_path(&self.string(what)?, at)
    }

    pub(super) fn device_name(&mut self) -> Result<String> {
        match self.parser.peek_token().token {
            Token::Word(_) => {
                let name = self.parser.parse_identifier();
                Ok(fold(&name.map_err(|error| self.syntax(error))?))
            }
            _ => self.string("the name of a device"),
        }
    }

    fn create_device(&mut self) -> Result<DeviceStatement> {
        let start = position_of(self.parser.peek_token().span.start);
        let name = self.device_name()?;
        self.must_take("with")?;
        if !self.parser.consume_token(&Token::LParen) {
            return Err(self.expected("an opening parenthesis"));
        }
        let mut options = Options::default();
        loop {
            self.device_option(&mut options)?;
            if self.parser.consume_token(&Token::RParen) {
                break;
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Err(self.expected("a comma or a closing parenthesis"));
            }
        }
        options.statement(name).map_err(|error| error.at(start))
    }

    /// One of `name = 'value'`, into `options`.
    fn device_option(&mut self, options: &mut Options) -> Result<()> {
        let at = position_of(self.parser.peek_token().span.start);
        let option = self.word_at(0);
        if !["address", "local", "token_file", "ca", "mirrors"].contains(&option.as_str()) {
            return Err(self.expected("address, local, token_file, ca or mirrors"));
        }
        self.parser.advance_token();
        if !self.parser.consume_token(&Token::Eq) {
            return Err(self.expected("="));
        }
        let value_at = position_of(self.parser.peek_token().span.start);
        let value = self.string("a value in quotes")?;
        let is_twice = match option.as_str() {
            "address" => options.address.replace(address(&value, value_at)?).is_some(),
            "local" => options.local.replace(whole_path(&value, value_at)?).is_some(),
            "token_file" => options.token_file.replace(whole_path(&value, value_at)?).is_some(),
            "mirrors" => options.mirrors.replace(names(&value, value_at)?).is_some(),
            _ => options.ca.replace(whole_path(&value, value_at)?).is_some(),
        };
        match is_twice {
            true => Err(invalid(format!("{option} is given twice"), at)),
            false => Ok(()),
        }
    }
}

impl Options {
    /// The statement that makes the device `name` with them.
    fn statement(self, name: String) -> Result<DeviceStatement> {
        match self {
            Self {
                address: None,
                local: None,
                token_file: None,
                ca: None,
                mirrors: Some(copies),
            } => Ok(DeviceStatement::CreateMirror { name, copies }),
            Self { mirrors: Some(_), .. } => {
                let message = "mirrors stands alone: a mirror has the addresses, tokens and certificates of its copies";
                Err(invalid(message.to_owned(), None))
            }
            Self { address: Some((host, port)), local: None, token_file, ca, .. } => {
                let remote = RemoteDevice { host, port, token_file, ca_pem: None, rate_cap: None };
                Ok(DeviceStatement::Create { name, way: remote.into(), ca })
            }
            Self { address: None, local: Some(socket), token_file: None, ca: None, .. } => {
                let local = LocalDevice { socket, rate_cap: None };
                Ok(DeviceStatement::Create { name, way: local.into(), ca: None })
            }
            Self { local: Some(_), .. } => {
                let message = "local stands alone: a device on this machine has no address, token or certificate";
                Err(invalid(message.to_owned(), None))
            }
            _ => {
                let message = "a device needs address = 'host:port', or local = '/path/of/its/socket', or mirrors";
                Err(invalid(message.to_owned(), None))
            }
        }
    }
}

/// Names of devices, separated by commas, as the setting `default_device` has them.
fn names(text: &str, at: Option<Position>) -> Result<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().any(String::is_empty) {
        true => Err(invalid(format!("'{text}' is no list of devices: write 'name, name'"), at)),
        false => Ok(names),
    }
}

fn address(text: &str, at: Option<Position>) -> Result<(String, u16)> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        let host = inner.unwrap_or(host);
        (!host.is_empty()).then(|| (host.to_owned(), port))
    });
    parts.ok_or_else(|| {
        invalid(format!("'{text}' is not an address: write 'host:port', as in 'storage1:7700'"), at)
    })
}

/// A path that leads to the same file whatever folder the program runs in.
fn whole_path(text: &str, at: Option<Position>) -> Result<PathBuf> {
    let path = PathBuf::from(text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(invalid(format!("'{text}' is not a whole path: begin it with /"), at)),
    }
}

fn invalid(message: String, position: Option<Position>) -> Error {
    Error::Invalid { message, fault: Fault::Parameter, position }
}

#[cfg(test)]
mod tests;
