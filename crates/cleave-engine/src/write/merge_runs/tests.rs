//! Tests of the device's report of what it wrote, and of a merge that falls back to the host.

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_store::{
    Column, ColumnType, PageEntry, PageRef, SegmentId, TableSchema, VersionMap, ZoneEntry,
    ZoneValue,
};
use proptest::prelude::*;

use super::*;
use crate::device::testing::fresh;
use crate::write::key_run::KeyRunWriter;

const RESERVED: Extent = Extent { start: BlockAddress(100), block_count: 50 };

fn page(number: u32, start: u64, block_count: u32, row_count: u32, keys: [&str; 2]) -> PageEntry {
    let extent = Extent { start: BlockAddress(start), block_count };
    let [min, max] = keys.map(|key| Some(ZoneValue::Bytes(key.as_bytes().to_vec())));
    let page = PageRef { page: number, extent, row_count, checksum: 1 };
    let zones = vec![ZoneEntry { column: 1, null_count: 0, min, max }];
    PageEntry {
        page,
        vid_first: 0,
        gaps: Default::default(),
        overflow: Vec::new(),
        shared: Vec::new(),
        zones,
    }
}

fn placed(pages: Vec<PageEntry>) -> PlacedRun {
    PlacedRun { pages, entry_count: 10, filter: None }
}

fn good() -> Vec<PageEntry> {
    vec![page(0, 100, 10, 6, ["a", "b"]), page(1, 112, 38, 4, ["c", "d"])]
}

fn schema() -> Arc<TableSchema> {
    let column = Column {
        id: 1,
        name: "id".to_owned(),
        column_type: ColumnType::Text,
        not_null: true,
        default: None,
        absent: None,
    };
    let (name, columns) = ("t".to_owned(), vec![column]);
    Arc::new(TableSchema { table_id: 1, version: 1, name, columns, primary_key: vec![1] })
}

fn shape() -> Arc<IndexShape> {
    let schema = schema();
    let definition = IndexDefinition::of_primary_key(&schema, "t_pkey".to_owned()).unwrap();
    IndexShape::new(Arc::new(definition), &schema).unwrap()
}

fn segment(number: u32) -> SegmentRef {
    SegmentRef { table_id: 1, segment: SegmentId(number), schema_version: 1, commit: 1 }
}

#[test]
fn a_run_that_lies_where_it_may_is_taken() {
    assert_eq!(check_placed(&placed(good()), &(10..=10), RESERVED), Ok(BlockAddress(150)));
    let new = NewRun { shape: &shape(), segment: segment(1), level: 3, newest: false };
    let directory = directory(new, placed(good())).unwrap();
    assert!(directory.sealed && directory.row_count() == 10);
}

#[test]
fn pages_outside_or_over_each_other_and_entries_too_many_or_few_are_refused() {
    let spoilt: [&dyn Fn(&mut PlacedRun); 6] = [
        &|run| run.pages[0].page.extent.start = BlockAddress(99),
        &|run| run.pages[1].page.extent.block_count = 39,
        &|run| run.pages[1].page.extent.start = BlockAddress(109),
        &|run| run.pages[1].page.extent.start = BlockAddress(u64::MAX),
        &|run| run.entry_count = 9,
        &|run| run.pages[1].page.row_count = 5,
    ];
    for (number, spoil) in spoilt.iter().enumerate() {
        let mut run = placed(good());
        spoil(&mut run);
        assert!(check_placed(&run, &(10..=10), RESERVED).is_err(), "{number}");
    }
    let shape = shape();
    let new = NewRun { shape: &shape, segment: segment(1), level: 0, newest: false };
    let spoilt: [&dyn Fn(&mut PlacedRun); 4] = [
        &|run| run.pages[1].zones = run.pages[0].zones.clone(),
        &|run| run.pages[0].zones.clear(),
        &|run| run.pages[1].page.page = 0,
        &|run| run.pages[0].page.row_count = 0,
    ];
    for (number, spoil) in spoilt.iter().enumerate() {
        let mut run = placed(good());
        spoil(&mut run);
        assert!(directory(new, run).is_err(), "{number}");
    }
}

proptest! {
    #[test]
    fn what_is_taken_fits_and_does_not_overlap(
        places in prop::collection::vec((90_u64..160, 0_u32..20), 0..6)
    ) {
        let pages: Vec<_> = places.iter().map(|(start, blocks)| page(0, *start, *blocks, 0, ["", ""])).collect();
        let run = PlacedRun { pages, entry_count: 0, filter: None };
        if let Ok(end) = check_placed(&run, &(0..=0), RESERVED) {
            let mut blocks: Vec<u64> =
                places.iter().flat_map(|(start, blocks)| *start..start + u64::from(*blocks)).collect();
            prop_assert!(blocks.iter().all(|block| (100..end.0).contains(block) && *block < 150));
            let count = blocks.len();
            blocks.dedup();
            prop_assert_eq!(blocks.len(), count);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_make_the_same_run_and_name_a_key_that_comes_twice() {
    use arrow::array::BinaryArray;
    let (_directory, database) = fresh().await;
    let device = database.device(DeviceId::EMBEDDED).unwrap();
    let shape = shape();
    let claim = Arc::new(Claim::new(Arc::clone(&device)));
    let mut runs = Vec::new();
    for run in 0..3_u64 {
        let mut writer = KeyRunWriter::new(Arc::clone(&shape), Arc::clone(&claim), segment(1), 1);
        let keys = (0..5000).map(|n| format!("{:06}", 3 * n + run));
        let keys: Vec<_> = keys.collect();
        let keys = BinaryArray::from_iter_values(keys.iter().map(String::as_bytes));
        writer.push(&keys, 10_000 * run.., &VersionMap::new()).await.unwrap();
        runs.extend(writer.finish_runs().await.unwrap());
    }
    let before = claim.block_count();
    let new = NewRun { shape: &shape, segment: segment(2), level: 1, newest: false };
    let mut merged = Vec::new();
    for (ndp, on_device) in [("on", true), ("off", false)] {
        let mut settings = Settings::default();
        settings.set("ndp", ndp).unwrap();
        let merger = RunMerger::new(&database, &device, &Arc::new(settings)).unwrap();
        assert_eq!(merger.sides.may_send().await.unwrap(), on_device);
        let run = merger.merge(&claim, new, &runs).await.unwrap();
        let named: u64 = segment_extents(&run).map(|e| u64::from(e.block_count)).sum();
        assert_eq!(claim.block_count(), before + named, "what was not used was given back");
        segment_extents(&run).for_each(|extent| claim.give_back(extent));
        let pages: Vec<_> =
            run.pages.iter().map(|entry| (entry.page.checksum, &entry.zones)).collect();
        merged.push(format!("{pages:?} {:?}", run.kind));
        let twice = [Arc::clone(&runs[0]), Arc::clone(&runs[0])];
        let error = merger.merge(&claim, new, &twice).await.unwrap_err();
        assert_eq!(error.sqlstate(), "23505", "{error}");
    }
    assert_eq!(merged[0], merged[1]);
}
