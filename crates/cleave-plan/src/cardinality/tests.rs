//! The estimates order predicates as a person would.

use datafusion_expr::{col, lit};

use super::*;

struct Facts;

impl TableFacts for Facts {
    fn row_count(&self, _table: &str) -> Option<f64> {
        Some(10_000.0)
    }

    fn distinct_count(&self, _table: &str, column: &str) -> Option<f64> {
        (column == "id").then_some(10_000.0)
    }
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
