//! The equations against numbers worked by hand.
//!
//! The hardware: flash gives the host 100,000 pages a second and the device twice as many; a block crosses in half the
//! time that the host takes to read one; the device copies at a tenth of the host's pace.

use crate::cost::{Limits, Placement, PlanShape, ScanWork, ShapeNode, SlotSize, Work};
use crate::profile::{Figure, LinkProfile, Profile, SideProfile};

use super::{
    Choice, HardwareModel, Interconnect, Side, TableCosts, TableVariables, choose, plan_costs,
};

fn hardware() -> HardwareModel {
    HardwareModel {
        flash_device: 200_000.0,
        flash_host: 100_000.0,
        flash_weight: 3.0,
        copy_device: 0.1,
        clock: (0.667e9, 3.4e9),
        cores: (1.0, 4.0),
        memory_host: 400.0,
        memory_selection: 10.0,
        memory_join: 20.0,
        memory_weight: 5.0,
        interconnect: Interconnect::Measured { bytes_per_second: 819.2e6 },
        row_evaluation: 0.2,
        block_bytes: 4096.0,
        transfer_bytes: 450_560.0,
    }
}

fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-9 * wanted.abs().max(1.0), "{found} is not {wanted}");
}

#[test]
fn equations_1_to_6_of_one_table() {
    let table = TableVariables {
        rows: 1000.0,
        selectivity: 0.1,
        pages: 100.0,
        access: 100.0,
        projected_fields: 2.0,
        fields: 10.0,
        projected_bytes: 20.0,
        row_bytes: 100.0,
    };
    let host = TableCosts::of(&table, Side::Host, &hardware());
    // 100 + 100 · 1
    close(host.scan, 200.0);
    // 100 rows · 0.2 · 20 bytes · (2 / 10 / 100)
    close(host.cpu, 0.8);
    // 100 rows · 100 bytes · 0.5 / 4096
    close(host.transfer, 1.220_703_125);
    close(host.total(), 202.020_703_125);
    let device = TableCosts::of(&table, Side::Device, &hardware());
    // 100 + 100 · 0.5
    close(device.scan, 150.0);
    close(device.cpu, 8.0);
    // 100 rows · 20 bytes · 0.5 / 4096
    close(device.transfer, 0.244_140_625);
}

/// 100 rows of a table A with 1000, joined with the 200 of B, to 50.
fn plan() -> PlanShape {
    let scan = |rows: f64, kept: f64, row_bytes, chunk_bytes, columns: (f64, f64)| ShapeNode {
        work: Work::Scan(ScanWork {
            rows,
            rows_kept: kept,
            chunk_bytes,
            filter_columns: columns.0,
            output_columns: columns.1,
            ..ScanWork::default()
        }),
        inputs: Vec::new(),
        rows: kept,
        row_bytes,
        may_share: false,
        is_broadcast: false,
    };
    let join = ShapeNode {
        work: Work::HashJoin,
        inputs: vec![1, 2],
        rows: 50.0,
        row_bytes: 40.0,
        may_share: false,
        is_broadcast: false,
    };
    let a = scan(1000.0, 100.0, 20.0, 409_600.0, (1.0, 4.0));
    let b = scan(200.0, 200.0, 8.0, 40_960.0, (0.0, 1.0));
    PlanShape { nodes: vec![join, a, b] }
}

fn splits() -> [Placement; 2] {
    [[false, true, true], [true, true, true]].map(|on| Placement { on_device: on.to_vec() })
}

#[test]
fn equations_7_to_12_of_two_tables() {
    let costs = plan_costs(&plan(), &splits(), &hardware());
    // A: 150 + 100 · 0.2 · 20 · (4/5 / 409.6 / 0.1) = 157.8125; B: 15 + 200 · 0.2 · 8 · (1 / 204.8 / 0.1) = 30.625.
    close(costs.nodes[0], 30.625);
    // Both, and 50 · 0.2 + 2000 / 4096 · 0.2 / 0.1 for the join.
    close(costs.nodes[1], 199.414_062_5);
    // And 2000 / 4096 · 0.5 for its rows.
    close(costs.ndp, 199.658_203_125);
    // A: 200 + 0.78125 + 5; B: 20 + 1.5625 + 5; the join: 10 + 2000 / 4096 · 0.2.
    close(costs.host, 242.441_406_25);
    close(costs.split_cpu, 200.0);
    // 2 · 10 + 1 · 20, of 400.
    close(costs.split_memory, 10.0);
    // 199.658… · (200 + 10) / 200.
    close(costs.target, 209.641_113_281_25);
    assert_eq!(costs.tables, 2);
}

#[test]
fn weights_cancel() {
    let other = HardwareModel { flash_weight: 7.0, memory_weight: 0.5, ..hardware() };
    let [a, b] = [hardware(), other].map(|hardware| plan_costs(&plan(), &splits(), &hardware));
    close(a.target, b.target);
}

#[test]
fn the_split_closest_to_the_target_is_taken_where_the_device_pays() {
    let hardware = hardware();
    let costs = plan_costs(&plan(), &splits(), &hardware);
    assert_eq!(choose(&costs, &hardware), Choice::Split(1));
    let early = super::PlanCosts { target: 50.0, ..costs.clone() };
    assert_eq!(choose(&early, &hardware), Choice::Split(0));
    // Precondition (b): too little comes back for a command.
    let large = HardwareModel { transfer_bytes: 1e9, ..hardware.clone() };
    assert_eq!(choose(&costs, &large), Choice::Ndp);
    // Precondition (a).
    assert_eq!(choose(&super::PlanCosts { tables: 1, ..costs }, &hardware), Choice::Ndp);
    // A device that copies at a thousandth of the host's pace is left alone.
    let weak = HardwareModel { copy_device: 0.001, ..hardware };
    assert_eq!(choose(&plan_costs(&plan(), &splits(), &weak), &weak), Choice::Host);
}

#[test]
fn pcie_by_version_and_lanes() {
    let rate = |version, lanes| Interconnect::Pcie { version, lanes }.bytes_per_second();
    close(rate(2, 8), 4e9);
    close(rate(3, 4), 8e9 * 128.0 / 130.0 / 8.0 * 4.0);
    assert!(rate(4, 4) > rate(3, 4));
}

#[test]
fn a_profile_gives_table_2() {
    let profile = Profile {
        host: SideProfile::assumed(4, 0).with(Figure::Copy, 8e9),
        device: SideProfile::assumed(1, 0)
            .with(Figure::Copy, 4e8)
            .with(Figure::MediaReadSequential, 409.6e6),
        link: LinkProfile { bytes_per_second: 204.8e6, ..LinkProfile::assumed() },
    };
    let limits = Limits {
        device_memory_bytes: 32 << 20,
        host_memory_bytes: 1 << 30,
        device_load: 0.0,
        slot_size: SlotSize::Fixed(1 << 20),
        slot_count: 4,
        device_partitions: 1,
        host_threads: 4,
        shares_work: false,
        lent_share: 0.0,
        cut_share_max: 0.57,
        broadcast_bytes: 16 << 20,
    };
    let hardware = HardwareModel::of(&profile, &limits);
    close(hardware.flash_device, 100_000.0);
    close(hardware.flash_host, 50_000.0);
    close(hardware.copy_device, 0.05);
    close(hardware.transfer_of_block(), 1.0);
    close(hardware.transfer_bytes, f64::from(4 << 20));
}
