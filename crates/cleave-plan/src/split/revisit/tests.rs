//! Tests of when a piece moves to the other side.

use super::*;
use crate::cost::{Conditions, ScanWork, ShapeNode, SlotSize};

const ROWS: f64 = 1e7;

/// A scan of ten million rows with a filter from above over a column of a million values, which was expected to keep
/// `share`.
fn scan(planned: Side, share: f64) -> Revisit {
    let work = ScanWork {
        table: "t".to_owned(),
        rows: ROWS,
        rows_kept: ROWS * share,
        filter_columns: 1.0,
        output_columns: 2.0,
        pages: 160.0,
        chunk_bytes: ROWS * 12.0,
        conditions: Conditions { key_sets: 1.0, ..Conditions::default() },
        ..ScanWork::default()
    };
    let node = ShapeNode {
        work: Work::Scan(work),
        inputs: Vec::new(),
        rows: ROWS * share,
        row_bytes: 16.0,
        may_share: false,
        is_broadcast: false,
    };
    let limits = Limits {
        device_memory_bytes: 256 << 20,
        host_memory_bytes: 1 << 30,
        device_load: 0.0,
        slot_size: SlotSize::Fixed(1 << 20),
        slot_count: 8,
        device_partitions: 2,
        host_threads: 2,
        shares_work: false,
        lent_share: 0.0,
        cut_share_max: 0.57,
        broadcast_bytes: 16 << 20,
    };
    let scan = RevisitedScan {
        place: 0,
        number: 0,
        distinct_counts: vec![Some(1e6)],
        expected_share: share,
    };
    let shape = PlanShape { nodes: vec![node] };
    Revisit { planned, shape, profile: Profile::assumed(), limits, scans: vec![scan] }
}

fn facts(pages: f64, keys: Option<usize>) -> Vec<ScanFacts> {
    vec![ScanFacts { pages, keys: vec![keys] }]
}

#[test]
fn few_keys_make_a_fragment_of_what_was_the_hosts() {
    let all = scan(Side::Host, 1.0);
    let turn = all.turn(&facts(1.0, Some(100)));
    assert_eq!(turn.side, Side::Device);
    assert!(turn.why.unwrap().contains("0.00 of the rows"));
    // As expected, or a little less.
    for keys in [None, Some(1_000_000), Some(400_000)] {
        assert_eq!(all.turn(&facts(1.0, keys)), Turn { side: Side::Host, why: None });
    }
}

#[test]
fn what_lets_everything_through_is_the_hosts() {
    let few = scan(Side::Device, 1e-4);
    assert_eq!(few.turn(&facts(1.0, None)).side, Side::Host);
    for keys in [100, 200, 50, 3] {
        assert_eq!(few.turn(&facts(1.0, Some(keys))).side, Side::Device);
    }
}

#[test]
fn rows_change_above_the_scan_as_much_as_in_it() {
    let one = scan(Side::Host, 1.0);
    let mut nodes = one.shape.nodes.clone();
    nodes[0].inputs.clear();
    let top = ShapeNode { work: Work::Other, inputs: vec![1], ..nodes[0].clone() };
    let shape = PlanShape { nodes: vec![top, nodes[0].clone()] };
    let scans = vec![RevisitedScan { place: 1, ..one.scans[0].clone() }];
    let chain = Revisit { shape, scans, ..one };
    let scaled = chain.scaled(&[(0.5, 0.01)]);
    assert_eq!(scaled.nodes[0].rows, ROWS * 0.01);
    assert_eq!(scaled.nodes[1].rows, ROWS * 0.01);
    let Work::Scan(work) = &scaled.nodes[1].work else { panic!("a scan") };
    assert_eq!((work.rows, work.pages), (ROWS * 0.5, 80.0));
}
