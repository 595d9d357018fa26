//! Statements that come together are one transaction; cursors go through the rows of one.

use std::io::Write;

use super::client::{Client, field, message, read};
use super::{bind, execute, parse, served};

/// Sends the messages of statements up to a Sync, each with its own.
fn pipeline(client: &mut Client, statements: &[&str]) -> super::client::Answer {
    let mut sent = Vec::new();
    for sql in statements {
        sent.extend(parse(sql));
        sent.extend(bind("", &[]));
        sent.extend(execute("", 0));
    }
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    client.answer()
}

#[test]
fn a_failure_undoes_what_came_with_it() {
    let (_folder, server) = served();
    let (mut client, mut other) = (server.client(), server.client());
    client.query("CREATE TABLE t (a int PRIMARY KEY)");
    let count = "SELECT count(*) FROM t";
    for together in [true, false] {
        client.query("DELETE FROM t");
        let mut run = |statements: &[&str]| match together {
            true => client.query(&statements.join("; ")),
            false => pipeline(&mut client, statements),
        };
        let failed = run(&["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1)"]);
        assert_eq!((field(&failed.error, 'C'), failed.state), ("23505", 'I'));
        assert_eq!(failed.tags, ["INSERT 0 1"], "the first one was told of");
        assert_eq!(other.value(count), "0");
        let done = run(&["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", count]);
        assert_eq!(done.rows, [[Some("2".to_owned())]]);
        assert_eq!((done.state, other.value(count).as_str()), ('I', "2"));
        // BEGIN makes a block that includes the statements before it; COMMIT ends it.
        let begun = run(&["DELETE FROM t WHERE a = 1", "BEGIN", "DELETE FROM t WHERE a = 2"]);
        assert_eq!((begun.state, other.value(count).as_str()), ('T', "2"));
        assert_eq!(run(&["ROLLBACK"]).state, 'I');
        assert_eq!(other.value(count), "2");
        let halved = run(&["INSERT INTO t VALUES (3)", "COMMIT", "INSERT INTO t VALUES (3)"]);
        assert_eq!((field(&halved.error, 'C'), other.value(count).as_str()), ("23505", "3"));
        let undone = run(&["INSERT INTO t VALUES (4)", "ROLLBACK", "INSERT INTO t VALUES (5)"]);
        assert_eq!((undone.state, other.value(count).as_str()), ('I', "4"));
        assert_eq!(other.value("SELECT count(*) FROM t WHERE a = 4"), "0");
        let refused = run(&["INSERT INTO t VALUES (6)", "SAVEPOINT s"]);
        assert_eq!(field(&refused.error, 'C'), "25P01");
        let refused = run(&["INSERT INTO t VALUES (6)", "VACUUM"]);
        assert_eq!(field(&refused.error, 'C'), "25001");
        assert_eq!(other.value(count), "4");
    }
    // A text with a syntax error has no effect at all.
    assert_eq!(field(&client.query("DELETE FROM t; SELEC").error, 'C'), "42601");
    assert_eq!(other.value(count), "4");
}

#[test]
fn queries_of_a_batch_are_answered_in_their_order_and_fail_at_its_end() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query(
        "CREATE TABLE t (a int PRIMARY KEY, b int);
         INSERT INTO t SELECT v, v % 7 FROM generate_series(1, 1000) AS s (v)",
    );
    let given = |values: &[&str]| -> Vec<Vec<Option<String>>> {
        values.iter().map(|value| vec![Some((*value).to_owned())]).collect()
    };
    let answer = client.query(
        "BATCH BEGIN; SELECT count(*) FROM t WHERE b = 3; SELECT 1 / (b - b) FROM t;
         SELECT a FROM t WHERE a = 5; SELECT sum(a) FROM t WHERE b < 2; BATCH END; SELECT 1",
    );
    assert_eq!(answer.tags, ["BATCH BEGIN", "SELECT 1", "FAILED", "SELECT 1", "SELECT 1"]);
    assert_eq!(answer.rows, given(&["143", "5", "142285"]));
    assert_eq!((field(&answer.error, 'C'), answer.state), ("22012", 'I'));
    let message = field(&answer.error, 'M');
    assert!(message.starts_with("query 2 of the batch: "), "{message}");
    let answer = client.query("SELECT 8; BATCH BEGIN; SELECT 9; BATCH END; SELECT 10");
    assert_eq!(answer.rows, given(&["8", "9", "10"]));
    assert_eq!(answer.tags, ["SELECT 1", "BATCH BEGIN", "SELECT 1", "BATCH END", "SELECT 1"]);
    // Rows reach the client while a query behind them waits.
    let mut other = server.client();
    other.query("SELECT pg_advisory_lock(7)");
    client.send(
        'Q',
        b"BATCH BEGIN; SELECT count(*) FROM t WHERE b = 3; SELECT pg_advisory_lock(7); BATCH END\0",
    );
    let kinds = std::iter::from_fn(|| read(&mut client.stream).map(|(kind, _)| kind));
    assert_eq!(kinds.take(4).collect::<String>(), "CTDC");
    other.query("SELECT pg_advisory_unlock(7)");
    assert_eq!(client.answer().tags, ["SELECT 1", "BATCH END"]);
    // By the extended protocol statements come one by one.
    let refused = pipeline(&mut client, &["BATCH BEGIN; SELECT 1; BATCH END"]);
    assert_eq!(field(&refused.error, 'C'), "42601");
    assert_eq!(client.value("SELECT 11"), "11");
}

#[test]
fn cursors_give_some_rows_at_a_time() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query(
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 10)",
    );
    let first = |client: &mut Client, sql: &str| {
        let answer = client.query(sql);
        let rows: Vec<_> = answer.rows.iter().map(|row| row[0].clone().unwrap()).collect();
        (rows.join(" "), answer.tags.join(" "), field(&answer.error, 'C').to_owned())
    };
    let given = |rows: &str, tag: &str| (rows.to_owned(), tag.to_owned(), String::new());
    assert_eq!(first(&mut client, "DECLARE c CURSOR FOR SELECT 1").2, "25P01");
    client.query("BEGIN");
    client.query("DELETE FROM t WHERE a = 10");
    let declare = "DECLARE c NO SCROLL CURSOR FOR SELECT a FROM t ORDER BY a";
    assert_eq!(first(&mut client, declare), given("", "DECLARE CURSOR"));
    // Its rows are those of its snapshot.
    client.query("DELETE FROM t WHERE a > 5");
    assert_eq!(first(&mut client, "FETCH c"), given("1", "FETCH 1"));
    assert_eq!(first(&mut client, "FETCH FORWARD 2 FROM c"), given("2 3", "FETCH 2"));
    assert_eq!(first(&mut client, "MOVE 2 IN c"), given("", "MOVE 2"));
    assert_eq!(first(&mut client, "FETCH NEXT FROM c"), given("6", "FETCH 1"));
    let messages = pipeline(&mut client, &["FETCH ALL FROM c"]);
    assert_eq!((messages.tags.as_slice(), messages.rows.len()), (&["FETCH 3".to_owned()][..], 3));
    assert_eq!(first(&mut client, "FETCH 5 c"), given("", "FETCH 0"));
    assert_eq!(first(&mut client, "CLOSE c"), given("", "CLOSE CURSOR"));
    assert_eq!(first(&mut client, "FETCH c").2, "34000");
    client.query("ROLLBACK");
    // Savepoints undo them; a WITH HOLD cursor outlives its block, if that commits.
    client.query("BEGIN; SAVEPOINT s; DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a");
    client.query("ROLLBACK TO s");
    assert_eq!(first(&mut client, "FETCH c").2, "34000");
    client.query("ROLLBACK TO s; DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a");
    assert_eq!(first(&mut client, "DECLARE c CURSOR FOR SELECT 1").2, "42P03");
    client.query("ROLLBACK");
    assert_eq!(first(&mut client, "FETCH c").2, "34000");
    client.query("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a; DECLARE d CURSOR FOR SELECT 1; \
        COMMIT");
    assert_eq!(first(&mut client, "FETCH 2 c"), given("1 2", "FETCH 2"));
    assert_eq!(first(&mut client, "FETCH d").2, "34000");
    assert_eq!(first(&mut client, "FETCH BACKWARD 1 FROM c").2, "55000");
    assert_eq!(first(&mut client, "FETCH -1 FROM c").2, "55000");
    // With parameters, as a portal, and described as one.
    client.query("BEGIN");
    let mut sent =
        parse("DECLARE \"C d\" CURSOR FOR SELECT a, a::text AS b FROM t WHERE a > $1 ORDER BY a");
    sent.extend(bind("", &["8"]));
    sent.extend(execute("", 0));
    sent.extend(message('D', b"PC d\0"));
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.kinds(), "12CTZ");
    assert_eq!(first(&mut client, "FETCH ALL \"C d\""), given("9 10", "FETCH 2"));
    assert_eq!(first(&mut client, "CLOSE ALL"), given("", "CLOSE CURSOR ALL"));
}
