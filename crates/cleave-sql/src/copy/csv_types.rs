//! The columns of a text file that no table describes: its first records in, names and types out.
//!
//! 1. If the delimiter is not given, it is the one of comma, semicolon, tab and bar that cuts the first records into
//!    the same number of fields, and into the most.
//! 2. If it is not given whether the first record names the columns, it does if it could be no row: one of its fields
//!    is no value of the type that the rows below have there, or all columns are text, and its fields look like names
//!    and do not come again. Some of its fields may be empty: in the first case if no other field is a value of such a
//!    type, in the second over columns without values, and over the first column if no value comes twice there, of
//!    whatever type: data frames are written with such keys of their rows.
//! 3. Each value of the sample rules types out. A column has the first that is left of boolean, bigint, double
//!    precision, date, timestamp and timestamp with time zone, or else is text. Dates are those that begin with their
//!    year. What would not come back as it was written is text ([`kept`]): numbers with zeros or a plus sign before
//!    them, which are codes, and those with more digits than the type has. A text for NULL that is in quotes rules
//!    nothing out: it is NULL in a column that is not of text.
//!
//! Blank lines are no records if there are several columns: spreadsheets and people leave them. In a file of one column
//! they are its NULLs.
//!
//! A value further down that is not of the type found is an error, which says so ([`CsvTypes::explained`]). So is a
//! file whose header has other names ([`CsvTypes::check_header`]). [`by_name`] finds the columns of files that have
//! different ones.
//!
//! Invariants: what is found depends on the sampled records alone. However long they are, those held at once have about
//! [`InputMemory::chunk_bytes`].

pub mod by_name;

use std::collections::BTreeSet;
use std::io::Read;

use cleave_catalog::error::{Error, InputFault, InputPlace, Result};
use cleave_catalog::value::parse;
use cleave_store::schema::COLUMN_COUNT_MAX;
use cleave_store::{Column, ColumnType, TableSchema};

use crate::copy::columns::InputColumns;
use crate::copy::csv_reader::ChunkParser;
use crate::copy::fields::{FieldFault, Fields};
use crate::copy::kept;
use crate::copy::memory::InputMemory;
use crate::copy::options::{CsvOptions, Header};
use crate::copy::record_splitter::{Chunk, RecordSplitter};
use crate::copy::value_forms::Form;
use crate::statement::files::CsvCall;

/// Delimiters that a file may have.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Records by which the delimiter is found.
const DELIMITED_RECORDS: usize = 64;
/// Records that are held at once, by which the header is found.
const HEAD_RECORDS: usize = 4096;
/// Most bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// The types that are inferred, in the order in which they are preferred, and at last text.
const TYPES: [ColumnType; 6] = [
    ColumnType::Boolean,
    ColumnType::BigInt,
    ColumnType::Double,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
];

/// What a text file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvTypes {
    /// How it is read, header and delimiter included.
    pub options: CsvOptions,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Columns whose types were inferred.
    inferred: BTreeSet<usize>,
    /// Rows that were looked at.
    sampled_rows: u64,
    /// The names of the columns are those of the first file's header.
    is_named_by_header: bool,
}

/// The first records of a file.
struct Head {
    /// Where it is from.
    file: String,
    /// Each with the line on which it begins, without its line break.
    records: Vec<(u64, String)>,
    /// Bytes of the records.
    bytes: usize,
}

/// A value of the sample; None: NULL.
type Cell = Option<String>;

/// The types that a column may have.
#[derive(Clone, Copy)]
struct Candidates {
    left: [bool; TYPES.len()],
    has_values: bool,
}

impl CsvTypes {
    /// The columns of files that `call` reads; `inputs` are their names and texts, of which a sample is read. What is
    /// given takes the place of what would be found.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Input`] for a record with another number of fields than those before it;
    /// [`Error::InputSchema`] for a file without columns or with others than the first; [`Error::UnknownName`] for a
    /// type of a column that there is not.
    pub fn find<R: Read>(
        call: &CsvCall,
        inputs: impl IntoIterator<Item = Result<(String, R)>>,
        memory: InputMemory,
    ) -> Result<Self> {
        let mut found: Option<(Self, Vec<Candidates>)> = None;
        let mut first = None;
        for input in inputs {
            let (file, input) = input?;
            first.get_or_insert_with(|| file.clone());
            Self::look(call, (file, input), memory, &mut found)?;
        }
        if found.is_none()
            && let Some(file) = first
        {
            // All of them are empty.
            found = Some(Self::of_first(call, &Head::of(file))?);
        }
        let Some((mut types, candidates)) = found else {
            return Err(Error::InputSchema {
                file: "read_csv".to_owned(),
                message: "there is no file".to_owned(),
            });
        };
        for place in types.inferred.clone() {
            if let (Some(column), Some(own)) = (types.columns.get_mut(place), candidates.get(place))
                && !call.all_text
            {
                column.column_type = own.column_type();
            }
        }
        Ok(types)
    }

    /// Adds what the first records of one file show to what is `found`.
    fn look(
        call: &CsvCall,
        (file, input): (String, impl Read),
        memory: InputMemory,
        found: &mut Option<(Self, Vec<Candidates>)>,
    ) -> Result<()> {
        let options = CsvOptions { header: Header::None, ..call.options.clone() };
        // Mostly less is looked at than a chunk of other readers has.
        let chunk_bytes = memory.chunk_bytes.min(CHUNK_BYTES);
        let small = InputMemory { chunk_bytes, ..memory };
        let splitter = RecordSplitter::new(input, &file, &options, small);
        let mut splitter = splitter.behind_lines(call.skip);
        let wanted = match (call.all_text || !call.columns.is_empty(), call.sample_rows) {
            (true, _) => DELIMITED_RECORDS as u64,
            // One more may name the columns.
            (false, Some(rows)) => rows.saturating_add(1),
            (false, None) => u64::MAX,
        };
        let (mut head, mut count, mut is_decided) = (Head::of(file), 0, false);
        'records: while let Some(chunk) = splitter.next_chunk()? {
            let mut line = chunk.line_first;
            for (_, bytes) in chunk.records() {
                if count == wanted {
                    break 'records;
                }
                let record = head.text(line, bytes)?;
                count += u64::from(!record.is_empty());
                match found.as_mut().filter(|_| is_decided) {
                    Some((types, candidates)) => types.see(&head, (line, record), candidates)?,
                    None => head.push(line, record),
                }
                let is_full =
                    head.records.len() == HEAD_RECORDS || head.bytes >= memory.chunk_bytes;
                if !is_decided && is_full {
                    Self::decide(call, &head, found)?;
                    is_decided = true;
                    head.records = Vec::new();
                }
                line += chunk.lines_of(bytes);
            }
        }
        if is_decided { Ok(()) } else { Self::decide(call, &head, found) }
    }

    /// Adds what `head` shows.
    fn decide(
        call: &CsvCall,
        head: &Head,
        found: &mut Option<(Self, Vec<Candidates>)>,
    ) -> Result<()> {
        match found {
            Some((types, candidates)) => types.add(head, candidates),
            // The next file tells.
            None if head.records.is_empty() => Ok(()),
            None => {
                *found = Some(Self::of_first(call, head)?);
                Ok(())
            }
        }
    }

    /// What is found in the first file, and the types that its columns may have.
    fn of_first(call: &CsvCall, head: &Head) -> Result<(Self, Vec<Candidates>)> {
        let mut options = call.options.clone();
        if !call.has_delimiter {
            options.delimiter = head.delimiter(&options);
        }
        options.skips_blanks = match call.columns.len() {
            0 => head.written().next().is_some_and(|record| field_count(record, &options) > 1),
            given => given > 1,
        };
        let rows = head.rows(&options)?;
        let first = rows.first().map(Vec::as_slice).unwrap_or_default();
        if first.is_empty() && call.columns.is_empty() {
            return Err(Error::InputSchema {
                file: head.file.clone(),
                message:
                    "the file is empty, so it tells no columns; columns => 'id integer, …' does"
                        .to_owned(),
            });
        }
        let candidates = candidates(rows.get(1..).unwrap_or_default(), first.len(), &options);
        let has_header =
            call.header.unwrap_or_else(|| is_header(first, &rows, &candidates, &options));
        options.header = if has_header { Header::Skip } else { Header::None };
        let sampled: &[Vec<Cell>] =
            if has_header { rows.get(1..).unwrap_or_default() } else { &rows };
        let count = if call.columns.is_empty() { first.len() } else { call.columns.len() };
        let (columns, inferred) = match call.columns.as_slice() {
            [] => {
                let names = names(if has_header { Some(first) } else { None }, count);
                let columns = names
                    .into_iter()
                    .zip(1_u32..)
                    .map(|(name, id)| Column { name, ..plain_column(id) });
                (columns.collect(), (0..count).collect())
            }
            given => (given.to_vec(), BTreeSet::new()),
        };
        let mut types = Self {
            columns,
            inferred,
            sampled_rows: u64::try_from(sampled.len()).unwrap_or(u64::MAX),
            is_named_by_header: has_header && call.columns.is_empty(),
            options,
        };
        types.give_types(&call.types, &head.file)?;
        let candidates = self::candidates(sampled, count, &types.options);
        Ok((types, candidates))
    }

    /// Types that the call gives.
    fn give_types(&mut self, given: &[Column], file: &str) -> Result<()> {
        for own in given {
            let exact = self.columns.iter().position(|column| column.name == own.name);
            let place = exact.or_else(|| {
                let is_it = |column: &Column| column.name.eq_ignore_ascii_case(&own.name);
                self.columns.iter().position(is_it)
            });
            let Some(place) = place else {
                let names = self.columns.iter().map(|column| column.name.as_str());
                return Err(Error::unknown_column(file, &own.name, names));
            };
            self.inferred.remove(&place);
            if let Some(column) = self.columns.get_mut(place) {
                column.column_type = own.column_type;
            }
        }
        Ok(())
    }

    /// What another file shows of the same columns.
    fn add(&mut self, head: &Head, candidates: &mut [Candidates]) -> Result<()> {
        let mut rows = head.rows(&self.options)?;
        if self.options.header != Header::None && !rows.is_empty() {
            self.check_names(&head.file, &rows.remove(0))?;
        }
        let found = self::candidates(&rows, self.columns.len(), &self.options);
        for (own, found) in candidates.iter_mut().zip(found) {
            own.meet(found);
        }
        self.sampled_rows += u64::try_from(rows.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Checks the header of a file, if `chunk` is its first one: only the first files are looked at before, and any
    /// may have changed since.
    ///
    /// # Errors
    /// [`Error::InputSchema`] for other names than the columns have.
    pub fn check_header(&self, file: &str, chunk: &Chunk) -> Result<()> {
        let first = chunk.records().next().filter(|_| chunk.has_header && self.is_named_by_header);
        let Some((_, bytes)) = first else { return Ok(()) };
        let mut head = Head::of(file.to_owned());
        let record = head.text(chunk.line_first, bytes)?;
        head.push(chunk.line_first, record);
        match head.rows(&self.options)?.first() {
            Some(header) => self.check_names(file, header),
            None => Ok(()),
        }
    }

    /// Checks the first record of a file, which has a header.
    fn check_names(&self, file: &str, header: &[Cell]) -> Result<()> {
        let own = names(Some(header), header.len());
        let mut pairs = own.iter().zip(&self.columns);
        let is_same = own.len() == self.columns.len()
            && pairs.all(|(name, column)| name.eq_ignore_ascii_case(&column.name));
        if is_same || !self.is_named_by_header {
            return Ok(());
        }
        let known: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        Err(Error::InputSchema {
            file: file.to_owned(),
            message: format!(
                "its columns are {}, and those of the first file {}; files that are read together have the same \
                 columns, unless union_by_name is true",
                own.join(", "),
                known.join(", ")
            ),
        })
    }

    /// What one more record shows.
    fn see(
        &mut self,
        head: &Head,
        (line, record): (u64, &str),
        candidates: &mut [Candidates],
    ) -> Result<()> {
        if record.is_empty() && self.options.skips_blanks {
            return Ok(());
        }
        let (mut scratch, mut sql) = (String::new(), String::new());
        let cut = Fields(&self.options).each(record, &mut scratch, |place, field| {
            if let Some(own) = candidates.get_mut(place).filter(|_| !field.is_null_text) {
                own.see(field.text, &self.options, &mut sql);
            }
            Ok(())
        });
        self.sampled_rows += 1;
        match counted(cut, self.columns.len()) {
            Some(fault) => Err(head.fault(line, fault)),
            None => Ok(()),
        }
    }

    /// What reads the rows of the file called `file`.
    ///
    /// # Errors
    /// None that a file could cause.
    pub fn parser(&self, file: &str) -> Result<ChunkParser> {
        let schema = TableSchema {
            table_id: 0,
            version: 1,
            name: "read_csv".to_owned(),
            columns: self.columns.clone(),
            primary_key: Vec::new(),
        };
        let columns = InputColumns::new(&schema, &[], 0_i64)?;
        Ok(ChunkParser::new(file, columns, self.options.clone())?.strict(&self.inferred))
    }

    /// `error`, with the reason if a value is not of the type that was inferred.
    #[must_use]
    pub fn explained(&self, error: Error) -> Error {
        let Error::Input { place, fault } = error else { return error };
        let number = place.column.as_ref().and_then(|(number, _)| number.checked_sub(1));
        let is_inferred = number.is_some_and(|number| self.inferred.contains(&number));
        let fault = match (*fault, &place.column) {
            (InputFault::Value(source), Some((_, column))) if is_inferred => {
                let (rows, column) = (self.sampled_rows, column.clone());
                InputFault::Inferred { source: Box::new(source), rows, column }
            }
            (fault, _) => fault,
        };
        Error::Input { place, fault: Box::new(fault) }
    }
}

/// A column of text that may be NULL.
fn plain_column(id: u32) -> Column {
    Column {
        id,
        name: String::new(),
        column_type: ColumnType::Text,
        not_null: false,
        default: None,
        absent: None,
    }
}

impl Head {
    fn of(file: String) -> Self {
        Self { file, records: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, line: u64, record: &str) {
        self.bytes = self.bytes.saturating_add(record.len());
        self.records.push((line, record.to_owned()));
    }

    /// A record as text, without its line break.
    fn text<'a>(&self, line: u64, bytes: &'a [u8]) -> Result<&'a str> {
        let record = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        std::str::from_utf8(record).map_err(|_| {
            let bytes = "a record that is no text".to_owned();
            self.fault(line, InputFault::Encoding { bytes })
        })
    }

    fn fault(&self, line: u64, fault: InputFault) -> Error {
        let place = InputPlace { file: self.file.clone(), line, column: None, value: None };
        Error::Input { place: Box::new(place), fault: Box::new(fault) }
    }

    /// The records that are no blank lines.
    fn written(&self) -> impl Iterator<Item = &str> {
        self.records.iter().map(|(_, record)| record.as_str()).filter(|record| !record.is_empty())
    }

    /// The delimiter of the records.
    fn delimiter(&self, options: &CsvOptions) -> u8 {
        // One that is nothing else yet.
        let is_free = |sign: &u8| {
            let is_used = [options.quote, options.escape].contains(sign);
            !is_used && !options.null.as_bytes().contains(sign)
        };
        let (mut delimiters, decimal): (Vec<u8>, Vec<u8>) = DELIMITERS
            .into_iter()
            .filter(is_free)
            .partition(|sign| options.forms.decimal != Some(*sign));
        let mut best = (1, delimiters.first().copied().unwrap_or(options.delimiter));
        // The sign in numbers parts values too where these are in quotes for it.
        delimiters
            .extend(decimal.into_iter().filter(|sign| self.has_quoted_number(*sign, options)));
        for delimiter in delimiters {
            let options = CsvOptions { delimiter, ..options.clone() };
            let first = self.written().take(DELIMITED_RECORDS);
            let mut counts = first.map(|record| field_count(record, &options));
            let Some(count) = counts.next() else { continue };
            if count > best.0 && counts.all(|other| other == count) {
                best = (count, delimiter);
            }
        }
        best.1
    }

    /// Whether a number with the sign `delimiter` in it is in quotes.
    fn has_quoted_number(&self, delimiter: u8, options: &CsvOptions) -> bool {
        let options = CsvOptions { delimiter, ..options.clone() };
        let (mut has_one, mut scratch, mut sql) = (false, String::new(), String::new());
        for record in self.written().take(DELIMITED_RECORDS) {
            let cut = Fields(&options).each(record, &mut scratch, |_, field| {
                has_one |= field.quoted
                    && field.text.as_bytes().contains(&delimiter)
                    && is_of(&ColumnType::Double, field.text, &options, &mut sql);
                Ok(())
            });
            if cut.is_err() {
                return false;
            }
        }
        has_one
    }

    /// The fields of the records.
    ///
    /// # Errors
    /// [`Error::Input`] for a record with another number of fields than the first, or with more than tables have.
    fn rows(&self, options: &CsvOptions) -> Result<Vec<Vec<Cell>>> {
        let mut rows: Vec<Vec<Cell>> = Vec::with_capacity(self.records.len());
        let mut scratch = String::new();
        for (line, record) in &self.records {
            if record.is_empty() && options.skips_blanks {
                continue;
            }
            let mut row = Vec::new();
            let cut = Fields(options).each(record, &mut scratch, |index, field| {
                if index == COLUMN_COUNT_MAX {
                    let fault = InputFault::ExtraColumn { expected: COLUMN_COUNT_MAX };
                    return Err(FieldFault { index, fault, value: None });
                }
                let is_null = field.is_null_text && !field.quoted;
                row.push((!is_null).then(|| field.text.to_owned()));
                Ok(())
            });
            let expected = rows.first().map_or(row.len(), Vec::len);
            // Perhaps a title is above the header.
            let is_below_title = expected == 1 || rows.len() == 1;
            match counted(cut, expected) {
                Some(InputFault::ExtraColumn { expected }) if is_below_title => {
                    return Err(self.fault(*line, InputFault::ExtraBelowFirst { expected }));
                }
                Some(fault) => return Err(self.fault(*line, fault)),
                None => rows.push(row),
            }
        }
        Ok(rows)
    }
}

/// Fields of a record; 0: it cannot be cut.
fn field_count(record: &str, options: &CsvOptions) -> usize {
    Fields(options).each(record, &mut String::new(), |_, _| Ok(())).unwrap_or(0)
}

/// What is wrong with a record of which so many fields were cut.
fn counted(cut: std::result::Result<usize, FieldFault>, expected: usize) -> Option<InputFault> {
    match cut {
        Err(fault) => Some(fault.fault),
        Ok(found) if found > expected => Some(InputFault::ExtraColumn { expected }),
        Ok(found) if found < expected => Some(InputFault::MissingColumn { found, expected }),
        Ok(_) => None,
    }
}

impl Candidates {
    fn all() -> Self {
        Self { left: [true; TYPES.len()], has_values: false }
    }

    /// Rules out what `value` is not.
    fn see(&mut self, value: &str, options: &CsvOptions, sql: &mut String) {
        self.has_values = true;
        for (left, column_type) in self.left.iter_mut().zip(&TYPES) {
            *left = *left && is_of(column_type, value, options, sql);
        }
    }

    fn meet(&mut self, other: Self) {
        self.has_values |= other.has_values;
        for (own, other) in self.left.iter_mut().zip(other.left) {
            *own = *own && other;
        }
    }

    fn column_type(self) -> ColumnType {
        let left = self.left.iter().zip(TYPES).find(|(left, _)| **left && self.has_values);
        left.map_or(ColumnType::Text, |(_, column_type)| column_type)
    }
}

/// The types that the columns of `rows` may have.
fn candidates(rows: &[Vec<Cell>], count: usize, options: &CsvOptions) -> Vec<Candidates> {
    let mut found = vec![Candidates::all(); count];
    let mut sql = String::new();
    for row in rows {
        for (cell, own) in row.iter().zip(&mut found) {
            // A text for NULL that is a value here is in quotes: it is NULL in a column that is not of text.
            if let Some(value) = cell.as_ref().filter(|value| **value != options.null) {
                own.see(value, options, &mut sql);
            }
        }
    }
    found
}

/// Whether `value` is one of this type, as it is inferred: all of it is kept.
fn is_of(column_type: &ColumnType, value: &str, options: &CsvOptions, sql: &mut String) -> bool {
    let form = options.forms.of(column_type);
    if options.forms.write(form, value, sql).is_err() {
        return false;
    }
    let text = sql.trim();
    let is_value = || match column_type {
        ColumnType::BigInt => parse::integer::<i64>(text, "").is_ok(),
        ColumnType::Double => parse::double(text).is_ok(),
        ColumnType::Date => parse::date(text).is_ok(),
        ColumnType::Timestamp => parse::timestamp(text).is_ok(),
        ColumnType::TimestampTz => parse::timestamp_tz(text).is_ok(),
        _ => true,
    };
    kept::comes_back(column_type, text, form == Form::Plain) && is_value()
}

/// Whether `first` names the columns of `rows`, of which those behind it may have the types `below`.
fn is_header(
    first: &[Cell],
    rows: &[Vec<Cell>],
    below: &[Candidates],
    options: &CsvOptions,
) -> bool {
    let cells =
        || first.iter().zip(0_usize..).filter_map(|(cell, place)| Some((place, cell.as_deref()?)));
    let named = || cells().filter(|(_, value)| !value.is_empty());
    let is_blank = |place: usize| !named().any(|(own, _)| own == place);
    let type_at = |place: usize| below.get(place).map_or(ColumnType::Text, |own| own.column_type());
    let (mut is_other, mut is_value, mut sql) = (false, false, String::new());
    for (place, value) in named() {
        let own = type_at(place);
        // A word for a number that is none may name a column too.
        if own != ColumnType::Text && !kept::is_special(value) {
            match is_of(&own, value, options, &mut sql) {
                true => is_value = true,
                false => is_other = true,
            }
        }
    }
    // A row may have an empty field and a word for a missing number: one of its other numbers tells it from a header.
    if is_other && !(is_value && (0..first.len()).any(is_blank)) {
        return true;
    }
    let is_word = |value: &str| value.starts_with(|sign: char| sign.is_alphabetic() || sign == '_');
    let values_at = |place: usize| rows.iter().skip(1).map(move |row| row.get(place)?.as_deref());
    // The keys of rows, as data frames are written: each is there once, and their column has no name.
    let is_index = |place: usize| {
        let mut seen = BTreeSet::new();
        place == 0 && values_at(place).all(|value| value.is_some_and(|value| seen.insert(value)))
    };
    let is_empty = |place: usize| !below.get(place).is_some_and(|own| own.has_values);
    // An empty field elsewhere is a value that one row lacks.
    let are_text = (0..below.len()).all(|place| match is_blank(place) {
        true => is_empty(place) || is_index(place),
        false => type_at(place) == ColumnType::Text,
    });
    let names: BTreeSet<&str> = named().map(|(_, value)| value).collect();
    are_text
        && !names.is_empty()
        && names.len() == named().count()
        && names.iter().all(|value| is_word(value))
        && !named().any(|(place, value)| values_at(place).any(|other| other == Some(value)))
}

/// The names of `count` columns, from a header if there is one: each once.
fn names(header: Option<&[Cell]>, count: usize) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut names = Vec::with_capacity(count);
    for place in 0..count {
        let written = header.and_then(|header| header.get(place)?.as_deref()).map(str::trim);
        let own = match written {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => format!("column{}", place + 1),
        };
        let mut name = own.clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            name = format!("{own}_{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    //! What is inferred of texts.

    use super::*;
    use crate::statement::files::{FileCall, FileFormat};

    /// The columns of files with these texts, as `name type`; `options` begin with a comma.
    fn found(texts: &[&str], options: &str) -> Result<Vec<String>> {
        let name = format!("\u{1}file read_csv('f'{options})");
        let FileFormat::Csv(call) = FileCall::of_relation(&name).unwrap()?.format else {
            panic!("{options}");
        };
        let inputs = texts.iter().map(|text| Ok(("f".to_owned(), text.as_bytes())));
        let types = CsvTypes::find(&call, inputs, InputMemory::default())?;
        let columns = types.columns.iter();
        Ok(columns.map(|own| format!("{} {}", own.name, own.column_type.sql_name())).collect())
    }

    #[test]
    fn types_and_names_follow_from_the_values() {
        let long = format!("id\n{}x\n", "1\n".repeat(5000));
        let cases: &[(&[&str], &str, &[&str])] = &[
            (&["id,title\n1,one\n2,\n"], "", &["id bigint", "title text"]),
            (
                &["1,2.5,true,t\n"],
                "",
                &["column1 bigint", "column2 double precision", "column3 boolean", "column4 text"],
            ),
            (&["a;b\n1;2,5\n"], ", decimal_separator => ','", &["a bigint", "b double precision"]),
            (&["a|b\n1|x,y\n2|z\n"], "", &["a bigint", "b text"]),
            (
                &["day,at,tz\n2024-01-31,2024-01-31 10:00,2024-01-31T10:00:00Z\n"],
                "",
                &["day date", "at timestamp without time zone", "tz timestamp with time zone"],
            ),
            (&["d\n31.01.2024\n"], "", &["d text"]),
            (&["d\n31.01.2024\n"], ", dateformat => '%d.%m.%Y'", &["d date"]),
            (&["plz\n01067\n"], "", &["plz text"]),
            (&["id\n12345678901234567890\n"], "", &["id text"]),
            (&["n\n1,5\n"], ", decimal_separator => ','", &["n double precision"]),
            (
                &["a;b\n1,5;2,5\n"],
                ", decimal_separator => ','",
                &["a double precision", "b double precision"],
            ),
            (&["", "a\n1\n"], "", &["a bigint"]),
            (&["a,a,\n1,2,3\n"], ", header => true", &["a bigint", "a_1 bigint", "column3 bigint"]),
            (&["x,y\nx,z\n"], "", &["column1 text", "column2 text"]),
            // Blank lines are no rows of several columns.
            (&["\r\n\na,b\r\n\r\n1,2\r\n\n"], "", &["a bigint", "b bigint"]),
            (&["\na,b\n1,2\n"], ", sample_size => 1", &["a bigint", "b bigint"]),
            (&["a\n1\n\n2\n"], "", &["a bigint"]),
            // As data frames and spreadsheets write them.
            (&[",a,b\n0,1,x\n1,2,y\n"], "", &["column1 bigint", "a bigint", "b text"]),
            (&[",a,b\n7,x,x\n3,y,x\n"], "", &["column1 bigint", "a text", "b text"]),
            (&["a,b,\n1,2,\n"], "", &["a bigint", "b bigint", "column3 text"]),
            (&[",a\n1,x\n1,y\n"], "", &["column1 bigint", "column2 text"]),
            (&[",\n1,2\n"], "", &["column1 bigint", "column2 bigint"]),
            (&["a,b,\nx,y,\n"], "", &["a text", "b text", "column3 text"]),
            // First rows that lack values.
            (&["ann,,rome\nbob,x,oslo\n"], "", &["column1 text", "column2 text", "column3 text"]),
            (&["n/a,,3\n5,x,4\n"], "", &["column1 text", "column2 text", "column3 bigint"]),
            (&["\"\",5\n7,6\n"], "", &["column1 bigint", "column2 bigint"]),
            (&["\"\",\"a\"\n1,5\n2,6\n"], "", &["column1 bigint", "a bigint"]),
            // A quoted empty field is no text among numbers, and a word for a number that is none is a number.
            (&["a,b\n1,\"\"\n\"\",x\n"], "", &["a bigint", "b text"]),
            (&["a,b\nNaN,1\n1.5,-inf\n"], "", &["a double precision", "b double precision"]),
            (&["nan\n1.5\n"], "", &["column1 double precision"]),
            (
                &["a,b\n\"1,5\",\"2,5\"\n3,4\n"],
                ", decimal_separator => ','",
                &["a double precision", "b double precision"],
            ),
            (
                &["a;b\n\"x,5\";1,5\n"],
                ", decimal_separator => ','",
                &["a text", "b double precision"],
            ),
            // What would lose a sign is text.
            (
                &["a,b,c\n+49123,-0,9007199254740993\n1,1,1.5\n"],
                "",
                &["a text", "b double precision", "c text"],
            ),
            (&["a\n2024-01-31 10:00 EST\n2024-01-31 10:00\n"], "", &["a text"]),
            (&["a\n2024-01-31 10:00:00.1234567\n"], "", &["a text"]),
            (&["a\n2024-01-31\ninfinity\n"], "", &["a date"]),
            // Lines that end in a carriage return alone.
            (&["a,b\r1,2\r3,4\r"], "", &["a bigint", "b bigint"]),
            (&["\r\ra,b\r1,2"], "", &["a bigint", "b bigint"]),
            (&["# note\ra\r1\r"], ", skip => 1", &["a bigint"]),
            (&["a,b\n1,2\n"], ", types => 'b numeric(5, 2)'", &["a bigint", "b numeric(5,2)"]),
            (&["1,2\n"], ", columns => 'p int, q text'", &["p integer", "q text"]),
            (&["a\n1\n"], ", all_varchar => true", &["a text"]),
            (&["# note\na\n1\n"], ", skip => 1", &["a bigint"]),
            (&["a\n1\n", "A\n1.5\n"], "", &["a double precision"]),
            (&["a\n\"1\n2\"\n"], "", &["a text"]),
            (&[&long], ", sample_size => 100", &["id bigint"]),
            (&[&long], ", sample_size => -1", &["id text"]),
        ];
        for (texts, options, expected) in cases {
            assert_eq!(found(texts, options).unwrap(), **expected, "{texts:?}{options}");
        }
        // Long records are not held all at once.
        let wide = format!("a,b\n{}", format!("1,{}\n", "x".repeat(1 << 20)).repeat(20));
        assert_eq!(found(&[&wide], "").unwrap(), ["a bigint", "b text"]);
        let many = ",".repeat(COLUMN_COUNT_MAX);
        let refused: &[(&[&str], &str, &str)] = &[
            (&["", ""], "", "the file is empty"),
            (&[&many], "", "f, line 1: extra data"),
            (&["a,b\n1,2\n3\n"], "", "f, line 3: missing data"),
            (&["a,b\n1,2\n3,4,5\n"], "", "f, line 3: extra data"),
            (&["Films\n\na,b\n1,2\n"], "", "skip => n passes over lines before the header"),
            (&["a,b\n1,2\n", "a,c\n1,2\n"], "", "its columns are a, c"),
            (&["a\n1\n"], ", types => 'b int'", "column \"b\""),
            (&["a\n\"1\n"], "", "unterminated quoted field"),
            (&["a\n1\r2\r"], "", "f, line 2: unquoted carriage return found in data"),
            (&["a\r1\n2\r"], "", "f, line 2: unquoted newline found in data"),
        ];
        for (texts, options, part) in refused {
            let error = found(texts, options).unwrap_err().to_string();
            assert!(error.contains(*part), "{texts:?}{options}: {error}");
        }
    }
}
