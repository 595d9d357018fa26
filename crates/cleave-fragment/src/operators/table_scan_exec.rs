//! The scan of a table: names columns, predicate and morsel input, and holds no page (rule 1).
//!
//! If there is an index filter ([`crate::index_filter`]), pages and rows that the index has not found are left out
//! first. For each morsel it takes, in order:
//!
//! 1. read the chunks that the predicate needs, and the version columns;
//! 2. keep the visible rows that satisfy the predicate, condition by condition: each decodes its own columns of the
//!    remaining rows, or works on the encoded form;
//! 3. if any row is left, read the remaining columns and decode the selected rows of them.
//!
//! Steps 1 and 3 become one read where most pages turn out to have matches: a second request costs a round trip, an
//! unneeded chunk costs bytes, and the scan counts which costs more.
//!
//! The predicate refers to `filter_columns` by position, not to the output: a column that only the predicate needs is
//! never materialised above the scan.

use crate::walk::Walk;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use cleave_store::{ColumnRef, Projection, Snapshot};
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{DataFusionError, Result, Statistics, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr, conjunction};
use datafusion_physical_plan::coop::make_cooperative;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion_physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::statistics::StatisticsArgs;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};

use crate::fragment::FragmentContext;
use crate::morsel::Passes;
use crate::operators::dense_aggregate_exec::SharedGroups;
use crate::row_places::reference_field;

mod condition;
mod conditions;
mod filters_above;
mod history;
mod read;
pub(crate) mod scan_page;
mod shared_scan;

use filters_above::FiltersAbove;

/// The description of a scan: everything about it that crosses a link.
#[derive(Debug, Clone)]
pub struct TableScan {
    /// Table name, for display.
    pub table: String,
    /// The table's identity; every page must carry it.
    pub table_id: u32,
    /// The output columns, in order, and their stable ids.
    pub output: Projection,
    /// The columns that `predicate` uses, in order.
    pub filter: Projection,
    /// Rows for which this is not true are left out.
    pub predicate: Option<Arc<dyn PhysicalExpr>>,
    /// The morsel input that the scan reads.
    pub input: u32,
    /// The limit of rows in each partition.
    pub fetch: Option<usize>,
    /// What follows the output's columns.
    pub references: References,
}

/// The last column of a scan, a number; see [`crate::row_places`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    /// There is none.
    None,
    /// References to the rows.
    Rows,
    /// Of each page only one of the rows is emitted, with a [reference to the page](crate::row_places::referred_page).
    Pages,
}

impl References {
    /// The kind that has the number `number` in a fragment.
    pub(crate) fn of_number(number: u32) -> Result<Self> {
        let all = [Self::None, Self::Rows, Self::Pages];
        all.into_iter().find(|one| *one as u32 == number).ok_or_else(|| {
            DataFusionError::Plan(format!("a scan refers to what has the unknown number {number}"))
        })
    }
}

impl TableScan {
    /// The output schema.
    pub fn schema(&self) -> SchemaRef {
        if self.references == References::None {
            return Arc::clone(&self.output.schema);
        }
        let fields = self.output.schema.fields().iter().cloned();
        let fields = fields.chain([Arc::new(reference_field())]);
        Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()))
    }
}

/// Scans the morsels of one input; see the [module](self).
#[derive(Debug, Clone)]
pub struct TableScanExec {
    scan: Arc<TableScan>,
    /// Filters that a join or a TopK above tightens while the query runs; over the output's columns.
    filters_above: Arc<FiltersAbove>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    passes: Arc<Passes>,
    /// The groups that are offered the pages of a partition before they are decoded.
    takers: Arc<Mutex<BTreeMap<usize, SharedGroups>>>,
}

impl TableScanExec {
    /// A scan with `partitions` partitions that share its morsel input.
    pub fn new(scan: TableScan, partitions: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(scan.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let statistics = Statistics::new_unknown(&scan.schema());
        Self {
            scan: Arc::new(scan),
            filters_above: Arc::default(),
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            passes: Arc::default(),
            takers: Arc::default(),
        }
    }

    /// Offers each page of the next execution of `partition` to `groups` before its rows are decoded.
    pub(crate) fn give_pages_to(&self, partition: usize, groups: SharedGroups) {
        self.takers().insert(partition, groups);
    }

    fn takers(&self) -> MutexGuard<'_, BTreeMap<usize, SharedGroups>> {
        self.takers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The description of the scan.
    pub fn scan(&self) -> &TableScan {
        &self.scan
    }

    /// Filters from above that may still tighten; over the output's columns.
    pub fn dynamic_filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        self.filters_above.filters()
    }

    /// The same scan with `filters` from above that may still tighten, over the output's columns.
    pub fn with_dynamic_filters(mut self, filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        self.filters_above = Arc::new(FiltersAbove::new(filters));
        self
    }

    /// The same scan with the planner's statistics of its output.
    pub fn with_statistics(mut self, statistics: Statistics) -> Self {
        self.statistics = Arc::new(statistics);
        self
    }

    /// The same scan with `partitions` partitions, metrics of its own and no dynamic filters.
    pub fn with_partitions(&self, partitions: usize) -> Self {
        let mut scan = Self::new(TableScan::clone(&self.scan), partitions);
        scan.statistics = Arc::clone(&self.statistics);
        scan
    }

    /// The same scan, reduced to these output columns, followed by references to the rows; with no dynamic filters.
    pub fn referring(&self, kept: &[usize]) -> Self {
        let output = &self.scan.output;
        let column = |place: &usize| {
            let field = output.schema.fields().get(*place)?;
            Some((Arc::clone(field), *output.columns.get(*place)?))
        };
        let (fields, columns): (Vec<_>, Vec<_>) = kept.iter().filter_map(column).unzip();
        let output = output.others(Arc::new(Schema::new(fields)), columns);
        let scan =
            TableScan { output, references: References::Rows, ..TableScan::clone(&self.scan) };
        let mut statistics = Statistics::new_unknown(&scan.schema());
        statistics.num_rows = self.statistics.num_rows;
        let partitions = self.properties.output_partitioning().partition_count();
        Self::new(scan, partitions).with_statistics(statistics)
    }

    /// The same scan with `filters`, over its output's columns, added to its predicate.
    pub fn tightened(&self, filters: &[Arc<dyn PhysicalExpr>]) -> Result<Self> {
        let mut scan = TableScan::clone(&self.scan);
        let mut fields: Vec<FieldRef> = scan.filter.schema.fields().iter().cloned().collect();
        let mut predicates: Vec<Arc<dyn PhysicalExpr>> =
            scan.predicate.take().into_iter().collect();
        for filter in filters {
            let moved = Arc::clone(filter).transform_up(|expr| {
                let Some(column) = expr.downcast_ref::<Column>() else {
                    return Ok(Transformed::no(expr));
                };
                let output = &self.scan.output;
                let Some(reference) = output.columns.get(column.index()) else {
                    return internal_err!("{column} is not among the columns of the scan");
                };
                let known = scan.filter.columns.iter().position(|known| known == reference);
                let index = known.unwrap_or_else(|| {
                    scan.filter.columns.push(*reference);
                    fields.push(Arc::new(output.schema.field(column.index()).clone()));
                    fields.len() - 1
                });
                let moved: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), index));
                Ok(Transformed::yes(moved))
            })?;
            predicates.push(moved.data);
        }
        scan.filter.schema = Arc::new(Schema::new(fields));
        scan.predicate = (!predicates.is_empty()).then(|| conjunction(predicates));
        let mut changed =
            self.with_partitions(self.properties.output_partitioning().partition_count());
        changed.scan = Arc::new(scan);
        Ok(changed)
    }
}

impl DisplayAs for TableScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scan = &self.scan;
        let names = |schema: &SchemaRef| {
            schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
        };
        match kind {
            DisplayFormatType::TreeRender => write!(f, "{}", scan.table)?,
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "TableScanExec: {} [{}]", scan.table, names(&scan.schema()))?;
            }
        }
        if let Some(predicate) = &scan.predicate {
            write!(f, ", predicate={predicate}")?;
        }
        for filter in self.dynamic_filters() {
            write!(f, ", dynamic={filter}")?;
        }
        if let Some(fetch) = scan.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        if scan.references == References::Pages {
            write!(f, ", one row a page")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for TableScanExec {
    fn name(&self) -> &'static str {
        "TableScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut recursion = TreeNodeRecursion::Continue;
        for expression in self.scan.predicate.iter().chain(self.dynamic_filters()) {
            recursion = visit(expression)?;
            if recursion == TreeNodeRecursion::Stop {
                break;
            }
        }
        Ok(recursion)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fresh = Self::clone(&self);
        fresh.passes = Arc::new(self.passes.after());
        Ok(Arc::new(fresh))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let context = FragmentContext::of(&task)?;
        let input = context.input(self.scan.input)?;
        let pass = self.passes.begin(partition);
        let stream = read::scan_stream(
            read::ScanRun::new(
                Arc::clone(&self.scan),
                Arc::clone(&self.filters_above),
                context,
                &task,
                &self.metrics,
                (partition, pass),
                self.takers().remove(&partition),
            )?,
            input,
            pass,
        );
        let schema = self.scan.schema();
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => Ok(Arc::clone(&self.statistics)),
            // Which partition takes which morsel is decided while the query runs.
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.scan.schema()))),
        }
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut changed = self.clone();
        changed.scan = Arc::new(TableScan { fetch, ..TableScan::clone(&self.scan) });
        changed.metrics = ExecutionPlanMetricsSet::new();
        Some(Arc::new(changed))
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.fetch
    }
}

/// The version columns that decide visibility, read with every page: commit numbers, unless a catalog version named it.
fn version_columns(snapshot: Snapshot) -> &'static [ColumnRef] {
    if snapshot == Snapshot::OF_STATE { &[] } else { &[ColumnRef::Commit] }
}

#[cfg(test)]
mod tests;
