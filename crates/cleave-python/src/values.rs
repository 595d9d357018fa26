//! Rows as values of Python: a batch in, a list of tuples out.
//!
//! | SQL | Python |
//! |---|---|
//! | `boolean`, integers, `real`, `double precision` | `bool`, `int`, `float` |
//! | `numeric` | `decimal.Decimal` |
//! | `text`, `varchar`, `char` | `str` |
//! | `bytea`, `uuid` | `bytes`, `uuid.UUID` |
//! | `date`, `time`, `timestamp` | those of `datetime`, without a zone |
//! | `timestamp with time zone` | `datetime.datetime` in UTC |
//! | `interval` | `datetime.timedelta`: a month has 30 days, twelve of them 365 |
//! | lists, rows | `list`, `tuple` |
//!
//! A date, time or interval outside of Python's range, and any other type, is the text that PostgreSQL prints.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use cleave_host::value::calendar::date_of;
use cleave_host::value::value_text;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyList, PyString, PyTuple};

use crate::errors;
use crate::plain_types::cast_to;

const DAY_US: i64 = 86_400_000_000;
/// Years that Python's dates have.
const YEARS: std::ops::RangeInclusive<i64> = 1..=9999;

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

/// Classes of Python's library.
struct Classes {
    decimal: Py<PyAny>,
    uuid: Py<PyAny>,
    date: Py<PyAny>,
    time: Py<PyAny>,
    datetime: Py<PyAny>,
    timedelta: Py<PyAny>,
    utc: Py<PyAny>,
}

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        CLASSES.get_or_try_init(py, || {
            let of = |module: &str, name: &str| -> PyResult<Py<PyAny>> {
                Ok(py.import(module)?.getattr(name)?.unbind())
            };
            Ok(Self {
                decimal: of("decimal", "Decimal")?,
                uuid: of("uuid", "UUID")?,
                date: of("datetime", "date")?,
                time: of("datetime", "time")?,
                datetime: of("datetime", "datetime")?,
                timedelta: of("datetime", "timedelta")?,
                utc: py.import("datetime")?.getattr("timezone")?.getattr("utc")?.unbind(),
            })
        })
    }
}

/// The rows of `batch`, appended to `list` as tuples.
///
/// # Errors
/// Python's, such as of memory.
pub(crate) fn append_rows(batch: &RecordBatch, list: &Bound<'_, PyList>) -> PyResult<()> {
    let py = list.py();
    let columns = batch.columns().iter().map(|column| values(py, column).map(Vec::into_iter));
    let mut columns = columns.collect::<PyResult<Vec<_>>>()?;
    for _ in 0..batch.num_rows() {
        let row: Vec<_> = columns.iter_mut().filter_map(Iterator::next).collect();
        list.append(PyTuple::new(py, row)?)?;
    }
    Ok(())
}

type Values<'py> = PyResult<Vec<Bound<'py, PyAny>>>;

/// The values of `array`.
fn values<'py>(py: Python<'py>, array: &ArrayRef) -> Values<'py> {
    macro_rules! numbers {
        ($type:ty) => {{
            let numbers = array.as_primitive::<$type>();
            each(py, array, |place| Ok(numbers.value(place).into_pyobject(py)?.into_any()))
        }};
    }
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            each(py, array, |place| Ok(PyBool::new(py, values.value(place)).to_owned().into_any()))
        }
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            each(py, array, |place| Ok(PyFloat::new(py, shortest(values.value(place))).into_any()))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            each(py, array, |place| Ok(PyFloat::new(py, values.value(place)).into_any()))
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            each(py, array, |place| Ok(PyString::new(py, values.value(place)).into_any()))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            each(py, array, |place| Ok(PyBytes::new(py, values.value(place)).into_any()))
        }
        DataType::LargeUtf8 | DataType::Utf8View => values_as(py, array, &DataType::Utf8),
        DataType::LargeBinary | DataType::BinaryView => values_as(py, array, &DataType::Binary),
        DataType::Dictionary(_, of) => values_as(py, array, of),
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            each(py, array, |place| {
                let items = values(py, &lists.value(place))?;
                Ok(PyList::new(py, items)?.into_any())
            })
        }
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter();
            let fields = fields.map(|field| values(py, field)).collect::<PyResult<Vec<_>>>()?;
            each(py, array, |place| {
                let row = fields.iter().filter_map(|field| field.get(place).cloned());
                Ok(PyTuple::new(py, row.collect::<Vec<_>>())?.into_any())
            })
        }
        _ => classes_of_library(py, array),
    }
}

/// The values of an array that have a class in Python's library; the text of all others.
fn classes_of_library<'py>(py: Python<'py>, array: &ArrayRef) -> Values<'py> {
    let classes = Classes::get(py)?;
    match array.data_type() {
        DataType::Decimal128(..) => {
            let (values, class) =
                (array.as_primitive::<Decimal128Type>(), classes.decimal.bind(py));
            each(py, array, |place| class.call1((values.value_as_string(place),)))
        }
        // Without the zeros that pad a quotient.
        DataType::Decimal256(..) => {
            let class = classes.decimal.bind(py);
            each(py, array, |place| class.call1((text(py, array, place)?,)))
        }
        DataType::FixedSizeBinary(16) => {
            let class = classes.uuid.bind(py);
            each(py, array, |place| class.call1((text(py, array, place)?,)))
        }
        DataType::Date32 => {
            let (values, class) = (array.as_primitive::<Date32Type>(), classes.date.bind(py));
            each(py, array, |place| match date_of(i64::from(values.value(place))) {
                date @ (year, ..) if YEARS.contains(&year) => class.call1(date),
                _ => text(py, array, place),
            })
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let values = array.as_primitive::<Time64MicrosecondType>();
            let class = classes.time.bind(py);
            each(py, array, |place| match values.value(place) {
                micros @ 0..DAY_US => class.call1(time_of(micros)),
                // 24:00:00.
                _ => text(py, array, place),
            })
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let values = array.as_primitive::<TimestampMicrosecondType>();
            let class = classes.datetime.bind(py);
            let zone = zone.as_ref().map(|_| classes.utc.bind(py));
            each(py, array, |place| {
                let micros = values.value(place);
                let (year, month, day) = date_of(micros.div_euclid(DAY_US));
                if !YEARS.contains(&year) {
                    return text(py, array, place);
                }
                let (hour, minute, second, micros) = time_of(micros.rem_euclid(DAY_US));
                class.call1((year, month, day, hour, minute, second, micros, zone))
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>();
            let class = classes.timedelta.bind(py);
            each(py, array, |place| {
                let value = values.value(place);
                let (years, months) = (value.months / 12, value.months % 12);
                let days = i64::from(years) * 365 + i64::from(months) * 30 + i64::from(value.days);
                let made = class.call1((days, 0, value.nanoseconds / 1000));
                made.or_else(|_| text(py, array, place))
            })
        }
        _ => each(py, array, |place| text(py, array, place)),
    }
}

/// The values of `array` as those of another type.
fn values_as<'py>(py: Python<'py>, array: &ArrayRef, to: &DataType) -> Values<'py> {
    let cast = cast_to(array, to).map_err(|error| {
        errors::made(py, errors::INTERNAL, &format!("values of a result: {error}"), None)
    })?;
    values(py, &cast)
}

/// `value` of each place that is not NULL.
fn each<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    value: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
) -> Values<'py> {
    let one = |place| match array.is_null(place) {
        true => Ok(py.None().into_bound(py)),
        false => value(place),
    };
    (0..array.len()).map(one).collect()
}

/// The text of a value as PostgreSQL prints it.
fn text<'py>(py: Python<'py>, array: &ArrayRef, place: usize) -> PyResult<Bound<'py, PyAny>> {
    let text = value_text(array, place).map_err(|error| errors::exception(py, &error))?;
    Ok(text.into_pyobject(py)?.into_any())
}

/// Hour, minute, second and microsecond of a time of day.
fn time_of(micros: i64) -> (i64, i64, i64, i64) {
    let seconds = micros / 1_000_000;
    (seconds / 3600, seconds / 60 % 60, seconds % 60, micros % 1_000_000)
}

/// The double that prints as this `real` does: 0.1 and not 0.10000000149011612.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}
