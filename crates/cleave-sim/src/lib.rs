//! Deterministic simulation: a seed in, a trace and a verdict out.
//!
//! A real database, its real sessions and real devices run on one thread in a [`world`] whose time, randomness,
//! files, media and network are made up. The same seed gives the same run, to the last command and block:
//!
//! 1. [`world`]: the clock, the seeded randomness, the trace; [`executor`]: one thread on which all of it takes turns.
//! 2. [`media`]: blocks with live and durable copies, which fail, tear and forget. [`files`]: the same for the host's
//!    own files.
//! 3. [`machine`]: the device far away, which is killed, loses power and comes back. [`link`]: the way there, which
//!    delays, loses and repeats commands and replies.
//! 4. [`model`]: what the database must hold. [`workload`]: statements and blocks that know their effect on it.
//! 5. [`run`]: one seed: statements, faults, crashes, and the comparison with the model after each.
//!
//! ```text
//!          workload ── SQL ──▶ Session ── Database ──┬── device 0 ─── media ┐
//!             │                              │        └── link ── machine ─ media ┤ faults by
//!           model ◀── rows, errors ──────────┘             files ─────────────────┘ the seed
//! ```
//!
//! What is checked: rows that were acknowledged are there, whatever happened; a statement is there whole or not at
//! all; every query gives the model's rows under every split; errors are of the classes that faults may cause; space in
//! use is space that is named; nothing hangs (in simulated time) and nothing panics. Each step of a commit can be
//! made to fail by its name ([`world::StepFault`]).
//!
//! Deliberately absent: TCP, TLS and frames, which have fuzzers and tests of their own; bit rot that stays, which
//! is an error forever and not a state to return from.

pub mod executor;
pub mod files;
pub mod link;
pub mod machine;
pub mod media;
pub mod model;
pub mod run;
pub mod workload;
pub mod world;

pub use run::{
    Failure, Report, run_seed, run_seed_cut_at, run_seed_failing_at, run_seed_on_lying_media,
    run_seed_failing_over,
};
pub use world::LinkFault;
