//! Many concurrent waiters.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use cleave_media::ForgetfulFiles;

use super::crash::Forgetful;
use super::*;

#[test]
fn one_sync_serves_all_who_came_during_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let files = ForgetfulFiles::new();
    let log = {
        let _world = Forgetful::enter(&files);
        Wal::create(folder.path(), Lsn(0), LogOptions::default()).unwrap()
    };
    // The first sync says that it has begun, and waits until it may continue.
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = Mutex::new(may_go_on);
    let number = AtomicU64::new(0);
    files.before_syncs(Arc::new(move || {
        if number.fetch_add(1, Ordering::SeqCst) == 0 {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
    }));
    let (appended, have_appended) = mpsc::channel();
    thread::scope(|scope| {
        let write = |number: u64| {
            let (log, files, appended) = (&log, &files, appended.clone());
            scope.spawn(move || {
                let _world = Forgetful::enter(files);
                let end = log.append(commit(number, &payload(number))).unwrap().end;
                appended.send(()).unwrap();
                log.wait_durable(end).unwrap();
                assert!(log.durable_end() >= end);
            });
        };
        write(1);
        has_begun.recv().unwrap();
        (2..=9).for_each(write);
        have_appended.iter().take(9).for_each(drop);
        go_on.send(()).unwrap();
    });
    assert_eq!(log.figures().sync_count, 2);
    assert_eq!(log.figures().record_count, 9);
}

/// Wakes a thread that waits for a future.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn threads_that_block_and_threads_that_await_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
    let log = Wal::create(folder.path(), Lsn(0), options).unwrap();
    let start = log.resume_from();
    let durable = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (log, durable) = (&log, &durable);
            scope.spawn(move || {
                for index in 0..50 {
                    let number = thread * 1000 + index;
                    let end = log.append(commit(number, &payload(number))).unwrap().end;
                    match (thread + index) % 3 {
                        0 => block_on(log.durable(end)).unwrap(),
                        1 => {
                            // Dropped at once, or after it was polled.
                            let mut dropped = pin!(log.durable(end));
                            let waker = Waker::noop();
                            drop(dropped.as_mut().poll(&mut Context::from_waker(waker)));
                            log.wait_durable(end).unwrap();
                        }
                        _ => log.wait_durable(end).unwrap(),
                    }
                    durable.lock().unwrap().push(number);
                }
            });
        }
    });
    let mut durable = durable.into_inner().unwrap();
    let mut found = numbers(&read(folder.path(), start).unwrap());
    for thread in 0..8 {
        let of_thread: Vec<_> = found.iter().filter(|number| *number / 1000 == thread).collect();
        assert!(of_thread.is_sorted(), "one thread's records are in its order");
    }
    found.sort_unstable();
    durable.sort_unstable();
    assert_eq!(found, durable);
    assert!(log.figures().sync_count <= 400 + list_segments(folder.path()).unwrap().len() as u64);
}

#[test]
fn a_wait_for_more_than_was_appended_ends() {
    let folder = tempfile::tempdir().unwrap();
    let log = Wal::create(folder.path(), Lsn(0), small()).unwrap();
    log.append(Record::Note { payload: b"x" }).unwrap();
    log.wait_durable(Lsn(u64::MAX)).unwrap();
    block_on(log.durable(Lsn(u64::MAX))).unwrap();
    assert_eq!(log.durable_end(), log.end());
}

#[test]
fn who_still_waits_when_the_log_is_dropped_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let log = Wal::create(folder.path(), Lsn(0), small()).unwrap();
    let start = log.resume_from();
    let end = log.append(Record::Note { payload: b"x" }).unwrap().end;
    let durable = log.durable(end);
    let waiter = thread::Builder::new().spawn(move || block_on(durable)).unwrap();
    drop(log);
    waiter.join().unwrap().unwrap();
    assert_eq!(read(folder.path(), start).unwrap().len(), 1);
}

#[test]
fn a_log_is_copied_while_others_append() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, copies) = (folder.path().join("log"), folder.path().join("copies"));
    // The archive's parent folder exists, or nothing is made.
    std::fs::create_dir(&copies).unwrap();
    let log = Wal::create(&directory, Lsn(0), small()).unwrap();
    let start = log.resume_from();
    thread::scope(|scope| {
        let (log, copies) = (&log, &copies);
        scope.spawn(move || {
            for number in 1..=300 {
                log.append(commit(number, &payload(number))).unwrap();
                if number % 10 == 0 {
                    log.flush().unwrap();
                }
            }
        });
        for round in 0..8 {
            let before = log.durable_end();
            let copy = copies.join(round.to_string());
            log.copy_to(&copy, Lsn(0)).unwrap();
            let records = read(&copy, start).unwrap();
            let last = records.last().map_or(start, |record| record.end);
            assert!(last >= before);
            let found = numbers(&records);
            assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
        }
    });
}
