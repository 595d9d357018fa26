//! The ring, step by step and without threads.

use arrow::array::{Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_fragment::command::Outputs;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::reservations::Reservations;

fn batch() -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int32, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int32Array::from(vec![1, 2]))]).unwrap()
}

fn run(slot_count: u32) -> (FragmentRun, UnboundedReceiver<RunEvent>) {
    let request = Execute {
        header: CommandHeader { run: 4, ..CommandHeader::default() },
        build: String::new(),
        fragment: Vec::new().into(),
        snapshot: 0,
        inputs: Vec::new(),
        partitions: 1,
        memory_bytes: 0,
        slot_count,
        slot_bytes: 4096,
        settings: Vec::new(),
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
    };
    let (sink, events) = SlotSender::channel(SlotForm::Batches);
    let space = RunSpace::new(&request, &Reservations::default(), sink.clone()).unwrap();
    (FragmentRun::new(&request, 77, sink, space), events)
}

async fn offer(run: &FragmentRun) {
    run.offer(2, 8, SlotPayload::Batch(batch())).await;
}

/// Numbers of the received slots, and the other events.
fn received(events: &mut UnboundedReceiver<RunEvent>) -> (Vec<u64>, Vec<String>) {
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    while let Ok(event) = events.try_recv() {
        match event {
            RunEvent::Slot(slot) => numbers.push(slot.number),
            RunEvent::Finished(_) => others.push("finished".to_owned()),
            RunEvent::Failed(error) => others.push(error.message),
            RunEvent::Locks(call) => others.push(format!("{call:?}")),
            RunEvent::Full(need) => others.push(format!("{need:?}")),
            RunEvent::Lost(error) => others.push(error.to_string()),
        }
    }
    (numbers, others)
}

#[tokio::test]
async fn never_more_slots_are_outstanding_than_there_are_credits() {
    let (run, mut events) = run(2);
    run.accept(Ok(batch().schema()));
    offer(&run).await;
    offer(&run).await;
    assert_eq!(run.status().state, RunState::Running);
    let third = offer(&run);
    tokio::pin!(third);
    assert!(futures::poll!(&mut third).is_pending());
    assert_eq!(run.status().state, RunState::Stalled);
    // A smaller count is ignored.
    run.consumed(0);
    assert!(futures::poll!(&mut third).is_pending());
    run.consumed(1);
    third.await;
    assert_eq!(run.status().state, RunState::Running);
    let status = run.status();
    assert_eq!((status.slots, status.consumed, status.memory_bytes), (3, 1, 77));
    // A host cannot have consumed slots that were not made.
    run.consumed(u64::MAX);
    assert_eq!(run.status().consumed, 3);
    assert_eq!(received(&mut events), (vec![0, 1, 2], vec![]));
    assert!(run.output().stall > Duration::ZERO);
    assert_eq!((run.output().rows, run.output().slot_bytes), (6, 24));
}

#[tokio::test]
async fn slots_that_are_large_fill_the_ring_before_they_are_many() {
    let (run, _events) = run(4);
    let offer = |bytes: u64| run.offer(2, bytes, SlotPayload::Batch(batch()));
    // Larger than the whole ring, which takes it nevertheless while it is empty.
    offer(100_000).await;
    let second = offer(8);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    run.consumed(1);
    second.await;
    // A ring of 4 × 4096 bytes that has a byte left takes one more slot.
    offer(4 * 4096 - 9).await;
    offer(4096).await;
    let full = offer(8);
    tokio::pin!(full);
    assert!(futures::poll!(&mut full).is_pending());
    run.consumed(3);
    full.await;
    assert_eq!(run.status().slots, 5);
}

#[tokio::test]
async fn a_late_count_does_not_take_credit_back() {
    let (run, _events) = run(2);
    offer(&run).await;
    offer(&run).await;
    run.consumed(2);
    run.consumed(1);
    assert_eq!(run.status().consumed, 2);
}

#[tokio::test]
async fn who_attaches_gets_what_was_not_consumed_and_then_the_end() {
    let (run, mut first) = run(4);
    for _ in 0..3 {
        offer(&run).await;
    }
    run.consumed(1);
    let attach = |first_slot: u64| {
        let (sink, events) = SlotSender::channel(SlotForm::Batches);
        run.attach(sink, first_slot).map(|()| events)
    };
    assert!(attach(0).unwrap_err().message.contains("below 1 were consumed"));
    assert!(attach(4).unwrap_err().message.contains("has not made slot 4"));
    let mut second = attach(2).unwrap();
    let taken_over = "run 4 was taken over by a repeated execute".to_owned();
    assert_eq!(received(&mut first), (vec![0, 1, 2], vec![taken_over]));
    assert_eq!(run.status().consumed, 2, "naming a slot is saying that those before came");
    offer(&run).await;
    run.finish(Ok(RunReport::default()));
    assert_eq!(received(&mut second), (vec![2, 3], vec!["finished".to_owned()]));
    let mut third = attach(3).unwrap();
    assert_eq!(received(&mut third), (vec![3], vec!["finished".to_owned()]));
    let (encoded, _events) = SlotSender::channel(SlotForm::Encoded);
    assert!(run.attach(encoded, 3).unwrap_err().message.contains("another kind"));
    assert!(!run.is_detached());
    drop(third);
    assert!(run.is_detached());
}

#[tokio::test]
async fn cancelling_is_heard_before_and_after_it_is_listened_for() {
    let (run, _events) = run(1);
    assert_eq!(run.status().state, RunState::Queued);
    let cancellation = run.cancellation();
    tokio::pin!(cancellation);
    assert!(futures::poll!(&mut cancellation).is_pending());
    run.cancel();
    cancellation.await;
    run.cancellation().await;
    assert_eq!(run.status().state, RunState::Cancelled);
    let still = run.stand_still();
    tokio::pin!(still);
    assert!(futures::poll!(&mut still).is_pending());
    run.finish(Err(run.cancelled_error()));
    still.await;
}

#[tokio::test]
async fn a_refused_run_stands_still() {
    let (run, _events) = run(1);
    run.accept(Err(DeviceError::new(DeviceErrorCause::OutOfMemory, "no")));
    run.stand_still().await;
    assert_eq!(run.accepted().await.unwrap_err().cause, DeviceErrorCause::OutOfMemory);
}
