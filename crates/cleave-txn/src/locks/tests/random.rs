//! Random histories. After each step: no conflicting locks are held, no request waits without a reason, and no deadlock
//! cycle is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use cleave_media::SplitMix64;
use proptest::prelude::*;

use super::*;

const OWNERS: u64 = 5;
const KEYS: u64 = 4;

fn key(number: u64) -> LockKey {
    if number == 0 { LockKey::table(9) } else { ROW(number) }
}

fn mode(key: LockKey, random: u64) -> LockMode {
    let first = if key.kind() == KeyKind::Table { 4 } else { 0 };
    let count = if key.kind() == KeyKind::Table { 8 } else { 4 };
    LockMode::ALL[first + usize::try_from(random % count).unwrap()]
}

/// The owner at an index: the last one is of the first one's group.
fn owner_at(groups: &[LockGroup], place: usize, id: u64) -> Arc<LockOwner> {
    LockOwner::in_group(TransactionId(id), groups[place % groups.len()])
}

/// The blockers of each owner by definition: a conflict with a holder, or with an earlier request.
fn check(locks: &Locks) -> Result<(), TestCaseError> {
    let mut by_key: BTreeMap<LockKey, Vec<LockStatus>> = BTreeMap::new();
    for status in locks.list() {
        by_key.entry(status.key).or_default().push(status);
    }
    let mut waits_for: BTreeMap<LockGroup, BTreeSet<LockGroup>> = BTreeMap::new();
    for statuses in by_key.values() {
        let (held, awaited): (Vec<&LockStatus>, Vec<&LockStatus>) =
            statuses.iter().partition(|status| status.is_granted);
        prop_assert!(!held.is_empty(), "a key that nobody holds is kept");
        for (one, other) in held.iter().flat_map(|one| held.iter().map(move |other| (one, other))) {
            let excluded = one.group != other.group && one.mode.conflicts_with(other.mode);
            prop_assert!(!excluded, "{one:?} and {other:?}");
        }
        for (place, wait) in awaited.iter().enumerate() {
            let before = held.iter().chain(&awaited[..place]);
            let blockers: BTreeSet<_> = before
                .filter(|one| one.group != wait.group && one.mode.conflicts_with(wait.mode))
                .map(|one| one.group)
                .collect();
            prop_assert!(!blockers.is_empty(), "{wait:?} waits for nothing");
            waits_for.entry(wait.group).or_default().extend(blockers);
        }
    }
    // Remove owners that wait for none; the rest are cycles.
    while let Some(free) = waits_for
        .iter()
        .find(|(_, blockers)| !blockers.iter().any(|blocker| waits_for.contains_key(blocker)))
        .map(|(owner, _)| *owner)
    {
        waits_for.remove(&free);
    }
    prop_assert!(waits_for.is_empty(), "a cycle is left: {waits_for:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn histories_keep_the_rules(seed in any::<u64>()) {
        let mut random = SplitMix64::new(seed);
        let locks = Locks::new();
        let mut next_id = OWNERS;
        let groups: Vec<LockGroup> = (1..OWNERS).map(|_| LockGroup::new(0)).collect();
        let mut owners: Vec<_> =
            (0_usize..).zip(0..OWNERS).map(|(place, id)| owner_at(&groups, place, id)).collect();
        let mut group_of: BTreeMap<TransactionId, LockGroup> =
            owners.iter().map(|owner| (owner.id(), owner.group())).collect();
        let mut marks: Vec<LockMark> = owners.iter().map(|owner| owner.mark()).collect();
        let mut waits: Vec<Option<LockWait>> = owners.iter().map(|_| None).collect();
        for _ in 0..80 {
            let index = usize::try_from(random.below(OWNERS)).unwrap();
            if waits[index].as_mut().is_some_and(|wait| now(wait).is_some()) {
                waits[index] = None;
            }
            let owner = Arc::clone(&owners[index]);
            let choice = random.below(12);
            if waits[index].is_some() {
                match choice {
                    0 => waits[index] = None,
                    1 => {
                        locks.cancel(&owner);
                        let wait = waits[index].as_mut().unwrap();
                        let is_cancelled = matches!(now(wait), Some(Err(LockError::Cancelled { .. })));
                        prop_assert!(is_cancelled);
                    }
                    _ => {}
                }
            } else if choice < 8 {
                let key = key(random.below(KEYS));
                let mode = mode(key, random.next_u64());
                match locks.request(&owner, key, mode) {
                    Ok(Requested::Granted) => prop_assert!(locks.holds(&owner, key, mode)),
                    Ok(Requested::Waiting(wait)) => waits[index] = Some(wait),
                    Err(LockError::Deadlock(deadlock)) => {
                        let edges = &deadlock.edges;
                        prop_assert_eq!(edges[0].waiter, owner.id());
                        prop_assert_eq!(group_of[&edges[edges.len() - 1].blocker], owner.group());
                        let is_ring = edges
                            .windows(2)
                            .all(|pair| group_of[&pair[0].blocker] == group_of[&pair[1].waiter]);
                        prop_assert!(is_ring, "{deadlock}");
                        locks.release_all(&owner);
                        owners[index] = owner_at(&groups, index, next_id);
                        group_of.insert(owners[index].id(), owners[index].group());
                        next_id += 1;
                        marks[index] = owners[index].mark();
                    }
                    Err(error) => panic!("{error}"),
                }
            } else if choice == 8 {
                let key = key(random.below(KEYS));
                let mode = mode(key, random.next_u64());
                let got = locks.try_lock(&owner, key, mode).unwrap();
                prop_assert_eq!(got, locks.holds(&owner, key, mode));
            } else if choice == 9 {
                marks[index] = owner.mark();
            } else if choice == 10 {
                locks.release_to(&owner, marks[index]);
            } else {
                locks.release_all(&owner);
                owners[index] = owner_at(&groups, index, next_id);
                group_of.insert(owners[index].id(), owners[index].group());
                next_id += 1;
                marks[index] = owners[index].mark();
            }
            check(&locks)?;
        }
        for owner in &owners {
            locks.release_all(owner);
        }
        prop_assert_eq!(locks.list(), []);
    }
}

/// Ends only if every grant wakes its waiter.
#[test]
fn threads_exclude_each_other_and_all_come_to_an_end() {
    let locks = Locks::new();
    let next_id = AtomicU64::new(1);
    // Read and written apart: two at once would lose some.
    let counters: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let committed = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..6 {
            let (locks, next_id, counters, committed) = (&locks, &next_id, &counters, &committed);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed);
                for _ in 0..300 {
                    let owner = owner(next_id.fetch_add(1, Ordering::Relaxed));
                    let keys = [random.below(KEYS), random.below(KEYS)];
                    let locked = keys.iter().try_for_each(|number| {
                        match locks.request(&owner, ROW(*number), UPDATE)? {
                            Requested::Granted => Ok(()),
                            Requested::Waiting(wait) if random.below(2) == 0 => wait.block(None),
                            Requested::Waiting(wait) => crate::wal::tests::group::block_on(wait),
                        }
                    });
                    match locked {
                        Ok(()) => {
                            for number in keys {
                                let counter = &counters[usize::try_from(number).unwrap()];
                                let count = counter.load(Ordering::Relaxed);
                                thread::yield_now();
                                counter.store(count + 1, Ordering::Relaxed);
                            }
                            committed.fetch_add(2, Ordering::Relaxed);
                        }
                        Err(LockError::Deadlock(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    locks.release_all(&owner);
                }
            });
        }
    });
    let counted: u64 = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
    assert_eq!(counted, committed.load(Ordering::Relaxed));
    assert_eq!(locks.list(), []);
}
