//! Spellings of times that DataFusion lacks: a precision, the present moment, and times made of numbers.
//!
//! ```text
//!  x::timestamp(0), time(1) '…'        ─▶ round_to_precision(x::timestamp, 0)
//!  localtimestamp(2)                   ─▶ round_to_precision(now()::timestamp, 2)
//!  make_interval(days => 3)            ─▶ make_interval(0, 0, 0, 3)
//!  make_timestamptz(y, m, d, h, i, s)  ─▶ make_timestamp(y, m, d, h, i, s)::timestamptz
//! ```
//!
//! Source: PostgreSQL's documentation, "Date/Time Types" and "Date/Time Functions and Operators".

use datafusion::sql::sqlparser::ast::{
    self, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, TimezoneInfo,
};

use super::functions::{AT_TIME_ZONE, TO_PRECISION};
use super::functions_in_from::cast;
use super::lower_calls::{given, number, word};
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;

/// The finest precision, which is that of all stored times.
const DIGITS_MAX: u64 = 6;
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Rewrites `expression`, if it is one of these.
pub(super) fn lower_time_syntax(expression: &mut Expr) {
    let lowered = match expression {
        Expr::Cast { expr, data_type, .. } => take_digits(data_type)
            .map(|digits| to_precision(cast((**expr).clone(), data_type.clone()), digits)),
        Expr::TypedString(typed) => take_digits(&mut typed.data_type)
            .map(|digits| to_precision(Expr::TypedString(typed.clone()), digits)),
        Expr::Function(function) => lower_function(function),
        _ => None,
    };
    if let Some(lowered) = lowered {
        *expression = lowered;
    }
}

/// The precision of a type of times, if it is coarser than that of stored times; it is removed from the type.
fn take_digits(data_type: &mut DataType) -> Option<u64> {
    let digits = match data_type {
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        | DataType::Timestamp(digits, _) => digits,
        _ => return None,
    };
    // PostgreSQL takes a finer one for the finest that it has.
    digits.take().filter(|digits| *digits < DIGITS_MAX)
}

fn to_precision(time: Expr, digits: u64) -> Expr {
    call(TO_PRECISION, vec![time, number(digits)])
}

fn lower_function(function: &ast::Function) -> Option<Expr> {
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let now = || call("now", Vec::new());
    let local = TimezoneInfo::None;
    match fold(name).as_str() {
        "localtimestamp" => {
            Some(precise(cast(now(), DataType::Timestamp(None, local)), &function.args))
        }
        "localtime" => Some(precise(cast(now(), DataType::Time(None, local)), &function.args)),
        "current_timestamp" => digits_of(&function.args).map(|_| precise(now(), &function.args)),
        "make_interval" => {
            let FunctionArguments::List(list) = &function.args else { return None };
            made_interval(&list.args)
        }
        "make_timestamptz" => {
            let mut args = given(function)?;
            let zone = (args.len() == 7).then(|| args.pop()).flatten();
            let there = call("make_timestamp", args);
            Some(match zone {
                Some(zone) => call(AT_TIME_ZONE, vec![there, eastern(&zone)?]),
                None => cast(there, DataType::Timestamp(None, TimezoneInfo::WithTimeZone)),
            })
        }
        _ => None,
    }
}

/// The zone as AT TIME ZONE reads it, for which a number counts to the west, and here to the east; None if it is no
/// literal.
fn eastern(zone: &Expr) -> Option<Expr> {
    let Expr::Value(value) = zone else { return None };
    let ast::Value::SingleQuotedString(text) = &value.value else { return None };
    let Some(sign) = text.chars().next().filter(|sign| matches!(sign, '+' | '-')) else {
        return Some(zone.clone());
    };
    let mut parts = text[1..].split(':').map(|part| part.parse::<u32>().ok());
    let mut part = || parts.next().unwrap_or(Some(0));
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    let offset = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
    Some(cast(word(&offset), DataType::Interval { fields: None, precision: None }))
}

fn precise(time: Expr, args: &FunctionArguments) -> Expr {
    match digits_of(args) {
        Some(digits) => to_precision(time, digits),
        None => time,
    }
}

/// The precision in parentheses.
fn digits_of(args: &FunctionArguments) -> Option<u64> {
    let FunctionArguments::List(list) = args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] = list.args.as_slice()
    else {
        return None;
    };
    match &value.value {
        ast::Value::Number(digits, _) => {
            digits.parse().ok().map(|digits: u64| digits.min(DIGITS_MAX))
        }
        _ => None,
    }
}

/// A call with arguments by name, which may be left out, as one by place.
fn made_interval(given: &[FunctionArg]) -> Option<Expr> {
    let mut by_place: [Option<Expr>; PARTS.len()] = Default::default();
    for (place, arg) in given.iter().enumerate() {
        let (place, arg) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => (place, arg),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(arg), .. } => {
                (place_of(name)?, arg)
            }
            FunctionArg::ExprNamed {
                name: Expr::Identifier(name),
                arg: FunctionArgExpr::Expr(arg),
                ..
            } => (place_of(name)?, arg),
            _ => return None,
        };
        let slot = by_place.get_mut(place)?;
        if slot.replace(arg.clone()).is_some() {
            return None;
        }
    }
    // As it is written, it is one by place already.
    if given.iter().all(|arg| matches!(arg, FunctionArg::Unnamed(_))) && !given.is_empty() {
        return None;
    }
    let args = by_place.into_iter().map(|arg| arg.unwrap_or_else(|| number(0)));
    Some(call("make_interval", args.collect()))
}

fn place_of(name: &ast::Ident) -> Option<usize> {
    let name = fold(name);
    PARTS.iter().position(|part| *part == name)
}
