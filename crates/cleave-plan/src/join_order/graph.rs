//! The rows of a join of some leaves: sizes of leaves, classes of equal columns and sampled sizes in, rows out.
//!
//! The estimate belongs to a set of leaves, whatever the order in which they are joined: the product of their rows, a
//! factor for each class, one for each other condition, and one for each part whose size is known better.
//!
//! A class with k of the leaves joins them by k − 1 equalities. Of two columns, the one with more distinct values has
//! all those of the other (System R), so the class keeps one combination in the product of all distinct counts but the
//! least. Where several classes join the same leaves, they are seldom independent: the most selective counts in full,
//! the others by their square root.

/// Leaves by their bits.
pub type LeafSet = u64;

/// Most leaves of one tree.
pub const LEAF_COUNT_MAX: usize = 64;
/// Samples move the size of a part by this factor at most.
const FACTOR_MAX: f64 = 1e5;

/// A column of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// Its leaf.
    pub leaf: usize,
    /// Different values in all rows of the leaf's table.
    pub distinct_count: f64,
    /// Share of rows that are not NULL.
    pub value_fraction: f64,
}

/// Columns that are all equal in the join.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyClass {
    /// One of each leaf, in the order of leaves.
    pub members: Vec<Member>,
}

/// The leaves of a join tree and what connects them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JoinGraph {
    /// Rows of each leaf.
    pub row_counts: Vec<f64>,
    /// What joins them.
    pub classes: Vec<KeyClass>,
    /// Other conditions: the leaves they speak of, and the share of rows they keep.
    pub conditions: Vec<(LeafSet, f64)>,
    factors: Vec<(LeafSet, f64)>,
}

impl KeyClass {
    fn leaves(&self) -> LeafSet {
        self.members.iter().fold(0, |set, member| set | (1 << member.leaf))
    }
}

impl JoinGraph {
    /// A graph without any knowledge of its parts.
    pub fn new(
        row_counts: Vec<f64>,
        classes: Vec<KeyClass>,
        conditions: Vec<(LeafSet, f64)>,
    ) -> Self {
        Self { row_counts, classes, conditions, factors: Vec::new() }
    }

    /// The leaves that share a class with a leaf of `set`, and are not in it.
    pub fn neighbours(&self, set: LeafSet) -> LeafSet {
        let near = self.classes.iter().map(KeyClass::leaves).filter(|leaves| leaves & set != 0);
        near.fold(0, |all, leaves| all | leaves) & !set
    }

    /// From now on `rows` are expected of the join of `set`, and of larger sets as many times more or fewer.
    pub fn expect(&mut self, set: LeafSet, rows: f64) {
        let factor = rows.max(f64::MIN_POSITIVE) / self.row_count_raw(set).max(f64::MIN_POSITIVE);
        self.factors.push((set, factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX)));
    }

    /// From now on the join of `set` is expected to have so many times as many rows as its sizes and distinct counts
    /// say.
    pub fn scale(&mut self, set: LeafSet, factor: f64) {
        let known = self.factors.iter().filter(|part| part.0 & !set == 0);
        let known: f64 = known.map(|(_, factor)| factor).product();
        self.factors.push((set, (factor / known).clamp(1.0 / FACTOR_MAX, FACTOR_MAX)));
    }

    /// Rows of the join of `set`, at least one.
    pub fn row_count(&self, set: LeafSet) -> f64 {
        self.row_count_raw(set).max(1.0)
    }

    fn row_count_raw(&self, set: LeafSet) -> f64 {
        let within = |part: &&(LeafSet, f64)| part.0 & !set == 0;
        let leaves = self.row_counts.iter().enumerate();
        let rows = leaves.filter(|(leaf, _)| set & (1 << leaf) != 0).map(|(_, rows)| rows);
        let kept: f64 = self.conditions.iter().filter(within).map(|(_, share)| share).product();
        let known: f64 = self.factors.iter().filter(within).map(|(_, factor)| factor).product();
        rows.product::<f64>() * self.classes_keep(set) * kept * known
    }

    /// Share of the combinations of the rows of `set` for which all classes hold.
    fn classes_keep(&self, set: LeafSet) -> f64 {
        let mut found: Vec<(f64, LeafSet)> = Vec::new();
        for class in &self.classes {
            let own = class.members.iter().filter(|member| set & (1 << member.leaf) != 0);
            let (mut kept, mut least, mut leaves) = (1.0, f64::INFINITY, 0);
            for member in own {
                let count = member.distinct_count.max(1.0);
                kept *= member.value_fraction / count;
                least = count.min(least);
                leaves |= 1_u64 << member.leaf;
            }
            if leaves.count_ones() >= 2 {
                found.push((kept * least, leaves));
            }
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut share = 1.0;
        for (place, (kept, leaves)) in found.iter().enumerate() {
            // Two leaves that a more selective class joins already.
            let joined = found.iter().take(place).map(|(_, before)| before & leaves);
            let is_joined = joined.fold(0, |most: u32, both| most.max(both.count_ones())) >= 2;
            share *= if is_joined { kept.sqrt() } else { *kept };
        }
        share
    }
}

#[cfg(test)]
mod tests {
    //! Sizes that follow from the rules, one rule a test.

    use super::*;

    fn class(members: &[(usize, f64)]) -> KeyClass {
        let member = |(leaf, distinct_count): &(usize, f64)| Member {
            leaf: *leaf,
            distinct_count: *distinct_count,
            value_fraction: 1.0,
        };
        KeyClass { members: members.iter().map(member).collect() }
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, expected {expected}");
    }

    #[test]
    fn a_foreign_key_keeps_its_rows() {
        let graph = JoinGraph::new(vec![1e3, 5e4], vec![class(&[(0, 1e3), (1, 800.0)])], vec![]);
        near(graph.row_count(0b11), 5e4);
        // Half of the keys: half of the rows.
        let graph = JoinGraph { row_counts: vec![500.0, 5e4], ..graph };
        near(graph.row_count(0b11), 2.5e4);
    }

    #[test]
    fn an_implied_edge_counts_once() {
        // Films and two tables that refer to them.
        let classes = vec![class(&[(0, 1e3), (1, 1e3), (2, 1e3)])];
        let graph = JoinGraph::new(vec![1e3, 5e3, 2e3], classes, vec![]);
        near(graph.row_count(0b111), 1e4);
        near(graph.row_count(0b110), 1e4);
    }

    #[test]
    fn a_second_class_of_the_same_leaves_counts_by_its_root() {
        let classes = vec![class(&[(0, 100.0), (1, 100.0)]), class(&[(0, 25.0), (1, 16.0)])];
        let graph = JoinGraph::new(vec![1e3, 1e3], classes, vec![]);
        near(graph.row_count(0b11), 1e6 / 100.0 / 5.0);
    }

    #[test]
    fn nulls_join_nothing_and_conditions_keep_their_share() {
        let mut keys = class(&[(0, 10.0), (1, 10.0)]);
        keys.members[0].value_fraction = 0.5;
        let graph = JoinGraph::new(vec![100.0, 100.0], vec![keys], vec![(0b11, 0.1)]);
        near(graph.row_count(0b11), 100.0 * 100.0 / 10.0 * 0.5 * 0.1);
    }

    #[test]
    fn what_is_known_of_a_part_holds_for_the_whole() {
        let classes = vec![class(&[(0, 10.0), (1, 10.0)]), class(&[(1, 50.0), (2, 50.0)])];
        let mut graph = JoinGraph::new(vec![1.0, 1e3, 50.0], classes, vec![]);
        near(graph.row_count(0b111), 100.0);
        graph.expect(0b11, 400.0);
        near(graph.row_count(0b11), 400.0);
        near(graph.row_count(0b111), 400.0);
        near(graph.row_count(0b110), 1e3);
        graph.expect(0b111, 7.0);
        near(graph.row_count(0b111), 7.0);
        graph.scale(0b110, 3.0);
        near(graph.row_count(0b110), 3e3);
    }
}
