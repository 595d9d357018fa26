//! Batches in, CSV or PostgreSQL's text format out, byte for byte as PostgreSQL writes them.
//!
//! In CSV a value is quoted only if it equals the text for NULL, contains a delimiter, a quote or a line break, or is
//! `\.` alone; or if FORCE_QUOTE names its column. The text format puts a backslash before those bytes instead.
//! [`CsvReader`](super::CsvReader) reads the output back with the same options. One exception is shared with
//! PostgreSQL: the text format cannot distinguish NULL from a value that equals the text for NULL.
//!
//! Source: PostgreSQL's `CopyAttributeOutCSV`, `CopyAttributeOutText`.

use std::io::Write;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::value::ValueText;

use crate::copy::options::{CsvOptions, Header};

/// Bytes after which rows go to the sink.
const FLUSH_BYTES: usize = 1 << 18;

/// Writes batches of one schema.
#[derive(Debug)]
pub struct CsvWriter<W> {
    sink: W,
    file: String,
    options: CsvOptions,
    force_quote: Vec<bool>,
    out: String,
    rows_written: u64,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the header if the options ask for one. `file` is how messages name the sink.
    ///
    /// # Errors
    /// [`Error::UnknownName`] where FORCE_QUOTE names no column, [`Error::Io`].
    pub fn new(sink: W, file: &str, schema: &SchemaRef, options: CsvOptions) -> Result<Self> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if let Some(unknown) = options.force_quote.unknown(&names) {
            return Err(Error::unknown(cleave_catalog::error::NameKind::Column, unknown, names));
        }
        let force_quote = names.iter().map(|name| options.force_quote.contains(name)).collect();
        let mut writer = Self {
            sink,
            file: file.to_owned(),
            force_quote,
            out: String::new(),
            rows_written: 0,
            options,
        };
        if writer.options.header != Header::None {
            for (index, name) in names.iter().enumerate() {
                writer.separate(index);
                writer.field(name, false, names.len() == 1);
            }
            writer.out.push('\n');
        }
        Ok(writer)
    }

    /// Writes all rows of a batch.
    ///
    /// # Errors
    /// [`Error::Io`], or a type that has no text.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let texts = batch
            .columns()
            .iter()
            .map(|column| ValueText::new(column))
            .collect::<Result<Vec<_>>>()?;
        let alone = texts.len() == 1;
        let mut value = String::new();
        for row in 0..batch.num_rows() {
            for (index, text) in texts.iter().enumerate() {
                self.separate(index);
                value.clear();
                if text.write(row, &mut value) {
                    let forced = self.force_quote.get(index).copied().unwrap_or(false);
                    self.field(&value, forced, alone);
                } else {
                    self.out.push_str(&self.options.null);
                }
            }
            self.out.push('\n');
            if self.out.len() >= FLUSH_BYTES {
                self.flush_rows()?;
            }
        }
        self.rows_written += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Writes what is left and returns the sink, flushed. It does not sync a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<W> {
        self.flush_rows()?;
        self.sink.flush().map_err(|source| Error::io("write", Path::new(&self.file), source))?;
        Ok(self.sink)
    }

    /// Rows written so far, without the header.
    #[must_use]
    pub fn rows_written(&self) -> u64 {
        self.rows_written
    }

    fn flush_rows(&mut self) -> Result<()> {
        self.sink
            .write_all(self.out.as_bytes())
            .map_err(|source| Error::io("write", Path::new(&self.file), source))?;
        self.out.clear();
        Ok(())
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push(char::from(self.options.delimiter));
        }
    }

    fn field(&mut self, value: &str, forced: bool, alone: bool) {
        if !self.options.csv {
            self.escaped(value);
            return;
        }
        let CsvOptions { delimiter, quote, escape, .. } = self.options;
        let quoted = forced
            || value == self.options.null
            || (alone && value == "\\.")
            || value
                .bytes()
                .any(|byte| byte == delimiter || byte == quote || byte == b'\n' || byte == b'\r');
        if !quoted {
            self.out.push_str(value);
            return;
        }
        self.out.push(char::from(quote));
        let mut start = 0;
        for (position, byte) in value.bytes().enumerate() {
            if byte == quote || byte == escape {
                self.out.push_str(value.get(start..position).unwrap_or_default());
                self.out.push(char::from(escape));
                start = position;
            }
        }
        self.out.push_str(value.get(start..).unwrap_or_default());
        self.out.push(char::from(quote));
    }

    fn escaped(&mut self, value: &str) {
        let delimiter = char::from(self.options.delimiter);
        for character in value.chars() {
            let letter = match character {
                '\u{8}' => 'b',
                '\u{c}' => 'f',
                '\n' => 'n',
                '\r' => 'r',
                '\t' => 't',
                '\u{b}' => 'v',
                '\\' => '\\',
                other if other == delimiter => other,
                other => {
                    self.out.push(other);
                    continue;
                }
            };
            self.out.push('\\');
            self.out.push(letter);
        }
    }
}

#[cfg(test)]
mod tests;
