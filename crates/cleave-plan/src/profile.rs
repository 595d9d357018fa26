//! The profile: the figures of a host, a device and the link between them, which cost models read.
//!
//! Measured where both run ([`cleave_fragment::profile`]); figures that were not measured are assumed, and marked so.

pub use cleave_fragment::profile::{Figure, LinkProfile, Origin, SideProfile};

mod published;

pub use published::{Accelerator, PUBLISHED, SideDescription};

/// Two sides and what lies between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The host.
    pub host: SideProfile,
    /// The device.
    pub device: SideProfile,
    /// From one to the other.
    pub link: LinkProfile,
}

impl Profile {
    /// Two sides of two usual x86 cores with 1 Gbit Ethernet between them: plausible, nothing of it measured.
    pub fn assumed() -> Self {
        let side = || SideProfile::assumed(2, 1 << 30);
        Self { host: side(), device: side(), link: LinkProfile::assumed() }
    }
}
