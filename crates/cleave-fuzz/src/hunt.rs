//! Runs many inputs through one target in a child process, and finds the input that killed the child.
//!
//! 1. The child ([`child`]) reports the number of the current input, and its finding: a panic, with the input in a
//!    file.
//! 2. The parent reads that ([`Said::parse`]). A child that died silently took too much memory, time or stack. The
//!    parent starts it again from the last number it reported, in careful mode: it reports each number, and saves each
//!    input before it is tried. So the saved one is the culprit; if none is saved, generating the input was.
//!
//! The caller, who starts the child, limits memory and time: that takes a system call.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cleave_media::process_cpu_time;

use crate::mutate::input;
use crate::targets::Target;

/// Inputs between two reports of a child.
const STEP: u64 = 64;

/// The task of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// First number.
    pub from: u64,
    /// Most inputs.
    pub count: u64,
    /// Most CPU time.
    pub time: Duration,
    /// The folder for inputs that fail.
    pub failures: PathBuf,
    /// Report each number before its input is made, and save each input before it is tried.
    pub careful: bool,
}

/// A line of a child's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// All inputs below this number passed.
    At(u64),
    /// It ended normally, before this number.
    Done(u64),
    /// An input failed, and was saved there.
    Failed(PathBuf),
}

/// Runs inputs, and reports to `out`.
///
/// # Errors
/// If `out` or the folder of failures cannot be written.
pub fn child(target: &Target, order: &Order, out: &mut dyn Write) -> std::io::Result<()> {
    std::fs::create_dir_all(&order.failures)?;
    let seeds = (target.seeds)();
    // Some panics are caught below the decoders; the others are printed when their input is tried again.
    std::panic::set_hook(Box::new(|_| {}));
    // Not the clock's time: a busy machine would try fewer inputs.
    let start = process_cpu_time();
    let end = order.from.saturating_add(order.count);
    let mut number = order.from;
    while number < end {
        if order.careful || (number - order.from).is_multiple_of(STEP) {
            Said::At(number).say(out)?;
            if process_cpu_time().saturating_sub(start) >= order.time {
                break;
            }
        }
        if order.careful {
            forget(&careful_path(&order.failures, target))?;
        }
        let bytes = input(&seeds, target.shape, number);
        if order.careful {
            std::fs::write(careful_path(&order.failures, target), &bytes)?;
        }
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_err() {
            let path = order.failures.join(format!("{}-{number}", target.name));
            std::fs::write(&path, &bytes)?;
            return Said::Failed(path).say(out);
        }
        number = number.saturating_add(1);
    }
    Said::Done(number).say(out)
}

/// Removes an input that was tried before.
fn forget(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The file in which a careful child saves the input that it is about to try.
#[must_use]
pub fn careful_path(failures: &Path, target: &Target) -> PathBuf {
    failures.join(format!("{}-fatal", target.name))
}

impl Said {
    /// Parses a line; None if it is not a child's.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (_, said) = line.split_once("child: ")?;
        let (what, rest) = said.split_once(' ')?;
        match what {
            "at" => rest.parse().ok().map(Self::At),
            "done" => rest.parse().ok().map(Self::Done),
            "failed" => Some(Self::Failed(rest.into())),
            _ => None,
        }
    }

    fn say(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Self::At(number) => writeln!(out, "child: at {number}"),
            Self::Done(number) => writeln!(out, "child: done {number}"),
            Self::Failed(path) => writeln!(out, "child: failed {}", path.display()),
        }?;
        out.flush()
    }
}
