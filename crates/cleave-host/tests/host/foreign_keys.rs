//! Tests of foreign keys with several sessions: waits, failures, and that no row ever refers to a missing one.

use std::sync::Arc;

use cleave_host::{Database, Error, Session};
use cleave_media::SplitMix64;
use datafusion::common::runtime::SpawnedTask;

use crate::support::{
    assert_no_leak, checks_out, fresh, open_forgetful, planned, refused, row, rows, run, waits,
};

async fn family(action: &str) -> (tempfile::TempDir, Arc<Database>, Session, Session) {
    let (directory, database) = fresh().await;
    let mut one = database.session();
    run(&mut one, "CREATE TABLE parent (id int PRIMARY KEY, name text)").await;
    let child =
        format!("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent {action})");
    run(&mut one, &child).await;
    run(&mut one, "INSERT INTO parent VALUES (1, 'one'), (2, 'two')").await;
    let two = database.session();
    (directory, database, one, two)
}

/// Runs `sql` on a task of its own; gives the session back, and its error.
fn beside(mut session: Session, sql: &'static str) -> SpawnedTask<(Session, Option<Error>)> {
    SpawnedTask::spawn(async move {
        let error = session.run(sql).await.err();
        (session, error)
    })
}

const ORPHANS: &str = "SELECT count(*) FROM child AS c WHERE c.parent IS NOT NULL AND NOT EXISTS \
                       (SELECT 1 FROM parent AS p WHERE p.id = c.parent)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_goes_waits_for_one_that_refers_to_it() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (_directory, _database, mut one, mut two) = family("").await;
        run(&mut one, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        run(&mut two, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        run(&mut one, "INSERT INTO child VALUES (1, 1)").await;
        // Changes of other columns do not wait.
        run(&mut two, "SELECT count(*) FROM parent").await;
        let mut task = beside(two, "DELETE FROM parent WHERE id = 1");
        assert!(waits(&mut task).await, "{level}");
        run(&mut one, "COMMIT").await;
        let (mut two, error) = task.await.unwrap();
        let expected = if level == "SERIALIZABLE" { "40001" } else { "23503" };
        assert_eq!(error.unwrap().sqlstate(), expected, "{level}");
        run(&mut two, "ROLLBACK").await;
        assert_eq!(row(&mut two, ORPHANS).await, "0", "{level}");
        assert_eq!(row(&mut two, "SELECT count(*) FROM parent").await, "2", "{level}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_refers_waits_for_one_that_goes() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for (end, expected) in [("COMMIT", Some("23503")), ("ROLLBACK", None)] {
            let (_directory, _database, mut one, mut two) = family("").await;
            run(&mut one, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            run(&mut two, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            run(&mut one, "DELETE FROM parent WHERE id = 1").await;
            run(&mut two, "INSERT INTO child VALUES (2, 2)").await;
            let mut task = beside(two, "INSERT INTO child VALUES (1, 1)");
            assert!(waits(&mut task).await, "{level} {end}");
            run(&mut one, end).await;
            let (mut two, error) = task.await.unwrap();
            // Here the error may be that the two have no serial order.
            let expected =
                expected.map(|known| if level == "SERIALIZABLE" { "40001" } else { known });
            assert_eq!(error.map(|error| error.sqlstate()), expected, "{level} {end}");
            run(&mut two, "COMMIT").await;
            assert_eq!(row(&mut two, ORPHANS).await, "0", "{level} {end}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_see_what_was_committed_since_the_snapshot() {
    let (_directory, _database, mut one, mut two) = family("").await;
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM parent").await;
    run(&mut two, "INSERT INTO parent VALUES (3, 'three')").await;
    run(&mut two, "DELETE FROM parent WHERE id = 2").await;
    run(&mut one, "INSERT INTO child VALUES (1, 3)").await;
    let error = refused(&mut one, "INSERT INTO child VALUES (2, 2)").await;
    assert_eq!(error.sqlstate(), "23503");
    run(&mut one, "ROLLBACK").await;
    // A serializable transaction cannot have seen a row with such a key.
    run(&mut one, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM parent").await;
    run(&mut two, "INSERT INTO parent VALUES (4, 'four')").await;
    let error = refused(&mut one, "INSERT INTO child VALUES (1, 4)").await;
    assert_eq!(error.sqlstate(), "40001");
    run(&mut one, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_waits_for_rows_of_others() {
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        let (_directory, _database, mut one, mut two) = family("ON DELETE CASCADE").await;
        run(&mut one, "INSERT INTO child VALUES (1, 1), (2, 1)").await;
        run(&mut one, "BEGIN; UPDATE child SET parent = 2 WHERE id = 1").await;
        run(&mut two, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let mut task = beside(two, "DELETE FROM parent WHERE id = 1");
        assert!(waits(&mut task).await, "{level}");
        run(&mut one, "COMMIT").await;
        let (mut two, error) = task.await.unwrap();
        match level {
            "READ COMMITTED" => assert!(error.is_none(), "{error:?}"),
            _ => assert_eq!(error.unwrap().sqlstate(), "40001"),
        }
        run(&mut two, "COMMIT").await;
        assert_eq!(row(&mut two, ORPHANS).await, "0", "{level}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_waits_for_writers_of_both_tables() {
    let (_directory, database, mut one, two) = family("").await;
    run(&mut one, "CREATE TABLE later (id int, parent int)").await;
    run(&mut one, "BEGIN; DELETE FROM parent WHERE id = 1").await;
    let mut task = beside(two, "ALTER TABLE later ADD FOREIGN KEY (parent) REFERENCES parent");
    assert!(waits(&mut task).await);
    run(&mut one, "INSERT INTO later VALUES (1, 2); COMMIT").await;
    let (mut two, error) = task.await.unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!(refused(&mut two, "INSERT INTO later VALUES (2, 1)").await.sqlstate(), "23503");
    assert_eq!(refused(&mut one, "DELETE FROM parent").await.sqlstate(), "23503");
    drop(database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_is_there_again_with_its_cause_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let database = open_forgetful(directory.path()).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE parent (id int PRIMARY KEY, name text)").await;
    run(
        &mut session,
        "CREATE TABLE child (id int, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)",
    )
    .await;
    run(&mut session, "CREATE TABLE note (parent int REFERENCES parent ON DELETE SET NULL)").await;
    run(&mut session, "INSERT INTO parent VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')").await;
    run(&mut session, "INSERT INTO child VALUES (10, 1), (20, 2), (30, 3), (40, 4)").await;
    run(&mut session, "INSERT INTO note VALUES (1), (2)").await;
    run(&mut session, "DELETE FROM parent WHERE id = 1").await;
    run(
        &mut session,
        "BEGIN; DELETE FROM parent WHERE id = 2; UPDATE parent SET id = 33 WHERE id = 3; COMMIT",
    )
    .await;
    run(&mut session, "BEGIN; DELETE FROM parent WHERE id = 4").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM child").await, "1");
    drop((session, database));
    for _ in 0..2 {
        let database = open_forgetful(directory.path()).await;
        let mut session = database.session();
        let left = rows(&mut session, "SELECT id, parent FROM child ORDER BY id").await;
        assert_eq!(left, ["30,33", "40,4"]);
        assert_eq!(row(&mut session, "SELECT count(*) FROM note WHERE parent IS NULL").await, "2");
        let error = refused(&mut session, "INSERT INTO child VALUES (1, 1)").await;
        let Error::Violation { table, constraint, detail, .. } = error else { panic!("{error}") };
        assert_eq!((table.as_str(), constraint.as_str()), ("child", "child_parent_fkey"));
        assert_eq!(detail, "Key (parent)=(1) is not present in table \"parent\".");
        assert_no_leak(&database);
    }
    checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_wait_for_each_other_at_commit_one_goes_on() {
    let (_directory, _database, mut one, mut two) = family("DEFERRABLE INITIALLY DEFERRED").await;
    run(&mut one, "BEGIN; DELETE FROM parent WHERE id = 1; INSERT INTO child VALUES (1, 2)").await;
    run(&mut two, "BEGIN; DELETE FROM parent WHERE id = 2; INSERT INTO child VALUES (2, 1)").await;
    let mut task = beside(one, "COMMIT");
    assert!(waits(&mut task).await);
    let second = two.run("COMMIT").await.err();
    let (mut one, first) = task.await.unwrap();
    let failed: Vec<_> = first.iter().chain(&second).map(Error::sqlstate).collect();
    assert_eq!(failed, ["40P01"]);
    assert_eq!(row(&mut one, ORPHANS).await, "0");
    assert_eq!(row(&mut one, "SELECT count(*) FROM child").await, "1");
}

/// A random action of one of several sessions; conflicts and violations are expected.
async fn work(database: Arc<Database>, seed: u64) -> usize {
    let mut random = SplitMix64::new(seed);
    let mut session = database.session();
    let levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    let mut done = 0;
    for _ in 0..40 {
        let is_block = random.below(2) == 0;
        if is_block {
            let level = levels[usize::try_from(random.below(3)).unwrap()];
            run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        }
        for _ in 0..=random.below(3) {
            let (id, key) = (random.below(200), random.below(8));
            let other = random.below(8);
            let sql = match random.below(8) {
                0 | 1 => format!("INSERT INTO parent VALUES ({key}, 'p') ON CONFLICT DO NOTHING"),
                2 => format!(
                    "INSERT INTO child VALUES ({id}, {key}) ON CONFLICT (id) DO UPDATE SET parent = {other}"
                ),
                3 => format!(
                    "INSERT INTO child SELECT {id} + i, {key} FROM generate_series(1, 3) AS g (i)"
                ),
                4 => format!("UPDATE child SET parent = {other} WHERE parent = {key}"),
                5 => format!("DELETE FROM parent WHERE id = {key}"),
                6 => format!("UPDATE parent SET id = {other} WHERE id = {key}"),
                _ => format!("DELETE FROM child WHERE id > {id}"),
            };
            match session.run(&sql).await {
                Ok(_) => done += 1,
                Err(error) => {
                    let known = ["23503", "23505", "40001", "40P01"];
                    assert!(known.contains(&error.sqlstate()), "{sql}: {error}");
                    if is_block {
                        break;
                    }
                }
            }
        }
        if is_block {
            let end = if random.below(4) == 0 { "ROLLBACK" } else { "COMMIT" };
            // Deferred keys are locked here, so two may wait for each other.
            if let Err(error) = session.run(end).await {
                let known = ["23503", "40001", "40P01"];
                assert!(known.contains(&error.sqlstate()), "{end}: {error}");
            }
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_ever_refers_to_nothing() {
    for (seed, action) in [
        (1, "ON DELETE CASCADE ON UPDATE CASCADE"),
        (2, "ON DELETE SET NULL ON UPDATE NO ACTION"),
        (3, "DEFERRABLE INITIALLY DEFERRED"),
        (4, "ON DELETE CASCADE ON UPDATE CASCADE"),
        (5, "ON DELETE SET NULL ON UPDATE CASCADE"),
    ] {
        let (_directory, database, mut one, _two) = family(action).await;
        // With an index the actions need no plan.
        if seed > 3 {
            run(&mut one, "CREATE INDEX ON child (parent)").await;
        }
        let sessions = (0..4).map(|place| {
            let database = Arc::clone(&database);
            SpawnedTask::spawn(work(database, seed * 16 + place))
        });
        let sessions: Vec<_> = sessions.collect();
        let mut done = 0;
        for session in sessions {
            done += session.await.unwrap();
        }
        assert!(done > 40, "{action}: {done}");
        assert_eq!(row(&mut one, ORPHANS).await, "0", "{action}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_of_few_rows_needs_no_plan() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE house (id int PRIMARY KEY);
         CREATE TABLE flat (house int REFERENCES house ON DELETE CASCADE ON UPDATE CASCADE, n smallint, PRIMARY KEY \
            (house, n));
         CREATE TABLE guest (id bigint PRIMARY KEY, house bigint DEFAULT 9, n int DEFAULT 8, visits int REFERENCES \
            house ON DELETE SET NULL ON UPDATE CASCADE,
             FOREIGN KEY (house, n) REFERENCES flat ON DELETE SET DEFAULT ON UPDATE CASCADE);
         CREATE INDEX ON guest (house, n); CREATE INDEX ON guest (visits);
         INSERT INTO house SELECT i FROM generate_series(1, 9) AS s(i);
         INSERT INTO flat SELECT h, n FROM generate_series(1, 9) AS h(h), generate_series(1, 8) AS n(n);
         INSERT INTO guest SELECT i, 1 + i % 8, 1 + i % 7, 1 + i % 6 FROM generate_series(1, 60) AS s(i)",
    )
    .await;
    // Rows in the delta are found as well.
    run(&mut session, "INSERT INTO guest VALUES (100, 1, 1, 7), (101, NULL, NULL, 7)").await;
    let planned = || planned(&database);
    let before = planned();
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        run(&mut session, &format!("SET default_transaction_isolation = '{level}'")).await;
        for sql in [
            "DELETE FROM house WHERE id = 7",
            "UPDATE house SET id = 77 WHERE id = 1",
            "DELETE FROM flat WHERE house = 2 AND n IN (1, 2, 3)",
            "DELETE FROM house WHERE id IN (3, 4)",
            "UPDATE house SET id = 1 WHERE id = 77",
            "INSERT INTO house VALUES (7), (3), (4)",
        ] {
            run(&mut session, sql).await;
            assert_eq!(planned().0, before.0, "{sql} {level}");
        }
        // For a snapshot the delta is flushed.
        if level == "READ COMMITTED" {
            assert_eq!(planned(), before);
        }
        let found = "SELECT id, house, n, visits FROM guest WHERE id IN (6, 2, 9, 18, 100, 101) ORDER BY id";
        let expected = [
            "2,9,8,NULL",
            "6,9,8,1",
            "9,9,8,NULL",
            "18,9,8,1",
            "100,1,1,NULL",
            "101,NULL,NULL,NULL",
        ];
        assert_eq!(rows(&mut session, found).await, expected, "{level}");
        run(&mut session, "DELETE FROM house WHERE id IN (7, 3, 4)").await;
        run(&mut session, "INSERT INTO house VALUES (7), (3), (4)").await;
        assert_eq!(planned().0, before.0, "{level}");
    }
    run(&mut session, "RESET default_transaction_isolation").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM flat").await, "45");
    // The same by plans.
    run(&mut session, "SET look_up_rows = 0; DELETE FROM house WHERE id = 1; RESET look_up_rows")
        .await;
    assert_eq!(row(&mut session, "SELECT house FROM guest WHERE id = 100").await, "9");
    // A key that is moved onto one that moves as well.
    run(&mut session, "UPDATE house SET id = id + 1 WHERE id IN (8, 9)").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM flat WHERE house = 10").await, "8");
    assert_eq!(row(&mut session, "SELECT house FROM guest WHERE id = 100").await, "10");
}
