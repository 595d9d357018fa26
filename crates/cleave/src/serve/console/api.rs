//! What the page asks and does, besides the [feed](super::feed): JSON in, JSON out.
//!
//! ```text
//!  GET  /api/session                     who is logged in, the token, and the state of his transaction
//!  POST /api/login    { user, password } the same, and a cookie
//!  POST /api/logout
//!  POST /api/query    { sql }            runs statements
//!  POST /api/explain  { sql, analyze, split }
//!  POST /api/cancel                      ends what the editor runs
//!  POST /api/stop     { pid, terminate } cancels the statement of a session, or ends that
//!  GET  /api/view/{name}                 rows of a system table
//! ```

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use cleave_media::{Clock, Stopwatch, SystemClock};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use super::ConsoleState;
use super::desk::Desk;
use super::feed::query_json;
use super::given::Given;
use super::guard::{from_elsewhere, visit_of};
use super::looks::Looks;
use super::pieces::{Pieces, answer, answer_with};
use super::results::{Limits, Rows, error_body, error_json};
use super::visits::Visit;
use crate::serve::Server;
use crate::serve::http::Peer;
use crate::serve::http::login::{Credentials, Refusal, names_this_machine, visitor};
use crate::serve::postgres::complaint::Complaint;
use crate::serve::users::Users;

/// Longest name and password that are looked at.
const CREDENTIAL_BYTES_MAX: usize = 1024;
/// Bytes of a log-in's body, which anybody may send: each byte of a name or password may be escaped as `\u0000`.
pub(super) const LOG_IN_BYTES_MAX: usize = 16 << 10;

/// What the user is told who has given the first password without having one.
const PASSWORDS_FROM_NOW_ON: &str = "from now on everybody needs a password, and this log-in has ended: log in with \
                                     one; `cleave user add NAME` makes a superuser";

/// Who is logged in; or that nobody is, and whether there is a password to ask for.
pub(super) async fn session(State(state): State<ConsoleState>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_elsewhere(&headers) {
        return refused;
    }
    let server = &state.http.server;
    if let Some(visit) = state.visits.still_known(server, visit_of(&state, &headers)).await {
        return Json(known(&state, &visit)).into_response();
    }
    let asks = match Users::read(&server.users) {
        Ok(users) => !server.asks_nobody(&users).await,
        Err(_) => true,
    };
    let body = json!({
        "error": { "sqlstate": "28000", "message": "log in first" },
        "asks_password": asks,
        "database": server.database_name,
    });
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}

/// Logs in.
pub(super) async fn log_in(
    State(state): State<ConsoleState>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Given(given): Given,
) -> Response {
    let text = |name: &str| given[name].as_str().filter(|text| text.len() <= CREDENTIAL_BYTES_MAX);
    let (Some(user), Some(password)) = (text("user"), text("password")) else {
        return refused(
            StatusCode::BAD_REQUEST,
            &Complaint::error("22023", "a log-in has a user and a password"),
        );
    };
    let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
    let credentials = Some(credentials).filter(|given| !given.user.is_empty());
    let names_us = names_this_machine(&headers);
    let admitted = Box::pin(visitor(&state.http, credentials, names_us, peer)).await;
    let begun = match admitted {
        Ok(visitor) => state.visits.begin(&state.http.server, visitor).await,
        Err(refusal) => return refused_log_in(user, refusal),
    };
    match begun {
        Ok((visit, cookie)) => {
            let secure = if state.is_reachable { "; Secure" } else { "" };
            let name = &state.cookie;
            let set = format!("{name}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}");
            ([(header::SET_COOKIE, set)], Json(known(&state, &visit))).into_response()
        }
        Err(error) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            &Complaint::error("XX000", error.to_string()),
        ),
    }
}

fn refused_log_in(user: &str, refusal: Refusal) -> Response {
    let (status, complaint) = match refusal {
        Refusal::Unproven => {
            let message = format!("password authentication failed for user \"{user}\"");
            (StatusCode::UNAUTHORIZED, Complaint::error("28P01", message))
        }
        Refusal::Forbidden(why) => (StatusCode::FORBIDDEN, Complaint::error("28000", why)),
        Refusal::Unavailable => {
            let message = "the server cannot read its users; its log says why";
            (StatusCode::SERVICE_UNAVAILABLE, Complaint::error("58030", message))
        }
    };
    refused(status, &complaint)
}

/// Logs out.
pub(super) async fn log_out(
    State(state): State<ConsoleState>,
    Extension(visit): Extension<Arc<Visit>>,
) -> Response {
    state.visits.end(&visit);
    let gone = format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", state.cookie);
    let gone = if state.is_reachable { gone + "; Secure" } else { gone };
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, gone)]).into_response()
}

/// Runs statements.
pub(super) async fn query(
    State(state): State<ConsoleState>,
    Extension(visit): Extension<Arc<Visit>>,
    Given(asked): Given,
) -> Response {
    let Some(sql) = asked["sql"].as_str().map(str::to_owned) else { return no_statement() };
    let mut place = match desk(&state, &visit) {
        Ok(place) => place,
        Err(complaint) => return no_desk(&complaint),
    };
    let Some(desk) = place.as_mut() else { return no_statement() };
    desk.begin(&sql);
    let stop = desk.stopper();
    let server = Arc::clone(&state.http.server);
    let work = async move {
        let answer = Box::pin(ran(&server, &visit, &mut place, &sql)).await;
        (answer, place)
    };
    let answer = Box::pin(state.awaited.finish(stop, work)).await;
    answer.unwrap_or_else(ended_by_a_defect)
}

/// Runs `sql`, for which the desk in its `place` has begun.
async fn ran(server: &Server, visit: &Visit, place: &mut Option<Box<Desk>>, sql: &str) -> Response {
    let Some(desk) = place.as_mut() else { return no_statement() };
    let clock = Stopwatch::start();
    let done = Box::pin(desk.run(sql, Limits::OF_QUERY)).await;
    let transaction = desk.transaction();
    let elapsed_ms = clock.elapsed().as_secs_f64() * 1e3;
    let mut body = json!({
        "transaction": transaction,
        "elapsed_ms": elapsed_ms,
    });
    let mut notices = done.notices;
    if visit.is_overtaken(server) {
        notices.push(PASSWORDS_FROM_NOW_ON.to_owned());
    }
    body["notices"] = notices.into();
    let Some(complaint) = done.complaint else {
        return answer_with(StatusCode::OK, &body, done.results);
    };
    body["error"] = error_json(&complaint);
    if Desk::ends_with(&complaint) {
        *place = None;
    }
    answer_with(StatusCode::BAD_REQUEST, &body, done.results)
}

/// Explains a statement, and runs it if it is to be analysed.
pub(super) async fn explain(
    State(state): State<ConsoleState>,
    Extension(visit): Extension<Arc<Visit>>,
    Given(asked): Given,
) -> Response {
    let Some(sql) = asked["sql"].as_str() else { return no_statement() };
    let (analyze, split) = (asked["analyze"] == true, asked["split"].as_str());
    let mut place = match desk(&state, &visit) {
        Ok(place) => place,
        Err(complaint) => return no_desk(&complaint),
    };
    let Some(desk) = place.as_mut() else { return no_statement() };
    let explained = match desk.explained(sql, analyze, split) {
        Ok(explained) => explained,
        Err(complaint) => return refused(StatusCode::BAD_REQUEST, &complaint),
    };
    desk.begin(&explained.0);
    let stop = desk.stopper();
    let server = Arc::clone(&state.http.server);
    let work = async move {
        let answer = Box::pin(ran_explained(&server, &mut place, &explained, analyze)).await;
        (answer, place)
    };
    let answer = Box::pin(state.awaited.finish(stop, work)).await;
    answer.unwrap_or_else(ended_by_a_defect)
}

/// Runs an EXPLAIN, for which the desk in its `place` has begun; so many characters stand before what the user wrote.
async fn ran_explained(
    server: &Server,
    place: &mut Option<Box<Desk>>,
    (text, before): &(String, usize),
    analyze: bool,
) -> Response {
    let Some(desk) = place.as_mut() else { return no_statement() };
    let (clock, began_us) = (Stopwatch::start(), SystemClock.wall());
    let done = Box::pin(desk.run(text, Limits::OF_QUERY)).await;
    let elapsed_ms = clock.elapsed().as_secs_f64() * 1e3;
    let (backend, transaction) = (desk.backend(), desk.transaction());
    if let Some(mut complaint) = done.complaint {
        // The position is one in what the user wrote.
        let position = complaint.about.position.take();
        complaint.about.position = position.and_then(|position| position.checked_sub(*before));
        if Desk::ends_with(&complaint) {
            *place = None;
        }
        let body = json!({ "error": error_json(&complaint), "transaction": transaction });
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    }
    let result = done.results.first().map(Pieces::value).unwrap_or_default();
    let plan = Rows::first_text(&result).unwrap_or_default();
    let plan: Value = serde_json::from_str(plan).unwrap_or(Value::Null);
    // Its own run, of which the timeline is.
    let seen = server.database.running_queries().seen();
    let is_own = |backend_of: i32, began: i64| backend_of == backend && began >= began_us;
    let own = seen.iter().filter(|query| query.is_over && is_own(query.backend, query.began_us));
    let own = own.max_by_key(|query| query.fragments.len()).map(query_json);
    let body = json!({
        "plan": plan,
        "elapsed_ms": elapsed_ms,
        "transaction": transaction,
        "query": own.filter(|_| analyze),
    });
    Json(body).into_response()
}

/// Ends what the editor runs.
pub(super) async fn cancel(Extension(visit): Extension<Arc<Visit>>) -> Response {
    visit.interrupt();
    Json(json!({ "cancelled": visit.desk.try_lock().is_err() })).into_response()
}

/// Cancels the statement of a session, or ends that.
pub(super) async fn stop(
    State(state): State<ConsoleState>,
    Extension(visit): Extension<Arc<Visit>>,
    Given(asked): Given,
) -> Response {
    let pid = asked["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let Some(pid) = pid else {
        return refused(
            StatusCode::BAD_REQUEST,
            &Complaint::error("22023", "a session has a number"),
        );
    };
    let terminates = asked["terminate"] == true;
    let stopped = match Looks::open(&state.http.server, &visit.visitor) {
        Ok(mut looks) => Box::pin(looks.stop(pid, terminates)).await,
        Err(complaint) => Err(complaint),
    };
    match stopped {
        Ok(stopped) => Json(json!({ "stopped": stopped })).into_response(),
        Err(complaint) => refused(StatusCode::BAD_REQUEST, &complaint),
    }
}

/// The rows of a system table.
pub(super) async fn view(
    State(state): State<ConsoleState>,
    Extension(visit): Extension<Arc<Visit>>,
    Path(name): Path<String>,
) -> Response {
    let viewed = match Looks::open(&state.http.server, &visit.visitor) {
        Ok(mut looks) => Box::pin(looks.view(&name)).await,
        Err(complaint) => Some(Err(complaint)),
    };
    match viewed {
        Some(Ok(rows)) => answer(StatusCode::OK, rows),
        Some(Err(complaint)) => refused(StatusCode::BAD_REQUEST, &complaint),
        None => {
            let complaint = Complaint::error("42P01", "the console shows no such table");
            refused(StatusCode::NOT_FOUND, &complaint)
        }
    }
}

/// The desk of `visit`, opened if it is not; one request at a time has it. That a desk has ended is an error once.
fn desk(
    state: &ConsoleState,
    visit: &Visit,
) -> Result<OwnedMutexGuard<Option<Box<Desk>>>, Complaint> {
    let Ok(mut place) = Arc::clone(&visit.desk).try_lock_owned() else {
        let complaint = Complaint::error("55006", "a statement of this log-in runs already");
        return Err(complaint.hint("cancel it, or wait for its end"));
    };
    visit.end_desk_in(&mut place);
    if let Some(why) = visit.take_desk_end() {
        return Err(why.hint("nothing was run: the next statement has a new session"));
    }
    if place.is_none() {
        let desk = Desk::open(&state.http.server, &visit.visitor)?;
        visit.set_stop(desk.stopper());
        *place = Some(Box::new(desk));
    }
    Ok(place)
}

fn known(state: &ConsoleState, visit: &Visit) -> Value {
    // None: there is none, or it runs a statement.
    let desk = visit.desk.try_lock().ok();
    let transaction = desk.and_then(|place| place.as_ref().map(|desk| desk.transaction()));
    json!({
        "transaction": transaction,
        "user": visit.visitor.user,
        "token": visit.token,
        "database": state.http.server.database_name,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn no_statement() -> Response {
    refused(StatusCode::BAD_REQUEST, &Complaint::error("42601", "there is no statement"))
}

fn ended_by_a_defect() -> Response {
    let message = "the statement ended by a defect of the server; its log says which";
    refused(StatusCode::INTERNAL_SERVER_ERROR, &Complaint::error("XX000", message))
}

fn no_desk(complaint: &Complaint) -> Response {
    let mut body = json!({ "error": error_json(complaint) });
    if Desk::ends_with(complaint) {
        body["transaction"] = "idle".into();
    }
    (StatusCode::CONFLICT, Json(body)).into_response()
}

fn refused(status: StatusCode, complaint: &Complaint) -> Response {
    (status, error_body(complaint)).into_response()
}
