//! The schema `cleave`: the database's own figures, as tables that DataFusion reads from memory.
//!
//! Such a table lies on no device, and plans that read it stay on the host. Its rows are those of the moment at which
//! the query is bound. Only `cleave.devices`, `cleave.fragments` and `cleave.filter_history` ask devices.

use std::sync::Arc;

use cleave_catalog::activity;
use cleave_catalog::error;
use cleave_catalog::error::{Error, NameKind};
use cleave_engine::device::{health, lock_figures};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use futures::future::BoxFuture;

use super::statement_context::StatementContext;
use super::{
    fragment_list, history_list, lock_list, progress_list, reuse, statement_list, tablet_list,
};
use crate::query_log;

/// Name of the schema.
pub(super) const SCHEMA: &str = "cleave";
/// Names of its tables.
const TABLES: [&str; 11] = [
    activity::TABLE,
    fragment_list::TABLE,
    history_list::TABLE,
    lock_figures::TABLE,
    lock_list::TABLE,
    health::TABLE,
    progress_list::TABLE,
    query_log::TABLE,
    reuse::TABLE,
    statement_list::TABLE,
    tablet_list::TABLE,
];

/// The schema as one statement sees it.
#[derive(Debug)]
pub(super) struct OwnTables {
    context: Arc<StatementContext>,
}

impl OwnTables {
    pub(super) fn new(context: Arc<StatementContext>) -> Arc<Self> {
        Arc::new(Self { context })
    }

    /// The rows of a table at this moment.
    async fn table_now(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let database = self.context.database();
        let rows = match name {
            activity::TABLE => database.activity().batch()?,
            lock_figures::TABLE => lock_figures::batch(&database.devices())?,
            health::TABLE => health::batch(database.storage()).await?,
            fragment_list::TABLE => fragment_list::batch(database).await?,
            history_list::TABLE => history_list::batch(database).await?,
            lock_list::TABLE => lock_list::batch(&self.context)?,
            progress_list::TABLE => progress_list::batch(&self.context)?,
            statement_list::TABLE => statement_list::batch(&self.context)?,
            query_log::TABLE => database.query_log().batch()?,
            reuse::TABLE => reuse::listed::batch(database, self.context.state())?,
            tablet_list::TABLE => tablet_list::batch(&self.context)?,
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?)))
    }
}

/// Whether everybody may read the table `name` of the schema `cleave`; the others are for superusers.
#[must_use]
pub fn is_for_everybody(name: &str) -> bool {
    let all = [lock_list::TABLE, progress_list::TABLE, statement_list::TABLE, tablet_list::TABLE];
    all.contains(&name)
}

/// Names a table that the schema does not have, with the nearest that it has.
pub(super) fn check_table(name: &str) -> error::Result<()> {
    if TABLES.contains(&name) {
        Ok(())
    } else {
        Err(Error::unknown(NameKind::Relation, name, TABLES))
    }
}

impl SchemaProvider for OwnTables {
    fn table_names(&self) -> Vec<String> {
        TABLES.map(str::to_owned).into()
    }

    fn table<'a, 'n, 'f>(
        &'a self,
        name: &'n str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'n: 'f,
    {
        Box::pin(self.table_now(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.contains(&name)
    }
}
