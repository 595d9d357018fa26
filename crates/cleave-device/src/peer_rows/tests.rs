//! What a run takes of others comes complete, in spite of lost connections, or with an error that says whose fault it
//! is.

use std::collections::VecDeque;

use arrow::array::{AsArray, Int32Array};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use async_trait::async_trait;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::slot::encode_batch;
use cleave_fragment::command::{
    Payload, PeerRows, PeerStream, Reply, RunReport, Slot, SlotPayload,
};
use cleave_fragment::link::{DeviceService, EmbeddedLink, SlotSender};
use futures::stream::FuturesUnordered;

use super::*;
use crate::memory_budget::MemoryBudget;

const PRODUCER: [u8; 16] = [7; 16];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, false)]))
}

fn batch(ids: &[i32]) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(Int32Array::from(ids.to_vec()))]).unwrap()
}

fn slot(number: u64, ids: &[i32]) -> RunEvent {
    let payload = SlotPayload::Encoded(Payload::new(encode_batch(&batch(ids)).unwrap().into()));
    RunEvent::Slot(Slot { number, row_count: ids.len() as u64, payload })
}

fn end(slots: u64, rows: u64) -> RunEvent {
    RunEvent::Finished(Box::new(RunReport { slots, rows, ..RunReport::default() }))
}

/// A device that answers each attempt to attach as its script says, and then loses the connection.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<VecDeque<Vec<RunEvent>>>,
    first_slots: Mutex<Vec<u64>>,
    closed: Mutex<Vec<u32>>,
    /// Connections that are not lost.
    kept: Mutex<Option<Vec<SlotSender>>>,
}

#[async_trait]
impl DeviceService for Scripted {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        if let Request::Fetch { consumed: u64::MAX, output } = command.request {
            self.closed.lock().unwrap().push(output);
        }
        Ok(Reply::Done)
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        assert!(request.attaches);
        self.first_slots.lock().unwrap().push(request.first_slot);
        let events = self.answers.lock().unwrap().pop_front();
        let gone = || DeviceError::new(DeviceErrorCause::UnknownRun, "there is no such run");
        for event in events.ok_or_else(gone)? {
            slots.send(event);
        }
        if let Some(kept) = &mut *self.kept.lock().unwrap() {
            kept.push(slots);
        }
        Ok(schema())
    }

    fn steer(&self, _command: Command) {}
}

fn device(answers: Vec<Vec<RunEvent>>) -> Arc<Scripted> {
    Arc::new(Scripted { answers: Mutex::new(answers.into()), ..Scripted::default() })
}

/// What a run takes as input 3 from `outputs` of run 5 on `device`.
fn sources(device: &Arc<Scripted>, outputs: &[u32]) -> PeerSources {
    let header = CommandHeader { run: 9, ..CommandHeader::default() };
    let streams =
        outputs.iter().map(|output| PeerStream { device: PRODUCER, run: 5, output: *output });
    let peer_rows = vec![PeerRows { input: 3, streams: streams.collect() }];
    let request = Execute { peer_rows, ..Execute::attaching(header, 0, (4, 4096)) };
    let memory = Arc::new(MemoryBudget::new(1 << 20)) as Arc<dyn MemoryPool>;
    let link_to = |id| {
        assert_eq!(id, PRODUCER);
        let service = Arc::clone(device) as Arc<dyn DeviceService>;
        Ok(EmbeddedLink::new(service, None) as Arc<dyn Link>)
    };
    PeerSources::new(&request, [1; 16], &memory, link_to).unwrap()
}

async fn take(sources: &PeerSources) -> Result<Vec<i32>, DeviceError> {
    let inputs = sources.inputs();
    let source = inputs.get(&3).unwrap();
    let mut found = Vec::new();
    while let Some(batch) = source.next(&schema()).await.map_err(of_engine)? {
        found.extend(batch.column(0).as_primitive::<Int32Type>().values().to_vec());
    }
    assert!(source.next(&schema()).await.unwrap().is_none());
    found.sort_unstable();
    Ok(found)
}

#[tokio::test]
async fn a_lost_connection_goes_on_with_the_slot_that_comes_next() {
    let answers = vec![
        vec![slot(0, &[1, 2])],
        vec![],
        vec![slot(1, &[3]), slot(2, &[4])],
        vec![slot(3, &[5]), end(4, 5)],
    ];
    let device = device(answers);
    let sources = sources(&device, &[0]);
    assert_eq!(take(&sources).await.unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(*device.first_slots.lock().unwrap(), [0, 1, 1, 3]);
    sources.end().await;
    assert!(device.closed.lock().unwrap().is_empty(), "all was taken");
}

#[tokio::test]
async fn one_that_stays_lost_or_lies_fails_the_run_with_its_name() {
    let failed = || RunEvent::Failed(DeviceError::new(DeviceErrorCause::Cancelled, "released"));
    let lies = [
        vec![],
        vec![vec![slot(0, &[1]), failed()]],
        vec![vec![slot(1, &[1]), end(2, 1)]],
        vec![vec![slot(0, &[1]), end(2, 1)]],
        vec![vec![slot(0, &[1]), end(1, 7)]],
        vec![vec![RunEvent::Slot(Slot {
            number: 0,
            row_count: 1,
            payload: SlotPayload::Encoded(Payload::new(vec![0_u8; 100].into())),
        })]],
        vec![vec![RunEvent::Slot(Slot {
            number: 0,
            row_count: 2,
            payload: SlotPayload::Batch(batch(&[1])),
        })]],
    ];
    for answers in lies {
        let device = device(answers);
        let sources = sources(&device, &[1]);
        let error = take(&sources).await.unwrap_err();
        assert_eq!(error.cause, DeviceErrorCause::Peer, "{error}");
        assert_eq!(take(&sources).await.unwrap_err(), error, "the other partitions get it too");
        assert!(error.message.contains("device, 07070707"), "{error}");
        assert!(error.message.contains("rows of its run 5"), "{error}");
        sources.end().await;
        assert_eq!(*device.closed.lock().unwrap(), [1]);
    }
}

#[tokio::test]
async fn the_fault_of_a_statement_stays_its_own() {
    let zero = DeviceError::new(DeviceErrorCause::DivideByZero, "Divide by zero error");
    let device = device(vec![vec![slot(0, &[1]), RunEvent::Failed(zero.clone())]]);
    assert_eq!(take(&sources(&device, &[0])).await.unwrap_err(), zero);
}

#[tokio::test]
async fn what_was_never_asked_for_is_closed() {
    let device = device(Vec::new());
    let sources = sources(&device, &[0, 2]);
    sources.end().await;
    assert!(device.first_slots.lock().unwrap().is_empty());
    assert_eq!(*device.closed.lock().unwrap(), [0, 2]);
    assert_eq!(take(&sources).await.unwrap(), Vec::<i32>::new(), "it has ended");
}

#[tokio::test]
async fn all_that_wait_are_woken() {
    let device = device(vec![vec![]]);
    *device.kept.lock().unwrap() = Some(Vec::new());
    let sources = sources(&device, &[0]);
    let inputs = sources.inputs();
    let (source, schema) = (inputs.get(&3).unwrap(), schema());
    let mut waiting: FuturesUnordered<_> = (0..3).map(|_| source.next(&schema)).collect();
    assert!(futures::poll!(waiting.next()).is_pending());
    // The last that has asked wants no more.
    let mut last = source.next(&schema);
    assert!(futures::poll!(&mut last).is_pending());
    drop(last);
    let sender = device.kept.lock().unwrap().take().unwrap().remove(0);
    for event in [slot(0, &[1]), slot(1, &[2]), end(2, 2)] {
        sender.send(event);
    }
    let mut found = Vec::new();
    while let Some(next) = waiting.next().await {
        found.push(next.unwrap().map(|batch| batch.num_rows()));
    }
    found.sort_unstable();
    assert_eq!(found, [None, Some(1), Some(1)]);
}
