//! `first_of`: the first of its arguments. The others are there to be named.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::logical_expr::ScalarUDF;

/// The name of the function.
pub(in crate::dialect) const FIRST_OF: &str = "first_of";

pub(in crate::dialect) fn first_of() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| (!given.is_empty()).then(|| given.to_vec());
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function(FIRST_OF, takes, gives, |args| match args {
        [first, ..] => Ok(Arc::clone(first)),
        [] => internal_err!("{FIRST_OF} has no argument"),
    })
}
