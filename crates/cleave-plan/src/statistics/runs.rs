//! The different values of a sample, and how many of its rows each stands for.
//!
//! Where only some pages were read, rows lie together: a value may fill a page that happens to be read, and ranges of
//! values lie between these pages. Zone maps tell where the rows of *all* pages are. So the rows of each page are given
//! to the sampled values within its zone, in proportion to how often these were drawn; those of a page without any, to
//! its ends. A column whose values lie anywhere has the same zone on every page, and nothing changes; one that is in
//! order is known as well as pages divide it.
//!
//! This is post-stratification, by pages. Only comparisons are used, so that it works for every type that has zones.

use std::collections::HashSet;

use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion_common::arrow::compute::{concat, take};
use datafusion_common::arrow::row::{RowConverter, Rows, SortField};
use datafusion_common::{Result, ScalarValue};

/// Pages that a common value must be on where some pages were read, or else on all of these. One standard error of a
/// share is about the share by the root of the pages with the value.
const COMMON_PAGES_MIN: usize = 5;
/// Values as long as this may have been cut, and are not told apart.
const LONG_BYTES: usize = 250;

/// What is known of a column of which some pages were read.
#[derive(Debug, Clone, Copy)]
pub struct SomePages<'a> {
    /// A number of the page of each drawn row.
    pub of_rows: &'a [u64],
    /// The zones of all pages.
    pub zones: Option<&'a PageZones>,
}

/// Bounds of a column on each page of a table.
#[derive(Debug, Clone)]
pub struct PageZones {
    /// Lower bounds; NULL: unknown.
    pub mins: ArrayRef,
    /// Upper bounds; NULL: unknown.
    pub maxs: ArrayRef,
    /// Rows with a value.
    pub rows: Vec<f64>,
}

/// See the [module](self).
pub(super) struct Runs {
    /// The values of the runs, ascending, then lower and upper ends of pages.
    values: ArrayRef,
    /// For each run, its rows in the sample.
    drawn: Vec<f64>,
    /// For each run, how many of the sample's rows it stands for.
    rows: Vec<f64>,
    /// Whether they are on enough pages to be told from values that fill a page; None: all pages were read.
    widespread: Option<Vec<bool>>,
    /// Ends of pages on which no sampled value lies, ascending.
    ends: Vec<End>,
}

#[derive(Debug, Clone, Copy)]
struct End {
    /// Runs below it.
    runs_below: usize,
    /// Its place among the values.
    value: usize,
    /// The sample's rows that it stands for.
    rows: f64,
}

impl Runs {
    pub(super) fn of(sample: &ArrayRef, some: Option<SomePages<'_>>) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(sample.data_type().clone())])?;
        let rows = converter.convert_columns(std::slice::from_ref(sample))?;
        let nulls = sample.logical_nulls();
        let is_value = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
        let pages = some.map(|some| some.of_rows);
        let page = |place: usize| pages.and_then(|pages| pages.get(place));
        // The first bytes tell most values apart; rows of a run are in the order of their pages.
        let mut order: Vec<([u8; 16], usize)> = (0..sample.len())
            .filter(is_value)
            .map(|place| (first_bytes(rows.row(place).data()), place))
            .collect();
        order.sort_unstable_by(|(first, one), (second, other)| {
            let by_value = || rows.row(*one).cmp(&rows.row(*other));
            first.cmp(second).then_with(by_value).then_with(|| page(*one).cmp(&page(*other)))
        });
        let (mut firsts, mut counts) = (Vec::new(), Vec::new());
        let mut last: Option<([u8; 16], usize)> = None;
        let mut run_pages: Vec<usize> = Vec::new();
        for (first, place) in order {
            let is_same = last
                .is_some_and(|(other, last)| first == other && rows.row(last) == rows.row(place));
            match (counts.last_mut(), run_pages.last_mut()) {
                (Some(count), Some(run_pages)) if is_same => {
                    *count += 1.0;
                    let is_new = last.is_some_and(|(_, last)| page(last) != page(place));
                    *run_pages += usize::from(is_new);
                }
                _ => {
                    firsts.push(place as u64);
                    counts.push(1.0);
                    run_pages.push(1);
                }
            }
            last = Some((first, place));
        }
        let values = take(sample, &UInt64Array::from(firsts), None)?;
        let widespread = pages.map(|pages| {
            let all = pages.iter().collect::<HashSet<_>>().len();
            let enough = all.min(COMMON_PAGES_MIN);
            run_pages.iter().map(|pages| *pages >= enough).collect()
        });
        let (drawn, rows) = (counts.clone(), counts);
        let mut runs = Self { values, drawn, rows, widespread, ends: Vec::new() };
        if let Some(zones) = some.and_then(|some| some.zones)
            && zones.mins.data_type() == sample.data_type()
            && zones.maxs.data_type() == sample.data_type()
        {
            runs.place(zones, &converter)?;
        }
        Ok(runs)
    }

    /// Gives the rows of each page to the values within its zone.
    fn place(&mut self, zones: &PageZones, converter: &RowConverter) -> Result<()> {
        let rows_of = |array: &ArrayRef| converter.convert_columns(std::slice::from_ref(array));
        let (runs, mins, maxs) =
            (rows_of(&self.values)?, rows_of(&zones.mins)?, rows_of(&zones.maxs)?);
        let run_count = self.rows.len();
        let all: f64 = zones.rows.iter().sum();
        let sampled = self.row_count();
        if all <= 0.0 || sampled <= 0.0 {
            return Ok(());
        }
        // Rows drawn of the runs up to each, and how many times as many rows begin or end with each.
        let mut drawn = vec![0.0; run_count + 1];
        for (run, rows) in self.rows.iter().enumerate() {
            drawn[run + 1] = drawn[run] + rows;
        }
        let mut steps = vec![0.0; run_count + 1];
        let below = |rows: &Rows, page: usize, or_equal: bool| {
            let end = rows.row(page);
            let (mut low, mut high) = (0, run_count);
            while low < high {
                let middle = usize::midpoint(low, high);
                let run = runs.row(middle);
                if run < end || or_equal && run == end { low = middle + 1 } else { high = middle }
            }
            low
        };
        let page_count = zones.rows.len().min(zones.mins.len()).min(zones.maxs.len());
        for (page, rows) in zones.rows.iter().take(page_count).enumerate() {
            let rows = rows * sampled / all;
            let is_known = zones.mins.is_valid(page) && zones.maxs.is_valid(page);
            let (low, high) = match is_known {
                true => (below(&mins, page, false), below(&maxs, page, true)),
                false => (0, run_count),
            };
            if low < high {
                let each = rows / (drawn[high] - drawn[low]);
                steps[low] += each;
                steps[high] -= each;
            } else {
                let end = |value| End { runs_below: low, value, rows: rows / 2.0 };
                let (min, max) = (run_count + page, run_count + zones.mins.len() + page);
                self.ends.extend([end(min), end(max)]);
            }
        }
        let mut each = 0.0;
        for (rows, step) in self.rows.iter_mut().zip(steps) {
            each += step;
            *rows *= f64::max(each, 0.0);
        }
        let values = [&*self.values, &*zones.mins, &*zones.maxs];
        self.values = concat(&values)?;
        let rows = rows_of(&self.values)?;
        self.ends.sort_by(|one, other| rows.row(one.value).cmp(&rows.row(other.value)));
        Ok(())
    }

    /// Runs.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The sample's rows that have a value.
    pub(super) fn row_count(&self) -> f64 {
        self.rows.iter().chain(self.ends.iter().map(|end| &end.rows)).sum()
    }

    /// How many of the sample's rows a run stands for.
    pub(super) fn rows(&self, run: usize) -> f64 {
        self.rows.get(run).copied().unwrap_or_default()
    }

    /// All but the runs `left_out`, ascending: places of values, and the rows that they stand for.
    pub(super) fn without(&self, left_out: &[usize]) -> Vec<(usize, f64)> {
        let mut all = Vec::with_capacity(self.len() + self.ends.len());
        let mut ends = self.ends.iter().peekable();
        for (run, rows) in self.rows.iter().enumerate() {
            while let Some(end) = ends.next_if(|end| end.runs_below <= run) {
                all.push((end.value, end.rows));
            }
            if left_out.binary_search(&run).is_err() {
                all.push((run, *rows));
            }
        }
        all.extend(ends.map(|end| (end.value, end.rows)));
        all
    }

    /// Whether the value was drawn more than once, and is on enough pages to be told from one that fills a page.
    pub(super) fn is_certain(&self, run: usize) -> bool {
        let is_again = self.drawn.get(run).is_some_and(|drawn| *drawn > 1.0);
        is_again && self.widespread.as_ref().and_then(|runs| runs.get(run)).is_none_or(|is| *is)
    }

    /// The value at this place.
    pub(super) fn value(&self, place: usize) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.values, place)
    }

    /// Whether the value of a run may have been cut.
    pub(super) fn is_long(&self, run: usize) -> bool {
        if let Some(texts) = self.values.as_string_opt::<i32>() {
            return texts.value(run).len() >= LONG_BYTES;
        }
        self.values.as_binary_opt::<i32>().is_some_and(|all| all.value(run).len() >= LONG_BYTES)
    }
}

/// The first 16 bytes, with zeros behind fewer.
fn first_bytes(bytes: &[u8]) -> [u8; 16] {
    let mut first = [0; 16];
    for (byte, from) in first.iter_mut().zip(bytes) {
        *byte = *from;
    }
    first
}
