//! Writes rows as pages of a segment, for one partition of a root that writes: rows in, an entry for each page out.
//!
//! [`PageWriting::push`] hands the pages that become full to the context's [`PageSink`]; [`PageWriting::finish`] those
//! of the remaining rows. [`PageWriting::report`] encodes the entries, which [`read_written`] reads on the host.
//!
//! Invariant: memory is a page or two, out of the fragment's budget, once there are rows: a tablet that gets none takes
//! none.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use cleave_store::{
    EncodedPage, PageEntry, PageKind, PageRef, SegmentWriter, Versions, VidGaps, proto,
};
use datafusion_common::Result;
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_physical_plan::metrics::{BaselineMetrics, RecordOutput};
use prost::Message;

use super::table_scan_exec::scan_page::external;
use crate::page_sink::PageSink;

/// Memory of a writer that has got rows besides those that wait for their page.
const WRITER_BYTES: usize = 1 << 20;
/// Waiting rows, and the page that is made of them.
const COPIES: usize = 2;
/// Pages reported in one batch.
const BATCH_PAGE_COUNT: usize = 256;

/// The pages of one partition being written; see the [module](self).
pub(super) struct PageWriting {
    /// None once the rows have ended.
    writer: Option<SegmentWriter>,
    sink: Arc<dyn PageSink>,
    /// Overflow pages whose owner has not come yet, by page number.
    overflow: BTreeMap<u32, PageRef>,
    placed: BinaryBuilder,
    placed_count: usize,
    baseline: BaselineMetrics,
    memory: MemoryReservation,
    /// Bytes of the batches whose rows wait until their page is full.
    waiting_bytes: usize,
}

/// The column of the result: entries of the segment's directory, encoded.
pub fn written_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("page", DataType::Binary, false)]))
}

/// Decodes the pages that a fragment reports to have placed.
///
/// # Errors
/// [`ArrowError::SchemaError`] or [`ArrowError::ParseError`] for rows that no root of a fragment made.
pub fn read_written(batches: &[RecordBatch]) -> Result<Vec<PageEntry>, ArrowError> {
    let malformed =
        |reason: String| ArrowError::ParseError(format!("a page that was placed: {reason}"));
    let mut pages = Vec::new();
    for batch in batches {
        let entries = batch.columns().first().and_then(|column| column.as_binary_opt::<i32>());
        let Some(entries) = entries.filter(|entries| entries.null_count() == 0) else {
            let message = format!("placed pages have other columns: {}", batch.schema());
            return Err(ArrowError::SchemaError(message));
        };
        for entry in entries.iter().flatten() {
            let entry = proto::PageEntry::decode(entry).map_err(|e| malformed(e.to_string()))?;
            pages.push(PageEntry::try_from(entry).map_err(|e| malformed(e.to_string()))?);
        }
    }
    Ok(pages)
}

impl PageWriting {
    /// Hands the pages of `writer` to `sink`, in memory of `task`.
    pub(super) fn new(
        writer: SegmentWriter,
        sink: Arc<dyn PageSink>,
        baseline: BaselineMetrics,
        task: &TaskContext,
    ) -> Self {
        Self {
            writer: Some(writer),
            sink,
            overflow: BTreeMap::new(),
            placed: BinaryBuilder::new(),
            placed_count: 0,
            baseline,
            memory: MemoryConsumer::new("writing pages").register(task.memory_pool()),
            waiting_bytes: 0,
        }
    }

    /// Whether rows may follow before the next report.
    pub(super) fn goes_on(&self) -> bool {
        self.writer.is_some() && self.placed_count < BATCH_PAGE_COUNT
    }

    /// Adds `rows`, of a batch of `byte_count` bytes.
    pub(super) async fn push(
        &mut self,
        rows: &RecordBatch,
        versions: Versions,
        byte_count: usize,
    ) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        self.waiting_bytes = self.waiting_bytes.saturating_add(byte_count);
        self.memory.try_resize(WRITER_BYTES + self.waiting_bytes.saturating_mul(COPIES))?;
        let pages = {
            let _timer = self.baseline.elapsed_compute().timer();
            writer.push_versions(rows, versions).map_err(external)?
        };
        if !pages.is_empty() {
            // The remaining rows came with the last batch.
            self.waiting_bytes = byte_count;
        }
        self.place(pages).await
    }

    /// Writes the remaining rows, and waits until all pages were written.
    pub(super) async fn finish(&mut self) -> Result<()> {
        Self::finish_all(std::slice::from_mut(self)).await
    }

    /// The same of several that write to one sink.
    pub(super) async fn finish_all(all: &mut [Self]) -> Result<()> {
        for one in &mut *all {
            let Some(writer) = one.writer.take() else { continue };
            let pages = {
                let _timer = one.baseline.elapsed_compute().timer();
                writer.finish().map_err(external)?
            };
            one.place(pages).await?;
        }
        match all.first() {
            Some(one) => one.sink.finish().await,
            None => Ok(()),
        }
    }

    /// The entries since the last report; None: there are none.
    pub(super) fn report(&mut self) -> Result<Option<RecordBatch>> {
        if self.placed_count == 0 {
            return Ok(None);
        }
        self.placed_count = 0;
        let entries = Arc::new(self.placed.finish());
        let batch = RecordBatch::try_new(written_schema(), vec![entries])?;
        Ok(Some(batch.record_output(&self.baseline)))
    }

    async fn place(&mut self, pages: Vec<EncodedPage>) -> Result<()> {
        for page in pages {
            let (kind, vid_first, zones) = (page.kind, page.vid_first, page.zones.clone());
            let (first, count) = page.overflow_first_count;
            let placed = self.sink.push(page).await?;
            if kind == PageKind::Overflow {
                self.overflow.insert(placed.page, placed);
                continue;
            }
            let numbers = first..first.saturating_add(count);
            let overflow = numbers.filter_map(|number| self.overflow.remove(&number)).collect();
            let entry = PageEntry {
                page: placed,
                vid_first,
                gaps: VidGaps::none(),
                overflow,
                shared: Vec::new(),
                zones,
            };
            self.placed.append_value(proto::PageEntry::from(&entry).encode_to_vec());
            self.placed_count += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing;
