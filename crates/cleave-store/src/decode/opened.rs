//! A page whose columns are opened once, for repeated reads of few of its rows: slots in, their rows out.
//!
//! ```text
//!  PageColumns ─▶ OpenedPage::open: heads read, text checked ─▶ kept beside the page ─▶ rows, rows, rows …
//! ```
//!
//! [`decode_rows`](super::decode_rows) opens the columns on each call, which costs more than reading the row.
//!
//! Invariants: the rows own their memory, so keeping them does not keep the page. The result is that of
//! [`decode_rows`](super::decode_rows). A page with long values in a column cannot be opened, since these lie in
//! overflow pages.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch};
use bytes::Bytes;

use super::batch::{Lacking, Projection, batch, mismatch};
use crate::error::{Corruption, StoreError};
use crate::page::encoding::{Chunk, OpenChunk, Pick, size_of};
use crate::page::header::{PageHeader, PageKind, corrupt};
use crate::page::overflow::OverflowValues;
use crate::page_source::{ColumnRef, PageColumns, PageRead};

/// Approximate memory of an opened column beside its chunk.
const COLUMN_BYTES: usize = 256;

/// See the module's description.
#[derive(Debug)]
pub struct OpenedPage {
    header: Arc<PageHeader>,
    /// Ascending.
    columns: Vec<OpenedColumn>,
}

#[derive(Debug)]
struct OpenedColumn {
    column: ColumnRef,
    bytes: Option<Bytes>,
    /// None: the page has no such column.
    chunk: Option<Box<OpenChunk>>,
}

impl OpenedPage {
    /// The columns of `page`, which `read` names; None if some of their values are long.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a page without rows, or a chunk that does not open.
    pub fn open(page: &PageColumns, read: &PageRead) -> Result<Option<Self>, StoreError> {
        let header = &page.header;
        if header.kind == PageKind::Overflow {
            let reason = Corruption::Field { field: "kind", found: 0, expected: None };
            return Err(corrupt(&read.page, &read.segment, None, reason));
        }
        let is_long = |column: &ColumnRef| {
            header.entry(*column).is_some_and(|entry| entry.overflow_count > 0)
        };
        if read.columns.iter().any(is_long) {
            return Ok(None);
        }
        let mut columns: Vec<OpenedColumn> = Vec::with_capacity(read.columns.len());
        for (column, bytes) in read.columns.iter().zip(&page.chunks) {
            let chunk = header.entry(*column).map(|entry| {
                let chunk = Chunk { read, header, entry, bytes: bytes.as_ref() };
                chunk.open(&OverflowValues::none(), None).map(Box::new)
            });
            let (bytes, chunk) = (bytes.clone(), chunk.transpose()?);
            columns.push(OpenedColumn { column: *column, bytes, chunk });
        }
        columns.sort_by_key(|opened| opened.column);
        columns.dedup_by_key(|opened| opened.column);
        Ok(Some(Self { header: Arc::clone(header), columns }))
    }

    /// The page's table of contents.
    #[must_use]
    pub fn header(&self) -> &Arc<PageHeader> {
        &self.header
    }

    /// Its columns that are opened.
    pub fn columns(&self) -> impl Iterator<Item = ColumnRef> {
        self.columns.iter().map(|opened| opened.column)
    }

    /// Whether all of `columns` are opened.
    #[must_use]
    pub fn has(&self, columns: &[ColumnRef]) -> bool {
        columns.iter().all(|column| self.find(*column).is_some())
    }

    /// The verified bytes of an opened column; an inner None: the page stores none.
    #[must_use]
    pub fn chunk(&self, column: ColumnRef) -> Option<Option<Bytes>> {
        self.find(column).map(|opened| opened.bytes.clone())
    }

    /// Approximate memory in bytes, once every column was read.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        let stored = |opened: &OpenedColumn| opened.bytes.as_ref().map_or(0, Bytes::len);
        self.columns.iter().map(stored).sum::<usize>().saturating_add(self.own_byte_count())
    }

    /// The same, without the chunks that it was opened from.
    #[must_use]
    pub fn own_byte_count(&self) -> usize {
        let own = |opened: &OpenedColumn| {
            let later = opened.chunk.as_ref().map_or(0, |chunk| chunk.later_bytes());
            later.saturating_add(COLUMN_BYTES)
        };
        self.columns.iter().map(own).sum()
    }

    /// The columns of `projection` of the rows at `slots`, in their order.
    ///
    /// # Errors
    /// As [`decode_rows`](super::decode_rows).
    pub fn rows(&self, slots: &[u16], projection: &Projection) -> Result<RecordBatch, StoreError> {
        if let Some(slot) = slots.iter().find(|slot| u32::from(**slot) >= self.header.row_count) {
            return Err(StoreError::Mismatch {
                what: "reading a row",
                reason: format!("slot {slot} of a page of {} rows", self.header.row_count),
            });
        }
        let fields = projection.schema.fields();
        if fields.len() != projection.columns.len() {
            return Err(mismatch("a projection with more or fewer fields than columns".into()));
        }
        let slots: Vec<usize> = slots.iter().copied().map(usize::from).collect();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(fields.len());
        for (field, column) in fields.iter().zip(&projection.columns) {
            let opened = self.find(*column);
            let opened = opened.ok_or_else(|| mismatch(format!("{column} was not opened")))?;
            let Some(chunk) = &opened.chunk else {
                let lacking = Lacking::of(*column, field.data_type(), &projection.absent);
                arrays.push(lacking.array(slots.len())?);
                continue;
            };
            let array = chunk.few(&slots)?;
            if array.data_type() != field.data_type() {
                return Err(mismatch(format!(
                    "{column} is {} in the page and {} in the projection",
                    array.data_type(),
                    field.data_type()
                )));
            }
            arrays.push(array);
        }
        batch(projection, arrays, slots.len())
    }

    /// Rows of the page.
    pub(crate) fn row_count(&self) -> usize {
        size_of(self.header.row_count)
    }

    /// All values of a column of bytes that is stored plain.
    pub(crate) fn binary(&self, column: ColumnRef) -> Option<&BinaryArray> {
        self.find(column)?.chunk.as_ref()?.stored_array()?.as_binary_opt()
    }

    /// The unsigned values of a column at `slots`, appended to `target`.
    pub(crate) fn unsigned(
        &self,
        column: ColumnRef,
        slots: std::ops::Range<usize>,
        target: &mut Vec<u64>,
    ) -> Result<(), StoreError> {
        let opened = self.find(column).and_then(|opened| opened.chunk.as_ref());
        let chunk = opened.ok_or_else(|| mismatch(format!("{column} is not in the page")))?;
        if slots.end > self.row_count() {
            let reason = format!("rows {slots:?} of {}", self.row_count());
            return Err(StoreError::Mismatch { what: "decoding a column", reason });
        }
        let array = chunk.decode(&Pick::new(slots, None, 1)?)?;
        let values = array.as_primitive_opt::<UInt64Type>();
        let values = values.ok_or_else(|| mismatch(format!("{column} is of another type")))?;
        target.extend_from_slice(values.values());
        Ok(())
    }

    fn find(&self, column: ColumnRef) -> Option<&OpenedColumn> {
        let place = self.columns.binary_search_by_key(&column, |opened| opened.column);
        self.columns.get(place.ok()?)
    }
}
