//! Runs every target: a fixed number of inputs with `cargo test`, more with `FUZZ_SECONDS=60`, of CPU time.
//!
//! `FUZZ_FROM` begins at another number, `FUZZ_INPUT` tries one saved input. Each test starts this program again as the
//! process that tries inputs, with limited memory and time.

#![expect(clippy::unwrap_used, reason = "it is a test, its helpers too")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cleave_fuzz::Target;
use cleave_fuzz::hunt::{Order, Said, careful_path, child};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Inputs that a plain `cargo test` tries.
const COUNT_DEFAULT: u64 = 1500;
/// Memory limit of a child, beyond its initial size: a decoder that trusts a length exceeds it.
const MEMORY_BYTES: u64 = 768 << 20;
/// CPU seconds of one input after which the process is ended.
const CPU_SECONDS: u64 = 60;

const TARGET: &str = "CLEAVE_FUZZ_TARGET";
const CAREFUL: &str = "CLEAVE_FUZZ_CAREFUL";

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn failures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-failures")
}

/// Runs one target in a child, and reports what killed it.
fn hunt(name: &str) {
    let target = Target::named(name).unwrap();
    if let Ok(path) = std::env::var("FUZZ_INPUT") {
        (target.run)(&std::fs::read(&path).unwrap());
        return;
    }
    let (last, ended_well) = run_child(name, number("FUZZ_FROM").unwrap_or(0), false);
    match last {
        Said::Done(_) if ended_well => {}
        Said::Failed(path) => report(name, &path),
        Said::At(at) | Said::Done(at) => {
            // It died silently: once more, in careful mode.
            let (again, _) = run_child(name, at, true);
            let path = careful_path(&failures(), &target);
            match again {
                Said::At(_) if path.exists() => report(name, &path),
                Said::At(number) => panic!("{name}: the process dies where input {number} is made"),
                Said::Failed(path) => report(name, &path),
                Said::Done(_) => {
                    panic!("{name}: the process died after input {at}, and did not die again")
                }
            }
        }
    }
}

fn report(name: &str, path: &Path) -> ! {
    panic!(
        "{name}: the input in {0} fails; again:\n  FUZZ_INPUT={0} cargo test --workspace --test fuzz {name}",
        path.display()
    );
}

fn run_child(name: &str, from: u64, careful: bool) -> (Said, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child_that_tries_inputs", "--ignored", "--nocapture"])
        .env(TARGET, name)
        .env("FUZZ_FROM", from.to_string())
        .stdout(Stdio::piped())
        // Shows a panic's message; a silent death is known by its input.
        .stderr(Stdio::inherit());
    if careful {
        command.env(CAREFUL, "1");
    }
    let mut process = command.spawn().unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let mut last = Said::At(from);
    for line in output.lines() {
        last = Said::parse(&line.unwrap()).unwrap_or(last);
    }
    (last, process.wait().unwrap().success())
}

#[test]
fn pages() {
    hunt("pages");
}

#[test]
fn stored() {
    hunt("stored");
}

#[test]
fn commands() {
    hunt("commands");
}

#[test]
fn fragments() {
    hunt("fragments");
}

#[test]
fn logs() {
    hunt("log");
}

#[test]
fn an_input_that_panics_is_saved() {
    let target = Target {
        run: |bytes| assert!(bytes.len() < 100, "long"),
        ..Target::named("pages").unwrap()
    };
    let order = Order {
        from: 0,
        count: 100,
        time: Duration::from_secs(60),
        failures: tempfile::tempdir().unwrap().keep(),
        careful: false,
    };
    let mut said = Vec::new();
    child(&target, &order, &mut said).unwrap();
    let last = String::from_utf8(said).unwrap().lines().last().and_then(Said::parse);
    let Some(Said::Failed(path)) = last else { panic!("{last:?}") };
    assert!(std::fs::read(&path).unwrap().len() >= 100);
    std::fs::remove_dir_all(&order.failures).unwrap();
}

#[test]
#[ignore = "run as a child by the others"]
fn child_that_tries_inputs() {
    let Ok(name) = std::env::var(TARGET) else { return };
    let target = Target::named(&name).unwrap();
    let seconds = number("FUZZ_SECONDS");
    limit(seconds.unwrap_or(0));
    let order = Order {
        from: number("FUZZ_FROM").unwrap_or(0),
        count: if seconds.is_some() { u64::MAX } else { COUNT_DEFAULT },
        time: Duration::from_secs(seconds.unwrap_or(3600)),
        failures: failures(),
        careful: std::env::var(CAREFUL).is_ok(),
    };
    child(&target, &order, &mut std::io::stdout().lock()).unwrap();
}

/// Limits the resources of this process.
fn limit(seconds: u64) {
    // Its present size, in pages.
    let size = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = size.split(' ').next().unwrap().parse().unwrap();
    let bytes = pages * 4096 + MEMORY_BYTES;
    // Threads and their stacks, which making the seeds takes, are only reserved.
    let bytes = bytes + (512 << 20);
    for (resource, most) in
        [(Resource::As, bytes), (Resource::Cpu, seconds + CPU_SECONDS), (Resource::Core, 0)]
    {
        let maximum = getrlimit(resource).maximum;
        let current = Some(most.min(maximum.unwrap_or(u64::MAX)));
        setrlimit(resource, Rlimit { current, maximum }).unwrap();
    }
}
