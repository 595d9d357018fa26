//! COPY's options: the format of a file, checked once for contradictions, so that readers and writers need not check.
//!
//! Invariant: [`CopyFormat::Csv`] and [`CopyFormat::Text`] hold options that [`CsvOptions::check`] accepted. Delimiter,
//! quote and escape are single ASCII bytes, delimiter and quote differ, and the text for NULL contains neither.
//!
//! Source: PostgreSQL's manual, COPY.

use cleave_catalog::error::{Error, Fault, Result};

use crate::copy::value_forms::ValueForms;

/// The format of a file, with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyFormat {
    /// CSV as PostgreSQL writes it.
    Csv(CsvOptions),
    /// PostgreSQL's own text format: tabs, `\N`, backslash escapes.
    Text(CsvOptions),
    /// PostgreSQL's binary format.
    Binary,
    /// Apache Parquet.
    Parquet(ParquetCompression),
}

/// Options of CSV (or of the text format, which has no quotes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    /// True for CSV, false for the text format.
    pub csv: bool,
    /// Delimiter between two values.
    pub delimiter: u8,
    /// Quote around a value; not in the text format.
    pub quote: u8,
    /// Escape before a quote or itself, inside quotes; in the text format before anything.
    pub escape: u8,
    /// An unquoted value that means NULL.
    pub null: String,
    /// Whether the first record names the columns.
    pub header: Header,
    /// Columns of which every value but NULL is written in quotes.
    pub force_quote: ColumnChoice,
    /// Columns in which an unquoted text for NULL is that text, and no NULL.
    pub force_not_null: ColumnChoice,
    /// Columns in which a quoted text for NULL is NULL too.
    pub force_null: ColumnChoice,
    /// How dates, times and numbers are written; only when reading.
    pub forms: ValueForms,
    /// Blank lines are no records; only when reading files that have several columns.
    pub skips_blanks: bool,
}

/// Treatment of a first record that names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Header {
    /// There is none.
    None,
    /// Read: skip it. Write: write it.
    Skip,
    /// Read: its names must be those of the columns, in order.
    Match,
}

/// A choice of columns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ColumnChoice {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These.
    Names(Vec<String>),
}

/// Compression of Parquet's pages when writing; when reading, the file tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ParquetCompression {
    /// Not at all.
    Uncompressed,
    /// Snappy.
    Snappy,
    /// Zstandard at its lowest level.
    #[default]
    Zstd,
    /// LZ4, raw blocks.
    Lz4,
}

impl CsvOptions {
    /// CSV as PostgreSQL has it without options: comma, double quotes, an empty unquoted value for NULL.
    #[must_use]
    pub fn csv() -> Self {
        Self {
            csv: true,
            delimiter: b',',
            quote: b'"',
            escape: b'"',
            null: String::new(),
            header: Header::None,
            force_quote: ColumnChoice::None,
            force_not_null: ColumnChoice::None,
            force_null: ColumnChoice::None,
            forms: ValueForms::default(),
            skips_blanks: false,
        }
    }

    /// PostgreSQL's text format: tabs, `\N` for NULL.
    #[must_use]
    pub fn text() -> Self {
        Self { csv: false, delimiter: b'\t', escape: b'\\', null: "\\N".into(), ..Self::csv() }
    }

    /// Checks the options against each other, by PostgreSQL's rules.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the option.
    pub fn check(self) -> Result<Self> {
        let fault = |message: &str| {
            Err(Error::Invalid {
                message: message.to_owned(),
                fault: Fault::Parameter,
                position: None,
            })
        };
        let single = |byte: u8| byte.is_ascii() && byte != 0 && byte != b'\n' && byte != b'\r';
        if !single(self.delimiter) {
            return fault("COPY: DELIMITER must be one ASCII character and no line break");
        }
        if !single(self.quote) || !single(self.escape) {
            return fault(
                "COPY: QUOTE and ESCAPE must each be one ASCII character and no line break",
            );
        }
        if self.csv && self.delimiter == self.quote {
            return fault("COPY: DELIMITER and QUOTE must differ");
        }
        if !self.csv
            && (self.delimiter.is_ascii_alphanumeric() || matches!(self.delimiter, b'\\' | b'.'))
        {
            return fault(
                "COPY: DELIMITER of the text format cannot be a letter, digit, dot or \\",
            );
        }
        if self.null.contains(['\n', '\r']) {
            return fault("COPY: NULL cannot contain a line break");
        }
        let null = self.null.as_bytes();
        if null.contains(&self.delimiter) {
            return fault("COPY: NULL cannot contain the DELIMITER");
        }
        if self.csv && null.contains(&self.quote) {
            return fault("COPY: NULL cannot contain the QUOTE");
        }
        Ok(self)
    }
}

impl ColumnChoice {
    /// Whether a column is chosen.
    #[must_use]
    pub fn contains(&self, column: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Names(names) => names.iter().any(|name| name == column),
        }
    }

    /// The first chosen name that is not in `columns`.
    pub fn unknown(&self, columns: &[&str]) -> Option<&str> {
        match self {
            Self::Names(names) => {
                names.iter().map(String::as_str).find(|name| !columns.contains(name))
            }
            _ => None,
        }
    }
}
