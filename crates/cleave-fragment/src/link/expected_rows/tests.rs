//! Rows that the fragment could not have produced are told apart from those that it could.

use std::sync::Arc;

use arrow::array::{Decimal128Array, Int32Array, Int64Array, StringArray};
use arrow::datatypes::Field;

use super::*;

fn expected() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("price", DataType::Decimal128(5, 2), true),
    ]))
}

/// Rows as a device sends them, with all columns nullable.
fn came(columns: Vec<ArrayRef>) -> RecordBatch {
    let field = |(place, column): (usize, &ArrayRef)| {
        Field::new(format!("c{place}"), column.data_type().clone(), true)
    };
    let fields: Vec<_> = columns.iter().enumerate().map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn prices(prices: Vec<Option<i128>>) -> ArrayRef {
    Arc::new(Decimal128Array::from(prices).with_precision_and_scale(5, 2).unwrap())
}

#[test]
fn rows_of_the_fragment_take_its_schema() {
    let rows = came(vec![
        Arc::new(Int32Array::from(vec![1, 2, 3])),
        prices(vec![Some(99_999), None, Some(-99_999)]),
    ]);
    let checked = check_rows(&expected(), &rows).unwrap();
    assert_eq!((checked.schema(), checked.columns()), (expected(), rows.columns()));
    let empty = RecordBatchOptions::new().with_row_count(Some(7));
    let schema = Arc::new(Schema::empty());
    let bare = RecordBatch::try_new_with_options(Arc::clone(&schema), Vec::new(), &empty).unwrap();
    assert_eq!(check_rows(&schema, &bare).unwrap().num_rows(), 7);
}

#[test]
fn other_rows_are_refused() {
    let ids = || Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef;
    let null: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    for (columns, expected_text) in [
        (vec![ids()], "1 columns, and not 2"),
        (vec![null, prices(vec![None, None])], "\"id\" has a NULL"),
        (vec![Arc::new(Int64Array::from(vec![1, 2])), prices(vec![None, None])], "Int64"),
        (vec![ids(), Arc::new(StringArray::from(vec!["a", "b"]))], "Utf8"),
        (vec![ids(), prices(vec![Some(1), Some(100_000)])], "more than 5 digits"),
        (vec![ids(), prices(vec![Some(i128::MIN), None])], "more than 5 digits"),
    ] {
        let error = check_rows(&expected(), &came(columns)).unwrap_err();
        assert!(error.contains(expected_text), "{error}, and not {expected_text}");
    }
}
