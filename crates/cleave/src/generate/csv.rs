//! Writes record batches as comma-separated values in the format of PostgreSQL's `COPY ... (FORMAT csv)`: NULL is empty
//! and unquoted, an empty text is `""`, a quote in a text is doubled.

use std::io::{self, Write};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Appends the rows of `batch` to `out`, without a header.
pub(crate) fn write_csv(batch: &RecordBatch, out: &mut impl Write) -> io::Result<()> {
    let options = FormatOptions::new();
    let columns = batch
        .columns()
        .iter()
        .map(|column| Cells::new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            column.write(row, &mut text, out)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// One column, in the form that writes its cells fastest.
enum Cells<'a> {
    Integer(&'a arrow::array::Int32Array),
    Text(&'a arrow::array::StringArray),
    Other(&'a dyn Array, ArrayFormatter<'a>),
}

impl<'a> Cells<'a> {
    fn new(array: &'a dyn Array, options: &FormatOptions<'a>) -> io::Result<Self> {
        Ok(match array.data_type() {
            DataType::Int32 => Self::Integer(array.as_primitive::<Int32Type>()),
            DataType::Utf8 => Self::Text(array.as_string()),
            _ => Self::Other(
                array,
                ArrayFormatter::try_new(array, options).map_err(io::Error::other)?,
            ),
        })
    }

    fn write(&self, row: usize, text: &mut String, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Integer(array) if array.is_valid(row) => write!(out, "{}", array.value(row)),
            Self::Text(array) if array.is_valid(row) => write_text(array.value(row), out),
            Self::Other(array, formatter) if array.is_valid(row) => {
                use std::fmt::Write as _;
                text.clear();
                write!(text, "{}", formatter.value(row)).map_err(io::Error::other)?;
                write_text(text, out)
            }
            _ => Ok(()),
        }
    }
}

fn write_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    let plain = !text.is_empty()
        && text != "\\."
        && !text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
        && !text.starts_with(' ')
        && !text.ends_with(' ');
    if plain {
        return out.write_all(text.as_bytes());
    }
    out.write_all(b"\"")?;
    for (index, piece) in text.split('"').enumerate() {
        if index > 0 {
            out.write_all(b"\"\"")?;
        }
        out.write_all(piece.as_bytes())?;
    }
    out.write_all(b"\"")
}

#[cfg(test)]
mod tests;
