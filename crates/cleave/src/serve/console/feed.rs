//! The live feed: one snapshot a second, as Server-Sent Events, for as long as a page is open.
//!
//! ```text
//!  event: snapshot
//!  data: { "at_ms", "totals", "sessions", "queries", "locks", "waits", "devices" }
//! ```
//! 1. A snapshot has what has changed since the one before: `totals`, `sessions`, `locks`, `waits` and `devices` are
//!    left out while they are the same, `queries` where there are none, and a query that has ended is there once. Of a
//!    server that does nothing the time is left.
//! 2. Sessions and locks are compared with those of the look before, [in memory](SeenSessions), and become rows only
//!    where they differ.
//! 3. Devices are asked every [`DEVICES_TURNS`]th time, beside the others: one that does not answer delays nothing
//!    else. How far they are with what runs is asked each time, for [`ASKING_TIME_MAX`] at most.
//! 4. Queries are those of sessions whose statements `pg_stat_activity` shows the user.
//!
//! Source: HTML, "Server-sent events".

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use cleave_fragment::strip::Strip;
use cleave_host::activity::Act;
use cleave_host::cooperative::running_queries::{SeenFragment, SeenQuery};
use cleave_host::select::pg_catalog::SeenSessions;
use cleave_media::{Clock, SystemClock};
use futures::future::{BoxFuture, join_all};
use futures::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use super::ConsoleState;
use super::looks::Looks;
use super::results::{error_body, error_json};
use super::visits::{FeedPlace, Visit};
use crate::serve::Server;
use crate::serve::postgres::complaint::Complaint;
use crate::serve::postgres::interrupt::Phase;

/// From one snapshot to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// Devices are asked every so many snapshots.
const DEVICES_TURNS: u32 = 5;
/// Most queries of a snapshot that run, and most that have ended: as many as the page shows.
const QUERY_COUNT_MAX: usize = 12;
/// Time in which devices say how far they are.
const ASKING_TIME_MAX: Duration = Duration::from_millis(200);

/// What is looked up of devices, with the session that looks.
type Asked = BoxFuture<'static, (Looks, Value)>;

struct Feed {
    state: ConsoleState,
    /// Not held: a browser that reads nothing keeps the feed, and must not keep the visit's session with its locks.
    visit: Weak<Visit>,
    _place: FeedPlace,
    looks: Looks,
    shows_statements: bool,
    shows_locks: bool,
    /// The session that asks devices, while it does not; None: they are not shown, or are asked.
    of_devices: Option<Looks>,
    asked: Option<Asked>,
    /// What they have answered, until it is sent.
    devices: Option<Value>,
    /// The sessions and locks of the last look, unless they are too many to be held.
    seen: Option<SeenSessions>,
    /// The numbers of sessions whose statements the user may see.
    shown: BTreeSet<i32>,
    /// Parts of the last snapshots, by their names.
    sent: BTreeMap<&'static str, Value>,
    /// So many queries have ended by the last snapshot.
    ended_count: u64,
    ticks: tokio::time::Interval,
    turn: u32,
}

/// Answers with snapshots of what `show` names.
pub(super) async fn live(
    State(state): State<ConsoleState>,
    Extension(visit): Extension<Arc<Visit>>,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let Some(place) = visit.feed_place() else {
        let complaint = Complaint::error("53300", "too many live feeds of one log-in");
        return (StatusCode::TOO_MANY_REQUESTS, error_body(&complaint)).into_response();
    };
    let shown = asked.iter().filter(|(name, _)| name == "show");
    let shown: BTreeSet<&str> = shown.flat_map(|(_, names)| names.split(',')).collect();
    let open = || Looks::open(&state.http.server, &visit.visitor);
    let opened = open().and_then(|looks| {
        let of_devices = shown.contains("devices").then(open).transpose()?;
        Ok((looks, of_devices))
    });
    let (looks, of_devices) = match opened {
        Ok(opened) => opened,
        Err(complaint) => {
            return (StatusCode::FORBIDDEN, error_body(&complaint)).into_response();
        }
    };
    let mut ticks = tokio::time::interval_at(Instant::now(), PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (shows_statements, shows_locks) = (shown.contains("statements"), shown.contains("locks"));
    let feed = Feed {
        visit: Arc::downgrade(&visit),
        state,
        _place: place,
        looks,
        shows_statements,
        shows_locks,
        of_devices,
        asked: None,
        devices: None,
        seen: None,
        shown: BTreeSet::new(),
        sent: BTreeMap::new(),
        ended_count: 0,
        ticks,
        turn: 0,
    };
    let snapshots = stream::unfold(Box::new(feed), |mut feed| async move {
        let snapshot = Box::pin(feed.next()).await?;
        let event = Event::default().event("snapshot").data(snapshot.to_string());
        Some((Ok::<_, Infallible>(event), feed))
    });
    Sse::new(snapshots).into_response()
}

impl Feed {
    /// The next snapshot; None: the visit or the server ends.
    async fn next(&mut self) -> Option<Value> {
        loop {
            // Not before the first: what follows is asked while it is sent.
            let asked = self.asked.as_mut();
            tokio::select! {
                _ = self.ticks.tick() => break,
                () = self.state.http.comes_to(Phase::Draining) => return None,
                (looks, devices) = answered(asked) => {
                    (self.of_devices, self.asked) = (Some(looks), None);
                    self.devices = Some(devices);
                }
            }
        }
        let visit = self.visit.upgrade().filter(|visit| self.state.visits.has(visit))?;
        visit.is_used();
        drop(visit);
        if self.turn.is_multiple_of(DEVICES_TURNS)
            && let Some(looks) = self.of_devices.take()
        {
            self.asked = Some(Box::pin(ask_devices(looks)));
        }
        self.turn = self.turn.wrapping_add(1);
        let mut parts = self.sessions_and_locks().await;
        let sessions = parts.iter().find(|(name, _)| *name == "sessions");
        if let Some((_, sessions)) = sessions {
            self.shown = shown_sessions(sessions);
        }
        let queries = if self.shows_statements { self.queries().await } else { Vec::new() };
        parts.push(("totals", totals(&self.state.http.server)));
        parts.extend(self.devices.take().map(|devices| ("devices", devices)));
        let mut snapshot = json!({ "at_ms": SystemClock.wall() / 1000 });
        if !queries.is_empty() {
            snapshot["queries"] = queries.into();
        }
        for (name, part) in parts {
            if self.sent.get(name) != Some(&part) {
                snapshot[name] = part.clone();
                self.sent.insert(name, part);
            }
        }
        Some(snapshot)
    }

    /// What is shown of sessions and locks, if that is not as it was at the last look.
    async fn sessions_and_locks(&mut self) -> Vec<(&'static str, Value)> {
        let (statements, locks) = (self.shows_statements, self.shows_locks);
        let mut parts = Vec::new();
        if !(statements || locks) {
            return parts;
        }
        let seen = SeenSessions::now(&self.state.http.server.database);
        if self.seen.as_ref() == Some(&seen) {
            return parts;
        }
        for (name, is_shown) in [("sessions", statements), ("locks", locks), ("waits", locks)] {
            if is_shown {
                parts.push((name, rows_or_error(self.looks.seen(name, &seen).await)));
            }
        }
        self.seen = Some(seen).filter(SeenSessions::is_small);
        parts
    }

    /// The queries of the sessions that are shown: those that run, and those that have ended since the last snapshot.
    async fn queries(&mut self) -> Vec<Value> {
        let shown = &self.shown;
        let queries = self.state.http.server.database.running_queries();
        let (ended, ended_count) = queries.ended_after(self.ended_count);
        let is_shown = |query: &SeenQuery| shown.contains(&query.backend);
        let mut running = queries.running();
        running.retain(is_shown);
        running.truncate(QUERY_COUNT_MAX);
        let fragments = running.iter().flat_map(|query| &query.fragments);
        let asked: Vec<_> = fragments.filter_map(|fragment| fragment.ongoing.clone()).collect();
        if !asked.is_empty() {
            let asking = join_all(asked.into_iter().map(|run| async move { run.ask().await }));
            // What has answered by then is noted.
            drop(tokio::time::timeout(ASKING_TIME_MAX, asking).await);
            running = queries.running();
            running.retain(is_shown);
            running.truncate(QUERY_COUNT_MAX);
        }
        self.ended_count = ended_count;
        let ended = ended.iter().rev().filter(|query| is_shown(query)).take(QUERY_COUNT_MAX);
        running.iter().chain(ended).map(query_json).collect()
    }
}

/// What was asked of devices, once it is known; never, if nothing was.
async fn answered(asked: Option<&mut Asked>) -> (Looks, Value) {
    match asked {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    }
}

async fn ask_devices(mut looks: Looks) -> (Looks, Value) {
    let viewed = looks.view("devices").await;
    let devices = rows_or_error(viewed.map(|viewed| viewed.map(|rows| rows.value())));
    (looks, devices)
}

/// The rows of a table, or why there are none.
fn rows_or_error(looked_up: Option<Result<Value, Complaint>>) -> Value {
    match looked_up {
        Some(Ok(rows)) => rows,
        Some(Err(complaint)) => json!({ "error": error_json(&complaint) }),
        None => Value::Null,
    }
}

/// Counters that say nothing of whose work they count.
fn totals(server: &Server) -> Value {
    let activity = server.database.activity();
    json!({
        "commits": server.database.catalog().commit,
        "plans": activity.count(Act::Plan),
        "look_ups": activity.count(Act::LookUp),
    })
}

/// The numbers of sessions that have a state: those of others show none.
fn shown_sessions(sessions: &Value) -> BTreeSet<i32> {
    let names: Vec<_> = sessions["columns"].as_array().into_iter().flatten().collect();
    let place = |name: &str| names.iter().position(|column| column["name"] == name);
    let (Some(pid), Some(state)) = (place("pid"), place("state")) else {
        return BTreeSet::new();
    };
    let rows = sessions["rows"].as_array().into_iter().flatten();
    let shown = rows.filter(|row| row.get(state).is_some_and(Value::is_string));
    shown.filter_map(|row| row.get(pid)?.as_str()?.parse().ok()).collect()
}

/// A query as the page has it.
pub(super) fn query_json(query: &SeenQuery) -> Value {
    let gives_rows = query.changes.is_none();
    let fragments = query.fragments.iter().map(|fragment| fragment_json(fragment, gives_rows));
    json!({
        "number": query.number,
        "pid": query.backend,
        "text": query.text.as_str(),
        "split": query.split.map(|split| split.to_string()).unwrap_or_default(),
        "began_us": query.began_us,
        "elapsed_ms": query.elapsed.as_secs_f64() * 1e3,
        // What fragments report that change rows are no rows of a result.
        "rows": gives_rows.then_some(query.rows),
        "is_over": query.is_over,
        "fragments": fragments.collect::<Vec<_>>(),
    })
}

fn fragment_json(fragment: &SeenFragment, gives_rows: bool) -> Value {
    let work = fragment.device_work.as_ref().map(|work| {
        json!({
            "worked": strip_json(&work.worked),
            "stalled": strip_json(&work.stalled),
            "partitions": work.partitions,
            "media_bytes": work.media_bytes,
            "slot_bytes": work.slot_bytes,
        })
    });
    let progress = fragment.progress.as_ref().map(|progress| {
        json!({
            "begun": progress.begun,
            "kept": progress.kept,
            "answered_us": progress.answered.as_secs_f64() * 1e6,
            "morsels": strip_json(&progress.morsels),
            "stalled": strip_json(&progress.stalled),
        })
    });
    json!({
        "number": fragment.number,
        "table": fragment.table,
        "device": fragment.device,
        "mode": fragment.mode,
        "is_over": fragment.is_over,
        "rows": gives_rows.then_some(fragment.rows),
        "pages": [fragment.pages.0, fragment.pages.1],
        "refused": fragment.refused,
        "waited": strip_json(&fragment.waited),
        "arrived": strip_json(&fragment.arrived),
        "device_work": work,
        "progress": progress,
    })
}

fn strip_json(strip: &Strip) -> Value {
    json!({ "width_us": strip.width().as_secs_f64() * 1e6, "amounts": strip.amounts() })
}

#[cfg(test)]
mod tests {
    //! Who may not see a session's statement does not see its queries.

    use super::*;

    #[test]
    fn sessions_without_a_state_are_those_of_others() {
        let sessions = json!({
            "columns": [{"name": "pid"}, {"name": "usename"}, {"name": "state"}],
            "rows": [["7", "ada", "active"], ["8", "bob", null], ["9", "ada", "idle"]],
        });
        assert_eq!(shown_sessions(&sessions), BTreeSet::from([7, 9]));
        assert!(shown_sessions(&json!({"error": {}})).is_empty());
    }
}
