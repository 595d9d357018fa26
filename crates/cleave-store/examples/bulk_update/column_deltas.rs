//! Pairs of slot and new value beside each page, one list an update, merged on reading.
//!
//! A list is a page of two columns, in light encodings with chunks on blocks of their own or plain and close together,
//! whichever is shorter.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int32Type, Schema, SchemaRef};
use cleave_media::thread_cpu_time;
use cleave_store::{
    ColumnRef, OpenedPage, OverflowValues, PageClass, PageRef, Projection, SegmentWriter,
    decode_batch,
};

use super::table::{PRICE, SEGMENT, Store, Table, Way, Written, price_array};

const ALL: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const TIGHT: PageClass = PageClass { chunk_alignment: 64, ..PageClass::BULK };

pub(crate) struct ColumnDeltas<'a> {
    table: &'a Table,
    store: Store,
    schema: SchemaRef,
    /// The lists of each page, oldest first.
    lists: Vec<Vec<PageRef>>,
    opened: Vec<Option<Opened>>,
}

/// A page, and its lists decoded.
struct Opened {
    page: Arc<OpenedPage>,
    lists: Vec<(Vec<i32>, Vec<i128>)>,
}

impl<'a> ColumnDeltas<'a> {
    pub(crate) fn new(table: &'a Table) -> Self {
        let price = table.schema.columns[PRICE].arrow();
        let schema = Schema::new(vec![Field::new("slot", DataType::Int32, false), price]);
        let count = table.pages.len();
        Self {
            table,
            store: table.store.copy(),
            schema: Arc::new(schema),
            lists: vec![Vec::new(); count],
            opened: (0..count).map(|_| None).collect(),
        }
    }

    fn list(&self, page: PageRef) -> RecordBatch {
        let columns = vec![ColumnRef::User(1), ColumnRef::User(2)];
        let (read, chunks) = self.store.read(page, columns.clone());
        let projection = Projection::new(Arc::clone(&self.schema), columns);
        decode_batch(&chunks, &read, &projection, None, &OverflowValues::none()).unwrap()
    }

    /// The prices of a page, merged.
    fn prices(&self, number: usize) -> Vec<i128> {
        let page = self.table.pages[number];
        let base = self.store.rows(&self.table.schema, page, &[PRICE], None);
        let base = base.column(0).as_primitive::<Decimal128Type>().clone();
        // The values are moved out if nothing else shares them.
        let mut prices: Vec<i128> = match base.into_builder() {
            Ok(mut builder) => builder.values_slice_mut().to_vec(),
            Err(base) => base.values().to_vec(),
        };
        for list in &self.lists[number] {
            let list = self.list(*list);
            let slots = list.column(0).as_primitive::<Int32Type>().values();
            let values = list.column(1).as_primitive::<Decimal128Type>().values();
            for (slot, value) in slots.iter().zip(values) {
                prices[*slot as usize] = *value;
            }
        }
        prices
    }
}

impl Way for ColumnDeltas<'_> {
    fn update(&mut self, rows: &[u32]) -> Written {
        let start = thread_cpu_time();
        let before = self.store.bytes;
        for (number, slots) in self.table.by_page(rows) {
            let prices = self.prices(number);
            let new = price_array(slots.iter().map(|slot| prices[*slot as usize] + 1).collect());
            let slots = Int32Array::from_iter_values(slots.iter().map(|slot| *slot as i32));
            let columns = vec![Arc::new(slots) as Arc<dyn Array>, new];
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).unwrap();
            let pages = [PageClass::BULK, TIGHT].map(|class| {
                let (ids, schema) = ([1, 2], &self.schema);
                let mut writer =
                    SegmentWriter::of_columns(SEGMENT, schema, &ids, class, 0).unwrap();
                assert!(writer.push(&batch).unwrap().is_empty());
                writer.finish().unwrap().remove(0)
            });
            let page = pages.iter().min_by_key(|page| page.bytes.len()).unwrap();
            let page = self.store.put(page);
            self.lists[number].push(page);
            self.opened[number] = None;
        }
        let cpu = thread_cpu_time() - start;
        Written { bytes: self.store.bytes - before, cpu, ..Written::default() }
    }

    fn sum_of_changed(&self) -> i128 {
        let of_page = |number: usize| match self.lists[number].is_empty() {
            true => self.store.sum(&self.table.schema, self.table.pages[number], PRICE, None),
            false => self.prices(number).iter().sum(),
        };
        (0..self.lists.len()).map(of_page).sum()
    }

    fn sum_of_other(&self) -> i128 {
        let of_page =
            |page: &PageRef| self.store.sum_of_quantities(&self.table.schema, *page, None);
        self.table.pages.iter().map(of_page).sum()
    }

    fn price(&mut self, row: u32) -> i128 {
        let (number, slot) = self.table.place_of(row);
        let projection = Projection::of_table(&self.table.schema, &ALL);
        if self.opened[number].is_none() {
            let page = self.table.pages[number];
            let (read, columns) = self.store.read(page, projection.columns.clone());
            let page = Arc::new(OpenedPage::open(&columns, &read).unwrap().unwrap());
            let list = |list: &PageRef| {
                let list = self.list(*list);
                let slots = list.column(0).as_primitive::<Int32Type>().values().to_vec();
                (slots, list.column(1).as_primitive::<Decimal128Type>().values().to_vec())
            };
            let lists = self.lists[number].iter().map(list).collect();
            self.opened[number] = Some(Opened { page, lists });
        }
        let opened = self.opened[number].as_ref().unwrap();
        let batch = opened.page.rows(&[slot as u16], &projection).unwrap();
        let base = batch.column(PRICE).as_primitive::<Decimal128Type>().value(0);
        let newest = opened.lists.iter().rev().find_map(|(slots, values)| {
            slots.binary_search(&(slot as i32)).ok().map(|at| values[at])
        });
        newest.unwrap_or(base)
    }
}
