//! Addresses, and a peer that says nothing. The rest is tested where there are devices.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::net::TcpListener;

use super::*;
use crate::command::wire::{
    FrameKind, WelcomeStatus, read_frame, read_hello, write_frame, write_welcome,
};

#[test]
fn addresses_are_read_and_written() {
    for (text, host, port) in [
        ("storage1:7432", "storage1", 7432),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
    ] {
        let address: RemoteAddress = text.parse().unwrap();
        assert_eq!((address.host.as_str(), address.port), (host, port));
        assert_eq!(address.to_string(), text);
    }
    for text in ["", "storage1", ":7432", "storage1:", "storage1:65536", "::1:7432", "[]:1"] {
        let error = text.parse::<RemoteAddress>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
    }
}

fn token() -> Token {
    Token::new("a-token-of-some-length", "a test").unwrap()
}

/// A connection to `address` in a hurry.
fn dial(address: SocketAddr) -> Dial {
    Dial {
        address: RemoteAddress { host: "127.0.0.1".to_owned(), port: address.port() },
        token: token(),
        tls: None,
        cap: None,
        bytes: Arc::default(),
        handshake_limit: Duration::from_secs(10),
        watch_interval: Duration::from_millis(20),
    }
}

/// A peer that shakes hands, reads to the end and answers nothing but, where asked to, pings; returns
/// how many frames of each kind came: commands and pings.
async fn deaf_peer(listener: &TcpListener, answers_pings: bool) -> (usize, usize) {
    let (socket, _) = listener.accept().await.unwrap();
    let (mut reader, writer) = socket.into_split();
    let mut writer = BufWriter::new(writer);
    read_hello(&mut reader, &token()).await.unwrap();
    write_welcome(&mut writer, WelcomeStatus::Welcome).await.unwrap();
    let (mut commands, mut pings) = (0, 0);
    while let Ok(Some(frame)) = read_frame(&mut reader).await {
        match frame.kind {
            FrameKind::Ping => pings += 1,
            _ => commands += 1,
        }
        if frame.kind == FrameKind::Ping && answers_pings {
            let pong = Frame::of_head(FrameKind::Pong, frame.request, Vec::new());
            if write_frame(&mut writer, &pong).await.is_err() || writer.flush().await.is_err() {
                break;
            }
        }
    }
    (commands, pings)
}

#[tokio::test]
async fn a_device_that_reads_and_never_answers_is_lost() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let host = async {
        let connection = Connection::open(dial(listener.local_addr().unwrap())).await.unwrap();
        let status = Command::new(CommandHeader::default(), Request::Status);
        connection.call(encode_command(1, status)).await.unwrap_err()
    };
    let both = futures::future::join(deaf_peer(&listener, false), host);
    let ((commands, pings), error) = timeout(Duration::from_secs(60), both).await.unwrap();
    assert!(matches!(error, LinkError::Lost { .. }), "{error:?}");
    assert!(error.to_string().contains("did not answer"), "{error}");
    assert_eq!(commands, 1);
    assert!(pings > 0, "it was asked before it was given up");
}

#[tokio::test]
async fn a_device_that_answers_pings_is_waited_for() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let host = async {
        let connection = Connection::open(dial(listener.local_addr().unwrap())).await.unwrap();
        let status = Command::new(CommandHeader::default(), Request::Status);
        let called = connection.call(encode_command(1, status));
        // Many times longer than silence is put up with.
        let outcome = timeout(Duration::from_millis(500), called).await;
        assert!(outcome.is_err(), "{outcome:?}");
        connection.fail("the test is over");
    };
    let both = futures::future::join(deaf_peer(&listener, true), host);
    let ((_, pings), ()) = timeout(Duration::from_secs(60), both).await.unwrap();
    assert!(pings > 1, "an idle connection keeps saying something");
}

#[tokio::test]
async fn a_device_that_sends_more_than_was_granted_is_cut_off() {
    use crate::command::message::{Payload, Slot, SlotPayload};
    use crate::command::proto::answer::encode_slot;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let device = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_hello(&mut socket, &token()).await.unwrap();
        write_welcome(&mut socket, WelcomeStatus::Welcome).await.unwrap();
        let execute = read_frame(&mut socket).await.unwrap().unwrap();
        for number in 5..9 {
            let payload = SlotPayload::Encoded(Payload::new(vec![1].into()));
            let slot = Slot { number, row_count: 1, payload };
            let frame = encode_slot(execute.request, slot).unwrap();
            write_frame(&mut socket, &frame).await.unwrap();
        }
        // Until the host has closed it.
        drop(read_frame(&mut socket).await);
    };
    let host = async {
        let connection = Connection::open(dial(listener.local_addr().unwrap())).await.unwrap();
        let (slots, mut events) = SlotSender::channel(SlotForm::Encoded);
        let credit = Credit { received: 5, granted: 8 };
        let frame = Frame::of_head(FrameKind::Execute, 1, Vec::new());
        let error = connection.execute(frame, slots, credit).await.unwrap_err();
        let mut count = 0;
        while events.recv().await.is_some() {
            count += 1;
        }
        (error, count)
    };
    let both = futures::future::join(device, host);
    let ((), (error, count)) = timeout(Duration::from_secs(60), both).await.unwrap();
    assert!(error.to_string().contains("more than the 8 slots"), "{error}");
    assert_eq!(count, 3);
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for tls in [None, Some(client_config(made.cert.pem().as_bytes()).unwrap())] {
        let dial = Dial { tls, handshake_limit: Duration::from_millis(20), ..dial(address) };
        let error = Connection::open(dial).await.unwrap_err();
        assert!(matches!(error, LinkError::HandshakeTimeout { .. }), "{error:?}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn a_transfer_that_is_too_large_is_stopped_before_it_crosses() {
    use cleave_media::{BlockAddress, Extent};
    let extent = Extent { start: BlockAddress(0), block_count: u32::MAX };
    let error = check_transfer(&Request::Read(vec![ReadItem::Blocks(extent); 3])).unwrap_err();
    assert!(matches!(error, LinkError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("33554432"), "{error}");
}
