//! The report says what the figures say.

use std::time::Duration;

use super::{Gain, Measurement, Timing, bars, bytes_text, closing, last_line, rate_text};

fn measurement(name: &str, host_ms: u64, split_ms: u64) -> Measurement {
    let run =
        |milliseconds, link_bytes| Timing { time: Duration::from_millis(milliseconds), link_bytes };
    Measurement {
        name: name.to_owned(),
        row_count: 3,
        host: run(host_ms, 2_000_000),
        split: run(split_ms, 1_500),
    }
}

#[test]
fn bars_show_both_ways() {
    let text = bars(&measurement("01-needle", 1200, 300));
    let (host, split) = text.split_once('\n').unwrap();
    for part in ["01-needle", "host", "1200 ms", "2.0 MB"] {
        assert!(host.contains(part), "{part} is missing in {host}");
    }
    for part in ["3 rows", "split", "300 ms", "1.5 kB", "4.0x"] {
        assert!(split.contains(part), "{part} is missing in {split}");
    }
    let columns = |line: &str| line.matches('█').count();
    assert_eq!((columns(host), columns(split)), (40, 10));
    // A run of no time at all still has a bar.
    assert!(bars(&measurement("q", 1000, 0)).contains('▏'));
}

#[test]
fn a_slow_down_is_called_so() {
    let slow = Gain::of("1 Gbit/s".to_owned(), &[measurement("a", 100, 200)]);
    assert!(slow.to_string().contains("are 2.0 times slower in geometric mean"), "{slow}");
    let both = [measurement("a", 400, 100), measurement("b", 100, 100)];
    let fast = Gain::of("100 Mbit/s".to_owned(), &both);
    assert!(fast.to_string().contains("2.0 times as fast in geometric mean"), "{fast}");
    assert!(fast.to_string().contains("best a (4.0x), least b (1.0x)"), "{fast}");
    assert!(
        fast.to_string().contains("4.0 MB crossed the link for the host, 3.0 kB for the split")
    );
    let line = last_line(&[slow.clone(), fast]);
    let expected = "2.0 times slower over a link of 1 Gbit/s, and 2.0 times as fast over a link of 100 Mbit/s.";
    assert!(line.ends_with(expected), "{line}");
    assert!(closing(&[slow], true).contains("Timing mode: capped (1 Gbit/s)"));
}

#[test]
fn rates_read_well() {
    let cases = [(125_000_000, "1 Gbit/s"), (12_500_000, "100 Mbit/s"), (1_234_567, "1.2 MB/s")];
    for (rate, expected) in cases {
        assert_eq!(rate_text(rate), expected);
    }
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
