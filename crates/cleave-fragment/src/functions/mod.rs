//! Functions that the engine does not have, for both sides of a cut.
//!
//! 1. [`checked_add`] and its kin: integers that overflow with an error. The engine's operators wrap around,
//!    and the flag that makes them check does not travel with a fragment.
//! 2. [`sum_bigint`]: a sum of bigints that may be none, as PostgreSQL has it.

mod checked_integers;
mod sum_bigint;

use std::sync::Arc;

pub use checked_integers::{checked_add, checked_multiply, checked_subtract};
use datafusion_expr::{AggregateUDF, ScalarUDF};
pub use sum_bigint::sum_bigint;

/// All that make one value of one row.
pub(crate) fn scalar() -> [Arc<ScalarUDF>; 3] {
    [checked_add(), checked_subtract(), checked_multiply()]
}

/// All that make one value of many rows.
pub(crate) fn aggregate() -> [Arc<AggregateUDF>; 1] {
    [sum_bigint()]
}
