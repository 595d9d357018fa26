//! Links from this device to others, for runs that take pages or rows there.
//!
//! ```text
//!   a device's id ─┬─ is no peer, or one of this node ─▶ EmbeddedLink ─▶ the engine of this process, itself too
//!                  └─ is a peer with an address ───────▶ ConnectedLink ─▶ TLS ─▶ hello: number, secret of the grant
//!                                                        or what a PeerConnector makes, in a simulation
//! ```
//!
//! 1. [`PeerLinks::link`] finds the link. Runs that show the same grant share one, which is closed when the last of
//!    them has let go of it. The connections' tasks run on one thread, begun with the first of them.
//! 2. [`PeerPages`] reads pages over such a link, verified as the device's own are.
//!
//! Invariants: a device goes only where the execute of a run says, and shows only what that says. What others answer is
//! not trusted: a page must have the checksum of the reference that came from the host. A peer that cannot be reached,
//! does not answer in time or answers what is wrong is a [`PeerFault`]: the host then runs the fragment itself.
//! Deliberately absent: a list of known devices, and tokens.

use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, PeerAddress, PeerWay, ReadItem,
    ReadPayload, Reply, Request,
};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::link::{
    ConnectedLink, DeviceService, EmbeddedLink, Link, LinkError, RemoteAddress, SlotSender,
};
use cleave_fragment::waiting::{spawn_blocking, timeout};
use cleave_media::{BLOCK_SIZE, simulation};
use cleave_store::page::overflow::overflow_payload;
use cleave_store::{
    PageColumns, PageRead, PageRef, PageSource, RawColumns, SegmentRef, StoreError,
};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::node::NodeEngine;
use crate::run_pages::CpuTime;

/// Most links to other devices at once.
const LINKS_MAX: usize = 256;
/// Most bytes that one read asks of another device, but for one larger page.
const READ_BYTES: u64 = 8 << 20;
/// How long another device may take for a read while next to nothing comes of it. Behind other reads on a slow link an
/// answer may take longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that a device which answers sends in that time, at least: answers to pings have fewer.
const PROGRESS_BYTES: u64 = BLOCK_SIZE as u64;

/// Makes the links of one device to others in the place of TCP: for simulations.
pub trait PeerConnector: Send + Sync + fmt::Debug {
    /// The link to the device at `address`, which shows there the grant that the address names. It connects when it is
    /// first used, and again after a connection was lost.
    ///
    /// # Errors
    /// Those of an address that cannot be used.
    fn connect(&self, address: &PeerAddress) -> Result<Arc<dyn Link>, LinkError>;
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PeerLinks {
    engine: NodeEngine,
    connector: Option<Arc<dyn PeerConnector>>,
    /// Those that runs hold.
    links: Mutex<Vec<(PeerAddress, Weak<dyn Link>)>>,
    /// For the tasks of connections; None: there was none yet.
    thread: Mutex<Option<Runtime>>,
}

impl PeerLinks {
    /// No links yet, of the device that `engine` is; they are made by `connector`, or over TCP.
    pub(crate) fn of(engine: NodeEngine, connector: Option<Arc<dyn PeerConnector>>) -> Self {
        Self { engine, connector, links: Mutex::default(), thread: Mutex::default() }
    }

    /// Links to other machines that runs hold.
    pub(crate) fn count(&self) -> usize {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.iter().filter(|(_, link)| link.strong_count() > 0).count()
    }

    /// The link to the device `id` for the run of `request`, which says how it is reached; without a word of it, it is
    /// an engine of this node. The link lasts as long as the caller holds it, and its streams do not outlast it.
    ///
    /// # Errors
    /// [`DeviceErrorCause::Peer`] for one that is not there, and for an address that cannot be used. A connection is
    /// opened by the first command over it.
    pub(crate) fn link(
        &self,
        request: &Execute,
        id: [u8; 16],
    ) -> Result<Arc<dyn Link>, DeviceError> {
        let peer = request.peers.iter().find(|peer| peer.device == id);
        match peer.map(|peer| &peer.way) {
            None | Some(PeerWay::Node) => {
                let owner = request.header.ownership();
                let engine = self.engine.service(id, owner);
                let engine = engine.map_err(|error| peer_error(id, &error))?;
                Ok(EmbeddedLink::new(Arc::new(NodeService(engine)), None))
            }
            Some(PeerWay::Link(address)) => {
                let link = self.connected(address);
                link.map_err(|error| peer_error(id, &in_words(&error)))
            }
        }
    }

    /// The link to `address`, shared with other runs that show the same.
    fn connected(&self, address: &PeerAddress) -> Result<Arc<dyn Link>, LinkError> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|(_, link)| link.strong_count() > 0);
        let mut known = links.iter().filter(|(known, _)| known == address);
        if let Some(link) = known.find_map(|(_, link)| link.upgrade()) {
            return Ok(link);
        }
        let at = RemoteAddress { host: address.host.clone(), port: address.port };
        let no_room = |source| LinkError::Connect { address: at.to_string(), source };
        if links.len() >= LINKS_MAX {
            let source = io::Error::other(format!("{LINKS_MAX} links to other devices are open"));
            return Err(no_room(source));
        }
        let link = match &self.connector {
            Some(connector) => connector.connect(address)?,
            None => {
                let thread = self.thread().map_err(no_room)?;
                ConnectedLink::to_peer(address, thread)? as Arc<dyn Link>
            }
        };
        links.push((address.clone(), Arc::downgrade(&link)));
        Ok(link)
    }

    fn thread(&self) -> io::Result<Handle> {
        let mut thread = self.lock_thread();
        if let Some(thread) = &*thread {
            return Ok(thread.handle().clone());
        }
        if simulation::is_active() {
            return Ok(Handle::current());
        }
        let mut builder = Builder::new_multi_thread();
        let begun = builder.worker_threads(1).thread_name("cleave-peers").enable_all().build()?;
        let handle = begun.handle().clone();
        *thread = Some(begun);
        Ok(handle)
    }

    fn lock_thread(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerLinks {
    fn drop(&mut self) {
        if let Some(thread) = self.lock_thread().take() {
            end_in_background(thread);
        }
    }
}

/// The error of the device `id`, about which it says `what`.
pub(crate) fn peer_error(id: [u8; 16], what: &dyn fmt::Display) -> DeviceError {
    let fault = PeerFault { device: id, what: what.to_string() };
    DeviceError::new(DeviceErrorCause::Peer, fault.to_string())
}

/// `error` of a link to another device, in words for the user of the host: a link's own are those for a host.
pub(crate) fn in_words(error: &LinkError) -> String {
    match error {
        // It is named anyway, and one of the node would be called embedded.
        LinkError::Device { source, .. } => source.to_string(),
        LinkError::Unauthenticated { address } => {
            format!("{address} does not know the grant, which has ended or was for another device")
        }
        LinkError::Connect { address, source } if source.kind() != io::ErrorKind::Other => {
            format!("no connection to {address}: {source}; let devices reach each other's ports")
        }
        LinkError::Connect { address, source } => format!("no connection to {address}: {source}"),
        other => other.to_string(),
    }
}

/// Another device that a run takes something from, and that failed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerFault {
    device: [u8; 16],
    what: String,
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another device, ")?;
        self.device.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ", cannot be used from here: {}", self.what)
    }
}

impl std::error::Error for PeerFault {}

/// An engine of this process as runs of others have it: they take rows of its runs, which the host begins and ends.
#[derive(Debug)]
struct NodeService(Weak<dyn DeviceService>);

impl NodeService {
    fn engine(&self) -> Result<Arc<dyn DeviceService>, DeviceError> {
        let gone = || DeviceError::new(DeviceErrorCause::Peer, "an engine of the node has ended");
        self.0.upgrade().ok_or_else(gone)
    }
}

#[async_trait]
impl DeviceService for NodeService {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        match command.request {
            Request::Identify => self.engine()?.call(command).await,
            // Not as a call: that waits for a claim, which waits for the run that says so.
            Request::Fetch { .. } => {
                self.engine()?.steer(command);
                Ok(Reply::Done)
            }
            // A listener that leaves does not end the run.
            Request::Release => Ok(Reply::Done),
            _ => Err(not_for_peers()),
        }
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        match request.attaches {
            true => self.engine()?.execute(request, slots).await,
            false => Err(not_for_peers()),
        }
    }

    fn steer(&self, command: Command) {
        if matches!(command.request, Request::Fetch { .. })
            && let Ok(engine) = self.engine()
        {
            engine.steer(command);
        }
    }
}

fn not_for_peers() -> DeviceError {
    let message = "another device takes rows of runs, and nothing else";
    DeviceError::new(DeviceErrorCause::Refused, message)
}

/// Pages of another device, read over a link and verified here.
#[derive(Debug, Clone)]
pub(crate) struct PeerPages(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    device: [u8; 16],
    link: Arc<dyn Link>,
    header: CommandHeader,
    cpu: Arc<CpuTime>,
    byte_count: AtomicU64,
    page_count: AtomicU64,
}

impl PeerPages {
    /// Pages of `device` over `link`, for the run of `header`, whose CPU time goes to `cpu`.
    pub(crate) fn new(
        device: [u8; 16],
        link: Arc<dyn Link>,
        header: CommandHeader,
        cpu: Arc<CpuTime>,
    ) -> Self {
        let (byte_count, page_count) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Shared { device, link, header, cpu, byte_count, page_count }))
    }

    /// Which device it is.
    pub(crate) fn device(&self) -> [u8; 16] {
        self.0.device
    }

    /// Bytes that came.
    pub(crate) fn byte_count(&self) -> u64 {
        self.0.byte_count.load(Ordering::Relaxed)
    }

    /// Pages that were read.
    pub(crate) fn pages_read(&self) -> u64 {
        self.0.page_count.load(Ordering::Relaxed)
    }

    /// `items` as the other device answers them, in their order and not verified.
    async fn payloads(&self, items: Vec<ReadItem>) -> Result<Vec<ReadPayload>, StoreError> {
        self.0.page_count.fetch_add(items.len() as u64, Ordering::Relaxed);
        let asked = commands_of(items).into_iter().map(|items| self.ask(items));
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }

    async fn ask(&self, items: Vec<ReadItem>) -> Result<Vec<ReadPayload>, StoreError> {
        let count = items.len();
        let command = Command::new(self.0.header, Request::Read(items));
        let link = &self.0.link;
        let received = || link.traffic().received_bytes;
        let reply = match while_received(link.call(command), received, ANSWER_LIMIT).await {
            Some(Ok(reply)) => reply,
            Some(Err(error)) => return Err(self.fault(&in_words(&error))),
            None => {
                let seconds = ANSWER_LIMIT.as_secs();
                return Err(self.fault(&format!("it did not go on with a read for {seconds} s")));
            }
        };
        match reply {
            Reply::Read(payloads) if payloads.len() == count => {
                let bytes: usize = payloads.iter().map(ReadPayload::byte_count).sum();
                self.0.byte_count.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(payloads)
            }
            _ => Err(self.fault(&"it answered a read with something else")),
        }
    }

    /// The result of `verify`, made on a thread that may take its time; what does not verify is the other device's
    /// fault.
    async fn verified<T: Send + 'static>(
        &self,
        verify: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let cpu = Arc::clone(&self.0.cpu);
        match spawn_blocking(move || cpu.measure(verify)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.fault(&format!("it sent what is wrong: {error}"))),
            Err(error) => Err(StoreError::Source(Arc::new(error))),
        }
    }

    fn fault(&self, what: &dyn fmt::Display) -> StoreError {
        let fault = PeerFault { device: self.0.device, what: what.to_string() };
        StoreError::Source(Arc::new(fault))
    }

    async fn read_columns(self, reads: Vec<PageRead>) -> Result<Vec<PageColumns>, StoreError> {
        let items = reads.iter().map(|read| ReadItem::Columns {
            page: read.page,
            segment: read.segment,
            columns: read.columns.clone(),
        });
        let payloads = self.payloads(items.collect()).await?;
        let mut raw = Vec::with_capacity(payloads.len());
        for payload in payloads {
            let ReadPayload::Columns { header, chunks } = payload else {
                return Err(self.fault(&"it sent blocks where columns were asked for"));
            };
            raw.push(RawColumns { header, chunks });
        }
        let verify = move || {
            let pairs = reads.iter().zip(raw);
            pairs.map(|(read, raw)| PageColumns::verify(read, raw)).collect()
        };
        self.verified(verify).await
    }

    async fn read_payloads(
        self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> Result<Vec<Bytes>, StoreError> {
        let items = pages.iter().map(|page| ReadItem::Blocks(page.extent));
        let payloads = self.payloads(items.collect()).await?;
        let mut blocks = Vec::with_capacity(payloads.len());
        for payload in payloads {
            let ReadPayload::Blocks(block) = payload else {
                return Err(self.fault(&"it sent columns where blocks were asked for"));
            };
            blocks.push(block);
        }
        let verify = move || {
            let pairs = pages.iter().zip(blocks);
            pairs.map(|(page, block)| overflow_payload(&segment, page, &block)).collect()
        };
        self.verified(verify).await
    }
}

impl PageSource for PeerPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.clone().read_columns(reads).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.clone().read_payloads(segment, pages).boxed()
    }
}

/// What comes of `answer`, however long that takes while bytes are `received`; None: next to none were for `limit`.
async fn while_received<T>(
    answer: impl Future<Output = T>,
    received: impl Fn() -> u64,
    limit: Duration,
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut before = received();
    loop {
        if let Some(answer) = timeout(limit, answer.as_mut()).await {
            return Some(answer);
        }
        let now = received();
        if now.saturating_sub(before) < PROGRESS_BYTES {
            return None;
        }
        before = now;
    }
}

/// `items` as commands of up to [`READ_BYTES`] each, in their order.
fn commands_of(items: Vec<ReadItem>) -> Vec<Vec<ReadItem>> {
    let mut commands: Vec<Vec<ReadItem>> = Vec::new();
    let mut bytes: u64 = 0;
    for item in items {
        let size = item.byte_count();
        bytes = bytes.saturating_add(size);
        match commands.last_mut().filter(|_| bytes <= READ_BYTES) {
            Some(command) => command.push(item),
            None => {
                commands.push(vec![item]);
                bytes = size;
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests;
