//! Sequences at run time: a name in, numbers out that are given once, also across a crash.
//!
//! ```text
//!  nextval ─▶ numbers that are reserved ─▶ given
//!                 └ too few: a record in the log says that AHEAD more are gone ─▶ durable ─▶ given
//! ```
//!
//! 1. [`Sequences::take`] gives numbers. They belong to no transaction: ROLLBACK brings none back, and taking some
//!    waits for no other transaction, nor for the writer lock.
//! 2. A record of the [log] reserves numbers ahead, and is durable before the first of them is given. After a crash the
//!    sequence goes on behind what was reserved.
//! 3. A manifest has the number given last ([`Sequences::as_given`]); the next one after that is reserved anew, so that
//!    a database that was closed cleanly leaves no gap. The manifest's place in the log is fixed before these values
//!    are: a record between them is read again, and says nothing new.
//!
//! Source: PostgreSQL's manual, "Sequence Manipulation Functions"; its `sequence.c` logs 32 values ahead, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::sequence::{NumberSource, Sequence, step};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_txn::Record;

use crate::log;
use crate::storage_engine::Engine;

/// Numbers that a record reserves beyond those that are asked for.
const AHEAD: u32 = 32;

/// What the sequences of a database have given.
#[derive(Debug, Default)]
pub struct Sequences {
    live: Mutex<BTreeMap<u32, Live>>,
}

#[derive(Debug, Clone)]
struct Live {
    sequence: Arc<Sequence>,
    last: i64,
    is_called: bool,
    /// Numbers behind `last` that a record has reserved.
    reserved: u64,
    /// The end of that record.
    log_end: u64,
}

impl Sequences {
    /// The next `count` numbers of `sequence`.
    ///
    /// # Errors
    /// [`Error::Invalid`] behind the last one, and where nothing can be written; those of the log.
    pub fn take(
        &self,
        database: &Engine,
        sequence: &Arc<Sequence>,
        count: usize,
    ) -> Result<Vec<i64>> {
        let (values, end) = {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = live.entry(sequence.id).or_insert_with(|| Live::new(sequence));
            let mut next = kept.as_in(sequence);
            let mut values = Vec::with_capacity(count);
            for _ in 0..count {
                values.push(next.step().ok_or_else(|| exhausted(&next.sequence))?);
            }
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            match next.reserved.checked_sub(count) {
                Some(left) => next.reserved = left,
                None => {
                    let mut ahead = next.clone();
                    let steps = (0..AHEAD).take_while(|_| ahead.step().is_some());
                    next.reserved = steps.count() as u64;
                    next.log_end = ahead.append(database)?;
                }
            }
            *kept = next;
            (values, kept.log_end)
        };
        database.harden_now(end)?;
        Ok(values)
    }

    /// Runs setval: the next number follows `value`, or is `value` where that is not called.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a value beyond the limits; those of the log.
    pub fn set(
        &self,
        database: &Engine,
        sequence: &Arc<Sequence>,
        (value, is_called): (i64, bool),
    ) -> Result<()> {
        let end = {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = live.entry(sequence.id).or_insert_with(|| Live::new(sequence));
            let Sequence { name, min, max, .. } = &**sequence;
            if !(*min..=*max).contains(&value) {
                return Err(Error::Invalid {
                    message: format!(
                        "setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})"
                    ),
                    fault: Fault::Range,
                    position: None,
                });
            }
            let mut next = Live { last: value, is_called, reserved: 0, ..kept.as_in(sequence) };
            next.log_end = next.append(database)?;
            *kept = next;
            kept.log_end
        };
        database.harden_now(end)
    }

    /// Applies a record of the log to a sequence of `state`; one that was dropped since is ignored.
    pub(crate) fn recovered(&self, state: &CatalogState, logged: &log::CommittedSequence) {
        let sequence = state.sequences.values().find(|sequence| sequence.id == logged.id);
        let Some(sequence) = sequence else { return };
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let recovered =
            Live { last: logged.last, is_called: logged.is_called, ..Live::new(sequence) };
        live.insert(sequence.id, recovered);
    }

    /// The last value of `sequence`, and whether it was given.
    pub fn last(&self, sequence: &Sequence) -> (i64, bool) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = live.get(&sequence.id);
        kept.map_or((sequence.last, sequence.is_called), |kept| (kept.last, kept.is_called))
    }

    /// `sequences` with the last values that were given, for a manifest. What was reserved behind them is to be
    /// reserved anew.
    pub(crate) fn as_given(
        &self,
        sequences: &BTreeMap<String, Arc<Sequence>>,
    ) -> BTreeMap<String, Arc<Sequence>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of a transaction that has not committed stay.
        live.retain(|_, kept| {
            let sequence = &kept.sequence;
            Arc::strong_count(sequence) > 1 || Arc::strong_count(&sequence.shared) > 1
        });
        let given = sequences.iter().map(|(name, sequence)| {
            let given = match live.get_mut(&sequence.id) {
                Some(kept) => {
                    kept.reserved = 0;
                    let last = kept.last.clamp(sequence.min, sequence.max);
                    let is_called = kept.is_called;
                    Arc::new(Sequence { last, is_called, ..Sequence::clone(sequence) })
                }
                None => Arc::clone(sequence),
            };
            (name.clone(), given)
        });
        given.collect()
    }
}

impl NumberSource for Engine {
    fn take(&self, sequence: &Arc<Sequence>, count: usize) -> Result<Vec<i64>> {
        self.sequences().take(self, sequence, count)
    }
}

impl Live {
    fn new(sequence: &Arc<Sequence>) -> Self {
        Self {
            sequence: Arc::clone(sequence),
            last: sequence.last,
            is_called: sequence.is_called,
            reserved: 0,
            log_end: 0,
        }
    }

    /// The same where the session that asks sees `sequence`, whose steps and limits its numbers follow.
    fn as_in(&self, sequence: &Arc<Sequence>) -> Self {
        let reserved = if self.sequence.steps_as(sequence) { self.reserved } else { 0 };
        Self { sequence: Arc::clone(sequence), reserved, ..self.clone() }
    }

    /// The next number.
    fn step(&mut self) -> Option<i64> {
        if self.is_called {
            self.last = step(&self.sequence, self.last)?;
        }
        self.is_called = true;
        Some(self.last)
    }

    /// Logs that this much is reserved; returns the end of the record.
    fn append(&self, database: &Engine) -> Result<u64> {
        database.check_running()?;
        let Some(log) = database.log() else {
            let message = "the database is open read-only: sequences give no numbers".to_owned();
            return Err(Error::Invalid { message, fault: Fault::State, position: None });
        };
        let payload = log::of_sequence(self.sequence.id, self.last, self.is_called);
        let transaction = database.transaction_id();
        let appended = log.append(Record::Commit { transaction, payload: &payload })?;
        database.note_logged();
        Ok(appended.end.0)
    }
}

fn exhausted(sequence: &Sequence) -> Error {
    let (word, limit) = match sequence.increment > 0 {
        true => ("maximum", sequence.max),
        false => ("minimum", sequence.min),
    };
    Error::Invalid {
        message: format!(
            "nextval: reached {word} value of sequence \"{}\" ({limit})",
            sequence.name
        ),
        fault: Fault::SequenceLimit,
        position: None,
    }
}
