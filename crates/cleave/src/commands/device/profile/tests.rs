//! The format of figures.

use cleave_host::device::profile::Profile;

use super::{lines, short, table};

#[test]
fn numbers_have_three_digits_and_a_prefix() {
    let texts: Vec<_> =
        [2e-4, 0.0123, 1.0, 12.34, 999.4, 1234.0, 1.18e8, 8e9, 0.0].map(short).into();
    let wanted = ["200 µ", "12.3 m", "1.00", "12.3", "999", "1.23 k", "118 M", "8.00 G", "0"];
    assert_eq!(texts, wanted);
}

#[test]
fn every_figure_of_both_sides_and_the_link_has_a_row() {
    let lines = lines(&Profile::assumed());
    let rows = table(&lines, true).unwrap();
    // Three of each side besides its figures; round trip and rate of the link.
    assert_eq!(rows.num_rows(), 2 * (3 + 17) + 2);
    assert_eq!(rows.column(2).null_count(), 0);
    assert!(lines.iter().all(|line| line.origin == "assumed"));
}
