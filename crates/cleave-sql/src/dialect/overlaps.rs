//! `(start, end) OVERLAPS (start, end)`: whether two periods have an instant in common.
//!
//! The ends of a period may be in any order, and the second may be a length. The end itself does not belong to the
//! period, unless the period is a single instant.
//!
//! Source: PostgreSQL's manual, "Date/Time Functions and Operators"; its `overlaps_timestamp`.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};

use super::functions_in_from::cast;
use super::row_comparison::{binary, nested, row_values};
use crate::statement::catalog_syntax::call;

/// The function that adds a length to the start of a period.
const PERIOD_END: &str = "period_end";

/// The same as comparisons. Of a period with one end that is NULL, the other one is known to be its start.
pub(super) fn overlapping(left: &Expr, right: &Expr) -> Option<Expr> {
    use BinaryOperator::{And, Eq, Gt, Lt, Or};
    let of = |row: &Expr| <[Expr; 2]>::try_from(row_values(row)?).ok();
    let ([a, b], [c, d]) = (of(left)?, of(right)?);
    let [a, b, c, d] = typed([a, b, c, d]);
    let (one, other) = (Period::of(a, b), Period::of(c, d));
    let starts = |op| binary(one.start.clone(), op, other.start.clone());
    let when = |condition, result| ast::CaseWhen { condition, result };
    let boolean = |value| Expr::value(ast::Value::Boolean(value));
    let is_null = |end: &Expr| Expr::IsNull(Box::new(end.clone()));
    let has = |end: &Expr| Expr::IsNotNull(Box::new(end.clone()));
    // False, or NULL if the end is.
    let unless_null = |end: &Expr| call("nullif", vec![is_null(end), boolean(true)]);
    // Whether the later of both begins within the earlier.
    let within = |later: &Period, earlier: &Period| {
        let begins = binary(later.start.clone(), Lt, earlier.end.clone());
        binary(nested(begins), Or, unless_null(&later.end))
    };
    let both = binary(has(&one.end), And, has(&other.end));
    Some(Expr::Nested(Box::new(Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(starts(Eq), call("nullif", vec![both, boolean(false)])),
            when(starts(Gt), within(&one, &other)),
            when(starts(Lt), within(&other, &one)),
        ],
        else_result: None,
    })))
}

/// The earlier end of a period, and its later one, which is NULL if one of them is.
struct Period {
    start: Expr,
    end: Expr,
}

impl Period {
    fn of(start: Expr, end: Expr) -> Self {
        let end = call(PERIOD_END, vec![start.clone(), end]);
        let ends = || vec![start.clone(), end.clone()];
        let is_null = |end: &Expr| Expr::IsNull(Box::new(end.clone()));
        let condition = binary(is_null(&start), BinaryOperator::Or, is_null(&end));
        let later = Expr::Case {
            case_token: ast::helpers::attached_token::AttachedToken::empty(),
            end_token: ast::helpers::attached_token::AttachedToken::empty(),
            operand: None,
            conditions: vec![ast::CaseWhen { condition, result: Expr::value(ast::Value::Null) }],
            else_result: Some(Box::new(call("greatest", ends()))),
        };
        Self { start: call("least", ends()), end: Expr::Nested(Box::new(later)) }
    }
}

/// `ends`, in which literals in quotes are timestamps unless all are such literals. Times of day must have types.
fn typed(mut ends: [Expr; 4]) -> [Expr; 4] {
    let is_quoted = |end: &Expr| match end {
        Expr::Value(value) => matches!(value.value, ast::Value::SingleQuotedString(_)),
        _ => false,
    };
    if ends.iter().all(is_quoted) {
        return ends;
    }
    for end in ends.iter_mut().filter(|end| is_quoted(end)) {
        *end = cast(end.clone(), ast::DataType::Timestamp(None, ast::TimezoneInfo::None));
    }
    ends
}
