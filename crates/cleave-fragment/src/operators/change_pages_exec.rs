//! The root of an update fragment: rows to be changed in, page versions and their changed slots out.
//!
//! ```text
//!   ChangePagesExec: input=0, columns=[4]          page, slots that changed │ …      one row a page
//!     ProjectionExec: vid, 2 * price               vid │ price'
//!       TableScanExec: item [vid, price]
//! ```
//!
//! For each page of the input with rows to be changed:
//!
//! 1. the rows that come with it are collected: VIDs name their slots, and of a VID that comes twice the first row
//!    counts (rule 22);
//! 2. the old values of the changed columns are read, unless every row changes, and so are the columns that a page
//!    version copies;
//! 3. the [page version](cleave_store::page_version) is encoded and handed to the context's [`PageSink`], which writes
//!    it while the next page is read.
//!
//! Without columns no page is written: the fragment of a DELETE reports the slots only.
//!
//! For RETURNING the rows that change come out beside the report, each once: their VIDs, and the last columns of the
//! input. A batch of the result has either pages or such rows, and NULL in the columns of the other.
//!
//! Invariants: the rows of a page come one after the other, in one partition, so the input whose rows change must be
//! the one that streams; a page that comes again fails the fragment. Memory is that of one page and its rows, out of
//! the fragment's budget. Rows that a NOT NULL column refuses fail the fragment with
//! [`RefusedValue`](super::new_values::RefusedValue), those that break a check with
//! [`RefusedRow`](super::new_values::RefusedRow); the host, which makes the same rows, then names column and value.
//! Source: Update NDP, section 4 (delta maps), and `docs/design/versions-and-commit.md`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, BooleanBufferBuilder,
    RecordBatch, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter_record_batch, interleave, is_null};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use cleave_store::{
    ChangedColumn, ColumnRef, OverflowValues, PageEntry, PageRead, Projection, SegmentRef,
    copied_columns, decode_batch, page_version, proto,
};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, stream};
use prost::Message;

use super::new_values::{check_rows, check_values, refused, user_id};
use super::table_scan_exec::scan_page::external;
use crate::fragment::FragmentContext;
use crate::morsel::{Morsel, MorselPage};
use crate::page_sink::PageSink;

/// Memory of a page in the making besides the rows that wait for it.
const PAGE_BYTES: usize = 1 << 20;
/// Waiting rows, the columns that are made of them, and the page.
const COPIES: usize = 3;
/// Pages reported in one batch.
const BATCH_PAGE_COUNT: usize = 64;

/// The columns that a fragment changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedColumns {
    /// The morsel input of the scan whose rows change, which streams through the fragment.
    pub input: u32,
    /// The columns, nullable or not as the table has them; none: the rows die.
    pub columns: Projection,
    /// The number of columns, the last ones of the input, that come out for each row; None: no rows come out.
    pub returned: Option<u32>,
}

/// A page with changed rows.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedPage {
    /// The page version, with the zones of its changed columns; for a DELETE, the page as it is. Of the other fields
    /// only the first VID is set.
    pub entry: PageEntry,
    /// The changed rows, by slot.
    pub slots: BooleanBuffer,
}

/// See the [module](self).
#[derive(Debug)]
pub struct ChangePagesExec {
    rows: Arc<dyn ExecutionPlan>,
    changed: ChangedColumns,
    /// By first VID; made by the partition that comes first, and shared by all.
    pages: Arc<OnceLock<Targets>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// One row a page: the page and its changed slots, encoded.
pub fn changed_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("page", DataType::Binary, false)]))
}

/// The same beside `returned` columns of rows, and their VIDs.
fn returning_schema(returned: &[FieldRef]) -> SchemaRef {
    let page = Field::new("page", DataType::Binary, true);
    let vid = Field::new("vid", DataType::UInt64, true);
    let returned = returned.iter().map(|field| field.as_ref().clone().with_nullable(true));
    let fields: Vec<Field> = [page, vid].into_iter().chain(returned).collect();
    Arc::new(Schema::new(fields))
}

/// The wire form of a [`ChangedPage`].
#[derive(Clone, PartialEq, Message)]
struct ChangedPageNode {
    #[prost(message, optional, tag = "1")]
    entry: Option<proto::PageEntry>,
    /// Runs of changed slots: the distance from the end of the last one, and the length.
    #[prost(uint32, repeated, tag = "2")]
    steps: Vec<u32>,
}

/// Decodes the pages that a fragment reports to have changed.
///
/// # Errors
/// [`ArrowError::SchemaError`] or [`ArrowError::ParseError`] for rows that no [`ChangePagesExec`] made.
pub fn read_changed(batches: &[RecordBatch]) -> Result<Vec<ChangedPage>, ArrowError> {
    let malformed =
        |reason: String| ArrowError::ParseError(format!("a page that was changed: {reason}"));
    let mut pages = Vec::new();
    for batch in batches {
        for node in reports(batch)?.iter().flatten() {
            let node = ChangedPageNode::decode(node).map_err(|e| malformed(e.to_string()))?;
            let entry = node.entry.ok_or_else(|| malformed("it has no entry".to_owned()))?;
            let entry = PageEntry::try_from(entry).map_err(|e| malformed(e.to_string()))?;
            let slots = slots_of(&node.steps, entry.page.row_count)
                .ok_or_else(|| malformed("its slots are not on the page".to_owned()))?;
            pages.push(ChangedPage { entry, slots });
        }
    }
    Ok(pages)
}

/// The rows that a fragment returns beside its report: VIDs, then the returned columns.
///
/// # Errors
/// [`ArrowError::SchemaError`] for rows that no [`ChangePagesExec`] made.
pub fn read_returned(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        let is_row = is_null(reports(batch)?)?;
        if is_row.true_count() == 0 {
            continue;
        }
        let columns: Vec<usize> = (1..batch.num_columns()).collect();
        let returned = filter_record_batch(&batch.project(&columns)?, &is_row)?;
        let vids = returned.columns().first().and_then(|c| c.as_primitive_opt::<UInt64Type>());
        if vids.is_none_or(|vids| vids.null_count() > 0) {
            return Err(ArrowError::SchemaError("a returned row has no VID".to_owned()));
        }
        rows.push(returned);
    }
    Ok(rows)
}

/// The pages of a report: NULL beside a row.
fn reports(batch: &RecordBatch) -> Result<&BinaryArray, ArrowError> {
    let nodes = batch.columns().first().and_then(|column| column.as_binary_opt::<i32>());
    nodes.filter(|nodes| nodes.null_count() == 0 || batch.num_columns() > 1).ok_or_else(|| {
        let message = format!("changed pages have other columns: {}", batch.schema());
        ArrowError::SchemaError(message)
    })
}

/// Runs of set bits as steps.
fn steps_of(slots: &BooleanBuffer) -> Vec<u32> {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut end = 0;
    let runs = slots.set_slices().flat_map(|(from, to)| {
        let step = [number(from - end), number(to - from)];
        end = to;
        step
    });
    runs.collect()
}

/// The bits of [`steps_of`] on a page of `row_count` rows; None for steps that lead beyond it.
fn slots_of(steps: &[u32], row_count: u32) -> Option<BooleanBuffer> {
    let row_count = usize::try_from(row_count).ok()?;
    let (pairs, rest) = steps.as_chunks::<2>();
    let mut bits = BooleanBufferBuilder::new(row_count);
    for [step, length] in pairs {
        let from = bits.len().checked_add(usize::try_from(*step).ok()?)?;
        let to = from.checked_add(usize::try_from(*length).ok()?)?;
        if to > row_count {
            return None;
        }
        bits.append_n(from - bits.len(), false);
        bits.append_n(to - from, true);
    }
    bits.append_n(row_count - bits.len(), false);
    rest.is_empty().then(|| bits.finish())
}

impl ChangePagesExec {
    /// Changes the pages of `rows`: their first column has VIDs, those of the changed columns the new values, and what
    /// follows says of each check whether the new row keeps it. NULL is no violation. The last columns are returned.
    ///
    /// # Errors
    /// For an input with other columns.
    pub fn new(rows: Arc<dyn ExecutionPlan>, changed: ChangedColumns) -> Result<Self> {
        let schema = rows.schema();
        let types = || schema.fields().iter().map(|field| field.data_type());
        let wanted = changed.columns.schema.fields().iter().map(|field| field.data_type());
        let count = changed.columns.columns.len();
        let returned = changed.returned.unwrap_or_default();
        let returned = usize::try_from(returned).unwrap_or(usize::MAX);
        let Some(own) = schema.fields().len().checked_sub(returned) else {
            return plan_err!("{returned} columns are returned of {schema}");
        };
        let fits = own > count
            && types().next() == Some(&DataType::UInt64)
            && types().skip(1).take(count).eq(wanted)
            && types().take(own).skip(1 + count).all(|of_check| *of_check == DataType::Boolean);
        let is_whole = changed.columns.schema.fields().len() == count
            && changed.columns.columns.iter().all(|c| matches!(c, ColumnRef::User(_)));
        if !fits || !is_whole {
            return plan_err!("pages are changed by VIDs and new values, and not by {schema}");
        }
        let given = match changed.returned {
            Some(_) => returning_schema(schema.fields().get(own..).unwrap_or_default()),
            None => changed_schema(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(given),
            rows.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        let (properties, pages) = (Arc::new(properties), Arc::default());
        Ok(Self { rows, changed, pages, properties, metrics })
    }

    /// Whether it writes pages: otherwise the rows die.
    pub fn writes_pages(&self) -> bool {
        !self.changed.columns.columns.is_empty()
    }

    /// The changed columns.
    pub fn changed(&self) -> &ChangedColumns {
        &self.changed
    }
}

/// The pages whose rows may change.
#[derive(Debug)]
struct Targets {
    /// Ascending by first VID.
    pages: Vec<(SegmentRef, MorselPage)>,
    /// Those that have been changed.
    done: Mutex<BTreeSet<usize>>,
}

impl Targets {
    fn of(morsels: &[Morsel]) -> Self {
        let pages = morsels
            .iter()
            .flat_map(|morsel| morsel.pages.iter().map(|page| (morsel.segment, page.clone())));
        let mut pages: Vec<_> = pages.collect();
        pages.sort_unstable_by_key(|(_, page)| page.vid_first);
        Self { pages, done: Mutex::default() }
    }

    /// The page with `vid`, and its slot there.
    fn find(&self, vid: u64) -> Option<(usize, u32)> {
        let behind = self.pages.partition_point(|(_, page)| page.vid_first <= vid);
        // A page that was pruned may have the rows of others between its own.
        (0..behind).rev().find_map(|place| Some((place, self.slot(place, vid)?)))
    }

    fn slot(&self, place: usize, vid: u64) -> Option<u32> {
        let (_, page) = self.pages.get(place)?;
        let slot = page.gaps.slot_at(vid.checked_sub(page.vid_first)?)?;
        u32::try_from(slot).ok().filter(|slot| *slot < page.page.row_count)
    }

    /// Takes the page; false if it was taken before.
    fn take(&self, place: usize) -> bool {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).insert(place)
    }
}

/// The rows of one page so far.
struct Collected {
    /// The place of the page.
    place: usize,
    is_changed: BooleanBufferBuilder,
    /// For each slot, the piece and the row in it; of a slot that does not change, no piece.
    picks: Vec<(u32, u32)>,
    pieces: Vec<RecordBatch>,
    count: usize,
}

/// A slot that keeps its value.
const OLD: u32 = u32::MAX;

/// One partition.
struct Changing {
    rows: Option<SendableRecordBatchStream>,
    changed: ChangedColumns,
    targets: Arc<OnceLock<Targets>>,
    context: Arc<FragmentContext>,
    /// None: no page is written.
    sink: Option<Arc<dyn PageSink>>,
    collected: Option<Collected>,
    report: BinaryBuilder,
    report_count: usize,
    schema: SchemaRef,
    /// Rows that come out before the next pages.
    returned: Option<RecordBatch>,
    baseline: BaselineMetrics,
    memory: MemoryReservation,
    waiting_bytes: usize,
}

impl Changing {
    /// The next pages; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(rows) = &mut self.rows {
            let Some(batch) = rows.next().await else {
                self.rows = None;
                if let Some(collected) = self.collected.take() {
                    self.change(collected).await?;
                }
                if let Some(sink) = &self.sink {
                    sink.finish().await?;
                }
                break;
            };
            self.collect(&batch?).await?;
            if let Some(returned) = self.returned.take() {
                return Ok(Some(returned.record_output(&self.baseline)));
            }
            if self.report_count >= BATCH_PAGE_COUNT {
                break;
            }
        }
        if self.report_count == 0 {
            return Ok(None);
        }
        self.report_count = 0;
        let report: ArrayRef = Arc::new(self.report.finish());
        let count = report.len();
        let beside = self.schema.fields().iter().skip(1);
        let beside = beside.map(|field| new_null_array(field.data_type(), count));
        let columns = std::iter::once(report).chain(beside).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(Some(batch.record_output(&self.baseline)))
    }

    fn targets(&self) -> Result<&Targets> {
        self.targets
            .get()
            .ok_or_else(|| DataFusionError::Internal("pages that are not known".into()))
    }

    /// Adds the rows of `batch` to those of their pages, and changes the pages that are complete.
    async fn collect(&mut self, batch: &RecordBatch) -> Result<()> {
        let vids = batch.columns().first().and_then(|c| c.as_primitive_opt::<UInt64Type>());
        let Some(vids) = vids.filter(|vids| vids.null_count() == 0) else {
            return Err(DataFusionError::Internal("a row to be changed without a VID".into()));
        };
        let count = self.changed.columns.columns.len();
        // Beside pages and VIDs.
        let returned = self.schema.fields().len().saturating_sub(2);
        let own = batch.num_columns().saturating_sub(returned);
        check_rows(batch, 1 + count..own)?;
        let columns: Vec<usize> = (1..=count).collect();
        let values = batch.project(&columns)?;
        let columns = &self.changed.columns;
        check_values(&values, (&columns.columns, columns.schema.fields()))?;
        let is_written = !self.changed.columns.columns.is_empty();
        if is_written {
            self.waiting_bytes = self.waiting_bytes.saturating_add(batch.get_array_memory_size());
            self.memory.try_resize(PAGE_BYTES + self.waiting_bytes.saturating_mul(COPIES))?;
        }
        let mut piece = None;
        let mut is_counted = BooleanBufferBuilder::new(batch.num_rows());
        for (row, vid) in (0_u32..).zip(vids.values()) {
            let place = self.collected.as_ref().map(|collected| collected.place);
            let targets = self.targets()?;
            let here = place.and_then(|place| Some((place, targets.slot(place, *vid)?)));
            let (place, slot) = match here.or_else(|| targets.find(*vid)) {
                Some(found) => found,
                None => {
                    let message = format!("the row {vid} is on none of the input's pages");
                    return Err(DataFusionError::Internal(message));
                }
            };
            if self.collected.as_ref().is_some_and(|collected| collected.place != place)
                && let Some(collected) = self.collected.take()
            {
                self.change(collected).await?;
                piece = None;
                // The rows left are those of this batch.
                self.waiting_bytes = batch.get_array_memory_size();
            }
            let collected = match &mut self.collected {
                Some(collected) => collected,
                None => {
                    let begun = self.begin(place)?;
                    self.collected.insert(begun)
                }
            };
            let at = usize::try_from(slot).unwrap_or(usize::MAX);
            let is_first = !collected.is_changed.get_bit(at);
            is_counted.append(is_first);
            if !is_first {
                continue;
            }
            collected.is_changed.set_bit(at, true);
            collected.count += 1;
            if is_written {
                let piece = *piece.get_or_insert_with(|| {
                    collected.pieces.push(values.clone());
                    u32::try_from(collected.pieces.len() - 1).unwrap_or(OLD)
                });
                if let Some(pick) = collected.picks.get_mut(at) {
                    *pick = (piece, row);
                }
            }
        }
        if self.changed.returned.is_some() {
            let counted = BooleanArray::new(is_counted.finish(), None);
            self.returned = self.rows_of(batch, own, &counted)?;
        }
        Ok(())
    }

    /// The rows of `batch` that come out: those that count, with the columns from `first` on.
    fn rows_of(
        &self,
        batch: &RecordBatch,
        first: usize,
        counted: &BooleanArray,
    ) -> Result<Option<RecordBatch>> {
        let columns: Vec<usize> = std::iter::once(0).chain(first..batch.num_columns()).collect();
        let rows = filter_record_batch(&batch.project(&columns)?, counted)?;
        if rows.num_rows() == 0 {
            return Ok(None);
        }
        let no_pages = new_null_array(&DataType::Binary, rows.num_rows());
        let columns = std::iter::once(no_pages).chain(rows.columns().iter().cloned()).collect();
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }

    fn begin(&self, place: usize) -> Result<Collected> {
        let targets = self.targets()?;
        let row_count = targets.pages.get(place).map_or(0, |(_, page)| page.page.row_count);
        let row_count = usize::try_from(row_count).unwrap_or(usize::MAX);
        if !targets.take(place) {
            let message = "the rows of one page came in several parts";
            return Err(DataFusionError::Execution(message.into()));
        }
        let mut is_changed = BooleanBufferBuilder::new(row_count);
        is_changed.append_n(row_count, false);
        let is_written = !self.changed.columns.columns.is_empty();
        let picks = if is_written { vec![(OLD, 0); row_count] } else { Vec::new() };
        Ok(Collected { place, is_changed, picks, pieces: Vec::new(), count: 0 })
    }

    /// Writes the version of a page, and reports it.
    async fn change(&mut self, mut collected: Collected) -> Result<()> {
        let slots = collected.is_changed.finish();
        let targets = self.targets()?;
        let Some((segment, target)) = targets.pages.get(collected.place).cloned() else {
            return Err(DataFusionError::Internal("a page that is not known".into()));
        };
        let mut entry = PageEntry {
            page: target.page,
            vid_first: target.vid_first,
            gaps: Default::default(),
            overflow: Vec::new(),
            shared: Vec::new(),
            zones: Vec::new(),
        };
        if let Some(sink) = self.sink.clone() {
            let (read, page, changed) = self.new_columns(segment, &target, &collected).await?;
            let version = {
                let _timer = self.baseline.elapsed_compute().timer();
                page_version(&read, &page, &changed).map_err(external)?
            };
            entry.shared = version.shared;
            entry.zones.clone_from(&version.page.zones);
            entry.page = sink.push(version.page).await?;
        }
        let node = ChangedPageNode { entry: Some((&entry).into()), steps: steps_of(&slots) };
        self.report.append_value(node.encode_to_vec());
        self.report_count += 1;
        Ok(())
    }

    /// What the version of a page is made of: the page, read with the columns that are copied, and the new values.
    async fn new_columns(
        &mut self,
        segment: SegmentRef,
        target: &MorselPage,
        collected: &Collected,
    ) -> Result<(PageRead, cleave_store::PageColumns, Vec<ChangedColumn>)> {
        let columns = self.changed.columns.clone();
        let row_count = usize::try_from(target.page.row_count).unwrap_or(usize::MAX);
        let live = row_count.saturating_sub(target.dead.count());
        let keeps_some = collected.count < live;
        let old = if keeps_some { columns.columns.clone() } else { Vec::new() };
        let mut read = PageRead { segment, page: target.page, columns: old };
        let mut page = self.read(&read).await?;
        let ids: Vec<u32> = columns.columns.iter().filter_map(user_id).collect();
        if let Some(id) = ids.iter().find(|id| {
            let entry = page.header.entry(ColumnRef::User(**id));
            entry.is_some_and(|entry| entry.overflow_count > 0)
        }) {
            return Err(refused(ColumnRef::User(*id)));
        }
        let old = match keeps_some {
            true => {
                let wanted = columns.clone().nullable();
                let none = OverflowValues::none();
                decode_batch(&page, &read, &wanted, None, &none).map_err(external)?
            }
            // Only dead rows have no new value.
            false => {
                let fields = columns.schema.fields().iter();
                let nulls = fields.map(|field| new_null_array(field.data_type(), 1)).collect();
                let schema = columns.clone().nullable().schema;
                RecordBatch::try_new(schema, nulls)?
            }
        };
        let copied = copied_columns(&page.header, &ids);
        if !copied.is_empty() {
            read.columns = copied;
            page = self.read(&read).await?;
        }
        let _timer = self.baseline.elapsed_compute().timer();
        let changed = ids.iter().enumerate().map(|(at, id)| {
            let values = picked(old.column(at), at, keeps_some, collected)?;
            Ok(ChangedColumn { id: *id, values })
        });
        Ok((read, page, changed.collect::<Result<Vec<_>>>()?))
    }

    async fn read(&mut self, read: &PageRead) -> Result<cleave_store::PageColumns> {
        let reads = vec![read.clone()];
        let pages = self.context.pages.read_scattered(reads).await.map_err(external)?;
        let none = || DataFusionError::Internal("a page that was not read".into());
        pages.into_iter().next().ok_or_else(none)
    }
}

/// The values of a column for each slot: new ones, and those of `old` elsewhere, or any new one for dead rows.
fn picked(
    old: &ArrayRef,
    column: usize,
    keeps_some: bool,
    collected: &Collected,
) -> Result<ArrayRef> {
    let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let is_in_order = |(slot, pick): (u32, &(u32, u32))| *pick == (0, slot);
    let pieces = &collected.pieces;
    // A page that changes whole, in one batch.
    if let [piece] = pieces.as_slice()
        && piece.num_rows() == collected.picks.len()
        && (0..).zip(&collected.picks).all(is_in_order)
    {
        return Ok(Arc::clone(piece.column(column)));
    }
    let mut sources: Vec<&dyn Array> = vec![old.as_ref()];
    sources.extend(pieces.iter().map(|piece| piece.column(column).as_ref()));
    let places = collected.picks.iter().enumerate().map(|(slot, (piece, row))| match *piece {
        OLD if keeps_some => (0, slot),
        // A dead row gets some new value, since its column may be NOT NULL.
        OLD => (1, 0),
        piece => (size(piece) + 1, size(*row)),
    });
    Ok(interleave(&sources, &places.collect::<Vec<_>>())?)
}

impl DisplayAs for ChangePagesExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.changed.columns.schema.fields().iter().map(|field| field.name().as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        write!(f, "ChangePagesExec: columns=[{names}]")?;
        match self.changed.returned {
            Some(_) => write!(f, ", returning rows"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ChangePagesExec {
    fn name(&self) -> &'static str {
        "ChangePagesExec"
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
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(rows), None) => Ok(Arc::new(Self::new(rows, self.changed.clone())?)),
            _ => plan_err!("pages are changed by one input"),
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.rows), self.changed.clone())?))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let context = FragmentContext::of(&task)?;
        let morsels = context.input(self.changed.input)?;
        let Some(morsels) = morsels.list() else {
            return plan_err!("the pages of input {} are not known at once", self.changed.input);
        };
        let _known = self.pages.get_or_init(|| Targets::of(morsels));
        let is_written = !self.changed.columns.columns.is_empty();
        let sink = is_written.then(|| context.sink()).transpose()?;
        let memory = MemoryConsumer::new("changing pages").register(task.memory_pool());
        memory.try_grow(PAGE_BYTES)?;
        let changing = Changing {
            rows: Some(self.rows.execute(partition, task)?),
            changed: self.changed.clone(),
            targets: Arc::clone(&self.pages),
            context,
            sink,
            collected: None,
            report: BinaryBuilder::new(),
            report_count: 0,
            schema: self.schema(),
            returned: None,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            memory,
            waiting_bytes: 0,
        };
        let batches = stream::try_unfold(changing, |mut changing| async {
            let batch = changing.next().await?;
            Ok(batch.map(|batch| (batch, changing)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
