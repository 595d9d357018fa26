//! Planning that can be cancelled and is bounded: a planning closure in, its plan or an error out.
//!
//! 1. [`Planning::over`] plans on a blocking thread, so that the session that waits for the plan hears of a cancel
//!    request or of a timeout, and its neighbours on the same thread are served. Dropping the future stops the
//!    planning. A small statement is planned in place.
//! 2. While it plans, each rule of DataFusion checks before it begins ([`watched_rules`]) whether the session still
//!    waits for the plan ([`check`]) and whether the plan has grown beyond its bound ([`check_size`]). Rules that
//!    DataFusion applies to each operator check at each operator.
//! 3. The memory that a plan is expected to take is charged to the query memory, and given back when the plan is there.
//!
//! One call of one rule cannot be stopped; the bound on operators bounds it.

mod watched_rules;

use cleave_fragment::result_memory::ResultMemory;
use cleave_fragment::walk::{Walk, WalkPlan};
use cleave_fragment::wanted;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::tasks::joined;
use cleave_fragment::{Stop, StopOnDrop};
use cleave_media::simulation;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use tokio::runtime::Handle;

pub(super) use watched_rules::watched_rules;

/// Bytes that an operator of a plan is expected to take while it is planned, over all partitions that rules make of it.
const OPERATOR_BYTES: usize = 16 << 10;
/// The same of an expression, from its syntax tree to its operator: what a list of 100,000 constants was seen to take.
const EXPRESSION_BYTES: usize = 2 << 10;

/// Names within names count again and again: how often the operators of a plan may.
const NAMED_TIMES: usize = 16;

tokio::task_local! {
    /// Of the statement that is planned.
    static CURRENT: Arc<Planning>;
}

/// A statement that is planned. See the module's description.
pub(crate) struct Planning {
    stop: Stop,
    operator_count_max: usize,
    /// Operators of what names have stood for, each time that they were used.
    named: AtomicUsize,
    memory: MemoryReservation,
    /// Of functions that are evaluated meanwhile.
    results: Arc<ResultMemory>,
}

impl fmt::Debug for Planning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planning").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Planning {
    /// Of a statement under `settings`, with memory of `runtime`.
    pub(crate) fn new(settings: &Settings, runtime: &RuntimeEnv) -> Self {
        let memory = MemoryConsumer::new("planning").register(&runtime.memory_pool);
        Self {
            stop: Stop::default(),
            operator_count_max: usize::try_from(settings.limits.plan_operators)
                .unwrap_or(usize::MAX),
            named: AtomicUsize::new(0),
            memory,
            results: ResultMemory::of(&runtime.memory_pool),
        }
    }

    /// The result of `work`, which plans; on a blocking thread unless the statement `is_small`.
    ///
    /// # Errors
    /// Those of `work`; [`Fault::TooComplex`].
    pub(crate) async fn over<T: Send + 'static>(
        self,
        is_small: bool,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let _stop = StopOnDrop::from(&self.stop);
        let work = self.results.over(work);
        let (stop, work) = (self.stop.clone(), CURRENT.scope(Arc::new(self), work));
        let work = Box::pin(wanted::until(move || stop.is_raised(), work));
        if is_small || simulation::is_active() {
            return work.await;
        }
        let handle = Handle::current();
        joined(SpawnedTask::spawn_blocking(move || handle.block_on(work)).join().await)?
    }

    fn check(&self) -> EngineResult<()> {
        if self.stop.is_raised() {
            let gone = "nobody waits for the plan any more".to_owned();
            return Err(DataFusionError::Execution(gone));
        }
        match self.named.load(Ordering::Relaxed) > self.named_count_max() {
            true => Err(self.too_complex()),
            false => Ok(()),
        }
    }

    fn named_count_max(&self) -> usize {
        self.operator_count_max.saturating_mul(NAMED_TIMES)
    }

    fn too_complex(&self) -> DataFusionError {
        let message = format!(
            "statement too complex: its plan, with what views and WITH stand for, has more than {} operators; the \
                setting \
             plan_operators_max allows more",
            self.operator_count_max
        );
        DataFusionError::from(Error::Invalid { message, fault: Fault::TooComplex, position: None })
    }

    /// Fails if `plan` has too many operators; takes memory for them, and for its expressions where `with_expressions`.
    fn check_size(&self, plan: &LogicalPlan, with_expressions: bool) -> EngineResult<()> {
        self.check()?;
        let (mut operators, mut expressions) = (0, 0_usize);
        plan.apply_everywhere(|node| {
            operators += 1;
            if operators > self.operator_count_max {
                return Ok(TreeNodeRecursion::Stop);
            }
            if with_expressions {
                node.each_expression(|expression| {
                    expression.apply(|_| {
                        expressions += 1;
                        Ok(TreeNodeRecursion::Continue)
                    })
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if operators > self.operator_count_max {
            return Err(self.too_complex());
        }
        let bytes = operators * OPERATOR_BYTES + expressions.saturating_mul(EXPRESSION_BYTES);
        if bytes > self.memory.size() {
            self.memory.try_resize(bytes)?;
        }
        Ok(())
    }
}

/// Fails if no session waits any more for this plan, or too many operators came with views.
///
/// # Errors
/// [`Fault::TooComplex`]; any, if nobody waits.
pub(crate) fn check() -> EngineResult<()> {
    CURRENT.try_with(|planning| planning.check()).unwrap_or(Ok(()))
}

/// As [`check`], and fails if `plan` is too large, or too large for the memory that there is.
///
/// # Errors
/// [`Fault::TooComplex`]; one without memory.
pub(crate) fn check_size(plan: &LogicalPlan) -> EngineResult<()> {
    CURRENT.try_with(|planning| planning.check_size(plan, true)).unwrap_or(Ok(()))
}

/// As [`check_size`], of what stands behind a name, by the operators alone; it is counted each time that the name is
/// used.
///
/// # Errors
/// [`Fault::TooComplex`].
pub(crate) fn check_named(plan: &LogicalPlan) -> EngineResult<()> {
    check_operators(plan)?;
    has_room_for(operator_count(plan));
    check()
}

/// As [`check_size`], by the operators alone.
fn check_operators(plan: &LogicalPlan) -> EngineResult<()> {
    CURRENT.try_with(|planning| planning.check_size(plan, false)).unwrap_or(Ok(()))
}

/// Counts `count` operators more, which stand behind a name that is used; false: they are too many.
pub(crate) fn has_room_for(count: usize) -> bool {
    let added = CURRENT.try_with(|planning| {
        let before = planning.named.fetch_add(count, Ordering::Relaxed);
        before.saturating_add(count) <= planning.named_count_max()
    });
    added.unwrap_or(true)
}

/// How many operators `plan` has.
pub(crate) fn operator_count(plan: &LogicalPlan) -> usize {
    let mut count = 0;
    // Counting does not fail.
    let _counted = plan.apply_everywhere(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    count
}
