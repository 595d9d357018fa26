//! `check` and `inspect`, on an intact database and on a damaged one.

use std::os::unix::fs::FileExt;

use tempfile::tempdir;

use crate::program::{cleave, cleave_with_input, sql};

const TABLE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, note text); INSERT INTO t VALUES (1, 'one'), (2, NULL)";

#[test]
fn a_database_is_checked_and_looked_at() {
    let place = tempdir().unwrap();
    let db = place.path().to_str().unwrap();
    sql(place.path(), &["-c", TABLE]).ok();
    let inspect = |what: &[&str]| cleave(&[&["inspect", "--db", db], what].concat()).ok();

    let run = cleave(&["check", "--db", db]);
    assert!(run.stderr.contains("everything holds"), "{run:?}");
    assert!(run.stderr.contains("2 row versions"), "{run:?}");
    assert_eq!(run.ok(), "");
    cleave(&["check", "--quick", "--json", "--db", db]).ok();

    let manifest = inspect(&["manifest"]);
    assert!(
        manifest.contains("table       \"t\"") && manifest.contains("\"note\" text"),
        "{manifest}"
    );
    let segment = inspect(&["segment", "1"]);
    assert!(segment.contains("\"id\": 1 to 2, 0 NULLs"), "{segment}");
    assert!(segment.contains("\"note\": one to one, 1 NULLs"), "{segment}");
    assert!(inspect(&["map", "t"]).contains("VIDs 1 to 2 in segment 1"));
    assert!(inspect(&["index", "t"]).contains("runs of indexes"));
    assert!(inspect(&["device"]).contains("\"embedded\""));
    let page = inspect(&["page", "1/0", "--rows", "9"]);
    for part in
        ["as the segment's directory says", "\"id\": Int32", "slot 0: 1 | one", "slot 1: 2 | NULL"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let block = segment.split("blocks ").nth(1).and_then(|rest| rest.split("..").next()).unwrap();
    let at = inspect(&["page", block]);
    assert!(at.contains("segment 1, page 0") && at.contains("\"note\": Utf8"), "{at}");

    let query = "EXPLAIN (FORMAT FRAGMENT) SELECT id FROM t WHERE note = 'one'";
    let digits = sql(place.path(), &["--format", "csv", "--set", "split=ndp", "-c", query]).ok();
    let plan = cleave_with_input(&["inspect", "fragment", "-"], &digits).ok();
    assert!(plan.contains("TableScanExec") && plan.contains("note"), "{plan}");
    let none = cleave_with_input(&["inspect", "fragment", "-"], "no digits").ok();
    assert!(none.contains("NO FRAGMENT"), "{none}");

    // A byte of the page's header.
    let media = place.path().join("device-0.media");
    let media = std::fs::File::options().write(true).open(media).unwrap();
    media.write_all_at(&[0xff], block.parse::<u64>().unwrap() * 4096 + 30).unwrap();
    let run = cleave(&["check", "--db", db]);
    for part in ["table \"t\", segment 1, page 0, device \"embedded\"", "checksum", "restore"] {
        assert!(run.stdout.contains(part), "{part} is not in {run:?}");
    }
    run.fails(1);
    let json = cleave(&["check", "--json", "--db", db]);
    assert!(
        json.stdout.contains("\"fault\":\"page\"") && json.stdout.contains("\"page\":0"),
        "{json:?}"
    );
    assert!(inspect(&["page", "1/0"]).contains("DAMAGED"));
    assert!(inspect(&["manifest"]).contains("table       \"t\""));
}

#[test]
fn what_is_no_database_is_not_checked() {
    let place = tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    let said = cleave(&["check", "--db", directory]).fails(2);
    assert!(said.contains("is not a Cleave database"), "{said}");
    cleave(&["check"]).fails(1);
    cleave(&["inspect", "page", "1-2", "--db", directory]).fails(1);
}
