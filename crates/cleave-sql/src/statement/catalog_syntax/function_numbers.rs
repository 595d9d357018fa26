//! Columns of the catalog that are functions (`regproc`): their rows have the names, and clients compare them with the
//! numbers of `pg_proc` too.
//!
//! ```text
//!  p.oid = t.typreceive             ─▶ p.oid = cleave_function(t.typreceive)
//!  t.typinput = 'array_in'::regproc ─▶ cleave_function(t.typinput) = cleave_function('array_in')
//! ```

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};

use super::{arguments, call};
use crate::statement::names::fold;

const COLUMNS: [&str; 34] = [
    "aggcombinefn",
    "aggdeserialfn",
    "aggfinalfn",
    "aggfnoid",
    "aggmfinalfn",
    "aggminvtransfn",
    "aggmtransfn",
    "aggserialfn",
    "aggtransfn",
    "amhandler",
    "amproc",
    "conproc",
    "oprcode",
    "oprjoin",
    "oprrest",
    "prosupport",
    "prsend",
    "prsheadline",
    "prslextype",
    "prsstart",
    "prstoken",
    "rngcanonical",
    "rngsubdiff",
    "tmplinit",
    "tmpllexize",
    "trffromsql",
    "trftosql",
    "typanalyze",
    "typinput",
    "typmodin",
    "typmodout",
    "typoutput",
    "typreceive",
    "typsend",
];

/// Whether `expression` is such a column.
pub(super) fn is_function(expression: &Expr) -> bool {
    let name = match expression {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        Expr::Nested(inner) => return is_function(inner),
        _ => None,
    };
    name.is_some_and(|name| COLUMNS.contains(&fold(name).as_str()))
}

/// The number of such a column.
pub(super) fn numbered(column: Expr) -> Expr {
    call("cleave_function", vec![column])
}

/// A comparison with numbers on both sides, where one side is such a column and the other no text.
pub(super) fn compared(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let (left, right) = match op {
        BinaryOperator::Eq | BinaryOperator::NotEq => {
            match (is_function(&left), is_function(&right)) {
                (true, false) => with_other(left, right),
                (false, true) => {
                    let (right, left) = with_other(right, left);
                    (left, right)
                }
                (false, false) => (by_number(left), by_number(right)),
                _ => (left, right),
            }
        }
        _ => (left, right),
    };
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// A function that is named (`'array_in'::regproc`) as its number, which is what it is compared by.
fn by_number(side: Expr) -> Expr {
    match &side {
        Expr::Function(function) if function.name.to_string() == "cleave_function_name" => {
            call("cleave_function", arguments(function))
        }
        _ => side,
    }
}

fn with_other(column: Expr, other: Expr) -> (Expr, Expr) {
    let other = by_number(other);
    match &other {
        Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_) | Value::Null) => {
            (column, other)
        }
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Value(_)
        | Expr::Cast { .. }
        | Expr::Subquery(_)
        | Expr::Function(_) => (numbered(column), other),
        _ => (column, other),
    }
}
