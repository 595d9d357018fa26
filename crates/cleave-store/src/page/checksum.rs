//! The checksum of everything on a page: bytes in, CRC-32C out.
//!
//! Processors compute CRC-32C in hardware, and NVMe and iSCSI use it too. It finds damage, not malice.

use crate::error::Corruption;

/// CRC-32C of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Compares the checksum of `bytes` with the stored one.
pub(crate) fn verify(bytes: &[u8], expected: u32) -> Result<(), Corruption> {
    let found = checksum(bytes);
    if found == expected { Ok(()) } else { Err(Corruption::Checksum { expected, found }) }
}
