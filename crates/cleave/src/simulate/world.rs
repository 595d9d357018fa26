//! The simulated world: events in the order of their virtual time, and what they change. A [`Scenario`] in, [`Figures`]
//! out.
//!
//! ```text
//!   statement ─ a run a device ─▶ host's cores ═ host's link ═ node's link ═▶ device: Lease, cores, ring of slots
//!                                   ▲    │                                      │ ▲
//!                                   │    └─ Pace, Part: revoke, read pages      │ └─ Engines: cores of idle siblings
//!                                   └════════ slots, answers, pages ◀═══════════┘
//! ```
//!
//! 1. [`World::run`] takes one event after the other. What a device does with it is in [`device_side`], what the host
//!    does in [`host_side`].
//! 2. Who takes which morsel, and when, is decided by the code that statements run by: [`Lease`], [`Part`], [`Pace`]
//!    and [`Engines`]. Only what these decide about is simulated: cores, links and messages are queues with rates.
//! 3. The queries of a batch are grouped by [`groups`], and begin in the order of their [`Course`]. A group is one
//!    statement here, whose morsels take longer and give more.
//! 4. A lost node takes nothing and says nothing. The host notices, and runs what was lost over the pages of a mirror,
//!    as it does for a lost device; without a mirror the statement fails.
//!
//! Invariants: equal scenarios give equal figures, but for the time that decisions take. Each morsel of a statement
//! that does not fail is run once ([`Figures::is_exact`]). Deliberately absent: messages that are lost or repeated,
//! which `cleave-sim` tries with the database itself; rows, media and their cache.
//!
//! [`Part`]: cleave_plan::pace::Part
//! [`Pace`]: cleave_plan::pace::Pace

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use cleave_fragment::Lease;
use cleave_fragment::queues::{Engines, Loan};
use cleave_media::{Clock, SplitMix64, SystemClock};
use cleave_plan::batch::{BatchQuery, Course, groups};

use super::scenario::{Batch, SECOND_NS, Scenario};
use host_side::HostPart;

mod device_side;
mod host_side;

/// Bytes of a message without rows, of a fragment, and of each morsel that comes with it.
const MESSAGE_BYTES: u64 = 64;
const FRAGMENT_BYTES: u64 = 4096;
const MORSEL_BYTES: u64 = 64;
/// The least score of queries that are grouped: they filter by the same column.
const REUSE_MIN: u64 = 10;
/// From the loss of a node to the host's notice: its connections are closed by then.
const NOTICE_NS: u64 = 1_000_000;

/// See the [module](self).
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    /// Of each device.
    morsels: Vec<u32>,
    tables: Vec<Table>,
    now: u64,
    /// Events of one moment keep their order.
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nodes: Vec<Node>,
    devices: Vec<Device>,
    host: Host,
    statements: Vec<Statement>,
    /// Of these, those that have begun, and those that are over.
    begun: usize,
    over: usize,
    /// The order in which groups of a batch begin.
    course: Option<Course>,
    /// Of statements that did not fail.
    work: f64,
    runs: Vec<Run>,
    figures: Figures,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    /// From the first statement's begin to the last one's end.
    pub(super) makespan_ns: u64,
    /// The same if all devices' cores were at work all the time; without statements that failed.
    pub(super) ideal_ns: u64,
    /// Statements, or the groups of a batch.
    pub(super) statements: u32,
    /// Queries that did not fail, and the morsels that they asked for.
    pub(super) queries: u64,
    pub(super) asked: u64,
    /// Of one statement.
    pub(super) statement_ns_max: u64,
    /// Core time of each device, in its own pace.
    pub(super) busy_ns: Vec<u64>,
    /// Morsels by who ran them: their own device, another one of its node, the host.
    pub(super) by_own: u64,
    pub(super) by_node: u64,
    pub(super) by_host: u64,
    /// Morsels that were run, and not counted because their run was lost.
    pub(super) lost: u64,
    pub(super) messages: u64,
    /// Core time of the host, and of its link from the devices.
    pub(super) host_busy_ns: u64,
    pub(super) link_busy_ns: u64,
    pub(super) link_bytes: u64,
    pub(super) failed: u32,
    /// From the loss to the end of the last statement that ran then.
    pub(super) after_loss_ns: Option<u64>,
    /// Statements whose morsels were not all run once, or that never ended: a defect.
    pub(super) inexact: u32,
    /// Decisions about who takes what, and the real time that they took.
    pub(super) decisions: u64,
    pub(super) decided: Duration,
}

impl Figures {
    /// Whether each morsel was run once.
    pub(super) fn is_exact(&self) -> bool {
        self.inexact == 0
    }
}

/// A process with some devices, and its link.
#[derive(Debug)]
struct Node {
    engines: Engines,
    /// Loans that wait, with the run and the partition that they are for.
    waiting: Vec<(Loan, usize, usize)>,
    up: Wire,
    down: Wire,
    is_lost: bool,
    /// The host knows.
    is_noticed: bool,
}

/// Compute and media of its own.
#[derive(Debug)]
struct Device {
    node: usize,
    /// Among those of its node.
    number: usize,
    slowness: f64,
    free_cores: u32,
    ready: VecDeque<Piece>,
    /// Runs that have not ended, in the order of their begin.
    runs: Vec<usize>,
    busy_ns: u64,
}

/// What a core of a device does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// Starts a run.
    Start { run: usize },
    /// Runs the next morsel that the partition has taken.
    Morsel { run: usize, partition: usize },
}

#[derive(Debug)]
struct Host {
    free_cores: u32,
    /// Messages come before morsels.
    messages: VecDeque<Job>,
    morsels: VecDeque<Job>,
    /// To and from the nodes.
    down: Wire,
    up: Wire,
    busy_ns: u64,
}

/// What a core of the host does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Send(usize, Down),
    Take(usize, Up),
    /// Runs the morsel at this place of a run, of its so-many-th attempt.
    Morsel {
        run: usize,
        attempt: u32,
        place: u32,
    },
}

/// From the host to a device, about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Down {
    Execute,
    Credit,
    Revoke { keep: u32 },
    Read { attempt: u32, place: u32 },
    Cancel,
}

/// From a device to the host, about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Up {
    Accepted,
    Slot { bytes: u64 },
    Kept { lease: Lease, stall_ns: u64 },
    Pages { attempt: u32, place: u32 },
    Report { kept: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message has left the host's link.
    ToNode {
        node: usize,
        run: usize,
        down: Down,
        bytes: u64,
    },
    AtNode {
        node: usize,
        run: usize,
        down: Down,
    },
    /// A message has left a node's link.
    ToHost {
        run: usize,
        up: Up,
        bytes: u64,
    },
    AtHost {
        run: usize,
        up: Up,
    },
    Done {
        device: usize,
        piece: Piece,
        ns: u64,
    },
    HostDone {
        job: Job,
        ns: u64,
    },
    /// The host looks again whether it should take morsels of a run.
    Look {
        run: usize,
        attempt: u32,
    },
    Lost {
        node: usize,
    },
    Noticed {
        node: usize,
    },
}

/// Bytes that pass one after the other.
#[derive(Debug, Default)]
struct Wire {
    bytes_per_second: u64,
    free_at: u64,
    busy_ns: u64,
    bytes: u64,
}

impl Wire {
    fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, ..Self::default() }
    }

    /// When so many bytes, which are there `now`, are through.
    fn carry(&mut self, now: u64, bytes: u64) -> u64 {
        let takes = takes_ns(bytes, self.bytes_per_second);
        self.free_at = self.free_at.max(now).saturating_add(takes);
        self.busy_ns = self.busy_ns.saturating_add(takes);
        self.bytes = self.bytes.saturating_add(bytes);
        self.free_at
    }
}

/// The devices that have morsels of a table.
#[derive(Debug)]
struct Table {
    homes: Vec<usize>,
    /// Core time for all its morsels, in units of the mean.
    work: f64,
}

/// A query, or a group of a batch's that are answered by one reading.
#[derive(Debug, Default)]
struct Statement {
    table: usize,
    queries: usize,
    begun_ns: u64,
    parts_left: usize,
    has_failed: bool,
    is_over: bool,
}

/// A fragment's run over the morsels of one device.
#[derive(Debug)]
struct Run {
    statement: usize,
    /// Queries that it answers, and what a morsel takes for them.
    queries: u64,
    factor: f64,
    /// The device of its morsels, and the one that runs it: another one where that is lost.
    home: usize,
    device: usize,
    morsels: u32,
    lease: Lease,
    partitions: Vec<Partition>,
    /// Partitions that have not ended.
    working: usize,
    ring: Ring,
    host: HostPart,
    /// How often each morsel was run.
    ran: Vec<u8>,
    /// The device knows that nobody wants its rows.
    is_cancelled: bool,
    /// Nobody wants more of it.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Partition {
    /// A sibling's core, for which it may have to wait.
    loan: Option<Loan>,
    is_granted: bool,
    /// Places of the morsels that it has taken: the present one and those ahead.
    held: VecDeque<u32>,
    /// Bytes of rows that are not in a slot yet.
    gathered: u64,
}

/// The slots of a run.
#[derive(Debug, Default)]
struct Ring {
    sent: u64,
    /// Without credit.
    outstanding: u32,
    /// Partitions that wait for credit.
    waiting: VecDeque<usize>,
    stall_ns: u64,
    stalls_since: Option<u64>,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let mut nodes: Vec<Node> = Vec::new();
        let mut devices = Vec::new();
        for device in 0..scenario.devices {
            if device % scenario.per_node == 0 {
                let wire = || Wire::new(scenario.node_rate);
                nodes.push(Node {
                    engines: Engines::default(),
                    waiting: Vec::new(),
                    up: wire(),
                    down: wire(),
                    is_lost: false,
                    is_noticed: false,
                });
            }
            let node = device / scenario.per_node;
            devices.push(Device {
                node,
                number: nodes[node].engines.add(scenario.cores),
                slowness: scenario.slowness(device),
                free_cores: scenario.cores,
                ready: VecDeque::new(),
                runs: Vec::new(),
                busy_ns: 0,
            });
        }
        let morsels = scenario.morsels_by_device();
        let table_count = scenario.batch.as_ref().map_or(1, |batch| batch.tables.max(1) as usize);
        let table = |table: usize| {
            let counts = morsels.iter().enumerate().skip(table).step_by(table_count);
            let lies_there = counts.filter(|(_, count)| **count > 0);
            let work: f64 =
                lies_there.clone().map(|(home, count)| scenario.work(home, *count)).sum();
            Table { homes: lies_there.map(|(home, _)| home).collect(), work }
        };
        let tables: Vec<Table> = (0..table_count).map(table).collect();
        let (statements, course) = match &scenario.batch {
            Some(batch) => grouped(scenario, batch, &tables),
            None => {
                let one = || Statement { queries: 1, ..Statement::default() };
                ((0..scenario.statements).map(|_| one()).collect(), None)
            }
        };
        Self {
            scenario,
            morsels,
            tables,
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            nodes,
            devices,
            host: Host {
                free_cores: scenario.host.cores,
                messages: VecDeque::new(),
                morsels: VecDeque::new(),
                down: Wire::new(scenario.host_rate),
                up: Wire::new(scenario.host_rate),
                busy_ns: 0,
            },
            statements,
            begun: 0,
            over: 0,
            course,
            work: 0.0,
            runs: Vec::new(),
            figures: Figures::default(),
        }
    }

    /// Runs all statements to their end.
    pub(super) fn run(mut self) -> Figures {
        if let Some((device, at)) = self.scenario.lost {
            self.at(at, Event::Lost { node: device / self.scenario.per_node });
        }
        self.begin_statements();
        while self.over < self.statements.len()
            && let Some(Reverse((now, _, event))) = self.events.pop()
        {
            self.now = now;
            self.take(event);
        }
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        Figures {
            inexact: self.figures.inexact + count(self.statements.len() - self.over),
            statements: count(self.statements.len()),
            ideal_ns: self.scenario.ideal_ns(self.work),
            busy_ns: self.devices.iter().map(|device| device.busy_ns).collect(),
            host_busy_ns: self.host.busy_ns,
            link_busy_ns: self.host.up.busy_ns,
            link_bytes: self.host.up.bytes.saturating_add(self.host.down.bytes),
            ..self.figures
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::ToNode { node, run, down, bytes } => {
                if !self.nodes[node].is_lost {
                    let through = self.nodes[node].down.carry(self.now, bytes);
                    self.after(through, self.hop_ns(), Event::AtNode { node, run, down });
                }
            }
            Event::AtNode { node, run, down } => {
                if !self.nodes[node].is_lost {
                    self.hear(run, down);
                    self.lend(node);
                }
            }
            Event::ToHost { run, up, bytes } => {
                let through = self.host.up.carry(self.now, bytes);
                self.after(through, self.hop_ns(), Event::AtHost { run, up });
            }
            Event::AtHost { run, up } => self.arrive(run, up),
            Event::Done { device, piece, ns } => {
                let node = self.devices[device].node;
                if !self.nodes[node].is_lost {
                    self.done(device, piece, ns);
                    self.lend(node);
                }
            }
            Event::HostDone { job, ns } => self.host_done(job, ns),
            Event::Look { run, attempt } => self.look_again(run, attempt),
            Event::Lost { node } => self.lose(node),
            Event::Noticed { node } => self.notice(node),
        }
    }

    /// Begins all statements that may begin now.
    fn begin_statements(&mut self) {
        while let Some(statement) = self.next_statement() {
            self.begun += 1;
            let homes = &self.tables[self.statements[statement].table].homes;
            let reached = homes.iter().map(|home| Some((*home, self.reachable(*home)?)));
            let parts: Option<Vec<(usize, usize)>> = reached.collect();
            self.statements[statement].begun_ns = self.now;
            // One whose pages cannot be reached fails at once.
            let Some(parts) = parts else {
                self.statements[statement].has_failed = true;
                self.leave(statement);
                continue;
            };
            self.statements[statement].parts_left = parts.len();
            let counts: Vec<u32> = parts.iter().map(|(home, _)| self.morsels[*home]).collect();
            let factor = self.scenario.of_members(self.statements[statement].queries);
            let sharing = self.scenario.sharing(&counts, factor);
            for part in parts {
                self.begin_run(statement, sharing, part);
            }
            if self.statements[statement].parts_left == 0 {
                self.leave(statement);
            }
        }
    }

    fn next_statement(&mut self) -> Option<usize> {
        if let Some(course) = &mut self.course {
            return course.begin();
        }
        let is_free = self.begun - self.over < self.scenario.at_once as usize;
        Some(self.begun).filter(|next| is_free && *next < self.statements.len())
    }

    /// The device to ask for the pages of `home`: as far as the host knows, it answers.
    fn reachable(&self, home: usize) -> Option<usize> {
        let answers = |device: &usize| !self.nodes[self.devices[*device].node].is_noticed;
        Some(home).filter(answers).or_else(|| self.scenario.copy_of(home).filter(answers))
    }

    /// A part of a statement has come to its end.
    fn end_part(&mut self, run: usize) {
        let statement = self.runs[run].statement;
        self.runs[run].is_over = true;
        let is_exact = self.runs[run].ran.iter().all(|times| *times == 1);
        self.runs[run].ran = Vec::new();
        self.figures.inexact += u32::from(!is_exact);
        let parts_left = &mut self.statements[statement].parts_left;
        *parts_left = parts_left.saturating_sub(1);
        if *parts_left == 0 {
            self.end_statement(statement);
        }
    }

    /// Others may begin when a statement has come to its end.
    fn end_statement(&mut self, statement: usize) {
        let begun_ns = self.statements[statement].begun_ns;
        self.figures.makespan_ns = self.now;
        let took_ns = self.now - begun_ns;
        self.figures.statement_ns_max = self.figures.statement_ns_max.max(took_ns);
        if let Some((_, lost_ns)) = self.scenario.lost
            && (begun_ns..=self.now).contains(&lost_ns)
        {
            let after_ns = self.now - lost_ns;
            let longest_ns = self.figures.after_loss_ns.unwrap_or_default().max(after_ns);
            self.figures.after_loss_ns = Some(longest_ns);
        }
        self.leave(statement);
        self.begin_statements();
    }

    fn leave(&mut self, statement: usize) {
        let Statement { table, queries, has_failed, .. } = self.statements[statement];
        self.statements[statement].is_over = true;
        self.over += 1;
        if let Some(course) = &mut self.course {
            course.ended(statement);
        }
        if has_failed {
            self.figures.failed += 1;
            return;
        }
        let Table { homes, work } = &self.tables[table];
        self.work += work * self.scenario.of_members(queries);
        let morsels: u64 = homes.iter().map(|home| u64::from(self.morsels[*home])).sum();
        self.figures.queries += queries as u64;
        self.figures.asked += queries as u64 * morsels;
    }

    // ---- loss --------------------------------------------------------------------------------------

    fn lose(&mut self, node: usize) {
        self.nodes[node].is_lost = true;
        self.nodes[node].waiting.clear();
        for device in self.devices.iter_mut().filter(|device| device.node == node) {
            device.ready.clear();
            device.runs.clear();
        }
        self.after(self.now, NOTICE_NS, Event::Noticed { node });
    }

    /// The connections to a node are gone: what ran there is run over the pages of a mirror, or fails.
    fn notice(&mut self, node: usize) {
        self.nodes[node].is_noticed = true;
        for run in 0..self.runs.len() {
            let Run { home, device, is_over, .. } = self.runs[run];
            if is_over || self.devices[device].node != node {
                continue;
            }
            match self.reachable(home) {
                Some(copy) => self.redo(run, copy),
                None => self.fail(self.runs[run].statement),
            }
        }
    }

    /// A statement cannot be run to its end: its other parts are cancelled.
    fn fail(&mut self, statement: usize) {
        if self.statements[statement].is_over {
            return;
        }
        for run in 0..self.runs.len() {
            if self.runs[run].statement == statement && !self.runs[run].is_over {
                self.runs[run].is_over = true;
                self.runs[run].ran = Vec::new();
                self.say(run, Down::Cancel);
            }
        }
        self.statements[statement].has_failed = true;
        self.end_statement(statement);
    }

    // ---- messages ----------------------------------------------------------------------------------

    /// Sends a message about a run to the device that has its pages.
    fn send(&mut self, run: usize, down: Down) {
        let bytes = match down {
            Down::Execute => FRAGMENT_BYTES + MORSEL_BYTES * u64::from(self.runs[run].morsels),
            _ => MESSAGE_BYTES,
        };
        self.figures.messages += 1;
        let node = self.devices[self.runs[run].device].node;
        let through = self.host.down.carry(self.now, bytes);
        self.after(through, self.hop_ns(), Event::ToNode { node, run, down, bytes });
    }

    /// A device's message about a run, to the host.
    fn answer(&mut self, run: usize, up: Up) {
        let bytes = match up {
            Up::Slot { bytes } => bytes + MESSAGE_BYTES,
            Up::Pages { .. } => self.scenario.page_bytes + MESSAGE_BYTES,
            _ => MESSAGE_BYTES,
        };
        self.figures.messages += 1;
        let node = self.devices[self.runs[run].device].node;
        let through = self.nodes[node].up.carry(self.now, bytes);
        self.after(through, self.hop_ns(), Event::ToHost { run, up, bytes });
    }

    /// As much later than `time`, or at the end of all time.
    fn after(&mut self, time: u64, ns: u64, event: Event) {
        self.at(time.saturating_add(ns), event);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// A message passes two links; each is a quarter of a round trip.
    fn hop_ns(&self) -> u64 {
        self.scenario.round_trip_ns / 4
    }

    // ---- decisions ---------------------------------------------------------------------------------

    /// Runs a decision of the scheduling code, and notes what it really takes.
    fn decide<T>(&mut self, decision: impl FnOnce(&mut Self) -> T) -> T {
        let before = SystemClock.now();
        let decided = decision(self);
        self.figures.decisions += 1;
        self.figures.decided += SystemClock.now().saturating_sub(before);
        decided
    }
}

/// The groups of a batch, and the order in which they begin.
fn grouped(
    scenario: &Scenario,
    batch: &Batch,
    tables: &[Table],
) -> (Vec<Statement>, Option<Course>) {
    let mut random = SplitMix64::new(scenario.seed);
    let mut below =
        |count: u32| u32::try_from(random.below(u64::from(count.max(1)))).unwrap_or_default();
    let mut queries = Vec::new();
    let mut places = Vec::new();
    for _ in 0..scenario.statements {
        let (table, column) = (below(batch.tables), below(batch.columns));
        let homes = tables.get(table as usize).map(|table| table.homes.as_slice());
        let devices = homes.unwrap_or_default().iter();
        places.push(table as usize);
        queries.push(BatchQuery {
            devices: devices.filter_map(|home| u32::try_from(*home).ok()).collect(),
            filters: BTreeSet::from([(table, column)]),
            // A column that none of them filters by.
            outputs: BTreeSet::from([(table, batch.columns)]),
        });
    }
    let groups = groups(&queries, REUSE_MIN, batch.size_max);
    let course = Course::of_groups(&groups, &queries);
    let statement = |group: &Vec<usize>| {
        let table = group.first().and_then(|first| places.get(*first)).copied();
        let table = table.unwrap_or_default();
        Statement { table, queries: group.len(), ..Statement::default() }
    };
    (groups.iter().map(statement).collect(), Some(course))
}

/// Nanoseconds for so many bytes at a rate.
fn takes_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(bytes_per_second.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
