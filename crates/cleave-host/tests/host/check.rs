//! Tests of `check`: a sound database has no findings, and each kind of damage is reported with its place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use cleave_host::catalog::manifest::MANIFEST_FORMAT;
use cleave_host::catalog::proto::Manifest;
use cleave_host::check::{CheckOptions, CheckReport, Fault, Finding, check};
use cleave_host::{Database, DeviceId, OpenOptions};
use cleave_media::{BLOCK_SIZE, BlockAddress};
use cleave_store::{
    IndexKey, KeyColumn, PageEntry, PageRef, RangeBounds, RunWriter, SegmentDirectory, SegmentId,
    SegmentKind, VersionMap, VersionRun, ZoneValue,
};
use prost::Message;

use crate::support::{batches, embedded, note, numbered, open, refused, rows, run};

/// Tables of every type, bulk and hot, with and without a key, with long values, and one without rows.
const EVERYTHING: &str = "
    CREATE TABLE empty (id int PRIMARY KEY);
    CREATE TABLE hot (id int, part varchar(10), a smallint, b bigint, c real, d double precision, e numeric(12, 2),
        f boolean, g text, h char(3), i date, j time, k timestamp, l timestamptz, m interval, n bytea, o uuid,
        PRIMARY KEY (part, id));
    INSERT INTO hot VALUES
        (1, 'x', 1, 2, 0.5, 0.25, 9.99, true, 'text', 'abc', '2001-02-03', '04:05:06', '2001-02-03 04:05:06',
         '2001-02-03 04:05:06+00', '1 day', '\\x00ff', '00112233-4455-6677-8899-aabbccddeeff'),
        (2, 'x', NULL, NULL, 'NaN', '-0', NULL, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (2, 'y', -1, -2, -0.5, NULL, -1, false, 'ß', 'de', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE TABLE long (id int, words text);
    INSERT INTO long VALUES (1, repeat('a long value ', 60000)), (2, 'short'), (3, repeat('another ', 70000));
    CREATE TABLE bulk (id int PRIMARY KEY, note text)";

async fn made() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, EVERYTHING).await;
    session.load("bulk", batches(vec![numbered(0..150_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO bulk VALUES (-1, 'before'), (-2, NULL)").await;
    for id in 10..60 {
        let insert = format!("INSERT INTO hot (id, part, g) VALUES ({id}, 'z', '{}')", note(id));
        run(&mut session, &insert).await;
    }
    // The check follows the manifest.
    run(&mut session, "CHECKPOINT").await;
    directory
}

async fn checked(directory: &Path) -> CheckReport {
    checked_with(directory, &CheckOptions::default()).await
}

async fn checked_with(directory: &Path, options: &CheckOptions) -> CheckReport {
    check(directory, OpenOptions::new(embedded()), options).await.unwrap()
}

/// The only finding.
fn only(report: &CheckReport) -> &Finding {
    let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
    finding
}

/// A segment of `table`, heap or index, and its first page.
async fn first_page(
    directory: &Path,
    table: &str,
    heap: bool,
) -> (Arc<SegmentDirectory>, PageEntry) {
    let database = open(directory).await;
    let state = database.catalog();
    let tablet = &state.table(table).unwrap().tablets[0];
    let heap_count = tablet.heap.len();
    let mut segments = tablet.segments();
    let segment = if heap { segments.next() } else { segments.nth(heap_count) };
    let segment = Arc::clone(segment.unwrap());
    let entry = segment.pages[0].clone();
    (segment, entry)
}

fn media(directory: &Path) -> File {
    File::options().read(true).write(true).open(directory.join("device-0.media")).unwrap()
}

fn flip(directory: &Path, page: &PageRef, at: u64) {
    let (file, place) = (media(directory), page.extent.start.0 * BLOCK_SIZE as u64 + at);
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 1], place).unwrap();
}

/// Changes the manifest, with checksums that fit.
fn change_manifest(directory: &Path, change: impl FnOnce(&mut Manifest)) {
    let path = directory.join("manifest");
    let bytes = std::fs::read(&path).unwrap();
    let mut manifest = Manifest::decode(MANIFEST_FORMAT.open(&bytes).unwrap().1).unwrap();
    change(&mut manifest);
    std::fs::write(&path, MANIFEST_FORMAT.seal(&manifest.encode_to_vec())).unwrap();
}

/// Changes the directory of the open segment of the `table`-th table, by name.
fn change_directory(directory: &Path, table: usize, change: impl FnOnce(&mut SegmentDirectory)) {
    change_manifest(directory, |manifest| {
        let heap = &mut manifest.tables[table].tablets[0].heap;
        let place = heap.iter_mut().find_map(|place| place.directory.as_mut()).unwrap();
        let mut segment = SegmentDirectory::decode(place).unwrap();
        change(&mut segment);
        *place = segment.encode();
    });
}

/// Puts another directory in the place of that of the run of table `bulk`.
fn replace_run(directory: &Path, run: &SegmentDirectory) {
    let bytes = run.encode();
    let name = run.segment.0.to_string();
    std::fs::write(directory.join("segments").join(name), &bytes).unwrap();
    change_manifest(directory, |manifest| {
        let index = &mut manifest.tables[BULK].tablets[0].indexes[0];
        index.runs[0].file_checksum = crc32c::crc32c(&bytes);
        index.runs[0].file_bytes = bytes.len() as u64;
    });
}

/// Tables in the order of the manifest.
const BULK: usize = 0;
const HOT: usize = 2;

/// The VIDs of rows that were loaded into an empty table begin behind this one.
const LOADED_FROM: u64 = 1 << 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_database_has_no_findings() {
    let directory = made().await;
    let report = checked(directory.path()).await;
    assert!(report.is_clean(), "{:#?}", report.findings);
    let counts = report.counts;
    assert_eq!((counts.tables, counts.rows), (4, 150_002 + 53 + 3));
    assert_eq!(counts.map_entries, counts.rows);
    assert!(counts.index_entries >= 150_000, "{counts:?}");
    assert!(counts.files > 0 && counts.chunks > counts.pages && counts.blocks > 0, "{counts:?}");
    // Indexes in several windows, one page at a time; and headers alone.
    let small = CheckOptions { memory_bytes: 9 * 40_000, threads: 1, ..CheckOptions::default() };
    assert!(checked_with(directory.path(), &small).await.is_clean());
    let quick = CheckOptions { quick: true, ..CheckOptions::default() };
    let quick = checked_with(directory.path(), &quick).await;
    assert!(quick.is_clean(), "{:#?}", quick.findings);
    assert_eq!((quick.counts.pages, quick.counts.rows), (counts.pages, 0));
    // During use, while a statement writes.
    let database = open(directory.path()).await;
    let mut session = database.session();
    let write = run(&mut session, "INSERT INTO bulk VALUES (-3, 'meanwhile')");
    let options = CheckOptions::default();
    let (report, _) = tokio::join!(database.check(&options), write);
    assert!(report.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_header_names_the_page_and_nothing_else() {
    let directory = made().await;
    let (segment, entry) = first_page(directory.path(), "bulk", true).await;
    flip(directory.path(), &entry.page, 30);
    for quick in [false, true] {
        let options = CheckOptions { quick, ..CheckOptions::default() };
        let report = checked_with(directory.path(), &options).await;
        let finding = only(&report);
        assert!(matches!(finding.fault, Fault::Page(_)), "{finding:?}");
        let place = &finding.place;
        assert_eq!(place.table.as_deref(), Some("bulk"));
        assert_eq!((place.segment, place.page), (Some(segment.segment), Some(entry.page.page)));
        assert_eq!(place.address, Some(entry.page.extent.start));
        assert_eq!(place.device.as_deref(), Some("embedded"));
        assert_eq!((&place.column, &place.index), (&None, &None));
        assert_eq!(report.counts.tables, 4, "the others were checked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_chunks_name_their_columns() {
    let directory = made().await;
    let (_, entry) = first_page(directory.path(), "hot", true).await;
    let mut bytes = vec![0; entry.page.extent.bytes()];
    let start = entry.page.extent.start;
    media(directory.path()).read_exact_at(&mut bytes, start.0 * BLOCK_SIZE as u64).unwrap();
    let found = cleave_store::page::inspection::inspect_page(&bytes.into(), start).unwrap();
    let chunks = found.chunks.iter().filter(|chunk| chunk.entry.length > 0);
    let chunks: Vec<_> = chunks.take(2).map(|chunk| chunk.entry).collect();
    for chunk in &chunks {
        flip(directory.path(), &entry.page, u64::from(chunk.offset) + 1);
    }
    let report = checked(directory.path()).await;
    assert_eq!(report.findings.count(), 2, "{:#?}", report.findings);
    for finding in report.findings.kept() {
        assert!(matches!(finding.fault, Fault::Page(_)), "{finding:?}");
        let column = finding.place.column.as_deref().unwrap();
        assert!(column.starts_with("column \""), "{column}");
        assert_eq!(finding.place.table.as_deref(), Some("hot"));
    }
    let quick = CheckOptions { quick: true, ..CheckOptions::default() };
    assert!(checked_with(directory.path(), &quick).await.is_clean(), "quick reads no chunks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_of_long_values_is_named() {
    let directory = made().await;
    let (_, entry) = first_page(directory.path(), "long", true).await;
    assert!(entry.overflow.len() > 2, "the values are long");
    flip(directory.path(), &entry.overflow[1], 500);
    let report = checked(directory.path()).await;
    let finding = only(&report);
    assert!(matches!(finding.fault, Fault::Page(_)), "{finding:?}");
    assert_eq!(finding.place.page, Some(entry.overflow[1].page));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_of_an_index_is_named() {
    let directory = made().await;
    let (_, entry) = first_page(directory.path(), "bulk", false).await;
    flip(directory.path(), &entry.page, u64::from(entry.page.extent.block_count) * 2048);
    let report = checked(directory.path()).await;
    let finding = only(&report);
    assert!(matches!(finding.fault, Fault::Page(_)), "{finding:?}");
    assert!(finding.place.index.is_some() && finding.place.column.is_some(), "{finding:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_changed_places_are_both_named() {
    let directory = made().await;
    let (segment, first) = first_page(directory.path(), "bulk", false).await;
    let second = &segment.pages[1];
    assert_eq!(first.page.extent.block_count, second.page.extent.block_count);
    let file = media(directory.path());
    let at = |page: &PageRef| page.extent.start.0 * BLOCK_SIZE as u64;
    let mut pages = [vec![0; first.page.extent.bytes()], vec![0; first.page.extent.bytes()]];
    file.read_exact_at(&mut pages[0], at(&first.page)).unwrap();
    file.read_exact_at(&mut pages[1], at(&second.page)).unwrap();
    file.write_all_at(&pages[0], at(&second.page)).unwrap();
    file.write_all_at(&pages[1], at(&first.page)).unwrap();
    let report = checked(directory.path()).await;
    let pages: Vec<_> = report.findings.kept().iter().map(|finding| finding.place.page).collect();
    assert_eq!(pages, [Some(first.page.page), Some(second.page.page)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_version_of_a_page_is_named() {
    let directory = made().await;
    let old = first_page(directory.path(), "hot", true).await.1.page;
    let mut bytes = vec![0; old.extent.bytes()];
    let at = |page: &PageRef| page.extent.start.0 * BLOCK_SIZE as u64;
    media(directory.path()).read_exact_at(&mut bytes, at(&old)).unwrap();
    {
        let database = open(directory.path()).await;
        run(&mut database.session(), "INSERT INTO hot (id, part) VALUES (99, 'late')").await;
    }
    let new = first_page(directory.path(), "hot", true).await.1.page;
    assert_ne!(old, new, "the page was written anew");
    media(directory.path()).write_all_at(&bytes, at(&new)).unwrap();
    let report = checked(directory.path()).await;
    assert!(matches!(only(&report).fault, Fault::Page(_)), "{:?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segment_files_that_are_missing_or_damaged_are_named_and_the_rest_is_checked() {
    let directory = made().await;
    let (segment, _) = first_page(directory.path(), "bulk", true).await;
    let path = directory.path().join("segments").join(segment.segment.0.to_string());
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[40] ^= 1;
    for damage in [None, Some(&flipped[..]), Some(&whole[..whole.len() - 1])] {
        match damage {
            None => std::fs::remove_file(&path).unwrap(),
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        }
        let report = checked(directory.path()).await;
        let finding = only(&report);
        assert!(matches!(finding.fault, Fault::File(_)), "{finding:?}");
        assert_eq!(finding.place.file.as_ref(), Some(&path));
        assert_eq!(finding.place.table.as_deref(), Some("bulk"));
        assert_eq!(finding.place.segment, Some(segment.segment));
        assert_eq!((report.counts.tables, report.counts.rows), (3, 53 + 3));
        let database =
            Database::open(directory.path(), OpenOptions::new(embedded())).await.unwrap();
        let error = refused(&mut database.session(), "SELECT * FROM bulk").await;
        assert_eq!(error.sqlstate(), "XX001", "nothing was mended in silence");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(checked(directory.path()).await.is_clean());
    let database = open(directory.path()).await;
    assert_eq!(rows(&mut database.session(), "SELECT count(*) FROM bulk").await, ["150002"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_manifest_is_named_and_what_is_no_database_is_not_checked() {
    let directory = made().await;
    let path = directory.path().join("manifest");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let report = checked(directory.path()).await;
    assert_eq!(only(&report).place.file.as_ref(), Some(&path));
    assert_eq!(report.counts.tables, 0);
    let elsewhere = tempfile::tempdir().unwrap();
    let options = CheckOptions::default();
    let refused = check(elsewhere.path(), OpenOptions::new(embedded()), &options).await;
    assert_eq!(refused.unwrap_err().sqlstate(), "3D000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn media_that_was_cut_off_is_named_with_the_pages_behind_its_end() {
    let directory = made().await;
    let end = {
        let database = open(directory.path()).await;
        let extents = database.catalog().extents(DeviceId::EMBEDDED);
        extents.iter().map(|extent| extent.end().0).max().unwrap()
    };
    media(directory.path()).set_len((end - 1) * BLOCK_SIZE as u64).unwrap();
    let report = checked(directory.path()).await;
    let kinds: Vec<_> = report.findings.kept().iter().map(|f| f.fault.kind()).collect();
    assert_eq!(kinds, ["space", "media"], "{:#?}", report.findings);
    assert!(report.findings.kept()[0].to_string().contains("beyond the media"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_two_pages_are_named() {
    let directory = made().await;
    let taken = first_page(directory.path(), "bulk", true).await.1.page.extent.start;
    change_directory(directory.path(), HOT, |segment| {
        segment.pages[0].page.extent.start = taken;
    });
    let report = checked(directory.path()).await;
    let space = &report.findings.kept()[0];
    assert!(matches!(space.fault, Fault::Space(_)), "{:#?}", report.findings);
    assert!(space.to_string().contains("are also those of page"), "{space}");
    let page = &report.findings.kept()[1];
    assert!(matches!(page.fault, Fault::Page(_)), "{page}");
    assert_eq!(page.place.table.as_deref(), Some("hot"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_that_do_not_hold_are_named() {
    let directory = made().await;
    change_directory(directory.path(), HOT, |segment| {
        let zone = segment.pages[0].zones.iter_mut().find(|zone| zone.column == 1).unwrap();
        zone.max = Some(ZoneValue::Integer(5));
    });
    let report = checked(directory.path()).await;
    let finding = only(&report);
    assert_eq!(finding.fault, Fault::Bounds);
    assert_eq!(finding.place.column.as_deref(), Some("column \"id\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_maps_that_say_other_things_than_pages_are_named() {
    let directory = made().await;
    let whole = std::fs::read(directory.path().join("manifest")).unwrap();
    let change_map = |change: &dyn Fn(&VersionMap) -> VersionMap| {
        std::fs::write(directory.path().join("manifest"), &whole).unwrap();
        change_manifest(directory.path(), |manifest| {
            let tablet = &mut manifest.tables[HOT].tablets[0];
            let map = VersionMap::decode(&tablet.version_map).unwrap();
            tablet.version_map = change(&map).encode();
        });
    };
    let with_runs = |runs: &[VersionRun]| {
        let mut map = VersionMap::new();
        runs.iter().for_each(|run| map.append_run(*run).unwrap());
        map
    };
    // A row less, a row more, another segment.
    let cases: [(&str, &dyn Fn(VersionRun) -> VersionRun); 3] = [
        ("does not know VID", &|run| VersionRun { vid_count: run.vid_count - 1, ..run }),
        ("and no page has it", &|run| VersionRun { vid_count: run.vid_count + 1, ..run }),
        ("which the table does not have", &|run| VersionRun { segment: SegmentId(999), ..run }),
    ];
    for (said, case) in cases {
        change_map(&|map| with_runs(&[case(map.runs()[0])]));
        let report = checked(directory.path()).await;
        let found = report.findings.kept().iter().find(|f| f.to_string().contains(said));
        let finding = found.unwrap_or_else(|| panic!("{said}: {:#?}", report.findings));
        assert!(matches!(finding.fault, Fault::Map(_)), "{finding:?}");
        assert_eq!(finding.place.table.as_deref(), Some("hot"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_an_index_that_lead_elsewhere_are_named_in_both_directions() {
    let directory = made().await;
    let (segment, _) = first_page(directory.path(), "bulk", false).await;
    let old = SegmentDirectory::clone(&segment);
    let schema = Arc::clone(&open(directory.path()).await.catalog().table("bulk").unwrap().schema);
    // The same run, with two rows swapped, one missing and one pointing nowhere.
    let id = KeyColumn::ascending(schema.columns[0].column_type.arrow());
    let key = IndexKey::new(vec![id], true).unwrap();
    let ids = Int32Array::from_iter_values(0..150_000);
    let keys = key.encode(&[Arc::new(ids)]).unwrap();
    let mut writer = RunWriter::new(old.segment_ref(), 0, true).unwrap();
    let mut pages = Vec::new();
    for (key, vid) in keys.iter().zip(1_u64..) {
        let vid = match vid {
            100 => 200,
            200 => 100,
            300 => LOADED_FROM,
            vid => vid,
        };
        pages.extend(writer.push(key.unwrap(), LOADED_FROM + vid).unwrap());
    }
    pages.extend(writer.finish().unwrap().pages);
    // Behind the end of the media, where all of it has room.
    let file = media(directory.path());
    let mut start = file.metadata().unwrap().len() / BLOCK_SIZE as u64;
    let mut placed = Vec::new();
    for page in &pages {
        file.write_all_at(&page.bytes, start * BLOCK_SIZE as u64).unwrap();
        placed.push((page, BlockAddress(start)));
        start += u64::from(page.block_count());
    }
    let mut new = SegmentDirectory { sealed: false, pages: Vec::new(), ..old };
    new.append(&placed).unwrap();
    new.sealed = true;
    replace_run(directory.path(), &new);
    let report = checked(directory.path()).await;
    let said: Vec<_> = report.findings.kept().iter().map(ToString::to_string).collect();
    for (vid, fault) in [
        (100, "has another key than the row"),
        (200, "has another key than the row"),
        (LOADED_FROM, "which no row ever had"),
        (300, "has no entry"),
    ] {
        let vid = format!("VID {}", LOADED_FROM + vid);
        let named = |said: &String| said.contains(&vid) && said.contains(fault);
        assert!(said.iter().any(named), "{vid} that {fault} is not among {said:#?}");
    }
    assert!(report.findings.kept().iter().all(|f| matches!(f.fault, Fault::Index(_))), "{said:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_of_every_kind_are_compared_with_their_rows() {
    let directory = made().await;
    let database = open(directory.path()).await;
    let mut session = database.session();
    for sql in [
        "CREATE INDEX hot_g ON hot (g DESC, a)",
        "CREATE UNIQUE INDEX hot_a ON hot (a NULLS FIRST, id, part)",
        "CREATE INDEX bulk_note ON bulk (note)",
        "INSERT INTO hot (id, part) VALUES (99, 'x'), (98, 'x')",
    ] {
        run(&mut session, sql).await;
    }
    session.load("bulk", batches(vec![numbered(200_000..210_000)]), None).await.unwrap();
    drop((session, database));
    let report = checked(directory.path()).await;
    assert!(report.is_clean(), "{:#?}", report.findings);
    change_manifest(directory.path(), |manifest| {
        let index = &mut manifest.tables[BULK].tablets[0].indexes[1];
        index.runs.truncate(1);
    });
    let report = checked(directory.path()).await;
    let said: Vec<_> = report.findings.kept().iter().map(ToString::to_string).collect();
    let named = |said: &String| said.contains("bulk_note") && said.contains("has no entry");
    assert!(said.iter().any(named), "{said:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_come_twice_are_named() {
    let directory = made().await;
    change_manifest(directory.path(), |manifest| {
        let index = &mut manifest.tables[BULK].tablets[0].indexes[0];
        let run = index.runs[0].clone();
        index.runs.push(run);
    });
    let report = checked(directory.path()).await;
    let said: Vec<_> = report.findings.kept().iter().map(ToString::to_string).collect();
    let second = format!("a second entry for VID {}", LOADED_FROM + 1);
    for part in ["are also those of page", &second, "have the same key"] {
        assert!(said.iter().any(|said| said.contains(part)), "{part} is not among {said:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_a_filter_hides_are_named() {
    let directory = made().await;
    let (segment, _) = first_page(directory.path(), "bulk", false).await;
    let mut run = SegmentDirectory::clone(&segment);
    let SegmentKind::Index(properties) = &mut run.kind else { panic!("a run") };
    // One block of it: some entries on all pages.
    properties.filter.as_mut().unwrap().bytes[..32].fill(0);
    replace_run(directory.path(), &run);
    let report = checked(directory.path()).await;
    assert!(!report.is_clean());
    for finding in report.findings.kept() {
        assert!(matches!(finding.fault, Fault::Index(_)), "{finding:?}");
        assert!(finding.to_string().contains("filter hides its entry for VID"), "{finding}");
        assert_eq!(finding.place.segment, Some(segment.segment));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_a_run_and_a_row_in_no_run_have_is_named() {
    let directory = tempfile::tempdir().unwrap();
    {
        let database = open(directory.path()).await;
        let mut session = database.session();
        for sql in [
            "CREATE TABLE pair (a bigint, b bigint)",
            "CREATE UNIQUE INDEX pair_a ON pair (a)",
            "INSERT INTO pair SELECT v, v FROM generate_series(1, 20000) AS s(v)",
            "INSERT INTO pair VALUES (20001, 5)",
            "CHECKPOINT",
        ] {
            run(&mut session, sql).await;
        }
    }
    assert!(checked(directory.path()).await.is_clean());
    // An index on the other column: the run holds for it too, and row 20001 has the key of row 5.
    change_manifest(directory.path(), |manifest| {
        let index = &mut manifest.tables[0].indexes[0];
        assert_eq!(index.columns[0].column, 1);
        index.columns[0].column = 2;
    });
    let report = checked(directory.path()).await;
    let finding = only(&report);
    assert!(matches!(finding.fault, Fault::Index(_)), "{finding:?}");
    assert!(finding.to_string().contains("have the same key"), "{finding}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_another_tablet_than_their_values_say_are_found() {
    let (directory, database) = crate::support::fresh().await;
    let mut session = database.session();
    let with = "WITH (tablets = 4, tablet_by = hash (id))";
    run(&mut session, &format!("CREATE TABLE t (id int, note text) {with}")).await;
    session.load("t", batches(vec![numbered(0..2_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (5000, NULL)").await;
    drop((session, database));
    assert!(checked(directory.path()).await.is_clean());
    change_manifest(directory.path(), |manifest| manifest.tables[0].hash_columns = vec![2]);
    let report = checked(directory.path()).await;
    let said: Vec<_> = report.findings.kept().iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|said| said.contains("a row of tablet 1 belongs to tablet")),
        "{said:#?}"
    );
    // Tablets in another order are no tablets of this database.
    change_manifest(directory.path(), |manifest| manifest.tables[0].tablets.swap(1, 2));
    let report = checked(directory.path()).await;
    let said: Vec<_> = report.findings.kept().iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|said| said.contains("are not numbered from 0")), "{said:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_beyond_the_bounds_of_their_tablet_are_found() {
    let (directory, database) = crate::support::fresh().await;
    let mut session = database.session();
    let with = "WITH (tablet_by = range (id), bounds = (500, 1000))";
    run(&mut session, &format!("CREATE TABLE t (id int, note text) {with}")).await;
    session.load("t", batches(vec![numbered(0..2_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (NULL, NULL), (-7, NULL)").await;
    drop((session, database));
    assert!(checked(directory.path()).await.is_clean());
    let key = |value: i32| {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![value]));
        RangeBounds::keys_of(&values).unwrap().remove(0)
    };
    let change_bounds = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        change_manifest(directory.path(), |manifest| {
            change(&mut manifest.tables[0].ranges.as_mut().unwrap().bounds);
        });
    };
    change_bounds(&|bounds| bounds[0] = key(400));
    let found = said(&checked(directory.path()).await);
    let wrong = "a row of tablet 0 belongs to tablet 1";
    assert!(found.iter().any(|said| said.contains(wrong)), "{found:#?}");
    change_bounds(&|bounds| bounds.swap(0, 1));
    let found = said(&checked(directory.path()).await);
    assert!(found.iter().any(|said| said.contains("they do not ascend")), "{found:#?}");
    change_bounds(&|bounds| bounds.truncate(1));
    let found = said(&checked(directory.path()).await);
    let wrong = "has 3 tablets, and bounds for 2";
    assert!(found.iter().any(|said| said.contains(wrong)), "{found:#?}");
    change_bounds(&|bounds| *bounds = vec![key(500), key(1000)]);
    assert!(checked(directory.path()).await.is_clean());
}

/// A table of four tablets by hash of `c`, with a unique index of `a`; all 20,000 rows are in one tablet, and have a =
/// b.
async fn divided(directory: &Path) {
    let database = open(directory).await;
    let mut session = database.session();
    let with = "WITH (tablets = 4, tablet_by = hash (c))";
    run(&mut session, &format!("CREATE TABLE t (a bigint, b bigint, c int) {with}")).await;
    run(&mut session, "CREATE UNIQUE INDEX t_a ON t (a)").await;
    let rows = "INSERT INTO t SELECT v, v, 1 FROM generate_series(1, 20000) AS s(v)";
    run(&mut session, rows).await;
}

fn said(report: &CheckReport) -> Vec<String> {
    report.findings.kept().iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_rows_of_two_tablets_have_is_named() {
    let directory = tempfile::tempdir().unwrap();
    divided(directory.path()).await;
    let (mut there, mut here) = (Vec::new(), 0);
    {
        let database = open(directory.path()).await;
        let mut session = database.session();
        // NULLs are equal to none, in whichever tablet.
        let nulls =
            "(NULL, NULL, 1), (NULL, NULL, 2), (NULL, NULL, 3), (NULL, NULL, 4), (NULL, NULL, 5)";
        run(&mut session, &format!("INSERT INTO t VALUES {nulls}")).await;
        let rows_of_first = |database: &Database| {
            let catalog = database.catalog();
            let tablets = &catalog.table("t").unwrap().tablets;
            tablets.iter().map(|tablet| tablet.row_count()).max().unwrap()
        };
        for c in 2..12 {
            let before = rows_of_first(&database);
            let (a, b) = (c + 100_000, c * 7);
            run(&mut session, &format!("INSERT INTO t VALUES ({a}, {b}, {c})")).await;
            if rows_of_first(&database) == before {
                there.push(b);
            } else {
                here += 1;
            }
        }
        run(&mut session, "CHECKPOINT").await;
    }
    assert!(there.len() > 3, "most of four tablets are others: {there:?}");
    assert!(checked(directory.path()).await.is_clean());
    // An index on the other column: the run holds for it too, and the young rows have keys of old ones.
    change_manifest(directory.path(), |manifest| {
        let index = &mut manifest.tables[0].indexes[0];
        assert_eq!(index.columns[0].column, 1);
        index.columns[0].column = 2;
    });
    // In one merge, and tablet by tablet.
    for memory_bytes in [256 << 20, 1] {
        let options = CheckOptions { memory_bytes, ..CheckOptions::default() };
        let report = checked_with(directory.path(), &options).await;
        let said = said(&report);
        let across: Vec<_> = said.iter().filter(|said| said.contains("in tablet")).collect();
        let [across] = across.as_slice() else { panic!("{said:#?}") };
        assert!(across.contains("table \"t\", index \"t_a\""), "{across}");
        assert_eq!(said.len(), 1 + usize::from(here > 0), "{said:#?}");
        let named = there.iter().any(|b| across.contains(&format!("same key, ({b})")));
        assert!(named && across.contains(&format!("VID {}", LOADED_FROM + there[0])), "{across}");
        if memory_bytes > 1 {
            let more = format!("and at least {} more keys", there.len() - 1);
            assert!(across.contains(&more), "{across}");
        }
        assert!(report.findings.kept().iter().all(|f| matches!(f.fault, Fault::Index(_))));
    }
    let quick = CheckOptions { quick: true, ..CheckOptions::default() };
    assert!(checked_with(directory.path(), &quick).await.is_clean(), "quick reads no keys");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_runs_of_two_tablets_have_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    divided(directory.path()).await;
    // A second tablet with the very rows and runs of the first.
    change_manifest(directory.path(), |manifest| {
        let table = &mut manifest.tables[0];
        table.hash_columns.clear();
        let full = table.tablets.iter().position(|tablet| !tablet.heap.is_empty()).unwrap();
        let other = (full + 1) % 4;
        let mut copy = table.tablets[full].clone();
        copy.id = table.tablets[other].id;
        table.tablets[other] = copy;
    });
    let report = checked(directory.path()).await;
    let said = said(&report);
    let across: Vec<_> = said.iter().filter(|said| said.contains("in tablet")).collect();
    let [across] = across.as_slice() else { panic!("{across:#?}") };
    let row = format!("the row of VID {} in tablet", LOADED_FROM + 1);
    assert!(across.contains(&row), "{across}");
    assert!(across.contains("same key, (1) (and at least 19999 more keys"), "{across}");
    let others = said.iter().filter(|said| !said.contains("are also those of page"));
    assert_eq!(others.count(), 1, "what follows from blocks of two pages, and this: {said:#?}");
}
