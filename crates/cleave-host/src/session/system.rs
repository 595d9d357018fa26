//! ALTER SYSTEM, and what else is the database's as a whole: CHECKPOINT, and SHOW of those settings.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::{Outcome, Session};
use crate::archive;
use crate::catalog::autovacuum::Autovacuum;
use crate::error::{Error, NameKind, Result};
use crate::log_copy;
use crate::statement::parse::SystemStatement;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;

const ARCHIVE_DIRECTORY: &str = "archive_directory";
const ARCHIVE_STATUS: &str = "archive_status";
const LOG_COPY: &str = "log_copy";
const LOG_COPY_STATUS: &str = "log_copy_status";
const VERSION_RETENTION: &str = "version_retention";
/// A month.
const RETENTION_S_MAX: u32 = 31 * 86_400;

impl Session {
    /// Runs a statement about the database as a whole.
    pub(super) async fn run_system(&mut self, statement: SystemStatement) -> Result<Outcome> {
        match statement {
            SystemStatement::Alter { name, value } => self.alter_system(&name, value).await,
            SystemStatement::Backup { target } => {
                self.database.backup(&target).await?;
                Ok(Outcome::done("BACKUP"))
            }
        }
    }

    /// Runs ALTER SYSTEM SET and RESET: a setting of the database, which its root keeps.
    async fn alter_system(&mut self, name: &str, value: Option<String>) -> Result<Outcome> {
        if name.eq_ignore_ascii_case(VERSION_RETENTION) {
            return self.set_version_retention(value).await;
        }
        if Autovacuum::NAMES.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            let mut edit = CatalogEdit::begin(&self.database).await?;
            edit.next.upkeep.autovacuum.set(name, value.as_deref())?;
            self.database.commit(Changes::settings(edit)).await?;
            return Ok(Outcome::done("ALTER SYSTEM"));
        }
        if name.eq_ignore_ascii_case(LOG_COPY) {
            let value = value.unwrap_or_default();
            let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
            let names: Vec<String> = names.map(str::to_owned).collect();
            Box::pin(self.database.replication.copies.set(&self.database, &names)).await?;
            return Ok(Outcome::done("ALTER SYSTEM"));
        }
        if !name.eq_ignore_ascii_case(ARCHIVE_DIRECTORY) {
            let names = [ARCHIVE_DIRECTORY, LOG_COPY, VERSION_RETENTION];
            let names = names.into_iter().chain(Autovacuum::NAMES);
            return Err(Error::unknown(NameKind::Setting, name, names));
        }
        let directory = value.filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = directory.as_ref().filter(|path| !path.is_absolute() || !path.is_dir())
        {
            return Err(Error::SettingValue {
                name: ARCHIVE_DIRECTORY,
                value: path.display().to_string(),
                expected: "the whole path of a folder that is there".to_owned(),
            });
        }
        let mut edit = CatalogEdit::begin(&self.database).await?;
        edit.next.upkeep.archive_directory = directory;
        let state = self.database.commit(Changes::settings(edit)).await?.state;
        if let Some(log) = self.database.log() {
            archive::start(log, &state);
        }
        Ok(Outcome::done("ALTER SYSTEM"))
    }

    async fn set_version_retention(&mut self, value: Option<String>) -> Result<Outcome> {
        let value = value.unwrap_or_else(|| "0".to_owned());
        let seconds = value.parse().ok().filter(|seconds| *seconds <= RETENTION_S_MAX);
        let Some(seconds) = seconds else {
            return Err(Error::SettingValue {
                name: VERSION_RETENTION,
                value,
                expected: format!("a whole number of seconds from 0 to {RETENTION_S_MAX}"),
            });
        };
        let mut edit = CatalogEdit::begin(&self.database).await?;
        edit.next.upkeep.version_retention_s = seconds;
        self.database.commit(Changes::settings(edit)).await?;
        Ok(Outcome::done("ALTER SYSTEM"))
    }

    /// Runs CHECKPOINT: a root that has all that was committed, and an archive that has all of the log.
    pub(super) async fn checkpoint(&mut self) -> Result<Outcome> {
        let edit = CatalogEdit::begin(&self.database).await?;
        self.database.commit(Changes::checkpoint(edit)).await?;
        self.database.replication.copies.end_what_answers(&self.database).await;
        if let Some(log) = self.database.log() {
            let archived = log.archive();
            self.database.replication.archive.note(archived.as_ref().err());
            archived?;
        }
        Ok(Outcome::done("CHECKPOINT"))
    }

    /// What SHOW says of a setting of the database; None: it is none.
    pub(super) fn show_system(&self, name: &str) -> Option<String> {
        if name.eq_ignore_ascii_case(ARCHIVE_STATUS) {
            return Some(self.database.replication.archive.status(&self.database));
        }
        if name.eq_ignore_ascii_case(LOG_COPY_STATUS) {
            // It tells nothing of commits, and is to be had while no copy takes them.
            self.seen_log.store(0, Ordering::Relaxed);
            return Some(self.database.replication.copies.status(&self.database));
        }
        let state = self.database.catalog();
        if name.eq_ignore_ascii_case(LOG_COPY) {
            return Some(log_copy::shown(&state));
        }
        if name.eq_ignore_ascii_case(VERSION_RETENTION) {
            return Some(state.upkeep.version_retention_s.to_string());
        }
        if let Some(shown) = state.upkeep.autovacuum.show(name) {
            return Some(shown);
        }
        let directory = state.upkeep.archive_directory.as_ref();
        name.eq_ignore_ascii_case(ARCHIVE_DIRECTORY)
            .then(|| directory.map(|path| path.display().to_string()).unwrap_or_default())
    }
}
