//! Tests of look-ups in a delta: which commits they see.

use arrow::array::Int32Array;
use cleave_store::{Column, ColumnType};

use super::*;

const TABLE: u32 = 7;
const INDEX: u32 = 3;

fn schema() -> Arc<TableSchema> {
    let id = Column {
        id: 1,
        name: "id".to_owned(),
        column_type: ColumnType::Int,
        not_null: true,
        default: None,
        absent: None,
    };
    let (name, columns) = ("t".to_owned(), vec![id]);
    Arc::new(TableSchema { table_id: TABLE, version: 1, name, columns, primary_key: vec![1] })
}

/// A change that deletes these rows and inserts one with this key, which gets VID `vid`.
fn change(dead: &[u64], begun: Option<(u64, &[u8])>) -> Vec<Prepared> {
    let schema = schema();
    let rows = begun.map(|_| {
        let column = Arc::new(Int32Array::from(vec![1]));
        Arc::new(RecordBatch::try_new(schema.arrow(), vec![column]).unwrap())
    });
    let keys = begun.map(|(_, key)| (INDEX, BinaryArray::from(vec![Some(key)])));
    vec![Prepared {
        table: TABLE,
        place: 0,
        device: DeviceId::EMBEDDED,
        schema,
        next_vid: 10,
        vid_first: begun.map_or(12, |(vid, _)| vid),
        dead: dead.iter().copied().collect(),
        rows,
        keys: keys.into_iter().collect(),
    }]
}

#[test]
fn a_look_up_is_told_the_last_commit_that_makes_a_difference() {
    let delta = Delta::default();
    delta.put(change(&[], Some((10, b"a"))), 1, (0, 100));
    delta.put(change(&[3], Some((11, b"b"))), 2, (100, 200));
    delta.put(change(&[10], None), 3, (200, 300));
    let seen = |key: &[u8], number| {
        let (rows, log_end) = delta.with_prefix((TABLE, 0), INDEX, key, number);
        (rows.into_iter().map(|(vid, _)| vid).collect::<Vec<_>>(), log_end)
    };
    assert_eq!(seen(b"a", 0), (vec![], 0));
    assert_eq!(seen(b"a", 2), (vec![10], 100));
    assert_eq!(seen(b"b", 2), (vec![11], 200));
    assert_eq!(seen(b"b", 3), (vec![11], 200));
    assert_eq!(seen(b"a", 3), (vec![], 300), "that a row is gone is seen, too");
    assert_eq!(seen(b"c", 3), (vec![], 0));
    assert_eq!(delta.dead(TABLE, 0, 3, 1), None);
    assert_eq!(delta.dead(TABLE, 0, 3, 3), Some(200));
    assert_eq!(delta.dead(TABLE, 0, 4, 3), None);
}

#[test]
fn what_is_behind_a_commit_is_told_as_before_it_was_flushed() {
    let delta = Delta::default();
    delta.put(change(&[], Some((10, b"a"))), 1, (0, 100));
    delta.put(change(&[3], Some((11, b"b"))), 2, (100, 200));
    delta.put(change(&[10, 4], Some((12, b"a"))), 3, (200, 300));
    delta.put(change(&[12], Some((13, b"c"))), 4, (300, 400));
    let flushed = delta.contents(2).unwrap().remove(0);
    assert_eq!(flushed.change.dead[&0], VidSet::from_iter([3]));
    assert_eq!(flushed.change.rows[&0].row_count(), 2);
    assert!(flushed.dead_in_delta.is_empty(), "row 10 ends behind it");
    let rest = delta.behind(2, |_, _| Some(DeviceId::EMBEDDED));
    let seen = |key: &[u8], number| {
        let (rows, log_end) = rest.with_prefix((TABLE, 0), INDEX, key, number);
        (rows.into_iter().map(|(vid, _)| vid).collect::<Vec<_>>(), log_end)
    };
    assert_eq!(seen(b"b", 2), (vec![], 0), "it is in pages");
    assert_eq!(seen(b"a", 0), (vec![], 0));
    assert_eq!(seen(b"a", 1), (vec![12], 300));
    assert_eq!(seen(b"a", 2), (vec![], 400));
    assert_eq!(seen(b"c", 2), (vec![13], 400));
    assert_eq!([10, 4, 3].map(|vid| rest.dead(TABLE, 0, vid, 2)), [Some(300), Some(300), None]);
    assert_eq!(rest.row(TABLE, 0, 12).map(|row| row.place), Some(0));
    assert_eq!(rest.logged_from(TABLE), Some(200));
    assert!(!rest.is_flushed());
    let all = delta.behind(4, |_, _| None);
    assert!(all.is_empty() && all.is_flushed());
    // Flushing the rest is flushing all.
    let flushed = rest.contents(2).unwrap().remove(0);
    assert_eq!(flushed.change.dead[&0], VidSet::from_iter([4, 10]));
    assert_eq!(flushed.dead_in_delta[&0], VidSet::from_iter([12]));
}

#[test]
fn a_commit_that_changes_nothing_is_one() {
    let delta = Delta::default();
    delta.put(Vec::new(), 1, (0, 100));
    assert!(delta.is_empty() && !delta.is_flushed(), "its number is taken");
    assert!(delta.behind(1, |_, _| None).is_flushed());
    delta.put(change(&[3], Some((10, b"a"))), 2, (100, 200));
    assert_eq!(delta.dead(TABLE, 0, 3, 2), Some(200));
}

#[test]
fn rows_that_were_gathered_are_told_as_before() {
    let (delta, same) = (Delta::default(), Delta::default());
    let mut number = 0;
    let mut put = |count: u64| {
        for _ in 0..count {
            number += 1;
            // Each third row deletes the one before it.
            let dead = if number % 3 == 0 { vec![number + 8] } else { vec![] };
            for delta in [&delta, &same] {
                let change = change(&dead, Some((number + 9, b"a")));
                delta.put(change, number, ((number - 1) * 100, number * 100));
            }
        }
    };
    put(40);
    let told = |delta: &Delta, number| {
        let all = delta.contents(number).unwrap().remove(0);
        let rows = all.change.rows[&0].row_count();
        (rows, all.change.dead, all.dead_in_delta)
    };
    // Gathered, in part and with more behind it.
    assert_eq!(told(&delta, 40).0, 40);
    assert_eq!(told(&delta, 25), told(&same, 25));
    put(30);
    assert_eq!(told(&delta, 55), told(&same, 55));
    assert_eq!(told(&delta, 70).0, 70);
    assert_eq!(
        delta.row(TABLE, 0, 30).map(|row| (row.place, row.batch().num_rows())),
        Some((20, 1))
    );
    // Flushed in the midst of what was gathered.
    let (rest, rest_same) = (delta.behind(33, |_, _| None), same.behind(33, |_, _| None));
    assert_eq!(told(&rest, 37).0, 37);
    for number in [1, 10, 37] {
        assert_eq!(told(&rest, number), told(&rest_same, number));
        let seen = |delta: &Delta| {
            let (rows, log_end) = delta.with_prefix((TABLE, 0), INDEX, b"a", number);
            (rows.into_iter().map(|(vid, _)| vid).collect::<Vec<_>>(), log_end)
        };
        assert_eq!(seen(&rest), seen(&rest_same));
    }
}
