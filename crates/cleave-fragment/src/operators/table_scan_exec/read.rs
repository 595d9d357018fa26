//! The stream of one copy of a scan: morsels in, batches of visible, matching rows out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{and, filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::Schema;
use cleave_store::{
    ColumnRef, Encoding, OverflowValues, PageColumns, PageRead, Projection, Snapshot, decode_batch,
    overflow_pages,
};
use datafusion_common::cast::{as_boolean_array, as_uint64_array};
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion_physical_plan::ColumnarValue;
use datafusion_physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, RecordOutput,
};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::{TableScan, VERSION_COLUMNS};
use crate::fragment::FragmentContext;
use crate::morsel::{Morsel, MorselPage, MorselSource};

/// What one copy of a scan carries through its stream.
pub(super) struct ScanRun {
    scan: Arc<TableScan>,
    conditions: Vec<Condition>,
    dynamic_filters: Vec<Arc<dyn PhysicalExpr>>,
    context: Arc<FragmentContext>,
    batch_size: usize,
    baseline: BaselineMetrics,
    rows_read: Count,
    pages_read: Count,
    /// Whether the last page had matches: the next is then read in one request.
    pages_match: std::sync::atomic::AtomicBool,
}

impl ScanRun {
    pub(super) fn new(
        scan: Arc<TableScan>,
        dynamic_filters: Vec<Arc<dyn PhysicalExpr>>,
        context: Arc<FragmentContext>,
        batch_size: usize,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Self {
        let conditions = scan.predicate.iter().flat_map(split_conjunction).map(Condition::new);
        Self {
            conditions: conditions.collect(),
            scan,
            dynamic_filters,
            context,
            batch_size: batch_size.max(1),
            baseline: BaselineMetrics::new(metrics, partition),
            rows_read: MetricBuilder::new(metrics).counter("rows_read", partition),
            pages_read: MetricBuilder::new(metrics).counter("pages_read", partition),
            pages_match: false.into(),
        }
    }
}

/// One of the conditions that a scan's rows satisfy, all of them.
struct Condition {
    expr: Arc<dyn PhysicalExpr>,
    /// Whether a value may make it fail: it is then asked only of rows that are visible and satisfy those before
    /// it, as people expect of `b <> 0 AND a / b > 1`.
    may_fail: bool,
}

impl Condition {
    fn new(expr: &Arc<dyn PhysicalExpr>) -> Self {
        let may_fail = expr.exists(|expr| {
            let divides = expr.downcast_ref::<BinaryExpr>().is_some_and(|binary| {
                !binary.op().is_logic_operator() && !binary.op().supports_propagation()
            });
            Ok(divides || expr.is::<ScalarFunctionExpr>() || expr.is::<CastExpr>())
        });
        Self { expr: Arc::clone(expr), may_fail: may_fail.unwrap_or(true) }
    }

    /// The rows of `kept` that satisfy it.
    fn narrow(&self, batch: &RecordBatch, kept: BooleanArray) -> Result<BooleanArray> {
        let value = if self.may_fail {
            self.expr.evaluate_selection(batch, &kept)?
        } else {
            self.expr.evaluate(batch)?
        };
        let satisfied = match value {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => return Ok(kept),
            ColumnarValue::Scalar(ScalarValue::Boolean(_)) => {
                BooleanBuffer::new_unset(batch.num_rows())
            }
            value => true_bits(as_boolean_array(&value.into_array(batch.num_rows())?)?),
        };
        Ok(BooleanArray::new(kept.values() & &satisfied, None))
    }
}

/// The batches of all morsels that this copy gets hold of.
pub(super) fn scan_stream(
    run: ScanRun,
    input: Arc<dyn MorselSource>,
    pass: usize,
) -> BoxStream<'static, Result<RecordBatch>> {
    let run = Arc::new(run);
    let fetch = run.scan.fetch;
    // A limited scan reads nothing ahead: it may be done with the first morsel.
    let ahead = if fetch.is_some() { 1 } else { run.context.read_ahead.max(1) };
    let morsels = stream::unfold(input, move |input| async move {
        let morsel = input.next(pass).await?;
        Some((morsel, input))
    });
    let reader = Arc::clone(&run);
    let batches: BoxStream<'static, Result<RecordBatch>> = morsels
        .map(move |morsel| read_morsel(Arc::clone(&reader), morsel))
        .buffered(ahead)
        .map_ok(|batches| stream::iter(batches.into_iter().map(Ok)))
        .try_flatten()
        .boxed();
    let counted = CountedRows { run, batches, row_count: 0 };
    stream::unfold(counted, |mut counted| async move {
        let batch = counted.next().await?;
        Some((batch, counted))
    })
    .boxed()
}

/// The rows of a scan up to its limit.
struct CountedRows {
    run: Arc<ScanRun>,
    batches: BoxStream<'static, Result<RecordBatch>>,
    row_count: usize,
}

impl CountedRows {
    async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let left = self.run.scan.fetch.map_or(usize::MAX, |fetch| fetch - self.row_count);
        if left == 0 {
            return None;
        }
        let batch = match self.batches.next().await? {
            Ok(batch) if batch.num_rows() > left => batch.slice(0, left),
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        self.row_count += batch.num_rows();
        Some(Ok(batch.record_output(&self.run.baseline)))
    }
}

fn read_morsel(run: Arc<ScanRun>, morsel: Morsel) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    Box::pin(async move { run.read_morsel(&morsel).await })
}

/// A page on its way through the scan.
struct OpenPage<'a> {
    place: &'a MorselPage,
    read: PageRead,
    columns: PageColumns,
    /// Rows that are visible and match; `None`: all.
    selection: Option<BooleanBuffer>,
}

impl ScanRun {
    async fn read_morsel(&self, morsel: &Morsel) -> Result<Vec<RecordBatch>> {
        use std::sync::atomic::Ordering::Relaxed;
        if morsel.segment.table_id != self.scan.table_id {
            return Err(DataFusionError::Internal(format!(
                "morsel {} belongs to table {}, the scan to table {}",
                morsel.number, morsel.segment.table_id, self.scan.table_id
            )));
        }
        let row_count = morsel.row_count();
        self.context.counters.add_morsel(morsel.pages.len() as u64, row_count);
        self.rows_read.add(usize::try_from(row_count).unwrap_or(usize::MAX));
        self.pages_read.add(morsel.pages.len());

        let missing = self.columns_beyond_filter();
        let at_once =
            missing.is_empty() || self.scan.predicate.is_none() || self.pages_match.load(Relaxed);
        let mut first: Vec<ColumnRef> = self.scan.filter.columns.clone();
        if at_once {
            first.extend(&missing);
        }
        let mut pages = self.read_pages(morsel, &first).await?;
        let filter_values = self.read_overflow(morsel, &pages, &self.scan.filter.columns).await?;
        {
            let _timer = self.baseline.elapsed_compute().timer();
            for page in &mut pages {
                self.select(page, &filter_values)?;
            }
        }
        pages.retain(|page| page.selection.as_ref().is_none_or(|rows| rows.count_set_bits() > 0));
        if self.scan.predicate.is_some() {
            self.pages_match.store(!pages.is_empty(), Relaxed);
        }
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        if !at_once {
            self.read_rest(&mut pages, &missing).await?;
        }
        let output_values = self.read_overflow(morsel, &pages, &self.scan.output.columns).await?;
        let _timer = self.baseline.elapsed_compute().timer();
        let mut batches = Vec::new();
        for page in &pages {
            self.materialise(page, &output_values, &mut batches)?;
        }
        Ok(batches)
    }

    /// Output columns that the predicate does not read anyway.
    fn columns_beyond_filter(&self) -> Vec<ColumnRef> {
        let filter = &self.scan.filter.columns;
        self.scan.output.columns.iter().filter(|column| !filter.contains(column)).copied().collect()
    }

    async fn read_pages<'a>(
        &self,
        morsel: &'a Morsel,
        columns: &[ColumnRef],
    ) -> Result<Vec<OpenPage<'a>>> {
        let columns: Vec<ColumnRef> = VERSION_COLUMNS.iter().chain(columns).copied().collect();
        let reads: Vec<PageRead> = morsel
            .pages
            .iter()
            .map(|place| PageRead {
                segment: morsel.segment,
                page: place.page,
                columns: columns.clone(),
            })
            .collect();
        let answers = self.context.pages.read(reads.clone()).await.map_err(external)?;
        Ok(morsel
            .pages
            .iter()
            .zip(reads)
            .zip(answers)
            .map(|((place, read), columns)| OpenPage { place, read, columns, selection: None })
            .collect())
    }

    /// Adds the chunks of `missing` to pages that have rows left.
    async fn read_rest(&self, pages: &mut [OpenPage<'_>], missing: &[ColumnRef]) -> Result<()> {
        let reads: Vec<PageRead> = pages
            .iter()
            .map(|page| PageRead { columns: missing.to_vec(), ..page.read.clone() })
            .collect();
        let answers = self.context.pages.read(reads).await.map_err(external)?;
        for (page, answer) in pages.iter_mut().zip(answers) {
            page.read.columns.extend(missing);
            page.columns.chunks.extend(answer.chunks);
        }
        Ok(())
    }

    /// The long values of `columns` on `pages`, which lie on pages of their own.
    async fn read_overflow(
        &self,
        morsel: &Morsel,
        pages: &[OpenPage<'_>],
        columns: &[ColumnRef],
    ) -> Result<OverflowValues> {
        let mut wanted = Vec::new();
        for page in pages {
            let rows = page.selection.as_ref();
            for number in
                overflow_pages(&page.columns, &page.read, columns, rows).map_err(external)?
            {
                let place = page.place.overflow.iter().find(|overflow| overflow.page == number);
                let place = place.ok_or_else(|| {
                    DataFusionError::Internal(format!(
                        "page {} of {} points to overflow page {number}, which the morsel does not have",
                        page.place.page.page, morsel.segment.segment
                    ))
                })?;
                if !wanted.contains(place) {
                    wanted.push(*place);
                }
            }
        }
        if wanted.is_empty() {
            return Ok(OverflowValues::default());
        }
        let payloads = self
            .context
            .pages
            .read_overflow(morsel.segment, wanted.clone())
            .await
            .map_err(external)?;
        let mut values = OverflowValues::default();
        for (place, payload) in wanted.iter().zip(payloads) {
            values.insert(place.page, payload);
        }
        Ok(values)
    }

    /// Decides which rows of `page` are visible and satisfy the predicate.
    fn select(&self, page: &mut OpenPage<'_>, overflow: &OverflowValues) -> Result<()> {
        let visible = visible_rows(page, self.context.snapshot)?;
        if self.conditions.is_empty() {
            page.selection = visible;
            return Ok(());
        }
        let batch = decode(page, &self.scan.filter, None, overflow)?;
        let mut bits = arrow::array::BooleanBufferBuilder::new(batch.num_rows());
        for start in (0..batch.num_rows()).step_by(self.batch_size) {
            let slice = batch.slice(start, self.batch_size.min(batch.num_rows() - start));
            let mut kept = match &visible {
                Some(visible) => BooleanArray::new(visible.slice(start, slice.num_rows()), None),
                None => BooleanArray::new(BooleanBuffer::new_set(slice.num_rows()), None),
            };
            for condition in &self.conditions {
                kept = condition.narrow(&slice, kept)?;
            }
            bits.append_buffer(kept.values());
        }
        page.selection = Some(bits.finish());
        Ok(())
    }

    /// Decodes the output of one page, in slices of at most the batch size.
    fn materialise(
        &self,
        page: &OpenPage<'_>,
        overflow: &OverflowValues,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        let all = page.selection.as_ref().is_none_or(|rows| rows.count_set_bits() == rows.len());
        let selection = if all { None } else { page.selection.as_ref() };
        let batch = decode(page, &self.scan.output, selection, overflow)?;
        for start in (0..batch.num_rows()).step_by(self.batch_size) {
            let slice = batch.slice(start, self.batch_size.min(batch.num_rows() - start));
            let slice = self.apply_dynamic_filters(slice)?;
            if slice.num_rows() > 0 {
                batches.push(slice);
            }
        }
        Ok(())
    }

    /// Drops rows that a join or TopK above has ruled out by now. Losing a filter changes nothing.
    fn apply_dynamic_filters(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let mut keep: Option<BooleanArray> = None;
        for filter in &self.dynamic_filters {
            match filter.evaluate(&batch)? {
                ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => {}
                value => {
                    let array = value.into_array(batch.num_rows())?;
                    let array = as_boolean_array(&array)?;
                    keep = Some(match keep {
                        Some(keep) => and(&keep, array)?,
                        None => array.clone(),
                    });
                }
            }
        }
        Ok(match keep {
            Some(keep) if keep.true_count() < batch.num_rows() => {
                filter_record_batch(&batch, &keep)?
            }
            _ => batch,
        })
    }
}

/// The rows of `page` that `snapshot` sees; `None`: all of them.
///
/// Nothing supersedes a row yet, so that commit number and tombstone decide alone.
fn visible_rows(page: &OpenPage<'_>, snapshot: Snapshot) -> Result<Option<BooleanBuffer>> {
    let row_count = page.columns.header.row_count as usize;
    let entry = |column| page.columns.header.entry(column);
    let mut visible = match entry(ColumnRef::Commit) {
        Some(entry) if entry.encoding != Encoding::FromSegment => {
            let commits = version_column(page, ColumnRef::Commit)?;
            let commits = as_uint64_array(&commits)?;
            let seen =
                BooleanBuffer::collect_bool(row_count, |row| snapshot.sees(commits.value(row)));
            (seen.count_set_bits() < row_count).then_some(seen)
        }
        _ if snapshot.sees(page.read.segment.commit) => None,
        _ => Some(BooleanBuffer::new_unset(row_count)),
    };
    if entry(ColumnRef::Tombstone)
        .is_some_and(|entry| entry.encoding != Encoding::Constant || entry.base != 0)
    {
        let gone = version_column(page, ColumnRef::Tombstone)?;
        let there = !&true_bits(as_boolean_array(&gone)?);
        visible = Some(match visible {
            Some(visible) => &visible & &there,
            None => there,
        });
    }
    Ok(visible)
}

fn version_column(page: &OpenPage<'_>, column: ColumnRef) -> Result<ArrayRef> {
    let projection = Projection { schema: Arc::new(Schema::empty()), columns: Vec::new() };
    let batch = decode(page, &projection.with_version(column), None, &OverflowValues::default())?;
    Ok(Arc::clone(batch.column(0)))
}

fn decode(
    page: &OpenPage<'_>,
    projection: &Projection,
    selection: Option<&BooleanBuffer>,
    overflow: &OverflowValues,
) -> Result<RecordBatch> {
    decode_batch(&page.columns, &page.read, projection, selection, overflow).map_err(external)
}

/// The rows for which `array` is true: NULL is not.
fn true_bits(array: &BooleanArray) -> BooleanBuffer {
    if array.null_count() == 0 {
        array.values().clone()
    } else {
        prep_null_mask_filter(array).values().clone()
    }
}

fn external(error: cleave_store::StoreError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
