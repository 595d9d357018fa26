//! Tests: values of defaults, row by row.

use cleave_catalog::value::value_text;
use cleave_store::{Column, ColumnType};

use super::{check_default, default_array};

/// 2024-02-29 03:04:05.678 UTC.
const NOW_US: i64 = 1_709_175_845_678_000;

fn column(column_type: ColumnType, default: Option<&str>) -> Column {
    let default = default.map(str::to_owned);
    Column { id: 1, name: "c".into(), column_type, not_null: false, default, absent: None }
}

#[test]
fn constants_and_times() {
    use ColumnType as Type;
    for (column_type, default, expected) in [
        (Type::Int, "42", "42"),
        (Type::Int, "-42", "-42"),
        (Type::Int, "- (42)", "-42"),
        (Type::Int, "CAST('7' AS int)", "7"),
        (Type::Int, "'7'::integer", "7"),
        (Type::Text, "'it''s'", "it's"),
        (Type::Text, "E'a\\tb'", "a\tb"),
        (Type::Varchar(Some(5)), "'x'::text", "x"),
        (Type::Text, "5", "5"),
        (Type::Boolean, "true", "t"),
        (Type::Numeric { precision: 5, scale: 2 }, "1.005", "1.01"),
        (Type::Date, "DATE '2020-01-02'", "2020-01-02"),
        (Type::Interval, "INTERVAL '1 day'", "1 day"),
        (Type::Bytea, "'\\x00ff'", "\\x00ff"),
        (Type::TimestampTz, "now()", "2024-02-29 03:04:05.678+00"),
        (Type::TimestampTz, "CURRENT_TIMESTAMP", "2024-02-29 03:04:05.678+00"),
        (Type::Timestamp, "LOCALTIMESTAMP", "2024-02-29 03:04:05.678"),
        (Type::Date, "CURRENT_DATE", "2024-02-29"),
        (Type::Date, "now()", "2024-02-29"),
        (Type::Timestamp, "CURRENT_DATE", "2024-02-29 00:00:00"),
        (Type::Time, "LOCALTIME", "03:04:05.678"),
    ] {
        let column = column(column_type, Some(default));
        check_default(&column).unwrap_or_else(|error| panic!("{default}: {error}"));
        let array = default_array(&column, 3, &NOW_US.into()).unwrap();
        assert_eq!(array.data_type(), &column_type.arrow(), "{default}");
        assert_eq!(array.len(), 3);
        for row in 0..3 {
            assert_eq!(value_text(&array, row).unwrap().as_deref(), Some(expected), "{default}");
        }
    }
}

#[test]
fn no_default_is_null() {
    for default in [None, Some("NULL")] {
        let array = default_array(&column(ColumnType::Uuid, default), 2, &NOW_US.into()).unwrap();
        assert_eq!((array.len(), array.null_count()), (2, 2));
    }
    assert_eq!(
        default_array(&column(ColumnType::Int, Some("1")), 0, &NOW_US.into()).unwrap().len(),
        0
    );
}

#[test]
fn what_needs_a_planner_is_refused() {
    for default in
        ["1 + 1", "other", "nextval(s)", "(SELECT 1)", "now(3)", "- 'x'", "$1", "'a' ||", ""]
    {
        let error = check_default(&column(ColumnType::Int, Some(default))).unwrap_err();
        assert_eq!(error.sqlstate(), "0A000", "{default}: {error}");
        assert!(error.to_string().contains("a default is a constant"), "{error}");
    }
}
