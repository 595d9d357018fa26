//! The bytes of a replica on its device: its entry in the manifest, its head, its stamps and the list of its files.
//!
//! ```text
//!  anchor, at a multiple of 4 MiB      elsewhere in the arenas
//!  ┌──────┬────────┬────────┬ … ┐     ┌──────────────────────────┐ ┌──────────┬────────────┬───────┬──────┐
//!  │ head │ slot 0 │ slot 1 │   │     │ ring: blocks of the log  │ │ manifest │ segments/7 │ users │ list │
//!  └──────┴────────┴────────┴ … ┘     └──────────────────────────┘ └──────────┴────────────┴───────┴──────┘
//!            └── a stamp: where ring and list lie, how far the log goes, and the bytes behind its last whole block
//! ```
//!
//! Invariant: a block that the newest acknowledged stamp counts on is not written before a newer one is acknowledged.
//! So of two stamps one is always valid, whatever tears.

use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};
use cleave_store::Format;
use prost::Message;

/// Anchors lie at multiples of so many blocks, so that they are found by looking at few.
pub(super) const ANCHOR_ALIGNMENT: u32 = 1024;
/// Stamps that may be kept.
pub(super) const SLOT_COUNT: u32 = 64;
/// Blocks of each.
pub(super) const SLOT_BLOCKS: u32 = 2;
/// Blocks of head and slots.
pub(super) const ANCHOR_BLOCKS: u32 = 1 + SLOT_COUNT * SLOT_BLOCKS;
/// The smallest ring: what is logged between two checkpoints, twice.
pub(super) const RING_BLOCKS_MIN: u32 = 8192;
/// A block, as places in the log count.
pub(super) const BLOCK: u64 = BLOCK_SIZE as u64;

const HEAD: Format =
    Format { magic: *b"CLVCPYHD", name: "head of a log's replica", versions: 1..=1 };
const STAMP: Format =
    Format { magic: *b"CLVCPYST", name: "stamp of a log's replica", versions: 1..=1 };
const LIST: Format =
    Format { magic: *b"CLVCPYFL", name: "list of a log's replica", versions: 1..=1 };

/// The first block of an anchor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Head {
    /// The database whose log it is.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) database: Vec<u8>,
    /// The replica's id.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) id: Vec<u8>,
    /// The id of a replica that was given up, of which this head is the note; empty: the head of a replica.
    #[prost(bytes = "vec", tag = "3")]
    pub(super) given_up: Vec<u8>,
    /// The epoch in which it was.
    #[prost(uint64, tag = "4")]
    pub(super) epoch: u64,
}

impl Head {
    /// A block.
    pub(super) fn seal(&self) -> Vec<u8> {
        padded(HEAD.seal(&self.encode_to_vec()))
    }

    /// What a block says; None: it is no head.
    pub(super) fn open(bytes: &[u8]) -> Option<Self> {
        let (_, payload) = HEAD.open(bytes).ok()?;
        Self::decode(payload).ok()
    }
}

/// Bytes somewhere in the arenas.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Place {
    /// First block.
    #[prost(uint64, tag = "1")]
    pub(super) start: u64,
    /// Length in bytes.
    #[prost(uint64, tag = "2")]
    pub(super) bytes: u64,
    /// CRC-32C of them.
    #[prost(fixed32, tag = "3")]
    pub(super) checksum: u32,
}

impl Place {
    /// The blocks.
    pub(super) fn extent(&self) -> Extent {
        Extent { start: BlockAddress(self.start), block_count: blocks(self.bytes) }
    }
}

/// The contents of a replica at one moment.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Stamp {
    /// The replica's id.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) id: Vec<u8>,
    /// Rises with every stamp.
    #[prost(uint64, tag = "2")]
    pub(super) sequence: u64,
    /// The epoch of the host that wrote it.
    #[prost(uint64, tag = "3")]
    pub(super) epoch: u64,
    /// Its incarnation.
    #[prost(uint64, tag = "4")]
    pub(super) incarnation: u64,
    /// The generation of the manifest.
    #[prost(uint64, tag = "5")]
    pub(super) generation: u64,
    /// When it was written, in microseconds since 1970.
    #[prost(int64, tag = "6")]
    pub(super) time_us: i64,
    /// The list of files.
    #[prost(message, optional, tag = "7")]
    pub(super) list: Option<Place>,
    /// First block of the ring.
    #[prost(uint64, tag = "8")]
    pub(super) ring_start: u64,
    /// Blocks of the ring; 0: there is none yet.
    #[prost(uint32, tag = "9")]
    pub(super) ring_blocks: u32,
    /// Where the log begins here: what the manifest says.
    #[prost(uint64, tag = "10")]
    pub(super) log_start: u64,
    /// Where it ends.
    #[prost(uint64, tag = "11")]
    pub(super) log_end: u64,
    /// Where the file of the log begins that `log_start` lies in.
    #[prost(uint64, tag = "12")]
    pub(super) segment_start: u64,
    /// The header of that file.
    #[prost(bytes = "vec", tag = "13")]
    pub(super) segment_header: Vec<u8>,
    /// The log from its last whole block on.
    #[prost(bytes = "vec", tag = "14")]
    pub(super) tail: Vec<u8>,
    /// Where the blocks of the log begin that were written with this stamp; they end where the tail begins.
    #[prost(uint64, tag = "15")]
    pub(super) fresh_start: u64,
    /// CRC-32C of them.
    #[prost(fixed32, tag = "16")]
    pub(super) fresh_checksum: u32,
}

impl Stamp {
    /// Whole blocks.
    pub(super) fn seal(&self) -> Vec<u8> {
        padded(STAMP.seal(&self.encode_to_vec()))
    }

    /// What the blocks of a slot say; None: no whole stamp.
    pub(super) fn open(bytes: &[u8]) -> Option<Self> {
        let (_, payload) = STAMP.open(bytes).ok()?;
        let stamp = Self::decode(payload).ok()?;
        let ring_bytes = u64::from(stamp.ring_blocks) * BLOCK;
        let is_sound = stamp.log_start <= stamp.log_end
            && whole(stamp.log_end) + stamp.tail.len() as u64 == stamp.log_end
            && stamp.fresh_start.is_multiple_of(BLOCK)
            && stamp.fresh_start <= whole(stamp.log_end)
            && stamp.log_end - whole(stamp.log_start) <= ring_bytes
            && stamp.log_end - stamp.fresh_start <= ring_bytes;
        is_sound.then_some(stamp)
    }

    /// Where the log's whole blocks from `from` to `to` lie, in order.
    pub(super) fn ring_extents(&self, from: u64, to: u64) -> Vec<Extent> {
        let ring = u64::from(self.ring_blocks).max(1);
        let (mut next, end) = (from / BLOCK, to / BLOCK);
        let mut extents = Vec::new();
        while next < end {
            let offset = next % ring;
            let count = (ring - offset).min(end - next);
            let start = BlockAddress(self.ring_start.saturating_add(offset));
            let block_count = u32::try_from(count).unwrap_or(u32::MAX);
            extents.push(Extent { start, block_count });
            next += count;
        }
        extents
    }

    /// The ring's blocks.
    pub(super) fn ring(&self) -> Extent {
        Extent { start: BlockAddress(self.ring_start), block_count: self.ring_blocks }
    }
}

/// A file of the host's folder.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CopiedFile {
    /// Its name in the folder.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Its bytes.
    #[prost(message, optional, tag = "2")]
    pub(super) place: Option<Place>,
}

/// All files.
#[derive(Clone, PartialEq, Message)]
pub(super) struct List {
    /// Each once.
    #[prost(message, repeated, tag = "1")]
    pub(super) files: Vec<CopiedFile>,
}

impl List {
    /// The bytes.
    pub(super) fn seal(&self) -> Vec<u8> {
        LIST.seal(&self.encode_to_vec())
    }

    /// What [`List::seal`] made bytes of.
    pub(super) fn open(bytes: &[u8]) -> Option<Self> {
        let (_, payload) = LIST.open(bytes).ok()?;
        Self::decode(payload).ok()
    }
}

/// Blocks of so many bytes.
pub(super) fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX)
}

/// The last boundary of a block at or before a place.
pub(super) fn whole(place: u64) -> u64 {
    place - place % BLOCK
}

/// `bytes` and zeros, up to the end of the block.
pub(super) fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
    bytes
}

/// Where the slot of this number lies in the anchor at `anchor`.
pub(super) fn slot(anchor: BlockAddress, number: u32) -> Extent {
    let start = BlockAddress(anchor.0 + 1 + u64::from(number) * u64::from(SLOT_BLOCKS));
    Extent { start, block_count: SLOT_BLOCKS }
}

/// What is free in `arenas`, of which `used` is not.
#[derive(Debug)]
pub(super) struct Room(Vec<Extent>);

impl Room {
    /// See the type.
    pub(super) fn new(arenas: &[Extent], used: impl IntoIterator<Item = Extent>) -> Self {
        let mut used: Vec<Extent> = used.into_iter().filter(|used| used.block_count > 0).collect();
        used.sort_unstable();
        let mut free = Vec::new();
        for arena in arenas {
            let mut next = arena.start.0;
            let mut add = |from: u64, to: u64| {
                if let Ok(block_count @ 1..) = u32::try_from(to.saturating_sub(from)) {
                    free.push(Extent { start: BlockAddress(from), block_count });
                }
            };
            for used in used.iter().filter(|used| used.overlaps(*arena)) {
                add(next, used.start.0);
                next = next.max(used.end().0);
            }
            add(next, arena.end().0);
        }
        Self(free)
    }

    /// Takes so many blocks; None: there are not as many in one place.
    pub(super) fn take(&mut self, block_count: u32) -> Option<Extent> {
        let block_count = block_count.max(1);
        let hole = self.0.iter_mut().find(|hole| hole.block_count >= block_count)?;
        let taken = Extent { start: hole.start, block_count };
        hole.start = taken.end();
        hole.block_count -= block_count;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
