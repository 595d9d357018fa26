//! Rows that jobs of a device change, too: the host's own table is the tail of the one that the device shares.
//!
//! ```text
//!   first at its row:  join ─▶ the entry is the host's ─▶ holders and queue, as of any other key ─▶ nobody holds: leave
//!                        └▶ a job has it: queue, without a holder, until the entry is the host's
//! ```
//!
//! A key has one [`Ticket`] while anybody of the host holds it: whoever comes first joins for it, whoever lets go last
//! leaves. Where others wait then, the first of them joins anew, and so comes after a job that has queued meanwhile:
//! neither side starves the other. Modes and queues, who may share and who goes first, stay the tail's matter; the
//! entry says only that the host has the row.
//!
//! Who waits for a job is told by the shared table that something happened there, and looks ([`super::wait`]): a waker
//! takes no partition, since it may be called by someone who holds one.
//!
//! Invariant: who holds a row of a device whose table is shared has a ticket of its entry that is granted. Tickets
//! change with the partition of their key in hand. Source: rule 19; `docs/design/locks.md`.

use std::sync::Arc;
use std::task::Waker;

use cleave_shmem::{HostLocks, Joined, Row, Ticket};

use super::{KeyKind, LockError, LockKey, LockOwner};

/// Devices beyond this number share no table: their rows are the host's alone.
const DEVICE_COUNT_MAX: usize = 1 << 16;

/// Tables that are shared with devices, by the devices' numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedTables(Vec<Option<Arc<HostLocks>>>);

/// What a key has of the table that its device shares.
#[derive(Debug)]
pub(crate) enum Shared {
    /// No device shares it.
    Alone,
    /// The entry is the host's.
    Held(Ticket),
    /// A job has it, or waits before the host; who waits is told by these numbers.
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

    /// The table that `key` is in, if it is one of a row that a device shares.
    #[inline]
    pub(crate) fn of(&self, key: &LockKey) -> Option<&HostLocks> {
        if key.kind != KeyKind::Row {
            return None;
        }
        self.of_device(key.device)
    }
}

fn row_of(key: &LockKey) -> Row {
    Row { object: key.object, vid: key.id }
}

fn failed(key: LockKey) -> impl FnOnce(cleave_shmem::LockError) -> LockError {
    move |source| LockError::Shared { key, source }
}

impl Shared {
    /// Asks for the entry of `key`, for `owner`, who is the first at it; None: it is not free, and the owner does not
    /// want to wait.
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

    /// What it has, if it has anything.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        match self {
            Self::Alone => None,
            Self::Held(ticket) | Self::Awaited(ticket, _) => Some(ticket),
        }
    }

    /// Whether nobody of the host can hold the key yet.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited(..))
    }

    /// Has `waker` woken when something happens to the entry. Whoever does so looks afterwards.
    pub(crate) fn watch(&mut self, table: Option<&HostLocks>, waker: &Waker) {
        if let (Self::Awaited(ticket, numbers), Some(table)) = (self, table) {
            numbers.push(table.watch(ticket, waker));
        }
    }

    /// Whether the entry has become the host's just now.
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

    /// Gives the entry back.
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
        // One that is spoilt is given back all the same; whoever asks for it next is told.
        let _spoilt = table.leave(ticket);
    }
}

impl LockOwner {
    /// Whether it holds a row in the entry of `ticket`, which is in the table of `key`.
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
