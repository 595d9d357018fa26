//! The newest keys of an index, in memory: keys and VIDs in, look-ups and a sorted stream out.
//!
//! Invariant: a key has one newest row. [`Memtable::insert`] refuses a second one; [`Memtable::put`] makes it the
//! newest, and keeps the earlier ones for readers of older snapshots; a merge sees only the newest.
//! [`Memtable::byte_size`] is the cost of the entries, so that the owner can flush it as a run before it exceeds its
//! budget. A memtable is part of the shared state (rule 14): [`Memtable::encode`] is its stored form with a commit and
//! its form on a link.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use prost::Message;

use super::run::{IndexEntry, KeyRange, Walk};
use crate::error::StoreError;
use crate::frame::{Format, FrameError};
use crate::proto;

const MEMTABLE: Format = Format { magic: *b"CLVMEMTB", name: "index memtable", versions: 1..=1 };

/// What an entry costs beyond its key: the VID, the key's pointer and length, and its share of a node.
const ENTRY_BYTES: usize = 48;

/// Keys of one index, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memtable {
    entries: BTreeMap<Box<[u8]>, u64>,
    /// Older rows of keys that a newer row has, oldest first.
    older: BTreeMap<Box<[u8]>, Vec<u64>>,
    key_bytes: usize,
}

impl Memtable {
    /// A memtable of no keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `key` for the row `vid`.
    ///
    /// # Errors
    /// [`StoreError::DuplicateKey`] if the key is there, which leaves all as it was.
    pub fn insert(&mut self, key: &[u8], vid: u64) -> Result<(), StoreError> {
        match self.entries.entry(key.into()) {
            Entry::Occupied(entry) => {
                Err(StoreError::DuplicateKey { first: *entry.get(), second: vid, key: key.into() })
            }
            Entry::Vacant(entry) => {
                entry.insert(vid);
                self.key_bytes = self.key_bytes.saturating_add(key.len());
                Ok(())
            }
        }
    }

    /// Makes `vid` the newest row of `key`. One that is older than the newest is kept behind it.
    pub fn put(&mut self, key: &[u8], vid: u64) {
        match self.entries.entry(key.into()) {
            Entry::Occupied(mut entry) if *entry.get() != vid => {
                let newest = vid.max(*entry.get());
                let older = vid.min(entry.insert(newest));
                let rows = self.older.entry(key.into()).or_default();
                if let Err(place) = rows.binary_search(&older) {
                    rows.insert(place, older);
                    self.key_bytes = self.key_bytes.saturating_add(key.len());
                }
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => {
                entry.insert(vid);
                self.key_bytes = self.key_bytes.saturating_add(key.len());
            }
        }
    }

    /// The same without rows of VIDs from `vid_end` on.
    #[must_use]
    pub fn before(&self, vid_end: u64) -> Self {
        let mut before = Self::new();
        for key in self.entries.keys() {
            for vid in self.rows_of(key).filter(|vid| *vid < vid_end) {
                before.put(key, vid);
            }
        }
        before
    }

    /// All rows that have, or had, `key`: the newest first.
    pub fn rows_of(&self, key: &[u8]) -> impl Iterator<Item = u64> {
        let older = self.older.get(key).into_iter().flatten().rev().copied();
        self.get(key).into_iter().chain(older)
    }

    /// Removes `key`; returns the VID that it had.
    pub fn remove(&mut self, key: &[u8]) -> Option<u64> {
        let vid = self.entries.remove(key)?;
        let count = self.older.remove(key).map_or(0, |older| older.len()).saturating_add(1);
        self.key_bytes = self.key_bytes.saturating_sub(key.len().saturating_mul(count));
        Some(vid)
    }

    /// The newest row of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.entries.get(key).copied()
    }

    /// Keys and their newest VIDs, ascending by key, from `from` on; None: from the first.
    pub fn iter_from(&self, from: Option<&[u8]>) -> impl Iterator<Item = (&[u8], u64)> {
        let start = from.map_or(Bound::Unbounded, Bound::Included);
        self.entries
            .range::<[u8], _>((start, Bound::Unbounded))
            .map(|(key, vid)| (key.as_ref(), *vid))
    }

    /// The VIDs of entries in `range`, older ones of the same keys too.
    pub fn vids_in(&self, range: &KeyRange) -> impl Iterator<Item = u64> {
        let newest = self.iter_from(Some(&range.from)).take_while(|(key, _)| range.has(key));
        let start = (Bound::Included(&*range.from), Bound::Unbounded);
        let older = self.older.range::<[u8], _>(start).take_while(|(key, _)| range.has(key));
        newest.map(|(_, vid)| vid).chain(older.flat_map(|(_, rows)| rows.iter().copied()))
    }

    /// The entries of `walk` whose rows `is_wanted` accepts, in its order; all rows of the last key.
    #[must_use]
    pub fn walk(&self, walk: &Walk<'_>, is_wanted: impl Fn(u64) -> bool) -> Vec<IndexEntry> {
        let mut found = Vec::new();
        let range = walk.range;
        if range.is_empty() {
            return found;
        }
        let below = range.below.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys =
            self.entries.range::<[u8], _>((Bound::Included(range.from.as_slice()), below));
        while found.len() < walk.limit {
            let next = if walk.backward { keys.next_back() } else { keys.next() };
            let Some((key, newest)) = next else { break };
            let older = self.older.get(key).into_iter().flatten().rev().copied();
            let rows = std::iter::once(*newest).chain(older).filter(|vid| is_wanted(*vid));
            found.extend(rows.map(|vid| (key.to_vec(), vid)));
        }
        found
    }

    /// Keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Upper estimate of the memory of the entries, in bytes.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let older = self.older.len().saturating_mul(2);
        let entries = self.entries.len().saturating_add(older);
        entries.saturating_mul(ENTRY_BYTES).saturating_add(self.key_bytes)
    }

    /// The stored form, of the newest rows.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let message = proto::Memtable {
            keys: self.entries.keys().map(|key| key.to_vec()).collect(),
            vids: self.entries.values().copied().collect(),
        };
        MEMTABLE.seal(&message.encode_to_vec())
    }

    /// Reads what [`Memtable::encode`] wrote.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that were not written so.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (_, payload) = MEMTABLE.open(bytes)?;
        let message = proto::Memtable::decode(payload)
            .map_err(|error| MEMTABLE.malformed(error.to_string()))?;
        if message.keys.len() != message.vids.len() {
            let (keys, vids) = (message.keys.len(), message.vids.len());
            return Err(MEMTABLE.malformed(format!("{keys} keys for {vids} rows")));
        }
        let mut memtable = Self::new();
        for (key, vid) in message.keys.iter().zip(message.vids) {
            memtable.insert(key, vid).map_err(|error| MEMTABLE.malformed(error.to_string()))?;
        }
        Ok(memtable)
    }
}

#[cfg(test)]
mod tests;
