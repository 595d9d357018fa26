//! Fed filters: filters that the host learns while a fragment runs, sent to a scan of that fragment.
//!
//! 1. The host names the inputs that may get a filter in the fragment's command. The device adds to their scans a
//!    filter that lets every row through ([`FedFilter::attach`]).
//! 2. While the operators above the cut tighten their filters (a top-k, say), the host sends the current ones, whole,
//!    with a rising generation ([`encode_filter`]).
//! 3. The scan looks at it between batches, as at any filter from above.
//!
//! Invariants (rule 4): a filter only tightens, so one that is lost, late or refused changes no rows; one older than
//! the current one is skipped. It is decoded with the checks of a fragment, and charged to its run.

use crate::walk::Walk;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::{Transformed, TransformedResult};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion_physical_expr::{PhysicalExpr, conjunction};
use datafusion_physical_plan::ExecutionPlan;

use crate::codec::{decode_fragment, encode_fragment, reserve_plan};
use crate::operators::table_scan_exec::{References, TableScan, TableScanExec};

/// Most bytes of a filter that is worth sending while the fragment runs.
pub const FILTER_BYTES_MAX: usize = 1 << 20;

/// The place of a scan's filter; see the [module](self).
pub struct FedFilter {
    filter: Arc<DynamicFilterPhysicalExpr>,
    /// The schema of the scan's output, which the filter refers to.
    schema: SchemaRef,
    known: Mutex<Known>,
}

/// A filter slot that the host feeds and a scan reads.
pub type SharedFilter = Arc<FedFilter>;

#[derive(Default)]
struct Known {
    generation: u64,
    /// The memory that the filter is charged to.
    _memory: Option<MemoryReservation>,
}

/// Encodes `filters`, which are over the output of `scan`, for [`FedFilter::take`].
///
/// # Errors
/// For a filter without a wire form.
pub fn encode_filter(
    scan: &TableScanExec,
    filters: impl IntoIterator<Item = Arc<dyn PhysicalExpr>>,
) -> Result<Vec<u8>> {
    let scan = scan.scan();
    let carrier = TableScan {
        filter: scan.output.clone(),
        predicate: Some(conjunction(filters)),
        fetch: None,
        references: References::None,
        ..scan.clone()
    };
    encode_fragment(&(Arc::new(TableScanExec::new(carrier, 1)) as Arc<dyn ExecutionPlan>))
}

impl FedFilter {
    /// Returns `plan` with a filter added at the scan of `input`, and its slot; None if no scan reads that input, or
    /// its scan has a limit: a filter would change which rows the limit takes.
    ///
    /// # Errors
    /// Those of DataFusion, if the plan cannot be rebuilt.
    pub fn attach(
        plan: Arc<dyn ExecutionPlan>,
        input: u32,
    ) -> Result<(Arc<dyn ExecutionPlan>, Option<SharedFilter>)> {
        let mut fed = None;
        let plan = plan
            .transform_up(|node| {
                let scan = node.downcast_ref::<TableScanExec>();
                let is_it = |scan: &&TableScanExec| {
                    scan.scan().input == input && scan.fetch().is_none() && fed.is_none()
                };
                let Some(scan) = scan.filter(is_it) else { return Ok(Transformed::no(node)) };
                let made = Self::over(&scan.scan().output.schema);
                let mut filters = scan.dynamic_filters().to_vec();
                filters.push(Arc::clone(&made.filter) as Arc<dyn PhysicalExpr>);
                fed = Some(made);
                let scan = scan.clone().with_dynamic_filters(filters);
                Ok(Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>))
            })
            .data()?;
        Ok((plan, fed))
    }

    fn over(schema: &SchemaRef) -> Arc<Self> {
        let column = |(place, field): (usize, &Arc<arrow::datatypes::Field>)| {
            Arc::new(Column::new(field.name(), place)) as Arc<dyn PhysicalExpr>
        };
        let columns = schema.fields().iter().enumerate().map(column).collect();
        Arc::new(Self {
            filter: Arc::new(DynamicFilterPhysicalExpr::new(columns, lit(true))),
            schema: Arc::clone(schema),
            known: Mutex::default(),
        })
    }

    /// Replaces the current filter by one that [`encode_filter`] wrote, unless the current one is as new.
    ///
    /// # Errors
    /// For bytes that are not a filter over the scan's columns, or take more memory than the run has.
    pub fn take(&self, generation: u64, bytes: &[u8], task: &TaskContext) -> Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if generation <= known.generation {
            return Ok(());
        }
        let bad = |what: &str| DataFusionError::Plan(format!("a filter in flight {what}"));
        if bytes.len() > FILTER_BYTES_MAX {
            let text = format!("has {} bytes, and may have {FILTER_BYTES_MAX}", bytes.len());
            return Err(bad(&text));
        }
        let memory = reserve_plan(bytes, task)?;
        let plan = decode_fragment(bytes, task)?;
        let carrier = plan.downcast_ref::<TableScanExec>().map(TableScanExec::scan);
        let carrier = carrier.filter(|scan| scan.filter.schema.fields() == self.schema.fields());
        let carrier = carrier.ok_or_else(|| bad("is over other columns than its scan has"))?;
        let predicate = carrier.predicate.as_ref().ok_or_else(|| bad("has no condition"))?;
        self.filter.update(Arc::clone(predicate))?;
        *known = Known { generation, _memory: Some(memory) };
        Ok(())
    }
}

impl fmt::Debug for FedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FedFilter").field("filter", &self.filter).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
