//! Locks rows that jobs of a device may lock, too: connects the host's lock table, as the tail, to the table shared
//! with the device.
//!
//! ```text
//!   first at its row:  join ─▶ the entry is the host's ─▶ holders and queue, as for other keys ─▶ no holder: leave
//!                        └▶ a job has it: queue, without a holder, until the entry is the host's
//! ```
//!
//! A key has one [`Ticket`] while any owner of the host holds it: the first one joins for it, the last release leaves.
//! If others wait then, the first of them joins anew, and so comes after a job that has queued meanwhile: neither side
//! starves the other. The host's table decides modes and queue order; the entry only says that the host has the row.
//!
//! The shared table tells a waiter for a job of changes, and the waiter checks ([`super::wait`]): a waker locks no
//! partition, since its caller may hold one.
//!
//! Invariant: a holder of a row of a device whose table is shared has a granted ticket of its entry. Tickets change
//! with the partition of their key locked.
//! Source: rule 19; `docs/design/locks.md`.

use std::sync::Arc;
use std::task::Waker;

use cleave_shmem::{HostLocks, Joined, Row, Ticket};

use super::{KeyKind, LockError, LockKey, LockOwner};

/// Devices beyond this number share no table: their rows are the host's alone.
const DEVICE_COUNT_MAX: usize = 1 << 16;

/// Tables shared with devices, by device number.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedTables(Vec<Option<Arc<HostLocks>>>);

/// The state of a key in the table shared with its device.
#[derive(Debug)]
pub(crate) enum Shared {
    /// No device shares it.
    Alone,
    /// The entry is the host's.
    Held(Ticket),
    /// A job has it, or waits before the host; these are the numbers of the host's waiters there.
    Awaited(Ticket, Vec<u64>),
}

impl SharedTables {
    /// Makes `table` that of the device with this number, unless it has one.
    pub(crate) fn put(&mut self, device: u32, table: &Arc<HostLocks>) {
        let place = usize::try_from(device).unwrap_or(usize::MAX);
        if place >= DEVICE_COUNT_MAX {
            return;
        }
        if self.0.len() <= place {
            self.0.resize(place.saturating_add(1), None);
        }
        if let Some(free @ None) = self.0.get_mut(place) {
            *free = Some(Arc::clone(table));
        }
    }

    /// The table of the device with this number.
    pub(crate) fn of_device(&self, device: u32) -> Option<&HostLocks> {
        self.0.get(usize::try_from(device).ok()?)?.as_deref()
    }

    /// The shared table of `key`, if it is a row that a device shares.
    #[inline]
    pub(crate) fn of(&self, key: &LockKey) -> Option<&HostLocks> {
        if key.kind != KeyKind::Row {
            return None;
        }
        self.of_device(key.device)
    }
}

pub(crate) fn row_of(key: &LockKey) -> Row {
    Row { object: key.object, vid: key.id }
}

pub(crate) fn failed(key: LockKey) -> impl FnOnce(cleave_shmem::LockError) -> LockError {
    move |source| LockError::Shared { key, source }
}

impl Shared {
    /// Requests the entry of `key` for `owner`, the first one at the key; None if it is not free, and the owner does
    /// not want to wait.
    #[inline]
    pub(crate) fn join(
        table: Option<&HostLocks>,
        key: LockKey,
        owner: &LockOwner,
        may_wait: bool,
    ) -> Result<Option<Self>, LockError> {
        let Some(table) = table else { return Ok(Some(Self::Alone)) };
        // Behind the job it would wait for itself.
        let has_ticket = |ticket: &Ticket| owner.has_row_at(table, &key, ticket);
        if !may_wait {
            let ticket = table.try_join(row_of(&key), has_ticket).map_err(failed(key))?;
            return Ok(ticket.map(Self::Held));
        }
        let joined = table.join(row_of(&key), has_ticket).map_err(failed(key))?;
        Ok(Some(match joined {
            Joined { ticket, is_granted: true } => Self::Held(ticket),
            Joined { ticket, is_granted: false } => Self::Awaited(ticket, Vec::new()),
        }))
    }

    /// Its ticket, if any.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        match self {
            Self::Alone => None,
            Self::Held(ticket) | Self::Awaited(ticket, _) => Some(ticket),
        }
    }

    /// Whether the host cannot hold the key yet.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited(..))
    }

    /// Wakes `waker` when the entry changes. The caller checks afterwards.
    pub(crate) fn watch(&mut self, table: Option<&HostLocks>, waker: &Waker) {
        if let (Self::Awaited(ticket, numbers), Some(table)) = (self, table) {
            numbers.push(table.watch(ticket, waker));
        }
    }

    /// Whether the entry has just become the host's.
    pub(crate) fn look(
        &mut self,
        table: Option<&HostLocks>,
        key: LockKey,
    ) -> Result<bool, LockError> {
        let (Self::Awaited(ticket, _), Some(table)) = (&*self, table) else { return Ok(false) };
        if !table.is_granted(ticket).map_err(failed(key))? {
            return Ok(false);
        }
        if let Self::Awaited(ticket, numbers) = std::mem::replace(self, Self::Alone) {
            table.unwatch(&ticket, &numbers);
            *self = Self::Held(ticket);
        }
        Ok(true)
    }

    /// Returns the entry.
    #[inline]
    pub(crate) fn leave(self, table: Option<&HostLocks>) {
        let Some(table) = table else { return };
        let ticket = match self {
            Self::Alone => return,
            Self::Held(ticket) => ticket,
            Self::Awaited(ticket, numbers) => {
                table.unwatch(&ticket, &numbers);
                ticket
            }
        };
        // A spoilt entry is returned all the same; the next request for it gets the error.
        let _spoilt = table.leave(ticket);
    }
}

impl LockOwner {
    /// Whether this owner holds a row in the entry of `ticket`, which is in the table of `key`.
    fn has_row_at(&self, table: &HostLocks, key: &LockKey, ticket: &Ticket) -> bool {
        let held = self.held();
        let mut rows = held.granted.iter().map(|(held, _)| held);
        rows.any(|held| {
            held.kind == KeyKind::Row
                && held.device == key.device
                && table.is_at(ticket, row_of(held))
        })
    }
}
