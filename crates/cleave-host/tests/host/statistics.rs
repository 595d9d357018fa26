//! Tests of ANALYZE: results close to the truth, used by plans, kept across restarts, lost only by themselves, and no
//! obstacle to others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use cleave_host::check::{CheckOptions, Fault, check};
use cleave_host::{Database, OpenOptions, RemoteDevice, Session};
use futures::StreamExt;

use crate::devices::{Served, TOKEN};
use crate::support::{batches, embedded, fresh, numbered, open, refused, row, rows, run};

/// `big`: 60,000 rows, `few` has 3 values (half of the rows have 0), `many` 1000, `name` a tenth of NULLs.
fn big() -> RecordBatch {
    let ids = 0..60_000;
    let few = ids.clone().map(|id| if id % 2 == 0 { 0 } else { 1 + id % 4 / 2 });
    let many = ids.clone().map(|id| (id * 7919) % 1000);
    let name = ids.clone().map(|id| (id % 10 > 0).then(|| format!("name {}", id % 5000)));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(ids.collect::<Int32Array>())),
        ("few", Arc::new(few.collect::<Int32Array>())),
        ("many", Arc::new(many.collect::<Int32Array>())),
        ("name", Arc::new(name.collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

async fn with_big(session: &mut Session) {
    run(session, "CREATE TABLE big (id int PRIMARY KEY, few int, many int, name text)").await;
    session.load("big", batches(vec![big()]), None).await.unwrap();
}

/// A column of the listing, by column of the table.
async fn listed(session: &mut Session, table: &str, place: usize) -> BTreeMap<String, String> {
    let rows = rows(session, &format!("SHOW STATISTICS FOR {table}")).await;
    let fields = |row: &String| row.split(',').map(str::to_owned).collect::<Vec<_>>();
    rows.iter().map(fields).map(|row| (row[1].clone(), row[place].clone())).collect()
}

/// Rows that the plan of `sql` expects of its scan of `table`.
async fn expected(session: &mut Session, sql: &str, table: &str) -> f64 {
    let lines = rows(session, &format!("EXPLAIN VERBOSE {sql}")).await;
    let scan = format!("TableScanExec: {table} ");
    let line = lines.iter().find(|line| line.contains(&scan)).unwrap();
    line.split("expected=").nth(1).unwrap().trim_end_matches(')').parse().unwrap()
}

fn near(found: f64, truth: f64, factor: f64) {
    assert!(found <= truth * factor && found >= truth / factor, "{found}, in truth {truth}");
}

fn file(directory: &Path) -> PathBuf {
    directory.join("statistics").join("1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_found_is_close_to_the_truth_and_the_plan_expects_it() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    with_big(&mut session).await;
    let absent = rows(&mut session, "EXPLAIN VERBOSE SELECT sum(id) FROM big WHERE few = 0").await;
    assert!(absent.contains(&"  big: none; ANALYZE gathers them".to_owned()), "{absent:?}");
    run(&mut session, "ANALYZE").await;
    let distinct = listed(&mut session, "big", 6).await;
    for (column, truth) in [("id", 60_000.0), ("few", 3.0), ("many", 1000.0), ("name", 4500.0)] {
        near(distinct[column].parse().unwrap(), truth, 1.06);
    }
    let nulls = listed(&mut session, "big", 4).await;
    assert_eq!((nulls["name"].as_str(), nulls["few"].as_str()), ("0.1", "0"));
    let sampled: u64 = listed(&mut session, "big", 3).await["id"].parse().unwrap();
    assert!((5000..=20_000).contains(&sampled), "{sampled} of 60,000 rows were drawn");
    for condition in [
        "few = 0",
        "few = 2",
        "few <> 0",
        "few IN (1, 2)",
        "many = 77",
        "many < 100",
        "many >= 200 AND many < 300",
        "name = 'name 4321'",
        "name LIKE 'name 1%'",
        "name LIKE '%7'",
        "name IS NULL",
        "id BETWEEN 1000 AND 2000",
        "few = 0 AND many > 500",
        "few + 1 = 3",
    ] {
        let sql = format!("SELECT sum(id) FROM big WHERE {condition}");
        let truth = row(&mut session, &sql.replace("sum(id)", "count(*)")).await;
        let found = expected(&mut session, &sql, "big").await;
        // A pattern is tried on a few hundred values, a tenth of which is a handful.
        let factor = if condition.contains("LIKE") { 3.0 } else { 1.5 };
        near(found, truth.parse().unwrap(), factor);
    }
    run(&mut session, "SET use_statistics = off").await;
    let unknown = "SELECT sum(id) FROM big WHERE few = 0";
    near(expected(&mut session, unknown, "big").await, 300.0, 1.01);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_are_expected_as_they_turn_out_and_ordered_by_that() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    with_big(&mut session).await;
    run(&mut session, "CREATE TABLE kind (id int PRIMARY KEY, word text)").await;
    run(
        &mut session,
        "INSERT INTO kind SELECT v, 'word ' || v FROM generate_series(0, 999) AS s(v)",
    )
    .await;
    run(&mut session, "CREATE TABLE part (big_id int NOT NULL, kind_id int NOT NULL)").await;
    run(
        &mut session,
        "INSERT INTO part SELECT v % 6000, v % 1000 FROM generate_series(1, 30000) AS s(v)",
    )
    .await;
    run(&mut session, "ANALYZE").await;
    let sql = "SELECT count(*) FROM big b JOIN part p ON p.big_id = b.id JOIN kind k ON k.id = p.kind_id \
               WHERE k.word = 'word 8' AND b.few = 0";
    let lines = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await;
    let mut joins = 0;
    for line in lines.iter().filter(|line| line.contains("HashJoinExec")) {
        let number = |name: &str| -> f64 {
            let text = line.split(name).nth(1).unwrap();
            text.split([',', ')']).next().unwrap().parse().unwrap()
        };
        near(number("expected=").max(1.0), number("(rows=").max(1.0), 8.0);
        joins += 1;
    }
    assert_eq!(joins, 2, "{lines:#?}");
    // The single word first, then its parts; the large table last, as the probe side.
    let place = |name: &str| {
        let scan = format!("TableScanExec: {name} ");
        lines.iter().position(|line| line.contains(&scan)).unwrap()
    };
    assert!(place("kind") < place("big") && place("part") < place("big"), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_survive_a_restart_and_go_with_their_table() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    with_big(&mut session).await;
    run(&mut session, "ANALYZE big").await;
    let before = rows(&mut session, "SHOW STATISTICS FOR big").await;
    assert!(file(directory.path()).exists());
    drop((session, database));
    // Files that a crash left incomplete, and files that belong to no table.
    let folder = directory.path().join("statistics");
    for name in ["1.new", "77", "notes.txt"] {
        std::fs::write(folder.join(name), b"left").unwrap();
    }
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(rows(&mut session, "SHOW STATISTICS FOR big").await, before);
    assert!(!folder.join("1.new").exists() && !folder.join("77").exists());
    assert!(folder.join("notes.txt").exists(), "what is none of ours stays");
    run(&mut session, "DROP TABLE big").await;
    assert!(!file(directory.path()).exists());
    assert!(rows(&mut session, "SHOW STATISTICS").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_loses_statistics_and_nothing_else() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    with_big(&mut session).await;
    run(&mut session, "ANALYZE big").await;
    drop((session, database));
    let path = file(directory.path());
    let sound = std::fs::read(&path).unwrap();
    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 4;
    for damaged in [&sound[..sound.len() / 2], &[], &flipped] {
        std::fs::write(&path, damaged).unwrap();
        let options = CheckOptions { quick: true, ..CheckOptions::default() };
        let report = check(directory.path(), OpenOptions::new(embedded()), &options).await.unwrap();
        let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
        assert!(matches!(finding.fault, Fault::Statistics(_)), "{finding}");
        assert!(finding.to_string().contains("table \"big\""), "{finding}");
        assert!(finding.fault.advice().contains("ANALYZE"));
        let database = open(directory.path()).await;
        let mut session = database.session();
        assert!(rows(&mut session, "SHOW STATISTICS").await.is_empty());
        assert_eq!(row(&mut session, "SELECT count(*) FROM big WHERE few = 0").await, "30000");
        run(&mut session, "ANALYZE big").await;
        let report = database.check(&options).await.unwrap();
        assert!(report.is_clean() && report.counts.statistics == 1, "{:#?}", report.findings);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn analyze_waits_for_no_writer_and_can_be_stopped() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    with_big(&mut session).await;
    let mut writer = database.session();
    let (first, held) = futures::channel::oneshot::channel::<()>();
    let rows_then_nothing = futures::stream::once(async move {
        held.await.unwrap();
        Ok(numbered(0..10))
    });
    run(&mut session, "CREATE TABLE t (id int, note text)").await;
    let load = writer.load("t", rows_then_nothing.boxed(), None);
    let analyze = async {
        // The load has the writer lock by now, and keeps it until it is released.
        tokio::time::sleep(Duration::from_millis(50)).await;
        run(&mut session, "ANALYZE big").await;
        first.send(()).unwrap();
    };
    let (loaded, ()) = tokio::join!(load, analyze);
    assert_eq!(loaded.unwrap(), 10);
    // Stopped at any time, there is what there was, or what was found; never half of it.
    let mut stopped = 0;
    for micros in [0, 100, 1000, 5000, 20_000] {
        let analyze = session.run("ANALYZE big");
        stopped +=
            u32::from(tokio::time::timeout(Duration::from_micros(micros), analyze).await.is_err());
        assert_eq!(rows(&mut session, "SHOW STATISTICS FOR big").await.len(), 4);
    }
    assert!(stopped > 0);
    drop((session, writer, database));
    let database: Arc<Database> = open(directory.path()).await;
    assert_eq!(rows(&mut database.session(), "SHOW STATISTICS FOR big").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_far_away_reads_the_rows_and_sends_sketches() {
    let outside = tempfile::tempdir().unwrap();
    let far =
        Served::start(&outside.path().join("far.media"), [9; 16], "127.0.0.1:0".parse().unwrap())
            .await;
    let token_file = outside.path().join("token");
    cleave_media::files::write_durably(&token_file, TOKEN.as_bytes()).unwrap();
    let (_directory, database) = fresh().await;
    let remote = RemoteDevice {
        host: "127.0.0.1".to_owned(),
        port: far.address.port(),
        token_file: Some(token_file),
        ca_pem: None,
        rate_cap: None,
    };
    let device = database.add_device("far", remote).await.unwrap();
    let mut session = database.session();
    run(&mut session, "SET default_device = far").await;
    run(&mut session, "CREATE TABLE t (id int, note text)").await;
    let numbers = (0..20).map(|part| numbered(part * 30_000..(part + 1) * 30_000));
    session.load("t", batches(numbers.collect()), None).await.unwrap();
    // The device's performance is measured before the first choice, and not counted here.
    run(&mut session, "EXPLAIN VERBOSE SELECT note FROM t").await;
    // Where the host takes part, pages cross too.
    run(&mut session, "SET stealing = off").await;
    let mut found = Vec::new();
    for split in ["h0", "host", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        database.buffer_pool().clear();
        let before = device.traffic().received_bytes;
        run(&mut session, "ANALYZE t").await;
        let bytes = device.traffic().received_bytes - before;
        found.push((split, bytes, listed(&mut session, "t", 6).await));
    }
    let [(_, sketches, there), (_, pages, here), (_, auto, _)] = found.as_slice() else { panic!() };
    // Counts over all rows do not depend on the side that counts.
    assert_eq!(there, here);
    assert!(*sketches < 3_000_000, "{sketches} bytes of sketches");
    assert!(*pages > 2 * sketches, "{pages} bytes of pages");
    // Which of them is faster depends on the machine.
    assert!(*auto < 2 * pages, "auto: {auto}, {sketches}, {pages}");
    // Some of the pages, with references to rows, which both sides make for themselves.
    run(&mut session, "SET default_statistics_target = 1").await;
    let mut sampled = Vec::new();
    for split in ["h0", "host"] {
        run(&mut session, &format!("SET split = {split}")).await;
        database.buffer_pool().clear();
        let before = device.traffic().received_bytes;
        let read = row(&mut session, "ANALYZE VERBOSE t").await;
        assert!(read.starts_with("t,600000,") && read.ends_with(",10,4"), "{read}");
        let bytes = device.traffic().received_bytes - before;
        assert!(bytes < pages * 3 / 5, "{split}: {bytes} bytes of 4 of 10 pages, {pages} of all");
        sampled.push(listed(&mut session, "t", 6).await);
    }
    assert_eq!(sampled[0], sampled[1]);
    for (column, truth) in there {
        let found = sampled[0][column].parse().unwrap();
        near(found, truth.parse().unwrap(), 1.1);
    }
    run(&mut session, "RESET default_statistics_target; SET split = auto").await;
    // One key of a thousand: known from distinct counts before the join has run.
    with_big(&mut session).await;
    run(&mut session, "CREATE TABLE kind (id int PRIMARY KEY, word text)").await;
    run(
        &mut session,
        "INSERT INTO kind SELECT v, 'word ' || v FROM generate_series(0, 999) AS s(v)",
    )
    .await;
    let sql = "EXPLAIN VERBOSE SELECT sum(b.id) FROM big b JOIN kind k ON k.id = b.many WHERE k.word = 'word 7'";
    let about = async |session: &mut Session, sql: &str| {
        let lines = rows(session, sql).await;
        let line = lines.iter().find(|line| line.starts_with("  h0: "));
        line.unwrap_or_else(|| panic!("{lines:#?}")).clone()
    };
    let unknown = about(&mut session, sql).await;
    assert!(unknown.contains(" kB over the link"), "{unknown}");
    run(&mut session, "ANALYZE").await;
    let known = about(&mut session, sql).await;
    assert!(known.contains(" B over the link"), "{known}");
    // The same keys out of a join of two tables, of which no statistics tell, beside the bound of an aggregate.
    let sql = "EXPLAIN VERBOSE SELECT min(b.id) FROM big b JOIN kind k ON k.id = b.many JOIN kind j ON j.id = k.id \
        WHERE j.word = 'word 7'";
    let known = about(&mut session, sql).await;
    assert!(known.contains(" B over the link"), "{known}");
    far.stop().await;
    database.buffer_pool().clear();
    let error = refused(&mut session, "ANALYZE t").await;
    assert_eq!(error.sqlstate(), "58030");
    assert_eq!(rows(&mut session, "SHOW STATISTICS FOR t").await.len(), 2, "what was known stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_have_changed_are_analysed_by_themselves() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let due = "SELECT relname, n_mod_since_analyze, autoanalyze_count, last_autoanalyze IS NOT NULL FROM \
        pg_stat_user_tables ORDER BY relname";
    run(&mut session, "CREATE TABLE few (id int); INSERT INTO few VALUES (1), (2)").await;
    with_big(&mut session).await;
    assert!(database.autoanalyze().await.is_empty());
    // Two rows are below the threshold.
    assert_eq!(rows(&mut session, due).await, ["big,0,1,t", "few,2,0,f"]);
    assert_eq!(listed(&mut session, "big", 2).await["id"], "60000");
    // A tenth and 50 rows may change before it is due again.
    run(
        &mut session,
        "INSERT INTO big SELECT v, 1, v, 'x' FROM generate_series(100001, 106000) AS s(v)",
    )
    .await;
    assert!(database.autoanalyze().await.is_empty());
    run(&mut session, "CHECKPOINT").await;
    assert_eq!(rows(&mut session, due).await[0], "big,6000,1,t");
    let explained =
        rows(&mut session, "EXPLAIN VERBOSE SELECT sum(id) FROM big WHERE few = 0").await;
    let line = explained.iter().find(|line| line.starts_with("  big: analyzed ")).unwrap();
    assert!(line.ends_with(" ago, at 60000 rows; 66000 by now, 6000 changes since"), "{line}");
    // These are in the delta yet.
    run(&mut session, "DELETE FROM big WHERE id <= 1000 AND many <> 1").await;
    assert!(database.autoanalyze().await.is_empty());
    assert_eq!(rows(&mut session, due).await[0], "big,0,2,t");
    // An update in place changes no VID.
    run(&mut session, "CHECKPOINT; SET update_placement = device; UPDATE big SET name = 'y'").await;
    assert!(!rows(&mut session, due).await[0].starts_with("big,0,"));
    assert!(database.autoanalyze().await.is_empty());
    assert_eq!(listed(&mut session, "big", 6).await["name"], "1");
    // One column leaves the others as old as they were.
    run(&mut session, "UPDATE big SET few = many; ANALYZE big (few)").await;
    assert!(!rows(&mut session, due).await[0].starts_with("big,0,"));
    run(&mut session, "ALTER SYSTEM SET autoanalyze = off").await;
    let before = rows(&mut session, due).await;
    assert!(database.autoanalyze().await.is_empty());
    assert_eq!(rows(&mut session, due).await, before);
    run(&mut session, "ALTER SYSTEM RESET autoanalyze").await;
    run(&mut session, "ALTER SYSTEM SET autovacuum_analyze_threshold = 1").await;
    assert!(database.autoanalyze().await.is_empty());
    assert_eq!(rows(&mut session, due).await[1], "few,0,1,t");
    assert_eq!(row(&mut session, "SHOW autoanalyze").await, "on");
}
