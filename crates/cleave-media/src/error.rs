//! What can go wrong below pages, by what the caller can do about it.

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
        /// What the operating system said.
        source: io::Error,
    },
    /// The media was there, and its file is gone: bring it back, or restore it from a copy.
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
    /// A block device that holds something which is not Cleave's: name another one, or say that it may be overwritten.
    #[error(
        "the block device {} holds {found}, and is left as it is; to lose that and give the device to Cleave, \
         start `cleaved` once with --overwrite-media",
        path.display()
    )]
    Foreign {
        /// The device.
        path: PathBuf,
        /// What was recognised.
        found: &'static str,
    },
    /// The file that keeps the media's identity cannot be used: check it, or restore it from a copy.
    #[error("cannot {action} the identity in {}: {source}", path.display())]
    Identity {
        /// `read`, `use` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said, or what the file lacks.
        source: io::Error,
    },
    /// An address behind the end of the media: the caller's map is wrong, or the media was cut off.
    #[error("{extent} lie behind the end of the media, which has {block_count} blocks")]
    OutOfRange {
        /// What was asked.
        extent: Extent,
        /// Blocks that exist.
        block_count: u64,
    },
    /// A write whose length is not a whole number of blocks: a mistake of the caller.
    #[error("a write of {length} bytes is not a whole number of blocks")]
    NotWholeBlocks {
        /// Bytes given.
        length: usize,
    },
    /// No space is left: free some, or add a device.
    #[error(
        "no space for {block_count} blocks on the media: {source}; make room there, drop tables, or put new tables \
         on another device"
    )]
    Full {
        /// Blocks that the media should have had.
        block_count: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system failed to read or write: the media may be damaged or gone.
    #[error("{operation} of {extent} failed: {source}")]
    Io {
        /// `read` or `write`.
        operation: &'static str,
        /// Where.
        extent: Extent,
        /// What the operating system said.
        source: io::Error,
    },
    /// Durability could not be confirmed: nothing written since the last sync may be taken as stored.
    #[error("sync failed, and nothing written since the last one counts as stored: {source}")]
    Sync {
        /// What the operating system said.
        source: io::Error,
    },
    /// The media was told to fail ([`crate::FaultyMedia`]); tests only.
    #[error("{operation} failed because a test asked for it")]
    Injected {
        /// `read`, `write`, `sync` or `grow`.
        operation: &'static str,
    },
}
