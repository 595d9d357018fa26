//! Tests of what a name stands for in a statement: attacks by snapshots, by the past, by reused names, and by hiding
//! names. Bob may read `pub` and nothing else; alice owns `hers`; the owner is a superuser.

use std::sync::Arc;
use std::time::Duration;

use cleave_host::{Database, Session};
use datafusion::common::runtime::SpawnedTask;

use crate::support::{answer, batches, fresh, numbered, refused, row, rows, run};

/// Twice a tick of a retention of 100 seconds.
const TICKS: Duration = Duration::from_millis(250);

async fn as_user(database: &Arc<Database>, user: &str) -> Session {
    let mut session = database.session();
    session.log_in(user).unwrap();
    session
}

/// A database with a table that bob may read and one that he may not.
async fn guarded() -> (tempfile::TempDir, Arc<Database>, Session, Session) {
    let (directory, database) = fresh().await;
    let mut owner = database.session();
    run(
        &mut owner,
        "ALTER SYSTEM SET version_retention = 100;
         CREATE TABLE pub (id int PRIMARY KEY, note text); INSERT INTO pub VALUES (1, 'open');
         CREATE TABLE secret (id int PRIMARY KEY, note text); INSERT INTO secret VALUES (1, 'hidden');
         CREATE SEQUENCE numbers START 500; CREATE SEQUENCE open_numbers;
         CREATE ROLE bob LOGIN; CREATE ROLE alice LOGIN;
         GRANT CREATE ON SCHEMA public TO bob, alice;
         GRANT SELECT ON pub TO bob; GRANT USAGE ON SEQUENCE open_numbers TO bob",
    )
    .await;
    let bob = as_user(&database, "bob").await;
    (directory, database, owner, bob)
}

async fn denied(session: &mut Session, sql: &str) {
    let error = refused(session, sql).await;
    assert_eq!(error.sqlstate(), "42501", "{sql}: {error}");
}

/// A time after everything that was done.
async fn moment(session: &mut Session) -> String {
    tokio::time::sleep(TICKS).await;
    row(session, "SELECT now()").await
}

/// Every way to read the table that is called `name` where the session looks.
fn ways(name: &str) -> Vec<String> {
    [
        "SELECT * FROM {}",
        "SELECT note FROM {} WHERE id = 1",
        "SELECT note FROM {} WHERE id > 0 ORDER BY id LIMIT 1",
        "SELECT note FROM public.{} WHERE id = 1",
        "SELECT note FROM pub WHERE id = (SELECT max(id) FROM {})",
        "SELECT count(*) FROM {}",
        "TABLE {}",
        "SELECT p.note, s.note FROM pub p JOIN {} s ON p.id = s.id",
        "WITH w AS (SELECT * FROM {}) SELECT * FROM w",
        "EXPLAIN SELECT * FROM {}",
        "EXPLAIN ANALYZE SELECT note FROM {} WHERE id = 1",
        "COPY {} TO STDOUT",
        "COPY (SELECT * FROM {}) TO STDOUT",
        "DECLARE c CURSOR FOR SELECT * FROM {}",
        "CREATE TEMP TABLE taken AS SELECT * FROM {}",
        "INSERT INTO own SELECT id + 10, note FROM {}",
        "UPDATE own SET note = (SELECT max(note) FROM {})",
        "UPDATE own SET note = s.note FROM {} s",
        "DELETE FROM own USING {} s WHERE own.id = s.id",
        "DELETE FROM own WHERE id IN (SELECT id FROM {})",
        "SELECT * FROM {} FOR UPDATE",
        "LOCK TABLE {} IN ACCESS SHARE MODE",
    ]
    .map(|way| way.replace("{}", name))
    .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_gives_no_rights_on_what_is_gone_or_renamed() {
    for change in ["DROP TABLE secret", "ALTER TABLE secret RENAME TO safe"] {
        let (_directory, _database, mut owner, mut bob) = guarded().await;
        run(&mut bob, "CREATE TEMP TABLE own (id int PRIMARY KEY, note text)").await;
        run(&mut bob, "INSERT INTO own VALUES (1, 'x')").await;
        run(&mut bob, "PREPARE p AS SELECT * FROM secret").await;
        run(&mut bob, "PREPARE k (int) AS SELECT note FROM secret WHERE id = $1").await;
        run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM pub").await;
        run(&mut owner, change).await;
        let mut ways = ways("secret");
        ways.extend(["EXECUTE p", "EXECUTE k (1)", "EXPLAIN EXECUTE p"].map(str::to_owned));
        for way in ways {
            run(&mut bob, "SAVEPOINT s").await;
            denied(&mut bob, &way).await;
            run(&mut bob, "ROLLBACK TO s").await;
            assert_eq!(row(&mut bob, "SELECT note FROM pub").await, "open", "{way}");
        }
        run(&mut bob, "ROLLBACK").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_gives_no_rights_either() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut bob, "CREATE TEMP TABLE own (id int PRIMARY KEY, note text)").await;
    run(&mut owner, "GRANT SELECT ON pub TO alice; CREATE VIEW shown AS SELECT * FROM secret")
        .await;
    let then = moment(&mut owner).await;
    // Bob's table is renamed, and the one that he may not read has its name.
    run(
        &mut owner,
        "DROP VIEW shown; ALTER TABLE pub RENAME TO free; ALTER TABLE secret RENAME TO pub",
    )
    .await;
    run(&mut bob, &format!("SET as_of = '{then}'")).await;
    for _ in 0..3 {
        assert_eq!(row(&mut bob, "SELECT note FROM pub WHERE id = 1").await, "open");
        assert_eq!(row(&mut bob, "SELECT note FROM pub WHERE id > 0 LIMIT 1").await, "open");
        assert_eq!(row(&mut bob, "SELECT max(note) FROM pub").await, "open");
    }
    let reads = |way: &String| !way.starts_with("INSERT") && !way.starts_with("UPDATE");
    for way in ways("secret").iter().filter(|way| reads(way)) {
        run(&mut bob, "BEGIN").await;
        denied(&mut bob, way).await;
        run(&mut bob, "ROLLBACK").await;
    }
    denied(&mut bob, "SELECT * FROM shown").await;
    run(&mut bob, "RESET as_of").await;
    for _ in 0..3 {
        denied(&mut bob, "SELECT note FROM pub WHERE id = 1").await;
        assert_eq!(row(&mut bob, "SELECT note FROM free WHERE id = 1").await, "open");
    }
    // A revoked privilege is revoked for the past, too.
    run(&mut owner, "REVOKE SELECT ON free FROM bob").await;
    run(&mut bob, &format!("SET as_of = '{then}'")).await;
    denied(&mut bob, "SELECT note FROM pub WHERE id = 1").await;
    // And a superuser reads it all.
    run(&mut owner, &format!("SET as_of = '{then}'")).await;
    assert_eq!(row(&mut owner, "SELECT note FROM shown").await, "hidden");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_table_of_the_same_name_has_rights_of_its_own() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut bob, "PREPARE p AS SELECT note FROM pub").await;
    run(&mut bob, "PREPARE k (int) AS SELECT note FROM pub WHERE id = $1").await;
    run(&mut bob, "PREPARE n AS SELECT nextval('open_numbers')").await;
    for _ in 0..3 {
        assert_eq!(row(&mut bob, "EXECUTE p").await, "open");
        assert_eq!(row(&mut bob, "EXECUTE k (1)").await, "open");
        run(&mut bob, "EXECUTE n").await;
    }
    assert_eq!(row(&mut bob, "SELECT note FROM pub WHERE id = 1").await, "open");
    run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM pub").await;
    run(
        &mut owner,
        "BEGIN; ALTER TABLE pub RENAME TO free; ALTER TABLE secret RENAME TO pub;
         DROP SEQUENCE open_numbers; CREATE SEQUENCE open_numbers START 900; COMMIT",
    )
    .await;
    // In his snapshot the name still stands for the table that lost it since.
    assert_eq!(row(&mut bob, "SELECT note FROM pub WHERE id = 1").await, "open");
    assert_eq!(row(&mut bob, "EXECUTE k (1)").await, "open");
    denied(&mut bob, "SELECT * FROM secret").await;
    run(&mut bob, "ROLLBACK").await;
    for sql in [
        "EXECUTE p",
        "EXECUTE k (1)",
        "EXECUTE n",
        "SELECT note FROM pub WHERE id = 1",
        "TABLE pub",
    ] {
        denied(&mut bob, sql).await;
    }
    assert_eq!(row(&mut bob, "SELECT note FROM free").await, "open");
    assert_eq!(row(&mut owner, "SELECT nextval('open_numbers')").await, "900");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changed_is_what_has_the_name_now() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "GRANT ALL ON pub TO bob").await;
    run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM pub").await;
    run(
        &mut owner,
        "BEGIN; ALTER TABLE pub RENAME TO free; ALTER TABLE secret RENAME TO pub; COMMIT",
    )
    .await;
    for sql in [
        "INSERT INTO pub VALUES (7, 'x')",
        "UPDATE pub SET note = 'x'",
        "UPDATE pub SET note = 'x' WHERE id = 1",
        "DELETE FROM pub WHERE id = 1",
        "DELETE FROM pub",
        "TRUNCATE pub",
        "LOCK TABLE pub",
        "COPY pub FROM STDIN",
        "SELECT * FROM pub WHERE id = 1 FOR UPDATE",
    ] {
        run(&mut bob, "SAVEPOINT s").await;
        denied(&mut bob, sql).await;
        run(&mut bob, "ROLLBACK TO s").await;
    }
    run(&mut bob, "ROLLBACK").await;
    assert_eq!(answer(&mut owner, "SELECT * FROM pub").await, ["1,hidden"]);
    let loaded = bob.load("pub", batches(vec![numbered(5..9)]), None).await;
    assert_eq!(loaded.unwrap_err().sqlstate(), "42501");
    assert_eq!(bob.load("free", batches(vec![numbered(5..9)]), None).await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_lock_is_asked_about_what_has_the_name_then() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "GRANT ALL ON pub TO bob").await;
    for sql in [
        "INSERT INTO pub VALUES (7, 'x')",
        "UPDATE pub SET note = 'x' WHERE id = 1",
        "DELETE FROM pub WHERE note = 'hidden'",
        "TRUNCATE pub",
        "SELECT * FROM pub FOR UPDATE",
        "SELECT note FROM pub WHERE id = 1",
        "SELECT max(note) FROM pub",
    ] {
        run(&mut owner, "BEGIN; LOCK TABLE pub; LOCK TABLE secret").await;
        let waits = SpawnedTask::spawn(async move {
            let outcome = bob.run(sql).await;
            (bob, outcome)
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        run(&mut owner, "ALTER TABLE pub RENAME TO free; ALTER TABLE secret RENAME TO pub; COMMIT")
            .await;
        let (session, outcome) = waits.join().await.unwrap();
        bob = session;
        let error = outcome.expect_err(sql);
        assert_eq!(error.sqlstate(), "42501", "{sql}: {error}");
        assert_eq!(row(&mut owner, "SELECT note FROM pub").await, "hidden", "{sql}");
        run(&mut owner, "ALTER TABLE pub RENAME TO secret; ALTER TABLE free RENAME TO pub").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_hides_another_is_not_read_as_the_owner_of_a_view() {
    for maker in ["owner", "alice"] {
        let (_directory, database, mut owner, mut bob) = guarded().await;
        run(&mut owner, "GRANT ALL ON pub TO alice WITH GRANT OPTION").await;
        if maker == "alice" {
            run(&mut owner, "ALTER TABLE secret OWNER TO alice").await;
            let mut alice = as_user(&database, "alice").await;
            run(&mut alice, "CREATE VIEW v AS SELECT * FROM pub; GRANT SELECT ON v TO bob").await;
        } else {
            run(&mut owner, "CREATE VIEW v AS SELECT * FROM pub; GRANT SELECT ON v TO bob").await;
        }
        assert_eq!(row(&mut bob, "SELECT note FROM v").await, "open");
        run(&mut bob, "CREATE TEMP VIEW pub AS SELECT * FROM secret").await;
        for _ in 0..3 {
            assert_eq!(row(&mut bob, "SELECT note FROM v").await, "open", "{maker}");
            denied(&mut bob, "SELECT note FROM pub").await;
        }
        run(&mut bob, "DROP VIEW pub; CREATE TEMP TABLE pub (id int, note text)").await;
        run(&mut bob, "INSERT INTO pub VALUES (9, 'own')").await;
        for _ in 0..3 {
            assert_eq!(row(&mut bob, "SELECT note FROM v").await, "open", "{maker}");
            assert_eq!(row(&mut bob, "SELECT note FROM pub").await, "own");
        }
        // Also where its columns are others, and the view names none.
        run(&mut bob, "DROP TABLE pub; CREATE TEMP TABLE pub (other text)").await;
        assert_eq!(answer(&mut bob, "SELECT * FROM v").await, ["1,open"], "{maker}");
        run(&mut bob, "DROP TABLE pub; CREATE TEMP TABLE pub (id int, note text)").await;
        run(&mut bob, "INSERT INTO pub VALUES (9, 'own')").await;
        // One of his own is made of what he sees.
        run(&mut bob, "CREATE TEMP VIEW w AS SELECT pub.note, v.note AS other FROM pub, v").await;
        assert_eq!(answer(&mut bob, "SELECT * FROM w").await, ["own,open"]);
        run(&mut bob, "DROP VIEW w; DROP TABLE pub").await;
        assert_eq!(row(&mut bob, "SELECT note FROM v").await, "open");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_in_a_snapshot_are_asked_with_the_rights_of_now() {
    let (_directory, database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "GRANT SELECT ON secret TO alice").await;
    let mut alice = as_user(&database, "alice").await;
    run(&mut alice, "CREATE VIEW v AS SELECT note FROM secret; GRANT SELECT ON v TO bob").await;
    assert_eq!(row(&mut bob, "SELECT * FROM v").await, "hidden");
    run(&mut bob, "PREPARE p AS SELECT * FROM v; BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE v")
        .await;
    run(&mut owner, "REVOKE SELECT ON secret FROM alice").await;
    for sql in ["SELECT * FROM v", "EXECUTE p", "DECLARE c CURSOR FOR SELECT * FROM v"] {
        run(&mut bob, "SAVEPOINT s").await;
        denied(&mut bob, sql).await;
        run(&mut bob, "ROLLBACK TO s").await;
    }
    run(&mut bob, "ROLLBACK").await;
    run(&mut owner, "GRANT SELECT ON secret TO alice").await;
    run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE v").await;
    run(&mut alice, "DROP VIEW v").await;
    denied(&mut bob, "SELECT * FROM v").await;
    run(&mut bob, "ROLLBACK").await;
    // Another one under the same id reads more.
    run(&mut alice, "CREATE VIEW v AS SELECT note FROM pub").await;
    run(&mut owner, "GRANT SELECT ON pub TO alice; REVOKE SELECT ON secret FROM alice").await;
    run(&mut alice, "GRANT SELECT ON v TO bob").await;
    run(&mut bob, "PREPARE q AS SELECT * FROM v").await;
    assert_eq!(row(&mut bob, "EXECUTE q").await, "open");
    run(&mut alice, "CREATE OR REPLACE VIEW v AS SELECT note FROM secret").await;
    denied(&mut bob, "EXECUTE q").await;
    denied(&mut bob, "SELECT * FROM v").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_block_has_made_is_its_roles() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM pub").await;
    run(&mut bob, "CREATE TABLE mine (id serial PRIMARY KEY, note text)").await;
    run(&mut bob, "INSERT INTO mine (note) VALUES ('m'); CREATE VIEW of_mine AS TABLE mine").await;
    run(&mut bob, "CREATE SEQUENCE my_numbers; SELECT nextval('my_numbers')").await;
    assert_eq!(answer(&mut bob, "SELECT note FROM of_mine").await, ["m"]);
    assert_eq!(
        row(&mut bob, "SELECT reltuples >= 0 FROM pg_class WHERE relname = 'mine'").await,
        "t"
    );
    run(&mut bob, "COMMIT").await;
    run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE mine").await;
    run(&mut owner, "ALTER TABLE mine OWNER TO alice").await;
    denied(&mut bob, "SELECT * FROM mine").await;
    run(&mut bob, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_plans_use_for_themselves_are_nobodys() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "CREATE TABLE blind (id int, note text); INSERT INTO blind VALUES (1, 'b')")
        .await;
    run(&mut owner, "GRANT INSERT, UPDATE, DELETE ON blind TO bob").await;
    for sql in [
        "SELECT * FROM \"\u{1}target\u{1}0\u{1}secret\"",
        "SELECT * FROM public.\"\u{1}target\u{1}0\u{1}secret\"",
        "UPDATE blind SET note = (SELECT max(note) FROM \"\u{1}target\")",
        "TABLE \"\u{1}target\u{1}0\u{1}secret\"",
    ] {
        let error = refused(&mut bob, sql).await;
        assert_eq!(error.sqlstate(), "42601", "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_may_be_written_in_any_way() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "CREATE TABLE \"Mixed\" (id int); INSERT INTO \"Mixed\" VALUES (1)").await;
    run(&mut owner, "GRANT SELECT (id) ON secret TO bob").await;
    for sql in [
        "SELECT note FROM SECRET",
        "SELECT note FROM \"secret\"",
        "SELECT note FROM Public.\"secret\"",
        "SELECT note FROM cleave.public.secret",
        "SELECT * FROM \"cleave\".\"public\".\"secret\"",
        "SELECT s FROM secret s",
        "SELECT secret FROM secret",
        "SELECT s.* FROM secret s",
        "SELECT row_to_json(s) FROM secret s",
        "SELECT id FROM secret ORDER BY note",
        "SELECT id FROM secret s (a, b) WHERE b = 'hidden'",
        "SELECT a FROM secret s (id, a)",
        "SELECT id FROM secret WHERE \"note\" = 'hidden'",
        "SELECT id FROM secret NATURAL JOIN pub",
        "SELECT id FROM secret JOIN pub USING (id, note)",
        "SELECT * FROM \"Mixed\"",
        "SELECT 1 FROM pub, LATERAL (SELECT note FROM secret) l",
        "(SELECT id FROM pub) UNION (SELECT length(note) FROM secret)",
        "VALUES ((SELECT note FROM secret))",
        "SELECT EXISTS (SELECT 1 FROM secret WHERE note = 'hidden')",
        "SELECT CASE WHEN (SELECT note FROM secret) = 'hidden' THEN 1 END",
        "WITH secret AS (TABLE secret) SELECT note FROM secret",
        "SELECT id FROM pub ORDER BY (SELECT note FROM secret)",
        "SELECT id FROM pub LIMIT (SELECT length(note) FROM secret)",
        "SELECT id FROM pub GROUP BY id HAVING max(id) < (SELECT length(note) FROM secret)",
        "SELECT sum(id) OVER (ORDER BY (SELECT note FROM secret)) FROM pub",
    ] {
        let error = refused(&mut bob, sql).await;
        let codes = ["42501", "0A000", "42601", "42703", "42883"];
        assert!(codes.contains(&error.sqlstate()), "{sql}: {error}");
    }
    assert_eq!(rows(&mut bob, "SELECT id FROM secret").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_others_sequences_are_not_to_be_had() {
    let (_directory, database, mut owner, mut bob) = guarded().await;
    let number = row(&mut owner, "SELECT 'numbers'::regclass::oid").await;
    run(&mut owner, "CREATE VIEW v AS SELECT nextval('numbers') AS n; GRANT SELECT ON v TO bob")
        .await;
    let mut alice = as_user(&database, "alice").await;
    run(&mut owner, "GRANT USAGE ON SEQUENCE numbers TO alice").await;
    run(&mut alice, "CREATE VIEW w AS SELECT nextval('numbers') AS n; GRANT SELECT ON w TO bob")
        .await;
    run(&mut alice, "CREATE TABLE hers (id serial, note text); GRANT SELECT ON hers TO bob").await;
    run(
        &mut bob,
        "CREATE TABLE own (id int DEFAULT nextval('numbers'), note text);
         CREATE TEMP TABLE passing (id int DEFAULT nextval('numbers'), note text);
         CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1);
         CREATE TABLE child (id int DEFAULT nextval('numbers') REFERENCES parent ON DELETE SET DEFAULT);
         INSERT INTO child VALUES (1);
         PREPARE p (int) AS SELECT $1; PREPARE d AS INSERT INTO own (note) VALUES ('x');
         INSERT INTO own VALUES (1, 'given')",
    )
    .await;
    let numbered = [
        format!("SELECT nextval('{number}')"),
        format!("SELECT nextval({number})"),
        format!("SELECT nextval('{number}'::regclass)"),
    ];
    let others = [
        "SELECT nextval('numbers')",
        "SELECT nextval('public.numbers')",
        "SELECT nextval('NUMBERS'::regclass)",
        "SELECT pg_catalog.nextval('numbers')",
        "SELECT nextval(lower('NUMBERS'))",
        "SELECT nextval(reverse('srebmun'))",
        "SELECT nextval(replace('open_numbers', 'open_', ''))",
        "SELECT nextval('numbers_of_mine'::varchar(7))",
        "SELECT nextval(CAST('numbersxyz' AS char(7)))",
        "SELECT nextval(n) FROM (VALUES ('numbers')) t (n)",
        "SELECT nextval((SELECT 'numbers'))",
        "SELECT setval('numbers', 1)",
        "SELECT * FROM v",
        "SELECT * FROM w",
        "EXECUTE p (nextval('numbers'))",
        "INSERT INTO own (note) VALUES ('x')",
        "INSERT INTO own DEFAULT VALUES",
        "INSERT INTO own VALUES (DEFAULT, 'x')",
        "INSERT INTO own (note) SELECT note FROM pub",
        "INSERT INTO own VALUES (1, 'x'), (DEFAULT, 'y')",
        "INSERT INTO passing (note) VALUES ('x')",
        "UPDATE own SET id = DEFAULT",
        "UPDATE own SET id = nextval('numbers')",
        "EXECUTE d",
        "ALTER TABLE own ADD COLUMN more int DEFAULT nextval('numbers')",
        "DELETE FROM parent WHERE id = 1",
        "INSERT INTO own (id) VALUES (nextval('numbers'))",
        "DELETE FROM own WHERE id = nextval('numbers')",
        "ALTER SEQUENCE numbers OWNED BY own.id",
        "CREATE SEQUENCE hook OWNED BY hers.id",
    ];
    for sql in numbered.iter().map(String::as_str).chain(others) {
        denied(&mut bob, sql).await;
    }
    let loaded = bob.load("own", batches(vec![numbered_notes()]), None).await;
    assert_eq!(loaded.unwrap_err().sqlstate(), "42501");
    // None was taken.
    assert_eq!(row(&mut owner, "SELECT nextval('numbers')").await, "500");
    // Bob draws from a sequence that he may use, and from one that belongs to a column that he may write.
    run(&mut bob, "SELECT nextval('open_numbers'), nextval('public.open_numbers'::regclass)").await;
    run(&mut bob, "ALTER TABLE own ALTER COLUMN id SET DEFAULT nextval('open_numbers')").await;
    run(&mut bob, "INSERT INTO own (note) VALUES ('x'); UPDATE own SET id = DEFAULT").await;
    run(&mut alice, "GRANT INSERT ON hers TO bob").await;
    run(&mut bob, "INSERT INTO hers (note) VALUES ('x'); INSERT INTO hers VALUES (DEFAULT, 'y')")
        .await;
    run(&mut bob, "ALTER TABLE own ADD COLUMN more serial").await;
    // A column of his own with the same number draws only from his own sequence.
    run(&mut bob, "CREATE TABLE like_hers (id int DEFAULT nextval('hers_id_seq'), note text)")
        .await;
    denied(&mut bob, "INSERT INTO like_hers (note) VALUES ('x')").await;
    // Functions in a view are called by its reader.
    run(&mut owner, "GRANT USAGE ON SEQUENCE numbers TO bob").await;
    assert_eq!(row(&mut bob, "SELECT * FROM w").await, "501");
    assert_eq!(row(&mut bob, "SELECT * FROM v").await, "502");
    run(&mut bob, "DELETE FROM parent WHERE FALSE; INSERT INTO parent VALUES (503)").await;
    run(&mut bob, "DELETE FROM parent WHERE id = 1").await;
    assert_eq!(row(&mut bob, "SELECT id FROM child").await, "503");
}

/// Rows of `own` without their ids.
fn numbered_notes() -> arrow::array::RecordBatch {
    let rows = numbered(0..3);
    rows.project(&[1]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_others_are_not_counted() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "ANALYZE; SELECT nextval('numbers'), nextval('open_numbers')").await;
    run(&mut bob, "CREATE TEMP TABLE own (id int); INSERT INTO own VALUES (1), (2), (3)").await;
    let tables = answer(&mut bob, "SHOW TABLES").await;
    assert_eq!(tables, ["own,3", "pub,1", "secret,NULL"]);
    let count = "SELECT relname, reltuples FROM pg_class WHERE relkind = 'r' AND relnamespace = \
                 'public'::regnamespace ORDER BY 1";
    assert_eq!(answer(&mut bob, count).await, ["own,3", "pub,1", "secret,-1"]);
    let statistics = "SELECT relname, n_live_tup FROM pg_stat_user_tables ORDER BY 1";
    assert_eq!(answer(&mut bob, statistics).await, ["own,3", "pub,1", "secret,NULL"]);
    let given = "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1";
    assert_eq!(answer(&mut bob, given).await, ["numbers,NULL", "open_numbers,1"]);
    assert_eq!(answer(&mut owner, "SHOW TABLES").await, ["pub,1", "secret,1"]);
    assert_eq!(answer(&mut owner, given).await, ["numbers,500", "open_numbers,1"]);
    for sql in ["SHOW STATISTICS FOR secret", "SHOW STATISTICS", "ANALYZE secret", "VACUUM secret"]
    {
        let error = refused(&mut bob, sql).await;
        assert!(["42501", "42601"].contains(&error.sqlstate()), "{sql}: {error}");
    }
    run(&mut owner, "GRANT SELECT (id) ON secret TO bob").await;
    assert_eq!(answer(&mut bob, "SHOW TABLES").await, ["own,3", "pub,1", "secret,1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_a_superuser_is_none_in_the_past() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "ALTER ROLE bob SUPERUSER").await;
    assert_eq!(row(&mut bob, "SELECT note FROM secret").await, "hidden");
    let then = moment(&mut owner).await;
    run(&mut bob, "BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE secret").await;
    run(&mut owner, "ALTER ROLE bob NOSUPERUSER").await;
    for sql in ["TABLE secret", "SELECT rolpassword FROM pg_authid", "TABLE cleave.queries"] {
        run(&mut bob, "SAVEPOINT s").await;
        denied(&mut bob, sql).await;
        run(&mut bob, "ROLLBACK TO s").await;
    }
    run(&mut bob, "ROLLBACK").await;
    run(&mut bob, &format!("SET as_of = '{then}'")).await;
    denied(&mut bob, "SELECT note FROM secret WHERE id = 1").await;
    denied(&mut bob, "TABLE cleave.activity").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_begin_anew_for_their_owners_alone() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(&mut owner, "CREATE TABLE counted (id serial, n int); INSERT INTO counted (n) VALUES (1)")
        .await;
    run(&mut owner, "GRANT TRUNCATE ON counted TO bob").await;
    denied(&mut bob, "TRUNCATE counted RESTART IDENTITY").await;
    run(&mut bob, "TRUNCATE counted").await;
    run(&mut owner, "INSERT INTO counted (n) VALUES (2)").await;
    assert_eq!(row(&mut owner, "SELECT id FROM counted").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_show_no_row_that_may_not_be_read() {
    let (_directory, _database, mut owner, mut bob) = guarded().await;
    run(
        &mut owner,
        "CREATE TABLE checked (id int PRIMARY KEY, n int CHECK (n > 0), note text);
         INSERT INTO checked VALUES (77, 1, 'hidden');
         CREATE TABLE child (id int REFERENCES checked); INSERT INTO child VALUES (77);
         GRANT UPDATE (n), DELETE ON checked TO bob",
    )
    .await;
    for sql in ["UPDATE checked SET n = -1", "DELETE FROM checked"] {
        let error = refused(&mut bob, sql).await;
        assert!(["23514", "23503"].contains(&error.sqlstate()), "{sql}: {error}");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("77") && !told.contains("hidden"), "{told}");
        let told = format!("{:?}", refused(&mut owner, sql).await);
        assert!(told.contains("77"), "{told}");
    }
    run(&mut owner, "GRANT SELECT ON checked, child TO bob").await;
    assert!(format!("{:?}", refused(&mut bob, "DELETE FROM checked").await).contains("77"));
}
