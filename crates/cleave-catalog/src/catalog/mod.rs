//! The catalog: the contents of the database at one commit, as an immutable value.
//!
//! 1. [`manifest`] reads and writes the manifest, whose atomic replacement *is* the commit.
//! 2. [`CatalogState`] is a catalog version: the contents of a manifest, with the directories of all segments in
//!    memory.
//! 3. [`damage`]: parts that cannot be used because a file is missing or damaged; the rest stays usable.
//!
//! ```text
//!  CatalogState ─ tables ─▶ TableState ─ tablets ─▶ TabletState ─┬─▶ heap: Vec<SegmentDirectory>
//!               └ devices ─▶ DeviceEntry   ▲ by id ──────────────┤─▶ indexes: runs, memtable
//!                                                                └─▶ version map
//! ```
//!
//! A statement takes one `Arc<CatalogState>` when it starts and reads through it to its end: snapshot isolation. The
//! `Arc` also keeps its pages: space that a later commit retires is reused only when no earlier version is referenced
//! any more (rule 30), so a reading statement must *hold the version* until its last page has arrived. Nothing in a
//! version changes after publication, except the memtable, whose entries a reader checks against its own version map.

pub mod autovacuum;
pub mod blocked;
pub mod comments;
pub mod compiled_checks;
pub mod damage;
pub mod division;
pub mod index_definition;
pub mod log_replicas;
pub mod manifest;
pub mod mirror;
pub mod proto;
pub mod rebalance;
pub mod reserved_ids;
pub mod rewrites;
pub mod rights;
pub mod rules;
pub mod same_rows;
pub mod sequence;
pub mod table_changes;
pub mod upkeep;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use cleave_fragment::link::local::address_of;
use cleave_media::Extent;
use cleave_store::{
    SegmentDirectory, SegmentId, ShippedPages, Snapshot, TableSchema, TabletId, VersionMap,
};

use crate::error::{Error, Fault, NameKind, Result};
use crate::index::TabletIndex;
use crate::storage_error::{SegmentFault, StorageError};
use blocked::BlockedTables;
use comments::Comments;
use damage::{DamagedIndex, DamagedTable, Occupied};
use division::Division;
use index_definition::IndexDefinition;
use manifest::SegmentFile;
use mirror::Mirror;
use rewrites::Rewrites;
use rights::Rights;
use rules::{Referenced, TableRules};
use sequence::Sequence;
use upkeep::Upkeep;
use view::{Materialized, ViewState};

/// Identity of a database: random, given at creation, carried by every command (rule 29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseId(pub [u8; 16]);

/// A device's number within one database. 0 is the embedded device that every database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

impl DeviceId {
    /// The embedded device in the database's own directory.
    pub const EMBEDDED: Self = Self(0);
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The manifest's entry for an attached device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Number within this database.
    pub id: DeviceId,
    /// Name, unique within this database, in statements and messages.
    pub name: String,
    /// Identity that the device gave when it was attached; another one behind the same address is
    /// refused.
    pub identity: [u8; 16],
    /// How it is reached.
    pub kind: DeviceKind,
}

/// How a device is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceKind {
    /// In this process, over a media file of the database directory.
    Embedded,
    /// A `cleaved` process on this machine, through shared memory.
    Local(LocalDevice),
    /// A `cleaved` process over TCP.
    Remote(RemoteDevice),
    /// By other devices, each of which has all of its pages.
    Mirror(Mirror),
}

impl From<LocalDevice> for DeviceKind {
    fn from(local: LocalDevice) -> Self {
        Self::Local(local)
    }
}

impl From<RemoteDevice> for DeviceKind {
    fn from(remote: RemoteDevice) -> Self {
        Self::Remote(remote)
    }
}

/// Connection data of a device on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDevice {
    /// Unix socket at which it listens.
    pub socket: PathBuf,
    /// Bytes per second that the link may carry in each direction; `None`: no cap.
    pub rate_cap: Option<u64>,
}

/// Connection data of a remote device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDevice {
    /// Name or address of the machine.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// File that holds the token; the token itself is never copied into the database.
    pub token_file: Option<PathBuf>,
    /// Certificate (PEM) that the device's certificate must descend from; `None`: no TLS.
    pub ca_pem: Option<String>,
    /// Bytes per second that the link may carry in each direction; `None`: no cap.
    pub rate_cap: Option<u64>,
}

impl DeviceEntry {
    /// `host:port`, `local:` and a socket's path, `embedded` or `mirror`.
    pub fn address(&self) -> String {
        match &self.kind {
            DeviceKind::Embedded => "embedded".to_owned(),
            DeviceKind::Local(local) => address_of(&local.socket),
            DeviceKind::Remote(remote) => format!("{}:{}", remote.host, remote.port),
            DeviceKind::Mirror(_) => "mirror".to_owned(),
        }
    }

    /// Its copies, if it is a mirror.
    pub fn mirror(&self) -> Option<&Mirror> {
        match &self.kind {
            DeviceKind::Mirror(mirror) => Some(mirror),
            DeviceKind::Embedded | DeviceKind::Local(_) | DeviceKind::Remote(_) => None,
        }
    }
}

/// A catalog version: the contents of the database at one commit. Immutable.
#[derive(Debug, Clone)]
pub struct CatalogState {
    /// The identity of the database.
    pub database: DatabaseId,
    /// Number of times that the database was opened (rule 29).
    pub epoch: u64,
    /// Number of times that the manifest was replaced.
    pub generation: u64,
    /// Number of the last commit that changed rows or tables.
    pub commit: u64,
    /// Start of the log that a manifest of this version needs: of the changes that are not in it.
    pub log_position: u64,
    /// End of the log that this version includes: its contents may be returned to clients once that is durable.
    pub log_end: u64,
    /// The id that the next table gets.
    pub next_table: u32,
    /// The id that the next segment gets.
    pub next_segment: u32,
    /// The id that the next device gets.
    pub next_device: u32,
    /// Attached devices.
    pub devices: BTreeMap<DeviceId, DeviceEntry>,
    /// Tables by name.
    pub tables: BTreeMap<String, Arc<TableState>>,
    /// Tables that cannot be used, by name; none of them is among the others.
    pub damaged: BTreeMap<String, Arc<DamagedTable>>,
    /// Views by name.
    pub views: BTreeMap<String, Arc<ViewState>>,
    /// Sequences by name.
    pub sequences: BTreeMap<String, Arc<Sequence>>,
    /// Files of the sealed segments.
    pub files: BTreeMap<SegmentId, SegmentFile>,
    /// Tables that foreign keys refer to.
    pub referenced: Referenced,
    /// Settings of the database as a whole.
    pub upkeep: Upkeep,
    /// Tables whose last commits wait in the log.
    pub blocked: BlockedTables,
    /// Roles and their rights.
    pub rights: Arc<Rights>,
    /// Comments of COMMENT ON.
    pub comments: Arc<Comments>,
    /// For a version that only one transaction sees: what keeps its pages.
    pub keep: Option<Arc<Keep>>,
    /// For a version that is only read: its pages in memory.
    pub shipped: Arc<ShippedPages>,
}

/// Keeps the pages of an unpublished version: the version that it is based on, and its own space.
#[derive(Debug)]
pub struct Keep {
    base: Arc<CatalogState>,
    _space: Vec<Arc<dyn HeldSpace>>,
}

/// Space that becomes free when this is dropped.
pub trait HeldSpace: fmt::Debug + Send + Sync {}

/// A version keeps the pages that it names.
impl HeldSpace for CatalogState {}

impl Keep {
    /// Keeps both.
    pub fn new(base: Arc<CatalogState>, space: Vec<Arc<dyn HeldSpace>>) -> Self {
        Self { base, _space: space }
    }
}

impl CatalogState {
    /// The table `name`, if it can be used.
    pub fn table(&self, name: &str) -> Option<&Arc<TableState>> {
        let table = self.tables.get(name)?;
        self.blocked.reason(table.schema.table_id).is_none().then_some(table)
    }

    /// The version that an unpublished version is based on.
    pub fn base(&self) -> Option<&CatalogState> {
        self.keep.as_deref().map(|keep| &*keep.base)
    }

    /// Whether there is a table, view or sequence with this id, damaged ones included.
    pub fn has_relation(&self, id: u32) -> bool {
        self.has_table_id(id)
            || self.views.values().any(|view| view.schema.table_id == id)
            || self.sequences.values().any(|sequence| sequence.id == id)
    }

    /// Whether `schema` is that of a table or view as it is defined here.
    #[must_use]
    pub fn has(&self, schema: &Arc<TableSchema>) -> bool {
        let table = self.table(&schema.name).map(|table| &table.schema);
        let known = table.or_else(|| self.view(&schema.name).map(|view| &view.schema));
        known.is_some_and(|known| Arc::ptr_eq(known, schema))
    }

    /// The table `name`.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the nearest name; [`StorageError::DamagedTable`] and [`StorageError::TableBlocked`]
    /// if it exists and cannot be used.
    pub fn find_table(&self, name: &str) -> Result<&Arc<TableState>> {
        let table = self.find_known_table(name)?;
        match self.blocked.reason(table.schema.table_id) {
            None => Ok(table),
            Some(reason) => {
                let (table, reason) = (name.to_owned(), Arc::clone(reason));
                Err(StorageError::TableBlocked { table, reason }.into())
            }
        }
    }

    /// The table `name`, even if it is blocked.
    fn find_known_table(&self, name: &str) -> Result<&Arc<TableState>> {
        if let Some(table) = self.tables.get(name) {
            return Ok(table);
        }
        match self.damaged.get(name) {
            Some(damaged) => Err(damaged.error().into()),
            None if self.views.contains_key(name) => Err(Error::Invalid {
                message: format!("\"{name}\" is not a table"),
                fault: Fault::ObjectKind,
                position: None,
            }),
            None => Err(Error::unknown(NameKind::Relation, name, self.table_names())),
        }
    }

    /// The table `name`, for adding rows.
    ///
    /// # Errors
    /// As [`CatalogState::find_table`]; [`StorageError::DamagedIndex`] if one of its indexes cannot be maintained.
    /// [`Error::Invalid`] for a materialized view, which only a refresh changes.
    pub fn find_writable_table(&self, name: &str) -> Result<&Arc<TableState>> {
        self.find_whole_table(name).and_then(changeable)
    }

    /// The table `name`, all of whose indexes can be read.
    ///
    /// # Errors
    /// As [`CatalogState::find_table`]; [`StorageError::DamagedIndex`].
    pub fn find_whole_table(&self, name: &str) -> Result<&Arc<TableState>> {
        self.find_table(name).and_then(undamaged)
    }

    /// As [`CatalogState::find_writable_table`], even if the table is blocked.
    pub fn find_blocked_table(&self, name: &str) -> Result<&Arc<TableState>> {
        self.find_known_table(name).and_then(undamaged)
    }

    /// All tables that can be used, by name.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableState>> {
        self.tables.values()
    }

    /// All tables that cannot be used, by name.
    pub fn damaged_tables(&self) -> impl Iterator<Item = &Arc<DamagedTable>> {
        self.damaged.values()
    }

    /// All indexes that cannot be used, of tables that can be read.
    pub fn damaged_indexes(&self) -> impl Iterator<Item = (&Arc<TableState>, &Arc<DamagedIndex>)> {
        self.tables.values().flat_map(|table| table.damaged.iter().map(move |index| (table, index)))
    }

    /// Faults of segment files: the table, the index if the file is an index's, and the fault.
    pub fn segment_faults(&self) -> impl Iterator<Item = (&str, Option<&str>, &SegmentFault)> {
        let tables = self
            .damaged_tables()
            .flat_map(|table| table.faults.iter().map(|fault| (&*table.schema.name, None, fault)));
        let indexes = self.damaged_indexes().flat_map(|(table, index)| {
            let name = Some(&*index.definition.name);
            index.faults.iter().map(move |fault| (&*table.schema.name, name, fault))
        });
        tables.chain(indexes)
    }

    /// Whether there is a table with this id, damaged ones included.
    pub fn has_table_id(&self, table_id: u32) -> bool {
        self.table_ids().any(|id| id == table_id)
    }

    /// Ids of all tables, damaged ones included.
    pub fn table_ids(&self) -> impl Iterator<Item = u32> {
        let damaged = self.damaged.values().map(|table| table.schema.table_id);
        self.tables.values().map(|table| table.schema.table_id).chain(damaged)
    }

    /// The index `name`, with its table.
    pub fn index(&self, name: &str) -> Option<(&Arc<TableState>, &Arc<IndexDefinition>)> {
        self.indexes().find(|(_, index)| index.name == name)
    }

    /// All indexes, by table.
    pub fn indexes(&self) -> impl Iterator<Item = (&Arc<TableState>, &Arc<IndexDefinition>)> {
        self.tables.values().flat_map(|table| table.indexes.iter().map(move |index| (table, index)))
    }

    /// Whether a table, a view, an index or a sequence has this name, damaged ones included.
    pub fn is_name_taken(&self, name: &str) -> bool {
        self.has_table_named(name)
            || self.views.contains_key(name)
            || self.has_index_named(name)
            || self.sequences.contains_key(name)
    }

    /// Whether a table has this name, damaged ones included.
    pub fn has_table_named(&self, name: &str) -> bool {
        self.tables.contains_key(name) || self.damaged.contains_key(name)
    }

    /// Whether an index has this name, also if it or its table is damaged.
    pub fn has_index_named(&self, name: &str) -> bool {
        self.index(name).is_some()
            || self.damaged_indexes().any(|(_, index)| index.definition.name == name)
            || self.damaged_table_of_index(name).is_some()
    }

    /// The damaged table that has an index of this name.
    pub fn damaged_table_of_index(&self, name: &str) -> Option<&Arc<DamagedTable>> {
        self.damaged.values().find(|table| table.index_names().any(|index| index == name))
    }

    /// Names of all tables that can be used, sorted.
    pub fn table_names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// All attached devices, by id.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceEntry> {
        self.devices.values()
    }

    /// The device called `name`.
    pub fn device_named(&self, name: &str) -> Option<&DeviceEntry> {
        self.devices.values().find(|device| device.name == name)
    }

    /// Names of the tables with a tablet on `device`, sorted.
    pub fn tables_on(&self, device: DeviceId) -> Vec<String> {
        let lies_there = |table: &TableState| table.tablets.iter().any(|t| t.device == device);
        let tables = self.tables().filter(|table| lies_there(table)).map(|table| &table.schema);
        let lies_there = |table: &DamagedTable| table.space.iter().any(|s| s.device == device);
        let damaged = self.damaged_tables().filter(|table| lies_there(table));
        let mut names: Vec<String> = tables
            .chain(damaged.map(|table| &table.schema))
            .map(|schema| schema.name.clone())
            .collect();
        names.sort_unstable();
        names
    }

    /// The snapshot for reading the pages that this version names.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::OF_STATE
    }

    /// The devices whose pages lie on the media of `device`: itself, and the mirrors that it is a copy of.
    pub fn places_on(&self, device: DeviceId) -> impl Iterator<Item = DeviceId> {
        let is_copied =
            move |entry: &&DeviceEntry| entry.mirror().is_some_and(|mirror| mirror.has(device));
        std::iter::once(device).chain(self.devices().filter(is_copied).map(|entry| entry.id))
    }

    /// Every extent of this version on `device`, also as a copy of mirrors. Free space is the complement.
    pub fn extents(&self, device: DeviceId) -> Vec<Extent> {
        self.extents_at(&self.places_on(device).collect())
    }

    /// Those of these whose pages `device` has: not of mirrors that it is a stale copy of.
    pub fn extents_present(&self, device: DeviceId) -> Vec<Extent> {
        let is_present = |place: &DeviceId| {
            let entry = self.devices.get(place).and_then(DeviceEntry::mirror);
            entry.is_none_or(|mirror| !mirror.is_stale(device))
        };
        self.extents_at(&self.places_on(device).filter(is_present).collect())
    }

    /// The extents of what lies on one of `places`.
    fn extents_at(&self, places: &BTreeSet<DeviceId>) -> Vec<Extent> {
        self.tables
            .values()
            .flat_map(|table| &table.tablets)
            .filter(|tablet| places.contains(&tablet.device))
            .flat_map(|tablet| tablet.extents())
            .chain(places.iter().flat_map(|place| self.damaged_extents(*place)))
            .chain(places.iter().flat_map(|place| self.replica_extents(*place)))
            .collect()
    }

    /// The extents of log replicas among these.
    pub fn replica_extents(&self, device: DeviceId) -> impl Iterator<Item = Extent> {
        let here = self.upkeep.log_replicas.iter().filter(move |copy| copy.device == device.0);
        here.flat_map(|copy| copy.arenas.iter().copied())
    }

    /// The extents of damaged parts among these.
    pub fn damaged_extents(&self, device: DeviceId) -> impl Iterator<Item = Extent> {
        let here = self.damaged_space().filter(move |(_, space)| space.device == device);
        here.flat_map(|(_, space)| space.extents.iter().copied())
    }

    /// A table whose extents on `device` are unknown, if there is one: then no space there may be taken for free.
    pub fn unknown_space_of(&self, device: DeviceId) -> Option<&str> {
        let places: BTreeSet<DeviceId> = self.places_on(device).collect();
        let mut unknown = self.damaged_space().filter(|(_, space)| !space.is_known);
        unknown.find(|(_, space)| places.contains(&space.device)).map(|(table, _)| table)
    }

    /// Segments of damaged parts, according to the manifest.
    pub fn damaged_segments(&self) -> impl Iterator<Item = SegmentId> {
        let tables = self.damaged_tables().flat_map(|table| table.segments());
        tables.chain(self.damaged_indexes().flat_map(|(_, index)| index.segments()))
    }

    /// The space of damaged parts, with the names of their tables.
    fn damaged_space(&self) -> impl Iterator<Item = (&str, &Occupied)> {
        let tables = self
            .damaged_tables()
            .flat_map(|table| table.space.iter().map(|space| (&*table.schema.name, space)));
        let indexes = self.damaged_indexes().flat_map(|(table, index)| {
            index.space.iter().map(|space| (&*table.schema.name, space))
        });
        tables.chain(indexes)
    }
}

/// One table: its schema and its tablets.
#[derive(Debug, Clone)]
pub struct TableState {
    /// Columns, key, defaults.
    pub schema: Arc<TableSchema>,
    /// Its indexes, ascending by id; that of the primary key first.
    pub indexes: Vec<Arc<IndexDefinition>>,
    /// Parts of the table (rule 9), by number; one by default.
    pub tablets: Vec<Arc<TabletState>>,
    /// How its rows are divided among them.
    pub division: Division,
    /// Indexes that cannot be used, ascending by id; none of them is among the others. While there is one, no row can
    /// be added, since its entry would be missing.
    pub damaged: Vec<Arc<DamagedIndex>>,
    /// Constraints on its rows.
    pub rules: Arc<TableRules>,
    /// The query of its rows, if it is a materialized view.
    pub materialized: Option<Arc<Materialized>>,
    /// Its tablets move by themselves for its devices to have about as many rows each ([`rebalance`]).
    pub is_balanced: bool,
}

impl TableState {
    /// Refuses to read a materialized view that has no rows yet.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check_populated(&self) -> Result<()> {
        match &self.materialized {
            Some(materialized) if !materialized.is_populated => Err(Error::Invalid {
                message: format!(
                    "materialized view \"{}\" has not been populated; use REFRESH MATERIALIZED VIEW",
                    self.schema.name
                ),
                fault: Fault::State,
                position: None,
            }),
            _ => Ok(()),
        }
    }

    /// Whether two tablets may have rows with equal values in the columns of `index`.
    pub fn divides(&self, index: &IndexDefinition) -> bool {
        self.tablets.len() > 1 && !self.division.holds_together(index)
    }

    /// The segments of its heap, each with the device that it lies on.
    pub fn heap_segments(&self) -> impl Iterator<Item = (DeviceId, &Arc<SegmentDirectory>)> {
        self.tablets
            .iter()
            .flat_map(|tablet| tablet.heap.iter().map(|segment| (tablet.device, segment)))
    }

    /// Describes its tablets: their devices, and the division of rows.
    pub fn placement(&self, state: &CatalogState) -> String {
        let names: Vec<String> = self
            .devices()
            .iter()
            .map(|id| state.devices.get(id).map_or_else(|| id.to_string(), |d| d.name.clone()))
            .collect();
        let names = names.join(", ");
        let placement = match self.tablets.len() {
            1 => names,
            count => {
                let division = self.division.describe(&self.schema);
                format!("{names}: {count} tablets by {division}")
            }
        };
        if self.is_balanced { format!("{placement}, rebalance = on") } else { placement }
    }

    /// The devices on which it lies, in the order of its tablets.
    pub fn devices(&self) -> Vec<DeviceId> {
        let mut devices: Vec<DeviceId> = Vec::new();
        for tablet in &self.tablets {
            if !devices.contains(&tablet.device) {
                devices.push(tablet.device);
            }
        }
        devices
    }

    /// Rows over all tablets.
    pub fn row_count(&self) -> u64 {
        self.tablets.iter().map(|tablet| tablet.row_count()).sum()
    }

    /// Rows that were inserted in the life of the table, and rows that ended. Those that an update changed in place are
    /// not among them.
    pub fn change_count(&self) -> u64 {
        let inserted = self.tablets.iter().map(|tablet| tablet.inserted_count()).sum::<u64>();
        inserted.saturating_add(inserted.saturating_sub(self.row_count()))
    }
}

/// A part of a table, all of whose pages, maps and indexes lie on one device (rule 9).
#[derive(Debug, Clone)]
pub struct TabletState {
    /// Number within its table.
    pub id: TabletId,
    /// Where its pages lie.
    pub device: DeviceId,
    /// The VID of the next row. VIDs are assigned in load order and never reused: an update makes the old row dead, and
    /// its replacement has a new VID.
    pub next_vid: u64,
    /// VIDs below that which no row ever got: a load beside writers leaves them to the rows of these.
    pub vids_skipped: u64,
    /// Heap segments in VID order. Only the last may be unsealed: that is the hot segment, which
    /// INSERT appends to.
    pub heap: Vec<Arc<SegmentDirectory>>,
    /// VID → RecID of the newest version.
    pub version_map: Arc<VersionMap>,
    /// Rows that the last page versions have changed.
    pub rewrites: Rewrites,
    /// The tablet's part of each of the table's indexes, in the same order.
    pub indexes: Vec<Arc<TabletIndex>>,
}

impl TabletState {
    /// A tablet without rows on `device`, with its parts of the table's indexes.
    #[must_use]
    pub fn empty(id: TabletId, device: DeviceId, indexes: Vec<Arc<TabletIndex>>) -> Self {
        Self {
            id,
            device,
            next_vid: 1,
            vids_skipped: 0,
            heap: Vec::new(),
            version_map: Arc::new(VersionMap::new()),
            rewrites: Rewrites::default(),
            indexes,
        }
    }

    /// Rows that were ever inserted.
    pub fn inserted_count(&self) -> u64 {
        // VIDs begin at 1.
        self.next_vid.saturating_sub(1).saturating_sub(self.vids_skipped)
    }

    /// Number of live rows.
    pub fn row_count(&self) -> u64 {
        self.version_map.live_count()
    }

    /// Dead rows that still lie on pages.
    pub fn dead_row_count(&self) -> u64 {
        let rows: u64 = self.heap.iter().map(|segment| segment.row_count()).sum();
        rows.saturating_sub(self.row_count())
    }

    /// The heap segments whose rows are in the indexes: all but shipped ones.
    pub fn indexed_heap(&self) -> impl Iterator<Item = &Arc<SegmentDirectory>> {
        self.heap.iter().filter(|segment| !segment.segment.is_shipped())
    }

    /// Every segment of the tablet: those of the heap, then the runs of its indexes.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<SegmentDirectory>> {
        self.heap.iter().chain(self.indexes.iter().flat_map(|index| index.runs()))
    }

    /// Every extent of the tablet: heap pages, overflow pages and index runs.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.segments().flat_map(|segment| segment_extents(segment))
    }

    /// The index `id`.
    pub fn index(&self, id: u32) -> Option<&Arc<TabletIndex>> {
        self.indexes.iter().find(|index| index.definition().id == id)
    }

    /// The heap segment `id`.
    pub fn segment(&self, id: SegmentId) -> Option<&Arc<SegmentDirectory>> {
        // Ids ascend with time, and so do the segments of a heap, except those written by vacuum.
        let place = self.heap.binary_search_by_key(&id, |segment| segment.segment).ok();
        match place {
            Some(place) => self.heap.get(place),
            None => self.heap.iter().find(|segment| segment.segment == id),
        }
    }

    /// The segment that INSERT appends to, if there is one.
    pub fn hot_segment(&self) -> Option<&Arc<SegmentDirectory>> {
        self.heap.last().filter(|segment| !segment.sealed)
    }
}

/// `table`, if all its indexes can be maintained.
fn undamaged(table: &Arc<TableState>) -> Result<&Arc<TableState>> {
    match table.damaged.first() {
        None => Ok(table),
        Some(damaged) => Err(damaged.error(&table.schema.name).into()),
    }
}

/// `table`, if statements may change its rows.
fn changeable(table: &Arc<TableState>) -> Result<&Arc<TableState>> {
    match &table.materialized {
        None => Ok(table),
        Some(_) => Err(Error::Invalid {
            message: format!("cannot change materialized view \"{}\"", table.schema.name),
            fault: Fault::ObjectKind,
            position: None,
        }),
    }
}

/// Every extent that `segment` occupies.
pub fn segment_extents(segment: &SegmentDirectory) -> impl Iterator<Item = Extent> {
    segment.extents()
}
