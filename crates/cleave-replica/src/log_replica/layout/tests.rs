//! The bytes of a replica: whole ones are read, torn ones are not.

use cleave_catalog::catalog::log_replicas::LogReplica;

use super::*;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn stamp() -> Stamp {
    Stamp {
        id: vec![7; 16],
        sequence: 3,
        ring_start: 100,
        ring_blocks: 8,
        log_start: 5 * BLOCK + 17,
        log_end: 9 * BLOCK + 3,
        tail: vec![1, 2, 3],
        fresh_start: 6 * BLOCK,
        ..Stamp::default()
    }
}

#[test]
fn a_stamp_is_read_as_it_was_written_or_not_at_all() {
    let sealed = stamp().seal();
    assert_eq!(sealed.len(), BLOCK_SIZE);
    assert_eq!(Stamp::open(&sealed), Some(stamp()));
    for at in 0..sealed.len() {
        let mut torn = sealed.clone();
        torn[at] ^= 0x40;
        // Behind the frame nothing counts.
        assert!(Stamp::open(&torn).is_none_or(|read| read == stamp()), "{at}");
    }
    assert_eq!(Stamp::open(&[]), None);
    let longest = Stamp {
        tail: vec![9; BLOCK_SIZE - 1],
        log_end: 10 * BLOCK - 1,
        segment_header: vec![0xff; 64],
        time_us: i64::MIN,
        ..stamp()
    };
    assert!(longest.seal().len() <= SLOT_BLOCKS as usize * BLOCK_SIZE);
    assert_eq!(Stamp::open(&longest.seal()), Some(longest));
    for wrong in [
        Stamp { tail: vec![1], ..stamp() },
        Stamp { fresh_start: 10 * BLOCK, ..stamp() },
        Stamp { log_start: 10 * BLOCK, ..stamp() },
        Stamp { ring_blocks: 3, ..stamp() },
    ] {
        assert_eq!(Stamp::open(&wrong.seal()), None);
    }
}

#[test]
fn the_log_goes_round_the_ring() {
    let found = stamp().ring_extents(6 * BLOCK, 9 * BLOCK);
    assert_eq!(found, [extent(106, 2), extent(100, 1)]);
    assert_eq!(stamp().ring_extents(BLOCK, BLOCK), []);
}

#[test]
fn room_is_what_nothing_has() {
    let arenas = [extent(10, 10), extent(50, 4)];
    let used = [extent(12, 3), extent(0, 11), extent(52, 9)];
    let mut room = Room::new(&arenas, used);
    assert_eq!(room.take(5), Some(extent(15, 5)));
    assert_eq!(room.take(2), Some(extent(50, 2)));
    assert_eq!(room.take(1), Some(extent(11, 1)));
    assert_eq!(room.take(1), None);
}

#[test]
fn the_manifest_has_it() {
    let replica = LogReplica {
        device: 3,
        id: [5; 16],
        arenas: vec![extent(1024, 129), extent(7, 3)],
        is_ended: true,
        gives_up: None,
    };
    assert_eq!(LogReplica::decode(replica.encode()), Some(replica.clone()));
    let word = LogReplica { gives_up: Some([6; 16]), ..replica.clone() };
    assert_eq!(LogReplica::decode(word.encode()), Some(word));
    let mut odd = replica.encode();
    odd.arenas.pop();
    assert_eq!(LogReplica::decode(odd), None);
}
