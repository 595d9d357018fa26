//! CREATE, ALTER and DROP SEQUENCE: the written options in, the sequence that they define out.

use std::sync::Arc;

use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast;

use cleave_catalog::catalog::sequence::{Sequence, limits};
use cleave_catalog::error::{Error, Fault, Position, Result};

/// A statement on sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceStatement {
    /// CREATE SEQUENCE.
    Create {
        /// Something of the name that exists is no error, and stays.
        if_not_exists: bool,
        /// Its name.
        name: String,
        /// Its options.
        options: SequenceOptions,
    },
    /// ALTER SEQUENCE.
    Alter {
        /// One that does not exist is no error.
        if_exists: bool,
        /// The sequence.
        name: String,
        /// The options to change.
        options: SequenceOptions,
    },
    /// ALTER SEQUENCE … RENAME TO.
    Rename {
        /// One that does not exist is no error.
        if_exists: bool,
        /// The sequence.
        name: String,
        /// Its name from then on.
        to: String,
    },
    /// DROP SEQUENCE.
    Drop {
        /// One that does not exist is no error.
        if_exists: bool,
        /// The sequences.
        names: Vec<String>,
    },
}

/// Options of a sequence; None: not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    /// AS.
    pub data_type: Option<ColumnType>,
    /// INCREMENT BY.
    pub increment: Option<i64>,
    /// MINVALUE; Some(None): NO MINVALUE.
    pub min: Option<Option<i64>>,
    /// MAXVALUE; Some(None): NO MAXVALUE.
    pub max: Option<Option<i64>>,
    /// START WITH.
    pub start: Option<i64>,
    /// RESTART; Some(None): at the start value.
    pub restart: Option<Option<i64>>,
    /// CACHE.
    pub cache: Option<i64>,
    /// CYCLE, NO CYCLE.
    pub cycle: Option<bool>,
    /// OWNED BY table and column; Some(None): NONE.
    pub owner: Option<Option<(String, String)>>,
    /// Where the statement stands.
    pub position: Option<Position>,
}

impl SequenceOptions {
    /// A new sequence.
    ///
    /// # Errors
    /// [`Error::Invalid`] for limits that contradict each other.
    pub fn created(&self, id: u32, name: String) -> Result<Sequence> {
        let data_type = self.data_type.unwrap_or(ColumnType::BigInt);
        let increment = self.increment.unwrap_or(1);
        let none = Sequence {
            id,
            name,
            data_type,
            increment,
            min: 0,
            max: 0,
            start: 0,
            cache: 1,
            cycle: false,
            owner: None,
            last: 0,
            is_called: false,
            shared: Arc::default(),
        };
        let all =
            Self { min: Some(self.min.flatten()), max: Some(self.max.flatten()), ..self.clone() };
        let mut made = all.changed(&none)?;
        made.start = match (self.start, increment > 0) {
            (Some(start), _) => start,
            (None, true) => made.min,
            (None, false) => made.max,
        };
        made.last = made.start;
        self.checked(made)
    }

    /// `before` with the options of ALTER; the restart value is not considered.
    ///
    /// # Errors
    /// As [`Self::created`].
    pub fn altered(&self, before: &Sequence) -> Result<Sequence> {
        let mut made = self.changed(before)?;
        made.start = self.start.unwrap_or(before.start);
        self.checked(made)
    }

    fn changed(&self, before: &Sequence) -> Result<Sequence> {
        let data_type = self.data_type.unwrap_or(before.data_type);
        let increment = self.increment.unwrap_or(before.increment);
        if increment == 0 {
            return Err(self.refused("INCREMENT must not be zero".to_owned()));
        }
        let (least, greatest) = limits(data_type);
        let rises = increment > 0;
        let min = match self.min {
            Some(Some(min)) => min,
            Some(None) if rises => 1,
            Some(None) => least,
            None => before.min.max(least),
        };
        let max = match self.max {
            Some(Some(max)) => max,
            Some(None) if rises => greatest,
            Some(None) => -1,
            None => before.max.min(greatest),
        };
        for (word, limit) in [("MINVALUE", min), ("MAXVALUE", max)] {
            if !(least..=greatest).contains(&limit) {
                let text = data_type.sql_name();
                return Err(self.refused(format!(
                    "{word} ({limit}) is out of range for sequence data type {text}"
                )));
            }
        }
        if min >= max {
            return Err(
                self.refused(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})"))
            );
        }
        let cache = self.cache.unwrap_or(before.cache);
        if cache < 1 {
            return Err(self.refused(format!("CACHE ({cache}) must be greater than zero")));
        }
        let cycle = self.cycle.unwrap_or(before.cycle);
        Ok(Sequence { data_type, increment, min, max, cache, cycle, ..before.clone() })
    }

    fn checked(&self, made: Sequence) -> Result<Sequence> {
        let Sequence { start, min, max, .. } = made;
        if start < min {
            let message = format!("START value ({start}) cannot be less than MINVALUE ({min})");
            return Err(self.refused(message));
        }
        if start > max {
            let message = format!("START value ({start}) cannot be greater than MAXVALUE ({max})");
            return Err(self.refused(message));
        }
        Ok(made)
    }

    /// An error of these options.
    #[must_use]
    pub fn refused(&self, message: String) -> Error {
        Error::Invalid { message, fault: Fault::Parameter, position: self.position }
    }

    /// The options of GENERATED … AS IDENTITY (options).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that does not fit 64 bits.
    pub fn of_identity(options: &[ast::SequenceOptions]) -> Result<Self> {
        let mut read = Self::default();
        for option in options {
            match option {
                ast::SequenceOptions::IncrementBy(value, _) => {
                    read.increment = Some(number(value)?);
                }
                ast::SequenceOptions::MinValue(value) => {
                    read.min = Some(value.as_ref().map(number).transpose()?);
                }
                ast::SequenceOptions::MaxValue(value) => {
                    read.max = Some(value.as_ref().map(number).transpose()?);
                }
                ast::SequenceOptions::StartWith(value, _) => read.start = Some(number(value)?),
                ast::SequenceOptions::Cache(value) => read.cache = Some(number(value)?),
                // The crate says true where the text says NO CYCLE.
                ast::SequenceOptions::Cycle(is_not) => read.cycle = Some(!is_not),
            }
        }
        Ok(read)
    }
}

fn number(expression: &ast::Expr) -> Result<i64> {
    let text = expression.to_string();
    text.parse().map_err(|_| {
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let is_whole = digits.bytes().all(|digit| digit.is_ascii_digit());
        let (message, fault) = match is_whole {
            true => (format!("value \"{text}\" is out of range for type bigint"), Fault::Range),
            false => {
                (format!("invalid input syntax for type bigint: \"{text}\""), Fault::Parameter)
            }
        };
        Error::Invalid { message, fault, position: None }
    })
}
