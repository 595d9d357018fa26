//! The host's span of a fragment: from before it is sent until its last row, its error, or nobody wants more of it.

use super::link::{LinkError, RunStream};
use crate::command::{Execute, RunReport};
use crate::trace::{OpenSpan, SpanKind};

/// The attribute of a run that nobody wants more of.
pub(super) const GIVEN_UP: &str = "cleave.fragment.given_up";

/// The span of a run that has not begun; none where nobody traces.
pub(super) struct Beginning(Option<Box<OpenSpan>>);

impl Drop for Beginning {
    fn drop(&mut self) {
        // Nobody waits for the run any more, as when a statement is cancelled.
        if let Some(span) = &mut self.0 {
            span.set(GIVEN_UP, true);
        }
    }
}

/// Begins the span of `request` to the device at `address`; the device's is going to be a part of it.
pub(super) fn begin(request: &mut Execute, address: impl FnOnce() -> String) -> Beginning {
    let Some(mut span) = request.trace.begin(SpanKind::Client, "fragment", None) else {
        return Beginning(None);
    };
    if let Some(device) = request.trace.device() {
        span.set("cleave.device.name", device.to_owned());
    }
    span.set("server.address", address());
    let morsels: usize = request.inputs.iter().map(|(_, morsels)| morsels.len()).sum();
    span.set("cleave.fragment.run", request.header.run);
    span.set("cleave.fragment.morsels_sent", morsels as u64);
    if request.first_slot > 0 {
        span.set("cleave.fragment.repeated_from_slot", request.first_slot);
    }
    request.trace = span.trace();
    Beginning(Some(Box::new(span)))
}

/// Hands the span over to the stream, or ends it where the run has not begun.
pub(super) fn begun(
    mut beginning: Beginning,
    begun: Result<RunStream, LinkError>,
) -> Result<RunStream, LinkError> {
    let Some(mut span) = beginning.0.take() else { return begun };
    match begun {
        Ok(mut stream) => {
            let accepted = span.elapsed();
            span.set_ms("cleave.fragment.accepted_ms", accepted);
            stream.traced_by(span);
            Ok(stream)
        }
        Err(error) => {
            span.set("cleave.fragment.refused", error.is_refusal());
            fail(&mut span, &error);
            Err(error)
        }
    }
}

/// Says what kind of error `error` is: its text may have constants.
pub(super) fn fail(span: &mut OpenSpan, error: &LinkError) {
    let kind = match (error.device_error(), error) {
        (Some(source), _) => format!("{:?}", source.cause),
        (None, LinkError::Lost { .. }) => "Lost".to_owned(),
        (None, LinkError::TooLarge { .. }) => "TooLarge".to_owned(),
        (None, LinkError::Corrupt { .. }) => "Corrupt".to_owned(),
        (None, LinkError::Protocol { .. }) => "Protocol".to_owned(),
        (None, _) if error.is_unreachable() => "Unreachable".to_owned(),
        (None, _) => "Link".to_owned(),
    };
    span.set("error.type", kind.clone());
    span.fail(kind);
}

/// Adds what the device has told of the run.
pub(super) fn tell(span: &mut OpenSpan, report: &RunReport) {
    span.set("cleave.fragment.rows", report.rows);
    span.set("cleave.fragment.morsels", report.morsels);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::trace::{Span, SpanSink, SpanValue, Trace, TraceContext};

    #[derive(Debug, Default)]
    struct Taken(Mutex<Vec<Span>>);

    impl SpanSink for Taken {
        fn take(&self, span: Span) {
            self.0.lock().unwrap().push(span);
        }
    }

    #[test]
    fn a_run_that_nobody_waits_for_is_given_up() {
        let taken = Arc::new(Taken::default());
        let sink = Arc::clone(&taken) as Arc<dyn SpanSink>;
        let trace = Trace::under(TraceContext::drawn().unwrap(), sink);
        let span = trace.begin(SpanKind::Client, "fragment", None).map(Box::new);
        drop(Beginning(span));
        let lost = LinkError::Lost { address: "nas:1".to_owned(), detail: "gone".to_owned() };
        let span = trace.begin(SpanKind::Client, "fragment", None).map(Box::new);
        drop(begun(Beginning(span), Err(lost)));
        let [given_up, failed] = std::mem::take(&mut *taken.0.lock().unwrap()).try_into().unwrap();
        assert_eq!(given_up.attributes, [(GIVEN_UP, SpanValue::Flag(true))]);
        assert_eq!((given_up.error, failed.error.as_deref()), (None, Some("Lost")));
        assert!(failed.attributes.iter().all(|(name, _)| *name != GIVEN_UP));
    }
}
