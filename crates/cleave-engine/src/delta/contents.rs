//! All of a delta at once: the rows that many commits have put there, as few batches by table.
//!
//! Batches that were gathered once are kept: the next call gathers only the rows that came since.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use cleave_catalog::error::Result;

use super::{Delta, DeltaRow, FoundRow, TableDelta};
use crate::write::insert::TableChange;
use crate::write::vid_set::VidSet;

/// Batches from which on rows are gathered for good.
const BATCHES_MAX: usize = 16;

/// Rows of a tablet from its first on, as they were gathered.
struct Gathered {
    at: (u32, usize),
    rows: Arc<RecordBatch>,
}

impl Delta {
    /// All of it up to commit `number`, by table.
    ///
    /// # Errors
    /// None that a statement is to blame for.
    pub(crate) fn contents(&self, number: u64) -> Result<Vec<TableDelta>> {
        let mut tables: BTreeMap<u32, TableDelta> = BTreeMap::new();
        let mut gathered = Vec::new();
        for (at @ (table, place), tablet) in &self.read().tablets {
            let of_table = tables.entry(*table).or_insert_with(|| TableDelta {
                change: TableChange::new(Arc::clone(&tablet.schema)),
                dead_in_delta: BTreeMap::new(),
            });
            let dead = tablet.dead.iter().filter(|(_, dead)| **dead <= number);
            let dead: VidSet = dead.map(|(vid, _)| *vid).collect();
            if !dead.is_empty() {
                of_table.change.dead.insert(*place, dead);
            }
            let begun = tablet.rows.partition_point(|row| row.begun <= number);
            let begun = tablet.rows.get(..begun).unwrap_or_default();
            if begun.is_empty() {
                continue;
            }
            let batches = batches_of(begun);
            let rows = concat_batches(&tablet.schema.arrow(), &batches)?;
            if batches.len() > BATCHES_MAX {
                gathered.push(Gathered { at: *at, rows: Arc::new(rows.clone()) });
            }
            of_table.change.rows.insert(*place, rows.into());
            let dead = (tablet.vid_first..).zip(begun);
            let dead = dead.filter(|(_, row)| row.dead <= number).map(|(vid, _)| vid);
            let dead: VidSet = dead.collect();
            if !dead.is_empty() {
                of_table.dead_in_delta.insert(*place, dead);
            }
        }
        self.take_gathered(&gathered);
        Ok(tables.into_values().collect())
    }
}

impl Delta {
    /// Rows that were inserted, and rows that have ended, by table id.
    pub fn change_counts(&self) -> BTreeMap<u32, u64> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for ((table, _), tablet) in &self.read().tablets {
            let changes = tablet.rows.len().saturating_add(tablet.dead.len());
            *counts.entry(*table).or_default() += changes as u64;
        }
        counts
    }

    /// Keeps the first rows of tablets as they were gathered.
    fn take_gathered(&self, gathered: &[Gathered]) {
        if gathered.is_empty() {
            return;
        }
        let mut before = Vec::new();
        let mut contents = self.write();
        for Gathered { at, rows } in gathered {
            // Rows are only ever added behind these.
            let tablet = contents.tablets.get_mut(at);
            let found = tablet.into_iter().flat_map(|tablet| &mut tablet.rows);
            for (place, row) in found.take(rows.num_rows()).enumerate() {
                let row = &mut row.row;
                before.push(std::mem::replace(row, FoundRow { rows: Arc::clone(rows), place }));
            }
        }
        // Drops many small batches where nobody waits for it.
        drop(contents);
        drop(before);
    }
}

/// `rows` as the batches that they lie in, in their order.
fn batches_of(rows: &[DeltaRow]) -> Vec<RecordBatch> {
    let follows = |row: &DeltaRow, next: &DeltaRow| {
        Arc::ptr_eq(&row.row.rows, &next.row.rows) && row.row.place + 1 == next.row.place
    };
    let first = |part: &[DeltaRow]| part.first().map(|row| row.row.clone());
    let parts = rows.chunk_by(follows);
    parts
        .filter_map(|part| Some((first(part)?, part.len())))
        .map(|(row, count)| row.batch_of(count))
        .collect()
}

/// Bytes that `rows` take in memory; of batches with other rows too, their share.
pub(super) fn bytes_of(rows: &[DeltaRow]) -> usize {
    let of_batch = |part: &[DeltaRow]| {
        let batch = part.first().map(|row| &row.row.rows)?;
        Some(batch.get_array_memory_size() * part.len() / batch.num_rows().max(1))
    };
    let parts = rows.chunk_by(|row, next| Arc::ptr_eq(&row.row.rows, &next.row.rows));
    parts.filter_map(of_batch).sum()
}
