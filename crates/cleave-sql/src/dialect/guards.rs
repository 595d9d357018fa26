//! Evaluation order of conditions: in `x <> 0 AND 1 / x > 2` the division is evaluated for no row in which `x <> 0`
//! fails.
//!
//! DataFusion computes both sides of AND and OR for a whole batch of rows unless the left side is the same for nearly
//! all of them, and rewrites a CASE between conditions to ANDs and ORs. So, where the right side can fail:
//!
//! ```text
//!   a AND b       ─▶  CASE a WHEN true THEN b WHEN false THEN false ELSE (CASE b WHEN false THEN false END) END
//!   a OR b        ─▶  CASE a WHEN true THEN true WHEN false THEN b ELSE (CASE b WHEN true THEN true END) END
//!   CASE WHEN a THEN b … END  ─▶  CASE true WHEN a THEN b … END       (b a condition)
//!   WHERE a AND b ─▶  WHERE a AND CASE a WHEN true THEN b ELSE false END
//! ```
//!
//! A CASE with an operand is evaluated branch by branch, each for the rows that reach it, and no rule splits it. The
//! conditions of WHERE and ON stay separate, so that each can be pushed down as far as possible. A condition that can
//! fail takes along those conditions before it that only use its tables. Before WHERE come the conditions of an inner
//! join's ON. An outer join whose NULL rows WHERE removes becomes an inner one here, and counts as such. A condition
//! that compares columns of both sides of a join is evaluated as a join key, as in PostgreSQL.
//!
//! Source: PostgreSQL's documentation, "Expression Evaluation Rules", and how it evaluates AND, OR and quals of equal
//! cost.

use cleave_fragment::functions::{CHECKED_CHAIN, link_of};
use cleave_fragment::walk::{Walk, WalkPlan};
use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::{
    conjunction, merge_schema, split_conjunction, split_conjunction_owned,
};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator, lit,
};
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::{AnalyzerRule, OptimizerContext, OptimizerRule};

use super::checked_arithmetic::digits;
use super::rewrite::{has_operator, rewrite_expressions};
use super::typed_literals::is_text;

/// See the module. Types are settled by then, and checked operators are in place.
#[derive(Debug)]
pub struct Guards;

impl AnalyzerRule for Guards {
    fn name(&self) -> &'static str {
        "guards"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |node: &LogicalPlan| match node {
            LogicalPlan::Filter(_) => Ok(true),
            LogicalPlan::Join(join) => Ok(join.filter.is_some()),
            node => has_branches(node),
        };
        match has_operator(&plan, concerns)? {
            true => Ok(plan.transform_up_everywhere(guarded_node)?.data),
            false => Ok(plan),
        }
    }
}

fn guarded_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) => {
            let schema = Arc::clone(filter.input.schema());
            let conditions: Vec<Expr> =
                split_conjunction(&filter.predicate).into_iter().cloned().collect();
            let mut known = Vec::new();
            let input = reduced(Arc::unwrap_or_clone(filter.input), &conditions, &mut known)?;
            let predicate = guarded_conditions(filter.predicate, &schema, known)?;
            let is_new = input.transformed || predicate.transformed;
            let filter = Filter::try_new(predicate.data, Arc::new(input.data))?;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), is_new))
        }
        LogicalPlan::Join(mut join) => {
            let Some(filter) = join.filter.take() else {
                return Ok(Transformed::no(LogicalPlan::Join(join)));
            };
            let schema = merge_schema(&[&join.left, &join.right]);
            let conditions: Vec<Expr> = split_conjunction(&filter).into_iter().cloned().collect();
            let mut known = Vec::new();
            let mut is_new = false;
            // ON removes rows from the result only on the sides whose rows it can drop.
            for (side, drops) in [
                (&mut join.left, matches!(join.join_type, JoinType::Inner | JoinType::Right)),
                (&mut join.right, matches!(join.join_type, JoinType::Inner | JoinType::Left)),
            ] {
                if drops {
                    let taken = Arc::unwrap_or_clone(std::mem::take(side));
                    let reduced = reduced(taken, &conditions, &mut known)?;
                    is_new |= reduced.transformed;
                    *side = Arc::new(reduced.data);
                }
            }
            let filter = guarded_conditions(filter, &schema, known)?;
            join.filter = Some(filter.data);
            let is_new = is_new || filter.transformed;
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_new))
        }
        plan if has_branches(&plan)? => {
            rewrite_expressions(plan, &|expr, schema| Ok(guarded(expr, schema)))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// `plan` with outer joins made inner where `conditions` remove their NULL rows, as DataFusion would do later. Adds to
/// `known` the conditions of ON that hold for every remaining row: PostgreSQL evaluates them first.
fn reduced(
    plan: LogicalPlan,
    conditions: &[Expr],
    known: &mut Vec<Expr>,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
    let kind = join.join_type;
    let mut join = match conjunction(spoken_of(&join.schema, conditions)) {
        Some(predicate) if kind.is_outer() => {
            let filter = Filter::try_new(predicate, Arc::new(LogicalPlan::Join(join)))?;
            let rule = EliminateOuterJoin::new();
            let filter = rule.rewrite(LogicalPlan::Filter(filter), &OptimizerContext::new())?;
            match filter.data {
                LogicalPlan::Filter(filter) => match Arc::unwrap_or_clone(filter.input) {
                    LogicalPlan::Join(join) => join,
                    input => return Ok(Transformed::yes(input)),
                },
                plan => return Ok(Transformed::yes(plan)),
            }
        }
        _ => join,
    };
    let mut is_new = join.join_type != kind;
    let mut conditions = conditions.to_vec();
    if join.join_type == JoinType::Inner
        && let Some(filter) = join.filter.take()
    {
        let mut own = Vec::new();
        for condition in split_conjunction_owned(filter) {
            let is_key = is_equality(&condition) && tables_of(&condition).len() > 1;
            let guarded = match is_key || is_left_alone(&condition) {
                true => None,
                false => guarded_from_above(&condition, &conditions, &join.schema),
            };
            is_new |= guarded.is_some();
            let condition = guarded.unwrap_or(condition);
            if !is_key && !is_left_alone(&condition) {
                known.push(condition.clone());
            }
            own.push(condition);
        }
        conditions.extend(own.iter().cloned());
        join.filter = conjunction(own);
    }
    for (side, is_kept) in [
        (&mut join.left, matches!(join.join_type, JoinType::Inner | JoinType::Left)),
        (&mut join.right, matches!(join.join_type, JoinType::Inner | JoinType::Right)),
    ] {
        if is_kept {
            let taken = Arc::unwrap_or_clone(std::mem::take(side));
            let reduced = reduced(taken, &conditions, known)?;
            is_new |= reduced.transformed;
            *side = Arc::new(reduced.data);
        }
    }
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_new))
}

/// A condition of ON that can fail, behind those of `above`, such as WHERE, that cannot.
fn guarded_from_above(condition: &Expr, above: &[Expr], schema: &DFSchema) -> Option<Expr> {
    if !can_fail(condition, schema) {
        return None;
    }
    let tables = tables_of(condition);
    let guards = above.iter().filter(|guard| {
        let is_known = condition.exists(|part| Ok(part == *guard)).unwrap_or(true);
        !is_known
            && !is_left_alone(guard)
            && tables_of(guard).is_subset(&tables)
            && !can_fail(guard, schema)
    });
    let guard = conjunction(guards.cloned())?;
    Some(case(guard, [(true, condition.clone())], lit(false)))
}

/// Those of `conditions` that name columns of `schema` alone.
fn spoken_of(schema: &DFSchema, conditions: &[Expr]) -> Vec<Expr> {
    let is_spoken_of = |condition: &&Expr| {
        !is_left_alone(condition)
            && condition.column_refs().into_iter().all(|column| schema.has_column(column))
    };
    conditions.iter().filter(is_spoken_of).cloned().collect()
}

/// Whether an expression of `plan` decides whether another one is evaluated.
fn has_branches(plan: &LogicalPlan) -> Result<bool> {
    let mut has_any = false;
    plan.each_expression(|expr| {
        expr.apply(|part| {
            has_any |= matches!(part, Expr::Case(_))
                || matches!(part, Expr::BinaryExpr(binary) if binary.op.is_logic_operator());
            Ok(if has_any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(has_any)
}

/// The conjuncts, with each that can fail placed behind `known`, which holds for its rows, behind those that cannot
/// fail, which PostgreSQL evaluates first as they cost less, and behind those before it.
fn guarded_conditions(
    predicate: Expr,
    schema: &DFSchema,
    known: Vec<Expr>,
) -> Result<Transformed<Expr>> {
    let mut is_new = false;
    let mut conditions = Vec::new();
    for condition in split_conjunction_owned(predicate) {
        let inner = condition.transform_up(|expr| Ok(guarded(expr, schema)))?;
        is_new |= inner.transformed;
        let condition = inner.data;
        let fails = !is_left_alone(&condition) && can_fail(&condition, schema);
        conditions.push((condition, fails));
    }
    let with_tables = |condition: &Expr| (condition.clone(), tables_of(condition));
    let safe = conditions.iter().filter(|(own, fails)| !fails && !is_left_alone(own));
    let mut before: Vec<(Expr, BTreeSet<TableReference>)> =
        known.iter().chain(safe.map(|(own, _)| own)).map(with_tables).collect();
    for (condition, _) in conditions.iter_mut().filter(|(_, fails)| *fails) {
        let tables = tables_of(condition);
        if !(tables.len() > 1 && is_equality(condition)) {
            let guard = before.iter().filter(|(_, own)| own.is_subset(&tables));
            if let Some(guard) = conjunction(guard.map(|(guard, _)| guard.clone())) {
                *condition = case(guard, [(true, std::mem::take(condition))], lit(false));
                is_new = true;
                // It only holds where those do.
                before.retain(|(_, own)| !own.is_subset(&tables));
            }
        }
        before.push((condition.clone(), tables));
    }
    let predicate = conjunction(conditions.into_iter().map(|(condition, _)| condition));
    Ok(Transformed::new_transformed(predicate.unwrap_or_else(|| lit(true)), is_new))
}

/// A subquery becomes a join, and a volatile expression must not be evaluated twice.
fn is_left_alone(expr: &Expr) -> bool {
    let has_subquery = expr.exists(|part| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        ))
    });
    has_subquery.unwrap_or(true) || expr.is_volatile()
}

fn is_equality(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }))
}

/// The tables whose columns `expr` names.
fn tables_of(expr: &Expr) -> BTreeSet<TableReference> {
    let columns = expr.column_refs().into_iter();
    // A column without a table was computed below; it stands for a table of its own.
    columns
        .map(|column| column.relation.clone().unwrap_or_else(|| TableReference::bare("")))
        .collect()
}

fn guarded(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })
            if can_fail(&right, schema) && !is_left_alone(&left) && !is_left_alone(&right) =>
        {
            let ends = op == Operator::Or;
            // If the left side is NULL, the right side alone may decide the result.
            let unknown = case((*right).clone(), [(ends, lit(ends))], unknown());
            let branches = [(!ends, *right), (ends, lit(ends))];
            Transformed::yes(case(*left, branches, unknown))
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr })
            if is_condition(&when_then_expr, schema)
                && (when_then_expr
                    .iter()
                    .any(|(when, then)| can_fail(when, schema) || can_fail(then, schema))
                    || else_expr.as_ref().is_some_and(|other| can_fail(other, schema))) =>
        {
            let expr = Some(Box::new(lit(true)));
            Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
        }
        expr => Transformed::no(expr),
    }
}

fn is_condition(branches: &[(Box<Expr>, Box<Expr>)], schema: &DFSchema) -> bool {
    branches.iter().any(|(_, then)| matches!(then.get_type(schema), Ok(DataType::Boolean)))
}

fn unknown() -> Expr {
    lit(ScalarValue::Boolean(None))
}

/// `CASE of WHEN … THEN … ELSE other END`.
fn case<const N: usize>(of: Expr, branches: [(bool, Expr); N], other: Expr) -> Expr {
    let branches = branches.into_iter();
    let when_then_expr = branches.map(|(when, then)| (Box::new(lit(when)), Box::new(then)));
    let (expr, else_expr) = (Some(Box::new(of)), Some(Box::new(other)));
    Expr::Case(Case { expr, when_then_expr: when_then_expr.collect(), else_expr })
}

/// Functions that are defined for all values of their arguments.
const TOTAL: [&str; 39] = [
    "abs",
    "array_length",
    "ascii",
    "bit_length",
    "btrim",
    "cardinality",
    "character_length",
    "coalesce",
    "concat",
    "concatenate",
    "date_of",
    "date_part",
    "date_trunc",
    "double_of",
    "ends_with",
    "greatest",
    "initcap",
    "interval_span",
    "isfinite",
    "least",
    "left",
    "length",
    "lower",
    "ltrim",
    "moment_of",
    "nullif",
    "octet_length",
    "opaque",
    "position",
    "real_of",
    "rtrim",
    "starts_with",
    "strpos",
    "text_of",
    "time_minus",
    "time_of_day_of",
    "time_plus",
    "upper",
    "zoned_moment_of",
];

/// Whether a value of a column may make `expr` fail.
fn can_fail(expr: &Expr, schema: &DFSchema) -> bool {
    let fails = expr.exists(|part| {
        Ok(match part {
            Expr::Cast(cast) => {
                let from = cast.expr.get_type(schema);
                !from.is_ok_and(|from| always_casts(&from, cast.field.data_type()))
                    && cast.expr.any_column_refs()
            }
            Expr::BinaryExpr(BinaryExpr {
                op: Operator::Divide | Operator::Modulo, right, ..
            }) => !matches!(right.as_ref(), Expr::Literal(by, _) if !is_zero(by)),
            Expr::ScalarFunction(function) => {
                let name = function.name();
                let is_total = TOTAL.contains(&name)
                    // Numerics have room, as PostgreSQL's do.
                    || ((name == CHECKED_CHAIN || link_of(name).is_some())
                        && matches!(part.get_type(schema), Ok(DataType::Decimal128(..))));
                let casts = ["date_of", "moment_of", "time_of_day_of", "zoned_moment_of"];
                let reads_text = casts.contains(&name)
                    && function
                        .args
                        .iter()
                        .any(|text| !text.get_type(schema).is_ok_and(|own| !is_text(&own)));
                (!is_total || reads_text) && part.any_column_refs()
            }
            _ => false,
        })
    });
    fails.unwrap_or(true)
}

fn is_zero(by: &ScalarValue) -> bool {
    by.is_null() || ScalarValue::new_zero(&by.data_type()).is_ok_and(|zero| zero == *by)
}

/// Whether all values of one type are values of the other.
fn always_casts(from: &DataType, to: &DataType) -> bool {
    use DataType as Type;
    let width = |own: &DataType| match own {
        Type::Int8 => Some(1),
        Type::Int16 => Some(2),
        Type::Int32 => Some(4),
        Type::Int64 => Some(8),
        _ => None,
    };
    match (from, to) {
        (from, to) if from == to => true,
        (Type::Null, _) | (_, Type::Utf8 | Type::Utf8View | Type::LargeUtf8) => true,
        (from, to) if width(from).zip(width(to)).is_some_and(|(from, to)| from <= to) => true,
        (from, Type::Float64 | Type::Float32) if digits(from).is_some() => true,
        (Type::Float32, Type::Float64) | (Type::Boolean, Type::Int32) => true,
        (Type::Date32, Type::Timestamp(..)) | (Type::Timestamp(..), Type::Timestamp(..)) => true,
        (from, to @ Type::Decimal128(..)) => digits(from)
            .zip(digits(to))
            .is_some_and(|((whole, _), (whole_after, _))| whole <= whole_after),
        (_, Type::Decimal256(..)) => digits(from).is_some(),
        _ => false,
    }
}
