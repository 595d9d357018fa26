//! The same where a device of another node takes leases of what the host has taken: [`TakenMorsels`] between the host's
//! partitions and that device, which refuses, is lost, or tells of its end late, twice or never.
//!
//! Requests and answers do not overtake each other here, which they do in the other tests.

use std::collections::BTreeSet;

use cleave_fragment::Lease;

use super::{Part, count_states};
use crate::cooperative::stealing::taken::TakenMorsels;

const COUNT: u32 = 3;
const UNDER_WAY_MAX: usize = 1;
const ASKED_MAX: u32 = 2;
/// Most morsels of a lease, and most leases.
const LEASE_MAX: usize = 2;
const RUNS_MAX: u32 = 2;

/// A host, the device that it takes from, one that takes leases, and what is between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    device: Lease,
    device_ran: BTreeSet<u32>,
    /// The run is gone, and has given no rows.
    is_lost: bool,
    host: Part,
    taken: TakenMorsels,
    /// Morsels that the host's partitions were given.
    host_ran: BTreeSet<u32>,
    /// The lease that is out, and the number of its run.
    lease: Option<(u32, Vec<u32>)>,
    runs: u32,
    /// Runs of leases whose end is on its way, to a host that may have given them up.
    ended: BTreeSet<u32>,
    /// Morsels whose rows came from the other device.
    leased_ran: BTreeSet<u32>,
    asked: u32,
    requests: BTreeSet<u32>,
    answers: BTreeSet<Lease>,
}

impl World {
    fn new() -> Self {
        Self {
            device: Lease { begun: 0, kept: COUNT },
            device_ran: BTreeSet::new(),
            is_lost: false,
            host: Part::new(COUNT),
            taken: TakenMorsels::default(),
            host_ran: BTreeSet::new(),
            lease: None,
            runs: 0,
            ended: BTreeSet::new(),
            leased_ran: BTreeSet::new(),
            asked: 0,
            requests: BTreeSet::new(),
            answers: BTreeSet::new(),
        }
    }

    /// Every state that may come next.
    fn next(&self) -> Vec<Self> {
        let mut found = Vec::new();
        let mut may = |change: &dyn Fn(&mut Self) -> bool| {
            let mut next = self.clone();
            if change(&mut next) {
                found.push(next);
            }
        };
        may(&|world| {
            let place = if world.is_lost { None } else { world.device.take(world.device.begun) };
            place.is_some_and(|place| world.device_ran.insert(place))
        });
        may(&|world| !std::mem::replace(&mut world.is_lost, true));
        may(&|world| {
            let place = world.taken.next(0);
            place.is_some_and(|place| {
                assert!(world.host_ran.insert(place), "{place} is given out twice: {world:?}");
                true
            })
        });
        // The other device takes a lease.
        may(&|world| {
            if world.lease.is_some() || world.runs == RUNS_MAX {
                return false;
            }
            let places = world.taken.lease(LEASE_MAX);
            world.runs += 1;
            world.lease = (!places.is_empty()).then_some((world.runs, places));
            world.lease.is_some()
        });
        // It has ended a run, which the host may have given up by now.
        for run in 1..=self.runs {
            may(&|world| world.ended.insert(run));
        }
        for run in &self.ended {
            may(&|world| world.hears_of_end(*run));
            may(&|world| world.ended.remove(run));
        }
        // It refuses a lease, is lost, or the host does not wait for it.
        may(&|world| {
            let lease = world.lease.take();
            lease.is_some_and(|(_, places)| {
                world.taken.give_back(places);
                true
            })
        });
        // The host's partitions fail for lack of memory, and have given out no row.
        may(&|world| {
            world.taken.take_back();
            !std::mem::take(&mut world.host_ran).is_empty()
        });
        for keep in 0..=COUNT {
            may(&|world| {
                world.asked += 1;
                let has_room = world.requests.len() < UNDER_WAY_MAX && world.asked <= ASKED_MAX;
                has_room && world.requests.insert(keep)
            });
        }
        for request in &self.requests {
            may(&|world| {
                if world.is_lost || world.answers.len() == UNDER_WAY_MAX {
                    return false;
                }
                world.device.keep(*request);
                world.answers.insert(world.device)
            });
            may(&|world| world.requests.remove(request));
        }
        for answer in &self.answers {
            may(&|world| {
                let own = world.host.answered(*answer);
                let count = own.len();
                world.taken.add(own);
                count > 0
            });
            may(&|world| world.answers.remove(answer));
        }
        found
    }

    /// The rows of the run `number` have come, all of them.
    fn hears_of_end(&mut self, number: u32) -> bool {
        let lease = self.lease.take_if(|(run, _)| *run == number);
        lease.is_some_and(|(_, places)| {
            self.taken.finish(places.len());
            let count = places.len();
            let before = self.leased_ran.len();
            self.leased_ran.extend(places);
            assert_eq!(self.leased_ran.len(), before + count, "done twice: {self:?}");
            true
        })
    }

    fn check(&self) {
        let (device_ran, host_ran) = (&self.device_ran, &self.host_ran);
        // Who has what when all is over, and what was on its way is given up.
        let mut host = self.host;
        let mut taken = self.taken.clone();
        if let Some((_, places)) = self.lease.clone() {
            taken.give_back(places);
        }
        let is_over = self.is_lost || self.device.begun == self.device.kept;
        let kept = self.device.kept;
        taken.add(match self.is_lost {
            true => host.lost(),
            false => host.answered(Lease { begun: self.device.begun, kept }),
        });
        let mut rest = BTreeSet::new();
        while let Some(place) = taken.next(0) {
            assert!(rest.insert(place), "{place} would be given out twice: {self:?}");
        }
        let by_host: BTreeSet<u32> = host_ran.union(&rest).copied().collect();
        assert_eq!(by_host.len(), host_ran.len() + rest.len(), "run twice: {self:?}");
        assert!(by_host.is_disjoint(&self.leased_ran), "run by both: {self:?}");
        assert_eq!(taken.count(), by_host.len() + self.leased_ran.len(), "{self:?}");
        // A lost run gave no rows: what it had begun is run by others.
        let none = BTreeSet::new();
        let device_ran = if self.is_lost { &none } else { device_ran };
        let ran: Vec<&u32> =
            by_host.iter().chain(&self.leased_ran).filter(|at| device_ran.contains(*at)).collect();
        assert!(ran.is_empty(), "{ran:?} are run by the device, too: {self:?}");
        let all = by_host.len() + self.leased_ran.len() + device_ran.len();
        assert!(!is_over || all == COUNT as usize, "some are run by nobody: {self:?}");
    }
}

#[test]
fn every_morsel_is_run_once_with_leases_too() {
    let known = count_states(World::new(), World::check, World::next);
    assert!(known > 5_000, "only {known} states were seen");
}

#[test]
fn later_passes_read_what_the_first_one_was_given() {
    let mut taken = TakenMorsels::default();
    taken.add([5, 4, 3, 2]);
    assert_eq!((taken.next(0), taken.next(1), taken.next(1)), (Some(5), Some(5), None));
    assert_eq!(taken.lease(2), [3, 2]);
    assert_eq!([taken.next(0), taken.next(0)], [Some(4), None]);
    taken.give_back(vec![3, 2]);
    // The first pass is over, and the second one has its rows.
    assert_eq!([taken.next(1), taken.next(1)], [Some(4), None]);
    assert!(taken.begin_again());
    assert_eq!([taken.next(0), taken.next(1), taken.next(0)], [Some(3), Some(3), Some(2)]);
    assert_eq!((taken.count(), taken.own_count(), taken.leased_count()), (4, 4, 0));
    assert_eq!((taken.next(0), taken.lease(1)), (None, Vec::new()));
}

#[test]
fn partitions_that_need_no_morsel_are_not_begun_for_ever() {
    let mut taken = TakenMorsels::default();
    taken.add([2, 1]);
    assert_eq!(taken.lease(1), [1]);
    taken.give_back(vec![1]);
    assert!(taken.begin_again());
    assert_eq!(taken.next(0), Some(2));
    // These had one, and may need the other. The next ones join no rows.
    assert!(taken.begin_again());
    assert!(!taken.begin_again());
    assert_eq!((taken.count(), taken.own_count()), (2, 2));
}

#[test]
fn what_failed_partitions_were_given_is_with_nobody() {
    let mut taken = TakenMorsels::default();
    taken.add([3, 2, 1]);
    assert_eq!((taken.next(0), taken.next(1)), (Some(3), Some(3)));
    assert_eq!(taken.lease(1), [1]);
    // Others go on, and fail with what they were given.
    taken.give_back(vec![1]);
    assert!(taken.begin_again());
    assert_eq!((taken.next(0), taken.next(1)), (Some(2), Some(2)));
    taken.take_back();
    assert_eq!(taken.lease(usize::MAX), [2, 1]);
    taken.give_back(vec![2, 1]);
    // They can be run by partitions too, all of which were given none.
    assert!(taken.begin_again());
    taken.take_back();
    assert!(taken.begin_again());
    assert_eq!([taken.next(0), taken.next(0), taken.next(0)], [Some(2), Some(1), None]);
    assert_eq!((taken.count(), taken.own_count()), (3, 3));
}
