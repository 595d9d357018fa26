//! `opaque(value, …)`: its first argument. DataFusion's rules do not look through a function, so what they would take
//! for granted of the value, they do not of the result. The other arguments tell two results of one value apart.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::internal_err;
use datafusion_expr::ScalarUDF;

use super::row_function::row_function;

const NAME: &str = "opaque";

/// The function.
pub fn opaque() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| (!given.is_empty()).then(|| given.to_vec());
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function(NAME, takes, gives, |args| match args {
        [first, ..] => Ok(Arc::clone(first)),
        [] => internal_err!("{NAME} has no argument"),
    })
}
