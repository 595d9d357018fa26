//! PostgreSQL's binary format of COPY, reading and writing: a header, then records whose values each give their length,
//! then an end mark.
//!
//! ```text
//!  PGCOPY\n\377\r\n\0 │ flags (4) │ length of the header extension (4) │ … │ records │ -1 (2)
//!  record: count of values (2) │ for each: its length (4), -1: NULL │ its bytes
//! ```
//!
//! Invariant: at most one record and one batch of a file are in memory. A length in the file is not trusted before as
//! many bytes have arrived.
//!
//! Source: PostgreSQL's manual, COPY, "Binary Format".

use std::io::{Read, Write};
use std::path::Path;

use arrow::array::RecordBatch;
use bytes::{Buf, BufMut, BytesMut};
use cleave_catalog::error::{Error, InputFault, InputPlace, Result};
use cleave_catalog::value::ColumnBuilder;
use cleave_catalog::value::binary::{BinaryWriter, Element, binary_text};

use crate::copy::columns::InputColumns;
use crate::copy::memory::InputMemory;
use crate::copy::record_splitter::CHUNK_RECORDS_MAX;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// The flag for records that begin with the number of their row.
const HAS_OIDS: u32 = 1 << 16;
/// Flags from here on are critical: an unknown one is an error.
const CRITICAL: u32 = !0xffff;
/// Bytes after which rows go to the sink.
const FLUSH_BYTES: usize = 1 << 18;

/// Reads records into batches of a table.
#[derive(Debug)]
pub struct BinaryReader<R> {
    input: R,
    file: String,
    columns: InputColumns,
    row_number: u64,
    value: Vec<u8>,
    at_end: bool,
    has_begun: bool,
    memory: InputMemory,
}

impl<R: Read> BinaryReader<R> {
    /// `file` is how messages name the input.
    pub fn new(input: R, file: &str, columns: InputColumns, memory: InputMemory) -> Self {
        let file = file.to_owned();
        let value = Vec::new();
        let (row_number, at_end, has_begun) = (0, false, false);
        Self { input, file, columns, row_number, value, at_end, has_begun, memory }
    }

    /// The next rows, at most 65,536 and at least one; None at the end.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Input`] and [`Error::InputSchema`] for a file in another format.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.head()?;
        }
        let columns = self.columns.clone();
        let mut builders: Vec<ColumnBuilder> =
            columns.given().map(|column| ColumnBuilder::new(&column.column_type, 0)).collect();
        let (mut rows, mut bytes) = (0, 0);
        while !self.at_end && rows < CHUNK_RECORDS_MAX && bytes < self.memory.chunk_bytes {
            let count = self.take::<2>()?.as_slice().get_i16();
            if count == -1 {
                self.at_end = true;
                break;
            }
            self.row_number += 1;
            let expected = columns.given().len();
            if usize::try_from(count).ok() != Some(expected) {
                let message = format!("has {count} values, expected {expected}");
                return Err(self.wrong(&message));
            }
            let mut record_bytes = 0;
            for ((column, builder), place) in columns.given().zip(&mut builders).zip(1..) {
                let Some(length) = self.length(&mut record_bytes)? else {
                    if column.not_null {
                        let fault = InputFault::NotNull;
                        return Err(self.at(place, &column.name, None, fault));
                    }
                    builder.append_null();
                    continue;
                };
                self.read_value(length)?;
                let element = Element::of_column(column.column_type);
                let Some(text) = binary_text(element, &self.value) else {
                    let name = &column.name;
                    return Err(self.wrong(&format!(
                        "column {name}: incorrect binary data format, expected {}",
                        column.column_type.sql_name()
                    )));
                };
                if element == Element::Text && text.contains('\0') {
                    let fault = InputFault::Encoding { bytes: "0x00".to_owned() };
                    return Err(self.at(place, &column.name, None, fault));
                }
                builder.append_text(&text).map_err(|error| {
                    self.at(place, &column.name, Some(&text), InputFault::Value(error))
                })?;
            }
            rows += 1;
            bytes += record_bytes;
        }
        if rows == 0 {
            return Ok(None);
        }
        let given = builders.iter_mut().map(ColumnBuilder::finish).collect();
        columns.batch(given, rows).map(Some)
    }

    fn head(&mut self) -> Result<()> {
        let signature: [u8; 11] = self.take()?;
        if signature != *SIGNATURE {
            return Err(self.malformed("COPY file signature not recognized".to_owned()));
        }
        let flags = self.take::<4>()?.as_slice().get_u32();
        if flags & HAS_OIDS != 0 {
            return Err(self.malformed("the file has OIDs, which are not supported".to_owned()));
        }
        if flags & CRITICAL != 0 {
            return Err(self.malformed("unrecognized critical flags in the head".to_owned()));
        }
        let length = self.take::<4>()?.as_slice().get_u32();
        let skipped =
            std::io::copy(&mut (&mut self.input).take(length.into()), &mut std::io::sink());
        match skipped {
            Ok(skipped) if skipped == u64::from(length) => Ok(()),
            Ok(_) => Err(self.ended()),
            Err(source) => Err(self.io(source)),
        }
    }

    /// The length of the next value; None: it is NULL.
    fn length(&mut self, record_bytes: &mut usize) -> Result<Option<usize>> {
        match self.take::<4>()?.as_slice().get_i32() {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length)
                    .map_err(|_| self.wrong(&format!("has a value of {length} bytes")))?;
                *record_bytes += length;
                let limit = self.memory.record_bytes;
                if *record_bytes > limit {
                    let message = format!(
                        "is longer than {limit} bytes: an eighth of --query-memory, up to 256 MB"
                    );
                    return Err(self.wrong(&message));
                }
                Ok(Some(length))
            }
        }
    }

    /// The buffer grows with the bytes that arrive.
    fn read_value(&mut self, length: usize) -> Result<()> {
        self.value.clear();
        let mut limited = (&mut self.input).take(length as u64);
        match limited.read_to_end(&mut self.value) {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(self.ended()),
            Err(source) => Err(self.io(source)),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(self.ended()),
            Err(source) => Err(self.io(source)),
        }
    }

    fn at(&self, place: usize, name: &str, value: Option<&str>, fault: InputFault) -> Error {
        let place = InputPlace {
            file: self.file.clone(),
            line: self.row_number,
            column: Some((place, name.to_owned())),
            value: value.filter(|_| !matches!(fault, InputFault::Value(_))).map(str::to_owned),
        };
        Error::Input { place: Box::new(place), fault: Box::new(fault) }
    }

    fn wrong(&self, message: &str) -> Error {
        self.malformed(format!("record {} {message}", self.row_number))
    }

    fn ended(&self) -> Error {
        self.malformed("the file ends before its end mark".to_owned())
    }

    fn malformed(&self, message: String) -> Error {
        Error::InputSchema { file: self.file.clone(), message }
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::io("read", Path::new(&self.file), source)
    }
}

impl<R: Read> Iterator for BinaryReader<R> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// Writes batches as records.
#[derive(Debug)]
pub struct BinaryCopyWriter<W> {
    sink: W,
    file: String,
    out: BytesMut,
    rows_written: u64,
}

impl<W: Write> BinaryCopyWriter<W> {
    /// Writes the head. `file` is how messages name the sink.
    pub fn new(sink: W, file: &str) -> Self {
        let mut out = BytesMut::new();
        out.put_slice(SIGNATURE);
        out.put_u32(0);
        out.put_u32(0);
        Self { sink, file: file.to_owned(), out, rows_written: 0 }
    }

    /// Writes all rows of a batch.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Unsupported`] for a type that has no binary form.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = batch.schema();
        let columns = batch.columns().iter().zip(schema.fields());
        let writers = columns.map(|(array, field)| BinaryWriter::new(array, field.name()));
        let writers = writers.collect::<Result<Vec<_>>>()?;
        let count = i16::try_from(writers.len()).unwrap_or(i16::MAX);
        for row in 0..batch.num_rows() {
            self.out.put_i16(count);
            writers.iter().try_for_each(|writer| writer.write(&mut self.out, row))?;
            if self.out.len() >= FLUSH_BYTES {
                self.flush_rows()?;
            }
        }
        self.rows_written += batch.num_rows() as u64;
        Ok(())
    }

    /// Writes the end mark and returns the sink, flushed. It does not sync a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<W> {
        self.out.put_i16(-1);
        self.flush_rows()?;
        self.sink.flush().map_err(|source| Error::io("write", Path::new(&self.file), source))?;
        Ok(self.sink)
    }

    /// Rows written so far.
    #[must_use]
    pub fn rows_written(&self) -> u64 {
        self.rows_written
    }

    fn flush_rows(&mut self) -> Result<()> {
        let written = self.sink.write_all(&self.out);
        written.map_err(|source| Error::io("write", Path::new(&self.file), source))?;
        self.out.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
