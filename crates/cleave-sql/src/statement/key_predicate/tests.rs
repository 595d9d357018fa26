//! Tests: which statements are recognised, and which are left to the planner.

use super::*;
use crate::statement::{Statement, parse_script};

fn query(sql: &str) -> ast::Query {
    match parse_script(sql).unwrap().pop().unwrap().statement {
        Statement::Query(query) => *query,
        other => panic!("{other:?} is no query"),
    }
}

fn selection(sql: &str) -> ast::Expr {
    let query = query(&format!("SELECT a FROM t WHERE {sql}"));
    plain_select(&query, Clauses::Bare).unwrap().selection.clone().unwrap()
}

#[test]
fn clauses_that_a_path_does_not_know_need_a_plan() {
    let is_plain = |sql: &str, clauses| plain_select(&query(sql), clauses).is_some();
    assert!(is_plain("SELECT a FROM t WHERE a = 1", Clauses::Bare));
    for sql in ["SELECT a FROM t ORDER BY a", "SELECT DISTINCT a FROM t", "SELECT a FROM t LIMIT 1"]
    {
        assert!(!is_plain(sql, Clauses::Bare) && is_plain(sql, Clauses::Grouped), "{sql}");
    }
    assert!(is_plain("SELECT a FROM t GROUP BY a HAVING a > 1", Clauses::Grouped));
    for sql in [
        "WITH x AS (SELECT 1) SELECT a FROM t",
        "SELECT DISTINCT ON (a) a FROM t",
        "SELECT a FROM t GROUP BY ROLLUP (a)",
        "SELECT a FROM t UNION SELECT a FROM t",
    ] {
        assert!(!is_plain(sql, Clauses::Bare), "{sql}");
    }
    assert!(!is_plain("SELECT DISTINCT ON (a) a FROM t", Clauses::Grouped));
}

#[test]
fn a_conjunction_comes_apart_in_the_order_of_its_text() {
    let whole = selection("a = 1 AND (b = 2 AND (c = 3)) AND (d = 4 OR e = 5)");
    let parts: Vec<String> = conjuncts(Some(&whole)).map(ToString::to_string).collect();
    assert_eq!(parts, ["a = 1", "b = 2", "c = 3", "d = 4 OR e = 5"]);
    assert_eq!(conjuncts(None).count(), 0);
}

#[test]
fn from_is_one_table_by_its_name_alone() {
    let name = |from: &str| {
        let query = query(&format!("SELECT 1 FROM {from}"));
        let ast::SetExpr::Select(select) = *query.body else { panic!() };
        plain_table(&select.from.first().unwrap().relation)
    };
    let named = |table: &str, qualifier: &str| Some((table.to_owned(), qualifier.to_owned()));
    assert_eq!(name("T"), named("t", "t"));
    assert_eq!(name("t AS X"), named("t", "x"));
    assert_eq!(name("t x"), named("t", "x"));
    assert_eq!(name("t AS x (y)"), None);
    assert_eq!(name("(SELECT 1) AS x"), None);
}

#[test]
fn a_constant_has_one_sign_and_sums_are_computed() {
    let constant = |sql: &str| {
        let ast::Expr::BinaryOp { right, .. } = selection(&format!("a = {sql}")) else { panic!() };
        constant(&right).map(|value| (format!("{:?}", value.given), value.negative))
    };
    assert_eq!(constant("(-7)"), Some(("Text(\"7\")".to_owned(), true)));
    assert_eq!(constant("'x'"), Some(("Text(\"x\")".to_owned(), false)));
    assert_eq!(constant("$3"), Some(("Parameter(2)".to_owned(), false)));
    assert_eq!(constant("-(-7)"), None);
    assert_eq!(constant("-'7'"), None);
    assert_eq!(constant("1 + 1"), Some(("Text(\"2\")".to_owned(), false)));
    assert_eq!(constant("2 * (1 - 4)"), Some(("Text(\"6\")".to_owned(), true)));
    assert_eq!(constant("3000000000 - 1"), Some(("Text(\"2999999999\")".to_owned(), false)));
    // Errors, and what is not an integer, are the planner's.
    for planned in
        ["2147483647 + 1", "65536 * 65536", "9223372036854775807 + 3000000000", "1 + 1.0"]
    {
        assert_eq!(constant(planned), None, "{planned}");
    }
    for planned in ["1 + '1'", "1 + $1", "7 / 2", "1 + NULL"] {
        assert_eq!(constant(planned), None, "{planned}");
    }
    assert_eq!(constant("NULL"), None);
}
