//! Space on devices that its holders can do without. They are asked for it where a device is full, before a statement
//! fails for want of it.
//!
//! Source: NDP result sets, section 4.1; `docs/design/result-sets.md`.

use std::sync::{Arc, Mutex, PoisonError};

use cleave_catalog::catalog::DeviceId;

/// Holds space on devices that it can do without.
pub trait SpaceHolder: std::fmt::Debug + Send + Sync {
    /// Gives up what it has on `device`, on all devices if None, as soon as nobody reads it. Whether it had any.
    fn give_up(&self, device: Option<DeviceId>) -> bool;
}

/// Those of a database.
#[derive(Debug, Default)]
pub struct SpaceHolders {
    holders: Mutex<Vec<Arc<dyn SpaceHolder>>>,
}

impl SpaceHolders {
    /// Has `holder` asked when space is short.
    pub fn add(&self, holder: Arc<dyn SpaceHolder>) {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).push(holder);
    }

    /// Has all of them give up what they have on `device`, on all devices if None. Whether there was any.
    pub(crate) fn give_up(&self, device: Option<DeviceId>) -> bool {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let had_any: Vec<bool> = holders.iter().map(|holder| holder.give_up(device)).collect();
        had_any.contains(&true)
    }
}
