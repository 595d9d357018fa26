//! How a run of a fragment begins: a part of the fragment's input in, a run on its device or on the host out.
//!
//! 1. [`FragmentExec::start`] rules out pages once more, by the filters that are known by then, and looks again on
//!    which side the part should run.
//! 2. [`FragmentExec::request`] is the command that the device gets.
//! 3. Where both sides may work on the part, the host gets ready to take morsels of it.
//! 4. Of a mirror, the run begins on a current copy, and on [another one](FragmentExec::begin) where that copy fails,
//!    now or later, or [falls silent](Device::falls_silent). What an [earlier](Earlier) run has given out is left out
//!    then.
//! 5. A device that refuses, or the last copy, leaves the part to [the host](FragmentExec::run_on_host).
//!
//! Invariant: a run of a part begins at most once on each copy, so that it ends.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::settings::Split;
use cleave_engine::device::{Busy, Device};
use cleave_fragment::command::{CommandHeader, Execute, Outputs};
use cleave_fragment::fragment::travelling_settings;
use cleave_fragment::link::{AttachMode, Link, LinkError};
use cleave_fragment::progress::Progress;
use cleave_fragment::{Morsel, MorselPage, MorselSource, TableScanExec, build_id};
use cleave_media::Stopwatch;
use cleave_plan::cost::Sharing;
use cleave_plan::split::When;
use cleave_plan::split::revisit::Side;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use futures::future::{Either, select};

use super::feeding::{Feeding, OpenFilters};
use super::figures::FragmentFigures;
use super::fragment_exec::{
    FragmentExec, FragmentPart, Run, external, fault, is_of_a_copy, never_prepared,
};
use super::given_rows::GivenRows;
use super::held_rows::HeldRows;
use super::homes::homes;
use super::memory_share;
use super::ongoing_run::OngoingRun;
use super::peers::PeerGrants;
use super::prepared_fragment::PreparedFragment;
use super::shared_run::{Failure, Help, SharedRun};
use super::spill_space::DeviceRun;
use super::stealing::Stealing;
use super::stealing::across_nodes::{self, LentRun};
use crate::select::StatementInput;

/// Where a run takes place.
pub(super) struct RunsAt {
    /// The device, or a copy of a mirror.
    pub(super) device: Arc<Device>,
    pub(super) link: Arc<dyn Link>,
    _busy: Busy,
    /// Copies on which earlier runs of the same part failed.
    failed: BTreeSet<DeviceId>,
    /// Counts the part's morsels, once for all of its runs.
    progress: Progress,
}

/// What became of runs of a part that were begun before.
#[derive(Debug)]
pub(super) struct Earlier {
    /// Copies of the part's mirror on which one failed.
    failed: BTreeSet<DeviceId>,
    /// The rows that they have given out.
    given: Option<GivenRows>,
    /// What they have counted of the part's morsels.
    progress: Progress,
}

/// Why a run did not begin on a device.
struct Refusal {
    why: String,
    /// Another copy of the mirror may run it.
    is_of_one_copy: bool,
}

impl RunsAt {
    /// The next rows of `run`, which is of `part`. A copy that has fallen silent has lost it, where another copy may
    /// run it.
    pub(super) async fn next(
        &self,
        run: &mut SharedRun,
        part: &FragmentPart,
    ) -> std::result::Result<Option<RecordBatch>, Failure> {
        let is_watched =
            part.device.is_mirror() && run.waits_for_device() && run.may_be_made_again();
        if !is_watched {
            return run.next().await;
        }
        let mut next = Box::pin(run.next());
        loop {
            match select(&mut next, pin!(self.device.falls_silent())).await {
                Either::Left((next, _)) => return next,
                Either::Right(_) => {
                    let mut copies = part.device.readers().into_iter();
                    let has_failed =
                        |id: DeviceId| id == self.device.id() || self.failed.contains(&id);
                    if copies.any(|copy| !has_failed(copy.id())) {
                        break;
                    }
                }
            }
        }
        drop(next);
        // It may have had its end meanwhile: what the host has taken needs no copy in particular.
        if !run.waits_for_device() {
            return Box::pin(run.next()).await;
        }
        let address = self.device.entry().address();
        Err(Failure::Device(LinkError::Lost { address, detail: "it has fallen silent".to_owned() }))
    }

    /// What is to be known of this run, which has failed and has `given` out these rows, and of those before it.
    pub(super) fn failed(&mut self, given: Option<GivenRows>) -> Earlier {
        let mut failed = std::mem::take(&mut self.failed);
        failed.insert(self.device.id());
        Earlier { failed, given, progress: self.progress.clone() }
    }
}

impl Earlier {
    /// There were none, of a statement whose `progress` this is.
    fn none(progress: &Progress) -> Self {
        Self { failed: BTreeSet::new(), given: None, progress: progress.again() }
    }
}

impl FragmentExec {
    /// Starts the part at `place`.
    pub(super) async fn start(
        &self,
        prepared: &Arc<PreparedFragment>,
        part: &FragmentPart,
        place: usize,
        task: &Arc<TaskContext>,
    ) -> Result<Run> {
        // Rows that are too many to be sent are joined once, with all that streams.
        let whole = match (&prepared.rows.sent, place) {
            (Ok(_), _) => None,
            (Err(_), 0) => Some(self.whole()?),
            (Err(_), _) => return Ok(Run::Over),
        };
        let part = whole.as_ref().unwrap_or(part);
        let inputs = prepared.inputs(part)?;
        let pages_left: usize = inputs.iter().map(|(_, input)| input.input.pages_left()).sum();
        if pages_left == 0 && place > 0 {
            // One part is enough for the result over no rows.
            return Ok(Run::Over);
        }
        let device = &part.device;
        let revisit = self.fragment.revisit.as_ref();
        let turn = revisit.map(|revisit| revisit.turn(&prepared.facts(part, &inputs)));
        let on_device = turn.as_ref().map_or(part.on_device, |turn| turn.side == Side::Device);
        let turned = turn.and_then(|turn| turn.why);
        let at = (device.name().to_owned(), device.mode());
        let sizes = (prepared.bytes.len(), self.fragment.slot_bytes);
        let figures = FragmentFigures {
            is_planned_here: !part.on_device,
            refused: match &prepared.rows.sent {
                Err(reason) => Some(reason.clone()),
                Ok(_) if turned.is_some() => None,
                Ok(_) => (!on_device).then(|| "as the cuts have it".to_owned()),
            },
            turned,
            pages: (inputs.iter().map(|(_, input)| input.input.page_count).sum(), pages_left),
            broadcast: (!self.fragment.broadcasts.is_empty())
                .then(|| (prepared.rows.row_count(), prepared.rows.byte_count)),
            key_filters: prepared.key_filters,
            ..FragmentFigures::of_new_run(self.number, at, self.fragment.tables(), sizes)
        };
        let mut earlier = Earlier::none(&self.context.settings().client.progress);
        if !on_device {
            return self.run_on_host(prepared, part, task, figures, earlier);
        }
        let mut figures = figures;
        let begun = self.begin(prepared, (part, inputs), task, &mut figures, &mut earlier);
        match Box::pin(begun).await? {
            Some((at, run)) => Ok(Run::OnDevice { at, run, figures }),
            None => self.run_on_host(prepared, part, task, figures, earlier),
        }
    }

    /// Begins the run of `part`, of which `inputs` are left, on its device; of a mirror on a copy on which no
    /// `earlier` one failed. None: the host is to run it, for the reason that the figures say.
    ///
    /// # Errors
    /// Those of the statement, and those of a device that is no mirror and was lost.
    pub(super) async fn begin(
        &self,
        prepared: &Arc<PreparedFragment>,
        (part, inputs): (&FragmentPart, Vec<(u32, StatementInput)>),
        task: &Arc<TaskContext>,
        figures: &mut FragmentFigures,
        earlier: &mut Earlier,
    ) -> Result<Option<(RunsAt, Box<SharedRun>)>> {
        loop {
            let next = part.device.next_reader(&earlier.failed);
            let Some((at, busy, is_last)) = next else { return Ok(None) };
            let known = (earlier.given.clone(), earlier.progress.again());
            let over = (part, inputs.as_slice());
            match self.begin_at((&at, is_last), prepared, over, task, known).await? {
                Ok((link, run)) => {
                    part.device.note_answered(at.id());
                    let failed = std::mem::take(&mut earlier.failed);
                    if !failed.is_empty() {
                        figures.begun_again = figures.refused.take();
                    }
                    let progress = earlier.progress.clone();
                    let at = RunsAt { device: at, link, _busy: busy, failed, progress };
                    self.context.figures().begin(figures, run.timeline(), run.ongoing());
                    return Ok(Some((at, run)));
                }
                Err(Refusal { why, is_of_one_copy }) => {
                    figures.refused = Some(why);
                    if !is_of_one_copy {
                        return Ok(None);
                    }
                    earlier.failed.insert(at.id());
                }
            }
        }
    }

    /// Begins it `at` the device of `part` or a copy of that, over `inputs`, without the rows that were `given` out;
    /// `progress` counts its morsels. A copy that is not the last is not waited for if it does not answer at all.
    async fn begin_at(
        &self,
        (at, is_last): (&Arc<Device>, bool),
        prepared: &Arc<PreparedFragment>,
        (part, inputs): (&FragmentPart, &[(u32, StatementInput)]),
        task: &Arc<TaskContext>,
        (given, progress): (Option<GivenRows>, Progress),
    ) -> Result<std::result::Result<(Arc<dyn Link>, Box<SharedRun>), Refusal>> {
        let device = &part.device;
        let mut morsels: Vec<Vec<Morsel>> =
            inputs.iter().map(|(_, input)| input.input.morsels()).collect();
        let shares = self.shares(part);
        if let (true, Some(streamed), Some(scan)) =
            (shares, morsels.last_mut(), self.fragment.scans.last())
        {
            if self.context.settings().stealing == When::Always {
                *streamed = one_page_each(streamed);
            }
            self.held_last(streamed, part, &scan.scan);
        }
        let recall = self.recall(part);
        let is_followed = shares || recall.is_some();
        let streamed =
            if is_followed { morsels.last().cloned().unwrap_or_default() } else { Vec::new() };
        let morsel_count = morsels.last().map_or(0, Vec::len);
        let silent = || {
            let why = format!("device \"{}\" does not answer", at.name());
            Ok(Err(Refusal { why, is_of_one_copy: true }))
        };
        let link = match unless_silent(at, is_last, Box::pin(at.link())).await {
            Some(Ok(link)) => link,
            // Another copy has the pages: of the mirror, or of one that this device was named for.
            Some(Err(error)) if device.is_mirror() || part.is_mirrored(&self.context) => {
                return Ok(Err(Refusal { why: error.to_string(), is_of_one_copy: true }));
            }
            Some(Err(error)) => return Err(external(error)),
            None => return silent(),
        };
        let mut request = self.request(prepared, device, (inputs, morsels), task).await?;
        if device.is_mirror()
            && let Some(Ok(own)) = unless_silent(at, is_last, Box::pin(at.identity())).await
        {
            // Copies may have different amounts of memory.
            let ring_bytes = u64::from(request.slot_count) * u64::from(request.slot_bytes);
            let room = own.fragment_memory_bytes.saturating_sub(ring_bytes);
            request.memory_bytes = request.memory_bytes.min(room);
        }
        let grants = PeerGrants::give(&self.context, device, inputs, &mut request).await;
        let spill = (&prepared.plan, self.context.settings().device_spill_bytes);
        let clock = Stopwatch::start();
        let beginning = Box::pin(DeviceRun::begin(device, &link, (request, grants), spill));
        let Some(begun) = unless_silent(at, is_last, beginning).await else { return silent() };
        if let Err(error) = &begun {
            at.note_run_failure(error);
        }
        match begun {
            Ok(mut stream) => {
                let run = stream.header();
                let shares = shares && !stream.has_space();
                let watch = recall.filter(|_| !stream.has_space()).and_then(|recall| {
                    let (input, _) = inputs.last()?;
                    let (device, link) = (Arc::clone(device), Arc::clone(&link));
                    let streamed = (*input, streamed.clone());
                    Some(Stealing::new(device, link, run, streamed, recall, 1, None))
                });
                let helper = shares.then(|| {
                    let inputs = inputs.to_vec();
                    let run = (Arc::clone(&link), run, progress.clone());
                    self.helper(prepared, part, run, inputs, streamed, task)
                });
                let helper = helper.flatten();
                if let Some((input, _)) = inputs.last() {
                    // Where the host may take part, that counts.
                    let progress = helper.is_none().then_some(progress);
                    let (counts, streamed) = (progress.is_some(), (*input, morsel_count));
                    let linked = (device, &link);
                    let ongoing = OngoingRun::new(linked, run, streamed, progress, clock.clone());
                    stream.follow(ongoing, counts);
                }
                let (own, open) = (Arc::clone(device), &prepared.open);
                let feeding = Feeding::new(own, Arc::clone(&link), run, open);
                let by_host = (helper, watch);
                let kept = match device.mode() {
                    AttachMode::Embedded => (None, None),
                    _ => {
                        let held = HeldRows::of_run(&*self.fragment.plan, task.memory_pool());
                        (GivenRows::of_run(&*self.fragment.plan), held)
                    }
                };
                let mut run = SharedRun::new(stream, feeding, by_host, kept, clock);
                if let Some(given) = given {
                    run.leave_out(given);
                }
                Ok(Ok((link, Box::new(run))))
            }
            Err(error) if error.is_refusal() || self.is_of_one_copy(part, &error) => {
                device.forget_if_useless(&link, &error).await;
                let is_of_one_copy = self.is_of_one_copy(part, &error);
                Ok(Err(Refusal { why: error.to_string(), is_of_one_copy }))
            }
            Err(error) => Err(fault(device, &link, error).await),
        }
    }

    /// The command that starts the fragment on `device` over `inputs`, of which these are the morsels.
    pub(super) async fn request(
        &self,
        prepared: &PreparedFragment,
        device: &Device,
        (inputs, morsels): (&[(u32, StatementInput)], Vec<Vec<Morsel>>),
        task: &TaskContext,
    ) -> Result<Execute> {
        let settings = self.context.settings();
        let ring_bytes = u64::from(settings.slot_count) * u64::from(self.fragment.slot_bytes);
        let identity = device.identity().await.map_err(external)?;
        let room = identity.fragment_memory_bytes.saturating_sub(ring_bytes);
        let mut index_filters = Vec::new();
        for (((number, input), morsels), planned) in
            inputs.iter().zip(&morsels).zip(&self.fragment.scans)
        {
            let scan = prepared.tightened.get(number).unwrap_or(&planned.scan).with_partitions(1);
            let scan = scan.with_dynamic_filters(planned.inner_filters());
            for index_filter in input.input.index_filters(*number, true) {
                index_filters.extend(index_filter.for_scan(&scan, morsels)?);
            }
        }
        let numbers = inputs.iter().map(|(number, _)| *number);
        let named = (morsels.as_slice(), index_filters.as_slice());
        let homes = homes(&self.context, device, inputs, named).map_err(external)?;
        let mut execute = Execute {
            header: device.next_run(),
            build: build_id(),
            fragment: prepared.bytes.clone(),
            snapshot: self.context.state().snapshot().commit,
            inputs: numbers.zip(morsels).collect(),
            homes,
            peers: Vec::new(),
            peer_rows: Vec::new(),
            outputs: Outputs::One,
            output: 0,
            attaches: false,
            trace: settings.client.trace.on_device(device.name()),
            partitions: u32::from(!self.fragment.may_run_as_partitions),
            lends: settings.stealing != When::Never && self.fragment.fetch.is_none(),
            memory_bytes: settings.device_memory_bytes.min(room),
            slot_count: settings.slot_count,
            slot_bytes: self.fragment.slot_bytes,
            settings: travelling_settings(task.session_config().options()),
            first_slot: 0,
            locks: None,
            index_filters,
            fed: prepared.open.iter().map(OpenFilters::input).collect(),
            indexes: Vec::new(),
            broadcasts: prepared.rows.sent.clone().unwrap_or_default(),
            shipped: self.context.shipped_pages(inputs.iter().map(|(_, input)| &*input.input)),
            reserved: Vec::new(),
            extensible: false,
            history: settings.history_mode(),
        };
        let company = self.context.company();
        execute.memory_bytes = memory_share::share_of(&execute, &self.fragment.plan, company);
        Ok(execute)
    }

    /// Whether `error`, of the device of `part` or a copy of that, is of one copy of a mirror alone: another copy may
    /// run it, or have the pages that the host reads then.
    pub(super) fn is_of_one_copy(&self, part: &FragmentPart, error: &LinkError) -> bool {
        is_of_a_copy(error) && (part.device.is_mirror() || part.is_mirrored(&self.context))
    }

    /// All of its input as one part, for the host.
    fn whole(&self) -> Result<FragmentPart> {
        let first = self.parts.first().ok_or_else(never_prepared)?;
        let numbers = first.inputs.iter().map(|(number, _)| *number);
        let inputs = numbers.map(|number| Ok((number, self.context.input(number)?)));
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(FragmentPart { device: Arc::clone(&first.device), inputs, on_device: false })
    }

    /// Whether the host may take morsels of what streams through `part`.
    fn shares(&self, part: &FragmentPart) -> bool {
        let wanted = self.context.settings().stealing != When::Never;
        // A device in this process has the same cores.
        let is_apart = part.device.mode() != AttachMode::Embedded;
        wanted && is_apart && self.fragment.sharing.is_some() && self.fragment.fetch.is_none()
    }

    /// What each side takes for the fragment over `part` where the host may take it back as a whole; Some(None): it
    /// does so whatever that is.
    fn recall(&self, part: &FragmentPart) -> Option<Option<Sharing>> {
        let settings = self.context.settings();
        // A forced split stays where it was forced.
        let setting = match (settings.stealing, settings.split_in_force()) {
            (When::WherePays, split) if split != Split::Auto => When::Never,
            (setting, _) => setting,
        };
        let is_apart = part.device.mode() != AttachMode::Embedded;
        let predicted = self.fragment.recall.filter(|_| is_apart)?;
        match setting {
            When::Never => None,
            When::Always => Some(None),
            When::WherePays => Some(Some(predicted)),
        }
    }

    /// Puts morsels last whose chunks for `scan` are all on the host: it takes from the end.
    fn held_last(&self, morsels: &mut [Morsel], part: &FragmentPart, scan: &TableScanExec) {
        let mut columns = scan.scan().output.columns.clone();
        columns.extend(&scan.scan().filter.columns);
        columns.sort_unstable();
        columns.dedup();
        let pool = self.context.database().buffer_pool();
        let holds = |page: &MorselPage| {
            pool.held_count(part.device.id(), &page.page, &columns) == columns.len()
        };
        // Shipped pages are on the host in any case.
        morsels.sort_by_key(|morsel| {
            morsel.segment.segment.is_shipped() || morsel.pages.iter().all(holds)
        });
    }

    /// The host's part in a run over `morsels`, which are of the last of `inputs`, and which `progress` counts; None
    /// where there is nothing to share.
    fn helper(
        &self,
        prepared: &Arc<PreparedFragment>,
        part: &FragmentPart,
        (link, run, progress): (Arc<dyn Link>, CommandHeader, Progress),
        inputs: Vec<(u32, StatementInput)>,
        morsels: Vec<Morsel>,
        task: &Arc<TaskContext>,
    ) -> Option<Help> {
        let (input, _) = inputs.last()?;
        if morsels.len() < 2 {
            return None;
        }
        let always = self.context.settings().stealing == When::Always;
        let sharing = self.fragment.sharing.filter(|_| !always);
        let partitions = prepared.host_partitions(task);
        let device = Arc::clone(&part.device);
        let streamed = (*input, morsels);
        let counts = Some(progress.clone());
        let stealing = Stealing::new(device, link, run, streamed, sharing, partitions, counts);
        let run = LentRun::new(self, prepared, &stealing, &inputs, task);
        let lent = across_nodes::rows(&run, part);
        let source = Arc::clone(&stealing);
        let (prepared, context, task) =
            (Arc::clone(prepared), Arc::clone(&self.context), Arc::clone(task));
        let begin = move || {
            let source = Arc::clone(&source);
            let streamed = (source.input(), source as Arc<dyn MorselSource>);
            let rows = prepared.rows.inputs.clone();
            let over = context.fragment_context_of(&inputs, Some(streamed), rows, &progress)?;
            prepared.run_here(over, &task, context.stop())
        };
        Some(Help { stealing, begin: Arc::new(begin), lent, run })
    }

    /// Runs `part` on the host, without the rows that `earlier` runs have given out.
    pub(super) fn run_on_host(
        &self,
        prepared: &PreparedFragment,
        part: &FragmentPart,
        task: &Arc<TaskContext>,
        figures: FragmentFigures,
        earlier: Earlier,
    ) -> Result<Run> {
        let (inputs, rows) = (prepared.inputs(part)?, prepared.rows.inputs.clone());
        let progress = earlier.progress.again();
        let context = self.context.fragment_context_of(&inputs, None, rows, &progress)?;
        let stream = prepared.run_here(context, task, self.context.stop())?;
        let stream = match earlier.given {
            Some(given) => given.left_of(stream),
            None => stream,
        };
        Ok(Run::OnHost { stream, figures })
    }
}

/// What `work` on the device `at` gives; None: it does not answer at all, and is not the `last` that may do it.
async fn unless_silent<T>(at: &Device, is_last: bool, work: impl Future<Output = T>) -> Option<T> {
    if is_last {
        return Some(work.await);
    }
    match select(pin!(work), pin!(at.falls_silent())).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// Morsels of one page each: more to take where there are few.
fn one_page_each(morsels: &[Morsel]) -> Vec<Morsel> {
    let pages = morsels.iter().flat_map(|morsel| {
        morsel.pages.iter().map(|page| Morsel { pages: vec![page.clone()], ..morsel.clone() })
    });
    (0..).zip(pages).map(|(number, morsel)| Morsel { number, ..morsel }).collect()
}
