//! COPY: tokens in, a [`enum@Copy`] with checked options out.
//!
//! Both of PostgreSQL's syntaxes are read: `COPY t FROM 'f' WITH (FORMAT csv, HEADER true)` and the older `COPY t FROM
//! 'f' CSV HEADER`. Without a format, the file's name decides (`.csv`, `.parquet`), also before the end that names a
//! [compression](crate::copy::compressed) (`.csv.gz`); otherwise it is PostgreSQL's text format, unless the name shows
//! another one (`.bz2`, `.json`), which is refused.
//!
//! Deliberately absent: PROGRAM (it would run a command of the host), WHERE, encodings other than UTF-8; each is
//! refused by name.
//!
//! Source: PostgreSQL's manual, COPY.

use std::path::{Path, PathBuf};

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::copy::compressed::Compression;
use crate::copy::options::{ColumnChoice, CopyFormat, CsvOptions, Header, ParquetCompression};
use crate::copy::value_forms::{TimePattern, ValueForms};
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::parse::{Reader, refuse_in_query};

/// COPY in either direction.
#[derive(Debug, Clone, PartialEq)]
pub enum Copy {
    /// COPY table (columns) FROM end.
    From {
        /// The table.
        table: String,
        /// The columns that the file has, in its order; empty: all of the table's.
        columns: Vec<String>,
        /// The source.
        end: CopyEnd,
        /// Its format.
        format: CopyFormat,
    },
    /// COPY source TO end.
    To {
        /// The rows to write.
        source: CopySource,
        /// The target.
        end: CopyEnd,
        /// Its format.
        format: CopyFormat,
    },
}

/// The source of COPY TO.
#[derive(Debug, Clone, PartialEq)]
pub enum CopySource {
    /// A table's rows.
    Table {
        /// The table.
        name: String,
        /// The columns; empty: all.
        columns: Vec<String>,
    },
    /// A query's rows.
    Query(Box<ast::Query>),
}

/// The far end of COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyEnd {
    /// A file of the host, as written: relative to the directory that the process runs in.
    File(PathBuf),
    /// The client: STDIN or STDOUT.
    Client,
}

/// The options as written, before the format is known.
#[derive(Default)]
struct Written {
    format: Option<Format>,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    header: Option<Header>,
    force_quote: Option<ColumnChoice>,
    force_not_null: Option<ColumnChoice>,
    force_null: Option<ColumnChoice>,
    compression: Option<ParquetCompression>,
    freeze: Option<bool>,
    date_format: Option<String>,
    timestamp_format: Option<String>,
    decimal_separator: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Text,
    Binary,
    Parquet,
}

/// Reads what follows the word COPY.
pub(crate) fn parse_copy(reader: &mut Reader<'_>) -> Result<Copy> {
    let mut is_binary = false;
    let source = if reader.parser.consume_token(&Token::LParen) {
        let query = reader.parser.parse_query().map_err(|error| reader.syntax(error))?;
        if !reader.parser.consume_token(&Token::RParen) {
            return Err(reader.expected("a closing parenthesis"));
        }
        let query = reader.lowered(query)?;
        refuse_in_query(&query)?;
        CopySource::Query(query)
    } else {
        // The form before PostgreSQL 7.3, which some clients still use.
        is_binary = reader.take("binary");
        let name = reader.parser.parse_object_name(false).map_err(|error| reader.syntax(error))?;
        let columns = match reader.parser.peek_token().token {
            Token::LParen => column_list(reader)?,
            _ => Vec::new(),
        };
        CopySource::Table { name: table_name(&name)?, columns }
    };
    let to = reader.take("to");
    if !to && !reader.take("from") {
        return Err(reader.expected("FROM or TO"));
    }
    let end = end(reader, to)?;
    let mut written = options(reader)?;
    if is_binary {
        written.format = Some(Format::Binary);
    }
    let format = written.checked(&end, to)?;
    match (source, to) {
        (source, true) => Ok(Copy::To { source, end, format }),
        (CopySource::Table { name, columns }, false) => {
            Ok(Copy::From { table: name, columns, end, format })
        }
        (CopySource::Query(_), false) => Err(Error::Invalid {
            message: "COPY (query) can only go TO a file, not FROM one".into(),
            fault: Fault::Statement,
            position: None,
        }),
    }
}

fn end(reader: &mut Reader<'_>, to: bool) -> Result<CopyEnd> {
    if reader.take("program") {
        return Err(Error::Unsupported {
            what: "COPY ... PROGRAM".into(),
            hint: Some("run the program in a shell and pipe it to COPY ... STDIN".into()),
            position: None,
        });
    }
    let client = if to { "stdout" } else { "stdin" };
    if reader.take(client) {
        return Ok(CopyEnd::Client);
    }
    let expected =
        if to { "a file name in quotes or STDOUT" } else { "a file name in quotes or STDIN" };
    reader.string(expected).map(|file| CopyEnd::File(PathBuf::from(file)))
}

/// Both syntaxes, which may not be mixed; the words of the older one come in any order.
fn options(reader: &mut Reader<'_>) -> Result<Written> {
    let with = reader.take("with");
    let mut written = Written::default();
    if reader.parser.consume_token(&Token::LParen) {
        loop {
            option(reader, &mut written)?;
            if reader.parser.consume_token(&Token::RParen) {
                break;
            }
            if !reader.parser.consume_token(&Token::Comma) {
                return Err(reader.expected("a comma or a closing parenthesis"));
            }
        }
    } else {
        let mut count = 0_usize;
        while older_option(reader, &mut written)? {
            count += 1;
        }
        if with && count == 0 {
            return Err(reader.expected("an option of COPY"));
        }
    }
    if reader.take("where") {
        return Err(Error::Unsupported {
            what: "COPY ... WHERE".into(),
            hint: Some("load all rows and select from them".into()),
            position: None,
        });
    }
    Ok(written)
}

/// One option of the list in parentheses.
fn option(reader: &mut Reader<'_>, written: &mut Written) -> Result<()> {
    let place = reader.parser.peek_token();
    let position = position_of(place.span.start);
    let Token::Word(word) = place.token else {
        return Err(reader.expected("an option of COPY"));
    };
    reader.parser.advance_token();
    let name = word.value.to_ascii_lowercase();
    let fresh = match name.as_str() {
        "format" => set(&mut written.format, format(reader)?),
        "delimiter" => set(&mut written.delimiter, reader.string("a character in quotes")?),
        "null" => set(&mut written.null, reader.string("a text in quotes")?),
        "quote" => set(&mut written.quote, reader.string("a character in quotes")?),
        "escape" => set(&mut written.escape, reader.string("a character in quotes")?),
        "header" => {
            let header = if reader.take("match") {
                Header::Match
            } else if reader.switch()? {
                Header::Skip
            } else {
                Header::None
            };
            set(&mut written.header, header)
        }
        "force_quote" => set(&mut written.force_quote, column_choice(reader)?),
        "force_not_null" => set(&mut written.force_not_null, column_choice(reader)?),
        "force_null" => set(&mut written.force_null, column_choice(reader)?),
        "compression" => set(&mut written.compression, compression(reader)?),
        "encoding" => {
            let encoding = reader.option_value()?;
            if !matches!(encoding.to_lowercase().as_str(), "utf8" | "utf-8" | "unicode") {
                let what = format!("COPY with ENCODING '{encoding}'");
                let hint = Some("text is UTF-8; convert the file with iconv".into());
                return Err(Error::Unsupported { what, hint, position });
            }
            true
        }
        "dateformat" => set(&mut written.date_format, reader.string("a pattern in quotes")?),
        "timestampformat" => {
            set(&mut written.timestamp_format, reader.string("a pattern in quotes")?)
        }
        "decimal_separator" => {
            set(&mut written.decimal_separator, reader.string("a character in quotes")?)
        }
        // FREEZE has no effect: rows of a block are in pages of their own, and nothing has to be frozen.
        "freeze" => {
            let freeze = reader.switch()?;
            set(&mut written.freeze, freeze)
        }
        "oids" | "on_error" | "reject_limit" | "log_verbosity" | "default" => {
            let what = format!("COPY with {}", name.to_uppercase());
            return Err(Error::unsupported(what).at(position));
        }
        _ => {
            reader.parser.prev_token();
            return Err(reader.expected(
                "FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE, FORCE_QUOTE, FORCE_NOT_NULL, \
                 FORCE_NULL, DATEFORMAT, TIMESTAMPFORMAT, DECIMAL_SEPARATOR, ENCODING or COMPRESSION",
            ));
        }
    };
    if fresh {
        return Ok(());
    }
    Err(Error::Invalid {
        message: format!("COPY: option {} is given twice", name.to_uppercase()),
        fault: Fault::Options,
        position,
    })
}

/// One option of the older syntax; false where none follows.
fn older_option(reader: &mut Reader<'_>, written: &mut Written) -> Result<bool> {
    let place = reader.parser.peek_token();
    let Token::Word(word) = place.token else {
        return Ok(false);
    };
    let name = word.value.to_ascii_lowercase();
    if !matches!(
        name.as_str(),
        "csv"
            | "parquet"
            | "header"
            | "delimiter"
            | "null"
            | "quote"
            | "escape"
            | "force"
            | "freeze"
            | "binary"
    ) {
        return Ok(false);
    }
    reader.parser.advance_token();
    let mut text = |what: &str| {
        let _ = reader.take("as");
        reader.string(what)
    };
    let fresh = match name.as_str() {
        "csv" => set(&mut written.format, Format::Csv),
        "parquet" => set(&mut written.format, Format::Parquet),
        "header" => set(&mut written.header, Header::Skip),
        "freeze" => set(&mut written.freeze, true),
        "delimiter" => set(&mut written.delimiter, text("a character in quotes")?),
        "null" => set(&mut written.null, text("a text in quotes")?),
        "quote" => set(&mut written.quote, text("a character in quotes")?),
        "escape" => set(&mut written.escape, text("a character in quotes")?),
        "binary" => set(&mut written.format, Format::Binary),
        _ => {
            return Err(Error::Unsupported {
                what: "FORCE outside of parentheses".into(),
                hint: Some("write WITH (FORMAT csv, FORCE_QUOTE (...))".into()),
                position: position_of(place.span.start),
            });
        }
    };
    if fresh {
        return Ok(true);
    }
    Err(Error::Invalid {
        message: format!("COPY: option {} is given twice", name.to_uppercase()),
        fault: Fault::Options,
        position: position_of(place.span.start),
    })
}

/// Sets an option; false where it was set already.
fn set<T>(option: &mut Option<T>, value: T) -> bool {
    option.replace(value).is_none()
}

fn format(reader: &mut Reader<'_>) -> Result<Format> {
    let text = reader.option_value()?;
    match text.to_lowercase().as_str() {
        "csv" => Ok(Format::Csv),
        "text" => Ok(Format::Text),
        "parquet" => Ok(Format::Parquet),
        "binary" => Ok(Format::Binary),
        _ => {
            reader.parser.prev_token();
            Err(reader.expected("csv, text, binary or parquet"))
        }
    }
}

fn compression(reader: &mut Reader<'_>) -> Result<ParquetCompression> {
    let text = reader.option_value()?;
    match text.to_lowercase().as_str() {
        "uncompressed" | "none" => Ok(ParquetCompression::Uncompressed),
        "snappy" => Ok(ParquetCompression::Snappy),
        "zstd" => Ok(ParquetCompression::Zstd),
        "lz4" => Ok(ParquetCompression::Lz4),
        _ => {
            reader.parser.prev_token();
            Err(reader.expected("uncompressed, snappy, zstd or lz4"))
        }
    }
}

fn column_choice(reader: &mut Reader<'_>) -> Result<ColumnChoice> {
    if reader.parser.consume_token(&Token::Mul) {
        return Ok(ColumnChoice::All);
    }
    column_list(reader).map(ColumnChoice::Names)
}

fn column_list(reader: &mut Reader<'_>) -> Result<Vec<String>> {
    if !reader.parser.consume_token(&Token::LParen) {
        return Err(reader.expected("a list of columns in parentheses"));
    }
    let mut columns = Vec::new();
    loop {
        let position = position_of(reader.parser.peek_token().span.start);
        let name = reader.parser.parse_identifier().map_err(|error| reader.syntax(error))?;
        let column = fold(&name);
        if columns.contains(&column) {
            return Err(Error::Invalid {
                message: format!("column \"{column}\" specified more than once"),
                fault: Fault::DuplicateColumn,
                position,
            });
        }
        columns.push(column);
        if reader.parser.consume_token(&Token::RParen) {
            return Ok(columns);
        }
        if !reader.parser.consume_token(&Token::Comma) {
            return Err(reader.expected("a comma or a closing parenthesis"));
        }
    }
}

impl Written {
    fn checked(self, end: &CopyEnd, to: bool) -> Result<CopyFormat> {
        let fault = |message: String| {
            Err(Error::Invalid { message, fault: Fault::Options, position: None })
        };
        let format = match self.format {
            Some(format) => format,
            None => format_by_name(end)?,
        };
        let given = |options: &[(bool, &'static str)]| {
            options.iter().find(|(present, _)| *present).map(|(_, name)| *name)
        };
        let csv_only = given(&[
            (self.quote.is_some(), "QUOTE"),
            (self.escape.is_some(), "ESCAPE"),
            (self.force_quote.is_some(), "FORCE_QUOTE"),
            (self.force_not_null.is_some(), "FORCE_NOT_NULL"),
            (self.force_null.is_some(), "FORCE_NULL"),
        ]);
        let text_only = given(&[
            (self.delimiter.is_some(), "DELIMITER"),
            (self.null.is_some(), "NULL"),
            (self.header.is_some(), "HEADER"),
            (self.date_format.is_some(), "DATEFORMAT"),
            (self.timestamp_format.is_some(), "TIMESTAMPFORMAT"),
            (self.decimal_separator.is_some(), "DECIMAL_SEPARATOR"),
        ]);
        match (format, csv_only, text_only) {
            (Format::Parquet, Some(name), _) | (Format::Parquet, None, Some(name)) => {
                return fault(format!("COPY: {name} is no option of FORMAT parquet"));
            }
            (Format::Binary, Some(name), _) | (Format::Binary, None, Some(name)) => {
                return fault(format!("COPY: {name} is no option of FORMAT binary"));
            }
            (Format::Text, Some(name), _) => {
                return fault(format!("COPY: {name} is an option of FORMAT csv only"));
            }
            _ => {}
        }
        if format != Format::Parquet && self.compression.is_some() {
            return fault("COPY: COMPRESSION is an option of FORMAT parquet only".into());
        }
        let input_only = given(&[
            (self.force_not_null.is_some(), "FORCE_NOT_NULL"),
            (self.force_null.is_some(), "FORCE_NULL"),
            (self.header == Some(Header::Match), "HEADER MATCH"),
            (self.freeze == Some(true), "FREEZE"),
            (self.date_format.is_some(), "DATEFORMAT"),
            (self.timestamp_format.is_some(), "TIMESTAMPFORMAT"),
            (self.decimal_separator.is_some(), "DECIMAL_SEPARATOR"),
        ]);
        match (to, input_only, self.force_quote.is_some()) {
            (true, Some(name), _) => {
                return fault(format!("COPY: {name} is an option of COPY FROM only"));
            }
            (false, _, true) => {
                return fault("COPY: FORCE_QUOTE is an option of COPY TO only".into());
            }
            _ => {}
        }
        let (mut options, wrap): (_, fn(CsvOptions) -> CopyFormat) = match format {
            Format::Parquet => {
                if let CopyEnd::File(path) = end
                    && Compression::of_name(path).is_some()
                {
                    return Err(Error::Unsupported {
                        what: "a compressed file in FORMAT parquet".to_owned(),
                        hint: Some(
                            "its columns are compressed within the file, as COMPRESSION says"
                                .to_owned(),
                        ),
                        position: None,
                    });
                }
                return Ok(CopyFormat::Parquet(self.compression.unwrap_or_default()));
            }
            Format::Binary => return Ok(CopyFormat::Binary),
            Format::Csv => (CsvOptions::csv(), CopyFormat::Csv),
            Format::Text => (CsvOptions::text(), CopyFormat::Text),
        };
        if let Some(text) = &self.delimiter {
            options.delimiter = single("COPY: DELIMITER", text)?;
        }
        if let Some(text) = &self.quote {
            options.quote = single("COPY: QUOTE", text)?;
            // As in PostgreSQL, quotes escape themselves unless told otherwise.
            options.escape = options.quote;
        }
        if let Some(text) = &self.escape {
            options.escape = single("COPY: ESCAPE", text)?;
        }
        options.forms = value_forms(
            self.date_format.as_deref(),
            self.timestamp_format.as_deref(),
            self.decimal_separator.as_deref(),
        )?;
        options.null = self.null.unwrap_or(options.null);
        options.header = self.header.unwrap_or(Header::None);
        options.force_quote = self.force_quote.unwrap_or_default();
        options.force_not_null = self.force_not_null.unwrap_or_default();
        options.force_null = self.force_null.unwrap_or_default();
        options.check().map(wrap)
    }
}

/// The forms that these options say.
///
/// # Errors
/// [`Error::Invalid`] naming the option.
pub(crate) fn value_forms(
    date: Option<&str>,
    timestamp: Option<&str>,
    decimal: Option<&str>,
) -> Result<ValueForms> {
    let pattern = |option: &str, text: Option<&str>, with_time: bool| {
        text.map(|text| TimePattern::new(option, text, with_time)).transpose()
    };
    let decimal = decimal.map(|text| single("DECIMAL_SEPARATOR", text)).transpose()?;
    if let Some(sign) = decimal.filter(|sign| sign.is_ascii_alphanumeric() || b"+-".contains(sign))
    {
        return Err(Error::Invalid {
            message: format!("DECIMAL_SEPARATOR cannot be {}", char::from(sign)),
            fault: Fault::Parameter,
            position: None,
        });
    }
    Ok(ValueForms {
        date: pattern("DATEFORMAT", date, false)?,
        timestamp: pattern("TIMESTAMPFORMAT", timestamp, true)?,
        decimal,
    })
}

/// The format that the name of a file shows.
///
/// # Errors
/// The name shows one that COPY does not have: its text format under that name would mislead whoever reads the file.
fn format_by_name(end: &CopyEnd) -> Result<Format> {
    let CopyEnd::File(path) = end else { return Ok(Format::Text) };
    let path = match Compression::of_name(path) {
        Some(_) => path.file_stem().map_or(path.as_path(), Path::new),
        None => path.as_path(),
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    let what = match extension.as_str() {
        "csv" => return Ok(Format::Csv),
        "parquet" => return Ok(Format::Parquet),
        "gz" | "gzip" | "tgz" | "zst" | "zstd" | "bz2" | "xz" | "lz4" | "lzma" | "z" | "br"
        | "sz" | "snappy" | "zip" | "7z" => "compressed",
        "json" | "jsonl" | "ndjson" | "geojson" | "arrow" | "arrows" | "feather" | "ipc"
        | "avro" | "orc" | "tar" | "xml" | "xls" | "xlsx" | "ods" | "html" | "yaml" | "yml" => {
            "format"
        }
        _ => return Ok(Format::Text),
    };
    let (what, hint) = match what {
        "compressed" => (
            format!("COPY with a file that is compressed as .{extension}"),
            "compress it with gzip (.gz) or zstd (.zst), or copy from STDIN or to STDOUT through a program",
        ),
        _ => (
            format!("COPY with a file in the format {extension}"),
            "name the FORMAT: csv, text, binary or parquet",
        ),
    };
    Err(Error::Unsupported { what, hint: Some(hint.into()), position: None })
}

pub(crate) fn single(option: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Error::Invalid {
            message: format!("{option} must be one ASCII character, not '{text}'"),
            fault: Fault::Parameter,
            position: None,
        }),
    }
}

#[cfg(test)]
mod tests;
