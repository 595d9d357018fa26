//! Functions of PostgreSQL that make or read text and lists, on the host.
//!
//! 1. [`text_of`] writes a value as its type is shown: what a cast to text means.
//! 2. [`format`](texts) and `quote_…` put values into a text.
//! 3. [`to_char`] writes times and numbers by a [`template`] or a [picture of digits](number_template);
//!    [`from_template`] reads times by one.
//! 4. [`patterns`] splits texts by regular expressions.
//! 5. [`lists`] is what is left of `mode`, `percentile_disc` and `ARRAY(subquery)` once a list is there.
//! 6. [`zones`]: `AT TIME ZONE`. 7. [`uuid_of`]: for `gen_random_uuid`. 8. [`moments`]: `now()` and its kin. 9.
//!    [`shift_by_row`]: `lag` and `lead` by a column.
//! 10. [`type_of`][]: `pg_typeof`.
//!
//! A device has none of them: what they do is for the eyes of whoever asks, and what makes text of values is here.

mod from_template;
mod lists;
mod moments;
mod number_template;
mod patterns;
mod shift_by_row;
mod template;
mod text_of;
mod texts;
mod to_char;
mod type_of;
mod uuid_of;
mod zones;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

pub(super) use lists::{DISCRETE_PERCENTILE, LIST_OR_EMPTY, MOST_FREQUENT};
pub use moments::statement_timestamp;
pub use shift_by_row::window_functions;
pub(super) use shift_by_row::{LAG_BY_ROW, LEAD_BY_ROW};
pub(super) use text_of::text_of;
pub use type_of::type_name;
pub(super) use uuid_of::UUID_OF;
pub(super) use zones::AT_TIME_ZONE;

/// All of them.
pub fn text_functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        text_of(),
        texts::format(),
        texts::quote_literal(),
        texts::quote_nullable(),
        to_char::to_char(),
        from_template::to_date(),
        from_template::to_timestamp(),
        patterns::regexp_split_to_array(),
        patterns::regexp_substr(),
        lists::most_frequent(),
        lists::discrete_percentile(),
        lists::list_or_empty(),
        zones::at_time_zone(),
        uuid_of::uuid_of(),
        moments::now(),
        type_of::pg_typeof(),
        moments::clock_timestamp(),
    ]
}
