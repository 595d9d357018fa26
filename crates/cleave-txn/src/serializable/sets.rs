//! The read and write sets of a transaction: objects, spans of keys and keys in; whether two sets meet out.
//!
//! An object may have several key spaces (its indexes); each of its rows has one key in each. A span that was read
//! meets a write if a key of the write in that space lies in it, or if the write tells no keys of that space.
//!
//! Invariant: sets only grow; with too many parts they become coarser.

use std::collections::{BTreeMap, BTreeSet};

/// Most keys or spans of one object that are kept; beyond, the whole object counts.
const PARTS_MAX: usize = 1000;

/// Keys of one key space of an object, with or without rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySpan {
    /// The key space.
    pub space: u32,
    /// Inclusive lower bound.
    pub from: Vec<u8>,
    /// Exclusive upper bound; None: to the last key.
    pub below: Option<Vec<u8>>,
}

/// Rows of an object that are created or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Any rows.
    All,
    /// Rows with one of these keys in each of these key spaces.
    Keys(BTreeMap<u32, BTreeSet<Vec<u8>>>),
}

/// The read set by object; None: all of it.
#[derive(Debug, Default)]
pub(super) struct ReadSet {
    objects: BTreeMap<u64, Option<BTreeSet<KeySpan>>>,
}

/// The write set by object.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    objects: BTreeMap<u64, Written>,
}

impl KeySpan {
    fn contains(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice()
            && self.below.as_ref().is_none_or(|below| key < below.as_slice())
    }
}

impl Written {
    /// Whether one of its rows may lie in `span`.
    fn meets(&self, span: &KeySpan) -> bool {
        let Self::Keys(spaces) = self else { return true };
        let Some(keys) = spaces.get(&span.space) else { return true };
        keys.range(span.from.clone()..).next().is_some_and(|key| span.contains(key))
    }

    fn part_count(&self) -> usize {
        match self {
            Self::All => 0,
            Self::Keys(spaces) => spaces.values().map(BTreeSet::len).sum(),
        }
    }

    /// The union; a key space that only one of them has is dropped, and so counts as unknown.
    fn join(&mut self, other: &Self) {
        let (Self::Keys(own), Self::Keys(others)) = (&mut *self, other) else {
            *self = Self::All;
            return;
        };
        own.retain(|space, _| others.contains_key(space));
        for (space, keys) in own.iter_mut() {
            keys.extend(others.get(space).into_iter().flatten().cloned());
        }
        if own.is_empty() || self.part_count() > PARTS_MAX {
            *self = Self::All;
        }
    }
}

impl ReadSet {
    /// Adds `spans` of `object`; None: all of it.
    pub(super) fn add(&mut self, object: u64, spans: Option<&[KeySpan]>) {
        let known = self.objects.entry(object).or_insert_with(|| Some(BTreeSet::new()));
        match (&mut *known, spans) {
            (Some(own), Some(spans)) if own.len() + spans.len() <= PARTS_MAX => {
                own.extend(spans.iter().cloned());
            }
            _ => *known = None,
        }
    }

    /// Whether the read set may contain something of `written`.
    pub(super) fn meets(&self, object: u64, written: &Written) -> bool {
        match self.objects.get(&object) {
            None => false,
            Some(None) => true,
            Some(Some(spans)) => spans.iter().any(|span| written.meets(span)),
        }
    }

    pub(super) fn part_count(&self) -> usize {
        let parts = self.objects.values().map(|spans| spans.as_ref().map_or(0, BTreeSet::len));
        self.objects.len() + parts.sum::<usize>()
    }

    /// Adds all objects of `other`, without their parts.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.objects.extend(other.objects.keys().map(|object| (*object, None)));
        self.objects.values_mut().for_each(|spans| *spans = None);
    }
}

impl WriteSet {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn add(&mut self, object: u64, written: &Written) {
        match self.objects.get_mut(&object) {
            Some(known) => known.join(written),
            None => {
                let is_large = written.part_count() > PARTS_MAX;
                let written = if is_large { Written::All } else { written.clone() };
                self.objects.insert(object, written);
            }
        }
    }

    /// Whether the write set has something of these `spans` of `object`; None: of all of it.
    pub(super) fn meets(&self, object: u64, spans: Option<&[KeySpan]>) -> bool {
        match (self.objects.get(&object), spans) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(written), Some(spans)) => spans.iter().any(|span| written.meets(span)),
        }
    }

    pub(super) fn part_count(&self) -> usize {
        self.objects.len() + self.objects.values().map(Written::part_count).sum::<usize>()
    }

    /// Adds all objects of `other`, without their rows.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.objects.extend(other.objects.keys().map(|object| (*object, Written::All)));
        self.objects.values_mut().for_each(|written| *written = Written::All);
    }
}
