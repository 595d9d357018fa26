//! Error responses: an error of the database in, PostgreSQL's error fields out.

use std::borrow::Cow;

use cleave_host::error::InputFault;
use cleave_host::{Error, Position};

use super::message::Malformed;

/// The severity of an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Something that the client should know.
    Notice,
    /// The statement's effect may differ from the client's expectation.
    Warning,
    /// The statement has failed.
    Error,
    /// The connection ends.
    Fatal,
}

impl Severity {
    /// Its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
}

/// An error or notice, in the protocol's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// Its severity.
    pub(crate) severity: Severity,
    /// Its code for programs.
    pub(crate) sqlstate: String,
    /// The message.
    pub(crate) message: String,
    /// Details.
    pub(crate) detail: Option<String>,
    /// A hint.
    pub(crate) hint: Option<String>,
    /// The objects it refers to: boxed, so that results stay small.
    pub(crate) about: Box<About>,
}

/// The objects that an error refers to, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// The position in the statement, in characters from 1.
    pub(crate) position: Option<usize>,
    /// Which value it is of: a place in a file, a column or a parameter.
    pub(crate) context: Option<String>,
    /// The table.
    pub(crate) table: Option<String>,
    /// The column.
    pub(crate) column: Option<String>,
    /// The constraint.
    pub(crate) constraint: Option<String>,
}

impl Complaint {
    /// A response with only these fields.
    pub(crate) fn new(
        severity: Severity,
        sqlstate: &str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            severity,
            sqlstate: sqlstate.to_owned(),
            message: message.into().into_owned(),
            detail: None,
            hint: None,
            about: Box::default(),
        }
    }

    /// What the clients of an open database are told once a password was given.
    pub(crate) fn passwords_from_now_on() -> Self {
        let hint = "give a superuser one before you disconnect: CREATE ROLE name SUPERUSER LOGIN PASSWORD '...', or \
                    `cleave user add`";
        let told = "from now on everybody needs a password to connect, superusers too";
        Self::new(Severity::Notice, "00000", told).hint(hint)
    }

    /// An error of one statement.
    pub(crate) fn error(sqlstate: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Error, sqlstate, message)
    }

    /// An error that ends the connection.
    pub(crate) fn fatal(sqlstate: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Fatal, sqlstate, message)
    }

    /// The same, after which the connection ends.
    pub(crate) fn fatally(self) -> Self {
        Self { severity: Severity::Fatal, ..self }
    }

    /// The same with a hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An error of the database, found in the statements of `sql`.
    pub(crate) fn of(error: &Error, sql: &str) -> Self {
        if let Error::InBatch { source, .. } = error {
            let (whole, cause) = (error.to_string(), source.to_string());
            let mut complaint = Self::of(source, sql);
            complaint.message.insert_str(0, whole.strip_suffix(&cause).unwrap_or_default());
            return complaint;
        }
        let place = error.position();
        let hint = error.hint();
        let whole = error.to_string();
        // Display joins fields that the protocol keeps apart.
        let mut message = whole.as_str();
        if let Some(place) = place {
            message = message.strip_prefix(&format!("{place}: ")).unwrap_or(message);
        }
        if let Some(hint) = &hint {
            let joined = [format!("; {hint}"), format!(": {hint}")];
            message = joined.iter().find_map(|end| message.strip_suffix(end)).unwrap_or(message);
        }
        let mut complaint = Self::error(error.sqlstate(), message.to_owned());
        complaint.hint = hint;
        complaint.about.position = place.and_then(|place| character_of(sql, place));
        match error {
            Error::Syntax { message: found, .. } => {
                if let Some(first) = complaint.message.strip_suffix(&format!(": {found}")) {
                    complaint.message = first.to_owned();
                    complaint.detail = Some(found.clone());
                }
            }
            Error::Conflict { kind, detail } => {
                complaint.message = kind.to_string();
                complaint.detail.clone_from(detail);
            }
            Error::DuplicateKey { table, constraint, columns, key } => {
                complaint.message =
                    format!("duplicate key value violates unique constraint \"{constraint}\"");
                complaint.detail = Some(format!("Key ({columns})=({key}) already exists."));
                complaint.about.table = Some(table.clone());
                complaint.about.constraint = Some(constraint.clone());
            }
            Error::Violation { table, constraint, message, detail, .. } => {
                complaint.message = message.clone();
                complaint.detail = Some(detail.clone());
                complaint.about.table = Some(table.clone());
                complaint.about.constraint = Some(constraint.clone());
            }
            Error::NotNull { table, column } => {
                complaint.about.table = Some(table.clone());
                complaint.about.column = Some(column.clone());
            }
            Error::Value { column, source } => {
                complaint.message = source.message();
                complaint.detail = source.detail();
                complaint.about.context = Some(format!("column \"{column}\""));
                complaint.about.column = Some(column.clone());
            }
            Error::Parameter { number, source } => {
                complaint.message = source.message();
                complaint.detail = source.detail();
                complaint.about.context = Some(format!("parameter ${number}"));
            }
            Error::Literal { source, .. } => {
                complaint.message = source.message();
                complaint.detail = source.detail();
            }
            Error::Input { place, fault } => {
                complaint.about.context = Some(place.to_string());
                complaint.message = match &**fault {
                    InputFault::Value(source) => source.message(),
                    other => other.to_string(),
                };
                if let InputFault::Value(source) = &**fault {
                    complaint.detail = source.detail();
                }
            }
            _ => {}
        }
        complaint
    }
}

impl From<Malformed> for Complaint {
    fn from(malformed: Malformed) -> Self {
        let sqlstate = match malformed {
            Malformed::Body(_) => "08P01",
            Malformed::Encoding(_) => "22021",
        };
        Self::error(sqlstate, malformed.to_string())
    }
}

/// The number, from 1, of the character at `place` of `sql`.
fn character_of(sql: &str, place: Position) -> Option<usize> {
    let before = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(place.column).ok()?;
    let lines = sql.split_inclusive('\n').take(before);
    let count: usize = lines.map(|line| line.chars().count()).sum();
    Some(count + column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_apart() {
        let sql = "SELECT 1;\nSELECT x FROM t";
        let error =
            Error::unknown_column("t", "nam", ["name"]).at(Some(Position { line: 2, column: 8 }));
        let complaint = Complaint::of(&error, sql);
        assert_eq!(complaint.message, "column \"nam\" of relation \"t\" does not exist");
        assert_eq!(complaint.hint.as_deref(), Some("did you mean \"name\"?"));
        assert_eq!(complaint.about.position, Some(18));
        assert_eq!(complaint.sqlstate, "42703");
        let error = Error::InBatch { number: 7, others: 1, source: Box::new(error) };
        let whole = "query 7 of the batch (and another one): column \"nam\" of relation \"t\" does not exist";
        let in_batch = Complaint::of(&error, sql);
        assert_eq!(in_batch.message, whole);
        assert_eq!((in_batch.hint, in_batch.about.position), (complaint.hint, Some(18)));
    }
}
