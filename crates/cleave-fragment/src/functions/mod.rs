//! Functions that DataFusion lacks, available on both sides of a cut.
//!
//! 1. [`checked_add`] and its kin: integer arithmetic that fails on overflow. DataFusion's operators wrap around, and
//!    the flag that makes them check does not travel with a fragment. Numerics are computed without a check a value.
//! 2. [`round_to_even`]: the first step of a cast from a double to an integer.
//! 3. [`exact_sum`]: the sum, with PostgreSQL's types: that of bigints is numeric.
//! 4. [`quotient()`]: numerics divided, with PostgreSQL's digits; [`average()`] and [`average_of`], of a sum and a
//!    count, are such quotients.
//! 5. [`pack_key`], [`part_of_key`]: several narrow group keys as one integer.
//! 6. [`table_sketch()`], [`page_sketch()`]: the statistics that ANALYZE gathers of a table, or of some of its pages.
//! 7. [`sign`], [`div`], [`width_bucket`], [`checked_divide`], and logarithms and roots [within their
//!    domains](within_domains).
//! 8. [`age`], [`justify_interval`] and its kin: intervals by the [`calendar`]; [`interval_span`]: the value that they
//!    compare by.
//! 9. [`double_of`], [`real_of`]: numerics as the nearest floats. [`numeric_of`]: floats as numerics of their digits.
//! 10. [`row_function()`] makes a function of one row out of its types and its code.
//! 11. [`time_plus`] and its kin: sums, differences and casts of times that support [`infinite`] ones.
//! 12. [`bounded`]: DataFusion's functions that would take any amount of memory, with a bound; [`concatenate()`] and
//!     [`string_agg()`], the same for an operator and for an aggregate; [`large_constant`] for large constants.
//! 13. [`assignment`]: values as a column stores them.
//! 14. [`date_trunc()`] with all of PostgreSQL's units; [`gcd`], [`lcm`], [`factorial`] and [`to_hex`] with its types.
//! 15. `coalesce`, `greatest` and `least` [of one type](of_one_type), whatever literals in quotes are.
//! 16. [`letters`]: `upper`, `lower`, `initcap` and `chr`, letter by letter. [`trimmed`]: `btrim` and its kin. `encode`
//!     and `decode` of [bytes](encoded).
//! 17. [`like_escape`], [`like_pattern`]: patterns of LIKE with their escapes.
//! 18. [`ANY_ITEM`], [`ALL_ITEMS`]: comparisons with each item of a list.
//! 19. DataFusion's aggregates of floats [with a part replaced](of_engine); [`opaque()`], through which no rule sees.

pub mod assignment;
mod average;
pub mod bounded;
pub mod calendar;
mod checked_arithmetic;
mod concatenate;
mod encoded;
mod exact_sum;
mod float_of;
pub mod infinite;
pub mod interval_text;
mod intervals;
pub mod large_constant;
mod letters;
mod like;
mod list_comparison;
mod numbers;
mod numeric_powers;
mod of_engine;
mod of_one_type;
mod opaque;
mod packed_key;
pub mod quotient;
mod refilled;
mod round_to_even;
mod row_function;
mod string_agg;
pub mod table_sketch;
mod time_arithmetic;
pub mod time_text;
mod trimmed;
mod truncated;
mod variance;
mod whole_numbers;
mod years;

use std::sync::Arc;

pub use average::average;
pub(crate) use checked_arithmetic::narrow_numerics;
pub use checked_arithmetic::{
    CHECKED_CHAIN, checked_add, checked_chain, checked_multiply, checked_subtract, link_of,
};
pub use concatenate::{concatenate, is_concatenated};
use datafusion_expr::{AggregateUDF, ScalarUDF};
pub use encoded::bytes_of_text;
pub use exact_sum::exact_sum;
pub use float_of::{double_of, float_of, floats_of, numeric_of, real_of, rounded_numeric_of};
pub use intervals::{
    age, interval_divided, interval_span, interval_times, justify_days, justify_hours,
    justify_interval, longest, milliseconds_of, seconds_of, shortest, span,
};
pub use letters::lower;
pub use like::{ends_in_escape, like_escape, like_pattern, with_backslash};
pub use list_comparison::{ALL_ITEMS, ANY_ITEM};
pub use numbers::{checked_divide, div, sign, width_bucket, within_domains};
pub use opaque::opaque;
pub use packed_key::{KeyLayout, KeyPart, PartKind, pack_key, part_of_key};
pub use quotient::{average_of, quotient};
pub use round_to_even::round_to_even;
pub use row_function::{ArgumentFault, Compute, Gives, Takes, row_function};
pub(crate) use string_agg::delimiter;
pub use string_agg::string_agg;
pub use table_sketch::{page_sketch, table_sketch};
pub use time_arithmetic::{
    cast_to_time, date_bin, date_minus, date_plus, days_between, frame_place, interval_of_time,
    isfinite, knowing_infinite, moments_between, part_of_time, period_end, time_minus,
    time_of_interval, time_plus,
};
pub use truncated::{date_trunc, keeps_offset};
pub use whole_numbers::{factorial, gcd, lcm, to_hex};
pub use years::{isoyear_of, julian_of, period_of_years, year_of};

/// All scalar functions.
pub(crate) fn scalar() -> Vec<Arc<ScalarUDF>> {
    let mut functions = callable();
    functions.extend(placed());
    functions.extend(time_arithmetic::casts().map(|(_, function)| function));
    functions
}

/// Functions that statements call by name.
pub fn callable() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![
        sign(),
        div(),
        width_bucket(),
        age(),
        justify_hours(),
        justify_days(),
        justify_interval(),
        seconds_of(),
        milliseconds_of(),
        date_bin(),
        date_trunc(),
        factorial(),
        gcd(),
        lcm(),
        to_hex(),
        letters::upper(),
        lower(),
        letters::initcap(),
        letters::chr(),
        encoded::encode(),
        encoded::decode(),
        bytes_of_text(),
        like_escape(),
        period_end(),
        isfinite(),
        isoyear_of(),
        year_of(),
        period_of_years(),
        julian_of(),
    ];
    functions.extend(of_one_type::of_one_type());
    functions.extend(trimmed::trimmed());
    functions.extend(list_comparison::list_comparisons());
    functions
}

/// Functions that replace operators.
fn placed() -> Vec<Arc<ScalarUDF>> {
    vec![
        checked_add(),
        checked_subtract(),
        checked_multiply(),
        checked_chain(),
        round_to_even(),
        opaque(),
        average_of(),
        quotient(),
        pack_key(),
        part_of_key(),
        concatenate(),
        large_constant::constant(),
        checked_divide(),
        interval_times(),
        interval_divided(),
        interval_span(),
        longest(),
        shortest(),
        double_of(),
        real_of(),
        numeric_of(),
        rounded_numeric_of(),
        time_plus(),
        time_minus(),
        date_plus(),
        date_minus(),
        moments_between(),
        days_between(),
        frame_place(),
        interval_of_time(),
        time_of_interval(),
        assignment::assigned(),
        like_pattern(),
    ]
}

/// All aggregates; each replaces DataFusion's of the same name.
pub fn aggregate() -> Vec<Arc<AggregateUDF>> {
    let ours = [exact_sum(), average(), table_sketch(), page_sketch(), string_agg()];
    of_engine::of_engine().chain(ours).collect()
}
