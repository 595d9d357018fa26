//! Fuzzers of everything that Cleave reads from media and from peers: bytes in, and no panic, no endless loop and
//! no memory beyond measure out.
//!
//! In the order of one round:
//!
//! 1. [`targets`]: what is fuzzed. A [`Target`] has seeds, made by the real encoders, and a check of one input.
//!    Checksums are made to fit first, so that damage reaches the code behind them.
//! 2. [`mutate`]: an input from the seeds, by one number: the same number gives the same input for ever.
//! 3. [`protobuf`]: mutations that know fields of messages.
//! 4. [`hunt`]: input after input, in a process that may die, and its parent, which finds out of what.
//!
//! `cargo test` runs a fixed number of inputs; with `FUZZ_SECONDS` set, as many as that time has room for. There is
//! no coverage guidance: that takes a nightly toolchain (`docs/design/testing.md`).

pub mod hunt;
pub mod mutate;
pub mod protobuf;
pub mod targets;

pub use targets::{TARGETS, Target};
