//! Statements whose rows are text and are not decoded: prepared once and executed often, or sent as they are.
//!
//! ```text
//!  query_text:    Query                ─▶ rows, tag, ReadyForQuery, of each statement
//!  prepare:       Parse, Sync          ─▶ ParseComplete, ReadyForQuery
//!  execute_text:  Bind, Execute, Sync  ─▶ BindComplete, rows, tag, ReadyForQuery
//! ```
//! Each is one round trip. A row is checked and copied to the others; its values are neither decoded nor allocated
//! one by one.
//!
//! Invariant: every row of a [`TextRows`] has the values that it counts, and they are UTF-8.

use bytes::BufMut;

use crate::answer::row_count;
use crate::client::{Client, put_execute, without_zero};
use crate::error::ClientError;
use crate::wire::{Connection, Reader, put_text};

/// Rows as the server sent them, in text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextRows {
    /// The values of all rows, each with its length before it.
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
    count: u64,
}

impl TextRows {
    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The value of a row's column; None if there is no such row or column, or it is NULL.
    #[must_use]
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        let start = match row.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let mut values = Reader::new(self.bytes.get(start..*self.ends.get(row)?)?);
        for _ in 0..column {
            values.sized()?;
        }
        std::str::from_utf8(values.sized()??).ok()
    }

    /// The rows that the last statement returned or changed, as its tag says.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Appends the row of a DataRow message; returns false if the message is none, or not of text.
    fn append(&mut self, row: &[u8]) -> bool {
        let mut reader = Reader::new(row);
        let Some(columns) = reader.u16() else { return false };
        let values = reader.rest();
        for _ in 0..columns {
            let is_text = match reader.sized() {
                Some(Some(value)) => std::str::from_utf8(value).is_ok(),
                Some(None) => true,
                None => false,
            };
            if !is_text {
                return false;
            }
        }
        if !reader.is_empty() {
            return false;
        }
        self.bytes.extend_from_slice(values);
        self.ends.push(self.bytes.len());
        true
    }
}

impl Client {
    /// Runs the statements of `sql`, which take no parameters and are one transaction; the rows are those of the last
    /// one that returns any.
    ///
    /// # Errors
    /// The first error of a statement, after which those that follow do not run; a COPY from or to this client is one.
    pub async fn query_text(&mut self, sql: &str) -> Result<TextRows, ClientError> {
        let mut connection = self.free()?;
        connection.settle().await?;
        connection.put_query(without_zero(sql)?)?;
        connection.flush().await?;
        answered(&mut connection).await
    }

    /// Prepares a statement for [`Client::execute_text`]; it lasts as long as the session.
    ///
    /// # Errors
    /// Errors of the statement, as that there is one of this name.
    pub async fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        let (name, sql) = (without_zero(name)?, without_zero(sql)?);
        let mut connection = self.free()?;
        connection.settle().await?;
        connection.put(b'P', |body| {
            put_text(body, name);
            put_text(body, sql);
            body.put_u16(0);
        })?;
        connection.put_sync();
        connection.flush().await?;
        answered(&mut connection).await.map(|_| ())
    }

    /// Runs the statement that was prepared as `name`, with the texts of its parameters; None is NULL.
    ///
    /// # Errors
    /// Errors of the statement.
    pub async fn execute_text<'v>(
        &mut self,
        name: &str,
        values: impl ExactSizeIterator<Item = Option<&'v str>>,
    ) -> Result<TextRows, ClientError> {
        let name = without_zero(name)?;
        let count = u16::try_from(values.len()).map_err(|_| ClientError::TooMany)?;
        let mut connection = self.free()?;
        connection.settle().await?;
        connection.put(b'B', |body| {
            put_text(body, "");
            put_text(body, name);
            // All are text.
            body.put_u16(0);
            body.put_u16(count);
            for value in values {
                match value {
                    None => body.put_i32(-1),
                    Some(value) => {
                        // Of a longer one the message is refused.
                        body.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
                        body.put_slice(value.as_bytes());
                    }
                }
            }
            body.put_u16(0);
        })?;
        put_execute(&mut connection)?;
        connection.put_sync();
        connection.flush().await?;
        answered(&mut connection).await
    }
}

/// Reads up to ReadyForQuery.
async fn answered(connection: &mut Connection) -> Result<TextRows, ClientError> {
    let mut rows = TextRows::default();
    loop {
        match connection.next().await? {
            (b'D', body) => {
                if !rows.append(&body) {
                    return Err(connection.broken("a row that is none"));
                }
            }
            (b'C', body) => rows.count = counted(&body),
            // Another statement of several.
            (b'T', _) => rows = TextRows::default(),
            // The statement is parsed, bound, or was empty.
            (b'1' | b'2' | b'I', _) => {}
            (b'E', body) => return Err(connection.refusal(&body).await),
            (kind @ (b'G' | b'H'), _) => return Err(connection.refuse_copy(kind).await),
            (b'Z', _) => return Ok(rows),
            (kind, _) => return Err(connection.unexpected(kind)),
        }
    }
}

/// The rows that the tag of a CommandComplete counts.
fn counted(body: &[u8]) -> u64 {
    let tag = std::str::from_utf8(body.strip_suffix(&[0]).unwrap_or(body));
    tag.ok().and_then(row_count).unwrap_or(0)
}
