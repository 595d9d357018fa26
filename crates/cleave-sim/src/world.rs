//! The world of one run: its time, its randomness, its trace, and whether the host has power.
//!
//! Invariant: all randomness that decides anything comes from here, and all events are recorded here, in order. A world
//! belongs to one thread; [`with`] finds it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use cleave_media::SplitMix64;
use cleave_media::files::Files;
use cleave_media::simulation::World;

use crate::files::SimFiles;
use crate::machine::Machine;

/// Simulated time after which a run counts as hanging.
const LIMIT: Duration = Duration::from_secs(3600);

/// How often each fault happens, in thousandths of its opportunities; a seed leaves some out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// A command is lost with its connection before it reaches the device.
    pub command_lost: u64,
    /// The same, but it reaches the device late.
    pub command_late: u64,
    /// The reply is lost with its connection.
    pub reply_lost: u64,
    /// A command is served twice.
    pub command_twice: u64,
    /// A command or reply takes far longer than others.
    pub long_delay: u64,
    /// Media fails to read.
    pub read_error: u64,
    /// A read returns corrupted bytes, once.
    pub read_flip: u64,
    /// A write fails after part of it was written.
    pub write_error: u64,
    /// A sync or a growth of media fails.
    pub sync_error: u64,
    /// A change of the host's files fails.
    pub file_error: u64,
}

impl Rates {
    /// The rates of a run: each fault off, rare or frequent.
    pub fn draw(random: &mut SplitMix64) -> Self {
        let mut rate = |frequent: u64| [0, 0, frequent / 5, frequent][index(random, 4)];
        Self {
            command_lost: rate(30),
            command_late: rate(20),
            reply_lost: rate(30),
            command_twice: rate(60),
            long_delay: rate(50),
            read_error: rate(20),
            read_flip: rate(20),
            write_error: rate(30),
            sync_error: rate(60),
            file_error: rate(40),
        }
    }

    /// Whether any of them causes failures, and not only delays and repetitions.
    #[must_use]
    pub fn make_failures(&self) -> bool {
        let link = self.command_lost + self.command_late + self.reply_lost;
        let media = self.read_error + self.read_flip + self.write_error + self.sync_error;
        link + media + self.file_error > 0
    }
}

/// A random index below `count`, which is above 0.
pub fn index(random: &mut SplitMix64, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).unwrap_or(0)
}

/// The fault of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// It is lost with its connection.
    Lost,
    /// It is executed, and its reply is lost with the connection.
    Unheard,
    /// It is lost with its connection, but reaches the device late.
    Late,
    /// It is served twice.
    Twice,
    /// The machine loses its power before it executes it, and is down for a while.
    DiesBefore,
    /// The machine loses its power after it has executed it, and before it replies.
    DiesAfter,
}

impl LinkFault {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Lost, Self::Unheard, Self::Late, Self::Twice, Self::DiesBefore, Self::DiesAfter];
}

/// What devices have had from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeersServed {
    /// Reads of pages that were answered.
    pub reads: u64,
    /// Outputs of runs that were attached to.
    pub outputs: u64,
}

/// The fault at the beginning of a protocol step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepFault {
    /// It fails, if it can.
    Fails,
    /// The host loses its power.
    PowerGoes,
}

/// See the [module](self).
pub struct SimWorld {
    now: Cell<Duration>,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    timer_count: Cell<u64>,
    /// Randomness of the world's decisions.
    random: RefCell<SplitMix64>,
    /// Randomness of the program: identities and the like.
    drawn: RefCell<SplitMix64>,
    trace: RefCell<Vec<String>>,
    /// The present rates; all zero while the run checks itself.
    rates: Cell<Rates>,
    host_has_power: Cell<bool>,
    /// Changes of media and files that the host makes before its power fails.
    host_fuse: Cell<Option<u64>>,
    /// Changes that it has made.
    change_count: Cell<u64>,
    /// A step of the program's protocols, and its fault when it begins next.
    step_fuse: Cell<Option<(&'static str, StepFault)>>,
    /// Whether media acknowledge a sync without doing it.
    media_lies: Cell<bool>,
    /// How many commands hosts have sent, and devices to each other, and the fault of one of them.
    command_count: Cell<u64>,
    link_fuse: Cell<Option<(u64, LinkFault)>>,
    peer_command_count: Cell<u64>,
    peer_fuse: Cell<Option<(u64, LinkFault)>>,
    /// Reads that devices answered one another, and outputs that they let one another attach to.
    peers_served: Cell<PeersServed>,
    /// The machines, which others find by their names.
    machines: RefCell<Vec<Weak<Machine>>>,
    /// Until when no message goes from one machine to another.
    cuts: RefCell<BTreeMap<(&'static str, &'static str), Duration>>,
    /// Whether commands are neither counted nor fail.
    link_rests: Cell<bool>,
    /// Free bytes of each disk; None if unlimited.
    room: [Cell<Option<i64>>; Disk::ALL.len()],
    files: SimFiles,
    /// The waker of the main task, and whether nothing can wake it any more.
    main: RefCell<Option<Waker>>,
    stuck: Cell<Option<&'static str>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<SimWorld>>> = const { RefCell::new(None) };
}

/// Calls `look` with this thread's world.
///
/// # Panics
/// Outside of a run.
pub fn with<T>(look: impl FnOnce(&SimWorld) -> T) -> T {
    let world = CURRENT.with_borrow(Option::clone).expect("a simulated thread has a world");
    look(&world)
}

/// Writes `line` into the trace.
pub fn log(line: impl fmt::Display) {
    with(|world| world.log(&line));
}

/// Whether a fault of `rate` happens now.
pub fn happens(rate: impl FnOnce(&Rates) -> u64) -> bool {
    with(|world| {
        let rate = rate(&world.rates.get());
        rate > 0 && world.below(1000) < rate
    })
}

/// A random number below `bound`.
pub fn below(bound: u64) -> u64 {
    with(|world| world.below(bound))
}

impl SimWorld {
    /// The world of `seed`, with its files under `directory`.
    #[must_use]
    pub fn new(seed: u64, directory: &std::path::Path) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::default(),
            timers: RefCell::default(),
            timer_count: Cell::default(),
            random: RefCell::new(SplitMix64::new(seed)),
            drawn: RefCell::new(SplitMix64::new(!seed)),
            trace: RefCell::default(),
            rates: Cell::default(),
            host_has_power: Cell::new(true),
            host_fuse: Cell::default(),
            change_count: Cell::default(),
            step_fuse: Cell::default(),
            media_lies: Cell::default(),
            command_count: Cell::default(),
            link_fuse: Cell::default(),
            peer_command_count: Cell::default(),
            peer_fuse: Cell::default(),
            peers_served: Cell::default(),
            machines: RefCell::default(),
            cuts: RefCell::default(),
            link_rests: Cell::default(),
            room: Default::default(),
            files: SimFiles::new(directory),
            main: RefCell::default(),
            stuck: Cell::default(),
        })
    }

    /// Makes this the thread's world, or removes it.
    pub(crate) fn install(world: Option<Rc<Self>>) {
        CURRENT.set(world);
    }

    /// Writes `line` into the trace.
    pub fn log(&self, line: &dyn fmt::Display) {
        let line = line.to_string().replace(&self.files.directory().display().to_string(), "DIR");
        self.trace.borrow_mut().push(format!("{:>12?} {line}", self.now.get()));
    }

    /// Takes the trace.
    pub fn take_trace(&self) -> Vec<String> {
        self.trace.take()
    }

    /// A random number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Sets the rates of faults.
    pub fn set_rates(&self, rates: Rates) {
        self.rates.set(rates);
    }

    /// Whether media acknowledge a sync and do nothing.
    pub fn set_media_lies(&self, lies: bool) {
        self.media_lies.set(lies);
    }

    /// See [`SimWorld::set_media_lies`].
    pub fn media_lies(&self) -> bool {
        self.media_lies.get()
    }

    /// Applies `fault` to the command with this number, counted from 0.
    pub fn fail_link_at(&self, number: u64, fault: LinkFault) {
        self.link_fuse.set(Some((number, fault)));
    }

    /// Suspends or resumes the faults of the link: commands do not count meanwhile.
    pub fn let_link_rest(&self, rests: bool) {
        self.link_rests.set(rests);
    }

    /// How many commands have been sent over the link, except while it rests.
    pub fn command_count(&self) -> u64 {
        self.command_count.get()
    }

    /// Counts a command over the link, and returns its fault.
    pub(crate) fn link_command(&self) -> Option<LinkFault> {
        self.counted("the link", &self.command_count, &self.link_fuse)
    }

    /// Applies `fault` to the command of one device to another with this number, counted from 0.
    pub fn fail_peers_at(&self, number: u64, fault: LinkFault) {
        self.peer_fuse.set(Some((number, fault)));
    }

    /// How many commands devices have sent to each other, except while links rest.
    pub fn peer_command_count(&self) -> u64 {
        self.peer_command_count.get()
    }

    /// Counts a command of one device to another, and returns its fault.
    pub(crate) fn peer_command(&self) -> Option<LinkFault> {
        self.counted("a link between devices", &self.peer_command_count, &self.peer_fuse)
    }

    fn counted(
        &self,
        what: &str,
        count: &Cell<u64>,
        fuse: &Cell<Option<(u64, LinkFault)>>,
    ) -> Option<LinkFault> {
        if self.link_rests.get() {
            return None;
        }
        let number = count.replace(count.get() + 1);
        let (_, fault) = fuse.get().filter(|(at, _)| *at == number)?;
        self.log(&format_args!("event: {what} fails: {fault:?}"));
        Some(fault)
    }

    // ---- the network between machines ----------------------------------------------------------

    /// Adds a machine, which others then find.
    pub(crate) fn enter(&self, machine: &Arc<Machine>) {
        self.machines.borrow_mut().push(Arc::downgrade(machine));
    }

    /// The machine of this name that was added last, if it is still there.
    pub(crate) fn machine(&self, name: &str) -> Option<Arc<Machine>> {
        let machines = self.machines.borrow();
        let mut there = machines.iter().rev().filter_map(Weak::upgrade);
        there.find(|machine| machine.name() == name)
    }

    /// Holds up the messages from one machine to the other one for so long, on connections that last.
    pub fn cut(&self, from: &'static str, to: &'static str, time: Duration) {
        self.log(&format_args!("event: nothing goes from {from} to {to} for {time:?}"));
        self.cuts.borrow_mut().insert((from, to), self.now.get() + time);
    }

    /// Lets all messages go.
    pub fn heal(&self) {
        self.cuts.borrow_mut().clear();
    }

    /// How long nothing goes from the one to the other.
    pub(crate) fn cut_for(&self, from: &'static str, to: &'static str) -> Duration {
        let until = self.cuts.borrow().get(&(from, to)).copied().unwrap_or_default();
        until.saturating_sub(self.now.get())
    }

    /// What devices have had from each other, except while links rest.
    pub fn peers_served(&self) -> PeersServed {
        self.peers_served.get()
    }

    /// Notes that a device has got pages from another one.
    pub(crate) fn note_pages_of_peer(&self) {
        let PeersServed { reads, outputs } = self.peers_served.get();
        let reads = reads + u64::from(!self.link_rests.get());
        self.peers_served.set(PeersServed { reads, outputs });
    }

    /// Notes that a device takes the rows of an output of another one.
    pub(crate) fn note_rows_of_peer(&self) {
        let PeersServed { reads, outputs } = self.peers_served.get();
        let outputs = outputs + u64::from(!self.link_rests.get());
        self.peers_served.set(PeersServed { reads, outputs });
    }

    /// Sets the free bytes of a disk; None for unlimited.
    pub fn set_room(&self, disk: Disk, bytes: Option<u64>) {
        let bytes = bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        self.room[disk as usize].set(bytes);
    }

    /// Whether a disk is limited now.
    pub fn is_short_of_room(&self) -> bool {
        self.room.iter().any(|room| room.get().is_some())
    }

    /// Takes bytes of a disk, or frees them; returns whether there are enough.
    pub fn takes_room(&self, disk: Disk, growth: i64) -> bool {
        let room = &self.room[disk as usize];
        let Some(left) = room.get() else { return true };
        let is_there = growth <= 0 || growth <= left;
        if is_there {
            room.set(Some(left.saturating_sub(growth)));
        }
        is_there
    }

    /// The host's files.
    pub fn host_files(&self) -> &SimFiles {
        &self.files
    }

    // ---- the host's power ----------------------------------------------------------------------

    /// Whether the host runs.
    pub fn host_has_power(&self) -> bool {
        self.host_has_power.get()
    }

    /// Cuts the host's power, or restores it.
    pub fn set_host_power(&self, on: bool) {
        self.host_has_power.set(on);
        self.host_fuse.set(None);
    }

    /// Lets the host change media and files `count` times more; its power fails during the last change.
    pub fn cut_host_power_after(&self, count: u64) {
        self.host_fuse.set(Some(count));
    }

    /// How many changes of media and files the host has made.
    pub fn change_count(&self) -> u64 {
        self.change_count.get()
    }

    /// One change of media or files on the host: whether it is done whole, in part, or not at all.
    pub fn host_change(&self) -> Change {
        if !self.host_has_power.get() {
            return Change::None;
        }
        self.change_count.set(self.change_count.get() + 1);
        match self.host_fuse.get() {
            Some(0) => {
                self.host_has_power.set(false);
                self.host_fuse.set(None);
                self.log(&"the host loses its power during this:");
                Change::Part
            }
            Some(left) => {
                self.host_fuse.set(Some(left - 1));
                Change::Whole
            }
            None => Change::Whole,
        }
    }

    /// Applies `fault` when the program begins the step `name` next.
    pub fn fail_step(&self, name: &'static str, fault: StepFault) {
        self.step_fuse.set(Some((name, fault)));
    }

    /// Whether that step has begun.
    pub fn has_failed_step(&self) -> bool {
        self.step_fuse.get().is_none()
    }

    // ---- time ----------------------------------------------------------------------------------

    /// Called when nothing can run: time advances to the next timer.
    pub(crate) fn idle(&self) {
        let due = self.timers.borrow().first_key_value().map(|((at, _), _)| *at);
        match due {
            Some(at) if at <= LIMIT => {
                self.now.set(self.now.get().max(at));
                let mut ready = Vec::new();
                while let Some(entry) = self.timers.borrow_mut().first_entry()
                    && entry.key().0 <= at
                {
                    ready.push(entry.remove());
                }
                ready.into_iter().for_each(Waker::wake);
                // All timers may belong to dropped work: the thread must not sleep over that.
                if let Some(main) = self.main.borrow().as_ref() {
                    main.wake_by_ref();
                }
            }
            Some(_) => self.give_up("an hour of simulated time has passed"),
            None => self.give_up("nothing is left that could go on: something waits forever"),
        }
    }

    fn give_up(&self, why: &'static str) {
        self.stuck.set(Some(why));
        if let Some(main) = self.main.take() {
            main.wake();
        }
    }

    /// Why the run cannot go on, if so; otherwise `main` is woken once that changes.
    pub(crate) fn check_stuck(&self, main: &Waker) -> Option<&'static str> {
        *self.main.borrow_mut() = Some(main.clone());
        self.stuck.get()
    }
}

/// A disk that may be full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// With the host's files, and the media of its own device.
    Host,
    /// With the media of the remote device.
    Far,
    /// With those of the second one.
    Other,
}

impl Disk {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Host, Self::Far, Self::Other];
}

/// How much of a change is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// All of it.
    Whole,
    /// The power fails meanwhile.
    Part,
    /// There is no power.
    None,
}

impl World for SimWorld {
    fn now(&self) -> Duration {
        self.now.get()
    }

    fn wall(&self) -> i64 {
        // The first second of 2024, plus the time since.
        1_704_067_200_000_000_i64
            .saturating_add(i64::try_from(self.now.get().as_micros()).unwrap_or(i64::MAX))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let mut drawn = self.drawn.borrow_mut();
        bytes.iter_mut().for_each(|byte| *byte = drawn.next_u64().to_le_bytes()[0]);
    }

    fn wake_at(&self, at: Duration, waker: Waker) {
        let number = self.timer_count.get();
        self.timer_count.set(number + 1);
        self.timers.borrow_mut().insert((at, number), waker);
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn step(&self, name: &'static str) -> io::Result<()> {
        let Some((_, fault)) = self.step_fuse.get().filter(|(at, _)| *at == name) else {
            return Ok(());
        };
        self.step_fuse.set(None);
        self.log(&format_args!("event: at \"{name}\": {fault:?}"));
        match fault {
            StepFault::Fails => Err(io::Error::other("injected")),
            StepFault::PowerGoes => {
                self.set_host_power(false);
                Ok(())
            }
        }
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWorld").field("now", &self.now.get()).finish_non_exhaustive()
    }
}
