//! What the host lets another device have on this one: the blocks that a fragment reads there, and outputs of runs, in;
//! an address with a secret out, for as long as the grant is held.
//!
//! Invariant: a grant is ended when it is dropped, whatever became of its run. Where the device does not hear that, it
//! is told over the next connection; the grant ends there with this incarnation at the latest. The device's token stays
//! here.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_catalog::catalog::{DeviceKind, RemoteDevice};
use cleave_catalog::error::Result;
use cleave_fragment::build_id;
use cleave_fragment::command::peers::GRANTED_MAX;
use cleave_fragment::command::{Command, Grant, PeerAddress, PeerSecret, Reply, Request};
use cleave_fragment::link::{Link, LinkError};
use cleave_media::{Extent, random_bytes};
use futures::future::try_join_all;
use tokio::runtime::Handle;

use super::Device;

/// Most grants of which is noted that the device may not know their end.
const ENDING_MAX: usize = 1024;

/// A grant on a device, which ends when this is dropped.
#[derive(Debug)]
pub struct DeviceGrant {
    device: Arc<Device>,
    number: u64,
}

impl Device {
    /// Whether `bearer` could use a grant on this one: it gets here by the address that the host has. Whether it really
    /// does, it finds out.
    pub fn is_reachable_by(&self, bearer: &Self) -> bool {
        matches!(&self.entry.kind, DeviceKind::Remote(remote) if is_reachable(remote, bearer))
    }

    /// Lets the device `bearer` have what lies in `extents` of this one, and `outputs` of its runs, each as run and
    /// output. None: it could not reach this one, which has no address for others, or is of another build; they are too
    /// many; or the system has no random bytes for a secret.
    ///
    /// # Errors
    /// As [`Device::call`].
    pub async fn grant(
        self: &Arc<Self>,
        bearer: &Self,
        extents: Vec<Extent>,
        outputs: Vec<(u64, u32)>,
    ) -> Result<Option<(PeerAddress, DeviceGrant)>> {
        let DeviceKind::Remote(remote) = &self.entry.kind else { return Ok(None) };
        let extents = joined(extents);
        let are_too_many = extents.len().max(outputs.len()) > GRANTED_MAX;
        if are_too_many || !is_reachable(remote, bearer) {
            return Ok(None);
        }
        if self.identity().await?.build != build_id() {
            return Ok(None);
        }
        let Ok(secret) = random_bytes().map(PeerSecret) else { return Ok(None) };
        // Unique among its grants, as each is a command.
        let number = self.header().sequence;
        let given = DeviceGrant { device: Arc::clone(self), number };
        let action = "let another device read pages";
        let grant = Grant { number, secret: secret.clone(), extents, outputs };
        match self.call_within(self.timeout(), action, Request::Grant(grant)).await? {
            Reply::Done => {}
            other => return Err(self.strange(&other, action)),
        }
        let RemoteDevice { host, port, ca_pem, .. } = remote.clone();
        Ok(Some((PeerAddress { host, port, ca_pem, grant: number, secret }, given)))
    }

    async fn end_grant(&self, number: u64) {
        let request = Request::EndGrant { number };
        // Nobody waits for it, however long it takes.
        if self.call_within(Duration::MAX, "end a grant", request).await.is_ok() {
            self.ending_grants.remove(number);
        }
    }

    /// Ends over `link`, which is a new one, the grants whose end may have been lost with others.
    ///
    /// # Errors
    /// That this one is lost, too.
    pub(super) async fn end_lost_grants(
        &self,
        link: &dyn Link,
    ) -> std::result::Result<(), LinkError> {
        let numbers: Vec<u64> = self.ending_grants.lock().iter().copied().collect();
        let ending = numbers.into_iter().map(|number| async move {
            let command = Command::new(self.header(), Request::EndGrant { number });
            match link.call(command).await {
                Err(error) if error.is_unreachable() => Err(error),
                // A device that refuses it has no grants of this incarnation.
                _ => {
                    self.ending_grants.remove(number);
                    Ok(())
                }
            }
        });
        try_join_all(ending).await.map(drop)
    }
}

impl Drop for DeviceGrant {
    fn drop(&mut self) {
        let (device, number) = (Arc::clone(&self.device), self.number);
        // First, so that a connection that is made meanwhile knows it.
        device.ending_grants.add(number);
        let Ok(runtime) = Handle::try_current() else { return };
        // Detached on purpose: nobody waits for it.
        drop(runtime.spawn(async move { device.end_grant(number).await }));
    }
}

/// Numbers of the grants whose end the device may not have heard.
#[derive(Debug, Default)]
pub(super) struct EndingGrants(Mutex<BTreeSet<u64>>);

impl EndingGrants {
    fn add(&self, number: u64) {
        let mut numbers = self.lock();
        numbers.insert(number);
        if numbers.len() > ENDING_MAX {
            numbers.pop_first();
        }
    }

    fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `bearer` gets to `remote` by the address that this host has. The embedded device is this host: what it reads
/// elsewhere, the host's buffer pool has or keeps.
fn is_reachable(remote: &RemoteDevice, bearer: &Device) -> bool {
    match &bearer.entry.kind {
        DeviceKind::Remote(bearer) => !is_loopback(&remote.host) || is_loopback(&bearer.host),
        DeviceKind::Local(_) => true,
        DeviceKind::Embedded | DeviceKind::Mirror(_) => false,
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The blocks of `extents`, ascending and in as few as possible.
fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.start);
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        let before = joined.last().filter(|last| extent.start <= last.end());
        let both = before.and_then(|last| {
            let end = last.end().max(extent.end());
            let block_count = u32::try_from(end.0.saturating_sub(last.start.0)).ok()?;
            Some(Extent { start: last.start, block_count })
        });
        match (both, joined.last_mut()) {
            (Some(both), Some(last)) => *last = both,
            _ => joined.push(extent),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    //! How extents are joined, and who may reach whom is tested where there are devices.

    use cleave_media::BlockAddress;

    use super::*;

    fn extent(start: u64, block_count: u32) -> Extent {
        Extent { start: BlockAddress(start), block_count }
    }

    #[test]
    fn extents_are_joined_where_they_touch() {
        let apart = vec![extent(9, 1), extent(0, 4), extent(4, 2), extent(5, 1), extent(7, 2)];
        assert_eq!(joined(apart), [extent(0, 6), extent(7, 3)]);
        // No extent is larger than one can be.
        let large = vec![extent(0, u32::MAX), extent(u64::from(u32::MAX), 2)];
        assert_eq!(joined(large.clone()), large);
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        for (host, is_here) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.3.2.1", true),
            ("::1", true),
            ("10.0.0.1", false),
            ("storage1", false),
        ] {
            assert_eq!(is_loopback(host), is_here, "{host}");
        }
    }
}
