//! Extended logging: the contents of page versions that a record of the log names, copied beside the archived log, so
//! that the loss of the device that wrote them is survived.
//!
//! ```text
//!  record appended ─▶ copy begun ─▶ published, locks released ─▶ own chunks of the pages read from the device
//!                                                                        │
//!                    acknowledged, with `update_logging = extended` ◀─ file synced and renamed
//!
//!  <archive_directory>/<identity of the log>/<place of the record>.pages
//!     length of the header, and the header (a frame): for each page its table, tablet, first VID, segment and size
//!     blocks of the pages, one after the other
//! ```
//!
//! 1. [`PageCopies::begin`] is called under the writer lock, between the record and its publication. A task copies what
//!    [`copy`] reads and verifies; the file gets its name when it is whole.
//! 2. [`PageCopies::ended`] waits for the copies of all records before a place. Who has seen a commit waits so for it
//!    and for all before it: controlled lock violation, with the log's order as the chain of commits.
//! 3. Who waits for a copy that fails is not answered: the database stops, as it does if its log cannot be written. The
//!    next incarnation redoes the record, whose pages the device has, and copies what is missing. Without a waiter
//!    (`basic`) the commit goes on, and `SHOW archive_status` tells.
//! 4. [`apply`] redoes such a record in a restored database, by the values of rows.
//!
//! Invariants: no manifest is written before all copies have ended, so what is to be copied is on its device still,
//! also after a crash. No commit behind a record that waits is acknowledged, and no row of it is returned, before the
//! copy is whole. Source: Update NDP, sections 5.4 and 6.2; Graefe and others, "Controlled lock violation" (2013);
//! `docs/design/versions-and-commit.md`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::tasks::{blocking, joined};
use cleave_engine::device::whole_pages::{blocks, chunk};
use cleave_engine::log::LoggedVersion;
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::CatalogEdit;
use cleave_engine::storage_engine::commit::Changes;
use cleave_engine::storage_engine::log_keeper::{LoggedPage, RecordPages};
use cleave_engine::write::logged_values::{self, LoggedValues};
use cleave_media::files::{self, FileWriter};
use cleave_media::{BLOCK_SIZE, simulation};
use cleave_store::{
    ColumnRef, Format, OverflowValues, PageColumns, PageRead, PageRef, Projection, SegmentId,
    SegmentRef, TableSchema, decode_batch, parse_header,
};
use datafusion_common_runtime::SpawnedTask;
use futures::{StreamExt, stream};
use prost::Message;
use tokio::sync::Notify;

use crate::backup::sync_folder;

const FORMAT: Format = Format { magic: *b"CLVPAGES", name: "copied pages", versions: 1..=1 };
/// Pages that are read at once.
const PAGES_AT_ONCE: usize = 8;
/// Bytes of the length of the header, with which a file begins.
const LENGTH_BYTES: usize = 8;

/// Copies that are under way.
#[derive(Debug)]
pub(crate) struct PageCopies {
    /// By the place of the record: whether commits wait for it.
    pending: Mutex<BTreeMap<u64, bool>>,
    /// The first place for whose copy commits wait; `u64::MAX`: there is none.
    first_awaited: AtomicU64,
    /// A copy that commits wait for has failed.
    has_failed: AtomicBool,
    changed: Notify,
    /// The last commit that could not be copied, and why.
    uncopied: Mutex<Option<String>>,
}

impl Default for PageCopies {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            first_awaited: AtomicU64::new(u64::MAX),
            has_failed: AtomicBool::new(false),
            changed: Notify::new(),
            uncopied: Mutex::default(),
        }
    }
}

/// The pages of one record.
#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(message, repeated, tag = "1")]
    pages: Vec<CopiedPage>,
}

#[derive(Clone, PartialEq, Message)]
struct CopiedPage {
    #[prost(uint32, tag = "1")]
    table: u32,
    /// The place of the tablet.
    #[prost(uint32, tag = "2")]
    tablet: u32,
    #[prost(uint64, tag = "3")]
    vid_first: u64,
    #[prost(uint32, tag = "4")]
    segment: u32,
    #[prost(uint32, tag = "5")]
    schema_version: u32,
    /// The segment's.
    #[prost(uint64, tag = "6")]
    commit: u64,
    #[prost(uint32, tag = "7")]
    block_count: u32,
    /// That of the page, which tells it from all others.
    #[prost(fixed32, tag = "8")]
    checksum: u32,
}

impl PageCopies {
    /// Begins to copy the pages of `record` into `folder`, that of the archived log. `is_awaited`: commits wait for it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        folder: PathBuf,
        record: RecordPages,
        is_awaited: bool,
    ) {
        self.put(record.at, is_awaited);
        let (copies, engine) = (Arc::clone(self), Arc::clone(engine));
        let copying = async move {
            let copied = SpawnedTask::spawn({
                let engine = Arc::clone(&engine);
                let (folder, record) = (folder, record.clone());
                async move { copy(&engine, &folder, &record).await }
            });
            let outcome = joined(copied.join().await).and_then(|copied| copied);
            if let Err(error) = outcome {
                copies.note_failure(&engine, &record, is_awaited, &error);
            }
            copies.end(record.at);
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a copy that was begun is waited for by whoever has seen the commit, so giving up the statement \
                must not cancel it"
        )]
        drop(tokio::spawn(copying));
    }

    fn note_failure(&self, engine: &Engine, record: &RecordPages, is_awaited: bool, error: &Error) {
        let commit = record.commit;
        let failure = format!("the pages of commit {commit} are not in the archive: {error}");
        if is_awaited {
            // Whether the commit counts is not known before the next incarnation.
            engine.stop(&failure);
            self.has_failed.store(true, Ordering::Release);
        }
        *self.uncopied.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// The last commit that could not be copied, and why.
    pub(crate) fn uncopied(&self) -> Option<String> {
        self.uncopied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether commits up to `end` wait for a copy.
    pub(crate) fn are_awaited(&self, end: u64) -> bool {
        self.first_awaited.load(Ordering::Acquire) < end || self.has_failed.load(Ordering::Acquire)
    }

    /// Waits until the copies of all records before `end` have ended; of all that commits wait for, unless `all`.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] where one that commits wait for has failed.
    pub(crate) async fn ended(&self, engine: &Engine, end: u64, all: bool) -> Result<()> {
        if !all && !self.are_awaited(end) {
            return Ok(());
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.has_failed.load(Ordering::Acquire) {
                return Err(engine.stopped_error().into());
            }
            let is_pending = {
                let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
                let mut before = pending.range(..end);
                before.any(|(_, is_awaited)| all || *is_awaited)
            };
            if !is_pending {
                return Ok(());
            }
            changed.await;
        }
    }

    fn put(&self, at: u64, is_awaited: bool) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(at, is_awaited);
        self.note_first(&pending);
    }

    fn end(&self, at: u64) {
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.remove(&at);
            self.note_first(&pending);
        }
        self.changed.notify_waiters();
    }

    fn note_first(&self, pending: &BTreeMap<u64, bool>) {
        let first = pending.iter().find(|(_, is_awaited)| **is_awaited).map(|(at, _)| *at);
        self.first_awaited.store(first.unwrap_or(u64::MAX), Ordering::Release);
    }
}

/// The file of the record at `at`, in the folder of an archived log.
fn place(folder: &Path, at: u64) -> PathBuf {
    folder.join(format!("{at:020}.pages"))
}

/// Copies the pages of `record`, unless they are there.
async fn copy(engine: &Engine, folder: &Path, record: &RecordPages) -> Result<()> {
    step("page copy: begin")?;
    let path = place(folder, record.at);
    let sealed = header(record);
    if has_header(&path, &sealed)? {
        return Ok(());
    }
    // Where the archive is not mounted, nothing is made in its place.
    if let Some(archive) = folder.parent() {
        fs::metadata(archive).map_err(|error| Error::io("find", archive, error))?;
    }
    files::create_directories(folder).map_err(|error| Error::io("create", folder, error))?;
    let new = files::with_suffix(&path, ".new");
    let writer = files::create(&new).map_err(|error| Error::io("create", &new, error))?;
    let writer: Arc<dyn FileWriter> = Arc::from(writer);
    let failed = |action, error| Error::io(action, &new, error);
    let mut header = (sealed.len() as u64).to_le_bytes().to_vec();
    header.extend_from_slice(&sealed);
    header.resize(header.len().next_multiple_of(BLOCK_SIZE), 0);
    let mut at = header.len() as u64;
    write(&writer, 0, header.into()).await.map_err(|error| failed("write", error))?;
    let reads = stream::iter(record.pages.clone()).map(|page| async move {
        let device = engine.attached(page.device)?;
        let bytes = blocks(&device, page.page.extent).await?;
        // What does not hold is no copy.
        own_columns(&page.segment, page.page, &bytes)?;
        Ok::<_, Error>(bytes)
    });
    let mut reads = std::pin::pin!(reads.buffered(PAGES_AT_ONCE));
    while let Some(bytes) = reads.next().await {
        let bytes = bytes?;
        let length = bytes.len() as u64;
        write(&writer, at, bytes).await.map_err(|error| failed("write", error))?;
        at += length;
    }
    let synced = joined(blocking(move || writer.sync()).await)?;
    synced.map_err(|error| failed("sync", error))?;
    step("page copy: whole")?;
    files::rename(&new, &path).map_err(|error| Error::io("rename", &new, error))?;
    sync_folder(folder)?;
    step("page copy: named")
}

/// A step at which a simulation may let the copy fail or cut the host's power.
fn step(name: &'static str) -> Result<()> {
    simulation::step(name).map_err(|error| Error::io("enter", name.as_ref(), error))
}

/// Whether the file at `path` begins with the header `sealed`. That of a record that was lost with the host's power may
/// lie at the same place.
fn has_header(path: &Path, sealed: &[u8]) -> Result<bool> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        file => file.map_err(|error| Error::io("open", path, error))?,
    };
    let mut found = vec![0; LENGTH_BYTES + sealed.len()];
    match file.read_exact_at(&mut found, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        read => {
            read.map_err(|error| Error::io("read", path, error))?;
            Ok(found.get(LENGTH_BYTES..) == Some(sealed))
        }
    }
}

async fn write(writer: &Arc<dyn FileWriter>, at: u64, bytes: Bytes) -> std::io::Result<()> {
    let writer = Arc::clone(writer);
    let written = blocking(move || writer.write_at(at, &bytes)).await;
    written.map_err(std::io::Error::other)?
}

fn header(record: &RecordPages) -> Vec<u8> {
    let page = |page: &LoggedPage| CopiedPage {
        table: page.table,
        tablet: u32::try_from(page.place).unwrap_or(u32::MAX),
        vid_first: page.vid_first,
        segment: page.segment.segment.0,
        schema_version: page.segment.schema_version,
        commit: page.segment.commit,
        block_count: page.page.extent.block_count,
        checksum: page.page.checksum,
    };
    FORMAT.seal(&Header { pages: record.pages.iter().map(page).collect() }.encode_to_vec())
}

/// The columns whose chunks lie on `page` itself, of which `bytes` are the blocks: verified.
fn own_columns(
    segment: &SegmentRef,
    page: PageRef,
    bytes: &Bytes,
) -> Result<(PageRead, PageColumns)> {
    let header = Arc::new(parse_header(bytes, &page, segment)?);
    let own = header.chunks.iter().filter(|chunk| chunk.length > 0 && chunk.shared.is_none());
    let columns: Vec<ColumnRef> = own.map(|chunk| chunk.column).collect();
    let read = PageRead { segment: *segment, page, columns };
    let parts = vec![(page.extent.start, bytes.clone())];
    let chunks = read.columns.iter().map(|column| chunk(&header, &parts, *column)).collect();
    let columns = PageColumns::verify_with_header(&read, header, chunks)?;
    Ok((read, columns))
}

/// The copied pages of a record, as they are read back.
struct CopyReader {
    path: PathBuf,
    file: fs::File,
    /// By table, tablet and first VID: the segment, and where the blocks lie in the file.
    pages: BTreeMap<(u32, u32, u64), (SegmentRef, u64)>,
}

impl CopyReader {
    /// That of the record at `at` in `folder`; None: there is none.
    fn open(folder: &Path, at: u64) -> Result<Option<Self>> {
        let path = place(folder, at);
        let failed = |action, error| Error::io(action, &path, error);
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| failed("open", error))?,
        };
        let damaged = |reason: String| StorageError::DamagedBackup { path: path.clone(), reason };
        let mut start = [0; LENGTH_BYTES];
        file.read_exact_at(&mut start, 0).map_err(|error| failed("read", error))?;
        let length = u64::from_le_bytes(start);
        let file_bytes = file.metadata().map_err(|error| failed("read", error))?.len();
        if length > file_bytes {
            let reason = format!("its header has {length} bytes, and the file {file_bytes}");
            return Err(damaged(reason).into());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = file.read_exact_at(&mut bytes, LENGTH_BYTES as u64);
        read.map_err(|error| failed("read", error))?;
        let (_, payload) = FORMAT.open(&bytes).map_err(|error| damaged(error.to_string()))?;
        let header = Header::decode(payload).map_err(|error| damaged(error.to_string()))?;
        let mut at = (length + LENGTH_BYTES as u64).next_multiple_of(BLOCK_SIZE as u64);
        let mut pages = BTreeMap::new();
        for page in header.pages {
            let segment = SegmentRef {
                table_id: page.table,
                segment: SegmentId(page.segment),
                schema_version: page.schema_version,
                commit: page.commit,
            };
            pages.insert((page.table, page.tablet, page.vid_first), (segment, at));
            at += u64::from(page.block_count) * BLOCK_SIZE as u64;
        }
        Ok(Some(Self { path, file, pages }))
    }

    /// The values of the columns that `version` has changed, of a table of this schema.
    fn values(&self, schema: &TableSchema, version: &LoggedVersion) -> Result<LoggedValues> {
        let damaged = |reason: String| -> Error {
            StorageError::DamagedBackup { path: self.path.clone(), reason }.into()
        };
        let LoggedVersion { table, place, columns, entry } = version;
        let tablet = u32::try_from(*place).unwrap_or(u32::MAX);
        let page = entry.page.page;
        let found = self.pages.get(&(*table, tablet, entry.vid_first));
        let (segment, at) = found.ok_or_else(|| damaged(format!("it lacks page {page}")))?;
        let mut bytes = vec![0; entry.page.extent.bytes()];
        let read = self.file.read_exact_at(&mut bytes, *at);
        read.map_err(|error| Error::io("read", &self.path, error))?;
        let (_, own) = own_columns(segment, entry.page, &bytes.into())?;
        let place = |id: &u32| schema.columns.iter().position(|column| column.id == *id);
        let indices: Option<Vec<usize>> = columns.iter().map(place).collect();
        let indices =
            indices.ok_or_else(|| damaged(format!("page {page} has columns of another table")))?;
        let wanted = Projection::of_table(schema, &indices).nullable();
        let read =
            PageRead { segment: *segment, page: entry.page, columns: wanted.columns.clone() };
        let own_chunk = |column: &ColumnRef| {
            let chunks = own.header.chunks.iter();
            let own_ones = chunks.filter(|chunk| chunk.length > 0 && chunk.shared.is_none());
            let at = own_ones.map(|chunk| chunk.column).position(|own| own == *column)?;
            own.chunks.get(at).cloned().flatten()
        };
        let chunks = read.columns.iter().map(own_chunk).collect();
        let header = Arc::clone(&own.header);
        let columns_read = PageColumns::verify_with_header(&read, header, chunks)?;
        let values = decode_batch(&columns_read, &read, &wanted, None, &OverflowValues::none())?;
        let (vid_first, gaps) = (entry.vid_first, entry.gaps.clone());
        Ok(LoggedValues { vid_first, gaps, columns: columns.clone(), values })
    }
}

/// Redoes `versions`, those of the record at `at` of the log in `folder`, in `database`, a restored one. False: the
/// archive does not have their pages.
///
/// # Errors
/// [`StorageError::DamagedBackup`] for a copy that is not as it was written; those of [`logged_values::put`].
pub(crate) async fn apply(
    database: &Arc<Engine>,
    folder: &Path,
    at: u64,
    versions: &[LoggedVersion],
) -> Result<bool> {
    let Some(copied) = CopyReader::open(folder, at)? else { return Ok(false) };
    let mut edit = CatalogEdit::begin(database).await?;
    // The record has the number, and is redone behind.
    edit.next.commit = database.catalog().commit;
    let mut by_tablet: BTreeMap<(u32, usize), Vec<LoggedValues>> = BTreeMap::new();
    for version in versions {
        let table = edit.next.table_by_id(version.table).ok_or_else(Error::concurrent_update)?;
        let values = copied.values(&table.schema, version)?;
        by_tablet.entry((version.table, version.place)).or_default().push(values);
    }
    for (at, values) in by_tablet {
        logged_values::put(&mut edit, at, &values).await?;
    }
    database.commit(Changes::logged(edit)).await?;
    Ok(true)
}
