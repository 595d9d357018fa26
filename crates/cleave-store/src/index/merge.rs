//! Merges sorted keys: a memtable and runs in, one ascending stream of blocks out.
//!
//! ```text
//!   Memtable ─▶ block ─┐
//!   Run ──page─▶ block ─┼─ least key first ─▶ KeyBlock of at most 8,192 entries
//!   Run ──page─▶ block ─┘
//! ```
//!
//! 1. Each input holds one block; `order` lists the inputs by the key at which their blocks stand.
//! 2. The first of them gives its entry, steps, and is put back by binary search: log k comparisons an entry.
//! 3. An input whose block is used up asks its source for the next one.
//!
//! Invariant: memory is bounded by the inputs' blocks and the one under construction, whatever the length of the
//! stream. Equal keys come in the order of the inputs. A merge for a unique index refuses them or, if a row may have
//! reused the key of a dead one, keeps only the newest ([`KeyMerge::of_newest`]).

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, BinaryBuilder, UInt64Array};

use super::memtable::Memtable;
use super::page_cursor::PageCursor;
use super::run::{KeyBlock, RunCursor};
use crate::error::StoreError;
use crate::frame::FrameError;
use crate::page_source::PageSource;

/// Most entries of a block.
pub const BLOCK_ENTRY_COUNT_MAX: usize = 8192;
/// Key bytes at which a block ends.
const BLOCK_KEY_BYTES: usize = 256 << 10;

/// A stream of sorted keys that a merge reads.
#[derive(Debug)]
pub enum MergeSource {
    /// A memtable, from its first key on.
    Memtable(Arc<Memtable>),
    /// A run, from the cursor's position on.
    Run(RunCursor),
    /// Pages of a run whose directory is not known.
    Pages(PageCursor),
}

/// A merge under way.
#[derive(Debug)]
pub struct KeyMerge {
    inputs: Vec<Input>,
    /// Inputs that have an entry, the one with the least key last.
    order: Vec<usize>,
    started: bool,
    equal: EqualKeys,
    last: Option<(Vec<u8>, u64)>,
}

/// What to do with equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EqualKeys {
    Kept,
    Refused,
    /// Keep only the entry of the greatest VID.
    Newest,
}

/// A source, and its current block.
#[derive(Debug)]
struct Input {
    source: MergeSource,
    block: KeyBlock,
    position: usize,
    /// Last key taken from a memtable.
    memtable_last: Option<Vec<u8>>,
}

impl KeyMerge {
    /// A merge of `sources`, older ones first. `unique`: equal keys are an error.
    #[must_use]
    pub fn new(sources: Vec<MergeSource>, unique: bool) -> Self {
        let input =
            |source| Input { source, block: KeyBlock::empty(), position: 0, memtable_last: None };
        let inputs = sources.into_iter().map(input).collect();
        let equal = if unique { EqualKeys::Refused } else { EqualKeys::Kept };
        Self { inputs, order: Vec::new(), started: false, equal, last: None }
    }

    /// A merge of `sources` that leaves one entry of each key: that of the newest row, which has the greatest VID.
    #[must_use]
    pub fn of_newest(sources: Vec<MergeSource>) -> Self {
        Self { equal: EqualKeys::Newest, ..Self::new(sources, false) }
    }

    /// The next entries, ascending; None after the last.
    ///
    /// # Errors
    /// Errors of `pages`; [`StoreError::DuplicateKey`] where keys must be unique and are not; [`StoreError::Frame`]
    /// for a run that is not sorted. The merge is over then.
    pub async fn next(&mut self, pages: &dyn PageSource) -> Result<Option<KeyBlock>, StoreError> {
        let next = self.fill(pages).await;
        if next.is_err() {
            self.order.clear();
            self.started = true;
        }
        next
    }

    async fn fill(&mut self, pages: &dyn PageSource) -> Result<Option<KeyBlock>, StoreError> {
        if !self.started {
            self.started = true;
            for index in 0..self.inputs.len() {
                self.refill(index, pages).await?;
            }
        }
        let (mut keys, mut vids, mut key_bytes) = (BinaryBuilder::new(), Vec::new(), 0usize);
        while (vids.len() < BLOCK_ENTRY_COUNT_MAX && key_bytes < BLOCK_KEY_BYTES)
            || (self.equal == EqualKeys::Newest && self.is_next_equal())
        {
            let Some(index) = self.order.pop() else { break };
            let Some(input) = self.inputs.get_mut(index) else { break };
            let Some((key, vid)) = input.entry() else { break };
            let unique = self.equal == EqualKeys::Refused;
            check_order(self.last.as_ref(), key, vid, unique)?;
            let is_equal = self.last.as_ref().is_some_and(|(last, _)| last == key);
            match vids.last_mut() {
                Some(newest) if is_equal && self.equal == EqualKeys::Newest => {
                    *newest = vid.max(*newest);
                }
                _ => {
                    keys.append_value(key);
                    vids.push(vid);
                    key_bytes = key_bytes.saturating_add(key.len());
                }
            }
            let (last, last_vid) = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            *last_vid = vid;
            input.position = input.position.saturating_add(1);
            if input.entry().is_some() {
                self.put_back(index);
            } else {
                self.refill(index, pages).await?;
            }
        }
        if vids.is_empty() {
            return Ok(None);
        }
        Ok(Some(KeyBlock { keys: keys.finish(), vids: UInt64Array::from(vids) }))
    }

    /// Whether the next entry has the key of the last one.
    fn is_next_equal(&self) -> bool {
        let next = self.order.last().and_then(|index| self.inputs.get(*index)?.entry());
        next.zip(self.last.as_ref()).is_some_and(|((key, _), (last, _))| key == last)
    }

    /// Reads the next block of an input, and puts the input in order unless it is exhausted.
    async fn refill(&mut self, index: usize, pages: &dyn PageSource) -> Result<(), StoreError> {
        let Some(input) = self.inputs.get_mut(index) else { return Ok(()) };
        let block = match &mut input.source {
            MergeSource::Memtable(memtable) => {
                let block = memtable_block(memtable, input.memtable_last.as_deref());
                input.memtable_last =
                    block.as_ref().and_then(KeyBlock::last_key).map(<[u8]>::to_vec);
                block
            }
            MergeSource::Run(cursor) => cursor.next(pages).await?,
            MergeSource::Pages(cursor) => cursor.next(pages).await?,
        };
        if let Some(block) = block.filter(|block| !block.is_empty()) {
            input.block = block;
            input.position = 0;
            self.put_back(index);
        }
        Ok(())
    }

    fn put_back(&mut self, index: usize) {
        let entry = |index: usize| self.inputs.get(index).and_then(Input::entry);
        let key = entry(index).map(|(key, _)| key);
        let at = self.order.partition_point(|other| {
            let other_key = entry(*other).map(|(key, _)| key);
            // Descending; of equal keys the input given first comes out first.
            other_key.cmp(&key).then(other.cmp(&index)) == Ordering::Greater
        });
        self.order.insert(at, index);
    }
}

impl Input {
    fn entry(&self) -> Option<(&[u8], u64)> {
        self.block.entry(self.position)
    }
}

/// Refuses a key below the last one, and where keys are unique, one equal to it.
fn check_order(
    last: Option<&(Vec<u8>, u64)>,
    key: &[u8],
    vid: u64,
    unique: bool,
) -> Result<(), StoreError> {
    let Some((last_key, last_vid)) = last else { return Ok(()) };
    match key.cmp(last_key) {
        Ordering::Less => Err(StoreError::Frame(FrameError::Malformed {
            name: "index run",
            reason: format!("the key of row {vid} is below that of row {last_vid} before it"),
        })),
        Ordering::Equal if unique => {
            Err(StoreError::DuplicateKey { first: *last_vid, second: vid, key: key.to_vec() })
        }
        _ => Ok(()),
    }
}

fn memtable_block(memtable: &Memtable, after: Option<&[u8]>) -> Option<KeyBlock> {
    let entries = memtable
        .iter_from(after)
        .skip_while(|(key, _)| after == Some(*key))
        .take(BLOCK_ENTRY_COUNT_MAX);
    let (mut keys, mut vids) = (BinaryBuilder::new(), Vec::new());
    for (key, vid) in entries {
        keys.append_value(key);
        vids.push(vid);
    }
    let keys = keys.finish();
    (!keys.is_empty()).then(|| KeyBlock { keys, vids: UInt64Array::from(vids) })
}

#[cfg(test)]
mod tests;
