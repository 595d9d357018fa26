//! A remote machine: a device over its own media that is killed, loses power and is started again while others run.
//!
//! Its identity stays; each start is a new [`Runtime`], as each start of `cleaved` is. Work left over from a dead start
//! finds its media gone.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cleave_device::{OwnerRecord, Runtime, RuntimeOptions};
use cleave_media::{Clock, Media, SystemClock};
use tokio::sync::watch;

use crate::media::SimMedia;
use crate::peers::SimPeers;
use crate::world::{self, Disk};

/// Identity of the remote device.
pub const FAR: [u8; 16] = [0xfa; 16];
/// That of the second one.
const OTHER: [u8; 16] = [0x07; 16];

/// See the [module](self).
#[derive(Debug)]
pub struct Machine {
    /// The name by which a host reaches it.
    name: &'static str,
    identity: [u8; 16],
    media: Arc<SimMedia>,
    runtime: Mutex<Option<Arc<Runtime>>>,
    /// Durable before every answer, so it survives every restart.
    owner: OwnerRecord,
    /// Counts how often the host's connections to it broke.
    connection: watch::Sender<u64>,
    /// The same of those between it and other machines.
    peer_connections: watch::Sender<u64>,
    /// How often its device was started.
    starts: AtomicU64,
    me: Weak<Self>,
    /// Until then, no message comes to it or from it.
    hangs_until: Mutex<Duration>,
}

/// The resources of a simulated device: small, so that limits are reached.
#[must_use]
pub fn runtime_options(device: [u8; 16]) -> RuntimeOptions {
    RuntimeOptions { cores: 2, io_threads: 2, ..RuntimeOptions::new(device) }
}

impl Machine {
    /// The running machine `far`, over empty media.
    #[must_use]
    pub fn start() -> Arc<Self> {
        Self::start_on("far", FAR, Disk::Far)
    }

    /// The running machine `other`, over empty media on a disk of its own.
    #[must_use]
    pub fn start_other() -> Arc<Self> {
        Self::start_on("other", OTHER, Disk::Other)
    }

    fn start_on(name: &'static str, identity: [u8; 16], disk: Disk) -> Arc<Self> {
        let machine = Arc::new_cyclic(|me| Self {
            name,
            identity,
            media: SimMedia::on(name, disk),
            runtime: Mutex::default(),
            owner: OwnerRecord::in_process(),
            connection: watch::Sender::new(0),
            peer_connections: watch::Sender::new(0),
            starts: AtomicU64::new(0),
            me: Weak::clone(me),
            hangs_until: Mutex::default(),
        });
        world::with(|world| world.enter(&machine));
        machine.boot();
        machine
    }

    /// The name by which a host reaches it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The disk with its media.
    pub fn disk(&self) -> Disk {
        self.media.disk()
    }

    /// Starts the device, if it is not running.
    ///
    /// # Panics
    /// If the device does not start, which cannot happen in a simulation.
    pub fn boot(&self) {
        let mut runtime = self.lock();
        if runtime.is_some() {
            return;
        }
        self.log("starts");
        let media = self.media.attach() as Arc<dyn Media>;
        let start = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        let options = RuntimeOptions {
            owner: self.owner.clone(),
            peers: Some(Arc::new(SimPeers::of(Weak::clone(&self.me), start))),
            ..runtime_options(self.identity)
        };
        *runtime = Some(Runtime::new(media, options).expect("a device starts"));
    }

    /// Ends the device at once; with its power, media lose what was not synced.
    pub fn kill(&self, with_power: bool) {
        self.log(if with_power { "loses its power" } else { "is killed" });
        drop(self.lock().take());
        if with_power {
            self.media.lose_power();
        } else {
            self.media.detach();
        }
        self.break_connections();
    }

    /// Restarts the device if it asks for that after a failed sync.
    pub fn restart_if_asked(&self) {
        if self.media.wants_restart() {
            self.kill(false);
            self.boot();
        }
    }

    /// Lets messages to it and from it wait for so long, on connections that last.
    pub fn hang(&self, time: Duration) {
        self.log(format_args!("hangs for {time:?}"));
        *self.hang_lock() = SystemClock.now() + time;
    }

    /// Ends that.
    pub fn go_on(&self) {
        *self.hang_lock() = Duration::ZERO;
    }

    /// How long messages wait from now on.
    pub fn hangs_for(&self) -> Duration {
        self.hang_lock().saturating_sub(SystemClock.now())
    }

    fn hang_lock(&self) -> MutexGuard<'_, Duration> {
        self.hangs_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks every connection to it, and those that it has made to others.
    pub fn break_connections(&self) {
        self.break_host_connections();
        self.peer_connections.send_modify(|count| *count += 1);
    }

    /// Breaks the host's connections to it.
    pub(crate) fn break_host_connections(&self) {
        self.log("connections break");
        self.connection.send_modify(|count| *count += 1);
    }

    /// How often its device was started.
    pub(crate) fn start_number(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Whether the device of the start of this number is running.
    pub(crate) fn is_running_since(&self, start: u64) -> bool {
        self.runtime().is_some() && self.start_number() == start
    }

    /// The device, if it is running.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.lock().clone()
    }

    /// A receiver that changes when the host's present connection breaks.
    pub fn connection(&self) -> watch::Receiver<u64> {
        let mut receiver = self.connection.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    /// A receiver that changes when the present connections between it and other machines break.
    pub(crate) fn peer_connections(&self) -> watch::Receiver<u64> {
        let mut receiver = self.peer_connections.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    /// Writes into the trace what it does.
    pub(crate) fn log(&self, what: impl fmt::Display) {
        world::log(format_args!("{}: {what}", self.name));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Runtime>>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
