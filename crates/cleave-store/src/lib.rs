//! Converts rows to stored pages and back: record batches in, pages out; pages in, record batches out.
//!
//! In the order that data passes through:
//!
//! 1. [`schema`]: [`TableSchema`], what a table's columns are; [`proto`]: stored descriptions.
//! 2. [`ids`]: [`SegmentId`], [`TabletId`], [`RecId`], the ids of segments, tablets and row versions.
//! 3. [`page`]: the PAX page. [`SegmentWriter`] turns record batches into [`EncodedPage`]s, [`append_rows`] adds
//!    rows to the last page of a hot segment, [`parse_header`] reads a page's table of contents.
//! 4. [`page_source`]: [`PageSource`], column chunks of pages for a reader on either side; [`MediaPages`] reads them
//!    from local media.
//! 5. [`decode`]: [`decode_batch`], [`OpenColumn`] and [`decode_rows`], chunks to record batches; [`absent_value`]:
//!    [`AbsentValue`], the value of a column that a page lacks; [`integer_set`]: [`IntegerSet`], look-ups of integers
//!    as they are stored; [`BloomFilter`], for more keys than a set should have and for keys of other types.
//! 6. [`zone_map`] and [`segment`]: [`SegmentDirectory`], the places of a segment's pages and the bounds of their
//!    values; [`placement`] searches it, and [`vid_gaps`] says which VIDs were pruned from a page.
//! 7. [`version`]: [`VersionMap`] and [`DeadRows`], the segment of a VID and whether its row is dead.
//! 8. [`index`]: [`Memtable`], [`RunWriter`], [`Run`] and [`KeyMerge`], from a key to a VID.
//!    [`tablet_key`]: [`TabletKey`], from a row to its tablet, by a hash or by the [`RangeBounds`] between ranges;
//!    [`EqualShares`], from rows to tablets whatever their values are.
//! 9. [`frame`]: the envelope around everything stored that is not a page.
//!
//! Invariants: only this crate interprets page bytes. Nothing here blocks on a network, starts a thread or knows SQL. A
//! byte from media or from a peer is believed only after its checksum, and then validated.
//! Source: `docs/design/pages-and-encodings.md`; `docs/design/rules.md`, rules 14–18.

#[cfg(target_endian = "big")]
compile_error!("pages hold little-endian Arrow buffers that are read in place");

pub mod absent_value;
pub mod bloom;
pub mod decode;
mod error;
pub mod ids;
pub mod integer_set;
pub mod page;
pub mod page_source;
pub mod proto;
pub mod schema;

pub use absent_value::{AbsentValue, AbsentValues};
pub use bloom::BloomFilter;
pub use decode::{OpenColumn, OpenedPage, Pick, Projection, decode_batch, decode_rows};
pub use error::{Corruption, StoreError};
pub use ids::{RecId, SegmentId, TabletId};
pub use integer_set::IntegerSet;
pub use page::{
    ChangedColumn, ChunkEntry, CommitColumn, EncodedPage, Encoding, OverflowValues, PageClass,
    PageHeader, PageKind, PageVersion, SegmentWriter, Tail, Versions, VidColumn, all_columns,
    append_rows, consolidated, copied_columns, overflow::overflow_pages, page_version,
    parse_header,
};
pub use page_source::{
    ColumnRef, MediaPages, PageCache, PageColumns, PageRead, PageRef, PageSource, RawColumns,
    SHIPPED_START, SegmentRef, ShippedPages, opened,
};
pub use schema::{Column, ColumnType, NUMERIC_DEFAULT_SCALE, SchemaError, TableSchema};

pub mod equal_shares;
pub mod frame;
pub mod index;
pub mod placement;
pub mod range_bounds;
pub mod segment;
pub mod tablet_key;
pub mod version;
pub mod vid_gaps;
pub mod zone_map;

pub use equal_shares::EqualShares;
pub use frame::{Format, FrameError};
pub use index::{
    FinishedRun, INDEX_KEY_BYTES, IndexEntry, IndexKey, KeyBlock, KeyColumn, KeyMerge, KeyRange,
    KeySorter, Memtable, MergeSource, PageCursor, Run, RunCursor, RunWriter, Walk, after_prefix,
};
pub use placement::Placement;
pub use range_bounds::RangeBounds;
pub use segment::{KeyFilter, PageEntry, RunProperties, SegmentDirectory, SegmentKind};
pub use tablet_key::TabletKey;
pub use version::{DeadRows, Snapshot, VersionMap, VersionRun};
pub use vid_gaps::VidGaps;
pub use zone_map::{ZoneArrays, ZoneEntry, ZoneValue, zone_arrays};
