//! What a run is given, and what it asks for, whatever is lost, late or repeated.

use std::sync::Arc;

use bytes::Bytes;
use cleave_fragment::command::{CommandHeader, Outputs};
use cleave_fragment::link::SlotForm;
use cleave_fragment::{IndexPages, build_id};
use cleave_store::{PageRef, SegmentId, SegmentRef};
use proptest::prelude::*;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;

type Events = UnboundedReceiver<RunEvent>;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

/// A request that reads blocks 910..912 and 912..920, and may write to `reserved`.
fn request(reserved: Vec<Extent>, extensible: bool) -> Execute {
    let segment = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
    let page = |page, extent| PageRef { page, extent, row_count: 1, checksum: 0 };
    let pages = vec![page(0, extent(912, 8)), page(1, extent(910, 2)), page(2, extent(912, 8))];
    Execute {
        header: CommandHeader { run: 5, ..CommandHeader::default() },
        build: build_id(),
        fragment: Bytes::new(),
        snapshot: 1,
        inputs: Vec::new(),
        index_filters: Vec::new(),
        indexes: vec![IndexInput { number: 0, runs: vec![IndexPages::whole(segment, pages)] }],
        broadcasts: Vec::new(),
        shipped: Vec::new(),
        reserved,
        extensible,
        history: cleave_fragment::filter_history::HistoryMode::Off,
        lends: false,
        homes: Vec::new(),
        peers: Vec::new(),
        peer_rows: Vec::new(),
        outputs: Outputs::One,
        output: 0,
        attaches: false,
        trace: Default::default(),
        locks: None,
        partitions: 1,
        memory_bytes: 0,
        slot_count: 1,
        slot_bytes: 4096,
        settings: Vec::new(),
        fed: Vec::new(),
        first_slot: 0,
    }
}

/// Blocks 0..1000 are reserved.
pub(crate) fn reservations() -> Reservations {
    let mut reservations = Reservations::default();
    reservations.add(extent(0, 1000));
    reservations
}

/// The space of a run, and what it says to its host.
pub(crate) fn space_of(reserved: &[Extent], extensible: bool) -> (Arc<RunSpace>, Events) {
    let (sink, events) = SlotSender::channel(SlotForm::Batches);
    let request = request(reserved.to_vec(), extensible);
    (Arc::new(RunSpace::new(&request, &reservations(), sink).unwrap()), events)
}

fn space(reserved: &[Extent]) -> (Arc<RunSpace>, Events) {
    space_of(reserved, true)
}

pub(crate) fn needs(events: &mut Events) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    while let Ok(event) = events.try_recv() {
        let RunEvent::Full(need) = event else { panic!("{event:?}") };
        found.push((need.extension, need.block_count));
    }
    found
}

#[test]
fn what_a_run_may_not_write_to_is_refused() {
    use DeviceErrorCause::{NotReserved, Refused};
    let (sink, _events) = SlotSender::channel(SlotForm::Batches);
    for (extents, cause, text) in [
        (vec![extent(990, 20)], NotReserved, "were not reserved"),
        (vec![extent(u64::MAX - 5, u32::MAX)], NotReserved, "named for a fragment"),
        (vec![extent(50, 0)], Refused, "is empty"),
        (vec![extent(50, 10), extent(40, 11)], Refused, "overlap"),
        (vec![extent(50, 10), extent(50, 10)], Refused, "overlap"),
        (vec![extent(30, 5), extent(919, 2)], Refused, "would read blocks 919..920"),
        (vec![extent(908, 3)], Refused, "would read blocks 910..911"),
        (vec![extent(500, 500)], Refused, "would read blocks 910..920"),
    ] {
        let begun = RunSpace::new(&request(extents.clone(), true), &reservations(), sink.clone());
        let error = begun.unwrap_err();
        assert!(error.cause == cause && error.message.contains(text), "{error:?}");
        // An extension is checked like the space at first, and against that; all of it is refused, or none.
        let (space, _events) = space(&[extent(60, 10)]);
        space.given.send_modify(|given| given.want(1, 1));
        let error = space.extend(1, &extents, &reservations()).unwrap_err();
        assert!(error.cause == cause && error.message.contains(text), "{error:?}");
        assert_eq!((space.block_count(), space.is_waited_for()), (10, true));
    }
    let (space, _events) = space(&[extent(60, 10)]);
    space.given.send_modify(|given| given.want(1, 1));
    let error = space.extend(1, &[extent(69, 2)], &reservations()).unwrap_err();
    assert!(error.message.contains("overlap"), "{error:?}");
    space.extend(1, &[extent(70, 2), extent(0, 10)], &reservations()).unwrap();
    assert_eq!(space.beyond(1), [extent(70, 2), extent(0, 10)]);
    assert_eq!(space.overlapping(&[extent(30, 9), extent(71, 40)]), Some(extent(70, 2)));
    assert_eq!(space.overlapping(&[extent(30, 9), extent(72, 40)]), None);
}

#[tokio::test]
async fn a_run_says_again_what_it_needs_and_takes_each_extension_once() {
    let (space, mut events) = space(&[extent(50, 4)]);
    let unasked = space.extend(1, &[extent(100, 4)], &reservations()).unwrap_err();
    assert!(unasked.message.contains("has not asked"), "{unasked:?}");
    let mut small = std::pin::pin!(space.more(1, 2));
    let mut large = std::pin::pin!(space.more(1, 9));
    let mut medium = std::pin::pin!(space.more(1, 5));
    assert!(futures::poll!(&mut small).is_pending());
    assert!(futures::poll!(&mut large).is_pending());
    assert!(futures::poll!(&mut medium).is_pending());
    assert_eq!(needs(&mut events), [(1, 2), (1, 9)], "the most of what is needed");
    let (sink, mut later) = SlotSender::channel(SlotForm::Batches);
    space.connect(sink);
    assert_eq!((needs(&mut events), needs(&mut later)), (vec![], vec![(1, 9)]));
    let early = space.extend(2, &[extent(100, 9)], &reservations()).unwrap_err();
    assert!(early.message.contains("has not asked"), "{early:?}");
    let none = space.extend(0, &[extent(100, 9)], &reservations()).unwrap_err();
    assert!(none.message.contains("has not asked"), "{none:?}");
    for _ in 0..3 {
        space.extend(1, &[extent(100, 9)], &reservations()).unwrap();
        assert_eq!(space.block_count(), 13);
    }
    let other = space.extend(1, &[extent(200, 9)], &reservations()).unwrap_err();
    assert!(other.message.contains("has come before"), "{other:?}");
    assert!(small.await && large.await && medium.await);
    // What was needed before is not needed any more.
    let (sink, mut later) = SlotSender::channel(SlotForm::Batches);
    space.connect(sink);
    assert_eq!(needs(&mut later), []);
    assert!(space.more(1, 9).await, "a partition that had not looked yet");
    let mut next = std::pin::pin!(space.more(2, 3));
    assert!(futures::poll!(&mut next).is_pending());
    assert_eq!(needs(&mut later), [(2, 3)]);
    // The late repetition of an extension answers nothing.
    space.extend(1, &[extent(100, 9)], &reservations()).unwrap();
    assert!(futures::poll!(&mut next).is_pending());
    space.extend(2, &[], &reservations()).unwrap();
    assert!(!next.await, "the host has no more");
    space.extend(2, &[], &reservations()).unwrap();
    assert!(space.extend(2, &[extent(300, 1)], &reservations()).is_err());
    assert!(!space.more(2, 1).await);
    assert!(space.extend(3, &[extent(300, 1)], &reservations()).is_err());
    assert_eq!((needs(&mut later), space.block_count()), (vec![], 13));
}

#[tokio::test]
async fn a_run_that_may_not_be_extended_asks_for_nothing() {
    let (space, mut events) = space_of(&[extent(50, 4)], false);
    assert!(!space.more(1, 1).await);
    assert_eq!(needs(&mut events), []);
    let error = space.extend(1, &[extent(100, 4)], &reservations()).unwrap_err();
    assert!(error.message.contains("has not asked"), "{error:?}");
}

proptest! {
    /// A host that answers any needs, late, twice and out of order, and now and then with what it must not.
    #[test]
    fn space_only_grows_by_the_extensions_in_their_order(
        steps in prop::collection::vec((0..4_u8, 0..6_u32, 1..5_u32), 0..60)
    ) {
        let (space, _events) = space(&[extent(50, 4)]);
        let mut wanted: Option<u32> = None;
        // By number from 1: extensions that a host has sent or may send.
        let extension = |number: u32| extent(100 + u64::from(number) * 10, 4);
        let mut count = 0_u32;
        for (step, number, blocks) in steps {
            match step {
                0 => {
                    space.given.send_modify(|given| given.want(1 + count as usize, blocks));
                    wanted = wanted.max(Some(blocks));
                }
                1 => {
                    let (sink, mut events) = SlotSender::channel(SlotForm::Batches);
                    space.connect(sink);
                    let expected = wanted.map(|blocks| (count + 1, blocks));
                    prop_assert_eq!(needs(&mut events), Vec::from_iter(expected));
                }
                2 => {
                    let taken = space.extend(number, &[extension(number)], &reservations());
                    let is_next = number == count + 1 && wanted.is_some();
                    let is_known = (1..=count).contains(&number);
                    prop_assert_eq!(taken.is_ok(), is_next || is_known);
                    if is_next {
                        (count, wanted) = (count + 1, None);
                    }
                }
                _ => {
                    let other = extension(number + 50);
                    let is_next = number == count + 1 && wanted.is_some();
                    if !is_next {
                        prop_assert!(space.extend(number, &[other], &reservations()).is_err());
                    }
                }
            }
            let expected = Vec::from_iter((1..=count).map(extension));
            prop_assert_eq!(space.beyond(1), expected);
        }
    }
}
