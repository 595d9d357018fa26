//! Encodes one batch as whole blocks and back; the [module above](super) draws the format.

#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cleave_media::{AlignedBuffer, BLOCK_SIZE, Extent};
use datafusion_common::{DataFusionError, Result};

use super::SpillDamaged;

const MAGIC: [u8; 8] = *b"clvspill";
/// Arrow's alignment of buffers, so that those of the body are decoded in place.
const HEADER_BYTES: usize = 64;
/// The offset of the checksum, which covers the bytes before it, and the body.
const CHECKSUM_AT: usize = 24;

/// Whole blocks that hold `body`.
pub(super) fn encode(body: &[u8], stamp: u64) -> AlignedBuffer {
    let length = (HEADER_BYTES + body.len()).next_multiple_of(BLOCK_SIZE);
    let mut blocks = AlignedBuffer::zeroed(length);
    let mut header = [0; CHECKSUM_AT];
    let parts = [MAGIC, stamp.to_le_bytes(), (body.len() as u64).to_le_bytes()];
    for (to, from) in header.iter_mut().zip(parts.as_flattened()) {
        *to = *from;
    }
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&header), body).to_le_bytes();
    let whole = header.iter().chain(&checksum);
    blocks.iter_mut().zip(whole).for_each(|(to, from)| *to = *from);
    if let Some(place) = blocks.get_mut(HEADER_BYTES..HEADER_BYTES + body.len()) {
        place.copy_from_slice(body);
    }
    blocks
}

/// The body in `blocks`, which were read at `place`, without copying it.
pub(super) fn decode(blocks: AlignedBuffer, stamp: u64, place: Extent) -> Result<Bytes> {
    let damaged = |reason| DataFusionError::External(Box::new(SpillDamaged { place, reason }));
    let (header, rest) =
        blocks.split_at_checked(HEADER_BYTES).ok_or_else(|| damaged("they are cut off"))?;
    let number = |at: usize| header.get(at..).and_then(|bytes| bytes.first_chunk::<8>()).copied();
    if number(0) != Some(MAGIC) || number(8) != Some(stamp.to_le_bytes()) {
        return Err(damaged("something else lies there"));
    }
    let length = number(16).map(u64::from_le_bytes);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let body = length.and_then(|length| rest.get(..length));
    let body = body.ok_or_else(|| damaged("their length is beyond their blocks"))?;
    let (sealed, seal) = header.split_at(CHECKSUM_AT);
    let expected = seal.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    if expected != Some(crc32c::crc32c_append(crc32c::crc32c(sealed), body)) {
        return Err(damaged("they fail their checksum"));
    }
    let length = body.len();
    Ok(blocks.into_bytes().slice(HEADER_BYTES..HEADER_BYTES + length))
}
