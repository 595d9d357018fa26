//! A device's profile: measured once for all who ask, and without harm to stored data.

use std::sync::Arc;

use cleave_fragment::command::{DeviceErrorCause, Reply, Request};
use cleave_fragment::profile::{Figure, Origin, SideProfile};
use cleave_media::Extent;

use crate::bench::{Bench, MEMORY_BYTES, device_error, extent, memory, options};

const SCRATCH: u64 = 5000;

async fn ask(
    bench: &Bench,
    again: bool,
    sample: Vec<Extent>,
    scratch: Option<Extent>,
) -> SideProfile {
    let reply = bench.call(Request::Profile { again, sample, scratch }).await.unwrap();
    let Reply::Profile(side) = reply else { panic!("{reply:?}") };
    *side
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_figures_are_measured_and_nothing_but_the_scratch_space_is_written() {
    let media = memory();
    let benches = [
        Bench::embedded(Arc::clone(&media), options()).await,
        Bench::local(memory(), options()).await,
        Bench::remote(memory(), options()).await,
    ];
    for bench in benches {
        let morsels = bench.load().await;
        let page = morsels[0].pages[0].page.extent;
        bench.reserve(SCRATCH, 300).await;
        let around = [extent(0, 4096), extent(4096, 904), extent(SCRATCH + 256, 44)];
        let mut before = Vec::new();
        for extent in around {
            before.push(bench.read_blocks(extent).await.unwrap());
        }
        let scratch = Some(extent(SCRATCH, 256));
        let side = ask(&bench, false, vec![page], scratch).await;
        assert_eq!(
            (side.origin, side.cores, side.memory_bytes),
            (Origin::Measured, 2, MEMORY_BYTES)
        );
        assert_eq!(side.remarks, Vec::<String>::new());
        for figure in Figure::ALL {
            assert!(side.figure(figure).is_some(), "{}", figure.name());
        }
        for (extent, before) in around.into_iter().zip(before) {
            assert_eq!(bench.read_blocks(extent).await.unwrap(), before, "{extent}");
        }
        // Kept, until measured again.
        assert_eq!(ask(&bench, false, Vec::new(), None).await, side);
        let anew = ask(&bench, true, Vec::new(), None).await;
        assert_ne!(anew, side);
        assert_eq!(anew.figure(Figure::MediaWriteSequential), None);
        assert!(anew.remarks.iter().any(|remark| remark.contains("no space was reserved")));
        assert_eq!(ask(&bench, false, Vec::new(), None).await, anew);
        // A request with space gets the figures that were left out.
        assert!(ask(&bench, false, vec![page], scratch).await.remarks.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_at_the_same_time_gets_the_same_measurement() {
    let bench = Bench::remote(memory(), options()).await;
    let asked = (0..4).map(|_| ask(&bench, true, Vec::new(), None));
    let answers = futures::future::join_all(asked).await;
    // A request may come after the first measurement began; two measurements at most serve four.
    let mut different: Vec<&SideProfile> = Vec::new();
    for answer in &answers {
        if !different.contains(&answer) {
            different.push(answer);
        }
    }
    assert!(different.len() <= 2, "{} measurements", different.len());
}

#[tokio::test]
async fn space_that_was_not_reserved_is_not_written() {
    let bench = Bench::embedded(memory(), options()).await;
    bench.reserve(0, 64).await;
    let written = bench.media.bytes_written();
    for scratch in [extent(0, 65), extent(64, 1), extent(u64::MAX - 3, 2), extent(8, 0)] {
        let request = Request::Profile { again: true, sample: Vec::new(), scratch: Some(scratch) };
        let (cause, message) = device_error(bench.call(request).await);
        assert_eq!(cause, DeviceErrorCause::NotReserved, "{message}");
    }
    assert_eq!(bench.media.bytes_written(), written);
    // Nor is anything read behind the end.
    let sample = vec![extent(1 << 40, 8)];
    let request = Request::Profile { again: true, sample, scratch: Some(extent(0, 64)) };
    let (cause, message) = device_error(bench.call(request).await);
    assert_eq!(cause, DeviceErrorCause::Refused, "{message}");
}
