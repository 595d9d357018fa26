//! Prints a page as it lies on a device, whether or not anything refers to it.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{Field, Schema};
use cleave_catalog::error::Result;
use cleave_catalog::value::value_text;
use cleave_engine::device::Device;
use cleave_engine::device::whole_pages::blocks;
use cleave_engine::storage_engine::{EMBEDDED_DEVICE_NAME, Engine};
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};
use cleave_store::page::inspection::{PageInspection, inspect_page, own_block_count};
use cleave_store::{
    ColumnRef, OverflowValues, PageColumns, PageKind, PageRead, PageRef, Projection, SegmentId,
    SegmentRef, TableSchema, ZoneEntry, decode_batch,
};

use super::{absent, catalog};

/// Longest value that is printed, in characters.
const VALUE_LENGTH_MAX: usize = 60;

/// The page of a segment.
pub(super) async fn named(
    database: &Engine,
    segment: SegmentId,
    page: u32,
    row_count: usize,
) -> Result<Vec<String>> {
    let state = database.catalog();
    let (table, segment) = catalog::find(&state, segment)?;
    let found = segment.page_refs().find(|found| found.page == page);
    let found = found.ok_or_else(|| absent(format!("page {page} in {}", segment.segment)))?;
    let owner = table
        .tablets
        .iter()
        .find(|tablet| tablet.segments().any(|own| own.segment == segment.segment));
    let device = owner.and_then(|tablet| database.device(tablet.device));
    let device = device.ok_or_else(|| absent(format!("device with {}", segment.segment)))?;
    let expected = Expected { page: *found, segment: segment.segment_ref() };
    show(&device, found.extent, Some(expected), Some(&table.schema), row_count).await
}

/// What lies at a block.
pub(super) async fn at(
    database: &Engine,
    address: BlockAddress,
    device: Option<&str>,
    row_count: usize,
) -> Result<Vec<String>> {
    let device = database.device_named(device.unwrap_or(EMBEDDED_DEVICE_NAME))?;
    let first = blocks(&device, Extent { start: address, block_count: 1 }).await?;
    // As many as it says, and no more than there are.
    let there = device.block_count().await?.saturating_sub(address.0);
    let there = u32::try_from(there).unwrap_or(u32::MAX);
    let block_count = own_block_count(&first).unwrap_or(1).clamp(1, there.max(1));
    let extent = Extent { start: address, block_count };
    let state = database.catalog();
    let mut schemas = state.tables().map(|table| &table.schema);
    let found = inspect_page(&first, address).ok();
    let schema =
        found.and_then(|found| schemas.find(|schema| schema.table_id == found.segment.table_id));
    show(&device, extent, None, schema.map(|schema| &**schema), row_count).await
}

/// What the catalog says of a page.
#[derive(Debug, Clone, Copy)]
struct Expected {
    page: PageRef,
    segment: SegmentRef,
}

async fn show(
    device: &Device,
    extent: Extent,
    expected: Option<Expected>,
    schema: Option<&TableSchema>,
    row_count: usize,
) -> Result<Vec<String>> {
    let bytes = blocks(device, extent).await?;
    let mut lines = vec![format!("device \"{}\", {extent}, {} bytes", device.name(), bytes.len())];
    let found = match inspect_page(&bytes, extent.start) {
        Ok(found) => found,
        Err(fault) => {
            lines.push(format!("NO PAGE: {fault}"));
            let start = bytes.get(..64.min(bytes.len())).unwrap_or_default();
            let digits: Vec<_> = start.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push(format!("it begins with {}", digits.join(" ")));
            return Ok(lines);
        }
    };
    let own = &found.page;
    lines.push(format!(
        "table {}, {}, page {}, schema version {}, {} rows, {} blocks ({} bytes)",
        found.segment.table_id,
        found.segment.segment,
        own.page,
        found.segment.schema_version,
        own.row_count,
        own.extent.block_count,
        own.extent.block_count as usize * BLOCK_SIZE
    ));
    lines.push(match expected {
        Some(expected) if expected.page.checksum == own.checksum => {
            format!("header checksum {:08x}, as the segment's directory says", own.checksum)
        }
        Some(expected) => format!(
            "DAMAGED: header checksum {:08x}, and the segment's directory says {:08x}",
            own.checksum, expected.page.checksum
        ),
        None => format!("header checksum {:08x}", own.checksum),
    });
    let header = match &found.header {
        Ok(header) => header,
        Err(fault) => {
            lines.push(format!("DAMAGED: {fault}"));
            return Ok(lines);
        }
    };
    lines.push(format!("kind {:?}, format version {}", header.kind, header.format_version));
    for chunk in &found.chunks {
        let entry = &chunk.entry;
        let name = match (entry.column, schema) {
            (ColumnRef::User(id), Some(schema)) if header.kind == PageKind::Heap => {
                let column = schema.columns.iter().find(|column| column.id == id);
                column.map_or(entry.column.to_string(), |column| format!("\"{}\"", column.name))
            }
            _ => entry.column.to_string(),
        };
        let place = match (entry.length, entry.shared) {
            (0, _) => "no bytes".to_owned(),
            (length, None) => format!("{length} bytes at {}", entry.offset),
            (length, Some(start)) => format!("{length} bytes from block {} on", start.0),
        };
        let mut line = format!(
            "  {name}: {:?}, {:?}, {place}, {} NULLs",
            entry.value_type, entry.encoding, entry.null_count
        );
        if entry.overflow_count > 0 {
            let (first, count) = entry.overflow_pages();
            line.push_str(&format!(
                ", {} long values on pages {first} to {}",
                entry.overflow_count,
                first.saturating_add(count).saturating_sub(1)
            ));
        }
        match &chunk.fault {
            Some(fault) => line.push_str(&format!(", DAMAGED: {fault}")),
            None => line.push_str(&values(&found, entry.column, expected)),
        }
        lines.push(line);
    }
    if row_count > 0 && header.kind != PageKind::Overflow {
        lines.extend(rows(&found, expected, row_count));
    }
    Ok(lines)
}

/// One column, decoded; long values are not read.
fn decoded(
    found: &PageInspection,
    column: ColumnRef,
    expected: Option<Expected>,
) -> Option<RecordBatch> {
    let header = found.header.as_ref().ok()?;
    let chunk = found.chunks.iter().find(|chunk| chunk.entry.column == column)?;
    if header.kind == PageKind::Overflow || chunk.entry.overflow_count > 0 || chunk.fault.is_some()
    {
        return None;
    }
    let field = Field::new("value", chunk.entry.value_type.arrow(), true);
    let projection = Projection::new(Schema::new(vec![field]).into(), vec![column]);
    // The commit of a bulk page stands in its directory.
    let segment = expected.map_or(found.segment, |expected| expected.segment);
    let read = PageRead { segment, page: found.page, columns: vec![column] };
    let page = PageColumns { header: Arc::new(header.clone()), chunks: vec![chunk.bytes.clone()] };
    decode_batch(&page, &read, &projection, None, &OverflowValues::none()).ok()
}

/// The bounds of a column's values.
fn values(found: &PageInspection, column: ColumnRef, expected: Option<Expected>) -> String {
    let overflowed =
        found.chunks.iter().any(|c| c.entry.column == column && c.entry.overflow_count > 0);
    let Some(batch) = decoded(found, column, expected) else {
        let is_bytes =
            overflowed || found.header.as_ref().is_ok_and(|h| h.kind == PageKind::Overflow);
        return if is_bytes {
            String::new()
        } else {
            ", DAMAGED: its values do not decode".to_owned()
        };
    };
    let array = batch.column(0);
    let bounds = cleave_store::zone_arrays(
        [(found.page.row_count, [ZoneEntry::of(1, array)].as_slice())],
        1,
        array.data_type(),
        None,
    );
    let text = |array| value_text(array, 0).ok().flatten().map(|text| cut(&text));
    match text(&bounds.mins).zip(text(&bounds.maxs)) {
        Some((least, greatest)) => format!(", {least} to {greatest}"),
        None => String::new(),
    }
}

fn rows(found: &PageInspection, expected: Option<Expected>, row_count: usize) -> Vec<String> {
    let columns: Vec<_> =
        found.chunks.iter().map(|chunk| decoded(found, chunk.entry.column, expected)).collect();
    let rows = usize::try_from(found.page.row_count).unwrap_or(0).min(row_count);
    let value = |column: &Option<RecordBatch>, row: usize| match column {
        None => "?".to_owned(),
        Some(batch) => {
            let text =
                value_text(batch.column(0), row).unwrap_or_else(|error| Some(error.to_string()));
            text.map_or_else(|| "NULL".to_owned(), |text| cut(&text))
        }
    };
    (0..rows)
        .map(|row| {
            let values: Vec<_> = columns.iter().map(|column| value(column, row)).collect();
            format!("  slot {row}: {}", values.join(" | "))
        })
        .collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_LENGTH_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
