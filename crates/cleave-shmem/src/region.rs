//! A memory region that two processes map: a size in, shared bytes out.
//!
//! A region is a memory file without a name. Its maker seals it, so that the other side cannot make it shorter, and
//! allocates all its pages at once: a machine without memory refuses the region and does not kill a process that
//! touches it. [`Region::open`] checks seals and size before it maps a peer's region; whether the peer allocated its
//! pages cannot be checked.
//!
//! On the heap ([`Region::on_heap`]) a region has the same layout and one process: for tests, and for Miri, which does
//! not support mappings.

#![expect(unsafe_code, reason = "maps memory, and hands out pointers into it")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Alignment of every region.
const PAGE_BYTES: usize = 4096;
/// Seals: the size cannot change, and the seals cannot be removed.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Why a region could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The system gave no memory, or no mapping: free memory, and try again.
    #[error("no shared memory: {action}: {source}")]
    System {
        /// The attempted operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The peer's memory is no region: end the connection.
    #[error("what was sent as shared memory {0}")]
    Unfit(&'static str),
}

/// Memory that both sides map. See the module's description.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Mapping { file: OwnedFd },
    Heap { layout: Layout },
}

// SAFETY: a region is an address range and owns it; nothing in it belongs to a thread.
unsafe impl Send for Region {}
// SAFETY: `Region` itself reads and writes none of its bytes; who does (`ring_memory`) says why it may.
unsafe impl Sync for Region {}

impl Region {
    /// New memory of `bytes` zeroes that other processes can map.
    ///
    /// # Errors
    /// [`RegionError::System`].
    pub fn create(bytes: usize) -> Result<Self, RegionError> {
        // SAFETY: the name is a terminated string, and the call touches nothing else.
        let fd = unsafe {
            libc::memfd_create(c"cleave".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(last_error("make a memory file"));
        }
        // SAFETY: the call above made it, and nobody else has it.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let length =
            libc::off_t::try_from(bytes).map_err(|_| RegionError::Unfit("is too large"))?;
        let take = || {
            // SAFETY: `file` is open; the call touches no memory of this process.
            unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) }
        };
        let mut taken = take();
        // A signal came, which says nothing of memory.
        while taken == libc::EINTR {
            taken = take();
        }
        if taken != 0 {
            let source = io::Error::from_raw_os_error(taken);
            return Err(RegionError::System { action: "take its pages", source });
        }
        // SAFETY: `file` is open; the call touches no memory of this process.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(last_error("seal its size"));
        }
        Self::map(file, bytes)
    }

    /// Maps what a peer made with [`Region::create`].
    ///
    /// # Errors
    /// [`RegionError::Unfit`] if its size can change or is not `bytes`.
    pub fn open(file: OwnedFd, bytes: usize) -> Result<Self, RegionError> {
        // SAFETY: `file` is open; the call touches no memory of this process.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(RegionError::Unfit("is no memory file"));
        }
        if seals & SEALS != SEALS {
            return Err(RegionError::Unfit("may change its size"));
        }
        let file = File::from(file);
        let metadata = file
            .metadata()
            .map_err(|source| RegionError::System { action: "ask for its size", source })?;
        if usize::try_from(metadata.len()) != Ok(bytes) {
            return Err(RegionError::Unfit("has another size than was said"));
        }
        Self::map(file.into(), bytes)
    }

    fn map(file: OwnedFd, bytes: usize) -> Result<Self, RegionError> {
        // SAFETY: a new mapping where the system likes it; it takes no memory from anybody.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_error("map it"));
        }
        let start = NonNull::new(start.cast()).ok_or(RegionError::Unfit("lies nowhere"))?;
        Ok(Self { start, bytes, backing: Backing::Mapping { file } })
    }

    /// `bytes` zeroes of this process alone, at least one.
    ///
    /// # Errors
    /// [`RegionError::System`].
    pub fn on_heap(bytes: usize) -> Result<Self, RegionError> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES)
            .map_err(|_| RegionError::Unfit("is too large"))?;
        // SAFETY: the layout's size is above 0.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(|| last_error("allocate it"))?;
        Ok(Self { start, bytes, backing: Backing::Heap { layout } })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The descriptor by which another process maps it; none for heap memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::Mapping { file } => Some(file.as_fd()),
            Backing::Heap { .. } => None,
        }
    }

    /// The address of `length` bytes from `offset` on; none if they are not all in the region. Aligned as `offset` is,
    /// up to a page.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        offset.checked_add(length).filter(|end| *end <= self.bytes)?;
        // SAFETY: `offset` is at most the region's size.
        Some(unsafe { self.start.add(offset) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match &self.backing {
            Backing::Mapping { .. } => {
                // SAFETY: the range was mapped by `map`; whoever points into it keeps the region alive.
                let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
                debug_assert_eq!(unmapped, 0, "a mapping that was made can be taken away");
            }
            // SAFETY: it was allocated with this layout; whoever points into it keeps the region alive.
            Backing::Heap { layout } => unsafe { dealloc(self.start.as_ptr(), *layout) },
        }
    }
}

fn last_error(action: &'static str) -> RegionError {
    RegionError::System { action, source: io::Error::last_os_error() }
}

#[cfg(all(test, not(miri)))]
mod tests;
