//! Error responses: an error of the database in, PostgreSQL's error fields out.

use std::borrow::Cow;

use cleave_host::{Error, Position};

use super::message::Malformed;

/// What a complaint means for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The statement did other than the client may think.
    Warning,
    /// The statement has failed.
    Error,
    /// The connection ends.
    Fatal,
}

impl Severity {
    /// As the protocol calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
}

/// An error, or something to know, in the protocol's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// What it means for the session.
    pub(crate) severity: Severity,
    /// By which programs tell it.
    pub(crate) sqlstate: String,
    /// What is wrong.
    pub(crate) message: String,
    /// More of it.
    pub(crate) detail: Option<String>,
    /// What may help.
    pub(crate) hint: Option<String>,
    /// What it is about: boxed, so that results stay small.
    pub(crate) about: Box<About>,
}

/// What a complaint is about, as far as that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// Where in the statement, in characters from 1.
    pub(crate) position: Option<usize>,
    /// The table.
    pub(crate) table: Option<String>,
    /// The column.
    pub(crate) column: Option<String>,
    /// The constraint.
    pub(crate) constraint: Option<String>,
}

impl Complaint {
    /// One that has no more to it than this.
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
        let place = error.position();
        let hint = error.hint();
        let whole = error.to_string();
        // Display joins in one line what the protocol keeps apart.
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
            Error::Value { column, .. } => complaint.about.column = Some(column.clone()),
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
        assert_eq!(complaint.message, "column \"nam\" does not exist in table \"t\"");
        assert_eq!(complaint.hint.as_deref(), Some("did you mean \"name\"?"));
        assert_eq!(complaint.about.position, Some(18));
        assert_eq!(complaint.sqlstate, "42703");
    }
}
