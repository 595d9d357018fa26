//! A place in, an open database and a session out: the only place where host and device meet.
//!
//! `cleave-host` does not name the device's crate. It asks for a service over a media file when it needs
//! its embedded device, and [`embedded_device`] is what this program hands it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_device::{Runtime, RuntimeOptions};
use cleave_host::{Database, EmbeddedFactory, Error, OpenOptions, Session};
use cleave_media::{DirectFile, OpenMode, random_bytes};

use crate::arguments::Place;
use crate::failure::Failure;

/// What the fragments of the embedded device may use together: a few at the default of `device_memory`.
const FRAGMENT_MEMORY_BYTES: u64 = 1 << 30;

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
        drop(writeln!(io::stderr(), "made a new database in {}", directory.display()));
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

/// Makes devices that run in this process, over a media file with its identity beside it.
fn embedded_device() -> EmbeddedFactory {
    Arc::new(|media_path: &Path| {
        let failed = |action| move |error| Error::io(action, media_path, io::Error::other(error));
        let mode = if media_path.exists() { OpenMode::Existing } else { OpenMode::Create };
        let media = DirectFile::open(media_path, mode).map_err(failed("open"))?;
        let mut options = RuntimeOptions::new(device_id(media_path)?);
        options.fragment_memory_bytes = FRAGMENT_MEMORY_BYTES;
        let runtime = Runtime::new(Arc::new(media), options)
            .map_err(|error| Error::io("serve", media_path, io::Error::other(error)))?;
        Ok(runtime as _)
    })
}

/// The identity of a media, kept beside it as 32 hexadecimal digits, as `cleaved` keeps it.
fn device_id(media_path: &Path) -> Result<[u8; 16], Error> {
    let mut path = media_path.as_os_str().to_owned();
    path.push(".id");
    let path = PathBuf::from(path);
    match std::fs::read_to_string(&path) {
        Ok(text) => from_hex(text.trim()).ok_or_else(|| {
            let reason = "it does not hold 32 hexadecimal digits";
            Error::io("use the identity in", &path, io::Error::other(reason))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = random_bytes::<16>().map_err(|error| {
                Error::io("draw an identity for", &path, io::Error::other(error))
            })?;
            let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            std::fs::write(&path, format!("{text}\n"))
                .map_err(|error| Error::io("write", &path, error))?;
            Ok(id)
        }
        Err(error) => Err(Error::io("read", &path, error)),
    }
}

fn from_hex(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.len() != 32 {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}
