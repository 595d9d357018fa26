//! Bytes to Arrow and back: rows in, pages out; pages in, record batches out.
//!
//! In the order that data passes through:
//!
//! 1. [`schema`]: [`TableSchema`], what a table's columns are; [`proto`]: stored descriptions.
//! 2. [`ids`]: [`SegmentId`], [`TabletId`], [`RecId`], the names of places and of versions.
//! 3. [`page`]: the PAX page. [`SegmentWriter`] turns record batches into [`EncodedPage`]s, [`append_rows`] adds
//!    rows to the last page of a hot segment, [`parse_header`] reads a page's table of contents.
//! 4. [`page_source`]: [`PageSource`], how a reader gets column chunks of pages without knowing where it runs;
//!    [`MediaPages`] is the one over local media.
//! 5. [`decode`]: [`decode_batch`], [`OpenColumn`] and [`decode_rows`], chunks to record batches; [`absent_value`]:
//!    [`AbsentValue`], what rows have in a column that their page lacks; [`integer_set`]:
//!    [`IntegerSet`], which columns of integers are looked up in as they are stored, and [`BloomFilter`], for more keys
//!    than a set should have and for keys of other types.
//! 6. [`zone_map`] and [`segment`]: [`SegmentDirectory`], where the pages of a segment lie and what bounds their
//!    values; [`placement`] looks up in it, and [`vid_gaps`] says which VIDs a page does not have any more.
//! 7. [`version`]: [`VersionMap`] and [`DeadRows`], where the row of a VID lies and whether it is dead.
//! 8. [`index`]: [`Memtable`], [`RunWriter`], [`Run`] and [`KeyMerge`], from a key to a VID.
//!    [`tablet_key`]: [`TabletKey`], from a row to its tablet.
//! 9. [`frame`]: the envelope around everything stored that is not a page.
//!
//! Invariants: only this crate interprets page bytes; nothing here blocks on a network, starts a thread or knows
//! of SQL; a byte from media or from a peer is believed only after its checksum, and then validated.
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
    ChunkEntry, CommitColumn, EncodedPage, Encoding, OverflowValues, PageClass, PageHeader,
    PageKind, SegmentWriter, Tail, Versions, VidColumn, all_columns, append_rows,
    overflow::overflow_pages, parse_header,
};
pub use page_source::{
    ColumnRef, MediaPages, PageCache, PageColumns, PageRead, PageRef, PageSource, RawColumns,
    SHIPPED_START, SegmentRef, ShippedPages, opened,
};
pub use schema::{Column, ColumnType, SchemaError, TableSchema};

pub mod frame;
pub mod index;
pub mod placement;
pub mod segment;
pub mod tablet_key;
pub mod version;
pub mod vid_gaps;
pub mod zone_map;

pub use frame::{Format, FrameError};
pub use index::{
    FinishedRun, INDEX_KEY_BYTES, IndexEntry, IndexKey, KeyBlock, KeyColumn, KeyMerge, KeyRange,
    KeySorter, Memtable, MergeSource, PageCursor, Run, RunCursor, RunWriter, Walk, after_prefix,
};
pub use placement::Placement;
pub use segment::{KeyFilter, PageEntry, RunProperties, SegmentDirectory, SegmentKind};
pub use tablet_key::TabletKey;
pub use version::{DeadRows, Snapshot, VersionMap, VersionRun};
pub use vid_gaps::VidGaps;
pub use zone_map::{ZoneArrays, ZoneEntry, ZoneValue, zone_arrays};
