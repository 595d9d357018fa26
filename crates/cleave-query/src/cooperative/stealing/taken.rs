//! The morsels that the host has taken of a run: places in the run's list in, who works on them out.
//!
//! ```text
//!   taken    ■ ■ ■ □ □ │ ◇ ◇ ◇
//!            given out ■, waiting □            leased ◇: off the list, until they are done or come back
//! ```
//!
//! The host's own partitions are given them in the order in which they were taken. A device of another node leases some
//! from the end, which no partition was given. It either has done all of a lease, or the lease comes back.
//!
//! Invariant: each place is with one side. Passes of the host's partitions after the first one are given what that was
//! given, and nothing that came later: that is for partitions which begin anew ([`TakenMorsels::begin_again`]).

/// See the [module](self).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TakenMorsels {
    /// The host's own, in the order in which they are given out.
    own: Vec<u32>,
    /// How many of them each pass was given.
    given_out: Vec<usize>,
    /// How many are leased now, and how many were and are done.
    leased: usize,
    done: usize,
    /// How many the first pass had been given when partitions last began anew.
    begun_at: Option<usize>,
}

impl TakenMorsels {
    /// The device has given these back.
    pub(super) fn add(&mut self, places: impl IntoIterator<Item = u32>) {
        self.own.extend(places);
    }

    /// How many were taken in all.
    pub(super) fn count(&self) -> usize {
        self.own.len() + self.leased + self.done
    }

    /// How many of them are for the host's own partitions.
    pub(super) fn own_count(&self) -> usize {
        self.own.len()
    }

    /// How many of them are leased now.
    pub(super) fn leased_count(&self) -> usize {
        self.leased
    }

    /// How many of the host's own the first pass was given.
    pub(super) fn given_count(&self) -> usize {
        self.given_out.first().copied().unwrap_or_default()
    }

    /// The next one for the host's partitions in `pass`.
    pub(super) fn next(&mut self, pass: usize) -> Option<u32> {
        if self.given_out.len() <= pass {
            self.given_out.resize(pass + 1, 0);
        }
        let first = self.given_count();
        let given = self.given_out.get_mut(pass)?;
        if pass > 0 && *given >= first {
            return None;
        }
        let place = self.own.get(*given).copied()?;
        *given += 1;
        Some(place)
    }

    /// Whether some were given to no partition. Partitions that find no more are done, and morsels may come after that:
    /// they need others, whose passes begin here. Where those were given none, no partition needs any: a join of no
    /// rows does not read its other side.
    pub(super) fn begin_again(&mut self) -> bool {
        let first = self.given_count();
        if first >= self.own.len() || self.begun_at == Some(first) {
            return false;
        }
        self.begun_at = Some(first);
        self.given_out.fill(first);
        true
    }

    /// The partitions that were given the last ones have failed before they gave out a row: nobody was given these.
    pub(super) fn take_back(&mut self) {
        let first = self.begun_at.take().unwrap_or_default();
        self.given_out.fill(first);
    }

    /// Leases up to `count` of those that were given to no partition.
    pub(super) fn lease(&mut self, count: usize) -> Vec<u32> {
        let free = self.own.len().saturating_sub(self.given_count());
        let leased = self.own.split_off(self.own.len() - free.min(count));
        self.leased += leased.len();
        leased
    }

    /// All of a lease of so many is done.
    pub(super) fn finish(&mut self, count: usize) {
        self.leased = self.leased.saturating_sub(count);
        self.done += count;
    }

    /// A lease comes back, of which nothing counts as done.
    pub(super) fn give_back(&mut self, places: Vec<u32>) {
        self.leased = self.leased.saturating_sub(places.len());
        self.own.extend(places);
    }
}
