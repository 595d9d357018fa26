//! Every row goes to one tablet, in its order, and to the one in which a look-up searches it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{DeviceId, TabletState};
use cleave_store::{Column, ColumnType, RangeBounds, TableSchema, TabletId, VersionMap};
use proptest::prelude::{any, prop, proptest};
use proptest::prop_assert_eq;

use super::*;

fn table(division: Division, given: &[u64]) -> TableState {
    let column = Column {
        id: 1,
        name: "id".to_owned(),
        column_type: ColumnType::BigInt,
        not_null: true,
        default: None,
        absent: None,
    };
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![column],
        primary_key: Vec::new(),
    };
    let tablet = |(id, given): (u32, &u64)| {
        Arc::new(TabletState {
            id: TabletId(id),
            device: DeviceId(0),
            next_vid: 1 + given,
            vids_skipped: 0,
            heap: Vec::new(),
            rewrites: Default::default(),
            version_map: Arc::new(VersionMap::new()),
            indexes: Vec::new(),
        })
    };
    let tablets = (0..).zip(given).map(tablet).collect();
    TableState {
        schema: Arc::new(schema),
        indexes: Vec::new(),
        tablets,
        division,
        damaged: Vec::new(),
        rules: Arc::default(),
        materialized: None,
        is_balanced: false,
    }
}

fn rows(table: &TableState, values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_new(table.schema.arrow(), vec![values]).unwrap()
}

fn values(parts: &[(usize, RecordBatch)], tablet: usize) -> Vec<i64> {
    let own = parts.iter().filter(|(place, _)| *place == tablet);
    own.flat_map(|(_, rows)| rows.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

#[test]
fn in_load_order_the_emptiest_tablet_is_filled_first() {
    let table = table(Division::LoadOrder, &[100_000, 0, 70_000]);
    let mut router = Router::new(&table).unwrap();
    let parts = router.route(rows(&table, 0..200_000)).unwrap();
    let sizes: Vec<_> = parts.iter().map(|(place, rows)| (*place, rows.num_rows())).collect();
    // 65,536 rows leave it the emptiest still.
    assert_eq!(sizes, [(1, 65_536), (1, 65_536), (2, 65_536), (0, 3392)]);
    // The stretch that was begun is filled first.
    let parts = router.route(rows(&table, 0..65_536)).unwrap();
    assert_eq!(parts[0].0, 0);
    assert_eq!(parts[0].1.num_rows(), 65_536 - 3392);
    let few = router.route_all(rows(&table, 0..3)).unwrap();
    assert_eq!((few.len(), few[0].1.num_rows()), (1, 3));
}

#[test]
fn one_tablet_takes_batches_as_they_are() {
    let table = table(Division::Hash(vec![1]), &[7]);
    let parts = Router::new(&table).unwrap().route(rows(&table, 0..200_000)).unwrap();
    assert_eq!((parts.len(), parts[0].0, parts[0].1.num_rows()), (1, 0, 200_000));
}

#[test]
fn round_robin_each_statement_is_divided_equally() {
    let table = table(Division::RoundRobin, &[100_000, 0, 7, 7]);
    let sizes = |parts: &[(usize, RecordBatch)]| {
        let mut sizes = [0; 4];
        parts.iter().for_each(|(place, rows)| sizes[*place] += rows.num_rows());
        sizes
    };
    let mut router = Router::new(&table).unwrap();
    assert_eq!(sizes(&router.route(rows(&table, 0..80_000)).unwrap()), [20_000; 4]);
    let few = sizes(&router.route_all(rows(&table, 0..10)).unwrap());
    assert_eq!(few.iter().sum::<usize>(), 10);
    assert!(few.iter().all(|count| [2, 3].contains(count)), "{few:?}");
    // One row goes to any of them.
    let mut hit = [0; 4];
    for _ in 0..400 {
        let one = Router::new(&table).unwrap().route_all(rows(&table, 0..1)).unwrap();
        assert_eq!(one.len(), 1);
        hit[one[0].0] += 1;
    }
    assert!(hit.iter().all(|count| *count > 20), "{hit:?}");
}

#[test]
fn by_range_each_row_is_between_its_bounds() {
    let bounds: ArrayRef = Arc::new(Int64Array::from(vec![0, 100]));
    let bounds = RangeBounds::keys_of(&bounds).unwrap();
    let bounds = RangeBounds::of_keys(&ColumnType::BigInt.arrow(), bounds).unwrap();
    let table = table(Division::Range(1, bounds), &[0, 9, 0]);
    let mut router = Router::new(&table).unwrap();
    let parts = router.route(rows(&table, [100, -1, 0, 99, -7, 5000])).unwrap();
    assert_eq!(values(&parts, 0), [-1, -7]);
    assert_eq!(values(&parts, 1), [0, 99]);
    assert_eq!(values(&parts, 2), [100, 5000]);
    let parts = router.route_all(rows(&table, 0..3)).unwrap();
    assert_eq!((parts.len(), parts[0].0), (1, 1));
}

proptest! {
    #[test]
    fn by_hash_each_row_is_where_it_is_looked_for_in_its_order(
        batches in prop::collection::vec(prop::collection::vec(any::<i64>(), 0..40), 1..8),
        count in 1_usize..9,
    ) {
        let table = table(Division::Hash(vec![1]), &vec![0; count]);
        let key = table.division.tablet_key(&table.schema).unwrap().unwrap();
        let mut router = Router::new(&table).unwrap();
        let mut found = vec![Vec::new(); count];
        for batch in &batches {
            for (place, rows) in router.route(rows(&table, batch.clone())).unwrap() {
                found[place].extend(values(&[(place, rows)], place));
            }
        }
        let mut expected = vec![Vec::new(); count];
        for value in batches.iter().flatten() {
            let value_of: ArrayRef = Arc::new(Int64Array::from(vec![*value]));
            let tablet = key.tablets_of(&[value_of], u32::try_from(count).unwrap()).unwrap()[0];
            expected[usize::try_from(tablet).unwrap()].push(*value);
        }
        prop_assert_eq!(found, expected);
    }
}
