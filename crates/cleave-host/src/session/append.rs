//! Batches of a program into a table, as COPY adds the rows of a file: outside of a block many rows are loaded as
//! pages, few are inserted; within one they are changes of the block.
//!
//! [`Session::load`](super::Session::load) always loads, and only outside of a block.

use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::error::Result;
use cleave_sql::statement::conform::Conform;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::{Session, insert, locking, rights};

impl Session {
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
        Box::pin(async move {
            self.hinted = None;
            if let Some(tables) = self.concerned_by_load(table) {
                self.database.retry_blocked(&tables).await;
            }
            self.begin_statement()?;
            let appended = Box::pin(append_rows(self, table, batches)).await;
            self.end_statement(appended).await
        })
    }
}

async fn append_rows(
    session: &mut Session,
    table: &str,
    batches: BoxStream<'_, Result<RecordBatch>>,
) -> Result<u64> {
    session.check_may_write("COPY FROM")?;
    rights::check_may(session, Privilege::Insert, table)?;
    let schema = locking::lock_for_writing(session, table).await?;
    // Another table may have come in its place.
    rights::check_may(session, Privilege::Insert, table)?;
    let (moment, target) = (session.moment(), Arc::clone(&schema));
    let rows = batches.map(move |batch| {
        let batch = batch?;
        Conform::by_name(&target, &batch.schema(), moment.clone())?.rows(&batch)
    });
    Box::pin(insert::put_rows(session, &schema, rows.boxed())).await
}
