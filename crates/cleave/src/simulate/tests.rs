//! What must hold of every simulation, and what its figures are to show.

use std::time::Duration;

use cleave_host::device::profile::{Profile, SideProfile};

use super::scenario::{Batch, HostCosts, Placement, SECOND_NS, Scan, Scenario, Stealing, seconds};
use super::world::{Figures, World};

const MS: u64 = 1_000_000;

/// Even devices of one core, two a node, that take 10 ms for a morsel.
fn scenario(devices: usize) -> Scenario {
    Scenario {
        devices,
        per_node: 2,
        cores: 1,
        morsels: 64,
        placement: Placement::Even,
        morsel_ns: 10 * MS,
        noise: 0.1,
        start_ns: 2 * MS,
        slow: Vec::new(),
        result_bytes: 64,
        page_bytes: 1 << 20,
        slot_bytes: 256 << 10,
        slot_count: 16,
        node_rate: 125_000_000,
        host_rate: 1_250_000_000,
        round_trip_ns: 200_000,
        host: HostCosts {
            cores: 2,
            morsel_ns: 5 * MS,
            run_ns: 150_000,
            message_ns: 20_000,
            decode_rate: 4_000_000_000,
        },
        stealing: Stealing::Node,
        statements: 1,
        at_once: 1,
        batch: None,
        lost: None,
        mirrored: false,
        seed: 7,
    }
}

/// The figures of `scenario`, in which each morsel was run once.
#[track_caller]
fn run(scenario: &Scenario) -> Figures {
    let figures = World::new(scenario).run();
    assert!(figures.is_exact(), "{figures:?} of {scenario:?}");
    if figures.failed == 0 {
        let morsels = u64::from(scenario.morsels) * scenario.devices as u64;
        let ran = figures.by_own + figures.by_node + figures.by_host;
        assert_eq!(ran - figures.lost, morsels * u64::from(scenario.statements), "{figures:?}");
    }
    figures
}

/// The figures of a batch, for which each morsel was run once a group.
#[track_caller]
fn run_batch(scenario: &Scenario) -> Figures {
    let figures = World::new(scenario).run();
    assert!(figures.is_exact() && figures.failed == 0, "{figures:?} of {scenario:?}");
    figures
}

fn makespan_s(scenario: &Scenario) -> f64 {
    seconds(run(scenario).makespan_ns)
}

#[test]
fn each_morsel_is_run_once_whoever_takes_it_and_whatever_is_lost() {
    let placements = [Placement::Even, Placement::Zipf, Placement::Weights(vec![3.0, 0.0, 1.0])];
    for stealing in [Stealing::Off, Stealing::Node, Stealing::Host, Stealing::On] {
        for placement in &placements {
            for (cores, lost_ms) in [(1, None), (2, Some(1)), (1, Some(120)), (3, Some(300))] {
                let scenario = Scenario {
                    stealing,
                    placement: placement.clone(),
                    cores,
                    morsels: 20,
                    // Slots fill, and credit is short.
                    result_bytes: 100_000,
                    slot_count: 2,
                    slow: vec![(1, 3.0)],
                    statements: 5,
                    at_once: 2,
                    lost: lost_ms.map(|at| (2, at * MS)),
                    mirrored: true,
                    ..scenario(7)
                };
                let figures = run(&scenario);
                assert_eq!(figures.failed, 0, "{scenario:?}");
                assert_eq!(figures.after_loss_ns.is_some(), lost_ms.is_some());
            }
        }
    }
}

#[test]
fn equal_seeds_give_equal_figures() {
    let of_seed = |seed| {
        let scenario = Scenario {
            stealing: Stealing::On,
            placement: Placement::Zipf,
            at_once: 2,
            statements: 3,
            seed,
            ..scenario(6)
        };
        Figures { decided: Duration::ZERO, ..run(&scenario) }
    };
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1).makespan_ns, of_seed(2).makespan_ns);
}

#[test]
fn even_devices_are_as_efficient_by_the_thousand_as_alone() {
    for devices in [1, 2, 4, 100, 1000] {
        let scenario = Scenario { morsels: 128, morsel_ns: 40 * MS, ..scenario(devices) };
        let figures = run(&scenario);
        let efficiency = seconds(figures.ideal_ns) / seconds(figures.makespan_ns);
        assert!((0.95..=1.0).contains(&efficiency), "{devices} devices: {efficiency}");
    }
}

#[test]
fn an_idle_sibling_does_half_of_what_lies_on_one_of_two_devices() {
    let on_one = Scenario { placement: Placement::Weights(vec![1.0, 0.0]), ..scenario(2) };
    let alone = makespan_s(&Scenario { stealing: Stealing::Off, ..on_one.clone() });
    assert!(alone > 1.2, "128 morsels of 10 ms take one device {alone} s");
    let figures = run(&on_one);
    let shared = seconds(figures.makespan_ns);
    assert!(alone / shared >= 1.9, "{alone} s alone, {shared} s with the sibling");
    assert!(figures.by_node > 50, "{figures:?}");
    // It is of another node.
    let apart = Scenario { per_node: 1, ..on_one };
    assert!(makespan_s(&apart) > 0.99 * alone);
}

#[test]
fn a_slow_device_is_helped_by_its_sibling() {
    let slow = Scenario { slow: vec![(0, 4.0)], ..scenario(4) };
    let alone = makespan_s(&Scenario { stealing: Stealing::Off, ..slow.clone() });
    let figures = run(&slow);
    let shared = seconds(figures.makespan_ns);
    assert!(shared < 0.55 * alone, "{alone} s alone, {shared} s with its sibling");
    assert!(figures.by_node > 25, "{figures:?}");
}

#[test]
fn a_lost_node_costs_time_where_it_is_mirrored_and_statements_where_not() {
    let lost =
        Scenario { statements: 6, lost: Some((1, SECOND_NS)), mirrored: true, ..scenario(4) };
    let whole = run(&Scenario { lost: None, ..lost.clone() });
    let mirrored = run(&lost);
    assert_eq!((mirrored.failed, whole.failed), (0, 0));
    assert!(mirrored.lost > 0 && mirrored.by_host > 0, "{mirrored:?}");
    assert!(mirrored.makespan_ns > whole.makespan_ns);
    let after_s = seconds(mirrored.after_loss_ns.unwrap());
    assert!(after_s < 2.0, "{after_s} s after the loss");
    // The first one was done by then; a client goes on with the others, which fail at once.
    let alone = run(&Scenario { mirrored: false, ..lost.clone() });
    assert_eq!(alone.failed, 5);
    // Both copies are in the process that is lost.
    let beside = run(&Scenario { per_node: 4, ..lost });
    assert_eq!(beside.failed, 5);
}

#[test]
fn an_idle_host_helps_a_few_devices_and_leaves_many_alone() {
    let by_host = |devices| {
        let off = Scenario { stealing: Stealing::Off, ..scenario(devices) };
        let on = Scenario { stealing: Stealing::Host, ..off.clone() };
        let figures = run(&on);
        let share = figures.by_host as f64 / (figures.by_own + figures.by_host) as f64;
        (seconds(figures.makespan_ns) / makespan_s(&off), share)
    };
    let (against_alone, share) = by_host(1);
    assert!(against_alone < 0.8 && share > 0.2, "{against_alone} of the time, {share} by the host");
    let (against_alone, share) = by_host(200);
    assert!(against_alone < 1.25 && share < 0.05, "{against_alone} of the time, {share}");
}

#[test]
fn a_batch_reads_once_for_each_group_and_uses_all_nodes() {
    let batch = |size_max, tables| {
        let batch = Batch { columns: 3, tables, size_max, each_more: 0.2 };
        let stealing = Stealing::Off;
        run_batch(&Scenario {
            batch: Some(batch),
            statements: 40,
            morsels: 8,
            stealing,
            ..scenario(4)
        })
    };
    let (one_by_one, grouped) = (batch(1, 1), batch(8, 1));
    assert_eq!((one_by_one.queries, one_by_one.statements), (40, 40));
    // Three columns, and at most eight queries in a group.
    assert!(grouped.queries == 40 && (5..=8).contains(&grouped.statements), "{grouped:?}");
    let gain = seconds(one_by_one.makespan_ns) / seconds(grouped.makespan_ns);
    assert!(gain > 2.0, "{gain} times as fast in groups");
    // Queries of different tables have no device in common.
    let apart = batch(1, 2);
    let share = seconds(apart.makespan_ns) / seconds(one_by_one.makespan_ns);
    assert!(share < 0.75, "{share} of the time over half of the devices each");
}

#[test]
fn morsels_are_placed_in_proportion_and_all_of_them() {
    let placed =
        |placement, devices| Scenario { placement, ..scenario(devices) }.morsels_by_device();
    assert_eq!(placed(Placement::Weights(vec![3.0, 1.0]), 4), [96, 32, 96, 32]);
    assert_eq!(placed(Placement::Weights(vec![1.0, 1.0, 1.0, 0.0]), 4), [86, 85, 85, 0]);
    let zipf = placed(Placement::Zipf, 1000);
    assert_eq!(zipf.iter().sum::<u32>(), 64_000);
    assert!(zipf.is_sorted_by(|a, b| a >= b) && zipf[0] > 50 * zipf[99]);
}

#[test]
fn a_profile_says_what_a_morsel_takes() {
    let scan = Scan { rows: 131_072, columns: 1, selectivity: 0.01 };
    let usual = Profile::assumed();
    let weak = Profile { device: SideProfile::scaled(0.25, 1, 1 << 30), ..usual.clone() };
    let (usual, weak) = (scan.price(&usual, 16).unwrap(), scan.price(&weak, 16).unwrap());
    let ratio = weak.device_morsel_ns as f64 / usual.device_morsel_ns as f64;
    assert!((3.9..4.1).contains(&ratio), "a quarter of a core takes {ratio} times as long");
    assert_eq!(weak.host_morsel_ns, usual.host_morsel_ns);
    assert!(usual.host_morsel_ns > MS / 10 && usual.host_morsel_ns < 100 * MS, "{usual:?}");
    // 1,311 rows of one value, and two columns of pages.
    assert_eq!((usual.result_bytes, usual.page_bytes), (5242, 131_072 * 8));
}
