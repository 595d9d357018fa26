//! The split of a physical plan: which operators run on a device, and the cuts where rows cross.
//!
//! [`Split`] is the session's setting. [`place_cuts`] numbers the plan, finds what a device can run of it, and puts
//! cuts above the scans and joins that the split names; [`CutDecision`] says what was decided for each and why. Under
//! [`Split::Auto`] every candidate is priced by a cost model, whose results are in [`PricedSplit`].
//!
//! The steps: `Split` → cuts → [`FragmentPlan`] → fragment run on a device.

mod below_cut;
mod build_keys;
mod candidate;
mod choose;
mod cut_context;
mod fetch_late;
mod fragment_plan;
mod gain;
mod keys_above;
mod leaf_costs;
mod margin;
mod may_share;
mod numbered_plan;
mod place_cuts;
pub mod revisit;
mod row_homes;
mod shape_of;
mod weigh_cut;
mod when;

use std::fmt;
use std::str::FromStr;

pub use choose::PricedSplit;
pub use cut_context::{CutContext, ScanShare};
pub use fragment_plan::{FragmentPlan, FragmentScan, PlannedBroadcast};
pub use gain::{Needed, needed};
pub use keys_above::KeysAbove;
pub use leaf_costs::leaf_costs;
pub use margin::{Margin, PastErrors};
pub use may_share::divides_rows;
pub use numbered_plan::is_exchange;
pub use place_cuts::{PlaceCutsError, PlacedCuts, place_cuts};
pub use revisit::Revisit;
pub use row_homes::{ScanDivision, TabletHomes};
pub use shape_of::{row_bytes, type_bytes};
pub use weigh_cut::{CutWeight, weigh_cut};
pub use when::When;

/// Most joins that a split can name: more than any plan has that is ordered well.
pub const SPLIT_JOINS_MAX: usize = 63;

/// One way to divide a plan between the sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// No cut: the device serves pages.
    Host,
    /// The first so many joins below a cut (`h1`, `h2`, …).
    Hybrid {
        /// How many.
        joins: usize,
        /// What becomes of the other scans.
        leaves: Leaves,
    },
    /// The first so many joins, and every other leaf, below cuts that climb as far as rows are complete on each of
    /// several devices (`g0`, `g1`, …).
    Complete {
        /// How many.
        joins: usize,
    },
    /// One cut at the root.
    Ndp,
    /// The one that is expected to be done first.
    Auto,
}

/// What the host does with scans that are not below the joins of a split (rule 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// It reads their pages.
    None,
    /// Some of them are fragments too: only `auto` chooses so.
    Some,
    /// Each of them is a fragment too.
    All,
}

impl Split {
    /// A cut over every leaf.
    pub const H0: Self = Self::Hybrid { joins: 0, leaves: Leaves::All };
    /// A cut over all joins that a device can run, of which there must be one, and over every other leaf, each as far
    /// up as rows are complete on each device.
    pub const ALL_JOINS: Self = Self::Hybrid { joins: usize::MAX, leaves: Leaves::All };
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Host => f.write_str("host"),
            Self::H0 => f.write_str("h0"),
            Self::Hybrid { joins, leaves: Leaves::None } => write!(f, "h{joins}"),
            Self::Hybrid { joins, leaves: Leaves::Some } => write!(f, "h{joins}*"),
            Self::Hybrid { joins, leaves: Leaves::All } => write!(f, "h{joins}+"),
            Self::Complete { joins } => write!(f, "g{joins}"),
            Self::Ndp => f.write_str("ndp"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// The error of a text that names no split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSplit;

impl FromStr for Split {
    type Err = UnknownSplit;

    fn from_str(text: &str) -> Result<Self, UnknownSplit> {
        match text {
            "host" => return Ok(Self::Host),
            "h0" => return Ok(Self::H0),
            "ndp" => return Ok(Self::Ndp),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        if let Some(number) = text.strip_prefix('g') {
            return match joins_of(number) {
                Some(joins) if joins <= SPLIT_JOINS_MAX => Ok(Self::Complete { joins }),
                _ => Err(UnknownSplit),
            };
        }
        let number = text.strip_prefix('h').ok_or(UnknownSplit)?;
        let (number, leaves) = match number.strip_suffix('+') {
            Some(number) => (number, Leaves::All),
            None => (number, Leaves::None),
        };
        match joins_of(number) {
            Some(joins) if (1..=SPLIT_JOINS_MAX).contains(&joins) => {
                Ok(Self::Hybrid { joins, leaves })
            }
            _ => Err(UnknownSplit),
        }
    }
}

/// The number of joins in the name of a split: digits alone.
fn joins_of(number: &str) -> Option<usize> {
    let is_plain = number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse().ok().filter(|_| is_plain)
}

/// What was decided for one scan that stays on the host, or for one fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutDecision {
    /// The tables that are scanned.
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
