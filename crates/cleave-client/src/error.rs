//! Errors of a client: one variant for each thing that the caller can do.

use std::fmt;
use std::io;

/// Why a client could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A URL, a file that it names, or a call is wrong: correct it.
    #[error("{0}")]
    Usage(String),
    /// A COPY from or to this client was run as any other statement: call what gives it a stream.
    #[error("{0} is not supported here: there is no stream of rows")]
    CopyWithoutStream(&'static str),
    /// Not as many values came as the statement has parameters: correct the call.
    #[error("the statement has {wanted} parameters, and {given} values came")]
    ParameterCount {
        /// Parameters of the statement.
        wanted: usize,
        /// Values.
        given: usize,
    },
    /// More values came, or columns, than the protocol can count: give fewer at a time.
    #[error("a statement has at most 65535 parameters and columns")]
    TooMany,
    /// The server cannot be reached: start it, or correct its address.
    #[error("cannot reach {place}: {source}")]
    Unreachable {
        /// Host and port.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// TLS failed: correct `sslmode` or `sslrootcert`, or distrust the server.
    #[error("TLS with {host}: {detail}")]
    Tls {
        /// The host.
        host: String,
        /// What is wrong.
        detail: String,
    },
    /// The server asks for a password, and none is known: ask the user for it.
    #[error(
        "the server asks for the password of \"{user}\": set PGPASSWORD, or write it into ~/.pgpass{note}"
    )]
    PasswordWanted {
        /// The user.
        user: String,
        /// Why the password file was not read, after a semicolon; or nothing.
        note: String,
    },
    /// The server refused a statement, or the connection.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// A value does not fit the Arrow type of its column, or is none of its type: cast it in the statement.
    #[error("column \"{column}\": {detail}")]
    Value {
        /// The column.
        column: String,
        /// What is wrong.
        detail: &'static str,
    },
    /// What COPY reads from or writes to failed.
    #[error("{0}")]
    Stream(#[source] io::Error),
    /// A result of this connection is still being read: read it to its end, or drop it.
    #[error("a result of this connection is still being read")]
    Busy,
    /// The server broke the protocol; the connection is closed.
    #[error("the server does not keep to PostgreSQL's protocol: {0}")]
    Protocol(String),
    /// The connection broke: connect again. Whether the last statement was done is not known.
    #[error("the connection to the server is lost: {0}")]
    Lost(String),
}

impl ClientError {
    /// The SQLSTATE: the server's, or one of the SQL standard or of PostgreSQL's own libraries for what fails on this
    /// side.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Server(error) => &error.sqlstate,
            Self::Unreachable { .. } | Self::Tls { .. } => "08001",
            Self::PasswordWanted { .. } => "28P01",
            Self::Lost(_) => "08006",
            Self::Protocol(_) => "08P01",
            Self::Value { .. } => "22003",
            Self::Stream(_) => "58030",
            Self::ParameterCount { .. } | Self::TooMany => "07001",
            Self::CopyWithoutStream(_) => "0A000",
            Self::Usage(_) | Self::Busy => "HY000",
        }
    }

    /// What the server said, if the error is the server's.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            _ => None,
        }
    }
}

/// An error or a notice of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerError {
    /// ERROR, FATAL, PANIC; of a notice WARNING, NOTICE, DEBUG, INFO or LOG.
    pub severity: String,
    /// The SQLSTATE.
    pub sqlstate: String,
    /// What happened.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// The character of the statement that it is about, counted from 1.
    pub position: Option<u32>,
    /// Where it happened: a line of COPY, a function.
    pub context: Option<String>,
    /// The schema.
    pub schema: Option<String>,
    /// The table.
    pub table: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The constraint.
    pub constraint: Option<String>,
}

impl ServerError {
    /// Whether the server closes the connection after it.
    pub(crate) fn is_fatal(&self) -> bool {
        self.severity == "FATAL" || self.severity == "PANIC"
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}: {}", self.severity, self.sqlstate, self.message)
    }
}

impl std::error::Error for ServerError {}
