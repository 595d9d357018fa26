//! The runtime of a device: executes commands on its media and runs fragments.
//!
//! Host I/O (read, write, sync, reserve) is served on blocking threads of its own. Fragments run on `cores` threads of
//! their own and read media on a third set. So neither waits behind the other.
//!
//! Invariants: one database at a time owns the device, in one epoch; both outlive the process ([`OwnerRecord`]). A
//! write lands only inside the space that this database reserved in this epoch, in this process. A claim of a higher
//! epoch is answered when nothing of the lower ones is under way any more (rule 29): writes hold the ownership lock
//! shared until they are done, a claim takes it exclusively and waits for the runs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_fragment::command::message::{
    CAPABILITIES, PARTITIONS_MAX, SHIPPED_BYTES_MAX, SLOT_BYTES, SLOT_COUNT, TRANSFER_BYTES_MAX,
};
use cleave_fragment::command::wire::PROTOCOL_VERSION;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, DeviceStatus, Execute, Identity,
    ReadItem, ReadPayload, Reply, Request, RunKey, WriteItem,
};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::filter_history::{FILTER_HISTORY_BYTES, FilterHistory};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_fragment::trace::SpanSink;
use cleave_fragment::waiting::spawn_blocking_on;
use cleave_media::{BLOCK_SIZE, Extent, Media, random_bytes, simulation};
use cleave_store::{MediaPages, PageCache, PageRead, PageRef};
use tokio::runtime::{Builder, Handle};
use tokio::sync::RwLock;

use crate::admission::Admission;
use crate::device_error::{of_media, of_store};
use crate::fragment_run::FragmentRun;
use crate::node::{Node, NodeEngine};
use crate::owner_record::{OwnerRecord, OwnerRecordError};
use crate::peers::{PeerConnector, PeerLinks};

mod execute;
mod ownership;
mod peer_service;
mod profile;

use ownership::{Entry, Owner};
use peer_service::PeerService;

/// Most runs that may be kept unreleased.
const RUNS_MAX: usize = 1024;
/// Most bytes of pages that one command to the media reads, except for one larger page.
const READ_BATCH_BYTES: u64 = 16 << 20;
/// Threads on which fragments wait for media: reads ahead need some depth to keep it busy.
const MEDIA_THREADS: usize = 16;
/// Stack of a thread that runs fragments: operators walk expressions by recursion, as deep as
/// [`EXPRESSION_DEPTH_MAX`](cleave_fragment::codec::EXPRESSION_DEPTH_MAX).
const FRAGMENT_STACK_BYTES: usize = 16 << 20;

/// The resources and settings of a device.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Identity of the media; the host recognises the device by it.
    pub device_id: [u8; 16],
    /// Threads that run fragments; at least 1.
    pub cores: u32,
    /// Bytes that fragments may use in all: their operators' memory and their slots.
    pub fragment_memory_bytes: u64,
    /// Bytes of the [filter history](cleave_fragment::filter_history), besides these.
    pub filter_history_bytes: u64,
    /// How long a fragment may wait for memory that other runs hold.
    pub admission_wait: Duration,
    /// Threads that serve host I/O, mostly waiting for media; at least 1.
    pub io_threads: u32,
    /// Blocks that the media may grow to.
    pub block_count_max: u64,
    /// The storage of the device's owner.
    pub owner: OwnerRecord,
    /// What makes the links to other devices; None: TCP.
    pub peers: Option<Arc<dyn PeerConnector>>,
}

impl RuntimeOptions {
    /// All cores of the machine, 256 MiB for fragments, media of up to 64 TiB, and an owner that is forgotten when the
    /// process ends.
    pub fn new(device_id: [u8; 16]) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            device_id,
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            fragment_memory_bytes: 256 << 20,
            filter_history_bytes: FILTER_HISTORY_BYTES,
            admission_wait: Duration::from_secs(5),
            io_threads: 16,
            block_count_max: 1 << 34,
            owner: OwnerRecord::in_process(),
            peers: None,
        }
    }
}

/// Why the device could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The system gave no threads.
    #[error("cannot start the device's threads: {0}")]
    Threads(#[from] std::io::Error),
    /// The system gave no random bytes.
    #[error(transparent)]
    Random(#[from] cleave_media::MediaError),
    /// The device's owner cannot be read.
    #[error(transparent)]
    Owner(#[from] OwnerRecordError),
}

/// A device over one media.
#[derive(Debug)]
pub struct Runtime {
    media: Arc<dyn Media>,
    /// The host's buffer pool, in the host's process.
    cache: Mutex<Option<Arc<dyn PageCache>>>,
    /// The host's filter history, in the host's process: used instead of its own.
    host_history: Mutex<Option<Arc<FilterHistory>>>,
    options: RuntimeOptions,
    /// Differs with every start, so that a host notices a restart.
    incarnation: u64,
    owner: Arc<RwLock<Option<Owner>>>,
    runs: Mutex<BTreeMap<RunKey, Arc<FragmentRun>>>,
    /// Released runs that may still work: a claim of a higher epoch waits for these too.
    ending: Mutex<Vec<Weak<FragmentRun>>>,
    admission: Admission,
    /// What conditions of scans were true for.
    history: Arc<FilterHistory>,
    profiled: profile::Kept,
    engine: NodeEngine,
    /// Its links to other devices.
    peers: Arc<PeerLinks>,
    /// Who takes the spans of its runs; unset, those of a host in this process go where the host's go.
    spans: OnceLock<Arc<dyn SpanSink>>,
    threads: Threads,
}

/// The two sets of threads.
#[derive(Debug)]
struct Threads {
    io: ThreadSet,
    fragments: ThreadSet,
}

/// Threads of this device, or in a simulation the one thread that all share; dropped without waiting, because the
/// caller may be asynchronous.
#[derive(Debug)]
struct ThreadSet {
    handle: Handle,
    owned: Option<tokio::runtime::Runtime>,
}

impl ThreadSet {
    fn start(builder: &mut Builder) -> Result<Self, std::io::Error> {
        if simulation::is_active() {
            return Ok(Self { handle: Handle::current(), owned: None });
        }
        let owned = builder.build()?;
        Ok(Self { handle: owned.handle().clone(), owned: Some(owned) })
    }
}

impl Drop for ThreadSet {
    fn drop(&mut self) {
        if let Some(threads) = self.owned.take() {
            end_in_background(threads);
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.engine.leave();
    }
}

impl Runtime {
    /// A device over `media`, in a node of its own.
    ///
    /// # Errors
    /// As [`Runtime::in_node`].
    pub fn new(media: Arc<dyn Media>, options: RuntimeOptions) -> Result<Arc<Self>, RuntimeError> {
        Self::in_node(media, options, &Node::new(""))
    }

    /// A device over `media`, as an engine of `node`: those that serve one database lend idle cores to each other.
    ///
    /// # Errors
    /// If the system gives no threads or random bytes, or the owner's record cannot be read.
    pub fn in_node(
        media: Arc<dyn Media>,
        options: RuntimeOptions,
        node: &Arc<Node>,
    ) -> Result<Arc<Self>, RuntimeError> {
        let owner = options.owner.read()?.map(Owner::new);
        let engine = NodeEngine::of(node, options.cores.max(1));
        let cores = options.cores.max(1) as usize;
        let io = ThreadSet::start(
            Builder::new_multi_thread()
                .worker_threads(1)
                .max_blocking_threads(options.io_threads.max(1) as usize)
                .thread_name("cleave-device-io"),
        )?;
        let fragments = ThreadSet::start(
            Builder::new_multi_thread()
                .worker_threads(cores)
                .max_blocking_threads(MEDIA_THREADS.max(2 * cores))
                // As much as the system shows of a name: whoever divides the machine among engines goes by it.
                .thread_name(format!("fragment-{}", engine.number()))
                .thread_stack_size(FRAGMENT_STACK_BYTES)
                .enable_time(),
        )?;
        let incarnation = u64::from_le_bytes(random_bytes::<8>()?);
        engine.serve(owner.as_ref().map(|owner| owner.ownership));
        engine.open(options.device_id, &media);
        engine.begin(fragments.handle.clone());
        let device = Arc::new(Self {
            media,
            cache: Mutex::default(),
            host_history: Mutex::default(),
            incarnation,
            owner: Arc::new(RwLock::new(owner)),
            runs: Mutex::default(),
            ending: Mutex::default(),
            profiled: profile::Kept::default(),
            history: Arc::new(FilterHistory::new(options.filter_history_bytes)),
            admission: Admission::new(options.fragment_memory_bytes, options.admission_wait),
            peers: Arc::new(PeerLinks::of(engine.clone(), options.peers.clone())),
            engine,
            spans: OnceLock::new(),
            threads: Threads { io, fragments },
            options,
        });
        let service: Weak<Self> = Arc::downgrade(&device);
        device.engine.answer(service);
        Ok(device)
    }

    /// The media that it serves.
    pub fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// Gives `sink` the spans of its runs from now on; false: another one has them already.
    pub fn trace_to(&self, sink: Arc<dyn SpanSink>) -> bool {
        self.spans.set(sink).is_ok()
    }

    /// What it holds for other devices and of them: grants that have not ended, and links that runs use.
    pub async fn held_for_peers(&self) -> (usize, usize) {
        let grants =
            self.owner.read().await.as_ref().map_or(0, |owner| owner.lock_grants().count());
        (grants, self.peers.count())
    }

    /// The page cache of its process.
    fn cache(&self) -> Option<Arc<dyn PageCache>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The filter history that its runs use.
    fn used_history(&self) -> Arc<FilterHistory> {
        let of_host = self.host_history.lock().unwrap_or_else(PoisonError::into_inner).clone();
        of_host.unwrap_or_else(|| Arc::clone(&self.history))
    }

    // ---- host I/O ------------------------------------------------------------------------------

    /// Runs `work` on a thread that may wait for media.
    async fn on_io_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Media) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<T, DeviceError> {
        let media = Arc::clone(&self.media);
        spawn_blocking_on(&self.threads.io.handle, move || work(media.as_ref()))
            .await
            .unwrap_or_else(|error| {
                let message = format!("the device failed internally: {error}");
                Err(DeviceError::new(DeviceErrorCause::Io, message))
            })
    }

    /// Reads `items` from `media`, which are the device's own, as far as the reader may read them.
    async fn read(
        &self,
        media: Arc<dyn Media>,
        items: Vec<ReadItem>,
    ) -> Result<Reply, DeviceError> {
        let blocks = items.iter().map(|item| match item {
            ReadItem::Blocks(extent) => extent.bytes() as u64,
            ReadItem::Columns { .. } => 0,
        });
        check_transfer("read", blocks.fold(0, u64::saturating_add))?;
        items.iter().try_for_each(check_item)?;
        let pages = MediaPages::new(Arc::clone(&media));
        let payloads =
            self.on_io_thread(move |_| read_items(media.as_ref(), &pages, items)).await?;
        Ok(Reply::Read(payloads))
    }

    async fn write(&self, entry: Entry, items: Vec<WriteItem>) -> Result<Reply, DeviceError> {
        let bytes = items.iter().map(|item| item.payload.bytes.len() as u64);
        check_transfer("write", bytes.fold(0, u64::saturating_add))?;
        self.on_io_thread(move |media| {
            check_writes(entry.as_ref(), &items)?;
            for item in &items {
                media.write(item.start, &item.payload.bytes).map_err(|error| of_media(&error))?;
            }
            // Held until here, so that an epoch ends only after its writes.
            drop(entry);
            Ok(Reply::Done)
        })
        .await
    }

    async fn reserve(&self, entry: Entry, extents: Vec<Extent>) -> Result<Reply, DeviceError> {
        let end = extents.iter().map(|extent| extent.end().0).max().unwrap_or(0);
        let block_count_max = self.options.block_count_max;
        if end > block_count_max {
            let message =
                format!("block {end} is beyond the {block_count_max} that this media may have");
            return Err(DeviceError::new(DeviceErrorCause::OutOfSpace, message));
        }
        let has_room = |owner: &Owner| owner.lock_reservations().has_room(extents.len());
        if !entry.as_ref().is_some_and(has_room) {
            let message = "too many blocks apart from one another are reserved in this epoch";
            return Err(refused(message.to_owned()));
        }
        self.on_io_thread(move |media| {
            if end > media.block_count() {
                media.grow_to(end).map_err(|error| of_media(&error))?;
            }
            if let Some(owner) = entry.as_ref() {
                let mut reservations = owner.lock_reservations();
                extents.into_iter().for_each(|extent| reservations.add(extent));
            }
            Ok(Reply::Done)
        })
        .await
    }

    // ---- about itself --------------------------------------------------------------------------

    async fn identity(&self) -> Identity {
        let owner = self.owner.read().await.as_ref().map(|owner| owner.ownership);
        Identity {
            device: self.options.device_id,
            build: cleave_fragment::build_id(),
            protocol_version: PROTOCOL_VERSION,
            capabilities: CAPABILITIES.map(str::to_owned).to_vec(),
            block_size: u32::try_from(BLOCK_SIZE).unwrap_or(u32::MAX),
            block_count: self.media.block_count(),
            cores: self.options.cores.max(1),
            fragment_memory_bytes: self.admission.total_bytes(),
            slot_bytes_max: *SLOT_BYTES.end(),
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            owner,
            node: self.engine.node_name().to_owned(),
        }
    }

    /// Without a database, for the owner, or for a reader.
    async fn status(&self, header: &CommandHeader) -> Result<DeviceStatus, DeviceError> {
        let reserved_block_count = if header.database == [0; 16] {
            0
        } else {
            let entry = self.enter_to_read(header).await?;
            entry.as_ref().map_or(0, |owner| owner.lock_reservations().block_count())
        };
        let (runs, queues): (Vec<_>, Vec<u64>) =
            self.lock_runs().values().map(|run| (run.status(), run.queued())).unzip();
        Ok(DeviceStatus {
            incarnation: self.incarnation,
            fragment_memory_bytes: self.admission.total_bytes(),
            fragment_memory_bytes_free: self.admission.free_bytes(),
            block_count: self.media.block_count(),
            reserved_block_count,
            media_bytes_read: self.media.bytes_read(),
            media_bytes_written: self.media.bytes_written(),
            history: self.used_history().figures(),
            runs,
            queue: queues.into_iter().fold(0, u64::saturating_add),
        })
    }

    // ---- runs ----------------------------------------------------------------------------------

    fn run(&self, header: &CommandHeader) -> Option<Arc<FragmentRun>> {
        self.lock_runs().get(&header.run_key()).map(Arc::clone)
    }

    /// Takes `run` off the list, if it is still the one of its number.
    fn forget_run(&self, run: &Arc<FragmentRun>) {
        let key = run.header().run_key();
        let mut runs = self.lock_runs();
        if runs.get(&key).is_some_and(|found| Arc::ptr_eq(found, run)) {
            runs.remove(&key);
        }
    }

    /// Takes the header's run off the list and tells it to stop.
    fn release_run(&self, header: &CommandHeader) -> Option<Arc<FragmentRun>> {
        let run = self.lock_runs().remove(&header.run_key())?;
        self.end_run(&run);
        Some(run)
    }

    /// Tells a run that is on the list no more to stop.
    fn end_run(&self, run: &Arc<FragmentRun>) {
        run.cancel();
        let mut ending = self.lock_ending();
        ending.retain(|run| run.strong_count() > 0);
        ending.push(Arc::downgrade(run));
    }

    fn lock_ending(&self) -> MutexGuard<'_, Vec<Weak<FragmentRun>>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_runs(&self) -> MutexGuard<'_, BTreeMap<RunKey, Arc<FragmentRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl DeviceService for Runtime {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let header = command.header;
        match command.request {
            Request::Identify => Ok(Reply::Identity(self.identity().await)),
            Request::Claim { after } => self.claim(&header, after).await,
            Request::GiveUp => self.give_up(&header).await,
            Request::Status => Ok(Reply::Status(self.status(&header).await?)),
            Request::Profile { again, sample, scratch } => {
                self.profile(&header, again, sample, scratch).await
            }
            Request::Read(items) => {
                let _entry = self.enter_to_read(&header).await?;
                self.read(Arc::clone(&self.media), items).await
            }
            Request::Write(items) => {
                let entry = self.enter(&header).await?;
                self.write(entry, items).await
            }
            Request::Reserve { extents } => {
                let entry = self.enter(&header).await?;
                self.reserve(entry, extents).await
            }
            Request::Sync => {
                let _entry = self.enter(&header).await?;
                self.on_io_thread(|media| media.sync().map_err(|error| of_media(&error))).await?;
                Ok(Reply::Done)
            }
            Request::Fetch { consumed, output } => {
                drop(self.enter(&header).await?);
                let run = self.run(&header).ok_or_else(|| unknown_run(&header))?;
                run.consumed(output, consumed);
                Ok(Reply::Done)
            }
            Request::Revoke { input, keep } => {
                drop(self.enter(&header).await?);
                let run = self.run(&header).ok_or_else(|| unknown_run(&header))?;
                Ok(Reply::Kept(run.revoke(input, keep)?))
            }
            Request::Feed { input, generation, filter } => {
                drop(self.enter(&header).await?);
                let run = self.run(&header).ok_or_else(|| unknown_run(&header))?;
                // Decoded on a fragment thread: the thread that serves the sockets goes on meanwhile.
                let feeding = async move { run.feed(input, generation, &filter) };
                let fed = self.threads.fragments.handle.spawn(feeding).await;
                fed.unwrap_or_else(|error| Err(refused(format!("no filter: {error}"))))?;
                Ok(Reply::Done)
            }
            Request::Extend { number, extents } => {
                let entry = self.enter(&header).await?;
                self.extend_run(&entry, &header, number, &extents)
            }
            Request::Cancel => {
                // Not held while it waits, so that a claim need not wait for the run twice.
                drop(self.enter(&header).await?);
                if let Some(run) = self.run(&header) {
                    run.cancel();
                    run.stand_still().await;
                }
                Ok(Reply::Done)
            }
            Request::Grant(grant) => {
                let entry = self.enter(&header).await?;
                entry.as_ref().map_or(Ok(()), |owner| owner.lock_grants().add(grant))?;
                Ok(Reply::Done)
            }
            Request::EndGrant { number } => {
                let entry = self.enter(&header).await?;
                if let Some(owner) = entry.as_ref() {
                    owner.lock_grants().end(number);
                }
                Ok(Reply::Done)
            }
            Request::Locks(say) => {
                drop(self.enter(&header).await?);
                self.steer(Command::new(header, Request::Locks(say)));
                Ok(Reply::Done)
            }
            Request::Release => {
                drop(self.enter(&header).await?);
                if let Some(run) = self.release_run(&header) {
                    run.stand_still().await;
                    run.let_go();
                }
                Ok(Reply::Done)
            }
        }
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.begin_run(request, slots).await
    }

    fn peer(self: Arc<Self>, shown: &[u8]) -> Option<Arc<dyn DeviceService>> {
        let service = PeerService::of(&self, shown)?;
        Some(Arc::new(service))
    }

    fn use_cache(&self, cache: Arc<dyn PageCache>) {
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(cache);
    }

    fn use_history(&self, history: Arc<FilterHistory>) {
        *self.host_history.lock().unwrap_or_else(PoisonError::into_inner) = Some(history);
    }

    fn steer(&self, command: Command) {
        match command.request {
            Request::Fetch { consumed, output } => {
                if let Some(run) = self.run(&command.header) {
                    run.consumed(output, consumed);
                }
            }
            Request::Release => {
                self.release_run(&command.header);
            }
            Request::Locks(say) => {
                if let Some(run) = self.run(&command.header) {
                    run.hear(say);
                }
            }
            _ => {}
        }
    }
}

fn unknown_run(header: &CommandHeader) -> DeviceError {
    let message = format!("there is no run {}; was the device restarted?", header.run);
    DeviceError::new(DeviceErrorCause::UnknownRun, message)
}

fn refused(message: String) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, message)
}

fn check_transfer(what: &str, bytes: u64) -> Result<(), DeviceError> {
    if bytes <= TRANSFER_BYTES_MAX {
        return Ok(());
    }
    Err(refused(format!(
        "a {what} of {bytes} bytes is more than the {TRANSFER_BYTES_MAX} of one command; ask in parts"
    )))
}

/// The parts of a page are read at once.
fn check_page(page: &PageRef) -> Result<(), DeviceError> {
    check_transfer("page", page.extent.bytes() as u64)
}

/// Each column only once: chunks do not overlap, so that a read is no larger than the page.
fn check_item(item: &ReadItem) -> Result<(), DeviceError> {
    let ReadItem::Columns { page, columns, .. } = item else { return Ok(()) };
    check_page(page)?;
    let mut seen = BTreeSet::new();
    match columns.iter().find(|column| !seen.insert(**column)) {
        Some(column) => Err(refused(format!("a read asks for {column:?} of a page twice"))),
        None => Ok(()),
    }
}

/// All or nothing: no item is written unless every one may be.
fn check_writes(owner: Option<&Owner>, items: &[WriteItem]) -> Result<(), DeviceError> {
    for item in items {
        let bytes = item.payload.bytes.len();
        let blocks = u32::try_from(bytes / BLOCK_SIZE).unwrap_or(u32::MAX);
        let extent = Extent { start: item.start, block_count: blocks };
        if bytes == 0 || bytes % BLOCK_SIZE != 0 {
            return Err(refused(format!("a write of {bytes} bytes is not a number of blocks")));
        }
        if !owner.is_some_and(|owner| owner.lock_reservations().contains(extent)) {
            let message = format!("{extent} were not reserved in this epoch");
            return Err(DeviceError::new(DeviceErrorCause::NotReserved, message));
        }
        if !item.payload.is_intact() {
            let message = format!("what was to be written to {extent} was spoilt on the way");
            return Err(DeviceError::new(DeviceErrorCause::Corrupt, message));
        }
    }
    Ok(())
}

/// Reads `items` in their order, several with one command to the media, within the memory limit.
fn read_items(
    media: &dyn Media,
    pages: &MediaPages,
    items: Vec<ReadItem>,
) -> Result<Vec<ReadPayload>, DeviceError> {
    let mut payloads = Vec::with_capacity(items.len());
    let mut bytes: u64 = 0;
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        let mut extents = Vec::new();
        let mut reads = Vec::new();
        let mut is_blocks = Vec::new();
        let mut batch_bytes: u64 = 0;
        while let Some(item) = items.next_if(|item| {
            let size = item.byte_count();
            let fits = is_blocks.is_empty() || batch_bytes + size <= READ_BATCH_BYTES;
            batch_bytes = batch_bytes.saturating_add(size);
            fits
        }) {
            is_blocks.push(matches!(item, ReadItem::Blocks(_)));
            match item {
                ReadItem::Blocks(extent) => extents.push(extent),
                ReadItem::Columns { page, segment, columns } => {
                    reads.push(PageRead { segment, page, columns });
                }
            }
        }
        let blocks = media.read_many(&extents).map_err(|error| of_media(&error))?;
        let mut blocks = blocks.into_iter().map(|buffer| ReadPayload::Blocks(buffer.into_bytes()));
        let raw = pages.read_raw_pages(&reads).map_err(|error| of_store(&error))?;
        let mut columns = raw
            .into_iter()
            .map(|raw| ReadPayload::Columns { header: raw.header, chunks: raw.chunks });
        let batch = is_blocks
            .into_iter()
            .filter_map(|is_blocks| if is_blocks { blocks.next() } else { columns.next() });
        for payload in batch {
            bytes = bytes.saturating_add(payload.byte_count() as u64);
            check_transfer("read", bytes)?;
            payloads.push(payload);
        }
    }
    Ok(payloads)
}
