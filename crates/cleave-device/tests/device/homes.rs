//! Fragments over pages that lie on other devices of the node: the same rows, read where they lie, and only what came
//! with the fragment.

use std::sync::Arc;

use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::Morsel;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, Execute, PageHome, Reply, Request, RunState,
};
use cleave_fragment::link::EmbeddedLink;
use cleave_media::BLOCK_SIZE;
use cleave_store::{SegmentId, SegmentRef};
use datafusion_physical_plan::ExecutionPlan;

use crate::bench::{
    Bench, INCARNATION, ROW_COUNT, device_error, drain, memory, options, scan, segment,
    table_pages_of,
};
use crate::spilling::join;

const HOME: [u8; 16] = [1; 16];
const COMPUTER: [u8; 16] = [2; 16];

/// An engine of `node`, which the database of the tests has not claimed.
fn unclaimed(node: &Arc<Node>, device_id: [u8; 16]) -> Bench {
    let media = memory();
    let options = RuntimeOptions { device_id, ..options() };
    let device = Runtime::in_node(Arc::clone(&media), options, node).unwrap();
    Bench::unclaimed(EmbeddedLink::new(device, None), media)
}

/// A device with the table, and another one of its node, whose media are empty.
async fn home_and_computer() -> (Bench, Bench, Vec<Morsel>) {
    let node = Node::new("n1");
    let (home, computer) = (unclaimed(&node, HOME), unclaimed(&node, COMPUTER));
    home.claim(0).await.unwrap();
    computer.claim(0).await.unwrap();
    let morsels = home.load().await;
    (home, computer, morsels)
}

fn at(device: [u8; 16], segments: &[u32]) -> PageHome {
    PageHome { device, segments: segments.iter().map(|segment| SegmentId(*segment)).collect() }
}

/// A run over `morsels`, whose pages lie at home.
fn request(bench: &Bench, run: u64, plan: &Arc<dyn ExecutionPlan>, morsels: &[Morsel]) -> Execute {
    Execute { homes: vec![at(HOME, &[1])], ..bench.request(run, plan, morsels) }
}

/// Why the device does not begin `request`.
async fn refusal(bench: &Bench, request: Execute) -> (DeviceErrorCause, String) {
    device_error(bench.link.execute(request).await.map(drop))
}

fn all_ids() -> Vec<i32> {
    (0..ROW_COUNT).collect()
}

#[tokio::test]
async fn pages_of_a_sibling_give_the_same_rows() {
    let (home, computer, morsels) = home_and_computer().await;
    let below = (0..7777).collect::<Vec<i32>>();
    let plans = [(scan(None), all_ids()), (scan(Some(7777)), below), (join(), all_ids())];
    for (run, (plan, expected)) in (1..).zip(plans) {
        let inputs = vec![(0, morsels.clone()), (1, morsels.clone())];
        let request = request(&computer, run, &plan, &morsels);
        let request = Execute { inputs, memory_bytes: 16 << 20, ..request };
        let mut stream = computer.execute(request).await;
        assert_eq!(drain(&mut stream).await.unwrap(), expected);
        let report = stream.report().unwrap();
        assert!(report.foreign_bytes > 0 && report.pages_read > 0, "{report:?}");
        assert_eq!(report.media_bytes, report.foreign_bytes);
    }
    assert_eq!(computer.media.bytes_read(), 0);
    assert!(home.status().await.runs.is_empty());
    computer.reach_idle().await;
}

#[tokio::test]
async fn a_fragment_reads_its_own_media_and_others() {
    let (_home, computer, mut morsels) = home_and_computer().await;
    let (bytes, own) = table_pages_of(SegmentRef { segment: SegmentId(2), ..segment() });
    computer.reserve(0, u32::try_from(bytes.len() / BLOCK_SIZE).unwrap()).await;
    computer.write(0, &bytes).await.unwrap();
    morsels.extend(own);
    for (number, morsel) in (0..).zip(&mut morsels) {
        morsel.number = number;
    }
    let mut stream = computer.execute(request(&computer, 1, &scan(None), &morsels)).await;
    let twice: Vec<i32> = (0..ROW_COUNT).flat_map(|id| [id, id]).collect();
    assert_eq!(drain(&mut stream).await.unwrap(), twice);
    let report = stream.report().unwrap();
    assert!((1..report.media_bytes).contains(&report.foreign_bytes), "{report:?}");
}

#[tokio::test]
async fn a_home_that_cannot_be_reached_is_a_refusal() {
    let (home, computer, morsels) = home_and_computer().await;
    let asked = |homes| Execute { homes, ..computer.request(1, &scan(None), &morsels) };
    for device in [[9; 16], COMPUTER] {
        let (cause, text) = refusal(&computer, asked(vec![at(device, &[1])])).await;
        assert_eq!(cause, DeviceErrorCause::Unsupported);
        assert!(text.contains("it is no other device of this node"), "{text}");
    }
    let alone = unclaimed(&Node::new("n1"), COMPUTER);
    alone.claim(0).await.unwrap();
    let (cause, _) = refusal(&alone, request(&alone, 1, &scan(None), &morsels)).await;
    assert_eq!(cause, DeviceErrorCause::Unsupported, "a node of the same name is not the same");
    for (homes, why) in [
        (vec![at(HOME, &[1]), at(HOME, &[])], "is named twice"),
        (vec![at(HOME, &[1, 1])], "lies in two places"),
        (vec![at(HOME, &[1, 7])], "no page of it is read"),
    ] {
        let (cause, text) = refusal(&computer, asked(homes)).await;
        assert_eq!(cause, DeviceErrorCause::Refused);
        assert!(text.contains(why), "{text}");
    }
    // As well of an incarnation that does not have both.
    home.later(2).claim(INCARNATION + 1).await.unwrap();
    let (cause, text) = refusal(&computer, asked(vec![at(HOME, &[1])])).await;
    assert_eq!(cause, DeviceErrorCause::Unsupported);
    assert!(text.contains("does not have it"), "{text}");
    computer.reach_idle().await;
}

#[tokio::test]
async fn a_sibling_of_another_database_is_not_read() {
    let node = Node::new("n1");
    let (home, computer) = (unclaimed(&node, HOME), unclaimed(&node, COMPUTER));
    home.claim(0).await.unwrap();
    computer.claim(0).await.unwrap();
    let morsels = home.load().await;
    assert_eq!(home.call(Request::GiveUp).await.unwrap(), Reply::Done);
    let cause = refusal(&computer, request(&computer, 1, &scan(None), &morsels)).await.0;
    assert_eq!(cause, DeviceErrorCause::Unsupported, "nobody's");
    let other = CommandHeader { database: [9; 16], ..home.header() };
    let claim = Command::new(other, Request::Claim { after: 0 });
    assert_eq!(home.link.call(claim).await.unwrap(), Reply::Done);
    let cause = refusal(&computer, request(&computer, 2, &scan(None), &morsels)).await.0;
    assert_eq!(cause, DeviceErrorCause::Unsupported);
}

#[tokio::test]
async fn a_claim_of_the_home_ends_what_reads_there() {
    let (home, computer, morsels) = home_and_computer().await;
    let request = request(&computer, 1, &scan(None), &morsels);
    let request = Execute { slot_count: 1, partitions: 1, ..request };
    let mut stream = computer.execute(request).await;
    computer.reach(1, RunState::Stalled).await;
    home.later(2).claim(INCARNATION + 1).await.unwrap();
    assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::Unsupported);
    drop(stream);
    computer.reach_idle().await;
}

#[tokio::test]
async fn a_damaged_page_of_a_sibling_is_found() {
    let (home, computer, morsels) = home_and_computer().await;
    home.media.write(morsels[3].pages[0].page.extent.start, &[9; BLOCK_SIZE]).unwrap();
    let mut stream = computer.execute(request(&computer, 1, &scan(None), &morsels)).await;
    assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::Corrupt);
}
