//! Checks the files of the folder: the manifest, and the directories of sealed segments that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::catalog::damage::{DamagedIndex, DamagedTable};
use cleave_catalog::catalog::manifest;
use cleave_catalog::catalog::manifest::TableFault;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_catalog::storage_error::{SegmentFault, StorageError};
use cleave_catalog::tasks::{blocking, joined};
use cleave_engine::statistics;
use cleave_engine::storage_engine::{Engine, OpenOptions};
use cleave_store::SegmentId;

use super::{CheckReport, Fault, Place};
use crate::backup::check_restored;

/// Opens the database in `directory` as far as its files are sound, and notes where they are not; None where the
/// manifest itself is not.
///
/// # Errors
/// The errors that keep any check from beginning.
pub(super) async fn open(
    directory: &Path,
    options: OpenOptions,
    report: &mut CheckReport,
) -> Result<Option<Arc<Engine>>> {
    check_restored(directory)?;
    match Engine::look(directory, options.create(false)).await {
        Ok((database, faults)) => {
            let state = database.catalog();
            report.counts.files = state.files.len() as u64;
            for TableFault { table, error } in faults {
                let (file, reason) = told(&error);
                report.findings.add(Place { file, table, ..Place::default() }, Fault::File(reason));
            }
            for (table, index, fault) in state.segment_faults() {
                note(Some(table), index, fault, report);
            }
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
pub(super) async fn verify(database: &Engine, state: &CatalogState, report: &mut CheckReport) {
    for (segment, file) in &state.files {
        let (segment, file) = (*segment, file.clone());
        let directory = database.directory().to_owned();
        let read = move || manifest::verify_segment(&directory, segment, &file);
        let outcome = joined(blocking(read).await);
        // A commit removes files of segments that it left, while this catalog version is still held.
        if !database.catalog().files.contains_key(&segment) {
            continue;
        }
        report.counts.files += 1;
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                let (table, index) = owner(state, segment);
                note(table.as_deref(), index.as_deref(), &fault, report);
            }
            Err(error) => {
                let place = Place { segment: Some(segment), ..Place::default() };
                report.findings.add(place, Fault::File(error.to_string()));
            }
        }
    }
}

/// The table that `segment` belongs to, and the index where it is one's.
fn owner(state: &CatalogState, segment: SegmentId) -> (Option<String>, Option<String>) {
    let name = |table: &TableState| Some(table.schema.name.clone());
    for table in state.tables() {
        for tablet in &table.tablets {
            if tablet.segment(segment).is_some() {
                return (name(table), None);
            }
            let has = |index: &&Arc<TabletIndex>| index.runs().any(|run| run.segment == segment);
            if let Some(index) = tablet.indexes.iter().find(has) {
                return (name(table), Some(index.definition().name.clone()));
            }
        }
        let has = |index: &&Arc<DamagedIndex>| index.segments().any(|found| found == segment);
        if let Some(index) = table.damaged.iter().find(has) {
            return (name(table), Some(index.definition.name.clone()));
        }
    }
    let has = |table: &&Arc<DamagedTable>| table.segments().any(|found| found == segment);
    let damaged = state.damaged_tables().find(has);
    (damaged.map(|table| table.schema.name.clone()), None)
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

fn note(table: Option<&str>, index: Option<&str>, fault: &SegmentFault, report: &mut CheckReport) {
    let place = Place {
        file: Some(fault.path.clone()),
        table: table.map(str::to_owned),
        index: index.map(str::to_owned),
        segment: Some(fault.segment),
        ..Place::default()
    };
    report.findings.add(place, Fault::File(fault.reason.clone()));
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
