//! Devices of other nodes that run morsels which the host has taken of a run: a run and idle devices in, rows out.
//!
//! ```text
//!   n1:a   the run ◀── revoke ── host ── a lease: morsels of n1:a, grant ──▶ n2:a   another run of the fragment
//!     ║                            ▲                                          ║
//!     ╚══ pages of the lease ══════╪══════════════════════════════════════════╝
//!                                  ╚═══════════════ rows, when all are there ═╝
//! ```
//!
//! 1. [`rows`] finds devices of other nodes that have a way to the home of the pages. Each takes one lease after the
//!    other, as many morsels as pay ([`leases`](cleave_plan::pace::leases)), while it has no work of its own.
//! 2. A lease is taken off the run as the host's own morsels are ([`Stealing`]); from the device's answer on these are
//!    the host's. The other device runs the same fragment over them, and reads them at their home by a grant
//!    ([`PeerGrants`]).
//! 3. Its rows are held until the run has ended, and count from then on. Until then the lease can come back: because
//!    the device refuses it, is lost, has more rows than are held, or is what everything waits for
//!    ([`Stealing::patience`]). The host's own partitions run it then, or the [home](super::at_home) itself where the
//!    host lacks the memory.
//!
//! Invariant (rule 11): of a lease either all rows are given out, or none and it came back. It comes back by being
//! dropped ([`Leased`]), so that nothing that ends a run of another device forgets it. Filters that tighten later are
//! not sent after a lease, which is short; losing one changes no rows (rule 4).
//! Deliberately absent: devices of the same node, which lend cores instead; the embedded device, which is the host;
//! pages of a mirror; and what a device could not reach the last time: each run tries once.

use std::sync::Arc;
use std::time::Duration;

use cleave_engine::device::Device;
use cleave_fragment::command::{Execute, RunReport, RunState};
use cleave_fragment::{Morsel, build_id, waiting};
use cleave_media::Stopwatch;
use cleave_plan::pace::Step;
use cleave_plan::pace::leases::{LeaseBytes, LeaseCost, LeasePace};
use cleave_plan::split::When;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use futures::stream::{self, BoxStream, StreamExt};

use super::{PAUSE, Stealing};
use crate::cooperative::fragment_exec::{FragmentExec, FragmentPart};
use crate::cooperative::held_rows::{HeldMax, HeldRows};
use crate::cooperative::peers::{PeerGrants, is_of_one_node};
use crate::cooperative::prepared_fragment::PreparedFragment;
use crate::cooperative::spill_space::DeviceRun;
use crate::select::StatementInput;

/// Most devices that take leases of one run.
const TAKERS_MAX: usize = 8;
/// Most rows of a lease that are held until its run has ended: a device that gives more sends little less than pages.
const HELD_MAX: HeldMax = HeldMax { rows: 1 << 16, bytes: 16 << 20 };
/// When a device that was at work is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Rows of leases, each of which is done.
pub(in crate::cooperative) type LentRows = BoxStream<'static, HeldRows>;

/// A run of which leases are taken, and what those need.
pub(in crate::cooperative) struct LentRun {
    /// Runs the fragment; what it has begun is its own.
    pub(super) node: FragmentExec,
    pub(super) prepared: Arc<PreparedFragment>,
    pub(super) stealing: Arc<Stealing>,
    /// The last one streams.
    inputs: Vec<(u32, StatementInput)>,
    task: Arc<TaskContext>,
}

/// A device that takes leases of a run.
struct Taker {
    run: Arc<LentRun>,
    device: Arc<Device>,
    pace: LeasePace,
}

/// Morsels that a device has on behalf of the host. They come back where this is dropped.
pub(super) struct Leased {
    stealing: Arc<Stealing>,
    places: Vec<u32>,
}

/// The rows of leases of `run`, which is of `part`. None: no device of another node could take any.
pub(in crate::cooperative) fn rows(run: &Arc<LentRun>, part: &FragmentPart) -> Option<LentRows> {
    let (home, _) = run.stealing.home();
    let mut takers = run.node.context.database().devices();
    takers.retain(|taker| {
        let is_ready = taker.is_connected() && !taker.owes_answer();
        taker.id() != home.id() && is_ready && home.is_reachable_by(taker)
    });
    if takers.is_empty() || !part.is_at_home() {
        return None;
    }
    // Not always the same ones.
    let first = run.stealing.run.run.run % takers.len() as u64;
    takers.rotate_left(usize::try_from(first).unwrap_or_default());
    takers.truncate(TAKERS_MAX);
    let each = takers.into_iter().map(|taker| rows_by(Arc::clone(run), taker));
    Some(stream::select_all(each).boxed())
}

/// The rows of leases that `device` takes.
fn rows_by(run: Arc<LentRun>, device: Arc<Device>) -> LentRows {
    let taker = async move { Taker::new(run, device).await };
    let leases = |taker: Option<Taker>| {
        stream::unfold(taker, |taker| async move {
            let mut taker = taker?;
            let rows = taker.next().await?;
            Some((rows, Some(taker)))
        })
    };
    stream::once(taker).flat_map(leases).boxed()
}

impl Taker {
    /// None: the device cannot run the fragment, is of the node, or nothing tells what a lease costs it.
    async fn new(run: Arc<LentRun>, device: Arc<Device>) -> Option<Self> {
        let identity = device.identity().await.ok()?;
        if identity.build != build_id() || is_of_one_node(run.stealing.home().0, &device).await {
            return None;
        }
        let cost = match run.node.context.settings().stealing {
            When::Never => return None,
            When::Always => None,
            When::WherePays => {
                if !run.may_pay().await {
                    return None;
                }
                Some(run.cost_for(&device).await?)
            }
        };
        Some(Self { run, device, pace: LeasePace::new(cost) })
    }

    /// The rows of the next lease. None: it takes no more.
    async fn next(&mut self) -> Option<HeldRows> {
        let stealing = Arc::clone(&self.run.stealing);
        loop {
            let count = match stealing.lease_step(&self.pace) {
                Step::Over => return None,
                Step::Wait(pause) => {
                    stealing.look_after(pause).await;
                    continue;
                }
                Step::Take(count) => count,
            };
            if !self.is_idle().await? {
                stealing.look_after(BUSY_PAUSE).await;
                continue;
            }
            let before = stealing.seen();
            let clock = Stopwatch::start();
            let Some(lease) = stealing.lease(count).await else {
                stealing.look_after(PAUSE).await;
                continue;
            };
            let ended = Box::pin(self.rows_of(&lease)).await;
            let (mut held, report) = match ended {
                Ok(ended) => ended,
                Err(why) => {
                    lease.failed(self.device.name(), why);
                    return None;
                }
            };
            let count = lease.count();
            let Some(report) = report else {
                self.pace.had_too_many_rows(count);
                continue;
            };
            self.pace.took(count, clock.elapsed().as_secs_f64(), &before, &stealing.seen());
            // Nothing waits between the end of the lease and its rows.
            held.release();
            lease.done(self.device.name(), &report);
            return Some(held);
        }
    }

    /// Whether it has nothing else to do. None: it cannot be asked.
    async fn is_idle(&self) -> Option<bool> {
        let asking = Box::pin(self.device.status());
        let status = waiting::timeout(self.device.timeout(), asking).await?.ok()?;
        // A run whose rows wait for their reader holds no core, but memory.
        let is_at_work = |state: RunState| matches!(state, RunState::Queued | RunState::Running);
        let asked = self.run.node.memory_asked(1).min(status.fragment_memory_bytes);
        let has_room = status.fragment_memory_bytes_free >= asked;
        let has_work = status.queue > 0 || status.runs.iter().any(|run| is_at_work(run.state));
        Some(has_room && !has_work)
    }

    /// The rows of all of `lease`, with the report of its run; without, if they are too many.
    ///
    /// # Errors
    /// Why there are none: the device refuses the lease, or is lost. What is wrong with an expression, the host finds
    /// out when it runs the lease itself.
    async fn rows_of(&self, lease: &Leased) -> Result<(HeldRows, Option<RunReport>), String> {
        let request = self.run.request(&self.device, lease).await;
        let request = request.map_err(|error| error.to_string())?;
        let link = self.device.link().await.map_err(|error| error.to_string())?;
        let plan = (&self.run.prepared.plan, 0);
        let mut held = HeldRows::new(HELD_MAX, self.run.task.memory_pool());
        let failed = match DeviceRun::begin(&self.device, &link, request, plan).await {
            Err(error) => error,
            Ok(mut run) => loop {
                match run.next().await {
                    Ok(Some(batch)) => held.push(batch),
                    Ok(None) => return Ok((held, Some(lease.report_of(&run)?))),
                    Err(error) => break error,
                }
                if held.is_released() {
                    return Ok((held, None));
                }
            },
        };
        self.device.note_run_failure(&failed);
        self.device.forget_if_useless(&link, &failed).await;
        Err(failed.to_string())
    }
}

impl LentRun {
    /// The run that `stealing` takes morsels of, which `node` began over `inputs`.
    pub(in crate::cooperative) fn new(
        node: &FragmentExec,
        prepared: &Arc<PreparedFragment>,
        stealing: &Arc<Stealing>,
        inputs: &[(u32, StatementInput)],
        task: &Arc<TaskContext>,
    ) -> Arc<Self> {
        let (number, fragment) = (node.number, node.fragment.clone());
        let parts = node.parts.to_vec();
        Arc::new(Self {
            node: FragmentExec::new(number, fragment, parts, Arc::clone(&node.context)),
            prepared: Arc::clone(prepared),
            stealing: Arc::clone(stealing),
            inputs: inputs.to_vec(),
            task: Arc::clone(task),
        })
    }

    /// The command by which `device` runs `lease`, and what other devices let it have for that.
    pub(super) async fn request(
        &self,
        device: &Device,
        lease: &Leased,
    ) -> Result<(Execute, PeerGrants)> {
        let Self { node, prepared, inputs, task, .. } = self;
        let mut morsels: Vec<Vec<Morsel>> =
            inputs.iter().map(|(_, input)| input.input.morsels()).collect();
        if let Some(streamed) = morsels.last_mut() {
            *streamed = lease.morsels();
        }
        let asked = (inputs.as_slice(), morsels);
        let mut request = node.request(prepared, device, asked, task).await?;
        request.fed = Vec::new();
        let grants = PeerGrants::give(&node.context, device, inputs, &mut request).await;
        Ok((request, grants))
    }

    /// Waits until a lease would pay if it cost nothing; false if none will. What it costs is not asked of a run that
    /// is over soon.
    async fn may_pay(&self) -> bool {
        let free = LeasePace::new(Some(LeaseCost::NONE));
        loop {
            match self.stealing.lease_step(&free) {
                Step::Over => return false,
                Step::Wait(pause) => self.stealing.look_after(pause).await,
                Step::Take(_) => return true,
            }
        }
    }

    /// What a lease is expected to cost `taker`. None: it, or the home, was not measured.
    async fn cost_for(&self, taker: &Device) -> Option<LeaseCost> {
        let Self { node, prepared, stealing, inputs, .. } = self;
        let (home, _) = stealing.home();
        let sharing = node.fragment.sharing?;
        let database = node.context.database();
        let of_home = database.known_profile(home.id()).await.ok()??;
        let of_taker = database.known_profile(taker.id()).await.ok()??;
        let shipped = node.context.shipped_pages(inputs.iter().map(|(_, input)| &*input.input));
        let shipped: usize = shipped.iter().map(|page| page.payload.bytes.len()).sum();
        let messages = (prepared.bytes.len() + shipped) as f64 + prepared.rows.byte_count as f64;
        let bytes = LeaseBytes { pages: self.page_bytes(), messages };
        let profiles = (&*of_home, &*of_taker);
        Some(LeaseCost::predicted(&sharing, stealing.morsel_count(), bytes, profiles))
    }

    /// Bytes of the chunks that stream, as if all columns had as many.
    fn page_bytes(&self) -> f64 {
        let (Some((_, streamed)), Some(planned)) =
            (self.inputs.last(), self.node.fragment.scans.last())
        else {
            return 0.0;
        };
        let scan = planned.scan.scan();
        let mut columns = scan.output.columns.clone();
        columns.extend(&scan.filter.columns);
        columns.sort_unstable();
        columns.dedup();
        let all = streamed.input.table.schema.columns.len().max(1);
        streamed.input.bytes_left() as f64 * (columns.len() as f64 / all as f64).min(1.0)
    }
}

impl Stealing {
    /// What a device of another node should do now.
    fn lease_step(&self, pace: &LeasePace) -> Step {
        let is_over = {
            let state = self.lock();
            state.over || state.deaf || state.leases_no_more
        };
        if is_over { Step::Over } else { pace.step(&self.pace, &self.seen()) }
    }

    /// Takes up to `count` morsels for a device of another node. None: there are none now.
    async fn lease(self: &Arc<Self>, count: u32) -> Option<Leased> {
        let _asking = self.asking.lock().await;
        let keep = {
            let state = self.lock();
            if state.over || state.deaf || state.leases_no_more {
                return None;
            }
            state.part.lease.kept.saturating_sub(count)
        };
        let places = self.ask_and_lease(keep, count as usize).await;
        (!places.is_empty()).then(|| Leased { stealing: Arc::clone(self), places })
    }

    /// Leases all that was taken and that no partition of the host was given. None: there is nothing.
    pub(super) fn lease_rest(self: &Arc<Self>) -> Option<Leased> {
        let places = self.lock().taken.lease(usize::MAX);
        (!places.is_empty()).then(|| Leased { stealing: Arc::clone(self), places })
    }
}

impl Leased {
    fn count(&self) -> usize {
        self.places.len()
    }

    fn morsels(&self) -> Vec<Morsel> {
        self.places.iter().filter_map(|place| self.stealing.morsel(*place)).collect()
    }

    /// What the device has reported at the end of `run`, which was of this lease.
    ///
    /// # Errors
    /// It has not done all of it.
    pub(super) fn report_of(&self, run: &DeviceRun) -> Result<RunReport, String> {
        let report = run.report().filter(|report| report.kept as usize == self.count());
        Ok(report.ok_or("its run has not done all of it")?.clone())
    }

    /// It comes back from `device`, which says why.
    fn failed(self, device: &str, why: String) {
        let mut state = self.stealing.lock();
        let done = state.done_by.entry(device.to_owned()).or_default();
        device.clone_into(&mut done.device);
        done.came_back = Some(why);
    }

    /// All of them are done by `device`, whose run had this `report`.
    pub(super) fn done(mut self, device: &str, report: &RunReport) {
        let count = std::mem::take(&mut self.places).len();
        let mut state = self.stealing.lock();
        state.taken.finish(count);
        let done = state.done_by.entry(device.to_owned()).or_default();
        device.clone_into(&mut done.device);
        done.morsels += count;
        done.rows += report.rows;
        done.cpu += report.cpu;
        done.foreign_bytes += report.foreign_bytes;
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let places = std::mem::take(&mut self.places);
        self.stealing.lock().taken.give_back(places);
    }
}
