//! The link to a device on this machine: the frames of [`remote`](super::remote), through shared memory.
//!
//! ```text
//! host ─ ring ─▶ cleaved      both rings in one region that cleaved made for this connection
//!      ◀─ ring ─
//!      ═ Unix socket ═        hands over the region; its end says at once that the other side died
//! ```
//!
//! Everything above the stream is what a remote link has: commands, credits, resuming a run over the next
//! connection ([`ConnectedLink`]). There is no token: the system says which user is on the other side.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::connected_link::{AbandonedRuns, ConnectedLink};
use super::dial::{Dial, Way};
use super::link::{AttachMode, Link, LinkError, RunStream, Traffic};
use crate::command::{Command, Execute, Reply};

/// A link through shared memory.
#[derive(Debug)]
pub struct LocalLink(ConnectedLink);

impl LocalLink {
    /// A link that connects when it is first used, to the device that listens at the Unix socket `socket`.
    ///
    /// `rate_cap` is in bytes a second, in each direction. `abandoned` is what earlier links to the same device
    /// left behind.
    ///
    /// # Errors
    /// [`LinkError::Connect`] where the system gives no thread.
    pub fn new(
        socket: &Path,
        rate_cap: Option<u64>,
        abandoned: AbandonedRuns,
    ) -> Result<Arc<Self>, LinkError> {
        let way = Way::Local { socket: PathBuf::from(socket) };
        Ok(Arc::new(Self(ConnectedLink::new(Dial::new(way, rate_cap), abandoned)?)))
    }

    /// A link that has connected, and released what the links before it abandoned; the arguments are those of
    /// [`LocalLink::new`].
    ///
    /// # Errors
    /// Whatever keeps the device from answering.
    pub async fn connect(
        socket: &Path,
        rate_cap: Option<u64>,
        abandoned: AbandonedRuns,
    ) -> Result<Arc<Self>, LinkError> {
        let link = Self::new(socket, rate_cap, abandoned)?;
        link.0.open().await?;
        Ok(link)
    }
}

#[async_trait]
impl Link for LocalLink {
    async fn call(&self, command: Command) -> Result<Reply, LinkError> {
        self.0.call(command).await
    }

    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError> {
        self.0.execute(request).await
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    fn mode(&self) -> AttachMode {
        self.0.mode()
    }

    fn device(&self) -> String {
        self.0.device()
    }
}

/// How people name the device at `socket`.
pub fn address_of(socket: &Path) -> String {
    format!("local:{}", socket.display())
}
