//! Tests of the filter history: scans on either side give the rows of scans without it while rows change, and leave
//! pages unread; whatever is asked, it takes no more memory than it may.

use std::sync::Arc;

use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::{Database, OpenOptions, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, attach_nas, remote, token_file};
use crate::support::{embedded, fresh, refused, row, rows, run, runtime_options};

/// Zone maps say nothing of these.
const CONDITIONS: [&str; 7] = [
    "tag LIKE '%x%'",
    "NOT (tag LIKE '%x%' OR w < 40)",
    "w > 95 AND part = 3",
    "w >= 50.5",
    "w < 40 OR part IS NULL",
    "part NOT IN (1, 2) AND w > 90",
    "bare NOT LIKE '%x%' OR w > 98",
];

fn query(table: &str, condition: &str) -> String {
    format!("SELECT count(*), sum(id), max(note) FROM {table} WHERE {condition}")
}

/// Pages that EXPLAIN ANALYZE says were not read, answered and noted.
async fn counts(session: &mut Session, sql: &str) -> [u64; 3] {
    let plan = rows(session, &format!("EXPLAIN ANALYZE {sql}")).await;
    let Some(line) = plan.iter().find(|line| line.contains("pages not read, ")) else {
        return [0; 3];
    };
    let mut numbers = line.split([' ', ',']).filter_map(|word| word.parse().ok());
    [(); 3].map(|()| numbers.next().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_those_without_it_while_rows_change() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let (mut plain, mut other) = (database.session(), database.session());
    for (table, device) in [("near", "embedded"), ("far", "nas")] {
        run(
            &mut plain,
            &format!(
                "SET default_device = '{device}'; CREATE TABLE {table} (id int PRIMARY KEY, tag text, w real, part int,
                     note text, bare text);
                 INSERT INTO {table} SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v, v * 37 % 100,
                     nullif(v % 7, 5), 'note ' || v || repeat(md5(v::text), 8) FROM generate_series(1, 40000) AS s(v);
                 CHECKPOINT"
            ),
        )
        .await;
    }
    run(&mut plain, "SET filter_history = off; SET index_scan = off").await;
    let mut sessions = Vec::new();
    for (split, mode) in [("h0", "on"), ("host", "on"), ("h0", "always"), ("auto", "on")] {
        let mut session = database.session();
        let set = format!("SET split = {split}; SET filter_history = {mode}; SET index_scan = off");
        run(&mut session, &set).await;
        sessions.push(session);
    }
    for table in ["near", "far"] {
        for change in [
            "SELECT 1",
            &format!("DELETE FROM {table} WHERE id % 3 = 0"),
            &format!("UPDATE {table} SET tag = 'x' || id, w = 99 WHERE id BETWEEN 20000 AND 20900"),
            &format!("INSERT INTO {table} VALUES (50000, 'xx', 96, 3, 'new', 'b')"),
            &format!("VACUUM {table}"),
            &format!("ALTER TABLE {table} ADD COLUMN more int DEFAULT 3"),
            &format!(
                "ALTER TABLE {table} DROP COLUMN part; ALTER TABLE {table} RENAME COLUMN more TO part"
            ),
            &format!(
                "ALTER TABLE {table} DROP COLUMN part; ALTER TABLE {table} ADD COLUMN part int"
            ),
        ] {
            run(&mut other, change).await;
            for condition in CONDITIONS {
                let sql = query(table, condition);
                let expected = rows(&mut plain, &sql).await;
                for session in &mut sessions {
                    for _ in 0..2 {
                        assert_eq!(rows(session, &sql).await, expected, "{sql} after {change}");
                    }
                }
            }
        }
    }
    // A row that is known to be left is still one that fails.
    let failing = "SELECT count(*) FROM far WHERE 1 / (id - 7) > 0 AND w > 50";
    for session in &mut sessions {
        run(session, "SELECT count(*) FROM far WHERE w > 50").await;
        assert_eq!(refused(session, failing).await.sqlstate(), "22012");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_not_read_again_for_the_same_condition() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(
        &mut session,
        "SET default_device = 'nas'; CREATE TABLE far (id int PRIMARY KEY, tag text, note text);
         INSERT INTO far SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v, repeat(md5(v::text), 9)
             FROM generate_series(1, 60000) AS s(v);
         CHECKPOINT; SET split = h0; SET index_scan = off; SET stealing = off",
    )
    .await;
    let sql = "SELECT id, note FROM far WHERE tag LIKE '%x%'";
    assert_eq!(counts(&mut session, sql).await, [0, 0, 0]);
    let [_, _, noted] = counts(&mut session, sql).await;
    assert!(noted > 5, "{noted}");
    let [unread, answered, noted_again] = counts(&mut session, sql).await;
    assert_eq!((unread + answered, noted_again), (noted, 0));
    assert!(answered < 4, "{answered}");
    run(&mut session, "SET filter_history = off").await;
    assert_eq!(counts(&mut session, sql).await, [0, 0, 0]);
    run(&mut session, "RESET filter_history; SET stack = blk; RESET split").await;
    assert_eq!(counts(&mut session, sql).await, [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_keeps_as_much_as_its_size_says() {
    for (bytes, keeps) in [(0, "f"), (1 << 20, "t")] {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(embedded()).create(true).filter_history_bytes(bytes);
        let database = Database::open(directory.path(), options).await.unwrap();
        let mut session = database.session();
        run(
            &mut session,
            "CREATE TABLE near (id int PRIMARY KEY, tag text);
             INSERT INTO near SELECT v, 'tag ' || v FROM generate_series(1, 20000) AS s(v);
             CHECKPOINT; SET split = host; SET index_scan = off; SET filter_history = always",
        )
        .await;
        let sql = "SELECT count(*) FROM near WHERE tag LIKE '%77%'";
        let first = rows(&mut session, sql).await;
        assert_eq!(rows(&mut session, sql).await, first, "{bytes}");
        let kept = "SELECT bytes_max, conditions > 0, entries > 0 FROM cleave.filter_history WHERE device IS NULL";
        assert_eq!(row(&mut session, kept).await, format!("{bytes},{keeps},{keeps}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_device_and_its_host_share_what_they_know() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE near (id int PRIMARY KEY, tag text, note text);
         INSERT INTO near SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v, repeat(md5(v::text), 9)
             FROM generate_series(1, 60000) AS s(v);
         CHECKPOINT; SET index_scan = off; SET filter_history = always",
    )
    .await;
    for (condition, first, second) in
        [("tag LIKE '%x%'", "h0", "host"), ("tag LIKE '%x7%'", "host", "h0")]
    {
        let sql = format!("SELECT id, note FROM near WHERE {condition}");
        run(&mut session, &format!("SET split = {first}")).await;
        let [_, _, noted] = counts(&mut session, &sql).await;
        assert!(noted > 5, "{condition}: {noted}");
        run(&mut session, &format!("SET split = {second}")).await;
        let [unread, answered, noted_again] = counts(&mut session, &sql).await;
        assert_eq!((unread + answered, noted_again), (noted, 0), "{condition}");
    }
    let listed = "SELECT device, conditions, entries > 0 FROM cleave.filter_history";
    assert_eq!(rows(&mut session, listed).await, ["NULL,2,t"]);
}

/// The predicted time of the splits `host` and `h0` of `sql`.
async fn prices(session: &mut Session, sql: &str) -> [f64; 2] {
    let json = row(session, &format!("EXPLAIN (FORMAT JSON) {sql}")).await;
    ["host", "h0"].map(|split| {
        let (_, candidate) =
            json.split_once(&format!("\"split\":\"{split}\",\"finish_ms\":")).unwrap();
        candidate.split(',').next().unwrap().parse().unwrap()
    })
}

/// The same with the filter history, and without.
async fn prices_with_and_without(session: &mut Session, sql: &str) -> ([f64; 2], [f64; 2]) {
    run(session, "SET split = auto; SET filter_history = always").await;
    let with = prices(session, sql).await;
    run(session, "SET filter_history = off").await;
    let without = prices(session, sql).await;
    run(session, "SET filter_history = always").await;
    (with, without)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_side_that_knows_the_conditions_is_predicted_to_be_sooner() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let (_served, _) = attach_nas(&database, outside.path()).await;
    let mut session = database.session();
    run(
        &mut session,
        "SET default_device = 'nas'; CREATE TABLE far (id int PRIMARY KEY, tag text, note text);
         INSERT INTO far SELECT v, CASE WHEN v / 1000 = 7 THEN 'ax' ELSE 'az' END || v, repeat(md5(v::text), 9)
             FROM generate_series(1, 60000) AS s(v);
         CHECKPOINT; SET index_scan = off; SET stealing = off; SET page_filter = off",
    )
    .await;
    let sql = "SELECT id, note FROM far WHERE tag LIKE '%x%'";
    let (with, without) = prices_with_and_without(&mut session, sql).await;
    assert_eq!(with, without, "nothing is known yet");
    run(&mut session, "SET split = host").await;
    let found = rows(&mut session, sql).await;
    assert_eq!(found.len(), 1000);
    let (with, without) = prices_with_and_without(&mut session, sql).await;
    assert!(with[0] < without[0] * 0.9, "{with:?}, {without:?}");
    assert_eq!(with[1], without[1], "the device has not evaluated it");
    run(&mut session, "SET split = h0").await;
    assert_eq!(rows(&mut session, sql).await.len(), 1000);
    let (with, without) = prices_with_and_without(&mut session, sql).await;
    assert!(with[0] < without[0] && with[1] < without[1], "{with:?}, {without:?}");
    // Another condition, and one that fails, are not known.
    for other in ["tag LIKE '%y%'", "tag LIKE '%x%' AND 1 / id > 0"] {
        let sql = format!("SELECT id, note FROM far WHERE {other}");
        let (with, without) = prices_with_and_without(&mut session, &sql).await;
        assert_eq!(with, without, "{other}");
    }
    // The choice does not go back and forth, nor do the rows change.
    run(&mut session, "SET split = auto").await;
    let chosen = async |session: &mut Session| {
        let json = row(session, &format!("EXPLAIN (FORMAT JSON) {sql}")).await;
        let candidates = json.split("{\"split\":").skip(1);
        let taken = candidates.filter(|candidate| candidate.contains("\"chosen\":true"));
        taken.map(|candidate| candidate.split(',').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut expected = found;
    expected.sort();
    let mut choices = Vec::new();
    for _ in 0..4 {
        let mut again = rows(&mut session, sql).await;
        again.sort();
        assert_eq!(again, expected);
        choices.push(chosen(&mut session).await);
    }
    choices.dedup();
    assert_eq!(choices.len(), 1, "{choices:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_of_any_number_and_size_take_the_memory_that_there_is() {
    const BYTES: u64 = 64 << 10;
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let device = || {
        let options = RuntimeOptions { filter_history_bytes: BYTES, ..runtime_options([1; 16]) };
        Runtime::new(Arc::new(Memory::new()), options).unwrap() as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let way = remote(served.address, token_file(outside.path(), TOKEN));
    database.add_device("nas", way).await.unwrap();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE far (id int PRIMARY KEY, tag text, w int) WITH (device = nas);
         INSERT INTO far SELECT v, 'k' || v * 7919 % 10007, nullif(v * 37 % 997, 5)
             FROM generate_series(1, 20000) AS s(v);
         CHECKPOINT; SET split = h0; SET index_scan = off",
    )
    .await;
    let long = "y".repeat(4000);
    let list: Vec<String> = (0..3000).map(|number| (3 * number).to_string()).collect();
    let either: Vec<String> = (0..200).map(|number| format!("w <> {number} OR id < 9")).collect();
    let mut conditions = vec![
        format!("tag LIKE '%{long}%' OR tag = '{long}'"),
        format!("w IN ({})", list.join(", ")),
        either.join(" AND "),
        format!("{}w > 50{}", "NOT (w IS NULL OR ".repeat(60), ")".repeat(60)),
    ];
    // More than are numbered for a column, and than there is room for.
    for number in 0..80 {
        conditions.push(format!("w <> {number} AND tag LIKE '%{number}7%' AND tag <> 'k{number}'"));
    }
    for condition in &conditions {
        let sql = format!("SELECT count(*), sum(id) FROM far WHERE {condition}");
        run(&mut session, "SET filter_history = off").await;
        let expected = row(&mut session, &sql).await;
        run(&mut session, "SET filter_history = always").await;
        for _ in 0..2 {
            assert_eq!(row(&mut session, &sql).await, expected, "{condition}");
        }
    }
    let figures =
        "SELECT conditions, bytes, bytes_max FROM cleave.filter_history WHERE device = 'nas'";
    let figures = row(&mut session, figures).await;
    let figures: Vec<u64> = figures.split(',').map(|number| number.parse().unwrap()).collect();
    assert!((65..=3 * 64).contains(&figures[0]), "{figures:?}");
    assert!((BYTES / 2..=BYTES).contains(&figures[1]), "{figures:?}");
    assert_eq!(figures[2], BYTES);
}
