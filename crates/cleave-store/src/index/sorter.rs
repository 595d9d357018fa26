//! Sorts the keys of a bulk load: keys and VIDs in any order in, ascending out.
//!
//! Keys lie one after the other in one buffer, so a key costs its bytes and 24 more. Whoever loads watches
//! [`KeySorter::byte_size`]: beyond its budget it writes a run from [`KeySorter::drain_sorted`] and goes on; at the
//! end it merges the runs. Keys that come in order, as most loads bring them, sort in linear time.
//!
//! Deliberately absent: a check for duplicates. Equal keys come out side by side, and [`super::RunWriter`] refuses
//! the second.

#![deny(clippy::indexing_slicing)]

/// Keys that wait to be sorted.
#[derive(Debug, Default)]
pub struct KeySorter {
    key_bytes: Vec<u8>,
    entries: Vec<SorterEntry>,
}

#[derive(Debug, Clone, Copy)]
struct SorterEntry {
    start: usize,
    length: u32,
    vid: u64,
}

impl KeySorter {
    /// A sorter without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. Keys longer than 4 GiB are cut, which [`super::INDEX_KEY_BYTES_MAX`] rules out.
    pub fn push(&mut self, key: &[u8], vid: u64) {
        let start = self.key_bytes.len();
        self.key_bytes.extend_from_slice(key);
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        self.entries.push(SorterEntry { start, length, vid });
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

    /// Memory that the keys held take, in bytes. What is kept for the next ones is not counted: a budget asks whether
    /// it is time to drain, and that frees none of it.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let entries = self.entries.len().saturating_mul(size_of::<SorterEntry>());
        self.key_bytes.len().saturating_add(entries)
    }

    /// Hands `each` all keys, ascending by key and then by VID, and forgets them; memory is kept for the next.
    ///
    /// # Errors
    /// The first error of `each`, which ends the hand-over; the keys are forgotten even so.
    pub fn drain_sorted<E>(
        &mut self,
        mut each: impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let key_bytes = std::mem::take(&mut self.key_bytes);
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|one, other| {
            (one.key(&key_bytes), one.vid).cmp(&(other.key(&key_bytes), other.vid))
        });
        let result = entries.iter().try_for_each(|entry| each(entry.key(&key_bytes), entry.vid));
        (self.key_bytes, self.entries) = (key_bytes, entries);
        self.key_bytes.clear();
        self.entries.clear();
        result
    }
}

impl SorterEntry {
    fn key(self, key_bytes: &[u8]) -> &[u8] {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        key_bytes.get(self.start..self.start.saturating_add(length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
