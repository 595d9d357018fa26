//! The head of a whole block device: its identity, the claim that it belongs to Cleave, and a record that the device
//! server keeps there.
//!
//! ```text
//! block 0      0  "CLEAVEMD"        8 bytes
//!              8  version           4 bytes, little-endian
//!             12  identity          16 bytes
//!             28  CRC-32C of 0..28  4 bytes, little-endian
//!             32  zeros
//!            512  the record        512 bytes, zeros if there is none
//!           1024  zeros
//! block 1..       the blocks of the media, counted from 0
//! ```
//!
//! 1. A device that begins with such a head is identified by it.
//! 2. A device whose first and last [`MARGIN_BLOCKS`] are zeros holds nothing recognisable: it gets an identity,
//!    durably, before anything else is written.
//! 3. Any other device holds something (a file system, a partition table, a volume) and is left alone, unless the
//!    caller says that it may be overwritten: both margins are then zeroed, durably, before it gets its identity.
//!
//! Invariants: a device with other contents is never written to without permission. The identity and the record lie in
//! sectors of their own, which a device writes whole or not at all: a loss of power leaves the old record or the new
//! one, and the identity as it was.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{AlignedBuffer, BLOCK_SIZE, MediaError, MediaIdentity, random_bytes};

/// Blocks before the first one of the media.
pub(crate) const HEAD_BLOCKS: u64 = 1;
/// Blocks at either end of a device in which other software keeps its signatures: 256 KiB.
const MARGIN_BLOCKS: usize = 64;
const MAGIC: &[u8; 8] = b"CLEAVEMD";
/// Version 1 has no record.
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 32;
/// Place of the record in the head: a sector of the smallest size that exists.
const RECORD: Range<usize> = 512..1024;

/// The identity of the block device `file`, which is given one if it is empty, or `may_overwrite`.
///
/// # Errors
/// [`MediaError::Foreign`], or [`MediaError::Open`] for a device that cannot be used.
pub(crate) fn claim(
    path: &Path,
    file: &File,
    block_count: u64,
    may_overwrite: bool,
) -> Result<MediaIdentity, MediaError> {
    let failed = |source: io::Error| MediaError::Open { path: path.to_path_buf(), source };
    let sector = rustix::fs::ioctl_blksszget(file).map_err(|errno| failed(errno.into()))?;
    if !BLOCK_SIZE.is_multiple_of(sector as usize) {
        let message = format!("its logical blocks of {sector} bytes do not divide {BLOCK_SIZE}");
        return Err(failed(io::Error::new(io::ErrorKind::Unsupported, message)));
    }
    if block_count < 2 * MARGIN_BLOCKS as u64 {
        let message = format!("it has {block_count} blocks of {BLOCK_SIZE} bytes, too few");
        return Err(failed(io::Error::new(io::ErrorKind::Unsupported, message)));
    }
    let mut first = AlignedBuffer::zeroed(MARGIN_BLOCKS * BLOCK_SIZE);
    file.read_exact_at(&mut first, 0).map_err(failed)?;
    match read_head(&first) {
        Some((1..=VERSION, bytes)) => return Ok(MediaIdentity { bytes, is_new: false }),
        Some((version, _)) => {
            let message = format!(
                "its head has version {version}, this build knows {VERSION}; use a newer build"
            );
            return Err(failed(io::Error::new(io::ErrorKind::Unsupported, message)));
        }
        None => {}
    }
    let mut last = AlignedBuffer::zeroed(MARGIN_BLOCKS * BLOCK_SIZE);
    let last_start = (block_count - MARGIN_BLOCKS as u64).saturating_mul(BLOCK_SIZE as u64);
    file.read_exact_at(&mut last, last_start).map_err(failed)?;
    if !may_overwrite && first.iter().chain(last.iter()).any(|byte| *byte != 0) {
        return Err(MediaError::Foreign { path: path.to_path_buf(), found: recognise(&first) });
    }
    if first.iter().chain(last.iter()).any(|byte| *byte != 0) {
        // Signatures of other software, for example a copy of a partition table at the end, would still be found beside
        // the head.
        let zeros = AlignedBuffer::zeroed(MARGIN_BLOCKS * BLOCK_SIZE);
        let erased = file.write_all_at(&zeros, last_start);
        erased.and_then(|()| file.write_all_at(&zeros, 0)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
    }
    let bytes = random_bytes()?;
    file.write_all_at(&head(bytes), 0).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(MediaIdentity { bytes, is_new: true })
}

/// The record in the head, padded with zeros.
pub(crate) fn read_record(file: &File) -> io::Result<Vec<u8>> {
    let mut block = AlignedBuffer::zeroed(BLOCK_SIZE);
    file.read_exact_at(&mut block, 0)?;
    Ok(block.get(RECORD).unwrap_or_default().to_vec())
}

/// Replaces the record in the head of the device `identity`, durably.
pub(crate) fn write_record(file: &File, identity: [u8; 16], record: &[u8]) -> io::Result<()> {
    let mut block = head(identity);
    let Some(place) = block.get_mut(RECORD).and_then(|place| place.get_mut(..record.len())) else {
        let message = format!("a record of {} bytes does not fit into a head", record.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    place.copy_from_slice(record);
    file.write_all_at(&block, 0)?;
    file.sync_data()
}

/// The first block of a claimed device, without a record.
fn head(identity: [u8; 16]) -> AlignedBuffer {
    let mut block = AlignedBuffer::zeroed(BLOCK_SIZE);
    let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &identity].concat();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    for (place, byte) in block.iter_mut().zip(bytes) {
        *place = byte;
    }
    block
}

/// Version and identity of a head; `None` for anything else.
fn read_head(block: &[u8]) -> Option<(u32, [u8; 16])> {
    let head = block.get(..HEAD_BYTES)?;
    let (covered, checksum) = head.split_at_checked(HEAD_BYTES - 4)?;
    let checksum = u32::from_le_bytes(checksum.try_into().ok()?);
    let (magic, rest) = covered.split_at_checked(MAGIC.len())?;
    let (version, identity) = rest.split_at_checked(4)?;
    (magic == MAGIC.as_slice() && crc32c::crc32c(covered) == checksum)
        .then_some((u32::from_le_bytes(version.try_into().ok()?), identity.try_into().ok()?))
}

/// Describes the recognised contents of the first blocks of a device.
fn recognise(first: &[u8]) -> &'static str {
    const SIGNATURES: [(usize, &[u8], &str); 9] = [
        (0, MAGIC, "a damaged head of Cleave's"),
        (0, b"XFSB", "an XFS file system"),
        (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
        (512, b"EFI PART", "a partition table (GPT)"),
        (536, b"LVM2", "a volume of LVM"),
        (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (65600, b"_BHRfS_M", "a Btrfs file system"),
        (510, b"\x55\xaa", "a partition table or a boot sector"),
    ];
    let found = SIGNATURES.into_iter().find(|(at, signature, _)| {
        first.get(*at..).is_some_and(|rest| rest.starts_with(signature))
    });
    found.map_or("something that is not Cleave's", |(_, _, name)| name)
}

#[cfg(test)]
mod tests;
