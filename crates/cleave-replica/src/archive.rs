//! The log archive: finished log files, copied into a folder, with which a backup is brought forward to a later moment.
//!
//! ```text
//!  <archive_directory>/<identity of the log, 32 digits>/<place>.log
//! ```
//!
//! 1. `ALTER SYSTEM SET archive_directory` puts the folder into the manifest; [`start`] hands it to the log, in every
//!    incarnation too.
//! 2. A checkpoint gives up a log file only when its archived copy is synced and was read again. Where that fails the
//!    file stays, and the next checkpoint tries again; [`Archive`] keeps the reason, for `SHOW archive_status`.
//! 3. A commit that replaces the manifest is in no log. If its rows are few enough, they follow it into the log. All
//!    else, a definition or a bulk load, is [copied whole](change) beside the log, and a note of that follows, or one
//!    that it is missing ([`note`]). Every record of a commit names the last commit before it that is in no log: a
//!    reader of the records in order sees what is missing, also where a crash came before the note.
//!
//! 4. Pages that a record names are [copied](crate::page_copies) beside the log.
//!
//! Invariant: what is read from an archive is all that was committed, or it is an error that names what is missing.
//! Source: `docs/design/replica.md`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::storage_error::Identity;
use cleave_engine::delta::Live;
use cleave_engine::log::{Committed, directory_of};
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::Logged;
use cleave_engine::write::begun::Begun;
use cleave_engine::write::insert::TableChange;
use cleave_engine::write::vid_set::VidSet;
use cleave_txn::wal::segment::{list_segments, segment_path};
use cleave_txn::{LogError, Lsn, Record, Wal};
use prost::Message;

use crate::backup::change;
use crate::page_copies::PageCopies;

/// Bytes of rows and VIDs up to which those of a commit that replaces the manifest are copied into the log.
const COPY_BYTES_MAX: usize = 64 << 20;

/// The failures of archiving.
#[derive(Debug, Default)]
pub struct Archive {
    /// Why the log could not be the last time.
    failure: Mutex<Option<String>>,
    /// The last commit that is not in the archive, and why.
    uncopied: Mutex<Option<String>>,
    /// Pages that records of the log name, on their way into the archive.
    pub(crate) copies: Arc<PageCopies>,
}

impl Archive {
    /// Notes how it went.
    pub fn note(&self, failure: Option<&LogError>) {
        let failure = failure.map(ToString::to_string);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn uncopied(&self) -> Option<String> {
        self.uncopied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Copies whole the changes of the commit from `base` to `next`, if the log is archived: within the commit, when
    /// all is on the devices. A commit that cannot be copied goes on, and is missing in the archive.
    pub(crate) async fn copy_whole(
        &self,
        engine: &Arc<Engine>,
        base: &CatalogState,
        next: &CatalogState,
    ) -> Logged {
        let Some(folder) = engine.log().and_then(|log| folder(log, base)) else {
            return Logged::Nowhere;
        };
        match Box::pin(change::copy(engine, base, next, &folder)).await {
            Ok(note) => Logged::Copied(note.encode_to_vec()),
            Err(error) => {
                let failure = format!("commit {} is not in the archive: {error}", next.commit);
                *self.uncopied.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                Logged::Nowhere
            }
        }
    }

    /// How the archive stands, in words.
    pub fn status(&self, engine: &Engine) -> String {
        let state = engine.catalog();
        let Some((log, folder)) = engine.log().and_then(|log| Some((log, folder(log, &state)?)))
        else {
            return "off".to_owned();
        };
        let own = directory_of(engine.directory());
        let starts = list_segments(&own).unwrap_or_default();
        // The last one is not finished.
        let finished = starts.split_last().map_or(&[][..], |(_, finished)| finished);
        let waiting = finished.iter().filter(|start| !segment_path(&folder, **start).exists());
        let bytes = waiting.filter_map(|start| {
            std::fs::metadata(segment_path(&own, *start)).ok().map(|metadata| metadata.len())
        });
        let (count, bytes) =
            bytes.fold((0_u64, 0_u64), |(count, sum), next| (count + 1, sum + next));
        // Files archived before this incarnation are not looked for.
        let archived = match log.archived_end() {
            Lsn(0) => "nothing was copied since the database was opened to".to_owned(),
            end => format!("log up to {end} is in"),
        };
        let mut status = format!(
            "{archived} {}; {count} finished files of {bytes} bytes wait for the next checkpoint",
            folder.display()
        );
        for uncopied in [self.uncopied(), self.copies.uncopied()].into_iter().flatten() {
            status = format!("{status}; {uncopied}; a backup that is made now has it");
        }
        if let Some(failure) = self.failure() {
            status = format!("FAILED: {failure}; {status}");
        }
        status
    }
}

/// The rows of `changes`, which replace the manifest, for the log, if it needs them.
///
/// # Errors
/// Rows that cannot be encoded.
pub fn copy(live: &Live, changes: &[&TableChange]) -> cleave_catalog::error::Result<Logged> {
    let rows = changes.iter().flat_map(|change| change.rows.values());
    let bytes: usize = rows.map(Begun::byte_count).sum();
    let dead = changes.iter().flat_map(|change| change.dead.values()).map(VidSet::len);
    let bytes = bytes.saturating_add(dead.sum::<usize>().saturating_mul(size_of::<u64>()));
    if live.state.upkeep.archive_directory.is_none() || bytes > COPY_BYTES_MAX {
        return Ok(Logged::Nowhere);
    }
    Ok(Logged::Copied(Committed::new(live, changes)?.encode_to_vec()))
}

/// Logs what a commit that has replaced the manifest changed, or that the log does not have it. While no other may be
/// appended. Where there is no space for it, the next commit says that something is missing.
pub fn note(log: &Wal, state: &CatalogState, logged: &Logged) {
    let append = |payload: &[u8]| log.append(Record::Note { payload }).map(drop);
    let is_missing = match logged {
        _ if state.upkeep.archive_directory.is_none() => return,
        Logged::Unchanged => return,
        Logged::Copied(copy) => append(copy).is_err(),
        Logged::Nowhere => true,
    };
    if is_missing {
        drop(append(&Committed::missing(&state.upkeep).encode_to_vec()));
    }
    // Nothing else waits for it. Where it is lost, the next incarnation notes that the commit is missing.
    drop(log.flush());
}

/// Lets `log` archive the files that it gives up, as `state` says; when the database is opened.
pub fn start(log: &Wal, state: &CatalogState) {
    log.set_archive(folder(log, state));
    if state.upkeep.unlogged_commit > 0 {
        // A crash may have come before the note of that commit.
        note(log, state, &Logged::Nowhere);
    }
}

/// Where `log` is archived.
pub fn folder(log: &Wal, state: &CatalogState) -> Option<PathBuf> {
    let directory = state.upkeep.archive_directory.as_ref()?;
    Some(directory.join(Identity(log.identity()).to_string()))
}
