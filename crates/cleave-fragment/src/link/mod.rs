//! How commands and slots cross from the host to a device and back.
//!
//! ```text
//! host ── Link::call, Link::execute ──▶ EmbeddedLink ─────────────────────────▶ DeviceService
//!                                  └──▶ RemoteLink ─ frames, TLS ─ (cleaved) ─▶ DeviceService
//! ```
//!
//! [`Link`] is what the host holds, [`DeviceService`] what a device is; [`EmbeddedLink`] joins the
//! two in one process, [`RemoteLink`] over TCP, and one conformance suite runs over both. [`tls`]
//! pins the device's certificate, [`token_bucket`] holds a link to a rate.
//!
//! Invariant: a link adds no meaning. What a command does is said in
//! [`command`](crate::command) and done by the device alone.

mod attempts;
pub mod embedded;
#[expect(clippy::module_inception, reason = "the trait that this directory is named after")]
pub mod link;
pub mod metered;
pub mod remote;
mod remote_connection;
pub mod simulated;
pub mod tls;
pub mod token_bucket;

pub use embedded::EmbeddedLink;
pub use link::{
    AttachMode, DeviceService, Link, LinkError, RunControl, RunStream, SlotForm, SlotSender,
    Traffic,
};
pub use remote::{AbandonedRuns, RemoteAddress, RemoteLink};
pub use simulated::{Dial, SimulatedNetwork, dial_simulated, simulate_network};
pub use tls::{DeviceIdentity, TlsFileError, Token};
