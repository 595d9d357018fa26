//! Mirrors: devices without media of their own, whose pages lie on several other devices, the copies.
//!
//! ```text
//!  TabletState.device = m ─▶ DeviceKind::Mirror ─┬─▶ a   pages at the same addresses, byte for byte
//!                                                └─▶ b
//! ```
//!
//! A page of a mirror has one reference, as on any other device, and lies at that address on each copy. So the space of
//! a mirror is in use on all of its copies ([`CatalogState::places_on`]).
//!
//! Invariants: a copy that is not stale has every page that this catalog version names on the mirror. One is not, at
//! any time. Source: `docs/design/delta-and-snapshots.md`, mirrors.

use std::collections::BTreeMap;

#[cfg(doc)]
use super::CatalogState;
use super::{DeviceEntry, DeviceId, DeviceKind, proto};

/// The devices that have the pages of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The copies. The first one that is not stale and answers is read.
    pub copies: Vec<MirrorCopy>,
}

/// One copy of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorCopy {
    /// The device.
    pub device: DeviceId,
    /// It lacks pages: nothing is read there before it has them.
    pub is_stale: bool,
}

impl Mirror {
    /// A mirror whose copies have all of its pages.
    pub fn new(copies: impl IntoIterator<Item = DeviceId>) -> Self {
        let copy = |device| MirrorCopy { device, is_stale: false };
        Self { copies: copies.into_iter().map(copy).collect() }
    }

    /// Whether `device` is one of its copies.
    #[must_use]
    pub fn has(&self, device: DeviceId) -> bool {
        self.copies.iter().any(|copy| copy.device == device)
    }

    /// Whether `device` is a copy that lacks pages.
    #[must_use]
    pub fn is_stale(&self, device: DeviceId) -> bool {
        self.copies.iter().any(|copy| copy.device == device && copy.is_stale)
    }

    /// The message for a manifest.
    #[must_use]
    pub fn encode(&self) -> proto::Mirror {
        let copy = |copy: &MirrorCopy| proto::MirrorCopy {
            device: copy.device.0,
            is_stale: copy.is_stale,
        };
        proto::Mirror { copies: self.copies.iter().map(copy).collect() }
    }

    /// Reads what [`Mirror::encode`] wrote.
    #[must_use]
    pub fn decode(message: &proto::Mirror) -> Self {
        let copy = |copy: &proto::MirrorCopy| MirrorCopy {
            device: DeviceId(copy.device),
            is_stale: copy.is_stale,
        };
        Self { copies: message.copies.iter().map(copy).collect() }
    }

    fn check(&self, devices: &BTreeMap<DeviceId, DeviceEntry>) -> Result<(), String> {
        for (place, copy) in self.copies.iter().enumerate() {
            match devices.get(&copy.device).map(|entry| &entry.kind) {
                Some(DeviceKind::Local(_) | DeviceKind::Remote(_)) => {}
                Some(DeviceKind::Embedded | DeviceKind::Mirror(_)) => {
                    return Err(format!("device {} cannot be a copy", copy.device));
                }
                None => return Err(format!("there is no device {}", copy.device)),
            }
            if self.copies.iter().take(place).any(|other| other.device == copy.device) {
                return Err(format!("device {} is a copy twice", copy.device));
            }
        }
        if self.copies.len() < 2 {
            return Err("it has less than two copies".to_owned());
        }
        match self.copies.iter().all(|copy| copy.is_stale) {
            true => Err("all of its copies lack pages".to_owned()),
            false => Ok(()),
        }
    }
}

/// Whether the mirrors among `devices` can be.
///
/// # Errors
/// What is wrong with one.
pub fn check(devices: &BTreeMap<DeviceId, DeviceEntry>) -> Result<(), String> {
    devices.values().try_for_each(|entry| match entry.mirror() {
        None => Ok(()),
        Some(mirror) => {
            mirror.check(devices).map_err(|reason| format!("mirror \"{}\": {reason}", entry.name))
        }
    })
}
