//! How commands and slots cross from the host to a device and back.
//!
//! ```text
//! host ── Link::call, Link::execute ──▶ EmbeddedLink ─────────────────────────▶ DeviceService
//!                                  ├──▶ LocalLink ── frames, rings ─ (cleaved) ─▶ DeviceService
//!                                  └──▶ RemoteLink ─ frames, TLS ─── (cleaved) ─▶ DeviceService
//! ```
//!
//! 1. [`Link`] is what the host holds, [`DeviceService`] what a device is.
//! 2. [`EmbeddedLink`] joins the two in one process, [`LocalLink`] through shared memory, [`RemoteLink`] over TCP;
//!    one conformance suite runs over all three.
//! 3. `connected_link` is what the last two share, `dial` how they connect, `connection` what they talk over.
//! 4. [`local_stream`] makes shared memory a stream of bytes; [`tls`] pins the device's certificate;
//!    [`token_bucket`] holds a link to a rate, [`metered`] counts what crosses.
//!
//! Invariant: a link adds no meaning. What a command does is said in
//! [`command`](crate::command) and done by the device alone.

mod attempts;
mod connected_link;
mod connection;
mod dial;
pub mod embedded;
#[expect(clippy::module_inception, reason = "the trait that this directory is named after")]
pub mod link;
pub mod local;
pub mod local_stream;
pub mod metered;
pub mod remote;
pub mod simulated;
pub mod tls;
pub mod token_bucket;

pub use connected_link::AbandonedRuns;
pub use embedded::EmbeddedLink;
pub use link::{
    AttachMode, DeviceService, Link, LinkError, RunControl, RunStream, SlotForm, SlotSender,
    Traffic,
};
pub use local::LocalLink;
pub use remote::{RemoteAddress, RemoteLink};
pub use simulated::{Dial, SimulatedNetwork, dial_simulated, simulate_network};
pub use tls::{DeviceIdentity, TlsFileError, Token};
