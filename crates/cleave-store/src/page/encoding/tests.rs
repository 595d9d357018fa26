//! Encodings: the choice among them, the limits of types, and reading plain chunks in place.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, StringArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use bytes::Bytes;
use cleave_media::BlockAddress;

use super::{Chunk, Effort, Pick, encode};
use crate::page::columns::ValueType;
use crate::page::header::parse_header;
use crate::page::testing::{SEGMENT, array, assert_same, rows, table};
use crate::{
    ColumnRef, ColumnType, Encoding, OverflowValues, PageClass, PageHeader, PageRead,
    SegmentWriter, StoreError,
};

fn encoding_of(array: &dyn Array) -> (Encoding, u64) {
    let value_type = ValueType::from_arrow(array.data_type()).unwrap();
    let effort = Effort { inline_bytes_max: 100, light: false };
    let (chunk, long) = encode(ColumnRef::User(1), value_type, array, effort).unwrap();
    assert!(long.is_none());
    assert_eq!(chunk.length == 0, chunk.encoding != Encoding::Plain);
    (chunk.encoding, chunk.base)
}

#[test]
fn rules_are_found_and_only_where_they_hold() {
    use Encoding::{Constant, Plain, Sequence};
    let ints = |values: &[i32]| encoding_of(&Int32Array::from(values.to_vec()));
    assert_eq!(ints(&[7, 7, 7]), (Constant, 7));
    assert_eq!(ints(&[7, 8, 9]), (Sequence, 7));
    assert_eq!(ints(&[7, 8, 8]).0, Plain);
    assert_eq!(ints(&[-9, -8, -7]).0, Sequence);
    assert_eq!(ints(&[-1, 0, 1]).0, Plain, "a sequence does not cross zero, since it would wrap");
    assert_eq!(ints(&[i32::MAX - 1, i32::MAX]).0, Plain);
    assert_eq!(ints(&[i32::MAX, i32::MIN]).0, Plain);
    let longs = |values: &[i64]| encoding_of(&Int64Array::from(values.to_vec()));
    assert_eq!(longs(&[i64::MAX, i64::MIN]).0, Plain);
    assert_eq!(longs(&[i64::MIN, i64::MIN + 1]).0, Sequence);
    assert_eq!(longs(&[-1, -1]), (Constant, u64::MAX));
    assert_eq!(encoding_of(&Int32Array::from(vec![Some(1), None, Some(1)])).0, Plain);
    assert_eq!(encoding_of(&Int32Array::from(vec![None, None])), (Constant, 0));
    assert_eq!(encoding_of(&BooleanArray::from(vec![true; 3])), (Constant, 1));
    assert_eq!(encoding_of(&BooleanArray::from(vec![true, false])).0, Plain);
    assert_eq!(encoding_of(&Float64Array::from(vec![0.0, -0.0])).0, Plain, "bits, not values");
    assert_eq!(encoding_of(&Float64Array::from(vec![1.0, 2.0])).0, Plain);
    assert_eq!(encoding_of(&StringArray::from(vec!["x"; 3])).0, Plain);
}

#[test]
fn what_lies_beneath_nulls_is_not_stored() {
    let nulls = || NullBuffer::from_iter((0..600).map(|row| row % 3 != 1));
    // Equal rows, with different numbers and texts beneath their NULLs.
    let arrays = |beneath: i64| -> Vec<ArrayRef> {
        let value = |row: i64| if row % 3 == 1 { beneath * row } else { row * 7 % 50 };
        let (mut offsets, mut bytes) = (vec![0], Vec::new());
        for row in 0..600_u16 {
            let (letter, length) = (b'a' + u8::try_from(row % 7).unwrap(), usize::from(row % 9));
            let hidden = if row % 3 == 1 { usize::try_from(beneath).unwrap() * 5 } else { length };
            bytes.extend(std::iter::repeat_n(letter, hidden));
            offsets.push(i32::try_from(bytes.len()).unwrap());
        }
        let booleans = (0..600).map(|row| if row % 3 == 1 { beneath > 1 } else { row % 2 == 0 });
        vec![
            Arc::new(Int64Array::new((0..600).map(value).collect(), Some(nulls()))),
            Arc::new(BooleanArray::new(booleans.collect(), Some(nulls()))),
            Arc::new(StringArray::new(
                OffsetBuffer::new(offsets.into()),
                Buffer::from_vec(bytes),
                Some(nulls()),
            )),
            Arc::new(Float64Array::new(
                (0..600).map(|row| f64::from(i32::try_from(value(row)).unwrap()) / 3.0).collect(),
                Some(nulls()),
            )),
        ]
    };
    for light in [false, true] {
        for (first, second) in arrays(1).iter().zip(arrays(30)) {
            let bytes = |array: &dyn Array| {
                let value_type = ValueType::from_arrow(array.data_type()).unwrap();
                let effort = Effort { inline_bytes_max: 100, light };
                let (chunk, long) = encode(ColumnRef::User(1), value_type, array, effort).unwrap();
                assert!(long.is_none(), "a NULL is not long");
                (chunk.encoding, chunk.length, chunk.parts)
            };
            assert_eq!(bytes(first), bytes(&second), "{}", first.data_type());
            // Also for an array that is a slice of another one.
            assert_eq!(bytes(&first.slice(5, 300)), bytes(&second.slice(5, 300)));
        }
    }
}

/// One column of one page, with a place for its bytes.
struct Column {
    read: PageRead,
    header: PageHeader,
    page: Bytes,
}

impl Column {
    fn written(column_type: ColumnType, array: ArrayRef) -> Self {
        let schema = table(&[column_type]);
        let batch = arrow::array::RecordBatch::try_new(schema.arrow(), vec![array]).unwrap();
        let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, 0, 0).unwrap();
        let mut pages = writer.push(&batch).unwrap();
        pages.extend(writer.finish().unwrap());
        assert_eq!(pages.len(), 1);
        let page = pages.remove(0);
        let place = page.page_ref(BlockAddress(0));
        let read = PageRead { segment: SEGMENT, page: place, columns: vec![ColumnRef::User(1)] };
        let header = parse_header(&page.bytes, &place, &SEGMENT).unwrap();
        Self { read, header, page: page.bytes.into_bytes() }
    }

    fn bytes(&self) -> Bytes {
        let entry = self.header.entry(ColumnRef::User(1)).unwrap();
        let from = usize::try_from(entry.offset).unwrap();
        self.page.slice(from..from + usize::try_from(entry.length).unwrap())
    }

    fn decode(&self, bytes: &Bytes) -> Result<ArrayRef, StoreError> {
        let entry = self.header.entry(ColumnRef::User(1)).unwrap();
        let chunk = Chunk { read: &self.read, header: &self.header, entry, bytes: Some(bytes) };
        let rows = usize::try_from(self.header.row_count).unwrap();
        let all =
            chunk.open(&OverflowValues::none(), None)?.decode(&Pick::new(0..rows, None, 1)?)?;
        for slot in 0..all.len() {
            let one = chunk.decode_slots(&[slot], &OverflowValues::none())?;
            assert_same(&one, &all.slice(slot, 1));
        }
        let last_first: Vec<usize> = (0..all.len()).rev().collect();
        let turned = chunk.decode_slots(&last_first, &OverflowValues::none())?;
        assert_eq!(turned.len(), all.len());
        for (row, slot) in last_first.into_iter().enumerate() {
            assert_same(&turned.slice(row, 1), &all.slice(slot, 1));
        }
        assert!(chunk.decode_slots(&[all.len()], &OverflowValues::none()).is_err());
        Ok(all)
    }
}

#[test]
fn plain_values_lie_in_the_chunk() {
    let bits: Vec<Option<u64>> = (0..500).map(|row| (row % 7 > 0).then_some(row * row)).collect();
    for column_type in
        [ColumnType::BigInt, ColumnType::Text, ColumnType::Numeric { precision: 38, scale: 2 }]
    {
        let original = array(&column_type, &bits, 8);
        let column = Column::written(column_type, Arc::clone(&original));
        let bytes = column.bytes();
        let decoded = column.decode(&bytes).unwrap();
        assert_same(&original, &decoded);
        let chunk = bytes.as_ptr_range();
        let data = decoded.to_data();
        for buffer in data.buffers() {
            assert!(chunk.contains(&buffer.as_ptr()), "{column_type} was copied");
        }
        assert!(chunk.contains(&data.nulls().unwrap().validity().as_ptr()));
    }
}

#[test]
fn bytes_at_any_address_decode() {
    let bits: Vec<Option<u64>> = (0..300).map(|row| Some(row * 31)).collect();
    for column_type in
        [ColumnType::SmallInt, ColumnType::Interval, ColumnType::Text, ColumnType::Uuid]
    {
        let original = array(&column_type, &bits, 8);
        let column = Column::written(column_type, Arc::clone(&original));
        for shift in [1, 2, 4, 8] {
            let mut moved = vec![0; shift];
            moved.extend_from_slice(&column.bytes());
            let moved = Bytes::from(moved).slice(shift..);
            assert_same(&original, &column.decode(&moved).unwrap());
        }
    }
}

#[test]
fn equal_rows_make_equal_pages() {
    let schema = table(&[ColumnType::Boolean, ColumnType::Text, ColumnType::Int]);
    let batch = rows(&schema, 90, 9, 5);
    let whole = {
        let parts: Vec<_> = batch.columns().iter().map(|column| column.slice(13, 60)).collect();
        arrow::array::RecordBatch::try_new(schema.arrow(), parts).unwrap()
    };
    // The same rows, in memory of their own and in pieces.
    let indices = arrow::array::UInt32Array::from_iter_values(13..73);
    let copies = arrow::compute::take_record_batch(&batch, &indices).unwrap();
    let pages = |batches: &[arrow::array::RecordBatch]| {
        let mut writer = SegmentWriter::new(SEGMENT, &schema, PageClass::HOT, 0, 0).unwrap();
        for batch in batches {
            assert!(writer.push(batch).unwrap().is_empty());
        }
        writer.finish().unwrap()
    };
    let once = pages(std::slice::from_ref(&whole));
    assert_eq!(once, pages(&[whole.slice(0, 11), whole.slice(11, 49)]));
    let nulls_and_values = |batch: &arrow::array::RecordBatch| pages(std::slice::from_ref(batch));
    assert_eq!(once.len(), nulls_and_values(&copies).len());
}

#[test]
fn text_that_is_none_is_an_error() {
    let original: ArrayRef = Arc::new(StringArray::from(vec!["äö", "ü", "xyz"]));
    let column = Column::written(ColumnType::Text, original);
    let good = column.bytes().to_vec();
    assert_eq!(good.len(), 64 + 9);
    // A byte that no text has; an offset inside a character; offsets that fall; an offset behind the end.
    for (at, value) in [(64, 0xff_u8), (4, 3), (4, 9), (12, 200), (3, 0x80), (15, 0x80)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let found = column.decode(&Bytes::from(bytes));
        assert!(
            matches!(&found, Err(StoreError::Corrupt { column: Some(ColumnRef::User(1)), .. })),
            "byte {at}: {found:?}"
        );
    }
    let short = Bytes::from(good).slice(..70);
    assert!(matches!(column.decode(&short), Err(StoreError::Corrupt { .. })));
    assert!(matches!(column.decode(&Bytes::new()), Err(StoreError::Corrupt { .. })));
}

#[test]
fn nulls_must_be_as_many_as_promised() {
    let original: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let column = Column::written(ColumnType::Int, original);
    let mut bytes = column.bytes().to_vec();
    bytes[0] = 0b001;
    let found = column.decode(&Bytes::from(bytes)).unwrap_err();
    assert!(found.to_string().contains("2 NULLs where 1 are promised"), "{found}");
}

#[test]
fn constants_of_every_width_come_back() {
    for column_type in [
        ColumnType::SmallInt,
        ColumnType::Int,
        ColumnType::BigInt,
        ColumnType::Real,
        ColumnType::Double,
        ColumnType::Boolean,
        ColumnType::Date,
        ColumnType::Time,
    ] {
        let bits: Vec<Option<u64>> = vec![Some(0x0f0f_0f0f_0f0f_0f0f); 65];
        let original = array(&column_type, &bits, 0);
        let column = Column::written(column_type, Arc::clone(&original));
        let entry = column.header.entry(ColumnRef::User(1)).unwrap();
        assert_eq!((entry.encoding, entry.length), (Encoding::Constant, 0), "{column_type}");
        assert_same(&original, &column.decode(&Bytes::new()).unwrap());
    }
    let negative: ArrayRef = Arc::new(Int32Array::from_iter_values(-700..-600));
    let column = Column::written(ColumnType::Int, Arc::clone(&negative));
    assert_eq!(column.header.chunks[0].encoding, Encoding::Sequence);
    let decoded = column.decode(&Bytes::new()).unwrap();
    assert_same(&negative, &decoded);
    assert_eq!(decoded.as_primitive::<arrow::datatypes::Int32Type>().value(99), -601);
}
