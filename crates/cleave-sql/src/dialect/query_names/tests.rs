//! Tests: queries in, queries with their names written out.

use cleave_catalog::identifiers::shown_name;

use super::*;
use crate::statement::{Statement, parse_script};

/// A table `a` of `id` and `x`, and `b` of `y` and `id`.
struct Two;

impl KnownTables for Two {
    fn columns(&self, table: &ast::ObjectName) -> Option<Vec<String>> {
        match table.to_string().as_str() {
            "a" => Some(vec!["id".into(), "x".into()]),
            "b" => Some(vec!["y".into(), "id".into()]),
            _ => None,
        }
    }
}

fn named(sql: &str) -> (Option<Vec<String>>, String) {
    let parsed = parse_script(sql).unwrap().remove(0).statement;
    let Statement::Query(mut query) = parsed else { panic!("{sql} is no query") };
    let columns = name_columns(&mut query, &Two).unwrap();
    let names = |columns: Vec<Column>| columns.into_iter().map(|column| column.name).collect();
    (columns.map(names), query.to_string().replace('"', ""))
}

#[test]
fn columns_of_tables_within_from_have_names() {
    let (names, query) = named("SELECT * FROM (SELECT count(*), 1 + 1, id FROM a) x");
    assert_eq!(names.unwrap(), ["count", "?column?", "id"]);
    assert_eq!(query, "SELECT * FROM (SELECT count(*) AS count, 1 + 1 AS ?column?, id FROM a) x");
}

#[test]
fn names_that_are_there_twice_are_found_by_no_name() {
    let (names, query) = named("SELECT * FROM (SELECT * FROM a, b) x");
    assert_eq!(names.unwrap(), ["id", "x", "y", "id"]);
    let list = "SELECT a.id AS id⟨1⟩, a.x, b.y, b.id AS id⟨4⟩";
    assert_eq!(query, format!("SELECT * FROM ({list} FROM a, b) x"));
}

#[test]
fn columns_without_a_name_in_the_list_keep_theirs() {
    assert_eq!(named("SELECT * FROM a AS t (k)").1, "SELECT * FROM a AS t (k, x)");
    let (names, query) = named("WITH c (k) AS (SELECT id, max(x) FROM a GROUP BY id) TABLE c");
    assert_eq!(names.unwrap(), ["k", "max"]);
    assert!(query.starts_with("WITH c (k, max) AS (SELECT id, max(x) AS max FROM a"), "{query}");
}

#[test]
fn query_of_with_has_a_name_of_its_own() {
    let (_, query) =
        named("WITH c AS (SELECT 1) SELECT * FROM (WITH c AS (SELECT 2 FROM c) SELECT * FROM c) x");
    let inner = "WITH c⟨1⟩ AS (SELECT 2 AS ?column? FROM c) SELECT * FROM c⟨1⟩ AS c";
    assert!(query.ends_with(&format!("SELECT * FROM ({inner}) x")), "{query}");
}

#[test]
fn using_merges_what_either_side_has() {
    let (names, query) = named("SELECT * FROM a JOIN b USING (id)");
    assert_eq!(names.unwrap(), ["id", "x", "y"]);
    assert_eq!(query, "SELECT a.id, a.x, b.y FROM a JOIN b USING(id)");
    let (names, query) =
        named("SELECT id, a.id FROM a NATURAL FULL JOIN b WHERE id > 1 ORDER BY id");
    assert_eq!(names.unwrap(), ["id", "id"]);
    let both = "coalesce(a.id, b.id)";
    assert_eq!(
        query,
        format!(
            "SELECT {both} AS id, a.id FROM a FULL JOIN b ON a.id = b.id WHERE {both} > 1 ORDER BY id"
        )
    );
    let (_, query) = named("SELECT * FROM a RIGHT JOIN b USING (id)");
    assert_eq!(query, "SELECT b.id, a.x, b.y FROM a RIGHT JOIN b ON a.id = b.id");
}

#[test]
fn merged_column_is_named_within_a_subquery_that_has_none_of_that_name() {
    let (_, query) = named(
        "SELECT (SELECT max(y) FROM (SELECT y FROM b) c WHERE y = id) FROM a FULL JOIN b USING (id)",
    );
    assert!(query.contains("WHERE y = coalesce(a.id, b.id)"), "{query}");
    let (_, query) = named("SELECT (SELECT max(id) FROM a AS c) FROM a FULL JOIN b USING (id)");
    assert!(query.contains("max(id)"), "{query}");
}

#[test]
fn names_that_order_by_asks_for_are_written_out() {
    let (_, query) = named("SELECT x, count(*) FROM a GROUP BY x ORDER BY count");
    assert_eq!(query, "SELECT x, count(*) AS count FROM a GROUP BY x ORDER BY count");
    let (_, query) = named("SELECT max(x)::text AS m, sum(x) FROM a ORDER BY sum(x)");
    assert!(!query.contains("AS sum"), "{query}");
}

#[test]
fn what_is_shown_is_the_name_that_was_written() {
    for (name, shown) in [("id⟨12⟩", "id"), ("id", "id"), ("id⟨x⟩", "id⟨x⟩"), ("⟨1⟩", "")]
    {
        assert_eq!(shown_name(name), shown);
    }
}
