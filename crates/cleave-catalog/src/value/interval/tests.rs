//! PostgreSQL's intervals, in and out.

use arrow::datatypes::IntervalMonthDayNano;
use proptest::prelude::*;

use super::{parse, write, write_in};
use crate::value::error::ValueFault;
use crate::value::interval::IntervalStyle;

fn interval(months: i32, days: i32, microseconds: i64) -> IntervalMonthDayNano {
    IntervalMonthDayNano { months, days, nanoseconds: microseconds * 1_000 }
}

fn text(value: IntervalMonthDayNano) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

#[test]
fn every_way_to_write_one_is_read() {
    for (text, value) in [
        ("1 year 2 mons 3 days 04:05:06.789", interval(14, 3, 14_706_789_000)),
        ("-1 year -2 mons +3 days -04:05:06", interval(-14, 3, -14_706_000_000)),
        ("1 day", interval(0, 1, 0)),
        ("2hours 30min", interval(0, 0, 2 * HOUR + 1_800 * SECOND)),
        ("@ 1 day 2 hours ago", interval(0, -1, -2 * HOUR)),
        ("1.5 days", interval(0, 1, 12 * HOUR)),
        ("1.5 years", interval(18, 0, 0)),
        ("1.5 months", interval(1, 15, 0)),
        ("1.5 weeks", interval(0, 10, 12 * HOUR)),
        ("1-2", interval(14, 0, 0)),
        ("-1-2", interval(-14, 0, 0)),
        ("3 4:05", interval(0, 3, 4 * HOUR + 300 * SECOND)),
        ("90", interval(0, 0, 90 * SECOND)),
        ("0.0000015 s", interval(0, 0, 1)),
        ("1 century 1 decade", interval(1_320, 0, 0)),
        ("100:00:00", interval(0, 0, 100 * HOUR)),
        ("00:00:00", interval(0, 0, 0)),
        ("P1Y2M3DT4H5M6S", interval(14, 3, 14_706 * SECOND)),
        ("P-1Y2W", interval(-12, 14, 0)),
        ("PT0.5S", interval(0, 0, SECOND / 2)),
        ("PT", interval(0, 0, 0)),
        ("P1", interval(12, 0, 0)),
        ("P0001-02-03T04:05:06", interval(14, 3, 14_706 * SECOND)),
        ("P00010203T040506", interval(14, 3, 14_706 * SECOND)),
        ("1d2h", interval(0, 1, 2 * HOUR)),
        ("1 day ago ago", interval(0, -1, 0)),
        ("0.375 years", interval(4, 0, 0)),
        ("1.5 2h", interval(0, 1, 14 * HOUR)),
    ] {
        assert_eq!(parse(text).unwrap(), value, "{text}");
    }
}

#[test]
fn what_is_no_interval_is_refused() {
    for text in [
        "",
        " ",
        "@",
        "day",
        "1 fortnight",
        "1 day 2",
        "1 2 days",
        "1:2:3:4",
        "ago",
        "P",
        "P1S",
        "1..5 days",
        "1 day 2 days",
        "04:-05",
        "4:5:",
        "1 ago",
        "-.5 days",
    ] {
        // `1 day 2` is two seconds more in PostgreSQL too.
        if text == "1 day 2" {
            assert_eq!(parse(text).unwrap(), interval(0, 1, 2 * SECOND));
            continue;
        }
        assert_eq!(parse(text).unwrap_err().fault, ValueFault::MalformedTime, "{text}");
    }
    for text in [
        "1-13",
        "200000000 years",
        "3000000000 days",
        "9999999999 hours",
        "1:60",
        "99999999999999999999 s",
    ] {
        assert_eq!(parse(text).unwrap_err().fault, ValueFault::TimeOutOfRange, "{text}");
    }
}

#[test]
fn written_as_postgres_does() {
    for (value, expected) in [
        (interval(0, 0, 0), "00:00:00"),
        (interval(14, 3, 14_706_789_000), "1 year 2 mons 3 days 04:05:06.789"),
        (interval(1, 1, 0), "1 mon 1 day"),
        (interval(-14, 3, -14_706_000_000), "-1 years -2 mons +3 days -04:05:06"),
        (interval(0, -1, 7_384 * SECOND), "-1 days +02:03:04"),
        (interval(0, 0, 100 * HOUR), "100:00:00"),
        (interval(0, 0, -1), "-00:00:00.000001"),
    ] {
        assert_eq!(text(value), expected);
    }
    let nanos = IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 1 };
    assert_eq!(text(nanos), "00:00:00.000000001");
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        months: i32,
        days: i32,
        micros in -9_223_372_036_854_775_i64..9_223_372_036_854_775
    ) {
        let value = interval(months, days, micros);
        prop_assert_eq!(parse(&text(value)).unwrap(), value);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-+0-9a-zPT:. @]{0,24}") {
        if let Ok(value) = parse(&text) {
            let mut out = String::new();
            write(&mut out, value);
            prop_assert_eq!(parse(&out).unwrap(), value);
        }
    }
}

#[test]
fn each_style_is_postgresqls() {
    let styles = [IntervalStyle::Verbose, IntervalStyle::Standard, IntervalStyle::Iso];
    for (text, expected) in [
        (
            "1 year 2 mons 3 days 04:05:06.5",
            [
                "@ 1 year 2 mons 3 days 4 hours 5 mins 6.5 secs",
                "+1-2 +3 +4:05:06.5",
                "P1Y2M3DT4H5M6.5S",
            ],
        ),
        (
            "-1 year -2 mons +3 days -04:05:06",
            [
                "@ 1 year 2 mons -3 days 4 hours 5 mins 6 secs ago",
                "-1-2 +3 -4:05:06",
                "P-1Y-2M3DT-4H-5M-6S",
            ],
        ),
        ("00:00:00", ["@ 0", "0", "PT0S"]),
        ("1 day", ["@ 1 day", "1 0:00:00", "P1D"]),
        ("-1 day", ["@ 1 day ago", "-1 0:00:00", "P-1D"]),
        ("2 years", ["@ 2 years", "2-0", "P2Y"]),
        ("-00:00:00.25", ["@ 0.25 secs ago", "-0:00:00.25", "PT-0.25S"]),
        ("1 mon -2 days", ["@ 1 mon -2 days", "+0-1 -2 +0:00:00", "P1M-2D"]),
        ("3 days 00:00:01", ["@ 3 days 1 sec", "3 0:00:01", "P3DT1S"]),
        ("-1 mons", ["@ 1 mon ago", "-0-1", "P-1M"]),
        ("10:00:00", ["@ 10 hours", "10:00:00", "PT10H"]),
    ] {
        let written = styles.map(|style| {
            let mut out = String::new();
            write_in(style, &mut out, parse(text).unwrap());
            out
        });
        assert_eq!(written, expected, "{text}");
    }
}
