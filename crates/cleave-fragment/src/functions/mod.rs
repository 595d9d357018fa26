//! Functions that the engine does not have, for both sides of a cut.
//!
//! 1. [`checked_add`] and its kin: integers that overflow with an error. The engine's operators wrap around,
//!    and the flag that makes them check does not travel with a fragment.
//! 2. [`round_to_even`]: what a cast from a double to an integer does first.
//! 3. [`exact_sum`]: the sum, with PostgreSQL's types: that of bigints is numeric.

mod checked_integers;
mod exact_sum;
mod round_to_even;

use std::sync::Arc;

pub use checked_integers::{checked_add, checked_multiply, checked_subtract};
use datafusion_expr::{AggregateUDF, ScalarUDF};
pub use exact_sum::exact_sum;
pub use round_to_even::round_to_even;

/// All that make one value of one row.
pub(crate) fn scalar() -> [Arc<ScalarUDF>; 4] {
    [checked_add(), checked_subtract(), checked_multiply(), round_to_even()]
}

/// All that make one value of many rows; each takes the place of the engine's function that it has the name of.
pub fn aggregate() -> [Arc<AggregateUDF>; 1] {
    [exact_sum()]
}
