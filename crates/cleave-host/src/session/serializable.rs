//! SERIALIZABLE: records the reads and writes of a session's statements beside those of all other transactions of that
//! level. A statement or a commit that fits no serial order fails.
//!
//! 1. [`block::block_snapshot`] registers the transaction before its snapshot is taken. [`track_alone`] does so for a
//!    statement outside of a block, which is a transaction of its own.
//! 2. A read is recorded before a page of it is read. A look-up by a key is recorded as that key, in [`note_look_up`].
//!    A scan, wherever it will run, is recorded while it is planned ([`ReadView::reads`]): as key ranges of an index if
//!    its conditions give some, otherwise as the whole table.
//! 3. [`note_writes`] records dead and new rows by their keys in each index, once they are locked.
//! 4. A commit is prepared while it holds the writer lock.
//! 5. A block that is DEFERRABLE and only reads waits for a [safe snapshot](safe_snapshot), in which it fits whatever
//!    others do. It is recorded nowhere.
//!
//! So a device needs no part in it: the reads of its fragment have been recorded by then, and commits made meanwhile
//! are checked against them on the host (rule 28). A commit that is missing in the snapshot and came before the record
//! is remembered for as long as the transaction runs, and recording the read finds it.
//!
//! [`ReadView::reads`]: cleave_query::select::ReadView

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::TabletState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::newest;
use cleave_catalog::index::{TabletIndex, rows_by_vid};
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::{Isolation, Stack};
use cleave_engine::storage_engine::snapshot::KeptSnapshot;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_fragment::waiting;
use cleave_query::point_path::PointQuery;
use cleave_store::KeyRange;
use cleave_txn::{KeySpan, Safety, Tracked, Written};

use super::foreign_keys::load;
use super::{Session, block, locking};
use crate::database::Database;

/// Polling interval for a safe snapshot, so that no commit has to wake anyone.
const SAFETY_PERIOD: Duration = Duration::from_millis(5);
/// Rows of a statement up to which their keys are recorded one by one.
pub(super) const ROWS_MAX: usize = 500;

/// Whether a statement outside of a block is to be serializable.
pub(super) fn is_serializable_alone(settings: &Settings) -> bool {
    settings.default_transaction_isolation == Isolation::Serializable
}

/// Registers the transaction of a statement outside of a block, before it takes its snapshot.
pub(super) fn track_alone(session: &mut Session) {
    if session.block.is_none() && is_serializable_alone(&session.settings) {
        let settings = &session.settings;
        let read_only =
            settings.client.only_reads.is_some() || settings.default_transaction_read_only;
        let tracked = session.database.dependencies().begin(read_only);
        session.statement_tracked = Some(Arc::new(tracked));
    }
}

/// Reports that the snapshot is taken.
pub(super) fn has_snapshot_alone(statement_tracked: Option<&Arc<Tracked>>) {
    if let Some(tracked) = statement_tracked {
        tracked.has_snapshot();
    }
}

/// Registers the transaction of a statement that has read nothing.
pub(super) async fn track_writes(session: &mut Session) -> Result<()> {
    match &session.block {
        None if session.statement_tracked.is_none() => {
            track_alone(session);
            has_snapshot_alone(session.statement_tracked.as_ref());
        }
        Some(block) if block.is_serializable() => drop(block::block_snapshot(session).await?),
        _ => {}
    }
    Ok(())
}

/// Records a look-up.
pub(super) fn note_look_up(tracked: Option<&Arc<Tracked>>, query: &PointQuery) -> Result<()> {
    if let Some(tracked) = tracked {
        tracked.reads_keys(u64::from(query.table_id()), &[query.span()])?;
    }
    Ok(())
}

/// Records a search for `keys` of an index.
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

/// Records the writes of `change`, whose rows are locked.
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
    locking::lock_loads(session, table_id).await?;
    load::hold_targets(session, table_id).await?;
    if let Some(tracked) = session.tracked() {
        tracked.writes(u64::from(table_id), &Written::All)?;
        // Others may commit before it has the writer lock.
        tracked.prepare(false)?;
    }
    Ok(())
}

/// The steps after such a load.
pub(super) fn end_load<T>(tracked: Option<&Arc<Tracked>>, outcome: &Result<T>) {
    if let Some(tracked) = tracked {
        match outcome {
            Ok(_) => tracked.ended(),
            // The commit may exist.
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

/// A snapshot in which a read-only transaction cannot fail: every concurrent transaction that could have caused that
/// has ended without doing so. Its reader need not be registered.
pub(super) async fn safe_snapshot(
    database: &Arc<Database>,
    shipped_bytes_max: u64,
) -> Result<KeptSnapshot> {
    loop {
        let tracked = database.dependencies().begin(true);
        let snapshot = database.snapshot_to_keep(shipped_bytes_max).await?;
        tracked.has_snapshot();
        loop {
            match tracked.safety() {
                Safety::Safe => return Ok(snapshot),
                // A newer one contains what made this one unsafe.
                Safety::Unsafe => break,
                Safety::Unknown => waiting::sleep(SAFETY_PERIOD).await,
            }
        }
    }
}

/// The keys of rows that `change` ends and inserts, in each index of its table.
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
    // Others may have ended some: taking the change reports that.
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
