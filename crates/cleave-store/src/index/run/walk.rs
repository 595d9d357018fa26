//! Reads the first or the last few entries of a key range, in order.
//!
//! Invariant: a walk reads no more pages than its result needs, and [`WALK_PAGE_COUNT_MAX`] at most.

use super::{KeyBlock, KeyRange, READ_PAGE_COUNT, Run};
use crate::error::StoreError;
use crate::page_source::PageSource;

/// Most pages that a walk reads: a range with almost no wanted entries is better scanned.
pub const WALK_PAGE_COUNT_MAX: usize = 64;

/// A request for the first or last entries of a range.
#[derive(Debug)]
pub struct Walk<'a> {
    /// The range.
    pub range: &'a KeyRange,
    /// From the end of the range backwards.
    pub backward: bool,
    /// Most entries that are wanted.
    pub limit: usize,
}

/// An entry: its key, and its row.
pub type IndexEntry = (Vec<u8>, u64);

impl Walk<'_> {
    /// Adds the wanted ones of `count` entries to `found`, up to the limit; `entry` gives the one at an index.
    pub(in crate::index) fn take<'e>(
        &self,
        count: usize,
        entry: impl Fn(usize) -> Result<(&'e [u8], u64), StoreError>,
        is_wanted: &(dyn Fn(u64) -> bool + Sync),
        found: &mut Vec<IndexEntry>,
    ) -> Result<(), StoreError> {
        for step in 0..count {
            if found.len() >= self.limit {
                break;
            }
            let place =
                if self.backward { count.saturating_sub(step).saturating_sub(1) } else { step };
            let (key, vid) = entry(place)?;
            if is_wanted(vid) {
                found.push((key.to_vec(), vid));
            }
        }
        Ok(())
    }

    /// As [`Walk::take`], for a decoded page.
    fn block(
        &self,
        block: &KeyBlock,
        is_wanted: &(dyn Fn(u64) -> bool + Sync),
        found: &mut Vec<IndexEntry>,
    ) -> Result<(), StoreError> {
        let block = block.from_key(&self.range.from);
        let block = match &self.range.below {
            Some(below) => block.below_key(below),
            None => block,
        };
        let entry = |place| {
            block.entry(place).ok_or_else(|| StoreError::Mismatch {
                what: "reading an index run",
                reason: format!("there is no entry {place}"),
            })
        };
        self.take(block.len(), entry, is_wanted, found)
    }
}

impl Run {
    /// The entries of `walk` whose rows `is_wanted` accepts, in its order; None if too many pages lie before them.
    ///
    /// # Errors
    /// As [`Run::get`].
    pub async fn walk(
        &self,
        pages: &dyn PageSource,
        walk: &Walk<'_>,
        is_wanted: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Option<Vec<IndexEntry>>, StoreError> {
        let mut found = Vec::new();
        let mut indices = self.pages_of(walk.range);
        let (mut page_count, mut group_count) = (0_usize, 1);
        while found.len() < walk.limit && !indices.is_empty() {
            if page_count >= WALK_PAGE_COUNT_MAX {
                return Ok(None);
            }
            let mut group = Vec::with_capacity(group_count);
            while group.len() < group_count {
                let next = if walk.backward { indices.next_back() } else { indices.next() };
                let Some(next) = next else { break };
                group.push(next);
            }
            page_count = page_count.saturating_add(group.len());
            group_count = group_count.saturating_mul(2).min(READ_PAGE_COUNT);
            for page in self.open(pages, &group).await? {
                match page.entries()? {
                    Some(entries) => entries.walk(walk, is_wanted, &mut found)?,
                    None => walk.block(&page.block(pages).await?, is_wanted, &mut found)?,
                }
            }
        }
        Ok(Some(found))
    }
}
