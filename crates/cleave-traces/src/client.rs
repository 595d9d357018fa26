//! One HTTP request at a time to the collector, each over a connection of its own.
//!
//! The library that makes the requests polls them on a thread without a runtime, so this brings one along.
//!
//! Invariants: a request is over within [`REQUEST_TIME_MAX`], from connecting to the answer's last byte. At most
//! [`ANSWER_BYTES_MAX`] bytes of an answer are read. No redirect is followed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cleave_fragment::ending::end_in_background;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::collector::Collector;
use crate::traces::Losses;

/// Time for one request.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer's body: it has nothing to say but how many spans it refuses.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Headers of an answer.
const HEADER_COUNT_MAX: usize = 64;

/// See the [module](self).
pub(crate) struct Client {
    collector: Arc<Collector>,
    losses: Arc<Losses>,
    /// There until it is dropped.
    runtime: Option<Runtime>,
}

impl Client {
    /// A client of `collector` that notes with `losses` why a request has failed.
    ///
    /// # Errors
    /// The system gives no runtime.
    pub(crate) fn new(collector: Arc<Collector>, losses: Arc<Losses>) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { collector, losses, runtime: Some(runtime) })
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let Collector { host, port, tls, .. } = &*self.collector;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        match tls {
            None => self.speak(stream, request).await,
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await?;
                self.speak(stream, request).await
            }
        }
    }

    async fn speak<S>(
        &self,
        stream: S,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, HttpError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADER_COUNT_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let (mut head, body) = request.into_parts();
        head.uri = self.collector.path.clone();
        head.headers.insert(HOST, self.collector.authority.clone());
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let sent = sender.send_request(Request::from_parts(head, Full::new(body)));
        let mut answered = std::pin::pin!(async {
            let (head, body) = sent.await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        });
        tokio::select! {
            answer = &mut answered => answer,
            // It has given the answer, or why there is none: an error as it closes takes nothing back.
            _ended = connection => answered.await,
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let Some(runtime) = &self.runtime else { return Err("the client has ended".into()) };
        let answer = runtime.block_on(async {
            match timeout(REQUEST_TIME_MAX, self.exchange(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {} s", REQUEST_TIME_MAX.as_secs()).into()),
            }
        });
        match &answer {
            Ok(answer) if answer.status().is_success() => self.losses.note_refused(answer.body()),
            Ok(answer) => self.losses.note(format!("it answers {}", answer.status())),
            Err(error) => self.losses.note(error.to_string()),
        }
        answer
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may still resolve a name.
        if let Some(runtime) = self.runtime.take() {
            end_in_background(runtime);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.collector).finish()
    }
}
