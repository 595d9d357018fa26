//! Tests of rows that several devices make and write: `CREATE TABLE AS`, `INSERT … SELECT` and materialized views have
//! the rows that the host gives them, on the devices that made them, or nothing where one device fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session, SnapshotKind};
use cleave_media::{DirectFile, Fault, FaultPlan, FaultyMedia, Media, Memory, OpenMode, Operation};

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{
    answer, assert_no_leak, assert_no_leak_soon, fragments, fresh, open, refused, row, rows, run,
    runtime_options,
};
use crate::twin_tables::on_both_as;

/// Attaches `served` as the device `name`.
async fn attach(database: &Arc<Database>, outside: &Path, name: &str, served: &Served) {
    let remote = remote(served.address, token_file(outside, TOKEN));
    database.add_device(name, remote).await.unwrap();
}

/// Attaches the devices nas and san.
async fn attach_two(database: &Arc<Database>, outside: &Path) -> [Served; 2] {
    let nas = Served::start(&outside.join("nas.media"), [1; 16], anywhere()).await;
    let san = Served::start(&outside.join("san.media"), [2; 16], anywhere()).await;
    attach(database, outside, "nas", &nas).await;
    attach(database, outside, "san", &san).await;
    [nas, san]
}

/// A table over nas and san, with dead rows, and some in the delta; and a small one on the embedded device.
async fn source(session: &mut Session, row_count: u32) {
    for sql in [
        "CREATE TABLE source (id int, kind int, price numeric(12,2), note text) \
         WITH (devices = (nas, san), tablets = 4, tablet_by = hash (id))",
        &format!(
            "INSERT INTO source SELECT v, v % 100, v * 0.37, 'note ' || v * 7919 % 100003 \
             FROM generate_series(1, {row_count}) AS s(v)"
        ),
        "CREATE TABLE few (kind int PRIMARY KEY, word text)",
        "INSERT INTO few SELECT v, 'word ' || v FROM generate_series(0, 40) AS s(v)",
        "CHECKPOINT",
        "DELETE FROM source WHERE id % 11 = 5 AND id < 2000",
        "INSERT INTO source (id, kind) SELECT v, 7 FROM generate_series(-200, -1) AS s(v)",
        "SET update_placement = device",
    ] {
        run(session, sql).await;
    }
}

/// The device and division of each tablet of `table`, in their order; each has rows.
async fn tablets(session: &mut Session, table: &str) -> Vec<String> {
    let listed = format!(
        "SELECT device, division, least(rows, 1) FROM cleave.tablets WHERE table_name = '{table}' \
         ORDER BY tablet"
    );
    rows(session, &listed).await
}

/// Bytes that have crossed the links of nas and san.
fn crossed(database: &Database) -> u64 {
    let bytes = |name: &str| {
        let traffic = database.device_named(name).unwrap().traffic();
        traffic.sent_bytes + traffic.received_bytes
    };
    bytes("nas") + bytes("san")
}

const ALL: &str = "SELECT id, kind, price, note FROM source";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_table_lies_on_the_devices_that_make_its_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let _served = attach_two(&database, outside.path()).await;
    let mut session = database.session();
    source(&mut session, 30_000).await;
    let there = ["nas,load_order,1", "san,load_order,1"];
    let hashed = |devices: &str, by: &str| {
        format!("WITH (devices = ({devices}), tablets = 4, tablet_by = hash ({by}))")
    };
    let along = hashed("nas, san", "id");
    let of_hash = ["nas,hash (id),1", "san,hash (id),1"].repeat(2);
    for (clause, query, by_fragments, expected) in [
        ("", ALL, true, Some(there.to_vec())),
        ("", "SELECT note, id + 1, kind % 7 AS k FROM source WHERE kind < 50", true, None),
        ("WITH (tablets = 1)", ALL, false, Some(vec!["embedded,NULL,1"])),
        ("WITH (device = nas)", ALL, false, Some(vec!["nas,NULL,1"])),
        (
            "WITH (devices = (san, embedded, nas))",
            ALL,
            true,
            Some(vec!["san,load_order,1", "embedded,load_order,0", "nas,load_order,1"]),
        ),
        // Where the rows are already, by the same values.
        (along.as_str(), "SELECT note, id FROM source WHERE kind > 3", true, Some(of_hash)),
        (along.as_str(), "SELECT -id AS id, note FROM source", false, None),
        (along.as_str(), "SELECT kind AS id, id AS kind FROM source", false, None),
        (along.as_str(), "SELECT id::bigint AS id FROM source", false, None),
        (hashed("san, nas", "id").as_str(), ALL, false, None),
        (hashed("nas, san", "kind").as_str(), ALL, false, None),
        (hashed("nas, san", "id, kind").as_str(), ALL, false, None),
        (along.replace('4', "2").as_str(), ALL, false, None),
        // What joins collect is sent to both.
        (
            "",
            "SELECT s.id, f.word FROM source s JOIN few f ON s.kind = f.kind",
            true,
            Some(there.to_vec()),
        ),
        // What needs the rows of both is made on the host.
        ("", "SELECT kind, count(*) AS n FROM source GROUP BY kind", false, None),
        ("", "SELECT id, note FROM source ORDER BY id", false, None),
        ("", "SELECT DISTINCT kind FROM source", false, None),
        ("", "SELECT id FROM source LIMIT 1000000", false, None),
    ] {
        let before = fragments(&database).await;
        run(&mut session, &format!("CREATE TABLE c {clause} AS {query}")).await;
        let made = fragments(&database).await - before;
        assert_eq!(made, if by_fragments { 2 } else { 0 }, "{clause} {query}");
        let of_table = answer(&mut session, "SELECT * FROM c").await;
        let mut of_query = answer(&mut session, query).await;
        of_query.sort();
        assert!(of_table == of_query, "{clause} {query}");
        if let Some(expected) = expected {
            assert_eq!(tablets(&mut session, "c").await, expected, "{clause} {query}");
        }
        run(&mut session, "DROP TABLE c").await;
    }
    run(&mut session, &format!("CREATE TABLE c {along} AS {ALL}")).await;
    // Each row is where a look-up by its values finds it.
    for id in [1, 777, 29_999] {
        let note = |table| format!("SELECT note FROM {table} WHERE id = {id}");
        let expected = row(&mut session, &note("source")).await;
        assert_eq!(row(&mut session, &note("c")).await, expected, "{id}");
    }
    // A table that is the transaction's own, and one of the session's.
    for sql in [
        "BEGIN; INSERT INTO source (id, kind) VALUES (100001, 1), (100002, 2); \
         CREATE TABLE d AS SELECT id, kind FROM source; COMMIT",
        "CREATE TEMPORARY TABLE e AS SELECT id, kind FROM source",
    ] {
        let before = fragments(&database).await;
        run(&mut session, sql).await;
        assert_eq!(fragments(&database).await, before + 2, "{sql}");
    }
    let sum = "SELECT count(*), sum(id), sum(kind) FROM";
    let expected = row(&mut session, &format!("{sum} source")).await;
    for table in ["d", "e"] {
        assert_eq!(row(&mut session, &format!("{sum} {table}")).await, expected, "{table}");
    }
    // Where the settings place tables, or leave the rows to the host.
    for set in ["default_device = 'nas'", "default_tablets = 1", "split = host"] {
        let before = fragments(&database).await;
        run(&mut session, &format!("SET {set}; CREATE TABLE f AS {ALL}; RESET ALL")).await;
        run(&mut session, "SET update_placement = device").await;
        assert_eq!(fragments(&database).await, before, "{set}");
        assert_eq!(tablets(&mut session, "f").await.len(), 1, "{set}");
        run(&mut session, "DROP TABLE f").await;
    }
    run(&mut session, "DROP TABLE e").await;
    assert_no_leak_soon(&database).await;
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), &format!("{sum} d")).await, expected);
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_stay_cross_no_link() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let _served = attach_two(&database, outside.path()).await;
    let mut session = database.session();
    source(&mut session, 60_000).await;
    run(&mut session, "CHECKPOINT").await;
    let mut bytes = Vec::new();
    for placement in ["device", "host"] {
        let before = crossed(&database);
        run(
            &mut session,
            &format!(
                "SET update_placement = {placement}; \
                 CREATE TABLE {placement}_made WITH (devices = (nas, san)) AS {ALL}"
            ),
        )
        .await;
        bytes.push(crossed(&database) - before);
    }
    let [by_devices, by_host] = bytes[..] else { panic!() };
    assert!(by_devices < 128 << 10 && by_devices * 4 < by_host, "{bytes:?}");
    let sum = "SELECT count(*), sum(id), sum(price), count(note), max(note) FROM";
    let expected = row(&mut session, &format!("{sum} source")).await;
    for table in ["device_made", "host_made"] {
        assert_eq!(row(&mut session, &format!("{sum} {table}")).await, expected, "{table}");
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_over_several_devices_get_the_rows_that_statements_insert() {
    for (clause, stays) in [
        ("WITH (devices = (nas, san))", true),
        ("WITH (devices = (nas, san, embedded), tablets = 5, tablet_by = load_order)", true),
        ("WITH (devices = (nas, san), tablets = 4, tablet_by = hash (id))", true),
        // Rows would have to go from device to device.
        ("WITH (devices = (nas, san), tablets = 3, tablet_by = hash (id))", false),
        ("WITH (devices = (nas, embedded))", false),
    ] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database) = fresh().await;
        let _served = attach_two(&database, outside.path()).await;
        let mut session = database.session();
        source(&mut session, 4_000).await;
        for table in ["a", "b"] {
            let sql = format!(
                "CREATE TABLE {table} (id int NOT NULL, kind int, note text, \
                 price numeric(12,2) CHECK (price < 100000)) {clause}; \
                 CREATE UNIQUE INDEX {table}_id ON {table} (id); \
                 CREATE INDEX {table}_kind ON {table} (kind, id); \
                 INSERT INTO {table} VALUES (-1000, 7, 'before', 1)"
            );
            run(&mut session, &sql).await;
        }
        let by_hash = clause.contains("hash");
        for (sql, by_fragments) in [
            ("INSERT INTO @ SELECT id, kind, note, price FROM source", stays),
            ("INSERT INTO @ (note, id) SELECT note, id FROM source WHERE id % 7 = 9", stays),
            // Other values than those by which the rows lie.
            (
                "INSERT INTO @ SELECT id + 20000, kind, note, price FROM source WHERE id > 0",
                stays && !by_hash,
            ),
            // A key that is there, and one that comes several times.
            ("INSERT INTO @ SELECT id, kind, note FROM source WHERE id % 20000 = 108", stays),
            (
                "INSERT INTO @ SELECT 90000, kind, note FROM source \
                 WHERE id % 20000 BETWEEN 108 AND 112",
                stays && !by_hash,
            ),
            (
                "INSERT INTO @ SELECT s.id + 40000, s.kind, f.word, 1 FROM source s JOIN few f \
                 ON s.kind = f.kind WHERE s.id > 0",
                stays && !by_hash,
            ),
            ("UPDATE @ SET price = price + 1 WHERE kind = 3", true),
            ("DELETE FROM @ WHERE kind = 8", true),
            (
                "INSERT INTO @ SELECT id, kind, note, price FROM source WHERE kind = 8 AND id < 900 \
                 RETURNING id + 1 AS next, note, kind",
                stays,
            ),
            // Values that columns refuse, and an error.
            ("INSERT INTO @ SELECT id + 60000, kind, note, price * 1000 FROM source", false),
            ("INSERT INTO @ SELECT nullif(id, 77), kind, note, price FROM source", false),
            ("INSERT INTO @ SELECT id, 1 / (id - 99), note, price FROM source", false),
        ] {
            let change = (sql, "id, kind, price, note");
            let used = on_both_as("device", &database, &mut session, change).await;
            // Rows that an INSERT has left in memory change there.
            assert!(used == by_fragments || !sql.starts_with("INSERT"), "{sql}, {clause}");
        }
        // In a block, which sees its own rows and undoes them.
        run(&mut session, "SET update_placement = device").await;
        let count = "SELECT count(*), sum(id) FROM a";
        let before = row(&mut session, count).await;
        run(&mut session, "BEGIN; DELETE FROM a WHERE id > -100000").await;
        let fragment_count = fragments(&database).await;
        run(&mut session, "INSERT INTO a SELECT id, kind, note, price FROM source").await;
        let expected = row(&mut session, "SELECT count(*), sum(id) FROM source").await;
        assert_eq!(row(&mut session, count).await, expected, "{clause}");
        let made = fragments(&database).await - fragment_count;
        assert_eq!(made, if stays { 2 } else { 0 }, "{clause}");
        run(&mut session, "ROLLBACK").await;
        assert_eq!(row(&mut session, count).await, before, "{clause}");
        assert_no_leak_soon(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_by_range_stay_where_bounds_are_the_same() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let _served = attach_two(&database, outside.path()).await;
    let mut session = database.session();
    let with = |devices: &str, bounds: &str| {
        format!("WITH (devices = ({devices}), tablet_by = range (id), bounds = ({bounds}))")
    };
    let along = with("nas, san", "1000, 2000, 3000");
    for sql in [
        format!("CREATE TABLE r (id int, note text) {along}").as_str(),
        "INSERT INTO r SELECT v, 'note ' || v FROM generate_series(0, 3999) AS s(v)",
        "CHECKPOINT",
        // In the delta, and without a value.
        "INSERT INTO r VALUES (-1, 'low'), (2500, 'third'), (NULL, 'none')",
        "SET update_placement = device",
    ] {
        run(&mut session, sql).await;
    }
    for (clause, by_fragments) in [
        (along.clone(), true),
        (with("nas, san", "1000, 2000, 3001"), false),
        (with("san, nas", "1000, 2000, 3000"), false),
        ("WITH (devices = (nas, san), tablet_by = round_robin)".to_owned(), false),
    ] {
        let before = fragments(&database).await;
        run(&mut session, &format!("CREATE TABLE c {clause} AS SELECT note, id FROM r")).await;
        let made = fragments(&database).await - before;
        assert_eq!(made, if by_fragments { 2 } else { 0 }, "{clause}");
        for condition in ["true", "id < 1000", "id BETWEEN 2000 AND 2999", "id IS NULL"] {
            let figures =
                |t| format!("SELECT count(*), sum(id), max(note) FROM {t} WHERE {condition}");
            let expected = row(&mut session, &figures("r")).await;
            assert_eq!(row(&mut session, &figures("c")).await, expected, "{clause} {condition}");
        }
        let report = database.check(&CheckOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{clause}: {:#?}", report.findings);
        run(&mut session, "DROP TABLE c").await;
    }
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_devices_that_write() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let _served = attach_two(&database, outside.path()).await;
    let mut session = database.session();
    source(&mut session, 12_000).await;
    run(&mut session, "CREATE TABLE a (id int, note text) WITH (devices = (san, nas))").await;
    let insert = "INSERT INTO a SELECT id, note FROM source WHERE kind < 90";
    let text = rows(&mut session, &format!("EXPLAIN VERBOSE {insert}")).await.join("\n");
    assert!(text.starts_with("Insert into a by fragments that write on nas, san"), "{text}");
    assert!(text.contains("FragmentExec: device=nas, san"), "{text}");
    assert_eq!(text.matches("InsertPagesExec: table=").count(), 1, "{text}");
    assert!(text.contains("device, by pages"), "{text}");
    assert_eq!(row(&mut session, "SELECT count(*) FROM a").await, "0");
    let before = fragments(&database).await;
    let text = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {insert}")).await.join("\n");
    assert_eq!(fragments(&database).await, before + 2, "{text}");
    let count = row(&mut session, "SELECT count(*) FROM source WHERE kind < 90").await;
    assert!(text.contains(&format!("rows: {count}\n")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn materialized_views_lie_on_the_devices_that_make_their_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let _served = attach_two(&database, outside.path()).await;
    let mut session = database.session();
    source(&mut session, 12_000).await;
    run(&mut session, "SET refresh_method = all").await;
    let query = "SELECT id % 50000 AS k, kind, note FROM source WHERE kind < 60";
    let before = fragments(&database).await;
    run(&mut session, &format!("CREATE MATERIALIZED VIEW v AS {query}")).await;
    assert_eq!(fragments(&database).await, before + 2);
    let there = ["nas,load_order,1", "san,load_order,1"];
    assert_eq!(tablets(&mut session, "v").await, there);
    run(&mut session, "CREATE UNIQUE INDEX v_k ON v (k)").await;
    // One that gets its rows later lies there too.
    run(&mut session, &format!("CREATE MATERIALIZED VIEW w AS {query} WITH NO DATA")).await;
    assert_eq!(fragments(&database).await, before + 2);
    for (change, view, concurrently) in [
        ("DELETE FROM source WHERE kind = 5", "v", ""),
        ("UPDATE source SET note = 'other' WHERE kind = 6", "v", "CONCURRENTLY"),
        ("SELECT 1", "w", ""),
    ] {
        run(&mut session, change).await;
        let expected = answer(&mut session, query).await;
        let before = fragments(&database).await;
        run(&mut session, &format!("REFRESH MATERIALIZED VIEW {concurrently} {view}")).await;
        assert_eq!(fragments(&database).await, before + 2, "{change}");
        let refreshed = answer(&mut session, &format!("SELECT * FROM {view}")).await;
        assert!(refreshed == expected, "{change}");
        assert_eq!(tablets(&mut session, view).await, there, "{change}");
    }
    // Keys that come twice, also from different devices: the view stays as it was.
    let expected = answer(&mut session, "SELECT * FROM v").await;
    let twice =
        "INSERT INTO source SELECT 50000 + v, 7, 1, 'again' FROM generate_series(1, 40) AS s(v)";
    run(&mut session, twice).await;
    let error = refused(&mut session, "REFRESH MATERIALIZED VIEW v").await;
    assert_eq!(error.sqlstate(), "23505", "{error}");
    assert!(answer(&mut session, "SELECT * FROM v").await == expected);
    assert_no_leak_soon(&database).await;
    drop((session, database));
    let database = open(directory.path()).await;
    assert!(answer(&mut database.session(), "SELECT * FROM v").await == expected);
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
}

/// Blocks of `device` that nothing has: those named, retired and doubtful are left out.
fn left_over(database: &Database, device: &str) -> u64 {
    let device = database.device_named(device).unwrap();
    let named = database.catalog().extents(device.id());
    let named: u64 = named.iter().map(|extent| u64::from(extent.block_count)).sum();
    let space = device.space();
    space.used_blocks.saturating_sub(named + space.retired_blocks + space.doubtful_blocks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_midway_leaves_nothing_on_the_others() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let nas = Served::start(&outside.path().join("nas.media"), [1; 16], anywhere()).await;
    let media = Arc::new(FaultyMedia::over(Arc::new(Memory::new()), FaultPlan::default()));
    let path = outside.path().join("san.media");
    let shared = Arc::clone(&media) as Arc<dyn Media>;
    let san = Served::over(shared, &path, [2; 16], anywhere()).await;
    attach(&database, outside.path(), "nas", &nas).await;
    attach(&database, outside.path(), "san", &san).await;
    let mut session = database.session();
    source(&mut session, 30_000).await;
    run(&mut session, "CREATE TABLE a (id int, note text) WITH (devices = (nas, san)); CHECKPOINT")
        .await;
    let sum = "SELECT count(*), sum(id) FROM source";
    let expected = row(&mut session, sum).await;
    for fault in [Fault::Error, Fault::Full] {
        for sql in [
            "CREATE TABLE c AS SELECT id, note FROM source",
            "INSERT INTO a SELECT id, note FROM source",
            "BEGIN; INSERT INTO a SELECT id, note FROM source; COMMIT",
        ] {
            media.follow(FaultPlan::new(1).one_in(Operation::Write, 1, fault));
            let error = refused(&mut session, sql).await;
            media.follow(FaultPlan::default());
            drop(session.run("ROLLBACK").await);
            assert!(matches!(error.sqlstate(), "53100" | "58030"), "{sql}: {error}");
            assert_eq!(refused(&mut session, "SELECT * FROM c").await.sqlstate(), "42P01");
            assert_eq!(row(&mut session, "SELECT count(*) FROM a").await, "0", "{sql}");
            database.snapshot(SnapshotKind::Flushed).await.unwrap();
            for _ in 0..500 {
                if left_over(&database, "nas") + left_over(&database, "san") == 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(left_over(&database, "nas"), 0, "{sql}");
            assert_eq!(database.device_named("nas").unwrap().space().doubtful_blocks, 0, "{sql}");
            assert_eq!(left_over(&database, "san"), 0, "{sql}");
        }
    }
    run(&mut session, "INSERT INTO a SELECT id, note FROM source").await;
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM a").await, expected);
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_one_device_refuses_what_the_others_wrote_is_given_back() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let nas = Served::start(&outside.path().join("nas.media"), [1; 16], anywhere()).await;
    let path = outside.path().join("san.media");
    // It has no memory for a page.
    let small = move || {
        let media = DirectFile::open(&path, OpenMode::Create).unwrap();
        let options = RuntimeOptions { fragment_memory_bytes: 1 << 20, ..runtime_options([2; 16]) };
        Runtime::new(Arc::new(media), options).unwrap() as Arc<dyn DeviceService>
    };
    let san = Served::of(small, anywhere()).await;
    attach(&database, outside.path(), "nas", &nas).await;
    attach(&database, outside.path(), "san", &san).await;
    let mut session = database.session();
    source(&mut session, 30_000).await;
    let sum = "SELECT count(*), sum(id), max(note) FROM";
    let expected = row(&mut session, &format!("{sum} source")).await;
    let before = fragments(&database).await;
    run(&mut session, "CREATE TABLE c AS SELECT id, note FROM source").await;
    // They are few enough for one tablet.
    assert_eq!(tablets(&mut session, "c").await, ["nas,load_order,1", "san,load_order,0"]);
    run(&mut session, "CREATE TABLE a (id int, note text) WITH (devices = (nas, san))").await;
    run(&mut session, "INSERT INTO a SELECT id, note FROM source").await;
    assert_eq!(fragments(&database).await, before, "the host has loaded them");
    for table in ["a", "c"] {
        assert_eq!(row(&mut session, &format!("{sum} {table}")).await, expected, "{table}");
    }
    assert_no_leak_soon(&database).await;
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
}
