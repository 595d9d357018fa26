//! A connection to the measured database: statements with values in, rows of text out.
//!
//! 1. [`Client`] is the interface that a workload uses.
//! 2. [`embedded`] is a session of a database in this process, [`wire`] a connection to a server, Cleave's or
//!    PostgreSQL's.
//!
//! Both take the same SQL and return values as text, so that one workload runs over both.

pub(crate) mod embedded;
pub(crate) mod wire;

/// Rows to load into a table, as lines of CSV in pieces.
pub(crate) type CsvPieces = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// One connection, used by one thread.
pub(crate) trait Client: Send {
    /// Runs statements without parameters.
    fn run(&mut self, sql: &str) -> Result<Rows, ClientError>;

    /// Prepares a statement with parameters as `name`.
    fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError>;

    /// Runs the prepared statement `name`; values are text, None is NULL.
    fn execute(&mut self, name: &str, values: &[Value]) -> Result<Rows, ClientError>;

    /// Loads rows into `table`.
    fn load(&mut self, table: &str, rows: CsvPieces) -> Result<(), ClientError>;
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value(pub(crate) Option<String>);

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self(Some(value.to_string()))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self(Some(value))
    }
}

/// The result of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Its rows; None is NULL.
    pub(crate) rows: Vec<Vec<Option<String>>>,
    /// Rows that it changed or returned, according to its tag.
    pub(crate) count: u64,
}

impl Rows {
    /// The value of a row's column; None if there is no such row, or it is NULL.
    pub(crate) fn text(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// The same, as an integer.
    pub(crate) fn number(&self, row: usize, column: usize) -> Option<i64> {
        self.text(row, column)?.parse().ok()
    }
}

/// The rows that a command's tag counts, as in "INSERT 0 3".
fn count_in(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Why a statement failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientError {
    /// The database refused it.
    #[error("ERROR {state}: {message}")]
    Refused {
        /// SQLSTATE.
        state: String,
        /// The message.
        message: String,
    },
    /// The connection is unusable.
    #[error("{0}")]
    Connection(String),
}

impl ClientError {
    /// Whether the same transaction may succeed when it is retried: a serialization failure or a deadlock.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Refused { state, .. } if state == "40001" || state == "40P01")
    }
}
