//! What a transaction has read and written: objects, spans of keys and keys in; whether the two meet out.
//!
//! An object may have several key spaces (its indexes); each of its rows has one key in each. A span of keys that is
//! read meets what is written if a key of that space lies in it, or if nothing is known of that space.
//!
//! Invariant: sets only grow, by becoming coarser where they have too many parts.

use std::collections::{BTreeMap, BTreeSet};

/// Keys or spans of one object that are told apart; beyond, all of it counts.
const PARTS_MAX: usize = 1000;

/// Keys of one key space of an object, which may have rows or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySpan {
    /// The key space.
    pub space: u32,
    /// The keys are not below this.
    pub from: Vec<u8>,
    /// They are below this; None: to the last.
    pub below: Option<Vec<u8>>,
}

/// Rows of an object that end or begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Any.
    All,
    /// Those with one of these keys in each of these key spaces.
    Keys(BTreeMap<u32, BTreeSet<Vec<u8>>>),
}

/// What was read, by object; None: all of it.
#[derive(Debug, Default)]
pub(super) struct ReadSet {
    objects: BTreeMap<u64, Option<BTreeSet<KeySpan>>>,
}

/// What was written, by object.
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

    /// Both; of key spaces that only one of them tells, nothing is known.
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

    /// Whether something of `written` may be in it.
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

    /// Adds all objects of `other`, and forgets which parts of them.
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

    /// Whether something of these `spans` of `object` is in it; None: all of it.
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

    /// Adds all objects of `other`, and forgets which rows of them.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.objects.extend(other.objects.keys().map(|object| (*object, Written::All)));
        self.objects.values_mut().for_each(|written| *written = Written::All);
    }
}
