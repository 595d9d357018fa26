//! The tracked transactions, and the read-write dependencies among them.
//!
//! A dependency `reader → writer` is kept at the writer while that runs ([`Node::ins`]). Once the writer has committed,
//! the reader keeps the number of the first such commit ([`Node::out_first`]): of all transactions that wrote what a
//! pivot has read, the one that committed first is the most dangerous, and only its number matters. So no transaction
//! is kept only for a dependency.
//!
//! One clock counts begins, prepares and ends. A commit is in a snapshot for certain if it had ended before the reader
//! began, and may be in it if it was prepared before the snapshot was taken ([`Node::sees_all`], [`Node::sees_most`]).
//! If nothing commits in between, as under the writer lock, both are equal.

use std::collections::{BTreeMap, BTreeSet};

use super::SerializationFailure;
use super::sets::{KeySpan, ReadSet, WriteSet, Written};

/// Ended transactions that are kept one by one.
pub(super) const DEAD_MAX: usize = 1024;
/// Keys and ranges of these.
pub(super) const ENDED_PARTS_MAX: usize = 1 << 20;

/// A transaction, from 1.
pub(super) type NodeId = u64;

/// Whether the snapshot of a read-only transaction has a place in the serial order, whatever it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Safety {
    /// It has.
    Safe,
    /// It may have none.
    Unsafe,
    /// A concurrent transaction has not ended.
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<NodeId, Node>,
    /// Ended transactions in the order of their ends, with the number of their parts.
    ended: BTreeMap<u64, (NodeId, usize)>,
    ended_parts: usize,
    last_id: NodeId,
    tick: u64,
}

#[derive(Debug, Default)]
struct Node {
    /// Clock at its begin.
    begun: u64,
    /// Clock at its end; None: it runs, or commits.
    ended: Option<u64>,
    /// Commits up to here are in its snapshot.
    sees_all: u64,
    /// No later commit is; of merged transactions, the latest.
    sees_most: u64,
    /// Declared read-only.
    read_only: bool,
    /// It cannot commit.
    is_doomed: bool,
    /// Prepared: its commit number lies between these.
    commits: Option<(u64, u64)>,
    reads: ReadSet,
    writes: WriteSet,
    /// Transactions that have read what it wrote without seeing it; empty once it is prepared.
    ins: BTreeSet<NodeId>,
    /// The first commit among those that wrote what it has read without seeing it.
    out_first: Option<u64>,
}

impl Node {
    fn runs(&self) -> bool {
        self.commits.is_none() && !self.is_doomed
    }

    /// Whether its writes are not in the snapshot of `reader`, which runs.
    fn is_unseen_by(&self, reader: &Self) -> bool {
        !self.is_doomed && self.commits.is_none_or(|(_, last)| last > reader.sees_all)
    }

    /// Whether it ran when `other`, which runs, had begun.
    fn overlaps(&self, other: &Self) -> bool {
        !self.is_doomed && self.ended.is_none_or(|ended| ended > other.begun)
    }

    /// Whether `self → pivot → the transaction that committed with the number out` may be part of a cycle.
    fn is_dangerous(&self, pivot: &Self, out: u64) -> bool {
        if self.is_doomed || pivot.commits.is_some_and(|(_, last)| out > last) {
            return false;
        }
        let writes_nothing = self.read_only || (self.commits.is_some() && self.writes.is_empty());
        match self.commits {
            _ if writes_nothing => out <= self.sees_most,
            Some((_, last)) => out <= last,
            None => true,
        }
    }

    fn part_count(&self) -> usize {
        self.reads.part_count() + self.writes.part_count()
    }

    fn note_out(&mut self, commit: u64) {
        self.out_first = Some(self.out_first.map_or(commit, |first| first.min(commit)));
    }
}

impl Graph {
    pub(super) fn begin(&mut self, read_only: bool) -> NodeId {
        self.tick += 1;
        self.last_id += 1;
        let unended = self.nodes.values().filter(|node| node.ended.is_none());
        let first = unended.filter_map(|node| node.commits).map(|(first, _)| first).min();
        let sees_all = first.unwrap_or(self.tick).saturating_sub(1);
        let begun = self.tick;
        let node = Node { begun, sees_all, sees_most: begun, read_only, ..Node::default() };
        self.nodes.insert(self.last_id, node);
        self.last_id
    }

    pub(super) fn has_snapshot(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.sees_most = self.tick;
        }
    }

    /// Whether no transaction that wrote concurrently with `id`, which is read-only, had a dependency on one that had
    /// committed by then: it would be the pivot, if `id` read what it wrote.
    pub(super) fn safety(&self, id: NodeId) -> Safety {
        let Some(reader) = self.nodes.get(&id) else { return Safety::Safe };
        let beside = self.nodes.iter().filter(|(other, node)| {
            **other != id
                && !node.read_only
                && !node.is_doomed
                && node.begun <= reader.sees_most
                && node.is_unseen_by(reader)
        });
        let mut safety = Safety::Safe;
        for (_, node) in beside {
            match node.commits {
                None => safety = Safety::Unknown,
                // It may still fail, or turn out to have committed before.
                Some(_) if node.ended.is_none() => safety = Safety::Unknown,
                Some(_) if node.writes.is_empty() => {}
                Some(_) if node.out_first.is_some_and(|out| out <= reader.sees_most) => {
                    return Safety::Unsafe;
                }
                Some(_) => {}
            }
        }
        safety
    }

    pub(super) fn read(
        &mut self,
        id: NodeId,
        object: u64,
        spans: Option<&[KeySpan]>,
    ) -> Result<(), SerializationFailure> {
        let reader = self.running(id)?;
        reader.reads.add(object, spans);
        let Some(reader) = self.nodes.get(&id) else { return Err(SerializationFailure) };
        let is_writer = |(other, node): &(&NodeId, &Node)| {
            **other != id && node.writes.meets(object, spans) && node.is_unseen_by(reader)
        };
        let writers = self.nodes.iter().filter(is_writer).map(|(other, _)| *other);
        for writer in writers.collect::<Vec<_>>() {
            self.depend(id, writer, id)?;
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        id: NodeId,
        object: u64,
        written: &Written,
    ) -> Result<(), SerializationFailure> {
        let writer = self.running(id)?;
        writer.writes.add(object, written);
        let Some(writer) = self.nodes.get(&id) else { return Err(SerializationFailure) };
        let is_reader = |(other, node): &(&NodeId, &Node)| {
            **other != id && node.reads.meets(object, written) && node.overlaps(writer)
        };
        let readers = self.nodes.iter().filter(is_reader).map(|(other, _)| *other);
        for reader in readers.collect::<Vec<_>>() {
            self.depend(reader, id, id)?;
        }
        Ok(())
    }

    /// Records `reader → writer`, of which `acting` is one, and ends a transaction if necessary.
    fn depend(
        &mut self,
        reader: NodeId,
        writer: NodeId,
        acting: NodeId,
    ) -> Result<(), SerializationFailure> {
        let Some(commits) = self.nodes.get(&writer).map(|node| node.commits) else { return Ok(()) };
        match commits {
            None => drop(self.nodes.get_mut(&writer).map(|node| node.ins.insert(reader))),
            Some((first, _)) => {
                if let Some(node) = self.nodes.get_mut(&reader) {
                    node.note_out(first);
                }
            }
        }
        let (Some(read), Some(wrote)) = (self.nodes.get(&reader), self.nodes.get(&writer)) else {
            return Ok(());
        };
        // reader → writer → another: the writer ends, if it can.
        if wrote.out_first.is_some_and(|out| read.is_dangerous(wrote, out)) {
            let victim = if commits.is_none() { writer } else { reader };
            self.doom(victim);
        }
        // Another → reader → writer.
        if commits.is_some() && self.is_pivot(reader) {
            self.doom(reader);
        }
        self.running(acting).map(drop)
    }

    /// Whether `id`, which runs, is between two dependencies that may be part of a cycle.
    fn is_pivot(&self, id: NodeId) -> bool {
        let Some(pivot) = self.nodes.get(&id) else { return false };
        let Some(out) = pivot.out_first else { return false };
        let mut ins = pivot.ins.iter().filter_map(|other| self.nodes.get(other));
        ins.any(|node| node.is_dangerous(pivot, out))
    }

    pub(super) fn prepare(
        &mut self,
        id: NodeId,
        is_next: bool,
    ) -> Result<(), SerializationFailure> {
        self.tick += 1;
        let first = self.tick;
        let node = self.running(id)?;
        node.commits = Some((first, if is_next { first } else { u64::MAX }));
        let ins = std::mem::take(&mut node.ins);
        let has_written = !node.writes.is_empty();
        for reader in ins {
            let Some(node) = self.nodes.get_mut(&reader) else { continue };
            // Earlier commits are no danger: this one would have to be first.
            if !has_written || !node.runs() {
                continue;
            }
            node.note_out(first);
            if self.is_pivot(reader) {
                self.doom(reader);
            }
        }
        Ok(())
    }

    pub(super) fn ended(&mut self, id: NodeId) {
        self.tick += 1;
        let ended = self.tick;
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.commits.is_some()) else {
            return;
        };
        if node.ended.is_some() {
            return;
        }
        if let Some((_, last)) = &mut node.commits {
            *last = if *last == u64::MAX { ended } else { *last };
        }
        node.ended = Some(ended);
        let parts = node.part_count();
        self.ended_parts += parts;
        self.ended.insert(ended, (id, parts));
        self.forget();
        while self.ended.len() > DEAD_MAX
            || (self.ended_parts > ENDED_PARTS_MAX && self.ended.len() > 1)
        {
            self.join_oldest();
        }
    }

    /// Dropped without an outcome: a prepared transaction may be visible.
    pub(super) fn dropped(&mut self, id: NodeId) {
        match self.nodes.get(&id) {
            None => {}
            Some(node) if node.commits.is_some() => self.ended(id),
            Some(_) => {
                self.nodes.remove(&id);
                self.remove(id);
            }
        }
    }

    /// Nothing of it is or will be visible.
    pub(super) fn gave_up(&mut self, id: NodeId) {
        if self.nodes.get(&id).is_some_and(|node| node.ended.is_none()) {
            self.remove(id);
        }
    }

    /// Ends it; if it was not prepared, none of its writes are visible.
    pub(super) fn finish(&mut self, id: NodeId) -> Result<(), SerializationFailure> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        if node.commits.is_none() {
            node.writes = WriteSet::default();
            self.prepare(id, true)?;
        }
        self.ended(id);
        Ok(())
    }

    fn remove(&mut self, id: NodeId) {
        self.nodes.remove(&id);
        for node in self.nodes.values_mut() {
            node.ins.remove(&id);
        }
        self.forget();
    }

    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.nodes.len(), self.nodes.values().map(Node::part_count).sum())
    }

    fn running(&mut self, id: NodeId) -> Result<&mut Node, SerializationFailure> {
        self.nodes.get_mut(&id).filter(|node| node.runs()).ok_or(SerializationFailure)
    }

    fn doom(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_doomed = true;
        }
    }

    /// Forgets transactions that had ended before all running ones began.
    fn forget(&mut self) {
        let running = self.nodes.values().filter(|node| node.ended.is_none());
        let first = running.map(|node| node.begun).min().unwrap_or(u64::MAX);
        while let Some(oldest) = self.ended.first_entry().filter(|entry| *entry.key() < first) {
            let (id, parts) = oldest.remove();
            self.ended_parts -= parts;
            self.nodes.remove(&id);
        }
    }

    /// Merges the two transactions that ended first.
    fn join_oldest(&mut self) {
        let (Some((_, (old, old_parts))), Some((ended, (id, parts)))) =
            (self.ended.pop_first(), self.ended.pop_first())
        else {
            return;
        };
        let Some(other) = self.nodes.remove(&old) else { return };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.begun = node.begun.min(other.begun);
        node.sees_most = node.sees_most.max(other.sees_most);
        node.read_only &= other.read_only;
        let ((first, last), (others_first, others_last)) =
            (node.commits.unwrap_or_default(), other.commits.unwrap_or_default());
        node.commits = Some((first.min(others_first), last.max(others_last)));
        node.reads.absorb(&other.reads);
        node.writes.absorb(&other.writes);
        if let Some(out) = other.out_first {
            node.note_out(out);
        }
        let joined = node.part_count();
        self.ended_parts = self.ended_parts + joined - parts - old_parts;
        self.ended.insert(ended, (id, joined));
        for node in self.nodes.values_mut() {
            if node.ins.remove(&old) {
                node.ins.insert(id);
            }
        }
    }
}
