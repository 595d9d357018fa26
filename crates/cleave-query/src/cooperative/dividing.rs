//! Divides the pages of a fragment among the copies of a mirror: the parts as they were planned in, those that run out.
//!
//! ```text
//!  part: m, pages 0 … 99 ─▶ part: m, pages 0 … 49     begins on a, which is as busy as b
//!                        └▶ part: m, pages 50 … 99    begins on b, which is the less busy one by now
//! ```
//!
//! A fragment that host and device may share gives the same rows if several devices have a part each of what streams
//! through it. So it can have a run on each copy, which collects by itself what its joins collect. Which copy takes
//! which part is found out as each begins.
//!
//! Invariant: nothing else changes. A part that is lost begins again on another copy, whatever that has already, and
//! the host takes morsels of each. Under `stealing = off` nothing is divided; under `always` all that can be.

use std::sync::Arc;

use cleave_plan::cost::Sharing;
use cleave_plan::split::When;
use datafusion::physical_plan::execution_plan::EmissionType;

use super::fragment_exec::{FragmentExec, FragmentPart};
use crate::select::StatementInput;

/// What is to be won at least: another run has costs of its own.
const WON_MIN_S: f64 = 0.005;

impl FragmentExec {
    /// The parts of its input as they run.
    pub(super) fn running_parts(&self) -> Arc<[FragmentPart]> {
        let stealing = self.context.settings().stealing;
        let may_share = stealing != When::Never
            && self.fragment.fetch.is_none()
            && self.parts.iter().any(|part| part.device.is_mirror());
        let Some(sharing) = self.fragment.sharing.filter(|_| may_share) else {
            return Arc::clone(&self.parts);
        };
        let ends_with_rows = self.fragment.plan.properties().emission_type == EmissionType::Final;
        let running = self.parts.iter().flat_map(|part| {
            let count = part.copy_count();
            let is_divided = stealing == When::Always || pays(&sharing, count, ends_with_rows);
            let count = if is_divided { count } else { 1 };
            (0..count).map(move |place| part.share(place, count))
        });
        running.collect()
    }
}

impl FragmentPart {
    /// How many devices may have a share of it, each at least a page.
    fn copy_count(&self) -> usize {
        if !self.on_device || !self.device.is_mirror() {
            return 1;
        }
        let copies = self.device.readers();
        let connected = copies.iter().filter(|copy| copy.is_connected()).count();
        let pages = self.inputs.last().map_or(0, |(_, streamed)| streamed.input.pages_left());
        connected.min(pages).max(1)
    }

    /// The share at `place` of `count` ones of about as many pages.
    fn share(&self, place: usize, count: usize) -> Self {
        let mut share = self.clone();
        if let Some((_, streamed)) = share.inputs.last_mut().filter(|_| count > 1) {
            *streamed = StatementInput {
                input: Arc::new(streamed.input.share(place, count)),
                row_estimate: streamed.row_estimate / count as f64,
            };
        }
        share
    }
}

/// Whether `count` devices are done sooner than one that takes what `sharing` says. `ends_with_rows`: each makes rows
/// of all that it has read, such as groups, and may have as many as one alone.
fn pays(sharing: &Sharing, count: usize, ends_with_rows: bool) -> bool {
    let count = count as f64;
    let device_s = sharing.device_s / count;
    let rows_s = sharing.rows_link_s * if ends_with_rows { count } else { 1.0 };
    // What joins collect is collected by each.
    let is_mostly_divided = sharing.device_before_s < device_s;
    is_mostly_divided
        && device_s.max(rows_s) + WON_MIN_S < sharing.device_s.max(sharing.rows_link_s)
}

#[cfg(test)]
mod tests {
    //! When more copies pay.

    use super::*;

    #[test]
    fn copies_share_what_the_device_takes_long_for() {
        let sharing = Sharing { device_s: 1.0, rows_link_s: 0.1, ..Sharing::default() };
        assert!(pays(&sharing, 2, false) && pays(&sharing, 2, true));
        assert!(!pays(&sharing, 1, false), "nobody else");
        let short = Sharing { device_s: WON_MIN_S, ..sharing };
        assert!(!pays(&short, 2, false));
        let crowded = Sharing { rows_link_s: 1.0, ..sharing };
        assert!(!pays(&crowded, 2, false), "the link is what takes long");
        let groups = Sharing { rows_link_s: 0.6, ..sharing };
        assert!(pays(&groups, 2, false) && !pays(&groups, 2, true));
        let joined = Sharing { device_before_s: 0.8, ..sharing };
        assert!(!pays(&joined, 2, false), "each copy collects all of it");
    }
}
