//! A set of VIDs that may have millions: a sorted list while it is small, then chunks of 64 Ki VIDs, each a list or a
//! bitmap.
//!
//! A dead row takes one bit to two bytes, whatever the row is. Clones share chunks, and copy one when it changes, so
//! that a savepoint costs a reference for each of them.
//!
//! Source: Chambi, Lemire and others, "Better bitmap performance with Roaring bitmaps" (2016).

use std::collections::BTreeMap;
use std::sync::Arc;

/// VIDs up to which a set is one list.
const FEW_MAX: usize = 64;
/// Bits of a VID within its chunk.
const CHUNK_BITS: u32 = 16;
/// VIDs of a chunk up to which they are a list: there it takes as much as the bits.
const LIST_MAX: usize = 4096;
/// Words of the bits of a chunk.
const WORDS: usize = (1 << CHUNK_BITS) / 64;
/// What a chunk takes beside its VIDs, about: its place in the map, its counters and lengths.
const CHUNK_BYTES: usize = 96;

/// See the module's description.
#[derive(Debug, Clone)]
pub struct VidSet(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// Sorted.
    Few(Vec<u64>),
    Many {
        /// By the upper bits of their VIDs; none is empty.
        chunks: BTreeMap<u64, Arc<Chunk>>,
        count: usize,
    },
}

/// Lower bits of VIDs.
#[derive(Debug, Clone)]
enum Chunk {
    /// Sorted.
    List(Vec<u16>),
    Bits(Box<[u64]>),
}

impl Default for VidSet {
    fn default() -> Self {
        Self(Kind::Few(Vec::new()))
    }
}

impl VidSet {
    /// How many VIDs these are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Few(vids) => vids.len(),
            Kind::Many { count, .. } => *count,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that they take, about.
    pub fn byte_count(&self) -> usize {
        match &self.0 {
            Kind::Few(vids) => vids.capacity() * size_of::<u64>(),
            Kind::Many { chunks, .. } => {
                chunks.values().map(|chunk| CHUNK_BYTES + chunk.byte_count()).sum()
            }
        }
    }

    /// Whether `vid` is one of them.
    pub fn contains(&self, vid: u64) -> bool {
        match &self.0 {
            Kind::Few(vids) => vids.binary_search(&vid).is_ok(),
            Kind::Many { chunks, .. } => {
                let (number, offset) = split(vid);
                chunks.get(&number).is_some_and(|chunk| chunk.contains(offset))
            }
        }
    }

    /// Adds `vid`; returns whether it is new.
    pub fn insert(&mut self, vid: u64) -> bool {
        match &mut self.0 {
            Kind::Few(vids) => {
                let place = match vids.last() {
                    Some(last) if *last < vid => Err(vids.len()),
                    _ => vids.binary_search(&vid),
                };
                let Err(place) = place else { return false };
                if vids.len() < FEW_MAX {
                    vids.insert(place, vid);
                    return true;
                }
                let few = std::mem::take(vids);
                self.0 = Kind::Many { chunks: BTreeMap::new(), count: 0 };
                few.into_iter().for_each(|vid| {
                    self.insert(vid);
                });
                self.insert(vid)
            }
            Kind::Many { chunks, count } => {
                let (number, offset) = split(vid);
                let chunk = chunks.entry(number).or_insert_with(|| Arc::new(Chunk::empty()));
                if chunk.contains(offset) {
                    return false;
                }
                Arc::make_mut(chunk).insert(offset);
                *count += 1;
                true
            }
        }
    }

    /// Adds all of `vids`.
    pub fn extend(&mut self, vids: impl IntoIterator<Item = u64>) {
        vids.into_iter().for_each(|vid| {
            self.insert(vid);
        });
    }

    /// Adds all of `others`.
    pub fn merge(&mut self, others: &Self) {
        if self.is_empty() {
            *self = others.clone();
            return;
        }
        let (Kind::Many { chunks, count }, Kind::Many { chunks: others, .. }) =
            (&mut self.0, &others.0)
        else {
            self.extend(others.iter());
            return;
        };
        for (number, other) in others {
            let Some(chunk) = chunks.get_mut(number) else {
                chunks.insert(*number, Arc::clone(other));
                *count += other.len();
                continue;
            };
            let before = chunk.len();
            let chunk = Arc::make_mut(chunk);
            for offset in other.iter() {
                if !chunk.contains(offset) {
                    chunk.insert(offset);
                }
            }
            *count += chunk.len().saturating_sub(before);
        }
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (few, many) = match &self.0 {
            Kind::Few(vids) => (Some(vids), None),
            Kind::Many { chunks, .. } => (None, Some(chunks)),
        };
        let few = few.into_iter().flatten().copied();
        let many = many.into_iter().flatten().flat_map(|(number, chunk)| {
            let first = number << CHUNK_BITS;
            chunk.iter().map(move |offset| first | u64::from(offset))
        });
        few.chain(many)
    }

    /// Those below `vid`.
    pub fn below(&self, vid: u64) -> Self {
        match &self.0 {
            Kind::Many { chunks, .. } => {
                let (number, _) = split(vid);
                let whole = chunks.range(..number).map(|(at, chunk)| (*at, Arc::clone(chunk)));
                let chunks: BTreeMap<u64, Arc<Chunk>> = whole.collect();
                let count = chunks.values().map(|chunk| chunk.len()).sum();
                let mut below = Self(Kind::Many { chunks, count });
                below.extend(self.of_chunk(number).take_while(|known| *known < vid));
                below
            }
            Kind::Few(vids) => vids.iter().copied().filter(|known| *known < vid).collect(),
        }
    }

    /// Those from `vid` on, ascending.
    pub fn from(&self, vid: u64) -> impl Iterator<Item = u64> + '_ {
        let (few, many) = match &self.0 {
            Kind::Few(vids) => (Some(vids), None),
            Kind::Many { chunks, .. } => (None, Some(chunks)),
        };
        let few = few.into_iter().flatten().copied();
        let many = many.into_iter().flat_map(move |chunks| chunks.range(split(vid).0..));
        let many = many.flat_map(|(number, chunk)| {
            let first = number << CHUNK_BITS;
            chunk.iter().map(move |offset| first | u64::from(offset))
        });
        few.chain(many).skip_while(move |known| *known < vid)
    }

    /// Removes those from `vid` on, and returns them.
    pub fn split_off(&mut self, vid: u64) -> Self {
        let behind: Self = self.from(vid).collect();
        if !behind.is_empty() {
            *self = self.below(vid);
        }
        behind
    }

    fn of_chunk(&self, number: u64) -> impl Iterator<Item = u64> + '_ {
        let chunk = match &self.0 {
            Kind::Few(_) => None,
            Kind::Many { chunks, .. } => chunks.get(&number),
        };
        let first = number << CHUNK_BITS;
        chunk
            .into_iter()
            .flat_map(|chunk| chunk.iter())
            .map(move |offset| first | u64::from(offset))
    }
}

impl Chunk {
    fn empty() -> Self {
        Self::List(Vec::new())
    }

    fn len(&self) -> usize {
        match self {
            Self::List(offsets) => offsets.len(),
            Self::Bits(words) => {
                let ones = words.iter().map(|word| word.count_ones());
                usize::try_from(ones.sum::<u32>()).unwrap_or(usize::MAX)
            }
        }
    }

    fn byte_count(&self) -> usize {
        match self {
            Self::List(offsets) => offsets.capacity() * size_of::<u16>(),
            Self::Bits(_) => WORDS * size_of::<u64>(),
        }
    }

    fn contains(&self, offset: u16) -> bool {
        match self {
            Self::List(offsets) => match offsets.last() {
                Some(last) if *last < offset => false,
                _ => offsets.binary_search(&offset).is_ok(),
            },
            Self::Bits(words) => {
                let word = words.get(usize::from(offset / 64)).copied().unwrap_or_default();
                word & (1 << (offset % 64)) != 0
            }
        }
    }

    /// Adds one that is not there.
    fn insert(&mut self, offset: u16) {
        match self {
            Self::List(offsets) if offsets.len() < LIST_MAX => {
                let place = offsets.partition_point(|known| *known < offset);
                offsets.insert(place, offset);
            }
            Self::List(offsets) => {
                let offsets = std::mem::take(offsets);
                *self = Self::Bits(vec![0; WORDS].into());
                offsets.into_iter().chain([offset]).for_each(|offset| self.insert(offset));
            }
            Self::Bits(words) => {
                if let Some(word) = words.get_mut(usize::from(offset / 64)) {
                    *word |= 1 << (offset % 64);
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let (list, words) = match self {
            Self::List(offsets) => (Some(offsets), None),
            Self::Bits(words) => (None, Some(words)),
        };
        let bits = words.into_iter().flat_map(|words| (0..=u16::MAX).step_by(64).zip(words.iter()));
        let bits = bits.flat_map(|(first, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = u16::try_from(left.trailing_zeros()).ok().filter(|bit| *bit < 64)?;
                left &= left.wrapping_sub(1);
                Some(first | bit)
            })
        });
        list.into_iter().flatten().copied().chain(bits)
    }
}

impl PartialEq for VidSet {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for VidSet {}

impl FromIterator<u64> for VidSet {
    fn from_iter<T: IntoIterator<Item = u64>>(vids: T) -> Self {
        let mut all = Self::default();
        all.extend(vids);
        all
    }
}

/// The chunk of a VID, and the place in it.
fn split(vid: u64) -> (u64, u16) {
    (vid >> CHUNK_BITS, u16::try_from(vid & 0xffff).unwrap_or_default())
}

#[cfg(test)]
mod tests;
