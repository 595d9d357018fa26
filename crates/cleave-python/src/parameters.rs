//! Values of Python as parameters: an object in, its SQL type and its text out, by PostgreSQL's input rules.
//!
//! Plain types are read here; `cleave/_parameters.py` adapts all others (`Decimal`, dates, lists, numpy's scalars).
//! Text and None have no type of their own: they take that of their place in the statement.

use cleave_store::ColumnType;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyFrozenSet, PyInt, PyList, PyMapping, PySet, PyString,
    PyTuple,
};

use crate::errors;
use crate::plain_types::zero_byte;

/// Rows after which a load looks for Ctrl-C.
const ROWS_AT_A_TIME: usize = 8192;

/// A table that rows go to.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct Target {
    /// Its name.
    #[pyo3(item(0))]
    pub(crate) name: String,
    /// It was named with the schema `public`: no temporary one is meant.
    #[pyo3(item(1))]
    pub(crate) is_public: bool,
}

impl Target {
    /// The name as SQL writes it.
    pub(crate) fn quoted(&self) -> String {
        let name = quoted(&self.name);
        if self.is_public { format!("public.{name}") } else { name }
    }
}

/// A name as SQL writes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of an INSERT.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) enum Listed {
    /// As many of the table's as this, from the first one.
    First(usize),
    /// Those with these names.
    Named(Vec<String>),
}

impl Listed {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::First(count) => *count,
            Self::Named(names) => names.len(),
        }
    }
}

/// A parameter's value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value {
    /// Its type; None: that of its place.
    pub(crate) column_type: Option<ColumnType>,
    /// Its text; None: NULL.
    pub(crate) text: Option<String>,
}

impl Value {
    /// The value of `object`.
    ///
    /// # Errors
    /// `ProgrammingError` for an object that is no value, `DataError` for text with a zero byte.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Self { column_type: None, text: None });
        }
        if let Ok(text) = object.cast_exact::<PyString>() {
            return Self::new(None, text.to_str()?.to_owned()).without_zero(object.py());
        }
        // A boolean is an integer in Python.
        if let Ok(value) = object.cast_exact::<PyBool>() {
            let text = if value.is_true() { "true" } else { "false" };
            return Ok(Self::new(Some(ColumnType::Boolean), text.to_owned()));
        }
        if object.cast_exact::<PyInt>().is_ok() {
            return Self::of_integer(object);
        }
        if let Ok(value) = object.cast_exact::<PyFloat>() {
            return Ok(Self::new(Some(ColumnType::Double), float_text(value.extract()?)));
        }
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self::new(Some(ColumnType::Bytea), hexadecimal(bytes.as_bytes())));
        }
        Self::adapted(object)
    }

    fn new(column_type: Option<ColumnType>, text: String) -> Self {
        Self { column_type, text: Some(text) }
    }

    /// The smallest type that has it, as other clients declare integers: a comparison with a larger column is the same,
    /// and one with a smaller column finds nothing in place of an error.
    fn of_integer(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let column_type = match object.extract::<i64>() {
            Ok(value) if i32::try_from(value).is_ok() => ColumnType::Int,
            Ok(_) => ColumnType::BigInt,
            Err(_) => ColumnType::NUMERIC,
        };
        Ok(Self::new(Some(column_type), object.str()?.to_str()?.to_owned()))
    }

    /// The value of an object that Python's part of the package knows.
    fn adapted(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let adapted = py.import("cleave._parameters")?.call_method1("adapt", (object,))?;
        let (name, text): (Option<String>, Option<String>) = adapted.extract()?;
        let column_type = name.as_deref().map(|name| {
            named_type(name).ok_or_else(|| {
                let message = format!("a value was adapted to the type {name}, which is unknown");
                errors::made(py, errors::INTERNAL, &message, None)
            })
        });
        Self { column_type: column_type.transpose()?, text }.without_zero(py)
    }

    /// The value, unless its text has a zero byte.
    fn without_zero(self, py: Python<'_>) -> PyResult<Self> {
        match &self.text {
            Some(text) if text.contains('\0') => Err(errors::exception(py, &zero_byte())),
            _ => Ok(self),
        }
    }
}

/// Calls `take` with the values of each of `rows`, of which each must have so many.
///
/// # Errors
/// `ProgrammingError` for a row with more or fewer, and for one that is no sequence of values; those of [`Value::of`]
/// and of `take`; `KeyboardInterrupt`.
pub(crate) fn for_each_row(
    rows: &Bound<'_, PyAny>,
    width: usize,
    mut take: impl FnMut(&[Value]) -> PyResult<()>,
) -> PyResult<()> {
    let py = rows.py();
    let mut values = Vec::with_capacity(width);
    for (place, row) in rows.try_iter()?.enumerate() {
        values.clear();
        let row = row?;
        if !is_row(&row) {
            let kind = row.get_type().name()?;
            let message = format!("row {} is a {kind}, and no sequence of values", place + 1);
            return Err(errors::made(py, "07001", &message, None));
        }
        for value in row.try_iter()? {
            values.push(Value::of(&value?)?);
        }
        if values.len() != width {
            let message = format!("row {} has {} values, and not {width}", place + 1, values.len());
            return Err(errors::made(py, "07001", &message, None));
        }
        take(&values)?;
        if place % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1 {
            py.check_signals()?;
        }
    }
    Ok(())
}

/// Whether an object is read as the values of a row. A text would be one of letters, and a mapping one of its keys; a
/// set has no order.
fn is_row(object: &Bound<'_, PyAny>) -> bool {
    if object.is_exact_instance_of::<PyTuple>() || object.is_exact_instance_of::<PyList>() {
        return true;
    }
    let is_text = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>();
    let is_set = object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>();
    !is_text && !is_set && !object.is_instance_of::<PyMapping>()
}

/// The type that `cleave/_parameters.py` calls so.
fn named_type(name: &str) -> Option<ColumnType> {
    Some(match name {
        "boolean" => ColumnType::Boolean,
        "integer" => ColumnType::Int,
        "bigint" => ColumnType::BigInt,
        "double precision" => ColumnType::Double,
        "numeric" => ColumnType::NUMERIC,
        "text" => ColumnType::Text,
        "bytea" => ColumnType::Bytea,
        "date" => ColumnType::Date,
        "time" => ColumnType::Time,
        "timestamp" => ColumnType::Timestamp,
        "timestamptz" => ColumnType::TimestampTz,
        "interval" => ColumnType::Interval,
        "uuid" => ColumnType::Uuid,
        _ => return None,
    })
}

fn float_text(value: f64) -> String {
    match (value.is_nan(), value.is_infinite()) {
        (true, _) => "NaN".to_owned(),
        (_, true) if value > 0.0 => "Infinity".to_owned(),
        (_, true) => "-Infinity".to_owned(),
        // The fewest digits that read back the same.
        _ => format!("{value:?}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit));
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}
