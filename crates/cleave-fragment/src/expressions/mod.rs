//! Expressions that the engine does not have.

pub mod key_set;
