//! Which requests are let through: of a page of this server, by somebody who is logged in, with the token of that.
//!
//! Invariants: on this machine's own address a request has to name the machine by its address or as `localhost`, so
//! that the name of another site cannot stand for it. A request that may change something is refused if a browser says
//! that it comes from elsewhere, and if it lacks the token, which a page of another site cannot read.

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
    // What only reads, too: a page of another port of this machine has the cookie, and could keep the log-in in use.
    if !is_of_our_page(&Method::POST, request.headers()) {
        return forbidden("a page of another site may not ask for this");
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

/// The visit that the cookie of a request is of.
pub(super) fn visit_of(state: &ConsoleState, headers: &HeaderMap) -> Option<Arc<Visit>> {
    state.visits.find(cookie_of(&state.cookie, headers)?)
}

/// The value of the cookie `name`.
fn cookie_of<'a>(name: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| known.trim() == name).map(|(_, value)| value.trim())
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
        assert_eq!(cookie_of("name", &headers), None);
        headers.append(header::COOKIE, "a=b; name=3=4".parse().unwrap());
        assert_eq!(cookie_of("name", &headers), Some("3=4"));
    }
}
