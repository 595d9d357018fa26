//! What a client says of its trace is read within bounds, and a span is handed over as it ends.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Taken(Mutex<Vec<Span>>);

impl SpanSink for Taken {
    fn take(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

proptest! {
    #[test]
    fn a_context_comes_back_from_bytes_and_from_text(
        trace: [u8; 16], span: [u8; 8], flags: u8, more in prop::collection::vec(any::<u8>(), 1..9),
    ) {
        let Some(context) = TraceContext::new(trace, span, flags) else { return Ok(()) };
        let bytes = context.to_bytes();
        prop_assert_eq!(bytes.len(), TraceContext::BYTES);
        prop_assert_eq!(TraceContext::from_bytes(&bytes), Some(context));
        prop_assert_eq!(TraceContext::of_traceparent(&context.to_string()), Some(context));
        // One byte more or less is none.
        prop_assert_eq!(TraceContext::from_bytes(&[bytes.clone(), more].concat()), None);
        prop_assert_eq!(TraceContext::from_bytes(bytes.split_last().unwrap().1), None);
    }

    #[test]
    fn no_text_is_a_context_by_chance(text in "[-0-9a-fA-Fé]{0,70}") {
        if let Some(context) = TraceContext::of_traceparent(&text) {
            prop_assert!(context.trace() != [0; 16] && context.span() != [0; 8]);
            let shown = context.to_string();
            prop_assert_eq!(text.get(3..52), shown.get(3..52));
        }
    }
}

#[test]
fn a_traceparent_is_what_w3c_says() {
    let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    let of = |text: String| TraceContext::of_traceparent(&text);
    assert!(of(format!("00-{ids}-01")).unwrap().is_sampled());
    assert!(!of(format!("00-{ids}-00")).unwrap().is_sampled());
    assert!(of(format!("cc-{ids}-01-what-comes-later")).is_some(), "a later version may say more");
    for wrong in [
        format!("00-{ids}-01-more"),
        format!("cc-{ids}-01x"),
        format!("ff-{ids}-01"),
        format!("00-{}-01", ids.to_uppercase()),
        format!("00-{ids}-0"),
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned(),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_owned(),
    ] {
        assert_eq!(of(wrong.clone()), None, "{wrong}");
    }
}

#[test]
fn a_span_is_handed_over_as_it_ends_below_the_one_that_asked() {
    let (taken, other) = (Arc::new(Taken::default()), Arc::new(Taken::default()));
    let root = TraceContext::drawn().unwrap();
    let trace = Trace::under(root, Arc::clone(&taken) as Arc<dyn SpanSink>).on_device("one");
    assert_eq!(trace.device(), Some("one"));
    let mut host = trace.begin(SpanKind::Client, "fragment", None).unwrap();
    host.set("rows", 3_u64);
    host.fail("Refused".to_owned());
    // Over a link nothing but the context comes.
    let asked = Trace::of_peer(host.trace().context().unwrap());
    assert!(asked.begin(SpanKind::Server, "fragment", None).is_none(), "nobody takes it");
    let theirs = Arc::clone(&other) as Arc<dyn SpanSink>;
    drop(asked.begin(SpanKind::Server, "fragment", Some(&theirs)));
    assert!(taken.0.lock().unwrap().is_empty());
    drop(host);
    let [host] = std::mem::take(&mut *taken.0.lock().unwrap()).try_into().unwrap();
    let [device] = std::mem::take(&mut *other.0.lock().unwrap()).try_into().unwrap();
    assert_eq!((host.parent, host.is_remote), (Some(root), false));
    assert_eq!((device.parent, device.is_remote), (Some(host.context), true));
    assert_eq!(device.context.trace(), root.trace());
    assert_eq!(host.attributes, [("rows", SpanValue::Count(3))]);
    assert_eq!(host.error.as_deref(), Some("Refused"));
    assert!(host.began <= host.ended);
    let unwanted = TraceContext::new(root.trace(), root.span(), 0).unwrap();
    let unwanted = Trace::under(unwanted, Arc::clone(&taken) as Arc<dyn SpanSink>);
    assert!(unwanted.begin(SpanKind::Client, "fragment", None).is_none(), "it is not sampled");
    assert!(Trace::default().begin(SpanKind::Client, "fragment", None).is_none());
}
