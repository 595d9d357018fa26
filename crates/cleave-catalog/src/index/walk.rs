//! Reads the first entries of an index in key order: from memtable and runs, and merged in the same way with other
//! sources of rows with the same keys.

use std::cmp::Ordering;

use cleave_store::{PageSource, Walk};

use super::{TabletIndex, read};
use crate::catalog::TabletState;
use crate::error::Result;

/// Results in key order, or in reverse.
#[derive(Debug)]
pub struct Walked<T> {
    /// The encoded key of each, and its result.
    pub entries: Vec<(Vec<u8>, T)>,
    /// Whether there may be more behind the last.
    pub is_cut: bool,
}

impl<T> Walked<T> {
    /// The results of one source that stops at `limit`.
    pub fn of(entries: Vec<(Vec<u8>, T)>, limit: usize) -> Self {
        let is_cut = entries.len() >= limit;
        Self { entries, is_cut }
    }

    /// The results of all sources, up to where the first of them stopped.
    pub fn merged(sources: Vec<Self>, backward: bool) -> Self {
        let order = |one: &[u8], other: &[u8]| match backward {
            false => one.cmp(other),
            true => other.cmp(one),
        };
        let ends = sources.iter().filter(|source| source.is_cut);
        let ends = ends.filter_map(|source| source.entries.last().map(|(key, _)| key.clone()));
        let end = ends.min_by(|one, other| order(one, other));
        let mut sources = sources.into_iter();
        let Some(first) = sources.next() else {
            return Self { entries: Vec::new(), is_cut: false };
        };
        let mut entries = first.entries;
        let before = entries.len();
        entries.extend(sources.flat_map(|source| source.entries));
        if entries.len() > before {
            entries.sort_by(|(one, _), (other, _)| order(one, other));
        }
        if let Some(end) = &end {
            entries
                .truncate(entries.partition_point(|(key, _)| order(key, end) != Ordering::Greater));
        }
        Self { entries, is_cut: end.is_some() }
    }
}

impl TabletIndex {
    /// The entries of `walk` whose rows `is_wanted` accepts, in its order, and those equal to the last; None if too
    /// many pages lie before them. `is_search_key`: the range is that of one search key.
    ///
    /// # Errors
    /// Errors of reading pages.
    pub async fn walk(
        &self,
        tablet: &TabletState,
        pages: &dyn PageSource,
        (walk, is_search_key): (&Walk<'_>, bool),
        is_wanted: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Option<Walked<u64>>> {
        let in_memtable = {
            let memtable = read(self.memtable(tablet, pages).await?);
            memtable.walk(walk, is_wanted)
        };
        let mut sources = vec![Walked::of(in_memtable, walk.limit)];
        for run in &self.runs {
            if is_search_key && !run.may_have(&walk.range.from) {
                continue;
            }
            match run.walk(pages, walk, is_wanted).await? {
                Some(entries) => sources.push(Walked::of(entries, walk.limit)),
                None => return Ok(None),
            }
        }
        Ok(Some(Walked::merged(sources, walk.backward)))
    }
}
