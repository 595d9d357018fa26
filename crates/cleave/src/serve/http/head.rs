//! The head of a request, before anything else looks at it.
//!
//! 1. A request of HTTP/1.1 names exactly one host: a proxy in between and this server must not take different ones
//!    for it. Any other gets 400.
//! 2. A head has up to [`HEAD_BYTES_MAX`] bytes. A longer one gets 431: here if it came at once,
//!    for the buffer it is read into may have more room, else from the reader of the connection.
//!
//! Source: RFC 9112, section 3.2; RFC 6585, section 5.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::HEAD_BYTES_MAX;

/// Passes on a request with a head as it has to be.
pub(super) async fn judged(request: Request, next: Next) -> Response {
    match fault(&request) {
        Some((status, why)) => (status, [(header::CONNECTION, "close")], why).into_response(),
        None => next.run(request).await,
    }
}

fn fault(request: &Request) -> Option<(StatusCode, &'static str)> {
    if byte_count(request) > HEAD_BYTES_MAX {
        let why = "the head of a request has 32 kB at most\n";
        return Some((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    match (first, second) {
        (None, _) if request.version() < Version::HTTP_11 => None,
        (None, _) => Some((StatusCode::BAD_REQUEST, "a request of HTTP/1.1 names its host\n")),
        (Some(_), Some(_)) => Some((StatusCode::BAD_REQUEST, "a request names one host\n")),
        (Some(host), None) if is_host(host) => None,
        (Some(_), None) => Some((StatusCode::BAD_REQUEST, "a host is a name with a port\n")),
    }
}

/// Whether it is a name with or without a port, or empty, as it is where the target has no authority.
fn is_host(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    host.is_empty() || (host.parse::<Authority>().is_ok() && !host.contains('@'))
}

/// Bytes of the head, as its lines have them: `GET / HTTP/1.1`, `Host: localhost`, and an empty one.
fn byte_count(request: &Request) -> usize {
    let line =
        request.method().as_str().len() + request.uri().to_string().len() + " HTTP/1.1\r\n ".len();
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    line + headers.sum::<usize>() + "\r\n".len()
}

#[cfg(test)]
mod tests {
    //! What bytes of a client get which status.

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::serve::http::answering;

    /// The first line of the answer to `request`.
    async fn status(request: &[u8]) -> String {
        let (ours, mut theirs) = tokio::io::duplex(256 << 10);
        let router = Router::new().route("/", get(|| async { "well" }));
        let first_line = async move {
            theirs.write_all(request).await.unwrap();
            let (mut answer, mut read) = (Vec::new(), [0; 1024]);
            while !answer.contains(&b'\n') {
                match theirs.read(&mut read).await.unwrap() {
                    0 => break,
                    count => answer.extend_from_slice(&read[..count]),
                }
            }
            // The client is gone with this, which ends a connection that would answer more.
            let answer = String::from_utf8_lossy(&answer);
            answer.lines().next().unwrap_or_default().to_owned()
        };
        let (_, answer) = tokio::join!(answering(router, ours), first_line);
        answer
    }

    #[tokio::test]
    async fn a_request_names_one_host() {
        let ask =
            async |host: &str| status(format!("GET / HTTP/1.1\r\n{host}\r\n").as_bytes()).await;
        for good in ["Host: localhost\r\n", "Host: [::1]:80\r\n", "Host:\r\n"] {
            assert_eq!(ask(good).await, "HTTP/1.1 200 OK", "{good}");
        }
        let two = "Host: localhost\r\nHost: localhost\r\n";
        for bad in ["", two, "Host: a b\r\n", "Host: a@b\r\n", "Host: a/b\r\n"] {
            assert_eq!(ask(bad).await, "HTTP/1.1 400 Bad Request", "{bad}");
        }
        assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n").await, "HTTP/1.0 200 OK");
    }

    #[tokio::test]
    async fn a_head_has_so_many_bytes() {
        let head = |bytes: usize| {
            let head = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
            let rest = bytes - head.len() - "\r\n\r\n".len();
            format!("{head}{}\r\n\r\n", "x".repeat(rest))
        };
        let long = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(status(head(HEAD_BYTES_MAX).as_bytes()).await, "HTTP/1.1 200 OK");
        for bytes in [HEAD_BYTES_MAX + 1, 50_000, 64 << 10, 200_000] {
            assert_eq!(status(head(bytes).as_bytes()).await, long, "{bytes}");
        }
        let target = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(40_000));
        assert_eq!(status(target.as_bytes()).await, long);
        let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(100));
        assert_eq!(status(many.as_bytes()).await, long);
    }
}
