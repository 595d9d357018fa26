//! Fuzzers of everything that Cleave reads from media and from peers: no input may cause a panic, an endless loop or
//! unbounded memory use.
//!
//! In the order of one round:
//!
//! 1. [`targets`]: the fuzzed decoders. A [`Target`] has seeds, made by the real encoders, and a check of one input.
//!    Checksums are corrected first, so that damage reaches the code behind them.
//! 2. [`mutate`]: makes an input from the seeds and a number: the same number always gives the same input.
//! 3. [`protobuf`]: mutations that know fields of messages.
//! 4. [`hunt`]: runs inputs in a process that may die, and finds out of which one it died.
//!
//! `cargo test` runs a fixed number of inputs; with `FUZZ_SECONDS` set, as many as fit into that time. There is no
//! coverage guidance: that takes a nightly toolchain (`docs/design/testing.md`).

pub mod hunt;
pub mod mutate;
pub mod protobuf;
pub mod targets;

pub use targets::{TARGETS, Target};
