//! The files of the folder: the root, and the directories of sealed segments that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CheckReport, Fault, Place};
use crate::catalog::CatalogState;
use crate::catalog::root::{self, PartFault};
use crate::database::{Database, OpenOptions};
use crate::engine::{blocking, joined};
use crate::error::{Error, Result};
use crate::statistics;
use crate::storage_error::StorageError;

/// Opens the database in `directory` as far as its files are sound, and notes where they are not; None where the
/// root itself is not.
///
/// # Errors
/// What keeps any check from beginning.
pub(super) async fn open(
    directory: &Path,
    options: OpenOptions,
    report: &mut CheckReport,
) -> Result<Option<Arc<Database>>> {
    match Database::look(directory, options.create(false)).await {
        Ok((database, faults)) => {
            report.counts.files = database.catalog().files.len() as u64;
            faults.into_iter().for_each(|fault| note(fault, report));
            Ok(Some(database))
        }
        Err(Error::Storage(error)) => match &*error {
            StorageError::Damaged { path, reason } => {
                let place = Place { file: Some(path.clone()), ..Place::default() };
                report.findings.add(place, Fault::File(reason.clone()));
                Ok(None)
            }
            _ => Err(Error::Storage(error)),
        },
        Err(error) => Err(error),
    }
}

/// Reads the files that `state`, one of an open database's, names again.
pub(super) async fn verify(database: &Database, state: &CatalogState, report: &mut CheckReport) {
    for (segment, file) in &state.files {
        let (segment, file, directory) = (*segment, *file, database.directory().to_owned());
        let read = move || root::verify_segment(&directory, segment, file);
        let outcome = joined(blocking(read).await).flatten();
        // Files of segments that a commit left go with it, while this state is still held.
        if !database.catalog().files.contains_key(&segment) {
            continue;
        }
        report.counts.files += 1;
        if let Err(error) = outcome {
            note(PartFault { table: None, segment: Some(segment), error }, report);
        }
    }
}

/// Reads the files of statistics again.
pub(super) fn check_statistics(state: &CatalogState, directory: &Path, report: &mut CheckReport) {
    let (count, faults) = statistics::verify(directory, state);
    report.counts.statistics = count;
    for (table, error) in faults {
        let (file, reason) = told(&error);
        let place = Place { file, table: Some(table), ..Place::default() };
        report.findings.add(place, Fault::Statistics(reason));
    }
}

fn note(fault: PartFault, report: &mut CheckReport) {
    let PartFault { table, segment, error } = fault;
    let (file, reason) = told(&error);
    report.findings.add(Place { file, table, segment, ..Place::default() }, Fault::File(reason));
}

/// The file that is at fault, and why.
fn told(error: &Error) -> (Option<PathBuf>, String) {
    match error {
        Error::Storage(error) => match &**error {
            StorageError::Damaged { path, reason } => (Some(path.clone()), reason.clone()),
            other => (None, other.to_string()),
        },
        other => (None, other.to_string()),
    }
}

#[cfg(test)]
mod tests;
