//! DEFAULT: a column's SQL text in, an array of default values out.
//!
//! A default is one of: a constant (a number, a string, TRUE, FALSE, NULL, also cast to the column's own type or
//! written as `DATE '...'`); the time of the statement (`now()`, CURRENT_TIMESTAMP, LOCALTIMESTAMP, CURRENT_DATE,
//! LOCALTIME), which is the same in every row of a statement, as in PostgreSQL; the next number of a sequence; or a
//! random uuid. So it needs no planner. Neither the clock nor the catalog is read here: the caller passes the
//! statement's [`Moment`].
//!
//! Source: PostgreSQL's manual, "Default Values".

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Int64Array, Time64MicrosecondArray, TimestampMicrosecondArray,
    new_null_array,
};
use arrow::compute::cast;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::identifiers::unqualified;
use cleave_catalog::value::ColumnBuilder;
use cleave_catalog::value::literal::Literal;
use cleave_media::random_bytes;
use cleave_store::{Column, ColumnType};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Value as AstValue};

use crate::statement::ddl::column_type;
use crate::statement::moment::Moment;
use crate::statement::names::quoted;
use crate::statement::parse::read_text;

const DAY_US: i64 = 86_400_000_000;

/// The kind of a default.
enum DefaultValue {
    Null,
    Text {
        text: String,
        kind: Literal,
    },
    Time(Instant),
    /// The next number of the named sequence.
    Next(String),
    /// A uuid for each row, as `gen_random_uuid()` makes them.
    Uuid,
}

/// Which part of the statement's time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instant {
    Now,
    Date,
    Time,
}

/// The column's default, or NULL, `row_count` times. `moment` is the statement's.
///
/// # Errors
/// Those of [`check_default`], from a stored text only if another version wrote it.
pub fn default_array(column: &Column, row_count: usize, moment: &Moment) -> Result<ArrayRef> {
    let now_us = moment.now_us;
    let data_type = column.column_type.arrow();
    match value_of(column)? {
        DefaultValue::Null => Ok(new_null_array(&data_type, row_count)),
        DefaultValue::Text { text, kind } => {
            let one = constant(column, kind, &text)?;
            Ok(ScalarValue::try_from_array(&one, 0)?.to_array_of_size(row_count)?)
        }
        DefaultValue::Next(sequence) => moment.numbers(column, &sequence, row_count),
        DefaultValue::Uuid => uuids(column, row_count),
        DefaultValue::Time(instant) => {
            let midnight = now_us.div_euclid(DAY_US);
            let value = match instant {
                Instant::Date => midnight * DAY_US,
                Instant::Now | Instant::Time => now_us,
            };
            Ok(match column.column_type {
                ColumnType::Date => {
                    let days = i32::try_from(midnight).unwrap_or(i32::MAX);
                    Arc::new(Date32Array::from(vec![days; row_count]))
                }
                ColumnType::Time => {
                    let time = now_us.rem_euclid(DAY_US);
                    Arc::new(Time64MicrosecondArray::from(vec![time; row_count]))
                }
                ColumnType::TimestampTz => {
                    let array = TimestampMicrosecondArray::from(vec![value; row_count]);
                    Arc::new(array.with_timezone("UTC"))
                }
                _ => Arc::new(TimestampMicrosecondArray::from(vec![value; row_count])),
            })
        }
    }
}

/// Checks that a column's default can be evaluated and is a value of its type.
///
/// # Errors
/// [`Error::Unsupported`] for an expression that is none of those above, [`Error::Invalid`] for one of another
/// type, [`Error::Value`] for a constant that is no value of the type.
pub fn check_default(column: &Column) -> Result<()> {
    let mismatch = |what: &str| Error::Invalid {
        message: format!(
            "column \"{}\" is of type {} but default expression is of type {what}",
            column.name, column.column_type
        ),
        fault: Fault::Type,
        position: None,
    };
    use ColumnType as Type;
    match value_of(column)? {
        DefaultValue::Null => Ok(()),
        DefaultValue::Next(_) => match column.column_type {
            Type::SmallInt | Type::Int | Type::BigInt | Type::Numeric { .. } | Type::Text => Ok(()),
            _ => Err(mismatch("bigint")),
        },
        DefaultValue::Uuid => match column.column_type {
            Type::Uuid => Ok(()),
            _ => Err(mismatch("uuid")),
        },
        DefaultValue::Text { text, kind } => {
            if !kind.fits(&column.column_type) {
                return Err(mismatch(kind.type_name(&text)));
            }
            constant(column, kind, &text).map(|_| ())
        }
        DefaultValue::Time(instant) => {
            let fits = match instant {
                Instant::Now => matches!(
                    column.column_type,
                    Type::Timestamp | Type::TimestampTz | Type::Date | Type::Time
                ),
                Instant::Date => {
                    matches!(column.column_type, Type::Date | Type::Timestamp | Type::TimestampTz)
                }
                Instant::Time => column.column_type == Type::Time,
            };
            let found = match instant {
                Instant::Now => "timestamp with time zone",
                Instant::Date => "date",
                Instant::Time => "time without time zone",
            };
            if fits { Ok(()) } else { Err(mismatch(found)) }
        }
    }
}

/// The value that the constant `expression` has in `column`, also NULL; None: it is no constant that the column takes.
///
/// # Errors
/// [`Error::Value`] for a constant that is no value of the column's type.
pub(crate) fn constant_value(column: &Column, expression: &ast::Expr) -> Result<Option<ArrayRef>> {
    match classify(expression, &column.column_type, "").ok() {
        Some(DefaultValue::Null) => Ok(Some(new_null_array(&column.column_type.arrow(), 1))),
        Some(DefaultValue::Text { text, kind }) if kind.fits(&column.column_type) => {
            constant(column, kind, &text).map(Some)
        }
        _ => Ok(None),
    }
}

/// Uuids of version 4 (RFC 9562): random but for six bits.
fn uuids(column: &Column, count: usize) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(&column.column_type, count);
    for _ in 0..count {
        let random = random_bytes::<16>().map_err(|error| {
            Error::io("draw", std::path::Path::new("a uuid"), std::io::Error::other(error))
        })?;
        let bits = (u128::from_le_bytes(random) & !UUID_FIXED) | UUID_VERSION_4;
        let digits = format!("{bits:032x}");
        builder.append_text(&digits).map_err(|source| Error::Value {
            column: column.name.clone(),
            source: Box::new(source),
        })?;
    }
    Ok(builder.finish())
}

/// The bits of a uuid for its version and variant, and their values.
const UUID_FIXED: u128 = (0xf << 76) | (0b11 << 62);
const UUID_VERSION_4: u128 = (0x4 << 76) | (0b10 << 62);

fn constant(column: &Column, kind: Literal, text: &str) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(&column.column_type, 1);
    kind.append(&mut builder, text)
        .map_err(|source| Error::Value { column: column.name.clone(), source: Box::new(source) })?;
    Ok(builder.finish())
}

fn value_of(column: &Column) -> Result<DefaultValue> {
    let Some(text) = &column.default else {
        return Ok(DefaultValue::Null);
    };
    let expression =
        read_text(text, |parser| parser.parse_expr()).map_err(|_| unsupported(text))?;
    classify(&expression, &column.column_type, text)
}

fn classify(expression: &ast::Expr, target: &ColumnType, text: &str) -> Result<DefaultValue> {
    let literal = |value: &AstValue| match value {
        AstValue::Null => Ok(DefaultValue::Null),
        AstValue::Boolean(value) => {
            Ok(DefaultValue::Text { text: value.to_string(), kind: Literal::Boolean })
        }
        AstValue::Number(number, _) => {
            Ok(DefaultValue::Text { text: number.to_string(), kind: Literal::Number })
        }
        AstValue::SingleQuotedString(text)
        | AstValue::EscapedStringLiteral(text)
        | AstValue::UnicodeStringLiteral(text) => {
            Ok(DefaultValue::Text { text: text.clone(), kind: Literal::String })
        }
        AstValue::DollarQuotedString(text) => {
            Ok(DefaultValue::Text { text: text.value.clone(), kind: Literal::String })
        }
        _ => Err(unsupported(text)),
    };
    match expression {
        ast::Expr::Value(value) => literal(&value.value),
        ast::Expr::Nested(inner) => classify(inner, target, text),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Plus, expr } => classify(expr, target, text),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            match classify(expr, target, text)? {
                DefaultValue::Text { text, kind: Literal::Number } if !text.starts_with('-') => {
                    Ok(DefaultValue::Text { text: format!("-{text}"), kind: Literal::Number })
                }
                _ => Err(unsupported(text)),
            }
        }
        ast::Expr::Cast {
            expr,
            data_type,
            kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
            format: None,
            ..
        } if column_type(data_type).is_ok_and(|cast| same_family(&cast, target)) => {
            classify(expr, target, text)
        }
        ast::Expr::TypedString(typed)
            if column_type(&typed.data_type).is_ok_and(|cast| same_family(&cast, target)) =>
        {
            literal(&typed.value.value)
        }
        ast::Expr::Interval(interval)
            if *target == ColumnType::Interval
                && interval.leading_field.is_none()
                && interval.last_field.is_none() =>
        {
            classify(&interval.value, target, text)
        }
        ast::Expr::Function(function) => {
            let next = || next_of(function).map(DefaultValue::Next);
            let uuid = || is_uuid(function).then_some(DefaultValue::Uuid);
            instant(function).or_else(next).or_else(uuid).ok_or_else(|| unsupported(text))
        }
        _ => Err(unsupported(text)),
    }
}

/// A cast to the column's own type changes nothing. Neither does a cast from one text type to another, since the
/// column's own limit is checked after it.
fn same_family(cast: &ColumnType, target: &ColumnType) -> bool {
    let texts = [cast, target]
        .map(|column_type| matches!(column_type, ColumnType::Text | ColumnType::Varchar(None)));
    cast == target
        || (texts == [true, true])
        || (texts[0] && matches!(target, ColumnType::Varchar(_)))
}

fn is_uuid(function: &ast::Function) -> bool {
    let text = function.to_string().to_ascii_lowercase();
    ["gen_random_uuid()", "pg_catalog.gen_random_uuid()", "uuid_generate_v4()"]
        .contains(&text.as_str())
}

fn instant(function: &ast::Function) -> Option<DefaultValue> {
    let bare = match &function.args {
        ast::FunctionArguments::None => true,
        ast::FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
        ast::FunctionArguments::Subquery(_) => false,
    };
    let plain = bare
        && function.filter.is_none()
        && function.over.is_none()
        && function.within_group.is_empty()
        && !function.uses_odbc_syntax;
    let name = function.name.to_string().to_ascii_lowercase();
    let instant = match name.as_str() {
        "now"
        | "current_timestamp"
        | "localtimestamp"
        | "transaction_timestamp"
        | "statement_timestamp" => Instant::Now,
        "current_date" => Instant::Date,
        "localtime" => Instant::Time,
        _ => return None,
    };
    plain.then_some(DefaultValue::Time(instant))
}

/// Whether each row gets a value of its own, so that the default has no single value.
pub fn is_volatile(column: &Column) -> bool {
    let makes_uuids = |default: &String| default.to_ascii_lowercase().contains("uuid");
    next_default(column).is_some()
        || (column.default.as_ref().is_some_and(makes_uuids)
            && matches!(value_of(column), Ok(DefaultValue::Uuid)))
}

/// The sequence from which a column's default draws, as its text names it.
pub fn next_default(column: &Column) -> Option<String> {
    // Most columns have none: their defaults need not be parsed for it.
    let default = column.default.as_ref()?;
    if !default.to_ascii_lowercase().contains("nextval") {
        return None;
    }
    match value_of(column).ok()? {
        DefaultValue::Next(name) => Some(name),
        _ => None,
    }
}

/// A default that is the next number of the sequence `name`, as PostgreSQL writes it.
pub fn next_text(name: &str) -> String {
    format!("nextval('{}'::regclass)", quoted(name).replace('\'', "''"))
}

/// The default of a column as the catalog shows it: a sequence with its schema, unless the search path finds it
/// without.
pub fn shown_default(column: &Column, has_public: bool) -> Option<String> {
    let own = column.default.as_deref().map(|text| typed_literal(text, column.column_type));
    let Some(name) = next_default(column) else { return own };
    let Some(name) = unqualified(&name) else { return own };
    let schema = if has_public { "" } else { "public." };
    let name = quoted(&name).replace('\'', "''");
    Some(format!("nextval('{schema}{name}'::regclass)"))
}

/// `text`, with its type where it is a literal in quotes, as PostgreSQL shows it.
fn typed_literal(text: &str, column_type: ColumnType) -> String {
    let name = match column_type {
        // PostgreSQL's name, bpchar, is none that a cast may have here.
        ColumnType::Char(_) => return text.to_owned(),
        ColumnType::Varchar(_) => "character varying".to_owned(),
        ColumnType::Numeric { .. } => "numeric".to_owned(),
        other => other.sql_name(),
    };
    // A dump that is read again has the type already.
    let (literal, cast) = match text.rsplit_once("::") {
        Some((literal, cast)) if cast.eq_ignore_ascii_case(&name) => (literal, true),
        _ => (text, false),
    };
    let inner = literal.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let is_literal = inner.is_some_and(|inner| !inner.replace("''", "").contains('\''));
    match is_literal || cast {
        true => format!("{literal}::{name}"),
        false => text.to_owned(),
    }
}

/// Placeholders for numbers that are drawn later.
pub(crate) fn placeholder(column: &Column, count: usize) -> ArrayRef {
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; count]));
    cast(&zeros, &column.column_type.arrow()).unwrap_or(zeros)
}

/// The sequence that `nextval('name')` names.
fn next_of(function: &ast::Function) -> Option<String> {
    let name = function.name.to_string().to_ascii_lowercase();
    let ("nextval" | "pg_catalog.nextval", ast::FunctionArguments::List(list)) =
        (name.as_str(), &function.args)
    else {
        return None;
    };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] = list.args.as_slice()
    else {
        return None;
    };
    let argument = match argument {
        ast::Expr::Cast { expr, .. } => expr,
        other => other,
    };
    match argument {
        ast::Expr::Value(value) => match &value.value {
            AstValue::SingleQuotedString(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn unsupported(text: &str) -> Error {
    Error::Unsupported {
        what: format!("DEFAULT {text}"),
        hint: Some(
            "a default is a constant, nextval('sequence'), gen_random_uuid() or now(), CURRENT_TIMESTAMP, \
                CURRENT_DATE, \
             LOCALTIME"
                .into(),
        ),
        position: None,
    }
}

#[cfg(test)]
mod tests;
