//! Tests of traces: which spans a statement has, on the embedded device and on one behind a link, and what they tell.

use std::sync::{Arc, Mutex};

use cleave_fragment::trace::{Span, SpanKind, SpanSink, SpanValue};
use cleave_host::statements::Traces;
use cleave_host::{Database, Session};

use crate::devices::with_nas;
use crate::support::{refused, run};

/// Keeps the spans that it is given.
#[derive(Debug, Default)]
struct Taken(Mutex<Vec<Span>>);

impl SpanSink for Taken {
    fn take(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

impl Taken {
    /// Traces all statements of `database`.
    fn of(database: &Arc<Database>) -> Arc<Self> {
        let taken = Arc::new(Self::default());
        let sink = Arc::clone(&taken) as Arc<dyn SpanSink>;
        assert!(database.statements().trace(Traces::new(sink, 1.0, 0)));
        taken
    }

    /// The spans since it was asked last: the last statement, and those of its fragments, at the host and at devices.
    fn last(&self) -> (Span, Vec<Span>, Vec<Span>) {
        let mut spans = std::mem::take(&mut *self.0.lock().unwrap());
        let text = format!("{spans:?}");
        assert!(!text.contains("private"), "{text}");
        let is_statement = |span: &Span| text_of(span, "db.query.text").is_some();
        let place = spans.iter().rposition(is_statement).unwrap();
        let statement = spans.remove(place);
        spans.retain(|span| span.context.trace() == statement.context.trace());
        let (at_host, at_device): (Vec<_>, Vec<_>) =
            spans.into_iter().partition(|span| span.kind == SpanKind::Client);
        assert!(at_host.iter().all(|span| span.parent == Some(statement.context)), "{at_host:#?}");
        for run in &at_device {
            let mut parents = at_host.iter().map(|span| Some(span.context));
            assert!(parents.any(|parent| parent == run.parent), "{run:#?}");
        }
        (statement, at_host, at_device)
    }
}

fn value<'a>(span: &'a Span, name: &str) -> Option<&'a SpanValue> {
    span.attributes.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
}

fn text_of<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    match value(span, name)? {
        SpanValue::Text(text) => Some(text),
        other => panic!("{name}: {other:?}"),
    }
}

fn count_of(span: &Span, name: &str) -> u64 {
    match value(span, name) {
        Some(SpanValue::Count(count)) => *count,
        other => panic!("{name}: {other:?}"),
    }
}

async fn placed(session: &mut Session, sql: &str) {
    run(session, "SET split = h0; SET stealing = off; SET update_placement = device").await;
    run(session, sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_has_spans_for_its_fragments_on_both_sides() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = Box::pin(with_nas(outside.path())).await;
    let taken = Taken::of(&database);
    let mut session = database.session();

    // A device behind a link sends its own spans, and this one was not told where.
    placed(&mut session, "SELECT count(*) FROM far WHERE note LIKE '%private%'").await;
    let (statement, at_host, at_device) = taken.last();
    assert_eq!((statement.name.as_str(), statement.parent), ("SELECT", None));
    let text = text_of(&statement, "db.query.text");
    assert_eq!(text, Some("SELECT count(*) FROM far WHERE note LIKE $1"));
    assert_eq!(count_of(&statement, "db.response.returned_rows"), 1);
    assert_eq!(text_of(&statement, "cleave.split"), Some("h0"));
    assert!(!at_host.is_empty() && at_device.is_empty(), "{at_host:#?} {at_device:#?}");
    for fragment in &at_host {
        assert_eq!(text_of(fragment, "cleave.device.name"), Some("nas"));
        assert!(count_of(fragment, "cleave.fragment.morsels_sent") > 0, "{fragment:#?}");
        assert!(statement.began <= statement.ended && fragment.error.is_none(), "{fragment:#?}");
    }

    // One in this process does so here.
    run(&mut session, "INSERT INTO near SELECT v, 'private' FROM generate_series(2, 9000) AS s(v)")
        .await;
    placed(&mut session, "SELECT count(*) FROM near WHERE note LIKE '%e%'").await;
    let (_, at_host, at_device) = taken.last();
    assert!(!at_host.is_empty() && at_host.len() == at_device.len(), "{at_host:#?}");
    assert!(at_device.iter().all(|run| text_of(run, "cleave.device.id").is_some()));
    let scanned = at_device.iter().map(|run| count_of(run, "cleave.fragment.rows_scanned"));
    assert!(scanned.sum::<u64>() > 0, "{at_device:#?}");

    // Changes run as fragments, too.
    placed(&mut session, "UPDATE far SET note = 'private'").await;
    let (statement, at_host, _) = taken.last();
    assert_eq!(statement.name, "UPDATE");
    assert_eq!(count_of(&statement, "db.response.returned_rows"), 20_001);
    assert!(!at_host.is_empty());

    // An error is told by its code alone, and a client's span is the parent.
    let asked = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    session.comes_with(&format!("SELECT 1 /*traceparent='00-{asked}-01'*/"));
    refused(&mut session, "SELECT id / (id - id) FROM far WHERE note = 'private'").await;
    let (statement, _, _) = taken.last();
    assert_eq!(statement.error.as_deref(), Some("22012"));
    assert_eq!(text_of(&statement, "db.response.status_code"), Some("22012"));
    assert!(statement.parent.unwrap().to_string().contains(asked), "{statement:#?}");

    // Rows that nobody takes to their end.
    session.comes_with("SELECT 1");
    let query = "SELECT note FROM far";
    let parsed = cleave_host::statement::parse_script_in(query, None).unwrap().remove(0);
    drop(session.start(parsed).await.unwrap());
    let (statement, _, _) = taken.last();
    assert_eq!((statement.parent, statement.error.as_deref()), (None, None));
    assert_eq!(value(&statement, "cleave.given_up"), Some(&SpanValue::Flag(true)));
}
