//! A query that is one fragment as a whole, over one device, and gets a root that writes pages or locks rows.
//!
//! 1. [`WholeFragment::plan`] plans the query with a cut at its root.
//! 2. [`WholeFragment::with_root`] puts another root over its rows: [`changing`](super::changing) or
//!    [`inserting`](super::inserting) them, or [`locking`](super::locking) them.
//! 3. [`WholeFragment::on_device`] sends it, with space to write to; [`WholeFragment::request`] is what is sent.
//!
//! Where the rows of a query may stay where they are made, there may be [one on each device](OnEachDevice): nothing
//! lies above the cut, so that the rows of the query are those of all of them. What needs the rows of several devices
//! together (a sort, a final aggregate, a limit) never lies at such a cut. What joins collect may be sent to them.
//!
//! Invariant: such a fragment is never shared between both sides. One that changes rows does not spill; others spill
//! into the space that they write to.

use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::{Settings, Split, Stack, Transfer};
use cleave_engine::device::shared_locks::LockingJob;
use cleave_engine::device::{Claim, Device};
use cleave_engine::write::change_pages::{Reported, on_device};
use cleave_fragment::command::Execute;
use cleave_fragment::fragment::FragmentContext;
use cleave_fragment::link::AttachMode;
use cleave_fragment::{ChangePagesExec, Morsel};
use cleave_plan::profile::Profile;
use cleave_plan::split::{FragmentPlan, PlannedBroadcast, When};
use cleave_store::ColumnRef;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;

use super::changing::{is_target, keeps_page_order};
use super::figures::FragmentFigures;
use super::fragment_exec::{FragmentExec, FragmentPart, KEY_FILTER_SHARE};
use super::peers::PeerGrants;
use super::prepared_fragment::PreparedFragment;
use super::sent_rows::SentRows;
use super::shown_run::ShownRun;
use crate::planner;
use crate::query_engine::QueryEngine;
use crate::select::{PlannedInput, PlannedQuery, QueryRequest, StatementInput, plan_query};

/// See the [module](self).
pub(super) struct WholeFragment {
    planned: Arc<PlannedQuery>,
    fragment: FragmentPlan,
    part: FragmentPart,
    /// The share of the query's rows that it is expected to make.
    share: f64,
    is_on_device: bool,
}

/// The fragments of one query, one on each device that has rows of what streams: their rows are those of the query.
pub(super) struct OnEachDevice {
    first: WholeFragment,
    others: Vec<WholeFragment>,
}

/// `settings` that put a cut at the root of a plan.
pub(crate) fn at_root(settings: &Settings) -> Settings {
    Settings {
        split: Split::Ndp,
        stack: Stack::Ndp,
        ndp: true,
        transfer: Transfer::Auto,
        stealing: When::Never,
        late_materialisation: When::Never,
        // Rows change, and are locked, where their pages lie.
        compute_on: String::new(),
        ..settings.clone()
    }
}

/// Settings that put a cut at the root of a plan whose rows may be made by several devices of `database`, each for
/// itself, the more likely ones first.
pub(crate) fn at_roots(database: &QueryEngine, settings: &Settings) -> Vec<Settings> {
    let whole = Settings { compute_on: settings.compute_on.clone(), ..at_root(settings) };
    let has_several = database.devices().len() > 1;
    // The host makes what joins collect, and sends it.
    let over_joins = has_several.then(|| Settings { split: Split::ALL_JOINS, ..whole.clone() });
    std::iter::once(whole).chain(over_joins).collect()
}

impl OnEachDevice {
    /// Plans the query `asked`. None: devices do not make its rows, or only so many of them are wanted. What is wrong
    /// with the statement is found out by the query that runs then instead.
    pub(super) async fn plan(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Option<Self> {
        for settings in at_roots(database, settings) {
            let planned = plan_query(database, &settings, asked).await.ok();
            let each = planned.and_then(|planned| Self::of_planned(planned, true));
            if each.is_some() {
                return each;
            }
        }
        None
    }

    /// As [`Self::plan`], of a query that is planned under one of the settings of [`at_roots`].
    pub(super) fn of_planned(planned: PlannedQuery, is_on_device: bool) -> Option<Self> {
        let node = planned.cuts.plan.downcast_ref::<FragmentExec>()?;
        if node.fragment.fetch.is_some() || !planned.is_alone() {
            return None;
        }
        let (fragment, parts) = (node.fragment.clone(), Arc::clone(&node.parts));
        let planned = Arc::new(planned);
        let rows = |part: &FragmentPart| {
            part.inputs.last().map_or(0.0, |(_, streamed)| streamed.row_estimate)
        };
        let all_rows: f64 = parts.iter().map(rows).sum();
        let mut each = parts.iter().map(|part| WholeFragment {
            planned: Arc::clone(&planned),
            fragment: fragment.clone(),
            part: part.clone(),
            share: match all_rows > 0.0 {
                true => rows(part) / all_rows,
                false => 1.0 / parts.len() as f64,
            },
            is_on_device,
        });
        Some(Self { first: each.next()?, others: each.collect() })
    }

    /// One of them.
    pub(super) fn first(&self) -> &WholeFragment {
        &self.first
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &WholeFragment> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All of them with the root of `plan`, as EXPLAIN shows them.
    pub(super) fn with_root(&self, plan: Arc<dyn ExecutionPlan>) -> FragmentExec {
        self.first.with_root_over(plan, self.all().map(|one| one.part.clone()).collect())
    }
}

impl WholeFragment {
    /// Plans the query `asked` as one fragment. None: it is not one, or only so many of its rows are wanted.
    ///
    /// # Errors
    /// None of the statement's own: these come from the query that runs then instead.
    pub(super) async fn plan(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Result<Option<Self>> {
        let is_on_device = settings.split_in_force() != Split::Host;
        let planned = plan_query(database, &at_root(settings), asked).await;
        let each = planned.ok().and_then(|planned| OnEachDevice::of_planned(planned, is_on_device));
        let alone = each.filter(|each| each.others.is_empty());
        Ok(alone.map(|each| each.first))
    }

    /// The same of a query for the rows of a target, which stream through it: those of a page come one after the other.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(super) async fn over_target(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Result<Option<Self>> {
        let whole = Self::plan(database, settings, asked).await?;
        Ok(whole.filter(|Self { fragment, .. }| {
            let streamed = fragment.scans.last();
            streamed.is_some_and(|streamed| is_target(&streamed.scan))
                && keeps_page_order(&fragment.plan)
        }))
    }

    /// The same, whose only scan reads just the rows `vids` of the tablet at `tablet`. None: they are not all there.
    pub(super) fn of_rows(mut self, tablet: usize, vids: Vec<u64>) -> Option<Self> {
        let (_, input) = self.part.inputs.last_mut()?;
        let row_estimate = vids.len() as f64;
        let restricted = Arc::new(input.input.of_rows(tablet, vids)?);
        *input = StatementInput { input: restricted, row_estimate };
        Some(self)
    }

    /// The same with rows that its leaves may name.
    pub(super) fn with_broadcast(mut self, broadcast: PlannedBroadcast) -> Self {
        self.fragment.broadcasts.push(broadcast);
        self
    }

    /// The query.
    pub(super) fn planned(&self) -> &PlannedQuery {
        &self.planned
    }

    /// Rows that it is expected to make.
    pub(super) fn row_estimate(&self) -> f64 {
        self.planned.row_estimate() * self.share
    }

    /// The fragment without another root.
    pub(super) fn fragment(&self) -> &FragmentPlan {
        &self.fragment
    }

    /// What it reads.
    pub(super) fn part(&self) -> &FragmentPart {
        &self.part
    }

    /// The device of that.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.part.device
    }

    /// Whether it may run on the device.
    pub(super) fn is_on_device(&self) -> bool {
        self.is_on_device
    }

    /// The figures of the device, which are assumed where they are not known; one in this process has no link.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub(super) async fn profile(&self) -> Result<Profile> {
        let profile = self.planned.context.database().known_profile(self.device().id()).await?;
        let mut profile = profile.map_or_else(Profile::assumed, |known| Profile::clone(&known));
        profile.link.is_embedded |= self.device().mode() == AttachMode::Embedded;
        Ok(profile)
    }

    /// The share of the bytes of `input`, a table, that is in the memory of the side that reads its pages: the buffer
    /// pool, which an embedded device shares. Other devices hold none.
    pub(super) fn held_share(&self, input: &PlannedInput) -> f64 {
        if self.device().mode() != AttachMode::Embedded {
            return 0.0;
        }
        let schema = &input.table.schema;
        let columns: Vec<ColumnRef> =
            schema.columns.iter().map(|column| ColumnRef::User(column.id)).collect();
        let pool = self.planned.context.database().buffer_pool();
        let (mut held, mut all) = (0.0, 0.0);
        for (device, entry) in input.entries() {
            let bytes = entry.byte_count() as f64;
            let count = pool.held_count(device, &entry.page, &columns) as f64;
            held += bytes * count / columns.len().max(1) as f64;
            all += bytes;
        }
        if all > 0.0 { held / all } else { 1.0 }
    }

    /// The fragment with the root of `plan`.
    pub(super) fn with_root(&self, plan: Arc<dyn ExecutionPlan>) -> FragmentExec {
        self.with_root_over(plan, vec![self.part.clone()])
    }

    fn with_root_over(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        parts: Vec<FragmentPart>,
    ) -> FragmentExec {
        let fragment = FragmentPlan {
            plan,
            sharing: None,
            recall: None,
            revisit: None,
            ..self.fragment.clone()
        };
        FragmentExec::new(0, fragment, parts, Arc::clone(&self.planned.context))
    }

    /// `node` as it is sent.
    ///
    /// # Errors
    /// Those of the rows that the host makes for it.
    pub(super) async fn prepared(
        node: &FragmentExec,
        task: &Arc<TaskContext>,
    ) -> Result<PreparedFragment> {
        let pass = node.pass(0);
        let rows = node.rows_to_send(&pass, task).await?;
        Self::prepared_with(node, rows)
    }

    /// `node` as it is sent with `rows`, which the host has made for it.
    ///
    /// # Errors
    /// Those of encoding it.
    pub(super) fn prepared_with(
        node: &FragmentExec,
        rows: Arc<SentRows>,
    ) -> Result<PreparedFragment> {
        let bytes_max = node.context.settings().device_memory_bytes / KEY_FILTER_SHARE;
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Ok(PreparedFragment::new(&node.fragment, rows, bytes_max)?)
    }

    /// Runs `node` on the device, where it writes into space of `claim`, and locks rows for a job, if there is one.
    /// `blocks` says how many blocks it will fill, from the morsels of what streams. None: it does not run there.
    ///
    /// # Errors
    /// Those of the link and of the device; those of locks.
    pub(super) async fn on_device(
        &self,
        (node, prepared): (&FragmentExec, &PreparedFragment),
        (claim, job): (&Arc<Claim>, Option<&Arc<LockingJob>>),
        blocks: impl FnOnce(&[Morsel]) -> u64,
        task: &TaskContext,
    ) -> Result<Option<Reported>> {
        if !self.is_on_device || prepared.rows.sent.is_err() {
            return Ok(None);
        }
        let (request, _grants, streamed) = self.request(node, prepared, task).await?;
        let (device, plan) = (self.device(), node.device_plan());
        let returns = plan.downcast_ref::<ChangePagesExec>();
        let returns = returns.is_some_and(|changing| changing.changed().returned.is_some());
        let rows = (plan.schema(), returns.then(|| self.query_memory_max()));
        let blocks = blocks(&streamed);
        let mut shown = ShownRun::begin(node, &self.part, &request, prepared);
        let by = (job, Some(shown.witness()));
        let running = Box::pin(on_device(device, claim, request, blocks, rows, by));
        let reported = shown.beside(running).await?;
        shown.end(reported.as_ref().map(|reported| reported.rows.as_slice()));
        Ok(reported)
    }

    /// The figures of its runs on the device since they were asked for last, and of those of its query.
    pub(super) fn take_figures(&self) -> Vec<FragmentFigures> {
        self.planned.context.figures().take()
    }

    /// The most bytes of rows that the host takes.
    pub(super) fn query_memory_max(&self) -> u64 {
        self.planned.context.database().query_memory_max() as u64
    }

    /// The command that runs `node`, what other devices let it have, and the morsels of what streams.
    ///
    /// # Errors
    /// Those of a device that cannot be asked what it is.
    pub(super) async fn request(
        &self,
        node: &FragmentExec,
        prepared: &PreparedFragment,
        task: &TaskContext,
    ) -> Result<(Execute, PeerGrants, Vec<Morsel>)> {
        let inputs = prepared.inputs(&self.part)?;
        let morsels: Vec<Vec<Morsel>> =
            inputs.iter().map(|(_, input)| input.input.morsels()).collect();
        let streamed = morsels.last().cloned().unwrap_or_default();
        let device = self.device();
        let mut request = node.request(prepared, device, (&inputs, morsels), task).await?;
        let grants = PeerGrants::give(&node.context, device, &inputs, &mut request).await;
        Ok((request, grants, streamed))
    }

    /// What it runs in on the host.
    ///
    /// # Errors
    /// Those of making it.
    pub(super) fn task(&self) -> Result<TaskContext> {
        let state: &SessionState = self.planned.state();
        let context: Arc<FragmentContext> = self.planned.context.host_fragment_context()?;
        let config = state.config().clone().with_extension(context);
        let config = self.planned.context.with_batches_of_long_values(config);
        Ok(planner::task_of(state, config))
    }
}
