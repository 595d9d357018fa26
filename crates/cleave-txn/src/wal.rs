//! The write-ahead log: records in, their places (LSNs) out, and after a crash the records again.
//!
//! 1. [`record`]: the bytes of one record; a checksum that covers the log's identity and the record's place.
//! 2. [`segment`]: the files that the log consists of, and their first bytes.
//! 3. [`writer`]: [`Wal`] appends, and makes one sync for all that wait at once; `progress` decides which thread leads
//!    it.
//! 4. [`reader`]: [`LogReader`] returns the records, up to where a crash tore the log.
//! 5. [`retention`]: segments that a checkpoint no longer needs are archived, and their files are reused.
//! 6. [`reserve`]: reserved space, so that commits which free space can be logged on a full disk.
//!
//! ```text
//!  log/0000000000000000.log       log/0000000001000000.log     named by the LSN of their first byte
//!  ┌────────┬──────┬────────┬────┬───────┐ ┌────────┬──────┬────────┬───────────
//!  │ header │ mark │ record │ …  │ zeros │ │ header │ mark │ record │ … ▶ durable ▶ end
//!  └────────┴──────┴────────┴────┴───────┘ └────────┴──────┴────────┴───────────
//!                                └── the next header names this place
//! ```
//!
//! The records that one sync makes durable begin with a *mark*, which says up to where the log was durable before. So
//! the reader can tell a torn end, which a crash leaves, from damage in the middle, which is an error: bytes that do
//! not verify were durable if a later mark covers them.
//!
//! Invariant: a record that [`Wal::wait_durable`] confirmed is read back, in order, or the reader gives an error that
//! names file and offset. An unconfirmed record is read back whole or not at all. Once a write or sync has failed the
//! log refuses everything until it is opened anew.
//! Source: rules 25 to 27; `docs/design/log-and-recovery.md`.

mod progress;
pub mod reader;
pub mod record;
pub mod reserve;
pub mod retention;
pub mod segment;
pub mod writer;

use std::io;
use std::path::PathBuf;

pub use reader::{LogReader, LogRecord, TRANSACTION_BYTES_MAX};
pub use record::{Lsn, Record};
pub use reserve::{release_reserve, reserve_for_start};
pub use writer::{Appended, Durable, LogFigures, LogOptions, Wal};

/// Why a log operation failed, by what the caller can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// No space for another record; nothing was appended, and the log goes on. Make room, or abort.
    #[error(
        "no space for {byte_count} more bytes of the log in {}: {source}; make room there",
        path.display()
    )]
    Full {
        /// The file that did not grow.
        path: PathBuf,
        /// Bytes requested.
        byte_count: u64,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A record or transaction larger than the log accepts; nothing was appended. Divide it.
    #[error(
        "a transaction of {byte_count} bytes of log is more than the {byte_count_max} bytes that one may have"
    )]
    TooLarge {
        /// Bytes of the transaction.
        byte_count: u64,
        /// The maximum.
        byte_count_max: u64,
    },
    /// A file could not be read, made or removed; durable records are still durable.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `create` and the like.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A write or sync of the log failed, now or earlier: unacknowledged records may or may not be durable, and nothing
    /// more will be until the database is opened anew.
    #[error(
        "the log failed: {reason}; nothing more can be committed until the database is opened again"
    )]
    Failed {
        /// What failed first.
        reason: String,
    },
    /// Durable bytes of the log do not verify: restore them from a backup or the archive.
    #[error(
        "the log is damaged at byte {offset} of {} (position {at}): {reason}; restore that file from a copy",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// Position in the log.
        at: Lsn,
        /// The evidence that they were durable.
        reason: String,
    },
    /// A needed file of the log is missing: restore it from a backup or the archive.
    #[error(
        "the log in {} lacks the file that holds position {at}; restore it from a copy or the archive",
        directory.display()
    )]
    Missing {
        /// The folder of the log.
        directory: PathBuf,
        /// The position that was requested.
        at: Lsn,
    },
    /// A log of a version that this build does not read: use the build that wrote it, or a newer one.
    #[error("the log file {} has format version {found}; this build of Cleave reads {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that this build reads.
        expected: u32,
    },
}

impl LogError {
    pub(crate) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

#[cfg(test)]
pub(crate) mod tests;
