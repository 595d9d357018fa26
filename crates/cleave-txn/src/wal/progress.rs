//! Decides which thread leads a sync, which sync a thread waits for, and which threads to wake: the logic of
//! [`super::writer`], without its mutex.
//!
//! Syncs are numbered; the number is the *turn*. A thread whose record the sync under way covers waits for that turn,
//! every other one for the next. When a turn ends, all its threads are woken, and one of the next, to lead it. Tasks
//! that `await` have wakers of their own, and [`Progress::is_asked`] tells the log's own thread to lead for them.
//!
//! Invariant: while any thread waits, one leads, or was woken to lead. The tests go through all interleavings of a
//! small case.

use super::record::Lsn;

/// How far the log is durable, and the sync under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    durable: Lsn,
    /// End of the records that the leader makes durable now.
    under_way: Option<Lsn>,
    /// Syncs begun.
    turn: u64,
    failure: Option<String>,
    /// End of the records that tasks `await`.
    wanted: Lsn,
}

/// The next action of a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on: it is durable.
    Durable,
    /// Give up: it will never be.
    Failed(String),
    /// Lead the sync.
    Lead,
    /// Sleep until this turn ends, and ask again.
    Wait { turn: u64 },
}

/// The threads to wake when a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wake {
    /// Wake all that sleep for this turn.
    pub(crate) ended: u64,
    /// Wake one that sleeps for this next turn, or all.
    pub(crate) next: u64,
    pub(crate) all_of_next: bool,
    /// The log's own thread.
    pub(crate) thread: bool,
}

impl Progress {
    /// Durable up to `durable`, and nothing under way.
    pub(crate) fn new(durable: Lsn) -> Self {
        Self { durable, under_way: None, turn: 0, failure: None, wanted: Lsn(0) }
    }

    /// Everything before it is durable.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Why nothing more will be durable.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The next action of a thread that waits until everything before `end` is durable.
    pub(crate) fn next(&self, end: Lsn) -> Next {
        if self.durable >= end {
            return Next::Durable;
        }
        match (&self.failure, self.under_way) {
            (Some(reason), _) => Next::Failed(reason.clone()),
            (None, None) => Next::Lead,
            (None, Some(covered)) => {
                Next::Wait { turn: if end <= covered { self.turn } else { self.turn + 1 } }
            }
        }
    }

    /// A thread begins to lead; its sync will cover all before `end`.
    pub(crate) fn begin(&mut self, end: Lsn) {
        debug_assert!(self.under_way.is_none(), "one leads at a time");
        self.under_way = Some(end);
        self.turn += 1;
    }

    /// The leader is done.
    pub(crate) fn finish(&mut self, outcome: Result<(), String>) -> Wake {
        let covered = self.under_way.take();
        match outcome {
            Ok(()) => self.durable = covered.unwrap_or(self.durable),
            Err(reason) => self.failure = Some(reason),
        }
        Wake {
            ended: self.turn,
            next: self.turn + 1,
            all_of_next: self.failure.is_some(),
            thread: self.is_asked(),
        }
    }

    /// A task starts to `await` that everything before `end` is durable; returns whether to tell the log's own thread.
    pub(crate) fn want(&mut self, end: Lsn) -> bool {
        let is_news = self.wanted < end;
        self.wanted = self.wanted.max(end);
        is_news
    }

    /// Whether the log's own thread is to lead.
    pub(crate) fn is_asked(&self) -> bool {
        self.wanted > self.durable && self.failure.is_none() && self.under_way.is_none()
    }
}

#[cfg(test)]
mod tests;
