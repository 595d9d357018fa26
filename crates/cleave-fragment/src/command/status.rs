//! Statuses: how a command failed, how a run went, how a device is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::metrics::{
    Count, Gauge, Label, Metric, MetricValue, MetricsSet, Time,
};

use crate::filter_history::HistoryFigures;
use crate::strip::Strip;

/// Why a command failed, as a status and never as a dropped connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeviceError {
    /// The cause, on which the host can act.
    pub cause: DeviceErrorCause,
    /// The details, with names and figures.
    pub message: String,
}

impl DeviceError {
    /// An error of `cause` that reads `message`.
    pub fn new(cause: DeviceErrorCause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }
}

/// Causes, by what the host can do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceErrorCause {
    /// A write outside what this database reserved in this epoch: reserve, then repeat.
    NotReserved,
    /// Bytes fail their checksum: written ones were damaged in transit, read ones on the media.
    Corrupt,
    /// The request makes no sense or breaks a limit: a mistake of the host.
    Refused,
    /// The fragment's memory does not fit, now or ever: run it on the host.
    OutOfMemory,
    /// The media cannot grow.
    OutOfSpace,
    /// A command or operator that this device does not know: do it on the host.
    Unsupported,
    /// The token is wrong.
    Unauthenticated,
    /// The run was cancelled.
    Cancelled,
    /// No such run, as after a restart: begin a new one.
    UnknownRun,
    /// A newer incarnation of the database, or of a copied folder of it, has claimed the device: this one is over.
    StaleEpoch,
    /// The media has failed.
    Io,
    /// An operator of the fragment failed for a reason without a name of its own.
    Execution,
    /// An expression divided by zero: the statement's fault, as it would be on the host.
    DivideByZero,
    /// A result is out of its type's range: likewise.
    Overflow,
    /// A value does not convert: likewise.
    InvalidValue,
    /// The device belongs to another database: attach another one.
    OtherDatabase,
    /// The device is unowned, or owned by an older epoch: claim it, then repeat.
    NotClaimed,
    /// A fragment has filled the pages that were reserved for it: reserve more, then run it again.
    OutOfReserved,
    /// Another transaction has locked a row, and the fragment was not to wait: the statement's fault.
    LockNotAvailable,
    /// Another transaction has had a row for longer than the fragment was to wait: the statement's fault.
    LockTimeout,
    /// Another device that the run takes pages or rows from cannot be reached, was lost, or sent what is wrong: run it
    /// on the host.
    Peer,
}

impl DeviceErrorCause {
    const ALL: [Self; 21] = [
        Self::NotReserved,
        Self::Corrupt,
        Self::Refused,
        Self::OutOfMemory,
        Self::OutOfSpace,
        Self::Unsupported,
        Self::Unauthenticated,
        Self::Cancelled,
        Self::UnknownRun,
        Self::StaleEpoch,
        Self::Io,
        Self::Execution,
        Self::DivideByZero,
        Self::Overflow,
        Self::InvalidValue,
        Self::OtherDatabase,
        Self::NotClaimed,
        Self::OutOfReserved,
        Self::LockNotAvailable,
        Self::LockTimeout,
        Self::Peer,
    ];

    /// Its number on the wire.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::NotReserved => 1,
            Self::Corrupt => 2,
            Self::Refused => 3,
            Self::OutOfMemory => 4,
            Self::OutOfSpace => 5,
            Self::Unsupported => 6,
            Self::Unauthenticated => 7,
            Self::Cancelled => 8,
            Self::UnknownRun => 9,
            Self::StaleEpoch => 10,
            Self::Io => 11,
            Self::Execution => 12,
            Self::DivideByZero => 13,
            Self::Overflow => 14,
            Self::InvalidValue => 15,
            Self::OtherDatabase => 16,
            Self::NotClaimed => 17,
            Self::OutOfReserved => 18,
            Self::LockNotAvailable => 19,
            Self::LockTimeout => 20,
            Self::Peer => 21,
        }
    }

    /// The cause with this number on the wire.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }
}

/// How a run went, sent after its last slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunReport {
    /// Rows in all slots.
    pub rows: u64,
    /// Slots sent.
    pub slots: u64,
    /// Bytes of all slots, as they crossed.
    pub slot_bytes: u64,
    /// Bytes that the run requested of media.
    pub media_bytes: u64,
    /// Of these, bytes of the media of other devices.
    pub foreign_bytes: u64,
    /// Slots that it took of runs of other devices.
    pub peer_slots: u64,
    /// Bytes of these, as they crossed.
    pub peer_bytes: u64,
    /// Pages that it read.
    pub pages_read: u64,
    /// Morsels that it took.
    pub morsels: u64,
    /// Rows that it looked at, before any predicate: those that an index found, or all rows of a page.
    pub rows_scanned: u64,
    /// CPU time of the threads that worked for it, summed over partitions and page reads.
    pub cpu: Duration,
    /// Time during which at least one partition waited for the host to consume a slot.
    pub stall: Duration,
    /// From admission to the last slot.
    pub wall: Duration,
    /// Most bytes that its operators held at once.
    pub peak_memory_bytes: u64,
    /// Partitions of the pipeline that ran on the device's own cores.
    pub partitions: u32,
    /// Morsels that other engines of the device's node took.
    pub lent: u64,
    /// Morsels that it kept of the streamed input, from the front: the last answer to revoke (rule 11).
    pub kept: u32,
    /// CPU time of its threads, in nanoseconds, from when the run was requested.
    pub worked: Strip,
    /// Time during which at least one partition waited for the host, likewise.
    pub stalled: Strip,
    /// Metrics of its operators.
    pub operators: Vec<OperatorMetric>,
}

impl RunReport {
    /// What other engines of the device's node did of it, in words; None: nothing.
    pub fn lent_text(&self) -> Option<String> {
        let Self { lent, morsels, .. } = self;
        (*lent > 0).then(|| format!("{lent} of {morsels} morsels"))
    }
}

/// One metric of one operator, folded over partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorMetric {
    /// The operator's position in the plan, in preorder.
    pub node: u32,
    /// The metric's name.
    pub name: String,
    /// Its value; nanoseconds for times.
    pub value: u64,
    /// What the value is.
    pub kind: MetricKind,
}

/// What a metric's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Rows that the operator emitted.
    OutputRows,
    /// Bytes that it emitted.
    OutputBytes,
    /// Batches that it emitted.
    OutputBatches,
    /// CPU time spent in it.
    ElapsedCompute,
    /// Another time.
    Time,
    /// Another count.
    Count,
    /// A level, such as memory used.
    Gauge,
}

/// Reads the metrics of every node of `plan`, in preorder.
pub fn operator_metrics(plan: &Arc<dyn ExecutionPlan>) -> Vec<OperatorMetric> {
    let mut found = Vec::new();
    let mut nodes = vec![Arc::clone(plan)];
    let mut node = 0;
    while let Some(current) = nodes.pop() {
        if let Some(metrics) = current.metrics() {
            for metric in metrics.aggregate_by_name().iter() {
                let value = metric.value();
                let Some(kind) = kind_of(value) else { continue };
                let name = value.name().to_owned();
                found.push(OperatorMetric { node, name, value: value.as_usize() as u64, kind });
            }
        }
        node += 1;
        nodes.extend(current.children().into_iter().rev().map(Arc::clone));
    }
    found
}

/// Rebuilds the result of [`operator_metrics`] for a plan of `node_count` nodes; metrics of other nodes are left out.
pub fn metrics_sets(metrics: &[OperatorMetric], node_count: usize) -> Vec<MetricsSet> {
    let mut sets: Vec<MetricsSet> = (0..node_count).map(|_| MetricsSet::new()).collect();
    for metric in metrics {
        let node = usize::try_from(metric.node).unwrap_or(usize::MAX);
        let Some(set) = sets.get_mut(node) else { continue };
        let labels = vec![Label::new("side", "device")];
        set.push(Arc::new(Metric::new_with_labels(metric_value(metric), None, labels)));
    }
    sets
}

fn kind_of(value: &MetricValue) -> Option<MetricKind> {
    Some(match value {
        MetricValue::OutputRows(_) => MetricKind::OutputRows,
        MetricValue::OutputBytes(_) => MetricKind::OutputBytes,
        MetricValue::OutputBatches(_) => MetricKind::OutputBatches,
        MetricValue::ElapsedCompute(_) => MetricKind::ElapsedCompute,
        MetricValue::Time { .. } => MetricKind::Time,
        MetricValue::Count { .. }
        | MetricValue::SpillCount(_)
        | MetricValue::SpilledBytes(_)
        | MetricValue::SpilledRows(_) => MetricKind::Count,
        MetricValue::Gauge { .. } | MetricValue::PeakMemoryUsage { .. } => MetricKind::Gauge,
        _ => return None,
    })
}

fn metric_value(metric: &OperatorMetric) -> MetricValue {
    let level = usize::try_from(metric.value).unwrap_or(usize::MAX);
    let count = || {
        let count = Count::new();
        count.add(level);
        count
    };
    let time = || {
        let time = Time::new();
        time.add_duration(Duration::from_nanos(metric.value));
        time
    };
    let name = || metric.name.clone().into();
    match metric.kind {
        MetricKind::OutputRows => MetricValue::OutputRows(count()),
        MetricKind::OutputBytes => MetricValue::OutputBytes(count()),
        MetricKind::OutputBatches => MetricValue::OutputBatches(count()),
        MetricKind::ElapsedCompute => MetricValue::ElapsedCompute(time()),
        MetricKind::Time => MetricValue::Time { name: name(), time: time() },
        MetricKind::Count => MetricValue::Count { name: name(), count: count() },
        MetricKind::Gauge => {
            let gauge = Gauge::new();
            gauge.set(level);
            MetricValue::Gauge { name: name(), gauge }
        }
    }
}

/// The status of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceStatus {
    /// Changes with every start of the device: a start forgets reservations and runs, and writes that were not synced
    /// may be lost.
    pub incarnation: u64,
    /// Bytes that fragments may use, in all.
    pub fragment_memory_bytes: u64,
    /// Bytes of them that no run holds.
    pub fragment_memory_bytes_free: u64,
    /// Blocks of media.
    pub block_count: u64,
    /// Blocks that the database may write in this epoch.
    pub reserved_block_count: u64,
    /// Bytes read from the media since the device started.
    pub media_bytes_read: u64,
    /// Bytes written to the media since the device started.
    pub media_bytes_written: u64,
    /// Its filter history.
    pub history: HistoryFigures,
    /// Runs that were not released, by number.
    pub runs: Vec<RunStatus>,
    /// Morsels that its runs have not begun, of the inputs that stream through them.
    pub queue: u64,
}

/// The status of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStatus {
    /// Its number.
    pub run: u64,
    /// Its state.
    pub state: RunState,
    /// Slots that it made.
    pub slots: u64,
    /// Slots that the host consumed.
    pub consumed: u64,
    /// Bytes that it was admitted with.
    pub memory_bytes: u64,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Waits for memory.
    Queued,
    /// Works.
    Running,
    /// Waits for the host to consume a slot, or to extend its space.
    Stalled,
    /// Made its last slot.
    Finished,
    /// Ended early.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Stalled => "stalled",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}
