//! The updated table, its pages on media in memory, and the interface of an update method.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Decimal128Type, Int32Type};
use cleave_media::{BlockAddress, Media, Memory, SplitMix64};
use cleave_store::{
    Column, ColumnRef, ColumnType, EncodedPage, MediaPages, OverflowValues, PageClass, PageColumns,
    PageRead, PageRef, Projection, SegmentId, SegmentRef, SegmentWriter, TableSchema, decode_batch,
};

pub(crate) const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
/// Position of the column that is updated, a `numeric(12,2)`.
pub(crate) const PRICE: usize = 4;
/// Position of one that is not, an `integer`.
const QUANTITY: usize = 3;

/// A way to store updates.
pub(crate) trait Way {
    /// Adds a cent to the price of these rows, ascending, and returns what it wrote.
    fn update(&mut self, rows: &[u32]) -> Written;

    /// The sum of prices, in cents, of all rows.
    fn sum_of_changed(&self) -> i128;

    /// The sum of quantities.
    fn sum_of_other(&self) -> i128;

    /// The price of a row, in cents. All of its columns are read.
    fn price(&mut self, row: u32) -> i128;
}

/// Statistics of an update. The CPU time includes its reads.
#[derive(Default)]
pub(crate) struct Written {
    /// Pages, and changes of maps.
    pub(crate) bytes: u64,
    pub(crate) cpu: Duration,
    /// Bytes of entries of three indexes, none of them on the price.
    pub(crate) entries: u64,
    pub(crate) index_bytes: u64,
    pub(crate) index_cpu: Duration,
}

impl Written {
    pub(crate) fn all(each: impl Iterator<Item = Self>) -> Self {
        each.fold(Self::default(), |sum, one| Self {
            bytes: sum.bytes + one.bytes,
            cpu: sum.cpu + one.cpu,
            entries: sum.entries + one.entries,
            index_bytes: sum.index_bytes + one.index_bytes,
            index_cpu: sum.index_cpu + one.index_cpu,
        })
    }

    /// The same, with the smaller times of the two.
    pub(crate) fn at_best(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        let (cpu, index_cpu) = (self.cpu.min(before.cpu), self.index_cpu.min(before.index_cpu));
        Self { cpu, index_cpu, ..self }
    }
}

/// Pages on media.
pub(crate) struct Store {
    media: Arc<Memory>,
    source: MediaPages,
    next_block: u64,
    /// Bytes of all pages written.
    pub(crate) bytes: u64,
}

/// Ten columns, written as a bulk load writes them.
pub(crate) struct Table {
    pub(crate) schema: TableSchema,
    pub(crate) store: Store,
    pub(crate) pages: Vec<PageRef>,
    pub(crate) price_of: Vec<i128>,
    pub(crate) price_sum: i128,
    pub(crate) quantity_sum: i128,
}

impl Store {
    fn new() -> Self {
        let media = Arc::new(Memory::new());
        let source = MediaPages::new(Arc::clone(&media) as Arc<dyn Media>);
        Self { media, source, next_block: 0, bytes: 0 }
    }

    /// The same pages, on separate media.
    pub(crate) fn copy(&self) -> Self {
        let media = Arc::new(self.media.snapshot());
        let source = MediaPages::new(Arc::clone(&media) as Arc<dyn Media>);
        Self { media, source, next_block: self.next_block, bytes: 0 }
    }

    pub(crate) fn put(&mut self, page: &EncodedPage) -> PageRef {
        let start = BlockAddress(self.next_block);
        self.next_block += u64::from(page.block_count());
        self.media.grow_to(self.next_block.next_multiple_of(1 << 16)).unwrap();
        self.media.write(start, &page.bytes).unwrap();
        self.bytes += page.bytes.len() as u64;
        page.page_ref(start)
    }

    pub(crate) fn read(&self, page: PageRef, columns: Vec<ColumnRef>) -> (PageRead, PageColumns) {
        let read = PageRead { segment: SEGMENT, page, columns };
        let columns = self.source.read_page(&read).unwrap();
        (read, columns)
    }

    /// Columns of the table, by position, of the rows of a page that are selected.
    pub(crate) fn rows(
        &self,
        schema: &TableSchema,
        page: PageRef,
        positions: &[usize],
        selection: Option<&BooleanBuffer>,
    ) -> RecordBatch {
        let projection = Projection::of_table(schema, positions);
        let (read, columns) = self.read(page, projection.columns.clone());
        decode_batch(&columns, &read, &projection, selection, &OverflowValues::none()).unwrap()
    }

    /// The sum of a column of a page.
    pub(crate) fn sum(
        &self,
        schema: &TableSchema,
        page: PageRef,
        position: usize,
        selection: Option<&BooleanBuffer>,
    ) -> i128 {
        sum(self.rows(schema, page, &[position], selection).column(0))
    }

    pub(crate) fn sum_of_quantities(
        &self,
        schema: &TableSchema,
        page: PageRef,
        selection: Option<&BooleanBuffer>,
    ) -> i128 {
        self.sum(schema, page, QUANTITY, selection)
    }
}

impl Table {
    pub(crate) fn generate(rows: u32) -> Self {
        let schema = schema();
        let mut random = SplitMix64::new(42);
        let mut store = Store::new();
        let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::BULK, 0, 0).unwrap();
        let (mut pages, mut price_of, mut quantity_sum) = (Vec::new(), Vec::new(), 0);
        for first in (0..rows).step_by(8192) {
            let count = 8192.min(rows - first);
            let batch = batch(&schema, first, count, &mut random);
            price_of.extend(batch.column(PRICE).as_primitive::<Decimal128Type>().values());
            quantity_sum += sum(batch.column(QUANTITY));
            pages.extend(writer.push(&batch).unwrap().iter().map(|page| store.put(page)));
        }
        pages.extend(writer.finish().unwrap().iter().map(|page| store.put(page)));
        let price_sum = price_of.iter().sum();
        Self { schema, store, pages, price_of, price_sum, quantity_sum }
    }

    pub(crate) fn byte_count(&self) -> u64 {
        self.store.bytes
    }

    /// Rows of a page; all but the last have as many.
    pub(crate) fn page_rows(&self) -> u32 {
        self.pages[0].row_count
    }

    /// Page and slot of a row.
    pub(crate) fn place_of(&self, row: u32) -> (usize, u32) {
        ((row / self.page_rows()) as usize, row % self.page_rows())
    }

    /// Ascending rows, by page: slots.
    pub(crate) fn by_page(&self, rows: &[u32]) -> Vec<(usize, Vec<u32>)> {
        let pages = rows.chunk_by(|one, other| self.place_of(*one).0 == self.place_of(*other).0);
        let slots = |rows: &[u32]| rows.iter().map(|row| self.place_of(*row).1).collect();
        pages.map(|rows| (self.place_of(rows[0]).0, slots(rows))).collect()
    }
}

/// The sum of prices or quantities.
pub(crate) fn sum(array: &ArrayRef) -> i128 {
    match array.as_primitive_opt::<Decimal128Type>() {
        Some(prices) => prices.values().iter().sum(),
        None => {
            let all = array.as_primitive::<Int32Type>().values();
            all.iter().map(|value| i64::from(*value)).sum::<i64>().into()
        }
    }
}

pub(crate) fn price_array(cents: Vec<i128>) -> ArrayRef {
    Arc::new(Decimal128Array::from(cents).with_precision_and_scale(12, 2).unwrap())
}

/// A bit for each of these slots.
pub(crate) fn bits(slots: &[u32], row_count: u32) -> BooleanBuffer {
    let mut set = vec![false; row_count as usize];
    for slot in slots {
        set[*slot as usize] = true;
    }
    BooleanBuffer::from(set)
}

fn schema() -> TableSchema {
    let numeric = |precision| ColumnType::Numeric { precision, scale: 2 };
    let columns = [
        ("id", ColumnType::BigInt),
        ("customer", ColumnType::Int),
        ("part", ColumnType::Int),
        ("quantity", ColumnType::Int),
        ("price", numeric(12)),
        ("discount", numeric(4)),
        ("status", ColumnType::Text),
        ("shipped", ColumnType::Date),
        ("mode", ColumnType::Text),
        ("comment", ColumnType::Text),
    ];
    let columns = (1..).zip(columns).map(|(id, (name, column_type))| Column {
        id,
        name: name.into(),
        column_type,
        not_null: true,
        default: None,
        absent: None,
    });
    TableSchema {
        table_id: 1,
        version: 1,
        name: "sales".into(),
        columns: columns.collect(),
        primary_key: vec![1],
    }
}

fn batch(schema: &TableSchema, first: u32, count: u32, random: &mut SplitMix64) -> RecordBatch {
    const WORDS: [&str; 12] = [
        "carefully",
        "final",
        "deposits",
        "sleep",
        "quickly",
        "regular",
        "packages",
        "above",
        "furious",
        "ideas",
        "pending",
        "requests",
    ];
    const MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    let mut number = |range: u32| random.below(range.into()) as i32;
    let mut integers = |range| (0..count).map(|_| number(range)).collect::<Vec<i32>>();
    let words: Vec<String> = (0..4).fold(vec![String::new(); count as usize], |texts, _| {
        let words = integers(WORDS.len() as u32);
        let add = |(text, word): (String, i32)| text + WORDS[word as usize] + " ";
        texts.into_iter().zip(words).map(add).collect()
    });
    let wide = |all: Vec<i32>| all.into_iter().map(i128::from).collect::<Vec<i128>>();
    let discount = Decimal128Array::from(wide(integers(11))).with_precision_and_scale(4, 2);
    let of = |places: Vec<i32>, texts: &[&str]| {
        StringArray::from_iter_values(places.iter().map(|place| texts[*place as usize]))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((first..first + count).map(i64::from))),
        Arc::new(Int32Array::from(integers(200_000))),
        Arc::new(Int32Array::from(integers(400_000))),
        Arc::new(Int32Array::from(integers(50))),
        price_array(wide(integers(10_000_000))),
        Arc::new(discount.unwrap()),
        Arc::new(of(integers(3), &["open", "paid", "sent"])),
        Arc::new(Date32Array::from_iter_values(
            (first..first + count).map(|row| 9000 + (row / 1000) as i32),
        )),
        Arc::new(of(integers(7), &MODES)),
        Arc::new(StringArray::from(words)),
    ];
    RecordBatch::try_new(schema.arrow(), columns).unwrap()
}
