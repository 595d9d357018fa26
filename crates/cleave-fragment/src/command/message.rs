//! Commands, replies and slots as both sides hold them in memory.
//!
//! Idempotence (rule 29), command by command: identify, read, sync and status change nothing; a profile writes at most
//! zeros to reserved space; a claim by the incarnation that owns the device, and a give-up by one that does not, change
//! nothing; a repeated write stores the same bytes at the same place; reserve is a union; fetch carries a total, of
//! which the larger wins; revoke carries a count of which the smaller wins; a fed filter replaces older ones only; a
//! repeated extension is the one that the run has; a repeated grant is the one that the device has; lock messages state
//! what is final; cancel and release of what is gone succeed; a repeated execute attaches to the existing run.

use std::time::Duration;

use bytes::Bytes;
use cleave_media::{BlockAddress, Extent};
use cleave_shmem::Job;
use cleave_store::{ColumnRef, PageRef, SegmentRef};

use super::homes::PageHome;
use super::lock_batch::{LockCall, LockSay};
use super::peers::{Outputs, Peer, PeerRows, PeerSecret};
use super::status::{DeviceStatus, RunReport};
use crate::broadcast::Broadcast;
use crate::filter_history::HistoryMode;
use crate::index_filter::IndexFilter;
use crate::index_input::{IndexInput, IndexPages};
use crate::morsel::{Lease, Morsel};
use crate::profile::SideProfile;
use crate::trace::Trace;

/// The epoch of a reader: a host that has not opened its database and only looks at a device's content. It may read and
/// ask status, whoever owns the device, and changes nothing. Incarnations count from 1.
pub const LOOKING_EPOCH: u64 = 0;

/// The header of every command: who asks, and as part of what (rule 29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandHeader {
    /// The database that asks; all zero when none is open, which may only identify and ask status.
    pub database: [u8; 16],
    /// How often that database has been opened: the epoch of the command.
    pub epoch: u64,
    /// Which incarnation that was, drawn at random and not 0: it tells copied folders of one database apart, which
    /// count the same epochs. Only commands with the database, epoch and incarnation of the present [`Ownership`] are
    /// served, and those with [`LOOKING_EPOCH`].
    pub incarnation: u64,
    /// The run that the command is about or part of; unique within (database, epoch); 0 for none.
    pub run: u64,
    /// Rises with every command of one host.
    pub sequence: u64,
    /// The paper's host-interaction id: which exchange of the run this is.
    pub interaction: u64,
}

impl CommandHeader {
    /// The key that tells the header's run from every other.
    pub fn run_key(&self) -> RunKey {
        RunKey(self.ownership(), self.run)
    }

    /// The incarnation and database that the command is for.
    pub fn ownership(&self) -> Ownership {
        Ownership { database: self.database, epoch: self.epoch, incarnation: self.incarnation }
    }
}

/// The key of a run, unique among all databases and their copied folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKey(Ownership, u64);

/// One command, except execute, which answers with a stream: [`Execute`].
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Who asks.
    pub header: CommandHeader,
    /// What for.
    pub request: Request,
}

impl Command {
    /// `request` on behalf of `header`.
    pub fn new(header: CommandHeader, request: Request) -> Self {
        Self { header, request }
    }
}

/// The request of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Who are you, what can you do, and who owns you? Anyone may ask; it changes nothing. → [`Reply::Identity`]
    Identify,
    /// Become the device of the header's incarnation. Ends the runs and reservations of older epochs, and is durable,
    /// before the answer. → [`Reply::Done`]
    Claim {
        /// The incarnation that owned the device when this host last looked, 0 for none: if it is another by now,
        /// nothing happens.
        after: u64,
    },
    /// Belong to nobody, and end the runs and reservations of the header's database. → [`Reply::Done`]
    GiveUp,
    /// Read blocks, or columns of pages. → [`Reply::Read`], one payload an item
    Read(Vec<ReadItem>),
    /// Write whole blocks inside reserved extents. → [`Reply::Done`]
    Write(Vec<WriteItem>),
    /// Make all acknowledged writes durable. → [`Reply::Done`]
    Sync,
    /// Let this database write to `extents`, and grow the media to hold them. → [`Reply::Done`]
    Reserve {
        /// The extents, chosen by the host, which owns physical space.
        extents: Vec<Extent>,
    },
    /// Slots of an output of the header's run that its listener has consumed, in total: the device may have
    /// `slot_count` more outstanding than that (the credits). → [`Reply::Done`]
    Fetch {
        /// Slots consumed since the run began. The largest number closes an output that was attached to: its listener
        /// wants no more, and rows for it are dropped.
        consumed: u64,
        /// Which output.
        output: u32,
    },
    /// Give back the morsels of an input of the header's run behind the first `keep` that were not begun. The host
    /// takes them, so they are never begun afterwards (rule 11). → [`Reply::Kept`]
    Revoke {
        /// The input, which streams through the fragment.
        input: u32,
        /// Morsels to keep, from the front of its list; more than there are only asks for the run's progress.
        keep: u32,
    },
    /// Filter an input of the header's run by `filter`, which only saves work (rule 4). → [`Reply::Done`]
    Feed {
        /// The input, one of those that execute has named in `fed`.
        input: u32,
        /// The filter's generation for that input: an older one is skipped.
        generation: u64,
        /// As [`encode_filter`](crate::fed_filter::encode_filter) writes it.
        filter: Bytes,
    },
    /// Let the header's run write to `extents` too: it has said that it is full ([`SpaceNeed`]). → [`Reply::Done`]
    Extend {
        /// The extension's number, from 1 without gaps. A repeated one must have the same extents.
        number: u32,
        /// Extents that this database has reserved, used by no run; none if the host has no more for the run, which
        /// then fails.
        extents: Vec<Extent>,
    },
    /// Lets another device have something of this one ([`peers`](super::peers)). A repeated one must be the same. →
    /// [`Reply::Done`]
    Grant(Grant),
    /// Ends the grant of this number; one that is gone succeeds. → [`Reply::Done`]
    EndGrant {
        /// The number.
        number: u64,
    },
    /// The outcome of locks that the header's run asked for. Nobody waits for the reply. → [`Reply::Done`]
    Locks(LockSay),
    /// Stop the header's run; its outcome stays until released. → [`Reply::Done`], once it has stopped
    Cancel,
    /// Forget the header's run, stopping it first. → [`Reply::Done`]
    Release,
    /// How are you? → [`Reply::Status`]. Without a database in the header anyone may ask.
    Status,
    /// What can you do in a second? Measured once and kept; requests that arrive meanwhile wait for the same
    /// measurement. → [`Reply::Profile`]
    Profile {
        /// Measure again.
        again: bool,
        /// Written blocks, to measure reads.
        sample: Vec<Extent>,
        /// Reserved space that may be overwritten, to measure writes; without it they are not measured.
        scratch: Option<Extent>,
    },
}

/// What a device lets another one have that shows the secret. It ends with the incarnation that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its number, unique within the incarnation.
    pub number: u64,
    /// What the bearer shows, and only its host and the two devices know.
    pub secret: PeerSecret,
    /// The blocks that may be read, and the pages that lie within.
    pub extents: Vec<Extent>,
    /// The outputs that may be attached to, each as run and output.
    pub outputs: Vec<(u64, u32)>,
}

/// One thing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadItem {
    /// Whole blocks, as they lie on the media.
    Blocks(Extent),
    /// The header of a page and the chunks of some of its columns.
    Columns {
        /// The page and its expected checksum.
        page: PageRef,
        /// The segment that it belongs to.
        segment: SegmentRef,
        /// The columns wanted, in order.
        columns: Vec<ColumnRef>,
    },
}

impl ReadItem {
    /// Roughly the bytes that it brings: of a page at most those of its blocks, unless it shares chunks with an earlier
    /// version of it. The lengths of chunks are in the header, which may not be here yet.
    pub fn byte_count(&self) -> u64 {
        match self {
            Self::Blocks(extent) => extent.bytes() as u64,
            Self::Columns { page, columns, .. } => {
                let own = page.extent.bytes() as u64;
                let shared = match page.row_count {
                    0..SHARING_ROWS_MIN => 0,
                    rows => u64::from(rows) * (columns.len() as u64).min(SHARED_COLUMNS_MAX),
                };
                own.max(shared * size_of::<u64>() as u64)
            }
        }
    }
}

/// Rows of a page that has few if it is small, and so shares nothing.
const SHARING_ROWS_MIN: u32 = 1 << 13;
/// Columns of a page that count as shared: 4 MiB of the largest page.
const SHARED_COLUMNS_MAX: u64 = 8;

/// The result of one [`ReadItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadPayload {
    /// The blocks.
    Blocks(Bytes),
    /// Parts of a page. The reader verifies them against the page's checksum.
    Columns {
        /// The page's stored header.
        header: Bytes,
        /// The chunks in the requested order; none where the page has no such chunk.
        chunks: Vec<Option<Bytes>>,
    },
}

impl ReadPayload {
    /// Bytes carried.
    pub fn byte_count(&self) -> usize {
        match self {
            Self::Blocks(blocks) => blocks.len(),
            Self::Columns { header, chunks } => {
                header.len() + chunks.iter().flatten().map(Bytes::len).sum::<usize>()
            }
        }
    }
}

/// One run of blocks to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteItem {
    /// The first block.
    pub start: BlockAddress,
    /// Whole blocks, with the checksum that the device compares before it writes.
    pub payload: Payload,
}

/// A page that is on no media and travels with a fragment ([`ShippedPages`](cleave_store::ShippedPages)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShippedPage {
    /// The address by which references name it.
    pub start: BlockAddress,
    /// Its blocks, with a checksum.
    pub payload: Payload,
}

/// Bytes with the checksum of their producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The bytes.
    pub bytes: Bytes,
    /// crc32c of the bytes.
    pub checksum: u32,
}

impl Payload {
    /// `bytes` with their checksum.
    pub fn new(bytes: Bytes) -> Self {
        let checksum = crc32c::crc32c(&bytes);
        Self { bytes, checksum }
    }

    /// Whether the bytes still match their checksum.
    pub fn is_intact(&self) -> bool {
        crc32c::crc32c(&self.bytes) == self.checksum
    }
}

/// The answer of a device to a [`Command`].
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To identify.
    Identity(Identity),
    /// To read.
    Read(Vec<ReadPayload>),
    /// To commands without a result.
    Done,
    /// To status.
    Status(DeviceStatus),
    /// To profile.
    Profile(Box<SideProfile>),
    /// To revoke.
    Kept(Kept),
}

/// The progress of a run with an input, and the morsels it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// The morsels.
    pub lease: Lease,
    /// Time during which partitions of the run have waited for the host to consume a slot, until now.
    pub stall: Duration,
}

/// The owner of a device: the incarnation of a database that claimed it last, which is the one that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ownership {
    /// The database.
    pub database: [u8; 16],
    /// How often it had been opened.
    pub epoch: u64,
    /// Which incarnation that was, among those of all copied folders of the database; not 0.
    pub incarnation: u64,
}

/// The identity and the capabilities of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The device's id, which stays with the media.
    pub device: [u8; 16],
    /// Fragments are exchanged only if this equals [`build_id`](crate::build_id) (rule 2).
    pub build: String,
    /// Version of the messages, [`PROTOCOL_VERSION`](super::wire::PROTOCOL_VERSION).
    pub protocol_version: u32,
    /// Services beyond blocks, in the order of [`CAPABILITIES`].
    pub capabilities: Vec<String>,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks of media now; reserve grows it.
    pub block_count: u64,
    /// Cores that fragments may use, in all.
    pub cores: u32,
    /// Bytes that fragments may use, in all.
    pub fragment_memory_bytes: u64,
    /// Largest slot it makes.
    pub slot_bytes_max: u32,
    /// Most bytes that one read may ask for or one write carry.
    pub transfer_bytes_max: u64,
    /// Its owner; `None` if nobody has claimed it, or the owner gave it up.
    pub owner: Option<Ownership>,
    /// The name of the storage node that it is an engine of; empty if it has none.
    pub node: String,
}

/// Reads address (page, columns).
pub const CAPABILITY_COLUMNS: &str = "columns";
/// Runs fragments.
pub const CAPABILITY_FRAGMENTS: &str = "fragments";
/// All capabilities that this version knows.
pub const CAPABILITIES: [&str; 2] = [CAPABILITY_COLUMNS, CAPABILITY_FRAGMENTS];

/// Most bytes that one read may ask for or one write carry.
pub const TRANSFER_BYTES_MAX: u64 = 32 << 20;
/// Smallest and largest slot that may be asked for.
pub const SLOT_BYTES: std::ops::RangeInclusive<u32> = 1024..=16 << 20;
/// Most bytes of an encoded slot: one row may make a slot larger than was asked for, up to this.
pub const ENCODED_SLOT_BYTES_MAX: u64 = 2 * *SLOT_BYTES.end() as u64;
/// Fewest and most slots that a run may have outstanding.
pub const SLOT_COUNT: std::ops::RangeInclusive<u32> = 1..=1024;
/// Most bytes of pages that may travel with a fragment.
pub const SHIPPED_BYTES_MAX: u64 = 16 << 20;
/// Most partitions of a pipeline.
pub const PARTITIONS_MAX: u32 = 256;

/// Runs a fragment. A repeated one attaches to the run that the first began, and so does one that says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Execute {
    /// Who asks; `run` identifies the run.
    pub header: CommandHeader,
    /// The build that wrote the fragment, [`build_id`](crate::build_id): another one refuses it (rule 2).
    pub build: String,
    /// The plan, as [`encode_fragment`](crate::encode_fragment) writes it.
    pub fragment: Bytes,
    /// The last commit number that the fragment sees.
    pub snapshot: u64,
    /// Morsels by the input number that the fragment's leaves name.
    pub inputs: Vec<(u32, Vec<Morsel>)>,
    /// Where those of their pages lie that are not on the device's own media.
    pub homes: Vec<PageHome>,
    /// How the devices are reached that `homes` and `peer_rows` name; a home that is not among them is of the same
    /// node.
    pub peers: Vec<Peer>,
    /// Inputs whose rows come from runs of devices.
    pub peer_rows: Vec<PeerRows>,
    /// Where its rows go.
    pub outputs: Outputs,
    /// The output that the sender of this execute listens to.
    pub output: u32,
    /// Whether it only attaches to a run that exists. Such an execute has no fragment and no inputs.
    pub attaches: bool,
    /// The index filters of inputs.
    pub index_filters: Vec<IndexFilter>,
    /// The index pages that it reads.
    pub indexes: Vec<IndexInput>,
    /// Broadcast rows.
    pub broadcasts: Vec<Broadcast>,
    /// Shipped pages of its inputs: they are kept for the run.
    pub shipped: Vec<ShippedPage>,
    /// Where it may write: extents that this database has reserved, used by no other run.
    pub reserved: Vec<Extent>,
    /// Whether the run asks for more when these are full ([`SpaceNeed`]); else it fails.
    pub extensible: bool,
    /// When what its scans' conditions are true for is noted on the device.
    pub history: HistoryMode,
    /// Partitions of the pipeline, all pulling from the same inputs; 0 leaves it to the device.
    pub partitions: u32,
    /// Whether other engines of the device's node may lend cores to it, if the device chooses the partitions.
    pub lends: bool,
    /// Bytes that the operators may hold.
    pub memory_bytes: u64,
    /// Slots that may be outstanding, in [`SLOT_COUNT`].
    pub slot_count: u32,
    /// Bytes that a slot should have, in [`SLOT_BYTES`].
    pub slot_bytes: u32,
    /// Session settings that change the meaning of expressions.
    pub settings: Vec<(String, String)>,
    /// Inputs whose scans may be fed filters while the run goes on.
    pub fed: Vec<u32>,
    /// The first slot wanted: 0, or the one after those that a lost stream delivered.
    pub first_slot: u64,
    /// How it locks rows, if it does: set by the link that has its [`HostedJob`](crate::row_locks::HostedJob).
    pub locks: Option<RunLocks>,
    /// What the run's span is made under.
    pub trace: Trace,
}

/// How a run locks rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLocks {
    /// In the lock table that the host handed over with the connection, as this job.
    Shared(Job),
    /// By batches over the run's own stream.
    Batches,
}

impl Execute {
    /// Bytes of memory that a run of it holds for its inputs: morsels, pages of indexes, and their entries that were
    /// found. Its plan, broadcasts and shipped pages are counted where they are taken.
    pub fn held_bytes(&self) -> usize {
        let morsels = self.inputs.iter().flat_map(|(_, morsels)| morsels);
        let morsels = morsels.map(|morsel| {
            let pages = morsel.pages.iter().map(|page| {
                let overflow = size_of_val(page.overflow.as_slice());
                size_of_val(page) + page.gaps.held_bytes() + page.dead.held_bytes() + overflow
            });
            size_of_val(morsel) + pages.sum::<usize>()
        });
        let runs = |runs: &[IndexPages]| -> usize {
            let fences =
                |run: &IndexPages| run.fences.iter().map(|f| size_of_val(f) + f.len()).sum();
            let run = |run: &IndexPages| -> usize {
                let fences: usize = fences(run);
                size_of_val(run) + size_of_val(run.pages.as_slice()) + fences
            };
            runs.iter().map(run).sum()
        };
        let index_filters = self.index_filters.iter().map(|index_filter| {
            let ranges = index_filter.ranges.iter().map(|range| {
                size_of_val(range) + range.from.len() + range.below.as_ref().map_or(0, Vec::len)
            });
            let parts = index_filter.parts.iter().map(|part| {
                let segments =
                    size_of_val(part.segments.as_slice()) + size_of_val(part.hot.as_slice());
                size_of_val(part) + segments + size_of_val(part.rows.as_slice()) + runs(&part.runs)
            });
            size_of_val(index_filter) + ranges.sum::<usize>() + parts.sum::<usize>()
        });
        let indexes = self.indexes.iter().map(|index| size_of_val(index) + runs(&index.runs));
        let homes = self.homes.iter().map(PageHome::held_bytes);
        let lists = morsels.chain(index_filters).chain(indexes).chain(homes);
        lists.sum::<usize>() + self.peer_bytes()
    }
}

/// A run that has filled its space waits for an extension of it. As a state of the run it may be told again: until the
/// extension of this number has come, and then at most with more blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpaceNeed {
    /// The number of the extension that comes next, from 1 on: [`Request::Extend`].
    pub extension: u32,
    /// Blocks that it needs at least, in one piece.
    pub block_count: u32,
}

/// One unit of the result ring.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// Position in the run's result, from 0 without gaps.
    pub number: u64,
    /// Rows in it.
    pub row_count: u64,
    /// The rows.
    pub payload: SlotPayload,
}

/// How a slot's rows travel.
#[derive(Debug, Clone, PartialEq)]
pub enum SlotPayload {
    /// One batch as Arrow IPC messages, without the schema.
    Encoded(Payload),
    /// The batch itself: both sides share memory.
    Batch(arrow::record_batch::RecordBatch),
}

/// What follows an accepted execute, in this order: slots, then one end.
#[derive(Debug)]
pub enum RunEvent {
    /// Rows.
    Slot(Slot),
    /// All slots were sent.
    Finished(Box<RunReport>),
    /// A request for locks, at any time before the run's end.
    Locks(LockCall),
    /// The run is full and waits for more space, at any time before its end.
    Full(SpaceNeed),
    /// The run failed on the device.
    Failed(super::status::DeviceError),
    /// The link lost the run; reported by links, never by devices.
    Lost(crate::link::LinkError),
}
