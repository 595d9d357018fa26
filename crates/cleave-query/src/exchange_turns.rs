//! Turns of exchanges at devices: the devices of an exchange in, the right to begin its runs there out.
//!
//! ```text
//!   exchange 1 on b, c     turns b, c ─▶ producers ─▶ consumers ─▶ turns given back ─▶ rows
//!   exchange 2 on a, c     turn a … c ───────────── waits ───────▶ producers ─▶ consumers ─▶ …
//! ```
//!
//! The runs of an exchange (`cooperative::exchanges`) take their memory one after the other: its producers hold
//! theirs while its consumers wait for theirs. If two began at once on a device, each could hold what the other waits
//! for. So an exchange has the turns of all of its devices from before its first run asks for memory until its last one
//! has it.
//!
//! Invariants: turns are taken in the order of the devices' numbers, so that no two exchanges wait for each other. They
//! are not held while rows come: a statement may read one exchange while it begins another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_catalog::catalog::DeviceId;
use cleave_fragment::waiting::timeout;
use tokio::sync::OwnedMutexGuard;

/// Who begins an exchange, by device.
#[derive(Debug, Default)]
pub(crate) struct ExchangeTurns {
    devices: Mutex<BTreeMap<DeviceId, Arc<tokio::sync::Mutex<()>>>>,
}

/// The turns at some devices, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turns {
    _each: Vec<OwnedMutexGuard<()>>,
}

impl ExchangeTurns {
    /// Waits for the turns at `devices`; None: others had not begun within `limit`.
    pub(crate) async fn take(
        &self,
        devices: &BTreeSet<DeviceId>,
        limit: Duration,
    ) -> Option<Turns> {
        let in_order = async {
            let mut each = Vec::with_capacity(devices.len());
            for device in devices {
                each.push(self.of(*device).lock_owned().await);
            }
            Turns { _each: each }
        };
        timeout(limit, in_order).await
    }

    fn of(&self, device: DeviceId) -> Arc<tokio::sync::Mutex<()>> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(devices.entry(device).or_default())
    }
}

#[cfg(test)]
mod tests {
    //! Who waits for whom.

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn devices<const N: usize>(numbers: [u32; N]) -> BTreeSet<DeviceId> {
        numbers.into_iter().map(DeviceId).collect()
    }

    #[tokio::test]
    async fn only_exchanges_that_share_a_device_wait_for_each_other() {
        let turns = ExchangeTurns::default();
        let first = turns.take(&devices([2, 5]), LONG).await;
        assert!(first.is_some());
        assert!(turns.take(&devices([3, 4]), LONG).await.is_some(), "other devices");
        assert!(turns.take(&devices([1, 2]), Duration::ZERO).await.is_none());
        assert!(turns.take(&devices([1]), LONG).await.is_some(), "what was got is given back");
        drop(first);
        assert!(turns.take(&devices([1, 2]), LONG).await.is_some());
    }

    #[tokio::test]
    async fn exchanges_that_share_several_devices_end() {
        let turns = ExchangeTurns::default();
        let begun = |numbers: [u32; 3]| {
            let turns = &turns;
            async move {
                for _ in 0..100 {
                    let own = turns.take(&devices(numbers), LONG).await;
                    assert!(own.is_some());
                    tokio::task::yield_now().await;
                }
            }
        };
        futures::future::join_all([begun([1, 2, 3]), begun([3, 2, 1]), begun([2, 3, 4])]).await;
    }
}
