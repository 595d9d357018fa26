//! What a request of the page gives: JSON. One that gives something else is told why as JSON, too.
//!
//! Source: `docs/console.md`.

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::results::error_body;
use crate::serve::postgres::complaint::Complaint;

/// The body of a request.
#[derive(Debug)]
pub(super) struct Given(pub(super) Value);

impl<S: Send + Sync> FromRequest<S> for Given {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let rejection = match Json::<Value>::from_request(request, state).await {
            Ok(Json(given)) => return Ok(Self(given)),
            Err(rejection) => rejection,
        };
        let complaint = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Complaint::error("54000", "the request is longer than the server takes")
                    .hint("run a long script in parts, or by `cleave sql -f FILE`")
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Complaint::error("08P01", "a request has JSON, and says so in its content-type")
            }
            _ => Complaint::error("08P01", rejection.body_text()),
        };
        Err((rejection.status(), error_body(&complaint)).into_response())
    }
}
