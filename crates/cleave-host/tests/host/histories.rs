//! Tests of isolation by random histories: transactions append to lists and read them, and an independent [`check`]
//! then searches the recorded history for anomalies that the level forbids. Reads are forced to the host and to the
//! device.
//!
//! In some of them transactions also change many lists by one statement, which an update fragment runs ([`bulk`]), or
//! lists are loaded beside them ([`loads`]).
//!
//! `CLEAVE_HISTORIES=500` runs that many transactions per session, `CLEAVE_HISTORIES_SEED` chooses what they do. A seed
//! gives the same choices again; the interleaving of sessions depends on the machine.
//!
//! Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations".

mod bulk;
mod check;
mod loads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cleave_host::activity::Act;
use cleave_host::{Database, Error, Session};
use cleave_media::SplitMix64;
use datafusion::common::runtime::SpawnedTask;

use crate::index_filter::attached;
use crate::isolation::{LEVELS, ON_THE_DEVICE, ON_THE_HOST};
use crate::support::{assert_no_leak_soon, refused, rows, run};
use bulk::Bulk;
use check::{Anomaly, Finding, Op, Transaction, check};

/// Lists, the last two of which are absent at first.
const KEYS: u64 = 5;
const SESSIONS: u64 = 4;

/// Results of earlier reads are given again while they are what a read would give.
const REUSED: [&str; 5] =
    ["split = ndp", "ndp = on", "index_scan = off", "stealing = off", "result_reuse = on"];
/// The same of stages: whole tables that devices have written.
const STAGED: [&str; 6] = [
    "split = h0",
    "index_scan = off",
    "stealing = off",
    "stages = always",
    "result_cache_bytes = 0",
    "result_reuse = on",
];

/// How lists in several tablets are read.
const IN_TABLETS: [&str; 3] = ["split = h0", "index_scan = off", "stealing = off"];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The anomalies that a level forbids.
fn forbidden(level: usize) -> BTreeSet<Anomaly> {
    use Anomaly::{
        AbortedRead, CircularInformation, DirtyWrite, IntermediateRead, Lost, ReadSkew, WriteSkew,
    };
    let mut never =
        BTreeSet::from([DirtyWrite, AbortedRead, IntermediateRead, CircularInformation, Lost]);
    if level >= 1 {
        never.insert(ReadSkew);
    }
    if level >= 2 {
        never.insert(WriteSkew);
    }
    never
}

/// A session, and the transactions that it has run.
struct Recorder {
    session: Session,
    next_value: u64,
    /// Reads of all lists do so through a stage.
    is_staged: bool,
    bulk: Bulk,
    ops: Vec<Op>,
    done: Vec<Transaction>,
}

impl Recorder {
    async fn new(database: &Arc<Database>, way: &[&str], number: u64) -> Self {
        let mut session = database.session();
        for setting in way {
            run(&mut session, &format!("SET {setting}")).await;
        }
        let next_value = number * 1_000_000;
        let (bulk, is_staged) = (Bulk::Never, way.contains(&"stages = always"));
        Self { session, next_value, is_staged, bulk, ops: Vec::new(), done: Vec::new() }
    }

    async fn begin(&mut self, level: &str) {
        self.ops.clear();
        run(&mut self.session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
    }

    async fn append(&mut self, key: u64) -> Result<(), Error> {
        self.next_value += 1;
        let value = self.next_value;
        // Whatever the outcome of the statement.
        self.ops.push(Op::Append { key, value, is_kept: true });
        let update = format!(
            "UPDATE list SET elements = elements || ',{value}' WHERE id = {key} RETURNING id"
        );
        if self.session_rows(&update).await?.is_empty() {
            let insert = format!("INSERT INTO list VALUES ({key}, ',{value}')");
            self.session.run(&insert).await?;
        }
        Ok(())
    }

    async fn read(&mut self, key: u64) -> Result<(), Error> {
        let query = format!("SELECT id, elements FROM list WHERE id = {key}");
        let found = self.session_rows(&query).await?;
        self.note_read(key, found.first().map_or("", String::as_str));
        Ok(())
    }

    /// Reads all lists by one statement, and notes those of its time.
    async fn read_all(&mut self) -> Result<(), Error> {
        let query = match self.is_staged {
            true => {
                "WITH x AS MATERIALIZED (SELECT id, elements FROM list) SELECT id, elements FROM x"
            }
            false => "SELECT id, elements FROM list",
        };
        let found = self.session_rows(query).await?;
        for key in self.first_key()..self.first_key() + KEYS {
            let own = found.iter().find(|row| row.starts_with(&format!("{key},")));
            self.note_read(key, own.map_or("", String::as_str));
        }
        Ok(())
    }

    fn note_read(&mut self, key: u64, row: &str) {
        let elements = row.split(',').skip(1).filter(|text| !text.is_empty());
        let elements = elements.map(|text| text.parse().unwrap()).collect();
        self.ops.push(Op::Read { key, elements });
    }

    async fn session_rows(&mut self, sql: &str) -> Result<Vec<String>, Error> {
        let outcomes = self.session.run(sql).await?;
        Ok(outcomes.iter().flat_map(crate::isolation::rows_of).collect())
    }

    /// Removes what came after a savepoint.
    fn forget_since(&mut self, mark: usize) {
        for op in self.ops.split_off(mark) {
            if let Op::Append { key, value, .. } = op {
                self.ops.push(Op::Append { key, value, is_kept: false });
            }
        }
    }

    fn end(&mut self, is_committed: bool) {
        let ops = std::mem::take(&mut self.ops);
        self.done.push(Transaction { ops, is_committed });
    }

    /// The first of the lists that the next transaction is about.
    fn first_key(&self) -> u64 {
        match self.bulk {
            Bulk::Loads => loads::first_key(self.done.len()),
            _ => 0,
        }
    }

    fn key(&self, random: &mut SplitMix64) -> u64 {
        self.first_key() + random.below(KEYS)
    }

    /// One transaction as `random` chooses, up to its end or to its first failure.
    async fn transaction(&mut self, level: usize, random: &mut SplitMix64) -> Result<(), Error> {
        match self.bulk {
            Bulk::Updates if random.below(6) == 0 => return self.append_alone().await,
            Bulk::Loads if random.below(3) == 0 => return self.load_alone(random).await,
            _ => {}
        }
        self.begin(LEVELS[level]).await;
        for _ in 0..=random.below(4) {
            match random.below(self.bulk.kinds()) {
                0..=4 => self.append(self.key(random)).await?,
                5..=8 => self.read(self.key(random)).await?,
                9..=10 => self.read_all().await?,
                12..=14 => self.append_to_many(level, bulk::keys(random)).await?,
                15..=16 => self.write_anew(bulk::keys(random)).await?,
                _ => {
                    let (mark, key) = (self.ops.len(), self.key(random));
                    self.session.run("SAVEPOINT s").await?;
                    match self.bulk {
                        Bulk::Never | Bulk::Loads => self.append(key).await?,
                        _ => self.append_to_many(level, 0..=key).await?,
                    }
                    self.session.run("ROLLBACK TO s").await?;
                    self.forget_since(mark);
                    self.read(key).await?;
                }
            }
        }
        if random.below(10) == 0 {
            self.session.run("ROLLBACK").await?;
            self.end(false);
            return Ok(());
        }
        self.session.run("COMMIT").await?;
        self.end(true);
        Ok(())
    }

    async fn transactions(mut self, level: usize, count: u64, seed: u64) -> Vec<Transaction> {
        let mut random = SplitMix64::new(seed);
        for _ in 0..count {
            // Its choices must not depend on how far the one before came.
            let mut own = SplitMix64::new(random.next_u64());
            if let Err(error) = self.transaction(level, &mut own).await {
                let expected = ["40001", "40P01", "23505"];
                assert!(expected.contains(&error.sqlstate()), "{error}");
                run(&mut self.session, "ROLLBACK").await;
                self.end(false);
            }
        }
        self.done
    }
}

async fn lists(database: &Arc<Database>, device: &str, tablets: u32) -> Session {
    let mut session = database.session();
    run(&mut session, &format!("SET default_tablets = {tablets}")).await;
    run(&mut session, &format!("SET default_device = '{device}'")).await;
    run(&mut session, "DROP TABLE IF EXISTS list").await;
    run(&mut session, "CREATE TABLE list (id int PRIMARY KEY, elements text)").await;
    run(&mut session, "INSERT INTO list VALUES (0, ''), (1, ''), (2, '')").await;
    loads::fill_source(&mut session).await;
    session
}

/// What sessions do and what they wait for, when they do not end.
async fn waiting(session: &mut Session) -> Vec<String> {
    let mut found = Vec::new();
    for query in ["SELECT * FROM pg_locks", "SELECT pid, state, query FROM pg_stat_activity"] {
        found.extend(rows(session, query).await);
    }
    found
}

/// The lists at the end.
async fn ends(session: &mut Session) -> BTreeMap<u64, Vec<u64>> {
    let mut ends = BTreeMap::new();
    for row in rows(session, "SELECT id, elements FROM list").await {
        let mut values = row.split(',').filter(|text| !text.is_empty());
        let key = values.next().unwrap().parse().unwrap();
        ends.insert(key, values.map(|text| text.parse().unwrap()).collect());
    }
    ends
}

async fn all_levels(mode: &str, way: &'static [&'static str], bulk: Bulk, otherwise: u64) {
    let (seed, count) = (number("CLEAVE_HISTORIES_SEED", 1), number("CLEAVE_HISTORIES", otherwise));
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached(mode, outside.path()).await;
    let device = if mode == "embedded" { "embedded" } else { "other" };
    let tablets = if mode == "remote" && bulk != Bulk::Never { 3 } else { 1 };
    for (level, name) in LEVELS.iter().enumerate() {
        let mut session = lists(&database, device, tablets).await;
        let before = database.activity().count(Act::UpdateFragment);
        let mut tasks = Vec::new();
        for number in 1..=SESSIONS {
            let mut recorder = Recorder::new(&database, way, number).await;
            recorder.change_many(bulk, (level, number)).await;
            let seed = seed.wrapping_mul(1000) + number;
            tasks.push(SpawnedTask::spawn(recorder.transactions(level, count, seed)));
        }
        let mut history = Vec::new();
        for task in tasks {
            // Longer than the transactions of a session take.
            let patience = Duration::from_secs(60 + 2 * count);
            let Ok(ended) = tokio::time::timeout(patience, task).await else {
                panic!("{name}, {mode}, {bulk:?}, seed {seed}: {:#?}", waiting(&mut session).await);
            };
            history.extend(ended.unwrap());
        }
        let findings = check(&history, &ends(&mut session).await);
        let never = forbidden(level);
        let wrong: Vec<&Finding> =
            findings.iter().filter(|finding| never.contains(&finding.anomaly)).collect();
        let committed = history.iter().filter(|one| one.is_committed).count();
        let among = wrong.iter().flat_map(|finding| &finding.among);
        let among: Vec<_> = among.map(|place| (place, &history[*place])).collect();
        assert!(wrong.is_empty(), "{name}, {mode}, {way:?}, seed {seed}: {wrong:#?}\n{among:#?}");
        assert!(committed * 8 > history.len(), "{name}: {committed} of {} commit", history.len());
        let fragments = database.activity().count(Act::UpdateFragment) - before;
        let is_enough = if bulk == Bulk::Never { fragments == 0 } else { fragments * 4 >= count };
        assert!(is_enough, "{name}, {bulk:?}: {fragments} update fragments");
        // What is held goes with it, as where space is short.
        database.give_up_versions();
        // A statement that lost its wait leaves its fragment's last writes behind.
        assert_no_leak_soon(&database).await;
    }
    let activity = database.activity();
    let (stages, reused) = (activity.count(Act::Stage), activity.count(Act::ReusedResult));
    assert_eq!(stages > 0, way.contains(&"stages = always"), "{stages} stages");
    // Stages are too seldom read again before a write for each run of a history to have one that is.
    assert_eq!(reused > 0, way == REUSED, "{reused} reused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_read_on_the_host() {
    all_levels("embedded", &ON_THE_HOST, Bulk::Never, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_read_on_the_device() {
    all_levels("embedded", &REUSED, Bulk::Never, 15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_read_on_a_remote_device() {
    all_levels("remote", &ON_THE_DEVICE, Bulk::Never, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_with_bulk_updates() {
    all_levels("embedded", &REUSED, Bulk::Updates, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_with_bulk_updates_and_deletes() {
    all_levels("embedded", &ON_THE_DEVICE, Bulk::UpdatesAndDeletes, 30).await;
}

/// Each list lies on one of three tablets, so a statement runs as several fragments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_with_bulk_changes_on_a_remote_device() {
    all_levels("remote", &IN_TABLETS, Bulk::UpdatesAndDeletes, 15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_with_loads() {
    all_levels("embedded", &STAGED, Bulk::Loads, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_with_loads_on_a_remote_device() {
    all_levels("remote", &IN_TABLETS, Bulk::Loads, 20).await;
}

/// The check finds the anomalies where they exist: in what REPEATABLE READ allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_with_write_skew_is_found_out() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("embedded", outside.path()).await;
    for level in [1, 2] {
        let mut session = lists(&database, "embedded", 1).await;
        let mut one = Recorder::new(&database, &ON_THE_HOST, 1).await;
        let mut two = Recorder::new(&database, &ON_THE_DEVICE, 2).await;
        one.begin(LEVELS[level]).await;
        two.begin(LEVELS[level]).await;
        one.read(0).await.unwrap();
        two.read_all().await.unwrap();
        one.append(1).await.unwrap();
        two.append(0).await.unwrap();
        run(&mut one.session, "COMMIT").await;
        one.end(true);
        if level == 2 {
            assert_eq!(refused(&mut two.session, "COMMIT").await.sqlstate(), "40001");
            two.end(false);
        } else {
            run(&mut two.session, "COMMIT").await;
            two.end(true);
        }
        one.done.append(&mut two.done);
        let found = check(&one.done, &ends(&mut session).await);
        let found: Vec<Anomaly> = found.iter().map(|finding| finding.anomaly).collect();
        assert_eq!(found, if level == 1 { vec![Anomaly::WriteSkew] } else { vec![] });
    }
}
