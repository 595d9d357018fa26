//! The line at the end.

use std::time::Duration;

use super::summary;

#[test]
fn rates_read_well() {
    let line = |rows, milliseconds| summary("t", rows, Duration::from_millis(milliseconds));
    assert_eq!(line(50_000, 250), "t: 50000 rows in 0.25 s, 200 k rows/s");
    assert_eq!(line(5_000_000, 2_000), "t: 5000000 rows in 2.00 s, 2.5 M rows/s");
    assert_eq!(line(3, 1_000), "t: 3 rows in 1.00 s, 3 rows/s");
    assert_eq!(line(0, 0), "t: 0 rows in 0.00 s, 0 rows/s");
}
