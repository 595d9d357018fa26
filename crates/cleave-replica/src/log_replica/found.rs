//! Finds and reads a replica on a device: an anchor in, the newest valid stamp out, and its files and log.
//!
//! A stamp is valid if all that was written together with it is there as it was written: the blocks of the log, the
//! list, and the manifest in it. Where a crash tore the newest one, the one before it is valid, and nothing that it
//! lacks was acknowledged.
//!
//! Invariant: what is read is bounded by the size that the device reports, and by [`FILE_BYTES_MAX`]; nothing is
//! believed that does not match its checksum.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use bytes::Bytes;
use cleave_catalog::error::Result;
use cleave_engine::device::Device;
use cleave_fragment::command::{ReadItem, ReadPayload};
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};

use super::layout::{
    ANCHOR_ALIGNMENT, BLOCK, Head, List, Place, SLOT_BLOCKS, SLOT_COUNT, Stamp, blocks, slot, whole,
};
use super::{MANIFEST, fault};

/// The largest file that is read back, and the longest log.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Blocks that one search read covers.
const LOOK_BLOCKS: usize = 1024;
/// Blocks that one read asks for.
const READ_BLOCKS: u32 = 1024;

/// A replica, as it lies on a device.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// The newest stamp that holds.
    pub(super) stamp: Stamp,
    /// Its slot.
    pub(super) slot: u32,
    /// The highest number of any stamp, be it torn.
    pub(super) sequence_max: u64,
    /// The files that its list has.
    pub(super) files: BTreeMap<String, Place>,
}

/// As [`newest`], which is to be there.
///
/// # Errors
/// Where there is none, or none that holds; those of the device.
pub(super) async fn search(device: &Device, database: [u8; 16], block_count: u64) -> Result<Found> {
    if let Some(newest) = newest(device, database, block_count).await? {
        return Ok(newest);
    }
    let heads = heads(device, database, block_count).await?;
    let reason = match heads.iter().any(|(_, head)| head.given_up.is_empty()) {
        true => "the log replica on it was begun, and none that is whole is there",
        false => {
            "it has no log replica of its database; one is kept there by ALTER SYSTEM SET log_replica"
        }
    };
    Err(fault(device, reason))
}

/// Looks at all places on `device`, of so many blocks, at which a log replica of `database` may begin; the newest
/// one that holds.
///
/// # Errors
/// Those of the device.
pub(super) async fn newest(
    device: &Device,
    database: [u8; 16],
    block_count: u64,
) -> Result<Option<Found>> {
    let mut newest: Option<Found> = None;
    let heads = heads(device, database, block_count).await?;
    for (anchor, head) in heads.iter().filter(|(_, head)| head.given_up.is_empty()) {
        let found = at(device, *anchor, &head.id, block_count).await?;
        let age = |found: &Found| (found.stamp.epoch, found.stamp.time_us);
        if let Some(found) = found
            && newest.as_ref().is_none_or(|newest| age(newest) < age(&found))
        {
            newest = Some(found);
        }
    }
    Ok(newest)
}

/// The heads on `device`, of so many blocks, that are of `database`, and where they lie.
///
/// # Errors
/// Those of the device.
pub(super) async fn heads(
    device: &Device,
    database: [u8; 16],
    block_count: u64,
) -> Result<Vec<(BlockAddress, Head)>> {
    let mut heads = Vec::new();
    let mut places = (0..block_count).step_by(ANCHOR_ALIGNMENT as usize);
    loop {
        let places: Vec<u64> = places.by_ref().take(LOOK_BLOCKS).collect();
        if places.is_empty() {
            return Ok(heads);
        }
        let extents = places.iter().map(|start| one_block(*start)).collect();
        for (start, block) in places.iter().zip(read(device, extents).await?) {
            let head = Head::open(&block).filter(|head| head.database == database);
            heads.extend(head.map(|head| (BlockAddress(*start), head)));
        }
    }
}

/// The newest stamp that holds of the replica `id` with its anchor at `anchor`; None: there is none.
///
/// # Errors
/// Those of the device.
pub(super) async fn at(
    device: &Device,
    anchor: BlockAddress,
    id: &[u8],
    block_count: u64,
) -> Result<Option<Found>> {
    let behind = slot(anchor, SLOT_COUNT).start.0;
    if behind > block_count {
        return Ok(None);
    }
    let slots: Vec<Extent> = (0..SLOT_COUNT).map(|number| slot(anchor, number)).collect();
    debug_assert!(slots.iter().all(|slot| slot.block_count == SLOT_BLOCKS));
    let stamps = read(device, slots).await?;
    let stamps = (0..).zip(stamps).filter_map(|(slot, bytes)| Some((slot, Stamp::open(&bytes)?)));
    let mut stamps: Vec<(u32, Stamp)> = stamps.filter(|(_, stamp)| stamp.id == id).collect();
    stamps.sort_by_key(|(_, stamp)| std::cmp::Reverse(stamp.sequence));
    let sequence_max = stamps.first().map_or(0, |(_, stamp)| stamp.sequence);
    for (slot, stamp) in stamps {
        if let Some(files) = verified(device, &stamp, block_count).await? {
            return Ok(Some(Found { stamp, slot, sequence_max, files }));
        }
    }
    Ok(None)
}

/// The files of `stamp`, if it holds.
async fn verified(
    device: &Device,
    stamp: &Stamp,
    block_count: u64,
) -> Result<Option<BTreeMap<String, Place>>> {
    let is_there = |extent: &Extent| extent.end().0 <= block_count;
    let fresh = stamp.ring_extents(stamp.fresh_start, whole(stamp.log_end));
    if !is_there(&stamp.ring()) || !fresh.iter().all(is_there) {
        return Ok(None);
    }
    let mut checksum = 0;
    for extent in fresh {
        for bytes in read_whole(device, extent).await? {
            checksum = crc32c::crc32c_append(checksum, &bytes);
        }
    }
    if checksum != stamp.fresh_checksum {
        return Ok(None);
    }
    let Some(list) = stamp.list.filter(|list| is_there(&list.extent())) else { return Ok(None) };
    let Some(list) = file(device, &list).await? else { return Ok(None) };
    let Some(list) = List::open(&list) else { return Ok(None) };
    let places = list.files.into_iter();
    let files: Option<BTreeMap<String, Place>> = places
        .map(|file| {
            let place = file.place.filter(|place| is_there(&place.extent()));
            // Builds before this one called the manifest so.
            let name = if file.name == "root" { MANIFEST.to_owned() } else { file.name };
            Some((name, place?))
        })
        .collect();
    let Some(files) = files else { return Ok(None) };
    let Some(manifest) = files.get(MANIFEST) else { return Ok(None) };
    Ok(file(device, manifest).await?.map(|_| files))
}

/// The bytes at `place`; None: they are not what was written.
///
/// # Errors
/// Those of the device.
pub(super) async fn file(device: &Device, place: &Place) -> Result<Option<Vec<u8>>> {
    if place.bytes > FILE_BYTES_MAX || place.extent().bytes() as u64 != whole_up(place.bytes) {
        return Ok(None);
    }
    let mut bytes = read_whole(device, place.extent()).await?.concat();
    bytes.truncate(usize::try_from(place.bytes).unwrap_or(usize::MAX));
    Ok((crc32c::crc32c(&bytes) == place.checksum).then_some(bytes))
}

/// The log that `stamp` has, from the block in which it begins.
///
/// # Errors
/// Those of the device; an invalid log.
pub(super) async fn log(device: &Device, stamp: &Stamp) -> Result<Vec<u8>> {
    let (from, to) = (whole(stamp.log_start), whole(stamp.log_end));
    if to - from > FILE_BYTES_MAX {
        return Err(fault(device, "the log replica on it is longer than any is"));
    }
    let mut log = Vec::with_capacity(usize::try_from(to - from).unwrap_or(0) + stamp.tail.len());
    for extent in stamp.ring_extents(from, to) {
        for bytes in read_whole(device, extent).await? {
            log.extend_from_slice(&bytes);
        }
    }
    log.extend_from_slice(&stamp.tail);
    Ok(log)
}

/// Whether the log that `stamp` has from `from` on is what `own` gives for the same places.
///
/// # Errors
/// Those of the device, and of `own`.
pub(super) async fn has_log(
    device: &Device,
    stamp: &Stamp,
    from: u64,
    own: impl Fn(u64, u64) -> Result<Vec<u8>>,
) -> Result<bool> {
    let is_same = |theirs: &[u8], start: u64, end: u64| {
        let first = from.max(start);
        let skipped = usize::try_from(first - start).unwrap_or(usize::MAX);
        let ours = own(first, end)?;
        Ok::<_, cleave_catalog::error::Error>(theirs.get(skipped..) == Some(ours.as_slice()))
    };
    let (mut next, tail) = (whole(from), whole(stamp.log_end));
    while next < tail {
        let end = tail.min(next + u64::from(READ_BLOCKS) * BLOCK);
        let theirs = read(device, stamp.ring_extents(next, end)).await?.concat();
        if !is_same(&theirs, next, end)? {
            return Ok(false);
        }
        next = end;
    }
    is_same(&stamp.tail, tail, stamp.log_end)
}

/// Reads an extent in pieces that one command takes.
async fn read_whole(device: &Device, extent: Extent) -> Result<Vec<Bytes>> {
    let mut pieces = Vec::new();
    let mut next = extent.start.0;
    while next < extent.end().0 {
        let left = extent.end().0 - next;
        let block_count = u32::try_from(left).unwrap_or(u32::MAX).min(READ_BLOCKS);
        pieces.push(Extent { start: BlockAddress(next), block_count });
        next += u64::from(block_count);
    }
    read(device, pieces).await
}

/// The bytes of `extents`, in order.
///
/// # Errors
/// Those of the device.
pub(super) async fn read(device: &Device, extents: Vec<Extent>) -> Result<Vec<Bytes>> {
    let sizes: Vec<usize> = extents.iter().map(|extent| extent.bytes()).collect();
    let items = extents.into_iter().map(ReadItem::Blocks).collect();
    let mut blocks = Vec::with_capacity(sizes.len());
    for (payload, size) in device.read(items).await?.into_iter().zip(sizes) {
        match payload {
            ReadPayload::Blocks(bytes) if bytes.len() == size => blocks.push(bytes),
            _ => return Err(device.strange_payload("other blocks than were asked for")),
        }
    }
    Ok(blocks)
}

fn one_block(start: u64) -> Extent {
    Extent { start: BlockAddress(start), block_count: 1 }
}

fn whole_up(bytes: u64) -> u64 {
    u64::from(blocks(bytes)) * BLOCK_SIZE as u64
}
