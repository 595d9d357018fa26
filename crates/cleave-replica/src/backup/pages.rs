//! The pages of a backup: segments in, one file with their pages one after the other out, and their directories for it.
//!
//! Several pages are read at once, past all caches, and every one is verified before it is written: a backup never has
//! a damaged page.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::tasks::{blocking, joined};
use cleave_engine::device::Device;
use cleave_engine::device::whole_pages::whole_page;
use cleave_fragment::progress::Progress;
use cleave_media::files::{self, FileWriter};
use cleave_media::{BLOCK_SIZE, BlockAddress};
use cleave_store::{PageRef, SegmentDirectory};
use datafusion_common_runtime::SpawnedTask;
use futures::{StreamExt, stream};

use super::backup_manifest::PIECE_BYTES;
use super::{PAGES, sync_folder};

/// Pages that are read at once.
const PAGES_AT_ONCE: usize = 8;

/// The file of the pages, as it grows.
#[derive(Debug)]
pub(super) struct PageFile {
    folder: Arc<Path>,
    writer: Arc<dyn FileWriter>,
    pending: BytesMut,
    bytes_written: u64,
    block_count: u64,
    pieces: Vec<u32>,
    /// Counts the bytes of the pages where they come from.
    progress: Progress,
}

impl PageFile {
    /// An empty one in `folder`; `progress` counts the bytes that are copied, as they lie on the devices.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn create(folder: &Path, progress: Progress) -> Result<Self> {
        let path = folder.join(PAGES);
        let writer = files::create(&path).map_err(|error| Error::io("create", &path, error))?;
        Ok(Self {
            folder: Arc::from(folder),
            writer: Arc::from(writer),
            pending: BytesMut::new(),
            bytes_written: 0,
            block_count: 0,
            pieces: Vec::new(),
            progress,
        })
    }

    /// Copies the pages of `segment` from `device`; returns its directory for the backup. Page versions are copied with
    /// the chunks that they share, as pages of their own.
    ///
    /// # Errors
    /// Those of the device; [`StoreError::Corrupt`] for a page that does not hold; [`Error::Io`].
    pub(super) async fn copy(
        &mut self,
        device: &Arc<Device>,
        mut segment: SegmentDirectory,
    ) -> Result<SegmentDirectory> {
        let reference = segment.segment_ref();
        let pages: Vec<PageRef> = segment.page_refs().copied().collect();
        let reads = stream::iter(pages).map(|page| {
            let device = Arc::clone(device);
            async move {
                let read =
                    SpawnedTask::spawn(async move { whole_page(&device, reference, page).await });
                joined(read.join().await)?
            }
        });
        let mut reads = std::pin::pin!(reads.buffered(PAGES_AT_ONCE));
        for entry in &mut segment.pages {
            entry.shared.clear();
            for page in std::iter::once(&mut entry.page).chain(&mut entry.overflow) {
                // As many as there are pages.
                let Some(copied) = reads.next().await else { break };
                let (copied, bytes) = copied?;
                self.progress.advance(page.extent.bytes() as u64);
                *page = copied;
                page.extent.start = self.append(&bytes).await?;
            }
        }
        Ok(segment)
    }

    async fn append(&mut self, bytes: &Bytes) -> Result<BlockAddress> {
        let start = BlockAddress(self.block_count);
        self.block_count += (bytes.len() / BLOCK_SIZE) as u64;
        self.pending.extend_from_slice(bytes);
        while self.pending.len() >= PIECE_BYTES {
            let piece = self.pending.split_to(PIECE_BYTES).freeze();
            self.write(piece).await?;
        }
        Ok(start)
    }

    async fn write(&mut self, piece: Bytes) -> Result<()> {
        let (writer, place) = (Arc::clone(&self.writer), self.bytes_written);
        self.bytes_written += piece.len() as u64;
        let write = move || {
            let checksum = crc32c::crc32c(&piece);
            writer.write_at(place, &piece).map(|()| checksum)
        };
        let written = joined(blocking(write).await)?;
        self.pieces.push(written.map_err(|error| self.error("write", error))?);
        Ok(())
    }

    /// Makes the file durable: its blocks, and the checksums of its pieces.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) async fn finish(mut self) -> Result<(u64, Vec<u32>)> {
        let rest = std::mem::take(&mut self.pending).freeze();
        if !rest.is_empty() {
            self.write(rest).await?;
        }
        let writer = Arc::clone(&self.writer);
        let synced = joined(blocking(move || writer.sync()).await)?;
        synced.map_err(|error| self.error("sync", error))?;
        sync_folder(&self.folder)?;
        Ok((self.block_count, self.pieces))
    }

    fn error(&self, action: &'static str, error: std::io::Error) -> Error {
        Error::io(action, &self.folder.join(PAGES), error)
    }
}
