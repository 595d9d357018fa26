//! REFRESH MATERIALIZED VIEW by what has changed: the rows that the tables of a view have got and lost since its last
//! refresh in; out, the rows of the view that go and come.
//!
//! ```text
//!  last refresh: what it read ─┐                      ┌─ Q over gained rows: plus  ─┐ combined with the view's rows
//!  this refresh: what it reads ┴▶ TableChanges, by ───┤                             ├▶ of the same keys:
//!                                 table, one by one   └─ Q over lost rows:   minus ─┘ VIDs that end, new rows
//! ```
//!
//! 1. [`find`] compares the two catalog versions, and asks [`Upkeep`] whether the query is linear. If not, if a quarter
//!    of the rows has changed, or if computing all rows is [expected](RefreshTimes) to be faster, it says why, and all
//!    rows are computed.
//! 2. [`Changes::rows`] runs the query over the changes of each table. Tables before it in the list are as they are
//!    now, those behind it as they were: Q(A', B') - Q(A, B) = Q(ΔA, B) + Q(A', ΔB). So each run is planned, cut and
//!    pruned like any query.
//! 3. Rows of the view with the same keys are found by a scan with VIDs. Rows of an aggregate are combined by a query;
//!    of any other query, lost rows go and gained rows come.
//! 4. Where the rows of an aggregate do not combine ([`Upkeep::computes_groups`]), step 2 only tells which groups have
//!    changed, of a query with HAVING without that. The query runs over the tables as they are now, for these groups
//!    alone: a condition on their keys, which the planner pushes below the aggregate.
//!
//! Invariant: where the view does not have what its query had, all rows are computed. Rows never differ from those of a
//! whole refresh.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, AsArray, BooleanArray, Int32Array, RecordBatch, Scalar, UInt32Array, UInt64Array,
};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{cast, concat_batches, filter_record_batch, take, take_record_batch};
use arrow::datatypes::{Field, Schema, UInt64Type};
use arrow::row::{RowConverter, SortField};
use cleave_catalog::catalog::table_changes::TableChanges;
use cleave_catalog::catalog::view::Materialized;
use cleave_catalog::catalog::{CatalogState, HeldSpace, Keep, TableState};
use cleave_catalog::error::Result;
use cleave_catalog::settings::{RefreshMethod, Settings};
use cleave_engine::refresh_bases::{RefreshBase, RefreshTimes};
use cleave_engine::write::begun::byte_count;
use cleave_engine::write::vid_set::VidSet;
use cleave_query::select::{
    self, ALL_VIDS, Combined, QueryRequest, ReadView, RunningQuery, Target, Upkeep,
};
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::modify::TARGET;
use cleave_sql::statement::parameters::{Parameter, Parameters, parameter_type};
use cleave_sql::statement::parse::parse_query;
use cleave_store::{ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast;

use super::Session;
use super::materialized::{all_rows, as_view};

/// The share of the rows of each table that may have changed.
const CHANGED_SHARE: u64 = 4;
/// As many may have changed however few there are.
const CHANGED_MIN: u64 = 1000;
/// Bytes of rows that go and come, which are in memory at once.
const BYTES_MAX: usize = 64 << 20;
/// The share of the groups of a view that are computed anew without all others, and how many that may be whatever
/// their share.
const GROUPS_SHARE: u64 = 2;
const GROUPS_MIN: u64 = 100;
/// Most of them.
const GROUPS_MAX: u64 = 2000;

/// What has changed since the last refresh, of a view that can follow it.
pub(super) struct Changes {
    base: Arc<RefreshBase>,
    upkeep: Upkeep,
    /// The query, where it has HAVING without that.
    all_groups: Materialized,
    /// Why changed groups are computed anew; None: their rows combine.
    anew: Option<String>,
    /// Of the tables that it reads, in the order of [`Upkeep::tables`].
    tables: Vec<ChangedTable>,
}

struct ChangedTable {
    then: Arc<TableState>,
    now: Arc<TableState>,
    changes: TableChanges,
}

/// What a refresh does to the rows of a view.
pub(super) struct ChangedRows {
    /// By the place of the tablet.
    pub(super) dead: BTreeMap<usize, VidSet>,
    pub(super) new: RecordBatch,
}

/// The changes since the last refresh of the materialized view `table`, which the session reads in `view`; an error
/// text: why all of its rows are to be computed.
///
/// # Errors
/// Those of binding its query.
pub(super) async fn find(
    session: &Session,
    settings: &Settings,
    view: &ReadView,
    (table, query): (&TableState, &Materialized),
) -> Result<Result<Changes, String>> {
    let method = settings.limits.refresh;
    if method == RefreshMethod::All {
        return why("refresh_method is all");
    }
    if !query.is_populated {
        return why("it is not populated");
    }
    if !is_plain(view) {
        return why("it reads uncommitted changes, temporary objects or an older snapshot");
    }
    let base = session.database.versions.refresh_bases.get(table.schema.table_id);
    let Some(base) = base else {
        return why(
            "what it was made from is not held: not over a restart, nor where space is short",
        );
    };
    if !base.is_of(table, &view.state) {
        return why("it is not as its last refresh has left it");
    }
    if !has_same_views(query, &base.read, &view.state) {
        return why("a view that it reads has another query");
    }
    let over_view = as_view(view.clone(), &table.schema, query);
    let upkeep = select::upkeep(&session.database, settings, &over_view, &*all_rows()?).await?;
    let upkeep = match upkeep {
        Ok(upkeep) => upkeep,
        Err(reason) => return Ok(Err(reason)),
    };
    let all_groups = if upkeep.has_having { without_having(query)? } else { Some(query.clone()) };
    let Some(all_groups) = all_groups else { return why("a query below has HAVING") };
    let mut tables = Vec::with_capacity(upkeep.tables.len());
    for id in &upkeep.tables {
        let (then, now) = (base.read.table_by_id(*id), view.state.table_by_id(*id));
        let (Some(then), Some(now)) = (then, now) else {
            return why("one of its tables was made anew");
        };
        let most = CHANGED_MIN.max(now.row_count() / CHANGED_SHARE);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let Some(changes) = TableChanges::between(then, now, most) else {
            let name = &now.schema.name;
            return Ok(Err(format!("too much of \"{name}\" has changed, or its definition has")));
        };
        let (then, now) = (Arc::clone(then), Arc::clone(now));
        tables.push(ChangedTable { then, now, changes });
    }
    let loses = tables.iter().any(|table| table.changes.lost.row_count() > 0);
    let anew = upkeep.computes_groups(loses).map(str::to_owned);
    if let Some(reason) = &anew
        && let Some(reason) = cannot_compute_groups(&table.schema, &upkeep, reason)
    {
        return Ok(Err(reason));
    }
    let changes = Changes { base, upkeep, all_groups, anew, tables };
    if method == RefreshMethod::Auto
        && !changes.is_empty()
        && let Some(reason) = changes.is_slower()
    {
        return Ok(Err(reason));
    }
    Ok(Ok(changes))
}

/// `query` without its HAVING: it has all groups then. None: it has none, but a view or a subquery that it reads has.
fn without_having(query: &Materialized) -> Result<Option<Materialized>> {
    let mut parsed = parse_query(query.query.clone())?;
    let ast::SetExpr::Select(select) = &mut *parsed.body else { return Ok(None) };
    let having = select.having.take();
    Ok(having.map(|_| Materialized { query: parsed.to_string(), ..query.clone() }))
}

/// Why groups that have to be computed anew, for `reason`, cannot be named by their keys; None: they can.
fn cannot_compute_groups(schema: &TableSchema, upkeep: &Upkeep, reason: &str) -> Option<String> {
    if !upkeep.has_keys() {
        return Some(reason.to_owned());
    }
    let keys = schema.columns.iter().zip(&upkeep.columns);
    let mut keys = keys.filter(|(_, combined)| **combined == Combined::Key);
    let other = keys.find(|(column, _)| !can_be_listed(column.column_type))?;
    Some(format!("{reason}, and groups are not looked for by a key like \"{}\"", other.0.name))
}

/// Whether a list of values of this type finds those that are equal.
fn can_be_listed(column_type: ColumnType) -> bool {
    matches!(
        column_type,
        ColumnType::Boolean
            | ColumnType::SmallInt
            | ColumnType::Int
            | ColumnType::BigInt
            | ColumnType::Numeric { .. }
            | ColumnType::Text
            | ColumnType::Varchar(_)
            | ColumnType::Date
            | ColumnType::Timestamp
            | ColumnType::TimestampTz
            | ColumnType::Uuid
    )
}

/// Whether the views below `query` are the same ones in both catalog versions.
fn has_same_views(query: &Materialized, then: &CatalogState, now: &CatalogState) -> bool {
    let below = |state: &CatalogState| {
        let all = state.all_below(&query.depends);
        let views = state.views().filter(|view| all.contains(&view.schema.table_id));
        views.map(Arc::clone).collect::<Vec<_>>()
    };
    below(then) == below(now)
}

/// Whether a later refresh can be based on `view`: it is a committed version, with all rows in pages.
pub(super) fn is_plain(view: &ReadView) -> bool {
    view.is_committed && view.reads.is_none() && view.state.shipped.is_empty()
}

fn why<T>(reason: &str) -> Result<Result<T, String>> {
    Ok(Err(reason.to_owned()))
}

impl Changes {
    /// Whether no row has changed.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.changes.is_empty())
    }

    /// How many rows of its tables have changed.
    fn row_count(&self) -> u64 {
        let rows = |table: &ChangedTable| {
            table.changes.gained.row_count() + table.changes.lost.row_count()
        };
        self.tables.iter().map(rows).sum()
    }

    /// How long refreshes took, as they would with the tables of now.
    fn times(&self) -> RefreshTimes {
        let rows = |of: &dyn Fn(&ChangedTable) -> u64| self.tables.iter().map(of).sum::<u64>();
        let then = rows(&|table| table.then.row_count());
        let now = rows(&|table| table.now.row_count());
        self.base.times.of_tables(now as f64 / then.max(1) as f64)
    }

    /// Those after this refresh, which took `elapsed`.
    pub(super) fn times_after(&self, elapsed: Duration) -> RefreshTimes {
        match self.is_empty() {
            true => self.base.times,
            false => self.times().of_changes(elapsed, self.row_count()),
        }
    }

    /// Why computing all rows is expected to be faster; None: it is not.
    fn is_slower(&self) -> Option<String> {
        let (times, rows) = (self.times(), self.row_count());
        let (all, by_changes) = (times.all(), times.by_changes(rows));
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        (all < by_changes).then(|| {
            format!(
                "they are expected to take {}, and {rows} changed rows {}",
                ms(all),
                ms(by_changes)
            )
        })
    }

    /// By table, the rows that it has got and lost, for EXPLAIN.
    pub(super) fn describe(&self) -> String {
        let table = |table: &ChangedTable| {
            let (gained, lost) = (&table.changes.gained, &table.changes.lost);
            let (gained, lost) = (gained.row_count(), lost.row_count());
            format!("{}: {gained} gained, {lost} lost", table.now.schema.name)
        };
        let tables = self.tables.iter().map(table).collect::<Vec<_>>().join("; ");
        match &self.anew {
            Some(reason) => format!("{tables}; changed groups anew: {reason}"),
            None => tables,
        }
    }

    /// What goes and comes of the rows of the view `table` of `query`, in `view`; None: all are to be computed, since
    /// that does not fit into memory, the view does not have what its query had, or a sum is 0 or NULL and no count
    /// tells which.
    ///
    /// # Errors
    /// Those of the query.
    pub(super) async fn rows(
        &self,
        session: &Session,
        settings: &Settings,
        view: &ReadView,
        (table, query): (&TableState, &Materialized),
    ) -> Result<Option<ChangedRows>> {
        let schema = &table.schema;
        let (count, now_us) = (schema.columns.len(), session.moment().now_us);
        let refresh = Refreshing {
            session,
            settings,
            view,
            schema,
            fitted: Conform::by_position(schema, &[], count, now_us)?,
        };
        let (mut plus, mut minus) = (Vec::new(), Vec::new());
        let (all, mut bytes) = (all_rows()?, 0);
        for (index, changed) in self.tables.iter().enumerate() {
            let sides = [(&changed.changes.gained, &mut plus), (&changed.changes.lost, &mut minus)];
            for (rows, into) in sides {
                if rows.row_count() == 0 {
                    continue;
                }
                let over = as_view(self.over(view, index, rows), schema, &self.all_groups);
                let asked = QueryRequest { view: Some(&over), ..QueryRequest::from(&*all) };
                let Some(batches) = refresh.run(asked, &mut bytes).await? else { return Ok(None) };
                into.extend(batches);
            }
        }
        let arrow = schema.arrow();
        let plus = concat_batches(&arrow, &plus)?;
        let minus = concat_batches(&arrow, &minus)?;
        if self.anew.is_some() {
            let keys = Keys::new(schema, &self.upkeep)?;
            let changed = keys.different(&concat_batches(&arrow, [&plus, &minus])?)?;
            let over = as_view(view.clone(), schema, query);
            let new = refresh.groups(table, &keys, (&changed, &over), &mut bytes).await?;
            let Some(new) = new else { return Ok(None) };
            let none = RecordBatch::new_empty(arrow);
            let found = refresh.find_rows(table, &self.upkeep, (&changed, &none)).await?;
            return Ok(found.map(|(dead, _)| ChangedRows { dead, new }));
        }
        let found = refresh.find_rows(table, &self.upkeep, (&plus, &minus)).await?;
        let Some((dead, old)) = found else { return Ok(None) };
        if !self.upkeep.is_aggregate {
            return Ok(Some(ChangedRows { dead, new: plus }));
        }
        let new = refresh.combine(&self.upkeep, (&old, &plus, &minus)).await?;
        let is_unclear = minus.num_rows() > 0 && self.has_unclear_sum(&new)?;
        Ok((!is_unclear).then_some(ChangedRows { dead, new }))
    }

    /// Whether a sum of `rows` is 0 and nothing tells whether it is one of no values.
    fn has_unclear_sum(&self, rows: &RecordBatch) -> Result<bool> {
        for (combined, sums) in self.upkeep.columns.iter().zip(rows.columns()) {
            if *combined == (Combined::Sum { count: None }) {
                let zero = cast(&Int32Array::from(vec![0]), sums.data_type())?;
                if eq(sums, &Scalar::new(zero))?.true_count() > 0 {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// `view` with `rows` for the table at `index`: those before it are as they are now, and those behind it as they
    /// were.
    fn over(&self, view: &ReadView, index: usize, rows: &Arc<TableState>) -> ReadView {
        let mut state = CatalogState::clone(&view.state);
        let read_by =
            self.tables.iter().enumerate().map(|(other, table)| match other.cmp(&index) {
                std::cmp::Ordering::Less => &table.now,
                std::cmp::Ordering::Equal => rows,
                std::cmp::Ordering::Greater => &table.then,
            });
        for table in read_by {
            state.tables.insert(table.schema.name.clone(), Arc::clone(table));
        }
        let then = Arc::clone(&self.base.read) as Arc<dyn HeldSpace>;
        state.keep = Some(Arc::new(Keep::new(Arc::clone(&view.state), vec![then])));
        ReadView::of_state(Arc::new(state))
    }
}

/// A refresh that runs.
struct Refreshing<'a> {
    session: &'a Session,
    settings: &'a Settings,
    /// What it reads.
    view: &'a ReadView,
    /// Of the materialized view.
    schema: &'a Arc<TableSchema>,
    fitted: Conform,
}

impl Refreshing<'_> {
    /// Runs `query` over `view`.
    async fn begin(&self, query: &ast::Query, view: &ReadView) -> Result<RunningQuery> {
        let asked = QueryRequest { view: Some(view), ..QueryRequest::from(query) };
        Box::pin(select::run_query(&self.session.database, self.settings, asked)).await
    }

    /// All rows of `asked`, in the form of the view's columns; None: with these, `bytes` become too many.
    async fn run(
        &self,
        asked: QueryRequest<'_>,
        bytes: &mut usize,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let mut running =
            Box::pin(select::run_query(&self.session.database, self.settings, asked)).await?;
        let mut batches = Vec::new();
        while let Some(batch) = running.next().await? {
            let rows = self.fitted.rows(&batch)?;
            *bytes += byte_count(&rows);
            if *bytes > BYTES_MAX {
                return Ok(None);
            }
            batches.push(rows);
        }
        Ok(Some(batches))
    }

    /// The rows of `table` that go: of an aggregate those with the keys of `plus` and `minus`, else the rows `minus`,
    /// each as often as it is there. By tablet, and all of them. None: some are missing, or there are too many.
    async fn find_rows(
        &self,
        table: &TableState,
        upkeep: &Upkeep,
        (plus, minus): (&RecordBatch, &RecordBatch),
    ) -> Result<Option<(BTreeMap<usize, VidSet>, RecordBatch)>> {
        let keys = Keys::new(self.schema, upkeep)?;
        // How often each is to be found: the groups that lost rows once, those that got some perhaps.
        let mut wanted: HashMap<Box<[u8]>, Wanted> = HashMap::new();
        for (rows, is_lost) in [(minus, true), (plus, false)] {
            if !is_lost && !upkeep.is_aggregate {
                continue;
            }
            for key in keys.of(rows)? {
                let wanted = wanted.entry(key).or_default();
                match (upkeep.is_aggregate, is_lost) {
                    (true, true) => wanted.missing = 1,
                    (true, false) => wanted.may_be_there = true,
                    (false, _) => wanted.missing += 1,
                }
            }
        }
        let (mut dead, mut old, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
        let query = parse_query(format!("SELECT * FROM \"{TARGET}\""))?;
        let columns: Vec<usize> = (0..self.schema.columns.len()).collect();
        let places = if wanted.is_empty() { 0 } else { table.tablets.len() };
        for place in 0..places {
            let mut ended = VidSet::default();
            let name = self.schema.name.clone();
            let target = Some(Target { table: name, tablet: place, vids: ALL_VIDS });
            let view = ReadView { target, ..self.view.clone() };
            let mut running = self.begin(&query, &view).await?;
            while let Some(batch) = running.next().await? {
                let rows = self.fitted.rows(&batch.project(&columns)?)?;
                let vids = batch.columns().last().and_then(|vids| vids.as_primitive_opt());
                let Some(vids): Option<&UInt64Array> = vids else { return Ok(None) };
                let found = found_in(&keys.of(&rows)?, &mut wanted);
                if found.is_empty() {
                    continue;
                }
                let found = UInt32Array::from(found);
                ended.extend(
                    take(vids, &found, None)?.as_primitive::<UInt64Type>().values().iter().copied(),
                );
                if upkeep.is_aggregate {
                    let rows = take_record_batch(&rows, &found)?;
                    bytes += byte_count(&rows);
                    old.push(rows);
                }
                if bytes > BYTES_MAX {
                    return Ok(None);
                }
            }
            if !ended.is_empty() {
                dead.insert(place, ended);
            }
        }
        let are_missing = wanted.values().any(|wanted| wanted.missing > 0);
        let old = concat_batches(&self.schema.arrow(), &old)?;
        Ok((!are_missing).then_some((dead, old)))
    }

    /// The rows of the query of `over`, in the form of the columns of `table`, that have the same `keys` as `changed`,
    /// which has each once; None: they are too many.
    async fn groups(
        &self,
        table: &TableState,
        keys: &Keys,
        (changed, over): (&RecordBatch, &ReadView),
        bytes: &mut usize,
    ) -> Result<Option<RecordBatch>> {
        let arrow = self.schema.arrow();
        let most = (table.row_count() / GROUPS_SHARE).clamp(GROUPS_MIN, GROUPS_MAX);
        if changed.num_rows() as u64 > most {
            return Ok(None);
        }
        if changed.num_rows() == 0 {
            return Ok(Some(RecordBatch::new_empty(arrow)));
        }
        let (condition, parameters) = keys.listed(self.schema, changed)?;
        let mut query = all_rows()?;
        if let ast::SetExpr::Select(select) = &mut *query.body {
            let condition = parse_query(format!("SELECT 1 WHERE {condition}"))?;
            if let ast::SetExpr::Select(written) = *condition.body {
                select.selection = written.selection;
            }
        }
        let parameters = Parameters::new(parameters);
        let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(over) };
        let Some(batches) = self.run(asked, bytes).await? else { return Ok(None) };
        let rows = concat_batches(&arrow, &batches)?;
        // The lists have all combinations of keys.
        let wanted: HashSet<Box<[u8]>> = keys.of(changed)?.into_iter().collect();
        let are_wanted: BooleanArray =
            keys.of(&rows)?.iter().map(|key| Some(wanted.contains(key))).collect();
        Ok(Some(filter_record_batch(&rows, &are_wanted)?))
    }

    /// The rows of an aggregate that had the rows `old`, with `plus` and without `minus`.
    async fn combine(
        &self,
        upkeep: &Upkeep,
        (old, plus, minus): (&RecordBatch, &RecordBatch, &RecordBatch),
    ) -> Result<RecordBatch> {
        let (old, plus, minus) = (numbered(old)?, numbered(plus)?, numbered(minus)?);
        let query = parse_query(combining(upkeep))?;
        let asked = QueryRequest::from(&*query);
        let tables = [(OLD, &old), (PLUS, &plus), (MINUS, &minus)];
        let database = &self.session.database;
        let combined = select::over_tables(database, self.settings, asked, &tables);
        let (_, batches) = Box::pin(combined).await?;
        let batches = batches.iter().map(|batch| self.fitted.rows(batch));
        let batches = batches.collect::<Result<Vec<_>>>()?;
        Ok(concat_batches(&self.schema.arrow(), &batches)?)
    }
}

/// A key of rows that go.
#[derive(Debug, Default)]
struct Wanted {
    missing: usize,
    may_be_there: bool,
}

/// The indexes of those of `keys` that are wanted, each as often as it is.
fn found_in(keys: &[Box<[u8]>], wanted: &mut HashMap<Box<[u8]>, Wanted>) -> Vec<u32> {
    let found = (0..).zip(keys).filter(|(_, key)| {
        let Some(wanted) = wanted.get_mut(*key) else { return false };
        let is_wanted = wanted.missing > 0 || wanted.may_be_there;
        wanted.missing = wanted.missing.saturating_sub(1);
        is_wanted
    });
    found.map(|(index, _)| index).collect()
}

/// What tells rows of a view apart, as bytes that are equal where the values are.
struct Keys {
    columns: Vec<usize>,
    converter: RowConverter,
}

impl Keys {
    fn new(schema: &TableSchema, upkeep: &Upkeep) -> Result<Self> {
        let columns = upkeep.columns.iter().enumerate();
        let columns = columns.filter(|(_, combined)| **combined == Combined::Key);
        let columns: Vec<usize> = columns.map(|(column, _)| column).collect();
        let arrow = schema.arrow().project(&columns)?;
        let fields = arrow.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        Ok(Self { columns, converter: RowConverter::new(fields)? })
    }

    fn of(&self, rows: &RecordBatch) -> Result<Vec<Box<[u8]>>> {
        if self.columns.is_empty() {
            return Ok(vec![Box::default(); rows.num_rows()]);
        }
        let keys = self.converter.convert_columns(rows.project(&self.columns)?.columns())?;
        Ok(keys.iter().map(|key| Box::from(key.as_ref())).collect())
    }
}

impl Keys {
    /// Those of `rows` with other keys than the rows before them.
    fn different(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut seen = HashSet::new();
        let are_new: BooleanArray =
            self.of(rows)?.into_iter().map(|key| Some(seen.insert(key))).collect();
        Ok(filter_record_batch(rows, &are_new)?)
    }

    /// A condition on the columns of `schema` that holds where each key is one of those of `rows`, and its parameters.
    fn listed(&self, schema: &TableSchema, rows: &RecordBatch) -> Result<(String, Vec<Parameter>)> {
        let (mut conditions, mut parameters) = (Vec::new(), Vec::new());
        for index in &self.columns {
            let (Some(column), values) = (schema.columns.get(*index), rows.column(*index)) else {
                continue;
            };
            let column_type = parameter_type(column.column_type);
            let mut names = BTreeSet::new();
            let mut places = Vec::new();
            for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
                let value = Parameter::of_value(column_type, &values.slice(row, 1))?;
                if names.insert(value.text().map(str::to_owned)) {
                    parameters.push(value);
                    places.push(format!("${}", parameters.len()));
                }
            }
            let name = format!("\"{}\"", column.name.replace('"', "\"\""));
            let listed = (!places.is_empty()).then(|| format!("{name} IN ({})", places.join(", ")));
            let null = (values.null_count() > 0).then(|| format!("{name} IS NULL"));
            let either: Vec<String> = listed.into_iter().chain(null).collect();
            conditions.push(format!("({})", either.join(" OR ")));
        }
        Ok((conditions.join(" AND "), parameters))
    }
}

const OLD: &str = "old";
const PLUS: &str = "plus";
const MINUS: &str = "minus";

/// `rows` with columns that are called by their index, and may be NULL.
fn numbered(rows: &RecordBatch) -> Result<RecordBatch> {
    let schema = rows.schema();
    let fields = schema.fields().iter().enumerate();
    let fields: Vec<Field> = fields
        .map(|(index, field)| Field::new(format!("c{index}"), field.data_type().clone(), true))
        .collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), rows.columns().to_vec())?)
}

/// The query that combines rows.
fn combining(upkeep: &Upkeep) -> String {
    let columns = || upkeep.columns.iter().enumerate();
    let list = |of: &dyn Fn(usize, Combined) -> String| {
        columns().map(|(index, combined)| of(index, *combined)).collect::<Vec<_>>().join(", ")
    };
    let combined = list(&|index, combined| match combined {
        Combined::Key => format!("c{index}"),
        Combined::Rows | Combined::Count => format!("CAST(sum(c{index}) AS bigint)"),
        Combined::Sum { count: None } => format!("sum(c{index})"),
        Combined::Sum { count: Some(count) } => {
            format!("CASE WHEN sum(c{count}) <> 0 THEN sum(c{index}) END")
        }
        Combined::Min => format!("min(c{index})"),
        // Such rows are not combined.
        Combined::Max | Combined::Anew => format!("max(c{index})"),
    });
    let plain = list(&|index, _| format!("c{index}"));
    let negated = list(&|index, combined| match combined {
        Combined::Rows | Combined::Count | Combined::Sum { .. } => format!("-c{index} AS c{index}"),
        Combined::Key | Combined::Min | Combined::Max | Combined::Anew => format!("c{index}"),
    });
    let keys = columns().filter(|(_, combined)| **combined == Combined::Key);
    let keys: Vec<String> = keys.map(|(index, _)| format!("c{index}")).collect();
    let rows = columns().find(|(_, combined)| **combined == Combined::Rows);
    let grouped = match (keys.is_empty(), rows) {
        (true, _) => String::new(),
        (false, None) => format!(" GROUP BY {}", keys.join(", ")),
        // A group without rows has ended.
        (false, Some((rows, _))) => {
            format!(" GROUP BY {} HAVING sum(c{rows}) <> 0", keys.join(", "))
        }
    };
    format!(
        "SELECT {combined} FROM (SELECT {plain} FROM {OLD} UNION ALL SELECT {plain} FROM {PLUS} UNION ALL SELECT \
         {negated} FROM {MINUS}) AS u{grouped}"
    )
}
