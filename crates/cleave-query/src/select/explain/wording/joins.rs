//! Joins in plain words: the kind, and the condition with the tables that its columns come from.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};

use super::super::below_cuts::Sources;
use super::super::column_tables::table_of;
use super::super::expression_text::{column_text, sql_with};
use super::Words;

/// A key of the first input and one of the second.
type Pair = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// What EXPLAIN says of a join.
pub(super) fn words(plan: &Arc<dyn ExecutionPlan>, sources: &Sources) -> Option<Words> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let inputs = Inputs { left: join.left(), right: join.right(), sources };
        let null_equality = join.null_equality();
        let mut conditions = inputs.equalities(join.on(), null_equality);
        let mut words = joined("Hash Join", "Hash join", *join.join_type());
        if join.null_aware {
            words.title.push_str(" of NOT IN");
        }
        if let Some(count) = join.fetch() {
            words.title = format!("{}, first {count}", words.title);
        }
        let words = words.with_count("First Rows", join.fetch());
        let words = words.with_text("Hash Cond", in_brackets(&conditions));
        let filter = join.filter().map(|filter| inputs.condition(filter));
        let words = with_filter(words, filter.as_deref());
        conditions.extend(filter);
        return Some(words.with_detail(conditions.join(" AND ")));
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        let inputs = Inputs { left: join.left(), right: join.right(), sources };
        let mut conditions = inputs.equalities(join.on(), join.null_equality());
        let words = joined("Merge Join", "Merge join", join.join_type());
        let words = words.with_text("Merge Cond", in_brackets(&conditions));
        let filter = join.filter().as_ref().map(|filter| inputs.condition(filter));
        let words = with_filter(words, filter.as_deref());
        conditions.extend(filter);
        return Some(words.with_detail(conditions.join(" AND ")));
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let inputs = Inputs { left: join.left(), right: join.right(), sources };
        let filter = join.filter().map(|filter| inputs.condition(filter));
        let words = joined("Nested Loop", "Nested-loop join", *join.join_type());
        let words = with_filter(words, filter.as_deref());
        return Some(words.with_detail(filter.unwrap_or_default()));
    }
    if let Some(join) = plan.downcast_ref::<PiecewiseMergeJoinExec>() {
        let inputs = Inputs { left: join.buffered(), right: join.streamed(), sources };
        let condition = inputs.comparison(&join.on, &join.operator.to_string());
        let words = joined("Merge Join", "Piecewise merge join", join.join_type());
        let words = words.with_text("Merge Cond", format!("({condition})"));
        return Some(words.with_detail(condition));
    }
    plan.is::<CrossJoinExec>().then(|| {
        let words = Words::new("Nested Loop", "Cross join, every row with every row");
        words.with_text("Join Type", "Inner")
    })
}

fn joined(node_type: &str, title: &str, join_type: JoinType) -> Words {
    let (name, kind) = match join_type {
        JoinType::Inner => ("Inner", "inner"),
        JoinType::Left => ("Left", "left"),
        JoinType::Right => ("Right", "right"),
        JoinType::Full => ("Full", "full"),
        JoinType::LeftSemi => ("Semi", "semi"),
        JoinType::RightSemi => ("Right Semi", "right semi"),
        JoinType::LeftAnti => ("Anti", "anti"),
        JoinType::RightAnti => ("Right Anti", "right anti"),
        // They give each row of one input, and whether the other one has a match.
        JoinType::LeftMark => ("Mark", "marking matches"),
        JoinType::RightMark => ("Right Mark", "right, marking matches"),
    };
    Words::new(node_type, format!("{title}, {kind}")).with_text("Join Type", name)
}

fn with_filter(words: Words, filter: Option<&str>) -> Words {
    match filter {
        Some(filter) => words.with_text("Join Filter", filter),
        None => words,
    }
}

fn in_brackets(conditions: &[String]) -> String {
    format!("({})", conditions.join(" AND "))
}

/// The inputs of a join.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    left: &'a Arc<dyn ExecutionPlan>,
    right: &'a Arc<dyn ExecutionPlan>,
    sources: &'a Sources,
}

impl Inputs<'_> {
    fn equalities(&self, keys: &[Pair], null_equality: NullEquality) -> Vec<String> {
        let equals = match null_equality {
            NullEquality::NullEqualsNothing => "=",
            NullEquality::NullEqualsNull => "IS NOT DISTINCT FROM",
        };
        keys.iter().map(|pair| self.comparison(pair, equals)).collect()
    }

    /// A pair of keys with the operator between.
    fn comparison(&self, (left, right): &Pair, operator: &str) -> String {
        let left = sql_with(left, &|column: &Column| {
            self.name(column.name(), JoinSide::Left, column.index())
        });
        let right = sql_with(right, &|column: &Column| {
            self.name(column.name(), JoinSide::Right, column.index())
        });
        format!("{left} {operator} {right}")
    }

    /// The condition of a join, whose columns are by places of both inputs.
    fn condition(&self, filter: &JoinFilter) -> String {
        let names = |column: &Column| match filter.column_indices().get(column.index()) {
            Some(place) => self.name(column.name(), place.side, place.index),
            None => column_text(column.name()),
        };
        sql_with(filter.expression(), &names)
    }

    /// A column with its table, where that tells one input from the other.
    fn name(&self, name: &str, side: JoinSide, place: usize) -> String {
        let name = column_text(name);
        let (own, other) = match side {
            JoinSide::Left => (self.left, self.right),
            JoinSide::Right => (self.right, self.left),
            JoinSide::None => return name,
        };
        let Some(table) = table_of(own, place, self.sources) else { return name };
        let is_also_there = || {
            let places = 0..other.schema().fields().len();
            let mut tables = places.filter_map(|place| table_of(other, place, self.sources));
            tables.any(|other| other == table)
        };
        if is_also_there() { name } else { format!("{table}.{name}") }
    }
}
