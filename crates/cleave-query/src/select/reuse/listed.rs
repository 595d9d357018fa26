//! The rows of the table `cleave.result_sets`: held results, result sets and materialized views in, a batch out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cleave_catalog::catalog::view::Materialized;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::Result;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};

use super::{HeldResult, first_of};
use crate::populations::Populations;
use crate::query_engine::QueryEngine;
use crate::result_sets::ResultSet;

/// One row.
pub(super) struct Listed {
    name: String,
    owner: &'static str,
    statement: String,
    rows: u64,
    bytes: u64,
    device: String,
    state: String,
    uses: Option<u64>,
    age: Option<Duration>,
    cost: Option<Duration>,
}

impl Listed {
    /// That of a held result, as a reader of `state` sees it.
    pub(super) fn of_result(state: &CatalogState, result: &HeldResult) -> Self {
        Self {
            name: format!("result {}", result.number),
            owner: "result cache",
            statement: result.wanted.text.clone(),
            rows: result.rows.row_count as u64,
            bytes: result.rows.bytes(),
            device: "host".to_owned(),
            state: if result.is_valid_in(state) { "valid" } else { "outdated" }.to_owned(),
            uses: Some(result.uses.load(Ordering::Relaxed)),
            age: Some(result.made.elapsed()),
            cost: Some(result.cost),
        }
    }

    /// That of a result set on a device; `held`: whether a reader may use it, if it is held.
    pub(super) fn of_set((set, held): &(Arc<ResultSet>, Option<bool>)) -> Self {
        let (owner, state) = match held {
            None => (set.about.owner, "in use"),
            Some(true) => ("result cache", "valid"),
            Some(false) => ("result cache", "outdated"),
        };
        Self {
            name: format!("{} {}", set.about.name, set.number),
            owner,
            statement: first_of(&set.about.statement),
            rows: set.table.row_count(),
            bytes: set.bytes(),
            device: set.devices(),
            state: state.to_owned(),
            uses: Some(set.uses.load(Ordering::Relaxed)),
            age: Some(set.made.elapsed()),
            cost: Some(set.cost),
        }
    }

    /// That of a materialized view of `state`.
    pub(super) fn of_view(
        state: &CatalogState,
        (table, view): (&Arc<TableState>, &Materialized),
        populations: &Populations,
    ) -> Self {
        let extents = table.tablets.iter().flat_map(|tablet| tablet.extents());
        let names = table.devices().into_iter().filter_map(|id| state.devices.get(&id));
        Self {
            name: table.schema.name.clone(),
            owner: "materialized view",
            statement: first_of(&view.query),
            rows: table.row_count(),
            bytes: extents.map(|extent| extent.bytes() as u64).sum(),
            device: names.map(|device| device.name.as_str()).collect::<Vec<_>>().join(", "),
            state: match view.is_populated {
                true => "populated".to_owned(),
                false => populations.state_of(table.schema.table_id),
            },
            uses: None,
            age: None,
            cost: None,
        }
    }
}

/// The rows of the table `cleave.result_sets` for a reader of `state`.
///
/// # Errors
/// None that a statement is to blame for.
pub(in crate::select) fn batch(
    database: &QueryEngine,
    state: &CatalogState,
) -> Result<RecordBatch> {
    let results = database.results.held().results.clone();
    let held = results.iter().map(|result| Listed::of_result(state, result));
    let sets = database.result_sets.list(state);
    let views = state.materialized_views();
    let views = views.map(|view| Listed::of_view(state, view, &database.populations));
    as_batch(&held.chain(sets.iter().map(Listed::of_set)).chain(views).collect::<Vec<_>>())
}

fn as_batch(sets: &[Listed]) -> Result<RecordBatch> {
    let texts = |of: fn(&Listed) -> &str| -> ArrayRef {
        Arc::new(sets.iter().map(|set| Some(of(set))).collect::<StringArray>())
    };
    let numbers = |of: fn(&Listed) -> Option<u64>| -> ArrayRef {
        let number = |set: &Listed| of(set).map(|of| i64::try_from(of).unwrap_or(i64::MAX));
        Arc::new(sets.iter().map(number).collect::<Int64Array>())
    };
    let times = |of: fn(&Listed) -> Option<Duration>| -> ArrayRef {
        let ms = |set: &Listed| of(set).map(|time| time.as_secs_f64() * 1e3);
        Arc::new(sets.iter().map(ms).collect::<Float64Array>())
    };
    let columns = [
        ("name", false, texts(|set| &set.name)),
        ("owner", false, texts(|set| set.owner)),
        ("statement", false, texts(|set| &set.statement)),
        ("rows", false, numbers(|set| Some(set.rows))),
        ("bytes", false, numbers(|set| Some(set.bytes))),
        ("device", false, texts(|set| &set.device)),
        ("state", false, texts(|set| &set.state)),
        ("uses", true, numbers(|set| set.uses)),
        ("age_ms", true, times(|set| set.age)),
        ("cost_ms", true, times(|set| set.cost)),
    ];
    let columns = columns.into_iter().map(|(name, nullable, values)| (name, values, nullable));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
