//! A place in, an open database and a session out: the only place where host and device meet.
//!
//! `cleave-host` does not name the device's crate. It asks for a service over a media file when it needs
//! its embedded device, and [`embedded_device`] is what this program hands it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_host::{Database, EmbeddedFactory, OpenOptions, Session};

use crate::arguments::Place;
use crate::failure::Failure;

/// Whether a database that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    /// It must exist.
    Never,
    /// A folder that is empty or missing becomes one.
    IfAbsent,
}

/// Opens the database that the command line names, and a session with its settings.
pub(crate) async fn open(
    place: &Place,
    create: Create,
) -> Result<(Arc<Database>, Session), Failure> {
    let directory = place.directory.as_deref().ok_or_else(|| {
        Failure::Usage(
            "which database? Name its folder with --db DIR, or in the environment as CLEAVE_DB"
                .to_owned(),
        )
    })?;
    let is_new = !directory.join("root").exists();
    let database = open_directory(directory, create, place.buffer_pool).await?;
    if is_new {
        drop(writeln!(std::io::stderr(), "made a new database in {}", directory.display()));
    }
    let session = session(&database, &place.settings)?;
    Ok((database, session))
}

/// Opens the database in `directory`.
pub(crate) async fn open_directory(
    directory: &Path,
    create: Create,
    buffer_pool_bytes: Option<u64>,
) -> Result<Arc<Database>, Failure> {
    let mut options = OpenOptions::new(embedded_device()).create(create == Create::IfAbsent);
    if let Some(bytes) = buffer_pool_bytes {
        options = options.buffer_pool_bytes(bytes);
    }
    Database::open(directory, options).await.map_err(Failure::Open)
}

/// A session with `settings`; one that is wrong is misuse of the command line.
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
