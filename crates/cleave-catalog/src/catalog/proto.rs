//! The messages of the manifest, as protobuf (prost) structures; [`crate::catalog`] describes the meaning of the
//! fields.
//!
//! Fields are only ever added, with new numbers. A change that an older reader would misread raises
//! the format version of the manifest's frame instead ([`super::manifest`]).

/// The whole manifest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Manifest {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub database: Vec<u8>,
    /// Incarnations so far.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Replacements so far.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// Last commit number.
    #[prost(uint64, tag = "4")]
    pub commit: u64,
    /// Next table id.
    #[prost(uint32, tag = "5")]
    pub next_table: u32,
    /// Next segment id.
    #[prost(uint32, tag = "6")]
    pub next_segment: u32,
    /// Next device id.
    #[prost(uint32, tag = "7")]
    pub next_device: u32,
    /// Attached devices.
    #[prost(message, repeated, tag = "8")]
    pub devices: Vec<Device>,
    /// Tables.
    #[prost(message, repeated, tag = "9")]
    pub tables: Vec<Table>,
    /// Where the log is read from when the database is opened; 0: there is none yet.
    #[prost(uint64, tag = "10")]
    pub log_position: u64,
    /// Sequences. Since format 6.
    #[prost(message, repeated, tag = "20")]
    pub sequences: Vec<Sequence>,
    /// Views.
    #[prost(message, repeated, tag = "30")]
    pub views: Vec<View>,
    /// Settings of the database as a whole; absent: all defaults.
    #[prost(message, optional, tag = "40")]
    pub upkeep: Option<Upkeep>,
    /// Roles and rights. Since format 7.
    #[prost(message, optional, tag = "100")]
    pub rights: Option<super::rights::proto::Rights>,
    /// Tables whose last commits wait in the log. Since format 7.
    #[prost(message, optional, tag = "110")]
    pub blocked: Option<BlockedTables>,
    /// Comments: an older build forgets them.
    #[prost(message, repeated, tag = "160")]
    pub comments: Vec<super::comments::Comment>,
}

/// Tables whose last commits wait in the log for a device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockedTables {
    /// The tables.
    #[prost(message, repeated, tag = "1")]
    pub tables: Vec<BlockedTable>,
    /// Start of the log for all others.
    #[prost(uint64, tag = "2")]
    pub until: u64,
}

/// A table whose last commits wait in the log.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BlockedTable {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Log position of the first of them.
    #[prost(uint64, tag = "2")]
    pub from: u64,
}

/// A sequence.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sequence {
    /// Number, of those that tables have.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Width of its numbers in bits: 16, 32 or 64.
    #[prost(uint32, tag = "3")]
    pub bits: u32,
    /// INCREMENT.
    #[prost(sint64, tag = "4")]
    pub increment: i64,
    /// Least number.
    #[prost(sint64, tag = "5")]
    pub min: i64,
    /// Greatest number.
    #[prost(sint64, tag = "6")]
    pub max: i64,
    /// START.
    #[prost(sint64, tag = "7")]
    pub start: i64,
    /// CACHE.
    #[prost(sint64, tag = "8")]
    pub cache: i64,
    /// CYCLE.
    #[prost(bool, tag = "9")]
    pub cycle: bool,
    /// The column that owns it.
    #[prost(message, optional, tag = "10")]
    pub owner: Option<SequenceOwner>,
    /// The last number.
    #[prost(sint64, tag = "11")]
    pub last: i64,
    /// Whether that was returned; if not, it is the next.
    #[prost(bool, tag = "12")]
    pub is_called: bool,
}

/// The column that owns a sequence.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SequenceOwner {
    /// Id of the table.
    #[prost(uint32, tag = "1")]
    pub table: u32,
    /// Id of the column.
    #[prost(uint32, tag = "2")]
    pub column: u32,
    /// It is an identity column.
    #[prost(bool, tag = "3")]
    pub is_identity: bool,
}

/// Settings of the database as a whole, and facts that the log does not have.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Upkeep {
    /// Folder of the log archive.
    #[prost(string, optional, tag = "1")]
    pub archive_directory: Option<String>,
    /// The last commit that is in no log.
    #[prost(uint64, tag = "2")]
    pub unlogged_commit: u64,
    /// When it was made.
    #[prost(int64, tag = "3")]
    pub unlogged_at_us: i64,
    /// Seconds for which older catalog versions are kept.
    #[prost(uint32, tag = "4")]
    pub version_retention_s: u32,
    /// Whether tables are vacuumed by themselves; absent: yes.
    #[prost(bool, optional, tag = "90")]
    pub autovacuum: Option<bool>,
    /// Seconds between two checks.
    #[prost(uint32, optional, tag = "91")]
    pub autovacuum_naptime_s: Option<u32>,
    /// Number of dead rows that a table may have in any case.
    #[prost(uint64, optional, tag = "92")]
    pub autovacuum_vacuum_threshold: Option<u64>,
    /// Share of its live rows that may be dead in addition, in ten-thousandths.
    #[prost(uint32, optional, tag = "93")]
    pub autovacuum_vacuum_scale: Option<u32>,
    /// Whether tables are not analysed by themselves.
    #[prost(bool, tag = "94")]
    pub analyzes_none: bool,
    /// Number of rows of a table that may have changed in any case since it was analysed.
    #[prost(uint64, optional, tag = "95")]
    pub analyze_threshold: Option<u64>,
    /// Share of its live rows that may have changed in addition, in ten-thousandths.
    #[prost(uint32, optional, tag = "96")]
    pub analyze_scale: Option<u32>,
    /// Log replicas on devices. Since format 8.
    #[prost(message, repeated, tag = "130")]
    pub log_replicas: Vec<super::log_replicas::LogReplicaMessage>,
    /// Space that is reserved for them. Since format 9.
    #[prost(message, repeated, tag = "131")]
    pub kept: Vec<Kept>,
    /// The highest epoch of the hosts before the last failover; 0: there was none.
    #[prost(uint64, tag = "132")]
    pub failover_epoch: u64,
    /// Settings of automatic rebalancing; absent: the defaults.
    #[prost(message, optional, tag = "140")]
    pub rebalance: Option<Rebalance>,
}

/// Settings of automatic rebalancing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rebalance {
    /// Whether tablets move by themselves; absent: yes.
    #[prost(bool, optional, tag = "1")]
    pub is_on: Option<bool>,
    /// Seconds between two checks.
    #[prost(uint32, optional, tag = "2")]
    pub naptime_s: Option<u32>,
    /// Share of its part of a table that a device may have in addition, in ten-thousandths.
    #[prost(uint32, optional, tag = "3")]
    pub threshold: Option<u32>,
    /// Bytes of the smallest table that is balanced.
    #[prost(uint64, optional, tag = "4")]
    pub min_bytes: Option<u64>,
    /// Bytes that are copied a second; 0: no limit.
    #[prost(uint64, optional, tag = "5")]
    pub rate: Option<u64>,
    /// Numbers of devices that get no tablets by themselves.
    #[prost(uint32, repeated, tag = "6")]
    pub drained: Vec<u32>,
}

/// Space of one device that only manifests in log replicas may still use.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Kept {
    /// The device's number.
    #[prost(uint32, tag = "1")]
    pub device: u32,
    /// Ascending.
    #[prost(message, optional, tag = "2")]
    pub blocks: Option<Blocks>,
}

/// One view.
#[derive(Clone, PartialEq, prost::Message)]
pub struct View {
    /// What `TableSchema::encode` wrote of its name and columns.
    #[prost(bytes = "vec", tag = "1")]
    pub schema: Vec<u8>,
    /// The query, as SQL.
    #[prost(string, tag = "2")]
    pub query: String,
    /// Names of the columns in the query.
    #[prost(string, repeated, tag = "3")]
    pub sources: Vec<String>,
    /// Ids of the tables and views that it depends on.
    #[prost(uint32, repeated, tag = "4")]
    pub depends: Vec<u32>,
}

/// One attached device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    /// Number within the database.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name within the database.
    #[prost(string, tag = "2")]
    pub name: String,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub identity: Vec<u8>,
    /// Present: over TCP.
    #[prost(message, optional, tag = "4")]
    pub remote: Option<Remote>,
    /// Present: on this machine.
    #[prost(message, optional, tag = "5")]
    pub local: Option<Local>,
    /// Present: by other devices. None of these: embedded. Since format 15.
    #[prost(message, optional, tag = "6")]
    pub mirror: Option<Mirror>,
}

/// The devices that have the pages of a mirror.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mirror {
    /// At least two.
    #[prost(message, repeated, tag = "1")]
    pub copies: Vec<MirrorCopy>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct MirrorCopy {
    /// The device's number.
    #[prost(uint32, tag = "1")]
    pub device: u32,
    /// It lacks pages.
    #[prost(bool, tag = "2")]
    pub is_stale: bool,
}

/// Connection data of a device on this machine.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Local {
    /// Path of its Unix socket.
    #[prost(string, tag = "1")]
    pub socket: String,
    /// Bytes per second.
    #[prost(uint64, optional, tag = "2")]
    pub rate_cap: Option<u64>,
}

/// Connection data of a remote device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Remote {
    /// Machine.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Port, at most 65535.
    #[prost(uint32, tag = "2")]
    pub port: u32,
    /// File with the token.
    #[prost(string, optional, tag = "3")]
    pub token_file: Option<String>,
    /// Certificate, PEM.
    #[prost(string, optional, tag = "4")]
    pub ca_pem: Option<String>,
    /// Bytes per second.
    #[prost(uint64, optional, tag = "5")]
    pub rate_cap: Option<u64>,
}

/// One table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Table {
    /// What `TableSchema::encode` wrote.
    #[prost(bytes = "vec", tag = "1")]
    pub schema: Vec<u8>,
    /// Its tablets.
    #[prost(message, repeated, tag = "2")]
    pub tablets: Vec<Tablet>,
    /// Its indexes, ascending by id.
    #[prost(message, repeated, tag = "10")]
    pub indexes: Vec<IndexDefinition>,
    /// Ids of the columns whose hash decides in which tablet a row lies; none: load order, if nothing else is said.
    #[prost(uint32, repeated, tag = "11")]
    pub hash_columns: Vec<u32>,
    /// New rows go to all tablets in equal shares. Since format 15.
    #[prost(bool, tag = "12")]
    pub round_robin: bool,
    /// The ranges of a column that decide in which tablet a row lies. Since format 15.
    #[prost(message, optional, tag = "13")]
    pub ranges: Option<Ranges>,
    /// Its tablets move by themselves.
    #[prost(bool, tag = "14")]
    pub is_balanced: bool,
    /// Constraints on its rows; None: none. Since format 6.
    #[prost(message, optional, tag = "20")]
    pub rules: Option<TableRules>,
    /// The query of its rows, if it is a materialized view. Since format 14.
    #[prost(message, optional, tag = "30")]
    pub materialized: Option<Materialized>,
}

/// The ranges of a column that divide a table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ranges {
    /// Id of the column.
    #[prost(uint32, tag = "1")]
    pub column: u32,
    /// The keys between the ranges, ascending, one less than tablets.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub bounds: Vec<Vec<u8>>,
}

/// What makes a table a materialized view.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Materialized {
    /// The query, as SQL.
    #[prost(string, tag = "1")]
    pub query: String,
    /// Names of the columns in the query.
    #[prost(string, repeated, tag = "2")]
    pub sources: Vec<String>,
    /// Ids of all tables and views that it depends on.
    #[prost(uint32, repeated, tag = "3")]
    pub depends: Vec<u32>,
    /// Whether its rows are there.
    #[prost(bool, tag = "4")]
    pub is_populated: bool,
}

/// Constraints on a table's rows beside keys.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableRules {
    /// CHECK.
    #[prost(message, repeated, tag = "1")]
    pub checks: Vec<Check>,
    /// Ids of the columns that are GENERATED ALWAYS AS IDENTITY.
    #[prost(uint32, repeated, tag = "2")]
    pub always: Vec<u32>,
    /// FOREIGN KEY. Since format 7.
    #[prost(message, repeated, tag = "80")]
    pub foreign_keys: Vec<ForeignKey>,
}

/// FOREIGN KEY.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForeignKey {
    /// Number among the table's rules.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Ids of its columns.
    #[prost(uint32, repeated, tag = "3")]
    pub columns: Vec<u32>,
    /// Id of the table that it refers to.
    #[prost(uint32, tag = "4")]
    pub target: u32,
    /// Ids of that table's columns, in the same order.
    #[prost(uint32, repeated, tag = "5")]
    pub target_columns: Vec<u32>,
    /// Id of that table's index over them.
    #[prost(uint32, tag = "6")]
    pub index: u32,
    /// ON DELETE: 0 NO ACTION, 1 RESTRICT, 2 CASCADE, 3 SET NULL, 4 SET DEFAULT.
    #[prost(uint32, tag = "7")]
    pub on_delete: u32,
    /// ON UPDATE, likewise.
    #[prost(uint32, tag = "8")]
    pub on_update: u32,
    /// Ids of the columns of ON DELETE SET NULL or SET DEFAULT; none: all.
    #[prost(uint32, repeated, tag = "9")]
    pub set_columns: Vec<u32>,
    /// MATCH FULL.
    #[prost(bool, tag = "10")]
    pub match_full: bool,
    /// 0 NOT DEFERRABLE, 1 INITIALLY IMMEDIATE, 2 INITIALLY DEFERRED.
    #[prost(uint32, tag = "11")]
    pub timing: u32,
    /// NOT VALID.
    #[prost(bool, tag = "12")]
    pub not_valid: bool,
}

/// CHECK.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Check {
    /// Number among the table's rules.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// SQL text of the expression.
    #[prost(string, tag = "3")]
    pub expression: String,
    /// Ids of the columns that it names.
    #[prost(uint32, repeated, tag = "4")]
    pub columns: Vec<u32>,
}

/// The definition of an index.
#[derive(Clone, PartialEq, prost::Message)]
pub struct IndexDefinition {
    /// Number within the table; 0 is the primary key.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Columns, in key order.
    #[prost(message, repeated, tag = "3")]
    pub columns: Vec<IndexColumn>,
    /// It is unique.
    #[prost(bool, tag = "4")]
    pub unique: bool,
    /// It belongs to a constraint.
    #[prost(bool, tag = "5")]
    pub constraint: bool,
}

/// One column of an index.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct IndexColumn {
    /// Column id.
    #[prost(uint32, tag = "1")]
    pub column: u32,
    /// Greatest first.
    #[prost(bool, tag = "2")]
    pub descending: bool,
    /// NULLs before all values.
    #[prost(bool, tag = "3")]
    pub nulls_first: bool,
}

/// One tablet.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tablet {
    /// Number within the table.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Device that holds it.
    #[prost(uint32, tag = "2")]
    pub device: u32,
    /// Next VID.
    #[prost(uint64, tag = "3")]
    pub next_vid: u64,
    /// Heap segments in VID order.
    #[prost(message, repeated, tag = "4")]
    pub heap: Vec<SegmentPlace>,
    /// What `VersionMap::encode` wrote.
    #[prost(bytes = "vec", tag = "5")]
    pub version_map: Vec<u8>,
    /// Its part of each of the table's indexes, in the order of their definitions. Number 6 was that of the primary key
    /// alone.
    #[prost(message, repeated, tag = "10")]
    pub indexes: Vec<Index>,
    /// VIDs below the next one that no row ever got.
    #[prost(uint64, tag = "11")]
    pub vids_skipped: u64,
}

/// A tablet's part of an index.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Index {
    /// Sorted runs, oldest first.
    #[prost(message, repeated, tag = "1")]
    pub runs: Vec<SegmentPlace>,
    /// Rows of hot segments below this VID are in a run; the others make the memtable.
    #[prost(uint64, tag = "2")]
    pub vid_covered: u64,
}

/// The directory of a segment: here, or in a file of `segments/`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SegmentPlace {
    /// Segment id, which names the file.
    #[prost(uint32, tag = "1")]
    pub segment: u32,
    /// The directory itself, for an unsealed segment.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub directory: Option<Vec<u8>>,
    /// CRC-32C of the file.
    #[prost(fixed32, tag = "3")]
    pub file_checksum: u32,
    /// Length of the file in bytes.
    #[prost(uint64, tag = "4")]
    pub file_bytes: u64,
    /// The blocks of the segment that the file describes, so that they stay allocated if the file is lost. Manifests of
    /// earlier builds do not have it.
    #[prost(message, optional, tag = "5")]
    pub blocks: Option<Blocks>,
    /// The revision of the segment, which the file's name says too.
    #[prost(uint32, tag = "6")]
    pub revision: u32,
}

/// Blocks of a device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Blocks {
    /// Ascending, alternately: blocks skipped since the last ones, and blocks that follow.
    #[prost(uint64, repeated, tag = "1")]
    pub gaps_and_lengths: Vec<u64>,
}
