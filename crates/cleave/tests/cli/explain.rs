//! `cleave explain`: of a database of its own and of a server's, as text, as JSON and as a picture.

use serde_json::Value;
use tempfile::tempdir;

use crate::program::{cleave, sql};
use crate::serve::client::Server;

const MAKE: &str = "CREATE TABLE t (id integer PRIMARY KEY, n integer, note text);
    INSERT INTO t SELECT v, v % 7, 'note <' || v FROM generate_series(1, 3000) AS s(v)";
const QUERY: &str = "SELECT n, count(*) FROM t WHERE note LIKE '%<1%' GROUP BY n";

#[test]
fn a_plan_is_printed_or_drawn() {
    let place = tempdir().unwrap();
    let database = place.path().join("db");
    sql(&database, &["-c", MAKE]).ok();
    let explain = |options: &[&str]| {
        let begin = ["explain", "--set", "split=h0", "--db", database.to_str().unwrap()];
        cleave(&[&begin[..], options].concat())
    };
    let text = explain(&[QUERY]).ok();
    assert!(text.contains("Scan of t"), "{text}");
    let found: Value =
        serde_json::from_str(&explain(&["--json", "--analyze", QUERY]).ok()).unwrap();
    assert!(found[0]["Plan"]["Actual Rows"].is_u64(), "{found}");

    let file = place.path().join("plan.svg");
    let draw = ["--analyze", "--svg", file.to_str().unwrap(), QUERY];
    assert_eq!(explain(&draw).ok(), "");
    let picture = std::fs::read_to_string(&file).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    // The condition stands in it, and what crosses the link.
    for part in ["Scan of t", "&lt;1", "class=\"device-part\"", "class=\"link\"", "rows "] {
        assert!(picture.contains(part), "{part} in {picture}");
    }

    // Nothing but the statement itself is run, and only with --analyze.
    let said = explain(&["SELECT 1; DROP TABLE t"]).fails(3);
    assert!(said.contains("more than one statement"), "{said}");
    explain(&["DELETE FROM t WHERE id = 1"]).ok();
    explain(&["--analyze", "DELETE FROM t WHERE id = 2"]).ok();
    // Nor where its plan cannot be drawn.
    let nowhere = place.path().join("missing").join("plan.svg");
    let said =
        explain(&["--analyze", "--svg", nowhere.to_str().unwrap(), "DELETE FROM t WHERE id = 3"]);
    assert!(said.fails(1).contains("plan.svg"));
    let count = sql(&database, &["--format", "csv", "-c", "SELECT count(*) AS n FROM t"]).ok();
    assert_eq!(count, "n\n2999\n");
    let said = explain(&["SELECT missing FROM t"]).fails(3);
    assert!(said.contains("42703") && said.contains("missing"), "{said}");
    explain(&["--json", "--svg", "x", QUERY]).fails(1);
}

#[test]
fn a_server_explains_too() {
    let folder = tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let url = format!("postgres://ada@127.0.0.1:{}/db", server.port);
    let query = "SELECT g % 3, count(*) FROM generate_series(1, 10) AS s(g) GROUP BY 1";
    let file = folder.path().join("plan.svg");
    let drawn = ["--svg", file.to_str().unwrap(), "--set", "split=host", query];
    cleave(&[&["explain", "--db", &url], &drawn[..]].concat()).ok();
    let picture = std::fs::read_to_string(&file).unwrap();
    assert!(picture.contains("class=\"host-box\""), "{picture}");
    let wrong = ["explain", "--db", &url, "--set", "split=sideways", query];
    assert!(cleave(&wrong).fails(3).contains("split"));
    assert!(cleave(&["explain", "--db", "postgres://", query]).exit_code != 0);
}
