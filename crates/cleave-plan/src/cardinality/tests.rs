//! Estimates rank predicates as a person would.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::{col, lit};

use super::*;
use crate::{ColumnFacts, ColumnStatistics, SampledRows};

struct Facts;

impl TableFacts for Facts {
    fn row_count(&self, _table: &str) -> Option<f64> {
        Some(10_000.0)
    }

    fn distinct_count(&self, _table: &str, column: &str) -> Option<f64> {
        (column == "id").then_some(10_000.0)
    }

    fn column(&self, _table: &str, column: &str) -> ColumnFacts {
        let (min, max) = match column {
            "year" => (ScalarValue::from(1900), ScalarValue::from(2000)),
            "day" => (ScalarValue::Date32(Some(0)), ScalarValue::Date32(Some(10))),
            "price" => (
                ScalarValue::Decimal128(Some(0), 9, 2),
                ScalarValue::Decimal128(Some(10_000), 9, 2),
            ),
            "one" => (ScalarValue::from(5), ScalarValue::from(5)),
            "name" => (ScalarValue::from("a"), ScalarValue::from("z")),
            _ => return ColumnFacts::default(),
        };
        let null_fraction = Some(if column == "price" { 0.5 } else { 0.0 });
        ColumnFacts { null_fraction, min: Some(min), max: Some(max), statistics: None }
    }
}

/// 10,000 rows, all analysed: `kind` is 1 in half of the rows, 2 in a fifth, otherwise one of 8 more; `note` has a
/// tenth of NULLs and texts that are not common; `half` was analysed when there were half as many rows.
struct Analyzed;

impl TableFacts for Analyzed {
    fn row_count(&self, _table: &str) -> Option<f64> {
        Some(10_000.0)
    }

    fn distinct_count(&self, table: &str, column: &str) -> Option<f64> {
        self.column(table, column).statistics.map(|known| known.distinct_count)
    }

    fn column(&self, _table: &str, column: &str) -> ColumnFacts {
        let known = match column {
            "kind" => ColumnStatistics {
                row_count: 10_000,
                distinct_count: 10.0,
                min: Some(1.into()),
                max: Some(10.into()),
                common: vec![(1.into(), 0.5), (2.into(), 0.2)],
                histogram: (3..=10).flat_map(|n| [n, n]).map(ScalarValue::from).collect(),
                ..ColumnStatistics::default()
            },
            "note" => ColumnStatistics {
                row_count: 10_000,
                null_fraction: 0.1,
                distinct_count: 5000.0,
                min: Some("note 000".into()),
                max: Some("note 099".into()),
                histogram: (0..100).map(|n| format!("note {n:03}").as_str().into()).collect(),
                ..ColumnStatistics::default()
            },
            "half" => ColumnStatistics {
                row_count: 5000,
                distinct_count: 5000.0,
                min: Some(0.into()),
                max: Some(100.into()),
                histogram: (0..=100).map(ScalarValue::from).collect(),
                ..ColumnStatistics::default()
            },
            _ => return ColumnFacts::default(),
        };
        ColumnFacts {
            null_fraction: Some(known.null_fraction),
            min: known.min.clone(),
            max: if column == "half" { Some(200.into()) } else { known.max.clone() },
            statistics: Some(Arc::new(known)),
        }
    }
}

#[track_caller]
fn analyzed(predicate: &Expr, expected: f64) {
    let share = selectivity(predicate, "t", 10_000.0, &Analyzed);
    assert!((share - expected).abs() < 0.006, "{predicate}: {share}, expected {expected}");
}

#[test]
fn common_values_have_their_frequency_and_the_others_an_equal_part() {
    analyzed(&col("kind").eq(lit(1)), 0.5);
    analyzed(&lit(2_i64).eq(col("kind")), 0.2);
    analyzed(&col("kind").eq(lit(5)), 0.3 / 8.0);
    analyzed(&col("kind").eq(lit(77)), 1e-4);
    analyzed(&col("kind").not_eq(lit(1)), 0.5);
    analyzed(&col("kind").in_list(vec![lit(1), lit(2), lit(5)], false), 0.7 + 0.3 / 8.0);
    analyzed(&col("kind").in_list(vec![lit(1), lit(2)], true), 0.3);
    analyzed(&col("kind").eq(lit(1)).or(col("kind").eq(lit(2))), 0.7);
    analyzed(&col("kind").eq(lit(1)).or(col("note").eq(lit("x"))), 0.5);
    analyzed(&col("note").not_eq(lit("note 001")), 0.9);
}

#[test]
fn ranges_follow_common_values_and_histogram() {
    analyzed(&col("kind").lt(lit(2)), 0.5);
    analyzed(&col("kind").lt_eq(lit(2)), 0.7);
    analyzed(&col("kind").gt(lit(2)), 0.3);
    analyzed(&col("kind").between(lit(1), lit(2)), 0.7);
    analyzed(&col("note").lt(lit("note 050")), 0.45);
    // Both ends of one range are not independent.
    analyzed(&col("note").gt_eq(lit("note 040")).and(col("note").lt(lit("note 050"))), 0.09);
    // Half of the rows came since, anywhere up to 200.
    analyzed(&col("half").lt(lit(50)), 0.5 * 0.5 + 0.5 * 0.25);
    analyzed(&col("half").gt(lit(150)), 0.5 * 0.25);
}

#[test]
fn conditions_of_any_shape_are_tried_on_the_values() {
    analyzed(&col("note").like(lit("%7")), 0.09);
    analyzed(&col("note").like(lit("note%")), 0.9);
    analyzed(&col("note").not_like(lit("%7")), 0.81);
    analyzed(&col("note").like(lit("%absent%")), 0.005);
    analyzed(&(col("kind") % lit(2)).eq(lit(0)), 0.2 + 0.3 * 0.5);
    analyzed(&col("note").is_null().or(col("note").like(lit("%7"))), 0.1 + 0.9 * 0.1);
    // No statistics, several columns: the shape alone.
    let share = selectivity(&col("kind").lt(col("half")), "t", 10_000.0, &Analyzed);
    assert!((share - RANGE).abs() < 1e-9);
}

#[track_caller]
fn about(predicate: &Expr, expected: f64) {
    let share = share(predicate);
    assert!((share - expected).abs() < 1e-9, "{predicate}: {share}, expected {expected}");
}

#[test]
fn ranges_take_their_part_of_what_lies_between_the_ends() {
    about(&col("year").lt(lit(1925)), 0.25);
    about(&col("year").gt_eq(lit(1925)), 0.75);
    about(&lit(1925).gt(col("year")), 0.25);
    about(&col("year").between(lit(1950), lit(1960)), 0.1);
    about(&col("year").not_between(lit(1950), lit(1960)), 0.9);
    about(&col("year").lt(lit(1950_i64)), 0.5);
    about(&datafusion_expr::cast(col("year"), DataType::Int64).lt(lit(1950_i64)), 0.5);
    about(&col("day").lt(lit(ScalarValue::TimestampMicrosecond(Some(86_400_000_000), None))), 0.1);
    // Beyond the ends: nearly nothing, or all.
    about(&col("year").gt(lit(2500)), 1e-4);
    about(&col("year").lt(lit(2500)), 1.0);
    about(&col("one").gt(lit(1)), 1.0);
    // Half of it is NULL, which no range keeps.
    about(&col("price").lt(lit(ScalarValue::Decimal128(Some(50), 3, 0))), 0.25);
}

#[test]
fn nulls_are_counted_where_they_are_known() {
    about(&col("price").is_null(), 0.5);
    about(&col("price").is_not_null(), 0.5);
    about(&col("year").is_null(), 0.0);
    about(&col("unknown").is_null(), IS_NULL);
}

#[test]
fn what_has_no_distances_keeps_the_share_of_its_kind() {
    about(&col("name").lt(lit("k")), RANGE);
    about(&col("unknown").lt(lit(1)), RANGE);
    about(&col("year").lt(col("id")), RANGE);
}

fn share(predicate: &Expr) -> f64 {
    selectivity(predicate, "t", 10_000.0, &Facts)
}

#[test]
fn key_equality_keeps_one_row() {
    assert!((share(&col("id").eq(lit(7))) - 1e-4).abs() < 1e-12);
}

#[test]
fn conjunction_keeps_fewer_than_its_parts_and_disjunction_more() {
    let (a, b) = (col("x").eq(lit(1)), col("y").gt(lit(2)));
    let both = share(&a.clone().and(b.clone()));
    let either = share(&a.clone().or(b.clone()));
    assert!(both < share(&a) && both < share(&b));
    assert!(either > share(&a) && either > share(&b) && either < 1.0);
}

#[test]
fn negation_complements() {
    let like = col("x").like(lit("%a%"));
    assert!((share(&like) + share(&!like.clone()) - 1.0).abs() < 1e-12);
}

#[test]
fn long_in_list_stays_a_share() {
    let list = (0..1000).map(lit).collect();
    assert!(share(&col("x").in_list(list, false)) <= 1.0);
}

/// A thousand of 10,000 rows: `a` and `b` are the same in all of them, one of ten values.
struct Sampled;

impl TableFacts for Sampled {
    fn row_count(&self, _table: &str) -> Option<f64> {
        Some(10_000.0)
    }

    fn distinct_count(&self, _table: &str, _column: &str) -> Option<f64> {
        Some(10.0)
    }

    fn sample(&self, table: &str) -> Option<Arc<SampledRows>> {
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values((0..1000).map(|n| n % 10)));
        let rows = [("a", Arc::clone(&values)), ("b", values)];
        let rows = RecordBatch::try_from_iter(rows).unwrap();
        Some(Arc::new(SampledRows { rows, is_whole: table == "whole" }))
    }
}

#[test]
fn conditions_that_go_together_are_seen_to() {
    let share = |table: &str, predicates: &[Expr]| {
        selectivity_of_all(predicates, table, 10_000.0, &Sampled)
    };
    let both = |a: i32, b: i32| vec![col("t.a").eq(lit(a)), col("t.b").eq(lit(b))];
    assert!((share("t", &both(1, 1)) - 0.1).abs() < 1e-9);
    // Never seen together: fewer than one in a thousand, in a table that is known whole none.
    let none = share("t", &both(1, 2));
    assert!(none > 0.0 && none <= 0.5 / 1000.0, "{none}");
    assert_eq!(share("whole", &both(1, 2)), 0.0);
    let either = col("a").eq(lit(1)).or(col("b").eq(lit(2)));
    assert!((share("t", &[either]) - 0.2).abs() < 1e-9);
    assert!((share("t", &[col("a").lt(col("b") + lit(1))]) - 1.0).abs() < 1e-9);
    // One that cannot be tried: as if they had nothing in common.
    let mut unknown = both(1, 1);
    unknown.push(col("absent").eq(lit(1)));
    assert!((share("t", &unknown) - 0.001).abs() < 1e-9);
}
