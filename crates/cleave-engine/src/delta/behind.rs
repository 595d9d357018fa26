//! The part of a delta behind a given commit: what is left of it once all up to that commit is in pages of the next
//! catalog version.
//!
//! Rows keep their VIDs and commits their order; both are counted from the new catalog version on. A row that is in
//! pages by then and was deleted behind the commit becomes a dead row of those pages.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use cleave_catalog::catalog::DeviceId;

use super::contents::bytes_of;
use super::{Contents, Delta, DeltaRow, DeltaTablet, Room, TAIL_BYTES, bytes_in_pages};

impl Delta {
    /// The changes behind commit `number`; `device_of` returns the device of a table's tablet by its place. Moves the
    /// room to the result. Under the writer lock.
    pub fn behind(&self, number: u64, device_of: impl Fn(u32, usize) -> Option<DeviceId>) -> Self {
        let mut contents = self.write();
        let flushed = usize::try_from(number).unwrap_or(usize::MAX);
        let mut rest = Contents {
            log_ends: contents.log_ends.get(flushed..).unwrap_or_default().to_vec(),
            ..Contents::default()
        };
        let log_end = contents.log_end(number);
        for (at @ (table, place), tablet) in &contents.tablets {
            let Some(tablet) = tablet.behind(number, log_end) else { continue };
            rest.change_count += tablet.rows.len() + tablet.dead.len();
            let bytes = bytes_of(&tablet.rows);
            rest.byte_count += bytes;
            if let Some(device) = device_of(*table, *place).filter(|_| !tablet.rows.is_empty()) {
                let room = rest.room.entry(device).or_default();
                room.byte_count += bytes_in_pages(bytes, tablet.rows.len()) + TAIL_BYTES;
            }
            rest.tablets.insert(*at, tablet);
        }
        for (device, room) in &mut contents.room {
            // Room that no row needs is freed.
            let Room { held_bytes, claims, .. } = std::mem::take(room);
            if let Some(rest) = rest.room.get_mut(device) {
                (rest.held_bytes, rest.claims) = (held_bytes, claims);
            }
        }
        Self { contents: RwLock::new(rest) }
    }
}

impl DeltaTablet {
    /// The rest of it, whose records lie behind `log_end`; None: there is none.
    fn behind(&self, number: u64, log_end: u64) -> Option<Self> {
        let flushed = self.rows.partition_point(|row| row.begun <= number);
        let in_pages = self.dead.iter().map(|(vid, dead)| (*vid, *dead));
        let (before, behind) = self.rows.split_at_checked(flushed)?;
        let made_pages = (self.vid_first..).zip(before).map(|(vid, row)| (vid, row.dead));
        let ends_behind = |dead: u64| (number < dead && dead < u64::MAX).then(|| dead - number);
        let dead: BTreeMap<u64, u64> = in_pages
            .chain(made_pages)
            .filter_map(|(vid, dead)| Some((vid, ends_behind(dead)?)))
            .collect();
        let rows: Vec<DeltaRow> = behind
            .iter()
            .map(|row| DeltaRow {
                row: row.row.clone(),
                begun: row.begun.saturating_sub(number),
                dead: ends_behind(row.dead).unwrap_or(u64::MAX),
            })
            .collect();
        if rows.is_empty() && dead.is_empty() {
            return None;
        }
        let mut keys: BTreeMap<u32, BTreeMap<Vec<u8>, Vec<usize>>> = BTreeMap::new();
        if !rows.is_empty() {
            for (index, of_index) in &self.keys {
                let moved = of_index.iter().filter_map(|(key, places)| {
                    let places: Vec<usize> =
                        places.iter().filter_map(|place| place.checked_sub(flushed)).collect();
                    (!places.is_empty()).then(|| (key.clone(), places))
                });
                keys.insert(*index, moved.collect());
            }
        }
        Some(Self {
            schema: Arc::clone(&self.schema),
            logged_from: self.logged_from.max(log_end),
            vid_first: self.vid_first + flushed as u64,
            rows,
            dead,
            keys,
        })
    }
}
