//! The estimates order predicates as a person would.

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::{col, lit};

use super::*;
use crate::ColumnFacts;

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
        ColumnFacts { null_fraction, min: Some(min), max: Some(max) }
    }
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
