//! The remote machine: a device over its own media that is killed, loses power and is started again while others run.
//!
//! Its identity stays; each start is a new [`Runtime`], as each start of `cleaved` is. Work left over from a dead start
//! finds its media gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_device::{OwnerRecord, Runtime, RuntimeOptions};
use cleave_media::{Clock, Media, SystemClock};
use tokio::sync::watch;

use crate::media::SimMedia;
use crate::world;

/// Identity of the remote device.
pub const FAR: [u8; 16] = [0xfa; 16];

/// See the [module](self).
#[derive(Debug)]
pub struct Machine {
    media: Arc<SimMedia>,
    runtime: Mutex<Option<Arc<Runtime>>>,
    /// Durable before every answer, so it survives every restart.
    owner: OwnerRecord,
    /// Counts how often connections to it broke.
    connection: watch::Sender<u64>,
    /// Until then, no message comes to it or from it.
    hangs_until: Mutex<Duration>,
}

/// The resources of a simulated device: small, so that limits are reached.
#[must_use]
pub fn runtime_options(device: [u8; 16]) -> RuntimeOptions {
    RuntimeOptions { cores: 2, io_threads: 2, ..RuntimeOptions::new(device) }
}

impl Machine {
    /// A running machine, over empty media.
    #[must_use]
    pub fn start() -> Arc<Self> {
        let machine = Arc::new(Self {
            media: SimMedia::new("far", false),
            runtime: Mutex::default(),
            owner: OwnerRecord::in_process(),
            connection: watch::Sender::new(0),
            hangs_until: Mutex::default(),
        });
        machine.boot();
        machine
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
        world::log("far: starts");
        let media = self.media.attach() as Arc<dyn Media>;
        let options = RuntimeOptions { owner: self.owner.clone(), ..runtime_options(FAR) };
        *runtime = Some(Runtime::new(media, options).expect("a device starts"));
    }

    /// Ends the device at once; with its power, media lose what was not synced.
    pub fn kill(&self, with_power: bool) {
        world::log(if with_power { "far: loses its power" } else { "far: is killed" });
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
        world::log(format_args!("far: hangs for {time:?}"));
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

    /// Breaks every connection to it.
    pub fn break_connections(&self) {
        world::log("far: connections break");
        self.connection.send_modify(|count| *count += 1);
    }

    /// The device, if it is running.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.lock().clone()
    }

    /// A receiver that changes when the present connection breaks.
    pub fn connection(&self) -> watch::Receiver<u64> {
        let mut receiver = self.connection.subscribe();
        receiver.mark_unchanged();
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Runtime>>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
