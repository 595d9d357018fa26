//! `cleaved` as a process: it starts, serves, is killed, starts again; and what it says when misused.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use bytes::Bytes;
use cleave_device::OwnerRecord;
use cleave_fragment::Broadcast;
use cleave_fragment::command::slot::encode_schema;
use cleave_fragment::command::wire::{
    Frame, FrameKind, read_frame, read_welcome, write_frame, write_hello,
};
use cleave_fragment::command::{
    CommandHeader, DeviceErrorCause, Execute, Ownership, Payload, Reply, Request,
};
use cleave_fragment::link::{AbandonedRuns, Link, LinkError, Token};
use cleave_media::BLOCK_SIZE;
use cleave_media::files::write_durably;
use tokio::net::TcpStream;

use crate::bench::{
    Bench, Credentials, ROW_COUNT, TOKEN, connect_remote, drain, extent, memory, scan, table_pages,
    token,
};

struct Place {
    directory: tempfile::TempDir,
    credentials: Credentials,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::new();
        let token = format!("{TOKEN}\n");
        write_durably(&directory.path().join("token"), token.as_bytes()).unwrap();
        std::fs::write(directory.path().join("cert.pem"), &credentials.certificate).unwrap();
        let key = directory.path().join("key.pem");
        write_durably(&key, credentials.key.as_bytes()).unwrap();
        Self { directory, credentials }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `cleaved` with all required options, listening on `listen`.
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
    let is_private = |name: &str| {
        let found = std::fs::metadata(place.path(name)).unwrap();
        found.permissions().mode() & 0o077 == 0
    };
    assert!(["media", "media.id", "media.id.owner"].into_iter().all(is_private));
    let mut stream = bench.execute(bench.request(1, &scan(None), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ROW_COUNT).collect::<Vec<_>>());

    // The media belongs to one process.
    let (code, text) = run(place.command_with_tls("127.0.0.1:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("in use by another process"), "{text}");

    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert!(bench.read_blocks(extent(0, 1)).await.unwrap_err().is_unreachable());
    // A dead device's port must not be taken for the new one's.
    std::fs::write(place.path("port"), "1\n").unwrap();
    // As earlier versions may have left it.
    std::fs::set_permissions(place.path("media"), Permissions::from_mode(0o644)).unwrap();
    let mut process = Process(place.command_with_tls(&address.to_string()).spawn().unwrap());
    while port(&mut process, &place.path("port")).await == 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(port(&mut process, &place.path("port")).await, port_taken);
    assert!(is_private("media"));
    let (bytes, _) = table_pages();
    assert_eq!(bench.read_blocks(extent(0, 1)).await.unwrap(), bytes[..BLOCK_SIZE]);
    let Reply::Identity(after) = bench.call(Request::Identify).await.unwrap() else { panic!() };
    assert_eq!(before.device, after.device, "the identity stays with the media");
}

/// The most memory that `process` has had, in MiB.
fn peak_mib(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// `bytes` as field `tag`, below 16, of a message.
fn inside(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![tag << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    message.push(u8::try_from(length).unwrap());
    message.extend_from_slice(bytes);
    message
}

#[tokio::test]
async fn numbers_in_executes_stay_within_its_memory() {
    let place = Place::new();
    let mut process = Process(place.command("127.0.0.1:0").spawn().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port(&mut process, &place.path("port")).await));
    let token = Token::new(TOKEN, "a test").unwrap();
    let before = peak_mib(&process);
    // Slots of dead rows: 15 MB of numbers of one byte, over several connections.
    let head = inside(3, &inside(2, &inside(3, &inside(4, &vec![1; 15 << 20]))));
    let mut sockets = Vec::new();
    for request in 1..22 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        write_hello(&mut socket, Some(&token)).await.unwrap();
        read_welcome(&mut socket).await.unwrap().unwrap();
        let frame = Frame::of_head(FrameKind::Execute, request, head.clone());
        write_frame(&mut socket, &frame).await.unwrap();
        sockets.push(socket);
    }
    for socket in &mut sockets {
        let answer = read_frame(socket).await.unwrap().unwrap();
        assert_eq!(answer.kind, FrameKind::Error);
    }
    let grown = peak_mib(&process) - before;
    // The frames themselves, each of which is read whole before it is checked.
    assert!(grown < 400, "{grown} MiB");
}

#[tokio::test]
async fn broadcasts_that_claim_more_than_they_are_leave_it_as_it_was() {
    let place = Place::new();
    let mut process = Process(place.command_with_tls("127.0.0.1:0").spawn().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port(&mut process, &place.path("port")).await));
    let link: Arc<dyn Link> = place.credentials.connect(address).await.unwrap();
    let bench = Bench::of(link, memory(), None).await;
    let morsels = bench.load().await;
    // Zeros, of which 64 MiB become a few hundred kilobytes.
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![0; 8 << 20]));
    let schema = Schema::new(vec![Field::new("c", DataType::Int64, true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![numbers]).unwrap();
    let schema: Bytes = encode_schema(&batch.schema()).unwrap().into();
    let before = peak_mib(&process);
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let mut tracker = DictionaryTracker::new(false);
        let (_, message) = IpcDataGenerator::default()
            .encode(&batch, &mut tracker, &options, &mut Default::default())
            .unwrap();
        let mut piece = Vec::new();
        write_message(&mut piece, message, &options).unwrap();
        assert!(piece.len() < 1 << 20, "{}", piece.len());
        let pieces = vec![Payload::new(piece.into()); 4];
        let mut request = bench.request(1, &scan(None), &morsels);
        request.broadcasts = vec![Broadcast { input: 0, schema: schema.clone(), pieces }];
        let Err(LinkError::Device { source, .. }) = bench.link.execute(request).await else {
            panic!("what is compressed was taken");
        };
        assert!(source.message.contains("compressed"), "{source}");
    }
    let grown = peak_mib(&process) - before;
    assert!(grown < 32, "{grown} MiB");
}

#[tokio::test]
async fn a_fragment_of_more_structures_than_memory_leaves_it_as_it_was() {
    let place = Place::new();
    let mut process = Process(place.command_with_tls("127.0.0.1:0").spawn().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port(&mut process, &place.path("port")).await));
    let link: Arc<dyn Link> = place.credentials.connect(address).await.unwrap();
    let bench = Bench::of(link, memory(), None).await;
    let morsels = bench.load().await;
    let before = peak_mib(&process);
    // An empty field that plans have, eight million times.
    for tag in 1..16_u8 {
        let mut request = bench.request(u64::from(tag), &scan(None), &morsels);
        request.fragment = [tag << 3 | 2, 0].repeat((16 << 20) / 2).into();
        let (cause, message) = crate::bench::device_error(bench.link.execute(request).await);
        assert_eq!(cause, DeviceErrorCause::Unsupported);
        assert!(message.contains("fields"), "{message}");
    }
    let after = peak_mib(&process);
    assert!(after < before + 200, "{before} MiB, then {after} MiB");
    let mut stream = bench.execute(bench.request(99, &scan(None), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
}

#[tokio::test]
async fn each_media_is_a_device_and_all_are_a_node() {
    let place = Place::new();
    let mut command = place.command("127.0.0.1:0");
    command.args(["--node", "n1", "--media"]).arg(place.path("second"));
    command.args(["--listen", "127.0.0.1:0", "--cores=1", "--port-file"]).arg(place.path("port2"));
    let mut process = Process(command.spawn().unwrap());
    let mut benches = Vec::new();
    let mut devices = Vec::new();
    for (name, cores) in [("port", 2), ("port2", 1)] {
        let port = port(&mut process, &place.path(name)).await;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let link = connect_remote(address, token(), None, None, AbandonedRuns::default());
        let bench = Bench::of(link.await.unwrap(), memory(), None).await;
        let Reply::Identity(identity) = bench.call(Request::Identify).await.unwrap() else {
            panic!()
        };
        assert_eq!((identity.node.as_str(), identity.cores), ("n1", cores));
        devices.push(identity.device);
        benches.push(bench);
    }
    assert_ne!(devices[0], devices[1]);
    let morsels = benches[1].load().await;
    let request = benches[1].request(1, &scan(None), &morsels);
    let request = Execute { partitions: 0, lends: true, ..request };
    let mut stream = benches[1].execute(request).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ROW_COUNT).collect::<Vec<_>>());
    assert_eq!(stream.report().unwrap().partitions, 1);
    assert!(place.path("second.id").exists());
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
        (&["--node", "n1:d1"], "--node takes up to 63 letters"),
        (&["--media", "x", "--local", "s", "--media", "y"], "--listen or --local is needed"),
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
    write_durably(&place.path("token"), b"secret\n").unwrap();
    let (code, text) = run(place.command("127.0.0.1:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("16 to 1024") && !text.contains("secret"), "{text}");
    std::fs::remove_file(place.path("token")).unwrap();
    let (code, text) = run(place.command("127.0.0.1:0"));
    assert!(code == 2 && text.contains("cannot read a token"), "{text}");
    // A malformed key.
    write_durably(&place.path("token"), TOKEN.as_bytes()).unwrap();
    write_durably(&place.path("key.pem"), b"not a key").unwrap();
    let (code, text) = run(place.command_with_tls("127.0.0.1:0"));
    assert!(code == 2 && text.contains("private key"), "{text}");
    // A token and a key that others may read.
    for (name, what) in [("key.pem", "a private key"), ("token", "a token")] {
        std::fs::set_permissions(place.path(name), Permissions::from_mode(0o640)).unwrap();
        let (code, text) = run(place.command_with_tls("127.0.0.1:0"));
        assert!(code == 2 && text.contains(&format!("cannot read {what}")), "{text}");
        assert!(text.contains("group or world access"), "{text}");
    }
    write_durably(&place.path("token"), TOKEN.as_bytes()).unwrap();
    // A malformed identity.
    std::fs::write(place.path("media.id"), "12345").unwrap();
    let (code, text) = run(place.command("127.0.0.1:0"));
    assert!(code == 2 && text.contains("32 hexadecimal digits"), "{text}");
}

/// Starts a device in `place`, and claims it for `database`.
async fn claim(place: &Place, database: [u8; 16], hand_over: bool) -> Result<Reply, LinkError> {
    let mut command = place.command_with_tls("127.0.0.1:0");
    if hand_over {
        command.arg("--hand-over");
    }
    drop(std::fs::remove_file(place.path("port")));
    let mut process = Process(command.spawn().unwrap());
    let port = port(&mut process, &place.path("port")).await;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let link: Arc<dyn Link> = place.credentials.connect(address).await.unwrap();
    let incarnation = u64::from(database[0]);
    let header = CommandHeader { database, epoch: 1, incarnation, ..CommandHeader::default() };
    let claim = Request::Claim { after: 0 };
    link.call(cleave_fragment::command::Command::new(header, claim)).await
}

/// A loop device over a file, removed when dropped.
struct Loop {
    device: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    /// `None`, with a message, if this user may not make one.
    #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
    fn new(block_count: u64) -> Option<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(block_count * BLOCK_SIZE as u64).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        match made {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap();
                Some(Self { device: device.trim().into(), _file: file })
            }
            other => {
                eprintln!("skipped: no loop device can be made here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.is_ok_and(|status| status.success()), "{}", self.device.display());
    }
}

#[tokio::test]
async fn a_block_device_remembers_on_another_machine_whose_it_is() {
    let Some(disk) = Loop::new(1000) else { return };
    // Each place is a machine to which only the disk is moved.
    let machine = || {
        let place = Place::new();
        std::os::unix::fs::symlink(&disk.device, place.path("media")).unwrap();
        place
    };
    let refused = async |place: &Place, database| {
        let (cause, message) = crate::bench::device_error(claim(place, database, false).await);
        assert_eq!(cause, DeviceErrorCause::OtherDatabase);
        assert!(message.contains("--hand-over"), "{message}");
    };
    let first = machine();
    assert_eq!(claim(&first, [1; 16], false).await.unwrap(), Reply::Done);
    let left: Vec<_> = std::fs::read_dir(first.directory.path()).unwrap().collect();
    assert!(!left.iter().any(|file| {
        file.as_ref().unwrap().file_name().to_string_lossy().starts_with("media.id")
    }));
    let second = machine();
    refused(&second, [2; 16]).await;
    assert_eq!(claim(&second, [1; 16], false).await.unwrap(), Reply::Done, "a repeated claim");
    assert_eq!(claim(&second, [2; 16], true).await.unwrap(), Reply::Done);
    refused(&machine(), [1; 16]).await;

    // Damage is refused with a message, and handed over.
    let file = std::fs::File::options().write(true).open(&disk.device).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 8], 512 + 30).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let third = machine();
    let (code, text) = run(third.command_with_tls("127.0.0.1:0"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("media: ") && text.contains("--hand-over"), "{text}");
    assert_eq!(claim(&third, [3; 16], true).await.unwrap(), Reply::Done);
    refused(&machine(), [2; 16]).await;
}

#[tokio::test]
async fn a_block_device_takes_over_what_an_earlier_build_kept_beside_it() {
    let Some(disk) = Loop::new(1000) else { return };
    let place = Place::new();
    std::os::unix::fs::symlink(&disk.device, place.path("media")).unwrap();
    let owner = Ownership { database: [1; 16], epoch: 1, incarnation: 1 };
    let beside = OwnerRecord::beside_identity(&place.path("media.id"));
    beside.replace(Some(owner)).unwrap();
    assert!(claim(&place, [2; 16], false).await.is_err());
    assert_eq!(beside.read().unwrap(), None, "it lies on the device now");
    // A record that was left elsewhere has no effect.
    beside.replace(Some(Ownership { database: [2; 16], ..owner })).unwrap();
    assert!(claim(&place, [2; 16], false).await.is_err());
    assert_eq!(claim(&place, [1; 16], false).await.unwrap(), Reply::Done);
}

#[tokio::test]
async fn it_remembers_whose_it_is_until_it_is_handed_over() {
    let place = Place::new();
    let claim = async |database, hand_over| claim(&place, database, hand_over).await;
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
