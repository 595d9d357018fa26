//! Sends traces to a collector, by OpenTelemetry's protocol: spans that have ended in, HTTP requests out.
//!
//! ```text
//!  SpanSink::take ─▶ queue, bounded ─▶ a thread: batches ─▶ protobuf ─▶ POST /v1/traces
//!        └── no room: dropped, counted                         └── no answer, or a bad one: dropped, counted
//! ```
//! 1. [`Collector`] is where they go, checked: plain HTTP to this machine alone, else TLS with a certificate that is
//!    pinned.
//! 2. [`Traces`] takes spans, and sends them in batches; [`Traces::end`] sends what is left.
//! 3. `client` sends one request, within limits of time and size.
//!
//! Invariants: who hands over a span never waits. What cannot be sent is dropped and counted, and told once. Nothing
//! that a collector answers is followed or kept. Only the programs use this crate: libraries know
//! [`SpanSink`](cleave_fragment::trace::SpanSink).
//!
//! Source: OTLP/HTTP, <https://opentelemetry.io/docs/specs/otlp/>.

mod client;
mod collector;
mod traces;

pub use collector::{Collector, CollectorError};
pub use traces::{Tell, Traces, TracesError};

#[cfg(test)]
mod tests;
