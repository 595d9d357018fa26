//! Encodes messages as protobuf, the heads of frames: commands here, their [`answer`]s in the module below.
//!
//! Each `encode_*` makes a [`Frame`]. Each `decode_*` takes one apart and trusts nothing in it: a value that makes no
//! sense is an error that names the field. Payloads never pass through protobuf; they are parts of the frame, in the
//! order in which the message mentions them.

use bytes::Bytes;
use cleave_media::{BlockAddress, Extent};
use cleave_shmem::{Job, JobId};
use cleave_store::{ColumnRef, PageRef, SegmentId, SegmentRef, VidGaps};
use prost::Message;

use super::lock_batch::{LOCK_MESSAGE_BYTES_MAX, LockSay};
use super::message::{
    Command, CommandHeader, Execute, Payload, ReadItem, Request, RunLocks, ShippedPage, WriteItem,
};
use super::wire::{Frame, FrameKind};
use crate::broadcast::Broadcast;
use crate::filter_history::HistoryMode;
use crate::morsel::{Morsel, MorselPage};
use crate::trace::{Trace, TraceContext};

pub mod answer;
mod dead_rows;
pub mod decoded_size;
mod homes;
mod indexes;
mod peers;

use homes::{PageHomeProto, home_from_proto, home_to_proto};
use indexes::{
    IndexFilterProto, IndexInputProto, index_filter_from_proto, index_filter_to_proto,
    index_from_proto, index_to_proto,
};

use peers::{
    FetchProto, GrantProto, OutputsProto, PeerProto, PeerRowsProto, grant_from_proto,
    grant_to_proto, outputs_from_proto, outputs_to_proto, peer_rows_from_proto, peer_rows_to_proto,
    peer_to_proto, peers_from_proto,
};

#[cfg(test)]
mod tests;

/// Why a message could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// Not protobuf.
    #[error("a message that cannot be decoded: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// A field that is missing or makes no sense.
    #[error("a message without a sensible {0}")]
    Field(&'static str),
    /// More or fewer payloads than the message mentions.
    #[error("a message whose payloads are not those that it mentions")]
    Parts,
}

const SPOILT_BROADCAST: &str = "broadcast: a piece of it fails its checksum";
const SPOILT_PAGE: &str = "page of the shipped delta: it fails its checksum";
/// Most broadcasts of one run: more than any plan has joins.
const BROADCAST_COUNT_MAX: usize = 1024;

type Decoded<T> = Result<T, MalformedMessage>;

#[derive(Clone, PartialEq, Message)]
struct HeaderProto {
    #[prost(bytes = "bytes", tag = "1")]
    database: Bytes,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    run: u64,
    #[prost(uint64, tag = "4")]
    sequence: u64,
    #[prost(uint64, tag = "5")]
    interaction: u64,
    #[prost(fixed64, tag = "6")]
    incarnation: u64,
}

#[derive(Clone, PartialEq, Message)]
struct CommandProto {
    #[prost(message, optional, tag = "1")]
    header: Option<HeaderProto>,
    #[prost(
        oneof = "RequestProto",
        tags = "2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 150"
    )]
    request: Option<RequestProto>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum RequestProto {
    #[prost(message, tag = "2")]
    Identify(EmptyProto),
    #[prost(message, tag = "3")]
    Read(ReadProto),
    #[prost(message, tag = "4")]
    Write(WriteProto),
    #[prost(message, tag = "5")]
    Sync(EmptyProto),
    #[prost(message, tag = "6")]
    Reserve(ReserveProto),
    #[prost(message, tag = "8")]
    Cancel(EmptyProto),
    #[prost(message, tag = "9")]
    Release(EmptyProto),
    #[prost(message, tag = "10")]
    Status(EmptyProto),
    #[prost(message, tag = "11")]
    Claim(ClaimProto),
    #[prost(message, tag = "12")]
    GiveUp(EmptyProto),
    #[prost(message, tag = "13")]
    Profile(ProfileProto),
    #[prost(message, tag = "14")]
    Revoke(RevokeProto),
    #[prost(message, tag = "15")]
    Feed(FeedProto),
    #[prost(message, tag = "16")]
    Extend(ExtendProto),
    #[prost(message, tag = "17")]
    Fetch(FetchProto),
    #[prost(message, tag = "18")]
    Grant(GrantProto),
    #[prost(fixed64, tag = "19")]
    EndGrant(u64),
    /// The lock message is the one part.
    #[prost(message, tag = "150")]
    Locks(EmptyProto),
}

/// The filter is the one part.
#[derive(Clone, PartialEq, Message)]
struct FeedProto {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(uint64, tag = "2")]
    generation: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ExtendProto {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(message, repeated, tag = "2")]
    extents: Vec<ExtentProto>,
}

#[derive(Clone, PartialEq, Message)]
struct RevokeProto {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(uint32, tag = "2")]
    keep: u32,
}

#[derive(Clone, PartialEq, Message)]
struct ProfileProto {
    #[prost(bool, tag = "1")]
    again: bool,
    #[prost(message, optional, tag = "2")]
    scratch: Option<ExtentProto>,
    #[prost(message, repeated, tag = "3")]
    sample: Vec<ExtentProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ClaimProto {
    #[prost(fixed64, tag = "2")]
    after: u64,
}

#[derive(Clone, PartialEq, Message)]
struct EmptyProto {}

#[derive(Clone, PartialEq, Message)]
struct ExtentProto {
    #[prost(uint64, tag = "1")]
    start: u64,
    #[prost(uint32, tag = "2")]
    block_count: u32,
}

#[derive(Clone, PartialEq, Message)]
struct PageProto {
    #[prost(uint32, tag = "1")]
    page: u32,
    #[prost(message, optional, tag = "2")]
    extent: Option<ExtentProto>,
    #[prost(uint32, tag = "3")]
    row_count: u32,
    #[prost(fixed32, tag = "4")]
    checksum: u32,
}

#[derive(Clone, PartialEq, Message)]
struct SegmentProto {
    #[prost(uint32, tag = "1")]
    table_id: u32,
    #[prost(uint32, tag = "2")]
    segment: u32,
    #[prost(uint32, tag = "3")]
    schema_version: u32,
    #[prost(uint64, tag = "4")]
    commit: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ReadProto {
    #[prost(message, repeated, tag = "1")]
    items: Vec<ReadItemProto>,
}

/// Blocks if `extent` is there, else columns of a page.
#[derive(Clone, PartialEq, Message)]
struct ReadItemProto {
    #[prost(message, optional, tag = "1")]
    extent: Option<ExtentProto>,
    #[prost(message, optional, tag = "2")]
    page: Option<PageProto>,
    #[prost(message, optional, tag = "3")]
    segment: Option<SegmentProto>,
    /// See [`column_code`].
    #[prost(uint64, repeated, tag = "4")]
    columns: Vec<u64>,
}

/// One part for each address.
#[derive(Clone, PartialEq, Message)]
struct WriteProto {
    #[prost(uint64, repeated, tag = "1")]
    starts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ReserveProto {
    #[prost(message, repeated, tag = "1")]
    extents: Vec<ExtentProto>,
}

/// The first part is the fragment; the next are the pieces of its broadcasts, one after the other, then the shipped
/// pages, one for each address.
#[derive(Clone, PartialEq, Message)]
struct ExecuteProto {
    #[prost(message, optional, tag = "1")]
    header: Option<HeaderProto>,
    #[prost(uint64, tag = "2")]
    snapshot: u64,
    #[prost(message, repeated, tag = "3")]
    inputs: Vec<InputProto>,
    #[prost(uint32, tag = "4")]
    partitions: u32,
    #[prost(uint64, tag = "5")]
    memory_bytes: u64,
    #[prost(uint32, tag = "6")]
    slot_count: u32,
    #[prost(uint32, tag = "7")]
    slot_bytes: u32,
    #[prost(message, repeated, tag = "8")]
    settings: Vec<SettingProto>,
    #[prost(uint64, tag = "9")]
    first_slot: u64,
    #[prost(string, tag = "10")]
    build: String,
    #[prost(message, repeated, tag = "11")]
    indexes: Vec<IndexInputProto>,
    #[prost(message, repeated, tag = "12")]
    reserved: Vec<ExtentProto>,
    #[prost(message, repeated, tag = "13")]
    index_filters: Vec<IndexFilterProto>,
    #[prost(uint32, repeated, tag = "14")]
    fed: Vec<u32>,
    #[prost(message, repeated, tag = "15")]
    broadcasts: Vec<BroadcastProto>,
    #[prost(uint64, repeated, tag = "16")]
    shipped: Vec<u64>,
    #[prost(bool, tag = "17")]
    extensible: bool,
    /// 1: on, 2: always.
    #[prost(uint32, tag = "18")]
    history: u32,
    #[prost(message, optional, tag = "20")]
    locks: Option<RunLocksProto>,
    #[prost(bool, tag = "21")]
    lends: bool,
    #[prost(message, repeated, tag = "22")]
    homes: Vec<PageHomeProto>,
    #[prost(message, repeated, tag = "23")]
    peers: Vec<PeerProto>,
    #[prost(message, repeated, tag = "24")]
    peer_rows: Vec<PeerRowsProto>,
    #[prost(message, optional, tag = "25")]
    outputs: Option<OutputsProto>,
    #[prost(uint32, tag = "26")]
    output: u32,
    #[prost(bool, tag = "27")]
    attaches: bool,
    /// Empty where nobody traces.
    #[prost(bytes = "bytes", tag = "28")]
    trace: Bytes,
}

/// Without a job the run locks by batches.
#[derive(Clone, PartialEq, Message)]
struct RunLocksProto {
    #[prost(uint32, optional, tag = "1")]
    job: Option<u32>,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(bool, tag = "3")]
    goes_on: bool,
}

#[derive(Clone, PartialEq, Message)]
struct BroadcastProto {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(bytes = "bytes", tag = "2")]
    schema: Bytes,
    #[prost(uint32, tag = "3")]
    piece_count: u32,
}

#[derive(Clone, PartialEq, Message)]
struct InputProto {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(message, repeated, tag = "2")]
    morsels: Vec<MorselProto>,
}

#[derive(Clone, PartialEq, Message)]
struct MorselProto {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(message, optional, tag = "2")]
    segment: Option<SegmentProto>,
    #[prost(message, repeated, tag = "3")]
    pages: Vec<MorselPageProto>,
}

#[derive(Clone, PartialEq, Message)]
struct MorselPageProto {
    #[prost(message, optional, tag = "1")]
    page: Option<PageProto>,
    #[prost(uint64, tag = "2")]
    vid_first: u64,
    #[prost(message, repeated, tag = "3")]
    overflow: Vec<PageProto>,
    /// Slots between a dead row and the next one.
    #[prost(uint32, repeated, tag = "4")]
    dead_gaps: Vec<u32>,
    /// Slots from each gap in the VIDs of the rows to the next one.
    #[prost(uint32, repeated, tag = "5")]
    gap_slots: Vec<u32>,
    /// VIDs that are missing in each of them.
    #[prost(uint64, repeated, tag = "6")]
    gap_counts: Vec<u64>,
    /// A bit for each row, set for those that are dead, where they are many.
    #[prost(bytes = "vec", tag = "7")]
    dead_bits: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct SettingProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `command` as a frame.
pub fn encode_command(request: u64, command: Command) -> Frame {
    let mut parts = Vec::new();
    let body = match command.request {
        Request::Identify => RequestProto::Identify(EmptyProto {}),
        Request::Read(items) => RequestProto::Read(ReadProto {
            items: items.into_iter().map(read_item_to_proto).collect(),
        }),
        Request::Write(items) => {
            let starts = items.iter().map(|item| item.start.0).collect();
            parts = items.into_iter().map(|item| item.payload).collect();
            RequestProto::Write(WriteProto { starts })
        }
        Request::Sync => RequestProto::Sync(EmptyProto {}),
        Request::Reserve { extents } => RequestProto::Reserve(ReserveProto {
            extents: extents.into_iter().map(extent_to_proto).collect(),
        }),
        Request::Fetch { consumed, output } => RequestProto::Fetch(FetchProto { consumed, output }),
        Request::Revoke { input, keep } => RequestProto::Revoke(RevokeProto { input, keep }),
        Request::Feed { input, generation, filter } => {
            parts = vec![Payload::new(filter)];
            RequestProto::Feed(FeedProto { input, generation })
        }
        Request::Extend { number, extents } => RequestProto::Extend(ExtendProto {
            number,
            extents: extents.into_iter().map(extent_to_proto).collect(),
        }),
        Request::Grant(grant) => RequestProto::Grant(grant_to_proto(grant)),
        Request::EndGrant { number } => RequestProto::EndGrant(number),
        Request::Locks(say) => {
            parts = vec![Payload::new(say.encode().into())];
            RequestProto::Locks(EmptyProto {})
        }
        Request::Cancel => RequestProto::Cancel(EmptyProto {}),
        Request::Release => RequestProto::Release(EmptyProto {}),
        Request::Status => RequestProto::Status(EmptyProto {}),
        Request::Claim { after } => RequestProto::Claim(ClaimProto { after }),
        Request::GiveUp => RequestProto::GiveUp(EmptyProto {}),
        Request::Profile { again, sample, scratch } => RequestProto::Profile(ProfileProto {
            again,
            scratch: scratch.map(extent_to_proto),
            sample: sample.into_iter().map(extent_to_proto).collect(),
        }),
    };
    let header = Some(header_to_proto(command.header));
    let head = CommandProto { header, request: Some(body) }.encode_to_vec();
    Frame { kind: FrameKind::Command, request, head: head.into(), parts }
}

/// The command in a frame of kind [`FrameKind::Command`].
pub fn decode_command(frame: Frame) -> Decoded<Command> {
    let message = CommandProto::decode(frame.head)?;
    let header = header_from_proto(message.header)?;
    let mut parts = frame.parts.into_iter();
    let request = match message.request.ok_or(MalformedMessage::Field("request"))? {
        RequestProto::Identify(_) => Request::Identify,
        RequestProto::Read(read) => {
            Request::Read(read.items.into_iter().map(read_item_from_proto).collect::<Decoded<_>>()?)
        }
        RequestProto::Write(write) => {
            let items = write.starts.into_iter().map(|start| {
                let payload = parts.next().ok_or(MalformedMessage::Parts)?;
                Ok(WriteItem { start: BlockAddress(start), payload })
            });
            Request::Write(items.collect::<Decoded<_>>()?)
        }
        RequestProto::Sync(_) => Request::Sync,
        RequestProto::Reserve(reserve) => {
            Request::Reserve { extents: reserve.extents.iter().map(extent_from_proto).collect() }
        }
        RequestProto::Fetch(FetchProto { consumed, output }) => Request::Fetch { consumed, output },
        RequestProto::Grant(grant) => grant_from_proto(grant)?,
        RequestProto::EndGrant(number) => Request::EndGrant { number },
        RequestProto::Revoke(RevokeProto { input, keep }) => Request::Revoke { input, keep },
        RequestProto::Feed(FeedProto { input, generation }) => {
            let filter = parts.next().ok_or(MalformedMessage::Parts)?;
            if !filter.is_intact() {
                return Err(MalformedMessage::Field("filter: it fails its checksum"));
            }
            Request::Feed { input, generation, filter: filter.bytes }
        }
        RequestProto::Extend(ExtendProto { number, extents }) => {
            Request::Extend { number, extents: extents.iter().map(extent_from_proto).collect() }
        }
        RequestProto::Locks(_) => {
            let say = parts.next().ok_or(MalformedMessage::Parts)?;
            if !say.is_intact() || say.bytes.len() > LOCK_MESSAGE_BYTES_MAX as usize {
                return Err(MalformedMessage::Field("message about locks"));
            }
            Request::Locks(LockSay::decode(&say.bytes)?)
        }
        RequestProto::Cancel(_) => Request::Cancel,
        RequestProto::Release(_) => Request::Release,
        RequestProto::Status(_) => Request::Status,
        RequestProto::Claim(claim) => Request::Claim { after: claim.after },
        RequestProto::GiveUp(_) => Request::GiveUp,
        RequestProto::Profile(profile) => Request::Profile {
            again: profile.again,
            sample: profile.sample.iter().map(extent_from_proto).collect(),
            scratch: profile.scratch.as_ref().map(extent_from_proto),
        },
    };
    no_more(parts)?;
    Ok(Command { header, request })
}

/// `execute` as a frame.
pub fn encode_execute(request: u64, execute: Execute) -> Frame {
    let mut parts = vec![Payload::new(execute.fragment)];
    let broadcasts = execute.broadcasts.into_iter().map(|Broadcast { input, schema, pieces }| {
        // A frame cannot have more parts than that.
        let piece_count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        parts.extend(pieces);
        BroadcastProto { input, schema, piece_count }
    });
    let broadcasts = broadcasts.collect();
    let shipped = execute.shipped.iter().map(|page| page.start.0).collect();
    parts.extend(execute.shipped.into_iter().map(|page| page.payload));
    let head = ExecuteProto {
        header: Some(header_to_proto(execute.header)),
        snapshot: execute.snapshot,
        inputs: execute
            .inputs
            .into_iter()
            .map(|(number, morsels)| InputProto {
                number,
                morsels: morsels.into_iter().map(morsel_to_proto).collect(),
            })
            .collect(),
        partitions: execute.partitions,
        memory_bytes: execute.memory_bytes,
        slot_count: execute.slot_count,
        slot_bytes: execute.slot_bytes,
        settings: execute
            .settings
            .into_iter()
            .map(|(name, value)| SettingProto { name, value })
            .collect(),
        first_slot: execute.first_slot,
        build: execute.build,
        indexes: execute.indexes.into_iter().map(index_to_proto).collect(),
        reserved: execute.reserved.into_iter().map(extent_to_proto).collect(),
        extensible: execute.extensible,
        history: match execute.history {
            HistoryMode::Off => 0,
            HistoryMode::On => 1,
            HistoryMode::Always => 2,
        },
        index_filters: execute.index_filters.into_iter().map(index_filter_to_proto).collect(),
        fed: execute.fed,
        broadcasts,
        shipped,
        locks: execute.locks.map(locks_to_proto),
        lends: execute.lends,
        homes: execute.homes.into_iter().map(home_to_proto).collect(),
        peers: execute.peers.into_iter().map(peer_to_proto).collect(),
        peer_rows: execute.peer_rows.into_iter().map(peer_rows_to_proto).collect(),
        outputs: outputs_to_proto(execute.outputs),
        output: execute.output,
        attaches: execute.attaches,
        trace: execute.trace.context().map(|context| context.to_bytes().into()).unwrap_or_default(),
    };
    Frame { kind: FrameKind::Execute, request, head: head.encode_to_vec().into(), parts }
}

/// The execute in a frame of kind [`FrameKind::Execute`].
pub fn decode_execute(frame: Frame) -> Decoded<Execute> {
    let message = ExecuteProto::decode(frame.head)?;
    let mut parts = frame.parts.into_iter();
    let fragment = parts.next().ok_or(MalformedMessage::Parts)?;
    if !fragment.is_intact() {
        return Err(MalformedMessage::Field("fragment: it fails its checksum"));
    }
    if message.broadcasts.len() > BROADCAST_COUNT_MAX {
        return Err(MalformedMessage::Field("number of broadcasts"));
    }
    let broadcasts = message.broadcasts.into_iter().map(|broadcast| {
        let pieces = (0..broadcast.piece_count).map(|_| {
            let piece = parts.next().ok_or(MalformedMessage::Parts)?;
            let is_intact = piece.is_intact();
            is_intact.then_some(piece).ok_or(MalformedMessage::Field(SPOILT_BROADCAST))
        });
        let pieces = pieces.collect::<Decoded<_>>()?;
        Ok(Broadcast { input: broadcast.input, schema: broadcast.schema, pieces })
    });
    let broadcasts = broadcasts.collect::<Decoded<_>>()?;
    let shipped = message.shipped.into_iter().map(|start| {
        let payload = parts.next().ok_or(MalformedMessage::Parts)?;
        let page = ShippedPage { start: BlockAddress(start), payload };
        page.payload.is_intact().then_some(page).ok_or(MalformedMessage::Field(SPOILT_PAGE))
    });
    let shipped = shipped.collect::<Decoded<_>>()?;
    no_more(parts)?;
    Ok(Execute {
        header: header_from_proto(message.header)?,
        build: message.build,
        fragment: fragment.bytes,
        snapshot: message.snapshot,
        inputs: message
            .inputs
            .into_iter()
            .map(|input| {
                let morsels = input.morsels.into_iter().map(morsel_from_proto);
                Ok((input.number, morsels.collect::<Decoded<_>>()?))
            })
            .collect::<Decoded<_>>()?,
        partitions: message.partitions,
        memory_bytes: message.memory_bytes,
        slot_count: message.slot_count,
        slot_bytes: message.slot_bytes,
        settings: message
            .settings
            .into_iter()
            .map(|setting| (setting.name, setting.value))
            .collect(),
        first_slot: message.first_slot,
        indexes: message.indexes.into_iter().map(index_from_proto).collect::<Decoded<_>>()?,
        reserved: message.reserved.iter().map(extent_from_proto).collect(),
        extensible: message.extensible,
        history: match message.history {
            0 => HistoryMode::Off,
            1 => HistoryMode::On,
            2 => HistoryMode::Always,
            _ => return Err(MalformedMessage::Field("a mode of filter history")),
        },
        index_filters: message
            .index_filters
            .into_iter()
            .map(index_filter_from_proto)
            .collect::<Decoded<_>>()?,
        fed: message.fed,
        broadcasts,
        shipped,
        locks: message.locks.map(locks_from_proto).transpose()?,
        lends: message.lends,
        homes: message.homes.into_iter().map(home_from_proto).collect::<Decoded<_>>()?,
        peers: peers_from_proto(message.peers)?,
        peer_rows: peer_rows_from_proto(message.peer_rows)?,
        outputs: outputs_from_proto(message.outputs)?,
        output: message.output,
        attaches: message.attaches,
        trace: trace_from_proto(&message.trace)?,
    })
}

fn trace_from_proto(trace: &Bytes) -> Decoded<Trace> {
    if trace.is_empty() {
        return Ok(Trace::default());
    }
    let context = TraceContext::from_bytes(trace);
    context.map(Trace::of_peer).ok_or(MalformedMessage::Field("context of a trace"))
}

fn locks_to_proto(locks: RunLocks) -> RunLocksProto {
    match locks {
        RunLocks::Shared(Job { id, epoch, goes_on }) => {
            RunLocksProto { job: Some(id.get().into()), epoch, goes_on }
        }
        RunLocks::Batches => RunLocksProto::default(),
    }
}

fn locks_from_proto(locks: RunLocksProto) -> Decoded<RunLocks> {
    let Some(number) = locks.job else { return Ok(RunLocks::Batches) };
    let id = u16::try_from(number).ok().and_then(JobId::new);
    let id = id.ok_or(MalformedMessage::Field("number of a job that locks rows"))?;
    Ok(RunLocks::Shared(Job { id, epoch: locks.epoch, goes_on: locks.goes_on }))
}

fn header_to_proto(header: CommandHeader) -> HeaderProto {
    HeaderProto {
        database: Bytes::copy_from_slice(&header.database),
        epoch: header.epoch,
        incarnation: header.incarnation,
        run: header.run,
        sequence: header.sequence,
        interaction: header.interaction,
    }
}

fn header_from_proto(header: Option<HeaderProto>) -> Decoded<CommandHeader> {
    let header = header.ok_or(MalformedMessage::Field("header"))?;
    Ok(CommandHeader {
        database: identity_from(&header.database).ok_or(MalformedMessage::Field("database"))?,
        epoch: header.epoch,
        incarnation: header.incarnation,
        run: header.run,
        sequence: header.sequence,
        interaction: header.interaction,
    })
}

fn identity_from(bytes: &Bytes) -> Option<[u8; 16]> {
    bytes.as_ref().try_into().ok()
}

fn extent_to_proto(extent: Extent) -> ExtentProto {
    ExtentProto { start: extent.start.0, block_count: extent.block_count }
}

fn extent_from_proto(extent: &ExtentProto) -> Extent {
    Extent { start: BlockAddress(extent.start), block_count: extent.block_count }
}

fn page_to_proto(page: PageRef) -> PageProto {
    PageProto {
        page: page.page,
        extent: Some(extent_to_proto(page.extent)),
        row_count: page.row_count,
        checksum: page.checksum,
    }
}

fn page_from_proto(page: PageProto) -> Decoded<PageRef> {
    let extent = page.extent.ok_or(MalformedMessage::Field("page extent"))?;
    Ok(PageRef {
        page: page.page,
        extent: extent_from_proto(&extent),
        row_count: page.row_count,
        checksum: page.checksum,
    })
}

fn segment_to_proto(segment: SegmentRef) -> SegmentProto {
    SegmentProto {
        table_id: segment.table_id,
        segment: segment.segment.0,
        schema_version: segment.schema_version,
        commit: segment.commit,
    }
}

fn segment_from_proto(segment: Option<SegmentProto>) -> Decoded<SegmentRef> {
    let segment = segment.ok_or(MalformedMessage::Field("segment"))?;
    Ok(SegmentRef {
        table_id: segment.table_id,
        segment: SegmentId(segment.segment),
        schema_version: segment.schema_version,
        commit: segment.commit,
    })
}

/// A column as a number: the user's by id, the version columns above all ids.
fn column_code(column: ColumnRef) -> u64 {
    const VERSION: u64 = 1 << 32;
    match column {
        ColumnRef::User(id) => u64::from(id),
        ColumnRef::Vid => VERSION,
        ColumnRef::Commit => VERSION + 1,
    }
}

fn column_from_code(code: u64) -> Decoded<ColumnRef> {
    if let Ok(id) = u32::try_from(code) {
        return Ok(ColumnRef::User(id));
    }
    [ColumnRef::Vid, ColumnRef::Commit]
        .into_iter()
        .find(|column| column_code(*column) == code)
        .ok_or(MalformedMessage::Field("column"))
}

fn read_item_to_proto(item: ReadItem) -> ReadItemProto {
    match item {
        ReadItem::Blocks(extent) => {
            ReadItemProto { extent: Some(extent_to_proto(extent)), ..ReadItemProto::default() }
        }
        ReadItem::Columns { page, segment, columns } => ReadItemProto {
            extent: None,
            page: Some(page_to_proto(page)),
            segment: Some(segment_to_proto(segment)),
            columns: columns.into_iter().map(column_code).collect(),
        },
    }
}

fn read_item_from_proto(item: ReadItemProto) -> Decoded<ReadItem> {
    if let Some(extent) = item.extent {
        return Ok(ReadItem::Blocks(extent_from_proto(&extent)));
    }
    Ok(ReadItem::Columns {
        page: page_from_proto(item.page.ok_or(MalformedMessage::Field("read item"))?)?,
        segment: segment_from_proto(item.segment)?,
        columns: item.columns.into_iter().map(column_from_code).collect::<Decoded<_>>()?,
    })
}

fn morsel_to_proto(morsel: Morsel) -> MorselProto {
    MorselProto {
        number: morsel.number,
        segment: Some(segment_to_proto(morsel.segment)),
        pages: morsel
            .pages
            .into_iter()
            .map(|page| {
                let (gap_slots, gap_counts) = page.gaps.steps();
                let (dead_gaps, dead_bits) = dead_rows::to_proto(&page.dead);
                MorselPageProto {
                    page: Some(page_to_proto(page.page)),
                    vid_first: page.vid_first,
                    overflow: page.overflow.into_iter().map(page_to_proto).collect(),
                    dead_gaps,
                    dead_bits,
                    gap_slots,
                    gap_counts,
                }
            })
            .collect(),
    }
}

fn morsel_from_proto(morsel: MorselProto) -> Decoded<Morsel> {
    let pages = morsel.pages.into_iter().map(|page| {
        let place = page_from_proto(page.page.ok_or(MalformedMessage::Field("morsel page"))?)?;
        let gaps = VidGaps::from_steps(&page.gap_slots, &page.gap_counts, place.row_count)
            .ok_or(MalformedMessage::Field("VIDs of a morsel page"))?;
        Ok(MorselPage {
            page: place,
            gaps,
            dead: dead_rows::from_proto(&page.dead_gaps, page.dead_bits, place.row_count)?,
            vid_first: page.vid_first,
            overflow: page.overflow.into_iter().map(page_from_proto).collect::<Decoded<_>>()?,
        })
    });
    Ok(Morsel {
        number: morsel.number,
        segment: segment_from_proto(morsel.segment)?,
        pages: pages.collect::<Decoded<_>>()?,
    })
}

fn no_more(mut parts: impl Iterator<Item = Payload>) -> Decoded<()> {
    if parts.next().is_some() { Err(MalformedMessage::Parts) } else { Ok(()) }
}
