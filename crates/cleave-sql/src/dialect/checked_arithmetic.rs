//! Arithmetic and casts with PostgreSQL's results: integers fail on overflow, narrow numerics are computed fast,
//! doubles give no infinity, numerics become the nearest floats, intervals compare by length, and implicit casts to
//! text write values as PostgreSQL does.

use cleave_fragment::functions::{
    ALL_ITEMS, ANY_ITEM, CHECKED_CHAIN, checked_add, checked_chain, checked_divide,
    checked_multiply, checked_subtract, ends_in_escape, float_of, interval_span, like_pattern,
    link_of, numeric_of, opaque, quotient, quotient::NUMERIC, rounded_numeric_of,
};
use cleave_fragment::walk::WalkPlan;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, InList, InSubquery};
use datafusion::logical_expr::{
    Between, BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, ScalarUDF,
    Subquery, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::functions::{list_order, list_spans, text_of};
use super::infinite_times::knowing_infinite;
use super::rewrite::rewrite_expressions;
use super::typed_literals::{compares, is_text, is_written};

/// Replaces `+`, `-` and `*` of integers and of numerics, and the minus before an integer, by checked functions. Types
/// are settled by then.
#[derive(Debug)]
pub struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &'static str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let checked = |plan| {
            rewrite_expressions(plan, &|expr, schema| {
                let known = knowing_infinite(expr, schema);
                Ok(match known.transformed {
                    true => known,
                    false => checked(known.data, schema),
                })
            })
        };
        Ok(plan.transform_up_everywhere(checked)?.data)
    }
}

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let expr = match truth_test(expr) {
        Ok(test) => return Transformed::yes(test),
        Err(other) => other,
    };
    let function = match &expr {
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Plus => checked_add(),
            Operator::Minus => checked_subtract(),
            Operator::Multiply => checked_multiply(),
            Operator::Divide => checked_divide(),
            // DataFusion takes it for 0 even of NULL.
            Operator::BitwiseXor if binary.left == binary.right => checked_subtract(),
            op if compares(op) => return compared(expr, schema),
            Operator::LikeMatch
            | Operator::NotLikeMatch
            | Operator::ILikeMatch
            | Operator::NotILikeMatch => return with_checked_pattern(expr),
            _ => return Transformed::no(expr),
        },
        Expr::Negative(_) => checked_subtract(),
        Expr::Between(_) | Expr::InList(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => {
            return compared(expr, schema);
        }
        Expr::ScalarFunction(function)
            if matches!(function.name(), ANY_ITEM | ALL_ITEMS)
                && function.args.first().is_some_and(|value| is_interval(value, schema)) =>
        {
            return compared(expr, schema);
        }
        Expr::Case(case) if case.expr.as_ref().is_some_and(|of| is_interval(of, schema)) => {
            return compared(expr, schema);
        }
        Expr::Like(_) => return with_checked_pattern(expr),
        Expr::Cast(to_text) if is_text(to_text.field.data_type()) => {
            let is_written = to_text.expr.get_type(schema).is_ok_and(|own| is_written(&own));
            return match expr {
                Expr::Cast(to_text) if is_written => {
                    Transformed::yes(text_of().call(vec![*to_text.expr]))
                }
                expr => Transformed::no(expr),
            };
        }
        Expr::Cast(of_float) if is_numeric_of_float(of_float, schema) => {
            return match expr {
                Expr::Cast(Cast { expr, field }) if *field.data_type() == NUMERIC => {
                    Transformed::yes(numeric_of().call(vec![*expr]))
                }
                Expr::Cast(Cast { expr, field }) => {
                    let numeric = rounded_numeric_of().call(vec![*expr]);
                    Transformed::yes(Expr::Cast(Cast { expr: Box::new(numeric), field }))
                }
                expr => Transformed::no(expr),
            };
        }
        Expr::Cast(to_float) => {
            let own = to_float.expr.get_type(schema).ok();
            let to = to_float.field.data_type().clone();
            let function = own.as_ref().and_then(|own| float_of(own, &to));
            return match (expr, function) {
                (Expr::Cast(to_float), Some(function)) => {
                    Transformed::yes(function.call(vec![*to_float.expr]))
                }
                (expr @ Expr::Cast(_), None) if own.is_some_and(|own| is_lossy(&own, &to)) => {
                    Transformed::yes(opaque().call(vec![expr]))
                }
                (expr, _) => Transformed::no(expr),
            };
        }
        _ => return Transformed::no(expr),
    };
    match expr {
        Expr::BinaryExpr(binary)
            if kind_of(&binary.left, schema).is_some_and(|left| {
                // Of doubles the division is checked; that of integers need not be.
                let is_ours = match binary.op {
                    Operator::Divide => left != Kind::Integer,
                    _ => left != Kind::Double,
                };
                is_ours && Some(left) == kind_of(&binary.right, schema)
            }) =>
        {
            let is_double = kind_of(&binary.left, schema) == Some(Kind::Double);
            let function =
                if binary.op == Operator::Divide && !is_double { quotient() } else { function };
            Transformed::yes(linked(&function, *binary.left, *binary.right))
        }
        Expr::Negative(number) if kind_of(&number, schema) == Some(Kind::Integer) => {
            let zero = number.get_type(schema).and_then(|own| ScalarValue::new_zero(&own));
            match zero {
                Ok(zero) => Transformed::yes(function.call(vec![lit(zero), *number])),
                Err(_) => Transformed::no(Expr::Negative(number)),
            }
        }
        expr => Transformed::no(expr),
    }
}

/// Levels of nested operators that become one [`checked_chain`].
const LEVELS_MAX: usize = 8;

/// `function` of both, which is a link more of a long chain of operators.
fn linked(function: &Arc<ScalarUDF>, left: Expr, right: Expr) -> Expr {
    let Some(link) = link_of(function.name()) else { return function.call(vec![left, right]) };
    match left {
        Expr::ScalarFunction(mut chain) if chain.name() == CHECKED_CHAIN => {
            if let Some(Expr::Literal(ScalarValue::Utf8(Some(links)), _)) = chain.args.first_mut() {
                links.push(link);
            }
            chain.args.push(right);
            Expr::ScalarFunction(chain)
        }
        left if levels(&left) < LEVELS_MAX => function.call(vec![left, right]),
        left => {
            let (mut links, mut operands) = (link.to_string(), vec![right]);
            let mut next = left;
            // From the last operand to the first.
            loop {
                next = match (link_below(&next), next) {
                    (Some(link), Expr::ScalarFunction(mut function)) => {
                        links.push(link);
                        operands.extend(function.args.pop());
                        match function.args.pop() {
                            Some(left) => left,
                            None => break,
                        }
                    }
                    (_, first) => {
                        operands.push(first);
                        break;
                    }
                };
            }
            operands.push(lit(links.chars().rev().collect::<String>()));
            operands.reverse();
            checked_chain().call(operands)
        }
    }
}

/// Operators of numbers on the left of one another, up to [`LEVELS_MAX`].
fn levels(expr: &Expr) -> usize {
    let (mut count, mut next) = (0, expr);
    while count < LEVELS_MAX
        && link_below(next).is_some()
        && let Expr::ScalarFunction(function) = next
        && let Some(left) = function.args.first()
    {
        count += 1;
        next = left;
    }
    count
}

fn link_below(expr: &Expr) -> Option<char> {
    match expr {
        Expr::ScalarFunction(function) if function.args.len() == 2 => link_of(function.name()),
        _ => None,
    }
}

/// `x IS TRUE` and its kin, as what DataFusion runs in their place. That can be NULL for all that it knows, and it
/// refuses a grouped plan whose columns can be NULL in one form and not in the other.
fn truth_test(expr: Expr) -> Result<Expr, Expr> {
    let (operand, op, value) = match expr {
        Expr::IsTrue(operand) => (operand, Operator::IsNotDistinctFrom, true),
        Expr::IsNotTrue(operand) => (operand, Operator::IsDistinctFrom, true),
        Expr::IsFalse(operand) => (operand, Operator::IsNotDistinctFrom, false),
        Expr::IsNotFalse(operand) => (operand, Operator::IsDistinctFrom, false),
        other => return Err(other),
    };
    let right = Box::new(lit(value));
    Ok(Expr::BinaryExpr(BinaryExpr { left: operand, op, right }))
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// A comparison of intervals, by their lengths: DataFusion compares months first.
fn compared(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_interval = |expr: &Expr| is_interval(expr, schema);
    let span = |expr: Expr| interval_span().call(vec![expr]);
    let boxed = |expr: Box<Expr>| Box::new(interval_span().call(vec![*expr]));
    let list = |expr: &Expr| match expr.get_type(schema) {
        Ok(DataType::List(item)) => Some(item.data_type().clone()),
        _ => None,
    };
    match expr {
        // DataFusion takes a NULL among the items for the least one, and intervals for different ones.
        Expr::BinaryExpr(binary)
            if list(&binary.left).zip(list(&binary.right)).is_some_and(|(one, _)| {
                matches!(binary.op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
                    || matches!(one, DataType::Interval(_))
                        && matches!(binary.op, Operator::Eq | Operator::NotEq)
            }) =>
        {
            let order = list_order().call(vec![*binary.left, *binary.right]);
            let (left, right) = (Box::new(order), Box::new(lit(0_i32)));
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op: binary.op, right }))
        }
        Expr::ScalarFunction(mut function) => {
            if let [item, _, list] = function.args.as_mut_slice() {
                *list = list_spans().call(vec![std::mem::take(list)]);
                *item = span(std::mem::take(item));
            }
            Transformed::yes(Expr::ScalarFunction(function))
        }
        Expr::Case(mut case) => {
            let whens = case.when_then_expr.iter_mut().map(|(when, _)| when);
            for part in case.expr.iter_mut().chain(whens) {
                **part = span(std::mem::take(&mut **part));
            }
            Transformed::yes(Expr::Case(case))
        }
        Expr::BinaryExpr(binary) if is_interval(&binary.left) && is_interval(&binary.right) => {
            let (left, right) = (boxed(binary.left), boxed(binary.right));
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op: binary.op, right }))
        }
        Expr::Between(between) if is_interval(&between.expr) => {
            let (expr, low) = (boxed(between.expr), boxed(between.low));
            let high = boxed(between.high);
            let negated = between.negated;
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::InList(list) if is_interval(&list.expr) => {
            let items = list.list.into_iter().map(span).collect();
            let expr = boxed(list.expr);
            Transformed::yes(Expr::InList(InList { expr, list: items, negated: list.negated }))
        }
        Expr::InSubquery(within) if is_interval(&within.expr) => match by_span(&within.subquery) {
            Some(subquery) => {
                let (expr, negated) = (boxed(within.expr), within.negated);
                Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated }))
            }
            None => Transformed::no(Expr::InSubquery(within)),
        },
        Expr::SetComparison(mut within) if is_interval(&within.expr) => {
            let Some(subquery) = by_span(&within.subquery) else {
                return Transformed::no(Expr::SetComparison(within));
            };
            (within.expr, within.subquery) = (boxed(within.expr), subquery);
            Transformed::yes(Expr::SetComparison(within))
        }
        expr => Transformed::no(expr),
    }
}

/// A query of intervals as one of their lengths.
fn by_span(subquery: &Subquery) -> Option<Subquery> {
    let plan = Arc::clone(&subquery.subquery);
    let [field] = plan.schema().fields().as_ref() else { return None };
    if !matches!(field.data_type(), DataType::Interval(_)) {
        return None;
    }
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let length = interval_span().call(vec![column]).alias(field.name());
    let lengths = LogicalPlan::Projection(Projection::try_new(vec![length], plan).ok()?);
    Some(subquery.with_plan(Arc::new(lengths)))
}

/// LIKE with an error where its pattern ends in the escape character.
fn with_checked_pattern(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Like(mut like) => {
            let checked = checked_pattern(&like.expr, &like.pattern, like.case_insensitive);
            let is_new = checked.is_some();
            if let Some(pattern) = checked {
                *like.pattern = pattern;
            }
            Transformed::new_transformed(Expr::Like(like), is_new)
        }
        Expr::BinaryExpr(mut binary) => {
            let insensitive = matches!(binary.op, Operator::ILikeMatch | Operator::NotILikeMatch);
            let checked = checked_pattern(&binary.left, &binary.right, insensitive);
            let is_new = checked.is_some();
            if let Some(pattern) = checked {
                *binary.right = pattern;
            }
            Transformed::new_transformed(Expr::BinaryExpr(binary), is_new)
        }
        expr => Transformed::no(expr),
    }
}

/// `pattern` with the check; None: it is known to need none.
fn checked_pattern(text: &Expr, pattern: &Expr, insensitive: bool) -> Option<Expr> {
    let is_good = match pattern {
        Expr::Literal(value, _) => !value.try_as_str().flatten().is_some_and(ends_in_escape),
        Expr::ScalarFunction(call) => call.name() == like_pattern().name(),
        Expr::Placeholder(_) => true,
        _ => false,
    };
    if is_good {
        return None;
    }
    // A pattern of constants stays one. It then is an error whatever the text, and so where the text is no column,
    // which would be computed twice.
    let is_at_hand = matches!(text, Expr::Column(_) | Expr::Literal(..))
        && (pattern.any_column_refs() || matches!(pattern, Expr::Literal(..)));
    let text = if is_at_hand { text.clone() } else { lit(ScalarValue::Utf8(None)) };
    Some(like_pattern().call(vec![pattern.clone(), text, lit(insensitive)]))
}

fn is_numeric_of_float(cast: &Cast, schema: &DFSchema) -> bool {
    let to = cast.field.data_type();
    matches!(to, DataType::Decimal128(..) | DataType::Decimal256(..))
        && cast.expr.get_type(schema).is_ok_and(|own| own.is_floating())
}

/// Whether a cast between types of exact numbers rounds, or fails for some values. DataFusion takes a cast from one
/// side of a comparison and casts the constant on the other side, as if no two values became one.
fn is_lossy(from: &DataType, to: &DataType) -> bool {
    match (digits(from), digits(to)) {
        (Some((whole, fraction)), Some((whole_after, fraction_after))) => {
            whole_after < whole || fraction_after < fraction
        }
        _ => false,
    }
}

/// Most digits before and behind the point of any value of a type of exact numbers, but for those of 256 bits, which
/// DataFusion compares as they are.
pub(super) fn digits(own: &DataType) -> Option<(i16, i16)> {
    match own {
        DataType::Int8 => Some((3, 0)),
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal128(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale)))
        }
        _ => None,
    }
}

/// The common kind of both operands of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Numeric,
    Double,
}

fn kind_of(expr: &Expr, schema: &DFSchema) -> Option<Kind> {
    // A chain is asked once for each link: its kind is that of its last operand.
    if let Expr::ScalarFunction(function) = expr
        && function.name().starts_with("checked_")
        && let Some(last) = function.args.last()
    {
        return kind_of(last, schema);
    }
    match expr.get_type(schema).ok()? {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Kind::Integer),
        DataType::Decimal128(..) | DataType::Decimal256(..) => Some(Kind::Numeric),
        DataType::Float32 | DataType::Float64 => Some(Kind::Double),
        _ => None,
    }
}
