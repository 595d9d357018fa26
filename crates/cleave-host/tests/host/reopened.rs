//! Tests of restarts: random blocks of two sessions are committed, rolled back and lost between restarts. Only COMMIT
//! changes what is committed, keys stay unique, and every access path finds what a scan finds, whichever first uses an
//! index in an incarnation.

use std::path::Path;
use std::sync::Arc;

use cleave_host::{Database, Session, TransactionStatus};
use cleave_media::SplitMix64;

use crate::support::{answer, assert_no_leak, open, rows, run};

/// Ids below it, and values of other columns.
const IDS: u64 = 30;
const VALUES: u64 = 8;
/// The allowed errors of two sessions that change the same rows, and of keys.
const EXPECTED: [&str; 6] = ["23503", "23505", "40001", "40P01", "55P03", "25P02"];

const TABLES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, k int UNIQUE, n int);
    CREATE INDEX t_n ON t (n);
    CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t ON DELETE SET NULL, u int REFERENCES t (k) ON DELETE \
    CASCADE ON UPDATE CASCADE);
    CREATE INDEX c_t ON c (t);
    CREATE INDEX c_u ON c (u);
    INSERT INTO t SELECT i, i + 100, i % 8 FROM generate_series(0, 19) AS g (i);
    INSERT INTO c SELECT i, i, i + 100 FROM generate_series(0, 9) AS g (i)";

fn statement(random: &mut SplitMix64) -> String {
    let mut id = || random.below(IDS);
    let (a, b, n) = (id(), id(), id() % VALUES);
    match random.below(22) {
        0 => format!("INSERT INTO t VALUES ({a}, {b} + 100, {n})"),
        1 => format!("INSERT INTO t VALUES ({a}, {b} + 100, {n}), ({b}, {a} + 100, {n})"),
        2 | 3 => format!(
            "INSERT INTO t VALUES ({a}, {a} + 100, {n}) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
        ),
        4 => format!(
            "INSERT INTO t VALUES ({a}, {b} + 100, {n}) ON CONFLICT (k) DO UPDATE SET n = t.n + 1"
        ),
        5 => format!("INSERT INTO t VALUES ({a}, {b} + 100, {n}) ON CONFLICT DO NOTHING"),
        6 => format!("UPDATE t SET n = {n} WHERE id = {a}"),
        7 => format!("UPDATE t SET k = {b} + 100 WHERE id = {a}"),
        8 => format!("UPDATE t SET n = n + 1 WHERE n = {n}"),
        9 => format!("UPDATE t SET n = {n} WHERE id IN (SELECT t FROM c WHERE c.id > {a})"),
        10 => format!("UPDATE t SET n = c.id FROM c WHERE c.t = t.id AND c.id < {}", a / 4),
        11 => format!("DELETE FROM t WHERE id = {a}"),
        12 => format!("DELETE FROM t WHERE n = {n} AND id > {a}"),
        13 => format!(
            "DELETE FROM t WHERE id IN (SELECT id FROM t WHERE n = {n} ORDER BY id LIMIT 2)"
        ),
        14 => format!("INSERT INTO c VALUES ({a}, {b}, {b} + 100)"),
        15 | 16 => format!(
            "INSERT INTO c VALUES ({a}, {b}, NULL) ON CONFLICT (id) DO UPDATE SET t = excluded.t"
        ),
        17 => format!("DELETE FROM c WHERE t = {a}"),
        18 => format!("DELETE FROM c USING t WHERE c.u = t.k AND t.n = {n}"),
        19 => "SELECT count(*) FROM t JOIN c ON c.t = t.id".to_owned(),
        20 => format!("SELECT * FROM t WHERE id = {a} FOR UPDATE"),
        _ => format!("SELECT count(*) FROM t LEFT JOIN c ON c.u = t.k WHERE t.n < {n}"),
    }
}

/// All rows of both tables, by scans.
async fn all(session: &mut Session) -> [Vec<String>; 2] {
    run(session, "SET index_scan = off").await;
    let found = [
        answer(session, "SELECT * FROM t ORDER BY id").await,
        answer(session, "SELECT * FROM c ORDER BY id").await,
    ];
    run(session, "RESET index_scan").await;
    found
}

/// Compares what look-ups and indexes find with what scans do.
async fn check(session: &mut Session, random: &mut SplitMix64) {
    let [t, c] = all(session).await;
    let id = random.below(IDS);
    let (key, n) = (id + 100, id % VALUES);
    let asked = [
        (&t, "t", 0, "id", id),
        (&t, "t", 1, "k", key),
        (&t, "t", 2, "n", n),
        (&c, "c", 0, "id", id),
        (&c, "c", 1, "t", id),
        (&c, "c", 2, "u", key),
    ];
    for (all, table, place, column, value) in asked {
        let value = value.to_string();
        let has_it = |row: &&String| row.split(',').nth(place) == Some(&value);
        let expected: Vec<String> = all.iter().filter(has_it).cloned().collect();
        for planned in ["", " AND random() < 2"] {
            let sql = format!("SELECT * FROM {table} WHERE {column} = {value}{planned}");
            let mut found = rows(session, &sql).await;
            found.sort_by_key(|row| all.iter().position(|known| known == row));
            assert_eq!(found, expected, "{sql}");
        }
    }
}

/// Keys are unique, and referencing rows find theirs.
async fn check_keys(session: &mut Session) {
    run(session, "SET index_scan = off").await;
    let faults = "SELECT (SELECT count(*) - count(DISTINCT id) FROM t), (SELECT count(k) - count(DISTINCT k) FROM \
        t), \
         (SELECT count(*) - count(DISTINCT id) FROM c), \
         (SELECT count(*) FROM c LEFT JOIN t ON t.id = c.t WHERE c.t IS NOT NULL AND t.id IS NULL), \
         (SELECT count(*) FROM c LEFT JOIN t ON t.k = c.u WHERE c.u IS NOT NULL AND t.k IS NULL)";
    assert_eq!(rows(session, faults).await, ["0,0,0,0,0"]);
    run(session, "RESET index_scan").await;
}

async fn sessions(directory: &Path) -> (Arc<Database>, [Session; 2]) {
    let database = open(directory).await;
    let mut both = [database.session(), database.session()];
    for session in &mut both {
        // They run alternately: one that waited for the other would wait forever.
        run(session, "SET lock_timeout = 20").await;
    }
    (database, both)
}

/// Runs a statement, which may be refused; returns whether it was.
async fn is_refused(session: &mut Session, sql: &str) -> bool {
    let Err(error) = session.run(sql).await.map(drop) else { return false };
    assert!(EXPECTED.contains(&error.sqlstate()), "{sql}: {} {error}", error.sqlstate());
    true
}

async fn play(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let (mut database, mut both) = sessions(directory.path()).await;
    run(&mut both[0], TABLES).await;
    let mut committed = all(&mut both[0]).await;
    let mut has_savepoint = [false; 2];
    for _ in 0..220 {
        let number = usize::from(random.below(2) == 0);
        let session = &mut both[number];
        if session.transaction_status() == TransactionStatus::Idle {
            match random.below(24) {
                0..=5 => {
                    if random.below(2) == 0 {
                        run(session, "CHECKPOINT").await;
                    }
                    drop(both);
                    drop(database);
                    (database, both) = sessions(directory.path()).await;
                    has_savepoint = [false; 2];
                    assert_eq!(all(&mut database.session()).await, committed, "seed {seed}");
                }
                6 => drop(is_refused(session, "VACUUM t").await),
                _ => {
                    let level = match random.below(2) {
                        0 => "READ COMMITTED",
                        _ => "REPEATABLE READ",
                    };
                    run(session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
                    has_savepoint[number] = false;
                }
            }
            continue;
        }
        let is_failed = session.transaction_status() == TransactionStatus::Failed;
        match random.below(12) {
            0 if !is_failed => {
                is_refused(session, "COMMIT").await;
                let mut other = database.session();
                committed = all(&mut other).await;
                check_keys(&mut other).await;
                check(&mut other, &mut random).await;
            }
            1 | 2 => drop(run(session, "ROLLBACK").await),
            3 if !is_failed => {
                run(session, "SAVEPOINT s").await;
                has_savepoint[number] = true;
            }
            4 | 5 if has_savepoint[number] => drop(run(session, "ROLLBACK TO s").await),
            _ if is_failed => drop(run(session, "ROLLBACK").await),
            6 => check(session, &mut random).await,
            _ => drop(is_refused(session, &statement(&mut random)).await),
        }
        assert_eq!(all(&mut database.session()).await, committed, "seed {seed}");
    }
    for session in &mut both {
        run(session, "ROLLBACK").await;
    }
    drop(both);
    check_keys(&mut database.session()).await;
    run(&mut database.session(), "CHECKPOINT").await;
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_a_row_finds_what_is_committed_after_each_restart() {
    let count = std::env::var("CLEAVE_REOPENED_SEEDS").ok().and_then(|count| count.parse().ok());
    for seed in 0..count.unwrap_or(6) {
        play(seed).await;
    }
}
