//! Stops the statement that a connection runs, over a connection of its own.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::address::Address;
use crate::error::ClientError;
use crate::greeting::Key;
use crate::transport;

/// The code of a request to cancel.
const CANCEL: u32 = 80_877_102;

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
