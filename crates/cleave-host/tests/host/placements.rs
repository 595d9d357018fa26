//! Tests of tablets by range, round robin and weight, and of statements that move them: rows lie where their values
//! say, conditions leave tablets out, and a move loses nothing beside readers and writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleave_host::Session;
use datafusion::common::runtime::SpawnedTask;

use crate::devices::{Served, attach_nas, with_nas};
use crate::drain::{assert_clean, attach_san, devices_of, filled, in_each_split, picture, used};
use crate::support::{fresh, open, refused, row, rows, run};
use crate::tablets::with_three;

/// EXPLAIN, as one text.
async fn plan(session: &mut Session, query: &str) -> String {
    rows(session, &format!("EXPLAIN VERBOSE {query}")).await.join("\n")
}

/// Rows of each tablet of the table `t`.
async fn sizes(session: &mut Session) -> Vec<u64> {
    run(session, "CHECKPOINT").await;
    let listed = "SELECT rows FROM cleave.tablets WHERE table_name = 't' ORDER BY tablet";
    rows(session, listed).await.iter().map(|count| count.parse().unwrap()).collect()
}

/// Statements that add, change and take away rows in every way; `{csv}` is a file with the ids from 0 to 19,999.
const CHANGES: [&str; 9] = [
    "INSERT INTO @ VALUES (-5, 'first'), (40000, 'high'), (NULL, 'none')",
    "COPY @ FROM '{csv}' WITH (FORMAT csv)",
    "INSERT INTO @ SELECT i, 'more ' || i FROM generate_series(50000, 50099) AS g (i)",
    "CREATE UNIQUE INDEX ON @ (id)",
    // Rows cross bounds, few and many at once.
    "UPDATE @ SET id = id + 100000 WHERE id < 500",
    "UPDATE @ SET id = -1 WHERE id = 50000",
    "UPDATE @ SET id = NULL WHERE id = 50001",
    "DELETE FROM @ WHERE id >= 2000 AND id < 3000",
    "INSERT INTO @ VALUES (1234, 'twice') ON CONFLICT (id) DO UPDATE SET note = 'again'",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_division_keeps_its_rows_through_every_change() {
    let outside = tempfile::tempdir().unwrap();
    let csv = outside.path().join("rows.csv");
    let lines: String = (0..20_000).map(|id| format!("{id},n{}\n", id % 1000)).collect();
    cleave_media::files::write_durably(&csv, lines.as_bytes()).unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    let changed = |table: &str| {
        let csv = csv.display().to_string();
        CHANGES.map(|sql| sql.replace('@', table).replace("{csv}", &csv))
    };
    let figures = |table: &str| {
        format!(
            "SELECT count(*), count(id), sum(id), min(id), max(id), count(DISTINCT note) FROM {table}"
        )
    };
    run(&mut session, "CREATE TABLE whole (id int, note text)").await;
    for sql in changed("whole") {
        run(&mut session, &sql).await;
    }
    let expected = row(&mut session, &figures("whole")).await;
    for (with, lie) in [
        (
            "devices = (nas, embedded), tablet_by = range (id), bounds = (1000, 2000, 30000)",
            ["nas", "embedded", "nas", "embedded"],
        ),
        (
            "devices = (embedded * 3, nas), tablets = 4, tablet_by = round_robin",
            ["embedded", "embedded", "nas", "embedded"],
        ),
        ("devices = (embedded, nas * 3), tablet_by = hash (id)", ["nas", "embedded", "nas", "nas"]),
    ] {
        run(&mut session, &format!("CREATE TABLE t (id int, note text) WITH ({with})")).await;
        assert_eq!(devices_of(&database, "t"), lie, "{with}");
        for sql in changed("t") {
            run(&mut session, &sql).await;
        }
        for split in ["auto", "host", "h0"] {
            run(&mut session, &format!("SET split = {split}")).await;
            assert_eq!(row(&mut session, &figures("t")).await, expected, "{with}: {split}");
        }
        run(&mut session, "RESET split").await;
        let duplicate = refused(&mut session, "INSERT INTO t VALUES (17000, 'x')").await;
        assert_eq!(duplicate.sqlstate(), "23505", "{with}");
        let sizes = sizes(&mut session).await;
        if with.contains("range") {
            assert_eq!(sizes, [501, 1000, 17_000, 602], "{with}");
        }
        if with.contains("round_robin") {
            // What was deleted lay in stretches of each tablet.
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least < 2000, "{sizes:?}");
        }
        assert_clean(&database).await;
        run(&mut session, "ALTER TABLE t RENAME TO kept").await;
        run(&mut session, "DROP TABLE kept").await;
    }
    let with = "WITH (devices = (nas, embedded), tablet_by = range (note), bounds = ('n5', 'o'))";
    run(&mut session, &format!("CREATE TABLE t {with} AS SELECT * FROM whole")).await;
    let by_note = sizes(&mut session).await;
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, &figures("t")).await, expected);
    assert_eq!(sizes(&mut session).await, by_note);
    let catalog = database.catalog();
    let table = catalog.table("t").unwrap();
    let placed = "nas, embedded: 3 tablets by range (note), bounds = ('n5', 'o')";
    assert_eq!(table.placement(&catalog), placed);
    drop(catalog);
    run(&mut session, "INSERT INTO t VALUES (-7, 'n4'), (-8, 'n5'), (-9, 'zz')").await;
    let grown: Vec<u64> = by_note.iter().map(|count| count + 1).collect();
    assert_eq!(sizes(&mut session).await, grown);
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_on_the_column_of_ranges_leave_tablets_out() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    let with =
        "WITH (devices = (embedded, nas, san), tablet_by = range (id), bounds = (10000, 20000))";
    for sql in [
        format!("CREATE TABLE t (id int, note text) {with}"),
        "INSERT INTO t SELECT i, 'note ' || i FROM generate_series(0, 29999) AS g (i)".to_owned(),
        "INSERT INTO t VALUES (NULL, 'none')".to_owned(),
        "CREATE UNIQUE INDEX t_id ON t (id)".to_owned(),
        "CHECKPOINT".to_owned(),
    ] {
        run(&mut session, &sql).await;
    }
    let found = plan(&mut session, "SELECT note FROM t WHERE id = 15000").await;
    assert!(found.contains(", in tablet 1 of 3, on the host"), "{found}");
    run(&mut session, "SET index_scan = off").await;
    for (condition, tablets, matches) in [
        ("id = 10000", 1, 1),
        ("id < 10000", 1, 10_000),
        ("id <= 10000", 2, 10_001),
        ("id >= 20000", 1, 10_000),
        ("id > 19999", 2, 10_000),
        ("id >= 10000 AND id < 20000", 1, 10_000),
        ("id BETWEEN 500 AND 10500", 2, 10_001),
        ("id IN (5, 6, 25000)", 2, 3),
        ("id = 5 OR id = 7", 1, 2),
        ("id IS NULL", 1, 1),
        ("id < 10 AND note LIKE '%7'", 1, 1),
    ] {
        let query = format!("SELECT count(note) FROM t WHERE {condition}");
        for split in ["h0", "host", "auto"] {
            run(&mut session, &format!("SET split = {split}")).await;
            assert_eq!(row(&mut session, &query).await, matches.to_string(), "{split}: {query}");
        }
        run(&mut session, "SET split = h0").await;
        let found = plan(&mut session, &query).await;
        let wanted = format!("; in {tablets} of 3 tablets by range (id)");
        assert!(found.contains(&wanted), "{condition}: {found}");
    }
    let all = plan(&mut session, "SELECT count(note) FROM t WHERE id <> 5").await;
    assert!(!all.contains("tablets by range"), "{all}");
    run(&mut session, "RESET ALL").await;

    // No other device is needed: by scan, by key, by a range of keys.
    let address = nas.address;
    nas.stop().await;
    database.buffer_pool().clear();
    for split in ["host", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let low = "SELECT count(note) FROM t WHERE id < 10000";
        assert_eq!(row(&mut session, low).await, "10000", "{split}");
        let other = "SELECT count(note) FROM t WHERE id <= 10000";
        assert_eq!(refused(&mut session, other).await.sqlstate(), "58030", "{split}");
    }
    run(&mut session, "RESET ALL").await;
    assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 25000").await, "note 25000");
    let range = "SELECT note FROM t WHERE id BETWEEN 25000 AND 25002 ORDER BY id";
    assert_eq!(rows(&mut session, range).await, ["note 25000", "note 25001", "note 25002"]);
    // A key is looked up in its tablet alone.
    run(&mut session, "INSERT INTO t VALUES (30000, 'new')").await;
    assert_eq!(refused(&mut session, "INSERT INTO t VALUES (3, 'x')").await.sqlstate(), "23505");
    run(&mut session, "UPDATE t SET note = 'changed' WHERE id = 4").await;
    assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 4").await, "changed");
    let _nas = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(row(&mut session, "SELECT count(*), count(id) FROM t").await, "30002,30001");
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_refer_to_others_find_them_in_their_tablets() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for sql in [
        "CREATE TABLE parent (id int PRIMARY KEY) WITH (tablet_by = range (id), bounds = (0, 10))",
        "CREATE TABLE child (id int PRIMARY KEY, up int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)
           WITH (tablet_by = range (up), bounds = (0, 5, 10))",
        "INSERT INTO parent VALUES (-5), (0), (7), (10), (99)",
        "INSERT INTO child VALUES (1, -5), (2, 0), (3, 7), (4, 99), (5, NULL), (6, 7)",
        "UPDATE parent SET id = 50 WHERE id = 7",
        "DELETE FROM parent WHERE id = -5",
    ] {
        run(&mut session, sql).await;
    }
    for sql in ["INSERT INTO child VALUES (7, 7)", "UPDATE child SET up = -5 WHERE id = 2"] {
        assert_eq!(refused(&mut session, sql).await.sqlstate(), "23503", "{sql}");
    }
    let children = "SELECT id, up FROM child ORDER BY id";
    assert_eq!(rows(&mut session, children).await, ["2,0", "3,50", "4,99", "5,NULL", "6,50"]);
    let above = "SELECT id FROM child WHERE up >= 10 ORDER BY id";
    assert_eq!(rows(&mut session, above).await, ["3", "4", "6"]);
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_tablets_move_by_statement() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    let _san = attach_san(&mut session, outside.path()).await;
    let with =
        "WITH (devices = (embedded, nas), tablet_by = range (id), bounds = (10000, 20000, 45000))";
    filled(&mut session, with).await;
    let before = picture(&mut session).await;
    assert_eq!(devices_of(&database, "t"), ["embedded", "nas", "embedded", "nas"]);
    run(&mut session, "PREPARE p AS SELECT note FROM t WHERE id = $1").await;
    let prepared = row(&mut session, "EXECUTE p(15000)").await;
    for (moved, lie) in [
        ("MOVE TABLET 1, 2 TO san", ["embedded", "san", "san", "nas"]),
        ("MOVE TABLET 3 TO san", ["embedded", "san", "san", "san"]),
        // They lie there.
        ("MOVE TABLET 3, 1 TO san", ["embedded", "san", "san", "san"]),
        ("MOVE TABLET 0, 1 TO nas", ["nas", "nas", "san", "san"]),
    ] {
        run(&mut session, &format!("ALTER TABLE t {moved}")).await;
        assert_eq!(devices_of(&database, "t"), lie, "{moved}");
        in_each_split(&mut session, &before).await;
        assert_eq!(row(&mut session, "EXECUTE p(15000)").await, prepared, "{moved}");
        assert_clean(&database).await;
        // It is changed in place, and extended, as before.
        let there_and_back = "SET update_placement = device; UPDATE t SET n = n + 1 WHERE id % 2 = 0;
             UPDATE t SET n = n - 1 WHERE id % 2 = 0; RESET update_placement;
             INSERT INTO t VALUES (-1, '', 0), (44000, '', 0); DELETE FROM t WHERE id IN (-1, 44000)";
        run(&mut session, there_and_back).await;
        let twice = "INSERT INTO t VALUES (15000, '', 0)";
        assert_eq!(refused(&mut session, twice).await.sqlstate(), "23505");
    }
    assert_eq!(used(&database, "embedded").await, 0);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(devices_of(&database, "t"), ["nas", "nas", "san", "san"]);
    in_each_split(&mut session, &before).await;
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_balanced_over_devices() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    let _san = attach_san(&mut session, outside.path()).await;
    let create = |bounds: &str| {
        format!(
            "CREATE TABLE t (id int PRIMARY KEY, n int)
             WITH (devices = (embedded, nas), tablet_by = range (id), bounds = ({bounds}))"
        )
    };
    run(&mut session, &create("1000, 2000, 30000")).await;
    for sql in ["INSERT INTO t SELECT i, i FROM generate_series(0, 39999) AS g (i)", "CHECKPOINT"] {
        run(&mut session, sql).await;
    }
    let figures = "SELECT count(*), sum(id), sum(n) FROM t";
    let before = row(&mut session, figures).await;
    // The large one stays, and the small one beside it goes.
    for _ in 0..2 {
        run(&mut session, "ALTER TABLE t REBALANCE").await;
        assert_eq!(devices_of(&database, "t"), ["nas", "nas", "embedded", "nas"]);
        assert_eq!(row(&mut session, figures).await, before);
    }
    run(&mut session, "ALTER TABLE t REBALANCE TO nas, san").await;
    assert_eq!(devices_of(&database, "t"), ["nas", "nas", "san", "nas"]);
    assert_eq!(row(&mut session, figures).await, before);
    assert_eq!(used(&database, "embedded").await, 0);
    run(&mut session, "DROP TABLE t").await;
    // To a device that was attached later.
    run(&mut session, &create("10000, 20000, 30000")).await;
    for sql in [
        "INSERT INTO t SELECT i, i FROM generate_series(0, 39999) AS g (i)",
        "CHECKPOINT",
        "ALTER TABLE t REBALANCE",
    ] {
        run(&mut session, sql).await;
    }
    assert_eq!(devices_of(&database, "t"), ["embedded", "nas", "embedded", "nas"]);
    run(&mut session, "ALTER TABLE t REBALANCE TO embedded, nas, san").await;
    assert_eq!(devices_of(&database, "t"), ["san", "nas", "embedded", "nas"]);
    assert_eq!(row(&mut session, figures).await, before);
    // A table without rows.
    run(&mut session, "CREATE TABLE empty (id int) WITH (tablets = 4)").await;
    run(&mut session, "ALTER TABLE empty REBALANCE TO embedded, nas").await;
    assert_eq!(devices_of(&database, "empty"), ["nas", "nas", "embedded", "embedded"]);
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_refused_leaves_the_table_where_it_was() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let with = "WITH (devices = (embedded, nas), tablets = 2)";
    run(&mut session, &format!("CREATE TABLE t (id int PRIMARY KEY, note text) {with}")).await;
    run(&mut session, "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 20000) AS g (i)").await;
    run(&mut session, "CHECKPOINT; CREATE VIEW v AS SELECT * FROM t").await;
    let count = "SELECT count(*), sum(id) FROM t";
    let before = row(&mut session, count).await;
    for (sql, code, words) in [
        ("ALTER TABLE t MOVE TABLET 2 TO nas", "22023", "has no tablet 2: it has 2, from 0 on"),
        ("ALTER TABLE t MOVE TABLET 0, 0 TO nas", "22023", "tablet 0 is named twice"),
        ("ALTER TABLE t MOVE TABLET 0 TO nass", "42704", "did you mean \"nas\"?"),
        ("ALTER TABLE t MOVE TABLET -1 TO nas", "42601", "the number of a tablet"),
        ("ALTER TABLE t MOVE TABLET 99999999999 TO nas", "42601", "the number of a tablet"),
        ("ALTER TABLE t MOVE TABLET 0", "42601", "expected TO"),
        ("ALTER TABLE t REBALANCE TO nas, nas", "22023", "named twice"),
        ("ALTER TABLE t REBALANCE TO nas, nass", "42704", "\"nass\""),
        ("ALTER TABLE v REBALANCE", "42809", "is not a table"),
        ("ALTER TABLE tt REBALANCE", "42P01", "\"tt\""),
        (
            "ALTER MATERIALIZED VIEW t MOVE TABLET 0 TO nas",
            "42809",
            "\"t\" is not a materialized view",
        ),
        ("ALTER MATERIALIZED VIEW IF EXISTS v REBALANCE", "42809", "is not a materialized view"),
        ("ALTER MATERIALIZED VIEW tt REBALANCE", "42P01", "\"tt\""),
        (
            "BEGIN; ALTER TABLE t REBALANCE",
            "25001",
            "REBALANCE cannot run inside a transaction block",
        ),
        ("ROLLBACK; BEGIN READ ONLY; ALTER TABLE t MOVE TABLET 0 TO nas", "25001", "MOVE TABLET"),
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    run(&mut session, "ROLLBACK; ALTER TABLE IF EXISTS tt MOVE TABLET 0 TO nas").await;
    run(&mut session, "CREATE ROLE joe LOGIN; GRANT SELECT ON t TO joe; SET ROLE joe").await;
    for sql in ["ALTER TABLE t MOVE TABLET 0 TO nas", "ALTER TABLE t REBALANCE"] {
        assert_eq!(refused(&mut session, sql).await.sqlstate(), "42501", "{sql}");
    }
    run(&mut session, "RESET ROLE; ALTER TABLE t OWNER TO joe; SET ROLE joe").await;
    run(&mut session, "ALTER TABLE t MOVE TABLET 0 TO nas; RESET ROLE").await;
    assert_eq!(devices_of(&database, "t"), ["nas", "nas"]);
    run(&mut session, "ALTER TABLE t REBALANCE TO embedded, nas").await;
    assert_eq!(devices_of(&database, "t"), ["embedded", "nas"]);

    let address = nas.address;
    nas.stop().await;
    database.buffer_pool().clear();
    for sql in [
        "ALTER TABLE t MOVE TABLET 0 TO nas",
        "ALTER TABLE t MOVE TABLET 1 TO embedded",
        "ALTER TABLE t REBALANCE TO nas",
        "ALTER TABLE t REBALANCE TO embedded",
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), "58030", "{sql}: {error}");
        assert!(error.to_string().contains("\"nas\""), "{sql}: {error}");
    }
    assert_eq!(devices_of(&database, "t"), ["embedded", "nas"]);
    let _nas = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(row(&mut session, count).await, before);
    // A writer that does not end is waited for as long as `lock_timeout` says.
    let mut writer = database.session();
    run(&mut writer, "BEGIN; DELETE FROM t WHERE id = 1").await;
    run(&mut session, "SET lock_timeout = 700").await;
    let error = refused(&mut session, "ALTER TABLE t MOVE TABLET 0, 1 TO nas").await;
    assert_eq!(error.sqlstate(), "55P03", "{error}");
    run(&mut writer, "ROLLBACK").await;
    assert_eq!(devices_of(&database, "t"), ["embedded", "nas"]);
    run(&mut session, "ALTER TABLE t MOVE TABLET 0, 1 TO nas").await;
    assert_eq!(row(&mut session, count).await, before);
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_change_tablets_while_tablets_change_devices() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    let with = "WITH (devices = (embedded, nas), tablet_by = range (id), bounds = (10000, 30000))";
    run(&mut session, &format!("CREATE TABLE t (id int PRIMARY KEY, n int) {with}")).await;
    run(&mut session, "INSERT INTO t SELECT i, 1 FROM generate_series(0, 9999) AS g (i)").await;
    run(&mut session, "CREATE INDEX t_n ON t (n); CHECKPOINT").await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for kind in 0..3_u32 {
        let (mut session, done) = (database.session(), Arc::clone(&done));
        tasks.push(SpawnedTask::spawn(async move {
            let mut count = 0_u32;
            while !done.load(Ordering::Relaxed) {
                // From the first tablet to the second, and from there to the third.
                let id = count * 7919 % 10_000;
                match kind {
                    0 => {
                        let there = format!("UPDATE t SET id = id + 10000 WHERE id = {id}");
                        let on = format!("UPDATE t SET id = id + 20000 WHERE id = {}", id + 10_000);
                        run(&mut session, &there).await;
                        run(&mut session, &on).await;
                    }
                    1 => drop(run(&mut session, "UPDATE t SET n = n WHERE id % 97 = 5").await),
                    _ => {
                        let all = "SELECT count(*), sum(n), sum(id % 10000) FROM t";
                        assert_eq!(row(&mut session, all).await, "10000,10000,49995000");
                    }
                }
                count += 1;
            }
            count
        }));
    }
    for moved in [
        "MOVE TABLET 0 TO nas",
        "MOVE TABLET 0, 1, 2 TO embedded",
        "MOVE TABLET 1, 2 TO nas",
        "REBALANCE",
        "MOVE TABLET 2, 0 TO nas",
        "MOVE TABLET 1, 0 TO embedded",
    ] {
        run(&mut session, &format!("ALTER TABLE t {moved}")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(devices_of(&database, "t"), ["embedded", "embedded", "nas"]);
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.unwrap() > 0);
    }
    let all = "SELECT count(*), sum(n), sum(id % 10000) FROM t";
    assert_eq!(row(&mut session, all).await, "10000,10000,49995000");
    assert_clean(&database).await;
    drop((session, database));
    let database = open(directory.path()).await;
    assert_eq!(row(&mut database.session(), all).await, "10000,10000,49995000");
    assert_clean(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_of_a_materialized_view_move_too() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_nas, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    run(&mut session, "INSERT INTO t SELECT i, i % 9 FROM generate_series(0, 19999) AS g (i)")
        .await;
    let with = "WITH (device = nas, tablet_by = range (id), bounds = (5000))";
    let query = "SELECT id, n FROM t WHERE n < 5";
    run(&mut session, &format!("CREATE MATERIALIZED VIEW m {with} AS {query}")).await;
    let count = "SELECT count(*), sum(id), sum(n) FROM m";
    let before = row(&mut session, count).await;
    run(&mut session, "ALTER MATERIALIZED VIEW m MOVE TABLET 0 TO embedded").await;
    assert_eq!(devices_of(&database, "m"), ["embedded", "nas"]);
    assert_eq!(row(&mut session, count).await, before);
    run(&mut session, "ALTER DEVICE nas DRAIN").await;
    assert_eq!(devices_of(&database, "m"), ["embedded", "embedded"]);
    assert_eq!(row(&mut session, count).await, before);
    // The next refresh would begin at the version of the last.
    database.give_up_versions();
    assert_eq!(used(&database, "nas").await, 0);
    run(&mut session, "UPDATE t SET id = id + 20000 WHERE id < 10").await;
    run(&mut session, "REFRESH MATERIALIZED VIEW m; ALTER TABLE m REBALANCE TO nas").await;
    let now = row(&mut session, "SELECT count(*), sum(id), sum(n) FROM t WHERE n < 5").await;
    assert_eq!(row(&mut session, count).await, now);
    assert_clean(&database).await;
}
