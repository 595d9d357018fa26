//! Expressions that the engine does not have, and what it does not tell of its own.

pub mod key_filter;
pub mod key_set;
pub mod total;
