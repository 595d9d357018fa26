//! Commands and answers: frames, their heads, and the batches in slots.
//!
//! The first byte selects the decoder. Heads are messages; other inputs are a byte stream as a peer would send it, with
//! the checksum corrected where there is a frame.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use bytes::Bytes;
use cleave_fragment::command::proto::answer::{
    decode_error, decode_need, decode_reply, decode_report, decode_slot, encode_error, encode_need,
    encode_reply, encode_report, encode_slot,
};
use cleave_fragment::command::proto::decoded_size::{command_bytes, execute_bytes};
use cleave_fragment::command::proto::{
    decode_command, decode_execute, encode_command, encode_execute,
};
use cleave_fragment::command::slot::{SlotDecoder, decode_schema, encode_batch, encode_schema};
use cleave_fragment::command::wire::{
    Frame, FrameKind, read_frame, read_hello, read_welcome, write_frame, write_hello,
};
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, DeviceStatus, Execute, Grant, Identity,
    Kept, LockAnswer, LockAnswers, LockBatch, LockCall, LockGrant, LockRefusal, LockSay,
    MetricKind, OperatorMetric, Outputs, Ownership, PageHome, Payload, Peer, PeerAddress, PeerRows,
    PeerSecret, PeerStream, PeerWay, ReadItem, ReadPayload, Reply, Request, RunLocks, RunReport,
    RunState, RunStatus, ShippedPage, Slot, SlotPayload, SpaceNeed, WriteItem,
};
use cleave_fragment::filter_history::HistoryFigures;
use cleave_fragment::link::Token;
use cleave_fragment::profile::SideProfile;
use cleave_fragment::strip::Strip;
use cleave_fragment::{
    Broadcast, BroadcastRows, IndexFilter, IndexFilteredPart, IndexInput, IndexPages, Lease,
    Morsel, MorselPage, ScanKeys, Thrift,
};
use cleave_media::{BlockAddress, Extent};
use cleave_store::{ColumnRef, KeyRange, PageRef, RecId, SHIPPED_START, SegmentId, SegmentRef};
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use futures::executor::block_on;

use super::Target;
use crate::mutate::Shape;

/// Commands, answers, and the frames that carry them.
pub const TARGET: Target = Target { name: "commands", shape: Shape::Message, seeds, run };

/// The token that a device requires.
const TOKEN: &str = "a-token-that-nobody-guesses-0123456789";

/// Memory limit for rows.
const MEMORY_BYTES: usize = 1 << 20;
/// The first byte of an input.
const HEADS: u8 = 0;
const STREAM: u8 = 1;
const SLOT: u8 = 2;
const SCHEMA: u8 = 3;
const LOCKS: u8 = 4;

/// Decodes one input.
fn run(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 5 {
        HEADS => heads(bytes),
        STREAM => stream(bytes),
        SLOT => {
            for batch in batches() {
                let decoder = SlotDecoder::new(&batch.schema());
                let decoded = decoder.decode(Bytes::copy_from_slice(bytes));
                if let Ok(batch) = decoded {
                    check(&batch);
                }
                let schema = encode_schema(&batch.schema()).unwrap_or_default();
                let piece = Payload::new(Bytes::copy_from_slice(bytes));
                rows_of(&Broadcast { input: 1, schema: schema.into(), pieces: vec![piece] });
            }
        }
        LOCKS => locks(bytes),
        _ => {
            let schema = Bytes::copy_from_slice(bytes);
            drop(decode_schema(schema.clone()));
            rows_of(&Broadcast { input: 1, schema, pieces: Vec::new() });
        }
    }
}

/// Lock messages: an accepted one must encode to the same bytes.
fn locks(bytes: &[u8]) {
    if let Ok(call) = LockCall::decode(bytes) {
        assert_eq!(call.encode(), bytes, "a call for locks changes on its way");
    }
    if let Ok(say) = LockSay::decode(bytes) {
        assert_eq!(say.encode(), bytes, "what is said of locks changes on its way");
    }
}

/// Rows as a device decodes them, within a memory budget.
fn rows_of(sent: &Broadcast) {
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(MEMORY_BYTES));
    if let Ok(rows) = BroadcastRows::decode(sent, &memory) {
        rows.batches().iter().for_each(check);
    }
}

/// Every decoder of a head, with as many parts as a reply may need.
fn heads(head: &[u8]) {
    let part = Payload::new(Bytes::from_static(b"a part"));
    for parts in [0, 1, 3, 1 + batches().len()] {
        let frame = || Frame {
            kind: FrameKind::Command,
            request: 1,
            head: Bytes::copy_from_slice(head),
            parts: vec![part.clone(); parts],
        };
        // An accepted message must encode to the same bytes.
        if let Ok(command) = decode_command(frame()) {
            if let Request::Read(items) = &command.request {
                let held = size_of_val(items.as_slice()) as u64;
                assert!(
                    held <= command_bytes(head),
                    "a read holds {held} bytes and counts for less"
                );
            }
            let again = decode_command(encode_command(1, command.clone()));
            assert_eq!(again.as_ref(), Ok(&command), "a command changes on its way");
        }
        if let Ok(execute) = decode_execute(frame()) {
            let counted = execute_bytes(head);
            let held = execute.held_bytes() as u64;
            assert!(held <= counted, "an execute holds {held} bytes, and was counted as {counted}");
            let again = decode_execute(encode_execute(1, execute.clone()));
            assert_eq!(again.as_ref(), Ok(&execute), "an execute changes on its way");
        }
        if let Ok(reply) = decode_reply(frame()) {
            let again = decode_reply(encode_reply(1, reply.clone()));
            assert_eq!(again.as_ref(), Ok(&reply), "a reply changes on its way");
        }
        drop(decode_error(frame()));
        drop(decode_slot(frame()));
        drop(decode_report(frame()));
        if let Ok(need) = decode_need(frame()) {
            assert_eq!(decode_need(encode_need(1, need)), Ok(need), "a need changes on its way");
        }
    }
}

/// The bytes of a connection: handshakes, then frames to the end.
fn stream(bytes: &[u8]) {
    if let Ok(token) = Token::new(TOKEN, "the fuzzer") {
        drop(block_on(read_hello(&mut &*bytes, Some(&token))));
    }
    drop(block_on(read_welcome(&mut &*bytes)));
    let mut fitting = bytes.to_vec();
    fit_checksum(&mut fitting);
    for mut rest in [bytes, fitting.as_slice()] {
        while let Ok(Some(frame)) = block_on(read_frame(&mut rest)) {
            drop(frame.length());
            match frame.kind {
                FrameKind::Execute => {
                    let execute = decode_execute(frame);
                    execute.iter().flat_map(|execute| &execute.broadcasts).for_each(rows_of);
                }
                FrameKind::Reply => drop(decode_reply(frame)),
                FrameKind::Slot => drop(decode_slot(frame)),
                FrameKind::Report => drop(decode_report(frame)),
                FrameKind::Error | FrameKind::Goodbye => drop(decode_error(frame)),
                FrameKind::Locks => drop(LockCall::decode(&frame.head)),
                FrameKind::Full => drop(decode_need(frame)),
                _ => drop(decode_command(frame)),
            }
        }
    }
}

/// Corrects the checksum of the first frame, which covers the frame up to the end of the head, itself left out.
fn fit_checksum(bytes: &mut [u8]) {
    let number = |at: usize| {
        let field = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
        field.map_or(0, |field| usize::try_from(u32::from_le_bytes(*field)).unwrap_or(0))
    };
    let end = 25_usize.saturating_add(number(21).saturating_mul(8)).saturating_add(number(17));
    let (Some(before), Some(behind)) = (bytes.get(..13), bytes.get(17..end.min(bytes.len())))
    else {
        return;
    };
    let checksum = crc32c::crc32c_append(crc32c::crc32c(before), behind);
    if let Some(place) = bytes.get_mut(13..17) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
}

fn check(batch: &RecordBatch) {
    for array in batch.columns() {
        if let Err(error) = array.to_data().validate_full() {
            panic!("a slot holds an array that is not sound: {error}");
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut frames: Vec<Frame> =
        requests().into_iter().map(|r| encode_command(1, Command::new(header(), r))).collect();
    frames.push(encode_execute(2, execute()));
    frames.extend(replies().into_iter().map(|reply| encode_reply(3, reply)));
    let error = DeviceError::new(DeviceErrorCause::Corrupt, "what happened");
    frames.push(encode_error(FrameKind::Error, 4, &error));
    frames.push(encode_report(5, report()));
    frames.push(encode_need(5, SpaceNeed { extension: 2, block_count: 64 }));
    let slots = batches().iter().filter_map(|batch| encode_batch(batch).ok()).collect::<Vec<_>>();
    let payload = slots.first().cloned().unwrap_or_default();
    let payload = SlotPayload::Encoded(Payload::new(payload.into()));
    frames.extend(encode_slot(6, Slot { number: 5, row_count: 6, payload }));
    frames.push(Frame::of_head(FrameKind::Ping, 0, Vec::new()));

    let mut seeds: Vec<Vec<u8>> = frames.iter().map(|frame| tagged(HEADS, &frame.head)).collect();
    for frame in &frames {
        let mut bytes = Vec::new();
        if block_on(write_frame(&mut bytes, frame)).is_ok() {
            seeds.push(tagged(STREAM, &bytes));
        }
    }
    if let Ok(token) = Token::new(TOKEN, "the fuzzer") {
        let mut hello = Vec::new();
        if block_on(write_hello(&mut hello, Some(&token))).is_ok() {
            seeds.push(tagged(STREAM, &hello));
        }
    }
    seeds.extend(slots.iter().map(|slot| tagged(SLOT, slot)));
    seeds.extend(compressed().iter().map(|slot| tagged(SLOT, slot)));
    let schemas = batches().into_iter().filter_map(|batch| encode_schema(&batch.schema()).ok());
    seeds.extend(schemas.map(|schema| tagged(SCHEMA, &schema)));
    let vids = vec![1 << 40, 5, 6, 7, u64::MAX];
    let batch = LockBatch { number: 1, object: 7, waits: true, vids };
    let conflict = RecId::new(SegmentId(3), 4, 5).ok();
    let newest = conflict.map(LockAnswer::Conflict);
    let answers = [Some(LockAnswer::Granted), Some(LockAnswer::Queued), newest, newest];
    let answers = answers.into_iter().flatten().chain([LockAnswer::NotFree]).collect();
    let grants = vec![
        LockGrant { number: 1, row: 3, newest: None },
        LockGrant { number: 900, row: 0, newest: conflict },
    ];
    let locks = [
        LockCall::Lock(batch).encode(),
        LockCall::GiveUp { below: 300 }.encode(),
        LockCall::Release.encode(),
        LockCall::Escalate { object: 300 }.encode(),
        LockSay::Answers(LockAnswers { number: 1, answers }).encode(),
        LockSay::Grants(grants).encode(),
        LockSay::Refused(LockRefusal::Deadlock).encode(),
        LockSay::Released.encode(),
        LockSay::Escalated { object: 300 }.encode(),
    ];
    seeds.extend(locks.map(|locks| tagged(LOCKS, &locks)));
    seeds
}

fn tagged(kind: u8, bytes: &[u8]) -> Vec<u8> {
    std::iter::once(kind).chain(bytes.iter().copied()).collect()
}

/// Batches of the shapes that fragments return: numbers and texts, dictionaries, lists.
fn batches() -> Vec<RecordBatch> {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("one"), None, Some("→ three")]));
    let dictionary: DictionaryArray<Int32Type> = vec!["a", "b", "a"].into_iter().collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), Some(2)]),
        None,
        Some(vec![]),
    ]);
    let batch = |columns: Vec<ArrayRef>| {
        let fields = columns.iter().enumerate().map(|(number, column)| {
            Field::new(format!("c{number}"), column.data_type().clone(), true)
        });
        RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).ok()
    };
    let views = arrow::compute::cast(&texts, &DataType::Utf8View).ok();
    [
        batch(vec![numbers, Arc::clone(&texts)]),
        batch(vec![Arc::new(dictionary)]),
        batch(vec![Arc::new(list)]),
        views.and_then(|views| batch(vec![views])),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The same batches compressed, which no build writes: their lengths are only claimed.
fn compressed() -> Vec<Vec<u8>> {
    let mut slots = Vec::new();
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec));
        let Ok(options) = options else { continue };
        for batch in batches() {
            let mut tracker = DictionaryTracker::new(false);
            let generator = IpcDataGenerator::default();
            let _schema = generator.schema_to_bytes_with_dictionary_tracker(
                &batch.schema(),
                &mut tracker,
                &options,
            );
            let encoded = generator.encode(&batch, &mut tracker, &options, &mut Default::default());
            let Ok((dictionaries, message)) = encoded else { continue };
            let mut slot = Vec::new();
            for message in dictionaries.into_iter().chain([message]) {
                if write_message(&mut slot, message, &options).is_err() {
                    slot.clear();
                }
            }
            let decoded = SlotDecoder::new(&batch.schema()).decode(slot.clone().into());
            assert!(decoded.is_err(), "what is compressed was taken");
            slots.push(slot);
        }
    }
    assert!(!slots.is_empty(), "nothing is compressed in this build");
    slots
}

/// Broadcast rows of every shape.
fn broadcasts() -> Vec<Broadcast> {
    let sent = (0..).zip(batches()).filter_map(|(input, batch)| {
        BroadcastRows::new(batch.schema(), vec![batch], None).encode(input).ok()
    });
    sent.collect()
}

fn header() -> CommandHeader {
    CommandHeader {
        database: [7; 16],
        epoch: 1,
        incarnation: 9,
        run: u64::MAX,
        sequence: 3,
        interaction: 4,
    }
}

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn page(page: u32) -> PageRef {
    PageRef { page, extent: extent(77, 9), row_count: 5, checksum: 0xdead_beef }
}

fn segment() -> SegmentRef {
    SegmentRef { table_id: 1, segment: SegmentId(2), schema_version: 3, commit: 4 }
}

fn requests() -> Vec<Request> {
    let columns = vec![ColumnRef::User(0), ColumnRef::User(9), ColumnRef::Vid, ColumnRef::Commit];
    let write = |start: u64, bytes: &'static [u8]| WriteItem {
        start: BlockAddress(start),
        payload: Payload::new(Bytes::from_static(bytes)),
    };
    vec![
        Request::Identify,
        Request::Read(vec![
            ReadItem::Blocks(extent(5, 2)),
            ReadItem::Columns { page: page(1), segment: segment(), columns },
        ]),
        Request::Write(vec![write(0, b"one"), write(u64::MAX, b"")]),
        Request::Sync,
        Request::Reserve { extents: vec![extent(0, 4), extent(9, u32::MAX)] },
        Request::Fetch { consumed: 12, output: 1 },
        Request::Grant(Grant {
            number: 5,
            secret: PeerSecret([7; 32]),
            extents: vec![extent(0, 4), extent(9, u32::MAX)],
            outputs: vec![(1, 0), (u64::MAX, 63)],
        }),
        Request::EndGrant { number: u64::MAX },
        Request::Feed { input: 1, generation: 9, filter: Bytes::from_static(b"filter") },
        Request::Revoke { input: 2, keep: u32::MAX },
        Request::Extend { number: 3, extents: vec![extent(1 << 40, 4096), extent(9, 1)] },
        Request::Extend { number: 4, extents: Vec::new() },
        Request::Locks(LockSay::Refused(LockRefusal::Over)),
        Request::Cancel,
        Request::Release,
        Request::Status,
        Request::Claim { after: u64::MAX },
        Request::GiveUp,
        Request::Profile { again: true, sample: vec![extent(7, 3)], scratch: Some(extent(7, 3)) },
        Request::Profile { again: false, sample: Vec::new(), scratch: None },
    ]
}

fn execute() -> Execute {
    let morsel = |number: u32| Morsel {
        number,
        segment: segment(),
        pages: vec![
            MorselPage {
                page: page(number),
                vid_first: 77,
                gaps: Default::default(),
                overflow: vec![page(5)],
                dead: Default::default(),
            },
            MorselPage {
                page: page(8),
                vid_first: 0,
                gaps: Default::default(),
                overflow: Vec::new(),
                dead: Default::default(),
            },
        ],
    };
    Execute {
        header: header(),
        build: "a build".into(),
        fragment: Bytes::from_static(b"a part"),
        snapshot: 12,
        inputs: vec![(3, vec![morsel(0), morsel(1)]), (0, Vec::new())],
        partitions: 4,
        memory_bytes: 1 << 20,
        slot_count: 6,
        slot_bytes: 4096,
        settings: vec![("name".into(), "value".into())],
        first_slot: 8,
        locks: Some(RunLocks::Batches),
        fed: vec![0, 7],
        broadcasts: broadcasts(),
        shipped: vec![ShippedPage {
            start: BlockAddress(SHIPPED_START.0 + 3),
            payload: Payload::new(Bytes::from_static(b"a page")),
        }],
        index_filters: vec![
            IndexFilter {
                input: 3,
                ranges: vec![KeyRange { from: vec![2], below: Some(vec![3]) }],
                keys: None,
                parts: vec![IndexFilteredPart {
                    segments: vec![SegmentId(4)],
                    runs: vec![IndexPages::whole(segment(), vec![page(3)])],
                    rows: vec![0, 9],
                    ..IndexFilteredPart::default()
                }],
            },
            IndexFilter {
                input: 0,
                ranges: Vec::new(),
                keys: Some(ScanKeys {
                    index: "t_k".into(),
                    column: 2,
                    descending: true,
                    nulls_first: false,
                    rows_per_key: 7,
                    page_count: 9,
                    thrift: Thrift::Work,
                }),
                parts: vec![IndexFilteredPart {
                    segments: vec![SegmentId(4), SegmentId(6)],
                    runs: vec![IndexPages {
                        segment: segment(),
                        pages: vec![page(3)],
                        fences: vec![vec![1, 2], vec![1, 5]],
                    }],
                    rows: Vec::new(),
                    hot: vec![SegmentId(6)],
                    vid_covered: 70,
                }],
            },
        ],
        indexes: vec![IndexInput {
            number: 5,
            runs: vec![IndexPages::whole(segment(), vec![page(1), page(2)])],
        }],
        reserved: vec![extent(9, 4), extent(0, 1)],
        extensible: true,
        history: cleave_fragment::filter_history::HistoryMode::Off,
        lends: true,
        homes: vec![PageHome { device: [8; 16], segments: vec![SegmentId(4)] }],
        peers: vec![
            Peer { device: [7; 16], way: PeerWay::Node },
            Peer {
                device: [8; 16],
                way: PeerWay::Link(PeerAddress {
                    host: "storage1".into(),
                    port: 7432,
                    ca_pem: Some("a certificate".into()),
                    grant: 5,
                    secret: PeerSecret([7; 32]),
                }),
            },
        ],
        peer_rows: vec![PeerRows {
            input: 9,
            streams: vec![PeerStream { device: [7; 16], run: 4, output: 1 }],
        }],
        outputs: Outputs::ByHash { columns: vec![0, 2], count: 3 },
        output: 2,
        attaches: false,
        trace: Default::default(),
    }
}

fn replies() -> Vec<Reply> {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    vec![
        Reply::Done,
        Reply::Kept(Kept {
            lease: Lease { begun: 3, kept: u32::MAX },
            stall: Duration::from_millis(4),
        }),
        Reply::Read(vec![
            ReadPayload::Blocks(bytes("blocks")),
            ReadPayload::Columns { header: bytes("header"), chunks: vec![Some(bytes("1")), None] },
        ]),
        Reply::Identity(Identity {
            device: [9; 16],
            build: "build".into(),
            protocol_version: 2,
            capabilities: vec!["columns".into()],
            block_size: 4096,
            block_count: 5,
            cores: 6,
            fragment_memory_bytes: 7,
            slot_bytes_max: 8,
            transfer_bytes_max: 9,
            owner: Some(Ownership { database: [1; 16], epoch: 2, incarnation: 3 }),
            node: "node".into(),
        }),
        Reply::Profile(Box::new(SideProfile::assumed(3, 1 << 20))),
        Reply::Status(DeviceStatus {
            incarnation: 3,
            fragment_memory_bytes: 1,
            fragment_memory_bytes_free: 2,
            block_count: 3,
            reserved_block_count: 4,
            media_bytes_read: 5,
            media_bytes_written: 6,
            history: HistoryFigures {
                leaves: 1,
                entries: 2,
                bytes: 3,
                bytes_max: 4,
                hits: 5,
                misses: 6,
            },
            runs: vec![RunStatus {
                run: 1,
                state: RunState::Running,
                slots: 2,
                consumed: 1,
                memory_bytes: 9,
            }],
            queue: 7,
        }),
    ]
}

fn report() -> RunReport {
    RunReport {
        rows: 1,
        slots: 2,
        slot_bytes: 3,
        media_bytes: 4,
        foreign_bytes: 2,
        peer_slots: 3,
        peer_bytes: 4,
        pages_read: 5,
        morsels: 6,
        rows_scanned: 7,
        cpu: Duration::from_nanos(8),
        stall: Duration::from_nanos(9),
        wall: Duration::from_secs(10),
        peak_memory_bytes: 11,
        partitions: 12,
        lent: 4,
        kept: 13,
        worked: Strip::new(Duration::from_millis(2), vec![5, 6]).unwrap_or_default(),
        stalled: Strip::default(),
        operators: vec![OperatorMetric {
            node: 0,
            name: "output_rows".into(),
            value: 3,
            kind: MetricKind::OutputRows,
        }],
    }
}
