//! What a statement and a catalog gave, as the model has it.

use arrow::array::ArrayRef;
use cleave_host::value::value_text;
use cleave_host::{CatalogState, Outcome};

use super::Found;
use crate::model::Query;

/// The rows of one query, values joined by commas.
pub(super) fn rows_of(outcomes: &[Outcome]) -> Found<Vec<String>> {
    let [Outcome::Rows { batches, .. }] = outcomes else {
        return Err(format!("no rows but {outcomes:?}"));
    };
    let mut found = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| match value_text(column, row) {
                Ok(text) => text.unwrap_or_else(|| "NULL".to_owned()),
                Err(error) => error.to_string(),
            };
            found.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(","));
        }
    }
    Ok(found)
}

/// What is wrong with the rows that were `found` where others are `expected`.
pub(super) fn differing(query: &Query, expected: &[String], found: &[String]) -> String {
    let missing: Vec<_> = expected.iter().filter(|row| !found.contains(row)).take(5).collect();
    let surplus: Vec<_> = found.iter().filter(|row| !expected.contains(row)).take(5).collect();
    format!(
        "{}: {} rows where {} are due; missing {missing:?}, surplus {surplus:?}",
        query.sql(),
        found.len(),
        expected.len()
    )
}

/// See [`Model::shape`](crate::model::Model::shape).
pub(super) fn shape_of(catalog: &CatalogState) -> Vec<String> {
    let mut lines = Vec::new();
    for table in catalog.tables() {
        if table.materialized.is_some() {
            lines.push(format!("materialized view {}", table.schema.name));
            continue;
        }
        let columns: Vec<_> =
            table.schema.columns.iter().map(|column| column.name.as_str()).collect();
        lines.push(format!("table {} ({})", table.schema.name, columns.join(", ")));
    }
    let indexes = catalog.indexes();
    lines.extend(
        indexes.map(|(table, index)| format!("index {} of {}", index.name, table.schema.name)),
    );
    lines.extend(catalog.view_names().map(|name| format!("view {name}")));
    lines.extend(catalog.sequence_names().map(|name| format!("sequence {name}")));
    lines.sort();
    lines
}
