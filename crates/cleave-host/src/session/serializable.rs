//! SERIALIZABLE: what a session's statements read and write in, noted with all other transactions of that level; a
//! statement or a commit that has no place in their order fails.
//!
//! 1. [`block::block_snapshot`] begins the transaction before its state is taken; [`track_alone`] does for a statement
//!    outside of a block, which is a transaction of its own.
//! 2. What is read is noted before a page of it is: a look-up by a key as that key, in [`note_look_up`]; a scan,
//!    wherever it will run, while it is planned ([`ReadView::reads`]), as ranges of an index's keys where its
//!    conditions give some, otherwise as its table.
//! 3. [`note_writes`] notes rows that end and begin by their keys in each index, once they are locked.
//! 4. A commit is prepared while it has the writer lock.
//!
//! 5. A block that is DEFERRABLE and only reads waits for a [state](safe_state) in which it has a place whatever others
//!    do, and is noted nowhere.
//!
//! So a device needs to know nothing of it: what its fragment may read has been noted by then, and what commits
//! meanwhile is checked against that on the host (rule 28). A commit that the state does not have, and that came before
//! the note, is remembered for as long as the transaction runs, and found by the note.
//!
//! [`ReadView::reads`]: cleave_query::select::ReadView

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::{CatalogState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::newest;
use cleave_catalog::index::{TabletIndex, rows_by_vid};
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::{Isolation, Stack};
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_fragment::waiting;
use cleave_query::point_path::PointQuery;
use cleave_store::KeyRange;
use cleave_txn::{KeySpan, Safety, Tracked, Written};

use super::foreign_keys::load;
use super::{Session, block};
use crate::database::Database;

/// How often it is looked whether a state is safe: for this nobody who commits has to wake anyone.
const SAFETY_PERIOD: Duration = Duration::from_millis(5);
/// Rows of a statement up to which their keys are told apart.
const ROWS_MAX: usize = 500;

/// Whether a statement outside of a block is to be serializable.
pub(super) fn is_serializable_alone(settings: &Settings) -> bool {
    settings.default_transaction_isolation == Isolation::Serializable
}

/// Begins the transaction of a statement outside of a block, before it takes the state that it reads.
pub(super) fn track_alone(session: &mut Session) {
    if session.block.is_none() && is_serializable_alone(&session.settings) {
        let read_only = session.settings.default_transaction_read_only;
        let tracked = session.database.dependencies().begin(read_only);
        session.statement_tracked = Some(Arc::new(tracked));
    }
}

/// Says that it has taken that.
pub(super) fn has_snapshot_alone(statement_tracked: Option<&Arc<Tracked>>) {
    if let Some(tracked) = statement_tracked {
        tracked.has_snapshot();
    }
}

/// Begins the transaction of a statement that has read nothing.
pub(super) async fn track_writes(session: &mut Session) -> Result<()> {
    match &session.block {
        None if session.statement_tracked.is_none() => {
            track_alone(session);
            has_snapshot_alone(session.statement_tracked.as_ref());
        }
        Some(block) if block.is_serializable() => {
            drop(block::block_snapshot(&session.database, &mut session.block).await?)
        }
        _ => {}
    }
    Ok(())
}

/// Notes a look-up.
pub(super) fn note_look_up(tracked: Option<&Arc<Tracked>>, query: &PointQuery) -> Result<()> {
    if let Some(tracked) = tracked {
        tracked.reads_keys(u64::from(query.table_id()), &[query.span()])?;
    }
    Ok(())
}

/// Notes that `keys` of an index are looked for.
pub(super) fn note_keys(
    tracked: Option<&Arc<Tracked>>,
    table_id: u32,
    index: u32,
    keys: &[&[u8]],
) -> Result<()> {
    let Some(tracked) = tracked else { return Ok(()) };
    let spans = keys.iter().map(|key| {
        let KeyRange { from, below } = KeyRange::of_prefix(key.to_vec());
        KeySpan { space: index, from, below }
    });
    let spans: Vec<KeySpan> = spans.collect();
    Ok(tracked.reads_keys(u64::from(table_id), &spans)?)
}

/// Notes what `change` does, whose rows are locked.
pub(super) async fn note_writes(
    database: &Arc<Database>,
    tracked: Option<&Arc<Tracked>>,
    change: &TableChange,
) -> Result<()> {
    if let Some(tracked) = tracked {
        let written = written(database, change).await?;
        tracked.writes(u64::from(change.schema.table_id), &written)?;
    }
    Ok(())
}

/// Prepares a statement that loads rows into a table and commits them by itself.
pub(super) async fn prepare_load(session: &mut Session, table_id: u32) -> Result<()> {
    track_writes(session).await?;
    load::hold_targets(session, table_id).await?;
    if let Some(tracked) = session.tracked() {
        tracked.writes(u64::from(table_id), &Written::All)?;
        // Others may commit before it has the writer lock.
        tracked.prepare(false)?;
    }
    Ok(())
}

/// What comes after such a load.
pub(super) fn end_load<T>(tracked: Option<&Arc<Tracked>>, outcome: &Result<T>) {
    if let Some(tracked) = tracked {
        match outcome {
            Ok(_) => tracked.ended(),
            // It may be there.
            Err(Error::Storage(_)) => {}
            Err(_) => tracked.give_up(),
        }
    }
}

/// Ends the transaction of a statement outside of a block.
pub(super) fn end_tracked<T>(
    statement_tracked: &mut Option<Arc<Tracked>>,
    outcome: Result<T>,
) -> Result<T> {
    let Some(tracked) = statement_tracked.take() else { return outcome };
    let outcome = outcome?;
    tracked.finish()?;
    Ok(outcome)
}

/// A state that no transaction which only reads can spoil: whoever might have, and ran beside it, has ended without
/// doing so. Others need not know of who reads it.
pub(super) async fn safe_state(database: &Arc<Database>) -> Result<Arc<CatalogState>> {
    loop {
        let tracked = database.dependencies().begin(true);
        let state = database.snapshot(SnapshotKind::Flushed).await?;
        tracked.has_snapshot();
        loop {
            match tracked.safety() {
                Safety::Safe => return Ok(state),
                // A newer one has what made this one unsafe.
                Safety::Unsafe => break,
                Safety::Unknown => waiting::sleep(SAFETY_PERIOD).await,
            }
        }
    }
}

/// The keys of what `change` ends and begins, in each index of its table.
async fn written(database: &Arc<Database>, change: &TableChange) -> Result<Written> {
    let live = database.live();
    let table = live.state.find_writable_table(&change.schema.name)?;
    let indexes = table.tablets.first().map_or(&[][..], |tablet| tablet.indexes.as_slice());
    let ended = change.dead.values().map(VidSet::len).sum::<usize>();
    if indexes.is_empty() || ended + change.row_count() > ROWS_MAX {
        return Ok(Written::All);
    }
    let mut rows: Vec<RecordBatch> = change.batches().into_iter().cloned().collect();
    let mut spaces: BTreeMap<u32, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for (place, vids) in &change.dead {
        let Some(tablet) = table.tablets.get(*place) else { return Ok(Written::All) };
        for vid in vids.from(tablet.next_vid) {
            match live.delta.row(table.schema.table_id, *place, vid) {
                Some(row) => rows.push(row.batch()),
                None => return Ok(Written::All),
            }
        }
        ended_keys(database, tablet, indexes, vids, &mut spaces).await?;
    }
    for index in indexes {
        let (shape, keys) = (index.shape(), spaces.entry(index.definition().id).or_default());
        for rows in &rows {
            let entries = shape.row_entries(rows, 0)?;
            keys.extend(entries.iter().flatten().map(<[u8]>::to_vec));
        }
    }
    Ok(Written::Keys(spaces))
}

/// Adds the keys that the rows `vids` have in `indexes`, as far as they are in pages of `tablet`.
async fn ended_keys(
    database: &Arc<Database>,
    tablet: &TabletState,
    indexes: &[Arc<TabletIndex>],
    vids: &VidSet,
    spaces: &mut BTreeMap<u32, BTreeSet<Vec<u8>>>,
) -> Result<()> {
    // Others may have ended some: who takes the change is told so.
    let there = vids.iter().take_while(|vid| *vid < tablet.next_vid);
    let there: Vec<u64> = there.filter(|vid| newest(tablet, *vid).is_some()).collect();
    let pages = database.page_source(tablet.device, Stack::Native)?;
    for index in indexes {
        let shape = index.shape();
        let keys = rows_by_vid(tablet, &*pages, &shape.projection(), &there).await?;
        let entries = shape.entries(&keys, 0)?;
        let known = spaces.entry(index.definition().id).or_default();
        known.extend(entries.iter().flatten().map(<[u8]>::to_vec));
    }
    Ok(())
}
