//! Errors as exceptions of the package: a SQLSTATE and a message in, an instance of the class for it out.
//!
//! The classes are defined in Python (`cleave/_errors.py`), which chooses one by the SQLSTATE.

use std::any::Any;
use std::fmt;

use arrow::error::ArrowError;
use cleave_client::ClientError;
use cleave_host::Error;
use cleave_host::error::Fault;
use datafusion::error::DataFusionError;
use pyo3::prelude::*;

/// SQLSTATE of what was stopped by its user.
const STOPPED: &str = "57014";
/// SQLSTATE of an object that cannot be used in its state: of a closed connection, in a forked process.
pub(crate) const UNUSABLE: &str = "08003";
/// SQLSTATE of what another statement uses.
pub(crate) const IN_USE: &str = "55006";
/// SQLSTATE of a defect.
pub(crate) const INTERNAL: &str = "XX000";

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database of this process says so.
    Host(Error),
    /// The server says so, or cannot be reached.
    Server(ClientError),
}

impl Failure {
    /// Its SQLSTATE.
    pub(crate) fn sqlstate(&self) -> &str {
        match self {
            Self::Host(error) => error.sqlstate(),
            Self::Server(error) => error.sqlstate(),
        }
    }

    /// Its exception.
    pub(crate) fn exception(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Host(error) => exception(py, error),
            Self::Server(ClientError::Stream(source)) => {
                let ours = source.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
                match ours {
                    Some(error) => exception(py, error),
                    None => made(py, "58030", &source.to_string(), None),
                }
            }
            Self::Server(error @ ClientError::CopyWithoutStream(_)) => {
                let hint = "append() adds rows, and rows of a query are fetched";
                made(py, error.sqlstate(), &self.to_string(), Some(hint))
            }
            Self::Server(error) => {
                let hint = error.server().and_then(|server| server.hint.as_deref());
                made(py, error.sqlstate(), &self.to_string(), hint)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => fmt::Display::fmt(error, f),
            // Its SQLSTATE is told beside the message.
            Self::Server(error) => match error.server() {
                Some(server) => f.write_str(&server.message),
                None => fmt::Display::fmt(error, f),
            },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Server(error)
    }
}

/// The exception for an error of a statement.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let hint = error.hint();
    made(py, error.sqlstate(), &error.to_string(), hint.as_deref())
}

/// The exception for this SQLSTATE.
pub(crate) fn made(py: Python<'_>, sqlstate: &str, message: &str, hint: Option<&str>) -> PyErr {
    let make = || py.import("cleave._errors")?.call_method1("error_of", (sqlstate, message, hint));
    match make() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception of a connection that is closed.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    made(py, UNUSABLE, "the connection is closed", None)
}

/// The exception of a statement that was stopped.
pub(crate) fn stopped(py: Python<'_>) -> PyErr {
    made(py, STOPPED, "canceling statement due to user request", None)
}

/// An error of a statement that Python's code has raised.
pub(crate) fn of_python(py: Python<'_>, what: &str, error: &PyErr) -> Error {
    let kind = error.get_type(py);
    let kind = kind.name().map_or_else(|_| "error".to_owned(), |name| name.to_string());
    outside_data(format!("{what}: {kind}: {}", error.value(py)))
}

/// An error of data that do not come from the database.
pub(crate) fn outside_data(message: String) -> Error {
    Error::Invalid { message, fault: Fault::Type, position: None }
}

/// The same within DataFusion.
pub(crate) fn within_plan(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error as a stream of Arrow reports it, which is text for C.
pub(crate) fn in_stream(message: &str) -> ArrowError {
    ArrowError::ExternalError(message.replace('\0', "\u{fffd}").into())
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a defect".to_owned())
}
