//! Predictions against numbers worked by hand, and what must hold for all of them.

use crate::cost::{Limits, Placement, PlanShape, ScanWork, ShapeNode, Work};
use crate::profile::Profile;

use super::predict;

fn limits() -> Limits {
    Limits {
        device_memory_bytes: 256 << 20,
        host_memory_bytes: 1 << 30,
        device_load: 0.0,
        slot_bytes: 1 << 20,
        slot_count: 8,
        device_copies: 2,
        host_threads: 2,
    }
}

fn scan(rows: f64, kept: f64) -> ShapeNode {
    let scan = ScanWork {
        table: "t".to_owned(),
        rows,
        rows_kept: kept,
        filter_columns: 1.0,
        output_columns: 2.0,
        pages: (rows / 65_536.0).ceil(),
        chunk_bytes: rows * 12.0,
        ..ScanWork::default()
    };
    ShapeNode { work: Work::Scan(scan), inputs: Vec::new(), rows: kept, row_bytes: 16.0 }
}

fn on(places: &[bool]) -> Placement {
    Placement { on_device: places.to_vec() }
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
