//! PostgreSQL's statistics of indexes, of pages read and of the database. Nothing counts scans or pages by table: those
//! columns are 0, and the names are what clients look for.

use cleave_sql::statement::catalog_tables::Row;

use super::view::{View, number, table_oid};

/// Rows of `pg_stat_user_indexes`, `pg_statio_user_indexes` and their kin.
pub(super) fn indexes(view: &View) -> Vec<Row> {
    let row = |index: super::view::Index<'_>| -> Row {
        let table = &index.table.schema;
        let mut row = vec![
            ("relid", table_oid(table).into()),
            ("indexrelid", index.oid().into()),
            ("schemaname", "public".into()),
            ("relname", table.name.as_str().into()),
            ("indexrelname", index.definition.name.as_str().into()),
        ];
        let counts = ["idx_scan", "idx_tup_read", "idx_tup_fetch", "idx_blks_read", "idx_blks_hit"];
        row.extend(counts.map(|name| (name, 0.into())));
        row
    };
    view.indexes().map(row).collect()
}

/// Rows of `pg_statio_user_tables` and its kin.
pub(super) fn table_pages(view: &View) -> Vec<Row> {
    let row = |table: &cleave_store::TableSchema| -> Row {
        let mut row = vec![
            ("relid", table_oid(table).into()),
            ("schemaname", "public".into()),
            ("relname", table.name.as_str().into()),
        ];
        let counts = ["heap_blks_read", "heap_blks_hit", "idx_blks_read", "idx_blks_hit"];
        row.extend(counts.map(|name| (name, 0.into())));
        row
    };
    view.tables().map(|table| row(&table.schema)).collect()
}

/// The row of `pg_stat_database`, with so many sessions.
pub(super) fn database(view: &View, sessions: usize) -> Vec<Row> {
    let mut row: Row = vec![
        ("datid", number::DATABASE.into()),
        ("datname", view.client.database.as_str().into()),
        ("numbackends", i64::try_from(sessions).unwrap_or(i64::MAX).into()),
    ];
    let counts = [
        "xact_commit",
        "xact_rollback",
        "blks_read",
        "blks_hit",
        "tup_returned",
        "tup_fetched",
        "tup_inserted",
        "tup_updated",
        "tup_deleted",
        "conflicts",
        "temp_files",
        "temp_bytes",
        "deadlocks",
        "blk_read_time",
        "blk_write_time",
        "session_time",
        "active_time",
        "idle_in_transaction_time",
        "sessions",
        "sessions_abandoned",
        "sessions_fatal",
        "sessions_killed",
    ];
    row.extend(counts.map(|name| (name, 0.into())));
    vec![row]
}
