//! A session that blocks its thread: for threads without a runtime, and for measurements, in which a wake-up by another
//! thread would count.
//!
//! ```text
//!  connect ─▶ Client over a Blocking stream ─▶ each future is ready when it is first polled ─▶ wait
//! ```
//! Invariants: nothing of such a session waits for a runtime, apart from its
//! [`CancelHandle`](crate::CancelHandle). A server that has been reached has as long as the address says until it is
//! ready, whatever it sends meanwhile; a statement takes as long as it takes. Nothing is read while something is sent,
//! so a server's refusal of a COPY is seen after its last row.

use std::sync::Arc;

use futures::FutureExt;

use crate::address::Address;
use crate::client::Client;
use crate::error::ClientError;
use crate::greeting::{self, Key};
use crate::transport;
use crate::wire::{Connection, Shared};

/// Connects to the server at `address`, by TCP; [`wait`] gives what the session's futures yield.
///
/// # Errors
/// As [`Client::connect`]; [`ClientError::Unreachable`] for the address of a Unix socket.
pub fn connect(address: Address) -> Result<Client, ClientError> {
    let address = Arc::new(address.with_setting("application_name", "cleave"));
    let shared = Arc::new(Shared::default());
    let (connection, key) = wait(Box::pin(begun(&address, &shared)))?;
    Ok(Client::of_session(address, shared, connection, key))
}

async fn begun(address: &Address, shared: &Arc<Shared>) -> Result<(Connection, Key), ClientError> {
    let (stream, haste) = transport::open_blocking(address).await?;
    let (mut connection, key) = greeting::begin(stream, address, Arc::clone(shared)).await?;
    haste.end().map_err(|error| ClientError::Lost(error.to_string()))?;
    connection.set_blocking();
    Ok((connection, key))
}

/// What a future of a session of [`connect`] yields, for which this thread is blocked.
///
/// # Errors
/// Those of the future; [`ClientError::Usage`] for a future of another session.
pub fn wait<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    future.now_or_never().unwrap_or_else(|| {
        let message = "only a session that blocks its thread is waited for so";
        Err(ClientError::Usage(message.to_owned()))
    })
}
