//! Who leads a sync, who waits for which, and who is woken: the decisions of [`super::writer`], without its mutex.
//!
//! Syncs are numbered by turns. Who waits for what the sync under way covers waits for its turn, everybody else for the
//! next one. When a turn ends, all of it are woken, and one of the next, to lead it. Those who `await` are woken by
//! what they wait for, and [`Progress::is_asked`] tells the log's own thread to lead for them.
//!
//! Invariant: while anybody waits, somebody leads, or was woken to lead. The tests go through all interleavings of a
//! small case.

use super::record::Lsn;

/// How far the log is durable, and what is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    durable: Lsn,
    /// What the leader makes durable now.
    under_way: Option<Lsn>,
    /// Syncs begun.
    turn: u64,
    failure: Option<String>,
    /// How far those who `await` want it durable.
    wanted: Lsn,
}

/// What whoever waits is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on: it is durable.
    Durable,
    /// Give up: it will never be.
    Failed(String),
    /// Lead.
    Lead,
    /// Sleep until this turn wakes it, and ask again.
    Wait { turn: u64 },
}

/// Who is to be woken when a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wake {
    /// All who sleep for this turn.
    pub(crate) ended: u64,
    /// One who sleeps for the turn after it, or all.
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

    /// What to do for whoever waits until everything before `end` is durable.
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

    /// Somebody begins to lead; the sync will cover all before `end`.
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

    /// Somebody comes to `await` that everything before `end` is durable; whether the log's own thread must be told.
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
