//! The tutorial is true: all of its blocks run, in order and in one folder, and print what it shows.
//!
//! The folder has the page's own files where the repository has them, in `docs/tutorial`. What a block leaves there,
//! above all its database, the blocks behind it find.
//!
//! - A fenced block that begins with `console` holds a session of the shell: lines behind `cleave> `, up to the
//!   semicolon, are sent, and what follows is what it prints. A line ` ...` stands for lines that are left out. Each
//!   statement is a run of the shell, which gets what was `SET` since a block of commands.
//! - A block that begins with `sh` holds commands, which must succeed; the page does not show what they print. A server
//!   or a device goes on until its block ends. A test has [substitutes](SUBSTITUTES) for what takes long, and other
//!   ports.
//!
//! With `CLEAVE_WRITE_TUTORIAL=1` the output in the page is written anew, but for blocks with lines left out.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use crate::local_device::Process;
use crate::serve::client::Client;

const PROMPT: &str = "cleave> ";
/// How commands of the page begin, and what a test runs in place of that: it has this build alone, and little time.
const SUBSTITUTES: [(&str, &str); 2] = [
    ("cargo run --release -- demo", "cleave demo --scale 0.0002 --rounds 1"),
    ("cleaved ", "cleave device-process "),
];
/// How commands begin that go on until they are ended.
const GO_ON: [&str; 2] = ["cleave serve ", "cleave device-process "];
/// Where a server listens if nothing is said.
const SERVER_ADDRESS: &str = "127.0.0.1:5432";

#[test]
fn the_tutorial_prints_what_it_shows() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("tutorial.md")).unwrap();
    let folder = tempdir().unwrap();
    let place = folder.path();
    let files = place.join("docs/tutorial");
    fs::create_dir_all(&files).unwrap();
    for entry in fs::read_dir(docs.join("tutorial")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, files.join(path.file_name().unwrap())).unwrap();
    }
    // Settings hold for the blocks behind them until the shell is left, as they do for a reader who types along.
    let mut settings = vec!["SET threads = 2".to_owned()];
    let (mut written, mut differences) = (String::new(), Vec::new());
    for part in parts(&page) {
        match part {
            Part::Text(text) => written.push_str(text),
            Part::Shell(text) => {
                written.push_str(text);
                run_commands(place, text.lines().filter(|line| !line.starts_with("```")));
                settings.truncate(1);
            }
            Part::Session(text) => {
                let mut block = String::from("```console\n");
                for step in steps(text) {
                    let said = run_step(place, &settings, &step.statement);
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

/// Runs the commands of a block in `place`, one after the other.
fn run_commands<'a>(place: &Path, lines: impl Iterator<Item = &'a str>) {
    let mut running: Vec<Running> = Vec::new();
    for line in lines {
        let line = in_a_test(line, &running);
        if GO_ON.iter().any(|start| line.starts_with(start)) {
            running.push(Running::start(place, &line));
            continue;
        }
        let mut command = shell(place, &line);
        if line.starts_with("psql ") {
            let server = running.last().expect("the page starts a server before psql");
            if Command::new("psql").arg("--version").output().is_err() {
                ask(server, &line);
                continue;
            }
            command.env("PGPORT", server.port.to_string());
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }
}

/// `line` of the page as a test runs it, with the ports of what is `running`.
fn in_a_test(line: &str, running: &[Running]) -> String {
    let mut line = line.to_owned();
    for (shown, substitute) in SUBSTITUTES {
        if let Some(rest) = line.strip_prefix(shown) {
            line = format!("{substitute}{rest}");
        }
    }
    for one in running {
        line = line.replace(&one.address_shown, &format!("127.0.0.1:{}", one.port));
    }
    line
}

/// Makes the statement of a `psql` command by a client of these tests, where there is no psql.
fn ask(server: &Running, line: &str) {
    let statement = line.split('"').nth(1).expect("psql has a statement in double quotes");
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let answer = Client::begin(stream, "ada", None).unwrap().query(statement);
    assert!(answer.error.is_empty(), "{line}: {answer:?}");
}

/// A command that goes on until this is dropped.
struct Running {
    /// Where it listens according to the page.
    address_shown: String,
    /// Where it listens here.
    port: u16,
    _process: Process,
}

impl Running {
    /// Starts `line` on a free port, and waits until it listens there.
    fn start(place: &Path, line: &str) -> Self {
        // A comment would hide what is added.
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        let (before, behind) = line.split_once(" --listen ").unwrap_or((line, SERVER_ADDRESS));
        let (address_shown, others) = behind.split_once(' ').unwrap_or((behind, ""));
        let (port_file, log) = (place.join("port"), place.join("log"));
        drop(fs::remove_file(&port_file));
        // Without `exec` the shell would be ended, and the command go on.
        let line = format!("exec {before} --listen 127.0.0.1:0 --port-file port {others}");
        let mut child = shell(place, &line)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let port = loop {
            let text = fs::read_to_string(&port_file).unwrap_or_default();
            if let Ok(port) = text.trim().parse::<u16>() {
                break port;
            }
            let has_ended = child.try_wait().unwrap().is_some();
            assert!(!has_ended, "{line}: {}", fs::read_to_string(&log).unwrap());
            std::thread::park_timeout(Duration::from_millis(5));
        };
        Self { address_shown: address_shown.to_owned(), port, _process: Process::of(child) }
    }
}

/// What the shell prints of `statement`, its errors too.
fn run_step(place: &Path, settings: &[String], statement: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["sql", "--create", "--db", "films"]).current_dir(place).env_remove("CLEAVE_DB");
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

/// `line` for a shell in `place`, in which `cleave` is this build.
fn shell(place: &Path, line: &str) -> Command {
    let build = Path::new(env!("CARGO_BIN_EXE_cleave")).parent().unwrap().to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(build).chain(std::env::split_paths(&path));
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(place)
        .env("PATH", std::env::join_paths(folders).unwrap())
        // The user of this process may have no name, or a psql of its own taste.
        .envs([("PGUSER", "ada"), ("PSQLRC", "/dev/null")])
        .env_remove("CLEAVE_DB")
        .stdin(Stdio::null());
    command
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
