//! When a peer counts as gone, and which of its claims are believed. The rest is tested over sockets.

use cleave_fragment::command::CommandHeader;
use tokio::io::duplex;

use super::*;

const LIMIT: Duration = Duration::from_millis(50);

async fn ping() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, &Frame::of_head(FrameKind::Ping, 3, vec![7; 40])).await.unwrap();
    bytes
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_gone() {
    let (near, mut far) = duplex(1000);
    let bytes: Arc<ByteCounters> = Arc::default();
    let mut near = Metered::new(near, Arc::clone(&bytes), None);
    let frame = ping().await;
    // Also in the middle of a frame.
    for part in [0, 10] {
        far.write_all(&frame[..part]).await.unwrap();
        let read = read_frame_within(&mut near, &bytes.received, LIMIT).await;
        let Err(WireError::Io(error)) = read else { panic!("{read:?}") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

#[tokio::test]
async fn a_frame_may_take_its_time_as_long_as_it_comes() {
    let (near, mut far) = duplex(1000);
    let bytes: Arc<ByteCounters> = Arc::default();
    let mut near = Metered::new(near, Arc::clone(&bytes), None);
    let frame = ping().await;
    let sending = async {
        for byte in &frame {
            tokio::time::sleep(LIMIT / 10).await;
            far.write_all(&[*byte]).await.unwrap();
        }
    };
    let limit = LIMIT * 2;
    let reading = read_frame_within(&mut near, &bytes.received, limit);
    let (read, ()) = futures::future::join(reading, sending).await;
    assert_eq!(read.unwrap().unwrap().request, 3);
    assert!(LIMIT / 10 * u32::try_from(frame.len()).unwrap() > limit, "longer than the limit");
}

#[test]
fn a_host_is_believed_to_have_consumed_what_was_sent() {
    let header = |run| CommandHeader { run, ..CommandHeader::default() };
    let believed = |counts: &SentByRun, run, consumed| {
        let command = Command::new(header(run), Request::Fetch { consumed, output: 0 });
        match counts.believe(command).request {
            Request::Fetch { consumed, .. } => consumed,
            other => panic!("{other:?}"),
        }
    };
    let counts = SentByRun::default();
    let sent = counts.begin((header(1).run_key(), 0), 5);
    assert_eq!(believed(&counts, 1, 1000), 5);
    assert_eq!(believed(&counts, 1, u64::MAX), u64::MAX, "an output is closed");
    sent.fetch_max(9, Ordering::Relaxed);
    assert_eq!(believed(&counts, 1, 8), 8);
    assert_eq!(believed(&counts, 1, 10), 9);
    assert_eq!(believed(&counts, 2, 10), 0, "of another run nothing was sent");
    // A run that has ended is forgotten when the next begins.
    drop(sent);
    let _next = counts.begin((header(2).run_key(), 0), 0);
    assert_eq!(believed(&counts, 1, 10), 0);
}
