//! What a session keeps for its client takes of the memory of queries, and leaves the rest to others.

use std::io::Write;

use super::client::{Client, Server, field, fields, message};
use super::{bind, execute, parse};

#[test]
fn portals_and_prepared_statements_are_refused_before_they_take_all_memory() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--query-memory", "64MB"]);
    let (mut client, mut other) = (server.client(), server.client());
    let long = "x".repeat(1 << 20);
    // A quarter of the memory of queries, in which messages are kept, too, while they come.
    let fill = |client: &mut Client| {
        client.query("BEGIN");
        let mut sent = parse("SELECT length($1)");
        (0..40).for_each(|number| sent.extend(bind(&format!("p{number}"), &[&long])));
        sent.extend(message('S', b""));
        client.stream.write_all(&sent).unwrap();
        let messages = client.messages();
        let bound = messages.iter().filter(|(kind, _)| *kind == '2').count();
        let error = messages.iter().find(|(kind, _)| *kind == 'E').expect("a refusal");
        assert_eq!(field(&fields(&error.1), 'C'), "53200");
        bound
    };
    let (first, second) = (fill(&mut client), fill(&mut other));
    assert!((10..16).contains(&first) && (10..16).contains(&second), "{first}, {second}");
    // Others have what is not charged, and the memory of queries that sessions may not keep.
    let mut third = server.client();
    let run = [parse("SELECT length($1)"), bind("p", &["abc"]), execute("p", 0), message('S', b"")];
    third.stream.write_all(&run.concat()).unwrap();
    assert_eq!(third.answer().rows, [[Some("3".to_owned())]]);
    assert_eq!(third.value("SELECT sum(a) FROM generate_series(1, 100000) x(a)"), "5000050000");
    let statement = format!("PREPARE p AS SELECT '{}'", &long[..1_000_000]);
    assert_eq!(field(&third.query(&statement).error, 'C'), "53200");
    // The end of a block ends its portals.
    client.query("ROLLBACK");
    assert_eq!(third.query(&statement).tags, ["PREPARE"]);
    assert!(fill(&mut client) < first - 2, "a statement counts as ten times its text");
}

#[test]
fn settings_are_short() {
    let (_folder, server) = super::served();
    let mut client = server.client();
    let names = vec!["a"; 40_000].join(", ");
    for sql in [
        format!("SET search_path = {names}"),
        format!("SET search_path = '{}'", "x".repeat(70_000)),
        format!("SELECT set_config('search_path', '{names}', false)"),
        format!("SET \"my.own\" = '{}'", "x".repeat(70_000)),
        format!("SET work_mem = '{}'", "1".repeat(70_000)),
    ] {
        assert_eq!(field(&client.query(&sql).error, 'C'), "54000", "{}", &sql[..30]);
    }
    assert_eq!(client.value("SHOW search_path"), "public");
}
