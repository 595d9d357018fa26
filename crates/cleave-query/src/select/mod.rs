//! SELECT: a parsed query in, a stream of rows out, cut between host and devices on the way.
//!
//! 1. [`plan_query`] binds the query to the tables of one catalog version ([`StatementContext`]);
//! 2. DataFusion's rules simplify it and push predicates into the scans, whose inputs are pruned by tablets and zone
//!    maps ([`PlannedInput`]) and, where that pays, by an index ([`IndexChoice`]);
//! 3. [`reorder_joins`](cleave_plan::join_order::reorder_joins) orders the inner joins;
//! 4. DataFusion makes a physical plan, the scans of which are offered indexes for the keys of joins
//!    ([`index_offers`]); [`place_cuts`](cleave_plan::split::place_cuts) divides it; where the settings ask for it,
//!    steps 3 and 4 are done for several orders, and the best is taken ([`order_and_split`]);
//! 5. [`run_query`] executes the host's half; the nodes above the cuts run the rest on the devices.
//!
//! [`explain`] shows the plan and its cost. [`describe`](describe()) describes a query with parameters before they have
//! values; with values, it is planned as any other, for these.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cleave_fragment::link::AttachMode;
use cleave_media::clock::Stopwatch;
use cleave_plan::profile::Origin;
use cleave_plan::split::{CutDecision, PlacedCuts, Split, row_bytes};
use cleave_store::TableSchema;
use cleave_txn::Tracked;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as EngineResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;

mod advisory_functions;
mod backend_functions;
mod batch;
mod compiled;
mod constant_row;
mod deferred;
mod describe;
mod exchanges;
mod explain;
mod fragment_list;
mod history_list;
mod host_cuts;
mod index_choice;
mod index_offers;
mod join_method;
mod kept;
mod known_tables;
mod lock_list;
mod made_queries;
mod meter;
mod missing_table;
mod operator_in;
mod optimised;
mod order_and_split;
mod origins;
mod over_rows;
mod own_tables;
mod pack_group_keys;
mod page_filter;
pub mod pg_catalog;
mod placed;
mod planned_input;
mod prescribed;
mod progress_list;
mod result_functions;
mod result_names;
mod reuse;
mod row_by_row;
mod running;
mod sequence_functions;
mod sequence_rows;
mod shape;
mod shared_joins;
mod shared_rows;
mod small_query;
mod stages;
mod statement_context;
mod statement_function;
mod statement_list;
mod table_provider;
mod tablet_choice;
mod tablet_list;
mod upkeep;
mod used_columns;
mod views;
mod with_parts;
mod with_scan_exec;

pub use batch::{LoggedQuery, has_effects, least_memory};
pub use deferred::DeferredQuery;
pub use describe::{Described, all_known, describe, describe_over};
pub use explain::{
    ExplainedChange, Measured, about_bytes, explain, explain_look_up, explained_columns,
};
pub use index_choice::IndexChoice;
pub use order_and_split::{ComparedOrders, PricedOrder};
pub use over_rows::{described_over_rows, over_rows, over_tables, target_catalog};
pub use own_tables::is_for_everybody;
pub use pack_group_keys::PackGroupKeys;
pub use planned_input::PlannedInput;
pub use row_by_row::{RowByRow, ValuesRowByRow};
pub use running::RunningQuery;
pub(crate) use statement_context::column_facts;
pub use statement_context::{StatementContext, StatementInput};

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::settings::{IntervalStyle, JoinOrder, Settings};
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_sql::dialect::{lower_syntax, sign_intervals};
use cleave_sql::statement::catalog_tables;
use cleave_sql::statement::files::shown_call;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::parameters::Parameters;
use cleave_sql::statement::shared_with::mark_shared;

use crate::outside_tables::check_columns;
use crate::planner::deep_subqueries::optimised;
use crate::planner::planning;
use crate::planner::{self, InnerJoins};
use crate::query_engine::QueryEngine;
pub use compiled::{Compiled, compile, is_plain_value};
pub use kept::{CachedPlan, keep};
pub use made_queries::{table_query, value_query};
use meter::has_link;
pub(crate) use optimised::OptimisedPlans;
use optimised::OptimisedQuery;
use order_and_split::{Divided, Planning, Queries};
pub use origins::ColumnOrigin;
use page_filter::PageFilter;
use placed::placed;
pub use result_names::ResultNames;
pub(crate) use reuse::HeldResults;
use reuse::{ResultKey, ToHold};
pub use sequence_functions::sequence_number;
pub use shape::{ShapePlan, SmallTables};
use shared_joins::SharedJoin;
use shared_rows::SharedRows;
use stages::{Stage, Staging};
pub use upkeep::{Combined, Upkeep, upkeep};
pub use used_columns::{is_whole, uses_column};
pub use views::{files_below, files_read};
use with_parts::{BoundPart, OptimisedPart, PartRows};

/// A join that several places of a statement make is kept if it is expected to have at most so many bytes: more take
/// longer to write and to read, and memory.
const SHARED_BYTES_MAX: f64 = 16e6;

/// A query that is ready to run.
#[derive(Debug)]
pub struct PlannedQuery {
    /// What it carries.
    pub context: Arc<StatementContext>,
    /// The host's plan, with its cuts.
    pub cuts: PlacedCuts,
    /// The split that was asked for.
    pub split: Split,
    /// The orders of joins that were compared.
    pub orders: ComparedOrders,
    /// Time that planning took.
    pub planning: Duration,
    /// The origin of the figures by which splits were priced.
    pub profile: Origin,
    names: ResultNames,
    state: Arc<SessionState>,
    /// The queries of WITH that run by themselves, in their order.
    with: Vec<Arc<SharedRows>>,
    /// Where its columns come from.
    origins: Vec<Option<ColumnOrigin>>,
    /// Its result, where that may be used again.
    to_hold: Option<Box<ToHold>>,
    /// What of it is to be written to a device before the rest is planned.
    staging: Option<Box<Staging>>,
    /// What was.
    stages: Vec<Stage>,
    /// The same query as it runs without them.
    unstaged: Option<Box<Self>>,
    /// Scans of the host whose pages devices filter first.
    page_filters: Vec<PageFilter>,
}

/// What a query is planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To run as a statement.
    Statement,
    /// To be shown, and perhaps to run.
    Shown,
    /// To run as a part of something else, or to be taken apart.
    Part,
}

impl Purpose {
    /// Every split is priced, also where one is forced.
    fn prices_all(self) -> bool {
        self == Self::Shown
    }

    /// A result that is held may take the place of its plan.
    fn may_reuse(self) -> bool {
        self != Self::Part
    }
}

/// A query and the values of its parameters.
#[derive(Debug, Clone, Copy)]
pub struct QueryRequest<'a> {
    /// The query.
    pub query: &'a ast::Query,
    /// The values.
    pub parameters: &'a Parameters,
    /// What it reads; None: the newest catalog version.
    pub view: Option<&'a ReadView>,
}

/// What a query reads.
#[derive(Debug, Clone)]
pub struct ReadView {
    /// The tables.
    pub state: Arc<CatalogState>,
    /// What it calls [`TARGET`](cleave_sql::statement::modify::TARGET).
    pub target: Option<Target>,
    /// All of it is committed.
    pub is_committed: bool,
    /// Where it notes what it reads, at level SERIALIZABLE.
    pub reads: Option<Arc<Tracked>>,
    /// The table of which it reads some pages only.
    pub sampled: Option<Arc<SampledPages>>,
}

/// Some pages of a table. A query of these may name references to their rows, as [`reference_field`] calls them: rows
/// of one page have references of one page.
///
/// [`reference_field`]: cleave_fragment::row_places::reference_field
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledPages {
    /// The table.
    pub table_id: u32,
    /// Places of the pages among all of its heap.
    pub places: BTreeSet<usize>,
    /// Rows that are read of each, its first ones; None: all.
    pub first_rows: Option<usize>,
}

impl ReadView {
    /// All of `state`.
    pub fn of_state(state: Arc<CatalogState>) -> Self {
        Self { state, target: None, is_committed: false, reads: None, sampled: None }
    }
}

/// The rows that a statement changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The table.
    pub table: String,
    /// The place of the tablet.
    pub tablet: usize,
    /// Only rows on pages that begin with a VID in this range.
    pub vids: Range<u64>,
}

/// All rows of a [`Target`].
pub const ALL_VIDS: Range<u64> = 0..u64::MAX;

impl<'a> From<&'a ast::Query> for QueryRequest<'a> {
    fn from(query: &'a ast::Query) -> Self {
        static NONE: LazyLock<Parameters> = LazyLock::new(Parameters::default);
        Self { query, parameters: &NONE, view: None }
    }
}

/// Plans a query on the newest catalog version.
pub async fn plan_query(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: impl Into<QueryRequest<'_>>,
) -> Result<PlannedQuery> {
    Box::pin(plan(database, settings, asked.into(), Purpose::Part)).await
}

/// As [`plan_query`], to be shown.
async fn plan_shown(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
) -> Result<PlannedQuery> {
    plan(database, settings, asked, Purpose::Shown).await
}

/// A query bound to the tables of one catalog version.
struct Bound {
    state: SessionState,
    logical: LogicalPlan,
    /// The tables that it names, without those of the schema `cleave`.
    tables: Vec<Arc<TableSchema>>,
    /// The names of those that are not of the database.
    outside: Vec<String>,
    /// Queries of WITH that are to run by themselves.
    parts: Vec<BoundPart>,
}

/// Binds `query` to `view`, else to the newest catalog version; `put` replaces its parameters by values.
async fn bind(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    view: Option<&ReadView>,
    query: ast::Query,
    given: &GivenRows,
    put: impl FnOnce(&mut ast::Query) -> Result<()>,
) -> Result<(Bound, ResultNames)> {
    let context = context(database, settings, view, given).await?;
    let (query, names) = lowered(query, &context, put)?;
    let partitions = partitions(&context, &query);
    Ok((bound(context, query, partitions).await?, names))
}

/// The context of a statement that reads `view`, else the newest catalog version.
async fn context(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    view: Option<&ReadView>,
    given: &GivenRows,
) -> Result<Arc<StatementContext>> {
    let view = match view {
        Some(view) => view.clone(),
        None => ReadView::of_state(database.snapshot(SnapshotKind::Flushed).await?),
    };
    Ok(StatementContext::over_given(Arc::clone(database), view, settings.clone(), given.clone()))
}

/// `query`, which reads the tables of `context`, in DataFusion's form, with values from `put` for its parameters, and
/// the names of its columns.
fn lowered(
    mut query: ast::Query,
    context: &StatementContext,
    put: impl FnOnce(&mut ast::Query) -> Result<()>,
) -> Result<(ast::Query, ResultNames)> {
    // First: a parameter names no column, whatever its value looks like.
    let names = ResultNames::take(&mut query, context)?;
    put(&mut query)?;
    if context.settings().interval_style == IntervalStyle::Standard {
        sign_intervals(&mut query);
    }
    lower_syntax(&mut query);
    mark_shared(&mut query)?;
    Ok((query, names))
}

/// Binds `query`, as [`lowered`] gives it, to the tables of `context`, for a host's half of so many `partitions`.
async fn bound(
    context: Arc<StatementContext>,
    query: ast::Query,
    partitions: usize,
) -> Result<Bound> {
    let catalog = table_provider::StatementCatalog::new(Arc::clone(&context));
    let state = state_over(catalog, &context, &query, partitions)?;
    let statement = ast::Statement::Query(Box::new(query));
    let statement = EngineStatement::Statement(Box::new(statement));
    let (tables, outside) = named_tables(&state, &context, &statement)?;
    planner::give_way();
    planning::check()?;
    let logical = state.statement_to_plan(statement).await?;
    planning::check_size(&logical)?;
    let parts = context.bound_parts().take();
    Ok(Bound { state, logical, tables, outside, parts })
}

/// DataFusion's state for `query`, with the names of `catalog` and the functions that are made for it.
fn state_over(
    catalog: Arc<table_provider::StatementCatalog>,
    context: &Arc<StatementContext>,
    query: &ast::Query,
    partitions: usize,
) -> EngineResult<SessionState> {
    let (settings, database) = (context.settings(), context.database());
    let (runtime, with) = (database.query_runtime(), (settings, &database.last_states));
    let joins = match settings.join_order {
        JoinOrder::Written => InnerJoins::AsWritten,
        JoinOrder::Auto | JoinOrder::Leading(_) => InnerJoins::Ordered,
    };
    let mut state = planner::statement_state(with, joins, partitions, runtime, catalog);
    let view = || pg_catalog::view(context);
    pg_catalog::functions::register(&mut state, query, settings, view)?;
    sequence_functions::register(&mut state, query, context)?;
    advisory_functions::register(&mut state, query, context)?;
    backend_functions::register(&mut state, query, context)?;
    result_functions::register(&mut state, query, context)?;
    with_parts::register(&mut state, context)?;
    Ok(state)
}

/// Whether `query` calls functions that [`state_over`] makes for one statement.
fn calls_own_functions(query: &ast::Query) -> bool {
    let known = |name: &str| {
        let own = sequence_functions::NAMES.iter().chain(&advisory_functions::NAMES);
        let own = own.chain(&backend_functions::NAMES).chain(&result_functions::NAMES);
        let own = own.copied().find(|known| *known == name);
        own.or_else(|| pg_catalog::functions::known_name(name))
    };
    !statement_function::called(query, known).is_empty()
}

/// Partitions of the host's half of `query`. Below a cut at the root, partial aggregates and exchanges would be in
/// vain; over few rows they cost more than they gain.
fn partitions(context: &StatementContext, query: &ast::Query) -> usize {
    let settings = context.settings();
    match settings.split_in_force() {
        Split::Ndp | Split::ALL_JOINS => 1,
        _ if settings.threads == 0 && small_query::reads_few_rows(query, context) => 1,
        // Numbers go to rows in their order, and `currval` is that of its own row.
        _ if sequence_functions::are_called(query) => 1,
        _ => planner::host_partitions(settings),
    }
}

async fn plan(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    purpose: Purpose,
) -> Result<PlannedQuery> {
    let stopwatch = Stopwatch::start();
    database.activity().note(Act::Plan);
    let context = context(database, settings, asked.view, &asked.parameters.rows).await?;
    let is_small = small_query::is_small(asked.query, context.state());
    let planning = planning::Planning::new(settings, &database.query_runtime());
    let (query, parameters) = (asked.query.clone(), asked.parameters.clone());
    let planned = planning.over(is_small, async move {
        let put = |query: &mut ast::Query| parameters.put_into(query);
        let (query, names) = lowered(query, &context, put)?;
        planned(context, (query, names), purpose, &stopwatch).await
    });
    planned.await.map_err(|error| placed(error, asked.query))
}

/// Plans `query`, as [`lowered`] gives it.
async fn planned(
    context: Arc<StatementContext>,
    (query, names): (ast::Query, ResultNames),
    purpose: Purpose,
    stopwatch: &Stopwatch,
) -> Result<PlannedQuery> {
    let key = ResultKey::of(&context, &query, purpose);
    if let Some(key) = &key
        && let Some(held) = context.database().results.plan(key, &context, &names, stopwatch)
    {
        return Ok(held);
    }
    let price_all = purpose.prices_all();
    let OptimisedQuery { state, plan: mut logical, parts, origins, tables } =
        optimised_plan(&context, query, key.is_some()).await?;
    let to_hold = key.filter(|_| purpose == Purpose::Statement).zip(tables);
    let to_hold = to_hold.and_then(|(key, tables)| ToHold::new(key, tables, &context));
    let mut with = PartRows::default();
    let staging = Staging::of(&context, &state, (&logical, &parts), price_all);
    for part in parts {
        let how = (price_all, stopwatch);
        let (number, rows) = shared_rows(&context, &state, part, &with, how).await?;
        with.shared.insert(number, rows);
    }
    let staging = match staging {
        Some(staging) => staging.where_it_pays(&context, &with.shared).await?,
        None => None,
    };
    if with.shared.is_empty()
        && let Some(shared) =
            shared_parts(&context, &state, &logical, (price_all, stopwatch)).await?
    {
        (logical, with) = shared;
    }
    if with.shared.is_empty() {
        let query = (state, names, Queries::One);
        let planned = divided(context, query, logical, price_all, stopwatch).await?;
        return Ok(PlannedQuery { origins, to_hold, ..planned });
    }
    let logical = with_parts::over(logical, &context, &with)?;
    let query = (state, names, Queries::Several);
    let planned = divided(context, query, logical, price_all, stopwatch).await?;
    let with = with.shared.into_values().collect();
    Ok(PlannedQuery { with, origins, to_hold, staging, ..planned })
}

/// The rows of `part`, a query of WITH that runs beside the statement of `context`, and its number.
async fn shared_rows(
    context: &Arc<StatementContext>,
    state: &Arc<SessionState>,
    OptimisedPart { number, name, columns, plan, .. }: OptimisedPart,
    with: &PartRows,
    (price_all, stopwatch): (bool, &Stopwatch),
) -> Result<(usize, Arc<SharedRows>)> {
    let own = context.of_part();
    let plan = with_parts::over(plan, &own, with)?;
    let bare = (Arc::clone(state), ResultNames::default(), Queries::Several);
    let query = Box::pin(divided(own, bare, plan, price_all, stopwatch)).await?;
    let rows = explain::row_estimate(&query);
    context.expect_part(with_parts::part_name(number), rows);
    Ok((number, SharedRows::new(format!("WITH {name}"), columns, rows, query)))
}

/// `logical` over the rows of joins that it would make several times, and these rows; `None` if there are none worth
/// it.
async fn shared_parts(
    context: &Arc<StatementContext>,
    state: &Arc<SessionState>,
    logical: &LogicalPlan,
    (price_all, stopwatch): (bool, &Stopwatch),
) -> Result<Option<(LogicalPlan, PartRows)>> {
    // A hint names the tables of one query, and a split that is asked for counts its joins.
    let settings = context.settings();
    let is_free = matches!(settings.split_in_force(), Split::Auto | Split::Host);
    if settings.join_order != JoinOrder::Auto || !is_free {
        return Ok(None);
    }
    let Some((over_parts, joins)) = shared_joins::shared(logical, 0)? else { return Ok(None) };
    let mut with = PartRows::default();
    for SharedJoin { number, name, plan, devices } in joins {
        // An aggregate behind a link sends fewer rows than its join.
        for id in devices {
            if context.database().attached(id)?.mode() != AttachMode::Embedded {
                return Ok(None);
            }
        }
        let columns = (0..plan.schema().fields().len()).collect();
        let plan = optimised(state.optimizer(), plan, &**state)?;
        let own = context.of_part();
        let plan = with_parts::over(plan, &own, &with)?;
        let bare = (Arc::clone(state), ResultNames::default(), Queries::Several);
        let query = Box::pin(divided(own, bare, plan, price_all, stopwatch)).await?;
        let rows = explain::row_estimate(&query);
        if rows * row_bytes(&query.cuts.plan.schema()) > SHARED_BYTES_MAX {
            return Ok(None);
        }
        context.expect_part(with_parts::part_name(number), rows);
        let rows = SharedRows::new(format!("join of {name}"), columns, rows, query);
        with.shared.insert(number, rows);
    }
    Ok(Some((over_parts, with)))
}

/// Orders the joins of a plan that is optimised, and places its cuts.
async fn divided(
    context: Arc<StatementContext>,
    (state, names, queries): (Arc<SessionState>, ResultNames, Queries),
    logical: LogicalPlan,
    price_all: bool,
    stopwatch: &Stopwatch,
) -> Result<PlannedQuery> {
    let settings = context.settings();
    let split = settings.split_in_force();
    let statement =
        Planning { state: &state, settings, context: &context, split, price_all, queries };
    let logical = with_parts::over_working_tables(logical)?;
    // Tables of columns that only ORDER BY names are looked for last.
    let divided = statement.divide(logical).await?;
    let page_filters = PageFilter::of(&context, &state, &divided.cuts.plan).await?;
    let planned = PlannedQuery::of_cuts(context, divided, split, (state, names));
    Ok(PlannedQuery { planning: stopwatch.elapsed(), page_filters, ..planned })
}

/// `query`, as [`lowered`] gives it, bound and optimised, or what is cached of that, and its parts. With `asks_tables`
/// also the tables that its result depends on, if it depends on nothing else.
async fn optimised_plan(
    context: &Arc<StatementContext>,
    query: ast::Query,
    asks_tables: bool,
) -> Result<OptimisedQuery> {
    let (kept, settings) = (&context.database().optimised, context.settings());
    let partitions = partitions(context, &query);
    let key =
        context.is_plain().then(|| optimised::Key::of(&query, partitions, settings.batch_size));
    if let Some(key) = &key
        && let Some(found) = kept.get(key, &query, context)
    {
        context.database().activity().note(Act::CachedPlan);
        return Ok(found);
    }
    let again = key.is_some().then(|| query.clone());
    let bound = bound(Arc::clone(context), query, partitions).await?;
    let origins = origins::origins(&bound.logical, context.state());
    let optimised = constant_row::optimize(&bound.state, &bound.logical)?;
    planning::check_size(&optimised)?;
    planner::give_way();
    let parts = with_parts::optimised_parts(&bound.state, &optimised, bound.parts.clone())?;
    let all = bound.parts.iter().map(|part| &part.plan).chain([&bound.logical]);
    let all = all.collect::<Vec<_>>();
    // A table from outside may have become a plan without a scan, or have left the plan; its name says nothing of it.
    let is_of_database = bound.outside.is_empty();
    let depends_on_tables_alone =
        asks_tables && is_of_database && optimised::depends_on_tables(&all, &optimised, &parts);
    let tables = depends_on_tables_alone.then(|| bound.tables.clone());
    if is_of_database && let (Some(key), Some(query)) = (key, again) {
        let made = (&optimised, parts.as_slice(), &*origins);
        kept.keep(key, &query, &bound.tables, &bound.state, &all, made);
    }
    Ok(OptimisedQuery { state: Arc::new(bound.state), plan: optimised, parts, origins, tables })
}

/// Plans a query and starts it.
pub async fn run_query(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: impl Into<QueryRequest<'_>>,
) -> Result<RunningQuery> {
    plan_query(database, settings, asked).await?.run(false).await
}

/// As [`run_query`], of a query of which [`Measured`] is to tell.
pub async fn run_measured(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
) -> Result<RunningQuery> {
    plan_shown(database, settings, asked).await?.run(true).await
}

/// As [`run_query`], and enters the query, whatever becomes of it, in the query log as `text`.
pub async fn run_logged(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    text: &str,
) -> Result<RunningQuery> {
    let planned = LoggedQuery::plan(database, settings, asked, text).await?;
    planned.run(1).await
}

/// The tables that `statement` names, and the names of those that are not of the database; of one that does not exist,
/// the error names the nearest that does.
fn named_tables(
    state: &SessionState,
    context: &StatementContext,
    statement: &EngineStatement,
) -> Result<(Vec<Arc<TableSchema>>, Vec<String>)> {
    let (mut tables, mut outside) = (Vec::new(), Vec::new());
    for reference in state.resolve_table_references(statement)? {
        // A name alone may be that of a function, and of a table from outside.
        let is_alone = reference.schema().is_none();
        let offered = is_alone.then(|| context.outside_table(reference.table())).flatten();
        if offered.is_none() && state.table_functions().contains_key(reference.table()) {
            continue;
        }
        if context.given(reference.table()).is_some() {
            continue;
        }
        if let Some(files) = context.files(reference.table()) {
            let call = shown_call(reference.table()).unwrap_or_default();
            check_columns(call, &*files?)?;
            outside.push(reference.table().to_owned());
            continue;
        }
        if let Some(table) = offered {
            check_columns(reference.table(), &*table)?;
            outside.push(reference.table().to_owned());
            continue;
        }
        match reference.schema() {
            None | Some(table_provider::SCHEMA) => {
                let noted = (&mut tables, &mut outside);
                views::note_tables(context, reference.table(), noted)?;
            }
            Some(own_tables::SCHEMA) => own_tables::check_table(reference.table())?,
            Some(
                schema @ (catalog_tables::CATALOG_SCHEMA | catalog_tables::INFORMATION_SCHEMA),
            ) => {
                catalog_tables::check_table(schema, reference.table())?;
            }
            Some(schema) => {
                let schemas = [
                    table_provider::SCHEMA,
                    own_tables::SCHEMA,
                    catalog_tables::CATALOG_SCHEMA,
                    catalog_tables::INFORMATION_SCHEMA,
                ];
                return Err(Error::unknown(NameKind::Schema, schema, schemas));
            }
        }
    }
    Ok((tables, outside))
}

impl PlannedQuery {
    /// A query that is nothing but its plan.
    fn of_cuts(
        context: Arc<StatementContext>,
        Divided { cuts, profile, orders }: Divided,
        split: Split,
        (state, names): (Arc<SessionState>, ResultNames),
    ) -> Self {
        Self {
            context,
            cuts,
            split,
            orders,
            planning: Duration::ZERO,
            profile,
            names,
            state,
            with: Vec::new(),
            origins: Vec::new(),
            to_hold: None,
            staging: None,
            stages: Vec::new(),
            unstaged: None,
            page_filters: Vec::new(),
        }
    }

    /// The split of the plan, which is `host` where nothing of it is cut.
    pub fn split_taken(&self) -> Split {
        let chosen = self.cuts.priced.iter().find(|priced| priced.is_chosen);
        let is_cut = |decision: &CutDecision| !decision.device_operators.is_empty();
        if self.cuts.decisions.iter().any(is_cut) {
            return chosen.map_or(self.split, |priced| priced.split);
        }
        let mut of_parts = self.with.iter().filter_map(|rows| rows.with_query(Self::split_taken));
        of_parts.find(|split| *split != Split::Host).unwrap_or(Split::Host)
    }

    /// Whether parts of it are to become stages, and the rest is planned again.
    pub(crate) fn is_staged(&self) -> bool {
        self.staging.is_some()
    }

    /// Whether no query of WITH runs before it.
    pub(crate) fn is_alone(&self) -> bool {
        self.with.is_empty()
    }

    /// Rows that are expected of it.
    pub(crate) fn row_estimate(&self) -> f64 {
        explain::row_estimate(self)
    }

    /// `schema`, which its plan has, with the names of its result.
    pub(crate) fn named(&self, schema: &SchemaRef) -> SchemaRef {
        self.names.apply(schema)
    }

    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// What its plans carry: that of the query, then those of its parts.
    fn contexts(&self) -> Vec<Arc<StatementContext>> {
        let parts = self.with.iter().map(|rows| Arc::clone(rows.context()));
        std::iter::once(Arc::clone(&self.context)).chain(parts).collect()
    }
}
