//! `kill -9` of a host or of a device amid statements that update fragments run: what was acknowledged is there, and
//! every other transaction whole or not at all.
//!
//! Turn n sets `v` of all rows to n. Every second turn is a block: it deletes some rows as well, and a row of another
//! table notes the turn. So the rows tell which turns are there, and whether one is there in part.
//!
//! Where `v` is the key of an index, the rows are replaced by others. Then a block also inserts them into a table of
//! copies, and makes a table of them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use cleave_media::Stopwatch;
use tempfile::{TempDir, tempdir};

use crate::local_device::Process;
use crate::program::{cleave, sql};

/// Instants at which somebody is killed, spread over two turns.
const KILLS: u32 = 6;
/// A block deletes one row of so many.
const CYCLE: u64 = 5_000;
/// More turns than there is time for.
const TURNS_MAX: u64 = 3_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Embedded,
    /// Memory that host and device share.
    Local,
    Remote,
}

/// The fragments that run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    /// Those that change pages and let rows die.
    Changing,
    /// Those that write rows as new pages.
    Writing,
}

impl Kinds {
    /// Rows of the table at first.
    fn rows(self) -> u64 {
        match self {
            Self::Changing => 20_000,
            // A turn writes all of them several times.
            Self::Writing => CYCLE,
        }
    }
}

/// A database, and the device process that has its table.
struct World {
    place: TempDir,
    at: Where,
    kinds: Kinds,
    device: Option<Process>,
}

impl World {
    fn new(at: Where, kinds: Kinds) -> Self {
        let place = tempdir().unwrap();
        let mut world = Self { place, at, kinds, device: None };
        let db = world.database();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        sql(&db, &["-c", "SELECT 1"]).ok();
        let add = ["device", "add", "other", "--db", &text(&db)];
        let token = world.place.path().join("token");
        let address = match at {
            Where::Embedded => None,
            Where::Local => {
                Some(["--local".to_owned(), text(&world.place.path().join("device.sock"))])
            }
            Where::Remote => {
                let secret = b"0123456789abcdef0123456789abcdef";
                cleave_media::files::write_durably(&token, secret).unwrap();
                world.start_device(0);
                Some(["--address".to_owned(), format!("127.0.0.1:{}", world.port())])
            }
        };
        if at == Where::Local {
            world.start_device(0);
        }
        if let Some(address) = address {
            let mut arguments: Vec<&str> = add.to_vec();
            arguments.extend(address.iter().map(String::as_str));
            let token = text(&token);
            if at == Where::Remote {
                arguments.extend(["--token-file", &token]);
            }
            cleave(&arguments).ok();
        }
        let device = world.device_name();
        let columns = "(id int PRIMARY KEY, v int NOT NULL, note text)";
        let mut create = format!("CREATE TABLE t {columns} WITH (device = {device});");
        if kinds == Kinds::Writing {
            let copies = format!("CREATE TABLE copies {columns} WITH (device = {device})");
            create = format!("{create} CREATE INDEX t_v ON t (v); {copies}");
        }
        let fill = format!(
            "INSERT INTO t SELECT i, 0, 'note ' || i FROM generate_series(1, {}) AS g (i)",
            kinds.rows()
        );
        let turns = "CREATE TABLE turn (id int PRIMARY KEY, n int); INSERT INTO turn VALUES (1, 0)";
        sql(&db, &["-c", &create, "-c", &fill, "-c", turns, "-c", "CHECKPOINT"]).ok();
        let mut statements = vec!["UPDATE t SET v = 1", "DELETE FROM t WHERE id % 5000 = 1"];
        if kinds == Kinds::Writing {
            statements.push("INSERT INTO copies SELECT id, v, note FROM t");
        }
        for statement in statements {
            let explain = format!("EXPLAIN {statement}");
            let plan = sql(&db, &["--set", "update_placement=device", "-c", &explain]).ok();
            let is_chosen = |line: &str| line.contains("by pages") && line.contains("chosen");
            assert!(plan.lines().any(is_chosen), "{statement} is to run as a fragment: {plan}");
        }
        world
    }

    fn database(&self) -> PathBuf {
        self.place.path().join("db")
    }

    fn device_name(&self) -> &'static str {
        if self.at == Where::Embedded { "embedded" } else { "other" }
    }

    fn port(&self) -> u16 {
        let text = std::fs::read_to_string(self.place.path().join("port")).unwrap();
        text.trim().parse().unwrap()
    }

    fn start_device(&mut self, port: u16) {
        self.device = match self.at {
            Where::Embedded => None,
            Where::Local => Some(Process::device(self.place.path())),
            Where::Remote => Some(Process::remote_device(self.place.path(), port)),
        };
    }

    /// A host that runs the turns behind `last`, and says which of them are done.
    fn host(&self, last: u64) -> (Process, Receiver<u64>) {
        let script = self.place.path().join("turns.sql");
        let device = self.device_name();
        let turns = (last + 1..=last + TURNS_MAX).map(|turn| {
            let update = format!("UPDATE t SET v = {turn};");
            let copy = match self.kinds {
                Kinds::Changing => String::new(),
                Kinds::Writing => format!(
                    "DELETE FROM copies; INSERT INTO copies SELECT id, v, note FROM t; \
                     DROP TABLE IF EXISTS made; \
                     CREATE TABLE made WITH (device = {device}) AS SELECT id, v FROM t;"
                ),
            };
            let all = match turn % 2 {
                0 => format!(
                    "BEGIN; {update} DELETE FROM t WHERE id % {CYCLE} = {turn}; {copy} \
                     UPDATE turn SET n = {turn}; COMMIT;"
                ),
                _ => update,
            };
            format!("{all} SELECT {turn} AS done;")
        });
        std::fs::write(&script, turns.collect::<Vec<_>>().join("\n")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .args([
                "sql",
                "--create",
                "--format",
                "csv",
                "--set",
                "update_placement=device",
                "--db",
            ])
            .arg(self.database())
            .arg("-f")
            .arg(&script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, done) = channel();
        let reading = std::thread::Builder::new().spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            // The test may have seen enough.
            let mut turns = lines.filter_map(|line| line.parse::<u64>().ok());
            turns.all(|turn| sender.send(turn).is_ok());
        });
        drop(reading.unwrap());
        (Process::of(child), done)
    }

    /// The last turn that is there, of which nothing is missing, where `acknowledged` was told of.
    fn last_turn(&self, acknowledged: u64, what: &str) -> u64 {
        let db = self.database();
        let check = cleave(&["check", "--db", db.to_str().unwrap()]);
        assert!(check.stderr.contains("everything holds"), "{what}: {check:?}");
        let query = "SELECT min(v), max(v), count(*), max(n) FROM t, turn";
        let rows_after = |turn: u64| self.kinds.rows() - turn / 2 * (self.kinds.rows() / CYCLE);
        let mut last = None;
        for split in ["split=host", "split=auto"] {
            let found = sql(&db, &["--format", "csv", "--set", split, "-c", query]).ok();
            let numbers =
                found.lines().nth(1).unwrap().split(',').map(|text| text.parse().unwrap());
            let numbers: Vec<u64> = numbers.collect();
            let turn = numbers[0];
            let noted = turn - turn % 2;
            assert_eq!(numbers, [turn, turn, rows_after(turn), noted], "{what}, {split}");
            assert!(last.is_none_or(|last| last == turn), "{what}, {split}: {turn}");
            last = Some(turn);
            if self.kinds == Kinds::Writing && noted > 0 {
                let rows = format!("{noted},{noted},{}", rows_after(noted));
                for table in ["copies", "made"] {
                    let query = format!("SELECT min(v), max(v), count(DISTINCT id) FROM {table}");
                    let found = sql(&db, &["--format", "csv", "--set", split, "-c", &query]).ok();
                    assert_eq!(found.lines().nth(1), Some(&*rows), "{what}, {split}, {table}");
                }
            }
        }
        let last = last.unwrap();
        let told = acknowledged..=acknowledged + 1;
        assert!(told.contains(&last), "{what}: {last} is there, {acknowledged} was acknowledged");
        last
    }
}

/// Lets a host run, and `kill` somebody a while after its first turns.
fn killed_at_any_instant(at: Where, kinds: Kinds, kill: impl Fn(&mut World, Process)) {
    let mut world = World::new(at, kinds);
    let (host, done) = world.host(0);
    done.recv().unwrap();
    let watch = Stopwatch::start();
    let mut last = 0;
    for _ in 0..4 {
        last = done.recv().unwrap();
    }
    let two_turns = watch.elapsed() / 2;
    let mut between = 0;
    let mut running = Some((host, done));
    for part in 0..=KILLS {
        let (host, done) = match running.take() {
            Some(running) => running,
            None => {
                let (host, done) = world.host(last);
                last = done.recv().unwrap();
                (host, done)
            }
        };
        let what = format!("killed {part} of {KILLS} parts of {two_turns:?} after turn {last}");
        std::thread::park_timeout(two_turns * part / KILLS);
        kill(&mut world, host);
        // The channel ends with the host.
        let acknowledged = done.iter().last().unwrap_or(last);
        last = world.last_turn(acknowledged, &what);
        between += u64::from(last == acknowledged);
    }
    assert!(between > 0, "every transaction ended before its host");
}

fn kill_the_host(_: &mut World, mut host: Process) {
    host.kill();
}

fn kill_the_device(world: &mut World, host: Process) {
    let port = if world.at == Where::Remote { world.port() } else { 0 };
    world.device.as_mut().unwrap().kill();
    let said = host.failed();
    assert!(said.contains("58030"), "{said}");
    world.start_device(port);
}

#[test]
fn a_host_killed_amid_update_fragments_has_whole_transactions() {
    killed_at_any_instant(Where::Embedded, Kinds::Changing, kill_the_host);
}

#[test]
fn so_it_has_where_a_remote_device_runs_them() {
    killed_at_any_instant(Where::Remote, Kinds::Changing, kill_the_host);
}

#[test]
fn a_remote_device_killed_amid_update_fragments_leaves_whole_transactions() {
    killed_at_any_instant(Where::Remote, Kinds::Changing, kill_the_device);
}

#[test]
fn so_does_a_device_that_shares_memory_with_its_host() {
    killed_at_any_instant(Where::Local, Kinds::Changing, kill_the_device);
}

#[test]
fn a_host_killed_amid_fragments_that_write_rows_has_whole_transactions() {
    killed_at_any_instant(Where::Embedded, Kinds::Writing, kill_the_host);
}

#[test]
fn a_remote_device_killed_amid_fragments_that_write_rows_leaves_whole_transactions() {
    killed_at_any_instant(Where::Remote, Kinds::Writing, kill_the_device);
}

#[test]
fn a_local_device_killed_amid_fragments_that_write_rows_leaves_whole_transactions() {
    killed_at_any_instant(Where::Local, Kinds::Writing, kill_the_device);
}
