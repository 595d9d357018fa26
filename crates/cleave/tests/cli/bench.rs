//! `cleave bench`: each workload runs, embedded and against a server, and its invariants hold afterwards.

use serde_json::Value;
use tempfile::tempdir;

use crate::program::cleave;
use crate::serve::client::Server;

/// A short run of a small database; returns its operations and their counts.
fn measured(arguments: &[&str]) -> Vec<(String, u64)> {
    let size = ["--scale", "0.01", "--seconds", "1", "--warmup", "0", "--clients", "3", "--json"];
    let figures: Value =
        serde_json::from_str(&cleave(&[&["bench"], arguments, &size].concat()).ok()).unwrap();
    assert_eq!(figures["faults"].as_array().map(Vec::len), Some(0), "{figures}");
    let operations = figures["operations"].as_array().unwrap().iter();
    let of =
        |one: &Value| (one["name"].as_str().unwrap().to_owned(), one["count"].as_u64().unwrap());
    operations.map(of).collect()
}

/// Checks that each client has run an operation, and that each of these kinds of names was run.
fn ran(figures: &[(String, u64)], begins: &[&str]) {
    let all = figures.iter().find(|(name, _)| name == "all");
    assert!(all.is_some_and(|(_, count)| *count >= 3), "{figures:?}");
    for begin in begins {
        assert!(figures.iter().any(|(name, _)| name.starts_with(begin)), "{begin}: {figures:?}");
    }
}

#[test]
fn workloads_run_embedded() {
    for (workload, operations) in [
        ("ycsb-a", &[][..]),
        ("ycsb-d", &[]),
        ("ycsb-e", &[]),
        ("ycsb-f", &[]),
        ("linkbench", &[]),
        ("tpcc", &[]),
        ("ch", &["Q"]),
    ] {
        let place = tempdir().unwrap();
        let database = place.path().to_str().unwrap();
        ran(&measured(&[workload, "--db", database]), operations);
    }
}

#[test]
fn a_server_is_measured_over_the_wire() {
    let folder = tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let url = format!("postgres://ada@127.0.0.1:{}/db", server.port);
    ran(&measured(&["ycsb-c", "--url", &url]), &["read"]);
    // Once more over the existing tables, at another level.
    let plot = folder.path().join("plot.svg");
    let plotted = ["--plot", plot.to_str().unwrap()];
    let level = [&["--no-load", "--isolation", "repeatable read"], &plotted[..]].concat();
    ran(&measured(&[&["ycsb-b", "--url", &url], &level[..]].concat()), &[]);
    let plot = std::fs::read_to_string(plot).unwrap();
    for part in [">Operations a second<", ">read<", "class=\"curve-one\""] {
        assert!(plot.contains(part), "{part} in {plot}");
    }
    ran(&measured(&["tpcc", "--url", &url]), &[]);
}

#[test]
fn what_cannot_be_measured_is_named() {
    let wrong = |arguments: &[&str]| cleave(&[&["bench", "ycsb-c"], arguments].concat());
    assert!(wrong(&["--url", "http://x"]).fails(1).contains("postgres://user@"));
    assert!(wrong(&["--scale", "none"]).fails(1).contains("no number"));
    assert!(wrong(&[]).fails(1).contains("--db"));
    assert!(wrong(&["--url", "postgres://a@127.0.0.1:1/x"]).fails(3).contains("127.0.0.1:1"));
    let place = tempdir().unwrap();
    let database = place.path().to_str().unwrap();
    let plot = place.path().join("missing/plot.svg");
    let plotted = ["--db", database, "--plot", plot.to_str().unwrap()];
    assert!(wrong(&plotted).fails(1).contains("plot.svg"), "before anything is loaded");
    let missing = wrong(&["--db", database, "--no-load"]).fails(3);
    assert!(missing.contains("usertable"), "{missing}");
    let level = wrong(&["--db", database, "--scale", "0.01", "--isolation", "none"]).fails(3);
    assert!(level.contains("default_transaction_isolation"), "{level}");
}
