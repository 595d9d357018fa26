//! The parts of an error's text: places, names and hints, and what DataFusion says, in PostgreSQL's words.
//!
//! Source: the messages of PostgreSQL 15.

use std::fmt;

use arrow::error::ArrowError;
use datafusion_common::error::DataFusionError;

use super::{ConflictKind, NameKind, Position, cut};

/// `line 3, column 7: ` before a message that has a position.
pub(super) struct At(pub(super) Option<Position>);

/// `at or near "form"`, or at the end.
pub(super) struct Near<'a>(pub(super) &'a Option<String>);

/// `; hint` after a message that has one.
pub(super) struct Hint<'a>(pub(super) Option<&'a str>);

/// `; did you mean "title"?` after an unknown name that is near to one that exists.
pub(super) struct Meant<'a>(pub(super) &'a Option<String>);

/// ` (and 2 others)` behind the first one of several.
pub(super) struct AndOthers(pub(super) usize);

/// A name that nothing has, and what it was looked for in.
pub(super) struct Missing<'a> {
    pub(super) kind: NameKind,
    pub(super) name: &'a str,
    pub(super) of: Option<&'a str>,
}

impl NameKind {
    /// What the name of something that exists is called: tables, views, indexes and sequences share their names.
    pub(super) fn as_taken(self) -> Self {
        match self {
            Self::Table | Self::View | Self::Index | Self::Sequence => Self::Relation,
            other => other,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |position| write!(formatter, "{position}: "))
    }
}

impl fmt::Display for Near<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(token) => write!(formatter, "at or near \"{}\"", cut(token)),
            None => formatter.write_str("at end of input"),
        }
    }
}

impl fmt::Display for Hint<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |hint| write!(formatter, "; {hint}"))
    }
}

impl fmt::Display for Meant<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(formatter, "; did you mean \"{name}\"?"))
    }
}

impl fmt::Display for AndOthers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => formatter.write_str(" (and another one)"),
            count => write!(formatter, " (and {count} others)"),
        }
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, of } = self;
        match (kind, of) {
            (NameKind::Setting, _) => {
                write!(formatter, "unrecognized configuration parameter \"{name}\"")
            }
            (NameKind::Parameter, _) => write!(formatter, "there is no parameter {name}"),
            (NameKind::Column, None) if name.contains('.') => {
                write!(formatter, "column {name} does not exist")
            }
            (_, Some(of)) if of.starts_with("relation ") => {
                write!(formatter, "{kind} \"{name}\" of {of} does not exist")
            }
            (_, Some(of)) => write!(formatter, "{kind} \"{name}\" does not exist in {of}"),
            (_, None) => write!(formatter, "{kind} \"{name}\" does not exist"),
        }
    }
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Update => "could not serialize access due to concurrent update",
            Self::Dependencies => {
                "could not serialize access due to read/write dependencies among transactions"
            }
            Self::Deadlock => "deadlock detected",
            Self::LockTimeout => "canceling statement due to lock timeout",
            Self::LockNotAvailable => "could not obtain lock",
        })
    }
}

/// Of a text or bytea column of which more is put together than an array can have.
const TOO_MUCH_TEXT: &str = "more than 2 GiB of one column would be put together: sort, join, group or return fewer \
    rows at once, or without that column";

/// DataFusion's message without the frames it was handed through and its class prefix.
pub(super) fn engine_message(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::External(inner) => inner.to_string(),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::OffsetOverflowError(_) => TOO_MUCH_TEXT.to_owned(),
            ArrowError::DivideByZero => "division by zero".to_owned(),
            ArrowError::ArithmeticOverflow(message) => overflow(message),
            ArrowError::CastError(message) => cast(message).unwrap_or_else(|| message.clone()),
            other => other.to_string(),
        },
        DataFusionError::Plan(message) | DataFusionError::Execution(message) => {
            statement(message).unwrap_or_else(|| message.clone())
        }
        DataFusionError::Configuration(message) | DataFusionError::ResourcesExhausted(message) => {
            message.clone()
        }
        DataFusionError::NotImplemented(message) => not_implemented(message),
        other => other.strip_backtrace(),
    }
}

/// Of a statement that has no meaning, or a function that does not take its arguments.
fn statement(message: &str) -> Option<String> {
    const SAID: [(&str, &str); 5] = [
        ("LIMIT must be >= 0", "LIMIT must not be negative"),
        ("OFFSET must be >=0", "OFFSET must not be negative"),
        (
            "Scalar subquery returned",
            "more than one row returned by a subquery used as an expression",
        ),
        ("negative count not allowed", "negative substring length not allowed"),
        ("zero raised to a negative power", "zero raised to a negative power is undefined"),
    ];
    if let Some((operator, _)) = message.split_once(" queries have different number of columns") {
        return Some(format!("each {operator} query must have the same number of columns"));
    }
    let said = SAID.into_iter().find(|(text, _)| message.contains(text));
    said.map(|(_, ours)| ours.to_owned())
}

/// Of what DataFusion reads and does not do.
fn not_implemented(message: &str) -> String {
    // What follows is the expression in the parser's own form.
    if message.starts_with("Dot access not supported") {
        return "a field of an expression in parentheses is not supported; write st.x or st['x'] in place of (st).x"
            .to_owned();
    }
    format!("{message} (not supported)")
}

/// Of a number that its type does not hold: Arrow names the operands, our functions the type.
fn overflow(message: &str) -> String {
    match message.strip_prefix("Overflow happened on: ") {
        Some(operation) => format!("value out of range: {operation}"),
        None => message.to_owned(),
    }
}

/// Of a cast that fails, where Arrow says it in one of its two usual ways.
fn cast(message: &str) -> Option<String> {
    if let Some(rest) = message.strip_prefix("Cannot cast string '") {
        let (text, rest) = rest.rsplit_once("' to value of ")?;
        let name = type_name(rest.strip_suffix(" type")?);
        return Some(format!("invalid input syntax for type {name}: \"{}\"", cut(text)));
    }
    let (_, name) = message.strip_prefix("Can't cast value ")?.rsplit_once(" to type ")?;
    Some(format!("{} out of range", type_name(name)))
}

/// PostgreSQL's name of a type that DataFusion names in a message.
fn type_name(engine: &str) -> &str {
    match engine {
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Boolean" => "boolean",
        "Date32" => "date",
        name if name.starts_with("Decimal") => "numeric",
        name if name.starts_with("Timestamp") => "timestamp",
        name if name.starts_with("Time") => "time",
        name if name.starts_with("Interval") => "interval",
        other => other,
    }
}
