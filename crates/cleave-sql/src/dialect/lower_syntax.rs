//! Syntax rewritten before planning: casts to text of a limited length, which DataFusion would read as casts to text,
//! numbers like `1e300`, which it would read as numerics, and functions with other names.

use std::ops::ControlFlow;

use super::computed_limits::lower_computed_limits;
use super::functions_in_from::{lower_functions_in_from, lower_rows};
use super::grouping_sets::write_out_sets;
use super::having_alone::lower_having_alone;
use super::integer_literals::type_integers;
use super::lateral_lists::join_before_lateral;
use super::list_comparisons::lower_list_comparison;
use super::lower_calls::lower_call;
use super::named_casts::name_casts;
use super::outer_tables::name_outer_tables;
use super::places::lower_places;
use super::quoted_conditions::{lower_quoted_clauses, lower_quoted_operands};
use super::regular_expressions::{literal_text, lower_regular_expressions};
use super::row_comparison::lower_row_comparison;
use super::row_membership::lower_row_membership;
use super::time_syntax::lower_time_syntax;
use super::values_as_queries::{lower_row_of_values, lower_values};
use crate::statement::catalog_syntax::call;
use crate::visiting::{visit_expressions_mut, visit_mut};
use cleave_fragment::functions::{like_escape, with_backslash};
use datafusion::sql::sqlparser::ast::{
    self, CharacterLength, DataType, Expr, TrimWhereField, VisitorMut,
};

/// Makes `x::varchar(n)` and `x::char(n)` in `query` cut the text, as PostgreSQL does, `char(n)` also without trailing
/// blanks, as it is stored. Makes doubles of numbers that no numeric holds.
pub fn lower_syntax(query: &mut ast::Query) {
    lower_computed_limits(query);
    lower_places(query);
    lower_values(query);
    let flow = visit_mut(query, &mut Clauses);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    lower_functions_in_from(query);
    let flow: ControlFlow<()> = visit_expressions_mut(query, |expression| {
        if let Expr::Cast { data_type, .. } = expression
            && let Some((length, is_char)) = text_length(data_type)
        {
            *data_type = DataType::Text;
            let number = |number: u64| {
                let value = ast::Value::Number(number.to_string(), false);
                Some(Box::new(Expr::value(value)))
            };
            let text = Box::new(std::mem::replace(expression, Expr::value(ast::Value::Null)));
            let cut = Expr::Substring {
                expr: text,
                substring_from: number(1),
                substring_for: number(length),
                special: false,
                shorthand: false,
            };
            *expression = if is_char { without_trailing_blanks(cut) } else { cut };
        }
        if let Expr::Substring { substring_from, substring_for, .. } = expression {
            for place in [substring_from, substring_for].into_iter().flatten() {
                widen_small(place);
            }
        }
        if let Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } =
            expression
        {
            escape_with_backslash(pattern, escape_char);
        }
        lower_time_syntax(expression);
        lower_quoted_operands(expression);
        lower_row_of_values(expression);
        lower_rows(expression);
        lower_regular_expressions(expression);
        lower_call(expression);
        lower_row_membership(expression);
        lower_row_comparison(expression);
        if is_beyond_numeric(expression) {
            let number = std::mem::replace(expression, Expr::value(ast::Value::Null));
            *expression = Expr::Cast {
                kind: ast::CastKind::DoubleColon,
                expr: Box::new(Expr::value(ast::Value::SingleQuotedString(number.to_string()))),
                data_type: DataType::DoublePrecision,
                array: false,
                format: None,
            };
        } else if let Expr::Value(value) = expression
            && let ast::Value::Number(text, _) = &mut value.value
            && let Some(plain) = without_power(text).or_else(|| as_numeric(text))
        {
            *text = plain;
        } else if let Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } = expression
            && let Expr::Value(value) = expr.as_mut()
            && let ast::Value::Number(text, _) = &mut value.value
            && text
                .strip_suffix('.')
                .is_some_and(|whole| format!("-{whole}").parse::<i64>().is_ok())
        {
            // The smallest bigint.
            text.pop();
        }
        ControlFlow::Continue(())
    });
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    name_outer_tables(query);
    type_integers(query);
    name_casts(query);
}

/// What is rewritten in each SELECT as a whole, and from outside to inside.
struct Clauses;

impl VisitorMut for Clauses {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        join_before_lateral(select);
        lower_quoted_clauses(select);
        lower_having_alone(select);
        write_out_sets(select);
        ControlFlow::Continue(())
    }

    // Before its parts, which are then lowered themselves.
    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        lower_list_comparison(expression);
        ControlFlow::Continue(())
    }
}

/// DataFusion's `substr` takes no smallint, which clients send for small numbers.
fn widen_small(place: &mut Expr) {
    if let Expr::Cast {
        data_type: data_type @ (DataType::SmallInt(_) | DataType::Int2(_)), ..
    } = place
    {
        *data_type = DataType::BigInt(None);
    }
}

/// DataFusion's patterns know no other escape than the backslash.
fn escape_with_backslash(pattern: &mut Box<Expr>, escape: &mut Option<ast::ValueWithSpan>) {
    let letter = match escape.as_ref().map(|escape| &escape.value) {
        Some(ast::Value::SingleQuotedString(letter)) if letter != "\\" => letter.clone(),
        _ => return,
    };
    *escape = None;
    let word = |text: &str| Expr::value(ast::Value::SingleQuotedString(text.to_owned()));
    let written = match pattern.as_ref() {
        Expr::Value(value) => literal_text(&value.value),
        _ => None,
    };
    // A pattern that is known now stays known to indexes and statistics.
    let written = written.and_then(|written| with_backslash(written, &letter).ok());
    **pattern = match written {
        Some(written) => word(&written),
        None => {
            let taken = std::mem::replace(pattern.as_mut(), Expr::value(ast::Value::Null));
            call(like_escape().name(), vec![taken, word(&letter)])
        }
    };
}

/// Whether a number is written with a power of ten that no numeric of 38 digits has.
fn is_beyond_numeric(expression: &Expr) -> bool {
    let Expr::Value(value) = expression else { return false };
    let ast::Value::Number(text, _) = &value.value else { return false };
    let exponent = text.split_once(['e', 'E']).map(|(_, exponent)| exponent.parse::<i64>());
    exponent.is_some_and(|exponent| !exponent.is_ok_and(|exponent| exponent.abs() <= 30))
}

/// A number that is written with a power of ten, without it: DataFusion would give `1e3` three digits less than none
/// behind its point, and cut the numbers beside it to thousands.
fn without_power(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once(['e', 'E'])?;
    let exponent = usize::try_from(exponent.parse::<i64>().ok()?).ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (moved, left) = fraction.split_at_checked(exponent).unwrap_or((fraction, ""));
    let zeros = "0".repeat(exponent - moved.len());
    Some(format!("{whole}{moved}{zeros}.{left}"))
}

/// A whole number beyond the bigints, which DataFusion would take for an unsigned one, as a numeric.
fn as_numeric(text: &str) -> Option<String> {
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
    (is_whole && text.parse::<i64>().is_err()).then(|| format!("{text}."))
}

fn without_trailing_blanks(text: Expr) -> Expr {
    Expr::Trim {
        expr: Box::new(text),
        trim_where: Some(TrimWhereField::Trailing),
        trim_what: None,
        trim_characters: None,
    }
}

/// The maximum length of a type in characters, and whether it is `char(n)`.
fn text_length(data_type: &DataType) -> Option<(u64, bool)> {
    let (length, is_char) = match data_type {
        DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length) => (length.as_ref()?, false),
        DataType::Char(None) | DataType::Character(None) => return Some((1, true)),
        DataType::Char(Some(length)) | DataType::Character(Some(length)) => (length, true),
        _ => return None,
    };
    match length {
        CharacterLength::IntegerLength { length, .. } => Some((*length, is_char)),
        CharacterLength::Max => None,
    }
}
