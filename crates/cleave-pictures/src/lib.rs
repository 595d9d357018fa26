//! Pictures of plans and of figures, as SVG: shapes and texts in, one file out that needs nothing else: no scripts, no
//! fonts, no requests.
//!
//! 1. [`Picture`] collects shapes, each within an [`Area`]; every text that it takes is escaped.
//! 2. [`text`] measures, breaks and cuts texts, and writes numbers, sizes and times.
//! 3. [`Scale`] places values on an axis with round ticks.
//! 4. [`plan_svg`] draws a plan with its link. What the programs draw besides lies in them.
//!
//! Invariant: no text becomes markup. A file is a whole one whatever stands in the texts.

mod picture;
mod plan;
mod scale;
#[cfg(test)]
mod tests;
pub mod text;

pub use picture::{Area, LINE, Picture};
pub use plan::{NotDrawn, plan_svg};
pub use scale::Scale;
