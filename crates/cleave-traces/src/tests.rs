//! Spans that reach a collector, and collectors that answer nothing of use.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleave_fragment::trace::{SpanKind, SpanSink, Trace, TraceContext};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

use super::{Collector, CollectorError, Traces};

/// A collector that gives `answer` to each request, and what the requests are: their heads and bodies.
fn collector(answer: &'static [u8]) -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (give, requests) = channel();
    let thread = std::thread::Builder::new().name("collector".to_owned());
    drop(thread.spawn(move || serve(&listener, answer, &give)).unwrap());
    (address, requests)
}

fn serve(listener: &TcpListener, answer: &[u8], give: &Sender<(String, Vec<u8>)>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        let request = loop {
            let count = stream.read(&mut buffer).unwrap_or(0);
            if count == 0 {
                return;
            }
            bytes.extend(&buffer[..count]);
            let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let length =
                text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
            let length: usize = length.unwrap().parse().unwrap();
            if bytes.len() >= end + 4 + length {
                break (text[..end].to_owned(), bytes[end + 4..].to_vec());
            }
        };
        if give.send(request).is_err() {
            return;
        }
        drop(stream.write_all(answer));
    }
}

/// Traces to `address`, and what they tell.
fn traces(address: SocketAddr) -> (Arc<Traces>, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    let tell = move |line: &str| teller.lock().unwrap().push(line.to_owned());
    let to = Collector::at(&format!("http://{address}"), None).unwrap();
    let name = ("db.namespace", "films".to_owned());
    (Traces::begin(to, "cleave", [name], Box::new(tell)).unwrap(), told)
}

/// Hands a span over, below a context that is returned.
fn hand_over(traces: &Arc<Traces>) -> TraceContext {
    let root = TraceContext::drawn().unwrap();
    let trace = Trace::under(root, Arc::clone(traces) as Arc<dyn SpanSink>);
    let mut span = trace.begin(SpanKind::Client, "fragment", None).unwrap();
    span.set("cleave.fragment.rows", 7_u64);
    span.fail("Refused".to_owned());
    root
}

#[test]
fn what_waits_at_the_end_is_sent_as_opentelemetry_has_it() {
    let (address, requests) = collector(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (traces, told) = traces(address);
    let root = hand_over(&traces);
    traces.end();
    let (head, body) = requests.recv().unwrap();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains(&format!("host: {address}")), "{head}");
    let mut sent = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    let mut of_resource = sent.resource_spans.remove(0);
    let named = |name: &str| {
        let attributes = &of_resource.resource.as_ref().unwrap().attributes;
        attributes.iter().any(|attribute| attribute.key == name)
    };
    assert!(named("service.name") && named("service.version") && named("db.namespace"));
    let span = of_resource.scope_spans.remove(0).spans.remove(0);
    assert_eq!((span.trace_id, span.parent_span_id), (root.trace().to_vec(), root.span().to_vec()));
    assert_eq!(span.name, "fragment");
    assert!(span.start_time_unix_nano > 0 && span.end_time_unix_nano >= span.start_time_unix_nano);
    assert_eq!(span.status.unwrap().message, "Refused");
    assert_eq!((traces.lost_count(), told.lock().unwrap().len()), (0, 0));
    // It has ended: nobody is told of what comes later.
    hand_over(&traces);
    assert_eq!(traces.lost_count(), 0);
}

#[test]
fn a_redirect_is_not_followed_and_what_is_lost_is_told_once() {
    let (away, elsewhere) = collector(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let answer =
        format!("HTTP/1.1 307 Go\r\nLocation: http://{away}/\r\nContent-Length: 0\r\n\r\n");
    let (address, requests) = collector(answer.leak().as_bytes());
    let (traces, told) = traces(address);
    // More than one request of them.
    for _ in 0..700 {
        hand_over(&traces);
    }
    traces.end();
    assert!(requests.try_iter().count() >= 2);
    assert_eq!(elsewhere.try_iter().count(), 0);
    assert_eq!(traces.lost_count(), 700);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("307") && told[1].contains("700 spans"), "{told:?}");
}

#[test]
fn spans_that_a_collector_refuses_are_lost() {
    // It refuses five, of which it was sent one.
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x05";
    let (address, requests) = collector(answer);
    let (traces, told) = traces(address);
    hand_over(&traces);
    traces.end();
    assert_eq!((requests.try_iter().count(), traces.lost_count()), (1, 1));
    let told = told.lock().unwrap();
    assert!(told[0].contains("refuses"), "{told:?}");
}

#[test]
fn an_answer_without_an_end_is_cut_and_a_silent_collector_does_not_hold_up_the_end() {
    // Longer than is read of an answer.
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &[b'a'; 1 << 20]].concat();
    let (address, requests) = collector(endless.leak());
    let (cut, told) = traces(address);
    hand_over(&cut);
    cut.end();
    assert!(requests.recv().is_ok());
    assert_eq!(cut.lost_count(), 1, "{:?}", told.lock().unwrap());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (waits, told) = traces(silent.local_addr().unwrap());
    hand_over(&waits);
    waits.end_within(Duration::from_millis(20));
    assert_eq!(waits.lost_count(), 1, "{:?}", told.lock().unwrap());
}

#[test]
fn traces_go_in_the_clear_to_this_machine_alone() {
    let at = |url: &str| Collector::known_by(url, None);
    for (near, url) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://localhost/", "http://localhost:4318/v1/traces"),
        ("http://[::1]", "http://[::1]:4318/v1/traces"),
        ("http://[::1]:9/other?key=hidden", "http://[::1]:9/other"),
    ] {
        assert_eq!(at(near).unwrap().url(), url);
    }
    assert!(matches!(at("http://10.0.0.1:4318"), Err(CollectorError::Plain(_))));
    assert!(matches!(at("http://collector:4318"), Err(CollectorError::Plain(_))));
    assert!(matches!(at("https://collector:4318"), Err(CollectorError::Unknown(_))));
    let used = Collector::known_by("http://localhost", Some(b"a certificate"));
    assert!(matches!(used, Err(CollectorError::Unused(_))));
    for wrong in ["localhost:4318", "/v1/traces", "ftp://localhost", "http://", ""] {
        assert!(matches!(at(wrong), Err(CollectorError::Address(_))), "{wrong}");
    }
    for wrong in ["http://localhost:", "http://localhost:70000", "http://[::1]:x"] {
        assert!(matches!(at(wrong), Err(CollectorError::Address(_))), "{wrong}");
    }
    assert_eq!(at("http://[::1]:9/other?key=hidden").unwrap().path, "/other?key=hidden");
    let said = at("http://10.0.0.1/?key=hidden").unwrap_err().to_string();
    assert!(said.contains("10.0.0.1") && !said.contains("hidden"), "{said}");
    for secret in ["http://me:hidden@localhost", "me:hidden@localhost", "hidden@a://b@localhost"] {
        let said = at(secret).unwrap_err().to_string();
        assert!(said.contains("…@localhost") && !said.contains("hidden"), "{said}");
    }
}
