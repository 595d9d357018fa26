//! Lets the database's users in by HTTP's Basic authentication, with the same secrets and rights as PostgreSQL's
//! clients.
//!
//! ```text
//!  request ─▶ guard ─▶ from a page of this server? ─▶ user and password ─▶ verifier ─▶ may the role log in?
//!                │ 403                                   │ 401                             │ 403
//!                └─▶ the request, with its Visitor ─▶ what answers it
//! ```
//!
//! A password is hashed as often as its verifier says, which takes milliseconds: on a thread that may block, and only
//! [`TURN_COUNT`] at a time, so that guesses keep nobody else from the processors. What was proven once is known again
//! by a keyed hash of it, for as long as the verifier stays the same.
//!
//! Invariants: an unknown name is answered as a wrong password is, after as long. No password is stored or logged.
//! Where nobody is asked for a password, only requests that name this machine are answered: a page of another site
//! could have a name of its own stand for this machine, and read what it may not. What changes something is accepted
//! from pages of this server alone.
//!
//! Source: RFC 7617; `docs/design/server-and-security.md`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cleave_host::password::{Verifier, hmac_sha256};
use cleave_media::MediaError;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::{HttpState, Peer};
use crate::serve::postgres::greet::{self, Known};
use crate::serve::users::Users;

/// Passwords that are hashed at a time.
const TURN_COUNT: usize = 2;
/// Proofs that are remembered.
const PROOF_COUNT_MAX: usize = 64;
/// The user of requests that name none, where nobody is asked: the role that a database begins with.
const NOBODY: &str = "cleave";

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visitor {
    /// The name.
    pub(crate) user: String,
    /// Its rights.
    pub(crate) known: Known,
}

/// The proofs of passwords of the last requests.
pub(super) struct Proofs {
    key: [u8; 32],
    turns: Arc<Semaphore>,
    /// What was proven, and which verifier said so.
    proven: Mutex<BTreeMap<[u8; 32], Verifier>>,
}

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no user, or a wrong password.
    Unproven,
    /// Its user may not do that.
    Forbidden(String),
    /// The server cannot tell.
    Unavailable,
}

/// The user and the password that a request gives.
pub(crate) struct Credentials {
    /// The name.
    pub(crate) user: String,
    /// The password, as it was given.
    pub(crate) password: String,
}

/// Passes a request on if its user is known, and refuses it otherwise.
pub(super) async fn guard(
    State(state): State<HttpState>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !is_of_our_page(request.method(), headers) {
        let message = "a page of another site may not ask for this";
        return Refusal::Forbidden(message.to_owned()).into_response();
    }
    let (given, names_us) = (Credentials::of(headers), names_this_machine(headers));
    match visitor(&state, given, names_us, peer).await {
        Ok(visitor) => {
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Who `given` proves to be, if he may log in. `names_us`: the request [names this machine](names_this_machine). That
/// `peer` was not let in is logged.
pub(crate) async fn visitor(
    state: &HttpState,
    given: Option<Credentials>,
    names_us: bool,
    peer: Peer,
) -> Result<Visitor, Refusal> {
    let server = &state.server;
    let users = Users::read(&server.users).map_err(|error| {
        server.log(&error.to_string());
        Refusal::Unavailable
    })?;
    if server.asks_nobody(&users).await {
        if !names_us {
            let message = "name this machine by its address or as localhost";
            return Err(Refusal::Forbidden(message.to_owned()));
        }
        let user = given.map_or_else(|| NOBODY.to_owned(), |given| given.user);
        let known = match server.database.login(&user) {
            Some(_) => greet::known_in(&users, &user),
            None => Known::Superuser,
        };
        return admitted(state, Visitor { user, known }, peer);
    }
    let Credentials { user, password } = given.ok_or(Refusal::Unproven)?;
    let login = server.database.login(&user);
    let (verifier, is_known) = greet::verifier(server, &users, &user, login.as_ref());
    let is_proven =
        state.proofs.are_given(&server.runtime, (&user, password), verifier).await && is_known;
    match is_proven {
        true => admitted(state, Visitor { known: greet::known_in(&users, &user), user }, peer),
        false => {
            server.failed_logins.note(peer.listener, &user, Some(peer.address));
            Err(Refusal::Unproven)
        }
    }
}

/// The visitor, if its role may log in.
fn admitted(state: &HttpState, visitor: Visitor, peer: Peer) -> Result<Visitor, Refusal> {
    let mut session = state.server.database.session();
    let may = match visitor.known {
        Known::Superuser => Ok(()),
        Known::Role => session.log_in(&visitor.user),
    };
    may.map_err(|error| {
        state.server.failed_logins.note(peer.listener, &visitor.user, Some(peer.address));
        Refusal::Forbidden(error.to_string())
    })?;
    Ok(visitor)
}

impl Credentials {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, encoded) = text.split_once(' ')?;
        let decoded = STANDARD.decode(encoded.trim()).ok()?;
        let decoded = String::from_utf8(decoded).ok()?;
        let (user, password) = decoded.split_once(':')?;
        let is_basic = scheme.eq_ignore_ascii_case("basic") && !user.is_empty();
        is_basic.then(|| Self { user: user.to_owned(), password: password.to_owned() })
    }
}

/// Whether the host that a request names is an address, or `localhost`.
pub(crate) fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether a request only reads, or is not that of a page of another site. Browsers say where a page is from.
pub(crate) fn is_of_our_page(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() {
        return true;
    }
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_ours = |origin: &str| origin.split_once("://").is_some_and(|(_, from)| from == host);
    site.is_none_or(|site| site == b"same-origin" || site == b"none") && origin.is_none_or(is_ours)
}

impl Proofs {
    pub(super) fn new() -> Result<Self, MediaError> {
        let key = cleave_media::random_bytes()?;
        Ok(Self { key, turns: Arc::new(Semaphore::new(TURN_COUNT)), proven: Mutex::default() })
    }

    /// Whether the password is the one of `verifier`. Hashes on a thread of `runtime`.
    async fn are_given(
        &self,
        runtime: &Handle,
        (user, password): (&str, String),
        verifier: Verifier,
    ) -> bool {
        // A name has no zero byte that a password could pretend to be part of.
        let proof = hmac_sha256(&self.key, format!("{user}\0{password}").as_bytes());
        let is_again = self.proven().get(&proof) == Some(&verifier);
        if is_again {
            return true;
        }
        let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else { return false };
        let hashed = runtime.spawn_blocking(move || {
            let is_right = verifier.is_of(&password);
            // Also where nobody waits for it any more, it is one of those that are hashed.
            drop(turn);
            is_right.then_some(verifier)
        });
        let Ok(Some(verifier)) = hashed.await else { return false };
        let mut proven = self.proven();
        if proven.len() >= PROOF_COUNT_MAX {
            proven.clear();
        }
        proven.insert(proof, verifier);
        true
    }

    fn proven(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Verifier>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Proofs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Proofs(…)")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // A client that guesses has to connect again, as one of PostgreSQL's protocol has.
        let close = (header::CONNECTION, "close");
        match self {
            Self::Unproven => {
                let ask = (header::WWW_AUTHENTICATE, "Basic realm=\"cleave\", charset=\"UTF-8\"");
                (StatusCode::UNAUTHORIZED, [ask, close], "password authentication failed\n")
                    .into_response()
            }
            Self::Forbidden(why) => {
                (StatusCode::FORBIDDEN, [close], format!("{why}\n")).into_response()
            }
            Self::Unavailable => {
                let message = "the server cannot read its users; its log says why\n";
                (StatusCode::SERVICE_UNAVAILABLE, [close], message).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = given
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
        pairs.collect()
    }

    #[test]
    fn users_and_passwords_are_read_and_nothing_else() {
        let of = |value: &str| {
            let given = Credentials::of(&headers(&[("authorization", value)]))?;
            Some((given.user, given.password))
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(of(&basic("ada:pen:cil")), Some(("ada".to_owned(), "pen:cil".to_owned())));
        assert_eq!(of(&basic("ada:")), Some(("ada".to_owned(), String::new())));
        for value in
            [basic("ada").as_str(), &basic(":pencil"), "Basic ?", "Bearer YTpi", "Basic", ""]
        {
            assert_eq!(of(value), None, "{value}");
        }
    }

    #[test]
    fn pages_of_other_sites_neither_read_nor_change_anything() {
        for (host, is_here) in [
            ("127.0.0.1:9187", true),
            ("[::1]:9187", true),
            ("LOCALHOST", true),
            ("evil.example:9187", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(names_this_machine(&headers(&[("host", host)])), is_here, "{host}");
        }
        let host = ("host", "db:9187");
        for (given, is_ours) in [
            (vec![host], true),
            (vec![host, ("origin", "https://db:9187")], true),
            (vec![host, ("sec-fetch-site", "same-origin")], true),
            (vec![host, ("origin", "https://evil.example")], false),
            (vec![host, ("origin", "null")], false),
            (vec![host, ("sec-fetch-site", "cross-site")], false),
            (vec![host, ("sec-fetch-site", "same-site")], false),
        ] {
            let given = headers(&given);
            assert_eq!(is_of_our_page(&Method::POST, &given), is_ours, "{given:?}");
            assert!(is_of_our_page(&Method::GET, &given));
        }
    }

    #[tokio::test]
    async fn a_proof_holds_for_its_verifier_alone() {
        let proofs = Proofs::new().unwrap();
        let runtime = Handle::current();
        let verifier = Verifier::new("pencil").unwrap();
        for _ in 0..2 {
            let of_ada = |password: &str| ("ada", password.to_owned());
            assert!(proofs.are_given(&runtime, of_ada("pencil"), verifier.clone()).await);
            assert!(!proofs.are_given(&runtime, of_ada("crayon"), verifier.clone()).await);
        }
        assert_eq!(proofs.proven().len(), 1);
        let changed = Verifier::new("crayon").unwrap();
        assert!(!proofs.are_given(&runtime, ("ada", "pencil".to_owned()), changed).await);
    }
}
