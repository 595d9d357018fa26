//! Filters reach their column by its position, and stop where they would change rows.

use arrow::datatypes::{DataType, Field, Schema};
use cleave_store::{ColumnRef, Projection};
use datafusion_common::NullEquality;
use datafusion_expr::Operator;
use datafusion_functions_aggregate::min_max::min_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, lit};
use datafusion_physical_plan::aggregates::{AggregateMode, PhysicalGroupBy};
use datafusion_physical_plan::joins::PartitionMode;
use datafusion_physical_plan::limit::GlobalLimitExec;

use super::*;
use crate::operators::table_scan_exec::{References, TableScan};

/// A scan of a table with the columns id and k.
fn scan(table: &str) -> Arc<dyn ExecutionPlan> {
    let fields = ["id", "k"].map(|name| Field::new(name, DataType::Int32, true));
    let none = Arc::new(Schema::empty());
    let scan = TableScan {
        table: table.into(),
        table_id: 1,
        output: Projection::new(
            Arc::new(Schema::new(fields.to_vec())),
            vec![ColumnRef::User(1), ColumnRef::User(2)],
        ),
        filter: Projection::new(none, vec![]),
        predicate: None,
        input: 0,
        fetch: None,
        references: References::None,
    };
    Arc::new(TableScanExec::new(scan, 1))
}

/// `left` joined with `right` on column `on` of each.
fn join(
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    on: [usize; 2],
    kind: JoinType,
) -> Arc<dyn ExecutionPlan> {
    let on = (column(left.as_ref(), on[0]).unwrap(), column(right.as_ref(), on[1]).unwrap());
    let mode = PartitionMode::CollectLeft;
    let nulls = NullEquality::NullEqualsNothing;
    let join = HashJoinExec::try_new(left, right, vec![on], None, &kind, None, mode, nulls, false);
    Arc::new(join.unwrap())
}

/// The filters of the scans of `plan`, from left to right, as `table: column@position ...`.
fn filters(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let mut found = Vec::new();
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<TableScanExec>() {
            let keys = scan.dynamic_filters().iter().flat_map(|filter| filter.children());
            let keys: Vec<String> = keys.map(ToString::to_string).collect();
            found.push(format!("{}: {}", scan.scan().table, keys.join(" ")));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    found
}

fn handed_down(plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
    filters(&hand_down_filters(plan, &ConfigOptions::default()).unwrap())
}

#[test]
fn a_key_goes_to_its_own_column_of_two_with_one_name() {
    // Columns of a and b: id, k, id, k.
    let below = || join(scan("a"), scan("b"), [0, 0], JoinType::Inner);
    let top = join(scan("c"), below(), [1, 3], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: ", "b: k@1 id@0"]);
    let top = join(scan("c"), below(), [1, 1], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: k@1", "b: id@0"]);
}

#[test]
fn rows_that_an_outer_join_keeps_are_left_alone() {
    let below = || join(scan("a"), scan("b"), [0, 0], JoinType::Left);
    let top = join(scan("c"), below(), [1, 3], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: ", "b: id@0"]);
    let top = join(scan("c"), below(), [1, 1], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: k@1", "b: id@0"]);
    // Rows of the other side match only rows with the same key.
    let top = join(scan("c"), below(), [1, 0], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: id@0", "b: id@0 id@0"]);
    let top = join(scan("c"), below(), [1, 2], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: ", "b: id@0"]);
}

#[test]
fn keys_of_one_side_of_a_join_go_to_both() {
    let below = || join(scan("a"), scan("b"), [0, 1], JoinType::Inner);
    let top = join(scan("c"), below(), [1, 0], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: id@0", "b: k@1 k@1"]);
    let top = join(scan("c"), below(), [1, 3], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: id@0", "b: k@1 k@1"]);
    let below = join(scan("a"), scan("b"), [0, 1], JoinType::LeftAnti);
    let top = join(scan("c"), below, [1, 0], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: id@0", "b: k@1"]);
}

#[test]
fn a_semi_join_takes_keys_of_its_output_to_both_sides() {
    let below = join(scan("a"), scan("b"), [0, 1], JoinType::LeftSemi);
    let top = join(scan("c"), below, [1, 0], JoinType::Inner);
    assert_eq!(handed_down(top), ["c: ", "a: id@0", "b: k@1 k@1"]);
}

/// `left` joined with `right` on both of their first columns.
fn join_on_two(
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    places: [usize; 2],
) -> Arc<dyn ExecutionPlan> {
    let on = [0, 1].map(|place| {
        let (left, right) = (column(left.as_ref(), place), column(right.as_ref(), places[place]));
        (left.unwrap(), right.unwrap())
    });
    let (mode, nulls) = (PartitionMode::CollectLeft, NullEquality::NullEqualsNothing);
    let kind = JoinType::Inner;
    let join =
        HashJoinExec::try_new(left, right, on.to_vec(), None, &kind, None, mode, nulls, false);
    Arc::new(join.unwrap())
}

#[test]
fn of_a_key_of_two_parts_the_part_goes_down_that_can() {
    let grouped = |by: usize| -> Arc<dyn ExecutionPlan> {
        let input = scan("a");
        let key = (column(input.as_ref(), by).unwrap(), "key".to_owned());
        let group_by = PhysicalGroupBy::new_single(vec![key]);
        let least = AggregateExprBuilder::new(min_udaf(), vec![column(input.as_ref(), 0).unwrap()])
            .schema(input.schema())
            .alias("least")
            .build();
        let (mode, schema) = (AggregateMode::Single, input.schema());
        let least = vec![Arc::new(least.unwrap())];
        let aggregate =
            AggregateExec::try_new(mode, group_by, least, vec![None], input, schema).unwrap();
        Arc::new(aggregate)
    };
    assert_eq!(
        handed_down(join_on_two(scan("c"), grouped(1), [0, 1])),
        ["c: ", "a: k@1 absent key"]
    );
    // Of what is computed alone nothing is left.
    assert_eq!(handed_down(join_on_two(scan("c"), grouped(1), [1, 1])), ["c: ", "a: "]);
    // Each input of the join below has one part.
    let below = join(scan("a"), scan("b"), [0, 0], JoinType::Inner);
    assert_eq!(
        handed_down(join_on_two(scan("c"), below, [1, 3])),
        ["c: ", "a: k@1 absent key", "b: absent key k@1 id@0"]
    );
}

#[test]
fn nothing_goes_below_a_limit() {
    let below = Arc::new(GlobalLimitExec::new(scan("a"), 0, Some(5)));
    assert_eq!(handed_down(join(scan("c"), below, [1, 1], JoinType::Inner)), ["c: ", "a: "]);
}

#[test]
fn a_projection_is_followed_by_position() {
    let input = scan("a");
    let (id, k) = (column(input.as_ref(), 0).unwrap(), column(input.as_ref(), 1).unwrap());
    let names = vec![(k, "x".to_owned()), (id, "x".to_owned())];
    let below = Arc::new(ProjectionExec::try_new(names, input).unwrap());
    assert_eq!(handed_down(join(scan("c"), below, [1, 1], JoinType::Inner)), ["c: ", "a: id@0"]);
}

#[test]
fn what_may_fail_stays_above_operators_that_leave_out_rows() {
    let key = |input: &dyn ExecutionPlan, operator, by: i32| {
        let (left, right) = (column(input, 0).unwrap(), lit(by));
        Arc::new(BinaryExpr::new(left, operator, right)) as Arc<dyn PhysicalExpr>
    };
    let computed = |input: Arc<dyn ExecutionPlan>, expr| {
        let named = vec![(expr, "x".to_owned())];
        Arc::new(ProjectionExec::try_new(named, input).unwrap()) as Arc<dyn ExecutionPlan>
    };
    let over = |input: Arc<dyn ExecutionPlan>| {
        let division = key(input.as_ref(), Operator::Divide, 0);
        handed_down(join(scan("c"), computed(input, division), [0, 0], JoinType::Inner))
    };
    // The projection divides in each row of the scan, with or without the filter.
    assert_eq!(over(scan("a")), ["c: ", "a: id@0 / 0"]);
    let some = key(scan("a").as_ref(), Operator::Gt, 5);
    let filtered = Arc::new(FilterExec::try_new(some, scan("a")).unwrap());
    assert_eq!(over(filtered), ["c: ", "a: "]);
    let joined = join(scan("a"), scan("b"), [0, 0], JoinType::Inner);
    assert_eq!(over(joined), ["c: ", "a: ", "b: id@0"]);
}
