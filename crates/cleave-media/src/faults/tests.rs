//! Each fault has its effect, plans repeat, and the wrapped media holds the synced blocks.

use super::*;
use crate::{DirectFile, OpenMode};

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn filled(block_count: usize, byte: u8) -> Vec<u8> {
    vec![byte; block_count * BLOCK_SIZE]
}

/// Media of 64 blocks of ones, synced, with a plan.
fn media(plan: FaultPlan) -> FaultyMedia {
    let durable = Memory::new();
    durable.grow_to(64).unwrap();
    durable.write(BlockAddress(0), &filled(64, 1)).unwrap();
    FaultyMedia::over(Arc::new(durable), plan)
}

#[test]
fn a_lost_write_is_acknowledged_and_not_there() {
    let media = media(FaultPlan::new(1).at(Operation::Write, 2, Fault::Lost));
    media.write(BlockAddress(0), &filled(2, 7)).unwrap();
    media.write(BlockAddress(4), &filled(2, 8)).unwrap();
    media.sync().unwrap();
    assert_eq!(media.read(extent(0, 2)).unwrap()[..], filled(2, 7)[..]);
    assert_eq!(media.read(extent(4, 2)).unwrap()[..], filled(2, 1)[..]);
}

#[test]
fn a_torn_write_keeps_a_first_part_of_whole_sectors() {
    let mut cuts = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let media = media(FaultPlan::new(seed).at(Operation::Write, 1, Fault::Torn));
        media.write(BlockAddress(10), &filled(4, 9)).unwrap();
        let bytes = media.read(extent(10, 4)).unwrap();
        let kept = bytes.iter().take_while(|byte| **byte == 9).count();
        assert_eq!(kept % 512, 0, "seed {seed}");
        assert!(kept < bytes.len() && bytes[kept..].iter().all(|byte| *byte == 1), "seed {seed}");
        cuts.insert(kept);
    }
    assert!(cuts.len() > 10 && cuts.iter().any(|cut| cut % BLOCK_SIZE != 0), "{cuts:?}");
}

#[test]
fn a_misdirected_write_damages_another_place() {
    let media = media(FaultPlan::new(3).at(Operation::Write, 1, Fault::Misdirected));
    media.write(BlockAddress(0), &filled(1, 9)).unwrap();
    let all = media.read(extent(0, 64)).unwrap();
    let hit: Vec<usize> = (0..64).filter(|block| all[block * BLOCK_SIZE] == 9).collect();
    assert_eq!(hit.len(), 1);
    assert_ne!(hit, [0], "the seed is one that misses");
}

#[test]
fn a_flipped_bit_of_a_read_is_not_stored() {
    let media = media(FaultPlan::new(4).at(Operation::Read, 1, Fault::FlippedBit));
    let wrong = media.read(extent(0, 8)).unwrap();
    let bits: u32 = wrong.iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(bits, 1);
    assert_eq!(media.read(extent(0, 8)).unwrap()[..], filled(8, 1)[..]);
}

#[test]
fn media_that_is_gone_comes_back_when_mended() {
    let media = media(FaultPlan::new(5).at(Operation::Read, 2, Fault::Gone));
    media.read(extent(0, 1)).unwrap();
    let gone = |operation| MediaError::Injected { operation }.to_string();
    assert_eq!(media.read(extent(0, 1)).unwrap_err().to_string(), gone("read"));
    assert_eq!(media.sync().unwrap_err().to_string(), gone("sync"));
    assert_eq!(media.read_many(&[extent(0, 1)]).unwrap_err().to_string(), gone("read"));
    media.mend();
    media.read(extent(0, 1)).unwrap();
    media.follow(FaultPlan::new(5).at(Operation::Read, 1, Fault::Error));
    assert_eq!(media.read(extent(0, 1)).unwrap_err().to_string(), gone("read"));
    media.read(extent(0, 1)).unwrap();
}

#[test]
fn full_media_says_so_and_stays_as_it_was() {
    let plan = FaultPlan::new(6).at(Operation::Grow, 1, Fault::Full);
    let media = media(plan.at(Operation::Write, 1, Fault::Full));
    assert!(matches!(media.grow_to(128), Err(MediaError::Full { .. })));
    assert_eq!(media.block_count(), 64);
    assert!(matches!(media.write(BlockAddress(0), &filled(1, 2)), Err(MediaError::Full { .. })));
    assert_eq!(media.unsynced_block_count(), 0);
    media.grow_to(128).unwrap();
}

#[test]
fn slow_operations_wait_as_the_harness_says() {
    let waited = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&waited);
    let time = Duration::from_millis(30);
    let media = media(FaultPlan::new(7).one_in(Operation::Read, 1, Fault::Slow(time))).with_wait(
        Arc::new(move |time| {
            clock.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
        }),
    );
    media.read(extent(0, 1)).unwrap();
    media.read(extent(0, 1)).unwrap();
    assert_eq!(waited.load(Ordering::Relaxed), 60);
}

#[test]
fn equal_plans_meet_equal_operations_with_equal_faults() {
    let run = |seed| {
        let plan = FaultPlan::new(seed)
            .one_in(Operation::Write, 3, Fault::Lost)
            .one_in(Operation::Write, 4, Fault::Torn)
            .one_in(Operation::Read, 5, Fault::Error);
        let media = media(plan);
        let mut reads = Vec::new();
        for step in 0..60_u8 {
            media.write(BlockAddress(u64::from(step)), &filled(2, step)).unwrap();
            reads.push(media.read(extent(u64::from(step), 2)).map(|bytes| bytes.to_vec()).ok());
        }
        reads
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
    assert!(run(11).iter().any(Option::is_none) && run(11).iter().any(Option::is_some));
}

#[test]
fn a_file_beneath_has_what_was_synced_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("media");
    let file = DirectFile::open(&path, OpenMode::Create).unwrap();
    let media = FaultyMedia::over(Arc::new(file), FaultPlan::default());
    media.grow_to(8).unwrap();
    media.write(BlockAddress(0), &filled(2, 5)).unwrap();
    media.sync().unwrap();
    media.write(BlockAddress(1), &filled(2, 6)).unwrap();
    assert_eq!(media.read(extent(1, 1)).unwrap()[..], filled(1, 6)[..]);
    assert_eq!(media.unsynced_block_count(), 2);
    drop(media);
    let file = DirectFile::open(&path, OpenMode::Existing).unwrap();
    assert_eq!(file.read(extent(0, 2)).unwrap()[..], filled(2, 5)[..]);
    assert_eq!(file.read(extent(2, 1)).unwrap()[..], filled(1, 0)[..]);
}

#[test]
fn a_failed_sync_loses_blocks_for_good_and_no_later_one_vouches_for_them() {
    let mut kept_counts = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let media = media(FaultPlan::new(seed).at(Operation::Sync, 1, Fault::Error));
        media.write(BlockAddress(0), &filled(4, 2)).unwrap();
        media.write(BlockAddress(10), &filled(4, 3)).unwrap();
        // Neither of two writers may rely on its writes.
        media.sync().unwrap_err();
        assert!(matches!(media.sync(), Err(MediaError::Sync { .. })), "seed {seed}");
        let live = media.read(extent(0, 64)).unwrap();
        let after = media.forget_unsynced().unwrap();
        assert_eq!(after.read(extent(0, 64)).unwrap()[..], filled(64, 1)[..]);
        media.mend();
        media.sync().unwrap();
        let after = media.forget_unsynced().unwrap().read(extent(0, 64)).unwrap();
        assert_eq!(after[..], live[..], "what was lost stays lost");
        kept_counts.insert(after.iter().filter(|byte| **byte != 1).count() / BLOCK_SIZE);
    }
    assert!(kept_counts.len() > 3 && kept_counts.iter().any(|count| *count < 4), "{kept_counts:?}");
}
