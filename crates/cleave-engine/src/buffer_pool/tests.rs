//! Tests of the buffer pool: its budget, what it counts, and what it keeps.

use cleave_media::Extent;
use proptest::prelude::{prop, proptest};

use super::*;

const PART: usize = 1000;

fn page(start: u64) -> PageRef {
    PageRef {
        page: 0,
        extent: Extent { start: BlockAddress(start), block_count: 1 },
        row_count: 1,
        checksum: 7,
    }
}

fn key(start: u64) -> PartKey {
    PartKey::new(DeviceId(0), &page(start), Part::User(1))
}

fn held() -> CachedPart {
    CachedPart::Bytes(Bytes::from(vec![0; PART]))
}

/// A pool with room for `count` parts.
fn pool(count: u64) -> BufferPool {
    BufferPool::new(count * (PART + ENTRY_BYTES) as u64)
}

#[test]
fn a_part_is_found_until_it_is_evicted() {
    let pool = pool(10);
    assert!(pool.get(&key(1)).is_none());
    pool.put(key(1), held());
    assert!(pool.get(&key(1)).is_some());
    let status = pool.status();
    assert_eq!((status.hits, status.misses, status.parts), (1, 1, 1));
    assert_eq!(status.hit_bytes, status.bytes);
}

#[test]
fn space_written_anew_is_another_part() {
    let pool = pool(10);
    pool.put(key(1), held());
    let rewritten = PageRef { checksum: 8, ..page(1) };
    assert!(pool.get(&PartKey::new(DeviceId(0), &rewritten, Part::User(1))).is_none());
    assert!(pool.get(&PartKey::new(DeviceId(1), &page(1), Part::User(1))).is_none());
    assert!(pool.get(&PartKey::new(DeviceId(0), &page(1), Part::User(2))).is_none());
}

#[test]
fn a_part_larger_than_the_budget_is_not_held() {
    let pool = BufferPool::new(100);
    pool.put(key(1), held());
    assert_eq!(pool.status().parts, 0);
}

#[test]
fn parts_in_use_survive_a_scan() {
    let pool = pool(100);
    for part in 0..50 {
        pool.put(key(part), held());
    }
    // Asked for again, and so worth keeping.
    for part in 0..50 {
        assert!(pool.get(&key(part)).is_some());
    }
    for part in 1000..2000 {
        assert!(pool.get(&key(part)).is_none());
        pool.put(key(part), held());
    }
    let kept = (0..50).filter(|part| pool.holds(&key(*part))).count();
    assert_eq!(kept, 50, "a scan of ten times the budget must not evict what is used");
}

#[test]
fn a_part_that_returns_soon_is_kept() {
    let pool = pool(100);
    for part in 0..200 {
        pool.put(key(part), held());
    }
    let lost = (0..200).rev().find(|part| !pool.holds(&key(*part))).unwrap();
    pool.put(key(lost), held());
    for part in 1000..1500 {
        pool.put(key(part), held());
    }
    assert!(pool.holds(&key(lost)));
}

#[test]
fn all_of_a_page_counts_as_held_when_it_is_held_whole() {
    let pool = pool(10);
    let columns = [ColumnRef::User(1), ColumnRef::User(2), ColumnRef::Vid];
    assert_eq!(pool.held_count(DeviceId(0), &page(1), &columns), 0);
    pool.put(key(1), held());
    assert_eq!(pool.held_count(DeviceId(0), &page(1), &columns), 1);
    pool.put(PartKey::new(DeviceId(0), &page(1), Part::Whole), held());
    assert_eq!(pool.held_count(DeviceId(0), &page(1), &columns), 3);
}

#[test]
fn clear_makes_reads_cold_and_keeps_the_counts() {
    let pool = pool(10);
    pool.put(key(1), held());
    assert!(pool.get(&key(1)).is_some());
    pool.clear();
    assert!(!pool.holds(&key(1)));
    let status = pool.status();
    assert_eq!((status.parts, status.bytes, status.hits), (0, 0, 1));
}

#[test]
fn a_part_is_replaced_by_one_of_another_size_within_the_budget() {
    let pool = pool(10);
    for part in 0..10 {
        pool.put(key(part), held());
    }
    for length in [10, 3000, 500, 9000, 20] {
        pool.put(key(3), CachedPart::Bytes(Bytes::from(vec![1; length])));
        let Some(CachedPart::Bytes(bytes)) = pool.get(&key(3)) else { panic!("it is there") };
        assert_eq!(bytes.len(), length);
        let status = pool.status();
        assert!(status.bytes <= status.budget_bytes);
    }
    for part in 100..200 {
        pool.put(key(part), held());
    }
    let status = pool.status();
    let kept = [3].into_iter().chain(0..200).filter(|part| pool.holds(&key(*part))).count();
    assert!(status.bytes <= status.budget_bytes && kept > 5, "{kept} parts are left");
}

proptest! {
    #[test]
    fn the_budget_holds_whatever_comes(
        steps in prop::collection::vec((0_u64..60, 1_usize..4000, proptest::bool::ANY), 1..400),
    ) {
        let pool = BufferPool::new(20_000);
        for (part, length, is_read) in steps {
            if is_read {
                pool.get(&key(part));
            } else {
                pool.put(key(part), CachedPart::Bytes(Bytes::from(vec![0; length])));
            }
            let status = pool.status();
            assert!(status.bytes <= 20_000, "{} bytes", status.bytes);
            let state = pool.state();
            // Places of parts that are gone are skipped.
            let of = |queue: Queue, keys: &VecDeque<PartKey>| -> u64 {
                let kept: FxHashSet<_> = keys.iter().filter(|key| {
                    state.parts.get(key).is_some_and(|entry| entry.queue == queue)
                }).collect();
                kept.into_iter().map(|key| state.parts[key].weight).sum()
            };
            assert_eq!(of(Queue::Small, &state.small), state.small_bytes);
            assert_eq!(of(Queue::Main, &state.main), state.main_bytes);
            let weights: u64 = state.parts.values().map(|entry| entry.weight).sum();
            assert_eq!(weights, state.bytes());
        }
    }
}
