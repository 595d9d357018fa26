//! The ring, step by step and without threads.

use arrow::array::{Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::reservations::Reservations;

fn batch() -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int32, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int32Array::from(vec![1, 2]))]).unwrap()
}

fn run(slot_count: u32) -> (FragmentRun, UnboundedReceiver<RunEvent>) {
    run_to(Outputs::One, slot_count)
}

/// A run for these outputs, and what its host hears.
fn run_to(outputs: Outputs, slot_count: u32) -> (FragmentRun, UnboundedReceiver<RunEvent>) {
    let request = Execute { outputs, ..request(slot_count) };
    let (sink, events) = SlotSender::channel(SlotForm::Batches);
    let space = RunSpace::new(&request, &Reservations::default(), sink.clone()).unwrap();
    (FragmentRun::new(&request, 77, sink, space), events)
}

fn request(slot_count: u32) -> Execute {
    Execute {
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
        trace: Default::default(),
    }
}

async fn offer(run: &FragmentRun) {
    run.offer(0, 2, 8, SlotPayload::Batch(batch())).await;
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
    run.consumed(0, 0);
    assert!(futures::poll!(&mut third).is_pending());
    run.consumed(0, 1);
    third.await;
    assert_eq!(run.status().state, RunState::Running);
    let status = run.status();
    assert_eq!((status.slots, status.consumed, status.memory_bytes), (3, 1, 77));
    // A host cannot have consumed slots that were not made.
    run.consumed(0, u64::MAX - 1);
    assert_eq!(run.status().consumed, 3);
    assert_eq!(received(&mut events), (vec![0, 1, 2], vec![]));
    assert!(run.output().stall > Duration::ZERO);
    assert_eq!((run.output().rows, run.output().slot_bytes), (6, 24));
}

#[tokio::test]
async fn slots_that_are_large_fill_the_ring_before_they_are_many() {
    let (run, _events) = run(4);
    let offer = |bytes: u64| run.offer(0, 2, bytes, SlotPayload::Batch(batch()));
    // Larger than the whole ring, which takes it nevertheless while it is empty.
    offer(100_000).await;
    let second = offer(8);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    run.consumed(0, 1);
    second.await;
    // A ring of 4 × 4096 bytes that has a byte left takes one more slot.
    offer(4 * 4096 - 9).await;
    offer(4096).await;
    let full = offer(8);
    tokio::pin!(full);
    assert!(futures::poll!(&mut full).is_pending());
    run.consumed(0, 3);
    full.await;
    assert_eq!(run.status().slots, 5);
}

#[tokio::test]
async fn a_late_count_does_not_take_credit_back() {
    let (run, _events) = run(2);
    offer(&run).await;
    offer(&run).await;
    run.consumed(0, 2);
    run.consumed(0, 1);
    assert_eq!(run.status().consumed, 2);
}

#[tokio::test]
async fn who_attaches_gets_what_was_not_consumed_and_then_the_end() {
    let (run, mut first) = run(4);
    for _ in 0..3 {
        offer(&run).await;
    }
    run.consumed(0, 1);
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

/// What a listener of `output` hears that may have `slot_count` slots outstanding.
fn listen(
    run: &FragmentRun,
    output: u32,
    (first_slot, slot_count): (u64, u32),
) -> Result<UnboundedReceiver<RunEvent>, DeviceError> {
    let (sink, events) = SlotSender::channel(SlotForm::Encoded);
    let attach = Execute { output, first_slot, attaches: true, ..request(slot_count) };
    run.attach_output(&attach, &sink).map(|()| events)
}

#[tokio::test]
async fn outputs_divide_the_ring() {
    let (run, mut host) = run_to(Outputs::Copies(2), 4);
    run.accept(Ok(batch().schema()));
    assert_eq!(run.slot_bytes(), 4096);
    let offer = |output: usize| run.offer(output, 2, 8, SlotPayload::Batch(batch()));
    // Nobody has attached: each waits for credit of its own.
    for output in [0, 1, 0, 1] {
        offer(output).await;
    }
    let third = offer(1);
    tokio::pin!(third);
    assert!(futures::poll!(&mut third).is_pending());
    assert_eq!(run.status().state, RunState::Stalled);
    assert!(!run.is_detached());
    let mut second = listen(&run, 1, (0, 4)).unwrap();
    assert_eq!(received(&mut second).0, [0, 1]);
    run.consumed(0, 1);
    assert!(futures::poll!(&mut third).is_pending(), "credit of another output");
    run.consumed(1, 1);
    third.await;
    assert_eq!(received(&mut second).0, [2]);
    run.finish(Ok(RunReport { rows: 10, slots: 5, ..RunReport::default() }));
    assert_eq!(received(&mut second), (vec![], vec!["finished".to_owned()]));
    let mut first = listen(&run, 0, (1, 4)).unwrap();
    assert_eq!(received(&mut first), (vec![1], vec!["finished".to_owned()]));
    assert_eq!(received(&mut host), (vec![], vec!["finished".to_owned()]));
    drop(host);
    assert!(run.is_detached(), "its host is gone, whoever else listens");
    // Many outputs have a slot each, which is smaller.
    assert_eq!(run_to(Outputs::Copies(8), 4).0.slot_bytes(), 2048);
    assert_eq!(run_to(Outputs::Copies(64), 1).0.slot_bytes(), 1024);
}

#[tokio::test]
async fn a_listener_gets_no_more_at_once_than_it_allows() {
    let (run, _host) = run_to(Outputs::Copies(1), 4);
    for _ in 0..4 {
        run.offer(0, 2, 8, SlotPayload::Batch(batch())).await;
    }
    run.finish(Ok(RunReport::default()));
    let mut listener = listen(&run, 0, (0, 2)).unwrap();
    assert_eq!(received(&mut listener), (vec![0, 1], vec![]));
    run.consumed(0, 1);
    assert_eq!(received(&mut listener), (vec![2], vec![]));
    // A new one goes on in its midst.
    let mut again = listen(&run, 0, (2, 1)).unwrap();
    let taken_over = "run 4 was taken over by a repeated execute".to_owned();
    assert_eq!(received(&mut listener), (vec![], vec![taken_over]));
    assert_eq!(received(&mut again), (vec![2], vec![]));
    run.consumed(0, 3);
    let RunEvent::Slot(last) = again.try_recv().unwrap() else { panic!("a slot is due") };
    assert_eq!(last.number, 3);
    let RunEvent::Finished(report) = again.try_recv().unwrap() else { panic!("the end is due") };
    assert_eq!((report.rows, report.slots, report.slot_bytes), (8, 4, 32));
    assert!(listen(&run, 0, (1, 1)).unwrap_err().message.contains("below 3 were consumed"));
    assert!(listen(&run, 1, (0, 1)).unwrap_err().message.contains("has no such output"));
    let (of_host, _events) = run_to(Outputs::One, 4);
    assert!(listen(&of_host, 0, (0, 4)).unwrap_err().message.contains("no outputs for other"));
}

#[tokio::test]
async fn an_output_that_nobody_wants_any_more_holds_up_nothing() {
    let (run, mut host) = run_to(Outputs::Copies(2), 2);
    let offer = |output: usize| run.offer(output, 2, 8, SlotPayload::Batch(batch()));
    offer(0).await;
    let second = offer(0);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    run.consumed(0, u64::MAX);
    second.await;
    offer(0).await;
    assert_eq!(run.status().consumed, 1);
    assert!(listen(&run, 0, (1, 2)).unwrap_err().message.contains("wanted no more"));
    let mut other = listen(&run, 1, (0, 2)).unwrap();
    offer(1).await;
    run.finish(Err(run.cancelled_error()));
    let cancelled = "run 4 was cancelled".to_owned();
    assert_eq!(received(&mut other), (vec![0], vec![cancelled.clone()]));
    assert_eq!(received(&mut host), (vec![], vec![cancelled]));
}
