//! `IntervalStyle`: how results write intervals. A cast to text has PostgreSQL's own style whatever is set.

use super::{Setting, Value, Values};
pub use crate::value::interval::IntervalStyle;

pub(super) const INTERVAL_STYLE: Setting = Setting {
    name: "IntervalStyle",
    description: "How results write intervals",
    values: Values::Words(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
    get: |settings| {
        match settings.interval_style {
            IntervalStyle::Postgres => "postgres",
            IntervalStyle::Verbose => "postgres_verbose",
            IntervalStyle::Standard => "sql_standard",
            IntervalStyle::Iso => "iso_8601",
        }
        .to_owned()
    },
    set: |settings, value| {
        settings.interval_style = match value {
            Value::Word(1) => IntervalStyle::Verbose,
            Value::Word(2) => IntervalStyle::Standard,
            Value::Word(3) => IntervalStyle::Iso,
            _ => IntervalStyle::Postgres,
        }
    },
};
