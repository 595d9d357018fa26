//! Batches that come one by one become few, in their order; places count through them; a clone keeps its own rows.

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;

fn rows(numbers: impl IntoIterator<Item = i64>) -> Begun {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let column = Int64Array::from_iter_values(numbers);
    RecordBatch::try_new(schema, vec![Arc::new(column)]).unwrap().into()
}

fn numbers(begun: &Begun) -> Vec<i64> {
    let columns = begun.batches().map(|rows| rows.column(0).as_primitive::<Int64Type>());
    columns.flat_map(|column| column.values().to_vec()).collect()
}

#[test]
fn rows_that_come_one_by_one_lie_in_few_batches_in_their_order() {
    let mut begun = Begun::default();
    assert!(begun.whole().unwrap().is_none());
    for number in 0..5000 {
        begun.push(&rows([number])).unwrap();
        assert!(begun.batches.len() < 4 * FEW);
    }
    assert_eq!(begun.row_count(), 5000);
    assert!(numbers(&begun).into_iter().eq(0..5000));
    for place in [0, 1, 255, 256, 4095, 4096, 4999] {
        let (batch, within) = begun.row(place).unwrap();
        let value = batch.column(0).as_primitive::<Int64Type>().value(within);
        assert_eq!(usize::try_from(value).unwrap(), place);
    }
    assert!(begun.row(5000).is_none());
    begun.join().unwrap();
    assert_eq!(begun.batches.len(), 1);
    assert!(numbers(&begun).into_iter().eq(0..5000));
}

#[test]
fn a_copy_stays_as_it_was() {
    let mut begun = rows(0..3);
    begun.push(&rows(3..5)).unwrap();
    let before = begun.clone();
    begun.take_away(&BTreeSet::from([0, 3])).unwrap();
    begun.push(&rows([9])).unwrap();
    assert_eq!(numbers(&begun), [1, 2, 4, 9]);
    assert_eq!(numbers(&before), [0, 1, 2, 3, 4]);
    let (batch, within) = begun.row(2).unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(within), 4);
}

#[test]
fn batches_of_which_nothing_is_left_go() {
    let mut begun = rows(0..2);
    begun.push(&rows(2..3)).unwrap();
    begun.take_away(&BTreeSet::from([2])).unwrap();
    assert_eq!((begun.batches.len(), begun.row_count()), (1, 2));
    begun.take_away(&BTreeSet::from([0, 1])).unwrap();
    assert!(begun.whole().unwrap().is_none());
}
