//! Conflicts, queues and cycles, one by one; then random histories against the invariants.

mod random;
mod shared;

use std::thread;

use super::*;

const ROW: fn(u64) -> LockKey = |vid| LockKey::row(1, vid);
const UPDATE: LockMode = LockMode::ForUpdate;
const SHARE: LockMode = LockMode::ForShare;

fn owner(id: u64) -> Arc<LockOwner> {
    LockOwner::new(TransactionId(id))
}

fn granted(requested: Result<Requested, LockError>) -> bool {
    matches!(requested.unwrap(), Requested::Granted)
}

fn waiting(requested: Result<Requested, LockError>) -> LockWait {
    match requested.unwrap() {
        Requested::Waiting(wait) => wait,
        Requested::Granted => panic!("it was granted"),
    }
}

/// The outcome of a wait so far, without waiting.
fn now(wait: &mut LockWait) -> Option<Result<(), LockError>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(wait).poll(&mut context) {
        std::task::Poll::Ready(outcome) => Some(outcome),
        std::task::Poll::Pending => None,
    }
}

use std::future::Future;

#[test]
fn modes_exclude_each_other_as_postgresql_has_it() {
    for (mode, excluded) in [
        (LockMode::ForKeyShare, "FOR UPDATE"),
        (LockMode::ForShare, "FOR NO KEY UPDATE, FOR UPDATE"),
        (LockMode::ForNoKeyUpdate, "FOR SHARE, FOR NO KEY UPDATE, FOR UPDATE"),
        (LockMode::ForUpdate, "FOR KEY SHARE, FOR SHARE, FOR NO KEY UPDATE, FOR UPDATE"),
        (LockMode::AccessShare, "ACCESS EXCLUSIVE"),
        (LockMode::RowShare, "EXCLUSIVE, ACCESS EXCLUSIVE"),
        (LockMode::RowExclusive, "SHARE, SHARE ROW EXCLUSIVE, EXCLUSIVE, ACCESS EXCLUSIVE"),
        (
            LockMode::ShareUpdateExclusive,
            "SHARE UPDATE EXCLUSIVE, SHARE, SHARE ROW EXCLUSIVE, EXCLUSIVE, ACCESS EXCLUSIVE",
        ),
        (
            LockMode::Share,
            "ROW EXCLUSIVE, SHARE UPDATE EXCLUSIVE, SHARE ROW EXCLUSIVE, EXCLUSIVE, ACCESS EXCLUSIVE",
        ),
    ] {
        let found: Vec<_> = LockMode::ALL
            .into_iter()
            .filter(|other| mode.conflicts_with(*other))
            .map(|other| other.to_string())
            .collect();
        assert_eq!(found.join(", "), excluded, "{mode}");
    }
    for mode in LockMode::ALL {
        for other in LockMode::ALL {
            assert_eq!(mode.conflicts_with(other), other.conflicts_with(mode), "{mode}, {other}");
            assert!(mode.is_for_tables() == other.is_for_tables() || !mode.conflicts_with(other));
        }
    }
}

#[test]
fn waits_are_served_in_order_and_nobody_overtakes() {
    let locks = Locks::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(owner);
    assert!(granted(locks.request(&a, ROW(1), SHARE)));
    let mut update = waiting(locks.request(&b, ROW(1), UPDATE));
    // It is compatible with the holder, but another one came first.
    let mut share = waiting(locks.request(&c, ROW(1), SHARE));
    assert!(!locks.try_lock(&d, ROW(1), SHARE).unwrap());
    assert!(locks.try_lock(&d, ROW(2), SHARE).unwrap());
    assert!(locks.try_lock(&a, ROW(1), SHARE).unwrap(), "held already");
    let statuses: Vec<_> =
        locks.list().iter().map(|status| (status.owner.0, status.is_granted)).collect();
    assert_eq!(statuses, [(1, true), (2, false), (3, false), (4, true)]);
    locks.release_all(&a);
    assert!(matches!(now(&mut update), Some(Ok(()))) && now(&mut share).is_none());
    locks.release_all(&b);
    assert!(matches!(now(&mut share), Some(Ok(()))));
    locks.release_all(&c);
    locks.release_all(&d);
    assert_eq!(locks.list(), []);
    assert!(matches!(locks.request(&a, ROW(1), SHARE), Err(LockError::Ended(_))));
}

#[test]
fn a_wait_that_is_dropped_lets_those_behind_it_pass() {
    let locks = Locks::new();
    let [a, b, c] = [1, 2, 3].map(owner);
    assert!(granted(locks.request(&a, ROW(1), SHARE)));
    let update = waiting(locks.request(&b, ROW(1), UPDATE));
    let mut share = waiting(locks.request(&c, ROW(1), SHARE));
    drop(update);
    assert!(matches!(now(&mut share), Some(Ok(()))));
    let error = locks.lock(&b, ROW(1), UPDATE, Some(Duration::from_millis(1))).unwrap_err();
    assert_eq!(error.sqlstate(), "55P03");
    let mut cancelled = waiting(locks.request(&b, ROW(1), UPDATE));
    locks.cancel(&b);
    assert_eq!(now(&mut cancelled).unwrap().unwrap_err().sqlstate(), "57014");
    assert!(!locks.list().iter().any(|status| status.owner == b.id()));
}

#[test]
fn a_stronger_mode_goes_before_those_who_wait_for_the_weaker_one() {
    let locks = Locks::new();
    let [a, b, c] = [1, 2, 3].map(owner);
    assert!(granted(locks.request(&a, ROW(1), SHARE)));
    assert!(granted(locks.request(&b, ROW(1), LockMode::ForKeyShare)));
    let mut other = waiting(locks.request(&c, ROW(1), UPDATE));
    assert!(granted(locks.request(&a, ROW(1), LockMode::ForNoKeyUpdate)));
    let mut upgrade = waiting(locks.request(&a, ROW(1), UPDATE));
    locks.release_all(&b);
    assert!(matches!(now(&mut upgrade), Some(Ok(()))) && now(&mut other).is_none());
    assert!(locks.holds(&a, ROW(1), LockMode::ForKeyShare), "the strongest covers all");
    locks.release_all(&a);
    assert!(matches!(now(&mut other), Some(Ok(()))));
}

#[test]
fn a_savepoint_gives_back_what_was_locked_since() {
    let locks = Locks::new();
    let [a, b] = [1, 2].map(owner);
    assert!(granted(locks.request(&a, ROW(1), SHARE)));
    let mark = a.mark();
    assert!(granted(locks.request(&a, ROW(1), UPDATE)));
    assert!(granted(locks.request(&a, ROW(2), UPDATE)));
    let mut share = waiting(locks.request(&b, ROW(1), SHARE));
    let mut second = waiting(locks.request(&b, ROW(2), UPDATE));
    locks.release_to(&a, mark);
    assert!(matches!(now(&mut share), Some(Ok(()))) && matches!(now(&mut second), Some(Ok(()))));
    assert!(locks.holds(&a, ROW(1), SHARE) && !locks.holds(&a, ROW(1), UPDATE));
    assert_eq!(a.lock_count(), 1);
}

#[test]
fn a_ring_ends_for_the_one_that_closes_it() {
    let locks = Locks::new();
    let owners = [1, 2, 3].map(owner);
    for (number, owner) in (1..).zip(&owners) {
        assert!(granted(locks.request(owner, ROW(number), UPDATE)));
    }
    let [a, b, c] = &owners;
    let mut first = waiting(locks.request(a, ROW(2), UPDATE));
    let mut second = waiting(locks.request(b, ROW(3), SHARE));
    let error = locks.request(c, ROW(1), UPDATE).unwrap_err();
    assert_eq!(error.sqlstate(), "40P01");
    assert_eq!(
        error.to_string(),
        "deadlock detected: \
         transaction 3 waits for FOR UPDATE on row 1 of table 1, blocked by transaction 1; \
         transaction 1 waits for FOR UPDATE on row 2 of table 1, blocked by transaction 2; \
         transaction 2 waits for FOR SHARE on row 3 of table 1, blocked by transaction 3"
    );
    locks.release_all(c);
    assert!(matches!(now(&mut second), Some(Ok(()))) && now(&mut first).is_none());
    locks.release_all(b);
    assert!(matches!(now(&mut first), Some(Ok(()))));
}

#[test]
fn two_who_share_and_both_want_more_are_a_ring() {
    let locks = Locks::new();
    let [a, b] = [1, 2].map(owner);
    assert!(granted(locks.request(&a, ROW(1), SHARE)));
    assert!(granted(locks.request(&b, ROW(1), SHARE)));
    let mut upgrade = waiting(locks.request(&a, ROW(1), UPDATE));
    assert!(matches!(locks.request(&b, ROW(1), UPDATE), Err(LockError::Deadlock(_))));
    locks.release_all(&b);
    assert!(matches!(now(&mut upgrade), Some(Ok(()))));
}

/// PostgreSQL changes the order of a queue rather than end one of its transactions.
#[test]
fn a_ring_that_only_the_order_of_a_queue_makes_is_opened() {
    let locks = Locks::new();
    let [a, b, c] = [1, 2, 3].map(owner);
    assert!(granted(locks.request(&a, ROW(1), UPDATE)));
    assert!(granted(locks.request(&c, ROW(2), SHARE)));
    let mut update = waiting(locks.request(&b, ROW(2), UPDATE));
    let mut wait = waiting(locks.request(&c, ROW(1), UPDATE));
    // Behind `b`, which waits for `c`, which waits for `a`.
    let mut share = waiting(locks.request(&a, ROW(2), SHARE));
    assert!(matches!(now(&mut share), Some(Ok(()))));
    assert!(now(&mut update).is_none() && now(&mut wait).is_none());
    locks.release_all(&a);
    assert!(matches!(now(&mut wait), Some(Ok(()))));
    locks.release_all(&c);
    assert!(matches!(now(&mut update), Some(Ok(()))));
}

#[test]
fn one_owner_cannot_lock_without_end() {
    let locks = Arc::new(Locks::with_lock_count_max(2));
    let a = owner(1);
    assert!(
        granted(locks.request(&a, ROW(1), UPDATE)) && granted(locks.request(&a, ROW(2), UPDATE))
    );
    assert_eq!(locks.request(&a, ROW(3), UPDATE).unwrap_err().sqlstate(), "53200");
}

#[test]
fn an_owner_that_ends_takes_its_waits_along() {
    let locks = Locks::new();
    let [a, b] = [1, 2].map(owner);
    assert!(granted(locks.request(&a, ROW(1), UPDATE)));
    thread::scope(|scope| {
        let wait = waiting(locks.request(&b, ROW(1), UPDATE));
        let blocked = scope.spawn(move || wait.block(None));
        locks.release_all(&b);
        assert!(matches!(blocked.join().unwrap(), Err(LockError::Ended(_))));
    });
    locks.release_all(&a);
    assert_eq!(locks.list(), []);
}

#[test]
fn all_owners_together_hold_so_many_locks_and_no_more() {
    let locks = Arc::new(Locks::with_total_max(6400));
    let (ada, bob) = (owner(1), owner(2));
    let refused = (0..20_000).find_map(|vid| {
        let owner = if vid % 2 == 0 { &ada } else { &bob };
        locks.try_lock(owner, ROW(vid), UPDATE).err()
    });
    let Some(LockError::TooManyInAll { lock_count_max: 6400 }) = refused else {
        panic!("{refused:?}")
    };
    let held = ada.lock_count() + bob.lock_count();
    assert!((3200..=6500).contains(&held), "{held}");
    // An additional mode of a held lock takes no more.
    assert!(locks.try_lock(&ada, ROW(0), UPDATE).unwrap());
    locks.release_all(&bob);
    let free = (0..200).filter(|vid| locks.try_lock(&ada, ROW(30_000 + vid), UPDATE).is_ok());
    assert_eq!(free.count(), 200);
}
