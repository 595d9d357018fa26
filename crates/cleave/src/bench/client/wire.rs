//! A connection by PostgreSQL's protocol as a [`Client`]: blocking, one thread each, prepared statements, values as
//! text.
//!
//! ```text
//!  run:      Query ─▶                    ─▶ rows, tag, ReadyForQuery
//!  prepare:  Parse, Sync ─▶              ─▶ ParseComplete, ReadyForQuery
//!  execute:  Bind, Execute, Sync ─▶      ─▶ BindComplete, rows, tag, ReadyForQuery
//! ```
//!
//! A server may ask for a password by SCRAM-SHA-256 ([`scram`]), and speak TLS ([`transport`]). COPY out gives its rows
//! piece by piece ([`Wire::copy_out`]). It is not a library, because a library on another runtime would be measured
//! too, and this client needs few messages.
//!
//! Source: PostgreSQL's manual, "Message Formats".
#![expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]

mod scram;
mod transport;

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use super::{Client, ClientError, CsvPieces, Rows, Value, count_in};
use scram::Proof;
use transport::Transport;

/// Time limit for an address to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest message that is accepted, in bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A server and its user: `postgres://user:password@host:port/database?sslrootcert=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    host: String,
    port: u16,
    user: String,
    password: Option<Password>,
    database: String,
    /// The certificate that the server's must descend from; None for no TLS.
    certificate: Option<PathBuf>,
}

/// A password, which is never printed.
#[derive(Clone, PartialEq, Eq)]
struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Password(…)")
    }
}

impl std::str::FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{what}: a server is written as postgres://user@127.0.0.1:5432/database")
        };
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| wrong("it does not begin with postgres://"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = place.rsplit_once('@').unwrap_or(("postgres", place));
        let (user, password) = match user.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (user, None),
        };
        let plain = |text: &str| decoded(text).ok_or_else(|| wrong("a % stands before no byte"));
        let password = match password {
            Some(password) => Some(Password(plain(password)?)),
            None => std::env::var("PGPASSWORD").ok().map(Password),
        };
        let (mut certificate, mut ssl_mode) = (None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslrootcert", file)) => certificate = Some(PathBuf::from(plain(file)?)),
                Some(("sslmode", mode)) => ssl_mode = Some(mode),
                _ => return Err(wrong("of options it takes sslrootcert=FILE and sslmode")),
            }
        }
        match (ssl_mode, &certificate) {
            (None, _) | (Some("verify-ca" | "verify-full"), Some(_)) => {}
            (Some("disable"), _) => certificate = None,
            (Some(_), _) => {
                return Err(wrong(
                    "TLS is spoken where sslrootcert=FILE names whom to trust (sslmode=verify-full), or not at all \
                        (sslmode=disable)",
                ));
            }
        }
        // An IPv6 address is in brackets, since it has colons itself.
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("5432")),
            None => place.rsplit_once(':').unwrap_or((place, "5432")),
        };
        let port = port.parse().map_err(|_| wrong("its port is no number up to 65535"))?;
        if host.is_empty() {
            return Err(wrong("it names no machine"));
        }
        let database = if database.is_empty() { user } else { database };
        Ok(Self {
            host: host.to_owned(),
            port,
            user: plain(user)?,
            password,
            database: plain(database)?,
            certificate,
        })
    }
}

/// Decodes a part of a URL, in which `%41` is the byte 41.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// A connection to a server.
pub(crate) struct Wire {
    stream: BufReader<Transport>,
    message: Vec<u8>,
    body: Vec<u8>,
}

impl Wire {
    /// Connects.
    pub(crate) fn connect(server: &Server) -> Result<Self, ClientError> {
        let place = (server.host.as_str(), server.port);
        let stream = reached(place).map_err(|error| {
            ClientError::Connection(format!("{}:{}: {error}", server.host, server.port))
        })?;
        let stream = match &server.certificate {
            None => Transport::Plain(stream),
            Some(certificate) => Transport::encrypt(stream, &server.host, certificate)
                .map_err(ClientError::Connection)?,
        };
        let mut client =
            Self { stream: BufReader::new(stream), message: Vec::new(), body: Vec::new() };
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        for part in ["user", &server.user, "database", &server.database, ""] {
            startup.extend_from_slice(part.as_bytes());
            startup.push(0);
        }
        let length = u32::try_from(startup.len() + 4).unwrap_or(u32::MAX);
        client.message.extend_from_slice(&length.to_be_bytes());
        client.message.extend_from_slice(&startup);
        client.send()?;
        client.authenticate(server.password.as_ref())?;
        client.answer()?;
        Ok(client)
    }

    /// Proves the password, if the server asks for one.
    fn authenticate(&mut self, password: Option<&Password>) -> Result<(), ClientError> {
        let broken = ClientError::Connection;
        let mut proof: Option<(Proof, String)> = None;
        loop {
            match self.receive()? {
                b'R' => {}
                b'E' => {
                    let error = complaint(&self.body);
                    return Err(broken(format!("{}: {}", error.state, error.message)));
                }
                _ => continue,
            }
            let Some((method, rest)) = self.body.split_at_checked(4) else {
                return Err(malformed());
            };
            let rest = String::from_utf8_lossy(rest).into_owned();
            let told = match (method, password, &mut proof) {
                ([0, 0, 0, 0], _, _) => return Ok(()),
                ([0, 0, 0, 10], Some(_), None)
                    if rest.split('\0').any(|one| one == "SCRAM-SHA-256") =>
                {
                    let begun = Proof::begin().map_err(broken)?;
                    let first = begun.first();
                    proof = Some((begun, String::new()));
                    let length = u32::try_from(first.len()).unwrap_or(u32::MAX).to_be_bytes();
                    [b"SCRAM-SHA-256\0".as_slice(), &length, first.as_bytes()].concat()
                }
                ([0, 0, 0, 11], Some(password), Some((begun, expected))) => {
                    let (last, answer) = begun.last(&rest, &password.0).map_err(broken)?;
                    *expected = answer;
                    last.into_bytes()
                }
                ([0, 0, 0, 12], _, Some((_, expected))) if rest == *expected => continue,
                ([0, 0, 0, 12], ..) => {
                    return Err(broken("the server does not know the password itself".to_owned()));
                }
                ([0, 0, 0, 10], None, _) => {
                    let message = "the server asks for a password: write postgres://user:password@…, or set \
                        PGPASSWORD";
                    return Err(broken(message.to_owned()));
                }
                _ => {
                    let message = "the server asks for a way to log in that is none of this client's: it has \
                        SCRAM-SHA-256";
                    return Err(broken(message.to_owned()));
                }
            };
            self.add(b'p', |body| body.extend_from_slice(&told));
            self.send()?;
        }
    }

    /// Begins a COPY to this client; [`Wire::copied`] returns its rows.
    pub(crate) fn copy_out(&mut self, sql: &str) -> Result<(), ClientError> {
        self.add(b'Q', |body| text(body, sql));
        self.send()?;
        loop {
            match self.receive()? {
                b'H' => return Ok(()),
                b'Z' => return Err(malformed()),
                b'E' => {
                    let error = complaint(&self.body);
                    while self.receive()? != b'Z' {}
                    return Err(ClientError::Refused {
                        state: error.state,
                        message: error.message,
                    });
                }
                _ => {}
            }
        }
    }

    /// The next rows of a COPY, unchanged; None at the end.
    pub(crate) fn copied(&mut self) -> Result<Option<&[u8]>, ClientError> {
        let mut refused = None;
        loop {
            match self.receive()? {
                b'd' => return Ok(Some(&self.body)),
                b'Z' => return refused.map_or(Ok(None), Err),
                b'E' => {
                    let error = complaint(&self.body);
                    if error.is_fatal {
                        return Err(ClientError::Connection(error.message));
                    }
                    refused =
                        Some(ClientError::Refused { state: error.state, message: error.message });
                }
                _ => {}
            }
        }
    }

    /// Appends a message of `kind` to the send buffer.
    fn add(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.message.push(kind);
        let start = self.message.len();
        self.message.extend_from_slice(&[0; 4]);
        body(&mut self.message);
        let length = u32::try_from(self.message.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = self.message.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    fn send(&mut self) -> Result<(), ClientError> {
        let sent = self.stream.get_mut().write_all(&self.message);
        self.message.clear();
        sent.map_err(lost)
    }

    /// Reads one message into `body`; returns its kind.
    fn receive(&mut self) -> Result<u8, ClientError> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(lost)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let Some(length) = length.checked_sub(4).filter(|length| *length <= MESSAGE_BYTES_MAX)
        else {
            return Err(malformed());
        };
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).map_err(lost)?;
        Ok(kind)
    }

    /// Reads up to ReadyForQuery.
    fn answer(&mut self) -> Result<Rows, ClientError> {
        let mut rows = Rows::default();
        let mut refused = None;
        loop {
            match self.receive()? {
                b'Z' => return refused.map_or(Ok(rows), Err),
                b'D' => rows.rows.push(data_row(&self.body).ok_or_else(malformed)?),
                b'C' => {
                    let tag = self.body.strip_suffix(&[0]).unwrap_or(&self.body);
                    rows.count = count_in(&String::from_utf8_lossy(tag));
                }
                b'E' => {
                    let error = complaint(&self.body);
                    // After FATAL nothing more comes.
                    if error.is_fatal {
                        return Err(ClientError::Connection(error.message));
                    }
                    refused =
                        Some(ClientError::Refused { state: error.state, message: error.message });
                }
                b'G' => return Ok(rows),
                _ => {}
            }
        }
    }
}

impl Client for Wire {
    fn run(&mut self, sql: &str) -> Result<Rows, ClientError> {
        self.add(b'Q', |body| text(body, sql));
        self.send()?;
        self.answer()
    }

    fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        self.add(b'P', |body| {
            text(body, name);
            text(body, sql);
            body.extend_from_slice(&[0; 2]);
        });
        self.add(b'S', |_| {});
        self.send()?;
        self.answer().map(|_| ())
    }

    fn execute(&mut self, name: &str, values: &[Value]) -> Result<Rows, ClientError> {
        self.add(b'B', |body| {
            text(body, "");
            text(body, name);
            body.extend_from_slice(&[0; 2]);
            body.extend_from_slice(&u16::try_from(values.len()).unwrap_or(u16::MAX).to_be_bytes());
            for value in values {
                match &value.0 {
                    None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
                    Some(value) => {
                        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
                        body.extend_from_slice(&length.to_be_bytes());
                        body.extend_from_slice(value.as_bytes());
                    }
                }
            }
            body.extend_from_slice(&[0; 2]);
        });
        self.add(b'E', |body| {
            text(body, "");
            body.extend_from_slice(&[0; 4]);
        });
        self.add(b'S', |_| {});
        self.send()?;
        self.answer()
    }

    fn load(&mut self, table: &str, pieces: CsvPieces) -> Result<(), ClientError> {
        self.run(&format!("COPY {table} FROM STDIN WITH (FORMAT csv)"))?;
        for piece in pieces {
            self.add(b'd', |body| body.extend_from_slice(&piece));
            self.send()?;
        }
        self.add(b'c', |_| {});
        self.send()?;
        self.answer().map(|_| ())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.add(b'X', |_| {});
        // A connection that is gone cannot be told.
        drop(self.send());
    }
}

/// A connection to the first address of a machine that answers.
fn reached(place: (&str, u16)) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(ErrorKind::NotFound, "the machine has no address");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn text(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(text.as_bytes());
    body.push(0);
}

fn data_row(mut body: &[u8]) -> Option<Vec<Option<String>>> {
    let count = u16::from_be_bytes(*body.split_off(..2)?.as_array()?);
    let mut row = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let length = i32::from_be_bytes(*body.split_off(..4)?.as_array()?);
        row.push(match usize::try_from(length) {
            Err(_) => None,
            Ok(length) => Some(std::str::from_utf8(body.split_off(..length)?).ok()?.to_owned()),
        });
    }
    Some(row)
}

struct Complaint {
    is_fatal: bool,
    state: String,
    message: String,
}

fn complaint(body: &[u8]) -> Complaint {
    let mut complaint = Complaint { is_fatal: false, state: String::new(), message: String::new() };
    for field in body.split(|byte| *byte == 0) {
        let Some((kind, value)) = field.split_first() else { continue };
        let value = String::from_utf8_lossy(value);
        match kind {
            b'S' | b'V' => complaint.is_fatal |= value == "FATAL" || value == "PANIC",
            b'C' => complaint.state = value.into_owned(),
            b'M' => complaint.message = value.into_owned(),
            _ => {}
        }
    }
    complaint
}

fn lost(error: std::io::Error) -> ClientError {
    let what = match error.kind() {
        ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("the connection broke: {error}"),
    };
    ClientError::Connection(what)
}

fn malformed() -> ClientError {
    ClientError::Connection("the server sent what is no message of the protocol".to_owned())
}
