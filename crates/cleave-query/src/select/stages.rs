//! Stages: queries of WITH that a device writes as [result sets](crate::result_sets) before the rest of the statement
//! is planned.
//!
//! ```text
//!  planned    WITH x AS (q) … FROM x JOIN x AS y …     x is expected to have many bytes, behind a link
//!  run        1. q with InsertPagesExec at its root runs on the device ─▶ result set: rows, pages, zone maps
//!             2. the rest is planned over a table of these rows, whose size is known, and cut like any other plan
//! ```
//!
//! 1. [`Staging::of`] keeps what planning the rest again needs. [`Staging::where_it_pays`] asks for each query of WITH
//!    that runs once whether writing its rows is expected to take clearly less than sending them to the host.
//! 2. [`Staging::run`] makes the stages when the statement begins to run, or finds them among the results that are
//!    [held](crate::result_sets::ResultSets::find), if `result_reuse` is on.
//! 3. A part whose rows the device does not make, for whatever reason, runs as it was planned.
//!
//! Invariant: rows are the same with and without stages. Source: NDP result sets, section 4.2;
//! `docs/design/result-sets.md`.

mod column_statistics;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::activity::Act;
use cleave_catalog::catalog::same_rows::TableRows;
use cleave_catalog::catalog::{DeviceId, TableState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::When;
use cleave_engine::device::Device;
use cleave_fragment::STRETCH_ROWS;
use cleave_fragment::link::AttachMode;
use cleave_fragment::walk::WalkPlan;
use cleave_fragment::{TableScanExec, streamed_input};
use cleave_media::Stopwatch;
use cleave_plan::TableStatistics;
use cleave_plan::profile::Profile;
use cleave_plan::split::{Split, divides_rows, row_bytes};
use cleave_sql::dialect::sql_type;
use cleave_store::{Column, TableSchema};
use datafusion::arrow::datatypes::{Field, Fields, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as EngineResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;

use super::optimised::{cached_plan, depends_on_tables};
use super::order_and_split::Queries;
use super::result_names::ResultNames;
use super::reuse::of_anybody;
use super::shared_rows::SharedRows;
use super::statement_context::StatementContext;
use super::table_provider::CleaveTable;
use super::with_parts::{self, OptimisedPart, PartRows, part_name, part_of};
use super::with_scan_exec::WithScanExec;
use super::{PlannedQuery, divided, shared_rows};
use crate::cooperative::fragment_exec::FragmentExec;
use crate::cooperative::inserting::{ColumnSource, InsertFragments, InsertingQuery};
use crate::cooperative::update_cost::{BulkInsert, UpdateCost};
use crate::cooperative::whole_fragment::at_roots;
use crate::planner::planning::Planning;
use crate::query_engine::QueryEngine;
use crate::result_sets::{About, ReadTables, ResultSet, SetKey};

/// Seconds that a stage costs whatever its rows: a plan, a command, its space.
const STAGE_S: f64 = 12e-3;
/// Sending the rows must be expected to take so many times as long as writing them. At 2.6 times, over 1 Gbit, a join
/// of the rows with themselves took 1.08 times as long (measured).
const GAIN_MIN: f64 = 3.0;
/// The same of rows that are held: at the second use nothing is written.
const GAIN_MIN_HELD: f64 = 1.5;
/// Most cores of a device that write a stage.
const WRITERS_MAX: f64 = 16.0;

/// The parts of a statement that may become stages. See the module's description.
pub(super) struct Staging {
    state: Arc<SessionState>,
    logical: LogicalPlan,
    parts: Vec<OptimisedPart>,
    price_all: bool,
    /// Of those that are to become stages.
    offers: Vec<Offer>,
    /// The statement.
    text: String,
}

/// What is expected of a stage.
#[derive(Debug)]
pub(super) struct Offer {
    number: usize,
    pub(super) name: String,
    pub(super) device: String,
    pub(super) rows: f64,
    pub(super) bytes: f64,
    /// Seconds to send its rows to the host, and to write them.
    pub(super) link_s: f64,
    pub(super) write_s: f64,
    /// Cores of each device that are to write them.
    writers: usize,
}

/// A query of WITH whose rows are on a device.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) name: String,
    /// Places of its columns among all that the query was bound with.
    columns: Vec<usize>,
    table: Arc<TableState>,
    pub(super) set: Arc<ResultSet>,
    /// What is known of its columns.
    pub(super) statistics: Arc<TableStatistics>,
    /// The rows that were expected.
    pub(super) expected_rows: f64,
    pub(super) is_reused: bool,
    /// What it took to make or find it.
    pub(super) elapsed: Duration,
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").field("offers", &self.offers).finish_non_exhaustive()
    }
}

impl Staging {
    /// The parts of the statement of `context` that may become stages; None: the settings allow none, or it reads the
    /// rows that another statement changes.
    pub(super) fn of(
        context: &StatementContext,
        state: &Arc<SessionState>,
        (logical, parts): (&LogicalPlan, &[OptimisedPart]),
        price_all: bool,
    ) -> Option<Box<Self>> {
        let settings = context.settings();
        let split = settings.split_in_force();
        if parts.is_empty() {
            return None;
        }
        let is_allowed = match settings.stages {
            When::Never => false,
            // A forced split is one of the plan without stages.
            When::WherePays => {
                split == Split::Auto && has_far(context.database()) && !stops_early(logical)
            }
            When::Always => true,
        };
        if !is_allowed || split == Split::Host || !context.is_plain() {
            return None;
        }
        Some(Box::new(Self {
            state: Arc::clone(state),
            logical: logical.clone(),
            parts: parts.to_vec(),
            price_all,
            offers: Vec::new(),
            text: String::new(),
        }))
    }

    /// The same with those parts that pay; None: there are none. `planned` has the parts as they run without stages.
    pub(super) async fn where_it_pays(
        mut self: Box<Self>,
        context: &StatementContext,
        planned: &BTreeMap<usize, Arc<SharedRows>>,
    ) -> Result<Option<Box<Self>>> {
        let is_forced = context.settings().stages == When::Always;
        let is_held = context.settings().limits.reuse.is_on;
        let gain_min = if is_held { GAIN_MIN_HELD } else { GAIN_MIN };
        let mut chosen: BTreeMap<usize, BTreeSet<DeviceId>> = BTreeMap::new();
        for part in &self.parts {
            // The pages would have other types than their readers know.
            let planned_rows = planned.get(&part.number).filter(|_| part.has_bound_types);
            let Some(rows) = planned_rows else { continue };
            let of_part = |rows: &Arc<SharedRows>| {
                let known = planned.iter().find(|(_, known)| Arc::ptr_eq(known, rows));
                known.and_then(|(number, _)| chosen.get(number).cloned())
            };
            let known = rows.with_query(|query| {
                let inputs = query.context.inputs();
                let devices = inputs.iter().flat_map(|input| input.input.devices());
                let plan = &query.cuts.plan;
                let apart = made_apart(plan, &query.context, &of_part);
                (devices.collect::<BTreeSet<DeviceId>>(), apart, row_bytes(&plan.schema()))
            });
            // An order would be lost.
            let Some((mut devices, apart, width)) = known.filter(|_| !is_ordered(&part.plan))
            else {
                continue;
            };
            let below = read_parts(&part.plan).map(|number| chosen.get(&number));
            let Some(below) = below.collect::<Option<Vec<_>>>() else { continue };
            devices.extend(below.into_iter().flatten());
            if devices.len() > 1 {
                // Each of several writes the rows that it makes.
                let Some(apart) = apart else { continue };
                devices = apart;
            }
            if devices.is_empty() {
                continue;
            }
            let database = context.database();
            let attached = devices.iter().map(|id| database.attached(*id));
            let attached = attached.collect::<Result<Vec<Arc<Device>>>>()?;
            let is_near = |device: &Arc<Device>| device.mode() == AttachMode::Embedded;
            if attached.iter().any(is_near) && !is_forced {
                continue;
            }
            let bytes = rows.row_estimate() * width;
            let own_bytes = bytes / devices.len() as f64;
            let own_rows = rows.row_estimate() / devices.len() as f64;
            let (mut each, mut link_s, mut writers) = (Vec::new(), 0.0_f64, 1);
            for id in &devices {
                let profile = database.known_profile(*id).await?;
                let profile = profile.map_or_else(Profile::assumed, |known| Profile::clone(&known));
                link_s = link_s.max(own_bytes / profile.link.bytes_per_second.max(1.0));
                let own_writers = writers_of(own_rows, &profile);
                writers = writers.max(own_writers);
                let writers = own_writers as f64;
                each.push((BulkInsert { bytes: own_bytes, bytes_read: 0.0, writers }, profile));
            }
            let cost = UpdateCost::of_insert(&each);
            let offer = Offer {
                number: part.number,
                name: part.name.clone(),
                device: attached.iter().map(|d| d.name()).collect::<Vec<_>>().join(", "),
                rows: rows.row_estimate(),
                bytes,
                link_s,
                write_s: STAGE_S + cost.by_pages_s,
                writers,
            };
            if is_forced || offer.link_s > gain_min * offer.write_s {
                chosen.insert(part.number, devices);
                self.offers.push(offer);
            }
        }
        Ok((!self.offers.is_empty()).then_some(self))
    }

    /// What is to become a stage.
    pub(super) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Notes the text of the statement.
    pub(super) fn note_text(&mut self, text: &str) {
        self.text = text.to_owned();
    }

    /// Makes the stages of `query`, and plans the rest of it anew; `query` itself where the device makes none, or their
    /// pages cannot be read.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) async fn run(self: Box<Self>, mut query: PlannedQuery) -> Result<PlannedQuery> {
        let mut context = Arc::clone(&query.context);
        let mut rows = PartRows::default();
        for part in &self.parts {
            let offer = self.offers.iter().find(|offer| offer.number == part.number);
            let Some(offer) = offer else { continue };
            if let Some(stage) = self.made(&context, (part, offer), &rows).await {
                context = context.over_stage(&stage);
                rows.stages.insert(part.number, stage);
            }
        }
        if rows.stages.is_empty() {
            return Ok(query);
        }
        let database = Arc::clone(context.database());
        let planning = Planning::new(context.settings(), &database.query_runtime());
        let sets: Vec<_> = rows.stages.values().map(|stage| Arc::clone(&stage.set)).collect();
        let (names, origins) = (query.names.clone(), query.origins.clone());
        let (to_hold, before) = (query.to_hold.take(), query.planning);
        let replanned = planning.over(false, async move {
            let stopwatch = Stopwatch::start();
            let how = (self.price_all, &stopwatch);
            for part in self.parts {
                if !rows.stages.contains_key(&part.number) {
                    let (number, shared) =
                        shared_rows(&context, &self.state, part, &rows, how).await?;
                    rows.shared.insert(number, shared);
                }
            }
            let logical = with_parts::over(self.logical, &context, &rows)?;
            let query = (self.state, names, Queries::Several);
            let planned =
                Box::pin(divided(context, query, logical, self.price_all, &stopwatch)).await?;
            let with = rows.shared.into_values().collect();
            let stages = rows.stages.into_values().collect();
            Ok(PlannedQuery { with, stages, ..planned })
        });
        let replanned = match replanned.await {
            Err(error) if is_of_pages(&error) => {
                sets.iter().for_each(|set| database.result_sets.forget(set));
                return Ok(PlannedQuery { to_hold, ..query });
            }
            outcome => outcome?,
        };
        let planning = before + replanned.planning;
        let unstaged = Some(Box::new(query));
        Ok(PlannedQuery { origins, to_hold, planning, unstaged, ..replanned })
    }

    /// `part` as a stage; None: the device does not make its rows.
    async fn made(
        &self,
        context: &Arc<StatementContext>,
        (part, offer): (&OptimisedPart, &Offer),
        rows: &PartRows,
    ) -> Option<Stage> {
        let (stopwatch, database) = (Stopwatch::start(), context.database());
        let settings = context.settings();
        let key = key_of(context, part);
        let stage = |set: Arc<ResultSet>, is_reused| {
            let schema =
                TableSchema { name: part_name(part.number), ..(*set.table.schema).clone() };
            let table = TableState { schema: Arc::new(schema), ..TableState::clone(&set.table) };
            let statistics = column_statistics::of_rows(context, &part.plan, &table);
            Stage {
                name: part.name.clone(),
                columns: part.columns.clone(),
                table: Arc::new(table),
                set,
                statistics: Arc::new(statistics),
                expected_rows: offer.rows,
                is_reused,
                elapsed: stopwatch.elapsed(),
            }
        };
        if let Some((key, _)) = &key
            && let Some(found) = database.result_sets.find(key, context.state()).await
        {
            database.activity().note(Act::ReusedStage);
            return Some(stage(found, true));
        }
        // Whatever is wrong, the part finds out itself as it was planned.
        let fragments = self.fragments(context, part, rows).await.ok()??;
        let about = About::new("run", &part.name, &self.text);
        let made = fragments.result_set(offer.writers, settings, about).await.ok()??;
        database.activity().note(Act::Stage);
        if let Some((key, tables)) = key {
            let limit = (&**context.state(), settings.limits.reuse.device_bytes);
            database.result_sets.hold(key, tables, &made, limit);
        }
        Some(stage(made, false))
    }

    /// The fragments that write the rows of `part`, one on each device that makes some; None: there are none.
    async fn fragments(
        &self,
        context: &Arc<StatementContext>,
        part: &OptimisedPart,
        rows: &PartRows,
    ) -> Result<Option<InsertFragments>> {
        let Some(columns) = columns_of(&part.plan) else { return Ok(None) };
        let Some(query) = self.inserting(context, part, rows).await? else { return Ok(None) };
        let sources: Vec<_> = (0..columns.len()).map(ColumnSource::Query).collect();
        let name = part_name(part.number);
        let schema =
            TableSchema { table_id: 0, version: 1, name, columns, primary_key: Vec::new() };
        query.into_table(&Arc::new(schema), &sources, &[])
    }

    /// `part`, whose rows devices make; None: they do not.
    async fn inserting(
        &self,
        context: &Arc<StatementContext>,
        part: &OptimisedPart,
        rows: &PartRows,
    ) -> Result<Option<InsertingQuery>> {
        for settings in at_roots(context.database(), context.settings()) {
            let own = context.of_part_under(settings);
            let plan = with_parts::over(part.plan.clone(), &own, rows)?;
            let mut state = SessionState::clone(&self.state);
            state.config_mut().options_mut().execution.target_partitions = 1;
            let planning = Planning::new(own.settings(), &own.database().query_runtime());
            let planned = planning.over(false, async move {
                let query = (Arc::new(state), ResultNames::default(), Queries::One);
                Box::pin(divided(own, query, plan, false, &Stopwatch::start())).await
            });
            let query = planned.await.ok().and_then(InsertingQuery::of_planned);
            if query.is_some() {
                return Ok(query);
            }
        }
        Ok(None)
    }
}

/// Whether `error` may be of pages that were written for a query: these are damaged, or their device is lost.
pub(super) fn is_of_pages(error: &Error) -> bool {
    ["08", "58", "XX001"].iter().any(|class| error.sqlstate().starts_with(class))
}

/// Cores of a device that are to write `row_count` rows: each has pages of its own.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn writers_of(row_count: f64, profile: &Profile) -> usize {
    let stretches = (row_count / STRETCH_ROWS as f64).ceil();
    f64::from(profile.device.cores).min(stretches).clamp(1.0, WRITERS_MAX) as usize
}

/// The devices that can make the rows of `plan`, each those of its part of what streams; `of_part` knows those of a
/// query of WITH. None: something needs the rows of all parts.
fn made_apart(
    plan: &Arc<dyn ExecutionPlan>,
    context: &StatementContext,
    of_part: &dyn Fn(&Arc<SharedRows>) -> Option<BTreeSet<DeviceId>>,
) -> Option<BTreeSet<DeviceId>> {
    if let Some(node) = plan.downcast_ref::<FragmentExec>() {
        return node.devices();
    }
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let input = context.input(scan.scan().input).ok()?;
        return plan.fetch().is_none().then(|| input.input.devices());
    }
    if let Some(scan) = plan.downcast_ref::<WithScanExec>() {
        return of_part(scan.rows());
    }
    let streamed = streamed_input(plan.as_ref()).filter(|_| divides_rows(plan.as_ref()))?;
    made_apart(streamed, context, of_part)
}

/// Whether a device of `database` is behind a link.
pub(super) fn has_far(database: &QueryEngine) -> bool {
    database.devices().iter().any(|device| device.mode() != AttachMode::Embedded)
}

/// Whether `plan` may be at its end before it has read all rows of its parts.
fn stops_early(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Limit(limit) => !reads_all(&limit.input),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().any(stops_early)
        }
        _ => false,
    }
}

/// Whether `plan` has read all rows before it gives the first.
fn reads_all(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_) => true,
        _ => matches!(plan.inputs().as_slice(), [input] if reads_all(input)),
    }
}

/// The numbers of the parts that `plan` reads.
fn read_parts(plan: &LogicalPlan) -> impl Iterator<Item = usize> {
    let mut numbers = BTreeSet::new();
    let looked = plan.apply_everywhere(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            numbers.extend(part_of(scan).map(|(number, _)| number));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(looked.is_ok(), "nothing fails here");
    numbers.into_iter()
}

/// Whether the rows of `plan` have an order, or are only so many.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().any(is_ordered)
        }
        _ => false,
    }
}

/// The columns of a table for the rows of `plan`; None: it cannot hold them as they are.
fn columns_of(plan: &LogicalPlan) -> Option<Vec<Column>> {
    let fields = plan.schema().fields();
    let mut columns = columns_for(fields)?;
    for (column, field) in columns.iter_mut().zip(fields) {
        column.name.clone_from(field.name());
    }
    let name = String::from("part");
    let schema = TableSchema { table_id: 0, version: 1, name, columns, primary_key: Vec::new() };
    schema.validate().is_ok().then_some(schema.columns)
}

/// The columns of a table for rows of `fields`, called by their numbers; None: it cannot hold them as they are.
pub(super) fn columns_for(fields: &Fields) -> Option<Vec<Column>> {
    let column = |(field, id): (&Arc<Field>, u32)| {
        let column_type = sql_type(field.data_type())?;
        (column_type.arrow() == *field.data_type()).then(|| Column {
            id,
            name: format!("c{id}"),
            column_type,
            not_null: !field.is_nullable(),
            default: None,
            absent: None,
        })
    };
    fields.iter().zip(1..).map(column).collect()
}

impl Stage {
    /// The rows as a table.
    pub(super) fn table(&self) -> &Arc<TableState> {
        &self.table
    }

    /// The rows.
    pub(super) fn set(&self) -> Arc<ResultSet> {
        Arc::clone(&self.set)
    }

    /// The places in its table of columns that the query of WITH has at `columns`.
    ///
    /// # Errors
    /// A column that was not made.
    pub(super) fn places_of(&self, columns: &[usize]) -> EngineResult<Vec<usize>> {
        let place = |column: &usize| self.columns.iter().position(|own| own == column);
        match columns.iter().map(place).collect() {
            Some(places) => Ok(places),
            None => internal_err!("a column of a part of WITH that is not made"),
        }
    }

    /// What scans read, of a query whose columns are those of `schema`.
    pub(super) fn scanned(
        &self,
        schema: &SchemaRef,
        context: &Arc<StatementContext>,
    ) -> EngineResult<CleaveTable> {
        let arrow = Arc::new(schema.project(&self.columns)?);
        Ok(CleaveTable::of_stage(Arc::clone(&self.table), arrow, Arc::clone(context)))
    }
}

/// What says that the rows of `part` in the statement of `context` are meant, and what its tables have; None: it takes
/// no part in reuse.
fn key_of(context: &StatementContext, part: &OptimisedPart) -> Option<(SetKey, ReadTables)> {
    let settings = context.settings();
    let plan = &part.plan;
    let takes_part = settings.limits.reuse.is_on
        && context.reads_committed_rows()
        && depends_on_tables(&[plan], plan, &[]);
    let tables = tables_of(plan).filter(|_| takes_part)?;
    // Its own tables would keep their catalog version, and the database.
    let plan = cached_plan(plan)?;
    let role = settings.client.acting.role;
    Some((SetKey::new(role, plan, of_anybody(settings)), tables))
}

/// The tables that `plan` reads, and what they have; None: it reads something else.
fn tables_of(plan: &LogicalPlan) -> Option<ReadTables> {
    let (mut tables, mut is_known) = (Vec::new(), true);
    let looked = plan.apply_everywhere(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(TreeNodeRecursion::Continue) };
        let provider = source_as_provider(&scan.source).ok().filter(|_| part_of(scan).is_none());
        match provider.as_ref().and_then(|table| table.downcast_ref::<CleaveTable>()) {
            Some(table) if table.plain_name().is_some() => {
                let table = table.table_state();
                tables.push((Arc::clone(&table.schema), TableRows::of(table)));
            }
            _ => is_known = false,
        }
        Ok(TreeNodeRecursion::Continue)
    });
    (looked.is_ok() && is_known && !tables.is_empty()).then_some(tables)
}
