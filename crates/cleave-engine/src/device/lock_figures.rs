//! What the lock tables shared with devices have seen since the database was opened: the table `cleave.device_locks`.
//!
//! Two rows a device, one of the host's transactions and one of the device's jobs. They tell how often rows that nobody
//! else wanted were in the way of each other, because they share an entry.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_catalog::error::Result;
use cleave_shmem::LockFigures;

use super::Device;

/// Name of the table.
pub const TABLE: &str = "device_locks";

/// What one side of a device's lock table has seen.
struct Side {
    device: String,
    side: &'static str,
    figures: LockFigures,
    escalations: u64,
}

type Counter = fn(&Side) -> u64;

/// The columns behind device and side.
const COUNTERS: [(&str, Counter); 7] = [
    ("requests", |side| side.figures.requests),
    ("waits", |side| side.figures.waits),
    ("refusals", |side| side.figures.refusals),
    ("conflicts", |side| side.figures.conflicts()),
    ("false_conflicts", |side| side.figures.false_conflicts),
    ("overflows", |side| side.figures.overflows),
    ("escalations", |side| side.escalations),
];

/// The table's rows.
///
/// # Errors
/// None that a statement can cause.
pub fn batch(devices: &[Arc<Device>]) -> Result<RecordBatch> {
    let sides: Vec<Side> = devices.iter().flat_map(|device| sides_of(device)).collect();
    let text = |value: fn(&Side) -> &str| -> ArrayRef {
        Arc::new(sides.iter().map(|side| Some(value(side))).collect::<StringArray>())
    };
    let mut fields = vec![
        Field::new("device", DataType::Utf8, false),
        Field::new("side", DataType::Utf8, false),
    ];
    let mut columns = vec![text(|side| &side.device), text(|side| side.side)];
    for (name, counter) in COUNTERS {
        let counts = sides.iter().map(|side| i64::try_from(counter(side)).unwrap_or(i64::MAX));
        fields.push(Field::new(name, DataType::Int64, false));
        columns.push(Arc::new(Int64Array::from_iter_values(counts)));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// How often each side has waited at the lock table of `device`; none if it has no table.
pub fn waits(device: &Device) -> Vec<(&'static str, u64)> {
    sides_of(device).iter().map(|side| (side.side, side.figures.waits)).collect()
}

fn sides_of(device: &Device) -> Vec<Side> {
    let Some(locks) = device.shared_locks() else { return Vec::new() };
    let of = |side, figures, escalations| Side {
        device: device.name().to_owned(),
        side,
        figures,
        escalations,
    };
    vec![
        of("host", locks.host.figures(), 0),
        of("jobs", locks.host.figures_of_jobs(), locks.escalations()),
    ]
}
