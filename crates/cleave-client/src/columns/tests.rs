//! Tests of batches of rows.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Decimal128Type, Int32Type, IntervalMonthDayNanoType};
use proptest::prelude::*;

use super::*;

/// A DataRow message.
fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut row = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
        row.extend(length.to_be_bytes());
        row.extend(value.unwrap_or_default());
    }
    row
}

fn rows(kinds: &[Kind]) -> Rows {
    let described =
        kinds.iter().map(|kind| Described { name: format!("{kind:?}"), kind: kind.clone() });
    Rows::new(described.collect())
}

fn int_list(count: i32, oid: u32, items: &[Option<i32>]) -> Vec<u8> {
    let mut list = [[0, 0, 0, 1], [0, 0, 0, 0], oid.to_be_bytes()].concat();
    list.extend(count.to_be_bytes());
    list.extend(1_i32.to_be_bytes());
    for item in items {
        list.extend(item.map_or(-1_i32, |_| 4).to_be_bytes());
        list.extend(item.map(i32::to_be_bytes).iter().flatten());
    }
    list
}

#[test]
fn values_of_all_kinds_are_read() {
    let kinds = [Kind::Int4, Kind::Numeric(Some((6, 2))), Kind::Interval, Kind::Date, Kind::Text];
    let list = Kind::List(Box::new(Kind::Int4));
    let mut rows = rows(&[&kinds[..], &[list]].concat());
    let interval = [&3_000_000_i64.to_be_bytes()[..], &2_i32.to_be_bytes(), &1_i32.to_be_bytes()];
    let items = int_list(2, 23, &[Some(5), None]);
    let full = row(&[
        Some(&7_i32.to_be_bytes()),
        // 1.50
        Some(&[0, 2, 0, 0, 0, 0, 0, 2, 0, 1, 0x13, 0x88]),
        Some(&interval.concat()),
        Some(&1_i32.to_be_bytes()),
        Some("x\u{e9}".as_bytes()),
        Some(&items),
    ]);
    rows.append(&full).unwrap().unwrap();
    rows.append(&row(&[None; 6])).unwrap().unwrap();
    let batch = rows.batch().unwrap();
    assert_eq!(batch.num_rows(), 2);
    assert_eq!(batch.column(0).as_primitive::<Int32Type>().value(0), 7);
    assert_eq!(batch.column(1).as_primitive::<Decimal128Type>().value(0), 150);
    let interval = batch.column(2).as_primitive::<IntervalMonthDayNanoType>().value(0);
    assert_eq!((interval.months, interval.days, interval.nanoseconds), (1, 2, 3_000_000_000));
    assert_eq!(batch.column(4).as_string::<i32>().value(0), "x\u{e9}");
    let list = batch.column(5).as_list::<i32>().value(0);
    assert_eq!((list.len(), list.null_count()), (2, 1));
    assert!(batch.columns().iter().all(|column| column.is_null(1)));
    // The next batch begins empty.
    assert!(rows.is_empty());
    assert_eq!(rows.batch().unwrap().num_rows(), 0);
}

#[test]
fn values_that_lie_are_errors() {
    let list = Kind::List(Box::new(Kind::Int4));
    for (kind, value) in [
        (Kind::Int4, vec![0; 3]),
        (Kind::Bool, vec![2]),
        (Kind::Text, vec![0xff]),
        (Kind::Time, vec![0xff; 8]),
        (Kind::Uuid, vec![0; 15]),
        (Kind::Interval, vec![0; 15]),
        (Kind::Numeric(None), vec![0; 7]),
        (list.clone(), vec![0; 11]),
        (list.clone(), int_list(i32::MAX, 23, &[Some(1)])),
        (list.clone(), int_list(-1, 23, &[])),
        (list.clone(), int_list(0, 23, &[Some(1)])),
        (list, int_list(1, 25, &[Some(1)])),
    ] {
        let mut rows = rows(std::slice::from_ref(&kind));
        let taken = rows.append(&row(&[Some(&value)])).unwrap();
        assert!(matches!(taken, Err(ClientError::Value { .. })), "{kind:?} {value:?}");
    }
    // Rows that do not have the columns, or not the bytes.
    for message in [row(&[]), row(&[None, None]), vec![0], vec![0, 1, 0, 0, 0, 9, 1], vec![0, 1]] {
        assert!(rows(&[Kind::Int4]).append(&message).is_none(), "{message:?}");
    }
}

#[test]
fn a_later_number_fits_or_is_an_error() {
    let mut rows = rows(&[Kind::Numeric(None)]);
    let number = |scale: u8, group: [u8; 2]| {
        row(&[Some(&[0, 2, 0, 0, 0, 0, 0, scale, 0, 1, group[0], group[1]])])
    };
    rows.append(&number(2, [0x13, 0x88])).unwrap().unwrap();
    let batch = rows.batch().unwrap();
    assert_eq!(*batch.schema().field(0).data_type(), DataType::Decimal128(38, 2));
    // 1.5000 and 1.5001
    rows.append(&number(4, [0x13, 0x88])).unwrap().unwrap();
    let error = rows.append(&number(4, [0x13, 0x89])).unwrap().unwrap_err();
    assert!(error.to_string().contains("cast"), "{error}");
}

#[test]
fn short_numbers_with_long_texts_fill_a_batch() {
    let mut rows = rows(&[Kind::Numeric(None)]);
    let long = row(&[Some(&[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0, 1])]);
    let mut count = 0;
    while !rows.is_full() {
        rows.append(&long).unwrap().unwrap();
        count += 1;
    }
    assert!(count < 300, "{count}");
}

proptest! {
    #[test]
    fn no_bytes_are_more_than_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let list = |kind| Kind::List(Box::new(kind));
        for kind in [
            Kind::Bool, Kind::Int2, Kind::Oid, Kind::Float8, Kind::Numeric(None), Kind::Text, Kind::Bytea, Kind::Date,
            Kind::Time, Kind::TimestampTz, Kind::Interval, Kind::Uuid, list(Kind::Text), list(Kind::Int8),
        ] {
            let mut rows = rows(&[kind]);
            if let Some(Ok(())) = rows.append(&row(&[Some(&bytes)])) {
                prop_assert_eq!(rows.batch().unwrap().num_rows(), 1);
            }
            drop(rows.append(&bytes));
        }
    }
}
