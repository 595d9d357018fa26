//! `pg_typeof`: PostgreSQL's name for the type of a value.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use cleave_store::ColumnType;
use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::logical_expr::ScalarUDF;

use crate::dialect::sql_type;

pub(super) fn pg_typeof() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| (given.len() == 1).then(|| given.to_vec());
    row_function(
        "pg_typeof",
        takes,
        |_| DataType::Utf8,
        |args| {
            let [values] = take_function_args("pg_typeof", args)?;
            let name = type_name(values.data_type());
            Ok(Arc::new(StringArray::from(vec![name; values.len()])))
        },
    )
}

/// PostgreSQL's name of a type, as `pg_typeof` shows it.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "unknown".to_owned(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            // One type, whatever the dimensions.
            let item = type_name(item.data_type());
            if item.ends_with("[]") { item } else { format!("{item}[]") }
        }
        DataType::Duration(_) => "interval".to_owned(),
        DataType::Struct(_) => "record".to_owned(),
        other => match sql_type(other) {
            Some(ColumnType::Numeric { .. }) => "numeric".to_owned(),
            Some(own) => own.to_string(),
            None => other.to_string(),
        },
    }
}
