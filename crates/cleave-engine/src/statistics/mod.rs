//! The results of ANALYZE for every table: kept in memory for the planner, and in a file for each table.
//!
//! 1. ANALYZE, which the query layer runs, makes [`TableStatistics`] of a sketch
//!    ([`table_sketch`](cleave_fragment::functions::table_sketch())).
//! 2. [`StatisticsStore`] puts them into `statistics/<table id>`, by writing a new file and renaming it, and hands them
//!    to the planner. [`stored`] is the format of the file.
//!
//! Statistics are estimates and no part of a commit: the manifest does not name them, a file that is missing or damaged
//! loses them and nothing else, and a transaction never waits for one. `check` reports a damaged file.
//!
//! Invariant: the file of a dropped table is deleted with it, at the latest when the database opens again.

mod stored;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cleave_media::files;
use cleave_plan::{JoinedSamples, TableStatistics};
use cleave_store::TableSchema;

pub use stored::{FORMAT, decode_message};

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;

const FOLDER: &str = "statistics";

/// The statistics of a database.
#[derive(Debug)]
pub struct StatisticsStore {
    folder: PathBuf,
    known: RwLock<BTreeMap<u32, Arc<TableStatistics>>>,
    /// Held while files change.
    turn: Mutex<()>,
    /// The cache of joined samples.
    joined: JoinedSamples,
}

impl StatisticsStore {
    /// Those that lie in `directory` for the tables of `state`, as far as they can be read.
    pub fn open(directory: &Path, state: &CatalogState) -> Self {
        let folder = directory.join(FOLDER);
        let mut known = BTreeMap::new();
        for table in state.tables() {
            let schema = &table.schema;
            if let Ok(Some(statistics)) = read(&folder, schema) {
                known.insert(schema.table_id, Arc::new(statistics));
            }
        }
        Self {
            folder,
            known: RwLock::new(known),
            turn: Mutex::default(),
            joined: JoinedSamples::default(),
        }
    }

    /// Those of the table `table_id`.
    pub fn get(&self, table_id: u32) -> Option<Arc<TableStatistics>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&table_id).map(Arc::clone)
    }

    /// The cache of joined samples.
    pub fn joined(&self) -> &JoinedSamples {
        &self.joined
    }

    /// Keeps `statistics`, unless `is_there` says that the table is gone. `change` gets the old ones.
    ///
    /// # Errors
    /// [`Error::Io`]; what was known before stays.
    pub fn put(
        &self,
        schema: &TableSchema,
        is_there: impl FnOnce() -> bool,
        change: impl FnOnce(Option<&TableStatistics>) -> TableStatistics,
    ) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_there() {
            return Ok(());
        }
        let table_id = schema.table_id;
        let statistics = change(self.get(table_id).as_deref());
        if !self.folder.is_dir() {
            files::create_directories(&self.folder).map_err(io("create", &self.folder))?;
            let above = self.folder.parent().unwrap_or(&self.folder);
            files::sync_directory(above).map_err(io("sync", above))?;
        }
        let (path, new) = (self.path(table_id), self.folder.join(format!("{table_id}.new")));
        let bytes = stored::encode(table_id, &statistics);
        files::write_durably(&new, &bytes).map_err(io("write", &new))?;
        files::rename(&new, &path).map_err(io("rename", &new))?;
        // Known from here on: whichever file a crash leaves is one of the two.
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(table_id, Arc::new(statistics));
        drop(known);
        files::sync_directory(&self.folder).map_err(io("sync", &self.folder))
    }

    /// Lets go of the statistics of tables that `state`, which is published, does not have. A file that cannot be
    /// removed is left for the next incarnation.
    pub fn retain(&self, state: &CatalogState) {
        let is_gone = |table_id: &u32| !state.has_table_id(*table_id);
        let gone: Vec<u32> = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            known.keys().copied().filter(is_gone).collect()
        };
        if gone.is_empty() {
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        for table_id in gone {
            self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&table_id);
            drop(files::remove(&self.path(table_id)));
        }
    }

    fn path(&self, table_id: u32) -> PathBuf {
        self.folder.join(table_id.to_string())
    }
}

/// Removes files of tables that `state` does not have, and those that a crash left half made.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn remove_strays(directory: &Path, state: &CatalogState) -> Result<()> {
    let folder = directory.join(FOLDER);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("read", &folder)(error)),
    };
    let mut strays = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io("read", &folder))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let (number, is_new) = match name.strip_suffix(".new") {
            Some(number) => (number, true),
            None => (name, false),
        };
        // A file whose name is no number is foreign, and stays.
        let Ok(table_id) = number.parse::<u32>() else { continue };
        if is_new || !state.has_table_id(table_id) {
            strays.push(entry.path());
        }
    }
    strays.sort();
    strays.iter().try_for_each(|path| files::remove(path).map_err(io("remove", path)))
}

/// The faults in the files of the tables of `state`: the table, and the fault.
pub fn verify(directory: &Path, state: &CatalogState) -> (u64, Vec<(String, Error)>) {
    let folder = directory.join(FOLDER);
    let (mut count, mut faults) = (0, Vec::new());
    for table in state.tables() {
        match read(&folder, &table.schema) {
            Ok(None) => {}
            Ok(Some(_)) => count += 1,
            Err(error) => faults.push((table.schema.name.clone(), error)),
        }
    }
    (count, faults)
}

/// The statistics of a table; None: it has none.
fn read(folder: &Path, schema: &TableSchema) -> Result<Option<TableStatistics>> {
    let path = folder.join(schema.table_id.to_string());
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", &path)(error)),
    };
    let damaged =
        |error: cleave_store::FrameError| StorageError::Damaged { path, reason: error.to_string() };
    stored::decode(&bytes, schema).map(Some).map_err(|error| damaged(error).into())
}

fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Error + 'a {
    move |error| Error::io(action, path, error)
}
