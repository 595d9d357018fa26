//! SHOW: settings and tables. SHOW STATISTICS is in [`super::statistics`].

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_engine::storage_engine::snapshot::SnapshotKind;

use super::{Outcome, Session, rights, system};

/// Runs SHOW of one setting, of the session or the database.
pub(super) fn one(session: &Session, name: &str) -> Result<Outcome> {
    let value = match system::show(&session.database, &session.seen_log, name) {
        Some(value) => value,
        None => session.in_force().show(name)?,
    };
    text_rows(&name.to_lowercase(), vec![value])
}

/// Runs SHOW ALL.
pub(super) fn all(settings: &Settings) -> Result<Outcome> {
    let rows = settings.show_all();
    let column = |name: &str| Field::new(name, DataType::Utf8, false);
    let schema =
        Arc::new(Schema::new(vec![column("name"), column("setting"), column("description")]));
    let batch = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(rows.iter().map(|row| Some(row.name)).collect::<StringArray>()),
            Arc::new(rows.iter().map(|row| Some(row.value.as_str())).collect::<StringArray>()),
            Arc::new(rows.iter().map(|row| Some(row.description)).collect::<StringArray>()),
        ],
    )?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}

/// Runs SHOW TABLES.
pub(super) async fn tables(session: &Session) -> Result<Outcome> {
    let state = session
        .defined()
        .over(&session.database, session.database.snapshot(SnapshotKind::Flushed).await?);
    // The row count is not told for a damaged table, nor for one that the session may not read.
    let count = |table: &TableState| {
        rights::may_count(&session.settings, session.defined(), &state, table.schema.table_id)
            .then(|| table.row_count())
    };
    let sound = state.tables().map(|table| (&*table.schema.name, count(table)));
    let damaged = state.damaged_tables().map(|table| (&*table.schema.name, None));
    let mut tables: Vec<(&str, Option<u64>)> = sound.chain(damaged).collect();
    tables.sort_unstable();
    let schema = Arc::new(Schema::new(vec![
        Field::new("table_name", DataType::Utf8, false),
        Field::new("rows", DataType::UInt64, true),
    ]));
    let names: StringArray = tables.iter().map(|(name, _)| Some(*name)).collect();
    let rows: UInt64Array = tables.iter().map(|(_, rows)| *rows).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(names), Arc::new(rows)])?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}

fn text_rows(column: &str, lines: Vec<String>) -> Result<Outcome> {
    let schema = Arc::new(Schema::new(vec![Field::new(column, DataType::Utf8, false)]));
    let batch =
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(lines))])?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}
