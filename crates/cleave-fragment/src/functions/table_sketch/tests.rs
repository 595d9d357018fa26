//! Counts are exact, distinct counts close, samples fair, states merge, and made-up states of a peer are refused.

use arrow::array::{
    Decimal128Array, Float64Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, StringArray,
};
use arrow::datatypes::{Int32Type, IntervalMonthDayNano};

use super::*;

fn state(types: &[DataType]) -> SketchInner {
    SketchInner::new(types.to_vec(), false)
}

fn numbers(values: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(values.map(Some).collect::<Int32Array>())
}

fn sketch(state: &mut SketchInner) -> TableSketch {
    let ScalarValue::Struct(value) = state.evaluate().unwrap() else { panic!("no struct") };
    TableSketch::of_result(&value).unwrap()
}

/// The parts of `state` as arrays of one row.
fn arrays(state: &mut SketchInner) -> Vec<ArrayRef> {
    state.state().unwrap().iter().map(|part| part.to_array().unwrap()).collect()
}

#[test]
fn small_tables_are_told_in_full() {
    let mut state = state(&[DataType::Int32, DataType::Utf8]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("aa"), Some("b")]));
    state.update_batch(&[numbers([3, 1, 2, 3].into_iter()), texts]).unwrap();
    let sketch = sketch(&mut state);
    assert_eq!(sketch.row_count, 4);
    let [numbers, texts] = sketch.columns.as_slice() else { panic!("two columns") };
    assert_eq!((numbers.null_count, numbers.value_bytes), (0, 16));
    assert_eq!((texts.null_count, texts.value_bytes), (1, 4));
    assert_eq!(numbers.ends.as_primitive::<Int32Type>().values(), &[1, 3]);
    let ends: Vec<_> = texts.ends.as_string::<i32>().iter().flatten().collect();
    assert_eq!(ends, ["aa", "b"]);
    assert_eq!(numbers.sample.as_primitive::<Int32Type>().values(), &[3, 1, 2, 3]);
    assert_eq!(texts.sample.len(), 4);
    assert!((numbers.distinct_count - 3.0).abs() < 0.1, "{}", numbers.distinct_count);
}

#[test]
fn nothing_is_a_sketch_too() {
    let mut state = state(&[DataType::Int32]);
    let sketch = sketch(&mut state);
    assert_eq!(sketch.row_count, 0);
    assert_eq!(sketch.columns[0].ends.len(), 0);
    assert!(sketch.columns[0].distinct_count < 0.1);
}

#[test]
fn distinct_counts_are_close_at_every_size() {
    for count in [1, 10, 100, 1000, 5000, 10_000, 20_000, 100_000, 1_000_000] {
        let mut registers = Registers::new();
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(|n| n * 7)));
        registers.add(&values, &[], &mut KeyCounts::new()).unwrap();
        registers.add(&values, &[], &mut KeyCounts::new()).unwrap();
        let error = registers.estimate() / count as f64 - 1.0;
        assert!(error.abs() < 0.05, "{count}: {error}");
        let texts: ArrayRef = Arc::new(
            (0..count.min(100_000)).map(|n| Some(format!("value {n}"))).collect::<StringArray>(),
        );
        let mut registers = Registers::new();
        registers.add(&texts, &[], &mut KeyCounts::new()).unwrap();
        let error = registers.estimate() / texts.len() as f64 - 1.0;
        assert!(error.abs() < 0.05, "{count} texts: {error}");
    }
}

#[test]
fn types_without_a_way_of_their_own_count_too() {
    let values = (0..3000).map(|n| f64::from(n % 500) / 8.0);
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
    let decimals = (0..3000).map(|n| i128::from(n % 500) << 90);
    let decimals: ArrayRef = Arc::new(Decimal128Array::from_iter_values(decimals));
    let interval = |n: i32| Some(IntervalMonthDayNano::new(0, n % 500, 0));
    let intervals: ArrayRef =
        Arc::new((0..3000).map(interval).collect::<IntervalMonthDayNanoArray>());
    for values in [floats, decimals, intervals] {
        let mut state = state(&[values.data_type().clone()]);
        state.update_batch(&[values]).unwrap();
        let count = sketch(&mut state).columns[0].distinct_count;
        assert!((count / 500.0 - 1.0).abs() < 0.05, "{count}");
    }
}

#[test]
fn merged_states_are_as_one_of_all_rows() {
    let batches: Vec<ArrayRef> =
        (0..60).map(|batch| numbers((0..1000).map(move |n| batch * 700 + n))).collect();
    let mut whole = state(&[DataType::Int32]);
    let mut merged = state(&[DataType::Int32]);
    for copy in 0..3 {
        let mut part = state(&[DataType::Int32]);
        for batch in batches.iter().skip(copy).step_by(3) {
            part.update_batch(&[Arc::clone(batch)]).unwrap();
            whole.update_batch(&[Arc::clone(batch)]).unwrap();
        }
        merged.merge_batch(&arrays(&mut part)).unwrap();
    }
    let (whole, merged) = (sketch(&mut whole), sketch(&mut merged));
    let (one, other) = (&whole.columns[0], &merged.columns[0]);
    assert_eq!(whole.row_count, merged.row_count);
    assert_eq!(one.distinct_count.to_bits(), other.distinct_count.to_bits());
    assert_eq!(&one.ends, &other.ends);
    assert_eq!(other.ends.as_primitive::<Int32Type>().values(), &[0, 59 * 700 + 999]);
}

#[test]
fn samples_are_fair_and_bounded() {
    // 400,000 rows in two partitions of unequal size; the first tenth of the values are in the smaller.
    let mut merged = state(&[DataType::Int32]);
    for rows in [0..40_000, 40_000..400_000] {
        let mut part = state(&[DataType::Int32]);
        for start in rows.step_by(5000) {
            part.update_batch(&[numbers(start..start + 5000)]).unwrap();
        }
        merged.merge_batch(&arrays(&mut part)).unwrap();
    }
    let sample = Arc::clone(&sketch(&mut merged).columns[0].sample);
    assert!((5000..=10_000).contains(&sample.len()), "{} rows", sample.len());
    let values = sample.as_primitive::<Int32Type>().values();
    for tenth in 0..10 {
        let range = tenth * 40_000..(tenth + 1) * 40_000;
        let share =
            values.iter().filter(|v| range.contains(*v)).count() as f64 / values.len() as f64;
        assert!((share - 0.1).abs() < 0.02, "tenth {tenth} has {share} of the sample");
    }
    let mut seen = values.to_vec();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), values.len(), "a row was drawn twice");
}

#[test]
fn partitions_of_one_scan_draw_different_places() {
    let drawn = |first: i32| {
        let mut part = state(&[DataType::Int32]);
        for start in (first..first + 200_000).step_by(5000) {
            part.update_batch(&[numbers(start..start + 5000)]).unwrap();
        }
        let sample = Arc::clone(&sketch(&mut part).columns[0].sample);
        let values = sample.as_primitive::<Int32Type>().values().iter();
        values.map(|value| value - first).collect::<std::collections::BTreeSet<i32>>()
    };
    let (one, other) = (drawn(0), drawn(200_000));
    let common = one.intersection(&other).count();
    assert!(common < one.len() / 5, "{common} of {} places are the same", one.len());
}

#[test]
fn long_values_are_cut_and_wide_samples_shrink() {
    let long = format!("{}é", "x".repeat(VALUE_BYTES_MAX - 1));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![long.as_str(); 9000]));
    let mut wide = state(&vec![DataType::Utf8; 4]);
    for _ in 0..3 {
        wide.update_batch(&vec![Arc::clone(&texts); 4]).unwrap();
    }
    let bytes = wide.sample.bytes();
    let sketch = sketch(&mut wide);
    let sample = sketch.columns[0].sample.as_string::<i32>();
    assert_eq!(sample.value(0), "x".repeat(VALUE_BYTES_MAX - 1));
    assert!(sample.len() > 500 && sample.len() < 9000, "{} rows", sample.len());
    assert!(bytes < 60 << 20, "{bytes} bytes");
    assert_eq!(sketch.columns[3].value_bytes, 27_000 * long.len() as u64);
}

#[test]
fn states_that_make_no_sense_are_refused() {
    let mut sound = state(&[DataType::Int32]);
    sound.update_batch(&[numbers(0..10)]).unwrap();
    let sound = arrays(&mut sound);
    let refused = |place: usize, part: ArrayRef| {
        let mut parts = sound.clone();
        parts[place] = part;
        let mut state = state(&[DataType::Int32]);
        state.merge_batch(&parts).unwrap_err().to_string()
    };
    let binary = |bytes: &[u8]| ScalarValue::Binary(Some(bytes.to_vec())).to_array().unwrap();
    assert!(refused(0, binary(b"\xff\xff")).contains("cannot be read"));
    let summary = Summary { row_count: 1, threshold: 5, columns: Vec::new() };
    assert!(refused(0, binary(&summary.encode_to_vec())).contains("columns"));
    let column = ColumnSummary { registers: vec![77; 4096], ..ColumnSummary::default() };
    let summary = Summary { columns: vec![column], ..summary };
    assert!(refused(0, binary(&summary.encode_to_vec())).contains("registers"));
    let list = |values: ArrayRef| list_of(values).unwrap().to_array().unwrap();
    assert!(refused(1, numbers(0..1)).contains("lacks a part"));
    assert!(refused(1, list(numbers(0..10))).contains("priorities"));
    assert!(refused(2, list(numbers(0..3))).contains("ends"));
    assert!(refused(3, list(numbers(0..3))).contains("3 values of 10 rows"));
    let mut other = state(&[DataType::Int64]);
    assert!(other.merge_batch(&sound).unwrap_err().to_string().contains("types"));
    assert!(SketchInner::of_row(&sound[..1], 0).is_err());
}

#[test]
fn values_are_counted_alike_in_columns_that_are_joined() {
    // Every film once; every second of them in another table, as often as its number.
    let (mut films, mut parts) = (state(&[DataType::Int32]), state(&[DataType::Int32]));
    films.update_batch(&[numbers(0..100_000)]).unwrap();
    let rows = (0..100_000).filter(|n| n % 2 == 0).flat_map(|n| (0..=n % 5).map(move |_| n));
    parts.update_batch(&[numbers(rows)]).unwrap();
    let (films, parts) = (sketch(&mut films), sketch(&mut parts));
    let (films, parts) = (&films.columns[0], &parts.columns[0]);
    assert_eq!((films.key_counts.len(), parts.key_counts.len()), (1024, 1024));
    let below = films.key_threshold.min(parts.key_threshold);
    let known = |hash: &u64| films.key_counts.binary_search_by_key(hash, |(hash, _)| *hash).is_ok();
    let common: Vec<_> = parts.key_counts.iter().filter(|(hash, _)| *hash < below).collect();
    assert!(common.iter().all(|(hash, _)| known(hash)));
    // Half of the films below the lower threshold, with 3 rows each in the mean.
    assert!((450..570).contains(&common.len()), "{}", common.len());
    let rows: u64 = common.iter().map(|(_, count)| count).sum();
    assert!((2.7..3.3).contains(&(rows as f64 / common.len() as f64)));
}

#[test]
fn counted_values_of_parts_are_those_of_the_whole() {
    let (mut one, mut other, mut all) =
        (state(&[DataType::Int32]), state(&[DataType::Int32]), state(&[DataType::Int32]));
    one.update_batch(&[numbers(0..3000)]).unwrap();
    other.update_batch(&[numbers(1000..9000)]).unwrap();
    all.update_batch(&[numbers((0..3000).chain(1000..9000))]).unwrap();
    one.merge_batch(&arrays(&mut other)).unwrap();
    let (merged, all) = (sketch(&mut one), sketch(&mut all));
    assert_eq!(merged.columns[0].key_counts, all.columns[0].key_counts);
    assert_eq!(merged.columns[0].key_threshold, all.columns[0].key_threshold);
}

/// `rows` as pages of 1,000 rows, each page in two batches, given to a state that tells pages apart.
fn by_page(rows: impl Iterator<Item = i32>) -> SketchInner {
    let mut state = SketchInner::new(vec![DataType::Int32], true);
    let rows: Vec<i32> = rows.collect();
    for (batch, values) in rows.chunks(500).enumerate() {
        let page = (batch / 2) as u64;
        let first = (batch % 2 * 500) as u64;
        let references = (0..values.len() as u64).map(|slot| page << 32 | (first + slot));
        let references: ArrayRef = Arc::new(UInt64Array::from_iter_values(references));
        state.update_batch(&[numbers(values.iter().copied()), references]).unwrap();
    }
    state
}

#[test]
fn values_are_counted_by_page_where_rows_are_referred_to() {
    // Runs of 100 rows, and the same 7 values on each page.
    let pages = |mut state| sketch(&mut state).columns[0].key_pages.clone();
    assert_eq!(pages(by_page((0..8000).map(|row| row / 100))), vec![1; 80]);
    assert_eq!(pages(by_page((0..8000).map(|row| row % 7))), vec![8; 7]);
    // Two parts never share a page, though both number theirs from 0.
    let mut merged = by_page((0..3000).map(|row| row % 7));
    merged.merge_batch(&arrays(&mut by_page((0..2000).map(|row| row % 14)))).unwrap();
    let column = &sketch(&mut merged).columns[0];
    let mut counted: Vec<u64> = column.key_pages.clone();
    counted.sort_unstable();
    assert_eq!(counted, [vec![2; 7], vec![5; 7]].concat());
    assert_eq!(column.key_counts.iter().map(|(_, rows)| rows).sum::<u64>(), 5000);
    // One page that a run crosses a batch on is one page.
    assert_eq!(pages(by_page((0..1000).map(|_| 3))), [1]);
    assert!(
        pages({
            let mut plain = state(&[DataType::Int32]);
            plain.update_batch(&[numbers(0..9)]).unwrap();
            plain
        })
        .is_empty()
    );
}

#[test]
fn a_page_sketch_takes_columns_and_then_references() {
    let types = |types: &[DataType]| page_sketch().return_type(types);
    assert!(types(&[DataType::Int32, DataType::UInt64]).is_ok());
    assert!(types(&[DataType::UInt64, DataType::Int32]).is_err());
    assert!(types(&[]).is_err());
    let mut state = SketchInner::new(vec![DataType::Int32], true);
    let error = state.update_batch(&[numbers(0..1), numbers(0..1)]).unwrap_err();
    assert!(error.to_string().contains("references"), "{error}");
    let mut sound = by_page(0..10);
    let mut parts = arrays(&mut sound);
    let column = ColumnSummary {
        registers: vec![0; 4096],
        key_threshold: 9,
        key_hashes: vec![3, 5],
        key_counts: vec![1, 1],
        key_pages: vec![1],
        ..ColumnSummary::default()
    };
    let summary = Summary { row_count: 2, threshold: 5, columns: vec![column] };
    parts[0] = ScalarValue::Binary(Some(summary.encode_to_vec())).to_array().unwrap();
    assert!(sound.merge_batch(&parts).unwrap_err().to_string().contains("make no sense"));
}
