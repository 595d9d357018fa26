//! Zone maps: no value ever lies outside its bounds, and an unknown bound is NULL.

use std::sync::Arc;

use arrow::array::types::{Date32Type, Int16Type};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int64Array,
    IntervalMonthDayNanoArray, Scalar, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::kernels::cmp::lt_eq;
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, proptest};
use proptest::prop_oneof;
use prost::Message;

use super::{ZONE_BYTES_MAX, ZoneArrays, ZoneEntry, ZoneValue, zone_arrays};
use crate::proto;

/// The zone of one page that holds `array`, after a trip through its stored form.
fn zone_of(array: &dyn Array) -> ZoneArrays {
    let entry = ZoneEntry::of(3, array);
    let stored = proto::ZoneEntry::from(&entry).encode_to_vec();
    let read = ZoneEntry::from(proto::ZoneEntry::decode(stored.as_slice()).unwrap());
    assert_eq!(read, entry);
    let rows = u32::try_from(array.len()).unwrap();
    zone_arrays([(rows, [read].as_slice())], 3, array.data_type(), None)
}

/// Checks the bounds against every value, with the comparisons that queries use.
fn assert_bounds_hold(array: &dyn Array) {
    let zone = zone_of(array);
    assert_eq!(zone.null_counts.value(0), array.null_count() as u64);
    assert_eq!(zone.row_counts.value(0), array.len() as u64);
    let values = array.slice(0, array.len());
    let above = lt_eq(&Scalar::new(zone.mins), &values).unwrap();
    let below = lt_eq(&values, &Scalar::new(zone.maxs)).unwrap();
    assert!(above.iter().chain(below.iter()).flatten().all(|holds| holds), "{array:?}");
}

fn some_array() -> impl Strategy<Value = ArrayRef> {
    let text = prop_oneof!["[a-c]{0,4}", "\\PC{0,40}", "(\u{10FFFF}|\u{D7FF}|a){30,40}"];
    let bytes = prop_oneof![vec(any::<u8>(), 0..40), vec(254u8..=255, 30..40)];
    let double = prop_oneof![
        any::<f64>(),
        -2.0..2.0f64,
        proptest::strategy::Just(0.0),
        proptest::strategy::Just(-0.0)
    ];
    prop_oneof![
        vec(option::of(any::<i16>()), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(Int16Array::from(v)) }),
        vec(option::of(any::<i64>()), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(Int64Array::from(v)) }),
        vec(option::of(any::<f32>()), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(Float32Array::from(v)) }),
        vec(option::of(double), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(Float64Array::from(v)) }),
        vec(option::of(any::<i128>()), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(Decimal128Array::from(v)) }),
        vec(option::of(any::<bool>()), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(BooleanArray::from(v)) }),
        vec(option::of(text), 0..20).prop_map(|v| -> ArrayRef { Arc::new(StringArray::from(v)) }),
        vec(option::of(bytes), 0..20).prop_map(|v| -> ArrayRef {
            Arc::new(v.iter().map(Option::as_ref).collect::<BinaryArray>())
        }),
        vec(option::of(any::<[u8; 16]>()), 0..20).prop_map(|v| -> ArrayRef {
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(v.into_iter(), 16).unwrap(),
            )
        }),
        vec(option::of(any::<i64>()), 0..20).prop_map(|v| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::from(v).with_timezone("UTC"))
        }),
        vec(option::of(any::<i64>()), 0..20)
            .prop_map(|v| -> ArrayRef { Arc::new(Time64MicrosecondArray::from(v)) }),
    ]
}

proptest! {
    #[test]
    fn no_value_is_outside(array in some_array()) {
        assert_bounds_hold(&array);
    }
}

fn text_zone(values: Vec<&str>) -> (Option<String>, Option<String>) {
    let zone = zone_of(&StringArray::from(values));
    let value = |array: &ArrayRef| {
        let array = array.as_string::<i32>();
        array.is_valid(0).then(|| array.value(0).to_owned())
    };
    (value(&zone.mins), value(&zone.maxs))
}

#[test]
fn short_text_is_kept_whole() {
    assert_eq!(text_zone(vec!["b", "a", "c"]), (Some("a".into()), Some("c".into())));
    let exact = "x".repeat(ZONE_BYTES_MAX);
    assert_eq!(text_zone(vec![&exact]), (Some(exact.clone()), Some(exact.clone())));
}

#[test]
fn long_text_is_cut_and_its_maximum_rounded_up() {
    let long = "y".repeat(ZONE_BYTES_MAX + 1);
    let high = format!("{}z", "y".repeat(ZONE_BYTES_MAX - 1));
    assert_eq!(text_zone(vec![&long]), (Some("y".repeat(ZONE_BYTES_MAX)), Some(high)));
}

#[test]
fn text_of_last_code_points_has_no_maximum() {
    let long = "\u{10FFFF}".repeat(9);
    let (low, high) = text_zone(vec![&long]);
    assert_eq!(low, Some("\u{10FFFF}".repeat(8)));
    assert_eq!(high, None);
}

#[test]
fn text_maximum_skips_surrogates() {
    let long = format!("{}\u{D7FF}tail", "x".repeat(29));
    assert_eq!(text_zone(vec![&long]).1, Some(format!("{}\u{E000}", "x".repeat(29))));
}

#[test]
fn bytes_of_all_ones_have_no_maximum() {
    let zone = zone_of(&BinaryArray::from(vec![[255u8; 40].as_slice()]));
    assert!(zone.maxs.is_null(0));
    assert_eq!(zone.mins.as_binary::<i32>().value(0), [255u8; ZONE_BYTES_MAX]);
}

#[test]
fn nan_leaves_no_bounds() {
    let zone = zone_of(&Float64Array::from(vec![Some(1.0), Some(f64::NAN), None]));
    assert!(zone.mins.is_null(0) && zone.maxs.is_null(0));
    assert_eq!(zone.null_counts.value(0), 1);
}

#[test]
fn zero_bounds_cover_both_signs() {
    for zero in [0.0, -0.0] {
        let entry = ZoneEntry::of(1, &Float64Array::from(vec![zero]));
        let (Some(ZoneValue::Float(low)), Some(ZoneValue::Float(high))) = (entry.min, entry.max)
        else {
            panic!("no bounds");
        };
        assert!(low.is_sign_negative() && high.is_sign_positive());
    }
}

#[test]
fn bounds_of_plain_types_are_known() {
    let zone = zone_of(&Date32Array::from(vec![Some(5), None, Some(-7)]));
    assert_eq!(zone.mins.as_primitive::<Date32Type>().value(0), -7);
    assert_eq!(zone.maxs.as_primitive::<Date32Type>().value(0), 5);
    let zone = zone_of(&BooleanArray::from(vec![Some(false), None]));
    assert!(!zone.maxs.as_boolean().value(0));
}

#[test]
fn only_nulls_have_a_count_and_no_bounds() {
    let zone = zone_of(&Int64Array::from(vec![None, None]));
    assert!(zone.mins.is_null(0) && zone.maxs.is_null(0));
    assert_eq!((zone.null_counts.value(0), zone.row_counts.value(0)), (2, 2));
}

#[test]
fn intervals_have_a_count_and_no_bounds() {
    let value = IntervalMonthDayNano::new(1, 2, 3);
    let zone = zone_of(&IntervalMonthDayNanoArray::from(vec![Some(value), None]));
    assert!(zone.mins.is_null(0) && zone.maxs.is_null(0));
    assert_eq!(zone.null_counts.value(0), 1);
}

#[test]
fn unknown_and_ill_typed_entries_are_null() {
    let number = ZoneEntry {
        column: 3,
        null_count: 0,
        min: Some(ZoneValue::Integer(100_000)),
        max: Some(ZoneValue::Integer(5)),
    };
    let text = ZoneEntry { min: Some(ZoneValue::Bytes(vec![0xFF])), max: None, ..number.clone() };
    let pages = [(10, vec![number]), (20, vec![text]), (30, vec![])];
    let pages = || pages.iter().map(|(rows, entries)| (*rows, entries.as_slice()));

    let small = zone_arrays(pages(), 3, &DataType::Int16, None);
    assert!(small.mins.is_null(0), "100,000 is no smallint");
    assert_eq!(small.maxs.as_primitive::<Int16Type>().value(0), 5);
    assert!(small.mins.is_null(1) && small.mins.is_null(2));
    assert!(small.null_counts.is_null(2));
    assert_eq!(small.row_counts.values().as_ref(), [10, 20, 30]);

    let text = zone_arrays(pages(), 3, &DataType::Utf8, None);
    assert_eq!(text.mins.null_count(), 3, "0xFF is no text");
    for data_type in [
        DataType::FixedSizeBinary(16),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Decimal128(10, 2),
        DataType::UInt8,
    ] {
        let zone = zone_arrays(pages(), 3, &data_type, None);
        assert_eq!(zone.mins.data_type(), &data_type);
        assert_eq!(zone.mins.len(), 3);
    }
}

#[test]
fn bounds_cover_what_lies_between_them() {
    let of = |values: Vec<Option<i64>>| ZoneEntry::of(1, &Int64Array::from(values));
    let zone = of(vec![Some(3), None, Some(9)]);
    assert!(zone.covers(&of(vec![Some(4), None, Some(5)])));
    assert!(!zone.covers(&of(vec![Some(2), None, Some(5)])), "below the lower bound");
    assert!(!zone.covers(&of(vec![Some(4), None, Some(10)])), "above the upper bound");
    assert!(!zone.covers(&of(vec![Some(4), Some(5)])), "another number of NULLs");
    let unknown = ZoneEntry { min: None, max: None, ..zone.clone() };
    assert!(unknown.covers(&zone), "an unknown bound promises nothing");
}
