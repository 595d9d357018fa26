//! Compares plain Arrow buffers with the light encodings, column by column of CSV files: bytes and times.
//!
//! ```sh
//! cleave generate tpch --scale 0.1 --out tpch
//! cargo run --release -p cleave-store --example encodings -- tpch/lineitem.csv imdb/title.csv
//! CLEAVE_DATA=… cargo run --release -p cleave-store --example encodings    # the flight data in that directory
//! ```
//!
//! A column's type is the narrowest of bigint, numeric(18,2), double precision, date and text that fits all of its
//! values. Times are per row, for all rows, 1 % of them (spread over the page), one predicate (equality with the value
//! in the middle), one single row, and encoding. The pages are in memory, checksums are not included; best of 5
//! (encoding: once).

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool that may end at once"
)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array,
    RecordBatch, Scalar, StringArray,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use bytes::Bytes;
use cleave_media::{BlockAddress, Stopwatch};
use cleave_store::{
    AbsentValues, Column, ColumnRef, ColumnType, Encoding, OpenColumn, OverflowValues, PageClass,
    PageColumns, PageHeader, PageRead, Pick, Projection, RawColumns, SegmentId, SegmentRef,
    SegmentWriter, TableSchema, decode_rows, parse_header,
};

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
/// Rows of a file that are read at most.
const ROWS_MAX: usize = 10 << 16;
const ROUNDS: usize = 5;

fn main() {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        let folder = std::env::var_os("CLEAVE_DATA").map(PathBuf::from).unwrap();
        files =
            ["airports.dat", "routes.dat"].map(|name| folder.join("openflights").join(name)).into();
    }
    println!(
        "{:28} {:10} {:10} {:>9} {:>9} {:>6} | {:>13} | {:>13} | {:>13} | {:>15} | {:>13}",
        "column",
        "type",
        "encoding",
        "plain kB",
        "light kB",
        "",
        "all ns/row",
        "1 % ns/row",
        "= ns/row",
        "one row ns",
        "encode ns"
    );
    let mut total = (0, 0);
    for file in files {
        let bytes = compare_file(&file);
        total = (total.0 + bytes.0, total.1 + bytes.1);
    }
    println!("all: {} kB plain, {} kB light", total.0 / 1000, total.1 / 1000);
}

fn compare_file(path: &Path) -> (usize, usize) {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let columns = read_csv(&text);
    let table = path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut total = (0, 0);
    for (index, values) in columns.iter().enumerate() {
        let (column_type, array) = typed(values);
        let plain =
            Pages::write(column_type, &array, PageClass { chunk_alignment: 64, ..PageClass::BULK });
        let light = Pages::write(column_type, &array, PageClass::BULK);
        let (a, b) = (plain.measure(), light.measure());
        let name = format!("{table}.{index}");
        println!(
            "{name:28} {:10} {:10} {:9} {:9} {:5.1}x | {:6.2} {:6.2} | {:6.2} {:6.2} | {:6.2} {:6.2} | {:7.0} {:7.0} \
                | {:6.1} {:6.1}",
            kind(column_type),
            format!("{:?}", light.encoding()),
            plain.chunk_bytes() / 1000,
            light.chunk_bytes() / 1000,
            plain.chunk_bytes() as f64 / light.chunk_bytes().max(1) as f64,
            a[0],
            b[0],
            a[1],
            b[1],
            a[2],
            b[2],
            a[3],
            b[3],
            plain.encode_ns,
            light.encode_ns,
        );
        total = (total.0 + plain.chunk_bytes(), total.1 + light.chunk_bytes());
    }
    total
}

/// The pages of one column.
struct Pages {
    pages: Vec<(PageRead, PageColumns)>,
    projection: Projection,
    array: ArrayRef,
    /// Nanoseconds a row that encoding took.
    encode_ns: f64,
}

impl Pages {
    fn write(column_type: ColumnType, array: &ArrayRef, class: PageClass) -> Self {
        let schema = TableSchema {
            table_id: 1,
            version: 1,
            name: "t".into(),
            columns: vec![Column {
                id: 1,
                name: "c".into(),
                column_type,
                not_null: false,
                default: None,
                absent: None,
            }],
            primary_key: Vec::new(),
        };
        let mut writer = SegmentWriter::new(SEGMENT, &schema, class, 0, 0).unwrap();
        let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::clone(array)]).unwrap();
        let watch = Stopwatch::start();
        let mut encoded = writer.push(&batch).unwrap();
        encoded.extend(writer.finish().unwrap());
        let encode_ns = watch.elapsed().as_nanos() as f64 / array.len() as f64;
        let pages = encoded.into_iter().map(|page| {
            let place = page.page_ref(BlockAddress(0));
            let bytes = page.bytes.into_bytes();
            let header = parse_header(&bytes, &place, &SEGMENT).unwrap();
            let columns = vec![ColumnRef::User(1)];
            let read = PageRead { segment: SEGMENT, page: place, columns };
            let chunks = vec![chunk(&header, &bytes)];
            let raw = RawColumns { header: bytes.slice(..header.header_length as usize), chunks };
            let columns = PageColumns::verify(&read, raw).unwrap();
            (read, columns)
        });
        let pages = pages.collect();
        let projection = Projection::of_table(&schema, &[0]);
        Self { pages, projection, array: Arc::clone(array), encode_ns }
    }

    fn encoding(&self) -> Encoding {
        self.pages[0].1.header.entry(ColumnRef::User(1)).unwrap().encoding
    }

    fn chunk_bytes(&self) -> usize {
        self.pages.iter().map(|(_, page)| page.byte_size()).sum()
    }

    fn open(&self, page: &(PageRead, PageColumns)) -> OpenColumn {
        let (none, absent) = (OverflowValues::none(), AbsentValues::default());
        let (data_type, column) = (self.array.data_type(), ColumnRef::User(1));
        OpenColumn::open(&page.1, &page.0, column, data_type, &absent, &none, None).unwrap()
    }

    /// Nanoseconds a row: all, 1 %, a predicate; and of one row.
    fn measure(&self) -> [f64; 4] {
        let rows = self.array.len();
        let middle = Scalar::new(self.array.slice(rows / 2, 1));
        let all = self.best(rows, |page, count| {
            self.open(page).decode(&Pick::new(0..count, None, 1).unwrap()).unwrap().len()
        });
        let few = self.best(rows, |page, count| {
            let rows = BooleanBuffer::collect_bool(count, |row| row % 100 == 37);
            self.open(page).decode(&Pick::new(0..count, Some(&rows), 1).unwrap()).unwrap().len()
        });
        let number = integer(&middle);
        let equal = self.best(rows, |page, count| {
            let column = self.open(page);
            if let Some(bits) =
                number.and_then(|number| column.compare(number, |order| order.is_eq()))
            {
                return bits.count_set_bits();
            }
            if let Some((values, places)) = column.distinct().unwrap() {
                let answers = cmp::eq(&values, &middle).unwrap();
                let slots = places.values();
                let bits = BooleanBuffer::collect_bool(count, |row| {
                    places.is_valid(row) && answers.value(slots[row] as usize)
                });
                return bits.count_set_bits();
            }
            let array = column.decode(&Pick::new(0..count, None, 1).unwrap()).unwrap();
            BooleanArray::true_count(&cmp::eq(&array, &middle).unwrap())
        });
        let reads = 64;
        let one = self.best(self.pages.len() * reads, |(read, page), count| {
            let none = OverflowValues::none();
            for index in 0..reads {
                let slot = u16::try_from(index * 7919 % count).unwrap();
                black_box(decode_rows(page, read, &[slot], &self.projection, &none).unwrap());
            }
            reads
        });
        [all, few, equal, one]
    }

    fn best(&self, rows: usize, work: impl Fn(&(PageRead, PageColumns), usize) -> usize) -> f64 {
        let rounds = (0..ROUNDS).map(|_| {
            let watch = Stopwatch::start();
            for page in &self.pages {
                black_box(work(page, page.1.header.row_count as usize));
            }
            watch.elapsed().as_nanos() as f64 / rows as f64
        });
        rounds.fold(f64::INFINITY, f64::min)
    }
}

fn chunk(header: &PageHeader, bytes: &Bytes) -> Option<Bytes> {
    let entry = header.entry(ColumnRef::User(1)).filter(|entry| entry.length > 0)?;
    Some(bytes.slice(entry.offset as usize..(entry.offset + entry.length) as usize))
}

fn kind(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::BigInt => "bigint",
        ColumnType::Numeric { .. } => "numeric",
        ColumnType::Double => "double",
        ColumnType::Date => "date",
        _ => "text",
    }
}

fn integer(value: &Scalar<ArrayRef>) -> Option<i128> {
    let value = value.clone().into_inner();
    let any = value.as_any();
    if value.is_null(0) {
        return None;
    }
    if let Some(array) = any.downcast_ref::<Int64Array>() {
        return Some(array.value(0).into());
    }
    if let Some(array) = any.downcast_ref::<Decimal128Array>() {
        return Some(array.value(0));
    }
    any.downcast_ref::<Date32Array>().map(|array| array.value(0).into())
}

/// The narrowest type that fits all values.
fn typed(values: &[Option<String>]) -> (ColumnType, ArrayRef) {
    fn all<T>(
        values: &[Option<String>],
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<Option<T>>> {
        values
            .iter()
            .map(|value| match value {
                None => Some(None),
                Some(value) => parse(value).map(Some),
            })
            .collect()
    }
    if let Some(numbers) = all(values, |value| value.parse::<i64>().ok()) {
        return (ColumnType::BigInt, Arc::new(Int64Array::from(numbers)));
    }
    if let Some(hundredths) = all(values, hundredths) {
        let array = Decimal128Array::from(hundredths).with_precision_and_scale(18, 2).unwrap();
        return (ColumnType::Numeric { precision: 18, scale: 2 }, Arc::new(array));
    }
    if let Some(numbers) = all(values, |value| value.parse::<f64>().ok()) {
        return (ColumnType::Double, Arc::new(Float64Array::from(numbers)));
    }
    if let Some(days) = all(values, days) {
        return (ColumnType::Date, Arc::new(Date32Array::from(days)));
    }
    (ColumnType::Text, Arc::new(StringArray::from(values.to_vec())))
}

fn hundredths(value: &str) -> Option<i128> {
    let (whole, part) = value.split_once('.')?;
    let sign = if whole.starts_with('-') { -1 } else { 1 };
    (part.len() == 2).then_some(())?;
    Some(whole.parse::<i128>().ok()? * 100 + sign * part.parse::<i128>().ok()?)
}

/// Days since 1970 of a date as ISO writes it.
fn days(value: &str) -> Option<i32> {
    let mut parts = value.split('-').map(|part| part.parse::<i32>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    (value.len() == 10 && (1..=12).contains(&month)).then_some(())?;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469)
}

/// Values by column. Empty fields without quotes, and `\N`, are NULL.
fn read_csv(text: &str) -> Vec<Vec<Option<String>>> {
    let mut columns: Vec<Vec<Option<String>>> = Vec::new();
    let (mut field, mut quoted, mut was_quoted, mut index) = (String::new(), false, false, 0);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' => {
                quoted = !quoted;
                was_quoted = true;
            }
            ',' | '\n' if !quoted => {
                if columns.len() <= index {
                    columns.push(Vec::new());
                }
                let value = std::mem::take(&mut field);
                let null = !was_quoted && value.is_empty() || value == "\\N";
                columns[index].push((!null).then_some(value));
                was_quoted = false;
                index += 1;
                if character == '\n' {
                    index = 0;
                    if columns[0].len() >= ROWS_MAX {
                        break;
                    }
                }
            }
            '\r' if !quoted => {}
            other => field.push(other),
        }
    }
    let count = columns.last().map_or(0, Vec::len);
    columns.iter_mut().for_each(|column| column.truncate(count));
    columns
}
