//! `cleave serve --console` as browsers, and others, see it: raw requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::activity::until;
use super::client::{Client, Server, field};
use crate::program::{cleave, cleave_with_input};

/// An answer.
struct Reply {
    code: u16,
    head: String,
    body: String,
}

impl Reply {
    fn read(stream: &mut TcpStream) -> Self {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { code, head: head.to_owned(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body))
    }

    #[track_caller]
    fn refused(&self, code: u16, sqlstate: &str) {
        let answer = self.json();
        let error = &answer["error"];
        assert_eq!((self.code, &error["sqlstate"]), (code, &json!(sqlstate)), "{error}");
    }
}

/// A user of the console.
struct Visitor<'a> {
    server: &'a Server,
    cookie: String,
    token: String,
}

fn start(folder: &tempfile::TempDir) -> Server {
    Server::start(folder.path(), &["--console", "127.0.0.1:0", "--grace", "1"])
}

/// A server with the superuser ada, and bob, who is none.
fn with_users(folder: &tempfile::TempDir) -> Server {
    let db = folder.path().join("db");
    let db = db.to_str().unwrap();
    cleave(&["sql", "--create", "--db", db, "-c", "CREATE ROLE bob LOGIN PASSWORD 'ink'"]).ok();
    cleave_with_input(&["user", "add", "ada", "--db", db], "pencil\n").ok();
    start(folder)
}

fn send(server: &Server, line: &str, host: &str, more: &str, body: &str) -> TcpStream {
    begin(server, line, host, &format!("{more}Connection: close\r\n"), body)
}

/// The same over a connection that could have further requests.
fn begin(server: &Server, line: &str, host: &str, more: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.http_port.unwrap())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{more}");
    write!(stream, "{head}\r\n{body}").unwrap();
    stream
}

fn request(server: &Server, line: &str, host: &str, more: &str, body: &str) -> Reply {
    Reply::read(&mut send(server, line, host, more, body))
}

fn get(server: &Server, path: &str) -> Reply {
    request(server, &format!("GET {path}"), "localhost", "", "")
}

const JSON: &str = "Content-Type: application/json\r\n";

fn log_in(server: &Server, user: &str, password: &str) -> Reply {
    let body = json!({ "user": user, "password": password }).to_string();
    request(server, "POST /api/login", "127.0.0.1", JSON, &body)
}

impl<'a> Visitor<'a> {
    fn new(server: &'a Server, user: &str, password: &str) -> Self {
        let reply = log_in(server, user, password);
        assert_eq!(reply.code, 200, "{}", reply.body);
        let cookie = reply.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let (cookie, attributes) = cookie.split_once(';').unwrap();
        assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Strict");
        let token = reply.json()["token"].as_str().unwrap().to_owned();
        Self { server, cookie: cookie.to_owned(), token }
    }

    fn headers(&self) -> String {
        format!("{JSON}Cookie: a=b; {}\r\nX-Cleave-Token: {}\r\n", self.cookie, self.token)
    }

    fn get(&self, path: &str) -> Reply {
        let cookie = format!("Cookie: {}\r\n", self.cookie);
        request(self.server, &format!("GET {path}"), "127.0.0.1", &cookie, "")
    }

    fn send(&self, path: &str, body: &Value) -> TcpStream {
        let line = format!("POST {path}");
        send(self.server, &line, "127.0.0.1", &self.headers(), &body.to_string())
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::read(&mut self.send(path, body))
    }

    fn query(&self, sql: &str) -> Reply {
        self.post("/api/query", &json!({ "sql": sql }))
    }

    /// Its live view of what `show` names.
    fn feed(&self, show: &str) -> BufReader<TcpStream> {
        let cookie = format!("Cookie: {}\r\n", self.cookie);
        let path = format!("GET /api/live?show={show}");
        BufReader::new(send(self.server, &path, "127.0.0.1", &cookie, ""))
    }

    /// The one value of a query.
    #[track_caller]
    fn value(&self, sql: &str) -> Value {
        let reply = self.query(sql);
        assert_eq!(reply.code, 200, "{sql}: {}", reply.body);
        reply.json()["results"][0]["rows"][0][0].clone()
    }
}

#[test]
fn the_page_is_part_of_the_program_and_asks_no_other_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let first = get(&server, "/");
    assert!(first.code == 303 && first.head.contains("location: /console/"), "{}", first.head);
    let page = get(&server, "/console/");
    assert_eq!(page.code, 200);
    let policy =
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';";
    assert!(page.head.contains(policy), "{}", page.head);
    assert!(page.head.contains("x-content-type-options: nosniff"), "{}", page.head);
    // The page names its files, and each script those that it takes from others.
    let scripts = ["console", "document", "plan", "query", "server", "timeline"];
    for file in scripts.map(|name| format!("{name}.js")).iter().chain([&"console.css".to_owned()]) {
        let reply = get(&server, &format!("/console/{file}"));
        assert_eq!(reply.code, 200, "{file}");
        for name in reply.body.lines().filter_map(|line| line.split("from \"./").nth(1)) {
            let name = name.split('"').next().unwrap();
            assert_eq!(get(&server, &format!("/console/{name}")).code, 200, "{file}: {name}");
        }
    }
    assert_eq!(get(&server, "/console/nothing").code, 404);
    // Nothing is told of these without a log-in.
    for unknown in ["/console/../Cargo.toml", "/api/nothing", "/metrics"] {
        assert_eq!(get(&server, unknown).code, 401, "{unknown}");
    }
}

#[test]
fn a_user_logs_in_runs_statements_and_logs_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_users(&folder);
    let nobody = get(&server, "/api/session");
    nobody.refused(401, "28000");
    assert_eq!(nobody.json()["asks_password"], json!(true));
    for (user, password) in [("ada", "crayon"), ("bob", "pencil"), ("eve", "ink"), ("", "")] {
        log_in(&server, user, password).refused(401, "28P01");
    }
    let ada = Visitor::new(&server, "ada", "pencil");
    let session = ada.get("/api/session").json();
    assert_eq!((&session["user"], &session["token"]), (&json!("ada"), &json!(ada.token)));
    let script =
        "CREATE TABLE t (a int PRIMARY KEY, \"<b>\" text); INSERT INTO t VALUES (1, '<img>')";
    let made = ada.query(script).json();
    let tags = json!([{"tag": "CREATE TABLE"}, {"tag": "INSERT 0 1"}]);
    assert_eq!((&made["results"], &made["transaction"]), (&tags, &json!("idle")));
    let read = ada.query("SELECT a, \"<b>\", NULL AS n FROM t").json();
    let columns = &read["results"][0]["columns"];
    assert_eq!(columns[0], json!({"name": "a", "type": "integer"}));
    assert_eq!(columns[1], json!({"name": "<b>", "type": "text"}));
    assert_eq!(read["results"][0]["rows"], json!([["1", "<img>", null]]));
    // A transaction goes on from one request to the next, and its failure is told.
    assert_eq!(ada.query("BEGIN").json()["transaction"], json!("open"));
    assert_eq!(ada.get("/api/session").json()["transaction"], json!("open"));
    ada.query("INSERT INTO t VALUES (2, 'x')");
    let failed = ada.query("SELECT 1; SELECT nam FROM t");
    failed.refused(400, "42703");
    let failed = failed.json();
    assert_eq!(
        (&failed["error"]["position"], &failed["transaction"]),
        (&json!(18), &json!("failed"))
    );
    assert_eq!(failed["results"].as_array().unwrap().len(), 1);
    assert_eq!(ada.query("ROLLBACK").json()["transaction"], json!("idle"));
    let notices = ada.query("COMMIT").json()["notices"].clone();
    assert_eq!(notices, json!(["there is no transaction in progress"]));
    assert_eq!(ada.value("SELECT count(*) FROM t"), json!("1"));
    // What a page cannot do is refused, and long results are cut.
    ada.query("COPY t TO STDOUT").refused(400, "0A000");
    ada.query("COPY t TO 't.csv'").refused(400, "42501");
    let many = ada.query("SELECT * FROM generate_series(1, 20000)").json();
    let many = &many["results"][0];
    assert_eq!(many["rows"].as_array().unwrap().len(), 10_000);
    assert_eq!((&many["is_truncated"], &many["tag"]), (&json!(true), &Value::Null));
    ada.query(&"SELECT 1;".repeat(1001)).refused(400, "54000");
    // With its frame of JSON it has one byte more than a request may have.
    ada.query(&"-".repeat((1 << 20) - 9)).refused(413, "54000");
    let line = "POST /api/query";
    request(&server, line, "127.0.0.1", &ada.headers(), "{").refused(400, "08P01");
    let named = ada.value("SELECT application_name FROM pg_stat_activity");
    assert_eq!(named, json!("cleave console"));
    assert_eq!(ada.post("/api/logout", &json!({})).code, 204);
    ada.get("/api/session").refused(401, "28000");
    ada.query("SELECT 1").refused(401, "28000");
}

#[test]
fn a_server_that_ends_waits_for_no_body() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &["--console", "127.0.0.1:0"]);
    let mut begun = TcpStream::connect(("127.0.0.1", server.http_port.unwrap())).unwrap();
    begun.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = "POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n";
    write!(begun, "{head}{JSON}Expect: 100-continue\r\n\r\n").unwrap();
    let mut goes_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    begun.read_exact(&mut goes_on).unwrap();
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.terminate();
    // It is answered: at the end of the grace period it would have been cut off.
    assert_eq!(Reply::read(&mut begun).code, 400);
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn statements_are_explained_under_a_split() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let ada = Visitor::new(&server, "ada", "");
    ada.query("CREATE TABLE t (a int); INSERT INTO t SELECT * FROM generate_series(1, 1000)");
    let explain = |sql: &str, analyze: bool, split: Option<&str>| {
        ada.post("/api/explain", &json!({ "sql": sql, "analyze": analyze, "split": split }))
    };
    let sql = "SELECT count(*) FROM t WHERE a % 7 = 1";
    let planned = explain(sql, false, None).json();
    assert!(!planned["plan"].is_null() && planned["query"].is_null(), "{planned}");
    let ran = explain(sql, true, Some("h0")).json();
    assert_eq!(ran["query"]["split"], json!("h0"), "{ran}");
    assert_eq!(ran["query"]["fragments"][0]["table"], json!("t"), "{ran}");
    explain(sql, false, Some("h9")).refused(400, "0A000");
    explain(sql, false, Some("h0) threads(1")).refused(400, "22023");
    // The second would have been run, and not explained.
    explain("SELECT 1; DROP TABLE t", false, None).refused(400, "42601");
    assert_eq!(ada.value("SELECT count(*) FROM t"), json!("1000"));
    let failed = explain("SELECT nam FROM t", false, None);
    failed.refused(400, "42703");
    assert_eq!(failed.json()["error"]["position"], json!(8));
}

#[test]
fn pages_of_other_sites_and_requests_without_the_token_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_users(&folder);
    let ada = Visitor::new(&server, "ada", "pencil");
    for host in ["evil.example", "127.0.0.1.evil.example"] {
        for path in ["/console/", "/api/session", "/api/live"] {
            let cookie = format!("Cookie: {}\r\n", ada.cookie);
            request(&server, &format!("GET {path}"), host, &cookie, "").refused(403, "42501");
        }
    }
    let body = json!({ "sql": "CREATE TABLE forged (a int)" }).to_string();
    let cookie = format!("{JSON}Cookie: {}\r\n", ada.cookie);
    for more in [
        cookie.clone(),
        format!("{cookie}X-Cleave-Token: {}\r\n", "A".repeat(43)),
        format!("{}Origin: https://evil.example\r\n", ada.headers()),
        format!("{}Origin: null\r\n", ada.headers()),
        format!("{}Sec-Fetch-Site: cross-site\r\n", ada.headers()),
    ] {
        let forged = request(&server, "POST /api/query", "127.0.0.1", &more, &body);
        forged.refused(403, "42501");
    }
    for site in ["same-site", "cross-site"] {
        let more = format!("Cookie: {}\r\nSec-Fetch-Site: {site}\r\n", ada.cookie);
        for line in ["GET /api/view/sessions", "GET /api/session"] {
            request(&server, line, "127.0.0.1", &more, "").refused(403, "42501");
        }
    }
    // A program at another port of the machine may have set a cookie of the same name.
    let (name, _) = ada.cookie.split_once('=').unwrap();
    let more = format!("Cookie: {name}=junk; {}\r\n", ada.cookie);
    assert_eq!(request(&server, "GET /api/session", "127.0.0.1", &more, "").code, 200);
    let elsewhere = format!("{JSON}Origin: https://evil.example\r\n");
    let body = json!({ "user": "ada", "password": "pencil" }).to_string();
    request(&server, "POST /api/login", "127.0.0.1", &elsewhere, &body).refused(403, "42501");
    // A form of HTML sends no JSON.
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    request(&server, "POST /api/login", "127.0.0.1", form, &body).refused(415, "08P01");
    assert_eq!(ada.value("SELECT count(*) FROM pg_tables WHERE tablename = 'forged'"), json!("0"));
}

#[test]
fn users_have_their_own_rights_and_see_their_own_statements() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_users(&folder);
    let (ada, bob) = (Visitor::new(&server, "ada", "pencil"), Visitor::new(&server, "bob", "ink"));
    ada.query("CREATE TABLE secret (a int)");
    bob.query("SELECT * FROM secret").refused(400, "42501");
    bob.get("/api/view/devices").refused(400, "42501");
    assert_eq!(ada.get("/api/view/devices").code, 200);
    for view in ["sessions", "locks", "names", "tables", "tablets", "settings"] {
        let reply = bob.get(&format!("/api/view/{view}"));
        assert!(reply.code == 200 && reply.json()["rows"].is_array(), "{view}: {}", reply.body);
    }
    for view in [
        "activity",
        "device_locks",
        "filter_history",
        "fragments",
        "query_log",
        "result_sets",
        "statements",
    ] {
        assert_eq!(ada.get(&format!("/api/view/{view}")).code, 200, "{view}");
    }
    ada.get("/api/view/pg_authid").refused(404, "42P01");
    let sessions = bob.get("/api/view/sessions").json();
    let rows = sessions["rows"].as_array().unwrap();
    let query_of = |user: &str| {
        let row = rows.iter().find(|row| row[1] == user).unwrap_or(&Value::Null);
        (row[0].as_str().map(str::to_owned), row[11].as_str().map(str::to_owned))
    };
    let (pid, query) = query_of("ada");
    assert_eq!(query.as_deref(), Some("<insufficient privilege>"));
    let pid: i32 = pid.unwrap().parse().unwrap();
    bob.post("/api/stop", &json!({ "pid": pid, "terminate": true })).refused(400, "42501");
    let (pid, _) = query_of("bob");
    let pid: i32 = pid.unwrap().parse().unwrap();
    let stopped = ada.post("/api/stop", &json!({ "pid": pid, "terminate": true }));
    assert_eq!(stopped.json(), json!({ "stopped": true }));
    // He is told, since a transaction could have been open; then he has a new session.
    bob.query("COMMIT").refused(409, "57P01");
    assert_ne!(bob.value("SELECT pg_backend_pid()"), json!(pid.to_string()));
}

#[test]
fn a_log_in_lasts_as_long_as_its_user_would_be_let_in_as_he_was() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_users(&folder);
    let (ada, bob) = (Visitor::new(&server, "ada", "pencil"), Visitor::new(&server, "bob", "ink"));
    ada.query("CREATE TABLE secret (a int)");
    bob.query("SELECT * FROM secret").refused(400, "42501");
    // His name stands for somebody else.
    for other in
        ["ALTER ROLE bob RENAME TO eve", "CREATE ROLE bob SUPERUSER LOGIN PASSWORD 'chalk'"]
    {
        assert_eq!(ada.query(other).code, 200, "{other}");
    }
    bob.query("SELECT * FROM secret").refused(401, "28000");
    bob.get("/api/view/devices").refused(401, "28000");
    log_in(&server, "bob", "ink").refused(401, "28P01");
    let eve = Visitor::new(&server, "eve", "ink");
    assert_eq!(eve.get("/api/view/sessions").code, 200);
    assert_eq!(ada.query("ALTER ROLE eve NOLOGIN").code, 200);
    eve.get("/api/session").refused(401, "28000");
    eve.get("/api/live").refused(401, "28000");
    assert_eq!(log_in(&server, "eve", "ink").code, 403);
    assert_eq!(ada.query("DROP ROLE eve").code, 200);
    log_in(&server, "eve", "ink").refused(401, "28P01");
    assert_eq!(ada.query("SELECT 1").code, 200);
}

#[test]
fn who_gives_the_first_password_is_told_that_his_log_in_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let nobody = Visitor::new(&server, "", "");
    assert_eq!(nobody.query("SELECT 1").json()["notices"], json!([]));
    let made = nobody.query("CREATE ROLE ada SUPERUSER LOGIN PASSWORD 'pencil'").json();
    assert!(made["notices"][0].as_str().unwrap().contains("needs a password"), "{made}");
    nobody.query("SELECT 1").refused(401, "28000");
    Visitor::new(&server, "ada", "pencil");
}

#[test]
fn statements_and_sessions_of_the_console_are_cancelled_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_users(&folder);
    let ada = Visitor::new(&server, "ada", "pencil");
    let mut other = Client::begin(server.connect(), "ada", Some("pencil")).unwrap();
    let pid = ada.value("SELECT pg_backend_pid()");
    let pid = pid.as_str().unwrap();
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    let sleep = json!({ "sql": "SELECT pg_sleep(600)" });
    let mut running = ada.send("/api/query", &sleep);
    until(&mut other, &state, "active");
    ada.query("SELECT 1").refused(409, "55006");
    assert_eq!(ada.post("/api/cancel", &json!({})).code, 200);
    Reply::read(&mut running).refused(400, "57014");
    // A browser that goes interrupts its statement, and so its block fails, as by any other interrupt.
    let line = "POST /api/query";
    let gone = begin(&server, line, "127.0.0.1", &ada.headers(), &sleep.to_string());
    until(&mut other, &state, "active");
    drop(gone);
    until(&mut other, &state, "idle");
    ada.query("BEGIN");
    let gone = begin(&server, line, "127.0.0.1", &ada.headers(), &sleep.to_string());
    until(&mut other, &state, "active");
    drop(gone);
    until(&mut other, &state, "idle in transaction (aborted)");
    ada.query("SELECT 1").refused(400, "25P02");
    assert_eq!(ada.query("ROLLBACK").json()["transaction"], json!("idle"));
    let mut running = ada.send("/api/query", &sleep);
    until(&mut other, &state, "active");
    other.query(&format!("SELECT pg_terminate_backend({pid})"));
    Reply::read(&mut running).refused(400, "57P01");
    // One that rests in a transaction is ended, too, and its locks with it.
    ada.query("CREATE TABLE t (a int)");
    ada.query("BEGIN; LOCK TABLE t");
    other.query("BEGIN");
    assert_eq!(field(&other.query("LOCK TABLE t NOWAIT").error, 'C'), "55P03");
    other.query("ROLLBACK");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cleave console'";
    assert_eq!(other.value(end), "t");
    let resting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cleave console'";
    until(&mut other, resting, "0");
    other.query("BEGIN");
    let free = other.query("LOCK TABLE t NOWAIT");
    assert_eq!(field(&free.error, 'C'), "");
    // Who blocks whom.
    ada.query("SELECT 1").refused(409, "57P01");
    let mut waiting = ada.send("/api/query", &json!({ "sql": "BEGIN; LOCK TABLE t; COMMIT" }));
    until(&mut other, "SELECT count(*) FROM cleave.locks WHERE NOT granted", "1");
    let waits = ada.get("/api/view/waits").json();
    let pid = json!(other.value("SELECT pg_backend_pid()"));
    assert_eq!((&waits["rows"][0][2], &waits["rows"][0][4]), (&json!("t"), &pid), "{waits}");
    other.query("COMMIT");
    assert_eq!(Reply::read(&mut waiting).code, 200);
}

/// The next snapshot of a live view; None: it has ended.
fn next(feed: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut line = String::new();
    while feed.read_line(&mut line).unwrap() > 0 {
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(data).unwrap());
        }
        line.clear();
    }
    None
}

/// A live view takes sessions and locks from memory; their tables say the same, to each user what he may see.
#[test]
fn a_feed_shows_what_the_tables_of_sessions_and_locks_show() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_users(&folder);
    let (ada, bob) = (Visitor::new(&server, "ada", "pencil"), Visitor::new(&server, "bob", "ink"));
    ada.query("CREATE TABLE t (a int)");
    bob.query("BEGIN; SELECT pg_advisory_lock(7)");
    let mut other = Client::begin(server.connect(), "ada", Some("pencil")).unwrap();
    other.query("BEGIN; LOCK TABLE t");
    let mut waiting = ada.send("/api/query", &json!({ "sql": "BEGIN; LOCK TABLE t; COMMIT" }));
    until(&mut other, "SELECT count(*) FROM cleave.locks WHERE NOT granted", "1");
    // Locks of one session are in no order.
    let sorted = |mut table: Value| {
        table["rows"].as_array_mut().unwrap().sort_by_key(Value::to_string);
        table
    };
    for visitor in [&ada, &bob] {
        // The answer that `other` has got may come before the end of its statement is noted.
        for last in [false, true] {
            let snapshot = next(&mut visitor.feed("statements,locks")).unwrap();
            let of_table = |name| visitor.get(&format!("/api/view/{name}")).json();
            let names = ["sessions", "locks", "waits"];
            let tables = names.map(of_table);
            assert!(tables.iter().all(|table| table["rows"][0].is_array()), "{tables:?}");
            if last {
                let seen = names.map(|name| sorted(snapshot[name].clone()));
                assert_eq!(seen, tables.map(sorted));
            }
        }
    }
    other.query("COMMIT");
    assert_eq!(Reply::read(&mut waiting).code, 200);
}

#[test]
fn a_feed_goes_on_until_the_server_or_the_visit_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(&folder);
    let ada = Visitor::new(&server, "ada", "");
    assert_eq!(get(&server, "/api/live").code, 401);
    let mut first = ada.feed("statements,locks,devices");
    let snapshot = next(&mut first).unwrap();
    assert!(snapshot["sessions"]["rows"].is_array() && snapshot["locks"]["rows"].is_array());
    assert!(snapshot["totals"]["plans"].is_u64(), "{snapshot}");
    ada.query("SELECT count(*) FROM generate_series(1, 8000000) AS s (n) WHERE n % 7 = 1");
    // Devices are shown when they have answered, and a query that has ended once.
    let (mut devices, mut queries) = (0, 0);
    for snapshot in std::iter::from_fn(|| next(&mut first)).take(20) {
        devices += usize::from(snapshot["devices"]["rows"].is_array());
        let all = snapshot["queries"].as_array().into_iter().flatten();
        let is_ours = |query: &&Value| query["text"].as_str().unwrap().contains("n % 7");
        queries += all.filter(is_ours).filter(|query| query["is_over"] == true).count();
        if devices > 0 && queries > 0 {
            break;
        }
    }
    assert!(devices > 0 && queries == 1, "{devices}, {queries}");
    let mut later = std::iter::from_fn(|| next(&mut first)).take(20);
    let is_idle = |snapshot: Value| snapshot.as_object().is_some_and(|parts| parts.len() == 1);
    assert!(later.any(is_idle), "what is the same is left out");
    assert_eq!(ada.post("/api/logout", &json!({})).code, 204);
    while next(&mut first).is_some() {}
    let again = Visitor::new(&server, "ada", "");
    let mut last = again.feed("");
    assert!(next(&mut last).is_some());
    server.terminate();
    while next(&mut last).is_some() {}
    assert_eq!(server.ended(), Some(0));
}
