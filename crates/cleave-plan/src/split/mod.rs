//! The split of a physical plan: which operators run on a device, and the cuts where rows cross.
//!
//! [`Split`] is what a session asks for. [`place_cuts`] walks the plan, finds over each leaf the
//! longest chain that a device can run, and puts a cut above it; [`CutDecision`] says for each leaf
//! what was decided and why. Under [`Split::Auto`] each cut is weighed by [`weigh_cut`].
//!
//! The ladder of nouns: `Split` → cuts → [`FragmentPlan`] → the run on a device.

mod build_keys;
mod place_cuts;
mod weigh_cut;

use std::fmt;

pub use place_cuts::{CutContext, FragmentPlan, PlaceCutsError, PlacedCuts, ScanShare, place_cuts};
pub use weigh_cut::{CutWeight, weigh_cut};

/// One way to divide a plan between the sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// No cut: the device serves pages.
    Host,
    /// A cut over every leaf.
    H0,
    /// One cut at the root.
    Ndp,
    /// A cut over each leaf where fewer bytes cross with it than without.
    Auto,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::H0 => "h0",
            Self::Ndp => "ndp",
            Self::Auto => "auto",
        })
    }
}

/// What was decided for one leaf of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutDecision {
    /// The table that the leaf scans.
    pub table: String,
    /// The operators that run on the device, from the leaf upwards; empty: it stays on the host.
    pub device_operators: Vec<String>,
    /// Why the cut lies where it does, or why there is none.
    pub reason: String,
}

impl fmt::Display for CutDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.device_operators.is_empty() {
            write!(f, "{}: host, {}", self.table, self.reason)
        } else {
            write!(
                f,
                "{}: device [{}], {}",
                self.table,
                self.device_operators.join(" > "),
                self.reason
            )
        }
    }
}
