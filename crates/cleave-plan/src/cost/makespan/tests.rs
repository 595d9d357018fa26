//! Predictions against numbers worked by hand, and the invariants of all of them.

use cleave_media::Stopwatch;
use proptest::prelude::*;

use crate::cost::{
    Conditions, KnownPages, Limits, Placement, PlanShape, Prediction, ScanWork, ShapeNode,
    SlotSize, Work,
};
use crate::profile::{Accelerator, Figure, LinkProfile, Profile, SideProfile};

use super::{Sharing, predict, sharing};

fn limits() -> Limits {
    Limits {
        device_memory_bytes: 256 << 20,
        host_memory_bytes: 1 << 30,
        device_load: 0.0,
        slot_size: SlotSize::Fixed(1 << 20),
        slot_count: 8,
        device_partitions: 2,
        host_threads: 2,
        shares_work: false,
        lent_share: 0.0,
        cut_share_max: 0.57,
        broadcast_bytes: 16 << 20,
    }
}

fn scan(rows: f64, kept: f64) -> ShapeNode {
    let scan = ScanWork {
        table: "t".to_owned(),
        rows,
        rows_kept: kept,
        filter_columns: 1.0,
        output_columns: 2.0,
        // In parts, so that a row more is not a page more to overlap.
        pages: (rows / 65_536.0).max(1.0),
        chunk_bytes: rows * 12.0,
        ..ScanWork::default()
    };
    ShapeNode {
        work: Work::Scan(scan),
        inputs: Vec::new(),
        rows: kept,
        row_bytes: 16.0,
        may_share: false,
        is_broadcast: false,
    }
}

fn node(work: Work, inputs: &[usize], rows: f64) -> ShapeNode {
    ShapeNode {
        work,
        inputs: inputs.to_vec(),
        rows,
        row_bytes: 16.0,
        may_share: false,
        is_broadcast: false,
    }
}

fn on(places: &[bool]) -> Placement {
    Placement { on_device: places.to_vec() }
}

/// A join of a small table with a large one, under an aggregate.
fn joined(scale: f64) -> PlanShape {
    let aggregate = Work::Aggregate { keys: 1.0, functions: 1.0 };
    PlanShape {
        nodes: vec![
            node(aggregate, &[1], 100.0 * scale),
            node(Work::HashJoin, &[2, 3], 1e5 * scale),
            scan(2e5 * scale, 2e4 * scale),
            scan(1e7 * scale, 1e6 * scale),
        ],
    }
}

/// host, h0, h1, ndp of [`joined`].
fn splits() -> [Placement; 4] {
    [[false; 4], [false, false, true, true], [false, true, true, true], [true; 4]].map(|p| on(&p))
}

#[test]
fn selective_scan_is_the_devices_and_a_full_one_the_hosts() {
    let profile = Profile::assumed();
    let of = |kept: f64, device: bool| {
        let shape = PlanShape { nodes: vec![scan(1e7, kept)] };
        predict(&shape, &on(&[device]), &profile, &limits())
    };
    assert!(of(1e3, true).finish < of(1e3, false).finish / 3.0);
    assert!(of(1e7, true).finish > of(1e7, false).finish);
}

#[test]
fn what_a_side_knows_of_conditions_makes_it_cheaper_and_not_the_other() {
    let profile = Profile::assumed();
    let known = KnownPages { share: 0.9, read: 0.1, bytes: 0.1 };
    let priced = |on_host: KnownPages, on_device: KnownPages| {
        let mut node = scan(1e7, 1e3);
        if let Work::Scan(scan) = &mut node.work {
            scan.conditions = Conditions { patterns: 1.0, ..Conditions::default() };
            (scan.known_on_host, scan.known_on_device) = (on_host, on_device);
        }
        let shape = PlanShape { nodes: vec![node] };
        let side = |device| predict(&shape, &on(&[device]), &profile, &limits()).finish;
        (side(false), side(true))
    };
    let nothing = KnownPages::default();
    let (host, device) = priced(nothing, nothing);
    let of_host = priced(known, nothing);
    assert!(of_host.0 < host * 0.3, "{of_host:?} of {host}");
    assert_eq!(of_host.1, device);
    let of_device = priced(nothing, known);
    assert!(of_device.1 < device * 0.4, "{of_device:?} of {device}");
    assert_eq!(of_device.0, host);
    // The more is known, the less a scan takes; all of it still takes something.
    let shares = [0.2, 0.5, 1.0].map(|share| priced(KnownPages { share, ..known }, nothing).0);
    assert!(shares.windows(2).all(|pair| pair[1] < pair[0]) && shares[2] > 0.0, "{shares:?}");
}

#[test]
fn cores_of_others_make_long_runs_sooner_as_far_as_the_media_go() {
    let profile = Profile::assumed();
    let busy = |rows: f64, lent_share: f64| {
        let mut node = scan(rows, rows / 1000.0);
        if let Work::Scan(scan) = &mut node.work {
            scan.conditions = Conditions { patterns: 4.0, ..Conditions::default() };
        }
        let limits = Limits { lent_share, ..limits() };
        predict(&PlanShape { nodes: vec![node] }, &on(&[true]), &profile, &limits).device_busy
    };
    let (alone, helped) = (busy(1e7, 0.0), busy(1e7, 0.5));
    assert!(helped < alone * 0.7 && helped > alone * 0.3, "{helped} of {alone}");
    // Two pages are nothing to help with.
    assert_eq!(busy(1e5, 0.5), busy(1e5, 0.0));
    assert!(busy(1e7, 1.0) > 0.0, "never all of it");
}

#[test]
fn both_sides_of_a_shared_fragment_are_done_together() {
    let link = LinkProfile { bytes_per_second: 1e10, ..LinkProfile::assumed() };
    let profile = Profile { link, ..Profile::assumed() };
    let shares = Limits { shares_work: true, ..limits() };
    let aggregate = Work::Aggregate { keys: 1.0, functions: 1.0 };
    let shapes = [vec![scan(1e7, 1e6)], vec![node(aggregate, &[1], 100.0), scan(1e7, 1e6)]];
    for mut nodes in shapes {
        nodes[0].may_share = true;
        let shape = PlanShape { nodes };
        let below = on(&vec![true; shape.nodes.len()]);
        let host = predict(&shape, &on(&[false, false]), &profile, &shares).finish;
        let alone = predict(&shape, &below, &profile, &limits()).finish;
        let shared = predict(&shape, &below, &profile, &shares).finish;
        assert!(shared < 0.95 * host.min(alone), "{shared} of {host} and {alone}");
        // No sooner than both paces together.
        let together = 1.0 / (1.0 / host + 1.0 / alone);
        assert!(shared > 0.9 * together, "{shared}, together {together}");
        let alike = sharing(&shape, 0, &profile, &shares).unwrap().host_share();
        assert!((0.05..0.95).contains(&alike), "{alike}");
    }
    // Pages are not fetched over a link that the rows fill.
    let mut full = scan(1e7, 1e7);
    full.may_share = true;
    let full = PlanShape { nodes: vec![full] };
    let share = sharing(&full, 0, &Profile::assumed(), &shares).unwrap().host_share();
    assert_eq!(share, 0.0);
    // Work that does not stream is not shared.
    assert_eq!(Sharing::default().host_share(), 0.0);
}

#[test]
fn rows_are_broadcast_to_every_device_and_devices_work_side_by_side() {
    let shape = |devices_beside: f64, share_beside: f64| {
        let mut shape = joined(1.0);
        shape.nodes[2].is_broadcast = true;
        let Work::Scan(probe) = &mut shape.nodes[3].work else { panic!("a scan") };
        (probe.devices_beside, probe.share_beside) = (devices_beside, share_beside);
        shape
    };
    let profile = Profile::assumed();
    let below = [on(&[false, true, false, true]), on(&[true, true, false, true]), on(&[true; 4])];
    for placement in below {
        let of = |shape: &PlanShape| predict(shape, &placement, &profile, &limits());
        let (one, two) = (of(&shape(0.0, 0.0)), of(&shape(1.0, 0.0)));
        // 20,000 rows of 16 bytes, once more.
        assert!((two.link_bytes - one.link_bytes - 320_000.0).abs() < 1.0, "{two:?}");
        assert!(one.fits && two.finish > one.finish);
        // Of two devices each has half of what streams.
        let halves = of(&shape(1.0, 0.5));
        assert!(halves.finish < 0.8 * two.finish, "{} of {}", halves.finish, two.finish);
        // More than may be sent is the host's.
        let small = Limits { broadcast_bytes: 100_000, ..limits() };
        let refused = predict(&shape(1.0, 0.5), &placement, &profile, &small);
        assert!(!refused.fits);
        assert!(refused.why.unwrap().contains("rows to broadcast have about 320 kB"));
    }
}

#[test]
fn one_page_read_by_the_host_by_hand() {
    // 60,000 rows of one page, 720,000 bytes, which take a second over the link; another one for a round trip.
    let link =
        LinkProfile { round_trip_s: 1.0, bytes_per_second: 720_000.0, ..LinkProfile::assumed() };
    let profile = Profile { link, ..Profile::assumed() };
    let shape = PlanShape { nodes: vec![scan(60_000.0, 60_000.0)] };
    let found = predict(&shape, &on(&[false]), &profile, &limits());
    // A second for the bytes and one for the round trip; 0.6 ms of media; decoding takes less than 1 ms.
    assert!((2.0006..2.002).contains(&found.finish), "{found:?}");
    assert_eq!(found.link_bytes, 720_000.0);
    assert_eq!(found.first_result, found.finish);
    assert!((found.link_busy - 1.0).abs() < 1e-9);
    // Cached pages do not cross, and no request is sent.
    let mut held = shape;
    if let Work::Scan(scan) = &mut held.nodes[0].work {
        scan.held_bytes = scan.chunk_bytes;
    }
    let found = predict(&held, &on(&[false]), &profile, &limits());
    assert!(found.finish < 1e-3 && found.link_bytes == 0.0, "{found:?}");
}

#[test]
fn a_build_side_comes_before_the_first_row_and_the_probe_side_streams() {
    let profile = Profile::assumed();
    let [host, _, h1, _] = splits().map(|split| predict(&joined(1.0), &split, &profile, &limits()));
    assert!(h1.finish < host.finish, "{} {}", h1.finish, host.finish);
    // Without the aggregate rows leave while the probe side streams, and not before the build side is there.
    let shape = joined(1.0);
    let bare = PlanShape {
        nodes: vec![
            ShapeNode { inputs: vec![1, 2], ..shape.nodes[1].clone() },
            shape.nodes[2].clone(),
            shape.nodes[3].clone(),
        ],
    };
    let build = PlanShape { nodes: vec![shape.nodes[2].clone()] };
    let whole = predict(&bare, &on(&[false; 3]), &profile, &limits());
    let first = predict(&build, &on(&[false]), &profile, &limits());
    assert!(whole.first_result > first.finish);
    assert!(whole.first_result < whole.finish / 2.0, "{whole:?}");
}

#[test]
fn what_does_not_fit_the_device_costs_the_attempt_and_the_host_run() {
    let profile = Profile::assumed();
    let [host, _, h1, _] = splits();
    let small = Limits { device_memory_bytes: 1 << 19, ..limits() };
    let attempt = predict(&joined(1.0), &h1, &profile, &small);
    let run = predict(&joined(1.0), &host, &profile, &small);
    assert!(!attempt.fits && attempt.finish > run.finish);
    // 20,000 rows of 16 bytes, with 32 for each entry of the table; and groups.
    assert_eq!(
        attempt.why.unwrap(),
        "a fragment needs about 960 kB of device memory, and has 524 kB"
    );
}

#[test]
fn aggregates_beyond_memory_spill_and_joins_do_not_fit() {
    let profile = Profile::assumed();
    let aggregate = Work::Aggregate { keys: 1.0, functions: 1.0 };
    let groups = PlanShape { nodes: vec![node(aggregate, &[1], 1e6), scan(1e6, 1e6)] };
    let of = |shape: &PlanShape, bytes| {
        let limits = Limits { host_memory_bytes: bytes, ..limits() };
        predict(shape, &on(&[false; 4]), &profile, &limits)
    };
    let (room, none) = (of(&groups, 1 << 30), of(&groups, 1 << 20));
    assert!(room.fits && none.fits && none.finish > room.finish);
    assert!(!of(&joined(100.0), 1 << 20).fits);
}

#[test]
fn a_slow_host_stalls_the_device_and_a_slow_device_lets_the_host_wait() {
    let slow = || SideProfile::scaled(0.005, 2, 0);
    let fast_link = LinkProfile { bytes_per_second: 1e10, ..LinkProfile::assumed() };
    let shape = PlanShape { nodes: vec![node(Work::Other, &[1], 1e7), scan(1e7, 1e7)] };
    let of = |profile: &Profile| predict(&shape, &on(&[false, true]), profile, &limits());
    let weak_host = of(&Profile { host: slow(), link: fast_link.clone(), ..Profile::assumed() });
    let weak_device = of(&Profile { device: slow(), link: fast_link, ..Profile::assumed() });
    assert!(weak_host.device_stall > weak_host.finish / 2.0, "{weak_host:?}");
    assert!(weak_device.host_wait > weak_device.finish / 2.0, "{weak_device:?}");
    assert!(weak_device.device_stall < 1e-9 && weak_host.host_wait < weak_host.finish / 10.0);
}

#[test]
fn an_embedded_device_saves_nothing_and_costs_nothing() {
    let profile = Profile { link: LinkProfile::embedded(), ..Profile::assumed() };
    let [host, _, h1, _] = splits().map(|split| predict(&joined(1.0), &split, &profile, &limits()));
    assert_eq!((host.link_bytes, h1.link_bytes), (0.0, 0.0));
    assert!((h1.finish / host.finish - 1.0).abs() < 0.25, "{} {}", h1.finish, host.finish);
}

#[test]
fn a_recursion_takes_its_second_term_once_a_round() {
    let shape = |rounds: f64, is_distinct: bool| PlanShape {
        nodes: vec![
            node(Work::Recursion { rounds, is_distinct }, &[1, 2], 1e4),
            scan(1e5, 100.0),
            node(Work::HashJoin, &[3, 4], 1e3),
            node(Work::Pass, &[], 1e3),
            scan(1e6, 1e4),
        ],
    };
    let predicted = |rounds: f64, is_distinct: bool, is_on_device: bool| {
        let placement = on(&[is_on_device; 5]);
        predict(&shape(rounds, is_distinct), &placement, &Profile::assumed(), &limits())
    };
    let [one, ten] = [1.0, 10.0].map(|rounds| predicted(rounds, false, true));
    assert!(ten.device_busy > 8.0 * one.device_busy, "{one:?} {ten:?}");
    assert_eq!(ten.link_bytes, one.link_bytes, "the rows that come out are the same");
    let [here, here_again] = [1.0, 10.0].map(|rounds| predicted(rounds, false, false));
    assert!(here_again.host_cpu > 8.0 * here.host_cpu && here_again.finish > here.finish);
    assert_eq!(here_again.link_bytes, here.link_bytes, "pages come once");
    let distinct = predicted(10.0, true, true);
    assert!(distinct.device_memory_bytes > ten.device_memory_bytes);
    assert!(distinct.finish > ten.finish);
}

#[test]
fn a_limit_stops_what_streams_below_it() {
    let profile = Profile::assumed();
    let shape = |rows| PlanShape { nodes: vec![node(Work::Pass, &[1], rows), scan(1e7, 1e7)] };
    let of = |rows| predict(&shape(rows), &on(&[false; 2]), &profile, &limits()).finish;
    assert!(of(10.0) < of(1e7) / 50.0);
}

#[test]
fn weak_published_devices_get_less_than_strong_ones() {
    let weak = Accelerator::named("cosmos-plus").unwrap().profile();
    let [_, h0, _, ndp] = splits().map(|split| predict(&joined(1.0), &split, &weak, &limits()));
    assert!(h0.device_busy <= ndp.device_busy);
}

#[test]
fn sixty_operators_take_microseconds() {
    let mut nodes = Vec::new();
    for join in 0..17 {
        let place = nodes.len();
        nodes.push(node(Work::HashJoin, &[place + 1, place + 3], 1e4));
        nodes.push(node(Work::Projection { expressions: 1.0 }, &[place + 2], 1e3));
        nodes.push(scan(1e5 * f64::from(join + 1), 1e3));
    }
    nodes.push(scan(1e7, 1e6));
    let shape = PlanShape { nodes };
    let device: Vec<bool> = (0..shape.nodes.len()).map(|place| place > 20).collect();
    let profile = Profile::assumed();
    let watch = Stopwatch::start();
    let mut finish = 0.0;
    for _ in 0..1000 {
        finish += predict(&shape, &on(&device), &profile, &limits()).finish;
    }
    let each_us = watch.elapsed().as_secs_f64() * 1e3;
    println!("{each_us:.1} µs a prediction of {} operators", shape.nodes.len());
    // Without optimisation, and on a busy machine; a release build takes a tenth of it.
    assert!(finish > 0.0 && each_us < 1000.0, "{each_us} µs");
}

fn times(prediction: &Prediction) -> [f64; 7] {
    let p = prediction;
    [p.finish, p.first_result, p.device_busy, p.host_busy, p.link_busy, p.device_stall, p.host_wait]
}

prop_compose! {
    fn any_profile()(
        host in 0.01f64..4.0,
        device in 0.003f64..4.0,
        cores in 1u32..8,
        round_trip_s in 1e-6f64..0.1,
        rate in 1e6f64..1e10,
    ) -> Profile {
        let link =
            LinkProfile { round_trip_s, bytes_per_second: rate, ..LinkProfile::assumed() };
        Profile {
            host: SideProfile::scaled(host, 2, 0),
            device: SideProfile::scaled(device, cores, 0),
            link,
        }
    }
}

proptest! {
    #[test]
    fn nothing_gets_faster_by_what_is_slower(
        profile in any_profile(),
        scale in 0.001f64..3.0,
        which in 0usize..4,
        factor in 1.0f64..10.0,
        figure in 0usize..17,
    ) {
        let split = &splits()[which];
        let shape = joined(scale);
        let finish =
            |profile: &Profile| predict(&shape, split, profile, &limits()).finish * (1.0 + 1e-9);
        let base = predict(&shape, split, &profile, &limits()).finish;
        let mut slower = profile.clone();
        slower.link.round_trip_s *= factor;
        prop_assert!(finish(&slower) >= base);
        let mut slower = profile.clone();
        slower.link.bytes_per_second /= factor;
        prop_assert!(finish(&slower) >= base);
        let figure = Figure::ALL[figure];
        let mut slower = profile.clone();
        slower.device.set(figure, slower.device.rate(figure) / factor);
        prop_assert!(finish(&slower) >= base, "{figure:?} of the device");
        let mut slower = profile.clone();
        slower.host.set(figure, slower.host.rate(figure) / factor);
        prop_assert!(finish(&slower) >= base, "{figure:?} of the host");
        // More rows of everything.
        let more = predict(&joined(scale * factor), split, &profile, &limits()).finish;
        prop_assert!(more * (1.0 + 1e-9) >= base);
        // A device that others use.
        let loaded = Limits { device_load: 1.0 - 1.0 / factor, ..limits() };
        prop_assert!(predict(&shape, split, &profile, &loaded).finish * (1.0 + 1e-9) >= base);
        // Fewer slots.
        let fewer = Limits { slot_count: 1, ..limits() };
        prop_assert!(predict(&shape, split, &profile, &fewer).finish * (1.0 + 1e-9) >= base);
    }

    #[test]
    fn latency_favours_fewer_round_trips(
        profile in any_profile(),
        scale in 0.001f64..3.0,
        more in 1.0f64..10.0,
    ) {
        // h0 sends two fragments where h1 sends one: what latency adds to h1, it adds to h0 at least.
        let mut late = profile.clone();
        late.link.round_trip_s *= more;
        let shape = joined(scale);
        let of = |split: &Placement, profile| predict(&shape, split, profile, &limits()).finish;
        let [_, h0, _, ndp] = splits();
        let added = |split: &Placement| of(split, &late) - of(split, &profile);
        prop_assert!(added(&h0) * (1.0 + 1e-6) + 1e-9 >= added(&ndp));
    }

    #[test]
    fn nobody_works_longer_than_the_statement_takes(
        profile in any_profile(),
        scale in 0.001f64..3.0,
        which in 0usize..4,
        slot_count in 1u32..32,
    ) {
        let limits = Limits { slot_count, ..limits() };
        let found = predict(&joined(scale), &splits()[which], &profile, &limits);
        for time in times(&found) {
            prop_assert!(time.is_finite() && time >= 0.0, "{found:?}");
            prop_assert!(time <= found.finish * (1.0 + 1e-9), "{found:?}");
        }
    }
}
