//! Assignment: values as a column stores them, by PostgreSQL's assignment casts. Numbers become numbers, times become
//! times, and texts are fitted to the column's length.
//!
//! 1. [`assign`] converts an array, for the host's own rows. It says which row does not fit.
//! 2. [`assigned_to`] makes the same an expression of a fragment, over the function [`assigned`]. A value that does not
//!    fit fails the fragment; the host, which makes the same rows, then names column and value.
//!
//! Invariant: where both sides make a value, they make the same one.
//!
//! Source: PostgreSQL's manual, "Value Storage"; `pg_cast`.

use std::sync::{Arc, OnceLock};

use arrow::array::types::{Float32Type, Float64Type};
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field};
use cleave_store::ColumnType;
use datafusion_common::config::ConfigOptions;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_physical_expr::expressions::Literal;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::float_of::{Beyond, float_of, floats_of, numerics_of};
use super::infinite::time_cast;
use super::quotient::NUMERIC;

/// Why values do not become those of a column.
#[derive(Debug)]
pub enum Unassigned {
    /// The value of this row is beyond the type's range.
    Row(usize),
    /// There is no such assignment, or its error is of no row.
    Other(DataFusionError),
}

impl From<DataFusionError> for Unassigned {
    fn from(error: DataFusionError) -> Self {
        Self::Other(error)
    }
}

/// Type families within which values are assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Whole numbers, numerics and floats.
    Number,
    /// Texts of any length.
    Text,
    /// Dates, timestamps and times of day.
    Time,
    /// Types whose values are assigned to columns of the same type alone.
    Other,
}

impl Family {
    /// The family of a type.
    #[must_use]
    pub fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Utf8 => Self::Text,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Self::Time,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            _ if data_type.is_numeric() => Self::Number,
            _ => Self::Other,
        }
    }
}

/// The text as a column of at most `count_max` characters stores it: blanks beyond are dropped, and with `strip` all
/// at the end. None: it has more characters.
#[must_use]
pub fn fitting(text: &str, count_max: usize, strip: bool) -> Option<&str> {
    let kept = if strip { text.trim_end_matches(' ') } else { text };
    // A character has at least one byte.
    if kept.len() <= count_max {
        return Some(kept);
    }
    let Some((end, _)) = kept.char_indices().nth(count_max) else { return Some(kept) };
    let (fits, excess) = kept.split_at(end);
    excess.bytes().all(|byte| byte == b' ').then_some(fits)
}

/// The most characters of a column's texts, and whether they are stored without blanks at their end.
#[must_use]
pub fn length_of(column_type: &ColumnType) -> Option<(usize, bool)> {
    let length = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    match *column_type {
        ColumnType::Varchar(Some(count)) => Some((length(count), false)),
        ColumnType::Char(count) => Some((length(count), true)),
        _ => None,
    }
}

/// Texts fitted to a [length](length_of).
///
/// # Errors
/// [`Unassigned::Row`] for the first one that is longer.
pub fn fitted(array: &ArrayRef, (count_max, strip): (usize, bool)) -> Result<ArrayRef, Unassigned> {
    let texts: &StringArray = array.as_string();
    let is_stored = |text: &str| text.len() <= count_max && !(strip && text.ends_with(' '));
    // A text has at least as many bytes as characters: most columns need no second look.
    if texts.iter().flatten().all(is_stored) {
        return Ok(Arc::clone(array));
    }
    let mut kept = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    for (row, text) in texts.iter().enumerate() {
        match text {
            Some(text) => {
                kept.append_value(fitting(text, count_max, strip).ok_or(Unassigned::Row(row))?);
            }
            None => kept.append_null(),
        }
    }
    Ok(Arc::new(kept.finish()))
}

/// Numbers as numbers, and times as times, of the type `to`. Numbers that lose digits are rounded, as PostgreSQL does,
/// and never wrap.
///
/// # Errors
/// [`Unassigned::Row`] for a value beyond the type's range.
pub fn assign(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Unassigned> {
    if Family::of(to) == Family::Time {
        return recast(array, to, |array| time_cast(array, to));
    }
    if array.data_type().is_decimal() && float_of(array.data_type(), to).is_some() {
        return Ok(floats_of(array, to)?);
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let to_numeric = to.is_decimal() && array.data_type().is_floating();
    let beyond = if *to == NUMERIC { Beyond::Error } else { Beyond::Rounded };
    // What is no numeric is found below, with its row.
    if to_numeric && let Ok(numerics) = numerics_of(array, beyond) {
        return recast(&numerics, to, |array| Ok(cast_with_options(array, to, &strict)?));
    }
    let whole: ArrayRef = match array.data_type() {
        _ if !to.is_integer() => Arc::clone(array),
        DataType::Float32 => Arc::new(
            array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even),
        ),
        DataType::Float64 => Arc::new(
            array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even),
        ),
        DataType::Decimal128(precision, scale) if *scale > 0 => {
            // One digit more: 9.5 rounds to 10.
            let precision = (*precision).saturating_sub(scale.unsigned_abs()).saturating_add(1);
            let rounded = DataType::Decimal128(precision.clamp(1, 38), 0);
            recast(array, &rounded, |array| Ok(cast_with_options(array, &rounded, &strict)?))?
        }
        DataType::Decimal256(_, scale) if *scale > 0 => {
            let rounded = DataType::Decimal128(38, 0);
            recast(array, &rounded, |array| Ok(cast_with_options(array, &rounded, &strict)?))?
        }
        _ => Arc::clone(array),
    };
    recast(&whole, to, |array| Ok(cast_with_options(array, to, &strict)?))
}

/// `array` as `strictly` casts it; a value that it refuses is the first that a lenient cast loses.
fn recast(
    array: &ArrayRef,
    to: &DataType,
    strictly: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef, Unassigned> {
    match strictly(array) {
        Ok(values) => match first_beyond_real(array, &values) {
            Some(row) => Err(Unassigned::Row(row)),
            None => Ok(values),
        },
        Err(error) => {
            let Ok(lenient) = cast(array, to) else { return Err(error.into()) };
            let lost = (0..array.len()).find(|row| array.is_valid(*row) && lenient.is_null(*row));
            Err(lost.map_or(error.into(), Unassigned::Row))
        }
    }
}

/// The first `double precision` that becomes infinite or 0 as `real`, and was not before: Arrow's cast accepts it.
fn first_beyond_real(doubles: &ArrayRef, reals: &ArrayRef) -> Option<usize> {
    let doubles = doubles.as_primitive_opt::<Float64Type>()?;
    let reals = reals.as_primitive_opt::<Float32Type>()?;
    doubles.iter().zip(reals).position(|(double, real)| match (double, real) {
        (Some(double), Some(real)) => {
            (double.is_finite() && real.is_infinite()) || (double != 0.0 && real == 0.0)
        }
        _ => false,
    })
}

/// `value`, of the type `from`, as an expression of a value of `column_type`. None: only the host makes it.
#[must_use]
pub fn assigned_to(
    value: Arc<dyn PhysicalExpr>,
    from: &DataType,
    column_type: &ColumnType,
) -> Option<Arc<dyn PhysicalExpr>> {
    let (to, length) = (column_type.arrow(), length_of(column_type));
    if *from == to && length.is_none() {
        return Some(value);
    }
    if !is_assigned(from, &to) {
        return None;
    }
    let count_max = length.and_then(|(count_max, _)| i64::try_from(count_max).ok());
    let strips = length.map(|(_, strip)| strip);
    let constants = [
        ScalarValue::try_from(&to).ok()?,
        ScalarValue::Int64(count_max),
        ScalarValue::Boolean(strips),
    ];
    let mut args = vec![value];
    args.extend(constants.map(|one| Arc::new(Literal::new(one)) as Arc<dyn PhysicalExpr>));
    let options = Arc::new(ConfigOptions::default());
    let field = Arc::new(Field::new("assigned", to, true));
    let call = ScalarFunctionExpr::new("assigned", assigned(), args, field, options);
    Some(Arc::new(call))
}

/// Whether [`assigned`] makes values of type `to` of those of type `from`.
fn is_assigned(from: &DataType, to: &DataType) -> bool {
    let is_text = |data_type| Family::of(data_type) == Family::Text;
    match (Family::of(from), Family::of(to)) {
        _ if from == to || *from == DataType::Null => true,
        (Family::Number, Family::Number) | (Family::Time, Family::Time) => true,
        // Of all other types the host alone knows the text.
        _ => is_text(to) && (from.is_integer() || *from == DataType::Boolean || is_any_text(from)),
    }
}

fn is_any_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::LargeUtf8 | DataType::Utf8View)
}

/// `assigned(value, NULL of a type, length, strips)`: [`assign`] and [`fitted`] as a function.
pub fn assigned() -> Arc<ScalarUDF> {
    static FUNCTION: OnceLock<Arc<ScalarUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        let signature = Signature::any(4, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Assigned { signature }))
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Assigned {
    signature: Signature,
}

impl ScalarUDFImpl for Assigned {
    fn name(&self) -> &'static str {
        "assigned"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [from, to, DataType::Int64, DataType::Boolean] if is_assigned(from, to) => {
                Ok(to.clone())
            }
            _ => plan_err!("values are not assigned by {arg_types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [value, like, length, strips] = take_function_args("assigned", args.args)?;
        let (ColumnarValue::Scalar(length), ColumnarValue::Scalar(strips)) = (length, strips)
        else {
            return plan_err!("values are assigned to one length");
        };
        let length = match (length, strips) {
            (ScalarValue::Int64(Some(count_max)), ScalarValue::Boolean(Some(strip))) => {
                Some((usize::try_from(count_max).unwrap_or(usize::MAX), strip))
            }
            _ => None,
        };
        let is_constant = matches!(value, ColumnarValue::Scalar(_));
        let array = value.into_array(if is_constant { 1 } else { rows })?;
        let to = like.data_type();
        let values = match one_assigned(&array, &to, length) {
            Ok(values) => values,
            Err(Unassigned::Row(_)) => return exec_err!("a value does not fit its column"),
            Err(Unassigned::Other(error)) => return exec_err!("a value is not assigned: {error}"),
        };
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            false => ColumnarValue::Array(values),
        })
    }
}

fn one_assigned(
    array: &ArrayRef,
    to: &DataType,
    length: Option<(usize, bool)>,
) -> Result<ArrayRef, Unassigned> {
    let from = array.data_type();
    let is_number = Family::of(from) == Family::Number && Family::of(to) == Family::Number;
    let is_time = Family::of(from) == Family::Time;
    let values = match from {
        _ if from == to => Arc::clone(array),
        _ if is_number || is_time => assign(array, to)?,
        // NULL, and what has one text.
        _ => cast(array, to).map_err(DataFusionError::from)?,
    };
    match length {
        Some(length) => fitted(&values, length),
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests;
