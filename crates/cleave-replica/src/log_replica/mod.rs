//! Log replicas on devices, from which another host goes on when this one and its folder are lost.
//!
//! ```text
//!  commit ─▶ durable in the log ─▶ durable in the replica ─▶ acknowledged
//!  manifest replaced ─▶ files, manifest and list on the device ─▶ stamp that names them ─▶ acknowledged
//!  failover: stamp ─▶ manifest, files and log into a new folder ─▶ opened there, in a higher epoch
//! ```
//!
//! 1. `ALTER SYSTEM SET log_replica` names the devices; [`LogReplicas::set`] puts them into the manifest, with the
//!    space that each reserves.
//! 2. [`LogReplicas::reach`] is called before a commit is acknowledged: the [`copier`] sends what the device lacks.
//! 3. [`LogReplicas::prepare`] makes room for a manifest in the replica before it is written. When a replica is given
//!    up, the other devices are told ([`given_up`]), and it is erased when its device answers
//!    ([`LogReplicas::end_given_up`]).
//! 4. [`fail_over`](failover::fail_over) makes a folder of a device's replica ([`failover`]); [`found`] reads it,
//!    [`layout`] is its format.
//!
//! A replica is a prefix of the host's log, so that a host that is not lost always has more. A host whose database was
//! failed over can acknowledge nothing any more, since the device refuses it.
//!
//! Invariant: while a replica is configured, nothing is acknowledged that it does not have. Source: rules 25, 27 and
//! 29; `docs/design/replica.md`.

mod copier;
pub mod failover;
mod found;
mod given_up;
pub(crate) mod layout;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_fragment::waiting;
use cleave_media::{BlockAddress, Extent};
use futures::future::BoxFuture;

pub use failover::{FailedOver, FailoverSource, Witnesses};

use cleave_catalog::catalog::log_replicas::{KeptSpace, LogReplica};
use cleave_catalog::catalog::{CatalogState, DeviceId};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_engine::device::{Claim, Device, free_of};
use cleave_engine::storage_engine::Engine;
use cleave_engine::storage_engine::catalog_edit::{CatalogEdit, retired};
use cleave_engine::storage_engine::commit::Changes;
use cleave_engine::storage_engine::log_keeper::LoggedPage;

use crate::backup::{STATISTICS, USERS};
use copier::{Copier, Origin};
use layout::{ANCHOR_ALIGNMENT, ANCHOR_BLOCKS};

/// Names of files in the folder of a database.
const MANIFEST: &str = "manifest";
const SEGMENTS: &str = "segments";

/// How long opening a database waits for its replicas.
const INCARNATION_WAIT: Duration = Duration::from_secs(2);
/// How often a commit makes more space before it fails.
const ATTEMPTS: u32 = 3;

/// The replicas of a database's log. See the module's description.
#[derive(Debug, Default)]
pub struct LogReplicas {
    is_on: AtomicBool,
    /// Records that their writers do not report.
    wanted_end: AtomicU64,
    /// The end of the log found by recovery, if there are replicas, which may lack some of it.
    opened_end: AtomicU64,
    /// The last manifest whose commit is in no log.
    wanted_generation: AtomicU64,
    copiers: Mutex<BTreeMap<[u8; 16], Arc<Copier>>>,
    /// What the manifest at the start of the incarnation kept for replicas; empty once they all have a newer one.
    kept: Mutex<KeptSpace>,
    /// What records name that no manifest did, by the generation of the manifest on disk then.
    logged: Mutex<Vec<(u64, LoggedPage)>>,
    /// Locked while ended ones are erased: their space is freed once.
    erasing: tokio::sync::Mutex<()>,
}

impl LogReplicas {
    /// Notes that the manifest on disk says `state`.
    pub(crate) fn note_manifest(&self, state: &CatalogState) {
        self.is_on.store(source::asked(state).next().is_some(), Ordering::Release);
    }

    /// Begins with `state`, found by recovery: the replicas may have it or an earlier one, and lack what it defines.
    pub fn open(&self, database: &Engine, state: &Arc<CatalogState>) -> Result<()> {
        let mut copiers = self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        for asked in source::asked(state) {
            let device = database.attached(DeviceId(asked.device))?;
            let copier = Copier::new(asked.id, device, vec![Arc::clone(state)]);
            copiers.insert(asked.id, Arc::new(copier));
            self.want_manifest(state.generation);
        }
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = state.upkeep.kept.clone();
        Ok(())
    }

    /// Whether there is any.
    pub fn are_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The end of the log that readers may have seen since the start of the incarnation: 0 without replicas.
    pub fn opened_end(&self) -> u64 {
        self.opened_end.load(Ordering::Acquire)
    }

    /// Requests the log up to `end` of the next call of [`LogReplicas::reach`].
    pub(crate) fn want(&self, end: u64) {
        self.wanted_end.fetch_max(end, Ordering::AcqRel);
    }

    /// Requests likewise the manifest of `generation`, before a commit may be made on it, so that the replicas have it
    /// first.
    pub(crate) fn want_manifest(&self, generation: u64) {
        self.wanted_generation.fetch_max(generation, Ordering::AcqRel);
    }

    /// A record is about to name `pages`, some of which replace pages of the manifest of `durable`: the replicas get no
    /// such record before that manifest. What the manifest at the start has kept was let go before such a record.
    pub(crate) fn log_pages(&self, durable: &CatalogState, pages: &[LoggedPage]) {
        for (device, kept) in &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            let here = pages.iter().filter(|page| page.device == *device);
            let mut named: Vec<Extent> = here.flat_map(LoggedPage::extents).collect();
            named.sort_unstable();
            *kept = free_of(std::mem::take(kept), &named);
        }
        if !self.are_on() || pages.is_empty() {
            return;
        }
        self.want_manifest(durable.generation);
        let pages = pages.iter().map(|page| (durable.generation, page.clone()));
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).extend(pages);
    }

    /// The parts of what records name that `next` does not, where a replica may have a manifest behind which they are
    /// redone: that of the generation `oldest` or a later one.
    fn logged_beside(&self, next: &CatalogState, oldest: u64) -> KeptSpace {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|(generation, _)| *generation >= oldest);
        let mut by_table: BTreeMap<(u32, DeviceId), Vec<Extent>> = BTreeMap::new();
        for (_, page) in &*logged {
            by_table.entry((page.table, page.device)).or_default().extend(page.extents());
        }
        let mut kept = KeptSpace::new();
        for ((table, device), extents) in by_table {
            let tablets = next.table_by_id(table).into_iter().flat_map(|table| &table.tablets);
            let here = tablets.filter(|tablet| tablet.device == device);
            let named: Vec<Extent> = here.flat_map(|tablet| tablet.extents()).collect();
            kept.entry(device).or_default().extend(free_of(extents, &named));
        }
        kept
    }

    /// Whether a manifest after that of `generation` has something that is in no log.
    fn has_defined_since(&self, generation: u64) -> bool {
        self.wanted_generation.load(Ordering::Acquire) > generation
    }

    /// Waits until all replicas have the log up to `end`, which is durable here, and what else was requested. The
    /// writer lock must be free.
    ///
    /// # Errors
    /// [`StorageError::NotReplicated`].
    pub(crate) async fn reach(self: &Arc<Self>, database: &Arc<Engine>, end: u64) -> Result<()> {
        let end = end.max(self.wanted_end.load(Ordering::Acquire));
        if !self.are_on() || end == 0 {
            return Ok(());
        }
        let generation = self.wanted_generation.load(Ordering::Acquire);
        let mut failed_count = 0;
        loop {
            let Some(lacking) = self.first_lacking(database, end, generation)? else {
                return Ok(());
            };
            if lacking.reach(&self.origin(database), end, generation).await? {
                continue;
            }
            failed_count += 1;
            if failed_count >= ATTEMPTS {
                return Err(fault(
                    &lacking.device,
                    "its space for the log replica does not suffice",
                ));
            }
            self.more_space(database).await?;
        }
    }

    /// As [`LogReplicas::reach`] for a manifest with nothing that is not in the log: sent now, if the device answers.
    pub(crate) async fn follow(self: &Arc<Self>, database: &Arc<Engine>) {
        let state = database.durable();
        for asked in source::asked(&state) {
            if let Ok(copier) = self.copier(database, asked) {
                // What fails is tried again by the next commit.
                drop(copier.reach(&self.origin(database), 0, state.generation).await);
            }
        }
    }

    fn origin(self: &Arc<Self>, engine: &Arc<Engine>) -> Origin {
        Origin { engine: Arc::clone(engine), replicas: Arc::clone(self) }
    }

    fn first_lacking(
        &self,
        database: &Engine,
        end: u64,
        generation: u64,
    ) -> Result<Option<Arc<Copier>>> {
        for asked in source::asked(&database.durable()) {
            let copier = self.copier(database, asked)?;
            if !copier.has(end, generation) {
                return Ok(Some(copier));
            }
        }
        Ok(None)
    }

    fn copier(&self, database: &Engine, asked: &LogReplica) -> Result<Arc<Copier>> {
        let mut copiers = self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copier) = copiers.get(&asked.id) {
            return Ok(Arc::clone(copier));
        }
        let device = database.attached(DeviceId(asked.device))?;
        // It is made now, and has no manifest yet.
        let copier = Arc::new(Copier::new(asked.id, device, Vec::new()));
        copiers.insert(asked.id, Arc::clone(&copier));
        Ok(copier)
    }

    /// What must be kept beside `next`, the next manifest: the parts that it does not name of all manifests that a
    /// replica may have when the database is opened with `next`, and of what the log behind these names.
    fn kept_beside(&self, database: &Engine, next: &CatalogState) -> KeptSpace {
        // The last manifest may be sent to a replica until there is another.
        let mut manifests = vec![database.durable()];
        let copiers = self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        let asked: Vec<_> = source::asked(next).collect();
        if asked.is_empty() {
            return KeptSpace::new();
        }
        manifests.extend(
            asked
                .iter()
                .filter_map(|asked| copiers.get(&asked.id))
                .flat_map(|copier| copier.manifests()),
        );
        drop(copiers);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for manifest in &manifests {
            for (device, extents) in retired(manifest, next) {
                kept.entry(device).or_default().extend(extents);
            }
        }
        let oldest = manifests.iter().map(|manifest| manifest.generation).min().unwrap_or(0);
        for (device, extents) in self.logged_beside(next, oldest) {
            kept.entry(device).or_default().extend(extents);
        }
        kept.retain(|device, extents| {
            *extents = united(std::mem::take(extents));
            !extents.is_empty() && next.devices.contains_key(device)
        });
        kept
    }

    /// Frees what was kept for replicas that are dropped, and what was kept from before the incarnation if all others
    /// surely have a manifest of this one.
    pub(crate) fn let_go(&self, database: &Engine) {
        let durable = database.durable();
        let wanted: BTreeSet<[u8; 16]> = source::asked(&durable).map(|asked| asked.id).collect();
        let copiers = self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = copiers.iter().filter(|(id, _)| !wanted.contains(*id));
        ended.for_each(|(_, copier)| copier.forget_manifests());
        let is_sure = |id| copiers.get(id).is_some_and(|copier| copier.is_sure());
        let are_sure = wanted.iter().all(is_sure);
        drop(copiers);
        if !are_sure {
            return;
        }
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        for device in kept.into_keys().filter_map(|device| database.device(device)) {
            device.let_go_of_kept();
        }
    }

    /// Where the log must begin, so that every replica can go on: `position`, or what one of them still counts on.
    pub(crate) fn first_needed(&self, state: &CatalogState, position: u64) -> u64 {
        let copiers = self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = source::asked(state);
        let start = |asked: &LogReplica| copiers.get(&asked.id).map_or(0, |copier| copier.start());
        starts.map(start).fold(position, u64::min)
    }

    /// A checkpoint, which gives the replicas more space and frees what they need no more.
    ///
    /// # Errors
    /// [`StorageError::NotReplicated`] where a device does not give it; those of a commit.
    fn more_space<'a>(&'a self, database: &'a Arc<Engine>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut edit = CatalogEdit::begin(database).await?;
            match self.prepare(database, &mut edit, false).await {
                Ok(()) => {}
                Err(Error::Storage(error)) => {
                    return Err(match &*error {
                        // Commits that wait for it were made before.
                        StorageError::Unreplicated { device, source } => {
                            let (device, source) = (device.clone(), Arc::clone(source));
                            StorageError::NotReplicated { device, source }.into()
                        }
                        _ => Error::Storage(error),
                    });
                }
                Err(error) => return Err(error),
            }
            database.commit(Changes::checkpoint(edit)).await.map(drop)
        })
    }

    /// Makes room in the replicas for `edit`'s catalog version, before it is committed.
    ///
    /// # Errors
    /// Those of the devices; 53100 where one has no room.
    pub async fn prepare(
        &self,
        database: &Arc<Engine>,
        edit: &mut CatalogEdit,
        is_checkpoint: bool,
    ) -> Result<()> {
        // Of the manifest's size; what is let go meanwhile makes it less.
        edit.next.upkeep.kept = self.kept_beside(database, &edit.next);
        for at in 0..edit.next.upkeep.log_replicas.len() {
            let Some(asked) = edit.next.upkeep.log_replicas.get(at).cloned() else { continue };
            if asked.is_ended {
                continue;
            }
            let is_new = asked.arenas.is_empty();
            match self.more_room(database, edit, &asked).await {
                Ok(None) => {}
                Ok(Some(arena)) => {
                    if let Some(asked) = edit.next.upkeep.log_replicas.get_mut(at) {
                        asked.arenas.push(arena);
                    }
                }
                // It has nothing that is not in the log, and the replica stays with the manifest that it has.
                Err(_) if is_checkpoint && !is_new => {}
                Err(Error::Storage(source)) => {
                    let device = database.attached(DeviceId(asked.device))?;
                    let device = device.name().to_owned();
                    return Err(StorageError::Unreplicated { device, source }.into());
                }
                Err(error) => return Err(error),
            }
        }
        edit.next.upkeep.kept = self.kept_beside(database, &edit.next);
        Ok(())
    }

    async fn more_room(
        &self,
        database: &Arc<Engine>,
        edit: &mut CatalogEdit,
        asked: &LogReplica,
    ) -> Result<Option<Extent>> {
        let copier = self.copier(database, asked)?;
        let shortage = copier.shortage(database, asked, &edit.next).await?;
        if shortage == 0 {
            return Ok(None);
        }
        let claim = edit.claim(&copier.device);
        match asked.arenas.is_empty() {
            true => aligned(&claim, shortage.saturating_add(ANCHOR_BLOCKS)).await.map(Some),
            false => claim.acquire(shortage).await.map(Some),
        }
    }

    /// Keeps replicas on the devices called so, and on no others.
    ///
    /// # Errors
    /// Unknown names; the database's own device; [`StorageError::Copied`] and [`StorageError::Superseded`], where a
    /// replica is given up and another host has taken the database over; those of the devices and of a commit.
    pub async fn set(&self, database: &Arc<Engine>, names: &[String]) -> Result<()> {
        let mut wanted = Vec::new();
        for name in names {
            let device = database.device_named(name)?;
            if device.id() == DeviceId::EMBEDDED {
                let reason = "it lies in the folder of the database, and would be lost with it; name one that runs \
                    elsewhere";
                return Err(fault(&device, reason));
            }
            if device.entry().mirror().is_some() {
                let reason = "it is a mirror, and has no media of its own; name one of its copies, or several";
                return Err(fault(&device, reason));
            }
            // One that does not answer now is refused now.
            device.link().await?;
            wanted.push(device.id().0);
        }
        let is_unwanted =
            |replica: &LogReplica| !replica.is_ended && !wanted.contains(&replica.device);
        let answering = match database.durable().upkeep.log_replicas.iter().any(is_unwanted) {
            true => Box::pin(given_up::answering(database)).await?,
            false => Vec::new(),
        };
        let mut edit = CatalogEdit::begin(database).await?;
        let replicas = &mut edit.next.upkeep.log_replicas;
        let mut unwanted = Vec::new();
        for replica in replicas.iter_mut().filter(|replica| is_unwanted(replica)) {
            replica.is_ended = true;
            unwanted.push(replica.clone());
        }
        for device in wanted {
            if !replicas.iter().any(|replica| replica.device == device && !replica.is_ended) {
                let (id, arenas) = (drawn_id()?, Vec::new());
                replicas.push(LogReplica { device, id, arenas, is_ended: false, gives_up: None });
            }
        }
        for replica in &unwanted {
            Box::pin(given_up::tell(&mut edit, replica, &answering)).await?;
        }
        database.commit(Changes::settings(edit)).await?;
        self.erase_ended(database, false).await
    }

    /// Erases dropped replicas and the notes of them, where the devices answer, and frees their space. The note of a
    /// replica whose device was removed while it was offline stays until the database is next opened, whose epoch says
    /// as much.
    ///
    /// # Errors
    /// Those of a commit.
    async fn erase_ended(&self, database: &Arc<Engine>, is_incarnation: bool) -> Result<()> {
        // An earlier call may have erased them, and their space may belong to a table by now.
        let _erasing = self.erasing.lock().await;
        let state = database.durable();
        let mut erased = Vec::new();
        let replicas = &state.upkeep.log_replicas;
        let (words, ended): (Vec<_>, Vec<_>) = replicas
            .iter()
            .filter(|replica| replica.is_ended)
            .partition(|replica| replica.gives_up.is_some());
        for ended in ended.into_iter().chain(words) {
            let is_needed = |id: [u8; 16]| {
                let is_known = replicas.iter().any(|replica| replica.id == id);
                !erased.contains(&id) && (is_known || !is_incarnation)
            };
            if ended.gives_up.is_some_and(is_needed) {
                continue;
            }
            let copier = self.copier(database, ended)?;
            if copier.erase(ended).await.is_ok() {
                erased.push(ended.id);
            }
        }
        if erased.is_empty() {
            return Ok(());
        }
        let mut edit = CatalogEdit::begin(database).await?;
        edit.next.upkeep.log_replicas.retain(|replica| !erased.contains(&replica.id));
        database.commit(Changes::checkpoint(edit)).await?;
        let mut copiers = self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        copiers.retain(|id, _| !erased.contains(id));
        Ok(())
    }

    /// Catches up after devices were offline: brings replicas to the end of the log, and [ends](Self::end_given_up)
    /// others. A server calls it periodically.
    ///
    /// # Errors
    /// As [`Self::end_given_up`].
    pub async fn look_after(self: &Arc<Self>, database: &Arc<Engine>) -> Result<()> {
        if let Some(log) = database.log().filter(|_| self.are_on()) {
            // The waiting session has got the error, and nobody else needs it.
            drop(self.reach(database, log.durable_end().0).await);
        }
        self.end_given_up(database, false).await
    }

    /// Erases the replicas that were given up, and tells devices that answer only now of those that cannot be erased
    /// yet.
    ///
    /// # Errors
    /// Those of a commit; [`StorageError::Copied`] and [`StorageError::Superseded`] where another host has taken the
    /// database over.
    async fn end_given_up(&self, database: &Arc<Engine>, is_incarnation: bool) -> Result<()> {
        if !database.durable().upkeep.log_replicas.iter().any(|replica| replica.is_ended) {
            return Ok(());
        }
        self.erase_ended(database, is_incarnation).await?;
        let state = database.durable();
        if given_up::unerased(&state).next().is_none() {
            return Ok(());
        }
        let answering = Box::pin(given_up::answering(database)).await?;
        let is_untold = |replica| given_up::untold(&state, replica, &answering).next().is_some();
        if !given_up::unerased(&state).any(is_untold) {
            return Ok(());
        }
        let mut edit = CatalogEdit::begin(database).await?;
        let left: Vec<LogReplica> = given_up::unerased(&edit.next).cloned().collect();
        let mut is_told = false;
        for replica in &left {
            is_told |= Box::pin(given_up::tell(&mut edit, replica, &answering)).await?;
        }
        if is_told {
            database.commit(Changes::checkpoint(edit)).await?;
        }
        Ok(())
    }

    /// [`Self::end_given_up`], with the time limit of a start: beside a checkpoint, which an offline device does not
    /// affect.
    pub async fn end_what_answers(&self, database: &Arc<Engine>) {
        let ending =
            waiting::timeout(INCARNATION_WAIT, Box::pin(self.end_given_up(database, false)));
        drop(ending.await);
    }

    /// Brings the replicas up to date when the database is opened; an offline device hinders only commits.
    pub async fn start(self: &Arc<Self>, database: &Arc<Engine>) {
        let state = database.catalog();
        if state.upkeep.log_replicas.is_empty() {
            return;
        }
        if let Some(log) = database.log().filter(|_| self.are_on()) {
            self.opened_end.store(log.end().0, Ordering::Release);
        }
        let following = async {
            self.follow(database).await;
            // Tried again by the periodic task.
            drop(self.end_given_up(database, true).await);
        };
        waiting::timeout(INCARNATION_WAIT, Box::pin(following)).await.unwrap_or_default();
    }

    /// The status of the replicas, in words.
    pub fn status(&self, database: &Engine) -> String {
        let state = database.durable();
        let end = database.log().map_or(0, |log| log.durable_end().0);
        let mut lines = Vec::new();
        for replica in state.upkeep.log_replicas.iter().filter(|replica| replica.gives_up.is_none())
        {
            let Ok(copier) = self.copier(database, replica) else { continue };
            let name = copier.device.name();
            if replica.is_ended {
                lines.push(format!(
                    "device \"{name}\" still has a dropped replica, from which nothing should be failed over; it is \
                        erased when the device \
                     answers: by a server, or at a CHECKPOINT, the next start, or when log_replica is set"
                ));
                continue;
            }
            let behind = end.saturating_sub(copier.end());
            let mut line = format!(
                "device \"{name}\" has the log up to {}, {behind} bytes less than here",
                copier.end()
            );
            if let Some(failure) = copier.failure() {
                line = format!(
                    "BEHIND: {failure}; nothing is acknowledged until it answers, or log_replica is reset; {line}"
                );
            }
            lines.push(line);
        }
        if lines.is_empty() { "off".to_owned() } else { lines.join("; ") }
    }
}

/// `extents` ascending, in as few as there can be.
fn united(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut united: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let end = extent.end().0;
        let last = united.last_mut().filter(|last| extent.start <= last.end());
        let whole = last.and_then(|last| {
            let blocks = u32::try_from(end.max(last.end().0) - last.start.0).ok()?;
            Some((last, blocks))
        });
        match whole {
            Some((last, blocks)) => last.block_count = blocks,
            None => united.push(extent),
        }
    }
    united
}

/// Takes so many blocks where an anchor may lie.
async fn aligned(claim: &Claim, block_count: u32) -> Result<Extent> {
    let whole = claim.acquire(block_count.saturating_add(ANCHOR_ALIGNMENT - 1)).await?;
    let start = whole.start.0.next_multiple_of(u64::from(ANCHOR_ALIGNMENT));
    let taken = Extent { start: BlockAddress(start), block_count };
    let part = |from: u64, to: u64| {
        let block_count = u32::try_from(to - from).unwrap_or(0);
        claim.give_back(Extent { start: BlockAddress(from), block_count });
    };
    part(whole.start.0, start);
    part(taken.end().0, whole.end().0);
    Ok(taken)
}

/// An id that no other replica has.
fn drawn_id() -> Result<[u8; 16]> {
    cleave_media::random_bytes().map_err(|error| {
        Error::io("draw", std::path::Path::new("an id"), std::io::Error::other(error))
    })
}

/// Erases log replicas of `database` on a device that is being attached: it was removed while it was offline, and no
/// manifest names them.
///
/// # Errors
/// Those of the device.
pub(crate) async fn erase_unnamed(device: &Device, database: [u8; 16]) -> Result<()> {
    let block_count = device.block_count().await?;
    for (start, _) in found::heads(device, database, block_count).await? {
        copier::erase_at(device, start).await?;
    }
    Ok(())
}

/// The devices that keep replicas, as `log_replica` has them.
pub fn shown(state: &CatalogState) -> String {
    let name = |replica: &LogReplica| {
        let device = state.devices.get(&DeviceId(replica.device));
        device.map_or_else(|| replica.device.to_string(), |device| device.name.clone())
    };
    source::asked(state).map(name).collect::<Vec<_>>().join(", ")
}

/// An error about the replica on `device`.
fn fault(device: &Device, reason: &str) -> Error {
    let (device, address) = (device.name().to_owned(), device.entry().address());
    StorageError::LogReplica { device, address, reason: reason.to_owned() }.into()
}
