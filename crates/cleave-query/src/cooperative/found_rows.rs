//! Update fragments over rows that the host has found (S2 of Update NDP): VIDs and new values go down, and pages change
//! where they lie.
//!
//! ```text
//!   UPDATE item SET price = o.price, used = used + 1 FROM other o WHERE o.id = item.id
//!     ─▶ the host:      SELECT vid, o.price FROM item, other o WHERE …         any query: cuts, cache, other devices
//!     ─▶ the fragment:  ChangePagesExec over
//!                         ProjectionExec: vid, price of the host, used + 1
//!                           HashJoinExec on vid
//!                             BroadcastExec                                    VIDs with the values of the host
//!                             the query: SELECT vid, price, used + 1 FROM item reads just these rows
//! ```
//!
//! 1. [`KnownRows::plan`] plans the query for the values that the device can make, over all rows of the target, as one
//!    fragment. What other values there are is left as it is stored.
//! 2. [`FoundRows::gather`] takes the rows of the host's query, each row of the target once. More bytes than may be
//!    sent are refused, and the statement makes its rows itself.
//! 3. [`KnownRows::with`] restricts the scan to these rows, by the index filter that the host fills itself
//!    ([`cleave_fragment::index_filter`]). Pages without one of them are left out. Values of the host are joined by
//!    VID: the rows are a [broadcast](super::sent_rows), and the scan streams, so the rows of a page come one after the
//!    other in as many partitions as the device has. Where the device makes all values, VIDs alone are sent.
//!
//! Invariants: VIDs and values take at most `broadcast_bytes`, and are charged to the memory of queries. The fragment
//! changes just the rows that were sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::write::vid_set::VidSet;
use cleave_fragment::broadcast::unsendable;
use cleave_fragment::command::slot::batch_bytes;
use cleave_fragment::{BroadcastExec, ChangedColumns};
use cleave_plan::split::{PlannedBroadcast, Split, row_bytes};
use datafusion::arrow::array::types::UInt64Type;
use datafusion::arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{JoinType, NullEquality};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;

use super::changing::{ChangingQuery, CheckedRows, bulk_change, conformed};
use super::update_cost::UpdateCost;
use super::whole_fragment::WholeFragment;
use crate::query_engine::QueryEngine;
use crate::select::{PlannedQuery, QueryRequest, RunningQuery, plan_query};

/// The number by which the fragment names the rows. It names no others.
const FOUND: u32 = 0;

/// Rows of one tablet that the host has found.
#[derive(Debug)]
pub struct FoundRows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    vids: Vec<u64>,
    _memory: Option<MemoryReservation>,
}

impl FoundRows {
    /// No rows, with the columns of `schema`: VIDs, new values, columns of other tables. EXPLAIN shows a fragment so.
    #[must_use]
    pub fn none(schema: SchemaRef) -> Self {
        Self { schema, batches: Vec::new(), vids: Vec::new(), _memory: None }
    }

    /// The rows of `running`, whose first column has VIDs, each VID once, as `stored` makes them: values as their
    /// columns have them. None: they take more than `bytes_max` bytes or than there are, or a value is refused.
    ///
    /// # Errors
    /// Those of the query.
    pub async fn gather(
        running: &mut RunningQuery,
        database: &QueryEngine,
        stored: impl Fn(&RecordBatch) -> Result<RecordBatch>,
        bytes_max: u64,
    ) -> Result<Option<Self>> {
        let pool = &database.query_runtime().memory_pool;
        let memory = MemoryConsumer::new("rows to send").register(pool);
        let Ok(empty) = stored(&RecordBatch::new_empty(running.schema())) else { return Ok(None) };
        let mut found = Self::none(empty.schema());
        let is_alone = found.schema.fields().len() == 1;
        let (mut seen, mut bytes) = (VidSet::default(), 0_u64);
        while let Some(batch) = running.next().await? {
            let Some((batch, vids)) = first_of_each(&batch, &mut seen)? else { return Ok(None) };
            let Ok(batch) = stored(&batch) else { return Ok(None) };
            // VIDs go with the scan as well.
            bytes += size_of_val(vids.as_slice()) as u64;
            bytes += if is_alone { 0 } else { batch_bytes(&batch) };
            let held = batch.get_array_memory_size() + size_of_val(vids.as_slice());
            if bytes > bytes_max || memory.try_grow(held).is_err() {
                return Ok(None);
            }
            found.vids.extend(vids);
            if !is_alone {
                found.batches.push(batch);
            }
        }
        found._memory = Some(memory);
        Ok(Some(found))
    }

    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.vids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vids.is_empty()
    }
}

/// The rows of `batch` whose VIDs, in its first column, are not in `seen` yet, and these VIDs; adds them. None: it has
/// no VIDs.
fn first_of_each(
    batch: &RecordBatch,
    seen: &mut VidSet,
) -> Result<Option<(RecordBatch, Vec<u64>)>> {
    let vids = batch.columns().first().and_then(|c| c.as_primitive_opt::<UInt64Type>());
    let Some(vids) = vids.filter(|vids| vids.null_count() == 0) else { return Ok(None) };
    let is_first: Vec<bool> = vids.values().iter().map(|vid| seen.insert(*vid)).collect();
    let first = vids.values().iter().zip(&is_first).filter(|(_, is_first)| **is_first);
    let first: Vec<u64> = first.map(|(vid, _)| *vid).collect();
    let rows = match first.len() == batch.num_rows() {
        true => batch.clone(),
        false => filter_record_batch(batch, &BooleanArray::from(is_first))?,
    };
    Ok(Some((rows, first)))
}

/// The host's query for rows, and what is expected of it.
#[derive(Debug)]
pub struct Finding {
    /// It.
    pub query: PlannedQuery,
    /// Their number.
    pub rows: f64,
    /// Bytes of each: VID, new values, and columns of other tables.
    pub row_bytes: f64,
    /// Seconds that the device is expected to take longer to find them; 0: nothing tells.
    pub later_s: f64,
    /// The columns.
    pub schema: SchemaRef,
}

impl Finding {
    /// Plans the query `asked`. None: it cannot be planned, and the statement says why when it makes its rows itself.
    pub async fn plan(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Option<Self> {
        let planned = plan_query(database, settings, asked).await.ok()?;
        let schema = planned.named(&planned.cuts.plan.schema());
        let finish = |split: Option<Split>| {
            let mut priced = planned.cuts.priced.iter();
            let priced =
                priced.find(|priced| split.map_or(priced.is_chosen, |s| s == priced.split));
            priced.map(|priced| priced.prediction.finish)
        };
        let later_s = match (finish(Some(Split::Ndp)), finish(None)) {
            (Some(device), Some(chosen)) => (device - chosen).max(0.0),
            _ => 0.0,
        };
        let (rows, row_bytes) = (planned.row_estimate(), row_bytes(&schema));
        Some(Self { query: planned, rows, row_bytes, later_s, schema })
    }
}

/// A fragment that changes rows which the host finds, without these rows.
pub struct KnownRows {
    whole: WholeFragment,
    changed: ChangedColumns,
    column_count: usize,
}

impl KnownRows {
    /// Plans the query `asked` over the rows of a target, for VIDs and for the new values that the device makes of the
    /// columns `changed`, of a table of `column_count` columns. None: it does not run as one fragment.
    ///
    /// # Errors
    /// None of the statement's own: these come from the query that runs then instead.
    pub async fn plan(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
        column_count: usize,
        (changed, checked): (impl FnOnce(u32) -> ChangedColumns, &CheckedRows),
    ) -> Result<Option<Self>> {
        if settings.broadcast_bytes == 0 {
            return Ok(None);
        }
        let Some(whole) = WholeFragment::over_target(database, settings, asked).await? else {
            return Ok(None);
        };
        let [scanned] = whole.fragment().scans.as_slice() else { return Ok(None) };
        let changed = changed(scanned.scan.scan().input);
        let is_made = conformed(&whole.fragment().plan, checked)?.is_some();
        Ok(is_made.then_some(Self { whole, changed, column_count }))
    }

    /// What it costs to change the rows in each way if `finding` is right.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub async fn cost(&self, finding: &Finding) -> Result<UpdateCost> {
        let changed = bulk_change(&self.whole, &self.changed, (self.column_count, finding.rows));
        let profile = self.whole.profile().await?;
        let sent_bytes = changed.rows * finding.row_bytes;
        Ok(UpdateCost::of(&changed, &profile).sending(changed.rows, sent_bytes, &profile))
    }

    /// The fragment over `found`, rows of the tablet at `tablet`. Behind their VIDs they have the new values of the
    /// columns at `places` of the query, and then those of other tables. None: they cannot be sent.
    ///
    /// # Errors
    /// Those of making it.
    pub fn with(
        self,
        (tablet, found): (usize, FoundRows),
        places: &BTreeSet<usize>,
        checked: &CheckedRows,
    ) -> Result<Option<ChangingQuery>> {
        let FoundRows { schema, batches, vids, _memory: memory } = found;
        let row_count = vids.len();
        let Some(whole) = self.whole.of_rows(tablet, vids) else { return Ok(None) };
        if unsendable(&schema).is_some() {
            return Ok(None);
        }
        let behind: Vec<usize> = (1 + places.len()..schema.fields().len()).collect();
        let beside = (!behind.is_empty()).then(|| schema.project(&behind)).transpose()?;
        if schema.fields().len() == 1 {
            let plan = Arc::clone(&whole.fragment().plan);
            let query =
                ChangingQuery::over((whole, plan), self.changed, checked, self.column_count)?;
            return Ok(query.map(|query| query.of_found(row_count, None, memory)));
        }
        let rows = Arc::new(BroadcastExec::new(FOUND, Arc::clone(&schema)));
        let plan = with_values(rows, &whole.fragment().plan, places)?;
        let made = MemorySourceConfig::try_new_exec(&[batches], schema, None)?;
        let whole = whole.with_broadcast(PlannedBroadcast {
            input: FOUND,
            plan: made,
            byte_estimate: None,
        });
        let query = ChangingQuery::over((whole, plan), self.changed, checked, self.column_count)?;
        Ok(query.map(|query| query.of_found(row_count, beside.map(Arc::new), memory)))
    }
}

/// `scanned` joined by VID with `rows`, whose values take the places `places`; the rest of their columns comes last.
fn with_values(
    rows: Arc<dyn ExecutionPlan>,
    scanned: &Arc<dyn ExecutionPlan>,
    places: &BTreeSet<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let (found, stored) = (rows.schema(), scanned.schema());
    let vid = |schema: &SchemaRef| -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(schema.field(0).name(), 0))
    };
    let join = HashJoinExec::try_new(
        rows,
        Arc::clone(scanned),
        vec![(vid(&found), vid(&stored))],
        None,
        &JoinType::Inner,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    let joined = join.schema();
    let column = |at: usize, alias: &str| {
        let expr = Arc::new(Column::new(joined.field(at).name(), at)) as Arc<dyn PhysicalExpr>;
        ProjectionExpr { expr, alias: alias.to_owned() }
    };
    let width = found.fields().len();
    let mut columns = Vec::with_capacity(joined.fields().len());
    let mut values = 1..;
    for (place, field) in stored.fields().iter().enumerate() {
        let at = match places.contains(&place) {
            true => values.next().unwrap_or_default(),
            false => width + place,
        };
        columns.push(column(at, field.name()));
    }
    let beside = found.fields().iter().enumerate().skip(1 + places.len());
    columns.extend(beside.map(|(at, field)| column(at, field.name())));
    Ok(Arc::new(ProjectionExec::try_new(columns, Arc::new(join))?))
}
