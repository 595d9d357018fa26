//! Calls and operators that DataFusion lacks or names differently, rewritten to those that it has.
//!
//! ```text
//!  mod(a, b)                              ─▶ a % b
//!  every(x)                               ─▶ bool_and(x)
//!  age(x)                                 ─▶ age(current_date, x)
//!  mode() WITHIN GROUP (ORDER BY x)       ─▶ most_frequent(array_agg(x ORDER BY x))
//!  ARRAY(SELECT x … ORDER BY y)           ─▶ list_or_empty((SELECT array_agg(v ORDER BY o)
//!                                                           FROM (SELECT x AS v, y AS o …)))
//!  array_agg(DISTINCT x)                  ─▶ sorted_list(array_agg(DISTINCT x), false, false)
//!  string_agg(x, t.d)                     ─▶ substr(string_agg(coalesce(d, '') || x, ''), 1 + the first d's length)
//!  string_agg(DISTINCT x, ',')            ─▶ joined_list(sorted_list(array_agg(DISTINCT x), false, false), ',')
//!  x SIMILAR TO 'a%'                      ─▶ x ~ '(?s)^(?:a.*)$'
//!  x AT TIME ZONE z                       ─▶ at_time_zone(x, z)
//!  x ^@ y                                 ─▶ starts_with(x, y)
//!  x < ANY (list)                         ─▶ any_item(x, '<', list)
//!  lag(x, n)                              ─▶ lag_by_row(x, n)
//!  CLEAVE.Release_Results()               ─▶ "cleave.release_results"()
//!  date_trunc('day', x, zone)             ─▶ date_trunc('day', x AT TIME ZONE zone) AT TIME ZONE zone
//!  date_trunc('hour', x, zone)            ─▶ moment_beside(date_trunc('hour', y), y, x)
//!                                            y being x AT TIME ZONE zone
//! ```

use cleave_catalog::value::{interval, list};
use cleave_fragment::functions::interval_text::{self, Fields};
use cleave_fragment::functions::{
    ALL_ITEMS, ANY_ITEM, isoyear_of, julian_of, keeps_offset, milliseconds_of, period_of_years,
    seconds_of, year_of,
};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, SelectItem, SetExpr, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::functions::{
    AT_TIME_ZONE, DISCRETE_PERCENTILE, INTERVAL_WITHIN, JOINED_LIST, LAG_BY_ROW, LEAD_BY_ROW,
    LIST_ITEM, LIST_OR_EMPTY, LIST_SLICE, MOMENT_BESIDE, MOST_FREQUENT, SORTED_LIST, UUID_OF,
};
use super::functions_in_from::{cast, names_columns};
use super::overlaps::overlapping;
use super::regular_expressions::literal_text;
use super::row_comparison::{binary, nested};
use super::similar_pattern::similar_pattern;
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;

/// The function that lets go of held results, with its schema.
pub const RELEASE_RESULTS: &str = "cleave.release_results";
/// The function that forgets what statements have cost, with its schema.
pub const RESET_STATEMENTS: &str = "cleave.reset_statements";

/// Rewrites `expression`, if it is one of these.
pub(super) fn lower_call(expression: &mut Expr) {
    let lowered = match expression {
        Expr::Function(function) => lower_function(function),
        Expr::UnaryOp { op, expr } => lower_operator(op, expr),
        Expr::AnyOp { left, compare_op, right, .. } => {
            compared_items(ANY_ITEM, left, compare_op, right)
        }
        Expr::AllOp { left, compare_op, right } => {
            compared_items(ALL_ITEMS, left, compare_op, right)
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGOverlap, right } => {
            Some(call("array_has_any", vec![(**left).clone(), (**right).clone()]))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => overlapping(left, right),
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            Some(call("starts_with", vec![(**left).clone(), (**right).clone()]))
        }
        Expr::Extract { field, expr, .. } => part_of_time(&field.to_string(), expr),
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            similar_pattern(pattern, escape_char.as_ref()).map(|pattern| {
                let op = match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                };
                let pattern = Expr::value(ast::Value::SingleQuotedString(pattern));
                nested(binary((**expr).clone(), op, pattern))
            })
        }
        Expr::AtTimeZone { timestamp, time_zone } => {
            Some(call(AT_TIME_ZONE, vec![(**timestamp).clone(), (**time_zone).clone()]))
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            access_chain.iter_mut().for_each(bound_slice);
            several_subscripts(root, access_chain)
        }
        Expr::Cast { expr, data_type: DataType::Array(item), .. } => list_of_text(expr, item),
        Expr::Cast { expr, data_type: DataType::Interval { fields, precision }, .. }
            if fields.is_some() || precision.is_some() =>
        {
            let fields = fields.as_ref().map(ToString::to_string).unwrap_or_default();
            interval_within(expr, &fields, *precision)
        }
        Expr::TypedString(ast::TypedString {
            value,
            data_type: DataType::Interval { fields, precision },
            ..
        }) => {
            let fields = fields.as_ref().map(ToString::to_string).unwrap_or_default();
            let text = Expr::Value(value.clone());
            interval_within(&text, &fields, *precision)
        }
        Expr::Interval(interval) => of_interval(interval),
        // Text has only one collation.
        Expr::Collate { expr, collation } if is_byte_order(collation) => Some((**expr).clone()),
        _ => None,
    };
    if let Some(lowered) = lowered {
        *expression = lowered;
    }
}

/// `x[:2]` as `x[1:2]`, and `x[2:]` with the greatest bound there is.
fn bound_slice(access: &mut ast::AccessExpr) {
    if let ast::AccessExpr::Subscript(ast::Subscript::Slice { lower_bound, upper_bound, .. }) =
        access
    {
        lower_bound.get_or_insert_with(|| number(1));
        upper_bound.get_or_insert_with(|| number(i32::MAX.unsigned_abs().into()));
    }
}

/// `x[i][j]` and `x[i:j][k]`, a subscript for each dimension, as one call: beside slices, `k` is all up to it.
fn several_subscripts(root: &Expr, chain: &[ast::AccessExpr]) -> Option<Expr> {
    let subscripts: Option<Vec<&ast::Subscript>> = chain
        .iter()
        .map(|access| match access {
            ast::AccessExpr::Subscript(subscript) => Some(subscript),
            ast::AccessExpr::Dot(_) => None,
        })
        .collect();
    let subscripts = subscripts.filter(|subscripts| subscripts.len() > 1)?;
    let is_slice = |subscript: &&ast::Subscript| matches!(subscript, ast::Subscript::Slice { .. });
    let has_slice = subscripts.iter().any(is_slice);
    let mut args = vec![root.clone()];
    for subscript in subscripts {
        match subscript {
            ast::Subscript::Index { index } if has_slice => args.extend([number(1), index.clone()]),
            ast::Subscript::Index { index } => args.push(index.clone()),
            ast::Subscript::Slice { lower_bound, upper_bound, stride: None } => {
                args.extend([lower_bound.clone()?, upper_bound.clone()?]);
            }
            ast::Subscript::Slice { .. } => return None,
        }
    }
    Some(call(if has_slice { LIST_SLICE } else { LIST_ITEM }, args))
}

/// `x < ANY (list)` and `x < ALL (list)`: DataFusion forgets NULLs among the items.
fn compared_items(
    function: &str,
    left: &Expr,
    operator: &BinaryOperator,
    right: &Expr,
) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if matches!(right, Expr::Subquery(_)) || !matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
    {
        return None;
    }
    let operator = Expr::value(ast::Value::SingleQuotedString(operator.to_string()));
    Some(call(function, vec![left.clone(), operator, right.clone()]))
}

/// `'{1,2}'::integer[]`, a list by its items.
fn list_of_text(text: &Expr, item: &ast::ArrayElemTypeDef) -> Option<Expr> {
    let Expr::Value(text) = text else { return None };
    let ast::Value::SingleQuotedString(text) = &text.value else { return None };
    let ast::ArrayElemTypeDef::SquareBracket(item, _) = item else { return None };
    // One type, whatever the dimensions.
    let mut item = item;
    while let DataType::Array(ast::ArrayElemTypeDef::SquareBracket(inner, _)) = item.as_ref() {
        item = inner;
    }
    // The cast reports what cannot be read.
    let items = list::nested(text).ok()?;
    if items.is_empty() {
        let none = Expr::Array(ast::Array { elem: Vec::new(), named: true });
        let list = ast::ArrayElemTypeDef::SquareBracket(item.clone(), None);
        return Some(cast(none, DataType::Array(list)));
    }
    Some(list_of_items(items, item))
}

fn list_of_items(items: Vec<list::Item>, of: &DataType) -> Expr {
    let item = |item| match item {
        list::Item::List(items) => list_of_items(items, of),
        list::Item::Null => cast(Expr::value(ast::Value::Null), of.clone()),
        list::Item::Text(text) => {
            cast(Expr::value(ast::Value::SingleQuotedString(text)), of.clone())
        }
    };
    let elem = items.into_iter().map(item).collect();
    Expr::Array(ast::Array { elem, named: true })
}

/// An interval with a minus before it, which DataFusion applies to its first unit alone.
fn negated(interval: &Expr) -> Option<Expr> {
    let interval = match interval {
        Expr::Nested(inner) => return negated(inner),
        Expr::Interval(interval) if interval.leading_field.is_none() => interval,
        _ => return None,
    };
    let parts = parts_of(interval)?;
    let value = word(&in_units(IntervalMonthDayNano {
        months: parts.months.checked_neg()?,
        days: parts.days.checked_neg()?,
        nanoseconds: parts.nanoseconds.checked_neg()?,
    }));
    Some(Expr::Interval(ast::Interval { value: Box::new(value), ..interval.clone() }))
}

/// `INTERVAL '…' DAY TO SECOND (2)`, in units that DataFusion reads; it does not know all of PostgreSQL's.
fn of_interval(written: &ast::Interval) -> Option<Expr> {
    let digits = written.fractional_seconds_precision.or(written.leading_precision);
    interval_within(&written.value, &names_of(written), digits)
}

/// The names of the fields of an interval, as in a type.
pub(super) fn names_of(written: &ast::Interval) -> String {
    let names = [&written.leading_field, &written.last_field];
    let names: Vec<String> = names.into_iter().flatten().map(ToString::to_string).collect();
    names.join(" to ")
}

/// A text or an interval as an interval of these fields, with so many digits behind the point of its seconds: computed
/// now if it is known, and can be read.
fn interval_within(value: &Expr, fields: &str, digits: Option<u64>) -> Option<Expr> {
    let named = Fields::named(fields)?;
    // PostgreSQL takes a finer one for the finest that it has.
    let digits = digits.and_then(|digits| u32::try_from(digits.min(6)).ok());
    let read = quoted(value).and_then(|text| {
        let read = interval_text::parse_in(text, named, false).ok()?;
        named.within(read, digits)
    });
    if let Some(read) = read {
        return Some(Expr::Interval(ast::Interval {
            value: Box::new(word(&in_units(read))),
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        }));
    }
    let is_plain = fields.is_empty() && digits.is_none();
    match value {
        // Its error is that of a cast.
        Expr::Value(_) if is_plain => {
            Some(cast(value.clone(), DataType::Interval { fields: None, precision: None }))
        }
        _ if is_plain => None,
        value => {
            let digits = number(digits.unwrap_or(6).into());
            let fields = Expr::value(ast::Value::SingleQuotedString(fields.to_owned()));
            Some(call(INTERVAL_WITHIN, vec![value.clone(), fields, digits]))
        }
    }
}

fn quoted(value: &Expr) -> Option<&str> {
    let Expr::Value(value) = value else { return None };
    match &value.value {
        ast::Value::SingleQuotedString(text) => Some(text),
        _ => None,
    }
}

fn parts_of(written: &ast::Interval) -> Option<IntervalMonthDayNano> {
    interval::parse(quoted(&written.value)?).ok()
}

/// In units that both read; intervals are written with microseconds as the finest unit.
pub(super) fn in_units(parts: IntervalMonthDayNano) -> String {
    let IntervalMonthDayNano { months, days, nanoseconds } = parts;
    format!("{months} months {days} days {} microseconds", nanoseconds / 1000)
}

/// Whether a collation is the one that text has.
pub(crate) fn is_byte_order(collation: &ast::ObjectName) -> bool {
    let name = collation.0.last().and_then(ast::ObjectNamePart::as_ident).map(fold);
    name.is_some_and(|name| ["C", "POSIX", "default", "ucs_basic"].contains(&name.as_str()))
}

fn lower_operator(operator: &UnaryOperator, operand: &Expr) -> Option<Expr> {
    let function = match operator {
        UnaryOperator::Minus => return negated(operand),
        UnaryOperator::BitwiseNot => {
            let minus_one = Expr::value(ast::Value::Number("-1".to_owned(), false));
            return Some(nested(binary(minus_one, BinaryOperator::Minus, operand.clone())));
        }
        UnaryOperator::PGSquareRoot => "sqrt",
        UnaryOperator::PGCubeRoot => "cbrt",
        UnaryOperator::PGAbs => "abs",
        _ => return None,
    };
    Some(call(function, vec![operand.clone()]))
}

/// `extract` of fields that DataFusion lacks, or gives without a fraction.
fn part_of_time(name: &str, from: &Expr) -> Option<Expr> {
    let function = match name.to_ascii_lowercase().as_str() {
        "second" | "seconds" => seconds_of(),
        "millisecond" | "milliseconds" => milliseconds_of(),
        "julian" => julian_of(),
        name => {
            return period(name, from).map(|number| cast(number, DataType::Integer(None)));
        }
    };
    Some(call(function.name(), vec![from.clone()]))
}

/// `date_part` of fields that are infinite for an infinite time, which is no integer.
fn double_part(name: &str, from: &Expr) -> Option<Expr> {
    Some(match name.to_ascii_lowercase().as_str() {
        "year" | "years" => call(year_of().name(), vec![from.clone()]),
        "isoyear" => call(isoyear_of().name(), vec![from.clone()]),
        name => return period(name, from),
    })
}

/// The number of a period of several years.
fn period(name: &str, from: &Expr) -> Option<Expr> {
    let years = match name {
        "decade" | "decades" => 10,
        "century" | "centuries" => 100,
        "millennium" | "millennia" | "millenniums" => 1000,
        _ => return None,
    };
    Some(call(period_of_years().name(), vec![from.clone(), number(years)]))
}

/// A literal in quotes.
pub(super) fn word(text: &str) -> Expr {
    Expr::value(ast::Value::SingleQuotedString(text.to_owned()))
}

/// A whole number.
pub(super) fn number(number: u64) -> Expr {
    Expr::value(ast::Value::Number(number.to_string(), false))
}

/// The arguments of a call, if all are plain expressions by place.
pub(super) fn given(function: &ast::Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let args = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg.clone()),
        _ => None,
    });
    args.collect()
}

/// Makes one identifier of the name of a function in the schema `cleave`: DataFusion finds names of several as they are
/// written.
fn name_by_one(name: &mut ast::ObjectName) {
    use ast::ObjectNamePart::Identifier;
    if let [Identifier(schema), Identifier(own)] = name.0.as_slice() {
        let whole = format!("{}.{}", fold(schema), fold(own));
        if [RELEASE_RESULTS, RESET_STATEMENTS].contains(&whole.as_str()) {
            *name = ast::ObjectName::from(vec![Ident::with_quote('"', whole)]);
        }
    }
}

fn lower_function(function: &mut ast::Function) -> Option<Expr> {
    name_by_one(&mut function.name);
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice() else {
        return None;
    };
    let own = name.value.to_ascii_lowercase();
    match own.as_str() {
        "lag" if is_by_row(&function.args) => LAG_BY_ROW.clone_into(&mut name.value),
        "lead" if is_by_row(&function.args) => LEAD_BY_ROW.clone_into(&mut name.value),
        "ceiling" => "ceil".clone_into(&mut name.value),
        "round" | "trunc" if is_of_quoted_digits(&function.args) => {
            let [value, digits] = <[Expr; 2]>::try_from(given(function)?).ok()?;
            return Some(call(&own, vec![value, cast(digits, DataType::Integer(None))]));
        }
        "gcd" | "lcm" => {
            let [left, right] = <[Expr; 2]>::try_from(given(function)?).ok()?;
            let (left, right) = match (whole_of_quotes(&left), whole_of_quotes(&right)) {
                (Some(left), None) => (left, right),
                (None, Some(right)) => (left, right),
                _ => return None,
            };
            return Some(call(&own, vec![left, right]));
        }
        _ if OF_A_DOUBLE.contains(&own.as_str()) && is_of_quoted(&function.args) => {
            let [text] = <[Expr; 1]>::try_from(given(function)?).ok()?;
            return Some(call(&own, vec![cast(text, DataType::DoublePrecision)]));
        }
        // DataFusion's logarithm with a base is not exact for powers of ten.
        "log" if is_of_one(&function.args) => {
            "log10".clone_into(&mut name.value);
        }
        // DataFusion's own cannot take back a value that has left a frame.
        "every" | "bool_and" | "bool_or" if function.over.is_some() => {
            let least_or_greatest = if own == "bool_or" { "max" } else { "min" };
            least_or_greatest.clone_into(&mut name.value);
            if let FunctionArguments::List(list) = &mut function.args
                && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))] = list.args.as_mut_slice()
            {
                let value = nested(std::mem::replace(arg, Expr::value(ast::Value::Null)));
                let always = Expr::value(ast::Value::Boolean(true));
                // Nothing but a boolean.
                *arg = binary(value, BinaryOperator::And, always);
            }
        }
        "every" => "bool_and".clone_into(&mut name.value),
        "variance" => "var_samp".clone_into(&mut name.value),
        "transaction_timestamp" => "now".clone_into(&mut name.value),
        "gen_random_uuid" => return Some(call(UUID_OF, vec![call("uuid", Vec::new())])),
        "mod" => {
            let [left, right] = <[Expr; 2]>::try_from(given(function)?).ok()?;
            let rest = |part: Expr| Box::new(Expr::Nested(Box::new(part)));
            let (left, right) = (rest(left), rest(right));
            let rest = Expr::BinaryOp { left, op: BinaryOperator::Modulo, right };
            return Some(Expr::Nested(Box::new(rest)));
        }
        "age" => {
            let [since] = <[Expr; 1]>::try_from(given(function)?).ok()?;
            let today = cast(call("now", Vec::new()), DataType::Date);
            return Some(call("age", vec![today, since]));
        }
        "date" => {
            let [time] = <[Expr; 1]>::try_from(given(function)?).ok()?;
            return Some(cast(time, DataType::Date));
        }
        "date_trunc" => {
            let [unit, at, zone] = <[Expr; 3]>::try_from(given(function)?).ok()?;
            let moment = DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone);
            let moment = cast(at, moment);
            let there = call(AT_TIME_ZONE, vec![moment.clone(), zone.clone()]);
            let name = match &unit {
                Expr::Value(value) => literal_text(&value.value),
                _ => None,
            };
            if name.is_some_and(keeps_offset) {
                let start = call("date_trunc", vec![unit, there.clone()]);
                return Some(call(MOMENT_BESIDE, vec![start, there, moment]));
            }
            return Some(call(AT_TIME_ZONE, vec![call("date_trunc", vec![unit, there]), zone]));
        }
        "timezone" => {
            let [zone, at] = <[Expr; 2]>::try_from(given(function)?).ok()?;
            return Some(call(AT_TIME_ZONE, vec![at, zone]));
        }
        "ntile" if function.over.is_some() => {
            let number = Expr::Function(function.clone());
            return Some(cast(number, DataType::Integer(None)));
        }
        "date_part" => {
            let [field, from] = <[Expr; 2]>::try_from(given(function)?).ok()?;
            let Expr::Value(field) = field else { return None };
            let ast::Value::SingleQuotedString(field) = field.value else { return None };
            if let Some(part) = double_part(&field, &from) {
                return Some(part);
            }
            let part = part_of_time(&field, &from)?;
            return Some(cast(part, DataType::DoublePrecision));
        }
        "mode" if !function.within_group.is_empty() => {
            return sorted_list(function).map(|list| call(MOST_FREQUENT, vec![list]));
        }
        "percentile_disc" if !function.within_group.is_empty() => {
            let [fraction] = <[Expr; 1]>::try_from(given(function)?).ok()?;
            let list = sorted_list(function)?;
            return Some(call(DISCRETE_PERCENTILE, vec![list, fraction]));
        }
        "string_agg" if has_own_delimiters(function) => return with_own_delimiters(function),
        "array_agg" | "string_agg" if function.over.is_none() => return sort_distinct(function),
        "array" => {
            let FunctionArguments::Subquery(query) = &function.args else { return None };
            return list_of_rows(query).map(|list| call(LIST_OR_EMPTY, vec![list]));
        }
        _ => {}
    }
    None
}

/// Functions of one number: of several types, PostgreSQL prefers doubles for a literal in quotes, which has none.
const OF_A_DOUBLE: [&str; 21] = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "cot",
    "degrees", "exp", "ln", "radians", "round", "sign", "sin", "sinh", "sqrt", "tan",
];

/// Whether the only argument is a literal in quotes.
fn is_of_quoted(args: &FunctionArguments) -> bool {
    matches!(args, FunctionArguments::List(list) if matches!(list.args.as_slice(), [one] if is_quoted(one)))
}

/// A whole number in quotes, of the smallest type that has it: beside another number, it gets that one's type.
fn whole_of_quotes(argument: &Expr) -> Option<Expr> {
    let Expr::Value(value) = argument else { return None };
    let ast::Value::SingleQuotedString(text) = &value.value else { return None };
    let number: i64 = text.trim().parse().ok()?;
    let own = match (i16::try_from(number), i32::try_from(number)) {
        (Ok(_), _) => DataType::SmallInt(None),
        (_, Ok(_)) => DataType::Integer(None),
        _ => DataType::BigInt(None),
    };
    Some(cast(argument.clone(), own))
}

/// Whether the second of two arguments is a literal in quotes.
fn is_of_quoted_digits(args: &FunctionArguments) -> bool {
    matches!(args, FunctionArguments::List(list) if matches!(list.args.as_slice(), [_, two] if is_quoted(two)))
}

fn is_quoted(argument: &FunctionArg) -> bool {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) = argument else {
        return false;
    };
    matches!(value.value, ast::Value::SingleQuotedString(_))
}

fn is_of_one(args: &FunctionArguments) -> bool {
    matches!(args, FunctionArguments::List(list) if list.args.len() == 1)
}

/// Whether `lag` or `lead` has other arguments than literals behind its value, which DataFusion does not take, or a
/// default that may be no value of its type.
fn is_by_row(args: &FunctionArguments) -> bool {
    // DataFusion takes an offset of NULL for its default.
    let is_null = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => {
            value.value == ast::Value::Null
        }
        _ => false,
    };
    // Whose type may be the common one.
    let is_wide = |arg: &FunctionArg| {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else { return false };
        // A negative one is none of DataFusion's unsigned row numbers.
        let Expr::Value(value) = arg else { return matches!(arg, Expr::UnaryOp { .. }) };
        matches!(&value.value, ast::Value::Number(digits, _) if digits.parse::<i16>().is_err())
    };
    let is_literal = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::UnaryOp { expr, .. })) => {
            matches!(**expr, Expr::Value(_))
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => matches!(arg, Expr::Value(_)),
        _ => true,
    };
    match args {
        FunctionArguments::List(list) => {
            !list.args.iter().skip(1).all(is_literal)
                || list.args.get(1).is_some_and(is_null)
                || list.args.get(2).is_some_and(is_wide)
        }
        _ => false,
    }
}

/// The sorted expression of WITHIN GROUP, as a list.
fn sorted_list(function: &ast::Function) -> Option<Expr> {
    let [by] = function.within_group.as_slice() else { return None };
    let mut list = call("array_agg", vec![by.expr.clone()]);
    if let Expr::Function(aggregate) = &mut list {
        aggregate.filter.clone_from(&function.filter);
        aggregate.over.clone_from(&function.over);
        if let FunctionArguments::List(arguments) = &mut aggregate.args {
            arguments.clauses.push(FunctionArgumentClause::OrderBy(function.within_group.clone()));
        }
    }
    Some(list)
}

/// PostgreSQL finds equal values by sorting them. The list is sorted once it is complete: orders within the aggregate
/// are shared between aggregates by DataFusion, which makes opposite ones of one order.
fn sort_distinct(function: &mut ast::Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    if list.duplicate_treatment != Some(ast::DuplicateTreatment::Distinct) {
        return None;
    }
    let (value, delimiter) = match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] => (value.clone(), None),
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(delimiter @ Expr::Value(_))),
        ] => (value.clone(), Some(delimiter.clone())),
        _ => return None,
    };
    let order = list.clauses.iter().find_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(order) => Some(order.as_slice()),
        _ => None,
    });
    let options = match order {
        None => ast::OrderByOptions { asc: None, nulls_first: None },
        // Any other order is an error.
        Some([by]) if by.expr == value => by.options,
        Some(_) => return None,
    };
    list.clauses.retain(|clause| !matches!(clause, FunctionArgumentClause::OrderBy(_)));
    list.args.truncate(1);
    "array_agg".clone_into(&mut only_name(&mut function.name)?.value);
    let is_descending = options.asc == Some(false);
    let option = |is_set: bool| Expr::value(ast::Value::Boolean(is_set));
    let nulls_first = option(options.nulls_first.unwrap_or(is_descending));
    let items = Expr::Function(function.clone());
    let sorted = call(SORTED_LIST, vec![items, option(is_descending), nulls_first]);
    Some(match delimiter {
        Some(delimiter) => call(JOINED_LIST, vec![sorted, delimiter]),
        None => sorted,
    })
}

/// Whether `function`, a `string_agg`, has a delimiter of each row.
fn has_own_delimiters(function: &ast::Function) -> bool {
    matches!(given(function).as_deref(), Some([_, delimiter]) if names_columns(delimiter))
        && matches!(&function.args, FunctionArguments::List(list)
            if list.duplicate_treatment != Some(ast::DuplicateTreatment::Distinct))
}

/// `string_agg` of texts with their delimiters before them, without the first delimiter, which PostgreSQL leaves out.
fn with_own_delimiters(function: &ast::Function) -> Option<Expr> {
    let [value, delimiter] = <[Expr; 2]>::try_from(given(function)?).ok()?;
    let literal = |text: &str| Expr::value(ast::Value::SingleQuotedString(text.to_owned()));
    let delimiter = nested(call("coalesce", vec![delimiter, literal("")]));
    let aggregate = |name: &str, args: Vec<Expr>, filter: Option<Box<Expr>>| {
        let mut made = call(name, args);
        if let Expr::Function(made) = &mut made {
            made.over.clone_from(&function.over);
            made.filter = filter;
            if let (FunctionArguments::List(made), FunctionArguments::List(own)) =
                (&mut made.args, &function.args)
            {
                made.clauses.clone_from(&own.clauses);
            }
        }
        made
    };
    let is_given = Expr::IsNotNull(Box::new(nested(value.clone())));
    let filter = match &function.filter {
        Some(own) => binary(nested(own.as_ref().clone()), BinaryOperator::And, is_given),
        None => is_given,
    };
    let text = binary(delimiter.clone(), BinaryOperator::StringConcat, nested(value));
    let joined = aggregate("string_agg", vec![text, literal("")], function.filter.clone());
    let first = aggregate("first_value", vec![delimiter], Some(Box::new(filter)));
    let one = Expr::value(ast::Value::Number("1".to_owned(), false));
    let begin = binary(call("character_length", vec![first]), BinaryOperator::Plus, one);
    Some(call("substr", vec![joined, begin]))
}

fn only_name(name: &mut ast::ObjectName) -> Option<&mut Ident> {
    match name.0.as_mut_slice() {
        [ast::ObjectNamePart::Identifier(name)] => Some(name),
        _ => None,
    }
}

/// `(SELECT array_agg(v ORDER BY o, …) FROM (query) AS m (v, o, …))`: sort keys of `query` become columns.
fn list_of_rows(query: &ast::Query) -> Option<Expr> {
    let mut rows = query.clone();
    let item = || Expr::Identifier(Ident::new("__item"));
    let mut names = vec!["__item".to_owned()];
    let mut order = Vec::new();
    if let Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(keys), .. }) = &query.order_by {
        let SetExpr::Select(select) = &mut *rows.body else { return None };
        let [value] = select.projection.as_slice() else { return None };
        let (value, alias) = match value {
            SelectItem::UnnamedExpr(value) => (value.clone(), None),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), Some(fold(alias))),
            _ => return None,
        };
        for key in keys {
            let is_value = match &key.expr {
                Expr::Value(number) => matches!(&number.value, ast::Value::Number(..)),
                Expr::Identifier(name) if alias.as_ref() == Some(&fold(name)) => true,
                other => *other == value,
            };
            let expr = if is_value {
                item()
            } else {
                let name = format!("__key_{}", names.len());
                let alias = Ident::new(&name);
                select.projection.push(SelectItem::ExprWithAlias { expr: key.expr.clone(), alias });
                let key = Expr::Identifier(Ident::new(&name));
                names.push(name);
                key
            };
            order.push(ast::OrderByExpr { expr, ..key.clone() });
        }
        // A limit needs the order in place; otherwise the order has no effect there.
        if query.limit_clause.is_none() && query.fetch.is_none() && select.distinct.is_none() {
            rows.order_by = None;
        }
    }
    let mut list = call("array_agg", vec![item()]);
    if let Expr::Function(aggregate) = &mut list
        && let FunctionArguments::List(arguments) = &mut aggregate.args
        && !order.is_empty()
    {
        arguments.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
    let text = format!("SELECT 1 FROM (SELECT 1) AS __items ({})", names.join(", "));
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text).ok()?;
    let mut whole = parser.parse_query().ok()?;
    let SetExpr::Select(select) = &mut *whole.body else { return None };
    select.projection = vec![SelectItem::UnnamedExpr(list)];
    match &mut select.from.first_mut()?.relation {
        ast::TableFactor::Derived { subquery, .. } => **subquery = rows,
        _ => return None,
    }
    Some(Expr::Subquery(whole))
}
