//! Shared memory between two processes on one machine: byte streams and row locks, without system calls while both
//! sides are awake.
//!
//! ```text
//!        process A                    Region                    process B
//!  bytes ─▶ Producer ─▶ control │ data of the ring A ▶ B ─▶ Consumer ─▶ bytes
//!  bytes ◀─ Consumer ◀─ control │ data of the ring B ▶ A ◀─ Producer ◀─ bytes
//!             │                                                │
//!             └── Doorbell: wakes a sleeping side ─────────────┘
//! ```
//!
//! 1. `region`: [`Region`], a memory file that both map, or heap bytes if one process is both sides.
//! 2. `slot_ring`: [`Producer`] and [`Consumer`], one ring of bytes with one of each, and [`RingPair`], the two
//!    rings of a region.
//! 3. `doorbell`: [`Doorbell`], which wakes a side that sleeps because it found nothing to do.
//! 4. `lock_table`: [`HostLocks`] and [`DeviceLocks`], row locks that both sides take, in a region of their own.
//! 5. `descriptors`: file descriptors over a Unix socket, by which the other side gets region and bells.
//! 6. `ending_signals`: how a process waits for the signals that end it, which needs `unsafe` too.
//!
//! Invariants: this crate holds all the `unsafe` of shared memory. Nothing in the region is trusted: positions are read
//! once, checked, and kept in private memory, and bytes are copied out before they are parsed, so a peer can damage
//! only its own messages. A side that stops, at whatever instruction, leaves the other one waiting and never misled;
//! the end of the socket tells that it is gone.
//!
//! Deliberately absent: tokio (the caller waits on the bell's file descriptor), messages and checksums (the bytes are a
//! stream, as TCP's are), names in a file system (memory is freed with its last process).

#[cfg(not(loom))]
mod descriptors;
#[cfg(not(loom))]
mod doorbell;
#[cfg(not(loom))]
mod ending_signals;
mod lock_table;
#[cfg(not(loom))]
mod region;
mod ring_memory;
mod slot_ring;

#[cfg(not(loom))]
pub use descriptors::{receive_descriptors, send_descriptors};
#[cfg(not(loom))]
pub use doorbell::Doorbell;
#[cfg(not(loom))]
pub use ending_signals::{block_ending_signals, wait_for_ending_signal};
pub use lock_table::{
    DeviceLocks, ENTRY_COUNT_MAX, ENTRY_COUNT_MIN, Holder, HostLocks, HostWait, Job, JobId,
    JobLock, JobLocks, JobWait, Joined, LockError, LockFigures, Row, SlotFormat, TableShape,
    Ticket, Waiting,
};
#[cfg(not(loom))]
pub use lock_table::{LOCK_OFFER_BYTES, LockTableError};
#[cfg(not(loom))]
pub use region::{Region, RegionError};
#[cfg(not(loom))]
pub use slot_ring::pair::{RING_BYTES_MAX, RING_BYTES_MIN, RingPair, Side};
pub use slot_ring::{Consumer, Moved, Producer, RingError};
