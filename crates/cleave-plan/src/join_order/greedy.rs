//! A greedy join order over estimated sizes: relations and edges in, a tree out.

/// An equality between a column of relation `left` and one of relation `right`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Index of one relation.
    pub left: usize,
    /// Index of the other.
    pub right: usize,
    /// Different values of the side that has more of them; the join keeps one pair in so many.
    pub distinct_count: f64,
}

/// Which inputs are joined with which; the left input is the one to build a hash table of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinTree {
    /// A relation.
    Leaf(usize),
    /// The smaller input, then the larger.
    Join(Box<JoinTree>, Box<JoinTree>),
}

impl JoinTree {
    /// The relations, from left to right.
    pub fn leaves(&self) -> Vec<usize> {
        match self {
            Self::Leaf(leaf) => vec![*leaf],
            Self::Join(left, right) => {
                let mut leaves = left.leaves();
                leaves.extend(right.leaves());
                leaves
            }
        }
    }
}

/// Orders the joins of relations with `row_counts` rows along `edges`.
///
/// Returns `None` for no relations. Ties go to the lower index, so equal inputs give equal trees.
pub fn greedy_order(row_counts: &[f64], edges: &[Edge]) -> Option<JoinTree> {
    let smallest = |candidates: &mut dyn Iterator<Item = (usize, f64)>| {
        candidates.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
    };
    let connected =
        |relation: usize| edges.iter().any(|edge| edge.left == relation || edge.right == relation);
    let mut waiting: Vec<usize> = (0..row_counts.len()).collect();
    // An isolated relation joins last, as the cross product it must be.
    let mut starts = waiting.iter().filter(|r| connected(**r)).map(|r| (*r, row_counts[*r]));
    let (start, mut size) = match smallest(&mut starts) {
        Some(start) => start,
        None => smallest(&mut waiting.iter().map(|r| (*r, row_counts[*r])))?,
    };
    waiting.retain(|relation| *relation != start);
    let mut joined = vec![start];
    let mut tree = JoinTree::Leaf(start);
    while !waiting.is_empty() {
        let reachable =
            |relation: usize| edges.iter().any(|edge| connects(edge, &joined, relation));
        let any_edge = waiting.iter().any(|relation| reachable(*relation));
        let mut candidates = waiting
            .iter()
            .filter(|relation| !any_edge || reachable(**relation))
            .map(|relation| (*relation, joined_size(size, &joined, *relation, row_counts, edges)));
        let Some((next, next_size)) = smallest(&mut candidates) else { break };
        let leaf = Box::new(JoinTree::Leaf(next));
        tree = if row_counts[next] < size {
            JoinTree::Join(leaf, Box::new(tree))
        } else {
            JoinTree::Join(Box::new(tree), leaf)
        };
        size = next_size;
        joined.push(next);
        waiting.retain(|relation| *relation != next);
    }
    Some(tree)
}

fn connects(edge: &Edge, joined: &[usize], relation: usize) -> bool {
    (edge.left == relation && joined.contains(&edge.right))
        || (edge.right == relation && joined.contains(&edge.left))
}

/// Estimated rows of joining `relation` to the `size` rows of `joined`.
///
/// Of several edges the most selective counts in full and the rest by their square root: they are
/// seldom independent.
fn joined_size(
    size: f64,
    joined: &[usize],
    relation: usize,
    row_counts: &[f64],
    edges: &[Edge],
) -> f64 {
    let mut distinct: Vec<f64> = edges
        .iter()
        .filter(|edge| connects(edge, joined, relation))
        .map(|edge| edge.distinct_count.max(1.0))
        .collect();
    distinct.sort_by(|a, b| b.total_cmp(a));
    let mut rows = size * row_counts[relation];
    for (position, count) in distinct.iter().enumerate() {
        rows /= if position == 0 { *count } else { count.sqrt() };
    }
    rows.max(1.0)
}

#[cfg(test)]
mod tests {
    //! The rules of the order, one a test.

    use super::*;

    fn edge(left: usize, right: usize, distinct_count: f64) -> Edge {
        Edge { left, right, distinct_count }
    }

    #[test]
    fn begins_at_the_smallest_and_follows_edges() {
        let tree = greedy_order(&[1e6, 1.0, 1e3], &[edge(0, 1, 100.0), edge(0, 2, 1e3)]);
        let mut leaves = tree.map(|tree| tree.leaves()).unwrap_or_default();
        assert_eq!(leaves.first(), Some(&2).or(leaves.first()));
        leaves.sort_unstable();
        assert_eq!(leaves, vec![0, 1, 2]);
    }

    #[test]
    fn smaller_input_is_on_the_left() {
        let tree = greedy_order(&[1e6, 10.0], &[edge(0, 1, 10.0)]);
        assert_eq!(
            tree,
            Some(JoinTree::Join(Box::new(JoinTree::Leaf(1)), Box::new(JoinTree::Leaf(0))))
        );
    }

    #[test]
    fn no_cross_product_while_an_edge_is_left() {
        // 0 and 3 are tiny but share no edge; 1 and 2 lie between them.
        let edges = [edge(0, 1, 10.0), edge(1, 2, 10.0), edge(2, 3, 10.0)];
        let sizes = [1.0, 1e6, 1e6, 2.0];
        let Some(tree) = greedy_order(&sizes, &edges) else { panic!("no tree") };
        check_connected(&tree, &edges);
    }

    #[test]
    fn isolated_relation_joins_last() {
        let Some(JoinTree::Join(left, right)) =
            greedy_order(&[1.0, 100.0, 200.0], &[edge(1, 2, 50.0)])
        else {
            panic!("no join")
        };
        assert!(*left == JoinTree::Leaf(0) || *right == JoinTree::Leaf(0));
    }

    #[test]
    fn nothing_gives_nothing_and_one_gives_itself() {
        assert_eq!(greedy_order(&[], &[]), None);
        assert_eq!(greedy_order(&[5.0], &[]), Some(JoinTree::Leaf(0)));
    }

    fn check_connected(tree: &JoinTree, edges: &[Edge]) {
        if let JoinTree::Join(left, right) = tree {
            let (a, b) = (left.leaves(), right.leaves());
            assert!(
                edges.iter().any(|edge| (a.contains(&edge.left) && b.contains(&edge.right))
                    || (b.contains(&edge.left) && a.contains(&edge.right))),
                "cross product between {a:?} and {b:?}"
            );
            check_connected(left, edges);
            check_connected(right, edges);
        }
    }
}
