//! Functions that the engine does not have, for both sides of a cut.
//!
//! 1. [`checked_add`] and its kin: integers that overflow with an error, where the engine's operators wrap around,
//!    and the flag that makes them check does not travel with a fragment; numerics without a check a value.
//! 2. [`round_to_even`]: what a cast from a double to an integer does first.
//! 3. [`exact_sum`]: the sum, with PostgreSQL's types: that of bigints is numeric.
//! 4. [`average_of`]: an average from a sum and a count.
//! 5. [`pack_key`], [`part_of_key`]: several narrow group keys as one integer.
//! 6. [`table_sketch()`]: what ANALYZE gathers of a table.
//! 7. [`bounded`]: functions of the engine that would take any amount of memory, held to a bound; [`concatenate()`] and
//!    [`string_agg()`], the same of an operator and of an aggregate.

mod average_of;
pub mod bounded;
mod checked_arithmetic;
mod concatenate;
mod exact_sum;
mod packed_key;
mod round_to_even;
mod string_agg;
pub mod table_sketch;

use std::sync::Arc;

pub use average_of::average_of;
pub(crate) use checked_arithmetic::narrow_numerics;
pub use checked_arithmetic::{checked_add, checked_multiply, checked_subtract};
pub use concatenate::{concatenate, is_concatenated};
use datafusion_expr::{AggregateUDF, ScalarUDF};
pub use exact_sum::exact_sum;
pub use packed_key::{KeyLayout, KeyPart, PartKind, pack_key, part_of_key};
pub use round_to_even::round_to_even;
pub(crate) use string_agg::delimiter;
pub use string_agg::string_agg;
pub use table_sketch::table_sketch;

/// All that make one value of one row.
pub(crate) fn scalar() -> [Arc<ScalarUDF>; 8] {
    [
        checked_add(),
        checked_subtract(),
        checked_multiply(),
        round_to_even(),
        average_of(),
        pack_key(),
        part_of_key(),
        concatenate(),
    ]
}

/// All that make one value of many rows; each takes the place of the engine's function that it has the name of.
pub fn aggregate() -> [Arc<AggregateUDF>; 3] {
    [exact_sum(), table_sketch(), string_agg()]
}
