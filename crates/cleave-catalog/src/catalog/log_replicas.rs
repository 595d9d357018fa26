//! Log replicas on devices as the manifest lists them, and the space that they may still need.

use std::collections::BTreeMap;

use cleave_media::{BlockAddress, Extent};
use prost::Message;

use super::DeviceId;

/// Unused space that is not free yet, by device: pages of manifests that a log replica may still have.
pub type KeptSpace = BTreeMap<DeviceId, Vec<Extent>>;

/// A log replica, as the manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReplica {
    /// The device that keeps it.
    pub device: u32,
    /// Drawn at random when it was created.
    pub id: [u8; 16],
    /// Its space; the first extent begins with its anchor. None yet: it is being made.
    pub arenas: Vec<Extent>,
    /// It is dropped, and still to be erased there.
    pub is_ended: bool,
    /// Not a replica itself, but a record that the replica with this id was given up, and has ended with it.
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
    /// Alternately a first block and a number of blocks.
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
    /// The message for a manifest.
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

    /// Reads what [`LogReplica::encode`] wrote; None if it is invalid.
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
