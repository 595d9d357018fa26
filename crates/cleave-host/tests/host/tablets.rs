//! Tests of tables divided into tablets over devices: the same rows as undivided, or the same error, whatever is lost.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session, SnapshotKind};

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{
    answer, assert_no_leak, batches, fresh, note, numbered, open, refused, row, rows, run,
};

/// A database with the remote devices "nas" and "san" beside the embedded one.
pub(crate) async fn with_three(
    outside: &Path,
) -> (tempfile::TempDir, Arc<Database>, Served, Served) {
    let (directory, database) = fresh().await;
    let nas = Served::start(&outside.join("nas.media"), [1; 16], anywhere()).await;
    let san = Served::start(&outside.join("san.media"), [2; 16], anywhere()).await;
    let token = token_file(outside, TOKEN);
    database.add_device("nas", remote(nas.address, token.clone())).await.unwrap();
    database.add_device("san", remote(san.address, token)).await.unwrap();
    (directory, database, nas, san)
}

/// How the tables of one database are divided: the same rows each.
const DIVISIONS: [(&str, &str); 6] = [
    ("whole", ""),
    ("hashed", "WITH (devices = (embedded, nas, san), tablets = 5, tablet_by = hash (id))"),
    ("filled", "WITH (devices = (san, embedded, nas), tablets = 5, tablet_by = load_order)"),
    ("by_kind", "WITH (devices = (nas, san), tablets = 3, tablet_by = hash (kind, id))"),
    (
        "ranged",
        "WITH (devices = (san, embedded * 2), tablet_by = range (id), bounds = (-100, 30000, 60000, 90000))",
    ),
    ("dealt", "WITH (devices = (embedded, nas, san * 2), tablets = 4, tablet_by = round_robin)"),
];

/// Rows of `(id integer, kind bigint, note text)`.
fn items(ids: std::ops::Range<i32>) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("kind", DataType::Int64, true),
        Field::new("note", DataType::Utf8, true),
    ]);
    let kinds = ids.clone().map(|id| (id % 11 != 0).then(|| i64::from(id % 7)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(ids.clone())),
        Arc::new(kinds.collect::<Int64Array>()),
        Arc::new(ids.map(|id| Some(note(id))).collect::<StringArray>()),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// The tables, each loaded twice, with rows inserted before, between and after.
async fn fill(session: &mut Session) {
    for (table, with) in DIVISIONS {
        run(
            session,
            &format!("CREATE TABLE {table} (id int PRIMARY KEY, kind bigint, note text) {with}"),
        )
        .await;
        run(session, &format!("INSERT INTO {table} VALUES (-1, 3, 'first'), (-2, NULL, 'second')"))
            .await;
        let load = vec![items(0..9_000), items(9_000..20_000), items(20_000..20_001)];
        session.load(table, batches(load), None).await.unwrap();
        for id in -9..-2 {
            run(session, &format!("INSERT INTO {table} VALUES ({id}, {}, 'few')", -id)).await;
        }
        run(session, &format!("CREATE INDEX {table}_kind ON {table} (kind, id)")).await;
        run(session, &format!("CREATE UNIQUE INDEX ON {table} (note, id)")).await;
        // Long enough for several stretches of the load order.
        let load: Vec<_> = (3..11).map(|n| items(n * 10_000..(n + 1) * 10_000)).collect();
        session.load(table, batches(load), None).await.unwrap();
        run(
            session,
            &format!(
                "INSERT INTO {table} SELECT id - 300000, kind, note FROM {table} WHERE id < 30"
            ),
        )
        .await;
    }
}

/// Queries over a table `{t}`; those that say no order are compared as sets.
const QUERIES: [&str; 24] = [
    "SELECT count(*), sum(id), min(note), max(kind) FROM {t}",
    "SELECT count(*), avg(length(note)) FROM {t} WHERE kind = 3 AND id BETWEEN 100 AND 9000",
    "SELECT kind, count(*), sum(id) FROM {t} GROUP BY kind",
    "SELECT kind % 2 AS half, max(note) FROM {t} WHERE id > 5000 GROUP BY half",
    "SELECT id, note FROM {t} WHERE id > 60000 ORDER BY id LIMIT 7",
    "SELECT id FROM {t} ORDER BY kind DESC NULLS LAST, id LIMIT 9 OFFSET 4",
    "SELECT count(*) FROM (SELECT id FROM {t} WHERE kind = 2 LIMIT 37) AS few",
    "SELECT count(*) FROM (SELECT id FROM {t} LIMIT 100000) AS many",
    "SELECT note, kind FROM {t} WHERE id = 4711",
    "SELECT note FROM {t} WHERE id = -2",
    "SELECT note FROM {t} WHERE id = 25000",
    "SELECT id, note FROM {t} WHERE id IN (-5, 3, 8999, 9000, 99999, 777777)",
    "SELECT id FROM {t} WHERE kind = 5 AND id = 40",
    "SELECT id FROM {t} WHERE kind = 5 AND id = 47",
    "SELECT id, kind FROM {t} WHERE id = 12 OR id = 90003",
    "SELECT id FROM {t} WHERE note = 'few'",
    "SELECT count(*) FROM {t} WHERE kind IS NULL",
    "SELECT count(*), sum(a.id) FROM {t} a JOIN {t} b ON a.id = b.id + 7 WHERE b.kind = 1",
    "SELECT count(*), count(b.id) FROM {t} a LEFT JOIN {t} b ON b.id = a.id + 99990 WHERE a.id < 50",
    "SELECT id FROM {t} WHERE id IN (SELECT max(id) FROM {t} GROUP BY kind)",
    "SELECT DISTINCT kind FROM {t}",
    "SELECT id, row_number() OVER (ORDER BY id) FROM {t} WHERE id BETWEEN 30 AND 40",
    "SELECT count(*) FROM {t} WHERE EXISTS (SELECT 1 FROM whole w WHERE w.id = {t}.id AND w.kind = 4)",
    "SELECT min(id), max(id) FROM {t} WHERE id < -100000",
];

async fn answer_of(session: &mut Session, query: &str, table: &str) -> Vec<String> {
    answer(session, &query.replace("{t}", table)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn divided_tables_give_the_rows_of_whole_ones_in_every_split_and_stack() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    fill(&mut session).await;
    let mut expected = Vec::new();
    run(&mut session, "SET split = host").await;
    for query in QUERIES {
        expected.push(answer_of(&mut session, query, "whole").await);
    }
    assert_eq!(expected[0][0].split(',').next().unwrap(), "100049");
    let ways = [
        "SET stack = blk",
        "SET stack = native",
        "SET stack = ndp; SET split = h0",
        "SET split = auto; SET threads = 1",
        "SET split = h0; SET slot_bytes = 4096; SET slot_count = 1; SET batch_size = 100",
        "RESET ALL; SET index_scan = off",
    ];
    for way in ways {
        run(&mut session, way).await;
        for (table, _) in &DIVISIONS[1..] {
            for (query, expected) in QUERIES.iter().zip(&expected) {
                let found = answer_of(&mut session, query, table).await;
                assert_eq!(&found, expected, "{way}: {query} of {table}");
            }
        }
    }
    // A cut at the root is for plans that need no merging.
    run(&mut session, "RESET ALL; SET split = ndp").await;
    let all =
        answer_of(&mut session, "SELECT id, kind FROM {t} WHERE note LIKE 'note 1%'", "whole")
            .await;
    for (table, _) in DIVISIONS {
        let query = "SELECT id, kind FROM {t} WHERE note LIKE 'note 1%'";
        assert_eq!(answer_of(&mut session, query, table).await, all, "{table}");
    }
    let error = refused(&mut session, "SELECT count(*) FROM hashed").await;
    assert!(error.to_string().contains("which lie on 3 devices (embedded, nas, san)"), "{error}");
    assert_eq!(
        row(&mut session, "SELECT count(note) FROM hashed WHERE id = 7 AND kind = 0").await,
        "1"
    );

    run(&mut session, "RESET ALL; SET index_scan = off").await;
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    for (table, _) in DIVISIONS {
        for (query, expected) in QUERIES.iter().zip(&expected) {
            assert_eq!(
                &answer_of(&mut session, query, table).await,
                expected,
                "{query} of {table}"
            );
        }
        let duplicate = refused(&mut session, &format!("INSERT INTO {table} VALUES (17)")).await;
        assert_eq!(duplicate.sqlstate(), "23505", "{table}");
    }
    for (table, _) in DIVISIONS {
        run(&mut session, &format!("DROP TABLE {table}")).await;
    }
    run(&mut session, "CREATE TABLE x (id int)").await;
    for device in database.devices() {
        assert_eq!(device.space().used_blocks, 0, "{}", device.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_lie_where_the_statement_put_them() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    fill(&mut session).await;
    database.snapshot(SnapshotKind::Flushed).await.unwrap();
    let tablets = |table: &str| {
        let catalog = database.catalog();
        let table = Arc::clone(catalog.table(table).unwrap());
        let tablet = |tablet: &Arc<cleave_host::catalog::TabletState>| {
            let device = database.attached(tablet.device).unwrap();
            (device.name().to_owned(), tablet.row_count())
        };
        table.tablets.iter().map(tablet).collect::<Vec<_>>()
    };
    let names = |table: &str| tablets(table).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("hashed"), ["embedded", "nas", "san", "embedded", "nas"]);
    assert_eq!(names("filled"), ["san", "embedded", "nas", "san", "embedded"]);
    assert_eq!(names("ranged"), ["embedded", "san", "embedded", "san", "embedded"]);
    assert_eq!(names("dealt"), ["san", "embedded", "nas", "san"]);
    for (table, _) in &DIVISIONS[1..] {
        let counts: Vec<u64> = tablets(table).iter().map(|(_, count)| *count).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        // A stretch of the load order is 65,536 rows; a hash spreads better than that.
        assert!(most - least <= 65_536 + 10, "{table}: {counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), 100_049, "{table}");
    }

    // A key determines its tablet: no other is asked.
    let plan = rows(&mut session, "EXPLAIN VERBOSE SELECT note FROM hashed WHERE id = 4711").await;
    assert!(plan[0].contains(", in tablet ") && plan[0].contains(" of 5, on the host"), "{plan:?}");
    let plan = rows(&mut session, "EXPLAIN VERBOSE SELECT note FROM filled WHERE id = 4711").await;
    assert!(plan[0].contains(", in all 5 tablets, on the host"), "{plan:?}");
    run(&mut session, "SET index_scan = off; SET split = h0").await;
    let query = "SELECT count(*) FROM hashed WHERE id IN (4711, 12)";
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {query}")).await.join("\n");
    assert!(
        plan.contains("; in 2 of 5 tablets by hash (id)") || plan.contains("; in 1 of 5"),
        "{plan}"
    );

    // Every device does its part, and says so.
    let query = "SELECT kind, count(*) FROM hashed GROUP BY kind";
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {query}")).await.join("\n");
    assert!(plan.contains("FragmentExec: device=embedded, nas, san"), "{plan}");
    for device in ["embedded", "nas", "san"] {
        assert!(
            plan.contains(&format!("scans: hashed on device \"{device}\"")),
            "{device}: {plan}"
        );
    }
    // Whatever is chosen for each of them, the rows are the same.
    let query = "SELECT count(*) FROM filled WHERE note LIKE '%77'";
    let expected = rows(&mut session, query).await;
    for split in ["auto", "host"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(rows(&mut session, query).await, expected, "{split}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_unique_over_all_tablets() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    let with = "WITH (devices = (embedded, nas, san), tablets = 4,";
    let divisions = [
        ("a", "load_order"),
        ("b", "hash (note)"),
        ("c", "hash (id)"),
        ("e", "round_robin"),
        ("f", "range (note), bounds = ('n2', 'note 2', 'note 5')"),
        ("g", "range (id), bounds = (5, 60, 20000)"),
    ];
    for (table, by) in divisions {
        run(
            &mut session,
            &format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, note text UNIQUE) {with} tablet_by = \
            {by})"
            ),
        )
        .await;
        let key = |number: i32| format!("INSERT INTO {table} VALUES ({number}, 'n{number}')");
        for number in 0..12 {
            run(&mut session, &key(number)).await;
        }
        // NULLs are distinct, also if two tablets gave the same number to their rows.
        let nulls =
            format!("INSERT INTO {table} (id) VALUES (100), (101), (102), (103), (104), (105)");
        run(&mut session, &nulls).await;
        for number in 106..115 {
            run(&mut session, &format!("INSERT INTO {table} (id) VALUES ({number})")).await;
        }
        let all = "(20, 'x'), (21, 'y'), (22, 'z'), (23, 'u'), (24, 'v')";
        for wrong in ["(7, 'new')", "(50, 'n7')", "(60, 'w'), (61, 'w')", "(62, 'p'), (62, 'q')"] {
            let statement = format!("INSERT INTO {table} VALUES {all}, {wrong}");
            let error = refused(&mut session, &statement).await;
            assert_eq!(error.sqlstate(), "23505", "{statement}: {error}");
        }
        assert_eq!(row(&mut session, &format!("SELECT count(*) FROM {table}")).await, "27");
        // Loads: against what was inserted, what was loaded, and themselves.
        session.load(table, batches(vec![numbered(1_000..30_000)]), None).await.unwrap();
        for wrong in
            [numbered(5..6), numbered(29_999..31_000), numbered([40_000, 40_000].into_iter())]
        {
            let load = vec![numbered(50_000..130_000), wrong];
            let error = session.load(table, batches(load), None).await.unwrap_err();
            assert_eq!(error.sqlstate(), "23505", "{table}: {error}");
        }
        let taken = format!("INSERT INTO {table} VALUES (-1, '{}')", note(2_000));
        assert_eq!(refused(&mut session, &taken).await.sqlstate(), "23505");
        assert_eq!(row(&mut session, &format!("SELECT count(*) FROM {table}")).await, "29027");
        assert_no_leak(&database);
    }
    // An index that comes later.
    let table = format!("CREATE TABLE d (id int, note text) {with} tablet_by = load_order)");
    run(&mut session, &table).await;
    session.load("d", batches(vec![numbered(0..200_000)]), None).await.unwrap();
    run(&mut session, "CREATE UNIQUE INDEX d_id ON d (id)").await;
    run(&mut session, "INSERT INTO d VALUES (200000, 'a')").await;
    assert_eq!(refused(&mut session, "INSERT INTO d VALUES (3, 'b')").await.sqlstate(), "23505");
    run(&mut session, "DROP INDEX d_id").await;
    // Rows go where the fewest are: the other one of key 3 is in another tablet than the first.
    run(&mut session, "INSERT INTO d VALUES (3, 'b')").await;
    let error = refused(&mut session, "CREATE UNIQUE INDEX d_id ON d (id)").await;
    assert_eq!(error.sqlstate(), "23505", "{error}");
    assert!(error.to_string().contains("3"), "{error}");
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
    assert_no_leak(&database);
}

/// Waits until every device has only what the catalog names in use, and what may still be written to.
pub(crate) async fn flushed(database: &Database) {
    let is_flushed = || {
        database.devices().iter().all(|device| {
            let named = database.catalog().extents(device.id());
            let named: u64 = named.iter().map(|extent| u64::from(extent.block_count)).sum();
            let space = device.space();
            space.used_blocks == named + space.retired_blocks + space.doubtful_blocks
        })
    };
    for _ in 0..1000 {
        if is_flushed() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("space is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_lost_during_a_load_undoes_it_on_all_devices() {
    for by in ["hash (id)", "load_order"] {
        for lost in ["nas", "san"] {
            let outside = tempfile::tempdir().unwrap();
            let (_directory, database, nas, san) = with_three(outside.path()).await;
            let mut session = database.session();
            let with =
                format!("WITH (devices = (embedded, nas, san), tablets = 5, tablet_by = {by})");
            run(&mut session, &format!("CREATE TABLE t (id int PRIMARY KEY, note text) {with}"))
                .await;
            session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
            let (served, other) = if lost == "nas" { (nas, san) } else { (san, nas) };
            let address = served.address;
            let served = std::sync::Mutex::new(Some(served));
            let input = futures::stream::unfold(20_000, move |from| {
                let served = if from == 400_000 { served.lock().unwrap().take() } else { None };
                async move {
                    if let Some(served) = served {
                        served.stop().await;
                    }
                    (from < 900_000).then(|| (Ok(numbered(from..from + 20_000)), from + 20_000))
                }
            });
            let error = session.load("t", Box::pin(input), None).await.unwrap_err();
            assert_eq!(error.sqlstate(), "58030", "{by}, {lost}: {error}");
            assert!(error.to_string().contains(&format!("\"{lost}\"")), "{error}");
            flushed(&database).await;
            let identity = if lost == "nas" { [1; 16] } else { [2; 16] };
            let media = outside.path().join(format!("{lost}.media"));
            let _served = Served::start(&media, identity, address).await;
            let figures = "SELECT count(*), sum(id) FROM t";
            assert_eq!(row(&mut session, figures).await, "20000,199990000", "{by}, {lost}");
            session.load("t", batches(vec![numbered(20_000..30_000)]), None).await.unwrap();
            assert_eq!(row(&mut session, figures).await, "30000,449985000");
            assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
            drop(other);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_takes_its_tablets_with_it_and_no_others() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    fill(&mut session).await;
    let address = nas.address;
    // Keys by the device that their row lies on: known from where the host finds them.
    let mut on_nas = Vec::new();
    let mut elsewhere = Vec::new();
    nas.stop().await;
    database.buffer_pool().clear();
    for id in 0..40 {
        match session.run(&format!("SELECT note FROM hashed WHERE id = {id}")).await {
            Ok(_) => elsewhere.push(id),
            Err(error) => {
                assert_eq!(error.sqlstate(), "58030", "{error}");
                assert!(error.to_string().contains("\"nas\""), "{error}");
                on_nas.push(id);
            }
        }
    }
    assert!(on_nas.len() > 5 && elsewhere.len() > 10, "{on_nas:?}, {elsewhere:?}");
    for setting in ["SET split = host", "SET split = h0", "SET split = auto"] {
        run(&mut session, setting).await;
        let query =
            |id: &i32| format!("SELECT count(note) FROM hashed WHERE id = {id} AND note <> ''");
        assert_eq!(row(&mut session, &query(&elsewhere[0])).await, "1", "{setting}");
        assert_eq!(
            refused(&mut session, &query(&on_nas[0])).await.sqlstate(),
            "58030",
            "{setting}"
        );
        let error = refused(&mut session, "SELECT count(note) FROM filled").await;
        assert_eq!(error.sqlstate(), "58030", "{setting}: {error}");
        assert!(error.to_string().contains("\"nas\""), "{setting}: {error}");
        assert_eq!(row(&mut session, "SELECT count(note) FROM whole").await, "100049");
    }
    // Half of a statement's rows count as none.
    let error = refused(
        &mut session,
        "INSERT INTO hashed SELECT id + 500000, kind, note FROM whole WHERE id BETWEEN 0 AND 99",
    )
    .await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    flushed(&database).await;
    let _nas = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(row(&mut session, "SELECT count(note) FROM hashed").await, "100049");
    assert!(database.check(&CheckOptions::default()).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_tablets_stays_attached() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_three(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'embedded, san'; SET default_tablets = 3").await;
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let catalog = database.catalog();
    let table = catalog.table("t").unwrap();
    assert_eq!(table.placement(&catalog), "embedded, san: 3 tablets by hash (id)");
    // A snapshot in use keeps devices attached.
    drop(catalog);
    assert_eq!(database.remove_device("san").await.unwrap_err().sqlstate(), "2BP01");
    assert!(database.remove_device("nas").await.unwrap().is_none());
    run(&mut session, "DROP TABLE t").await;
    assert!(database.remove_device("san").await.unwrap().is_none());
    let error = refused(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    assert!(error.to_string().contains("\"san\""), "{error}");
}
