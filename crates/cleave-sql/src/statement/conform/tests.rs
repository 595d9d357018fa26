//! Tests: conversion of input rows to stored rows.

use arrow::array::{
    Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, LargeStringArray,
    NullArray,
};
use arrow::datatypes::{Field, Float32Type};
use cleave_store::ColumnType;

use super::*;

fn schema(columns: &[(&str, ColumnType, bool, Option<&str>)]) -> Arc<TableSchema> {
    let columns = columns
        .iter()
        .zip(1..)
        .map(|((name, column_type, not_null, default), id)| Column {
            id,
            name: (*name).to_owned(),
            column_type: *column_type,
            not_null: *not_null,
            default: default.map(str::to_owned),
            absent: None,
        })
        .collect();
    Arc::new(TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns,
        primary_key: Vec::new(),
    })
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// `array` as a column of `column_type`.
fn one(column_type: ColumnType, array: ArrayRef) -> Result<ArrayRef> {
    let schema = schema(&[("c", column_type, false, None)]);
    let rows = batch(vec![("c", array)]);
    let conform = Conform::by_name(&schema, &rows.schema(), 0)?;
    Ok(Arc::clone(conform.rows(&rows)?.column(0)))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn columns_are_found_by_name_and_the_others_get_their_default() {
    let schema = schema(&[
        ("a", ColumnType::Int, true, None),
        ("b", ColumnType::Text, false, Some("'none'")),
        ("c", ColumnType::Int, false, None),
    ]);
    let rows = batch(vec![
        ("c", Arc::new(Int32Array::from(vec![3, 4]))),
        ("a", Arc::new(Int32Array::from(vec![1, 2]))),
    ]);
    let rows = Conform::by_name(&schema, &rows.schema(), 0).unwrap().rows(&rows).unwrap();
    assert_eq!(rows.schema(), schema.arrow());
    assert_eq!(rows.column(0).as_ref(), &Int32Array::from(vec![1, 2]));
    assert_eq!(rows.column(1).as_ref(), &StringArray::from(vec!["none", "none"]));
    assert_eq!(rows.column(2).as_ref(), &Int32Array::from(vec![3, 4]));
}

#[test]
fn names_that_are_unknown_or_come_twice_are_refused() {
    let schema = schema(&[("movie", ColumnType::Int, false, None)]);
    let fields = |names: &[&str]| {
        Schema::new(
            names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect::<Vec<_>>(),
        )
    };
    let error = Conform::by_name(&schema, &fields(&["movi"]), 0).unwrap_err();
    assert_eq!(error.sqlstate(), "42703");
    assert!(error.to_string().contains("did you mean \"movie\"?"), "{error}");
    let error = Conform::by_name(&schema, &fields(&["movie", "movie"]), 0).unwrap_err();
    assert_eq!(error.sqlstate(), "42701");
}

#[test]
fn insert_counts_its_values() {
    let schema =
        schema(&[("a", ColumnType::Int, false, None), ("b", ColumnType::Int, false, None)]);
    let named = |names: &[&str], count| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Conform::by_position(&schema, &names, count, 0).map(|_| ())
    };
    assert!(named(&[], 2).is_ok());
    assert!(named(&[], 1).is_ok(), "the last columns may be left out");
    assert!(named(&["b"], 1).is_ok());
    assert_eq!(named(&[], 3).unwrap_err().sqlstate(), "42601");
    assert_eq!(named(&["a", "b"], 1).unwrap_err().sqlstate(), "42601");
    assert_eq!(named(&["a"], 2).unwrap_err().sqlstate(), "42601");
}

#[test]
fn null_in_a_not_null_column_is_refused() {
    let schema = schema(&[("a", ColumnType::Int, true, None)]);
    let rows = batch(vec![("a", Arc::new(Int32Array::from(vec![Some(1), None])))]);
    let conform = Conform::by_name(&schema, &rows.schema(), 0).unwrap();
    assert_eq!(conform.rows(&rows).unwrap_err().sqlstate(), "23502");
    let none = batch(vec![("a", Arc::new(NullArray::new(2)))]);
    assert_eq!(conform.rows(&none).unwrap_err().sqlstate(), "23502");
    let missing = Conform::by_name(&schema, &Schema::empty(), 0).unwrap();
    let empty = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        Vec::new(),
        &arrow::array::RecordBatchOptions::new().with_row_count(Some(1)),
    );
    assert_eq!(missing.rows(&empty.unwrap()).unwrap_err().sqlstate(), "23502");
}

#[test]
fn texts_are_held_to_the_column_s_length() {
    let fits = one(ColumnType::Varchar(Some(3)), texts(&["äöü", "ab", "abc  "])).unwrap();
    assert_eq!(fits.as_ref(), &StringArray::from(vec!["äöü", "ab", "abc"]));
    let error = one(ColumnType::Varchar(Some(3)), texts(&["ab", "abcd"])).unwrap_err();
    assert_eq!(error.sqlstate(), "22001");
    assert!(error.to_string().contains("abcd"), "{error}");
    let blanks = one(ColumnType::Char(3), texts(&["a  ", "b"])).unwrap();
    assert_eq!(blanks.as_ref(), &StringArray::from(vec!["a", "b"]));
    let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["x"]));
    assert_eq!(one(ColumnType::Text, large).unwrap().data_type(), &DataType::Utf8);
}

#[test]
fn numbers_round_and_never_wrap() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![2.5, 3.5, -1.6]));
    let rounded = one(ColumnType::Int, floats).unwrap();
    assert_eq!(rounded.as_ref(), &Int32Array::from(vec![2, 4, -2]));
    let decimals = Decimal128Array::from(vec![950, 149]).with_precision_and_scale(3, 2).unwrap();
    let rounded = one(ColumnType::Int, Arc::new(decimals)).unwrap();
    assert_eq!(rounded.as_ref(), &Int32Array::from(vec![10, 1]));
    let large: ArrayRef = Arc::new(Int64Array::from(vec![1, 70_000]));
    let error = one(ColumnType::SmallInt, large).unwrap_err();
    assert_eq!(error.sqlstate(), "22003");
    assert!(error.to_string().contains("70000"), "{error}");
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let exact = one(ColumnType::Numeric { precision: 5, scale: 2 }, whole).unwrap();
    assert_eq!(exact.as_any().downcast_ref::<Decimal128Array>().unwrap().value(0), 700);
}

#[test]
fn a_double_beyond_real_is_out_of_range() {
    let doubles = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    for value in [1e300, -1e39, 1e-300, -1e-60] {
        let error = one(ColumnType::Real, doubles(&[1.0, value])).unwrap_err();
        assert_eq!(error.sqlstate(), "22003", "{value}: {error}");
    }
    let kept = one(ColumnType::Real, doubles(&[0.0, 0.1, f64::INFINITY, 3.4e38])).unwrap();
    assert_eq!(kept.as_ref(), &Float32Array::from(vec![0.0, 0.1, f32::INFINITY, 3.4e38]));
    let kept = one(ColumnType::Real, doubles(&[f64::NAN])).unwrap();
    assert!(kept.as_primitive::<Float32Type>().value(0).is_nan());
}

#[test]
fn a_row_may_ask_for_its_default() {
    let schema =
        schema(&[("a", ColumnType::Int, true, Some("7")), ("b", ColumnType::Text, false, None)]);
    let rows = batch(vec![
        ("b", texts(&["x", "y"])),
        ("a", Arc::new(Int64Array::from(vec![Some(1), None]))),
    ]);
    let conform = Conform::by_name(&schema, &rows.schema(), 0).unwrap();
    let mask = |values: [bool; 2]| Some(BooleanArray::from(values.to_vec()));
    let defaults = [mask([true, false]), mask([false, true])];
    let rows = conform.rows_with_defaults(&rows, &defaults).unwrap();
    assert_eq!(rows.column(0).as_ref(), &Int32Array::from(vec![1, 7]));
    assert_eq!(rows.column(1).as_ref(), &StringArray::from(vec![None, Some("y")]));
}

#[test]
fn text_is_read_and_everything_is_written_as_text() {
    let dates = one(ColumnType::Date, texts(&["1970-01-03"])).unwrap();
    assert_eq!(dates.as_ref(), &arrow::array::Date32Array::from(vec![2]));
    assert_eq!(one(ColumnType::Int, texts(&["7x"])).unwrap_err().sqlstate(), "22P02");
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None]));
    let written = one(ColumnType::Text, numbers).unwrap();
    assert_eq!(written.as_ref(), &StringArray::from(vec![Some("5"), None]));
    let booleans: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]));
    let written = one(ColumnType::Text, booleans).unwrap();
    assert_eq!(written.as_ref(), &StringArray::from(vec![Some("true"), Some("false"), None]));
}

#[test]
fn types_that_have_nothing_in_common_are_refused() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![5]));
    let error = one(ColumnType::Date, numbers).unwrap_err();
    assert_eq!(error.sqlstate(), "42804");
    assert!(error.to_string().contains("\"c\" is of type date"), "{error}");
}
