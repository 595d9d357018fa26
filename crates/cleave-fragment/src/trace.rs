//! Traces: what happened when, on which side, for one statement. A statement is a span, each of its fragments is one at
//! the host below it, and one at the device below that.
//!
//! ```text
//!  statement ─▶ Trace ─▶ OpenSpan at the host ─▶ TraceContext in the execute ─▶ OpenSpan at the device
//!                             └── when it ends ──▶ SpanSink            SpanSink ◀── when it ends ──┘
//! ```
//! 1. [`TraceContext`] is what crosses links: the ids of the trace and of the span that asks.
//! 2. [`Trace`] travels with a statement's settings and with its fragments; there is none where nobody traces.
//! 3. [`OpenSpan`] measures; [`Span`] is what it leaves, for whoever sends it on ([`SpanSink`]).
//!
//! Invariants: without a [`Trace`] no clock is read and nothing is allocated. No plan and no result depends on one: any
//! two are equal. A span has no constant of a statement, and of an error its kind alone.
//!
//! Source: W3C's Trace Context; OpenTelemetry's specification of traces, of which nothing else is known here.

#![deny(clippy::indexing_slicing)]

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use cleave_media::{Clock, Stopwatch, SystemClock, random_bytes};

/// Bytes of a traceparent of the version that is known.
const TRACEPARENT_BYTES: usize = 55;
/// The flags that are known: sampled, and random.
const KNOWN_FLAGS: u8 = 0b11;
const SAMPLED: u8 = 1;

/// The ids of a span and of its trace, neither of them zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// Bytes of [`TraceContext::to_bytes`].
    pub const BYTES: usize = 25;

    /// The context of these ids; None: one of them is zero. Flags that are not known are left out.
    #[must_use]
    pub fn new(trace: [u8; 16], span: [u8; 8], flags: u8) -> Option<Self> {
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self { trace, span, flags: flags & KNOWN_FLAGS })
    }

    /// The first span of a new trace, which is sampled; None: there is no randomness.
    #[must_use]
    pub fn drawn() -> Option<Self> {
        // The system is asked once.
        let bytes: [u8; 24] = random_bytes().ok()?;
        let (trace, span) = bytes.split_first_chunk::<16>()?;
        Self::new(*trace, *span.first_chunk::<8>()?, SAMPLED)
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(&self) -> Option<Self> {
        Self::new(self.trace, random_bytes().ok()?, self.flags)
    }

    /// Whether its spans are wanted.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace's id.
    #[must_use]
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// The span's id.
    #[must_use]
    pub fn span(&self) -> [u8; 8] {
        self.span
    }

    /// W3C's flags.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// The ids and the flags, one after the other.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [self.trace.as_slice(), self.span.as_slice(), &[self.flags]].concat()
    }

    /// What [`TraceContext::to_bytes`] has made; None: it is something else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace, rest) = bytes.split_first_chunk::<16>()?;
        let (span, rest) = rest.split_first_chunk::<8>()?;
        let [flags] = rest else { return None };
        Self::new(*trace, *span, *flags)
    }

    /// The context in W3C's header `traceparent`, of version 00 or a later one; None: it is none.
    #[must_use]
    pub fn of_traceparent(text: &str) -> Option<Self> {
        let (known, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
        let mut parts = known.split('-');
        let mut part = || parts.next();
        let (version, trace, span, flags) = (part()?, part()?, part()?, part()?);
        if part().is_some() {
            return None;
        }
        let [version] = hexadecimal(version)?;
        let fits = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let [flags] = hexadecimal(flags)?;
        let context = Self::new(hexadecimal(trace)?, hexadecimal(span)?, flags)?;
        fits.then_some(context)
    }
}

/// As W3C's header `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// The bytes that `digits` are, which are lower case.
fn hexadecimal<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    if digits.len() != 2 * N || digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: &u8| char::from(*digit).to_digit(16);
        let value = pair.iter().try_fold(0, |sum, digit| Some(sum * 16 + value(digit)?))?;
        *byte = u8::try_from(value).ok()?;
    }
    Some(bytes)
}

/// Who takes spans that have ended, and sends them to where they are looked at.
pub trait SpanSink: Send + Sync + fmt::Debug {
    /// Takes one. It must not wait: a span that finds no room is dropped.
    fn take(&self, span: Span);

    /// Whether it has no room now: it counts a span as dropped then, which need not be made.
    fn drops(&self) -> bool {
        false
    }
}

/// A part of a trace that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its ids.
    pub context: TraceContext,
    /// The span that it is a part of; None: it is the first of its trace.
    pub parent: Option<TraceContext>,
    /// Whether that is of another process.
    pub is_remote: bool,
    /// What it was.
    pub name: String,
    /// For whom.
    pub kind: SpanKind,
    /// When it began, since 1970, as this machine believes.
    pub began: Duration,
    /// When it ended, likewise.
    pub ended: Duration,
    /// What is to be known of it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// What kind of error it ended with.
    pub error: Option<String>,
}

/// Which side of an exchange a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// It was asked for.
    Server,
    /// It has asked another one.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// A text.
    Text(String),
    /// A count, or a size.
    Count(u64),
    /// A measure.
    Measure(f64),
    /// Whether.
    Flag(bool),
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for SpanValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for SpanValue {
    fn from(measure: f64) -> Self {
        Self::Measure(measure)
    }
}

impl From<bool> for SpanValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// What the spans of a statement's parts are made under. Cheap to clone.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<Under>>);

/// See [`Trace`].
#[derive(Debug)]
struct Under {
    context: TraceContext,
    /// Whether the span is of another process.
    is_remote: bool,
    /// Who takes the spans; None: it has crossed a link.
    sink: Option<Arc<dyn SpanSink>>,
    /// The name of the device that is asked.
    device: Option<String>,
}

impl Trace {
    /// Under the span of `context`, whose parts `sink` takes.
    #[must_use]
    pub fn under(context: TraceContext, sink: Arc<dyn SpanSink>) -> Self {
        Self(Some(Arc::new(Under { context, is_remote: false, sink: Some(sink), device: None })))
    }

    /// Under a span of another process.
    #[must_use]
    pub fn of_peer(context: TraceContext) -> Self {
        Self(Some(Arc::new(Under { context, is_remote: true, sink: None, device: None })))
    }

    /// The same, for a part that the device of this `name` is asked for.
    #[must_use]
    pub fn on_device(&self, name: &str) -> Self {
        Self(self.0.as_ref().map(|under| {
            let (context, is_remote) = (under.context, under.is_remote);
            Arc::new(Under {
                context,
                is_remote,
                sink: under.sink.clone(),
                device: Some(name.to_owned()),
            })
        }))
    }

    /// The span; None: nobody traces.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.0.as_ref().map(|under| under.context)
    }

    /// The name that [`Trace::on_device`] was given.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.0.as_ref()?.device.as_deref()
    }

    /// Begins a part, which `sink` takes, or else who takes the span itself. None: nobody traces.
    #[must_use]
    pub fn begin(
        &self,
        kind: SpanKind,
        name: &str,
        sink: Option<&Arc<dyn SpanSink>>,
    ) -> Option<OpenSpan> {
        let under = self.0.as_ref().filter(|under| under.context.is_sampled())?;
        let sink = sink.or(under.sink.as_ref()).map(Arc::clone)?;
        let context = under.context.child()?;
        let began = Duration::from_micros(u64::try_from(SystemClock.wall()).unwrap_or(0));
        let span = Span {
            context,
            parent: Some(under.context),
            is_remote: under.is_remote,
            name: name.to_owned(),
            kind,
            began,
            ended: began,
            attributes: Vec::new(),
            error: None,
        };
        Some(OpenSpan { context, span: Some(span), sink, clock: Stopwatch::start() })
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trace").field(&self.context()).finish()
    }
}

/// What holds it is compared by what else it has.
impl PartialEq for Trace {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Trace {}

impl Hash for Trace {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

/// A span that has begun. It ends, and is handed over, when this is dropped.
#[derive(Debug)]
pub struct OpenSpan {
    context: TraceContext,
    /// Taken as it ends.
    span: Option<Span>,
    sink: Arc<dyn SpanSink>,
    clock: Stopwatch,
}

impl OpenSpan {
    /// What its own parts are made under.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace::under(self.context, Arc::clone(&self.sink))
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<SpanValue>) {
        if let Some(span) = &mut self.span {
            span.attributes.push((name, value.into()));
        }
    }

    /// Adds an attribute in milliseconds.
    pub fn set_ms(&mut self, name: &'static str, time: Duration) {
        self.set(name, time.as_secs_f64() * 1e3);
    }

    /// It ends with an error of this kind, which is no text of one.
    pub fn fail(&mut self, kind: String) {
        if let Some(span) = &mut self.span {
            span.error = Some(kind);
        }
    }

    /// The time since it began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.ended = span.began + self.clock.elapsed();
            self.sink.take(span);
        }
    }
}

#[cfg(test)]
mod tests;
