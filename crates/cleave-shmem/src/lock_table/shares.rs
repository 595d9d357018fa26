//! Counts the host's requests behind each of its slots: private memory, a word an entry.
//!
//! ```text
//! word     busy 1 │ more 1 │ number 30 │ count 32       of the first share; a count of 0: there is
//!                                                       no share, and the number is the last one's
//! ```
//!
//! An entry's word is locked by its own busy bit, for as long as the entry is changed: a mutex would cost as much again
//! as the change. A thread that finds it busy spins, and then yields. Further shares exist only while jobs wait between
//! them, so they lie apart, in a map.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::sync::atomic::{AtomicU64, Ordering};
use super::sync::{Mutex, spin_loop, yield_now};

const BUSY: u64 = 1 << 63;
const MORE: u64 = 1 << 62;
const COUNT: u64 = u32::MAX as u64;
const NUMBER_MAX: u32 = u32::MAX >> 2;
/// Spins on a busy word before a yield.
const LOOKS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 64 };

/// So many words, whose memory is not touched before they are used.
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "words that are written one by one would all be in memory")]
fn zeroes(count: u32) -> Box<[AtomicU64]> {
    let words = Box::new_zeroed_slice(count as usize);
    // SAFETY: eight bytes of zeroes are a value of an `AtomicU64`.
    unsafe { words.assume_init() }
}

#[cfg(loom)]
fn zeroes(count: u32) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// The shares of all entries.
#[derive(Debug)]
pub(crate) struct EntryShares {
    words: Box<[AtomicU64]>,
    later: Mutex<BTreeMap<u32, Vec<Share>>>,
}

/// The host's shares of one entry, in the order of its slots there.
#[derive(Debug)]
pub(crate) struct Shares {
    first: Share,
    /// Shares behind waiting jobs.
    later: Vec<Share>,
}

/// Requests that one slot stands for.
#[derive(Debug, Clone, Copy)]
struct Share {
    number: u32,
    count: u32,
}

/// An entry's shares, locked.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    all: &'a EntryShares,
    entry: u32,
    shares: Shares,
}

impl EntryShares {
    pub(crate) fn new(entry_count: u32) -> Self {
        Self { words: zeroes(entry_count), later: Mutex::default() }
    }

    #[inline]
    fn word(&self, entry: u32) -> &AtomicU64 {
        // As many as entries, whose number is a power of two.
        &self.words[entry as usize & (self.words.len() - 1)]
    }

    /// Locks the shares of `entry`.
    pub(crate) fn of(&self, entry: u32) -> Guard<'_> {
        let word = self.word(entry);
        let mut looks = 0;
        let found = loop {
            let found = word.load(Ordering::Relaxed) & !BUSY;
            let taken =
                word.compare_exchange(found, found | BUSY, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                break found;
            }
            looks += 1;
            if looks > LOOKS_BEFORE_YIELD { yield_now() } else { spin_loop() }
        };
        let later = if found & MORE == 0 { Vec::new() } else { self.take_later(entry) };
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let first = Share { number: (found >> 32) as u32 & NUMBER_MAX, count: found as u32 };
        Guard { all: self, entry, shares: Shares { first, later } }
    }

    /// Whether `entry` has no share at this moment.
    pub(crate) fn is_free(&self, entry: u32) -> bool {
        self.word(entry).load(Ordering::Relaxed) & (BUSY | MORE | COUNT) == 0
    }

    /// Opens the first share of `entry`, which has none, if `puts` can put its slot there; returns its number. A fast
    /// path of [`EntryShares::of`] for the most frequent case.
    #[inline]
    pub(crate) fn open_first(&self, entry: u32, puts: impl FnOnce() -> bool) -> Option<u32> {
        let word = self.word(entry);
        let found = word.load(Ordering::Relaxed);
        // Neither busy nor more, and a count of 0.
        if found & (BUSY | MORE | COUNT) != 0 {
            return None;
        }
        word.compare_exchange(found, found | BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let number = (found >> 32).wrapping_add(1) & u64::from(NUMBER_MAX);
        let is_put = puts();
        word.store(if is_put { number << 32 | 1 } else { found }, Ordering::Release);
        is_put.then_some(number as u32)
    }

    /// Ends share `number` of `entry` if it has one request and is the only one, and `takes` can remove its slot;
    /// returns whether it did. As [`EntryShares::open_first`].
    #[inline]
    pub(crate) fn end_only(&self, entry: u32, number: u32, takes: impl FnOnce() -> bool) -> bool {
        let word = self.word(entry);
        let only = u64::from(number) << 32 | 1;
        if word.compare_exchange(only, only | BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let is_taken = takes();
        word.store(if is_taken { only & !COUNT } else { only }, Ordering::Release);
        is_taken
    }

    #[cold]
    fn take_later(&self, entry: u32) -> Vec<Share> {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        later.remove(&entry).unwrap_or_default()
    }

    #[cold]
    fn put_later(&self, entry: u32, shares: Vec<Share>) {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        later.insert(entry, shares);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Share { number, count } = self.shares.first;
        let mut word = u64::from(number) << 32 | u64::from(count);
        if !self.shares.later.is_empty() {
            self.all.put_later(self.entry, std::mem::take(&mut self.shares.later));
            word |= MORE;
        }
        self.all.word(self.entry).store(word, Ordering::Release);
    }
}

impl Deref for Guard<'_> {
    type Target = Shares;

    fn deref(&self) -> &Shares {
        &self.shares
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }
}

impl Shares {
    fn all(&self) -> impl Iterator<Item = &Share> {
        Some(&self.first).filter(|share| share.count > 0).into_iter().chain(&self.later)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.count == 0
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.later.len()
    }

    /// The number of the share whose slot comes first.
    pub(crate) fn first(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.first.number)
    }

    /// The index of share `number`.
    pub(crate) fn index_of(&self, number: u32) -> Option<usize> {
        if self.first() == Some(number) {
            return Some(0);
        }
        self.all().position(|share| share.number == number)
    }

    fn last_mut(&mut self) -> &mut Share {
        self.later.last_mut().unwrap_or(&mut self.first)
    }

    /// Adds a request in a new share; returns its number.
    pub(crate) fn open(&mut self) -> u32 {
        let number = self.last_mut().number.wrapping_add(1) & NUMBER_MAX;
        let share = Share { number, count: 1 };
        if self.is_empty() {
            self.first = share;
        } else {
            self.later.push(share);
        }
        number
    }

    /// Adds a request to the last share; returns its number.
    pub(crate) fn join_last(&mut self) -> u32 {
        let share = self.last_mut();
        share.count = share.count.saturating_add(1);
        share.number
    }

    /// Adds a request to the first share.
    pub(crate) fn join_first(&mut self) {
        self.first.count = self.first.count.saturating_add(1);
    }

    /// Removes a request from share `number`; returns the share's index if that was its last.
    pub(crate) fn leave(&mut self, number: u32) -> Option<usize> {
        let index = self.index_of(number)?;
        let share = match index.checked_sub(1) {
            None => &mut self.first,
            Some(later) => self.later.get_mut(later)?,
        };
        if share.count > 1 {
            share.count -= 1;
            return None;
        }
        Some(index)
    }

    /// Removes the share at `index`.
    pub(crate) fn remove(&mut self, index: usize) {
        match index.checked_sub(1) {
            Some(later) => drop(self.later.remove(later)),
            None if self.later.is_empty() => self.first.count = 0,
            None => self.first = self.later.remove(0),
        }
    }
}
