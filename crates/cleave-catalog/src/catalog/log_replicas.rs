//! What the manifest says of log replicas on devices: which there are, and what they may still need.

use std::collections::BTreeMap;

use cleave_media::{BlockAddress, Extent};
use prost::Message;

use super::DeviceId;

/// Space that nothing uses any more, by device: pages of manifests that a copy may still have.
pub type KeptSpace = BTreeMap<DeviceId, Vec<Extent>>;

/// A log replica, as the manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReplica {
    /// The device that keeps it.
    pub device: u32,
    /// Drawn when it was asked for.
    pub id: [u8; 16],
    /// Its space; the first begins with its anchor. None yet: it is being made.
    pub arenas: Vec<Extent>,
    /// It is wanted no more, and still to be erased there.
    pub is_ended: bool,
    /// It is none, but word of the copy of this id, which was given up, and has ended with it.
    pub gives_up: Option<[u8; 16]>,
}

/// [`LogReplica`] in a manifest.
#[derive(Clone, PartialEq, Message)]
pub struct LogReplicaMessage {
    /// The device's number.
    #[prost(uint32, tag = "1")]
    pub device: u32,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub id: Vec<u8>,
    /// In turn: a first block, and how many.
    #[prost(uint64, repeated, tag = "3")]
    pub arenas: Vec<u64>,
    /// It is still to be erased.
    #[prost(bool, tag = "4")]
    pub is_ended: bool,
    /// 16 bytes, or none.
    #[prost(bytes = "vec", tag = "5")]
    pub gives_up: Vec<u8>,
}

impl LogReplica {
    /// As a manifest has it.
    pub fn encode(&self) -> LogReplicaMessage {
        let arenas = self.arenas.iter();
        let arenas = arenas.flat_map(|arena| [arena.start.0, u64::from(arena.block_count)]);
        LogReplicaMessage {
            device: self.device,
            id: self.id.to_vec(),
            arenas: arenas.collect(),
            is_ended: self.is_ended,
            gives_up: self.gives_up.map(Vec::from).unwrap_or_default(),
        }
    }

    /// What [`LogReplica::encode`] made a message of; None: nothing did.
    pub fn decode(message: LogReplicaMessage) -> Option<Self> {
        let (pairs, rest) = message.arenas.as_chunks::<2>();
        let arena = |[start, count]: &[u64; 2]| {
            let block_count = u32::try_from(*count).ok()?;
            Some(Extent { start: BlockAddress(*start), block_count })
        };
        rest.is_empty().then_some(())?;
        Some(Self {
            device: message.device,
            id: message.id.try_into().ok()?,
            arenas: pairs.iter().map(arena).collect::<Option<_>>()?,
            is_ended: message.is_ended,
            gives_up: match message.gives_up.as_slice() {
                [] => None,
                id => Some(id.try_into().ok()?),
            },
        })
    }
}
