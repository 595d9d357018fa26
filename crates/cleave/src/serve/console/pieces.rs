//! JSON text in pieces, charged to the session that it is made in.
//!
//! ```text
//!  rows ─▶ Text ─▶ Pieces ─▶ Answer ─▶ body: one piece after the other, each given back once it is sent
//! ```
//! Rows as values of a JSON library take several times the bytes of their text, and an answer of a few megabytes took
//! fifty. So rows are written as text at once.
//!
//! Invariant: bytes of an answer are charged until the connection has taken them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cleave_host::{Error, Kept, KeptMemory, Result};
use futures::stream;
use serde_json::Value;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// JSON text that is being written.
#[derive(Debug)]
pub(super) struct Text {
    pieces: Pieces,
    last: Vec<u8>,
}

/// JSON text.
#[derive(Debug)]
pub(super) struct Pieces {
    all: VecDeque<Bytes>,
    byte_count: usize,
    kept: Kept,
}

impl Text {
    /// None yet, of a session that keeps this memory.
    ///
    /// # Errors
    /// 53200: it keeps too much.
    pub(super) fn new(memory: &Arc<KeptMemory>) -> Result<Self> {
        let kept = memory.keep("answers", 0)?;
        let pieces = Pieces { all: VecDeque::new(), byte_count: 0, kept };
        Ok(Self { pieces, last: Vec::new() })
    }

    /// Adds `text` as it is.
    ///
    /// # Errors
    /// 53200: the session, or all sessions, keep too much.
    pub(super) fn put(&mut self, text: &str) -> Result<()> {
        self.last.extend_from_slice(text.as_bytes());
        self.cut(PIECE_BYTES)
    }

    /// Adds `text` as a JSON string.
    ///
    /// # Errors
    /// As [`Text::put`].
    pub(super) fn put_string(&mut self, text: &str) -> Result<()> {
        serde_json::to_writer(&mut self.last, text)
            .map_err(|error| Error::io("write", Path::new("an answer"), error.into()))?;
        self.cut(PIECE_BYTES)
    }

    /// The whole.
    ///
    /// # Errors
    /// As [`Text::put`].
    pub(super) fn done(mut self) -> Result<Pieces> {
        self.cut(1)?;
        Ok(self.pieces)
    }

    fn cut(&mut self, byte_count_min: usize) -> Result<()> {
        if self.last.len() < byte_count_min {
            return Ok(());
        }
        let pieces = &mut self.pieces;
        pieces.kept.set(pieces.byte_count.saturating_add(self.last.len()))?;
        pieces.byte_count += self.last.len();
        pieces.all.push_back(Bytes::from(std::mem::take(&mut self.last)));
        Ok(())
    }
}

impl Pieces {
    /// `value` as text.
    ///
    /// # Errors
    /// As [`Text::put`].
    pub(super) fn of(value: &Value, memory: &Arc<KeptMemory>) -> Result<Self> {
        let mut text = Text::new(memory)?;
        text.put(&value.to_string())?;
        text.done()
    }

    /// As a value.
    pub(super) fn value(&self) -> Value {
        let whole: Vec<u8> = self.all.iter().flatten().copied().collect();
        serde_json::from_slice(&whole).unwrap_or_default()
    }

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.all.pop_front()?;
        self.byte_count -= piece.len();
        // To keep fewer bytes is never refused.
        drop(self.kept.set(self.byte_count));
        Some(piece)
    }
}

/// The answer whose body is `pieces`.
pub(super) fn answer(status: StatusCode, pieces: Pieces) -> Response {
    answer_of(status, VecDeque::from([Part::Json(pieces)]))
}

/// The answer with the members of `head`, an object, and `results`.
pub(super) fn answer_with(status: StatusCode, head: &Value, results: Vec<Pieces>) -> Response {
    let head = head.to_string();
    let mut begin = head.strip_suffix('}').unwrap_or(&head).to_owned();
    begin.push_str(",\"results\":[");
    let mut parts = VecDeque::from([Part::Text(Bytes::from(begin))]);
    for (place, result) in results.into_iter().enumerate() {
        if place > 0 {
            parts.push_back(Part::Text(Bytes::from_static(b",")));
        }
        parts.push_back(Part::Json(result));
    }
    parts.push_back(Part::Text(Bytes::from_static(b"]}")));
    answer_of(status, parts)
}

enum Part {
    Text(Bytes),
    Json(Pieces),
}

fn answer_of(status: StatusCode, parts: VecDeque<Part>) -> Response {
    let bytes_of = |part: &Part| match part {
        Part::Text(text) => text.len(),
        Part::Json(pieces) => pieces.byte_count,
    };
    let byte_count: usize = parts.iter().map(bytes_of).sum();
    let body = Body::from_stream(stream::unfold(parts, |mut parts| async move {
        loop {
            let next = match parts.front_mut()? {
                Part::Text(text) => Some(std::mem::take(text)).filter(|text| !text.is_empty()),
                Part::Json(pieces) => pieces.next(),
            };
            match next {
                Some(piece) => return Some((Ok::<_, std::convert::Infallible>(piece), parts)),
                None => drop(parts.pop_front()),
            }
        }
    }));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CONTENT_LENGTH, HeaderValue::from(byte_count)),
    ];
    (status, headers, body).into_response()
}

#[cfg(test)]
mod tests {
    //! An answer is charged until it is sent, and one that finds no memory is refused.

    use cleave_embedded::embedded_device;
    use cleave_host::{Database, OpenOptions};
    use futures::StreamExt;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_charged_until_it_is_sent() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(embedded_device()).create(true).query_memory_bytes(8 << 20);
        let folder = directory.path().join("db");
        let session = Database::open(&folder, options).await.unwrap().session();
        let long = "\"x".repeat(300_000);
        let made = || {
            let mut text = Text::new(session.kept())?;
            text.put("[")?;
            text.put_string(&long)?;
            text.put("]")?;
            text.done()
        };
        // A session keeps two megabytes.
        let (one, other) = (made().unwrap(), made().unwrap());
        assert_eq!(made().unwrap_err().sqlstate(), "53200");
        drop(other);
        let tag = Pieces::of(&json!({ "tag": "SELECT 1" }), session.kept()).unwrap();
        let sent = answer_with(StatusCode::OK, &json!({ "a": 1 }), vec![tag, one]);
        let length = sent.headers()[header::CONTENT_LENGTH].to_str().unwrap().to_owned();
        assert!(made().is_ok());
        let mut parts = sent.into_body().into_data_stream();
        let mut whole = Vec::new();
        while let Some(part) = parts.next().await {
            whole.extend_from_slice(&part.unwrap());
        }
        assert_eq!(length, whole.len().to_string());
        let read: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(read["results"], json!([{ "tag": "SELECT 1" }, [long]]));
        drop(parts);
        let rest: Vec<_> = (0..2).map(|_| made().unwrap()).collect();
        assert_eq!(rest[0].value(), json!([long]));
    }
}
