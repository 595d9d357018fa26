//! Assignments as PostgreSQL 15 makes them, as arrays and as a function of a fragment.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch};
use arrow::array::{Decimal128Array, StringArray};
use arrow::datatypes::{DataType, Int16Type, Int64Type};
use cleave_store::ColumnType;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Column;

use super::{Unassigned, assign, assigned_to, fitting};

fn made(array: ArrayRef, column_type: &ColumnType) -> Option<Result<ArrayRef, String>> {
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("v", 0));
    let expr = assigned_to(column, array.data_type(), column_type)?;
    let rows = RecordBatch::try_from_iter([("v", array)]).unwrap();
    assert_eq!(expr.data_type(&rows.schema()).unwrap(), column_type.arrow());
    let value = expr.evaluate(&rows).and_then(|value| value.into_array(rows.num_rows()));
    Some(value.map_err(|error| error.to_string()))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn texts_are_fitted_by_characters() {
    for (text, count, strip, fits) in [
        ("abc", 3, false, Some("abc")),
        ("abc  ", 3, false, Some("abc")),
        ("ab   ", 4, false, Some("ab  ")),
        ("ab   ", 4, true, Some("ab")),
        ("äöü", 3, false, Some("äöü")),
        ("äöü", 2, false, None),
        ("äö   x", 3, true, None),
        ("", 1, true, Some("")),
    ] {
        assert_eq!(fitting(text, count, strip), fits, "{text}");
    }
    let char3 = ColumnType::Char(3);
    let stored = made(texts(&["a", "ab  ", "äöü   "]), &char3).unwrap().unwrap();
    assert_eq!(stored.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "ab", "äöü"]);
    assert!(made(texts(&["a", "abcd"]), &char3).unwrap().is_err());
    let varchar = ColumnType::Varchar(Some(3));
    assert!(made(texts(&["ab  d"]), &varchar).unwrap().is_err());
    let stored = made(texts(&["ab     "]), &varchar).unwrap().unwrap();
    assert_eq!(stored.as_string::<i32>().value(0), "ab ");
    // A text is no number; the text of a date is the host's.
    assert!(made(texts(&["7"]), &ColumnType::Int).is_none());
    let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![7]));
    assert!(made(days, &ColumnType::Text).is_none());
}

#[test]
fn numbers_are_rounded_and_never_wrap() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, -2.5, 32766.5]));
    let whole = made(Arc::clone(&floats), &ColumnType::SmallInt).unwrap().unwrap();
    assert_eq!(whole.as_primitive::<Int16Type>().values(), &[0, 2, -2, 32766]);
    let numerics = Decimal128Array::from(vec![5, 15, -25]).with_precision_and_scale(4, 1).unwrap();
    let whole = made(Arc::new(numerics), &ColumnType::BigInt).unwrap().unwrap();
    assert_eq!(whole.as_primitive::<Int64Type>().values(), &[1, 2, -3]);
    let large: ArrayRef = Arc::new(Int64Array::from(vec![1, 40_000]));
    assert!(made(Arc::clone(&large), &ColumnType::SmallInt).unwrap().is_err());
    match assign(&large, &DataType::Int16) {
        Err(Unassigned::Row(row)) => assert_eq!(row, 1),
        other => panic!("{other:?}"),
    }
    for text in [made(large, &ColumnType::Varchar(Some(5))), {
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
        made(flags, &ColumnType::Text)
    }] {
        let text = text.unwrap().unwrap();
        let text: Vec<_> = text.as_string::<i32>().iter().flatten().collect();
        assert!(text == ["1", "40000"] || text == ["true", "false"], "{text:?}");
    }
    // It is of the same value already.
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("v", 0));
    let same = assigned_to(Arc::clone(&column), &DataType::Int64, &ColumnType::BigInt).unwrap();
    assert!(Arc::ptr_eq(&same, &column));
}
