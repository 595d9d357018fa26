//! Limits connections: strangers, who are not yet authenticated, and sessions. Neither takes the place of the other.
//!
//! ```text
//!  accepted ─▶ Strangers: beyond the bound, the oldest of the address that has most is closed
//!                  │ authenticated
//!                  ▼
//!              Sessions: beyond the bound, refused (53300); the last few are for superusers
//! ```
//! Invariants: a stranger has no session and keeps nobody out for longer than the log-in timeout; a place is freed when
//! its holder is dropped.
//! when its holder is dropped.
//!
//! Source: PostgreSQL's `max_connections` and `superuser_reserved_connections`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::postgres::complaint::Complaint;

/// Connections that are not yet authenticated.
#[derive(Debug)]
pub(crate) struct Strangers {
    count_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// By number, so the oldest first.
    by_number: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    /// Dropped to close the connection.
    _stays: oneshot::Sender<()>,
}

/// A stranger's place, freed when dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    number: u64,
    strangers: Arc<Strangers>,
    stays: oneshot::Receiver<()>,
}

impl Strangers {
    /// At most `count_max` of them.
    pub(super) fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self { count_max: count_max.max(1), inner: Mutex::default() })
    }

    /// A place for a connection from `from`; if all are taken, another one is closed.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Stranger {
        let mut inner = self.inner();
        while inner.by_number.len() >= self.count_max {
            send_away(&mut inner);
        }
        let number = inner.next;
        inner.next += 1;
        let (sender, stays) = oneshot::channel();
        inner.by_number.insert(number, Entry { from, _stays: sender });
        Stranger { number, strangers: Arc::clone(self), stays }
    }

    /// Closes one, if the system has no room for another connection.
    pub(super) fn make_room(&self) {
        send_away(&mut self.inner());
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The oldest of the address with the most: an address with many connections displaces only its own.
fn send_away(inner: &mut Inner) {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for entry in inner.by_number.values() {
        *counts.entry(entry.from).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let has_most = |entry: &Entry| counts.get(&entry.from) == Some(&most);
    let oldest = inner.by_number.iter().find(|(_, entry)| has_most(entry));
    if let Some(number) = oldest.map(|(number, _)| *number) {
        inner.by_number.remove(&number);
    }
}

impl Stranger {
    /// Waits until it is to be closed.
    pub(crate) async fn sent_away(&mut self) {
        // An error means that its entry is gone.
        drop((&mut self.stays).await);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.inner().by_number.remove(&self.number);
    }
}

/// The sessions of a server.
#[derive(Debug)]
pub(crate) struct Sessions {
    count_max: usize,
    reserved_count: usize,
    taken_count: Mutex<usize>,
}

/// A session's place, freed when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Sessions>);

impl Sessions {
    /// At most `count_max`, the last `reserved_count` of them for superusers.
    pub(super) fn new(count_max: usize, reserved_count: usize) -> Arc<Self> {
        Arc::new(Self { count_max, reserved_count, taken_count: Mutex::default() })
    }

    /// A place for an authenticated client.
    pub(crate) fn enter(self: &Arc<Self>, is_superuser: bool) -> Result<Place, Complaint> {
        let mut taken = self.taken_count.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken >= self.count_max {
            let complaint = Complaint::fatal("53300", "sorry, too many clients already");
            let hint = format!(
                "it has {} connections; a server's --connections allows more",
                self.count_max
            );
            return Err(complaint.hint(hint));
        }
        if !is_superuser && *taken >= self.count_max.saturating_sub(self.reserved_count) {
            let message =
                "remaining connection slots are reserved for non-replication superuser connections";
            let hint = format!(
                "the server keeps {} of {} connections; its --connections and \
                 --superuser-reserved-connections change that",
                self.reserved_count, self.count_max
            );
            return Err(Complaint::fatal("53300", message).hint(hint));
        }
        *taken += 1;
        Ok(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.0.taken_count.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn is_sent_away(stranger: &mut Stranger) -> bool {
        stranger.sent_away().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_of_the_address_with_most_strangers_goes() {
        let strangers = Strangers::new(4);
        let (many, one) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut lone = strangers.enter(one);
        let mut first: Vec<Stranger> = (0..3).map(|_| strangers.enter(many)).collect();
        let mut later: Vec<Stranger> = (0..3).map(|_| strangers.enter(many)).collect();
        assert!(!is_sent_away(&mut lone));
        assert!(first.iter_mut().all(is_sent_away));
        assert!(!later.iter_mut().any(is_sent_away));
        drop(later);
        assert_eq!(strangers.inner().by_number.len(), 1, "places are given back");
        strangers.make_room();
        assert!(is_sent_away(&mut lone));
        strangers.make_room();
    }

    #[test]
    fn the_last_places_are_for_superusers() {
        let sessions = Sessions::new(3, 1);
        let places: Vec<Place> = (0..2).map(|_| sessions.enter(false).unwrap()).collect();
        let refused = sessions.enter(false).unwrap_err();
        assert_eq!(refused.sqlstate, "53300");
        assert!(refused.message.contains("reserved for non-replication superuser"), "{refused:?}");
        let last = sessions.enter(true).unwrap();
        let refused = sessions.enter(true).unwrap_err();
        assert_eq!(refused.message, "sorry, too many clients already");
        drop((places, last));
        assert_eq!(*sessions.taken_count.lock().unwrap(), 0);
    }
}
