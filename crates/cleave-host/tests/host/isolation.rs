//! Tests of the known anomalies, one script per case (`tests/data/isolation`): steps of several sessions, and the
//! result of each at each level, as in PostgreSQL. Every script runs over each kind of device, with reads forced to the
//! host and to the device.
//!
//! ```text
//!  # what the case is
//!  setup CREATE TABLE …
//!  cleave b: SET update_placement = device  a setting of b that PostgreSQL lacks; `postgresql b: …`: that Cleave lacks
//!  a: BEGIN | ok
//!  a: SELECT … | rows everywhere            or: | READ COMMITTED | REPEATABLE READ | SERIALIZABLE
//!  b: UPDATE … | waits
//!  a: COMMIT | ok; b 40001                  b, which has waited, ends with this step
//! ```
//!
//! Rows are separated by blanks, and their values by commas. In scripts with settings of Cleave update fragments run.
//! `CLEAVE_ISOLATION=bulk` runs the scripts whose names begin so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleave_host::activity::Act;
use cleave_host::value::value_text;
use cleave_host::{Database, Outcome, Session};
use datafusion::common::runtime::SpawnedTask;

use crate::index_filter::attached;
use crate::support::{assert_no_leak, refused, row, run};

pub(crate) const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// How statements read, as settings.
pub(crate) const ON_THE_HOST: [&str; 2] = ["split = host", "index_scan = on"];
pub(crate) const ON_THE_DEVICE: [&str; 4] =
    ["split = ndp", "ndp = on", "index_scan = off", "stealing = off"];
const LEAVES_ON_THE_DEVICE: [&str; 3] = ["split = h0", "index_scan = on", "stealing = off"];

/// Longer than any step that does not wait.
const PATIENCE: Duration = Duration::from_secs(120);

struct Script {
    name: String,
    /// By session.
    settings: BTreeMap<String, String>,
    setup: Vec<String>,
    steps: Vec<Step>,
}

struct Step {
    session: String,
    sql: String,
    /// One for all levels, or one for each.
    expected: Vec<String>,
}

impl Script {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).unwrap();
        let (mut settings, mut setup, mut steps) = (BTreeMap::new(), Vec::new(), Vec::new());
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(sql) = line.strip_prefix("setup ") {
                setup.push(sql.to_owned());
                continue;
            }
            if line.starts_with("postgresql ") {
                continue;
            }
            if let Some(own) = line.strip_prefix("cleave ") {
                let (session, sql) = own.split_once(": ").unwrap();
                settings.insert(session.to_owned(), sql.to_owned());
                continue;
            }
            let mut parts = line.split(" | ").map(str::trim);
            let (session, sql) = parts.next().unwrap().split_once(": ").unwrap();
            let expected: Vec<String> = parts.map(str::to_owned).collect();
            assert!(matches!(expected.len(), 1 | 3), "{name}: {line}");
            steps.push(Step { session: session.into(), sql: sql.into(), expected });
        }
        assert!(!steps.is_empty(), "{name} has no steps");
        Self { name, settings, setup, steps }
    }

    /// All of them, by name.
    fn all() -> Vec<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/isolation");
        let entries = std::fs::read_dir(directory).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let wished = std::env::var("CLEAVE_ISOLATION").unwrap_or_default();
        paths.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(&wished));
        paths.sort_unstable();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// Whether a session with settings of Cleave fails at `level`, maybe before its fragment begins.
    fn refuses_fragments(&self, level: usize) -> bool {
        self.steps.iter().any(|step| {
            let expected = step.expected.get(level).unwrap_or(&step.expected[0]);
            self.settings.keys().any(|session| expected.contains(&format!("{session} 40001")))
        })
    }

    /// Runs it on tables of its own, which are dropped again.
    async fn run(&self, database: &Arc<Database>, level: usize, way: &[&str], device: &str) {
        let at = format!("{}, {}, {way:?}, {device}", self.name, LEVELS[level]);
        let mut setup = database.session();
        run(&mut setup, &format!("SET default_device = '{device}'")).await;
        for sql in &self.setup {
            run(&mut setup, sql).await;
        }
        let before = database.activity().count(Act::UpdateFragment);
        let mut idle: BTreeMap<String, Session> = BTreeMap::new();
        let mut waiting: BTreeMap<String, SpawnedTask<(Session, String)>> = BTreeMap::new();
        for step in &self.steps {
            let name = &step.session;
            let session = match idle.remove(name) {
                Some(session) => session,
                None => {
                    let mut session = begun(database, level, way).await;
                    if let Some(sql) = self.settings.get(name) {
                        run(&mut session, sql).await;
                    }
                    session
                }
            };
            let expected = step.expected.get(level).unwrap_or(&step.expected[0]);
            let mut expected = expected.split("; ");
            let own = expected.next().unwrap();
            let mut task = beside(session, in_level(&step.sql, LEVELS[level]));
            if own == "waits" {
                let ended = tokio::time::timeout(Duration::from_millis(150), &mut task).await;
                assert!(ended.is_err(), "{at}: {name} does not wait in {}", step.sql);
                waiting.insert(name.clone(), task);
                continue;
            }
            let ended = tokio::time::timeout(PATIENCE, task).await;
            let Ok(ended) = ended else { panic!("{at}: {name} waits in {}", step.sql) };
            let (session, outcome) = ended.unwrap();
            assert_eq!(outcome, own, "{at}: {name} in {}", step.sql);
            idle.insert(name.clone(), session);
            for other in expected {
                let (name, own) = other.split_once(' ').unwrap();
                let task = waiting.remove(name).unwrap();
                let ended = tokio::time::timeout(PATIENCE, task).await;
                let Ok(ended) = ended else { panic!("{at}: {name} waits after {}", step.sql) };
                let (session, outcome) = ended.unwrap();
                assert_eq!(outcome, own, "{at}: {name} after {}", step.sql);
                idle.insert(name.to_owned(), session);
            }
        }
        assert!(waiting.is_empty(), "{at}");
        let fragments = database.activity().count(Act::UpdateFragment) - before;
        if !self.refuses_fragments(level) {
            let is_asked = !self.settings.is_empty();
            assert_eq!(fragments > 0, is_asked, "{at}: {fragments} update fragments");
        }
        drop(idle);
        for sql in &self.setup {
            if let Some(rest) = sql.strip_prefix("CREATE TABLE ") {
                let table = rest.split(' ').next().unwrap();
                run(&mut setup, &format!("DROP TABLE {table}")).await;
            }
        }
    }
}

/// A session whose transactions are of this level, and which reads this way.
async fn begun(database: &Arc<Database>, level: usize, way: &[&str]) -> Session {
    let mut session = database.session();
    let level = LEVELS[level].to_lowercase();
    run(&mut session, &format!("SET default_transaction_isolation = '{level}'")).await;
    for setting in way {
        run(&mut session, &format!("SET {setting}")).await;
    }
    session
}

/// BEGIN says the level.
fn in_level(sql: &str, level: &str) -> String {
    match sql.strip_prefix("BEGIN") {
        Some("") => format!("BEGIN ISOLATION LEVEL {level}"),
        Some(modes) => format!("BEGIN ISOLATION LEVEL {level},{modes}"),
        None => sql.to_owned(),
    }
}

/// Runs one statement on a task of its own; gives the session back, and what came of it.
fn beside(mut session: Session, sql: String) -> SpawnedTask<(Session, String)> {
    SpawnedTask::spawn(async move {
        let outcome = match session.run(&sql).await {
            Ok(outcomes) => outcomes.iter().map(|outcome| told(outcome, &sql)).collect(),
            Err(error) => error.sqlstate().to_owned(),
        };
        (session, outcome)
    })
}

fn told(outcome: &Outcome, sql: &str) -> String {
    match outcome {
        Outcome::Done { tag } if tag == "ROLLBACK" && sql == "COMMIT" => {
            return "rolled back".into();
        }
        Outcome::Done { .. } => return "ok".into(),
        Outcome::Rows { .. } => {}
    }
    let mut rows = rows_of(outcome);
    if rows.is_empty() {
        return "none".to_owned();
    }
    if !sql.contains("ORDER BY") {
        rows.sort_unstable();
    }
    rows.join(" ")
}

/// The rows of an outcome, values as text joined by commas.
pub(crate) fn rows_of(outcome: &Outcome) -> Vec<String> {
    let Outcome::Rows { batches, .. } = outcome else { return Vec::new() };
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| {
                value_text(column, row).unwrap().unwrap_or_else(|| "NULL".to_owned())
            });
            rows.push(values.collect::<Vec<_>>().join(","));
        }
    }
    rows
}

async fn all_scripts(mode: &str, ways: &[&[&str]]) {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached(mode, outside.path()).await;
    let device = if mode == "embedded" { "embedded" } else { "other" };
    for script in Script::all() {
        for way in ways {
            for level in 0..LEVELS.len() {
                script.run(&database, level, way, device).await;
            }
        }
    }
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anomalies_on_the_embedded_device() {
    Box::pin(all_scripts("embedded", &[&ON_THE_HOST, &ON_THE_DEVICE])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anomalies_on_a_local_device() {
    Box::pin(all_scripts("local", &[&LEAVES_ON_THE_DEVICE])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anomalies_on_a_remote_device() {
    Box::pin(all_scripts("remote", &[&ON_THE_HOST, &ON_THE_DEVICE])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_tells_its_level_and_how_to_go_on() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("embedded", outside.path()).await;
    let mut one = database.session();
    let level = "SHOW transaction_isolation";
    assert_eq!(row(&mut one, level).await, "read committed");
    run(&mut one, "SET default_transaction_isolation = serializable").await;
    assert_eq!(row(&mut one, level).await, "serializable");
    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(row(&mut one, level).await, "repeatable read");
    run(&mut one, "SET transaction_isolation = 'read uncommitted'").await;
    assert_eq!(row(&mut one, level).await, "read committed");
    run(&mut one, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM pg_class")
        .await;
    assert_eq!(row(&mut one, level).await, "serializable");
    let error = refused(&mut one, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
    assert_eq!(error.sqlstate(), "25001");
    let characteristics = "SET SESSION CHARACTERISTICS AS TRANSACTION";
    run(&mut one, &format!("ROLLBACK; {characteristics} ISOLATION LEVEL REPEATABLE READ")).await;
    assert_eq!(row(&mut one, level).await, "repeatable read");
    run(&mut one, "RESET default_transaction_isolation").await;
    assert_eq!(row(&mut one, level).await, "read committed");
    // Write skew of prepared statements, and what the second is told.
    run(
        &mut one,
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)",
    )
    .await;
    let mut two = database.session();
    for (session, id) in [(&mut one, 1), (&mut two, 2)] {
        run(session, "PREPARE get (int) AS SELECT v FROM t WHERE id = $1").await;
        run(session, "PREPARE put (int) AS UPDATE t SET v = 0 WHERE id = $1").await;
        run(session, &format!("BEGIN ISOLATION LEVEL SERIALIZABLE; EXECUTE get ({})", 3 - id))
            .await;
        run(session, &format!("EXECUTE put ({id})")).await;
    }
    run(&mut one, "COMMIT").await;
    let error = refused(&mut two, "COMMIT").await;
    assert_eq!(error.sqlstate(), "40001");
    assert_eq!(
        error.to_string(),
        "could not serialize access due to read/write dependencies among transactions"
    );
    assert_eq!(error.hint().as_deref(), Some("The transaction might succeed if retried."));
    run(&mut two, "BEGIN ISOLATION LEVEL SERIALIZABLE; EXECUTE get (1); EXECUTE put (2); COMMIT")
        .await;
}

/// A small commit takes room for its pages before it is known whether it may be made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_refused_gives_its_room_back() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("embedded", outside.path()).await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE t (id int, v int); CREATE TABLE s (id int, v int)").await;
    run(&mut one, "INSERT INTO t VALUES (1, 1); INSERT INTO s VALUES (1, 1)").await;
    for (session, read) in [(&mut one, "t"), (&mut two, "s")] {
        let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM";
        run(session, &format!("{begin} {read}")).await;
    }
    run(&mut one, "UPDATE s SET v = 2; CREATE TABLE made (id int)").await;
    run(&mut two, "UPDATE t SET v = 2").await;
    // It replaces the manifest, so that the delta is empty afterwards.
    run(&mut one, "COMMIT").await;
    assert_eq!(refused(&mut two, "COMMIT").await.sqlstate(), "40001");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_ends_and_frees_what_it_locked() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("embedded", outside.path()).await;
    let (mut one, mut two) = (database.session(), database.session());
    run(&mut one, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)").await;
    run(&mut one, "BEGIN; UPDATE t SET v = 2").await;
    run(&mut two, "SET statement_timeout = 100; PREPARE put (int) AS UPDATE t SET v = $1").await;
    assert_eq!(refused(&mut two, "UPDATE t SET v = 3").await.sqlstate(), "57014");
    assert_eq!(two.execute("put", &[Some("3")]).await.unwrap_err().sqlstate(), "57014");
    run(&mut two, "BEGIN").await;
    assert_eq!(refused(&mut two, "UPDATE t SET v = 3").await.sqlstate(), "57014");
    assert_eq!(refused(&mut two, "SELECT 1").await.sqlstate(), "25P02");
    run(&mut two, "ROLLBACK").await;
    run(&mut one, "COMMIT").await;
    run(&mut two, "RESET statement_timeout; UPDATE t SET v = v + 1").await;
    assert_eq!(row(&mut one, "SELECT v FROM t").await, "3");
}
