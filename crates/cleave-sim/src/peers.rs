//! The links from device to device: a device's wish to reach another one in, a [`SimLink`] of its process out.
//!
//! 1. A [`Machine`] hands each start of its device a [`SimPeers`], which finds the other machine by its name.
//! 2. The link speaks for a [`Peer`]: this start, and the grant that it shows. On each connection the other device
//!    looks the grant up anew, with the first message that arrives, and serves what it is good for until that ends.
//!
//! A connection between two machines breaks with a message that is lost on it, and with either process; the host's
//! links to them go on. Invariant: what is left over of an ended process reaches no other device.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cleave_device::{PeerConnector, Runtime};
use cleave_fragment::command::PeerAddress;
use cleave_fragment::link::{DeviceService, Link, LinkError};
use tokio::sync::watch;

use crate::link::SimLink;
use crate::machine::Machine;
use crate::world;

/// Makes the links of one start of a machine's device.
#[derive(Debug)]
pub(crate) struct SimPeers {
    machine: Weak<Machine>,
    start: u64,
}

impl SimPeers {
    /// For the start of this number of `machine`.
    pub(crate) fn of(machine: Weak<Machine>, start: u64) -> Self {
        Self { machine, start }
    }
}

impl PeerConnector for SimPeers {
    fn connect(&self, address: &PeerAddress) -> Result<Arc<dyn Link>, LinkError> {
        let other = world::with(|world| world.machine(&address.host));
        let (Some(machine), Some(other)) = (self.machine.upgrade(), other) else {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(LinkError::Connect { address: address.host.clone(), source });
        };
        let peer = Peer {
            machine,
            start: self.start,
            shown: address.credential(),
            connection: watch::Sender::new(0),
            let_in: Mutex::default(),
        };
        Ok(SimLink::between(peer, other))
    }
}

/// See the [module](self).
pub(crate) struct Peer {
    machine: Arc<Machine>,
    start: u64,
    /// In the place of a token.
    shown: String,
    /// Counts how often its connections broke.
    connection: watch::Sender<u64>,
    let_in: Mutex<Option<LetIn>>,
}

/// What serves a connection, and the counts of what broke before that.
type LetIn = (Vec<u64>, Arc<dyn DeviceService>);

impl Peer {
    /// The machine that speaks.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether the process that speaks is still there.
    pub(crate) fn is_running(&self) -> bool {
        self.machine.is_running_since(self.start)
    }

    /// A receiver that changes when its machine's connections break.
    pub(crate) fn machine_connections(&self) -> watch::Receiver<u64> {
        self.machine.peer_connections()
    }

    /// A receiver that changes when this connection breaks.
    pub(crate) fn connection(&self) -> watch::Receiver<u64> {
        let mut receiver = self.connection.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    /// Breaks the connection.
    pub(crate) fn break_connection(&self) {
        self.connection.send_modify(|count| *count += 1);
    }

    /// What `device` serves on the connection whose `counts` these are; None: it does not have the grant.
    pub(crate) fn let_in(
        &self,
        counts: &[u64],
        device: Arc<Runtime>,
    ) -> Option<Arc<dyn DeviceService>> {
        let mut let_in = self.let_in.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, service)) = &*let_in
            && of == counts
        {
            return Some(Arc::clone(service));
        }
        let service = device.peer(self.shown.as_bytes())?;
        *let_in = Some((counts.to_vec(), Arc::clone(&service)));
        Some(service)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("machine", &self.machine.name()).finish_non_exhaustive()
    }
}
