//! SERIALIZABLE isolation: reads and writes of transactions in, the transactions that must not commit out.
//!
//! Snapshots alone allow histories that no serial order of the transactions explains. Each such history has two
//! successive read-write dependencies between concurrent transactions, `T1 → T2 → T3`, where an arrow leads from a
//! reader to the writer whose change it did not see, and T3 committed first of the three. This module detects this
//! structure and ends one of the three:
//!
//! 1. [`Dependencies::begin`] gives a [`Tracked`] transaction, before its snapshot is taken; [`Tracked::has_snapshot`]
//!    is called after that.
//! 2. [`Tracked::reads_all`] and [`Tracked::reads_keys`] record what a statement may read, found or not;
//!    [`Tracked::writes`] records its changes. Each looks for transactions that did the opposite, so the order of
//!    recording does not matter.
//! 3. [`Tracked::prepare`] is the last step that may fail, and is called while no other transaction commits;
//!    [`Tracked::ended`] says that the commit is visible to new snapshots. A transaction that is dropped before it is
//!    prepared is forgotten.
//!
//! ```text
//!   T1 ──reads what T2 writes──▶ T2 ──reads what T3 writes──▶ T3
//!   in                           pivot                        out: committed first
//! ```
//!
//! The pivot ends, unless it has committed; then T1 does. A transaction that writes nothing is no danger as T1 unless
//! T3 had committed before its snapshot. An ended transaction is kept as long as one runs that began before its end. If
//! these are too many, the two oldest are merged into one that has read and written all objects of either: that ends
//! more transactions, never fewer. [`Tracked::safety`] tells a read-only transaction whether it may go on without
//! tracking (DEFERRABLE).
//!
//! Invariant: the serialisation graph of the committed transactions has no cycle.
//! Source: Cahill, Röhm and Fekete, "Serializable Isolation for Snapshot Databases"; Ports and Grittner, "Serializable
//! Snapshot Isolation in PostgreSQL"; rule 28.

mod graph;
mod sets;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use graph::Safety;
use graph::{Graph, NodeId};
pub use sets::{KeySpan, Written};

/// A transaction must end, since otherwise the serialisation graph could have a cycle: run it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("could not serialize access due to read/write dependencies among transactions")]
pub struct SerializationFailure;

/// The SERIALIZABLE transactions of one database. See the module's description.
#[derive(Debug, Default)]
pub struct Dependencies {
    graph: Mutex<Graph>,
}

/// One transaction; forgotten when dropped, unless it was prepared.
#[derive(Debug)]
pub struct Tracked {
    id: NodeId,
    dependencies: Arc<Dependencies>,
}

impl Dependencies {
    /// For a database without transactions so far.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Begins a transaction, which will write nothing if it is `read_only`. Its snapshot must be taken after this call.
    #[must_use]
    pub fn begin(self: &Arc<Self>, read_only: bool) -> Tracked {
        let id = self.graph().begin(read_only);
        Tracked { id, dependencies: Arc::clone(self) }
    }

    /// Numbers of tracked transactions, and of their keys and ranges.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        self.graph().remembered()
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracked {
    /// Says that its snapshot was taken. Without this call, it counts as seeing the commits before its begin.
    pub fn has_snapshot(&self) {
        self.dependencies.graph().has_snapshot(self.id);
    }

    /// Whether a read-only transaction may read anything of its snapshot without being tracked.
    #[must_use]
    pub fn safety(&self) -> Safety {
        self.dependencies.graph().safety(self.id)
    }

    /// Records that any row of `object` may be read, existing or not.
    ///
    /// # Errors
    /// [`SerializationFailure`]: the transaction cannot commit any more.
    pub fn reads_all(&self, object: u64) -> Result<(), SerializationFailure> {
        self.dependencies.graph().read(self.id, object, None)
    }

    /// Records that rows of `object` may be read whose keys lie in one of `spans`.
    ///
    /// # Errors
    /// [`SerializationFailure`]: the transaction cannot commit any more.
    pub fn reads_keys(&self, object: u64, spans: &[KeySpan]) -> Result<(), SerializationFailure> {
        self.dependencies.graph().read(self.id, object, Some(spans))
    }

    /// Records that row versions of `object` are created or deleted.
    ///
    /// # Errors
    /// [`SerializationFailure`]: the transaction cannot commit any more.
    pub fn writes(&self, object: u64, written: &Written) -> Result<(), SerializationFailure> {
        self.dependencies.graph().write(self.id, object, written)
    }

    /// Says that the transaction is about to commit. `is_next`: it is the next one to do so; otherwise others may
    /// commit before.
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

    /// Ends the transaction, whose commit is visible if it was prepared; otherwise it has written nothing.
    ///
    /// # Errors
    /// [`SerializationFailure`]: it must not commit.
    pub fn finish(&self) -> Result<(), SerializationFailure> {
        self.dependencies.graph().finish(self.id)
    }

    /// Says that nothing of it is or will be visible, also if it was prepared.
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
