//! Chooses the index of a scan: a table's conditions in, the rows that one of its indexes says may match out.
//!
//! ```text
//!  conditions ─▶ ColumnBounds, a column each ─▶ KeyRanges of each index ─▶ fences: too many? ─▶ VIDs ─▶ pages
//! ```
//!
//! 1. [`bounds`] takes what the conditions say of single columns: equal to one of some values, not below, not above;
//!    NULL, which index keys hold as one more value, or not.
//! 2. [`ranges`] turns it into ranges of an index's keys: equal values of its first columns, then one range.
//! 3. [`choose`] skips an index whose fences, or the table's statistics, say already that too many entries lie there,
//!    reads the entries of the best one that is left, up to the number at which a scan of the table is better, and
//!    finds the rows' pages.
//!
//! Where the scan will most likely run on a device behind a link, step 3 may leave reading the index to it
//! ([`is_cheaper_there`]): then pages of the index do not cross the link, nor does planning wait for them; instead the
//! names of all pages of the table that zone maps leave cross, not of few.
//!
//! That number is the rows which, spread at random, would touch half of the pages that zone maps leave: a page that is
//! read at all is read for the whole column. So the entries read are never many, and planning may read them. The scan
//! evaluates every condition again on the pages that are left: ranges may be too wide, never too narrow, and an entry
//! of a row that is not visible costs nothing but its page.
//!
//! Deliberately absent: ranges over floats, whose order in DataFusion (−0.0 below 0.0, NaNs by sign) is not that of the
//! keys; intervals. Keys of joins are known only at run time: [`super::index_offers`].

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::index_definition::{IndexColumn, IndexDefinition};
use cleave_catalog::catalog::{DeviceId, TableState};
use cleave_catalog::error::Result;
use cleave_catalog::index::{IndexShape, TabletIndex};
use cleave_catalog::settings::{Split, Stack, When};
use cleave_fragment::command::message::CAPABILITY_FRAGMENTS;
use cleave_fragment::link::AttachMode;
use cleave_fragment::{IndexPages, build_id};
use cleave_plan::cardinality::selectivity_of_all;
use cleave_store::index::run::KEY_COLUMN;
use cleave_store::{
    ColumnRef, ColumnType, KeyColumn, KeyRange, PageRef, TableSchema, after_prefix,
};
use cleave_txn::KeySpan;
use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};
use futures::future::try_join_all;

use super::planned_input::PlannedInput;
use super::statement_context::StatementContext;

/// Most ranges of one scan, of lists of values over several columns.
const RANGE_COUNT_MAX: usize = 256;
/// An index with so many times more expected entries than pay is skipped: an estimate may be wrong by less.
const EXPECTED_TOO_MANY: f64 = 4.0;
/// Of the pages that zone maps leave, the part that random rows touch when an index stops to pay: ln 2 rows a page.
const ROWS_PER_PAGE: f64 = std::f64::consts::LN_2;
/// Where the scan reads the index, it visits one row in so many at most: reading an entry costs about as much as
/// evaluating conditions on this many rows. Not measured yet: `scripts/bench.py index` is for it.
const ROWS_PER_ENTRY: u64 = 64;
/// Bytes of a page's name in a request.
const PAGE_NAME_BYTES: u64 = 48;
/// Bytes that a link could carry while it waits for an answer: a gigabit for half a millisecond.
const ROUND_TRIP_BYTES: u64 = 64 << 10;
/// The columns of an index page.
const KEY_COLUMNS: [ColumnRef; 2] = [ColumnRef::User(KEY_COLUMN), ColumnRef::Vid];

/// An index that a scan goes through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexChoice {
    /// Its name.
    pub name: String,
    /// Entries found, or the most that there may be.
    pub entry_count: usize,
    /// Pages of the index that the scan reads; None: it was read while planning.
    pub page_count: Option<usize>,
}

/// What the conditions say of one column. All of it holds for every row that matches; where nothing is said, the column
/// is not NULL.
#[derive(Debug, Clone, Default)]
pub(super) struct ColumnBounds {
    /// One of these; NULL, of the column's type, for rows without a value.
    pub(super) equal: Option<Vec<ScalarValue>>,
    /// Not below.
    pub(super) low: Option<ScalarValue>,
    /// Not above.
    pub(super) high: Option<ScalarValue>,
    /// Below; what stands here is in `high` too.
    pub(super) below: Option<ScalarValue>,
    /// Below all that begin with this text, and not below it.
    text_prefix: Option<String>,
}

/// The part of `input` that an index of its table leaves for `filters`, all of which hold for the rows that are wanted.
///
/// # Errors
/// Those of reading the index.
pub(super) async fn choose(
    context: &StatementContext,
    filters: &[Expr],
    input: PlannedInput,
) -> Result<PlannedInput> {
    let table = Arc::clone(&input.table);
    if context.settings().index_scan == When::Never || table.indexes.is_empty() {
        return Ok(input);
    }
    let bounds = bounds(&table.schema, filters);
    let limit = rows_that_pay(input.pages_left());
    if bounds.is_empty() || limit == 0 {
        return Ok(input);
    }
    let expected = |columns: &[IndexColumn]| expected_entries(context, &table, filters, columns);
    let there = device_that_may(context, &input).await;
    let limit_there = usize::try_from(input.rows_left() / ROWS_PER_ENTRY).unwrap_or(usize::MAX);
    let limit_most = if there.is_some() { limit.max(limit_there) } else { limit };
    let Some(best) = best_index(&table, &bounds, limit_most, &expected) else { return Ok(input) };
    if let Some(device) = there {
        let scan = unread(context, &input, &best).await?;
        let (missing_bytes, waits) = scan.missing(context, device, best.ranges.len());
        if best.entry_count_min > limit as u64
            || is_cheaper_there(missing_bytes, waits, input.pages_left())
        {
            let choice = scan.choice(best.name);
            return Ok(input.filtered(best.ranges, scan.tablets, choice));
        }
    }
    let Some(rows) = found(context, &input, &best, limit).await? else { return Ok(input) };
    let name = best.name;
    let choice = IndexChoice { name, entry_count: rows.len(), page_count: None };
    Ok(input.restricted(&rows, choice))
}

/// The keys of an index among which all rows are, there or not, for which `filters` hold; None: their conditions give
/// none.
pub(super) fn spans(table: &TableState, filters: &[Expr]) -> Option<Vec<KeySpan>> {
    let bounds = bounds(&table.schema, filters);
    let tablet = table.tablets.first()?;
    let of_index = |definition: &Arc<IndexDefinition>| {
        let (ranges, columns_bound) = ranges(tablet.index(definition.id)?.shape(), &bounds)?;
        Some((columns_bound, definition.id, ranges))
    };
    let found = table.indexes.iter().filter_map(of_index);
    let (_, space, ranges) = found.max_by_key(|(columns_bound, ..)| *columns_bound)?;
    let span = |KeyRange { from, below }| KeySpan { space, from, below };
    Some(ranges.into_iter().map(span).collect())
}

/// The rows in the ranges of `best`, each with the place of its tablet; None: they are more than `limit`.
async fn found(
    context: &StatementContext,
    input: &PlannedInput,
    best: &Candidate,
    limit: usize,
) -> Result<Option<Vec<(usize, u64)>>> {
    // Keys are read by column, however pages cross the link otherwise.
    let stack = match context.settings().stack {
        Stack::Blk => Stack::Blk,
        Stack::Native | Stack::Ndp => Stack::Native,
    };
    // All tablets at once, of which those on one device share its round trips. Each may have all that there are.
    let asked = input.tablets().into_iter().map(async |place| -> Result<Option<Vec<_>>> {
        let tablet = input.table.tablets.get(place);
        let Some((tablet, index)) = tablet.and_then(|t| Some((t, t.index(best.id)?))) else {
            return Ok(None);
        };
        let pages = context.database().page_source(tablet.device, stack)?;
        let found = index.rows_in(tablet, &*pages, &best.ranges, best.search_keys, limit).await?;
        Ok(found.map(|vids| vids.into_iter().map(|vid| (place, vid)).collect()))
    });
    let found = try_join_all(asked).await?;
    let found: Option<Vec<Vec<(usize, u64)>>> = found.into_iter().collect();
    let rows = found.map(|found| found.into_iter().flatten().collect::<Vec<_>>());
    Ok(rows.filter(|rows| rows.len() <= limit))
}

/// The device that may read an index of `input` by itself: the only one, behind a link, that runs fragments of this
/// build.
async fn device_that_may(context: &StatementContext, input: &PlannedInput) -> Option<DeviceId> {
    let devices = input.devices();
    let mut devices = devices.iter();
    let (Some(id), None) = (devices.next(), devices.next()) else { return None };
    let device = context.database().attached(*id).ok()?;
    if context.settings().split_in_force() == Split::Host || device.mode() == AttachMode::Embedded {
        return None;
    }
    let identity = device.identity().await.ok()?;
    let runs_fragments = identity.capabilities.iter().any(|c| c == CAPABILITY_FRAGMENTS);
    (runs_fragments && identity.build == build_id()).then_some(*id)
}

/// An index that a scan is to read.
struct Unread {
    tablets: Vec<(usize, Vec<IndexPages>, Vec<u64>)>,
}

async fn unread(
    context: &StatementContext,
    input: &PlannedInput,
    candidate: &Candidate,
) -> Result<Unread> {
    let mut tablets = Vec::new();
    for place in input.tablets() {
        let Some(tablet) = input.table.tablets.get(place) else { continue };
        let Some(index) = tablet.index(candidate.id) else { continue };
        let pages = context.database().page_source(tablet.device, Stack::Native)?;
        let unread = index.unread(tablet, &*pages, &candidate.ranges, candidate.search_keys);
        let (runs, rows) = unread.await?;
        tablets.push((place, runs, rows));
    }
    Ok(Unread { tablets })
}

impl Unread {
    fn runs(&self) -> impl Iterator<Item = &IndexPages> {
        self.tablets.iter().flat_map(|(_, runs, _)| runs)
    }

    /// Bytes of its pages that the host does not hold, and how often it would wait for some of them.
    fn missing(
        &self,
        context: &StatementContext,
        device: DeviceId,
        range_count: usize,
    ) -> (u64, u64) {
        let pool = context.database().buffer_pool();
        let (mut bytes, mut waits) = (0, 0);
        for run in self.runs() {
            let is_missing =
                |page: &&PageRef| pool.held_count(device, page, &KEY_COLUMNS) < KEY_COLUMNS.len();
            let missing: Vec<_> = run.pages.iter().filter(is_missing).collect();
            bytes += missing.iter().map(|page| page.extent.bytes() as u64).sum::<u64>();
            waits += missing.len().min(range_count) as u64;
        }
        (bytes, waits)
    }

    fn choice(&self, name: String) -> IndexChoice {
        let pages: Vec<&PageRef> = self.runs().flat_map(|run| &run.pages).collect();
        let entries: u64 = pages.iter().map(|page| u64::from(page.row_count)).sum();
        let rows: usize = self.tablets.iter().map(|(_, _, rows)| rows.len()).sum();
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        let entry_count = entries.saturating_add(rows);
        IndexChoice { name, entry_count, page_count: Some(pages.len()) }
    }
}

/// Whether a scan of `page_count` pages should read an index of which the host misses so many bytes, and would wait so
/// often for them: what crosses the link then is the names of all the pages.
fn is_cheaper_there(missing_bytes: u64, waits: u64, page_count: usize) -> bool {
    let names = (page_count as u64).saturating_mul(PAGE_NAME_BYTES);
    missing_bytes.saturating_add(waits.saturating_mul(ROUND_TRIP_BYTES)) > names
}

/// Entries of an index up to which it is better than a scan of `page_count` pages.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
fn rows_that_pay(page_count: usize) -> usize {
    (page_count as f64 * ROWS_PER_PAGE) as usize
}

/// An index that fits the conditions, as all tablets have it.
struct Candidate {
    id: u32,
    name: String,
    ranges: Vec<KeyRange>,
    /// Each range is that of one search key.
    search_keys: bool,
    /// Entries that certainly lie in the ranges.
    entry_count_min: u64,
}

/// Rows that the conditions on `columns` alone are expected to leave; None: the table was not analysed.
fn expected_entries(
    context: &StatementContext,
    table: &TableState,
    filters: &[Expr],
    columns: &[IndexColumn],
) -> Option<f64> {
    let known = context.statistics(table)?;
    if columns.iter().any(|column| !known.columns.contains_key(&column.column)) {
        return None;
    }
    let of_index = |name: &str| {
        let found = table.schema.column(name);
        found.is_some_and(|found| columns.iter().any(|column| column.column == found.id))
    };
    let conditions = filters.iter().flat_map(split_conjunction);
    let conditions = conditions
        .filter(|condition| condition.column_refs().iter().all(|column| of_index(&column.name)));
    let conditions: Vec<Expr> = conditions.cloned().collect();
    let row_count = table.row_count() as f64;
    Some(row_count * selectivity_of_all(&conditions, &table.schema.name, row_count, context))
}

/// The index in which the fewest entries are expected in the ranges, or where nothing tells may lie, if they are not
/// certainly more than `limit`, nor expected to be many more.
fn best_index(
    table: &TableState,
    bounds: &BTreeMap<u32, ColumnBounds>,
    limit: usize,
    expected: &dyn Fn(&[IndexColumn]) -> Option<f64>,
) -> Option<Candidate> {
    let mut best: Option<((Option<f64>, usize), Candidate)> = None;
    for definition in &table.indexes {
        let tablets: Vec<&Arc<TabletIndex>> =
            table.tablets.iter().filter_map(|tablet| tablet.index(definition.id)).collect();
        let shape = tablets.first()?.shape();
        let Some((ranges, columns_bound)) = ranges(shape, bounds) else { continue };
        let measured = tablets.iter().map(|index| index.measure(&ranges));
        let (pages, entries) =
            measured.fold((0, 0), |sum, (pages, entries)| (sum.0 + pages, sum.1 + entries));
        if entries > limit as u64 {
            continue;
        }
        // The columns bound by equality, and the one behind them that may be bound from a side.
        let asked = (columns_bound + 1).min(definition.columns.len());
        let found = expected(definition.columns.get(..asked).unwrap_or_default());
        if found.is_some_and(|found| found > limit as f64 * EXPECTED_TOO_MANY) {
            continue;
        }
        let is_better =
            best.as_ref().is_none_or(|((least, least_pages), _)| match (found, least) {
                (Some(found), Some(least)) => (found, pages) < (*least, *least_pages),
                _ => pages < *least_pages,
            });
        if is_better {
            // A row with a NULL is not in the filters of a unique index: its VID is part of its key.
            let is_bound = |column: &IndexColumn| bounds.get(&column.column);
            let may_be_null = definition
                .columns
                .iter()
                .filter_map(is_bound)
                .any(|bounds| bounds.equal.iter().flatten().any(ScalarValue::is_null));
            let is_whole = columns_bound == shape.columns.len();
            let search_keys = is_whole && !(definition.unique && may_be_null);
            let (id, name) = (definition.id, definition.name.clone());
            let candidate = Candidate { id, name, ranges, search_keys, entry_count_min: entries };
            best = Some(((found, pages), candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The ranges of keys of `shape` in which all rows lie that satisfy `bounds`, and how many columns they give by
/// equality alone; None: the first column is not bound.
fn ranges(
    shape: &IndexShape,
    bounds: &BTreeMap<u32, ColumnBounds>,
) -> Option<(Vec<KeyRange>, usize)> {
    let mut prefixes: Vec<Vec<ArrayRef>> = vec![Vec::new()];
    let mut columns_bound = 0;
    for (column, key_column) in shape.definition.columns.iter().zip(shape.key.columns()) {
        let Some(bounds) = bounds.get(&column.column) else { break };
        if let Some(values) = &bounds.equal
            && prefixes.len().saturating_mul(values.len()) <= RANGE_COUNT_MAX
        {
            let values: Vec<ArrayRef> =
                values.iter().map(ScalarValue::to_array).collect::<Result<_, _>>().ok()?;
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| values.iter().map(|value| followed(prefix, value)))
                .collect();
            columns_bound += 1;
            continue;
        }
        let ranges: Option<Vec<KeyRange>> =
            prefixes.iter().map(|prefix| range(shape, prefix, key_column, bounds)).collect();
        return ranges.map(|ranges| (sorted(ranges), columns_bound)).filter(|(ranges, _)| {
            // Behind no equal column, a column without an end is the whole index.
            columns_bound > 0 || ranges.iter().all(|range| !range.from.is_empty())
        });
    }
    if columns_bound == 0 {
        return None;
    }
    let of_prefix = |prefix: &Vec<ArrayRef>| shape.key.prefix(prefix).ok().map(KeyRange::of_prefix);
    let ranges: Option<Vec<KeyRange>> = prefixes.iter().map(of_prefix).collect();
    ranges.map(|ranges| (sorted(ranges), columns_bound))
}

/// Ranges that do not overlap unless equal, in order, each once.
fn sorted(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by(|one, other| one.from.cmp(&other.from));
    ranges.dedup();
    ranges
}

fn followed(prefix: &[ArrayRef], value: &ArrayRef) -> Vec<ArrayRef> {
    prefix.iter().chain([value]).map(Arc::clone).collect()
}

/// The range behind `prefix` of one more column that is bound from below or above.
fn range(
    shape: &IndexShape,
    prefix: &[ArrayRef],
    column: &KeyColumn,
    bounds: &ColumnBounds,
) -> Option<KeyRange> {
    let start = shape.key.prefix(prefix).ok()?;
    let behind = |value: &ScalarValue| {
        let value = value.to_array().ok()?;
        shape.key.prefix(&followed(prefix, &value)).ok()
    };
    let low = bounds.low.as_ref().map(behind);
    let high = bounds.high.as_ref().map(behind);
    let (first, last) = if column.descending { (high, low) } else { (low, high) };
    // All values lie between the marks of NULLs, which are 0 and 255, and do not match.
    let marked = |mark: u8| start.iter().copied().chain([mark]).collect::<Vec<u8>>();
    let from = match first {
        Some(first) => first?,
        None => marked(1),
    };
    let below = match last {
        Some(last) => after_prefix(&last?)?,
        None => marked(u8::MAX),
    };
    Some(KeyRange { from, below: Some(below) })
}

/// What `filters`, all of which hold, say of single columns, by column id.
pub(super) fn bounds(schema: &TableSchema, filters: &[Expr]) -> BTreeMap<u32, ColumnBounds> {
    let mut bounds: BTreeMap<u32, ColumnBounds> = BTreeMap::new();
    for filter in filters.iter().flat_map(split_conjunction) {
        if let Some((id, said)) = said_of_a_column(schema, filter) {
            bounds.entry(id).or_default().and(said);
        }
    }
    for bounds in bounds.values_mut() {
        bounds.take_text_prefix();
    }
    bounds
}

impl ColumnBounds {
    fn and(&mut self, other: Self) {
        // Each bound holds, so any may be dropped: the first of its kind is kept, the shorter list of values.
        self.equal = match (self.equal.take(), other.equal) {
            (Some(one), Some(other)) if other.len() < one.len() => Some(other),
            (one, other) => one.or(other),
        };
        self.low = tighter(self.low.take(), other.low, true);
        self.high = tighter(self.high.take(), other.high, false);
        self.below = tighter(self.below.take(), other.below, false);
        self.text_prefix = self.text_prefix.take().or(other.text_prefix);
    }

    /// A prefix of text as bounds, where there are none yet.
    fn take_text_prefix(&mut self) {
        let Some(prefix) = self.text_prefix.take() else { return };
        let above = after_text(&prefix);
        self.low = self.low.take().or(Some(ScalarValue::Utf8(Some(prefix))));
        let above = above.map(|above| ScalarValue::Utf8(Some(above)));
        self.below = tighter(self.below.take(), above.clone(), false);
        self.high = self.high.take().or(above);
    }
}

fn tighter(one: Option<ScalarValue>, other: Option<ScalarValue>, low: bool) -> Option<ScalarValue> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let other_is_tighter = if low { other > one } else { other < one };
            Some(if other_is_tighter { other } else { one })
        }
        (one, other) => one.or(other),
    }
}

/// The least text that is above all that begin with `prefix`, or a little more; None: there is none.
fn after_text(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        // The range of characters steps over the gap in which there are none.
        if let Some(next) = (last..=char::MAX).nth(1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

/// What `filter` says if it is about one column that an index may help with.
fn said_of_a_column(schema: &TableSchema, filter: &Expr) -> Option<(u32, ColumnBounds)> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let (mut column, mut values) = (None, Vec::new());
            let mut left = vec![filter];
            while let Some(part) = left.pop() {
                if let Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::Or, right }) = part {
                    left.extend([one.as_ref(), right.as_ref()]);
                    continue;
                }
                let (id, said) = said_of_a_column(schema, part)?;
                if *column.get_or_insert(id) != id || said.low.is_some() || said.high.is_some() {
                    return None;
                }
                values.extend(said.equal?);
            }
            Some((column?, ColumnBounds { equal: Some(values), ..ColumnBounds::default() }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, literal, op) = match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), literal) => (column, literal, *op),
                (literal, Expr::Column(column)) => (column, literal, op.swap()?),
                _ => return None,
            };
            let (id, column_type) = key_column(schema, &column.name)?;
            let value = value(literal, column_type)?;
            let mut said = ColumnBounds::default();
            match op {
                Operator::Eq => said.equal = Some(vec![value]),
                _ if !has_ranges(column_type) => return None,
                // Ends are taken as included: the scan asks again.
                Operator::Gt | Operator::GtEq => said.low = Some(value),
                Operator::LtEq => said.high = Some(value),
                Operator::Lt => (said.high, said.below) = (Some(value.clone()), Some(value)),
                _ => return None,
            }
            Some((id, said))
        }
        Expr::IsNull(expr) => {
            let Expr::Column(column) = expr.as_ref() else { return None };
            let column = schema.column(&column.name)?;
            let null = ScalarValue::try_from(column.column_type.arrow()).ok()?;
            Some((column.id, ColumnBounds { equal: Some(vec![null]), ..ColumnBounds::default() }))
        }
        // No more than all conditions say by which a column is bound.
        Expr::IsNotNull(expr) => {
            let Expr::Column(column) = expr.as_ref() else { return None };
            Some((schema.column(&column.name)?.id, ColumnBounds::default()))
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let Expr::Column(column) = expr.as_ref() else { return None };
            let (id, column_type) = key_column(schema, &column.name)?;
            if !has_ranges(column_type) {
                return None;
            }
            let (low, high) = (value(low, column_type)?, value(high, column_type)?);
            Some((id, ColumnBounds { low: Some(low), high: Some(high), ..ColumnBounds::default() }))
        }
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = list.expr.as_ref() else { return None };
            let (id, column_type) = key_column(schema, &column.name)?;
            let mut values = Vec::with_capacity(list.list.len());
            for item in &list.list {
                // NULL in the list matches nothing.
                if !matches!(item, Expr::Literal(item, _) if item.is_null()) {
                    values.push(value(item, column_type)?);
                }
            }
            Some((id, ColumnBounds { equal: Some(values), ..ColumnBounds::default() }))
        }
        Expr::Like(Like {
            negated: false,
            expr,
            pattern,
            escape_char: None,
            case_insensitive: false,
        }) => {
            let Expr::Column(column) = expr.as_ref() else { return None };
            let (id, column_type) = key_column(schema, &column.name)?;
            let ScalarValue::Utf8(Some(pattern)) = value(pattern, column_type)? else {
                return None;
            };
            let prefix: String =
                pattern.chars().take_while(|c| !matches!(c, '%' | '_' | '\\')).collect();
            (!prefix.is_empty()).then(|| {
                (id, ColumnBounds { text_prefix: Some(prefix), ..ColumnBounds::default() })
            })
        }
        _ => None,
    }
}

fn key_column(schema: &TableSchema, name: &str) -> Option<(u32, ColumnType)> {
    let column = schema.column(name)?;
    (column.column_type != ColumnType::Interval).then_some((column.id, column.column_type))
}

fn has_ranges(column_type: ColumnType) -> bool {
    !matches!(column_type, ColumnType::Real | ColumnType::Double)
}

/// A literal as a value of the column; None for NULL, and for what is no literal or of a type compared otherwise.
fn value(expr: &Expr, column_type: ColumnType) -> Option<ScalarValue> {
    let Expr::Literal(value, _) = expr else { return None };
    let value = match value {
        ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text) => {
            ScalarValue::Utf8(text.clone())
        }
        ScalarValue::BinaryView(bytes) | ScalarValue::LargeBinary(bytes) => {
            ScalarValue::Binary(bytes.clone())
        }
        other => other.clone(),
    };
    (!value.is_null() && value.data_type() == column_type.arrow()).then_some(value)
}

#[cfg(test)]
mod tests;
