//! The results of `currval` and `lastval` in one session: the numbers that it has taken last, by sequence id.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Fault, Result};

/// The numbers that a session has taken last.
#[derive(Debug, Clone, Default)]
pub struct SequenceValues {
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    by_id: BTreeMap<u32, i64>,
    /// The sequence of which a number was taken last.
    last: Option<u32>,
}

impl SequenceValues {
    /// Records the number that was taken, or set, last.
    pub fn note(&self, sequence: u32, value: i64, is_taken: bool) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.by_id.insert(sequence, value);
        if is_taken {
            taken.last = Some(sequence);
        }
    }

    /// Makes the last value of the sequence `from` that of the sequence `to`, which replaces it.
    pub fn pass_on(&self, from: u32, to: u32) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = taken.by_id.get(&from).copied() {
            taken.by_id.insert(to, value);
        }
        if taken.last == Some(from) {
            taken.last = Some(to);
        }
    }

    /// Forgets all values.
    pub fn forget(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Taken::default();
    }

    /// `currval`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the session has taken none.
    pub fn current(&self, sequence: u32, name: &str) -> Result<i64> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.by_id.get(&sequence).copied().ok_or_else(|| Error::Invalid {
            message: format!("currval of sequence \"{name}\" is not yet defined in this session"),
            fault: Fault::State,
            position: None,
        })
    }

    /// `lastval`, with the sequence that it is of: its value may have been set since a number was taken.
    ///
    /// # Errors
    /// As [`Self::current`].
    pub fn last(&self) -> Result<(u32, i64)> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let last = taken.last.and_then(|last| Some((last, *taken.by_id.get(&last)?)));
        last.ok_or_else(Self::no_last)
    }

    /// What `lastval` says while no number was taken, or once the sequence of the last one is gone.
    pub fn no_last() -> Error {
        let message = "lastval is not yet defined in this session".to_owned();
        Error::Invalid { message, fault: Fault::State, position: None }
    }
}

/// Clients are equal whatever values they have.
impl PartialEq for SequenceValues {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for SequenceValues {}

impl Hash for SequenceValues {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}
