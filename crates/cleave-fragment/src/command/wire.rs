//! Frames: how messages and payloads cross a byte stream, and the handshake before the first one.
//!
//! ```text
//! hello    magic 8 │ version u32 │ token length u16 │ token          host → device, once
//! welcome  magic 8 │ version u32 │ status u8                         device → host, once
//!
//! frame    length u32 │ kind u8 │ request u64 │ crc32c u32 │ head length u32 │ part count u32
//!          │ (part length u32, part crc32c u32)* │ head │ parts
//! ```
//!
//! All numbers are little-endian. `length` counts what follows the first crc32c, which covers the frame up to the end
//! of the head, itself left out. Parts are payloads. The checksum of each is computed by its producer and compared by
//! its consumer, so nothing is summed twice.
//!
//! The layouts of hello and welcome never change; all else may change with [`PROTOCOL_VERSION`]. Nothing that a peer
//! sends is trusted: lengths are checked before memory is taken.

#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::lock_batch::LOCK_MESSAGE_BYTES_MAX;
use super::message::{Payload, TRANSFER_BYTES_MAX};
use crate::link::Token;

/// Version of everything after the handshake.
pub const PROTOCOL_VERSION: u32 = 12;
/// The first bytes of a hello and a welcome. The last four detect peers that rewrite line ends.
pub const MAGIC: [u8; 8] = *b"CLV\x8b\r\n\x1a\n";
/// Most bytes of a frame: a full transfer and its head.
pub const FRAME_BYTES_MAX: u32 = 48 << 20;

/// Most bytes of any frame's head: an execute's, which lists the pages to read.
pub const HEAD_BYTES_MAX: u32 = 16 << 20;
/// Most parts of a frame.
pub const PART_COUNT_MAX: u32 = 1 << 16;

const PREFIX_BYTES: usize = 17;
const TABLE_ENTRY_BYTES: u32 = 8;
const _: () = assert!(TRANSFER_BYTES_MAX < FRAME_BYTES_MAX as u64);

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// The command it belongs to; 0 if nobody waits for an answer.
    pub request: u64,
    /// The message, as protobuf; lock messages as [`lock_batch`](super::lock_batch) encodes them.
    pub head: Bytes,
    /// Payloads.
    pub parts: Vec<Payload>,
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Host → device: a command.
    Command,
    /// Host → device: an execute.
    Execute,
    /// Host → device: are you there?
    Ping,
    /// Device → host: the answer to a command.
    Reply,
    /// Device → host: a command or run failed.
    Error,
    /// Device → host: an execute was accepted.
    Accepted,
    /// Device → host: a slot of a run.
    Slot,
    /// Device → host: a run made its last slot.
    Report,
    /// Device → host: yes.
    Pong,
    /// Device → host: why the connection is closed now.
    Goodbye,
    /// Device → host: a run asks for locks.
    Locks,
    /// Device → host: a run is full and waits for more space.
    Full,
}

impl FrameKind {
    const ALL: [Self; 12] = [
        Self::Command,
        Self::Execute,
        Self::Ping,
        Self::Reply,
        Self::Error,
        Self::Accepted,
        Self::Slot,
        Self::Report,
        Self::Pong,
        Self::Goodbye,
        Self::Locks,
        Self::Full,
    ];

    fn code(self) -> u8 {
        match self {
            Self::Command => 1,
            Self::Execute => 2,
            Self::Ping => 3,
            Self::Reply => 16,
            Self::Error => 17,
            Self::Accepted => 18,
            Self::Slot => 19,
            Self::Report => 20,
            Self::Pong => 21,
            Self::Goodbye => 22,
            Self::Locks => 23,
            Self::Full => 24,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Most bytes of its head. Decoded, a message can take many times the memory that it had as bytes.
    pub(crate) fn head_bytes_max(self) -> u32 {
        match self {
            Self::Ping | Self::Pong | Self::Slot | Self::Full => 4 << 10,
            Self::Error | Self::Goodbye => 1 << 20,
            Self::Locks => LOCK_MESSAGE_BYTES_MAX,
            Self::Command => 2 << 20,
            Self::Reply | Self::Accepted | Self::Report => 4 << 20,
            Self::Execute => HEAD_BYTES_MAX,
        }
    }
}

/// Why a frame could not be read or written. After any of them the stream is unusable.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A frame longer than [`FRAME_BYTES_MAX`].
    #[error("a frame of {length} bytes, where at most {FRAME_BYTES_MAX} are allowed")]
    TooLong {
        /// The frame's length.
        length: u64,
    },
    /// A head longer than frames of its kind have.
    #[error("a frame whose head has {length} bytes, where at most {bytes_max} are allowed")]
    HeadTooLong {
        /// The head's length.
        length: u64,
        /// The limit.
        bytes_max: u32,
    },
    /// A kind that this version does not know.
    #[error("a frame of unknown kind {code}")]
    UnknownKind {
        /// The kind.
        code: u8,
    },
    /// The head fails its checksum.
    #[error("a frame that fails its checksum")]
    Checksum,
    /// A frame kind that the receiver should only send.
    #[error("a frame of a kind that only the other side sends")]
    Direction,
    /// Lengths that do not match.
    #[error("a frame whose parts do not add up to its length")]
    Lengths,
}

impl Frame {
    /// A frame of a head alone.
    pub fn of_head(kind: FrameKind, request: u64, head: Vec<u8>) -> Self {
        Self { kind, request, head: head.into(), parts: Vec::new() }
    }

    /// Bytes after the length prefix, or an error if they are too many, or the head has too many.
    pub fn length(&self) -> Result<u32, WireError> {
        let (head, bytes_max) = (self.head.len() as u64, self.kind.head_bytes_max());
        if head > u64::from(bytes_max) {
            return Err(WireError::HeadTooLong { length: head, bytes_max });
        }
        let parts: u64 = self.parts.iter().map(|part| part.bytes.len() as u64).sum();
        let table = self.parts.len() as u64 * u64::from(TABLE_ENTRY_BYTES);
        let length = parts.saturating_add(8 + table + head);
        u32::try_from(length)
            .ok()
            .filter(|length| *length <= FRAME_BYTES_MAX)
            .ok_or(WireError::TooLong { length })
    }

    /// The encoded frame without its parts.
    fn start(&self) -> Result<Vec<u8>, WireError> {
        let length = self.length()?;
        let short = |count: usize| u32::try_from(count).map_err(|_| WireError::Lengths);
        let mut section = Vec::with_capacity(8 + self.parts.len() * 8 + self.head.len());
        section.extend(short(self.head.len())?.to_le_bytes());
        section.extend(short(self.parts.len())?.to_le_bytes());
        for part in &self.parts {
            section.extend(short(part.bytes.len())?.to_le_bytes());
            section.extend(part.checksum.to_le_bytes());
        }
        section.extend(self.head.iter());
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + section.len());
        bytes.extend(length.to_le_bytes());
        bytes.push(self.kind.code());
        bytes.extend(self.request.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes), &section);
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(section);
        Ok(bytes)
    }
}

/// Writes `frame`; the caller flushes.
pub async fn write_frame<W: AsyncWrite + Unpin>(
    writer: &mut W,
    frame: &Frame,
) -> Result<(), WireError> {
    writer.write_all(&frame.start()?).await?;
    for part in &frame.parts {
        writer.write_all(&part.bytes).await?;
    }
    Ok(())
}

/// Reads the next frame; `None` if the stream ends between two.
///
/// Every part gets memory of its own, so that the arrays of a batch in it are aligned. Parts are
/// *not* compared with their checksums here. Not cancel-safe: call it from a task of its own.
pub async fn read_frame<R: AsyncRead + Unpin>(reader: &mut R) -> Result<Option<Frame>, WireError> {
    let mut prefix = [0_u8; PREFIX_BYTES];
    let (first, rest) = prefix.split_at_mut(1);
    if reader.read(first).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(rest).await?;
    let mut fields = prefix.as_slice();
    let length = take_u32(&mut fields)?;
    let [code] = take::<1>(&mut fields)?;
    let request = u64::from_le_bytes(take(&mut fields)?);
    let checksum = take_u32(&mut fields)?;
    if length > FRAME_BYTES_MAX {
        return Err(WireError::TooLong { length: u64::from(length) });
    }
    let sizes = read_bytes(reader, 8.min(length)).await?;
    let mut fields = sizes.as_ref();
    let head_length = take_u32(&mut fields)?;
    let part_count = take_u32(&mut fields)?;
    if part_count > PART_COUNT_MAX {
        return Err(WireError::Lengths);
    }
    let kind = FrameKind::from_code(code);
    let bytes_max = kind.map_or(HEAD_BYTES_MAX, FrameKind::head_bytes_max);
    if head_length > bytes_max {
        return Err(WireError::HeadTooLong { length: u64::from(head_length), bytes_max });
    }
    let table_length = part_count * TABLE_ENTRY_BYTES;
    let start_length = table_length
        .checked_add(head_length)
        .filter(|start| *start <= length - 8)
        .ok_or(WireError::Lengths)?;
    let mut table = read_bytes(reader, start_length).await?;
    let signed: &[u8] = prefix.get(..PREFIX_BYTES - 4).ok_or(WireError::Lengths)?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(signed), &sizes);
    if crc32c::crc32c_append(sum, &table) != checksum {
        return Err(WireError::Checksum);
    }
    let kind = kind.ok_or(WireError::UnknownKind { code })?;
    let head = table.split_off(table_length as usize);
    let mut fields = table.as_ref();
    let mut parts_length = length - 8 - start_length;
    let mut parts = Vec::with_capacity(part_count as usize);
    while !fields.is_empty() {
        let part_length = take_u32(&mut fields)?;
        let checksum = take_u32(&mut fields)?;
        parts_length = parts_length.checked_sub(part_length).ok_or(WireError::Lengths)?;
        parts.push(Payload { bytes: read_bytes(reader, part_length).await?, checksum });
    }
    if parts_length != 0 {
        return Err(WireError::Lengths);
    }
    Ok(Some(Frame { kind, request, head, parts }))
}

async fn read_bytes<R: AsyncRead + Unpin>(reader: &mut R, length: u32) -> Result<Bytes, WireError> {
    let mut bytes = Vec::with_capacity(length as usize);
    reader.take(u64::from(length)).read_to_end(&mut bytes).await?;
    if bytes.len() != length as usize {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes.into())
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], WireError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(WireError::Lengths)?;
    *bytes = rest;
    Ok(*first)
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, WireError> {
    Ok(u32::from_le_bytes(take(bytes)?))
}

/// The answer of a device to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WelcomeStatus {
    /// Go on.
    Welcome,
    /// This device speaks another version.
    OtherVersion,
    /// The token is wrong.
    WrongToken,
    /// The bytes were not a hello.
    NoHello,
}

impl WelcomeStatus {
    fn code(self) -> u8 {
        match self {
            Self::Welcome => 0,
            Self::OtherVersion => 1,
            Self::WrongToken => 2,
            Self::NoHello => 3,
        }
    }
}

/// The result of reading a hello. Anything but the first variant gets a welcome that gives the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hello {
    /// The right version and token.
    Accepted,
    /// Another version; the token was not read.
    OtherVersion {
        /// The host's version.
        version: u32,
    },
    /// A wrong token.
    WrongToken,
    /// Not a hello.
    Garbage {
        /// Its first bytes.
        start: [u8; 8],
    },
}

impl Hello {
    /// The status to answer with.
    pub fn status(self) -> WelcomeStatus {
        match self {
            Self::Accepted => WelcomeStatus::Welcome,
            Self::OtherVersion { .. } => WelcomeStatus::OtherVersion,
            Self::WrongToken => WelcomeStatus::WrongToken,
            Self::Garbage { .. } => WelcomeStatus::NoHello,
        }
    }
}

/// Writes a hello; without a token if the system identifies the host.
pub async fn write_hello<W: AsyncWrite + Unpin>(
    writer: &mut W,
    token: Option<&Token>,
) -> Result<(), WireError> {
    let token = token.map(Token::bytes).unwrap_or_default();
    let token_length = u16::try_from(token.len()).map_err(|_| WireError::Lengths)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(PROTOCOL_VERSION.to_le_bytes());
    bytes.extend(token_length.to_le_bytes());
    bytes.extend(token);
    writer.write_all(&bytes).await?;
    writer.flush().await?;
    Ok(())
}

/// Reads a hello and compares its token with `token`; if that is none, accepts any.
///
/// # Errors
/// Those of reading.
pub async fn read_hello<R: AsyncRead + Unpin>(
    reader: &mut R,
    token: Option<&Token>,
) -> Result<Hello, WireError> {
    read_hello_of(reader, |shown| token.is_none_or(|token| token.matches(shown))).await
}

/// Reads a hello and accepts what it shows in place of a token if `is_known` says so.
///
/// # Errors
/// Those of reading.
pub async fn read_hello_of<R: AsyncRead + Unpin>(
    reader: &mut R,
    is_known: impl FnOnce(&[u8]) -> bool,
) -> Result<Hello, WireError> {
    let mut start = [0; 8];
    reader.read_exact(&mut start).await?;
    if start != MAGIC {
        return Ok(Hello::Garbage { start });
    }
    let version = reader.read_u32_le().await?;
    if version != PROTOCOL_VERSION {
        return Ok(Hello::OtherVersion { version });
    }
    let token_length = reader.read_u16_le().await?;
    let shown = read_bytes(reader, u32::from(token_length)).await?;
    Ok(if is_known(&shown) { Hello::Accepted } else { Hello::WrongToken })
}

/// Writes a welcome of `status`.
pub async fn write_welcome<W: AsyncWrite + Unpin>(
    writer: &mut W,
    status: WelcomeStatus,
) -> Result<(), WireError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(PROTOCOL_VERSION.to_le_bytes());
    bytes.push(status.code());
    writer.write_all(&bytes).await?;
    writer.flush().await?;
    Ok(())
}

/// A welcome as the host reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The device's version.
    pub version: u32,
    /// The status, if this version knows it.
    pub status: Option<WelcomeStatus>,
}

/// Reads a welcome; returns the received bytes if it is not one.
pub async fn read_welcome<R: AsyncRead + Unpin>(
    reader: &mut R,
) -> Result<Result<Welcome, Vec<u8>>, WireError> {
    let mut start = Vec::with_capacity(MAGIC.len());
    reader.take(MAGIC.len() as u64).read_to_end(&mut start).await?;
    if start != MAGIC {
        return Ok(Err(start));
    }
    let version = reader.read_u32_le().await?;
    let code = reader.read_u8().await?;
    let known = [
        WelcomeStatus::Welcome,
        WelcomeStatus::OtherVersion,
        WelcomeStatus::WrongToken,
        WelcomeStatus::NoHello,
    ];
    Ok(Ok(Welcome { version, status: known.into_iter().find(|status| status.code() == code) }))
}

#[cfg(test)]
mod tests;
