//! The log of a database: the changes of small commits, made durable before they are acknowledged, and redone after a
//! crash.
//!
//! ```text
//!  commit ─▶ record appended ─▶ in the delta, published ─▶ one sync of the log for all waiters ─▶ acknowledged
//!  delta ─▶ pages (not synced), when a plan or a larger write needs them, or it is full
//!  checkpoint: devices synced ─▶ manifest replaced; it says from where the log is read ─▶ log before that given up
//!  start:   manifest ─▶ records from there on ─▶ delta ─▶ pages ─▶ checkpoint
//! ```
//!
//! 1. [`Committed`] is the payload of a record: for each tablet the VIDs of deleted rows, the inserted rows, and the
//!    first of their VIDs; and the references of [page versions](crate::write::page_versions), whose pages are durable
//!    on their device.
//! 2. [`recover`](redo::recover) reads the records behind the manifest's position and redoes them, many [at
//!    once](redo).
//!
//! Every commit that replaces the manifest is a checkpoint: all before it is in pages by then, but for tables that are
//! [blocked](cleave_catalog::catalog::blocked) because a device of theirs is offline: the log keeps what they lack, and
//! all others go on. Large commits replace the manifest, since rows that are written as pages once need not be written
//! twice.
//!
//! Invariants: what is in the log and not in the manifest is redone in the same order with the same VIDs, or the
//! database does not open; space that the durable manifest names is not used again before a newer one is durable.
//! Source: rules 25 and 27.

pub mod redo;
mod redone_pages;
mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::upkeep::Upkeep;
use cleave_catalog::error::{Error, Result};
use cleave_media::{Clock, SystemClock};
use cleave_store::{PageEntry, proto};
use cleave_txn::{LogError, LogOptions, LogReader, Lsn, Wal};
use prost::Message;
use prost::encoding::encoded_len_varint;

use crate::delta::Live;
use crate::write::begun::Begun;
use crate::write::insert::TableChange;
use crate::write::page_versions::TableVersions;
use crate::write::vid_set::VidSet;

/// Flushed deltas after which a commit replaces the manifest: each leaves pages that cannot be used again before.
const FLUSHED_COUNT_MAX: u64 = 1000;
/// Bytes of log after which one does.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Bytes in multiples of which space is put aside for restarts.
const START_RESERVE_STEP: u64 = 64 << 10;

/// Where the log lies in the folder of a database.
pub fn directory_of(database: &Path) -> PathBuf {
    database.join("log")
}

/// A new log for the database in `directory`.
///
/// # Errors
/// [`StorageError::Log`](cleave_catalog::storage_error::StorageError::Log).
pub fn create(directory: &Path) -> Result<Wal> {
    Ok(Wal::create(&directory_of(directory), Lsn(0), LogOptions::default())?)
}

/// The log of the database in `directory`, whose manifest names `position`.
///
/// # Errors
/// [`StorageError::Log`](cleave_catalog::storage_error::StorageError::Log).
pub fn open(directory: &Path, position: u64) -> Result<LogReader> {
    let log = directory_of(directory);
    if !log.is_dir() {
        return Err(LogError::Missing { directory: log, at: Lsn(position) }.into());
    }
    Ok(LogReader::open(&log, Lsn(position))?)
}

/// Sets some of the space free that the log of the database in `directory`, which is not open, has put aside; whether
/// there was any.
pub(crate) fn release_reserve(directory: &Path) -> bool {
    cleave_txn::release_reserve(&directory_of(directory))
}

/// Puts space aside for the next incarnation of the database in `directory`, for its manifest, which has
/// `manifest_bytes` now. Best effort: it is made once there is room.
pub(crate) fn reserve_for_start(directory: &Path, manifest_bytes: u64) {
    // In steps, so that a manifest that grows a little needs no more.
    let byte_count = manifest_bytes.next_multiple_of(START_RESERVE_STEP);
    drop(cleave_txn::reserve_for_start(&directory_of(directory), byte_count));
}

/// Whether a commit of `changes` to `state` may be made by the log.
pub fn takes(state: &CatalogState, changes: &[&TableChange]) -> bool {
    let is_known = |change: &TableChange| state.table(&change.schema.name).is_some();
    changes.iter().all(|change| change.is_small() && is_known(change))
}

/// Whether the next commit is to be a checkpoint.
pub fn is_due(log: &Wal, state: &CatalogState, flushed_count: u64) -> bool {
    let since = state.log_position.max(state.blocked.until);
    flushed_count >= FLUSHED_COUNT_MAX || log.end().0.saturating_sub(since) >= LOG_BYTES_MAX
}

/// What one commit changed.
#[derive(Clone, PartialEq, Message)]
pub struct Committed {
    /// By table.
    #[prost(message, repeated, tag = "1")]
    tables: Vec<CommittedTable>,
    /// Sequences, which belong to no transaction.
    #[prost(message, repeated, tag = "20")]
    sequences: Vec<CommittedSequence>,
    /// Its number.
    #[prost(uint64, tag = "2")]
    pub commit: u64,
    /// When it was made, in microseconds since 1970.
    #[prost(int64, tag = "3")]
    pub time_us: i64,
    /// The last commit before it that is in no log.
    #[prost(uint64, tag = "4")]
    pub unlogged: u64,
    /// What it changed is not here.
    #[prost(bool, tag = "5")]
    pub is_missing: bool,
    /// What it changed lies whole in the archive.
    #[prost(message, optional, tag = "110")]
    pub replaced: Option<Replaced>,
}

/// The tables and ids behind a commit that lies whole in the archive.
#[derive(Clone, PartialEq, Message)]
pub struct Replaced {
    /// Ids of all tables.
    #[prost(uint32, repeated, tag = "1")]
    pub tables: Vec<u32>,
    /// The id that the next table gets.
    #[prost(uint32, tag = "2")]
    pub next_table: u32,
    /// The id that the next segment gets.
    #[prost(uint32, tag = "3")]
    pub next_segment: u32,
}

/// How far a sequence has gone.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CommittedSequence {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The last number that may have been given.
    #[prost(sint64, tag = "2")]
    pub last: i64,
    /// Whether it may; if not, it is the next.
    #[prost(bool, tag = "3")]
    pub is_called: bool,
}

/// The payload of a record that says how far a sequence has gone.
pub fn of_sequence(id: u32, last: i64, is_called: bool) -> Vec<u8> {
    let sequence = CommittedSequence { id, last, is_called };
    let time_us = SystemClock.wall();
    Committed { sequences: vec![sequence], time_us, ..Committed::default() }.encode_to_vec()
}

#[derive(Clone, PartialEq, Message)]
struct CommittedTable {
    #[prost(uint32, tag = "1")]
    table_id: u32,
    #[prost(uint32, tag = "2")]
    schema_version: u32,
    #[prost(message, repeated, tag = "3")]
    tablets: Vec<CommittedTablet>,
}

#[derive(Clone, PartialEq, Message)]
struct CommittedTablet {
    /// Its place in the table.
    #[prost(uint32, tag = "1")]
    place: u32,
    /// VIDs of deleted rows: each less the one before and one.
    #[prost(uint64, repeated, tag = "2")]
    dead_gaps: Vec<u64>,
    /// The same as runs, where that is shorter: how many VIDs lie between the end of the last run and this one, and how
    /// many follow its first.
    #[prost(uint64, repeated, tag = "6")]
    dead_runs: Vec<u64>,
    /// The VID of the first inserted row.
    #[prost(uint64, tag = "3")]
    vid_first: u64,
    /// The inserted rows ([`rows`]); empty: none.
    #[prost(bytes = "vec", tag = "4")]
    rows: Vec<u8>,
    /// Page versions in place of pages.
    #[prost(message, repeated, tag = "5")]
    pages: Vec<CommittedPage>,
}

/// A page version, which is durable on its device.
#[derive(Clone, PartialEq, Message)]
struct CommittedPage {
    /// The page that it replaces.
    #[prost(message, optional, tag = "1")]
    replaced: Option<proto::PageRef>,
    #[prost(message, optional, tag = "2")]
    version: Option<proto::PageEntry>,
    /// The stable ids of the columns that it changes.
    #[prost(uint32, repeated, tag = "3")]
    columns: Vec<u32>,
}

/// A page version that a record names.
#[derive(Debug, Clone)]
pub struct LoggedVersion {
    /// The table.
    pub table: u32,
    /// The place of the tablet.
    pub place: usize,
    /// The stable ids of the changed columns.
    pub columns: Vec<u32>,
    /// The version.
    pub entry: PageEntry,
}

/// Page versions of a table as a record has them, by the place of the tablet.
pub struct LoggedVersions {
    table_id: u32,
    tablets: BTreeMap<usize, Vec<CommittedPage>>,
}

impl LoggedVersions {
    /// Those of `versions`, of the table `table_id`.
    pub fn of(table_id: u32, versions: &TableVersions) -> Self {
        let mut tablets: BTreeMap<usize, Vec<CommittedPage>> = BTreeMap::new();
        for (place, replaced, version, columns) in versions.pages() {
            let (replaced, version) = (Some(replaced.into()), Some(version.into()));
            let page = CommittedPage { replaced, version, columns: columns.to_vec() };
            tablets.entry(place).or_default().push(page);
        }
        Self { table_id, tablets }
    }

    /// Bytes that they take in a record.
    pub fn byte_count(&self) -> usize {
        self.tablets.values().flatten().map(Message::encoded_len).sum()
    }
}

impl Committed {
    /// The record of `changes` to what is committed.
    ///
    /// # Errors
    /// Rows that cannot be encoded.
    pub fn new(live: &Live, changes: &[&TableChange]) -> Result<Self> {
        let mut tables = Vec::with_capacity(changes.len());
        for change in changes {
            let table = live.state.find_table(&change.schema.name)?;
            let touched = change.places();
            let mut tablets = Vec::with_capacity(touched.len());
            for place in touched {
                let rows = change.rows.get(&place).map(Begun::whole).transpose()?.flatten();
                let rows = rows.filter(|rows| rows.num_rows() > 0);
                let dead = change.dead.get(&place).map(DeadRows::of).unwrap_or_default();
                tablets.push(CommittedTablet {
                    place: u32::try_from(place).unwrap_or(u32::MAX),
                    dead_gaps: dead.gaps,
                    vid_first: live.delta.next_vid(table, place),
                    rows: rows.map(|rows| rows::encode(&rows)).transpose()?.unwrap_or_default(),
                    pages: Vec::new(),
                    dead_runs: dead.runs,
                });
            }
            let (table_id, schema_version) = (change.schema.table_id, change.schema.version);
            tables.push(CommittedTable { table_id, schema_version, tablets });
        }
        Ok(Self {
            tables,
            sequences: Vec::new(),
            commit: live.state.commit + live.number + 1,
            time_us: SystemClock.wall(),
            unlogged: live.state.upkeep.unlogged_commit,
            is_missing: false,
            replaced: None,
        })
    }

    /// The same with page versions.
    ///
    /// # Errors
    /// [`Error::Conflict`] of a table that is gone.
    pub fn with_versions(mut self, live: &Live, versions: Vec<LoggedVersions>) -> Result<Self> {
        for LoggedVersions { table_id, tablets } in versions {
            let table = live.state.table_by_id(table_id).ok_or_else(Error::concurrent_update)?;
            let schema_version = table.schema.version;
            let of_pages = |(place, pages)| CommittedTablet {
                place: u32::try_from(place).unwrap_or(u32::MAX),
                vid_first: live.delta.next_vid(table, place),
                pages,
                ..CommittedTablet::default()
            };
            // Before the rows of the same table, which move its next VID.
            let tablets = tablets.into_iter().map(of_pages).collect();
            self.tables.insert(0, CommittedTable { table_id, schema_version, tablets });
        }
        Ok(self)
    }

    /// Takes the page versions out.
    ///
    /// # Errors
    /// A message about one that cannot be.
    pub fn take_versions(&mut self) -> Result<Vec<LoggedVersion>, String> {
        let mut versions = Vec::new();
        for logged in &mut self.tables {
            for tablet in &mut logged.tablets {
                let place = usize::try_from(tablet.place).unwrap_or(usize::MAX);
                for CommittedPage { version, columns, .. } in std::mem::take(&mut tablet.pages) {
                    let entry = version.ok_or_else(|| "it names no page version".to_owned())?;
                    let entry = PageEntry::try_from(entry).map_err(|error| error.to_string())?;
                    versions.push(LoggedVersion { table: logged.table_id, place, columns, entry });
                }
            }
        }
        Ok(versions)
    }

    /// Leaves out the deletions that `state` has in its version maps: a commit that deletes many rows marks them there,
    /// also those of a table that is blocked later, whose other commits are in the log alone. A row dies once.
    fn forget_dead_in(&mut self, state: &CatalogState) {
        for logged in &mut self.tables {
            let Some(table) = state.table_by_id(logged.table_id) else { continue };
            for tablet in &mut logged.tablets {
                let place = usize::try_from(tablet.place).unwrap_or(usize::MAX);
                let Some(known) = table.tablets.get(place) else { continue };
                let is_left =
                    |vid: &u64| *vid >= known.next_vid || known.version_map.lookup(*vid).is_some();
                let left: VidSet = tablet.dead().filter(is_left).collect();
                let dead = DeadRows::of(&left);
                (tablet.dead_gaps, tablet.dead_runs) = (dead.gaps, dead.runs);
            }
        }
    }

    /// Says of `commit`, which follows `base`, that it lies whole in the archive.
    pub fn replaced(base: &CatalogState, commit: u64, replaced: Replaced) -> Self {
        let (time_us, unlogged) = (SystemClock.wall(), base.upkeep.unlogged_commit);
        Self { commit, time_us, unlogged, replaced: Some(replaced), ..Self::default() }
    }

    /// Whether it says no more than how far sequences have gone, which is no commit's.
    pub fn is_of_sequences(&self) -> bool {
        self.tables.is_empty() && !self.sequences.is_empty()
    }

    /// Says of the last commit that is in no log that it is not.
    pub fn missing(upkeep: &Upkeep) -> Self {
        let (commit, time_us) = (upkeep.unlogged_commit, upkeep.unlogged_at_us);
        Self { commit, time_us, unlogged: commit, is_missing: true, ..Self::default() }
    }
}

impl CommittedTablet {
    /// VIDs of deleted rows, ascending.
    fn dead(&self) -> impl Iterator<Item = u64> + '_ {
        vids_of_gaps(&self.dead_gaps).chain(vids_of_runs(&self.dead_runs))
    }
}

/// Deleted rows as a record has them: in the shorter form, the other one is empty.
#[derive(Default)]
struct DeadRows {
    gaps: Vec<u64>,
    runs: Vec<u64>,
}

impl DeadRows {
    fn of(vids: &VidSet) -> Self {
        let runs = runs_of(vids);
        match runs.len() < vids.len() {
            true => Self { gaps: Vec::new(), runs },
            false => Self { gaps: gaps_of(vids), runs: Vec::new() },
        }
    }
}

/// Bytes that the deleted rows of `changes` take in a record.
pub(crate) fn dead_byte_count(changes: &[&TableChange]) -> usize {
    let sets = changes.iter().flat_map(|change| change.dead.values());
    let byte_count = |vids: &VidSet| {
        let DeadRows { gaps, runs } = DeadRows::of(vids);
        gaps.iter().chain(&runs).map(|number| encoded_len_varint(*number)).sum::<usize>()
    };
    sets.map(byte_count).sum()
}

fn gaps_of(vids: &VidSet) -> Vec<u64> {
    let mut next = 0;
    let gap = |vid: u64| {
        let gap = vid.saturating_sub(next);
        next = vid.saturating_add(1);
        gap
    };
    vids.iter().map(gap).collect()
}

fn runs_of(vids: &VidSet) -> Vec<u64> {
    let mut runs = Vec::new();
    let mut next = 0;
    for vid in vids.iter() {
        match runs.last_mut() {
            Some(more) if vid == next => *more += 1,
            _ => runs.extend([vid.saturating_sub(next), 0]),
        }
        next = vid.saturating_add(1);
    }
    runs
}

fn vids_of_gaps(gaps: &[u64]) -> impl Iterator<Item = u64> + '_ {
    let mut next = 0_u64;
    gaps.iter().map(move |gap| {
        let vid = next.saturating_add(*gap);
        next = vid.saturating_add(1);
        vid
    })
}

fn vids_of_runs(runs: &[u64]) -> impl Iterator<Item = u64> + '_ {
    let mut next = 0_u64;
    runs.chunks(2).flat_map(move |run| {
        let (gap, more) = match run {
            [gap, more] => (*gap, *more),
            _ => (u64::MAX, 0),
        };
        let first = next.saturating_add(gap);
        let last = first.saturating_add(more);
        next = last.saturating_add(1);
        first..=last
    })
}

#[cfg(test)]
mod tests;
