//! The storage engine: one open database directory with its catalog version, devices, buffer pool, locks and log. It
//! knows no SQL.
//!
//! ```text
//!  DIR/lock              held by the one process that has the database open
//!  DIR/manifest          the catalog version of the last commit  (catalog::manifest)
//!  DIR/segments/<id>     directories of sealed segments
//!  DIR/log/              commits that no manifest has yet        (log)
//!  DIR/statistics/<id>   the results of ANALYZE for a table      (statistics)
//!  DIR/device-0.media    the embedded device's media
//! ```
//!
//! [`Engine::open`] locks the directory, reads the manifest, raises the epoch (rule 29), removes what a crash left
//! behind, works out each device's free space, redoes the commits of the log, and claims every device that answers
//! soon; the others on first use, so that an offline device hinders only statements that need it. [`Engine::look`] only
//! locks and reads: it changes no file and claims no device.
//!
//! Invariants: one process at a time; one writing statement at a time; the published catalog version only ever moves to
//! the next generation. Deliberately absent: threads. Work runs on the caller's runtime, and nothing is left to do when
//! the last handle is dropped: every commit was complete, in the manifest or in the log.

mod attaching;
pub mod catalog_edit;
pub mod commit;
pub mod log_keeper;
mod memory_shares;
pub mod part_notes;
pub mod patience;
pub mod snapshot;
mod stopping;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use cleave_catalog::activity::Activity;
use cleave_catalog::catalog::blocked::BlockedTables;
use cleave_catalog::catalog::manifest;
use cleave_catalog::catalog::manifest::{ReplaceError, TableFault};
use cleave_catalog::catalog::reserved_ids::ReservedIds;
use cleave_catalog::catalog::upkeep::Upkeep;
use cleave_catalog::catalog::{CatalogState, DatabaseId, DeviceEntry, DeviceId, DeviceKind};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::query_memory::query_runtime;
use cleave_catalog::settings::Stack;
use cleave_catalog::storage_error::StorageError;
use cleave_fragment::command::{LOOKING_EPOCH, Ownership};
use cleave_fragment::filter_history::{FILTER_HISTORY_BYTES, FilterHistory};
use cleave_fragment::link::Link;
use cleave_fragment::profile::SideProfile;
use cleave_fragment::waiting;
use cleave_media::{Extent, MediaError, SpaceMap};
use cleave_plan::TableStatistics;
use cleave_store::PageSource;
use cleave_txn::{Dependencies, Locks, LogReader, TransactionId, Wal};
use datafusion_execution::runtime_env::RuntimeEnv;
use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::buffer_pool::BufferPool;
use crate::delta::Live;
use crate::delta::shipped::LastShipped;
use crate::device::{self, DEVICE_TIMEOUT_DEFAULT, DISK_FULL, Device, EmbeddedFactory, Known};
use crate::host_pages::{HostPages, PooledPages};
use crate::log;
use crate::log::redo::Recovered;
use crate::sequences::Sequences;
use crate::statistics::{self, StatisticsStore};
use crate::versions::Versions;
use crate::write::tail_pins::TailPins;

mod place;

use catalog_edit::CatalogEdit;
use commit::Changes;
use commit::flush::Beside;
use log_keeper::{LogKeeper, Unkept};
pub use place::{SPILLS, lock};
use place::{check_place, spill_folder};

/// Bytes that the buffer pool may hold by default.
pub const BUFFER_POOL_BYTES_DEFAULT: u64 = 512 << 20;

/// Bytes that the operators of all queries may hold on the host by default.
pub const QUERY_MEMORY_BYTES_DEFAULT: u64 = 2 << 30;

/// Merges of index runs that the host does itself at once: each takes a quarter of the queries' memory at most.
const MERGES_AT_ONCE: usize = 2;

/// How often, and after which pause, a lock in use is tried again: half a second in all.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// How long opening a database waits for its devices to take its claim.
const CLAIM_WAIT: Duration = Duration::from_secs(2);

/// Name of the embedded device.
pub const EMBEDDED_DEVICE_NAME: &str = "embedded";

/// How a database is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Whether to make a database where there is none.
    pub create: bool,
    /// Makes the embedded device.
    pub embedded: EmbeddedFactory,
    /// Bytes that the buffer pool may hold.
    pub buffer_pool_bytes: u64,
    /// Bytes that the operators of all queries may hold on the host.
    pub query_memory_bytes: u64,
    /// Bytes of the [filter history](cleave_fragment::filter_history) of the host and the embedded device; 0: they have
    /// none.
    pub filter_history_bytes: u64,
    /// How long a device is waited for that does not answer.
    pub device_timeout: Duration,
}

impl OpenOptions {
    /// Opens what exists, with a default buffer pool.
    pub fn new(embedded: EmbeddedFactory) -> Self {
        Self {
            create: false,
            embedded,
            buffer_pool_bytes: BUFFER_POOL_BYTES_DEFAULT,
            query_memory_bytes: QUERY_MEMORY_BYTES_DEFAULT,
            filter_history_bytes: FILTER_HISTORY_BYTES,
            device_timeout: DEVICE_TIMEOUT_DEFAULT,
        }
    }

    /// Whether to make a database where there is none.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Bytes that the buffer pool may hold.
    #[must_use]
    pub fn buffer_pool_bytes(mut self, bytes: u64) -> Self {
        self.buffer_pool_bytes = bytes;
        self
    }

    /// Bytes that the operators of all queries may hold on the host.
    #[must_use]
    pub fn query_memory_bytes(mut self, bytes: u64) -> Self {
        self.query_memory_bytes = bytes;
        self
    }

    /// Bytes of the filter history of the host and the embedded device; 0: they have none.
    #[must_use]
    pub fn filter_history_bytes(mut self, bytes: u64) -> Self {
        self.filter_history_bytes = bytes;
        self
    }

    /// How long a device is waited for that does not answer.
    #[must_use]
    pub fn device_timeout(mut self, timeout: Duration) -> Self {
        self.device_timeout = timeout;
        self
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("create", &self.create)
            .field("buffer_pool_bytes", &self.buffer_pool_bytes)
            .finish_non_exhaustive()
    }
}

/// An open database without SQL. Dropping the last handle closes it.
pub struct Engine {
    directory: PathBuf,
    embedded: EmbeddedFactory,
    live: RwLock<Live>,
    /// Notified whenever a catalog version without a delta is published.
    flushed: Notify,
    /// Locked while the delta is flushed for a reader.
    flushing: tokio::sync::Mutex<()>,
    /// Pages written by such a flush, until they are put in place; locked while they are being written.
    beside: tokio::sync::Mutex<Option<Beside>>,
    /// The devices of blocked tables are not asked again before this time.
    blocked_retry_at: Mutex<Duration>,
    /// How often a commit that was not small has changed rows, keys or tables.
    rewritten_count: AtomicU64,
    /// Catalog versions that someone may still hold, oldest first.
    published: Mutex<VecDeque<(u64, Weak<CatalogState>)>>,
    devices: RwLock<BTreeMap<DeviceId, Arc<HostPages>>>,
    pool: Arc<BufferPool>,
    filter_history: Arc<FilterHistory>,
    statistics: StatisticsStore,
    runtime: Arc<RuntimeEnv>,
    pub(crate) last_shipped: LastShipped,
    /// The measured figures of this process.
    pub(crate) host_profile: Known<SideProfile>,
    writer: Arc<tokio::sync::Mutex<()>>,
    merges: Semaphore,
    locks: Arc<Locks>,
    dependencies: Arc<Dependencies>,
    /// How many transactions may hold a table in `ACCESS EXCLUSIVE`.
    holding_readers_back: Arc<AtomicUsize>,
    /// None: it is only looked at, or is being opened.
    log: OnceLock<Wal>,
    /// The log is known to be durable up to here.
    hardened: AtomicU64,
    /// Commits since a manifest was written, whose pages no manifest names.
    logged_count: AtomicU64,
    /// Tables whose last pages stay as they are.
    tail_pins: Arc<TailPins>,
    /// What sequences have given.
    sequences: Sequences,
    /// The version in the manifest on disk, whose pages stay as they are.
    durable: Mutex<Arc<CatalogState>>,
    /// Ids that transactions have taken.
    pub ids: ReservedIds,
    /// Transactions that have locked something since the database was opened.
    transaction_count: AtomicU64,
    /// Keeps the log elsewhere: archive and replicas.
    pub keeper: Arc<dyn LogKeeper>,
    /// Older catalog versions that are kept.
    pub versions: Versions,
    activity: Activity,
    stopped: AtomicBool,
    stopped_because: OnceLock<String>,
    stopped_told: Notify,
    device_timeout: Duration,
    /// Drawn when it was opened: tells this incarnation from those of copied folders. None: it is only looked at.
    incarnation: Option<u64>,
    /// Last, so that the directory is unlocked after all else is gone.
    _lock: File,
}

impl Engine {
    /// Opens the database in `directory`, or makes one there if `options` say so. Where a segment file is missing or
    /// damaged, the [table or index](cleave_catalog::catalog::damage) that it belongs to cannot be used, and all else
    /// can.
    ///
    /// # Errors
    /// [`StorageError::NotADatabase`], [`StorageError::InUse`], [`StorageError::NewerFormat`],
    /// [`StorageError::Damaged`] (also where the manifest alone is missing), [`Error::Io`], and those of the
    /// embedded device.
    pub fn open(
        directory: &Path,
        options: OpenOptions,
        keeper: Arc<dyn LogKeeper>,
    ) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move {
            if !manifest::exists(directory) {
                check_place(directory, options.create)?;
            }
            let lock = lock(directory).await?;
            Self::open_locked(directory, lock, options, keeper).await
        })
    }

    /// As [`Engine::open`], by whoever has the `lock` of the directory already and has made the place.
    ///
    /// # Errors
    /// As [`Engine::open`], but for [`StorageError::InUse`].
    pub fn open_locked(
        directory: &Path,
        lock: File,
        options: OpenOptions,
        keeper: Arc<dyn LogKeeper>,
    ) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move {
            let (state, log) = if manifest::exists(directory) {
                manifest::take_name(directory)?;
                reopen(directory)?
            } else {
                create(directory, &options.embedded).await?
            };
            let owner = (Some(draw_incarnation()?), keeper);
            let database = Self::start(directory, lock, state, options, owner).await?;
            let Recovered { log, count, pages } = match log {
                LogStart::New(log) => Recovered { log, count: 0, pages: Vec::new() },
                LogStart::Read(reader) => log::redo::recover(&database, reader).await?,
            };
            database.keeper.start_log(&log, &database.catalog());
            database.log.get_or_init(|| log);
            // What the last incarnation has not copied. Those who waited for it are gone.
            for record in pages {
                database.keeper.copy_pages(&database, record, false);
            }
            if count > 0 || !database.catalog().blocked.tables.is_empty() {
                match database.checkpoint_now().await {
                    // The log has it all still, and only where the database is open can room be made.
                    Err(error) if error.sqlstate() == DISK_FULL => {}
                    // The same, and others' tables can be used meanwhile.
                    Err(error) if error.is_unanswered() => {}
                    outcome => outcome?,
                }
            }
            log::reserve_for_start(directory, manifest::byte_count(directory));
            database.versions.note_commit();
            database.keep_version(&database.catalog());
            database.claim_devices().await;
            database.keeper.start(&database).await;
            Ok(database)
        })
    }

    /// As [`Engine::checkpoint`], whatever there is.
    async fn checkpoint_now(self: &Arc<Self>) -> Result<()> {
        let edit = CatalogEdit::begin(self).await?;
        self.commit(Changes::checkpoint(edit)).await.map(drop)
    }

    /// Opens as much of the database in `directory` as its files allow, to look at it: nothing can be written, no epoch
    /// is used up, and devices go on serving the incarnation that has claimed them, of this database or of a copied
    /// folder. Tables with an impossible manifest entry are left out.
    ///
    /// # Errors
    /// As [`Engine::open`], where the manifest itself is at fault.
    pub async fn look(
        directory: &Path,
        options: OpenOptions,
    ) -> Result<(Arc<Self>, Vec<TableFault>)> {
        if !manifest::exists(directory) {
            check_place(directory, false)?;
        }
        let lock = lock(directory).await?;
        let (state, faults) = manifest::read_sound(directory)?;
        let looking = (None, Arc::new(Unkept) as Arc<dyn LogKeeper>);
        Ok((Self::start(directory, lock, state, options, looking).await?, faults))
    }

    async fn start(
        directory: &Path,
        lock: File,
        state: CatalogState,
        options: OpenOptions,
        (incarnation, keeper): (Option<u64>, Arc<dyn LogKeeper>),
    ) -> Result<Arc<Self>> {
        let pool = Arc::new(BufferPool::new(options.buffer_pool_bytes));
        let filter_history = Arc::new(FilterHistory::new(options.filter_history_bytes));
        let embedded = sharing(options.embedded, &pool, &filter_history);
        // Where two pages claim the same blocks, the free ones are not known; looking needs none.
        let is_consistent =
            |device: &DeviceEntry| SpaceMap::with_used(state.extents(device.id)).is_ok();
        let nothing =
            CatalogState { tables: BTreeMap::new(), damaged: BTreeMap::new(), ..state.clone() };
        let is_usable = incarnation.is_some() || state.devices().all(is_consistent);
        let named = if is_usable { &state } else { &nothing };
        let mut devices: BTreeMap<DeviceId, Arc<HostPages>> = BTreeMap::new();
        let (locks, versions) = (Locks::new(), Versions::default());
        // Mirrors last: they are reached by the others.
        let is_mirror = |entry: &&DeviceEntry| entry.mirror().is_some();
        let plain = state.devices().filter(|entry| !is_mirror(entry));
        for entry in plain.chain(state.devices().filter(is_mirror)) {
            let mut device = attach(named, incarnation, entry.clone(), directory, &embedded)?;
            if let Some(mirror) = entry.mirror() {
                let copies = mirror.copies.iter().filter_map(|copy| devices.get(&copy.device));
                let copies = copies.map(|pages| Arc::clone(pages.device())).collect();
                device = device.mirroring(mirror, copies);
            }
            let device = Arc::new(device);
            device.set_timeout(options.device_timeout);
            device.share(&locks, &versions.space_holders);
            device.join_copies();
            devices.insert(entry.id, host_pages(device, &pool, Stack::Native));
        }
        let spills = spill_folder(directory, incarnation.is_some());
        let state = Arc::new(state);
        let database = Arc::new(Self {
            directory: directory.to_owned(),
            embedded,
            statistics: StatisticsStore::open(directory, &state),
            published: Mutex::default(),
            live: RwLock::new(Live::flushed(Arc::clone(&state))),
            flushed: Notify::new(),
            flushing: tokio::sync::Mutex::new(()),
            beside: tokio::sync::Mutex::new(None),
            blocked_retry_at: Mutex::default(),
            rewritten_count: AtomicU64::new(0),
            devices: RwLock::new(devices),
            pool,
            filter_history,
            runtime: query_runtime(options.query_memory_bytes, spills)?,
            last_shipped: LastShipped::default(),
            host_profile: Known::default(),
            writer: Arc::default(),
            merges: Semaphore::new(MERGES_AT_ONCE),
            locks,
            dependencies: Dependencies::new(),
            holding_readers_back: Arc::default(),
            log: OnceLock::new(),
            hardened: AtomicU64::new(0),
            logged_count: AtomicU64::new(0),
            tail_pins: Arc::default(),
            sequences: Sequences::default(),
            durable: Mutex::new(state),
            ids: ReservedIds::default(),
            transaction_count: AtomicU64::new(0),
            keeper,
            versions,
            activity: Activity::default(),
            stopped: AtomicBool::new(incarnation.is_none()),
            stopped_because: OnceLock::new(),
            stopped_told: Notify::new(),
            device_timeout: options.device_timeout,
            incarnation,
            _lock: lock,
        });
        database.note_published(&database.catalog());
        if incarnation.is_some() {
            database.keeper.open(&database, &database.catalog())?;
        }
        if let Some(device) = database.device(DeviceId::EMBEDDED) {
            device.link().await?;
        }
        Ok(database)
    }

    /// Claims the devices that answer, so that older incarnations end there too. A failure is reported by the first
    /// statement that needs the device.
    async fn claim_devices(&self) {
        let devices = self.devices();
        let claims = devices.iter().map(|device| device.link());
        drop(waiting::timeout(CLAIM_WAIT, futures::future::join_all(claims)).await);
    }

    /// Where the database lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The buffer pool that all sessions share.
    pub fn buffer_pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// What conditions of scans of the host and of the embedded device were true for.
    pub fn filter_history(&self) -> &Arc<FilterHistory> {
        &self.filter_history
    }

    /// What ANALYZE found of the table `table_id`.
    pub fn table_statistics(&self, table_id: u32) -> Option<Arc<TableStatistics>> {
        self.statistics.get(table_id)
    }

    /// What ANALYZE found.
    pub fn statistics(&self) -> &StatisticsStore {
        &self.statistics
    }

    /// Counts of what its statements have done.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Memory and spill space of all queries.
    pub fn query_runtime(&self) -> Arc<RuntimeEnv> {
        Arc::clone(&self.runtime)
    }

    /// Waits for a permit to merge index runs on the host, which the merge holds to its end.
    pub(crate) async fn merge_turn(&self) -> Option<SemaphorePermit<'_>> {
        // None: closed, which never happens.
        self.merges.acquire().await.ok()
    }

    /// Attached devices, by id.
    pub fn devices(&self) -> Vec<Arc<Device>> {
        self.device_map().values().map(|pages| Arc::clone(pages.device())).collect()
    }

    /// The device `id`.
    pub fn device(&self, id: DeviceId) -> Option<Arc<Device>> {
        self.device_map().get(&id).map(|pages| Arc::clone(pages.device()))
    }

    /// The device that `state` says `id` is.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; a catalog version never names one that is not attached.
    pub fn attached(&self, id: DeviceId) -> Result<Arc<Device>> {
        self.device(id)
            .ok_or_else(|| Error::unknown(NameKind::Device, &id.to_string(), std::iter::empty()))
    }

    /// The device called `name`, or [`Error::UnknownName`] with the nearest name.
    pub fn device_named(&self, name: &str) -> Result<Arc<Device>> {
        let devices = self.devices();
        devices.iter().find(|device| device.name() == name).map(Arc::clone).ok_or_else(|| {
            Error::unknown(NameKind::Device, name, devices.iter().map(|device| device.name()))
        })
    }

    /// The link to a device, connected. Errors are those of [`Device::link`].
    pub async fn link(&self, device: DeviceId) -> Result<Arc<dyn Link>> {
        self.attached(device)?.link().await
    }

    /// Pages of `device` on the host, through the buffer pool; `stack` decides how they cross the link
    /// ([`Stack::Ndp`] reads as [`Stack::Native`] does, and all statements share these).
    ///
    /// # Errors
    /// [`Error::UnknownName`] if no such device is attached.
    pub fn page_source(&self, device: DeviceId, stack: Stack) -> Result<Arc<dyn PageSource>> {
        let shared = self.device_map().get(&device).map(Arc::clone);
        match shared.filter(|_| stack != Stack::Blk) {
            Some(pages) => Ok(pages),
            None => Ok(self.host_pages(device, stack)?),
        }
    }

    /// The same for one statement, with its counters.
    pub fn host_pages(&self, device: DeviceId, stack: Stack) -> Result<Arc<HostPages>> {
        Ok(host_pages(self.attached(device)?, &self.pool, stack))
    }

    /// Adds `device` to the database, before a catalog version that names it is published.
    pub(crate) fn adopt(&self, device: Arc<Device>) {
        device.share(&self.locks, &self.versions.space_holders);
        device.join_copies();
        let (id, pages) = (device.id(), host_pages(device, &self.pool, Stack::Native));
        self.devices.write().unwrap_or_else(PoisonError::into_inner).insert(id, pages);
    }

    /// Drops the devices that `state`, which is published, does not name. Nobody reads what lay there.
    pub(crate) fn disown(&self, state: &CatalogState) {
        let is_gone = |device: &&Arc<Device>| !state.devices.contains_key(&device.id());
        self.devices().iter().filter(is_gone).for_each(|device| device.dissolve());
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|id, _| state.devices.contains_key(id));
    }

    /// What transactions have locked.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// What transactions of level SERIALIZABLE have read and written.
    pub fn dependencies(&self) -> &Arc<Dependencies> {
        &self.dependencies
    }

    /// Tables whose last pages are not to be replaced.
    pub fn tail_pins(&self) -> &Arc<TailPins> {
        &self.tail_pins
    }

    /// How many transactions may hold a table in `ACCESS EXCLUSIVE`.
    pub fn holding_readers_back(&self) -> &Arc<AtomicUsize> {
        &self.holding_readers_back
    }

    /// Whether there is any, so that readers of a table must lock it.
    pub fn readers_held_back(&self) -> bool {
        self.holding_readers_back.load(Ordering::SeqCst) > 0
    }

    /// An id that no transaction had since the database was opened.
    pub fn transaction_id(&self) -> TransactionId {
        TransactionId(self.transaction_count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Writes a manifest that has all that was committed by the log, if there is anything. A program does so when it is
    /// done, so that the next start has nothing to redo.
    ///
    /// # Errors
    /// Those of a commit; what was committed stays so.
    pub async fn checkpoint(self: &Arc<Self>) -> Result<()> {
        if self.logged_count() > 0 || !self.live().delta.is_empty() {
            self.checkpoint_now().await?;
        }
        Ok(())
    }

    /// The log, while commits may be made by it.
    pub fn log(&self) -> Option<&Wal> {
        self.log.get()
    }

    /// Commits since a manifest was written.
    pub fn logged_count(&self) -> u64 {
        self.logged_count.load(Ordering::Relaxed)
    }

    /// Notes a commit whose pages are not synced, and which no manifest names.
    pub(crate) fn note_logged(&self) {
        self.logged_count.fetch_add(1, Ordering::Relaxed);
    }

    /// The catalog version of the manifest on disk.
    pub fn durable(&self) -> Arc<CatalogState> {
        Arc::clone(&self.durable.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells this incarnation from others; 0: it is only looked at.
    pub fn incarnation(&self) -> u64 {
        self.incarnation.unwrap_or_default()
    }

    /// Notes that the manifest on disk says `state`.
    pub(crate) fn note_durable(&self, state: &Arc<CatalogState>) {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(state);
        self.logged_count.store(0, Ordering::Relaxed);
    }

    /// What sequences have given.
    pub fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Frees the space that no catalog version in use names any more.
    pub(crate) fn reclaim(&self) {
        let oldest = {
            let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            while published.len() > 1
                && published.front().is_some_and(|(_, state)| state.strong_count() == 0)
            {
                published.pop_front();
            }
            published.front().map_or(0, |(generation, _)| *generation)
        };
        for device in self.devices() {
            device.reclaim(oldest);
        }
    }

    /// Catalog versions in use, the newest among them.
    pub(crate) fn held_states(&self) -> impl Iterator<Item = Arc<CatalogState>> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let held: Vec<_> = published.iter().filter_map(|(_, state)| state.upgrade()).collect();
        held.into_iter()
    }

    fn note_published(&self, state: &Arc<CatalogState>) {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back((state.generation, Arc::downgrade(state)));
    }

    fn device_map(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<DeviceId, Arc<HostPages>>> {
        self.devices.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn host_pages(device: Arc<Device>, pool: &Arc<BufferPool>, stack: Stack) -> Arc<HostPages> {
    Arc::new(HostPages::new(device, Arc::clone(pool), stack))
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Makes embedded devices that keep their pages in `pool`, where the host finds them too, and what conditions were true
/// for in `history`.
fn sharing(
    embedded: EmbeddedFactory,
    pool: &Arc<BufferPool>,
    history: &Arc<FilterHistory>,
) -> EmbeddedFactory {
    let (pool, history) = (Arc::clone(pool), Arc::clone(history));
    Arc::new(move |media: &Path| {
        let service = embedded(media)?;
        let pages = PooledPages::new(DeviceId::EMBEDDED, Arc::clone(&pool));
        service.use_cache(Arc::new(pages));
        service.use_history(Arc::clone(&history));
        Ok(service)
    })
}

/// Asks for what another process may hold, again and again for half a second where it does: the lock of a
/// process that was killed, or that has just started a program, may outlive it by a moment.
///
/// # Errors
/// Those of the last attempt.
pub(crate) async fn retry_while_in_use<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..LOCK_ATTEMPTS {
        match attempt() {
            Err(error) if is_in_use(&error) => {}
            outcome => return outcome,
        }
        waiting::sleep(LOCK_PAUSE).await;
    }
    attempt()
}

fn is_in_use(error: &Error) -> bool {
    match error {
        Error::Storage(error) => matches!(**error, StorageError::InUse { .. }),
        Error::Io { source, .. } => {
            let media = source.get_ref().and_then(|inner| inner.downcast_ref::<MediaError>());
            matches!(media, Some(MediaError::Locked { .. }))
        }
        _ => false,
    }
}

/// How the log of a database begins.
enum LogStart {
    /// With nothing in it.
    New(Wal),
    /// With what is still to be read.
    Read(LogReader),
}

/// Reads the manifest of an existing database, and puts a higher epoch in it.
fn reopen(directory: &Path) -> Result<(CatalogState, LogStart)> {
    let mut state = manifest::read(directory)?;
    state.epoch += 1;
    state.generation += 1;
    manifest::create_directories(directory)?;
    let log = match state.log_position {
        // An earlier version made it.
        0 => {
            let log = log::create(directory)?;
            state.log_position = log.resume_from().0;
            LogStart::New(log)
        }
        position => LogStart::Read(log::open(directory, position)?),
    };
    let mut written = write_manifest(directory, &state);
    while written.as_ref().is_err_and(|error| error.sqlstate() == DISK_FULL)
        && log::release_reserve(directory)
    {
        written = write_manifest(directory, &state);
    }
    written?;
    manifest::remove_strays(directory, &state)?;
    statistics::remove_strays(directory, &state)?;
    Ok((state, log))
}

/// Changes how the device `name` of the database in `directory` is reached: another address, token, certificate or
/// rate. The database must not be open; that it is the same device is verified when it is connected next.
///
/// # Errors
/// [`StorageError::InUse`], [`Error::UnknownName`], [`StorageError::Attach`] for the embedded device and for a mirror,
/// and those of reading and writing the manifest.
pub async fn change_device(directory: &Path, name: &str, way: impl Into<DeviceKind>) -> Result<()> {
    if !manifest::exists(directory) {
        check_place(directory, false)?;
    }
    let _lock = lock(directory).await?;
    manifest::take_name(directory)?;
    let mut state = manifest::read(directory)?;
    let names: Vec<String> = state.devices().map(|device| device.name.clone()).collect();
    let Some(entry) = state.devices.values_mut().find(|device| device.name == name) else {
        return Err(Error::unknown(NameKind::Device, name, names.iter().map(String::as_str)));
    };
    let reason = match entry.kind {
        DeviceKind::Embedded => Some("it is the database's own, in this process"),
        DeviceKind::Mirror(_) => Some("it is a mirror, which is reached by its copies"),
        DeviceKind::Local(_) | DeviceKind::Remote(_) => None,
    };
    if let Some(reason) = reason {
        let (device, reason) = (name.to_owned(), reason.to_owned());
        return Err(StorageError::Attach { device, reason }.into());
    }
    entry.kind = way.into();
    state.generation += 1;
    write_manifest(directory, &state)
}

/// Makes an empty database: the manifest comes last, so that it is one or none.
async fn create(directory: &Path, embedded: &EmbeddedFactory) -> Result<(CatalogState, LogStart)> {
    manifest::create_directories(directory)?;
    let database = cleave_media::random_bytes()
        .map_err(|error| Error::io("draw", Path::new("an id"), std::io::Error::other(error)))?;
    let mut entry = DeviceEntry {
        id: DeviceId::EMBEDDED,
        name: EMBEDDED_DEVICE_NAME.to_owned(),
        identity: [0; 16],
        kind: DeviceKind::Embedded,
    };
    let (_, identity) = device::identify(&entry, directory, embedded).await?;
    entry.identity = identity.device;
    let log = log::create(directory)?;
    let state = CatalogState {
        database: DatabaseId(database),
        epoch: 1,
        generation: 1,
        commit: 0,
        log_position: log.resume_from().0,
        log_end: 0,
        next_table: 1,
        next_segment: 1,
        next_device: 1,
        devices: BTreeMap::from([(DeviceId::EMBEDDED, entry)]),
        tables: BTreeMap::new(),
        damaged: BTreeMap::new(),
        sequences: BTreeMap::new(),
        views: BTreeMap::new(),
        files: BTreeMap::new(),
        upkeep: Upkeep::default(),
        blocked: BlockedTables::default(),
        rights: Arc::default(),
        comments: Default::default(),
        keep: None,
        shipped: Arc::default(),
        referenced: Default::default(),
    };
    write_manifest(directory, &state)?;
    Ok((state, LogStart::New(log)))
}

/// A number that no other incarnation has, of this database or of a copied folder.
pub fn draw_incarnation() -> Result<u64> {
    let bytes = cleave_media::random_bytes()
        .map_err(|error| Error::io("draw", Path::new("a number"), std::io::Error::other(error)))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// Replaces the manifest of a database that is not open.
pub fn write_manifest(directory: &Path, state: &CatalogState) -> Result<()> {
    manifest::replace(directory, state).map_err(|error| match error {
        ReplaceError::Unchanged(error) | ReplaceError::Unknown(error) => error,
    })
}

/// A device whose free space is what `state` does not name on it.
pub fn attach(
    state: &CatalogState,
    incarnation: Option<u64>,
    entry: DeviceEntry,
    directory: &Path,
    embedded: &EmbeddedFactory,
) -> Result<Device> {
    let id = entry.id;
    let mut used = state.extents(id);
    let kept = kept_on(state, id);
    used.extend(&kept);
    // What is kept of a mirror waits there, and is in use here as well.
    for mirror in state.places_on(id).filter(|place| *place != id) {
        used.extend(device::free_of(kept_on(state, mirror), &used));
    }
    let epoch = if incarnation.is_some() { state.epoch } else { LOOKING_EPOCH };
    let incarnation = Ownership {
        database: state.database.0,
        epoch,
        incarnation: incarnation.unwrap_or_default(),
    };
    let device = Device::new(entry, incarnation, used, directory, Arc::clone(embedded));
    let mut device = device.map_err(|error| {
        let (path, reason) = (directory.join("manifest"), error.to_string());
        StorageError::Damaged { path, reason }
    })?;
    let present = state.extents_present(id);
    device.expect_blocks(present.iter().map(|extent| extent.end().0).max().unwrap_or(0));
    device.set_unknown_space(state.unknown_space_of(id));
    device.keep(kept);
    Ok(device)
}

/// What is kept of `place` beside what `state` names. Of a mirror it is also beside what is named or kept of a copy
/// alone: that has taken it since it was let go of, by a record of the log.
fn kept_on(state: &CatalogState, place: DeviceId) -> Vec<Extent> {
    let Some(kept) = state.upkeep.kept.get(&place) else { return Vec::new() };
    let mut kept = device::free_of(kept.clone(), &state.extents(place));
    let mirror = state.devices.get(&place).and_then(DeviceEntry::mirror);
    for copy in mirror.into_iter().flat_map(|mirror| &mirror.copies) {
        kept = device::free_of(kept, &state.extents(copy.device));
        if let Some(of_copy) = state.upkeep.kept.get(&copy.device) {
            kept = device::free_of(kept, of_copy);
        }
    }
    kept
}
