//! What sessions do and lock at one moment, and what `pg_stat_activity`, `pg_locks` and `cleave.locks` say of it,
//! without a statement: for a page that looks again and again.
//!
//! Invariant: a client is shown what a statement of his would show him. The rows follow from what is compared, so they
//! are the same where that is; the catalog counts by its commit, which never comes again.

use std::sync::Arc;

use cleave_catalog::backends::BackendStatus;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::FIRST;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Client;
use cleave_sql::statement::catalog_tables::{self, CATALOG_SCHEMA, Cell, Row};
use cleave_txn::locks::LockStatus;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};

use super::super::lock_list;
use super::view::{View, table_oid};
use super::{activity, locks};
use crate::query_engine::QueryEngine;

/// The column of [`SeenSessions::locks`] that `pg_locks` does not have: the name of the table.
const TABLE_NAME: &str = "table_name";

/// Locks of a look that is worth holding until the next one.
const HELD_COUNT_MAX: usize = 50_000;

/// See the [module](self).
#[derive(Debug, PartialEq, Eq)]
pub struct SeenSessions {
    /// The catalog's.
    commit: u64,
    sessions: Vec<BackendStatus>,
    locks: Vec<LockStatus>,
}

impl SeenSessions {
    /// Those of now.
    #[must_use]
    pub fn now(database: &QueryEngine) -> Self {
        // The catalog first: one that is newer by the time that rows are made differs from the next look's.
        let commit = database.catalog().commit;
        let mut locks = database.locks().list();
        // Those first that wait.
        locks.sort_by_key(|lock| (lock.is_granted, lock.group.backend(), lock.key, lock.owner.0));
        Self { commit, sessions: database.backends().seen(), locks }
    }

    /// Whether it is small enough to be held until the next look. So many locks do not stay the same for long, and no
    /// budget has room for them.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.locks.len() <= HELD_COUNT_MAX
    }

    /// Whether the role of `client` is there. One that was dropped is shown nothing.
    #[must_use]
    pub fn knows(database: &QueryEngine, client: &Client) -> bool {
        let newest = database.catalog();
        let is_there = |role: u32| role == FIRST || newest.rights.role(role).is_some();
        client.acting.role.is_none_or(is_there)
    }

    /// The rows of `pg_stat_activity` for `client`, by `pid`.
    ///
    /// # Errors
    /// None that a client is to blame for.
    pub fn sessions(&self, database: &QueryEngine, client: &Client) -> Result<RecordBatch> {
        let view = view(&database.catalog(), client);
        // It says of locks only who waits.
        batch("pg_stat_activity", activity::rows(&view, &self.sessions, self.waiting()))
    }

    /// The first `count_max` rows of `pg_locks`, those first that wait, then by `pid`; with the names of tables, as
    /// `table_name`.
    ///
    /// # Errors
    /// As [`SeenSessions::sessions`].
    pub fn locks(
        &self,
        database: &QueryEngine,
        client: &Client,
        count_max: usize,
    ) -> Result<RecordBatch> {
        let view = view(&database.catalog(), client);
        let shown = self.locks.get(..count_max).unwrap_or(&self.locks);
        let rows = locks::rows(&view, shown);
        let names: StringArray = rows.iter().map(|row| table_name(&view, row)).collect();
        let batch = batch("pg_locks", rows)?;
        let mut fields = batch.schema().fields().to_vec();
        fields.push(Arc::new(Field::new(TABLE_NAME, DataType::Utf8, true)));
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(names) as ArrayRef);
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// The rows of `cleave.locks` that wait, by `pid`.
    ///
    /// # Errors
    /// As [`SeenSessions::sessions`].
    pub fn waits(&self, database: &QueryEngine) -> Result<RecordBatch> {
        lock_list::rows(&database.catalog(), self.waiting(), &self.locks)
    }

    fn waiting(&self) -> &[LockStatus] {
        let count = self.locks.partition_point(|lock| !lock.is_granted);
        self.locks.get(..count).unwrap_or_default()
    }
}

fn view(newest: &Arc<CatalogState>, client: &Client) -> View {
    View::new(newest, newest, client)
}

/// `rows` as a batch of the table `name` of `pg_catalog`.
fn batch(name: &str, rows: Vec<Row>) -> Result<RecordBatch> {
    match catalog_tables::tables(CATALOG_SCHEMA).find(|shape| shape.name == name) {
        Some(shape) => Ok(shape.batch(rows)?),
        None => Ok(RecordBatch::new_empty(Arc::new(Schema::empty()))),
    }
}

/// The name of the table that a row of `pg_locks` is about.
fn table_name(view: &View, row: &Row) -> Option<String> {
    let relation = row.iter().find_map(|(column, cell)| match (*column, cell) {
        ("relation", Cell::Number(relation)) => Some(*relation),
        _ => None,
    })?;
    let mut tables = view.tables();
    tables.find(|table| table_oid(&table.schema) == relation).map(|table| table.schema.name.clone())
}
