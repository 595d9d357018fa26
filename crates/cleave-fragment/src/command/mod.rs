//! The protocol between host and device: commands, and their replies.
//!
//! 1. [`message`]: commands and replies as both sides hold them in memory.
//! 2. [`status`]: how a command fails ([`DeviceError`]), how a run went ([`RunReport`]) and how the device is
//!    ([`DeviceStatus`]).
//! 3. [`proto`]: the same as protobuf, for links that carry bytes.
//! 4. [`slot`]: encodes and decodes batches as Arrow IPC. [`arrow_message`]: checks Arrow IPC before it is decoded.
//! 5. [`wire`]: the frames that carry those bytes, and the handshake before the first of them.
//! 6. [`lock_batch`]: locks of a remote device, many at a time. [`homes`]: pages that lie on another device's media.
//!    [`peers`]: what devices take from each other.
//!
//! Names follow NVMe and SNIA where one exists: identify, read, write; sync is NVMe's Flush, execute SNIA's Execute
//! Program, release its Release Resource.
//!
//! Invariants: every command carries (database, host epoch, incarnation, run, sequence) and may be repeated without
//! harm (rule 29). An error comes back as a status with a cause, never as a dropped connection. Deliberately absent:
//! anything that only one kind of link could do.

pub mod arrow_message;
pub mod homes;
pub mod lock_batch;
pub mod message;
pub mod peers;
pub mod proto;
pub mod slot;
pub mod status;
pub mod wire;

pub use homes::PageHome;
pub use lock_batch::{
    LockAnswer, LockAnswers, LockBatch, LockCall, LockGrant, LockRefusal, LockSay,
};
pub use message::{
    Command, CommandHeader, Execute, Grant, Identity, Kept, LOOKING_EPOCH, Ownership, Payload,
    ReadItem, ReadPayload, Reply, Request, RunKey, RunLocks, ShippedPage, Slot, SlotPayload,
    SpaceNeed, WriteItem,
};
pub use peers::{Outputs, Peer, PeerAddress, PeerRows, PeerSecret, PeerStream, PeerWay};
pub use status::{
    DeviceError, DeviceErrorCause, DeviceStatus, MetricKind, OperatorMetric, RunReport, RunState,
    RunStatus,
};
