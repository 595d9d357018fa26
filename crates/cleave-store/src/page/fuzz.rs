//! Random damage to pages: changed bytes give an error or the same rows, and never a panic.
//!
//! Two kinds: plain damage, which checksums must find; and damage with matching checksums, as from a faulty writer or a
//! hostile peer, which validation must find or which decodes to other rows.

use bytes::Bytes;
use cleave_media::SplitMix64;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;

use crate::page::checksum::checksum;
use crate::page::overflow::overflow_payload;
use crate::page::testing::{SEGMENT, TYPES, everything, orderly_rows, rows, table};
use crate::{
    ColumnType, CommitColumn, EncodedPage, OpenedPage, OverflowValues, PageClass, PageColumns,
    PageHeader, PageKind, PageRead, PageRef, RawColumns, SegmentWriter, StoreError, TableSchema,
    Versions, VidColumn, all_columns, decode_batch, decode_rows, overflow_pages, parse_header,
};
use arrow::array::RecordBatch;
use cleave_media::BlockAddress;

/// A page of a few rows of several types, long values among them, with its overflow pages.
fn sample(seed: u64) -> (TableSchema, Vec<EncodedPage>) {
    let mut random = SplitMix64::new(seed);
    let types: Vec<ColumnType> = (0..4)
        .map(|_| TYPES[usize::try_from(random.below(TYPES.len() as u64)).unwrap()])
        .chain([ColumnType::Text])
        .collect();
    let schema = table(&types);
    // Pages with light encodings need more rows to use them.
    let columnar = random.below(2) == 0;
    let text_length_max = if random.below(3) == 0 { 2500 } else { 40 };
    let count = if columnar { 400 + random.below(200) } else { 2 + random.below(20) };
    let count = usize::try_from(count).unwrap();
    let batch = if columnar {
        orderly_rows(&schema, count, random.next_u64())
    } else {
        rows(&schema, count, text_length_max, random.next_u64())
    };
    let versions = Versions {
        vid: VidColumn::Each((0..count).map(|_| random.next_u64()).collect()),
        commit: CommitColumn::Each((0..count).map(|_| random.below(3)).collect()),
    };
    let class = if columnar { PageClass::BULK } else { PageClass::HOT };
    let mut writer = SegmentWriter::new(SEGMENT, &schema, class, 0, 0).unwrap();
    let mut pages = writer.push_versions(&batch, versions).unwrap();
    if pages.iter().all(|page| page.kind == PageKind::Overflow) || pages.is_empty() {
        pages.extend(writer.finish().unwrap());
    }
    let heap = pages.iter().position(|page| page.kind == PageKind::Heap).unwrap();
    pages.truncate(heap + 1);
    (schema, pages)
}

fn reference(page: &EncodedPage) -> PageRef {
    page.page_ref(BlockAddress(8))
}

/// All rows of the last page, from untrusted bytes.
fn decode(
    schema: &TableSchema,
    page: &PageRef,
    bytes: &Bytes,
    overflow: &[(PageRef, Bytes)],
) -> Result<RecordBatch, StoreError> {
    let read = PageRead { segment: SEGMENT, page: *page, columns: all_columns(schema) };
    let header = parse_header(bytes, page, &SEGMENT)?;
    let chunks = read.columns.iter().map(|column| {
        let entry = header.entry(*column).filter(|entry| entry.length > 0)?;
        let from = usize::try_from(entry.offset).ok()?;
        let to = from.checked_add(usize::try_from(entry.length).ok()?)?;
        (to <= bytes.len()).then(|| bytes.slice(from..to))
    });
    let raw = RawColumns { header: bytes.clone(), chunks: chunks.collect() };
    let columns = PageColumns::verify(&read, raw)?;
    let projection = everything(schema);
    let mut values = OverflowValues::none();
    for number in overflow_pages(&columns, &read, &projection.columns, None)? {
        if let Some((page, bytes)) = overflow.iter().find(|(page, _)| page.page == number) {
            values.insert(number, overflow_payload(&SEGMENT, page, bytes)?);
        }
    }
    let batch = decode_batch(&columns, &read, &projection, None, &values)?;
    // A single row takes another path through the chunk: it must not panic either, and agree.
    for slot in 0..columns.header.row_count.min(64) {
        let slot = u16::try_from(slot).unwrap();
        let row = decode_rows(&columns, &read, &[slot], &projection, &values)?;
        assert_eq!(row.columns().len(), batch.columns().len());
        for (one, all) in row.columns().iter().zip(batch.columns()) {
            assert!(one.to_data() == all.slice(usize::from(slot), 1).to_data());
        }
        if let Some(opened) = OpenedPage::open(&columns, &read)? {
            assert_eq!(opened.rows(&[slot], &projection)?, row);
        }
    }
    Ok(batch)
}

/// Changes bytes: flips, overwritten runs, swapped blocks, lost tails.
fn damage(bytes: &mut Vec<u8>, wounds: &[(u8, usize, u64)]) {
    for (kind, at, value) in wounds {
        if bytes.is_empty() {
            return;
        }
        let at = at % bytes.len();
        let end = bytes.len().min(at + 8);
        match kind % 5 {
            0 => bytes[at] ^= 1 << (value % 8),
            1 => bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]),
            2 => bytes[at..end].fill(if value % 2 == 0 { 0 } else { 0xff }),
            3 => bytes.truncate(at),
            _ => {
                let half = bytes.len() / 2;
                bytes.rotate_left(half.max(1));
            }
        }
    }
}

proptest! {
    #[test]
    fn damaged_bytes_are_found(
        seed in any::<u64>(),
        which in any::<prop::sample::Index>(),
        wounds in prop::collection::vec((any::<u8>(), any::<usize>(), any::<u64>()), 1..4),
    ) {
        let (schema, pages) = sample(seed);
        let intact: Vec<(PageRef, Bytes)> =
            pages.iter().map(|page| (reference(page), Bytes::copy_from_slice(&page.bytes))).collect();
        let (heap, overflow) = intact.split_last().unwrap();
        let expected = decode(&schema, &heap.0, &heap.1, overflow).unwrap();

        let which = which.index(intact.len());
        let mut hurt = intact.clone();
        let mut bytes = hurt[which].1.to_vec();
        damage(&mut bytes, &wounds);
        hurt[which].1 = Bytes::from(bytes);
        let (heap, overflow) = hurt.split_last().unwrap();
        match decode(&schema, &heap.0, &heap.1, overflow) {
            Ok(found) => prop_assert!(found == expected, "damage that gave other rows"),
            Err(StoreError::Corrupt { page, address, .. }) => {
                prop_assert_eq!(page, hurt[which].0.page);
                prop_assert_eq!(address, BlockAddress(8));
            }
            Err(other) => return Err(TestCaseError::fail(format!("{other}"))),
        }
    }

    #[test]
    fn chunks_with_fitting_checksums_never_panic(
        seed in any::<u64>(),
        wounds in prop::collection::vec((0_u8..3, any::<usize>(), any::<u64>()), 1..4),
        places in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let (schema, mut pages) = sample(seed);
        let heap = pages.pop().unwrap();
        let overflow: Vec<(PageRef, Bytes)> =
            pages.iter().map(|page| (reference(page), Bytes::copy_from_slice(&page.bytes))).collect();
        let mut page = reference(&heap);
        let mut bytes = heap.bytes.to_vec();
        let mut header = parse_header(&bytes, &page, &SEGMENT).unwrap();
        // Damage inside of chunks, which a plain position hits rarely.
        for (wound, place) in wounds.iter().zip(&places) {
            let chunks: Vec<_> = header.chunks.iter().filter(|chunk| chunk.length > 0).collect();
            if chunks.is_empty() {
                return Ok(());
            }
            let chunk = chunks[place.index(chunks.len())];
            let from = usize::try_from(chunk.offset).unwrap();
            let to = from + usize::try_from(chunk.length).unwrap();
            let mut inner = bytes[from..to].to_vec();
            damage(&mut inner, std::slice::from_ref(wound));
            bytes[from..to].copy_from_slice(&inner);
        }
        seal(&mut header, &mut bytes, &mut page);
        drop(decode(&schema, &page, &Bytes::from(bytes), &overflow));
    }

    #[test]
    fn headers_with_fitting_checksums_never_panic(
        seed in any::<u64>(),
        wounds in prop::collection::vec((0_u8..3, any::<usize>(), any::<u64>()), 1..4),
        small in any::<bool>(),
        which in any::<prop::sample::Index>(),
    ) {
        let (schema, pages) = sample(seed);
        let mut stored: Vec<(PageRef, Bytes)> =
            pages.iter().map(|page| (reference(page), Bytes::copy_from_slice(&page.bytes))).collect();
        let which = which.index(stored.len());
        let mut bytes = stored[which].1.to_vec();
        let length = parse_header(&bytes, &stored[which].0, &SEGMENT).unwrap().header_length;
        let length = usize::try_from(length).unwrap();
        let mut inner = bytes[..length].to_vec();
        for (kind, at, value) in wounds {
            // Small numbers are the ones that pass the first checks.
            let value = if small { value % 300 } else { value };
            damage(&mut inner, &[(kind, at, value)]);
        }
        bytes[..length].copy_from_slice(&inner);
        let row_count = u32::from_le_bytes(*inner[28..].first_chunk().unwrap());
        stored[which].0.row_count = row_count;
        stored[which].0.checksum = checksum(&inner);
        stored[which].1 = Bytes::from(bytes);
        let (heap, overflow) = stored.split_last().unwrap();
        drop(decode(&schema, &heap.0, &heap.1, overflow));
    }

    #[test]
    fn any_bytes_are_no_page(bytes in prop::collection::vec(any::<u8>(), 0..300), fitting in any::<bool>()) {
        let (_, pages) = sample(1);
        let mut page = reference(pages.last().unwrap());
        if fitting {
            page.checksum = checksum(&bytes);
        }
        let corrupt =
            matches!(parse_header(&bytes, &page, &SEGMENT), Err(StoreError::Corrupt { column: None, .. }));
        prop_assert!(corrupt);
    }
}

/// Makes all checksums fit the bytes.
fn seal(header: &mut PageHeader, bytes: &mut [u8], page: &mut PageRef) {
    for chunk in &mut header.chunks {
        if chunk.length > 0 {
            let from = usize::try_from(chunk.offset).unwrap();
            let to = from + usize::try_from(chunk.length).unwrap();
            chunk.checksum = checksum(&bytes[from..to]);
        }
    }
    let encoded = header.encode();
    bytes[..encoded.len()].copy_from_slice(&encoded);
    page.checksum = checksum(&encoded);
}
