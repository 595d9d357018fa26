//! The demo's own queries, and what its options mean.

use std::time::Duration;

use super::report::Timing;
use super::{OWN_QUERIES, Query, Rate, median, rate_or_none};

#[test]
fn every_query_of_the_folder_is_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo/queries");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let own: Vec<&str> = OWN_QUERIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, own);
}

#[test]
fn order_by_is_noticed_in_any_layout() {
    assert!(Query::new("q", "SELECT a FROM t\nORDER\n  BY a").is_ordered);
    assert!(!Query::new("q", "SELECT order_by FROM t").is_ordered);
}

#[test]
fn the_median_is_the_middle_run() {
    let run = |milliseconds| Timing {
        time: Duration::from_millis(milliseconds),
        link_bytes: milliseconds,
    };
    assert_eq!(median(vec![run(9), run(1), run(5)]).link_bytes, 5);
    assert_eq!(median(vec![run(7)]).link_bytes, 7);
}

#[test]
fn a_link_may_have_no_rate() {
    assert_eq!(rate_or_none("none"), Ok(Rate(None)));
    assert_eq!(rate_or_none("1gbit"), Ok(Rate(Some(125_000_000))));
    assert!(rate_or_none("fast").is_err());
}
