//! The rows of the table `cleave.fragments`: the fragments on each device that the host has not released yet.
//!
//! The devices are asked as for `cleave.devices`. One that does not answer in time has a row with NULLs, and why it has
//! not answered. What a fragment computes stands in `pg_stat_activity`, with the statement.

use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_engine::device::health;
use cleave_fragment::command::RunStatus;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::query_engine::QueryEngine;

/// Name of the table.
pub(super) const TABLE: &str = "fragments";

/// One row: the device, and a run of it or why it has not told them.
struct Listed {
    device: String,
    told: std::result::Result<RunStatus, String>,
}

/// The table's rows.
///
/// # Errors
/// None that a statement or a device can cause.
pub(super) async fn batch(database: &QueryEngine) -> Result<RecordBatch> {
    let mut listed = Vec::new();
    for (device, status) in health::statuses(database.storage()).await {
        match status {
            Ok(status) => listed.extend(
                status.runs.into_iter().map(|run| Listed { device: device.clone(), told: Ok(run) }),
            ),
            Err(error) => listed.push(Listed { device, told: Err(error.to_string()) }),
        }
    }
    as_batch(&listed)
}

fn as_batch(listed: &[Listed]) -> Result<RecordBatch> {
    let numbers = |of: fn(&RunStatus) -> u64| -> ArrayRef {
        let number = |listed: &Listed| {
            let number = of(listed.told.as_ref().ok()?);
            Some(i64::try_from(number).unwrap_or(i64::MAX))
        };
        Arc::new(listed.iter().map(number).collect::<Int64Array>())
    };
    let devices = listed.iter().map(|listed| Some(listed.device.as_str()));
    let states = listed.iter().map(|listed| Some(listed.told.as_ref().ok()?.state.to_string()));
    let errors = listed.iter().map(|listed| listed.told.as_ref().err());
    let columns: [(&str, ArrayRef); 7] = [
        ("device", Arc::new(devices.collect::<StringArray>())),
        ("run", numbers(|run| run.run)),
        ("state", Arc::new(states.collect::<StringArray>())),
        ("slots", numbers(|run| run.slots)),
        ("slots_consumed", numbers(|run| run.consumed)),
        ("memory_bytes", numbers(|run| run.memory_bytes)),
        ("error", Arc::new(errors.collect::<StringArray>())),
    ];
    let columns = columns.into_iter().map(|(name, values)| (name, values, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
