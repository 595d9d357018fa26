//! Fails each step of a commit, by the log and with a manifest, or cuts the host's power there. An acknowledged commit
//! is there whole, another whole or not at all, and writers go on.
//!
//! The steps are those of the module `commit` of the host's storage engine.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cleave_device::Runtime;
use cleave_fragment::link::DeviceService;
use cleave_fragment::waiting::sleep;
use cleave_host::activity::Act;
use cleave_host::value::value_text;
use cleave_host::{Database, EmbeddedFactory, Error, OpenOptions, Outcome, Session};
use cleave_media::Media;
use cleave_sim::executor;
use cleave_sim::machine::runtime_options;
use cleave_sim::media::SimMedia;
use cleave_sim::world::{SimWorld, StepFault};

/// A step of a commit.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    /// Whether it can fail: after its log record a small commit cannot, nor after the manifest one with a manifest.
    may_fail: bool,
    /// Whether the commit is there if the power failed at the beginning of the step; None if it may be.
    is_there: Option<bool>,
}

const fn step(name: &'static str, may_fail: bool, is_there: Option<bool>) -> Step {
    Step { name, may_fail, is_there }
}

const BY_LOG: [Step; 6] = [
    step("commit: lock", true, Some(false)),
    step("commit: validate", true, Some(false)),
    step("commit: log", true, Some(false)),
    // The record was handed to the log, and nobody has waited for it.
    step("commit: apply", false, None),
    step("commit: publish", false, None),
    step("commit: told", false, None),
];
const WITH_MANIFEST: [Step; 6] = [
    step("commit: lock", true, Some(false)),
    step("commit: validate", true, Some(false)),
    step("commit: log", true, Some(false)),
    step("commit: apply", true, Some(false)),
    step("commit: publish", false, Some(true)),
    step("commit: told", false, Some(true)),
];

/// A commit of two rows, so that half of one would be seen.
#[derive(Clone, Copy)]
struct Workload {
    steps: [Step; 6],
    /// What comes before it.
    setup: &'static str,
    sql: &'static str,
    /// Counts its rows.
    count: &'static str,
    /// Whether an update fragment changes rows.
    by_fragment: bool,
}

const SMALL: Workload = Workload {
    steps: BY_LOG,
    setup: "",
    sql: "INSERT INTO t VALUES (10, 'a'), (11, 'b')",
    count: "SELECT count(*) FROM t WHERE id IN (10, 11)",
    by_fragment: false,
};
const LARGE: Workload = Workload {
    steps: WITH_MANIFEST,
    setup: "",
    sql: "BEGIN; CREATE TABLE made (id int PRIMARY KEY, note text); \
        INSERT INTO made VALUES (1, 'a'), (2, 'b'); COMMIT",
    count: "SELECT count(*) FROM made",
    by_fragment: false,
};
/// A row on a page version, and one in the delta.
const PAGES: Workload = Workload {
    // Weaker than a manifest allows, and true of a commit by the log as well.
    steps: BY_LOG,
    setup: "CHECKPOINT; SET update_placement = device",
    sql: "BEGIN; UPDATE t SET note = 'new' WHERE id % 10 = 1; INSERT INTO t VALUES (10, 'new'); COMMIT",
    count: "SELECT count(*) FROM t WHERE note = 'new'",
    by_fragment: true,
};
/// A row that dies by a fragment, and one in the delta that takes its key.
const DEAD: Workload = Workload {
    sql: "BEGIN; DELETE FROM t WHERE id % 10 < 3; INSERT INTO t VALUES (1, 'new'), (2, 'new'); COMMIT",
    ..PAGES
};

/// After this long nothing is under way any more.
pub(crate) const CALM: Duration = Duration::from_secs(10);

#[test]
fn a_small_commit_is_whole_at_each_step() {
    at_each_step(SMALL);
}

#[test]
fn a_commit_with_a_manifest_is_whole_at_each_step() {
    at_each_step(LARGE);
}

#[test]
fn a_commit_of_page_versions_is_whole_at_each_step() {
    at_each_step(PAGES);
}

#[test]
fn a_commit_of_rows_that_a_fragment_ends_is_whole_at_each_step() {
    at_each_step(DEAD);
}

/// The steps of a copy of pages for which a commit waits.
const OF_A_COPY: [&str; 3] = ["page copy: begin", "page copy: whole", "page copy: named"];

#[test]
fn a_commit_that_waits_for_a_copy_of_its_pages_is_whole_at_each_step() {
    for name in OF_A_COPY {
        for fault in [StepFault::Fails, StepFault::PowerGoes] {
            for seed in 0..4 {
                let directory = tempfile::tempdir().unwrap();
                let world = SimWorld::new(seed, directory.path());
                let archive = directory.path().join("archive");
                std::fs::create_dir(&archive).unwrap();
                let place = directory.path().join("db");
                let host = Host { place, media: SimMedia::new("near", true) };
                let ran = host.copies(&world, (name, fault), &archive);
                executor::run(&world, Box::pin(ran)).unwrap();
            }
        }
    }
}

fn at_each_step(workload: Workload) {
    for (number, step) in workload.steps.into_iter().enumerate() {
        for fault in [StepFault::Fails, StepFault::PowerGoes] {
            if fault == StepFault::Fails && !step.may_fail {
                continue;
            }
            for seed in 0..4 {
                let directory = tempfile::tempdir().unwrap();
                let world = SimWorld::new(seed + 100 * number as u64, directory.path());
                let place = directory.path().join("db");
                let host = Host { place, media: SimMedia::new("near", true) };
                let ran = host.commits(&world, (step, fault), workload);
                // The future is large, and a test thread's stack is small.
                executor::run(&world, Box::pin(ran)).unwrap();
            }
        }
    }
}

pub(crate) struct Host {
    pub(crate) place: PathBuf,
    pub(crate) media: Arc<SimMedia>,
}

impl Host {
    async fn commits(
        self,
        world: &Rc<SimWorld>,
        (step, fault): (Step, StepFault),
        workload: Workload,
    ) {
        let Workload { setup, sql, count, .. } = workload;
        let told = format!("{sql}, {fault:?} at \"{}\"", step.name);
        let database = self.open().await;
        let mut session = database.session();
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await.unwrap();
        run(&mut session, "INSERT INTO t VALUES (1, 'one'), (2, 'two')").await.unwrap();
        run(&mut session, setup).await.unwrap();

        world.fail_step(step.name, fault);
        let outcome = run(&mut session, sql).await;
        assert!(world.has_failed_step(), "{told}: the step is one of the commit");
        let fragments = database.activity().count(Act::UpdateFragment);
        assert_eq!(fragments > 0, workload.by_fragment, "{told}: {fragments} update fragments");
        let went = fault == StepFault::PowerGoes;
        if went {
            assert!(!world.host_has_power(), "{told}");
        } else {
            assert!(outcome.is_err(), "{told}: it was to fail");
            // Nothing of it is there, and the next writer commits.
            assert_eq!(rows(&mut session, count).await.unwrap_or(0), 0, "{told}");
            run(&mut session, "INSERT INTO t VALUES (3, 'three')").await.unwrap();
            assert_eq!(rows(&mut session, "SELECT count(*) FROM t").await.unwrap(), 3, "{told}");
        }
        world.set_host_power(false);
        drop((session, database));
        sleep(CALM).await;
        world.host_files().lose_power();
        self.media.lose_power();
        world.set_host_power(true);

        let mut session = self.open().await.session();
        // A missing table has no rows.
        let found = rows(&mut session, count).await.unwrap_or(0);
        assert!(found == 0 || found == 2, "{told}: {found} of 2 rows");
        if outcome.is_ok() {
            assert_eq!(found, 2, "{told}: it was acknowledged");
        }
        let is_there = if went { step.is_there } else { Some(false) };
        if let Some(is_there) = is_there {
            assert_eq!(found == 2, is_there, "{told}");
        }
        let kept = if went { 2 } else { 3 };
        let before = rows(&mut session, "SELECT count(*) FROM t WHERE id < 10").await.unwrap();
        assert_eq!(before, kept, "{told}: what was there before");
        run(&mut session, "INSERT INTO t VALUES (20, 'more')").await.unwrap();
        run(&mut session, "CREATE TABLE more (id int)").await.unwrap();
        let twice = run(&mut session, "INSERT INTO t VALUES (1, 'again')").await;
        assert!(matches!(twice, Err(Error::DuplicateKey { .. })), "{told}: {twice:?}");
        drop(session);
        sleep(CALM).await;
    }

    /// A commit of page versions, cut off amid its copy into `archive`.
    async fn copies(
        self,
        world: &Rc<SimWorld>,
        (name, fault): (&'static str, StepFault),
        archive: &Path,
    ) {
        let told = format!("{fault:?} at \"{name}\"");
        let mut session = self.open().await.session();
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await.unwrap();
        run(&mut session, "INSERT INTO t VALUES (1, 'one'), (2, 'two')").await.unwrap();
        let system = format!("ALTER SYSTEM SET archive_directory = '{}'", archive.display());
        run(&mut session, &system).await.unwrap();
        run(&mut session, PAGES.setup).await.unwrap();
        run(&mut session, "SET update_logging = extended").await.unwrap();
        world.fail_step(name, fault);
        let outcome = run(&mut session, PAGES.sql).await;
        assert!(world.has_failed_step(), "{told}: the step is one of the commit: {outcome:?}");
        if fault == StepFault::Fails {
            assert!(outcome.is_err(), "{told}: nobody may be told of it");
            let next = run(&mut session, "INSERT INTO t VALUES (3, 'three')").await;
            assert!(next.is_err(), "{told}: the database has stopped");
        }
        world.set_host_power(false);
        drop(session);
        sleep(CALM).await;
        world.host_files().lose_power();
        self.media.lose_power();
        world.set_host_power(true);
        for _ in 0..2 {
            let mut session = self.open().await.session();
            let found = rows(&mut session, PAGES.count).await.unwrap();
            assert!(found == 0 || found == 2, "{told}: {found} of 2 rows");
            assert!(outcome.is_err() || found == 2, "{told}: it was acknowledged");
            let before = rows(&mut session, "SELECT count(*) FROM t WHERE id < 10").await.unwrap();
            assert_eq!(before, 2, "{told}: what was there before");
            let copies = copies(archive);
            // The record may have been lost behind its copy; never the copy behind its record.
            assert!(
                copies == 1 || found == 0,
                "{told}: {copies} copies for a commit that is there"
            );
            drop(session);
            sleep(CALM).await;
        }
    }

    pub(crate) async fn open(&self) -> Arc<Database> {
        let media = Arc::clone(&self.media);
        let embedded: EmbeddedFactory = Arc::new(move |_: &Path| {
            let media = media.attach() as Arc<dyn Media>;
            let runtime = Runtime::new(media, runtime_options([0x4e; 16])).unwrap();
            Ok(runtime as Arc<dyn DeviceService>)
        });
        let options = OpenOptions::new(embedded).buffer_pool_bytes(1 << 20).create(true);
        Box::pin(Database::open(&self.place, options)).await.unwrap()
    }
}

/// How many records have copied pages in `archive`.
fn copies(archive: &Path) -> usize {
    let folders = std::fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let names = files.map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(".pages"))).count()
}

pub(crate) async fn run(session: &mut Session, sql: &str) -> Result<Vec<Outcome>, Error> {
    session.run(sql).await
}

/// The number that `sql` returns.
pub(crate) async fn rows(session: &mut Session, sql: &str) -> Result<u64, Error> {
    let outcomes = run(session, sql).await?;
    let Some(Outcome::Rows { batches, .. }) = outcomes.first() else { panic!("{sql} gives rows") };
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).expect("a count");
    Ok(value_text(batch.column(0), 0).unwrap().expect("a number").parse().unwrap())
}
