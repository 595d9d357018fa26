//! Tests of text files as tables: what a value says is kept, or is an error; lines may end in a carriage return alone.

use std::fs::write;
use std::path::Path;

use cleave_host::Session;

use crate::support::{fresh, refused, row, rows, run};

/// Rows of a sample before the one that differs.
const BEFORE: usize = 10;

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

/// The error of reading a file whose column `v` has `value` in its first rows, and then `other`.
async fn error_of(session: &mut Session, path: &Path, (value, other): (&str, &str)) -> String {
    let text = format!("v,n\n{}{other},1\n", format!("{value},1\n").repeat(BEFORE));
    write(path, text).unwrap();
    let query = format!("SELECT v FROM read_csv({}, sample_size => {BEFORE})", quoted(path));
    refused(session, &query).await.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_beyond_the_sample_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let path = folder.path().join("a.csv");
    for (value, other, column_type) in [
        ("1", "007", "bigint"),
        ("1", "+7", "bigint"),
        ("1", "1.5", "bigint"),
        ("1.5", "9007199254740993", "double precision"),
        ("1.5", "00.5", "double precision"),
        ("true", "t", "boolean"),
        ("2024-01-31", "1/2/2024", "date"),
        ("2024-01-31", "2024-01-31 10:00", "date"),
        ("2024-01-31 10:00", "2024-01-31 10:00+02", "timestamp"),
        ("2024-01-31 10:00", "2024-01-31 10:00 EST", "timestamp"),
        ("2024-01-31 10:00", "2024-01-31 10:00:00.1234567", "timestamp"),
        ("2024-01-31 10:00+02", "2024-01-31 10:00", "timestamp with time zone"),
    ] {
        let error = error_of(&mut session, &path, (value, other)).await;
        for part in [
            format!("a.csv, line {}, column 1 (\"v\")", BEFORE + 2),
            format!("type {column_type}: \"{other}\""),
            "types => '\"v\" text'".to_owned(),
        ] {
            assert!(error.contains(&part), "{value}, {other}: {error}");
        }
        // With all rows in the sample the column keeps them.
        let all = format!("SELECT v FROM read_csv({}, sample_size => -1)", quoted(&path));
        let found = rows(&mut session, &all).await;
        assert!(found[BEFORE].starts_with(&other[..1]), "{value}, {other}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_type_guesses_no_day_and_drops_no_zone() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let path = folder.path().join("a.csv");
    for (value, column_type, part) in [
        ("1/2/2024", "date", "DATEFORMAT"),
        ("1/2/2024 10:00", "timestamp", "DATEFORMAT"),
        ("10:00+02", "time", "a time of day without a zone"),
        ("2024-01-31 10:00+02", "timestamp", "timestamp with time zone does"),
    ] {
        write(&path, format!("v\n{value}\n")).unwrap();
        let query =
            format!("SELECT v FROM read_csv({}, types => 'v {column_type}')", quoted(&path));
        let error = refused(&mut session, &query).await.to_string();
        assert!(error.contains("a.csv, line 2, column 1 (\"v\")"), "{error}");
        assert!(error.contains(part), "{error}");
    }
    write(&path, "v\n1/2/2024\n").unwrap();
    let query = format!("SELECT v FROM read_csv({}, dateformat => '%d/%m/%Y')", quoted(&path));
    assert_eq!(rows(&mut session, &query).await, ["2024-02-01"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_in_quotes_are_numbers_and_quoted_nothing_is_null_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let path = folder.path().join("a.csv");
    let file = quoted(&path);
    write(&path, "a,b\n\"1,5\",\"2,5\"\n\"-3,25\",4\n").unwrap();
    let query = format!("SELECT sum(a), sum(b) FROM read_csv({file}, decimal_separator => ',')");
    assert_eq!(row(&mut session, &query).await, "-1.75,6.5");
    write(&path, "a,b,c\n1.5,NaN,x\ninf,2,\"\"\n\"\",-inf,z\n").unwrap();
    let query = format!("SELECT a, b, c FROM {file}");
    assert_eq!(rows(&mut session, &query).await, ["1.5,NaN,x", "Infinity,2,", "NULL,-Infinity,z"]);
    write(&path, "a,b\n1,\"NA\"\nNA,x\n\"NA\",y\n").unwrap();
    let query = format!("SELECT a, b FROM read_csv({file}, nullstr => 'NA')");
    assert_eq!(rows(&mut session, &query).await, ["1,NA", "NULL,x", "NULL,y"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_may_end_in_a_carriage_return_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (a int, b text)").await;
    let path = folder.path().join("a.csv");
    let file = quoted(&path);
    write(&path, "a,b\r1,x\r2,\"y\nz\"\r3,\"\r\"\r").unwrap();
    let expected = ["1,x", "2,y\nz", "3,\r"];
    assert_eq!(rows(&mut session, &format!("SELECT * FROM {file}")).await, expected);
    run(&mut session, &format!("COPY t FROM {file} (HEADER)")).await;
    assert_eq!(rows(&mut session, "SELECT * FROM t ORDER BY a").await, expected);
    run(&mut session, "TRUNCATE t").await;
    write(&path, "1\tx\r2\ty\\\nz\r\\.\rno row\r").unwrap();
    run(&mut session, &format!("COPY t FROM {file} (FORMAT text)")).await;
    assert_eq!(rows(&mut session, "SELECT * FROM t ORDER BY a").await, ["1,x", "2,y\nz"]);
    // Lines of two kinds would run together.
    for (text, options, part) in [
        ("a,b\n1,x\r2,y\r", "(HEADER)", "line 2: unquoted carriage return found in data"),
        ("a,b\r1,x\n2,y\n", "(HEADER)", "line 2: unquoted newline found in data"),
        ("1\tx\n2\ty\r3\tz\n", "(FORMAT text)", "line 2: literal carriage return found in data"),
        ("1\tx\r2\ty\n", "(FORMAT text)", "line 2: literal newline found in data"),
    ] {
        write(&path, text).unwrap();
        let error = refused(&mut session, &format!("COPY t FROM {file} {options}")).await;
        assert_eq!(error.sqlstate(), "22P04", "{text:?}: {error}");
        assert!(error.to_string().contains(part), "{text:?}: {error}");
    }
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "2");
    // A line feed may have a carriage return before it, or not.
    write(&path, "a,b\r\n1,x\n2,\"\r\"\r\n").unwrap();
    assert_eq!(rows(&mut session, &format!("SELECT * FROM {file}")).await, ["1,x", "2,\r"]);
}
