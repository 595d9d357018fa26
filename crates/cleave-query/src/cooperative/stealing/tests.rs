//! All sequences of takes, requests, answers, losses and repetitions, over the two states that the system itself uses:
//! [`Lease`] on the device, [`Part`] on the host.

use std::collections::{BTreeSet, VecDeque};

use cleave_fragment::Lease;

use super::Part;

mod leases;
mod lent;

const COUNT: u32 = 4;
/// Messages of each kind that may be on their way at once.
const UNDER_WAY_MAX: usize = 3;
/// Requests that the host makes in all.
const ASKED_MAX: u32 = 3;

/// A host, a device, and what is between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    device: Lease,
    /// Morsels that the device has begun.
    device_ran: BTreeSet<u32>,
    /// The device was restarted and knows nothing of the run.
    restarted: bool,
    host: Part,
    /// Morsels that the host took, which it will run.
    host_has: BTreeSet<u32>,
    asked: u32,
    /// On their way, in no order: any may arrive, any number of times, or never.
    requests: BTreeSet<u32>,
    answers: BTreeSet<Lease>,
}

impl World {
    fn new() -> Self {
        Self {
            device: Lease { begun: 0, kept: COUNT },
            device_ran: BTreeSet::new(),
            restarted: false,
            host: Part::new(COUNT),
            host_has: BTreeSet::new(),
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
        // A partition takes the next morsel.
        may(&|world| {
            let place = if world.restarted { None } else { world.device.take(world.device.begun) };
            place.is_some_and(|place| world.device_ran.insert(place))
        });
        // The host asks for some, or for none.
        for keep in 0..=COUNT {
            may(&|world| {
                world.asked += 1;
                let has_room = world.requests.len() < UNDER_WAY_MAX && world.asked <= ASKED_MAX;
                has_room && world.requests.insert(keep)
            });
        }
        for request in &self.requests {
            // It arrives, and may arrive again; a device that was restarted answers with an error, which is no answer.
            may(&|world| {
                if world.restarted || world.answers.len() == UNDER_WAY_MAX {
                    return false;
                }
                world.device.keep(*request);
                world.answers.insert(world.device)
            });
            // It is lost.
            may(&|world| world.requests.remove(request));
        }
        for answer in &self.answers {
            may(&|world| {
                let own = world.host.answered(*answer);
                let count = own.len();
                world.host_has.extend(own);
                count > 0
            });
            may(&|world| world.answers.remove(answer));
        }
        may(&|world| !std::mem::replace(&mut world.restarted, true));
        found
    }

    /// What the host has once the run's report has come, which follows its last morsel.
    fn at_the_end(&self) -> BTreeSet<u32> {
        let mut host = self.host;
        let own = host.answered(Lease { begun: self.device.kept, kept: self.device.kept });
        self.host_has.iter().copied().chain(own).collect()
    }

    fn check(&self) {
        let both: Vec<_> = self.device_ran.intersection(&self.host_has).collect();
        assert!(both.is_empty(), "{both:?} are run by both: {self:?}");
        if !self.restarted && self.device.begun == self.device.kept {
            let host_has = self.at_the_end();
            assert!(host_has.is_disjoint(&self.device_ran), "run by both at the end: {self:?}");
            let count = host_has.len() + self.device_ran.len();
            assert_eq!(count, COUNT as usize, "some are run by neither: {self:?}");
        }
        if self.restarted {
            // Its run had given no rows: the host runs all that it had not taken, and nothing twice.
            let mut host = self.host;
            let rest: BTreeSet<u32> = host.lost().collect();
            assert!(rest.is_disjoint(&self.host_has), "taken twice: {self:?}");
            assert_eq!(rest.len() + self.host_has.len(), COUNT as usize, "lost: {self:?}");
        }
    }
}

#[test]
fn every_morsel_is_run_once_whatever_is_lost_late_or_doubled() {
    let known = count_states(World::new(), World::check, World::next);
    assert!(known > 10_000, "only {known} states were seen");
}

/// Checks each state that can be reached from `first`; returns their number.
fn count_states<W: Clone + Ord>(first: W, check: fn(&W), next: fn(&W) -> Vec<W>) -> usize {
    let mut known = BTreeSet::from([first.clone()]);
    let mut open = VecDeque::from([first]);
    while let Some(world) = open.pop_front() {
        check(&world);
        for next in next(&world) {
            if known.insert(next.clone()) {
                open.push_back(next);
            }
        }
    }
    known.len()
}
