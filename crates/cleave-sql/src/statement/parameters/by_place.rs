//! Types that the place of a parameter gives it, whatever tables there are: `upper($1)`, `$1 || 'x'`, `WHERE $1`.
//!
//! PostgreSQL resolves the function or operator with an argument of unknown type, and prefers text, and among numbers
//! double precision. The table has what comes of that.
//!
//! Source: PostgreSQL's manual, "Type Conversion".

use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, UnaryOperator, Value,
};

use super::place_of;
use crate::statement::names::fold;

/// The parameters that stand in `expression` itself in such a place, with their types.
pub(super) fn types_in(expression: &Expr) -> Vec<(&Expr, ColumnType)> {
    use ColumnType::{Boolean, Double, Int, Text};
    let found: Vec<(&Expr, ColumnType)> = match expression {
        Expr::Function(function) => return of_function(function),
        Expr::BinaryOp { left, op, right } => match op {
            BinaryOperator::And | BinaryOperator::Or => vec![(left, Boolean), (right, Boolean)],
            BinaryOperator::StringConcat if !is_list(left) && !is_list(right) => {
                vec![(left, Text), (right, Text)]
            }
            BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
            | BinaryOperator::PGLikeMatch
            | BinaryOperator::PGILikeMatch
            | BinaryOperator::PGNotLikeMatch
            | BinaryOperator::PGNotILikeMatch => vec![(left, Text), (right, Text)],
            // Nothing else tells their type.
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
                if is_unknown(left) && is_unknown(right) =>
            {
                vec![(left, Text), (right, Text)]
            }
            _ => Vec::new(),
        },
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => vec![(expr, Boolean)],
        Expr::Like { expr, pattern, .. }
        | Expr::ILike { expr, pattern, .. }
        | Expr::SimilarTo { expr, pattern, .. } => vec![(expr, Text), (pattern, Text)],
        Expr::Case { operand: None, conditions, .. } => {
            return parameters(conditions.iter().map(|when| (&when.condition, Boolean)));
        }
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            // Both unknown, they could be patterns.
            let counts = || [substring_from, substring_for].into_iter().flatten();
            let has_number = counts().any(|count| {
                matches!(count.as_ref(), Expr::Value(value)
                    if matches!(value.value, Value::Number(..)))
            });
            let counts = counts().filter(|_| has_number).map(|count| (count.as_ref(), Int));
            return parameters([(expr.as_ref(), Text)].into_iter().chain(counts));
        }
        Expr::Position { expr, r#in } => vec![(expr, Text), (r#in, Text)],
        Expr::Trim { expr, trim_what, .. } => {
            let what = trim_what.iter().map(|what| (what.as_ref(), Text));
            return parameters([(expr.as_ref(), Text)].into_iter().chain(what));
        }
        Expr::Ceil { expr, .. } | Expr::Floor { expr, .. } => vec![(expr, Double)],
        Expr::AtTimeZone { time_zone, .. } => vec![(time_zone, Text)],
        _ => Vec::new(),
    };
    parameters(found)
}

/// The conditions of a SELECT.
pub(super) fn types_in_select(select: &ast::Select) -> Vec<(&Expr, ColumnType)> {
    let conditions = select.selection.iter().chain(&select.having);
    parameters(conditions.map(|condition| (condition, ColumnType::Boolean)))
}

fn parameters<'a>(
    found: impl IntoIterator<Item = (&'a Expr, ColumnType)>,
) -> Vec<(&'a Expr, ColumnType)> {
    let is_parameter = |expression: &Expr| matches!(place_of(expression), Ok(Some(_)));
    found.into_iter().filter(|(expression, _)| is_parameter(expression)).collect()
}

/// A parameter, NULL, or a literal in quotes.
fn is_unknown(expression: &Expr) -> bool {
    matches!(expression, Expr::Value(value)
        if matches!(value.value, Value::Placeholder(_) | Value::SingleQuotedString(_) | Value::Null))
}

fn is_list(expression: &Expr) -> bool {
    match expression {
        Expr::Array(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, ast::DataType::Array(_)),
        Expr::Nested(inner) => is_list(inner),
        Expr::Function(function) => {
            let name = function.name.to_string().to_ascii_lowercase();
            name.starts_with("array") || name.ends_with("_to_array")
        }
        _ => false,
    }
}

fn of_function(function: &ast::Function) -> Vec<(&Expr, ColumnType)> {
    let ast::FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let Some(name) = function.name.0.last().and_then(|name| name.as_ident()).map(fold) else {
        return Vec::new();
    };
    let arguments: Vec<Option<&Expr>> = list
        .args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expression))
            | FunctionArg::Named { arg: FunctionArgExpr::Expr(expression), .. } => Some(expression),
            _ => None,
        })
        .collect();
    let all_unknown = arguments.iter().flatten().all(|argument| is_unknown(argument));
    let letters = match (name.as_str(), arguments.len()) {
        // Of the type of the others, which are all unknown.
        ("coalesce" | "nullif" | "greatest" | "least", _) if all_unknown => "t",
        ("round" | "trunc", 2) => "ni",
        ("round", 1) => "f",
        ("to_timestamp", 2) => "t",
        (name, _) => {
            match KNOWN.iter().find(|(_, names)| names.split(' ').any(|known| known == name)) {
                Some((letters, _)) => letters,
                None => return Vec::new(),
            }
        }
    };
    // The last letter holds for all further arguments.
    let kinds = letters.chars().chain(letters.chars().last().into_iter().cycle());
    let typed = arguments.into_iter().zip(kinds).filter_map(|(argument, kind)| {
        let column_type = match kind {
            't' => ColumnType::Text,
            'i' => ColumnType::Int,
            'b' => ColumnType::BigInt,
            'f' => ColumnType::Double,
            'n' => ColumnType::NUMERIC,
            'l' => ColumnType::Boolean,
            'y' => ColumnType::Bytea,
            _ => return None,
        };
        Some((argument?, column_type))
    });
    parameters(typed)
}

/// Types of arguments, and the functions that have them. `t` text, `i` integer, `b` bigint, `f` double precision, `n`
/// numeric, `l` boolean, `y` bytea; a point says nothing.
const KNOWN: &[(&str, &str)] = &[
    (
        "t",
        "ascii bit_length btrim char_length character_length concat_ws current_setting hashtext initcap length lower \
         ltrim md5 octet_length position pg_get_serial_sequence quote_ident quote_literal regexp_match regexp_matches \
         regexp_replace regexp_split_to_array regexp_split_to_table replace reverse rtrim starts_with string_to_array \
         string_to_table strpos to_date to_number to_regclass to_regtype translate trim upper nextval currval \
         pg_size_bytes regexp_like regexp_count format unistr",
    ),
    ("tti", "split_part"),
    ("ti", "left right repeat substr substring"),
    ("tit", "lpad rpad"),
    ("tbl", "setval"),
    ("ttl", "set_config"),
    ("ttii", "overlay"),
    ("tb", "hashtextextended"),
    ("t.", "date_trunc date_part"),
    (".t", "to_char string_agg"),
    ("yt", "encode"),
    ("tt", "decode"),
    ("i", "chr make_date make_interval ntile to_hex"),
    (".i.", "lag lead nth_value"),
    ("iiiiif", "make_timestamp"),
    (
        "f",
        "abs acos asin atan atan2 cbrt ceil ceiling cos cot degrees exp floor ln log pg_sleep pi power radians sign \
         sin sqrt tan to_timestamp",
    ),
    (
        "b",
        "pg_advisory_lock pg_advisory_lock_shared pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_xact_lock \
         pg_advisory_xact_lock_shared pg_size_pretty pg_try_advisory_lock pg_try_advisory_lock_shared \
         pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared",
    ),
];
