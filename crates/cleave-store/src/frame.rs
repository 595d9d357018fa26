//! The frame of everything stored beside the pages: a payload in; magic, format version, length and checksum around it
//! out, and back.
//!
//! ```text
//!  0        8         12        20       24        28
//!  ├────────┼─────────┼─────────┼────────┼─────────┼───────────────┤
//!  │ magic  │ version │ length  │ crc32c │ crc32c  │    payload    │
//!  │ 8 byte │ u32     │ u64     │payload │ of 0–24 │ length bytes  │
//! ```
//!
//! All numbers are little-endian. Bytes after the payload are ignored, so a frame may lie in whole blocks.
//!
//! Invariant: [`Format::open`] returns a payload only if every byte of frame and payload is as it was written. A newer
//! version is told apart from damage: the header has its own checksum, checked before the version is believed.
//! Deliberately absent: the meaning of the payload, which is up to the owner of the [`Format`].

#![deny(clippy::indexing_slicing)]

use std::ops::RangeInclusive;

/// Length of the frame before the payload, in bytes.
pub const FRAME_HEADER_BYTES: usize = 28;

/// A kind of stored structure: its magic number, its name in messages, and the versions that this build reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// First bytes of the frame.
    pub magic: [u8; 8],
    /// What it is, for errors: "segment directory".
    pub name: &'static str,
    /// Versions that this build reads; it writes the newest.
    pub versions: RangeInclusive<u32>,
}

/// Why stored bytes are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes begin with another magic number: another kind of file, or not Cleave's.
    #[error("this is no Cleave {name}: its first bytes are not the mark of one")]
    NotThisFormat {
        /// The name of the expected format.
        name: &'static str,
    },
    /// A version that this build does not read. Newer: upgrade Cleave.
    #[error(
        "this {name} has format version {found}; this build of Cleave reads {oldest} to {newest}"
    )]
    Version {
        /// The name of the expected format.
        name: &'static str,
        /// Version found.
        found: u32,
        /// Oldest version that this build reads.
        oldest: u32,
        /// Newest version that this build reads.
        newest: u32,
    },
    /// Fewer bytes than the frame says.
    #[error("this {name} is cut short: {found} bytes of {expected}")]
    Truncated {
        /// The name of the expected format.
        name: &'static str,
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A checksum does not hold: the bytes changed since they were written.
    #[error("this {name} is damaged: its checksum does not hold")]
    Checksum {
        /// The name of the expected format.
        name: &'static str,
    },
    /// The bytes are as written, yet their content is invalid.
    #[error("this {name} makes no sense: {reason}")]
    Malformed {
        /// The name of the expected format.
        name: &'static str,
        /// The fault.
        reason: String,
    },
}

impl Format {
    /// Puts `payload` in a frame of the newest version.
    #[must_use]
    pub fn seal(&self, payload: &[u8]) -> Vec<u8> {
        let length = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES.saturating_add(payload.len()));
        frame.extend_from_slice(&self.magic);
        frame.extend_from_slice(&self.versions.end().to_le_bytes());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        let header_checksum = crc32c::crc32c(&frame);
        frame.extend_from_slice(&header_checksum.to_le_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    /// Takes the payload out of the frame that `bytes` begin with, and its version.
    ///
    /// # Errors
    /// Any [`FrameError`] but [`FrameError::Malformed`].
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<(u32, &'a [u8]), FrameError> {
        let name = self.name;
        let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let short = |expected: u64| FrameError::Truncated { name, expected, found };
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(if self.magic.starts_with(bytes) {
                short(FRAME_HEADER_BYTES as u64)
            } else {
                FrameError::NotThisFormat { name }
            });
        };
        if *magic != self.magic {
            return Err(FrameError::NotThisFormat { name });
        }
        let Header { version, length, payload_checksum, header_checksum, rest } =
            Header::split(rest).ok_or_else(|| short(FRAME_HEADER_BYTES as u64))?;
        let Some(covered) = bytes.get(..FRAME_HEADER_BYTES - 4) else {
            return Err(short(FRAME_HEADER_BYTES as u64));
        };
        if crc32c::crc32c(covered) != header_checksum {
            return Err(FrameError::Checksum { name });
        }
        let (oldest, newest) = (*self.versions.start(), *self.versions.end());
        if !self.versions.contains(&version) {
            return Err(FrameError::Version { name, found: version, oldest, newest });
        }
        let payload = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or_else(|| short(length.saturating_add(FRAME_HEADER_BYTES as u64)))?;
        if crc32c::crc32c(payload) != payload_checksum {
            return Err(FrameError::Checksum { name });
        }
        Ok((version, payload))
    }

    /// An error of this format for bytes that are intact and make no sense.
    #[must_use]
    pub fn malformed(&self, reason: impl Into<String>) -> FrameError {
        FrameError::Malformed { name: self.name, reason: reason.into() }
    }
}

/// What follows the magic.
struct Header<'a> {
    version: u32,
    length: u64,
    payload_checksum: u32,
    header_checksum: u32,
    rest: &'a [u8],
}

impl<'a> Header<'a> {
    fn split(bytes: &'a [u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (payload_checksum, rest) = rest.split_first_chunk::<4>()?;
        let (header_checksum, rest) = rest.split_first_chunk::<4>()?;
        Some(Self {
            version: u32::from_le_bytes(*version),
            length: u64::from_le_bytes(*length),
            payload_checksum: u32::from_le_bytes(*payload_checksum),
            header_checksum: u32::from_le_bytes(*header_checksum),
            rest,
        })
    }
}

#[cfg(test)]
mod tests;
