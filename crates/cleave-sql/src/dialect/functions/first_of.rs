//! `first_of`: the first of its arguments. The others are there to be named. `number_beside`: a number of the type that
//! the others make it.

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

/// `number_beside(number, others…)`: the number, a float if one of the others is.
pub(in crate::dialect) const NUMBER_BESIDE: &str = "number_beside";

pub(super) fn number_beside() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| {
        let [own, others @ ..] = given else { return None };
        let floats = [DataType::Float64, DataType::Float32];
        let float = floats.into_iter().find(|float| others.contains(float));
        let own = float.unwrap_or_else(|| own.clone());
        Some(std::iter::once(own).chain(others.iter().cloned()).collect())
    };
    let gives = |given: &[DataType]| given.first().cloned().unwrap_or(DataType::Null);
    row_function(NUMBER_BESIDE, takes, gives, |args| match args {
        [first, ..] => Ok(Arc::clone(first)),
        [] => internal_err!("{NUMBER_BESIDE} has no argument"),
    })
}
