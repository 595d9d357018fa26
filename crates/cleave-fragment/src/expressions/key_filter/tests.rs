//! Filters let all their keys through, whatever their type, locally and after crossing; malformed ones are refused.

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int64Array,
    StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Field;
use datafusion_execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool,
};
use datafusion_physical_expr::expressions::Column;
use proptest::prelude::*;

use super::*;

fn memory(bytes: usize) -> MemoryReservation {
    let pool: Arc<dyn MemoryPool> = match bytes {
        0 => Arc::new(UnboundedMemoryPool::default()),
        _ => Arc::new(GreedyMemoryPool::new(bytes)),
    };
    MemoryConsumer::new("keys").register(&pool)
}

/// The filter of the keys in these columns, over columns of the same places.
fn filter(batches: &[Vec<ArrayRef>]) -> KeyFilterExpr {
    let keys = Arc::new(CollectedKeys::default());
    let mut collector = Arc::clone(&keys).collector(memory(0)).unwrap();
    assert!(batches.iter().all(|parts| collector.add(parts)));
    let columns = |place| Arc::new(Column::new("k", place)) as Arc<dyn PhysicalExpr>;
    let operands: Vec<_> = (0..batches[0].len()).map(columns).collect();
    assert!(keys.filter(operands.clone(), usize::MAX).is_none(), "before all are there");
    collector.finish();
    keys.filter(operands, usize::MAX).unwrap()
}

fn crossed(filter: &KeyFilterExpr) -> Arc<dyn PhysicalExpr> {
    KeyFilterExpr::decode(&filter.encode(), &filter.operands, None).unwrap()
}

fn passing(filter: &dyn PhysicalExpr, parts: Vec<ArrayRef>) -> Vec<Option<bool>> {
    let fields = parts.iter().enumerate();
    let fields =
        fields.map(|(place, part)| Field::new(format!("c{place}"), part.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema, parts).unwrap();
    let passing = filter.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap();
    passing.as_boolean().iter().collect()
}

proptest! {
    #[test]
    fn keys_of_two_parts_pass_and_null_is_no_key(
        rows in proptest::collection::vec((any::<Option<i64>>(), any::<Option<String>>()), 1..100),
    ) {
        let (numbers, texts): (Vec<_>, Vec<_>) = rows.iter().cloned().unzip();
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        let parts = vec![numbers, texts];
        let filter = filter(std::slice::from_ref(&parts));
        let expected: Vec<Option<bool>> =
            rows.iter().map(|row| (row.0.is_some() && row.1.is_some()).then_some(true)).collect();
        prop_assert_eq!(passing(&filter, parts.clone()), expected.clone());
        prop_assert_eq!(passing(crossed(&filter).as_ref(), parts), expected);
    }

    #[test]
    fn integers_are_the_same_decoded_and_as_stored(keys in proptest::collection::vec(any::<i64>(), 1..100)) {
        let values: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
        let filter = filter(&[vec![values]]);
        let (_, integers) = filter.likely_integers().unwrap();
        let probes: Vec<i64> = keys.iter().flat_map(|key| [*key, key.wrapping_add(1)]).collect();
        let array: ArrayRef = Arc::new(Int64Array::from(probes.clone()));
        let passing = passing(&filter, vec![array]);
        for (probe, passes) in probes.iter().zip(passing) {
            prop_assert_eq!(Some(integers.contains(*probe)), passes);
        }
    }

    #[test]
    fn damaged_filters_are_errors_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        let decoded = KeyFilterExpr::decode(&bytes, &[column], None);
        prop_assert_eq!(decoded.is_ok(), BloomFilter::from_bytes(&bytes).is_some());
    }
}

#[test]
fn keys_of_all_types_with_a_hash_pass() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int16Array::from(vec![1, -7])),
        Arc::new(Date32Array::from(vec![1, -7])),
        Arc::new(BooleanArray::from(vec![true, false])),
        Arc::new(StringArray::from(vec!["", "a text longer than a word"])),
        Arc::new(BinaryArray::from(vec![&b"\0"[..], b"ab"])),
        Arc::new(Decimal128Array::from(vec![1, -1_i128 << 100])),
        Arc::new(TimestampMicrosecondArray::from(vec![1, i64::MIN])),
    ];
    for column in columns {
        assert!(has_hash(column.data_type()), "{}", column.data_type());
        let filter = filter(&[vec![Arc::clone(&column)]]);
        let all = vec![Some(true); column.len()];
        assert_eq!(passing(crossed(&filter).as_ref(), vec![column]), all);
    }
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0]));
    assert!(!has_hash(floats.data_type()));
    assert!(hash_keys(&[floats]).is_err());
}

#[test]
fn many_keys_make_a_filter_that_few_others_pass() {
    let batches = (0..25).map(|batch| {
        let keys = Int64Array::from_iter_values((0..8000).map(|key| (batch * 8000 + key) * 9973));
        vec![Arc::new(keys) as ArrayRef]
    });
    let filter = filter(&batches.collect::<Vec<_>>());
    assert!((180_000.0..220_000.0).contains(&filter.key_count()), "{}", filter.key_count());
    assert!(filter.bytes() <= BLOOM_BYTES_MAX && filter.false_share() < 0.02);
    let others: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..20_000).map(|key| key * 9973 + 1)));
    let passed = passing(&filter, vec![others]).into_iter().filter(|is| *is == Some(true)).count();
    assert!(passed < 600, "{passed} of 20,000");
    let small = CollectedKeys {
        state: Mutex::new(FilterState::Complete {
            filter: Arc::clone(&filter.keys.filter),
            _memory: Arc::new(memory(0)),
        }),
    };
    let small = small.filter(filter.operands.clone(), 64 << 10).unwrap();
    assert!(small.bytes() <= 64 << 10 && small.false_share() > 0.1);
}

#[test]
fn what_has_no_memory_or_no_end_is_no_filter() {
    assert!(Arc::new(CollectedKeys::default()).collector(memory(1000)).is_none());
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
    let reservation = Arc::new(memory(1000));
    let bits = vec![0; 1024];
    let error = KeyFilterExpr::decode(&bits, &[column], Some(&reservation)).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    assert!(KeyFilterExpr::decode(&bits, &[], None).is_err());
    let keys = Arc::new(CollectedKeys::default());
    keys.end();
    Arc::clone(&keys).collector(memory(0)).unwrap().finish();
    assert!(keys.filter(Vec::new(), usize::MAX).is_none(), "keys of rows of before");
}
