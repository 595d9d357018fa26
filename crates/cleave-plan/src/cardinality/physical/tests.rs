//! Estimates of nodes that are known, and of those that follow from their inputs.

use arrow::datatypes::{DataType, Field, Schema};
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_store::{ColumnRef, Projection};
use datafusion_common::stats::Precision;
use datafusion_common::{NullEquality, Statistics};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, lit};
use datafusion_physical_plan::aggregates::{AggregateMode, PhysicalGroupBy};
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::joins::PartitionMode;
use datafusion_physical_plan::limit::GlobalLimitExec;

use super::*;

/// A scan with the morsel input `input`, of so many rows with so many different keys.
fn scan(input: u32, rows: usize, distinct_count: usize) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, true)]));
    let none = Arc::new(Schema::empty());
    let scan = TableScan {
        table: format!("t{input}"),
        table_id: 1,
        output: Projection::new(Arc::clone(&schema), vec![ColumnRef::User(1)]),
        filter: Projection::new(none, vec![]),
        predicate: None,
        input,
        fetch: None,
        references: References::None,
    };
    let mut statistics = Statistics::new_unknown(&schema);
    statistics.num_rows = Precision::Inexact(rows);
    statistics.column_statistics[0].distinct_count = Precision::Inexact(distinct_count);
    Arc::new(TableScanExec::new(scan, 1).with_statistics(statistics))
}

fn join(
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    kind: JoinType,
) -> Arc<dyn ExecutionPlan> {
    let key = || Arc::new(Column::new("k", 0)) as Arc<dyn PhysicalExpr>;
    let (mode, nulls) = (PartitionMode::CollectLeft, NullEquality::NullEqualsNothing);
    let on = vec![(key(), key())];
    let join = HashJoinExec::try_new(left, right, on, None, &kind, None, mode, nulls, false);
    Arc::new(join.unwrap())
}

fn key(input: u32) -> LeafKey {
    LeafKey::new(&format!("t{input}"), [])
}

#[test]
fn what_was_expected_of_a_join_is_expected_of_any_plan_of_it() {
    let mut known = PlanEstimates::default();
    known.expect_scan(0, key(0), 7.0);
    known.expect_scan(1, key(1), 5.0);
    known.expect_join(vec![key(0), key(1)], 3e6);
    let merged = Arc::new(CoalescePartitionsExec::new(scan(1, 10, 10)));
    let plan = join(merged, scan(0, 10, 10), JoinType::Inner);
    assert_eq!(estimate_rows(&plan, &known), [3e6, 5.0, 5.0, 7.0]);
    // An outer join of them is another thing, and keeps all rows of its side.
    let plan = join(scan(1, 10, 10), scan(0, 10, 10), JoinType::Left);
    assert_eq!(estimate_rows(&plan, &known), [5.0, 5.0, 7.0]);
    // So is a join of some of the rows.
    let limit = Arc::new(GlobalLimitExec::new(scan(0, 10, 10), 0, Some(2)));
    let plan = join(scan(1, 10, 10), limit, JoinType::Inner);
    assert_eq!(estimate_rows(&plan, &known)[1..], [5.0, 2.0, 7.0]);
    assert!(estimate_rows(&plan, &known)[0] <= 10.0);
}

#[test]
fn joins_follow_from_the_keys_of_their_inputs() {
    let known = PlanEstimates::default();
    let of = |kind| estimate_rows(&join(scan(0, 100, 50), scan(1, 1000, 200), kind), &known)[0];
    assert_eq!(of(JoinType::Inner), 100.0 * 1000.0 / 200.0);
    assert_eq!(of(JoinType::Right), 1000.0);
    assert_eq!(of(JoinType::LeftSemi), 100.0);
    assert_eq!(of(JoinType::RightSemi), 250.0);
    assert_eq!(of(JoinType::RightAnti), 750.0);
    assert_eq!(of(JoinType::LeftAnti), 10.0);
    assert_eq!(of(JoinType::RightMark), 1000.0);
}

#[test]
fn nodes_that_one_hides_come_in_the_place_of_its_inputs() {
    let hiding = Arc::new(CoalescePartitionsExec::new(scan(0, 9, 9))) as Arc<dyn ExecutionPlan>;
    let below = |node: &Arc<dyn ExecutionPlan>| {
        (node.name() == "CoalescePartitionsExec").then(|| scan(1, 4, 4))
    };
    let rows = estimate_rows_with(&hiding, &PlanEstimates::default(), &below);
    assert_eq!(rows, [4.0, 4.0]);
}

#[test]
fn groups_of_expressions_follow_from_what_they_can_give() {
    let of = |key: Arc<dyn PhysicalExpr>| {
        let input = scan(0, 1_000_000, 500_000);
        let schema = input.schema();
        let keys = PhysicalGroupBy::new_single(vec![(key, "key".to_owned())]);
        let plan =
            AggregateExec::try_new(AggregateMode::Single, keys, vec![], vec![], input, schema);
        let plan: Arc<dyn ExecutionPlan> = Arc::new(plan.unwrap());
        estimate_rows(&plan, &PlanEstimates::default())[0]
    };
    let k = || Arc::new(Column::new("k", 0)) as Arc<dyn PhysicalExpr>;
    let with = |operator, value: i32| {
        Arc::new(BinaryExpr::new(k(), operator, lit(value))) as Arc<dyn PhysicalExpr>
    };
    // One more each, for NULL.
    assert_eq!(of(k()), 500_001.0);
    assert_eq!(of(with(Operator::Modulo, 50)), 51.0);
    assert_eq!(of(with(Operator::Modulo, -50)), 51.0);
    assert_eq!(of(with(Operator::Lt, 50)), 3.0);
    assert_eq!(of(with(Operator::Plus, 50)), 100_001.0);
    let choice = vec![(with(Operator::Lt, 5), lit("few")), (with(Operator::Lt, 9), lit("more"))];
    let choice = CaseExpr::try_new(None, choice, Some(lit("many"))).unwrap();
    assert_eq!(of(Arc::new(choice)), 4.0);
}
