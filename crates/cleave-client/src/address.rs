//! The address of a server, and as whom to log in: a URL in, with what the environment adds to it; or a socket.
//!
//! ```text
//!  postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=FILE
//! ```
//! What a URL leaves out comes from PGHOST, PGPORT, PGUSER, PGDATABASE, PGSSLMODE and PGSSLROOTCERT; the password from
//! PGPASSWORD, or else from the password file (PGPASSFILE, or `~/.pgpass`), which nobody else may read.
//!
//! Source: PostgreSQL's manual, "Connection URIs" and "The Password File".

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::ClientError;

mod password_file;

/// How long a server may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// PostgreSQL's port.
const PORT: u16 = 5432;

/// Whether to speak TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    Disable,
    /// If the server does.
    Prefer,
    /// Always, with any certificate unless some are given.
    Require,
    /// Always, with a certificate that is given or was signed by one that is.
    VerifyFull,
}

/// The address of a server, with user, password and database.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    /// The socket of the system that it listens at, in place of host and port.
    socket: Option<PathBuf>,
    user: String,
    password: Option<String>,
    database: String,
    tls: Tls,
    roots: Option<PathBuf>,
    patience: Duration,
    settings: Vec<(String, String)>,
    /// Why the password file was not read.
    password_note: String,
}

impl Address {
    /// Whether `text` is a URL of a server.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        rest_of(text).is_some()
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for one that is wrong.
    pub fn from_url(url: &str) -> Result<Self, ClientError> {
        Self::read(url, &|name| std::env::var(name).ok()).map_err(ClientError::Usage)
    }

    /// The address of a server on this machine, for the user of this process.
    #[must_use]
    pub fn of_socket(socket: SocketAddr, database: &str) -> Self {
        let environment = |name: &str| std::env::var(name).ok();
        let user = environment("PGUSER").unwrap_or_else(|| system_user(&environment));
        let mut address = Self {
            host: socket.ip().to_string(),
            port: socket.port(),
            socket: None,
            user,
            password: None,
            database: database.to_owned(),
            tls: Tls::Prefer,
            roots: None,
            patience: PATIENCE,
            settings: Vec::new(),
            password_note: String::new(),
        };
        address.find_password(&environment);
        address
    }

    /// The address of a process of this machine that listens at the Unix socket `path`, for `user`. Nothing is
    /// encrypted there, and no password is known.
    #[must_use]
    pub fn of_unix_socket(path: &Path, user: &str, database: &str) -> Self {
        Self {
            host: String::new(),
            port: PORT,
            socket: Some(path.to_owned()),
            user: user.to_owned(),
            password: None,
            database: database.to_owned(),
            tls: Tls::Disable,
            roots: None,
            patience: PATIENCE,
            settings: Vec::new(),
            password_note: String::new(),
        }
    }

    /// The same with this password.
    #[must_use]
    pub fn with_password(mut self, password: String) -> Self {
        self.password = Some(password);
        self
    }

    /// The same, but with TLS only where it must be spoken: with `sslmode=prefer` it is not.
    #[must_use]
    pub fn without_optional_tls(mut self) -> Self {
        if self.tls == Tls::Prefer {
            self.tls = Tls::Disable;
        }
        self
    }

    /// The same with a setting that the session begins with, unless it has that already.
    #[must_use]
    pub fn with_setting(mut self, name: &str, value: &str) -> Self {
        if self.settings.iter().all(|(known, _)| known != name) {
            self.settings.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Host and port, as in `db.example.org:5432`; or the path of the socket.
    #[must_use]
    pub fn place(&self) -> String {
        if let Some(path) = &self.socket {
            return path.display().to_string();
        }
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether to speak TLS.
    #[must_use]
    pub fn tls(&self) -> Tls {
        self.tls
    }

    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    pub(crate) fn roots(&self) -> Option<&Path> {
        self.roots.as_deref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    pub(crate) fn password_wanted(&self) -> ClientError {
        ClientError::PasswordWanted { user: self.user.clone(), note: self.password_note.clone() }
    }

    fn read(url: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{what}: a server is written as postgres://user@127.0.0.1:5432/database")
        };
        let plain = |text: &str| decoded(text).ok_or_else(|| wrong("a % stands before no byte"));
        let given = |text: &str| (!text.is_empty()).then(|| plain(text)).transpose();
        let rest = rest_of(url).ok_or_else(|| wrong("it does not begin with postgres://"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = place.rsplit_once('@').unwrap_or(("", place));
        let (user, password) = match user.split_once(':') {
            Some((user, password)) => (user, Some(plain(password)?)),
            None => (user, None),
        };
        // An IPv6 address is in brackets, since it has colons itself.
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("")),
            None => place.rsplit_once(':').unwrap_or((place, "")),
        };
        if host.contains(',') {
            return Err(wrong("it names several hosts"));
        }
        let (mut host, mut port) = (given(host)?, given(port)?);
        let (mut user, mut password, mut database) = (given(user)?, password, given(database)?);
        let (mut mode, mut roots, mut patience) = (None, None, PATIENCE);
        let mut settings = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = plain(value)?;
            match name {
                "host" => host = Some(value),
                "port" => port = Some(value),
                "user" => user = Some(value),
                "password" => password = Some(value),
                "dbname" => database = Some(value),
                "sslmode" => mode = Some(value),
                "sslrootcert" => roots = Some(value),
                "connect_timeout" => {
                    let seconds =
                        value.parse::<u64>().ok().filter(|seconds| (1..=3600).contains(seconds));
                    let seconds =
                        seconds.ok_or_else(|| wrong("connect_timeout takes 1 to 3600 seconds"))?;
                    patience = Duration::from_secs(seconds);
                }
                "application_name" | "options" => settings.push((name.to_owned(), value)),
                // Of a password with a ? in it, the rest is no option, and is not shown.
                _ if options.contains('@') => {
                    return Err(wrong("a ? in a user or password is written as %3F"));
                }
                _ => {
                    return Err(wrong(&format!(
                        "it has an unknown option \"{name}\": known are host, port, user, password, dbname, sslmode, \
                         sslrootcert, connect_timeout, application_name and options"
                    )));
                }
            }
        }
        let or = |given: Option<String>, name: &str| given.or_else(|| environment(name));
        let port = match or(port, "PGPORT") {
            Some(port) => port.parse().map_err(|_| wrong("its port is no number up to 65535"))?,
            None => PORT,
        };
        let user = or(user, "PGUSER").unwrap_or_else(|| system_user(environment));
        let roots = or(roots, "PGSSLROOTCERT").map(PathBuf::from);
        let tls = match (or(mode, "PGSSLMODE").as_deref(), &roots) {
            (Some("disable"), _) => Tls::Disable,
            (None, Some(_)) => Tls::VerifyFull,
            (None | Some("prefer" | "allow"), _) => Tls::Prefer,
            (Some("require"), _) => Tls::Require,
            (Some("verify-full" | "verify-ca"), Some(_)) => Tls::VerifyFull,
            (Some("verify-full" | "verify-ca"), None) => {
                let what =
                    "sslmode=verify-full asks for sslrootcert=FILE, which names whom to trust";
                return Err(wrong(what));
            }
            (Some(_), _) => {
                return Err(wrong("sslmode takes disable, prefer, require and verify-full"));
            }
        };
        let mut address = Self {
            host: or(host, "PGHOST").unwrap_or_else(|| "localhost".to_owned()),
            port,
            socket: None,
            database: or(database, "PGDATABASE").unwrap_or_else(|| user.clone()),
            user,
            password,
            tls,
            roots,
            patience,
            settings,
            password_note: String::new(),
        };
        if address.host.starts_with('/') {
            return Err(wrong("its host is a folder of sockets, and a server is reached by TCP"));
        }
        let texts = [&address.host, &address.user, &address.database];
        let settings = address.settings.iter().map(|(_, value)| value);
        if texts.into_iter().chain(settings).any(|text| text.contains('\0')) {
            return Err(wrong("it holds a zero byte"));
        }
        address.find_password(environment);
        Ok(address)
    }

    /// Takes the password from the environment or the password file, if it has none.
    fn find_password(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        if self.password.is_none() {
            self.password = environment("PGPASSWORD");
        }
        let home = || environment("HOME").map(|home| Path::new(&home).join(".pgpass"));
        let file = environment("PGPASSFILE").map(PathBuf::from).or_else(home);
        let Some(file) = file.filter(|_| self.password.is_none()) else { return };
        let port = self.port.to_string();
        match password_file::look_up(&file, [&self.host, &port, &self.database, &self.user]) {
            Ok(found) => self.password = found,
            Err(why) => self.password_note = format!("; {}: {why}", file.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, database, tls, .. } = self;
        write!(formatter, "Address({user}@{}/{database}, {tls:?})", self.place())
    }
}

fn rest_of(url: &str) -> Option<&str> {
    url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))
}

/// The name of the user of this process, as the system's shells set it, or as the system's file of users has it:
/// services and containers have no shell.
fn system_user(environment: &dyn Fn(&str) -> Option<String>) -> String {
    let named = environment("USER").or_else(|| environment("LOGNAME"));
    let listed = || {
        let user = fs::metadata("/proc/self").ok()?.uid();
        name_of(user, &String::from_utf8_lossy(&fs::read("/etc/passwd").ok()?))
    };
    let named = named.filter(|name| !name.is_empty()).or_else(listed);
    named.unwrap_or_else(|| "postgres".to_owned())
}

/// The name of the user with this number, in lines `name:password:number:…`.
fn name_of(user: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (!name.is_empty() && number.parse::<u32>().ok() == Some(user)).then(|| name.to_owned())
    })
}

/// Decodes a part of a URL, in which `%41` is the byte 41.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let digits =
            part.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        bytes.push(u8::from_str_radix(digits?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
