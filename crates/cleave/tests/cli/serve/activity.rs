//! Sessions that see and end each other: `pg_stat_activity`, `pg_cancel_backend`, `pg_terminate_backend`; and the
//! settings that they are told of.

use super::client::{Client, field, fields, read};
use super::served;

/// Repeats a query of one value until it gives `expected`: another thread serves the other session.
pub(super) fn until(client: &mut Client, sql: &str, expected: &str) {
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    for _ in 0..600 {
        if client.query(sql).rows.first().is_some_and(|row| row[0].as_deref() == Some(expected)) {
            return;
        }
        nothing.recv_timeout(std::time::Duration::from_millis(50)).unwrap_err();
    }
    panic!("{sql} does not give {expected}");
}

#[test]
fn sessions_are_seen_cancelled_and_ended() {
    let (_folder, server) = served();
    let (mut one, mut two) = (server.client(), server.client());
    let pid = one.value("SELECT pg_backend_pid()");
    let of = |columns: &str| format!("SELECT {columns} FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(two.value("SELECT count(*) FROM pg_stat_activity"), "2");
    assert_eq!(
        two.value(&of("usename || ' ' || application_name || ' ' || client_addr")),
        "ada test 127.0.0.1"
    );
    until(&mut two, &of("state"), "idle");
    assert_eq!(two.value(&of("query")), "SELECT pg_backend_pid()");
    assert_eq!(two.value(&of("xact_start IS NULL AND query_start >= backend_start")), "t");
    one.query("BEGIN");
    until(&mut two, &of("state"), "idle in transaction");
    assert_eq!(two.value(&of("xact_start IS NOT NULL")), "t");
    one.send('Q', b"SELECT pg_sleep(600)\0");
    until(&mut two, &of("query || ' ' || state"), "SELECT pg_sleep(600) active");
    // Of a statement that reads nothing only the time is known.
    let far = |columns: &str| format!("SELECT {columns} FROM cleave.progress WHERE pid = {pid}");
    assert_eq!(two.value(&far("query")), "SELECT pg_sleep(600)");
    assert_eq!(two.value(&far("elapsed_ms >= 0 AND total IS NULL")), "t");
    assert_eq!(two.value("SELECT count(*) FROM cleave.progress"), "2");
    let which = "FROM pg_stat_activity WHERE query LIKE '%sleep(600)' AND pid <> pg_backend_pid()";
    assert_eq!(two.value(&format!("SELECT pg_cancel_backend(pid) {which}")), "t");
    assert_eq!(field(&one.answer().error, 'C'), "57014");
    until(&mut two, &of("state"), "idle in transaction (aborted)");
    one.query("ROLLBACK");
    // Nobody has that number; then a session that waits, and one that runs.
    assert_eq!(two.value("SELECT pg_cancel_backend(2147483647)"), "f");
    let mut three = server.client();
    let other = three.value("SELECT pg_backend_pid()");
    three.send('Q', b"SELECT pg_sleep(600)\0");
    for (client, pid) in [(&mut one, &pid), (&mut three, &other)] {
        assert_eq!(two.value(&format!("SELECT pg_terminate_backend({pid})")), "t");
        // The columns of the result may be described before.
        let last = std::iter::from_fn(|| read(&mut client.stream)).last();
        let (kind, body) = last.unwrap();
        assert_eq!((kind, field(&fields(&body), 'C')), ('E', "57P01"));
    }
    until(&mut two, "SELECT count(*) FROM pg_stat_activity", "1");
}

#[test]
fn a_role_sees_and_ends_its_own_only() {
    let (_folder, server) = served();
    let mut owner = server.client();
    owner.query("CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN");
    let mut bob = Client::begin(server.connect(), "bob", None).unwrap();
    let mut bobs = Client::begin(server.connect(), "bob", None).unwrap();
    let mut eve = Client::begin(server.connect(), "eve", None).unwrap();
    let pid = bob.value("SELECT pg_backend_pid()");
    let seen = format!("SELECT query FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(eve.value(&seen), "<insufficient privilege>");
    assert_eq!(bobs.value(&seen), "SELECT pg_backend_pid()");
    let end = format!("SELECT pg_terminate_backend({pid})");
    assert_eq!(field(&eve.query(&end).error, 'C'), "42501");
    assert_eq!(bobs.value(&end), "t");
    assert_eq!(read(&mut bob.stream).unwrap().0, 'E');
}

#[test]
fn clients_are_told_of_settings_that_go_back() {
    let (_folder, server) = served();
    let mut client = server.client();
    let mut told = |sql: &str| {
        client.send('Q', format!("{sql}\0").as_bytes());
        let messages = client.messages();
        let names = messages.iter().filter(|(kind, _)| *kind == 'S');
        let texts = names.map(|(_, body)| String::from_utf8_lossy(body).replace('\0', " "));
        texts.collect::<Vec<_>>().concat()
    };
    assert_eq!(told("BEGIN"), "");
    assert_eq!(told("SET LOCAL application_name = 'job'"), "application_name job ");
    assert_eq!(told("COMMIT"), "application_name test ");
    // Of statements that came together, the first is rolled back too.
    assert_eq!(told("SET application_name = 'x'; SELECT 1 / 0"), "");
    assert_eq!(told("SELECT set_config('application_name', 'y', false)"), "application_name y ");
    let warned = client.query("SET LOCAL application_name = 'z'");
    assert_eq!((warned.tags[0].as_str(), warned.error.len()), ("SET", 0));
}
