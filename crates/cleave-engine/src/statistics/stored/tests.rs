//! Every type goes there and back; other types, other tables and invalid fractions are refused or left out.

use cleave_store::{Column as TableColumn, ColumnType};

use super::*;

fn schema(types: &[ColumnType]) -> TableSchema {
    let columns = (1..).zip(types).map(|(id, column_type)| TableColumn {
        id,
        name: format!("c{id}"),
        column_type: *column_type,
        not_null: false,
        default: None,
        absent: None,
    });
    let (name, columns) = ("t".to_owned(), columns.collect());
    TableSchema { table_id: 9, version: 1, name, columns, primary_key: Vec::new() }
}

fn column(value: &ScalarValue) -> ColumnStatistics {
    ColumnStatistics {
        row_count: 10,
        sampled_count: 10,
        null_fraction: 0.25,
        distinct_count: 3.5,
        average_width: 4.0,
        min: Some(value.clone()),
        max: None,
        common: vec![(value.clone(), 0.5)],
        histogram: vec![value.clone(), value.clone()],
        keys: Some(Arc::new(KeySample::new(9, vec![(3, 2), (5, 8)]).unwrap().of_seen(0.75))),
        stored: Some(StoredColumn { row_bytes: 2.5, page_rows: 10.0, dictionary_share: 0.5 }),
    }
}

/// A sample of the value and of NULL.
fn rows_of(value: &ScalarValue) -> ArrayRef {
    let null = ScalarValue::try_new_null(&value.data_type()).unwrap();
    ScalarValue::iter_to_array([value.clone(), null]).unwrap()
}

#[test]
fn a_sample_keeps_the_columns_that_are_left_and_has_whole_rows() {
    let of = |lengths: [i32; 2], row_count_then| {
        let values = |length| (0..length).filter_map(|n| value(&ScalarValue::from(n))).collect();
        let columns = (1..).zip(lengths);
        let columns = columns.map(|(id, length)| SampleColumn { id, values: values(length) });
        let sample = Sample { row_count_then, columns: columns.collect() };
        let table = Table { table_id: 9, sample: Some(sample), ..Table::default() };
        FORMAT.seal(&table.encode_to_vec())
    };
    let two = schema(&[ColumnType::Int, ColumnType::Int]);
    assert!(decode(&of([2, 3], 10), &two).is_err());
    assert!(decode(&of([3, 3], 2), &two).is_err());
    let ids = |types: &[ColumnType]| {
        let found = decode(&of([3, 3], 10), &schema(types)).unwrap().sample;
        found.map(|sample| (sample.len(), sample.columns().keys().copied().collect::<Vec<_>>()))
    };
    assert_eq!(ids(&[ColumnType::Int]), Some((3, vec![1])));
    assert_eq!(ids(&[ColumnType::Text]), None);
    // A file without a sample, as earlier builds wrote it.
    let bytes = FORMAT.seal(&Table { table_id: 9, ..Table::default() }.encode_to_vec());
    assert_eq!(decode(&bytes, &two).unwrap().sample, None);
}

#[test]
fn values_of_every_type_come_back() {
    let interval = IntervalMonthDayNano::new(-1, 2, -3);
    let values = [
        (ColumnType::SmallInt, ScalarValue::Int16(Some(-7))),
        (ColumnType::Int, ScalarValue::Int32(Some(i32::MIN))),
        (ColumnType::BigInt, ScalarValue::Int64(Some(i64::MAX))),
        (ColumnType::Real, ScalarValue::Float32(Some(0.1))),
        (ColumnType::Double, ScalarValue::Float64(Some(f64::NAN))),
        (ColumnType::Numeric { precision: 9, scale: 2 }, ScalarValue::Decimal128(Some(-5), 9, 2)),
        (ColumnType::Boolean, ScalarValue::Boolean(Some(true))),
        (ColumnType::Text, ScalarValue::from("é")),
        (ColumnType::Date, ScalarValue::Date32(Some(-1))),
        (ColumnType::Time, ScalarValue::Time64Microsecond(Some(5))),
        (ColumnType::Timestamp, ScalarValue::TimestampMicrosecond(Some(-5), None)),
        (ColumnType::TimestampTz, ScalarValue::TimestampMicrosecond(Some(5), Some("UTC".into()))),
        (ColumnType::Interval, ScalarValue::IntervalMonthDayNano(Some(interval))),
        (ColumnType::Bytea, ScalarValue::Binary(Some(vec![0, 255]))),
        (ColumnType::Uuid, ScalarValue::FixedSizeBinary(16, Some(vec![9; 16]))),
    ];
    let schema = schema(&values.each_ref().map(|(column_type, _)| *column_type));
    let columns = (1..).zip(&values).map(|(id, (_, value))| (id, column(value))).collect();
    let sampled = (1..).zip(&values).map(|(id, (_, value))| (id, rows_of(value))).collect();
    let sample = Some(RowSample::new(10, sampled).unwrap());
    let statistics = TableStatistics {
        row_count: 10,
        page_count: 2,
        page_bytes: 8192,
        sampled_page_count: 1,
        change_count: 17,
        analyzed_us: 1_700_000_000_000_000,
        columns,
        sample,
    };
    let bytes = encode(9, &statistics);
    let decoded = decode(&bytes, &schema).unwrap();
    // NaN equals nothing, and prints alike.
    assert_eq!(format!("{decoded:?}"), format!("{statistics:?}"));
    assert_eq!(decoded.columns.len(), values.len());
}

#[test]
fn a_column_of_another_type_is_left_out() {
    let columns = [(1, column(&ScalarValue::from(1))), (2, column(&ScalarValue::from("x")))];
    let statistics = TableStatistics { columns: columns.into(), ..TableStatistics::default() };
    let bytes = encode(9, &statistics);
    let decoded = decode(&bytes, &schema(&[ColumnType::Text, ColumnType::Text])).unwrap();
    assert_eq!(decoded.columns.keys().copied().collect::<Vec<_>>(), [2]);
    assert!(decode(&bytes, &schema(&[])).unwrap().columns.is_empty());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let of = |change: fn(&mut ColumnStatistics)| {
        let mut column = column(&ScalarValue::from(1));
        change(&mut column);
        let columns = [(1, column)].into();
        let bytes = encode(9, &TableStatistics { columns, ..TableStatistics::default() });
        decode(&bytes, &schema(&[ColumnType::Int]))
    };
    assert!(of(|_| ()).is_ok());
    assert!(of(|column| column.null_fraction = f64::NAN).is_err());
    assert!(of(|column| column.null_fraction = 1.5).is_err());
    assert!(of(|column| column.distinct_count = f64::INFINITY).is_err());
    assert!(of(|column| column.average_width = -1.0).is_err());
    assert!(of(|column| column.common[0].1 = -0.5).is_err());
    let bytes = encode(8, &TableStatistics::default());
    assert!(decode(&bytes, &schema(&[])).is_err());
}

#[test]
fn no_byte_may_change() {
    let columns = [(1, column(&ScalarValue::from(1)))].into();
    let bytes = encode(9, &TableStatistics { columns, ..TableStatistics::default() });
    let schema = schema(&[ColumnType::Int]);
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x10;
        assert!(decode(&changed, &schema).is_err(), "byte {place}");
        assert!(decode(&bytes[..place], &schema).is_err(), "cut at {place}");
    }
}
