//! Pages in, record batches out: the other half of [`crate::page`].
//!
//! 1. [`Projection`] says which columns, under which Arrow schema. Version columns are columns like any other.
//! 2. [`decode_batch`] takes the chunks of one page and a selection of its rows.
//! 3. [`OpenColumn`] is one column of a page, for readers that decide column by column which rows they still need.
//! 4. [`decode_rows`] copies the rows at a few slots (those of RecIDs) out of a page; [`OpenedPage`] does so
//!    repeatedly.
//!
//! Invariant: decoding needs no page but the given one and the overflow pages that
//! [`crate::page::overflow::overflow_pages`] named. Plain chunks are not copied unless values are long or rows are
//! selected.

pub mod batch;
pub mod column;
pub mod opened;
pub mod row;

pub use crate::page::encoding::Pick;
pub use batch::{Projection, decode_batch};
pub use column::OpenColumn;
pub use opened::OpenedPage;
pub use row::decode_rows;
