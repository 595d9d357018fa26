//! The groups of a page whose rows lie in the order of the group's key: each run of equal keys is one, and no table
//! finds it. So an aggregate of the lines of each order, which are stored in order, hashes no row.
//!
//! A page qualifies if its first key never falls, and if its runs are long enough that each holds two of the selected
//! rows on average. Its groups are not kept: their states leave as a batch of their own. The final aggregate joins a
//! group that goes on in the next page, as it joins those of two partitions.
//!
//! Invariant: the pages that one partition takes so have first keys that overlap at their ends only. In other data each
//! page would repeat the groups of the others, which a table adds up.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use cleave_store::OpenColumn;
use datafusion_common::Result;

use super::{BLOCK, OfferedPage, PageGroups, numbers_as};
use crate::operators::dense_aggregate_exec::program::Program;

/// A page has at least so many selected rows a run.
const ROWS_PER_RUN: usize = 2;

/// The runs of one page.
pub(super) struct PageRuns {
    /// The run of each row.
    pub(super) numbers: Vec<u32>,
    /// For each column of the key, its value in each run.
    keys: Vec<Vec<i64>>,
}

/// The first keys of pages: from the least of a page to its greatest.
#[derive(Debug, Default)]
pub(super) struct KeyRanges(BTreeMap<i64, i64>);

impl PageRuns {
    /// The runs of the key `columns` in a page of `row_count` rows, of which `kept` are selected; `None` if the page
    /// does not qualify.
    pub(super) fn of(columns: &[&OpenColumn], row_count: usize, kept: usize) -> Option<Self> {
        if columns.is_empty() || columns.iter().any(|column| column.nulls().is_some()) {
            return None;
        }
        let run_count_max = kept / ROWS_PER_RUN;
        let mut runs = Self {
            numbers: Vec::with_capacity(row_count),
            keys: vec![Vec::with_capacity(run_count_max.min(BLOCK)); columns.len()],
        };
        let mut blocks = vec![Vec::with_capacity(BLOCK); columns.len()];
        for start in (0..row_count).step_by(BLOCK) {
            let range = start..row_count.min(start + BLOCK);
            for (column, block) in columns.iter().zip(&mut blocks) {
                block.clear();
                let is_read = column.integers(range.clone(), block) && block.len() == range.len();
                is_read.then_some(())?;
            }
            match blocks.as_slice() {
                [block] => runs.extend_by_one(block)?,
                blocks => runs.extend(blocks)?,
            }
            let of_all = run_count_max * range.end / row_count + ROWS_PER_RUN;
            (runs.count() <= of_all).then_some(())?;
        }
        (runs.count() <= run_count_max).then_some(runs)
    }

    pub(super) fn count(&self) -> usize {
        self.keys.first().map_or(0, Vec::len)
    }

    /// Adds rows by the only column of the key; `None` if it falls.
    fn extend_by_one(&mut self, block: &[i64]) -> Option<()> {
        let keys = self.keys.first_mut()?;
        let first = *block.first()?;
        let mut last = match keys.last() {
            Some(last) => *last,
            None => {
                keys.push(first);
                first
            }
        };
        let mut number = u32::try_from(keys.len()).ok()?.checked_sub(1)?;
        let mut rises = true;
        for key in block {
            if *key != last {
                rises &= *key > last;
                keys.push(*key);
                number = number.wrapping_add(1);
                last = *key;
            }
            self.numbers.push(number);
        }
        rises.then_some(())
    }

    /// Adds rows by several columns of the key; `None` if the first falls.
    fn extend(&mut self, blocks: &[Vec<i64>]) -> Option<()> {
        for row in 0..blocks.first()?.len() {
            let keys = || self.keys.iter().zip(blocks);
            let is_same = keys().all(|(keys, block)| keys.last() == block.get(row));
            if !is_same {
                let (keys, block) = keys().next()?;
                let (last, next) = (keys.last(), block.get(row)?);
                last.is_none_or(|last| last <= next).then_some(())?;
                for (keys, block) in self.keys.iter_mut().zip(blocks) {
                    keys.push(*block.get(row)?);
                }
            }
            self.numbers.push(u32::try_from(self.count()).ok()?.checked_sub(1)?);
        }
        Some(())
    }

    /// The first keys of the page.
    pub(super) fn range(&self) -> Option<(i64, i64)> {
        let keys = self.keys.first()?;
        Some((*keys.first()?, *keys.last()?))
    }

    /// The values of the key in the runs that are `present`.
    pub(super) fn keys_of(
        &self,
        program: &Program,
        present: &[(usize, i64)],
    ) -> Result<Vec<ArrayRef>> {
        let columns = self.keys.iter().zip(program.group_schema.fields());
        let columns = columns.map(|(keys, field)| {
            let keys = present.iter().map(|(run, _)| keys.get(*run).copied()).collect();
            numbers_as(keys, field.data_type())
        });
        columns.collect()
    }
}

impl KeyRanges {
    /// Whether a page of these first keys overlaps those before at its ends at most.
    pub(super) fn admits(&self, (least, greatest): (i64, i64)) -> bool {
        // They overlap at their ends only, so the last of those that begin below also ends last.
        let before = self.0.range(..greatest).next_back();
        before.is_none_or(|(_, end)| *end <= least)
    }

    pub(super) fn insert(&mut self, (least, greatest): (i64, i64)) {
        let end = self.0.entry(least).or_insert(greatest);
        *end = greatest.max(*end);
    }
}

impl OfferedPage<'_> {
    /// The page's groups, where they are runs.
    pub(super) fn run_range(&self) -> Option<(i64, i64)> {
        match &self.groups {
            PageGroups::Runs(runs) => runs.range(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extended(blocks: &[&[i64]]) -> Option<PageRuns> {
        let mut runs = PageRuns { numbers: Vec::new(), keys: vec![Vec::new()] };
        for block in blocks {
            runs.extend_by_one(block)?;
        }
        Some(runs)
    }

    #[test]
    fn a_run_goes_on_in_the_next_block() {
        let runs = extended(&[&[-3, -3, 0], &[0, 7, 7]]).unwrap();
        assert_eq!(runs.numbers, [0, 0, 1, 1, 2, 2]);
        assert_eq!(runs.keys, [[-3, 0, 7]]);
        assert_eq!(runs.range(), Some((-3, 7)));
        assert!(extended(&[&[1, 2], &[1]]).is_none());
    }

    #[test]
    fn several_columns_change_a_run_and_the_first_never_falls() {
        let mut runs = PageRuns { numbers: Vec::new(), keys: vec![Vec::new(), Vec::new()] };
        runs.extend(&[vec![1, 1, 1, 2], vec![5, 5, 4, 4]]).unwrap();
        runs.extend(&[vec![2, 2], vec![4, 9]]).unwrap();
        assert_eq!(runs.numbers, [0, 0, 1, 2, 2, 3]);
        assert_eq!(runs.keys, [[1, 1, 2, 2], [5, 4, 4, 9]]);
        assert!(runs.extend(&[vec![1], vec![9]]).is_none());
    }

    #[test]
    fn pages_may_share_the_keys_at_their_ends() {
        let mut ranges = KeyRanges::default();
        for (range, is_admitted) in [
            ((10, 20), true),
            ((20, 30), true),
            ((15, 40), false),
            ((12, 13), false),
            ((0, 10), true),
            ((0, 11), false),
            ((10, 10), true),
            ((30, 30), true),
            ((31, 31), true),
            ((25, 25), false),
        ] {
            assert_eq!(ranges.admits(range), is_admitted, "{range:?}");
            if is_admitted {
                ranges.insert(range);
            }
        }
    }
}
