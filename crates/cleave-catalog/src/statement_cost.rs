//! What a statement has cost beside time: its queries add to it as they end, and whoever counts statements reads it.
//!
//! A session gives each of its statements one of its own, by its settings; a session that nobody counts has none.
//!
//! Invariant: it is nothing that a plan or a result could depend on, and so any two are equal.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// The cost of one statement, shared by all who work on it.
#[derive(Debug, Clone, Default)]
pub struct StatementCost(Option<Arc<Mutex<Cost>>>);

/// Sums over the planned queries of a statement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cost {
    /// The split of its first query; None: it had no plan.
    pub split: Option<String>,
    /// Bytes that crossed links, in either direction.
    pub link_bytes: u64,
    /// Bytes that fragments read at the media.
    pub media_bytes: u64,
    /// CPU time of the host meanwhile, in milliseconds.
    pub host_cpu_ms: f64,
    /// CPU time of the fragments, in milliseconds.
    pub device_cpu_ms: f64,
    /// Fragments that were to run on a device and that the host ran.
    pub refused: u64,
}

impl StatementCost {
    /// No cost yet, to be added to.
    #[must_use]
    pub fn begun() -> Self {
        Self(Some(Arc::default()))
    }

    /// Adds a query's, by `add`; does nothing where nobody counts.
    pub fn add(&self, add: impl FnOnce(&mut Cost)) {
        if let Some(cost) = &self.0 {
            add(&mut cost.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The cost so far.
    #[must_use]
    pub fn so_far(&self) -> Cost {
        let cost = self.0.as_ref();
        let copy =
            |cost: &Arc<Mutex<Cost>>| cost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        cost.map(copy).unwrap_or_default()
    }
}

impl PartialEq for StatementCost {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StatementCost {}

impl Hash for StatementCost {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
