//! Point-in-time restore: a restored database and an archived log in, the database at a later moment out.
//!
//! Records are redone as in recovery, up to the first commit behind the wanted moment. Invariant: nothing is skipped.
//! Each record names the last commit before it that is in no log; where that one is not in the database by then, this
//! backup cannot be brought further, and the error says from when on a backup would have it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_catalog::storage_error::{Identity, StorageError};
use cleave_catalog::value::parse;
use cleave_catalog::value::text::moment;
use cleave_engine::log::Committed;
use cleave_engine::log::redo::{Gathered, Redo};
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Changes;
use cleave_engine::write::insert::apply;
use cleave_txn::{LogReader, Lsn, Record};
use prost::Message;

use super::backup_manifest::BackupManifest;
use super::change;
use crate::page_copies;

/// Catalog versions after which a manifest is written meanwhile: space that they leave is not used again before.
const FLUSHED_AT_ONCE: u64 = 100;

/// How far a backup is brought forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// All that was committed at or before a moment, in microseconds since 1970.
    Time(i64),
    /// All up to this commit.
    Commit(u64),
    /// All that the archive has.
    End,
}

/// Where a backup is brought forward from, and how far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointInTime {
    /// The folder that `archive_directory` named.
    pub archive: PathBuf,
    /// How far.
    pub until: Until,
}

/// Where it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The last commit that is in the database, by the number that it had.
    pub commit: u64,
    /// When it was made, as SQL writes it.
    pub at: String,
    /// Commits that were redone.
    pub count: u64,
    /// The archived log ends there: nothing behind the moment that was wanted was found.
    pub is_end: bool,
    /// Where in the log the reading ended, in bytes.
    pub log_end: u64,
}

impl Until {
    /// The moment that `text` says, as a `timestamp with time zone`; UTC where it names no zone.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn time(text: &str) -> Result<Self, String> {
        let wrong = "expected a time, as in '2026-11-21 20:00:00+00'";
        parse::timestamp_tz(text).map(Self::Time).map_err(|_| wrong.to_owned())
    }

    fn is_before(self, committed: &Committed) -> bool {
        match self {
            Self::Time(time) => committed.time_us > time,
            Self::Commit(commit) => committed.commit > commit,
            Self::End => false,
        }
    }

    /// # Errors
    /// [`StorageError::PointInTime`] for a moment before the backup.
    pub(super) fn check(self, backup_manifest: &BackupManifest) -> Result<()> {
        let is_before = match self {
            Self::Time(time) => time < backup_manifest.made_at_us,
            Self::Commit(commit) => commit < backup_manifest.commit,
            Self::End => false,
        };
        if !is_before {
            return Ok(());
        }
        let (commit, made_at) = (backup_manifest.commit, moment(backup_manifest.made_at_us));
        Err(unreachable(format!(
            "the backup has commit {commit} of {made_at} already; use an older backup"
        )))
    }
}

/// Redoes, in `database`, what the log that `wanted` names has behind the backup; segments made by it get numbers from
/// `segment_first` on.
///
/// # Errors
/// [`StorageError::PointInTime`] for what no log has; [`StorageError::Log`]; those of the device.
pub(super) async fn replay(
    database: &Arc<Engine>,
    backup_manifest: &BackupManifest,
    wanted: &PointInTime,
    segment_first: u32,
) -> Result<Reached> {
    let identity: [u8; 16] = backup_manifest.log.as_slice().try_into().unwrap_or_default();
    let folder = wanted.archive.join(Identity(identity).to_string());
    if !folder.is_dir() {
        let archive = wanted.archive.display();
        return Err(unreachable(format!("{archive} has no log of the backup's database")));
    }
    let highest = highest_segment(&folder, backup_manifest)?;
    number_above(database, highest.max(segment_first)).await?;
    let mut reader = LogReader::open(&folder, Lsn(backup_manifest.log_position))?;
    let mut redo = Redo::new(database, &folder);
    let settings = Arc::new(Settings::default());
    let mut reached = Reached {
        commit: backup_manifest.commit,
        at: moment(backup_manifest.made_at_us),
        count: 0,
        is_end: false,
        log_end: backup_manifest.log_position,
    };
    loop {
        let Some(logged) = reader.next_record()? else {
            reached.is_end = true;
            break;
        };
        let (payload, is_note) = match logged.record {
            Record::Commit { payload, .. } => (payload, false),
            Record::Note { payload } => (payload, true),
            Record::Checkpoint { .. } => continue,
        };
        let mut committed = redo.decode(&payload, logged.at)?;
        if wanted.until.is_before(&committed) {
            break;
        }
        if !is_note && committed.is_of_sequences() {
            redo.push(committed, logged.at).await?;
            continue;
        }
        let known = database.catalog().upkeep.unlogged_commit;
        if is_note && committed.commit <= known {
            continue;
        }
        if committed.is_missing || committed.unlogged != known {
            return Err(missing(&committed, &reached));
        }
        let (number, at) = (committed.commit, moment(committed.time_us));
        if is_note || committed.replaced.is_some() {
            redo.finish().await?;
        }
        if let Some(replaced) = &committed.replaced {
            change::apply(database, &folder, number, replaced).await?;
        } else if is_note {
            // All before it is in pages then.
            let mut edit = CatalogEdit::begin(database).await?;
            edit.next.commit = number.max(edit.next.commit);
            edit.next.upkeep.unlogged_commit = number;
            let mut gathered = Gathered::behind(database.live());
            let pushed = gathered.push(committed).and_then(|()| gathered.changes());
            for change in pushed.map_err(|reason| redo.damaged(logged.at, &reason))? {
                edit = apply(edit, &settings, &change).await?;
            }
            database.commit(Changes::logged(edit)).await?;
        } else {
            let versions = committed.take_versions();
            let versions = versions.map_err(|reason| redo.damaged(logged.at, &reason))?;
            if !versions.is_empty() {
                redo.finish().await?;
                if !page_copies::apply(database, &folder, logged.at.0, &versions).await? {
                    return Err(without_pages(number, &reached));
                }
            }
            redo.push(committed, logged.at).await?;
        }
        if database.logged_count() >= FLUSHED_AT_ONCE {
            redo.finish().await?;
            database.checkpoint().await?;
        }
        (reached.commit, reached.at) = (number, at);
        reached.count += 1;
    }
    redo.finish().await?;
    reached.log_end = reader.position().0;
    let mut edit = CatalogEdit::begin(database).await?;
    // Numbers go on behind those of the log.
    edit.next.commit = reached.commit.max(edit.next.commit);
    database.commit(Changes::checkpoint(edit)).await?;
    Ok(reached)
}

/// The id after all segments that the log in `folder` names behind the backup; 0: it names none.
fn highest_segment(folder: &Path, backup_manifest: &BackupManifest) -> Result<u32> {
    let mut reader = LogReader::open(folder, Lsn(backup_manifest.log_position))?;
    let mut highest = 0;
    while let Some(logged) = reader.next_record()? {
        let Record::Note { payload } = logged.record else { continue };
        // An invalid record is reported when it is redone.
        let replaced = Committed::decode(payload.as_slice()).ok().and_then(|note| note.replaced);
        highest = highest.max(replaced.map_or(0, |replaced| replaced.next_segment));
    }
    Ok(highest)
}

/// Gives no segment of `database` an id below `next`.
async fn number_above(database: &Arc<Engine>, next: u32) -> Result<()> {
    let mut edit = CatalogEdit::begin(database).await?;
    edit.next.next_segment = edit.next.next_segment.max(next);
    edit.next.commit = database.catalog().commit;
    database.commit(Changes::logged(edit)).await.map(drop)
}

/// What to do where the log lacks a commit.
fn missing(committed: &Committed, reached: &Reached) -> cleave_catalog::error::Error {
    let Reached { commit, at, .. } = reached;
    let (unlogged, when) = match committed.is_missing {
        true => (committed.commit, format!("of {}", moment(committed.time_us))),
        false => (committed.unlogged, format!("from before {}", moment(committed.time_us))),
    };
    unreachable(format!(
        "commit {unlogged} {when} is not in the archive (a bulk load, a definition of a table or index, or one that \
            was \
         large, which could not be copied there); use a backup that was made after it, or restore up to commit \
            {commit} of {at}"
    ))
}

/// What to do where pages of a commit were not copied.
fn without_pages(number: u64, reached: &Reached) -> cleave_catalog::error::Error {
    let Reached { commit, at, .. } = reached;
    unreachable(format!(
        "the pages that commit {number} has written are not in the archive (the device or the archive was lost before \
            they were copied; with update_logging = extended no such commit is acknowledged); use a backup that was \
            made after it, or restore up to commit {commit} of {at}"
    ))
}

fn unreachable(reason: String) -> cleave_catalog::error::Error {
    StorageError::PointInTime { reason }.into()
}
