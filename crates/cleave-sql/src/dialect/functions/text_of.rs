//! `text_of`: a value as text, as it is shown in a result.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use cleave_catalog::value::ValueText;

/// The function, of a value of any type.
pub(crate) fn text_of() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| (given.len() == 1).then(|| given.to_vec());
    row_function(
        "text_of",
        takes,
        |_| DataType::Utf8,
        |args| {
            let [values] = take_function_args("text_of", args)?;
            texts_of(values)
        },
    )
}

fn texts_of(values: &ArrayRef) -> Result<ArrayRef> {
    let writer = ValueText::new(values)?;
    let mut text = String::new();
    let texts = (0..values.len()).map(|row| {
        text.clear();
        writer.write(row, &mut text).then(|| text.clone())
    });
    Ok(Arc::new(texts.collect::<StringArray>()))
}
