//! The results of one page: a number for each of its groups and each aggregate.

use super::super::program::{Aggregate, Kind, Program};
use super::{BLOCK, OfferedPage, add};

/// The addend of a count for each row of a block.
const ONES: [i64; BLOCK] = [1; BLOCK];

/// The results of one page: cells by group.
pub(super) struct PageCells {
    pub(super) row_counts: Cells,
    /// For each aggregate with cells of its own; a count of rows needs none.
    pub(super) values: Vec<Option<Cells>>,
    /// How many numbers were not NULL, where there may be NULLs.
    pub(super) counts: Vec<Option<Cells>>,
}

impl PageCells {
    pub(super) fn new(program: &Program, columns: &OfferedPage<'_>) -> Self {
        let group_count = columns.group_count;
        let has_nulls = |step: usize| columns.nulls.get(step).is_some_and(Option::is_some);
        let own = || {
            let all = program.aggregates.iter().enumerate();
            all.map(|(place, aggregate)| {
                (aggregate.kind, aggregate.step.filter(|_| aggregate.cells == place))
            })
        };
        let values = own().map(|(kind, step)| match (kind, step) {
            (Kind::Count, _) | (_, None) => None,
            (Kind::Sum, _) => Some(Cells::new(group_count, 0)),
            (Kind::Min, _) => Some(Cells::new(group_count, i64::MAX)),
            (Kind::Max, _) => Some(Cells::new(group_count, i64::MIN)),
        });
        let counts = own().map(|(_, step)| {
            step.filter(|step| has_nulls(*step)).map(|_| Cells::new(group_count, 0))
        });
        Self {
            row_counts: Cells::new(group_count, 0),
            values: values.collect(),
            counts: counts.collect(),
        }
    }

    /// The groups that have rows, of so many, and how many rows.
    pub(super) fn present(&self, group_count: usize) -> Vec<(usize, i64)> {
        let all = (0..group_count).map(|group| (group, self.row_counts.total(group, 0, add)));
        all.filter(|(_, rows)| *rows > 0).collect()
    }

    /// The number of `aggregate` for a group of so many rows, if it has one, and how many numbers are not NULL.
    pub(super) fn of(&self, aggregate: &Aggregate, group: usize, rows: i64) -> (Option<i64>, i64) {
        let counted = self.counts.get(aggregate.cells).and_then(Option::as_ref);
        let count = counted.map_or(rows, |counted| counted.total(group, 0, add));
        let values = self.values.get(aggregate.cells).and_then(Option::as_ref);
        let value = values.map(|values| {
            let value = values.of(aggregate.kind, group);
            if aggregate.kind == Kind::Sum { aggregate.of_cells(value, count) } else { value }
        });
        (value, count)
    }
}

/// Partial sums for few groups: an addition need not wait for the one before, which may be of the same group.
const LANE_COUNT: usize = 4;
/// Groups in a lane, a power of two.
const LANE_GROUPS: usize = 64;

/// A number for each group of a page, and one for unselected rows.
#[derive(Debug)]
pub(super) enum Cells {
    Few(Box<[[i64; LANE_GROUPS]; LANE_COUNT]>),
    Many(Vec<i64>),
}

impl Cells {
    fn new(group_count: usize, start: i64) -> Self {
        if group_count < LANE_GROUPS {
            Self::Few(Box::new([[start; LANE_GROUPS]; LANE_COUNT]))
        } else {
            Self::Many(vec![start; group_count + 1])
        }
    }

    /// Changes the cell of one group.
    pub(super) fn change(&mut self, group: usize, number: i64, change: impl Fn(i64, i64) -> i64) {
        let cell = match self {
            Self::Few(lanes) => lanes.first_mut().and_then(|lane| lane.get_mut(group)),
            Self::Many(cells) => cells.get_mut(group),
        };
        if let Some(cell) = cell {
            *cell = change(*cell, number);
        }
    }

    /// Adds one to the cell of each row, for at most one block.
    pub(super) fn count(&mut self, groups: &[u32]) {
        self.each(groups, ONES.get(..groups.len()).unwrap_or_default(), add);
    }

    /// Updates the cell of each row with the row's number.
    pub(super) fn each(
        &mut self,
        groups: &[u32],
        numbers: &[i64],
        change: impl Fn(i64, i64) -> i64,
    ) {
        match self {
            Self::Few(lanes) => {
                let [a, b, c, d] = &mut **lanes;
                let (rows, rest) = groups.as_chunks::<LANE_COUNT>();
                let (values, values_rest) = numbers.as_chunks::<LANE_COUNT>();
                for ([ga, gb, gc, gd], [va, vb, vc, vd]) in rows.iter().zip(values) {
                    for (lane, group, value) in
                        [(&mut *a, ga, va), (b, gb, vb), (c, gc, vc), (d, gd, vd)]
                    {
                        let cell = &mut lane[*group as usize % LANE_GROUPS];
                        *cell = change(*cell, *value);
                    }
                }
                for (group, value) in rest.iter().zip(values_rest) {
                    let cell = &mut a[*group as usize % LANE_GROUPS];
                    *cell = change(*cell, *value);
                }
            }
            Self::Many(cells) => {
                for (group, value) in groups.iter().zip(numbers) {
                    if let Some(cell) = cells.get_mut(*group as usize) {
                        *cell = change(*cell, *value);
                    }
                }
            }
        }
    }

    /// The total of a group over all lanes.
    pub(super) fn total(&self, group: usize, start: i64, join: impl Fn(i64, i64) -> i64) -> i64 {
        match self {
            Self::Few(lanes) => {
                lanes.iter().map(|lane| lane[group % LANE_GROUPS]).fold(start, join)
            }
            Self::Many(cells) => cells.get(group).copied().map_or(start, |cell| join(start, cell)),
        }
    }

    fn of(&self, kind: Kind, group: usize) -> i64 {
        match kind {
            Kind::Count | Kind::Sum => self.total(group, 0, add),
            Kind::Min => self.total(group, i64::MAX, i64::min),
            Kind::Max => self.total(group, i64::MIN, i64::max),
        }
    }
}
