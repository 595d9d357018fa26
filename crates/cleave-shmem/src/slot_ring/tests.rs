//! Rings over heap bytes, as Miri can run them, also against a hostile other side.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use proptest::prelude::*;

use super::pair::{RING_BYTES_MIN, RingPair, Side};
use super::*;
use crate::region::Region;

fn heap() -> RingPair {
    RingPair::on_heap(RING_BYTES_MIN).unwrap()
}

fn read_all(consumer: &mut Consumer) -> Vec<u8> {
    let mut found = Vec::new();
    while consumer.read(&mut found).unwrap().bytes > 0 {}
    found
}

#[test]
fn bytes_come_out_as_they_went_in_both_ways() {
    let pair = heap();
    let (mut to_guest, mut at_maker) = pair.ends(Side::Maker).unwrap();
    let (mut to_maker, mut at_guest) = pair.ends(Side::Guest).unwrap();
    for side in [Side::Maker, Side::Guest] {
        assert_eq!(pair.clone().ends(side).unwrap_err(), RingError::Taken);
    }
    assert_eq!(to_guest.write(b"question").unwrap(), Moved { bytes: 8, wake: false });
    assert_eq!(to_maker.write(b"answer").unwrap().bytes, 6);
    assert_eq!(read_all(&mut at_guest), b"question");
    assert_eq!(read_all(&mut at_maker), b"answer");
}

#[test]
fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
    let (mut producer, _) = heap().ends(Side::Maker).unwrap();
    assert_eq!(producer.write(&[1; 5000]).unwrap().bytes, RING_BYTES_MIN);
    assert_eq!(producer.write(&[1]).unwrap(), Moved::NOTHING);
    assert_eq!(producer.write(&[]).unwrap(), Moved::NOTHING);
    let (_, mut consumer) = heap().ends(Side::Maker).unwrap();
    assert_eq!(consumer.read(&mut Vec::new()).unwrap(), Moved::NOTHING);
}

#[test]
fn a_side_that_sleeps_is_to_be_woken_once() {
    let pair = heap();
    let (mut producer, _) = pair.ends(Side::Maker).unwrap();
    let (_, mut consumer) = pair.ends(Side::Guest).unwrap();
    assert!(consumer.prepare_to_sleep().unwrap());
    assert!(producer.write(&[1]).unwrap().wake);
    assert!(!producer.write(&[2]).unwrap().wake);
    assert!(!consumer.prepare_to_sleep().unwrap(), "there is something to read");
    assert_eq!(read_all(&mut consumer), [1, 2]);
    while producer.write(&[3; 1000]).unwrap().bytes > 0 {}
    assert!(producer.prepare_to_sleep().unwrap());
    // A little room is no reason to wake it, a quarter is.
    let mut some = Vec::new();
    assert!(!consumer.read(&mut (&mut some).limit(1000)).unwrap().wake);
    assert!(consumer.read(&mut (&mut some).limit(100)).unwrap().wake);
    assert!(!producer.prepare_to_sleep().unwrap(), "there is room");
}

#[test]
fn positions_that_cannot_be_end_the_ring() {
    let pair = heap();
    let (mut producer, _) = pair.ends(Side::Maker).unwrap();
    let (_, mut consumer) = pair.ends(Side::Guest).unwrap();
    producer.write(&[1; 100]).unwrap();
    let mut found = Vec::new();
    consumer.read(&mut (&mut found).limit(50)).unwrap();
    let control = producer.memory.control();
    for tail in [99, 0, 51 + RING_BYTES_MIN as u64, u64::MAX, 1 << 63] {
        control.tail.0.store(tail, Ordering::Relaxed);
        assert_eq!(consumer.look(), Err(RingError::Position { ours: 50, theirs: tail }));
        assert!(consumer.prepare_to_sleep().is_err());
    }
    let mut producer = producer;
    producer.look().unwrap();
    for head in [49, 0, 101, u64::MAX] {
        producer.memory.control().head.0.store(head, Ordering::Relaxed);
        assert_eq!(producer.look(), Err(RingError::Position { ours: 100, theirs: head }));
        assert!(producer.write(&[1; RING_BYTES_MIN]).is_err());
    }
}

#[test]
fn regions_that_are_laid_out_otherwise_are_refused() {
    let refusal = |bytes: usize, magic: &[u8; 8], version: u32, ring_bytes: u64| {
        let region = Region::on_heap(bytes).unwrap();
        let mut header = magic.to_vec();
        header.extend(version.to_le_bytes());
        header.extend([0; 4]);
        header.extend(ring_bytes.to_le_bytes());
        spoil(&region, &header);
        RingPair::open(region).map(|_| ())
    };
    let bytes = RingPair::region_bytes(RING_BYTES_MIN);
    let ring = RING_BYTES_MIN as u64;
    assert_eq!(refusal(bytes, b"CLVSHM\r\n", 1, ring), Ok(()));
    assert!(refusal(bytes, b"CLVSHM\n\n", 1, ring).is_err());
    assert!(refusal(bytes, b"CLVSHM\r\n", 2, ring).is_err());
    for wrong in [0, 1, ring - 1, ring * 2, u64::MAX, 1 << 62] {
        assert!(refusal(bytes, b"CLVSHM\r\n", 1, wrong).is_err(), "{wrong}");
    }
    assert!(refusal(100, b"CLVSHM\r\n", 1, ring).is_err());
    assert!(RingPair::open(Region::on_heap(1).unwrap()).is_err());
    assert!(RingPair::on_heap(5000).is_err() && RingPair::create(1 << 30).is_err());
}

/// Writes `bytes` at the beginning of `region`.
#[expect(unsafe_code, reason = "what a hostile process does")]
fn spoil(region: &Region, bytes: &[u8]) {
    let start = region.part(0, bytes.len()).unwrap();
    // SAFETY: within the region, which nobody else uses.
    unsafe { start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

#[test]
fn two_threads_pass_bytes_through_one_ring() {
    let total: usize = if cfg!(miri) { 20_000 } else { 20_000_000 };
    let pair = heap();
    let (mut producer, _) = pair.ends(Side::Maker).unwrap();
    let (_, mut consumer) = pair.ends(Side::Guest).unwrap();
    let bytes: Vec<u8> = (0..total).map(|i| u8::try_from(i % 251).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                let moved = producer.write(&left[..left.len().min(777)]).unwrap();
                left = &left[moved.bytes..];
                if moved.bytes == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut found = Vec::with_capacity(total);
        while found.len() < total {
            if consumer.read(&mut (&mut found).limit(1000)).unwrap().bytes == 0 {
                std::thread::yield_now();
            }
        }
        assert!(found == bytes);
    });
}

#[test]
#[cfg(not(miri))]
fn two_mappings_are_one_ring() {
    let pair = RingPair::create(1 << 16).unwrap();
    let file = pair.region().descriptor().unwrap().try_clone_to_owned().unwrap();
    let guest = RingPair::open(Region::open(file, pair.region().bytes()).unwrap()).unwrap();
    let (mut to_guest, mut at_maker) = pair.ends(Side::Maker).unwrap();
    let (mut to_maker, mut at_guest) = guest.ends(Side::Guest).unwrap();
    for round in 0..100_u8 {
        to_guest.write(&[round; 3001]).unwrap();
        assert_eq!(read_all(&mut at_guest), [round; 3001]);
        to_maker.write(&[round, 1]).unwrap();
        assert_eq!(read_all(&mut at_maker), [round, 1]);
    }
    // The other side keeps its mapping when this one goes.
    to_guest.write(b"last words").unwrap();
    drop((pair, to_guest, at_maker));
    assert_eq!(read_all(&mut at_guest), b"last words");
}

/// Miri is slow, and denies access to the folder of failures.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        return ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() };
    }
    ProptestConfig::default()
}

proptest! {
    #![proptest_config(config())]

    /// Against a queue of bytes, and with a hostile side that overwrites what it can reach.
    #[test]
    fn any_writes_and_reads_are_a_queue(steps in proptest::collection::vec((any::<bool>(), 0_usize..3000), 1..60)) {
        let pair = heap();
        let (mut producer, _) = pair.ends(Side::Maker).unwrap();
        let (_, mut consumer) = pair.ends(Side::Guest).unwrap();
        let mut queue = std::collections::VecDeque::new();
        let mut next = 0_u8;
        for (writes, size) in steps {
            if writes {
                let bytes: Vec<u8> = (0..size).map(|i| next.wrapping_add(u8::try_from(i % 256).unwrap())).collect();
                next = next.wrapping_add(17);
                let moved = producer.write(&bytes).unwrap().bytes;
                prop_assert_eq!(moved, size.min(RING_BYTES_MIN - queue.len()));
                queue.extend(&bytes[..moved]);
            } else {
                let mut found = Vec::new();
                let moved = consumer.read(&mut (&mut found).limit(size)).unwrap().bytes;
                prop_assert_eq!(moved, found.len());
                let expected: Vec<u8> = queue.drain(..moved).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn whatever_positions_a_peer_claims_nothing_is_moved_beyond_the_ring(
        claims in proptest::collection::vec((any::<u64>(), any::<u8>(), any::<bool>()), 1..40),
    ) {
        let pair = heap();
        let (mut producer, mut consumer) = pair.ends(Side::Maker).unwrap();
        let (to_maker, from_maker) = pair.ends(Side::Guest).unwrap();
        for (claim, shift, writes) in claims {
            let claim = claim >> (shift % 64);
            let mut sink = Vec::new();
            let moved = if writes {
                from_maker.memory.control().head.0.store(claim, Ordering::Relaxed);
                producer.write(&[1; 2 * RING_BYTES_MIN])
            } else {
                to_maker.memory.control().tail.0.store(claim, Ordering::Relaxed);
                consumer.read(&mut sink)
            };
            if let Ok(moved) = moved {
                prop_assert!(moved.bytes <= RING_BYTES_MIN);
            }
        }
    }
}

#[test]
fn a_pair_outlives_its_maker() {
    let (mut producer, _consumer) = heap().ends(Side::Maker).unwrap();
    producer.write(&[1]).unwrap();
    let region = Arc::new(Region::on_heap(100).unwrap());
    assert!(RingMemory::in_region(&region, 0, 0, 64).is_none(), "no room for the control");
    let region = Arc::new(Region::on_heap(4096).unwrap());
    assert!(RingMemory::in_region(&region, 1, 1024, 64).is_none(), "not aligned");
    assert!(RingMemory::in_region(&region, 0, 1024, 63).is_none(), "no power of two");
}
