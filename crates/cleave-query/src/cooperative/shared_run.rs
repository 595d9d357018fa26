//! A fragment run whose rows the host takes and whose morsels it may take too: slots and the host's own rows in, one
//! stream of rows out.
//!
//! Slots come first: they wait in a ring. The host's own pipeline over the morsels that it takes ([`Stealing`]) runs in
//! tasks of its own once that pays; its rows are taken where no slot is ready. Some of these morsels may be run by
//! devices of other nodes ([`across_nodes`](super::stealing::across_nodes)), which give their rows lease by lease. When
//! the run has finished, morsels that the host learns of only then are run too, and those of leases that came back: so
//! each morsel's rows come out once. Rows of the device that could not be left out of another run are
//! [held](super::held_rows) until its run has finished.
//!
//! Invariant: the host's part ends without error only if all that it has taken was run. An error of it before it has
//! taken anything for itself (its build sides did not fit, say) leaves everything to the device, and to those of other
//! nodes, which begin no more leases; so does a lack of memory before its first row. What was taken by then, and leases
//! that come back, the device runs [when its run is over](at_home), and the host tries again if that fails. A run that
//! outgrew its memory is begun again with spill space ([`DeviceRun`]) over the same morsels, so only if none of them
//! were taken; from then on none are.

use std::sync::{Arc, PoisonError};

use cleave_fragment::link::LinkError;
use cleave_fragment::waiting;
use cleave_media::Stopwatch;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::feeding::Feeding;
use super::figures::{FragmentFigures, LiveTimeline};
use super::given_rows::GivenRows;
use super::held_rows::HeldRows;
use super::ongoing_run::OngoingRun;
use super::spill_space::DeviceRun;
use super::stealing::Stealing;
use super::stealing::across_nodes::{LentRows, LentRun};
use super::stealing::at_home;

/// Makes a stream over the morsels that the host takes.
pub(super) type Begin = Arc<dyn Fn() -> Result<SendableRecordBatchStream> + Send + Sync>;

/// How the host takes part.
pub(super) struct Help {
    /// What it takes.
    pub(super) stealing: Arc<Stealing>,
    /// Runs it.
    pub(super) begin: Begin,
    /// The rows of what it lends to devices of other nodes.
    pub(super) lent: Option<LentRows>,
    /// For what it cannot run.
    pub(super) run: Arc<LentRun>,
}

/// See the [module](self).
pub(super) struct SharedRun {
    stream: Box<DeviceRun>,
    /// Rows of the device that were given out.
    device_rows: u64,
    /// All that were given out, if the run can be made again without them.
    given: Option<GivenRows>,
    /// Those of them that a run before this one has given out, and this one makes again.
    left_out: Option<GivenRows>,
    /// Rows of the device that were not, if another run would have others.
    held: Option<HeldRows>,
    device_is_over: bool,
    feeding: Feeding,
    helper: Option<Helper>,
    /// Says when to give the run up, until its first row; it takes no morsels.
    watch: Option<Arc<Stealing>>,
    /// Since the run was asked for.
    clock: Stopwatch,
    timeline: LiveTimeline,
    /// Bytes of slots that are in the timeline.
    slot_bytes: u64,
}

/// The host's own part.
struct Helper {
    stealing: Arc<Stealing>,
    begin: Begin,
    rows: Option<BoxStream<'static, Result<RecordBatch>>>,
    /// How many of them were given out.
    part_row_count: u64,
    /// They come from the device of the run, which has the memory for them.
    is_at_home: bool,
    /// By which they do; None: it has failed.
    home: Option<Arc<LentRun>>,
    /// By devices of other nodes; None: these take no more.
    lent: Option<LentRows>,
    /// The rows of a lease that is done.
    leased: Option<HeldRows>,
    /// Rows that the host has made and given out, and those that devices have made for it.
    row_count: u64,
    leased_row_count: u64,
    /// Why it has left everything to the device.
    given_up: Option<String>,
}

/// What came of the host's own part.
enum Own {
    /// The next rows that the host has made, if there are more.
    Host(Option<Result<RecordBatch>>),
    /// Those of the next lease, if there are more.
    Lent(Option<HeldRows>),
}

/// Why there are no more rows.
pub(super) enum Failure {
    /// The run failed, on the device or on the way.
    Device(LinkError),
    /// The host's own part did.
    Host(DataFusionError),
    /// No row came, and the host is expected to be done with all of it sooner than the device.
    TooSlow,
}

/// The rows of a part that were given out by the time its run has failed.
pub(super) enum GivenOut {
    Nothing,
    Known(GivenRows),
    /// Not all are known.
    Unknown,
}

impl GivenOut {
    /// Those that are known.
    pub(super) fn known(self) -> Option<GivenRows> {
        match self {
            Self::Known(given) => Some(given),
            Self::Nothing | Self::Unknown => None,
        }
    }
}

impl SharedRun {
    /// The rows of `stream`. The host takes part where `helper` says what to take, and how to run it; where `watch`
    /// says that the device is far behind, there are no rows. `given` notes what is given out, and `held` keeps what is
    /// not before the run has ended.
    pub(super) fn new(
        stream: DeviceRun,
        feeding: Feeding,
        (helper, watch): (Option<Help>, Option<Arc<Stealing>>),
        (given, held): (Option<GivenRows>, Option<HeldRows>),
        clock: Stopwatch,
    ) -> Self {
        let helper = helper.map(|Help { stealing, begin, lent, run }| {
            let rows = Some(rows(Arc::clone(&stealing), Arc::clone(&begin)));
            Helper {
                stealing,
                begin,
                rows,
                part_row_count: 0,
                is_at_home: false,
                home: Some(run),
                lent,
                leased: None,
                row_count: 0,
                leased_row_count: 0,
                given_up: None,
            }
        });
        Self {
            stream: Box::new(stream),
            device_rows: 0,
            given,
            left_out: None,
            held,
            device_is_over: false,
            feeding,
            helper,
            watch,
            clock,
            timeline: LiveTimeline::default(),
            slot_bytes: 0,
        }
    }

    /// The next rows, the device's or the host's own.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let asked = self.clock.elapsed();
        let mut next = self.wait_for_next().await;
        let now = self.clock.elapsed();
        let slot_bytes = self.stream.slot_bytes();
        {
            let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
            timeline.waited.add_span(asked, now);
            timeline.arrived.add(now, slot_bytes.saturating_sub(self.slot_bytes));
            if let Ok(Some(batch)) = &next {
                timeline.rows += batch.num_rows() as u64;
            }
        }
        self.slot_bytes = slot_bytes;
        if let (Ok(Some(batch)), Some(left_out)) = (&next, &mut self.left_out) {
            next = left_out.left_of_batch(batch).map(Some).map_err(Failure::Host);
        }
        if let (Ok(Some(batch)), Some(given)) = (&next, &mut self.given) {
            given.note(batch);
        }
        next
    }

    async fn wait_for_next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        if !self.device_is_over {
            self.feeding.look();
        }
        loop {
            if let Some(batch) = self.held.as_mut().and_then(HeldRows::next) {
                self.device_rows += batch.num_rows() as u64;
                return Ok(Some(batch));
            }
            if let Some(batch) = self.helper.as_mut().and_then(Helper::leased_rows) {
                return Ok(Some(batch));
            }
            let own = self.helper.as_mut().filter(|helper| helper.is_open());
            let came = match (self.device_is_over, own) {
                (true, None) => {
                    if !self.helper.as_mut().is_some_and(Helper::begins_again) {
                        return Ok(None);
                    }
                    continue;
                }
                (true, Some(own)) => Either::Right(own.next_at_the_end().await),
                (false, None) => match self.watch.clone() {
                    None => Either::Left(self.stream.next().await),
                    Some(watch) => {
                        let slot = std::pin::pin!(self.stream.next());
                        match select(slot, std::pin::pin!(watch.recalls())).await {
                            Either::Left((slot, _)) => Either::Left(slot),
                            Either::Right((true, _)) => return Err(Failure::TooSlow),
                            Either::Right((false, slot)) => {
                                self.watch = None;
                                Either::Left(slot.await)
                            }
                        }
                    }
                },
                (false, Some(own)) => {
                    let slot = std::pin::pin!(self.stream.next());
                    match select(slot, std::pin::pin!(own.next())).await {
                        Either::Left((slot, _)) => Either::Left(slot),
                        Either::Right((came, _)) => Either::Right(came),
                    }
                }
            };
            match came {
                Either::Left(Ok(Some(batch))) => {
                    self.watch = None;
                    match self.held.as_mut().filter(|held| !held.is_released()) {
                        Some(held) => held.push(batch),
                        None => {
                            self.device_rows += batch.num_rows() as u64;
                            return Ok(Some(batch));
                        }
                    }
                }
                Either::Left(Ok(None)) => {
                    self.device_is_over = true;
                    if let Some(held) = &mut self.held {
                        held.release();
                    }
                    if let (Some(helper), Some(report)) = (&self.helper, self.stream.report()) {
                        helper.stealing.ended(report.kept);
                    }
                }
                Either::Left(Err(error)) => {
                    self.begin_again(error).await.map_err(Failure::Device)?
                }
                Either::Right(came) => {
                    let Some(helper) = &mut self.helper else { continue };
                    match came {
                        Own::Host(Some(Ok(batch))) => {
                            helper.gives(&batch);
                            return Ok(Some(batch));
                        }
                        Own::Host(Some(Err(error))) => {
                            helper.fails(error).map_err(Failure::Host)?
                        }
                        Own::Host(None) => (helper.rows, helper.is_at_home) = (None, false),
                        Own::Lent(None) => helper.lent = None,
                        Own::Lent(rows) => helper.leased = rows,
                    }
                }
            }
        }
    }

    /// Another run in the place of one that ended with `error`, if that helps.
    async fn begin_again(&mut self, error: LinkError) -> Result<(), LinkError> {
        if self.helper.as_ref().is_some_and(|helper| helper.stealing.taken_count() > 0) {
            return Err(error);
        }
        self.stream.begin_again(error).await?;
        // Answers about the previous run are ignored.
        (self.helper, self.watch) = (None, None);
        self.feeding.follow(self.stream.header());
        Ok(())
    }

    /// The device's part has failed. If none of its rows were given out, and the host has begun to take part, the host
    /// gets all morsels of the device, and the stream goes on: true.
    pub(super) fn goes_on_without_device(&mut self) -> bool {
        let Some(helper) = self.helper.as_mut().filter(|_| self.device_rows == 0) else {
            return false;
        };
        if helper.stealing.taken_count() == 0 {
            return false;
        }
        helper.stealing.take_rest();
        helper.home = None;
        // The host makes these, too.
        self.held = None;
        self.device_is_over = true;
        true
    }

    /// Gives out no more rows than are left of it without `given`, which a run before it has given out.
    pub(super) fn leave_out(&mut self, given: GivenRows) {
        self.given = self.given.is_some().then(|| given.clone());
        self.left_out = Some(given);
    }

    /// When the host has waited for rows, and what it then had, for others to look at.
    pub(super) fn timeline(&self) -> &LiveTimeline {
        &self.timeline
    }

    /// How far the device is with the run; None: nobody can tell.
    pub(super) fn ongoing(&self) -> Option<OngoingRun> {
        self.stream.ongoing().cloned()
    }

    /// Whether rows of the device may still come.
    pub(super) fn waits_for_device(&self) -> bool {
        !self.device_is_over
    }

    /// Whether it, or a run before it, has given out rows.
    fn has_given(&self) -> bool {
        let by_others = self.helper.as_ref().is_some_and(Helper::has_given);
        self.device_rows > 0 || by_others || self.left_out.is_some()
    }

    /// Whether it can be made again elsewhere: all rows that were given out are known.
    pub(super) fn may_be_made_again(&self) -> bool {
        let given = self.given.as_ref().and_then(GivenRows::known_count);
        given.is_some() || !self.has_given()
    }

    /// What was given out, also by runs before it: what is left can be made again if that is known.
    pub(super) fn given_out(&mut self) -> GivenOut {
        if !self.has_given() {
            return GivenOut::Nothing;
        }
        let given = self.given.take_if(|given| given.known_count().is_some());
        given.map_or(GivenOut::Unknown, GivenOut::Known)
    }

    /// Adds the present figures to `figures`.
    pub(super) fn tell(&self, figures: &mut FragmentFigures) {
        figures.waited = self.stream.waited();
        figures.report = self.stream.report().cloned();
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        figures.timeline = timeline.clone();
        drop(timeline);
        figures.filters_fed = self.feeding.sent_count();
        if let Some(helper) = &self.helper {
            figures.stolen = (helper.stealing.own_count(), helper.stealing.morsel_count());
            figures.done_by_others = helper.stealing.done_by_others();
            figures.stolen_rows = helper.row_count;
            figures.left_alone.clone_from(&helper.given_up);
        }
    }
}

impl Helper {
    /// Whether rows may come, or those who make them may still take morsels.
    fn is_open(&self) -> bool {
        self.rows.is_some() || self.lent.is_some()
    }

    /// Notes that `batch` is given out, which is of its own rows.
    fn gives(&mut self, batch: &RecordBatch) {
        let row_count = batch.num_rows() as u64;
        self.part_row_count += row_count;
        match self.is_at_home {
            true => self.leased_row_count += row_count,
            false => self.row_count += row_count,
        }
    }

    /// Its own part has failed with `error`, and leaves everything to the devices.
    ///
    /// # Errors
    /// `error`, where these cannot do what was taken, or rows of it were given out.
    fn fails(&mut self, error: DataFusionError) -> Result<()> {
        let has_given = self.part_row_count > 0;
        if std::mem::take(&mut self.is_at_home) {
            // The lease has come back, and the host tries once more.
            (self.rows, self.home) = (None, None);
            return if has_given { Err(error) } else { Ok(()) };
        }
        let may_be_left = self.home.is_some() && !has_given && is_out_of_memory(&error);
        if self.stealing.own_count() > 0 && !may_be_left {
            return Err(error);
        }
        self.given_up = Some(error.to_string());
        self.rows = None;
        // Nobody but the device of the run could run a lease that comes back.
        self.stealing.host_has_failed();
        Ok(())
    }

    /// Whether rows of morsels that were taken were given out.
    fn has_given(&self) -> bool {
        self.row_count > 0 || self.leased_row_count > 0
    }

    /// The next rows of a lease that is done.
    fn leased_rows(&mut self) -> Option<RecordBatch> {
        let batch = self.leased.as_mut().and_then(HeldRows::next);
        match &batch {
            Some(batch) => self.leased_row_count += batch.num_rows() as u64,
            None => self.leased = None,
        }
        batch
    }

    /// What comes next. Cancel-safe.
    async fn next(&mut self) -> Own {
        match (&mut self.rows, &mut self.lent) {
            (Some(rows), Some(lent)) => match select(rows.next(), lent.next()).await {
                Either::Left((batch, _)) => Own::Host(batch),
                Either::Right((rows, _)) => Own::Lent(rows),
            },
            (Some(rows), None) => Own::Host(rows.next().await),
            (None, Some(lent)) => Own::Lent(lent.next().await),
            (None, None) => Own::Host(None),
        }
    }

    /// The same once the device's run is over. Where nothing else is left to do, the host does not wait for leases
    /// longer than it would take for them itself: what is not done then comes back. It waits if nobody could do that.
    async fn next_at_the_end(&mut self) -> Own {
        if self.rows.is_some() {
            return self.next().await;
        }
        match self.stealing.patience() {
            Some(_) if self.given_up.is_some() && self.home.is_none() => self.next().await,
            Some(patience) => {
                let came = waiting::timeout(patience, self.next()).await;
                came.unwrap_or(Own::Lent(None))
            }
            None => Own::Lent(None),
        }
    }

    /// Runs morsels that were taken and given to no reader, if there are any: itself, or by the device of the run where
    /// it could not.
    fn begins_again(&mut self) -> bool {
        self.part_row_count = 0;
        if let Some(home) = self.home.as_ref().filter(|_| self.given_up.is_some()) {
            self.rows = at_home::rows(home);
            self.is_at_home = self.rows.is_some();
            return self.is_at_home;
        }
        let begins = self.stealing.has_leftover();
        if begins {
            self.rows = Some(rows(Arc::clone(&self.stealing), Arc::clone(&self.begin)));
        }
        begins
    }
}

fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// What `begin` makes, once it pays.
fn rows(stealing: Arc<Stealing>, begin: Begin) -> BoxStream<'static, Result<RecordBatch>> {
    let begun = async move {
        if !stealing.begins().await {
            return Ok(stream::empty().boxed());
        }
        begin().map(StreamExt::boxed)
    };
    stream::once(begun).try_flatten().boxed()
}
