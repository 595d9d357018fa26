//! Decodes rows of log records: bytes of many records in, their rows as one batch out. An array for each row would take
//! ten times as long.
//!
//! 1. [`RowsBuilder::push`] appends the rows of one record to builders of the table's columns.
//! 2. [`RowsBuilder::finish`] gives all of them, in the order of the records.
//!
//! Invariant: it allocates no more than the bytes that it is given can fill.

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder,
    PrimitiveBuilder, RecordBatch, RecordBatchOptions, StringBuilder,
};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, SchemaRef, TimeUnit, i256};
use bytes::Bytes;
use cleave_catalog::error::Result;
use cleave_fragment::command::slot::SlotDecoder;

use super::{FORM, IPC};
use crate::write::begun::Begun;

/// Bytes of an interval.
const INTERVAL_BYTES: usize = 16;

/// See the module's description.
pub(in crate::log) struct RowsBuilder {
    schema: SchemaRef,
    /// None: a column is of a type that has no form here.
    columns: Option<Vec<Box<dyn ArrayBuilder>>>,
    /// Rows in them.
    row_count: usize,
    /// Rows before those.
    before: Begun,
    /// Rows in there.
    before_count: usize,
}

impl RowsBuilder {
    /// For rows of these columns.
    pub(in crate::log) fn new(schema: SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|field| builder_of(field.data_type()));
        let columns = columns.collect();
        Self { schema, columns, row_count: 0, before: Begun::default(), before_count: 0 }
    }

    /// How many rows there are.
    pub(in crate::log) fn row_count(&self) -> usize {
        self.before_count + self.row_count
    }

    /// Appends the rows that `bytes` are.
    ///
    /// # Errors
    /// A message about what is wrong with them; nothing is to be appended behind that.
    pub(in crate::log) fn push(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        match bytes.first() {
            Some(&FORM) => {}
            Some(&IPC) => return self.push_message(bytes),
            form => {
                let form = form.copied().unwrap_or(0);
                return Err(format!(
                    "its rows are in form {form}, which this build does not read: use the build that wrote it, or a \
                        newer one"
                ));
            }
        }
        let mut reader = Reader { rest: bytes.get(1..).unwrap_or_default() };
        let columns = self.columns.as_mut();
        let row_count = columns.and_then(|columns| reader.rows(columns, &self.schema));
        self.row_count += row_count.ok_or("its rows are not those of the table's columns")?;
        match reader.rest.len() {
            0 => Ok(()),
            left => Err(format!("{left} bytes are left behind its rows")),
        }
    }

    /// All of them; none are left.
    ///
    /// # Errors
    /// A message about what is wrong with them.
    pub(in crate::log) fn finish(&mut self) -> Result<Begun, String> {
        if self.row_count > 0 {
            let columns = self.columns.iter_mut().flatten();
            let columns: Vec<ArrayRef> = columns.map(|builder| builder.finish()).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
            let schema = SchemaRef::clone(&self.schema);
            let rows = RecordBatch::try_new_with_options(schema, columns, &options);
            self.row_count = 0;
            self.put_before(rows.map_err(|error| error.to_string())?)?;
        }
        self.before_count = 0;
        Ok(std::mem::take(&mut self.before))
    }

    /// Appends the rows of a message.
    fn push_message(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let rows = SlotDecoder::new(&self.schema).decode(Bytes::from(bytes));
        let columns = rows.map_err(|error| error.to_string())?.columns().to_vec();
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns);
        let rows = rows.map_err(|error| error.to_string())?;
        let before_count = self.row_count();
        self.before = self.finish()?;
        self.before_count = before_count;
        self.put_before(rows)
    }

    fn put_before(&mut self, rows: RecordBatch) -> Result<(), String> {
        self.before_count += rows.num_rows();
        self.before.push(&rows.into()).map_err(|error| error.to_string())
    }
}

/// The builder of a column of this type; None: the type has no form here.
fn builder_of(data_type: &DataType) -> Option<Box<dyn ArrayBuilder>> {
    fn primitive<T: ArrowPrimitiveType>(data_type: &DataType) -> Box<dyn ArrayBuilder> {
        Box::new(PrimitiveBuilder::<T>::new().with_data_type(data_type.clone()))
    }
    Some(match data_type {
        DataType::Int16 => primitive::<Int16Type>(data_type),
        DataType::Int32 => primitive::<Int32Type>(data_type),
        DataType::Int64 => primitive::<Int64Type>(data_type),
        DataType::Date32 => primitive::<Date32Type>(data_type),
        DataType::Time64(TimeUnit::Microsecond) => primitive::<Time64MicrosecondType>(data_type),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            primitive::<TimestampMicrosecondType>(data_type)
        }
        DataType::Decimal128(..) => primitive::<Decimal128Type>(data_type),
        DataType::Decimal256(..) => primitive::<Decimal256Type>(data_type),
        DataType::Float32 => primitive::<Float32Type>(data_type),
        DataType::Float64 => primitive::<Float64Type>(data_type),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            primitive::<IntervalMonthDayNanoType>(data_type)
        }
        DataType::Boolean => Box::new(BooleanBuilder::new()),
        DataType::Utf8 => Box::new(StringBuilder::new()),
        DataType::Binary => Box::new(BinaryBuilder::new()),
        DataType::FixedSizeBinary(width) => Box::new(FixedSizeBinaryBuilder::new(*width)),
        _ => return None,
    })
}

/// The bytes not read yet. None from any of its functions: the bytes are invalid.
struct Reader<'a> {
    rest: &'a [u8],
}

/// Which rows of a column have a value.
#[derive(Clone, Copy)]
struct Valid<'a> {
    row_count: usize,
    /// A bit for each row; None: all have one.
    bits: Option<&'a [u8]>,
}

impl Valid<'_> {
    fn iter(self) -> impl Iterator<Item = bool> {
        let is_valid = move |row: usize| match self.bits {
            Some(bits) => bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1),
            None => true,
        };
        (0..self.row_count).map(is_valid)
    }
}

impl<'a> Reader<'a> {
    /// Appends rows to the builders of their columns; how many they are.
    fn rows(&mut self, columns: &mut [Box<dyn ArrayBuilder>], schema: &SchemaRef) -> Option<usize> {
        let row_count = usize::try_from(self.varint()?).ok()?;
        for (builder, field) in columns.iter_mut().zip(schema.fields()) {
            self.column(builder.as_mut(), field.data_type(), row_count)?;
        }
        Some(row_count)
    }

    fn column(
        &mut self,
        builder: &mut dyn ArrayBuilder,
        data_type: &DataType,
        row_count: usize,
    ) -> Option<()> {
        let bits = match self.byte()? {
            // Each value takes a bit at least.
            0 if row_count <= self.rest.len().checked_mul(8)? => None,
            1 => Some(self.take(row_count.div_ceil(8))?),
            _ => return None,
        };
        let valid = Valid { row_count, bits };
        match data_type {
            DataType::Int16 => self.whole::<Int16Type>(builder, valid),
            DataType::Int32 => self.whole::<Int32Type>(builder, valid),
            DataType::Int64 => self.whole::<Int64Type>(builder, valid),
            DataType::Date32 => self.whole::<Date32Type>(builder, valid),
            DataType::Time64(_) => self.whole::<Time64MicrosecondType>(builder, valid),
            DataType::Timestamp(..) => self.whole::<TimestampMicrosecondType>(builder, valid),
            DataType::Decimal128(..) => self.whole::<Decimal128Type>(builder, valid),
            DataType::Decimal256(..) => {
                self.primitive::<Decimal256Type>(builder, valid, |reader| {
                    reader.chunk().map(i256::from_le_bytes)
                })
            }
            DataType::Float32 => self.primitive::<Float32Type>(builder, valid, |reader| {
                reader.chunk().map(f32::from_le_bytes)
            }),
            DataType::Float64 => self.primitive::<Float64Type>(builder, valid, |reader| {
                reader.chunk().map(f64::from_le_bytes)
            }),
            DataType::Interval(_) => {
                self.primitive::<IntervalMonthDayNanoType>(builder, valid, Self::interval)
            }
            DataType::Boolean => {
                let builder: &mut BooleanBuilder = downcast(builder)?;
                let bits = self.take(valid.iter().filter(|valid| *valid).count().div_ceil(8))?;
                let mut values = Valid { row_count, bits: Some(bits) }.iter();
                for is_valid in valid.iter() {
                    builder.append_option(if is_valid { Some(values.next()?) } else { None });
                }
                Some(())
            }
            DataType::Utf8 => {
                let builder: &mut StringBuilder = downcast(builder)?;
                for is_valid in valid.iter() {
                    builder.append_option(match is_valid {
                        true => Some(std::str::from_utf8(self.sized()?).ok()?),
                        false => None,
                    });
                }
                Some(())
            }
            DataType::Binary => {
                let builder: &mut BinaryBuilder = downcast(builder)?;
                for is_valid in valid.iter() {
                    builder.append_option(if is_valid { Some(self.sized()?) } else { None });
                }
                Some(())
            }
            DataType::FixedSizeBinary(width) => {
                let builder: &mut FixedSizeBinaryBuilder = downcast(builder)?;
                let byte_count = usize::try_from(*width).ok()?;
                for is_valid in valid.iter() {
                    match is_valid {
                        true => builder.append_value(self.take(byte_count)?).ok()?,
                        false => builder.append_null(),
                    }
                }
                Some(())
            }
            _ => None,
        }
    }

    fn whole<T>(&mut self, builder: &mut dyn ArrayBuilder, valid: Valid<'_>) -> Option<()>
    where
        T: ArrowPrimitiveType<Native: TryFrom<i128>>,
    {
        self.primitive::<T>(builder, valid, |reader| {
            let value = reader.varint()?;
            let value = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
            T::Native::try_from(value).ok()
        })
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        builder: &mut dyn ArrayBuilder,
        valid: Valid<'_>,
        read: impl Fn(&mut Self) -> Option<T::Native>,
    ) -> Option<()> {
        let builder: &mut PrimitiveBuilder<T> = downcast(builder)?;
        for is_valid in valid.iter() {
            match is_valid {
                true => builder.append_value(read(self)?),
                false => builder.append_null(),
            }
        }
        Some(())
    }

    fn interval(&mut self) -> Option<IntervalMonthDayNano> {
        let bytes: [u8; INTERVAL_BYTES] = self.chunk()?;
        let (months, rest) = bytes.split_first_chunk()?;
        let (days, nanoseconds) = rest.split_first_chunk()?;
        Some(IntervalMonthDayNano {
            months: i32::from_le_bytes(*months),
            days: i32::from_le_bytes(*days),
            nanoseconds: i64::from_le_bytes(nanoseconds.try_into().ok()?),
        })
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let byte_count = usize::try_from(self.varint()?).ok()?;
        self.take(byte_count)
    }

    fn varint(&mut self) -> Option<u128> {
        // Most are short, and 128 bits are two registers.
        let mut short = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            short |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(short.into());
            }
        }
        let mut value = u128::from(short);
        for shift in (63..128).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*chunk)
    }

    fn take(&mut self, byte_count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(byte_count)?;
        self.rest = rest;
        Some(taken)
    }
}

fn downcast<T: 'static>(builder: &mut dyn ArrayBuilder) -> Option<&mut T> {
    builder.as_any_mut().downcast_mut()
}
