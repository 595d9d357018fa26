//! ALTER TABLE … MOVE TABLET and REBALANCE, and the moves of a drain and of [rebalancing](crate::rebalance): tablets go
//! to other devices while their table is used.
//!
//! [Copying](cleave_engine::write::move_tablets) takes no lock. For the end of its move a table is locked EXCLUSIVE, so
//! that its writers wait and its readers do not. Writers queue behind that lock, which itself waits for open
//! transactions that have written the table; so it is given up after [`LOCK_WAIT_MS`], and tried again after the same
//! time; a move that nobody has asked for waits longer and longer in between. All tablets that a statement moves of a
//! table are committed together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::catalog::{DeviceId, TableState};
use cleave_catalog::error::{ConflictKind, Error, Fault, Result};
use cleave_engine::device::Device;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Changes;
use cleave_engine::write::balance_tablets::balanced;
use cleave_engine::write::move_tablets::{MovedTablets, TableMove};
use cleave_fragment::waiting;
use cleave_sql::statement::parse::{PlaceTablets, Placing};
use cleave_txn::LockMode;

use super::{Outcome, Session, rights};
use crate::database::Database;

/// How long writers of a table may wait behind the lock of a move that waits itself, and the pause between two tries.
const LOCK_WAIT_MS: u64 = 500;
/// The longest pause of a move that nobody has asked for.
const PAUSE_MS_MAX: u64 = 60_000;
/// How long such a move waits for a table's lock in all, pauses not counted.
const OWN_LOCK_TIMEOUT_MS: u64 = 10_000;
/// Pages that may be left to copy when the table is locked: what others write meanwhile is as much again.
const PAGES_LEFT: usize = 64;
/// Times that a table is copied before it is locked in any case, however much others write.
const COPIES_MAX: u32 = 8;

/// Runs ALTER TABLE … MOVE TABLET, REBALANCE or SET (rebalance).
pub(super) async fn run(session: &mut Session, statement: PlaceTablets) -> Result<Outcome> {
    let done = Outcome::done("ALTER TABLE");
    let PlaceTablets { table: name, if_exists, is_materialized, position, placing } = statement;
    let database = Arc::clone(&session.database);
    let table = {
        let state = session.names();
        rights::check_on(session, &state)?;
        let is_view = state.table(&name).is_some_and(|table| table.materialized.is_some());
        if is_materialized && !is_view && state.is_name_taken(&name) {
            return Err(super::indexes::wrong_kind(&name, "a materialized view").at(position));
        }
        if if_exists && !state.has_table_named(&name) {
            return Ok(done);
        }
        let table = state.find_whole_table(&name).map_err(|error| error.at(position))?;
        if session.owns(table.schema.table_id) {
            let what = format!("{} of a temporary table", placing.name());
            return Err(Error::unsupported(what).at(position));
        }
        Arc::clone(table)
    };
    if table.is_balanced && places_by_hand(&placing) {
        let message = format!(
            "tablets of table \"{name}\" move by themselves: ALTER TABLE {name} SET (rebalance = off) first"
        );
        return Err(Error::Invalid { message, fault: Fault::State, position });
    }
    let moved = match &placing {
        Placing::ByItself(is_balanced) => {
            let set = set_balanced(session, &table, *is_balanced).await;
            session.statement_locks = None;
            return set.map(|()| done);
        }
        Placing::Move { tablets, to } => chosen(&database, &table, tablets, to).await?,
        Placing::Rebalance { to } => rebalanced(&database, &table, to).await?,
    };
    move_table(session, table.schema.table_id, MovedTablets::At(moved)).await?;
    Ok(done)
}

/// Whether a server that balances the table would undo it.
fn places_by_hand(placing: &Placing) -> bool {
    match placing {
        Placing::Move { .. } => true,
        Placing::Rebalance { to } => !to.is_empty(),
        Placing::ByItself(_) => false,
    }
}

/// Says whether tablets of `table` move by themselves. Its writers are kept out, as they are at the end of a move.
async fn set_balanced(session: &mut Session, table: &TableState, is_balanced: bool) -> Result<()> {
    let (id, database) = (table.schema.table_id, Arc::clone(&session.database));
    let timeout_ms = session.in_force().lock_timeout_ms;
    session.locks().lock_table(id, LockMode::Exclusive, timeout_ms).await?;
    let mut edit = CatalogEdit::begin(&database).await?;
    // None: it was dropped meanwhile.
    if let Some(newest) = edit.next.table_by_id(id).map(Arc::clone) {
        edit.put_table(TableState { is_balanced, ..TableState::clone(&newest) });
        database.commit(Changes::settings(edit)).await?;
    }
    Ok(())
}

/// The tablets of `table` with the numbers `tablets`, which are to go to the device `to`.
async fn chosen(
    database: &Database,
    table: &TableState,
    tablets: &[u32],
    to: &str,
) -> Result<BTreeMap<usize, Arc<Device>>> {
    let device = database.device_named(to)?;
    device.link().await?;
    let (name, count) = (&table.schema.name, table.tablets.len());
    let mut moved = BTreeMap::new();
    for number in tablets {
        let place = table.tablets.iter().position(|tablet| tablet.id.0 == *number);
        let Some(place) = place else {
            let message =
                format!("table \"{name}\" has no tablet {number}: it has {count}, from 0 on");
            return Err(refused(message));
        };
        if moved.insert(place, Arc::clone(&device)).is_some() {
            return Err(refused(format!("tablet {number} is named twice")));
        }
    }
    Ok(moved)
}

/// The tablets of `table` that are to move for its rows to be balanced over the devices `to`; without names, over those
/// on which it lies.
async fn rebalanced(
    database: &Database,
    table: &TableState,
    to: &[String],
) -> Result<BTreeMap<usize, Arc<Device>>> {
    let mut devices: BTreeMap<DeviceId, Arc<Device>> = BTreeMap::new();
    for name in to {
        let device = database.device_named(name)?;
        if devices.insert(device.id(), device).is_some() {
            return Err(refused(format!("device \"{name}\" is named twice")));
        }
    }
    if to.is_empty() {
        for id in table.devices() {
            devices.insert(id, database.attached(id)?);
        }
    }
    let ids: Vec<DeviceId> = devices.keys().copied().collect();
    let mut moved = BTreeMap::new();
    for (place, id) in balanced(table, &ids) {
        let Some(device) = devices.get(&id) else { continue };
        device.link().await?;
        moved.insert(place, Arc::clone(device));
    }
    Ok(moved)
}

/// Moves tablets of one table; waits for its writers as long as `lock_timeout` says.
///
/// # Errors
/// Those of [`TableMove`]; [`Error::Conflict`] of the lock.
pub(super) async fn move_table(
    session: &mut Session,
    table: u32,
    moved: MovedTablets,
) -> Result<()> {
    let moving = TableMove::new(&session.database, table, moved);
    let waits = Waits { limit_ms: session.in_force().lock_timeout_ms, pause_ms_max: LOCK_WAIT_MS };
    let moved = copied_and_committed(session, moving, (table, waits)).await;
    session.statement_locks = None;
    moved
}

impl Session {
    /// Moves tablets of one table, which nobody has asked for, copying at most `rate` bytes a second.
    ///
    /// # Errors
    /// As [`move_table`].
    pub(crate) async fn move_tablets(
        &mut self,
        table: u32,
        moved: MovedTablets,
        rate: Option<u64>,
    ) -> Result<()> {
        let moving = TableMove::new(&self.database, table, moved).at_rate(rate);
        let waits = Waits { limit_ms: OWN_LOCK_TIMEOUT_MS, pause_ms_max: PAUSE_MS_MAX };
        let moved = Box::pin(copied_and_committed(self, moving, (table, waits))).await;
        self.statement_locks = None;
        moved
    }
}

/// How a move waits for the lock of its table.
struct Waits {
    /// In all, pauses not counted; 0: for ever.
    limit_ms: u64,
    /// Pauses begin at [`LOCK_WAIT_MS`] and double up to this.
    pause_ms_max: u64,
}

async fn copied_and_committed(
    session: &mut Session,
    mut moving: TableMove,
    (table, waits): (u32, Waits),
) -> Result<()> {
    let (mut copies, mut waited_ms, mut pause_ms) = (0, 0, LOCK_WAIT_MS);
    loop {
        let Some(count) = moving.copy().await? else { return Ok(()) };
        copies += 1;
        if count > PAGES_LEFT && copies < COPIES_MAX {
            continue;
        }
        let lock = session.locks().lock_table(table, LockMode::Exclusive, LOCK_WAIT_MS);
        match lock.await {
            // The last holder may have written all of it anew, as a vacuum does.
            Ok(()) if moving.left() > PAGES_LEFT && copies < COPIES_MAX => {}
            Ok(()) => return moving.commit().await,
            Err(Error::Conflict { kind: ConflictKind::LockTimeout, .. })
                if waits.limit_ms == 0 || waited_ms + LOCK_WAIT_MS < waits.limit_ms =>
            {
                waited_ms += LOCK_WAIT_MS;
                waiting::sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = pause_ms.saturating_mul(2).min(waits.pause_ms_max);
            }
            Err(error) => return Err(error),
        }
        session.statement_locks = None;
    }
}

fn refused(message: String) -> Error {
    Error::Invalid { message, fault: Fault::Parameter, position: None }
}
