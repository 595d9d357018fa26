//! Samples correct the sizes of joins with small tables.

use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch};
use arrow::buffer::BooleanBuffer;

use super::super::graph::{KeyClass, Member};
use super::*;
use crate::SampledRows;

/// A leaf with `rows` of a table with `row_count` rows, of which it keeps those that `keeps` says.
fn leaf(
    row_count: f64,
    columns: &[(&str, Vec<Option<i32>>)],
    keeps: impl Fn(usize) -> bool,
) -> LeafEstimate {
    let columns = columns
        .iter()
        .map(|(name, values)| (*name, Arc::new(Int32Array::from(values.clone())) as ArrayRef));
    let rows =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    let matching = BooleanBuffer::collect_bool(rows.num_rows(), keeps);
    let is_whole = rows.num_rows() as f64 == row_count;
    let share = matching.count_set_bits() as f64 / rows.num_rows() as f64;
    LeafEstimate {
        row_count_base: row_count,
        row_count: row_count * share,
        sample: Some((Arc::new(SampledRows { rows, is_whole }), matching)),
        ..LeafEstimate::default()
    }
}

fn class(members: &[(usize, f64)]) -> KeyClass {
    let member = |(leaf, distinct_count): &(usize, f64)| Member {
        leaf: *leaf,
        distinct_count: *distinct_count,
        value_fraction: 1.0,
    };
    KeyClass { members: members.iter().map(member).collect() }
}

fn keys(columns: &[(usize, &str)]) -> KeyColumns {
    columns.iter().map(|(leaf, name)| (*leaf, (*name).to_owned())).collect()
}

/// A hundred kinds, of which the leaf keeps kind 7, and a million films, half of them of kind 7.
fn films_of_a_kind() -> (JoinGraph, Vec<LeafEstimate>) {
    let kinds = leaf(100.0, &[("id", (0..100).map(Some).collect())], |row| row == 7);
    let kind = |n: i32| Some(if n % 2 == 0 { 7 } else { n % 100 });
    let films = leaf(1e6, &[("kind", (0..1000).map(kind).collect())], |_| true);
    let rows = vec![kinds.row_count, films.row_count];
    (JoinGraph::new(rows, vec![class(&[(0, 100.0), (1, 100.0)])], Vec::new()), vec![kinds, films])
}

#[test]
fn a_frequent_kind_is_seen() {
    let (mut graph, leaves) = films_of_a_kind();
    assert!((graph.row_count(0b11) - 1e4).abs() < 1.0);
    expect_samples(&mut graph, &leaves, &[keys(&[(0, "id"), (1, "kind")])], None);
    assert!((graph.row_count(0b11) / 5.1e5 - 1.0).abs() < 0.02, "{}", graph.row_count(0b11));
}

#[test]
fn a_kind_that_no_row_has_is_rare() {
    let (mut graph, mut leaves) = films_of_a_kind();
    let (sample, _) = leaves[0].sample.clone().unwrap();
    leaves[0].sample = Some((sample, BooleanBuffer::collect_bool(100, |row| row == 8)));
    expect_samples(&mut graph, &leaves, &[keys(&[(0, "id"), (1, "kind")])], None);
    assert!((graph.row_count(0b11) - 500.0).abs() < 1.0, "{}", graph.row_count(0b11));
}

#[test]
fn two_small_tables_that_go_together_are_seen() {
    // A film's place follows from its kind.
    let of = |n: i32| Some(n % 10);
    let small = || leaf(10.0, &[("id", (0..10).map(Some).collect())], |row| row < 2);
    let columns = [("kind", (0..1000).map(of).collect()), ("place", (0..1000).map(of).collect())];
    let leaves = vec![small(), small(), leaf(1e5, &columns, |_| true)];
    let classes = vec![class(&[(0, 10.0), (2, 10.0)]), class(&[(1, 10.0), (2, 10.0)])];
    let mut graph = JoinGraph::new(vec![2.0, 2.0, 1e5], classes, Vec::new());
    let keys = [keys(&[(0, "id"), (2, "kind")]), keys(&[(1, "id"), (2, "place")])];
    expect_samples(&mut graph, &leaves, &keys, None);
    assert!((graph.row_count(0b101) / 2e4 - 1.0).abs() < 0.01);
    assert!((graph.row_count(0b111) / 2e4 - 1.0).abs() < 0.01, "{}", graph.row_count(0b111));
}

#[test]
fn nulls_join_nothing_and_columns_of_other_types_say_nothing() {
    let kinds = leaf(3.0, &[("id", vec![Some(1), Some(2), None])], |_| true);
    let films = leaf(3.0, &[("kind", vec![Some(1), None, None])], |_| true);
    let leaves = vec![kinds, films];
    let mut graph = JoinGraph::new(vec![3.0, 3.0], vec![class(&[(0, 2.0), (1, 1.0)])], Vec::new());
    expect_samples(&mut graph, &leaves, &[keys(&[(0, "id"), (1, "kind")])], None);
    assert!((graph.row_count(0b11) - 1.0).abs() < 1e-9);
    let before = graph.clone();
    expect_samples(&mut graph, &leaves, &[keys(&[(0, "id"), (1, "absent")])], None);
    assert_eq!(graph, before);
}
