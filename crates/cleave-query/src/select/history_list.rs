//! The rows of the table `cleave.filter_history`: what the host and each device [keep](cleave_fragment::filter_history)
//! of which rows conditions were true for.
//!
//! The devices are asked as for `cleave.devices`. One that does not answer in time has a row with NULLs, and why it has
//! not answered. The embedded device uses the history of the host, whose row stands for both.

use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::{Error, Result};
use cleave_engine::device::health;
use cleave_fragment::filter_history::HistoryFigures;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::query_engine::QueryEngine;

/// Name of the table.
pub(super) const TABLE: &str = "filter_history";
/// What the host is called in it, which is no name of a device.
const HOST: &str = "";

/// The table's rows, the host's first.
///
/// # Errors
/// None that a statement or a device can cause.
pub(super) async fn batch(database: &QueryEngine) -> Result<RecordBatch> {
    let mut rows = vec![(HOST.to_owned(), Ok(database.filter_history().figures()))];
    let embedded = database.device(DeviceId::EMBEDDED);
    let shares = |name: &str| embedded.as_ref().is_some_and(|device| device.name() == name);
    let devices = health::statuses(database.storage()).await.into_iter();
    let devices = devices.filter(|(name, _)| !shares(name));
    rows.extend(devices.map(|(name, status)| (name, status.map(|status| status.history))));
    as_batch(&rows)
}

fn as_batch(rows: &[(String, Result<HistoryFigures>)]) -> Result<RecordBatch> {
    let names = rows.iter().map(|(name, _)| (name != HOST).then_some(name));
    let errors = rows.iter().map(|(_, told)| told.as_ref().err().map(Error::to_string));
    let numbers = |of: fn(&HistoryFigures) -> u64| -> ArrayRef {
        let number = |(_, told): &(String, Result<HistoryFigures>)| {
            Some(i64::try_from(of(told.as_ref().ok()?)).unwrap_or(i64::MAX))
        };
        Arc::new(rows.iter().map(number).collect::<Int64Array>())
    };
    let columns: [(&str, ArrayRef); 8] = [
        ("device", Arc::new(names.collect::<StringArray>())),
        ("conditions", numbers(|figures| figures.leaves)),
        ("entries", numbers(|figures| figures.entries)),
        ("bytes", numbers(|figures| figures.bytes)),
        ("bytes_max", numbers(|figures| figures.bytes_max)),
        ("hits", numbers(|figures| figures.hits)),
        ("misses", numbers(|figures| figures.misses)),
        ("error", Arc::new(errors.collect::<StringArray>())),
    ];
    let columns = columns.into_iter().map(|(name, values)| (name, values, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
