//! Runs of fragments that change or lock rows, as those see them who look on: among the
//! [`running_queries`](super::running_queries), one entry for each statement; and their progress and figures.
//!
//! Such a fragment is no query that runs: nothing pulls its rows, and it has no plan above it. So it is listed here, as
//! it is sent, and tells its figures as other fragments do: to those who look on, and to its statement.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cleave_engine::device::Device;
use cleave_engine::device::run_witness::RunWitness;
use cleave_fragment::command::{CommandHeader, Execute, RunReport};
use cleave_fragment::link::Link;
use cleave_fragment::progress::Progress;
use cleave_media::Stopwatch;
use datafusion::arrow::array::RecordBatch;

use super::figures::{FigureLog, FragmentFigures, LiveTimeline};
use super::followed::Followed;
use super::fragment_exec::{FragmentExec, FragmentPart};
use super::ongoing_run::OngoingRun;
use super::prepared_fragment::PreparedFragment;
use super::running_queries::Listed;

/// A run in the list, until it is dropped.
pub(super) struct ShownRun {
    /// None: its session is not among those that are seen.
    _listed: Option<Listed>,
    followed: Followed,
    seen: Arc<Seen>,
    /// Gets its figures for the statement, in which it has this number.
    statement: (Arc<FigureLog>, usize),
}

struct Seen {
    log: Arc<FigureLog>,
    /// As they are before it begins.
    figures: FragmentFigures,
    /// The input that streams, and how many morsels of it there are.
    streamed: Option<(u32, usize)>,
    /// Counts these.
    progress: Progress,
    clock: Stopwatch,
    /// Once it has begun.
    ongoing: Arc<OnceLock<OngoingRun>>,
    timeline: LiveTimeline,
    /// Since when the host waits, and the bytes of slots that had come by then.
    waits: Mutex<(Duration, u64)>,
    /// With how long the host has waited in all.
    report: Mutex<Option<(RunReport, Duration)>>,
}

impl ShownRun {
    /// The run of `node` over `part`, which is going to be sent as `request`.
    pub(super) fn begin(
        node: &FragmentExec,
        part: &FragmentPart,
        request: &Execute,
        prepared: &PreparedFragment,
    ) -> Self {
        let (database, log) = (node.context.database(), Arc::new(FigureLog::default()));
        let client = &node.context.settings().client;
        let listed = database.backends().statement_of(client.backend).map(|statement| {
            let queries = database.running_queries();
            queries.enter_change(client.backend, statement, Arc::clone(&log))
        });
        let (listed, number) = listed.unzip();
        let device = &part.device;
        let at = (device.name().to_owned(), device.mode());
        let sizes = (prepared.bytes.len(), request.slot_bytes);
        let sent = request.inputs.iter().flat_map(|(_, morsels)| morsels);
        let figures = FragmentFigures {
            pages: (
                part.inputs.iter().map(|(_, input)| input.input.page_count).sum(),
                sent.map(|morsel| morsel.pages.len()).sum(),
            ),
            ..FragmentFigures::of_new_run(
                number.unwrap_or(node.number),
                at,
                node.fragment.tables(),
                sizes,
            )
        };
        let ongoing = Arc::<OnceLock<OngoingRun>>::default();
        let seen = Seen {
            log,
            figures,
            streamed: request.inputs.last().map(|(input, morsels)| (*input, morsels.len())),
            progress: client.progress.clone(),
            clock: Stopwatch::start(),
            ongoing: Arc::clone(&ongoing),
            timeline: LiveTimeline::default(),
            waits: Mutex::default(),
            report: Mutex::default(),
        };
        Self {
            _listed: listed,
            followed: Followed::new(ongoing),
            seen: Arc::new(seen),
            statement: (Arc::clone(node.context.figures()), node.number),
        }
    }

    /// What is to be told of the run.
    pub(super) fn witness(&self) -> Arc<dyn RunWitness> {
        Arc::clone(&self.seen) as Arc<dyn RunWitness>
    }

    /// What `running` gives, which is the run; meanwhile the device is asked how far it is.
    pub(super) async fn beside<T>(&mut self, running: impl Future<Output = T>) -> T {
        self.followed.beside(running).await
    }

    /// Notes that it is over, with the `rows` that the device has given. None: it has not done it.
    pub(super) fn end(self, rows: Option<&[RecordBatch]>) {
        let timeline = self.seen.timeline.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let report = self.seen.report.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (report, waited) = report.unzip();
        let figures = FragmentFigures {
            timeline,
            report,
            waited: waited.unwrap_or_default(),
            refused: rows.is_none().then(|| "the device refused the fragment or a row".to_owned()),
            rows: rows.into_iter().flatten().map(|batch| batch.num_rows() as u64).sum(),
            ..self.seen.figures.clone()
        };
        let (of_statement, number) = self.statement;
        if rows.is_some() {
            of_statement.add(FragmentFigures { number, ..figures.clone() });
        }
        self.seen.log.add(figures);
    }
}

impl RunWitness for Seen {
    fn begins(&self, run: CommandHeader, device: &Arc<Device>, link: &Arc<dyn Link>) {
        let ongoing = self.streamed.map(|streamed| {
            let progress = Some(self.progress.clone());
            OngoingRun::new((device, link), run, streamed, progress, self.clock.clone())
        });
        if let Some(ongoing) = &ongoing {
            // A run begins once.
            drop(self.ongoing.set(ongoing.clone()));
        }
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

    fn ended(&self, report: &RunReport, waited: Duration) {
        if let Some(ongoing) = self.ongoing.get() {
            ongoing.ended(report.kept);
        }
        let mut known = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((report.clone(), waited));
    }
}
