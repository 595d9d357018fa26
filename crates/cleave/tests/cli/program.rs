//! Runs `cleave` and captures its output.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The result of one run of the program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) exit_code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Standard output of a run that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.exit_code, 0, "{self:#?}");
        self.stdout
    }

    /// Standard error of a run that must have failed with `exit_code`.
    #[track_caller]
    pub(crate) fn fails(self, exit_code: i32) -> String {
        assert_eq!(self.exit_code, exit_code, "{self:#?}");
        self.stderr
    }
}

/// `cleave ARGUMENTS` with nothing on standard input.
pub(crate) fn cleave(arguments: &[&str]) -> Run {
    cleave_with_input(arguments, "")
}

/// `cleave ARGUMENTS` with `input` on standard input.
pub(crate) fn cleave_with_input(arguments: &[&str], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
        .args(arguments)
        .env_remove("CLEAVE_DB")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that stops early closes its input, which must not fail the test.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    Run {
        exit_code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Asks a process to end, as an operator does.
pub(crate) fn terminate(process: &Child) {
    let process = nix::unistd::Pid::from_raw(process.id().cast_signed());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM).unwrap();
}

/// `cleave sql --db DIRECTORY ARGUMENTS`.
pub(crate) fn sql(directory: &Path, arguments: &[&str]) -> Run {
    let directory = directory.to_str().unwrap();
    cleave(&[&["sql", "--create", "--db", directory], arguments].concat())
}
