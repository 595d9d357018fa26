//! The tutorial is true: its commands run, in order, and print what it shows.
//!
//! A fenced block that begins with `console` holds a session of the shell: lines behind `cleave> `, up to the
//! semicolon, are sent, and what follows is what it prints. A line ` ...` stands for lines that are left out. A block
//! that begins with `sh` holds commands, of which those that this test knows are run. With `CLEAVE_WRITE_TUTORIAL=1`
//! the output in the page is written anew, but for blocks with lines left out.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

const PROMPT: &str = "cleave> ";
/// Commands of the tutorial that need what a test does not have: a fresh build, a terminal, other machines.
const NOT_RUN: [&str; 8] = [
    "cargo run",
    "cleave sql --db films\n",
    "cleave serve",
    "psql ",
    "cleave device add",
    "cleave load",
    "cleave sql --db films --set default_device",
    "cleave demo",
];

#[test]
fn the_tutorial_prints_what_it_shows() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("tutorial.md")).unwrap();
    let place = tempdir().unwrap();
    for entry in fs::read_dir(docs.join("tutorial")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path().join(path.file_name().unwrap())).unwrap();
    }
    // Settings of one session hold for the blocks behind it, as they do for a reader who types along.
    let mut settings = vec!["SET threads = 2".to_owned()];
    let (mut written, mut differences) = (String::new(), Vec::new());
    for part in parts(&page) {
        match part {
            Part::Text(text) => written.push_str(text),
            Part::Shell(text) => {
                written.push_str(text);
                for line in text.lines().filter(|line| !line.starts_with("```")) {
                    run_command(place.path(), line);
                }
            }
            Part::Session(text) => {
                let mut block = String::from("```console\n");
                for step in steps(text) {
                    let said = run_step(place.path(), &settings, &step.statement);
                    if step.statement.to_uppercase().starts_with("SET ") {
                        settings.push(step.statement.clone());
                    }
                    block.push_str(&step.as_typed);
                    if is_shown(&step.shown, &said) {
                        block.push_str(&step.shown);
                    } else {
                        differences.push(format!("{}\n{said}", step.as_typed));
                        let has_gaps = step.shown.lines().any(|line| line.trim() == "...");
                        block.push_str(if has_gaps { &step.shown } else { &said });
                        // A blank line keeps the statements apart.
                        if !has_gaps && step.shown.ends_with("\n\n") && !said.ends_with("\n\n") {
                            block.push('\n');
                        }
                    }
                }
                written.push_str(&block);
                written.push_str("```\n");
            }
        }
    }
    if std::env::var_os("CLEAVE_WRITE_TUTORIAL").is_some() {
        fs::write(docs.join("tutorial.md"), written).unwrap();
    }
    assert!(
        differences.is_empty(),
        "docs/tutorial.md shows other output than the program prints (CLEAVE_WRITE_TUTORIAL=1 writes it):\n{}",
        differences.join("\n")
    );
}

/// A piece of the page.
enum Part<'a> {
    Text(&'a str),
    /// Commands, with their fence.
    Shell(&'a str),
    /// What a session shows, without its fence.
    Session(&'a str),
}

fn parts(page: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = page;
    while let Some(at) =
        [rest.find("```console\n"), rest.find("```sh\n")].into_iter().flatten().min()
    {
        let (text, block) = rest.split_at(at);
        parts.push(Part::Text(text));
        let body = block.find('\n').unwrap() + 1;
        let end = body + block[body..].find("```\n").unwrap();
        let (whole, behind) = block.split_at(end + 4);
        parts.push(match block.starts_with("```console") {
            true => Part::Session(&block[body..end]),
            false => Part::Shell(whole),
        });
        rest = behind;
    }
    parts.push(Part::Text(rest));
    parts
}

/// A statement of a session, and what the page shows below it.
struct Step {
    /// With its prompt and line breaks.
    as_typed: String,
    statement: String,
    shown: String,
}

fn steps(session: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_open = false;
    for line in session.lines() {
        if let Some(text) = line.strip_prefix(PROMPT) {
            steps.push(Step {
                as_typed: format!("{line}\n"),
                statement: text.to_owned(),
                shown: String::new(),
            });
            is_open = !text.starts_with('\\') && !text.ends_with(';');
            continue;
        }
        let step = steps.last_mut().expect("a session begins with a prompt");
        if is_open {
            step.as_typed.push_str(&format!("{line}\n"));
            step.statement.push_str(&format!("\n{}", line.trim_start()));
            is_open = !line.ends_with(';');
        } else {
            step.shown.push_str(&format!("{line}\n"));
        }
    }
    steps
}

/// Runs `cleave …` in `place` where it is a command that can run here.
fn run_command(place: &Path, line: &str) {
    let known = |start: &&str| {
        line.starts_with(start.trim_end()) && (!start.ends_with('\n') || line == start.trim_end())
    };
    let Some(arguments) = line.strip_prefix("cleave ").filter(|_| !NOT_RUN.iter().any(&known))
    else {
        assert!(NOT_RUN.iter().any(known), "the tutorial has a command that no test runs: {line}");
        return;
    };
    let output = shell(place, &format!("{} {arguments}", env!("CARGO_BIN_EXE_cleave")));
    assert!(output.status.success(), "{line}: {output:?}");
}

/// What the shell prints of `statement`, its errors too.
fn run_step(place: &Path, settings: &[String], statement: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["sql", "--db", "films"]).current_dir(place);
    for setting in settings {
        command.args(["-c", setting]);
    }
    let output = command.args(["-c", statement]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = text(output.stdout) + &text(output.stderr);
    // What the settings before it said.
    let said = settings
        .iter()
        .fold(said, |said, _| said.strip_prefix("SET\n").map_or(said.clone(), str::to_owned));
    said.trim_start_matches('\n').lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn shell(place: &Path, line: &str) -> std::process::Output {
    Command::new("sh").args(["-c", line]).current_dir(place).output().unwrap()
}

/// Whether `shown`, in which a line ` ...` stands for any lines, is what was `said`.
fn is_shown(shown: &str, said: &str) -> bool {
    let trimmed = |text: &str| {
        text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    let (shown, said) = (trimmed(shown), trimmed(said));
    let pieces: Vec<&[String]> = shown.split(|line| line.trim() == "...").collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return shown == said };
    let Some(rest) = said.strip_prefix(*first) else { return false };
    let Some(mut rest) = rest.strip_suffix(*last) else { return false };
    for piece in middle {
        let Some(at) = rest.windows(piece.len().max(1)).position(|window| window == *piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[test]
fn lines_may_be_left_out() {
    assert!(is_shown("a\nb\n", "a\nb\n"));
    assert!(!is_shown("a\n", "a\nb\n"));
    assert!(is_shown("a\n ...\nc\n", "a\nb\nb\nc\n"));
    assert!(!is_shown("a\n ...\nc\n", "a\nb\n"));
    assert!(is_shown("a\n ...\nc\n ...\ne", "a\nb\nc\nd\ne"));
}
