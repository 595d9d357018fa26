//! Assembles pages: parts from the pool and parts from the link become one [`PageColumns`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};
use cleave_store::{
    ColumnRef, OpenedPage, PageColumns, PageHeader, PageRead, StoreError, parse_header,
};

/// One column of a page in the making.
#[derive(Debug, Clone)]
pub(super) enum Chunk {
    /// To be fetched.
    Missing,
    /// The page stores no bytes for it.
    Absent,
    /// Verified.
    Here(Bytes),
}

/// A page in the making.
#[derive(Debug)]
pub(super) struct PartialPage {
    header: Option<Arc<PageHeader>>,
    chunks: Vec<Chunk>,
}

impl PartialPage {
    /// A page of which nothing is known.
    pub(super) fn missing(column_count: usize) -> Self {
        Self { header: None, chunks: vec![Chunk::Missing; column_count] }
    }

    /// A page of which the header and some chunks are known.
    pub(super) fn new(header: Arc<PageHeader>, chunks: Vec<Chunk>) -> Self {
        Self { header: Some(header), chunks }
    }

    /// A page that lacks nothing.
    pub(super) fn complete(columns: PageColumns) -> Self {
        let chunks = columns.chunks.into_iter().map(Chunk::from).collect();
        Self { header: Some(columns.header), chunks }
    }

    pub(super) fn header(&self) -> Option<Arc<PageHeader>> {
        self.header.as_ref().map(Arc::clone)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.header.is_some() && !self.chunks.iter().any(|chunk| matches!(chunk, Chunk::Missing))
    }

    /// Of `columns`, which the page was made for, those that are missing.
    pub(super) fn missing_columns(&self, columns: &[ColumnRef]) -> Vec<ColumnRef> {
        let missing = |(column, chunk): (&ColumnRef, &Chunk)| {
            matches!(chunk, Chunk::Missing).then_some(*column)
        };
        columns.iter().zip(&self.chunks).filter_map(missing).collect()
    }

    /// Puts what was fetched, the columns `fetched_columns`, where chunks are missing; the page was made for `columns`.
    pub(super) fn fill(
        &mut self,
        columns: &[ColumnRef],
        fetched_columns: &[ColumnRef],
        fetched: &PageColumns,
    ) {
        self.header = Some(Arc::clone(&fetched.header));
        for (column, place) in columns.iter().zip(&mut self.chunks) {
            let found = fetched_columns.iter().position(|fetched| fetched == column);
            let chunk = found.and_then(|found| fetched.chunks.get(found));
            if let (Chunk::Missing, Some(chunk)) = (&*place, chunk) {
                *place = Chunk::from(chunk.clone());
            }
        }
    }

    /// Puts the chunk of `column` where it is missing; the page was made for `columns`.
    pub(super) fn put(&mut self, columns: &[ColumnRef], column: ColumnRef, chunk: Bytes) {
        for (_, place) in columns.iter().zip(&mut self.chunks).filter(|(of, _)| **of == column) {
            *place = Chunk::Here(chunk.clone());
        }
    }

    /// Takes all columns that the page was made for.
    pub(super) fn fill_whole(&mut self, columns: PageColumns) {
        *self = Self::complete(columns);
    }

    /// The page; `None` if something is still missing.
    pub(super) fn finish(self) -> Option<PageColumns> {
        let header = self.header?;
        let chunks = self
            .chunks
            .into_iter()
            .map(|chunk| match chunk {
                Chunk::Missing => None,
                Chunk::Absent => Some(None),
                Chunk::Here(bytes) => Some(Some(bytes)),
            })
            .collect::<Option<Vec<_>>>()?;
        Some(PageColumns { header, chunks })
    }
}

impl From<Option<Bytes>> for Chunk {
    fn from(chunk: Option<Bytes>) -> Self {
        chunk.map_or(Self::Absent, Self::Here)
    }
}

/// A page that was read as blocks: its verified header, and all of its bytes, also those that it shares with earlier
/// versions; each chunk is verified when it is first asked for.
#[derive(Debug)]
pub struct WholePage {
    header: Arc<PageHeader>,
    bytes: Bytes,
    /// The blocks of shared chunks, with their first.
    shared: Vec<(BlockAddress, Bytes)>,
    verified: Mutex<BTreeSet<ColumnRef>>,
    opened: Mutex<Option<Arc<OpenedPage>>>,
    /// What that takes beside the page's bytes.
    opened_bytes: AtomicUsize,
}

impl WholePage {
    /// The page that `read` names, out of its blocks.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the header does not hold.
    pub(super) fn new(read: &PageRead, bytes: Bytes) -> Result<Self, StoreError> {
        let header = Arc::new(parse_header(&bytes, &read.page, &read.segment)?);
        let (verified, opened) = (Mutex::default(), Mutex::default());
        let (shared, opened_bytes) = (Vec::new(), AtomicUsize::new(0));
        Ok(Self { header, bytes, shared, verified, opened, opened_bytes })
    }

    /// Blocks that the page needs besides its own, to be read before its columns are.
    pub(super) fn shared_extents(&self) -> Vec<Extent> {
        self.header.shared_extents()
    }

    /// Adds blocks of [`WholePage::shared_extents`].
    pub(super) fn add_shared(&mut self, start: BlockAddress, blocks: Bytes) {
        self.shared.push((start, blocks));
    }

    /// Bytes that it keeps in memory: those of the page, and what is opened of it.
    pub fn byte_count(&self) -> usize {
        let shared: usize = self.shared.iter().map(|(_, blocks)| blocks.len()).sum();
        let opened = self.opened_bytes.load(Ordering::Relaxed);
        self.bytes.len().saturating_add(shared).saturating_add(opened)
    }

    /// The columns that `read` asks for.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] naming the column.
    pub(super) fn columns(&self, read: &PageRead) -> Result<PageColumns, StoreError> {
        let chunks: Vec<Option<Bytes>> =
            read.columns.iter().map(|column| self.chunk(*column)).collect();
        let known = {
            let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
            read.columns.iter().all(|column| verified.contains(column))
        };
        if known {
            return Ok(PageColumns { header: Arc::clone(&self.header), chunks });
        }
        let columns = PageColumns::verify_with_header(read, Arc::clone(&self.header), chunks)?;
        self.verified
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(read.columns.iter().copied());
        Ok(columns)
    }

    /// The columns that `read` asks for, opened; None: some of their values are long, or a column does not hold.
    pub(super) fn opened(&self, read: &PageRead) -> Option<Arc<OpenedPage>> {
        let mut known = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = known.as_ref().filter(|page| page.has(&read.columns)) {
            return Some(Arc::clone(page));
        }
        let mut wanted = read.clone();
        wanted.columns.extend(known.iter().flat_map(|page| page.columns()));
        let columns = self.columns(&wanted).ok()?;
        let opened = Arc::new(OpenedPage::open(&columns, &wanted).ok()??);
        self.opened_bytes.store(opened.own_byte_count(), Ordering::Relaxed);
        *known = Some(Arc::clone(&opened));
        Some(opened)
    }

    fn chunk(&self, column: ColumnRef) -> Option<Bytes> {
        let entry = self.header.entry(column).filter(|entry| entry.length > 0)?;
        let (start, bytes) = match entry.shared {
            None => (usize::try_from(entry.offset).ok()?, &self.bytes),
            Some(start) => self.shared.iter().find_map(|(first, blocks)| {
                let at = usize::try_from(start.0.checked_sub(first.0)?).ok()?;
                let at = at.checked_mul(BLOCK_SIZE).filter(|at| *at < blocks.len())?;
                Some((at, blocks))
            })?,
        };
        let end = start.checked_add(usize::try_from(entry.length).ok()?)?;
        // Shorter blocks than the header says leave the chunk out, which verification reports.
        (end <= bytes.len()).then(|| bytes.slice(start..end))
    }
}
