//! Validates a change against what is committed, row by row and key by key, without making pages of it.
//!
//! The caller has locked the rows and the keys, so what holds now holds until its transaction ends, unless a commit
//! that is not small comes between: it locks no keys ([`Engine::rewritten_count`]), and the change is validated again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Stack;

use crate::delta::Live;
use crate::storage_engine::Engine;
use crate::write::insert::TableChange;
use crate::write::load::made_anew;

/// A row: the place of its tablet, and its VID.
pub type RowPlace = (usize, u64);

/// Refuses `change`, the last part of `whole`, where a row that it deletes is dead, or a key that it inserts exists.
/// Returns how often commits that were not small had changed rows when it began.
///
/// # Errors
/// [`Error::Conflict`], [`Error::DuplicateKey`]; of a table that was replaced meanwhile; those of the device.
pub async fn check(database: &Engine, whole: &TableChange, change: &TableChange) -> Result<u64> {
    let rewritten_count = database.rewritten_count();
    let live = database.live();
    let table = live.state.find_writable_table(&change.schema.name)?;
    check_dead(&live, change)?;
    match first_duplicate((database, &live, table), whole, change).await? {
        Some((_, error)) => Err(error),
        None => Ok(rewritten_count),
    }
}

/// The committed row with a key that `change` inserts, as [`check`] refuses it.
///
/// # Errors
/// As [`check`].
pub async fn row_with_key(
    database: &Engine,
    whole: &TableChange,
    change: &TableChange,
) -> Result<Option<RowPlace>> {
    let live = database.live();
    let table = live.state.find_writable_table(&change.schema.name)?;
    let found = first_duplicate((database, &live, table), whole, change).await?;
    Ok(found.and_then(|(row, _)| row))
}

/// The first row with a key that `change` inserts, and the error that says so; no row: `whole` has the key twice.
async fn first_duplicate(
    (database, live, table): (&Engine, &Live, &TableState),
    whole: &TableChange,
    change: &TableChange,
) -> Result<Option<(Option<RowPlace>, Error)>> {
    // Each row has the keys of a live one that is deleted: no other has them.
    if change.keeps_keys {
        return Ok(None);
    }
    let Some(first) = table.tablets.first() else { return Err(made_anew(&table.schema.name)) };
    for index in first.indexes.iter().filter(|index| index.definition().unique) {
        let keys = Keys { database, live, table, shape: index.shape(), whole };
        let found = keys.first_duplicate(change).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Refuses a change that deletes a row which is dead already, or which a page version has changed since it was read.
///
/// # Errors
/// [`Error::Conflict`]; of a table that was replaced meanwhile.
pub fn check_dead(live: &Live, change: &TableChange) -> Result<()> {
    let schema = &change.schema;
    let table = live.state.find_writable_table(&schema.name)?;
    if (table.schema.table_id, table.schema.version) != (schema.table_id, schema.version) {
        return Err(made_anew(&schema.name));
    }
    for (place, vids) in &change.dead {
        let tablet = table.tablets.get(*place).ok_or_else(|| made_anew(&schema.name))?;
        let at = (schema.table_id, *place);
        if !live.delta.all_live(at, tablet, vids, live.number) {
            return Err(Error::concurrent_update());
        }
    }
    check_marks(table, change)
}

/// Refuses a change of a row that a page version has changed since the statement read it.
///
/// # Errors
/// [`Error::Conflict`].
pub(super) fn check_marks(table: &TableState, change: &TableChange) -> Result<()> {
    match &change.marks {
        Some(marks) => check_since(table, change, |place| marks.get(place).copied()),
        None => Ok(()),
    }
}

/// Refuses a change of a row that a page version has changed since `before`, a snapshot of the transaction.
///
/// # Errors
/// [`Error::Conflict`].
pub fn check_rewritten(before: &CatalogState, live: &Live, change: &TableChange) -> Result<()> {
    let id = change.schema.table_id;
    let (Some(read), Some(now)) = (before.table_by_id(id), live.state.table_by_id(id)) else {
        return Ok(());
    };
    check_since(now, change, |place| read.tablets.get(place).map(|read| read.rewrites.mark()))
}

/// Refuses a change of a row that a page version has changed since its tablet, by its place, had this mark.
fn check_since(
    table: &TableState,
    change: &TableChange,
    mark: impl Fn(usize) -> Option<u64>,
) -> Result<()> {
    for (place, vids) in &change.dead {
        let (Some(tablet), Some(mark)) = (table.tablets.get(*place), mark(*place)) else {
            continue;
        };
        let is_changed = |vid: u64| tablet.rewrites.has_since(mark, vid);
        if tablet.rewrites.mark() != mark && vids.iter().any(is_changed) {
            return Err(Error::concurrent_update());
        }
    }
    Ok(())
}

/// Those of `keys`, search keys of a unique index in their order, that no row of `live` has which `is_kept` says
/// counts.
///
/// # Errors
/// Those of the device.
pub async fn absent<'a>(
    database: &Engine,
    live: &Live,
    (table_id, shape): (u32, &IndexShape),
    is_kept: &(impl Fn(RowPlace) -> bool + Sync),
    keys: &[&'a [u8]],
) -> Result<BTreeSet<&'a [u8]>> {
    let mut absent: BTreeSet<&'a [u8]> = keys.iter().copied().collect();
    let id = shape.definition.id;
    let Some(table) = live.state.table_by_id(table_id) else { return Ok(absent) };
    for (place, tablet) in table.tablets.iter().enumerate() {
        if !live.delta.is_empty() {
            absent.retain(|key| {
                let (found, _) = live.delta.with_prefix((table_id, place), id, key, live.number);
                !found.iter().any(|(vid, _)| is_kept((place, *vid)))
            });
        }
        let Some(index) = tablet.index(id).filter(|_| !absent.is_empty()) else { continue };
        let asked: Vec<&[u8]> = absent.iter().copied().collect();
        let pages = database.page_source(tablet.device, Stack::Native)?;
        let found = index.get_many(tablet, &*pages, &asked).await?;
        for (key, vid) in asked.into_iter().zip(found) {
            let is_there = |vid: u64| {
                is_kept((place, vid))
                    && live.delta.dead(table_id, place, vid, live.number).is_none()
            };
            if vid.is_some_and(is_there) {
                absent.remove(key);
            }
        }
    }
    Ok(absent)
}

/// The keys of one unique index.
struct Keys<'a> {
    database: &'a Engine,
    live: &'a Live,
    table: &'a TableState,
    shape: &'a Arc<IndexShape>,
    whole: &'a TableChange,
}

impl Keys<'_> {
    async fn first_duplicate(
        &self,
        change: &TableChange,
    ) -> Result<Option<(Option<RowPlace>, Error)>> {
        let mut own = BTreeSet::new();
        for rows in self.whole.batches() {
            let entries = self.shape.row_entries(rows, 0)?;
            for key in entries.iter().flatten().filter(|key| !self.shape.key.has_null(key)) {
                if !own.insert(key.to_vec()) {
                    return Ok(Some((None, self.shape.duplicate_key(key))));
                }
            }
        }
        let divides = self.table.divides(&self.shape.definition);
        let placed = change.rows.iter();
        let placed = placed.flat_map(|(place, rows)| rows.batches().map(move |rows| (place, rows)));
        for (place, rows) in placed.collect::<Vec<_>>() {
            let entries = self.shape.row_entries(rows, 0)?;
            for key in entries.iter().flatten().filter(|key| !self.shape.key.has_null(key)) {
                let places = match divides {
                    false => *place..*place + 1,
                    true => 0..self.table.tablets.len(),
                };
                for place in places {
                    if let Some(vid) = self.row_with(place, key).await? {
                        let error = self.shape.duplicate_key(key);
                        return Ok(Some((Some((place, vid)), error)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The row of the tablet that has `key` and that the change does not delete.
    async fn row_with(&self, place: usize, key: &[u8]) -> Result<Option<u64>> {
        let (live, id) = (self.live, self.shape.definition.id);
        let table = self.table.schema.table_id;
        let dead = self.whole.dead.get(&place);
        let is_kept = |vid: u64| dead.is_none_or(|dead| !dead.contains(vid));
        if !live.delta.is_empty() {
            let (found, _) = live.delta.with_prefix((table, place), id, key, live.number);
            if let Some((vid, _)) = found.iter().find(|(vid, _)| is_kept(*vid)) {
                return Ok(Some(*vid));
            }
        }
        let Some(tablet) = self.table.tablets.get(place) else { return Ok(None) };
        let Some(index) = tablet.index(id) else { return Ok(None) };
        let pages = self.database.page_source(tablet.device, Stack::Native)?;
        let found = index.get(tablet, &*pages, key).await?;
        Ok(found.filter(|vid| {
            is_kept(*vid) && live.delta.dead(table, place, *vid, live.number).is_none()
        }))
    }
}

impl Engine {
    /// How often a commit that was not small has changed rows, keys or tables.
    pub(crate) fn rewritten_count(&self) -> u64 {
        self.rewritten_count.load(Ordering::Acquire)
    }

    /// Notes a commit that is not small.
    pub(super) fn note_rewritten(&self) {
        self.rewritten_count.fetch_add(1, Ordering::AcqRel);
    }
}
