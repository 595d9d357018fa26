//! The stream between two ends in one process, and peers that stop, die or corrupt the shared region.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;

/// A device's end and a host's end.
async fn pair() -> (LocalStream, LocalStream) {
    let (device, host) = UnixStream::pair().unwrap();
    let (device, host) =
        futures::future::join(LocalStream::offer(device), LocalStream::accept(host)).await;
    (device.unwrap(), host.unwrap())
}

#[tokio::test]
async fn bytes_cross_both_ways_however_many() {
    let (device, host) = pair().await;
    let bytes: Vec<u8> = (0..5 * RING_BYTES + 77).map(|i| u8::try_from(i % 253).unwrap()).collect();
    let (mut from_host, mut to_host) = tokio::io::split(device);
    let (mut from_device, mut to_device) = tokio::io::split(host);
    // All four at once: each direction waits for room and for bytes.
    let sending = async |writer: &mut tokio::io::WriteHalf<LocalStream>| {
        writer.write_all(&bytes).await.unwrap();
    };
    let receiving = async |reader: &mut tokio::io::ReadHalf<LocalStream>| {
        let mut found = vec![0; bytes.len()];
        reader.read_exact(&mut found).await.unwrap();
        assert!(found == bytes);
    };
    let all = async {
        tokio::join!(
            sending(&mut to_host),
            sending(&mut to_device),
            receiving(&mut from_host),
            receiving(&mut from_device)
        )
    };
    timeout(Duration::from_secs(60), all).await.unwrap();
}

#[tokio::test]
async fn a_question_that_comes_late_wakes_who_sleeps() {
    let (mut device, mut host) = pair().await;
    let answering = async {
        for _ in 0..50 {
            let question = device.read_u64_le().await.unwrap();
            device.write_u64_le(question + 1).await.unwrap();
        }
    };
    let asking = async {
        for question in 0..50 {
            if question % 10 == 0 {
                // Long enough for the other side to fall asleep.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            host.write_u64_le(question).await.unwrap();
            assert_eq!(host.read_u64_le().await.unwrap(), question + 1);
        }
    };
    timeout(Duration::from_secs(60), futures::future::join(answering, asking)).await.unwrap();
}

#[tokio::test]
async fn what_was_written_before_the_end_is_read_and_then_the_end() {
    for by_shutdown in [true, false] {
        let (mut device, mut host) = pair().await;
        device.write_all(b"goodbye").await.unwrap();
        if by_shutdown {
            device.shutdown().await.unwrap();
        } else {
            drop(device);
        }
        let mut found = Vec::new();
        host.read_to_end(&mut found).await.unwrap();
        assert_eq!(found, b"goodbye");
        let error = host.write_all(b"too late").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

#[tokio::test]
async fn a_reader_that_sleeps_hears_of_the_end() {
    let (device, mut host) = pair().await;
    let waiting = async {
        assert_eq!(host.read(&mut [0; 8]).await.unwrap(), 0);
    };
    let leaving = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(device);
    };
    timeout(Duration::from_secs(60), futures::future::join(waiting, leaving)).await.unwrap();
}

#[tokio::test]
async fn bytes_beside_the_memory_are_an_error() {
    let (mut device, mut host) = pair().await;
    device.lifeline.write_all(b"x").await.unwrap();
    let error = host.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// Sends `bytes` with `descriptors` and tries to accept them.
async fn accepted(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
    let (near, far) = UnixStream::pair().unwrap();
    if descriptors.is_empty() {
        near.try_write(bytes).unwrap();
    } else {
        send_descriptors(near.as_fd(), bytes, descriptors).unwrap();
    }
    drop(near);
    LocalStream::accept(far).await.map(|_| ()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn offers_that_make_no_sense_are_refused() {
    let pair = RingPair::create(1 << 16).unwrap();
    let region = pair.region().descriptor().unwrap();
    let size = (pair.region().bytes() as u64).to_le_bytes();
    let bells: Vec<_> = (0..4).map(|_| Doorbell::new().unwrap()).collect();
    let bells: Vec<_> = bells.iter().map(AsFd::as_fd).collect();
    let with = |region, count| {
        let mut all = vec![region];
        all.extend(&bells[..count]);
        all
    };
    accepted(&size, &with(region, 4)).await.unwrap();
    for (bytes, descriptors, expected) in [
        (&size[..], with(region, 3), "no offer"),
        (&size[..4], with(region, 4), "no offer"),
        (&size[..], Vec::new(), "no offer"),
        (&u64::MAX.to_le_bytes()[..], with(region, 4), "larger than any"),
        (&4096_u64.to_le_bytes()[..], with(region, 4), "another size"),
        (&size[..], with(bells[0], 4), "no memory file"),
    ] {
        let error = accepted(bytes, &descriptors).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    // Sealed, of the right size, and nothing in it.
    let empty = Region::create(pair.region().bytes()).unwrap();
    let error = accepted(&size, &with(empty.descriptor().unwrap(), 4)).await.unwrap_err();
    assert!(error.contains("does not begin"), "{error}");
}
