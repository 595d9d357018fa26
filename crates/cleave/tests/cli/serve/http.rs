//! `cleave serve --http` as monitors see it: raw requests, valid and invalid.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::client::{Client, Server};
use crate::program::{cleave, cleave_with_input, sql};

/// An answer.
struct Reply {
    code: u16,
    head: String,
    body: String,
}

fn start(folder: &tempfile::TempDir) -> Server {
    Server::start(folder.path(), &["--http", "127.0.0.1:0", "--grace", "1"])
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.http_port.unwrap())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The answer to a request with these further headers, each with its end of line.
fn request(server: &Server, line: &str, host: &str, more: &str) -> Reply {
    let mut stream = connect(server);
    let text = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { code, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

fn get(server: &Server, path: &str) -> Reply {
    request(server, &format!("GET {path}"), "127.0.0.1", "")
}

fn get_as(server: &Server, path: &str, user: &str, password: &str) -> Reply {
    let secret = STANDARD.encode(format!("{user}:{password}"));
    let more = format!("Authorization: Basic {secret}\r\n");
    request(server, &format!("GET {path}"), "db.example", &more)
}

/// The value of a sample, with its labels as they are written; every line must be one of the format.
#[track_caller]
fn sample(text: &str, wanted: &str) -> f64 {
    let is_name = |name: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        name.starts_with("cleave_") && name.chars().all(is_letter)
    };
    let mut found = None;
    let mut family = String::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => assert!(is_name(name) && name != family, "{line}"),
                "TYPE" => assert!(["counter", "gauge", "histogram"].contains(&rest), "{line}"),
                _ => panic!("{line}"),
            }
            assert!(what == "HELP" || name == family, "{line}");
            name.clone_into(&mut family);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let own = ["", "_bucket", "_sum", "_count"].map(|end| format!("{family}{end}"));
        assert!(own.iter().any(|own| own == name) && labels.ends_with('}'), "{line}");
        if series == wanted {
            found = Some(value);
        }
    }
    found.unwrap_or_else(|| panic!("{wanted} is not in:\n{text}"))
}

#[test]
fn a_server_tells_whether_it_is_well_and_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(&folder);
    let health = get(&server, "/health");
    assert_eq!((health.code, health.body.as_str()), (200, "{\"status\":\"ok\"}"));
    let ready = get(&server, "/ready");
    assert_eq!(ready.code, 200, "{}", ready.body);
    assert!(ready.body.contains("\"ready\":true"), "{}", ready.body);
    let mut client = server.client();
    client.query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
    for _ in 0..3 {
        assert_eq!(client.value("SELECT a FROM t WHERE a = 2"), "2");
    }
    assert!(!client.query("SELECT a / (a - a) FROM t").error.is_empty());
    let metrics = get(&server, "/metrics");
    assert_eq!(metrics.code, 200, "{}", metrics.body);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.head.contains("cache-control: no-store"), "{}", metrics.head);
    assert!(sample(&metrics.body, "cleave_sessions{state=\"idle\"}") >= 1.0);
    assert!(sample(&metrics.body, "cleave_process_resident_memory_bytes") > 1e6);
    assert_eq!(sample(&metrics.body, "cleave_writable"), 1.0);
    let done = |kind: &str| format!("cleave_statements_total{{kind=\"{kind}\",outcome=\"done\"}}");
    assert_eq!(sample(&metrics.body, &done("select")), 3.0);
    assert_eq!(sample(&metrics.body, &done("insert")), 1.0);
    let failed = "cleave_statements_total{kind=\"select\",outcome=\"failed\"}";
    assert_eq!(sample(&metrics.body, failed), 1.0);
    assert_eq!(sample(&metrics.body, "cleave_statement_rows_total{kind=\"insert\"}"), 2.0);
    assert_eq!(sample(&metrics.body, "cleave_statement_seconds_count{kind=\"select\"}"), 4.0);
    let device = "{device=\"embedded\",kind=\"embedded\"}";
    assert_eq!(sample(&metrics.body, &format!("cleave_device_up{device}")), 1.0);
    assert!(sample(&metrics.body, "cleave_device_size_bytes{device=\"embedded\"}") > 0.0);
    for name in ["device_fragments_lost", "device_fragments_refused", "link_lost", "link_corrupt"] {
        let name = format!("cleave_{name}_total{{device=\"embedded\"}}");
        assert_eq!(sample(&metrics.body, &name), 0.0, "{name}");
    }
    assert_eq!(get(&server, "/nothing").code, 404);
    // A client that has begun a request does not keep the server from its end for longer than statements may.
    let mut begun = connect(&server);
    begun.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    assert_eq!(begun.read(&mut [0; 16]).unwrap_or(0), 0);
}

/// The names of figures in `text`.
fn figures(text: &str) -> Vec<&str> {
    let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(|letter| !is_of_name(letter));
    words.filter(|word| word.starts_with("cleave_") && !word.ends_with('_')).collect()
}

#[test]
fn figures_that_rules_and_documents_name_exist() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let metrics = get(&server, "/metrics").body;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for file in ["packaging/prometheus/alerts.yml", "docs/production.md"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for name in figures(&text) {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(metrics.contains(&format!("# TYPE {family} ")), "{file} names {name}");
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

#[test]
fn figures_are_for_users_and_not_for_pages_of_other_sites() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let server = start(&folder);
    // Nobody has a password yet.
    assert_eq!(get(&server, "/metrics").code, 200);
    let far = request(&server, "GET /metrics", "evil.example", "");
    assert_eq!(far.code, 403, "{}", far.body);
    let forged = "Origin: https://evil.example\r\nContent-Length: 0\r\n";
    assert_eq!(request(&server, "POST /metrics", "127.0.0.1", forged).code, 403);
    drop(server);
    let db = db.to_str().unwrap();
    cleave_with_input(&["user", "add", "ada", "--db", db], "pencil\n").ok();
    let roles = "CREATE ROLE watch LOGIN PASSWORD 'glass'; CREATE ROLE staff PASSWORD 'pen'";
    sql(Path::new(db), &["-c", roles]).ok();
    let server = start(&folder);
    let asked = get(&server, "/metrics");
    assert_eq!(asked.code, 401);
    assert!(asked.head.contains("www-authenticate: basic"), "{}", asked.head);
    for (user, password, code) in [
        ("ada", "pencil", 200),
        ("ada", "pencil", 200),
        ("watch", "glass", 200),
        ("watch", "pencil", 401),
        ("nobody", "pencil", 401),
        ("", "", 401),
        ("staff", "pen", 403),
    ] {
        assert_eq!(get_as(&server, "/metrics", user, password).code, code, "{user}");
    }
    for open in ["/health", "/ready"] {
        assert_eq!(get(&server, open).code, 200, "{open}");
    }
}

#[test]
fn failed_log_ins_are_counted_and_logged_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let db = db.to_str().unwrap();
    cleave(&["sql", "--create", "--db", db, "-c", "CREATE ROLE staff PASSWORD 'pen'"]).ok();
    cleave_with_input(&["user", "add", "ada", "--db", db], "pencil\n").ok();
    let path = folder.path().join("log");
    let log = File::create(&path).unwrap();
    let options = ["--http", "127.0.0.1:0", "--grace", "1", "--log-format", "json"];
    let mut server = Server::start_with_log(folder.path(), &options, log.into());
    // Who gives no password yet has not failed.
    assert_eq!(get(&server, "/metrics").code, 401);
    assert_eq!(get_as(&server, "/metrics", "ada", "crayon").code, 401);
    assert_eq!(get_as(&server, "/metrics", "staff", "pen").code, 403);
    let long = format!("e\nve{}", "x".repeat(1000));
    for (user, password) in [(long.as_str(), "crayon"), ("staff", "pen")] {
        assert!(Client::begin(server.connect(), user, Some(password)).is_err());
    }
    let metrics = get_as(&server, "/metrics", "ada", "pencil").body;
    assert_eq!(sample(&metrics, "cleave_logins_failed_total"), 4.0);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let failed = lines.filter(|line| line["message"] == "failed log-in");
    let failed: Vec<_> = failed
        .map(|line| {
            assert_eq!((&line["address"], &line["level"]), (&"127.0.0.1".into(), &"WARN".into()));
            [&line["listener"], &line["user"]].map(|of| of.as_str().unwrap().to_owned())
        })
        .collect();
    let cut = &long[..63];
    let expected = [("http", "ada"), ("http", "staff"), ("postgres", cut), ("postgres", "staff")];
    assert_eq!(failed, expected.map(|(listener, user)| [listener, user].map(str::to_owned)));
    for secret in ["crayon", "pencil", "\"pen\""] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn requests_out_of_form_cost_their_connection_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let long = format!("GET /health HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(100 << 10));
    let many = format!("GET /health HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    for (text, code) in
        [("\0\0\0\u{8}\u{4}\r\n\r\n", "400"), (long.as_str(), "431"), (many.as_str(), "431")]
    {
        let mut stream = connect(&server);
        // The server may have closed before it has read all.
        drop(stream.write_all(text.as_bytes()));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.contains(code), "{answer}");
    }
    assert_eq!(get(&server, "/health").code, 200);
}

#[test]
fn what_other_machines_can_reach_needs_tls_and_users() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let serve = |more: &[&str]| {
        let db = db.to_str().unwrap();
        let serve =
            ["serve", "--db", db, "--create", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"];
        cleave(&[&serve[..], more].concat()).fails(1)
    };
    assert!(serve(&[]).contains("--tls-cert"));
    assert!(serve(&["--trust"]).contains("--trust"));
    let named = db.to_str().unwrap();
    let wrong = cleave(&["serve", "--db", named, "--create", "--http", "nowhere"]).fails(1);
    assert!(wrong.contains("expected HOST:PORT"), "{wrong}");
    // What the options say alone is refused before a database is made.
    assert!(!db.exists());
    assert!(serve(&["--tls-self-made"]).contains("cleave user add"));
}
