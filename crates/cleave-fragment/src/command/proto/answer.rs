//! Encodes answers as protobuf: replies, errors, slots, reports.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::{Decoded, EmptyProto, MalformedMessage, identity_from, no_more};
use crate::command::message::{
    Identity, Kept, Ownership, Payload, ReadPayload, Reply, Slot, SlotPayload, SpaceNeed,
};
use crate::command::status::{
    DeviceError, DeviceErrorCause, DeviceStatus, MetricKind, OperatorMetric, RunReport, RunState,
    RunStatus,
};
use crate::command::wire::{Frame, FrameKind, PART_COUNT_MAX};
use crate::field_count::count_fields;
use crate::filter_history::HistoryFigures;
use crate::morsel::Lease;
use crate::profile::proto::{SideProto, side_from_proto, side_to_proto};
use crate::strip::Strip;

#[derive(Clone, PartialEq, Message)]
struct ReplyProto {
    #[prost(oneof = "AnswerProto", tags = "1, 2, 3, 4, 5, 6")]
    answer: Option<AnswerProto>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnswerProto {
    #[prost(message, tag = "1")]
    Done(EmptyProto),
    #[prost(message, tag = "2")]
    Identity(IdentityProto),
    #[prost(message, tag = "3")]
    Read(ReadAnswerProto),
    #[prost(message, tag = "4")]
    Status(StatusProto),
    #[prost(message, tag = "5")]
    Profile(SideProto),
    #[prost(message, tag = "6")]
    Kept(KeptProto),
}

#[derive(Clone, PartialEq, Message)]
struct SpaceNeedProto {
    #[prost(uint32, tag = "1")]
    extension: u32,
    #[prost(uint32, tag = "2")]
    block_count: u32,
}

#[derive(Clone, PartialEq, Message)]
struct KeptProto {
    #[prost(uint32, tag = "1")]
    begun: u32,
    #[prost(uint32, tag = "2")]
    kept: u32,
    #[prost(uint64, tag = "3")]
    stall_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
struct IdentityProto {
    #[prost(bytes = "bytes", tag = "1")]
    device: Bytes,
    #[prost(string, tag = "2")]
    build: String,
    #[prost(uint32, tag = "3")]
    protocol_version: u32,
    #[prost(string, repeated, tag = "4")]
    capabilities: Vec<String>,
    #[prost(uint32, tag = "5")]
    block_size: u32,
    #[prost(uint64, tag = "6")]
    block_count: u64,
    #[prost(uint32, tag = "7")]
    cores: u32,
    #[prost(uint64, tag = "8")]
    fragment_memory_bytes: u64,
    #[prost(uint32, tag = "9")]
    slot_bytes_max: u32,
    #[prost(uint64, tag = "10")]
    transfer_bytes_max: u64,
    #[prost(message, optional, tag = "11")]
    owner: Option<OwnershipProto>,
    #[prost(string, tag = "12")]
    node: String,
}

#[derive(Clone, PartialEq, Message)]
struct OwnershipProto {
    #[prost(bytes = "bytes", tag = "1")]
    database: Bytes,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(fixed64, tag = "3")]
    incarnation: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ReadAnswerProto {
    #[prost(message, repeated, tag = "1")]
    items: Vec<ReadItemAnswerProto>,
}

/// Parts: the blocks, or the header and then the chunks that the page has.
#[derive(Clone, PartialEq, Message)]
struct ReadItemAnswerProto {
    #[prost(bool, tag = "1")]
    is_columns: bool,
    #[prost(bool, repeated, tag = "2")]
    has_chunk: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusProto {
    #[prost(uint64, tag = "1")]
    fragment_memory_bytes: u64,
    #[prost(uint64, tag = "2")]
    fragment_memory_bytes_free: u64,
    #[prost(uint64, tag = "3")]
    block_count: u64,
    #[prost(uint64, tag = "4")]
    reserved_block_count: u64,
    #[prost(uint64, tag = "5")]
    media_bytes_read: u64,
    #[prost(uint64, tag = "6")]
    media_bytes_written: u64,
    #[prost(message, repeated, tag = "7")]
    runs: Vec<RunStatusProto>,
    #[prost(fixed64, tag = "8")]
    incarnation: u64,
    #[prost(message, optional, tag = "9")]
    history: Option<HistoryProto>,
    #[prost(uint64, tag = "10")]
    queue: u64,
}

#[derive(Clone, PartialEq, Message)]
struct HistoryProto {
    #[prost(uint64, tag = "1")]
    leaves: u64,
    #[prost(uint64, tag = "2")]
    entries: u64,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    #[prost(uint64, tag = "4")]
    bytes_max: u64,
    #[prost(uint64, tag = "5")]
    hits: u64,
    #[prost(uint64, tag = "6")]
    misses: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RunStatusProto {
    #[prost(uint64, tag = "1")]
    run: u64,
    #[prost(uint32, tag = "2")]
    state: u32,
    #[prost(uint64, tag = "3")]
    slots: u64,
    #[prost(uint64, tag = "4")]
    consumed: u64,
    #[prost(uint64, tag = "5")]
    memory_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorProto {
    #[prost(uint32, tag = "1")]
    cause: u32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct SlotProto {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, tag = "2")]
    row_count: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ReportProto {
    #[prost(uint64, tag = "1")]
    rows: u64,
    #[prost(uint64, tag = "2")]
    slots: u64,
    #[prost(uint64, tag = "3")]
    slot_bytes: u64,
    #[prost(uint64, tag = "4")]
    media_bytes: u64,
    #[prost(uint64, tag = "5")]
    pages_read: u64,
    #[prost(uint64, tag = "6")]
    morsels: u64,
    #[prost(uint64, tag = "7")]
    rows_scanned: u64,
    #[prost(uint64, tag = "8")]
    cpu_ns: u64,
    #[prost(uint64, tag = "9")]
    stall_ns: u64,
    #[prost(uint64, tag = "10")]
    wall_ns: u64,
    #[prost(uint64, tag = "11")]
    peak_memory_bytes: u64,
    #[prost(uint32, tag = "12")]
    partitions: u32,
    #[prost(message, repeated, tag = "13")]
    operators: Vec<OperatorMetricProto>,
    #[prost(uint32, tag = "14")]
    kept: u32,
    #[prost(message, optional, tag = "15")]
    worked: Option<StripProto>,
    #[prost(message, optional, tag = "16")]
    stalled: Option<StripProto>,
    #[prost(uint64, tag = "17")]
    lent: u64,
    #[prost(uint64, tag = "18")]
    foreign_bytes: u64,
    #[prost(uint64, tag = "19")]
    peer_slots: u64,
    #[prost(uint64, tag = "20")]
    peer_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StripProto {
    #[prost(uint64, tag = "1")]
    width_ns: u64,
    #[prost(uint64, repeated, tag = "2")]
    amounts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorMetricProto {
    #[prost(uint32, tag = "1")]
    node: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, tag = "3")]
    value: u64,
    #[prost(uint32, tag = "4")]
    kind: u32,
}

fn strip_to_proto(strip: &Strip) -> StripProto {
    let width_ns = u64::try_from(strip.width().as_nanos()).unwrap_or(u64::MAX);
    StripProto { width_ns, amounts: strip.amounts().to_vec() }
}

fn strip_from_proto(strip: Option<StripProto>) -> Decoded<Strip> {
    let strip = strip.ok_or(MalformedMessage::Field("strip"))?;
    Strip::new(Duration::from_nanos(strip.width_ns), strip.amounts)
        .ok_or(MalformedMessage::Field("strip: columns of no width, or too many"))
}

fn owner_from_proto(owner: OwnershipProto) -> Decoded<Ownership> {
    let database = identity_from(&owner.database).ok_or(MalformedMessage::Field("owner"))?;
    Ok(Ownership { database, epoch: owner.epoch, incarnation: owner.incarnation })
}

/// `reply` as a frame.
pub fn encode_reply(request: u64, reply: Reply) -> Frame {
    let mut parts = Vec::new();
    let answer = match reply {
        Reply::Done => AnswerProto::Done(EmptyProto {}),
        Reply::Identity(identity) => AnswerProto::Identity(IdentityProto {
            device: Bytes::copy_from_slice(&identity.device),
            build: identity.build,
            protocol_version: identity.protocol_version,
            capabilities: identity.capabilities,
            block_size: identity.block_size,
            block_count: identity.block_count,
            cores: identity.cores,
            fragment_memory_bytes: identity.fragment_memory_bytes,
            slot_bytes_max: identity.slot_bytes_max,
            transfer_bytes_max: identity.transfer_bytes_max,
            owner: identity.owner.map(|owner| OwnershipProto {
                database: Bytes::copy_from_slice(&owner.database),
                epoch: owner.epoch,
                incarnation: owner.incarnation,
            }),
            node: identity.node,
        }),
        Reply::Read(payloads) => {
            let mut items = Vec::with_capacity(payloads.len());
            for payload in payloads {
                items.push(ReadItemAnswerProto {
                    is_columns: matches!(payload, ReadPayload::Columns { .. }),
                    has_chunk: match &payload {
                        ReadPayload::Blocks(_) => Vec::new(),
                        ReadPayload::Columns { chunks, .. } => {
                            chunks.iter().map(Option::is_some).collect()
                        }
                    },
                });
                match payload {
                    ReadPayload::Blocks(blocks) => parts.push(Payload::new(blocks)),
                    ReadPayload::Columns { header, chunks } => {
                        parts.push(Payload::new(header));
                        parts.extend(chunks.into_iter().flatten().map(Payload::new));
                    }
                }
            }
            AnswerProto::Read(ReadAnswerProto { items })
        }
        Reply::Status(status) => AnswerProto::Status(status_to_proto(status)),
        Reply::Profile(side) => AnswerProto::Profile(side_to_proto(*side)),
        Reply::Kept(Kept { lease, stall }) => AnswerProto::Kept(KeptProto {
            begun: lease.begun,
            kept: lease.kept,
            stall_ns: u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX),
        }),
    };
    let head = ReplyProto { answer: Some(answer) }.encode_to_vec();
    Frame { kind: FrameKind::Reply, request, head: head.into(), parts }
}

/// Most chunks of a page: those of 1600 columns and of the four version columns.
const CHUNK_COUNT_MAX: usize = 1604;
/// Fields of a reply besides those of its items, such as the runs of a status.
const FIELD_COUNT_BESIDES: usize = 64 << 10;

/// The reply in a frame of kind [`FrameKind::Reply`], its payloads compared with their checksums.
pub fn decode_reply(frame: Frame) -> Decoded<Reply> {
    // An item has at least one part; two fields for each are enough for every other reply.
    if count_fields(&frame.head) > 2 * PART_COUNT_MAX as usize + FIELD_COUNT_BESIDES {
        return Err(MalformedMessage::Field("number of fields"));
    }
    let message = ReplyProto::decode(frame.head)?;
    let mut parts = frame.parts.into_iter();
    let mut next_part = || {
        let part = parts.next().ok_or(MalformedMessage::Parts)?;
        if !part.is_intact() {
            return Err(MalformedMessage::Field("payload: it fails its checksum"));
        }
        Ok(part.bytes)
    };
    let reply = match message.answer.ok_or(MalformedMessage::Field("answer"))? {
        AnswerProto::Done(_) => Reply::Done,
        AnswerProto::Identity(identity) => Reply::Identity(Identity {
            device: identity_from(&identity.device).ok_or(MalformedMessage::Field("device"))?,
            build: identity.build,
            protocol_version: identity.protocol_version,
            capabilities: identity.capabilities,
            block_size: identity.block_size,
            block_count: identity.block_count,
            cores: identity.cores,
            fragment_memory_bytes: identity.fragment_memory_bytes,
            slot_bytes_max: identity.slot_bytes_max,
            transfer_bytes_max: identity.transfer_bytes_max,
            owner: identity.owner.map(owner_from_proto).transpose()?,
            node: identity.node,
        }),
        AnswerProto::Read(read) => {
            let mut payloads = Vec::new();
            for item in read.items {
                if item.has_chunk.len() > CHUNK_COUNT_MAX {
                    return Err(MalformedMessage::Field("number of chunks"));
                }
                let first = next_part()?;
                payloads.push(if item.is_columns {
                    let mut chunks = Vec::new();
                    for has_chunk in item.has_chunk {
                        chunks.push(if has_chunk { Some(next_part()?) } else { None });
                    }
                    ReadPayload::Columns { header: first, chunks }
                } else {
                    ReadPayload::Blocks(first)
                });
            }
            Reply::Read(payloads)
        }
        AnswerProto::Status(status) => Reply::Status(status_from_proto(status)?),
        AnswerProto::Profile(side) => Reply::Profile(Box::new(side_from_proto(side)?)),
        AnswerProto::Kept(KeptProto { begun, kept, stall_ns }) => {
            if begun > kept {
                return Err(MalformedMessage::Field("lease: more was begun than kept"));
            }
            let stall = Duration::from_nanos(stall_ns);
            Reply::Kept(Kept { lease: Lease { begun, kept }, stall })
        }
    };
    no_more(parts)?;
    Ok(reply)
}

/// Bytes of an error's text that cross; DataFusion's errors may quote a whole expression.
const ERROR_TEXT_BYTES_MAX: usize = 64 << 10;

/// `error` as a frame of `kind`. A text that is too long is cut.
pub fn encode_error(kind: FrameKind, request: u64, error: &DeviceError) -> Frame {
    let end = error.message.floor_char_boundary(ERROR_TEXT_BYTES_MAX);
    let text = error.message.get(..end).unwrap_or_default();
    let message = ErrorProto { cause: error.cause.code(), message: text.to_owned() };
    Frame::of_head(kind, request, message.encode_to_vec())
}

/// The error in a frame of kind [`FrameKind::Error`] or [`FrameKind::Goodbye`].
pub fn decode_error(frame: Frame) -> Decoded<DeviceError> {
    let message = ErrorProto::decode(frame.head)?;
    let cause =
        DeviceErrorCause::from_code(message.cause).ok_or(MalformedMessage::Field("cause"))?;
    Ok(DeviceError { cause, message: message.message })
}

/// `slot` as a frame. A batch that was not encoded has no frame.
pub fn encode_slot(request: u64, slot: Slot) -> Option<Frame> {
    let SlotPayload::Encoded(payload) = slot.payload else { return None };
    let head = SlotProto { number: slot.number, row_count: slot.row_count }.encode_to_vec();
    Some(Frame { kind: FrameKind::Slot, request, head: head.into(), parts: vec![payload] })
}

/// The slot in a frame of kind [`FrameKind::Slot`]; the decoder of its payload compares the checksum.
pub fn decode_slot(frame: Frame) -> Decoded<Slot> {
    let message = SlotProto::decode(frame.head)?;
    let mut parts = frame.parts.into_iter();
    let payload = parts.next().ok_or(MalformedMessage::Parts)?;
    no_more(parts)?;
    Ok(Slot {
        number: message.number,
        row_count: message.row_count,
        payload: SlotPayload::Encoded(payload),
    })
}

/// `need` as a frame.
pub fn encode_need(request: u64, need: SpaceNeed) -> Frame {
    let SpaceNeed { extension, block_count } = need;
    let message = SpaceNeedProto { extension, block_count };
    Frame::of_head(FrameKind::Full, request, message.encode_to_vec())
}

/// The need in a frame of kind [`FrameKind::Full`].
pub fn decode_need(frame: Frame) -> Decoded<SpaceNeed> {
    let SpaceNeedProto { extension, block_count } = SpaceNeedProto::decode(frame.head)?;
    no_more(frame.parts.into_iter())?;
    if extension == 0 || block_count == 0 {
        return Err(MalformedMessage::Field("need of space"));
    }
    Ok(SpaceNeed { extension, block_count })
}

/// `report` as a frame.
pub fn encode_report(request: u64, report: RunReport) -> Frame {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let message = ReportProto {
        rows: report.rows,
        slots: report.slots,
        slot_bytes: report.slot_bytes,
        media_bytes: report.media_bytes,
        foreign_bytes: report.foreign_bytes,
        peer_slots: report.peer_slots,
        peer_bytes: report.peer_bytes,
        pages_read: report.pages_read,
        morsels: report.morsels,
        rows_scanned: report.rows_scanned,
        cpu_ns: nanos(report.cpu),
        stall_ns: nanos(report.stall),
        wall_ns: nanos(report.wall),
        peak_memory_bytes: report.peak_memory_bytes,
        partitions: report.partitions,
        lent: report.lent,
        kept: report.kept,
        worked: Some(strip_to_proto(&report.worked)),
        stalled: Some(strip_to_proto(&report.stalled)),
        operators: report
            .operators
            .into_iter()
            .map(|metric| OperatorMetricProto {
                node: metric.node,
                name: metric.name,
                value: metric.value,
                kind: metric_kind_code(metric.kind),
            })
            .collect(),
    };
    Frame::of_head(FrameKind::Report, request, message.encode_to_vec())
}

/// Larger figures are reduced to this one: they are summed over many runs.
const FIGURE_MAX: u64 = 1 << 56;

/// The report in a frame of kind [`FrameKind::Report`].
pub fn decode_report(frame: Frame) -> Decoded<RunReport> {
    if count_fields(&frame.head) > FIELD_COUNT_BESIDES {
        return Err(MalformedMessage::Field("number of fields"));
    }
    let message = ReportProto::decode(frame.head)?;
    let operators = message.operators.into_iter().map(|metric| {
        Ok(OperatorMetric {
            node: metric.node,
            name: metric.name,
            value: metric.value.min(FIGURE_MAX),
            kind: METRIC_KINDS
                .into_iter()
                .find(|kind| metric_kind_code(*kind) == metric.kind)
                .ok_or(MalformedMessage::Field("metric kind"))?,
        })
    });
    Ok(RunReport {
        rows: message.rows,
        slots: message.slots,
        slot_bytes: message.slot_bytes.min(FIGURE_MAX),
        media_bytes: message.media_bytes.min(FIGURE_MAX),
        foreign_bytes: message.foreign_bytes.min(FIGURE_MAX),
        peer_slots: message.peer_slots.min(FIGURE_MAX),
        peer_bytes: message.peer_bytes.min(FIGURE_MAX),
        pages_read: message.pages_read.min(FIGURE_MAX),
        morsels: message.morsels.min(FIGURE_MAX),
        rows_scanned: message.rows_scanned.min(FIGURE_MAX),
        cpu: Duration::from_nanos(message.cpu_ns.min(FIGURE_MAX)),
        stall: Duration::from_nanos(message.stall_ns.min(FIGURE_MAX)),
        wall: Duration::from_nanos(message.wall_ns.min(FIGURE_MAX)),
        peak_memory_bytes: message.peak_memory_bytes.min(FIGURE_MAX),
        partitions: message.partitions,
        lent: message.lent.min(FIGURE_MAX),
        kept: message.kept,
        worked: strip_from_proto(message.worked)?,
        stalled: strip_from_proto(message.stalled)?,
        operators: operators.collect::<Decoded<_>>()?,
    })
}

const METRIC_KINDS: [MetricKind; 7] = [
    MetricKind::OutputRows,
    MetricKind::OutputBytes,
    MetricKind::OutputBatches,
    MetricKind::ElapsedCompute,
    MetricKind::Time,
    MetricKind::Count,
    MetricKind::Gauge,
];

fn metric_kind_code(kind: MetricKind) -> u32 {
    match kind {
        MetricKind::OutputRows => 1,
        MetricKind::OutputBytes => 2,
        MetricKind::OutputBatches => 3,
        MetricKind::ElapsedCompute => 4,
        MetricKind::Time => 5,
        MetricKind::Count => 6,
        MetricKind::Gauge => 7,
    }
}

impl From<HistoryFigures> for HistoryProto {
    fn from(figures: HistoryFigures) -> Self {
        let HistoryFigures { leaves, entries, bytes, bytes_max, hits, misses } = figures;
        Self { leaves, entries, bytes, bytes_max, hits, misses }
    }
}

impl From<HistoryProto> for HistoryFigures {
    fn from(figures: HistoryProto) -> Self {
        let HistoryProto { leaves, entries, bytes, bytes_max, hits, misses } = figures;
        Self { leaves, entries, bytes, bytes_max, hits, misses }
    }
}

fn status_to_proto(status: DeviceStatus) -> StatusProto {
    StatusProto {
        incarnation: status.incarnation,
        fragment_memory_bytes: status.fragment_memory_bytes,
        fragment_memory_bytes_free: status.fragment_memory_bytes_free,
        block_count: status.block_count,
        reserved_block_count: status.reserved_block_count,
        media_bytes_read: status.media_bytes_read,
        media_bytes_written: status.media_bytes_written,
        history: Some(HistoryProto::from(status.history)),
        runs: status
            .runs
            .into_iter()
            .map(|run| RunStatusProto {
                run: run.run,
                state: run_state_code(run.state),
                slots: run.slots,
                consumed: run.consumed,
                memory_bytes: run.memory_bytes,
            })
            .collect(),
        queue: status.queue,
    }
}

fn status_from_proto(status: StatusProto) -> Decoded<DeviceStatus> {
    let runs = status.runs.into_iter().map(|run| {
        Ok(RunStatus {
            run: run.run,
            state: RUN_STATES
                .into_iter()
                .find(|state| run_state_code(*state) == run.state)
                .ok_or(MalformedMessage::Field("run state"))?,
            slots: run.slots,
            consumed: run.consumed,
            memory_bytes: run.memory_bytes,
        })
    });
    Ok(DeviceStatus {
        incarnation: status.incarnation,
        fragment_memory_bytes: status.fragment_memory_bytes,
        fragment_memory_bytes_free: status.fragment_memory_bytes_free,
        block_count: status.block_count,
        reserved_block_count: status.reserved_block_count,
        media_bytes_read: status.media_bytes_read,
        media_bytes_written: status.media_bytes_written,
        history: status.history.map(HistoryFigures::from).unwrap_or_default(),
        runs: runs.collect::<Decoded<_>>()?,
        queue: status.queue,
    })
}

const RUN_STATES: [RunState; 6] = [
    RunState::Queued,
    RunState::Running,
    RunState::Stalled,
    RunState::Finished,
    RunState::Failed,
    RunState::Cancelled,
];

fn run_state_code(state: RunState) -> u32 {
    match state {
        RunState::Queued => 1,
        RunState::Running => 2,
        RunState::Stalled => 3,
        RunState::Finished => 4,
        RunState::Failed => 5,
        RunState::Cancelled => 6,
    }
}
