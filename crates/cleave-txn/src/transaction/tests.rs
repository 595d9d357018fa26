//! The order of commits, and what snapshots see and hold.

use std::sync::Mutex as StdMutex;
use std::thread;

use super::*;

fn commit(transactions: &Arc<Transactions>, end: u64) -> PreCommit {
    let transaction = transactions.begin();
    transactions.pre_commit::<()>(transaction, |_| Ok(Lsn(end))).unwrap()
}

#[test]
fn commits_are_seen_at_once_and_leave_when_durable() {
    let transactions = Transactions::new(CommitNumber(10), TransactionId(100));
    let transaction = transactions.begin();
    assert_eq!(transaction.id(), TransactionId(101));
    let state = transaction.state().clone();
    let before = transactions.snapshot(TransactionId::NONE);
    let own = transactions.snapshot(transaction.id()).snapshot();
    assert!(own.sees(transaction.id(), None) && !before.snapshot().sees(transaction.id(), None));
    assert_eq!(state.commit(), None);

    let done = transactions.pre_commit::<()>(transaction, |_| Ok(Lsn(500))).unwrap();
    assert_eq!(done.commit, CommitNumber(11));
    assert_eq!(state.commit(), Some(CommitNumber(11)));
    let after = transactions.snapshot(TransactionId::NONE).snapshot();
    assert!(after.sees_commit(done.commit) && !before.snapshot().sees_commit(done.commit));

    assert_eq!(transactions.needs_durable(done.commit), Some(Lsn(500)));
    assert_eq!(transactions.needs_durable(CommitNumber(10)), None);
    assert_eq!(transactions.hardened(), CommitNumber(10));
    transactions.harden(Lsn(499));
    assert_eq!(transactions.hardened(), CommitNumber(10));
    transactions.harden(Lsn(500));
    assert_eq!(transactions.needs_durable(done.commit), None);
    assert_eq!(transactions.hardened(), CommitNumber(11));
    assert!(transactions.running().is_empty());
}

#[test]
fn a_commit_that_cannot_be_logged_uses_no_number() {
    let transactions = Transactions::new(CommitNumber(1), TransactionId(1));
    let transaction = transactions.begin();
    let state = transaction.state().clone();
    assert_eq!(transactions.pre_commit(transaction, |_| Err("full")), Err("full"));
    assert!(state.is_aborted() && state.commit().is_none());
    assert_eq!(commit(&transactions, 1).commit, CommitNumber(2));
    let dropped = transactions.begin();
    assert_eq!(transactions.running(), [dropped.id()]);
    drop(dropped);
    assert_eq!(transactions.running(), []);
}

#[test]
fn the_oldest_snapshot_waits_for_holds_and_for_the_log() {
    let transactions = Transactions::new(CommitNumber(0), TransactionId(0));
    commit(&transactions, 10);
    let held = transactions.snapshot(TransactionId::NONE);
    let again = held.clone();
    commit(&transactions, 20);
    assert_eq!(transactions.oldest_snapshot(), CommitNumber(0), "nothing is durable");
    transactions.harden(Lsn(20));
    assert_eq!(transactions.oldest_snapshot(), CommitNumber(1));
    drop(held);
    assert_eq!(transactions.oldest_snapshot(), CommitNumber(1));
    drop(again);
    assert_eq!(transactions.oldest_snapshot(), CommitNumber(2));

    let old = transactions.snapshot_at(CommitNumber(1), TransactionId::NONE).unwrap();
    assert_eq!(transactions.begin_vacuum(CommitNumber(9)), CommitNumber(1));
    drop(old);
    assert_eq!(transactions.begin_vacuum(CommitNumber(9)), CommitNumber(2));
    assert!(transactions.snapshot_at(CommitNumber(1), TransactionId::NONE).is_none());
    assert!(transactions.snapshot_at(CommitNumber(2), TransactionId::NONE).is_some());
    assert!(transactions.snapshot_at(CommitNumber(3), TransactionId::NONE).is_none());
}

#[test]
fn numbers_are_dense_and_in_the_order_of_the_log() {
    let transactions = Transactions::new(CommitNumber(0), TransactionId(0));
    let log = StdMutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let transaction = transactions.begin();
                    let append = |commit| {
                        let mut log = log.lock().unwrap();
                        log.push(commit);
                        Ok::<_, ()>(Lsn(log.len() as u64))
                    };
                    let done = transactions.pre_commit(transaction, append).unwrap();
                    assert!(
                        transactions.snapshot(TransactionId::NONE).snapshot().commit >= done.commit
                    );
                }
            });
        }
    });
    let log = log.into_inner().unwrap();
    assert_eq!(log, (1..=800).map(CommitNumber).collect::<Vec<_>>());
    transactions.harden(Lsn(800));
    assert_eq!(transactions.oldest_snapshot(), CommitNumber(800));
}
