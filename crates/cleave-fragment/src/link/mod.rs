//! How commands and slots cross from the host to a device and back.
//!
//! ```text
//! host ── Link::call, Link::execute ──▶ EmbeddedLink ────────────────────────────────▶ DeviceService
//!                                  └──▶ ConnectedLink ─┬ frames, rings ─ (cleaved) ─▶ DeviceService
//!                                                      └ frames, TLS ─── (cleaved) ─▶ DeviceService
//! ```
//!
//! 1. [`Link`] is the host's end, [`DeviceService`] the device's.
//! 2. [`EmbeddedLink`] joins the two in one process, [`ConnectedLink`] through shared memory ([`ConnectedLink::local`])
//!    or over TCP ([`ConnectedLink::remote`]); one conformance suite runs over all three.
//! 3. `dial` connects a link, `connection` is the connection.
//! 4. `expected_rows` checks the rows that a device sends; `fragment_span` measures a run for traces.
//! 5. [`local_stream`] makes shared memory a stream of bytes; [`tls`] pins the device's certificate; [`token_bucket`]
//!    limits a link's rate, [`metered`] counts what crosses.
//!
//! Invariant: a link adds no meaning. The effect of a command is documented in [`command`](crate::command) and
//! implemented by the device alone.

mod attempts;
mod connected_link;
mod connection;
mod dial;
pub mod embedded;
mod expected_rows;
mod fragment_span;
pub mod handed_table;
#[expect(clippy::module_inception, reason = "the trait that this directory is named after")]
pub mod link;
pub mod local;
pub mod local_stream;
pub mod metered;
pub mod remote;
pub mod simulated;
pub mod tls;
pub mod token_bucket;

pub use connected_link::{AbandonedRuns, ConnectedLink};
pub use embedded::EmbeddedLink;
pub use link::{
    AttachMode, DeviceService, Link, LinkError, RunControl, RunStream, SlotForm, SlotSender,
    Traffic,
};
pub use remote::RemoteAddress;
pub use simulated::{Dial, SimulatedNetwork, dial_simulated, simulate_network};
pub use tls::{DeviceIdentity, TlsFileError, Token};
