//! The version map against a plain map, and its stored form.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, proptest};
use proptest::{prop_assert, prop_assert_eq};
use prost::Message;

use super::{CHUNK, CHUNK_VIDS, VersionMap, VersionRun};
use crate::frame::FrameError;
use crate::ids::SegmentId;
use crate::proto;

fn run(vid_first: u64, vid_count: u64, segment: u32) -> VersionRun {
    VersionRun { vid_first, vid_count, segment: SegmentId(segment) }
}

/// Runs with gaps, and some dead rows in stretches, as a map and as the plain truth.
fn some_map() -> impl Strategy<Value = (VersionMap, BTreeMap<u64, SegmentId>)> {
    let runs = vec((0u64..3, 1u64..90_000, 1u32..4), 1..6);
    let ends = vec((any::<u64>(), 1u64..40), 0..12);
    (runs, ends).prop_map(|(runs, ends)| {
        let (mut map, mut plain, mut end) = (VersionMap::new(), BTreeMap::new(), 0);
        for (gap, count, segment) in runs {
            map.append_run(run(end + gap, count, segment)).unwrap();
            plain.extend((end + gap..end + gap + count).map(|vid| (vid, SegmentId(segment))));
            end += gap + count;
        }
        for (vid_first, count) in ends {
            for vid in (vid_first % end..end).take(usize::try_from(count).unwrap()) {
                if plain.remove(&vid).is_some() {
                    assert!(map.end(vid));
                }
            }
        }
        (map, plain)
    })
}

proptest! {
    #[test]
    fn look_ups_agree_with_a_plain_map((map, plain) in some_map(), other in vec(0u64..500_000, 200)) {
        for vid in plain.keys().copied().step_by(97).chain(other).chain([u64::MAX]) {
            prop_assert_eq!(map.lookup(vid), plain.get(&vid).copied());
        }
        prop_assert_eq!(map.live_count(), plain.len() as u64);
    }

    #[test]
    fn a_map_is_made_of_its_runs_and_live_rows((map, plain) in some_map()) {
        let live: Vec<u64> = plain.keys().copied().collect();
        let made = VersionMap::with_live(map.runs().iter().copied(), &live).unwrap();
        prop_assert_eq!(made.live_count(), map.live_count());
        prop_assert_eq!(&made, &map);
        let behind = map.vid_end();
        prop_assert!(VersionMap::with_live(map.runs().iter().copied(), &[behind]).is_err());
    }

    #[test]
    fn stored_map_comes_back_clean((map, _) in some_map()) {
        let read = VersionMap::decode(&map.encode()).unwrap();
        prop_assert_eq!(&read, &map);
        prop_assert!(!read.runs_dirty());
        prop_assert_eq!(read.dirty_chunks().count(), 0);
    }

    #[test]
    fn damage_is_noticed((map, _) in some_map(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = map.encode();
        let at = at % bytes.len();
        prop_assert!(VersionMap::decode(&bytes[..at]).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(VersionMap::decode(&bytes).is_err());
    }

    /// Past the checksum: foreign payloads are refused or read, without a panic.
    #[test]
    fn foreign_payloads_never_panic(payload in any::<Vec<u8>>()) {
        let chunk = CHUNK.seal(&payload);
        let empty = VersionMap::new().encode_runs();
        drop(VersionMap::from_parts(&empty, [chunk.as_slice()]));
        drop(VersionMap::from_parts(&super::RUNS.seal(&payload), []));
        drop(VersionMap::decode(&super::MAP.seal(&payload)));
    }
}

#[test]
fn runs_that_continue_become_one() {
    let mut map = VersionMap::new();
    map.append_run(run(0, 10, 1)).unwrap();
    map.append_run(run(10, 5, 1)).unwrap();
    map.append_run(run(15, 5, 2)).unwrap();
    assert_eq!(map.runs(), [run(0, 15, 1), run(15, 5, 2)]);
    assert_eq!(map.run_of(14), Some(run(0, 15, 1)));
    assert_eq!(map.run_of(20), None);
}

#[test]
fn runs_that_overlap_or_are_no_range_are_refused() {
    let mut map = VersionMap::new();
    map.append_run(run(5, 5, 1)).unwrap();
    for refused in [run(9, 1, 1), run(0, 2, 1), run(10, 0, 1), run(u64::MAX, 1, 1)] {
        map.append_run(refused).unwrap_err();
    }
    assert_eq!(map.runs(), [run(5, 5, 1)]);
}

/// Two writers that reserved ranges finish in any order, and one that never finishes leaves a hole.
#[test]
fn reserved_ranges_come_in_any_order() {
    let mut map = VersionMap::new();
    map.append_run(run(0, 10, 1)).unwrap();
    map.append_run(run(40, 10, 1)).unwrap();
    assert!(map.is_dead(20), "nobody has begun it");
    let before = map.clone();
    map.insert_run(run(20, 10, 2)).unwrap();
    map.insert_run(run(10, 5, 1)).unwrap();
    map.insert_run(run(30, 10, 1)).unwrap();
    map.insert_run(run(60, 5, 3)).unwrap();
    assert_eq!(map.runs(), [run(0, 15, 1), run(20, 10, 2), run(30, 20, 1), run(60, 5, 3)]);
    assert_eq!((map.lookup(25), map.lookup(17)), (Some(SegmentId(2)), None));
    assert!(map.is_dead(17) && map.is_dead(55) && !map.is_dead(25));
    assert!(before.is_dead(25), "a state does not change");
    for refused in [run(14, 2, 9), run(17, 4, 9), run(17, 0, 9), run(22, 1, 9), run(0, 1, 9)] {
        map.insert_run(refused).unwrap_err();
    }
    assert_eq!(VersionMap::decode(&map.encode()).unwrap(), map);
}

#[test]
fn only_changed_chunks_are_dirty() {
    let mut map = VersionMap::new();
    map.append_run(run(0, 10 * CHUNK_VIDS, 1)).unwrap();
    map.end(3 * CHUNK_VIDS);
    map.end(5 * CHUNK_VIDS - 1);
    map.mark_clean();
    let before = map.clone();

    map.end(4 * CHUNK_VIDS);
    assert_eq!(map.dirty_chunks().collect::<Vec<_>>(), [4]);
    assert!(!map.runs_dirty());
    assert_eq!(before.lookup(4 * CHUNK_VIDS), Some(SegmentId(1)));

    let unchanged = before.encode_chunk(3);
    let rewritten = map.encode_chunk(4);
    let chunks = [unchanged.as_slice(), rewritten.as_slice()];
    let read = VersionMap::from_parts(&before.encode_runs(), chunks).unwrap();
    assert_eq!(read, map);
}

#[test]
fn a_chunk_that_comes_twice_is_refused() {
    let mut map = VersionMap::new();
    map.append_run(run(0, 5, 1)).unwrap();
    map.end(1);
    let (runs, chunk) = (map.encode_runs(), map.encode_chunk(0));
    let refused = VersionMap::from_parts(&runs, [chunk.as_slice(), chunk.as_slice()]).unwrap_err();
    assert!(matches!(refused, FrameError::Malformed { .. }));
}

#[test]
fn a_newer_version_is_named() {
    let newer = crate::frame::Format { versions: 9..=9, ..super::MAP }.seal(b"");
    let refused = VersionMap::decode(&newer).unwrap_err();
    assert!(matches!(refused, FrameError::Version { found: 9, newest: 1, .. }), "{refused}");
}

#[test]
fn dead_rows_are_not_found_and_come_back_from_storage() {
    let mut map = VersionMap::new();
    map.append_run(run(0, 200_000, 1)).unwrap();
    let dead = [0, 63, 64, 65_535, 65_536, 70_000, 70_001, 131_072, 199_999];
    assert!(dead.iter().all(|vid| map.end(*vid)));
    assert!(!map.end(70_000), "it is dead before");
    assert_eq!(map.dead_count(), 9);
    assert_eq!(map.lookup(70_000), None);
    assert_eq!(map.lookup(70_002), Some(SegmentId(1)));
    let within = |first, count| map.dead_in(first, count).collect::<Vec<_>>();
    assert_eq!(within(0, 200_000), dead);
    assert_eq!(within(64, 65_473), [64, 65_535, 65_536]);
    assert!(within(65_537, 4463).is_empty());
    assert_eq!(within(70_000, 1), [70_000]);
    assert!(within(70_000, 0).is_empty());
    let again = VersionMap::decode(&map.encode()).unwrap();
    assert_eq!((again.dead_count(), &again), (9, &map));
    let mut shared = map.clone();
    shared.end(5);
    assert!(shared.is_dead(5) && !map.is_dead(5));
}

/// Field 2 of a chunk, with 3 and 4 beside it, were places of later versions.
#[test]
fn places_of_later_versions_are_refused_by_name() {
    let message = proto::VersionChunk { version_gaps: vec![5], ..Default::default() };
    let chunk = CHUNK.seal(&message.encode_to_vec());
    let runs = VersionMap::new().encode_runs();
    let refused = VersionMap::from_parts(&runs, [chunk.as_slice()]).unwrap_err();
    assert!(refused.to_string().contains("places of later versions"), "{refused}");
}

#[test]
fn ends_beyond_their_chunk_are_refused() {
    let chunk = |gaps: &[u32], counts: &[u32]| {
        let message = proto::VersionChunk {
            dead_gaps: gaps.to_vec(),
            dead_counts: counts.to_vec(),
            ..Default::default()
        };
        VersionMap::from_parts(
            &VersionMap::new().encode_runs(),
            [&*CHUNK.seal(&message.encode_to_vec())],
        )
    };
    assert!(chunk(&[65_535], &[1]).is_ok());
    assert!(chunk(&[65_535], &[2]).is_err());
    assert!(chunk(&[0, u32::MAX], &[u32::MAX, u32::MAX]).is_err());
    assert!(chunk(&[0, 1], &[1]).is_err());
    // Nothing writes an empty stretch, and a chunk of only such would not come back as it was.
    assert!(chunk(&[7], &[0]).is_err());
}

#[test]
fn dead_rows_of_a_page_are_those_of_its_vids() {
    let mut map = VersionMap::new();
    map.append_run(run(0, 300_000, 1)).unwrap();
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        map.end((seed >> 33) % 180_000);
    }
    for first in [0, 1, 63, 64, 100, 65_500, 65_535, 65_536, 65_600, 131_000, 179_990, 200_000] {
        for count in [0, 1, 63, 64, 65, 130, 4096, 65_536, 70_000] {
            let rows = map.dead_rows(std::iter::once(first..first + count));
            let expected: Vec<u64> = map.dead_in(first, count).map(|vid| vid - first).collect();
            let found: Vec<u64> = rows.slots().map(|slot| slot as u64).collect();
            assert_eq!(found, expected, "{count} rows from {first} on");
            assert_eq!(rows.is_empty(), expected.is_empty());
        }
    }
    // A page without the rows between.
    let vids = || (65_000..66_000).chain(70_001..70_002).chain(131_000..131_100);
    let rows = map.dead_rows([65_000..66_000, 70_001..70_002, 131_000..131_100]);
    let expected: Vec<usize> =
        vids().enumerate().filter(|(_, vid)| map.is_dead(*vid)).map(|(slot, _)| slot).collect();
    assert_eq!(rows.slots().collect::<Vec<_>>(), expected);
}
