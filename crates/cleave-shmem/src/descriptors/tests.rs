//! Descriptors arrive, and malformed messages are refused.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::Doorbell;

#[test]
fn descriptors_arrive_with_their_bytes() {
    let (near, far) = UnixStream::pair().unwrap();
    let bells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()];
    let handed: Vec<_> = bells.iter().map(AsFd::as_fd).collect();
    assert_eq!(send_descriptors(near.as_fd(), b"two bells", &handed).unwrap(), 9);
    let mut bytes = [0; 64];
    let (count, descriptors) = receive_descriptors(far.as_fd(), &mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"two bells");
    let received: Vec<_> =
        descriptors.into_iter().map(|bell| Doorbell::from_descriptor(bell).unwrap()).collect();
    assert_eq!(received.len(), 2);
    received[1].ring();
    assert!(!bells[0].clear() && bells[1].clear() && !bells[1].clear());
    drop(near);
    assert_eq!(receive_descriptors(far.as_fd(), &mut bytes).unwrap().0, 0, "the socket's end");
}

#[test]
fn what_a_peer_sends_as_a_bell_is_never_waited_for() {
    // A pipe without a writer, set to blocking.
    let (pipe, _other_end) = io::pipe().unwrap();
    let bell = Doorbell::from_descriptor(pipe.into()).unwrap();
    assert!(!bell.clear());
}

#[test]
fn bytes_without_descriptors_bring_none() {
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"bytes").unwrap();
    let (count, descriptors) = receive_descriptors(far.as_fd(), &mut [0; 64]).unwrap();
    assert_eq!((count, descriptors.len()), (5, 0));
}

#[test]
fn too_many_descriptors_are_an_error_on_both_sides() {
    let (near, far) = UnixStream::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    assert!(send_descriptors(near.as_fd(), b"x", &[null.as_fd(); COUNT_MAX + 1]).is_err());
    assert!(send_descriptors(near.as_fd(), b"x", &[]).is_err());
    assert!(send_descriptors(near.as_fd(), b"", &[null.as_fd()]).is_err());
    send_descriptors(near.as_fd(), b"x", &[null.as_fd(); COUNT_MAX]).unwrap();
    let (_, descriptors) = receive_descriptors(far.as_fd(), &mut [0; 1]).unwrap();
    assert_eq!(descriptors.len(), COUNT_MAX);
    assert_eq!(File::from(descriptors.into_iter().next_back().unwrap()).read(&mut [0]).unwrap(), 0);
}
