//! Where a device has its say in the order, and where it has none.

use super::super::enumerate::PAIR_COUNT_MAX;
use super::super::graph::{JoinGraph, KeyClass, Member};
use super::*;

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

/// A leaf whose pages take long to cross, where the device reads them fast.
fn far(seconds: f64) -> LeafCost {
    LeafCost { host_s: seconds, device_s: Some(seconds / 50.0), device: Some(0) }
}

/// By work it is better to begin with the first two.
///
/// ```text
/// held (0) ── facts (1) ── notes (2)
/// ```
fn chain() -> Search {
    search(&[100.0, 1e6, 1.5e5], &[(0, 1, 1e3), (1, 2, 1e6)])
}

fn offers(search: &Search, leaves: &[LeafCost]) -> Vec<JoinTree> {
    let row_bytes = bytes(search, &[0.0, 40.0, 0.0]);
    orders_by_site(search, leaves, &row_bytes, &COSTS, 0.9)
        .into_iter()
        .map(|one| one.tree)
        .collect()
}

fn joins_first(tree: &JoinTree, pair: LeafSet) -> bool {
    tree.parts().contains(&pair)
}

#[test]
fn what_shrinks_on_the_device_is_joined_before_it_crosses() {
    let search = chain();
    let held = LeafCost { host_s: 1e-5, device_s: None, device: None };
    assert!(joins_first(&search.cheapest().unwrap(), 0b011));
    // With it on the host, the two that lie on the device are joined there: fewer rows cross.
    let leaves = [held, far(4.0), far(0.5)];
    let found = offers(&search, &leaves);
    assert!(found.iter().any(|tree| joins_first(tree, 0b110)), "{found:?}");
}

#[test]
fn where_no_device_can_run_anything_there_is_nothing_to_offer() {
    let host = |host_s| LeafCost { host_s, device_s: None, device: None };
    assert_eq!(offers(&chain(), &[host(1e-5), host(4.0), host(0.5)]), []);
}

#[test]
fn offers_are_other_orders_and_few() {
    let leaves: Vec<LeafCost> = (0..8).map(|leaf| far(0.1 * f64::from(leaf + 1))).collect();
    let rows: Vec<f64> = (0..8).map(|leaf| 10_f64.powi(2 + leaf % 5)).collect();
    let edges: Vec<(usize, usize, f64)> = (1..8).map(|leaf| (leaf - 1, leaf, 1e3)).collect();
    let search = search(&rows, &edges);
    let row_bytes = bytes(&search, &[30.0; 8]);
    let found = orders_by_site(&search, &leaves, &row_bytes, &COSTS, 0.9);
    assert!(found.len() <= OTHERS_MAX);
    let cheapest = search.cheapest().unwrap();
    for Offer { tree, share } in &found {
        let mut leaves = tree.leaves();
        leaves.sort_unstable();
        assert_eq!(leaves, (0..8).collect::<Vec<_>>());
        assert!(*tree != cheapest && *share <= 0.9);
    }
    assert_eq!(found, orders_by_site(&search, &leaves, &row_bytes, &COSTS, 0.9));
}

#[test]
fn no_order_is_found_that_is_worse_than_the_one_with_the_least_work() {
    let mut state = 11_u64;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        u32::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..50 {
        let count = 3 + random(4) as usize;
        let rows: Vec<f64> = (0..count).map(|_| f64::from(10 + random(100_000))).collect();
        let edges: Vec<(usize, usize, f64)> = (1..count)
            .map(|leaf| {
                let other = random(u32::try_from(leaf).unwrap()) as usize;
                (other, leaf, f64::from(1 + random(10_000)))
            })
            .collect();
        let search = search(&rows, &edges);
        let leaves = (0..count).map(|_| far(f64::from(1 + random(1000)) / 1e3)).collect();
        let row_bytes = bytes(&search, &vec![16.0; count]);
        let mut weighing = Weighing {
            search: &search,
            leaves,
            row_bytes: &row_bytes,
            costs: COSTS,
            best: HashMap::new(),
        };
        let of_cheapest = weighing.along(&search.cheapest().unwrap()).delivered_s(&COSTS);
        weighing.weigh_all();
        let found = weighing.found();
        let least = found.iter().map(|found| found.1).fold(f64::INFINITY, f64::min);
        assert!(least <= of_cheapest * (1.0 + 1e-9), "{least} against {of_cheapest}");
        for (tree, seconds) in found {
            // What is said of a tree is what it costs, or it can be had for less by another placement.
            assert!(weighing.along(&tree).delivered_s(&COSTS) <= seconds * (1.0 + 1e-9));
        }
    }
}
