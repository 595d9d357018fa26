//! Pages: a page and the overflow pages behind it in, decoded as rows, whole and one by one.
//!
//! Checksums are corrected. Decoded arrays must satisfy Arrow's invariants, and a row must be the same whether it is
//! read alone, selected, or with all others.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray,
    Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema};
use bytes::Bytes;
use cleave_media::{BLOCK_SIZE, BlockAddress, SplitMix64};
use cleave_store::page::inspection::{fit_checksums, own_block_count};
use cleave_store::page::overflow::overflow_payload;
use cleave_store::{
    Column, ColumnType, CommitColumn, EncodedPage, OpenedPage, OverflowValues, PageClass,
    PageColumns, PageKind, PageRead, PageRef, Projection, RawColumns, RunWriter, SegmentId,
    SegmentRef, SegmentWriter, TableSchema, Versions, VidColumn, ZoneEntry, decode_batch,
    decode_rows, overflow_pages, parse_header,
};

use super::Target;
use crate::mutate::Shape;

/// Pages.
pub const TARGET: Target = Target { name: "pages", shape: Shape::Flat, seeds, run };

/// Most slots that are read one by one.
const SLOT_COUNT_MAX: u32 = 48;
/// The address of the pages.
const START: BlockAddress = BlockAddress(8);

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 7, segment: SegmentId(3), schema_version: 2, commit: 0 };

/// Decodes one input.
fn run(input: &[u8]) {
    let mut pages = split(input).into_iter();
    let Some(first) = pages.next() else { return };
    let Ok((bytes, page, segment)) = fit_checksums(&first, START) else { return };
    let overflow: Vec<(Bytes, PageRef, SegmentRef)> =
        pages.filter_map(|page| fit_checksums(&page, START).ok()).collect();
    let Ok(header) = parse_header(&bytes, &page, &segment) else { return };
    if header.kind == PageKind::Overflow {
        drop(overflow_payload(&segment, &page, &bytes));
        return;
    }
    let columns: Vec<_> = header.chunks.iter().map(|chunk| chunk.column).collect();
    let read = PageRead { segment, page, columns: columns.clone() };
    let chunks = header.chunks.iter().map(|chunk| {
        let from = usize::try_from(chunk.offset).ok()?;
        let to = from.checked_add(usize::try_from(chunk.length).ok()?)?;
        (chunk.length > 0 && to <= bytes.len()).then(|| bytes.slice(from..to))
    });
    let raw = RawColumns { header: bytes.clone(), chunks: chunks.collect() };
    let Ok(page_columns) = PageColumns::verify(&read, raw) else { return };
    let fields: Vec<Field> = header
        .chunks
        .iter()
        .map(|chunk| Field::new(chunk.column.to_string(), chunk.value_type.arrow(), true))
        .collect();
    let projection = Projection::new(Arc::new(Schema::new(fields)), columns);
    let Ok(needed) = overflow_pages(&page_columns, &read, &projection.columns, None) else {
        return;
    };
    let needed_none = needed.is_empty();
    let values: OverflowValues = needed
        .into_iter()
        .filter_map(|number| {
            let (bytes, page, segment) =
                overflow.iter().find(|(_, page, _)| page.page == number)?;
            Some((number, overflow_payload(segment, page, bytes).ok()?))
        })
        .collect();
    let all = decode_batch(&page_columns, &read, &projection, None, &values);
    if let Ok(all) = &all {
        check(all);
    }
    let opened = OpenedPage::open(&page_columns, &read);
    if let Ok(Some(_)) = &opened {
        assert!(needed_none, "a page with long values is opened");
    }
    let opened = opened.ok().flatten();
    for slot in 0..header.row_count.min(SLOT_COUNT_MAX) {
        let number = u16::try_from(slot).unwrap_or(u16::MAX);
        let row = decode_rows(&page_columns, &read, &[number], &projection, &values);
        if let (Ok(all), Ok(row)) = (&all, &row) {
            same(&all.slice(usize::from(number), 1), row);
            if let Some(opened) = &opened {
                let row = opened.rows(&[number], &projection);
                same(&all.slice(usize::from(number), 1), &row.unwrap_or_else(|e| panic!("{e}")));
            }
        } else {
            // A row may decode in a page that does not; the reverse is a defect.
            assert!(all.is_err(), "slot {slot} does not decode: {row:?}");
        }
    }
    let rows = usize::try_from(header.row_count).unwrap_or(0);
    let mut random = SplitMix64::new(u64::from(page.checksum));
    let any = |_| u16::try_from(random.below(u64::from(header.row_count).max(1))).unwrap_or(0);
    let slots: Vec<u16> = (0..5).map(any).collect();
    let few = decode_rows(&page_columns, &read, &slots, &projection, &values);
    if let (Ok(all), Ok(few)) = (&all, &few) {
        let rows = (0..).zip(&slots);
        rows.for_each(|(row, slot)| same(&all.slice(usize::from(*slot), 1), &few.slice(row, 1)));
    }
    let selection = BooleanBuffer::collect_bool(rows, |_| random.below(3) == 0);
    let some = decode_batch(&page_columns, &read, &projection, Some(&selection), &values);
    if let Ok(all) = &all {
        let some = some.unwrap_or_else(|error| panic!("a selection does not decode: {error}"));
        let mask = BooleanArray::new(selection, None);
        let expected = arrow::compute::filter_record_batch(all, &mask);
        same(&expected.unwrap_or_else(|error| panic!("{error}")), &some);
    }
}

/// Divides `input` into pages, by their own lengths.
fn split(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut pages = Vec::new();
    while !input.is_empty() && pages.len() < 64 {
        let blocks = own_block_count(input).unwrap_or(1).max(1);
        let bytes = usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(BLOCK_SIZE);
        let (page, rest) = input.split_at(bytes.min(input.len()));
        pages.push(page.to_vec());
        input = rest;
    }
    pages
}

fn check(batch: &RecordBatch) {
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        if let Err(error) = array.to_data().validate_full() {
            panic!("{} is no sound array: {error}", field.name());
        }
        let zone = ZoneEntry::of(1, array);
        assert!(zone.covers(&zone), "{zone:?} does not cover itself");
    }
}

fn same(left: &RecordBatch, right: &RecordBatch) {
    for (left, right) in left.columns().iter().zip(right.columns()) {
        assert!(left.to_data() == right.to_data(), "{left:?} and {right:?} differ");
    }
}

/// Pages of every type, class, and style of values for each encoding.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, rows) in [1, 3, 70, 700].into_iter().enumerate() {
        for class in [PageClass::HOT, PageClass::BULK] {
            for style in 0..STYLES {
                let random = SplitMix64::new(number as u64 * 100 + style);
                seeds.extend(heap_page(rows, style, class, random));
            }
        }
    }
    seeds.extend(index_page());
    seeds.retain(|seed| seed.len() <= 256 << 10);
    seeds
}

const TYPES: [ColumnType; 17] = [
    ColumnType::SmallInt,
    ColumnType::Int,
    ColumnType::BigInt,
    ColumnType::Real,
    ColumnType::Double,
    ColumnType::Numeric { precision: 20, scale: 3 },
    ColumnType::Boolean,
    ColumnType::Text,
    ColumnType::Varchar(Some(40)),
    ColumnType::Char(3),
    ColumnType::Date,
    ColumnType::Time,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
    ColumnType::Interval,
    ColumnType::Bytea,
    ColumnType::Uuid,
];

/// Constant, ascending, few values, small numbers, any numbers, long texts, sorted runs.
const STYLES: u64 = 7;

/// A page of a third of the types, followed by its overflow pages.
fn heap_page(rows: usize, style: u64, class: PageClass, mut random: SplitMix64) -> Option<Vec<u8>> {
    let offset = usize::try_from(random.below(3)).ok()?;
    let columns = (1..).zip(TYPES.into_iter().skip(offset).step_by(3));
    let columns = columns.map(|(id, column_type)| Column {
        id,
        name: format!("c{id}"),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    });
    let schema = TableSchema {
        table_id: SEGMENT.table_id,
        version: SEGMENT.schema_version,
        name: "t".into(),
        columns: columns.collect(),
        primary_key: Vec::new(),
    };
    let arrays = schema.columns.iter().map(|column| {
        let nulls = random.below(3) == 0;
        array(column.column_type, rows, style, nulls, &mut random)
    });
    let arrays: Option<Vec<ArrayRef>> = arrays.collect();
    let batch = RecordBatch::try_new(schema.arrow(), arrays?).ok()?;
    let versions = if random.below(2) == 0 {
        Versions::loaded(random.below(1 << 40))
    } else {
        Versions {
            vid: VidColumn::Each((0..rows).map(|_| random.next_u64()).collect()),
            commit: CommitColumn::Each((0..rows).map(|_| random.below(9)).collect()),
        }
    };
    let mut writer = SegmentWriter::new(SEGMENT, &schema, class, 0, 0).ok()?;
    let mut pages = writer.push_versions(&batch, versions).ok()?;
    pages.extend(writer.finish().ok()?);
    let heap = pages.iter().position(|page| page.kind == PageKind::Heap)?;
    pages.truncate(heap + 1);
    pages.reverse();
    Some(joined(&pages))
}

fn index_page() -> Option<Vec<u8>> {
    let mut writer = RunWriter::new(SEGMENT, 0, true).ok()?;
    let mut pages = Vec::new();
    for number in 0..900_u64 {
        pages.extend(writer.push(&number.swap_bytes().to_le_bytes(), number * 7 % 900).ok()?);
    }
    pages.extend(writer.finish().ok()?.pages);
    pages.truncate(1);
    Some(joined(&pages))
}

fn joined(pages: &[EncodedPage]) -> Vec<u8> {
    pages.iter().flat_map(|page| page.bytes.iter().copied()).collect()
}

fn array(
    column_type: ColumnType,
    rows: usize,
    style: u64,
    nulls: bool,
    random: &mut SplitMix64,
) -> Option<ArrayRef> {
    let values: Vec<Option<i64>> = (0..rows)
        .map(|row| {
            let row = i64::try_from(row).unwrap_or(0);
            let value = match style {
                0 => 17,
                1 => 1000 + row,
                2 => i64::try_from(random.below(4)).unwrap_or(0) * 100,
                3 => i64::try_from(random.below(100)).unwrap_or(0) - 50,
                6 => row / 9,
                _ => random.next_u64().cast_signed(),
            };
            (!nulls || random.below(5) > 0).then_some(value)
        })
        .collect();
    let each = || values.iter().copied();
    let text = |value: i64| match style {
        5 => format!("{value:x}→").repeat(usize::try_from(value & 0xff).unwrap_or(0)),
        _ => format!("movie keyword {value} of the film"),
    };
    #[expect(clippy::cast_possible_truncation, reason = "any low bits will do")]
    let array: ArrayRef = match column_type {
        ColumnType::SmallInt => Arc::new(Int16Array::from_iter(each().map(|v| Some(v? as i16)))),
        ColumnType::Int | ColumnType::Date => {
            Arc::new(Int32Array::from_iter(each().map(|v| Some(v? as i32))))
        }
        ColumnType::Real | ColumnType::Double => {
            Arc::new(Float64Array::from_iter(each().map(|v| Some(v? as f64 / 8.0))))
        }
        ColumnType::Numeric { precision, scale } => Arc::new(
            Decimal128Array::from_iter(each().map(|v| Some(i128::from(v?))))
                .with_precision_and_scale(precision, scale)
                .ok()?,
        ),
        ColumnType::Boolean => Arc::new(BooleanArray::from_iter(each().map(|v| Some(v? % 2 == 0)))),
        ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) => {
            Arc::new(StringArray::from_iter(each().map(|v| Some(text(v?)))))
        }
        ColumnType::Bytea => {
            Arc::new(BinaryArray::from_iter(each().map(|v| Some(text(v?).into_bytes()))))
        }
        ColumnType::Uuid => {
            let bytes = each().map(|v| Some(i128::from(v?).to_le_bytes()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).ok()?)
        }
        ColumnType::Interval => {
            let months = Int32Array::from_iter(each().map(|v| Some(v? as i32 / 2)));
            let unit = arrow::datatypes::IntervalUnit::YearMonth;
            let months = cast(&months, &arrow::datatypes::DataType::Interval(unit)).ok()?;
            cast(&months, &column_type.arrow()).ok()?
        }
        _ => Arc::new(Int64Array::from_iter(each())),
    };
    cast(&array, &column_type.arrow()).ok()
}
