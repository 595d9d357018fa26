//! Values in binary: rows of COPY, and lists as parameters.

use std::io::Write;

use super::client::{Client, Server, field, message, read};
use super::{bind, execute, parse, served};

const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

#[test]
fn rows_are_copied_in_binary() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int NOT NULL, b text)");
    let first = [HEAD, b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x03a\nb"].concat();
    let second = b"\0\x02\0\0\0\x04\xff\xff\xff\xff\xff\xff\xff\xff";
    let file = [&first[..], second, b"\xff\xff"].concat();
    client.send('Q', b"COPY t (a, b) FROM STDIN (FORMAT binary)\0");
    assert_eq!(read(&mut client.stream).unwrap(), ('G', vec![1, 0, 2, 0, 1, 0, 1]));
    for piece in file.chunks(9) {
        client.send('d', piece);
    }
    client.send('c', b"");
    assert_eq!(client.answer().tags, ["COPY 2"]);
    client.send('Q', b"COPY (SELECT a, b FROM t ORDER BY a DESC) TO STDOUT WITH BINARY\0");
    let messages = client.messages();
    assert_eq!(messages[0], ('H', vec![1, 0, 2, 0, 1, 0, 1]));
    let rows: Vec<&[u8]> = messages[1..4].iter().map(|(_, body)| body.as_slice()).collect();
    assert_eq!(rows, [&first[..], second, b"\xff\xff"]);
    // A file without a header, one that ends too early, and a value of a wrong length.
    let short = [HEAD, b"\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\0\xff\xff"].concat();
    for file in [&b"7\tx\n8\ty\n9\tz\n7\tx\n"[..], &file[..30], &short] {
        client.send('Q', b"COPY t FROM STDIN BINARY\0");
        client.send('d', file);
        client.send('c', b"");
        assert_eq!(field(&client.answer().error, 'C'), "22P04");
    }
    assert_eq!(client.value("SELECT count(*) FROM t"), "2");
}

/// The result of a statement with one parameter: `value` is sent in `format`, of the declared type `oid`.
fn asked(
    client: &mut Client,
    sql: &str,
    oid: u32,
    format: u8,
    value: &[u8],
) -> super::client::Answer {
    let mut body = format!("\0{sql}\0").into_bytes();
    body.extend([0, 1]);
    body.extend(oid.to_be_bytes());
    let mut sent = message('P', &body);
    let mut body = vec![0, 0, 0, 1, 0, format, 0, 1];
    body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
    body.extend(value);
    body.extend([0, 0]);
    sent.extend(message('B', &body));
    sent.extend(execute("", 0));
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    client.answer()
}

#[test]
fn a_list_may_be_a_parameter() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x'), (2, 'a \"b'), (3, \
        NULL), (4, 'z')");
    let mut binary = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1];
    binary.extend([0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 3]);
    let any = "SELECT string_agg(a::text, ' ' ORDER BY a) FROM t WHERE a = ANY ($1)";
    let not = "SELECT string_agg(a::text, ' ' ORDER BY a) FROM t WHERE a <> ALL ($1::int[])";
    let text = "SELECT string_agg(a::text, ' ' ORDER BY a) FROM t WHERE b = ANY ($1)";
    for (sql, oid, format, value, expected) in [
        (any, 0, 0, &b"{1,3}"[..], Some("1 3")),
        (any, 1007, 1, &binary, Some("1 3")),
        (any, 1005, 0, b"{4,NULL}", Some("4")),
        (any, 1016, 0, b"{}", None),
        (not, 0, 1, &binary, Some("2 4")),
        (not, 0, 0, b"{}", Some("1 2 3 4")),
        (not, 0, 0, b"{1,NULL}", None),
        (text, 1009, 0, br#"{"a \"b",z}"#, Some("2 4")),
        (text, 1015, 0, b"{x}", Some("1")),
    ] {
        let answer = asked(&mut client, sql, oid, format, value);
        assert_eq!(answer.rows, [[expected.map(str::to_owned)]], "{sql} {:?}", answer.error);
    }
    let deleted = asked(&mut client, "DELETE FROM t WHERE a = ANY ($1)", 1007, 1, &binary);
    assert_eq!(deleted.tags, ["DELETE 2"], "{:?}", deleted.error);
    for (sql, oid, format, value, state) in [
        (any, 0, 0, &b"{1"[..], "22P02"),
        (any, 0, 0, b"{x}", "22P02"),
        (any, 1007, 1, &binary[..30], "22P03"),
        (any, 23, 0, b"1", "0A000"),
        ("SELECT a FROM t WHERE a = $1", 1007, 0, b"{1}", "0A000"),
    ] {
        let answer = asked(&mut client, sql, oid, format, value);
        assert_eq!(field(&answer.error, 'C'), state, "{sql}: {:?}", answer.error);
    }
    // A driver that asks gets a list type; EXECUTE takes one too.
    let mut sent = parse(any);
    sent.extend(message('D', b"S\0"));
    sent.extend(message('S', b""));
    client.stream.write_all(&sent).unwrap();
    let described = client.messages();
    assert_eq!(described[1], ('t', [&[0, 1][..], &1007_u32.to_be_bytes()].concat()));
    client.query(&format!("PREPARE p AS {any}"));
    assert_eq!(client.value("EXECUTE p ('{2,4,9}')"), "2 4");
}

#[test]
fn explain_and_create_table_as_take_parameters() {
    let (_folder, server) = served();
    let mut client = server.client();
    client.query("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')");
    let look_up = asked(&mut client, "EXPLAIN SELECT b FROM t WHERE a = $1", 0, 0, b"2");
    let shown = look_up.rows.concat().into_iter().flatten().collect::<String>();
    assert!(shown.starts_with("Point look-up on t"), "{shown} {:?}", look_up.error);
    let run = asked(&mut client, "EXPLAIN ANALYZE DELETE FROM t WHERE b < $1", 0, 0, b"y");
    assert!(!run.rows.is_empty(), "{:?}", run.error);
    let made = "CREATE TABLE made AS SELECT a, b FROM t WHERE a > $1";
    assert_eq!(asked(&mut client, made, 23, 0, b"2").tags, ["SELECT 1"]);
    assert_eq!(client.value("SELECT string_agg(a || b, ' ') FROM made"), "3z");
    assert_eq!(field(&asked(&mut client, made, 23, 0, b"two").error, 'C'), "22P02");
}

#[test]
fn a_parameter_may_name_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--allow-files"]);
    let mut client = server.client();
    let file = folder.path().join("it's.csv");
    std::fs::write(&file, "id,title\n1,one\n2,two\n").unwrap();
    let named = file.display().to_string();
    let sql = "SELECT title FROM read_csv($1) WHERE id > $2::int";
    // As drivers send it: the columns are asked for once the values are there.
    let mut sent = [parse(sql), bind("", &[&named, "1"]), message('D', b"P\0")].concat();
    sent.extend([execute("", 0), message('S', b"")].concat());
    client.stream.write_all(&sent).unwrap();
    let messages = client.messages();
    let kinds: String = messages.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, "12TDCZ");
    assert!(messages[2].1.windows(5).any(|part| part == b"title"), "{:?}", messages[2]);
    assert!(messages[3].1.ends_with(b"two"), "{:?}", messages[3]);
    // Before that nothing tells them, but the parameters are told. A block goes on, and what came together is undone.
    client.query("CREATE TABLE undone (id int); BEGIN");
    let asks = [parse(sql), message('D', b"S\0"), message('S', b"")].concat();
    client.stream.write_all(&asks).unwrap();
    let messages = client.messages();
    let kinds: String = messages.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, "1tEZ");
    assert_eq!(messages[1].1, [&[0, 2][..], &25_u32.to_be_bytes(), &23_u32.to_be_bytes()].concat());
    assert_eq!(messages[3].1, b"T");
    let run = [bind("", &[&named, "1"]), execute("", 0), message('S', b"")].concat();
    client.stream.write_all(&run).unwrap();
    assert_eq!(client.kinds(), "2DCZ");
    client.query("COMMIT");
    let insert = [parse("INSERT INTO undone VALUES (1)"), bind("", &[]), execute("", 0)].concat();
    // Nor does a block go on without a statement that is skipped for it.
    client.query("BEGIN");
    let sent = [parse(sql), message('D', b"S\0"), insert.clone(), message('S', b"")].concat();
    client.stream.write_all(&sent).unwrap();
    let answer = client.answer();
    assert_eq!((field(&answer.error, 'C'), answer.state), ("0A000", 'E'), "{:?}", answer.error);
    client.query("ROLLBACK");
    client.stream.write_all(&[insert, asks].concat()).unwrap();
    let answer = client.answer();
    assert_eq!((field(&answer.error, 'C'), answer.state), ("0A000", 'I'), "{:?}", answer.error);
    assert!(
        field(&answer.error, 'M').contains("whose parameters name files"),
        "{:?}",
        answer.error
    );
    assert_eq!(client.value("SELECT count(*) FROM undone"), "0");
    // Rows of another file are not read by the columns that an earlier run was told.
    let days = folder.path().join("days.csv").display().to_string();
    std::fs::write(&days, "id,day\n2,2024-01-31\n").unwrap();
    let all = parse("SELECT * FROM read_csv($1)");
    let run = |client: &mut Client, before: &[u8], file: &str, is_described: bool| {
        let mut sent = [before, &bind("", &[file])].concat();
        if is_described {
            sent.extend(message('D', b"P\0"));
        }
        sent.extend([execute("", 0), message('S', b"")].concat());
        client.stream.write_all(&sent).unwrap();
        client.answer()
    };
    assert_eq!(run(&mut client, &all, &named, true).rows.len(), 2);
    assert_eq!(run(&mut client, &[], &named, false).rows.len(), 2);
    let refused = run(&mut client, &[], &days, false);
    assert_eq!((field(&refused.error, 'C'), refused.rows.len()), ("0A000", 0));
    assert_eq!(run(&mut client, &[], &days, true).rows.len(), 1);
    assert_eq!(field(&run(&mut client, &[], &named, false).error, 'C'), "0A000");
    // Two portals of one statement are each run as they were described.
    let describe = |portal: &str| message('D', format!("P{portal}\0").as_bytes());
    let both = [bind("a", &[&named]), describe("a"), bind("b", &[&days]), describe("b")].concat();
    let sent = [both, execute("a", 0), execute("b", 0), message('S', b"")].concat();
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.kinds(), "2T2TDDCDCZ");
    // A change is described without being made, and undone if its rows are not those that the client was told.
    client.query(
        "CREATE TABLE kept (id int, title text); INSERT INTO kept VALUES (1, 'a'), (2, 'b')",
    );
    let kept = "SELECT string_agg(title, ' ' ORDER BY id) FROM kept";
    let update = parse(
        "UPDATE kept SET title = kept.title || '!' FROM read_csv($1) AS f WHERE f.id = kept.id RETURNING f.*",
    );
    let sent = [update.clone(), bind("", &[&named]), message('D', b"P\0"), message('S', b"")];
    client.stream.write_all(&sent.concat()).unwrap();
    assert_eq!(client.kinds(), "12TZ");
    assert_eq!(client.value(kept), "a b");
    let changed = run(&mut client, &update, &named, true);
    assert_eq!((changed.rows.len(), changed.tags), (2, vec!["UPDATE 2".to_owned()]));
    let refused = run(&mut client, &[], &days, false);
    assert_eq!((field(&refused.error, 'C'), refused.rows.len()), ("0A000", 0));
    assert_eq!(client.value(kept), "a! b!");
    // So is one whose file has changed since its portal was described.
    client.query("BEGIN");
    let sent = [bind("", &[&named]), message('D', b"P\0"), message('S', b"")].concat();
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.kinds(), "2TZ");
    std::fs::write(&file, "id,title\n1,5\n2,6\n").unwrap();
    client.stream.write_all(&[execute("", 0), message('S', b"")].concat()).unwrap();
    let refused = client.answer();
    assert_eq!((field(&refused.error, 'C'), refused.state), ("0A000", 'E'));
    client.query("ROLLBACK");
    assert_eq!(client.value(kept), "a! b!");
    // Nor are those of a table or a file that has changed.
    client.query("CREATE TABLE changing (id int)");
    let of_file = format!("SELECT * FROM '{days}'");
    for (name, sql) in [("t", "SELECT * FROM changing"), ("f", of_file.as_str())] {
        let mut sent = message('P', format!("{name}\0{sql}\0\0\0").as_bytes());
        sent.extend(message('D', format!("S{name}\0").as_bytes()));
        client.stream.write_all(&[sent, message('S', b"")].concat()).unwrap();
        assert_eq!(client.kinds(), "1tTZ", "{sql}");
        if name == "t" {
            client.query("ALTER TABLE changing ADD COLUMN note text");
        } else {
            std::fs::write(&days, "id,day,note\n2,2024-01-31,x\n").unwrap();
        }
        let bound = message('B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        for (next, kinds) in [(execute("", 0), "2EZ"), (message('D', b"P\0"), "2TZ")] {
            let sent = [bound.clone(), next, message('S', b"")].concat();
            client.stream.write_all(&sent).unwrap();
            assert_eq!(client.kinds(), kinds, "{sql}");
        }
    }
    // EXECUTE of such a statement tells its columns too.
    client.query("PREPARE late AS SELECT * FROM read_csv($1)");
    let mut sent = [parse(&format!("EXECUTE late ('{days}')")), bind("", &[])].concat();
    sent.extend([message('D', b"P\0"), execute("", 0), message('S', b"")].concat());
    client.stream.write_all(&sent).unwrap();
    assert_eq!(client.kinds(), "12TDCZ");
    // A file that is not there fails the statement alone.
    let missing = [parse(sql), bind("", &["none.csv", "1"]), message('D', b"P\0")].concat();
    client.stream.write_all(&[missing, execute("", 0), message('S', b"")].concat()).unwrap();
    assert_eq!(field(&client.answer().error, 'C'), "58P01");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn rows_beyond_the_memory_of_queries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--query-memory", "64MB", "--connections", "7"]);
    let mut client = server.client();
    assert_eq!(client.value("SHOW max_connections"), "7");
    client.query("CREATE TABLE t (x text); INSERT INTO t VALUES ('y')");
    let column = |number: usize| format!("repeat(x || '{number}', 10000000)");
    let columns: Vec<_> = (0..40).map(column).collect();
    let wide = format!("SELECT {} FROM t", columns.join(", "));
    let constants = wide.replace("x || ", "'y' || ").replace(" FROM t", "");
    for sql in [&wide, &constants] {
        assert_eq!(field(&client.query(sql).error, 'C'), "53200");
    }
    // A row that fits by itself, and not as a message beside it.
    let value = "SELECT repeat(x, 40000000) FROM t";
    assert_eq!(field(&client.query(value).error, 'C'), "53200");
    assert_eq!(client.value("SELECT length(repeat(x, 40000000)) FROM t"), "40000000");
}
