//! The files of the folder: the root, and the directories of sealed segments that it names.

use std::path::Path;
use std::sync::Arc;

use super::{CheckReport, Fault, Place};
use crate::catalog::CatalogState;
use crate::catalog::root::{self, PartFault};
use crate::database::{Database, OpenOptions};
use crate::error::{Error, Result};
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
    match Database::open_sound(directory, options.create(false)).await {
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

/// Reads the files of an open database again.
pub(super) fn verify(state: &CatalogState, directory: &Path, report: &mut CheckReport) {
    report.counts.files = state.files.len() as u64;
    for (segment, file) in &state.files {
        if let Err(error) = root::verify_segment(directory, *segment, *file) {
            note(PartFault { table: None, segment: Some(*segment), error }, report);
        }
    }
}

fn note(fault: PartFault, report: &mut CheckReport) {
    let PartFault { table, segment, error } = fault;
    let (file, reason) = match &error {
        Error::Storage(error) => match &**error {
            StorageError::Damaged { path, reason } => (Some(path.clone()), reason.clone()),
            other => (None, other.to_string()),
        },
        other => (None, other.to_string()),
    };
    report.findings.add(Place { file, table, segment, ..Place::default() }, Fault::File(reason));
}
