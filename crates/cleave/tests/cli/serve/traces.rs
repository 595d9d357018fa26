//! `cleave serve --traces` as a collector sees it: one trace over both sides of a link, without constants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use cleave_fragment::link::DeviceIdentity;
use cleave_fragment::trace::{SpanSink, Trace, TraceContext};
use cleave_traces::{Collector, Traces};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::client::Server;
use crate::local_device::Process;
use crate::program::{cleave, sql};

const ASKED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ASKED_TRACE: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
const ASKED_SPAN: [u8; 8] = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();

/// The address of a collector, and the bodies that it is sent.
fn collector() -> (String, Receiver<Vec<u8>>) {
    let (address, bodies) = collector_behind(None);
    (format!("http://{address}"), bodies)
}

/// The same, behind `tls` if there is one.
fn collector_behind(tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (give, bodies) = channel();
    let thread = std::thread::Builder::new().name("collector".to_owned());
    drop(thread.spawn(move || collect(&listener, tls.as_ref(), &give)).unwrap());
    (address, bodies)
}

fn collect(listener: &TcpListener, tls: Option<&Arc<ServerConfig>>, give: &Sender<Vec<u8>>) {
    while let Ok((stream, _)) = listener.accept() {
        let goes_on = match tls {
            None => answer(stream, give),
            Some(tls) => {
                let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                answer(StreamOwned::new(connection, stream), give)
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// Answers the request that comes over `stream`; false: nobody wants to know of more.
fn answer(mut stream: impl Read + Write, give: &Sender<Vec<u8>>) -> bool {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let body = loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend(&buffer[..count]);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let head = end.map(|end| String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase());
        let length = head.as_deref().and_then(|head| head.split("content-length: ").nth(1));
        let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
        match (end, length) {
            (Some(end), Some(length)) if bytes.len() >= end + 4 + length => {
                break Some(bytes[end + 4..].to_vec());
            }
            _ if count == 0 => break None,
            _ => {}
        }
    };
    // Told before it is answered: a process that has ended has told all.
    if body.is_some_and(|body| give.send(body).is_err()) {
        return false;
    }
    drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    true
}

/// The spans in `bodies`, each with the name of its service.
fn spans(bodies: &[Vec<u8>]) -> Vec<(String, Span)> {
    let mut found = Vec::new();
    for body in bodies {
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        for of_resource in request.resource_spans {
            let attributes = of_resource.resource.unwrap().attributes;
            let name = attributes.iter().find(|own| own.key == "service.name").unwrap();
            let Some(Value::StringValue(service)) = name.value.clone().unwrap().value else {
                panic!("{name:?}")
            };
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            found.extend(spans.map(|span| (service.clone(), span)));
        }
    }
    found
}

/// The only span of `found`.
#[track_caller]
fn only<'a>(found: &[&'a (String, Span)]) -> &'a (String, Span) {
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0]
}

#[test]
fn a_statement_is_one_trace_on_both_sides_of_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (url, bodies) = collector();
    let socket = folder.path().join("device.sock");
    let at = socket.to_str().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
        .arg("device-process")
        .arg("--media")
        .arg(folder.path().join("media"))
        .args(["--local", at, "--traces", &url])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the device ended at once");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let mut device = Process::of(child);
    let database = folder.path().join("db");
    let path = database.to_str().unwrap();
    cleave(&["device", "add", "near", "--create", "--db", path, "--local", at]).ok();
    let table = "CREATE TABLE t (id integer PRIMARY KEY, name text)";
    sql(&database, &["--set", "default_device=near", "-c", table]).ok();
    let rows: String = (1..=1000).map(|id| format!("{id},private {id}\n")).collect();
    let csv = folder.path().join("t.csv");
    std::fs::write(&csv, rows).unwrap();
    cleave(&["load", "--db", path, "t", csv.to_str().unwrap()]).ok();

    let mut server = Server::start(folder.path(), &["--traces", &url, "--grace", "1"]);
    let mut client = server.client();
    client.query("SET split = ndp");
    let asked =
        format!("SELECT count(name) FROM t WHERE name <> 'private 7' /*traceparent='{ASKED}'*/");
    assert_eq!(client.value(&asked), "999");
    let failed = client.query("SELECT id / 0 FROM t WHERE name = 'private 8'");
    assert!(!failed.error.is_empty());
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    // What waits is sent first.
    device.terminate();
    device.ended();

    let bodies: Vec<Vec<u8>> = bodies.try_iter().collect();
    assert!(!bodies.iter().any(|body| body.windows(7).any(|part| part == b"private")));
    let spans = spans(&bodies);
    let is_kind = |span: &Span, kind: SpanKind| span.kind == i32::from(kind);
    let of_trace = || spans.iter().filter(|(_, span)| span.trace_id == ASKED_TRACE);
    let below = |parent: &[u8]| -> Vec<&(String, Span)> {
        of_trace().filter(|(_, span)| span.parent_span_id == parent).collect()
    };
    let (service, statement) = only(&below(&ASKED_SPAN));
    assert!(service == "cleave" && is_kind(statement, SpanKind::Server), "{statement:#?}");
    assert_eq!(statement.name, "SELECT");
    let text = statement.attributes.iter().find(|own| own.key == "db.query.text").unwrap();
    assert!(format!("{text:?}").contains("name <> $1"), "{text:?}");
    let at_host = below(&statement.span_id);
    assert!(!at_host.is_empty(), "{spans:#?}");
    for (service, fragment) in at_host {
        assert!(service == "cleave" && is_kind(fragment, SpanKind::Client), "{fragment:#?}");
        let (service, run) = only(&below(&fragment.span_id));
        assert!(service == "cleaved" && is_kind(run, SpanKind::Server), "{run:#?}");
        assert_eq!((run.name.as_str(), fragment.name.as_str()), ("fragment", "fragment"));
        assert!(run.end_time_unix_nano >= run.start_time_unix_nano);
    }
    let fails = |span: &Span| span.status.as_ref().is_some_and(|status| status.message == "22012");
    let (_, other) = spans.iter().find(|(_, span)| fails(span)).expect("the failed statement");
    assert!(other.parent_span_id.is_empty() && other.trace_id != ASKED_TRACE, "{other:#?}");
}

#[test]
fn traces_in_the_clear_leave_this_machine_by_no_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let serve = ["serve", "--create", "--listen", "127.0.0.1:0", "--db", path.to_str().unwrap()];
    let refused = |more: &[&str]| cleave(&[&serve[..], more].concat()).fails(1);
    let said = refused(&["--traces", "http://192.0.2.1:4318"]);
    assert!(said.contains("192.0.2.1") && said.contains("https"), "{said}");
    let said = refused(&["--traces", "https://192.0.2.1:4318"]);
    assert!(said.contains("--traces-ca"), "{said}");
    let said = refused(&["--traces-sample", "2"]);
    assert!(said.contains("0 to 1"), "{said}");
}

#[test]
fn a_collector_behind_tls_is_known_by_its_certificate() {
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (made, other) = (make(), make());
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let identity = DeviceIdentity::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    let (address, bodies) = collector_behind(Some(identity.server_config().unwrap()));
    let lost_of_one = |pem: &str| {
        let to = Collector::known_by(&format!("https://{address}"), Some(pem.as_bytes())).unwrap();
        let traces = Traces::begin(to, "cleave", [], Box::new(|_: &str| {})).unwrap();
        let sink = Arc::clone(&traces) as Arc<dyn SpanSink>;
        let trace = Trace::under(TraceContext::drawn().unwrap(), sink);
        drop(trace.begin(cleave_fragment::trace::SpanKind::Client, "fragment", None));
        traces.end();
        traces.lost_count()
    };
    assert_eq!((lost_of_one(&other.cert.pem()), bodies.try_iter().count()), (1, 0));
    assert_eq!((lost_of_one(&pem), bodies.try_iter().count()), (0, 1));
}
