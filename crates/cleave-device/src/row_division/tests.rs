//! Rows are divided completely, and by the values of their keys alone.

use std::collections::BTreeMap;

use arrow::array::{
    Array, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array,
    Int32Array, Int64Array, RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Fields, Int32Type, SchemaRef};
use arrow::util::display::array_value_to_string;
use proptest::prelude::*;

use super::*;

fn by_hash(columns: &[u32], count: u32) -> Outputs {
    Outputs::ByHash { columns: columns.to_vec(), count }
}

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let fields = columns
        .iter()
        .enumerate()
        .map(|(place, column)| Field::new(format!("c{place}"), column.data_type().clone(), true));
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Fields>()));
    RecordBatch::try_new(schema, columns).unwrap()
}

fn divided(rows: &RecordBatch, outputs: &Outputs) -> Vec<(usize, RecordBatch)> {
    let division = RowDivision::of(outputs, rows.schema_ref()).unwrap();
    division.unwrap().divide(rows).unwrap()
}

/// The output of each row, by the number in its last column.
fn output_of_rows(divided: &[(usize, RecordBatch)]) -> BTreeMap<i64, usize> {
    let mut found = BTreeMap::new();
    for (output, rows) in divided {
        let numbers = rows.columns().last().unwrap().as_primitive::<arrow::datatypes::Int64Type>();
        for number in numbers.values() {
            assert!(found.insert(*number, *output).is_none(), "row {number} comes twice");
        }
    }
    found
}

fn numbered(mut columns: Vec<ArrayRef>) -> RecordBatch {
    let count = i64::try_from(columns[0].len()).unwrap();
    columns.push(Arc::new(Int64Array::from_iter_values(0..count)));
    batch(columns)
}

#[test]
fn values_that_are_equal_go_together_whatever_their_form() {
    const LONG: &str = "a text that no view has room for";
    let texts = [Some("one"), None, Some(LONG), Some(""), Some("one"), Some("twelve chars")];
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4, 1, 6]));
    let of_dictionary: DictionaryArray<Int32Type> = texts.into_iter().collect();
    let sliced = StringViewArray::from_iter(
        [Some("before"), Some(LONG)].into_iter().chain(texts).chain([Some(LONG)]),
    );
    let forms: [ArrayRef; 4] = [
        Arc::new(StringArray::from(texts.to_vec())),
        Arc::new(StringViewArray::from(texts.to_vec())),
        Arc::new(of_dictionary),
        Arc::new(sliced.slice(2, 6)),
    ];
    for keys in [&[0][..], &[0, 1], &[1, 0]] {
        let found = forms.each_ref().map(|text| {
            let rows = numbered(vec![Arc::clone(text), Arc::clone(&numbers)]);
            output_of_rows(&divided(&rows, &by_hash(keys, 64)))
        });
        assert!(found.iter().all(|one| *one == found[0]), "{keys:?}: {found:?}");
        assert_eq!(found[0][&0], found[0][&4], "equal keys");
    }
}

#[test]
fn numbers_that_are_equal_go_together() {
    let nans = [f64::NAN, -f64::NAN, f64::from_bits(0x7ff8_0000_0000_0001)];
    let zeros = [0.0, -0.0];
    for equal in [&nans[..], &zeros] {
        let keys: ArrayRef = Arc::new(Float64Array::from(equal.to_vec()));
        assert_eq!(divided(&numbered(vec![keys]), &by_hash(&[0], 64)).len(), 1);
    }
    let absent: ArrayRef = Arc::new(Int32Array::from(vec![None, None, None]));
    assert_eq!(divided(&numbered(vec![absent]), &by_hash(&[0], 64)).len(), 1);
    let decimals = Decimal128Array::from(vec![150, 150]).with_precision_and_scale(10, 2);
    let decimals: ArrayRef = Arc::new(decimals.unwrap());
    assert_eq!(divided(&numbered(vec![decimals]), &by_hash(&[0], 64)).len(), 1);
}

#[test]
fn keys_spread_over_all_outputs() {
    let keys: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10_000));
    let divided = divided(&numbered(vec![keys]), &by_hash(&[0], 8));
    assert_eq!(divided.len(), 8);
    for (output, rows) in divided {
        assert!((1000..1500).contains(&rows.num_rows()), "{output}: {}", rows.num_rows());
    }
}

#[test]
fn columns_without_a_hash_are_refused() {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int32, true)));
    let schema = Schema::new(vec![Field::new("l", list, true)]);
    let refused = |columns: &[u32]| RowDivision::of(&by_hash(columns, 2), &schema).unwrap_err();
    assert_eq!(refused(&[0]).cause, DeviceErrorCause::Unsupported);
    assert_eq!(refused(&[1]).cause, DeviceErrorCause::Refused);
    assert_eq!(refused(&[u32::MAX]).cause, DeviceErrorCause::Refused);
    assert!(RowDivision::of(&Outputs::Copies(2), &schema).unwrap().is_none());
}

/// A column of any type that keys have, with so many values out of few.
fn column(count: usize) -> impl Strategy<Value = ArrayRef> {
    let values = prop::collection::vec(prop::option::of(-3_i64..4), count);
    (values, 0..9_usize).prop_map(|(values, kind)| {
        let narrow = || values.iter().map(|value| value.and_then(|v| i32::try_from(v).ok()));
        let texts = || values.iter().map(|value| value.map(|v| format!("value {}", v * 1_000_000)));
        let column: ArrayRef = match kind {
            0 => Arc::new(Int32Array::from_iter(narrow())),
            1 => Arc::new(Int64Array::from(values)),
            2 => Arc::new(Float64Array::from_iter(narrow().map(|v| v.map(f64::from)))),
            3 => Arc::new(BooleanArray::from_iter(values.iter().map(|v| v.map(|v| v > 0)))),
            4 => Arc::new(Date32Array::from_iter(narrow())),
            5 => Arc::new(TimestampMicrosecondArray::from(values)),
            6 => {
                let decimals = values.iter().map(|value| value.map(i128::from));
                let decimals = Decimal128Array::from_iter(decimals);
                Arc::new(decimals.with_precision_and_scale(12, 3).unwrap())
            }
            7 => Arc::new(StringArray::from_iter(texts())),
            _ => Arc::new(BinaryArray::from_iter(texts())),
        };
        column
    })
}

proptest! {
    #[test]
    fn each_row_goes_to_one_output_and_equal_keys_to_the_same(
        columns in (1..300_usize).prop_flat_map(|count| {
            prop::collection::vec(column(count), 1..4)
        }),
        key_count in 1..3_usize,
        count in 1..65_u32,
        halves in any::<prop::sample::Index>(),
    ) {
        let rows = numbered(columns);
        let key_count = key_count.min(rows.num_columns() - 1);
        let keys: Vec<u32> = (0..u32::try_from(key_count).unwrap()).collect();
        let outputs = by_hash(&keys, count);
        let whole = divided(&rows, &outputs);
        prop_assert!(whole.iter().all(|(output, _)| *output < count as usize));
        let found = output_of_rows(&whole);
        prop_assert_eq!(found.len(), rows.num_rows());
        // Rows stay whole, and in order.
        for (output, divided) in &whole {
            let numbers = found.iter().filter(|(_, of)| *of == output).map(|(number, _)| *number);
            let numbers: Vec<u32> = numbers.map(|number| u32::try_from(number).unwrap()).collect();
            let expected = take_record_batch(&rows, &UInt32Array::from(numbers)).unwrap();
            prop_assert_eq!(divided, &expected);
        }
        let mut of_key = BTreeMap::new();
        for (number, output) in &found {
            let row = usize::try_from(*number).unwrap();
            let value = |place: usize| {
                let column = rows.column(place);
                (!column.is_null(row)).then(|| array_value_to_string(column, row).unwrap())
            };
            let key: Vec<Option<String>> = (0..key_count).map(value).collect();
            prop_assert_eq!(*of_key.entry(key).or_insert(*output), *output);
        }
        // Where a batch begins makes no difference.
        let middle = halves.index(rows.num_rows());
        let halves = [rows.slice(0, middle), rows.slice(middle, rows.num_rows() - middle)];
        let halves: Vec<_> = halves.iter().flat_map(|half| divided(half, &outputs)).collect();
        prop_assert_eq!(output_of_rows(&halves), found);
        let batches: Vec<&RecordBatch> = halves.iter().map(|(_, rows)| rows).collect();
        prop_assert_eq!(concat_batches(&rows.schema(), batches).unwrap().num_rows(), rows.num_rows());
    }
}
