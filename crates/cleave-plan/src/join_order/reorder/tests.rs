//! Reordered plans keep their columns, follow edges, and put conditions where their columns are.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::{col, lit, table_scan};

use super::*;
use crate::cost::{ScanWork, ShapeNode, Work};

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
    let reordered = reorder_joins(plan, &[], &Facts).unwrap().cheapest.plan;
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
    let reordered = reorder_joins(plan, &[], &Facts).unwrap().cheapest.plan;
    assert!(reordered.display_indent().to_string().contains("large.id > middle.ref_id"));
}

#[test]
fn joins_that_share_a_column_keep_their_order_and_say_so() {
    let twice = join(table("large"), table("small"), ("large.ref_id", "small.id"));
    let plan = twice.clone().build().unwrap();
    assert!(!reorder_joins(plan, &[], &Facts).unwrap().keeps_joins);
    // Both sides hold a column `small.id`, which the projections hide.
    let hidden = twice.project(vec![col("large.id")]).unwrap();
    let right = join(table("middle"), table("small"), ("middle.ref_id", "small.id"));
    let right = right.project(vec![col("middle.id")]).unwrap();
    let plan = join(hidden, right, ("large.id", "middle.id")).build().unwrap();
    let kept = reorder_joins(plan, &[], &Facts).unwrap();
    assert!(kept.keeps_joins, "{}", kept.cheapest.plan.display_indent());
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
    let text = reorder_joins(plan, &[], &Facts).unwrap().cheapest.plan.display_indent().to_string();
    assert!(text.contains("Left Join: large.ref_id = middle.id"), "{text}");
}

#[test]
fn plan_without_joins_is_unchanged() {
    let plan = table("small").filter(col("id").eq(lit(1))).unwrap().build().unwrap();
    assert_eq!(reorder_joins(plan.clone(), &[], &Facts).unwrap().cheapest.plan, plan);
}

#[test]
fn an_implied_equality_joins_and_none_is_asked_twice() {
    // Written as a star around the large table; the two small ones meet first, by an equality that only follows.
    let plan = join(
        join(table("large"), table("small"), ("large.ref_id", "small.ref_id")),
        table("middle"),
        ("large.ref_id", "middle.id"),
    )
    .build()
    .unwrap();
    let text = reorder_joins(plan, &[], &Facts).unwrap().cheapest.plan.display_indent().to_string();
    assert!(text.contains("Inner Join: small.ref_id = middle.id\n"), "{text}");
    assert_eq!(text.matches("large.ref_id = ").count() + text.matches("= large.ref_id").count(), 1);
}

#[test]
fn two_keys_of_one_leaf_are_both_asked() {
    let small = table("small").build().unwrap();
    let on = (vec!["large.id", "large.ref_id"], vec!["small.id", "small.id"]);
    let plan = table("large").join(small, JoinType::Inner, on, None).unwrap().build().unwrap();
    let text = reorder_joins(plan, &[], &Facts).unwrap().cheapest.plan.display_indent().to_string();
    assert!(text.contains("large.id") && text.contains("large.ref_id"), "{text}");
    let join = text.lines().find(|line| line.contains("Join")).unwrap();
    assert!(join.contains("small.id = large.id") && join.contains("small.id = large.ref_id"));
}

#[test]
fn what_is_expected_of_a_join_is_found_by_its_leaves() {
    let plan = join(table("large"), table("small"), ("large.ref_id", "small.id"));
    let plan = plan.filter(col("small.id").eq(lit(7))).unwrap().build().unwrap();
    let estimates = reorder_joins(plan, &[], &Facts).unwrap().cheapest.estimates;
    let (small, large) = (LeafKey::new("small", []), LeafKey::new("large", []));
    assert_eq!(estimates.leaf(&large), Some(1e6));
    let rows = estimates.join(vec![large.clone(), small.clone()]);
    assert_eq!(rows, estimates.join(vec![small, large]));
    assert!(rows.is_some());
}

#[test]
fn leading_names_join_first_whatever_they_cost() {
    let plan = || {
        let large = table("large").alias("l").unwrap();
        let plan = join(large, table("middle"), ("l.ref_id", "middle.id"));
        join(plan, table("small"), ("middle.ref_id", "small.id")).build().unwrap()
    };
    let leading = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        reorder_joins(plan(), &names, &Facts).unwrap()
    };
    let cheapest = leading(&[]);
    assert_eq!(
        cheapest.names.iter().map(String::as_str).collect::<Vec<_>>(),
        ["l", "middle", "small"]
    );
    let text = leading(&["l", "middle"]).cheapest.plan.display_indent().to_string();
    // The other one is joined above them.
    let depth = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!("TableScan: {name}"))).unwrap();
        line.len() - line.trim_start().len()
    };
    assert!(depth("small") < depth("middle") && depth("small") < depth("large"), "{text}");
    // Unknown names change nothing.
    assert_eq!(leading(&["nothing"]).cheapest.plan, cheapest.cheapest.plan);
}

/// Of `held` the host has all pages; the others lie on a device behind a slow link.
struct Far;

impl TableFacts for Far {
    fn row_count(&self, table: &str) -> Option<f64> {
        Some(match table {
            "held" => 100.0,
            "facts" => 1e6,
            _ => 1.5e5,
        })
    }

    fn distinct_count(&self, table: &str, column: &str) -> Option<f64> {
        if (table, column) == ("facts", "ref_id") { Some(1e3) } else { self.row_count(table) }
    }
}

fn scan_of(key: &LeafKey, is_far: bool) -> LeafCost {
    let table = ["held", "facts", "notes"]
        .into_iter()
        .find(|table| *key == LeafKey::new(table, []))
        .unwrap();
    let rows = Far.row_count(table).unwrap();
    let scan = ShapeNode {
        work: Work::Scan(ScanWork {
            rows,
            rows_kept: rows,
            output_columns: 2.0,
            pages: rows / 1e4,
            chunk_bytes: rows * 8.0,
            held_bytes: if table == "held" { rows * 8.0 } else { 0.0 },
            ..ScanWork::default()
        }),
        inputs: Vec::new(),
        rows,
        row_bytes: 48.0,
        may_share: true,
        is_broadcast: false,
    };
    let is_far = is_far && table != "held";
    let device_s = is_far.then_some(rows * 1e-8);
    LeafCost { scan, host_s: rows * 1e-5, device_s, device: is_far.then_some(0) }
}

#[test]
fn an_order_whose_first_join_lies_on_the_device_is_offered_where_less_crosses() {
    let plan = join(
        join(table("facts"), table("held"), ("facts.ref_id", "held.id")),
        table("notes"),
        ("facts.id", "notes.ref_id"),
    )
    .build()
    .unwrap();
    let mut profile = Profile::assumed();
    profile.link.bytes_per_second = 1e6;
    let limits = Limits {
        device_memory_bytes: 64 << 20,
        host_memory_bytes: 1 << 30,
        device_load: 0.0,
        slot_size: crate::cost::SlotSize::Fixed(256 << 10),
        slot_count: 16,
        device_partitions: 2,
        host_threads: 2,
        shares_work: false,
        lent_share: 0.0,
        cut_share_max: 0.57,
        broadcast_bytes: 0,
    };
    let columns = plan.schema().columns();
    let reordered = reorder_joins(plan, &[], &Far).unwrap();
    assert!(reordered.has_orders());
    // The least work: the facts are fewer once they have met what the host holds.
    assert_eq!(reordered.cheapest.orders, ["(held facts) notes"]);
    let leaf = |key: &LeafKey| Some(scan_of(key, true));
    let found = reordered.others(leaf, (&profile, &limits), 0.9).unwrap();
    assert!(found.looked_at >= 2);
    let others = found.orders;
    assert_eq!(others[0].orders, ["held (notes facts)"]);
    assert_eq!(others[0].plan.schema().columns(), columns);
    assert_eq!(
        others[0].plan.display_indent().to_string(),
        "Projection: facts.id, facts.ref_id, held.id, held.ref_id, notes.id, notes.ref_id\
         \n  Inner Join: held.id = facts.ref_id\
         \n    TableScan: held\
         \n    Inner Join: notes.ref_id = facts.id\
         \n      TableScan: notes\
         \n      TableScan: facts"
    );
    let keys = ["facts", "notes"].map(|table| LeafKey::new(table, []));
    assert_eq!(others[0].estimates.join(keys.to_vec()), Some(1.5e5));
    // Nothing is gained where no device can run a join.
    let leaf = |key: &LeafKey| Some(scan_of(key, false));
    assert!(reordered.others(leaf, (&profile, &limits), 0.9).unwrap().orders.is_empty());
}
