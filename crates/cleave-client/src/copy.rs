//! COPY: rows from a reader to the server, and from the server to a writer or piece by piece ([`CopyOut`]), in the
//! format of the statement.
//!
//! The simple protocol is used: a server that refuses a COPY then goes on by itself. Before each piece it is looked at
//! whether the server has refused, so that a long file is not sent in vain.

use std::fmt;
use std::io::{Read, Write};

use bytes::{BufMut, Bytes};
use tokio::sync::OwnedMutexGuard;

use crate::answer::{row_count, tag};
use crate::client::{Client, without_zero};
use crate::error::ClientError;
use crate::wire::Connection;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

impl Client {
    /// Runs a COPY … FROM STDIN with what `reader` gives, which blocks this thread; returns the number of rows.
    ///
    /// # Errors
    /// [`ClientError::Stream`] if the reader fails, [`ClientError::Usage`] for another statement, and errors of the
    /// statement. Then no row is copied.
    pub async fn copy_in(
        &mut self,
        sql: &str,
        reader: &mut (dyn Read + Send),
    ) -> Result<u64, ClientError> {
        let mut connection = self.free()?;
        begin(&mut connection, sql, b'G', "this is no COPY FROM STDIN").await?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match connection.next_now()? {
                None => {}
                Some((b'E', body)) => return Err(connection.refusal(&body).await),
                Some((kind, _)) => return Err(connection.unexpected(kind)),
            }
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    let bytes = piece.get(..count).unwrap_or_default();
                    connection.put(b'd', |body| body.put_slice(bytes))?;
                    connection.flush().await?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    // There may be nothing for long: nobody is to wait for it who is stopped, here or at the server.
                    connection.put(b'd', |_| {})?;
                    connection.flush().await?;
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    connection.put_copy_fail(&error.to_string())?;
                    connection.flush().await?;
                    return Err(ClientError::Stream(error));
                }
            }
        }
        connection.put_copy_done();
        connection.flush().await?;
        ended(&mut connection).await
    }

    /// Runs a COPY … TO STDOUT, and gives its rows to `writer`, which blocks this thread; returns the number of rows.
    ///
    /// # Errors
    /// [`ClientError::Stream`] if the writer fails, [`ClientError::Usage`] for another statement, and errors of the
    /// statement, which may come after some rows.
    pub async fn copy_out(
        &mut self,
        sql: &str,
        writer: &mut (dyn Write + Send),
    ) -> Result<u64, ClientError> {
        let mut rows = self.copy_out_pieces(sql).await?;
        while let Some(piece) = rows.next_piece().await? {
            writer.write_all(&piece).map_err(ClientError::Stream)?;
        }
        Ok(rows.row_count())
    }

    /// Begins a COPY … TO STDOUT whose rows are taken piece by piece.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for another statement, and errors of the statement.
    pub async fn copy_out_pieces(&mut self, sql: &str) -> Result<CopyOut, ClientError> {
        let mut connection = self.free()?;
        begin(&mut connection, sql, b'H', "this is no COPY TO STDOUT").await?;
        Ok(CopyOut { connection: Some(connection), row_count: 0 })
    }
}

/// The rows of a COPY … TO STDOUT. It holds the connection until its end has been read or it is dropped; what is left
/// is then skipped.
pub struct CopyOut {
    /// Until all has been read.
    connection: Option<OwnedMutexGuard<Connection>>,
    row_count: u64,
}

impl CopyOut {
    /// The next bytes, in the format of the statement; None after the last.
    ///
    /// # Errors
    /// Errors of the statement, and those of the connection. Nothing more comes after one.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        let read = self.read_piece().await;
        if read.is_err() {
            self.connection = None;
        }
        read
    }

    /// The number of rows; 0 until all have been read.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// A dropped future goes on where it was.
    async fn read_piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Some(connection) = self.connection.as_deref_mut() else { return Ok(None) };
        loop {
            match connection.next().await? {
                (b'd', body) => return Ok(Some(body)),
                (b'c', _) => {}
                (b'C', body) => self.row_count = row_count(&tag(&body)).unwrap_or(0),
                (b'E', body) => return Err(connection.refusal(&body).await),
                (b'Z', _) => {
                    self.connection = None;
                    return Ok(None);
                }
                (kind, _) => return Err(connection.unexpected(kind)),
            }
        }
    }
}

impl fmt::Debug for CopyOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CopyOut").field("rows", &self.row_count).finish_non_exhaustive()
    }
}

/// Sends a COPY, which the server begins with the message `kind`; of another statement the error says `otherwise`.
async fn begin(
    connection: &mut Connection,
    sql: &str,
    kind: u8,
    otherwise: &str,
) -> Result<(), ClientError> {
    connection.settle().await?;
    connection.put_query(without_zero(sql)?)?;
    connection.flush().await?;
    match connection.next().await? {
        (found, _) if found == kind => Ok(()),
        (b'E', body) => Err(connection.refusal(&body).await),
        _ => {
            connection.settle().await?;
            Err(ClientError::Usage(otherwise.to_owned()))
        }
    }
}

/// The number of rows, from the end of a COPY.
async fn ended(connection: &mut Connection) -> Result<u64, ClientError> {
    let mut count = None;
    loop {
        match connection.next().await? {
            (b'C', body) => count = row_count(&tag(&body)),
            (b'E', body) => return Err(connection.refusal(&body).await),
            (b'Z', _) => return Ok(count.unwrap_or(0)),
            (kind, _) => return Err(connection.unexpected(kind)),
        }
    }
}
