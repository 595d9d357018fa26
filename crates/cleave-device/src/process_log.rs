//! The log of a server's process: one line of standard error for each event, for operators and their tools.
//!
//! ```text
//!  text   2026-01-31T12:00:00.000000Z  INFO cleave: serving database "films" at 127.0.0.1:5432
//!  json   {"timestamp":"2026-01-31T12:00:00.000000Z","level":"INFO","message":"serving …","target":"cleave"}
//! ```
//!
//! Programs begin it once they know their options. Libraries do not log: they give errors, or tell whoever calls them.
//!
//! Invariant: an event is one line, whatever names it has; if nobody reads, the process goes on.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;

/// How lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object each.
    Json,
}

/// Which events are written: those of a level, and what is graver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// What the process cannot go on with, or has lost.
    Error,
    /// What an operator should look at.
    Warn,
    /// What the process does.
    #[default]
    Info,
    /// What helps to find a defect.
    Debug,
}

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

impl LogFormat {
    /// The format of this name.
    ///
    /// # Errors
    /// There is none; the names that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("allowed are text and json".to_owned()),
        }
    }
}

impl LogLevel {
    /// The level of this name.
    ///
    /// # Errors
    /// There is none; the names that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err("allowed are error, warn, info and debug".to_owned()),
        }
    }

    fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

/// Writes the events of this process from now on.
pub fn begin(format: LogFormat, level: LogLevel) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(level.filter())
        .with_ansi(false)
        .with_writer(|| Line);
    let begun = match format {
        LogFormat::Text => tracing::subscriber::set_global_default(lines.finish()),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            tracing::subscriber::set_global_default(lines.with_span_list(false).finish())
        }
    };
    // Only the first one counts.
    if begun.is_ok() {
        HAS_BEGUN.store(true, Ordering::Release);
    }
}

/// Whether events are written.
#[must_use]
pub fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Acquire)
}

/// Takes one line at a time.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        drop(std::io::stderr().write_all(&one_line(line)));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `line` without control characters before its end.
fn one_line(line: &[u8]) -> Vec<u8> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let plain = text.iter().map(|byte| if byte.is_ascii_control() { b' ' } else { *byte });
    plain.chain([b'\n']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_no_further_lines() {
        assert_eq!(one_line(b"a\nb\x1b[31mc\r\n"), b"a b [31mc \n");
        assert_eq!(one_line("ü".as_bytes()), "ü\n".as_bytes());
    }
}
