//! Intervals: PostgreSQL's text in ([`interval_text`]), months, days and nanoseconds out, and back.
//!
//! Written: PostgreSQL's own style (`IntervalStyle = postgres`).
//!
//! Source: PostgreSQL's manual, "Interval Output", and its `EncodeInterval`.

use std::fmt::Write;

use arrow::datatypes::IntervalMonthDayNano;
use cleave_fragment::functions::interval_text;

use crate::value::error::Bad;

const EXPECTED: &str = "an interval such as 1 year 2 mons 3 days 04:05:06";

/// Reads an interval.
pub fn parse(text: &str) -> Result<IntervalMonthDayNano, Bad> {
    interval_text::parse(text).map_err(|fault| Bad::of_time(fault, EXPECTED))
}

/// Writes an interval in PostgreSQL's own style. A positive part after a negative one gets a plus, as there.
pub fn write(out: &mut String, interval: IntervalMonthDayNano) {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let start = out.len();
    let mut after_negative = false;
    for (count, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if count == 0 {
            continue;
        }
        let blank = if out.len() > start { " " } else { "" };
        let plus = if after_negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        // Writing to a String cannot fail.
        let _ = write!(out, "{blank}{plus}{count} {unit}{plural}");
        after_negative = count < 0;
    }
    if out.len() > start && nanoseconds == 0 {
        return;
    }
    let blank = if out.len() > start { " " } else { "" };
    let sign = match (nanoseconds < 0, after_negative) {
        (true, _) => "-",
        (false, true) => "+",
        (false, false) => "",
    };
    let nanos = nanoseconds.unsigned_abs();
    let seconds = nanos / 1_000_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let _ = write!(out, "{blank}{sign}{hour:02}:{minute:02}:{second:02}");
    super::text::write_fraction(out, nanos % 1_000_000_000);
}

#[cfg(test)]
mod tests;
