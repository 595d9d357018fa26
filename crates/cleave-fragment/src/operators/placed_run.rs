//! The result of a fragment that writes a run: one row for each page, and a last one for the whole run.
//!
//! ```text
//!   page  start  block_count  row_count  checksum  first_key  last_key │ entry_count  filter_kind  filter
//!   0     640    16           3120       …         …          …        │ NULL         NULL         NULL
//!   1     656    16           3104       …         …          …        │ NULL         NULL         NULL
//!   NULL  …                                                            │ 6224         1            …
//! ```
//!
//! [`PlacedRows`] makes the rows where the fragment runs, [`PlacedRun::read`] reads them on the host. Invariant: the
//! last row is there exactly once, so that a truncated result is refused. The host checks that the pages lie where they
//! may and that their keys are in order.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch, UInt32Builder, UInt64Builder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use cleave_media::{BlockAddress, Extent};
use cleave_store::index::run::KEY_COLUMN;
use cleave_store::{KeyFilter, PageEntry, PageRef, VidGaps, ZoneEntry, ZoneValue};

/// The columns of the rows.
pub fn placed_schema() -> SchemaRef {
    let column = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        column("page", DataType::UInt32),
        column("start", DataType::UInt64),
        column("block_count", DataType::UInt32),
        column("row_count", DataType::UInt32),
        column("checksum", DataType::UInt32),
        column("first_key", DataType::Binary),
        column("last_key", DataType::Binary),
        column("entry_count", DataType::UInt64),
        column("filter_kind", DataType::UInt32),
        column("filter", DataType::Binary),
    ]))
}

/// Builds the rows.
#[derive(Debug, Default)]
pub struct PlacedRows {
    page: UInt32Builder,
    start: UInt64Builder,
    block_count: UInt32Builder,
    row_count: UInt32Builder,
    checksum: UInt32Builder,
    first_key: BinaryBuilder,
    last_key: BinaryBuilder,
    entry_count: UInt64Builder,
    filter_kind: UInt32Builder,
    filter: BinaryBuilder,
    len: usize,
}

impl PlacedRows {
    /// Rows that were not yet taken.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a page whose first and last key are in `zones`.
    ///
    /// # Errors
    /// For a page without them.
    pub fn push(&mut self, page: &PageRef, zones: &[ZoneEntry]) -> Result<(), ArrowError> {
        let zone = zones.iter().find(|zone| zone.column == KEY_COLUMN);
        let fence = |value: &Option<ZoneValue>| value.as_ref()?.bytes().map(<[u8]>::to_vec);
        let fences = zone.and_then(|zone| fence(&zone.min).zip(fence(&zone.max)));
        let (first, last) = fences.ok_or_else(|| malformed("a page without keys"))?;
        self.page.append_value(page.page);
        self.start.append_value(page.extent.start.0);
        self.block_count.append_value(page.extent.block_count);
        self.row_count.append_value(page.row_count);
        self.checksum.append_value(page.checksum);
        self.first_key.append_value(first);
        self.last_key.append_value(last);
        self.entry_count.append_null();
        self.filter_kind.append_null();
        self.filter.append_null();
        self.len += 1;
        Ok(())
    }

    /// Adds the last row.
    pub fn end(&mut self, entry_count: u64, filter: Option<KeyFilter>) {
        self.page.append_null();
        self.start.append_null();
        self.block_count.append_null();
        self.row_count.append_null();
        self.checksum.append_null();
        self.first_key.append_null();
        self.last_key.append_null();
        self.entry_count.append_value(entry_count);
        self.filter_kind.append_option(filter.as_ref().map(|filter| filter.kind));
        self.filter.append_option(filter.map(|filter| filter.bytes));
        self.len += 1;
    }

    /// Takes the rows so far.
    ///
    /// # Errors
    /// None that these columns can cause.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.len = 0;
        RecordBatch::try_new(
            placed_schema(),
            vec![
                Arc::new(self.page.finish()),
                Arc::new(self.start.finish()),
                Arc::new(self.block_count.finish()),
                Arc::new(self.row_count.finish()),
                Arc::new(self.checksum.finish()),
                Arc::new(self.first_key.finish()),
                Arc::new(self.last_key.finish()),
                Arc::new(self.entry_count.finish()),
                Arc::new(self.filter_kind.finish()),
                Arc::new(self.filter.finish()),
            ],
        )
    }
}

/// A run that a fragment wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedRun {
    /// Its pages.
    pub pages: Vec<PageEntry>,
    /// Entries that were written.
    pub entry_count: u64,
    /// The filter over its keys.
    pub filter: Option<KeyFilter>,
}

impl PlacedRun {
    /// Reads the whole result of a fragment.
    ///
    /// # Errors
    /// [`ArrowError::SchemaError`] or [`ArrowError::ParseError`] for rows that no [`PlacedRows`] made.
    pub fn read(batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let mut pages = Vec::new();
        let mut end = None;
        for batch in batches {
            if batch.schema().fields() != placed_schema().fields() {
                let message = format!("a placed run has other columns: {}", batch.schema());
                return Err(ArrowError::SchemaError(message));
            }
            for row in 0..batch.num_rows() {
                if end.is_some() {
                    return Err(malformed("a row behind the last one"));
                }
                let row = PlacedRow { batch, row };
                match row.number(0) {
                    Some(page) => pages.push(row.page(page).ok_or_else(|| malformed("a gap"))?),
                    None => end = Some(row.end().ok_or_else(|| malformed("no entry count"))?),
                }
            }
        }
        let (entry_count, filter) = end.ok_or_else(|| malformed("no end"))?;
        Ok(Self { pages, entry_count, filter })
    }
}

/// One row of a batch of [`placed_schema`].
struct PlacedRow<'a> {
    batch: &'a RecordBatch,
    row: usize,
}

impl PlacedRow<'_> {
    fn page(&self, page: u32) -> Option<PageEntry> {
        let extent = Extent { start: BlockAddress(self.long(1)?), block_count: self.number(2)? };
        let page = PageRef { page, extent, row_count: self.number(3)?, checksum: self.number(4)? };
        let zone = ZoneEntry {
            column: KEY_COLUMN,
            null_count: 0,
            min: Some(ZoneValue::Bytes(self.bytes(5)?)),
            max: Some(ZoneValue::Bytes(self.bytes(6)?)),
        };
        Some(PageEntry {
            page,
            vid_first: 0,
            gaps: VidGaps::none(),
            overflow: Vec::new(),
            shared: Vec::new(),
            zones: vec![zone],
        })
    }

    fn end(&self) -> Option<(u64, Option<KeyFilter>)> {
        let filter = self.number(8).zip(self.bytes(9));
        Some((self.long(7)?, filter.map(|(kind, bytes)| KeyFilter { kind, bytes })))
    }

    fn number(&self, column: usize) -> Option<u32> {
        let numbers = self.batch.columns().get(column)?.as_primitive_opt::<UInt32Type>()?;
        numbers.is_valid(self.row).then(|| numbers.value(self.row))
    }

    fn long(&self, column: usize) -> Option<u64> {
        let numbers = self.batch.columns().get(column)?.as_primitive_opt::<UInt64Type>()?;
        numbers.is_valid(self.row).then(|| numbers.value(self.row))
    }

    fn bytes(&self, column: usize) -> Option<Vec<u8>> {
        let bytes = self.batch.columns().get(column)?.as_binary_opt::<i32>()?;
        bytes.is_valid(self.row).then(|| bytes.value(self.row).to_vec())
    }
}

fn malformed(what: &str) -> ArrowError {
    ArrowError::ParseError(format!("the rows of a placed run have {what}"))
}

#[cfg(test)]
mod tests;
