//! What the host does: it begins runs, takes their slots, takes morsels of devices that are behind, and runs again what
//! was lost.

use std::collections::BTreeSet;

use cleave_fragment::Lease;
use cleave_plan::cost::Sharing;
use cleave_plan::pace::{Observed, Pace, Part, Step};

use super::super::scenario::{seconds, times};
use super::{Down, Event, Job, Ring, Run, Up, World, takes_ns};

/// Morsels that a partition of the host has taken at a time.
const HELD_MAX: u32 = 2;

/// The host's part in a run.
#[derive(Debug)]
pub(super) struct HostPart {
    pace: Pace,
    part: Part,
    /// The run was asked for at this time.
    asked_ns: u64,
    /// Places of the morsels that it has taken, the first ones of which its readers were given.
    taken: Vec<u32>,
    given_out: usize,
    done: u32,
    /// Counts how often it began from the first morsel.
    attempt: u32,
    /// Readers of morsels, and those that have none; 0 until it takes part.
    readers: u32,
    free: u32,
    /// Morsels whose pages are on their way, or that wait for a core.
    reading: BTreeSet<u32>,
    /// A question is under way, or the next one has its time.
    is_asking: bool,
    /// Nothing more is taken.
    is_over: bool,
    /// Slots that were taken in, and whether the report was.
    slots: u64,
    is_reported: bool,
    /// The device is lost: what it says does not count.
    is_redone: bool,
    /// As in `Stealing`: the device's stalls when it was last asked, and when that was; the morsels begun when it was
    /// first seen to have begun any, and when; those begun when the host was first at work, since when, and its idle
    /// times.
    stall: (u64, u64),
    stalled: f64,
    streams: Option<(u32, u64)>,
    began: Option<(u32, u64)>,
    idle_ns: u64,
    idle_since: Option<u64>,
}

impl World<'_> {
    /// Asks `device` to run a statement's part over the morsels of `home`. `sharing` is predicted of the statement.
    pub(super) fn begin_run(
        &mut self,
        statement: usize,
        sharing: Sharing,
        (home, device): (usize, usize),
    ) {
        let queries = self.statements[statement].queries;
        let morsels = self.morsels[home];
        let run = self.runs.len();
        let host = HostPart {
            pace: Pace::new(sharing, morsels as usize, false),
            part: Part::new(morsels),
            asked_ns: self.now,
            taken: Vec::new(),
            given_out: 0,
            done: 0,
            attempt: 0,
            readers: 0,
            free: 0,
            reading: BTreeSet::new(),
            is_asking: false,
            is_over: !self.scenario.stealing.is_by_host() || morsels < 2,
            slots: 0,
            is_reported: false,
            is_redone: false,
            stall: (0, self.now),
            stalled: 0.0,
            streams: None,
            began: None,
            idle_ns: 0,
            idle_since: None,
        };
        self.runs.push(Run {
            statement,
            queries: queries as u64,
            factor: self.scenario.of_members(queries),
            home,
            device,
            morsels,
            lease: Lease { begun: 0, kept: morsels },
            partitions: Vec::new(),
            working: 0,
            ring: Ring::default(),
            host,
            ran: vec![0; morsels as usize],
            is_cancelled: false,
            is_over: false,
        });
        self.say(run, Down::Execute);
    }

    /// Queues a message to a device.
    pub(super) fn say(&mut self, run: usize, down: Down) {
        self.host.messages.push_back(Job::Send(run, down));
        self.dispatch_host();
    }

    /// A message of a device has come.
    pub(super) fn arrive(&mut self, run: usize, up: Up) {
        match up {
            // Pages are taken in with the work on them.
            Up::Pages { attempt, place } => {
                self.host.morsels.push_back(Job::Morsel { run, attempt, place });
            }
            up => self.host.messages.push_back(Job::Take(run, up)),
        }
        self.dispatch_host();
    }

    /// A core of the host is done with a job.
    pub(super) fn host_done(&mut self, job: Job, ns: u64) {
        self.host.free_cores += 1;
        self.host.busy_ns = self.host.busy_ns.saturating_add(ns);
        match job {
            // A lost device's part is the host's: only pages are asked for.
            Job::Send(run, down) if self.runs[run].host.takes(down) => self.send(run, down),
            Job::Take(run, up) if !self.runs[run].is_over => self.hear_answer(run, up),
            Job::Morsel { run, attempt, place } if !self.runs[run].is_over => {
                self.morsel_done(run, attempt, place);
            }
            Job::Send(..) | Job::Take(..) | Job::Morsel { .. } => {}
        }
        self.dispatch_host();
    }

    fn hear_answer(&mut self, run: usize, up: Up) {
        let now = self.now;
        let host = &mut self.runs[run].host;
        match up {
            _ if host.is_redone => {}
            Up::Accepted => self.look(run),
            Up::Slot { .. } => {
                host.slots += 1;
                self.say(run, Down::Credit);
                self.end_if_done(run);
            }
            Up::Kept { lease, stall_ns } => {
                let (stall_before, asked_before) =
                    std::mem::replace(&mut host.stall, (stall_ns, now));
                let passed = seconds(now - asked_before).max(1e-6);
                host.stalled = seconds(stall_ns.saturating_sub(stall_before)) / passed;
                let own = host.part.answered(lease);
                host.taken.extend(own);
                let begun = host.part.lease.begun;
                if begun > 0 {
                    host.streams.get_or_insert((begun, now));
                }
                host.is_asking = false;
                self.feed(run);
                self.look(run);
            }
            Up::Report { kept } => {
                let own = host.part.answered(Lease { begun: kept, kept });
                host.taken.extend(own);
                host.is_over = true;
                host.is_reported = true;
                self.feed(run);
                self.end_if_done(run);
            }
            Up::Pages { .. } => {}
        }
    }

    /// Decides whether the host takes more of a run now, unless it has morsels to go on with.
    fn look(&mut self, run: usize) {
        let host = &self.runs[run].host;
        if host.is_over || host.is_asking || host.readers > 0 && host.free == 0 {
            return;
        }
        let (seen, pace, kept) = (host.seen(self.now), host.pace, host.part.lease.kept);
        let step = self.decide(|_| pace.step(&seen));
        let host = &mut self.runs[run].host;
        match step {
            // The device has begun all that it kept.
            Step::Over => host.is_over = true,
            Step::Take(count) => {
                host.is_asking = true;
                self.say(run, Down::Revoke { keep: kept.saturating_sub(count) });
            }
            Step::Wait(pause) => {
                host.is_asking = true;
                let attempt = host.attempt;
                let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
                self.after(self.now, pause_ns, Event::Look { run, attempt });
            }
        }
    }

    /// The pause before the next question is over.
    pub(super) fn look_again(&mut self, run: usize, attempt: u32) {
        let of_run = &self.runs[run];
        if of_run.is_over || of_run.host.is_over || of_run.host.attempt != attempt {
            return;
        }
        self.say(run, Down::Revoke { keep: u32::MAX });
    }

    /// Gives morsels that were taken to readers that have none: their pages are asked for.
    fn feed(&mut self, run: usize) {
        let (now, readers) = (self.now, HELD_MAX * self.scenario.host.cores);
        loop {
            let host = &mut self.runs[run].host;
            let Some(place) = host.taken.get(host.given_out).copied() else { return };
            if host.readers == 0 {
                (host.readers, host.free) = (readers, readers);
            }
            if host.free == 0 {
                return;
            }
            host.given_out += 1;
            host.free -= 1;
            host.began.get_or_insert((host.part.lease.begun, now));
            if let Some(since) = host.idle_since.take() {
                host.idle_ns += now - since;
            }
            host.reading.insert(place);
            let attempt = host.attempt;
            self.say(run, Down::Read { attempt, place });
        }
    }

    fn morsel_done(&mut self, run: usize, attempt: u32, place: u32) {
        let now = self.now;
        let of_run = &mut self.runs[run];
        let host = &mut of_run.host;
        // Pages that come twice, of a lost device and of its mirror, are run once.
        if host.attempt != attempt || !host.reading.remove(&place) {
            return;
        }
        host.done += 1;
        host.free += 1;
        if host.free == host.readers {
            host.idle_since = Some(now);
        }
        if let Some(times) = of_run.ran.get_mut(place as usize) {
            *times = times.saturating_add(1);
        }
        self.figures.by_host += 1;
        self.feed(run);
        self.look(run);
        self.end_if_done(run);
    }

    fn end_if_done(&mut self, run: usize) {
        let of_run = &self.runs[run];
        let host = &of_run.host;
        let device_is_done = host.is_redone || host.is_reported && host.slots == of_run.ring.sent;
        if device_is_done && host.given_out == host.taken.len() && host.free == host.readers {
            self.end_part(run);
        }
    }

    /// The device of a run is lost, and `copy` has its pages too. If no rows have come and the host has begun to take
    /// part, it takes what is left; else it runs all again, and leaves out the rows that it was given.
    pub(super) fn redo(&mut self, run: usize, copy: usize) {
        let now = self.now;
        let of_run = &mut self.runs[run];
        of_run.device = copy;
        let host = &mut of_run.host;
        if host.is_reported {
            // Only pages that the host asked for are missing.
        } else if host.slots == 0 && !host.taken.is_empty() {
            let rest = host.part.lost();
            host.taken.extend(rest.clone());
            let of_device = of_run.ran.iter_mut().take(rest.len());
            self.figures.lost +=
                of_device.map(|times| u64::from(std::mem::take(times))).sum::<u64>();
        } else {
            host.attempt += 1;
            host.taken = (0..of_run.morsels).collect();
            (host.given_out, host.done) = (0, 0);
            host.free = host.readers;
            host.idle_since = (host.readers > 0).then_some(now);
            host.reading.clear();
            let all = of_run.ran.iter_mut();
            self.figures.lost += all.map(|times| u64::from(std::mem::take(times))).sum::<u64>();
        }
        (host.is_over, host.is_redone) = (true, true);
        let attempt = host.attempt;
        for place in host.reading.clone() {
            self.say(run, Down::Read { attempt, place });
        }
        self.feed(run);
        self.end_if_done(run);
    }

    /// Hands jobs to idle cores of the host.
    fn dispatch_host(&mut self) {
        let scenario = self.scenario;
        let costs = &scenario.host;
        while self.host.free_cores > 0 {
            let next = self.host.messages.pop_front().or_else(|| self.host.morsels.pop_front());
            let Some(job) = next else { return };
            let ns = match job {
                Job::Send(_, Down::Execute) => costs.run_ns,
                Job::Send(..) => costs.message_ns,
                Job::Take(_, Up::Slot { bytes }) => {
                    costs.message_ns.saturating_add(takes_ns(bytes, costs.decode_rate))
                }
                Job::Take(..) => costs.message_ns,
                Job::Morsel { run, place, .. } => {
                    let of_run = &self.runs[run];
                    let weight = scenario.weight(of_run.home, place) * of_run.factor;
                    times(costs.morsel_ns, weight)
                }
            };
            self.host.free_cores -= 1;
            self.after(self.now, ns, Event::HostDone { job, ns });
        }
    }
}

impl HostPart {
    /// Whether a message to the run's device is still sent.
    fn takes(&self, down: Down) -> bool {
        !self.is_redone || matches!(down, Down::Read { .. })
    }

    /// What both sides have done so far.
    fn seen(&self, now: u64) -> Observed {
        let now_idle = self.idle_since.map_or(0, |since| now - since);
        let at_work = self.began.map_or(0, |(_, began)| now - began);
        Observed {
            lease: self.part.lease,
            elapsed_s: seconds(now - self.asked_ns),
            streams: self.streams.map(|(begun, at)| (begun, seconds(now - at))),
            stalled: self.stalled,
            host_done: f64::from(self.done),
            host_pending: self.taken.len() as f64 - f64::from(self.done),
            host_s: seconds(at_work.saturating_sub(self.idle_ns + now_idle)),
            host_began: self.began.map(|(begun, at)| (begun, seconds(now - at))),
        }
    }
}
