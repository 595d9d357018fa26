//! CSV in, typed batches out: [`CsvReader`] for one thread, [`ChunkParser`] for many.
//!
//! 1. [`RecordSplitter`] cuts the stream into chunks of whole records.
//! 2. [`ChunkParser::parse`] checks a chunk's UTF-8 at once, cuts each record into fields and appends them to one
//!    [`ColumnBuilder`] per column. A field without quotes, or with quotes only around it, is parsed without a copy.
//! 3. [`InputColumns`] adds the columns that the file does not have.
//!
//! Fields are read as PostgreSQL reads them. An unquoted field equal to the text for NULL is NULL. Quotes may begin
//! anywhere in a field. Within quotes the escape character precedes a quote or itself; before anything else it is an
//! ordinary character. So files of PostgreSQL, of the IMDb dump (`ESCAPE '\'`) and of OpenFlights (`NULL '\N', ESCAPE
//! '\'`) differ by options only. The text format shares everything but the cutting of fields.
//!
//! The first fault ends the load, with file, line (of the record's start), column and value. Source: PostgreSQL's
//! `CopyReadAttributesCSV`, `CopyReadAttributesText`.

use std::collections::BTreeSet;
use std::io::Read;

use arrow::array::{ArrayRef, RecordBatch};
use cleave_catalog::error::{Error, InputFault, InputPlace, Result};
use cleave_catalog::value::error::Bad;
use cleave_catalog::value::{ColumnBuilder, ValueError};
use cleave_store::{Column, ColumnType};
use memchr::memchr;

use crate::copy::columns::InputColumns;
use crate::copy::fields::{Field, FieldFault, Fields, Known};
use crate::copy::kept::{self, Reading};
use crate::copy::memory::InputMemory;
use crate::copy::options::{CsvOptions, Header};
use crate::copy::record_splitter::{Chunk, RecordSplitter};
use crate::copy::value_forms::{Form, expected_with_option};

/// Reads a whole stream on the caller's thread.
#[derive(Debug)]
pub struct CsvReader<R> {
    splitter: RecordSplitter<R>,
    parser: ChunkParser,
    bytes_read: u64,
}

/// Makes batches of chunks. It holds no state between chunks, so threads may share one.
#[derive(Debug, Clone)]
pub struct ChunkParser {
    file: String,
    columns: InputColumns,
    fields: Vec<FieldRule>,
    /// For each field, how many from it on are passed over.
    unasked: Vec<usize>,
    options: CsvOptions,
}

/// How a field's column is read.
#[derive(Debug, Clone, Copy)]
struct FieldRule {
    not_null: bool,
    force_null: bool,
    force_not_null: bool,
    form: Form,
    reading: Reading,
    column_type: ColumnType,
    /// Its values are passed over.
    is_skipped: bool,
}

impl<R: Read> CsvReader<R> {
    /// `file` is how messages name the input.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for an option that names a column which the file does not have.
    pub fn new(input: R, file: &str, columns: InputColumns, options: CsvOptions) -> Result<Self> {
        let splitter = RecordSplitter::new(input, file, &options, InputMemory::default());
        let parser = ChunkParser::new(file, columns, options)?;
        Ok(Self { splitter, parser, bytes_read: 0 })
    }

    /// The next rows, at most 65,536 and at least one; None at the end.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Input`] with the place of the first fault.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(chunk) = self.splitter.next_chunk()? {
            self.bytes_read += u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX);
            let batch = self.parser.parse(&chunk)?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Bytes of the records returned so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

impl<R: Read> Iterator for CsvReader<R> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl ChunkParser {
    /// `file` is how messages name the input.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for an option that names a column which the file does not have.
    pub fn new(file: &str, columns: InputColumns, options: CsvOptions) -> Result<Self> {
        let names: Vec<&str> = columns.given().map(|column| column.name.as_str()).collect();
        for choice in [&options.force_null, &options.force_not_null] {
            if let Some(unknown) = choice.unknown(&names) {
                return Err(Error::unknown_column(columns.table(), unknown, names));
            }
        }
        let fields = columns
            .given()
            .map(|column| FieldRule {
                not_null: column.not_null,
                force_null: options.force_null.contains(&column.name),
                force_not_null: options.force_not_null.contains(&column.name),
                form: options.forms.of(&column.column_type),
                reading: Reading::AsCast,
                column_type: column.column_type,
                is_skipped: false,
            })
            .collect();
        Ok(Self { file: file.to_owned(), columns, fields, unasked: Vec::new(), options })
    }

    /// The same of a file that no table describes, whose columns at `inferred` have types that were inferred. No value
    /// loses a part there, and a text for NULL is no value of a type that has no texts, also in quotes.
    #[must_use]
    pub(super) fn strict(mut self, inferred: &BTreeSet<usize>) -> Self {
        for (place, field) in self.fields.iter_mut().enumerate() {
            let is_inferred = inferred.contains(&place);
            field.reading = if is_inferred { Reading::Inferred } else { Reading::Given };
            field.force_null |= !matches!(
                field.column_type,
                ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) | ColumnType::Bytea
            );
        }
        self
    }

    /// The same, which makes only the columns at `wanted`, in ascending order: values of the others are passed over.
    #[must_use]
    pub fn of_columns(mut self, wanted: &[usize]) -> Self {
        for (place, field) in self.fields.iter_mut().enumerate() {
            field.is_skipped = !wanted.contains(&place);
        }
        let mut unasked = vec![0; self.fields.len()];
        let mut behind = 0;
        for (own, field) in unasked.iter_mut().zip(&self.fields).rev() {
            behind = if field.is_skipped { behind + 1 } else { 0 };
            *own = behind;
        }
        self.unasked = unasked;
        self
    }

    /// The rows of a chunk.
    ///
    /// # Errors
    /// [`Error::Input`] with the place of the first fault; [`Error::NotNull`] for a column that the file does
    /// not have.
    pub fn parse(&self, chunk: &Chunk) -> Result<RecordBatch> {
        let (columns, row_count) = self.columns_of(chunk)?;
        self.columns.batch(columns, row_count)
    }

    /// The columns of the file that are wanted, in its order, and the number of rows.
    fn columns_of(&self, chunk: &Chunk) -> Result<(Vec<ArrayRef>, usize)> {
        let mut all = (Vec::new(), 0);
        self.each_rows_of(chunk, usize::MAX, |columns, row_count| {
            all = (columns, row_count);
            Ok(())
        })?;
        Ok(all)
    }

    /// Gives the rows of a chunk to `take`, at most so many at once: the columns of the file that are wanted, in its
    /// order, and the number of rows. There is at least one call, which may have no rows.
    ///
    /// # Errors
    /// [`Error::Input`] with the place of the first fault; those of `take`.
    pub fn each_rows_of(
        &self,
        chunk: &Chunk,
        row_count_max: usize,
        mut take: impl FnMut(Vec<ArrayRef>, usize) -> Result<()>,
    ) -> Result<()> {
        let (text, bad_from) = match std::str::from_utf8(&chunk.bytes) {
            Ok(text) => (text, memchr(0, &chunk.bytes)),
            Err(error) => {
                let end = error.valid_up_to();
                let valid = chunk.bytes.get(..end).unwrap_or_default();
                let zero = memchr(0, valid);
                (std::str::from_utf8(valid).unwrap_or_default(), zero.or(Some(end)))
            }
        };
        let row_count_max = row_count_max.max(1);
        // The header among the records that are left makes the room one row too large.
        let mut builders = self.builders(chunk.ends.len().min(row_count_max));
        let (mut scratch, mut sql) = (String::new(), String::new());
        let mut rows = 0;
        // Most chunks have few quotes, or none: they are looked for once, and not in each record.
        let quote_from = |from: usize| {
            let rest = chunk.bytes.get(from..).unwrap_or_default();
            memchr(self.options.quote, rest).map_or(usize::MAX, |place| from + place)
        };
        let mut quote_next = if self.options.csv { quote_from(0) } else { usize::MAX };
        for ((start, bytes), index) in chunk.records().zip(0_usize..) {
            let end = start + bytes.len();
            if bad_from.is_some_and(|bad| bad < end) {
                let bad = bad_from.unwrap_or(start);
                return Err(self.bad_encoding(chunk, start, bytes, bad - start));
            }
            if rows == row_count_max {
                take(self.finished(&mut builders), rows)?;
                rows = 0;
                let left = chunk.ends.len().saturating_sub(index);
                builders = self.builders(left.min(row_count_max));
            }
            let record = without_break(text.get(start..end).unwrap_or_default());
            if record.is_empty() && self.options.skips_blanks {
                continue;
            }
            let read = if chunk.has_header && index == 0 {
                self.header(record, &mut scratch)
            } else {
                rows += 1;
                if quote_next < start {
                    quote_next = quote_from(start);
                }
                let may_quote = quote_next < end;
                self.record((record, may_quote), &mut builders, (&mut scratch, &mut sql))
            };
            read.map_err(|fault| self.located(chunk, start, record, fault))?;
        }
        take(self.finished(&mut builders), rows)
    }

    /// What makes the columns of so many rows.
    fn builders(&self, row_count: usize) -> Vec<ColumnBuilder> {
        let builder = |field: &FieldRule| {
            let row_count = if field.is_skipped { 0 } else { row_count };
            ColumnBuilder::new(&field.column_type, row_count)
        };
        self.fields.iter().map(builder).collect()
    }

    /// The columns that are wanted.
    fn finished(&self, builders: &mut [ColumnBuilder]) -> Vec<ArrayRef> {
        let fields = builders.iter_mut().zip(&self.fields);
        let wanted = fields.filter(|(_, field)| !field.is_skipped);
        wanted.map(|(builder, _)| builder.finish()).collect()
    }

    /// Appends the values of a record, which `may_quote`.
    fn record(
        &self,
        (record, may_quote): (&str, bool),
        builders: &mut [ColumnBuilder],
        (scratch, sql): (&mut String, &mut String),
    ) -> Result<(), FieldFault> {
        let known = Known { may_quote, unasked: &self.unasked };
        self.each_field(record, known, scratch, |index, field| {
            let (Some(rule), Some(builder)) = (self.fields.get(index), builders.get_mut(index))
            else {
                return Err(self.extra(index, field.text));
            };
            if rule.is_skipped {
                return Ok(());
            }
            let null = field.is_null_text
                && if field.quoted { rule.force_null } else { !rule.force_not_null };
            if !null {
                return self.value(rule, builder, field.text, sql).map_err(|error| FieldFault {
                    index,
                    fault: InputFault::Value(error),
                    value: None,
                });
            }
            if rule.not_null {
                return Err(FieldFault { index, fault: InputFault::NotNull, value: None });
            }
            builder.append_null();
            Ok(())
        })
    }

    /// Appends the value of `text`, in the form of its column.
    fn value(
        &self,
        rule: &FieldRule,
        builder: &mut ColumnBuilder,
        text: &str,
        sql: &mut String,
    ) -> Result<(), ValueError> {
        let of_type = |bad| ValueError::new(bad, rule.column_type.sql_name(), text);
        let is_kept = |text: &str| {
            kept::check(rule.reading, &rule.column_type, text, rule.form == Form::Plain)
        };
        if rule.form == Form::Plain {
            builder.append_text(text).map_err(|error| ValueError {
                expected: expected_with_option(&rule.column_type, text, error.fault)
                    .unwrap_or(error.expected),
                ..error
            })?;
            return is_kept(text).map_err(of_type);
        }
        self.options.forms.write(rule.form, text, sql).map_err(of_type)?;
        // The message has the text as it is in the file.
        builder
            .append_text(sql)
            .map_err(|error| of_type(Bad { fault: error.fault, expected: error.expected }))?;
        is_kept(sql).map_err(of_type)
    }

    fn header(&self, record: &str, scratch: &mut String) -> Result<(), FieldFault> {
        if self.options.header != Header::Match {
            return Ok(());
        }
        let expected: Vec<&Column> = self.columns.given().collect();
        self.each_field(record, Known::NOTHING, scratch, |index, field| {
            let Some(column) = expected.get(index) else {
                return Err(self.extra(index, field.text));
            };
            if field.text == column.name {
                return Ok(());
            }
            let fault =
                InputFault::Header { found: field.text.to_owned(), expected: column.name.clone() };
            Err(FieldFault { index, fault, value: None })
        })
    }

    fn extra(&self, index: usize, text: &str) -> FieldFault {
        let fault = InputFault::ExtraColumn { expected: self.fields.len() };
        FieldFault { index, fault, value: Some(text.to_owned()) }
    }

    /// Gives the fields of a record that are asked for to `take`, and may give it others; checks that there are as many
    /// as columns.
    fn each_field(
        &self,
        record: &str,
        known: Known<'_>,
        scratch: &mut String,
        take: impl FnMut(usize, Field<'_>) -> Result<(), FieldFault>,
    ) -> Result<(), FieldFault> {
        let found = Fields(&self.options).each_asked(record, known, scratch, take)?;
        let expected = self.fields.len();
        if found < expected {
            let fault = InputFault::MissingColumn { found, expected };
            return Err(FieldFault { index: found, fault, value: None });
        }
        Ok(())
    }

    fn located(&self, chunk: &Chunk, start: usize, record: &str, fault: FieldFault) -> Error {
        let FieldFault { mut index, mut fault, value } = fault;
        // A blank line is not a row with a NULL in it.
        if record.is_empty() && self.fields.len() > 1 {
            index = 1;
            fault = InputFault::MissingColumn { found: 1, expected: self.fields.len() };
        }
        let column = self.columns.given().nth(index).map(|column| (index + 1, column.name.clone()));
        let place =
            InputPlace { file: self.file.clone(), line: chunk.line_at(start), column, value };
        Error::Input { place: Box::new(place), fault: Box::new(fault) }
    }

    /// The fault for invalid UTF-8 at `bad` within a record.
    fn bad_encoding(&self, chunk: &Chunk, start: usize, record: &[u8], bad: usize) -> Error {
        let mut scratch = String::new();
        let before = std::str::from_utf8(record.get(..bad).unwrap_or_default()).unwrap_or_default();
        let mut count: usize = 0;
        let read = self.each_field(before, Known::NOTHING, &mut scratch, |_, _| {
            count += 1;
            Ok(())
        });
        // The invalid bytes are in the field in which the valid text before them ends. A field whose quotes are still
        // open is not counted yet; any other is.
        let is_open = matches!(&read, Err(FieldFault { fault: InputFault::OpenQuote, .. }));
        let index = if is_open { count } else { count.saturating_sub(1) };
        let bytes: Vec<String> = record
            .get(bad..)
            .unwrap_or_default()
            .iter()
            .take_while(|byte| !byte.is_ascii() || **byte == 0)
            .take(4)
            .map(|byte| format!("0x{byte:02x}"))
            .collect();
        let fault = InputFault::Encoding { bytes: bytes.join(" ") };
        self.located(chunk, start, "bad", FieldFault { index, fault, value: None })
    }
}

fn without_break(record: &str) -> &str {
    let record = record.strip_suffix('\n').unwrap_or(record);
    record.strip_suffix('\r').unwrap_or(record)
}

#[cfg(test)]
mod tests;
