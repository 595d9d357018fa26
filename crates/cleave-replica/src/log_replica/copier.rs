//! Writes one log replica: the log and manifest of the host in, acknowledged on the device out.
//!
//! 1. [`Copier::reach`] waits until the device has the log up to a place, and the manifest. The first caller leads: all
//!    that is durable on the host by then goes in one write and one sync; callers that come meanwhile wait for the next
//!    one.
//! 2. A manifest that is newer than the replica's goes with it: first the files, synced, then the stamp that names
//!    them.
//! 3. [`Copier::shortage`] says, before a manifest is written, how much space its replica will lack.
//! 4. After a restart, of the host or of the device, it goes on from the newest valid stamp. Where that has another log
//!    than this host, since the host went on from a replica that had less, or cannot be compared with it, the replica
//!    gets a new ring with its next manifest.
//!
//! Invariants: the replica is a prefix of the host's log, and never has what the host may lose. Its log fits its
//! manifest: it has no commit that was made on a definition behind that manifest. A slot whose write may still be on
//! its way after its link was lost is not used again before the next incarnation, nor are blocks of files. A manifest
//! that may be there keeps its pages until a newer one surely is. A step that was begun runs to its end, whether or not
//! its caller still waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_engine::device::{COMMAND_BYTES, Device, may_have_happened};
use cleave_engine::storage_engine::Engine;
use cleave_fragment::command::{Payload, Reply, Request, WriteItem};
use cleave_media::{BlockAddress, Clock, Extent, SystemClock};
use tokio::sync::OwnedMutexGuard;

use super::found::Found;
use super::layout::{
    ANCHOR_BLOCKS, BLOCK, CopiedFile, Head, List, Place, RING_BLOCKS_MIN, Room, SLOT_COUNT, Stamp,
    blocks, padded, slot, whole,
};
use super::{LogReplicas, fault, found, source};

/// The source of the replica: the log of an open database.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) engine: Arc<Engine>,
    pub(super) replicas: Arc<LogReplicas>,
}

/// Writes the replica on one device. See the module's description.
#[derive(Debug)]
pub(super) struct Copier {
    id: [u8; 16],
    pub(super) device: Arc<Device>,
    /// What the device has acknowledged; None: it was not asked yet. Locked by the leader.
    shipped: Arc<tokio::sync::Mutex<Option<Shipped>>>,
    /// How far the log is there.
    end: AtomicU64,
    /// Which manifest is there.
    generation: AtomicU64,
    /// Where the log begins there; earlier log is not needed any more.
    start: AtomicU64,
    failures: AtomicU64,
    failure: Mutex<Option<Arc<StorageError>>>,
    /// Manifests that may be there, oldest first: the last one that surely is, and all whose stamps were sent since.
    manifests: Mutex<Vec<Arc<CatalogState>>>,
    /// Whether the device has acknowledged one of this incarnation.
    is_sure: AtomicBool,
}

/// What the device has acknowledged.
#[derive(Debug)]
struct Shipped {
    stamp: Stamp,
    slot: u32,
    sequence_max: u64,
    files: BTreeMap<String, Place>,
    /// Slots that a lost write may still reach.
    doubtful: BTreeSet<u32>,
    /// Blocks likewise.
    lost: Vec<Extent>,
    /// Blocks of a step that failed; free again when one succeeds.
    attempted: Vec<Extent>,
    /// The space that this start of the device knows to be ours.
    reserved: Option<(u64, Vec<Extent>)>,
    /// The log in the ring is not known to be a prefix of this host's: nothing is added to it.
    is_astray: bool,
}

/// Why a step was not made.
enum Stopped {
    /// The space of the replica is too small; the next checkpoint gives it more.
    Room,
    /// The manifest that was to be sent is not the last one any more, and parts of it are gone.
    Outdated,
    /// Something else.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Copier {
    /// Of the replica `id`, which is on `device` and may have one of `manifests`.
    pub(super) fn new(
        id: [u8; 16],
        device: Arc<Device>,
        manifests: Vec<Arc<CatalogState>>,
    ) -> Self {
        Self {
            id,
            device,
            shipped: Arc::default(),
            end: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            start: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            failure: Mutex::default(),
            manifests: Mutex::new(manifests),
            is_sure: AtomicBool::new(false),
        }
    }

    /// Manifests that the device may have, whose pages are not to be used again.
    pub(super) fn manifests(&self) -> Vec<Arc<CatalogState>> {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the replica: no failover may use it any more.
    pub(super) fn forget_manifests(&self) {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the device has acknowledged a manifest of this incarnation.
    pub(super) fn is_sure(&self) -> bool {
        self.is_sure.load(Ordering::Acquire)
    }

    /// Whether the device has the log up to `end` and the manifest of `generation`, or newer ones.
    pub(super) fn has(&self, end: u64, generation: u64) -> bool {
        self.end.load(Ordering::Acquire) >= end
            && self.generation.load(Ordering::Acquire) >= generation
    }

    /// How far the log is there.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Where the log begins there; 0: not known yet.
    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    /// Why the last step was not made.
    pub(super) fn failure(&self) -> Option<Arc<StorageError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the device has the log up to `end`, which is durable on the host, and the manifest of `generation`.
    /// False: it needs more space first.
    ///
    /// # Errors
    /// [`StorageError::NotReplicated`].
    pub(super) async fn reach(
        self: &Arc<Self>,
        origin: &Origin,
        end: u64,
        generation: u64,
    ) -> Result<bool> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut shipped = Arc::clone(&self.shipped).lock_owned().await;
        if self.has(end, generation) {
            return Ok(true);
        }
        if self.failures.load(Ordering::Acquire) != failures
            && let Some(failure) = self.failure()
        {
            // Callers that waited for an attempt share its outcome.
            return Err(self.not_copied(failure));
        }
        let (copier, origin) = (Arc::clone(self), origin.clone());
        let step = async move { copier.step(&origin, &mut shipped, generation).await };
        #[expect(
            clippy::disallowed_methods,
            reason = "a write that was begun must end before the next one goes to the same slot, so giving up the \
                statement \
                      must not cancel it; the guard that it holds keeps others out"
        )]
        let step = tokio::spawn(step);
        match step.await {
            Ok(Ok(())) => Ok(self.has(end, generation)),
            // Each time that it is outdated there is a newer manifest, which only a holder of the writer lock makes.
            Ok(Err(Stopped::Room | Stopped::Outdated)) => Ok(false),
            Ok(Err(Stopped::Failed(Error::Storage(failure)))) => Err(self.not_copied(failure)),
            Ok(Err(Stopped::Failed(error))) => Err(error),
            Err(_) => Err(fault(&self.device, "the program is shutting down")),
        }
    }

    fn not_copied(&self, source: Arc<StorageError>) -> Error {
        StorageError::NotReplicated { device: self.device.name().to_owned(), source }.into()
    }

    /// Brings the replica to where the host is; notes how it went.
    async fn step(
        &self,
        origin: &Origin,
        shipped: &mut OwnedMutexGuard<Option<Shipped>>,
        generation: u64,
    ) -> Result<(), Stopped> {
        let mut outcome = self.bring_in_line(origin, shipped, generation).await;
        if let Err(Stopped::Failed(Error::Storage(failure))) = &outcome
            && is_of_a_start(failure)
        {
            // A lost link shows at its next use, and so does a restarted device.
            if let Some(shipped) = &mut **shipped {
                shipped.reserved = None;
            }
            outcome = self.bring_in_line(origin, shipped, generation).await;
        }
        let failure = match &outcome {
            Ok(()) => None,
            Err(Stopped::Room | Stopped::Outdated) => return outcome,
            Err(Stopped::Failed(Error::Storage(failure))) => Some(Arc::clone(failure)),
            Err(Stopped::Failed(error)) => {
                let reason = error.to_string();
                let (device, address) =
                    (self.device.name().to_owned(), self.device.entry().address());
                Some(Arc::new(StorageError::LogReplica { device, address, reason }))
            }
        };
        if failure.is_some() {
            // The device may have restarted by now.
            if let Some(shipped) = &mut **shipped {
                shipped.reserved = None;
            }
        }
        let is_failure = failure.is_some();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        if is_failure {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        outcome
    }

    async fn bring_in_line(
        &self,
        origin: &Origin,
        place: &mut Option<Shipped>,
        generation: u64,
    ) -> Result<(), Stopped> {
        loop {
            match self.bring_to_manifest(origin, place, generation).await {
                // There is a newer one.
                Err(Stopped::Outdated) => {}
                outcome => return outcome,
            }
        }
    }

    /// The same, unless a newer manifest replaces the last one before it is needed.
    async fn bring_to_manifest(
        &self,
        origin: &Origin,
        place: &mut Option<Shipped>,
        generation: u64,
    ) -> Result<(), Stopped> {
        let Origin { engine: database, replicas } = origin;
        let durable = database.durable();
        let Some(asked) = source::asked(&durable).find(|asked| asked.id == self.id) else {
            return Ok(());
        };
        let shipped = self.known(place, database, asked).await?;
        self.reserve(shipped, asked).await?;
        let is_of_incarnation = shipped.stamp.incarnation == database.incarnation();
        if shipped.stamp.generation != durable.generation || !is_of_incarnation {
            match self.copy_manifest(origin, shipped, asked, &durable).await {
                Ok(()) => replicas.let_go(database),
                // The log alone is enough for its waiters, if it follows the replica's manifest.
                Err(Stopped::Room)
                    if !shipped.is_astray
                        && !is_before_failover(&shipped.stamp, &durable)
                        && generation <= shipped.stamp.generation
                        && !replicas.has_defined_since(shipped.stamp.generation) =>
                {
                    self.copy_log(origin, shipped).await?;
                }
                Err(error) => return Err(error),
            }
        } else {
            self.copy_log(origin, shipped).await?;
        }
        self.start.store(shipped.stamp.log_start, Ordering::Release);
        self.end.store(shipped.stamp.log_end, Ordering::Release);
        self.generation.store(shipped.stamp.generation, Ordering::Release);
        Ok(())
    }

    /// What the device has, which is asked first if need be.
    async fn known<'a>(
        &self,
        place: &'a mut Option<Shipped>,
        database: &Engine,
        asked: &LogReplica,
    ) -> Result<&'a mut Shipped> {
        if place.is_none() {
            let shipped = self.read(database, asked).await?;
            self.start.store(shipped.stamp.log_start, Ordering::Release);
            return Ok(place.insert(shipped));
        }
        place.as_mut().ok_or_else(|| fault(&self.device, "what it has is not known"))
    }

    async fn read(&self, database: &Engine, asked: &LogReplica) -> Result<Shipped> {
        let mut shipped = Shipped::nothing(&self.id);
        let Some(arena) = asked.arenas.first() else { return Ok(shipped) };
        let incarnation = self.device.incarnation().await?;
        let block_count = self.device.block_count().await?;
        if let Some(found) = found::at(&self.device, arena.start, &self.id, block_count).await? {
            let is_further =
                database.log().is_some_and(|log| found.stamp.log_end > log.durable_end().0);
            // Of a host before a failover: what it had more was never acknowledged, or given up by the failover.
            if !is_before_failover(&found.stamp, &database.durable())
                && (is_further || !source::ends_as(database.directory(), &found.stamp)?)
            {
                return Err(fault(
                    &self.device,
                    "the log replica on it goes further than this host's log, or another way; this folder is an \
                        older one, and the \
                     database is to be opened where it was last, or failed over from the device",
                ));
            }
            // Unacknowledged writes may be there and not durable, and what they replaced is now overwritten.
            self.device.sync().await?;
            if self.device.incarnation().await? != incarnation {
                return Err(self.device.restarted());
            }
            shipped.is_astray = is_further || !self.is_beginning(database, &found.stamp).await?;
            shipped.take(found, asked);
        }
        Ok(shipped)
    }

    /// Whether the log that `stamp` has is a prefix of this host's, as far as that goes back.
    async fn is_beginning(&self, database: &Engine, stamp: &Stamp) -> Result<bool> {
        let directory = database.directory();
        let from = stamp.log_start.max(source::log_start(directory)?);
        if stamp.incarnation == database.incarnation() || stamp.log_start == stamp.log_end {
            return Ok(true);
        }
        if from >= stamp.log_end {
            return Ok(false);
        }
        let own = |from, to| source::log(directory, from, to);
        found::has_log(&self.device, stamp, from, own).await
    }

    /// Tells this start of the device that the replica's space is ours.
    async fn reserve(&self, shipped: &mut Shipped, asked: &LogReplica) -> Result<()> {
        let is_known = |(_, arenas): &(u64, Vec<Extent>)| *arenas == asked.arenas;
        if shipped.reserved.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        // Asked before anything is written, so that every write is this start's or the sync notices.
        let incarnation = self.device.incarnation().await?;
        self.device.reserve(asked.arenas.clone()).await?;
        shipped.reserved = Some((incarnation, asked.arenas.clone()));
        Ok(())
    }

    /// Sends what the log has more.
    async fn copy_log(&self, origin: &Origin, shipped: &mut Shipped) -> Result<(), Stopped> {
        let Origin { engine: database, replicas } = origin;
        let Some(log) = database.log() else { return Ok(()) };
        let end = log.durable_end().0;
        // Asked behind it: no commit up to there was made on a definition that comes after here.
        if replicas.has_defined_since(shipped.stamp.generation) {
            return Err(Stopped::Outdated);
        }
        if end <= shipped.stamp.log_end {
            return Ok(());
        }
        let mut stamp = shipped.stamp.clone();
        let from = whole(stamp.log_end);
        let items = add_log(database, &mut stamp, from, end)?;
        self.put(database, shipped, stamp, items).await?;
        Ok(())
    }

    /// Sends `state`, which is in the manifest on disk, with the files that it needs, and the log.
    async fn copy_manifest(
        &self,
        origin: &Origin,
        shipped: &mut Shipped,
        asked: &LogReplica,
        state: &Arc<CatalogState>,
    ) -> Result<(), Stopped> {
        let Origin { engine: database, replicas } = origin;
        let Some(log) = database.log() else { return Ok(()) };
        let Some(anchor) = asked.arenas.first() else { return Err(Stopped::Room) };
        let directory = database.directory();
        let end = log.durable_end().0.max(state.log_position);
        // As for the log alone.
        if replicas.has_defined_since(state.generation) {
            return Err(Stopped::Outdated);
        }
        let mut room = shipped.room(asked);
        let mut stamp = shipped.stamp.clone();
        let (mut items, mut taken) = (Vec::new(), Vec::new());
        if shipped.is_astray || needs_ring(&stamp, end, state.log_position, 1) {
            let wanted = ring_blocks(end - whole(state.log_position));
            let ring = room.take(wanted).ok_or(Stopped::Room)?;
            (stamp.ring_start, stamp.ring_blocks) = (ring.start.0, ring.block_count);
            stamp.log_end = whole(state.log_position);
            taken.push(ring);
        }
        let mut files = BTreeMap::new();
        for wanted in source::files(directory, state)? {
            let is_same =
                |place: &&Place| (place.checksum, place.bytes) == (wanted.checksum, wanted.length);
            if let Some(place) = shipped.files.get(&wanted.name).filter(is_same) {
                files.insert(wanted.name, *place);
                continue;
            }
            let Some(bytes) = wanted.read(directory) else {
                // A later commit may have removed it. If not, what needs it is damaged here, and would be there.
                if database.durable().generation != state.generation {
                    return Err(Stopped::Outdated);
                }
                continue;
            };
            let place = place_in(&mut room, &bytes)?;
            taken.push(place.extent());
            items.push(item(BlockAddress(place.start), bytes));
            files.insert(wanted.name, place);
        }
        let named = files.iter();
        let named =
            named.map(|(name, place)| CopiedFile { name: name.clone(), place: Some(*place) });
        let list = List { files: named.collect() }.seal();
        let place = place_in(&mut room, &list)?;
        taken.push(place.extent());
        items.push(item(BlockAddress(place.start), list));
        if shipped.sequence_max == 0 {
            let (database, id) = (state.database.0.to_vec(), self.id.to_vec());
            let head = Head { database, id, ..Head::default() };
            items.push(item(anchor.start, head.seal()));
        }
        // Whatever becomes of this step, the next one writes elsewhere.
        shipped.attempted.extend(&taken);
        let written = self.write(shipped, items).await;
        written.inspect_err(|error| shipped.doubt(error, &taken))?;
        stamp.list = Some(place);
        stamp.generation = state.generation;
        let from = whole(stamp.log_end).max(whole(state.log_position));
        stamp.log_start = state.log_position;
        (stamp.segment_start, stamp.segment_header) =
            source::segment_of(directory, state.log_position)?;
        let items = add_log(database, &mut stamp, from, end)?;
        self.attempt(state);
        let put = self.put(database, shipped, stamp, items).await;
        put.inspect_err(|error| shipped.doubt(error, &taken))?;
        shipped.files = files;
        shipped.attempted.clear();
        shipped.is_astray = false;
        *self.manifests.lock().unwrap_or_else(PoisonError::into_inner) = vec![Arc::clone(state)];
        self.is_sure.store(true, Ordering::Release);
        Ok(())
    }

    /// Notes that `state` may be there from here on: a stamp whose answer is lost may be found.
    fn attempt(&self, state: &Arc<CatalogState>) {
        let mut manifests = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        if !manifests.iter().any(|known| Arc::ptr_eq(known, state)) {
            manifests.push(Arc::clone(state));
        }
    }

    /// Writes `items` and a stamp, the next one.
    async fn put(
        &self,
        database: &Engine,
        shipped: &mut Shipped,
        mut stamp: Stamp,
        mut items: Vec<WriteItem>,
    ) -> Result<()> {
        let number = shipped.next_slot().ok_or_else(|| {
            fault(
                &self.device,
                "its link was lost too often since the database was opened; open it anew, or set log_replica anew",
            )
        })?;
        let anchor = shipped.reserved.as_ref().and_then(|(_, arenas)| arenas.first());
        let anchor = anchor.map(|arena| arena.start);
        let anchor = anchor.ok_or_else(|| fault(&self.device, "it has no space for it"))?;
        // Also one that fails may be found.
        shipped.sequence_max += 1;
        stamp.sequence = shipped.sequence_max;
        (stamp.epoch, stamp.incarnation) = (database.catalog().epoch, database.incarnation());
        stamp.time_us = SystemClock.wall();
        items.push(item(slot(anchor, number).start, stamp.seal()));
        if let Err(error) = self.write(shipped, items).await {
            if may_have_happened(&error) {
                shipped.doubtful.insert(number);
            }
            return Err(error);
        }
        (shipped.stamp, shipped.slot) = (stamp, number);
        Ok(())
    }

    /// Writes `items` and makes them durable.
    async fn write(&self, shipped: &Shipped, items: Vec<WriteItem>) -> Result<()> {
        let mut commands: Vec<Vec<WriteItem>> = Vec::new();
        let mut bytes = COMMAND_BYTES;
        for item in items.into_iter().flat_map(divided) {
            let size = item.payload.bytes.len();
            match commands.last_mut().filter(|_| bytes + size <= COMMAND_BYTES) {
                Some(command) => {
                    command.push(item);
                    bytes += size;
                }
                None => {
                    commands.push(vec![item]);
                    bytes = size;
                }
            }
        }
        for items in commands {
            match self.device.call("keep a log replica", Request::Write(items)).await? {
                Reply::Done => {}
                other => return Err(self.device.strange(&other, "write")),
            }
        }
        self.device.sync().await?;
        let incarnation = self.device.incarnation().await?;
        match &shipped.reserved {
            Some((reserved, _)) if *reserved == incarnation => Ok(()),
            _ => Err(self.device.restarted()),
        }
    }

    /// Blocks that the replica of `next` needs beside those that `asked` has; 0: it has enough.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) async fn shortage(
        &self,
        database: &Arc<Engine>,
        asked: &LogReplica,
        next: &CatalogState,
    ) -> Result<u32> {
        let mut place = Arc::clone(&self.shipped).lock_owned().await;
        let shipped = self.known(&mut place, database, asked).await?;
        // It must answer, or no failover could use what is about to be made.
        self.device.incarnation().await?;
        let end = database.log().map_or(0, |log| log.end().0);
        let needs_ring = shipped.is_astray || needs_ring(&shipped.stamp, end, next.log_position, 4);
        let ring = needs_ring.then(|| ring_blocks(end.saturating_sub(whole(next.log_position))));
        let sizes = source::sizes(database.directory(), next, &shipped.files);
        let files: Vec<u32> = sizes.into_iter().map(|bytes| blocks(bytes) + 1).collect();
        let mut room = shipped.room(asked);
        let mut wanted = ring.iter().chain(&files);
        if !asked.arenas.is_empty() && wanted.all(|blocks| room.take(*blocks).is_some()) {
            return Ok(0);
        }
        // The next manifest lies beside this one.
        let files = files.iter().fold(0_u32, |sum, blocks| sum.saturating_add(*blocks));
        Ok(ring.unwrap_or(0).saturating_add(files.saturating_mul(2)))
    }

    /// Erases the replica on the device.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) async fn erase(&self, asked: &LogReplica) -> Result<()> {
        let mut place = Arc::clone(&self.shipped).lock_owned().await;
        let Some(arena) = asked.arenas.first() else { return Ok(()) };
        *place = None;
        let (device, start) = (Arc::clone(&self.device), arena.start);
        let erasing = async move {
            let erased = erase_at(&device, start).await;
            drop(place);
            erased
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a write that was begun must end before its place is let go of, so giving up the statement must \
                not cancel it; \
                      the guard that it holds keeps others out"
        )]
        let erasing = tokio::spawn(erasing);
        erasing.await.unwrap_or_else(|_| Err(fault(&self.device, "the program is shutting down")))
    }
}

impl Shipped {
    /// What a device has before anything was sent to it.
    fn nothing(id: &[u8]) -> Self {
        Self {
            stamp: Stamp { id: id.to_vec(), ..Stamp::default() },
            slot: 0,
            sequence_max: 0,
            files: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            lost: Vec::new(),
            attempted: Vec::new(),
            reserved: None,
            is_astray: false,
        }
    }

    /// Goes on from what was found in the space of `asked`. Space that only another host took may belong to a table
    /// here: files there are written again, and so is the log if its ring lies there.
    fn take(&mut self, found: Found, asked: &LogReplica) {
        self.is_astray |= !is_within(asked, found.stamp.ring());
        self.sequence_max = found.sequence_max;
        (self.stamp, self.slot, self.files) = (found.stamp, found.slot, found.files);
        let lost = self.files.extract_if(.., |_, place| !is_within(asked, place.extent()));
        self.attempted.extend(lost.map(|(_, place)| place.extent()));
    }

    /// What is free in the replica's space.
    fn room(&self, asked: &LogReplica) -> Room {
        let anchor = asked
            .arenas
            .first()
            .map(|arena| Extent { start: arena.start, block_count: ANCHOR_BLOCKS });
        let places = self.files.values().chain(self.stamp.list.as_ref()).map(Place::extent);
        let used = places.chain(anchor).chain([self.stamp.ring()]);
        Room::new(&asked.arenas, used.chain(self.lost.clone()).chain(self.attempted.clone()))
    }

    /// The slot of the next stamp: not that of the last one.
    fn next_slot(&self) -> Option<u32> {
        let mut numbers = (1..SLOT_COUNT).map(|step| (self.slot + step) % SLOT_COUNT);
        numbers.find(|number| !self.doubtful.contains(number))
    }

    /// Notes that a write to `taken` was lost with its link, if it was.
    fn doubt(&mut self, error: &Error, taken: &[Extent]) {
        if may_have_happened(error) {
            self.lost.extend(taken);
        }
    }
}

/// Erases the head at `start` and all stamps behind it.
///
/// # Errors
/// Those of the device.
pub(super) async fn erase_at(device: &Device, start: BlockAddress) -> Result<()> {
    let anchor = Extent { start, block_count: ANCHOR_BLOCKS };
    device.reserve(vec![anchor]).await?;
    let incarnation = device.incarnation().await?;
    let zeros = item(start, vec![0; anchor.bytes()]);
    match device.call("erase its log replica", Request::Write(vec![zeros])).await? {
        Reply::Done => {}
        other => return Err(device.strange(&other, "write")),
    }
    device.sync().await?;
    match device.incarnation().await? {
        now if now == incarnation => Ok(()),
        _ => Err(device.restarted()),
    }
}

/// Whether `extent` lies in the space that `asked` has.
fn is_within(asked: &LogReplica, extent: Extent) -> bool {
    let mut arenas = asked.arenas.iter();
    arenas.any(|arena| arena.start <= extent.start && extent.end() <= arena.end())
}

/// Whether `stamp` is of a host before the failover of the database of `state`: its manifests, and the end of its log,
/// may not be this host's.
fn is_before_failover(stamp: &Stamp, state: &CatalogState) -> bool {
    stamp.epoch <= state.upkeep.failover_epoch
}

/// Whether the next start of a device, or the next link to it, may not fail so.
fn is_of_a_start(failure: &StorageError) -> bool {
    let is_refused = matches!(failure, StorageError::Refused { .. });
    is_refused || failure.is_device_lost() || matches!(failure, StorageError::Restarted { .. })
}

/// Adds to `stamp` the log from the boundary `from` to `end`; what is to be written with it.
fn add_log(
    database: &Engine,
    stamp: &mut Stamp,
    from: u64,
    end: u64,
) -> Result<Vec<WriteItem>, Stopped> {
    let to = whole(end);
    // Also the stamp before, as long as it is the last, counts on what lies in the ring.
    if end - whole(stamp.log_start).min(from) > u64::from(stamp.ring_blocks) * BLOCK {
        return Err(Stopped::Room);
    }
    let mut bytes = source::log(database.directory(), from, end)?;
    stamp.tail = bytes.split_off(usize::try_from(to - from).unwrap_or(usize::MAX));
    (stamp.fresh_start, stamp.fresh_checksum) = (from, crc32c::crc32c(&bytes));
    stamp.log_end = end;
    let mut bytes = Bytes::from(bytes);
    let extents = stamp.ring_extents(from, to).into_iter();
    let items = extents.map(|extent| WriteItem {
        start: extent.start,
        payload: Payload::new(bytes.split_to(extent.bytes().min(bytes.len()))),
    });
    Ok(items.collect())
}

/// Whether the ring of `stamp` lacks what the log has behind `position`, or is too small for a log that ends at `end`
/// beside what the stamp counts on, with a part of it to spare.
fn needs_ring(stamp: &Stamp, end: u64, position: u64, part: u64) -> bool {
    let ring = u64::from(stamp.ring_blocks) * BLOCK;
    let spare = if part > 1 { ring / part } else { 0 };
    let first = if stamp.ring_blocks == 0 { position } else { stamp.log_start.min(position) };
    let lacks_first = stamp.ring_blocks == 0 || position < stamp.log_start;
    lacks_first || end.saturating_sub(whole(first)).saturating_add(spare) > ring
}

/// Blocks of a ring for a log of so many bytes.
fn ring_blocks(bytes: u64) -> u32 {
    blocks(bytes.saturating_mul(2)).max(RING_BLOCKS_MIN)
}

fn place_in(room: &mut Room, bytes: &[u8]) -> Result<Place, Stopped> {
    let length = bytes.len() as u64;
    let extent = room.take(blocks(length)).ok_or(Stopped::Room)?;
    Ok(Place { start: extent.start.0, bytes: length, checksum: crc32c::crc32c(bytes) })
}

fn item(start: BlockAddress, bytes: Vec<u8>) -> WriteItem {
    WriteItem { start, payload: Payload::new(Bytes::from(padded(bytes))) }
}

/// `item` in pieces that one command takes.
fn divided(item: WriteItem) -> Vec<WriteItem> {
    if item.payload.bytes.len() <= COMMAND_BYTES {
        return vec![item];
    }
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (item.start, item.payload.bytes);
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(COMMAND_BYTES));
        let block_count = blocks(piece.len() as u64);
        pieces.push(WriteItem { start, payload: Payload::new(piece) });
        start = BlockAddress(start.0 + u64::from(block_count));
    }
    pieces
}

#[cfg(test)]
mod tests;
