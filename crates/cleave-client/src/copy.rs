//! COPY: rows from a reader to the server, and from the server to a writer, in the format of the statement.
//!
//! The simple protocol is used: a server that refuses a COPY then goes on by itself. Before each piece it is looked at
//! whether the server has refused, so that a long file is not sent in vain.

use std::io::{Read, Write};

use bytes::BufMut;

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
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
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
        let mut connection = self.free()?;
        begin(&mut connection, sql, b'H', "this is no COPY TO STDOUT").await?;
        loop {
            match connection.next().await? {
                (b'd', body) => writer.write_all(&body).map_err(ClientError::Stream)?,
                (b'c', _) => break,
                (b'E', body) => return Err(connection.refusal(&body).await),
                (kind, _) => return Err(connection.unexpected(kind)),
            }
        }
        ended(&mut connection).await
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
