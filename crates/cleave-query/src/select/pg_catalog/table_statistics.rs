//! PostgreSQL's statistics of table use, as far as they exist here: rows, dead rows, vacuums and ANALYZE. Rows are
//! counted only for roles that may read them.

use cleave_catalog::catalog::rights::Privilege;
use cleave_sql::statement::catalog_tables::Row;

use super::view::{View, table_oid};
use crate::query_engine::QueryEngine;

/// Rows of `pg_stat_user_tables` and its kin.
pub(super) fn rows(view: &View, database: &QueryEngine) -> Vec<Row> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let row = |table: &cleave_catalog::catalog::TableState| -> Row {
        let dead: u64 = table.tablets.iter().map(|tablet| tablet.dead_row_count()).sum();
        let may_count = view.may(table.schema.table_id, Privilege::Select);
        let count = |count: u64| may_count.then(|| number(count));
        let done = database.vacuums.of(table.schema.table_id);
        let analysed = database.analyses.of(table.schema.table_id);
        vec![
            ("relid", table_oid(&table.schema).into()),
            ("schemaname", "public".into()),
            ("relname", table.schema.name.as_str().into()),
            ("n_live_tup", count(table.row_count()).into()),
            ("n_dead_tup", count(dead).into()),
            ("last_vacuum", done.by_statement.1.into()),
            ("last_autovacuum", done.by_itself.1.into()),
            ("vacuum_count", number(done.by_statement.0).into()),
            ("autovacuum_count", number(done.by_itself.0).into()),
            ("n_mod_since_analyze", count(database.changed_since_analyze(table)).into()),
            ("last_analyze", analysed.by_statement.1.into()),
            ("last_autoanalyze", analysed.by_itself.1.into()),
            ("analyze_count", number(analysed.by_statement.0).into()),
            ("autoanalyze_count", number(analysed.by_itself.0).into()),
        ]
    };
    view.tables().map(|table| row(table)).collect()
}
