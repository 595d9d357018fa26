//! ANALYZE and SHOW STATISTICS.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::{Outcome, Session};
use crate::error::{Error, NameKind, Result};
use crate::statement::{Analyze, AnalyzeTable};
use crate::statistics::analyze::{Analyzed, analyze};
use crate::statistics::listing;
use crate::storage_engine::snapshot::SnapshotKind;

impl Session {
    /// Table by table, each as it is when its turn comes; what was found of those before an error stays.
    pub(super) async fn analyze(&self, statement: Analyze) -> Result<Outcome> {
        let names_all = statement.tables.is_empty();
        let tables = if names_all { self.all_tables() } else { statement.tables };
        self.check_targets(&tables)?;
        let mut analyzed = Vec::with_capacity(tables.len());
        for AnalyzeTable { name, columns, position } in tables {
            // Of what others do not see nothing is kept.
            if self.names().table(&name).is_some_and(|table| self.owns(table.schema.table_id)) {
                continue;
            }
            self.check_on(&self.names())?;
            match Box::pin(analyze(&self.database, self.in_force(), &name, &columns)).await {
                Ok(found) => analyzed.push(found),
                // Dropped meanwhile.
                Err(Error::UnknownName { kind: NameKind::Table, .. }) if names_all => {}
                Err(error) => return Err(error.at(position)),
            }
        }
        if statement.verbose { told(&analyzed) } else { Ok(Outcome::done("ANALYZE")) }
    }

    pub(super) async fn show_statistics(&self, table: Option<&str>) -> Result<Outcome> {
        // A key's values grow with the rows, those of small commits too.
        let state = self.database.snapshot(SnapshotKind::Flushed).await?;
        if let Some(name) = table {
            state.find_table(name)?;
            self.check_on(&state)?;
        }
        let batch = listing::rows(&state, self.database.statistics(), table)?;
        Ok(Outcome::Rows { schema: batch.schema(), batches: vec![batch] })
    }

    pub(super) fn all_tables(&self) -> Vec<AnalyzeTable> {
        let state = self.database.catalog();
        let table = |name: &str| AnalyzeTable {
            name: name.to_owned(),
            columns: Vec::new(),
            position: None,
        };
        state.table_names().map(table).collect()
    }

    /// All names, before the first table is read.
    pub(super) fn check_targets(&self, tables: &[AnalyzeTable]) -> Result<()> {
        let state = self.names();
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
}

/// What was analysed, a row a table.
fn told(analyzed: &[Analyzed]) -> Result<Outcome> {
    let count = |of: fn(&Analyzed) -> u64| {
        let counts = analyzed.iter().map(|found| i64::try_from(of(found)).ok());
        Arc::new(counts.collect::<Int64Array>()) as ArrayRef
    };
    let names = analyzed.iter().map(|found| Some(found.table.as_str()));
    let columns: [(&str, ArrayRef); 4] = [
        ("table_name", Arc::new(names.collect::<StringArray>())),
        ("rows", count(|found| found.row_count)),
        ("rows_sampled", count(|found| found.sampled_count)),
        ("pages", count(|found| found.page_count)),
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
