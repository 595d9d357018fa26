//! Tests of files that statements name: compressed ones and other forms of values in COPY; files in FROM; DESCRIBE and
//! SUMMARIZE, which tell what is in them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cleave_host::{Client, Described, Outcome};
use cleave_store::ColumnType;

use crate::support::{answer, fresh, open, refused, row, rows, run, text_of};

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
async fn a_copy_that_fails_leaves_the_file_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let failing = "(SELECT 100 / (5000 - v) FROM generate_series(1, 5000) AS s(v))";
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
    };
    for (name, options) in [("a.csv", "(HEADER)"), ("b.csv.gz", "(HEADER)"), ("c.parquet", "")] {
        let (file, path) = (quoted(folder.path(), name), folder.path().join(name));
        let before = names();
        let error = refused(&mut session, &format!("COPY {failing} TO {file}")).await;
        assert_eq!(error.sqlstate(), "22012", "{error}");
        assert_eq!(names(), before, "no part of a new file stays");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        refused(&mut session, &format!("COPY {failing} TO {file}")).await;
        assert_eq!(std::fs::read(&path).unwrap(), b"old", "{name}");
        run(&mut session, &format!("COPY (SELECT 1 AS one) TO {file} {options}")).await;
        assert_eq!(rows(&mut session, &format!("SELECT one FROM {file}")).await, ["1"], "{name}");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names().len(), before.len() + 1);
    }
    // A link stays one, and so do the names of a file that has several.
    let [file, link, other] =
        ["a.csv", "link.csv", "other.csv"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("a.csv", &link).unwrap();
    let linked = quoted(folder.path(), "link.csv");
    refused(&mut session, &format!("COPY {failing} TO {linked}")).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n1\n");
    run(&mut session, &format!("COPY (SELECT 2) TO {linked}")).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "2\n");
    std::fs::hard_link(&file, &other).unwrap();
    run(&mut session, &format!("COPY (SELECT 3) TO {linked}")).await;
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "3\n");
    // One that leads nowhere makes the file that it names.
    std::fs::remove_file(&file).unwrap();
    run(&mut session, &format!("COPY (SELECT 4) TO {linked}")).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "4\n");
    assert!(link.symlink_metadata().unwrap().is_symlink());
}

#[tokio::test]
async fn copy_reads_dates_and_numbers_in_the_form_that_options_say() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (day date, moment timestamp, price numeric(10, 2), share double precision)",
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_tables_of_queries() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let path = |name: &str| quoted(folder.path(), name);
    let text = "id,title,day\n1,\"A, B\",2024-01-31\n2,\"C\nD\",\n3,,2024-02-01\n";
    std::fs::write(folder.path().join("films.csv"), text).unwrap();
    let films = path("films.csv");
    let all = ["1,A, B,2024-01-31", "2,C\nD,NULL", "3,NULL,2024-02-01"];
    assert_eq!(rows(&mut session, &format!("SELECT * FROM {films}")).await, all);
    // Its name stands for it, and an alias does.
    let named = format!("SELECT films.id FROM {films} WHERE films.day > '2024-01-31'");
    assert_eq!(rows(&mut session, &named).await, ["3"]);
    let counted = format!("SELECT count(*), max(f.id) FROM read_csv({films}, header => true) AS f");
    assert_eq!(row(&mut session, &counted).await, "3,3");

    // Into a table, into others, and back; joins with tables under each split.
    run(&mut session, &format!("CREATE TABLE t AS SELECT * FROM {films}")).await;
    run(&mut session, &format!("INSERT INTO t SELECT id + 10, title, day FROM {films}")).await;
    let (parquet, more) = (path("films.parquet"), path("more.csv.gz"));
    run(&mut session, &format!("COPY (SELECT * FROM t ORDER BY id) TO {parquet}")).await;
    run(&mut session, &format!("COPY t TO {more} (HEADER)")).await;
    let joined = format!(
        "SELECT t.id, p.title, c.day FROM t JOIN {parquet} AS p USING (id) JOIN {more} AS c ON c.id = t.id \
         WHERE p.id > 2 AND p.id < 12"
    );
    for split in ["host", "h0", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let expected = ["11,A, B,2024-01-31", "3,NULL,2024-02-01"];
        assert_eq!(answer(&mut session, &joined).await, expected, "{split}");
    }
    run(&mut session, "RESET split").await;
    let changed =
        format!("UPDATE t SET title = 'x' FROM {parquet} AS p WHERE p.id = t.id AND p.id > 11");
    run(&mut session, &changed).await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE title = 'x'").await, "2");

    // Several files, with types that fit all of them, in the order of their names.
    std::fs::write(folder.path().join("part-2.csv"), "n;day\n2,5;01.02.2024\n").unwrap();
    std::fs::write(folder.path().join("part-1.csv"), "n;day\n1;31.01.2024\n").unwrap();
    let parts = format!(
        "read_csv({}, decimal_separator => ',', dateformat => '%d.%m.%Y')",
        path("part-*.csv")
    );
    let both = rows(&mut session, &format!("SELECT * FROM {parts}")).await;
    assert_eq!(both, ["1,2024-01-31", "2.5,2024-02-01"]);
    let types = format!("SELECT pg_typeof(n), pg_typeof(day) FROM {parts} LIMIT 1");
    assert_eq!(row(&mut session, &types).await, "double precision,date");
    let listed = format!("SELECT sum(id) FROM read_parquet(ARRAY[{parquet}, {parquet}])");
    assert_eq!(row(&mut session, &listed).await, "84");
    // The bounds of row groups tell that none is needed, and the number of rows needs no scan.
    assert_eq!(row(&mut session, &format!("SELECT count(*) FROM {parquet}")).await, "6");
    assert_eq!(rows(&mut session, &format!("SELECT 1 FROM {parquet}")).await, ["1"; 6]);
    let none = format!("SELECT id FROM {parquet} WHERE id > 1000");
    assert_eq!(rows(&mut session, &none).await, [""; 0]);
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {none}")).await.join("\n");
    assert!(plan.contains("row groups=0 of 1"), "{plan}");
    // Comparisons with constants leave out rows as they are read: with and without NULLs, some rows, most, and none.
    for (condition, expected) in [
        ("id > 2 AND id < 12", "2,14"),
        ("id > 1", "5,41"),
        ("day = DATE '2024-01-31'", "2,12"),
        ("day > DATE '2024-01-31' AND id <> 3", "1,13"),
        ("id = 4", "0,NULL"),
    ] {
        let query = format!("SELECT count(*), sum(id) FROM {parquet} WHERE {condition}");
        assert_eq!(row(&mut session, &query).await, expected, "{condition}");
    }
    let some = format!("EXPLAIN VERBOSE SELECT title FROM {parquet} WHERE id > 2 AND id + 1 < 9");
    let plan = rows(&mut session, &some).await.join("\n");
    assert!(plan.contains("only rows with id@0 > 2"), "{plan}");
    // A prepared statement reads what is there when it runs.
    run(&mut session, &format!("PREPARE p AS SELECT count(*) FROM {films} WHERE id < $1")).await;
    assert_eq!(row(&mut session, "EXECUTE p (3)").await, "2");
    std::fs::write(folder.path().join("films.csv"), "id,title,day\n1,,2024-01-31\n").unwrap();
    assert_eq!(row(&mut session, "EXECUTE p (3)").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_on_parquet_files_leave_the_rows_that_they_leave_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let made = "CREATE TABLE t (id int, price numeric(15, 2), tiny numeric(5, 1), wide numeric(30, 4), \
                share double precision, word text, day date, moment timestamp); \
                INSERT INTO t SELECT v, CASE WHEN v % 7 = 0 THEN NULL ELSE v % 1000 * 1.25 END, v % 50 * 0.5 - 3, \
                CASE WHEN v % 5 = 0 THEN NULL ELSE v * 0.0625 END, \
                CASE WHEN v % 9 = 0 THEN 'NaN'::double precision WHEN v % 9 = 1 THEN NULL \
                ELSE v::double precision / 100 END, 'word ' || v % 11, DATE '2024-01-01' + v / 100, \
                timestamp '2024-01-01' FROM generate_series(1, 40000) AS s(v)";
    run(&mut session, made).await;
    let one = quoted(folder.path(), "one.parquet");
    run(&mut session, &format!("COPY (SELECT * FROM t ORDER BY id) TO {one}")).await;
    for (name, condition) in [("part-1", "id <= 15000"), ("part-2", "id > 15000")] {
        let part = quoted(folder.path(), &format!("{name}.parquet"));
        let rows = format!("SELECT * FROM t WHERE {condition} ORDER BY id");
        run(&mut session, &format!("COPY ({rows}) TO {part}")).await;
    }
    let parts = quoted(folder.path(), "part-*.parquet");
    let totals = "count(*), sum(id), sum(price), sum(wide), min(word), count(DISTINCT word), min(day), count(moment)";
    for condition in [
        // Of all rows, none, which bounds tell or only values; most; few, which lie together or apart; one.
        "price > 99999",
        "price = 1.26",
        "price >= 0.00 AND id > 300",
        "day BETWEEN DATE '2024-05-01' AND DATE '2024-05-03'",
        "tiny = 20.5 AND price < 100",
        "id = 31234",
        // The constant first; several columns; NULLs; of a column as it is, and as it is read.
        "12.50 > price AND 0.0 < tiny",
        "price BETWEEN 100.00 AND 200.00 AND wide > 1000.0000 AND day < DATE '2024-09-01'",
        "wide = 12.5000",
        "share > 399.5 AND price > 10.00 AND day > DATE '2024-02-01'",
        "share = 'NaN'::double precision AND id > 39000",
        "word = 'word 3' AND price = 1.25",
        "price = 1.25 OR tiny = 1.0",
        "wide < 12345678901234567890.5000 AND price < 9999999999999.99 AND id BETWEEN 9000 AND 9100",
        "moment = timestamp '2024-01-01' AND id < 50",
        "moment > timestamp '2024-01-01'",
    ] {
        let expected =
            row(&mut session, &format!("SELECT {totals} FROM t WHERE {condition}")).await;
        for files in [&one, &parts] {
            let query = format!("SELECT {totals} FROM {files} WHERE {condition}");
            assert_eq!(row(&mut session, &query).await, expected, "{condition}");
        }
    }
    // Damage is told, and never costs rows.
    let mut bytes = std::fs::read(folder.path().join("one.parquet")).unwrap();
    let (begin, end) = (bytes.len() / 10, bytes.len() / 10 * 8);
    bytes[begin..end].fill(0xff);
    std::fs::write(folder.path().join("bad.parquet"), &bytes).unwrap();
    let bad = quoted(folder.path(), "bad.parquet");
    for condition in ["id = 31234", "id > 10", "price < 10.00", "price = 1.26"] {
        let query = format!("SELECT {totals} FROM {bad} WHERE {condition}");
        let error = refused(&mut session, &query).await;
        assert_eq!(error.sqlstate(), "22P04", "{condition}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_name_files() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    std::fs::write(folder.path().join("a.csv"), "id,title\n1,one\n2,two\n").unwrap();
    std::fs::write(folder.path().join("b.csv"), "id,day\n3,2024-01-31\n").unwrap();
    let (a, b) = (quoted(folder.path(), "a.csv"), quoted(folder.path(), "b.csv"));
    // The columns are those of the file that each run names.
    run(&mut session, "PREPARE p AS SELECT * FROM read_csv($1) AS f WHERE f.id > $2::int").await;
    assert_eq!(rows(&mut session, &format!("EXECUTE p ({a}, 1)")).await, ["2,two"]);
    assert_eq!(rows(&mut session, &format!("EXECUTE p ({b}, 1)")).await, ["3,2024-01-31"]);
    let both = "PREPARE q AS SELECT count(*) FROM read_csv(ARRAY[$1, $2], types => 'id text', header => true)";
    run(&mut session, both).await;
    assert_eq!(row(&mut session, &format!("EXECUTE q ({a}, {a})")).await, "4");
    session.prepare("", "CREATE TABLE t AS SELECT * FROM read_csv($1)", &[]).await.unwrap();
    let path = folder.path().join("a.csv").display().to_string();
    session.execute("", &[Some(&path)]).await.unwrap();
    assert_eq!(row(&mut session, "SELECT sum(id) FROM t").await, "3");
    run(&mut session, "PREPARE i AS INSERT INTO t SELECT id + $2::int, title FROM read_csv($1)")
        .await;
    run(&mut session, &format!("EXECUTE i ({a}, 10)")).await;
    assert_eq!(answer(&mut session, "SELECT id FROM t").await, ["1", "11", "12", "2"]);
    for (statement, sqlstate, part) in [
        ("EXECUTE p (NULL, 1)", "22023", "the parameter $1 names a file, and its value is NULL"),
        ("EXECUTE p ('none.csv', 1)", "58P01", "none.csv"),
        ("SELECT * FROM read_csv($1)", "42P02", "$1"),
        ("CREATE VIEW v AS SELECT * FROM read_csv($1)", "42P02", "$1"),
        ("PREPARE r AS SELECT * FROM read_csv($1) AS f WHERE id = $2", "42P18", "$2"),
        (
            "PREPARE r AS UPDATE t SET id = 1 FROM read_csv($1) AS f WHERE f.id = $2",
            "42P18",
            "write $2::type",
        ),
        ("PREPARE r AS SELECT * FROM read_csv('a', delim => $1)", "0A000", "the parameter $1"),
    ] {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), sqlstate, "{statement}: {error}");
        assert!(error.to_string().contains(part), "{statement}: {error}");
    }
    // Rights are those of who runs it.
    run(&mut session, "CREATE ROLE reader; SET ROLE reader").await;
    let error = refused(&mut session, &format!("EXECUTE p ({a}, 1)")).await;
    assert_eq!(error.sqlstate(), "42501", "{error}");
}

/// What a statement gave: its rows, sorted, or its tag.
fn told(outcomes: &[Outcome]) -> Vec<String> {
    match outcomes {
        [Outcome::Rows { batches, .. }] => {
            let mut rows = text_of(batches);
            rows.sort();
            rows
        }
        [Outcome::Done { tag }] => vec![tag.clone()],
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_name_files_in_every_statement() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    std::fs::write(folder.path().join("a.csv"), "id,title\n1,one\n2,two\n").unwrap();
    let file = quoted(folder.path(), "a.csv");
    let path = folder.path().join("a.csv").display().to_string();
    let made = "CREATE TABLE t (id bigint PRIMARY KEY, title text); \
                INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')";
    run(&mut session, made).await;
    let statements = [
        "SELECT * FROM read_csv($1) AS f WHERE id >= $2::bigint",
        "CREATE TABLE made AS SELECT * FROM read_csv($1)",
        "INSERT INTO t SELECT id + 10, title FROM read_csv($1)",
        "INSERT INTO t SELECT id + 10, $3 FROM read_csv($1) RETURNING *",
        "INSERT INTO t SELECT id, title FROM read_csv($1) \
         ON CONFLICT (id) DO UPDATE SET title = excluded.title || t.title RETURNING id, title",
        "INSERT INTO t SELECT id, title FROM read_csv($1) ON CONFLICT DO NOTHING",
        "UPDATE t SET title = f.title FROM read_csv($1) AS f WHERE f.id = t.id",
        "UPDATE t SET title = $3 FROM read_csv($1) AS f WHERE f.id = t.id RETURNING t.id, f.title AS read",
        "UPDATE t SET title = (SELECT max(title) FROM read_csv($1)) WHERE id = $2 RETURNING *",
        "DELETE FROM t USING read_csv($1) AS f WHERE f.id = t.id AND f.id >= $2::bigint RETURNING f.*",
        "DELETE FROM t WHERE id IN (SELECT id FROM read_csv(ARRAY[$1, $1])) RETURNING id",
        "WITH f AS (SELECT * FROM read_csv($1)) UPDATE t SET title = f.title FROM f WHERE f.id = t.id",
        "WITH gone AS (DELETE FROM t USING read_csv($1) AS f WHERE f.id = t.id RETURNING t.id) \
         SELECT count(*), max(id) FROM gone",
    ];
    let types = [Some(ColumnType::Text), Some(ColumnType::BigInt), Some(ColumnType::Text)];
    let values = [Some(path.as_str()), Some("2"), Some("x")];
    for (number, statement) in statements.iter().enumerate() {
        // They do what they do with constants.
        let plain = statement.replace("$1", &file).replace("$2", "2").replace("$3", "'x'");
        run(&mut session, "BEGIN").await;
        let expected = told(&run(&mut session, &plain).await);
        let left = answer(&mut session, "SELECT * FROM t").await;
        run(&mut session, "ROLLBACK").await;
        session.prepare(&format!("p{number}"), statement, &types).await.unwrap();
        let execute = format!("EXECUTE p{number} ({file}, 2, 'x')");
        run(&mut session, "BEGIN").await;
        assert_eq!(told(&run(&mut session, &execute).await), expected, "{statement}");
        assert_eq!(answer(&mut session, "SELECT * FROM t").await, left, "{statement}");
        run(&mut session, "ROLLBACK").await;
        // EXPLAIN tells the plan and changes nothing, EXPLAIN ANALYZE runs it.
        let before = answer(&mut session, "SELECT * FROM t").await;
        let plan = rows(&mut session, &format!("EXPLAIN {execute}")).await;
        assert!(!plan.is_empty(), "{statement}");
        assert_eq!(answer(&mut session, "SELECT * FROM t").await, before, "{statement}");
        if statement.starts_with("WITH gone") {
            continue;
        }
        run(&mut session, "BEGIN").await;
        session.prepare("", &format!("EXPLAIN ANALYZE {statement}"), &types).await.unwrap();
        let Outcome::Rows { batches, .. } = session.execute("", &values).await.unwrap() else {
            panic!("{statement}");
        };
        assert!(!text_of(&batches).is_empty(), "{statement}");
        assert_eq!(answer(&mut session, "SELECT * FROM t").await, left, "{statement}");
        run(&mut session, "ROLLBACK").await;
    }

    // Columns that are none of a file are known at once; those of a file with its name. Nothing runs for that.
    let names = |described: &Described| -> Option<Vec<String>> {
        let columns = described.columns.as_ref()?;
        Some(columns.fields().iter().map(|field| field.name().clone()).collect())
    };
    let before = answer(&mut session, "SELECT * FROM t").await;
    for (statement, is_late, columns) in [
        ("EXPLAIN DELETE FROM t USING read_csv($1) AS f", false, Some(vec!["QUERY PLAN"])),
        ("INSERT INTO t SELECT id + 10 FROM read_csv($1)", false, None),
        ("INSERT INTO t SELECT id + 10 FROM read_csv($1) RETURNING id", false, Some(vec!["id"])),
        (
            "DELETE FROM t WHERE id IN (SELECT id FROM read_csv($1)) RETURNING title AS gone",
            false,
            Some(vec!["gone"]),
        ),
        (
            "DELETE FROM t USING read_csv($1) AS f WHERE f.id = t.id RETURNING f.*",
            true,
            Some(vec!["id", "title"]),
        ),
        ("SELECT title FROM read_csv($1)", true, Some(vec!["title"])),
    ] {
        session.prepare("", statement, &[]).await.unwrap();
        let described = session.describe("").await.unwrap();
        assert_eq!(described.parameters, [ColumnType::Text], "{statement}");
        assert_eq!(described.is_told_late, is_late, "{statement}");
        let columns = columns.map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>());
        if !is_late {
            assert_eq!(names(&described), columns, "{statement}");
        }
        let described = session.describe_with("", &[Some(&path)]).await.unwrap();
        assert_eq!(names(&described), columns, "{statement}");
    }
    assert_eq!(answer(&mut session, "SELECT * FROM t").await, before);

    // Who may not read files does not by a parameter.
    run(&mut session, "CREATE ROLE reader; GRANT ALL ON t TO reader; SET ROLE reader").await;
    for (number, statement) in statements.iter().enumerate() {
        let execute = format!("EXECUTE p{number} ({file}, 2, 'x')");
        for asked in [execute.clone(), format!("EXPLAIN {execute}")] {
            let error = refused(&mut session, &asked).await;
            assert_eq!(error.sqlstate(), "42501", "{statement}: {error}");
        }
        let name = format!("p{number}");
        let error = session.describe_with(&name, &values).await.unwrap_err();
        assert_eq!(error.sqlstate(), "42501", "{statement}: {error}");
    }
    session.prepare("", "EXPLAIN UPDATE t SET id = 1 FROM read_csv($1)", &[]).await.unwrap();
    let error = session.execute("", &[Some(&path)]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "42501", "{error}");
    assert_eq!(answer(&mut session, "SELECT * FROM t").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_of_files_keeps_its_columns_and_reads_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let mut session = database.session();
    let write = |text: &str| std::fs::write(folder.path().join("it's.csv"), text).unwrap();
    write("id,title\n1,one\n2,two\n");
    let file = format!("'{}'", folder.path().join("it''s.csv").display());
    run(&mut session, "CREATE TABLE t (id int, note text); INSERT INTO t VALUES (2, 'b')").await;
    let made = format!(
        "CREATE VIEW v AS SELECT * FROM {file}; \
         CREATE VIEW w AS SELECT f.title, t.note FROM read_csv({file}, header => true) AS f JOIN t ON t.id = f.id; \
         CREATE VIEW x AS SELECT title FROM v WHERE id > 1"
    );
    run(&mut session, &made).await;
    assert_eq!(answer(&mut session, "SELECT * FROM v").await, ["1,one", "2,two"]);
    assert_eq!(rows(&mut session, "SELECT * FROM w").await, ["two,b"]);
    assert_eq!(rows(&mut session, "SELECT title FROM x").await, ["two"]);
    // No result is cached, nor one of a view of the view.
    write("id,more,title\n2,x,zwei\n3,y,drei\n");
    assert_eq!(answer(&mut session, "SELECT * FROM v").await, ["2,zwei", "3,drei"]);
    assert_eq!(rows(&mut session, "SELECT * FROM w").await, ["zwei,b"]);
    assert_eq!(answer(&mut session, "SELECT title FROM x").await, ["drei", "zwei"]);
    // Nor is a file written that a view reads.
    let copy = format!("COPY (SELECT count(*) FROM x) TO {file}");
    assert_eq!(refused(&mut session, &copy).await.sqlstate(), "0A000");
    // What reads a view reads files too, once that is replaced by one of files.
    let made = "CREATE VIEW y AS SELECT 1::bigint AS id, 'a'::text AS title; \
                CREATE VIEW z AS SELECT title FROM y; \
                CREATE MATERIALIZED VIEW m AS SELECT title FROM z; \
                CREATE OR REPLACE VIEW y AS SELECT id, title FROM v";
    run(&mut session, made).await;
    let copy = format!("COPY (SELECT title FROM z) TO {file}");
    for statement in [copy.as_str(), "REFRESH MATERIALIZED VIEW m"] {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), "0A000", "{statement}: {error}");
    }
    run(&mut session, "DROP MATERIALIZED VIEW m; DROP VIEW z; DROP VIEW y").await;
    let definition = row(&mut session, "SELECT pg_get_viewdef('w'::regclass)").await;
    assert!(
        definition.contains("read_csv('") && definition.contains("header => true"),
        "{definition}"
    );
    // A table that a view reads beside files can be renamed.
    run(&mut session, "ALTER TABLE t RENAME TO u").await;
    assert_eq!(rows(&mut session, "SELECT * FROM w").await, ["zwei,b"]);
    for (text, part) in [
        ("id,name\n1,one\n", "has no column"),
        ("id,title\none,one\n", "of view \"v\" has the type bigint, and its files have text"),
        ("", "the file is empty"),
    ] {
        write(text);
        let error = refused(&mut session, "SELECT * FROM v").await.to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
    write("id,title\n1,one\n");
    // Who may read the view, but no files, does not read them by way of it.
    run(&mut session, "CREATE ROLE reader; GRANT SELECT ON v, w, x TO reader; SET ROLE reader")
        .await;
    for name in ["v", "w", "x"] {
        let error = refused(&mut session, &format!("SELECT * FROM {name}")).await;
        assert_eq!(error.sqlstate(), "42501", "{name}: {error}");
    }
    run(&mut session, "RESET ROLE").await;
    drop(session);
    drop(database);
    // It is there again when the database is opened.
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(answer(&mut session, "SELECT * FROM v").await, ["1,one"]);
    run(&mut session, "DROP VIEW x; DROP VIEW w; DROP VIEW v").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_several_files_are_matched_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let path = |name: &str| quoted(folder.path(), name);
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a1.csv", "id,title\n1,one\n2,two\n");
    write("a2.csv", "day;ID\n2024-01-31;2.5\n");
    write("a3.csv", "");
    let texts = format!("read_csv({}, union_by_name => true)", path("a*.csv"));
    let all = rows(&mut session, &format!("SELECT * FROM {texts}")).await;
    assert_eq!(all, ["1,one,NULL", "2,two,NULL", "2.5,NULL,2024-01-31"]);
    // Columns that a file does not have, alone; and in another order.
    let days = rows(&mut session, &format!("SELECT day, title FROM {texts}")).await;
    assert_eq!(days, ["NULL,one", "NULL,two", "2024-01-31,NULL"]);
    let counted = format!("SELECT count(*), count(day), sum(id) FROM {texts}");
    assert_eq!(row(&mut session, &counted).await, "3,1,5.5");
    // A fault names the file's own column.
    write("a1.csv", &format!("id,title\n{}x,y\n", "1,y\n".repeat(5000)));
    let sampled = format!("read_csv({}, union_by_name => true, sample_size => 10)", path("a*.csv"));
    let error = refused(&mut session, &format!("SELECT sum(id) FROM {sampled}")).await.to_string();
    assert!(error.contains("a1.csv, line 5002, column 1 (\"id\")"), "{error}");
    write("a1.csv", "id,title\n1,one\n");
    let plain =
        refused(&mut session, &format!("SELECT * FROM {}", path("a*.csv"))).await.to_string();
    assert!(plain.contains("unless union_by_name is true"), "{plain}");

    let make = [
        ("p1", "SELECT 1::int AS id, 'one' AS title, 1.5::numeric(4, 2) AS price"),
        ("p2", "SELECT date '2024-01-31' AS day, 5000000000::bigint AS id, 7::int AS price"),
        ("p3", "SELECT 2::smallint AS id, timestamp '2024-02-01 10:00' AS day"),
    ];
    for (name, query) in make {
        let file = path(&format!("{name}.parquet"));
        run(&mut session, &format!("COPY ({query}) TO {file}")).await;
    }
    let files = format!("read_parquet({}, union_by_name => true)", path("p*.parquet"));
    let typed =
        format!("SELECT pg_typeof(id), pg_typeof(price), pg_typeof(day) FROM {files} LIMIT 1");
    assert_eq!(row(&mut session, &typed).await, "bigint,numeric,timestamp without time zone");
    let all =
        rows(&mut session, &format!("SELECT id, title, price, day FROM {files} ORDER BY id")).await;
    let expected = [
        "1,one,1.50,NULL",
        "2,NULL,NULL,2024-02-01 10:00:00",
        "5000000000,NULL,7.00,2024-01-31 00:00:00",
    ];
    assert_eq!(all, expected);
    // Only columns that some files lack; bounds of row groups; rows without columns.
    let titles = answer(&mut session, &format!("SELECT title FROM {files}")).await;
    assert_eq!(titles, ["NULL", "NULL", "one"]);
    assert_eq!(row(&mut session, &format!("SELECT count(*) FROM {files} WHERE id > 1")).await, "2");
    assert_eq!(
        row(&mut session, &format!("SELECT count(*) FROM {files} WHERE day IS NULL")).await,
        "1"
    );
    assert_eq!(row(&mut session, &format!("SELECT count(*) FROM {files}")).await, "3");
    run(&mut session, &format!("COPY (SELECT 'x' AS id) TO {}", path("p4.parquet"))).await;
    let error = refused(&mut session, &format!("SELECT id FROM {files}")).await;
    assert_eq!(error.sqlstate(), "22P04", "{error}");
    let error = error.to_string();
    for part in ["p4.parquet", "p1.parquet", "no type has the values of both"] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_read_in_its_order_and_its_first_fault_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let mut text = "id,word\n".to_owned();
    (0..150_000).for_each(|id| text.push_str(&format!("{id},word {}\n", id % 7)));
    std::fs::write(folder.path().join("a.csv"), &text).unwrap();
    let file = quoted(folder.path(), "a.csv");
    let total = format!("SELECT count(*), sum(id), count(DISTINCT word) FROM {file}");
    assert_eq!(row(&mut session, &total).await, "150000,11249925000,7");
    // Rows come as they are in the file.
    let ids = rows(&mut session, &format!("SELECT id FROM {file}")).await;
    assert!((0..150_000).map(|id: u32| id.to_string()).eq(ids));
    // A value that others of its column did not show.
    text.push_str("none,word\n");
    std::fs::write(folder.path().join("a.csv"), &text).unwrap();
    let error = refused(&mut session, &total).await;
    assert_eq!(error.sqlstate(), "22P02");
    let error = error.to_string();
    for part in [
        "a.csv, line 150002, column 1 (\"id\"): invalid input syntax for type bigint: \"none\"",
        "was inferred from the first 20480 rows",
        "types => '\"id\" text'",
    ] {
        assert!(error.contains(part), "{error}");
    }
    // It is not looked at where it is not asked for, and the options that the message names help.
    assert_eq!(row(&mut session, &format!("SELECT count(word) FROM {file}")).await, "150001");
    for option in ["types => '\"id\" text'", "sample_size => -1", "all_varchar => true"] {
        let query = format!("SELECT max(id) FROM read_csv({file}, {option})");
        assert_eq!(row(&mut session, &query).await, "none", "{option}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blank_lines_are_no_rows_of_several_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let two = quoted(folder.path(), "two.csv");
    std::fs::write(folder.path().join("two.csv"), "\r\n\na,b\r\n1,2\r\n\r\n3,x\n\n").unwrap();
    assert_eq!(rows(&mut session, &format!("SELECT * FROM {two}")).await, ["1,2", "3,x"]);
    let typed = format!("SELECT * FROM read_csv({two}, types => 'b int')");
    let error = refused(&mut session, &typed).await.to_string();
    assert!(error.contains("two.csv, line 6, column 2 (\"b\")"), "{error}");
    std::fs::write(folder.path().join("one.csv"), "a\n1\n\n2\n").unwrap();
    let one = quoted(folder.path(), "one.csv");
    assert_eq!(rows(&mut session, &format!("SELECT * FROM {one}")).await, ["1", "NULL", "2"]);
    // COPY reads as PostgreSQL does.
    run(&mut session, "CREATE TABLE t (a int, b text)").await;
    let error = refused(&mut session, &format!("COPY t FROM {two} (HEADER)")).await.to_string();
    assert!(error.contains("missing data"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_one_name_in_a_parquet_file_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let twice = quoted(folder.path(), "twice.parquet");
    let written = "SELECT v AS a, v + 10 AS a, v + 20 AS a_1 FROM generate_series(1, 3) AS s(v)";
    run(&mut session, &format!("COPY ({written}) TO {twice}")).await;
    let described = rows(&mut session, &format!("DESCRIBE {twice}")).await;
    let names: Vec<&str> = described.iter().filter_map(|row| row.split(',').next()).collect();
    assert_eq!(names, ["a", "a_2", "a_1"]);
    let of = |condition: &str| format!("SELECT * FROM {twice} WHERE {condition}");
    for condition in ["a = 2", "a_2 = 12", "a_1 = 22", "a_2 < 13 AND a_1 > 21"] {
        assert_eq!(rows(&mut session, &of(condition)).await, ["2,12,22"], "{condition}");
    }
    for option in ["", ", union_by_name => true"] {
        let both = format!("SELECT 1 FROM read_parquet(ARRAY[{twice}, {twice}]{option})");
        let error = refused(&mut session, &both).await;
        assert_eq!(error.sqlstate(), "22P04", "{error}");
        assert!(error.to_string().contains("two columns of one file are called \"a\""), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let written: [(&str, &[u8]); 8] = [
        ("text.parquet", b"id\n1\n"),
        ("ragged.csv", b"a,b\n1,2\n3\n"),
        ("titled.csv", b"Films of 2024\na,b\n1,2\n"),
        ("open.csv", b"a\n\"1\n2\n"),
        ("binary.csv", b"a\n\xff\xfe\n"),
        ("empty.csv", b""),
        ("plain.csv.gz", b"a\n1\n"),
        ("hidden.csv", b"\x01vid,a\n1,2\n"),
    ];
    for (name, bytes) in written {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    run(&mut session, "CREATE TABLE t (id int)").await;
    run(&mut session, &format!("COPY t TO {}", quoted(folder.path(), "t.parquet"))).await;
    std::fs::copy(folder.path().join("t.parquet"), folder.path().join("t.csv")).unwrap();
    for (name, sqlstate, part) in [
        ("none.csv", "58P01", "cannot open"),
        ("none-*.csv", "58P01", "no file has such a name"),
        ("text.parquet", "22P04", "the file is not a Parquet file, or is damaged"),
        ("t.csv", "22P04", "it is a Parquet file, which read_parquet reads"),
        ("ragged.csv", "22P04", "ragged.csv, line 3: missing data"),
        (
            "titled.csv",
            "22P04",
            "titled.csv, line 2: extra data after last expected column, of 1: ",
        ),
        ("open.csv", "22P04", "unterminated quoted field"),
        ("binary.csv", "22021", "a record that is no text"),
        ("empty.csv", "22P04", "the file is empty"),
        ("plain.csv.gz", "58030", "it is no gzip file, as its name says"),
        ("hidden.csv", "0A000", r#"the column "\u{1}vid" of read_csv("#),
        ("films.xlsx", "0A000", "whose name tells no format"),
    ] {
        let query = format!("SELECT * FROM {}", quoted(folder.path(), name));
        let error = refused(&mut session, &query).await;
        assert_eq!(error.sqlstate(), sqlstate, "{name}: {error}");
        assert!(error.to_string().contains(part), "{name}: {error}");
    }
    let error = refused(&mut session, "SELECT * FROM read_csv('/dev/zero')").await.to_string();
    assert!(error.contains("it is no regular file"), "{error}");
    // A file is not written while it is read.
    std::fs::write(folder.path().join("good.csv"), "a\n1\n").unwrap();
    let good = quoted(folder.path(), "good.csv");
    let copy = format!("COPY (SELECT * FROM (SELECT a FROM {good}) AS s) TO {good}");
    assert_eq!(refused(&mut session, &copy).await.sqlstate(), "0A000");
    assert_eq!(row(&mut session, &format!("SELECT * FROM {good}")).await, "1");
    // The headers of all files are compared, also beyond the sample; one that is empty says nothing.
    for number in 10..30 {
        let text = if number == 28 { "y,x\n1,2\n" } else { "x,y\n1,2\n" };
        std::fs::write(folder.path().join(format!("many-{number}.csv")), text).unwrap();
    }
    let many = format!("SELECT x FROM {}", quoted(folder.path(), "many-*.csv"));
    let error = refused(&mut session, &many).await.to_string();
    assert!(error.contains("many-28.csv") && error.contains("its columns are y, x"), "{error}");
    std::fs::write(folder.path().join("many-28.csv"), "").unwrap();
    assert_eq!(rows(&mut session, &many).await, ["1"; 19]);
    let (empty, bare) = (quoted(folder.path(), "empty.csv"), quoted(folder.path(), "bare.csv"));
    std::fs::write(folder.path().join("bare.csv"), "1,a\r\n2,b\r\n").unwrap();
    let both =
        format!("SELECT * FROM read_csv(ARRAY[{empty}, {bare}], columns => 'id int, word text')");
    assert_eq!(rows(&mut session, &both).await, ["1,a", "2,b"]);
    // It goes on, and a view that would keep rows of a file is not made.
    let file = quoted(folder.path(), "t.parquet");
    let made = format!("CREATE MATERIALIZED VIEW v AS SELECT * FROM {file}");
    let error = refused(&mut session, &made).await;
    assert!(error.to_string().contains("a view of \"read_parquet("), "{error}");
    assert_eq!(row(&mut session, &format!("SELECT count(*) FROM {file}")).await, "0");
}

#[tokio::test]
async fn only_those_read_files_who_may_copy_them() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    std::fs::write(folder.path().join("a.csv"), "id\n1\n").unwrap();
    let file = quoted(folder.path(), "a.csv");
    run(&mut session, "CREATE ROLE reader; CREATE TABLE t (id int); GRANT ALL ON t TO reader")
        .await;
    let statements = [
        format!("SELECT * FROM {file}"),
        format!("SELECT (SELECT max(id) FROM read_csv({file}))"),
        format!("INSERT INTO t SELECT id FROM {file}"),
        format!("UPDATE t SET id = 2 FROM {file} AS f WHERE f.id = t.id"),
        format!("WITH f AS (SELECT * FROM {file}) SELECT * FROM f"),
        format!("EXPLAIN SELECT * FROM {file}"),
        format!("EXPLAIN ANALYZE SELECT * FROM {file}"),
        format!("DESCRIBE {file}"),
        format!("SUMMARIZE SELECT * FROM read_csv({file})"),
        format!("PREPARE p AS SELECT * FROM {file}"),
        format!("CREATE TABLE u AS SELECT * FROM {file}"),
        format!("CREATE MATERIALIZED VIEW m AS SELECT * FROM {file}"),
        format!("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM {file}"),
        format!("DELETE FROM t USING {file} AS f WHERE f.id = t.id"),
        format!("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM read_parquet({file}))"),
        format!("COPY (SELECT * FROM {file}) TO STDOUT"),
        format!("COPY t FROM {file}"),
    ];
    run(&mut session, "SET ROLE reader").await;
    for statement in &statements {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), "42501", "{statement}: {error}");
        // It may not make a table either.
        let is_told = error.to_string().contains("must be superuser");
        assert!(is_told || statement.starts_with("CREATE"), "{statement}: {error}");
    }
    run(&mut session, "RESET ROLE").await;
    assert_eq!(row(&mut session, &format!("SELECT * FROM {file}")).await, "1");
    // At a server that does not serve files nobody may.
    session.set_client(Client { serves_files: false, ..Client::default() });
    for statement in &statements {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), "42501", "{statement}: {error}");
        assert!(error.to_string().contains("--allow-files"), "{statement}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_told_with_their_types_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id int PRIMARY KEY, n double precision, name varchar(20), ok boolean, day date); \
         INSERT INTO t VALUES (1, 0.5, 'a', true, '2024-01-31'), (2, 'NaN', 'b', false, NULL), \
         (3, NULL, 'b', NULL, '2024-02-01'), (4, 1.5, NULL, true, '2024-02-02')",
    )
    .await;
    let columns = [
        "id,integer",
        "n,double precision",
        "name,character varying(20)",
        "ok,boolean",
        "day,date",
    ];
    let described = rows(&mut session, "DESCRIBE t").await;
    let expected: Vec<String> = columns.iter().map(|own| format!("{own},YES")).collect();
    assert_eq!(described[1..], expected[1..]);
    assert_eq!(described[0], "id,integer,NO");
    let lists = "DESC SELECT count(*) AS n, max(name) FROM t GROUP BY day";
    assert_eq!(rows(&mut session, lists).await.len(), 2);
    // Types that no column has, by their names in SQL.
    let lists = "SELECT ARRAY[id] AS l, ARRAY[name] AS m, NULL AS n FROM t";
    for statement in [format!("DESCRIBE {lists}"), format!("SUMMARIZE {lists}")] {
        let told = rows(&mut session, &statement).await;
        let types: Vec<&str> = told.iter().filter_map(|row| row.split(',').nth(1)).collect();
        assert_eq!(types, ["integer[]", "text[]", "text"], "{statement}");
    }

    let file = quoted(folder.path(), "t.parquet");
    run(&mut session, &format!("COPY t TO {file}")).await;
    for of in ["t", "SELECT * FROM t", "(SELECT * FROM t)", &file] {
        let told = rows(&mut session, &format!("SUMMARIZE {of}")).await;
        let cells: Vec<Vec<&str>> = told.iter().map(|row| row.split(',').collect()).collect();
        let figures = |place: usize| -> [&str; 7] {
            let row = &cells[place];
            // Name, least, greatest, different ones, average, rows, share of NULLs.
            [row[0], row[2], row[3], row[4], row[5], row[10], row[11]]
        };
        assert_eq!(figures(0), ["id", "1", "4", "4", "2.5", "4", "0"], "{of}");
        assert_eq!(figures(1), ["n", "0.5", "NaN", "3", "NaN", "4", "25"], "{of}");
        assert_eq!(figures(2), ["name", "a", "b", "2", "NULL", "4", "25"], "{of}");
        assert_eq!(figures(3), ["ok", "false", "true", "2", "NULL", "4", "25"], "{of}");
        assert_eq!(figures(4), ["day", "2024-01-31", "2024-02-02", "3", "NULL", "4", "25"], "{of}");
        // NaN is no quantile.
        let quantiles: Vec<f64> = cells[1][7..10].iter().map(|own| own.parse().unwrap()).collect();
        assert!(quantiles.iter().all(|own| (0.5..=1.5).contains(own)), "{told:?}");
    }
    run(&mut session, "CREATE TABLE none (id int)").await;
    let none = row(&mut session, "SUMMARIZE none").await;
    assert!(none.starts_with("id,integer,NULL,NULL,0,NULL") && none.ends_with(",0,NULL"), "{none}");
    for (statement, sqlstate) in [
        ("DESCRIBE missing", "42P01"),
        ("SUMMARIZE DELETE FROM t", "42601"),
        ("DESCRIBE SELECT * FROM t FOR UPDATE", "0A000"),
        ("SUMMARIZE SELECT $1", "42P02"),
        ("SUMMARIZE SELECT nothing FROM t", "42703"),
    ] {
        let error = refused(&mut session, statement).await;
        assert_eq!(error.sqlstate(), sqlstate, "{statement}: {error}");
    }
}
