//! Tests of fragments on a mirror, one copy of which breaks them off or hangs: another copy begins them again, or the
//! host does.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_fragment::command::{Command, DeviceError, DeviceErrorCause, Execute, Reply};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::{Database, Session};

use crate::devices::{Served, TOKEN, anywhere, broken_by, pass_on, remote, token_file};
use crate::stealing::{STATEMENTS, fill};
use crate::support::{embedded_as, fresh, row, rows, run, sorted};

/// How a copy treats what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Well,
    /// Runs end with this after their second slot.
    Breaks(DeviceErrorCause),
    /// Nothing is answered.
    Silent,
    /// The same from the second slot of a run on.
    FallsSilent,
}

/// What a test knows of a copy, and how it is to be.
#[derive(Debug, Clone)]
struct Mood {
    way: Arc<Mutex<Way>>,
    /// Fragments that it was asked to run.
    runs: Arc<AtomicU64>,
}

impl Mood {
    fn set(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }

    fn way(&self) -> Way {
        *self.way.lock().unwrap()
    }

    /// Waits while it is silent.
    async fn is_heard(&self) {
        while self.way() == Way::Silent {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A device that is as its mood says.
#[derive(Debug)]
struct Moody {
    device: Arc<dyn DeviceService>,
    mood: Mood,
}

#[async_trait]
impl DeviceService for Moody {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.mood.is_heard().await;
        self.device.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.mood.runs.fetch_add(1, Ordering::Relaxed);
        self.mood.is_heard().await;
        let (sender, events) = SlotSender::channel(slots.form());
        let schema = self.device.execute(request, sender).await?;
        let mood = self.mood.clone();
        pass_on(events, slots, move |slot_count, event| {
            let mood = mood.clone();
            async move {
                if let (Way::Breaks(cause), 3) = (mood.way(), slot_count) {
                    return broken_by(cause);
                }
                if let (Way::FallsSilent, 3) = (mood.way(), slot_count) {
                    mood.set(Way::Silent);
                }
                mood.is_heard().await;
                event
            }
        });
        Ok(schema)
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }
}

/// A database with the mirror m of a and b, and the table t on it.
struct Mirrored {
    _outside: tempfile::TempDir,
    _directory: tempfile::TempDir,
    _served: [Served; 2],
    database: Arc<Database>,
    a: Mood,
    b: Mood,
}

async fn attached(database: &Arc<Database>, outside: &Path, name: &str) -> (Served, Mood) {
    let mood = Mood { way: Arc::new(Mutex::new(Way::Well)), runs: Arc::default() };
    let (identity, media) = ([name.as_bytes()[0]; 16], outside.join(name).with_extension("media"));
    let own = mood.clone();
    let make = move || {
        let device = embedded_as(identity)(&media).unwrap();
        Arc::new(Moody { device, mood: own }) as Arc<dyn DeviceService>
    };
    let served = Served::of(make, anywhere()).await;
    let way = remote(served.address, token_file(outside, TOKEN));
    database.add_device(name, way).await.unwrap();
    (served, mood)
}

async fn mirrored() -> Mirrored {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let (first, a) = attached(&database, outside.path(), "a").await;
    let (second, b) = attached(&database, outside.path(), "b").await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE DEVICE m WITH (mirrors = 'a, b');
         CREATE TABLE t (id int, note text, ratio double precision) WITH (device = m);
         INSERT INTO t SELECT i, 'note ' || i, i * 0.5 FROM generate_series(1, 3000) AS g (i);
         CHECKPOINT; ANALYZE",
    )
    .await;
    let served = [first, second];
    Mirrored { _outside: outside, _directory: directory, _served: served, database, a, b }
}

impl Mirrored {
    /// A session whose fragments run on devices alone, in many slots.
    async fn session(&self) -> Session {
        let mut session = self.database.session();
        run(&mut session, "SET slot_bytes = '1kB'; SET stealing = off; SET split = h0").await;
        session
    }
}

async fn explained(session: &mut Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_breaks_on_one_copy_begins_again_on_another() {
    use DeviceErrorCause::{Cancelled, Corrupt, Io, UnknownRun};
    let mirrored = mirrored().await;
    let mut session = mirrored.session().await;
    let all = "SELECT id, note, ratio FROM t";
    let sums = "SELECT id % 700 AS k, avg(ratio), sum(ratio) FROM t GROUP BY 1";
    let mut expected = rows(&mut session, all).await;
    expected.sort_unstable();
    run(&mut session, "SET split = ndp").await;
    let mut expected_sums = rows(&mut session, sums).await;
    expected_sums.sort_unstable();
    for cause in [UnknownRun, Corrupt, Io, Cancelled] {
        mirrored.a.set(Way::Breaks(cause));
        run(&mut session, "SET split = h0").await;
        let before = mirrored.b.runs.load(Ordering::Relaxed);
        let mut found = rows(&mut session, all).await;
        found.sort_unstable();
        assert!(found == expected, "{cause:?}: {} rows", found.len());
        assert!(mirrored.b.runs.load(Ordering::Relaxed) > before, "{cause:?}");
        run(&mut session, "SET split = ndp").await;
        let mut found = rows(&mut session, sums).await;
        found.sort_unstable();
        assert_eq!(found, expected_sums, "{cause:?}");
        let told = explained(&mut session, sums).await;
        assert!(told.contains("begun again: on another copy: "), "{told}");
        assert!(!told.contains("left out") && !told.contains("ran on the host"), "{told}");
    }
    run(&mut session, "SET split = h0").await;
    let told = explained(&mut session, all).await;
    assert!(told.contains("begun again: on another copy: "), "{told}");
    assert!(told.contains("rows, which are left out"), "{told}");
    assert!(!told.contains("ran on the host"), "{told}");

    // Where both break, the host makes what is left.
    mirrored.b.set(Way::Breaks(UnknownRun));
    let mut found = rows(&mut session, all).await;
    found.sort_unstable();
    assert!(found == expected, "{} rows", found.len());
    let told = explained(&mut session, all).await;
    assert!(told.contains("ran on the host: ") && told.contains("left out"), "{told}");
    mirrored.a.set(Way::Well);
    let stale = "SELECT state FROM cleave.devices WHERE name = 'm'";
    assert_eq!(row(&mut session, stale).await, "online");
}

/// What `work` gives, which does not wait for a device that hangs.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(50), work).await.expect("another copy answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_hangs_is_left_for_another_one() {
    let mirrored = mirrored().await;
    let mut session = mirrored.session().await;
    let all = "SELECT id, note, ratio FROM t";
    let mut expected = rows(&mut session, all).await;
    expected.sort_unstable();
    // Midway, and then before the first row on the other copy, which is asked first by now.
    let (a, b) = (&mirrored.a, &mirrored.b);
    for (hangs, other, way) in [(a, b, Way::FallsSilent), (b, a, Way::Silent)] {
        let before = [hangs, other].map(|copy| copy.runs.load(Ordering::Relaxed));
        hangs.set(way);
        let mut found = soon(rows(&mut session, all)).await;
        found.sort_unstable();
        assert!(found == expected, "{way:?}: {} rows", found.len());
        assert_eq!(hangs.way(), Way::Silent);
        let since = [hangs, other].map(|copy| copy.runs.load(Ordering::Relaxed));
        assert!(since[0] > before[0] && since[1] > before[1], "{way:?}: {before:?}, {since:?}");
        hangs.set(Way::Well);
    }
    // Reads of the host as well, whichever is asked first.
    run(&mut session, "SET split = host").await;
    for hangs in [a, b] {
        hangs.set(Way::Silent);
        mirrored.database.buffer_pool().clear();
        let mut found = soon(rows(&mut session, all)).await;
        found.sort_unstable();
        assert!(found == expected, "{} rows", found.len());
        hangs.set(Way::Well);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_copy_runs_fragments_over_the_pages_of_its_mirror() {
    let mirrored = mirrored().await;
    let mut session = mirrored.session().await;
    run(
        &mut session,
        "CREATE TABLE u (id int, w int) WITH (device = a);
         INSERT INTO u SELECT i, i % 5 FROM generate_series(1, 3000) AS g (i); CHECKPOINT",
    )
    .await;
    let all = "SELECT id, note, ratio FROM t";
    let joined = "SELECT count(*), sum(t.id * u.w) FROM t JOIN u ON t.id = u.id";
    run(&mut session, "SET split = host").await;
    let mut expected = rows(&mut session, all).await;
    expected.sort_unstable();
    let expected_sum = row(&mut session, joined).await;
    let (a, b) = (&mirrored.a, &mirrored.b);
    for (named, own, other) in [("a", a, b), ("b", b, a)] {
        run(&mut session, &format!("SET split = h0; SET compute_on = '{named}'")).await;
        let before = [own, other].map(|copy| copy.runs.load(Ordering::Relaxed));
        let plan = explained(&mut session, all).await;
        assert!(plan.contains(&format!("FragmentExec: device={named}")), "{plan}");
        assert!(!plan.contains("ran on the host") && !plan.contains("(pages of"), "{plan}");
        let since = [own, other].map(|copy| copy.runs.load(Ordering::Relaxed));
        assert!(since[0] > before[0] && since[1] == before[1], "{named}: {before:?}, {since:?}");
        // What it breaks off is finished by the host, from the other copy if need be.
        own.set(Way::Breaks(DeviceErrorCause::Corrupt));
        let mut found = rows(&mut session, all).await;
        found.sort_unstable();
        assert!(found == expected, "{named}: {} rows", found.len());
        own.set(Way::Well);
    }
    // Its own tables lie there too, as far as cuts go.
    run(&mut session, "SET split = ndp; SET compute_on = 'a'").await;
    assert_eq!(row(&mut session, joined).await, expected_sum);
    let plan = explained(&mut session, joined).await;
    assert!(plan.contains("FragmentExec: device=a") && !plan.contains("device=m"), "{plan}");
    assert!(!plan.contains("ran on the host"), "{plan}");
    // Both copies share the pages.
    run(&mut session, "SET split = h0; SET compute_on = 'b, a'").await;
    let mut found = rows(&mut session, all).await;
    found.sort_unstable();
    assert!(found == expected, "{} rows", found.len());
    assert!(!explained(&mut session, all).await.contains("ran on the host"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_share_the_pages_of_a_fragment() {
    let mirrored = mirrored().await;
    let mut session = mirrored.database.session();
    run(&mut session, "SET default_device = 'm'").await;
    fill(&mut session).await;
    run(&mut session, "CHECKPOINT").await;
    let runs = || [&mirrored.a, &mirrored.b].map(|copy| copy.runs.load(Ordering::Relaxed));
    let before = runs();
    for (sql, _) in STATEMENTS {
        run(&mut session, "SET split = host").await;
        let expected = sorted(&mut session, sql).await;
        run(&mut session, "SET stealing = always").await;
        for (split, breaks) in [("h0", false), ("ndp", false), ("h0", true)] {
            run(&mut session, &format!("SET split = {split}")).await;
            let way = if breaks { Way::Breaks(DeviceErrorCause::UnknownRun) } else { Way::Well };
            mirrored.b.set(way);
            if split == "ndp" && session.run(sql).await.is_err() {
                // It leaves nothing to the host, which some statements need.
                continue;
            }
            let found = sorted(&mut session, sql).await;
            assert!(found == expected, "{sql}, {split}, {breaks}: {} rows", found.len());
            mirrored.b.set(Way::Well);
        }
    }
    let since = runs();
    assert!(since[0] > before[0] && since[1] > before[1], "{before:?}, {since:?}");
    // In one piece, for comparison.
    let (sql, _) = STATEMENTS[0];
    run(&mut session, "SET split = h0; SET stealing = off").await;
    let before = runs();
    sorted(&mut session, sql).await;
    let since = runs();
    assert_eq!(since.iter().sum::<u64>() - before.iter().sum::<u64>(), 1, "{before:?}, {since:?}");
}
