//! A device process beside its hosts: shared memory, and the death of either side by SIGKILL.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use crate::program::{cleave, sql, terminate};

/// A process that is killed, as by `kill -9`, when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn device(folder: &Path) -> Self {
        let socket = folder.join("device.sock");
        let mut process = Self::device_at(folder, &["--local", socket.to_str().unwrap()]);
        // A socket left by a dead device refuses connections.
        while std::os::unix::net::UnixStream::connect(folder.join("device.sock")).is_err() {
            assert!(process.0.try_wait().unwrap().is_none(), "{}", log(folder));
            std::thread::park_timeout(Duration::from_millis(5));
        }
        process
    }

    pub(crate) fn of(child: Child) -> Self {
        Self(child)
    }

    /// What it said when it had ended because a statement failed.
    #[track_caller]
    pub(crate) fn failed(mut self) -> String {
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(3), "{said}");
        said
    }

    /// A device behind TCP, whose token is in the file `token`; port 0: a free one, which the file `port` then names.
    pub(crate) fn remote_device(folder: &Path, port: u16) -> Self {
        let (token, ready) = (folder.join("token"), folder.join("port"));
        drop(std::fs::remove_file(&ready));
        let listen = format!("127.0.0.1:{port}");
        let [token, ready] = [&token, &ready].map(|path| path.to_str().unwrap());
        let address = ["--listen", &listen, "--token-file", token, "--port-file", ready];
        let mut process = Self::device_at(folder, &address);
        while std::fs::read_to_string(ready).map_or(true, |text| text.is_empty()) {
            assert!(process.0.try_wait().unwrap().is_none(), "{}", log(folder));
            std::thread::park_timeout(Duration::from_millis(5));
        }
        process
    }

    fn device_at(folder: &Path, address: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .arg("device-process")
            .arg("--media")
            .arg(folder.join("media"))
            .args(address)
            .stderr(File::create(folder.join("log")).unwrap())
            .spawn();
        Self(child.unwrap())
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        terminate(&self.0);
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) {
        assert!(self.0.wait().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Number of shared memory regions that the process has mapped.
    fn region_count(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap();
        maps.lines().filter(|line| line.contains("memfd:cleave")).count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap()
}

/// A host that has run one statement and waits for the next.
struct Host {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Host {
    fn counting(database: &Path, expected: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .args(["sql", "--create", "--format", "csv", "--set", "split=h0", "--db"])
            .arg(database)
            .args(["-c", "SELECT count(*) AS n FROM t", "-f", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut host = Self { process: Process(child), input, output: BufReader::new(output) };
        for expected in ["n", expected] {
            let mut line = String::new();
            host.output.read_line(&mut line).unwrap();
            assert_eq!(line.trim_end(), expected);
        }
        host
    }

    /// Runs `statement`, which must fail; returns the host's message.
    fn fail(self, statement: &str) -> String {
        let Self { process, mut input, .. } = self;
        input.write_all(statement.as_bytes()).unwrap();
        drop(input);
        process.failed()
    }
}

#[test]
fn hosts_and_devices_survive_each_other() {
    let place = tempdir().unwrap();
    let database = place.path().join("db");
    let socket = place.path().join("device.sock");
    let rows: String = (1..=1000).map(|id| format!("{id},name {id}\n")).collect();
    std::fs::write(place.path().join("t.csv"), rows).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();

    let (folder, at) = (text(&database), text(&socket));
    let add = ["device", "add", "near", "--create", "--db", &folder, "--local", &at];
    let address = format!("local:{at}");
    let refusal = cleave(&add).fails(2);
    assert!(refusal.contains(&address), "{refusal}");
    let mut device = Process::device(place.path());
    let attached = cleave(&add).ok();
    assert!(attached.contains(&address), "{attached}");
    let table = "CREATE TABLE t (id integer PRIMARY KEY, name text)";
    sql(&database, &["--set", "default_device=near", "-c", table]).ok();
    cleave(&["load", "--db", &text(&database), "t", &text(&place.path().join("t.csv"))]).ok();
    let listed = cleave(&["device", "list", "--db", &text(&database)]).ok();
    assert!(listed.contains(&address) && listed.contains("1 tables"), "{listed}");

    // A host dies: the device releases the memory shared with it, and serves the next one.
    let mut host = Host::counting(&database, "1000");
    assert!(device.region_count() > 0, "{}", log(place.path()));
    host.process.kill();
    while device.region_count() > 0 {
        std::thread::park_timeout(Duration::from_millis(5));
    }

    // The device dies: the statement that needs it fails, and works when it is back at the same socket.
    let host = Host::counting(&database, "1000");
    device.kill();
    let said = host.fail("SELECT sum(id) AS s FROM t;\n");
    assert!(said.contains("58030") && said.contains(&address), "{said}");
    let _device = Process::device(place.path());
    let sum = sql(&database, &["--format", "csv", "-c", "SELECT sum(id) AS s FROM t"]).ok();
    assert_eq!(sum, "s\n500500\n");
}

#[test]
fn a_profile_is_printed_for_people_and_for_programs() {
    let place = tempdir().unwrap();
    let folder = place.path().join("db").to_str().unwrap().to_owned();
    let socket = place.path().join("device.sock").to_str().unwrap().to_owned();
    let _device = Process::device(place.path());
    cleave(&["device", "add", "near", "--create", "--db", &folder, "--local", &socket]).ok();
    let profile = |more: &[&str]| {
        let arguments = [&["device", "profile", "near", "--db", &folder], more].concat();
        cleave(&arguments).ok()
    };
    let table = profile(&[]);
    for wanted in ["join, probe", "media, write in order", "round trip, 4096 bytes", "measured"] {
        assert!(table.contains(wanted), "{wanted} in {table}");
    }
    let json = profile(&["--json"]);
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rate = rows.as_array().unwrap().iter().find(|row| row["figure"] == "rate").unwrap();
    assert!(rate["value"].as_f64().unwrap() > 1e5, "{rate}");
    // Kept, it is the same to the last digit; measured again, it differs.
    assert_eq!(profile(&["--json"]), json);
    assert_ne!(profile(&["--json", "--again"]), json);
    let described = cleave(&["device", "profile", "cosmos-plus", "--published"]).ok();
    assert!(described.contains("described") && described.contains("hybridNDP"), "{described}");
    let refusal = cleave(&["device", "profile", "nothing", "--published"]).fails(1);
    assert!(refusal.contains("cosmos-plus, alveo-u280, smartssd"), "{refusal}");
}
