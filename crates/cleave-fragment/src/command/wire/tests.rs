//! Frames and handshakes against every truncation, every flipped bit, and random bytes.

use proptest::prelude::*;

use super::*;

/// Runs a future that never waits, such as those over slices and vectors.
fn now<T>(future: impl Future<Output = T>) -> T {
    futures::FutureExt::now_or_never(future).expect("reading from memory never waits")
}

fn written(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    now(write_frame(&mut bytes, frame)).unwrap();
    bytes
}

fn read(mut bytes: &[u8]) -> Result<Option<Frame>, WireError> {
    now(read_frame(&mut bytes))
}

fn frame() -> Frame {
    Frame {
        kind: FrameKind::Command,
        request: 0x0123_4567_89ab_cdef,
        head: Bytes::from_static(b"a head"),
        parts: vec![
            Payload::new(Bytes::from_static(b"first part")),
            Payload::new(Bytes::new()),
            Payload::new(Bytes::from_static(b"third")),
        ],
    }
}

#[test]
fn the_layout_is_the_one_that_is_drawn() {
    let bytes = written(&Frame::of_head(FrameKind::Ping, 2, vec![9, 8]));
    assert_eq!(bytes[..13], [10, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[17..], [2, 0, 0, 0, 0, 0, 0, 0, 9, 8]);
    let signed = [&bytes[..13], &bytes[17..]].concat();
    assert_eq!(bytes[13..17], crc32c::crc32c(&signed).to_le_bytes());
}

#[test]
fn every_truncation_is_an_error_and_the_end_between_frames_is_none() {
    let bytes = written(&frame());
    assert!(read(&[]).unwrap().is_none());
    for length in 1..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "cut off at {length}");
    }
    let mut two = bytes.as_slice();
    let doubled = [two, two].concat();
    two = &doubled;
    for _ in 0..2 {
        assert_eq!(now(read_frame(&mut two)).unwrap().unwrap(), frame());
    }
    assert!(now(read_frame(&mut two)).unwrap().is_none());
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = written(&frame());
    let intact = frame();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 1 << bit;
            // In the head, damage is an error; in a part, the checksum no longer matches.
            let found = match read(&spoilt) {
                Err(_) => true,
                Ok(Some(frame)) => {
                    frame.head == intact.head && frame.parts.iter().any(|part| !part.is_intact())
                }
                Ok(None) => false,
            };
            assert!(found, "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn what_is_too_long_is_not_read() {
    let prefix = |length: u32| [&length.to_le_bytes()[..], &[1; 13]].concat();
    let too_long = read(&prefix(FRAME_BYTES_MAX + 1)).unwrap_err();
    assert!(matches!(too_long, WireError::TooLong { .. }), "{too_long}");
    assert!(matches!(read(&prefix(u32::MAX)), Err(WireError::TooLong { .. })));
    let huge = Payload { bytes: vec![0; FRAME_BYTES_MAX as usize].into(), checksum: 0 };
    let frame = Frame { parts: vec![huge], ..frame() };
    assert!(matches!(frame.length(), Err(WireError::TooLong { .. })));
    assert!(matches!(now(write_frame(&mut Vec::new(), &frame)), Err(WireError::TooLong { .. })));
}

#[test]
fn a_head_longer_than_its_kind_has_is_neither_written_nor_read() {
    let mut frame = Frame::of_head(FrameKind::Ping, 2, vec![0; 5000]);
    assert!(matches!(frame.length(), Err(WireError::HeadTooLong { length: 5000, .. })));
    frame.kind = FrameKind::Command;
    let mut bytes = written(&frame);
    assert_eq!(read(&bytes).unwrap().unwrap(), frame);
    bytes[4] = FrameKind::Ping.code();
    let error = read(&bytes).unwrap_err().to_string();
    assert_eq!(error, "a frame whose head has 5000 bytes, where at most 4096 are allowed");
}

#[test]
fn unknown_kinds_are_named() {
    let mut bytes = written(&Frame::of_head(FrameKind::Ping, 2, Vec::new()));
    bytes[4] = 200;
    let signed = [&bytes[..13], &bytes[17..]].concat();
    bytes[13..17].copy_from_slice(&crc32c::crc32c(&signed).to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "a frame of unknown kind 200");
}

#[test]
fn hello_and_welcome() {
    let token = Token::new("a-token-of-some-length", "a test").unwrap();
    let mut hello = Vec::new();
    now(write_hello(&mut hello, Some(&token))).unwrap();
    assert_eq!(now(read_hello(&mut hello.as_slice(), Some(&token))).unwrap(), Hello::Accepted);
    let other = Token::new("b-token-of-some-length", "a test").unwrap();
    assert_eq!(now(read_hello(&mut hello.as_slice(), Some(&other))).unwrap(), Hello::WrongToken);
    assert_eq!(now(read_hello(&mut hello.as_slice(), None)).unwrap(), Hello::Accepted);
    for length in 0..hello.len() {
        assert!(
            now(read_hello(&mut &hello[..length], Some(&token))).is_err(),
            "cut off at {length}"
        );
    }
    let mut version = hello.clone();
    version[8] = 77;
    let found = now(read_hello(&mut version.as_slice(), Some(&token))).unwrap();
    assert_eq!(found, Hello::OtherVersion { version: 77 });
    hello[0] = b'G';
    assert!(matches!(
        now(read_hello(&mut hello.as_slice(), Some(&token))).unwrap(),
        Hello::Garbage { .. }
    ));
    for status in [
        WelcomeStatus::Welcome,
        WelcomeStatus::OtherVersion,
        WelcomeStatus::WrongToken,
        WelcomeStatus::NoHello,
    ] {
        let mut bytes = Vec::new();
        now(write_welcome(&mut bytes, status)).unwrap();
        let welcome = now(read_welcome(&mut bytes.as_slice())).unwrap().unwrap();
        assert_eq!(welcome, Welcome { version: PROTOCOL_VERSION, status: Some(status) });
        *bytes.last_mut().unwrap() = 99;
        let unknown = now(read_welcome(&mut bytes.as_slice())).unwrap().unwrap();
        assert_eq!(unknown.status, None);
    }
    assert_eq!(now(read_welcome(&mut &b"HTTP"[..])).unwrap().unwrap_err(), b"HTTP");
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were(
        request in any::<u64>(),
        head in prop::collection::vec(any::<u8>(), 0..100),
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..10),
    ) {
        let frame = Frame {
            kind: FrameKind::Slot,
            request,
            head: head.into(),
            parts: parts.into_iter().map(|part| Payload::new(part.into())).collect(),
        };
        prop_assert_eq!(read(&written(&frame)).unwrap().unwrap(), frame);
    }

    #[test]
    fn garbage_is_never_a_frame(bytes in prop::collection::vec(any::<u8>(), 1..500)) {
        prop_assert!(read(&bytes).is_err());
    }
}
