//! Batches of a program into a table, as COPY adds the rows of a file: outside of a block many rows are loaded as
//! pages, few are inserted; within one they are changes of the block.
//!
//! [`Session::load`](super::Session::load) always loads, and only outside of a block.

use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::error::Result;
use cleave_sql::statement::conform::Conform;
use cleave_store::Column;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::{Session, insert, locking, rights, within};

impl Session {
    /// The columns of a table as the session sees it, with what its transaction has defined; None: there is no plain
    /// table of this name.
    pub fn columns_of(&self, table: &str) -> Option<Vec<Column>> {
        self.names().table(table).map(|found| found.schema.columns.clone())
    }

    /// Whether a temporary table hides the permanent one of this name.
    pub fn has_temporary(&self, table: &str) -> bool {
        self.defined().has_temporary(table)
    }

    /// Adds rows to a table, all or nothing, and returns their number. Columns of the batches are found by name;
    /// missing ones get their default. Who drops it before its end calls [`Session::fail_block`].
    ///
    /// # Errors
    /// Those of `batches`; those of COPY.
    pub fn append<'a>(
        &'a mut self,
        table: &'a str,
        batches: BoxStream<'a, Result<RecordBatch>>,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { Ok(self.append_checked(table, None, batches).await?.unwrap_or(0)) })
    }

    /// The same of rows whose values were read as those of `columns`. None: the table has other columns by now, and
    /// nothing was added.
    ///
    /// # Errors
    /// As [`Session::append`].
    pub fn append_as<'a>(
        &'a mut self,
        table: &'a str,
        columns: &'a [Column],
        batches: BoxStream<'a, Result<RecordBatch>>,
    ) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(self.append_checked(table, Some(columns), batches))
    }

    async fn append_checked(
        &mut self,
        table: &str,
        expected: Option<&[Column]>,
        batches: BoxStream<'_, Result<RecordBatch>>,
    ) -> Result<Option<u64>> {
        self.hinted = None;
        if let Some(tables) = self.concerned_by_load(table) {
            self.database.retry_blocked(&tables).await;
        }
        self.begin_statement()?;
        let limit_ms = self.in_force().statement_timeout_ms;
        let appended =
            within(limit_ms, Box::pin(append_rows(self, table, expected, batches))).await;
        self.end_statement(appended).await
    }
}

async fn append_rows(
    session: &mut Session,
    table: &str,
    expected: Option<&[Column]>,
    batches: BoxStream<'_, Result<RecordBatch>>,
) -> Result<Option<u64>> {
    session.check_may_write("COPY FROM")?;
    rights::check_may(session, Privilege::Insert, table)?;
    let schema = locking::lock_for_writing(session, table).await?;
    // Another table may have come in its place.
    rights::check_may(session, Privilege::Insert, table)?;
    let is_there = |column: &Column| {
        let now = schema.column(&column.name);
        now.is_some_and(|now| now.id == column.id && now.column_type == column.column_type)
    };
    if !expected.unwrap_or_default().iter().all(is_there) {
        return Ok(None);
    }
    let (moment, target) = (session.moment(), Arc::clone(&schema));
    let rows = batches.map(move |batch| {
        let batch = batch?;
        Conform::by_name(&target, &batch.schema(), moment.clone())?.rows(&batch)
    });
    Box::pin(insert::put_rows(session, &schema, rows.boxed())).await.map(Some)
}
