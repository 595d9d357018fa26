//! placeholder

pub mod proto;
pub mod schema;

pub use schema::{Column, ColumnType, SchemaError, TableSchema};
