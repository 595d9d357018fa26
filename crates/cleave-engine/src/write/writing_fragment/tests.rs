//! Tests of the places that a device says it has written to.

use proptest::prelude::*;

use super::*;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

/// The first space, and an extension that lies before it.
const SPACE: [Extent; 2] = [
    Extent { start: BlockAddress(100), block_count: 50 },
    Extent { start: BlockAddress(20), block_count: 10 },
];

#[test]
fn pages_lie_in_the_space_of_their_fragment_and_apart_from_each_other() {
    let taken = [extent(20, 4), extent(29, 1), extent(100, 10), extent(110, 40)];
    assert_eq!(check_used(&SPACE, &taken), Ok(()));
    assert_eq!(check_used(&SPACE, &[]), Ok(()));
    for wrong in [extent(99, 1), extent(149, 2), extent(30, 1), extent(u64::MAX, 1), extent(28, 73)]
    {
        let error = check_used(&SPACE, &[wrong]).unwrap_err();
        assert!(error.contains(&wrong.to_string()), "{error}");
    }
    assert!(check_used(&SPACE, &[extent(100, 10), extent(109, 3)]).is_err());
    assert!(check_used(&SPACE, &[extent(100, 1), extent(100, 1)]).is_err());
}

proptest! {
    #[test]
    fn what_is_taken_fits_and_does_not_overlap(
        mut places in prop::collection::vec((15_u64..160, 1_u32..20), 0..6)
    ) {
        places.sort_unstable();
        let used: Vec<_> = places.iter().map(|(start, blocks)| extent(*start, *blocks)).collect();
        let mut blocks: Vec<u64> =
            places.iter().flat_map(|(start, blocks)| *start..start + u64::from(*blocks)).collect();
        let fits = blocks.iter().all(|block| (100..150).contains(block) || (20..30).contains(block));
        let count = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        prop_assert_eq!(check_used(&SPACE, &used).is_ok(), fits && blocks.len() == count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_that_writes_more_than_expected_gets_more_and_writes_the_same_pages() {
    use arrow::array::BinaryArray;
    use cleave_catalog::catalog::DeviceId;
    use cleave_fragment::{IndexPages, MergeRunsExec, PlacedRun, WriteRunExec};
    use cleave_store::{KeyBlock, PageEntry, RunWriter, SegmentId, SegmentRef};

    let (_directory, database) = crate::device::testing::fresh().await;
    let device = database.device(DeviceId::EMBEDDED).unwrap();
    let claim = Arc::new(Claim::new(Arc::clone(&device)));
    let segment = |number| SegmentRef {
        table_id: 1,
        segment: SegmentId(number),
        schema_version: 1,
        commit: 1,
    };
    let mut runs = Vec::new();
    for run in 0..2_u32 {
        let mut writer = RunWriter::new(segment(run + 1), 0, true).unwrap();
        // Keys that are hardly compressible.
        let keys = (0..40_000_u64).map(|key| {
            let hash = (2 * key + u64::from(run)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{:08}{hash:016x}", 2 * key + u64::from(run))
        });
        let keys = BinaryArray::from_iter_values(keys.map(String::into_bytes));
        let vids = (0..40_000).map(|key| 100_000 * u64::from(run) + key).collect::<Vec<_>>();
        let block = KeyBlock { keys, vids: vids.into() };
        let mut pages = writer.push_block(&block).unwrap();
        pages.extend(writer.finish().unwrap().pages);
        let mut sink = SegmentSink::new(Arc::clone(&claim), AHEAD_BLOCKS);
        sink.push_all(pages).await.unwrap();
        let placed = sink.finish().await.unwrap();
        let placed = placed.iter().map(|entry| entry.page).collect();
        runs.push(IndexPages::whole(segment(run + 1), placed));
    }
    let entries = Arc::new(MergeRunsExec::new(0, 1));
    let fragment = WritingFragment {
        what: "test",
        plan: Arc::new(WriteRunExec::new(entries, segment(9), true).unwrap()),
        snapshot: Snapshot { commit: 1 },
        inputs: Vec::new(),
        indexes: vec![IndexInput { number: 0, runs }],
        block_count: 0,
    };
    let before = claim.block_count();
    let sides = Sides::new(&database, &device, &Arc::new(Settings::default())).unwrap();
    let (rows, space) = fragment.on_device(&sides, &claim).await.unwrap().unwrap();
    assert!(space.len() > 1, "{space:?}");
    let placed = PlacedRun::read(&rows).unwrap();
    let used = |pages: &[PageEntry]| -> Vec<Extent> {
        pages.iter().map(|entry| entry.page.extent).collect()
    };
    let written: u64 = used(&placed.pages).iter().map(|extent| u64::from(extent.block_count)).sum();
    assert!(written > SLACK_BLOCKS, "{written}");
    give_back_unused(&claim, space, used(&placed.pages)).unwrap();
    assert_eq!(claim.block_count(), before + written);
    let on_host = PlacedRun::read(&fragment.on_host(&sides, &claim).await.unwrap()).unwrap();
    assert_eq!(claim.block_count(), before + 2 * written);
    let checksums = |run: &PlacedRun| -> Vec<u32> {
        run.pages.iter().map(|entry| entry.page.checksum).collect()
    };
    assert_eq!(checksums(&placed), checksums(&on_host));
    assert_eq!((placed.entry_count, on_host.entry_count), (80_000, 80_000));
}
