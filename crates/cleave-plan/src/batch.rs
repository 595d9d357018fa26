//! Batches: which queries of a batch run at once, so that one reading of a column serves several of them.
//!
//! ```text
//!  queries ─▶ reuse score of each two ─▶ groups, in the order of their first queries ─▶ course: groups on different
//!                                                                                      devices run beside each other
//! ```
//!
//! 1. [`BatchQuery::reuse`] scores what two queries share: each column that both filter by, and each that both emit.
//! 2. [`groups`] begins a group with the first query that is left, and adds the one whose scores with all members have
//!    the greatest sum, as long as that is enough and the group is not full.
//! 3. [`Course`] says which group begins next: the first none of whose devices is in use.
//!
//! Invariants: each query is in one group and begins once; equal batches have equal groups. Deliberately absent: what
//! queries cost. Source: CORD, algorithm 3; there each storage node groups the queries over its own stripes, here the
//! host groups them all, and a query has no fragment on a device that has no page of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The score of a column that two queries filter by: what is true for its rows is found out once.
const SCORE_FILTER: u64 = 10;
/// The score of a column that two queries emit.
const SCORE_OUTPUT: u64 = 1;

/// A query of a batch, as far as it decides its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchQuery {
    /// Devices that have pages of it, or run fragments of it.
    pub devices: BTreeSet<u32>,
    /// Columns in conditions of its scans: table and column.
    pub filters: BTreeSet<(u32, u32)>,
    /// Columns that its scans emit.
    pub outputs: BTreeSet<(u32, u32)>,
}

impl BatchQuery {
    /// What it shares with `other`.
    #[must_use]
    pub fn reuse(&self, other: &Self) -> u64 {
        let filters = self.filters.intersection(&other.filters).count() as u64;
        let outputs = self.outputs.intersection(&other.outputs).count() as u64;
        SCORE_FILTER * filters + SCORE_OUTPUT * outputs
    }
}

/// The queries by their places, in groups of at most `size_max` (at least one) whose later members score `reuse_min` or
/// more with the members before. Of several with the greatest score, the first is added.
#[must_use]
pub fn groups(queries: &[BatchQuery], reuse_min: u64, size_max: usize) -> Vec<Vec<usize>> {
    let mut left = Left::of(queries);
    let mut groups = Vec::new();
    for (place, query) in queries.iter().enumerate() {
        if !left.take(place) {
            continue;
        }
        let mut group = vec![place];
        let mut added = query;
        while group.len() < size_max {
            left.score(added);
            let Some(best) = left.best(reuse_min) else { break };
            let Some(query) = queries.get(best).filter(|_| left.take(best)) else { break };
            group.push(best);
            added = query;
        }
        left.forget_scores();
        groups.push(group);
    }
    groups
}

/// The queries that are in no group yet. Those that share a column are found by it, and those with the same columns are
/// one: so a batch of many queries that share nothing, or all, is not compared two by two.
struct Left {
    /// By the columns of queries.
    kinds: Vec<Kind>,
    /// By place: the kind.
    kind_of: Vec<usize>,
    by_filter: BTreeMap<(u32, u32), Vec<usize>>,
    by_output: BTreeMap<(u32, u32), Vec<usize>>,
    /// Kinds that score with the group that is being made.
    scored: Vec<usize>,
}

/// Queries with the same columns.
#[derive(Default)]
struct Kind {
    /// Places of those that are left.
    left: BTreeSet<usize>,
    /// What each scores with the members of the group that is being made.
    score: u64,
}

impl Left {
    fn of(queries: &[BatchQuery]) -> Self {
        let mut known = BTreeMap::new();
        let mut left = Self {
            kinds: Vec::new(),
            kind_of: Vec::with_capacity(queries.len()),
            by_filter: BTreeMap::new(),
            by_output: BTreeMap::new(),
            scored: Vec::new(),
        };
        for (place, query) in queries.iter().enumerate() {
            let new = left.kinds.len();
            let kind = *known.entry((&query.filters, &query.outputs)).or_insert(new);
            if kind == new {
                left.kinds.push(Kind::default());
                for column in &query.filters {
                    left.by_filter.entry(*column).or_default().push(kind);
                }
                for column in &query.outputs {
                    left.by_output.entry(*column).or_default().push(kind);
                }
            }
            if let Some(kind) = left.kinds.get_mut(kind) {
                kind.left.insert(place);
            }
            left.kind_of.push(kind);
        }
        left
    }

    /// Takes the query at `place`; false: it is in a group.
    fn take(&mut self, place: usize) -> bool {
        let kind = self.kind_of.get(place).and_then(|kind| self.kinds.get_mut(*kind));
        kind.is_some_and(|kind| kind.left.remove(&place))
    }

    /// Adds what each scores with `added`, as [`BatchQuery::reuse`] has it.
    fn score(&mut self, added: &BatchQuery) {
        let Self { kinds, by_filter, by_output, scored, .. } = self;
        let mut add = |sharing: Option<&mut Vec<usize>>, score: u64| {
            let Some(sharing) = sharing else { return };
            sharing.retain(|number| {
                let kind = kinds.get_mut(*number).filter(|kind| !kind.left.is_empty());
                let Some(kind) = kind else { return false };
                if kind.score == 0 {
                    scored.push(*number);
                }
                kind.score += score;
                true
            });
        };
        added.filters.iter().for_each(|column| add(by_filter.get_mut(column), SCORE_FILTER));
        added.outputs.iter().for_each(|column| add(by_output.get_mut(column), SCORE_OUTPUT));
    }

    /// The place of the first one with the greatest score, which is `score_min` at least.
    fn best(&self, score_min: u64) -> Option<usize> {
        let scored = self.scored.iter().filter_map(|number| self.kinds.get(*number));
        let firsts = scored.filter_map(|kind| Some((kind.score, Reverse(*kind.left.first()?))));
        let best = firsts.filter(|(score, _)| *score >= score_min).max();
        let any = || self.kinds.iter().filter_map(|kind| kind.left.first().copied()).min();
        // Where none scores, any will do if nothing is asked for.
        best.map(|(_, Reverse(place))| place).or_else(|| any().filter(|_| score_min == 0))
    }

    /// Begins with another group.
    fn forget_scores(&mut self) {
        for number in self.scored.drain(..) {
            if let Some(kind) = self.kinds.get_mut(number) {
                kind.score = 0;
            }
        }
    }
}

/// The order in which groups begin, while others run.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// Groups that have not begun, by number.
    waiting: Vec<(usize, BTreeSet<u32>)>,
    /// Those that have begun and not ended.
    running: Vec<(usize, BTreeSet<u32>)>,
}

impl Course {
    /// The course of `groups`, each given by the devices of its queries; their numbers are their places.
    #[must_use]
    pub fn new(groups: impl IntoIterator<Item = BTreeSet<u32>>) -> Self {
        Self { waiting: groups.into_iter().enumerate().collect(), running: Vec::new() }
    }

    /// The course of `groups` of `queries`, as [`groups`] makes them.
    #[must_use]
    pub fn of_groups(groups: &[Vec<usize>], queries: &[BatchQuery]) -> Self {
        let devices = |group: &Vec<usize>| -> BTreeSet<u32> {
            let members = group.iter().filter_map(|place| queries.get(*place));
            members.flat_map(|query| query.devices.iter().copied()).collect()
        };
        Self::new(groups.iter().map(devices))
    }

    /// The group that begins now; None: each that is left uses a device of one that runs, or none is left.
    pub fn begin(&mut self) -> Option<usize> {
        let is_free = |devices: &BTreeSet<u32>| {
            self.running.iter().all(|(_, others)| others.is_disjoint(devices))
        };
        let place = self.waiting.iter().position(|(_, devices)| is_free(devices))?;
        let begun = self.waiting.remove(place);
        let number = begun.0;
        self.running.push(begun);
        Some(number)
    }

    /// The group with this number has ended.
    pub fn ended(&mut self, number: usize) {
        self.running.retain(|(running, _)| *running != number);
    }
}

#[cfg(test)]
mod tests;
