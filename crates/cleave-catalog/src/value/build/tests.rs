//! Lengths and NULLs of columns; the parsers have tests for single values.

use arrow::array::{Array, AsArray};
use cleave_store::ColumnType;

use super::{ColumnBuilder, fit};
use crate::value::ValueFault;

const TYPES: [ColumnType; 18] = [
    ColumnType::SmallInt,
    ColumnType::Int,
    ColumnType::BigInt,
    ColumnType::Real,
    ColumnType::Double,
    ColumnType::Numeric { precision: 12, scale: 3 },
    ColumnType::Boolean,
    ColumnType::Text,
    ColumnType::Varchar(None),
    ColumnType::Varchar(Some(9)),
    ColumnType::Char(9),
    ColumnType::Date,
    ColumnType::Time,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
    ColumnType::Interval,
    ColumnType::Bytea,
    ColumnType::Uuid,
];

#[test]
fn every_type_builds_its_arrow_type() {
    let texts = [
        "1",
        "1",
        "1",
        "1",
        "1",
        "1",
        "t",
        "x",
        "x",
        "x",
        "x",
        "2024-01-01",
        "01:00",
        "2024-01-01",
        "2024-01-01",
        "1 day",
        "\\x00",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ];
    for (column_type, text) in TYPES.iter().zip(texts) {
        let mut builder = ColumnBuilder::new(column_type, 2);
        builder.append_null();
        builder.append_text(text).unwrap();
        let array = builder.finish();
        assert_eq!(array.data_type(), &column_type.arrow());
        assert_eq!((array.len(), array.null_count()), (2, 1), "{column_type}");
        assert_eq!(builder.finish().len(), 0);
    }
}

#[test]
fn a_refused_value_leaves_the_column_as_it_was() {
    for column_type in TYPES {
        let mut builder = ColumnBuilder::new(&column_type, 2);
        let is_text =
            matches!(column_type, ColumnType::Text | ColumnType::Varchar(None) | ColumnType::Bytea);
        if is_text {
            continue;
        }
        let error = builder.append_text("neither this nor that").unwrap_err();
        assert_eq!(error.type_name, column_type.sql_name());
        assert_eq!(builder.finish().len(), 0, "{column_type}");
    }
}

#[test]
fn lengths_are_in_characters() {
    let five = ColumnType::Varchar(Some(5));
    assert_eq!(fit(&five, "größe").unwrap(), "größe");
    assert_eq!(fit(&five, "abcde   ").unwrap(), "abcde");
    assert_eq!(fit(&five, "abc  ").unwrap(), "abc  ");
    let error = fit(&five, "größer").unwrap_err();
    assert_eq!((error.fault, error.sqlstate()), (ValueFault::TooLong, "22001"));
    assert!(
        error
            .to_string()
            .contains("value too long for type character varying(5): the value is \"größer\""),
        "{error}"
    );
    assert_eq!(fit(&ColumnType::Text, "abcdef").unwrap(), "abcdef");
}

#[test]
fn characters_are_stored_without_trailing_blanks() {
    let mut builder = ColumnBuilder::new(&ColumnType::Char(3), 2);
    builder.append_text("a     ").unwrap();
    builder.append_text("abc").unwrap();
    assert_eq!(builder.append_text("abcd").unwrap_err().fault, ValueFault::TooLong);
    let array = builder.finish();
    assert_eq!(array.as_string::<i32>().value(0), "a");
    assert_eq!(array.len(), 2);
}

#[test]
fn a_message_cuts_the_value_and_says_what_was_expected() {
    let mut builder = ColumnBuilder::new(&ColumnType::Int, 1);
    let error = builder.append_text(&"x".repeat(500)).unwrap_err();
    let message = error.to_string();
    assert_eq!(
        message,
        format!(
            "invalid input syntax for type integer: \"{}…\"; expected a whole number from -2147483648 to 2147483647",
            "x".repeat(60)
        )
    );
    assert_eq!(error.sqlstate(), "22P02");
}
