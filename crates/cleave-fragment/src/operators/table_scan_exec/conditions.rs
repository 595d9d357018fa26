//! All conditions of a scan, which must hold together: a page and the rows kept so far in, the rows left by all of them
//! out.
//!
//! Conditions that cannot fail are evaluated in the order of their measured cost for each row that they remove
//! ([`Condition::rank`]). One that may fail keeps its place among them.
//!
//! Invariant: the order, and skipping an optional condition that does not pay, change time and never rows.

use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use cleave_store::OverflowValues;
use datafusion_common::Result;

use super::condition::Condition;
use super::scan_page::ScanPage;

/// Conditions that a row must all satisfy.
#[derive(Default)]
pub(super) struct Conditions {
    list: Vec<Arc<Condition>>,
}

impl Conditions {
    pub(super) fn new(list: Vec<Arc<Condition>>) -> Self {
        Self { list }
    }

    pub(super) fn list(&self) -> &[Arc<Condition>] {
        &self.list
    }

    /// Whether none of them can fail on any row.
    pub(super) fn cannot_fail(&self) -> bool {
        self.list.iter().all(|condition| !condition.may_fail())
    }

    /// The rank of the one that is evaluated last.
    pub(super) fn last_rank(&self) -> Option<f64> {
        self.list.iter().map(|condition| condition.rank()).max_by(f64::total_cmp)
    }

    /// The rows of `kept` (None means all) that satisfy all of them.
    pub(super) fn narrow(
        &self,
        page: &mut ScanPage<'_>,
        kept: Option<BooleanBuffer>,
        overflow: &OverflowValues,
        batch_size: usize,
    ) -> Result<Option<BooleanBuffer>> {
        if self.list.is_empty() {
            return Ok(kept);
        }
        let mut kept = kept.unwrap_or_else(|| BooleanBuffer::new_set(page.row_count()));
        for part in self.list.split_inclusive(|condition| condition.may_fail()) {
            let (free, failing) = match part.split_last() {
                Some((last, before)) if last.may_fail() => (before, Some(last)),
                _ => (part, None),
            };
            let mut free: Vec<(f64, &Arc<Condition>)> =
                free.iter().map(|condition| (condition.rank(), condition)).collect();
            free.sort_by(|(left, _), (right, _)| left.total_cmp(right));
            for condition in free.into_iter().map(|(_, condition)| condition).chain(failing) {
                if condition.pays() {
                    kept = condition.narrow(page, kept, overflow, batch_size)?;
                }
            }
        }
        Ok(Some(kept))
    }
}
