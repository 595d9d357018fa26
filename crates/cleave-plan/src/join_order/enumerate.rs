//! The join order with the least work: a graph of leaves in, a tree out.
//!
//! A hash join reads its build side into a table, looks each row of its probe side up, and hands its result on; the
//! smaller input builds. The work of a tree is that of its joins.
//!
//! 1. All pairs of connected parts that can be joined are enumerated, each once (Moerkotte and Neumann, "Analysis of
//!    Two Existing and One New Dynamic Programming Algorithm", VLDB 2006: DPccp), and each part keeps its cheapest
//!    tree. Trees may be bushy.
//! 2. Beyond [`PAIR_COUNT_MAX`] pairs, linear orders are made instead, one from each leaf on, always to the neighbour
//!    that keeps the result smallest, and the best tree over the intervals of each is found (after Neumann and Radke,
//!    "Adaptive Optimization of Very Large Join Queries", SIGMOD 2018).
//! 3. Parts that no edge connects are joined last, the smallest first.
//!
//! The search joins units. Leaves that are to be joined first, one after the other, are one unit; each other leaf is a
//! unit of its own.
//!
//! Pure: ties go to the tree that was found first, so equal graphs give equal trees.

use std::collections::HashMap;

use super::graph::{JoinGraph, LEAF_COUNT_MAX, LeafSet};

/// Most pairs of parts that are weighed.
pub const PAIR_COUNT_MAX: usize = 10_000;
/// Work for a row that is read into a hash table, where one that is looked up or handed on is 1.
const BUILD_WORK: f64 = 2.0;

/// Which inputs are joined with which; the left input is the one to build a hash table of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinTree {
    /// A leaf.
    Leaf(usize),
    /// The smaller input, then the larger.
    Join(Box<JoinTree>, Box<JoinTree>),
}

impl JoinTree {
    /// The leaves, from left to right.
    pub fn leaves(&self) -> Vec<usize> {
        match self {
            Self::Leaf(leaf) => vec![*leaf],
            Self::Join(left, right) => [left.leaves(), right.leaves()].concat(),
        }
    }

    /// Every part of the tree, itself last.
    pub fn parts(&self) -> Vec<LeafSet> {
        let mut parts = match self {
            Self::Leaf(_) => Vec::new(),
            Self::Join(left, right) => [left.parts(), right.parts()].concat(),
        };
        parts.push(self.leaves().into_iter().fold(0, |set, leaf| set | (1 << leaf)));
        parts
    }
}

/// The order of `graph` with the least work, of those that join the leaves of `leading` first, one after the other.
/// `None`: no leaves, or more than [`LEAF_COUNT_MAX`], or one of `leading` that is no leaf.
pub fn cheapest_order(
    graph: &JoinGraph,
    leading: &[usize],
    pair_count_max: usize,
) -> Option<JoinTree> {
    Search::run(graph, leading, pair_count_max)?.cheapest()
}

/// What is joined: the leaves of `leading` in their order, if there are any, then each other leaf by itself.
fn units(graph: &JoinGraph, leading: &[usize]) -> Vec<JoinTree> {
    let leaf_set = |tree: &JoinTree| set_of(&tree.leaves());
    let first = leading.iter().map(|leaf| JoinTree::Leaf(*leaf)).reduce(|joined, leaf| {
        let builds = |tree| graph.row_count(leaf_set(tree));
        match builds(&leaf) < builds(&joined) {
            true => JoinTree::Join(Box::new(leaf), Box::new(joined)),
            false => JoinTree::Join(Box::new(joined), Box::new(leaf)),
        }
    });
    let others = (0..graph.row_counts.len()).filter(|leaf| !leading.contains(leaf));
    first.into_iter().chain(others.map(JoinTree::Leaf)).collect()
}

/// The cheapest way that was found to join a part.
#[derive(Debug, Clone, Copy)]
struct Best {
    work: f64,
    rows: f64,
    /// The build and the probe input; nothing for a leaf.
    inputs: Option<(LeafSet, LeafSet)>,
}

/// A search over units, whose sets have a bit for each unit; and the pairs it has weighed, for other cost functions.
#[derive(Debug, Clone)]
pub(super) struct Search {
    graph: JoinGraph,
    units: Vec<JoinTree>,
    /// The leaves of each unit.
    leaves: Vec<LeafSet>,
    near: Vec<LeafSet>,
    best: HashMap<LeafSet, Best>,
    /// The pairs of parts that were weighed, those of a part before the part.
    weighed: Vec<(LeafSet, LeafSet)>,
}

impl Search {
    /// Weighs the orders of `graph`, as [`cheapest_order`] says.
    pub(super) fn run(graph: &JoinGraph, leading: &[usize], pair_count_max: usize) -> Option<Self> {
        let count = graph.row_counts.len();
        if count == 0 || count > LEAF_COUNT_MAX || leading.iter().any(|leaf| *leaf >= count) {
            return None;
        }
        let mut search = Self::new(graph, units(graph, leading));
        let mut parts = search.components();
        for part in &parts {
            match search.pairs_within(*part, pair_count_max) {
                Some(pairs) => pairs.into_iter().for_each(|(one, other)| search.weigh(one, other)),
                None => search.linear(*part, pair_count_max),
            }
        }
        parts.sort_by(|a, b| search.row_count(*a).total_cmp(&search.row_count(*b)));
        let mut all = *parts.first()?;
        for part in parts.into_iter().skip(1) {
            search.weigh(all, part);
            all |= part;
        }
        Some(search)
    }

    /// The order with the least work.
    pub(super) fn cheapest(&self) -> Option<JoinTree> {
        self.tree(self.all())
    }

    /// All units.
    pub(super) fn all(&self) -> LeafSet {
        (0..self.units.len()).fold(0, |set: LeafSet, unit| set | (1 << unit))
    }

    /// The units, each of which is joined as it stands.
    pub(super) fn units(&self) -> &[JoinTree] {
        &self.units
    }

    /// What joins its leaves.
    pub(super) fn graph(&self) -> &JoinGraph {
        &self.graph
    }

    /// The pairs of parts that were weighed, those of a part before the part.
    pub(super) fn weighed(&self) -> &[(LeafSet, LeafSet)] {
        &self.weighed
    }

    /// The leaves of a set of units.
    pub(super) fn leaves_of(&self, set: LeafSet) -> LeafSet {
        bits(set).filter_map(|unit| self.leaves.get(unit)).fold(0, |all, leaves| all | leaves)
    }

    fn new(graph: &JoinGraph, units: Vec<JoinTree>) -> Self {
        let leaves: Vec<LeafSet> = units.iter().map(|unit| set_of(&unit.leaves())).collect();
        let near = |of: &LeafSet| {
            let neighbours = graph.neighbours(*of);
            let near = leaves.iter().enumerate().filter(|(_, leaves)| **leaves & neighbours != 0);
            near.fold(0, |set: LeafSet, (unit, _)| set | (1 << unit))
        };
        let near = leaves.iter().map(near).collect();
        let alone = leaves.iter().enumerate().map(|(unit, leaves)| {
            (1 << unit, Best { work: 0.0, rows: graph.row_count(*leaves), inputs: None })
        });
        let best = alone.collect();
        Self { graph: graph.clone(), units, leaves, near, best, weighed: Vec::new() }
    }

    /// Rows of the join of a set of units.
    pub(super) fn row_count(&self, set: LeafSet) -> f64 {
        match self.best.get(&set) {
            Some(known) => known.rows,
            None => self.graph.row_count(self.leaves_of(set)),
        }
    }

    /// The connected parts.
    fn components(&self) -> Vec<LeafSet> {
        let mut found: Vec<LeafSet> = Vec::new();
        for unit in 0..self.units.len() {
            let mut part: LeafSet = 1 << unit;
            if found.iter().any(|found| found & part != 0) {
                continue;
            }
            loop {
                let near = self.neighbours(part);
                if near == 0 {
                    break;
                }
                part |= near;
            }
            found.push(part);
        }
        found
    }

    /// The units next to those of `set`.
    fn neighbours(&self, set: LeafSet) -> LeafSet {
        bits(set).filter_map(|leaf| self.near.get(leaf)).fold(0, |all, near| all | near) & !set
    }

    /// Keeps the join of two parts if it is the cheapest of theirs together.
    fn weigh(&mut self, one: LeafSet, other: LeafSet) {
        let (Some(a), Some(b)) = (self.best.get(&one), self.best.get(&other)) else { return };
        let both = one | other;
        let known = self.best.get(&both);
        let rows = self.row_count(both);
        let inputs = if b.rows < a.rows { (other, one) } else { (one, other) };
        let joining = BUILD_WORK * a.rows.min(b.rows) + a.rows.max(b.rows) + rows;
        let work = a.work + b.work + joining;
        if known.is_none_or(|known| work < known.work) {
            self.best.insert(both, Best { work, rows, inputs: Some(inputs) });
        }
        self.weighed.push((one, other));
    }

    fn tree(&self, set: LeafSet) -> Option<JoinTree> {
        let Some((left, right)) = self.best.get(&set)?.inputs else {
            return self.units.get(bits(set).next()?).cloned();
        };
        Some(JoinTree::Join(Box::new(self.tree(left)?), Box::new(self.tree(right)?)))
    }

    /// The pairs of connected parts of `part` that can be joined, smaller unions first; None: they are more than
    /// `limit`.
    fn pairs_within(&self, part: LeafSet, limit: usize) -> Option<Vec<(LeafSet, LeafSet)>> {
        let mut pairs = Pairs { search: self, found: Vec::new(), steps: 0, limit };
        let leaves: Vec<usize> = bits(part).collect();
        for leaf in leaves.into_iter().rev() {
            let start = 1 << leaf;
            pairs.complements(start)?;
            pairs.grow(start, up_to(leaf))?;
        }
        let mut found = pairs.found;
        found.sort_by_key(|(one, other)| (one | other).count_ones());
        Some(found)
    }

    /// Weighs the joins of intervals of linear orders of `part`.
    fn linear(&mut self, part: LeafSet, limit: usize) {
        let leaves: Vec<usize> = bits(part).collect();
        let count = leaves.len();
        let of_one = (count * count * count / 6).max(1);
        let mut starts = leaves;
        let rows = |leaf: &usize| self.row_count(1 << leaf);
        starts.sort_by(|a, b| rows(a).total_cmp(&rows(b)));
        starts.truncate((limit / of_one).max(1));
        for start in starts {
            let order = self.linear_order(start, part);
            for length in 2..=order.len() {
                for window in order.windows(length) {
                    for middle in 1..length {
                        let (one, other) = window.split_at(middle);
                        let (one, other) = (set_of(one), set_of(other));
                        if self.neighbours(one) & other != 0 {
                            self.weigh(one, other);
                        }
                    }
                }
            }
        }
    }

    fn linear_order(&self, start: usize, part: LeafSet) -> Vec<usize> {
        let (mut order, mut joined) = (vec![start], 1 << start);
        loop {
            let near = bits(self.neighbours(joined) & part);
            let sizes = near.map(|leaf| (leaf, self.row_count(joined | (1 << leaf))));
            let Some((next, _)) = sizes.min_by(|a, b| a.1.total_cmp(&b.1)) else { return order };
            order.push(next);
            joined |= 1 << next;
        }
    }
}

/// The enumeration of pairs; each step gives None when it has gone on for too long.
struct Pairs<'a> {
    search: &'a Search,
    found: Vec<(LeafSet, LeafSet)>,
    steps: usize,
    limit: usize,
}

impl Pairs<'_> {
    /// Parts that contain `part` and none of `excluded`.
    fn grow(&mut self, part: LeafSet, excluded: LeafSet) -> Option<()> {
        let near = self.search.neighbours(part) & !excluded;
        for more in subsets(near) {
            self.step()?;
            self.complements(part | more)?;
        }
        for more in subsets(near) {
            self.grow(part | more, excluded | near)?;
        }
        Some(())
    }

    /// Parts that can be joined to `part` and whose least leaf is greater than its least.
    fn complements(&mut self, part: LeafSet) -> Option<()> {
        let least = part.trailing_zeros() as usize;
        let excluded = part | up_to(least);
        let near = self.search.neighbours(part) & !excluded;
        let leaves: Vec<usize> = bits(near).collect();
        for leaf in leaves.into_iter().rev() {
            self.pair(part, 1 << leaf)?;
            self.grow_complement(part, 1 << leaf, excluded | (up_to(leaf) & near))?;
        }
        Some(())
    }

    fn grow_complement(&mut self, part: LeafSet, other: LeafSet, excluded: LeafSet) -> Option<()> {
        let near = self.search.neighbours(other) & !excluded;
        for more in subsets(near) {
            self.pair(part, other | more)?;
        }
        for more in subsets(near) {
            self.grow_complement(part, other | more, excluded | near)?;
        }
        Some(())
    }

    fn pair(&mut self, one: LeafSet, other: LeafSet) -> Option<()> {
        self.found.push((one, other));
        self.step()
    }

    fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= 2 * self.limit && self.found.len() <= self.limit).then_some(())
    }
}

/// The leaves of `set`, ascending.
pub(super) fn bits(set: LeafSet) -> impl Iterator<Item = usize> {
    (0..LEAF_COUNT_MAX).filter(move |leaf| set & (1 << leaf) != 0)
}

fn set_of(leaves: &[usize]) -> LeafSet {
    leaves.iter().fold(0, |set, leaf| set | (1 << leaf))
}

/// All leaves up to `leaf`, itself included.
fn up_to(leaf: usize) -> LeafSet {
    u64::MAX >> (LEAF_COUNT_MAX - 1 - leaf)
}

/// The subsets of `set` but for the empty one.
fn subsets(set: LeafSet) -> impl Iterator<Item = LeafSet> {
    let mut next: LeafSet = 0;
    std::iter::from_fn(move || {
        next = next.wrapping_sub(set) & set;
        (next != 0).then_some(next)
    })
}

#[cfg(test)]
mod tests;
