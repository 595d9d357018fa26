//! The same where a node lends a core to the run: two takers of one [`Lease`], each of which holds a morsel for a
//! while, and a second pass of the run's own engine over what it kept.
//!
//! A core that is given back takes along the morsel that it has begun, so it is the same taker elsewhere. One whose
//! engine ends takes the run with it.

use std::collections::BTreeSet;

use cleave_fragment::Lease;

use super::{Part, count_states};

const COUNT: u32 = 3;
const UNDER_WAY_MAX: usize = 2;
const ASKED_MAX: u32 = 2;
/// The pass of lent cores, and the one after it.
const PASSES: [usize; 2] = [0, 1];
/// The run's own engine, which takes part in each pass, and a lent core.
const TAKERS: [(usize, &[usize]); 2] = [(0, &PASSES), (1, &[0])];

/// A host, a run with two takers, and what is between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    list: Lease,
    /// Morsels that were taken in each pass.
    taken: [u32; 2],
    /// What each taker holds: a pass, and a morsel of it.
    in_hand: [Option<(usize, u32)>; 2],
    /// Morsels of each pass whose rows are in the run's.
    done: [BTreeSet<u32>; 2],
    /// The run is gone, by its own engine's end or the lender's.
    is_lost: bool,
    host: Part,
    host_has: BTreeSet<u32>,
    asked: u32,
    requests: BTreeSet<u32>,
    answers: BTreeSet<Lease>,
}

impl World {
    fn new() -> Self {
        Self {
            list: Lease { begun: 0, kept: COUNT },
            taken: [0; 2],
            in_hand: [None; 2],
            done: [BTreeSet::new(), BTreeSet::new()],
            is_lost: false,
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
        for (taker, passes) in TAKERS {
            for pass in passes {
                may(&|world| world.takes(taker, *pass));
            }
            may(&|world| world.ends_morsel(taker));
        }
        may(&|world| !std::mem::replace(&mut world.is_lost, true));
        for keep in 0..=COUNT {
            may(&|world| {
                world.asked += 1;
                let has_room = world.requests.len() < UNDER_WAY_MAX && world.asked <= ASKED_MAX;
                has_room && world.requests.insert(keep)
            });
        }
        for request in &self.requests {
            // It arrives, and may arrive again.
            may(&|world| {
                if world.is_lost || world.answers.len() == UNDER_WAY_MAX {
                    return false;
                }
                world.list.keep(*request);
                world.answers.insert(world.list)
            });
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
        found
    }

    fn takes(&mut self, taker: usize, pass: usize) -> bool {
        if self.is_lost || self.in_hand[taker].is_some() {
            return false;
        }
        let Some(place) = self.list.take(self.taken[pass]) else { return false };
        self.taken[pass] += 1;
        let is_in_hand = self.in_hand.contains(&Some((pass, place)));
        assert!(!is_in_hand && !self.done[pass].contains(&place), "{place} is taken twice");
        self.in_hand[taker] = Some((pass, place));
        true
    }

    fn ends_morsel(&mut self, taker: usize) -> bool {
        if self.is_lost {
            return false;
        }
        let ended = self.in_hand[taker].take();
        ended.is_some_and(|(pass, place)| self.done[pass].insert(place))
    }

    fn check(&self) {
        let begun = self.in_hand.iter().flatten().map(|(_, place)| *place);
        let run: BTreeSet<u32> = begun.chain(self.done.iter().flatten().copied()).collect();
        assert!(run.is_disjoint(&self.host_has), "run by both: {self:?}");
        let mut host = self.host;
        if self.is_lost {
            let rest: BTreeSet<u32> = host.lost().collect();
            assert!(rest.is_disjoint(&self.host_has), "taken twice: {self:?}");
            assert_eq!(rest.len() + self.host_has.len(), COUNT as usize, "lost: {self:?}");
            return;
        }
        let is_over = PASSES.into_iter().all(|pass| self.taken[pass] == self.list.kept);
        if is_over && self.in_hand == [None; 2] {
            // The report: what the run kept, each pass has given.
            let kept = self.list.kept;
            let own = host.answered(Lease { begun: kept, kept });
            let host_has: BTreeSet<u32> = self.host_has.iter().copied().chain(own).collect();
            let (rest, all): (BTreeSet<u32>, BTreeSet<u32>) =
                ((kept..COUNT).collect(), (0..kept).collect());
            assert_eq!(host_has, rest, "{self:?}");
            assert!(self.done.iter().all(|done| *done == all), "{self:?}");
        }
    }
}

#[test]
fn every_morsel_is_run_once_with_lent_cores_too() {
    let known = count_states(World::new(), World::check, World::next);
    assert!(known > 50_000, "only {known} states were seen");
}
