//! Statistics as rows: one for each column that was analysed, with the names that PostgreSQL's `pg_stats` has.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_plan::ColumnStatistics;
use datafusion::common::ScalarValue;

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::Result;
use cleave_catalog::value::value_text;

use cleave_engine::statistics::StatisticsStore;

/// The statistics of `table`, or of all tables, by name and column.
///
/// # Errors
/// Values that cannot be shown.
pub fn rows(
    state: &CatalogState,
    store: &StatisticsStore,
    table: Option<&str>,
) -> Result<RecordBatch> {
    let mut rows: Vec<(&TableState, &str, ColumnStatistics)> = Vec::new();
    for found in state.tables() {
        if table.is_some_and(|wanted| wanted != found.schema.name) {
            continue;
        }
        let Some(statistics) = store.get(found.schema.table_id) else { continue };
        for column in &found.schema.columns {
            if let Some(known) = statistics.columns.get(&column.id) {
                rows.push((found, &column.name, known.clone()));
            }
        }
    }
    let text = |name: &str, of: &dyn Fn(&ColumnStatistics) -> Result<Option<String>>| {
        let texts = rows.iter().map(|(_, _, known)| of(known)).collect::<Result<StringArray>>();
        Ok::<_, cleave_catalog::error::Error>((name.to_owned(), Arc::new(texts?) as ArrayRef))
    };
    let number = |name: &str, of: &dyn Fn(&ColumnStatistics) -> f64| {
        let numbers: Float64Array = rows.iter().map(|(_, _, known)| Some(of(known))).collect();
        (name.to_owned(), Arc::new(numbers) as ArrayRef)
    };
    let count = |name: &str, of: &dyn Fn(&TableState, &ColumnStatistics) -> u64| {
        let of = |(table, _, known): &(&TableState, &str, ColumnStatistics)| {
            i64::try_from(of(table, known)).ok()
        };
        (name.to_owned(), Arc::new(rows.iter().map(of).collect::<Int64Array>()) as ArrayRef)
    };
    let names = rows.iter().map(|(table, ..)| Some(table.schema.name.as_str()));
    let columns = rows.iter().map(|(_, column, _)| Some(*column));
    let columns = vec![
        ("tablename".to_owned(), Arc::new(names.collect::<StringArray>()) as ArrayRef),
        ("attname".to_owned(), Arc::new(columns.collect::<StringArray>()) as ArrayRef),
        count("rows", &|_, known| known.row_count),
        count("rows_sampled", &|_, known| known.sampled_count),
        number("null_frac", &|known| rounded(known.null_fraction)),
        number("avg_width", &|known| rounded(known.average_width)),
        count("n_distinct", &|table, known| {
            whole(known.distinct_count_at(table.row_count() as f64))
        }),
        text("min", &|known| known.min.as_ref().map(shown).transpose())?,
        text("max", &|known| known.max.as_ref().map(shown).transpose())?,
        text("most_common_vals", &|known| list(known.common.iter().map(|(value, _)| value)))?,
        text("most_common_freqs", &|known| {
            let shares = known.common.iter().map(|(_, share)| rounded(*share).to_string());
            Ok(braced(&shares.collect::<Vec<_>>()))
        })?,
        text("histogram_bounds", &|known| list(known.histogram.iter()))?,
    ];
    let field = |(name, array): &(String, ArrayRef)| {
        let data_type: &DataType = array.data_type();
        Field::new(name, data_type.clone(), true)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    Ok(RecordBatch::try_new(Arc::new(schema), arrays)?)
}

/// A value as its text.
fn shown(value: &ScalarValue) -> Result<String> {
    Ok(value_text(&value.to_array()?, 0)?.unwrap_or_default())
}

/// Values as PostgreSQL writes an array of them; None for none.
fn list<'a>(values: impl Iterator<Item = &'a ScalarValue>) -> Result<Option<String>> {
    let quoted = |value: &ScalarValue| {
        let text = shown(value)?;
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '+');
        let is_plain = !text.is_empty() && text.chars().all(plain);
        let escaped = || text.replace('\\', "\\\\").replace('"', "\\\"");
        Ok(if is_plain { text.clone() } else { format!("\"{}\"", escaped()) })
    };
    Ok(braced(&values.map(quoted).collect::<Result<Vec<_>>>()?))
}

fn braced(items: &[String]) -> Option<String> {
    (!items.is_empty()).then(|| format!("{{{}}}", items.join(",")))
}

/// To five digits after the point.
fn rounded(share: f64) -> f64 {
    (share * 1e5).round() / 1e5
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, saturating")]
fn whole(count: f64) -> u64 {
    count.round().max(0.0) as u64
}
