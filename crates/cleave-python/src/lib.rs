//! The compiled part of the Python package `cleave`: SQL and values in, rows as Arrow or as Python's values out.
//!
//! ```text
//!  cleave (Python): DB-API, data frames, EXPLAIN, SQLAlchemy
//!     │ run(text, values)                ▲ rows, errors
//!     ▼                                  │
//!  Session ──▶ process: one runtime ──▶ Rows ──▶ values, or a stream of Arrow
//!     │                                          ▲
//!     └──▶ a statement names `df` ──▶ outside ──▶ arrow_stream: what Python gives
//! ```
//!
//! 1. [`session`]: [`session::Session`] runs statements over a database of this process ([`embedded`]) or of a server
//!    ([`server`]). [`databases`] opens the former once for all sessions of the process. [`parameters`] reads Python's
//!    values.
//! 2. [`process`]: the runtime that statements run on, while the calling thread waits without Python's lock and looks
//!    for Ctrl-C. [`held`] gives a session to one of its threads at a time.
//! 3. [`rows`]: the rows of a statement. [`values`] makes them values of Python.
//! 4. [`outside`]: tables of the caller, which statements name. [`plain_types`] are the Arrow types that columns have.
//!    [`arrow_stream`] takes and gives streams by the Arrow PyCapsule interface; it alone contains unsafe code.
//! 5. [`errors`]: errors as exceptions of the package. [`pictures`] draws plans.
//!
//! Invariants: no function waits while it holds Python's lock. Nothing of a process is used in its forks. What Python
//! gives is validated before it is read.
//!
//! Sources: PEP 249; the Arrow C stream interface and its PyCapsule protocol.

mod arrow_stream;
mod databases;
mod embedded;
mod errors;
mod held;
mod outside;
mod parameters;
mod pictures;
mod plain_types;
mod process;
mod rows;
mod server;
mod session;
mod statement_run;
mod values;

use pyo3::prelude::*;

/// The module `cleave._cleave`.
#[pymodule]
fn _cleave(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()?;
    module.add_class::<rows::Rows>()?;
    module.add_function(wrap_pyfunction!(session::connect, module)?)?;
    module.add_function(wrap_pyfunction!(session::connect_server, module)?)?;
    module.add_function(wrap_pyfunction!(session::finish, module)?)?;
    module.add_function(wrap_pyfunction!(session::is_one_statement, module)?)?;
    module.add_function(wrap_pyfunction!(pictures::plan_svg, module)?)?;
    Ok(())
}
