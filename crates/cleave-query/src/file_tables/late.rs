//! A row group of a Parquet file of which the columns of conditions are read first, and of the other columns only what
//! the conditions leave.
//!
//! ```text
//!  columns of conditions: windows of some thousand rows ─▶ conditions ─▶ values that are left, cached ─┐
//!  other columns: windows of which rows are left, others skipped ─▶ rows that are left ────────────────┴─▶ columns
//! ```
//!
//! 1. [`Late::begun`] reads the columns that conditions are on, in windows that may have rows
//!    [by the bounds of pages](super::page_pruning), if the file has an index of them. Each is decoded once: what is
//!    left of its values is cached while the row group is read, and a row group that would take much memory so is not
//!    read this way.
//! 2. [`Late::next_columns`] reads the others. A window without any row that is left is skipped: its values are not
//!    decoded, and pages that lie in such windows are not decompressed.
//!
//! Windows are skipped as wholes because the crate's readers gather single rows to batches from anywhere in a row
//! group, and the limits of memory are of rows that lie together. So this pays where rows of one kind lie together, or
//! are rare; [`Worth`] finds out. The crate's own filter of rows is not used: it decodes columns of conditions again
//! for those who ask for their values.
//!
//! Invariant: a window's columns have the same rows, or the file is refused as damaged.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_sql::copy::InputMemory;
use cleave_sql::copy::parquet::file::{ParquetColumns, ParquetFile, ParquetRows};
use datafusion::arrow::array::{ArrayRef, BooleanArray};

use super::held::rows_of;
use super::page_pruning::windows_left;
use super::shown;
use crate::conditions::Conditions;

/// Bytes of the values of columns of conditions that may be cached.
const CACHED_BYTES_MAX: usize = 16 << 20;
/// Windows with fewer rows are not worth their steps.
const WINDOW_ROWS_MIN: usize = 1024;
/// With more columns, a window takes much memory whatever its values are.
const COLUMNS_MAX: usize = 256;
/// Windows after which it is known whether it pays to skip some.
const WINDOWS_KNOWN: usize = 8;

/// See the module's description.
pub(super) struct Late {
    columns: Columns,
    /// Those that have rows left and are not read yet.
    windows: VecDeque<Window>,
    /// Rows of other columns; None: no window has a row left.
    others: Option<ParquetRows>,
    /// How messages name the file.
    file: String,
}

/// For each column that is asked for, whether a condition is on it; None: the file does not have it.
type Columns = Vec<Option<bool>>;

/// A stretch of rows.
struct Window {
    row_count: usize,
    /// The columns of conditions, only the rows that are `left`.
    columns: Vec<ArrayRef>,
    /// The rows that are left, of all; None: all of them, or most.
    left: Option<BooleanArray>,
}

/// Columns of a window.
pub(super) struct LateColumns {
    /// Those that the file has, in the order in which they are asked for.
    pub(super) values: Vec<ArrayRef>,
    pub(super) left_count: usize,
    /// Rows that the window has in the file.
    pub(super) row_count: usize,
}

/// What is asked for of a row group.
pub(super) struct Asked<'a> {
    pub(super) file: &'a ParquetFile,
    pub(super) group: usize,
    /// The rows of the row group.
    pub(super) rows: usize,
    /// For each column that is asked for, its place in the file; None: the file does not have it.
    pub(super) roots: &'a [Option<usize>],
    pub(super) memory: InputMemory,
    /// Most rows of a window.
    pub(super) batch_rows: usize,
}

/// How a row group is read in two steps.
struct Steps {
    columns: Columns,
    window_rows: usize,
    of_conditions: ParquetColumns,
    others: ParquetColumns,
}

/// How many of the windows so far were skipped.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Worth {
    windows: usize,
    skipped: usize,
}

impl Late {
    /// Reads the columns that `conditions` are on. None: the row group is not read this way.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(super) fn begun(
        asked: &Asked<'_>,
        conditions: &Conditions,
        worth: &mut Worth,
    ) -> Result<Option<Self>> {
        let Some(steps) = asked.steps(&conditions.places())? else { return Ok(None) };
        let (columns, window_rows) = (steps.columns, steps.window_rows);
        let file = shown(asked.file.path());
        let mut wanted = windows_left(asked, conditions, window_rows);
        let mut windows = VecDeque::new();
        if wanted.contains(&true) {
            let of_conditions = steps.of_conditions;
            let mut rows = asked.file.windows(of_conditions, asked.group, window_rows, &wanted)?;
            for is_wanted in wanted.iter_mut().filter(|own| **own) {
                let Some(read) = rows.next_columns()? else { return Err(incomplete(&file)) };
                let window = Window::of(&columns, read, conditions)?;
                *is_wanted = window.is_some();
                windows.extend(window);
            }
            // Its pages are no longer in memory when those of the others are.
        }
        worth.windows = worth.windows.saturating_add(wanted.len());
        worth.skipped = worth.skipped.saturating_add(wanted.len() - windows.len());
        let others = match windows.is_empty() {
            true => None,
            false => Some(asked.file.windows(steps.others, asked.group, window_rows, &wanted)?),
        };
        Ok(Some(Self { columns, windows, others, file }))
    }

    /// The columns of the next window that has rows left; None at the end.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(super) fn next_columns(&mut self) -> Result<Option<LateColumns>> {
        let Some(window) = self.windows.pop_front() else { return Ok(None) };
        let read = match &mut self.others {
            Some(others) => others.next_columns()?,
            None => None,
        };
        let Some((others, _)) = read else { return Err(incomplete(&self.file)) };
        let left_count = window.left.as_ref().map_or(window.row_count, |left| left.true_count());
        let others = match &window.left {
            Some(left) => rows_of(&others, left)?,
            None => others,
        };
        let (mut first, mut others) = (window.columns.into_iter(), others.into_iter());
        let mut values = Vec::with_capacity(self.columns.len());
        for is_first in self.columns.iter().flatten() {
            let own = if *is_first { first.next() } else { others.next() };
            values.push(own.ok_or_else(|| incomplete(&self.file))?);
        }
        Ok(Some(LateColumns { values, left_count, row_count: window.row_count }))
    }
}

impl Window {
    /// What `conditions` leave of the columns that they are on; None: nothing.
    fn of(
        columns: &[Option<bool>],
        (values, row_count): (Vec<ArrayRef>, usize),
        conditions: &Conditions,
    ) -> Result<Option<Self>> {
        let mut each = values.iter().map(Arc::clone);
        let held = columns.iter().map(|own| match own {
            Some(true) => each.next(),
            Some(false) | None => None,
        });
        let left = conditions.bits_of_held(held, row_count);
        Ok(match left.true_count() {
            0 => None,
            // Most rows are not copied, as of other batches.
            count if count > row_count / 2 => Some(Self { row_count, columns: values, left: None }),
            _ => Some(Self { row_count, columns: rows_of(&values, &left)?, left: Some(left) }),
        })
    }
}

impl Asked<'_> {
    /// How the row group is read if conditions are on the columns at `first`; None: as a whole.
    fn steps(&self, first: &BTreeSet<usize>) -> Result<Option<Steps>> {
        let columns = self.roots.iter().enumerate();
        let columns: Columns =
            columns.map(|(place, root)| root.map(|_| first.contains(&place))).collect();
        let roots = |is_first: bool| -> Vec<usize> {
            let own = self.roots.iter().zip(&columns);
            own.filter(|(_, own)| **own == Some(is_first)).filter_map(|(root, _)| *root).collect()
        };
        let (of_conditions, others) = (roots(true), roots(false));
        let is_divided = !of_conditions.is_empty() && !others.is_empty();
        let fields = self.file.fields();
        let width = |root: &usize| fields.get(*root)?.data_type().primitive_width();
        let width: Option<usize> = of_conditions.iter().map(width).sum();
        let bytes = width.map(|width| width.saturating_mul(self.rows));
        let is_small =
            columns.len() <= COLUMNS_MAX && bytes.is_some_and(|own| own <= CACHED_BYTES_MAX);
        if self.rows == 0 || !is_divided || !is_small {
            return Ok(None);
        }
        let of_rows = |roots: &[usize]| -> Result<ParquetColumns> {
            Ok(self.file.columns(roots, &[self.group], self.memory)?.of_rows(self.batch_rows))
        };
        let (of_conditions, others) = (of_rows(&of_conditions)?, of_rows(&others)?);
        let steady = of_conditions.steady_rows().zip(others.steady_rows());
        let window_rows = steady.map(|(one, other)| one.min(other));
        let window_rows = window_rows.filter(|rows| *rows >= WINDOW_ROWS_MIN);
        Ok(window_rows.map(|window_rows| Steps { columns, window_rows, of_conditions, others }))
    }
}

impl Worth {
    /// Whether it may pay to read the next row group in two steps.
    pub(super) fn may_pay(self) -> bool {
        self.windows < WINDOWS_KNOWN || self.skipped.saturating_mul(4) >= self.windows
    }
}

fn incomplete(file: &str) -> Error {
    let message = "the file is damaged: a column has fewer rows than its row group";
    Error::InputSchema { file: file.to_owned(), message: message.to_owned() }
}
