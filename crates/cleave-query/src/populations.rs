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
    by_view: Mutex<BTreeMap<u32, State>>,
}

#[derive(Debug)]
enum State {
    UnderWay,
    Failed(String),
}

impl Populations {
    /// Whether another view may be populated in the background.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let states = self.states();
        states.values().filter(|state| matches!(state, State::UnderWay)).count() < UNDER_WAY_MAX
    }

    /// Notes that the rows of the view with the id `view` are being made, until [`Population::end`].
    pub fn begin(self: &Arc<Self>, view: u32) -> Population {
        self.states().insert(view, State::UnderWay);
        Population { all: Arc::clone(self), view }
    }

    /// What `cleave.result_sets` says of a view that has no rows.
    pub(crate) fn state_of(&self, view: u32) -> String {
        match self.states().get(&view) {
            None => "not populated".to_owned(),
            Some(State::UnderWay) => "being populated".to_owned(),
            Some(State::Failed(reason)) => format!("not populated: {reason}"),
        }
    }

    /// Forgets those of which `is_view` is false.
    pub fn retain(&self, is_view: impl Fn(u32) -> bool) {
        self.states().retain(|view, _| is_view(*view));
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<u32, State>> {
        self.by_view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that is under way. If it is dropped it was given up.
#[derive(Debug)]
pub struct Population {
    all: Arc<Populations>,
    view: u32,
}

impl Population {
    /// Notes its end; `failure`: why there are no rows.
    pub fn end(self, failure: Option<String>) {
        match failure {
            Some(reason) => self.all.states().insert(self.view, State::Failed(reason)),
            None => self.all.states().remove(&self.view),
        };
    }
}

impl Drop for Population {
    fn drop(&mut self) {
        let mut states = self.all.states();
        if let Some(state @ State::UnderWay) = states.get_mut(&self.view) {
            *state = State::Failed("it was given up".to_owned());
        }
    }
}
