//! The queues of a storage node: which of its compute engines an idle one helps, and until when.
//!
//! A node is a few engines, each with cores, media and runs of its own. The morsels that an engine's runs have not
//! begun are its queue, one over all statements. An engine that has cores to spare lends them to the others:
//!
//! ```text
//!   own work begins, rests ──▶ ┌─────────┐ ── a core of `helper` goes to a run of `engine` ──▶ it takes morsels there
//!   loans that wait        ──▶ │ Engines │ ◀─ before each morsel: does it go on? ─────────────── │
//!   queues                 ──▶ └─────────┘ ◀─ it ends: no morsel is left, or its rows must wait ─┘
//! ```
//!
//! 1. A run that may be helped asks for [`Loan`]s when it begins, of the engines that [`Engines::helpers`] names.
//! 2. A loan is [granted](Engines::grant) while its helper has a core that does nothing, to the engine with most
//!    morsels left for each core that works for it.
//! 3. Before each morsel a granted loan asks whether it [goes on](Engines::goes_on): a helper with work of its own
//!    takes its core back. So own work waits for a morsel at most.
//!
//! Invariants: an engine that is granted a loan has idle cores; when all grants are made, no loan waits for a helper
//! with an idle core while morsels are left for it. Who takes which morsel, each exactly once, is no matter of this
//! module ([`MorselList`](crate::MorselList)). It has no clock and does no I/O, so that a simulation decides by the
//! same code.

use std::cmp::Reverse;

/// A core of one engine of a node that works for a run of another one, or waits to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loan {
    /// The engine whose core it is.
    pub helper: usize,
    /// The engine whose run it is.
    pub engine: usize,
}

/// What the engines of a node do, by number.
#[derive(Debug, Clone, Default)]
pub struct Engines {
    engines: Vec<Engine>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Engine {
    cores: u32,
    /// Partitions of its own runs that work.
    own: u32,
    /// Cores that it lends.
    lent: u32,
    /// Cores that it has borrowed.
    borrowed: u32,
}

impl Engine {
    fn idle(&self) -> u32 {
        self.cores.saturating_sub(self.own.saturating_add(self.lent))
    }

    /// How many would work for its runs with one more loan.
    fn workers_with_one_more(&self) -> u64 {
        u64::from(self.own) + u64::from(self.borrowed) + 1
    }
}

impl Engines {
    /// Adds an engine with `cores`; returns its number.
    pub fn add(&mut self, cores: u32) -> usize {
        self.engines.push(Engine { cores, ..Engine::default() });
        self.engines.len() - 1
    }

    /// `engine` has ended: it lends no more.
    pub fn leave(&mut self, engine: usize) {
        self.change(engine, |engine| engine.cores = 0);
    }

    /// A partition of an own run of `engine` works, for the first time or again.
    pub fn begin(&mut self, engine: usize) {
        self.change(engine, |engine| engine.own = engine.own.saturating_add(1));
    }

    /// A partition of an own run of `engine` has ended, or waits for its rows to be consumed.
    pub fn rest(&mut self, engine: usize) {
        self.change(engine, |engine| engine.own = engine.own.saturating_sub(1));
    }

    /// The helpers for up to `count` loans to a new run of `engine`, out of those that `may_help`: the idlest first,
    /// one loan of each in turn, and of none more than it has cores.
    pub fn helpers(
        &self,
        engine: usize,
        count: usize,
        may_help: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let all = self.engines.len();
        let others = self.engines.iter().enumerate().filter(|(other, _)| *other != engine);
        let mut others: Vec<_> = others.filter(|(other, _)| may_help(*other)).collect();
        // Of equal ones the next by number, so that the engines of a node do not all ask the same one.
        others
            .sort_by_key(|(other, at)| (Reverse(at.idle()), (other + all - engine.min(all)) % all));
        let rounds = others.iter().map(|(_, at)| at.cores).max().unwrap_or(0);
        let of_round = |round: u32| others.iter().filter(move |(_, at)| at.cores > round);
        let in_turn = (0..rounds).flat_map(of_round);
        in_turn.map(|(other, _)| *other).take(count).collect()
    }

    /// The loan of `waiting` that is granted next, if any: its place in the list. `queues` are the morsels left of the
    /// runs that may be helped, by engine. Of equal ones it is the first.
    pub fn grant(&mut self, waiting: &[Loan], queues: &[u64]) -> Option<usize> {
        let mut best: Option<(usize, Loan, u64, u64)> = None;
        for (place, loan) in waiting.iter().enumerate() {
            let is_idle = self.engines.get(loan.helper).is_some_and(|helper| helper.idle() > 0);
            let left = queues.get(loan.engine).copied().unwrap_or(0);
            let Some(engine) = self.engines.get(loan.engine).filter(|_| is_idle && left > 0) else {
                continue;
            };
            let workers = engine.workers_with_one_more();
            let is_longer = best.is_none_or(|(_, _, best_left, best_workers)| {
                u128::from(left) * u128::from(best_workers)
                    > u128::from(best_left) * u128::from(workers)
            });
            if is_longer {
                best = Some((place, *loan, left, workers));
            }
        }
        let (place, loan, ..) = best?;
        self.change(loan.helper, |helper| helper.lent = helper.lent.saturating_add(1));
        self.change(loan.engine, |engine| engine.borrowed = engine.borrowed.saturating_add(1));
        Some(place)
    }

    /// Whether a granted loan goes on with another morsel. If not, it has ended.
    pub fn goes_on(&mut self, loan: Loan) -> bool {
        let helper = self.engines.get(loan.helper).copied().unwrap_or_default();
        let goes_on = helper.own.saturating_add(helper.lent) <= helper.cores;
        if !goes_on {
            self.end(loan);
        }
        goes_on
    }

    /// A granted loan has ended.
    pub fn end(&mut self, loan: Loan) {
        self.change(loan.helper, |helper| helper.lent = helper.lent.saturating_sub(1));
        self.change(loan.engine, |engine| engine.borrowed = engine.borrowed.saturating_sub(1));
    }

    /// Cores that `engine` lends at present.
    pub fn lent(&self, engine: usize) -> u32 {
        self.engines.get(engine).map_or(0, |engine| engine.lent)
    }

    fn change(&mut self, engine: usize, change: impl FnOnce(&mut Engine)) {
        if let Some(engine) = self.engines.get_mut(engine) {
            change(engine);
        }
    }
}

#[cfg(test)]
mod tests;
