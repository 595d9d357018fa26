//! Broadcast rows survive encoding, within memory that was reserved; malformed ones are refused.

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, NullArray, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion_execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
use proptest::prelude::*;

use super::*;

fn batch(columns: Vec<ArrayRef>, row_count: usize) -> RecordBatch {
    let field = |(place, column): (usize, &ArrayRef)| {
        Field::new(format!("c{place}"), column.data_type().clone(), true)
    };
    let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(row_count));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap()
}

fn rows(numbers: Vec<Option<i32>>) -> RecordBatch {
    let words: DictionaryArray<Int32Type> =
        numbers.iter().map(|n| n.map(|n| if n % 2 == 0 { "even" } else { "odd" })).collect();
    let texts: StringArray = numbers.iter().map(|n| n.map(|n| format!("number {n}"))).collect();
    let count = numbers.len();
    batch(vec![Arc::new(Int32Array::from(numbers)), Arc::new(words), Arc::new(texts)], count)
}

fn unbounded() -> Arc<dyn MemoryPool> {
    Arc::new(UnboundedMemoryPool::default())
}

fn sent(batches: Vec<RecordBatch>) -> Broadcast {
    BroadcastRows::new(batches[0].schema(), batches, None).encode(3).unwrap()
}

fn together(schema: &SchemaRef, batches: &[RecordBatch]) -> RecordBatch {
    concat_batches(schema, batches).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_come_back_in_order(
        all in proptest::collection::vec(proptest::collection::vec(any::<Option<i32>>(), 0..50), 1..8)
    ) {
        let batches: Vec<RecordBatch> = all.into_iter().map(rows).collect();
        let expected = together(&batches[0].schema(), &batches);
        let memory = unbounded();
        let found = BroadcastRows::decode(&sent(batches), &memory).unwrap();
        let found_rows = together(found.schema(), found.batches());
        prop_assert_eq!(found_rows.columns(), expected.columns());
        // Batches without rows are not sent.
        prop_assert!(memory.reserved() > 0 || found.row_count() == 0);
        drop(found);
        prop_assert_eq!(memory.reserved(), 0);
    }

    #[test]
    fn spoilt_bytes_are_an_error_or_rows(place in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut sent = sent(vec![rows((0..100).map(Some).collect())]);
        let mut bytes = sent.pieces[0].bytes.to_vec();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        sent.pieces[0] = Payload::new(bytes.into());
        if let Ok(found) = BroadcastRows::decode(&sent, &unbounded()) {
            prop_assert!(found.row_count() <= PIECE_ROW_COUNT_MAX);
        }
    }
}

#[test]
fn many_rows_become_several_pieces_and_none_no_piece() {
    let large: StringArray =
        (0..200_000).map(|n| Some(format!("a text of some length {n}"))).collect();
    let found = sent(vec![batch(vec![Arc::new(large)], 200_000)]);
    assert!(found.pieces.len() >= 4, "{}", found.pieces.len());
    let found = BroadcastRows::decode(&found, &unbounded()).unwrap();
    assert_eq!(found.row_count(), 200_000);
    let none = sent(vec![rows(Vec::new())]);
    assert!(none.pieces.is_empty());
    assert_eq!(BroadcastRows::decode(&none, &unbounded()).unwrap().row_count(), 0);
    // Rows without columns are counted all the same.
    let counted = sent(vec![batch(Vec::new(), 100_000), batch(Vec::new(), 1)]);
    assert_eq!(BroadcastRows::decode(&counted, &unbounded()).unwrap().row_count(), 100_001);
}

#[test]
fn what_does_not_fit_is_an_error_of_memory() {
    let sent = sent(vec![rows((0..1000).map(Some).collect())]);
    let small: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(4096));
    let error = BroadcastRows::decode(&sent, &small).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    assert_eq!(small.reserved(), 0);
}

#[test]
fn what_no_host_sends_is_refused() {
    let good = sent(vec![rows(vec![Some(1), None])]);
    let refused = |sent: &Broadcast, why: &str| {
        let error = BroadcastRows::decode(sent, &unbounded()).unwrap_err().to_string();
        assert!(error.contains("broadcast 3") && error.contains(why), "{error}");
    };
    refused(&Broadcast { schema: Bytes::from_static(b"no schema"), ..good.clone() }, "");
    refused(
        &Broadcast { pieces: vec![Payload::new(Bytes::from_static(b"?"))], ..good.clone() },
        "cut off",
    );
    // Rows of other columns.
    let other = sent(vec![batch(vec![Arc::new(Int32Array::from(vec![1]))], 1)]);
    refused(&Broadcast { pieces: other.pieces.clone(), ..good.clone() }, "");
    // More rows than bytes say anything of.
    let endless =
        batch(vec![Arc::new(NullArray::new(PIECE_ROW_COUNT_MAX + 1))], PIECE_ROW_COUNT_MAX + 1);
    let piece = Payload::new(encode_batch(&endless).unwrap().into());
    let schema = encode_schema(&endless.schema()).unwrap().into();
    refused(&Broadcast { input: 3, schema, pieces: vec![piece] }, "a piece has 65537 rows");
    // A type whose NULLs take any memory.
    let wide = Schema::new(vec![Field::new("w", DataType::FixedSizeBinary(1 << 30), true)]);
    let schema = encode_schema(&wide).unwrap().into();
    refused(&Broadcast { input: 3, schema, pieces: Vec::new() }, "which no device takes");
    let twice = broadcast_inputs(&[good.clone(), good], &unbounded()).unwrap_err().to_string();
    assert!(twice.contains("broadcast 3 is given twice"), "{twice}");
}
