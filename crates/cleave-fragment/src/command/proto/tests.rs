//! Every message survives encoding and decoding; garbage is an error and never a panic.

use std::time::Duration;

use cleave_store::{DeadRows, KeyRange};
use proptest::prelude::*;

use super::answer::{
    decode_error, decode_need, decode_reply, decode_report, decode_slot, encode_error, encode_need,
    encode_reply, encode_report, encode_slot,
};
use super::*;
use crate::command::homes::PageHome;
use crate::command::message::{
    Grant, Identity, Ownership, ReadPayload, Reply, Slot, SlotPayload, SpaceNeed,
};
use crate::command::peers::{
    GRANTED_MAX, OUTPUTS_MAX, Outputs, PEER_HOST_BYTES_MAX, PEER_STREAMS_MAX, PEERS_MAX, Peer,
    PeerAddress, PeerRows, PeerSecret, PeerStream, PeerWay,
};
use crate::command::status::{
    DeviceError, DeviceErrorCause, DeviceStatus, MetricKind, OperatorMetric, RunReport, RunState,
    RunStatus,
};
use crate::filter_history::HistoryFigures;
use crate::index_filter::{IndexFilter, IndexFilteredPart, ScanKeys, Thrift};
use crate::index_input::{IndexInput, IndexPages};
use crate::profile::SideProfile;
use crate::strip::Strip;

fn header() -> CommandHeader {
    CommandHeader {
        database: [7; 16],
        epoch: 1,
        incarnation: u64::MAX - 1,
        run: u64::MAX,
        sequence: 3,
        interaction: 4,
    }
}

fn page(page: u32) -> PageRef {
    PageRef {
        page,
        extent: Extent { start: BlockAddress(u64::MAX), block_count: 9 },
        row_count: 5,
        checksum: 0xdead_beef,
    }
}

fn segment() -> SegmentRef {
    SegmentRef { table_id: 1, segment: SegmentId(2), schema_version: 3, commit: 4 }
}

fn grant() -> Grant {
    Grant {
        number: 1 << 40,
        secret: PeerSecret([0xab; 32]),
        extents: vec![page(0).extent, Extent { start: BlockAddress(0), block_count: 1 }],
        outputs: vec![(u64::MAX, 0), (1, u32::MAX)],
    }
}

fn address() -> PeerAddress {
    PeerAddress {
        host: "storage1".into(),
        port: u16::MAX,
        ca_pem: Some("a certificate".into()),
        grant: u64::MAX,
        secret: PeerSecret([7; 32]),
    }
}

fn every_request() -> Vec<Request> {
    let columns =
        vec![ColumnRef::User(0), ColumnRef::User(u32::MAX), ColumnRef::Vid, ColumnRef::Commit];
    let write = |start: u64, bytes: &'static [u8]| WriteItem {
        start: BlockAddress(start),
        payload: Payload::new(Bytes::from_static(bytes)),
    };
    vec![
        Request::Identify,
        Request::Read(vec![
            ReadItem::Blocks(page(0).extent),
            ReadItem::Columns { page: page(1), segment: segment(), columns },
            ReadItem::Columns { page: page(2), segment: segment(), columns: Vec::new() },
        ]),
        Request::Read(Vec::new()),
        Request::Write(vec![write(0, b"one"), write(u64::MAX, b"")]),
        Request::Sync,
        Request::Reserve { extents: vec![page(0).extent, page(0).extent] },
        Request::Fetch { consumed: 0, output: 0 },
        Request::Fetch { consumed: u64::MAX, output: u32::MAX },
        Request::Grant(grant()),
        Request::Grant(Grant { extents: Vec::new(), outputs: Vec::new(), ..grant() }),
        Request::EndGrant { number: u64::MAX },
        Request::Extend { number: 1, extents: vec![page(0).extent, page(1).extent] },
        Request::Extend { number: u32::MAX, extents: Vec::new() },
        Request::Cancel,
        Request::Release,
        Request::Status,
        Request::Claim { after: u64::MAX },
        Request::GiveUp,
        Request::Profile {
            again: true,
            sample: vec![page(0).extent],
            scratch: Some(page(0).extent),
        },
        Request::Profile { again: false, sample: Vec::new(), scratch: None },
    ]
}

#[test]
fn commands_come_back_as_they_were() {
    for request in every_request() {
        let command = Command::new(header(), request);
        assert_eq!(decode_command(encode_command(1, command.clone())).unwrap(), command);
    }
}

fn by_keys(thrift: Thrift) -> IndexFilter {
    let keys = ScanKeys {
        index: "an index".into(),
        column: 8,
        descending: thrift == Thrift::Work,
        nulls_first: thrift == Thrift::None,
        rows_per_key: u64::MAX,
        page_count: 12,
        thrift,
    };
    let run = IndexPages {
        segment: segment(),
        pages: vec![page(3)],
        fences: vec![Vec::new(), vec![7, 0, 255]],
    };
    let part = IndexFilteredPart {
        segments: vec![SegmentId(4), SegmentId(5)],
        runs: vec![run],
        hot: vec![SegmentId(5)],
        vid_covered: 99,
        ..IndexFilteredPart::default()
    };
    IndexFilter { input: 1, ranges: Vec::new(), keys: Some(keys), parts: vec![part] }
}

fn broadcast(input: u32, pieces: &[&'static [u8]]) -> Broadcast {
    let pieces = pieces.iter().map(|piece| Payload::new(Bytes::from_static(piece)));
    Broadcast { input, schema: Bytes::from_static(b"columns"), pieces: pieces.collect() }
}

#[test]
fn execute_comes_back_as_it_was() {
    let morsel = |number: u32| Morsel {
        number,
        segment: segment(),
        pages: vec![
            MorselPage {
                page: page(number),
                vid_first: 77,
                gaps: Default::default(),
                overflow: vec![page(5), page(6)],
                dead: DeadRows::of_slots([0, 1, 4], 5),
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
    let execute = Execute {
        header: header(),
        build: "a build".into(),
        fragment: Bytes::from_static(b"a plan"),
        snapshot: 12,
        inputs: vec![(3, vec![morsel(0), morsel(1)]), (0, Vec::new())],
        partitions: 4,
        memory_bytes: u64::MAX,
        slot_count: 6,
        slot_bytes: 7,
        settings: vec![("name".into(), "value".into())],
        first_slot: 8,
        locks: Some(RunLocks::Shared(Job {
            id: JobId::new(300).unwrap(),
            epoch: 1 << 40,
            goes_on: true,
        })),
        fed: vec![3],
        broadcasts: vec![broadcast(7, &[b"rows", b"more"]), broadcast(u32::MAX, &[])],
        shipped: [3, u64::MAX]
            .map(|start| ShippedPage {
                start: BlockAddress(start),
                payload: Payload::new(Bytes::from_static(b"a page")),
            })
            .into(),
        index_filters: vec![IndexFilter {
            input: 3,
            ranges: vec![
                KeyRange { from: Vec::new(), below: Some(vec![1]) },
                KeyRange { from: vec![2], below: None },
            ],
            keys: None,
            parts: vec![IndexFilteredPart {
                segments: vec![SegmentId(4), SegmentId(5)],
                runs: vec![IndexPages::whole(segment(), vec![page(3)])],
                rows: vec![0, u64::MAX],
                ..IndexFilteredPart::default()
            }],
        }]
        .into_iter()
        .chain([Thrift::Reads, Thrift::Work, Thrift::None].map(by_keys))
        .collect(),
        indexes: vec![IndexInput {
            number: 5,
            runs: vec![IndexPages::whole(segment(), vec![page(1), page(2)])],
        }],
        reserved: vec![page(0).extent, Extent { start: BlockAddress(0), block_count: 1 }],
        extensible: true,
        history: HistoryMode::Always,
        lends: true,
        homes: vec![
            PageHome { device: [8; 16], segments: vec![SegmentId(4), SegmentId(0)] },
            PageHome { device: [9; 16], segments: Vec::new() },
        ],
        peers: vec![
            Peer { device: [8; 16], way: PeerWay::Link(address()) },
            Peer { device: [9; 16], way: PeerWay::Link(PeerAddress { ca_pem: None, ..address() }) },
            Peer { device: [10; 16], way: PeerWay::Node },
        ],
        peer_rows: vec![
            PeerRows {
                input: 6,
                streams: vec![PeerStream { device: [9; 16], run: u64::MAX, output: 63 }],
            },
            PeerRows { input: 7, streams: Vec::new() },
        ],
        outputs: Outputs::ByHash { columns: vec![0, u32::MAX], count: 64 },
        output: 63,
        attaches: true,
        trace: Trace::of_peer(TraceContext::new([1; 16], [2; 8], 1).unwrap()),
    };
    let decoded = decode_execute(encode_execute(1, execute.clone())).unwrap();
    // Any two traces are equal.
    assert_eq!(decoded.trace.context(), execute.trace.context());
    assert_eq!(decoded, execute);
    for wrong in [[1; 24].as_slice(), &[1; 26], &[0; 25]] {
        let error = trace_from_proto(&Bytes::copy_from_slice(wrong)).unwrap_err();
        assert!(error.to_string().contains("trace"), "{wrong:?}");
    }
    assert_eq!(trace_from_proto(&Bytes::new()).unwrap().context(), None);
    let short = PageHomeProto { device: Bytes::from_static(&[8; 15]), ..Default::default() };
    assert!(home_from_proto(short).unwrap_err().to_string().contains("device"));
    let by_batches = Execute { locks: Some(RunLocks::Batches), ..execute.clone() };
    assert_eq!(decode_execute(encode_execute(1, by_batches.clone())).unwrap(), by_batches);
    let copies = Execute { outputs: Outputs::Copies(2), ..execute.clone() };
    assert_eq!(decode_execute(encode_execute(1, copies.clone())).unwrap(), copies);
    let attaching = Execute::attaching(header(), 5, (4, 4096));
    assert_eq!(decode_execute(encode_execute(1, attaching.clone())).unwrap(), attaching);
    let locks = RunLocksProto { job: Some(u32::MAX), epoch: 1, goes_on: false };
    assert!(locks_from_proto(locks).unwrap_err().to_string().contains("job"));
    let mut spoilt = encode_execute(1, execute.clone());
    spoilt.parts[0].checksum ^= 1;
    assert!(decode_execute(spoilt).unwrap_err().to_string().contains("fragment"));
    let mut spoilt = encode_execute(1, execute.clone());
    spoilt.parts[2].checksum ^= 1;
    assert!(decode_execute(spoilt).unwrap_err().to_string().contains("broadcast"));
    let mut spoilt = encode_execute(1, execute.clone());
    spoilt.parts[4].checksum ^= 1;
    assert!(decode_execute(spoilt).unwrap_err().to_string().contains("shipped delta"));
    let mut fewer = encode_execute(1, execute.clone());
    fewer.parts.pop();
    assert_eq!(decode_execute(fewer).unwrap_err(), MalformedMessage::Parts);
    let mut more = encode_execute(1, execute.clone());
    more.parts.push(Payload::new(Bytes::from_static(b"nobody's")));
    assert_eq!(decode_execute(more).unwrap_err(), MalformedMessage::Parts);
    let mut without = encode_execute(1, execute);
    without.parts.clear();
    assert_eq!(decode_execute(without).unwrap_err(), MalformedMessage::Parts);
}

/// What no host sends: more than may be, or what names nothing.
#[test]
fn peers_and_grants_beyond_their_bounds_are_refused() {
    let refused = |execute: Execute| decode_execute(encode_execute(1, execute)).unwrap_err();
    let plain = || Execute::attaching(header(), 0, (1, 4096));
    let at = |address| Peer { device: [1; 16], way: PeerWay::Link(address) };
    let peer = || Peer { device: [1; 16], way: PeerWay::Node };
    let error = refused(Execute { peers: vec![peer(); PEERS_MAX + 1], ..plain() });
    assert_eq!(error, MalformedMessage::Field("number of peers"));
    for host in [String::new(), "x".repeat(PEER_HOST_BYTES_MAX + 1)] {
        let error =
            refused(Execute { peers: vec![at(PeerAddress { host, ..address() })], ..plain() });
        assert_eq!(error, MalformedMessage::Field("address of a peer"));
    }
    let error =
        refused(Execute { peers: vec![at(PeerAddress { port: 0, ..address() })], ..plain() });
    assert_eq!(error, MalformedMessage::Field("port of a peer"));
    let stream = |output| PeerStream { device: [1; 16], run: 1, output };
    let rows = |streams| vec![PeerRows { input: 0, streams }];
    let peer_rows = rows(vec![stream(0); PEER_STREAMS_MAX + 1]);
    let error = refused(Execute { peer_rows, ..plain() });
    assert_eq!(error, MalformedMessage::Field("number of streams from peers"));
    let error = refused(Execute { peer_rows: rows(vec![stream(OUTPUTS_MAX)]), ..plain() });
    assert_eq!(error, MalformedMessage::Field("output of a stream"));
    for count in [0, OUTPUTS_MAX + 1] {
        let error = refused(Execute { outputs: Outputs::Copies(count), ..plain() });
        assert_eq!(error, MalformedMessage::Field("division of rows among outputs"));
    }
    let large = Grant { outputs: vec![(1, 1); GRANTED_MAX + 1], ..grant() };
    let frame = encode_command(1, Command::new(header(), Request::Grant(large)));
    let error = MalformedMessage::Field("number of extents or outputs of a grant");
    assert_eq!(decode_command(frame).unwrap_err(), error);
}

fn every_reply() -> Vec<Reply> {
    let columns = |chunks: Vec<Option<&'static [u8]>>| ReadPayload::Columns {
        header: Bytes::from_static(b"header"),
        chunks: chunks.into_iter().map(|chunk| chunk.map(Bytes::from_static)).collect(),
    };
    let states = [
        RunState::Queued,
        RunState::Running,
        RunState::Stalled,
        RunState::Finished,
        RunState::Failed,
        RunState::Cancelled,
    ];
    vec![
        Reply::Done,
        Reply::Read(vec![
            ReadPayload::Blocks(Bytes::from_static(b"blocks")),
            columns(vec![Some(b"one"), None, Some(b""), None]),
            columns(Vec::new()),
            ReadPayload::Blocks(Bytes::new()),
        ]),
        Reply::Identity(Identity {
            device: [9; 16],
            build: "build".into(),
            protocol_version: 1,
            capabilities: vec!["columns".into()],
            block_size: 4096,
            block_count: 5,
            cores: 6,
            fragment_memory_bytes: 7,
            slot_bytes_max: 8,
            transfer_bytes_max: 9,
            owner: Some(Ownership { database: [1; 16], epoch: 2, incarnation: u64::MAX }),
            node: "a node".into(),
        }),
        Reply::Profile(Box::new(SideProfile::assumed(3, 1 << 20))),
        Reply::Status(DeviceStatus {
            incarnation: u64::MAX,
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
            runs: (0..)
                .zip(states)
                .map(|(run, state)| RunStatus {
                    run,
                    state,
                    slots: 2,
                    consumed: 1,
                    memory_bytes: 9,
                })
                .collect(),
            queue: 10,
        }),
    ]
}

#[test]
fn replies_come_back_as_they_were() {
    for reply in every_reply() {
        assert_eq!(decode_reply(encode_reply(1, reply.clone())).unwrap(), reply);
    }
}

#[test]
fn a_spoilt_or_missing_payload_of_a_reply_is_an_error() {
    let reply = every_reply().swap_remove(1);
    let mut spoilt = encode_reply(1, reply.clone());
    spoilt.parts[1].checksum ^= 1;
    assert!(decode_reply(spoilt).unwrap_err().to_string().contains("checksum"));
    let mut short = encode_reply(1, reply.clone());
    short.parts.pop();
    assert_eq!(decode_reply(short).unwrap_err(), MalformedMessage::Parts);
    let mut long = encode_reply(1, reply);
    long.parts.push(Payload::new(Bytes::new()));
    assert_eq!(decode_reply(long).unwrap_err(), MalformedMessage::Parts);
}

#[test]
fn errors_slots_and_reports_come_back_as_they_were() {
    let mut code = 1;
    while let Some(cause) = DeviceErrorCause::from_code(code) {
        let error = DeviceError::new(cause, "what happened");
        assert_eq!(decode_error(encode_error(FrameKind::Error, 1, &error)).unwrap(), error);
        code += 1;
    }
    assert_eq!(code, 22, "every cause has its number");
    let slot = Slot {
        number: 5,
        row_count: 6,
        payload: SlotPayload::Encoded(Payload::new(Bytes::from_static(b"rows"))),
    };
    assert_eq!(decode_slot(encode_slot(1, slot.clone()).unwrap()).unwrap(), slot);
    let kinds = [
        MetricKind::OutputRows,
        MetricKind::OutputBytes,
        MetricKind::OutputBatches,
        MetricKind::ElapsedCompute,
        MetricKind::Time,
        MetricKind::Count,
        MetricKind::Gauge,
    ];
    let report = RunReport {
        rows: 1,
        slots: 2,
        slot_bytes: 3,
        media_bytes: 4,
        foreign_bytes: 3,
        peer_slots: 2,
        peer_bytes: 9,
        pages_read: 5,
        morsels: 6,
        rows_scanned: 7,
        cpu: Duration::from_nanos(8),
        stall: Duration::from_nanos(9),
        wall: Duration::from_secs(10),
        peak_memory_bytes: 11,
        partitions: 12,
        lent: 5,
        kept: 7,
        worked: Strip::new(Duration::from_millis(2), vec![5, 6]).unwrap_or_default(),
        stalled: Strip::default(),
        operators: (0..)
            .zip(kinds)
            .map(|(node, kind)| OperatorMetric { node, name: "name".into(), value: 3, kind })
            .collect(),
    };
    assert_eq!(decode_report(encode_report(1, report.clone())).unwrap(), report);
    let need = SpaceNeed { extension: 1, block_count: u32::MAX };
    assert_eq!(decode_need(encode_need(1, need)).unwrap(), need);
    let mut long = encode_need(1, need);
    long.parts.push(Payload::new(Bytes::new()));
    assert_eq!(decode_need(long).unwrap_err(), MalformedMessage::Parts);
}

#[test]
fn numbers_that_mean_nothing_are_errors() {
    assert!(column_from_code((1 << 32) + 4).is_err());
    assert!(column_from_code(u64::MAX).is_err());
    let empty = Frame::of_head(FrameKind::Command, 1, Vec::new());
    assert_eq!(decode_command(empty).unwrap_err(), MalformedMessage::Field("header"));
    let error = Frame::of_head(FrameKind::Error, 1, vec![8, 99]);
    assert_eq!(decode_error(error).unwrap_err(), MalformedMessage::Field("cause"));
    for (extension, block_count) in [(0, 5), (5, 0)] {
        let need = encode_need(1, SpaceNeed { extension, block_count });
        assert_eq!(decode_need(need).unwrap_err(), MalformedMessage::Field("need of space"));
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(
        head in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let frame = |head: &[u8]| Frame::of_head(FrameKind::Command, 1, head.to_vec());
        let mut heads = vec![head];
        for request in every_request() {
            let mut head = encode_command(1, Command::new(header(), request)).head.to_vec();
            let at = at.index(head.len());
            head[at] ^= 1 << bit;
            heads.push(head);
        }
        for reply in every_reply() {
            let mut head = encode_reply(1, reply).head.to_vec();
            let at = at.index(head.len());
            head[at] ^= 1 << bit;
            heads.push(head);
        }
        for head in heads {
            drop(decode_command(frame(&head)));
            drop(decode_execute(frame(&head)));
            drop(decode_reply(frame(&head)));
            drop(decode_error(frame(&head)));
            drop(decode_slot(frame(&head)));
            drop(decode_report(frame(&head)));
            drop(decode_need(frame(&head)));
        }
    }
}

#[test]
fn a_reply_of_more_items_than_parts_is_refused() {
    // Empty items of a read reply; then one item of as many chunks.
    let mut items = vec![0x1a, 0x80, 0x80, 0x80, 0x01];
    items.extend([0x0a, 0x00].repeat(1 << 20));
    let mut chunks = vec![0x1a, 0x8a, 0x80, 0x40, 0x0a, 0x86, 0x80, 0x40, 0x08, 0x01, 0x12];
    chunks.extend([0x80, 0x80, 0x40]);
    chunks.extend(vec![0; 1 << 20]);
    for (head, field) in [(items, "number of fields"), (chunks, "number of chunks")] {
        let parts = vec![Payload::new(Bytes::new())];
        let frame = Frame { kind: FrameKind::Reply, request: 1, head: head.into(), parts };
        assert_eq!(decode_reply(frame), Err(MalformedMessage::Field(field)));
    }
}
