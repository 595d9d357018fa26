//! `num_nulls` and `num_nonnulls`.
//!
//! Source: PostgreSQL's documentation, "Comparison Functions and Operators".

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use datafusion::arrow::array::{Array, ArrayRef, Int32Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

/// How many arguments are NULL.
pub(super) fn num_nulls() -> Arc<ScalarUDF> {
    row_function("num_nulls", any, |_| DataType::Int32, |args| count(args, true))
}

/// How many are not.
pub(super) fn num_nonnulls() -> Arc<ScalarUDF> {
    row_function("num_nonnulls", any, |_| DataType::Int32, |args| count(args, false))
}

fn any(given: &[DataType]) -> Option<Vec<DataType>> {
    (!given.is_empty()).then(|| given.to_vec())
}

fn count(args: &[ArrayRef], nulls: bool) -> Result<ArrayRef> {
    let rows = args.first().map_or(0, |arg| arg.len());
    let all: Vec<_> = args.iter().map(|arg| arg.logical_nulls()).collect();
    let counts = (0..rows).map(|row| {
        let is_counted = |arg: &&Option<_>| is_null(arg, row) == nulls;
        i32::try_from(all.iter().filter(is_counted).count()).unwrap_or(i32::MAX)
    });
    Ok(Arc::new(Int32Array::from_iter_values(counts)))
}

fn is_null(nulls: &Option<NullBuffer>, row: usize) -> bool {
    nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
}
