//! Errors as exceptions of the package: a SQLSTATE and a message in, an instance of the class for it out.
//!
//! The classes are defined in Python (`cleave/_errors.py`), which chooses one by the SQLSTATE.

use std::any::Any;

use arrow::error::ArrowError;
use cleave_host::Error;
use cleave_host::error::Fault;
use datafusion::error::DataFusionError;
use pyo3::prelude::*;

/// SQLSTATE of what was stopped by its user.
pub(crate) const STOPPED: &str = "57014";
/// SQLSTATE of an object that cannot be used in its state: of a closed connection, in a forked process.
pub(crate) const UNUSABLE: &str = "08003";
/// SQLSTATE of a defect.
pub(crate) const INTERNAL: &str = "XX000";

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
