//! INSERT: few rows in, appended to the table's hot segment; many rows in, loaded as a bulk segment.
//!
//! 1. Rows are gathered up to [`ROWS_MAX`] rows or [`BYTES_MAX`] bytes; beyond, they and all that follow
//!    go to a [`BulkLoad`].
//! 2. Their keys are looked up, among themselves and in the index.
//! 3. The tail page of the hot segment is written anew with the rows that it has room for, at another
//!    place; the others go to new pages. Pages never change, so readers of the old tail are undisturbed.
//! 4. Keys enter the memtable with the commit; a memtable that has grown too large goes to a run in the
//!    same commit, a hot segment that has grown too large is sealed.
//!
//! Invariant: the root holds the directory of at most one hot segment a tablet, of a bounded size, so
//! that the cost of a commit does not grow with the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use cleave_media::{AlignedBuffer, BlockAddress};
use cleave_store::{
    CommitColumn, EncodedPage, Memtable, MergeSource, PageClass, PageRead, PageSource,
    SegmentDirectory, SegmentKind, TableSchema, Tail, VersionRun, Versions, VidColumn, all_columns,
    append_rows,
};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::compact::compact;
use super::key_run::merge;
use super::load::{BulkLoad, segment_ref, target};
use crate::catalog::commit::Transaction;
use crate::catalog::{TableState, TabletState};
use crate::database::Database;
use crate::device::{COMMAND_BYTES, Claim};
use crate::error::Result;
use crate::index::TabletIndex;
use crate::settings::Stack;

/// Most rows that are appended to a hot segment at once.
const ROWS_MAX: usize = 10_000;
/// Most bytes that are.
const BYTES_MAX: usize = 4 << 20;
/// Pages at which a hot segment is sealed: 4 MiB of rows.
const HOT_PAGES_MAX: usize = 256;
/// Bytes at which a memtable goes to a run.
const MEMTABLE_BYTES_MAX: usize = 4 << 20;

/// Inserts `batches`, which conform to `schema`; returns how many rows that were.
///
/// # Errors
/// Those of `batches`; [`Error::DuplicateKey`](crate::error::Error::DuplicateKey); those of the device.
pub(crate) async fn insert(
    database: &Arc<Database>,
    schema: &Arc<TableSchema>,
    mut batches: BoxStream<'_, Result<RecordBatch>>,
) -> Result<u64> {
    let mut few: Vec<RecordBatch> = Vec::new();
    let (mut rows, mut bytes) = (0, 0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        bytes += batch.get_array_memory_size();
        few.push(batch);
        if rows > ROWS_MAX || bytes > BYTES_MAX {
            let transaction = Transaction::begin(database).await?;
            let mut load = BulkLoad::begin(transaction, schema).await?;
            for batch in few {
                load.push(batch).await?;
            }
            while let Some(batch) = batches.next().await {
                load.push(batch?).await?;
            }
            return load.commit().await;
        }
    }
    if rows == 0 {
        return Ok(0);
    }
    let rows = concat_batches(&schema.arrow(), &few)?;
    let transaction = Transaction::begin(database).await?;
    Append::new(transaction, schema)?.run(&rows).await
}

/// Rows on their way to a hot segment.
struct Append {
    transaction: Transaction,
    schema: Arc<TableSchema>,
    table: Arc<TableState>,
    tablet: Arc<TabletState>,
    claim: Arc<Claim>,
    pages: Arc<dyn PageSource>,
}

impl Append {
    fn new(mut transaction: Transaction, schema: &Arc<TableSchema>) -> Result<Self> {
        let (table, tablet) = target(&transaction, schema)?;
        let device = transaction.database().attached(tablet.device)?;
        let pages = transaction.database().page_source(tablet.device, Stack::Native)?;
        let claim = transaction.claim(&device);
        Ok(Self { transaction, schema: Arc::clone(schema), table, tablet, claim, pages })
    }

    async fn run(mut self, rows: &RecordBatch) -> Result<u64> {
        let row_count = rows.num_rows() as u64;
        let mut indexes = Vec::with_capacity(self.tablet.indexes.len());
        for index in self.tablet.indexes.clone() {
            indexes.push(self.index(index, rows).await?);
        }
        let hot = self.append(rows).await?;
        let mut tablet = TabletState::clone(&self.tablet);
        Arc::make_mut(&mut tablet.version_map).append_run(VersionRun {
            vid_first: tablet.next_vid,
            vid_count: row_count,
            segment: hot.segment,
        })?;
        match tablet.heap.last_mut() {
            Some(last) if last.segment == hot.segment => *last = Arc::new(hot),
            _ => tablet.heap.push(Arc::new(hot)),
        }
        tablet.next_vid += row_count;
        tablet.indexes = indexes;
        let table =
            TableState { tablets: vec![Arc::new(tablet)], ..TableState::clone(&self.table) };
        self.transaction.put_table(table);
        self.transaction.commit().await?;
        Ok(row_count)
    }

    /// Checks the rows' keys; the index that has them.
    async fn index(
        &mut self,
        index: Arc<TabletIndex>,
        rows: &RecordBatch,
    ) -> Result<Arc<TabletIndex>> {
        let (shape, tablet, pages) = (Arc::clone(index.shape()), &self.tablet, &*self.pages);
        let encoded = shape.entries(&shape.key_rows(rows)?, tablet.next_vid)?;
        let mut keys = BTreeMap::new();
        for (key, vid) in encoded.iter().flatten().zip(tablet.next_vid..) {
            if keys.insert(key, vid).is_some() {
                return Err(shape.duplicate_key(key));
            }
        }
        if shape.definition.unique {
            let sorted: Vec<&[u8]> = keys.keys().copied().collect();
            let present = index.first_present(tablet, pages, &sorted).await?;
            if let Some(key) = present.and_then(|position| sorted.get(position)) {
                return Err(shape.duplicate_key(key));
            }
        }
        if index.memtable_bytes(tablet, pages).await? < MEMTABLE_BYTES_MAX {
            let keys = keys.into_iter().map(|(key, vid)| (key.to_vec(), vid)).collect();
            self.transaction.keys.push(index.pending(keys));
            return Ok(index);
        }
        let mut memtable: Memtable = index.memtable_copy(tablet, pages).await?;
        for (key, vid) in &keys {
            memtable.insert(key, *vid)?;
        }
        let segment = segment_ref(&mut self.transaction, &self.schema)?;
        let source = vec![MergeSource::Memtable(Arc::new(memtable))];
        let run = merge(&shape, &self.claim, segment, 0, source, pages).await?;
        let mut runs: Vec<_> = index.runs().map(Arc::clone).collect();
        runs.push(Arc::new(run));
        let runs = compact(&mut self.transaction, tablet, &index, runs, pages).await?;
        let covered = tablet.next_vid + rows.num_rows() as u64;
        Ok(Arc::new(index.flushed(runs, covered)?))
    }

    /// Writes the rows; the hot segment with them.
    async fn append(&mut self, rows: &RecordBatch) -> Result<SegmentDirectory> {
        let fits = |hot: &&Arc<SegmentDirectory>| {
            hot.class == PageClass::HOT && hot.schema_version == self.schema.version
        };
        let mut hot = match self.tablet.hot_segment().filter(fits) {
            Some(hot) => SegmentDirectory::clone(hot),
            None => {
                let mut segment = segment_ref(&mut self.transaction, &self.schema)?;
                // Many commits write it: each row carries its own number.
                segment.commit = 0;
                SegmentDirectory::new(segment, SegmentKind::Heap, PageClass::HOT)
            }
        };
        let versions = Versions {
            vid: VidColumn::Sequence { first: self.tablet.next_vid },
            commit: CommitColumn::Each(vec![self.transaction.commit_number(); rows.num_rows()]),
            predecessor: None,
            tombstone: None,
        };
        let read = hot.pages.last().map(|entry| PageRead {
            segment: hot.segment_ref(),
            page: entry.page,
            columns: all_columns(&self.schema),
        });
        let columns = match &read {
            Some(read) => self.pages.read(vec![read.clone()]).await?.into_iter().next(),
            None => None,
        };
        let tail = read.as_ref().zip(columns.as_ref());
        let pages = append_rows(
            hot.segment_ref(),
            &self.schema,
            PageClass::HOT,
            tail.map(|(read, columns)| Tail { read, columns }),
            hot.next_page(),
            rows,
            versions,
        )?;
        let places = self.write(&pages).await?;
        let written: Vec<_> = pages.iter().zip(places).collect();
        // The old tail's place is retired by the commit, which compares what the states name.
        drop(hot.append(&written)?);
        hot.sealed = hot.pages.len() >= HOT_PAGES_MAX;
        Ok(hot)
    }

    /// Writes `pages` side by side, in as few commands as their size allows.
    async fn write(&self, pages: &[EncodedPage]) -> Result<Vec<BlockAddress>> {
        let block_count = pages.iter().map(EncodedPage::block_count).sum();
        let extent = self.claim.take(block_count);
        self.claim.reserve(extent).await?;
        let mut places = Vec::with_capacity(pages.len());
        let mut next = extent.start;
        for command in commands(pages) {
            let start = next;
            let bytes = command.iter().map(|page| page.bytes.len()).sum();
            let mut joined = AlignedBuffer::zeroed(bytes);
            let mut from = 0;
            for page in command {
                let to = from + page.bytes.len();
                if let Some(place) = joined.get_mut(from..to) {
                    place.copy_from_slice(&page.bytes);
                }
                from = to;
                places.push(next);
                next = BlockAddress(next.0 + u64::from(page.block_count()));
            }
            self.claim.write(start, joined.into_bytes()).await?;
        }
        Ok(places)
    }
}

/// `pages` in runs that one command may carry each: of at most [`COMMAND_BYTES`], or of one page that is
/// larger by itself.
fn commands(mut pages: &[EncodedPage]) -> Vec<&[EncodedPage]> {
    let mut commands = Vec::new();
    while !pages.is_empty() {
        let mut bytes = 0;
        let fitting = pages.iter().take_while(|page| {
            bytes += page.bytes.len();
            bytes <= COMMAND_BYTES
        });
        let count = fitting.count().max(1);
        let Some((command, behind)) = pages.split_at_checked(count) else { break };
        commands.push(command);
        pages = behind;
    }
    commands
}

#[cfg(test)]
mod tests;
