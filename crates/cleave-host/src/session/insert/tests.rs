//! Which INSERTs are constants.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::*;

fn rows(values: &str) -> Option<Vec<Vec<String>>> {
    let query = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(values)
        .and_then(|mut parser| parser.parse_query())
        .unwrap();
    let rows = constant_rows(&query)?;
    let text = |value: &Constant<'_>| match value {
        Constant::Null => "NULL".to_owned(),
        Constant::Default => "DEFAULT".to_owned(),
        Constant::Text(text) => (*text).to_owned(),
        Constant::Negative(text) => format!("-{text}"),
    };
    Some(rows.iter().map(|row| row.iter().map(text).collect()).collect())
}

#[test]
fn constants_keep_their_text() {
    let found =
        rows("VALUES (1, -2.50, 'it''s', NULL, DEFAULT, true), ((3), 4e5, E'a\\tb', $$x$$, 0, 0)");
    assert_eq!(
        found.unwrap(),
        [["1", "-2.50", "it's", "NULL", "DEFAULT", "true"], ["3", "4e5", "a\tb", "x", "0", "0"],]
    );
}

#[test]
fn anything_else_is_a_query() {
    for values in [
        "VALUES (1 + 1)",
        "VALUES (now())",
        "VALUES (-'5')",
        "VALUES (DATE '2024-01-01')",
        "VALUES (1), (2) LIMIT 1",
        "VALUES (1), (2) ORDER BY 1",
        "SELECT 1",
        "WITH x AS (SELECT 1) VALUES (1)",
    ] {
        assert_eq!(rows(values), None, "{values}");
    }
}
