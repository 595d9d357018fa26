//! Aggregates a block of rows without a group key: numbers are added up where they lie, without a cell for each row.

use std::ops::Range;

use arrow::buffer::BooleanBuffer;

use super::super::program::{Kind, Program};
use super::add;
use super::cells::PageCells;

/// Adds the rows of a range of the page, of which `selected` are set (`None` means all). `nulls` has for each step
/// which rows of the page are not NULL, `steps` its numbers in the range. Returns `None` if there is no such step.
pub(super) fn add_block(
    program: &Program,
    nulls: &[Option<BooleanBuffer>],
    steps: &[Vec<i64>],
    (range, selected): (Range<usize>, Option<&BooleanBuffer>),
    cells: &mut PageCells,
) -> Option<()> {
    cells.row_counts.change(0, count_of(selected, range.len()), add);
    for (place, aggregate) in program.aggregates.iter().enumerate() {
        let Some(step) = aggregate.step.filter(|_| aggregate.cells == place) else { continue };
        let valid = nulls.get(step).and_then(Option::as_ref);
        let valid = valid.map(|valid| valid.slice(range.start, range.len()));
        let rows = match (selected, valid) {
            (Some(selected), Some(valid)) => Some(selected & &valid),
            (Some(selected), None) => Some(selected.clone()),
            (None, valid) => valid,
        };
        if let Some(counts) = cells.counts.get_mut(place).and_then(Option::as_mut) {
            counts.change(0, count_of(rows.as_ref(), range.len()), add);
        }
        let Some(values) = cells.values.get_mut(place).and_then(Option::as_mut) else { continue };
        let numbers = steps.get(step)?;
        let rows = rows.as_ref();
        match aggregate.kind {
            Kind::Count => {}
            Kind::Sum => values.change(0, sum(numbers, rows), add),
            Kind::Min => values.change(0, joined(numbers, rows, i64::MAX, i64::min), i64::min),
            Kind::Max => values.change(0, joined(numbers, rows, i64::MIN, i64::max), i64::max),
        }
    }
    Some(())
}

fn count_of(rows: Option<&BooleanBuffer>, all: usize) -> i64 {
    let count = rows.map_or(all, BooleanBuffer::count_set_bits);
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The sum of the numbers of `rows` (`None` means all). If most of 64 rows are set, as with few dead rows, all are
/// added and the others subtracted again: wrapping sums cancel exactly.
fn sum(numbers: &[i64], rows: Option<&BooleanBuffer>) -> i64 {
    let Some(rows) = rows else {
        return numbers.iter().copied().fold(0, add);
    };
    let words = rows.bit_chunks();
    numbers.chunks(64).zip(words.iter_padded()).fold(0, |sum, (numbers, word)| {
        let mut left_out = !word & u64::MAX >> (64 - numbers.len());
        if left_out.count_ones() * 4 > u64::BITS {
            return join_word(numbers, word, sum, 0, add);
        }
        let mut sum = numbers.iter().copied().fold(sum, add);
        while left_out != 0 {
            let row = left_out.trailing_zeros() as usize;
            sum = sum.wrapping_sub(numbers.get(row).copied().unwrap_or_default());
            left_out &= left_out - 1;
        }
        sum
    })
}

/// Folds the numbers of `rows` (`None` means all) with `join`, beginning with its neutral `start`.
fn joined(
    numbers: &[i64],
    rows: Option<&BooleanBuffer>,
    start: i64,
    join: impl Fn(i64, i64) -> i64,
) -> i64 {
    let Some(rows) = rows else {
        return numbers.iter().copied().fold(start, join);
    };
    let words = rows.bit_chunks();
    let words = numbers.chunks(64).zip(words.iter_padded());
    words.fold(start, |joined, (numbers, word)| join_word(numbers, word, joined, start, &join))
}

/// Folds into `joined` those of up to 64 numbers whose bit is set in `word`.
fn join_word(
    numbers: &[i64],
    word: u64,
    mut joined: i64,
    start: i64,
    join: impl Fn(i64, i64) -> i64,
) -> i64 {
    match word {
        0 => {}
        u64::MAX => joined = numbers.iter().copied().fold(joined, &join),
        _ if word.count_ones() * 4 < u64::BITS => {
            let mut left = word;
            while left != 0 {
                let row = left.trailing_zeros() as usize;
                joined = join(joined, numbers.get(row).copied().unwrap_or(start));
                left &= left - 1;
            }
        }
        // Without a branch for each row.
        _ => {
            for (row, number) in numbers.iter().enumerate() {
                let kept = 0_i64.wrapping_sub((word >> row & 1).cast_signed());
                joined = join(joined, number & kept | start & !kept);
            }
        }
    }
    joined
}
