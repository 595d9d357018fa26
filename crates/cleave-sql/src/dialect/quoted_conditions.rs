//! Literals in quotes where a condition stands, read as booleans: `WHERE 't'`, `x AND 'no'`, `CASE WHEN 'on' THEN …`.
//!
//! DataFusion would take them for texts, and refuse them.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, UnaryOperator};

use super::functions_in_from::cast;

/// Rewrites the conditions of the clauses of `select`.
pub(super) fn lower_quoted_clauses(select: &mut ast::Select) {
    select.selection.iter_mut().chain(&mut select.having).for_each(typed);
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        if let Some(ast::JoinConstraint::On(condition)) = constraint(&mut join.join_operator) {
            typed(condition);
        }
    }
}

/// Rewrites the operands of `expression`, if these are conditions.
pub(super) fn lower_quoted_operands(expression: &mut Expr) {
    match expression {
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            typed(left);
            typed(right);
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr }
        | Expr::IsTrue(expr)
        | Expr::IsNotTrue(expr)
        | Expr::IsFalse(expr)
        | Expr::IsNotFalse(expr)
        | Expr::IsUnknown(expr)
        | Expr::IsNotUnknown(expr) => typed(expr),
        Expr::Case { operand: None, conditions, .. } => {
            conditions.iter_mut().for_each(|when| typed(&mut when.condition));
        }
        _ => {}
    }
}

fn constraint(operator: &mut ast::JoinOperator) -> Option<&mut ast::JoinConstraint> {
    use ast::JoinOperator as Op;
    match operator {
        Op::Join(constraint)
        | Op::Inner(constraint)
        | Op::Left(constraint)
        | Op::LeftOuter(constraint)
        | Op::Right(constraint)
        | Op::RightOuter(constraint)
        | Op::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}

fn typed(condition: &mut Expr) {
    match condition {
        Expr::Nested(inner) => typed(inner),
        Expr::Case { conditions, else_result, .. } => {
            conditions.iter_mut().for_each(|when| typed(&mut when.result));
            else_result.iter_mut().for_each(|result| typed(result));
        }
        Expr::Value(value) if matches!(value.value, ast::Value::SingleQuotedString(_)) => {
            let literal = std::mem::replace(condition, Expr::value(ast::Value::Null));
            *condition = cast(literal, ast::DataType::Boolean);
        }
        _ => {}
    }
}
