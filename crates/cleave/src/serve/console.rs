//! `cleave serve --console`: a web page for people, beside PostgreSQL's protocol and for the same users.
//!
//! ```text
//!  browser ─▶ http::serve ─▶ guard: Host, origin ─┬─▶ page                       (everybody)
//!                                                 ├─▶ /api/login ─▶ Visits
//!                                                 └─▶ cookie ─▶ Visit, token ─▶ api, feed
//!                                                                    │
//!                      Desk: the session of the editor ◀─────────────┴─▶ looks: sessions that only look on
//! ```
//! 1. [`page`] has the files of the page, which are part of this program.
//! 2. [`visits`] has who is logged in; [`guard`] lets requests through.
//! 3. [`api`] answers what is [`given`]: [`desk`] runs what the user writes while it is [`awaited`], [`looks`] reads
//!    system tables, [`results`] makes rows JSON, in [`pieces`].
//! 4. [`feed`] sends snapshots once a second while a page is open.
//!
//! Invariants: whatever a user sees or does goes through a [`Session`](cleave_host::Session) of that user, as one of
//! PostgreSQL's protocol has, is made as for a table that one reads, or is about a session that one shows him; so his
//! rights hold. The page asks no other server for anything, and text in it is never markup. What changes something
//! carries the token of its log-in.
//!
//! Source: `docs/console.md`.

mod api;
mod awaited;
mod desk;
mod feed;
mod given;
mod guard;
mod looks;
mod page;
mod pieces;
mod results;
mod visits;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use super::http::arrival::{Arrival, in_time};
use super::http::{self, BODY_BYTES_MAX, Bound, HttpState};
use awaited::Awaited;
use visits::Visits;

/// What requests are answered from.
#[derive(Debug, Clone)]
struct ConsoleState {
    http: HttpState,
    visits: Arc<Visits>,
    awaited: Arc<Awaited>,
    /// Whether other machines can reach it, and so only over TLS.
    is_reachable: bool,
    /// Name of the cookie. Ports of a machine share their cookies, so it has the port.
    cookie: Arc<str>,
}

/// Serves what connects until the server ends.
pub(super) async fn serve(state: HttpState, bound: Bound) {
    let is_reachable = bound.is_reachable();
    // Browsers take the prefix from secure pages alone, and send such a cookie to this host alone.
    let prefix = if is_reachable { "__Host-" } else { "" };
    let cookie = format!("{prefix}cleave_console_{}", bound.address.port()).into();
    let (visits, awaited) = (Arc::new(Visits::default()), Arc::new(Awaited::default()));
    let console = ConsoleState {
        http: state.clone(),
        visits: Arc::clone(&visits),
        awaited: Arc::clone(&awaited),
        is_reachable,
        cookie,
    };
    let look_after = visits.look_after(Arc::clone(&state.server));
    let served = http::serve(state, router(console), bound, "console");
    tokio::select! {
        () = Box::pin(served) => {}
        () = Box::pin(look_after) => {}
    }
    awaited.ended().await;
}

fn router(state: ConsoleState) -> Router {
    let for_users = Router::new()
        .route("/api/logout", post(api::log_out))
        .route("/api/query", post(api::query))
        .route("/api/explain", post(api::explain))
        .route("/api/cancel", post(api::cancel))
        .route("/api/stop", post(api::stop))
        .route("/api/view/{name}", get(api::view))
        .route("/api/live", get(feed::live))
        .layer(from_fn_with_state(Arrival::of_user(&state.http), in_time))
        .layer(from_fn_with_state(state.clone(), guard::visitors_alone));
    let log_in = post(api::log_in)
        .layer(DefaultBodyLimit::max(api::LOG_IN_BYTES_MAX))
        .layer(from_fn_with_state(Arrival::of_log_in(&state.http), in_time));
    Router::new()
        .route("/", get(page::start))
        .route("/console/", get(page::index))
        .route("/console/{file}", get(page::file))
        .route("/api/session", get(api::session))
        .route("/api/login", log_in)
        .merge(for_users)
        .layer(from_fn_with_state(state.clone(), guard::our_page_alone))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(page::with_policy))
        .layer(from_fn(http::with_headers))
        .with_state(state)
}
