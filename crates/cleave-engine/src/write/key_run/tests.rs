//! Many runs become one, a bounded number at a time.

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::settings::{Settings, Stack};
use cleave_store::{
    Column, ColumnType, KeyMerge, KeyRange, MergeSource, Run, SegmentId, TableSchema, VersionMap,
};

use super::*;
use crate::device::testing::fresh;

#[test]
fn merges_are_bounded_and_come_to_an_end() {
    for run_count in 2..5000 {
        let mut runs = run_count;
        while runs > 1 {
            let count = next_merge(runs);
            assert!((2..=MERGE_RUNS_MAX).contains(&count), "{count} of {runs}");
            runs -= count - 1;
        }
    }
    assert_eq!(next_merge(64), 64);
    assert_eq!(next_merge(65), 2, "64 are left for the last merge");
    assert_eq!(next_merge(1000), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_runs_than_one_merge_takes_become_one() {
    let (_directory, database) = fresh().await;
    let column = Column {
        id: 1,
        name: "id".to_owned(),
        column_type: ColumnType::Text,
        not_null: true,
        default: None,
        absent: None,
    };
    let schema = Arc::new(TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![column],
        primary_key: vec![1],
    });
    let segment = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
    let device = database.device(DeviceId::EMBEDDED).unwrap();
    let claim = Arc::new(Claim::new(Arc::clone(&device)));
    let merger = RunMerger::new(&database, &device, &Arc::new(Settings::default())).unwrap();
    let pages = database.host_pages(DeviceId::EMBEDDED, Stack::Native).unwrap();

    // Falling keys, each batch beyond the budget: every one is a run of its own.
    let definition = IndexDefinition::of_primary_key(&schema, "t_pkey".to_owned()).unwrap();
    let shape = IndexShape::new(Arc::new(definition), &schema).unwrap();
    let mut writer = KeyRunWriter::new(shape, Arc::clone(&claim), segment, 1);
    writer.sort_bytes = 1;
    let vids = 1..=150_u64;
    for vid in vids.clone() {
        let key = format!("{:04}", 1000 - vid);
        let keys = BinaryArray::from_iter_values([key.as_bytes()]);
        writer.push(&keys, vid.., &VersionMap::new()).await.unwrap();
    }
    assert_eq!(writer.done.len(), 149, "and the open one");
    let directory = writer.finish(&merger).await.unwrap().unwrap();

    let named: u64 = segment_extents(&directory).map(|extent| u64::from(extent.block_count)).sum();
    assert_eq!(claim.block_count(), named, "the space of merged runs was given back");
    let run = Run::new(directory).unwrap();
    let mut merge = KeyMerge::new(vec![MergeSource::Run(run.scan(KeyRange::default()))], true);
    let mut found = Vec::new();
    while let Some(block) = merge.next(&*pages).await.unwrap() {
        found.extend(block.vids.values().iter().copied());
    }
    assert!(found.into_iter().eq(vids.rev()), "in the order of their keys");
}
