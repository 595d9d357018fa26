//! Rewrites of statements and plans where PostgreSQL's meaning differs from DataFusion's.
//!
//! 0. [`query_names`]: columns of subqueries get PostgreSQL's names, and USING merges as in PostgreSQL.
//! 1. [`lower_syntax`]: casts to `varchar(n)` cut, `1e300` is a double, rows of several values compare value by value,
//!    `a.b` is a column of an outer table `a` before it is a field of a column, and functions have PostgreSQL's names;
//!    those that make text are our [own](functions). [`regular_expressions`] are written for DataFusion, and
//!    [`list_comparisons`] and [`grouping_sets`] written out. [`places`]: DISTINCT ON by places. [`named_casts`]: casts
//!    in grouped queries have names of their own.
//! 2. [`PostgresTypes`]: `timestamp` is in microseconds, `uuid` is a type.
//! 3. [`PostgresOperators`]: a literal in quotes has no type of its own and takes that of the other side, where
//!    DataFusion would refuse the pair; dates and days add up, and dates and hours. [`operand_types`] refuses operand
//!    types that PostgreSQL refuses. [`window_exclusion`]: window frames with EXCLUDE.
//! 4. [`BalancedChains`]: long conditions are trees that are not deep. [`OuterAggregates`]: aggregates of an outer
//!    query in subqueries are computed there. [`SetOperations`]: INTERSECT and EXCEPT give common types, and count
//!    rows with ALL.
//! 5. [`TypedLiterals`]: literals in quotes beside numbers and times, and in `IN`, `BETWEEN`, `CASE` and casts.
//!    [`VolatileOperands`]: `random()` is one value for both bounds of BETWEEN. [`CopiedArguments`]: nested `coalesce`
//!    does not grow without limit. [`WindowFrames`]: window frames over every type that sorts. [`kept_order`]: the
//!    order of a subquery for what depends on it.
//! 6. [`CheckedArithmetic`]: integers fail on overflow, numerics are computed in 64 bits where they fit, doubles are
//!    not divided by zero, times may be [infinite](infinite_times), intervals compare by their length, and casts to
//!    text write values as PostgreSQL does.
//! 7. [`BoundedFunctions`]: functions that could take any amount of memory end with an error instead.
//! 8. [`Guards`]: an expression that can fail is not evaluated for rows that an earlier condition excludes.
//! 9. [`IntervalKeys`]: intervals are sorted, grouped and joined by their length.
//! 10. [`HeldConditions`]: conditions without columns stay above aggregates.
//! 11. [`RepeatedRows`]: columns beside an unnested list are not unique.
//! 12. [`WindowKeys`]: keys of windows that are functions of functions are columns, and volatile arguments too.
//!
//! 0 and 1 act on the syntax tree, 2 and 3 while it becomes a plan, 4 and 5 before DataFusion settles types, 6 to 12
//! after. A fragment is cut from a plan that went through all of it, so host and device give the same results.
//!
//! Source: PostgreSQL's documentation, "Type Conversion" and "Mathematical Functions and Operators".

mod balanced_chains;
mod both_zeros;
mod bounded_functions;
mod checked_arithmetic;
mod computed_limits;
mod copied_arguments;
mod functions;
mod functions_in_from;
mod grouping_sets;
mod guards;
mod having_alone;
mod held_conditions;
mod infinite_times;
mod integer_literals;
mod interval_keys;
mod interval_signs;
mod kept_order;
mod lateral_lists;
mod list_comparisons;
mod lower_calls;
mod lower_syntax;
mod named_casts;
mod operand_types;
mod operators;
mod outer_aggregates;
mod outer_tables;
mod overlaps;
mod places;
pub mod query_names;
mod quoted_conditions;
mod regular_expressions;
mod repeated_rows;
mod rewrite;
mod row_comparison;
mod row_membership;
mod set_operations;
mod similar_pattern;
mod time_syntax;
mod typed_literals;
mod types;
mod values_as_queries;
mod volatile_operands;
mod window_exclusion;
mod window_frames;
mod window_keys;

pub use balanced_chains::{BalancedChains, balanced_conjunction};
pub use both_zeros::{BothZeros, with_both_zeros};
pub use bounded_functions::BoundedFunctions;
pub use checked_arithmetic::CheckedArithmetic;
pub use copied_arguments::CopiedArguments;
pub use functions::{statement_timestamp, text_functions, type_name, window_functions};
pub use guards::Guards;
pub use having_alone::AGGREGATES;
pub use held_conditions::HeldConditions;
pub use interval_keys::IntervalKeys;
pub use interval_signs::sign_intervals;
pub(crate) use lower_calls::is_byte_order;
pub use lower_calls::{RELEASE_RESULTS, RESET_STATEMENTS};
pub use lower_syntax::lower_syntax;
pub use operators::{PostgresOperators, is_comparison};
pub use outer_aggregates::OuterAggregates;
pub use places::is_star;
pub use repeated_rows::RepeatedRows;
pub use rewrite::{has_expression, has_operator, rewrite_named};
pub use set_operations::SetOperations;
pub(crate) use similar_pattern::similar_pattern;
pub use typed_literals::TypedLiterals;
pub use typed_literals::fitting_numeric;
pub use types::{PostgresTypes, sql_type, whole_type_name};
pub use volatile_operands::VolatileOperands;
pub use window_exclusion::{Exclusion, written_out};
pub use window_frames::WindowFrames;
pub use window_keys::WindowKeys;
