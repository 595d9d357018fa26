//! `IntervalStyle`: how results write intervals. A cast to text has PostgreSQL's own style whatever is set.

use super::{Setting, Value, Values};

/// The styles of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`.
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`.
    Verbose,
    /// `+1-2 +3 +4:05:06`.
    Standard,
    /// `P1Y2M3DT4H5M6S`.
    Iso,
}

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
