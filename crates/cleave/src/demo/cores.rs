//! A core each for host and device, where the machine has two: neither then waits for the other's.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The cores that the two sides have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    host: usize,
    device: usize,
}

impl Cores {
    /// The first two cores that this process may use; None: it may use one alone, or the system does not say.
    pub(crate) fn of_this_process() -> Option<Cores> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        Some(Cores { host: cores.next()?, device: cores.next()? })
    }

    /// Puts all threads of this process on the device's core, which a process that is started now inherits.
    pub(crate) fn enter_device(self) {
        pin_threads(self.device);
    }

    /// Puts all threads of this process on the host's core, and those that they start.
    pub(crate) fn enter_host(self) {
        pin_threads(self.host);
    }
}

/// Best effort: where the system refuses, the sides share what there is.
fn pin_threads(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            sched_setaffinity(Some(id), &set).ok();
        }
    }
}
