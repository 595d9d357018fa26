//! How results are divided into slots.

use arrow::array::StringArray;
use arrow::datatypes::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;

fn batch(lengths: &[usize]) -> RecordBatch {
    let texts = StringArray::from_iter_values(lengths.iter().map(|length| "x".repeat(*length)));
    let schema = Schema::new(vec![Field::new("text", DataType::Utf8, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(texts)]).unwrap()
}

#[test]
fn what_is_about_a_slot_stays_whole() {
    let rows = batch(&[100; 40]);
    let bytes = batch_bytes(&rows);
    assert_eq!(pieces(&rows, bytes, 4096).len(), 1);
    assert_eq!(pieces(&rows, bytes, 3000).len(), 1);
    assert_eq!(pieces(&rows, bytes, 2000).len(), 2);
}

proptest! {
    #[test]
    fn pieces_are_the_batch_and_not_too_large(
        lengths in prop::collection::vec(prop_oneof![9 => 0..200_usize, 1 => 0..20_000_usize], 1..200),
        slot_bytes in 100..10_000_u64,
    ) {
        let rows = batch(&lengths);
        let found = pieces(&rows, batch_bytes(&rows), slot_bytes);
        for piece in &found {
            prop_assert!(piece.num_rows() > 0);
            prop_assert!(piece.num_rows() == 1 || batch_bytes(piece) <= 2 * slot_bytes);
        }
        prop_assert_eq!(concat_batches(&rows.schema(), &found).unwrap(), rows);
    }
}
