//! ALTER SYSTEM, CHECKPOINT, and SHOW of settings of the database.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cleave_catalog::catalog::autovacuum::Autovacuum;
use cleave_catalog::catalog::rebalance::Rebalance;
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::tasks;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Changes;
use cleave_fragment::progress::Progress;
use cleave_replica::archive;
use cleave_replica::log_replica;
use cleave_sql::copy::database_files::check_of_no_database;
use cleave_sql::statement::parse::SystemStatement;

use crate::database::Database;

const ARCHIVE_DIRECTORY: &str = "archive_directory";
const ARCHIVE_STATUS: &str = "archive_status";
const LOG_COPY: &str = "log_replica";
const LOG_COPY_STATUS: &str = "log_replica_status";
const VERSION_RETENTION: &str = "version_retention";
/// A month.
const RETENTION_S_MAX: u32 = 31 * 86_400;

/// Runs a statement about the database as a whole, which `progress` counts.
pub(super) async fn run(
    database: &Arc<Database>,
    statement: SystemStatement,
    progress: Progress,
) -> Result<()> {
    match statement {
        SystemStatement::Alter { name, value } => alter(database, &name, value).await,
        SystemStatement::Backup { target } => {
            let (path, own) = (target.clone(), database.directory().to_owned());
            tasks::joined(tasks::blocking(move || check_of_no_database(&path, &own)).await)??;
            database.backup_counted(&target, progress).await.map(drop)
        }
    }
}

/// Runs ALTER SYSTEM SET and RESET of a setting of the database, which is stored in its manifest.
async fn alter(database: &Arc<Database>, name: &str, value: Option<String>) -> Result<()> {
    if name.eq_ignore_ascii_case(VERSION_RETENTION) {
        return set_version_retention(database, value).await;
    }
    if Autovacuum::NAMES.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        let mut edit = CatalogEdit::begin(database).await?;
        edit.next.upkeep.autovacuum.set(name, value.as_deref())?;
        database.commit(Changes::settings(edit)).await?;
        return Ok(());
    }
    if Rebalance::NAMES.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        let mut edit = CatalogEdit::begin(database).await?;
        edit.next.upkeep.rebalance.set(name, value.as_deref())?;
        database.commit(Changes::settings(edit)).await?;
        return Ok(());
    }
    if name.eq_ignore_ascii_case(LOG_COPY) {
        let value = value.unwrap_or_default();
        let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        Box::pin(database.replication.replicas.set(database, &names)).await?;
        return Ok(());
    }
    if !name.eq_ignore_ascii_case(ARCHIVE_DIRECTORY) {
        let names = [ARCHIVE_DIRECTORY, LOG_COPY, VERSION_RETENTION];
        let names = names.into_iter().chain(Autovacuum::NAMES).chain(Rebalance::NAMES);
        return Err(Error::unknown(NameKind::Setting, name, names));
    }
    let directory = value.filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = directory.as_ref().filter(|path| !path.is_absolute() || !path.is_dir()) {
        return Err(Error::SettingValue {
            name: ARCHIVE_DIRECTORY,
            value: path.display().to_string(),
            expected: "the whole path of a folder that is there".to_owned(),
        });
    }
    let mut edit = CatalogEdit::begin(database).await?;
    edit.next.upkeep.archive_directory = directory;
    let state = database.commit(Changes::settings(edit)).await?.state;
    if let Some(log) = database.log() {
        archive::start(log, &state);
    }
    Ok(())
}

async fn set_version_retention(database: &Arc<Database>, value: Option<String>) -> Result<()> {
    let value = value.unwrap_or_else(|| "0".to_owned());
    let seconds = value.parse().ok().filter(|seconds| *seconds <= RETENTION_S_MAX);
    let Some(seconds) = seconds else {
        return Err(Error::SettingValue {
            name: VERSION_RETENTION,
            value,
            expected: format!("a whole number of seconds from 0 to {RETENTION_S_MAX}"),
        });
    };
    let mut edit = CatalogEdit::begin(database).await?;
    edit.next.upkeep.version_retention_s = seconds;
    database.commit(Changes::settings(edit)).await?;
    Ok(())
}

/// Runs CHECKPOINT: writes a manifest with all that was committed, and completes the archive of the log.
pub(super) async fn checkpoint(database: &Arc<Database>) -> Result<()> {
    let edit = CatalogEdit::begin(database).await?;
    database.commit(Changes::checkpoint(edit)).await?;
    database.replication.replicas.end_what_answers(database).await;
    if let Some(log) = database.log() {
        let archived = log.archive();
        database.replication.archive.note(archived.as_ref().err());
        archived?;
    }
    Ok(())
}

/// SHOW of a setting of the database, in a session that has seen the log up to `seen_log`; None: there is no such
/// setting.
pub(super) fn show(database: &Database, seen_log: &AtomicU64, name: &str) -> Option<String> {
    if name.eq_ignore_ascii_case(ARCHIVE_STATUS) {
        return Some(database.replication.archive.status(database));
    }
    if name.eq_ignore_ascii_case(LOG_COPY_STATUS) {
        // It says nothing about commits, and is available while no log replica accepts them.
        seen_log.store(0, Ordering::Relaxed);
        return Some(database.replication.replicas.status(database));
    }
    let state = database.catalog();
    if name.eq_ignore_ascii_case(LOG_COPY) {
        return Some(log_replica::shown(&state));
    }
    if name.eq_ignore_ascii_case(VERSION_RETENTION) {
        return Some(state.upkeep.version_retention_s.to_string());
    }
    if let Some(shown) = state.upkeep.autovacuum.show(name) {
        return Some(shown);
    }
    if let Some(shown) = state.upkeep.rebalance.show(name) {
        return Some(shown);
    }
    let directory = state.upkeep.archive_directory.as_ref();
    name.eq_ignore_ascii_case(ARCHIVE_DIRECTORY)
        .then(|| directory.map(|path| path.display().to_string()).unwrap_or_default())
}
