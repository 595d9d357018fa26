//! Tests of page versions that are committed by the log: no manifest is written, and recovery puts them in place again.

use std::collections::BTreeMap;

use cleave_host::DeviceId;
use cleave_media::SplitMix64;

use super::*;
use crate::support::open_forgetful;

fn manifest(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("manifest")).unwrap()
}

async fn filled(session: &mut Session, row_count: u32) {
    run(session, "CREATE TABLE a (id int PRIMARY KEY, price int, note text)").await;
    let rows = format!("SELECT v, 0, 'n' FROM generate_series(1, {row_count}) AS s(v)");
    run(session, &format!("INSERT INTO a {rows}; SET update_placement = device")).await;
}

const ALL: &str = "SELECT count(*), sum(price), count(note), max(id) FROM a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_commits_page_versions_and_recovery_finds_them() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    filled(&mut session, 20_000).await;
    let before = manifest(directory.path());
    // Rows of the delta before, between and behind; a page that changes twice; rows and page versions in one commit.
    run(&mut session, "UPDATE a SET price = 5 WHERE id = 5; DELETE FROM a WHERE id = 6").await;
    run(&mut session, "UPDATE a SET price = price + 1 WHERE id % 2 = 0").await;
    run(
        &mut session,
        "INSERT INTO a VALUES (30000, 7, 'new'); UPDATE a SET note = 'x' WHERE id = 8",
    )
    .await;
    run(&mut session, "BEGIN; UPDATE a SET price = price + 10 WHERE id > 8 AND id < 15000").await;
    run(&mut session, "UPDATE a SET note = NULL WHERE id > 10000 AND id < 20000").await;
    run(&mut session, "INSERT INTO a VALUES (30001, 7, 'new'); DELETE FROM a WHERE id = 9; COMMIT")
        .await;
    run(&mut session, "DELETE FROM a WHERE id = 10; UPDATE a SET price = -1 WHERE id = 12").await;
    run(&mut session, "BEGIN; UPDATE a SET price = 99; ROLLBACK").await;
    assert!(fragments(&database).await >= 4);
    assert!(manifest(directory.path()) == before, "all of it is in the log alone");
    let all = row(&mut session, ALL).await;
    let some = "SELECT * FROM a WHERE id IN (4, 5, 7, 8, 12, 14999, 15000, 20000, 30000, 30001) ORDER BY id";
    let rows_before = rows(&mut session, some).await;
    drop((session, database));
    for _ in 0..2 {
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        assert_eq!(row(&mut session, ALL).await, all);
        assert_eq!(rows(&mut session, some).await, rows_before);
        assert_no_leak(&database);
    }
    checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_manifest_does_not_know_is_committed_by_a_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    filled(&mut session, 20_000).await;
    // Few recent rows are changed by the statement, so that a record can have the rest.
    run(
        &mut session,
        "INSERT INTO a SELECT v, 0, 'hot' FROM generate_series(20001, 20100) AS s(v)",
    )
    .await;
    let before = manifest(directory.path());
    run(&mut session, "UPDATE a SET price = price + 1").await;
    assert!(manifest(directory.path()) == before);
    for first in [30_001, 40_001] {
        let numbers = format!("FROM generate_series({first}, {}) AS s(v)", first + 8999);
        run(&mut session, &format!("INSERT INTO a SELECT v, 1, 'hot' {numbers}")).await;
    }
    assert!(manifest(directory.path()) == before);
    // Many recent rows lie on pages that only the log can make again, and elsewhere.
    run(&mut session, "UPDATE a SET price = price + 1").await;
    let after = manifest(directory.path());
    assert!(after != before);
    run(&mut session, "UPDATE a SET price = price + 1").await;
    assert!(manifest(directory.path()) == after);
    drop((session, database));
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, ALL).await, "38100,114300,38100,49000");
    // What an archive must have is copied there.
    let archive = tempfile::tempdir().unwrap();
    run(
        &mut session,
        &format!("ALTER SYSTEM SET archive_directory = '{}'", archive.path().display()),
    )
    .await;
    run(&mut session, "SET update_placement = device").await;
    let before = manifest(directory.path());
    run(&mut session, "UPDATE a SET price = price + 1").await;
    assert!(manifest(directory.path()) == before);
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_of_replaced_pages_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    let columns: Vec<String> = (0..8).map(|n| format!("c{n} bigint")).collect();
    run(&mut session, &format!("CREATE TABLE a (id int PRIMARY KEY, {})", columns.join(", ")))
        .await;
    let values: Vec<String> = (0..8).map(|n| format!("v * 7919{n} % 1000000007")).collect();
    let rows = format!("SELECT v, {} FROM generate_series(1, 100000) AS s(v)", values.join(", "));
    run(&mut session, &format!("INSERT INTO a {rows}; SET update_placement = device")).await;
    let (mut replaced, mut last) = (0, manifest(directory.path()));
    for turn in 0..30 {
        let set: Vec<String> =
            (0..8).map(|n| format!("c{n} = c{n} * {} % 1000000007", 31 + turn)).collect();
        run(&mut session, &format!("UPDATE a SET {}", set.join(", "))).await;
        let now = manifest(directory.path());
        replaced += u32::from(now != last);
        last = now;
    }
    assert!((1..8).contains(&replaced), "{replaced} manifests for 30 updates");
    let used = database.device(DeviceId::EMBEDDED).unwrap().space();
    assert!(used.used_blocks < 40 << 10, "{used:?} for 5 MB of rows");
    assert_no_leak_soon(&database).await;
}

/// Deletes of so many rows that the delta does not take them: by fragments and on the host, of rows in pages and in the
/// delta, beside page versions, and of rows that an older snapshot goes on reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_deletes_many_rows_and_recovery_does() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    filled(&mut session, 100_000).await;
    let before = manifest(directory.path());
    let mut reader = database.session();
    run(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(row(&mut reader, ALL).await, "100000,0,100000,100000");
    run(
        &mut session,
        "INSERT INTO a SELECT v, 1, 'hot' FROM generate_series(100001, 100900) AS s(v)",
    )
    .await;
    run(&mut session, "DELETE FROM a WHERE id = 40001; UPDATE a SET price = 2 WHERE id = 20003")
        .await;
    let fragments_before = fragments(&database).await;
    // Each second row, and then a stretch of rows.
    run(&mut session, "DELETE FROM a WHERE id % 2 = 0 AND id < 60000").await;
    run(&mut session, "BEGIN; UPDATE a SET price = price + 5 WHERE id > 30000 AND id < 90000")
        .await;
    run(&mut session, "DELETE FROM a WHERE id > 60000 AND id < 80000").await;
    run(&mut session, "INSERT INTO a VALUES (70000, 3, 'again'); COMMIT").await;
    assert!(fragments(&database).await >= fragments_before + 3);
    // Row by row, also rows that are only in the delta.
    run(
        &mut session,
        "SET update_placement = host; DELETE FROM a WHERE id > 85000 AND id <= 100450",
    )
    .await;
    run(&mut session, "BEGIN; DELETE FROM a WHERE id < 25000; ROLLBACK").await;
    let twice = refused(&mut session, "INSERT INTO a VALUES (70000, 0, '')").await;
    assert_eq!(twice.sqlstate(), "23505");
    run(&mut session, "INSERT INTO a VALUES (90000, 4, 'again'), (2, 4, 'again')").await;
    assert!(manifest(directory.path()) == before, "all of it is in the log alone");
    assert_eq!(row(&mut reader, ALL).await, "100000,0,100000,100000");
    let gone = "SELECT count(*) FROM a WHERE id IN (4, 40001, 59998, 60001, 79999, 85001, 100450)";
    assert_eq!(row(&mut session, gone).await, "0");
    let some = "SELECT * FROM a WHERE id IN (1, 2, 3, 20003, 60000, 70000, 80000, 85000, 90000, 100451, 100900) \
        ORDER BY id";
    let all = row(&mut session, ALL).await;
    // 30,000 of the first 60,000 rows have died, 19,999 behind them, and 15,450 on the host.
    assert!(all.starts_with("35454,"), "{all}");
    let rows_before = rows(&mut session, some).await;
    assert_eq!(rows_before.len(), 11);
    drop((session, reader, database));
    for _ in 0..2 {
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        assert_eq!(row(&mut session, ALL).await, all);
        assert_eq!(rows(&mut session, some).await, rows_before);
        assert_eq!(row(&mut session, gone).await, "0");
        assert_no_leak(&database);
    }
    checks_out(directory.path()).await;
}

/// Random statements of both kinds, and kills between them, beside a model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_survive_kills() {
    for seed in 0..3 {
        let mut random = SplitMix64::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        filled(&mut session, 24_000).await;
        let mut model: BTreeMap<u64, i64> = (1..=24_000).map(|id| (id, 0)).collect();
        let mut next = 24_001_u64;
        for step in 0..60 {
            let factor = random.below(7) + 2;
            let rest = random.below(factor);
            match random.below(10) {
                0..4 => {
                    let sql =
                        format!("UPDATE a SET price = price + {step} WHERE id % {factor} = {rest}");
                    run(&mut session, &sql).await;
                    let changed = model.iter_mut().filter(|(id, _)| *id % factor == rest);
                    changed.for_each(|(_, price)| *price += step);
                }
                4..6 => {
                    let id = random.below(next);
                    run(&mut session, &format!("UPDATE a SET price = {step} WHERE id = {id}"))
                        .await;
                    model.entry(id).and_modify(|price| *price = step);
                }
                6 => {
                    let id = random.below(next);
                    run(&mut session, &format!("DELETE FROM a WHERE id = {id}")).await;
                    model.remove(&id);
                }
                7 => {
                    for _ in 0..random.below(40) {
                        run(&mut session, &format!("INSERT INTO a VALUES ({next}, {step}, '')"))
                            .await;
                        model.insert(next, step);
                        next += 1;
                    }
                }
                8 if random.below(3) == 0 => drop(run(&mut session, "CHECKPOINT").await),
                // At first more rows than the delta takes, in one commit with others.
                8 if random.below(4) == 0 => {
                    let factor = factor.min(3);
                    let gone = format!("id % {factor} <> {}", rest % factor);
                    let insert = format!("INSERT INTO a VALUES ({next}, {step}, '')");
                    run(
                        &mut session,
                        &format!("BEGIN; {insert}; DELETE FROM a WHERE {gone}; COMMIT"),
                    )
                    .await;
                    model.insert(next, step);
                    next += 1;
                    model.retain(|id, _| id % factor == rest % factor);
                }
                // Flushes the delta.
                8 => drop(run(&mut session, "SET split = h0; SELECT sum(price) FROM a").await),
                _ => {
                    drop((session, database));
                    database = open_forgetful(directory.path()).await;
                    session = database.session();
                    run(&mut session, "SET update_placement = device").await;
                }
            }
            let all = format!("{},{}", model.len(), model.values().sum::<i64>());
            let found = row(&mut session, "SELECT count(*), sum(price) FROM a").await;
            assert_eq!(found, all, "seed {seed}, step {step}");
        }
        let found = rows(&mut session, "SELECT id, price FROM a ORDER BY id").await;
        let expected: Vec<String> =
            model.iter().map(|(id, price)| format!("{id},{price}")).collect();
        assert!(found == expected, "seed {seed}");
        assert_no_leak_soon(&database).await;
        drop((session, database));
        checks_out(directory.path()).await;
    }
}

/// Pages that are large enough for their versions to share chunks.
async fn filled_with_wide_rows(session: &mut Session) {
    let columns = "id int PRIMARY KEY, p int, q int, r int, note text";
    run(session, &format!("CREATE TABLE a ({columns})")).await;
    let rows = "SELECT v, v % 91, v % 89, 0, md5(v::text) || md5((v + 1)::text)";
    run(session, &format!("INSERT INTO a {rows} FROM generate_series(1, 12000) AS s(v)")).await;
    run(session, "SET update_placement = device").await;
}

const SUMS: &str = "SELECT count(*), sum(p), sum(q), sum(r), min(note), max(note) FROM a";

/// A version of a version shares chunks with it, though no commit names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_versions_keep_the_chunks_that_they_share() {
    for in_manifest in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        filled_with_wide_rows(&mut session).await;
        // All of it is cached.
        let before = row(&mut session, SUMS).await;
        assert!(before.starts_with("12000,539605,527519,0,"), "{before}");
        run(&mut session, "BEGIN; UPDATE a SET p = p + 1; UPDATE a SET q = q + 1 WHERE id > 0")
            .await;
        run(&mut session, "SAVEPOINT s; UPDATE a SET p = 0, q = 0, r = 5; ROLLBACK TO s").await;
        run(&mut session, "UPDATE a SET r = 1").await;
        if in_manifest {
            run(&mut session, "CREATE TABLE other (id int)").await;
        }
        run(&mut session, "COMMIT").await;
        let after = before.replace("539605,527519,0", "551605,539519,12000");
        assert_eq!(row(&mut session, SUMS).await, after);
        assert_eq!(fragments(&database).await, 4);
        assert_no_leak(&database);
        // What is free is written again.
        run(&mut session, "CREATE TABLE more AS SELECT * FROM a").await;
        assert_eq!(row(&mut session, SUMS).await, after);
        drop((session, database));
        for turn in 0..2 {
            let database = open_forgetful(directory.path()).await;
            let mut session = database.session();
            run(&mut session, "INSERT INTO more SELECT id, 1, 2, 3, note FROM more LIMIT 3000")
                .await;
            assert_eq!(row(&mut session, SUMS).await, after, "{in_manifest}, {turn}");
            assert_no_leak(&database);
        }
        checks_out(directory.path()).await;
    }
}

/// Random blocks of fragments that change several columns of the same pages, single rows and savepoints between them,
/// and kills between the blocks, beside a model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_blocks_survive_kills() {
    for seed in 0..3 {
        let mut random = SplitMix64::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        filled_with_wide_rows(&mut session).await;
        let mut committed: BTreeMap<u64, [u64; 3]> =
            (1..=12_000).map(|id| (id, [id % 91, id % 89, 0])).collect();
        let mut next = 20_000;
        for _ in 0..12 {
            let level = match random.below(2) {
                0 => "READ COMMITTED",
                _ => "REPEATABLE READ",
            };
            run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let mut model = committed.clone();
            let mut marked = None;
            for step in 0..random.below(6) + 1 {
                let factor = random.below(5) + 1;
                let place = usize::try_from(random.below(3)).unwrap();
                let (rest, name) = (random.below(factor), ["p", "q", "r"][place]);
                match random.below(9) {
                    0..5 => {
                        let sql = format!("UPDATE a SET {name} = {name} + {step}");
                        run(&mut session, &format!("{sql} WHERE id % {factor} = {rest}")).await;
                        let changed = model.iter_mut().filter(|(id, _)| *id % factor == rest);
                        changed.for_each(|(_, row)| row[place] += step);
                    }
                    5 => {
                        let id = random.below(12_000);
                        let sql = format!("UPDATE a SET {name} = {step} WHERE id = {id}");
                        run(&mut session, &sql).await;
                        model.entry(id).and_modify(|row| row[place] = step);
                    }
                    6 => {
                        let sql = format!("INSERT INTO a VALUES ({next}, 1, 2, 3, 'new')");
                        run(&mut session, &sql).await;
                        model.insert(next, [1, 2, 3]);
                        next += 1;
                    }
                    7 => {
                        run(&mut session, "SAVEPOINT s").await;
                        marked = Some(model.clone());
                    }
                    _ => {
                        if let Some(before) = &marked {
                            run(&mut session, "ROLLBACK TO s").await;
                            model.clone_from(before);
                        }
                    }
                }
            }
            match random.below(5) {
                0 => drop(run(&mut session, "ROLLBACK").await),
                _ => {
                    run(&mut session, "COMMIT").await;
                    committed = model;
                }
            }
            if random.below(3) == 0 {
                drop((session, database));
                database = open_forgetful(directory.path()).await;
                session = database.session();
                run(&mut session, "SET update_placement = device").await;
            }
            let found = rows(&mut session, "SELECT id, p, q, r FROM a ORDER BY id").await;
            let line =
                |(id, row): (&u64, &[u64; 3])| format!("{id},{},{},{}", row[0], row[1], row[2]);
            let expected: Vec<String> = committed.iter().map(line).collect();
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!((found.len(), differs), (expected.len(), None), "seed {seed}");
        }
        assert_no_leak_soon(&database).await;
        drop((session, database));
        checks_out(directory.path()).await;
    }
}
