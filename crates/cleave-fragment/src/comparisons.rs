//! Comparisons of columns with constants: columns in, one bit for each row out.
//!
//! 1. [`Comparison::new`] takes a comparison of a column whose type has one width.
//! 2. [`rows_left`] evaluates several of them at once, 64 rows a word: what is left by the ones before decides which
//!    words the next one looks at.
//!
//! These are the loops that read every value of a scan, so they are written for the compiler to vectorise, and lie in a
//! crate that is compiled for speed. DataFusion's comparisons look for -0.0 in each column first, and set bit by bit.
//!
//! Invariants: a row for which all comparisons are true by DataFusion's evaluation is left. It may leave others: NaN is
//! left by all comparisons but equality, since total order puts one with a sign before all numbers and one without
//! behind them. Else the rows are the same: -0.0 equals 0.0, and NULL is never left.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Date32Type, Decimal32Type, Decimal64Type,
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;

/// Rows of a word.
const WORD_ROWS: usize = 64;

/// The bit of each row of a word.
const BITS: [u64; WORD_ROWS] = {
    let mut bits = [0; WORD_ROWS];
    let mut row = 0;
    while row < WORD_ROWS {
        bits[row] = 1_u64 << row;
        row += 1;
    }
    bits
};

/// A comparison of a column with a constant. See the module's description.
#[derive(Clone)]
pub struct Comparison {
    column: usize,
    narrow: Arc<Narrow>,
}

/// Clears the bits of rows that a comparison of this column leaves out.
type Narrow = dyn Fn(&dyn Array, &mut [u64]) + Send + Sync;

impl Comparison {
    /// The comparison of the column at `column` with `constant`, which is on the operator's right and has the column's
    /// type.
    ///
    /// None: it is none of those for which this module is made, or the constant is NULL or NaN.
    #[must_use]
    pub fn new(column: usize, operator: Operator, constant: &ScalarValue) -> Option<Self> {
        let of: fn(Operator, &ScalarValue) -> Option<Arc<Narrow>> = match constant.data_type() {
            DataType::Int8 => narrowing::<Int8Type>,
            DataType::Int16 => narrowing::<Int16Type>,
            DataType::Int32 => narrowing::<Int32Type>,
            DataType::Int64 => narrowing::<Int64Type>,
            DataType::UInt8 => narrowing::<UInt8Type>,
            DataType::UInt16 => narrowing::<UInt16Type>,
            DataType::UInt32 => narrowing::<UInt32Type>,
            DataType::UInt64 => narrowing::<UInt64Type>,
            DataType::Float32 => narrowing::<Float32Type>,
            DataType::Float64 => narrowing::<Float64Type>,
            DataType::Date32 => narrowing::<Date32Type>,
            DataType::Timestamp(TimeUnit::Second, _) => narrowing::<TimestampSecondType>,
            DataType::Timestamp(TimeUnit::Millisecond, _) => narrowing::<TimestampMillisecondType>,
            DataType::Timestamp(TimeUnit::Microsecond, _) => narrowing::<TimestampMicrosecondType>,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => narrowing::<TimestampNanosecondType>,
            DataType::Decimal32(..) => narrowing::<Decimal32Type>,
            DataType::Decimal64(..) => narrowing::<Decimal64Type>,
            DataType::Decimal128(..) => narrowing::<Decimal128Type>,
            _ => return None,
        };
        Some(Self { column, narrow: of(operator, constant)? })
    }
}

impl fmt::Debug for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparison").field("column", &self.column).finish_non_exhaustive()
    }
}

/// The rows of `columns`, of which there are `row_count`, for which all `comparisons` may be true.
#[must_use]
pub fn rows_left(
    comparisons: &[Comparison],
    columns: &[ArrayRef],
    row_count: usize,
) -> BooleanBuffer {
    let mut words = vec![u64::MAX; row_count.div_ceil(WORD_ROWS)];
    for comparison in comparisons {
        if let Some(column) = columns.get(comparison.column) {
            (comparison.narrow)(column.as_ref(), &mut words);
        }
    }
    BooleanBuffer::new(Buffer::from_vec(words), 0, row_count)
}

/// What leaves out rows of a column of the type `T`.
fn narrowing<T: ArrowPrimitiveType>(
    operator: Operator,
    constant: &ScalarValue,
) -> Option<Arc<Narrow>> {
    let is_known = matches!(
        operator,
        Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    let constant = constant.to_array().ok().filter(|_| is_known)?;
    let constant = constant.as_primitive_opt::<T>()?;
    let constant = constant.is_valid(0).then(|| constant.value(0))?;
    // NaN compares with nothing.
    constant.partial_cmp(&constant)?;
    Some(Arc::new(move |column: &dyn Array, words: &mut [u64]| {
        let Some(column) = column.as_primitive_opt::<T>() else { return };
        narrow(operator, column.values(), constant, words);
        if let Some(nulls) = column.nulls() {
            for (word, valid) in words.iter_mut().zip(nulls.inner().bit_chunks().iter_padded()) {
                *word &= valid;
            }
        }
    }))
}

/// Leaves out the rows for which the opposite of a comparison is true: it is not for NaN.
fn narrow<N: ArrowNativeType>(operator: Operator, values: &[N], constant: N, words: &mut [u64]) {
    match operator {
        Operator::Eq => leave_out(values, words, |value| value != constant),
        Operator::Lt => leave_out(values, words, |value| value >= constant),
        Operator::LtEq => leave_out(values, words, |value| value > constant),
        Operator::Gt => leave_out(values, words, |value| value <= constant),
        Operator::GtEq => leave_out(values, words, |value| value < constant),
        _ => {}
    }
}

fn leave_out<N: Copy>(values: &[N], words: &mut [u64], is_out: impl Fn(N) -> bool) {
    for (word, values) in words.iter_mut().zip(values.chunks(WORD_ROWS)) {
        if *word != 0 {
            *word &= !bits_of(values, &is_out);
        }
    }
}

/// One bit for each of at most 64 values. A disjunction of constants vectorises: no bit is shifted to its place.
fn bits_of<N: Copy>(values: &[N], is: impl Fn(N) -> bool) -> u64 {
    let rows = values.iter().zip(&BITS);
    rows.fold(0, |word, (value, bit)| word | if is(*value) { *bit } else { 0 })
}

#[cfg(test)]
mod tests;
