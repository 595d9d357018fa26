//! The figures of a statement by place: bytes at media, link and host, CPU on both sides, waits and stalls (rule 34).
//!
//! Fragments leave a [`FragmentFigures`] in the statement's [`FigureLog`]; [`QueryFigures`] adds differences of totals
//! before and after the statement: process CPU, link traffic, media totals. Link and media figures so include
//! statements that run beside this one on the same device.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_fragment::command::RunReport;
use cleave_fragment::link::AttachMode;
use cleave_fragment::strip::Strip;

use cleave_engine::buffer_pool::PoolStatus;

use super::ongoing_run::OngoingRun;

/// The figures of one fragment on one device.
#[derive(Debug, Clone)]
pub struct FragmentFigures {
    /// Number of the fragment within its statement.
    pub number: usize,
    /// The table that it scans.
    pub table: String,
    /// Name of the device.
    pub device: String,
    /// How the device is attached.
    pub mode: AttachMode,
    /// What the device measured; `None` if it did not finish there.
    pub report: Option<RunReport>,
    /// Whether the plan left it to the host.
    pub is_planned_here: bool,
    /// Why it ran on another side than planned, where figures contradicted the plan.
    pub turned: Option<String>,
    /// Why the host ran it after all.
    pub refused: Option<String>,
    /// Why it was begun again on another copy of the mirror.
    pub begun_again: Option<String>,
    /// Pages of the table on that device, and how many of them were sent as morsels.
    pub pages: (usize, usize),
    /// Bytes of the serialised fragment.
    pub fragment_bytes: usize,
    /// Bytes of a slot of its ring.
    pub slot_bytes: u32,
    /// Rows that were made for it first, and their bytes; none where its joins need none.
    pub broadcast: Option<(usize, u64)>,
    /// Rows that came over the cut, or from the host's own part.
    pub rows: u64,
    /// Its rows went to other devices, and not to the host.
    pub is_for_devices: bool,
    /// The host's view of it; the device's work is in its report.
    pub timeline: HostTimeline,
    /// Bloom filters of keys that went down with it, and their bytes.
    pub key_filters: (usize, usize),
    /// Filters that the device took while it ran.
    pub filters_fed: u64,
    /// Morsels of the device's that the host took, and of how many.
    pub stolen: (usize, usize),
    /// Rows that the host made of them.
    pub stolen_rows: u64,
    /// What devices of other nodes took of it and have done, by their names.
    pub done_by_others: Vec<DoneByOther>,
    /// Why the host, having begun to take part, left everything to the device.
    pub left_alone: Option<String>,
    /// Time that the host waited for slots.
    pub waited: Duration,
}

/// The host's view of a fragment run, from its request on: when it waited for rows, in nanoseconds, and how many bytes
/// of slots it then had.
#[derive(Debug, Clone, Default)]
pub struct HostTimeline {
    /// Waiting.
    pub waited: Strip,
    /// Bytes.
    pub arrived: Strip,
    /// Rows that it had then.
    pub rows: u64,
}

/// What a device of another node has done of a run.
#[derive(Debug, Clone, Default)]
pub struct DoneByOther {
    /// Name of the device.
    pub device: String,
    /// Morsels.
    pub morsels: usize,
    /// Rows that it made of them.
    pub rows: u64,
    /// CPU time for that.
    pub cpu: Duration,
    /// Bytes that it read at their home for that.
    pub foreign_bytes: u64,
    /// Why it has not done the last morsels that it took.
    pub came_back: Option<String>,
}

/// Morsels of a fragment's devices that others have done, over all its runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DoneElsewhere {
    /// Morsels that the host took.
    pub by_host: usize,
    /// Morsels that devices of other nodes took.
    pub by_others: usize,
    /// Morsels in all.
    pub of: usize,
    /// Rows that were made of those that were taken.
    pub rows: u64,
}

impl DoneElsewhere {
    /// Adds what `figures` tell of one run.
    pub(crate) fn add(&mut self, figures: &FragmentFigures) {
        self.by_host += figures.stolen.0;
        self.by_others += figures.done_by_others.iter().map(|done| done.morsels).sum::<usize>();
        self.of += figures.stolen.1;
        self.rows += figures.stolen_rows;
        self.rows += figures.done_by_others.iter().map(|done| done.rows).sum::<u64>();
    }

    /// Whether others have done any.
    pub(crate) fn is_some(&self) -> bool {
        self.by_host + self.by_others > 0
    }
}

impl FragmentFigures {
    /// Those of the run of a fragment over `table` that is going to begin: its number, the device, and the bytes of the
    /// serialised fragment and of a slot.
    pub(crate) fn of_new_run(
        number: usize,
        (device, mode): (String, AttachMode),
        table: String,
        (fragment_bytes, slot_bytes): (usize, u32),
    ) -> Self {
        Self {
            number,
            table,
            device,
            mode,
            report: None,
            is_planned_here: false,
            turned: None,
            refused: None,
            begun_again: None,
            pages: (0, 0),
            fragment_bytes,
            slot_bytes,
            broadcast: None,
            rows: 0,
            is_for_devices: false,
            timeline: HostTimeline::default(),
            key_filters: (0, 0),
            filters_fed: 0,
            stolen: (0, 0),
            stolen_rows: 0,
            done_by_others: Vec::new(),
            left_alone: None,
            waited: Duration::ZERO,
        }
    }

    /// Morsels of the device's that it has not done itself, and of how many.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let (by_host, all) = self.stolen;
        let by_others: usize = self.done_by_others.iter().map(|done| done.morsels).sum();
        (by_host + by_others, all)
    }
}

/// The [`HostTimeline`] of a run that goes on.
pub type LiveTimeline = Arc<Mutex<HostTimeline>>;

/// Most runs of a statement that are noted while they go on.
const BEGUN_COUNT_MAX: usize = 64;

/// A fragment run on a device that has begun.
#[derive(Debug, Clone)]
struct BegunRun {
    /// The figures as they were when it began.
    figures: Arc<FragmentFigures>,
    timeline: LiveTimeline,
    /// To ask the device how far it is; None: it cannot be asked.
    ongoing: Option<OngoingRun>,
}

/// Collects the figures of a statement's fragments.
#[derive(Debug, Default)]
pub struct FigureLog {
    fragments: Mutex<Vec<FragmentFigures>>,
    begun: Mutex<Vec<BegunRun>>,
}

impl FigureLog {
    /// Notes that a run has begun, of which `figures` tell, and whose waits `timeline` gets. `ongoing` asks the device
    /// how far it is.
    pub fn begin(
        &self,
        figures: &FragmentFigures,
        timeline: &LiveTimeline,
        ongoing: Option<OngoingRun>,
    ) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.len() < BEGUN_COUNT_MAX {
            let figures = Arc::new(figures.clone());
            begun.push(BegunRun { figures, timeline: Arc::clone(timeline), ongoing });
        }
    }

    /// The runs that have begun, with their timelines up to the last rows that came, and how to ask the devices.
    pub fn begun(&self) -> Vec<(FragmentFigures, Option<OngoingRun>)> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seen = begun.into_iter().map(|BegunRun { figures, timeline, ongoing }| {
            let timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (FragmentFigures { timeline, ..FragmentFigures::clone(&figures) }, ongoing)
        });
        seen.collect()
    }

    /// The statement has ended: no device is asked about its runs any more.
    pub fn asks_no_more(&self) {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.iter().filter_map(|run| run.ongoing.as_ref()).for_each(OngoingRun::asks_no_more);
    }

    /// How many runs are noted, as begun or with what they reported; most that have ended are noted as both.
    pub fn note_count(&self) -> usize {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).len();
        begun + self.fragments.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Adds what one fragment reported.
    pub fn add(&self, figures: FragmentFigures) {
        self.fragments.lock().unwrap_or_else(PoisonError::into_inner).push(figures);
    }

    /// Takes what has been reported since the last time, in the order in which it came.
    pub fn take(&self) -> Vec<FragmentFigures> {
        std::mem::take(&mut *self.fragments.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has been reported so far, by fragment number, then by device.
    pub fn fragments(&self) -> Vec<FragmentFigures> {
        let mut fragments = self.fragments.lock().unwrap_or_else(PoisonError::into_inner).clone();
        fragments
            .sort_by(|one, other| (one.number, &one.device).cmp(&(other.number, &other.device)));
        fragments
    }
}

/// The figures of a whole statement.
#[derive(Debug, Clone, Default)]
pub struct QueryFigures {
    /// From the first poll to the last row, planning not included.
    pub elapsed: Duration,
    /// Of that, the time to begin and in which rows were asked for. The rest is that of their reader.
    pub asked: Duration,
    /// Time to bind, order and split the statement.
    pub planning: Duration,
    /// Rows of the result.
    pub rows: u64,
    /// Bytes that the devices read from their media.
    pub media_bytes: u64,
    /// Whether a device of the statement is behind a link; an embedded one hands its rows over in memory.
    pub has_link: bool,
    /// Bytes that crossed the links towards the host, or that embedded devices handed over.
    pub link_bytes_received: u64,
    /// Bytes that crossed the links towards the devices.
    pub link_bytes_sent: u64,
    /// What the buffer pool did meanwhile, for this statement and others; what it holds now.
    pub pool: PoolStatus,
    /// Bytes of pages and slots that the host took into its memory.
    pub host_bytes: u64,
    /// CPU time of the host process, without an embedded device's fragments.
    pub host_cpu: Duration,
    /// CPU time of the fragments on their devices.
    pub device_cpu: Duration,
    /// Time that the host waited for slots, summed over fragments.
    pub host_waited: Duration,
    /// Time that fragments stood still because all slots were full.
    pub device_stalled: Duration,
    /// Fragments that ran, or were to run, on a device.
    pub fragments: Vec<FragmentFigures>,
}
