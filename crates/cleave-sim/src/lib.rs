//! Deterministic simulation: a seed in, a trace and a verdict out.
//!
//! A real database, its real sessions and real devices run on one thread in a [`world`] whose time, randomness, files,
//! media and network are simulated. The same seed gives the same run, to the last command and block:
//!
//! 1. [`world`]: the clock, the seeded randomness, the trace; [`executor`]: the one thread that runs everything.
//! 2. [`media`]: blocks with live and durable contents, which fail, tear and lose writes. [`files`]: the same for the
//!    host's own files.
//! 3. [`machine`]: a remote device, which is killed, loses power and comes back; in some seeds two, with the copies of
//!    a mirror. [`link`]: the link to it, which delays, loses and repeats commands and replies. `peers`: the links of
//!    machines to each other, over which pages and rows go.
//! 4. [`model`]: the expected content of the database. [`workload`]: statements and blocks, with their effect on it.
//! 5. [`run`]: one seed: statements, faults, crashes, and the comparison with the model after each.
//!
//! ```text
//!          workload ── SQL ──▶ Session ── Database ──┬── device 0 ─── media ┐
//!             │                              │        └── link ── machine ─ media ┤ faults by
//!           model ◀── rows, errors ──────────┘             files ─────────────────┘ the seed
//! ```
//!
//! The checks: acknowledged rows are there, whatever happened; a statement is there whole or not at all; every query
//! gives the model's rows under every split; errors are of the classes that faults may cause; all used space is
//! referenced; nothing hangs (in simulated time) and nothing panics. Each step of a commit can be made to fail by its
//! name ([`world::StepFault`]).
//!
//! Deliberately absent: TCP, TLS and frames, which have fuzzers and tests of their own; persistent bit rot, which is an
//! error forever and not a state to recover from.

pub mod executor;
pub mod files;
pub mod link;
pub mod machine;
pub mod media;
pub mod model;
mod peers;
pub mod run;
pub mod workload;
pub mod world;

pub use run::{
    Failure, Report, run_seed, run_seed_between_devices, run_seed_cut_at, run_seed_failing_at,
    run_seed_failing_over, run_seed_on_lying_media,
};
pub use world::{LinkFault, PeersServed};
