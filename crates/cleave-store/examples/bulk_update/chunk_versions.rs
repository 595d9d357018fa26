//! New chunks of the changed column, under a new header that shares the others.
//!
//! The new chunk is written as a page of that column alone: as many blocks as a new header of all columns and the chunk
//! take. A reader of an unchanged column reads the new header, and the old page with its own header: one header more
//! than a page that shares chunks would cost.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Decimal128Type, Schema};
use cleave_media::thread_cpu_time;
use cleave_store::{
    ColumnRef, OpenedPage, PageClass, PageColumns, PageHeader, PageRead, PageRef, Projection,
    SegmentWriter,
};

use super::table::{PRICE, SEGMENT, Store, Table, Way, Written, price_array};

const ALL: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

pub(crate) struct ChunkVersions<'a> {
    table: &'a Table,
    store: Store,
    /// For each page, the place of its newest prices unless they are on the page.
    newest: Vec<Option<PageRef>>,
    opened: Vec<Option<Arc<OpenedPage>>>,
}

impl<'a> ChunkVersions<'a> {
    pub(crate) fn new(table: &'a Table) -> Self {
        let count = table.pages.len();
        Self {
            table,
            store: table.store.copy(),
            newest: vec![None; count],
            opened: vec![None; count],
        }
    }

    fn prices(&self, number: usize) -> PageRef {
        self.newest[number].unwrap_or(self.table.pages[number])
    }

    /// The page as its readers see it: header and chunks of the old page, with the new chunk in its place.
    fn open(&self, number: usize, projection: &Projection) -> OpenedPage {
        let (read, mut page) =
            self.store.read(self.table.pages[number], projection.columns.clone());
        if let Some(newest) = self.newest[number] {
            let column = ColumnRef::User(5);
            let (_, new) = self.store.read(newest, vec![column]);
            let mut header = PageHeader::clone(&page.header);
            let entry = header.chunks.iter_mut().find(|entry| entry.column == column);
            *entry.unwrap() = *new.header.entry(column).unwrap();
            page.chunks[PRICE] = new.chunks[0].clone();
            page = PageColumns { header: Arc::new(header), chunks: page.chunks };
        }
        OpenedPage::open(&page, &PageRead { ..read }).unwrap().unwrap()
    }
}

impl Way for ChunkVersions<'_> {
    fn update(&mut self, rows: &[u32]) -> Written {
        let start = thread_cpu_time();
        let before = self.store.bytes;
        let field = self.table.schema.columns[PRICE].arrow();
        let schema = Arc::new(Schema::new(vec![field]));
        for (number, slots) in self.table.by_page(rows) {
            let old = self.store.rows(&self.table.schema, self.prices(number), &[PRICE], None);
            let mut prices = old.column(0).as_primitive::<Decimal128Type>().values().to_vec();
            for slot in slots {
                prices[slot as usize] += 1;
            }
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![price_array(prices)]);
            let (class, page) = (PageClass::BULK, self.table.pages[number].page);
            let mut writer =
                SegmentWriter::of_columns(SEGMENT, &schema, &[5], class, page).unwrap();
            assert!(writer.push(&batch.unwrap()).unwrap().is_empty());
            let pages = writer.finish().unwrap();
            assert_eq!(pages.len(), 1);
            self.newest[number] = Some(self.store.put(&pages[0]));
            self.opened[number] = None;
        }
        let cpu = thread_cpu_time() - start;
        Written { bytes: self.store.bytes - before, cpu, ..Written::default() }
    }

    fn sum_of_changed(&self) -> i128 {
        let sum = |number| self.store.sum(&self.table.schema, self.prices(number), PRICE, None);
        (0..self.newest.len()).map(sum).sum()
    }

    fn sum_of_other(&self) -> i128 {
        let of_page = |(number, page): (usize, &PageRef)| {
            if let Some(newest) = self.newest[number] {
                self.store.read(newest, Vec::new());
            }
            self.store.sum_of_quantities(&self.table.schema, *page, None)
        };
        self.table.pages.iter().enumerate().map(of_page).sum()
    }

    fn price(&mut self, row: u32) -> i128 {
        let (number, slot) = self.table.place_of(row);
        let projection = Projection::of_table(&self.table.schema, &ALL);
        if self.opened[number].is_none() {
            self.opened[number] = Some(Arc::new(self.open(number, &projection)));
        }
        let batch =
            self.opened[number].as_ref().unwrap().rows(&[slot as u16], &projection).unwrap();
        batch.column(PRICE).as_primitive::<Decimal128Type>().value(0)
    }
}
