//! The rows of the table `cleave.tablets`: a snapshot's tables in, one row a tablet out.
//!
//! Everybody may read it, since names and sizes of tables are in `pg_class` as well. As there, rows are counted only
//! for roles that may read the table. No device is asked. The copies of a mirror are as they are now. Pages that are
//! shipped with a snapshot lie on no device, and are not counted.

use std::sync::Arc;

use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::catalog::{CatalogState, DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_engine::device::Device;
use cleave_engine::storage_engine::Engine;
use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};

use super::pg_catalog;
use super::statement_context::StatementContext;

/// Name of the table.
pub(super) const TABLE: &str = "tablets";

/// One row.
struct Listed {
    table: String,
    tablet: u32,
    device: String,
    /// Of a mirror, the devices that have its pages.
    copies: Option<String>,
    /// How the table is divided; None: it is not.
    division: Option<String>,
    /// None: the asker may not know.
    rows: Option<u64>,
    /// With its part of each index.
    bytes: u64,
    /// Those of the heap, and their pages.
    segments: usize,
    pages: u64,
}

/// The table's rows, for a reader of the snapshot of `context`.
///
/// # Errors
/// None that a statement is to blame for.
pub(super) fn batch(context: &StatementContext) -> Result<RecordBatch> {
    let (state, view) = (context.state(), pg_catalog::view(context));
    let engine = context.database().storage();
    let mut listed = Vec::new();
    for table in state.tables() {
        let may_count = view.may(table.schema.table_id, Privilege::Select);
        let tablets = table.tablets.iter();
        listed.extend(tablets.map(|tablet| Listed {
            copies: copies_of(engine, tablet.device),
            ..Listed::of(state, table, tablet, may_count)
        }));
    }
    as_batch(&listed)
}

impl Listed {
    fn of(state: &CatalogState, table: &TableState, tablet: &TabletState, may_count: bool) -> Self {
        let device = state.devices.get(&tablet.device);
        let stored = tablet.segments().filter(|segment| !segment.segment.is_shipped());
        let extents = stored.flat_map(|segment| segment.extents());
        let heap = || tablet.heap.iter().filter(|segment| !segment.segment.is_shipped());
        let is_divided = table.tablets.len() > 1;
        Self {
            table: table.schema.name.clone(),
            tablet: tablet.id.0,
            device: device.map_or_else(|| tablet.device.to_string(), |device| device.name.clone()),
            copies: None,
            division: is_divided.then(|| table.division.describe(&table.schema)),
            rows: may_count.then(|| tablet.row_count()),
            bytes: extents.map(|extent| extent.bytes() as u64).sum(),
            segments: heap().count(),
            pages: heap().map(|segment| segment.pages.len() as u64).sum(),
        }
    }
}

/// The copies of the mirror `device`, and which of them lack pages; None: it is no mirror.
fn copies_of(engine: &Engine, device: DeviceId) -> Option<String> {
    let mirror = engine.device(device).filter(|device| device.is_mirror())?;
    let told = |(copy, is_stale): (Arc<Device>, bool)| match is_stale {
        true => format!("{} (stale)", copy.name()),
        false => copy.name().to_owned(),
    };
    let copies: Vec<String> = mirror.copies().into_iter().map(told).collect();
    Some(copies.join(", "))
}

fn as_batch(tablets: &[Listed]) -> Result<RecordBatch> {
    let texts = |of: fn(&Listed) -> Option<&str>| -> ArrayRef {
        Arc::new(tablets.iter().map(of).collect::<StringArray>())
    };
    let counts = |of: fn(&Listed) -> i32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(tablets.iter().map(of)))
    };
    let numbers = |of: fn(&Listed) -> Option<u64>| -> ArrayRef {
        let number = |tablet: &Listed| of(tablet).map(|of| i64::try_from(of).unwrap_or(i64::MAX));
        Arc::new(tablets.iter().map(number).collect::<Int64Array>())
    };
    let columns = [
        ("table_name", false, texts(|tablet| Some(&tablet.table))),
        ("tablet", false, counts(|tablet| i32::try_from(tablet.tablet).unwrap_or(i32::MAX))),
        ("device", false, texts(|tablet| Some(&tablet.device))),
        ("copies", true, texts(|tablet| tablet.copies.as_deref())),
        ("division", true, texts(|tablet| tablet.division.as_deref())),
        ("rows", true, numbers(|tablet| tablet.rows)),
        ("bytes", false, numbers(|tablet| Some(tablet.bytes))),
        ("segments", false, counts(|tablet| i32::try_from(tablet.segments).unwrap_or(i32::MAX))),
        ("pages", false, numbers(|tablet| Some(tablet.pages))),
    ];
    let columns = columns.into_iter().map(|(name, nullable, values)| (name, values, nullable));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
