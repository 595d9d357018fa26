//! Fragments that insert: the query of an `INSERT … SELECT` or `CREATE TABLE AS` in, the pages that a fragment has
//! written out.
//!
//! ```text
//!   INSERT INTO sale (item, price) SELECT item, 2 * price FROM offer WHERE kind = 3
//!     ─▶ the query: SELECT item, 2 * price FROM offer WHERE kind = 3        planned, one cut at its root
//!     ─▶ the rows: item, 2 * price, default of the third column, checks    as the table stores them
//!     ─▶ the fragment: InsertPagesExec over them                           runs on the device of both tables
//! ```
//!
//! 1. [`plan_insert`] plans the query as a fragment on each device that has rows of what streams
//!    ([`whole_fragment`](super::whole_fragment)).
//! 2. [`InsertingQuery::into_table`] makes rows of the table of its rows: columns in their order, with casts where an
//!    assignment makes them, constants for columns that the statement does not name, and the checks.
//! 3. [`InsertFragments::run`] sends them with [`InsertPagesExec`] as their root, all at once. They run on the devices
//!    or not at all: on the host, rows are loaded in several threads. [`InsertFragments::result_set`] does so for rows
//!    that no table gets.
//!
//! ```text
//!   device a ─▶ its rows ─▶ pages of tablets on a ┐
//!   device b ─▶ its rows ─▶ pages of tablets on b ┴─▶ reports ─▶ one change of the table
//! ```
//!
//! In load order a row may go to any tablet. In a table that is divided by values each device writes its own rows only
//! where the table of the query [is divided in the same way](InsertFragments::fit).
//!
//! Source: Update NDP, section 4; CORD (output that stays on the devices that compute it).

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::device::Device;
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::write::change_pages::Reported;
use cleave_engine::write::insert_pages::{
    self, Destination, InsertedPages, MadeOn, PageLoad, PageTarget, TabletTarget,
};
use cleave_fragment::functions::assignment::assigned_to;
use cleave_fragment::{
    InsertPagesExec, InsertTarget, InsertedRows, RowDivision, check_device_operator, read_inserted,
};
use cleave_media::{BLOCK_SIZE, Stopwatch};
use cleave_plan::PlanEstimates;
use cleave_plan::split::Split;
use cleave_store::{PageClass, Projection, SegmentId, SegmentRef, TableSchema, TabletId};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::future::join_all;

use super::figures::FragmentFigures;
use super::fragment_exec::FragmentExec;
use super::prepared_fragment::PreparedFragment;
use super::same_division::lie_as;
use super::sent_rows::SentRows;
use super::update_cost::{BulkInsert, UpdateCost};
use super::whole_fragment::{OnEachDevice, WholeFragment};
use crate::query_engine::QueryEngine;
use crate::result_sets::{About, ResultSet};
use crate::select::{PlannedQuery, QueryRequest};

/// Bytes that are assumed of a value without a width of its own.
const VALUE_BYTES: f64 = 24.0;
/// Blocks that a fragment gets at once: it asks for more.
pub(super) const BLOCKS_MAX: f64 = 16384.0;
/// Blocks beyond what is expected.
const SLACK_BLOCKS: u64 = 64;

/// A query whose rows are inserted.
pub struct InsertingQuery {
    each: OnEachDevice,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnSource {
    /// The column of the query at this place.
    Query(usize),
    /// The column's default.
    Constant(ScalarValue),
}

/// A query whose rows are those of a table, as a fragment on each device that makes some.
pub struct InsertFragments {
    each: OnEachDevice,
    rows: Arc<dyn ExecutionPlan>,
    table: Arc<TableSchema>,
}

/// Plans the query `asked`. None: it does not run as fragments whose rows are those of the query. Whatever is wrong
/// with it, the query that runs then instead finds out.
pub async fn plan_insert(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
) -> Option<InsertingQuery> {
    if settings.split_in_force() == Split::Host {
        return None;
    }
    let each = OnEachDevice::plan(database, settings, asked).await?;
    Some(InsertingQuery { each })
}

impl InsertingQuery {
    /// The query `planned`, under one of the settings of [`at_roots`](super::whole_fragment::at_roots). None: as for
    /// [`plan_insert`].
    pub(crate) fn of_planned(planned: PlannedQuery) -> Option<Self> {
        OnEachDevice::of_planned(planned, true).map(|each| Self { each })
    }

    /// The columns of the query, with the names that it gives them.
    pub fn schema(&self) -> SchemaRef {
        let first = self.each.first();
        first.planned().named(&first.fragment().plan.schema())
    }

    /// The devices of its rows.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.each.all().map(WholeFragment::device)
    }

    /// The rows as those of `table`, whose columns come from `sources`, with `checks` over its columns. None: the
    /// devices are not known to make them as the host does.
    ///
    /// # Errors
    /// Those of making the operators.
    pub fn into_table(
        self,
        table: &Arc<TableSchema>,
        sources: &[ColumnSource],
        checks: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Option<InsertFragments>> {
        let plan = &self.each.first().fragment().plan;
        let Some(rows) = rows_of(plan, table, sources)? else { return Ok(None) };
        let Some(rows) = with_checks(rows, checks)? else { return Ok(None) };
        let made = InsertFragments { each: self.each, rows, table: Arc::clone(table) };
        // A root over other columns, or a check that is no condition.
        Ok(made.root(&no_target(&made.table)).is_ok().then_some(made))
    }
}

/// The rows of `plan` as those of `table`.
fn rows_of(
    plan: &Arc<dyn ExecutionPlan>,
    table: &TableSchema,
    sources: &[ColumnSource],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if sources.len() != table.columns.len() {
        return Ok(None);
    }
    let schema = plan.schema();
    let mut columns = Vec::with_capacity(sources.len());
    for (column, source) in table.columns.iter().zip(sources) {
        let (own, from): (Arc<dyn PhysicalExpr>, DataType) = match source {
            ColumnSource::Query(place) => {
                let Some(field) = schema.fields().get(*place) else { return Ok(None) };
                (Arc::new(Column::new(field.name(), *place)), field.data_type().clone())
            }
            ColumnSource::Constant(value) => {
                (Arc::new(Literal::new(value.clone())), value.data_type())
            }
        };
        let Some(expr) = assigned_to(own, &from, &column.column_type) else { return Ok(None) };
        columns.push(ProjectionExpr { expr, alias: column.name.clone() });
    }
    projected(columns, Arc::clone(plan))
}

/// `rows`, with `checks` over their columns behind these.
fn with_checks(
    rows: Arc<dyn ExecutionPlan>,
    checks: &[Arc<dyn PhysicalExpr>],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if checks.is_empty() {
        return Ok(Some(rows));
    }
    let schema = rows.schema();
    let own = schema.fields().iter().enumerate().map(|(place, field)| ProjectionExpr {
        expr: Arc::new(Column::new(field.name(), place)),
        alias: field.name().clone(),
    });
    let checks = checks.iter().enumerate().map(|(number, expr)| ProjectionExpr {
        expr: Arc::clone(expr),
        alias: format!("check {number}"),
    });
    projected(own.chain(checks).collect(), rows)
}

/// `columns` of `rows`; None: the host evaluates what a device may not.
fn projected(
    columns: Vec<ProjectionExpr>,
    rows: Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let projection = ProjectionExec::try_new(columns, rows)?;
    Ok(check_device_operator(&projection).is_none().then(|| Arc::new(projection) as _))
}

impl InsertFragments {
    /// Rows that are expected.
    pub fn row_estimate(&self) -> f64 {
        self.each.first().planned().row_estimate()
    }

    /// The devices of its rows.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.each.all().map(WholeFragment::device)
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableSchema> {
        &self.table
    }

    /// What the planner knows of the rows.
    pub fn estimates(&self) -> PlanEstimates {
        self.each.first().planned().context.estimates()
    }

    /// The fragments, for EXPLAIN.
    ///
    /// # Errors
    /// Those of making them.
    pub fn shown(&self) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.each.with_root(self.root(&no_target(&self.table))?)))
    }

    /// What it costs to insert the rows into `table` in either way; None: into a new one, of which each device has one
    /// tablet. Figures of devices that are not known are assumed.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub async fn cost(&self, table: Option<&TableState>) -> Result<UpdateCost> {
        let mut each = Vec::new();
        for one in self.each.all() {
            let inputs = &one.part().inputs;
            let read = inputs.iter().map(|(_, input)| input.input.bytes_left() as f64);
            let bytes = one.row_estimate() * self.row_bytes();
            let writers = table.map_or(1, |table| self.writers(table, one.device().id())) as f64;
            let inserted = BulkInsert { bytes, bytes_read: read.sum(), writers };
            each.push((inserted, one.profile().await?));
        }
        Ok(UpdateCost::of_insert(&each))
    }

    /// The most cores of `device` that write to `table`: each to tablets of its own, where it does not matter which one
    /// a row goes to.
    fn writers(&self, table: &TableState, device: DeviceId) -> usize {
        match table.division {
            Division::LoadOrder => {
                insert_pages::places_on(table, device, false).map_or(1, |places| places.len())
            }
            Division::RoundRobin | Division::Hash(_) | Division::Range(..) => 1,
        }
    }

    fn row_bytes(&self) -> f64 {
        let arrow = self.table.arrow();
        let width = |data_type: &DataType| {
            data_type.primitive_width().map_or(VALUE_BYTES, |width| width as f64)
        };
        arrow.fields().iter().map(|field| width(field.data_type())).sum()
    }

    /// Whether each of its devices can write the rows that it makes to tablets of `table`, whose columns are those that
    /// it was made for, that lie there.
    #[must_use]
    pub fn fit(&self, table: &TableState) -> bool {
        let own = self.lie_as(table);
        self.devices().all(|device| insert_pages::places_on(table, device.id(), own).is_some())
    }

    fn lie_as(&self, table: &TableState) -> bool {
        let are_at_home = self.each.all().all(|one| one.part().is_at_home());
        are_at_home && lie_as(&self.rows, self.each.first().part(), table)
    }

    /// Where each fragment writes, in the table that `schema` describes, which `edit` alone has. None: one of the
    /// devices has no tablet for its rows.
    ///
    /// # Errors
    /// As [`Destination::begin`].
    pub fn begin(
        &self,
        edit: &mut CatalogEdit,
        settings: &Settings,
        schema: &TableSchema,
    ) -> Result<Option<Vec<Destination>>> {
        self.with_makers(|made| Destination::begin(edit, settings, schema, made))
    }

    /// The same beside the writers of the table.
    ///
    /// # Errors
    /// As [`PageLoad::begin`].
    pub fn begin_beside(
        &self,
        database: &Arc<Engine>,
        settings: &Arc<Settings>,
        schema: &TableSchema,
    ) -> Result<Option<(PageLoad, Vec<Destination>)>> {
        self.with_makers(|made| PageLoad::begin(database, settings, schema, made))
    }

    /// What `begin` does with the devices that make the rows.
    fn with_makers<T>(&self, begin: impl FnOnce(MadeOn<'_>) -> T) -> T {
        let devices: Vec<Arc<Device>> = self.devices().map(Arc::clone).collect();
        begin(MadeOn { devices: &devices, lie_as: &|table| self.lie_as(table) })
    }

    /// Runs the fragments, all at once, each of which writes where its one of `to` says. None: a device refuses its
    /// fragment or a value; the statement is to insert its rows itself. Then, and after an error, what the others have
    /// written is given back.
    ///
    /// # Errors
    /// Those of the statement's expressions, of the links and of the devices.
    pub async fn run(&self, to: Vec<Destination>) -> Result<Option<Vec<InsertedPages>>> {
        let mut sent: Option<Arc<SentRows>> = None;
        let mut runs = Vec::with_capacity(to.len());
        for (one, to) in self.each.all().zip(to) {
            let node = one.with_root(self.root(&to.target)?);
            let task = Arc::new(one.task()?);
            // What joins collect is made once, and sent to all.
            let rows = match sent.take() {
                Some(rows) => rows,
                None => node.rows_to_send(&node.pass(0), &task).await?,
            };
            let prepared = WholeFragment::prepared_with(&node, Arc::clone(&rows))?;
            sent = Some(rows);
            runs.push(self.run_one(one, (node, prepared, task), to));
        }
        let (mut all, mut is_refused, mut failure) = (Vec::new(), false, None);
        for ran in join_all(runs).await {
            match ran {
                Ok(Some(inserted)) => all.push(inserted),
                Ok(None) => is_refused = true,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if failure.is_none() && !is_refused {
            return Ok(Some(all));
        }
        all.into_iter().for_each(InsertedPages::give_back);
        failure.map_or(Ok(None), Err)
    }

    /// The figures of the runs on their devices since they were asked for last.
    pub fn take_figures(&self) -> Vec<FragmentFigures> {
        self.each.first().take_figures()
    }

    async fn run_one(
        &self,
        one: &WholeFragment,
        (node, prepared, task): (FragmentExec, PreparedFragment, Arc<TaskContext>),
        to: Destination,
    ) -> Result<Option<InsertedPages>> {
        let expected = one.row_estimate() * self.row_bytes() / BLOCK_SIZE as f64;
        let blocks = whole(expected.min(BLOCKS_MAX)) + SLACK_BLOCKS;
        let by = (&to.claim, None);
        let reported = one.on_device((&node, &prepared), by, |_| blocks, &task).await?;
        let Some(Reported { rows, space }) = reported else { return Ok(None) };
        let strange = |reason: String| to.device.strange_payload(&reason);
        let pages = read_inserted(&rows, to.target.tablets.len());
        let pages = pages.map_err(|error| strange(error.to_string()))?;
        Ok(Some(InsertedPages { to, pages, space }))
    }

    /// Runs the fragments. Their rows become a result set, each device having those that it made, in `tablet_count`
    /// tablets: as many of its cores may write. None: as for [`Self::run`].
    ///
    /// # Errors
    /// As [`Self::run`]; a report that cannot be of these rows.
    pub(crate) async fn result_set(
        &self,
        tablet_count: usize,
        settings: &Settings,
        about: About,
    ) -> Result<Option<Arc<ResultSet>>> {
        let database = self.each.first().planned().context.database();
        let (engine, stopwatch) = (database.storage(), Stopwatch::start());
        let mut edit = CatalogEdit::kept(engine, engine.catalog(), BTreeMap::new())?;
        let schema = TableSchema { table_id: edit.table_id()?, ..(*self.table).clone() };
        let schema = Arc::new(schema);
        let devices = self.devices();
        let tablets = devices.flat_map(|device| iter::repeat_n(device, tablet_count.max(1)));
        edit.put_table(empty_table(&schema, tablets));
        let settings = Arc::new(settings.clone());
        let Some(to) = self.begin(&mut edit, &settings, &schema)? else { return Ok(None) };
        let spaces = to.iter().map(|to| (Arc::clone(&to.device), Arc::clone(&to.claim)));
        let spaces: Vec<_> = spaces.collect();
        let Some(inserted) = self.run(to).await? else { return Ok(None) };
        insert_pages::add(&mut edit, &settings, &schema, inserted).await?;
        let table = edit.table(&schema.name)?;
        let (sets, cost) = (&database.result_sets, stopwatch.elapsed());
        Ok(Some(ResultSet::new(sets, about, table, spaces, cost)))
    }

    fn root(&self, target: &PageTarget) -> Result<Arc<dyn ExecutionPlan>> {
        let inserted = inserted_rows(&self.table, target, false);
        Ok(Arc::new(InsertPagesExec::new(Arc::clone(&self.rows), inserted)?))
    }
}

/// The table that `schema` describes, without rows, with a tablet on each of `devices`, which may come again.
fn empty_table<'a>(
    schema: &Arc<TableSchema>,
    devices: impl Iterator<Item = &'a Arc<Device>>,
) -> TableState {
    let tablet = |(number, device): (u32, &Arc<Device>)| {
        Arc::new(TabletState::empty(TabletId(number), device.id(), Vec::new()))
    };
    TableState {
        schema: Arc::clone(schema),
        indexes: Vec::new(),
        tablets: (0..).zip(devices).map(tablet).collect(),
        division: Division::LoadOrder,
        damaged: Vec::new(),
        rules: Arc::default(),
        materialized: None,
        is_balanced: false,
    }
}

/// Rows of `table` that are written as `target` says.
pub(super) fn inserted_rows(
    table: &TableSchema,
    PageTarget { tablets, division, class }: &PageTarget,
    replaces: bool,
) -> InsertedRows {
    let indices: Vec<usize> = (0..table.columns.len()).collect();
    let Projection { schema, columns, .. } = Projection::of_table(table, &indices);
    let columns = Projection::new(schema, columns);
    let targets = tablets.iter().map(|tablet| tablet.target).collect();
    InsertedRows { targets, division: division.clone(), class: *class, columns, replaces }
}

/// The target of a fragment that is not run.
pub(super) fn no_target(table: &TableSchema) -> PageTarget {
    let segment = SegmentRef {
        table_id: table.table_id,
        segment: SegmentId(0),
        schema_version: table.version,
        commit: 0,
    };
    let target = InsertTarget { segment, vid_first: 0 };
    let tablet = TabletTarget { place: 0, lies_there: true, target };
    PageTarget { tablets: vec![tablet], division: RowDivision::LoadOrder, class: PageClass::BULK }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(super) fn whole(count: f64) -> u64 {
    count as u64
}
