//! Light encodings: the choice among them, round trips of the extremes of every type, and refusal of invalid chunks.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, StringArray,
    TimestampMicrosecondArray, UInt32Array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, take};
use arrow::datatypes::IntervalMonthDayNano;
use bytes::Bytes;
use cleave_media::{BlockAddress, SplitMix64};
use proptest::prelude::{any, prop, proptest};

use super::super::{Chunk, Effort, OpenChunk, Pick, encode};
use crate::integer_set::{IntegerSet, Kept};
use crate::page::columns::ValueType;
use crate::page::testing::{SEGMENT, TYPES, array, assert_same};
use crate::{
    ChunkEntry, ColumnRef, Encoding, OverflowValues, PageHeader, PageKind, PageRead, PageRef,
    StoreError,
};
use cleave_media::Extent;

/// A chunk of a column, as a page would have it.
fn chunk_of(array: &dyn Array) -> (ChunkEntry, Bytes) {
    let value_type = ValueType::from_arrow(array.data_type()).unwrap();
    let effort = Effort { inline_bytes_max: 1 << 16, light: true };
    let (chunk, _) = encode(ColumnRef::User(1), value_type, array, effort).unwrap();
    let mut bytes = vec![0; chunk.length];
    for (at, part) in &chunk.parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    let entry = ChunkEntry {
        column: chunk.column,
        encoding: chunk.encoding,
        value_type,
        offset: 64,
        shared: None,
        length: u32::try_from(chunk.length).unwrap(),
        null_count: chunk.null_count,
        overflow_count: 0,
        base: chunk.base,
        checksum: 0,
    };
    (entry, Bytes::from(bytes))
}

#[test]
fn powers_of_ten_are_exact() {
    for (digits, power) in (0..).zip(super::POWERS_OF_TEN) {
        #[expect(clippy::cast_precision_loss, reason = "2^53 is above them")]
        let exact = 10_u64.pow(digits) as f64;
        assert_eq!(power.to_bits(), exact.to_bits());
    }
}

fn open<T>(
    entry: ChunkEntry,
    bytes: &Bytes,
    row_count: usize,
    then: impl FnOnce(&Chunk<'_>, OpenChunk) -> T,
) -> Result<T, StoreError> {
    let row_count = u32::try_from(row_count).unwrap();
    let header = PageHeader {
        format_version: 2,
        kind: PageKind::Heap,
        table_id: SEGMENT.table_id,
        segment: SEGMENT.segment,
        page: 0,
        schema_version: SEGMENT.schema_version,
        row_count,
        header_length: 64,
        block_count: 1000,
        chunks: vec![entry],
    };
    let extent = Extent { start: BlockAddress(0), block_count: 1000 };
    let page = PageRef { page: 0, extent, row_count, checksum: 0 };
    let read = PageRead { segment: SEGMENT, page, columns: vec![ColumnRef::User(1)] };
    let chunk = Chunk { read: &read, header: &header, entry: &entry, bytes: Some(bytes) };
    Ok(then(&chunk, chunk.open(&OverflowValues::none(), None)?))
}

/// Checks that a column comes back whole, in part, selected and one by one; returns how it was encoded.
fn round_trip(original: &dyn Array) -> Encoding {
    let (entry, bytes) = chunk_of(original);
    let count = original.len();
    let mut random = SplitMix64::new(count as u64);
    open(entry, &bytes, count, |chunk, opened| {
        assert_same(original, &opened.decode(&Pick::new(0..count, None, 1).unwrap()).unwrap());
        let part = count / 3..count / 2 + 1;
        let pick = Pick::new(part.clone(), None, 1).unwrap();
        assert_same(&original.slice(part.start, part.len()), &opened.decode(&pick).unwrap());
        for odds in [2, 40] {
            let rows = BooleanBuffer::collect_bool(count, |_| random.below(odds) == 0);
            let expected = filter(original, &rows.clone().into()).unwrap();
            let pick = Pick::new(0..count, Some(&rows), 1).unwrap();
            assert_eq!(pick.count(), expected.len());
            assert_same(&expected, &opened.decode(&pick).unwrap());
        }
        for slot in (0..count).step_by(count / 20 + 1) {
            let one = chunk.decode_slots(&[slot], &OverflowValues::none()).unwrap();
            assert_same(&original.slice(slot, 1), &one);
        }
        let slots = UInt32Array::from_iter_values(
            (0..7).map(|_| u32::try_from(random.below(count as u64)).unwrap()),
        );
        let expected = take(original, &slots, None).unwrap();
        let slots: Vec<usize> = slots.values().iter().map(|slot| *slot as usize).collect();
        assert_same(&expected, &chunk.decode_slots(&slots, &OverflowValues::none()).unwrap());
        entry.encoding
    })
    .unwrap()
}

fn cycle<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    (0..3000).map(|row| (row % 31 != 5).then(|| values[row % values.len()].clone())).collect()
}

#[test]
fn extremes_of_every_type_come_back() {
    round_trip(&Int16Array::from(cycle(&[i16::MIN, -1, 0, 1, i16::MAX])));
    round_trip(&Int32Array::from(cycle(&[i32::MIN, -1, 0, 1, i32::MAX])));
    round_trip(&Int64Array::from(cycle(&[i64::MIN, -1, 0, 1, i64::MAX])));
    round_trip(&Date32Array::from(cycle(&[i32::MIN, 0, i32::MAX])));
    round_trip(&TimestampMicrosecondArray::from(cycle(&[i64::MIN, 0, i64::MAX])));
    let nines = 10_i128.pow(38) - 1;
    let decimals = |values: &[i128]| {
        Decimal128Array::from(cycle(values)).with_precision_and_scale(38, 2).unwrap()
    };
    assert_eq!(round_trip(&decimals(&[-nines, -1, 0, nines])), Encoding::Dictionary);
    assert_eq!(round_trip(&decimals(&[-400, -1, 0, 400])), Encoding::Integers);
    let floats = [f64::NAN, -0.0, 0.0, f64::MIN_POSITIVE, f64::INFINITY, 0.1];
    assert_eq!(round_trip(&Float64Array::from(cycle(&floats))), Encoding::Dictionary);
    round_trip(&Float32Array::from(cycle(&[f32::NAN, -0.0, 0.0, f32::NEG_INFINITY, 0.1])));
    let texts = ["", "a", "\u{10ffff}\u{7ff}ß", "a longer text that stands by itself"];
    assert_eq!(round_trip(&StringArray::from(cycle(&texts))), Encoding::Dictionary);
    round_trip(&BinaryArray::from(cycle(&[&b""[..], b"\0", b"\xff\xfe"])));
    let intervals =
        [IntervalMonthDayNano::new(i32::MIN, i32::MAX, i64::MIN), IntervalMonthDayNano::ZERO];
    let intervals = IntervalMonthDayNanoArray::from(cycle(&intervals));
    assert_eq!(round_trip(&intervals), Encoding::Dictionary);
    let uuids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        cycle(&[[0xff_u8; 16], [0; 16]]).into_iter(),
        16,
    );
    assert_eq!(round_trip(&uuids.unwrap()), Encoding::Dictionary);
}

#[test]
fn numbers_with_few_digits_are_integers() {
    let prices: Vec<f64> = (0..3000).map(|row| f64::from(row * 7919 % 100_003) / 100.0).collect();
    assert_eq!(round_trip(&Float64Array::from(prices.clone())), Encoding::Scaled);
    let mut odd = prices;
    odd[77] = -0.0;
    assert_eq!(round_trip(&Float64Array::from(odd.clone())), Encoding::Plain);
    odd[77] = 1.0 / 3.0;
    assert_eq!(round_trip(&Float64Array::from(odd)), Encoding::Plain);
}

#[test]
fn texts_take_a_dictionary_only_where_it_is_shorter() {
    let mut random = SplitMix64::new(9);
    let names: Vec<String> = (0..5000).map(|_| format!("name {}", random.below(700))).collect();
    assert_eq!(round_trip(&StringArray::from(names)), Encoding::Dictionary);
    let all: Vec<String> = (0..5000).map(|row| format!("comment number {row} of many")).collect();
    assert_eq!(round_trip(&StringArray::from(all)), Encoding::Strings);
}

#[test]
fn nulls_take_bits_or_slots() {
    for every in [2, 50, 900] {
        let few: Int64Array =
            (0..5000_i64).map(|row| (row % every != 1).then_some(row * 77 % 4001)).collect();
        round_trip(&few);
        let most: StringArray =
            (0..5000).map(|row| (row % every == 1).then(|| format!("text {row}"))).collect();
        round_trip(&most);
    }
}

#[test]
fn comparisons_and_distinct_values_need_no_decoding() {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter(
        (0..3000).map(|row| (row % 9 > 0).then_some(row % 100 - 50)),
    ));
    let (entry, bytes) = chunk_of(&numbers);
    open(entry, &bytes, 3000, |_, opened| {
        let found = opened.compare(-7, std::cmp::Ordering::is_lt).unwrap();
        let expected = BooleanBuffer::collect_bool(3000, |row| row % 9 > 0 && row % 100 < 43);
        assert_eq!(found, expected);
        assert!(opened.distinct().unwrap().is_none());
        let kept = BooleanBuffer::collect_bool(3000, |row| row % 2 == 0);
        let found = opened.contained_in(&IntegerSet::of(&[-50, 3, 12]), &Kept::of(&kept));
        let is_key = |row: usize| matches!(row % 100, 0 | 53 | 62);
        let expected =
            BooleanBuffer::collect_bool(3000, |row| row % 2 == 0 && row % 9 > 0 && is_key(row));
        assert_eq!(found, Some(expected));
        assert!(opened.coded_in(&IntegerSet::of(&[1]), true, &Kept::of(&kept)).is_none());
    })
    .unwrap();
    let names: ArrayRef = Arc::new(StringArray::from_iter(
        (0..3000).map(|row| (row % 9 > 0).then(|| format!("{}", row % 7))),
    ));
    let (entry, bytes) = chunk_of(&names);
    open(entry, &bytes, 3000, |_, opened| {
        let (entries, codes) = opened.distinct().unwrap().unwrap();
        assert_eq!((entries.len(), codes.null_count()), (7, 334));
        let kept = BooleanBuffer::collect_bool(3000, |row| row > 900);
        for null in [false, true] {
            let found = opened.coded_in(&IntegerSet::of(&[2, 5]), null, &Kept::of(&kept)).unwrap();
            let expected = BooleanBuffer::collect_bool(3000, |row| {
                row > 900 && if row % 9 > 0 { [2, 5].contains(&codes.value(row)) } else { null }
            });
            assert_eq!(found, expected, "{null}");
        }
        assert!(opened.contained_in(&IntegerSet::of(&[2]), &Kept::of(&kept)).is_none());
        assert!(opened.compare(0, std::cmp::Ordering::is_eq).is_none());
    })
    .unwrap();
}

proptest! {
    #[test]
    fn any_column_comes_back(
        type_index in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        row_count in 1_usize..1500,
        modulus in 1_u64..5000,
        step in prop::sample::select(vec![0_u64, 1, 1000, u64::MAX / 5000]),
        null_odds in 0_u64..4,
    ) {
        let mut random = SplitMix64::new(seed);
        let bits: Vec<Option<u64>> = (0..row_count as u64)
            .map(|row| {
                let value = random.below(modulus).wrapping_mul(step).wrapping_add(row * (step % 2));
                (random.below(4) >= null_odds).then_some(value)
            })
            .collect();
        round_trip(&array(type_index.get(&TYPES), &bits, 20));
    }

    #[test]
    fn damaged_chunks_never_panic(
        type_index in any::<prop::sample::Index>(),
        modulus in 2_u64..400,
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        near_start in any::<bool>(),
    ) {
        let mut random = SplitMix64::new(modulus);
        let bits: Vec<Option<u64>> =
            (0..600).map(|_| (random.below(50) > 0).then(|| random.below(modulus))).collect();
        let (entry, bytes) = chunk_of(&array(type_index.get(&TYPES), &bits, 20));
        if entry.length == 0 {
            return Ok(());
        }
        let mut bytes = bytes.to_vec();
        for (place, value) in wounds {
            let room = if near_start { bytes.len().min(64) } else { bytes.len() };
            let at = place.index(room);
            bytes[at] = value;
        }
        let tried = open(entry, &Bytes::from(bytes), 600, |chunk, opened| {
            drop(opened.distinct());
            drop(opened.compare(3, std::cmp::Ordering::is_lt));
            let kept = Kept::of(&BooleanBuffer::new_set(600));
            for set in [IntegerSet::of(&[0, 3, 99]), IntegerSet::of(&[1, i64::MAX])] {
                drop(opened.contained_in(&set, &kept));
                drop(opened.coded_in(&set, true, &kept));
            }
            let all = opened.decode(&Pick::new(0..600, None, 1).unwrap());
            for slot in (0..600).step_by(37) {
                let one = chunk.decode_slots(&[slot], &OverflowValues::none());
                if let (Ok(all), Ok(one)) = (&all, one) {
                    assert_same(&all.slice(slot, 1), &one);
                }
            }
        });
        drop(tried);
    }
}
