//! The commit path: changes in, a catalog version that new statements see out. Nothing becomes visible in another way.
//!
//! ```text
//!                  1 lock          2 validate         3 log              4 apply           5 publish
//!  Rows, few ────▶ writer lock ──▶ rows are there, ─▶ record appended ─▶ delta ──────────▶ number of the last commit
//!                                  keys are not
//!  Page versions ▶ writer lock ─▶ rows are there ────▶ record appended ─▶ pages replaced ─▶ catalog version
//!  Rows, many ─┐
//!  Edit ───────┼─▶ CatalogEdit ──▶ as its pages ────▶ pages and log ───▶ manifest replaced ──▶ catalog version
//!  Settings ───┤   ::begin         are written        durable
//!  Checkpoint ─┘
//!  Redone ───────▶ (recovery)  ──▶ (was validated) ─▶ (is there) ──────▶ delta ──────────▶ number of the last commit
//!  Logged ───────▶ CatalogEdit ──▶ (was validated) ─▶ (is there) ──────▶ pages ──────────▶ catalog version
//!  flush ────────▶ writer lock ──▶ (was validated) ─▶ (is there) ──────▶ delta to pages ─▶ version with the same rows
//! ```
//!
//! 1. *Lock.* [`Engine::writer_lock`]: one writer at a time. A change that needs a catalog version of its own takes it
//!    in [`CatalogEdit::begin`], and holds it while pages are written.
//! 2. *Validate.* [`validate`]: deleted rows are alive, new unique keys are absent, and the pages of the new rows have
//!    room. The session has checked the same under locks of rows and keys, so only what these locks do not protect is
//!    checked again. An edit is checked while [`apply`] writes its pages.
//! 3. *Log.* [`small`]: one record, appended; from here on the commit counts once the log is durable. [`manifest`]:
//!    pages and the log so far are made durable; the edit itself follows into the log behind its manifest, for readers
//!    of an archive or a replica.
//! 4. *Apply.* [`small`]: the record's rows enter the [delta](crate::delta). [`manifest`]: the manifest is replaced,
//!    and that is the commit.
//! 5. *Publish.* [`publish`]: new statements see it. Space that the previous version named and this one does not is
//!    retired.
//!
//! The committing session then waits until the log is durable up to [`Published::log_end`], here and in its replicas
//! ([`Engine::harden`]), and only then acknowledges. So does a reader that has seen the commit (rule 27).
//!
//! [`Engine::commit`] is the only entry, with one variant of [`Changes`] for each caller: a session's transaction with
//! [`Changes::Rows`], with the tables that it has defined where it has any; a load, an index build and vacuum with
//! [`Changes::Edit`] or, where the visible rows stay the same, [`Changes::Checkpoint`]; devices, log replicas and ALTER
//! SYSTEM with [`Changes::Settings`]; recovery with [`Changes::Redone`]; a restore from an archive with
//! [`Changes::Logged`]. [`flush`] makes nothing new visible: it enters at step 4.
//!
//! Invariants: what is visible is in the log or in the manifest; steps 3 to 5 of a small commit wait for nothing, so
//! that cancelling a statement never cuts one in two; steps 4 and 5 of one with a manifest run to their end on a thread
//! of their own. A catalog version and its delta are replaced together, and only here. Source: rules 25 and 27,
//! `docs/design/versions-and-commit.md` and `docs/design/delta-and-snapshots.md`.

pub(super) mod flush;
mod harden;
mod manifest;
mod page_versions;
mod publish;
mod redo;
mod small;
pub mod validate;

use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_media::simulation;
use cleave_txn::Tracked;
use futures::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, TryLockError};

pub use self::page_versions::RedonePages;
pub use self::redo::Redone;
use super::Engine;
use super::catalog_edit::CatalogEdit;
use crate::write::insert::TableChange;
#[cfg(doc)]
use crate::write::insert::apply;
use crate::write::page_versions::TableVersions;

/// What is to be committed, by kind of caller.
pub enum Changes<'a> {
    /// Rows that a transaction changes, and tables that it has defined: by the log where that goes, else with a
    /// manifest.
    Rows(RowChanges<'a>),
    /// Rows or tables, whose pages are written: with a manifest.
    Edit(Box<CatalogEdit>),
    /// Settings of the database, devices among them, and neither rows nor tables: with a manifest.
    Settings(Box<CatalogEdit>),
    /// Nothing that the log lacks: a manifest that has all that was logged.
    Checkpoint(Box<CatalogEdit>),
    /// A commit of a log that is redone, on pages: without a manifest.
    Logged(Box<CatalogEdit>),
    /// Small commits of the log that are redone.
    Redone(Redone<'a>),
    /// Page versions of the log that are redone.
    RedonePages(RedonePages),
}

/// What one transaction changes.
pub struct RowChanges<'a> {
    /// By table, of those that it has not defined.
    pub changes: &'a [&'a TableChange],
    /// [How often](Engine::rewritten_count) commits that were not small had changed rows when the first of these were
    /// checked.
    pub checked: u64,
    /// Of level SERIALIZABLE.
    pub tracked: Option<&'a Tracked>,
    /// Tables that it has defined; with any but page versions, the commit has a manifest.
    pub defined: Option<&'a dyn Defines>,
    /// Those of the session, for pages that are written.
    pub settings: &'a Settings,
}

/// Tables that a transaction has defined, and puts in place whole as it commits.
pub trait Defines: Sync {
    /// Whether it gives space back of what `state` has.
    fn makes_room(&self, state: &CatalogState) -> bool;

    /// Its page versions by table, if it has defined nothing else. They are durable on their devices.
    fn page_versions(&self) -> Option<Vec<(u32, &TableVersions)>>;

    /// Makes it part of what `edit` commits.
    ///
    /// # Errors
    /// A name that was taken meanwhile.
    fn install(&self, edit: &mut CatalogEdit) -> Result<()>;
}

/// What new statements see from now on.
#[derive(Debug)]
pub struct Published {
    /// What is in pages.
    pub state: Arc<CatalogState>,
    /// The end of the log that must be durable before the commit is acknowledged.
    pub log_end: u64,
}

impl Changes<'_> {
    /// See [`Changes::Edit`].
    pub fn edit(edit: CatalogEdit) -> Self {
        Self::Edit(Box::new(edit))
    }

    /// See [`Changes::Settings`].
    pub fn settings(edit: CatalogEdit) -> Self {
        Self::Settings(Box::new(edit))
    }

    /// See [`Changes::Checkpoint`].
    pub fn checkpoint(edit: CatalogEdit) -> Self {
        Self::Checkpoint(Box::new(edit))
    }

    /// See [`Changes::Logged`].
    pub fn logged(edit: CatalogEdit) -> Self {
        Self::Logged(Box::new(edit))
    }
}

impl Engine {
    /// Commits `changes`, all or none. See the module's description.
    ///
    /// # Errors
    /// Whatever made the commit fail: nothing of it is left then, except after
    /// [`StorageError::Stopped`](cleave_catalog::storage_error::StorageError::Stopped), when only the next incarnation
    /// shows whether they are there. [`Error::Conflict`] and [`Error::DuplicateKey`] of rows that others have changed
    /// meanwhile.
    pub fn commit<'a>(
        self: &'a Arc<Self>,
        changes: Changes<'a>,
    ) -> BoxFuture<'a, Result<Published>> {
        Box::pin(async move {
            let act = match &changes {
                Changes::Rows(_) | Changes::Edit(_) => Some(Act::Commit),
                Changes::Checkpoint(_) => Some(Act::Checkpoint),
                Changes::Settings(_) | Changes::Logged(_) => None,
                Changes::Redone(_) | Changes::RedonePages(_) => None,
            };
            let published = match changes {
                // The futures of the others are large: only they allocate them.
                Changes::Rows(rows) => small::commit(self, rows).await,
                Changes::Edit(edit) => Box::pin(manifest::commit(*edit)).await,
                Changes::Settings(edit) => Box::pin(manifest::settings(*edit)).await,
                Changes::Checkpoint(edit) => Box::pin(manifest::checkpoint(*edit)).await,
                Changes::Logged(edit) => {
                    let log_end = edit.next.log_end;
                    let (state, lock) = publish::edit(*edit, 0, log_end);
                    drop(lock);
                    Ok(Published { state, log_end })
                }
                Changes::Redone(redone) => Box::pin(redo::commit(self, redone)).await,
                Changes::RedonePages(redone) => Box::pin(page_versions::redo(self, redone)).await,
            };
            if let (Some(act), Ok(_)) = (act, &published) {
                self.activity().note(act);
            }
            published
        })
    }

    /// Waits until no other statement writes: step 1.
    pub async fn writer_lock(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.writer).lock_owned().await
    }

    /// The same, if nobody else has it.
    pub(super) fn try_writer_lock(&self) -> Result<OwnedMutexGuard<()>, TryLockError> {
        Arc::clone(&self.writer).try_lock_owned()
    }
}

/// A step of the protocol, at which a simulation may let the commit fail or cut the host's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The writer lock is held, and nothing is done yet.
    Lock,
    /// The changes fit what is committed.
    Validate,
    /// Before anything is in the log, or durable for this commit.
    Log,
    /// The log has it, and it is to enter the delta; or all is durable, and the manifest is to be replaced.
    Apply,
    /// It is committed, and not visible yet.
    Publish,
    /// New statements see it, and it is not acknowledged.
    Told,
}

impl Step {
    /// Its name in a simulation.
    fn name(self) -> &'static str {
        match self {
            Self::Lock => "commit: lock",
            Self::Validate => "commit: validate",
            Self::Log => "commit: log",
            Self::Apply => "commit: apply",
            Self::Publish => "commit: publish",
            Self::Told => "commit: told",
        }
    }

    /// Begins it, where it may fail.
    ///
    /// # Errors
    /// A fault that a simulation injects.
    pub(super) fn enter(self) -> Result<()> {
        simulation::step(self.name())
            .map_err(|error| Error::io("enter", self.name().as_ref(), error))
    }

    /// Begins it, where nothing can fail any more: a simulation may cut the host's power.
    pub(super) fn pass(self) {
        drop(simulation::step(self.name()));
    }
}

#[cfg(test)]
mod tests;
