//! The execute command, from the request to a working run.
//!
//! 1. The request's figures are checked, its header enters the epoch, and the space that it may write to must be its
//!    own.
//! 2. An existing run of the same number takes the new listener; else a new run is entered. An execute that attaches
//!    only to an output of a run begins none.
//! 3. [`Admission`](crate::admission::Admission) reserves its memory: operators and slots. Runs without a listener give
//!    way first.
//! 4. On a fragment thread the fragment is decoded (which refuses operators that no device runs) and its context built:
//!    the thread that serves the sockets goes on meanwhile.
//! 5. Its partitions start on the fragment threads.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use cleave_fragment::command::peers::OUTPUTS_MAX;
use cleave_fragment::command::{
    CommandHeader, DeviceError, DeviceErrorCause, Execute, Outputs, Reply, RunKey,
};
use cleave_fragment::fed_filter::FedFilter;
use cleave_fragment::filter_history::HistoryUse;
use cleave_fragment::link::SlotSender;
use cleave_fragment::row_locks::RowLocks;
use cleave_fragment::run_tasks::RunTasks;
use cleave_fragment::trace::SpanKind;
use cleave_fragment::{
    BroadcastExec, ChangePagesExec, FragmentContext, FragmentCounters, GraceExec, IndexInput,
    InsertPagesExec, MorselList, MorselSource, PageSink, PeerRowInputs, PeerRowsExec,
    ReadAheadPages, RowPlaces, SpillSpace, Start, TableScanExec, WriteRowsExec, WriteRunExec,
    broadcast_inputs, build_id, decode_fragment, fragment_task_context, hand_down_filters,
    index_filtered_inputs, index_inputs, reserve_plan, stoppable_joins, streamed_input,
    with_partitions,
};
use cleave_media::Extent;
use cleave_store::{PageSource, ShippedPages, Snapshot};
use datafusion_execution::TaskContext;
use datafusion_execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion_execution::runtime_env::RuntimeEnvBuilder;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use tokio::task::JoinError;

use super::{
    Entry, PARTITIONS_MAX, RUNS_MAX, Runtime, SHIPPED_BYTES_MAX, SLOT_BYTES, SLOT_COUNT,
    check_page, refused, unknown_run,
};
use crate::admission::Admitted;
use crate::device_error::{of_decoding, of_engine, of_locks};
use crate::fragment_run::{FedInputs, FragmentRun};
use crate::home_pages::HomePages;
use crate::lane_tasks::LaneTasks;
use crate::memory_budget::MemoryBudget;
use crate::node::{HelpedMorsels, NodeEngine};
use crate::peer_rows::PeerSources;
use crate::peers::PeerLinks;
use crate::reservations::Reservations;
use crate::reserved_pages::ReservedPages;
use crate::row_division::RowDivision;
use crate::run_pages::{CpuTime, RunPages};
use crate::run_partitions::{RunWork, run_partitions};
use crate::run_space::RunSpace;

/// Lists of morsels and of index pages that take less than this are not charged: a run costs the device about as much
/// besides.
const LISTS_BYTES_FREE: usize = 64 << 10;
/// Morsels that a scan reads ahead: reads wait for media on other threads.
const READ_AHEAD: usize = 2;
/// Most cores that other engines of the node lend to one run: the partitions on them take of its memory.
const LENT_COUNT_MAX: usize = 8;
/// Morsels for each partition of its own that a run has before others help: a small one is over by then.
const MORSELS_TO_LEND: usize = 4;
/// The setting for the rows that operators gather in a batch, and its limit.
const BATCH_SIZE: &str = "datafusion.execution.batch_size";
const BATCH_SIZES: std::ops::RangeInclusive<u64> = 1..=65536;

impl Runtime {
    pub(super) async fn begin_run(
        &self,
        request: Execute,
        slots: SlotSender,
    ) -> Result<SchemaRef, DeviceError> {
        check_build(&request)?;
        check_figures(&request)?;
        if request.attaches {
            return self.attach_output(&request, &slots).await;
        }
        let request = Arc::new(request);
        let entry = self.enter(&request.header).await?;
        let space = match entry.as_ref() {
            Some(owner) => RunSpace::new(&request, &owner.lock_reservations(), slots.clone())?,
            None => RunSpace::new(&request, &Reservations::default(), slots.clone())?,
        };
        let memory_bytes = memory_of(&request);
        let (run, is_new) = self.enter_run(&request, memory_bytes, slots.clone(), space)?;
        if !is_new {
            drop(entry);
            let schema = run.accepted().await?;
            run.attach(slots, request.first_slot)?;
            return Ok(schema);
        }
        // Entered, so a claim finds it and ends it. Waiting for memory must not delay the claim.
        drop(entry);
        let mut entered = Entered { runtime: self, run: &run, done: false };
        self.reclaim_detached(memory_bytes, &run);
        let admitted = tokio::select! {
            biased;
            admitted = self.admission.admit(memory_bytes) => admitted,
            () = run.cancellation() => Err(run.cancelled_error()),
        };
        let accepted = match admitted {
            Ok(admitted) => self.start_run(&run, &request, slots, admitted).await,
            Err(error) => Err(error),
        };
        entered.finish(accepted)
    }

    /// Makes `slots` the listener of an output of the run that `request` attaches to.
    async fn attach_output(
        &self,
        request: &Execute,
        slots: &SlotSender,
    ) -> Result<SchemaRef, DeviceError> {
        let header = &request.header;
        drop(self.enter(header).await?);
        let run = self.run(header).ok_or_else(|| unknown_run(header))?;
        let schema = run.accepted().await?;
        run.attach_output(request, slots)?;
        Ok(schema)
    }

    /// The run of the request's number, and whether it is new.
    fn enter_run(
        &self,
        request: &Execute,
        memory_bytes: u64,
        slots: SlotSender,
        space: RunSpace,
    ) -> Result<(Arc<FragmentRun>, bool), DeviceError> {
        let mut runs = self.lock_runs();
        if let Some(run) = runs.get(&request.header.run_key()) {
            return Ok((Arc::clone(run), false));
        }
        if request.first_slot > 0 {
            let message = format!(
                "there is no run {} to go on with from slot {}; begin a new run",
                request.header.run, request.first_slot
            );
            return Err(DeviceError::new(DeviceErrorCause::UnknownRun, message));
        }
        if runs.len() >= RUNS_MAX {
            self.end_detached(&mut runs, None);
        }
        if runs.len() >= RUNS_MAX {
            return Err(refused(format!("{RUNS_MAX} runs wait to be released")));
        }
        self.check_unused(&runs, &request.reserved, None)?;
        let span = request.trace.begin(SpanKind::Server, "fragment", self.spans.get());
        let run = FragmentRun::new(request, memory_bytes, slots, space);
        let run = Arc::new(run.traced_by(span, self.options.device_id));
        runs.insert(request.header.run_key(), Arc::clone(&run));
        Ok((run, true))
    }

    /// Refuses `extents` that an unfinished run writes to, except for `own`.
    fn check_unused(
        &self,
        runs: &BTreeMap<RunKey, Arc<FragmentRun>>,
        extents: &[Extent],
        own: Option<&Arc<FragmentRun>>,
    ) -> Result<(), DeviceError> {
        let ending = self.lock_ending();
        let ending = ending.iter().filter_map(Weak::upgrade);
        let others = runs.values().map(Arc::clone).chain(ending);
        let mut others = others.filter(|run| own.is_none_or(|own| !Arc::ptr_eq(run, own)));
        match others.find_map(|run| Some((run.header().run, run.writes_to(extents)?))) {
            Some((other, extent)) => {
                let message = format!("{extent} are reserved for run {other}, which is not over");
                Err(refused(message))
            }
            None => Ok(()),
        }
    }

    /// Gives the header's run extension `number` of its space, on behalf of the owner `entry`.
    pub(super) fn extend_run(
        &self,
        entry: &Entry,
        header: &CommandHeader,
        number: u32,
        extents: &[Extent],
    ) -> Result<Reply, DeviceError> {
        let Some(owner) = entry.as_ref() else { return Err(unknown_run(header)) };
        // Held, so that no other run is begun with them meanwhile.
        let runs = self.lock_runs();
        let run = runs.get(&header.run_key()).ok_or_else(|| unknown_run(header))?;
        self.check_unused(&runs, extents, Some(run))?;
        run.space().extend(number, extents, &owner.lock_reservations())?;
        Ok(Reply::Done)
    }

    /// Ends runs whose listener is gone, if their memory is needed.
    fn reclaim_detached(&self, memory_bytes: u64, except: &Arc<FragmentRun>) {
        if self.admission.fits_now(memory_bytes) {
            return;
        }
        self.end_detached(&mut self.lock_runs(), Some(except));
    }

    fn end_detached(
        &self,
        runs: &mut BTreeMap<RunKey, Arc<FragmentRun>>,
        except: Option<&Arc<FragmentRun>>,
    ) {
        runs.retain(|_, run| {
            let is_excepted = except.is_some_and(|except| Arc::ptr_eq(run, except));
            let keep = is_excepted || !run.is_detached();
            if !keep {
                self.end_run(run);
            }
            keep
        });
    }

    async fn start_run(
        &self,
        run: &Arc<FragmentRun>,
        request: &Arc<Execute>,
        slots: SlotSender,
        mut admitted: Admitted,
    ) -> Result<SchemaRef, DeviceError> {
        run.was_admitted();
        let locks = request.locks.map(|locks| RowLocks::begin(locks, slots));
        let locks = locks.transpose().map_err(|why| of_locks(&why))?;
        if let Some(locks) = &locks {
            run.locks_rows(locks.clone());
        }
        let threads = &self.threads.fragments.handle;
        let (engine, peers) = (self.engine.clone(), Arc::clone(&self.peers));
        let limit_bytes = usize::try_from(request.memory_bytes).unwrap_or(usize::MAX);
        let budget = Arc::new(MemoryBudget::new(limit_bytes));
        let cpu = Arc::new(CpuTime::by(run.clock().clone()));
        let counters = Arc::new(FragmentCounters::default());
        let pool = Arc::clone(&budget) as Arc<dyn MemoryPool>;
        let link_to = |device| self.peers.link(request, device);
        let sources = PeerSources::new(request, self.options.device_id, &pool, link_to)?;
        let media = Arc::clone(&self.media);
        let pages = RunPages::new(media, Arc::clone(&cpu), self.cache());
        let written = run.space().is_given().then(|| {
            let (media, threads) = (Arc::clone(&self.media), threads.clone());
            ReservedPages::new(media, threads, Arc::clone(&cpu), Arc::clone(run.space()))
        });
        let lanes = LaneTasks::new(Arc::clone(&cpu));
        let preparing = {
            let (request, cores) = (Arc::clone(request), self.options.cores);
            let lanes = Arc::clone(&lanes);
            let (counters, budget) = (Arc::clone(&counters), Arc::clone(&budget));
            let written = written.clone();
            let (run, mode) = (Arc::clone(run), request.history);
            let history = Some(HistoryUse::new(&self.used_history(), mode));
            let engine = engine.clone();
            let peer_rows = sources.inputs();
            async move {
                let given = Given {
                    engine,
                    peers,
                    pages,
                    peer_rows,
                    written,
                    lanes,
                    locks,
                    history,
                    counters,
                    budget,
                };
                let mut prepared = prepare(&request, run.space(), given, cores)?;
                let plan = stoppable_joins(&prepared.plan, run.stop(), Start::WhenPolled);
                prepared.plan = plan.map_err(of_engine)?;
                Ok(prepared)
            }
        };
        let broke_off = |error: JoinError| {
            let message = format!("the fragment cannot be decoded: {error}");
            Err(DeviceError::new(DeviceErrorCause::Unsupported, message))
        };
        let Prepared {
            plan,
            pages,
            memory,
            schema,
            partitions,
            lane_count,
            task,
            streamed,
            helped,
            fed,
        } = threads.spawn(preparing).await.unwrap_or_else(broke_off)?;
        if let Some((input, morsels)) = streamed {
            run.streams(input, morsels, helped.as_ref());
        }
        let fed = Arc::new(FedInputs { filters: fed, task: Arc::clone(&task) });
        run.takes_filters(&fed);
        run.hold(admitted.split(ring_bytes(request)));
        let work = RunWork {
            run: Arc::clone(run),
            partitions,
            engine,
            helped,
            lanes,
            lane_count,
            plan,
            memory,
            task,
            fed,
            pages,
            sources,
            written,
            counters,
            budget,
            cpu,
            admitted,
        };
        // Detached on purpose: the run is ended through its cancellation, and awaited.
        let _detached = threads.spawn(run_partitions(work));
        Ok(schema)
    }
}

/// A fragment that can start.
struct Prepared {
    /// With the requested partitions.
    plan: Arc<dyn ExecutionPlan>,
    /// What it reads.
    pages: Arc<HomePages>,
    /// The memory for it, for shipped pages, and for the lists of its inputs.
    memory: [MemoryReservation; 3],
    schema: SchemaRef,
    partitions: u32,
    /// Lanes of its operators that spill.
    lane_count: u32,
    task: Arc<TaskContext>,
    /// The streamed input, of which the host may take morsels back.
    streamed: Option<(u32, Arc<MorselList>)>,
    /// The same, where lent cores may take from it.
    helped: Option<Arc<HelpedMorsels>>,
    /// The scans that take filters while the run goes on, by input.
    fed: BTreeMap<u32, Arc<FedFilter>>,
}

/// What a run gives its fragment.
struct Given {
    engine: NodeEngine,
    peers: Arc<PeerLinks>,
    pages: RunPages,
    peer_rows: PeerRowInputs,
    written: Option<ReservedPages>,
    lanes: Arc<LaneTasks>,
    locks: Option<RowLocks>,
    history: Option<HistoryUse>,
    counters: Arc<FragmentCounters>,
    budget: Arc<MemoryBudget>,
}

/// Decodes the fragment of `request` and builds its context on this device.
fn prepare(
    request: &Execute,
    space: &RunSpace,
    given: Given,
    cores: u32,
) -> Result<Prepared, DeviceError> {
    let Given { engine, peers, pages, peer_rows, written, lanes, locks, history, counters, budget } =
        given;
    let pages = Arc::new(HomePages::new(pages, (&engine, &peers), request)?);
    let inputs = request.inputs.iter().map(|(number, morsels)| (*number, morsels.as_slice()));
    let index_filters = index_filtered_inputs(&request.index_filters, inputs.clone())
        .map_err(|error| of_decoding(&error))?;
    let lists = morsel_lists(request)?;
    let may_be_helped = request.lends
        && request.partitions == 0
        && !space.is_given()
        && locks.is_none()
        && !engine.is_alone();
    let helped: BTreeMap<u32, Arc<HelpedMorsels>> = match may_be_helped {
        true => lists.iter().map(|(number, list)| (*number, HelpedMorsels::new(list))).collect(),
        false => BTreeMap::new(),
    };
    let order = inputs.map(|(number, morsels)| {
        let filtered = index_filters.get(&number).map(Arc::clone);
        (morsels, filtered, lists.get(&number).map(Arc::clone))
    });
    let memory = Arc::clone(&budget) as Arc<dyn MemoryPool>;
    let lists_bytes = request.held_bytes() + space.held_bytes() + pages.held_bytes();
    let lists_memory = reserve_lists(lists_bytes, &memory)?;
    let (shipped, shipped_memory) = shipped_pages(request, &memory)?;
    let read = shipped.over(Arc::clone(&pages) as Arc<dyn PageSource>);
    let broadcasts =
        broadcast_inputs(&request.broadcasts, &memory).map_err(|error| of_decoding(&error))?;
    let context = FragmentContext {
        pages: Arc::new(ReadAheadPages::new(read, order, &memory)),
        snapshot: Snapshot { commit: request.snapshot },
        inputs: lists
            .iter()
            .map(|(number, list)| match helped.get(number) {
                Some(helped) => (*number, Arc::clone(helped) as Arc<dyn MorselSource>),
                None => (*number, Arc::clone(list) as Arc<dyn MorselSource>),
            })
            .collect(),
        index_filters,
        indexes: index_inputs(&request.indexes).map_err(|error| of_decoding(&error))?,
        broadcasts,
        peer_rows,
        sink: written.clone().map(|written| Arc::new(written) as Arc<dyn PageSink>),
        spill: written.map(|written| Arc::new(written) as Arc<dyn SpillSpace>),
        tasks: Some(lanes as Arc<dyn RunTasks>),
        locks,
        places: RowPlaces::default(),
        read_ahead: READ_AHEAD,
        history,
        counters,
    };
    // DataFusion spills to files, a device to the blocks that the host has reserved for the run.
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(memory)
        .with_disk_manager_builder(
            DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
        )
        .build_arc()
        .map_err(of_engine)?;
    let context = Arc::new(context);
    let task = fragment_task_context(Arc::clone(&context), environment, &request.settings)
        .map_err(|error| of_decoding(&error))?;
    let plan_memory =
        reserve_plan(&request.fragment, &task).map_err(|error| of_decoding(&error))?;
    let plan = decode_fragment(&request.fragment, &task).map_err(|error| of_decoding(&error))?;
    if !request.homes.is_empty() && has_changes(&*plan) {
        return Err(refused("rows are changed where their pages lie".to_owned()));
    }
    BroadcastExec::check(&plan, &context).map_err(|error| of_decoding(&error))?;
    PeerRowsExec::check(&plan, &context).map_err(|error| of_decoding(&error))?;
    let partitions = plan.output_partitioning().partition_count();
    if partitions != 1 {
        return Err(refused(format!("the fragment has {partitions} partitions and not one")));
    }
    let schema = plan.schema();
    if request.outputs != Outputs::One {
        if is_written(&*plan) {
            return Err(refused("what a fragment has written only its host hears".to_owned()));
        }
        RowDivision::of(&request.outputs, &schema)?;
    }
    let streamed = streamed_scan(&plan).map(|scan| scan.scan().input);
    let streamed = streamed.and_then(|input| Some((input, Arc::clone(lists.get(&input)?))));
    // Operators that spill have one partition, and run in lanes below it.
    // An update fragment needs the rows of one page in a row, which a divided join does not keep.
    let may_spill = space.is_given() && !has_changes(&*plan);
    let spills = may_spill && GraceExec::helps(&plan);
    let (plan, partitions, helped) = if spills {
        (plan, 1, None)
    } else {
        let partitions = partitions_of(request, cores, &plan);
        let helped = streamed.as_ref().and_then(|(input, _)| helped.get(input));
        let helpers = helped.map(|_| helpers_of(&engine, partitions, &plan, request));
        let helpers = helpers.unwrap_or_default();
        let all = partitions.saturating_add(u32::try_from(helpers.len()).unwrap_or(u32::MAX));
        let copied = with_partitions(Arc::clone(&plan), all).map_err(of_engine)?;
        // An operator that merges its inputs has one partition, whatever lies below it.
        let can_copy = copied.output_partitioning().partition_count() == all as usize;
        let helped = helped.filter(|_| can_copy && !helpers.is_empty()).map(Arc::clone);
        if let Some(helped) = &helped {
            helped.borrow_from(&helpers, &engine, partitions as usize);
        }
        if can_copy { (copied, partitions, helped) } else { (plan, 1, None) }
    };
    let mut plan = hand_down_filters(plan, task.session_config().options()).map_err(of_engine)?;
    let mut fed = BTreeMap::new();
    for input in &request.fed {
        let (changed, filter) = FedFilter::attach(plan, *input).map_err(of_engine)?;
        plan = changed;
        fed.extend(filter.map(|filter| (*input, filter)));
    }
    let mut lane_count = 1;
    if spills {
        // What the host asks for is about partitions of the whole fragment.
        lane_count = GraceExec::lane_count(&plan, &task, cores as usize);
        plan = GraceExec::wherever_it_helps(plan, &task, lane_count).map_err(of_engine)?;
    }
    let memory = [plan_memory, shipped_memory, lists_memory];
    let lane_count = u32::try_from(lane_count).unwrap_or(1);
    Ok(Prepared {
        plan,
        pages,
        memory,
        schema,
        partitions,
        lane_count,
        task,
        streamed,
        helped,
        fed,
    })
}

/// The engines that may lend cores to a run of `plan` with `own` partitions, as far as it is long enough and correct
/// with more of them.
fn helpers_of(
    engine: &NodeEngine,
    own: u32,
    plan: &Arc<dyn ExecutionPlan>,
    request: &Execute,
) -> Vec<usize> {
    let Some(scan) = streamed_scan(plan).map(TableScanExec::scan) else { return Vec::new() };
    let streamed = request.inputs.iter().find(|(number, _)| *number == scan.input);
    let morsel_count = streamed.map_or(0, |(_, morsels)| morsels.len());
    let is_long = morsel_count >= MORSELS_TO_LEND.saturating_mul(own as usize);
    // Each partition takes as many as it reads ahead: further ones would find none.
    let count = (morsel_count / READ_AHEAD).saturating_sub(own as usize).min(LENT_COUNT_MAX);
    // A scan that stops at a number of rows is better off with few partitions.
    match is_long && scan.fetch.is_none() && !sees_all_rows(plan) {
        true => engine.helpers(count),
        false => Vec::new(),
    }
}

/// Whether the rows of `plan` describe what it has written.
fn is_written(plan: &dyn ExecutionPlan) -> bool {
    let writes = plan.is::<WriteRunExec>() || plan.is::<WriteRowsExec>();
    writes || plan.is::<InsertPagesExec>() || has_changes(plan)
}

/// Whether a part of `plan` changes rows.
fn has_changes(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<ChangePagesExec>() || plan.children().into_iter().any(|input| has_changes(&**input))
}

/// Reserves in `memory` the `bytes` of the lists of a run's inputs.
fn reserve_lists(
    bytes: usize,
    memory: &Arc<dyn MemoryPool>,
) -> Result<MemoryReservation, DeviceError> {
    let reserved = MemoryConsumer::new("the lists of pages to read").register(memory);
    if bytes > LISTS_BYTES_FREE {
        reserved.try_grow(bytes).map_err(of_engine)?;
    }
    Ok(reserved)
}

/// The shipped pages, and the memory for them.
fn shipped_pages(
    request: &Execute,
    memory: &Arc<dyn MemoryPool>,
) -> Result<(Arc<ShippedPages>, MemoryReservation), DeviceError> {
    let pages = request.shipped.iter().map(|page| (page.start, page.payload.bytes.clone()));
    let shipped = ShippedPages::new(pages).map_err(|error| refused(error.to_string()))?;
    let reserved = MemoryConsumer::new("pages of the shipped delta").register(memory);
    reserved.try_grow(shipped.byte_count()).map_err(of_engine)?;
    Ok((shipped, reserved))
}

/// A run that was entered and not yet accepted; it is removed if its request is dropped.
struct Entered<'a> {
    runtime: &'a Runtime,
    run: &'a Arc<FragmentRun>,
    done: bool,
}

impl Entered<'_> {
    fn finish(
        &mut self,
        accepted: Result<SchemaRef, DeviceError>,
    ) -> Result<SchemaRef, DeviceError> {
        self.done = true;
        if accepted.is_err() {
            self.runtime.forget_run(self.run);
        }
        self.run.accept(accepted.clone());
        accepted
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if !self.done {
            let error = self.run.cancelled_error();
            drop(self.finish(Err(error)));
        }
    }
}

/// Fragments travel between equal builds only (rule 2).
fn check_build(request: &Execute) -> Result<(), DeviceError> {
    let ours = build_id();
    if request.build == ours {
        return Ok(());
    }
    let theirs = &request.build;
    let message = format!("another build ({theirs}) wrote the fragment than this one ({ours})");
    Err(DeviceError::new(DeviceErrorCause::Unsupported, message))
}

fn check_figures(request: &Execute) -> Result<(), DeviceError> {
    let outside = |what: &str, value: u64, min: u64, max: u64| {
        refused(format!("{what} is {value}, and must lie between {min} and {max}"))
    };
    if request.header.run == 0 {
        return Err(refused("a run needs a number above 0".to_owned()));
    }
    if !SLOT_COUNT.contains(&request.slot_count) {
        let (min, max) = (u64::from(*SLOT_COUNT.start()), u64::from(*SLOT_COUNT.end()));
        return Err(outside("slot_count", u64::from(request.slot_count), min, max));
    }
    if !SLOT_BYTES.contains(&request.slot_bytes) {
        let (min, max) = (u64::from(*SLOT_BYTES.start()), u64::from(*SLOT_BYTES.end()));
        return Err(outside("slot_bytes", u64::from(request.slot_bytes), min, max));
    }
    if request.partitions > PARTITIONS_MAX {
        return Err(outside(
            "partitions",
            u64::from(request.partitions),
            0,
            u64::from(PARTITIONS_MAX),
        ));
    }
    let outputs = request.outputs.count();
    if !(1..=OUTPUTS_MAX).contains(&outputs) {
        return Err(outside("outputs", u64::from(outputs), 1, u64::from(OUTPUTS_MAX)));
    }
    if let Outputs::ByHash { columns, .. } = &request.outputs
        && columns.is_empty()
    {
        return Err(refused("rows are to be divided by the hash of no column".to_owned()));
    }
    for (_, morsels) in &request.inputs {
        for page in morsels.iter().flat_map(|morsel| &morsel.pages) {
            std::iter::once(&page.page).chain(&page.overflow).try_for_each(check_page)?;
        }
    }
    request.indexes.iter().flat_map(IndexInput::pages).try_for_each(check_page)?;
    let shipped_bytes = request.shipped.iter().map(|page| page.payload.bytes.len() as u64).sum();
    if shipped_bytes > SHIPPED_BYTES_MAX {
        return Err(outside("bytes of the shipped delta", shipped_bytes, 0, SHIPPED_BYTES_MAX));
    }
    for (name, value) in &request.settings {
        let is_size = value.parse::<u64>().is_ok_and(|rows| BATCH_SIZES.contains(&rows));
        if name == BATCH_SIZE && !is_size {
            let (min, max) = (*BATCH_SIZES.start(), *BATCH_SIZES.end());
            let text = format!("{name} is `{value}`, and must lie between {min} and {max}");
            return Err(refused(text));
        }
    }
    Ok(())
}

/// The admitted memory of a run: its operators' bytes and its ring's.
fn memory_of(request: &Execute) -> u64 {
    request.memory_bytes.saturating_add(ring_bytes(request))
}

fn ring_bytes(request: &Execute) -> u64 {
    u64::from(request.slot_count) * u64::from(request.slot_bytes)
}

fn morsel_lists(request: &Execute) -> Result<BTreeMap<u32, Arc<MorselList>>, DeviceError> {
    let mut lists = BTreeMap::new();
    for (number, morsels) in &request.inputs {
        if lists.insert(*number, MorselList::new(morsels.clone())).is_some() {
            return Err(refused(format!("morsel input {number} is given twice")));
        }
    }
    Ok(lists)
}

/// Partitions to run: as many as requested, but not more than tablets that rows are inserted into, nor than morsels
/// where a scan streams, and one for a pipeline that must see all rows.
fn partitions_of(request: &Execute, cores: u32, plan: &Arc<dyn ExecutionPlan>) -> u32 {
    if sees_all_rows(plan) {
        return 1;
    }
    let wanted = if request.partitions == 0 { cores.max(1) } else { request.partitions };
    let streamed = streamed_scan(plan).map(|scan| scan.scan().input);
    let inputs = request.inputs.iter().filter(|(number, _)| streamed.is_none_or(|s| s == *number));
    let morsels = inputs.map(|(_, morsels)| morsels.len()).max().unwrap_or(0);
    // How much comes of other devices is not known.
    let shares = if streamed_leaf(plan).is::<PeerRowsExec>() { usize::MAX } else { morsels };
    let most = writers_max(plan).map_or(shares, |writers| shares.min(writers));
    wanted.min(u32::try_from(most).unwrap_or(u32::MAX)).clamp(1, PARTITIONS_MAX)
}

/// How many partitions may insert rows; None: `plan` does not.
fn writers_max(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let inserting = plan.downcast_ref::<InsertPagesExec>()?;
    Some(inserting.inserted().partitions_max())
}

/// Whether the plan is correct only with one partition: an aggregate that is not partial counts all rows, a run of an
/// index is written in the order of all keys, and rows that are inserted into one tablet are numbered. A join's
/// collected side is read by one partition anyway.
fn sees_all_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_final = plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        !matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce)
    });
    let is_in_order = plan.is::<WriteRunExec>() || writers_max(plan) == Some(1);
    is_final || is_in_order || streamed_input(plan.as_ref()).is_some_and(sees_all_rows)
}

/// The scan whose morsels the partitions of `plan` share.
fn streamed_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&TableScanExec> {
    streamed_leaf(plan).downcast_ref()
}

/// The leaf whose rows the partitions of `plan` share.
fn streamed_leaf(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    streamed_input(plan.as_ref()).map_or(plan, streamed_leaf)
}
