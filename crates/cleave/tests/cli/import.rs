//! `cleave import` of a dump of PostgreSQL 15.

use crate::program::{cleave, sql};

#[test]
fn a_dump_is_taken_and_what_is_not_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("shop.sql");
    std::fs::write(&dump, include_str!("import/shop.sql")).unwrap();
    let (directory, dump) = (folder.path().join("db"), dump.to_str().unwrap());
    let db = directory.to_str().unwrap();
    let dry = cleave(&["import", dump, "--dry-run", "--db", db]);
    assert_eq!(dry.exit_code, 3, "{dry:#?}");
    assert!(dry.stdout.starts_with("would be taken:"), "{}", dry.stdout);
    assert!(!directory.exists(), "nothing is made");
    let told = cleave(&["import", dump, "--db", db]);
    assert_eq!(told.exit_code, 3, "{told:#?}");
    for expected in
        ["  2 × COPY\n", "  2 × CREATE TABLE\n", "  2 × CREATE INDEX\n", "  5 rows\n", "owners"]
    {
        assert!(told.stdout.contains(expected), "{expected}: {}", told.stdout);
    }
    let (_, failed) = told.stdout.split_once("not taken:\n").unwrap();
    let lines: Vec<&str> = failed.lines().collect();
    assert!(lines.iter().all(|line| line.contains("public.strange")), "{failed}");
    assert!(lines[0].contains("point") && lines[1].contains("(1 rows)"), "{failed}");
    let rows = |query: &str| sql(&directory, &["-c", query, "--format", "csv"]).ok();
    let customers = rows("SELECT id, email, born, note, active, made FROM customers ORDER BY id");
    let expected = "id,email,born,note,active,made\n\
         1,a@example.org,1990-02-03,\"tab\there\nline\",t,2024-01-02 03:04:05+00\n\
         2,b@example.org,,,f,2024-01-02 03:04:06.5+00\n";
    assert_eq!(customers, expected);
    let orders = rows("SELECT total, weight, photo, tag FROM orders ORDER BY id, line LIMIT 2");
    let expected = "total,weight,photo,tag\n\
         9.99,0.5,\\x00ff5c,6ba7b810-9dad-11d1-80b4-00c04fd430c8\n120.00,1e+300,,\n";
    assert_eq!(orders, expected);
    // Keys and defaults are there.
    let duplicate = "INSERT INTO customers (id, email) VALUES (3, 'a@example.org')";
    assert!(sql(&directory, &["-c", duplicate]).fails(3).contains("customers_email_key"));
    sql(&directory, &["-c", "INSERT INTO customers (id, email) VALUES (3, 'c@example.org')"]).ok();
    assert_eq!(rows("SELECT note FROM customers WHERE id = 3"), "note\nnone; (nothing)\n");
}

#[test]
fn what_is_no_dump_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    let refused = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        cleave(&["import", file.to_str().unwrap(), "--dry-run"]).fails(1)
    };
    assert!(refused(b"PGDMP\x01\x0e").contains("pg_restore"));
    assert!(refused(b"CREATE TABLE t (a int\n").contains("line 1"));
    assert!(cleave(&["import", "postgres://localhost/x"]).fails(1).contains("pg_dump"));
    assert!(cleave(&["import", "/nowhere/dump.sql"]).fails(1).contains("/nowhere/dump.sql"));
}
