//! Tests of indexes: queries give the same rows with and without them, in every order of writes, and a build or a
//! compaction that ends early leaves nothing.

use std::path::Path;
use std::sync::Arc;

use cleave_host::{Database, Session, SnapshotKind};
use cleave_media::{FaultyMedia, Media, SplitMix64};

use crate::durability::Slot;
use crate::support::{
    assert_no_leak, assert_no_leak_soon, batches, fresh, numbered, open, refused, row, rows, run,
};

/// The rows of `sql`, sorted, through indexes and then without; they must be the same.
pub(crate) async fn both_ways(session: &mut Session, sql: &str) -> Vec<String> {
    run(session, "SET index_scan = on").await;
    let mut through = rows(session, sql).await;
    run(session, "SET index_scan = off").await;
    let mut without = rows(session, sql).await;
    run(session, "RESET index_scan").await;
    through.sort_unstable();
    without.sort_unstable();
    assert_eq!(through, without, "{sql}");
    through
}

pub(crate) fn index_names(database: &Database) -> Vec<String> {
    database.catalog().indexes().map(|(_, index)| index.name.clone()).collect()
}

/// A table of 40,000 rows on many pages: `few` has 5 values, `many` about 8,000 and NULLs, `word` begins alike.
pub(crate) async fn numbers(session: &mut Session) {
    run(session, "CREATE TABLE t (id int PRIMARY KEY, few int, many bigint, word text, f real)")
        .await;
    for part in 0..5 {
        let from = part * 8000 + 1;
        run(
            session,
            &format!(
                "INSERT INTO t SELECT v, v % 5, CASE WHEN v % 13 = 0 THEN NULL ELSE v * 7919 % 8009 END, \
                 'w' || v * 31 % 9973, v % 100 FROM generate_series({from}, {}) AS s(v)",
                from + 7999
            ),
        )
        .await;
    }
}

/// Conditions of all the kinds that use an index, with changing numbers.
pub(crate) fn conditions(random: &mut SplitMix64) -> Vec<String> {
    let mut number = |below: u64| random.below(below);
    vec![
        format!("many = {}", number(8009)),
        format!("many IN ({}, {}, -1)", number(8009), number(8009)),
        format!("many BETWEEN {0} AND {0} + 2", number(8009)),
        format!("many > {}", 8009 - number(10)),
        format!("many < {} AND few = {}", number(10), number(5)),
        format!("few = {} AND many = {}", number(5), number(8009)),
        format!("few = {} AND many >= {}", number(5), 8009 - number(50)),
        format!("few IN (1, 4) AND word = 'w{}'", number(9973)),
        format!("word = 'w{}'", number(9973)),
        format!("word LIKE 'w{}%'", number(9973)),
        format!("word >= 'w{0}' AND word < 'w{0}5'", number(9973)),
        format!("word = 'w{}' OR word = 'w{}'", number(9973), number(9973)),
        format!("many IS NULL AND word = 'w{}'", number(9973)),
        format!("many IS NULL AND few = {} AND id < 500", number(5)),
        format!("(many IS NULL OR many = {}) AND id > 39000", number(8009)),
        format!("many IS NULL AND id = {}", number(3000) * 13),
        "f IS NULL".to_owned(),
        "word IS NULL OR word = 'w7'".to_owned(),
        format!("few = {} AND many IS NOT NULL AND id < 40", number(5)),
        format!("f = {} AND id < 2000", number(100)),
        format!("f > {} AND id < 2000", 90 + number(9)),
        format!("id = {}", number(40_000)),
        format!("id > {} AND many < 5000", 40_000 - number(30)),
        format!("many + 0 = {}", number(8009)),
    ]
}

async fn compare(session: &mut Session, seed: u64) -> usize {
    let mut random = SplitMix64::new(seed);
    let mut found = 0;
    for condition in conditions(&mut random) {
        let all = format!("SELECT id, few, many, word, f FROM t WHERE {condition}");
        found += both_ways(session, &all).await.len();
        both_ways(session, &format!("SELECT count(*), sum(id) FROM t WHERE {condition}")).await;
    }
    found
}

pub(crate) const INDEXES: [&str; 6] = [
    "CREATE INDEX t_many ON t (many DESC)",
    "CREATE INDEX t_few_many ON t (few, many DESC NULLS LAST)",
    "CREATE INDEX t_word ON t (word, few)",
    "CREATE UNIQUE INDEX t_many_id ON t (many NULLS FIRST, id)",
    "CREATE INDEX t_word_desc ON t (word DESC NULLS FIRST)",
    "CREATE INDEX t_f ON t (f)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_with_and_without_indexes() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    numbers(&mut session).await;
    for (seed, sql) in (1..).zip(INDEXES) {
        run(&mut session, sql).await;
        assert!(compare(&mut session, seed).await > 50);
    }
    // Rows after the indexes: some in memtables, many in runs of their own.
    run(
        &mut session,
        "INSERT INTO t VALUES (50001, 1, 17, 'w17', 17), (50002, 1, NULL, NULL, NULL)",
    )
    .await;
    run(&mut session, "INSERT INTO t SELECT id + 100000, few, many, word, f FROM t").await;
    for seed in 10..13 {
        compare(&mut session, seed).await;
    }
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(index_names(&database).len(), 7);
    for seed in 20..23 {
        compare(&mut session, seed).await;
    }
    for name in index_names(&database).iter().skip(1) {
        run(&mut session, &format!("DROP INDEX {name}")).await;
        compare(&mut session, 30).await;
    }
    // Readers of older states are gone with the next statement that writes.
    run(&mut session, "CREATE TABLE u (id int)").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_index_and_what_it_leaves() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    numbers(&mut session).await;
    run(&mut session, INDEXES[0]).await;
    run(&mut session, "SET look_up_rows = 0").await;
    let explained = rows(&mut session, "EXPLAIN SELECT sum(few) FROM t WHERE many = 4711").await;
    let line = explained.iter().find(|line| line.contains("by index t_many:")).unwrap();
    assert!(line.contains("entries"), "{line}");
    // A NULL is part of a key like any value, but filters do not contain the entries of a unique index that have one.
    run(&mut session, "DROP INDEX t_many").await;
    for unique in ["UNIQUE", ""] {
        run(&mut session, &format!("CREATE {unique} INDEX t_both ON t (many DESC, word)")).await;
        let sql = "SELECT sum(id), count(*) FROM t WHERE many IS NULL AND word = 'w403'";
        let explained = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
        assert!(explained.contains("by index t_both: 1 entries"), "{explained}");
        assert_eq!(both_ways(&mut session, sql).await, ["13,1"]);
        run(&mut session, "DROP INDEX t_both").await;
    }
    run(&mut session, INDEXES[0]).await;
    run(&mut session, "SET index_scan = off").await;
    let explained = rows(&mut session, "EXPLAIN SELECT sum(few) FROM t WHERE many = 4711").await;
    assert!(!explained.iter().any(|line| line.contains("index")), "{explained:?}");
    run(&mut session, "RESET index_scan").await;
    let point = rows(&mut session, "EXPLAIN SELECT few FROM t WHERE many = 4711").await;
    assert!(point[0].contains("by index t_many (many)"), "{point:?}");
    let scan = rows(&mut session, "EXPLAIN SELECT sum(id) FROM t WHERE many > 10").await;
    assert!(!scan.iter().any(|line| line.contains("index")), "too many rows: {scan:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_written_during_a_build_are_in_the_index() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    numbers(&mut session).await;
    let mut builder = database.session();
    let building = async move {
        for sql in INDEXES {
            run(&mut builder, sql).await;
        }
    };
    let mut writer = database.session();
    let writing = async move {
        for id in 60_000..60_060 {
            let sql = format!("INSERT INTO t VALUES ({id}, 1, {id}, 'during', 1)");
            run(&mut writer, &sql).await;
        }
        run(&mut writer, "INSERT INTO t SELECT id + 200000, few, many, word, f FROM t").await;
    };
    futures::future::join(building, writing).await;
    let during =
        both_ways(&mut session, "SELECT id FROM t WHERE word = 'during' AND id < 100000").await;
    assert_eq!(during.len(), 60);
    compare(&mut session, 5).await;
    let catalog = database.catalog();
    let tablet = &catalog.table("t").unwrap().tablets[0];
    assert_eq!(tablet.indexes.len(), 7);
    drop(catalog);
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "80120");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unique_build_names_the_key_that_comes_twice() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    numbers(&mut session).await;
    run(&mut session, "INSERT INTO t VALUES (70000, 1, 99999, 'a', 1), (70001, 2, 99999, 'b', 1)")
        .await;
    let occupied = |database: &Database| {
        let space = database.devices()[0].space();
        space.used_blocks - space.retired_blocks
    };
    // The rows of small commits are written as pages.
    database.snapshot(SnapshotKind::Flushed).await.unwrap();
    let before = occupied(&database);
    for sql in ["CREATE UNIQUE INDEX u ON t (many, f)", "CREATE UNIQUE INDEX u ON t (f, many)"] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), "23505", "{error}");
        assert!(
            error.to_string().contains("99999") && error.to_string().contains("\"u\""),
            "{error}"
        );
    }
    assert_no_leak_soon(&database).await;
    assert_eq!(occupied(&database), before);
    assert_eq!(index_names(&database), ["t_pkey"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_the_media_refuse_at_any_operation_leaves_nothing() {
    a_build_refused_at_any_operation("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_of_several_tablets_that_the_media_refuse_leaves_nothing() {
    a_build_refused_at_any_operation("WITH (tablets = 3)").await;
}

async fn a_build_refused_at_any_operation(with: &str) {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, &format!("CREATE TABLE t (id int PRIMARY KEY, note text) {with}")).await;
    session.load("t", batches(vec![numbered(0..12_000)]), None).await.unwrap();
    let mut refusals = 0;
    for operations in 0.. {
        media.fail_after(operations);
        let built = session.run("CREATE INDEX t_note ON t (note, id)").await;
        // The state after a restart, if the power were lost here.
        let after_crash = Arc::new(media.crash(operations).unwrap());
        media.mend();
        let is_built = built.is_ok();
        if let Err(error) = built {
            assert_eq!(error.sqlstate(), "58030", "{error}");
            refusals += 1;
            assert_eq!(index_names(&database), ["t_pkey"]);
            assert_no_leak_soon(&database).await;
        }
        check_copy(directory.path(), after_crash, is_built).await;
        if is_built {
            break;
        }
    }
    assert!(refusals > 3, "{refusals} operations");
    assert_eq!(row(&mut session, "SELECT id FROM t WHERE note = 'note 50 '").await, "50");
}

/// Opens a copy of the database over `media` and compares what its indexes say.
async fn check_copy(directory: &Path, media: Arc<dyn Media>, is_built: bool) {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("segments")).unwrap();
    std::fs::copy(directory.join("manifest"), copy.path().join("manifest")).unwrap();
    std::fs::create_dir(copy.path().join("log")).unwrap();
    for entry in std::fs::read_dir(directory.join("log")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join("log").join(entry.file_name())).unwrap();
    }
    for entry in std::fs::read_dir(directory.join("segments")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join("segments").join(entry.file_name())).unwrap();
    }
    let database = Slot::new(media).open(copy.path()).await;
    assert_eq!(index_names(&database).len(), if is_built { 2 } else { 1 });
    assert_no_leak(&database);
    let mut session = database.session();
    both_ways(&mut session, "SELECT id FROM t WHERE note = 'note 7 xxxxxxx'").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "12000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_stay_few_and_a_compaction_that_fails_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(FaultyMedia::new());
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE INDEX t_note ON t (note)").await;
    let mut refusals = 0;
    for load in 0..22 {
        let ids = load * 2000..(load + 1) * 2000;
        // Each load fails once, at another operation of its media.
        media.fail_after(u64::try_from(load).unwrap());
        let failed = session.load("t", batches(vec![numbered(ids.clone())]), None).await;
        media.mend();
        if failed.is_err() {
            refusals += 1;
            assert_no_leak_soon(&database).await;
            session.load("t", batches(vec![numbered(ids)]), None).await.unwrap();
        }
        let catalog = database.catalog();
        for index in &catalog.table("t").unwrap().tablets[0].indexes {
            assert!(index.runs().len() <= 8, "{} runs", index.runs().len());
            let keys: u64 = index.runs().map(|run| run.row_count()).sum();
            assert_eq!(keys, (u64::try_from(load).unwrap() + 1) * 2000);
        }
    }
    assert!(refusals > 2, "{refusals} loads failed");
    for id in [0, 1999, 2000, 43_999] {
        let note = crate::support::note(id);
        let found =
            both_ways(&mut session, &format!("SELECT id FROM t WHERE note = '{note}'")).await;
        assert_eq!(found, [id.to_string()]);
    }
    *slot.0.lock().unwrap() = Arc::new(media.crash(1).unwrap());
    drop((session, database));
    let database = slot.open(directory.path()).await;
    assert_no_leak(&database);
    let error = refused(&mut database.session(), "INSERT INTO t VALUES (2000, '')").await;
    assert_eq!(error.sqlstate(), "23505");
}

/// A memtable is rebuilt from what is committed, whichever statement uses it first after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_rows_that_a_block_dead_and_left_are_still_there_after_a_restart() {
    let undone = ["ROLLBACK TO s; COMMIT", "ROLLBACK"];
    let dead = [
        "UPDATE t SET n = NULL WHERE n IN (SELECT 40)",
        "DELETE FROM t WHERE n IN (SELECT 40)",
        "UPDATE t SET n = NULL WHERE n = 40",
        "DELETE FROM t",
    ];
    for (dead, undone) in dead.into_iter().flat_map(|dead| undone.map(|undone| (dead, undone))) {
        let (directory, database) = fresh().await;
        let mut session = database.session();
        run(
            &mut session,
            "CREATE TABLE t (id int PRIMARY KEY, n int, m int UNIQUE); CREATE INDEX ON t (n);
             INSERT INTO t VALUES (1, 10, 100), (4, 40, 400), (5, 50, 500); CHECKPOINT",
        )
        .await;
        drop(session);
        drop(database);
        let database = open(directory.path()).await;
        let mut session = database.session();
        // The view that the block plans on has its own changes.
        let block = format!(
            "BEGIN; SAVEPOINT s; {dead}; SELECT count(*) FROM t AS a, t AS b WHERE a.n = b.m; \
             SELECT * FROM t WHERE id = 4; SELECT * FROM t WHERE m = 400; {undone}"
        );
        run(&mut session, &block).await;
        for sql in [
            "SELECT * FROM t WHERE id = 4",
            "SELECT * FROM t WHERE m = 400",
            "SELECT * FROM t WHERE n = 40",
        ] {
            assert_eq!(rows(&mut session, sql).await, ["4,40,400"], "{sql} after {dead}; {undone}");
        }
        for sql in ["INSERT INTO t VALUES (4)", "INSERT INTO t VALUES (6, 60, 400)"] {
            let error = refused(&mut session, sql).await;
            assert_eq!(error.sqlstate(), "23505", "{sql} after {dead}; {undone}: {error}");
        }
    }
}
