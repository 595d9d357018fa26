//! `cleaved` as a process: it starts, serves, is killed, starts again; and what it says when misused.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::command::{CommandHeader, DeviceErrorCause, Reply, Request};
use cleave_fragment::link::Link;
use cleave_media::BLOCK_SIZE;

use crate::bench::{
    Bench, Credentials, ROW_COUNT, TOKEN, drain, extent, memory, scan, table_pages,
};

struct Place {
    directory: tempfile::TempDir,
    credentials: Credentials,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::new();
        std::fs::write(directory.path().join("token"), format!("{TOKEN}\n")).unwrap();
        std::fs::write(directory.path().join("cert.pem"), &credentials.certificate).unwrap();
        std::fs::write(directory.path().join("key.pem"), &credentials.key).unwrap();
        Self { directory, credentials }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `cleaved` with all it needs, listening on `listen`.
    fn command(&self, listen: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleaved"));
        command
            .arg("--media")
            .arg(self.path("media"))
            .args(["--listen", listen, "--cores", "2", "--memory=64MiB"])
            .arg("--token-file")
            .arg(self.path("token"))
            .arg("--port-file")
            .arg(self.path("port"))
            .stderr(Stdio::piped());
        command
    }

    fn command_with_tls(&self, listen: &str) -> Command {
        let mut command = self.command(listen);
        command.arg("--tls-cert").arg(self.path("cert.pem"));
        command.arg("--tls-key").arg(self.path("key.pem"));
        command
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The port that `process` writes to `path`, once it does.
async fn port(process: &mut Process, path: &Path) -> u16 {
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text.trim().parse().unwrap();
        }
        let ended = process.0.try_wait().unwrap();
        assert!(ended.is_none(), "it ended before it listened: {ended:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn run(mut command: Command) -> (i32, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    (status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn it_serves_is_killed_and_serves_again() {
    let place = Place::new();
    let mut process = Process(place.command_with_tls("127.0.7.3:0").spawn().unwrap());
    let port_taken = port(&mut process, &place.path("port")).await;
    let address = SocketAddr::from(([127, 0, 7, 3], port_taken));
    let link: Arc<dyn Link> = place.credentials.connect(address).await.unwrap();
    let bench = Bench::of(link, memory(), None).await;
    let morsels = bench.load().await;
    let Reply::Identity(before) = bench.call(Request::Identify).await.unwrap() else { panic!() };
    assert_eq!((before.cores, before.fragment_memory_bytes), (2, 64 << 20));
    let mut stream = bench.execute(bench.request(1, &scan(None), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ROW_COUNT).collect::<Vec<_>>());

    // The media belongs to one process.
    let (code, text) = run(place.command_with_tls("127.0.0.1:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("in use by another process"), "{text}");

    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert!(bench.read_blocks(extent(0, 1)).await.unwrap_err().is_unreachable());
    // What the dead device left must not be taken for the new one's.
    std::fs::write(place.path("port"), "1\n").unwrap();
    let mut process = Process(place.command_with_tls(&address.to_string()).spawn().unwrap());
    while port(&mut process, &place.path("port")).await == 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(port(&mut process, &place.path("port")).await, port_taken);
    let (bytes, _) = table_pages();
    assert_eq!(bench.read_blocks(extent(0, 1)).await.unwrap(), bytes[..BLOCK_SIZE]);
    let Reply::Identity(after) = bench.call(Request::Identify).await.unwrap() else { panic!() };
    assert_eq!(before.device, after.device, "the identity stays with the media");
}

#[tokio::test]
async fn it_ends_with_the_program_that_started_it() {
    let place = Place::new();
    let mut command = place.command("127.0.0.1:0");
    let child = command.arg("--until-stdin-closes").stdin(Stdio::piped()).spawn().unwrap();
    let mut process = Process(child);
    port(&mut process, &place.path("port")).await;
    assert!(process.0.try_wait().unwrap().is_none());
    drop(process.0.stdin.take());
    let status = process.0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn it_says_what_it_makes_and_how_it_listens() {
    let place = Place::new();
    let mut command = place.command("127.0.0.1:0");
    command.arg("--until-stdin-closes").stdin(Stdio::null());
    let (code, text) = run(command);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("is not there: making it, empty"), "{text}");
    assert!(text.contains("gave the media the identity"), "{text}");
    assert!(text.contains("listening on 127.0.0.1:") && text.contains("without TLS"), "{text}");
    assert!(!text.contains(TOKEN), "a token is never shown: {text}");
}

#[test]
fn misuse_is_explained() {
    let cleaved = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleaved"));
        command.args(arguments);
        run(command)
    };
    for (arguments, expected) in [
        (&["--media"][..], "--media needs a value"),
        (&["--media", "x", "--listen", "127.0.0.1:0"], "--token-file or --token-env is needed"),
        (&["--media", "x"], "--listen or --local is needed"),
        (&["--media", "x", "--local", "s", "--token-env", "X"], "--token-env goes with --listen"),
        (&["--listen", "127.0.0.1:0"], "--media is needed"),
        (&["--media", "x", "--listen", "nonsense", "--token-env", "X"], "HOST:PORT"),
        (&["--cores", "0"], "from 1 to 1024"),
        (&["--memory", "12 parsecs"], "--memory takes bytes"),
        (&["--rate-cap", "99999999999999999999"], "--rate-cap takes bytes"),
        (&["--frobnicate"], "unknown argument --frobnicate"),
    ] {
        let (code, text) = cleaved(arguments);
        assert_eq!(code, 1, "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    let (code, text) = cleaved(&["--help"]);
    assert!(code == 0 && text.contains("Usage: cleaved"), "{text}");
    let (code, text) = cleaved(&["--version"]);
    assert!(code == 0 && text.starts_with("cleaved 0."), "{text}");
}

#[test]
fn what_cannot_start_says_why() {
    let place = Place::new();
    // Off this machine without TLS.
    let (code, text) = run(place.command("0.0.0.0:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("can be reached from other machines"), "{text}");
    assert!(!place.path("media").exists(), "nothing was made for a device that may not start");
    // A token that is too short.
    std::fs::write(place.path("token"), "secret\n").unwrap();
    let (code, text) = run(place.command("127.0.0.1:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("16 to 1024") && !text.contains("secret"), "{text}");
    std::fs::remove_file(place.path("token")).unwrap();
    let (code, text) = run(place.command("127.0.0.1:0"));
    assert!(code == 2 && text.contains("cannot read a token"), "{text}");
    // A key that is none.
    std::fs::write(place.path("token"), TOKEN).unwrap();
    std::fs::write(place.path("key.pem"), "not a key").unwrap();
    let (code, text) = run(place.command_with_tls("127.0.0.1:0"));
    assert!(code == 2 && text.contains("private key"), "{text}");
    // An identity that is none.
    std::fs::write(place.path("media.id"), "12345").unwrap();
    let (code, text) = run(place.command("127.0.0.1:0"));
    assert!(code == 2 && text.contains("32 hexadecimal digits"), "{text}");
}

#[tokio::test]
async fn it_remembers_whose_it_is_until_it_is_handed_over() {
    let place = Place::new();
    let claim = async |database: [u8; 16], hand_over: bool| {
        let mut command = place.command_with_tls("127.0.0.1:0");
        if hand_over {
            command.arg("--hand-over");
        }
        drop(std::fs::remove_file(place.path("port")));
        let mut process = Process(command.spawn().unwrap());
        let port = port(&mut process, &place.path("port")).await;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let link: Arc<dyn Link> = place.credentials.connect(address).await.unwrap();
        let header = CommandHeader { database, epoch: 1, ..CommandHeader::default() };
        let claim = Request::Claim { opening: u64::from(database[0]), after: 0 };
        link.call(cleave_fragment::command::Command::new(header, claim)).await
    };
    assert_eq!(claim([1; 16], false).await.unwrap(), Reply::Done);
    let (cause, message) = crate::bench::device_error(claim([2; 16], false).await);
    assert_eq!(cause, DeviceErrorCause::OtherDatabase);
    assert!(message.contains("--hand-over"), "{message}");
    assert_eq!(claim([1; 16], false).await.unwrap(), Reply::Done, "a repeated claim");
    assert_eq!(claim([2; 16], true).await.unwrap(), Reply::Done);
    assert_eq!(
        crate::bench::device_error(claim([1; 16], false).await).0,
        DeviceErrorCause::OtherDatabase
    );

    let record = place.path("media.id.owner");
    let mut bytes = std::fs::read(&record).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&record, bytes).unwrap();
    let (code, text) = run(place.command_with_tls("127.0.0.1:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("media.id.owner") && text.contains("--hand-over"), "{text}");
}
