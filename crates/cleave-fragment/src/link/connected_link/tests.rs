//! Requests that are refused before they cross. The rest is tested where there are devices.

use super::*;

#[test]
fn a_transfer_that_is_too_large_is_stopped_before_it_crosses() {
    use cleave_media::{BlockAddress, Extent};
    let extent = Extent { start: BlockAddress(0), block_count: u32::MAX };
    let error = check_transfer(&Request::Read(vec![ReadItem::Blocks(extent); 3])).unwrap_err();
    assert!(matches!(error, LinkError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("33554432"), "{error}");
}

#[test]
fn a_run_stays_on_the_list_until_a_connection_outlives_it() {
    let run = |run| CommandHeader { run, ..CommandHeader::default() };
    let abandoned = AbandonedRuns::default();
    abandoned.add(run(1));
    abandoned.add(run(2));
    assert_eq!(abandoned.take(), [run(1), run(2)]);
    abandoned.tell(run(1));
    abandoned.tell(run(2));
    assert_eq!(abandoned.take(), [], "the present connection was given them");
    abandoned.tell_again();
    // One of them continues, unless there is no connection.
    drop(Resuming::new(&abandoned, run(2)));
    assert_eq!(abandoned.take(), [run(1), run(2)]);
    abandoned.tell(run(1));
    abandoned.add(run(2));
    Resuming::new(&abandoned, run(2)).goes_on();
    Resuming::new(&abandoned, run(1)).goes_on();
    abandoned.tell_again();
    assert_eq!(abandoned.take(), []);
    for number in 0..5000 {
        abandoned.tell(run(number));
    }
    abandoned.tell_again();
    assert_eq!(abandoned.take().len(), TOLD_COUNT_MAX);
}
