//! Tests of shared memory alone: processes that die while using it, sockets left behind by dead devices, and hosts that
//! write garbage into it.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cleave_device::{LocalListener, LocalOptions, Runtime, ServeError};
use cleave_fragment::command::wire::{
    Frame, FrameKind, Hello, PROTOCOL_VERSION, read_frame, read_hello, read_welcome, write_frame,
    write_hello, write_welcome,
};
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, Reply, Request, RunState,
};
use cleave_fragment::link::handed_table::hand_over;
use cleave_fragment::link::local_stream::LocalStream;
use cleave_fragment::link::{
    AbandonedRuns, AttachMode, ConnectedLink, DeviceService, Link, LinkError,
};
use cleave_media::BLOCK_SIZE;
use cleave_shmem::{
    Doorbell, HostLocks, LOCK_OFFER_BYTES, TableShape, receive_descriptors, send_descriptors,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::bench::{
    Bench, LocalServer, MEMORY_BYTES, ROW_COUNT, device_error, drain, extent, ids, memory, options,
    scan, table_pages,
};

fn device() -> Arc<dyn DeviceService> {
    Runtime::new(memory(), options()).unwrap()
}

fn identify() -> Command {
    Command::new(CommandHeader::default(), Request::Identify)
}

async fn connect(socket: &Path) -> Result<Arc<ConnectedLink>, LinkError> {
    ConnectedLink::local(socket, None, AbandonedRuns::default(), None)?.connected().await
}

// ---- death ---------------------------------------------------------------------------------------

/// `cleaved` at a socket, killed when dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(folder: &Path, socket: &Path) -> Self {
        let child = Program::new(env!("CARGO_BIN_EXE_cleaved"))
            .arg("--media")
            .arg(folder.join("media"))
            .arg("--local")
            .arg(socket)
            .args(["--cores", "2", "--memory=64MiB"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// A link to it, as soon as it serves.
    async fn connect(&mut self, socket: &Path) -> Arc<ConnectedLink> {
        self.connect_sharing(socket, None).await
    }

    /// The same, with this lock table for it.
    pub(crate) async fn connect_sharing(
        &mut self,
        socket: &Path,
        table: Option<&Arc<HostLocks>>,
    ) -> Arc<ConnectedLink> {
        let connecting = async {
            loop {
                let table = table.map(Arc::clone);
                let link = ConnectedLink::local(socket, None, AbandonedRuns::default(), table);
                match link.unwrap().connected().await {
                    Ok(link) => return link,
                    Err(LinkError::Connect { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                if let Some(status) = self.0.try_wait().unwrap() {
                    let mut said = String::new();
                    self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                    panic!("the device ended ({status}): {said}");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), connecting).await.unwrap()
    }

    /// As `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn a_device_killed_in_a_run_is_lost_at_once_and_its_successor_takes_over_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device.sock");
    let mut process = Process::start(folder.path(), &socket);
    let link = process.connect(&socket).await;
    assert_eq!(link.mode(), AttachMode::Local);
    assert_eq!(link.device(), format!("local:{}", socket.display()));
    let bench = Bench::of(link, memory(), None).await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request.clone()).await;
    assert!(stream.next().await.unwrap().is_some());
    bench.reach(1, RunState::Stalled).await;
    process.kill();
    // Long before the silence limit.
    let error = timeout(Duration::from_secs(4), drain(&mut stream)).await.unwrap().unwrap_err();
    assert!(matches!(error, LinkError::Lost { .. }), "{error:?}");
    for _ in 0..2 {
        let error = bench.read_blocks(extent(0, 1)).await.unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains("local:"), "{error}");
    }
    // The dead one's socket is still there.
    assert!(socket.exists());
    let mut process = Process::start(folder.path(), &socket);
    drop(process.connect(&socket).await);
    let (bytes, _) = table_pages();
    assert_eq!(bench.read_blocks(extent(0, 1)).await.unwrap(), bytes[..BLOCK_SIZE]);
    request.first_slot = stream.next_slot();
    let (cause, _) = device_error(bench.link.execute(request.clone()).await);
    assert_eq!(cause, DeviceErrorCause::UnknownRun);
    request.header = bench.header_of_run(2);
    request.first_slot = 0;
    let mut stream = bench.execute(request).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ROW_COUNT).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_host_that_dies_gives_way_to_the_next() {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let server = LocalServer::start(Arc::clone(&device) as Arc<dyn DeviceService>).await;
    let lost = Bench::of(server.connect().await.unwrap(), Arc::clone(&media), None).await;
    let morsels = lost.load().await;
    let mut request = lost.request(1, &scan(None), &morsels);
    (request.slot_count, request.memory_bytes) = (1, MEMORY_BYTES / 10 * 8);
    let stream = lost.execute(request.clone()).await;
    lost.reach(1, RunState::Stalled).await;
    // Silently: the stream is kept, so that nothing releases the run.
    drop(lost);
    let bench = Bench::of(server.connect().await.unwrap(), media, None).await;
    let mut second = bench.request(2, &scan(Some(3)), &morsels);
    second.memory_bytes = request.memory_bytes;
    let mut result = loop {
        match bench.link.execute(second.clone()).await {
            Ok(stream) => break stream,
            Err(error) => {
                assert_eq!(device_error::<()>(Err(error)).0, DeviceErrorCause::OutOfMemory);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    assert_eq!(drain(&mut result).await.unwrap(), [0, 1, 2]);
    drop(stream);
}

#[tokio::test]
async fn a_run_goes_on_over_the_next_region() {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let server = LocalServer::start(Arc::clone(&device) as Arc<dyn DeviceService>).await;
    let bench = Bench::of(server.connect().await.unwrap(), media, None).await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    (request.slot_count, request.slot_bytes) = (4, 4096);
    let mut stream = bench.execute(request.clone()).await;
    let mut found = Vec::new();
    for _ in 0..7 {
        found.extend(ids(&stream.next().await.unwrap().unwrap()));
    }
    // The listener goes with all its connections; the device and its run stay.
    let socket = server.socket.clone();
    let folder = server.stop_listening().await;
    let lost = loop {
        match stream.next().await {
            Ok(Some(batch)) => found.extend(ids(&batch)),
            other => break other,
        }
    };
    assert!(matches!(lost, Err(LinkError::Lost { .. })), "{lost:?}");
    let _server = LocalServer::start_at(device, socket).await;
    request.first_slot = stream.next_slot();
    let mut stream = bench.execute(request).await;
    found.extend(drain(&mut stream).await.unwrap());
    found.sort_unstable();
    assert_eq!(found, (0..ROW_COUNT).collect::<Vec<_>>(), "every row once");
    drop(folder);
}

// ---- sockets -------------------------------------------------------------------------------------

fn listen_at(socket: PathBuf) -> LocalOptions {
    LocalOptions { socket, rate_cap: None, log: Arc::new(|_| ()) }
}

#[tokio::test]
async fn a_socket_is_for_its_owner_and_taken_from_the_dead_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left behind");
    let error = connect(&path).await.unwrap_err();
    assert!(matches!(error, LinkError::Connect { .. }), "{error}");
    let listener = LocalListener::bind(device(), listen_at(path.clone())).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let error = LocalListener::bind(device(), listen_at(path.clone())).await.unwrap_err();
    assert!(matches!(error, ServeError::InUse { .. }), "{error}");
    drop(listener);
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "precious").unwrap();
    let error = LocalListener::bind(device(), listen_at(file.clone())).await.unwrap_err();
    assert!(matches!(error, ServeError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let nowhere = folder.path().join("no/such/folder");
    let error = LocalListener::bind(device(), listen_at(nowhere.clone())).await.unwrap_err();
    assert!(matches!(error, ServeError::BindLocal { .. }), "{error}");
    let error = connect(&nowhere).await.unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("local:"), "{error}");
}

#[tokio::test]
async fn what_answers_at_a_socket_and_is_no_device_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let answers = [&b"HTTP/1.1 400\r\n"[..], b"", b"welcome", b"table", b"memory"];
    for (index, answer) in answers.into_iter().enumerate() {
        let path = folder.path().join(format!("{index}.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let answering = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            assert_eq!(read_hello(&mut socket, None).await.unwrap(), Hello::Accepted);
            // And then a strange answer to the offer of no lock table, or no memory.
            let behind = match answer {
                b"welcome" => vec![7; 9],
                b"table" => vec![1; 9],
                b"memory" => vec![0; 9],
                _ => {
                    drop(socket.write_all(answer).await);
                    return;
                }
            };
            write_welcome(&mut socket, Hello::Accepted.status()).await.unwrap();
            socket.write_all(&behind).await.unwrap();
            let mut offer = [9; LOCK_OFFER_BYTES];
            socket.read_exact(&mut offer).await.unwrap();
            assert_eq!(offer, [0; LOCK_OFFER_BYTES]);
        };
        let (link, ()) = futures::future::join(connect(&path), answering).await;
        let error = link.unwrap_err();
        assert!(matches!(error, LinkError::NotADevice { .. }), "{error:?}");
        assert!(error.to_string().contains("local:"), "{error}");
    }
}

// ---- misbehaving hosts ---------------------------------------------------------------------------

/// A socket of `server` after the handshake, before the memory is taken: without a lock table.
async fn greeted(server: &LocalServer) -> UnixStream {
    let mut socket = welcomed(server).await;
    assert!(!hand_over(&mut socket, None).await.unwrap());
    socket
}

/// A socket of `server` before the lock table is offered.
async fn welcomed(server: &LocalServer) -> UnixStream {
    let mut socket = UnixStream::connect(&server.socket).await.unwrap();
    write_hello(&mut socket, None).await.unwrap();
    let welcome = read_welcome(&mut socket).await.unwrap().unwrap();
    assert_eq!(welcome.version, PROTOCOL_VERSION);
    socket
}

#[tokio::test]
async fn garbage_in_the_ring_costs_the_connection_and_nobody_else() {
    let server = LocalServer::start(device()).await;
    let link = server.connect().await.unwrap();
    for garbage in [&[0_u8; 64][..], &[0xff; 64], b"GET / HTTP/1.1\r\nHost: storage1\r\n\r\n"] {
        let mut stream = LocalStream::accept(greeted(&server).await).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let goodbye = read_frame(&mut stream).await.unwrap().unwrap();
        assert_eq!(goodbye.kind, FrameKind::Goodbye);
        assert!(read_frame(&mut stream).await.unwrap().is_none(), "and then it is closed");
        link.call(identify()).await.unwrap();
    }
}

/// The offset of the producer's position in the ring to the device.
const TO_DEVICE_TAIL: u64 = 8192;
/// The offset of the rings' bytes.
const DATA: u64 = 12288;

/// The region and the bells that the device offers, for a misbehaving host.
struct Raw {
    socket: UnixStream,
    region: std::fs::File,
    ring_bytes: u64,
    /// Tells the device that it may read.
    bell: Doorbell,
}

impl Raw {
    async fn of(server: &LocalServer) -> Self {
        let socket = greeted(server).await;
        let mut offer = [0; 8];
        let (_, descriptors) = socket
            .async_io(tokio::io::Interest::READABLE, || {
                receive_descriptors(socket.as_fd(), &mut offer)
            })
            .await
            .unwrap();
        let [region, _, _, bell, _]: [OwnedFd; 5] = descriptors.try_into().unwrap();
        let region = std::fs::File::from(region);
        let ring_bytes = (region.metadata().unwrap().len() - DATA) / 2;
        Self { socket, region, ring_bytes, bell: Doorbell::from_descriptor(bell).unwrap() }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.region.write_all_at(bytes, offset).unwrap();
    }

    /// Waits until the device has closed the connection.
    async fn closed(mut self) {
        self.bell.ring();
        let mut byte = [0; 1];
        let closing = self.socket.read(&mut byte);
        let count = timeout(Duration::from_secs(60), closing).await.unwrap().unwrap_or(0);
        assert_eq!(count, 0);
    }
}

#[tokio::test]
async fn positions_that_cannot_be_cost_the_connection_and_nobody_else() {
    let server = LocalServer::start(device()).await;
    let link = server.connect().await.unwrap();
    for tail in [u64::MAX, 1 << 63, 1, 0] {
        let raw = Raw::of(&server).await;
        // The last two beyond what the ring holds, by one byte and by its whole size.
        let tail = if tail < 2 { raw.ring_bytes * (2 - tail) + 1 } else { tail };
        raw.write(TO_DEVICE_TAIL, &tail.to_le_bytes());
        raw.closed().await;
        link.call(identify()).await.unwrap();
    }
    // The whole region, positions, flags, header and bytes, over and over while the device reads it.
    let raw = Raw::of(&server).await;
    for fill in [0xff_u8, 0x01, 0x80, 0xff] {
        raw.write(0, &vec![fill; usize::try_from(DATA + 2 * raw.ring_bytes).unwrap()]);
        raw.bell.ring();
    }
    raw.closed().await;
    link.call(identify()).await.unwrap();
    // Spurious bells wake nobody for long.
    let raw = Raw::of(&server).await;
    for _ in 0..1000 {
        raw.bell.ring();
    }
    link.call(identify()).await.unwrap();
}

#[tokio::test]
async fn what_is_no_lock_table_is_done_without() {
    let server = LocalServer::start(device()).await;
    let (table, _) = HostLocks::create(TableShape::default()).unwrap();
    let (offer, descriptors) = table.offer().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("no memory file")).unwrap();
    let wrong = [file.as_fd(), descriptors[1], descriptors[2]];
    let larger = u64::MAX.to_le_bytes();
    let offers: [(&[u8], &[BorrowedFd<'_>]); 5] = [
        (&[9; LOCK_OFFER_BYTES], &[]),
        (&offer, &descriptors[..1]),
        (&[0; LOCK_OFFER_BYTES], &descriptors),
        (&larger, &descriptors),
        (&offer, &wrong),
    ];
    for (bytes, descriptors) in offers {
        let mut socket = welcomed(&server).await;
        if descriptors.is_empty() {
            socket.write_all(bytes).await.unwrap();
        } else {
            assert_eq!(send_descriptors(socket.as_fd(), bytes, descriptors).unwrap(), bytes.len());
        }
        assert_eq!(socket.read_u8().await.unwrap(), 0, "not taken");
        // And it goes on.
        let mut stream = LocalStream::accept(socket).await.unwrap();
        write_frame(&mut stream, &Frame::of_head(FrameKind::Ping, 5, Vec::new())).await.unwrap();
        assert_eq!(read_frame(&mut stream).await.unwrap().unwrap().kind, FrameKind::Pong);
    }
    let mut socket = welcomed(&server).await;
    assert!(hand_over(&mut socket, Some(&table)).await.unwrap());
}

#[tokio::test]
async fn a_host_that_vanishes_at_any_step_of_the_greeting_hinders_nobody() {
    let server = LocalServer::start(device()).await;
    let mut hello = Vec::new();
    write_hello(&mut hello, None).await.unwrap();
    for length in 0..=hello.len() {
        let mut socket = UnixStream::connect(&server.socket).await.unwrap();
        socket.write_all(&hello[..length]).await.unwrap();
    }
    drop(welcomed(&server).await);
    let mut socket = welcomed(&server).await;
    socket.write_all(&[0; 3]).await.unwrap();
    drop(socket);
    for length in [1, 8] {
        let mut socket = greeted(&server).await;
        // The descriptors are lost with the bytes that are read without them.
        drop(socket.read(&mut vec![0; length]).await);
    }
    drop(LocalStream::accept(greeted(&server).await).await.unwrap());
    let link = server.connect().await.unwrap();
    let Reply::Identity(_) = link.call(identify()).await.unwrap() else { panic!() };
    // A frame that is truncated by death.
    let mut frame = Vec::new();
    write_frame(&mut frame, &Frame::of_head(FrameKind::Ping, 5, b"head".to_vec())).await.unwrap();
    for length in 0..frame.len() {
        let mut stream = LocalStream::accept(greeted(&server).await).await.unwrap();
        stream.write_all(&frame[..length]).await.unwrap();
    }
    link.call(identify()).await.unwrap();
}
