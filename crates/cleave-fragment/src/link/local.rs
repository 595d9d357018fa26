//! The link to a device on this machine: the frames of [`remote`](super::remote), through shared memory.
//!
//! ```text
//! host ─ ring ─▶ cleaved      both rings in one region that cleaved made for this connection
//!      ◀─ ring ─
//!      ═ Unix socket ═        hands over both regions; its end says at once that the other side died
//!   lock table                of the host, for all connections to the device (`handed_table`)
//! ```
//!
//! Everything above the stream is shared with a remote link: commands, credits, resuming a run over the next connection
//! ([`ConnectedLink`]). There is no token: the system tells the user of the other side.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_shmem::HostLocks;

use super::connected_link::{AbandonedRuns, ConnectedLink};
use super::dial::{Dial, Way};
use super::link::LinkError;

impl ConnectedLink {
    /// A link through shared memory to the device that listens at the Unix socket `socket`; it connects on first use.
    ///
    /// `rate_cap` is in bytes a second, in each direction. `abandoned` is the list of runs that earlier links to the
    /// same device abandoned. `table` is offered to the device's process, so that its runs lock rows there.
    ///
    /// # Errors
    /// [`LinkError::Connect`] if the system gives no thread.
    pub fn local(
        socket: &Path,
        rate_cap: Option<u64>,
        abandoned: AbandonedRuns,
        table: Option<Arc<HostLocks>>,
    ) -> Result<Arc<Self>, LinkError> {
        let way = Way::Local { socket: PathBuf::from(socket), table };
        Ok(Arc::new(Self::new(Dial::new(way, rate_cap), abandoned)?))
    }
}

/// The display name of the device at `socket`.
pub fn address_of(socket: &Path) -> String {
    format!("local:{}", socket.display())
}
