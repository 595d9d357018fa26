//! Whether any row refers to one of a few keys, without a plan: looked up in an index of the referencing table, over
//! the delta and own rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Stack;
use cleave_store::KeyRange;

use super::super::Session;
use super::keys::{KeyRow, Reference};

/// Maximum number of keys to look up.
pub(super) const KEYS_MAX: usize = 16;

/// Entries of one key that are examined before a plan is made for it.
const ENTRIES_MAX: usize = 256;

/// Whether rows may refer to one of `keys`; false: an index says that none does.
pub(super) async fn may_be_referred(
    session: &Session,
    reference: &Reference,
    keys: &[&KeyRow],
) -> Result<bool> {
    let id = reference.child.schema.table_id;
    // Reads are recorded by plans.
    if keys.len() > KEYS_MAX || session.owns(id) || session.tracked().is_some() {
        return Ok(true);
    }
    let live = session.database.live();
    let Some(table) = live.state.table_by_id(id) else { return Ok(true) };
    let Some((shape, order)) = index_over(table, reference) else { return Ok(true) };
    let mut prefixes = Vec::with_capacity(keys.len());
    for key in keys {
        let values: Vec<ArrayRef> = order.iter().filter_map(|place| key.value(*place)).collect();
        prefixes.push(shape.key.prefix(&values).map_err(|error| shape.key_error(error))?);
    }
    let own = session.own_changes(id);
    if let Some(own) = own {
        for rows in own.batches() {
            let entries = shape.row_entries(rows, 0)?;
            let refers = |entry: &[u8]| prefixes.iter().any(|prefix| entry.starts_with(prefix));
            if entries.iter().flatten().any(refers) {
                return Ok(true);
            }
        }
    }
    let index = shape.definition.id;
    for (place, tablet) in table.tablets.iter().enumerate() {
        let dead = own.and_then(|own| own.dead.get(&place));
        let is_kept = |vid: u64| dead.is_none_or(|dead| !dead.contains(vid));
        for prefix in prefixes.iter().filter(|_| !live.delta.is_empty()) {
            let (found, _) = live.delta.with_prefix((id, place), index, prefix, live.number);
            if found.iter().any(|(vid, _)| is_kept(*vid)) {
                return Ok(true);
            }
        }
        let Some(index) = tablet.index(index) else { return Ok(true) };
        let ranges: Vec<KeyRange> = prefixes.iter().cloned().map(KeyRange::of_prefix).collect();
        let pages = session.database.page_source(tablet.device, Stack::Native)?;
        let found = index.rows_in(tablet, &*pages, &ranges, false, ENTRIES_MAX).await?;
        let Some(found) = found else { return Ok(true) };
        let is_there = |vid: &u64| {
            is_kept(*vid)
                && tablet.version_map.lookup(*vid).is_some()
                && live.delta.dead(id, place, *vid, live.number).is_none()
        };
        if found.iter().any(is_there) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an index finds the rows that refer to a key.
pub(super) fn has_index(reference: &Reference) -> bool {
    index_of(&reference.child, reference).is_some()
}

/// An index of `table` as [`index_of`] gives it, if the foreign key's columns have the types of the referenced ones.
fn index_over<'a>(
    table: &'a TableState,
    reference: &Reference,
) -> Option<(&'a Arc<IndexShape>, Vec<usize>)> {
    let key = &reference.key;
    let mut pairs = key.columns.iter().zip(&key.target_columns);
    let is_same = pairs.all(|(own, other)| {
        let own = table.schema.column_by_id(*own);
        let other = reference.parent.schema.column_by_id(*other);
        own.zip(other)
            .is_some_and(|(own, other)| own.column_type.arrow() == other.column_type.arrow())
    });
    index_of(table, reference).filter(|_| is_same)
}

/// An index of `table` whose first columns are those of the foreign key; and for each of these columns its place in the
/// key.
fn index_of<'a>(
    table: &'a TableState,
    reference: &Reference,
) -> Option<(&'a Arc<IndexShape>, Vec<usize>)> {
    let key = &reference.key;
    let mut indexes = table.tablets.first()?.indexes.iter().map(|index| index.shape());
    indexes.find_map(|shape| {
        let first = shape.definition.columns.get(..key.columns.len())?;
        let place = |id: u32| key.columns.iter().position(|own| *own == id);
        let order: Option<Vec<usize>> = first.iter().map(|column| place(column.column)).collect();
        Some((shape, order?))
    })
}
