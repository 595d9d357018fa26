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
//! 1. [`plan_insert`] plans the query as one fragment ([`whole_fragment`](super::whole_fragment)).
//! 2. [`InsertingQuery::into_table`] makes rows of the table of its rows: columns in their order, with casts where an
//!    assignment makes them, constants for columns that the statement does not name, and the checks.
//! 3. [`InsertFragment::run`] sends it with [`InsertPagesExec`] as its root. It runs on the device or not at all: on
//!    the host, rows are loaded in several threads. [`InsertFragment::result_set`] does so for rows that no table gets.
//!
//! Source: Update NDP, section 4.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::device::{Claim, Device};
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::write::change_pages::Reported;
use cleave_engine::write::insert_pages::{self, InsertedPages, PageTarget, TabletTarget};
use cleave_fragment::functions::assignment::assigned_to;
use cleave_fragment::{
    InsertPagesExec, InsertTarget, InsertedRows, check_device_operator, read_inserted,
};
use cleave_media::{BLOCK_SIZE, Stopwatch};
use cleave_plan::PlanEstimates;
use cleave_store::{PageClass, Projection, SegmentId, SegmentRef, TableSchema, TabletId};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::future::join_all;

use super::update_cost::{BulkInsert, UpdateCost};
use super::whole_fragment::WholeFragment;
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
    whole: WholeFragment,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnSource {
    /// The column of the query at this place.
    Query(usize),
    /// The column's default.
    Constant(ScalarValue),
}

/// A query whose rows are those of a table.
pub struct InsertFragment {
    whole: WholeFragment,
    rows: Arc<dyn ExecutionPlan>,
    table: Arc<TableSchema>,
}

/// Plans the query `asked`. None: it does not run as one fragment on a device.
///
/// # Errors
/// None of the statement's own: these come from the query that runs then instead.
pub async fn plan_insert(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
) -> Result<Option<InsertingQuery>> {
    let whole = WholeFragment::plan(database, settings, asked).await?;
    Ok(whole.filter(WholeFragment::is_on_device).map(|whole| InsertingQuery { whole }))
}

impl InsertingQuery {
    /// The query `planned`, under the settings of [`at_root`](super::whole_fragment::at_root), on each device that it
    /// reads: the rows that it makes there. None: it does not run as one fragment.
    pub(crate) fn of_each_device(planned: PlannedQuery) -> Option<Vec<Self>> {
        let each = WholeFragment::of_each_device(planned, true)?;
        Some(each.into_iter().map(|whole| Self { whole }).collect())
    }

    /// The columns of the query, with the names that it gives them.
    pub fn schema(&self) -> SchemaRef {
        self.whole.planned().named(&self.whole.fragment().plan.schema())
    }

    /// The device of its rows.
    pub fn device(&self) -> &Arc<Device> {
        self.whole.device()
    }

    /// The rows as those of `table`, whose columns come from `sources`, with `checks` over its columns. None: the
    /// device is not known to make them as the host does.
    ///
    /// # Errors
    /// Those of making the operators.
    pub fn into_table(
        self,
        table: &Arc<TableSchema>,
        sources: &[ColumnSource],
        checks: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Option<InsertFragment>> {
        let plan = &self.whole.fragment().plan;
        let Some(rows) = rows_of(plan, table, sources)? else { return Ok(None) };
        let Some(rows) = with_checks(rows, checks)? else { return Ok(None) };
        let made = InsertFragment { whole: self.whole, rows, table: Arc::clone(table) };
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

impl InsertFragment {
    /// Rows that are expected.
    pub fn row_estimate(&self) -> f64 {
        self.whole.planned().row_estimate()
    }

    /// The device of its rows.
    pub fn device(&self) -> &Arc<Device> {
        self.whole.device()
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableSchema> {
        &self.table
    }

    /// What the planner knows of the rows.
    pub fn estimates(&self) -> PlanEstimates {
        self.whole.planned().context.estimates()
    }

    /// The fragment, for EXPLAIN.
    ///
    /// # Errors
    /// Those of making it.
    pub fn shown(&self) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.whole.with_root(self.root(&no_target(&self.table))?)))
    }

    /// What it costs to insert the rows in either way. Figures of the device that are not known are assumed.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub async fn cost(&self) -> Result<UpdateCost> {
        let inputs = &self.whole.part().inputs;
        let read = inputs.iter().map(|(_, input)| input.input.bytes_left() as f64);
        let bytes = self.row_estimate() * self.row_bytes();
        let inserted = BulkInsert { bytes, bytes_read: read.sum(), writers: 1.0 };
        Ok(UpdateCost::of_insert(&inserted, &self.whole.profile().await?))
    }

    fn row_bytes(&self) -> f64 {
        let arrow = self.table.arrow();
        let width = |data_type: &DataType| {
            data_type.primitive_width().map_or(VALUE_BYTES, |width| width as f64)
        };
        arrow.fields().iter().map(|field| width(field.data_type())).sum()
    }

    /// Runs the fragment, which writes what `target` says into space of `claim`. None: the device refuses it or a
    /// value; the statement is to insert its rows itself.
    ///
    /// # Errors
    /// Those of the statement's expressions, of the link and of the device.
    pub async fn run(
        &self,
        claim: &Arc<Claim>,
        target: PageTarget,
    ) -> Result<Option<InsertedPages>> {
        let node = self.whole.with_root(self.root(&target)?);
        let task = Arc::new(self.whole.task()?);
        let prepared = WholeFragment::prepared(&node, &task).await?;
        let expected = self.row_estimate() * self.row_bytes() / BLOCK_SIZE as f64;
        let blocks = whole(expected.min(BLOCKS_MAX)) + SLACK_BLOCKS;
        let reported =
            self.whole.on_device((&node, &prepared), (claim, None), |_| blocks, &task).await?;
        let Some(Reported { rows, space }) = reported else { return Ok(None) };
        let strange = |reason: String| self.device().strange_payload(&reason);
        let pages = read_inserted(&rows, target.tablets.len());
        let pages = pages.map_err(|error| strange(error.to_string()))?;
        Ok(Some(InsertedPages { target, pages, space }))
    }

    /// Runs `fragments`, those of one query on different devices, all at once. Their rows become a result set, each
    /// device having those that it made, in `tablet_count` tablets: as many of its cores may write. None: as for
    /// [`Self::run`].
    ///
    /// # Errors
    /// As [`Self::run`]; a report that cannot be of these rows.
    pub(crate) async fn result_set(
        fragments: &[Self],
        tablet_count: usize,
        settings: &Settings,
        about: About,
    ) -> Result<Option<Arc<ResultSet>>> {
        let Some(first) = fragments.first() else { return Ok(None) };
        let database = first.whole.planned().context.database();
        let (engine, stopwatch) = (database.storage(), Stopwatch::start());
        let mut edit = CatalogEdit::kept(engine, engine.catalog(), BTreeMap::new())?;
        let schema = TableSchema { table_id: edit.table_id()?, ..(*first.table).clone() };
        let schema = Arc::new(schema);
        let devices = fragments.iter().map(Self::device);
        let tablets = devices.flat_map(|device| iter::repeat_n(device, tablet_count.max(1)));
        edit.put_table(empty_table(&schema, tablets));
        let settings = Arc::new(settings.clone());
        let mut begun = Vec::with_capacity(fragments.len());
        for fragment in fragments {
            let device = fragment.device();
            let target = PageTarget::begin(&mut edit, &settings, &schema, device)?;
            let Some(target) = target else { return Ok(None) };
            begun.push((fragment, edit.claim(device), target));
        }
        let runs = begun.into_iter().map(async |(fragment, claim, target)| {
            let inserted = fragment.run(&claim, target).await;
            (fragment.device(), claim, inserted)
        });
        let mut spaces = Vec::with_capacity(fragments.len());
        for (device, claim, inserted) in join_all(runs).await {
            let Some(inserted) = inserted? else { return Ok(None) };
            insert_pages::add(&mut edit, &settings, &schema, (device, &claim), inserted).await?;
            spaces.push((Arc::clone(device), claim));
        }
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
    }
}

/// Rows of `table` that are written as `target` says.
pub(super) fn inserted_rows(
    table: &TableSchema,
    PageTarget { tablets, key, class }: &PageTarget,
    replaces: bool,
) -> InsertedRows {
    let indices: Vec<usize> = (0..table.columns.len()).collect();
    let Projection { schema, columns, .. } = Projection::of_table(table, &indices);
    let columns = Projection::new(schema, columns);
    let targets = tablets.iter().map(|tablet| tablet.target).collect();
    InsertedRows { targets, key: key.clone(), class: *class, columns, replaces }
}

/// The target of a fragment that is not run.
pub(super) fn no_target(table: &TableSchema) -> PageTarget {
    let segment = SegmentRef {
        table_id: table.table_id,
        segment: SegmentId(0),
        schema_version: table.version,
        commit: 0,
    };
    let tablet = TabletTarget { place: 0, target: InsertTarget { segment, vid_first: 0 } };
    PageTarget { tablets: vec![tablet], key: Vec::new(), class: PageClass::BULK }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(super) fn whole(count: f64) -> u64 {
    count as u64
}
