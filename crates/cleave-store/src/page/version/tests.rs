//! Page versions over media in memory: what they share, what they hold, and what is refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array, new_null_array};
use arrow::compute::{interleave, take};
use cleave_media::{BlockAddress, Extent, Media};

use crate::page::testing::{SEGMENT, Stored, TYPES, assert_same, orderly_rows, rows, table};
use crate::page::version::{ChangedColumn, consolidated, copied_columns, page_version};
use crate::{
    ColumnRef, ColumnType, PageClass, PageRead, PageRef, SegmentWriter, StoreError, TableSchema,
};

/// A page of random rows of every type, on media.
fn page_of(class: PageClass, row_count: usize, seed: u64) -> (TableSchema, RecordBatch, Stored) {
    let schema = table(&TYPES);
    let rows = match class {
        PageClass::BULK => orderly_rows(&schema, row_count, seed),
        _ => rows(&schema, row_count, 8, seed),
    };
    let mut writer = SegmentWriter::new(SEGMENT, &schema, class, 0, 5).unwrap();
    let mut pages = writer.push(&rows).unwrap();
    pages.extend(writer.finish().unwrap());
    (schema, rows, Stored::place(&pages))
}

/// Writes the version of `page` in which `changed` columns have the values of `source`; returns it and the blocks that
/// it shares.
fn versioned(
    stored: &Stored,
    page: PageRef,
    schema: &TableSchema,
    changed: &[usize],
    source: &RecordBatch,
) -> Result<(PageRef, Vec<Extent>), StoreError> {
    let changed: Vec<ChangedColumn> = changed
        .iter()
        .map(|at| ChangedColumn {
            id: schema.columns[*at].id,
            values: Arc::clone(source.column(*at)),
        })
        .collect();
    let ids: Vec<u32> = changed.iter().map(|column| column.id).collect();
    let mut read = PageRead { segment: SEGMENT, page, columns: Vec::new() };
    let header = stored.pages().read_page(&read)?.header;
    read.columns = copied_columns(&header, &ids);
    let columns = stored.pages().read_page(&read)?;
    let version = page_version(&read, &columns, &changed)?;
    let start = BlockAddress(stored.media.block_count());
    let reference = version.page.page_ref(start);
    stored.media.grow_to(reference.extent.end().0).unwrap();
    stored.media.write(start, &version.page.bytes).unwrap();
    Ok((reference, version.shared))
}

fn assert_columns(found: &RecordBatch, old: &RecordBatch, new: &RecordBatch, changed: &[usize]) {
    for at in 0..old.num_columns() {
        let expected = if changed.contains(&at) { new } else { old };
        assert_same(found.column(at), expected.column(at));
    }
}

#[test]
fn a_version_has_the_new_values_and_shares_the_others() {
    for (class, row_count) in
        [(PageClass::BULK, 20_000), (PageClass::BULK, 40), (PageClass::HOT, 60)]
    {
        for seed in 0..6 {
            let (schema, old, stored) = page_of(class, row_count, seed);
            let page = stored.heap[0];
            let old = old.slice(0, page.row_count as usize);
            let new = rows(&schema, old.num_rows(), 8, seed + 100);
            let changed = [1, 5, 7];
            let (version, shared) = versioned(&stored, page, &schema, &changed, &new).unwrap();
            assert_eq!((version.page, version.row_count), (page.page, page.row_count));
            let found = stored.decode(&schema, version).unwrap();
            assert_columns(&found, &old, &new, &changed);
            // VIDs and commit numbers stay.
            let before = stored.decode(&schema, page).unwrap();
            for at in schema.columns.len()..schema.columns.len() + 2 {
                assert_same(found.column(at), before.column(at));
            }
            let is_large = page.extent.block_count > 8;
            assert_eq!(!shared.is_empty(), is_large, "{page:?}");
            if is_large {
                assert!(version.extent.block_count < page.extent.block_count);
                assert!(shared.iter().all(|extent| page.extent.contains(*extent)));
            }
            // A version of the version, of a column that it has and of one that it shares.
            let newer = rows(&schema, old.num_rows(), 8, seed + 200);
            let (second, shared) = versioned(&stored, version, &schema, &[1, 9], &newer).unwrap();
            let found = stored.decode(&schema, second).unwrap();
            for at in 0..old.num_columns() {
                let source = match at {
                    1 | 9 => &newer,
                    5 | 7 => &new,
                    _ => &old,
                };
                assert_same(found.column(at), source.column(at));
            }
            let may_lie_in = [page.extent, version.extent];
            assert!(shared.iter().all(|extent| may_lie_in.iter().any(|of| of.contains(*extent))));
        }
    }
}

#[test]
fn a_consolidated_page_needs_no_earlier_version() {
    let (schema, old, stored) = page_of(PageClass::BULK, 20_000, 3);
    let new = rows(&schema, old.num_rows(), 8, 4);
    let (version, shared) = versioned(&stored, stored.heap[0], &schema, &[0, 3], &new).unwrap();
    assert!(!shared.is_empty());
    let mut read = PageRead { segment: SEGMENT, page: version, columns: Vec::new() };
    let header = stored.pages().read_page(&read).unwrap().header;
    assert_eq!(header.shared_extents(), shared);
    let with_bytes = header.chunks.iter().filter(|chunk| chunk.length > 0);
    read.columns = with_bytes.map(|chunk| chunk.column).collect();
    let columns = stored.pages().read_page(&read).unwrap();
    let alone = Stored::place(&[consolidated(&read, &columns).unwrap()]);
    let found = alone.decode(&schema, alone.heap[0]).unwrap();
    assert_columns(&found, &old, &new, &[0, 3]);
}

#[test]
fn a_spoilt_or_missing_shared_chunk_is_found() {
    let (schema, old, stored) = page_of(PageClass::BULK, 20_000, 3);
    let new = rows(&schema, old.num_rows(), 8, 4);
    let (version, shared) = versioned(&stored, stored.heap[0], &schema, &[0], &new).unwrap();
    let place = shared[0];
    let mut block = stored.media.read(Extent { block_count: 1, ..place }).unwrap();
    block[9] ^= 1;
    stored.media.write(place.start, &block).unwrap();
    let error = stored.decode(&schema, version).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { column: Some(_), .. }), "{error}");
}

#[test]
fn what_makes_no_version_is_refused() {
    let (schema, old, stored) = page_of(PageClass::BULK, 20_000, 3);
    let page = stored.heap[0];
    let refused = |at: usize, values: ArrayRef| {
        let read = PageRead { segment: SEGMENT, page, columns: Vec::new() };
        let columns = stored.pages().read_page(&read).unwrap();
        let changed = [ChangedColumn { id: schema.columns[at].id, values }];
        page_version(&read, &columns, &changed).unwrap_err().to_string()
    };
    let message = refused(1, old.column(1).slice(0, 10));
    assert!(message.contains("10 values"), "{message}");
    let long = StringArray::from_iter(
        (0..old.num_rows())
            .map(|row| Some(if row == 7 { "x".repeat(1 << 20) } else { "short".to_owned() })),
    );
    let at = schema.columns.iter().position(|c| c.column_type == ColumnType::Text).unwrap();
    let message = refused(at, Arc::new(long));
    assert!(message.contains("long values"), "{message}");
}

#[test]
fn a_younger_column_comes_with_the_version() {
    let (mut schema, old, stored) = page_of(PageClass::BULK, 20_000, 3);
    let mut younger = schema.columns[0].clone();
    (younger.id, younger.name) = (99, "younger".to_owned());
    schema.columns.push(younger);
    let nothing = new_null_array(old.column(0).data_type(), old.num_rows());
    let picks: Vec<(usize, usize)> = (0..old.num_rows()).map(|row| (row % 2, row)).collect();
    let values = interleave(&[&nothing, old.column(0)], &picks).unwrap();
    let mut columns = old.columns().to_vec();
    columns.push(values);
    let new = RecordBatch::try_new(schema.arrow(), columns).unwrap();
    let at = schema.columns.len() - 1;
    let (version, _) = versioned(&stored, stored.heap[0], &schema, &[at], &new).unwrap();
    let found = stored.decode(&schema, version).unwrap();
    assert_same(found.column(at), new.column(at));
    let vids = UInt64Array::from_iter_values((0..old.num_rows() as u64).map(|row| row + 5));
    assert_same(
        found.column(at + 1),
        &take(&vids, &UInt64Array::from_iter_values(0..old.num_rows() as u64), None).unwrap(),
    );
    assert!(ColumnRef::User(99) > ColumnRef::User(1));
}
