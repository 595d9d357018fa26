//! Operators in plain words, on plans made by hand.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinType, NullEquality};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, PiecewiseMergeJoinExec,
    SortMergeJoinExec,
};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::{Property, Words};
use crate::select::explain::below_cuts::Sources;

fn schema() -> SchemaRef {
    let kind = Field::new("kind_id", DataType::Int64, true);
    Arc::new(Schema::new(vec![kind, Field::new("note", DataType::Utf8, true)]))
}

fn input() -> Arc<dyn ExecutionPlan> {
    Arc::new(EmptyExec::new(schema()))
}

fn kind() -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new("kind_id", 0))
}

fn words(plan: Arc<dyn ExecutionPlan>) -> Words {
    super::words(&plan, &Sources::default())
}

#[test]
fn aggregates_say_what_they_do_and_by_what() {
    let count = AggregateExprBuilder::new(count_udaf(), vec![lit(1_i64)])
        .schema(schema())
        .alias("count(Int64(1))")
        .build();
    let count = Arc::new(count.unwrap());
    for (mode, title) in [
        (AggregateMode::Partial, "Partial aggregate by kind_id: count(*)"),
        (AggregateMode::Single, "Aggregate by kind_id: count(*)"),
    ] {
        let by = PhysicalGroupBy::new_single(vec![(kind(), "kind_id".to_owned())]);
        let calls = vec![Arc::clone(&count)];
        let made = AggregateExec::try_new(mode, by, calls, vec![None], input(), schema());
        let words = words(Arc::new(made.unwrap()));
        assert_eq!(words.line(), title);
        assert_eq!(words.node_type, "Aggregate");
        let keys = Property::Texts(vec!["kind_id".to_owned()]);
        assert!(words.properties.contains(&("Group Key", keys)), "{words:?}");
    }
}

#[test]
fn operators_have_standard_names() {
    let options = SortOptions { descending: true, nulls_first: true };
    let sort = SortExec::new([PhysicalSortExpr::new(kind(), options)].into(), input());
    let over = Arc::new(BinaryExpr::new(kind(), Operator::Gt, lit(5_i64)));
    let doubled = Arc::new(BinaryExpr::new(kind(), Operator::Multiply, lit(2_i64)));
    let columns = [(doubled as Arc<dyn PhysicalExpr>, "doubled".to_owned())];
    let join = HashJoinExec::try_new(
        input(),
        input(),
        vec![(kind(), kind())],
        None,
        &JoinType::Left,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    );
    let plans: [(Arc<dyn ExecutionPlan>, &str, &str); 7] = [
        (Arc::new(sort.with_fetch(Some(3))), "Sort by kind_id DESC, first 3", "Sort"),
        (Arc::new(FilterExec::try_new(over, input()).unwrap()), "Filter: kind_id > 5", "Result"),
        (
            Arc::new(ProjectionExec::try_new(columns, input()).unwrap()),
            "Projection: kind_id * 2 AS doubled",
            "Result",
        ),
        (Arc::new(join.unwrap()), "Hash join, left: kind_id = kind_id", "Hash Join"),
        (Arc::new(GlobalLimitExec::new(input(), 5, Some(10))), "Limit 10, offset 5", "Limit"),
        (Arc::new(GlobalLimitExec::new(input(), 5, None)), "Offset 5", "Limit"),
        (input(), "No rows", "Result"),
    ];
    for (plan, line, node_type) in plans {
        let words = words(plan);
        assert_eq!((words.line().as_str(), words.node_type.as_str()), (line, node_type));
        assert!(!words.is_hidden, "{line}");
    }
}

#[test]
fn rare_joins_say_what_they_do() {
    let hash = |join_type: JoinType, is_null_aware: bool| -> Arc<dyn ExecutionPlan> {
        let mode = PartitionMode::CollectLeft;
        let equality = NullEquality::NullEqualsNothing;
        let keys = vec![(kind(), kind())];
        let join = HashJoinExec::try_new(
            input(),
            input(),
            keys,
            None,
            &join_type,
            None,
            mode,
            equality,
            is_null_aware,
        );
        Arc::new(join.unwrap())
    };
    let loops = NestedLoopJoinExec::try_new(input(), input(), None, &JoinType::LeftAnti, None);
    let pieces = PiecewiseMergeJoinExec::try_new(
        input(),
        input(),
        (kind(), kind()),
        Operator::Lt,
        JoinType::Left,
        1,
    );
    let merge = SortMergeJoinExec::try_new(
        input(),
        input(),
        vec![(kind(), kind())],
        None,
        JoinType::Full,
        vec![SortOptions::default()],
        NullEquality::NullEqualsNull,
    );
    let plans: [(Arc<dyn ExecutionPlan>, &str, &str, &str); 7] = [
        (
            hash(JoinType::LeftMark, false),
            "Hash join, marking matches: kind_id = kind_id",
            "Hash Join",
            "Mark",
        ),
        (
            hash(JoinType::LeftAnti, true),
            "Hash join, anti of NOT IN: kind_id = kind_id",
            "Hash Join",
            "Anti",
        ),
        (
            hash(JoinType::RightSemi, false),
            "Hash join, right semi: kind_id = kind_id",
            "Hash Join",
            "Right Semi",
        ),
        (Arc::new(loops.unwrap()), "Nested-loop join, anti", "Nested Loop", "Anti"),
        (
            Arc::new(pieces.unwrap()),
            "Piecewise merge join, left: kind_id < kind_id",
            "Merge Join",
            "Left",
        ),
        (
            Arc::new(merge.unwrap()),
            "Merge join, full: kind_id IS NOT DISTINCT FROM kind_id",
            "Merge Join",
            "Full",
        ),
        (
            Arc::new(CrossJoinExec::new(input(), input())),
            "Cross join, every row with every row",
            "Nested Loop",
            "Inner",
        ),
    ];
    for (plan, line, node_type, join_type) in plans {
        let words = words(plan);
        assert_eq!((words.line().as_str(), words.node_type.as_str()), (line, node_type));
        let expected = Property::Text(join_type.to_owned());
        assert!(words.properties.contains(&("Join Type", expected)), "{words:?}");
    }
}

#[test]
fn what_tells_nothing_is_hidden() {
    assert!(words(Arc::new(CoalescePartitionsExec::new(input()))).is_hidden);
    let columns = [(kind(), "other".to_owned())];
    assert!(words(Arc::new(ProjectionExec::try_new(columns, input()).unwrap())).is_hidden);
}

#[test]
fn statements_without_operators_have_a_node_type() {
    for (text, node_type) in [
        ("Insert of 2 rows into t, on the host, without a plan", "ModifyTable"),
        ("Point look-up on t by index t_pkey (id), on the host, without a plan", "Index Scan"),
        ("WITH x, run once", "CTE"),
        ("Create table made: it exists", "Result"),
    ] {
        let words = Words::of_statement(text);
        assert_eq!((words.line().as_str(), words.node_type.as_str()), (text, node_type));
    }
}
