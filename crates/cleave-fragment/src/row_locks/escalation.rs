//! When a job asks for its whole object instead of further rows: once it holds most of the lock table.
//!
//! The host tries the table lock for the job's transaction, without waiting ([`JobTransaction::lock_object`]). Where
//! another transaction locks rows of the object, or is about to, the job goes on row by row, and asks again when it
//! holds some more entries, as SQL Server does. So an escalation adds no edge to any deadlock cycle.
//!
//! [`JobTransaction::lock_object`]: super::JobTransaction::lock_object

use std::collections::BTreeSet;

/// A job that has more than one in so many entries asks for its object.
pub const ESCALATION_SHARE: u32 = 2;
/// It asks again after one in so many entries more.
pub const ESCALATION_STEPS: u32 = 16;

/// The objects that a job has as a whole.
#[derive(Debug, Default)]
pub(super) struct Escalation {
    objects: BTreeSet<u64>,
    /// Entries that the job had when it asked last.
    asked_at: Option<u32>,
}

impl Escalation {
    /// Whether all rows of `object` are the job's.
    pub(super) fn covers(&self, object: u64) -> bool {
        !self.objects.is_empty() && self.objects.contains(&object)
    }

    /// From now on all rows of `object` are the job's.
    pub(super) fn cover(&mut self, object: u64) {
        self.objects.insert(object);
    }

    /// Whether a job that holds `held` of `all` entries is to ask, which it is taken to do then.
    pub(super) fn is_due(&mut self, (held, all): (u32, u32)) -> bool {
        let least = match self.asked_at {
            None => all / ESCALATION_SHARE,
            Some(before) => before.saturating_add(all / ESCALATION_STEPS),
        };
        let is_due = held > least;
        if is_due {
            self.asked_at = Some(held);
        }
        is_due
    }
}
