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

use std::collections::BTreeSet;

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
    /// A query that is in no group yet, and its score with the members of the group that is being made.
    struct Left<'a> {
        place: usize,
        query: &'a BatchQuery,
        score: u64,
    }
    let left = queries.iter().enumerate();
    let mut left: Vec<Left<'_>> =
        left.map(|(place, query)| Left { place, query, score: 0 }).collect();
    let mut groups = Vec::new();
    while !left.is_empty() {
        let first = left.remove(0);
        let mut group = vec![first.place];
        let mut added = first.query;
        left.iter_mut().for_each(|other| other.score = 0);
        while group.len() < size_max {
            left.iter_mut().for_each(|other| other.score += added.reuse(other.query));
            let enough = left.iter().enumerate().filter(|(_, other)| other.score >= reuse_min);
            // The last of equal ones would win, if they came in their order.
            let Some((at, _)) = enough.rev().max_by_key(|(_, other)| other.score) else { break };
            let best = left.remove(at);
            group.push(best.place);
            added = best.query;
        }
        groups.push(group);
    }
    groups
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
