//! `cleave simulate`: its lines of JSON, its table, measured profiles, and wrong options.

use serde_json::Value;
use tempfile::tempdir;

use crate::local_device::Process;
use crate::program::{cleave, sql};

/// The lines of a simulation, without the time that decisions really took.
fn lines(options: &[&str]) -> Vec<Value> {
    let text = cleave(&[&["simulate", "--json"], options].concat()).ok();
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        assert!(line["decision_ns"].as_f64().unwrap() >= 0.0, "{line}");
        line["decision_ns"] = Value::Null;
    }
    lines
}

#[test]
fn figures_follow_from_the_options() {
    let options = ["--devices", "1,2,4", "--morsels", "32", "--stealing", "node"];
    let found = lines(&options);
    assert_eq!(found.len(), 3);
    for (line, devices) in found.iter().zip([1, 2, 4]) {
        assert_eq!(line["devices"], devices);
        assert_eq!(line["morsels"], devices * 32);
        let ran = line["by_own"].as_u64().unwrap() + line["by_node"].as_u64().unwrap();
        assert_eq!((ran, &line["by_host"]), (devices * 32, &0.into()), "{line}");
        let efficiency = line["efficiency"].as_f64().unwrap();
        assert!((0.9..=1.0).contains(&efficiency), "{line}");
        assert_eq!(line["seconds_after_loss"], Value::Null);
    }
    assert_eq!(found[0]["of_first"], 1.0);
    assert_eq!(lines(&options), found);
    let other = lines(&[&options[..], &["--seed", "2"]].concat());
    assert_ne!(other[2]["seconds"], found[2]["seconds"]);

    let uneven = ["--devices", "2", "--morsels", "32", "--placement", "1,0"];
    let seconds = |stealing| {
        let found = lines(&[&uneven[..], &["--stealing", stealing]].concat());
        found[0]["seconds"].as_f64().unwrap()
    };
    assert!(seconds("off") > 1.8 * seconds("node"));
}

#[test]
fn a_lost_node_is_told_of() {
    let options = ["--devices", "4", "--morsels", "32", "--statements", "3", "--lost", "1@0.1"];
    let failed = lines(&options);
    assert_eq!(failed[0]["failed_statements"], 3, "{failed:?}");
    let mirrored = lines(&[&options[..], &["--mirrored"]].concat());
    assert_eq!(mirrored[0]["failed_statements"], 0, "{mirrored:?}");
    assert!(mirrored[0]["seconds_after_loss"].as_f64().unwrap() > 0.0, "{mirrored:?}");
    let table = cleave(&[&["simulate", "--mirrored"], &options[..]].concat()).ok();
    for part in ["efficiency", "ns a decision", "4 devices: the last statement", "0 failed"] {
        assert!(table.contains(part), "{part} in {table}");
    }
}

#[test]
fn a_measured_profile_is_read_and_others_are_refused() {
    let place = tempdir().unwrap();
    let database = place.path().join("db");
    let folder = database.to_str().unwrap();
    let socket = place.path().join("device.sock").to_str().unwrap().to_owned();
    let _device = Process::device(place.path());
    sql(&database, &["-c", "SELECT 1"]).ok();
    cleave(&["device", "add", "near", "--db", folder, "--local", &socket]).ok();
    cleave(&["device", "profile", "near", "--db", folder]).ok();
    let profile = database.join("device-1.profile");
    let profile = profile.to_str().unwrap();
    let of_rows = |rows| {
        let found = lines(&["--devices", "2", "--profile", profile, "--rows", rows]);
        found[0]["ideal_seconds"].as_f64().unwrap()
    };
    let (few, many) = (of_rows("100000"), of_rows("1000000"));
    assert!(many > 5.0 * few, "{few} s and {many} s");
    assert_eq!(lines(&["--devices", "2", "--published", "smartssd"]).len(), 1);

    let refused = cleave(&["simulate", "--profile", database.join("manifest").to_str().unwrap()]);
    assert!(refused.fails(1).contains("holds no profile"));
    assert!(cleave(&["simulate", "--profile", "missing"]).fails(1).contains("missing"));
    assert!(cleave(&["simulate", "--published", "abacus"]).fails(1).contains("smartssd"));
    let many = cleave(&["simulate", "--devices", "100000", "--statements", "100000"]);
    assert!(many.fails(1).contains("more than the 100000000"));
    let runs = ["simulate", "--devices", "1000", "--statements", "100000", "--morsels", "1"];
    assert!(cleave(&runs).fails(1).contains("100000000 runs"));
    let slots = ["simulate", "--devices", "1000", "--result-bytes", "1GB", "--slot-bytes", "1"];
    assert!(cleave(&slots).fails(1).contains("too many slots"));
    assert!(cleave(&["simulate", "--page-bytes", "2GB"]).fails(1).contains("1073741824"));
}

#[test]
fn times_beyond_all_time_are_no_error() {
    let options = ["--devices", "1", "--morsels", "4", "--stealing", "off", "--morsel-ms", "1e9"];
    let found = lines(&[&options[..], &["--slow", "0=1e6"]].concat());
    assert_eq!(found[0]["by_own"], 4, "{found:?}");
}
