//! `numeric_of_text`: a text as a numeric without a precision, with all of its digits. Arrow's cast rounds them, and
//! knows no exponents.

use std::sync::Arc;

use cleave_catalog::error::Error;
use cleave_catalog::value::ColumnBuilder;
use cleave_fragment::functions::quotient::NUMERIC;
use cleave_fragment::functions::row_function;
use cleave_store::ColumnType;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ScalarUDF;

/// The function.
pub(crate) fn numeric_of_text() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [text] if text.is_string() => Some(vec![DataType::Utf8]),
        _ => None,
    };
    row_function(
        "numeric_of_text",
        takes,
        |_| NUMERIC,
        |args| {
            let [texts] = take_function_args("numeric_of_text", args)?;
            let mut numerics = ColumnBuilder::new(&ColumnType::NUMERIC, texts.len());
            for text in texts.as_string::<i32>() {
                match text {
                    Some(text) => numerics
                        .append_text(text)
                        .map_err(|error| DataFusionError::from(Error::literal(error)))?,
                    None => numerics.append_null(),
                }
            }
            Ok(numerics.finish())
        },
    )
}
