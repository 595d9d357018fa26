//! The query engine of one database: a storage engine with the plan cache, the query log, and the figures of sessions
//! and vacuums for system tables.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use cleave_catalog::activity::analyses::Analyses;
use cleave_catalog::activity::vacuums::Vacuums;
use cleave_catalog::backends::Backends;
use cleave_catalog::catalog::TableState;
use cleave_engine::space_holders::SpaceHolder;
use cleave_engine::storage_engine::Engine;
use cleave_sql::copy::InputMemory;

use crate::cooperative::running_queries::RunningQueries;
use crate::device_histories::DeviceHistories;
use crate::exchange_turns::ExchangeTurns;
use crate::lent_cores::LentCores;
use crate::planner::LastStates;
use crate::populations::Populations;
use crate::query_log::QueryLog;
use crate::result_sets::ResultSets;
use crate::select::{HeldResults, OptimisedPlans, SmallTables};
use crate::statements::Statements;

/// Plans and runs queries over one open database. It is a storage [`Engine`] with more, and has its methods.
pub struct QueryEngine {
    engine: Arc<Engine>,
    query_log: Arc<QueryLog>,
    statements: Arc<Statements>,
    /// Cached optimised plans of repeated queries.
    pub(crate) optimised: OptimisedPlans,
    /// DataFusion's states of the last statements.
    pub(crate) last_states: LastStates,
    /// Results that are used again.
    pub(crate) results: HeldResults,
    /// Results on devices.
    pub(crate) result_sets: Arc<ResultSets>,
    /// What devices know of conditions.
    pub(crate) device_histories: DeviceHistories,
    /// How much others did of the runs of devices.
    pub(crate) lent_cores: LentCores,
    /// Which exchange begins on a device.
    pub(crate) exchange_turns: ExchangeTurns,
    /// Materialized views whose rows are made in the background.
    pub populations: Arc<Populations>,
    /// The rows of small tables.
    pub small_tables: SmallTables,
    backends: Arc<Backends>,
    running_queries: Arc<RunningQueries>,
    /// What vacuum has done.
    pub vacuums: Vacuums,
    /// What ANALYZE has done.
    pub analyses: Analyses,
}

impl QueryEngine {
    /// Over `engine`, nothing known of any query yet.
    pub fn new(engine: Arc<Engine>) -> Arc<Self> {
        let result_sets = Arc::<ResultSets>::default();
        engine.versions.space_holders.add(Arc::clone(&result_sets) as Arc<dyn SpaceHolder>);
        Arc::new(Self {
            engine,
            result_sets,
            query_log: Arc::default(),
            statements: Arc::default(),
            optimised: OptimisedPlans::default(),
            last_states: LastStates::default(),
            results: HeldResults::default(),
            device_histories: DeviceHistories::default(),
            lent_cores: LentCores::default(),
            exchange_turns: ExchangeTurns::default(),
            populations: Arc::default(),
            small_tables: SmallTables::default(),
            backends: Arc::default(),
            running_queries: Arc::default(),
            vacuums: Vacuums::default(),
            analyses: Analyses::default(),
        })
    }

    /// The storage engine it plans over.
    pub fn storage(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The last queries, what was predicted of them and what they cost.
    pub fn query_log(&self) -> &Arc<QueryLog> {
        &self.query_log
    }

    /// What statements have cost.
    pub fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// The sessions of its server, as others see them.
    pub fn backends(&self) -> &Arc<Backends> {
        &self.backends
    }

    /// How many results are held, in memory and on devices, and their bytes.
    #[must_use]
    pub fn held_results(&self) -> [(u64, u64); 2] {
        let sets = self.result_sets.list(&self.catalog());
        let bytes = sets.iter().map(|(set, _)| set.bytes()).sum();
        [self.results.held_figures(), (sets.len() as u64, bytes)]
    }

    /// The queries of its sessions that run, and the last that have ended.
    pub fn running_queries(&self) -> &Arc<RunningQueries> {
        &self.running_queries
    }

    /// Rows of `table` that are not as when it was analysed; all that it ever had, if it never was.
    #[must_use]
    pub fn changed_since_analyze(&self, table: &TableState) -> u64 {
        let id = table.schema.table_id;
        let then = self.statistics().get(id).map_or(0, |known| known.change_count);
        let since = table.change_count().saturating_sub(then);
        since.saturating_add(self.analyses.of(id).changed_in_place)
    }

    /// The bytes of an input that COPY and loads may hold at once.
    #[must_use]
    pub fn input_memory(&self) -> InputMemory {
        InputMemory::of(self.query_memory_max() as u64)
    }
}

impl Deref for QueryEngine {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryEngine").field("engine", &self.engine).finish_non_exhaustive()
    }
}
