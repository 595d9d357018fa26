//! Work stealing: the host takes morsels of a fragment run from the end of its list. A run in, a morsel source for the
//! same operators on the host out.
//!
//! ```text
//!   the run's morsels   0 1 2 3 4 5 6 7 8 9 10 11
//!   device              ■ ■ ■ □ □ □ │                 begun ■, kept □
//!   host                            │ ■ ■ □ ■ ■ ■     given out ■, taken and waiting □
//!                                 kept ◀── revoke
//! ```
//!
//! 1. [`Stealing::begins`] waits until it would pay that the host takes part ([`pace`](cleave_plan::pace)).
//! 2. Its operators pull from [`Stealing`], as from any [`MorselSource`]. Where it has none left, it tells the device
//!    to keep fewer ([`Request::Revoke`]); the device answers how many it does keep, which is never fewer than it has
//!    begun.
//! 3. Morsels behind that belong to the host from the answer on, and not before. The run's report is the last answer:
//!    the host learns there what it was not told until then.
//! 4. Devices of other nodes may run some of what was taken ([`across_nodes`]), and so may the device itself when its
//!    run is over, where the host lacks the memory ([`at_home`]). To the run that is taken from, and to its messages,
//!    that is the host.
//!
//! A run that cannot be divided is recalled as a whole ([`Stealing::recalls`]) while none of its rows were given out:
//! its morsels are counted as above, and its cancellation is the only other message.
//!
//! Invariant (rule 11): each morsel is given out by one side only. The device's end of the list only ever moves to the
//! front, and it begins nothing behind what it has answered; so requests and answers may be lost, late, doubled and out
//! of order (the tests try all ways). A run is begun once: a device that was restarted knows nothing of it.
//! Deliberately absent: which morsels the rows are of that a lost run has given out. The host makes all rows again then
//! ([`GivenRows`](super::given_rows::GivenRows)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_fragment::command::{Command, CommandHeader, Kept, Reply, Request};
use cleave_fragment::link::Link;
use cleave_fragment::progress::Progress;
use cleave_fragment::{Lease, Morsel, MorselSource};
use cleave_media::Stopwatch;
use cleave_plan::cost::Sharing;
use cleave_plan::pace::{Observed, Pace, Part, Step};
use futures::FutureExt;
use futures::future::BoxFuture;

pub(super) mod across_nodes;
pub(super) mod at_home;
mod taken;
#[cfg(test)]
mod tests;

use cleave_engine::device::Device;

use super::figures::DoneByOther;
use taken::TakenMorsels;

/// Pause of a reader that waits for what another one takes.
const PAUSE: Duration = Duration::from_millis(2);

/// The host's part in one run; see the [module](self).
pub(super) struct Stealing {
    run: LeaseRequest,
    /// The run's, in the order of its list.
    morsels: Vec<Morsel>,
    pace: Pace,
    /// Partitions of the host's pipeline.
    partitions: u32,
    clock: Stopwatch,
    state: Mutex<SharedMorsels>,
    /// Locked while the device is asked, so that one caller does.
    asking: tokio::sync::Mutex<()>,
    /// Counts the morsels that either side has begun.
    progress: Option<Progress>,
}

/// The device to ask, and for the morsels of which input.
struct LeaseRequest {
    device: Arc<Device>,
    link: Arc<dyn Link>,
    run: CommandHeader,
    input: u32,
}

struct SharedMorsels {
    part: Part,
    taken: TakenMorsels,
    /// What devices of other nodes have done of those, by their names.
    done_by: BTreeMap<String, DoneByOther>,
    /// Time that partitions have waited for slots, when the device was last asked, and when that was.
    stall: (Duration, Duration),
    stalled: f64,
    /// The morsels begun when the device was first seen to have begun any, and the time of that.
    streams: Option<(u32, Duration)>,
    /// Morsels that the device had begun, as it had answered, when the host began to work on what it has taken, and the
    /// time since then, idle times included.
    began: Option<(u32, Stopwatch)>,
    idle: Duration,
    idle_since: Option<Stopwatch>,
    /// Partitions that wait for a morsel.
    waiting: u32,
    /// The device was asked and did not answer: only the end of the run tells what it has given back.
    deaf: bool,
    /// Nothing more is taken.
    over: bool,
    /// Nothing more is leased.
    leases_no_more: bool,
    /// Morsels begun by the device that were counted as progress.
    counted: u32,
    /// Whether any were, of either side.
    is_counted: bool,
}

impl Stealing {
    /// The host's part in `run` on `device`, through which `morsels` stream as its `input`. `sharing` says what each
    /// side is expected to take for all of them; None: take whatever there is. `progress` counts what is begun.
    pub(super) fn new(
        device: Arc<Device>,
        link: Arc<dyn Link>,
        run: CommandHeader,
        (input, morsels): (u32, Vec<Morsel>),
        sharing: Option<Sharing>,
        partitions: u32,
        progress: Option<Progress>,
    ) -> Arc<Self> {
        let count = u32::try_from(morsels.len()).unwrap_or(u32::MAX);
        let pace = Pace::new(sharing.unwrap_or_default(), morsels.len(), sharing.is_none());
        Arc::new(Self {
            run: LeaseRequest { device, link, run, input },
            morsels,
            pace,
            partitions,
            clock: Stopwatch::start(),
            state: Mutex::new(SharedMorsels {
                part: Part::new(count),
                taken: TakenMorsels::default(),
                done_by: BTreeMap::new(),
                stall: (Duration::ZERO, Duration::ZERO),
                stalled: 0.0,
                streams: None,
                began: None,
                idle: Duration::ZERO,
                idle_since: None,
                waiting: 0,
                deaf: false,
                over: false,
                leases_no_more: false,
                counted: 0,
                is_counted: false,
            }),
            asking: tokio::sync::Mutex::new(()),
            progress,
        })
    }

    /// The device of the run, or of a mirror, and the link to it.
    fn home(&self) -> (&Arc<Device>, &Arc<dyn Link>) {
        (&self.run.device, &self.run.link)
    }

    /// The input of which it takes morsels.
    pub(super) fn input(&self) -> u32 {
        self.run.input
    }

    /// Morsels of the run, all of them.
    pub(super) fn morsel_count(&self) -> usize {
        self.morsels.len()
    }

    /// Morsels that were taken, for whichever side.
    pub(super) fn taken_count(&self) -> usize {
        self.lock().taken.count()
    }

    /// Those of them that the host runs itself.
    pub(super) fn own_count(&self) -> usize {
        self.lock().taken.own_count()
    }

    /// What devices of other nodes have done of them, by the names of these.
    pub(super) fn done_by_others(&self) -> Vec<DoneByOther> {
        self.lock().done_by.values().cloned().collect()
    }

    /// How long the host, having nothing else to do, waits for what is leased: as long as it would take to do it.
    /// None: nothing is.
    pub(super) fn patience(&self) -> Option<Duration> {
        let leased = self.lock().taken.leased_count();
        let patience = || self.pace.host_time(leased).unwrap_or_else(|| self.run.device.timeout());
        (leased > 0).then(patience)
    }

    /// Waits until it pays that the host begins; false if it never will.
    pub(super) async fn begins(&self) -> bool {
        loop {
            if self.own_count() > 0 {
                return true;
            }
            match self.step() {
                Step::Over => return false,
                Step::Take(_) => return true,
                Step::Wait(pause) => cleave_fragment::waiting::sleep(pause).await,
            }
            self.ask(u32::MAX).await;
        }
    }

    /// Waits until it pays that the host runs all of it from the beginning; false if it never will.
    pub(super) async fn recalls(&self) -> bool {
        loop {
            let seen = self.seen();
            match self.pace.recall(&seen) {
                Step::Take(_) => return true,
                Step::Over => return false,
                Step::Wait(pause) => cleave_fragment::waiting::sleep(pause).await,
            }
            self.ask(u32::MAX).await;
            if self.lock().deaf {
                return false;
            }
        }
    }

    /// The run came to its end, having kept so many morsels: the others are the host's, and no more are.
    pub(super) fn ended(&self, kept: u32) {
        let mut state = self.lock();
        let own = state.part.answered(Lease { begun: kept, kept });
        state.taken.add(own);
        self.count_device(&mut state);
        state.over = true;
    }

    /// The run is gone and has given no rows: the host gets all its morsels.
    pub(super) fn take_rest(&self) {
        let mut state = self.lock();
        let rest = state.part.lost();
        state.taken.add(rest);
        state.over = true;
    }

    /// The host's part has failed before it gave out a row since it was last begun: what it was given is with nobody.
    /// Nothing more is leased to devices of other nodes.
    pub(super) fn host_has_failed(&self) {
        let mut state = self.lock();
        state.taken.take_back();
        state.leases_no_more = true;
    }

    /// Whether morsels were taken that no reader was given, and that one may need. A reader that finds no more is done,
    /// and morsels may come after that: they need another reader, which begins here.
    pub(super) fn has_leftover(&self) -> bool {
        self.lock().taken.begin_again()
    }

    fn step(&self) -> Step {
        let (is_over, is_deaf) = {
            let state = self.lock();
            (state.over, state.deaf)
        };
        if is_over {
            return Step::Over;
        }
        if is_deaf {
            return Step::Wait(PAUSE);
        }
        self.pace.step(&self.seen())
    }

    /// What both sides have done so far.
    fn seen(&self) -> Observed {
        let state = self.lock();
        let given_out = state.taken.given_count() as f64;
        // Each partition reads one morsel ahead of the one that it decodes.
        let under_way = f64::from(2 * self.partitions - state.waiting.min(self.partitions));
        let now_idle = state.idle_since.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
        let began = state.began.as_ref().map(|(begun, clock)| (*begun, clock.elapsed()));
        let at_work = began.map_or(Duration::ZERO, |(_, since)| since);
        let now = self.clock.elapsed();
        let streams = state.streams;
        let host_done = (given_out - under_way).max(0.0);
        Observed {
            lease: state.part.lease,
            elapsed_s: now.as_secs_f64(),
            streams: streams.map(|(begun, at)| (begun, now.saturating_sub(at).as_secs_f64())),
            stalled: state.stalled,
            host_done,
            host_pending: state.taken.own_count() as f64 - host_done,
            host_s: at_work.saturating_sub(state.idle + now_idle).as_secs_f64(),
            host_began: began.map(|(begun, since)| (begun, since.as_secs_f64())),
        }
    }

    /// Asks the device to keep `keep` morsels and notes what it says.
    async fn ask(&self, keep: u32) {
        self.ask_and_lease(keep, 0).await;
    }

    /// The same; then leases up to `count` of what was taken.
    async fn ask_and_lease(&self, keep: u32, count: usize) -> Vec<u32> {
        if self.lock().deaf {
            return Vec::new();
        }
        let LeaseRequest { device, link, run, input } = &self.run;
        let header = CommandHeader { run: run.run, ..device.header() };
        let asked = Command::new(header, Request::Revoke { input: *input, keep });
        let answer = link.call(asked).await;
        let mut state = self.lock();
        let Ok(Reply::Kept(Kept { lease, stall })) = answer else {
            // The end of the run tells what it may have given back.
            state.deaf = true;
            return Vec::new();
        };
        let now = self.clock.elapsed();
        let (stall_before, asked_before) = std::mem::replace(&mut state.stall, (stall, now));
        let passed = now.saturating_sub(asked_before).as_secs_f64().max(1e-6);
        state.stalled = stall.saturating_sub(stall_before).as_secs_f64() / passed;
        let own = state.part.answered(lease);
        state.taken.add(own);
        self.count_device(&mut state);
        let begun = state.part.lease.begun;
        if begun > 0 {
            state.streams.get_or_insert((begun, now));
        }
        // What comes to the host at the end of a run, it does itself.
        if state.over { Vec::new() } else { state.taken.lease(count) }
    }

    /// The next morsel that was taken and not given out in `pass`.
    fn next_taken(&self, pass: usize) -> Option<Morsel> {
        let mut state = self.lock();
        let place = state.taken.next(pass)?;
        let begun = state.part.lease.begun;
        state.began.get_or_insert_with(|| (begun, Stopwatch::start()));
        if pass == 0 {
            self.count(&mut state, 1);
        }
        self.morsel(place)
    }

    /// Counts morsels that the device has begun.
    fn count_device(&self, state: &mut SharedMorsels) {
        let more = state.part.lease.begun.saturating_sub(state.counted);
        state.counted += more;
        self.count(state, more);
    }

    /// Counts morsels that were begun.
    fn count(&self, state: &mut SharedMorsels, begun: u32) {
        let Some(progress) = self.progress.as_ref().filter(|_| begun > 0) else { return };
        if !std::mem::replace(&mut state.is_counted, true) {
            progress.expect(u64::try_from(self.morsels.len()).unwrap_or(u64::MAX));
        }
        progress.advance(u64::from(begun));
    }

    fn morsel(&self, place: u32) -> Option<Morsel> {
        self.morsels.get(usize::try_from(place).ok()?).cloned()
    }

    async fn next_of(&self, pass: usize) -> Option<Morsel> {
        loop {
            if let Some(morsel) = self.next_taken(pass) {
                return Some(morsel);
            }
            if self.lock().over {
                // Morsels taken meanwhile, if any.
                return self.next_taken(pass);
            }
            if pass > 0 {
                // Each pass must read the morsels that the first one takes.
                cleave_fragment::waiting::sleep(PAUSE).await;
                continue;
            }
            let _waits = Waits::begin(self);
            let asking = self.asking.lock().await;
            if let Some(morsel) = self.next_taken(pass) {
                return Some(morsel);
            }
            let kept = self.lock().part.lease.kept;
            match self.step() {
                // The device has begun all that it kept, and can give back none of it.
                Step::Over => self.lock().over = true,
                Step::Take(count) => self.ask(kept.saturating_sub(count)).await,
                Step::Wait(pause) => {
                    drop(asking);
                    self.look_after(pause).await;
                }
            }
        }
    }

    /// Waits so long, and asks what the device has begun, unless it was asked meanwhile.
    async fn look_after(&self, pause: Duration) {
        let before = self.lock().stall.1;
        cleave_fragment::waiting::sleep(pause).await;
        let _asking = self.asking.lock().await;
        let is_known = {
            let state = self.lock();
            state.over || state.stall.1 != before
        };
        if !is_known {
            self.ask(u32::MAX).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharedMorsels> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MorselSource for Stealing {
    fn next(&self, pass: usize, _partition: usize) -> BoxFuture<'_, Option<Morsel>> {
        self.next_of(pass).boxed()
    }
}

/// A partition that waits for a morsel, until it is dropped.
struct Waits<'a>(&'a Stealing);

impl<'a> Waits<'a> {
    fn begin(stealing: &'a Stealing) -> Self {
        let mut state = stealing.lock();
        state.waiting += 1;
        if state.waiting >= stealing.partitions && state.idle_since.is_none() {
            state.idle_since = Some(Stopwatch::start());
        }
        Self(stealing)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting = state.waiting.saturating_sub(1);
        if let Some(since) = state.idle_since.take() {
            state.idle += since.elapsed();
        }
    }
}
