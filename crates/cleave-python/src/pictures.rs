//! Plans as pictures: what `EXPLAIN (FORMAT JSON)` prints in, the text of an SVG file out.

use pyo3::prelude::*;

use crate::errors::made;

/// SQLSTATE of what has no plan, or one that is too deep.
const NOT_DRAWN: &str = "0A000";

/// The picture of a plan, which `cleave explain --svg` draws too.
#[pyfunction]
pub(crate) fn plan_svg(py: Python<'_>, explained: &str) -> PyResult<String> {
    let picture = cleave_pictures::plan_svg(explained);
    picture.map_err(|error| made(py, NOT_DRAWN, &error.to_string(), None))
}
