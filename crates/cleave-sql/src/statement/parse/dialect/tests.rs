//! Tests: deeply nested texts that the parser crate would read again at each level end in bounded time.

use cleave_catalog::error::{Error, Fault};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::read_text;
use crate::statement::parse_script;

/// The text around the nesting, the opening of a level, its middle, the closing of a level.
type Form = (&'static str, &'static str, &'static str, &'static str);

/// Forms that PostgreSQL reads at any depth.
const READ: &[Form] = &[
    ("SELECT ", "abs(", "1", ")"),
    ("SELECT ", "f(a => ", "1", ")"),
    ("SELECT ", "coalesce(1, ", "1", ", 2)"),
    ("SELECT ", "sum(DISTINCT ", "1", ")"),
    ("SELECT ", "array_agg(1 ORDER BY ", "1", ")"),
    ("SELECT ", "sum(1) OVER (ORDER BY ", "1", ")"),
    ("SELECT ", "sum(1) FILTER (WHERE ", "true", ")"),
    ("SELECT ", "json_object('a' VALUE ", "1", ")"),
    ("SELECT ", "(", "1", ")"),
    ("SELECT ", "(", "1", ")::int"),
    ("SELECT ", "CASE WHEN true THEN ", "1", " END"),
    ("SELECT ", "CASE WHEN ", "true", " THEN true END"),
    ("SELECT ", "CASE ", "true", " WHEN true THEN true END"),
    ("SELECT ", "ARRAY[", "1", "]"),
    ("SELECT ", "ARRAY(SELECT ", "1", ")"),
    ("SELECT ", "CAST(", "1", " AS int)"),
    ("SELECT ", "CAST((SELECT ", "1", ") AS int)"),
    ("SELECT ", "NOT ", "true", ""),
    ("SELECT ", "extract(year FROM ", "1", ")"),
    ("SELECT ", "substring(", "1", " FROM 2)"),
    ("SELECT ", "overlay(", "1", " PLACING 'a' FROM 2)"),
    ("SELECT ", "position('a' IN ", "1", ")"),
    ("SELECT ", "trim(both 'x' FROM ", "1", ")"),
    ("SELECT ", "abs(interval ", "'1'", ")"),
    ("SELECT ", "1 IN (", "1", ")"),
    ("SELECT ", "(1, 2) IN ((1, ", "1", "))"),
    ("SELECT ", "1 IN (SELECT ", "1", ")"),
    ("SELECT ", "EXISTS(SELECT ", "1", ")"),
    ("SELECT ", "((SELECT ", "1", ") + 1)"),
    ("SELECT ", "1 = ANY((SELECT ", "1", "))"),
    ("SELECT * FROM ", "(", "t", " JOIN u ON true)"),
    ("SELECT * FROM ", "((SELECT * FROM ", "t", ")) a"),
    ("SELECT * FROM ", "((SELECT * FROM ", "t", ") a JOIN u ON true)"),
    ("SELECT * FROM ", "((SELECT * FROM ", "t", ") AS \"A b\" (x, y) CROSS JOIN u)"),
    ("SELECT * FROM ", "((SELECT * FROM ", "t", ") NATURAL JOIN u)"),
    (
        "SELECT * FROM ",
        "(((SELECT * FROM ",
        "t",
        ") UNION SELECT 1) a /* as */ LEFT JOIN u ON true)",
    ),
    ("SELECT * FROM ", "((WITH x AS (SELECT 1) SELECT * FROM ", "t", ") a CROSS JOIN u)"),
    ("SELECT * FROM t, ", "((SELECT * FROM t, ", "t", ") a CROSS JOIN u)"),
    ("SELECT * FROM t JOIN ", "((SELECT * FROM t JOIN ", "t ON true", ") a CROSS JOIN u) ON true"),
    ("SELECT * FROM t, ", "LATERAL (SELECT * FROM ((SELECT * FROM ", "t", ") b CROSS JOIN u)) a"),
    ("DELETE FROM t USING ", "((SELECT * FROM ", "t", ") a CROSS JOIN u)"),
    ("UPDATE t SET a = ", "abs(", "1", ")"),
    ("INSERT INTO t SELECT ", "abs(", "1", ")"),
];

/// Texts that are wrong at each level or within, or are still read again at each level.
const REFUSED: &[Form] = &[
    ("SELECT ", "CASE WHEN true THEN ", "1 1", " END"),
    ("SELECT ", "CAST(", "1", ")"),
    ("SELECT ", "extract(year FROM ", "1 1", ")"),
    ("SELECT ", "substring(", "1", ", 2, 3, 4)"),
    ("SELECT ", "interval (", "'1' 1", ")"),
    ("SELECT ", "1 IN ((SELECT ", "1", "), 2)"),
    ("SELECT 1 + a", ".a", ".*", ""),
    ("SELECT * FROM ", "((SELECT * FROM ", "t", ""),
    ("SELECT * FROM ", "((SELECT FROM ", "t", ""),
    ("SELECT * FROM ", "((SELECT 1 FROM ", "t", ""),
    ("SELECT * FROM ", "((SELECT * FROM ", "t", ") 1)"),
    ("SELECT * FROM ", "((SELECT FROM ", "t", ") 1 JOIN u)"),
];

fn nested(form: &Form, levels: usize) -> String {
    let (before, open, middle, close) = form;
    format!("{before}{}{middle}{}", open.repeat(levels), close.repeat(levels))
}

#[test]
fn deep_statements_are_read_once() {
    for form in READ {
        let sql = nested(form, 60);
        let read = read_text(&sql, |parser| parser.parse_statement());
        assert_eq!(read.map(|read| read.to_string().is_empty()), Ok(false), "{sql}");
    }
}

#[test]
fn deep_errors_end() {
    for form in REFUSED {
        for levels in [40, 200] {
            let sql = nested(form, levels);
            let error = parse_script(&sql).expect_err(&sql);
            let is_known = matches!(error, Error::Syntax { .. })
                || matches!(error, Error::Invalid { fault: Fault::TooComplex, .. });
            assert!(is_known, "{sql}: {error:?}");
        }
    }
}

#[test]
fn what_is_read_is_what_the_crate_reads() {
    let same = [
        "SELECT ((SELECT 1) IS NULL), ((SELECT 2) NOTNULL), f(1, ((SELECT 3) AT TIME ZONE 'a'))",
        "SELECT CAST((SELECT 1) AS int), CAST(((SELECT 1)) AS int), ((SELECT 1), 2)",
        "CREATE TABLE a AS ((SELECT 1) UNION (SELECT 2) ORDER BY 1)",
        "SELECT t.case, x.not, a.b.c, cast FROM t WHERE NOT a AND NOT EXISTS (SELECT 1)",
        "SELECT E'a', U&'a', 1_000, @ 1, |/ 4, a || b, 'a' ~* 'b', point '1, 2', a[1:2]",
        "SELECT $1::int, extract('year' FROM a), trim(a, 'b'), xml '<a/>', a NOTNULL FROM t",
        "CREATE TABLE \"A$b\" (a int COLLATE \"C\" CHECK (a > 0), b int[])",
    ];
    let forms = READ.iter().filter(|(_, open, ..)| !open.contains("=>") && !open.contains("VALUE"));
    let nested = forms.map(|form| nested(form, 3));
    for sql in nested.chain(same.map(str::to_owned)) {
        let plain = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(&sql)
            .and_then(|mut parser| parser.parse_statement());
        assert_eq!(read_text(&sql, |parser| parser.parse_statement()), plain, "{sql}");
        assert!(plain.is_ok(), "{sql}: {plain:?}");
    }
}

#[test]
fn arguments_may_have_names() {
    for sql in ["SELECT f(a => 1, \"B\" => 2)", "SELECT json_object('a' : 1)"] {
        let read = read_text(sql, |parser| parser.parse_statement());
        assert_eq!(read.map(|read| read.to_string()).as_deref(), Ok(sql));
    }
}
