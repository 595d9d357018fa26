//! Tests of joins over several devices: the host computes the build side and broadcasts it to the devices of the other
//! side. The rows are the same wherever the join runs.

use std::path::Path;
use std::sync::Arc;

use cleave_host::Database;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{answer, fresh, row, rows, run};

/// `few` on the embedded device, `kinds` on nas, `many` and `more` divided.
async fn with_tables(outside: &Path) -> (tempfile::TempDir, Arc<Database>, Served, Served) {
    let (directory, database) = fresh().await;
    let nas = Served::start(&outside.join("nas.media"), [1; 16], anywhere()).await;
    let san = Served::start(&outside.join("san.media"), [2; 16], anywhere()).await;
    let token = token_file(outside, TOKEN);
    database.add_device("nas", remote(nas.address, token.clone())).await.unwrap();
    database.add_device("san", remote(san.address, token)).await.unwrap();
    let mut session = database.session();
    let over = |devices: &str, tablets: u32| {
        format!("WITH (devices = ({devices}), tablets = {tablets}, tablet_by = hash (id))")
    };
    let tables = [
        "CREATE TABLE few (id int PRIMARY KEY, kind int, word text) WITH (device = embedded)".into(),
        "CREATE TABLE kinds (id int PRIMARY KEY, name text) WITH (device = nas)".into(),
        format!("CREATE TABLE many (id int PRIMARY KEY, few int, note text) {}", over("nas, san", 4)),
        format!("CREATE TABLE more (id int PRIMARY KEY, many int) {}", over("san, embedded, nas", 3)),
        "INSERT INTO few SELECT v, v % 7, 'word ' || v % 100 FROM generate_series(1, 2000) AS s(v)"
            .into(),
        "INSERT INTO kinds SELECT v, 'kind ' || v FROM generate_series(0, 4) AS s(v)".into(),
        "INSERT INTO many SELECT v, nullif(v % 2500, 3), 'note ' || v FROM generate_series(1, 20000) AS s(v)"
            .into(),
        "INSERT INTO more SELECT v, v * 3 FROM generate_series(1, 5000) AS s(v)".into(),
    ];
    for statement in tables {
        run(&mut session, &statement).await;
    }
    (directory, database, nas, san)
}

const QUERIES: [&str; 15] = [
    "SELECT count(*), sum(m.id), max(f.word) FROM few f JOIN many m ON f.id = m.few",
    "SELECT count(*), sum(m.id), max(f.word) FROM few f JOIN many m ON f.id = m.few WHERE f.kind = 3",
    "SELECT f.kind, k.name, count(*), min(m.note) FROM few f JOIN kinds k ON f.kind = k.id \
     JOIN many m ON f.id = m.few GROUP BY f.kind, k.name",
    "SELECT f.word, m.note, o.id FROM few f JOIN many m ON f.id = m.few JOIN more o ON o.many = m.id \
     WHERE f.kind < 2 ORDER BY o.id DESC LIMIT 11",
    "SELECT count(*), sum(o.id) FROM more o JOIN many m ON o.many = m.id",
    // The build side is kept: only if one device has the whole streamed side.
    "SELECT count(*), count(f.id) FROM many m LEFT JOIN few f ON f.id = m.few AND f.kind = 1",
    "SELECT count(*), count(m.id) FROM few f LEFT JOIN many m ON f.id = m.few",
    "SELECT count(*), count(f.id), count(m.id) FROM few f FULL JOIN many m ON f.id = m.few",
    "SELECT count(*) FROM many m WHERE EXISTS (SELECT 1 FROM few f WHERE f.id = m.few AND f.kind = 2)",
    "SELECT count(*) FROM many m WHERE NOT EXISTS (SELECT 1 FROM few f WHERE f.id = m.few)",
    "SELECT count(*) FROM few f WHERE f.id NOT IN (SELECT many FROM more)",
    // Other conditions than equal keys, and none.
    "SELECT count(*) FROM kinds k JOIN many m ON m.id < k.id * 10",
    "SELECT count(*) FROM kinds k, more o",
    // Joins that no device can run.
    "SELECT v.w, count(*) FROM (VALUES (1, 'one'), (2, 'two'), (9, NULL)) AS v (id, w) \
     JOIN many m ON m.few = v.id GROUP BY v.w",
    "SELECT count(*), sum(m.id) FROM many m JOIN (SELECT kind, max(id) AS id FROM few GROUP BY kind) AS top \
     ON m.few = top.id",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_over_several_devices_give_the_same_rows_in_every_split() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_tables(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = host").await;
    let mut expected = Vec::new();
    for query in QUERIES {
        expected.push(answer(&mut session, query).await);
    }
    let ways = [
        "SET stealing = off",
        "SET stealing = always; SET threads = 1",
        "SET broadcast_bytes = 300; SET stealing = on; SET index_scan = always",
        "RESET ALL; ANALYZE; SET batch_size = 100; SET slot_bytes = 4096; SET slot_count = 1",
    ];
    let mut below = 0;
    for way in ways {
        run(&mut session, way).await;
        for (query, expected) in QUERIES.iter().zip(&expected) {
            let splits = (1..=3).flat_map(|n| [format!("h{n}"), format!("h{n}+")]);
            for split in ["h0", "ndp", "auto"].into_iter().map(str::to_owned).chain(splits) {
                session.set("split", &split).unwrap();
                if split != "auto"
                    && session.run(&format!("EXPLAIN VERBOSE {query}")).await.is_err()
                {
                    continue;
                }
                below += usize::from(split.starts_with('h'));
                assert_eq!(&answer(&mut session, query).await, expected, "{way}, {split}: {query}");
            }
        }
    }
    assert!(below > 150, "only {below} joins ran below a cut");
}

const JOINED: &str =
    "SELECT count(*), sum(m.id) FROM few f JOIN many m ON f.id = m.few WHERE f.kind = 3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_is_shown_with_who_makes_it_and_who_gets_it() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_tables(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = 'h1+'; SET stealing = off").await;
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {JOINED}")).await.join("\n");
    let line = |what: &str| {
        let found = plan.lines().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {plan}"))
    };
    let at = |place: usize| plan.lines().nth(place).unwrap_or_default();
    let join = line("HashJoinExec: ");
    assert!(at(join).contains("[nas, san]") && at(join).contains("(rows=2"), "{plan}");
    assert!(
        at(join + 1).contains("BroadcastExec: rows=0 of the host")
            && at(join + 1).contains("[nas, san]"),
        "{plan}"
    );
    // Below it, what the host does for it: here a fragment of the device that has the table.
    assert!(plan.lines().skip(join).any(|l| l.contains("FragmentExec: device=embedded")), "{plan}");
    assert!(plan.contains("many: device [TableScanExec > BroadcastExec > HashJoinExec"), "{plan}");
    assert_eq!(plan.matches("broadcast: 286 rows, ").count(), 2, "{plan}");
    assert!(!plan.contains("ran on the host"), "{plan}");
    // Sent to nobody, it stays, and says why.
    run(&mut session, "SET broadcast_bytes = 0").await;
    let error = session.run(&format!("EXPLAIN VERBOSE {JOINED}")).await.unwrap_err().to_string();
    assert!(
        error.contains(
            "its inputs lie on several devices (embedded, nas, san), and broadcast_bytes = 0"
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_too_many_to_be_sent_or_held_are_joined_on_the_host() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _nas, _san) = with_tables(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = host").await;
    let wide = "SELECT count(*), sum(o.id), min(m.note) FROM many m JOIN many o ON m.note = o.note";
    let (few, many) = (row(&mut session, JOINED).await, row(&mut session, wide).await);
    run(&mut session, "SET split = 'h1'; SET broadcast_bytes = '1kB'").await;
    assert_eq!(row(&mut session, JOINED).await, few);
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {JOINED}")).await.join("\n");
    assert_eq!(plan.matches("ran on the host: rows to broadcast have ").count(), 1, "{plan}");
    // A device without memory for them refuses them, and the host runs its part.
    run(&mut session, "RESET broadcast_bytes; SET device_memory = '1MB'; SET device_spill = 0")
        .await;
    assert_eq!(row(&mut session, wide).await, many);
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {wide}")).await.join("\n");
    assert_eq!(plan.matches("ran on the host: ").count(), 2, "{plan}");
    // With space, it joins them part by part.
    run(&mut session, "RESET device_spill").await;
    assert_eq!(row(&mut session, wide).await, many);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_is_named_and_the_others_go_on() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, nas, _san) = with_tables(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET split = 'h1'").await;
    let expected = row(&mut session, JOINED).await;
    let media = outside.path().join("nas.media");
    let address = nas.address;
    nas.stop().await;
    let error = session.run(JOINED).await.unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("\"nas\""), "{error}");
    let _nas = Served::start(&media, [1; 16], address).await;
    assert_eq!(row(&mut session, JOINED).await, expected);
}
