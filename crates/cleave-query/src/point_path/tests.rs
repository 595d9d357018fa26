//! Which queries take the point path, and which do not.

use std::collections::BTreeMap;

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{DatabaseId, DeviceId, TableState};
use cleave_catalog::index::{IndexShape, TabletIndex};
use cleave_store::{Column, ColumnType, TableSchema, TabletId, VersionMap};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::*;

fn table(name: &str, columns: &[(&str, ColumnType)], key: &[u32]) -> Arc<TableState> {
    let columns = columns
        .iter()
        .zip(1..)
        .map(|((name, column_type), id)| Column {
            id,
            name: (*name).to_owned(),
            column_type: *column_type,
            not_null: key.contains(&id),
            default: None,
            absent: None,
        })
        .collect();
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: name.to_owned(),
        columns,
        primary_key: key.to_vec(),
    };
    let schema = Arc::new(schema);
    let pkey = IndexDefinition::of_primary_key(&schema, format!("{name}_pkey"));
    let indexes: Vec<_> = pkey.into_iter().map(Arc::new).collect();
    let empty = |index: &Arc<IndexDefinition>| {
        Arc::new(TabletIndex::empty(IndexShape::new(Arc::clone(index), &schema).unwrap()))
    };
    let tablet = TabletState {
        id: TabletId(0),
        device: DeviceId(0),
        next_vid: 1,
        vids_skipped: 0,
        heap: Vec::new(),
        rewrites: Default::default(),
        version_map: Arc::new(VersionMap::new()),
        indexes: indexes.iter().map(empty).collect(),
    };
    let division = Division::LoadOrder;
    Arc::new(TableState {
        schema,
        indexes,
        tablets: vec![Arc::new(tablet)],
        division,
        damaged: Vec::new(),
        rules: Arc::default(),
        materialized: None,
        is_balanced: false,
    })
}

fn state() -> CatalogState {
    let money = ColumnType::Numeric { precision: 8, scale: 2 };
    let tables = [
        table("t", &[("id", ColumnType::Int), ("name", ColumnType::Text)], &[1]),
        table("pair", &[("a", ColumnType::BigInt), ("b", ColumnType::Varchar(Some(3)))], &[2, 1]),
        table("price", &[("amount", money), ("f", ColumnType::Double)], &[1]),
        table("float", &[("f", ColumnType::Double)], &[1]),
        table("heap", &[("id", ColumnType::Int)], &[]),
    ];
    let tables: BTreeMap<_, _> =
        tables.into_iter().map(|table| (table.schema.name.clone(), table)).collect();
    CatalogState {
        database: DatabaseId([0; 16]),
        epoch: 1,
        generation: 1,
        commit: 0,
        log_position: 0,
        log_end: 0,
        next_table: 2,
        next_segment: 1,
        next_device: 1,
        devices: BTreeMap::new(),
        tables,
        damaged: BTreeMap::new(),
        sequences: BTreeMap::new(),
        files: BTreeMap::new(),
        blocked: cleave_catalog::catalog::blocked::BlockedTables::default(),
        upkeep: Default::default(),
        rights: Default::default(),
        comments: Default::default(),
        views: BTreeMap::new(),
        keep: None,
        shipped: Arc::default(),
        referenced: Default::default(),
    }
}

fn detect(sql: &str) -> Option<PointQuery> {
    let query = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_query())
        .unwrap();
    PointQuery::detect(&query, &state())
}

fn names(query: &PointQuery) -> Vec<&str> {
    query.template.result.fields().iter().map(|field| field.name().as_str()).collect()
}

#[test]
fn selects_by_the_whole_key_are_point_queries() {
    for sql in [
        "SELECT id, name FROM t WHERE id = 5",
        "SELECT * FROM t WHERE id = 5",
        "select NAME from T where ID = -5",
        "SELECT name FROM t WHERE 5 = id",
        "SELECT name FROM t WHERE id = 2 + 3 * (4 - 1)",
        "SELECT x.name FROM t AS x WHERE x.id = (5)",
        "SELECT x.name FROM t x WHERE (x.id = 5)",
        "SELECT name AS n FROM public.t WHERE t.id = 5",
        "SELECT a, b FROM pair WHERE a = 1 AND b = 'xyz'",
        "SELECT a FROM pair WHERE (b = 'longer than the column') AND a = 1",
        "SELECT f FROM price WHERE amount = 10.50",
        "SELECT a FROM pair WHERE b = 'the first column of the key'",
    ] {
        assert!(detect(sql).is_some(), "{sql}");
    }
    assert_eq!(names(&detect("SELECT name AS n, id FROM t WHERE id = 1").unwrap()), ["n", "id"]);
    assert_eq!(names(&detect("SELECT * FROM t WHERE id = 1").unwrap()), ["id", "name"]);
}

#[test]
fn everything_else_is_planned() {
    for sql in [
        "SELECT name FROM t",
        "SELECT name FROM t WHERE id > 5",
        "SELECT name FROM t WHERE name = 'x'",
        "SELECT name FROM t WHERE id = 5 AND name = 'x'",
        "SELECT name FROM t WHERE id = 5 OR id = 6",
        "SELECT name FROM t WHERE id = 5 AND id = 5",
        "SELECT name FROM t WHERE id = NULL",
        "SELECT name FROM t WHERE id = 5.0",
        "SELECT name FROM t WHERE id = '5'",
        "SELECT name FROM t WHERE id = 99999999999",
        "SELECT name FROM t WHERE id = 7 / 2",
        "SELECT name FROM t WHERE id = 2147483647 + 1",
        "SELECT name FROM t WHERE id = $1",
        "SELECT upper(name) FROM t WHERE id = 5",
        "SELECT name, name FROM t WHERE id = 5",
        "SELECT y.name FROM t x WHERE x.id = 5",
        "SELECT t.name FROM t x WHERE id = 5",
        "SELECT nothing FROM t WHERE id = 5",
        "SELECT name FROM nothing WHERE id = 5",
        "SELECT DISTINCT name FROM t WHERE id = 5",
        "SELECT name FROM t WHERE id = 5 LIMIT 0",
        "SELECT name FROM t WHERE id = 5 ORDER BY name",
        "SELECT name FROM t WHERE id = 5 GROUP BY name",
        "SELECT name FROM t WHERE id = 5 HAVING true",
        "SELECT name FROM t, heap WHERE t.id = 5",
        "SELECT name FROM t CROSS JOIN heap WHERE t.id = 5",
        "SELECT name FROM t TABLESAMPLE BERNOULLI (10) WHERE id = 5",
        "SELECT c FROM t AS x (b, c) WHERE id = 5",
        "WITH t AS (SELECT 1) SELECT name FROM t WHERE id = 5",
        "SELECT name FROM t WHERE id = 5 UNION SELECT name FROM t WHERE id = 6",
        "SELECT name FROM t WHERE id = 5 FOR UPDATE",
        "SELECT a FROM pair WHERE a = 1",
        "SELECT amount FROM price WHERE amount = 10.505",
        "SELECT amount FROM price WHERE amount = 1e1",
        "SELECT f FROM float WHERE f = 0.1",
        "SELECT id FROM heap WHERE id = 5",
    ] {
        assert!(detect(sql).is_none(), "{sql}");
    }
}

#[test]
fn the_key_is_in_key_order_whatever_the_condition_s_order() {
    let one = detect("SELECT a FROM pair WHERE a = 1 AND b = 'x'").unwrap();
    let other = detect("SELECT a FROM pair WHERE b = 'x' AND a = 1").unwrap();
    assert_eq!(one.prefix, other.prefix);
    assert_ne!(one.prefix, detect("SELECT a FROM pair WHERE a = 2 AND b = 'x'").unwrap().prefix);
}

#[test]
fn explain_names_the_key() {
    let state = state();
    let query = detect("SELECT a FROM pair WHERE a = 1 AND b = 'x'").unwrap();
    assert_eq!(
        query.explain(&state),
        "Point look-up on pair by index pair_pkey (b, a), on the host, without a plan"
    );
}

fn parsed(sql: &str) -> ast::Query {
    let query = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_query());
    *query.unwrap()
}

#[test]
fn a_query_that_differs_by_its_constants_is_not_parsed_again() {
    let (queries, state) = (PointQueries::default(), state());
    let first = "SELECT a FROM pair WHERE a = 1 AND b = 'x'";
    assert!(queries.seen(first, &state).is_none());
    assert!(queries.detect(&parsed(first), first, &state).is_some());
    for other in [
        "SELECT a FROM pair WHERE a = 1 AND b = 'x'",
        "SELECT a FROM pair WHERE a = 7 AND b = 'it''s';",
    ] {
        let seen = queries.seen(other, &state).unwrap();
        let detected = detect(other.trim_end_matches(';')).unwrap();
        assert_eq!((&seen.prefix, names(&seen)), (&detected.prefix, names(&detected)), "{other}");
    }
    for other in [
        "SELECT b FROM pair WHERE a = 1 AND b = 'x'",
        "SELECT a FROM pair WHERE a = -1 AND b = 'x'",
        "SELECT a FROM pair WHERE a = 'x' AND b = 1",
        "SELECT a FROM pair WHERE a = 99999999999999999999 AND b = 'x'",
        "SELECT a FROM pair WHERE a = 1.5 AND b = 'x'",
    ] {
        assert!(queries.seen(other, &state).is_none(), "{other}");
    }
    // Queries that need the planner are not remembered either.
    let planned = "SELECT a FROM pair WHERE a = 1";
    assert!(queries.detect(&parsed(planned), planned, &state).is_none());
    assert!(queries.seen(planned, &state).is_none());
}

#[test]
fn what_is_remembered_is_of_the_tables_that_were_there() {
    let (queries, before) = (PointQueries::default(), state());
    let sql = "SELECT name FROM t WHERE id = 5";
    assert!(queries.detect(&parsed(sql), sql, &before).is_some());
    // A table like it is another one.
    let after = state();
    assert!(queries.seen(sql, &after).is_none());
    assert!(queries.detect(&parsed(sql), sql, &after).is_some());
    assert!(queries.seen(sql, &after).is_some());
}
