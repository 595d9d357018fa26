//! Deadlock detection: finds the deadlock cycles that a new wait closed, and breaks them or ends the request.
//!
//! A transaction, with all owners of its group, waits for another one that holds a conflicting mode (a *hard* edge), or
//! that stands before it in a queue and wants one (a *soft* edge: only the order of the queue makes it wait).
//!
//! 1. [`may_be_in_cycle`] follows the edges one partition at a time, and may report cycles that do not exist, but
//!    misses none. Almost always it finds that no other transaction waits for this one.
//! 2. [`resolve`] follows them exactly, with the whole table locked. A cycle with a soft edge is broken there by
//!    letting the waiter go first, if that closes no other cycle. A cycle of hard edges is a [`Deadlock`], and the
//!    request that closed it ends.
//!
//! Edges also lead through jobs of devices ([`super::jobs`]), which wait in the tables shared with devices.
//!
//! Invariant: an edge stays until a grant, a release or a withdrawal removes it. So the last request of a cycle sees
//! all of it, and every cycle is found.
//! Source: PostgreSQL's `deadlock.c`, which looks after a time instead.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::mode::Modes;
use super::table::{All, Entry, Table};
use super::wait::Request;
use super::{LockError, LockGroup, LockKey, LockMode, jobs};
use crate::transaction::TransactionId;

/// Most reorderings of queues for one request.
const REORDER_COUNT_MAX: usize = 16;

/// Transactions that wait for each other, in a cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// The edges, beginning with the request that is ended; each edge's blocker is the next edge's waiter.
    pub edges: Vec<DeadlockEdge>,
}

/// One transaction of a cycle waits for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlockEdge {
    /// The waiting transaction.
    pub waiter: TransactionId,
    /// The key that it wants.
    pub key: LockKey,
    /// The mode that it wants.
    pub mode: LockMode,
    /// The transaction that blocks it.
    pub blocker: TransactionId,
}

impl fmt::Display for DeadlockEdge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiter, key, mode, blocker } = self;
        write!(
            formatter,
            "transaction {} waits for {mode} on {key}, blocked by transaction {}",
            waiter.0, blocker.0
        )
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, edge) in self.edges.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{edge}")?;
        }
        Ok(())
    }
}

/// Whether a request may have closed a cycle.
pub(crate) fn may_be_in_cycle(table: &Table, request: &Arc<Request>) -> bool {
    let origin = request.owner.group;
    let mut seen = BTreeSet::new();
    let mut ahead = Vec::new();
    // A transaction that waits for a job, or for whatever the job's transaction has, also waits for the job's blockers.
    let has_jobs = !table.jobs.is_empty();
    let with_jobs: BTreeSet<_> = table.jobs.owners().values().map(|(_, group)| *group).collect();
    let leads_to_job = |entry: &Entry| has_jobs && entry.shared.is_awaited();
    if let Some(entry) = table.partition(&request.key).entries.get(&request.key) {
        if leads_to_job(entry) {
            return true;
        }
        let queue = entry.queue().iter();
        let before = queue.take_while(|other| !Arc::ptr_eq(other, request));
        ahead.extend(before.map(|other| other.owner.group));
        ahead.extend(entry.holders().map(|holder| holder.group));
    }
    ahead.retain(|group| *group != origin);
    while let Some(group) = ahead.pop() {
        if group == origin || with_jobs.contains(&group) {
            return true;
        }
        let waits = table.waits().get(&group).cloned().unwrap_or_default();
        for key in waits.iter().map(|request| request.key) {
            if seen.insert(key)
                && let Some(entry) = table.partition(&key).entries.get(&key)
            {
                if leads_to_job(entry) {
                    return true;
                }
                let queue = entry.queue().iter();
                let others = queue.filter(|other| !Arc::ptr_eq(other, request));
                ahead.extend(others.map(|other| other.owner.group));
                ahead.extend(entry.holders().map(|holder| holder.group));
            }
        }
    }
    false
}

/// Breaks the cycles that `request` closed, or returns one that cannot be broken.
pub(crate) fn resolve(all: &mut All<'_>, request: &Arc<Request>) -> Result<(), Deadlock> {
    for _ in 0..REORDER_COUNT_MAX {
        if request.is_granted() {
            return Ok(());
        }
        let Some(cycle) = find_cycle(all, request) else { return Ok(()) };
        if !cycle.iter().any(|edge| let_go_first(all, edge)) {
            return Err(deadlock(&cycle));
        }
    }
    match find_cycle(all, request) {
        Some(cycle) if !request.is_granted() => Err(deadlock(&cycle)),
        _ => Ok(()),
    }
}

/// Breaks the cycles that a job of `group` closed by ending waits of host transactions, or returns one that cannot be
/// broken so.
pub(crate) fn resolve_for_job(all: &mut All<'_>, group: LockGroup) -> Result<(), Deadlock> {
    // Each round removes one wait, or reorders a queue.
    for _ in 0..REORDER_COUNT_MAX {
        let Some(cycle) = find_cycle_of(all, group) else { return Ok(()) };
        if cycle.iter().any(|edge| let_go_first(all, edge)) {
            continue;
        }
        // A job has done more work than a statement that waits for a row.
        let waiting = cycle.iter().find_map(|edge| match &edge.waiter {
            Waiter::Request(request) if request.owner.group != group => Some(Arc::clone(request)),
            Waiter::Request(_) | Waiter::Job(..) => None,
        });
        let Some(waiting) = waiting else { return Err(deadlock(&cycle)) };
        let error = LockError::Deadlock(Arc::new(deadlock(&cycle)));
        all.end(&waiting, Err(error));
    }
    find_cycle_of(all, group).map_or(Ok(()), |cycle| Err(deadlock(&cycle)))
}

/// Puts the waiter of a soft edge before its blocker, unless that closes a cycle; returns whether it did.
fn let_go_first(all: &mut All<'_>, edge: &Edge) -> bool {
    let (Waiter::Request(request), true) = (&edge.waiter, edge.is_soft) else { return false };
    let key = request.key;
    let Some(entry) = all.entry(&key) else { return false };
    let queue = entry.queue();
    let from = queue.iter().position(|other| Arc::ptr_eq(other, request));
    let to = queue.iter().position(|other| other.owner.group == edge.group);
    let (Some(from), Some(to)) = (from, to) else { return false };
    if to >= from {
        return false;
    }
    let overtaken: Vec<Arc<Request>> = queue[to..from].iter().map(Arc::clone).collect();
    all.reorder(&key, from, to);
    if overtaken.iter().any(|request| find_cycle(all, request).is_some()) {
        all.reorder(&key, to, from);
        return false;
    }
    all.grant(&key);
    true
}

fn deadlock(cycle: &[Edge]) -> Deadlock {
    let edges = cycle.iter().map(|edge| {
        let (waiter, key, mode) = match &edge.waiter {
            Waiter::Request(request) => (request.owner.id, request.key, request.mode),
            Waiter::Job(job, key) => (*job, *key, LockMode::ForUpdate),
        };
        DeadlockEdge { waiter, key, mode, blocker: edge.blocker }
    });
    Deadlock { edges: edges.collect() }
}

/// An edge: one wait for one transaction.
#[derive(Clone)]
struct Edge {
    waiter: Waiter,
    blocker: TransactionId,
    group: LockGroup,
    is_soft: bool,
}

/// The waiter.
#[derive(Clone)]
enum Waiter {
    Request(Arc<Request>),
    /// A job of this transaction, in the queue of an entry.
    Job(TransactionId, LockKey),
}

/// A cycle from `request` back to its owner.
fn find_cycle(all: &All<'_>, request: &Arc<Request>) -> Option<Vec<Edge>> {
    follow(all, request.owner.group, edges(all, request).collect())
}

/// A cycle from the requests of a group back to it.
fn find_cycle_of(all: &All<'_>, group: LockGroup) -> Option<Vec<Edge>> {
    follow(all, group, edges_of(all, group))
}

/// A path from the first of these edges back to `origin`.
fn follow(all: &All<'_>, origin: LockGroup, first: Vec<Edge>) -> Option<Vec<Edge>> {
    let mut seen = BTreeSet::new();
    // Edges still to follow, each with the length of the path that leads to it.
    let mut ahead: Vec<(usize, Edge)> = first.into_iter().map(|edge| (0, edge)).collect();
    let mut way: Vec<Edge> = Vec::new();
    while let Some((length, edge)) = ahead.pop() {
        way.truncate(length);
        let blocker = edge.group;
        way.push(edge);
        if blocker == origin {
            return Some(way);
        }
        if seen.insert(blocker) {
            ahead.extend(edges_of(all, blocker).into_iter().map(|edge| (length + 1, edge)));
        }
    }
    None
}

/// The edges of a group, of all its requests and jobs.
fn edges_of(all: &All<'_>, group: LockGroup) -> Vec<Edge> {
    let requests = all.waits_of(group).iter().flat_map(|wait| edges(all, wait));
    let of_jobs = all.job_waits().iter().filter(|wait| wait.group == group).flat_map(|wait| {
        wait.blockers.iter().map(|(blocker, group)| Edge {
            waiter: Waiter::Job(wait.transaction, wait.key),
            blocker: *blocker,
            group: *group,
            is_soft: false,
        })
    });
    requests.chain(of_jobs).collect()
}

/// The edges of a request; soft ones come last.
fn edges<'a>(all: &'a All<'_>, request: &'a Arc<Request>) -> impl Iterator<Item = Edge> + 'a {
    let conflicting = Modes::conflicting(request.mode);
    let edge = move |(blocker, group): (TransactionId, LockGroup), is_soft: bool| {
        let waiter = Waiter::Request(Arc::clone(request));
        (group != request.owner.group).then_some(Edge { waiter, blocker, group, is_soft })
    };
    let entry = all.entry(&request.key);
    let hard = entry.into_iter().flat_map(|entry| entry.holders());
    let hard = hard.filter(move |holder| holder.modes.intersects(conflicting));
    let soft = entry.into_iter().flat_map(|entry| entry.queue().iter());
    let soft = soft
        .take_while(move |other| !Arc::ptr_eq(other, request))
        .filter(move |other| conflicting.has(other.mode));
    let hard = hard.filter_map(move |holder| edge((holder.owner, holder.group), false));
    let of_jobs = entry.map(|entry| jobs::before(all, &request.key, entry)).unwrap_or_default();
    let of_jobs = of_jobs.into_iter().filter_map(move |owner| edge(owner, false));
    hard.chain(of_jobs)
        .chain(soft.filter_map(move |other| edge((other.owner.id, other.owner.group), true)))
}
