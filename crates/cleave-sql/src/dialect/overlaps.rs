//! `(start, end) OVERLAPS (start, end)`: whether two periods have an instant in common.
//!
//! The ends of a period may be in any order, and the second may be a length. The end itself does not belong to the
//! period, unless the period is a single instant.
//!
//! Source: PostgreSQL's manual, "Date/Time Functions and Operators"; its `overlaps_timestamp`.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, DataType, Expr};

use super::row_comparison::{binary, row_values};
use crate::statement::catalog_syntax::call;

/// The same as comparisons.
pub(super) fn overlapping(left: &Expr, right: &Expr) -> Option<Expr> {
    let (one, other) = (period(left)?, period(right)?);
    let starts = |op| binary(one.0.clone(), op, other.0.clone());
    let when = |condition, result| ast::CaseWhen { condition, result };
    let boolean = Expr::value(ast::Value::Boolean(true));
    Some(Expr::Nested(Box::new(Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(starts(BinaryOperator::Eq), boolean),
            when(
                starts(BinaryOperator::Gt),
                binary(one.0.clone(), BinaryOperator::Lt, other.1.clone()),
            ),
            when(starts(BinaryOperator::Lt), binary(other.0.clone(), BinaryOperator::Lt, one.1)),
        ],
        else_result: None,
    })))
}

/// Its earlier end, and its later one.
fn period(row: &Expr) -> Option<(Expr, Expr)> {
    let [start, end] = <[Expr; 2]>::try_from(row_values(row)?).ok()?;
    let end = match is_length(&end) {
        true => binary(start.clone(), BinaryOperator::Plus, end),
        false => end,
    };
    let ends = || vec![start.clone(), end.clone()];
    Some((call("least", ends()), call("greatest", ends())))
}

fn is_length(value: &Expr) -> bool {
    match value {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
        Expr::Nested(inner) => is_length(inner),
        _ => false,
    }
}
