//! Each simplified form beside the plain one, over all values of its columns with NULL among them.
//!
//! Conditions are made at random from a fixed seed, of everything that DataFusion's rules look at.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, cast, col, in_list, lit, not,
    when,
};
use datafusion::optimizer::OptimizerRule;
use datafusion::physical_expr::create_physical_expr;

use super::rule;

/// Conditions of each kind of test.
const CONDITIONS: usize = 4_000;

/// Numbers in a fixed order (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// All rows of `i` and `j` (1 to 3, or NULL), `n` (1 or 2), `b` and `s`.
fn rows() -> RecordBatch {
    let (mut i, mut j, mut n, mut b, mut s) = (vec![], vec![], vec![], vec![], vec![]);
    for place in 0..4_i64 * 4 * 2 * 3 * 3 {
        let number = |value: i64| (value > 0).then_some(value);
        i.push(number(place % 4));
        j.push(number(place / 4 % 4));
        n.push(1 + place / 16 % 2);
        b.push([None, Some(true), Some(false)][usize::try_from(place / 32 % 3).unwrap()]);
        s.push([None, Some("a"), Some("ab")][usize::try_from(place / 96 % 3).unwrap()]);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(i)),
        Arc::new(Int64Array::from(j)),
        Arc::new(Int64Array::from(n)),
        Arc::new(BooleanArray::from(b)),
        Arc::new(StringArray::from(s)),
    ];
    let fields = vec![
        Field::new("i", DataType::Int64, true),
        Field::new("j", DataType::Int64, true),
        Field::new("n", DataType::Int64, false),
        Field::new("b", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, true),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn scan() -> LogicalPlanBuilder {
    let rows = rows();
    let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap();
    LogicalPlanBuilder::scan("t", provider_as_source(Arc::new(table)), None).unwrap()
}

fn number(from: &mut Numbers) -> Expr {
    match from.below(9) {
        0..=2 => col("t.i"),
        3 | 4 => col("t.j"),
        5 => col("t.n"),
        6 => binary_expr(number(from), Operator::BitwiseXor, number(from)),
        7 => {
            let otherwise = lit(from.one_of(&[1_i64, 2]));
            when(condition(from, 1), lit(2_i64)).otherwise(otherwise).unwrap()
        }
        _ => constant(from),
    }
}

fn constant(from: &mut Numbers) -> Expr {
    lit(match from.below(8) {
        0 => ScalarValue::Int64(None),
        value => ScalarValue::Int64(i64::try_from(value % 4).ok()),
    })
}

fn column(from: &mut Numbers) -> Expr {
    from.one_of(&[col("t.i"), col("t.i"), col("t.i"), col("t.j"), col("t.n")])
}

/// A condition of so many levels.
fn condition(from: &mut Numbers, levels: usize) -> Expr {
    let kinds = if levels == 0 { 11 } else { 20 };
    let comparisons = [
        Operator::Eq,
        Operator::NotEq,
        Operator::Lt,
        Operator::GtEq,
        Operator::LtEq,
        Operator::IsDistinctFrom,
        Operator::IsNotDistinctFrom,
    ];
    match from.below(kinds) {
        0..=2 => {
            let mut list = vec![constant(from)];
            for _ in 0..from.below(4) {
                list.push(match from.below(6) {
                    0 => column(from),
                    _ => constant(from),
                });
            }
            in_list(column(from), list, from.below(2) == 0)
        }
        3 => binary_expr(column(from), from.one_of(&comparisons), constant(from)),
        4 => binary_expr(number(from), from.one_of(&comparisons), number(from)),
        5 => {
            let (low, high) = (constant(from), constant(from));
            match from.below(2) {
                0 => column(from).between(low, high),
                _ => column(from).not_between(low, high),
            }
        }
        6 => match from.below(2) {
            0 => number(from).is_null(),
            _ => number(from).is_not_null(),
        },
        7 => {
            let pattern = lit(from.one_of(&["%", "a", "a%", "%%", "", "_"]));
            match from.below(2) {
                0 => col("t.s").like(pattern),
                _ => col("t.s").not_like(pattern),
            }
        }
        8 => {
            let operators = [Operator::RegexMatch, Operator::RegexNotMatch, Operator::RegexIMatch];
            let pattern = lit(from.one_of(&[".*", "", "^a$", "a|b", "^ab?$", "x"]));
            binary_expr(col("t.s"), from.one_of(&operators), pattern)
        }
        9 => {
            let cast = cast(column(from), DataType::Int32);
            let constant = lit(i32::try_from(from.below(3)).unwrap());
            binary_expr(cast, from.one_of(&comparisons), constant)
        }
        10 => match from.below(4) {
            0 => lit(ScalarValue::Boolean(from.one_of(&[None, Some(true), Some(false)]))),
            _ => col("t.b"),
        },
        11..=13 => condition(from, levels - 1).and(condition(from, levels - 1)),
        14..=16 => condition(from, levels - 1).or(condition(from, levels - 1)),
        17 => not(condition(from, levels - 1)),
        18 => {
            let mut cases = when(condition(from, levels - 1), condition(from, levels - 1));
            match from.below(2) {
                0 => cases.end(),
                _ => cases.otherwise(condition(from, levels - 1)),
            }
            .unwrap()
        }
        _ => {
            let inner = condition(from, levels - 1);
            match from.below(6) {
                0 => inner.is_true(),
                1 => inner.is_false(),
                2 => inner.is_unknown(),
                3 => inner.is_not_true(),
                4 => inner.is_not_false(),
                _ => binary_expr(inner, from.one_of(&comparisons[..2]), condition(from, 0)),
            }
        }
    }
}

fn values(expr: &Expr, schema: &DFSchema, rows: &RecordBatch) -> BooleanArray {
    let physical =
        create_physical_expr(expr, schema, &Default::default(), &Default::default()).unwrap();
    let values = physical.evaluate(rows).unwrap().into_array(rows.num_rows()).unwrap();
    match values.data_type() {
        DataType::Null => BooleanArray::new_null(rows.num_rows()),
        _ => values.as_boolean().clone(),
    }
}

/// `plan` after as many passes as the optimizer takes, at most.
fn passed(rule: &dyn OptimizerRule, mut plan: LogicalPlan) -> LogicalPlan {
    let state = super::super::base_state();
    for _ in 0..3 {
        plan = rule.rewrite(plan, &state).unwrap().data;
    }
    plan
}

/// Calls `check` with the plain condition and the one that `rule` makes of it.
fn compare(
    rule: &dyn OptimizerRule,
    plan_of: impl Fn(Expr) -> LogicalPlan,
    mut differs: impl FnMut(BooleanArray, BooleanArray) -> bool,
) -> Vec<String> {
    let (rows, scan) = (rows(), scan().build().unwrap());
    let mut from = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut found = Vec::new();
    for _ in 0..CONDITIONS {
        let plain = condition(&mut from, 3);
        let wanted = values(&plain, scan.schema(), &rows);
        let simplified = match passed(rule, plan_of(plain.clone())) {
            LogicalPlan::Filter(filter) => filter.predicate,
            LogicalPlan::Projection(projection) => projection.expr[0].clone(),
            other => panic!("{other}"),
        };
        if differs(wanted, values(&simplified, scan.schema(), &rows)) {
            found.push(format!("{plain}\n  became {simplified}"));
        }
    }
    found
}

fn projected(expr: Expr) -> LogicalPlan {
    scan().project(vec![expr.alias("c")]).unwrap().build().unwrap()
}

fn filtered(expr: Expr) -> LogicalPlan {
    scan().filter(expr).unwrap().build().unwrap()
}

fn holds(values: &BooleanArray) -> Vec<bool> {
    values.iter().map(|value| value == Some(true)).collect()
}

#[test]
fn a_simplified_condition_has_the_values_of_the_plain_one() {
    let found = compare(&*rule(), projected, |plain, simplified| plain != simplified);
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_simplified_filter_keeps_the_rows_of_the_plain_one() {
    let found =
        compare(&*rule(), filtered, |plain, simplified| holds(&plain) != holds(&simplified));
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_engines_own_rule_forgets_null() {
    let engine = datafusion::optimizer::simplify_expressions::SimplifyExpressions::new();
    let in_values = compare(&engine, projected, |plain, simplified| plain != simplified);
    let in_filters =
        compare(&engine, filtered, |plain, simplified| holds(&plain) != holds(&simplified));
    assert!(!in_values.is_empty() && !in_filters.is_empty(), "these tests find nothing");
}

#[tokio::test]
async fn all_rules_together_keep_the_rows_of_a_plain_filter() {
    let (rows, scan) = (rows(), scan().build().unwrap());
    let state = super::super::base_state();
    let mut from = Numbers(0x2545_f491_4f6c_dd1d);
    for _ in 0..CONDITIONS / 10 {
        let plain = condition(&mut from, 3);
        let kept = holds(&values(&plain, scan.schema(), &rows));
        let wanted = kept.into_iter().filter(|kept| *kept).count();
        let plan = state.create_physical_plan(&filtered(plain.clone())).await.unwrap();
        let found = datafusion::physical_plan::collect(plan, state.task_ctx()).await.unwrap();
        let found: usize = found.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(found, wanted, "{plain}");
    }
}
