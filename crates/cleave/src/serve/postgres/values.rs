//! Values on the wire: encodes rows of a batch as DataRow messages ([`RowWriter`]), and a client's values as text
//! ([`parameter_text`]).
//!
//! In text format a value is what the database prints, in binary format what PostgreSQL's send functions give
//! ([`binary`](cleave_host::value::binary)).

use arrow::array::RecordBatch;
use bytes::{BufMut, Bytes, BytesMut};
use cleave_host::Error;
use cleave_host::settings::IntervalStyle;
use cleave_host::value::ValueText;
use cleave_host::value::binary::{BinaryWriter, Element, binary_list_text, binary_text};

use super::complaint::Complaint;
use super::message::Format;
use super::reply::Column;

/// Charges so many bytes in total.
type Hold<'a> = &'a mut dyn FnMut(usize) -> cleave_host::Result<()>;

/// A longer text is not kept for the next value.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Encodes rows of one batch.
pub(crate) struct RowWriter<'a> {
    columns: Vec<ColumnWriter<'a>>,
    scratch: String,
}

enum ColumnWriter<'a> {
    Text(ValueText<'a>),
    Binary(BinaryWriter),
}

impl<'a> RowWriter<'a> {
    /// A writer of the rows of `batch` in the formats of `columns`, with intervals in `style`.
    pub(crate) fn new(
        batch: &'a RecordBatch,
        columns: &[Column],
        style: IntervalStyle,
    ) -> Result<Self, Complaint> {
        let writers = batch.columns().iter().zip(columns).map(|(array, column)| {
            Ok(match column.format {
                Format::Text => {
                    ColumnWriter::Text(ValueText::styled(array, style).map_err(internal)?)
                }
                Format::Binary => {
                    let writer = BinaryWriter::new(array, &column.name).map_err(internal)?;
                    ColumnWriter::Binary(writer)
                }
            })
        });
        Ok(Self { columns: writers.collect::<Result<_, Complaint>>()?, scratch: String::new() })
    }

    /// Appends the row at `index`, and nothing if it fails. `hold` is told the bytes that the rows take by now.
    pub(crate) fn write(
        &mut self,
        out: &mut BytesMut,
        index: usize,
        hold: Hold<'_>,
    ) -> Result<(), Complaint> {
        let start = out.len();
        let written = self.write_row(out, index, hold);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn write_row(
        &mut self,
        out: &mut BytesMut,
        index: usize,
        hold: Hold<'_>,
    ) -> Result<(), Complaint> {
        let start = out.len();
        out.put_u8(b'D');
        out.put_u32(0);
        out.put_u16(u16::try_from(self.columns.len()).unwrap_or(u16::MAX));
        for column in &self.columns {
            match column {
                ColumnWriter::Text(text) => {
                    self.scratch.clear();
                    if text.write(index, &mut self.scratch) {
                        put_sized(out, self.scratch.as_bytes())?;
                    } else {
                        out.put_i32(-1);
                    }
                }
                ColumnWriter::Binary(binary) => binary.write(out, index).map_err(internal)?,
            }
            hold(out.capacity() + self.scratch.capacity()).map_err(internal)?;
            if self.scratch.capacity() > SCRATCH_BYTES_MAX {
                self.scratch = String::new();
            }
        }
        let length = u32::try_from(out.len() - start - 1);
        let length = length.ok().filter(|length| *length <= i32::MAX.cast_unsigned());
        let Some(length) = length else {
            return Err(Complaint::error(
                "54000",
                "a row is longer than 2 GB, which no message holds",
            ));
        };
        if let Some(mut place) = out.get_mut(start + 1..start + 5) {
            place.put_u32(length);
        }
        Ok(())
    }
}

fn internal(error: Error) -> Complaint {
    Complaint::of(&error, "")
}

fn put_sized(out: &mut BytesMut, bytes: &[u8]) -> Result<(), Complaint> {
    let length = i32::try_from(bytes.len())
        .map_err(|_| Complaint::error("54000", "a value is longer than 2 GB"))?;
    out.put_i32(length);
    out.put_slice(bytes);
    Ok(())
}

/// Converts a client's value for parameter `number` to text.
pub(crate) fn parameter_text(
    number: usize,
    (element, is_list): (Element, bool),
    format: Format,
    value: &Bytes,
) -> Result<String, Complaint> {
    if format == Format::Binary && (is_list || element != Element::Text) {
        let text = if is_list { binary_list_text } else { binary_text };
        return text(element, value).ok_or_else(|| {
            let message = format!("incorrect binary data format in bind parameter {number}");
            Complaint::error("22P03", message)
        });
    }
    match String::from_utf8(value.to_vec()) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => {
            let message =
                format!("invalid byte sequence for encoding \"UTF8\" in bind parameter {number}");
            Err(Complaint::error("22021", message))
        }
    }
}

#[cfg(test)]
mod tests;
