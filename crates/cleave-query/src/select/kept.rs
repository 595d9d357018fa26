//! Cached plans over slots: a query over a few rows in memory, planned once and run for any rows and any values of its
//! parameters.
//!
//! ```text
//!  SELECT b FROM t WHERE a >= $1 ORDER BY b ─▶ plan over a slot with t's columns and one for each parameter ─▶ steps
//!     rows of t in an index range, values ─▶ slot ─▶ steps ─▶ rows
//! ```
//!
//! 1. [`keep`] binds, rewrites and plans the query by the usual rules; its tables are [slots](TablePlace), its
//!    parameters columns of the first of them.
//! 2. [`CachedPlan::run`] is given the rows: [`CachedPlan::input`] says which columns it reads. A plan of filters,
//!    projections, sorts and aggregates without groups is a list of [steps](Step), each one call; any other is executed
//!    as it is.
//!
//! Invariant: a cached plan refers to no catalog version. Its result for given rows is that of a plan over a table with
//! them; the [range path](crate::range_path) decides which rows it gets.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_sql::dialect::lower_syntax;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{
    concat_batches, filter_record_batch, lexsort_to_indices, take_record_batch,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, Session, TableProvider,
};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::TableType;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, reset_plan_states,
};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, collect,
};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;

use super::compiled::{Columns, PARAMETER};
use super::result_names::ResultNames;
use super::running::apply_schema;
use super::table_provider::{CATALOG, SCHEMA};
use crate::planner::{self, InnerJoins};
use crate::query_engine::QueryEngine;
use cleave_sql::visiting::visit_mut;

/// A plan over slots. See the module's description.
pub struct CachedPlan {
    /// Types of the parameters.
    pub types: Vec<DataType>,
    slots: Vec<Arc<TablePlace>>,
    /// Places of the columns that it reads of the first table, and these columns.
    input: (Vec<usize>, SchemaRef),
    how: How,
    schema: SchemaRef,
}

enum How {
    Steps(Vec<Step>),
    Plan { plan: tokio::sync::Mutex<Arc<dyn ExecutionPlan>>, task: Arc<TaskContext> },
}

/// One operator over all rows at once.
pub(super) enum Step {
    Filter { predicate: Arc<dyn PhysicalExpr>, projection: Option<Vec<usize>> },
    Project { expressions: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef },
    Sort(LexOrdering),
    Aggregate { functions: Vec<Arc<AggregateFunctionExpr>>, schema: SchemaRef },
}

/// Where the rows of a table will be.
pub(super) struct TablePlace {
    /// The table's columns, in the first one also the parameters.
    pub(super) schema: SchemaRef,
    rows: Mutex<Option<RecordBatch>>,
}

/// Plans `query` over tables of these names and columns; None: nothing of it depends on one of them.
///
/// # Errors
/// Those of a query.
pub async fn keep(
    (database, settings): (&QueryEngine, &Settings),
    mut query: ast::Query,
    tables: &[(&str, SchemaRef)],
    types: Vec<DataType>,
) -> Result<Option<CachedPlan>> {
    if let ControlFlow::Break(error) = visit_mut(&mut query, &mut Columns) {
        return Err(*error);
    }
    let mut slots = Vec::with_capacity(tables.len());
    for (number, (_, schema)) in tables.iter().enumerate() {
        let own = schema.fields().iter().map(Arc::clone);
        let parameters = types.iter().enumerate().filter(|_| number == 0).map(|(place, own)| {
            Arc::new(Field::new(format!("{PARAMETER}{place}"), own.clone(), true))
        });
        let schema = Arc::new(Schema::new(own.chain(parameters).collect::<Vec<_>>()));
        slots.push(TablePlace::of(schema));
    }
    let catalogs = slot_catalog(tables.iter().map(|(name, _)| *name).zip(&slots))?;
    let runtime = database.query_runtime();
    let asked = (settings, &database.last_states);
    let mut state = planner::statement_state(asked, InnerJoins::AsWritten, 1, runtime, catalogs);
    // Dynamic filters of one execution must not apply to the next.
    let options = state.config_mut().options_mut();
    options.set("datafusion.optimizer.enable_dynamic_filter_pushdown", "false")?;
    let names = ResultNames::take_alone(&mut query)?;
    lower_syntax(&mut query);
    let statement = EngineStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
    let logical = state.statement_to_plan(statement).await?;
    let plan = state.create_physical_plan(&logical).await?;
    let mut scans = Vec::new();
    collect_scans(&plan, &mut scans);
    let mut inputs = Vec::with_capacity(slots.len());
    for slot in &slots {
        let mut own = scans.iter().filter(|scan| Arc::ptr_eq(&scan.slot, slot));
        let (Some(scan), None) = (own.next(), own.next()) else { return Ok(None) };
        inputs.push((scan.columns.clone(), Arc::new(slot.schema.project(&scan.columns)?)));
    }
    drop(scans);
    let schema = names.apply(&plan.schema());
    let how = match steps(&plan) {
        Some(steps) => How::Steps(steps),
        None => How::Plan { plan: tokio::sync::Mutex::new(plan), task: state.task_ctx() },
    };
    let Some(input) = inputs.into_iter().next() else { return Ok(None) };
    Ok(Some(CachedPlan { types, slots, input, how, schema }))
}

impl CachedPlan {
    /// Places of the columns of the first table that the plan reads, behind which are the parameters, and these
    /// columns.
    pub fn input(&self) -> (&[usize], &SchemaRef) {
        let (places, schema) = &self.input;
        (places, schema)
    }

    /// The columns of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The result of the query for tables with these rows, each with the wanted columns.
    ///
    /// # Errors
    /// Those of the query's expressions.
    pub async fn run(&self, mut inputs: Vec<RecordBatch>) -> Result<RecordBatch> {
        let rows = match &self.how {
            How::Steps(steps) => {
                let mut rows = inputs.swap_remove(0);
                for step in steps {
                    rows = step.apply(rows)?;
                }
                rows
            }
            How::Plan { plan, task } => {
                let plan = plan.lock().await;
                // What runs is a copy: its joins keep the rows that they are built from.
                let running = reset_plan_states(Arc::clone(&plan))?;
                let _filled = Filled::with(self.slots.iter(), inputs);
                let batches = collect(running, Arc::clone(task)).await?;
                concat_batches(&plan.schema(), &batches)?
            }
        };
        apply_schema(&rows, &self.schema)
    }
}

impl fmt::Debug for CachedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedPlan").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Slots with rows in them, until this is dropped.
pub(super) struct Filled<'a>(Vec<&'a TablePlace>);

impl<'a> Filled<'a> {
    pub(super) fn with(
        slots: impl Iterator<Item = &'a Arc<TablePlace>>,
        inputs: Vec<RecordBatch>,
    ) -> Self {
        let filled = slots.zip(inputs).map(|(slot, rows)| {
            slot.put(rows);
            slot.as_ref()
        });
        Self(filled.collect())
    }
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|slot| slot.clear());
    }
}

impl TablePlace {
    /// For rows of these columns.
    pub(super) fn of(schema: SchemaRef) -> Arc<Self> {
        Arc::new(Self { schema, rows: Mutex::default() })
    }

    /// Lets go of its rows.
    fn clear(&self) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Puts the rows there that the next execution takes.
    fn put(&self, rows: RecordBatch) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = Some(rows);
    }
}

/// The tables of these names as DataFusion's planner finds them.
pub(super) fn slot_catalog<'a>(
    slots: impl Iterator<Item = (&'a str, &'a Arc<TablePlace>)>,
) -> EngineResult<Arc<dyn CatalogProviderList>> {
    let provider = MemorySchemaProvider::new();
    for (name, slot) in slots {
        provider.register_table(name.to_owned(), Arc::new(SlotTable(Arc::clone(slot))))?;
    }
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(provider))?;
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    Ok(Arc::new(catalogs))
}

pub(super) fn collect_scans<'a>(plan: &'a Arc<dyn ExecutionPlan>, found: &mut Vec<&'a SlotExec>) {
    found.extend(plan.downcast_ref::<SlotExec>());
    for child in plan.children() {
        collect_scans(child, found);
    }
}

/// The steps of a plan that is one of them after the other, the first one first.
fn steps(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<Step>> {
    steps_over(plan, &|leaf| leaf.is::<SlotExec>())
}

/// The same of a plan that begins with what `is_leaf`.
pub(super) fn steps_over(
    plan: &Arc<dyn ExecutionPlan>,
    is_leaf: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Option<Vec<Step>> {
    if is_leaf(plan) {
        return Some(Vec::new());
    }
    let [input] = plan.children()[..] else { return None };
    let mut before = steps_over(input, is_leaf)?;
    let step = if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_ref().map(|places| places.to_vec());
        let predicate = Arc::clone(filter.predicate());
        filter.fetch().is_none().then_some(Step::Filter { predicate, projection })?
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let own = projection.expr().iter().map(|projected| Arc::clone(&projected.expr));
        Step::Project { expressions: own.collect(), schema: plan.schema() }
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        sort.fetch().is_none().then(|| Step::Sort(sort.expr().clone()))?
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let is_plain = matches!(aggregate.mode(), AggregateMode::Single)
            && aggregate.group_expr().is_empty()
            && aggregate.filter_expr().iter().all(Option::is_none)
            && aggregate.aggr_expr().iter().all(|function| function.order_bys().is_empty());
        let functions = aggregate.aggr_expr().to_vec();
        is_plain.then(|| Step::Aggregate { functions, schema: plan.schema() })?
    } else {
        return None;
    };
    before.push(step);
    Some(before)
}

impl Step {
    pub(super) fn apply(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        match self {
            Self::Filter { predicate, projection } => {
                let kept = predicate.evaluate(&rows)?.into_array(count)?;
                let Some(kept) = kept.as_boolean_opt() else {
                    return Ok(internal_err!("a condition that is no boolean")?);
                };
                let rows = match projection {
                    Some(places) => rows.project(places)?,
                    None => rows,
                };
                if kept.null_count() == 0 && kept.true_count() == count {
                    return Ok(rows);
                }
                Ok(filter_record_batch(&rows, kept)?)
            }
            Self::Project { expressions, schema } => {
                let columns = evaluated(expressions, &rows)?;
                with_count(schema, columns, count)
            }
            Self::Sort(ordering) => {
                let columns = ordering.iter().map(|by| by.evaluate_to_sort_column(&rows));
                let columns = columns.collect::<EngineResult<Vec<_>>>()?;
                Ok(take_record_batch(&rows, &lexsort_to_indices(&columns, None)?)?)
            }
            Self::Aggregate { functions, schema } => {
                let mut columns = Vec::with_capacity(functions.len());
                for function in functions {
                    let mut accumulator = function.create_accumulator()?;
                    accumulator.update_batch(&evaluated(&function.expressions(), &rows)?)?;
                    columns.push(accumulator.evaluate()?.to_array()?);
                }
                with_count(schema, columns, 1)
            }
        }
    }
}

fn evaluated(expressions: &[Arc<dyn PhysicalExpr>], rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let values = expressions
        .iter()
        .map(|expression| Ok(expression.evaluate(rows)?.into_array(rows.num_rows())?));
    values.collect()
}

fn with_count(schema: &SchemaRef, columns: Vec<ArrayRef>, count: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// A slot as DataFusion's planner sees it.
#[derive(Debug)]
struct SlotTable(Arc<TablePlace>);

#[async_trait]
impl TableProvider for SlotTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        columns: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.0.schema.fields().len()).collect();
        let columns = columns.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.0.schema.project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        // It gives one batch.
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Ok(Arc::new(SlotExec { slot: Arc::clone(&self.0), columns, properties }))
    }
}

impl fmt::Debug for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TablePlace").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Gives the rows of a slot.
#[derive(Debug)]
pub(super) struct SlotExec {
    pub(super) slot: Arc<TablePlace>,
    /// Places of its columns in the slot.
    pub(super) columns: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for SlotExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotExec")
    }
}

impl ExecutionPlan for SlotExec {
    fn name(&self) -> &'static str {
        "SlotExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        _partition: usize,
        _task: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let rows = self.slot.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(rows) = rows else { return internal_err!("a slot without rows") };
        Ok(Box::pin(MemoryStream::try_new(vec![rows], self.schema(), None)?))
    }
}
