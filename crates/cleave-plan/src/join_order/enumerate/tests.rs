//! Orders against all possible orders, and the rules of which parts may be joined.

use super::super::graph::{KeyClass, Member};
use super::*;

fn graph(row_counts: &[f64], edges: &[(usize, usize, f64)]) -> JoinGraph {
    let member = |leaf, distinct_count| Member { leaf, distinct_count, value_fraction: 1.0 };
    let class = |(a, b, count): &(usize, usize, f64)| {
        let (a, b) = (*a.min(b), *a.max(b));
        KeyClass { members: vec![member(a, *count), member(b, *count)] }
    };
    JoinGraph::new(row_counts.to_vec(), edges.iter().map(class).collect(), Vec::new())
}

fn order(graph: &JoinGraph) -> JoinTree {
    cheapest_order(graph, &[], PAIR_COUNT_MAX).unwrap()
}

/// Work of a tree, by its definition.
fn work(tree: &JoinTree, graph: &JoinGraph) -> f64 {
    let JoinTree::Join(left, right) = tree else { return 0.0 };
    let rows = |tree: &JoinTree| graph.row_count(set_of(&tree.leaves()));
    work(left, graph) + work(right, graph) + BUILD_WORK * rows(left) + rows(right) + rows(tree)
}

/// The least work of any tree over `set` without a cross product, bushy or not, found by trying all of them.
fn least_work(set: LeafSet, graph: &JoinGraph) -> f64 {
    if set.count_ones() == 1 {
        return 0.0;
    }
    let splits = subsets(set).filter(|one| *one != set && graph.neighbours(*one) & set & !one != 0);
    let of_split = |one: LeafSet| {
        let other = set & !one;
        let (a, b) = (graph.row_count(one), graph.row_count(other));
        let joining = BUILD_WORK * a.min(b) + a.max(b) + graph.row_count(set);
        least_work(one, graph) + least_work(other, graph) + joining
    };
    splits.map(of_split).fold(f64::INFINITY, f64::min)
}

#[test]
fn no_tree_is_cheaper() {
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..50 {
        let count = 3 + random(4);
        let rows: Vec<f64> =
            (0..count).map(|_| [1e1, 1e2, 1e3, 1e4, 1e5, 1e6][random(6)]).collect();
        let mut edges: Vec<(usize, usize, f64)> = (1..count)
            .map(|leaf| (random(leaf), leaf, [1.0, 10.0, 1e2, 1e3, 1e4][random(5)]))
            .collect();
        if count > 3 {
            edges.push((0, count - 1, 100.0));
        }
        let graph = graph(&rows, &edges);
        let tree = order(&graph);
        let all = (1 << count) - 1;
        let least = least_work(all, &graph);
        assert!((work(&tree, &graph) / least - 1.0).abs() < 1e-9, "{graph:?}: {tree:?}");
    }
}

#[test]
fn a_bushy_tree_where_it_pays() {
    // Two selective pairs, connected by their large halves.
    let edges = [(0, 1, 1e6), (2, 3, 1e6), (1, 2, 10.0)];
    let tree = order(&graph(&[10.0, 1e6, 1e6, 10.0], &edges));
    let JoinTree::Join(left, right) = tree else { panic!("no join") };
    assert_eq!((left.leaves().len(), right.leaves().len()), (2, 2));
}

#[test]
fn the_smaller_input_builds() {
    let tree = order(&graph(&[1e6, 10.0], &[(0, 1, 10.0)]));
    assert_eq!(tree.leaves(), [1, 0]);
}

#[test]
fn parts_without_an_edge_join_last() {
    let Some(JoinTree::Join(left, right)) =
        cheapest_order(&graph(&[1.0, 100.0, 200.0], &[(1, 2, 50.0)]), &[], PAIR_COUNT_MAX)
    else {
        panic!("no join")
    };
    assert!(*left == JoinTree::Leaf(0) || *right == JoinTree::Leaf(0));
}

#[test]
fn linear_orders_are_connected_and_nearly_as_good() {
    let rows = [1e6, 10.0, 1e3, 1e5, 50.0, 1e4];
    let edges = [(0, 1, 10.0), (0, 2, 1e3), (2, 3, 1e3), (3, 4, 50.0), (0, 5, 1e4)];
    let graph = graph(&rows, &edges);
    let (best, linear) = (order(&graph), cheapest_order(&graph, &[], 1).unwrap());
    let mut leaves = linear.leaves();
    leaves.sort_unstable();
    assert_eq!(leaves, [0, 1, 2, 3, 4, 5]);
    assert!(work(&linear, &graph) < 3.0 * work(&best, &graph));
    check_connected(&linear, &graph);
}

#[test]
fn seventeen_leaves_of_one_class_stay_within_the_bound() {
    let member = |leaf| Member { leaf, distinct_count: 1e6, value_fraction: 1.0 };
    let class = KeyClass { members: (0..17).map(member).collect() };
    let rows = (0..17).map(|leaf| 10_f64.powi(1 + leaf % 7)).collect();
    let graph = JoinGraph::new(rows, vec![class], Vec::new());
    let search = Search::new(&graph, units(&graph, &[]));
    assert!(search.pairs_within((1 << 17) - 1, PAIR_COUNT_MAX).is_none());
    let tree = order(&graph);
    assert_eq!(tree.leaves().len(), 17);
    assert_eq!(tree, order(&graph));
}

#[test]
fn nothing_gives_nothing_and_one_gives_itself() {
    assert_eq!(cheapest_order(&graph(&[], &[]), &[], PAIR_COUNT_MAX), None);
    assert_eq!(order(&graph(&[5.0], &[])), JoinTree::Leaf(0));
    assert_eq!(cheapest_order(&graph(&[1.0; 65], &[]), &[], PAIR_COUNT_MAX), None);
}

fn check_connected(tree: &JoinTree, graph: &JoinGraph) {
    if let JoinTree::Join(left, right) = tree {
        let (a, b) = (set_of(&left.leaves()), set_of(&right.leaves()));
        assert!(graph.neighbours(a) & b != 0, "cross product between {a:b} and {b:b}");
        check_connected(left, graph);
        check_connected(right, graph);
    }
}

/// The joins of a tree as sets of leaves, in no order.
fn joins(tree: &JoinTree) -> Vec<LeafSet> {
    let parts = tree.parts().into_iter();
    parts.filter(|part| part.count_ones() > 1).collect()
}

#[test]
fn leading_leaves_are_joined_first_and_the_others_by_work() {
    // A chain, by which 0 and 3 have nothing to do with each other.
    let edges = [(0, 1, 1e3), (1, 2, 10.0), (2, 3, 1e4), (3, 4, 1e2)];
    let graph = graph(&[1e3, 1e4, 10.0, 1e5, 1e2], &edges);
    for leading in [&[0, 3][..], &[3, 0], &[4, 2, 0], &[1, 2, 3, 4, 0], &[2]] {
        for limit in [PAIR_COUNT_MAX, 1] {
            let tree = cheapest_order(&graph, leading, limit).unwrap();
            let joins = joins(&tree);
            for count in 2..=leading.len() {
                assert!(joins.contains(&set_of(&leading[..count])), "{leading:?}: {tree:?}");
            }
            let mut leaves = tree.leaves();
            leaves.sort_unstable();
            assert_eq!(leaves, [0, 1, 2, 3, 4]);
        }
    }
    assert_eq!(cheapest_order(&graph, &[2], PAIR_COUNT_MAX), Some(order(&graph)));
    assert_eq!(cheapest_order(&graph, &[5], PAIR_COUNT_MAX), None);
}
