//! A mirror: a device without media of its own, whose pages lie at the same addresses on several others, its copies.
//!
//! ```text
//!  write, reserve, sync ─▶ Mirror::each ─┬─▶ a ─┐
//!                                        └─▶ b ─┴─▶ Mirror::settle ─▶ done; or: b has failed, a has done it; or: error
//!  read, run            ─▶ Mirror::ask ───▶ a ┄ fails, or is late ┄▶ b
//! ```
//!
//! 1. What changes a mirror goes to all of its current copies at once, and where each of these fails to those that have
//!    become current since ([`Mirror::by_current`]). Where one has done it, the others get a moment more.
//!    [`Mirror::settle`] then decides, under one lock: a copy that has missed what another has done *has failed*,
//!    and is neither read nor written any more. If no current copy has done it, the operation fails and no copy does.
//! 2. What reads asks the current copy that is the least [busy](super::load), and another where that does not answer,
//!    answers late, or gives what does not hold ([`Device::ask`]). Where none is left, copies that have become current
//!    since are asked, and a copy that was lost a moment ago, which may just be restarting, is asked again. One that
//!    has answered since, whatever it was asked, counts as lost from its next loss on.
//! 3. The next manifest says that a failed copy is *stale*, in the same commit that names pages which it lacks. A
//!    [resynchronisation](crate::write::resync) makes it current again.
//! 4. Space is taken on all copies at once, at addresses that are free on each. Space that is let free is free on each,
//!    but for blocks where a copy may still write what it was sent before it failed.
//!
//! Invariants: one copy is current at any time. A copy that the manifest calls current has every page durable that this
//! manifest names. Locks are taken in this order: the space of the mirror, that of its copies by number. Source:
//! `docs/design/delta-and-snapshots.md`, mirrors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cleave_catalog::catalog::{DeviceId, HeldSpace, mirror};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Identity, Reply, Request};
use cleave_fragment::link::{AttachMode, Link, LinkError, Traffic};
use cleave_fragment::waiting;
use cleave_media::{Clock, Extent, SpaceMap, SystemClock};
use cleave_store::StoreError;
use futures::future::{BoxFuture, join_all, ready};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;

use super::claim::ended;
use super::load::{Busy, WAIT_MAX};
use super::{Device, NEVER, free_of, may_have_happened};

/// How much longer a copy gets for what another one has done, at least: less than a holder of the writer lock waits for
/// a device.
pub(super) const COPY_WAIT: Duration = Duration::from_millis(1500);
/// The same for a sync, which may be of much that other statements have written there.
pub(super) const COPY_SYNC_WAIT: Duration = Duration::from_secs(4);
/// The same for a copy that owes an answer: another mirror, say, has waited that long for it.
const OWED_WAIT: Duration = Duration::from_millis(200);
/// The same as a multiple of the time that the other one took.
const COPY_WAIT_SHARE: u32 = 4;
/// How long the others that ask a copy for space are waited for: with [`COPY_WAIT`] less than that holder waits.
const TURN_WAIT: Duration = Duration::from_millis(200);
/// How long reads wait for a lost copy that may just be restarting, all of them together, where no other one answers.
const LOST_WAIT: Duration = Duration::from_secs(1);
/// Pause before a lost copy is asked again.
const LOST_PAUSE: Duration = Duration::from_millis(20);
/// The same while another one is waited for.
const LOST_PAUSE_BESIDE: Duration = Duration::from_millis(200);

/// SQLSTATE of a page that does not hold.
const DAMAGED: &str = "XX001";

/// The copies of a mirror. See the [module](self).
pub(super) struct Mirror {
    /// In the order in which they are read while one is as busy as the other.
    copies: Vec<Arc<Device>>,
    state: Mutex<MirrorState>,
    /// Held while a copy is chosen for something that counts there from then on.
    choosing: Mutex<()>,
}

#[derive(Debug, Default)]
struct MirrorState {
    /// Copies that have missed something since, or are stale in the manifest.
    failed: BTreeSet<DeviceId>,
    /// Where a copy may still write what it was sent before it failed; without overlaps.
    doubtful: Vec<Extent>,
    /// When copies were first found to be lost that have not answered since.
    lost_since: BTreeMap<DeviceId, Duration>,
}

/// How copies have failed that were asked one after the other.
#[derive(Debug, Default)]
struct Failed {
    asked: BTreeSet<DeviceId>,
    lost: BTreeSet<DeviceId>,
    /// The first error of a copy that gave no page.
    no_answer: Option<Error>,
    /// The first of a copy that gave one that does not hold.
    damage: Option<Error>,
}

/// What became of an operation on each of the copies that it was for.
pub(super) type Outcomes<T> = Vec<(DeviceId, Result<T>)>;

impl Mirror {
    fn state(&self) -> MutexGuard<'_, MirrorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All copies, failed ones too.
    pub(super) fn copies(&self) -> &[Arc<Device>] {
        &self.copies
    }

    /// The copies that have not failed.
    pub(super) fn current(&self) -> Vec<Arc<Device>> {
        let state = self.state();
        let current = self.copies.iter().filter(|copy| !state.failed.contains(&copy.id()));
        current.map(Arc::clone).collect()
    }

    /// The same, those first that answer, and are the least busy of these; else in their order.
    fn readers(&self) -> Vec<Arc<Device>> {
        let mut readers = self.current();
        // Once for each: these change at any time.
        readers.sort_by_cached_key(|copy| {
            let is_absent = !copy.is_connected() || copy.owes_answer();
            (is_absent, copy.load.is_late(), copy.load.count())
        });
        readers
    }

    fn by_id(&self) -> Vec<&Arc<Device>> {
        let mut copies: Vec<&Arc<Device>> = self.copies.iter().collect();
        copies.sort_by_key(|copy| copy.id());
        copies
    }

    /// Notes that a write to `extent` may still arrive at a copy.
    pub(super) fn doubt(&self, extent: Extent) {
        let mut state = self.state();
        let new = free_of(vec![extent], &state.doubtful);
        state.doubtful.extend(new);
    }

    /// Runs `work`, which is called `action`, on all `targets` at once. It goes on to its end on each; but once one has
    /// succeeded, the others have `wait` at least to do so too, and count as unanswered then; a moment where each of
    /// them owes an answer by then.
    pub(super) async fn each<T: Send + 'static>(
        &self,
        targets: &[Arc<Device>],
        (action, wait): (&'static str, Duration),
        work: impl Fn(Arc<Device>) -> BoxFuture<'static, Result<T>> + Send,
    ) -> Outcomes<T> {
        let begun = SystemClock.now();
        let mut under_way: FuturesUnordered<_> = targets
            .iter()
            .map(|copy| {
                let (id, end) = (copy.id(), begin(work(Arc::clone(copy))));
                async move { (id, ended(end).await) }
            })
            .collect();
        let mut outcomes = Vec::with_capacity(targets.len());
        let mut until: Option<Duration> = None;
        loop {
            let left = until.map(|until| until.saturating_sub(SystemClock.now()));
            // That was all of them, or their time is over.
            let Some((id, outcome)) = within(left, under_way.next()).await else { break };
            if outcome.is_ok() && until.is_none() {
                let now = SystemClock.now();
                let as_long = now.saturating_sub(begun).saturating_mul(COPY_WAIT_SHARE);
                let has_ended =
                    |copy: DeviceId| copy == id || outcomes.iter().any(|(ended, _)| *ended == copy);
                let mut late = targets.iter().filter(|copy| !has_ended(copy.id()));
                let wait = if late.all(|copy| copy.owes_answer()) { OWED_WAIT } else { wait };
                until = Some(now.saturating_add(wait.max(as_long)));
            }
            outcomes.push((id, outcome));
        }
        let waited = SystemClock.now().saturating_sub(begun);
        for copy in targets {
            if !outcomes.iter().any(|(id, _)| *id == copy.id()) {
                copy.note_slow();
                outcomes.push((copy.id(), Err(copy.unanswered(action, waited))));
            }
        }
        outcomes
    }

    /// Runs `work` on all current copies as [`Mirror::each`] does, and [settles](Mirror::settle) it. Where none has
    /// done it, those get it that have become current meanwhile: a copy that was stale when it began may be the only
    /// one left. `note` is told of what became of it.
    ///
    /// # Errors
    /// As [`Mirror::settle`].
    pub(super) async fn by_current<T: Send + 'static>(
        &self,
        how: (&'static str, Duration),
        work: impl Fn(Arc<Device>) -> BoxFuture<'static, Result<T>> + Send + Sync,
        note: impl Fn(&Outcomes<T>) + Send,
    ) -> Result<Vec<(DeviceId, T)>> {
        let mut outcomes = Outcomes::new();
        loop {
            let mut left = self.current();
            left.retain(|copy| outcomes.iter().all(|(id, _)| *id != copy.id()));
            let failed = self.state().failed.clone();
            let has_missed = |(id, outcome): &(DeviceId, Result<T>)| match outcome {
                Ok(_) => failed.contains(id),
                Err(error) => is_of_one_copy(error),
            };
            if left.is_empty() || !outcomes.iter().all(has_missed) {
                return self.settle(outcomes);
            }
            let more = self.each(&left, how, &work).await;
            note(&more);
            outcomes.extend(more);
        }
    }

    /// The results of the current copies that have done something, at least one; those that have not have failed.
    ///
    /// # Errors
    /// Where no current copy has done it, or one refuses it for a reason that is not its own. No copy has failed, then.
    pub(super) fn settle<T>(&self, outcomes: Outcomes<T>) -> Result<Vec<(DeviceId, T)>> {
        let mut state = self.state();
        let (mut done, mut missed, mut first) = (Vec::new(), Vec::new(), None);
        for (id, outcome) in outcomes {
            match outcome {
                Ok(result) if !state.failed.contains(&id) => {
                    state.lost_since.remove(&id);
                    done.push((id, result));
                }
                // It has missed something else meanwhile.
                Ok(_) => {}
                Err(error) if is_of_one_copy(&error) => {
                    missed.push(id);
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if done.is_empty() {
            drop(state);
            return Err(first.unwrap_or_else(|| self.none_left()));
        }
        state.failed.extend(missed);
        Ok(done)
    }

    /// The first answer that one of the copies gives: each is asked once those before it have failed, or need long.
    /// What the others answer later is dropped.
    ///
    /// # Errors
    /// Where all current copies have failed: that a page does not hold only where none may have it.
    async fn ask<'a, T: Send + 'a>(
        &self,
        is_of_pages: bool,
        ask: impl Fn(Arc<Device>) -> BoxFuture<'a, Result<T>> + Send,
    ) -> Result<T> {
        let mut left = self.readers().into_iter();
        let mut next = left.next();
        let (mut asked, mut under_way) = (FuturesUnordered::new(), BTreeMap::new());
        let mut failed = Failed::default();
        loop {
            let mut patience = WAIT_MAX;
            if let Some(copy) = next.take() {
                if is_of_pages {
                    patience = copy.load.patience();
                }
                let (id, begun) = (copy.id(), SystemClock.now());
                failed.asked.insert(id);
                under_way.insert(id, Arc::clone(&copy));
                let asking = ask(copy);
                asked.push(async move { (id, begun, asking.await) });
            }
            next = left.next();
            let wait = match (&next, self.may_answer_yet(&failed)) {
                (Some(_), _) => Some(patience),
                (None, true) if asked.is_empty() => Some(LOST_PAUSE),
                (None, true) => Some(LOST_PAUSE_BESIDE),
                (None, false) if asked.is_empty() => {
                    return Err(failed.error().unwrap_or_else(|| self.none_left()));
                }
                (None, false) => None,
            };
            let answered = match wait {
                Some(pause) if asked.is_empty() => {
                    waiting::sleep(pause).await;
                    None
                }
                limit => within(limit, asked.next()).await,
            };
            match answered {
                Some((id, _, Err(error))) if is_of_one_copy(&error) || is_refused(&error) => {
                    under_way.remove(&id);
                    if is_lost(&error) {
                        self.state().lost_since.entry(id).or_insert_with(|| SystemClock.now());
                        failed.lost.insert(id);
                    }
                    failed.note(error);
                }
                Some((id, begun, outcome)) => {
                    if outcome.is_ok() {
                        self.state().lost_since.remove(&id);
                        if let Some(copy) = under_way.get(&id).filter(|_| is_of_pages) {
                            copy.load.note_read(SystemClock.now().saturating_sub(begun));
                        }
                    }
                    return outcome;
                }
                None if next.is_some() => {
                    // Whatever else is asked of it may take long.
                    let late = under_way.values().filter(|_| is_of_pages);
                    late.for_each(|copy| copy.load.note_late());
                }
                // Those that may be back are asked again, and those that are current since.
                None => {
                    let again = self.readers().into_iter();
                    let again = again.filter(|copy| !under_way.contains_key(&copy.id()));
                    left = again.collect::<Vec<_>>().into_iter();
                    next = left.next();
                    failed =
                        Failed { asked: under_way.keys().copied().collect(), ..Failed::default() };
                }
            }
        }
    }

    /// Whether a copy may answer that has not `failed`, or that may be back.
    fn may_answer_yet(&self, failed: &Failed) -> bool {
        let now = SystemClock.now();
        let state = self.state();
        let mut current = self.copies.iter().map(|copy| copy.id());
        current.any(|id| {
            let since = state.lost_since.get(&id).filter(|_| failed.lost.contains(&id));
            let may_be_back = since.is_some_and(|since| now.saturating_sub(*since) < LOST_WAIT);
            !state.failed.contains(&id) && (may_be_back || !failed.asked.contains(&id))
        })
    }

    /// The error of an operation that was begun on copies of which each has failed since.
    pub(super) fn none_left(&self) -> Error {
        let attach = || -> Error {
            let (device, reason) = ("mirror".to_owned(), "it has no copies".to_owned());
            StorageError::Attach { device, reason }.into()
        };
        self.copies.first().map_or_else(attach, |copy| copy.restarted())
    }

    /// Whether a check holds for one of the current copies; else why it does not.
    pub(super) fn unless_all(&self, check: impl Fn(&Device) -> Result<()>) -> Result<()> {
        let mut first = None;
        for copy in self.current() {
            match check(copy.as_ref()) {
                Ok(()) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    pub(super) fn link(&self) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        self.ask(false, |copy| async move { copy.link().await }.boxed()).boxed()
    }

    pub(super) fn identity(&self) -> BoxFuture<'_, Result<Arc<Identity>>> {
        self.ask(false, |copy| async move { copy.identity().await }.boxed()).boxed()
    }

    /// One answer of any copy: pages, or a status.
    pub(super) fn call(
        &self,
        action: &'static str,
        request: Request,
    ) -> BoxFuture<'_, Result<Reply>> {
        let items = match request {
            Request::Read(items) => Some(items),
            Request::Status => None,
            _ => {
                let (device, reason) = ("mirror".to_owned(), format!("one copy cannot {action}"));
                let error: Error = StorageError::Attach { device, reason }.into();
                return ready(Err(error)).boxed();
            }
        };
        let is_of_pages = items.is_some();
        let asking = self.ask(is_of_pages, move |copy| {
            let request = items.clone().map_or(Request::Status, Request::Read);
            async move {
                let _busy = copy.busy();
                copy.call(action, request).await
            }
            .boxed()
        });
        asking.boxed()
    }

    pub(super) fn reserve(&self, extents: Vec<Extent>) -> BoxFuture<'_, Result<()>> {
        async move {
            let reserve = |copy: Arc<Device>| {
                let extents = extents.clone();
                async move { copy.reserve(extents).await }.boxed()
            };
            self.by_current(("reserve space", COPY_WAIT), reserve, |_| {}).await.map(drop)
        }
        .boxed()
    }

    pub(super) fn sync_within(&self, patience: Duration) -> BoxFuture<'_, Result<()>> {
        async move {
            let sync = |copy: Arc<Device>| async move { sync(&copy, patience).await }.boxed();
            self.by_current(("sync", COPY_SYNC_WAIT), sync, |_| {}).await.map(drop)
        }
        .boxed()
    }

    /// The fewest blocks that the media of a current copy has.
    pub(super) fn block_count(&self) -> BoxFuture<'_, Result<u64>> {
        async move {
            let current = self.current();
            let counts = join_all(current.iter().map(|copy| copy.block_count())).await;
            let (mut least, mut first): (Option<u64>, _) = (None, None);
            for count in counts {
                match count {
                    Ok(count) => least = Some(least.map_or(count, |least| least.min(count))),
                    Err(error) => first = first.or(Some(error)),
                }
            }
            least.ok_or_else(|| first.unwrap_or_else(|| self.none_left()))
        }
        .boxed()
    }

    pub(super) fn has_answered(&self, patience: Duration) -> BoxFuture<'_, bool> {
        async move {
            let current = self.current();
            let asked = current.iter().map(|copy| copy.has_answered(patience));
            let mut asked: FuturesUnordered<_> = asked.collect();
            while let Some(has_answered) = asked.next().await {
                if has_answered {
                    return true;
                }
            }
            false
        }
        .boxed()
    }

    pub(super) fn forget<'a>(&'a self, link: &'a Arc<dyn Link>) -> BoxFuture<'a, ()> {
        async move {
            for copy in &self.copies {
                copy.forget(link).await;
            }
        }
        .boxed()
    }

    pub(super) fn mode(&self) -> AttachMode {
        self.copies.first().map_or(AttachMode::Remote, |copy| copy.mode())
    }

    pub(super) fn traffic(&self) -> Traffic {
        let all = self.copies.iter().map(|copy| copy.traffic());
        all.fold(Traffic::default(), |sum, one| Traffic {
            sent_bytes: sum.sent_bytes.saturating_add(one.sent_bytes),
            received_bytes: sum.received_bytes.saturating_add(one.received_bytes),
            commands: sum.commands.saturating_add(one.commands),
        })
    }
}

impl Failed {
    fn note(&mut self, error: Error) {
        let first =
            if error.sqlstate() == DAMAGED { &mut self.damage } else { &mut self.no_answer };
        first.get_or_insert(error);
    }

    fn error(self) -> Option<Error> {
        self.no_answer.or(self.damage)
    }
}

/// Syncs `copy`, over a new link where that which it had turns out to be lost. Whoever has written there verifies that
/// it was not restarted.
pub(super) async fn sync(copy: &Device, patience: Duration) -> Result<()> {
    match copy.sync_within(patience).await {
        Err(Error::Storage(error)) if error.is_device_lost() => {
            Box::pin(copy.sync_within(patience)).await
        }
        outcome => outcome,
    }
}

/// What `next` gives, if it does so within `limit`; without a limit, whenever it does.
async fn within<T>(limit: Option<Duration>, next: impl Future<Output = Option<T>>) -> Option<T> {
    match limit {
        Some(limit) => waiting::timeout(limit, next).await.flatten(),
        None => next.await,
    }
}

/// Begins `work`, which goes on to its end even if nobody waits for it any more.
fn begin<T: Send + 'static>(work: BoxFuture<'static, Result<T>>) -> oneshot::Receiver<Result<T>> {
    let (done, ended) = oneshot::channel();
    let working = async move {
        // The receiver is gone where the copy was too late.
        drop(done.send(work.await));
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a command that was sent to one copy is not taken back where another copy was sooner"
    )]
    drop(tokio::spawn(working));
    ended
}

/// Whether a write that failed on one copy may still reach its media.
pub(super) fn may_still_happen(error: &Error) -> bool {
    may_have_happened(error) || error.is_unanswered()
}

/// Whether `error` says something of one copy of a mirror alone, so that another copy may do what it has not: the copy
/// is lost, late or another device, or what it has does not hold. A full copy is not among these: it fails the
/// statement.
fn is_of_one_copy(error: &Error) -> bool {
    let Error::Storage(error) = error else { return false };
    match &**error {
        StorageError::DeviceLost { .. }
        | StorageError::Unanswered { .. }
        | StorageError::Restarted { .. }
        | StorageError::CutOff { .. }
        | StorageError::OtherDevice { .. }
        | StorageError::OtherOwner { .. }
        | StorageError::Token { .. }
        | StorageError::Answer { .. } => true,
        StorageError::Link { source, .. } => !matches!(source, LinkError::TooLarge { .. }),
        StorageError::Store(source) => {
            matches!(source, StoreError::Corrupt { .. } | StoreError::NewerFormat { .. })
        }
        StorageError::Refused { source, .. } => is_cause_of_one_copy(source),
        _ => false,
    }
}

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Storage(error) if error.is_device_lost())
}

/// Whether a copy says that a read makes no sense: of pages that it lacks, behind the end of its media.
fn is_refused(error: &Error) -> bool {
    let Error::Storage(error) = error else { return false };
    let StorageError::Refused { source, .. } = &**error else { return false };
    source.cause == DeviceErrorCause::Refused
}

/// The same of what a link to one copy gave, for what the host can do with another one.
#[must_use]
pub fn is_link_of_one_copy(error: &LinkError) -> bool {
    match error {
        LinkError::Device { source, .. } => is_cause_of_one_copy(source),
        LinkError::TooLarge { .. } => false,
        _ => true,
    }
}

fn is_cause_of_one_copy(error: &DeviceError) -> bool {
    use DeviceErrorCause::{Corrupt, Io, NotClaimed, NotReserved, OtherDatabase, UnknownRun};
    matches!(error.cause, Corrupt | Io | NotClaimed | NotReserved | OtherDatabase | UnknownRun)
}

impl Device {
    /// It, as the mirror of `copies`, of which `mirror` says which are stale.
    pub(crate) fn mirroring(mut self, mirror: &mirror::Mirror, copies: Vec<Arc<Self>>) -> Self {
        let stale = mirror.copies.iter().filter(|copy| copy.is_stale).map(|copy| copy.device);
        let state = MirrorState { failed: stale.collect(), ..MirrorState::default() };
        // A copy tells runs apart by their numbers, and has those of its own tables and of other mirrors.
        let first = (u64::from(self.entry.id.0) << 40) | 1;
        (self.run, self.sequence) = (AtomicU64::new(first), AtomicU64::new(first));
        let (state, choosing) = (Mutex::new(state), Mutex::default());
        self.mirror = Some(Mirror { copies, state, choosing });
        self
    }

    /// Has its copies count its space too. Before anything is taken there.
    pub(crate) fn join_copies(self: &Arc<Self>) {
        for copy in self.mirror.iter().flat_map(|mirror| &mirror.copies) {
            let mut mirrors = copy.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
            mirrors.push(Arc::downgrade(self));
        }
    }

    /// Whether it has no media of its own, but copies.
    pub fn is_mirror(&self) -> bool {
        self.mirror.is_some()
    }

    /// The copies of a mirror, and whether each lacks pages.
    pub fn copies(&self) -> Vec<(Arc<Self>, bool)> {
        let failed = self.failed_copies();
        let copies = self.mirror.iter().flat_map(|mirror| &mirror.copies);
        copies.map(|copy| (Arc::clone(copy), failed.contains(&copy.id()))).collect()
    }

    /// Whether `copy` is a copy of it that lacks no page.
    pub fn has_current_copy(&self, copy: DeviceId) -> bool {
        let is_current = |mirror: &Mirror| mirror.current().iter().any(|it| it.id() == copy);
        self.mirror.as_ref().is_some_and(is_current)
    }

    /// The devices that can be read for it, in the order in which they should be: itself, or the current copies of a
    /// mirror.
    pub fn readers(self: &Arc<Self>) -> Vec<Arc<Self>> {
        match &self.mirror {
            Some(mirror) => mirror.readers(),
            None => vec![Arc::clone(self)],
        }
    }

    /// The first of [`Device::readers`] that is none of these `but`, busy with something more from now on, and whether
    /// it is the last one.
    pub fn next_reader(
        self: &Arc<Self>,
        but: &BTreeSet<DeviceId>,
    ) -> Option<(Arc<Self>, Busy, bool)> {
        let choosing = self.mirror.as_ref().map(|mirror| mirror.choosing.lock());
        let mut left = self.readers().into_iter().filter(|reader| !but.contains(&reader.id()));
        let next = left.next()?;
        let busy = next.busy();
        drop(choosing);
        Some((next, busy, left.next().is_none()))
    }

    /// A device to which a link leads, and the link: itself, or a current copy of a mirror.
    ///
    /// # Errors
    /// As [`Device::link`].
    pub(super) async fn linked(self: &Arc<Self>) -> Result<(Arc<Self>, Arc<dyn Link>)> {
        let linked = self.ask(|device| {
            async move {
                let link = device.link().await?;
                Ok::<_, Error>((device, link))
            }
            .boxed()
        });
        linked.await
    }

    /// The device that `link` leads to: itself, or a copy of a mirror. None: no copy has that link any more.
    pub(super) fn copy_of(self: &Arc<Self>, link: &Arc<dyn Link>) -> Option<Arc<Self>> {
        let Some(mirror) = &self.mirror else { return Some(Arc::clone(self)) };
        let has_it = |copy: &&Arc<Self>| {
            copy.connected().as_ref().is_some_and(|known| Arc::ptr_eq(&known.link, link))
        };
        mirror.copies.iter().find(has_it).map(Arc::clone)
    }

    /// The answer of the device, or of the first copy of a mirror that gives one.
    ///
    /// # Errors
    /// Those of `ask`; of several copies the first.
    pub async fn ask<'a, T: Send + 'a>(
        self: &Arc<Self>,
        ask: impl Fn(Arc<Self>) -> BoxFuture<'a, Result<T>> + Send,
    ) -> Result<T> {
        match &self.mirror {
            Some(mirror) => mirror.ask(false, ask).await,
            None => ask(Arc::clone(self)).await,
        }
    }

    /// The same of a read of pages, which no copy takes long for as a rule.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(crate) async fn ask_pages<'a, T: Send + 'a>(
        self: &Arc<Self>,
        ask: impl Fn(Arc<Self>) -> BoxFuture<'a, Result<T>> + Send,
    ) -> Result<T> {
        match &self.mirror {
            Some(mirror) => mirror.ask(true, ask).await,
            None => ask(Arc::clone(self)).await,
        }
    }

    /// The copies of a mirror that lack pages.
    pub(crate) fn failed_copies(&self) -> BTreeSet<DeviceId> {
        self.mirror.as_ref().map(|mirror| mirror.state().failed.clone()).unwrap_or_default()
    }

    /// Notes that `copy` has every page that the manifest names on the mirror.
    pub(crate) fn note_current(&self, copy: DeviceId) {
        if let Some(mirror) = &self.mirror {
            let mut state = mirror.state();
            state.failed.remove(&copy);
            // It has answered, and what it had lost before says nothing of what it loses from now on.
            state.lost_since.remove(&copy);
        }
    }

    /// Notes that `copy` has answered something that no mirror asked.
    pub fn note_answered(&self, copy: DeviceId) {
        if let Some(mirror) = &self.mirror {
            mirror.state().lost_since.remove(&copy);
        }
    }

    /// Notes that a write to `extent` may still arrive at a copy: it stays in use until the database is next opened.
    pub(super) fn doubt(&self, extent: Extent) {
        if let Some(mirror) = &self.mirror {
            mirror.doubt(extent);
        }
    }

    /// Writes at `extent` to `copy` what another copy has there. The write holds `held`, which keeps the blocks from
    /// being used for anything else, until it is answered, whoever waits for it.
    ///
    /// # Errors
    /// Those of the copy.
    pub(crate) async fn restore_on(
        self: &Arc<Self>,
        copy: &Arc<Self>,
        (extent, bytes): (Extent, Bytes),
        held: Arc<dyn HeldSpace>,
    ) -> Result<()> {
        copy.reserve(vec![extent]).await?;
        let (mirror, writing) = (Arc::clone(self), Arc::clone(copy));
        let write = async move {
            let outcome = writing.write(extent.start, bytes).await;
            if outcome.as_ref().is_err_and(may_still_happen) {
                mirror.doubt(extent);
            }
            drop(held);
            outcome
        };
        let patience = copy.timeout();
        match waiting::timeout(patience, ended(begin(write.boxed()))).await {
            Some(outcome) => outcome,
            None => {
                copy.note_slow();
                Err(copy.unanswered("write", patience))
            }
        }
    }

    /// Takes space that is free, on all copies of a mirror.
    pub(super) fn take_free(&self, block_count: u32) -> Extent {
        let mut space = self.space_map();
        let Some(mirror) = &self.mirror else { return space.map.allocate(block_count) };
        let mut held: Vec<_> = mirror.by_id().into_iter().map(|copy| copy.space_map()).collect();
        let mut maps: Vec<&mut SpaceMap> = held.iter_mut().map(|space| &mut space.map).collect();
        let extent = SpaceMap::allocate_common(&mut maps, block_count);
        let taken = space.map.take(extent);
        debug_assert!(taken.is_ok(), "what is free on each copy is free on the mirror: {taken:?}");
        extent
    }

    /// Lets go of space, on all copies of a mirror: of it first, so that what is free on each copy is free there.
    pub(super) fn let_free(&self, extent: Extent) {
        self.let_free_but(extent, None);
    }

    /// The same, but that it stays in use on the copy `taken_on`, for something else than the mirror.
    pub(super) fn let_free_but(&self, extent: Extent, taken_on: Option<DeviceId>) {
        let Some(mirror) = &self.mirror else {
            self.space_map().free(extent);
            return;
        };
        let free = free_of(vec![extent], &mirror.state().doubtful);
        let free_blocks: u64 = free.iter().map(|part| u64::from(part.block_count)).sum();
        {
            let mut space = self.space_map();
            space.doubtful_blocks += u64::from(extent.block_count).saturating_sub(free_blocks);
            free.iter().for_each(|part| space.free(*part));
        }
        for copy in mirror.copies.iter().filter(|copy| Some(copy.id()) != taken_on) {
            let mut space = copy.space_map();
            free.iter().for_each(|part| space.free(*part));
        }
    }

    /// Lets go of all that waits on a mirror that is removed, and that nobody reads. What may still be written to, and
    /// what is kept for log replicas, is its copies' from now on.
    pub(crate) fn dissolve(&self) {
        let Some(mirror) = &self.mirror else { return };
        let retired = std::mem::take(&mut self.space_map().retired);
        for (at, extent) in retired {
            match at {
                NEVER => mirror.copies.iter().for_each(|copy| copy.keep(vec![extent])),
                _ => self.let_free(extent),
            }
        }
        let doubtful_blocks = std::mem::take(&mut self.space_map().doubtful_blocks);
        for copy in &mirror.copies {
            copy.space_map().doubtful_blocks += doubtful_blocks;
        }
    }

    /// The devices whose pages lie on the same media: itself, a mirror's copies, and the mirrors of all of these.
    pub(super) fn sharing_media(&self) -> BTreeSet<DeviceId> {
        let copies = self.mirror.iter().flat_map(|mirror| &mirror.copies);
        let mut ids: BTreeSet<DeviceId> = self.mirrors().iter().map(|mirror| mirror.id()).collect();
        for copy in copies {
            ids.insert(copy.id());
            ids.extend(copy.mirrors().iter().map(|mirror| mirror.id()));
        }
        ids.insert(self.id());
        ids
    }

    /// The mirrors that it is a copy of.
    pub(super) fn mirrors(&self) -> Vec<Arc<Self>> {
        let mut mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        mirrors.retain(|mirror| mirror.strong_count() > 0);
        mirrors.iter().filter_map(|mirror| mirror.upgrade()).collect()
    }

    /// Waits until nobody else asks for space there; for each copy of a mirror [`TURN_WAIT`] at most. Whoever has its
    /// turn may wait for a copy that hangs: that this one hangs too is found out by asking it.
    pub(super) async fn space_turns(&self) -> Vec<tokio::sync::MutexGuard<'_, ()>> {
        let Some(mirror) = &self.mirror else { return vec![self.acquiring.lock().await] };
        let failed = self.failed_copies();
        let mut turns = Vec::with_capacity(mirror.copies.len());
        // By number, so that two mirrors do not wait for each other.
        for copy in mirror.by_id().into_iter().filter(|copy| !failed.contains(&copy.id())) {
            turns.extend(waiting::timeout(TURN_WAIT, copy.acquiring.lock()).await);
        }
        turns
    }
}

#[cfg(test)]
mod tests;
