//! The pages of a snapshot that can have versions: those that the newest catalog version has too.
//!
//! ```text
//!  pages of a tablet as a statement reads it:   0 … 4999 │ 5000 … 9999 │ 10000 … 10120 │ 10121 … 10130
//!                                               settled  │ settled     │ a last page,  │ the delta, shipped;
//!                                                        │             │ longer by now │ own rows of the block
//!                                                        └── a fragment changes them   └── row by row
//! ```
//!
//! Rows are appended, so the others are nearly always the last ones of a tablet. An update fragment gets the pages that
//! begin before the first of them; the statement changes the rows from there on row by row.
//!
//! Source: `docs/design/versions-and-commit.md`, "Page versions beside writers".

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::{TableState, TabletState};
use cleave_store::{PageEntry, SegmentDirectory};

use super::page_versions::is_same_place;

/// For each tablet of `table`, the first VID of a page that `newest` does not have in its place, nor a version of it;
/// `u64::MAX` where it has all. Rows from the VIDs `ends` on are not committed.
#[must_use]
pub fn unsettled_from(table: &TableState, newest: &TableState, ends: &[u64]) -> Vec<u64> {
    unknown_from(table, newest, |(place, segment), entry, same| {
        // A page of a block can have own rows behind committed ones, and as many rows as the newest one has by now.
        let end = ends.get(place).copied().unwrap_or_default();
        !segment.segment.is_shipped()
            && entry.vid_end() <= end
            && is_same_place(&same.page, &entry.page)
            && same.gaps == entry.gaps
    })
}

/// For each tablet of `table`, the first VID of a page of which `known` has none that begins with it, or `is_same` says
/// that it is another one; `u64::MAX` where there is no such page. It is asked with the place of the tablet, the
/// segment and the page, and that of `known`.
pub(crate) fn unknown_from(
    table: &TableState,
    known: &TableState,
    is_same: impl Fn((usize, &SegmentDirectory), &PageEntry, &PageEntry) -> bool,
) -> Vec<u64> {
    let first_of = |(place, tablet): (usize, &Arc<TabletState>)| {
        let known = known.tablets.get(place).map(|known| by_first_vid(known)).unwrap_or_default();
        let unknown = tablet.heap.iter().flat_map(|segment| {
            segment.pages.iter().filter(|entry| {
                let same = known.get(&entry.vid_first);
                !same.is_some_and(|same| is_same((place, segment), entry, same))
            })
        });
        unknown.map(|entry| entry.vid_first).min().unwrap_or(u64::MAX)
    };
    table.tablets.iter().enumerate().map(first_of).collect()
}

/// The rows of `table`, dead ones included, on pages that begin, in each tablet, with the VID in `vids_from` or a
/// greater one.
#[must_use]
pub fn rows_from(table: &TableState, vids_from: &[u64]) -> u64 {
    let tablets = table.tablets.iter().zip(vids_from);
    let rows = tablets.flat_map(|(tablet, first)| {
        let pages = tablet.heap.iter().flat_map(|segment| &segment.pages);
        let behind = pages.filter(move |entry| entry.vid_first >= *first);
        behind.map(|entry| u64::from(entry.page.row_count))
    });
    rows.sum()
}

fn by_first_vid(tablet: &TabletState) -> BTreeMap<u64, &PageEntry> {
    let pages = tablet.heap.iter().flat_map(|segment| &segment.pages);
    pages.map(|entry| (entry.vid_first, entry)).collect()
}
