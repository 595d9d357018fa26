//! Tests: which INSERTs are constants, and what DataFusion gets for the others.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::*;

fn parsed(values: &str) -> Box<ast::Query> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(values)
        .and_then(|mut parser| parser.parse_query())
        .unwrap()
}

fn rows(values: &str) -> Option<Vec<Vec<String>>> {
    let query = parsed(values);
    let rows = constant_rows(&query)?;
    let text = |value: &Constant<'_>| match value {
        Constant::Null => "NULL".to_owned(),
        Constant::Now => "now()".to_owned(),
        Constant::Default => "DEFAULT".to_owned(),
        Constant::Literal(Literal::String, text) => format!("'{text}'"),
        Constant::Literal(_, text) => text.to_string(),
        Constant::Parameter(place) => format!("${}", place + 1),
    };
    Some(rows.iter().map(|row| row.iter().map(text).collect()).collect())
}

#[test]
fn constants_keep_their_text() {
    let found =
        rows("VALUES (1, -2.50, 'it''s', NULL, DEFAULT, true), ((3), 4e5, E'a\\tb', $$x$$, 0, 0)");
    assert_eq!(
        found.unwrap(),
        [
            ["1", "-2.50", "'it's'", "NULL", "DEFAULT", "true"],
            ["3", "4e5", "'a\tb'", "'x'", "0", "0"],
        ]
    );
}

#[test]
fn anything_else_is_a_query() {
    for values in [
        "VALUES (1 + 1)",
        "VALUES (-'5')",
        "VALUES (- -5)",
        "VALUES (DATE '2024-01-01')",
        "VALUES (1), (2) LIMIT 1",
        "VALUES (1), (2) ORDER BY 1",
        "SELECT 1",
        "WITH x AS (SELECT 1) VALUES (1)",
    ] {
        assert_eq!(rows(values), None, "{values}");
    }
}

#[test]
fn the_engine_gets_null_for_default_and_the_row_s_number() {
    let mut query = parsed("VALUES (1 + 1, DEFAULT, 'x'), (DEFAULT, 2, upper('y'))");
    let defaults = Defaults::take(&mut query).unwrap().unwrap();
    assert_eq!(query.to_string(), "VALUES (1 + 1, NULL, 'x', 0), (NULL, 2, upper('y'), 1)");
    assert_eq!(defaults.0, [[false, true], [true, false], [false, false]]);
    let numbers = |numbers: Vec<i64>| {
        let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from(numbers));
        RecordBatch::try_from_iter([("number", numbers)]).unwrap()
    };
    let masks = defaults.of(&numbers(vec![1, 0])).unwrap();
    let mask = |values: [bool; 2]| Some(BooleanArray::from(values.to_vec()));
    assert_eq!(masks, [mask([true, false]), mask([false, true]), None]);
}

#[test]
fn default_stands_in_plain_values_only() {
    for values in ["VALUES (1 + 1)", "SELECT 1"] {
        assert!(Defaults::take(&mut parsed(values)).unwrap().is_none(), "{values}");
    }
    for values in ["VALUES (DEFAULT) LIMIT 1", "WITH x AS (SELECT 1) VALUES (DEFAULT)"] {
        let error = Defaults::take(&mut parsed(values)).unwrap_err();
        assert_eq!(error.sqlstate(), "42601", "{values}");
    }
}
