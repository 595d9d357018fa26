//! Reads pages of a run without the run's directory: names of pages in, their entries out, in order.
//!
//! A device that only knows where pages lie reads an index this way. Invariant: at most as many pages are in memory as
//! the cursor may read at once. Deliberately absent: fences, so the cursor cannot skip pages, and a check of the order,
//! which the merge makes.

#![deny(clippy::indexing_slicing)]

use std::collections::VecDeque;

use super::run::{KEY_COLUMNS, KeyBlock, decode_keys};
use crate::error::StoreError;
use crate::page_source::{PageRead, PageRef, PageSource, SegmentRef};

/// A scan of some pages of a run.
#[derive(Debug, Clone)]
pub struct PageCursor {
    segment: SegmentRef,
    pages: VecDeque<PageRef>,
    at_once: usize,
    blocks: VecDeque<KeyBlock>,
}

impl PageCursor {
    /// A scan of `pages` of `segment`, in their order, reading `at_once` pages at once.
    #[must_use]
    pub fn new(segment: SegmentRef, pages: Vec<PageRef>, at_once: usize) -> Self {
        let (pages, at_once) = (pages.into(), at_once.max(1));
        Self { segment, pages, at_once, blocks: VecDeque::new() }
    }

    /// The entries of the next page; None after the last.
    ///
    /// # Errors
    /// Errors of `pages`, or [`StoreError::Frame`] for a page that is none of an index.
    pub async fn next(&mut self, pages: &dyn PageSource) -> Result<Option<KeyBlock>, StoreError> {
        if self.blocks.is_empty() {
            let count = self.at_once.min(self.pages.len());
            let read =
                |page| PageRead { segment: self.segment, page, columns: KEY_COLUMNS.to_vec() };
            let reads: Vec<PageRead> = self.pages.drain(..count).map(read).collect();
            if reads.is_empty() {
                return Ok(None);
            }
            let answers = pages.read(reads.clone()).await?;
            if answers.len() != reads.len() {
                let reason = format!("{} answers to {} reads", answers.len(), reads.len());
                return Err(StoreError::Mismatch { what: "reading an index run", reason });
            }
            for (read, page) in reads.iter().zip(&answers) {
                self.blocks.push_back(decode_keys(read, page)?);
            }
        }
        Ok(self.blocks.pop_front())
    }
}

#[cfg(test)]
mod tests;
