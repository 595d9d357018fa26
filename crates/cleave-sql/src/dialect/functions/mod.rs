//! PostgreSQL's functions that make or read text and lists, on the host.
//!
//! 1. [`text_of`] writes a value as results show its type: the meaning of a cast to text. [`numeric_of_text`] reads a
//!    numeric.
//! 2. [`format`](texts) and `quote_…` put values into a text.
//! 3. [`to_char`] writes times and numbers by a [`template`] or a [picture of digits](number_template);
//!    [`from_template`] reads times by one, and [`to_number`] numbers.
//! 4. [`patterns`] find, count, replace and split by regular expressions.
//! 5. [`lists`] computes `mode`, `percentile_disc` and `ARRAY(subquery)` from a collected list.
//! 6. [`zones`]: `AT TIME ZONE`.
//! 7. [`uuid_of`]: for `gen_random_uuid`.
//! 8. [`moments`]: `now()` and similar functions.
//! 9. [`shift_by_row`]: `lag` and `lead` by a column.
//! 10. [`type_of`][]: `pg_typeof`.
//! 11. [`first_of`](first_of()): makes an expression name something besides.
//! 12. [`rounding`]: `round` and `trunc` of whole numbers.
//! 13. [`made_times`]: times made of numbers, or rounded to a precision.
//! 14. [`null_counts`] of a call's arguments: `num_nulls`.
//! 15. [`arrays`]: comparisons and changes of lists, and texts read as lists.
//! 16. [`dimensions`]: subscripts and sizes of lists of one and of several dimensions.
//!
//! A device has none of them: they serve the presentation of results, and the code that writes values as text is here.

mod arrays;
mod dimensions;
mod first_of;
mod from_template;
mod like;
mod lists;
mod made_times;
mod moments;
mod null_counts;
mod number_template;
mod numeric_of_text;
mod patterns;
mod rounding;
mod shift_by_row;
mod split;
mod template;
mod text_of;
mod texts;
mod to_char;
mod to_number;
mod type_of;
mod uuid_of;
mod zones;

use std::sync::Arc;

use cleave_fragment::functions::bounded::{RESULT_BYTES_MAX, ResultTooLarge};
use cleave_fragment::result_memory::made;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;

pub(super) use arrays::{array_has_all, list_order, list_read, list_spans};
pub(super) use dimensions::{
    LIST_ITEM, LIST_SLICE, innermost, list_item, list_slice, nested_as, same_dimensions,
};
pub(super) use first_of::{FIRST_OF, NUMBER_BESIDE, first_of};
pub(super) use like::like_by_steps;
pub(super) use lists::{
    DISCRETE_PERCENTILE, JOINED_LIST, LIST_OR_EMPTY, MOST_FREQUENT, SORTED_LIST,
};
pub(super) use made_times::{INTERVAL_WITHIN, TO_PRECISION};
pub use moments::statement_timestamp;
pub(super) use numeric_of_text::numeric_of_text;
pub(super) use patterns::{MATCHES, SUBSTRING};
pub(super) use rounding::{of_engine, with_digits};
pub use shift_by_row::window_functions;
pub(super) use shift_by_row::{LAG_BY_ROW, LEAD_BY_ROW};
pub(super) use text_of::text_of;
pub use type_of::type_name;
pub(super) use uuid_of::UUID_OF;
pub(super) use zones::{AT_TIME_ZONE, MOMENT_BESIDE};

/// All of them.
pub fn text_functions() -> Vec<Arc<ScalarUDF>> {
    let [round, trunc] = rounding::rounding();
    vec![
        round,
        trunc,
        text_of(),
        numeric_of_text(),
        texts::format(),
        texts::quote_literal(),
        texts::quote_nullable(),
        to_char::to_char(),
        to_number::to_number(),
        from_template::to_date(),
        from_template::to_timestamp(),
        patterns::regexp_split_to_array(),
        patterns::regexp_substr(),
        patterns::regexp_match(),
        patterns::regexp_matches(),
        patterns::regexp_count(),
        patterns::regexp_instr(),
        patterns::regexp_replace(),
        patterns::substring_by_pattern(),
        list_item(),
        list_slice(),
        array_has_all(),
        arrays::array_has_any(),
        list_order(),
        arrays::array_remove(),
        arrays::array_replace(),
        dimensions::array_dims(),
        dimensions::array_ndims(),
        dimensions::array_length(),
        dimensions::array_upper(),
        dimensions::array_lower(),
        same_dimensions(),
        list_read(),
        list_spans(),
        split::string_to_array(),
        like_by_steps(),
        lists::most_frequent(),
        lists::discrete_percentile(),
        lists::list_or_empty(),
        lists::sorted_list(),
        lists::joined_list(),
        zones::at_time_zone(),
        zones::moment_beside(),
        uuid_of::uuid_of(),
        first_of(),
        cleave_fragment::functions::opaque(),
        first_of::number_beside(),
        moments::now(),
        type_of::pg_typeof(),
        made_times::make_date(),
        made_times::make_time(),
        made_times::make_timestamp(),
        made_times::make_interval(),
        made_times::to_precision(),
        made_times::interval_within(),
        null_counts::num_nulls(),
        null_counts::num_nonnulls(),
        moments::clock_timestamp(),
    ]
}

/// Charges what one call has made so far, and refuses a result of so many bytes.
fn check_size(function: &str, bytes: usize) -> Result<()> {
    made(bytes)?;
    let bytes = bytes as u64;
    if bytes <= RESULT_BYTES_MAX {
        return Ok(());
    }
    let error = ResultTooLarge { function: function.to_owned(), bytes, rows: 1 };
    Err(DataFusionError::External(Box::new(error)))
}
