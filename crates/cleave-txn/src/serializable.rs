//! SERIALIZABLE: what transactions have read and written in, and which of them must not commit out.
//!
//! Snapshots alone allow histories that no order of the transactions explains. Each of them has two read-write
//! dependencies in a row between transactions that ran side by side, `T1 → T2 → T3`, where an arrow goes from the one
//! that read to the one that wrote what the first did not see, and T3 committed first of the three. So that is what is
//! looked for, and one of the three ends:
//!
//! 1. [`Dependencies::begin`] gives a [`Tracked`] transaction, before its snapshot is taken; [`Tracked::has_snapshot`]
//!    is said after that.
//! 2. [`Tracked::reads_all`] and [`Tracked::reads_keys`] note what a statement may read, found or not;
//!    [`Tracked::writes`] what it changes. Each looks for who has done the opposite: so which of two is noted first is
//!    of no account.
//! 3. [`Tracked::prepare`] is the last that may fail, and comes while no other transaction commits; [`Tracked::ended`]
//!    says that the commit is there, and new snapshots have it. Dropped before it is prepared, the transaction is
//!    forgotten.
//!
//! ```text
//!   T1 ──reads what T2 writes──▶ T2 ──reads what T3 writes──▶ T3
//!   in                           pivot                        out: committed first
//! ```
//!
//! The pivot ends, unless it has committed; then T1 does. A transaction that writes nothing is no danger as T1 unless
//! T3 had committed before its snapshot. Who has ended is kept for as long as somebody runs who began before; when
//! these are too many, the two oldest become one that has read and written all objects that either has: that ends more
//! transactions, never fewer. [`Tracked::safety`] tells one that only reads whether it may go on without being noted
//! (DEFERRABLE).
//!
//! Invariant: of the transactions that have committed, the serialisation graph has no cycle. Source: Cahill, Röhm and
//! Fekete, "Serializable Isolation for Snapshot Databases"; Ports and Grittner, "Serializable Snapshot Isolation in
//! PostgreSQL"; rule 28.

mod graph;
mod sets;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use graph::Safety;
use graph::{Graph, NodeId};
pub use sets::{KeySpan, Written};

/// A transaction must end, as the order of some would have a cycle otherwise: run it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("could not serialize access due to read/write dependencies among transactions")]
pub struct SerializationFailure;

/// The transactions of level SERIALIZABLE of one database. See the module's description.
#[derive(Debug, Default)]
pub struct Dependencies {
    graph: Mutex<Graph>,
}

/// One of them; forgotten when dropped, unless it was prepared.
#[derive(Debug)]
pub struct Tracked {
    id: NodeId,
    dependencies: Arc<Dependencies>,
}

impl Dependencies {
    /// Of a database whose transactions are all to come.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Begins a transaction, which will write nothing if it is `read_only`. Its snapshot is to be taken after this.
    #[must_use]
    pub fn begin(self: &Arc<Self>, read_only: bool) -> Tracked {
        let id = self.graph().begin(read_only);
        Tracked { id, dependencies: Arc::clone(self) }
    }

    /// How many transactions are remembered, and how many keys and ranges.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        self.graph().remembered()
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracked {
    /// Says that its snapshot was taken, since it began. Not said, it sees what had committed by then.
    pub fn has_snapshot(&self) {
        self.dependencies.graph().has_snapshot(self.id);
    }

    /// Whether a transaction that only reads may read anything of its snapshot, and not be noted.
    #[must_use]
    pub fn safety(&self) -> Safety {
        self.dependencies.graph().safety(self.id)
    }

    /// Notes that any row of `object` may be read, be it there or not.
    ///
    /// # Errors
    /// [`SerializationFailure`]: the transaction cannot commit any more.
    pub fn reads_all(&self, object: u64) -> Result<(), SerializationFailure> {
        self.dependencies.graph().read(self.id, object, None)
    }

    /// Notes that rows of `object` may be read whose keys lie in one of `spans`.
    ///
    /// # Errors
    /// [`SerializationFailure`]: the transaction cannot commit any more.
    pub fn reads_keys(&self, object: u64, spans: &[KeySpan]) -> Result<(), SerializationFailure> {
        self.dependencies.graph().read(self.id, object, Some(spans))
    }

    /// Notes that rows of `object` end or begin.
    ///
    /// # Errors
    /// [`SerializationFailure`]: the transaction cannot commit any more.
    pub fn writes(&self, object: u64, written: &Written) -> Result<(), SerializationFailure> {
        self.dependencies.graph().write(self.id, object, written)
    }

    /// Says that the transaction is about to commit, and is the next one that does (`is_next`): otherwise others may,
    /// before it does.
    ///
    /// # Errors
    /// [`SerializationFailure`]: it must not.
    pub fn prepare(&self, is_next: bool) -> Result<(), SerializationFailure> {
        self.dependencies.graph().prepare(self.id, is_next)
    }

    /// Says that the transaction, which was prepared, is visible.
    pub fn ended(&self) {
        self.dependencies.graph().ended(self.id);
    }

    /// Ends the transaction, whose commit is there if it was prepared; otherwise it has written nothing.
    ///
    /// # Errors
    /// [`SerializationFailure`]: it must not commit.
    pub fn finish(&self) -> Result<(), SerializationFailure> {
        self.dependencies.graph().finish(self.id)
    }

    /// Says that nothing of it is there, nor will be, also if it was prepared.
    pub fn give_up(&self) {
        self.dependencies.graph().gave_up(self.id);
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.dependencies.graph().dropped(self.id);
    }
}

#[cfg(test)]
mod tests;
