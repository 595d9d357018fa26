//! Ids of segments, tablets and row versions: small integers, kept apart by type.
//!
//! A row is a VID, a number within its tablet ([`TabletId`], u64); a version of it lies at a [`RecId`].
//!
//! ```text
//! RecId   63        40 39       16 15       0      0: no version
//!         segment:24   page:24     slot:16         segments count from 1
//! ```
//!
//! Source: `docs/design/pages-and-encodings.md`; the Update NDP paper (VIDmap, RecID).

use std::fmt;

use crate::error::StoreError;

/// Highest segment id, highest page number: 24 bits each.
pub const SEGMENT_MAX: u32 = (1 << 24) - 1;
/// The first of the segment ids, up to [`SEGMENT_MAX`], that snapshots give to pages which lie on no media
/// ([`SegmentId::is_shipped`]). They are valid within one statement only; no stored segment has one.
pub const SHIPPED_SEGMENT_FIRST: u32 = SEGMENT_MAX - 0xffff;
/// Highest logical page number in a segment.
pub const PAGE_MAX: u32 = (1 << 24) - 1;

/// A segment of a database, from 1; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// A tablet of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TabletId(pub u32);

/// The place of one version: segment, logical page, slot. Physical addresses are the placement map's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecId(u64);

impl RecId {
    /// The version at `slot` of logical page `page` of `segment`.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`] for segment 0 or beyond [`SEGMENT_MAX`], or a page beyond [`PAGE_MAX`].
    pub fn new(segment: SegmentId, page: u32, slot: u16) -> Result<Self, StoreError> {
        if segment.0 == 0 || segment.0 > SEGMENT_MAX {
            return Err(StoreError::OutOfRange {
                what: "segment",
                value: u64::from(segment.0),
                max: u64::from(SEGMENT_MAX),
            });
        }
        if page > PAGE_MAX {
            return Err(StoreError::OutOfRange {
                what: "page",
                value: u64::from(page),
                max: u64::from(PAGE_MAX),
            });
        }
        Ok(Self(u64::from(segment.0) << 40 | u64::from(page) << 16 | u64::from(slot)))
    }

    /// The version that stored bits name; None for bits that name none (0, and all others with segment 0).
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits >> 40 != 0).then_some(Self(bits))
    }

    /// The bits as pages and maps store them, never 0.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The segment.
    #[must_use]
    pub fn segment(self) -> SegmentId {
        SegmentId(low_bits(self.0 >> 40))
    }

    /// The logical page in the segment.
    #[must_use]
    pub fn page(self) -> u32 {
        low_bits(self.0 >> 16)
    }

    /// The slot in the page.
    #[must_use]
    pub fn slot(self) -> u16 {
        u16::try_from(self.0 & 0xffff).unwrap_or(u16::MAX)
    }
}

/// The low 24 bits, which fit.
fn low_bits(bits: u64) -> u32 {
    u32::try_from(bits & 0xff_ffff).unwrap_or(u32::MAX)
}

impl fmt::Display for SegmentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "segment {}", self.0)
    }
}

impl fmt::Display for TabletId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "tablet {}", self.0)
    }
}

impl fmt::Display for RecId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.segment().0, self.page(), self.slot())
    }
}

#[cfg(test)]
mod tests;
