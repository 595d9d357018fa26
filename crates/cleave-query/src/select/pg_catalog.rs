//! The schemas `pg_catalog` and `information_schema`: the catalog for PostgreSQL's clients, made for each statement
//! that reads it.
//!
//! ```text
//!  CatalogState ─▶ View (names, numbers) ─▶ rows of a table (rows, information) ─▶ MemTable ─▶ DataFusion
//!                                        └▶ functions that look a number up (functions)
//! ```
//!
//! 1. [`catalog_tables`] lists the tables and their columns. Much of what PostgreSQL has cannot exist here (policies,
//!    triggers, …): those tables are there and always empty.
//! 2. [`rows`] and [`information`] fill the others from the catalog.
//! 3. [`functions`] are those that clients call with numbers out of these tables.
//! 4. [`SeenSessions`] has the rows of sessions and locks without a statement.
//!
//! PostgreSQL's syntax that DataFusion lacks (`OPERATOR(pg_catalog.~)`, `::regclass`, `ARRAY(SELECT …)`) is rewritten
//! before, by [`catalog_syntax`](cleave_sql::statement::catalog_syntax).
//!
//! Invariants: the numbers of things follow from the ids that the catalog keeps, so they stay as long as the things do.
//! Nothing of this lies on a device, and plans that read it stay on the host.
//!
//! Source: PostgreSQL's manual, "System Catalogs" and "The Information Schema"; `docs/design/wire-protocol.md`.

use std::sync::Arc;

use cleave_catalog::catalog::sequence::Sequence;
use cleave_sql::statement::catalog_tables;
use cleave_sql::statement::catalog_tables::CATALOG_SCHEMA;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use futures::future::{BoxFuture, ready};

use super::statement_context::StatementContext;

mod activity;
mod comments;
mod constraints;
mod dependencies;
pub(crate) mod functions;
mod index_statistics;
mod information;
mod io_functions;
mod key_words;
mod locks;
mod privileges;
mod roles;
mod rows;
mod seen_sessions;
mod sequences;
mod sizes;
mod table_statistics;
mod view;

pub(super) use activity::may_stop;
pub use comments::{comment_subject, known_subjects};
pub use seen_sessions::SeenSessions;
use view::View;
pub(super) use view::{table_oid, type_of};

/// One of the two schemas as one statement sees it.
#[derive(Debug)]
pub(super) struct CatalogTables {
    schema: &'static str,
    context: Arc<StatementContext>,
}

impl CatalogTables {
    pub(super) fn new(schema: &'static str, context: Arc<StatementContext>) -> Arc<Self> {
        Arc::new(Self { schema, context })
    }

    /// The rows of a table at this moment.
    fn table_now(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(shape) = catalog_tables::tables(self.schema).find(|shape| shape.name == name)
        else {
            return Ok(None);
        };
        let view = view(&self.context);
        let rows = match self.schema {
            CATALOG_SCHEMA => {
                let database = self.context.database();
                let last = |sequence: &Sequence| {
                    let (last, is_called) = database.sequences().last(sequence);
                    (is_called && view.may_see_last(sequence)).then_some(last)
                };
                match name {
                    "pg_description" => comments::rows(&view, false),
                    "pg_shdescription" => comments::rows(&view, true),
                    "pg_locks" => locks::rows(&view, &database.locks().list()),
                    "pg_stat_all_tables" | "pg_stat_user_tables" => {
                        table_statistics::rows(&view, database)
                    }
                    "pg_stat_database" => {
                        index_statistics::database(&view, database.backends().seen().len())
                    }
                    "pg_stat_activity" => {
                        let sessions = database.backends().seen();
                        activity::rows(&view, &sessions, &database.locks().list())
                    }
                    _ => rows::rows(&view, name, self.context.settings(), last),
                }
            }
            _ => information::rows(&view, name),
        };
        let batch = shape.batch(rows)?;
        Ok(Some(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?)))
    }
}

/// The catalog of a statement. What the asker may know goes by the newest rights.
pub(super) fn view(context: &StatementContext) -> View {
    let newest = context.database().catalog();
    View::new(context.state(), &newest, &context.settings().client)
}

impl SchemaProvider for CatalogTables {
    fn table_names(&self) -> Vec<String> {
        catalog_tables::tables(self.schema).map(|shape| shape.name.to_owned()).collect()
    }

    fn table<'a, 'n, 'f>(
        &'a self,
        name: &'n str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'n: 'f,
    {
        Box::pin(ready(self.table_now(name)))
    }

    fn table_exist(&self, name: &str) -> bool {
        catalog_tables::tables(self.schema).any(|shape| shape.name == name)
    }
}
