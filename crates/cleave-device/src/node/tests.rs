//! A node step by step: when a core is lent, and where its partition belongs.

use std::pin::Pin;
use std::task::Waker;

use cleave_media::Memory;
use cleave_store::{SegmentId, SegmentRef};

use super::*;

const OWNER: Ownership = Ownership { database: [7; 16], epoch: 1, incarnation: 5 };

fn morsel(number: u32) -> Morsel {
    let segment = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
    Morsel { number, segment, pages: Vec::new() }
}

/// Two engines with a core each, and a run of the first over `count` morsels that the second may help.
fn helped(count: u32) -> ([NodeEngine; 2], Arc<HelpedMorsels>) {
    let node = Node::new("n");
    let engines = [(); 2].map(|()| {
        let engine = NodeEngine::of(&node, 1);
        engine.begin(Handle::current());
        engine.serve(Some(OWNER));
        engine
    });
    let morsels = HelpedMorsels::new(&MorselList::new((0..count).map(morsel)));
    let helpers = engines[0].helpers(8);
    assert_eq!(helpers, [1]);
    morsels.borrow_from(&helpers, &engines[0], 1);
    (engines, morsels)
}

/// What the first poll of `partition`'s request for a morsel says: its number, or nothing yet.
fn poll(morsels: &HelpedMorsels, partition: usize) -> Poll<Option<u32>> {
    let mut next = morsels.next(LENT_PASS, partition);
    let polled = Pin::new(&mut next).poll(&mut Context::from_waker(Waker::noop()));
    polled.map(|morsel| morsel.map(|morsel| morsel.number))
}

#[tokio::test]
async fn a_partition_moves_to_an_idle_helper_and_back() {
    let ([own, helper], morsels) = helped(4);
    let own_work = own.work(1);
    assert_eq!(poll(&morsels, 0), Poll::Ready(Some(0)));
    let core = Arc::clone(morsels.core(1).unwrap());
    assert_eq!(poll(&morsels, 1), Poll::Pending, "it takes none at home");
    assert!(core.is_misplaced() && core.place().is_some());
    assert_eq!(poll(&morsels, 1), Poll::Ready(Some(1)));
    assert!(!core.is_misplaced());
    let mut busy = helper.work(1);
    assert_eq!(poll(&morsels, 1), Poll::Pending);
    assert!(core.is_misplaced() && core.place().is_none());
    // It waits, and is granted once the helper's work waits for its host.
    busy.rest();
    assert!(core.is_misplaced() && core.place().is_some());
    assert_eq!(poll(&morsels, 1), Poll::Ready(Some(2)));
    assert_eq!(poll(&morsels, 0), Poll::Ready(Some(3)));
    assert_eq!(poll(&morsels, 1), Poll::Ready(None));
    assert!(core.is_misplaced(), "its last rows go out at home");
    assert_eq!(morsels.lent_count(), 2);
    drop((own_work, busy));
}

#[tokio::test]
async fn what_the_host_took_back_is_lent_to_nobody() {
    let (_engines, morsels) = helped(6);
    assert_eq!(poll(&morsels, 0), Poll::Ready(Some(0)));
    morsels.morsels.keep(1);
    assert_eq!(poll(&morsels, 1), Poll::Ready(None));
    assert_eq!(poll(&morsels, 0), Poll::Ready(None));
    assert_eq!(morsels.lent_count(), 0);
}

#[tokio::test]
async fn an_engine_helps_its_own_database_while_it_is_there() {
    let ([own, helper], morsels) = helped(9);
    let core = Arc::clone(morsels.core(1).unwrap());
    assert!(poll(&morsels, 1).is_pending() && core.place().is_some());
    assert_eq!(poll(&morsels, 1), Poll::Ready(Some(0)));
    helper.serve(Some(Ownership { database: [8; 16], ..OWNER }));
    assert_eq!(own.helpers(8), [0_usize; 0]);
    assert!(poll(&morsels, 1).is_pending() && core.is_misplaced() && core.place().is_none());
    helper.serve(Some(OWNER));
    assert!(core.is_misplaced() && core.place().is_some());
    helper.leave();
    assert!(poll(&morsels, 1).is_pending() && core.is_misplaced() && core.place().is_none());
    assert!(!core.is_misplaced());
    assert_eq!(poll(&morsels, 0), Poll::Ready(Some(1)));
}

#[tokio::test]
async fn a_run_that_is_over_leaves_nothing() {
    let ([own, helper], morsels) = helped(9);
    assert!(poll(&morsels, 1).is_pending());
    let lent = PartitionWork::Lent(Arc::clone(morsels.core(1).unwrap()));
    assert_eq!(own.node.lock().engines.lent(helper.number()), 1);
    drop(lent);
    assert_eq!(own.node.lock().engines.lent(helper.number()), 0);
    drop(morsels);
    let state = own.node.lock();
    assert!(state.runs.is_empty() && state.waiting.is_empty());
}

#[tokio::test]
async fn a_sibling_is_read_while_the_same_incarnation_has_it() {
    let ([own, other], _morsels) = helped(1);
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    let found = |device: u8, owner| own.sibling([device; 16], owner);
    let why = |device: u8, owner| found(device, owner).unwrap_err().to_string();
    assert!(why(2, OWNER).contains("no other device of this node"));
    own.open([1; 16], &media);
    other.open([2; 16], &media);
    assert!(why(1, OWNER).contains("no other device of this node"), "it is its own");
    let sibling = found(2, OWNER).unwrap();
    assert!(sibling.media().is_ok() && sibling.device() == [2; 16]);
    let next = Ownership { epoch: 2, ..OWNER };
    other.serve(Some(next));
    assert!(sibling.media().unwrap_err().to_string().contains("does not have it"));
    assert!(why(2, OWNER).contains("does not have it") && found(2, next).is_ok());
    other.serve(None);
    assert!(found(2, next).is_err());
    other.serve(Some(OWNER));
    other.leave();
    let text = sibling.media().unwrap_err().to_string();
    assert!(
        text.starts_with("what is on device 0202") && text.contains("no other device"),
        "{text}"
    );
}
