//! Peers that send nothing, or too much. The rest is tested where there are devices.

use std::net::SocketAddr;

use rustls::ClientConfig;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;
use crate::command::proto::encode_command;
use crate::command::wire::{WelcomeStatus, read_frame, read_hello, write_frame, write_welcome};
use crate::command::{Command, CommandHeader, Request};
use crate::link::dial::{Dial, Way};
use crate::link::link::SlotForm;
use crate::link::remote::RemoteAddress;
use crate::link::tls::{Token, client_config};

fn token() -> Token {
    Token::new("a-token-of-some-length", "a test").unwrap()
}

fn way(address: SocketAddr, tls: Option<Arc<ClientConfig>>) -> Way {
    let address = RemoteAddress { host: "127.0.0.1".to_owned(), port: address.port() };
    Way::Tcp { address, token: token(), tls }
}

/// A connection to `address` with short timeouts.
fn dial(address: SocketAddr) -> Dial {
    Dial { watch_interval: Duration::from_millis(20), ..Dial::new(way(address, None), None) }
}

/// A peer that shakes hands, reads to the end and answers nothing but, where asked to, pings; returns
/// how many frames of each kind came: commands and pings.
async fn deaf_peer(listener: &TcpListener, answers_pings: bool) -> (usize, usize) {
    let (socket, _) = listener.accept().await.unwrap();
    let (mut reader, writer) = socket.into_split();
    let mut writer = BufWriter::new(writer);
    read_hello(&mut reader, Some(&token())).await.unwrap();
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
        let connection = dial(listener.local_addr().unwrap()).open().await.unwrap();
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
        let connection = dial(listener.local_addr().unwrap()).open().await.unwrap();
        let status = Command::new(CommandHeader::default(), Request::Status);
        let called = connection.call(encode_command(1, status));
        // Many times the tolerated silence.
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
        read_hello(&mut socket, Some(&token())).await.unwrap();
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
        let connection = dial(listener.local_addr().unwrap()).open().await.unwrap();
        let (slots, mut events) = SlotSender::channel(SlotForm::Encoded);
        let credit = Credit::new(5, 3, 1 << 20);
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
        let handshake_limit = Duration::from_millis(20);
        let dial = Dial { way: way(address, tls), handshake_limit, ..dial(address) };
        let error = dial.open().await.unwrap_err();
        assert!(matches!(error, LinkError::HandshakeTimeout { .. }), "{error:?}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn credit_is_of_slots_and_of_bytes() {
    // Four slots of ten bytes, from slot 3 on, of which one may be larger.
    let mut credit = Credit::new(3, 4, 40);
    assert!(credit.receive(10) && credit.receive(29) && credit.receive(500));
    assert!(!credit.receive(1), "the bytes are used up");
    credit.grant(5, 4);
    assert!(!credit.receive(1), "the large one is still here");
    credit.grant(6, 4);
    assert!(credit.receive(1) && credit.receive(1) && credit.receive(1) && credit.receive(1));
    assert!(!credit.receive(1), "the slots are used up");
    credit.grant(100, 4);
    assert!(credit.receive(1000), "a slot larger than all may come alone");
}
