//! `cleave backup` and `cleave restore`.

use std::path::Path;

use tempfile::tempdir;

use crate::program::{cleave, sql};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_database_goes_into_a_folder_and_comes_out_of_it() {
    let place = tempdir().unwrap();
    let [database, target, copy] = ["db", "backup", "copy"].map(|name| place.path().join(name));
    sql(&database, &["-c", "CREATE TABLE t (id int PRIMARY KEY, note text)"]).ok();
    sql(&database, &["-c", "INSERT INTO t VALUES (1, 'one'), (2, 'two')"]).ok();
    let out = cleave(&["backup", text(&database), text(&target)]).ok();
    assert!(out.contains("commit") && out.contains("1 tables"), "{out}");
    sql(&database, &["-c", "DELETE FROM t"]).ok();
    let out = cleave(&["backup", "--check", text(&target)]).ok();
    assert!(out.contains("everything holds"), "{out}");
    cleave(&["restore", text(&target), text(&copy), "--verify"]).ok();
    let query = ["--format", "csv", "-c", "SELECT id, note FROM t ORDER BY id"];
    assert_eq!(sql(&copy, &query).ok(), "id,note\n1,one\n2,two\n");
    cleave(&["check", "--db", text(&copy)]).ok();
    // Both databases go on.
    sql(&copy, &["-c", "INSERT INTO t VALUES (3, 'three')"]).ok();
    assert_eq!(sql(&database, &query).ok(), "id,note\n");
}

#[test]
fn wrong_folders_are_named() {
    let place = tempdir().unwrap();
    let [database, target, nothing] =
        ["db", "backup", "nothing"].map(|name| place.path().join(name));
    sql(&database, &["-c", "CREATE TABLE t (id int)"]).ok();
    let error = cleave(&["backup", text(&nothing), text(&target)]).fails(2);
    assert!(error.contains("does not exist"), "{error}");
    assert!(!target.exists() && !nothing.exists());
    cleave(&["backup", text(&database), text(&target)]).ok();
    let error = cleave(&["backup", text(&database), text(&target)]).fails(3);
    assert!(error.contains("holds a backup"), "{error}");
    let error = cleave(&["restore", text(&target), text(&database)]).fails(2);
    assert!(error.contains("holds a database"), "{error}");
    let error = cleave(&["restore", text(&database), text(&nothing)]).fails(2);
    assert!(error.contains("manifest"), "{error}");
    let error = cleave(&["backup", "--check", text(&database)]).fails(2);
    assert!(error.contains("not a complete backup"), "{error}");
    for arguments in [&["backup"][..], &["backup", "db"], &["restore", "backup"]] {
        cleave(arguments).fails(1);
    }
    assert!(!nothing.exists());
}

#[test]
fn a_backup_is_brought_forward_to_a_moment() {
    let place = tempdir().unwrap();
    let [database, target, archive] =
        ["db", "backup", "archive"].map(|name| place.path().join(name));
    std::fs::create_dir(&archive).unwrap();
    sql(&database, &["-c", "CREATE TABLE t (id int PRIMARY KEY)"]).ok();
    let set = format!("ALTER SYSTEM SET archive_directory = '{}'", text(&archive));
    sql(&database, &["-c", &set]).ok();
    cleave(&["backup", text(&database), text(&target)]).ok();
    let now = ["--format", "csv", "-c", "INSERT INTO t VALUES (1)", "-c", "SELECT now() AS now"];
    let out = sql(&database, &now).ok();
    let moment = out.lines().last().unwrap().trim_matches('"').to_owned();
    sql(&database, &["-c", "INSERT INTO t VALUES (2)", "-c", "CHECKPOINT"]).ok();
    let restored = |name: &str, more: &[&str]| {
        let copy = place.path().join(name);
        let arguments = ["restore", text(&target), text(&copy), "--verify"];
        cleave(&[&arguments, more].concat()).ok();
        sql(&copy, &["--format", "csv", "-c", "SELECT count(*) AS n FROM t"]).ok()
    };
    let archive = ["--archive", text(&archive)];
    assert_eq!(restored("backup alone", &[]), "n\n0\n");
    assert_eq!(restored("all", &archive), "n\n2\n");
    assert_eq!(restored("then", &[&archive[..], &["--until", &moment]].concat()), "n\n1\n");
    let copy = place.path().join("no");
    let wrong = |more: &[&str]| {
        let arguments = ["restore", text(&target), text(&copy)];
        cleave(&[&arguments, more].concat())
    };
    wrong(&["--until", &moment]).fails(1);
    let error = wrong(&[&archive[..], &["--until", "yesterday"]].concat()).fails(1);
    assert!(error.contains("expected a time"), "{error}");
    let early = [&archive[..], &["--until", "2001-01-01"]].concat();
    let error = wrong(&early).fails(2);
    assert!(error.contains("older backup"), "{error}");
}
