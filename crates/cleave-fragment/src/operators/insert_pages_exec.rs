//! The root of a fragment that inserts the rows of a query: rows of the table in, an entry for each written page out.
//!
//! ```text
//!   InsertPagesExec: table=7, segment=12, columns=[id, price]        page │ page │ …
//!     ProjectionExec: id, price, price >= 0                          columns of the table, then checks
//!       TableScanExec: order [id, price]
//! ```
//!
//! 1. Rows come as the table stores them. What a column refuses fails the fragment with
//!    [`RefusedValue`](super::new_values::RefusedValue), a broken check with
//!    [`RefusedRow`](super::new_values::RefusedRow): the host then makes the same rows, and names column and value.
//! 2. They are numbered from [`InsertTarget::vid_first`] on, as they come, and written as the pages of one bulk segment
//!    ([`page_writing`](super::page_writing)), with their long values. Of a table whose tablets all lie on the device,
//!    each row goes to the segment of its tablet ([`RowDivision`]). If it does not matter which tablet a row goes to,
//!    several partitions write, each to tablets of its own.
//! 3. The report, which [`read_inserted`] reads, has the pages with their zones. The host checks it, makes a segment of
//!    the pages of each tablet, and reads the columns of indexes back for the keys.
//!
//! Where they replace rows, the input is a [`ChangePagesExec`] that writes nothing: its report of the rows that die
//! comes out beside the pages, and the rows that it returns are the new ones.
//!
//! ```text
//!   InsertPagesExec: table=7, segment=12, columns=[id, price], replacing rows      page │ ended
//!     ChangePagesExec: columns=[], returning rows                                  ended │ vid │ id │ price │ check
//!       ProjectionExec: vid, id + 1, price, price >= 0
//! ```
//!
//! Invariants: pages have VIDs in their headers, so the table is the transaction's own, and one partition alone has the
//! rows of a tablet. Memory is a page or two for each tablet that gets rows, out of the fragment's budget. Source:
//! Update NDP, section 4, and `docs/design/versions-and-commit.md`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, UInt32Array, new_empty_array, new_null_array,
};
use arrow::compute::{concat, concat_batches, filter, is_not_null};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use cleave_store::{
    ColumnRef, CommitColumn, EqualShares, PageClass, PageEntry, Projection, RangeBounds,
    SegmentRef, SegmentWriter, TabletKey, Versions, VidColumn,
};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, plan_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use super::change_pages_exec::{ChangePagesExec, changed_schema};
use super::new_values::{check_rows, check_values, user_id};
use super::page_writing::{PageWriting, read_written, written_schema};
use super::table_scan_exec::scan_page::external;
use crate::fragment::FragmentContext;

/// Rows that go to one tablet in load order before the next one gets some: those of a bulk page.
pub const STRETCH_ROWS: usize = 65_536;

/// Where rows of one tablet go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InsertTarget {
    /// The segment of their pages.
    pub segment: SegmentRef,
    /// The VID of the first row.
    pub vid_first: u64,
}

/// How rows are divided among several targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowDivision {
    /// Each gets [`STRETCH_ROWS`] rows in turn.
    LoadOrder,
    /// Each gets the same number.
    EqualShares,
    /// By a hash of the columns at these places.
    Hash(Vec<usize>),
    /// By the ranges of the column at this place, between these bounds, which are one less than the targets.
    Ranges(usize, RangeBounds),
}

/// Where and as what rows are inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertedRows {
    /// One, or one for each tablet that gets rows.
    pub targets: Vec<InsertTarget>,
    /// How rows are divided where there are several.
    pub division: RowDivision,
    /// The class of the pages.
    pub class: PageClass,
    /// All columns of the table, nullable or not as it has them.
    pub columns: Projection,
    /// Whether they replace rows.
    pub replaces: bool,
}

/// The columns of the result: pages that were written, and pages with rows that end; each row has one.
fn replacing_schema() -> SchemaRef {
    let page = Field::new("page", DataType::Binary, true);
    let ended = Field::new("ended", DataType::Binary, true);
    Arc::new(Schema::new(vec![page, ended]))
}

/// The columns of the result where there are several targets: pages, and the number of the target of each.
fn divided_schema() -> SchemaRef {
    let page = Field::new("page", DataType::Binary, false);
    Arc::new(Schema::new(vec![page, Field::new("target", DataType::UInt32, false)]))
}

/// The pages that a fragment reports to have inserted for each of `target_count` targets.
///
/// # Errors
/// [`ArrowError::SchemaError`] or [`ArrowError::ParseError`] for rows that no such [`InsertPagesExec`] made.
pub fn read_inserted(
    batches: &[RecordBatch],
    target_count: usize,
) -> Result<Vec<Vec<PageEntry>>, ArrowError> {
    if target_count <= 1 {
        return Ok(vec![read_written(batches)?]);
    }
    let mut pages = vec![Vec::new(); target_count];
    for batch in batches {
        let entries = read_written(std::slice::from_ref(batch))?;
        let targets =
            batch.columns().get(1).and_then(|column| column.as_primitive_opt::<UInt32Type>());
        let Some(targets) = targets.filter(|targets| targets.null_count() == 0) else {
            let message = format!("inserted pages have other columns: {}", batch.schema());
            return Err(ArrowError::SchemaError(message));
        };
        for (entry, target) in entries.into_iter().zip(targets.values()) {
            let of_target = usize::try_from(*target).ok().and_then(|place| pages.get_mut(place));
            let unknown = || ArrowError::ParseError(format!("a page of target {target}"));
            of_target.ok_or_else(unknown)?.push(entry);
        }
    }
    Ok(pages)
}

/// The pages with rows that end which a fragment reports, as [`read_changed`](super::change_pages_exec::read_changed)
/// reads them, and what it reports besides.
///
/// # Errors
/// [`ArrowError::SchemaError`] for rows that no such [`InsertPagesExec`] made.
pub fn read_replaced(
    batches: &[RecordBatch],
) -> Result<(Vec<RecordBatch>, Vec<RecordBatch>), ArrowError> {
    let (mut ended, mut written) = (Vec::new(), Vec::new());
    for batch in batches {
        let [pages, of_ended] = batch.columns() else {
            let message = format!("replaced rows have other columns: {}", batch.schema());
            return Err(ArrowError::SchemaError(message));
        };
        for (own, kept, schema) in
            [(pages, &mut written, written_schema()), (of_ended, &mut ended, changed_schema())]
        {
            let own = filter(own, &is_not_null(own)?)?;
            if !own.is_empty() {
                kept.push(RecordBatch::try_new(schema, vec![own])?);
            }
        }
    }
    Ok((ended, written))
}

/// See the [module](self).
#[derive(Debug)]
pub struct InsertPagesExec {
    rows: Arc<dyn ExecutionPlan>,
    inserted: InsertedRows,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl InsertPagesExec {
    /// Inserts `rows`, which have the columns of the table, and behind them say of each check whether the row keeps it.
    /// NULL is no violation.
    ///
    /// # Errors
    /// For an input with other columns, or of more than [`InsertedRows::partitions_max`] partitions; for targets that
    /// rows cannot be divided among.
    pub fn new(rows: Arc<dyn ExecutionPlan>, inserted: InsertedRows) -> Result<Self> {
        let schema = rows.schema();
        let types = || schema.fields().iter().map(|field| field.data_type());
        let columns = &inserted.columns;
        // In front of the rows are the report and their VIDs.
        let first = if inserted.replaces { 2 } else { 0 };
        if inserted.replaces && rows.downcast_ref::<ChangePagesExec>().is_none_or(writes) {
            return plan_err!("the rows that are replaced come from {}", rows.name());
        }
        let wanted = columns.schema.fields().iter().map(|field| field.data_type());
        let count = columns.columns.len();
        let fits = types().skip(first).take(count).eq(wanted)
            && types().skip(first + count).all(|of_check| *of_check == DataType::Boolean);
        let is_whole =
            count > 0 && columns.columns.iter().all(|column| matches!(column, ColumnRef::User(_)));
        if !fits || !is_whole {
            return plan_err!("rows to be inserted have the table's columns, and not {schema}");
        }
        let partitions = rows.properties().output_partitioning().partition_count();
        if !(1..=inserted.partitions_max()).contains(&partitions) {
            return plan_err!("rows to be inserted come in {partitions} partitions");
        }
        inserted.divider()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(match (inserted.replaces, inserted.targets.len()) {
                (true, _) => replacing_schema(),
                (false, 1) => written_schema(),
                (false, _) => divided_schema(),
            }),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { rows, inserted, properties: Arc::new(properties), metrics })
    }

    /// Where and as what rows are inserted.
    pub fn inserted(&self) -> &InsertedRows {
        &self.inserted
    }
}

impl InsertedRows {
    /// In how many partitions the rows may come: one has those of a tablet.
    pub fn partitions_max(&self) -> usize {
        match self.division == RowDivision::LoadOrder && !self.replaces {
            true => self.targets.len().max(1),
            false => 1,
        }
    }

    /// What divides the rows among several targets.
    fn divider(&self) -> Result<Divider> {
        let segments: BTreeSet<_> = self.targets.iter().map(|to| to.segment.segment).collect();
        let tables: BTreeSet<_> = self.targets.iter().map(|to| to.segment.table_id).collect();
        let count = self.targets.len();
        let is_apart = segments.len() == count && tables.len() == 1;
        if !is_apart || count > 1 && self.replaces {
            return plan_err!(
                "rows of {} tables to be inserted have {count} targets",
                tables.len()
            );
        }
        let schema = &self.columns.schema;
        let key = match &self.division {
            RowDivision::LoadOrder => return Ok(Divider::InTurn),
            RowDivision::EqualShares => {
                return Ok(Divider::Shares(EqualShares::new((0..count).collect())));
            }
            RowDivision::Hash(places) => TabletKey::over(schema, places.clone()),
            RowDivision::Ranges(_, bounds) if bounds.tablet_count() != count => {
                let wanted = bounds.tablet_count();
                return plan_err!("rows of {wanted} ranges to be inserted have {count} targets");
            }
            RowDivision::Ranges(place, bounds) => {
                TabletKey::over_ranges(schema, *place, bounds.clone())
            }
        };
        key.map(Divider::Values).map_err(external)
    }
}

/// What divides rows among several targets.
#[derive(Debug)]
enum Divider {
    InTurn,
    Shares(EqualShares),
    Values(TabletKey),
}

/// The bytes that the values of `batch` take. Batches of one page, or of the groups of an aggregate, are slices of the
/// same columns: each counts its own part.
pub fn slice_bytes(batch: &RecordBatch) -> usize {
    let of_column = |column: &ArrayRef| {
        let bytes = column.to_data().get_slice_memory_size();
        bytes.unwrap_or_else(|_| column.get_array_memory_size())
    };
    batch.columns().iter().map(of_column).sum()
}

/// Whether it writes pages, or returns no rows.
fn writes(changing: &ChangePagesExec) -> bool {
    changing.writes_pages() || changing.changed().returned.is_none()
}

/// The pages being written.
struct Inserting {
    rows: SendableRecordBatchStream,
    inserted: InsertedRows,
    /// Those of each target that the partition has, the VID of its next row, and its number among all.
    pages: Vec<PageWriting>,
    vids_next: Vec<u64>,
    numbers: Vec<u32>,
    divider: Divider,
    /// Rows that were divided so.
    row_count: usize,
    /// Pages with rows that end, to be reported.
    ended: Vec<ArrayRef>,
}

impl Inserting {
    /// The next entries; None after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.pages.iter().all(PageWriting::goes_on) {
            match self.rows.next().await.transpose()? {
                Some(batch) => {
                    let Some(batch) = self.without_report(batch)? else { continue };
                    let rows = self.checked(&batch)?;
                    let bytes = slice_bytes(&batch);
                    let count = self.pages.len();
                    if count == 1 {
                        self.push(0, &rows, bytes).await?;
                        continue;
                    }
                    let parts = match &mut self.divider {
                        Divider::InTurn => in_turn(self.row_count, &rows, count),
                        Divider::Shares(shares) => shares.divide(&rows),
                        Divider::Values(key) => key.divide(&rows, count).map_err(external)?,
                    };
                    self.row_count = self.row_count.saturating_add(rows.num_rows());
                    for (target, part) in parts {
                        let bytes = slice_bytes(&part);
                        self.push(target, &part, bytes).await?;
                    }
                }
                None => PageWriting::finish_all(&mut self.pages).await?,
            }
        }
        let pages = self.report()?;
        if !self.inserted.replaces {
            return Ok(pages);
        }
        let ended: Vec<&dyn Array> = self.ended.iter().map(AsRef::as_ref).collect();
        let ended = match ended.as_slice() {
            [] => new_empty_array(&DataType::Binary),
            ended => concat(ended)?,
        };
        self.ended.clear();
        let pages = pages.map(|batch| Arc::clone(batch.column(0)));
        let pages = pages.unwrap_or_else(|| new_empty_array(&DataType::Binary));
        if pages.len() + ended.len() == 0 {
            return Ok(None);
        }
        let nulls = |count| new_null_array(&DataType::Binary, count);
        let columns = vec![
            concat(&[pages.as_ref(), nulls(ended.len()).as_ref()])?,
            concat(&[nulls(pages.len()).as_ref(), ended.as_ref()])?,
        ];
        Ok(Some(RecordBatch::try_new(replacing_schema(), columns)?))
    }

    /// Adds `rows`, of a batch of `byte_count` bytes, to those of a target.
    async fn push(&mut self, target: usize, rows: &RecordBatch, byte_count: usize) -> Result<()> {
        let next = self.vids_next.get_mut(target).zip(self.pages.get_mut(target));
        let Some((vid_next, pages)) = next else { return plan_err!("there is no target {target}") };
        let first = *vid_next;
        *vid_next = first.saturating_add(rows.num_rows() as u64);
        let vid = VidColumn::Sequence { first };
        let versions = Versions { vid, commit: CommitColumn::Segment };
        pages.push(rows, versions, byte_count).await
    }

    /// The entries since the last report; None: there are none.
    fn report(&mut self) -> Result<Option<RecordBatch>> {
        if let ([_], [pages]) = (self.inserted.targets.as_slice(), self.pages.as_mut_slice()) {
            return pages.report();
        }
        let mut batches = Vec::new();
        for (target, pages) in self.numbers.iter().zip(&mut self.pages) {
            let Some(batch) = pages.report()? else { continue };
            let targets = Arc::new(UInt32Array::from_value(*target, batch.num_rows()));
            let columns = vec![Arc::clone(batch.column(0)), targets as ArrayRef];
            batches.push(RecordBatch::try_new(divided_schema(), columns)?);
        }
        match batches.is_empty() {
            true => Ok(None),
            false => Ok(Some(concat_batches(&divided_schema(), &batches)?)),
        }
    }

    /// The rows of `batch` without what comes in front of them; None: it is a report of rows that end.
    fn without_report(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        if !self.inserted.replaces {
            return Ok(Some(batch));
        }
        let report = batch.column(0);
        if report.null_count() < report.len() {
            self.ended.push(Arc::clone(report));
            return Ok(None);
        }
        let columns: Vec<usize> = (2..batch.num_columns()).collect();
        Ok(Some(batch.project(&columns)?))
    }

    /// The rows of `batch` without the checks, which they keep.
    fn checked(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = &self.inserted.columns;
        let count = columns.columns.len();
        check_rows(batch, count..batch.num_columns())?;
        let rows = batch.project(&(0..count).collect::<Vec<_>>())?;
        check_values(&rows, (&columns.columns, columns.schema.fields()))?;
        Ok(rows)
    }
}

/// Stretches of `rows`, which come behind `before` others, for `count` targets in turn.
fn in_turn(before: usize, rows: &RecordBatch, count: usize) -> Vec<(usize, RecordBatch)> {
    let (mut parts, mut from) = (Vec::new(), 0);
    while from < rows.num_rows() {
        let at = before.saturating_add(from);
        let length = (STRETCH_ROWS - at % STRETCH_ROWS).min(rows.num_rows() - from);
        parts.push((at / STRETCH_ROWS % count.max(1), rows.slice(from, length)));
        from += length;
    }
    parts
}

impl DisplayAs for InsertPagesExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InsertedRows { targets, columns, .. } = &self.inserted;
        let names = columns.schema.fields().iter().map(|field| field.name().as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let table = targets.first().map_or(0, |target| target.segment.table_id);
        write!(f, "InsertPagesExec: table={table}, columns=[{names}]")?;
        if targets.len() > 1 {
            write!(f, ", tablets={}", targets.len())?;
        }
        match self.inserted.replaces {
            true => write!(f, ", replacing rows"),
            false => Ok(()),
        }
    }
}

impl ExecutionPlan for InsertPagesExec {
    fn name(&self) -> &'static str {
        "InsertPagesExec"
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
            (Some(rows), None) => Ok(Arc::new(Self::new(rows, self.inserted.clone())?)),
            _ => plan_err!("pages are written from one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let sink = FragmentContext::of(&task)?.sink()?;
        let InsertedRows { targets, class, columns, .. } = &self.inserted;
        let ids: Vec<u32> = columns.columns.iter().filter_map(user_id).collect();
        let partitions = self.properties.output_partitioning().partition_count();
        let own = || (0..).zip(targets).skip(partition).step_by(partitions.max(1));
        let mut pages = Vec::with_capacity(own().count());
        for (_, InsertTarget { segment, .. }) in own() {
            let writer = SegmentWriter::of_columns(*segment, &columns.schema, &ids, *class, 0);
            let writer = writer.map_err(external)?;
            let baseline = BaselineMetrics::new(&self.metrics, partition);
            pages.push(PageWriting::new(writer, Arc::clone(&sink), baseline, &task));
        }
        let rows = self.rows.execute(partition, task)?;
        let inserting = Inserting {
            rows,
            pages,
            vids_next: own().map(|(_, target)| target.vid_first).collect(),
            numbers: own().map(|(number, _)| number).collect(),
            divider: self.inserted.divider()?,
            inserted: self.inserted.clone(),
            row_count: 0,
            ended: Vec::new(),
        };
        let batches = stream::try_unfold(inserting, |mut inserting| async {
            let batch = inserting.next().await?;
            Ok(batch.map(|batch| (batch, inserting)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), Box::pin(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests;
