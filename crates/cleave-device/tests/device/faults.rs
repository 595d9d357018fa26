//! Faults for the tests: media that stalls on request, a device that lies, and a wire that can be cut.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{
    Command, DeviceError, Execute, Identity, Payload, Reply, Request, RunReport, Slot, SlotPayload,
};
use cleave_fragment::link::{DeviceService, SlotForm, SlotSender};
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Media whose reads below an address wait while the gate is closed.
#[derive(Debug)]
pub(crate) struct GatedMedia {
    media: Arc<dyn Media>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug)]
struct Gate {
    closed_below: BlockAddress,
    readers: u32,
}

impl GatedMedia {
    pub(crate) fn new(media: Arc<dyn Media>) -> Self {
        let gate = Mutex::new(Gate { closed_below: BlockAddress(0), readers: 0 });
        Self { media, gate, changed: Condvar::new() }
    }

    pub(crate) fn close_below(&self, address: BlockAddress) {
        self.gate.lock().unwrap().closed_below = address;
    }

    pub(crate) fn open(&self) {
        self.close_below(BlockAddress(0));
        self.changed.notify_all();
    }

    /// Waits until a reader waits.
    pub(crate) async fn wait_for_readers(&self) {
        while self.gate.lock().unwrap().readers == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for GatedMedia {
    fn drop(&mut self) {
        self.open();
    }
}

impl Media for GatedMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        let mut gate = self.gate.lock().unwrap();
        while extent.start < gate.closed_below {
            gate.readers += 1;
            gate = self.changed.wait(gate).unwrap();
            gate.readers -= 1;
        }
        drop(gate);
        self.media.read(extent)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.media.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.media.sync()
    }

    fn block_count(&self) -> u64 {
        self.media.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.media.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.media.bytes_read()
    }

    fn bytes_written(&self) -> u64 {
        self.media.bytes_written()
    }
}

/// How a [`Liar`], a device with a correct identity, corrupts its result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lie {
    /// The second slot fails its checksum.
    SpoiltSlot,
    /// The second slot is missing.
    MissingSlot,
    /// Fewer slots than the report counts.
    MissingLastSlot,
    /// A slot that is no batch.
    NotABatch,
    /// A slot that claims more rows than it has.
    WrongRowCount,
    /// A report that counts more rows than the slots have.
    MissingRows,
    /// A slot whose rows are of another type.
    OtherColumns,
    /// A slot with an unexpected NULL, in a column that the device calls nullable.
    StrayNull,
    /// The same, in a column that the device calls not nullable.
    HiddenNull,
    /// A panic.
    Panic,
}

/// A device whose runs go wrong in one way.
#[derive(Debug)]
pub(crate) struct Liar(pub(crate) Lie);

#[async_trait]
impl DeviceService for Liar {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        if command.request == Request::Identify {
            return Ok(Reply::Identity(Identity {
                device: crate::bench::DEVICE_ID,
                build: cleave_fragment::build_id(),
                protocol_version: cleave_fragment::command::wire::PROTOCOL_VERSION,
                capabilities: Vec::new(),
                block_size: 4096,
                block_count: 0,
                cores: 1,
                fragment_memory_bytes: 0,
                slot_bytes_max: 0,
                transfer_bytes_max: 0,
                owner: None,
                node: String::new(),
            }));
        }
        assert!(!matches!(self.0, Lie::Panic), "this device panics");
        Ok(Reply::Done)
    }

    async fn execute(
        &self,
        _request: Execute,
        slots: SlotSender,
    ) -> Result<SchemaRef, DeviceError> {
        let batch = crate::bench::rows().slice(0, 10);
        let spoilt = spoilt(self.0, &batch);
        let encode = |batch| cleave_fragment::command::slot::encode_batch(batch).unwrap();
        let (encoded, encoded_spoilt) = (encode(&batch), encode(&spoilt));
        let in_memory = slots.form() == SlotForm::Batches;
        let slot = |number: u64| {
            let mut payload = Payload::new(encoded.clone().into());
            match self.0 {
                Lie::SpoiltSlot if number == 1 => payload.checksum ^= 1,
                Lie::NotABatch if number == 1 => payload = Payload::new(vec![1; 100].into()),
                _ if number == 1 => payload = Payload::new(encoded_spoilt.clone().into()),
                _ => {}
            }
            let is_longer = matches!(self.0, Lie::WrongRowCount) && number == 1;
            let as_it_is = in_memory && !matches!(self.0, Lie::SpoiltSlot | Lie::NotABatch);
            let rows = if number == 1 { &spoilt } else { &batch };
            let payload = match as_it_is {
                true => SlotPayload::Batch(rows.clone()),
                false => SlotPayload::Encoded(payload),
            };
            Slot { number, row_count: 10 + u64::from(is_longer), payload }
        };
        for number in 0..3 {
            if !(matches!(self.0, Lie::MissingSlot) && number == 1) {
                slots.send(RunEvent::Slot(slot(number)));
            }
        }
        let count = if matches!(self.0, Lie::MissingLastSlot) { 4 } else { 3 };
        let rows = if matches!(self.0, Lie::MissingRows) { 31 } else { 30 };
        let report = RunReport { slots: count, rows, ..RunReport::default() };
        slots.send(RunEvent::Finished(Box::new(report)));
        Ok(if matches!(self.0, Lie::HiddenNull) { batch.schema() } else { spoilt.schema() })
    }

    fn steer(&self, _command: Command) {}
}

/// The second slot of a device that lies about rows.
fn spoilt(lie: Lie, batch: &RecordBatch) -> RecordBatch {
    let column = |column: ArrayRef, is_nullable: bool| {
        let mut columns = batch.columns().to_vec();
        let mut fields: Vec<Field> =
            batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
        fields[0] = Field::new("id", column.data_type().clone(), is_nullable);
        columns[0] = column;
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    };
    match lie {
        Lie::OtherColumns => column(new_null_array(&DataType::Utf8, batch.num_rows()), true),
        Lie::StrayNull | Lie::HiddenNull => {
            let ids = (0..10).map(|id| (id != 3).then_some(id)).collect::<Int32Array>();
            column(Arc::new(ids), true)
        }
        _ => batch.clone(),
    }
}

/// Forwards bytes to a server, until it is cut.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    cut: watch::Sender<u64>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(crate::bench::any_port()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(0);
        let mut cuts = cut.subscribe();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (mut near, _) = accepted.unwrap();
                        let mut far = TcpStream::connect(server).await.unwrap();
                        connections.spawn(async move {
                            drop(copy_bidirectional(&mut near, &mut far).await);
                        });
                    }
                    _ = cuts.changed() => connections.shutdown().await,
                }
            }
        });
        Self { address, cut, _tasks: tasks }
    }

    /// Breaks all connections that there are.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}
