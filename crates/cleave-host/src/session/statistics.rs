//! ANALYZE and SHOW STATISTICS.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::settings::Settings;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_query::analyze::{Analyzed, Effort, analyze};
use cleave_query::listed_statistics;
use cleave_sql::statement::{Analyze, AnalyzeTable};

use super::{Outcome, Session, rights};
use crate::autovacuum::Pace;
use crate::paced::Paced;

/// How much of a table an automatic ANALYZE reads if no session's setting says so: PostgreSQL's default.
const AUTOMATIC_TARGET: u32 = 100;

/// Runs ANALYZE table by table, each as it is at that moment; the results before an error stay.
pub(super) async fn run(session: &Session, statement: Analyze) -> Result<Outcome> {
    let names_all = statement.tables.is_empty();
    let tables = if names_all { all_tables(&session.database.catalog()) } else { statement.tables };
    check_targets(&session.names(), &tables)?;
    let mut analyzed = Vec::with_capacity(tables.len());
    for AnalyzeTable { name, columns, position } in tables {
        // Nothing is kept about a table that others do not see.
        if session.names().table(&name).is_some_and(|table| session.owns(table.schema.table_id)) {
            continue;
        }
        rights::check_on(session, &session.names())?;
        match Box::pin(analyze(
            &session.database,
            session.in_force(),
            &name,
            &columns,
            Effort::Full,
        ))
        .await
        {
            Ok(found) => {
                session.database.analyses.note(found.table_id, false, columns.is_empty());
                analyzed.push(found);
            }
            // Dropped meanwhile.
            Err(Error::UnknownName { kind: NameKind::Relation, .. }) if names_all => {}
            Err(error) => return Err(error.at(position)),
        }
    }
    if statement.verbose { told(&analyzed) } else { Ok(Outcome::done("ANALYZE")) }
}

impl Session {
    /// Analyses the table `name`, beside others on one thread of the host and [at a pace](Paced), unless it is gone.
    pub(crate) async fn autoanalyze(&self, name: &str, pace: Pace) -> Result<()> {
        let mut settings = Settings::clone(self.in_force());
        if settings.limits.statistics_target == 0 {
            settings.limits.statistics_target = AUTOMATIC_TARGET;
        }
        let found = match pace {
            Pace::Beside => {
                settings.threads = 1;
                Paced::new(analyze(&self.database, &settings, name, &[], Effort::Full)).await
            }
            Pace::Alone(effort) => {
                Box::pin(analyze(&self.database, &settings, name, &[], effort)).await
            }
        };
        match found {
            Ok(found) => self.database.analyses.note(found.table_id, true, true),
            Err(Error::UnknownName { kind: NameKind::Relation, .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Runs SHOW STATISTICS; None: of all tables.
pub(super) async fn shown(session: &Session, table: Option<&str>) -> Result<Outcome> {
    // The statistics of a key follow the rows, those of small commits too.
    let state = session.database.snapshot(SnapshotKind::Flushed).await?;
    if let Some(name) = table {
        state.find_table(name)?;
        rights::check_on(session, &state)?;
    }
    let batch = listed_statistics::rows(&state, session.database.statistics(), table)?;
    Ok(Outcome::Rows { schema: batch.schema(), batches: vec![batch] })
}

/// All tables of `state`, each with all columns.
pub(super) fn all_tables(state: &CatalogState) -> Vec<AnalyzeTable> {
    let table =
        |name: &str| AnalyzeTable { name: name.to_owned(), columns: Vec::new(), position: None };
    state.table_names().map(table).collect()
}

/// Refuses names that are not in `state`, before the first table is read.
pub(super) fn check_targets(state: &CatalogState, tables: &[AnalyzeTable]) -> Result<()> {
    for target in tables {
        let table = match state.find_table(&target.name) {
            Err(Error::UnknownName { .. }) if state.has_index_named(&target.name) => {
                Err(super::indexes::wrong_kind(&target.name, "a table"))
            }
            found => found,
        };
        let table = table.map_err(|error| error.at(target.position))?;
        let schema = &table.schema;
        for column in &target.columns {
            if schema.column(column).is_none() {
                let names = schema.columns.iter().map(|column| column.name.as_str());
                let error = Error::unknown_column(&schema.name, column, names);
                return Err(error.at(target.position));
            }
        }
    }
    Ok(())
}

/// The analysed tables, one row each.
fn told(analyzed: &[Analyzed]) -> Result<Outcome> {
    let count = |of: fn(&Analyzed) -> u64| {
        let counts = analyzed.iter().map(|found| i64::try_from(of(found)).ok());
        Arc::new(counts.collect::<Int64Array>()) as ArrayRef
    };
    let names = analyzed.iter().map(|found| Some(found.table.as_str()));
    let columns: [(&str, ArrayRef); 5] = [
        ("table_name", Arc::new(names.collect::<StringArray>())),
        ("rows", count(|found| found.row_count)),
        ("rows_sampled", count(|found| found.sampled_count)),
        ("pages", count(|found| found.page_count)),
        ("pages_read", count(|found| found.pages_read)),
    ];
    let field = |(name, array): &(&str, ArrayRef)| {
        let data_type: &DataType = array.data_type();
        Field::new(*name, data_type.clone(), true)
    };
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}
