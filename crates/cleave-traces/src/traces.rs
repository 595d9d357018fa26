//! The queue of spans, and the thread that sends them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use cleave_fragment::trace::{Span, SpanKind, SpanSink, SpanValue};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind as SentKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanExporter, SpanLinks,
    SpanProcessor,
};
use prost::Message;

use crate::client::{Client, REQUEST_TIME_MAX};
use crate::collector::Collector;

/// Spans that wait to be sent, or are being sent. That of a statement has its text, of up to 8 KiB.
const WAITING_COUNT_MAX: usize = 2048;
/// Spans of a request.
const BATCH_COUNT_MAX: usize = 512;
/// Time until spans are sent that fill no request.
const DELAY: Duration = Duration::from_secs(1);
/// Time for what is left at the end.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// Why a span is lost that finds no room.
const TOO_MANY: &str = "more of them come than can be sent";

/// Tells the operator a line.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The system gives no thread.
    #[error("cannot start to send traces: {0}")]
    Threads(#[from] std::io::Error),
    /// The environment has settings of OpenTelemetry that make no sense.
    #[error("cannot send traces: {0}")]
    Settings(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Takes spans, and sends them. Dropped without [`Traces::end`], those that wait are lost.
pub struct Traces {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    losses: Arc<Losses>,
    has_ended: AtomicBool,
}

/// What was not sent, and why.
pub(crate) struct Losses {
    url: String,
    /// Spans that wait, or are being sent.
    waiting: AtomicUsize,
    lost: AtomicU64,
    /// Why the newest request has failed.
    why: Mutex<String>,
    /// Spans that the collector has refused of the newest request, which it has taken otherwise.
    refused: AtomicU64,
    has_told: AtomicBool,
    tell: Tell,
}

/// Counts what is sent.
#[derive(Debug)]
struct Counted {
    exporter: opentelemetry_otlp::SpanExporter,
    losses: Arc<Losses>,
}

impl Traces {
    /// Begins to send to `collector` the spans of the service of this name, of which these attributes hold. What the
    /// operator should know of it, it will `tell`.
    ///
    /// # Errors
    /// Those of the system, and of OpenTelemetry's settings in the environment.
    pub fn begin(
        collector: Collector,
        service: &'static str,
        attributes: impl IntoIterator<Item = (&'static str, String)>,
        tell: Tell,
    ) -> Result<Arc<Self>, TracesError> {
        let losses = Arc::new(Losses {
            url: collector.url().to_owned(),
            waiting: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            why: Mutex::default(),
            refused: AtomicU64::new(0),
            has_told: AtomicBool::new(false),
            tell,
        });
        let client = Client::new(Arc::new(collector), Arc::clone(&losses))?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(losses.url.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(REQUEST_TIME_MAX)
            // The queue would be full before a collector is back.
            .with_retry_policy(RetryPolicy::disabled())
            .build()?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_COUNT_MAX)
            .with_max_export_batch_size(BATCH_COUNT_MAX)
            .with_scheduled_delay(DELAY)
            .build();
        let counted = Counted { exporter, losses: Arc::clone(&losses) };
        let mut processor = BatchSpanProcessor::builder(counted).with_batch_config(config).build();
        let version = env!("CARGO_PKG_VERSION");
        let own = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value));
        let resource = Resource::builder_empty()
            .with_service_name(service)
            .with_attribute(KeyValue::new("service.version", version))
            .with_attributes(own)
            .build();
        processor.set_resource(&resource);
        let scope = InstrumentationScope::builder("cleave").with_version(version).build();
        Ok(Arc::new(Self { processor, scope, losses, has_ended: AtomicBool::new(false) }))
    }

    /// Sends what waits, for at most two seconds, and no more from then on. It blocks the thread.
    pub fn end(&self) {
        self.end_within(END_TIME_MAX);
    }

    pub(crate) fn end_within(&self, limit: Duration) {
        if self.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.processor.shutdown_with_timeout(limit).is_err() {
            let left = self.losses.waiting.load(Ordering::SeqCst);
            self.losses.lose(left, "what waits cannot be sent in time");
        }
        let lost = self.lost_count();
        if lost > 0 {
            (self.losses.tell)(&format!("{lost} spans of traces could not be sent"));
        }
    }

    /// Spans that could not be sent.
    #[must_use]
    pub fn lost_count(&self) -> u64 {
        self.losses.lost.load(Ordering::SeqCst)
    }
}

impl SpanSink for Traces {
    fn take(&self, span: Span) {
        if self.has_ended.load(Ordering::SeqCst) {
            return;
        }
        if self.losses.waiting.fetch_add(1, Ordering::SeqCst) >= WAITING_COUNT_MAX {
            self.losses.waiting.fetch_sub(1, Ordering::SeqCst);
            return self.losses.lose(1, TOO_MANY);
        }
        self.processor.on_end(data_of(span, &self.scope));
    }

    fn drops(&self) -> bool {
        let is_full = self.losses.waiting.load(Ordering::SeqCst) >= WAITING_COUNT_MAX;
        if is_full && !self.has_ended.load(Ordering::SeqCst) {
            self.losses.lose(1, TOO_MANY);
        }
        is_full
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("losses", &self.losses).finish_non_exhaustive()
    }
}

impl Losses {
    /// Notes why a request has failed.
    pub(crate) fn note(&self, why: String) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Notes what the collector says in the `answer` to a request that has not failed.
    pub(crate) fn note_refused(&self, answer: &[u8]) {
        // Most say nothing, and some say it in another form.
        let partial = ExportTraceServiceResponse::decode(answer).ok();
        let partial = partial.and_then(|response| response.partial_success);
        let refused = partial.map_or(0, |partial| partial.rejected_spans);
        self.refused.store(u64::try_from(refused).unwrap_or(0), Ordering::SeqCst);
    }

    /// Counts spans that are lost, and tells of the first.
    fn lose(&self, count: usize, why: &str) {
        self.lost.fetch_add(count as u64, Ordering::SeqCst);
        if count > 0 && !self.has_told.swap(true, Ordering::SeqCst) {
            let url = &self.url;
            (self.tell)(&format!(
                "spans of traces cannot be sent to {url}, and are dropped: {why}; this is said once"
            ));
        }
    }
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses").field("url", &self.url).finish_non_exhaustive()
    }
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.exporter.export(batch).await;
        self.losses.waiting.fetch_sub(count, Ordering::SeqCst);
        let refused = self.losses.refused.swap(0, Ordering::SeqCst);
        if let Err(error) = &sent {
            let noted = std::mem::take(
                &mut *self.losses.why.lock().unwrap_or_else(PoisonError::into_inner),
            );
            let why = if noted.is_empty() { error.to_string() } else { noted };
            self.losses.lose(count, &why);
        } else {
            let refused = usize::try_from(refused).unwrap_or(count).min(count);
            self.losses.lose(refused, "it refuses some of them");
        }
        sent
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// `span` as OpenTelemetry's library has it.
fn data_of(span: Span, scope: &InstrumentationScope) -> SpanData {
    let Span { context, parent, is_remote, name, kind, began, ended, attributes, error } = span;
    let span_context = SpanContext::new(
        TraceId::from_bytes(context.trace()),
        SpanId::from_bytes(context.span()),
        TraceFlags::new(context.flags()),
        false,
        TraceState::NONE,
    );
    let parent_span_id = parent.map(|parent| SpanId::from_bytes(parent.span()));
    let attributes = attributes.into_iter().map(|(name, value)| {
        let value = match value {
            SpanValue::Text(text) => Value::from(text),
            SpanValue::Count(count) => Value::I64(i64::try_from(count).unwrap_or(i64::MAX)),
            SpanValue::Measure(measure) => Value::F64(measure),
            SpanValue::Flag(flag) => Value::Bool(flag),
        };
        KeyValue::new(name, value)
    });
    SpanData {
        span_context,
        parent_span_id: parent_span_id.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: is_remote,
        span_kind: match kind {
            SpanKind::Server => SentKind::Server,
            SpanKind::Client => SentKind::Client,
        },
        name: name.into(),
        start_time: SystemTime::UNIX_EPOCH + began,
        end_time: SystemTime::UNIX_EPOCH + ended,
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}
