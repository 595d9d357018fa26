//! Encodes one record of the log: kind, transaction and payload in, bytes out, and back.
//!
//! ```text
//!  0        4        7      8             16
//!  ├────────┼────────┼──────┼─────────────┼───────────────┬─────────┤
//!  │ crc32c │ length │ kind │ transaction │    payload    │ zeros   │
//!  │ u32    │ u24    │ u8   │ u64         │ length bytes  │ to 8    │
//! ```
//!
//! The checksum covers the log's identity, the record's [`Lsn`] (u64), bytes 4..16, and the CRC-32C of the payload
//! (u32). The place is not stored: bytes that were written for another place, by another log or before a file was
//! reused do not verify.
//!
//! Invariant: [`decode`] gives a record only if every byte of it is as it was written for that place, and reads no byte
//! behind it.
//! Source: rules 25 and 26.

#![deny(clippy::indexing_slicing)]

use std::fmt;

use crate::transaction::TransactionId;

/// A place in the log: the number of bytes before it since the log began. Rises for ever; no place is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// The contents of a record; `P` is its payload, `&[u8]` on the way in and `Vec<u8>` on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<P> {
    /// The transaction is committed with its parts and this payload, in this order, as one.
    Commit {
        /// The transaction.
        transaction: TransactionId,
        /// Its changes.
        payload: P,
    },
    /// A checkpoint is complete.
    Checkpoint {
        /// The state that it covers.
        payload: P,
    },
    /// A record of no transaction, or one that holds whether its transaction commits or not.
    Note {
        /// The payload.
        payload: P,
    },
}

impl<P> Record<P> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Commit { .. } => Kind::Commit,
            Self::Checkpoint { .. } => Kind::Checkpoint,
            Self::Note { .. } => Kind::Note,
        }
    }

    /// [`TransactionId::NONE`] if it belongs to no transaction.
    pub(crate) fn transaction(&self) -> TransactionId {
        match self {
            Self::Commit { transaction, .. } => *transaction,
            Self::Checkpoint { .. } | Self::Note { .. } => TransactionId::NONE,
        }
    }

    pub(crate) fn payload(&self) -> &P {
        match self {
            Self::Commit { payload, .. }
            | Self::Checkpoint { payload }
            | Self::Note { payload } => payload,
        }
    }
}

/// The kind of record; the number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// First record of those that one sync makes durable: the payload is the [`Lsn`] up to which the log was durable
    /// before.
    Mark = 1,
    /// The log was opened: transactions without a commit record before it never commit.
    Opened = 2,
    /// A part of a transaction's changes, or of a payload that is too large for one record.
    Part = 3,
    /// See [`Record::Commit`].
    Commit = 4,
    /// The transaction's parts are void.
    Abort = 5,
    /// See [`Record::Checkpoint`].
    Checkpoint = 6,
    /// See [`Record::Note`].
    Note = 7,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Mark,
            2 => Self::Opened,
            3 => Self::Part,
            4 => Self::Commit,
            5 => Self::Abort,
            6 => Self::Checkpoint,
            7 => Self::Note,
            _ => return None,
        })
    }
}

/// Bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: usize = 16;
/// The most payload of one record; more is split.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Records begin at multiples of it.
pub const ALIGNMENT: usize = 8;
/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = RECORD_HEADER_BYTES + 8;

/// Seed of the checksums of a log's records, made of its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The seed of the log with this identity.
    #[must_use]
    pub fn new(identity: &[u8; 16]) -> Self {
        Self(crc32c::crc32c(identity))
    }

    fn checksum(self, at: Lsn, head: &[u8], payload_checksum: u32) -> u32 {
        let mut covered = [0_u8; 8 + RECORD_HEADER_BYTES];
        let (place, rest) = covered.split_at_mut(8);
        place.copy_from_slice(&at.0.to_le_bytes());
        let (fields, payload) = rest.split_at_mut(RECORD_HEADER_BYTES - 4);
        fields.copy_from_slice(head);
        payload.copy_from_slice(&payload_checksum.to_le_bytes());
        crc32c::crc32c_append(self.0, &covered)
    }
}

/// A record that verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its transaction.
    pub transaction: TransactionId,
    /// Its payload.
    pub payload: &'a [u8],
    /// Bytes that it takes, padding included.
    pub byte_count: usize,
}

/// Bytes that a record with such a payload takes.
#[must_use]
pub fn record_bytes(payload_bytes: usize) -> usize {
    RECORD_HEADER_BYTES.saturating_add(payload_bytes).next_multiple_of(ALIGNMENT)
}

/// Appends a record for the place `at` to `out`; `payload_checksum` is the CRC-32C of `payload`, which is at most
/// [`PAYLOAD_BYTES_MAX`].
pub fn encode(
    out: &mut Vec<u8>,
    seed: Seed,
    at: Lsn,
    (kind, transaction): (Kind, TransactionId),
    (payload, payload_checksum): (&[u8], u32),
) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX, "larger payloads are divided before");
    let [length @ .., _] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut head = [0_u8; RECORD_HEADER_BYTES - 4];
    let (length_and_kind, id) = head.split_at_mut(4);
    let (stored_length, stored_kind) = length_and_kind.split_at_mut(3);
    stored_length.copy_from_slice(&length);
    stored_kind.copy_from_slice(&[kind as u8]);
    id.copy_from_slice(&transaction.0.to_le_bytes());
    let end = out.len() + record_bytes(payload.len());
    out.extend_from_slice(&seed.checksum(at, &head, payload_checksum).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    out.resize(end, 0);
}

/// The mark for the place `at`, before which the log was durable up to `durable`.
#[must_use]
pub fn mark(seed: Seed, at: Lsn, durable: Lsn) -> Vec<u8> {
    let payload = durable.0.to_le_bytes();
    let mut bytes = Vec::with_capacity(MARK_BYTES);
    let kind = (Kind::Mark, TransactionId::NONE);
    encode(&mut bytes, seed, at, kind, (&payload, crc32c::crc32c(&payload)));
    bytes
}

/// The record at the start of `bytes`, if it was written for the place `at` of this log.
#[must_use]
pub fn decode(bytes: &[u8], seed: Seed, at: Lsn) -> Option<Decoded<'_>> {
    let (checksum, rest) = bytes.split_first_chunk::<4>()?;
    let head = rest.get(..RECORD_HEADER_BYTES - 4)?;
    let [l0, l1, l2, kind, id @ ..] = head else { return None };
    let kind = Kind::from_byte(*kind)?;
    let length = usize::try_from(u32::from_le_bytes([*l0, *l1, *l2, 0])).ok()?;
    if length > PAYLOAD_BYTES_MAX {
        return None;
    }
    let byte_count = record_bytes(length);
    let end = RECORD_HEADER_BYTES + length;
    let payload = bytes.get(RECORD_HEADER_BYTES..end)?;
    let filling = bytes.get(end..byte_count)?;
    let is_intact = filling.iter().all(|byte| *byte == 0)
        && seed.checksum(at, head, crc32c::crc32c(payload)) == u32::from_le_bytes(*checksum);
    let transaction = TransactionId(u64::from_le_bytes(*id.first_chunk::<8>()?));
    is_intact.then_some(Decoded { kind, transaction, payload, byte_count })
}

/// Up to where the log was durable before the record, if it is a mark.
#[must_use]
pub fn durable_before(record: &Decoded<'_>) -> Option<Lsn> {
    match (record.kind, <[u8; 8]>::try_from(record.payload)) {
        (Kind::Mark, Ok(bytes)) => Some(Lsn(u64::from_le_bytes(bytes))),
        _ => None,
    }
}
