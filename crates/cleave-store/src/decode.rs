//! Pages in, record batches out: the other half of [`crate::page`].
//!
//! 1. [`Projection`] says which columns, under which Arrow schema; version columns are columns like any other.
//! 2. [`decode_batch`] takes the chunks of one page and a selection of its rows.
//! 3. [`decode_row`] takes one slot, as a RecID names it, and copies it out of the page.
//!
//! Invariant: decoding needs no page but the one given and the overflow pages that
//! [`crate::page::overflow::overflow_pages`] named; without long values or a selection nothing is copied.

pub mod batch;
pub mod row;

pub use batch::{Projection, decode_batch};
pub use row::decode_row;
