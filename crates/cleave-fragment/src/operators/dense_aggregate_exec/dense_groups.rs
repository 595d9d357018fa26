//! Groups the rows of pages that were taken whole: selected pages in, states out.
//!
//! ```text
//!   page ─▶ blocks of 1024 rows ─▶ a group's number │ a number for each step ─▶ cells of the page's groups
//!                                                                                  │ at the page's end
//!                                                     groups by their values ◀─────┘
//! ```
//!
//! 1. [`DenseGroups::absorb`] checks that the page's groups are few: entries of dictionaries, or short ranges.
//! 2. Block by block it computes the program's steps. The least and greatest value of each column prove beforehand that
//!    nothing exceeds 64 bits, neither a step nor a sum over the page; an unselected row adds to a group that is thrown
//!    away. Without a group key this is one pass over the numbers ([`one_group`]).
//! 3. At the end of the page its groups are added to those of the pages before, found by their values.
//! 4. A page with too many groups is taken if its rows lie in the order of the key ([`runs`]).
//! 5. With too many groups in all, states of a page leave at its end if they [may be repeated](RepeatedStates).
//!
//! Invariants: work on a page that turns out not to qualify is discarded; what is kept is charged to the task's memory,
//! but for the groups that one page adds. A page that does not fit is left to DataFusion.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Int64Array, PrimitiveArray,
    RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{TakeOptions, take};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow::row::{RowConverter, SortField};
use cleave_store::{OpenColumn, Projection};
use datafusion_common::{Result, internal_datafusion_err, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;

use super::program::{Aggregate, Kind, Program, Step};
use crate::operators::table_scan_exec::scan_page::{ScanPage, external};
use cells::PageCells;
use runs::{KeyRanges, PageRuns};

mod cells;
mod one_group;
mod runs;

/// Rows that are computed at once: their numbers stay in the L1 cache.
const BLOCK: usize = 1024;
/// Most groups of a page.
const PAGE_GROUPS_MAX: usize = 4096;
/// Most groups in all: with more, DataFusion's tables are as good, and they spill.
const GROUPS_MAX: usize = 16_384;
/// Most bytes of the keys of all groups.
const KEY_BYTES_MAX: usize = 1 << 22;
/// Bytes of a group beside its totals and its key: entries of tables and lists.
const GROUP_BYTES: usize = 96;
/// The states of a page of fewer selected rows do not leave at once: each batch of them has a cost of its own.
const REPEATED_ROWS_MIN: usize = 4096;
/// A page whose states leave at once has at least so many selected rows a group.
const ROWS_PER_GROUP: usize = 3;
/// If fewer than one row in so many of a page is selected, decoding the selected rows is faster.
const SPARSE: usize = 24;
/// If fewer than one row in so many of a block is selected, they are gathered before they are added.
const GATHER: usize = 3;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct DenseGroups {
    program: Arc<Program>,
    /// None if there is one group.
    converter: Option<RowConverter>,
    numbers: HashMap<Box<[u8]>, usize>,
    keys: Vec<Box<[u8]>>,
    key_bytes: usize,
    /// For each group, the totals of each aggregate over all pages.
    totals: Vec<Vec<Total>>,
    /// States of pages that are not kept.
    finished: VecDeque<RecordBatch>,
    ranges: KeyRanges,
    /// Whether states of a group may leave with each page that has it.
    may_repeat: bool,
    /// Charged for the totals and keys of all groups.
    memory: MemoryReservation,
    /// Charged for the states that have not left.
    finished_memory: MemoryReservation,
    /// Whether there was no memory for more groups.
    is_refused: bool,
    scratch: Scratch,
}

#[derive(Debug, Clone, Copy)]
struct Total {
    value: i128,
    /// How many numbers.
    count: i64,
}

/// Buffers reused for every page.
#[derive(Debug, Default)]
struct Scratch {
    groups: Vec<u32>,
    masked: Vec<u32>,
    codes: Vec<u32>,
    picked: Vec<u32>,
    picked_numbers: Vec<i64>,
    /// The numbers of each step.
    steps: Vec<Vec<i64>>,
}

/// A column of the group's key in one page.
struct GroupColumn<'a> {
    column: &'a OpenColumn,
    values: GroupValues,
    /// Positions, with the one of NULL behind those of values.
    place_count: usize,
}

enum GroupValues {
    /// Positions in these values.
    Distinct(ArrayRef),
    /// Integers from this one on.
    From(i64),
}

/// A column of numbers in one page.
struct NumberColumn<'a> {
    index: usize,
    column: &'a OpenColumn,
    /// The numbers of a dictionary's entries; None if the page stores numbers.
    table: Option<Vec<i64>>,
    /// Bounds of the numbers, if known for the page.
    bounds: Option<(i64, i64)>,
}

/// The partial aggregate of a group may leave several times: the final one runs in this process, so more states cost
/// less than a table here, which finds the states of a group in each other page. An extension of the session's
/// configuration; on a device, whose states cross a link, there is none.
#[derive(Debug)]
pub struct RepeatedStates;

/// How many groups a page may have.
struct Limits {
    /// Its selected rows.
    kept: usize,
    /// If codes tell its groups.
    coded: usize,
}

/// What tells the groups of the rows of a page.
enum PageGroups<'a> {
    Coded(Vec<GroupColumn<'a>>),
    Runs(PageRuns),
}

/// A page that may be taken: its columns, and what is known of them before a row is read.
struct OfferedPage<'a> {
    groups: PageGroups<'a>,
    group_count: usize,
    numbers: Vec<NumberColumn<'a>>,
    /// For each step, which rows are not NULL; `None` if all.
    nulls: Vec<Option<BooleanBuffer>>,
}

impl DenseGroups {
    pub(super) fn new(
        program: Arc<Program>,
        may_repeat: bool,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let fields = program.group_schema.fields();
        let fields = fields.iter().map(|field| SortField::new(field.data_type().clone()));
        let fields: Vec<SortField> = fields.collect();
        let converter = if fields.is_empty() { None } else { Some(RowConverter::new(fields)?) };
        Ok(Self {
            program,
            converter,
            numbers: HashMap::new(),
            keys: Vec::new(),
            key_bytes: 0,
            totals: Vec::new(),
            finished: VecDeque::new(),
            ranges: KeyRanges::default(),
            may_repeat,
            finished_memory: memory.new_empty(),
            memory,
            is_refused: false,
            scratch: Scratch::default(),
        })
    }

    /// Takes the selected rows of `page`, whose `output` columns are open; false if the page does not qualify.
    pub(crate) fn absorb(&mut self, page: &ScanPage<'_>, output: &Projection) -> Result<bool> {
        let row_count = page.row_count();
        let selection = page.selection.as_ref();
        let kept = selection.map_or(row_count, BooleanBuffer::count_set_bits);
        if kept == 0 || kept < row_count / SPARSE {
            return Ok(false);
        }
        let program = Arc::clone(&self.program);
        let limits = self.limits(kept);
        let Some(columns) = OfferedPage::of(&program, page, output, &limits)? else {
            return Ok(false);
        };
        if columns.run_range().is_some_and(|range| !self.ranges.admits(range)) {
            return Ok(false);
        }
        let mut cells = PageCells::new(&program, &columns);
        let rows = (row_count, selection);
        if absorb_blocks(&program, &columns, rows, &mut cells, &mut self.scratch).is_none() {
            return Ok(false);
        }
        let present = cells.present(columns.group_count);
        let range = columns.run_range();
        if range.is_none() && columns.group_count <= PAGE_GROUPS_MAX && !self.is_full() {
            self.add(&columns, &cells, &present)?;
            self.is_refused = self.memory.try_resize(self.bytes()).is_err();
            return Ok(true);
        }
        let keys = columns.keys_of(&program, &present)?;
        let states = page_states(&program, &cells, &present, keys)?;
        if self.finished_memory.try_grow(states.get_array_memory_size()).is_err() {
            return Ok(false);
        }
        if let Some(range) = range {
            self.ranges.insert(range);
        }
        self.finished.push_back(states);
        Ok(true)
    }

    fn is_full(&self) -> bool {
        self.is_refused || self.totals.len() > GROUPS_MAX || self.key_bytes > KEY_BYTES_MAX
    }

    /// What the totals and keys of all groups take; keys are kept twice.
    fn bytes(&self) -> usize {
        let of_group = self.program.aggregates.len() * size_of::<Total>() + GROUP_BYTES;
        self.totals.len() * of_group + 2 * self.key_bytes
    }

    /// How many groups a page of `kept` selected rows may have.
    fn limits(&self, kept: usize) -> Limits {
        let repeated = self.may_repeat && kept >= REPEATED_ROWS_MIN;
        let in_table = if self.is_full() { 0 } else { PAGE_GROUPS_MAX };
        let few = if repeated { (kept / ROWS_PER_GROUP).min(PAGE_GROUPS_MAX) } else { 0 };
        Limits { kept, coded: in_table.max(few) }
    }

    /// The states of a page that are not kept, once each.
    pub(super) fn next_finished(&mut self) -> Option<RecordBatch> {
        let states = self.finished.pop_front()?;
        self.finished_memory.shrink(states.get_array_memory_size());
        Some(states)
    }

    /// Adds the groups of a page to those of the pages before.
    fn add(
        &mut self,
        columns: &OfferedPage<'_>,
        cells: &PageCells,
        present: &[(usize, i64)],
    ) -> Result<()> {
        let groups = self.numbers_of(columns, present)?;
        for ((group, rows), number) in present.iter().zip(groups) {
            let Some(totals) = self.totals.get_mut(number) else { continue };
            for (aggregate, total) in self.program.aggregates.iter().zip(totals) {
                let (value, count) = cells.of(aggregate, *group, *rows);
                if let Some(value) = value.filter(|_| count > 0) {
                    total.add(aggregate.kind, value);
                }
                total.count = total.count.saturating_add(count);
            }
        }
        Ok(())
    }

    /// The overall numbers of a page's groups.
    fn numbers_of(
        &mut self,
        columns: &OfferedPage<'_>,
        present: &[(usize, i64)],
    ) -> Result<Vec<usize>> {
        let empty: Vec<Total> = self.program.aggregates.iter().map(Total::empty).collect();
        let Some(converter) = &self.converter else {
            if self.totals.is_empty() {
                self.totals.push(empty);
            }
            return Ok(vec![0; present.len()]);
        };
        let arrays = columns.keys_of(&self.program, present)?;
        let rows = converter.convert_columns(&arrays)?;
        let mut numbers = Vec::with_capacity(present.len());
        for row in &rows {
            let known = self.numbers.get(row.data()).copied();
            numbers.push(known.unwrap_or_else(|| {
                let number = self.totals.len();
                self.numbers.insert(row.data().into(), number);
                self.keys.push(row.data().into());
                self.key_bytes += row.data().len();
                self.totals.push(empty.clone());
                number
            }));
        }
        Ok(numbers)
    }

    /// The states of all groups that are kept, once; `None` if there are none.
    pub(super) fn take_states(&mut self) -> Result<Option<RecordBatch>> {
        let totals = std::mem::take(&mut self.totals);
        if totals.is_empty() {
            return Ok(None);
        }
        let columns = match &self.converter {
            Some(converter) => {
                let parser = converter.parser();
                converter.convert_rows(self.keys.iter().map(|key| parser.parse(key)))?
            }
            None => Vec::new(),
        };
        let states =
            states_of(&self.program, (columns, totals.len()), |place, aggregate, data_type| {
                let kind = aggregate.kind;
                state(kind, totals.iter().filter_map(|totals| totals.get(place)), data_type)
            })?;
        Ok(Some(states))
    }
}

/// The states of so many groups, whose key has these columns. `state_of` gives those of the aggregate at a place,
/// in a type.
fn states_of(
    program: &Program,
    (columns, count): (Vec<ArrayRef>, usize),
    state_of: impl Fn(usize, &Aggregate, &DataType) -> Result<ArrayRef>,
) -> Result<RecordBatch> {
    let rows = RecordBatchOptions::new().with_row_count(Some(count));
    let group_schema = Arc::clone(&program.group_schema);
    let groups = RecordBatch::try_new_with_options(group_schema, columns, &rows)?;
    let mut states = Vec::with_capacity(program.states.fields().len());
    for key in &program.group_keys {
        states.push(key.evaluate(&groups)?.into_array(count)?);
    }
    let fields = program.states.fields().iter().skip(program.group_keys.len());
    for (place, (aggregate, field)) in program.aggregates.iter().zip(fields).enumerate() {
        states.push(state_of(place, aggregate, field.data_type())?);
    }
    Ok(RecordBatch::try_new_with_options(Arc::clone(&program.states), states, &rows)?)
}

/// The states of the groups of a page that have rows, and how many; `keys` are their values.
fn page_states(
    program: &Program,
    cells: &PageCells,
    present: &[(usize, i64)],
    keys: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    states_of(program, (keys, present.len()), |_, aggregate, data_type| {
        let total = |(group, rows): &(usize, i64)| {
            let (value, count) = cells.of(aggregate, *group, *rows);
            if value.is_none() && aggregate.kind != Kind::Count {
                return internal_err!("an aggregate without numbers");
            }
            let value = value.filter(|_| count > 0);
            Ok(Total { value: value.map_or(0, i128::from), count })
        };
        let totals = present.iter().map(total).collect::<Result<Vec<Total>>>()?;
        state(aggregate.kind, totals.iter(), data_type)
    })
}

/// Computes a page block by block; `None` if it does not qualify.
fn absorb_blocks(
    program: &Program,
    columns: &OfferedPage<'_>,
    (row_count, selection): (usize, Option<&BooleanBuffer>),
    cells: &mut PageCells,
    scratch: &mut Scratch,
) -> Option<()> {
    let outside = u32::try_from(columns.group_count).ok()?;
    // With this limit no sum over the page exceeds 64 bits.
    let reach = i64::MAX / i64::try_from(row_count).ok()?.max(1);
    scratch.steps.resize_with(program.steps.len(), Vec::new);
    for start in (0..row_count).step_by(BLOCK) {
        let range = start..row_count.min(start + BLOCK);
        let count = range.len();
        let selected = selection.map(|selection| selection.slice(start, count));
        let kept = selected.as_ref().map_or(count, BooleanBuffer::count_set_bits);
        if kept == 0 {
            continue;
        }
        run_steps(program, &columns.numbers, range.clone(), reach, &mut scratch.steps)?;
        if columns.is_one_group() {
            let (nulls, steps) = (&columns.nulls, &scratch.steps);
            one_group::add_block(program, nulls, steps, (range, selected.as_ref()), cells)?;
            continue;
        }
        let gathered = selected.as_ref().filter(|_| kept * GATHER < count);
        let is_gathered = gathered.is_some();
        scratch.picked.clear();
        if let Some(gathered) = gathered {
            let set = gathered.set_indices();
            scratch.picked.extend(set.map(|row| u32::try_from(row).unwrap_or(0)));
        }
        match &columns.groups {
            PageGroups::Coded(groups) => group_numbers(groups, range, gathered, scratch)?,
            PageGroups::Runs(PageRuns { numbers, .. }) => {
                let (numbers, picked) = (numbers.get(range)?, &scratch.picked);
                scratch.groups.clear();
                match gathered {
                    Some(_) => scratch.groups.extend(picked.iter().map(|row| pick(numbers, *row))),
                    None => scratch.groups.extend_from_slice(numbers),
                }
            }
        }
        if let Some(selected) = &selected
            && !is_gathered
            && kept < count
        {
            mask(&mut scratch.groups, selected, outside);
        }
        cells.row_counts.count(&scratch.groups);
        for (place, aggregate) in program.aggregates.iter().enumerate() {
            let Some(step) = aggregate.step.filter(|_| aggregate.cells == place) else { continue };
            let mut rows: &[u32] = &scratch.groups;
            if let Some(nulls) = columns.nulls.get(step).and_then(Option::as_ref) {
                let valid = nulls.slice(start, count);
                scratch.masked.clear();
                scratch.masked.extend_from_slice(&scratch.groups);
                if is_gathered {
                    for (group, row) in scratch.masked.iter_mut().zip(&scratch.picked) {
                        if !valid.value(*row as usize) {
                            *group = outside;
                        }
                    }
                } else {
                    mask(&mut scratch.masked, &valid, outside);
                }
                rows = &scratch.masked;
            }
            if let Some(counts) = cells.counts.get_mut(place).and_then(Option::as_mut) {
                counts.count(rows);
            }
            let Some(values) = cells.values.get_mut(place).and_then(Option::as_mut) else {
                continue;
            };
            let mut all: &[i64] = scratch.steps.get(step)?;
            if is_gathered {
                scratch.picked_numbers.clear();
                let gathered = scratch.picked.iter().map(|row| pick(all, *row));
                scratch.picked_numbers.extend(gathered);
                all = &scratch.picked_numbers;
            }
            match aggregate.kind {
                Kind::Count => {}
                Kind::Sum => values.each(rows, all, add),
                Kind::Min => values.each(rows, all, i64::min),
                Kind::Max => values.each(rows, all, i64::max),
            }
        }
    }
    Some(())
}

#[inline]
fn pick<T: Copy + Default>(values: &[T], place: u32) -> T {
    values.get(place as usize).copied().unwrap_or_default()
}

#[inline]
fn add(left: i64, right: i64) -> i64 {
    left.wrapping_add(right)
}

/// Puts rows whose bit is not set into group `outside`.
fn mask(groups: &mut [u32], kept: &BooleanBuffer, outside: u32) {
    let words = kept.bit_chunks();
    for (groups, word) in groups.chunks_mut(64).zip(words.iter_padded()) {
        if word == u64::MAX {
            continue;
        }
        for (bit, group) in groups.iter_mut().enumerate() {
            *group = if word >> bit & 1 == 1 { *group } else { outside };
        }
    }
}

/// The group number within the page of each row, or of each `gathered` one, whose places are those picked; `None` for
/// an invalid code.
fn group_numbers(
    columns: &[GroupColumn<'_>],
    range: Range<usize>,
    gathered: Option<&BooleanBuffer>,
    scratch: &mut Scratch,
) -> Option<()> {
    let Scratch { groups, codes, picked, .. } = scratch;
    let count = if gathered.is_some() { picked.len() } else { range.len() };
    groups.clear();
    groups.resize(count, 0);
    for column in columns {
        codes.clear();
        match gathered {
            Some(gathered) => column.places_of(range.clone(), gathered, picked, codes)?,
            None => column.places(range.clone(), codes)?,
        }
        let count = u32::try_from(column.place_count).ok()?;
        if codes.len() != groups.len() || codes.iter().any(|code| *code >= count) {
            return None;
        }
        for (group, code) in groups.iter_mut().zip(codes.iter()) {
            *group = group.wrapping_mul(count).wrapping_add(*code);
        }
    }
    Some(())
}

/// The numbers of each step for the rows of `range`; `None` if one may leave `-reach..=reach`, or 64 bits on the way.
fn run_steps(
    program: &Program,
    columns: &[NumberColumn<'_>],
    range: Range<usize>,
    reach: i64,
    steps: &mut [Vec<i64>],
) -> Option<()> {
    let mut bounds: Vec<(i64, i64)> = Vec::with_capacity(program.steps.len());
    for (place, step) in program.steps.iter().enumerate() {
        let is_computed = program.is_computed.get(place) == Some(&true);
        let (before, rest) = steps.split_at_mut_checked(place)?;
        let target = rest.first_mut()?;
        target.clear();
        let bound = |step: &usize| {
            let (low, high) = bounds.get(*step).copied()?;
            Some((i128::from(low), i128::from(high)))
        };
        let (low, high) = match step {
            Step::Column(index) => {
                let column = columns.iter().find(|column| column.index == *index)?;
                // Its bounds may have to be found in its numbers.
                column.numbers(range.clone(), target)?;
                let (low, high) = column.bounds.unwrap_or_else(|| ends(target));
                (i128::from(low), i128::from(high))
            }
            Step::Product(a, b) => {
                let ((al, ah), (bl, bh)) = (bound(a)?, bound(b)?);
                let corners = [al * bl, al * bh, ah * bl, ah * bh];
                if is_computed {
                    let pairs = before.get(*a)?.iter().zip(before.get(*b)?);
                    target.extend(pairs.map(|(a, b)| a.wrapping_mul(*b)));
                }
                (corners.into_iter().min()?, corners.into_iter().max()?)
            }
            Step::Sum(a, x, b, y) => {
                let (left, right) = (times(bound(a)?, *x)?, times(bound(b)?, *y)?);
                if is_computed {
                    let pairs = before.get(*a)?.iter().zip(before.get(*b)?);
                    target.extend(
                        pairs.map(|(a, b)| a.wrapping_mul(*x).wrapping_add(b.wrapping_mul(*y))),
                    );
                }
                (left.0 + right.0, left.1 + right.1)
            }
            Step::Affine(a, factor, plus) => {
                let (low, high) = times(bound(a)?, *factor)?;
                if is_computed {
                    let all = before.get(*a)?.iter();
                    target.extend(all.map(|a| a.wrapping_mul(*factor).wrapping_add(*plus)));
                }
                (low + i128::from(*plus), high + i128::from(*plus))
            }
        };
        let reach = i128::from(reach);
        let (least, greatest) = program.limits.get(place).copied()?;
        let fits = low >= i128::from(least).max(-reach)
            && high <= i128::from(greatest).min(reach)
            && (!is_computed || target.len() == range.len());
        bounds.push(fits.then(|| Some((i64::try_from(low).ok()?, i64::try_from(high).ok()?)))??);
    }
    Some(())
}

/// The least and the greatest number.
fn ends(numbers: &[i64]) -> (i64, i64) {
    let low = numbers.iter().copied().fold(i64::MAX, i64::min);
    (low, numbers.iter().copied().fold(i64::MIN, i64::max))
}

/// The bounds of a column of few rows whose header has none: that of a page that was written row by row.
fn counted_bounds(column: &OpenColumn, row_count: usize) -> Option<(i64, i64)> {
    let mut numbers = Vec::new();
    let is_counted = row_count <= 4 * BLOCK && column.integers(0..row_count, &mut numbers);
    is_counted.then(|| ends(&numbers))
}

/// Bounds times a factor, if the products fit 64 bits.
fn times((low, high): (i128, i128), factor: i64) -> Option<(i128, i128)> {
    let ends = [low * i128::from(factor), high * i128::from(factor)];
    ends.iter().all(|end| i64::try_from(*end).is_ok()).then_some(())?;
    Some((ends.into_iter().min()?, ends.into_iter().max()?))
}

impl<'a> OfferedPage<'a> {
    /// The columns of `page`; `None` if it has another encoding, or too many groups.
    fn of(
        program: &Program,
        page: &'a ScanPage<'_>,
        output: &Projection,
        limits: &Limits,
    ) -> Result<Option<Self>> {
        let open = |index: usize| match output.columns.get(index) {
            Some(column) => page.column(*column),
            None => internal_err!("column {index} is none of the scan's"),
        };
        let mut numbers = Vec::new();
        for step in &program.steps {
            if let Step::Column(index) = step {
                let Some(column) = NumberColumn::of(*index, open(*index)?)? else {
                    return Ok(None);
                };
                numbers.push(column);
            }
        }
        let nulls = (0..program.steps.len()).map(|step| nulls_of(program, step, &numbers));
        let nulls = nulls.collect();
        let keys = program.group_columns.iter().map(|index| open(*index));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let mut coded = Vec::with_capacity(keys.len());
        let mut group_count = 1_usize;
        for key in &keys {
            match GroupColumn::of(key, page.row_count())? {
                Some(column) => {
                    group_count = group_count.saturating_mul(column.place_count);
                    coded.push(column);
                }
                None => group_count = usize::MAX,
            }
        }
        let is_coded = group_count <= limits.coded && group_count <= limits.kept.max(16);
        let groups = if is_coded {
            PageGroups::Coded(coded)
        } else if let Some(runs) = PageRuns::of(&keys, page.row_count(), limits.kept) {
            group_count = runs.count();
            PageGroups::Runs(runs)
        } else {
            return Ok(None);
        };
        Ok(Some(Self { groups, group_count, numbers, nulls }))
    }

    fn is_one_group(&self) -> bool {
        matches!(&self.groups, PageGroups::Coded(columns) if columns.is_empty())
    }

    /// The values of the key in the groups that are `present`.
    fn keys_of(&self, program: &Program, present: &[(usize, i64)]) -> Result<Vec<ArrayRef>> {
        let columns = match &self.groups {
            PageGroups::Runs(runs) => return runs.keys_of(program, present),
            PageGroups::Coded(columns) => columns,
        };
        let mut arrays = Vec::with_capacity(columns.len());
        let mut radix = 1;
        for (column, field) in columns.iter().zip(program.group_schema.fields()).rev() {
            let places = present.iter().map(|(group, _)| group / radix % column.place_count);
            arrays.push(column.values_at(places, field.data_type())?);
            radix *= column.place_count;
        }
        arrays.reverse();
        Ok(arrays)
    }
}

/// Which rows of the page are not NULL in `step`; `None` if all.
fn nulls_of(program: &Program, step: usize, numbers: &[NumberColumn<'_>]) -> Option<BooleanBuffer> {
    let columns = program.columns_of(step);
    let columns = numbers.iter().filter(|column| columns.contains(&column.index));
    let nulls = columns
        .fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.column.nulls()));
    nulls.map(NullBuffer::into_inner)
}

impl<'a> GroupColumn<'a> {
    fn of(column: &'a OpenColumn, row_count: usize) -> Result<Option<Self>> {
        let bounds = || column.integer_bounds().or_else(|| counted_bounds(column, row_count));
        let (values, count) = if let Some(values) = column.distinct_values().map_err(external)? {
            let count = values.len();
            (GroupValues::Distinct(values), count)
        } else if let Some((low, high)) = bounds()
            && let Ok(count) = usize::try_from(i128::from(high) - i128::from(low) + 1)
        {
            (GroupValues::From(low), count)
        } else {
            return Ok(None);
        };
        let place_count = count.saturating_add(usize::from(column.nulls().is_some()));
        Ok((count <= PAGE_GROUPS_MAX).then_some(Self { column, values, place_count }))
    }

    /// The position of each row's value.
    fn places(&self, range: Range<usize>, places: &mut Vec<u32>) -> Option<()> {
        match &self.values {
            GroupValues::Distinct(_) => self.column.codes(range.clone(), places).then_some(())?,
            GroupValues::From(low) => {
                let mut numbers = Vec::with_capacity(range.len());
                self.column.integers(range.clone(), &mut numbers).then_some(())?;
                let place = |number: &i64| u32::try_from(number.wrapping_sub(*low));
                places.extend(numbers.iter().map(|number| place(number).unwrap_or(u32::MAX)));
            }
        }
        if let Some(nulls) = self.column.nulls() {
            let null = u32::try_from(self.place_count).ok()?.checked_sub(1)?;
            mask(places, &nulls.inner().slice(range.start, range.len()), null);
        }
        Some(())
    }

    /// The position of the value of each `gathered` row of `range`, which lie at the places `picked` in it.
    fn places_of(
        &self,
        range: Range<usize>,
        gathered: &BooleanBuffer,
        picked: &[u32],
        places: &mut Vec<u32>,
    ) -> Option<()> {
        let start = range.start;
        match &self.values {
            GroupValues::Distinct(_) => {
                let mut all = Vec::with_capacity(range.len());
                self.column.codes(range, &mut all).then_some(())?;
                places.extend(picked.iter().map(|row| pick(&all, *row)));
            }
            GroupValues::From(low) => {
                let mut numbers = Vec::with_capacity(picked.len());
                self.column.integers_selected(range, gathered, &mut numbers).then_some(())?;
                let place = |number: &i64| u32::try_from(number.wrapping_sub(*low));
                places.extend(numbers.iter().map(|number| place(number).unwrap_or(u32::MAX)));
            }
        }
        if let Some(nulls) = self.column.nulls() {
            let null = u32::try_from(self.place_count).ok()?.checked_sub(1)?;
            for (place, row) in places.iter_mut().zip(picked) {
                if nulls.is_null(start + *row as usize) {
                    *place = null;
                }
            }
        }
        Some(())
    }

    /// The values at these positions.
    fn values_at(
        &self,
        places: impl Iterator<Item = usize>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let has_nulls = self.column.nulls().is_some();
        let value_count = self.place_count - usize::from(has_nulls);
        match &self.values {
            GroupValues::Distinct(values) => {
                let places =
                    places.map(|place| u32::try_from(place).ok().filter(|_| place < value_count));
                let places: UInt32Array = places.collect();
                Ok(take(values, &places, Some(TakeOptions { check_bounds: true }))?)
            }
            GroupValues::From(low) => {
                let value = |place: usize| {
                    let place = i64::try_from(place).ok().filter(|_| place < value_count)?;
                    low.checked_add(place)
                };
                numbers_as(places.map(value).collect(), data_type)
            }
        }
    }
}

impl<'a> NumberColumn<'a> {
    fn of(index: usize, column: &'a OpenColumn) -> Result<Option<Self>> {
        let table = match column.distinct_values().map_err(external)? {
            Some(values) => match numbers_of(&values) {
                Some(table) => Some(table),
                None => return Ok(None),
            },
            None => None,
        };
        let bounds = match &table {
            Some(table) => Some(ends(table)),
            None => column.integer_bounds(),
        };
        Ok(Some(Self { index, column, table, bounds }))
    }

    fn numbers(&self, range: Range<usize>, target: &mut Vec<i64>) -> Option<()> {
        let Some(table) = &self.table else {
            return self.column.integers(range, target).then_some(());
        };
        let mut codes = Vec::with_capacity(range.len());
        self.column.codes(range.clone(), &mut codes).then_some(())?;
        if let Some(nulls) = self.column.nulls() {
            // The code under a NULL is arbitrary.
            mask(&mut codes, &nulls.inner().slice(range.start, range.len()), 0);
        }
        for code in codes {
            target.push(*table.get(code as usize)?);
        }
        Some(())
    }
}

impl Total {
    fn empty(aggregate: &Aggregate) -> Self {
        let value = match aggregate.kind {
            Kind::Count | Kind::Sum => 0,
            Kind::Min => i128::from(i64::MAX),
            Kind::Max => i128::from(i64::MIN),
        };
        Self { value, count: 0 }
    }

    fn add(&mut self, kind: Kind, value: i64) {
        let value = i128::from(value);
        self.value = match kind {
            Kind::Count => self.value,
            // Holds for fewer than 2⁶⁴ pages.
            Kind::Sum => self.value.saturating_add(value),
            Kind::Min => self.value.min(value),
            Kind::Max => self.value.max(value),
        };
    }
}

/// The values as numbers, if all fit 64 bits.
fn numbers_of(values: &ArrayRef) -> Option<Vec<i64>> {
    fn widened<T: ArrowPrimitiveType>(values: &ArrayRef) -> Option<Vec<i64>>
    where
        i64: TryFrom<T::Native>,
    {
        let values = values.as_primitive_opt::<T>()?.values();
        values.iter().map(|value| i64::try_from(*value).ok()).collect()
    }
    match values.data_type() {
        DataType::Int16 => widened::<Int16Type>(values),
        DataType::Int32 => widened::<Int32Type>(values),
        DataType::Date32 => widened::<Date32Type>(values),
        DataType::Int64 => widened::<Int64Type>(values),
        DataType::Time64(_) => widened::<Time64MicrosecondType>(values),
        DataType::Timestamp(..) => widened::<TimestampMicrosecondType>(values),
        DataType::Decimal128(..) => widened::<Decimal128Type>(values),
        _ => None,
    }
}

/// Numbers as values of `data_type`.
fn numbers_as(numbers: Vec<Option<i64>>, data_type: &DataType) -> Result<ArrayRef> {
    fn filtered<T: ArrowPrimitiveType>(
        numbers: Vec<Option<i64>>,
        data_type: &DataType,
    ) -> Result<ArrayRef>
    where
        T::Native: TryFrom<i64>,
    {
        let narrow = |number: i64| {
            T::Native::try_from(number)
                .map_err(|_| internal_datafusion_err!("{number} is no {data_type}"))
        };
        let values = numbers.into_iter().map(|number| number.map(narrow).transpose());
        let values: PrimitiveArray<T> = values.collect::<Result<Vec<_>>>()?.into_iter().collect();
        Ok(Arc::new(values.with_data_type(data_type.clone())))
    }
    match data_type {
        DataType::Int16 => filtered::<Int16Type>(numbers, data_type),
        DataType::Int32 => filtered::<Int32Type>(numbers, data_type),
        DataType::Date32 => filtered::<Date32Type>(numbers, data_type),
        DataType::Int64 => filtered::<Int64Type>(numbers, data_type),
        DataType::Time64(_) => filtered::<Time64MicrosecondType>(numbers, data_type),
        DataType::Timestamp(..) => filtered::<TimestampMicrosecondType>(numbers, data_type),
        DataType::Decimal128(..) => filtered::<Decimal128Type>(numbers, data_type),
        other => internal_err!("numbers are no {other}"),
    }
}

/// The state of one aggregate.
fn state<'a>(
    kind: Kind,
    totals: impl Iterator<Item = &'a Total>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    if kind == Kind::Count {
        return Ok(Arc::new(totals.map(|total| total.count).collect::<Int64Array>()));
    }
    let values = totals.map(|total| (total.count > 0).then_some(total.value));
    if let (Kind::Sum, DataType::Decimal128(..)) = (kind, data_type) {
        let values: Decimal128Array = values.collect();
        return Ok(Arc::new(values.with_data_type(data_type.clone())));
    }
    let narrow = |value: i128| {
        i64::try_from(value).map_err(|_| internal_datafusion_err!("{value} leaves 64 bits"))
    };
    let values = values.map(|value| value.map(narrow).transpose());
    numbers_as(values.collect::<Result<Vec<_>>>()?, data_type)
}
