//! The answer to a statement: its rows batch by batch, and then its tag.
//!
//! Invariant: it holds the connection until its end has been read or it is dropped, and no more rows than one batch.

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tokio::sync::OwnedMutexGuard;

use crate::cancel::CancelHandle;
use crate::columns::{NO_COLUMNS, Rows, described};
use crate::error::ClientError;
use crate::kind::Kind;
use crate::wire::Connection;

/// Most rows of a batch.
pub const BATCH_ROWS_MAX: usize = 64 << 10;

/// The answer to a statement.
pub struct Answer {
    /// Until all has been read.
    connection: Option<OwnedMutexGuard<Connection>>,
    /// Of a statement that returns rows.
    rows: Option<Rows>,
    schema: Option<SchemaRef>,
    /// The first batch, which was read to know the schema.
    first: Option<RecordBatch>,
    tag: Option<String>,
}

impl Answer {
    /// Reads the answer's begin: its first rows, or its end.
    pub(crate) async fn begin(
        connection: OwnedMutexGuard<Connection>,
        rows: Option<Rows>,
    ) -> Result<Self, ClientError> {
        let connection = Some(connection);
        let mut answer = Self { connection, rows, schema: None, first: None, tag: None };
        answer.first = answer.read_batch().await?;
        if let Some(rows) = &mut answer.rows {
            answer.schema = Some(rows.schema()?);
        }
        Ok(answer)
    }

    /// The columns, if the statement returns rows.
    #[must_use]
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// The next rows, at most [`BATCH_ROWS_MAX`]; None after the last.
    ///
    /// # Errors
    /// Errors of the statement, and those of the connection. There are no more rows after one.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>, ClientError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.read_batch().await,
        }
    }

    /// All rows that are left, in memory.
    ///
    /// # Errors
    /// As [`Answer::next_batch`].
    pub async fn collect(&mut self) -> Result<Vec<RecordBatch>, ClientError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch().await? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Gives up what is left of it: stops the statement by its client's `cancel`, and skips what the server still
    /// sends.
    pub async fn stop(mut self, cancel: &CancelHandle) {
        if let Some(connection) = self.connection.as_deref_mut() {
            cancel.stop(connection).await;
        }
    }

    /// Whether all of it has come from the server: there is nothing to cancel.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.connection.is_none()
    }

    /// The command tag, as `INSERT 0 2`; None until all rows have been read, and for an empty statement.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The rows that the statement returned or changed, as its tag says.
    #[must_use]
    pub fn row_count(&self) -> Option<u64> {
        self.tag().and_then(row_count)
    }

    async fn read_batch(&mut self) -> Result<Option<RecordBatch>, ClientError> {
        let read = self.read_rows().await;
        if read.is_err() {
            // What is left of the answer is skipped before the next statement.
            self.connection = None;
        }
        read
    }

    /// Reads up to a full batch, or to the end. A dropped future goes on where it was.
    async fn read_rows(&mut self) -> Result<Option<RecordBatch>, ClientError> {
        let Some(connection) = self.connection.as_deref_mut() else { return Ok(None) };
        loop {
            match connection.next().await? {
                (b'D', body) => {
                    let taken = self.rows.as_mut().and_then(|rows| rows.append(&body));
                    taken.ok_or_else(|| connection.broken("a row that is none"))??;
                    if let Some(rows) = self.rows.as_mut().filter(|rows| rows.is_full()) {
                        return rows.batch().map(Some);
                    }
                }
                // The statement is bound, returns no rows, or was empty.
                (b'2' | b'n' | b'I', _) => {}
                (b'T', body) if self.rows.is_none() => {
                    let columns = described(&body, |_, _| Kind::Shown);
                    let columns = columns.ok_or_else(|| connection.broken(NO_COLUMNS))?;
                    self.rows = Some(Rows::new(columns));
                }
                (b'C', body) => self.tag = Some(tag(&body)),
                (b'E', body) => return Err(connection.refusal(&body).await),
                (kind @ (b'G' | b'H'), _) => return Err(connection.refuse_copy(kind).await),
                (b'Z', _) => {
                    self.connection = None;
                    let rows = self.rows.as_mut().filter(|rows| !rows.is_empty());
                    return rows.map(Rows::batch).transpose();
                }
                (kind, _) => return Err(connection.unexpected(kind)),
            }
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Answer").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// The tag in a CommandComplete.
pub(crate) fn tag(body: &[u8]) -> String {
    String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned()
}

/// The rows that a tag counts.
pub(crate) fn row_count(tag: &str) -> Option<u64> {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok())
}
