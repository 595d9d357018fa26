//! Automatic vacuum: which tables are due, and what was done to each.
//!
//! A server asks [`Database::autovacuum`] every `autovacuum_naptime`; nothing runs by itself where a program has the
//! database open. A table is due when more of its rows have ended than the threshold and a share of those that have
//! not. Settings are the database's ([`Autovacuum`], `ALTER SYSTEM`).
//!
//! Invariant: it waits for no lock: a table that somebody defines or vacuums is left for the next time.
//! Source: PostgreSQL's manual, "Automatic Vacuuming"; `docs/design/delta-and-snapshots.md`.

use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::autovacuum::Autovacuum;
use cleave_catalog::error::Error;

use crate::database::Database;

impl Database {
    /// When tables are vacuumed by themselves.
    pub fn autovacuum_settings(&self) -> Autovacuum {
        self.catalog().upkeep.autovacuum.clone()
    }

    /// Vacuums the tables that are due; the errors of those that could not be, with their names.
    pub async fn autovacuum(self: &Arc<Self>) -> Vec<(String, Error)> {
        let mut failures = Vec::new();
        for name in due(&self.catalog()) {
            if let Err(error) = Box::pin(self.session().autovacuum(&name)).await {
                failures.push((name, error));
            }
        }
        failures
    }
}

/// Names of the tables that are due.
fn due(state: &CatalogState) -> Vec<String> {
    let settings = &state.upkeep.autovacuum;
    let due = state.tables().filter(|table| settings.is_due(table));
    due.map(|table| table.schema.name.clone()).collect()
}
