//! `cleave sql` with a server: by a URL, and in place of a database that the server has open.

use super::client::Server;
use super::served;
use crate::program::{Run, cleave, cleave_with_input, sql};

fn shell(server: &Server, arguments: &[&str]) -> Run {
    let url = format!("postgres://ada@127.0.0.1:{}/db", server.port);
    cleave(&[&["sql", &url], arguments].concat())
}

const PEOPLE: &str =
    "CREATE TABLE people (id integer PRIMARY KEY, name text NOT NULL, share numeric(5, 2));
INSERT INTO people VALUES (1, 'Ada', 0.50), (2, 'Bob', NULL);";

#[test]
fn statements_print_the_same_as_those_of_a_database_here() {
    let (folder, server) = served();
    let queries = [
        "SELECT * FROM people ORDER BY id",
        "SELECT share / 3, now() > '2024-01-01', ARRAY[1, 2] FROM people ORDER BY id",
        "UPDATE people SET share = 1 WHERE id = 1",
        "INSERT INTO people VALUES (3, 'Eve', 2) RETURNING id",
        "SHOW split",
        "BEGIN; DELETE FROM people; ROLLBACK",
        "BATCH BEGIN; SELECT count(*) AS n FROM people; SELECT 'x' AS x; BATCH END",
        "COPY people TO STDOUT",
    ];
    let own = folder.path().join("own");
    assert_eq!(shell(&server, &["-c", PEOPLE]).ok(), sql(&own, &["-c", PEOPLE]).ok());
    for query in queries {
        // A batch's rows are text, which is aligned otherwise.
        let format = if query.starts_with("BATCH") { "csv" } else { "table" };
        let arguments = ["--format", format, "-c", query];
        assert_eq!(shell(&server, &arguments).ok(), sql(&own, &arguments).ok(), "{query}");
    }
}

#[test]
fn scripts_have_rows_and_errors_have_places() {
    let (folder, server) = served();
    let script = folder.path().join("script.sql");
    let text = format!(
        "{PEOPLE}\nCOPY people FROM STDIN;\n5\tEd\t1.5\n\\.\nSELECT count(*) FROM people;\n"
    );
    std::fs::write(&script, text).unwrap();
    let script = script.to_str().unwrap();
    let out = shell(&server, &["--format", "csv", "-f", script]).ok();
    assert_eq!(out, "count\n3\n");
    let failed = shell(&server, &["-c", "SELECT id,\n  nam FROM people"]).fails(3);
    assert!(failed.contains("ERROR 42703: "), "{failed}");
    assert!(failed.contains("LINE 2:   nam FROM people\n          ^\n"), "{failed}");
    let failed = shell(&server, &["-c", "INSERT INTO people (id, name) VALUES (1, 'x')"]).fails(3);
    assert!(
        failed.contains("ERROR 23505: ") && failed.contains("DETAIL:  Key (id)=(1)"),
        "{failed}"
    );
    let url = format!("postgres://ada@127.0.0.1:{}/db", server.port);
    let arguments = ["sql", &url, "-c", "COPY people (id, name) FROM STDIN"];
    assert_eq!(cleave_with_input(&arguments, "7\tAl\n").ok(), "COPY 1\n");
    let wrong = shell(&server, &["--set", "split=nowhere", "-c", "SELECT 1"]).fails(1);
    assert!(wrong.contains("--set split=nowhere"), "{wrong}");
    let told = shell(&server, &["--set", "split=host", "--format", "csv", "-c", "SHOW split"]).ok();
    assert_eq!(told, "split\nhost\n");
}

#[test]
fn commands_show_the_server_s_catalog() {
    let (_folder, server) = served();
    shell(&server, &["-c", PEOPLE]).ok();
    shell(&server, &["-c", "CREATE INDEX by_name ON people (name)"]).ok();
    for (command, expected) in [
        ("\\d", "people"),
        ("\\dt+", "people bytes"),
        ("\\d people", "numeric(5,2) not people_pkey by_name"),
        ("\\di", "by_name people_pkey"),
        ("\\dv", "view"),
        ("\\df strpos", "function"),
        ("\\du", "superuser"),
        ("\\l", "db ada"),
        ("ANALYZE people;\n\\stats people", "share"),
        ("\\set split host\nSHOW split", "host"),
    ] {
        let out = shell(&server, &["-c", command]).ok();
        for word in expected.split(' ') {
            assert!(out.contains(word), "{command}: {out}");
        }
    }
    let unknown = shell(&server, &["-c", "\\d poeple"]).fails(3);
    for part in ["relation \"poeple\" does not exist", "did you mean \"people\"?"] {
        assert!(unknown.contains(part), "{unknown}");
    }
}

#[test]
fn a_database_that_a_server_has_open_is_reached_by_the_server() {
    let (folder, server) = served();
    let db = folder.path().join("db");
    let ask = || sql(&db, &["--format", "csv", "-c", "SELECT count(*) FROM people"]);
    sql(&db, &["-c", PEOPLE]).ok();
    let run = ask();
    assert!(run.stderr.contains("connected to the server that has this database open"), "{run:?}");
    assert_eq!(run.ok(), "count\n2\n");
    let name = db.to_str().unwrap();
    let reading = |statement| cleave(&["sql", "--db", name, "--read-only", "-c", statement]);
    let run = reading("SELECT name FROM people WHERE id = 1");
    assert!(run.stderr.contains("this session only reads"), "{run:?}");
    run.ok();
    let set = "SET default_transaction_read_only = off; BEGIN READ WRITE; DELETE FROM people";
    let failed = reading(set).fails(3);
    assert!(failed.contains("ERROR 25006: ") && failed.contains("asked for that"), "{failed}");
    // A killed server leaves its file behind.
    drop(server);
    assert!(db.join("server.address").exists());
    let run = ask();
    assert_eq!((run.stderr.as_str(), run.exit_code), ("", 0), "{run:?}");
    let mut server = Server::start(folder.path(), &[]);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    assert!(!db.join("server.address").exists());
}

#[test]
fn servers_that_cannot_be_reached_are_told_from_wrong_urls() {
    let (_folder, server) = served();
    let url = |rest: &str| format!("postgres://{rest}");
    let refused = cleave(&["sql", &url("ada@127.0.0.1:1/db"), "-c", "SELECT 1"]).fails(2);
    assert!(refused.contains("cannot reach 127.0.0.1:1"), "{refused}");
    let other = url(&format!("ada@127.0.0.1:{}/other", server.port));
    let other = cleave(&["sql", &other, "-c", "SELECT 1"]).fails(2);
    assert!(other.contains("3D000"), "{other}");
    let wrong = cleave(&["sql", &url("ada@127.0.0.1:x/db"), "-c", "SELECT 1"]).fails(1);
    assert!(wrong.contains("port"), "{wrong}");
}
