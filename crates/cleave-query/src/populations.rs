//! Materialized views whose rows are made in the background, and why those have none that failed.
//!
//! Known in this process only: after a restart such a view is one that was created WITH NO DATA.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most views that are populated at once: each is a session that nobody has connected.
const UNDER_WAY_MAX: usize = 8;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Populations {
    states: Mutex<States>,
}

#[derive(Debug, Default)]
struct States {
    by_view: BTreeMap<u32, State>,
    /// Slots that are taken.
    taken: usize,
}

#[derive(Debug)]
enum State {
    UnderWay,
    Failed(String),
}

impl Populations {
    /// Takes a slot for a view that is to be populated in the background; None: as many are as may be.
    pub fn take_slot(self: &Arc<Self>) -> Option<Slot> {
        let mut states = self.states();
        if states.taken == UNDER_WAY_MAX {
            return None;
        }
        states.taken += 1;
        Some(Slot { all: Arc::clone(self) })
    }

    /// What `cleave.result_sets` says of a view that has no rows.
    pub(crate) fn state_of(&self, view: u32) -> String {
        match self.states().by_view.get(&view) {
            None => "not populated".to_owned(),
            Some(State::UnderWay) => "being populated".to_owned(),
            Some(State::Failed(reason)) => format!("not populated: {reason}"),
        }
    }

    /// Forgets those of which `is_view` is false.
    pub fn retain(&self, is_view: impl Fn(u32) -> bool) {
        self.states().by_view.retain(|view, _| is_view(*view));
    }

    fn states(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the slots for views that are populated at once, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    all: Arc<Populations>,
}

impl Slot {
    /// Notes that the rows of the view with the id `view` are being made, until [`Population::end`].
    #[must_use]
    pub fn begin(self, view: u32) -> Population {
        self.all.states().by_view.insert(view, State::UnderWay);
        Population { slot: self, view }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.states().taken -= 1;
    }
}

/// One that is under way. If it is dropped it was given up.
#[derive(Debug)]
pub struct Population {
    slot: Slot,
    view: u32,
}

impl Population {
    /// Notes its end; `failure`: why there are no rows.
    pub fn end(self, failure: Option<String>) {
        let mut states = self.slot.all.states();
        match failure {
            Some(reason) => states.by_view.insert(self.view, State::Failed(reason)),
            None => states.by_view.remove(&self.view),
        };
    }
}

impl Drop for Population {
    fn drop(&mut self) {
        let mut states = self.slot.all.states();
        if let Some(state @ State::UnderWay) = states.by_view.get_mut(&self.view) {
            *state = State::Failed("it was given up".to_owned());
        }
    }
}
