//! The manifest file: a written one is read; anything else is refused by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use cleave_media::{BlockAddress, Extent};
use cleave_store::{
    Column, ColumnType, PageClass, PageEntry, PageRef, RangeBounds, SegmentKind, SegmentRef,
    VersionRun,
};
use proptest::prelude::{any, prop, proptest};

use super::*;
use crate::catalog::autovacuum::Autovacuum;
use crate::catalog::log_replicas::LogReplica;
use crate::catalog::mirror::MirrorCopy;
use crate::catalog::rebalance::Rebalance;

fn schema(name: &str, table_id: u32) -> TableSchema {
    let column = |id: u32, name: &str, column_type, not_null| Column {
        id,
        name: name.to_owned(),
        column_type,
        not_null,
        default: None,
        absent: None,
    };
    TableSchema {
        table_id,
        version: 1,
        name: name.to_owned(),
        columns: vec![
            column(1, "id", ColumnType::Int, true),
            column(2, "note", ColumnType::Varchar(Some(12)), false),
        ],
        primary_key: vec![1],
    }
}

fn segment(id: u32, table_id: u32, sealed: bool) -> SegmentDirectory {
    let reference = SegmentRef { table_id, segment: SegmentId(id), schema_version: 1, commit: 3 };
    let mut directory = SegmentDirectory::new(reference, SegmentKind::Heap, PageClass::BULK);
    directory.pages.push(PageEntry {
        page: PageRef {
            page: 0,
            extent: Extent { start: BlockAddress(u64::from(id) * 10), block_count: 4 },
            row_count: 100,
            checksum: 0x1234_5678,
        },
        vid_first: 1,
        gaps: Default::default(),
        overflow: Vec::new(),
        shared: Vec::new(),
        zones: Vec::new(),
    });
    directory.sealed = sealed;
    directory
}

/// A table of two tablets, the first with a sealed and an open segment, on a database with three devices.
fn state(directory: &Path) -> CatalogState {
    let (sealed, open) = (segment(1, 7, true), segment(2, 7, false));
    let mut files = BTreeMap::new();
    files.insert(SegmentId(1), write_segment(directory, &sealed).unwrap());
    let mut map = VersionMap::new();
    let run = VersionRun { vid_first: 1, vid_count: 100, segment: SegmentId(1) };
    map.append_run(run).unwrap();
    map.mark_clean();
    let schema = Arc::new(schema("title", 7));
    let by_note = IndexDefinition {
        id: 3,
        name: "title_note".to_owned(),
        columns: vec![
            IndexColumn { column: 2, descending: true, nulls_first: true },
            IndexColumn::ascending(1),
        ],
        unique: false,
        constraint: false,
    };
    let indexes: Vec<_> = IndexDefinition::of_primary_key(&schema, "title_pkey".to_owned())
        .into_iter()
        .chain([by_note])
        .map(Arc::new)
        .collect();
    let stored = |index: &Arc<IndexDefinition>| {
        let shape = IndexShape::new(Arc::clone(index), &schema).unwrap();
        Arc::new(TabletIndex::stored(shape, Vec::new(), 55).unwrap())
    };
    let tablet = TabletState {
        id: TabletId(0),
        device: DeviceId(1),
        next_vid: 101,
        vids_skipped: 0,
        heap: vec![Arc::new(sealed), Arc::new(open)],
        rewrites: Default::default(),
        version_map: Arc::new(map),
        indexes: indexes.iter().map(stored).collect(),
    };
    let second =
        TabletState { id: TabletId(1), device: DeviceId(2), heap: Vec::new(), ..tablet.clone() };
    let tablets = vec![Arc::new(tablet), Arc::new(second)];
    let table = TableState {
        schema,
        indexes,
        tablets,
        division: Division::Hash(vec![2, 1]),
        damaged: Vec::new(),
        rules: Arc::default(),
        materialized: None,
        is_balanced: true,
    };
    let device = |id: u32, name: &str, kind| {
        let entry = DeviceEntry {
            id: DeviceId(id),
            name: name.to_owned(),
            identity: [u8::try_from(id).unwrap(); 16],
            kind,
        };
        (DeviceId(id), entry)
    };
    let remote = RemoteDevice {
        host: "storage1".to_owned(),
        port: 7432,
        token_file: Some(PathBuf::from("/etc/cleave/token")),
        ca_pem: Some("-----BEGIN CERTIFICATE-----".to_owned()),
        rate_cap: Some(125_000_000),
    };
    let local = LocalDevice { socket: PathBuf::from("/run/cleaved.sock"), rate_cap: Some(1 << 30) };
    CatalogState {
        database: DatabaseId([9; 16]),
        epoch: 4,
        generation: 17,
        commit: 12,
        log_position: 0,
        log_end: 0,
        next_table: 8,
        next_segment: 3,
        next_device: 3,
        devices: BTreeMap::from([
            device(0, "embedded", DeviceKind::Embedded),
            device(1, "nas", DeviceKind::Remote(remote)),
            device(2, "beside", DeviceKind::Local(local)),
        ]),
        tables: BTreeMap::from([("title".to_owned(), Arc::new(table))]),
        damaged: BTreeMap::new(),
        sequences: BTreeMap::new(),
        files,
        blocked: BlockedTables::default(),
        upkeep: Upkeep {
            archive_directory: Some(PathBuf::from("/srv/archive")),
            unlogged_commit: 11,
            unlogged_at_us: 1_700_000_000_000_000,
            version_retention_s: 60,
            autovacuum: Autovacuum { is_on: Some(false), scale: Some(7), ..Autovacuum::default() },
            log_replicas: vec![LogReplica {
                device: 1,
                id: [9; 16],
                arenas: vec![Extent { start: BlockAddress(1 << 20), block_count: 9000 }],
                is_ended: true,
                gives_up: Some([4; 16]),
            }],
            kept: BTreeMap::from([(
                DeviceId(1),
                vec![Extent { start: BlockAddress(100), block_count: 3 }],
            )]),
            failover_epoch: 3,
            rebalance: Rebalance {
                is_on: Some(false),
                rate: Some(0),
                drained: BTreeSet::from([DeviceId(1)]),
                ..Rebalance::default()
            },
        },
        rights: Arc::default(),
        comments: Default::default(),
        views: BTreeMap::new(),
        keep: None,
        shipped: Arc::default(),
        referenced: Default::default(),
    }
}

fn written() -> (tempfile::TempDir, CatalogState) {
    let directory = tempfile::tempdir().unwrap();
    create_directories(directory.path()).unwrap();
    let state = state(directory.path());
    replace(directory.path(), &state).unwrap();
    (directory, state)
}

fn refusal(directory: &Path) -> (String, &'static str) {
    let error = read(directory).unwrap_err();
    (error.to_string(), error.sqlstate())
}

#[test]
fn what_is_written_is_read() {
    let (directory, state) = written();
    let read = read(directory.path()).unwrap();
    assert_eq!(read.database, state.database);
    assert_eq!((read.epoch, read.generation, read.commit), (4, 17, 12));
    assert_eq!((read.next_table, read.next_segment, read.next_device), (8, 3, 3));
    assert_eq!(read.devices, state.devices);
    assert_eq!(read.files, state.files);
    assert_eq!(read.upkeep, state.upkeep);
    let (read, wrote) = (read.table("title").unwrap(), state.table("title").unwrap());
    assert_eq!(read.schema, wrote.schema);
    assert_eq!((&read.division, read.tablets.len()), (&Division::Hash(vec![2, 1]), 2));
    assert_eq!(read.tablets[1].device, DeviceId(2));
    assert!(read.is_balanced);
    let (read, wrote) = (&read.tablets[0], &wrote.tablets[0]);
    assert_eq!(read.heap, wrote.heap);
    assert_eq!(read.version_map, wrote.version_map);
    assert_eq!((read.next_vid, read.device), (101, DeviceId(1)));
    assert_eq!(read.indexes.len(), 2);
    assert!(read.indexes.iter().all(|index| index.vid_covered == 55));
}

/// Bounds of `note`, one for two tablets.
fn ranges() -> proto::Ranges {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["m"]));
    proto::Ranges { column: 2, bounds: RangeBounds::keys_of(&values).unwrap() }
}

#[test]
fn every_division_is_read_back() {
    let (directory, state) = written();
    let bounds = RangeBounds::of_keys(&DataType::Utf8, ranges().bounds).unwrap();
    for division in [
        Division::LoadOrder,
        Division::RoundRobin,
        Division::Hash(vec![1]),
        Division::Range(2, bounds),
    ] {
        let mut next = state.clone();
        let table = TableState::clone(state.table("title").unwrap());
        let table = TableState { division: division.clone(), ..table };
        next.tables.insert("title".to_owned(), Arc::new(table));
        replace(directory.path(), &next).unwrap();
        assert_eq!(read(directory.path()).unwrap().table("title").unwrap().division, division);
    }
}

#[test]
fn the_manifest_of_an_older_build_is_read() {
    let (directory, state) = written();
    let mut older = message(&state);
    older.tables[0].hash_columns = vec![1];
    for version in [3, 14] {
        let format = Format { versions: 3..=version, ..MANIFEST_FORMAT };
        let bytes = format.seal(&older.encode_to_vec());
        fs::write(directory.path().join("manifest"), bytes).unwrap();
        let read = read(directory.path()).unwrap();
        assert_eq!(read.table("title").unwrap().division, Division::Hash(vec![1]));
    }
}

#[test]
fn a_division_that_makes_no_sense_is_refused() {
    let (directory, state) = written();
    let fault = |change: &dyn Fn(&mut proto::Table)| {
        let mut changed = message(&state);
        changed.tables[0].hash_columns.clear();
        change(&mut changed.tables[0]);
        replace_message(directory.path(), &changed).unwrap();
        read(directory.path()).map(drop).map_err(|error| error.to_string())
    };
    let by_range = |table: &mut proto::Table| table.ranges = Some(ranges());
    assert_eq!(fault(&by_range), Ok(()));
    let changed = |change: fn(&mut proto::Ranges)| {
        fault(&|table| {
            let mut strange = ranges();
            change(&mut strange);
            table.ranges = Some(strange);
        })
    };
    for (told, reason) in [
        (changed(|ranges| ranges.column = 9), "has no column 9"),
        // An integer.
        (changed(|ranges| ranges.column = 1), "does not fit"),
        (changed(|ranges| ranges.bounds.clear()), "there are none"),
        (changed(|ranges| ranges.bounds.insert(0, vec![1])), "2 tablets, and bounds for 3"),
        (changed(|ranges| ranges.bounds.push(vec![1])), "do not ascend"),
        (changed(|ranges| ranges.bounds[0].clear()), "does not fit"),
        (changed(|ranges| ranges.bounds[0] = vec![u8::MAX]), "one is NULL"),
        (fault(&|table| (table.ranges, table.round_robin) = (Some(ranges()), true)), "two ways"),
        (fault(&|table| (table.ranges, table.hash_columns) = (Some(ranges()), vec![1])), "two"),
    ] {
        let told = told.unwrap_err();
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

#[test]
fn extents_are_those_of_the_device_asked_for() {
    let (_directory, state) = written();
    let extent = |start| Extent { start: BlockAddress(start), block_count: 4 };
    let copy = Extent { start: BlockAddress(1 << 20), block_count: 9000 };
    assert_eq!(state.extents(DeviceId(1)), [extent(10), extent(20), copy]);
    assert_eq!(state.extents(DeviceId(0)), []);
}

/// A mirror with these copies: the number of each, and whether it is stale.
fn mirror(copies: &[(u32, bool)]) -> DeviceEntry {
    let copy =
        |(id, is_stale): &(u32, bool)| MirrorCopy { device: DeviceId(*id), is_stale: *is_stale };
    let mirror = Mirror { copies: copies.iter().map(copy).collect() };
    DeviceEntry {
        id: DeviceId(3),
        name: "both".to_owned(),
        identity: [0; 16],
        kind: DeviceKind::Mirror(mirror),
    }
}

#[test]
fn the_space_of_a_mirror_is_in_use_on_each_of_its_copies() {
    let (directory, mut state) = written();
    state.devices.insert(DeviceId(3), mirror(&[(1, false), (2, true)]));
    let mut table = TableState::clone(state.table("title").unwrap());
    let heap = vec![Arc::new(segment(4, 7, false))];
    let tablet = TabletState::clone(&table.tablets[1]);
    table.tablets[1] = Arc::new(TabletState { device: DeviceId(3), heap, ..tablet });
    state.tables.insert("title".to_owned(), Arc::new(table));
    replace(directory.path(), &state).unwrap();
    let read = read(directory.path()).unwrap();
    assert_eq!(read.devices, state.devices);
    let extent = |start| Extent { start: BlockAddress(start), block_count: 4 };
    let copy = Extent { start: BlockAddress(1 << 20), block_count: 9000 };
    assert_eq!(read.extents(DeviceId(3)), [extent(40)]);
    assert_eq!(read.extents(DeviceId(1)), [extent(10), extent(20), extent(40), copy]);
    assert_eq!(read.extents(DeviceId(2)), [extent(40)]);
    // It has none of them yet.
    assert_eq!(read.extents_present(DeviceId(2)), []);
    assert_eq!(read.extents_present(DeviceId(1)), read.extents(DeviceId(1)));
    assert_eq!(read.tables_on(DeviceId(2)), Vec::<String>::new());
    assert_eq!(read.places_on(DeviceId(0)).collect::<Vec<_>>(), [DeviceId(0)]);
}

#[test]
fn a_mirror_that_cannot_be_is_refused() {
    let (directory, mut state) = written();
    for (copies, reason) in [
        (&[(1, false)][..], "less than two copies"),
        (&[(1, false), (7, false)][..], "no device 7"),
        (&[(1, false), (1, true)][..], "device 1 is a copy twice"),
        (&[(1, false), (0, false)][..], "device 0 cannot be a copy"),
        (&[(1, false), (3, false)][..], "device 3 cannot be a copy"),
        (&[(1, true), (2, true)][..], "all of its copies lack pages"),
    ] {
        state.devices.insert(DeviceId(3), mirror(copies));
        replace(directory.path(), &state).unwrap();
        let (message, sqlstate) = refusal(directory.path());
        assert!(message.contains("mirror \"both\": "), "{message}");
        assert!(message.contains(reason), "{message}");
        assert_eq!(sqlstate, "XX001");
    }
}

#[test]
fn a_directory_without_a_manifest_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let (message, sqlstate) = refusal(directory.path());
    assert!(message.contains("is not a Cleave database"), "{message}");
    assert_eq!(sqlstate, "3D000");
    let (message, _) = refusal(&directory.path().join("absent"));
    assert!(message.contains("is not a Cleave database"), "{message}");
}

#[test]
fn another_file_named_manifest_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("manifest"), "dear diary, ...").unwrap();
    let (message, sqlstate) = refusal(directory.path());
    assert!(message.contains("its file \"manifest\" is not Cleave's"), "{message}");
    assert_eq!(sqlstate, "3D000");
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let (directory, _) = written();
    let newer = Format { versions: 1..=16, ..MANIFEST_FORMAT };
    fs::write(directory.path().join("manifest"), newer.seal(b"who knows")).unwrap();
    let (message, sqlstate) = refusal(directory.path());
    assert!(message.contains("written by a newer Cleave: its format is 16"), "{message}");
    assert_eq!(sqlstate, "XX001");
}

#[test]
fn a_manifest_cut_anywhere_is_damaged() {
    let (directory, _) = written();
    let path = directory.path().join("manifest");
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let (message, _) = refusal(directory.path());
        assert!(message.contains("manifest\" is damaged"), "{length}: {message}");
    }
}

#[test]
fn a_manifest_with_any_byte_changed_is_refused() {
    let (directory, _) = written();
    let path = directory.path().join("manifest");
    let whole = fs::read(&path).unwrap();
    for index in 0..whole.len() {
        let mut changed = whole.clone();
        changed[index] ^= 0x40;
        fs::write(&path, &changed).unwrap();
        assert!(read(directory.path()).is_err(), "byte {index}");
    }
}

/// The fault of the only damaged table.
fn fault(directory: &Path) -> String {
    let state = read(directory).unwrap();
    assert!(state.table("title").is_none());
    let error = state.find_table("title").unwrap_err();
    assert_eq!(error.sqlstate(), "XX001");
    error.to_string()
}

#[test]
fn a_segment_file_that_is_missing_or_altered_is_named() {
    let (directory, _) = written();
    let path = directory.path().join("segments/1");
    let whole = fs::read(&path).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&path, changed).unwrap();
    let message = fault(directory.path());
    assert!(message.contains("segments/1\": it fails its checksum"), "{message}");
    fs::write(&path, &whole[1..]).unwrap();
    assert!(fault(directory.path()).contains("does not have the length"));
    fs::remove_file(&path).unwrap();
    assert!(fault(directory.path()).contains("it is missing"));
}

#[test]
fn what_is_damaged_is_written_again_as_it_was_read() {
    let (directory, state) = written();
    let (manifest, path) = (directory.path().join("manifest"), directory.path().join("segments/1"));
    let (written, whole) = (fs::read(&manifest).unwrap(), fs::read(&path).unwrap());
    fs::remove_file(&path).unwrap();
    let damaged = read(directory.path()).unwrap();
    for id in [0, 1, 2].map(DeviceId) {
        assert_eq!(damaged.extents(id), state.extents(id), "what it occupies is known");
        assert_eq!(damaged.unknown_space_of(id), None);
    }
    assert_eq!(damaged.files, state.files);
    assert_eq!(damaged.tables_on(DeviceId(2)), ["title"]);
    assert!(damaged.is_name_taken("title") && damaged.is_name_taken("title_note"));
    remove_strays(directory.path(), &damaged).unwrap();
    replace(directory.path(), &damaged).unwrap();
    assert_eq!(fs::read(&manifest).unwrap(), written, "nothing is left out");
    fs::write(&path, whole).unwrap();
    assert_eq!(read(directory.path()).unwrap().table("title").unwrap().tablets.len(), 2);
}

#[test]
fn blocks_of_a_segment_are_joined_and_read_back() {
    let page = |start: u64, block_count| {
        let mut entry = segment(1, 7, true).pages[0].clone();
        entry.page.extent = Extent { start: BlockAddress(start), block_count };
        entry
    };
    let pages = vec![page(20, 4), page(7, 1), page(8, 2), page(24, u32::MAX), page(0, 1)];
    let directory = SegmentDirectory { pages, ..segment(1, 7, true) };
    let joined = blocks::joined(&directory);
    let extent = |start, block_count| Extent { start: BlockAddress(start), block_count };
    assert_eq!(*joined, [extent(0, 1), extent(7, 3), extent(20, 4), extent(24, u32::MAX)]);
    assert_eq!(blocks::decode(&blocks::encode(&joined)), Some(joined));
    let decoded =
        |numbers: &[u64]| blocks::decode(&proto::Blocks { gaps_and_lengths: numbers.to_vec() });
    assert_eq!(decoded(&[]).unwrap().len(), 0);
    for none in [&[3][..], &[3, 0], &[3, 1 << 32], &[u64::MAX, 1], &[1, 5, u64::MAX - 3, 2]] {
        assert_eq!(decoded(none), None, "{none:?}");
    }
}

#[test]
fn strays_of_a_crash_are_removed_and_nothing_else() {
    let (directory, state) = written();
    let stray = |name: &str| directory.path().join(name);
    for name in ["manifest.new", "segments/2", "segments/99", "segments/notes.txt"] {
        fs::write(stray(name), "x").unwrap();
    }
    remove_strays(directory.path(), &state).unwrap();
    assert!(!stray("manifest.new").exists());
    // Segment 2 is open: its directory is in the manifest, and a file of its name is a stray.
    assert!(!stray("segments/2").exists());
    assert!(!stray("segments/99").exists());
    assert!(stray("segments/notes.txt").exists());
    assert!(stray("segments/1").exists());
    assert!(read(directory.path()).is_ok());
}

#[test]
fn a_directory_is_made_with_all_that_is_missing_above_it() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("a/b/c");
    create_directory(&deep).unwrap();
    assert!(deep.is_dir());
    create_directory(&deep).unwrap();
    fs::write(deep.join("file"), "").unwrap();
    assert!(create_directory(&deep.join("file/d")).is_err());
}

#[test]
fn only_what_creation_leaves_is_blank() {
    let directory = tempfile::tempdir().unwrap();
    assert!(is_blank(directory.path()).unwrap());
    for name in ["lock", "manifest.new", "device-0.media", "device-0.media.id.new"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    assert!(is_blank(directory.path()).unwrap());
    fs::write(directory.path().join("thesis.tex"), "").unwrap();
    assert!(!is_blank(directory.path()).unwrap());
}

proptest! {
    #[test]
    fn any_message_in_an_intact_frame_is_read_or_refused(
        message in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("manifest"), MANIFEST_FORMAT.seal(&message)).unwrap();
        drop(read(directory.path()));
    }
}
