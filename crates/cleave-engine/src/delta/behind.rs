//! What of a delta is behind a commit: the rest of it, once all up to that commit is pages of the next state.
//!
//! Rows keep their VIDs and commits their order; both are counted from the new state on. A row that is in pages by then
//! and has ended behind the commit is one that ends in pages.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use cleave_catalog::catalog::DeviceId;

use super::contents::bytes_of;
use super::{Contents, Delta, DeltaRow, DeltaTablet, Room, TAIL_BYTES, bytes_in_pages};

impl Delta {
    /// What changed behind commit `number`; `device_of` says where the tablet of a table lies that has a place. Takes
    /// the room over: there is none here any more. Under the writer lock.
    pub fn behind(&self, number: u64, device_of: impl Fn(u32, usize) -> Option<DeviceId>) -> Self {
        let mut contents = self.write();
        let settled = usize::try_from(number).unwrap_or(usize::MAX);
        let mut rest = Contents {
            log_ends: contents.log_ends.get(settled..).unwrap_or_default().to_vec(),
            ..Contents::default()
        };
        let log_end = contents.log_end(number);
        for (at @ (table, place), tablet) in &contents.tablets {
            let Some(tablet) = tablet.behind(number, log_end) else { continue };
            rest.change_count += tablet.rows.len() + tablet.ended.len();
            let bytes = bytes_of(&tablet.rows);
            rest.byte_count += bytes;
            if let Some(device) = device_of(*table, *place).filter(|_| !tablet.rows.is_empty()) {
                let room = rest.room.entry(device).or_default();
                room.byte_count += bytes_in_pages(bytes, tablet.rows.len()) + TAIL_BYTES;
            }
            rest.tablets.insert(*at, tablet);
        }
        for (device, room) in &mut contents.room {
            // Where nothing is left to hold it for, it is free.
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
        let settled = self.rows.partition_point(|row| row.begun <= number);
        let in_pages = self.ended.iter().map(|(vid, ended)| (*vid, *ended));
        let (before, behind) = self.rows.split_at_checked(settled)?;
        let made_pages = (self.vid_first..).zip(before).map(|(vid, row)| (vid, row.ended));
        let ends_behind = |ended: u64| (number < ended && ended < u64::MAX).then(|| ended - number);
        let ended: BTreeMap<u64, u64> = in_pages
            .chain(made_pages)
            .filter_map(|(vid, ended)| Some((vid, ends_behind(ended)?)))
            .collect();
        let rows: Vec<DeltaRow> = behind
            .iter()
            .map(|row| DeltaRow {
                row: row.row.clone(),
                begun: row.begun.saturating_sub(number),
                ended: ends_behind(row.ended).unwrap_or(u64::MAX),
            })
            .collect();
        if rows.is_empty() && ended.is_empty() {
            return None;
        }
        let mut keys: BTreeMap<u32, BTreeMap<Vec<u8>, Vec<usize>>> = BTreeMap::new();
        if !rows.is_empty() {
            for (index, of_index) in &self.keys {
                let moved = of_index.iter().filter_map(|(key, places)| {
                    let places: Vec<usize> =
                        places.iter().filter_map(|place| place.checked_sub(settled)).collect();
                    (!places.is_empty()).then(|| (key.clone(), places))
                });
                keys.insert(*index, moved.collect());
            }
        }
        Some(Self {
            schema: Arc::clone(&self.schema),
            logged_from: self.logged_from.max(log_end),
            vid_first: self.vid_first + settled as u64,
            rows,
            ended,
            keys,
        })
    }
}
