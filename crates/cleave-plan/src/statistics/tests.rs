//! Summaries of columns with known values.

use std::sync::Arc;

use arrow::array::{Int32Array, StringArray, new_empty_array};

use super::*;

fn counts(row_count: u64, null_count: u64, distinct_count: f64) -> ColumnCounts {
    ColumnCounts {
        row_count,
        null_count,
        value_bytes: 4 * (row_count - null_count),
        distinct_count,
    }
}

fn of_integers(values: Vec<Option<i32>>, distinct_count: f64) -> ColumnStatistics {
    let nulls = values.iter().filter(|value| value.is_none()).count() as u64;
    let known = values.iter().flatten();
    let ends = [known.clone().min(), known.max()].map(|end| end.copied());
    let ends: ArrayRef = Arc::new(Int32Array::from(ends.to_vec()));
    let counts = counts(values.len() as u64, nulls, distinct_count);
    let sample: ArrayRef = Arc::new(Int32Array::from(values));
    ColumnStatistics::summarize(counts, &ends, &sample, None).unwrap()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.011, "{found}, expected {expected}");
}

#[test]
fn few_values_are_all_common() {
    let values = (0..1000).map(|n| (n % 10 > 0).then_some(n % 3)).collect();
    let column = of_integers(values, 3.0);
    assert_eq!(column.common.len(), 3);
    assert!(column.histogram.is_empty());
    near(column.null_fraction, 0.1);
    near(column.rest_fraction(), 0.0);
    near(column.frequency(&ScalarValue::from(1), 1000.0), 0.3);
    near(column.frequency(&ScalarValue::from(7), 1000.0), 0.0);
    near(column.share_below(&ScalarValue::from(1), false).unwrap(), 0.3);
    near(column.share_below(&ScalarValue::from(1), true).unwrap(), 0.6);
    assert!((column.average_width - 4.0).abs() < 1e-9);
}

#[test]
fn one_frequent_value_stands_out_of_many() {
    let values = (0..2000).map(|n| Some(if n % 4 == 0 { -1 } else { n })).collect();
    let column = of_integers(values, 1501.0);
    assert_eq!(column.common.len(), 1);
    near(column.frequency(&ScalarValue::from(-1), 2000.0), 0.25);
    near(column.frequency(&ScalarValue::from(77), 2000.0), 0.0005);
    assert_eq!(column.histogram.len(), HISTOGRAM_PARTS_MAX + 1);
    near(column.share_below(&ScalarValue::from(1000), false).unwrap(), 0.25 + 0.75 / 2.0);
    near(column.share_below(&ScalarValue::from(-5), false).unwrap(), 0.0);
    near(column.share_below(&ScalarValue::from(5000), false).unwrap(), 1.0);
}

#[test]
fn a_condition_is_asked_once_a_value_of_a_dictionary() {
    let values = (0..1000).map(|n| Some(n % 4)).collect();
    let mut column = of_integers(values, 4.0);
    assert_eq!(column.asked_share(), 1.0);
    let stored = |dictionary_share| {
        Some(StoredColumn { row_bytes: 1.0, page_rows: 100.0, dictionary_share })
    };
    column.stored = stored(1.0);
    near(column.asked_share(), 0.04);
    column.stored = stored(0.5);
    near(column.asked_share(), 0.52);
    // More different values than a page has rows.
    let mut column = of_integers((0..1000).map(Some).collect(), 1000.0);
    column.stored = stored(1.0);
    near(column.asked_share(), 0.95);
}

#[test]
fn skewed_values_have_narrow_parts_where_they_are_many() {
    // Squares: half of them lie below a quarter of the greatest.
    let values = (0..1000).map(|n| Some(n * n)).collect();
    let column = of_integers(values, 1000.0);
    near(column.share_below(&ScalarValue::from(250_000), false).unwrap(), 0.5);
    near(column.share_below(&ScalarValue::from(10_000), false).unwrap(), 0.1);
}

#[test]
fn texts_have_an_order_and_no_distances() {
    let names: ArrayRef =
        Arc::new((0..500).map(|n| Some(format!("name {n:03}"))).collect::<StringArray>());
    let ends = new_empty_array(names.data_type());
    let column = ColumnStatistics::summarize(counts(500, 0, 500.0), &ends, &names, None).unwrap();
    near(column.share_below(&ScalarValue::from("name 250"), false).unwrap(), 0.5);
    assert_eq!(column.min, None);
}

#[test]
fn long_texts_are_not_told_apart() {
    let long = "x".repeat(255);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![long.as_str(); 50]));
    let ends = new_empty_array(texts.data_type());
    let column = ColumnStatistics::summarize(counts(5000, 0, 4000.0), &ends, &texts, None).unwrap();
    assert!(column.common.is_empty());
    near(column.distinct_count / 4000.0, 1.0);
}

#[test]
fn distinct_counts_grow_with_tables_whose_values_are_mostly_new() {
    let key = of_integers((0..1000).map(Some).collect(), 1000.0);
    near(key.distinct_count_at(3000.0) / 3000.0, 1.0);
    let kind = of_integers((0..1000).map(|n| Some(n % 7)).collect(), 7.0);
    near(kind.distinct_count_at(3000.0) / 7.0, 1.0);
    near(kind.known_share(4000.0), 0.25);
}

#[test]
fn nothing_gives_nothing() {
    let column = of_integers(vec![None; 10], 0.0);
    near(column.null_fraction, 1.0);
    assert!(column.common.is_empty() && column.histogram.is_empty());
    assert_eq!(column.share_below(&ScalarValue::from(1), false), None);
    near(column.frequency(&ScalarValue::from(1), 10.0), 0.1);
}

/// 10 pages of 100 drawn rows: 5 is everywhere, a tenth of all; 1000 to 1009 fill half of a page each.
fn by_page(pages: Option<&[u64]>) -> ColumnStatistics {
    let value = |row: i32| match row % 100 {
        0..10 => 5,
        10..60 => 1000 + row / 100,
        _ => 2000 + row,
    };
    let values: ArrayRef = Arc::new((0..1000).map(|row| Some(value(row))).collect::<Int32Array>());
    let ends: ArrayRef = Arc::new(Int32Array::from(vec![5, 2999]));
    let counts = counts(100_000, 0, 50_000.0);
    let some = pages.map(|of_rows| SomePages { of_rows, zones: None });
    ColumnStatistics::summarize(counts, &ends, &values, some).unwrap()
}

#[test]
fn a_value_that_fills_a_page_is_not_common_for_that() {
    let pages: Vec<u64> = (0..1000).map(|row| row / 100).collect();
    let found = |column: ColumnStatistics| {
        let values = column.common.iter().map(|(value, _)| value.to_string());
        values.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(found(by_page(Some(&pages))), ["5".to_owned()].into());
    assert_eq!(found(by_page(None)).len(), 11);
    // All of few pages are enough.
    assert_eq!(found(by_page(Some(&[7; 1000]))).len(), 11);
}

#[test]
fn ends_that_all_pages_tell_reach_further_than_those_of_some() {
    let mut column = of_integers((0..2000).map(Some).collect(), 2000.0);
    column.reach(Some(ScalarValue::from(-2000)), None);
    assert_eq!((column.min.clone(), column.max.clone()), (Some((-2000).into()), Some(1999.into())));
    assert_eq!(column.histogram.first(), Some(&ScalarValue::from(-2000)));
    assert_eq!(column.histogram.last(), Some(&ScalarValue::from(1999)));
    // Ends that are no wider leave the histogram.
    column.reach(Some(ScalarValue::from(0)), Some(ScalarValue::from(4000)));
    assert_eq!(column.histogram.first(), Some(&ScalarValue::from(-2000)));
    assert_eq!(column.histogram.last(), Some(&ScalarValue::from(4000)));
}

#[test]
fn zones_of_all_pages_put_values_in_their_place() {
    // 100 pages of 1000 rows in order; 10 rows were drawn of each of pages 3, 17, 40 and 90.
    let read = [3, 17, 40, 90];
    let drawn = read.iter().flat_map(|page| (0..10).map(move |row| page * 1000 + row * 100));
    let drawn: Vec<i32> = drawn.collect();
    let sample: ArrayRef = Arc::new(Int32Array::from(drawn.clone()));
    let of_rows: Vec<u64> =
        drawn.iter().map(|value| u64::from(value.unsigned_abs()) / 1000).collect();
    let zones = PageZones {
        mins: Arc::new((0..100).map(|page| Some(page * 1000)).collect::<Int32Array>()),
        maxs: Arc::new((0..100).map(|page| Some(page * 1000 + 999)).collect::<Int32Array>()),
        rows: vec![1000.0; 100],
    };
    let ends: ArrayRef = Arc::new(Int32Array::from(vec![0, 99_999]));
    let summary = |zones, sample: &ArrayRef| {
        let some = SomePages { of_rows: &of_rows, zones };
        let counts = counts(100_000, 0, 100_000.0);
        ColumnStatistics::summarize(counts, &ends, sample, Some(some)).unwrap()
    };
    let below = |column: &ColumnStatistics, value: i32| {
        column.share_below(&ScalarValue::from(value), false).unwrap()
    };
    let column = summary(Some(&zones), &sample);
    for value in [0, 3500, 10_000, 17_500, 30_000, 50_000, 77_777, 90_500, 99_999] {
        let (found, truth) = (below(&column, value), f64::from(value) / 100_000.0);
        assert!((found - truth).abs() < 0.03, "{value}: {found}");
    }
    assert!((below(&summary(None, &sample), 30_000) - 0.3).abs() > 0.15, "what zones are for");
    // A value that fills page 40 alone has a page's share, not a quarter.
    let filled = drawn.iter().map(|value| if value / 1000 == 40 { 40_000 } else { *value });
    let filled: ArrayRef = Arc::new(filled.map(Some).collect::<Int32Array>());
    let column = summary(Some(&zones), &filled);
    assert!(column.common.is_empty(), "{:?}", column.common);
    let share = column.histogram.iter().filter(|value| **value == ScalarValue::from(40_000));
    assert!(share.count() < 4);
    // Zones of another type, or that are not known, change nothing.
    let unknown = PageZones {
        mins: Arc::new(Int32Array::from(vec![None; 100])),
        maxs: Arc::new(Int32Array::from(vec![None; 100])),
        rows: vec![1000.0; 100],
    };
    let plain = summary(None, &sample);
    for value in [0, 3500, 17_500, 40_500, 99_999] {
        let found = below(&summary(Some(&unknown), &sample), value);
        assert!((found - below(&plain, value)).abs() < 0.03, "{value}: {found}");
    }
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 100]));
    let other = PageZones { mins: Arc::clone(&texts), maxs: texts, rows: vec![1000.0; 100] };
    assert_eq!(summary(Some(&other), &sample), plain);
}
