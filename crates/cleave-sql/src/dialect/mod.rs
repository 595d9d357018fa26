//! Where PostgreSQL means something else than the engine does: corrections to plans as they are made.
//!
//! 0. [`query_names`]: columns of queries within a query have PostgreSQL's names, and USING merges as it does there.
//! 1. [`lower_syntax`]: casts to `varchar(n)` cut, `1e300` is a double, rows of several values are compared by these,
//!    `a.b` is a column of a table `a` around a subquery before it is a field of a column, and functions have
//!    PostgreSQL's names; those that make text are our [own](functions).
//! 2. [`PostgresTypes`]: `timestamp` is in microseconds, `uuid` is a type.
//! 3. [`PostgresOperators`]: a literal in quotes has no type of its own and takes that of the other side, where the
//!    engine would refuse the pair; dates and days add up, and dates and hours; [`operand_types`] refuses what
//!    PostgreSQL does.
//!    [`window_exclusion`]: frames of windows that leave rows out.
//! 4. [`SetOperations`]: INTERSECT and EXCEPT give common types, and count rows with ALL.
//! 5. [`TypedLiterals`]: the same for numbers and times, and for `IN`, `BETWEEN`, `CASE` and casts.
//!    [`VolatileOperands`]: `random()` is one value for both bounds of BETWEEN.
//!    [`CopiedArguments`]: `coalesce` within `coalesce` does not grow without bound.
//!    [`WindowFrames`]: frames of windows over every type that sorts.
//! 6. [`CheckedArithmetic`]: integers overflow with an error, numerics are computed in 64 bits where they fit, doubles
//!    are not divided by zero, times may be [infinite](infinite_times), intervals compare by their length, and what
//!    becomes text is written as PostgreSQL does.
//! 7. [`BoundedFunctions`]: what may take any amount of memory ends with an error instead.
//! 8. [`Guards`]: what can fail is not asked of rows that a condition before it has left out.
//! 9. [`IntervalKeys`]: intervals are sorted, grouped and joined by their length.
//!
//! 0 and 1 act on the syntax tree, 2 and 3 while it becomes a plan, 4 and 5 before the engine settles types, 6 to 9
//! after. What a device runs has been through all of it, so both sides mean the same.
//!
//! Source: PostgreSQL's documentation, "Type Conversion" and "Mathematical Functions and Operators".

mod bounded_functions;
mod checked_arithmetic;
mod copied_arguments;
mod functions;
mod functions_in_from;
mod guards;
mod having_alone;
mod infinite_times;
mod integer_literals;
mod interval_keys;
mod lower_calls;
mod lower_syntax;
mod operand_types;
mod operators;
mod outer_tables;
mod overlaps;
pub mod query_names;
mod rewrite;
mod row_comparison;
mod row_membership;
mod set_operations;
mod similar_pattern;
mod typed_literals;
mod types;
mod values_as_queries;
mod volatile_operands;
mod window_exclusion;
mod window_frames;

pub use bounded_functions::BoundedFunctions;
pub use checked_arithmetic::CheckedArithmetic;
pub use copied_arguments::CopiedArguments;
pub use functions::{statement_timestamp, text_functions, type_name, window_functions};
pub use guards::Guards;
pub use having_alone::AGGREGATES;
pub use interval_keys::IntervalKeys;
pub use lower_syntax::lower_syntax;
pub use operators::PostgresOperators;
pub use set_operations::SetOperations;
pub(crate) use similar_pattern::similar_pattern;
pub use typed_literals::TypedLiterals;
pub use typed_literals::digits_behind_point;
pub use types::PostgresTypes;
pub use types::sql_type;
pub use volatile_operands::VolatileOperands;
pub use window_exclusion::{Exclusion, written_out};
pub use window_frames::WindowFrames;
