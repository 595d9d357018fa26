//! Who is logged in to the console: cookies in, visits out.
//!
//! A visit begins with a log-in, which is checked as one of PostgreSQL's protocol. It ends when the user logs out,
//! after [`IDLE_TIME_MAX`] without a request, after [`TIME_MAX`], or when its user would not be let in any more as he
//! was: by that password and with those rights. A visit has a [desk](super::desk), once its user runs something.
//!
//! Invariants: a cookie is 256 random bits, and only its hash is stored. A visit has a name and no number of a role,
//! so each request looks again at whom the name stands for. Visits are bounded, for each user and in all: one more
//! ends the one of that user, or of all, that was unused for longest. They are in memory alone. Only [`Visits`],
//! requests and statements that run hold one, so its desk ends with it, whatever a browser does with a feed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cleave_host::backends::Stopper;
use cleave_host::password::{Verifier, is_equal, sha256};
use cleave_media::{MediaError, Stopwatch};
use tokio::sync::Mutex as AsyncMutex;

use super::desk::Desk;
use crate::serve::Server;
use crate::serve::http::login::Visitor;
use crate::serve::postgres::complaint::Complaint;
use crate::serve::postgres::greet::{self, Known};
use crate::serve::users::Users;

/// A visit ends after this time without a request.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// And after this time in any case.
const TIME_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Visits of one user.
const COUNT_MAX_OF_USER: usize = 16;
/// Visits in all.
const COUNT_MAX: usize = 256;
/// Live feeds of one visit. A browser opens six connections.
const FEED_COUNT_MAX: usize = 8;
/// The interval of looks for desks that are to end.
const PAUSE: Duration = Duration::from_secs(1);
/// So many of these pass between looks for visits that are to end.
const PAUSES: u32 = 10;

/// All visits.
#[derive(Debug, Default)]
pub(super) struct Visits {
    /// By the hashes of cookies.
    by_hash: Mutex<BTreeMap<[u8; 32], Arc<Visit>>>,
}

/// A user who is logged in.
pub(super) struct Visit {
    /// The user.
    pub(super) visitor: Visitor,
    /// What requests carry that change something.
    pub(super) token: String,
    admission: Admission,
    began: Stopwatch,
    used: Mutex<Stopwatch>,
    feed_count: Arc<AtomicUsize>,
    /// The editor's session, once it is used.
    pub(super) desk: Arc<AsyncMutex<Option<Box<Desk>>>>,
    /// Ends what the desk runs.
    stop: Mutex<Option<Arc<dyn Stopper>>>,
    /// Why the last desk has ended, until the user is told.
    desk_end: Mutex<Option<Complaint>>,
}

/// How a user is let in.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    /// Nobody is asked for a password; he has these rights.
    Unasked(Known),
    /// By a password, with these rights.
    By(Verifier, Known),
    /// Not at all.
    Refused,
}

/// A live feed's place, freed when dropped.
#[derive(Debug)]
pub(super) struct FeedPlace(Arc<AtomicUsize>);

impl Visits {
    /// Begins a visit, and returns it with its cookie.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(super) async fn begin(
        &self,
        server: &Server,
        visitor: Visitor,
    ) -> Result<(Arc<Visit>, String), MediaError> {
        let random = || cleave_media::random_bytes::<32>().map(|of| URL_SAFE_NO_PAD.encode(of));
        let (cookie, token) = (random()?, random()?);
        let admission = admission(server, &visitor.user).await;
        let visit = Arc::new(Visit {
            visitor,
            token,
            admission,
            began: Stopwatch::start(),
            used: Mutex::new(Stopwatch::start()),
            feed_count: Arc::default(),
            desk: Arc::default(),
            stop: Mutex::default(),
            desk_end: Mutex::default(),
        });
        let mut visits = self.by_hash();
        let is_of_user = |other: &Visit| other.visitor.user == visit.visitor.user;
        if visits.values().filter(|other| is_of_user(other)).count() >= COUNT_MAX_OF_USER {
            end_least_used(&mut visits, is_of_user);
        }
        if visits.len() >= COUNT_MAX {
            end_least_used(&mut visits, |_| true);
        }
        visits.insert(sha256(cookie.as_bytes()), Arc::clone(&visit));
        drop(visits);
        Ok((visit, cookie))
    }

    /// The visit of this cookie, which is used now.
    pub(super) fn find(&self, cookie: &str) -> Option<Arc<Visit>> {
        let visit = self.by_hash().get(&sha256(cookie.as_bytes())).map(Arc::clone)?;
        if visit.is_late() {
            return None;
        }
        visit.is_used();
        Some(visit)
    }

    /// The same visit, unless its user would not be let in any more as he was: it is ended then.
    pub(super) async fn still_known(
        &self,
        server: &Server,
        visit: Option<Arc<Visit>>,
    ) -> Option<Arc<Visit>> {
        let visit = visit?;
        if visit.is_still_known(server).await {
            return Some(visit);
        }
        self.end(&visit);
        None
    }

    /// Ends a visit.
    pub(super) fn end(&self, visit: &Arc<Visit>) {
        self.by_hash().retain(|_, other| !Arc::ptr_eq(other, visit));
        visit.interrupt();
    }

    /// Whether a visit goes on.
    pub(super) fn has(&self, visit: &Arc<Visit>) -> bool {
        self.by_hash().values().any(|other| Arc::ptr_eq(other, visit))
    }

    /// Ends visits and desks whose time is over, periodically.
    pub(super) async fn look_after(self: Arc<Self>, server: Arc<Server>) {
        let mut left = PAUSES;
        loop {
            tokio::time::sleep(PAUSE).await;
            let visits: Vec<_> = self.by_hash().values().map(Arc::clone).collect();
            left = left.checked_sub(1).unwrap_or(PAUSES);
            for visit in visits {
                let is_over = left == 0 && !visit.is_still_known(&server).await;
                if visit.is_late() || is_over {
                    self.end(&visit);
                }
                // One that is locked is in use.
                let Ok(mut place) = visit.desk.try_lock() else { continue };
                let Some(desk) = place.as_mut() else { continue };
                desk.put_away();
                visit.end_desk_in(&mut place);
            }
        }
    }

    fn by_hash(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Arc<Visit>>> {
        self.by_hash.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the visit, among those that are `wanted`, that was unused for longest.
fn end_least_used(visits: &mut BTreeMap<[u8; 32], Arc<Visit>>, wanted: impl Fn(&Visit) -> bool) {
    let found = visits.iter().filter(|(_, visit)| wanted(visit));
    let least_used = found.max_by_key(|(_, visit)| visit.unused());
    if let Some(hash) = least_used.map(|(hash, _)| *hash)
        && let Some(visit) = visits.remove(&hash)
    {
        visit.interrupt();
    }
}

/// How `user` is let in.
async fn admission(server: &Server, user: &str) -> Admission {
    let Ok(users) = Users::read(&server.users) else { return Admission::Refused };
    let is_asked = !server.asks_nobody(&users).await;
    let login = server.database.login(user);
    let known = match &login {
        None if !is_asked => Known::Superuser,
        _ => greet::known_in(&users, user),
    };
    if known == Known::Role && server.database.session().log_in(user).is_err() {
        return Admission::Refused;
    }
    if !is_asked {
        return Admission::Unasked(known);
    }
    let (verifier, is_known) = greet::verifier(server, &users, user, login.as_ref());
    match is_known {
        true => Admission::By(verifier, known),
        false => Admission::Refused,
    }
}

impl Admission {
    fn gives(&self, known: Known) -> bool {
        match self {
            Self::Unasked(own) | Self::By(_, own) => *own == known,
            Self::Refused => false,
        }
    }
}

impl Visit {
    /// Whether `token` is the one of this visit.
    pub(super) fn has_token(&self, token: &str) -> bool {
        is_equal(&sha256(token.as_bytes()), &sha256(self.token.as_bytes()))
    }

    /// Notes that it is used now.
    pub(super) fn is_used(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Stopwatch::start();
    }

    /// A place for a live feed; None: it has enough.
    pub(super) fn feed_place(&self) -> Option<FeedPlace> {
        let place = FeedPlace(Arc::clone(&self.feed_count));
        (self.feed_count.fetch_add(1, Ordering::SeqCst) < FEED_COUNT_MAX).then_some(place)
    }

    /// Notes how to end what its desk runs.
    pub(super) fn set_stop(&self, stop: Arc<dyn Stopper>) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
    }

    /// Ends the desk in its `place` if that is over.
    pub(super) fn end_desk_in(&self, place: &mut Option<Box<Desk>>) {
        if let Some(why) = place.as_ref().and_then(|desk| desk.why_over()) {
            *place = None;
            *self.desk_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }

    /// Why the last desk has ended, said once.
    pub(super) fn take_desk_end(&self) -> Option<Complaint> {
        self.desk_end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends what its desk runs.
    pub(super) fn interrupt(&self) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*stop {
            stop.cancel();
        }
    }

    fn unused(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn is_late(&self) -> bool {
        self.unused() > IDLE_TIME_MAX || self.began.elapsed() > TIME_MAX
    }

    /// Whether it began while nobody was asked for a password, and everybody is now.
    pub(super) fn is_overtaken(&self, server: &Server) -> bool {
        matches!(self.admission, Admission::Unasked(_)) && !server.trusts && !server.is_open()
    }

    /// Whether its user would still be let in in the same way.
    async fn is_still_known(&self, server: &Server) -> bool {
        let now = admission(server, &self.visitor.user).await;
        now == self.admission && now.gives(self.visitor.known)
    }
}

impl Drop for FeedPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Visit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Visit").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}
