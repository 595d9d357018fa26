//! Stops the statement that a connection runs, over a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::address::Address;
use crate::error::ClientError;
use crate::greeting::Key;
use crate::transport;
use crate::wire::Connection;

/// The code of a request to cancel.
const CANCEL: u32 = 80_877_102;
/// How long a statement may take to end after a request, until the next one.
const AGAIN: Duration = Duration::from_millis(500);

/// Stops the statement that a [`Client`](crate::Client) runs, from any task or thread.
#[derive(Clone)]
pub struct CancelHandle {
    address: Arc<Address>,
    key: Key,
}

impl CancelHandle {
    pub(crate) fn new(address: Arc<Address>, key: Key) -> Self {
        Self { address, key }
    }

    /// Asks the server to stop the statement, which then fails with SQLSTATE 57014, unless it has ended meanwhile.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn cancel(&self) -> Result<(), ClientError> {
        match tokio::time::timeout(self.address.patience(), self.ask()).await {
            Ok(asked) => asked,
            Err(_) => Err(ClientError::Lost("no answer to a request to cancel".to_owned())),
        }
    }

    /// Has the server stop the statement whose answer `connection` still owes, and skips the rest of that answer. A
    /// request that arrives before the server has begun with the statement has no effect, so it is repeated.
    pub(crate) async fn stop(&self, connection: &mut Connection) {
        // A server that cannot be reached has lost the statement.
        while connection.owes() && self.cancel().await.is_ok() {
            if tokio::time::timeout(AGAIN, connection.settle()).await.is_ok() {
                return;
            }
        }
    }

    async fn ask(&self) -> Result<(), ClientError> {
        let unreachable = |source| ClientError::Unreachable { place: self.address.place(), source };
        let mut stream = transport::open(&self.address).await?;
        let mut request = BytesMut::with_capacity(16);
        for word in [16, CANCEL, self.key.backend, self.key.secret] {
            request.put_u32(word);
        }
        stream.write_all(&request).await.map_err(unreachable)?;
        stream.flush().await.map_err(unreachable)?;
        // The server closes when it has done it. One that ends the stream otherwise has done it too.
        drop(stream.read(&mut [0]).await);
        Ok(())
    }
}

impl std::fmt::Debug for CancelHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "CancelHandle({:?})", self.address)
    }
}
