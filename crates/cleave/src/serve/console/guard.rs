//! Which requests are let through: of a page of this server, by somebody who is logged in, with the token of that.
//!
//! Invariants: on this machine's own address a request has to name the machine by its address or as `localhost`, so
//! that the name of another site cannot stand for it. A request that may change something is refused if a browser says
//! that it comes from elsewhere, and if it lacks the token, which a page of another site cannot read. So is one that
//! only reads and says who is logged in, or uses that: a page of another port of this machine has the cookie, and could
//! keep the log-in in use.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::ConsoleState;
use super::results::error_body;
use super::visits::Visit;
use crate::serve::http::login::{is_of_our_page, names_this_machine};
use crate::serve::postgres::complaint::Complaint;

/// The header with the token.
const TOKEN: &str = "x-cleave-token";

/// Passes on what may be of a page of this server.
pub(super) async fn our_page_alone(
    State(state): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !state.is_reachable && !names_this_machine(headers) {
        return forbidden("name this machine by its address or as localhost");
    }
    if !is_of_our_page(request.method(), headers) {
        return forbidden("a page of another site may not ask for this");
    }
    next.run(request).await
}

/// Passes on what is of somebody who is logged in, with his [`Visit`].
pub(super) async fn visitors_alone(
    State(state): State<ConsoleState>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(refused) = from_elsewhere(request.headers()) {
        return refused;
    }
    let found = visit_of(&state, request.headers());
    let Some(visit) = state.visits.still_known(&state.http.server, found).await else {
        let complaint = Complaint::error("28000", "log in first");
        return (StatusCode::UNAUTHORIZED, error_body(&complaint)).into_response();
    };
    let token = request.headers().get(TOKEN).and_then(|token| token.to_str().ok());
    if !request.method().is_safe() && !token.is_some_and(|token| visit.has_token(token)) {
        return forbidden("the request lacks the token of its log-in");
    }
    request.extensions_mut().insert(visit);
    next.run(request).await
}

/// The refusal of a request that is of a page of another site, even if it only reads.
pub(super) fn from_elsewhere(headers: &HeaderMap) -> Option<Response> {
    let is_ours = is_of_our_page(&Method::POST, headers);
    (!is_ours).then(|| forbidden("a page of another site may not ask for this"))
}

/// The visit that a cookie of a request is of. Another program of this machine may have set one of the same name.
pub(super) fn visit_of(state: &ConsoleState, headers: &HeaderMap) -> Option<Arc<Visit>> {
    cookies_of(&state.cookie, headers).find_map(|cookie| state.visits.find(cookie))
}

/// The values of cookies `name`.
fn cookies_of<'a>(name: &'a str, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.filter(move |(known, _)| known.trim() == name).map(|(_, value)| value.trim())
}

fn forbidden(why: &'static str) -> Response {
    let complaint = Complaint::error("42501", why);
    (StatusCode::FORBIDDEN, error_body(&complaint)).into_response()
}

#[cfg(test)]
mod tests {
    //! Cookies are found by their whole names.

    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "other=1; xname=2".parse().unwrap());
        assert_eq!(cookies_of("name", &headers).next(), None);
        headers.append(header::COOKIE, "a=b; name=3=4; name = 5".parse().unwrap());
        assert_eq!(cookies_of("name", &headers).collect::<Vec<_>>(), ["3=4", "5"]);
    }
}
