//! Runs an operator over its parts, in all lanes: divides those that do not fit, then runs as many at once as fit.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use datafusion_common::Result;
use datafusion_physical_plan::ExecutionPlan;
use tokio::sync::Notify;

use super::attempt::{DEPTH_MAX, Ground, Tried, cannot_divide};
use super::lanes::{Out, locked};

/// Rows of all inputs whose keys have hashes in common.
pub(super) trait Part: Send {
    /// Approximate memory that DataFusion needs for it.
    fn bytes_needed(&self) -> u64;

    /// How often it was divided.
    fn depth(&self) -> u64;

    /// Whether its keys are one key, which cannot be divided.
    fn has_one_key(&self) -> bool;

    /// Rows that have to be in memory at once.
    fn row_count(&self) -> u64;

    fn may_be_divided(&self) -> bool {
        !self.has_one_key() && self.depth() < DEPTH_MAX
    }
}

/// An operator over parts of its rows.
pub(super) trait Divisible: Sync {
    type Part: Part;

    /// DataFusion's operator over the rows of `part`.
    fn over(&self, part: &Self::Part) -> Result<Arc<dyn ExecutionPlan>>;

    /// The rows of `part` by another hash. Parts that give no rows are left out.
    fn divide(
        &self,
        ground: &Ground,
        part: Self::Part,
    ) -> impl Future<Output = Result<Vec<Self::Part>>> + Send;

    /// What the rows of a part are called that have to be in memory at once.
    const ROWS: &'static str;
}

/// Parts that wait for a lane.
pub(super) struct Parts<P> {
    state: Mutex<State<P>>,
    changed: Notify,
}

struct State<P> {
    /// With the memory that each needs, the largest last.
    waiting: Vec<(u64, P)>,
    /// How many lanes have one.
    taken: usize,
    /// What those need.
    bytes_taken: u64,
}

impl<P: Part> Parts<P> {
    /// None yet.
    pub(super) fn new() -> Self {
        let state = State { waiting: Vec::new(), taken: 0, bytes_taken: 0 };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Lets `parts` wait.
    pub(super) fn give(&self, parts: Vec<P>) {
        self.give_with_need(parts.into_iter().map(|part| (part.bytes_needed(), part)));
    }

    fn give_with_need(&self, parts: impl Iterator<Item = (u64, P)>) {
        let mut state = self.lock();
        state.waiting.extend(parts);
        state.waiting.sort_by_key(|(bytes, _)| *bytes);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The largest part for which `need` says an amount of memory that fits `bytes_max` beside those that lanes have;
    /// any one if no lane has one. None: there is no such part, and none can come.
    async fn take(
        &self,
        bytes_max: u64,
        need: impl Fn(u64, &P) -> Option<u64>,
    ) -> Option<(P, Taken<'_, P>)> {
        loop {
            // Before the look, so that no change is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = self.take_now(bytes_max, &need) {
                return found;
            }
            changed.await;
        }
    }

    /// As [`Self::take`]; None: a lane has to end its part first.
    fn take_now(
        &self,
        bytes_max: u64,
        need: &impl Fn(u64, &P) -> Option<u64>,
    ) -> Option<Option<(P, Taken<'_, P>)>> {
        let mut state = self.lock();
        let fits =
            |bytes: &u64| state.taken == 0 || state.bytes_taken.saturating_add(*bytes) <= bytes_max;
        let waiting = state.waiting.iter().enumerate().rev();
        let mut needed = waiting
            .filter_map(|(index, (bytes, part))| Some((index, need(*bytes, part).filter(fits)?)));
        let Some((index, bytes)) = needed.next() else {
            return (state.taken == 0).then_some(None);
        };
        let (_, part) = state.waiting.remove(index);
        state.taken += 1;
        state.bytes_taken = state.bytes_taken.saturating_add(bytes);
        Some(Some((part, Taken { parts: self, bytes })))
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        locked(&self.state)
    }
}

/// The memory of a part that a lane has.
struct Taken<'a, P: Part> {
    parts: &'a Parts<P>,
    bytes: u64,
}

impl<P: Part> Drop for Taken<'_, P> {
    fn drop(&mut self) {
        let mut state = self.parts.lock();
        state.taken -= 1;
        state.bytes_taken = state.bytes_taken.saturating_sub(self.bytes);
        drop(state);
        self.parts.changed.notify_waiters();
    }
}

/// Runs `operator` over `parts`, to which all lanes have given theirs.
pub(super) async fn run<D: Divisible>(
    operator: &D,
    ground: &Ground,
    parts: &Parts<D::Part>,
    out: &Out,
) -> Result<()> {
    let memory_bytes = ground.memory_bytes as u64;
    // Before the first row: if space or memory runs out now, the host can still answer. Divisions share the memory.
    let too_large =
        |bytes: u64, part: &D::Part| (part.may_be_divided() && bytes > memory_bytes).then_some(0);
    while let Some((part, _taken)) = parts.take(memory_bytes, too_large).await {
        parts.give(operator.divide(ground, part).await?);
    }
    ground.lane.meet().await;
    // The largest first, so that a lack of memory shows before the first row.
    while let Some((part, taken)) = parts.take(memory_bytes, |bytes, _| Some(bytes)).await {
        let Tried::TooLarge(error) = ground.attempt(operator.over(&part)?, out).await? else {
            continue;
        };
        // Nothing runs beside a part that needs all.
        let is_alone = taken.bytes >= memory_bytes || ground.lane.count() == 1;
        if !is_alone {
            parts.give_with_need(std::iter::once((memory_bytes, part)));
        } else if part.may_be_divided() {
            parts.give(operator.divide(ground, part).await?);
        } else {
            let row_count = part.row_count();
            return Err(cannot_divide(D::ROWS, row_count, ground.memory_bytes, &error));
        }
    }
    Ok(())
}
