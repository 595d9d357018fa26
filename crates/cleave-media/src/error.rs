//! Errors below pages, by what the caller can do about them.

use std::io;
use std::path::PathBuf;

use crate::Extent;

/// A failure of media.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// Another process has the media open, or a block device is mounted: end that first.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The media cannot be opened or created: check the path and the rights.
    #[error("cannot open {} as media: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The media existed, and its file is gone: bring it back, or restore it from a backup.
    #[error(
        "the media {} is missing, though its identity in {} is there; bring it back, or restore it from a copy",
        path.display(), identity.display()
    )]
    Missing {
        /// The file of the media.
        path: PathBuf,
        /// The file of its identity.
        identity: PathBuf,
    },
    /// A block device with other contents than Cleave's: name another one, or say that it may be overwritten.
    #[error(
        "the block device {} holds {found}, and is left as it is; to lose that and give the device to Cleave, \
         start `cleaved` once with --overwrite-media",
        path.display()
    )]
    Foreign {
        /// The device.
        path: PathBuf,
        /// The recognised contents.
        found: &'static str,
    },
    /// The file with the media's identity cannot be used: check it, or restore it from a backup.
    #[error("cannot {action} the identity in {}: {source}", path.display())]
    Identity {
        /// `read`, `use` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error, or the defect of the file.
        source: io::Error,
    },
    /// The head of a block device cannot be read or written: the media may be damaged or gone.
    #[error("cannot {action} the head of the block device {}: {source}", path.display())]
    Head {
        /// `read` or `write`.
        action: &'static str,
        /// The device.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// An address behind the end of the media: the caller's map is wrong, or the media was cut off.
    #[error("{extent} lie behind the end of the media, which has {block_count} blocks")]
    OutOfRange {
        /// The requested extent.
        extent: Extent,
        /// Blocks that exist.
        block_count: u64,
    },
    /// Blocks that the caller may not have: a mistake of the caller.
    #[error("{extent} were not granted")]
    Withheld {
        /// The requested extent.
        extent: Extent,
    },
    /// A write whose length is not a whole number of blocks: a mistake of the caller.
    #[error("a write of {length} bytes is not a whole number of blocks")]
    NotWholeBlocks {
        /// Bytes given.
        length: usize,
    },
    /// No space is left: free some, or add a device.
    #[error(
        "no space for {block_count} blocks on {media}: {source}; make room there, drop tables, or put new tables \
         on another device"
    )]
    Full {
        /// The file, or the name of other media.
        media: String,
        /// Requested size of the media in blocks.
        block_count: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The operating system failed to read or write: the media may be damaged or gone.
    #[error("{operation} of {extent} of {media} failed: {source}")]
    Io {
        /// The file, or the name of other media.
        media: String,
        /// `read` or `write`.
        operation: &'static str,
        /// Where.
        extent: Extent,
        /// The operating system's error.
        source: io::Error,
    },
    /// Durability could not be confirmed, by this sync or an earlier one: nothing written since the last successful
    /// sync may be taken as stored. Check the media, and open it anew.
    #[error(
        "sync of {media} failed: {source}; what was written since the last sync does not count as stored, and nothing \
         more will until the device is started again (an embedded one: its program)"
    )]
    Sync {
        /// The file, or the name of other media.
        media: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// An injected fault ([`crate::FaultyMedia`]); tests only.
    #[error("{operation} failed because a test asked for it")]
    Injected {
        /// `read`, `write`, `sync` or `grow`.
        operation: &'static str,
    },
}
