//! Tests of files that statements name: compressed ones and other forms of values in COPY.

use std::path::Path;

use crate::support::{answer, fresh, refused, row, rows, run};

/// The path of `name` in `folder`, in SQL's quotes.
fn quoted(folder: &Path, name: &str) -> String {
    format!("'{}'", folder.join(name).display())
}

#[tokio::test]
async fn copy_writes_and_reads_what_the_end_of_a_name_says() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int, note text); CREATE TABLE u (id int, note text)")
        .await;
    let filled =
        "INSERT INTO t SELECT v, repeat('note ', 20) || v FROM generate_series(1, 5000) AS s(v)";
    run(&mut session, filled).await;
    let all = "SELECT count(*), sum(id), min(note), max(note) FROM";
    let expected = row(&mut session, &format!("{all} t")).await;
    let mut sizes = Vec::new();
    for name in ["a.csv", "a.csv.gz", "a.csv.zst", "a.txt.GZ", "a.parquet"] {
        let file = quoted(folder.path(), name);
        run(&mut session, &format!("COPY t TO {file}; COPY u FROM {file}")).await;
        assert_eq!(row(&mut session, &format!("{all} u")).await, expected, "{name}");
        run(&mut session, "TRUNCATE u").await;
        sizes.push(std::fs::metadata(folder.path().join(name)).unwrap().len());
    }
    assert!(sizes[1..].iter().all(|bytes| bytes * 4 < sizes[0]), "{sizes:?}");
    // What it is counts, not what it is called, unless the name says something else.
    std::fs::copy(folder.path().join("a.csv.gz"), folder.path().join("b.csv")).unwrap();
    run(&mut session, &format!("COPY u FROM {}", quoted(folder.path(), "b.csv"))).await;
    assert_eq!(row(&mut session, &format!("{all} u")).await, expected);
    std::fs::copy(folder.path().join("a.csv"), folder.path().join("c.csv.gz")).unwrap();
    let whole = std::fs::read(folder.path().join("a.csv.zst")).unwrap();
    std::fs::write(folder.path().join("d.csv.zst"), &whole[..whole.len() / 2]).unwrap();
    for (name, part) in [
        ("c.csv.gz", "it is no gzip file, as its name says"),
        ("d.csv.zst", "its Zstandard data is damaged or ends too early"),
    ] {
        let copy = format!("COPY u FROM {}", quoted(folder.path(), name));
        let error = refused(&mut session, &copy).await.to_string();
        assert!(error.contains(part) && error.contains(name), "{error}");
    }
    assert_eq!(row(&mut session, &format!("{all} u")).await, expected);
}

#[tokio::test]
async fn copy_reads_dates_and_numbers_in_the_form_that_options_say() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (day date, at timestamp, price numeric(10, 2), share double precision)",
    )
    .await;
    let written = "31.01.2024;1.2.2024 07:05;1234,50;0,25\n;;;\n";
    std::fs::write(folder.path().join("a.csv"), written).unwrap();
    let file = quoted(folder.path(), "a.csv");
    let options = "DATEFORMAT '%d.%m.%Y', DECIMAL_SEPARATOR ','";
    run(&mut session, &format!("COPY t FROM {file} (FORMAT csv, DELIMITER ';', {options})")).await;
    let expected = ["2024-01-31,2024-02-01 07:05:00,1234.50,0.25", "NULL,NULL,NULL,NULL"];
    assert_eq!(answer(&mut session, "SELECT * FROM t").await, expected);
    for (options, part) in [
        ("DELIMITER ';'", "line 1, column 1 (\"day\"): date/time field value out of range"),
        ("DELIMITER ';'", "the option DATEFORMAT says another form"),
        ("DELIMITER ';', DATEFORMAT '%d.%m.%Y'", "the option DECIMAL_SEPARATOR says another sign"),
        ("DELIMITER ';', DATEFORMAT '%m.%d.%Y'", "out of range: \"31.01.2024\""),
        ("DELIMITER ';', DATEFORMAT '%d/%m/%Y'", "a date as the option DATEFORMAT says"),
    ] {
        let copy = format!("COPY t FROM {file} (FORMAT csv, {options})");
        let error = refused(&mut session, &copy).await.to_string();
        assert!(error.contains(part), "{options}: {error}");
    }
    assert_eq!(rows(&mut session, "SELECT count(*) FROM t").await, ["2"]);
}
