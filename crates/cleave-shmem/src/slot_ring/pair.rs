//! The two rings of a region, one each way.
//!
//! ```text
//! offset      0  magic "CLVSHM\r\n" │ version u32 at 8 │ ring bytes u64 at 16
//!          4096  control of the ring from maker to guest, 512 bytes
//!          8192  control of the ring from guest to maker, 512 bytes
//!         12288  bytes of the ring from maker to guest
//!  + ring bytes  bytes of the ring from guest to maker
//! ```
//!
//! The maker makes the region and fills the header before it sends it; the guest maps and checks it. A region serves
//! one connection: after a crash of either side the next one begins with new, empty memory, so data of a dead process
//! is never read.

#![expect(unsafe_code, reason = "the header lies in shared memory")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Consumer, Producer, RingError, ends};
use crate::region::{Region, RegionError};
use crate::ring_memory::{AtomicU32, AtomicU64, Ordering, RingMemory};

/// Least bytes of one ring.
pub const RING_BYTES_MIN: usize = 4096;
/// Most bytes of one ring.
pub const RING_BYTES_MAX: usize = 64 << 20;

/// "CLVSHM\r\n", as a number of this machine.
const MAGIC: u64 = u64::from_le_bytes(*b"CLVSHM\r\n");
/// Version of the layout and of its use by the two sides.
const VERSION: u32 = 1;
const TO_GUEST_CONTROL: usize = 4096;
const TO_MAKER_CONTROL: usize = 8192;
const DATA: usize = 12288;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    ring_bytes: AtomicU64,
}

/// The side of a region that a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that made it.
    Maker,
    /// The process that received it.
    Guest,
}

/// A region with its two rings.
#[derive(Debug, Clone)]
pub struct RingPair {
    region: Arc<Region>,
    ring_bytes: usize,
    /// Whether the ends of the maker and of the guest were handed out.
    taken: Arc<[AtomicBool; 2]>,
}

impl RingPair {
    /// Bytes of a region whose rings have `ring_bytes` each.
    pub fn region_bytes(ring_bytes: usize) -> usize {
        ring_bytes.saturating_mul(2).saturating_add(DATA)
    }

    /// New rings of `ring_bytes` each, a power of two, that another process can map.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn create(ring_bytes: usize) -> Result<Self, RegionError> {
        if !fits(ring_bytes) {
            return Err(RegionError::Unfit("has rings of a size that none may have"));
        }
        Self::fill(Region::create(Self::region_bytes(ring_bytes))?, ring_bytes)
    }

    /// New rings of `ring_bytes` each, a power of two, for this process alone.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn on_heap(ring_bytes: usize) -> Result<Self, RegionError> {
        if !fits(ring_bytes) {
            return Err(RegionError::Unfit("has rings of a size that none may have"));
        }
        Self::fill(Region::on_heap(Self::region_bytes(ring_bytes))?, ring_bytes)
    }

    fn fill(region: Region, ring_bytes: usize) -> Result<Self, RegionError> {
        let header = header(&region).ok_or(RegionError::Unfit("is too small"))?;
        header.version.store(VERSION, Ordering::Relaxed);
        header.ring_bytes.store(ring_bytes as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(Self { region: Arc::new(region), ring_bytes, taken: Arc::default() })
    }

    /// The rings in a region that a peer made.
    ///
    /// # Errors
    /// [`RingError::Header`] for another layout than this version's.
    pub fn open(region: Region) -> Result<Self, RingError> {
        let header = header(&region).ok_or(RingError::Header("is too small"))?;
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(RingError::Header("does not begin as it should"));
        }
        if header.version.load(Ordering::Relaxed) != VERSION {
            return Err(RingError::Header("has another version: upgrade the older side"));
        }
        // Read once: what is checked is what is used.
        let ring_bytes = usize::try_from(header.ring_bytes.load(Ordering::Relaxed))
            .ok()
            .filter(|bytes| fits(*bytes) && Self::region_bytes(*bytes) == region.bytes())
            .ok_or(RingError::Header("has rings that do not fill it"))?;
        Ok(Self { region: Arc::new(region), ring_bytes, taken: Arc::default() })
    }

    /// The region, to be sent to the other side.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The ends of `side`, at the beginning of empty rings.
    ///
    /// # Errors
    /// [`RingError::Taken`] the second time: two producers of one ring would overwrite each other's bytes.
    pub fn ends(&self, side: Side) -> Result<(Producer, Consumer), RingError> {
        let ring = |control, data| {
            RingMemory::in_region(&self.region, control, data, self.ring_bytes)
                .ok_or(RingError::Header("does not hold its rings"))
        };
        let [of_maker, of_guest] = self.taken.as_ref();
        let taken = match side {
            Side::Maker => of_maker,
            Side::Guest => of_guest,
        };
        if taken.swap(true, Ordering::Relaxed) {
            return Err(RingError::Taken);
        }
        let (to_guest, at_guest) = ends(ring(TO_GUEST_CONTROL, DATA)?);
        let (to_maker, at_maker) = ends(ring(TO_MAKER_CONTROL, DATA + self.ring_bytes)?);
        Ok(match side {
            Side::Maker => (to_guest, at_maker),
            Side::Guest => (to_maker, at_guest),
        })
    }
}

fn fits(ring_bytes: usize) -> bool {
    ring_bytes.is_power_of_two() && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
}

fn header(region: &Region) -> Option<&Header> {
    let start = region.part(0, size_of::<Header>())?.cast::<Header>();
    if !start.is_aligned() {
        return None;
    }
    // SAFETY: it lies in the region, is aligned, and consists of atomics, for which all bytes are values and
    // which others may change.
    Some(unsafe { start.as_ref() })
}
