//! Whole new rows: under new VIDs beside deleted ones, or under the same VIDs as chains of versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::concat_batches;
use arrow::datatypes::{Decimal128Type, Schema, UInt64Type};
use cleave_media::thread_cpu_time;
use cleave_store::{
    Column, ColumnRef, ColumnType, CommitColumn, IndexKey, KeyColumn, KeySorter, OpenedPage,
    OverflowValues, PageClass, PageRef, Projection, RunWriter, SegmentWriter, StoreError,
    TableSchema, VersionMap, Versions, VidColumn, decode_batch,
};

use super::table::{PRICE, SEGMENT, Store, Table, Way, Written, price_array};

/// Statements of more rows are written as bulk pages; of fewer, as hot ones.
const FEW_ROWS: usize = 10_000;
/// Key columns of three indexes: whether it is unique, and positions.
const INDEXES: [(bool, &[usize]); 3] = [(true, &[0]), (false, &[1]), (false, &[7, 2])];
const BASE_COLUMNS: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

pub(crate) struct RowVersions<'a> {
    table: &'a Table,
    store: Store,
    /// With chains: its last column is the place of the previous version.
    schema: TableSchema,
    pages: Vec<Page>,
    /// Without chains: which rows are dead, and the present VID of each row, as an index would say.
    map: VersionMap,
    vid_of: Vec<u64>,
    next_vid: u64,
    /// With chains: VID → place of its newest version unless that is in the base, in chunks like those of a map.
    newest: Option<BTreeMap<u64, BTreeMap<u16, Place>>>,
}

struct Page {
    page: PageRef,
    vid_first: u64,
    opened: Option<Arc<OpenedPage>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    page: u32,
    slot: u16,
}

impl<'a> RowVersions<'a> {
    pub(crate) fn new(table: &'a Table, chained: bool) -> Self {
        let mut schema = table.schema.clone();
        if chained {
            schema.columns.push(Column {
                id: 11,
                name: "predecessor".into(),
                column_type: ColumnType::BigInt,
                not_null: true,
                default: None,
                absent: None,
            });
        }
        let page = |(number, page): (usize, &PageRef)| Page {
            page: *page,
            vid_first: number as u64 * u64::from(table.page_rows()),
            opened: None,
        };
        let rows = table.price_of.len() as u64;
        Self {
            table,
            store: table.store.copy(),
            schema,
            pages: table.pages.iter().enumerate().map(page).collect(),
            map: VersionMap::new(),
            vid_of: (0..rows).collect(),
            next_vid: rows,
            newest: chained.then(BTreeMap::new),
        }
    }

    fn place(&self, row: u32) -> Place {
        let vid = self.vid_of[row as usize];
        let chunk = self.newest.as_ref().and_then(|newest| newest.get(&(vid >> 16)));
        if let Some(place) = chunk.and_then(|chunk| chunk.get(&(vid as u16))) {
            return *place;
        }
        let in_order =
            if self.newest.is_some() { self.table.pages.len() } else { self.pages.len() };
        let page = self.pages[..in_order].partition_point(|page| page.vid_first <= vid) - 1;
        Place { page: page as u32, slot: (vid - self.pages[page].vid_first) as u16 }
    }

    /// All columns of the rows at these places, in order of place; and which of the given rows each is.
    fn rows_at(&self, rows: &[u32]) -> (RecordBatch, Vec<u32>, Vec<Place>) {
        let mut places: Vec<(Place, u32)> =
            rows.iter().map(|row| (self.place(*row), *row)).collect();
        places.sort_unstable_by_key(|(place, _)| (place.page, place.slot));
        let mut batches = Vec::new();
        for of_page in places.chunk_by(|one, other| one.0.page == other.0.page) {
            let page = self.pages[of_page[0].0.page as usize].page;
            let slots: Vec<u32> = of_page.iter().map(|(place, _)| place.slot.into()).collect();
            let wanted = super::table::bits(&slots, page.row_count);
            let columns = &BASE_COLUMNS;
            batches.push(self.store.rows(&self.table.schema, page, columns, Some(&wanted)));
        }
        let batch = concat_batches(&self.table.schema.arrow(), &batches).unwrap();
        (
            batch,
            places.iter().map(|(_, row)| *row).collect(),
            places.iter().map(|(at, _)| *at).collect(),
        )
    }

    /// Rows of a page that a scan keeps; None: all.
    fn left(&self, number: usize) -> Option<BooleanBuffer> {
        let page = &self.pages[number];
        let count = u64::from(page.page.row_count);
        let Some(newest) = &self.newest else {
            let vids = page.vid_first..page.vid_first + count;
            return self.map.dead_rows([vids]).left(count as usize);
        };
        // For a base page, the map lists the rows that have a later version.
        if number < self.table.pages.len() {
            let vid_last = page.vid_first + count - 1;
            let mut left = vec![true; count as usize];
            for (chunk, entries) in newest.range(page.vid_first >> 16..=vid_last >> 16) {
                for offset in entries.keys() {
                    let vid = chunk << 16 | u64::from(*offset);
                    if (page.vid_first..=vid_last).contains(&vid) {
                        left[(vid - page.vid_first) as usize] = false;
                    }
                }
            }
            return Some(BooleanBuffer::from(left));
        }
        // For a page of later versions, the VIDs are read and each is looked up in the map.
        let column = ColumnRef::Vid;
        let (read, columns) = self.store.read(page.page, vec![column]);
        let field = Projection::version_field(column).unwrap();
        let projection = Projection::new(Arc::new(Schema::new(vec![field])), vec![column]);
        let none = OverflowValues::none();
        let batch = decode_batch(&columns, &read, &projection, None, &none).unwrap();
        let vids = batch.column(0).as_primitive::<UInt64Type>().values();
        let is_newest = |slot: usize| {
            let vid = vids[slot];
            match newest.get(&(vid >> 16)).and_then(|chunk| chunk.get(&(vid as u16))) {
                Some(place) => *place == Place { page: number as u32, slot: slot as u16 },
                None => true,
            }
        };
        Some(BooleanBuffer::collect_bool(vids.len(), is_newest))
    }

    fn scan(&self, sum: impl Fn(PageRef, Option<&BooleanBuffer>) -> i128) -> i128 {
        let of_page = |number: usize| {
            let left = self.left(number);
            match left.as_ref().is_some_and(|left| left.count_set_bits() == 0) {
                true => 0,
                false => sum(self.pages[number].page, left.as_ref()),
            }
        };
        (0..self.pages.len()).map(of_page).sum()
    }

    /// Runs of all indexes for these rows: bytes of their pages.
    fn write_entries(&self, batch: &RecordBatch, vids: &[u64]) -> u64 {
        let mut bytes = 0;
        for (unique, positions) in INDEXES {
            let columns: Vec<ArrayRef> =
                positions.iter().map(|at| Arc::clone(batch.column(*at))).collect();
            let types = columns.iter().map(|column| column.data_type().clone());
            let key = IndexKey::new(types.map(KeyColumn::ascending).collect(), unique).unwrap();
            let entries = key.entries(&columns, vids.iter().copied()).unwrap();
            let mut sorter = KeySorter::new();
            for (entry, vid) in entries.iter().zip(vids) {
                sorter.push(entry.unwrap(), *vid);
            }
            let mut writer = RunWriter::new(SEGMENT, 0, unique).unwrap();
            sorter
                .drain_sorted(|entry, vid| {
                    let pages = writer.push(entry, vid)?;
                    bytes += pages.iter().map(|page| page.bytes.len() as u64).sum::<u64>();
                    Ok::<(), StoreError>(())
                })
                .unwrap();
            let end = writer.finish().unwrap();
            bytes += end.pages.iter().map(|page| page.bytes.len() as u64).sum::<u64>();
            bytes += end.filter.map_or(0, |filter| filter.bytes.len() as u64);
        }
        bytes
    }
}

impl Way for RowVersions<'_> {
    fn update(&mut self, rows: &[u32]) -> Written {
        let start = thread_cpu_time();
        let before = self.store.bytes;
        let (batch, rows, places) = self.rows_at(rows);
        let prices = batch.column(PRICE).as_primitive::<Decimal128Type>().values();
        let mut columns = batch.columns().to_vec();
        columns[PRICE] = price_array(prices.iter().map(|price| price + 1).collect());
        let chained = self.newest.is_some();
        if chained {
            let place = |at: &Place| i64::from(at.page) << 16 | i64::from(at.slot);
            columns.push(Arc::new(Int64Array::from_iter_values(places.iter().map(place))));
        }
        let batch = RecordBatch::try_new(self.schema.arrow(), columns).unwrap();
        let class = if rows.len() > FEW_ROWS { PageClass::BULK } else { PageClass::HOT };
        let first_page = self.pages.len() as u32;
        let mut writer = SegmentWriter::new(SEGMENT, &self.schema, class, first_page, 0).unwrap();
        let old_vids: Vec<u64> = rows.iter().map(|row| self.vid_of[*row as usize]).collect();
        let vids: Vec<u64> = match chained {
            true => old_vids.clone(),
            false => (self.next_vid..).take(rows.len()).collect(),
        };
        let commit = match rows.len() > FEW_ROWS {
            true => CommitColumn::Segment,
            false => CommitColumn::Each(vec![2; rows.len()]),
        };
        let versions = Versions { commit, vid: VidColumn::Each(vids.clone()) };
        let mut pages = writer.push_versions(&batch, versions).unwrap();
        pages.extend(writer.finish().unwrap());
        let mut slots = Vec::with_capacity(rows.len());
        for page in pages {
            let number = self.pages.len() as u32;
            let (page_ref, vid_first) = (self.store.put(&page), page.vid_first);
            slots.extend((0..page.row_count).map(|slot| Place { page: number, slot: slot as u16 }));
            self.pages.push(Page { page: page_ref, vid_first, opened: None });
        }
        let map_bytes = match &mut self.newest {
            Some(newest) => {
                for (vid, place) in vids.iter().zip(&slots) {
                    newest.entry(vid >> 16).or_default().insert(*vid as u16, *place);
                }
                let chunks: Vec<u64> = vids.iter().map(|vid| vid >> 16).collect();
                stored_bytes(newest, chunks)
            }
            None => {
                self.next_vid += rows.len() as u64;
                for (row, vid) in rows.iter().zip(&vids) {
                    self.map.end(std::mem::replace(&mut self.vid_of[*row as usize], *vid));
                }
                let stored = self.map.dirty_chunks().map(|chunk| self.map.encode_chunk(chunk));
                let bytes = stored.map(|bytes| bytes.len() as u64).sum();
                self.map.mark_clean();
                bytes
            }
        };
        let cpu = thread_cpu_time() - start;
        let bytes = self.store.bytes - before + map_bytes;
        if chained {
            return Written { bytes, cpu, ..Written::default() };
        }
        let start = thread_cpu_time();
        let index_bytes = self.write_entries(&batch, &vids);
        let entries = (rows.len() * INDEXES.len()) as u64;
        Written { bytes, cpu, entries, index_bytes, index_cpu: thread_cpu_time() - start }
    }

    fn sum_of_changed(&self) -> i128 {
        self.scan(|page, left| self.store.sum(&self.table.schema, page, PRICE, left))
    }

    fn sum_of_other(&self) -> i128 {
        self.scan(|page, left| self.store.sum_of_quantities(&self.table.schema, page, left))
    }

    fn price(&mut self, row: u32) -> i128 {
        let place = self.place(row);
        let page = &mut self.pages[place.page as usize];
        let projection = Projection::of_table(&self.table.schema, &BASE_COLUMNS);
        let opened = page.opened.get_or_insert_with(|| {
            let (read, columns) = self.store.read(page.page, projection.columns.clone());
            Arc::new(OpenedPage::open(&columns, &read).unwrap().unwrap())
        });
        let batch = opened.rows(&[place.slot], &projection).unwrap();
        batch.column(PRICE).as_primitive::<Decimal128Type>().value(0)
    }
}

/// Bytes of the chunks of a map: an entry of three varints for each stretch of consecutive VIDs and places.
fn stored_bytes(newest: &BTreeMap<u64, BTreeMap<u16, Place>>, mut chunks: Vec<u64>) -> u64 {
    let varint = |number: u64| u64::from((64 - (number | 1).leading_zeros()).div_ceil(7));
    chunks.dedup();
    let mut bytes = 0;
    for chunk in chunks {
        let (mut vid_next, mut at_next, mut count) = (0_u64, 0_u64, 0_u64);
        for (offset, place) in &newest[&chunk] {
            let (vid, at) =
                (u64::from(*offset), u64::from(place.page) << 16 | u64::from(place.slot));
            if vid != vid_next || at != at_next || count == 0 {
                bytes += varint(count) + varint(vid - vid_next) + varint(at.abs_diff(at_next) * 2);
                count = 0;
            }
            (vid_next, at_next, count) = (vid + 1, at + 1, count + 1);
        }
    }
    bytes
}
