//! A connection to the measured database: statements with values in, rows of text out.
//!
//! 1. [`Client`] is the interface that a workload uses.
//! 2. [`embedded`] is a session of a database in this process, [`wire`] a connection to a server, Cleave's or
//!    PostgreSQL's.
//!
//! Both take the same SQL and return values as text, so that one workload runs over both.

pub(crate) mod embedded;
pub(crate) mod wire;

use std::io::Read;

use cleave_client::TextRows;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rows {
    /// As a server sent them.
    Sent(TextRows),
    /// Of a session.
    Made {
        /// Its rows; None is NULL.
        rows: Vec<Vec<Option<String>>>,
        /// Rows that it changed or returned, according to its tag.
        count: u64,
    },
}

impl Rows {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Sent(rows) => rows.len(),
            Self::Made { rows, .. } => rows.len(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that the statement changed or returned, according to its tag.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Sent(rows) => rows.count(),
            Self::Made { count, .. } => *count,
        }
    }

    /// The value of a row's column; None if there is no such row, or it is NULL.
    pub(crate) fn text(&self, row: usize, column: usize) -> Option<&str> {
        match self {
            Self::Sent(rows) => rows.text(row, column),
            Self::Made { rows, .. } => rows.get(row)?.get(column)?.as_deref(),
        }
    }

    /// The same, as an integer.
    pub(crate) fn number(&self, row: usize, column: usize) -> Option<i64> {
        self.text(row, column)?.parse().ok()
    }
}

/// Pieces as one stream of bytes.
struct Pieces {
    pieces: CsvPieces,
    piece: Vec<u8>,
    taken: usize,
}

impl Pieces {
    fn new(pieces: CsvPieces) -> Self {
        Self { pieces, piece: Vec::new(), taken: 0 }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.taken == self.piece.len() {
            let Some(piece) = self.pieces.next() else { return Ok(0) };
            (self.piece, self.taken) = (piece, 0);
        }
        let count = self.piece.get(self.taken..).unwrap_or_default().read(buffer)?;
        self.taken += count;
        Ok(count)
    }
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
