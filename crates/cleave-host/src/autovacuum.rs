//! Automatic vacuum: finds the tables that are due for VACUUM, vacuums them, and reports what was done.
//!
//! A server calls [`Database::autovacuum`] every `autovacuum_naptime`. A program that opens a database itself gets no
//! automatic vacuum unless it makes that call. A table is due when its dead rows outnumber the threshold plus a share
//! of its live rows. The settings belong to the database ([`Autovacuum`], `ALTER SYSTEM`).
//!
//! Invariant: it waits for no lock. A table that is being defined or vacuumed is left for the next round.
//! Source: PostgreSQL's manual, "Automatic Vacuuming"; `docs/design/delta-and-snapshots.md`.

use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::autovacuum::Autovacuum;
use cleave_catalog::error::Error;

use crate::database::Database;

impl Database {
    /// The settings of automatic vacuum.
    pub fn autovacuum_settings(&self) -> Autovacuum {
        self.catalog().upkeep.autovacuum.clone()
    }

    /// Vacuums the tables that are due. Returns the errors of those that could not be vacuumed, with their names.
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
