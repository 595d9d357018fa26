//! Errors below the statements: directories, devices, links and pages.
//!
//! Each variant names the object (path, device, address, segment and page) and says what to do. They reach the caller
//! as [`Error::Storage`].
//!
//! Source: rule 13 (58030 where media is unreachable).

mod damage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::{DeviceError, DeviceErrorCause};
use cleave_fragment::link::{LinkError, TlsFileError};
use cleave_store::StoreError;
use cleave_txn::LogError;

use crate::error::Error;
pub use damage::{Faults, Remedy, SegmentFault};

/// Why storage failed a statement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A directory that is no database: give another path, or create one there.
    #[error("\"{}\" is not a Cleave database: {reason}", path.display())]
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What is missing or unexpected.
        reason: String,
    },
    /// Written by a newer Cleave: use that version.
    #[error(
        "\"{}\" was written by a newer Cleave: its format is {found}, this version reads up to {supported}; open it \
            with a newer version",
        path.display()
    )]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest that this build reads.
        supported: u32,
    },
    /// A file of the database directory is damaged: restore it.
    #[error("the database file \"{}\" is damaged: {reason}; restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// An unreadable segment file of a table: restore it and open the database again, or drop the table.
    #[error(
        "table \"{table}\" cannot be used: {faults}; restore the file from a copy and open the database again, or \
            DROP \
         TABLE; other tables work, and `cleave check` lists all that is wrong"
    )]
    DamagedTable {
        /// The table.
        table: String,
        /// The fault.
        faults: Faults,
    },
    /// An unreadable segment file of an index, so that no rows can be added: restore it and open the database again, or
    /// drop the index or its table.
    #[error(
        "index \"{index}\" of table \"{table}\" cannot be used: {faults}; restore the file from a copy and open the \
         database again, or {remedy}; queries read the table without the index"
    )]
    DamagedIndex {
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The fault.
        faults: Faults,
        /// What else to do.
        remedy: Remedy,
    },
    /// A blocked table: its last commits wait in the log, since a device could not take them. Bring the device back;
    /// other tables work.
    #[error("table \"{table}\" cannot be used, and its last commits wait in the log: {reason}")]
    TableBlocked {
        /// The table.
        table: String,
        /// Why they wait.
        reason: Arc<StorageError>,
    },
    /// A change was made on this host, and its log replica does not have it: bring the device back, or reset
    /// log_replica.
    #[error(
        "it was created on this host, but the log replica on device \"{device}\" does not have it, so a failover \
            would lose it: {source}; {}",
        .source.remedy("it is sent when the device answers, and ALTER SYSTEM RESET log_replica gives the replica up")
    )]
    NotReplicated {
        /// Name of the device.
        device: String,
        /// Why the replica does not have it.
        #[source]
        source: Arc<StorageError>,
    },
    /// Nothing was changed, because the log replica could not take the change: as for [`StorageError::NotReplicated`].
    #[error(
        "nothing was changed, since the log replica on device \"{device}\" could not take it: {source}; {}",
        .source.remedy("bring the device back, or give the replica up by ALTER SYSTEM RESET log_replica")
    )]
    Unreplicated {
        /// Name of the device.
        device: String,
        /// Why the replica could not take it.
        #[source]
        source: Arc<StorageError>,
    },
    /// A log replica that cannot be kept, or from which no failover is possible: see the reason.
    #[error("device \"{device}\" at {address}: {reason}")]
    LogReplica {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A folder that a backup or a restore cannot write to: name another.
    #[error("cannot write to \"{}\": {reason}", path.display())]
    BackupPlace {
        /// The folder.
        path: PathBuf,
        /// Its contents.
        reason: String,
    },
    /// A backup that was changed since it was written: use another one.
    #[error("\"{}\" is not a complete backup: {reason}; use another backup", path.display())]
    DamagedBackup {
        /// Its folder.
        path: PathBuf,
        /// What does not match.
        reason: String,
    },
    /// A point in time that a backup and the archived log cannot restore: see its message.
    #[error("the database cannot be restored to that time: {reason}")]
    PointInTime {
        /// The reason, and what to do.
        reason: String,
    },
    /// The write-ahead log cannot be read or written: see its message.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The free space of a device is not known, because a segment file is lost: restore it, or drop the table.
    #[error(
        "nothing can be written to device \"{device}\": a segment file of table \"{table}\" is damaged, and the \
            manifest, \
         which an earlier version wrote, does not say which blocks are the table's; restore the file from a copy and \
         open the database again, or drop the table or index that is damaged"
    )]
    SpaceUnknown {
        /// The device.
        device: String,
        /// The table.
        table: String,
    },
    /// Another process has the database open: end it, or wait.
    #[error(
        "the database \"{}\" is in use by another process{holder}; one process at a time: end it, or let cleave serve \
            or cleave sql have the database open, which answer others",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// That process and its program, after a comma; empty: not known.
        holder: String,
    },
    /// A commit with an unknown outcome: close the database and open it again.
    #[error(
        "the database \"{}\" was stopped because a commit could not be confirmed on disk; close it and open it \
            again; the commit is there as a whole or not at all",
        path.display()
    )]
    Stopped {
        /// The directory.
        path: PathBuf,
    },
    /// The device does not answer: bring it back; statements that do not need it still work.
    #[error(
        "device \"{device}\" at {address} is offline: {source}; statements that need it fail until it is back"
    )]
    DeviceLost {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The link's error.
        #[source]
        source: LinkError,
    },
    /// The device is reachable and does not answer: check its disk; statements that do not need it still work.
    #[error(
        "device \"{device}\" at {address} has not answered \"{action}\" within {waited:?}; statements that need it \
            fail until it does; --device-timeout sets how long the host waits"
    )]
    Unanswered {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The request.
        action: &'static str,
        /// The time that was waited.
        waited: Duration,
    },
    /// A failure between host and device that reconnecting does not repair: see the cause.
    #[error("device \"{device}\" at {address}: {source}")]
    Link {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The link's error.
        #[source]
        source: LinkError,
    },
    /// The device answered with an error.
    #[error("device \"{device}\" at {address} could not {action}: {source}")]
    Refused {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The request.
        action: &'static str,
        /// Its answer.
        #[source]
        source: DeviceError,
    },
    /// Another device than the attached one: correct the address, or attach this one under a new name.
    #[error(
        "another device answers as \"{device}\" at {address}: expected {}, found {}; its data is elsewhere",
        Identity(*expected), Identity(*found)
    )]
    OtherDevice {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// Identity in the manifest.
        expected: [u8; 16],
        /// Identity that answered.
        found: [u8; 16],
    },
    /// The media is shorter than the manifest says: bring all of it back.
    #[error(
        "the media of device \"{device}\" at {place} was cut off: it has {found_bytes} bytes, and pages are stored \
            in the first {expected_bytes}; restore it from a copy"
    )]
    CutOff {
        /// Name of the device.
        device: String,
        /// Its file, or its address.
        place: String,
        /// Bytes that it must have.
        expected_bytes: u64,
        /// Bytes that it has.
        found_bytes: u64,
    },
    /// The database, or a copy of its folder, was opened again elsewhere and has taken the device: end this process.
    #[error(
        "device \"{device}\" at {address} is in use by another host now: {source}; one host at a time"
    )]
    Superseded {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The device's message.
        #[source]
        source: DeviceError,
    },
    /// Another copy of the database folder has used the device since this one did: use that copy.
    #[error(
        "device \"{device}\" at {address} was used by another copy of this database, in its epoch {epoch}, \
         and may have reused blocks that this copy refers to; open that copy instead"
    )]
    Copied {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The epoch of that copy when it took the device.
        epoch: u64,
    },
    /// The device belongs to another database: attach another one, or have its operator hand it over.
    #[error(
        "device \"{device}\" at {address} serves another database, {}; attach another device, or start \
         that one with --hand-over, which gives up what it holds",
        Identity(*owner)
    )]
    OtherOwner {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The other database.
        owner: [u8; 16],
    },
    /// A device sent an invalid answer.
    #[error(
        "device \"{device}\" at {address} sent an unexpected answer: {what}; check that both have the same version"
    )]
    Answer {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
        /// The answer.
        what: String,
    },
    /// The device was restarted while a statement wrote to it: run the statement again.
    #[error(
        "device \"{device}\" at {address} was restarted while the statement wrote to it; nothing was changed, run it \
            again"
    )]
    Restarted {
        /// Name of the device.
        device: String,
        /// Its address.
        address: String,
    },
    /// A token file that cannot be read, or holds no token: correct it.
    #[error("the token of device \"{device}\": {source}")]
    Token {
        /// Name of the device.
        device: String,
        /// Why.
        #[source]
        source: TlsFileError,
    },
    /// A device that cannot be attached or detached as asked.
    #[error("device \"{device}\": {reason}")]
    Attach {
        /// Name of the device.
        device: String,
        /// Why.
        reason: String,
    },
    /// A device that is to be removed and is still in use: move its tables first, or drop them.
    #[error(
        "device \"{device}\" cannot be removed because tables are stored on it: {}; move them by ALTER DEVICE \
            \"{device}\" DRAIN, or drop them",
        tables.join(", ")
    )]
    HoldsTables {
        /// Name of the device.
        device: String,
        /// The tables.
        tables: Vec<String>,
    },
    /// A device that is to be removed while statements still read tables from it: wait for them.
    #[error(
        "device \"{device}\" cannot be removed yet: sessions still read tables that were stored on it, or have \
            temporary tables there; wait for them to end"
    )]
    StillRead {
        /// Name of the device.
        device: String,
    },
    /// A device that does not answer, and whose tables therefore cannot be moved: bring it back, or restore them.
    #[error(
        "nothing can be moved from device \"{device}\": {source}; bring it back; if it is lost for good, so are its \
            tables {}: ALTER DEVICE … REBUILD makes them anew from a backup and the archived log",
        tables.join(", ")
    )]
    NotDrained {
        /// Name of the device.
        device: String,
        /// The tables that lie on it.
        tables: Vec<String>,
        /// Why it cannot be read.
        #[source]
        source: Arc<StorageError>,
    },
    /// A table whose lost tablets cannot be rebuilt.
    #[error("table \"{table}\" cannot be rebuilt without device \"{device}\": {reason}")]
    NotRebuilt {
        /// Name of the lost device.
        device: String,
        /// The table.
        table: String,
        /// What does not fit, and what to do.
        reason: String,
    },
    /// Pages, maps or index of one table: the rest of the database is not affected.
    #[error("table \"{table}\": {source}")]
    Table {
        /// The table.
        table: String,
        /// The store's error, with segment and page.
        #[source]
        source: StoreError,
    },
    /// Pages of an unknown table.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A limit of the database: ids are used up.
    #[error("this database has no numbers left for {what}")]
    Exhausted {
        /// The kind of objects.
        what: &'static str,
    },
}

impl StorageError {
    /// Whether a device could not be reached.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        match self {
            Self::DeviceLost { .. } => true,
            Self::TableBlocked { reason, .. } => reason.is_device_lost(),
            Self::NotReplicated { source, .. } | Self::Unreplicated { source, .. } => {
                source.is_device_lost()
            }
            _ => false,
        }
    }

    /// Whether a device has not answered in time, and may do so yet.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Unanswered { .. } => true,
            Self::TableBlocked { reason, .. } => reason.is_unanswered(),
            _ => false,
        }
    }

    /// Whether there was a failover to another host, or another copy of its folder was opened.
    #[must_use]
    pub fn is_of_another_host(&self) -> bool {
        match self {
            Self::Superseded { .. } | Self::Copied { .. } => true,
            Self::NotReplicated { source, .. } | Self::Unreplicated { source, .. } => {
                source.is_of_another_host()
            }
            _ => false,
        }
    }

    /// The remedy for a log replica that cannot be written for this reason: `otherwise`, unless it belongs to another
    /// host by now.
    fn remedy(&self, otherwise: &'static str) -> &'static str {
        match self.is_of_another_host() {
            true => "this host can commit nothing any more",
            false => otherwise,
        }
    }

    /// PostgreSQL's SQLSTATE for it.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::TableBlocked { reason, .. } => reason.sqlstate(),
            Self::NotDrained { source, .. } => source.sqlstate(),
            Self::NotReplicated { source, .. } | Self::Unreplicated { source, .. } => {
                source.sqlstate()
            }
            Self::LogReplica { .. } => "55000",
            Self::NotADatabase { .. } => "3D000",
            Self::BackupPlace { .. } => "58P02",
            Self::PointInTime { .. } | Self::NotRebuilt { .. } => "55000",
            Self::InUse { .. }
            | Self::Superseded { .. }
            | Self::Copied { .. }
            | Self::OtherOwner { .. }
            | Self::StillRead { .. } => "55006",
            Self::Attach { .. } => "22023",
            Self::HoldsTables { .. } => "2BP01",
            Self::Exhausted { .. } => "54000",
            Self::Token { .. } => "28000",
            Self::NewerFormat { .. }
            | Self::Damaged { .. }
            | Self::DamagedBackup { .. }
            | Self::Log(LogError::Damaged { .. } | LogError::Missing { .. })
            | Self::DamagedTable { .. }
            | Self::DamagedIndex { .. }
            | Self::SpaceUnknown { .. }
            | Self::Table { .. }
            | Self::Store(_) => "XX001",
            Self::Refused { source, .. } => match source.cause {
                DeviceErrorCause::Corrupt => "XX001",
                DeviceErrorCause::OutOfSpace => "53100",
                DeviceErrorCause::OutOfMemory => "53200",
                DeviceErrorCause::Unauthenticated => "28000",
                DeviceErrorCause::OtherDatabase => "55006",
                _ => "58030",
            },
            Self::Link { source: LinkError::Corrupt { .. }, .. } => "XX001",
            Self::Link { source: LinkError::Unauthenticated { .. }, .. } => "28000",
            Self::Log(LogError::Full { .. }) => "53100",
            Self::Log(LogError::TooLarge { .. }) => "54000",
            Self::Log(_)
            | Self::Stopped { .. }
            | Self::DeviceLost { .. }
            | Self::Unanswered { .. }
            | Self::Link { .. }
            | Self::OtherDevice { .. }
            | Self::CutOff { .. }
            | Self::Restarted { .. }
            | Self::Answer { .. } => "58030",
        }
    }
}

/// A [`StorageError`] inside `StoreError::Source`, made by the page source of the host and unwrapped by [`Error`].
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<StorageError>);

/// The error of a page source if the failure is not the page's.
pub fn into_store_error(error: Error) -> StoreError {
    match error {
        Error::Storage(shared) => match Arc::try_unwrap(shared) {
            Ok(StorageError::Store(error)) => error,
            Ok(other) => StoreError::Source(Arc::new(Shared(Arc::new(other)))),
            Err(shared) => StoreError::Source(Arc::new(Shared(shared))),
        },
        other => StoreError::Source(Arc::new(other)),
    }
}

/// The SQLSTATE of an error that [`into_store_error`] made, or of the store's own.
pub(crate) fn store_sqlstate(error: &StoreError) -> &'static str {
    let StoreError::Source(source) = error else { return "XX001" };
    match (source.downcast_ref::<Shared>(), source.downcast_ref::<Error>()) {
        (Some(shared), _) => shared.0.sqlstate(),
        (_, Some(ours)) => ours.sqlstate(),
        _ => "58030",
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        if let StoreError::Source(source) = &error
            && let Some(shared) = source.downcast_ref::<Shared>()
        {
            return Self::Storage(Arc::clone(&shared.0));
        }
        Self::from(StorageError::Store(error))
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// An identity as 32 hexadecimal digits.
pub struct Identity(pub [u8; 16]);

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        StorageError::Log(error).into()
    }
}
