//! Word of a copy that was given up, on the devices that are there: the copy itself may be away, and know nothing of it.
//!
//! 1. [`tell`] writes it before the root says that the copy is wanted no more: a [`Head`] that names the copy and the epoch, where a
//!    search looks for copies, with no stamps behind it. In the root it is a [`LogCopy`] that has ended, so that its space is its own.
//! 2. A takeover from that copy asks the other devices that its root names ([`is_told`]). A stamp of a later epoch is newer than the
//!    word: somebody took over from the copy in spite of it, or its database was opened anew with it.
//! 3. Once the copy is erased, so is the word.
//!
//! Invariant: a device that does not answer, or has no room, is not told, and the copy is given up all the same.

use std::sync::Arc;

use bytes::Bytes;
use cleave_fragment::waiting;

use super::layout::{ANCHOR_BLOCKS, Head, LogCopy, Stamp};
use super::{OPENING_WAIT, aligned, drawn_id, found};
use crate::catalog::DeviceId;
use crate::catalog::commit::Transaction;
use crate::database::Database;
use crate::device::{DISK_FULL, Device};
use crate::error::Result;

/// Tells all devices that answer that `transaction` gives up `copy`, but for its own.
///
/// # Errors
/// Those of a device that has answered.
pub(super) async fn tell(
    database: &Arc<Database>,
    transaction: &mut Transaction,
    copy: &LogCopy,
) -> Result<()> {
    for device in database.devices() {
        let is_asked = device.id() != DeviceId::EMBEDDED && device.id().0 != copy.device;
        if !is_asked {
            continue;
        }
        let link = waiting::timeout(OPENING_WAIT, Box::pin(device.link())).await;
        let Some(Ok(_)) = link else { continue };
        let claim = transaction.claim(&device);
        let arena = match aligned(&claim, ANCHOR_BLOCKS).await {
            Err(error) if error.sqlstate() == DISK_FULL => continue,
            taken => taken?,
        };
        let id = drawn_id()?;
        let head = Head {
            database: database.catalog().database.0.to_vec(),
            id: id.to_vec(),
            given_up: copy.id.to_vec(),
            epoch: database.catalog().epoch,
        };
        // Durable before the root is, as all that a transaction writes.
        claim.write(arena.start, Bytes::from(head.seal())).await?;
        transaction.next.upkeep.log_copies.push(LogCopy {
            device: device.id().0,
            id,
            arenas: vec![arena],
            is_ended: true,
            gives_up: Some(copy.id),
        });
    }
    Ok(())
}

/// Whether `device`, of so many blocks, was told that the copy was given up whose newest stamp is `stamp`.
///
/// # Errors
/// Those of the device.
pub(super) async fn is_told(
    device: &Device,
    database: [u8; 16],
    block_count: u64,
    stamp: &Stamp,
) -> Result<bool> {
    let heads = found::heads(device, database, block_count).await?;
    let is_of = |head: &Head| head.given_up == stamp.id && head.epoch >= stamp.epoch;
    Ok(heads.iter().any(|(_, head)| is_of(head)))
}
