//! Scans under way, as the others of their table see them: which leaves they ask, which pages they have not begun, and
//! which of them evaluates a page at the moment.
//!
//! ```text
//!  scan A  ──────── begun ────────▶ page 40   evaluates the leaves of A and B, and notes both
//!  scan B  ─── begun ──▶ page 23              evaluates its own: A is past these pages
//!                        … page 40            is answered by what A has noted
//! ```
//!
//! 1. A scan [registers](HistoryUse::asks) its leaves and its list of pages for as long as its run goes on.
//! 2. A scan that evaluates a page asks which leaves [others](LiveScans::beside) still [want](LiveScan::wants) of it.
//! 3. It [claims](LiveScans::turn) a page before it reads it. Another one that would be answered waits for the end of
//!    the claim, no longer than it takes itself for a page ([`Patience`]); so the faster scan goes in front.
//!
//! Invariants: nothing here decides about rows: a leaf that no other has noted is evaluated by the scan that asks it.
//! Each wait has a limit, and a claim that was waited for in vain is void, so that a scan whose rows nobody fetches
//! holds up no other. The scans of a run may be locked when the table's are; no other lock is taken within one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use cleave_store::{ColumnRef, Projection};
use tokio::sync::oneshot;

use super::formula::Leaf;
use super::store::{FilterHistory, HistoryUse, LeafId, PageKey};
use crate::morsel::MorselSource;

/// Most other scans that one scan works for.
const OTHERS_MAX: usize = 16;
/// Most leaves of a scan that others see.
const LEAVES_MAX: usize = 32;
/// Most pages on which others work for a scan that begins no morsel meanwhile: about as many as a history keeps where
/// pages are large. Rows of a cursor may be fetched much later, or never.
const AHEAD_MAX: u32 = 4096;
/// The longest wait for another scan, and the shortest limit of one.
const WAIT_MAX: Duration = Duration::from_millis(100);
const WAIT_MIN: Duration = Duration::from_millis(1);
/// The limit for a scan that has not read a page by itself yet.
const WAIT_UNMEASURED: Duration = Duration::from_millis(10);
/// A scan that has waited in vain so many times more than it was answered waits no more.
const VAIN_MAX: u32 = 3;

/// A scan under way.
#[derive(Debug)]
pub(crate) struct LiveScan {
    /// Its run, whose scans do not wait for each other.
    run: u64,
    table_id: u32,
    asked: Vec<Arc<AskedLeaf>>,
    /// Columns of which it evaluates conditions.
    columns: Vec<ColumnRef>,
    /// Weak, as it may hold what holds this.
    morsels: Weak<dyn MorselSource>,
    /// Its pages by segment and number, each with the number of its morsel; made when another scan asks first.
    places: OnceLock<Vec<(u32, u32, u32)>>,
    /// Morsels that it has begun to read.
    begun: Mutex<HashSet<u32>>,
    /// Pages on which others have worked for it since it began the last one.
    ahead: AtomicU32,
    patience: Mutex<Patience>,
}

/// A leaf that a scan asks.
#[derive(Debug)]
pub(crate) struct AskedLeaf {
    /// The leaf.
    pub(crate) leaf: Leaf,
    /// The columns that its expression is over.
    pub(crate) of: Projection,
}

impl LiveScan {
    /// Whether it asks leaves, and has not begun `page`.
    pub(crate) fn wants(&self, page: &PageKey) -> bool {
        let places = self.places.get_or_init(|| self.listed());
        let wanted = page.place();
        let found = places.binary_search_by_key(&wanted, |&(segment, page, _)| (segment, page));
        let morsel = found.ok().and_then(|place| places.get(place)).map(|&(_, _, morsel)| morsel);
        morsel.is_some_and(|morsel| !self.begun().contains(&morsel))
    }

    /// Its leaves.
    pub(crate) fn asked(&self) -> &[Arc<AskedLeaf>] {
        &self.asked
    }

    /// It begins to read this morsel.
    pub(crate) fn begins(&self, morsel: u32) {
        self.begun().insert(morsel);
        self.ahead.store(0, Relaxed);
    }

    /// Another scan evaluates leaves of it on a page.
    pub(crate) fn is_served(&self) {
        self.ahead.fetch_add(1, Relaxed);
    }

    /// Whether others still work for it.
    fn goes_on(&self) -> bool {
        self.ahead.load(Relaxed) < AHEAD_MAX
    }

    /// It has read a morsel and evaluated its conditions by itself, in this time.
    pub(crate) fn has_read(&self, time: Duration) {
        self.patience().has_read(time);
    }

    /// How long it waits for another scan; None: not at all.
    pub(crate) fn wait_limit(&self) -> Option<Duration> {
        self.patience().limit()
    }

    /// It has waited for another scan.
    pub(crate) fn has_waited(&self, is_answered: bool) {
        self.patience().has_waited(is_answered);
    }

    /// Whether what `other` evaluates may answer a leaf of this one.
    fn is_answered_by(&self, other: &Self) -> bool {
        let is_read =
            |asked: &AskedLeaf| other.columns.contains(&ColumnRef::User(asked.leaf.key.column));
        self.run != other.run && self.asked.iter().any(|asked| is_read(asked))
    }

    fn listed(&self) -> Vec<(u32, u32, u32)> {
        let Some(morsels) = self.morsels.upgrade() else { return Vec::new() };
        let listed = morsels.list().unwrap_or_default().iter();
        let places = listed.flat_map(|morsel| {
            let place = (morsel.segment.segment.0, morsel.number);
            morsel.pages.iter().map(move |page| (place.0, page.page.page, place.1))
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places
    }

    fn begun(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a scan waits for what others evaluate: what it takes itself for as much. So a wait in vain at most doubles
/// the time of a page, and there are few of these.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// What it takes itself, about.
    own: Option<Duration>,
    /// Waits in vain, less those that were not.
    vain: u32,
}

impl Patience {
    pub(super) fn limit(&self) -> Option<Duration> {
        let own = self.own.unwrap_or(WAIT_UNMEASURED);
        (self.vain < VAIN_MAX).then(|| own.clamp(WAIT_MIN, WAIT_MAX))
    }

    pub(super) fn has_read(&mut self, time: Duration) {
        self.own = Some(self.own.map_or(time, |own| (own * 3 + time) / 4));
    }

    pub(super) fn has_waited(&mut self, is_answered: bool) {
        self.vain = match is_answered {
            true => self.vain.saturating_sub(1),
            false => self.vain + 1,
        };
    }
}

/// The scans under way on one side.
#[derive(Debug, Default)]
pub(crate) struct LiveScans {
    /// By table, in the order in which they began.
    tables: Mutex<HashMap<u32, Vec<Arc<LiveScan>>>>,
    /// How many there are.
    count: AtomicUsize,
    claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    by_page: HashMap<PageKey, Claimed>,
    last: u64,
}

#[derive(Debug)]
struct Claimed {
    number: u64,
    by: Arc<LiveScan>,
    /// Woken by being dropped.
    waiting: Vec<oneshot::Sender<()>>,
}

/// What [`LiveScans::turn`] says of a page.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The scan evaluates it.
    Own(Claim),
    /// Another one does, and may answer it.
    Wait(Held),
    /// Another one does, for itself.
    Beside,
}

/// A page that a scan evaluates, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    history: Arc<FilterHistory>,
    page: PageKey,
    number: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.history.live().end_claim(&self.page, self.number);
    }
}

/// A page that another scan evaluates.
#[derive(Debug)]
pub(crate) struct Held {
    /// The claim.
    pub(crate) number: u64,
    /// Comes to an end, with an error, when the claim does.
    pub(crate) ended: oneshot::Receiver<()>,
}

impl LiveScans {
    /// Scans of the same table as `scan`, of other runs: the oldest ones that go on.
    pub(crate) fn beside(&self, scan: &LiveScan) -> Vec<Arc<LiveScan>> {
        if self.count.load(Relaxed) < 2 {
            return Vec::new();
        }
        let tables = self.tables();
        let of_table = tables.get(&scan.table_id).map_or(&[][..], Vec::as_slice).iter();
        let others = of_table.filter(|other| other.run != scan.run && other.goes_on());
        others.take(OTHERS_MAX).cloned().collect()
    }

    /// Whether `page` is for `scan` to evaluate, which then has a claim to it.
    pub(crate) fn turn(history: &Arc<FilterHistory>, page: PageKey, scan: &Arc<LiveScan>) -> Turn {
        let mut claims = history.live().claims();
        if let Some(claimed) = claims.by_page.get_mut(&page) {
            if !scan.is_answered_by(&claimed.by) {
                return Turn::Beside;
            }
            let (waiting, ended) = oneshot::channel();
            claimed.waiting.push(waiting);
            return Turn::Wait(Held { number: claimed.number, ended });
        }
        claims.last += 1;
        let number = claims.last;
        let claimed = Claimed { number, by: Arc::clone(scan), waiting: Vec::new() };
        claims.by_page.insert(page, claimed);
        Turn::Own(Claim { history: Arc::clone(history), page, number })
    }

    /// Ends the claim `number` to `page`, if it has not ended.
    pub(crate) fn end_claim(&self, page: &PageKey, number: u64) {
        let mut claims = self.claims();
        let is_it = claims.by_page.get(page).is_some_and(|claimed| claimed.number == number);
        let ended = if is_it { claims.by_page.remove(page) } else { None };
        drop(claims);
        // Those that wait are woken without the lock.
        drop(ended);
    }

    /// Forgets all scans: others' leaves are no longer evaluated.
    pub(super) fn clear(&self) {
        let before = std::mem::take(&mut *self.tables());
        let count: usize = before.values().map(Vec::len).sum();
        self.count.fetch_sub(count, Relaxed);
    }

    fn add(&self, scan: &Arc<LiveScan>) {
        self.tables().entry(scan.table_id).or_default().push(Arc::clone(scan));
        self.count.fetch_add(1, Relaxed);
    }

    fn remove(&self, scan: &Arc<LiveScan>) {
        let mut tables = self.tables();
        let Some(of_table) = tables.get_mut(&scan.table_id) else { return };
        let Some(place) = of_table.iter().position(|other| Arc::ptr_eq(other, scan)) else {
            return;
        };
        of_table.remove(place);
        if of_table.is_empty() {
            tables.remove(&scan.table_id);
        }
        self.count.fetch_sub(1, Relaxed);
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<u32, Vec<Arc<LiveScan>>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A scan that others see, until this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    history: Arc<FilterHistory>,
    scan: Arc<LiveScan>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.history.live().remove(&self.scan);
    }
}

impl HistoryUse {
    /// Lets others see the scan of the input `input`, which is `morsels`, of the table `table_id`: it asks `leaves`
    /// over the columns `of`. All partitions of the scan are one.
    pub(crate) fn asks(
        &self,
        (table_id, input): (u32, u32),
        leaves: Vec<Leaf>,
        of: &Projection,
        morsels: &Arc<dyn MorselSource>,
    ) -> Arc<LiveScan> {
        let mut scans = self.scans();
        let registered = scans.entry(input).or_insert_with(|| {
            // Of one without a number nothing is noted.
            let numbered = leaves.into_iter().filter(|leaf| leaf.id != LeafId::default());
            let asked = numbered.take(LEAVES_MAX);
            let asked = asked.map(|leaf| Arc::new(AskedLeaf { leaf, of: of.clone() }));
            let scan = Arc::new(LiveScan {
                run: self.run(),
                table_id,
                asked: asked.collect(),
                columns: of.columns.clone(),
                morsels: Arc::downgrade(morsels),
                places: OnceLock::new(),
                begun: Mutex::default(),
                ahead: AtomicU32::default(),
                patience: Mutex::default(),
            });
            self.owner().live().add(&scan);
            Registered { history: Arc::clone(self.owner()), scan }
        });
        Arc::clone(&registered.scan)
    }
}

#[cfg(test)]
mod tests;
