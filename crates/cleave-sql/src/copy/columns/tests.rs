//! Listed columns, defaults for the others, and lists that do not fit.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array};
use cleave_store::{Column, ColumnType, TableSchema};

use super::InputColumns;

fn table() -> TableSchema {
    let column = |id, name: &str, not_null, default: Option<&str>| Column {
        id,
        name: name.into(),
        column_type: ColumnType::Int,
        not_null,
        default: default.map(str::to_owned),
        absent: None,
    };
    TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: vec![
            column(1, "alpha", true, None),
            column(2, "beta", false, Some("7")),
            column(3, "gamma", false, None),
        ],
        primary_key: vec![1],
    }
}

#[test]
fn listed_columns_find_their_places_and_others_their_defaults() {
    let columns = InputColumns::new(&table(), &["gamma".into(), "alpha".into()], 0).unwrap();
    let names: Vec<_> = columns.given().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["gamma", "alpha"]);
    let values = |values: Vec<i32>| -> ArrayRef { Arc::new(Int32Array::from(values)) };
    let batch = columns.batch(vec![values(vec![3, 4]), values(vec![1, 2])], 2).unwrap();
    assert_eq!(batch.schema(), table().arrow());
    let column = |index: usize| {
        batch.column(index).as_primitive::<arrow::datatypes::Int32Type>().iter().collect::<Vec<_>>()
    };
    assert_eq!(column(0), [Some(1), Some(2)]);
    assert_eq!(column(1), [Some(7), Some(7)]);
    assert_eq!(column(2), [Some(3), Some(4)]);
    assert_eq!(InputColumns::new(&table(), &[], 0).unwrap().given().len(), 3);
}

#[test]
fn a_column_that_needs_a_value_must_have_one() {
    let columns = InputColumns::new(&table(), &["beta".into()], 0).unwrap();
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let error = columns.batch(vec![values], 1).unwrap_err();
    assert_eq!(error.sqlstate(), "23502");
    assert_eq!(
        error.to_string(),
        "null value in column \"alpha\" of relation \"t\" violates not-null constraint"
    );
}

#[test]
fn lists_that_do_not_fit() {
    let error = InputColumns::new(&table(), &["aplha".into()], 0).unwrap_err();
    assert_eq!(error.sqlstate(), "42703");
    assert!(error.to_string().contains("did you mean \"alpha\"?"), "{error}");
    let error = InputColumns::new(&table(), &["beta".into(), "beta".into()], 0).unwrap_err();
    assert_eq!(error.sqlstate(), "42701");
}
