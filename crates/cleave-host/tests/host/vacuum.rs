//! Tests of VACUUM: its only visible effect is freed space, whatever is read, written or killed meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session, SnapshotKind};
use cleave_media::{Fault, FaultPlan, FaultyMedia, Media, Memory, Operation, SplitMix64};

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::durability::Slot;
use crate::support::{
    answer, assert_no_leak, batches, fresh, note, numbered, open, refused, row, rows, run,
};

const ROWS: i32 = 6000;

/// A table of loaded and of inserted rows, of which one in three is gone and one in four was replaced.
async fn changed(session: &mut Session, placement: &str) {
    let create = format!("CREATE TABLE t (id int PRIMARY KEY, note text) {placement}");
    run(session, &format!("{create}; CREATE INDEX t_note ON t (note)")).await;
    session.load("t", batches(vec![numbered(0..ROWS - 500)]), None).await.unwrap();
    let inserted = format!(
        "INSERT INTO t SELECT i, 'late ' || i FROM generate_series({}, {}) AS g (i)",
        ROWS - 500,
        ROWS - 1
    );
    run(session, &inserted).await;
    run(session, "DELETE FROM t WHERE id % 3 = 0").await;
    run(session, "UPDATE t SET note = note || '!' WHERE id % 4 = 0").await;
}

/// The results of all queries of the tests.
async fn picture(session: &mut Session) -> Vec<Vec<String>> {
    let mut picture = Vec::new();
    let by_note = format!("SELECT id FROM t WHERE note = '{}!'", note(44));
    for query in [
        "SELECT count(*), sum(id), count(DISTINCT note) FROM t",
        "SELECT id, note FROM t WHERE id IN (4, 6, 7, 44, 5996, 5999)",
        &by_note,
        "SELECT id, note FROM t WHERE note LIKE 'late %' AND id % 97 = 1",
        "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE b.note = 'late 5603'",
        "SELECT id, note FROM t",
    ] {
        picture.push(answer(session, query).await);
    }
    picture
}

async fn assert_clean(database: &Arc<Database>) {
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn dead_rows(database: &Database) -> u64 {
    let state = database.catalog();
    state.table("t").unwrap().tablets.iter().map(|tablet| tablet.dead_row_count()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_rows_leave_their_pages_on_either_side() {
    let outside = tempfile::tempdir().unwrap();
    for (placement, ndp) in [
        ("", "on"),
        ("", "off"),
        ("WITH (device = 'nas')", "on"),
        ("WITH (device = 'nas')", "off"),
        ("WITH (devices = (embedded, nas), tablets = 3, tablet_by = hash (id))", "on"),
    ] {
        let (directory, database) = fresh().await;
        let path = outside.path().join(format!("{}{ndp}.media", placement.len()));
        let served = Served::start(&path, [1; 16], anywhere()).await;
        let nas = remote(served.address, token_file(outside.path(), TOKEN));
        database.add_device("nas", nas).await.unwrap();
        let mut session = database.session();
        changed(&mut session, placement).await;
        let before = picture(&mut session).await;
        database.snapshot(SnapshotKind::Flushed).await.unwrap();
        assert_eq!(picture(&mut session).await, before);
        assert_eq!(dead_rows(&database), 3000);
        run(&mut session, &format!("SET ndp = {ndp}")).await;
        let told = rows(&mut session, "VACUUM VERBOSE t").await;
        run(&mut session, "SET ndp = on").await;
        let figures: Vec<u64> =
            told[0].split(',').skip(1).map(|figure| figure.parse().unwrap()).collect();
        let [left, removed, dead, blocks_before, blocks_after, by_device, by_host] = figures[..]
        else {
            panic!("{told:?}")
        };
        assert!(left == 4000 && removed == 3000 && dead == 0, "{told:?}");
        assert!(blocks_after < blocks_before, "{told:?}");
        assert!(
            if ndp == "on" { by_device > 0 && by_host == 0 } else { by_device == 0 },
            "{told:?}"
        );
        assert_eq!(dead_rows(&database), 0);
        // Of a divided table no device has all rows, which `ndp` asks for.
        let is_divided = placement.contains("devices");
        let splits = ["auto", "host", "ndp"];
        for split in splits.into_iter().filter(|split| !is_divided || *split != "ndp") {
            run(&mut session, &format!("SET split = {split}")).await;
            assert_eq!(picture(&mut session).await, before, "{placement} {ndp} {split}");
        }
        run(&mut session, "RESET split").await;
        assert_clean(&database).await;
        assert_no_leak(&database);
        // Again, over pages with gaps, and over a restart.
        run(
            &mut session,
            "DELETE FROM t WHERE id % 5 = 1; UPDATE t SET note = 'x' WHERE id % 11 = 0",
        )
        .await;
        let before = picture(&mut session).await;
        drop((session, database));
        let database = open(directory.path()).await;
        let mut session = database.session();
        assert_eq!(picture(&mut session).await, before);
        run(&mut session, "VACUUM").await;
        assert_eq!(picture(&mut session).await, before);
        assert_clean(&database).await;
        run(&mut session, "CREATE INDEX t_later ON t (note, id)").await;
        assert_eq!(picture(&mut session).await, before);
        assert_clean(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_an_older_state_goes_on_reading_it() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    changed(&mut session, "").await;
    let mut reader = database.session();
    run(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let old = picture(&mut reader).await;
    run(&mut session, "DELETE FROM t WHERE id > 100; VACUUM FULL t; VACUUM t").await;
    let new = picture(&mut session).await;
    assert_ne!(old, new);
    assert_eq!(picture(&mut reader).await, old);
    let used = database.devices()[0].space().used_blocks;
    run(&mut reader, "COMMIT").await;
    assert_eq!(picture(&mut reader).await, new);
    run(&mut session, "CHECKPOINT; CHECKPOINT").await;
    assert!(database.devices()[0].space().used_blocks < used);
    assert_clean(&database).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_writes_meanwhile_commits() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    changed(&mut session, "").await;
    let mut blocks = Vec::new();
    for (level, sql) in [
        ("READ COMMITTED", "UPDATE t SET note = 'one' WHERE id BETWEEN 10 AND 20"),
        ("REPEATABLE READ", "UPDATE t SET note = 'two' WHERE id BETWEEN 1000 AND 1100"),
        ("SERIALIZABLE", "DELETE FROM t WHERE id BETWEEN 5900 AND 5950"),
        (
            "READ COMMITTED",
            "INSERT INTO t SELECT i, 'new' FROM generate_series(7000, 7100) AS g (i)",
        ),
    ] {
        let mut block = database.session();
        run(&mut block, &format!("BEGIN ISOLATION LEVEL {level}; {sql}")).await;
        blocks.push(block);
    }
    let mut reader = database.session();
    run(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    run(&mut session, "VACUUM t").await;
    assert_eq!(row(&mut blocks[0], "SELECT note FROM t WHERE id = 11").await, "one");
    let (given_up, kept) = blocks.split_last_mut().unwrap();
    for block in kept {
        run(block, "COMMIT").await;
    }
    run(given_up, "ROLLBACK").await;
    // A pruned row counts as changed by another transaction.
    run(&mut reader, "UPDATE t SET note = 'mine' WHERE id = 2000").await;
    let gone = refused(&mut reader, "UPDATE t SET note = 'mine' WHERE id = 5902").await;
    assert_eq!(gone.sqlstate(), "40001", "{gone}");
    run(&mut reader, "ROLLBACK").await;
    for vacuum in ["", "VACUUM t"] {
        run(&mut session, vacuum).await;
        for (count, condition) in [
            (8, "note = 'one'"),
            (68, "note = 'two'"),
            (0, "id BETWEEN 5900 AND 5950"),
            (0, "id >= 7000"),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            assert_eq!(row(&mut session, &sql).await, count.to_string(), "{condition}");
        }
        assert_clean(&database).await;
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vacuum_whose_device_fails_at_any_moment_leaves_the_rows() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::over(Arc::new(Memory::new()), FaultPlan::default()));
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    changed(&mut session, "").await;
    let before = picture(&mut session).await;
    let mut refusals = 0;
    for first in 1.. {
        let plan = (first..first + 500)
            .fold(FaultPlan::new(1), |plan, number| plan.at(Operation::Write, number, Fault::Full));
        media.follow(plan);
        let vacuumed = session.run("VACUUM t").await;
        media.follow(FaultPlan::default());
        assert_eq!(picture(&mut session).await, before, "from write {first} on");
        let Err(error) = vacuumed else { break };
        assert_eq!(error.sqlstate(), "53100", "{error}");
        refusals += 1;
        assert!(refusals < 200, "{refusals}");
    }
    assert!(refusals > 0, "{refusals}");
    assert_clean(&database).await;
    assert_no_leak(&database);
}

/// Random changes with vacuum among them: the rows are those of a map without vacuum.
async fn history(seed: u64, path: &Path, placement: &str, steps: usize) {
    let mut random = SplitMix64::new(seed);
    let mut database = open(path).await;
    let mut model: BTreeMap<i64, i64> = BTreeMap::new();
    run(
        &mut database.session(),
        &format!("CREATE TABLE t (id bigint PRIMARY KEY, v bigint) {placement}; CREATE INDEX t_v ON t (v)"),
    )
    .await;
    for step in 0..steps {
        let mut session = database.session();
        let low = i64::try_from(random.next_u64() % 900).unwrap();
        let high = low + i64::try_from(random.next_u64() % 120).unwrap();
        match random.next_u64() % 10 {
            0..3 => {
                let fresh: Vec<i64> = (low..high).filter(|id| !model.contains_key(id)).collect();
                if !fresh.is_empty() {
                    let values: Vec<String> =
                        fresh.iter().map(|id| format!("({id}, {step})")).collect();
                    run(&mut session, &format!("INSERT INTO t VALUES {}", values.join(", "))).await;
                    model.extend(fresh.into_iter().map(|id| (id, step as i64)));
                }
            }
            3..6 => {
                let sql = format!("UPDATE t SET v = v + 1000 WHERE id >= {low} AND id < {high}");
                run(&mut session, &sql).await;
                model.range_mut(low..high).for_each(|(_, v)| *v += 1000);
            }
            6..8 => {
                run(&mut session, &format!("DELETE FROM t WHERE id >= {low} AND id < {high}"))
                    .await;
                model.retain(|id, _| !(low..high).contains(id));
            }
            8 => drop(run(&mut session, "VACUUM t").await),
            _ => {
                run(&mut session, "VACUUM FULL t").await;
                if random.next_u64().is_multiple_of(2) {
                    drop((session, database));
                    database = open(path).await;
                    session = database.session();
                }
            }
        }
        let found = rows(&mut session, "SELECT id, v FROM t ORDER BY id").await;
        let wanted: Vec<String> = model.iter().map(|(id, v)| format!("{id},{v}")).collect();
        assert_eq!(found, wanted, "seed {seed}, step {step}");
        let by_key = rows(&mut session, &format!("SELECT v FROM t WHERE id = {low}")).await;
        let wanted: Vec<String> = model.get(&low).map(ToString::to_string).into_iter().collect();
        assert_eq!(by_key, wanted, "seed {seed}, step {step}, id {low}");
        let wanted = model.values().filter(|v| **v == step as i64).count();
        let by_value = row(&mut session, &format!("SELECT count(*) FROM t WHERE v = {step}")).await;
        assert_eq!(by_value, wanted.to_string(), "seed {seed}, step {step}");
    }
    assert_clean(&database).await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_with_vacuum_has_the_rows_of_one_without() {
    for (seed, placement) in [(1, ""), (2, "WITH (tablets = 2, tablet_by = hash (id))")] {
        let directory = tempfile::tempdir().unwrap();
        history(seed, directory.path(), placement, 60).await;
    }
}
