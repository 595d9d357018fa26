//! Page-addressed persistent storage: block addresses in, aligned bytes out.
//!
//! An [`Extent`], a run of 4 KiB blocks on one device, goes in; an [`AlignedBuffer`] comes out.
//! In the order that data passes through:
//!
//! 1. [`address`]: [`BlockAddress`] and [`Extent`], addresses on media.
//! 2. [`buffer`]: [`AlignedBuffer`], memory that direct I/O accepts and that becomes `Bytes` without a copy.
//! 3. [`media`]: the [`Media`] trait, which a device driver implements.
//! 4. [`direct_file`]: [`DirectFile`], media on a file or block device, past the page cache; `uring` makes many reads
//!    at once; `block_device` reads the head of a whole device; [`sync_gate`] remembers a failed sync.
//! 5. [`identity`]: [`MediaIdentity`], by which a database recognises its media.
//! 6. [`memory`]: [`Memory`], media in the memory of the process.
//! 7. [`faults`]: [`FaultyMedia`], media that keeps durable bytes apart, and loses or damages the rest on request.
//! 8. [`space`]: [`SpaceMap`], the free space of one device; owned by the host, never stored here.
//! 9. [`clock`] and [`random`]: the only sources of time and randomness that sync crates use.
//! 10. [`files`]: the changes that a host makes to its own files; [`private`]: access rights of files and secrets;
//!     [`replaced_file`]: exports, which take the place of an older file when they are complete.
//! 11. [`simulation`]: the interface by which a simulator replaces time, randomness and files.
//! 12. [`forgetful_files`]: [`ForgetfulFiles`], which lose unsynced writes; for tests and simulators.
//!
//! Invariant: this crate knows nothing of rows, pages or tables, starts no thread and uses no async runtime.
//! Source: `docs/design/pages-and-encodings.md`.

pub mod address;
mod block_device;
pub mod buffer;
pub mod clock;
pub mod direct_file;
mod error;
pub mod faults;
pub mod files;
pub mod forgetful_files;
pub mod identity;
pub mod media;
pub mod memory;
pub mod private;
pub mod random;
pub mod replaced_file;
pub mod simulation;
pub mod space;
pub mod sync_gate;
mod uring;

pub use address::{BLOCK_SIZE, BlockAddress, Extent};
pub use buffer::AlignedBuffer;
pub use clock::{Clock, Stopwatch, SystemClock, process_cpu_time, thread_cpu_time};
pub use direct_file::{DirectFile, OpenMode};
pub use error::MediaError;
pub use faults::{Fault, FaultPlan, FaultyMedia, Operation};
pub use forgetful_files::ForgetfulFiles;
pub use identity::MediaIdentity;
pub use media::Media;
pub use memory::Memory;
pub use random::{SplitMix64, random_bytes};
pub use replaced_file::ReplacedFile;
pub use space::{SpaceError, SpaceMap};
pub use sync_gate::SyncGate;
