//! Where a device changes the order, and where it does not.

use super::super::enumerate::PAIR_COUNT_MAX;
use super::super::graph::{JoinGraph, KeyClass, Member};
use super::*;
use crate::cost::{ScanWork, Work};

/// Leaves with their rows, and edges by the different values of their key.
fn search(row_counts: &[f64], edges: &[(usize, usize, f64)]) -> Search {
    let member = |leaf, distinct_count| Member { leaf, distinct_count, value_fraction: 1.0 };
    let class = |(a, b, count): &(usize, usize, f64)| {
        let (a, b) = (*a.min(b), *a.max(b));
        KeyClass { members: vec![member(a, *count), member(b, *count)] }
    };
    let classes = edges.iter().map(class).collect();
    let graph = JoinGraph::new(row_counts.to_vec(), classes, Vec::new());
    Search::run(&graph, &[], PAIR_COUNT_MAX).unwrap()
}

fn bytes(search: &Search, carried: &[f64]) -> RowBytes {
    let leaves = |class: &KeyClass| class.members.iter().fold(0, |set, m| set | (1 << m.leaf));
    let keys = search.graph().classes.iter().map(|class| (leaves(class), 4.0));
    RowBytes { carried: carried.to_vec(), keys: keys.collect() }
}

const COSTS: SiteCosts = SiteCosts {
    host: JoinCost { build_row_s: 4e-8, probe_row_s: 2e-8, byte_s: 1e-10 },
    device: JoinCost { build_row_s: 8e-8, probe_row_s: 4e-8, byte_s: 2e-10 },
    link_byte_s: 1e-7,
    slot_byte_s: 1e-9,
    cut_s: 2e-4,
};

fn leaf(host_s: f64, device_s: Option<f64>) -> Option<LeafCost> {
    let scan = ShapeNode {
        work: Work::Scan(ScanWork::default()),
        inputs: Vec::new(),
        rows: 1.0,
        row_bytes: 1.0,
        may_share: true,
        is_broadcast: false,
    };
    Some(LeafCost { scan, host_s, device_s, device: device_s.map(|_| 0) })
}

/// A leaf whose pages take long to cross, where the device reads them fast.
fn far(seconds: f64) -> Option<LeafCost> {
    leaf(seconds, Some(seconds / 50.0))
}

/// By work it is better to begin with the first two.
///
/// ```text
/// held (0) ── facts (1) ── notes (2)
/// ```
fn chain() -> Search {
    search(&[100.0, 1e6, 1.5e5], &[(0, 1, 1e3), (1, 2, 1e6)])
}

fn orders(search: &Search, leaves: &[Option<LeafCost>]) -> Vec<JoinTree> {
    orders_by_site(search, leaves, &bytes(search, &[0.0, 40.0, 0.0]), &COSTS)
}

fn joins_first(tree: &JoinTree, pair: LeafSet) -> bool {
    tree.parts().contains(&pair)
}

#[test]
fn what_shrinks_on_the_device_is_joined_before_it_crosses() {
    let search = chain();
    assert!(joins_first(&search.cheapest().unwrap(), 0b011));
    // With the first on the host, the two that lie on the device are joined there: fewer rows cross.
    let found = orders(&search, &[leaf(1e-5, None), far(4.0), far(0.5)]);
    assert!(joins_first(&found[0], 0b110), "{found:?}");
}

#[test]
fn a_leaf_that_is_no_table_may_stand_anywhere() {
    let found = orders(&chain(), &[None, far(4.0), far(0.5)]);
    assert!(found.iter().any(|tree| joins_first(tree, 0b110)), "{found:?}");
}

#[test]
fn orders_are_other_ones_and_few() {
    let leaves: Vec<_> = (0..8).map(|leaf| far(0.1 * f64::from(leaf + 1))).collect();
    let rows: Vec<f64> = (0..8).map(|leaf| 10_f64.powi(2 + leaf % 5)).collect();
    let edges: Vec<(usize, usize, f64)> = (1..8).map(|leaf| (leaf - 1, leaf, 1e3)).collect();
    let search = search(&rows, &edges);
    let row_bytes = bytes(&search, &[30.0; 8]);
    let found = orders_by_site(&search, &leaves, &row_bytes, &COSTS);
    assert!(!found.is_empty() && found.len() <= DEVICE_SHARES.len() * (2 + NEXT_BEST_COUNT));
    for (place, tree) in found.iter().enumerate() {
        let mut leaves = tree.leaves();
        leaves.sort_unstable();
        assert_eq!(leaves, (0..8).collect::<Vec<_>>());
        assert!(Some(tree) != search.cheapest().as_ref() && !found[..place].contains(tree));
    }
    assert_eq!(found, orders_by_site(&search, &leaves, &row_bytes, &COSTS));
}

#[test]
fn no_order_with_less_work_costs_less_than_the_first() {
    let mut state = 11_u64;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        u32::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..50 {
        let count = 3 + random(4);
        let rows: Vec<f64> = (0..count).map(|_| f64::from(10 + random(100_000))).collect();
        let edge = |leaf: u32, random: &mut dyn FnMut(u32) -> u32| {
            (random(leaf) as usize, leaf as usize, f64::from(1 + random(10_000)))
        };
        let edges: Vec<_> = (1..count).map(|leaf| edge(leaf, &mut random)).collect();
        let search = search(&rows, &edges);
        let leaves: Vec<_> = (0..count).map(|_| far(f64::from(1 + random(1000)) / 1e3)).collect();
        let row_bytes = bytes(&search, &vec![16.0; rows.len()]);
        let mut weighing = Weighing {
            search: &search,
            leaves: &leaves,
            device_share: 1.0,
            row_bytes: &row_bytes,
            costs: COSTS,
            best: HashMap::new(),
        };
        let of_cheapest = weighing.along(&search.cheapest().unwrap()).host.seconds;
        weighing.weigh_all();
        let found = weighing.found();
        // The reported cost of a tree is its cost.
        let seconds = weighing.best[&search.all()].host.seconds;
        let along = weighing.along(&found[0]).host.seconds;
        assert!((along / seconds - 1.0).abs() < 1e-9, "{along} against {seconds}");
        assert!(seconds <= of_cheapest * (1.0 + 1e-9), "{seconds} against {of_cheapest}");
    }
}
