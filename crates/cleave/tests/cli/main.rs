//! The `cleave` program as a script sees it (exit codes, output, errors), and the house rules.
//!
//! One integration binary for the crate: [`tidy`] reads the source tree, the other modules run the program.
#![expect(clippy::unwrap_used, reason = "in a test, a broken expectation is the failure")]

mod advise;
mod agreement;
mod backup;
mod bench;
mod beside;
mod error_messages;
mod explain;
mod failover;
mod import;
mod killed;
mod killed_updates;
mod line_editor;
mod local_device;
mod manual;
mod module_cycles;
mod passes;
mod private;
mod program;
mod serve;
mod shell;
mod simulate;
mod soundness;
mod tidy;
mod tools;
mod tutorial;
