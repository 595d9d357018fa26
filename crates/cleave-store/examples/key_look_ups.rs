//! Times look-ups of a column's values in a set of keys, on the stored encoding and after decoding.
//!
//! ```sh
//! cargo run --release -p cleave-store --example key_look_ups
//! ```
//!
//! A million rows of integers, in each encoding that pages have for them, with keys close together (a bitmap), wide
//! apart (hashed), and with few rows left by an earlier predicate. Prints nanoseconds a row, opening the column
//! included, best of 9; and the remaining rows.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool that may end at once"
)]

use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Int64Type};
use cleave_media::{BlockAddress, SplitMix64, Stopwatch};
use cleave_store::{
    AbsentValues, Column, ColumnRef, ColumnType, IntegerSet, OpenColumn, OverflowValues, PageClass,
    PageColumns, PageRead, Pick, RawColumns, SegmentId, SegmentRef, SegmentWriter, TableSchema,
    parse_header,
};

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
const ROWS: i64 = 1 << 20;
const ROUNDS: usize = 9;

fn main() {
    let mut random = SplitMix64::new(1);
    let mut below = |range: u64| random.below(range).cast_signed();
    let rows = |rule: &mut dyn FnMut(i64) -> i64| (0..ROWS).map(rule).collect::<Vec<i64>>();
    let narrow = rows(&mut |_| below(250_000));
    let wide = rows(&mut |_| below(1 << 40));
    let columns = [
        ("packed", PageClass::BULK, narrow.clone(), 250_000),
        ("steps", PageClass::BULK, rows(&mut |row| row / 4 + row % 2), 250_000),
        ("runs", PageClass::BULK, rows(&mut |row| row / 400 * 95), 250_000),
        ("plain", PageClass { chunk_alignment: 64, ..PageClass::BULK }, narrow, 250_000),
        ("packed, wide", PageClass::BULK, wide, 1 << 40),
    ];
    println!(
        "{:14} {:>9} {:>8} | {:>8} {:>12} | {:>10}",
        "column", "keys", "left", "stored", "of 5 % rows", "decoded"
    );
    for (name, class, values, range) in columns {
        let pages = pages(class, &values);
        // A quarter of the possible values, or of the existing ones.
        let keys: Vec<i64> = match range {
            250_000 => (0..range).filter(|key| key * 7919 % 1009 < 252).collect(),
            _ => values.iter().copied().step_by(4).collect(),
        };
        let hashed: HashSet<i64> = keys.iter().copied().collect();
        let (set, keys) = IntegerSet::collect(keys);
        let stored = best(&pages, |column, all, _| column.contained_in(&set, all).unwrap());
        let few = best(&pages, |column, _, few| column.contained_in(&set, few).unwrap());
        let decoded = best(&pages, |column, all, _| {
            let array = column.decode(&Pick::new(0..all.len(), None, 1).unwrap()).unwrap();
            let values = array.as_primitive::<Int64Type>().values();
            BooleanBuffer::collect_bool(values.len(), |row| hashed.contains(&values[row]))
        });
        assert_eq!(stored.1, decoded.1);
        println!(
            "{name:14} {:9} {:8} | {:8.2} {:12.2} | {:10.2}",
            keys.len(),
            stored.1,
            stored.0,
            few.0,
            decoded.0
        );
    }
}

fn pages(class: PageClass, values: &[i64]) -> Vec<(PageRead, PageColumns)> {
    let column = Column {
        id: 1,
        name: "k".into(),
        column_type: ColumnType::BigInt,
        not_null: false,
        default: None,
        absent: None,
    };
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: vec![column],
        primary_key: Vec::new(),
    };
    let array = Arc::new(Int64Array::from(values.to_vec()));
    let batch = RecordBatch::try_new(schema.arrow(), vec![array]).unwrap();
    let mut writer = SegmentWriter::new(SEGMENT, &schema, class, 0, 0).unwrap();
    let mut encoded = writer.push(&batch).unwrap();
    encoded.extend(writer.finish().unwrap());
    let pages = encoded.into_iter().map(|page| {
        let place = page.page_ref(BlockAddress(0));
        let bytes = page.bytes.into_bytes();
        let header = parse_header(&bytes, &place, &SEGMENT).unwrap();
        let entry = header.entry(ColumnRef::User(1)).unwrap();
        let chunk = bytes.slice(entry.offset as usize..(entry.offset + entry.length) as usize);
        let read = PageRead { segment: SEGMENT, page: place, columns: vec![ColumnRef::User(1)] };
        let header = bytes.slice(..header.header_length as usize);
        let raw = RawColumns { header, chunks: vec![Some(chunk)] };
        let columns = PageColumns::verify(&read, raw).unwrap();
        (read, columns)
    });
    pages.collect()
}

/// Nanoseconds a row for each page, with all of its rows and a twentieth of them; and the remaining rows.
fn best(
    pages: &[(PageRead, PageColumns)],
    ask: impl Fn(&OpenColumn, &BooleanBuffer, &BooleanBuffer) -> BooleanBuffer,
) -> (f64, usize) {
    let kept: Vec<_> = pages
        .iter()
        .map(|(_, page)| {
            let count = page.header.row_count as usize;
            let few = BooleanBuffer::collect_bool(count, |row| row * 7919 % 20 == 3);
            (BooleanBuffer::new_set(count), few)
        })
        .collect();
    let none = OverflowValues::none();
    let rounds = (0..ROUNDS).map(|_| {
        let watch = Stopwatch::start();
        let mut left = 0;
        for ((read, page), (all, few)) in pages.iter().zip(&kept) {
            let data_type = DataType::Int64;
            let column = ColumnRef::User(1);
            let column = OpenColumn::open(
                page,
                read,
                column,
                &data_type,
                &AbsentValues::default(),
                &none,
                None,
            )
            .unwrap();
            left += black_box(ask(&column, all, few)).count_set_bits();
        }
        (watch.elapsed().as_nanos() as f64 / ROWS as f64, left)
    });
    rounds.fold((f64::INFINITY, 0), |best, (ns, left)| (best.0.min(ns), left))
}
