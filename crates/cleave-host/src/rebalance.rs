//! Automatic rebalancing: moves tablets of the tables that ask for it (`WITH (rebalance = on)`), one at a time, until
//! no device has many more of their rows than its share.
//!
//! A server calls [`Database::rebalance`] every `rebalance_naptime`. For each table:
//!
//! 1. Its rows are balanced over the devices that it lies on, and all others that answer, but for those that were
//!    drained. The embedded device is one of them only while the table lies on it: on a device outside, fragments have
//!    cores of their own. A table on mirrors goes to mirrors that have no fewer copies.
//! 2. [`next_step`] chooses a tablet and its device. It moves as [by MOVE TABLET](crate::session), but is copied at
//!    `rebalance_rate`, and asks for the table's lock less and less often.
//! 3. Then it looks again: rows have come and gone, devices too.
//!
//! Invariants: nothing is remembered between two moves, so that a restart goes on with what is there. A move is dropped
//! when its table or the database says `off`, or its target is drained. A table one of whose devices does not answer is
//! left as it is, and its rows are not counted as gone. Settings: [`Rebalance`], `ALTER SYSTEM`.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::catalog::division::TABLET_COUNT_MAX;
use cleave_catalog::catalog::rebalance::Rebalance;
use cleave_catalog::catalog::{CatalogState, DeviceId, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::bytes_text;
use cleave_engine::device::Device;
use cleave_engine::write::balance_tablets::next_step;
use cleave_engine::write::move_tablets::MovedTablets;
use cleave_fragment::waiting;
use cleave_media::BLOCK_SIZE;
use cleave_media::clock::Stopwatch;
use futures::future::{BoxFuture, Either, select};

use crate::database::Database;

/// How often a move looks whether it is still wanted.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// A tablet that is to move.
struct Step {
    place: usize,
    target: Arc<Device>,
    /// It, its table and its devices, for the log.
    what: String,
}

impl Database {
    /// The settings of automatic rebalancing.
    pub fn rebalance_settings(&self) -> Rebalance {
        self.catalog().upkeep.rebalance.clone()
    }

    /// Moves tablets of the tables that ask for it, and says of each to `tell` what it has done. Returns the errors of
    /// the tables that could not be balanced, with their names.
    pub fn rebalance<'a>(
        self: &'a Arc<Self>,
        tell: &'a (dyn Fn(&str) + Send + Sync),
    ) -> BoxFuture<'a, Vec<(String, Error)>> {
        Box::pin(async move {
            let state = self.catalog();
            let tables = state.tables().filter(|table| concerns(&state, table));
            let tables: Vec<(u32, String)> =
                tables.map(|table| (table.schema.table_id, table.schema.name.clone())).collect();
            drop(state);
            let mut failures = Vec::new();
            for (id, name) in tables {
                if let Err(error) = Box::pin(balance(self, id, tell)).await {
                    failures.push((name, error));
                }
            }
            failures
        })
    }
}

/// Whether tablets of `table` may move by themselves.
fn concerns(state: &CatalogState, table: &TableState) -> bool {
    let settings = &state.upkeep.rebalance;
    let is_drained = |device: DeviceId| settings.drained.contains(&device);
    settings.is_on()
        && table.is_balanced
        && (table.devices().into_iter().any(is_drained) || settings.concerns(table))
        && state.find_whole_table(&table.schema.name).is_ok()
}

/// Moves tablets of the table `id` until it is balanced.
async fn balance(
    database: &Arc<Database>,
    id: u32,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Result<()> {
    // A bound, should rows come and go as fast as tablets move.
    for _ in 0..TABLET_COUNT_MAX {
        let Some(Step { place, target, what }) = next(database, id).await? else { return Ok(()) };
        let stopwatch = Stopwatch::start();
        let to = BTreeMap::from([(place, Arc::clone(&target))]);
        let rate = database.rebalance_settings().rate();
        let mut session = database.session();
        let moving = pin!(session.move_tablets(id, MovedTablets::At(to), rate));
        match select(moving, pin!(until_unwanted(database, id, target.id()))).await {
            Either::Left((moved, _)) => moved?,
            Either::Right(_) => return Ok(()),
        }
        let state = database.catalog();
        let tablet = state.table_by_id(id).and_then(|table| table.tablets.get(place));
        if tablet.is_none_or(|tablet| tablet.device != target.id()) {
            return Ok(());
        }
        tell(&format!("moved {what} in {:.1} s", stopwatch.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Ends when the table `id` is no longer to be balanced, or not to the device `target`.
async fn until_unwanted(database: &Database, id: u32, target: DeviceId) {
    loop {
        waiting::sleep(LOOK_PAUSE).await;
        let state = database.catalog();
        let (settings, table) = (&state.upkeep.rebalance, state.table_by_id(id));
        let is_wanted = settings.is_on() && !settings.drained.contains(&target);
        if !is_wanted || !table.is_some_and(|table| table.is_balanced) {
            return;
        }
    }
}

/// The tablet of the table `id` that moves next; None: none does.
async fn next(database: &Database, id: u32) -> Result<Option<Step>> {
    let state = database.catalog();
    let Some(table) = state.table_by_id(id).filter(|table| concerns(&state, table)) else {
        return Ok(None);
    };
    let Some(targets) = targets(database, &state, table).await? else { return Ok(None) };
    let ids: Vec<DeviceId> = targets.keys().copied().collect();
    let step = next_step(table, &ids, |share| state.upkeep.rebalance.most(share));
    let Some((place, to)) = step else { return Ok(None) };
    let (Some(tablet), Some(target)) = (table.tablets.get(place), targets.get(&to)) else {
        return Ok(None);
    };
    let from = database.attached(tablet.device)?;
    let blocks: u64 = tablet.extents().map(|extent| u64::from(extent.block_count)).sum();
    let what = format!(
        "tablet {} of \"{}\" from \"{}\" to \"{}\": {}",
        tablet.id.0,
        table.schema.name,
        from.name(),
        target.name(),
        bytes_text(blocks.saturating_mul(BLOCK_SIZE as u64))
    );
    Ok(Some(Step { place, target: Arc::clone(target), what }))
}

/// The devices over which `table` is balanced; None: one that it lies on does not answer, it lies on mirrors and on
/// other devices, or there is no device for it.
async fn targets(
    database: &Database,
    state: &CatalogState,
    table: &TableState,
) -> Result<Option<BTreeMap<DeviceId, Arc<Device>>>> {
    let mut own = Vec::new();
    for id in table.devices() {
        let device = database.attached(id)?;
        if device.link().await.is_err() {
            return Ok(None);
        }
        own.push(device);
    }
    let on_mirrors = own.iter().filter(|device| device.is_mirror()).count();
    if on_mirrors > 0 && on_mirrors < own.len() {
        return Ok(None);
    }
    let copies = own.iter().map(|device| device.copies().len()).min().unwrap_or_default();
    let mut targets = BTreeMap::new();
    for device in database.devices() {
        let id = device.id();
        let is_own = own.iter().any(|own| own.id() == id);
        let is_alike = device.is_mirror() == (on_mirrors > 0) && device.copies().len() >= copies;
        let is_meant = is_own || (is_alike && id != DeviceId::EMBEDDED);
        let is_free = is_meant && !state.upkeep.rebalance.drained.contains(&id);
        if is_free && (is_own || device.link().await.is_ok()) {
            targets.insert(id, device);
        }
    }
    Ok(Some(targets).filter(|targets| !targets.is_empty()))
}
