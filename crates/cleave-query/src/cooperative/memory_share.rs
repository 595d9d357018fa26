//! The memory that a fragment asks of its device while queries of a batch run there at once.
//!
//! A device admits runs as long as their memory fits. A run that waits for memory begins when others have read what it
//! could have had of them. So fragments whose operators hold no rows ask for a share.
//!
//! Invariant: operators that hold rows get what they get alone.

use std::sync::Arc;

use cleave_fragment::TableScanExec;
use cleave_fragment::command::Execute;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;

use super::fragment_exec::FragmentExec;

/// Least bytes of a share: for pages that are read ahead, and batches on their way.
const SHARE_MIN: u64 = 16 << 20;
/// A share has so many times the bytes of the lists and pages that come with the fragment.
const HELD_TIMES: u64 = 4;

impl FragmentExec {
    /// Bytes that a run asks of its device, its ring included, among `company` queries that run at once.
    pub(crate) fn memory_asked(&self, company: u32) -> u64 {
        let settings = self.context.settings();
        let ring_bytes = u64::from(settings.slot_count) * u64::from(self.fragment.slot_bytes);
        ring_bytes + share(&self.fragment.plan, settings.device_memory_bytes, company)
    }
}

/// Bytes for the operators of `execute`, which runs `plan` and may have as many as it says.
pub(super) fn share_of(execute: &Execute, plan: &Arc<dyn ExecutionPlan>, company: u32) -> u64 {
    let shipped = execute.shipped.iter().map(|page| page.payload.bytes.len()).sum::<usize>();
    let held = (execute.held_bytes() + shipped) as u64;
    let share = share(plan, execute.memory_bytes, company);
    share.saturating_add(held.saturating_mul(HELD_TIMES)).min(execute.memory_bytes)
}

fn share(plan: &Arc<dyn ExecutionPlan>, bytes: u64, company: u32) -> u64 {
    match company > 1 && passes_rows(plan) {
        true => (bytes / u64::from(company)).max(SHARE_MIN).min(bytes),
        false => bytes,
    }
}

/// Whether no operator of `plan` holds more than the rows of a batch.
fn passes_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_one_group = |aggregate: &AggregateExec| aggregate.group_expr().is_empty();
    let passes = plan.is::<TableScanExec>()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.downcast_ref::<AggregateExec>().is_some_and(is_one_group);
    passes && plan.children().into_iter().all(passes_rows)
}

#[cfg(test)]
mod tests {
    //! Which plans get a share, and how much it is.

    use cleave_fragment::operators::table_scan_exec::{References, TableScan};
    use cleave_store::Projection;
    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn scan() -> Arc<dyn ExecutionPlan> {
        let none = Projection::new(Arc::new(Schema::empty()), Vec::new());
        let scan = TableScan {
            table: "t".into(),
            table_id: 1,
            output: none.clone(),
            filter: none,
            predicate: None,
            input: 0,
            fetch: None,
            references: References::None,
        };
        Arc::new(TableScanExec::new(scan, 1))
    }

    #[test]
    fn plans_that_hold_no_rows_get_a_share() {
        let other: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let over = |plan: Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(LocalLimitExec::new(plan, 3))
        };
        for plan in [Arc::clone(&other), over(other)] {
            assert_eq!(share(&plan, 64 * MIB, 8), 64 * MIB);
        }
        for plan in [scan(), over(scan())] {
            let shares = [1, 2, 3, 8].map(|company| share(&plan, 64 * MIB, company));
            assert_eq!(shares, [64 * MIB, 32 * MIB, 64 * MIB / 3, SHARE_MIN]);
            assert_eq!(share(&plan, 4 * MIB, 8), 4 * MIB, "no more than it would get alone");
        }
    }
}
