//! Older catalog versions, kept for `as_of`: a time in, the version that held then out.
//!
//! A [`CatalogState`] is immutable and holds the pages that it names, so an older one can be read as long as somebody
//! holds it. These are held here, as many as `version_retention` asks for, on a grid: [`Versions`] keeps those that
//! held at a tick, a thousandth of the retention, and a time is read as of the last tick before it. So memory is
//! bounded, whatever is committed. Small commits, which are in the [delta](crate::delta) at first, are flushed before
//! the first that comes behind a tick.
//!
//! Invariants: a time gives the version that held at its tick, or an error; the oldest are given up first, when their
//! time is over, when what they hold is as much as half of what is in use, and when a device is full. Nothing is kept
//! over a restart. Source: rule 30; `docs/design/delta-and-snapshots.md`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::value::parse;
use cleave_catalog::value::text::moment;
use cleave_media::{Clock, SystemClock};

use crate::refresh_bases::RefreshBases;
use crate::space_holders::SpaceHolders;
use crate::storage_engine::Engine;

/// Ticks in the time that is kept.
const TICKS: i64 = 1000;
/// Blocks that kept versions alone may hold, however little is in use: 64 MiB.
const HELD_BLOCKS_MIN: u64 = 16 << 10;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Versions {
    kept: Mutex<VecDeque<Version>>,
    /// When the last visible commit was made.
    committed_us: AtomicI64,
    /// Those that materialized views were refreshed from.
    pub refresh_bases: RefreshBases,
    /// Who else holds space that can be given up.
    pub space_holders: Arc<SpaceHolders>,
}

#[derive(Debug)]
struct Version {
    since_us: i64,
    state: Arc<CatalogState>,
}

impl Versions {
    /// Notes that something is committed now.
    pub(crate) fn note_commit(&self) {
        // Clocks may jump back.
        self.committed_us.fetch_max(SystemClock.wall(), Ordering::AcqRel);
    }

    /// Whether what held at a tick, whose newest version with pages is `state`, is to be kept before more is committed.
    pub(crate) fn has_passed_tick(&self, state: &CatalogState) -> bool {
        let retention_us = retention_us(state);
        let committed_us = self.committed_us.load(Ordering::Acquire);
        retention_us > 0 && next_tick(committed_us, tick_us(retention_us)) < SystemClock.wall()
    }

    /// Gives up what refreshes are based on, and what others hold.
    pub(crate) fn give_up_held(&self) {
        self.refresh_bases.clear();
        self.space_holders.give_up(None);
    }

    /// Keeps `state`, which holds from `wall_us` on; whether one more is held now.
    fn note(&self, state: &Arc<CatalogState>, wall_us: i64) -> bool {
        let mut kept = self.kept();
        let retention_us = retention_us(state);
        if retention_us == 0 {
            kept.clear();
            return false;
        }
        let since_us = kept.back().map_or(wall_us, |last| last.since_us.max(wall_us));
        let state = Arc::clone(state);
        let tick = tick_us(retention_us);
        // Whether the last one held at a tick.
        let is_replaced = |last: &Version| next_tick(last.since_us, tick) >= since_us;
        if let Some(last) = kept.back_mut().filter(|last| is_replaced(last)) {
            // Ticks of its time are the new one's.
            last.state = state;
            last.since_us = since_us;
            return false;
        }
        kept.push_back(Version { since_us, state });
        let horizon = since_us.saturating_sub(retention_us);
        while kept.get(1).is_some_and(|second| second.since_us <= horizon) {
            kept.pop_front();
        }
        true
    }

    /// The version that held at the tick before `time_us`; None where it is not kept.
    fn at(&self, time_us: i64, tick: i64) -> Result<Arc<CatalogState>, Option<i64>> {
        let kept = self.kept();
        let time_us = time_us.div_euclid(tick).saturating_mul(tick);
        let found = kept.partition_point(|version| version.since_us <= time_us);
        match found.checked_sub(1).and_then(|last| kept.get(last)) {
            Some(version) => Ok(Arc::clone(&version.state)),
            None => Err(kept.front().map(|oldest| next_tick(oldest.since_us, tick))),
        }
    }

    /// The version that held at `text`, a `timestamp with time zone`; `newest` is the newest.
    ///
    /// # Errors
    /// [`Error::Invalid`] (22023) for a time that is not kept, or not a time.
    pub fn as_of(&self, newest: &CatalogState, text: &str) -> Result<Arc<CatalogState>> {
        let retention_us = retention_us(newest);
        let Ok(time_us) = parse::timestamp_tz(text) else {
            return Err(not_kept(text, "it is no time, as in '2026-11-21 20:00:00+00'"));
        };
        if retention_us == 0 {
            let reason = "version_retention is 0, so that nothing is kept; ALTER SYSTEM SET version_retention = 3600 \
                keeps an hour from then on";
            return Err(not_kept(text, reason));
        }
        if time_us > SystemClock.wall() {
            return Err(not_kept(text, "it is yet to come"));
        }
        let found = self.at(time_us, tick_us(retention_us));
        found.map_err(|oldest| {
            let oldest = oldest.map_or_else(|| "now".to_owned(), moment);
            not_kept(text, &format!("what is kept begins at {oldest}"))
        })
    }

    /// Gives up the older quarter, then what refreshes are based on; false where there is nothing but `newest`, the
    /// newest.
    fn give_up_oldest(&self, newest: &CatalogState) -> bool {
        self.give_up_oldest_kept() || self.refresh_bases.give_up_oldest(newest)
    }

    fn give_up_oldest_kept(&self) -> bool {
        let mut kept = self.kept();
        let count = kept.len().saturating_sub(1).min(kept.len().div_ceil(4));
        kept.drain(..count);
        count > 0
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Version>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Keeps `state`, which is published and has all that is committed.
    pub(crate) fn keep_version(&self, state: &Arc<CatalogState>) {
        let committed_us = self.versions.committed_us.load(Ordering::Acquire);
        let is_grown = self.versions.note(state, committed_us);
        let holds_too_much = || {
            self.devices().iter().any(|device| {
                let space = device.space();
                let in_use = space.used_blocks.saturating_sub(space.retired_blocks);
                space.retired_blocks > HELD_BLOCKS_MIN.max(in_use / 2)
            })
        };
        let is_grown = is_grown || !self.versions.refresh_bases.is_empty();
        while is_grown && holds_too_much() && self.versions.give_up_oldest(state) {
            self.reclaim();
        }
    }

    /// Gives up all that is kept but the newest version: a device is full.
    pub fn give_up_versions(&self) {
        self.versions.give_up_held();
        while self.versions.give_up_oldest(&self.catalog()) {}
        self.reclaim();
    }
}

fn retention_us(state: &CatalogState) -> i64 {
    i64::from(state.upkeep.version_retention_s).saturating_mul(1_000_000)
}

fn tick_us(retention_us: i64) -> i64 {
    (retention_us / TICKS).max(1)
}

/// The first tick at or behind a time.
fn next_tick(time_us: i64, tick: i64) -> i64 {
    time_us.saturating_add(tick - 1).div_euclid(tick).saturating_mul(tick)
}

fn not_kept(time: &str, reason: &str) -> Error {
    let message = format!("the database as of '{time}' cannot be read: {reason}");
    Error::Invalid { message, fault: Fault::Parameter, position: None }
}

#[cfg(test)]
mod tests;
