//! Runs of fragments that change or lock rows, as those see them who look on: among the
//! [`running_queries`](super::running_queries), one entry for each statement.
//!
//! Such a fragment is no query that runs: nothing pulls its rows, and it has no plan above it. So it is listed here, as
//! it is sent, and tells its figures as other fragments do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_engine::device::Device;
use cleave_engine::device::run_witness::RunWitness;
use cleave_fragment::command::{CommandHeader, RunReport};
use cleave_fragment::link::Link;
use cleave_media::Stopwatch;

use super::figures::{FigureLog, FragmentFigures, LiveTimeline};
use super::fragment_exec::{FragmentExec, FragmentPart};
use super::ongoing_run::OngoingRun;
use super::prepared_fragment::PreparedFragment;
use super::running_queries::Listed;

/// A run in the list, until it is dropped.
pub(super) struct ShownRun {
    _listed: Listed,
    seen: Arc<Seen>,
}

struct Seen {
    log: Arc<FigureLog>,
    /// As they are before it begins.
    figures: FragmentFigures,
    /// The input that streams.
    input: Option<u32>,
    clock: Stopwatch,
    timeline: LiveTimeline,
    /// Since when the host waits, and the bytes of slots that had come by then.
    waits: Mutex<(Duration, u64)>,
    report: Mutex<Option<RunReport>>,
}

impl ShownRun {
    /// The run of `node` over `part`, which is going to be sent. None: its session is not among those that are seen.
    pub(super) fn begin(
        node: &FragmentExec,
        part: &FragmentPart,
        prepared: &PreparedFragment,
    ) -> Option<Self> {
        let (database, log) = (node.context.database(), Arc::new(FigureLog::default()));
        let backend = node.context.settings().client.backend;
        let (text, began) = database.backends().statement_of(backend)?;
        let queries = database.running_queries();
        let (listed, number) = queries.enter_change(backend, (text, began), Arc::clone(&log));
        let device = &part.device;
        let at = (device.name().to_owned(), device.mode());
        let sizes = (prepared.bytes.len(), node.fragment.slot_bytes);
        let inputs = &part.inputs;
        let figures = FragmentFigures {
            pages: (
                inputs.iter().map(|(_, input)| input.input.page_count).sum(),
                inputs.iter().map(|(_, input)| input.input.pages_left()).sum(),
            ),
            ..FragmentFigures::of_new_run(number, at, node.fragment.tables(), sizes)
        };
        let seen = Seen {
            log,
            figures,
            input: inputs.last().map(|(input, _)| *input),
            clock: Stopwatch::start(),
            timeline: LiveTimeline::default(),
            waits: Mutex::default(),
            report: Mutex::default(),
        };
        Some(Self { _listed: listed, seen: Arc::new(seen) })
    }

    /// What is to be told of the run.
    pub(super) fn witness(&self) -> Arc<dyn RunWitness> {
        Arc::clone(&self.seen) as Arc<dyn RunWitness>
    }

    /// Notes that it is over; `is_done`: on the device.
    pub(super) fn end(self, is_done: bool) {
        let timeline = self.seen.timeline.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let report = self.seen.report.lock().unwrap_or_else(PoisonError::into_inner).take();
        let refused = (!is_done).then(|| "the device refused the fragment or a row".to_owned());
        let figures = self.seen.figures.clone();
        self.seen.log.add(FragmentFigures { timeline, report, refused, ..figures });
    }
}

impl RunWitness for Seen {
    fn begins(&self, run: CommandHeader, device: &Arc<Device>, link: &Arc<dyn Link>) {
        let ongoing = self.input.map(|input| {
            let clock = self.clock.clone();
            OngoingRun::new((device, link), run, input, clock)
        });
        self.log.begin(&self.figures, &self.timeline, ongoing);
    }

    fn waits(&self) {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).0 = self.clock.elapsed();
    }

    fn came(&self, slot_bytes: u64) {
        let now = self.clock.elapsed();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) = std::mem::replace(&mut *waits, (now, slot_bytes));
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        timeline.waited.add_span(since, now);
        timeline.arrived.add(now, slot_bytes.saturating_sub(before));
    }

    fn ended(&self, report: &RunReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
    }
}
