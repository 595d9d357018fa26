//! What is committed: the state and the delta behind it, for those who read one, the other or both.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cleave_fragment::waiting;
use cleave_media::{Clock, SystemClock};
use cleave_txn::Lsn;
use futures::future::{Either, join_all, select};

use super::Engine;
use crate::activity::Act;
use crate::catalog::{CatalogState, DeviceId, TableState};
use crate::delta::{Delta, Live};
use crate::device::Device;
use crate::error::Result;
use crate::storage_engine::catalog_edit::CatalogEdit;

/// The longest pause before devices are asked for again that held tables lie on.
const HELD_RETRY_MAX: Duration = Duration::from_secs(5);

impl Engine {
    /// The present tables, and their pages, in which the last small commits may not be yet. Hold it for as long as
    /// pages that it names are read.
    pub fn catalog(&self) -> Arc<CatalogState> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// All that is committed.
    pub(crate) fn live(&self) -> Live {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A state in whose pages all is that is committed by now: what a plan reads.
    ///
    /// # Errors
    /// Those of the device, where there was something to write.
    pub async fn settled(self: &Arc<Self>) -> Result<Arc<CatalogState>> {
        self.retry_held("").await;
        let mut wanted = None;
        loop {
            let told = self.settled.notified();
            let live = self.live();
            let wanted = *wanted.get_or_insert(live.state.commit + live.number);
            if live.delta.is_settled() || live.state.commit >= wanted {
                return Ok(live.state);
            }
            // A large write that has the writer lock has settled first, and is not waited for; nor is anyone who settles for
            // others.
            let settling = Box::pin(self.settle_now());
            match select(std::pin::pin!(told), settling).await {
                Either::Left(_) => {}
                Either::Right((settled, _)) => settled?,
            }
        }
    }

    /// The same for who only reads it, and builds nothing on it: rows that take at most `bytes_max` in memory become no
    /// pages of devices, but are [passed along](crate::delta::passed).
    ///
    /// # Errors
    /// As [`Engine::settled`].
    pub(crate) async fn passed_along(
        self: &Arc<Self>,
        bytes_max: u64,
    ) -> Result<Arc<CatalogState>> {
        let live = self.live();
        let is_small = bytes_max > 0 && live.delta.is_within(bytes_max);
        // Of a device that is away the table is to be held, and who commits to be told.
        if live.delta.is_settled() || !is_small || !self.is_whole(&live.state) {
            return self.settled().await;
        }
        self.activity().note(Act::PassedAlong);
        self.last_passed.state(&live)
    }

    /// Settles what is committed, one at a time: beside those who commit where that goes, else under the writer lock.
    async fn settle_now(self: &Arc<Self>) -> Result<()> {
        // Who has it may wait for a device that is slow, and whose tables this one does not read.
        let one = waiting::timeout(self.patience(), self.settling.lock()).await;
        if self.live().delta.is_settled() {
            return Ok(());
        }
        if one.is_none() || !CatalogEdit::settle_beside(self).await? {
            let lock = self.writer_lock().await;
            drop(Box::pin(CatalogEdit::settle(self, lock)).await?);
        }
        self.activity().note(Act::Settlement);
        Ok(())
    }

    /// Waits until the log is durable here up to `end`.
    ///
    /// # Errors
    /// [`StorageError::Log`], after which nothing is written any more.
    pub(crate) async fn harden_log(&self, end: u64) -> Result<()> {
        if end <= self.hardened.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(log) = self.log() else { return Ok(()) };
        if let Err(error) = log.durable(Lsn(end)).await {
            self.stop(&error);
            return Err(error.into());
        }
        self.hardened.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// As [`Self::harden_log`], and keeps the thread; copies of the log get it with the next one who hardens.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn harden_now(&self, end: u64) -> Result<()> {
        if end > self.hardened.load(Ordering::Acquire)
            && let Some(log) = self.log()
        {
            if let Err(error) = log.wait_durable(Lsn(end)) {
                self.stop(&error);
                return Err(error.into());
            }
            self.hardened.fetch_max(end, Ordering::AcqRel);
        }
        self.keeper.want(end);
        Ok(())
    }

    /// Waits until the log is durable up to `end`, here and in its copies.
    ///
    /// # Errors
    /// As [`Engine::harden_log`]; [`StorageError::NotCopied`](crate::StorageError::NotCopied).
    pub(crate) async fn harden(self: &Arc<Self>, end: u64) -> Result<()> {
        self.harden_log(end).await?;
        match self.keeper.is_on() {
            true => self.keeper.reach(self, end).await,
            false => Ok(()),
        }
    }

    /// Whether it is known that the log is durable up to `end`, and nobody else need have it.
    pub(crate) fn is_hardened(&self, end: u64) -> bool {
        end <= self.hardened.load(Ordering::Acquire) && !self.keeper.is_on()
    }

    /// What the root on disk says.
    pub(crate) fn durable(&self) -> Arc<CatalogState> {
        Arc::clone(&self.durable.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells this opening from others; 0: it is only looked at.
    pub(crate) fn opening(&self) -> u64 {
        self.opening.unwrap_or_default()
    }

    /// Makes a small commit, whose changes are in the delta, what new statements see.
    pub(crate) fn publish_small(&self, number: u64, log_end: u64) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.number = number;
        live.log_end = log_end;
        self.versions.note_commit();
    }

    /// How often something else than a small commit has changed rows, keys or tables.
    pub(crate) fn rewritten_count(&self) -> u64 {
        self.rewritten_count.load(Ordering::Acquire)
    }

    /// Notes that something else than a small commit does.
    pub(crate) fn note_rewritten(&self) {
        self.rewritten_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes `state` what new statements see, and `delta` what is held behind it.
    pub(crate) fn publish(&self, state: Arc<CatalogState>, delta: Arc<Delta>) {
        self.publish_live(Live { delta, ..Live::settled(state) });
    }

    /// The same, with the commits that are behind it.
    pub(crate) fn publish_live(&self, live: Live) {
        self.note_published(&live.state);
        let before = {
            let mut now = self.live.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, live)
        };
        self.settled.notify_waiters();
        // Nobody waits for a whole delta that goes.
        drop(before);
    }

    /// Whether no table is held, and all devices on which tables lie are connected and answer.
    pub(crate) fn is_whole(&self, state: &CatalogState) -> bool {
        let is_away = |id: &&DeviceId| !self.device(**id).is_some_and(|d| answers(&d));
        let away: BTreeSet<&DeviceId> = state.devices.keys().filter(is_away).collect();
        let lies_there = |table: &Arc<TableState>| {
            table.tablets.iter().any(|tablet| away.contains(&tablet.device))
        };
        state.held.tables.is_empty() && (away.is_empty() || !state.tables().any(lies_there))
    }

    /// Whether all devices of a table are connected and answer.
    pub(crate) fn reaches(&self, state: &CatalogState, table_id: u32) -> bool {
        let table = state.tables().find(|table| table.schema.table_id == table_id);
        let mut devices = table.into_iter().flat_map(|table| table.devices());
        devices.all(|device| self.device(device).is_some_and(|device| answers(&device)))
    }

    /// Tries again to settle tables that are [held](crate::catalog::held), where their devices answer; not while
    /// another writes. A statement whose `text` has the name of one asks at once. So that a device that is away costs
    /// others little, they ask after twice what asking took.
    pub(crate) async fn retry_held(self: &Arc<Self>, text: &str) {
        let mut devices: BTreeSet<DeviceId> = BTreeSet::new();
        let mut is_named = false;
        {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            let held = &live.state.held;
            if held.tables.is_empty() {
                return;
            }
            let is_held = |table: &&Arc<TableState>| held.reason(table.schema.table_id).is_some();
            for table in live.state.tables().filter(is_held) {
                devices.extend(table.devices());
                is_named |= text.to_lowercase().contains(&table.schema.name.to_lowercase());
            }
        }
        let begun = SystemClock.now();
        {
            let mut at = self.held_retry_at.lock().unwrap_or_else(PoisonError::into_inner);
            if begun < *at && !is_named {
                return;
            }
            // Meanwhile nobody else does.
            *at = begun + HELD_RETRY_MAX;
        }
        let devices: Vec<_> = devices.into_iter().filter_map(|id| self.device(id)).collect();
        // Who does not name them waits for none that is known to be slow.
        let patience = if is_named { self.device_timeout() } else { self.writer_wait() };
        let asked = devices.iter().map(|device| async move {
            let for_answer = if is_named { device.wait_left() } else { Duration::ZERO };
            device.has_answered(for_answer).await && device.link().await.is_ok()
        });
        let asked = waiting::timeout(patience, Box::pin(join_all(asked))).await;
        if asked.is_some_and(|asked| asked.contains(&true))
            && let Ok(lock) = self.try_writer_lock()
        {
            // What fails is held still, and says why.
            drop(Box::pin(CatalogEdit::settle_within(self, lock, patience)).await);
        }
        let ended = SystemClock.now();
        let pause = ended.saturating_sub(begun).saturating_mul(2).min(HELD_RETRY_MAX);
        *self.held_retry_at.lock().unwrap_or_else(PoisonError::into_inner) = ended + pause;
    }
}

/// Whether `device` is connected, and owes no answer.
fn answers(device: &Device) -> bool {
    device.is_connected() && !device.owes_answer()
}
