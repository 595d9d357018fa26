//! VACUUM: removes dead rows from their pages, table by table.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_engine::write::vacuum::{Vacuumed, vacuum};
use cleave_sql::statement::{Analyze, AnalyzeTable, Vacuum};

use super::statistics::{all_tables, check_targets};
use super::{Outcome, Session, locking, rights, statistics};

/// Runs VACUUM table by table; what was done before an error stays.
pub(super) async fn run(session: &mut Session, statement: Vacuum) -> Result<Outcome> {
    let Vacuum { full, skip_locked, analyzes, analyze } = statement;
    let names_all = analyze.tables.is_empty();
    let tables =
        if names_all { all_tables(&session.database.catalog()) } else { analyze.tables.clone() };
    check_targets(&session.names(), &tables)?;
    let mut told = Vec::with_capacity(tables.len());
    for AnalyzeTable { name, position, .. } in tables {
        let names = session.names();
        let Some(table) = names.table(&name) else { continue };
        // A table that others do not see has no shared dead rows.
        if session.owns(table.schema.table_id) {
            continue;
        }
        match vacuum_table(session, table, (full, skip_locked)).await {
            Ok(pruned) => {
                session.database.vacuums.note(table.schema.table_id, false);
                told.push(pruned);
            }
            Err(Error::Conflict { .. }) if skip_locked => {}
            // Dropped meanwhile.
            Err(Error::UnknownName { kind: NameKind::Relation, .. }) if names_all => {}
            Err(error) => return Err(error.at(position)),
        }
    }
    let verbose = analyze.verbose;
    if analyzes {
        Box::pin(statistics::run(session, Analyze { verbose: false, ..analyze })).await?;
    }
    if verbose { rows(&told) } else { Ok(Outcome::done("VACUUM")) }
}

impl Session {
    /// Vacuums the table `name`, unless it is locked or gone.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub(crate) async fn autovacuum(&mut self, name: &str) -> Result<()> {
        let names = self.names();
        let Some(table) = names.table(name) else { return Ok(()) };
        match vacuum_table(self, table, (false, true)).await {
            Ok(_) => {
                self.database.vacuums.note(table.schema.table_id, true);
                Ok(())
            }
            Err(Error::Conflict { .. } | Error::UnknownName { kind: NameKind::Relation, .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Vacuums `table` under a lock that keeps out definitions, index builds and other vacuums.
async fn vacuum_table(
    session: &mut Session,
    table: &TableState,
    (full, is_nowait): (bool, bool),
) -> Result<Vacuumed> {
    let settings = session.shared_settings();
    locking::lock_pages(session, table, is_nowait).await?;
    rights::check_on(session, &session.names())?;
    let database = Arc::clone(&session.database);
    let done = Box::pin(vacuum(&database, &settings, &table.schema.name, full)).await;
    session.statement_locks = None;
    done
}

/// The report, one row per table.
fn rows(told: &[Vacuumed]) -> Result<Outcome> {
    let count = |of: fn(&Vacuumed) -> u64| {
        let counts = told.iter().map(|vacuumed| i64::try_from(of(vacuumed)).ok());
        Arc::new(counts.collect::<Int64Array>()) as ArrayRef
    };
    let names = told.iter().map(|vacuumed| Some(vacuumed.table.as_str()));
    let columns: [(&str, ArrayRef); 8] = [
        ("table_name", Arc::new(names.collect::<StringArray>())),
        ("rows", count(|vacuumed| vacuumed.rows_left)),
        ("rows_removed", count(|vacuumed| vacuumed.rows_removed)),
        ("rows_dead", count(|vacuumed| vacuumed.rows_dead)),
        ("blocks_before", count(|vacuumed| vacuumed.blocks_before)),
        ("blocks_after", count(|vacuumed| vacuumed.blocks_after)),
        ("segments_by_device", count(|vacuumed| vacuumed.on_device)),
        ("segments_by_host", count(|vacuumed| vacuumed.on_host)),
    ];
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}
