//! `/health` and `/ready`: whether the process lives, and whether statements can run.
//!
//! A process that does not answer `/health` is to be restarted. One that is not ready is to get no new clients: it
//! ends, it has stopped writing, or a device does not answer. Both are answered to everybody, and name nothing that
//! only users may know.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::HttpState;
use crate::serve::postgres::interrupt::Phase;

/// Answers that the process lives.
pub(super) async fn health() -> Json<Value> {
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
    let is_ready = reasons.is_empty();
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ready": is_ready, "reasons": reasons })))
}
