//! Pages in the making: parts from the pool and parts from the link become one [`PageColumns`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cleave_store::{ColumnRef, PageColumns, PageHeader, PageRead, StoreError, parse_header};

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

    /// Puts `columns`, in order, where chunks are missing.
    pub(super) fn fill(&mut self, columns: PageColumns) {
        let missing = self.chunks.iter_mut().filter(|chunk| matches!(chunk, Chunk::Missing));
        for (place, chunk) in missing.zip(columns.chunks) {
            *place = Chunk::from(chunk);
        }
        self.header = Some(columns.header);
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

/// A page that was read as blocks: its verified header, and all of its bytes, each chunk verified
/// when it is first asked for.
#[derive(Debug)]
pub struct WholePage {
    header: Arc<PageHeader>,
    bytes: Bytes,
    verified: Mutex<BTreeSet<ColumnRef>>,
}

impl WholePage {
    /// The page that `read` names, out of its blocks.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the header does not hold.
    pub(super) fn new(read: &PageRead, bytes: Bytes) -> Result<Self, StoreError> {
        let header = Arc::new(parse_header(&bytes, &read.page, &read.segment)?);
        Ok(Self { header, bytes, verified: Mutex::default() })
    }

    /// Bytes of the page.
    pub(crate) fn byte_count(&self) -> usize {
        self.bytes.len()
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

    fn chunk(&self, column: ColumnRef) -> Option<Bytes> {
        let entry = self.header.entry(column).filter(|entry| entry.length > 0)?;
        let start = usize::try_from(entry.offset).ok()?;
        let end = start.checked_add(usize::try_from(entry.length).ok()?)?;
        // Shorter blocks than the header says leave the chunk out, which verification reports.
        (end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}
