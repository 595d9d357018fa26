//! Late materialisation: fetches the remaining columns of rows that joins have kept. Rows with references in, rows with
//! those columns in their places out.
//!
//! ```text
//!   FetchColumnsExec: title [note]      a │ b │ note          notes of the rows that are left, page by page
//!     HashJoinExec                      a │ b │ row
//!       TableScanExec: …                b
//!       TableScanExec: title [a, row]   a │ row               wide columns are not decoded
//! ```
//!
//! For each batch: references are sorted and each taken once; the pages that they name
//! ([`RowPlaces`](crate::row_places)) are read a few at a time, and the rows named are decoded; then the values are
//! copied to the rows that referred to them.
//!
//! Invariants: it runs on the side and in the run of the scan that made the references; they are checked against the
//! run's pages and their rows. A row may be referred to any number of times.
//!
//! Source: hybridNDP §4.4, the pointer cache: late materialisation.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, UInt64Array,
    new_empty_array,
};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use cleave_store::{PageRead, Pick, Projection};
use datafusion_common::cast::as_uint64_array;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, stream};

use super::table_scan_exec::scan_page::{ScanPage, external, read_overflow};
use crate::fragment::FragmentContext;
use crate::row_places::{PlacedPage, page_of, reference_field, slot_of};

/// Pages that are read at once.
const PAGES_AT_ONCE: usize = 16;

/// The columns to fetch, and their places in the output.
#[derive(Debug, Clone)]
pub struct FetchedColumns {
    /// Name of the table, for display.
    pub table: String,
    /// The morsel input of the scan that makes the references.
    pub input: u32,
    /// The columns.
    pub columns: Projection,
    /// The column of the rows with the references.
    pub reference: usize,
    /// The output schema.
    pub schema: SchemaRef,
    /// For each output column, its position among the columns of the rows, followed by the fetched ones.
    pub places: Vec<usize>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct FetchColumnsExec {
    rows: Arc<dyn ExecutionPlan>,
    fetched: Arc<FetchedColumns>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FetchColumnsExec {
    /// Fetches columns for `rows`.
    ///
    /// # Errors
    /// If the columns do not match each other.
    pub fn new(rows: Arc<dyn ExecutionPlan>, fetched: FetchedColumns) -> Result<Self> {
        check(&rows.schema(), &fetched)?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&fetched.schema)),
            rows.output_partitioning().clone(),
            rows.pipeline_behavior(),
            rows.boundedness(),
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { rows, fetched: Arc::new(fetched), properties: Arc::new(properties), metrics })
    }

    /// What it fetches.
    pub fn fetched(&self) -> &FetchedColumns {
        &self.fetched
    }
}

/// Checks that everything `fetched` names exists, with the output's types.
fn check(rows: &Schema, fetched: &FetchedColumns) -> Result<()> {
    let bad = |what: &str| Err(DataFusionError::Plan(format!("columns to be fetched {what}")));
    let reference = rows.fields().get(fetched.reference);
    if reference.is_none_or(|field| field.data_type() != reference_field().data_type()) {
        return bad("without references to their rows");
    }
    if fetched.columns.schema.fields().len() != fetched.columns.columns.len() {
        return bad("that are not all described");
    }
    if fetched.places.len() != fetched.schema.fields().len() {
        return bad("without a place for each");
    }
    let fields: Vec<&DataType> = rows
        .fields()
        .iter()
        .chain(fetched.columns.schema.fields())
        .map(|field| field.data_type())
        .collect();
    let fits = fetched.places.iter().zip(fetched.schema.fields()).all(|(place, field)| {
        fields.get(*place).is_some_and(|data_type| *data_type == field.data_type())
    });
    if fits { Ok(()) } else { bad("of other types than come out") }
}

impl DisplayAs for FetchColumnsExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fetched.columns.schema.fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        write!(f, "FetchColumnsExec: {} [{}]", self.fetched.table, names.join(", "))
    }
}

impl ExecutionPlan for FetchColumnsExec {
    fn name(&self) -> &'static str {
        "FetchColumnsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rows]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [rows] = children.as_slice() else {
            return internal_err!("columns are fetched for one input, not {}", children.len());
        };
        Ok(Arc::new(Self::new(Arc::clone(rows), FetchedColumns::clone(&self.fetched))?))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.rows.execute(partition, Arc::clone(&task))?;
        let fetching = Fetching {
            fetched: Arc::clone(&self.fetched),
            context: FragmentContext::of(&task)?,
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let whole = stream::unfold((rows, fetching), |(mut rows, fetching)| async move {
            let batch = match rows.next().await? {
                Ok(batch) => fetching.fetch(&batch).await,
                Err(error) => Err(error),
            };
            let batch = batch.map(|batch| batch.record_output(&fetching.baseline));
            Some((batch, (rows, fetching)))
        });
        let schema = Arc::clone(&self.fetched.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, whole)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The execution of one partition.
struct Fetching {
    fetched: Arc<FetchedColumns>,
    context: Arc<FragmentContext>,
    baseline: BaselineMetrics,
}

impl Fetching {
    /// `rows` with their fetched columns.
    async fn fetch(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let references = as_uint64_array(rows.column(self.fetched.reference))?;
        if references.null_count() > 0 {
            return internal_err!("a row refers to nothing");
        }
        let mut wanted: Vec<u64> = references.values().to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let places = references.values().iter().map(|reference| {
            wanted.binary_search(reference).map_or(u64::MAX, |place| place as u64)
        });
        let places: UInt64Array = places.collect();
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.fetched.columns.columns.len()];
        let pages: Vec<&[u64]> =
            wanted.chunk_by(|one, next| page_of(*one) == page_of(*next)).collect();
        for pages in pages.chunks(PAGES_AT_ONCE) {
            self.read(pages, &mut parts).await?;
        }
        let _timer = self.baseline.elapsed_compute().timer();
        let mut columns = rows.columns().to_vec();
        for (parts, field) in parts.iter().zip(self.fetched.columns.schema.fields()) {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            let values = match parts.is_empty() {
                true => new_empty_array(field.data_type()),
                false => concat(&parts)?,
            };
            columns.push(take(&values, &places, None)?);
        }
        let columns = self.fetched.places.iter().map(|place| columns.get(*place).cloned());
        let Some(columns) = columns.collect::<Option<Vec<ArrayRef>>>() else {
            return internal_err!("a column that nobody has");
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::clone(&self.fetched.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Reads rows of some pages, with ascending references, and appends their values to `parts`.
    async fn read(&self, pages: &[&[u64]], parts: &mut [Vec<ArrayRef>]) -> Result<()> {
        let columns = &self.fetched.columns;
        let placed = pages.iter().map(|references| {
            let number = references.first().map_or(u32::MAX, |first| page_of(*first));
            self.context.places.page(self.fetched.input, number)
        });
        let placed: Vec<Arc<PlacedPage>> = placed.collect::<Result<_>>()?;
        let reads: Vec<PageRead> = placed
            .iter()
            .map(|page| PageRead {
                segment: page.segment,
                page: page.place.page,
                columns: columns.columns.clone(),
            })
            .collect();
        let answers = self.context.pages.read_scattered(reads.clone()).await.map_err(external)?;
        for (((page, read), answer), references) in placed.iter().zip(reads).zip(answers).zip(pages)
        {
            let mut page = ScanPage::new(Cow::Borrowed(&page.place), read, answer);
            let row_count = page.row_count();
            let mut selection = BooleanBufferBuilder::new(row_count);
            selection.append_n(row_count, false);
            for reference in *references {
                let slot = slot_of(*reference);
                if slot >= row_count {
                    return internal_err!("a row is referred to in slot {slot} of {row_count}");
                }
                selection.set_bit(slot, true);
            }
            page.selection = Some(selection.finish());
            let overflow =
                read_overflow(&self.context, std::slice::from_ref(&page), &columns.columns).await?;
            let _timer = self.baseline.elapsed_compute().timer();
            page.open(columns, &overflow)?;
            let pick = Pick::new(0..row_count, page.selection.as_ref(), columns.columns.len());
            let values = page.decode(&columns.columns, &pick.map_err(external)?)?;
            for (part, values) in parts.iter_mut().zip(values) {
                part.push(values);
            }
        }
        Ok(())
    }
}
