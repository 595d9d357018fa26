//! The query by which asyncpg looks up unknown types of values: a recursion over the components of a type.
//!
//! Here a type is a base type or a list of one, so one step is enough. The recursion itself compares with lists in
//! columns, which DataFusion does not support. The query is recognised by the name of its recursion, and replaced.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::names::fold;

/// The name of the recursion.
const NAME: &str = "typeinfo_tree";

/// The columns of the query, for the types with the numbers in `$1`.
const TYPES: &str = "SELECT t.oid AS oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, \
    CAST(NULL AS bigint) AS basetype, t.typelem AS elemtype, \
    CASE WHEN t.typelem <> 0 THEN t.typdelim END AS elemdelim, CAST(NULL AS bigint) AS range_subtype, \
    CAST(NULL AS bigint) AS attrtypoids, CAST(NULL AS text) AS attrnames, 0 AS depth, \
    CAST(NULL AS text) AS basetype_name, CAST(NULL AS text) AS elemtype_name, \
    CAST(NULL AS text) AS range_subtype_name \
    FROM pg_catalog.pg_type AS t INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace \
    WHERE t.oid = ANY ($1)";

/// Replaces the query, if `query` is it.
pub(super) fn lower(query: &mut ast::Query) {
    let is_it = query.with.as_ref().is_some_and(|with| {
        with.recursive && with.cte_tables.iter().any(|cte| fold(&cte.alias.name) == NAME)
    });
    let takes_types = || query.to_string().to_ascii_lowercase().contains("pg_type");
    if !is_it || !takes_types() {
        return;
    }
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(TYPES);
    if let Ok(types) = parser.and_then(|mut parser| parser.parse_query()) {
        *query = *types;
    }
}

/// Whether the text of a statement is that query: its parameter is a list of type numbers, which its text does not say.
#[must_use]
pub fn asks_for_types(sql: &str) -> bool {
    sql.starts_with("WITH RECURSIVE typeinfo_tree(") && sql.contains("any($1::oid[])")
}
