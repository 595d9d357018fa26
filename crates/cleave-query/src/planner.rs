//! The set-up of DataFusion: one base state a process, one derived state a statement.
//!
//! Differences from DataFusion's defaults: PostgreSQL's dialect and NULL order; numeric literals are exact; text is
//! `Utf8`, which is how pages hold it; joins collect their (smaller) build side once, so that their keys are known
//! before the probe side is asked for its first row.

mod build_sides;
mod compare_days;
pub(crate) mod deep_subqueries;
mod large_constants;
mod needed_rules;
mod null_equality;
mod physical_rules;
pub(crate) mod planning;
mod share_sums;
pub(crate) mod simplify;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cleave_catalog::identifiers::{CATALOG, SCHEMA};
use cleave_catalog::query_memory::memory_max;
use cleave_catalog::settings::Settings;
use cleave_fragment::codec::ABSENT_FUNCTIONS;
use cleave_fragment::fragment::bound_key_lists;
use cleave_fragment::functions::bounded::bounded;
use cleave_fragment::functions::{knowing_infinite, within_domains};
use cleave_sql::dialect::{
    BalancedChains, BothZeros, BoundedFunctions, CheckedArithmetic, CopiedArguments, Guards,
    HeldConditions, IntervalKeys, OuterAggregates, PostgresOperators, PostgresTypes, RepeatedRows,
    SetOperations, TypedLiterals, VolatileOperands, WindowFrames, WindowKeys, statement_timestamp,
    text_functions, window_functions,
};
use cleave_sql::unnest_subqueries::UnnestSubqueries;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::catalog::CatalogProviderList;
use datafusion::common::utils::get_available_parallelism;
use datafusion::config::Dialect;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::prelude::SessionConfig;

use crate::select::{PackGroupKeys, RowByRow, ValuesRowByRow};

pub(crate) use build_sides::InnerJoins;
use compare_days::CompareDays;
use large_constants::LargeConstants;
use physical_rules::with_our_rules;
use share_sums::ShareSums;

/// A rule of DataFusion's optimizer.
type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// Bytes of the memory of queries for each row of a batch: 256 MiB and more allow 8192 rows.
const MEMORY_OF_ROW: usize = 32 << 10;
/// Least rows of a batch, unless the settings ask for fewer.
const BATCH_ROWS_MIN: usize = 256;
/// States that are kept for the next statements.
const LAST_STATES_MAX: usize = 4;

/// DataFusion's state for one statement with `partitions` partitions, over the tables of `catalog`.
pub fn statement_state(
    (settings, last): (&Settings, &LastStates),
    joins: InnerJoins,
    partitions: usize,
    runtime: Arc<RuntimeEnv>,
    catalog: Arc<dyn CatalogProviderList>,
) -> SessionState {
    let batch_size = batch_rows(settings, &runtime);
    let mut state = last.with(runtime, (partitions, batch_size), joins);
    state.register_catalog_list(catalog);
    let began = settings.client.began;
    // What now() means.
    state.mark_start_execution();
    if let Some(transaction) = timestamp_us_to_datetime(began.transaction_us) {
        state.execution_props_mut().query_execution_start_time = Some(transaction.and_utc());
    }
    let statement = ScalarUDF::clone(&statement_timestamp(began.statement_us));
    // Whether there was one of its name already does not matter.
    drop(state.register_udf(Arc::new(statement)));
    state
}

/// DataFusion's states of the last statements, before anything of these statements was in them. Making one takes as
/// long as planning a small statement, and nearly all statements of a database ask for one of two.
#[derive(Debug, Default)]
pub struct LastStates(Mutex<VecDeque<Arc<SessionState>>>);

impl LastStates {
    fn with(
        &self,
        runtime: Arc<RuntimeEnv>,
        (partitions, batch_size): (usize, usize),
        joins: InnerJoins,
    ) -> SessionState {
        let is_written = joins == InnerJoins::AsWritten;
        static BASE: OnceLock<SessionState> = OnceLock::new();
        let last = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = |state: &&Arc<SessionState>| {
            let config = state.config();
            Arc::ptr_eq(state.runtime_env(), &runtime)
                && (config.target_partitions(), config.batch_size()) == (partitions, batch_size)
                && config.options().optimizer.join_reordering == is_written
        };
        let found = last().iter().find(is_asked).map(Arc::clone);
        if let Some(state) = found {
            return SessionState::clone(&state);
        }
        let base = BASE.get_or_init(base_state).clone();
        // Some functions take the time zone from the configuration.
        let mut config = config(partitions).with_batch_size(batch_size);
        config.options_mut().optimizer.join_reordering = is_written;
        let state = SessionStateBuilder::new_from_existing(base)
            .with_config(config)
            .with_runtime_env(runtime)
            .build();
        let kept = Arc::new(state.clone());
        let mut last = last();
        last.truncate(LAST_STATES_MAX - 1);
        last.push_front(kept);
        state
    }
}

/// What a plan runs in that `state` has planned. Its functions are in it, so they need not be found by name, and the
/// lists of all functions are not copied.
pub(crate) fn task_of(state: &SessionState, config: SessionConfig) -> TaskContext {
    TaskContext::new(
        None,
        state.session_id().to_owned(),
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        Arc::clone(state.runtime_env()),
    )
}

/// `task`, with so many rows a batch.
pub(crate) fn with_batch_rows(task: &TaskContext, rows: usize) -> TaskContext {
    TaskContext::new(
        None,
        task.session_id(),
        task.session_config().clone().with_batch_size(rows),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        task.runtime_env(),
    )
}

/// The functions that a query can call, by name, with their kinds.
pub fn functions() -> BTreeMap<String, &'static str> {
    let state = base_state();
    let scalar = state.scalar_functions().keys().map(|name| (name.clone(), "scalar"));
    let windows = state.window_functions().keys().map(|name| (name.clone(), "window"));
    let aggregates = state.aggregate_functions().keys().map(|name| (name.clone(), "aggregate"));
    scalar.chain(windows).chain(aggregates).collect()
}

/// DataFusion with PostgreSQL's meanings.
fn base_state() -> SessionState {
    let engine = SessionStateBuilder::new_with_default_features().build();
    let operators: Arc<dyn ExprPlanner> = Arc::new(PostgresOperators);
    let planners = std::iter::once(operators).chain(engine.expr_planners().iter().cloned());
    let planners = planners.collect();
    let ours = cleave_fragment::functions::aggregate();
    let functions = engine.aggregate_functions().values().cloned().chain(ours);
    let functions = functions.collect();
    let absent = |function: &&Arc<ScalarUDF>| !ABSENT_FUNCTIONS.contains(&function.name());
    let engines: Vec<_> = engine.scalar_functions().values().filter(absent).cloned().collect();
    let checked = bounded(engines.iter().cloned()).into_iter();
    let checked = checked.chain(within_domains(engines.iter().cloned()));
    let checked = checked.chain(knowing_infinite(engines.iter().cloned()));
    // Ours come last: they take the place of DataFusion's.
    let ours = cleave_fragment::functions::callable().into_iter().chain(text_functions());
    let scalar = engines.iter().cloned().chain(checked).chain(ours).collect();
    let windows = engine.window_functions().values().cloned().chain(window_functions()).collect();
    let mut physical_rules = with_our_rules(engine.physical_optimizers());
    physical_rules.push(Arc::new(RowByRow));
    let state = SessionStateBuilder::new_from_existing(engine)
        .with_scalar_functions(scalar)
        .with_aggregate_functions(functions)
        .with_window_functions(windows)
        .with_expr_planners(planners)
        .with_type_planner(Arc::new(PostgresTypes))
        .with_analyzer_rules(vec![
            Arc::new(ResolveGroupingFunction::new()),
            Arc::new(BalancedChains),
            Arc::new(OuterAggregates),
            Arc::new(SetOperations),
            Arc::new(TypedLiterals),
            Arc::new(CopiedArguments),
            Arc::new(VolatileOperands),
            Arc::new(WindowFrames),
            Arc::new(TypeCoercion::new()),
            Arc::new(BothZeros),
            Arc::new(CheckedArithmetic),
            Arc::new(BoundedFunctions),
            Arc::new(Guards),
            Arc::new(IntervalKeys),
            Arc::new(HeldConditions),
            Arc::new(UnnestSubqueries),
            Arc::new(RepeatedRows),
            Arc::new(WindowKeys),
        ])
        .with_physical_optimizer_rules(physical_rules)
        .with_optimizer_rule(Arc::new(CompareDays))
        .with_optimizer_rule(Arc::new(BothZeros))
        .with_optimizer_rule(Arc::new(ShareSums))
        .with_optimizer_rule(Arc::new(PackGroupKeys))
        .with_optimizer_rule(Arc::new(LargeConstants))
        .with_optimizer_rule(Arc::new(ValuesRowByRow))
        .build();
    let state = simplify::simplified(null_equality::kept_apart(state));
    planning::watched_rules(needed_rules::needed_rules(state))
}

/// `state`, whose optimizer rule `name` is what `replace` makes of it.
fn with_rule(state: SessionState, name: &str, replace: impl Fn(Rule) -> Rule) -> SessionState {
    let rules = state.optimizers().iter().map(|rule| match rule.name() == name {
        true => replace(Arc::clone(rule)),
        false => Arc::clone(rule),
    });
    let rules = rules.collect();
    SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build()
}

fn config(partitions: usize) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_target_partitions(partitions);
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::PostgreSQL;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.parse_float_as_decimal = true;
    // Ours drops them where nothing sees the order.
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.execution.time_zone = Some("UTC".to_owned());
    // The check refuses plans in which a cast that never gives NULL could, as those of rows of VALUES.
    options.execution.skip_physical_aggregate_schema_check = true;
    options.optimizer.repartition_joins = false;
    // Its operator makes room for ten times the limit before it has seen a row, which no pool sees.
    options.optimizer.enable_topk_aggregation = false;
    bound_key_lists(options);
    config
}

/// Rows of a batch: as the settings say, fewer where the memory of queries is small. A statement has about twenty
/// batches on their way, and operators charge only those that they gather.
fn batch_rows(settings: &Settings, runtime: &RuntimeEnv) -> usize {
    let wanted = usize::try_from(settings.batch_size).unwrap_or(usize::MAX);
    wanted.min((memory_max(runtime) / MEMORY_OF_ROW).max(BATCH_ROWS_MIN))
}

/// Partitions of the host's half: as the settings say, or one a core.
pub fn host_partitions(settings: &Settings) -> usize {
    match usize::try_from(settings.threads) {
        Ok(threads) if threads > 0 => threads,
        _ => get_available_parallelism(),
    }
}

/// Yields the processor to waiting threads. Planning runs for milliseconds without waiting, and the kernel may keep it
/// on the processor that long though a client's thread, which needs it for microseconds, was woken.
pub(crate) fn give_way() {
    std::thread::yield_now();
}
