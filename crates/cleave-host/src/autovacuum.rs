//! Automatic VACUUM and ANALYZE: finds the tables that are due, works on them, and reports what was done.
//!
//! A server calls [`Database::autovacuum`] every `autovacuum_naptime`, and [`Database::autoanalyze`] every few seconds.
//! A program that opens a database itself gets neither unless it makes these calls. Where it fills tables, it makes
//! [`Database::analyze_filled`] once it has. A table is due for VACUUM when its dead rows outnumber the threshold plus
//! a share of its live rows, and for ANALYZE when the rows that changed since the last one do. The settings belong to
//! the database ([`Autovacuum`], `ALTER SYSTEM`).
//!
//! Invariant: it waits for no lock. A table that is being defined or vacuumed is left for the next round.
//! Source: PostgreSQL's manual, "Automatic Vacuuming"; `docs/design/delta-and-snapshots.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::autovacuum::Autovacuum;
use cleave_catalog::error::Error;
use cleave_engine::delta::Live;
use cleave_query::analyze::Effort;
use futures::future::BoxFuture;

use crate::database::Database;

/// How fast an automatic ANALYZE goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// On one thread, with rests: others are at work.
    Beside,
    /// As fast as it can.
    Alone(Effort),
}

/// How many rows of each table had ever changed at some moment ([`Database::changes`]).
#[derive(Debug, Clone, Default)]
pub struct Changes(BTreeMap<u32, u64>);

impl Database {
    /// The settings of automatic vacuum.
    pub fn autovacuum_settings(&self) -> Autovacuum {
        self.catalog().upkeep.autovacuum.clone()
    }

    /// Vacuums the tables that are due. Returns the errors of those that could not be vacuumed, with their names.
    pub fn autovacuum(self: &Arc<Self>) -> BoxFuture<'_, Vec<(String, Error)>> {
        Box::pin(async move {
            let mut failures = Vec::new();
            for name in due(&self.catalog()) {
                if let Err(error) = Box::pin(self.session().autovacuum(&name)).await {
                    failures.push((name, error));
                }
            }
            failures
        })
    }

    /// Analyses the tables that are due, on one thread. Returns the errors of those that could not be analysed, with
    /// their names.
    pub fn autoanalyze(self: &Arc<Self>) -> BoxFuture<'_, Vec<(String, Error)>> {
        Box::pin(self.analyze_due(|_| true, Pace::Beside))
    }

    /// How many rows of each table have ever changed.
    pub fn changes(&self) -> Changes {
        let Live { state, delta, .. } = self.live();
        let recent = delta.change_counts();
        let changes = state.tables().map(|table| {
            let id = table.schema.table_id;
            let recent = recent.get(&id).copied().unwrap_or(0);
            (id, table.change_count().saturating_add(recent))
        });
        Changes(changes.collect())
    }

    /// As [`Self::autoanalyze`], without rests and on all threads, and only tables of which `least` rows or more have
    /// changed since `before`: for a program that fills tables. A table that others filled before is left to them.
    pub async fn analyze_filled(
        self: &Arc<Self>,
        before: &Changes,
        least: u64,
        effort: Effort,
    ) -> Vec<(String, Error)> {
        let now = self.changes();
        let is_filled = |id: u32| {
            let count = |changes: &Changes| changes.0.get(&id).copied().unwrap_or(0);
            count(&now).saturating_sub(count(before)) >= least.max(1)
        };
        self.analyze_due(is_filled, Pace::Alone(effort)).await
    }

    async fn analyze_due(
        self: &Arc<Self>,
        is_meant: impl Fn(u32) -> bool,
        pace: Pace,
    ) -> Vec<(String, Error)> {
        let mut failures = Vec::new();
        for name in due_for_analyze(self, is_meant) {
            if let Err(error) = Box::pin(self.session().autoanalyze(&name, pace)).await {
                failures.push((name, error));
            }
        }
        failures
    }
}

/// Names of the tables that are due for ANALYZE, of those that `is_meant` accepts by id.
fn due_for_analyze(database: &Database, is_meant: impl Fn(u32) -> bool) -> Vec<String> {
    let Live { state, delta, .. } = database.live();
    let (settings, recent) = (&state.upkeep.autovacuum, delta.change_counts());
    let due = state.tables().filter(|table| {
        let id = table.schema.table_id;
        let recent = recent.get(&id).copied().unwrap_or(0);
        let changed = database.changed_since_analyze(table).saturating_add(recent);
        is_meant(id) && table.damaged.is_empty() && settings.is_due_for_analyze(table, changed)
    });
    due.map(|table| table.schema.name.clone()).collect()
}

/// Names of the tables that are due.
fn due(state: &CatalogState) -> Vec<String> {
    let settings = &state.upkeep.autovacuum;
    let due = state.tables().filter(|table| settings.is_due(table));
    due.map(|table| table.schema.name.clone()).collect()
}
