//! Pages in, record batches out: the other half of [`crate::page`].
//!
//! 1. [`Projection`] says which columns, under which Arrow schema; version columns are columns like any other.
//! 2. [`decode_batch`] takes the chunks of one page and a selection of its rows.
//! 3. [`OpenColumn`] is one column of a page, for readers that decide column by column which rows they still need.
//! 4. [`decode_rows`] takes a few slots, as RecIDs name them, and copies their rows out of the page; [`OpenedPage`]
//!    does the same again and again.
//!
//! Invariant: decoding needs no page but the one given and the overflow pages that
//! [`crate::page::overflow::overflow_pages`] named; without long values or a selection plain chunks are not copied.

pub mod batch;
pub mod column;
pub mod opened;
pub mod row;

pub use crate::page::encoding::Pick;
pub use batch::{Projection, decode_batch};
pub use column::OpenColumn;
pub use opened::OpenedPage;
pub use row::decode_rows;
