//! A storage node: the engines of one process, which lend idle cores to each other's runs.
//!
//! Each [`Runtime`](crate::Runtime) is an engine, with media, an owner and runs of its own. Those of one node decide by
//! [`Engines`] which of them helps which other one. What is lent is a partition of the run, and nothing is sent for it:
//! same plan, same list of morsels, same ring of slots, same budget of memory.
//!
//! ```text
//!   a run of engine a    partition 0  ───────── a's threads ─────────┐
//!                        partition 1  ───────── a's threads ─────────┤ take, each morsel once
//!                        partition 2  a's ─granted─▶ b's ─ends─▶ a's ┘   (one MorselList)
//! ```
//!
//! 1. A run that may be helped has a few partitions more than it would have alone, each with a [`LentCore`]
//!    ([`HelpedMorsels::borrow_from`]).
//! 2. They begin on the threads of the run's engine, as all others. So a join that waits for all of its partitions
//!    waits for no other engine. Where such a partition asks for its first morsel, it waits until its core is granted.
//!    Then its task moves to the helper's threads, which read, verify and decode for it.
//! 3. After each morsel it asks whether it goes on. When its helper has own work, or no morsel is left, the task moves
//!    back, with what it has begun. While its rows wait for the host, it counts as lent no more.
//!
//! Besides, a run reads pages on the media of another engine's device, its [`Sibling`], where the host says so, and
//! takes rows of runs of the other engines, and of its own ([`NodeEngine::service`]).
//!
//! Invariants: an engine helps runs of its own database only. All partitions of a run take from one list, so each
//! morsel is handed out once, and the host revokes from all of them as from one. They end with the run: a claim or a
//! cancellation waits for those elsewhere too. An engine keeps none of the others alive.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use cleave_fragment::command::Ownership;
use cleave_fragment::link::DeviceService;
use cleave_fragment::queues::{Engines, Loan};
use cleave_fragment::{Morsel, MorselList, MorselSource};
use cleave_media::Media;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::runtime::Handle;

mod sibling;

pub(crate) use sibling::{HomeUnreachable, Sibling};

/// The pass over a run's morsels that lent cores take part in. Later ones read what is in memory or is small.
const LENT_PASS: usize = 0;

/// A storage node: the engines of one process, which lend idle cores to each other's runs.
#[derive(Debug, Default)]
pub struct Node {
    name: String,
    state: Mutex<NodeState>,
}

#[derive(Debug, Default)]
struct NodeState {
    engines: Engines,
    /// What is known of each, by number.
    members: Vec<Member>,
    /// Runs with lent cores, by number.
    runs: BTreeMap<u64, HelpedRun>,
    run_next: u64,
    /// Cores that wait to be granted, in the order in which they came.
    waiting: Vec<Arc<LentCore>>,
}

#[derive(Debug, Default)]
struct Member {
    /// Its fragment threads; None: it has ended, or has not begun.
    threads: Option<Handle>,
    /// Its device and the media of that, likewise.
    home: Option<Home>,
    /// How its device is asked for rows, likewise.
    service: Option<Weak<dyn DeviceService>>,
    /// Who owns it.
    owner: Option<Ownership>,
}

/// Where the pages of a device lie.
#[derive(Debug)]
struct Home {
    device: [u8; 16],
    media: Arc<dyn Media>,
}

#[derive(Debug)]
struct HelpedRun {
    engine: usize,
    morsels: Arc<MorselList>,
}

impl Node {
    /// A node without engines; its name may be empty.
    pub fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), state: Mutex::default() })
    }

    /// Adds `core` to those that wait, unless it is granted already.
    fn wait(&self, core: &Arc<LentCore>) {
        let mut state = self.lock();
        let waits = state.waiting.iter().any(|other| Arc::ptr_eq(other, core));
        if !core.is_granted() && !waits {
            state.waiting.push(Arc::clone(core));
            state.settle();
        }
    }

    /// Whether `core` goes on with another morsel. If not, it is lent no more.
    fn goes_on(&self, core: &LentCore) -> bool {
        let mut state = self.lock();
        if !core.is_granted() {
            return false;
        }
        let may_lend = state.may_lend(core.loan);
        if !may_lend {
            state.engines.end(core.loan);
        }
        let goes_on = may_lend && state.engines.goes_on(core.loan);
        if !goes_on {
            core.granted.store(false, Ordering::Release);
            state.settle();
        }
        goes_on
    }

    /// `core` is lent no more, and does not wait.
    fn end(&self, core: &LentCore) {
        let mut state = self.lock();
        state.waiting.retain(|other| !std::ptr::eq(Arc::as_ptr(other), core));
        if core.granted.swap(false, Ordering::AcqRel) {
            state.engines.end(core.loan);
            state.settle();
        }
    }

    /// The helper's threads, if `core` is granted.
    fn threads_of(&self, core: &LentCore) -> Option<Handle> {
        let mut state = self.lock();
        if !core.is_granted() {
            return None;
        }
        let member = state.members.get(core.loan.helper);
        let threads = member.and_then(|member| member.threads.clone());
        if threads.is_none() {
            core.granted.store(false, Ordering::Release);
            state.engines.end(core.loan);
        }
        threads
    }

    fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeState {
    /// Grants what can be granted.
    fn settle(&mut self) {
        while !self.waiting.is_empty() {
            let waiting = self.waiting.iter().enumerate();
            let may_begin = waiting.filter(|(_, core)| self.may_lend(core.loan));
            let (places, loans): (Vec<usize>, Vec<Loan>) =
                may_begin.map(|(place, core)| (place, core.loan)).unzip();
            let queues = self.queues();
            let granted = self.engines.grant(&loans, &queues);
            let Some(place) = granted.and_then(|granted| places.get(granted)) else { return };
            let core = self.waiting.remove(*place);
            core.granted.store(true, Ordering::Release);
            core.waker.wake();
        }
    }

    /// Whether the helper of `loan` is there, and of the database that the run is of.
    fn may_lend(&self, loan: Loan) -> bool {
        let member = |number: usize| self.members.get(number);
        let owner = |number: usize| member(number).and_then(|member| member.owner);
        let database = |number: usize| owner(number).map(|owner| owner.database);
        let is_there = member(loan.helper).is_some_and(|helper| helper.threads.is_some());
        let of_helper = database(loan.helper);
        is_there && of_helper.is_some() && of_helper == database(loan.engine)
    }

    /// Morsels that are left in the runs which may be helped, by engine.
    fn queues(&self) -> Vec<u64> {
        let mut queues = vec![0_u64; self.members.len()];
        for run in self.runs.values() {
            if let Some(queue) = queues.get_mut(run.engine) {
                *queue = queue.saturating_add(u64::from(run.morsels.lease().left()));
            }
        }
        queues
    }
}

/// One engine of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeEngine {
    node: Arc<Node>,
    number: usize,
}

impl NodeEngine {
    /// A new engine of `node`, with so many cores for fragments. It helps nobody before it [begins](Self::begin).
    pub(crate) fn of(node: &Arc<Node>, cores: u32) -> Self {
        let mut state = node.lock();
        state.members.push(Member::default());
        let number = state.engines.add(cores);
        Self { node: Arc::clone(node), number }
    }

    /// Its number in the node.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The name of its node; empty if it has none.
    pub(crate) fn node_name(&self) -> &str {
        &self.node.name
    }

    /// It runs fragments on `threads` from now on.
    pub(crate) fn begin(&self, threads: Handle) {
        self.change(|member| member.threads = Some(threads));
    }

    /// The pages of the device `device` lie on `media`, where the others may read them from now on.
    pub(crate) fn open(&self, device: [u8; 16], media: &Arc<dyn Media>) {
        let home = Home { device, media: Arc::clone(media) };
        self.change(|member| member.home = Some(home));
    }

    /// The others ask `service` for rows of its runs from now on.
    pub(crate) fn answer(&self, service: Weak<dyn DeviceService>) {
        self.change(|member| member.service = Some(service));
    }

    /// It has ended.
    pub(crate) fn leave(&self) {
        self.change(|member| {
            (member.threads, member.home, member.service) = (None, None, None);
        });
        self.node.lock().engines.leave(self.number);
    }

    /// `owner` owns it.
    pub(crate) fn serve(&self, owner: Option<Ownership>) {
        self.change(|member| member.owner = owner);
        self.node.lock().settle();
    }

    /// Whether it is the only engine of its node.
    pub(crate) fn is_alone(&self) -> bool {
        self.node.lock().members.len() < 2
    }

    /// Engines that may help a run of this one, for up to `count` cores.
    pub(crate) fn helpers(&self, count: usize) -> Vec<usize> {
        let state = self.node.lock();
        let may_help = |helper| state.may_lend(Loan { helper, engine: self.number });
        state.engines.helpers(self.number, count, may_help)
    }

    /// Work of its own on `core_count` cores, which begins.
    pub(crate) fn work(&self, core_count: u32) -> PartitionWork {
        let mut work = PartitionWork::Own { engine: self.clone(), core_count, works: false };
        work.go_on();
        work
    }

    fn change(&self, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.node.lock().members.get_mut(self.number) {
            change(member);
        }
    }
}

/// What a partition's work counts as in the node; dropped when it has ended.
#[derive(Debug)]
pub(crate) enum PartitionWork {
    /// Work of the run's engine.
    Own {
        /// That one.
        engine: NodeEngine,
        /// Cores that it is on.
        core_count: u32,
        /// Whether it counts at present.
        works: bool,
    },
    /// Work of a lent core.
    Lent(Arc<LentCore>),
}

impl PartitionWork {
    /// It waits for the host, and its core is free.
    pub(crate) fn rest(&mut self) {
        match self {
            Self::Own { engine, core_count, works } => {
                if std::mem::take(works) {
                    let mut state = engine.node.lock();
                    (0..*core_count).for_each(|_| state.engines.rest(engine.number));
                    state.settle();
                }
            }
            Self::Lent(core) => core.node.end(core),
        }
    }

    /// It goes on. A lent core must be granted again before it takes another morsel.
    pub(crate) fn go_on(&mut self) {
        if let Self::Own { engine, core_count, works } = self
            && !std::mem::replace(works, true)
        {
            let mut state = engine.node.lock();
            (0..*core_count).for_each(|_| state.engines.begin(engine.number));
        }
    }
}

impl Drop for PartitionWork {
    fn drop(&mut self) {
        self.rest();
    }
}

/// A core of another engine that a partition of a run may have.
pub(crate) struct LentCore {
    node: Arc<Node>,
    loan: Loan,
    /// Changed while the node's state is locked.
    granted: AtomicBool,
    /// Whether its partition runs on the helper's threads.
    is_there: AtomicBool,
    /// Of the task that last asked for a morsel.
    waker: AtomicWaker,
    /// Morsels taken.
    morsel_count: AtomicU64,
}

impl LentCore {
    /// Whether its partition runs on other threads than it should.
    pub(crate) fn is_misplaced(&self) -> bool {
        self.is_granted() != self.is_there.load(Ordering::Acquire)
    }

    /// The helper's threads if its partition belongs there from now on, else none: those of the run's engine.
    pub(crate) fn place(&self) -> Option<Handle> {
        let threads = self.node.threads_of(self);
        self.is_there.store(threads.is_some(), Ordering::Release);
        threads
    }

    fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }

    /// The next of `morsels`, which it takes only on the helper's threads.
    fn poll_morsel(
        self: &Arc<Self>,
        morsels: &MorselList,
        context: &Context<'_>,
    ) -> Poll<Option<Morsel>> {
        // First, so that no wake-up is missed.
        self.waker.register(context.waker());
        if morsels.lease().left() == 0 {
            self.node.end(self);
            return Poll::Ready(None);
        }
        if !self.is_granted() {
            self.node.wait(self);
        }
        if self.is_misplaced() || !self.is_granted() {
            return Poll::Pending;
        }
        if !self.node.goes_on(self) {
            self.node.wait(self);
            return Poll::Pending;
        }
        let morsel = morsels.take(LENT_PASS);
        if morsel.is_some() {
            self.morsel_count.fetch_add(1, Ordering::Relaxed);
        } else {
            self.node.end(self);
        }
        Poll::Ready(morsel)
    }
}

impl fmt::Debug for LentCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentCore")
            .field("loan", &self.loan)
            .field("granted", &self.granted)
            .finish_non_exhaustive()
    }
}

/// A list of morsels that partitions on lent cores take from too, if there are any.
#[derive(Debug)]
pub(crate) struct HelpedMorsels {
    morsels: Arc<MorselList>,
    help: OnceLock<Help>,
}

#[derive(Debug)]
struct Help {
    engine: NodeEngine,
    /// The run's number in the node.
    run: u64,
    /// Partitions on the engine's own cores, the first ones.
    own_count: usize,
    cores: Vec<Arc<LentCore>>,
}

impl HelpedMorsels {
    /// `morsels`, without lent cores.
    pub(crate) fn new(morsels: &Arc<MorselList>) -> Arc<Self> {
        Arc::new(Self { morsels: Arc::clone(morsels), help: OnceLock::new() })
    }

    /// Lets cores of `helpers` take part in a run of `engine`, behind its first `own_count` partitions; once.
    pub(crate) fn borrow_from(&self, helpers: &[usize], engine: &NodeEngine, own_count: usize) {
        let core = |helper: &usize| {
            Arc::new(LentCore {
                node: Arc::clone(&engine.node),
                loan: Loan { helper: *helper, engine: engine.number },
                granted: AtomicBool::new(false),
                is_there: AtomicBool::new(false),
                waker: AtomicWaker::new(),
                morsel_count: AtomicU64::new(0),
            })
        };
        self.help.get_or_init(|| {
            let mut state = engine.node.lock();
            let run = state.run_next;
            state.run_next += 1;
            let morsels = Arc::clone(&self.morsels);
            state.runs.insert(run, HelpedRun { engine: engine.number, morsels });
            let cores = helpers.iter().map(core).collect();
            Help { engine: engine.clone(), run, own_count, cores }
        });
    }

    /// The lent core of `partition`, if it is to have one.
    pub(crate) fn core(&self, partition: usize) -> Option<&Arc<LentCore>> {
        let help = self.help.get()?;
        help.cores.get(partition.checked_sub(help.own_count)?)
    }

    /// How many cores may take part.
    pub(crate) fn core_count(&self) -> usize {
        self.cores().len()
    }

    /// Morsels that lent cores took.
    pub(crate) fn lent_count(&self) -> u64 {
        self.cores().iter().map(|core| core.morsel_count.load(Ordering::Relaxed)).sum()
    }

    /// Tells partitions that wait that fewer morsels are left.
    pub(crate) fn wake(&self) {
        self.cores().iter().for_each(|core| core.waker.wake());
    }

    fn cores(&self) -> &[Arc<LentCore>] {
        self.help.get().map_or(&[][..], |help| help.cores.as_slice())
    }
}

impl MorselSource for HelpedMorsels {
    fn next(&self, pass: usize, partition: usize) -> BoxFuture<'_, Option<Morsel>> {
        let next = match self.core(partition) {
            Some(core) if pass == LENT_PASS => {
                poll_fn(move |context| core.poll_morsel(&self.morsels, context)).boxed()
            }
            _ => self.morsels.next(pass, partition),
        };
        let told = move |morsel: Option<Morsel>| {
            if morsel.is_none() {
                self.wake();
            }
            morsel
        };
        next.map(told).boxed()
    }

    fn list(&self) -> Option<&[Morsel]> {
        self.morsels.list()
    }
}

impl Drop for HelpedMorsels {
    fn drop(&mut self) {
        if let Some(help) = self.help.get() {
            help.engine.node.lock().runs.remove(&help.run);
        }
    }
}

#[cfg(test)]
mod tests;
