//! The span of a statement: as it begins, its place in a trace; as it ends, what it was and what it has cost.
//!
//! A statement is the first span of a trace of its own, unless its client's library has put the place in one into a
//! comment, as sqlcommenter does.
//!
//! Invariants: a span has no constant of the statement, and of an error its SQLSTATE alone. Whether a statement is
//! traced is decided before anything is made for it: one that is not costs no memory, and asks the system for nothing.
//!
//! Source: OpenTelemetry's semantic conventions for databases; <https://google.github.io/sqlcommenter/spec/>.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cleave_catalog::settings::Client;
use cleave_catalog::statement_cost::Cost;
use cleave_fragment::trace::{Span, SpanKind, SpanSink, SpanValue, Trace, TraceContext};
use cleave_media::{Clock, SplitMix64, SystemClock, random_bytes};

use super::{Shape, StatementEnd, StatementKind};

/// Bytes of a comment that are looked at.
const COMMENT_BYTES_MAX: usize = 4 << 10;
/// Bytes of a word that names an operation.
const WORD_BYTES_MAX: usize = 16;

/// Which statements are traced, and where their spans go.
#[derive(Debug)]
pub struct Traces {
    /// Who takes the spans.
    sink: Arc<dyn SpanSink>,
    /// The share of the statements that are traced of which a client does not say whether they are; from 0 to 1.
    share: f64,
    /// Most of these a second; 0: there is no limit.
    per_second_max: u32,
    /// Gives each of these its chance.
    chances: AtomicU64,
    /// The second of the last of these, and how many that second has had, in 32 bits each.
    places: AtomicU64,
}

/// A statement that is traced.
pub(super) struct Traced {
    context: TraceContext,
    parent: Option<TraceContext>,
    sink: Arc<dyn SpanSink>,
    database: String,
}

/// The place in a trace that a client's library has put into a comment at the start or at the end of `sql`:
/// `/*…,traceparent='00-…-…-01',…*/`.
#[must_use]
pub fn asked_by(sql: &str) -> Option<TraceContext> {
    let sql = sql.trim_matches(|letter: char| letter.is_whitespace() || letter == ';');
    let at_start = sql.strip_prefix("/*").and_then(|rest| {
        let rest = rest.get(..rest.floor_char_boundary(COMMENT_BYTES_MAX))?;
        rest.split_once("*/").map(|(comment, _)| comment)
    });
    let at_end = || {
        let rest = sql.strip_suffix("*/")?;
        let begin = rest.ceil_char_boundary(rest.len().saturating_sub(COMMENT_BYTES_MAX));
        rest.get(begin..)?.rsplit_once("/*").map(|(_, comment)| comment)
    };
    at_start.and_then(of_comment).or_else(|| at_end().and_then(of_comment))
}

fn of_comment(comment: &str) -> Option<TraceContext> {
    let mut pairs = comment.split(',').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == "traceparent")?;
    TraceContext::of_traceparent(value.strip_prefix('\'')?.strip_suffix('\'')?)
}

impl Traces {
    /// `sink` takes the spans of this `share` of the statements, from 0 to 1, of which clients do not say whether they
    /// are traced, and of these the first `per_second_max` of each second; 0: there is no limit.
    #[must_use]
    pub fn new(sink: Arc<dyn SpanSink>, share: f64, per_second_max: u32) -> Self {
        let seed = random_bytes().map(u64::from_le_bytes).unwrap_or_default();
        let (chances, places) = (AtomicU64::new(seed), AtomicU64::default());
        Self { sink, share, per_second_max, chances, places }
    }

    /// A statement of `client`, looked at `now`, if it is to be traced.
    pub(super) fn traced(&self, client: &Client, now: Duration) -> Option<Traced> {
        let parent = client.asked_by.context();
        let context = match parent {
            Some(parent) if !parent.is_sampled() => return None,
            Some(parent) => parent.child()?,
            None if !(self.is_drawn() && self.has_place(now)) => return None,
            None => TraceContext::drawn()?,
        };
        let (sink, database) = (Arc::clone(&self.sink), client.database.clone());
        Some(Traced { context, parent, sink, database })
    }

    /// Whether chance has it that a new trace is made.
    fn is_drawn(&self) -> bool {
        if self.share >= 1.0 {
            return true;
        }
        let number = SplitMix64::new(self.chances.fetch_add(1, Ordering::Relaxed)).next_u64();
        (number as f64) < self.share * u64::MAX as f64
    }

    /// Takes one of the places of the second `now`, if one is left.
    fn has_place(&self, now: Duration) -> bool {
        if self.per_second_max == 0 {
            return true;
        }
        let second = now.as_secs() & u64::from(u32::MAX);
        let more = |places: u64| {
            let (then, taken) = (places >> u32::BITS, places & u64::from(u32::MAX));
            // A thread that comes late with the second before takes none of its places again.
            let count = if then < second { 0 } else { taken };
            let is_left = count < u64::from(self.per_second_max);
            is_left.then_some((then.max(second) << u32::BITS) | (count + 1))
        };
        self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Traced {
    /// What its fragments are measured under.
    pub(super) fn trace(&self) -> Trace {
        Trace::under(self.context, Arc::clone(&self.sink))
    }

    /// The statement, which is of `shape`, has come to its end now.
    pub(super) fn end(
        self,
        (shape, elapsed): (&Shape, Duration),
        (rows, cost): (u64, &Cost),
        end: StatementEnd<'_>,
    ) {
        if self.sink.drops() {
            return;
        }
        let ended = Duration::from_micros(u64::try_from(SystemClock.wall()).unwrap_or(0));
        let operation = operation(shape);
        let mut attributes: Vec<(&'static str, SpanValue)> = vec![
            ("db.system.name", "cleave".to_owned().into()),
            ("db.namespace", self.database.into()),
            ("db.operation.name", operation.clone().into()),
            ("db.query.text", shape.text().to_owned().into()),
            ("db.response.returned_rows", rows.into()),
        ];
        if let Some(split) = &cost.split {
            attributes.extend([
                ("cleave.split", split.clone().into()),
                ("cleave.link_bytes", cost.link_bytes.into()),
                ("cleave.media_bytes", cost.media_bytes.into()),
                ("cleave.host_cpu_ms", cost.host_cpu_ms.into()),
                ("cleave.device_cpu_ms", cost.device_cpu_ms.into()),
                ("cleave.fragments_refused", cost.refused.into()),
            ]);
        }
        let error = match end {
            StatementEnd::Done => None,
            StatementEnd::Failed(sqlstate) => Some(sqlstate.to_owned()),
            StatementEnd::Dropped => {
                attributes.push(("cleave.given_up", true.into()));
                None
            }
        };
        if let Some(sqlstate) = &error {
            attributes.push(("db.response.status_code", sqlstate.clone().into()));
            attributes.push(("error.type", sqlstate.clone().into()));
        }
        self.sink.take(Span {
            context: self.context,
            parent: self.parent,
            is_remote: self.parent.is_some(),
            name: operation,
            kind: SpanKind::Server,
            began: ended.saturating_sub(elapsed),
            ended,
            attributes,
            error,
        });
    }
}

/// The name of what a statement of `shape` does: of few that there are.
fn operation(shape: &Shape) -> String {
    let word = match shape.kind() {
        kind @ (StatementKind::Select
        | StatementKind::Insert
        | StatementKind::Update
        | StatementKind::Delete
        | StatementKind::Copy) => kind.name(),
        StatementKind::Transaction | StatementKind::Definition | StatementKind::Other => {
            let mut words = shape.text().split(|letter: char| !letter.is_ascii_alphabetic());
            let first = words.find(|word| !word.is_empty()).unwrap_or_default();
            if (1..=WORD_BYTES_MAX).contains(&first.len()) { first } else { "statement" }
        }
    };
    word.to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{Counting, Statements};
    use super::*;

    const ASKED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[derive(Debug, Default)]
    struct Taken(Mutex<Vec<Span>>);

    impl SpanSink for Taken {
        fn take(&self, span: Span) {
            self.0.lock().unwrap().push(span);
        }
    }

    #[test]
    fn a_comment_at_either_end_says_what_asked() {
        let found = |sql: String| asked_by(&sql).map(|context| context.to_string());
        for sql in [
            format!("SELECT 1 /*traceparent='{ASKED}'*/"),
            format!(
                " SELECT 1 /* action='%2Fa*b', traceparent='{ASKED}',tracestate='x%3D1' */ ;\n"
            ),
            format!("/*traceparent='{ASKED}'*/ SELECT 1"),
            format!("SELECT 1; /*traceparent='{ASKED}'*/"),
            format!("/* a comment */ SELECT 1 /*traceparent='{ASKED}'*/"),
        ] {
            assert_eq!(found(sql.clone()).as_deref(), Some(ASKED), "{sql}");
        }
        let long = "é".repeat(COMMENT_BYTES_MAX);
        for sql in [
            format!("SELECT '/*traceparent=''{ASKED}''*/'"),
            format!("SELECT 1 /*traceparent={ASKED}*/"),
            format!("SELECT 1 /*another='traceparent','{ASKED}'*/"),
            format!("SELECT 1 /*traceparent='{ASKED}',more='{long}'*/"),
            format!("/*{long},traceparent='{ASKED}'*/ SELECT 1"),
            "SELECT 1 /*traceparent='00-0-0-01'*/".to_owned(),
            "*/".to_owned(),
            "/*/".to_owned(),
            String::new(),
        ] {
            assert_eq!(found(sql.clone()), None, "{sql}");
        }
    }

    #[test]
    fn a_statement_is_a_span_without_constants() {
        let taken = Arc::new(Taken::default());
        let statements = Arc::new(Statements::default());
        let sink = Arc::clone(&taken) as Arc<dyn SpanSink>;
        assert!(statements.trace(Traces::new(sink, 1.0, 0)));
        let asked = TraceContext::of_traceparent(ASKED).unwrap();
        let client = Client { asked_by: Trace::of_peer(asked), ..Client::default() };
        let shape = Shape::of("SELECT a FROM t WHERE b = 'secret'");
        let mut counting = Counting::begin(&statements, &client, &shape, None);
        let below = counting.trace().context().unwrap();
        counting.add_rows(3);
        counting.end(StatementEnd::Failed("22012"));
        let unasked = Counting::begin(&statements, &Client::default(), &Shape::of("BEGIN"), None);
        drop(unasked);
        let [asked_for, alone] = std::mem::take(&mut *taken.0.lock().unwrap()).try_into().unwrap();
        assert_eq!((asked_for.context, asked_for.parent), (below, Some(asked)));
        assert_eq!(
            (asked_for.name.as_str(), asked_for.error.as_deref()),
            ("SELECT", Some("22012"))
        );
        let has = |name: &str, value: SpanValue| {
            asked_for.attributes.iter().any(|(own, found)| *own == name && *found == value)
        };
        assert!(has("db.query.text", "SELECT a FROM t WHERE b = $1".to_owned().into()));
        assert!(has("db.response.status_code", "22012".to_owned().into()));
        assert!(has("db.response.returned_rows", 3_u64.into()));
        assert!(!format!("{asked_for:?}").contains("secret"));
        assert_eq!((alone.name.as_str(), alone.parent, alone.error), ("BEGIN", None, None));
        assert_ne!(alone.context.trace(), asked_for.context.trace());
        // Who is looked on by is not counted, and who asks not to be traced is not.
        let onlooker = Client { looks_on: true, ..client.clone() };
        drop(Counting::begin(&statements, &onlooker, &shape, None));
        let unsampled = TraceContext::new(asked.trace(), asked.span(), 0).unwrap();
        let client = Client { asked_by: Trace::of_peer(unsampled), ..Client::default() };
        drop(Counting::begin(&statements, &client, &shape, None));
        assert!(taken.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_share_of_the_statements_is_traced() {
        let sink = Arc::new(Taken::default()) as Arc<dyn SpanSink>;
        let count = |share: f64| {
            let traces = Traces::new(Arc::clone(&sink), share, 0);
            let is_traced = || traces.traced(&Client::default(), Duration::ZERO).is_some();
            (0..200).filter(|_| is_traced()).count()
        };
        assert_eq!((count(0.0), count(1.0)), (0, 200));
        let half = count(0.5);
        assert!((20..180).contains(&half), "{half}");
    }

    #[test]
    fn so_many_statements_are_traced_each_second_and_all_that_clients_ask_for() {
        let sink = Arc::new(Taken::default()) as Arc<dyn SpanSink>;
        let traces = Traces::new(sink, 1.0, 3);
        let count = |client: &Client, now_ms: u64| {
            let now = Duration::from_millis(now_ms);
            (0..10).filter(|_| traces.traced(client, now).is_some()).count()
        };
        let (alone, asked) = (Client::default(), TraceContext::of_traceparent(ASKED).unwrap());
        let asking = Client { asked_by: Trace::of_peer(asked), ..Client::default() };
        assert_eq!((count(&alone, 7_000), count(&asking, 7_200), count(&alone, 7_900)), (3, 10, 0));
        assert_eq!((count(&alone, 8_000), count(&alone, 7_999), count(&alone, 8_001)), (3, 0, 0));
        assert_eq!(count(&alone, 20_500), 3);
    }
}
