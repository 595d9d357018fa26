//! References to rows whose other columns are fetched later: pages in, references out, and pages again.
//!
//! A scan that emits references enters each page with remaining rows here. A reference is the page's number and the
//! row's slot: a pointer in the terms of the paper, a RecID that is valid within one run, on the side that made it.
//!
//! ```text
//!   reference  number of the page among those of its input 32 │ slot 32
//! ```
//!
//! Where a scan is asked for pages alone, its references are of another kind ([`referred_page`]), and cross cuts.
//!
//! Invariant: a reference to a page that was not entered, or not of this input, is an error. References to rows never
//! cross a cut: they are made and followed within one fragment.
//!
//! Source: hybridNDP §4.4, the pointer cache.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, Field};
use cleave_store::{SegmentId, SegmentRef};
use datafusion_common::{DataFusionError, Result};

use crate::morsel::MorselPage;

/// A page with rows that references name.
#[derive(Debug)]
pub(crate) struct PlacedPage {
    pub(crate) segment: SegmentRef,
    pub(crate) place: MorselPage,
}

/// The referenced pages of a run, by morsel input; see the [module](self).
#[derive(Debug, Default)]
pub struct RowPlaces {
    pages: Mutex<BTreeMap<u32, Vec<Arc<PlacedPage>>>>,
}

/// The reference to a page, which names it on either side: its segment and its number there.
pub(crate) fn page_reference(segment: SegmentId, page: u32) -> u64 {
    u64::from(segment.0) << 32 | u64::from(page)
}

/// The page that `reference`, of a scan that is asked for pages alone, names on either side.
pub fn referred_page(reference: u64) -> (SegmentId, u32) {
    let page = u32::try_from(reference & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (SegmentId(page_of(reference)), page)
}

/// The column of references, which comes last.
pub fn reference_field() -> Field {
    Field::new("row", DataType::UInt64, false)
}

/// The slot that a reference names.
pub(crate) fn slot_of(reference: u64) -> usize {
    usize::try_from(reference & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

/// The number of the page that a reference names.
pub(crate) fn page_of(reference: u64) -> u32 {
    u32::try_from(reference >> 32).unwrap_or(u32::MAX)
}

impl RowPlaces {
    /// Enters a page of `input`, and returns the reference to its first row.
    pub(crate) fn add(&self, input: u32, segment: SegmentRef, place: &MorselPage) -> Result<u64> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = pages.entry(input).or_default();
        let number = u32::try_from(pages.len())
            .map_err(|_| DataFusionError::Internal("a run with more than 2^32 pages".into()))?;
        pages.push(Arc::new(PlacedPage { segment, place: place.clone() }));
        Ok(u64::from(number) << 32)
    }

    /// The page `number` of `input`.
    pub(crate) fn page(&self, input: u32, number: u32) -> Result<Arc<PlacedPage>> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let page = pages.get(&input).and_then(|pages| pages.get(index));
        page.map(Arc::clone).ok_or_else(|| {
            DataFusionError::Internal(format!(
                "a row is referred to on page {number} of input {input}, which the run has not read"
            ))
        })
    }
}
