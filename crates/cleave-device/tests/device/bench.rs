//! The bench of the tests: a device over memory, a link to it, a table written through that link, and fragments that
//! scan it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{Array, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use cleave_device::{
    ListenOptions, Listener, LocalListener, LocalOptions, Runtime, RuntimeOptions,
};
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, DeviceStatus, Execute, Grant, LockSay,
    Outputs, Payload, PeerSecret, ReadItem, ReadPayload, Reply, Request, RunState, WriteItem,
};
use cleave_fragment::ending::end_in_background;
use cleave_fragment::link::{
    AbandonedRuns, ConnectedLink, DeviceIdentity, DeviceService, EmbeddedLink, Link, LinkError,
    RemoteAddress, RunStream, Token,
};
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{Morsel, MorselPage, TableScanExec, build_id, encode_fragment};
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent, Media, Memory};
use cleave_store::{
    Column, ColumnRef, ColumnType, PageClass, PageRef, Projection, SegmentId, SegmentRef,
    SegmentWriter, TableSchema,
};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column as ColumnExpr, Literal};
use datafusion_physical_plan::ExecutionPlan;

pub(crate) const DEVICE_ID: [u8; 16] = *b"device of a test";
pub(crate) const DATABASE: [u8; 16] = *b"a test's databas";
/// The incarnation of epoch 0; that of epoch n is larger by n.
pub(crate) const INCARNATION: u64 = 1000;
pub(crate) const TOKEN: &str = "a-token-that-only-tests-use";
pub(crate) const MEMORY_BYTES: u64 = 64 << 20;
/// Rows of the table that [`Bench::load`] writes, and of each of its pages.
pub(crate) const ROW_COUNT: i32 = 20_000;
pub(crate) const PAGE_ROW_COUNT: u32 = 1000;

/// A device and a link to it.
pub(crate) struct Bench {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) media: Arc<dyn Media>,
    pub(crate) epoch: u64,
    pub(crate) incarnation: u64,
    pub(crate) next: AtomicU64,
    pub(crate) _server: Option<Server>,
    pub(crate) _local: Option<LocalServer>,
}

pub(crate) fn options() -> RuntimeOptions {
    RuntimeOptions {
        cores: 2,
        fragment_memory_bytes: MEMORY_BYTES,
        admission_wait: Duration::ZERO,
        block_count_max: 1 << 20,
        ..RuntimeOptions::new(DEVICE_ID)
    }
}

impl Bench {
    pub(crate) async fn embedded(media: Arc<dyn Media>, options: RuntimeOptions) -> Self {
        let device = Runtime::new(Arc::clone(&media), options).unwrap();
        Self::of(EmbeddedLink::new(device, None), media, None).await
    }

    pub(crate) async fn remote(media: Arc<dyn Media>, options: RuntimeOptions) -> Self {
        let device = Runtime::new(Arc::clone(&media), options).unwrap();
        let credentials = Credentials::new();
        let server = Server::start(device, any_port(), Some(&credentials)).await;
        let link = credentials.connect(server.address).await.unwrap();
        Self::of(link, media, Some(server)).await
    }

    pub(crate) async fn local(media: Arc<dyn Media>, options: RuntimeOptions) -> Self {
        let device = Runtime::new(Arc::clone(&media), options).unwrap();
        let server = LocalServer::start(device).await;
        let link = server.connect().await.unwrap();
        Self { _local: Some(server), ..Self::of(link, media, None).await }
    }

    /// A bench that owns the device behind `link`.
    pub(crate) async fn of(
        link: Arc<dyn Link>,
        media: Arc<dyn Media>,
        server: Option<Server>,
    ) -> Self {
        let bench = Self { _server: server, ..Self::unclaimed(link, media) };
        bench.claim(0).await.unwrap();
        bench
    }

    /// A bench whose incarnation has not claimed the device.
    pub(crate) fn unclaimed(link: Arc<dyn Link>, media: Arc<dyn Media>) -> Self {
        let (epoch, incarnation) = (1, INCARNATION + 1);
        Self {
            link,
            media,
            epoch,
            incarnation,
            next: AtomicU64::new(1),
            _server: None,
            _local: None,
        }
    }

    /// A bench of a later epoch, which has not claimed the device.
    pub(crate) fn later(&self, epoch: u64) -> Self {
        self.copy(epoch, INCARNATION + epoch)
    }

    /// A bench of a copied folder of the database, which has not claimed the device.
    pub(crate) fn copy(&self, epoch: u64, incarnation: u64) -> Self {
        Self {
            epoch,
            incarnation,
            ..Self::unclaimed(Arc::clone(&self.link), Arc::clone(&self.media))
        }
    }

    /// Claims the device for the bench's epoch, as the successor of the incarnation `after`.
    pub(crate) async fn claim(&self, after: u64) -> Result<Reply, LinkError> {
        self.call(Request::Claim { after }).await
    }

    pub(crate) fn header(&self) -> CommandHeader {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        CommandHeader {
            database: DATABASE,
            epoch: self.epoch,
            incarnation: self.incarnation,
            run: 0,
            sequence,
            interaction: sequence,
        }
    }

    pub(crate) fn header_of_run(&self, run: u64) -> CommandHeader {
        CommandHeader { run, ..self.header() }
    }

    pub(crate) async fn call(&self, request: Request) -> Result<Reply, LinkError> {
        self.link.call(Command::new(self.header(), request)).await
    }

    pub(crate) async fn call_run(&self, run: u64, request: Request) -> Result<Reply, LinkError> {
        self.link.call(Command::new(self.header_of_run(run), request)).await
    }

    pub(crate) async fn reserve(&self, start: u64, block_count: u32) {
        let extents = vec![extent(start, block_count)];
        assert_eq!(self.call(Request::Reserve { extents }).await.unwrap(), Reply::Done);
    }

    pub(crate) async fn write(&self, start: u64, bytes: &[u8]) -> Result<Reply, LinkError> {
        self.call(Request::Write(vec![write_item(start, bytes)])).await
    }

    pub(crate) async fn read_blocks(&self, extent: Extent) -> Result<Vec<u8>, LinkError> {
        let reply = self.call(Request::Read(vec![ReadItem::Blocks(extent)])).await?;
        let Reply::Read(payloads) = reply else { panic!("{reply:?}") };
        let [ReadPayload::Blocks(blocks)] = payloads.as_slice() else { panic!("{payloads:?}") };
        Ok(blocks.to_vec())
    }

    pub(crate) async fn status(&self) -> DeviceStatus {
        let reply = self.call(Request::Status).await.unwrap();
        let Reply::Status(status) = reply else { panic!("{reply:?}") };
        status
    }

    /// Waits until `run` is in `state`.
    pub(crate) async fn reach(&self, run: u64, state: RunState) {
        loop {
            let status = self.status().await;
            if status.runs.iter().any(|found| found.run == run && found.state == state) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until no run is kept and all memory is free.
    pub(crate) async fn reach_idle(&self) {
        loop {
            let status = self.status().await;
            let free = status.fragment_memory_bytes_free == status.fragment_memory_bytes;
            if status.runs.is_empty() && free {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Writes the table through the link, from block 0 on; returns its morsels, a page each.
    pub(crate) async fn load(&self) -> Vec<Morsel> {
        let (bytes, morsels) = table_pages();
        let block_count = u32::try_from(bytes.len() / BLOCK_SIZE).unwrap();
        self.reserve(0, block_count).await;
        self.write(0, &bytes).await.unwrap();
        self.call(Request::Sync).await.unwrap();
        morsels
    }

    /// A run of `plan` over `morsels` with ample resources.
    pub(crate) fn request(
        &self,
        run: u64,
        plan: &Arc<dyn ExecutionPlan>,
        morsels: &[Morsel],
    ) -> Execute {
        Execute {
            header: self.header_of_run(run),
            build: build_id(),
            fragment: encode_fragment(plan).unwrap().into(),
            snapshot: 10,
            inputs: vec![(0, morsels.to_vec())],
            partitions: 2,
            memory_bytes: 4 << 20,
            slot_count: 4,
            slot_bytes: 16 << 10,
            settings: vec![("datafusion.execution.batch_size".into(), "500".into())],
            first_slot: 0,
            locks: None,
            index_filters: Vec::new(),
            broadcasts: Vec::new(),
            shipped: Vec::new(),
            fed: Vec::new(),
            indexes: Vec::new(),
            reserved: Vec::new(),
            extensible: false,
            history: cleave_fragment::filter_history::HistoryMode::Off,
            lends: false,
            homes: Vec::new(),
            peers: Vec::new(),
            peer_rows: Vec::new(),
            outputs: Outputs::One,
            output: 0,
            attaches: false,
            trace: Default::default(),
        }
    }

    pub(crate) async fn execute(&self, request: Execute) -> RunStream {
        self.link.execute(request).await.unwrap()
    }
}

/// A device of its own over each kind of link.
pub(crate) async fn benches() -> [Bench; 3] {
    [
        Bench::embedded(memory(), options()).await,
        Bench::local(memory(), options()).await,
        Bench::remote(memory(), options()).await,
    ]
}

/// The cause and the text of a device's error.
pub(crate) fn device_error<T: std::fmt::Debug>(
    result: Result<T, LinkError>,
) -> (DeviceErrorCause, String) {
    let error = result.unwrap_err();
    match error {
        LinkError::Device { source: DeviceError { cause, message }, .. } => (cause, message),
        other => panic!("not an answer of the device: {other}"),
    }
}

pub(crate) fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

pub(crate) fn write_item(start: u64, bytes: &[u8]) -> WriteItem {
    let payload = Payload::new(bytes.to_vec().into());
    WriteItem { start: BlockAddress(start), payload }
}

/// Every kind of command but identify, claim and execute.
pub(crate) fn every_request() -> Vec<Request> {
    vec![
        Request::Read(vec![ReadItem::Blocks(extent(0, 1))]),
        Request::Write(vec![write_item(0, &[9; BLOCK_SIZE])]),
        Request::Sync,
        Request::Reserve { extents: vec![extent(0, 64)] },
        Request::Fetch { consumed: 1, output: 0 },
        Request::Feed { input: 0, generation: 1, filter: Vec::new().into() },
        Request::Revoke { input: 0, keep: 1 },
        Request::Extend { number: 1, extents: vec![extent(0, 1)] },
        Request::Locks(LockSay::Released),
        Request::Grant(Grant {
            number: 1,
            secret: PeerSecret([7; 32]),
            extents: vec![extent(0, 1)],
            outputs: Vec::new(),
        }),
        Request::EndGrant { number: 1 },
        Request::Cancel,
        Request::Release,
        Request::Status,
        Request::Profile { again: true, sample: Vec::new(), scratch: Some(extent(0, 1)) },
        Request::GiveUp,
    ]
}

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A port of an address that no other test uses: nobody takes it while it is briefly free.
pub(crate) fn port_of_my_own(test: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 7, test], 0))
}

pub(crate) fn token() -> Token {
    Token::new(TOKEN, "a test").unwrap()
}

/// A self-signed certificate and its key.
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Credentials {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    pub(crate) fn identity(&self) -> Arc<DeviceIdentity> {
        let (certificate, key) = (self.certificate.as_bytes(), self.key.as_bytes());
        Arc::new(DeviceIdentity::from_pem(certificate, key).unwrap())
    }

    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
    ) -> Result<Arc<ConnectedLink>, LinkError> {
        self.reconnect(address, AbandonedRuns::default()).await
    }

    pub(crate) async fn reconnect(
        &self,
        address: SocketAddr,
        abandoned: AbandonedRuns,
    ) -> Result<Arc<ConnectedLink>, LinkError> {
        let pem = self.certificate.as_bytes();
        connect_remote(address, token(), Some(pem), None, abandoned).await
    }
}

/// A link over TCP that has connected.
pub(crate) async fn connect_remote(
    address: SocketAddr,
    token: Token,
    ca_pem: Option<&[u8]>,
    rate_cap: Option<u64>,
    abandoned: AbandonedRuns,
) -> Result<Arc<ConnectedLink>, LinkError> {
    let address = remote_address(address);
    ConnectedLink::remote(address, token, ca_pem, rate_cap, abandoned)?.connected().await
}

fn remote_address(address: SocketAddr) -> RemoteAddress {
    RemoteAddress { host: address.ip().to_string(), port: address.port() }
}

/// A listener that serves until dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    pub(crate) async fn start(
        device: Arc<dyn DeviceService>,
        address: SocketAddr,
        credentials: Option<&Credentials>,
    ) -> Self {
        let options = ListenOptions {
            address,
            identity: credentials.map(Credentials::identity),
            token: token(),
            rate_cap: None,
            log: Arc::new(|_| ()),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.spawn(Listener::bind(device, options)).await.unwrap().unwrap();
        let address = listener.local_address();
        runtime.spawn(listener.serve());
        Self { address, runtime: Some(runtime) }
    }

    /// Closes the listener and all connections before it returns.
    pub(crate) async fn stop(mut self) {
        let runtime = self.runtime.take().unwrap();
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10)))
            .await
            .unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            end_in_background(runtime);
        }
    }
}

/// A Unix socket in a folder of its own, served until dropped.
pub(crate) struct LocalServer {
    pub(crate) socket: PathBuf,
    runtime: Option<tokio::runtime::Runtime>,
    folder: Option<tempfile::TempDir>,
}

impl LocalServer {
    pub(crate) async fn start(device: Arc<dyn DeviceService>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self::start_at(device, folder.path().join("device.sock")).await;
        server.folder = Some(folder);
        server
    }

    pub(crate) async fn start_at(device: Arc<dyn DeviceService>, socket: PathBuf) -> Self {
        let options =
            LocalOptions { socket: socket.clone(), rate_cap: None, log: Arc::new(|_| ()) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.spawn(LocalListener::bind(device, options)).await.unwrap().unwrap();
        runtime.spawn(listener.serve());
        Self { socket, runtime: Some(runtime), folder: None }
    }

    pub(crate) async fn connect(&self) -> Result<Arc<ConnectedLink>, LinkError> {
        ConnectedLink::local(&self.socket, None, AbandonedRuns::default(), None)?.connected().await
    }

    /// Closes the listener and all connections before it returns; the folder stays as long as the returned value.
    pub(crate) async fn stop_listening(mut self) -> Option<tempfile::TempDir> {
        let runtime = self.runtime.take().unwrap();
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10)))
            .await
            .unwrap();
        self.folder.take()
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            end_in_background(runtime);
        }
    }
}

// ---- the table -----------------------------------------------------------------------------------

pub(crate) fn memory() -> Arc<dyn Media> {
    Arc::new(Memory::new())
}

pub(crate) fn table() -> TableSchema {
    let column = |id: u32, name: &str, column_type| Column {
        id,
        name: name.to_owned(),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    };
    TableSchema {
        table_id: 5,
        version: 1,
        name: "people".to_owned(),
        columns: vec![column(1, "id", ColumnType::Int), column(2, "name", ColumnType::Text)],
        primary_key: Vec::new(),
    }
}

pub(crate) fn segment() -> SegmentRef {
    SegmentRef { table_id: 5, segment: SegmentId(1), schema_version: 1, commit: 3 }
}

/// The rows: id from 0, name "name <id>".
pub(crate) fn rows() -> RecordBatch {
    let ids = Int32Array::from_iter_values(0..ROW_COUNT);
    let names = StringArray::from_iter_values((0..ROW_COUNT).map(|id| format!("name {id}")));
    RecordBatch::try_new(table().arrow(), vec![Arc::new(ids), Arc::new(names)]).unwrap()
}

/// The table as bytes for block 0, and its morsels.
pub(crate) fn table_pages() -> (Vec<u8>, Vec<Morsel>) {
    table_pages_of(segment())
}

/// The same, as pages of `segment`.
pub(crate) fn table_pages_of(segment: SegmentRef) -> (Vec<u8>, Vec<Morsel>) {
    let class =
        PageClass { page_bytes: 64 << 10, chunk_alignment: 4096, row_count_max: PAGE_ROW_COUNT };
    let mut writer = SegmentWriter::new(segment, &table(), class, 0, 1).unwrap();
    let mut pages = writer.push(&rows()).unwrap();
    pages.extend(writer.finish().unwrap());
    let mut bytes = Vec::new();
    let mut morsels = Vec::new();
    for page in pages {
        let start = (bytes.len() / BLOCK_SIZE) as u64;
        let place = PageRef {
            page: page.page,
            extent: extent(start, page.block_count()),
            row_count: page.row_count,
            checksum: page.checksum,
        };
        bytes.extend_from_slice(&page.bytes);
        morsels.push(Morsel {
            number: u32::try_from(morsels.len()).unwrap(),
            segment,
            pages: vec![MorselPage {
                page: place,
                vid_first: page.vid_first,
                gaps: Default::default(),
                overflow: Vec::new(),
                dead: Default::default(),
            }],
        });
    }
    assert_eq!(morsels.len(), usize::try_from(ROW_COUNT).unwrap() / PAGE_ROW_COUNT as usize);
    (bytes, morsels)
}

/// All columns of all rows, or of those with an id below `below`.
pub(crate) fn scan(below: Option<i32>) -> Arc<dyn ExecutionPlan> {
    scan_with(below, 1, 0)
}

pub(crate) fn scan_with(
    below: Option<i32>,
    partitions: usize,
    input: u32,
) -> Arc<dyn ExecutionPlan> {
    let fields =
        vec![Field::new("id", DataType::Int32, true), Field::new("name", DataType::Utf8, true)];
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let filter = SchemaRef::new(Schema::new(vec![Field::new("id", DataType::Int32, true)]));
    let predicate = below.map(|below| {
        let id = Arc::new(ColumnExpr::new("id", 0));
        let bound = Arc::new(Literal::new(below.into()));
        Arc::new(BinaryExpr::new(id, Operator::Lt, bound)) as Arc<dyn PhysicalExpr>
    });
    let scan = TableScan {
        table: "people".to_owned(),
        table_id: 5,
        output: Projection::new(schema, vec![ColumnRef::User(1), ColumnRef::User(2)]),
        filter: Projection::new(filter, vec![ColumnRef::User(1)]),
        predicate,
        input,
        fetch: None,
        references: References::None,
    };
    Arc::new(TableScanExec::new(scan, partitions))
}

/// The ids in `batch`, each of which must have its name beside it.
pub(crate) fn ids(batch: &RecordBatch) -> Vec<i32> {
    let ids = batch.column(0).as_primitive::<Int32Type>();
    let names = batch.column(1).as_string::<i32>();
    (0..batch.num_rows())
        .map(|row| {
            assert!(!ids.is_null(row));
            assert_eq!(names.value(row), format!("name {}", ids.value(row)));
            ids.value(row)
        })
        .collect()
}

/// All remaining ids of `stream`, sorted.
pub(crate) async fn drain(stream: &mut RunStream) -> Result<Vec<i32>, LinkError> {
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await? {
        found.extend(ids(&batch));
    }
    found.sort_unstable();
    Ok(found)
}
