//! One failure reaches all callers, and one sync serves all who wait.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use super::*;

fn failing() -> MediaError {
    MediaError::Sync { media: "media".to_owned(), source: io::Error::other("the disk is gone") }
}

#[test]
fn a_failure_is_everybodys_until_the_media_is_opened_anew() {
    let gate = SyncGate::new();
    gate.sync(&"media", || Ok(())).unwrap();
    gate.sync(&"media", || Err(failing())).unwrap_err();
    assert!(gate.has_failed());
    let mut made = false;
    let error = gate.sync(&"media", || {
        made = true;
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(!made && error.contains("the disk is gone") && error.contains("start"), "{error}");
    gate.reopen();
    gate.sync(&"media", || Ok(())).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "threads are what this is about")]
fn one_sync_serves_all_who_came_before_it_began() {
    let gate = Arc::new(SyncGate::new());
    let made = Arc::new(AtomicU64::new(0));
    let (begun, has_begun) = channel();
    let (end, may_end) = channel::<()>();
    let first = {
        let gate = Arc::clone(&gate);
        thread::spawn(move || {
            gate.sync(&"media", || {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
                Ok(())
            })
        })
    };
    has_begun.recv().unwrap();
    let others: Vec<_> = (0..4)
        .map(|_| {
            let (gate, made) = (Arc::clone(&gate), Arc::clone(&made));
            thread::spawn(move || {
                gate.sync(&"media", || {
                    made.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                })
            })
        })
        .collect();
    while gate.came.load(Ordering::SeqCst) < 5 {
        thread::yield_now();
    }
    end.send(()).unwrap();
    first.join().unwrap().unwrap();
    for other in others {
        other.join().unwrap().unwrap();
    }
    // Not the first one's, which began before their calls.
    assert_eq!(made.load(Ordering::SeqCst), 1);
}
