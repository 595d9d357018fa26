//! Reads rows by ranges of keys from all places with rows: pages, by memtables and runs; the delta; own rows of the
//! transaction.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::{Scattered, Walked};
use cleave_catalog::settings::Stack;
use cleave_engine::delta::FoundRow;
use cleave_store::{KeyRange, Projection, Walk};
use futures::FutureExt;
use futures::future::try_join_all;

use crate::point_path::{FoundPlace, Sight};
use crate::query_engine::QueryEngine;

/// Reads rows of one table by one of its indexes. See the module's description.
pub struct RangeRead<'a> {
    /// The database.
    pub database: &'a Arc<QueryEngine>,
    /// The snapshot that it reads.
    pub sight: &'a Sight<'a>,
    /// The table.
    pub table: &'a TableState,
    /// The index's id.
    pub index: u32,
    /// Each range is that of one search key.
    pub is_search_key: bool,
    /// The greatest keys first.
    pub backward: bool,
    /// How pages cross the link.
    pub stack: Stack,
}

/// A row that was found.
#[derive(Debug, Clone)]
pub struct RangeRow {
    /// The place of its tablet.
    pub tablet: usize,
    /// Where it is.
    pub place: FoundPlace,
    /// It, where it is committed and in no page yet.
    unflushed: Option<FoundRow>,
}

impl RangeRead<'_> {
    /// Whether fences of runs alone say that there are more than `count` entries in `ranges`.
    pub(crate) fn has_more_than(&self, ranges: &[KeyRange], count: usize) -> bool {
        let indexes = self.table.tablets.iter().filter_map(|tablet| tablet.index(self.index));
        let entries: u64 = indexes.map(|index| index.measure(ranges).1).sum();
        entries > count as u64
    }

    /// Rows whose entries lie in `ranges`, in the order of these and of their keys: `limit` of them at least, if there
    /// are as many; None: that takes too many reads.
    pub(crate) async fn walk(
        &self,
        ranges: &[KeyRange],
        limit: usize,
    ) -> Result<Option<Walked<RangeRow>>> {
        let mut all = Walked { entries: Vec::new(), is_cut: false };
        for (number, range) in ranges.iter().enumerate() {
            let limit = limit.saturating_sub(all.entries.len()).max(1);
            let walk = Walk { range, backward: self.backward, limit };
            let wanted = self.tablets_of(range);
            let tablets = self.table.tablets.iter().enumerate();
            let tablets = tablets.filter(|(place, _)| wanted.contains(place));
            let walks = tablets.map(|(place, tablet)| self.walk_tablet(place, tablet, &walk));
            let walked: Option<Vec<_>> = try_join_all(walks).await?.into_iter().collect();
            let Some(walked) = walked else { return Ok(None) };
            let walked = Walked::merged(walked, self.backward);
            all.entries.extend(walked.entries);
            if walked.is_cut {
                // Of several ranges all rows are wanted.
                let is_only = number == 0 && ranges.len() == 1;
                all.is_cut = true;
                return Ok(is_only.then_some(all));
            }
        }
        Ok(Some(all))
    }

    /// The places of the tablets that may have rows whose entries lie in `range`.
    fn tablets_of(&self, range: &KeyRange) -> RangeInclusive<usize> {
        let index = self.table.indexes.iter().find(|index| index.id == self.index);
        let told = index.and_then(|index| self.table.division.tablets_of_keys(index, range));
        told.unwrap_or(0..=self.table.tablets.len())
    }

    async fn walk_tablet(
        &self,
        place: usize,
        tablet: &TabletState,
        walk: &Walk<'_>,
    ) -> Result<Option<Walked<RangeRow>>> {
        let (live, own) = (&self.sight.live, self.sight.own);
        let table = self.table.schema.table_id;
        let Some(index) = tablet.index(self.index) else { return Ok(None) };
        let pages = self.database.page_source(tablet.device, self.stack)?;
        let is_wanted = |vid: u64| {
            tablet.version_map.lookup(vid).is_some() && !self.sight.is_dead(table, place, vid)
        };
        let walked = index.walk(tablet, &*pages, (walk, self.is_search_key), &is_wanted);
        let Some(stored) = walked.await? else { return Ok(None) };
        let row = |vid, unflushed| RangeRow {
            tablet: place,
            place: FoundPlace::Committed(vid),
            unflushed,
        };
        let Walked { entries, is_cut } = stored;
        let entries = entries.into_iter().map(|(key, vid)| (key, row(vid, None))).collect();
        let mut sources = vec![Walked { entries, is_cut }];
        if !live.delta.is_empty() {
            let own_dead = own.and_then(|own| own.dead.get(&place));
            // Where some are dead here, the last live one does not tell how far this went.
            let limit = if own_dead.is_some() { usize::MAX } else { walk.limit };
            let walk = Walk { limit, ..*walk };
            let found = live.delta.walk((table, place), self.index, &walk, live.number);
            let is_there = |vid: &u64| own_dead.is_none_or(|dead| !dead.contains(*vid));
            let found = found.into_iter().filter(|(_, (vid, _))| is_there(vid));
            let found = found.map(|(key, (vid, unflushed))| (key, row(vid, Some(unflushed))));
            sources.push(Walked::of(found.collect(), limit));
        }
        if let Some(own) = own.and_then(|own| own.rows.get(&place)) {
            let shape = index.shape();
            let mut entries = Vec::new();
            for (first, own) in own.placed() {
                let keys = shape.row_entries(own, 0)?;
                let in_range = |key: &&[u8]| walk.range.has(key);
                let keys = keys.iter().zip(first..);
                entries.extend(keys.filter_map(|(key, row)| {
                    let key = key.filter(in_range)?.to_vec();
                    let row = FoundPlace::Own(row);
                    Some((key, RangeRow { tablet: place, place: row, unflushed: None }))
                }));
            }
            entries.sort_by(|(one, _), (other, _)| match walk.backward {
                false => one.cmp(other),
                true => other.cmp(one),
            });
            sources.push(Walked { entries, is_cut: false });
        }
        Ok(Some(Walked::merged(sources, walk.backward)))
    }

    /// For each of `keys`, search keys in their order of the index, which is unique: the row that has it.
    pub async fn with_keys(&self, keys: &[&[u8]]) -> Result<Vec<Option<RangeRow>>> {
        let (live, own) = (&self.sight.live, self.sight.own);
        let table = self.table.schema.table_id;
        let mut found: Vec<Option<RangeRow>> = vec![None; keys.len()];
        for (tablet, state) in self.table.tablets.iter().enumerate() {
            let Some(index) = state.index(self.index) else { continue };
            if let Some(rows) = own.and_then(|own| own.rows.get(&tablet)) {
                let shape = index.shape();
                for (first, rows) in rows.placed() {
                    let entries = shape.row_entries(rows, 0)?;
                    for (key, row) in entries.iter().zip(first..) {
                        let at = key.and_then(|key| keys.binary_search(&key).ok());
                        if let Some(known) = at.and_then(|at| found.get_mut(at)) {
                            let place = FoundPlace::Own(row);
                            *known = Some(RangeRow { tablet, place, unflushed: None });
                        }
                    }
                }
            }
            if live.delta.is_empty() {
                continue;
            }
            let dead = own.and_then(|own| own.dead.get(&tablet));
            for (key, known) in keys.iter().zip(&mut found).filter(|(_, known)| known.is_none()) {
                let place = (table, tablet);
                let (rows, log_end) = live.delta.with_prefix(place, self.index, key, live.number);
                self.sight.note_seen(log_end);
                let mut rows = rows.into_iter();
                let row = rows.find(|(vid, _)| dead.is_none_or(|dead| !dead.contains(*vid)));
                *known = row.map(|(vid, row)| RangeRow {
                    tablet,
                    place: FoundPlace::Committed(vid),
                    unflushed: Some(row),
                });
            }
        }
        let left: Vec<usize> =
            (0..keys.len()).filter(|at| found.get(*at).is_some_and(Option::is_none)).collect();
        if left.is_empty() {
            return Ok(found);
        }
        let asked: Vec<&[u8]> = left.iter().filter_map(|at| keys.get(*at).copied()).collect();
        let asked = &asked;
        let tablets = self.table.tablets.iter().enumerate();
        let read = tablets.filter_map(|(tablet, state)| {
            let index = state.index(self.index)?;
            let read = async move {
                let pages = self.database.page_source(state.device, self.stack)?;
                let found = index.get_many(state, &*pages, asked).await?;
                Ok::<_, Error>((tablet, found))
            };
            Some(read.boxed())
        });
        for (tablet, in_pages) in try_join_all(read).await? {
            for (at, vid) in left.iter().zip(in_pages) {
                let vid = vid.filter(|vid| !self.sight.is_dead(table, tablet, *vid));
                if let (Some(vid), Some(known)) = (vid, found.get_mut(*at)) {
                    let place = FoundPlace::Committed(vid);
                    *known = Some(RangeRow { tablet, place, unflushed: None });
                }
            }
        }
        Ok(found)
    }

    /// The columns of the table at these places, of `rows`, in their order.
    pub async fn fetch(&self, rows: &[RangeRow], columns: &[usize]) -> Result<RecordBatch> {
        let projection = Projection::of_table(&self.table.schema, columns);
        let mut all = Scattered { batches: Vec::new(), places: vec![(0, 0); rows.len()] };
        if columns.is_empty() {
            return all.joined(&projection);
        }
        let tablets = self.table.tablets.iter().enumerate();
        let fetched = tablets.map(|(place, tablet)| {
            let stored: Vec<(usize, u64)> = rows
                .iter()
                .enumerate()
                .filter(|(_, row)| row.tablet == place && row.unflushed.is_none())
                .filter_map(|(number, row)| match row.place {
                    FoundPlace::Committed(vid) => Some((number, vid)),
                    FoundPlace::Own(_) => None,
                })
                .collect();
            let projection = &projection;
            async move {
                let pages = self.database.page_source(tablet.device, self.stack)?;
                let vids: Vec<u64> = stored.iter().map(|(_, vid)| *vid).collect();
                let found = Scattered::of_vids(tablet, &*pages, projection, &vids).await?;
                Ok::<_, Error>((stored, found))
            }
        });
        for (stored, found) in try_join_all(fetched).await? {
            let first = all.batches.len();
            for ((number, _), (batch, row)) in stored.iter().zip(found.places) {
                if let Some(known) = all.places.get_mut(*number) {
                    *known = (first + batch, row);
                }
            }
            all.batches.extend(found.batches);
        }
        let mut last: Option<Arc<RecordBatch>> = None;
        for (row, known) in rows.iter().zip(&mut all.places) {
            match (&row.unflushed, row.place) {
                (Some(unflushed), _) => {
                    // Rows of one commit follow each other often.
                    if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &unflushed.rows)) {
                        all.batches.push(unflushed.rows.project(columns)?);
                        last = Some(Arc::clone(&unflushed.rows));
                    }
                    *known = (all.batches.len() - 1, unflushed.place);
                }
                (None, FoundPlace::Own(place)) => {
                    last = None;
                    let own = self.sight.own.and_then(|own| own.rows.get(&row.tablet));
                    if let Some((own, place)) = own.and_then(|own| own.row(place)) {
                        all.batches.push(own.project(columns)?);
                        *known = (all.batches.len() - 1, place);
                    }
                }
                (None, FoundPlace::Committed(_)) => {}
            }
        }
        all.joined(&projection)
    }
}
