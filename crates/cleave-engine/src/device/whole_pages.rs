//! Pages of a device, read past all caches, verified, and whole: for whoever copies or checks them.
//!
//! A copy has a page version with the chunks that it shares, so that it can lie where the earlier versions do not.

use std::sync::Arc;

use super::Device;
use bytes::{Bytes, BytesMut};
use cleave_catalog::error::Result;
use cleave_fragment::command::{ReadItem, ReadPayload};
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};
use cleave_store::page::overflow::overflow_payload;
use cleave_store::{
    ColumnRef, PageColumns, PageHeader, PageKind, PageRead, PageRef, SegmentRef, consolidated,
    parse_header,
};
use futures::FutureExt;

/// Blocks that one command asks for: 4 MiB.
const READ_BLOCK_COUNT: u32 = 1024;

/// Reads one page, of a mirror from a copy that has it, and verifies all of it; returns it as it is to be copied: a
/// page version with the chunks that it shares, as a page of its own.
///
/// # Errors
/// Those of the device; [`StoreError::Corrupt`](cleave_store::StoreError::Corrupt) for a page that does not hold.
pub async fn whole_page(
    device: &Arc<Device>,
    segment: SegmentRef,
    page: PageRef,
) -> Result<(PageRef, Bytes)> {
    device
        .ask_pages(|device| async move { whole_page_of(&device, segment, page).await }.boxed())
        .await
}

async fn whole_page_of(
    device: &Device,
    segment: SegmentRef,
    page: PageRef,
) -> Result<(PageRef, Bytes)> {
    let (parts, columns) = verified(device, segment, page).await?;
    let bytes = parts.first().map(|(_, bytes)| bytes.clone()).unwrap_or_default();
    let Some((read, columns)) = columns.filter(|_| parts.len() > 1) else {
        return Ok((page, bytes));
    };
    let whole = consolidated(&read, &columns)?;
    let page = whole.page_ref(page.extent.start);
    Ok((page, whole.bytes.into_bytes()))
}

/// Reads one page, and verifies all of it; returns its blocks as they lie there, with those that it shares.
///
/// # Errors
/// As [`whole_page`].
pub(crate) async fn verified_blocks(
    device: &Device,
    segment: SegmentRef,
    page: PageRef,
) -> Result<PageBlocks> {
    Ok(verified(device, segment, page).await?.0)
}

/// The blocks of a page, and its columns; None: it has long values.
async fn verified(
    device: &Device,
    segment: SegmentRef,
    page: PageRef,
) -> Result<(PageBlocks, Option<(PageRead, PageColumns)>)> {
    let bytes = blocks(device, page.extent).await?;
    let header = Arc::new(parse_header(&bytes, &page, &segment)?);
    if header.kind == PageKind::Overflow {
        overflow_payload(&segment, &page, &bytes)?;
        return Ok((vec![(page.extent.start, bytes)], None));
    }
    let with_bytes = header.chunks.iter().filter(|entry| entry.length > 0);
    let columns = with_bytes.map(|entry| entry.column).collect();
    let read = PageRead { segment, page, columns };
    let parts = with_shared(device, &header, page, bytes).await?;
    let chunks = read.columns.iter().map(|column| chunk(&header, &parts, *column)).collect();
    let columns = PageColumns::verify_with_header(&read, header, chunks)?;
    Ok((parts, Some((read, columns))))
}

/// Blocks of the media, in commands of a bounded size.
///
/// # Errors
/// Those of the device.
pub async fn blocks(device: &Device, extent: Extent) -> Result<Bytes> {
    let mut items = Vec::new();
    let mut from = 0;
    while from < extent.block_count {
        let block_count = READ_BLOCK_COUNT.min(extent.block_count - from);
        let start = BlockAddress(extent.start.0.saturating_add(u64::from(from)));
        items.push(ReadItem::Blocks(Extent { start, block_count }));
        from += block_count;
    }
    let mut parts = Vec::with_capacity(items.len());
    for payload in device.read(items).await? {
        match payload {
            ReadPayload::Blocks(bytes) => parts.push(bytes),
            ReadPayload::Columns { .. } => {
                return Err(device.strange_payload("columns where blocks were asked for"));
            }
        }
    }
    if let [whole] = parts.as_slice() {
        return Ok(whole.clone());
    }
    let mut joined = BytesMut::with_capacity(extent.bytes());
    parts.iter().for_each(|part| joined.extend_from_slice(part));
    Ok(joined.freeze())
}

/// Blocks of a page, and those that it shares with earlier versions: each with its first block, the page's own first.
pub type PageBlocks = Vec<(BlockAddress, Bytes)>;

/// The blocks `bytes` of `page`, with those that its header names elsewhere.
///
/// # Errors
/// Those of the device.
pub async fn with_shared(
    device: &Device,
    header: &PageHeader,
    page: PageRef,
    bytes: Bytes,
) -> Result<PageBlocks> {
    let mut parts = vec![(page.extent.start, bytes)];
    for extent in header.shared_extents() {
        parts.push((extent.start, blocks(device, extent).await?));
    }
    Ok(parts)
}

/// The chunk of `column`; None: it has no bytes, or they are not in `parts`.
pub fn chunk(header: &PageHeader, parts: &PageBlocks, column: ColumnRef) -> Option<Bytes> {
    let page = parts.first()?.0;
    let place = header.entry(column)?.place(page)?;
    parts.iter().find_map(|(start, bytes)| {
        let first = start.0.checked_mul(BLOCK_SIZE as u64)?;
        let within = |byte: u64| usize::try_from(byte.checked_sub(first)?).ok();
        let (from, to) = (within(place.start)?, within(place.end)?);
        (to <= bytes.len()).then(|| bytes.slice(from..to))
    })
}
