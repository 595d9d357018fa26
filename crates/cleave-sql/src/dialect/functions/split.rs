//! `string_to_array`: the parts of a text between delimiters. DataFusion's cannot be interrupted.
//!
//! Source: PostgreSQL's documentation, "Array Functions": without a delimiter every character is a part, and an empty
//! text has none.

use std::sync::Arc;

use cleave_fragment::functions::row_function;
use cleave_fragment::wanted;
use datafusion::arrow::array::{Array, AsArray, ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use super::patterns::typed;

/// `string_to_array(text, delimiter [, null])`: parts that equal `null` are NULL.
pub(super) fn string_to_array() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| typed(given, "ttt", 2);
    let gives = |_: &[DataType]| DataType::new_list(DataType::Utf8, true);
    row_function("string_to_array", takes, gives, |args| {
        let text_of = |place: usize, row: usize| {
            let array = args.get(place).filter(|array| array.is_valid(row))?;
            Some(array.as_string::<i32>().value(row))
        };
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..args.first().map_or(0, |texts| texts.len()) {
            let Some(text) = text_of(0, row) else {
                lists.append(false);
                continue;
            };
            let null = text_of(2, row);
            let mut add = |part: &str| -> Result<()> {
                lists.values().append_option(Some(part).filter(|part| Some(*part) != null));
                wanted::check()
            };
            match text_of(1, row) {
                _ if text.is_empty() => {}
                None => {
                    let mut buffer = [0; 4];
                    text.chars().try_for_each(|one| add(one.encode_utf8(&mut buffer)))?;
                }
                Some("") => add(text)?,
                Some(delimiter) => text.split(delimiter).try_for_each(add)?,
            }
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    })
}
