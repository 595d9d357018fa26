//! The cost of a split: a plan's shape, a placement of its operators and a measured profile in, a prediction out.
//!
//! 1. [`shape`]: the plan as the models see it. [`limits`]: what a statement may use, and the prediction.
//! 2. [`work`]: seconds of one core for each operator, from the profile of its side. [`known_pages`]: what a side need
//!    not evaluate, since it has before.
//! 3. [`slots`]: the size of the pieces in which rows cross.
//! 4. [`makespan`]: when host, link and device are done, working at the same time. [`paper`]: the published costs of
//!    hybridNDP.

mod known_pages;
mod limits;
pub mod makespan;
pub mod paper;
mod shape;
pub mod slots;
mod work;

pub use known_pages::KnownPages;
pub use limits::{Limits, Prediction, Sharing};
pub use shape::{AskedColumn, Conditions, Placement, PlanShape, ScanWork, ShapeNode, Work};
pub use slots::SlotSize;

/// How candidates are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CostStrategy {
    /// By when they are done: [`makespan`].
    #[default]
    Makespan,
    /// By the published equations: [`paper`].
    Paper,
}

impl std::fmt::Display for CostStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Makespan => "makespan",
            Self::Paper => "paper",
        })
    }
}
