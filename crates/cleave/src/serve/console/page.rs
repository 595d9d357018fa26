//! The files of the page, as the program has them, and the policy that browsers hold the page to.
//!
//! Invariant: the page may load and ask nothing but this server, runs no script that is not a file of it, and stands in
//! no frame of another page.
//!
//! Source: Content Security Policy Level 3.

use axum::extract::{Path, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

/// See the module's invariant.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files, with their types.
const FILES: [(&str, &str, &str); 9] = [
    ("index.html", HTML, include_str!("page/index.html")),
    ("console.css", "text/css; charset=utf-8", include_str!("page/console.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("console.js", SCRIPT, include_str!("page/console.js")),
    ("document.js", SCRIPT, include_str!("page/document.js")),
    ("plan.js", SCRIPT, include_str!("page/plan.js")),
    ("query.js", SCRIPT, include_str!("page/query.js")),
    ("server.js", SCRIPT, include_str!("page/server.js")),
    ("timeline.js", SCRIPT, include_str!("page/timeline.js")),
];

/// Leads to the page.
pub(super) async fn start() -> Redirect {
    Redirect::to("/console/")
}

/// The page.
pub(super) async fn index() -> Response {
    named("index.html")
}

/// A file of the page.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    named(&name)
}

fn named(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => ([(header::CONTENT_TYPE, *kind)], *text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Adds the policy to every answer.
pub(super) async fn with_policy(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    //! The page is small, and names no other server.

    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let bytes: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!(bytes < 200 << 10, "{bytes}");
        for (name, _, text) in FILES {
            // The namespaces of SVG are names, which nobody fetches.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for other in
                ["http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval("]
            {
                assert!(!text.contains(other), "{name}: {other}");
            }
        }
    }
}
