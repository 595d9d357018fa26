//! What the host sees of a run that writes or locks rows, for those who look on.

use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::{CommandHeader, RunReport};
use cleave_fragment::link::Link;

use super::Device;

/// Is told of one run as it goes on.
pub trait RunWitness: Send + Sync {
    /// The run `run` has begun on `device`, which is `link`ed.
    fn begins(&self, run: CommandHeader, device: &Arc<Device>, link: &Arc<dyn Link>);
    /// The host waits for its next rows.
    fn waits(&self);
    /// They have come, or its end has: slots of so many bytes by now.
    fn came(&self, slot_bytes: u64);
    /// The run has ended, and the device has reported; the host has waited for it for so long.
    fn ended(&self, report: &RunReport, waited: Duration);
}
