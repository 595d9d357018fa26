//! Stored descriptions as protobuf messages, written by hand so that the build runs no code generator.
//!
//! Types of the crate are converted by `From` and `TryFrom`, implemented beside the type that each message describes.
//! Every `TryFrom` validates, since these bytes come from media or from a peer. Nothing here carries a magic number or
//! a checksum: the owner of a stored message frames it (segment directories, version map chunks).
//!
//! Invariant: a field number is never given another meaning. A change that an older reader would misread raises the
//! format version of the frame around it; removed numbers stay reserved here.
//!
//! Source: `docs/formats.md`; `docs/design/rules.md`, rule 2 (pages and commands carry formats of our own).

/// What kind of type a [`ColumnType`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TypeKind {
    /// None; a stored column never has it.
    Unspecified = 0,
    /// `smallint`.
    SmallInt = 1,
    /// `integer`.
    Int = 2,
    /// `bigint`.
    BigInt = 3,
    /// `real`.
    Real = 4,
    /// `double precision`.
    Double = 5,
    /// `numeric`, with precision and scale.
    Numeric = 6,
    /// `boolean`.
    Boolean = 7,
    /// `text`.
    Text = 8,
    /// `character varying`, perhaps with a length.
    Varchar = 9,
    /// `character`, with a length.
    Char = 10,
    /// `date`.
    Date = 11,
    /// `time without time zone`.
    Time = 12,
    /// `timestamp without time zone`.
    Timestamp = 13,
    /// `timestamp with time zone`.
    TimestampTz = 14,
    /// `interval`.
    Interval = 15,
    /// `bytea`.
    Bytea = 16,
    /// `uuid`.
    Uuid = 17,
}

/// [`crate::ColumnType`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnType {
    /// Which type.
    #[prost(enumeration = "TypeKind", tag = "1")]
    pub kind: i32,
    /// Precision of a numeric.
    #[prost(uint32, tag = "2")]
    pub precision: u32,
    /// Scale of a numeric.
    #[prost(sint32, tag = "3")]
    pub scale: i32,
    /// Length in characters.
    #[prost(uint32, optional, tag = "4")]
    pub length: Option<u32>,
}

/// [`crate::Column`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Column {
    /// Stable id, from 1.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Type; required.
    #[prost(message, optional, tag = "3")]
    pub column_type: Option<ColumnType>,
    /// NULL is refused.
    #[prost(bool, tag = "4")]
    pub not_null: bool,
    /// SQL text of the default.
    #[prost(string, optional, tag = "5")]
    pub default: Option<String>,
    /// Value of the column for rows of older pages, as it lies in memory.
    #[prost(bytes, optional, tag = "6")]
    pub absent: Option<Vec<u8>>,
}

/// [`crate::TableSchema`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TableSchema {
    /// Table id.
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// Version of the description.
    #[prost(uint32, tag = "2")]
    pub version: u32,
    /// Name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Columns in order.
    #[prost(message, repeated, tag = "4")]
    pub columns: Vec<Column>,
    /// Column ids of the primary key, in key order.
    #[prost(uint32, repeated, tag = "5")]
    pub primary_key: Vec<u32>,
}

/// [`crate::ZoneEntry`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ZoneEntry {
    /// Column id.
    #[prost(uint32, tag = "1")]
    pub column: u32,
    /// Rows whose value is NULL.
    #[prost(uint32, tag = "2")]
    pub null_count: u32,
    /// Lower bound.
    #[prost(message, optional, tag = "3")]
    pub min: Option<ZoneValue>,
    /// Upper bound.
    #[prost(message, optional, tag = "4")]
    pub max: Option<ZoneValue>,
}

/// [`crate::ZoneValue`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ZoneValue {
    /// The bound; absent: of a kind that this build does not know.
    #[prost(oneof = "ZoneBound", tags = "1, 2, 3, 4, 5")]
    pub bound: Option<ZoneBound>,
}

/// The kinds of bound.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ZoneBound {
    /// Of `boolean`.
    #[prost(bool, tag = "1")]
    Boolean(bool),
    /// Of integers, dates and times.
    #[prost(sint64, tag = "2")]
    Integer(i64),
    /// Of `numeric`: 16 bytes, little-endian, two's complement, unscaled.
    #[prost(bytes, tag = "3")]
    Decimal(Vec<u8>),
    /// Of floats.
    #[prost(double, tag = "4")]
    Float(f64),
    /// Of text, `bytea` and `uuid`.
    #[prost(bytes, tag = "5")]
    Bytes(Vec<u8>),
}

/// [`crate::VersionMap`] in one piece.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionMap {
    /// A frame of [`VersionRuns`].
    #[prost(bytes, tag = "1")]
    pub runs: Vec<u8>,
    /// Frames of [`VersionChunk`], ascending.
    #[prost(bytes, repeated, tag = "2")]
    pub chunks: Vec<Vec<u8>>,
}

/// The runs of a version map, ascending.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionRuns {
    /// The runs.
    #[prost(message, repeated, tag = "1")]
    pub runs: Vec<VersionRun>,
    /// VIDs below it that lie in no run are those of pruned rows.
    #[prost(uint64, tag = "2")]
    pub vid_end_min: u64,
}

/// [`crate::VersionRun`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionRun {
    /// VIDs between the end of the run before and the start of this one.
    #[prost(uint64, tag = "1")]
    pub vid_gap: u64,
    /// Number of VIDs.
    #[prost(uint64, tag = "2")]
    pub vid_count: u64,
    /// Segment.
    #[prost(uint32, tag = "3")]
    pub segment: u32,
}

/// A chunk of a version map: the stretches of its dead rows. Numbers 2 to 4 were places of later versions,
/// which no build has written.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionChunk {
    /// Number of the chunk: VID / 65,536.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Must be empty: a reader that ignored them would read rows as they were before they changed.
    #[prost(uint32, repeated, tag = "2")]
    pub version_gaps: Vec<u32>,
    /// Rows between the end of the previous stretch of deleted rows and the start of this one.
    #[prost(uint32, repeated, tag = "5")]
    pub dead_gaps: Vec<u32>,
    /// Rows of the stretch, all of them deleted.
    #[prost(uint32, repeated, tag = "6")]
    pub dead_counts: Vec<u32>,
}

/// [`crate::Memtable`]: keys ascending, and the VID of each.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Memtable {
    /// Keys.
    #[prost(bytes, repeated, tag = "1")]
    pub keys: Vec<Vec<u8>>,
    /// VIDs.
    #[prost(uint64, repeated, tag = "2")]
    pub vids: Vec<u64>,
}

/// [`crate::PageRef`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PageRef {
    /// Logical number in the segment.
    #[prost(uint32, tag = "1")]
    pub page: u32,
    /// First block.
    #[prost(uint64, tag = "2")]
    pub start: u64,
    /// Blocks.
    #[prost(uint32, tag = "3")]
    pub block_count: u32,
    /// Rows; 0 of an overflow page.
    #[prost(uint32, tag = "4")]
    pub row_count: u32,
    /// CRC-32C of the page header.
    #[prost(fixed32, tag = "5")]
    pub checksum: u32,
}

/// [`crate::SegmentRef`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SegmentRef {
    /// Table id.
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// Segment.
    #[prost(uint32, tag = "2")]
    pub segment: u32,
    /// Version of the schema that the pages are written in.
    #[prost(uint32, tag = "3")]
    pub schema_version: u32,
    /// Commit number.
    #[prost(uint64, tag = "4")]
    pub commit: u64,
}

/// [`crate::PageEntry`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct PageEntry {
    /// The page; required.
    #[prost(message, optional, tag = "1")]
    pub page: Option<PageRef>,
    /// VID of slot 0.
    #[prost(uint64, tag = "2")]
    pub vid_first: u64,
    /// Overflow pages.
    #[prost(message, repeated, tag = "3")]
    pub overflow: Vec<PageRef>,
    /// Bounds of the user columns.
    #[prost(message, repeated, tag = "4")]
    pub zones: Vec<ZoneEntry>,
    /// Slots from each gap in the VIDs of the rows to the next.
    #[prost(uint32, repeated, tag = "5")]
    pub gap_slots: Vec<u32>,
    /// VIDs missing in each gap.
    #[prost(uint64, repeated, tag = "6")]
    pub gap_counts: Vec<u64>,
    /// First blocks of what the page shares with earlier versions of it, ascending.
    #[prost(uint64, repeated, tag = "7")]
    pub shared_starts: Vec<u64>,
    /// The number of blocks of each.
    #[prost(uint32, repeated, tag = "8")]
    pub shared_counts: Vec<u32>,
}

/// [`crate::RunProperties`] and its [`crate::KeyFilter`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RunProperties {
    /// Which index of the table.
    #[prost(uint32, tag = "1")]
    pub index_id: u32,
    /// Level in the LSM tree.
    #[prost(uint32, tag = "2")]
    pub level: u32,
    /// Kind of filter, 0: none.
    #[prost(uint32, tag = "3")]
    pub filter_kind: u32,
    /// The filter.
    #[prost(bytes, tag = "4")]
    pub filter: Vec<u8>,
}

/// [`crate::SegmentDirectory`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SegmentDirectory {
    /// Segment.
    #[prost(uint32, tag = "1")]
    pub segment: u32,
    /// Table id.
    #[prost(uint32, tag = "2")]
    pub table_id: u32,
    /// Version of the schema that the pages are written in.
    #[prost(uint32, tag = "3")]
    pub schema_version: u32,
    /// Commit number.
    #[prost(uint64, tag = "4")]
    pub commit: u64,
    /// Page class: bytes of a page.
    #[prost(uint32, tag = "5")]
    pub page_bytes: u32,
    /// Page class: alignment of chunks.
    #[prost(uint32, tag = "6")]
    pub chunk_alignment: u32,
    /// Page class: most rows of a page.
    #[prost(uint32, tag = "7")]
    pub row_count_max: u32,
    /// Nothing is appended any more.
    #[prost(bool, tag = "8")]
    pub sealed: bool,
    /// Present: the segment is an index run.
    #[prost(message, optional, tag = "9")]
    pub run: Option<RunProperties>,
    /// Pages, ascending.
    #[prost(message, repeated, tag = "10")]
    pub pages: Vec<PageEntry>,
}
