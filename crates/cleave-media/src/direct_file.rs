//! Media on a file or block device with direct I/O: extents in, aligned bytes out, past the page cache.
//!
//! If the file system refuses direct I/O (some network and memory file systems do) the file is opened without it, and
//! [`DirectFile::direct`] is false: benchmarks report that with their figures.
//!
//! A whole block device begins with a head with its identity ([`block_device`]); its blocks are counted from behind the
//! head. It has a fixed size: it does not grow.
//!
//! Invariants: an exclusive advisory lock is held from open to drop, so two processes never write one media
//! file; the file's length is a whole number of blocks (a torn tail from a crash while growing is not counted);
//! a created file's directory entry is durable before [`DirectFile::open`] returns.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::block_device;
use crate::buffer::SpareBuffers;
use crate::media::{check_range, written_extent};
use crate::sync_gate::SyncGate;
use crate::uring::{ReadPlace, Rings};
use crate::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError, MediaIdentity};

/// Media on a file or a raw block device.
#[derive(Debug)]
pub struct DirectFile {
    path: PathBuf,
    file: File,
    direct: bool,
    /// `None` if the system grants none: reads are then made one after the other.
    rings: Option<Rings>,
    /// Identity of a block device; a file does not contain its own.
    head: Option<MediaIdentity>,
    block_count: AtomicU64,
    /// Held while the file grows, so that two growers do not undo each other.
    growing: Mutex<()>,
    syncs: SyncGate,
    /// Buffers for the next reads.
    spare: Arc<SpareBuffers>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Whether [`DirectFile::open`] may make a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist; it is made, empty.
    Create,
    /// The file or block device must exist; a device with other contents is overwritten.
    Overwrite,
}

impl DirectFile {
    /// Opens media and locks it against other processes.
    ///
    /// # Errors
    /// [`MediaError::Locked`] if another process has it, [`MediaError::Open`] for all else.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, MediaError> {
        let failed = |source: io::Error| MediaError::Open { path: path.to_path_buf(), source };
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        if mode == OpenMode::Create {
            flags |= OFlags::CREATE | OFlags::EXCL;
        } else if is_block_device(&rustix::fs::stat(path).map_err(|errno| failed(errno.into()))?) {
            // Without CREATE it refuses a device that is mounted or otherwise in use.
            flags |= OFlags::EXCL;
        }
        let (file, direct) = open_file(path, flags)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(MediaError::Locked { path: path.to_path_buf() });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        if mode == OpenMode::Create {
            file.sync_all().and_then(|()| sync_parent(path)).map_err(failed)?;
        }
        // Seeking tells the size of block devices too, where metadata says 0.
        let length = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| failed(e.into()))?;
        let block_count = length / BLOCK_SIZE as u64;
        let status = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
        let mut media = Self {
            path: path.to_path_buf(),
            file,
            direct,
            rings: Rings::of_system(),
            head: None,
            block_count: AtomicU64::new(block_count),
            growing: Mutex::new(()),
            syncs: SyncGate::new(),
            spare: Arc::default(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        };
        if is_block_device(&status) {
            let may_overwrite = mode == OpenMode::Overwrite;
            media.head = Some(block_device::claim(path, &media.file, block_count, may_overwrite)?);
            media.block_count =
                AtomicU64::new(block_count.saturating_sub(block_device::HEAD_BLOCKS));
        }
        Ok(media)
    }

    /// Opens media that may exist: a missing file is created, unless an identity lies at `identity`, which proves that
    /// there was one.
    ///
    /// # Errors
    /// As [`DirectFile::open`]; [`MediaError::Missing`]; [`MediaError::Identity`] if the identity cannot be read.
    pub fn open_or_create(path: &Path, identity: &Path) -> Result<Self, MediaError> {
        if path.exists() {
            return Self::open(path, OpenMode::Existing);
        }
        // An identity is only drawn for media that exists.
        if MediaIdentity::kept(identity)?.is_some() {
            let (path, identity) = (path.to_path_buf(), identity.to_path_buf());
            return Err(MediaError::Missing { path, identity });
        }
        Self::open(path, OpenMode::Create)
    }

    /// The identity of a whole block device, from its head; `None` for a file.
    #[must_use]
    pub fn head(&self) -> Option<MediaIdentity> {
        self.head
    }

    /// The record in the head of a whole block device, for the device server: 512 bytes, padded with zeros; all zeros
    /// at first. `None` on a file.
    ///
    /// # Errors
    /// [`MediaError::Head`].
    pub fn head_record(&self) -> Result<Option<Vec<u8>>, MediaError> {
        let read = self.head.map(|_| block_device::read_record(&self.file)).transpose();
        read.map_err(|source| self.head_error("read", source))
    }

    /// Replaces the record, of at most 512 bytes, durably: a loss of power leaves the old one or the new one.
    ///
    /// # Errors
    /// [`MediaError::Head`], also on a file.
    pub fn replace_head_record(&self, record: &[u8]) -> Result<(), MediaError> {
        let written = match self.head {
            Some(identity) => block_device::write_record(&self.file, identity.bytes, record),
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "it is no block device")),
        };
        written.map_err(|source| self.head_error("write", source))
    }

    fn head_error(&self, action: &'static str, source: io::Error) -> MediaError {
        MediaError::Head { action, path: self.path.clone(), source }
    }

    /// Whether several reads may be under way at once ([`Media::read_many`]), that is, whether the system grants
    /// io_uring.
    #[must_use]
    pub fn reads_at_once(&self) -> bool {
        self.rings.is_some()
    }

    /// False if the file system refused direct I/O, so that reads may come from the page cache.
    #[must_use]
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Media for DirectFile {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let offset = self.offset(extent)?;
        let mut buffer = self.spare.take(extent.bytes());
        let read = self.file.read_exact_at(&mut buffer, offset);
        read.map_err(|source| self.io("read", extent, source))?;
        self.bytes_read.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(buffer)
    }

    fn read_many(&self, extents: &[Extent]) -> Result<Vec<AlignedBuffer>, MediaError> {
        let places: Vec<ReadPlace> = extents
            .iter()
            .map(|extent| Ok(ReadPlace { offset: self.offset(*extent)?, length: extent.bytes() }))
            .collect::<Result<_, MediaError>>()?;
        let rings = self.rings.as_ref().filter(|_| places.len() > 1);
        match rings.and_then(|rings| rings.read(&self.file, &places, &self.spare)) {
            Some(Ok(buffers)) => {
                let bytes = extents.iter().map(|extent| extent.bytes() as u64).sum();
                self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
                Ok(buffers)
            }
            Some(Err(failure)) => {
                let extent = extents.get(failure.place).copied();
                let extent = extent.unwrap_or(Extent { start: BlockAddress(0), block_count: 0 });
                Err(self.io("read", extent, failure.source))
            }
            None => extents.iter().map(|extent| self.read(*extent)).collect(),
        }
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        let extent = written_extent(start, data, self.block_count())?;
        let offset = self.offset(extent)?;
        let aligned = data.as_ptr().align_offset(BLOCK_SIZE) == 0;
        let written = if aligned || !self.direct {
            self.file.write_all_at(data, offset)
        } else {
            self.write_through_bounce_buffer(data, offset)
        };
        written.map_err(|source| match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                self.full(self.block_count(), source)
            }
            _ => self.io("write", extent, source),
        })?;
        self.bytes_written.fetch_add(extent.bytes() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.syncs.sync(&self.path.display(), || {
            let media = || self.path.display().to_string();
            self.file.sync_data().map_err(|source| MediaError::Sync { media: media(), source })
        })
    }

    fn block_count(&self) -> u64 {
        self.block_count.load(Ordering::Acquire)
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        let _growing = self.growing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old_count = self.block_count();
        if block_count <= old_count {
            return Ok(());
        }
        let full = |source: io::Error| self.full(block_count, source);
        if self.head.is_some() {
            let message = format!("the block device has {old_count}");
            return Err(full(io::Error::new(io::ErrorKind::StorageFull, message)));
        }
        let old_length = BlockAddress(old_count).byte_offset().ok_or_else(|| full(too_big()))?;
        let length = BlockAddress(block_count).byte_offset().ok_or_else(|| full(too_big()))?;
        // Beyond the limit the system would end the process with a signal.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if let Some(limit) = limit.filter(|limit| *limit < length) {
            let message = format!("this process may make files of {limit} bytes at most");
            return Err(full(io::Error::new(io::ErrorKind::FileTooLarge, message)));
        }
        // Reserving space now turns "no space" into an error here and not in the middle of a write.
        let flags = FallocateFlags::empty();
        let reserve = || rustix::fs::fallocate(&self.file, flags, old_length, length - old_length);
        match rustix::io::retry_on_intr(reserve) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.file.set_len(length).map_err(full)?,
            Err(errno) => {
                // Space that was reserved before the disk was full would have no owner.
                drop(self.file.set_len(old_length));
                return Err(full(errno.into()));
            }
        }
        self.block_count.store(block_count, Ordering::Release);
        Ok(())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}

impl DirectFile {
    fn io(&self, operation: &'static str, extent: Extent, source: io::Error) -> MediaError {
        MediaError::Io { media: self.path.display().to_string(), operation, extent, source }
    }

    fn full(&self, block_count: u64, source: io::Error) -> MediaError {
        MediaError::Full { media: self.path.display().to_string(), block_count, source }
    }

    fn offset(&self, extent: Extent) -> Result<u64, MediaError> {
        let block_count = self.block_count();
        check_range(extent, block_count)?;
        let head_blocks = if self.head.is_some() { block_device::HEAD_BLOCKS } else { 0 };
        let address = extent.start.0.checked_add(head_blocks).map(BlockAddress);
        let offset = address.and_then(BlockAddress::byte_offset);
        offset.ok_or(MediaError::OutOfRange { extent, block_count })
    }

    /// Writes in pieces through an aligned copy, since direct I/O accepts no other memory.
    fn write_through_bounce_buffer(&self, data: &[u8], offset: u64) -> io::Result<()> {
        const PIECE_BYTES: usize = 256 * BLOCK_SIZE;
        let mut bounce = AlignedBuffer::zeroed(data.len().min(PIECE_BYTES));
        let mut at = offset;
        for piece in data.chunks(PIECE_BYTES) {
            let (aligned, _) = bounce.split_at_mut(piece.len());
            aligned.copy_from_slice(piece);
            self.file.write_all_at(aligned, at)?;
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(())
    }
}

/// The file at `path`, and whether its reads bypass the page cache.
fn open_file(path: &Path, flags: OFlags) -> Result<(File, bool), MediaError> {
    let failed = |source: io::Error| MediaError::Open { path: path.to_path_buf(), source };
    let permissions = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags | OFlags::DIRECT, permissions) {
        Ok(descriptor) => Ok((File::from(descriptor), true)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            // Some kernels make the file before they refuse the flag.
            let plain = if flags.contains(OFlags::CREATE) { flags - OFlags::EXCL } else { flags };
            let descriptor =
                rustix::fs::open(path, plain, permissions).map_err(|errno| failed(errno.into()))?;
            Ok((File::from(descriptor), false))
        }
        // A block device that is mounted, or that another process holds.
        Err(Errno::BUSY) => Err(MediaError::Locked { path: path.to_path_buf() }),
        Err(errno) => Err(failed(errno.into())),
    }
}

fn is_block_device(status: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice
}

fn too_big() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the media would exceed 2^64 bytes")
}

/// Makes the directory entry of a new file durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests;
