//! Small commits: rows in, a record of the log and rows of the delta out. Those of [page versions](page_versions) and
//! of many deleted rows do the same, and change what is in pages; larger ones replace the [manifest](super::manifest).
//!
//! Invariant: between the record and the publication nothing waits and nothing fails, so that each record in the log is
//! a visible commit, in the order of the log.

use std::sync::Arc;

use cleave_catalog::commitment;
use cleave_catalog::error::Result;
use cleave_txn::{Record, Wal};
use prost::Message;
use tokio::sync::OwnedMutexGuard;

use super::manifest::StopIfDying;
use super::validate::{check, check_dead};
use super::{Engine, Published, RowChanges, Step, flush, manifest, page_versions};
use crate::delta::Live;
use crate::device::DISK_FULL;
use crate::log::{self, Committed, LoggedVersions};

/// Commits `rows`, by the log if it takes them and no checkpoint is due.
pub(super) async fn commit(engine: &Arc<Engine>, rows: RowChanges<'_>) -> Result<Published> {
    if rows.defined.is_some() || rows.changes.iter().any(|change| change.has_many_dead()) {
        return Box::pin(page_versions::commit(engine, rows)).await;
    }
    let lock = engine.writer_lock().await;
    engine.check_running()?;
    Step::Lock.enter()?;
    let Some(log) = log_for(engine, &rows) else {
        drop(lock);
        // Its own future is large, and this one moves with each small commit.
        return Box::pin(manifest::commit_rows(engine, rows)).await;
    };
    let (lock, live) = validate(engine, lock, &rows).await?;
    let prepared = live.delta.prepare(&live.state, rows.changes)?;
    let (at, end) = append(engine, log, &live, &rows, Vec::new())?;
    // The next one would write a record that says what this one's does: its number, and its VIDs.
    let _stop = StopIfDying(Arc::clone(engine));
    let number = live.number + 1;
    Step::Apply.pass();
    live.delta.put(prepared, number, (at, end));
    Step::Publish.pass();
    engine.publish_small(number, end);
    if let Some(tracked) = rows.tracked {
        tracked.ended();
    }
    Step::Told.pass();
    drop(lock);
    Ok(Published { state: live.state, log_end: end })
}

/// The log, if a commit of `rows` may be made by it.
pub(super) fn log_for<'a>(engine: &'a Engine, rows: &RowChanges<'_>) -> Option<&'a Wal> {
    let state = engine.catalog();
    engine.log().filter(|log| {
        log::takes(&state, rows.changes) && !log::is_due(log, &state, engine.logged_count())
    })
}

/// Validates `rows` against what is committed, and takes room for their pages; returns what they follow.
pub(super) async fn validate(
    engine: &Arc<Engine>,
    mut lock: OwnedMutexGuard<()>,
    rows: &RowChanges<'_>,
) -> Result<(OwnedMutexGuard<()>, Live)> {
    // What held at a tick becomes a catalog version of its own.
    let is_due = |live: &Live| live.delta.is_full() || engine.versions.has_passed_tick(&live.state);
    if is_due(&engine.live()) {
        lock = Box::pin(flush::flush(engine, lock)).await?;
    }
    let mut is_flushed = false;
    let live = loop {
        // Also behind each flush, in which the writer lock may have been another's.
        if engine.rewritten_count() != rows.checked {
            for change in rows.changes {
                check(engine, change, change).await?;
            }
        }
        let live = engine.live();
        for change in rows.changes {
            check_dead(&live, change)?;
        }
        match live.delta.take_room(engine, &live.state, rows.changes).await {
            Ok(()) => break live,
            // Once the delta is pages, more of the room is left, and concurrent writers have given theirs back.
            Err(error) if error.sqlstate() == DISK_FULL && !is_flushed => {
                is_flushed = true;
                lock = Box::pin(flush::flush(engine, lock)).await?;
            }
            Err(error) => return Err(error),
        }
    };
    Step::Validate.enter()?;
    Ok((lock, live))
}

/// Appends the record of `rows` and `versions` to the log; returns where it begins and ends.
pub(super) fn append(
    engine: &Engine,
    log: &Wal,
    live: &Live,
    rows: &RowChanges<'_>,
    versions: Vec<LoggedVersions>,
) -> Result<(u64, u64)> {
    let committed = Committed::new(live, rows.changes)?.with_versions(live, versions)?;
    let committed = committed.encode_to_vec();
    let transaction = engine.transaction_id();
    if let Some(tracked) = rows.tracked {
        tracked.prepare(true).inspect_err(|_| live.delta.give_unused_room_back())?;
    }
    Step::Log.enter()?;
    // Where there is no space for the record nothing happened.
    let record = Record::Commit { transaction, payload: committed.as_slice() };
    let is_growing = rows.changes.iter().any(|change| !change.rows.is_empty());
    let appended = match is_growing {
        true => log.append(record),
        false => log.append_urgent(record),
    };
    let appended = appended.inspect_err(|error| {
        live.delta.give_unused_room_back();
        engine.note_log_error(error);
    })?;
    commitment::begin();
    Ok((appended.at.0, appended.end.0))
}
