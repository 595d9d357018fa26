//! Join sizes from samples: what ANALYZE kept of tables and columns in, sizes of joins out.
//!
//! [`expect_keys`]: columns of one class have correlated values. Films with many keywords have many roles too; a table
//! has some of the films only. ANALYZE counted the rows of some values, of the same ones in every column.
//!
//! [`expect_samples`]: small tables of which ANALYZE has kept all rows. Foreign keys are seldom drawn evenly: a
//! condition on a small table keeps one of its hundred rows and half of the rows that refer to it. The sample of the
//! larger table is joined with all rows of the small ones, each with its leaf's conditions; what is left of it is the
//! share that the join leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::arrow::array::{Array, ArrayRef};
use datafusion_common::arrow::buffer::BooleanBuffer;
use datafusion_common::arrow::row::{Row, RowConverter, SortField};
use rustc_hash::FxHashMap;

use super::graph::{JoinGraph, LeafSet};
use super::joined_samples::JoinedSamples;
use crate::cardinality::LeafEstimate;
use crate::statistics::{KeySample, together};

/// A leaf with fewer sampled rows than this says nothing of its joins: then all rows of its table's sample count.
const MATCHING_MIN: usize = 10;
/// Small tables that are looked at together.
const SMALL_COUNT_MAX: usize = 4;
/// Columns of one class that are looked at together.
const COLUMN_COUNT_MAX: usize = 7;
/// Fewer joined rows than this do not tell whether two joins are correlated.
const TOGETHER_MIN: f64 = 5.0;
/// Of rows none of which joins, those that are expected to: about half of one.
const NO_MATCH: f64 = 0.5;

/// The column of each leaf that is in a class, by leaf; without those that are no column of the table.
pub(super) type KeyColumns = BTreeMap<usize, String>;

/// Tells `graph` what the counted values of the columns of one class, by leaf, say of their joins.
pub(super) fn expect_keys(graph: &mut JoinGraph, columns: &BTreeMap<usize, &KeySample>) {
    let columns: Vec<(usize, &KeySample)> =
        columns.iter().map(|(leaf, keys)| (*leaf, *keys)).collect();
    let columns = columns.get(..COLUMN_COUNT_MAX).unwrap_or(&columns);
    let mut choices: Vec<u32> = (1..1_u32 << columns.len()).collect();
    choices.sort_by_key(|choice| choice.count_ones());
    for choice in choices.into_iter().filter(|choice| choice.count_ones() > 1) {
        let chosen = || (0..).zip(columns).filter(|(place, _)| choice & (1 << place) != 0);
        let keys: Vec<&KeySample> = chosen().map(|(_, (_, keys))| *keys).collect();
        if let Some(factor) = together(&keys) {
            let set = chosen().fold(0, |set: LeafSet, (_, (leaf, _))| set | (1 << leaf));
            graph.scale(set, factor);
        }
    }
}

/// Tells `graph` what the samples of `leaves` say; `keys` are the columns of each of its classes, and `known` is what
/// was found before.
pub(super) fn expect_samples(
    graph: &mut JoinGraph,
    leaves: &[LeafEstimate],
    keys: &[KeyColumns],
    known: Option<&JoinedSamples>,
) {
    let is_whole = |leaf: usize| {
        let sample = leaves.get(leaf).and_then(|leaf| leaf.sample.as_ref());
        sample.is_some_and(|(sample, _)| sample.is_whole)
    };
    let sampled = |leaf: &usize| leaves.get(*leaf).is_some_and(|leaf| leaf.sample.is_some());
    let mut done: Vec<LeafSet> = Vec::new();
    let mut order: Vec<usize> = (0..leaves.len()).filter(sampled).collect();
    // Of two whole tables, the larger is the one whose rows are looked at.
    order.sort_by(|a, b| leaves[*b].row_count_base.total_cmp(&leaves[*a].row_count_base));
    for large in order {
        let mut small: Vec<(usize, Arc<[f64]>)> = Vec::new();
        for leaf in (0..leaves.len()).filter(|leaf| *leaf != large && is_whole(*leaf)) {
            let pair = (1 << large) | (1 << leaf);
            if done.contains(&pair) || small.len() == SMALL_COUNT_MAX {
                continue;
            }
            if let Some(Ok(matches)) = matches((large, leaf), leaves, keys, known) {
                done.push(pair);
                small.push((leaf, matches));
            }
        }
        expect_joins(graph, large, &leaves[large], &small);
    }
}

/// Tells of the joins of `large` with some of the `small` leaves, of which each has so many rows for each row of its
/// sample.
fn expect_joins(
    graph: &mut JoinGraph,
    large: usize,
    leaf: &LeafEstimate,
    small: &[(usize, Arc<[f64]>)],
) {
    let Some((sample, matching)) = &leaf.sample else { return };
    let rows: Vec<usize> = if sample.is_whole || matching.count_set_bits() >= MATCHING_MIN {
        (0..sample.rows.num_rows()).filter(|row| matching.value(*row)).collect()
    } else {
        (0..sample.rows.num_rows()).collect()
    };
    if rows.is_empty() {
        return;
    }
    let mut choices: Vec<u32> = (1..1_u32 << small.len()).collect();
    choices.sort_by_key(|choice| choice.count_ones());
    for choice in choices {
        let chosen = || (0..).zip(small).filter(|(place, _)| choice & (1 << place) != 0);
        let set = chosen().fold(1 << large, |set: LeafSet, (_, (leaf, _))| set | (1 << leaf));
        let of_row = |row: &usize| -> f64 {
            chosen().filter_map(|(_, (_, matches))| matches.get(*row)).product()
        };
        let joined: f64 = rows.iter().map(of_row).sum();
        let count = rows.len() as f64;
        if choice.count_ones() > 1 && joined < TOGETHER_MIN && !sample.is_whole {
            continue;
        }
        let expected = if joined > 0.0 || sample.is_whole {
            leaf.row_count * joined / count
        } else {
            graph.row_count(set).min(leaf.row_count * NO_MATCH / count)
        };
        graph.expect(set, expected);
    }
}

/// For each row of the sample of `large`, how many rows of `small` join it; None: nothing joins them, or not columns
/// alone.
fn matches(
    (large, small): (usize, usize),
    leaves: &[LeafEstimate],
    keys: &[KeyColumns],
    known: Option<&JoinedSamples>,
) -> Option<Result<Arc<[f64]>>> {
    let (large_rows, _) = leaves.get(large)?.sample.as_ref()?;
    let (small_rows, matching) = leaves.get(small)?.sample.as_ref()?;
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for columns in keys {
        if let (Some(a), Some(b)) = (columns.get(&large), columns.get(&small)) {
            one.push(large_rows.rows.column_by_name(a)?);
            other.push(small_rows.rows.column_by_name(b)?);
        }
    }
    let have_one_type = one.iter().zip(&other).all(|(a, b)| a.data_type() == b.data_type());
    if one.is_empty() || !have_one_type {
        return None;
    }
    Some(match known {
        Some(known) => known.matches(&one, &other, matching),
        None => count_matches(&one, &other, matching),
    })
}

/// For each of `rows`, how many of those `among` others that are `matching` have the same key.
pub(super) fn count_matches(
    rows: &[&ArrayRef],
    among: &[&ArrayRef],
    matching: &BooleanBuffer,
) -> Result<Arc<[f64]>> {
    let fields = among.iter().map(|column| SortField::new(column.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let converted = |columns: &[&ArrayRef]| {
        let columns: Vec<ArrayRef> = columns.iter().map(|column| ArrayRef::clone(column)).collect();
        converter.convert_columns(&columns)
    };
    let has_null = |columns: &[&ArrayRef], row| columns.iter().any(|column| column.is_null(row));
    let (rows_keys, among_keys) = (converted(rows)?, converted(among)?);
    let mut counts: FxHashMap<Row<'_>, f64> = FxHashMap::default();
    for row in
        (0..among_keys.num_rows()).filter(|row| matching.value(*row) && !has_null(among, *row))
    {
        *counts.entry(among_keys.row(row)).or_default() += 1.0;
    }
    let count = |row| match has_null(rows, row) {
        true => 0.0,
        false => counts.get(&rows_keys.row(row)).copied().unwrap_or_default(),
    };
    Ok((0..rows_keys.num_rows()).map(count).collect())
}

#[cfg(test)]
mod tests;
