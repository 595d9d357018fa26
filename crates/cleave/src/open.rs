//! Opens a database, with its embedded device, and a session for the path that the command line names; or tells where
//! the process listens that has it open.

use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_client::Address;
use cleave_device::process_log;
use cleave_embedded::embedded_device;
use cleave_host::address_file::{Found, Listens};
use cleave_host::catalog::manifest;
use cleave_host::temporary::TemporaryFolder;
use cleave_host::{Database, OpenOptions, Session};

use crate::allocator;
use crate::arguments::{MemoryBudgets, Place};
use crate::failure::Failure;

/// Whether a missing database is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    /// It must exist.
    Never,
    /// An empty or missing folder becomes one.
    IfAbsent,
    /// The same of a [temporary folder](temporary_folder), of which nobody is told.
    Temporary,
}

/// Opens the database that the command line names, and a session with its settings.
pub(crate) async fn open(
    place: &Place,
    create: Create,
) -> Result<(Arc<Database>, Session), Failure> {
    let directory = directory(place)?;
    let is_new = !manifest::exists(directory);
    let database = open_directory(directory, create, place.memory()).await?;
    if is_new && create != Create::Temporary {
        tell(&format!("made a new database in {}", directory.display()));
    }
    for (table, index, fault) in database.catalog().segment_faults() {
        let part = index.map_or_else(|| format!("table \"{table}\""), |i| format!("index \"{i}\""));
        match process_log::has_begun() {
            true => tracing::warn!(target: "cleave", "{part} cannot be used: {fault}"),
            false => tell(&format!("warning: {part} cannot be used: {fault}")),
        }
    }
    let session = session(&database, &place.settings)?;
    Ok((database, session))
}

/// Opens the database as [`open`] does, and makes one in a missing or empty folder only if `create` asks for it: its
/// name may be mistyped.
pub(crate) async fn open_asked(
    place: &Place,
    create: bool,
) -> Result<(Arc<Database>, Session), Failure> {
    if !create {
        check_is_there(place)?;
    }
    open(place, Create::IfAbsent).await
}

/// Gives a database that is called `:memory:`, as in Python, a new folder, which goes when this is dropped.
pub(crate) fn temporary_folder(place: &mut Place) -> Result<Option<TemporaryFolder>, Failure> {
    if place.directory.as_deref() != Some(Path::new(":memory:")) {
        return Ok(None);
    }
    let folder = Database::temporary_folder().map_err(|error| {
        let parent = std::env::temp_dir();
        Failure::Usage(format!("no folder can be made in {}: {error}", parent.display()))
    })?;
    place.directory = Some(folder.path().to_owned());
    Ok(Some(folder))
}

/// Refuses a folder that is missing or empty.
fn check_is_there(place: &Place) -> Result<(), Failure> {
    let directory = directory(place)?;
    let is_empty = match directory.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    match is_empty {
        true => {
            let directory = directory.display();
            Err(Failure::Usage(format!("there is no database in {directory}; --create makes one")))
        }
        false => Ok(()),
    }
}

/// As whom a process logs in to the shell beside it, where all are superusers: as the shell's own user.
const USER_OF_SHELL: &str = "cleave";

/// The address of a process that has a database open.
pub(crate) fn address_of(found: &Found) -> Address {
    match &found.listens {
        Listens::Tcp(socket) => Address::of_socket(*socket, &found.database),
        Listens::Unix(path) => Address::of_unix_socket(path, USER_OF_SHELL, &found.database),
    }
}

/// The folder and the options for opening a database to check it.
pub(crate) fn options(place: &Place) -> Result<(&Path, OpenOptions), Failure> {
    Ok((directory(place)?, open_options(Create::Never, place.memory())))
}

/// The folder of the database that the command line names.
pub(crate) fn directory(place: &Place) -> Result<&Path, Failure> {
    place.directory.as_deref().ok_or_else(|| {
        Failure::Usage(
            "which database? Name its folder with --db DIR, or in the environment as CLEAVE_DB; `cleave sql :memory:` \
             makes one that goes with the shell"
                .to_owned(),
        )
    })
}

/// Opens the database in `directory`.
pub(crate) async fn open_directory(
    directory: &Path,
    create: Create,
    memory: MemoryBudgets,
) -> Result<Arc<Database>, Failure> {
    let others = |found: Metadata| found.is_dir() && found.permissions().mode() & 0o077 != 0;
    let was_open = directory.metadata().is_ok_and(others);
    let database = Database::open(directory, open_options(create, memory)).await;
    let database = database.map_err(Failure::Open)?;
    if was_open {
        let directory = directory.display();
        tell(&format!("took the rights of others from {directory}, which holds rows"));
    }
    Ok(database)
}

/// Tells who runs the program, by its log where there is one.
fn tell(message: &str) {
    match process_log::has_begun() {
        true => tracing::info!(target: "cleave", "{message}"),
        false => drop(writeln!(io::stderr(), "{message}")),
    }
}

/// The options for opening a database.
pub(crate) fn open_options(create: Create, memory: MemoryBudgets) -> OpenOptions {
    allocator::keep_within(memory);
    let mut options = OpenOptions::new(embedded_device()).create(create != Create::Never);
    if let Some(bytes) = memory.buffer_pool {
        options = options.buffer_pool_bytes(bytes);
    }
    if let Some(bytes) = memory.query {
        options = options.query_memory_bytes(bytes);
    }
    if let Some(bytes) = memory.filter_history {
        options = options.filter_history_bytes(bytes);
    }
    if let Some(seconds) = memory.device_timeout {
        options = options.device_timeout(Duration::from_secs(u64::from(seconds)));
    }
    options
}

/// A session with `settings`; an invalid one is an error of the command line.
pub(crate) fn session(
    database: &Arc<Database>,
    settings: &[(String, String)],
) -> Result<Session, Failure> {
    let mut session = database.session();
    for (name, value) in settings {
        session
            .set(name, value)
            .map_err(|error| Failure::Usage(format!("--set {name}={value}: {error}")))?;
    }
    Ok(session)
}
