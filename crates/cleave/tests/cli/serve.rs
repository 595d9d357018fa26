//! `cleave serve` as clients see it: valid and invalid messages.
#![expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]

mod activity;
mod arrow_client;
pub(crate) mod client;
mod console;
mod http;
mod kept_memory;
mod log;
mod login;
mod remote_shell;
mod together;
mod traces;
mod values;
mod vanished;

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::program::{cleave, cleave_with_input};
use client::{Client, Server, field, fields, message, opening, read};

fn served() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    (folder, server)
}

/// A Parse of an unnamed statement, with undeclared parameters.
fn parse(sql: &str) -> Vec<u8> {
    message('P', format!("\0{sql}\0\0\0").as_bytes())
}

/// A Bind of text values to the unnamed statement.
fn bind(portal: &str, values: &[&str]) -> Vec<u8> {
    let mut body = format!("{portal}\0\0\0\0").into_bytes();
    body.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
    for value in values {
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend([0, 0]);
    message('B', &body)
}

fn execute(portal: &str, limit: u32) -> Vec<u8> {
    message('E', &[format!("{portal}\0").as_bytes(), &limit.to_be_bytes()].concat())
}

#[test]
fn statements_run_and_their_errors_come_in_parts() {
    let (_folder, server) = served();
    let mut client = server.client();
    let answer = client.query(
        "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x'), (2, NULL)",
    );
    assert_eq!(answer.tags, ["CREATE TABLE", "INSERT 0 2"]);
    let answer = client.query("SELECT a, b FROM t ORDER BY a");
    let rows = [[Some("1"), Some("x")], [Some("2"), None]];
    assert_eq!(answer.rows, rows.map(|row| row.map(|value| value.map(str::to_owned)).to_vec()));
    assert_eq!((answer.tags[0].as_str(), answer.state), ("SELECT 2", 'I'));
    for (sql, state, message, position) in [
        ("SELECT 1;\nSELEC 2", "42601", "syntax error", "11"),
        ("SELECT nam FROM t", "42703", "column \"nam\" does not exist", "8"),
        ("INSERT INTO t VALUES (1, 'y')", "23505", "duplicate key value", ""),
        ("SELECT 1/0", "22012", "zero", ""),
    ] {
        let error = client.query(sql).error;
        assert_eq!((field(&error, 'S'), field(&error, 'C')), ("ERROR", state), "{sql}");
        assert!(field(&error, 'M').contains(message), "{sql}: {error:?}");
        assert_eq!(field(&error, 'P'), position, "{sql}");
    }
    assert_eq!(client.query(" -- nothing\n").tags.len(), 0);
    assert_eq!(client.value("SELECT current_user"), "ada");
    assert_eq!(client.value("SHOW application_name"), "test");
}

#[test]
fn portals_give_rows_in_pieces() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2), (3), (4), (5), (6)");
    let mut sent = parse("SELECT a FROM t WHERE a <= $1");
    sent.extend(bind("", &["5"]));
    sent.extend(message('D', b"P\0"));
    for _ in 0..3 {
        sent.extend(execute("", 2));
    }
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.kinds(), "12TDDsDDsDCZ");
    // A failure skips what follows, up to Sync; the portal ended with the previous series.
    let mut sent = execute("", 0);
    sent.extend(parse("SELECT 1"));
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    let answer = client.answer();
    assert_eq!(field(&answer.error, 'C'), "34000");
    let mut sent = parse("SELECT $2, a FROM t WHERE a = $1");
    sent.extend(message('D', b"S\0"));
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    let messages = client.messages();
    assert_eq!(messages[1], ('t', [&[0, 2][..], &[0, 0, 0, 23], &[0, 0, 0, 25]].concat()));
}

#[test]
fn statements_without_parameters_are_described_too() {
    let (_folder, server) = served();
    let mut client = server.client();
    for (sql, expected) in [
        ("SHOW split", "12TDCZ"),
        ("EXPLAIN SELECT 1", "12T"),
        ("CREATE TABLE t (a int)", "12nCZ"),
        ("SET split = h0", "12nCZ"),
        ("", "12nIZ"),
        ("INSERT INTO t VALUES (1)", "12nCZ"),
        ("INSERT INTO t VALUES (2) RETURNING a", "12TDCZ"),
        ("UPDATE t SET a = 3 WHERE a = 2 RETURNING a + 1 AS b", "12TDCZ"),
        ("DELETE FROM t WHERE a = 3", "12nCZ"),
    ] {
        let mut sent = parse(sql);
        sent.extend(bind("", &[]));
        sent.extend(message('D', b"P\0"));
        sent.extend(execute("", 0));
        sent.extend(message('S', b""));
        client.stream.write_all(&sent).unwrap();
        let kinds = client.kinds();
        assert!(kinds.starts_with(expected), "{sql}: {kinds}");
    }
    assert_eq!(client.value("SELECT count(*) FROM t"), "1");
}

#[test]
fn a_block_is_seen_by_others_when_it_ends() {
    let (_folder, server) = served();
    let (mut client, mut other) = (server.client(), server.client());
    client.query("CREATE TABLE t (a int PRIMARY KEY)");
    assert_eq!(client.query("BEGIN").state, 'T');
    assert_eq!(client.query("INSERT INTO t VALUES (1), (2)").tags, ["INSERT 0 2"]);
    assert_eq!(client.query("UPDATE t SET a = 3 WHERE a = 2 RETURNING a").tags, ["UPDATE 1"]);
    assert_eq!(client.value("SELECT sum(a) FROM t"), "4");
    assert_eq!(other.value("SELECT count(*) FROM t"), "0");
    let ended = client.query("COMMIT");
    assert_eq!((ended.tags[0].as_str(), ended.state), ("COMMIT", 'I'));
    assert_eq!(other.value("SELECT sum(a) FROM t"), "4");
    client.query("BEGIN");
    client.query("DELETE FROM t");
    assert_eq!(client.query("ROLLBACK").tags, ["ROLLBACK"]);
    assert_eq!(client.value("SELECT count(*) FROM t"), "2");
}

#[test]
fn look_ups_that_were_seen_before_are_the_block_s() {
    let (_folder, server) = served();
    let (mut client, mut other) = (server.client(), server.client());
    client.query("CREATE TABLE t (a int PRIMARY KEY, b int)");
    client.query("INSERT INTO t VALUES (1, 10), (2, 20)");
    let one = "SELECT b FROM t WHERE a = 1";
    assert_eq!(client.value(one), "10");
    client.query("BEGIN");
    client.query("UPDATE t SET b = 11 WHERE a = 1");
    assert_eq!((client.value(one).as_str(), other.value(one).as_str()), ("11", "10"));
    other.query("UPDATE t SET b = 21 WHERE a = 2");
    assert_eq!(client.value("SELECT b FROM t WHERE a = 2"), "21");
    client.query("DELETE FROM t WHERE a = 1");
    assert!(client.query(one).rows.is_empty());
    let late = client.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    assert_eq!((field(&late.error, 'C'), late.state), ("25001", 'E'));
    assert_eq!(field(&client.query(one).error, 'C'), "25P02");
    client.query("ROLLBACK");
    assert_eq!(client.value(one), "10");
    client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(client.value(one), "10");
    other.query("UPDATE t SET b = 12 WHERE a = 1");
    assert_eq!((client.value(one).as_str(), other.value(one).as_str()), ("10", "12"));
    client.query("COMMIT");
    assert_eq!(client.value(one), "12");
    client.query("BEGIN");
    assert_eq!(client.value(one), "12");
    let late = client.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(field(&late.error, 'C'), "25001", "the look-up was a query");
}

#[test]
fn a_block_that_failed_takes_nothing_but_its_end() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int PRIMARY KEY)");
    client.query("BEGIN");
    client.query("INSERT INTO t VALUES (1)");
    let refused = client.query("INSERT INTO t VALUES (1)");
    assert_eq!((field(&refused.error, 'C'), refused.state), ("23505", 'E'));
    assert_eq!(field(&client.query("SELECT 1").error, 'C'), "25P02");
    let ended = client.query("COMMIT");
    assert_eq!((ended.tags[0].as_str(), ended.state), ("ROLLBACK", 'I'));
    // A failure while rows are sent fails the block as well.
    client.query("BEGIN");
    let failed = client.query("SELECT 1 / (a - 1) FROM (VALUES (1)) AS v (a)");
    assert_eq!((field(&failed.error, 'C'), failed.state), ("22012", 'E'));
    assert_eq!(client.query("ROLLBACK").state, 'I');
    assert_eq!(client.query("INSERT INTO t VALUES (1)").tags, ["INSERT 0 1"]);
}

#[test]
fn rows_are_copied_in_and_out() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int, b text)");
    client.send('Q', b"COPY t FROM STDIN\0");
    assert_eq!(read(&mut client.stream).unwrap(), ('G', vec![0, 0, 2, 0, 0, 0, 0]));
    for piece in [&b"1\tx\n2\t"[..], b"\\N\n3", b"\tz\n"] {
        client.send('d', piece);
    }
    client.send('c', b"");
    assert_eq!(client.answer().tags, ["COPY 3"]);
    client.send('Q', b"COPY (SELECT a, b FROM t ORDER BY a) TO STDOUT CSV\0");
    let messages = client.messages();
    let kinds: String = messages.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, "HdddcCZ");
    assert_eq!(messages[2].1, b"2,\n");
    // A COPY that the client aborts leaves nothing; malformed rows are reported with their position.
    client.send('Q', b"COPY t FROM STDIN\0");
    client.send('d', b"4\ty\n");
    client.send('f', b"no more\0");
    assert_eq!(field(&client.answer().error, 'C'), "57014");
    client.send('Q', b"COPY t FROM STDIN\0");
    client.send('d', b"x\ty\n");
    client.send('c', b"");
    let error = client.answer().error;
    assert_eq!(field(&error, 'C'), "22P02");
    assert!(field(&error, 'W').contains("line 1"), "{error:?}");
    assert_eq!(client.value("SELECT count(*) FROM t"), "3");
    // The server's own files are not accessible.
    for sql in [
        "COPY t FROM '/etc/hostname'",
        "COPY (SELECT 1) TO '/nowhere/file'",
        "BACKUP TO '/nowhere'",
        "CREATE DEVICE d WITH (local = '/nowhere')",
        "ALTER DEVICE embedded REBUILD FROM '/nowhere'",
        "ALTER SYSTEM SET archive_directory = '/nowhere'",
    ] {
        let error = client.query(sql).error;
        assert!(field(&error, 'M').contains("not allowed here"), "{sql}: {error:?}");
        assert_eq!(field(&error, 'C'), "42501");
    }
}

/// Runs for longer than any test.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b, \
                       generate_series(1, 1000000) c WHERE a + b + c = 1";

#[test]
fn a_statement_is_cancelled_by_whoever_knows_its_secret() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.send('Q', format!("{ENDLESS}\0").as_bytes());
    let (backend, secret) = client.key;
    let cancel = |secret: i32| {
        let body = [backend.to_be_bytes(), secret.to_be_bytes()].concat();
        let mut stream = server.connect();
        stream.write_all(&opening(80_877_102, &body)).unwrap();
        // The server closes when it has done it.
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    };
    cancel(secret.wrapping_add(1));
    let reader = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| Client { stream: reader, key: (0, 0) }.answer());
        // There is nothing to cancel until it runs.
        while !answer.is_finished() {
            cancel(secret);
        }
        assert_eq!(field(&answer.join().unwrap().error, 'C'), "57014");
    });
    assert_eq!(client.value("SELECT 1"), "1");
    client.query("SET statement_timeout = 100");
    let error = client.query(ENDLESS).error;
    assert!(field(&error, 'M').contains("statement timeout"), "{error:?}");
}

#[test]
fn passwords_are_asked_for_where_there_are_users() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let db_text = db.to_str().unwrap();
    cleave(&["user", "list", "--db", db_text]).fails(1);
    cleave(&["sql", "--create", "--db", db_text, "-c", "SELECT 1"]).ok();
    let made = cleave_with_input(&["user", "add", "ada", "--db", db_text], "pencil\n").ok();
    assert_eq!(made, "user \"ada\" may connect as a superuser\n");
    let server = Server::start(folder.path(), &[]);
    let mut client = Client::begin(server.connect(), "ada", Some("pencil")).unwrap();
    assert_eq!(client.value("SELECT current_user"), "ada");
    for (user, password) in [("ada", "crayon"), ("bob", "pencil"), ("ada", "")] {
        let error = Client::begin(server.connect(), user, Some(password)).err().unwrap();
        assert_eq!((field(&error, 'S'), field(&error, 'C')), ("FATAL", "28P01"));
        let message = format!("password authentication failed for user \"{user}\"");
        assert_eq!(field(&error, 'M'), message);
    }
    assert_eq!(cleave(&["user", "list", "--db", db_text]).ok(), "ada superuser\n");
    cleave(&["user", "remove", "ada", "--db", db_text]).ok();
    cleave(&["user", "remove", "ada", "--db", db_text]).fails(1);
}

#[test]
fn roles_connect_by_their_passwords_and_have_their_rights() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut owner = Client::begin(server.connect(), "root", None).unwrap();
    owner.query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE ROLE staff");
    owner.query("CREATE USER ada PASSWORD 'pencil' CONNECTION LIMIT 1 IN ROLE staff");
    owner.query("CREATE USER late PASSWORD 'pencil' VALID UNTIL '2001-01-01'");
    assert_eq!(owner.value("SELECT session_user"), "root");
    // From the first password on, everybody needs one.
    for (user, password, state) in [
        ("root", "pencil", "28P01"),
        ("ada", "crayon", "28P01"),
        ("late", "pencil", "28P01"),
        ("staff", "pencil", "28P01"),
    ] {
        let error = Client::begin(server.connect(), user, Some(password)).err().unwrap();
        assert_eq!((field(&error, 'S'), field(&error, 'C')), ("FATAL", state), "{user}");
    }
    owner.query("ALTER ROLE ada SET search_path = pg_catalog; ALTER ROLE ada SET threads = 3");
    let mut ada = Client::begin(server.connect(), "ada", Some("pencil")).unwrap();
    assert_eq!(ada.value("SELECT current_user"), "ada");
    assert_eq!(
        ada.value("SELECT current_setting('search_path') || current_setting('threads')"),
        "pg_catalog3"
    );
    ada.query("SET search_path = public");
    let error = Client::begin(server.connect(), "ada", Some("pencil")).err().unwrap();
    assert_eq!(field(&error, 'C'), "53300", "{error:?}");
    let error = ada.query("SELECT a FROM t").error;
    assert_eq!(field(&error, 'C'), "42501", "{error:?}");
    owner.query("GRANT SELECT ON t TO staff");
    assert_eq!(ada.value("SELECT a FROM t WHERE a = 1"), "1");
    owner.query("REVOKE SELECT ON t FROM staff");
    let error = ada.query("SELECT a FROM t WHERE a = 1").error;
    assert_eq!(field(&error, 'M'), "permission denied for table t");
    owner.query("REVOKE CONNECT ON DATABASE cleave FROM PUBLIC");
    owner.query("ALTER USER ada CONNECTION LIMIT -1");
    let error = Client::begin(server.connect(), "ada", Some("pencil")).err().unwrap();
    assert_eq!(field(&error, 'C'), "42501");
}

#[test]
fn sessions_and_transactions_that_take_too_long_are_ended() {
    let (_folder, server) = served();
    for (before, code) in [
        ("SET idle_session_timeout = 50", "57P05"),
        ("SET idle_in_transaction_session_timeout = 50; BEGIN", "25P03"),
        ("SET transaction_timeout = 50; BEGIN", "25P04"),
    ] {
        let mut client = server.client();
        client.query(before);
        let (kind, body) = read(&mut client.stream).unwrap();
        let told = fields(&body);
        assert_eq!(kind, 'E');
        assert_eq!((field(&told, 'S'), field(&told, 'C')), ("FATAL", code), "{before}");
        assert!(read(&mut client.stream).is_none());
    }
    let mut client = server.client();
    client.query("SET transaction_timeout = 50");
    client.query("SET idle_in_transaction_session_timeout = 50");
    client.send('Q', format!("{ENDLESS}\0").as_bytes());
    let mut messages = std::iter::from_fn(|| read(&mut client.stream));
    let (_, body) = messages.find(|(kind, _)| *kind == 'E').unwrap();
    let told = fields(&body);
    assert_eq!((field(&told, 'S'), field(&told, 'C')), ("FATAL", "25P04"));
    assert!(
        read(&mut client.stream).is_none(),
        "a transaction that takes too long ends its session"
    );
}

#[test]
fn nothing_listens_to_strangers_without_tls_and_users() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let db = db.to_str().unwrap();
    let complaint = cleave(&["serve", "--create", "--db", db, "--listen", "0.0.0.0:0"]).fails(1);
    assert!(complaint.contains("--tls-cert"), "{complaint}");
    let listen = ["serve", "--create", "--db", db, "--listen", "0.0.0.0:0", "--tls-self-made"];
    let complaint = cleave(&listen).fails(1);
    assert!(complaint.contains("cleave user add"), "{complaint}");
    let complaint = cleave(&["serve", "--db", db, "--listen", "nowhere"]).fails(1);
    assert!(complaint.contains("HOST:PORT"), "{complaint}");
}

#[test]
fn tls_is_offered_where_there_is_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    for (options, expected) in [(&[][..], b'N'), (&["--tls-self-made"], b'S')] {
        let server = Server::start(folder.path(), options);
        let mut stream = server.connect();
        stream.write_all(&opening(80_877_103, b"")).unwrap();
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0], expected);
        if expected == b'N' {
            assert!(Client::begin(stream, "ada", None).is_ok(), "it goes on without");
        }
    }
}

#[test]
fn garbage_ends_its_connection_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--message-limit", "1MB", "--authentication-timeout", "2"];
    let server = Server::start(folder.path(), &options);
    let mut witness = server.client();
    let mut silent = server.connect();
    for (garbage, state) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "08P01"),
        (&opening(2 << 16, b"\0"), "0A000"),
        (&opening(3 << 16, b"user\0"), "08P01"),
        (&opening(3 << 16, b"\0"), "28000"),
        (&opening(3 << 16, b"user\0ada\0nonsense\0x\0\0"), "42704"),
        (&opening(3 << 16, b"user\0ada\0database\0other\0\0"), "3D000"),
    ] {
        let mut stream = server.connect();
        stream.write_all(garbage).unwrap();
        let (kind, body) = read(&mut stream).unwrap();
        assert_eq!((kind, field(&fields(&body), 'C')), ('E', state));
        assert!(read(&mut stream).is_none(), "it is closed");
    }
    // In a session: bytes without a frame end it, a malformed frame is an error.
    for (garbage, state) in
        [(&b"~\0\0\0\x04"[..], "08P01"), (b"Q\0\0\0\x01", "08P01"), (b"Q\x7f\xff\xff\xff", "54000")]
    {
        let mut client = server.client();
        client.stream.write_all(garbage).unwrap();
        let (kind, body) = read(&mut client.stream).unwrap();
        assert_eq!((kind, field(&fields(&body), 'S')), ('E', "FATAL"));
        assert_eq!(field(&fields(&body), 'C'), state);
        assert!(read(&mut client.stream).is_none(), "it is closed");
    }
    let mut client = server.client();
    client.send('Q', b"SELECT '\xff'\0");
    assert_eq!(field(&client.answer().error, 'C'), "22021");
    client.send('B', b"\0\0\0\x09\0\x01");
    client.send('S', b"");
    assert_eq!(field(&client.answer().error, 'C'), "08P01");
    assert_eq!(client.value("SELECT 1"), "1");
    // A statement that is too long or too deep fails alone.
    let long = format!("SELECT '{}'", "x".repeat(1_100_000));
    let mut too_long = server.client();
    too_long.stream.write_all(&message('Q', format!("{long}\0").as_bytes())).ok();
    let (kind, body) = read(&mut too_long.stream).unwrap();
    assert_eq!((kind, field(&fields(&body), 'C')), ('E', "54000"));
    for (sql, states) in [
        (format!("SELECT {}1{}", "(".repeat(9000), ")".repeat(9000)), ["54001", "42601"]),
        (format!("SELECT {}1", "- ".repeat(1000)), ["54001", "42601"]),
        (format!("SELECT 1{}", " + 1".repeat(250_000)), ["54001", "54001"]),
        (format!("SELECT {}1{}", "(SELECT ".repeat(1000), ")".repeat(1000)), ["54001", "42601"]),
        (format!("SELECT 1 WHERE {} 1 = 1", "NOT ".repeat(1000)), ["54001", "42601"]),
        (format!("SELECT '{}", "x".repeat(1_000_000)), ["42601", "42601"]),
        (format!("SELECT {}", "x".repeat(1_000_000)), ["42703", "42622"]),
    ] {
        let error = client.query(&sql).error;
        let start = sql.get(..40).unwrap_or(&sql);
        assert!(states.contains(&field(&error, 'C')), "{start}: {error:.300?}");
    }
    let million = format!("SELECT length('{}')", "x".repeat(1_000_000));
    assert_eq!(client.value(&million), "1000000");
    // One is half open, and one vanishes while its statement runs.
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(read(&mut client.stream).is_none());
    let mut vanishing = server.client();
    vanishing.send('Q', format!("{ENDLESS}\0").as_bytes());
    drop(vanishing);
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "who says nothing is not waited for");
    assert_eq!(witness.value("SELECT 2"), "2");
}

#[test]
fn statements_beyond_measure_are_refused() {
    let (_folder, server) = served();
    let mut client = server.client();
    let long = format!("SELECT '{}'", "x".repeat(1_000_000));
    assert_eq!(client.value(&long).len(), 1_000_000);
    let nested = format!("SELECT {}1{}", "(".repeat(4000), ")".repeat(4000));
    assert_eq!(client.value(&nested), "1");
    for sql in [
        format!("SELECT {}1{}", "(".repeat(9000), ")".repeat(9000)),
        format!("SELECT 1{}", " + 1".repeat(250_000)),
    ] {
        assert_eq!(field(&client.query(&sql).error, 'C'), "54001");
    }
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn sessions_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--connections", "2"]);
    let first = server.client();
    let _second = server.client();
    let error = Client::begin(server.connect(), "ada", None).err().unwrap();
    assert_eq!(field(&error, 'C'), "53300");
    drop(first);
    // The place is free once the server has noticed.
    while Client::begin(server.connect(), "ada", None).is_err() {}
}

/// Reads to the end: the last message is that the server ends.
fn assert_told_of_the_end(client: &mut Client) {
    let mut last = None;
    while let Some((kind, body)) = read(&mut client.stream) {
        last = (kind == 'E').then(|| fields(&body));
    }
    let last = last.expect("a last word");
    assert_eq!((field(&last, 'S'), field(&last, 'C')), ("FATAL", "57P01"));
}

#[test]
fn statements_that_keep_all_threads_busy_keep_nobody_out_and_no_end_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &["--grace", "1"]);
    let mut busy: Vec<Client> = (0..12).map(|_| server.client()).collect();
    server.client().query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (7)");
    busy.iter_mut().for_each(|client| client.send('Q', format!("{ENDLESS}\0").as_bytes()));
    // They are computing by now, or soon: a new client can still connect and look a row up, repeatedly.
    for _ in 0..100 {
        let mut client = server.client();
        assert_eq!(client.value("SHOW server_encoding"), "UTF8");
        assert_eq!(client.value("SELECT a FROM t WHERE a = 7"), "7");
    }
    server.terminate();
    for client in &mut busy {
        assert_told_of_the_end(client);
    }
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn others_compute_beside_a_statement_that_lets_go_of_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (mut other, mut endless) = (server.client(), server.client());
    endless.send('Q', format!("{ENDLESS}\0").as_bytes());
    for count in 1..=100 {
        let query = format!("SELECT count(*) FROM generate_series(1, {count})");
        assert_eq!(other.value(&query), count.to_string());
    }
    // It may go on computing, though nobody wants it any more.
    drop(endless);
    assert_eq!(other.value("SELECT sum(v) FROM generate_series(1, 4) AS s (v)"), "10");
}

/// Each compares a batch of one side with all of the other in one go, for longer than any test: with a condition, and
/// without one.
const ALL_PAIRS: [&str; 2] = [
    "SELECT count(*) FROM generate_series(1, 2000000) a, generate_series(1, 2000000) b WHERE a + b = 1",
    "SELECT sum(a + b) FROM generate_series(1, 2000000) a, generate_series(1, 2000000) b",
];

#[test]
fn joins_that_nobody_waits_for_let_go_of_their_threads() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    // As many as there are computing threads.
    let count = 4 * std::thread::available_parallelism().unwrap().get();
    let mut busy: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for (client, pairs) in busy.iter_mut().zip(ALL_PAIRS.iter().cycle()) {
        client.query("SET statement_timeout = 4000");
        client.send('Q', format!("{pairs}\0").as_bytes());
    }
    let late = busy.split_off(count / 2);
    for mut client in late {
        assert_eq!(field(&client.answer().error, 'C'), "57014");
    }
    // The others' clients vanish.
    drop(busy);
    let mut other = server.client();
    for count in 1..=20 {
        let query = format!("SELECT count(*) FROM generate_series(1, {count})");
        assert_eq!(other.value(&query), count.to_string());
    }
}

#[test]
fn statements_that_give_no_rows_end_in_the_midst_of_a_join() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int8); SET threads = 1; SET statement_timeout = 1000");
    for pairs in ALL_PAIRS {
        let error = client.query(&format!("INSERT INTO t {pairs}")).error;
        assert_eq!(field(&error, 'C'), "57014", "{error:?}");
    }
    assert_eq!(client.value("SELECT count(*) FROM t"), "0");
}

#[test]
fn a_server_that_ends_says_so_and_stops_statements_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &["--grace", "1"]);
    let (mut idle, mut busy) = (server.client(), server.client());
    busy.query("CREATE TABLE t (a int)");
    busy.send('Q', format!("{ENDLESS}\0").as_bytes());
    server.terminate();
    for client in [&mut idle, &mut busy] {
        assert_told_of_the_end(client);
    }
    assert_eq!(server.ended(), Some(0));
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.client().value("SELECT count(*) FROM t"), "0");
}
