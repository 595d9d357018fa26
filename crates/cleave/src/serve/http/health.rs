//! `/health` and `/ready`: whether the process lives, and whether statements can run.
//!
//! A process that does not answer `/health` is to be restarted. One that is not ready is to get no new clients: it
//! ends, it has stopped writing, or a device does not answer. Both are answered to everybody, and name nothing that
//! only users may know.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cleave_host::device::health;
use cleave_media::clock::Stopwatch;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::HttpState;
use crate::serve::postgres::interrupt::Phase;

/// How long devices may take to answer.
pub(super) const DEVICE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long their answers count: whoever asks more often asks no device.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// How many of the devices with tables could not be read, and of how many, when they were last asked.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Option<(Stopwatch, (usize, usize))>>);

impl Known {
    /// The same now, or a moment ago.
    async fn unread(&self, state: &HttpState) -> (usize, usize) {
        let mut known = self.0.lock().await;
        if let Some((asked, unread)) = &*known
            && asked.elapsed() < KNOWN_FOR
        {
            return *unread;
        }
        let engine = state.server.database.storage();
        let asked = health::asked_within(engine, DEVICE_TIME_MAX).await;
        let unread = health::unread(engine, &asked);
        *known = Some((Stopwatch::start(), unread));
        unread
    }
}

/// Answers that the process lives.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Answers whether statements can run, and if not, why.
pub(super) async fn ready(State(state): State<HttpState>) -> (StatusCode, Json<Value>) {
    let mut reasons = Vec::new();
    if *state.server.phase.borrow() != Phase::Serving {
        reasons.push("the server ends".to_owned());
    }
    if !state.server.database.may_write() {
        reasons.push("the database has stopped: the server's log says why".to_owned());
    }
    if reasons.is_empty() {
        let (lost, all) = state.devices.unread(&state).await;
        if lost > 0 {
            reasons.push(format!("{lost} of {all} devices with tables do not answer"));
        }
    }
    let is_ready = reasons.is_empty();
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ready": is_ready, "reasons": reasons })))
}
