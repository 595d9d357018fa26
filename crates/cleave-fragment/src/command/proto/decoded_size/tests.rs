//! The size counted before decoding is at least the size of the decoded message.

use bytes::Bytes;
use cleave_media::BlockAddress;
use prost::Message;

use super::*;
use crate::command::message::{CommandHeader, Execute, Grant, Request};
use crate::command::peers::{PeerAddress, PeerSecret, PeerWay};
use crate::command::proto::{ExecuteProto, decode_execute, encode_command, encode_execute};
use crate::command::wire::{Frame, FrameKind};
use crate::command::{Command, ReadItem};

fn header() -> CommandHeader {
    CommandHeader { database: [1; 16], run: 5, ..CommandHeader::default() }
}

/// `bytes` as field `tag`, below 16.
fn inside(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![tag << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut message);
    message.extend_from_slice(bytes);
    message
}

#[test]
fn numbers_count_by_what_they_become() {
    const COUNT: usize = 1 << 20;
    let numbers = vec![1; COUNT];
    let becomes = (COUNT * size_of::<u64>()) as u64;
    // Every repeated number of an execute: fed, shipped, and those of pages, parts and runs.
    let page = |tag| inside(3, &inside(2, &inside(3, &inside(tag, &numbers))));
    let part = |tag| inside(13, &inside(3, &inside(tag, &numbers)));
    let segments = inside(2, &numbers);
    let mut home = vec![0xb2, 0x01];
    prost::encoding::encode_varint(segments.len() as u64, &mut home);
    home.extend(segments);
    // Columns by which rows are divided.
    let columns = inside(2, &numbers);
    let mut outputs = vec![0xca, 0x01];
    prost::encoding::encode_varint(columns.len() as u64, &mut outputs);
    outputs.extend(columns);
    for head in [
        inside(14, &numbers),
        [&[0x82, 0x01, 0x80, 0x80, 0x40], numbers.as_slice()].concat(),
        page(4),
        page(5),
        page(6),
        part(1),
        part(3),
        part(4),
        home,
        outputs,
    ] {
        let counted = execute_bytes(&head);
        assert!(counted >= becomes, "{counted} of {becomes}");
    }
    let columns = inside(3, &inside(1, &inside(4, &numbers)));
    let starts = inside(4, &inside(1, &numbers));
    assert!(command_bytes(&columns) >= becomes && command_bytes(&starts) >= becomes);
    // Unpacked numbers count the same.
    let single = [0x70, 1].repeat(COUNT);
    assert!(execute_bytes(&single) >= becomes);
    assert_eq!(execute_bytes(&inside(9, &numbers)), 0, "nobody knows that field");
}

#[test]
fn one_dead_row_takes_a_bit_for_all() {
    let pages = |dead: &[u8]| {
        let place = inside(1, &[0x18, 0x80, 0x80, 0x04]);
        let page = inside(3, &[place, dead.to_vec()].concat());
        execute_bytes(&inside(3, &inside(2, &page.repeat(1000))))
    };
    let bits = 1000 * 65_536 / 8;
    assert!(pages(&inside(4, &[5])) >= pages(&[]) + bits);
}

#[test]
fn what_hosts_send_counts_for_what_it_is() {
    let fragment = Bytes::from_static(b"a fragment");
    let extents = vec![Extent { start: BlockAddress(1), block_count: 1 }; 1000];
    let execute = Execute {
        header: header(),
        build: "a build".to_owned(),
        fragment,
        snapshot: 1,
        inputs: Vec::new(),
        index_filters: Vec::new(),
        indexes: Vec::new(),
        broadcasts: Vec::new(),
        shipped: Vec::new(),
        reserved: extents.clone(),
        extensible: true,
        history: crate::filter_history::HistoryMode::Always,
        partitions: 1,
        memory_bytes: 1,
        slot_count: 1,
        slot_bytes: 4096,
        settings: Vec::new(),
        fed: vec![1, 2, 3],
        first_slot: 0,
        locks: None,
        lends: false,
        homes: Vec::new(),
        peers: Vec::new(),
        peer_rows: Vec::new(),
        outputs: Outputs::One,
        output: 0,
        attaches: false,
        trace: Default::default(),
    };
    let peer = Peer {
        device: [1; 16],
        way: PeerWay::Link(PeerAddress {
            host: "x".repeat(200),
            port: 1,
            ca_pem: Some("x".repeat(4000)),
            grant: 1,
            secret: PeerSecret([1; 32]),
        }),
    };
    let streams = vec![PeerStream { device: [1; 16], run: 1, output: 1 }; 1000];
    let peer_rows = vec![PeerRows { input: 1, streams }];
    let with_peers = Execute { peers: vec![peer; 100], peer_rows, ..execute.clone() };
    let frame = encode_execute(1, with_peers.clone());
    let held = 100 * (size_of::<Peer>() as u64 + 4200) + 1000 * size_of::<PeerStream>() as u64;
    let rest = 1000 * size_of::<Extent>() as u64;
    let counted = execute_bytes(&frame.head);
    assert!((held..10 * (held + rest)).contains(&counted), "{counted} for {held}");
    assert_eq!(decode_execute(frame).unwrap(), with_peers);
    let frame = encode_execute(1, execute.clone());
    let counted = execute_bytes(&frame.head);
    let held = 1000 * size_of::<Extent>() as u64;
    assert!((held..10 * held).contains(&counted), "{counted} for {held}");
    assert_eq!(decode_execute(frame).unwrap(), execute);
    let reserve =
        encode_command(1, Command::new(header(), Request::Reserve { extents: extents.clone() }));
    assert!((held..10 * held).contains(&command_bytes(&reserve.head)));
    let extension = Request::Extend { number: 1, extents: extents.clone() };
    let extension = encode_command(1, Command::new(header(), extension));
    assert!((held..10 * held).contains(&command_bytes(&extension.head)));
    let grant = Grant {
        number: 1,
        secret: PeerSecret([1; 32]),
        extents: extents.clone(),
        outputs: vec![(1, 1); 1000],
    };
    let grant = encode_command(1, Command::new(header(), Request::Grant(grant)));
    assert!((2 * held..20 * held).contains(&command_bytes(&grant.head)));
    let reads = extents.into_iter().map(ReadItem::Blocks).collect();
    let read = encode_command(1, Command::new(header(), Request::Read(reads)));
    assert!(command_bytes(&read.head) >= 1000 * size_of::<ReadItem>() as u64);
    // A message that cannot be parsed to its end is counted as far as it can.
    let cut = Frame::of_head(FrameKind::Execute, 1, vec![0x72, 0x03, 1]);
    assert_eq!(execute_bytes(&cut.head), 0);
    assert!(ExecuteProto::decode(cut.head).is_err());
}
