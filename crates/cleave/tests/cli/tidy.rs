//! House rules that a program can check (see CONTRIBUTING.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The longest source file; most are far shorter.
const LINE_COUNT_MAX: usize = 900;
/// The widest line, in characters.
const LINE_WIDTH_MAX: usize = 120;

/// The crates that each may name directly: everything below it in ARCHITECTURE.md's drawing. The leaves may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("cleave-shmem", &[]),
    ("cleave-media", &["cleave-shmem"]),
    ("cleave-store", &["cleave-shmem", "cleave-media"]),
    ("cleave-fragment", &["cleave-shmem", "cleave-media", "cleave-store"]),
    ("cleave-txn", &["cleave-shmem", "cleave-media", "cleave-store"]),
    ("cleave-plan", &["cleave-shmem", "cleave-media", "cleave-store", "cleave-fragment"]),
    // The programs send traces by it; libraries only make spans.
    ("cleave-traces", &["cleave-fragment"]),
    (
        "cleave-device",
        &["cleave-shmem", "cleave-media", "cleave-store", "cleave-fragment", "cleave-traces"],
    ),
    (
        "cleave-catalog",
        &[
            "cleave-shmem",
            "cleave-media",
            "cleave-store",
            "cleave-fragment",
            "cleave-txn",
            "cleave-plan",
        ],
    ),
    (
        "cleave-sql",
        &[
            "cleave-shmem",
            "cleave-media",
            "cleave-store",
            "cleave-fragment",
            "cleave-txn",
            "cleave-plan",
            "cleave-catalog",
        ],
    ),
    (
        "cleave-engine",
        &[
            "cleave-shmem",
            "cleave-media",
            "cleave-store",
            "cleave-fragment",
            "cleave-txn",
            "cleave-plan",
            "cleave-catalog",
        ],
    ),
    (
        "cleave-query",
        &[
            "cleave-shmem",
            "cleave-media",
            "cleave-store",
            "cleave-fragment",
            "cleave-txn",
            "cleave-plan",
            "cleave-catalog",
            "cleave-sql",
            "cleave-engine",
        ],
    ),
    (
        "cleave-replica",
        &[
            "cleave-shmem",
            "cleave-media",
            "cleave-store",
            "cleave-fragment",
            "cleave-txn",
            "cleave-plan",
            "cleave-catalog",
            "cleave-engine",
        ],
    ),
    (
        "cleave-host",
        &[
            "cleave-shmem",
            "cleave-media",
            "cleave-store",
            "cleave-fragment",
            "cleave-txn",
            "cleave-plan",
            "cleave-catalog",
            "cleave-sql",
            "cleave-engine",
            "cleave-query",
            "cleave-replica",
        ],
    ),
    // The one library in which host and device meet.
    ("cleave-embedded", &["cleave-media", "cleave-device", "cleave-host"]),
    // It knows servers by their protocol alone.
    ("cleave-client", &[]),
    // It knows plans by their JSON alone.
    ("cleave-pictures", &[]),
];
const LEAVES: &[&str] = &["cleave", "cleave-python", "cleave-sim", "cleave-bench", "cleave-fuzz"];

/// Sync crates: they run in a simulator, so they use no runtime and no sockets.
const WITHOUT_TOKIO: &[&str] =
    &["cleave-shmem", "cleave-media", "cleave-store", "cleave-txn", "cleave-plan", "cleave-sql"];

#[test]
fn every_source_file_opens_with_a_module_comment() {
    let offenders: Vec<_> = files_with_extension("rs")
        .into_iter()
        .filter(|(_, text)| {
            // Only an attribute may stand above the comment.
            let first = text.lines().find(|line| !line.starts_with("#!["));
            !first.is_some_and(|line| line.starts_with("//! "))
        })
        .map(|(path, _)| path)
        .collect();
    assert!(offenders.is_empty(), "these files do not open with `//! …`: {offenders:#?}");
}

#[test]
fn no_source_file_is_too_long() {
    let offenders: Vec<_> = files_with_extension("rs")
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, line_count)| *line_count > LINE_COUNT_MAX)
        .collect();
    assert!(offenders.is_empty(), "longer than {LINE_COUNT_MAX} lines: {offenders:#?}");
}

#[test]
fn no_line_is_wider_than_a_reader_s_window() {
    let mut found = Vec::new();
    for (path, text) in all_text_files() {
        let extension = path.extension().and_then(|found| found.to_str()).unwrap_or_default();
        // Data, pictures, notebooks with theirs, and lists that a test writes.
        if ["dat", "csv", "svg", "json", "txt", "exceptions", "ipynb"].contains(&extension) {
            continue;
        }
        let (mut is_fenced, mut is_result, mut is_error) = (false, false, false);
        for (number, line) in text.lines().enumerate() {
            is_fenced ^= extension == "md" && line.trim_start().starts_with("```");
            is_result = extension == "slt" && !line.is_empty() && (is_result || line == "----");
            let begins = line.starts_with("statement error") || line.starts_with("query error");
            is_error = begins || is_error && !line.is_empty();
            let comment = line.trim_start().trim_start_matches(['/', '!', '#', ' ']);
            // Tables, printed output, statements of which an error says the column, and what cannot be broken.
            let is_table = comment.starts_with('|');
            let is_literal = extension == "slt" && comment.starts_with('\'');
            let is_one_word =
                comment.split(' ').any(|word| word.chars().count() > LINE_WIDTH_MAX / 2);
            if line.chars().count() > LINE_WIDTH_MAX
                && !(is_fenced || is_result || is_error || is_table || is_literal || is_one_word)
            {
                found.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "lines wider than {LINE_WIDTH_MAX} columns: {found:#?}");
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    // Put together at compile time, so that this file does not match itself.
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/home", "/"),
        concat!("/tmp/te", "am"),
    ];
    let mut offenders = Vec::new();
    for (path, text) in all_text_files() {
        for (index, line) in text.lines().enumerate() {
            if forbidden.iter().any(|needle| line.contains(needle)) {
                offenders.push(format!("{}:{}: {line}", path.display(), index + 1));
            }
        }
    }
    assert!(offenders.is_empty(), "machine paths: {offenders:#?}");
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    for manifest in manifests() {
        let text = std::fs::read_to_string(&manifest).unwrap();
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{} lacks `[lints] workspace = true`",
            manifest.display()
        );
    }
}

#[test]
fn every_crate_says_what_it_is_for() {
    for package in packages() {
        let description = package["description"].as_str().unwrap_or_default();
        assert!(description.len() > 10, "{} has no description in Cargo.toml", package["name"]);
    }
}

#[test]
fn crates_depend_only_downwards() {
    let may_use: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let dependencies = direct_dependencies();
    let mut offences = Vec::new();
    for (name, uses) in &dependencies {
        if LEAVES.contains(&name.as_str()) {
            continue;
        }
        let Some(allowed) = may_use.get(name.as_str()) else {
            offences.push(format!("{name} is not in ARCHITECTURE.md's drawing"));
            continue;
        };
        for used in uses {
            if dependencies.contains_key(used) && !allowed.contains(&used.as_str()) {
                offences.push(format!("{name} depends on {used}, which does not stand below it"));
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
    assert!(dependencies.len() >= 7, "cargo metadata lists too few crates: {dependencies:?}");
}

#[test]
fn sync_crates_do_not_know_tokio() {
    for (name, uses) in direct_dependencies() {
        if WITHOUT_TOKIO.contains(&name.as_str()) {
            let runtime: Vec<_> = uses.iter().filter(|used| used.starts_with("tokio")).collect();
            assert!(runtime.is_empty(), "{name} is sync but depends on {runtime:?}");
        }
    }
}

#[test]
fn the_device_alone_links_neither_sql_parser_nor_parquet() {
    let unwanted =
        ["sqlparser", "parquet", "datafusion", "cleave-catalog", "cleave-plan", "cleave-txn"];
    check_links_none_of("cleave-device", &unwanted);
}

#[test]
fn the_engine_alone_links_no_sql_parser() {
    let unwanted = ["sqlparser", "parquet", "datafusion", "datafusion-sql", "cleave-sql"];
    check_links_none_of("cleave-engine", &unwanted);
    check_links_none_of("cleave-replica", &unwanted);
}

/// Checks that the dependencies of `package` built alone have none of `unwanted`.
fn check_links_none_of(package: &str, unwanted: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none"])
        .args(["--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains("cleave-fragment"), "not a dependency tree: {tree}");
    for unwanted in unwanted {
        assert!(!names.contains(unwanted), "{package}, built alone, links {unwanted}");
    }
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let mut link_count = 0;
    for (path, text) in files_with_extension("md") {
        for target in markdown_links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            link_count += 1;
            if !root().join(&path).parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
    assert!(link_count > 10, "the documents hold too few links: {link_count}");
}

/// Documents name functions as ``[`Type::function`](path/file.rs)``: the file must define it.
#[test]
fn functions_that_documents_name_exist() {
    let mut missing = Vec::new();
    let mut name_count = 0;
    for (path, text) in files_with_extension("md") {
        for (label, target) in labelled_links(&text) {
            if !target.ends_with(".rs") || !label.starts_with('`') {
                continue;
            }
            let name = label.trim_matches('`').rsplit("::").next().unwrap_or_default();
            let name = name.trim_end_matches("()");
            if name.contains(['.', '/']) {
                continue; // the label is a file's name
            }
            let source = root().join(&path).parent().unwrap().join(&target);
            let source = std::fs::read_to_string(source).unwrap_or_default();
            name_count += 1;
            let kinds = ["fn", "struct", "enum", "trait", "type", "const", "mod", "message"];
            let defines = kinds.iter().any(|kind| {
                source.match_indices(&format!("{kind} {name}")).any(|(at, found)| {
                    !source[at + found.len()..]
                        .starts_with(|c: char| c.is_alphanumeric() || c == '_')
                })
            });
            if !defines {
                missing.push(format!("{}: {label} in {target}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "documents name what the code does not define: {missing:#?}");
    assert!(name_count > 10, "the documents name too few functions: {name_count}");
}

#[test]
fn the_readme_has_the_two_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut commands = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            commands.push(line.split(" #").next().unwrap_or_default().trim());
        }
    }
    assert_eq!(commands, ["cargo run --release -- demo", "cargo test --workspace"]);
}

// ---- reading the tree ----------------------------------------------------------------------------

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files_with_extension(extension: &str) -> Vec<(PathBuf, String)> {
    all_text_files()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// Every text file of the project that people wrote, by its path from the root.
fn all_text_files() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut pending = vec![root.clone()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            // In a second working tree `.git` is a file.
            if ["target", "dist", ".git", "bench-results"].iter().any(|skipped| name == *skipped) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            } else if name != "Cargo.lock"
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                let path = entry.path().strip_prefix(&root).unwrap().to_path_buf();
                found.push((path, text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "the source tree was not found");
    found
}

fn markdown_links(text: &str) -> Vec<String> {
    labelled_links(text).into_iter().map(|(_, target)| target).collect()
}

/// `[label](target)` outside code blocks.
fn labelled_links(text: &str) -> Vec<(String, String)> {
    let mut links = Vec::new();
    let mut inside_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside_code = !inside_code;
        }
        if inside_code {
            continue;
        }
        for (middle, _) in line.match_indices("](") {
            let Some(open) = line[..middle].rfind('[') else { continue };
            let Some(close) = line[middle..].find(')') else { continue };
            links.push((
                line[open + 1..middle].to_owned(),
                line[middle + 2..middle + close].to_owned(),
            ));
        }
    }
    links
}

fn manifests() -> Vec<PathBuf> {
    packages()
        .iter()
        .map(|package| PathBuf::from(package["manifest_path"].as_str().unwrap()))
        .collect()
}

/// The workspace's packages, as `cargo metadata` describes them.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Package name → the packages it depends on directly, tests and build scripts aside.
fn direct_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let normal = |dependency: &&serde_json::Value| dependency["kind"].is_null();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    packages()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            (name(package), dependencies.iter().filter(normal).map(name).collect())
        })
        .collect()
}
