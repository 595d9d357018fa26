//! One attached device: how it is reached, whether it is the right one, and the space on it.
//!
//! 1. [`Device::link`] connects on first use, asks the device for its identity and its owner, and claims it for this
//!    incarnation, which stops whatever an earlier one left running there (rule 29). A device of another database, or
//!    of another copied folder of this one ([`incarnations`]), is refused. A database that was opened only to look at
//!    it claims nothing.
//! 2. [`Device::read`], [`Device::write`], [`Device::sync`] are the commands for pages, split so that none is larger
//!    than the device takes.
//! 3. [`Claim`] is space that one statement took and has not committed yet. [`whole_pages`] reads pages past all
//!    caches.
//! 4. A [mirror] has no link of its own: what is asked of it is asked of its copies, which are devices as well.
//!
//! The host owns physical space: the [`SpaceMap`] is rebuilt each time the database is opened as the complement of what
//! the manifest names, so nothing can leak. Space that a commit retires waits until no catalog version that names it is
//! in use (rule 30); space whose write may still be on its way to a lost device is not used again before the next
//! incarnation, whose claim fences that write off.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use cleave_catalog::catalog::{DeviceEntry, DeviceId, DeviceKind, RemoteDevice};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, DeviceStatus, Identity, LOOKING_EPOCH, Ownership,
    Payload, ReadItem, ReadPayload, Reply, Request, WriteItem,
};
use cleave_fragment::link::{
    AbandonedRuns, AttachMode, ConnectedLink, DeviceService, EmbeddedLink, Link, LinkError,
    RemoteAddress, Token, dial_simulated,
};
use cleave_fragment::waiting;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent, SpaceError, SpaceMap, files};
use cleave_plan::profile::Profile;
use cleave_shmem::HostLocks;
use cleave_txn::Locks;

use crate::space_holders::SpaceHolders;
use crate::storage_engine::retry_while_in_use;

mod answers;
mod claim;
mod claimed_run;
mod faults;
mod grants;
pub mod health;
mod incarnations;
mod load;
pub mod lock_figures;
mod mirror;
pub mod profile;
pub mod run_witness;
pub mod shared_locks;
mod space_extension;
pub mod whole_pages;
mod writing_fragment;

use answers::Answers;
pub use answers::DEVICE_TIMEOUT_DEFAULT;
pub use answers::WRITER_WAIT;
pub use claim::{Claim, DISK_FULL, PendingWrite, free_of, may_have_happened};
pub use claimed_run::ClaimedRun;
pub use faults::FaultCounts;
use faults::Faults;
pub use grants::DeviceGrant;
use grants::EndingGrants;
use incarnations::Incarnations;
pub use incarnations::{knows_incarnation, note_incarnation};
pub use load::Busy;
use load::Load;
use mirror::Mirror;
pub use mirror::is_link_of_one_copy;
pub use profile::Known;
use shared_locks::SharedLocks;
pub(crate) use writing_fragment::{Written, WrittenFragment};

/// Makes the service of the embedded device over the media file at a path. The host never names the device's crate; the
/// program that links both passes this in.
///
/// Media that another process holds, an [`Error::Io`] around [`cleave_media::MediaError::Locked`], is asked
/// for again for half a second.
pub type EmbeddedFactory =
    Arc<dyn Fn(&Path) -> Result<Arc<dyn DeviceService>, Error> + Send + Sync>;

/// Most bytes of one read or write command: enough to keep a link busy, and few enough that a slow
/// link answers within seconds.
pub const COMMAND_BYTES: usize = 8 << 20;

/// A generation that no catalog version has.
const NEVER: u64 = u64::MAX;

/// An attached device. See the module's description.
pub struct Device {
    entry: DeviceEntry,
    /// This incarnation of the database, which claims the device; in [`LOOKING_EPOCH`] it claims nothing.
    incarnation: Ownership,
    sequence: AtomicU64,
    run: AtomicU64,
    /// Blocks that the media had at least when the database was opened: the manifest names pages on them.
    block_count_min: u64,
    space: Mutex<Space>,
    /// Held while space is taken and reserved.
    acquiring: tokio::sync::Mutex<()>,
    connection: Mutex<Option<Connection>>,
    /// Held while connecting, so that one attempt is made at a time; why the last one failed.
    connecting: tokio::sync::Mutex<Option<Arc<StorageError>>>,
    /// Attempts to connect that failed.
    failures: AtomicU64,
    faults: Faults,
    /// Outlives the links, which are given up where they are lost.
    abandoned: AbandonedRuns,
    ending_grants: EndingGrants,
    incarnations: Incarnations,
    /// Which commands it has not answered in time.
    answers: Arc<Answers>,
    load: Arc<Load>,
    /// Measured or read, for the host that this is.
    profile: Known<Arc<Profile>>,
    /// From when locks of its rows were shared.
    locks: OnceLock<Option<SharedLocks>>,
    /// Who is asked for space where it is full. They hold devices themselves.
    space_holders: OnceLock<Weak<SpaceHolders>>,
    /// The copies that it is reached by, if it is a mirror.
    mirror: Option<Mirror>,
    /// The mirrors that it is a copy of.
    mirrors: Mutex<Vec<Weak<Self>>>,
    media: PathBuf,
    embedded: EmbeddedFactory,
}

#[derive(Clone)]
struct Connection {
    link: Arc<dyn Link>,
    identity: Arc<Identity>,
}

/// Free space, and space that waits to become free.
#[derive(Debug)]
struct Space {
    map: SpaceMap,
    /// Extents by the generation whose commit retired them.
    retired: Vec<(u64, Extent)>,
    /// Blocks that stay taken until the database is next opened.
    doubtful_blocks: u64,
    /// A table whose blocks are not known: any block that the map has as free may be its.
    unknown_of: Option<String>,
}

/// How much of a device is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatus {
    /// Blocks that the newest catalog version names, or that a running statement took.
    pub used_blocks: u64,
    /// Of these, blocks that the newest version names no more, waiting for the last reader.
    pub retired_blocks: u64,
    /// Of these, blocks whose write was lost with the link, kept until the database is next opened.
    pub doubtful_blocks: u64,
    /// Blocks from the first to the last one in use.
    pub high_water: u64,
}

impl Device {
    /// A device that is not connected yet, of which `used` is in use, for the `incarnation` of the database in
    /// `directory`.
    ///
    /// # Errors
    /// [`StorageError::Damaged`]-like words where two extents overlap; the caller names the file.
    pub fn new(
        entry: DeviceEntry,
        incarnation: Ownership,
        used: Vec<Extent>,
        directory: &Path,
        embedded: EmbeddedFactory,
    ) -> Result<Self, SpaceError> {
        let map = SpaceMap::with_used(used)?;
        Ok(Self {
            media: directory.join(format!("device-{}.media", entry.id)),
            incarnations: Incarnations::of(directory, entry.id),
            entry,
            incarnation,
            sequence: AtomicU64::new(1),
            run: AtomicU64::new(1),
            block_count_min: map.high_water(),
            space: Mutex::new(Space {
                map,
                retired: Vec::new(),
                doubtful_blocks: 0,
                unknown_of: None,
            }),
            acquiring: tokio::sync::Mutex::default(),
            connection: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(None),
            failures: AtomicU64::new(0),
            faults: Faults::default(),
            abandoned: AbandonedRuns::default(),
            ending_grants: EndingGrants::default(),
            answers: Arc::default(),
            load: Arc::default(),
            profile: Known::default(),
            locks: OnceLock::new(),
            space_holders: OnceLock::new(),
            mirror: None,
            mirrors: Mutex::default(),
            embedded,
        })
    }

    /// Shares with its database the `locks` of its rows, and asks `holders` for space where it is full.
    pub(crate) fn share(&self, locks: &Arc<Locks>, holders: &Arc<SpaceHolders>) {
        self.share_locks(locks);
        self.space_holders.get_or_init(|| Arc::downgrade(holders));
    }

    /// Has others give up what they hold on it and can do without. Whether there was any.
    fn makes_room(&self) -> bool {
        let Some(holders) = self.space_holders.get().and_then(Weak::upgrade) else { return false };
        let ids = self.sharing_media().into_iter();
        let had_any: Vec<bool> = ids.map(|id| holders.give_up(Some(id))).collect();
        had_any.contains(&true)
    }

    /// Expects its media to have so many blocks.
    pub(crate) fn expect_blocks(&mut self, block_count: u64) {
        self.block_count_min = block_count;
    }

    /// Its number in this database.
    pub fn id(&self) -> DeviceId {
        self.entry.id
    }

    /// Its name in this database.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// How it is attached; of a mirror, how its first copy is.
    pub fn mode(&self) -> AttachMode {
        match self.entry.kind {
            DeviceKind::Embedded => AttachMode::Embedded,
            DeviceKind::Local(_) => AttachMode::Local,
            DeviceKind::Remote(_) => AttachMode::Remote,
            DeviceKind::Mirror(_) => self.mirror.as_ref().map_or(AttachMode::Remote, Mirror::mode),
        }
    }

    /// Its entry in the manifest.
    pub fn entry(&self) -> &DeviceEntry {
        &self.entry
    }

    /// A header for the next command, outside any run.
    pub fn header(&self) -> CommandHeader {
        CommandHeader {
            database: self.incarnation.database,
            epoch: self.incarnation.epoch,
            incarnation: self.incarnation.incarnation,
            run: 0,
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            interaction: 0,
        }
    }

    /// A header for a run that has not been used yet.
    pub fn next_run(&self) -> CommandHeader {
        CommandHeader { run: self.run.fetch_add(1, Ordering::Relaxed), ..self.header() }
    }

    /// The link to the device, connected and identified.
    ///
    /// # Errors
    /// [`StorageError::DeviceLost`], [`StorageError::OtherDevice`], [`StorageError::Token`],
    /// [`StorageError::OtherOwner`], [`StorageError::Copied`], [`StorageError::Superseded`].
    pub async fn link(&self) -> Result<Arc<dyn Link>> {
        match &self.mirror {
            Some(mirror) => mirror.link().await,
            None => Ok(self.connection().await?.link),
        }
    }

    /// Whether there is a link to it, which may be lost by now.
    pub fn is_connected(&self) -> bool {
        match &self.mirror {
            Some(mirror) => mirror.current().iter().any(|copy| copy.is_connected()),
            None => self.connected().is_some(),
        }
    }

    /// The device's description of itself when it was connected.
    ///
    /// # Errors
    /// As [`Device::link`].
    pub async fn identity(&self) -> Result<Arc<Identity>> {
        match &self.mirror {
            Some(mirror) => mirror.identity().await,
            None => Ok(self.connection().await?.identity),
        }
    }

    /// Bytes and commands that crossed the link so far; nothing while it was never connected.
    pub fn traffic(&self) -> cleave_fragment::link::Traffic {
        if let Some(mirror) = &self.mirror {
            return mirror.traffic();
        }
        match &*self.connected() {
            Some(connection) => connection.link.traffic(),
            None => cleave_fragment::link::Traffic::default(),
        }
    }

    fn connected(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connection(&self) -> Result<Connection> {
        let connected = self.connected().clone();
        if let Some(connection) = connected {
            return Ok(connection);
        }
        let connected = waiting::timeout(self.timeout(), Box::pin(self.connected_anew())).await;
        connected.unwrap_or_else(|| Err(self.unanswered("connect", self.timeout())))
    }

    async fn connected_anew(&self) -> Result<Connection> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut last_failure = self.connecting.lock().await;
        let connected = self.connected().clone();
        if let Some(connection) = connected {
            return Ok(connection);
        }
        if let Some(error) = &*last_failure
            && self.failures.load(Ordering::Relaxed) != failures
        {
            // Callers that waited for an attempt share its outcome, and do not wait for one more.
            return Err(Error::Storage(Arc::clone(error)));
        }
        match self.connect().await {
            Ok(connection) => {
                *self.connected() = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                *last_failure = match &error {
                    Error::Storage(error) => Some(Arc::clone(error)),
                    _ => None,
                };
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Connection> {
        let abandoned = self.abandoned.clone();
        let table = self.shared_locks().map(SharedLocks::for_connection);
        let link = connect(&self.entry, &self.media, &self.embedded, abandoned, table).await?;
        let identity = self.identify(&*link).await?;
        // Another device does not belong to this database, and stays so.
        self.compare(&identity)?;
        self.claim(&*link, identity.owner).await?;
        let ended = self.end_lost_grants(&*link).await;
        ended.map_err(|error| self.fault("end a grant", error))?;
        Ok(Connection { link, identity: Arc::new(identity) })
    }

    /// Makes the device this incarnation's, which `found` owned until now.
    async fn claim(&self, link: &dyn Link, found: Option<Ownership>) -> Result<()> {
        if found == Some(self.incarnation) {
            return Ok(());
        }
        let named = || (self.entry.name.clone(), self.entry.address());
        if let Some(found) = found.filter(|found| found.database != self.incarnation.database) {
            let (device, address) = named();
            return Err(StorageError::OtherOwner { device, address, owner: found.database }.into());
        }
        if self.incarnation.epoch == LOOKING_EPOCH {
            return Ok(());
        }
        // The embedded device lies in the same folder, and no other process can reach it.
        let is_remote = self.mode() != AttachMode::Embedded;
        let mut own = if is_remote { self.incarnations.read()? } else { Vec::new() };
        if let Some(found) = found.filter(|found| is_remote && !own.contains(&found.incarnation)) {
            let (device, address) = named();
            return Err(StorageError::Copied { device, address, epoch: found.epoch }.into());
        }
        if is_remote && !own.contains(&self.incarnation.incarnation) {
            // Before the claim: it may be heard, and its answer lost.
            own.push(self.incarnation.incarnation);
            self.incarnations.replace(&own)?;
        }
        let after = found.map_or(0, |found| found.incarnation);
        let claim = Request::Claim { after };
        match link.call(Command::new(self.header(), claim)).await {
            Ok(Reply::Done) => {}
            Ok(other) => return Err(self.strange(&other, "claim")),
            Err(error) => return Err(self.fault("take this database's claim", error)),
        }
        if is_remote {
            self.incarnations.replace(&[self.incarnation.incarnation])?;
        }
        Ok(())
    }

    /// Releases the device for other databases. Where the device cannot be reached the caller gets an error: the device
    /// still has this database as its owner.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn give_up(&self) -> Result<()> {
        if self.mirror.is_some() {
            // Its copies stay this database's.
            return Ok(());
        }
        let outcome = self.done("be given up", Request::GiveUp).await;
        self.incarnations.remove();
        // As with the incarnations: its number is never another device's.
        drop(files::remove(&self.media.with_extension("profile")));
        outcome
    }

    async fn identify(&self, link: &dyn Link) -> Result<Identity> {
        let command = Command::new(CommandHeader::default(), Request::Identify);
        match link.call(command).await.map_err(|error| self.fault("identify itself", error))? {
            Reply::Identity(identity) => Ok(identity),
            other => Err(self.strange(&other, "identify")),
        }
    }

    /// Sends one command and takes its reply.
    ///
    /// A connection that was lost is made anew: once for a command that may be repeated, else with
    /// the next command.
    ///
    /// # Errors
    /// [`StorageError::DeviceLost`], [`StorageError::Refused`], [`StorageError::OtherDevice`], or those
    /// of [`Device::link`].
    pub async fn call(&self, action: &'static str, request: Request) -> Result<Reply> {
        if let Some(mirror) = &self.mirror {
            return mirror.call(action, request).await;
        }
        let again = match &request {
            Request::Read(items) => Some(Request::Read(items.clone())),
            Request::Status => Some(Request::Status),
            _ => None,
        };
        match (self.call_once(action, request).await, again) {
            (Err(Error::Storage(error)), Some(again))
                if error.is_device_lost() || is_not_claimed(&error) =>
            {
                self.call_once(action, again).await
            }
            (Err(Error::Storage(error)), _) if matches!(*error, StorageError::Refused { .. }) => {
                self.check_identity().await?;
                Err(self.cut_off().unwrap_or(Error::Storage(error)))
            }
            (outcome, _) => outcome,
        }
    }

    async fn call_once(&self, action: &'static str, request: Request) -> Result<Reply> {
        // Commands with pages take as long as the link does.
        let is_short =
            matches!(request, Request::Reserve { .. } | Request::Status | Request::GiveUp);
        let patience = if is_short { self.timeout() } else { Duration::MAX };
        self.call_within(patience, action, request).await
    }

    async fn call_within(
        &self,
        patience: Duration,
        action: &'static str,
        request: Request,
    ) -> Result<Reply> {
        let link = self.link().await?;
        let answer = match patience {
            Duration::MAX => link.call(Command::new(self.header(), request)).await,
            patience => self.answer_within(patience, action, &link, request).await?,
        };
        match answer {
            Ok(reply) => Ok(reply),
            Err(error) => {
                self.forget_if_useless(&link, &error).await;
                Err(self.fault(action, error))
            }
        }
    }

    /// Asks a remote device again for its identity: links reconnect by themselves, and may reach another device. Called
    /// where something is wrong anyway.
    ///
    /// # Errors
    /// [`StorageError::OtherDevice`]; that it cannot be asked is no error.
    pub(crate) async fn check_identity(&self) -> Result<()> {
        if self.mode() == AttachMode::Embedded || self.mirror.is_some() {
            return Ok(());
        }
        let Ok(link) = self.link().await else { return Ok(()) };
        match self.identify(&*link).await {
            Ok(identity) => self.compare(&identity),
            Err(_) => Ok(()),
        }
    }

    /// The error of a device whose media is shorter than the manifest says. Pages that are left can be read.
    fn cut_off(&self) -> Option<Error> {
        let found = self.connected().as_ref()?.identity.block_count;
        let is_cut_off = found < self.block_count_min;
        is_cut_off.then(|| {
            let place = if self.mode() == AttachMode::Embedded {
                self.media.display().to_string()
            } else {
                self.entry.address()
            };
            let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE as u64);
            let (expected_bytes, found_bytes) = (bytes(self.block_count_min), bytes(found));
            let device = self.entry.name.clone();
            StorageError::CutOff { device, place, expected_bytes, found_bytes }.into()
        })
    }

    fn compare(&self, identity: &Identity) -> Result<()> {
        if identity.device == self.entry.identity {
            return Ok(());
        }
        Err(StorageError::OtherDevice {
            device: self.entry.name.clone(),
            address: self.entry.address(),
            expected: self.entry.identity,
            found: identity.device,
        }
        .into())
    }

    /// Forgets `link`, if it is still the one in use, so that the next command connects anew.
    pub async fn forget(&self, link: &Arc<dyn Link>) {
        if let Some(mirror) = &self.mirror {
            return mirror.forget(link).await;
        }
        let mut place = self.connected();
        if place.as_ref().is_some_and(|connection| Arc::ptr_eq(&connection.link, link)) {
            *place = None;
        }
    }

    /// Reads `items`, in commands of a bounded size, several under way at once.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn read(&self, items: Vec<ReadItem>) -> Result<Vec<ReadPayload>> {
        let mut commands: Vec<Vec<ReadItem>> = Vec::new();
        let mut bytes = COMMAND_BYTES;
        for item in items {
            let size = usize::try_from(item.byte_count()).unwrap_or(usize::MAX);
            match commands.last_mut().filter(|_| bytes.saturating_add(size) <= COMMAND_BYTES) {
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
        let replies =
            futures::future::try_join_all(commands.into_iter().map(|items| self.read_one(items)))
                .await?;
        Ok(replies.into_iter().flatten().collect())
    }

    async fn read_one(&self, items: Vec<ReadItem>) -> Result<Vec<ReadPayload>> {
        let (count, _busy) = (items.len(), self.busy());
        match self.call("read", Request::Read(items)).await? {
            Reply::Read(payloads) if payloads.len() == count => Ok(payloads),
            other => Err(self.strange(&other, "read")),
        }
    }

    /// Writes `bytes` at `start`; the space must belong to a [`Claim`].
    ///
    /// # Errors
    /// As [`Device::call`].
    async fn write(&self, start: BlockAddress, bytes: Bytes) -> Result<()> {
        let item = WriteItem { start, payload: Payload::new(bytes) };
        self.done("write", Request::Write(vec![item])).await
    }

    /// What the device says of its state now.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn status(&self) -> Result<DeviceStatus> {
        match self.call("tell its status", Request::Status).await? {
            Reply::Status(status) => Ok(self.load.told(status)),
            other => Err(self.strange(&other, "status")),
        }
    }

    /// The device's own incarnation: a later one may have lost writes that were acknowledged and not synced.
    pub async fn incarnation(&self) -> Result<u64> {
        Ok(self.status().await?.incarnation)
    }

    /// Blocks that its media has now.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn block_count(&self) -> Result<u64> {
        match &self.mirror {
            Some(mirror) => mirror.block_count().await,
            None => Ok(self.status().await?.block_count),
        }
    }

    /// Tells the device that this database will write to `extents`.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn reserve(&self, extents: Vec<Extent>) -> Result<()> {
        match &self.mirror {
            Some(mirror) => mirror.reserve(extents).await,
            None => self.done("reserve space", Request::Reserve { extents }).await,
        }
    }

    async fn done(&self, action: &'static str, request: Request) -> Result<()> {
        match self.call(action, request).await? {
            Reply::Done => Ok(()),
            other => Err(self.strange(&other, action)),
        }
    }

    /// How much of the device is in use, also as a copy of mirrors.
    pub fn space(&self) -> SpaceStatus {
        let mut status = {
            let space = self.space_map();
            SpaceStatus {
                used_blocks: space.map.used_blocks(),
                retired_blocks: space.retired.iter().map(|(_, e)| u64::from(e.block_count)).sum(),
                doubtful_blocks: space.doubtful_blocks,
                high_water: space.map.high_water(),
            }
        };
        for mirror in self.mirrors() {
            let of_mirror = mirror.space();
            status.retired_blocks += of_mirror.retired_blocks;
            status.doubtful_blocks += of_mirror.doubtful_blocks;
        }
        status
    }

    /// Frees `extents` once no catalog version older than `generation` is held.
    pub(crate) fn retire(&self, generation: u64, extents: impl IntoIterator<Item = Extent>) {
        self.space_map().retired.extend(extents.into_iter().map(|extent| (generation, extent)));
    }

    /// Frees what was retired at or before `generation`, that of the oldest catalog version still held.
    pub(crate) fn reclaim(&self, generation: u64) {
        let free: Vec<(u64, Extent)> = {
            let mut space = self.space_map();
            space.retired.extract_if(.., |(retired_at, _)| *retired_at <= generation).collect()
        };
        free.into_iter().for_each(|(_, extent)| self.let_free(extent));
    }

    /// Takes space that the log names, and no manifest, also from what is [kept](Device::keep), there or of a mirror:
    /// that was let go before the record was made.
    ///
    /// # Errors
    /// [`SpaceError`]: it is in use.
    pub(crate) fn take_named(&self, extent: Extent) -> Result<(), SpaceError> {
        let mut free = free_of(vec![extent], &self.unkept(extent));
        for mirror in self.mirrors() {
            // It was let go of on all copies, and taken on this one alone.
            let unkept = mirror.unkept(extent);
            unkept.iter().for_each(|part| mirror.let_free_but(*part, Some(self.id())));
            free = free_of(free, &unkept);
        }
        let mut space = self.space_map();
        free.iter().try_for_each(|extent| space.map.take(*extent))?;
        drop(space);
        // What is kept of a mirror is in use on its copies.
        for copy in self.mirror.iter().flat_map(Mirror::copies) {
            let mut space = copy.space_map();
            free.iter().try_for_each(|extent| space.map.take(*extent))?;
        }
        Ok(())
    }

    /// Takes the parts of `extent` out of what is [kept](Device::keep), and returns them: they are in use still.
    fn unkept(&self, extent: Extent) -> Vec<Extent> {
        let mut space = self.space_map();
        let mut parts = Vec::new();
        for (at, kept) in std::mem::take(&mut space.retired) {
            if at != NEVER {
                space.retired.push((at, kept));
                continue;
            }
            let rest = free_of(vec![kept], &[extent]);
            parts.extend(free_of(vec![kept], &rest));
            space.retired.extend(rest.into_iter().map(|rest| (NEVER, rest)));
        }
        parts
    }

    /// Lets `extents`, which are in use and which nothing here names, wait for [`Device::let_go_of_kept`].
    pub fn keep(&self, extents: Vec<Extent>) {
        self.retire(NEVER, extents);
    }

    /// Lets go of what was [kept](Device::keep).
    pub fn let_go_of_kept(&self) {
        let mut space = self.space_map();
        space.retired.iter_mut().filter(|(at, _)| *at == NEVER).for_each(|(at, _)| *at = 0);
    }

    /// Forbids writes while the blocks of `table` are not known; None: all are known.
    pub(crate) fn set_unknown_space(&self, table: Option<&str>) {
        self.space_map().unknown_of = table.map(str::to_owned);
    }

    /// # Errors
    /// [`StorageError::SpaceUnknown`].
    fn check_space_known(&self) -> Result<()> {
        let mut copies = self.mirror.iter().flat_map(Mirror::copies);
        copies.try_for_each(|copy| copy.check_space_known())?;
        match &self.space_map().unknown_of {
            None => Ok(()),
            Some(table) => {
                let (device, table) = (self.entry.name.clone(), table.clone());
                Err(StorageError::SpaceUnknown { device, table }.into())
            }
        }
    }

    fn space_map(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts an error of the link, naming the device.
    pub fn fault(&self, action: &'static str, error: LinkError) -> Error {
        fault(&self.entry, action, error)
    }

    /// The error of a device that sent another kind of payload than was asked for.
    pub fn strange_payload(&self, what: &str) -> Error {
        StorageError::Answer {
            device: self.entry.name.clone(),
            address: self.entry.address(),
            what: what.to_owned(),
        }
        .into()
    }

    /// The error of a device that was restarted, and has lost what it was told before.
    pub fn restarted(&self) -> Error {
        StorageError::Restarted { device: self.entry.name.clone(), address: self.entry.address() }
            .into()
    }

    /// The error of a `reply` that does not answer `action`.
    pub fn strange(&self, reply: &Reply, action: &str) -> Error {
        strange(&self.entry, reply, action)
    }
}

impl Space {
    fn free(&mut self, extent: Extent) {
        let freed = self.map.free(extent);
        debug_assert!(freed.is_ok(), "space is freed once: {freed:?}");
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// Asks the device behind `entry` for its identity, on behalf of no database; changes nothing there.
pub async fn identify(
    entry: &DeviceEntry,
    directory: &Path,
    embedded: &EmbeddedFactory,
) -> Result<(Arc<dyn Link>, Identity)> {
    let media = directory.join(format!("device-{}.media", entry.id));
    let link = connect(entry, &media, embedded, AbandonedRuns::default(), None).await?;
    let command = Command::new(CommandHeader::default(), Request::Identify);
    match link.call(command).await.map_err(|error| fault(entry, "identify itself", error))? {
        Reply::Identity(identity) => Ok((link, identity)),
        other => Err(strange(entry, &other, "identify")),
    }
}

async fn connect(
    entry: &DeviceEntry,
    media: &Path,
    embedded: &EmbeddedFactory,
    abandoned: AbandonedRuns,
    table: Option<Arc<HostLocks>>,
) -> Result<Arc<dyn Link>> {
    match &entry.kind {
        DeviceKind::Embedded => {
            // The media, like the directory, may be held for a moment longer than its holder lives.
            let service = retry_while_in_use(|| embedded(media)).await?;
            Ok(EmbeddedLink::new(service, None))
        }
        DeviceKind::Local(local) => {
            let link = ConnectedLink::local(&local.socket, local.rate_cap, abandoned, table);
            connected(entry, link).await
        }
        DeviceKind::Remote(remote) => {
            let address = RemoteAddress { host: remote.host.clone(), port: remote.port };
            if let Some(link) = dial_simulated(&address) {
                return link.map_err(|error| fault(entry, "connect", error));
            }
            let token = read_token(&entry.name, remote)?;
            let ca_pem = remote.ca_pem.as_ref().map(String::as_bytes);
            let link = ConnectedLink::remote(address, token, ca_pem, remote.rate_cap, abandoned);
            connected(entry, link).await
        }
        DeviceKind::Mirror(_) => {
            let reason = "a mirror is reached by its copies".to_owned();
            Err(StorageError::Attach { device: entry.name.clone(), reason }.into())
        }
    }
}

async fn connected(
    entry: &DeviceEntry,
    link: std::result::Result<Arc<ConnectedLink>, LinkError>,
) -> Result<Arc<dyn Link>> {
    let connecting = async { link?.connected().await };
    Ok(connecting.await.map_err(|error| fault(entry, "connect", error))?)
}

fn is_not_claimed(error: &StorageError) -> bool {
    let StorageError::Refused { source, .. } = error else { return false };
    source.cause == DeviceErrorCause::NotClaimed
}

fn read_token(device: &str, remote: &RemoteDevice) -> Result<Token> {
    let Some(path) = &remote.token_file else {
        return Err(StorageError::Attach {
            device: device.to_owned(),
            reason: "a remote device needs a token; name the file that holds it".to_owned(),
        }
        .into());
    };
    Token::from_file(path)
        .map_err(|error| StorageError::Token { device: device.to_owned(), source: error }.into())
}

fn fault(entry: &DeviceEntry, action: &'static str, error: LinkError) -> Error {
    let (device, address) = (entry.name.clone(), entry.address());
    match error {
        LinkError::Device { source, .. } if source.cause == DeviceErrorCause::StaleEpoch => {
            StorageError::Superseded { device, address, source }
        }
        LinkError::Device { source, .. } => {
            StorageError::Refused { device, address, action, source }
        }
        LinkError::OtherDevice { expected, found, .. } => {
            StorageError::OtherDevice { device, address, expected, found }
        }
        source if source.is_unreachable() => StorageError::DeviceLost { device, address, source },
        source => StorageError::Link { device, address, source },
    }
    .into()
}

fn strange(entry: &DeviceEntry, reply: &Reply, action: &str) -> Error {
    let name = match reply {
        Reply::Identity(_) => "an identity",
        Reply::Read(_) => "pages, and not as many as were asked for,",
        Reply::Done => "no more than \"done\"",
        Reply::Status(_) => "its status",
        Reply::Profile(_) => "its profile",
        Reply::Kept(_) => "the morsels that it keeps",
    };
    StorageError::Answer {
        device: entry.name.clone(),
        address: entry.address(),
        what: format!("{name} to \"{action}\""),
    }
    .into()
}

#[cfg(test)]
pub mod testing;
