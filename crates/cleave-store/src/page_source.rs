//! Page sources: page reads in, verified column chunks out, on host and device alike.
//!
//! 1. A reader names a page by [`PageRef`] (logical number, place, checksum) in a [`SegmentRef`], and columns by
//!    [`ColumnRef`]: together a [`PageRead`].
//! 2. A [`PageSource`] returns one [`PageColumns`] for each read, in order: on the device from local media
//!    ([`MediaPages`]), on the host from the link and a buffer pool. A process keeps what it has read in one
//!    [`PageCache`].
//! 3. [`crate::decode_batch`] turns them into a record batch; a reader of few rows asks for [`opened`] pages.
//!
//! Invariant: a [`PageColumns`] exists only with its header checked against the reference's checksum and each chunk
//! against the header's, however the bytes were transported ([`PageColumns::verify`]). The reference is the root of a
//! Merkle tree of depth two: a stale, torn, misdirected or lost write fails one of the checks.
//!
//! Source: `docs/design/pages-and-encodings.md`; `docs/design/rules.md`, rule 18.

use std::fmt::{self, Debug};
use std::sync::Arc;

use bytes::Bytes;
use cleave_media::Extent;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::decode::OpenedPage;
use crate::error::StoreError;
use crate::ids::SegmentId;
use crate::page::header::{PageHeader, parse_header};

mod media_pages;
mod page_cache;
mod shipped_pages;

pub use media_pages::MediaPages;
pub use page_cache::PageCache;
pub use shipped_pages::{SHIPPED_START, ShippedPages};

/// A page: its logical number, its place and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRef {
    /// Logical number in its segment.
    pub page: u32,
    /// Physical place on the device's media.
    pub extent: Extent,
    /// Rows in the page; 0 for an overflow page.
    pub row_count: u32,
    /// CRC-32C of the page's header, which holds those of the chunks.
    pub checksum: u32,
}

/// The properties that all pages of a segment share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentRef {
    /// The table.
    pub table_id: u32,
    /// The segment.
    pub segment: SegmentId,
    /// Version of the table's schema that all its pages are written in.
    pub schema_version: u32,
    /// Commit number of rows whose page refers to the segment for it; 0 while the run that writes it is open.
    pub commit: u64,
}

/// A column of a page: the user's, by stable id, or one of the version columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnRef {
    /// A column of the table, by [`crate::Column::id`].
    User(u32),
    /// The row's number within its tablet.
    Vid,
    /// Number of the commit that made the version.
    Commit,
}

/// A request for columns of one page. Naming a column twice is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRead {
    /// The page's segment.
    pub segment: SegmentRef,
    /// The page.
    pub page: PageRef,
    /// Requested columns, in the order of [`PageColumns::chunks`].
    pub columns: Vec<ColumnRef>,
}

/// Columns of one page, verified.
#[derive(Debug, Clone)]
pub struct PageColumns {
    /// The page's table of contents.
    pub header: Arc<PageHeader>,
    /// Chunks in the order asked for; None where the page stores no bytes for the column: it is constant, a
    /// sequence, the segment's commit, or younger than the page's schema version.
    pub chunks: Vec<Option<Bytes>>,
}

/// A source of pages.
pub trait PageSource: Send + Sync + Debug {
    /// Columns of pages, one answer for each read, in the order of `reads`.
    ///
    /// The future of a source over media does its work synchronously when polled first.
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>>;

    /// The same for pages in no expected order: a source that reads ahead draws no conclusions from them.
    fn read_scattered(
        &self,
        reads: Vec<PageRead>,
    ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.read(reads)
    }

    /// Columns of pages [opened](OpenedPage) for readers of few of their rows, one answer for each read; None if some
    /// of their values are long. A source that caches pages caches them opened.
    fn open(
        &self,
        reads: Vec<PageRead>,
    ) -> BoxFuture<'_, Result<Vec<Option<Arc<OpenedPage>>>, StoreError>> {
        async move {
            let pages = self.read_scattered(reads.clone()).await?;
            let opened = pages.iter().zip(&reads);
            opened.map(|(page, read)| Ok(OpenedPage::open(page, read)?.map(Arc::new))).collect()
        }
        .boxed()
    }

    /// The same for one page that is in memory; None rather than waiting.
    fn open_at_hand(&self, _read: &PageRead) -> Option<Arc<OpenedPage>> {
        None
    }

    /// Payloads of overflow pages of one segment, verified, in the order of `pages`.
    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>>;
}

/// The columns of `reads`, [opened](PageSource::open): those in memory, then the others all at once.
///
/// # Errors
/// Errors of `pages`; [`StoreError::Mismatch`] where it gives more or fewer answers than there are reads.
pub async fn opened(
    pages: &dyn PageSource,
    reads: &[PageRead],
) -> Result<Vec<Option<Arc<OpenedPage>>>, StoreError> {
    let mut found: Vec<_> = reads.iter().map(|read| pages.open_at_hand(read)).collect();
    let missing = |found: &[Option<_>]| -> Vec<usize> {
        (0..found.len()).filter(|at| found.get(*at).is_some_and(Option::is_none)).collect()
    };
    let missing = missing(&found);
    if missing.is_empty() {
        return Ok(found);
    }
    let wanted: Vec<PageRead> = missing.iter().filter_map(|at| reads.get(*at).cloned()).collect();
    let answers = pages.open(wanted).await?;
    if answers.len() != missing.len() {
        let reason = format!("{} answers to {} reads", answers.len(), missing.len());
        return Err(StoreError::Mismatch { what: "opening pages", reason });
    }
    for (at, answer) in missing.into_iter().zip(answers) {
        if let Some(place) = found.get_mut(at) {
            *place = answer;
        }
    }
    Ok(found)
}

/// Bytes of a page read as they came from media or a peer, not verified.
#[derive(Debug, Clone)]
pub struct RawColumns {
    /// The page from its first byte to at least the end of its header.
    pub header: Bytes,
    /// One for each column of the read, None if the page stores no bytes for it. Each keeps about its own size in
    /// memory, because a cache counts the lengths of its chunks.
    pub chunks: Vec<Option<Bytes>>,
}

impl PageColumns {
    /// Checks header and chunks of raw bytes against the reference.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] naming page and column, [`StoreError::NewerFormat`], or [`StoreError::Mismatch`]
    /// where the chunks are not one for each column of `read`.
    pub fn verify(read: &PageRead, raw: RawColumns) -> Result<Self, StoreError> {
        let header = Arc::new(parse_header(&raw.header, &read.page, &read.segment)?);
        Self::verify_with_header(read, header, raw.chunks)
    }

    /// As [`PageColumns::verify`], with a header that was parsed for this very page before.
    ///
    /// # Errors
    /// As [`PageColumns::verify`].
    pub fn verify_with_header(
        read: &PageRead,
        header: Arc<PageHeader>,
        chunks: Vec<Option<Bytes>>,
    ) -> Result<Self, StoreError> {
        if chunks.len() != read.columns.len() {
            return Err(StoreError::Mismatch {
                what: "a page read",
                reason: format!("{} chunks for {} columns", chunks.len(), read.columns.len()),
            });
        }
        for (column, chunk) in read.columns.iter().zip(&chunks) {
            header.verify_chunk(read, *column, chunk.as_deref())?;
        }
        Ok(Self { header, chunks })
    }

    /// Bytes that the chunks hold, the header not counted.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.chunks.iter().flatten().map(Bytes::len).sum()
    }
}

impl fmt::Display for ColumnRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(formatter, "column {id}"),
            Self::Vid => formatter.write_str("version column vid"),
            Self::Commit => formatter.write_str("version column commit"),
        }
    }
}
