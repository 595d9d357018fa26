//! Misbehaving peers: each gets a clear error, and nobody else is affected.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use cleave_device::{ListenOptions, Listener, Runtime, ServeError};
use cleave_fragment::command::wire::{
    Frame, FrameKind, MAGIC, PROTOCOL_VERSION, read_frame, read_welcome, write_frame, write_hello,
};
use cleave_fragment::command::{Command, CommandHeader, DeviceErrorCause, Request};
use cleave_fragment::link::{AbandonedRuns, ConnectedLink, DeviceService, Link, LinkError, Token};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::projection::{ProjectionExec, ProjectionExpr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{
    Bench, Credentials, Server, any_port, connect_remote, device_error, drain, memory, options,
    port_of_my_own, scan, table_pages, token,
};
use crate::faults::{Liar, Lie};

fn device() -> Arc<dyn DeviceService> {
    Runtime::new(memory(), options()).unwrap()
}

async fn connect_plain(address: SocketAddr) -> Result<Arc<ConnectedLink>, LinkError> {
    connect_with(address, token(), None).await
}

async fn connect_with(
    address: SocketAddr,
    token: Token,
    rate_cap: Option<u64>,
) -> Result<Arc<ConnectedLink>, LinkError> {
    connect_remote(address, token, None, rate_cap, AbandonedRuns::default()).await
}

fn identify() -> Command {
    Command::new(CommandHeader::default(), Request::Identify)
}

// ---- bad peers of a host -------------------------------------------------------------------------

#[tokio::test]
async fn on_this_machine_a_link_works_without_tls_but_not_without_the_token() {
    let server = Server::start(device(), any_port(), None).await;
    connect_plain(server.address).await.unwrap().call(identify()).await.unwrap();
    let wrong = Token::new("another-token-of-some-length", "a test").unwrap();
    let error = connect_with(server.address, wrong, None).await;
    let error = error.unwrap_err();
    assert!(matches!(error, LinkError::Unauthenticated { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&server.address.to_string()) && text.contains("--token-file"), "{text}");
    assert!(!text.contains("another-token"), "a token is never shown: {text}");
}

#[tokio::test]
async fn a_wrong_certificate_is_refused() {
    let server = Server::start(device(), any_port(), Some(&Credentials::new())).await;
    let error = Credentials::new().connect(server.address).await.unwrap_err();
    assert!(matches!(error, LinkError::Certificate { .. }), "{error:?}");
    assert!(error.to_string().contains("--tls-cert"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_can_be_pinned() {
    // A certificate as `openssl req -x509` makes it.
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    let credentials = Credentials { certificate, key: key.serialize_pem() };
    let server = Server::start(device(), any_port(), Some(&credentials)).await;
    credentials.connect(server.address).await.unwrap().call(identify()).await.unwrap();
}

#[tokio::test]
async fn tls_on_one_side_only_is_said_to_be_that() {
    let plain = Server::start(device(), any_port(), None).await;
    let credentials = Credentials::new();
    let error = credentials.connect(plain.address).await.unwrap_err();
    assert!(matches!(error, LinkError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    let secured = Server::start(device(), any_port(), Some(&credentials)).await;
    let error = connect_plain(secured.address).await.unwrap_err();
    assert!(matches!(error, LinkError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("pin its certificate"), "{error}");
}

/// A server that answers every connection with `answer`.
async fn impostor(answer: Vec<u8>) -> (SocketAddr, tokio::task::JoinSet<()>) {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut hello = [0; 8];
            drop(socket.read_exact(&mut hello).await);
            drop(socket.write_all(&answer).await);
            drop(socket.shutdown().await);
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn servers_that_are_no_device_are_said_to_be_none() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"", b"x", &MAGIC[..5], &[0xff; 100]] {
        let (address, _tasks) = impostor(answer.to_vec()).await;
        let error = connect_plain(address).await.unwrap_err();
        assert!(matches!(error, LinkError::NotADevice { .. }), "{answer:?}: {error:?}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
    // The error shows the first bytes received.
    let (address, _tasks) = impostor(b"SSH-2.0-OpenSSH".to_vec()).await;
    let error = connect_plain(address).await.unwrap_err();
    assert!(error.to_string().contains("SSH-2.0"), "{error}");
}

#[tokio::test]
async fn a_device_of_another_version_is_named_with_both_versions() {
    let mut welcome = MAGIC.to_vec();
    welcome.extend(77_u32.to_le_bytes());
    welcome.push(1);
    let (address, _tasks) = impostor(welcome).await;
    let error = connect_plain(address).await.unwrap_err();
    assert!(matches!(error, LinkError::Version { ours: PROTOCOL_VERSION, theirs: 77, .. }));
    assert!(error.to_string().contains("upgrade the older side"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_said_to_be_nobody() {
    let listener = TcpListener::bind(port_of_my_own(2)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = connect_plain(address).await.unwrap_err();
    assert!(matches!(error, LinkError::Connect { .. }) && error.is_unreachable(), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_device_that_sends_garbage_after_the_handshake_is_lost() {
    let mut answer = MAGIC.to_vec();
    answer.extend(PROTOCOL_VERSION.to_le_bytes());
    answer.push(0);
    answer.extend([0xab; 64]);
    let (address, _tasks) = impostor(answer).await;
    // The connection may be found dead before or after the command is sent.
    let error = match connect_plain(address).await {
        Ok(link) => link.call(identify()).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, LinkError::Lost { .. }), "{error:?}");
}

#[tokio::test]
async fn a_device_that_lies_about_a_run_is_caught() {
    for (lie, expected) in [
        (Lie::SpoiltSlot, "slot 1 from device"),
        (Lie::MissingSlot, "slot 2 came where 1 was due"),
        (Lie::MissingLastSlot, "4 slots, of which 3 came"),
        (Lie::NotABatch, "slot 1 is no Arrow batch"),
    ] {
        let server = Server::start(Arc::new(Liar(lie)), any_port(), None).await;
        let remote: Arc<dyn Link> = connect_plain(server.address).await.unwrap();
        let embedded: Arc<dyn Link> =
            cleave_fragment::link::EmbeddedLink::new(Arc::new(Liar(lie)), None);
        for link in [remote, embedded] {
            let bench = Bench::of(link, memory(), None).await;
            let mut stream = bench.execute(bench.request(1, &scan(None), &[])).await;
            let error = drain(&mut stream).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{lie:?}: {error}");
            assert_eq!(matches!(error, LinkError::Corrupt { .. }), matches!(lie, Lie::SpoiltSlot));
            assert!(stream.report().is_none());
            assert!(stream.next().await.unwrap().is_none(), "after an error comes the end");
        }
    }
}

#[tokio::test]
async fn rows_that_a_fragment_cannot_have_made_are_the_devices_fault() {
    let fields =
        vec![Field::new("id", DataType::Int32, false), Field::new("name", DataType::Utf8, true)];
    let schema = Arc::new(Schema::new(fields));
    for (lie, expected) in [
        (Lie::WrongRowCount, "slot 1 has 10 rows, and says 11"),
        (Lie::MissingRows, "it made 31 rows, of which 30 came"),
        (Lie::OtherColumns, "column \"id\" of its rows has type Utf8, and not Int32"),
        (Lie::StrayNull, "slot 1: column \"id\" has a NULL, where there can be none"),
        (Lie::HiddenNull, "slot 1: column \"id\" has a NULL, where there can be none"),
    ] {
        let server = Server::start(Arc::new(Liar(lie)), any_port(), None).await;
        let remote: Arc<dyn Link> = connect_plain(server.address).await.unwrap();
        let embedded: Arc<dyn Link> =
            cleave_fragment::link::EmbeddedLink::new(Arc::new(Liar(lie)), None);
        for link in [remote, embedded] {
            let name = link.device();
            let bench = Bench::of(link, memory(), None).await;
            let mut stream = bench.execute(bench.request(1, &scan(None), &[])).await;
            let error = match stream.expect_rows(Arc::clone(&schema)) {
                Ok(()) => drain(&mut stream).await.unwrap_err(),
                Err(error) => error,
            };
            assert!(matches!(error, LinkError::Protocol { .. }), "{lie:?}: {error:?}");
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains(&name), "{lie:?}: {text}");
        }
    }
}

// ---- bad peers of a device -----------------------------------------------------------------------

#[tokio::test]
async fn off_this_machine_nobody_listens_without_tls() {
    let options = |identity| ListenOptions {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        identity,
        token: token(),
        rate_cap: None,
        log: Arc::new(|_| ()),
    };
    let error = Listener::bind(device(), options(None)).await.unwrap_err();
    assert!(matches!(error, ServeError::Unprotected { .. }), "{error}");
    assert!(error.to_string().contains("--tls-cert"), "{error}");
    Listener::bind(device(), options(Some(Credentials::new().identity()))).await.unwrap();
}

/// Bytes that a stranger may send instead of a hello.
fn strange_hellos() -> Vec<Vec<u8>> {
    let hello = |version: u32, token: &[u8]| {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(u16::try_from(token.len()).unwrap().to_le_bytes());
        bytes.extend(token);
        bytes
    };
    vec![
        b"GET / HTTP/1.1\r\nHost: storage1\r\n\r\n".to_vec(),
        vec![0; 1000],
        vec![0xff; 100_000],
        vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
        MAGIC.to_vec(),
        hello(PROTOCOL_VERSION + 1, crate::bench::TOKEN.as_bytes()),
        hello(PROTOCOL_VERSION, b""),
        hello(PROTOCOL_VERSION, &[b'x'; 60_000]),
        hello(PROTOCOL_VERSION, &crate::bench::TOKEN.as_bytes()[1..]),
        hello(PROTOCOL_VERSION, b"x-token-that-only-tests-use"),
    ]
}

#[tokio::test]
async fn strangers_are_turned_away_and_others_are_served() {
    for credentials in [None, Some(Credentials::new())] {
        let server = Server::start(device(), any_port(), credentials.as_ref()).await;
        let link = match &credentials {
            None => connect_plain(server.address).await.unwrap(),
            Some(credentials) => credentials.connect(server.address).await.unwrap(),
        };
        for bytes in strange_hellos() {
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            drop(socket.write_all(&bytes).await);
            drop(socket.shutdown().await);
            let mut answer = Vec::new();
            drop(socket.read_to_end(&mut answer).await);
            let welcomed = answer.starts_with(&MAGIC) && answer.get(12) == Some(&0);
            assert!(!welcomed, "{bytes:?} was let in");
            link.call(identify()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_hello_of_another_version_is_answered_with_ours() {
    let server = Server::start(device(), any_port(), None).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let mut hello = MAGIC.to_vec();
    hello.extend((PROTOCOL_VERSION + 1).to_le_bytes());
    socket.write_all(&hello).await.unwrap();
    let welcome = read_welcome(&mut socket).await.unwrap().unwrap();
    assert_eq!(welcome.version, PROTOCOL_VERSION);
    assert_ne!(welcome.status, Some(cleave_fragment::command::wire::WelcomeStatus::Welcome));
}

/// A socket that has shown the token.
async fn greeted(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    write_hello(&mut socket, Some(&token())).await.unwrap();
    read_welcome(&mut socket).await.unwrap().unwrap();
    socket
}

#[tokio::test]
async fn broken_frames_cost_the_connection_with_a_word_of_why() {
    let server = Server::start(device(), any_port(), None).await;
    let link = connect_plain(server.address).await.unwrap();
    let mut good = Vec::new();
    write_frame(&mut good, &Frame::of_head(FrameKind::Ping, 5, b"head".to_vec())).await.unwrap();
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let reply = Frame::of_head(FrameKind::Reply, 5, Vec::new());
    let mut of_a_device = Vec::new();
    write_frame(&mut of_a_device, &reply).await.unwrap();
    for (bytes, expected) in [
        (changed(3, 0x7f), "a frame of"),
        (changed(4, 99), "checksum"),
        (changed(13, good[13] ^ 1), "checksum"),
        (changed(good.len() - 1, 0), "checksum"),
        (changed(17, 99), "add up"),
        (changed(21, 99), "add up"),
        (of_a_device, "only the other side sends"),
        (vec![0; 64], "add up"),
    ] {
        let mut socket = greeted(&server).await;
        socket.write_all(&bytes).await.unwrap();
        let goodbye = read_frame(&mut socket).await.unwrap().unwrap();
        assert_eq!(goodbye.kind, FrameKind::Goodbye);
        let text = String::from_utf8_lossy(&goodbye.head).into_owned();
        assert!(text.contains(expected), "{text} for {bytes:?}");
        assert!(read_frame(&mut socket).await.unwrap().is_none(), "and then it is closed");
        link.call(identify()).await.unwrap();
    }
    // A truncated frame ends the connection and nothing else.
    for length in 0..good.len() {
        let mut socket = greeted(&server).await;
        socket.write_all(&good[..length]).await.unwrap();
        socket.shutdown().await.unwrap();
        assert!(
            !matches!(read_frame(&mut socket).await, Ok(Some(frame)) if frame.kind == FrameKind::Pong)
        );
    }
    link.call(identify()).await.unwrap();
}

#[tokio::test]
async fn a_message_that_makes_no_sense_costs_only_its_answer() {
    let server = Server::start(device(), any_port(), None).await;
    let mut socket = greeted(&server).await;
    for (request, kind) in [(1, FrameKind::Command), (2, FrameKind::Execute)] {
        for head in [&b""[..], b"\xff\xff\xff", b"garbage, and more of it"] {
            let frame = Frame::of_head(kind, request, head.to_vec());
            write_frame(&mut socket, &frame).await.unwrap();
            let answer = read_frame(&mut socket).await.unwrap().unwrap();
            assert_eq!((answer.kind, answer.request), (FrameKind::Error, request));
        }
    }
    write_frame(&mut socket, &Frame::of_head(FrameKind::Ping, 9, Vec::new())).await.unwrap();
    let answer = read_frame(&mut socket).await.unwrap().unwrap();
    assert_eq!((answer.kind, answer.request), (FrameKind::Pong, 9));
}

/// `field` as field `tag`, below 16, of a message.
fn inside(tag: u8, field: &[u8]) -> Vec<u8> {
    let mut message = vec![tag << 3 | 2];
    let mut length = field.len();
    while length >= 0x80 {
        message.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    message.push(u8::try_from(length).unwrap());
    message.extend_from_slice(field);
    message
}

#[tokio::test]
async fn a_message_of_more_structures_than_memory_is_refused_before_it_is_decoded() {
    let server = Server::start(device(), any_port(), None).await;
    let mut socket = greeted(&server).await;
    let empty = |tag: u8, bytes: usize| [tag << 3 | 2, 0].repeat(bytes / 2 - 32);
    // Pages of a morsel of an input of an execute; items of a read.
    let pages = inside(3, &inside(2, &empty(3, 16 << 20)));
    let items = inside(3, &empty(1, 2 << 20));
    for (kind, head) in [(FrameKind::Execute, pages), (FrameKind::Command, items)] {
        for request in [7, 8] {
            write_frame(&mut socket, &Frame::of_head(kind, request, head.clone())).await.unwrap();
            let answer = read_frame(&mut socket).await.unwrap().unwrap();
            assert_eq!((answer.kind, answer.request), (FrameKind::Error, request));
            let text = String::from_utf8_lossy(&answer.head).into_owned();
            assert!(text.contains(" in memory, and "), "{text}");
        }
    }
    // Nobody waits for this one, but it must be refused too.
    let head = inside(3, &empty(1, 2 << 20));
    write_frame(&mut socket, &Frame::of_head(FrameKind::Command, 0, head)).await.unwrap();
    assert_eq!(read_frame(&mut socket).await.unwrap().unwrap().kind, FrameKind::Error);
    write_frame(&mut socket, &Frame::of_head(FrameKind::Ping, 9, Vec::new())).await.unwrap();
    assert_eq!(read_frame(&mut socket).await.unwrap().unwrap().kind, FrameKind::Pong);
}

#[tokio::test]
async fn numbers_count_for_what_they_become() {
    let server = Server::start(device(), any_port(), None).await;
    let mut socket = greeted(&server).await;
    // A byte each, which become eight or more: dead rows of a page, and columns of a page.
    let page = inside(3, &inside(2, &inside(3, &inside(4, &vec![1; 15 << 20]))));
    let shipped = [vec![0x82, 0x01], inside(1, &vec![1; 15 << 20])[1..].to_vec()].concat();
    for head in [page, shipped] {
        let frame = Frame::of_head(FrameKind::Execute, 7, head);
        write_frame(&mut socket, &frame).await.unwrap();
        let answer = read_frame(&mut socket).await.unwrap().unwrap();
        assert_eq!((answer.kind, answer.request), (FrameKind::Error, 7));
        let text = String::from_utf8_lossy(&answer.head).into_owned();
        assert!(text.contains(" in memory, and "), "{text}");
    }
}

/// Sockets that send nothing, and are opened again when they are closed.
async fn silent_peers(server: SocketAddr, count: usize) -> tokio::task::JoinSet<()> {
    let mut peers = tokio::task::JoinSet::new();
    for _ in 0..count {
        peers.spawn(async move {
            loop {
                let Ok(mut socket) = TcpStream::connect(server).await else { continue };
                drop(socket.read(&mut [0]).await);
            }
        });
    }
    // Until all places are taken, and a connection is closed for the first time.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    peers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_peers_do_not_keep_hosts_out() {
    for credentials in [None, Some(Credentials::new())] {
        let server = Server::start(device(), any_port(), credentials.as_ref()).await;
        let _peers = silent_peers(server.address, 300).await;
        for attempt in 0..10 {
            let link = match &credentials {
                None => connect_plain(server.address).await,
                Some(credentials) => credentials.connect(server.address).await,
            };
            let link = link.unwrap_or_else(|error| panic!("host {attempt} is kept out: {error}"));
            link.call(identify()).await.unwrap();
        }
    }
}

/// A projection whose one column is named `name`.
fn named(name: String) -> Arc<dyn ExecutionPlan> {
    let expr = ProjectionExpr { expr: Arc::new(Column::new("id", 0)), alias: name };
    Arc::new(ProjectionExec::try_new(vec![expr], scan(None)).unwrap())
}

#[tokio::test]
async fn an_answer_longer_than_a_frame_is_an_error_and_the_connection_goes_on() {
    let bench = Bench::remote(memory(), options()).await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    (request.slot_count, request.memory_bytes) = (1, 1 << 20);
    let mut other = bench.execute(request).await;
    let mut request = bench.request(2, &named("x".repeat(5 << 20)), &morsels);
    request.memory_bytes = 56 << 20;
    let (cause, message) = device_error(bench.link.execute(request.clone()).await);
    assert_eq!(cause, DeviceErrorCause::Refused);
    assert!(message.contains("its answer would be a frame"), "{message}");
    assert_eq!(drain(&mut other).await.unwrap().len(), 20_000, "over the same connection");
    drop(other);
    bench.reach_idle().await;
    let short = bench.request(3, &named("x".repeat(3 << 20)), &morsels);
    request.fragment = short.fragment;
    let mut stream = bench.execute(request).await;
    assert!(stream.next().await.unwrap().is_some());
}

#[tokio::test]
async fn a_panic_in_the_device_is_one_answer() {
    let server = Server::start(Arc::new(Liar(Lie::Panic)), any_port(), None).await;
    let link = connect_plain(server.address).await.unwrap();
    for _ in 0..2 {
        let status = Command::new(CommandHeader::default(), Request::Status);
        let (cause, message) = device_error(link.call(status).await);
        assert_eq!(cause, DeviceErrorCause::Io);
        assert!(message.contains("failed internally"), "{message}");
    }
}

#[tokio::test]
async fn many_commands_and_runs_share_one_connection() {
    let bench = Arc::new(Bench::remote(memory(), options()).await);
    let morsels = bench.load().await;
    let mut tasks = tokio::task::JoinSet::new();
    for run in 1..9 {
        let (bench, morsels) = (Arc::clone(&bench), morsels.clone());
        tasks.spawn(async move {
            let mut request = bench.request(run, &scan(Some(7000)), &morsels);
            request.memory_bytes = 1 << 20;
            let mut stream = bench.execute(request).await;
            assert_eq!(drain(&mut stream).await.unwrap(), (0..7000).collect::<Vec<_>>());
        });
    }
    let (bytes, _) = table_pages();
    for block in 0..32 {
        let (bench, bytes) = (Arc::clone(&bench), bytes.clone());
        tasks.spawn(async move {
            let found = bench.read_blocks(crate::bench::extent(block, 1)).await.unwrap();
            let at = usize::try_from(block).unwrap() * 4096;
            assert_eq!(found, bytes[at..at + 4096]);
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.unwrap();
    }
}

#[tokio::test]
async fn a_capped_link_carries_the_same() {
    let device = Runtime::new(memory(), options()).unwrap();
    let server =
        Server::start(Arc::clone(&device) as Arc<dyn DeviceService>, any_port(), None).await;
    let rate = Some(1 << 30);
    let remote: Arc<dyn Link> = connect_with(server.address, token(), rate).await.unwrap();
    let embedded: Arc<dyn Link> = cleave_fragment::link::EmbeddedLink::new(device, rate);
    for link in [remote, embedded] {
        let bench = Bench::of(link, memory(), None).await;
        let morsels = bench.load().await;
        let mut stream = bench.execute(bench.request(1, &scan(None), &morsels)).await;
        assert_eq!(drain(&mut stream).await.unwrap().len(), 20_000);
        drop(stream);
        // The next link begins a run of the same number.
        bench.reach_idle().await;
    }
}
