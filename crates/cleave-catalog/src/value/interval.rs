//! Intervals: PostgreSQL's text in ([`interval_text`]), months, days and nanoseconds out, and back.
//!
//! Written: PostgreSQL's own style ([`write()`]), or another `IntervalStyle` ([`write_in`]).
//!
//! Source: PostgreSQL's manual, "Interval Output", and its `EncodeInterval`.

use std::fmt::Write;

use arrow::datatypes::IntervalMonthDayNano;
use cleave_fragment::functions::interval_text;

use crate::value::error::Bad;

const EXPECTED: &str = "an interval such as 1 year 2 mons 3 days 04:05:06";

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

/// Writes an interval in `style`.
pub fn write_in(style: IntervalStyle, out: &mut String, interval: IntervalMonthDayNano) {
    match style {
        IntervalStyle::Postgres => write(out, interval),
        IntervalStyle::Verbose => write_verbose(out, &Fields::of(interval)),
        IntervalStyle::Standard => write_standard(out, &Fields::of(interval)),
        IntervalStyle::Iso => write_iso(out, &Fields::of(interval)),
    }
}

/// An interval by its units, each with its own sign.
struct Fields {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    nanoseconds: i64,
}

impl Fields {
    fn of(interval: IntervalMonthDayNano) -> Self {
        const MINUTE: i64 = 60_000_000_000;
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        Self {
            years: i64::from(months / 12),
            months: i64::from(months % 12),
            days: i64::from(days),
            hours: nanoseconds / (60 * MINUTE),
            minutes: nanoseconds / MINUTE % 60,
            nanoseconds: nanoseconds % MINUTE,
        }
    }

    fn all(&self) -> [i64; 6] {
        [self.years, self.months, self.days, self.hours, self.minutes, self.nanoseconds]
    }

    fn has_time(&self) -> bool {
        self.hours != 0 || self.minutes != 0 || self.nanoseconds != 0
    }
}

/// The seconds without their sign, in two digits where they are `filled`.
fn write_seconds(out: &mut String, nanoseconds: i64, filled: bool) {
    let nanos = nanoseconds.unsigned_abs();
    let seconds = nanos / 1_000_000_000;
    // Writing to a String cannot fail.
    let _ = if filled { write!(out, "{seconds:02}") } else { write!(out, "{seconds}") };
    super::text::write_fraction(out, nanos % 1_000_000_000);
}

fn write_iso(out: &mut String, fields: &Fields) {
    if fields.all() == [0; 6] {
        out.push_str("PT0S");
        return;
    }
    let part = |out: &mut String, count: i64, unit: char| {
        if count != 0 {
            let _ = write!(out, "{count}{unit}");
        }
    };
    out.push('P');
    part(out, fields.years, 'Y');
    part(out, fields.months, 'M');
    part(out, fields.days, 'D');
    if fields.has_time() {
        out.push('T');
        part(out, fields.hours, 'H');
        part(out, fields.minutes, 'M');
        if fields.nanoseconds != 0 {
            out.push_str(if fields.nanoseconds < 0 { "-" } else { "" });
            write_seconds(out, fields.nanoseconds, false);
            out.push('S');
        }
    }
}

/// The sign of the first part holds for all: the others are written as compared with it.
fn write_verbose(out: &mut String, fields: &Fields) {
    let mut is_ago = None;
    out.push('@');
    let parts = [
        (fields.years, "year"),
        (fields.months, "mon"),
        (fields.days, "day"),
        (fields.hours, "hour"),
        (fields.minutes, "min"),
    ];
    for (count, unit) in parts.into_iter().filter(|(count, _)| *count != 0) {
        let count = if *is_ago.get_or_insert(count < 0) { -count } else { count };
        let plural = if count == 1 { "" } else { "s" };
        let _ = write!(out, " {count} {unit}{plural}");
    }
    let nanos = fields.nanoseconds;
    if nanos != 0 {
        let is_against = (nanos < 0) != *is_ago.get_or_insert(nanos < 0);
        out.push_str(if is_against { " -" } else { " " });
        write_seconds(out, nanos, false);
        out.push_str(if nanos.unsigned_abs() == 1_000_000_000 { " sec" } else { " secs" });
    }
    match is_ago {
        None => out.push_str(" 0"),
        Some(true) => out.push_str(" ago"),
        Some(false) => {}
    }
}

/// As the standard has it where it can have the value: years and months, or days and time, with one sign.
fn write_standard(out: &mut String, fields: &Fields) {
    let all = fields.all();
    let (has_negative, has_positive) =
        (all.iter().any(|count| *count < 0), all.iter().any(|count| *count > 0));
    if !has_negative && !has_positive {
        out.push('0');
        return;
    }
    let has_months = fields.years != 0 || fields.months != 0;
    let has_days = fields.days != 0 || fields.has_time();
    let [years, months, days, hours, minutes, _] = all.map(i64::unsigned_abs);
    if (has_negative && has_positive) || (has_months && has_days) {
        let sign = |is_negative: bool| if is_negative { '-' } else { '+' };
        let of_months = sign(fields.years < 0 || fields.months < 0);
        let of_time = sign(fields.hours < 0 || fields.minutes < 0 || fields.nanoseconds < 0);
        let of_days = sign(fields.days < 0);
        let _ = write!(
            out,
            "{of_months}{years}-{months} {of_days}{days} {of_time}{hours}:{minutes:02}:"
        );
        write_seconds(out, fields.nanoseconds, true);
        return;
    }
    out.push_str(if has_negative { "-" } else { "" });
    if has_months {
        let _ = write!(out, "{years}-{months}");
        return;
    }
    if days != 0 {
        let _ = write!(out, "{days} ");
    }
    let _ = write!(out, "{hours}:{minutes:02}:");
    write_seconds(out, fields.nanoseconds, true);
}

#[cfg(test)]
mod tests;
