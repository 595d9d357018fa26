//! `cleave completions` and `cleave man`: nothing that the programs take is missing.

use std::fs;

use cleave_device::command_line::HELP;
use tempfile::tempdir;

use crate::program::cleave;

/// The subcommands that `cleave --help` lists.
fn subcommands() -> Vec<String> {
    let help = cleave(&["--help"]).ok();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() > 15 && names.iter().any(|name| name == "sql"), "{names:?}");
    names
}

/// The options of `cleaved`, without their dashes.
fn device_options() -> Vec<&'static str> {
    let lines = HELP.lines().filter_map(|line| line.strip_prefix("  --"));
    let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 15 && names.contains(&"media"), "{names:?}");
    names
}

#[test]
fn shells_complete_every_subcommand_and_option() {
    for shell in ["bash", "zsh", "fish"] {
        let script = cleave(&["completions", shell]).ok();
        let options = ["query-memory", "tls-self-made"].map(str::to_owned);
        for name in subcommands().iter().chain(&options) {
            assert!(script.contains(name), "{shell} lacks {name}");
        }
        let script = cleave(&["completions", shell, "cleaved"]).ok();
        for name in device_options() {
            assert!(script.contains(name), "{shell} lacks --{name}");
        }
    }
    cleave(&["completions", "csh"]).fails(1);
}

#[test]
fn every_subcommand_has_a_page() {
    let place = tempdir().unwrap();
    let folder = place.path().join("man");
    cleave(&["man", "--out", folder.to_str().unwrap()]).ok();
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let main = read("cleave.1");
    for name in subcommands() {
        let page = read(&format!("cleave-{name}.1"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
        // Hyphens are escaped.
        assert!(main.replace('\\', "").contains(&format!("cleave-{name}(1)")), "{name}: {main}");
    }
    read("cleave-device-add.1");
    let device = read("cleaved.8").replace('\\', "");
    for name in device_options() {
        assert!(device.contains(&format!("--{name}")), "{name}: {device}");
    }
    // What continues a line of the help, and what stands below its options.
    for text in ["a block device keeps both itself", "Exit codes: 0 ended as asked"] {
        assert!(device.contains(text), "{text}: {device}");
    }
    assert!(!folder.join("cleave-device-process.1").exists(), "it is hidden");
}

#[test]
fn a_page_is_printed_by_its_name() {
    let page = cleave(&["man"]).ok();
    assert!(page.contains(".TH cleave 1"), "{page}");
    assert_eq!(cleave(&["man", "sql"]).ok(), cleave(&["man", "cleave-sql"]).ok());
    let said = cleave(&["man", "frobnicate"]).fails(1);
    assert!(said.contains("no manual page \"frobnicate\""), "{said}");
}
