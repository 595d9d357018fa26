//! Tests of groups and joins that are complete on each of several devices: their rows are those that the host makes,
//! wherever the rows of a group are, whatever a device does.

use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_device::Runtime;
use cleave_fragment::command::{Command, DeviceError, DeviceErrorCause, Execute, Reply};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::{Database, Session};
use cleave_media::Memory;

use crate::devices::{Served, TOKEN, anywhere, break_at, remote, token_file};
use crate::nodes::analyzed;
use crate::support::{
    answer, assert_no_leak_soon, fragments, fresh, refused, row, rows, run, runtime_options,
};

/// What a device does with fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    All,
    None,
    /// They are lost after their second slot.
    Breaking,
}

/// A device that runs fragments as it is told.
#[derive(Debug)]
struct Told(Arc<dyn DeviceService>, Arc<Mutex<Runs>>);

#[async_trait]
impl DeviceService for Told {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.0.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let runs = *self.1.lock().unwrap();
        if runs == Runs::None {
            let message = "no fragments today".to_owned();
            return Err(DeviceError::new(DeviceErrorCause::Refused, message));
        }
        match runs {
            Runs::Breaking => break_at(3, self.0.as_ref(), request, slots).await,
            Runs::All | Runs::None => self.0.execute(request, slots).await,
        }
    }

    fn steer(&self, command: Command) {
        self.0.steer(command);
    }
}

/// A database with the devices nas and san.
struct Two {
    _directory: tempfile::TempDir,
    _outside: tempfile::TempDir,
    database: Arc<Database>,
    served: Vec<Served>,
    /// What san does with fragments.
    san: Arc<Mutex<Runs>>,
    session: Session,
}

impl Two {
    async fn new() -> Self {
        let (directory, database) = fresh().await;
        let outside = tempfile::tempdir().unwrap();
        let (nas, san) = (Arc::new(Mutex::new(Runs::All)), Arc::new(Mutex::new(Runs::All)));
        let mut served = Vec::new();
        for (number, name, runs) in [(1, "nas", nas), (2, "san", Arc::clone(&san))] {
            served.push(attach(&database, outside.path(), (name, number), runs).await);
        }
        let session = database.session();
        let mut two =
            Self { _directory: directory, _outside: outside, database, served, san, session };
        two.fill().await;
        two
    }

    async fn run(&mut self, sql: &str) {
        run(&mut self.session, sql).await;
    }

    /// `a`, `b` and `r` have rows on pages and in the delta, dead ones, and keys without a value.
    async fn fill(&mut self) {
        let over = |devices: &str, by: &str| {
            format!("WITH (devices = ({devices}), tablets = 4, tablet_by = hash ({by}))")
        };
        let bounds = "tablet_by = range (k), bounds = (100, 200, 300))";
        for sql in [
            format!("CREATE TABLE a (k int, g int, v bigint, w text) {}", over("nas, san", "k")),
            format!("CREATE TABLE b (k int, n int, w text) {}", over("nas, san", "k")),
            // The same columns on other devices, by other columns, and by ranges.
            format!("CREATE TABLE turned (k int, v bigint) {}", over("san, nas", "k")),
            format!("CREATE TABLE pairs (k int, g int, v bigint) {}", over("nas, san", "k, g")),
            format!("CREATE TABLE r (k int, v bigint) WITH (devices = (nas, san), {bounds}"),
            format!("CREATE TABLE s (k int, n int) WITH (devices = (nas, san), {bounds}"),
            "CREATE TABLE few (g int PRIMARY KEY, word text) WITH (device = embedded)".to_owned(),
            "INSERT INTO few SELECT x, 'word ' || x FROM generate_series(0, 6) AS s(x)".to_owned(),
            "INSERT INTO a SELECT nullif(x % 400, 17), x % 7, x, 'w' || x % 50 \
             FROM generate_series(1, 4000) AS s(x)"
                .to_owned(),
            "INSERT INTO b SELECT nullif(x, 23), x % 5, 'w' || x % 40 \
             FROM generate_series(1, 600) AS s(x) WHERE x % 3 = 1"
                .to_owned(),
            "INSERT INTO turned SELECT k, v FROM a".to_owned(),
            "INSERT INTO pairs SELECT k, g, v FROM a".to_owned(),
            "INSERT INTO r SELECT k, v FROM a".to_owned(),
            "INSERT INTO s SELECT k, n FROM b".to_owned(),
            "CHECKPOINT; ANALYZE".to_owned(),
            // Rows of groups that lie on pages, and whole groups.
            "INSERT INTO a SELECT x % 450, 1, x, 'late' FROM generate_series(1, 900) AS s(x)"
                .to_owned(),
            "INSERT INTO a VALUES (NULL, 9, 1, NULL), (NULL, 9, 2, NULL)".to_owned(),
            "DELETE FROM a WHERE v % 13 = 5".to_owned(),
            "UPDATE a SET k = k + 1 WHERE v = 100".to_owned(),
            "INSERT INTO b SELECT x, 3, 'late' FROM generate_series(390, 420) AS s(x)".to_owned(),
            "INSERT INTO r SELECT x, x FROM generate_series(95, 305) AS s(x)".to_owned(),
            "SET threads = 2".to_owned(),
        ] {
            self.run(&sql).await;
        }
    }

    /// The rows of `sql` that the host makes.
    async fn by_host(&mut self, sql: &str) -> Vec<String> {
        self.run("SET split = host").await;
        answer(&mut self.session, sql).await
    }

    async fn assert_rows(&mut self, sql: &str, split: &str, expected: &[String]) {
        self.run(&format!("SET split = {split}")).await;
        assert_eq!(answer(&mut self.session, sql).await, expected, "{split}: {sql}");
    }

    /// `sql` has the rows of the host.
    async fn assert_same(&mut self, sql: &str, split: &str) {
        let expected = self.by_host(sql).await;
        self.assert_rows(sql, split, &expected).await;
    }
}

async fn attach(
    database: &Arc<Database>,
    outside: &Path,
    (name, number): (&str, u8),
    runs: Arc<Mutex<Runs>>,
) -> Served {
    let device = move || {
        let runtime = Runtime::new(Arc::new(Memory::new()), runtime_options([number; 16]));
        Arc::new(Told(runtime.unwrap(), runs)) as Arc<dyn DeviceService>
    };
    let served = Served::of(device, anywhere()).await;
    let device = remote(served.address, token_file(outside, TOKEN));
    database.add_device(name, device).await.unwrap();
    served
}

/// Queries with complete groups, and the first split that has them.
const COMPLETE: [(&str, &str); 17] = [
    ("g0", "SELECT k, count(*), sum(v), min(w) FROM a GROUP BY k"),
    ("g0", "SELECT k, g, count(*), avg(v) FROM a GROUP BY k, g"),
    ("g0", "SELECT k, count(*) FROM a WHERE v % 3 = 0 GROUP BY k HAVING count(*) > 3"),
    ("g0", "SELECT count(*) AS n, k + 1 AS next FROM a GROUP BY k ORDER BY n DESC, next LIMIT 5"),
    ("g0", "SELECT count(*) AS n, k FROM a GROUP BY k ORDER BY n, k LIMIT 3 OFFSET 2"),
    ("g0", "SELECT DISTINCT k, g FROM a"),
    ("g0", "SELECT count(DISTINCT k) FROM a"),
    ("g0", "SELECT k, count(DISTINCT g) FROM a GROUP BY k"),
    // Groups of groups: partial ones of complete ones, and complete again.
    ("g0", "SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM a GROUP BY k) AS t GROUP BY n"),
    (
        "g0",
        "SELECT k, max(n) FROM (SELECT k, g, count(*) AS n FROM a GROUP BY k, g) AS t GROUP BY k",
    ),
    ("g0", "SELECT k, g, sum(v) FROM pairs GROUP BY g, k"),
    ("g0", "SELECT k, count(*), sum(v) FROM r GROUP BY k"),
    ("g1", "SELECT a.k, count(*), sum(b.n) FROM a JOIN b ON a.k = b.k GROUP BY a.k"),
    ("g1", "SELECT b.k, count(*) FROM a JOIN b ON a.k = b.k AND a.w = b.w GROUP BY b.k"),
    ("g1", "SELECT a.k, f.word, count(*) FROM a JOIN few f ON a.g = f.g GROUP BY a.k, f.word"),
    ("g1", "SELECT r.k, count(*), min(s.n) FROM r JOIN s ON r.k = s.k GROUP BY r.k"),
    // A join of complete groups has them below its cut.
    (
        "h1",
        "SELECT t.n, b.w FROM (SELECT k, count(*) AS n FROM a GROUP BY k) AS t JOIN b ON t.k = b.k \
         WHERE t.n > 10",
    ),
];

/// Queries without complete groups: they lack a column of the division, or compute it, or other rows belong to them.
const NOT_COMPLETE: [&str; 8] = [
    "SELECT g, count(*) FROM a GROUP BY g",
    "SELECT k, sum(v) FROM pairs GROUP BY k",
    "SELECT k % 10, count(*) FROM a GROUP BY k % 10",
    "SELECT count(*), sum(v) FROM a",
    "SELECT k, count(*) FROM a GROUP BY ROLLUP (k)",
    "SELECT k, count(*) FROM (SELECT k FROM a ORDER BY v LIMIT 50) AS t GROUP BY k",
    "SELECT k, v FROM a WHERE v > 3900",
    "SELECT g, count(*) FROM few GROUP BY g",
];

/// Joins whose rows meet on their devices.
const JOINS: [&str; 9] = [
    "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k",
    "SELECT a.v, b.w FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT a.v, b.w FROM a RIGHT JOIN b ON a.k = b.k",
    "SELECT a.v, b.w FROM a FULL JOIN b ON a.k = b.k AND a.w = b.w",
    "SELECT b.w FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.k = b.k AND a.v > 100)",
    "SELECT b.w FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = b.k)",
    "SELECT a.v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    "SELECT r.v, s.n FROM r LEFT JOIN s ON r.k = s.k WHERE r.k < 150",
    "SELECT a.v, b.w, few.word FROM a JOIN b ON a.k = b.k JOIN few ON few.g = a.g",
];

const WAYS: [&str; 3] = [
    "SET stealing = off",
    "SET stealing = always; SET threads = 1",
    "RESET ALL; SET batch_size = 100; SET slot_bytes = 4096; SET slot_count = 1; \
     SET device_memory = '1MB'",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complete_groups_are_those_of_the_host() {
    let mut two = Two::new().await;
    for (split, sql) in COMPLETE {
        let expected = two.by_host(sql).await;
        for way in WAYS {
            two.run(way).await;
            two.assert_rows(sql, split, &expected).await;
        }
        two.run("RESET ALL; SET threads = 2").await;
        two.assert_rows(sql, "auto", &expected).await;
    }
    for sql in NOT_COMPLETE {
        two.run("SET split = g0").await;
        let error = refused(&mut two.session, sql).await;
        assert_eq!(error.sqlstate(), "0A000", "{sql}: {error}");
        assert!(error.to_string().contains("no groups are complete"), "{sql}: {error}");
    }
    // All rows on pages.
    two.run("CHECKPOINT; SET threads = 3").await;
    for (split, sql) in COMPLETE {
        two.assert_same(sql, split).await;
    }
    assert_no_leak_soon(&two.database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_meet_are_joined_without_a_broadcast() {
    let mut two = Two::new().await;
    for sql in JOINS {
        let expected = two.by_host(sql).await;
        for way in WAYS {
            two.run(way).await;
            two.assert_rows(sql, "h1", &expected).await;
        }
        two.run("RESET ALL; SET threads = 2").await;
        for split in ["'h1+'", "auto"] {
            two.assert_rows(sql, split, &expected).await;
        }
        if !sql.contains("few") {
            two.assert_rows(sql, "ndp", &expected).await;
            let plan = analyzed(&mut two.session, sql).await;
            assert!(!plan.contains("BroadcastExec"), "{sql}: {plan}");
            assert!(plan.contains("FragmentExec: device=nas, san"), "{sql}: {plan}");
        }
    }
    // These do not meet: other devices, other columns, other bounds.
    for sql in [
        "SELECT a.v, t.v FROM a JOIN turned t ON a.k = t.k WHERE a.v < 300",
        "SELECT a.v, p.v FROM a JOIN pairs p ON a.k = p.k WHERE a.v < 300",
        "SELECT a.v, r.v FROM a JOIN r ON a.k = r.k WHERE a.v < 300",
        "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k + 1",
    ] {
        two.assert_same(sql, "h1").await;
        two.run("SET split = ndp").await;
        assert_eq!(refused(&mut two.session, sql).await.sqlstate(), "0A000", "{sql}");
    }
    // NULLs on the other device count.
    two.assert_same("SELECT w FROM b WHERE k NOT IN (SELECT k FROM a WHERE v < 50)", "auto").await;
    two.assert_same("SELECT w FROM b WHERE k NOT IN (SELECT k FROM a)", "h0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_one_device_meet_those_of_several() {
    let mut two = Two::new().await;
    // All rows of `one` are in one tablet, and so on one device, with those of a table that is not divided.
    for sql in [
        "CREATE TABLE one (k int, n int) WITH (devices = (nas, san), tablets = 4, tablet_by = hash (k))",
        "CREATE TABLE on_nas (n int, y int) WITH (device = nas)",
        "CREATE TABLE on_san (n int, y int) WITH (device = san)",
        "INSERT INTO one SELECT 40, x % 10 FROM generate_series(1, 200) AS s(x)",
        "INSERT INTO on_nas SELECT x, x FROM generate_series(3, 7) AS s(x)",
        "INSERT INTO on_san SELECT * FROM on_nas",
        "SET join_order = f, one, a",
    ] {
        two.run(sql).await;
    }
    for table in ["on_nas", "on_san"] {
        let sql =
            format!("SELECT f.y, a.v FROM {table} f JOIN one ON f.n = one.n JOIN a ON a.k = one.k");
        for split in ["h1", "h2", "g2", "auto"] {
            if split != "g2" {
                two.assert_same(&sql, split).await;
            }
            let groups = sql.replace("f.y, a.v", "a.k, count(*), sum(f.y)") + " GROUP BY a.k";
            two.assert_same(&groups, split).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_makes_the_groups_of_a_device_that_refuses() {
    let mut two = Two::new().await;
    *two.san.lock().unwrap() = Runs::None;
    for (split, sql) in [COMPLETE[0], COMPLETE[3], COMPLETE[8], COMPLETE[12], COMPLETE[16]] {
        two.assert_same(sql, split).await;
        let plan = analyzed(&mut two.session, sql).await;
        assert_eq!(plan.matches("ran on the host: ").count(), 1, "{plan}");
    }
    for sql in JOINS {
        two.assert_same(sql, "h1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_a_run_that_is_lost_midway_come_once() {
    let mut two = Two::new().await;
    two.run("SET slot_bytes = '1kB'").await;
    *two.san.lock().unwrap() = Runs::Breaking;
    for stealing in ["on", "off"] {
        two.run(&format!("SET stealing = {stealing}")).await;
        for (split, sql) in COMPLETE {
            two.assert_same(sql, split).await;
        }
    }
    two.run("SET split = g0").await;
    let plan = analyzed(&mut two.session, COMPLETE[0].1).await;
    assert!(plan.contains("rows, which are left out"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_own_transaction_are_in_their_groups() {
    let mut two = Two::new().await;
    two.run(
        "BEGIN;
         INSERT INTO a SELECT x % 500, 2, x, 'own' FROM generate_series(1, 1000) AS s(x);
         INSERT INTO b SELECT x, 4, 'own' FROM generate_series(50, 90) AS s(x);
         UPDATE a SET k = k + 7 WHERE v BETWEEN 500 AND 600;
         DELETE FROM a WHERE k = 3",
    )
    .await;
    for (split, sql) in COMPLETE {
        two.assert_same(sql, split).await;
    }
    for sql in JOINS {
        two.assert_same(sql, "h1").await;
    }
    two.run("ROLLBACK").await;
    two.assert_same(COMPLETE[0].1, "g0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_where_groups_become_complete() {
    let mut two = Two::new().await;
    let sql = "SELECT k, count(*) FROM a GROUP BY k HAVING count(*) > 3";
    let explain = |sql: &str| format!("EXPLAIN VERBOSE {sql}");
    two.run("SET split = g0").await;
    let plan = rows(&mut two.session, &explain(sql)).await.join("\n");
    let place = |plan: &str, what: &str| {
        let found = plan.lines().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {plan}"))
    };
    let fragment = place(&plan, "FragmentExec: device=nas, san");
    assert!(fragment < place(&plan, "FilterExec: "), "{plan}");
    assert!(place(&plan, "FilterExec: ") < place(&plan, "mode=Final"), "{plan}");
    two.run("SET split = h0").await;
    let plan = rows(&mut two.session, &explain(sql)).await.join("\n");
    assert!(place(&plan, "mode=Final") < place(&plan, "FragmentExec: device=nas, san"), "{plan}");
    // Both devices run theirs, and nothing is taken from them.
    two.run("SET split = g0; SET stealing = off").await;
    let plan = analyzed(&mut two.session, sql).await;
    assert!(!plan.contains("ran on the host"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_device_keeps_its_own_groups() {
    let mut two = Two::new().await;
    two.run("SET update_placement = device").await;
    let query = "SELECT k, count(*) AS n, max(v) AS v FROM a GROUP BY k";
    let by_devices = "by fragments that write on nas, san";
    two.run("CREATE TABLE held (k int, n bigint, v bigint) WITH (devices = (nas, san))").await;
    let insert = format!("EXPLAIN VERBOSE INSERT INTO held {query}");
    let plan = rows(&mut two.session, &insert).await.join("\n");
    assert!(plan.contains(by_devices), "{plan}");
    two.run(&format!("INSERT INTO held {query}; CREATE TABLE made AS {query}")).await;
    let expected = answer(&mut two.session, query).await;
    for table in ["held", "made"] {
        let sql = format!("SELECT * FROM {table}");
        assert_eq!(answer(&mut two.session, &sql).await, expected, "{table}");
    }
    let devices = "SELECT device FROM cleave.tablets WHERE table_name = 'made' ORDER BY tablet";
    assert_eq!(rows(&mut two.session, devices).await, ["nas", "san"]);
    // Also where values say on which device a row lies.
    let kept = "(k int, n bigint) WITH (devices = (nas, san), tablets = 4, tablet_by = hash (k))";
    two.run(&format!("CREATE TABLE kept {kept}")).await;
    for (query, stays) in [
        ("SELECT k, count(*) FROM a GROUP BY k", true),
        ("SELECT a.k, a.v FROM a JOIN b ON a.k = b.k", true),
        ("SELECT b.k, a.v FROM a LEFT JOIN b ON a.k = b.k", false),
        ("SELECT k, count(*) FROM turned GROUP BY k", false),
    ] {
        two.run("DELETE FROM kept").await;
        let before = fragments(&two.database).await;
        two.run(&format!("INSERT INTO kept {query}")).await;
        let made = fragments(&two.database).await - before;
        assert_eq!(made, if stays { 2 } else { 0 }, "{query}");
        let expected = answer(&mut two.session, query).await;
        assert_eq!(answer(&mut two.session, "SELECT * FROM kept").await, expected, "{query}");
        // Each row is where a look-up by its values finds it.
        let looked_up = row(&mut two.session, "SELECT count(*) FROM kept WHERE k = 40").await;
        let all = "SELECT count(*) FROM kept WHERE k + 0 = 40";
        assert_eq!(row(&mut two.session, all).await, looked_up, "{query}");
    }
    // Other groups have rows on both devices.
    let plan = rows(
        &mut two.session,
        "EXPLAIN VERBOSE INSERT INTO held SELECT g, count(*) FROM a GROUP BY g",
    );
    let plan = plan.await.join("\n");
    assert!(!plan.contains(by_devices), "{plan}");
    assert_no_leak_soon(&two.database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_fails_the_statement_and_no_other() {
    let mut two = Two::new().await;
    let groups = COMPLETE[0].1;
    two.run("SET split = g0").await;
    assert!(
        row(&mut two.session, &format!("SELECT count(*) FROM ({groups}) AS t")).await.len() > 2
    );
    // Commits of the tables must not wait for the device.
    two.run("CHECKPOINT").await;
    two.served.pop().unwrap().stop().await;
    let error = refused(&mut two.session, groups).await;
    assert_eq!(error.sqlstate(), "58030", "{error}");
    assert!(error.to_string().contains("\"san\""), "{error}");
    // One tablet lies on the other device.
    let pinned = "SELECT k, count(*) FROM r WHERE k < 90 GROUP BY k";
    two.run("SET split = h0").await;
    assert_eq!(rows(&mut two.session, pinned).await.len(), 89);
}
