//! Errors of reading a value: why a text is no value of a type. Source: SQLSTATE class 22 in PostgreSQL's appendix A.

use std::fmt;

use cleave_fragment::functions::time_text::TimeTextFault;

use crate::error::cut;

/// A text that is no value of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// The kind of error.
    pub fault: ValueFault,
    /// The type, as SQL writes it.
    pub type_name: String,
    /// The text, at most its first 200 characters.
    pub value: String,
    /// The accepted form.
    pub expected: &'static str,
}

/// The kinds of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueFault {
    /// Another syntax (22P02).
    Malformed,
    /// No date, time or interval (22007).
    MalformedTime,
    /// A number beyond the type (22003).
    OutOfRange,
    /// A date or time (22008), or an interval (22015), beyond the type.
    TimeOutOfRange,
    /// A zone too far from UTC (22009).
    ZoneOutOfRange,
    /// Too many characters (22001).
    TooLong,
    /// PostgreSQL accepts it, this version does not (0A000).
    Unsupported,
}

/// A fault before the text and the type are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    /// The fault.
    pub fault: ValueFault,
    /// What was expected instead.
    pub expected: &'static str,
}

impl Bad {
    /// Malformed text.
    pub const fn malformed(expected: &'static str) -> Self {
        Self { fault: ValueFault::Malformed, expected }
    }

    /// Beyond the range of the type.
    pub const fn out_of_range(expected: &'static str) -> Self {
        Self { fault: ValueFault::OutOfRange, expected }
    }

    /// No date, time or interval, or one beyond its type.
    pub(crate) const fn of_time(fault: TimeTextFault, expected: &'static str) -> Self {
        let fault = match fault {
            TimeTextFault::Malformed => ValueFault::MalformedTime,
            TimeTextFault::OutOfRange => ValueFault::TimeOutOfRange,
            TimeTextFault::ZoneOutOfRange => ValueFault::ZoneOutOfRange,
            TimeTextFault::Unsupported => ValueFault::Unsupported,
        };
        Self { fault, expected }
    }
}

impl ValueError {
    /// `bad`, of `value`, which was read as the type `type_name`.
    pub fn new(bad: Bad, type_name: String, value: &str) -> Self {
        let value = value.chars().take(200).collect();
        Self { fault: bad.fault, type_name, value, expected: bad.expected }
    }

    /// The SQLSTATE of the fault.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self.fault {
            ValueFault::Malformed => "22P02",
            ValueFault::MalformedTime => "22007",
            ValueFault::OutOfRange => "22003",
            ValueFault::TimeOutOfRange if self.type_name == "interval" => "22015",
            ValueFault::TimeOutOfRange => "22008",
            ValueFault::ZoneOutOfRange => "22009",
            ValueFault::TooLong => "22001",
            ValueFault::Unsupported => "0A000",
        }
    }
}

impl ValueError {
    /// What is wrong, as PostgreSQL says it.
    #[must_use]
    pub fn message(&self) -> String {
        let (value, type_name) = (cut(&self.value), self.type_name.as_str());
        // PostgreSQL names these types without their lengths and zones.
        let short = type_name.strip_suffix(" without time zone").unwrap_or(type_name);
        let short = short.split('(').next().unwrap_or(short);
        match self.fault {
            ValueFault::Malformed if type_name.ends_with("[]") => {
                format!("malformed array literal: \"{value}\"")
            }
            ValueFault::Malformed | ValueFault::MalformedTime => {
                format!("invalid input syntax for type {short}: \"{value}\"")
            }
            ValueFault::OutOfRange => match short {
                "numeric" => "numeric field overflow".to_owned(),
                "real" | "double precision" => {
                    format!("\"{value}\" is out of range for type {type_name}")
                }
                _ => format!("value \"{value}\" is out of range for type {type_name}"),
            },
            ValueFault::TimeOutOfRange if short == "interval" => {
                format!("interval field value out of range: \"{value}\"")
            }
            ValueFault::TimeOutOfRange => {
                format!("date/time field value out of range: \"{value}\"")
            }
            ValueFault::ZoneOutOfRange => {
                format!("time zone displacement out of range: \"{value}\"")
            }
            ValueFault::TooLong => format!("value too long for type {type_name}"),
            ValueFault::Unsupported => {
                format!("value \"{value}\" of type {short} is not supported")
            }
        }
    }

    /// The value and its type, where the message does not say them.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        let value = cut(&self.value);
        match self.fault {
            ValueFault::OutOfRange if self.type_name.starts_with("numeric") => {
                Some(format!("\"{value}\" is out of range for type {}", self.type_name))
            }
            ValueFault::TooLong => Some(format!("the value is \"{value}\"")),
            _ => None,
        }
    }

    /// What the type takes.
    #[must_use]
    pub fn hint(&self) -> String {
        format!("expected {}", self.expected)
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message())?;
        if let Some(detail) = self.detail() {
            write!(formatter, ": {detail}")?;
        }
        write!(formatter, "; {}", self.hint())
    }
}

impl std::error::Error for ValueError {}
