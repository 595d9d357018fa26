//! The report says what the figures say.

use std::time::Duration;

use super::{Measurement, Run, bytes_text, meaning, table};

fn measurement(name: &str, host_ms: u64, split_ms: u64) -> Measurement {
    let run =
        |milliseconds, link_bytes| Run { time: Duration::from_millis(milliseconds), link_bytes };
    Measurement {
        name: name.to_owned(),
        row_count: 3,
        host: run(host_ms, 2_000_000),
        split: run(split_ms, 1_500),
        auto: run(split_ms, 1_500),
    }
}

#[test]
fn the_table_shows_both_sides() {
    let text = table(&[measurement("01-needle", 1200, 300)]);
    let row = text.lines().nth(2).unwrap();
    for part in ["01-needle", "1200 ms", "300 ms", "2.0 MB", "1.5 kB", "4.0x"] {
        assert!(row.contains(part), "{part} is missing in {row}");
    }
}

#[test]
fn a_slow_down_is_called_so() {
    let text = meaning(&[measurement("a", 100, 200)], Some(125_000_000));
    assert!(text.contains("0.5 times as fast (that is, slower)"), "{text}");
    assert!(text.contains("Timing mode: capped"), "{text}");
    let text = meaning(&[measurement("a", 400, 100), measurement("b", 100, 100)], None);
    assert!(text.contains("2.0 times as fast in geometric mean"), "{text}");
    assert!(text.contains("Best: a (4.0x). Least: b (1.0x)"), "{text}");
    assert!(text.contains("unthrottled"), "{text}");
}

#[test]
fn bytes_read_well() {
    let cases = [
        (0, "0 B"),
        (999, "999 B"),
        (1_549, "1.5 kB"),
        (123_456, "123 kB"),
        (7_000_000_000, "7.0 GB"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(bytes_text(bytes), expected);
    }
}
