//! Limits connections that have not shown the token (strangers), so that a new peer always gets a place.
//!
//! A place costs a peer nothing, so a silent peer must not keep others out. When all places are taken, or all that one
//! address may have, [`Strangers::admit`] closes a connection: of the address with the most places, the oldest one that
//! has sent nothing; where these are few, the oldest of all. A host speaks as soon as it is connected and must be given
//! the time for it, however fast others come: no connection is closed before [`HEARD_FOR`] has passed, and the next
//! peer waits as long in the system's queue ([`Strangers::wait_for`]).

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_fragment::link::metered::ByteCounters;
use cleave_media::Stopwatch;
use tokio::sync::oneshot;

/// Connections at once that have not shown the token.
pub(super) const STRANGERS_MAX: usize = 64;
/// Of those, from one address.
const STRANGERS_OF_ONE_MAX: usize = 32;
/// The least time that a stranger keeps its place: so 1600 peers a second of one address find a place.
const HEARD_FOR: Duration = Duration::from_millis(20);

/// The origin of a peer, as far as peers are told apart; None on this machine.
pub(super) type Origin = Option<IpAddr>;

/// An IPv6 peer has a whole network of addresses, so the network is its origin.
pub(super) fn origin_of(address: IpAddr) -> Origin {
    const NETWORK: u128 = !0 << 64;
    Some(match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & NETWORK).into()),
        address => address,
    })
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct Strangers(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    /// The oldest first.
    present: Vec<Stranger>,
    next_number: u64,
}

#[derive(Debug)]
struct Stranger {
    number: u64,
    origin: Origin,
    bytes: Arc<ByteCounters>,
    since: Stopwatch,
    leave: oneshot::Sender<()>,
}

/// A stranger's place, freed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    strangers: Strangers,
    number: u64,
    /// The bytes that the peer has sent.
    pub(super) bytes: Arc<ByteCounters>,
}

/// Tells a peer's task that its place was given to another.
#[derive(Debug)]
pub(super) struct TurnedAway(oneshot::Receiver<()>);

impl TurnedAway {
    /// Resolves when that happens; it never does after the place was freed.
    pub(super) async fn told(self) {
        if self.0.await.is_err() {
            std::future::pending().await
        }
    }
}

impl Strangers {
    /// How long a peer from `origin` has to wait for a place: until the stranger to be closed has had its time.
    pub(super) fn wait_for(&self, origin: Origin) -> Duration {
        let list = self.lock();
        let goes = list.who_goes(origin).and_then(|place| list.present.get(place));
        goes.map_or(Duration::ZERO, |goes| HEARD_FOR.saturating_sub(goes.since.elapsed()))
    }

    /// A place for a peer from `origin`, and whether another connection was closed for it.
    pub(super) fn admit(&self, origin: Origin) -> (Place, TurnedAway, bool) {
        let (leave, left) = oneshot::channel();
        let bytes: Arc<ByteCounters> = Arc::default();
        let mut list = self.lock();
        let turned_away = list.make_room(origin);
        let number = list.next_number;
        list.next_number += 1;
        let since = Stopwatch::start();
        list.present.push(Stranger { number, origin, bytes: Arc::clone(&bytes), since, leave });
        (Place { strangers: self.clone(), number, bytes }, TurnedAway(left), turned_away)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// Closes a connection if there is no place for another one from `origin`.
    fn make_room(&mut self, origin: Origin) -> bool {
        // A task that has ended by itself is not told.
        self.who_goes(origin).is_some_and(|place| self.present.remove(place).leave.send(()).is_ok())
    }

    /// The stranger to close for a peer from `origin`; None if there is room.
    fn who_goes(&self, origin: Origin) -> Option<usize> {
        let count_of = |origin: Origin| self.present.iter().filter(|s| s.origin == origin).count();
        // On this machine the system tells a peer's user.
        let crowd = if origin.is_some() && count_of(origin) >= STRANGERS_OF_ONE_MAX {
            origin
        } else if self.present.len() >= STRANGERS_MAX {
            let origins = self.present.iter().map(|stranger| stranger.origin);
            origins.max_by_key(|origin| count_of(*origin)).flatten()
        } else {
            return None;
        };
        let has_spoken = |stranger: &Stranger| stranger.bytes.received.load(Ordering::Relaxed) > 0;
        let of_crowd = self.present.iter().enumerate().filter(|(_, other)| other.origin == crowd);
        let places: Vec<usize> = of_crowd.map(|(place, _)| place).collect();
        let silent = |place: &&usize| !self.present.get(**place).is_some_and(has_spoken);
        let silent: Vec<&usize> = places.iter().filter(silent).collect();
        let most_are_silent = silent.len() * 2 >= places.len();
        if most_are_silent { silent.first().copied().copied() } else { places.first().copied() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.lock().present.retain(|stranger| stranger.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    //! Which connection is closed.

    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn from(last: u8) -> Origin {
        origin_of(Ipv4Addr::new(10, 0, 0, last).into())
    }

    fn speak(place: &Place) {
        place.bytes.received.fetch_add(1, Ordering::Relaxed);
    }

    fn was_told(turned_away: &mut TurnedAway) -> bool {
        turned_away.0.try_recv().is_ok()
    }

    #[test]
    fn of_one_address_the_oldest_goes() {
        let strangers = Strangers::default();
        let mut present: Vec<_> =
            (0..STRANGERS_OF_ONE_MAX).map(|_| strangers.admit(from(1))).collect();
        assert!(present.iter_mut().all(|(_, away, room)| !*room && !was_told(away)));
        let (_other, _, made_room) = strangers.admit(from(2));
        assert!(!made_room, "another address has places of its own");
        let (_newest, _, made_room) = strangers.admit(from(1));
        assert!(made_room);
        let wait = strangers.wait_for(from(1));
        assert!(wait <= HEARD_FOR && strangers.wait_for(from(3)).is_zero(), "{wait:?}");
        let told: Vec<bool> = present.iter_mut().map(|(_, away, _)| was_told(away)).collect();
        assert!(told[0] && !told[1..].contains(&true), "{told:?}");
    }

    #[test]
    fn who_has_spoken_stays_longer() {
        let strangers = Strangers::default();
        let mut present: Vec<_> =
            (0..STRANGERS_OF_ONE_MAX).map(|_| strangers.admit(from(1))).collect();
        speak(&present[0].0);
        let (_newest, _, made_room) = strangers.admit(from(1));
        assert!(made_room && !was_told(&mut present[0].1) && was_told(&mut present[1].1));
        // If most have spoken, a silent one may be a host that has just connected.
        present.iter().skip(2).take(STRANGERS_OF_ONE_MAX / 2).for_each(|(place, ..)| speak(place));
        let (_newest, mut away, _) = strangers.admit(from(1));
        assert!(was_told(&mut present[0].1) && !was_told(&mut away));
    }

    #[test]
    fn of_all_the_most_crowded_address_gives_way() {
        let strangers = Strangers::default();
        let mut host = strangers.admit(from(9));
        let crowds = [1, 2, 3].map(|from_where| (from(from_where), STRANGERS_MAX / 3));
        let _present: Vec<_> = crowds
            .iter()
            .flat_map(|(origin, count)| {
                (0..*count).map(|_| strangers.admit(*origin)).collect::<Vec<_>>()
            })
            .collect();
        let mut others = Vec::new();
        for last in [1, 7, 2, 8, 7, 8].repeat(80) {
            others.push(strangers.admit(from(last)));
            assert!(others.last().unwrap().2, "somebody gives way");
            assert_eq!(strangers.lock().present.len(), STRANGERS_MAX);
        }
        assert!(!was_told(&mut host.1), "the oldest of all, and the only one of its address");
    }

    #[test]
    fn a_place_is_given_back_and_nobody_is_told() {
        let strangers = Strangers::default();
        let (place, mut away, _) = strangers.admit(from(1));
        drop(place);
        assert!(!was_told(&mut away) && strangers.lock().present.is_empty());
        // An IPv6 network is one peer, and an IPv4-mapped IPv6 address counts as its IPv4 address.
        let six = |last| origin_of(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last).into());
        assert_eq!(six(1), six(2));
        assert_eq!(origin_of(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into()), from(1));
    }
}
