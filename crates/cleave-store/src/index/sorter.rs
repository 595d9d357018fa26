//! Sorts the keys of a bulk load: keys and VIDs in any order in, ascending out.
//!
//! Keys lie one after the other in one buffer. A key costs its bytes and 32 more: half of those are its first bytes as
//! numbers, which decide most comparisons without access to the buffer. The loader watches [`KeySorter::byte_size`]:
//! beyond its budget it writes a run from [`KeySorter::drain_sorted`] and goes on; at the end it merges the runs. Keys
//! that arrive in order, as in most loads, sort in linear time.
//!
//! Deliberately absent: a check for duplicates. Equal keys come out side by side, and [`super::RunWriter`] refuses
//! the second.

#![deny(clippy::indexing_slicing)]

/// Bits of an entry's position that hold the key's length.
const LENGTH_BITS: u32 = 16;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// Keys that wait to be sorted.
#[derive(Debug, Default)]
pub struct KeySorter {
    key_bytes: Vec<u8>,
    entries: Vec<SorterEntry>,
}

#[derive(Debug, Clone, Copy)]
struct SorterEntry {
    /// The first 16 bytes, big-endian, padded with zeros.
    head: [u64; 2],
    /// Position of the key: its start, and in the low 16 bits its length.
    place: u64,
    vid: u64,
}

impl KeySorter {
    /// A sorter without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. Keys longer than 64 KiB are cut, which [`super::INDEX_KEY_BYTES_MAX`] rules out.
    pub fn push(&mut self, key: &[u8], vid: u64) {
        let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
        let place = (self.key_bytes.len() as u64) << LENGTH_BITS | u64::from(length);
        self.key_bytes.extend_from_slice(key);
        self.entries.push(SorterEntry { head: head(key), place, vid });
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

    /// Memory of the keys in the sorter, in bytes. Spare capacity does not count: draining does not free it.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let entries = self.entries.len().saturating_mul(size_of::<SorterEntry>());
        self.key_bytes.len().saturating_add(entries)
    }

    /// Passes all keys to `each`, ascending by key and then by VID, and removes them; the memory is kept for the next
    /// keys.
    ///
    /// # Errors
    /// The first error of `each`, which stops the iteration; the keys are removed even so.
    pub fn drain_sorted<E>(
        &mut self,
        mut each: impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let key_bytes = std::mem::take(&mut self.key_bytes);
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|one, other| {
            // A short key padded with zeros compares as less or equal: only equal heads need the keys themselves.
            one.head.cmp(&other.head).then_with(|| {
                (one.key(&key_bytes), one.vid).cmp(&(other.key(&key_bytes), other.vid))
            })
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
        let start = usize::try_from(self.place >> LENGTH_BITS).unwrap_or(usize::MAX);
        let length = usize::from(u16::try_from(self.place & LENGTH_MASK).unwrap_or(u16::MAX));
        key_bytes.get(start..start.saturating_add(length)).unwrap_or_default()
    }
}

fn head(key: &[u8]) -> [u64; 2] {
    let mut halves = [[0; 8]; 2];
    for (byte, from) in halves.as_flattened_mut().iter_mut().zip(key) {
        *byte = *from;
    }
    halves.map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests;
