//! Queries of WITH that run once ([`shared_with`](cleave_sql::statement::shared_with)): a query with marked parts in;
//! out, its plan over tables that stand for them, and a plan of each of them.
//!
//! ```text
//!  WITH x AS (q) … FROM x JOIN x AS y …
//!    bound      main: join of PartTable 0 and PartTable 0         part 0: q, analysed
//!    optimised  main: as ever                                     part 0: q, of which only the columns that main reads
//!    divided    main: HashJoinExec of two WithScanExec            part 0: a query of its own, with its cuts
//!    runs       each WithScanExec reads the rows of part 0 ─────▶ SharedRows, which run part 0 once
//! ```
//!
//! 1. [`WithPlanner`] finds a marked part while DataFusion binds the query, binds its query, and puts a [`PartTable`]
//!    in its place. So a part is bound once, however often it is used, and the optimised plan has one scan for each
//!    use.
//! 2. [`optimised_parts`] finds which columns are read of each part, and optimises it; unread parts are left out.
//! 3. [`over`] puts the rows of the parts, [`SharedRows`], in the places of the tables that stand for them.
//!
//! A query that refers to columns of an outer one has other rows for each outer row: it stays where it is.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cleave_catalog::error::{Error, Fault, Result};
use cleave_fragment::WorkingTableExec;
use cleave_sql::statement::shared_with::Mark;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{TableReference, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result as EngineResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::builder::subquery_alias;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableSource, TableType,
};
use datafusion::optimizer::Analyzer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;
use futures::future::{BoxFuture, ready};

use super::shared_rows::SharedRows;
use super::stages::Stage;
use super::statement_context::StatementContext;
use super::table_provider::CleaveTable;
use super::with_scan_exec::WithScanExec;
use crate::planner::deep_subqueries::{self, analysed};
use crate::planner::planning;

/// Columns that a query of WITH may have, as any list of PostgreSQL's.
const COLUMN_COUNT_MAX: usize = 1664;

/// How the tables that stand for parts are called, before their numbers.
const PART: &str = "\u{1}with part ";

/// A query of WITH that is bound.
#[derive(Debug, Clone)]
pub(super) struct BoundPart {
    pub(super) name: String,
    /// Analysed, unless it has parameters.
    pub(super) plan: LogicalPlan,
    is_volatile: bool,
}

/// The queries of WITH of one statement, in the order in which they were bound: one names only those before it.
#[derive(Debug, Default)]
pub(super) struct BoundParts(Mutex<Vec<BoundPart>>);

impl BoundParts {
    /// Takes all of them.
    pub(super) fn take(&self) -> Vec<BoundPart> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, part: BoundPart) -> usize {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(part);
        parts.len() - 1
    }
}

/// Puts tables in the places of marked queries.
pub(super) struct WithPlanner {
    analyzer: Analyzer,
    config: Arc<ConfigOptions>,
    parts: Arc<BoundParts>,
    /// The next table is bound as it is.
    is_passing: AtomicBool,
}

impl fmt::Debug for WithPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithPlanner").finish_non_exhaustive()
    }
}

/// Has `state` bind marked queries as parts of the statement of `context`.
pub(super) fn register(state: &mut SessionState, context: &StatementContext) -> EngineResult<()> {
    let config = Arc::clone(state.config_options());
    let (analyzer, parts) = (state.analyzer().clone(), Arc::clone(context.bound_parts()));
    state.register_relation_planner(Arc::new(WithPlanner {
        analyzer,
        config,
        parts,
        is_passing: AtomicBool::new(false),
    }))
}

impl RelationPlanner for WithPlanner {
    fn plan_relation(
        &self,
        mut relation: ast::TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> EngineResult<RelationPlanning> {
        planning::check()?;
        if matches!(relation, ast::TableFactor::Table { args: None, .. }) {
            if self.is_passing.swap(false, Ordering::Relaxed) {
                return Ok(RelationPlanning::Original(Box::new(relation)));
            }
            // A query of WITH that is put in the place of its name may double with each that uses it twice.
            self.is_passing.store(true, Ordering::Relaxed);
            let plan = context.plan(relation)?;
            planning::check_named(&plan)?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))));
        }
        let ast::TableFactor::Derived { alias, .. } = &mut relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(mark) = alias.as_ref().and_then(Mark::of) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let alias = alias.take();
        let plan = context.plan(relation)?;
        planning::check_size(&plan)?;
        let column_count = plan.schema().fields().len();
        if column_count > COLUMN_COUNT_MAX {
            return Err(Error::Invalid {
                message: format!("target lists can have at most {COLUMN_COUNT_MAX} entries"),
                fault: Fault::TooManyColumns,
                position: None,
            }
            .into());
        }
        let looked = Looked::at(&plan)?;
        let has_own_rows = !(mark.may_refer && looked.refers) && looked.is_whole();
        if (mark.if_volatile && !looked.is_volatile) || !has_own_rows {
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))));
        }
        // Columns of the same name get different ones.
        let plan = subquery_alias(plan, TableReference::bare(mark.name.as_str()))?;
        let plan = match looked.has_parameters {
            true => plan,
            false => analysed(&self.analyzer, plan, &self.config)?,
        };
        let schema = Arc::clone(plan.schema().inner());
        let part = BoundPart { name: mark.name, plan, is_volatile: looked.is_volatile };
        let number = self.parts.push(part);
        let table = provider_as_source(Arc::new(PartTable { number, schema, rows: None }));
        let scan = LogicalPlanBuilder::scan(TableReference::bare(part_name(number)), table, None)?
            .build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(scan, alias))))
    }
}

/// What the table is called that stands for a part.
pub(super) fn part_name(number: usize) -> String {
    // None begins with another one.
    format!("{PART}{number}.")
}

/// Decides whether a query of WITH can be run by itself.
#[derive(Debug, Default)]
struct Looked {
    is_volatile: bool,
    refers: bool,
    has_parameters: bool,
    /// Recursive queries in it, and those whose rows so far it reads.
    recursions: BTreeSet<String>,
    read: BTreeSet<String>,
}

impl Looked {
    fn at(plan: &LogicalPlan) -> EngineResult<Self> {
        let mut looked = Self::default();
        plan.apply_everywhere(|node| {
            if let LogicalPlan::RecursiveQuery(query) = node {
                looked.recursions.insert(query.name.clone());
            }
            if let LogicalPlan::TableScan(scan) = node
                && source_as_provider(&scan.source).is_ok_and(|table| table.is::<CteWorkTable>())
            {
                looked.read.insert(scan.table_name.table().to_owned());
            }
            node.each_expression(|expression| {
                expression.apply(|expression| {
                    looked.is_volatile |= expression.is_volatile_node();
                    looked.refers |= matches!(expression, Expr::OuterReferenceColumn(..));
                    looked.has_parameters |= matches!(expression, Expr::Placeholder(_));
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(looked)
    }

    /// Whether it is no part of a recursion around it.
    fn is_whole(&self) -> bool {
        self.read.is_subset(&self.recursions)
    }
}

/// A query of WITH that is optimised.
#[derive(Debug, Clone)]
pub(super) struct OptimisedPart {
    pub(super) number: usize,
    pub(super) name: String,
    /// Places of its columns that are read, among all that it has.
    pub(super) columns: Vec<usize>,
    /// These columns.
    pub(super) plan: LogicalPlan,
    /// They have the types that they were bound with. Otherwise constants have given them others, numerics with other
    /// digits: what reads the rows [converts them](WithScanExec).
    pub(super) has_bound_types: bool,
}

/// Optimises those of `parts` that `main`, which is optimised, reads, directly or through others. One that comes later
/// reads only those before it.
pub(super) fn optimised_parts(
    state: &SessionState,
    main: &LogicalPlan,
    parts: Vec<BoundPart>,
) -> Result<Vec<OptimisedPart>> {
    let mut read: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    note_columns(main, &mut read)?;
    let mut optimised = Vec::with_capacity(parts.len());
    for (number, part) in parts.into_iter().enumerate().rev() {
        let Some(mut columns) = read.remove(&number) else { continue };
        if part.is_volatile {
            columns = (0..part.plan.schema().fields().len()).collect();
        }
        let columns: Vec<usize> = columns.into_iter().collect();
        let bound = part.plan.schema();
        let bound: Vec<DataType> =
            columns.iter().map(|place| bound.field(*place).data_type().clone()).collect();
        let plan = match columns.len() == part.plan.schema().fields().len() {
            true => part.plan,
            false => {
                let list: Vec<Expr> = columns
                    .iter()
                    .map(|place| Expr::Column(part.plan.schema().qualified_field(*place).into()))
                    .collect();
                LogicalPlanBuilder::from(part.plan).project(list)?.build()?
            }
        };
        let plan = deep_subqueries::optimised(state.optimizer(), plan, state)?;
        planning::check_size(&plan)?;
        note_columns(&plan, &mut read)?;
        let has_bound_types =
            plan.schema().fields().iter().map(|field| field.data_type()).eq(&bound);
        let name = part.name;
        optimised.push(OptimisedPart { number, name, columns, plan, has_bound_types });
    }
    optimised.reverse();
    Ok(optimised)
}

/// Adds the columns that `plan` reads of parts.
fn note_columns(
    plan: &LogicalPlan,
    read: &mut BTreeMap<usize, BTreeSet<usize>>,
) -> EngineResult<()> {
    plan.apply_everywhere(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some((number, schema)) = part_of(scan)
        {
            let columns = read.entry(number).or_default();
            match &scan.projection {
                Some(places) => columns.extend(places),
                None => columns.extend(0..schema.fields().len()),
            }
            columns.extend(
                scan.filters
                    .iter()
                    .flat_map(Expr::column_refs)
                    .filter_map(|column| schema.index_of(&column.name).ok()),
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The table that stands for the part of a number, of which `plan` has all columns.
pub(super) fn part_source(number: usize, plan: &LogicalPlan) -> Arc<dyn TableSource> {
    let schema = Arc::clone(plan.schema().inner());
    provider_as_source(Arc::new(PartTable { number, schema, rows: None }))
}

/// The number and all columns of the part that `scan` reads.
pub(super) fn part_of(scan: &TableScan) -> Option<(usize, SchemaRef)> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<PartTable>()?;
    Some((table.number, Arc::clone(&table.schema)))
}

/// Where the rows of parts come from, by their numbers.
#[derive(Default)]
pub(super) struct PartRows {
    /// Those that run beside the query.
    pub(super) shared: BTreeMap<usize, Arc<SharedRows>>,
    /// Those that are on a device.
    pub(super) stages: BTreeMap<usize, Stage>,
}

/// `plan` over the tables as the statement of `context` has them, and over the rows of parts.
pub(super) fn over(
    plan: LogicalPlan,
    context: &Arc<StatementContext>,
    rows: &PartRows,
) -> EngineResult<LogicalPlan> {
    let plan = plan.transform_down_everywhere(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source)?;
        let own: Arc<dyn TableProvider> =
            if let Some(table) = provider.downcast_ref::<CleaveTable>() {
                Arc::new(table.within(context))
            } else if let Some(PartTable { number, schema, .. }) = provider.downcast_ref() {
                if let Some(stage) = rows.stages.get(number) {
                    let all = (0..schema.fields().len()).collect();
                    let columns = scan.projection.take().unwrap_or(all);
                    scan.projection = Some(stage.places_of(&columns)?);
                    Arc::new(stage.scanned(schema, context)?)
                } else {
                    let (rows, schema) = (rows.shared.get(number).cloned(), Arc::clone(schema));
                    Arc::new(PartTable { number: *number, schema, rows })
                }
            } else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
        scan.source = provider_as_source(own);
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(plan.data)
}

/// `plan` over working tables that a device can read.
///
/// # Errors
/// Those of walking the plan.
pub(super) fn over_working_tables(plan: LogicalPlan) -> EngineResult<LogicalPlan> {
    let mut has_recursion = false;
    plan.apply_everywhere(|node| {
        has_recursion |= matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(match has_recursion {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    if !has_recursion {
        return Ok(plan);
    }
    let plan = plan.transform_down_everywhere(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<CteWorkTable>() else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        let (name, schema) = (table.name().to_owned(), table.schema());
        scan.source = provider_as_source(Arc::new(WorkingTable { name, schema }));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(plan.data)
}

/// The rows of the round before, in a recursive query. DataFusion's own table does not tell which columns its leaf has.
#[derive(Debug)]
struct WorkingTable {
    name: String,
    schema: SchemaRef,
}

impl WorkingTable {
    /// What reads its rows.
    fn leaf(&self, columns: Option<&Vec<usize>>) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let columns = columns.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.schema.project(&columns)?);
        Ok(Arc::new(WorkingTableExec::new(self.name.clone(), columns, schema)?))
    }
}

impl TableProvider for WorkingTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        _session: &'s dyn Session,
        columns: Option<&'c Vec<usize>>,
        _filters: &'e [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, EngineResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        Box::pin(ready(self.leaf(columns)))
    }
}

/// Stands for a query of WITH that runs by itself.
pub(super) struct PartTable {
    number: usize,
    schema: SchemaRef,
    /// Its rows; None: not planned yet.
    rows: Option<Arc<SharedRows>>,
}

impl fmt::Debug for PartTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartTable({})", self.number)
    }
}

impl PartTable {
    /// What reads its rows.
    fn leaf(&self, columns: Option<&Vec<usize>>) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let Some(rows) = &self.rows else { return internal_err!("a part of WITH without rows") };
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let columns = columns.unwrap_or(&all);
        let schema = Arc::new(self.schema.project(columns)?);
        let places = columns.iter().map(|column| rows.place_of(*column));
        let Some(places) = places.collect::<Option<Vec<_>>>() else {
            return internal_err!("a column of a part of WITH that is not made");
        };
        Ok(Arc::new(WithScanExec::new(Arc::clone(rows), places, schema)))
    }
}

impl TableProvider for PartTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        _session: &'s dyn Session,
        columns: Option<&'c Vec<usize>>,
        _filters: &'e [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, EngineResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        Box::pin(ready(self.leaf(columns)))
    }
}
