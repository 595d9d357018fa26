//! `uuid_of`: parses the text of a uuid, for `gen_random_uuid()`, which DataFusion gives as text.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use cleave_store::ColumnType;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ScalarUDF;

use cleave_catalog::error::Error;
use cleave_catalog::value::ColumnBuilder;

/// The name of the function.
pub(in crate::dialect) const UUID_OF: &str = "uuid_of";

pub(super) fn uuid_of() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| match given {
        [DataType::Utf8 | DataType::Null] => Some(vec![DataType::Utf8]),
        _ => None,
    };
    row_function(
        UUID_OF,
        takes,
        |_| DataType::FixedSizeBinary(16),
        |args| {
            let [texts] = take_function_args(UUID_OF, args)?;
            let mut uuids = ColumnBuilder::new(&ColumnType::Uuid, texts.len());
            for text in texts.as_string::<i32>() {
                match text {
                    Some(text) => uuids
                        .append_text(text)
                        .map_err(|error| DataFusionError::from(Error::literal(error)))?,
                    None => uuids.append_null(),
                }
            }
            Ok(uuids.finish())
        },
    )
}
