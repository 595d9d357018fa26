//! placeholder

pub mod proto;
pub mod schema;

pub use schema::{Column, ColumnType, SchemaError, TableSchema};

pub mod frame;
pub mod zone_map;

pub use frame::{Format, FrameError};
pub use zone_map::{ZoneArrays, ZoneEntry, ZoneValue, zone_arrays};
