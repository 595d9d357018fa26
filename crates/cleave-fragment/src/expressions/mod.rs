//! Expressions that DataFusion lacks, and properties that it does not tell of its own.

pub mod absent_key;
pub mod key_filter;
pub mod key_set;
pub(crate) mod key_sink;
pub mod total;
