//! The report of an update fragment: runs of slots there and back, and what is no report.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow::buffer::BooleanBuffer;
use cleave_media::{BlockAddress, Extent, SplitMix64};
use cleave_store::{PageEntry, PageRef};
use prost::Message;

use super::{ChangedPageNode, changed_schema, read_changed, slots_of, steps_of};

fn entry(row_count: u32) -> PageEntry {
    PageEntry {
        page: PageRef {
            page: 4,
            extent: Extent { start: BlockAddress(70), block_count: 2 },
            row_count,
            checksum: 9,
        },
        vid_first: 100,
        gaps: Default::default(),
        overflow: Vec::new(),
        shared: vec![Extent { start: BlockAddress(12), block_count: 3 }],
        zones: Vec::new(),
    }
}

fn report(nodes: &[ChangedPageNode]) -> RecordBatch {
    let nodes = nodes.iter().map(|node| Some(node.encode_to_vec()));
    let column: ArrayRef = Arc::new(BinaryArray::from_iter(nodes));
    RecordBatch::try_new(changed_schema(), vec![column]).unwrap()
}

#[test]
fn slots_come_back_as_they_went() {
    let mut random = SplitMix64::new(7);
    for row_count in [1_usize, 63, 64, 1000, 65_536] {
        for odds in [1, 2, 50] {
            let slots: BooleanBuffer = (0..row_count).map(|_| random.below(odds) == 0).collect();
            let steps = steps_of(&slots);
            let rows = u32::try_from(row_count).unwrap();
            assert_eq!(slots_of(&steps, rows).as_ref(), Some(&slots));
            let node = ChangedPageNode { entry: Some((&entry(rows)).into()), steps };
            let pages = read_changed(&[report(&[node])]).unwrap();
            assert_eq!((&pages[0].entry, &pages[0].slots), (&entry(rows), &slots));
        }
    }
    // All rows of a page take a few bytes.
    assert_eq!(steps_of(&BooleanBuffer::new_set(65_536)), [0, 65_536]);
}

#[test]
fn what_is_no_report_is_refused() {
    let of = |steps: Vec<u32>| ChangedPageNode { entry: Some((&entry(50)).into()), steps };
    for steps in [vec![0, 51], vec![50, 1], vec![0], vec![u32::MAX, u32::MAX], vec![1, 40, 9, 1]] {
        let error = read_changed(&[report(&[of(steps.clone())])]).unwrap_err();
        assert!(error.to_string().contains("slots"), "{steps:?}: {error}");
    }
    let nothing = ChangedPageNode { entry: None, steps: Vec::new() };
    assert!(read_changed(&[report(&[nothing])]).is_err());
    let text: ArrayRef = Arc::new(StringArray::from(vec!["no page"]));
    let other = RecordBatch::try_from_iter([("page", text)]).unwrap();
    assert!(read_changed(&[other]).is_err());
}
