//! Estimates made while joins were ordered, kept for the physical plan.
//!
//! A leaf is identified by its table and its conditions, whatever alias it had, a join of leaves by the set of them. So
//! a part of a physical plan is found again however DataFusion has put it together. Two parts that join the same leaves
//! along other edges (a table twice, without conditions) have one key, and the first of them counts.

use std::collections::BTreeMap;

use datafusion_expr::Expr;
use datafusion_expr::utils::split_conjunction;

use super::on_values::without_qualifiers;

/// The key of a leaf of a plan: a table and the conditions on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafKey(String);

/// Rows that are expected of leaves, and of joins of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanEstimates {
    leaves: BTreeMap<LeafKey, f64>,
    joins: BTreeMap<Vec<LeafKey>, f64>,
    scans: BTreeMap<u32, (LeafKey, f64)>,
}

impl LeafKey {
    /// The key of `table` with all of `conditions`.
    pub fn new<'a>(table: &str, conditions: impl IntoIterator<Item = &'a Expr>) -> Self {
        let conditions = conditions.into_iter().flat_map(split_conjunction);
        let mut texts: Vec<String> =
            conditions.map(|condition| without_qualifiers(condition).to_string()).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.insert(0, table.to_owned());
        Self(texts.join("\n"))
    }
}

impl PlanEstimates {
    /// Rows of a leaf.
    pub fn leaf(&self, key: &LeafKey) -> Option<f64> {
        self.leaves.get(key).copied()
    }

    /// Rows of the inner join of the leaves `keys`.
    pub fn join(&self, mut keys: Vec<LeafKey>) -> Option<f64> {
        keys.sort_unstable();
        self.joins.get(&keys).copied()
    }

    /// The leaf that the scan with morsel input `input` is, and its rows.
    pub fn scan(&self, input: u32) -> Option<&(LeafKey, f64)> {
        self.scans.get(&input)
    }

    /// Expects `row_count` rows of a leaf.
    pub fn expect_leaf(&mut self, key: LeafKey, row_count: f64) {
        self.leaves.entry(key).or_insert(row_count);
    }

    /// Expects `row_count` rows of the inner join of the leaves `keys`.
    pub fn expect_join(&mut self, mut keys: Vec<LeafKey>, row_count: f64) {
        keys.sort_unstable();
        self.joins.entry(keys).or_insert(row_count);
    }

    /// Expects `row_count` rows of the scan with morsel input `input`, which is the leaf `key`.
    pub fn expect_scan(&mut self, input: u32, key: LeafKey, row_count: f64) {
        self.scans.insert(input, (key, row_count));
    }

    /// Adds what `other` expects and this does not.
    pub fn extend(&mut self, other: Self) {
        other.leaves.into_iter().for_each(|(key, rows)| self.expect_leaf(key, rows));
        other.joins.into_iter().for_each(|(keys, rows)| self.expect_join(keys, rows));
        self.scans.extend(other.scans);
    }
}
