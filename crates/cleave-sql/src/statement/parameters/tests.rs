//! Tests: reading parameters, and putting them into statements.

use datafusion::sql::sqlparser::parser::Parser;

use super::*;

fn query(sql: &str) -> Box<ast::Query> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap();
    parser.parse_query().unwrap()
}

fn parameter(column_type: ColumnType, text: &str) -> Parameter {
    Parameter::read(parameter_type(column_type), Some(text)).unwrap()
}

#[test]
fn values_go_everywhere_as_typed_literals() {
    let sql = "WITH c AS (SELECT $2 AS a) SELECT * FROM c, (SELECT a FROM t WHERE b = $1) d \
               WHERE a IN (SELECT $1) GROUP BY $2 ORDER BY $2 LIMIT $3 OFFSET $3";
    let mut asked = query(sql);
    assert_eq!(count(&asked).unwrap(), 3);
    let values = vec![
        parameter(ColumnType::Int, " 7 "),
        parameter(ColumnType::Text, "it's"),
        parameter(ColumnType::BigInt, "10"),
    ];
    let values = Parameters::new(values);
    values.put_into(&mut asked).unwrap();
    let (one, two) = ("CAST('7' AS INT)", "CAST('it''s' AS TEXT)");
    let expected = format!(
        "WITH c AS (SELECT {two} AS a) SELECT * FROM c, (SELECT a FROM t WHERE b = {one}) d \
         WHERE a IN (SELECT {one}) GROUP BY {two} ORDER BY {two} LIMIT 10 OFFSET 10"
    );
    assert_eq!(asked.to_string(), expected);
    let text = StatementText::of(sql).with(&values);
    assert_eq!(text, expected.replace(one, "7"));
}

#[test]
fn a_numeric_has_the_digits_that_were_given() {
    let literal = |text: &str| parameter(ColumnType::NUMERIC, text).literal().to_string();
    assert_eq!(literal("1.50"), "CAST('1.50' AS NUMERIC(38,2))");
    assert_eq!(literal("-3"), "CAST('-3' AS NUMERIC(38,0))");
    assert_eq!(literal("1e3"), "CAST('1000' AS NUMERIC(38,0))");
}

#[test]
fn the_text_says_some_types() {
    let mut types = vec![None, Some(ColumnType::Int), None, None];
    let asked = query("SELECT $1::varchar(3), $2::date FROM t WHERE a = $4 LIMIT $3");
    written_types(&asked, &mut types).unwrap();
    assert_eq!(
        types,
        [Some(ColumnType::Text), Some(ColumnType::Int), Some(ColumnType::BigInt), None]
    );
}

#[test]
fn what_is_no_parameter_is_refused() {
    for (sql, state) in [("SELECT $0", "42601"), ("SELECT $x", "42601"), ("SELECT $70000", "54000")]
    {
        assert_eq!(count(&query(sql)).unwrap_err().sqlstate(), state, "{sql}");
    }
    let error = Parameters::default().put_into(&mut query("SELECT $1")).unwrap_err();
    assert_eq!(
        (error.sqlstate(), error.to_string().as_str()),
        ("42P02", "there is no parameter $1")
    );
    let error = Parameter::read(ColumnType::Int, Some("x")).unwrap_err();
    assert_eq!(error.sqlstate(), "22P02");
    assert_eq!(Parameter::read(ColumnType::Int, None).unwrap(), Parameter::null(ColumnType::Int));
}

#[test]
fn texts_stay_as_they_were_written() {
    let text = "SELECT /*+ split(h0) */ 'it''s $1', E'a\\n', \"$2\", a -- $3\nFROM t WHERE a = $1";
    let values = Parameters::new(vec![parameter(ColumnType::Int, "5")]);
    let expected = text.replace("a = $1", "a = 5");
    assert_eq!(StatementText::of(text).with(&values), expected);
}
