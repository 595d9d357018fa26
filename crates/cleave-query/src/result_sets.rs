//! Result sets: the rows of a query in pages of the device that made them, which no catalog version names.
//!
//! ```text
//!  InsertFragments ─▶ pages in space of claims ─▶ ResultSet: a table in no catalog ─▶ scans on either side
//!                                                    │ held by a run, a cursor, or the result cache
//!                                                    └ dropped by the last of them: its space is free
//! ```
//!
//! 1. [`InsertFragments::result_set`] writes the rows as those of a new table. In a catalog version of one statement
//!    they are read like those of any table: cut, pruned by zone maps, by page reads or by fragments.
//! 2. [`ResultSets`] lists those that live, and holds those that are [used again](ResultSets::find), the least useful
//!    of which go first where they have more bytes than `result_device_bytes`, where a device is full, and before one
//!    is removed.
//!
//! Invariants: a result set is not logged, synced or named by a manifest, so a crash leaves nothing of it behind. Who
//! reads it holds it. A device that was restarted since has lost it: it is [asked](ResultSet::is_there) before a result
//! set is used again.
//!
//! Source: NDP result sets, sections 3 and 4.
//!
//! [`InsertFragments::result_set`]: crate::cooperative::inserting::InsertFragments::result_set

use std::collections::BTreeSet;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cleave_catalog::catalog::same_rows::TableRows;
use cleave_catalog::catalog::{CatalogState, DeviceId, HeldSpace, TableState};
use cleave_catalog::settings::Settings;
use cleave_engine::device::{Claim, Device};
use cleave_engine::space_holders::SpaceHolder;
use cleave_media::{BLOCK_SIZE, Stopwatch};
use cleave_store::TableSchema;
use datafusion::logical_expr::LogicalPlan;
use futures::future::join_all;
use rustc_hash::FxBuildHasher;

/// Most result sets that are held, so that finding one stays cheap.
const HELD_COUNT_MAX: usize = 1024;

/// What a result set is called.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// Who has it, unless it is held to be used again.
    pub(crate) owner: &'static str,
    /// The part of the statement that it is of.
    pub(crate) name: String,
    /// The statement.
    pub(crate) statement: String,
}

impl About {
    /// That of `owner`.
    pub(crate) fn new(owner: &'static str, name: &str, statement: &str) -> Self {
        Self { owner, name: name.to_owned(), statement: statement.to_owned() }
    }
}

/// See the module's description.
pub(crate) struct ResultSet {
    pub(crate) number: u64,
    pub(crate) about: About,
    /// Its rows.
    pub(crate) table: Arc<TableState>,
    /// What it took to make it.
    pub(crate) cost: Duration,
    pub(crate) made: Stopwatch,
    /// How often it was used again.
    pub(crate) uses: AtomicU64,
    /// The devices of its pages, each with their space.
    spaces: Vec<(Arc<Device>, Arc<Claim>)>,
}

impl HeldSpace for ResultSet {}

impl fmt::Debug for ResultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultSet").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ResultSet {
    /// The rows of `table`, whose pages devices have written in `spaces`, within `cost`; `sets` lists it.
    pub(crate) fn new(
        sets: &ResultSets,
        about: About,
        table: Arc<TableState>,
        spaces: Vec<(Arc<Device>, Arc<Claim>)>,
        cost: Duration,
    ) -> Arc<Self> {
        let set = Arc::new(Self {
            number: sets.next_number(),
            about,
            table,
            cost,
            made: Stopwatch::start(),
            uses: AtomicU64::new(0),
            spaces,
        });
        sets.note(&set);
        set
    }

    /// How many devices have its pages.
    pub(crate) fn device_count(&self) -> usize {
        self.spaces.len()
    }

    /// Names of the devices of its pages.
    pub(crate) fn devices(&self) -> String {
        let names = self.spaces.iter().map(|(device, _)| device.name());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Bytes of the space that it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.spaces.iter().map(|(_, space)| bytes_of(space)).sum()
    }

    /// The same on `device`.
    fn bytes_on(&self, device: DeviceId) -> u64 {
        let there = self.spaces.iter().filter(|(own, _)| own.id() == device);
        there.map(|(_, space)| bytes_of(space)).sum()
    }

    /// Whether the devices still have its pages: one that was restarted may have lost them.
    pub(crate) async fn is_there(&self) -> bool {
        let asked = self.spaces.iter().map(|(_, space)| space.is_of_this_start());
        join_all(asked).await.into_iter().all(|is_there| is_there)
    }

    fn saved_for_each_byte(&self) -> f64 {
        let uses = self.uses.load(Ordering::Relaxed) as f64 + 1.0;
        self.cost.as_secs_f64() * uses / self.bytes().max(1) as f64
    }
}

fn bytes_of(space: &Claim) -> u64 {
    space.block_count() * BLOCK_SIZE as u64
}

/// Which rows are meant: those of a plan over tables that it names and does not hold, under settings.
#[derive(Debug, PartialEq)]
pub(crate) struct SetKey {
    /// Of the plan, so that others are told apart at once.
    hash: u64,
    role: Option<u32>,
    plan: LogicalPlan,
    settings: Settings,
}

impl SetKey {
    /// The rows of `plan` for `role`, under `settings`.
    pub(crate) fn new(role: Option<u32>, plan: LogicalPlan, settings: Settings) -> Self {
        Self { hash: FxBuildHasher.hash_one(&plan), role, plan, settings }
    }
}

/// The tables that a result set was made from, and what they had.
pub(crate) type ReadTables = Vec<(Arc<TableSchema>, TableRows)>;

/// A result set that is used again while its tables have the same rows.
#[derive(Debug)]
struct HeldSet {
    key: SetKey,
    tables: ReadTables,
    set: Arc<ResultSet>,
}

impl HeldSet {
    fn is_valid_in(&self, state: &CatalogState) -> bool {
        self.tables.iter().all(|(schema, rows)| state.has(schema) && rows.are_in(state))
    }
}

/// The result sets of a database.
#[derive(Debug, Default)]
pub(crate) struct ResultSets {
    sets: Mutex<Sets>,
    last_number: AtomicU64,
}

#[derive(Debug, Default)]
struct Sets {
    living: Vec<Weak<ResultSet>>,
    held: Vec<HeldSet>,
}

impl ResultSets {
    fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn note(&self, set: &Arc<ResultSet>) {
        let mut sets = self.sets();
        sets.living.retain(|known| known.strong_count() > 0);
        sets.living.push(Arc::downgrade(set));
    }

    /// Those that live, and of those that are held, whether a reader of `state` may use them.
    pub(crate) fn list(&self, state: &CatalogState) -> Vec<(Arc<ResultSet>, Option<bool>)> {
        let sets = self.sets();
        let living = sets.living.iter().filter_map(Weak::upgrade);
        let held_of = |set: &Arc<ResultSet>| {
            let held = sets.held.iter().find(|held| Arc::ptr_eq(&held.set, set));
            held.map(|held| held.is_valid_in(state))
        };
        living.map(|set| (Arc::clone(&set), held_of(&set))).collect()
    }

    /// The one that `key` means, if a reader of `state` may use it.
    pub(crate) async fn find(&self, key: &SetKey, state: &CatalogState) -> Option<Arc<ResultSet>> {
        let found = {
            let sets = self.sets();
            let held = sets.held.iter().find(|held| held.key == *key)?;
            held.is_valid_in(state).then(|| Arc::clone(&held.set))?
        };
        if found.is_there().await {
            found.uses.fetch_add(1, Ordering::Relaxed);
            return Some(found);
        }
        self.forget(&found);
        None
    }

    /// Holds `set` no more, the pages of which cannot be read.
    pub(crate) fn forget(&self, set: &Arc<ResultSet>) {
        self.let_go(|held| Arc::ptr_eq(&held.set, set));
    }

    /// Holds those no more that were made for a role that `is_meant` says; how many there were.
    pub(crate) fn release(&self, is_meant: impl Fn(Option<u32>) -> bool) -> usize {
        self.let_go(|held| is_meant(held.key.role))
    }

    /// Holds those no more that `is_meant` says; how many there were.
    fn let_go(&self, is_meant: impl FnMut(&mut HeldSet) -> bool) -> usize {
        // Dropped behind the lock.
        let gone: Vec<HeldSet> = self.sets().held.extract_if(.., is_meant).collect();
        gone.len()
    }

    /// Holds `set`, which `key` means and which was made of `tables`, within `bytes_max` of its device.
    pub(crate) fn hold(
        &self,
        key: SetKey,
        tables: ReadTables,
        set: &Arc<ResultSet>,
        (state, bytes_max): (&CatalogState, u64),
    ) {
        let devices = set.spaces.iter().map(|(device, _)| device.id()).collect::<BTreeSet<_>>();
        if devices.iter().any(|device| set.bytes_on(*device) > bytes_max) {
            return;
        }
        let mut gone = Vec::new();
        let mut sets = self.sets();
        // First those that nobody who reads the newest rows is given.
        let stays = |held: &HeldSet| held.key != key && held.is_valid_in(state);
        gone.extend(sets.held.extract_if(.., |held| !stays(held)));
        for device in devices {
            loop {
                let bytes: u64 = sets.held.iter().map(|held| held.set.bytes_on(device)).sum();
                let fits = bytes + set.bytes_on(device) <= bytes_max;
                if fits && sets.held.len() < HELD_COUNT_MAX {
                    break;
                }
                let Some(least) = sets.take_least(device) else { break };
                gone.push(least);
            }
        }
        sets.held.push(HeldSet { key, tables, set: Arc::clone(set) });
        drop(sets);
        drop(gone);
    }

    fn sets(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sets {
    /// Takes out the one that saved least for its bytes, of those on `device`, if it has any.
    fn take_least(&mut self, device: DeviceId) -> Option<HeldSet> {
        let saved = |index: &usize| {
            let held = self.held.get(*index);
            held.map_or(0.0, |held| held.set.saved_for_each_byte())
        };
        let is_there =
            |index: &usize| self.held.get(*index).is_some_and(|held| held.set.bytes_on(device) > 0);
        let least = |indexes: &mut dyn Iterator<Item = usize>| {
            indexes.min_by(|one, other| saved(one).total_cmp(&saved(other)))
        };
        let index = least(&mut (0..self.held.len()).filter(is_there))
            .or_else(|| least(&mut (0..self.held.len())))?;
        Some(self.held.swap_remove(index))
    }
}

impl SpaceHolder for ResultSets {
    fn give_up(&self, device: Option<DeviceId>) -> bool {
        let is_there =
            |held: &mut HeldSet| device.is_none_or(|device| held.set.bytes_on(device) > 0);
        self.let_go(is_there) > 0
    }
}
