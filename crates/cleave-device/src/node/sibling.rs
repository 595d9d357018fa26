//! Another device of the node, whose media a run reads.
//!
//! The media are open in the process, pages are immutable, and whoever reads one verifies it. So nothing is sent for
//! it, and the device itself does nothing.
//!
//! Invariant: it is read only while it belongs to the incarnation of the database that the run is of. Whoever claims it
//! next may write over its pages; a read that is under way then fails the checksum of its page.

use std::fmt;
use std::sync::{Arc, Weak};

use cleave_fragment::command::Ownership;
use cleave_fragment::link::DeviceService;
use cleave_media::Media;

use super::{Node, NodeEngine};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sibling {
    node: Arc<Node>,
    number: usize,
    device: [u8; 16],
    owner: Ownership,
}

/// A device whose pages or rows a run cannot have: the host runs the fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HomeUnreachable {
    device: [u8; 16],
    reason: &'static str,
}

const NOT_HERE: &str = "it is no other device of this node";
const NO_ENGINE: &str = "it is no device of this node";
const NOT_OWNED: &str = "the incarnation of the database that asks does not have it";

impl NodeEngine {
    /// The other engine's `device`, for a run of `owner`.
    ///
    /// # Errors
    /// If it is not there, or not `owner`'s.
    pub(crate) fn sibling(
        &self,
        device: [u8; 16],
        owner: Ownership,
    ) -> Result<Sibling, HomeUnreachable> {
        let number = {
            let state = self.node.lock();
            let mut members = state.members.iter().enumerate();
            let found = members.find(|(number, member)| {
                let home = member.home.as_ref();
                *number != self.number && home.is_some_and(|home| home.device == device)
            });
            found.map(|(number, _)| number)
        };
        let number = number.ok_or(HomeUnreachable { device, reason: NOT_HERE })?;
        let sibling = Sibling { node: Arc::clone(&self.node), number, device, owner };
        sibling.media().map(|_| sibling)
    }

    /// The device `device` of the node, which may be this engine's, for a run of `owner`.
    ///
    /// # Errors
    /// If it is not there, or not `owner`'s.
    pub(crate) fn service(
        &self,
        device: [u8; 16],
        owner: Ownership,
    ) -> Result<Weak<dyn DeviceService>, HomeUnreachable> {
        let state = self.node.lock();
        let mut members = state.members.iter();
        let found = members.find(|member| member.home.as_ref().is_some_and(|h| h.device == device));
        let service = found.and_then(|member| Some((member, member.service.clone()?)));
        match service {
            Some((member, service)) if member.owner == Some(owner) => Ok(service),
            Some(_) => Err(HomeUnreachable { device, reason: NOT_OWNED }),
            None => Err(HomeUnreachable { device, reason: NO_ENGINE }),
        }
    }
}

impl Sibling {
    /// Which device it is.
    pub(crate) fn device(&self) -> [u8; 16] {
        self.device
    }

    /// Its media.
    ///
    /// # Errors
    /// If it has ended, or belongs to somebody else by now.
    pub(crate) fn media(&self) -> Result<Arc<dyn Media>, HomeUnreachable> {
        let state = self.node.lock();
        let member = state.members.get(self.number);
        let home = member.and_then(|member| member.home.as_ref());
        let is_owned = member.is_some_and(|member| member.owner == Some(self.owner));
        match home {
            Some(home) if is_owned => Ok(Arc::clone(&home.media)),
            Some(_) => Err(HomeUnreachable { device: self.device, reason: NOT_OWNED }),
            None => Err(HomeUnreachable { device: self.device, reason: NOT_HERE }),
        }
    }
}

impl fmt::Display for HomeUnreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what is on device ")?;
        self.device.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " cannot be read from here: {}", self.reason)
    }
}

impl std::error::Error for HomeUnreachable {}
