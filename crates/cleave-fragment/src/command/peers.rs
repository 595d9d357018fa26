//! What devices take from each other: pages and rows, by grants of their host.
//!
//! A host tells a device with the fragment from which other devices it may take pages ([`Execute::homes`]) or rows
//! ([`PeerRows`]), and how these are reached ([`Peer`]). To the other device it has given a grant before: a number, a
//! secret, and what may be had for it. The device that computes shows both, and gets nothing else. Tokens of devices
//! are known to hosts alone.
//!
//! ```text
//!   host ──── Grant { number, secret, extents, outputs } ───▶ device b (has the pages, or makes the rows)
//!    └─────── Execute { peers: [b, number, secret], .. } ───▶ device a ─ peer:<number>:<secret> ─▶ device b
//! ```
//!
//! Invariants: a grant belongs to the incarnation of the database that gave it, and ends with it. A secret is never
//! printed, and compared in constant time.

use std::fmt;
use std::hint::black_box;

use arrow::datatypes::DataType;
use bytes::Bytes;

use super::message::{CommandHeader, Execute};
use crate::filter_history::HistoryMode;
use crate::trace::Trace;

/// Most devices that one run takes pages or rows from.
pub const PEERS_MAX: usize = 1024;
/// Most outputs of a run.
pub const OUTPUTS_MAX: u32 = 64;
/// Most streams of rows that one run takes from others.
pub const PEER_STREAMS_MAX: usize = 4096;
/// Most columns by whose hash rows are divided.
pub const HASHED_COLUMNS_MAX: usize = 1024;
/// Most extents of one grant, and most outputs.
pub const GRANTED_MAX: usize = 1 << 16;
/// Most bytes of a peer's host name.
pub const PEER_HOST_BYTES_MAX: usize = 255;
/// Most bytes of the certificates that are pinned for a peer.
pub const PEER_CA_BYTES_MAX: usize = 64 << 10;

/// Another device from which a run takes pages or rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its id, which stays with its media.
    pub device: [u8; 16],
    /// How it is reached.
    pub way: PeerWay,
}

/// How a device reaches another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerWay {
    /// It is an engine of the same node, in the same process.
    Node,
    /// Over TCP, by a grant that the host has given there.
    Link(PeerAddress),
}

/// Where a device listens, and what lets another device in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// Name or address of its machine.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Pins its certificate, as PEM; without one it must be on the machine that asks.
    pub ca_pem: Option<String>,
    /// The number of the grant.
    pub grant: u64,
    /// The grant's secret.
    pub secret: PeerSecret,
}

impl PeerAddress {
    /// What is shown in place of a token: `peer:<number>:<secret as hexadecimal digits>`.
    pub fn credential(&self) -> String {
        let mut shown = format!("{CREDENTIAL}{}:", self.grant);
        for byte in self.secret.0 {
            shown.extend([byte >> 4, byte & 15].into_iter().filter_map(digit));
        }
        shown
    }

    /// Bytes of memory that a run holds for it.
    fn held_bytes(&self) -> usize {
        self.host.len() + self.ca_pem.as_ref().map_or(0, String::len)
    }
}

const CREDENTIAL: &str = "peer:";

fn digit(value: u8) -> Option<char> {
    char::from_digit(u32::from(value), 16)
}

/// The number and the secret of the grant that `shown` in place of a token names, if it names one.
pub fn shown_grant(shown: &[u8]) -> Option<(u64, PeerSecret)> {
    let shown = std::str::from_utf8(shown).ok()?;
    let (number, digits) = shown.strip_prefix(CREDENTIAL)?.split_once(':')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| number.parse().ok()).flatten()?;
    let digits = digits.as_bytes();
    if digits.len() != 2 * PeerSecret::BYTES {
        return None;
    }
    let mut secret = [0; PeerSecret::BYTES];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: &u8| char::from(*digit).to_digit(16);
        let value = pair.iter().try_fold(0, |sum, digit| Some(sum * 16 + value(digit)?))?;
        *byte = u8::try_from(value).ok()?;
    }
    Some((number, PeerSecret(secret)))
}

/// The secret of a grant.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerSecret(pub [u8; Self::BYTES]);

impl PeerSecret {
    /// Bytes of a secret.
    pub const BYTES: usize = 32;

    /// Whether `shown` is this secret, in a time that depends on neither.
    pub fn matches(&self, shown: &Self) -> bool {
        let pairs = self.0.iter().zip(&shown.0);
        let difference = pairs.fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        black_box(difference) == 0
    }
}

impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret(…)")
    }
}

/// Rows that a run takes as an input of its fragment, from runs of other devices or of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRows {
    /// The input that the fragment names.
    pub input: u32,
    /// The outputs that the rows come from.
    pub streams: Vec<PeerStream>,
}

/// An output of a run of the same host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStream {
    /// The id of the device that runs it: the device itself, or one of [`Execute::peers`].
    pub device: [u8; 16],
    /// The run.
    pub run: u64,
    /// Which of its outputs.
    pub output: u32,
}

/// Where the rows of a run go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Outputs {
    /// All to one listener, the host.
    #[default]
    One,
    /// Each row to each of so many listeners.
    Copies(u32),
    /// Each row to one of `count` listeners, by the hash of these columns of the fragment's result.
    ByHash {
        /// Places of the columns.
        columns: Vec<u32>,
        /// How many listeners there are.
        count: u32,
    },
}

impl Outputs {
    /// How many outputs the run has.
    pub fn count(&self) -> u32 {
        match self {
            Self::One => 1,
            Self::Copies(count) | Self::ByHash { count, .. } => *count,
        }
    }

    /// Whether rows may be divided by values of `data_type`: equal ones have equal hashes, once devices have brought
    /// them to one form.
    pub fn may_divide_by(data_type: &DataType) -> bool {
        let has_none = matches!(data_type, DataType::RunEndEncoded(..) | DataType::Float16);
        !data_type.is_nested() && !has_none
    }
}

impl Execute {
    /// Attaches to the `output` of a run that exists, from its first slot on. `slots` are their number and the bytes of
    /// one, as for the run itself.
    pub fn attaching(header: CommandHeader, output: u32, slots: (u32, u32)) -> Self {
        let (slot_count, slot_bytes) = slots;
        Self {
            header,
            build: crate::build_id(),
            fragment: Bytes::new(),
            snapshot: 0,
            inputs: Vec::new(),
            homes: Vec::new(),
            peers: Vec::new(),
            peer_rows: Vec::new(),
            outputs: Outputs::One,
            output,
            attaches: true,
            index_filters: Vec::new(),
            indexes: Vec::new(),
            broadcasts: Vec::new(),
            shipped: Vec::new(),
            reserved: Vec::new(),
            extensible: false,
            history: HistoryMode::Off,
            partitions: 0,
            lends: false,
            memory_bytes: 0,
            slot_count,
            slot_bytes,
            settings: Vec::new(),
            fed: Vec::new(),
            first_slot: 0,
            locks: None,
            trace: Trace::default(),
        }
    }

    /// The output that it attaches to, if it only does that.
    pub fn attached_output(&self) -> Option<u32> {
        self.attaches.then_some(self.output)
    }

    /// Bytes of memory that a run holds for the devices from which it takes something.
    pub(super) fn peer_bytes(&self) -> usize {
        let peers = self.peers.iter().map(|peer| match &peer.way {
            PeerWay::Node => size_of_val(peer),
            PeerWay::Link(address) => size_of_val(peer) + address.held_bytes(),
        });
        let streams = |rows: &PeerRows| size_of_val(rows) + size_of_val(rows.streams.as_slice());
        peers.sum::<usize>() + self.peer_rows.iter().map(streams).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
