//! Reordered plans keep their columns, follow edges, and put conditions where their columns are.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::{col, lit, table_scan};

use super::*;

struct Facts;

impl TableFacts for Facts {
    fn row_count(&self, table: &str) -> Option<f64> {
        Some(match table {
            "small" => 10.0,
            "middle" => 10_000.0,
            _ => 1_000_000.0,
        })
    }

    fn distinct_count(&self, table: &str, column: &str) -> Option<f64> {
        (column == "id").then(|| self.row_count(table)).flatten()
    }
}

fn table(name: &str) -> LogicalPlanBuilder {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("ref_id", DataType::Int32, false),
    ]);
    table_scan(Some(name), &schema, None).unwrap()
}

fn join(
    left: LogicalPlanBuilder,
    right: LogicalPlanBuilder,
    on: (&str, &str),
) -> LogicalPlanBuilder {
    let right = right.build().unwrap();
    left.join(right, JoinType::Inner, (vec![on.0], vec![on.1]), None).unwrap()
}

#[test]
fn largest_table_joins_last_and_columns_stay() {
    // As written: large with middle, then small.
    let plan = join(
        join(table("large"), table("middle"), ("large.ref_id", "middle.id")),
        table("small"),
        ("middle.ref_id", "small.id"),
    )
    .build()
    .unwrap();
    let columns = plan.schema().columns();
    let reordered = reorder_joins(plan, &Facts).unwrap();
    assert_eq!(reordered.schema().columns(), columns);
    let text = reordered.display_indent().to_string();
    let position = |name: &str| text.find(&format!("TableScan: {name}")).unwrap();
    assert!(
        position("small") < position("large") && position("middle") < position("large"),
        "{text}"
    );
    assert!(!text.contains("Cross"), "{text}");
}

#[test]
fn condition_over_two_tables_is_kept() {
    let plan = join(table("large"), table("middle"), ("large.ref_id", "middle.id"))
        .filter(col("large.id").gt(col("middle.ref_id")))
        .unwrap()
        .build()
        .unwrap();
    let reordered = reorder_joins(plan, &Facts).unwrap();
    assert!(reordered.display_indent().to_string().contains("large.id > middle.ref_id"));
}

#[test]
fn outer_join_is_a_leaf() {
    let left = table("large")
        .join(
            table("middle").build().unwrap(),
            JoinType::Left,
            (vec!["large.ref_id"], vec!["middle.id"]),
            None,
        )
        .unwrap();
    let plan = join(left, table("small"), ("large.id", "small.id")).build().unwrap();
    let text = reorder_joins(plan, &Facts).unwrap().display_indent().to_string();
    assert!(text.contains("Left Join: large.ref_id = middle.id"), "{text}");
}

#[test]
fn plan_without_joins_is_unchanged() {
    let plan = table("small").filter(col("id").eq(lit(1))).unwrap().build().unwrap();
    assert_eq!(reorder_joins(plan.clone(), &Facts).unwrap(), plan);
}
