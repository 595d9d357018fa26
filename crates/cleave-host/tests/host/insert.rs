//! Tests of INSERT: constraints, hot segments, memtables and runs.

use cleave_host::{Session, SnapshotKind};

use crate::support::{assert_no_leak, batches, fresh, numbered, open, refused, row, rows, run};

/// A table `series` with ids from 1 to `count`.
async fn series(session: &mut Session, count: i32) {
    run(session, "CREATE TABLE series (id int PRIMARY KEY, note text)").await;
    session.load("series", batches(vec![numbered(1..count + 1)]), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_back_as_they_went_in() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE v (
            a smallint, b integer, c bigint, d real, e double precision, f numeric(10, 2),
            g boolean, h text, i varchar(5), j char(4), k date, l time, m timestamp,
            n timestamp with time zone, o interval, p bytea, q uuid)",
    )
    .await;
    run(
        &mut session,
        "INSERT INTO v VALUES (-7, 2147483647, -9223372036854775808, 1.5, 0.1, 12.345, true,
            'grüße', 'abcde', 'ab', '2024-02-29', '12:34:56.789', '1999-12-31 23:59:59',
            '2000-01-01 00:00:00+02', '1 year 2 days', '\\x00ff',
            'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
            (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
             NULL, NULL, NULL)",
    )
    .await;
    let found = rows(&mut session, "SELECT * FROM v").await;
    assert_eq!(
        found[0],
        "-7,2147483647,-9223372036854775808,1.5,0.1,12.35,t,grüße,abcde,ab,2024-02-29,\
         12:34:56.789,1999-12-31 23:59:59,1999-12-31 22:00:00+00,1 year 2 days,\\x00ff,\
         a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    );
    assert_eq!(found[1], vec!["NULL"; 17].join(","));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_and_column_lists_fill_rows() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE d (id int PRIMARY KEY, kind text DEFAULT 'film' NOT NULL, year int)",
    )
    .await;
    run(&mut session, "INSERT INTO d (id) VALUES (1)").await;
    run(&mut session, "INSERT INTO d (year, id) VALUES (1999, 2)").await;
    run(&mut session, "INSERT INTO d VALUES (3, DEFAULT, DEFAULT), (4, 'short', -5)").await;
    run(&mut session, "INSERT INTO d SELECT id + 10, upper(kind) FROM d WHERE year IS NULL").await;
    assert_eq!(
        rows(&mut session, "SELECT * FROM d ORDER BY id").await,
        ["1,film,NULL", "2,film,1999", "3,film,NULL", "4,short,-5", "11,FILM,NULL", "13,FILM,NULL"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_breaks_a_constraint_inserts_nothing() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, name varchar(5) NOT NULL)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'one')").await;
    let generation = database.snapshot(SnapshotKind::Flushed).await.unwrap().generation;
    for (sql, sqlstate, words) in [
        ("INSERT INTO t VALUES (2, 'two'), (1, 'uno')", "23505", "(id)=(1) already exists"),
        ("INSERT INTO t VALUES (3, 'a'), (3, 'b')", "23505", "(id)=(3) already exists"),
        ("INSERT INTO t VALUES (2, NULL)", "23502", "column \"name\""),
        ("INSERT INTO t VALUES (NULL, 'x')", "23502", "column \"id\""),
        ("INSERT INTO t (id) VALUES (2)", "23502", "column \"name\""),
        ("INSERT INTO t VALUES (2, 'longer')", "22001", "\"longer\""),
        ("INSERT INTO t VALUES (99999999999, 'x')", "22003", "99999999999"),
        ("INSERT INTO t VALUES ('2x', 'x')", "22P02", "2x"),
        ("INSERT INTO t VALUES (2)", "23502", "column \"name\""),
        ("INSERT INTO t VALUES (2, 'x', 3)", "42601", "more expressions"),
        ("INSERT INTO t VALUES (2, 'x'), (3)", "42601", "same length"),
        ("INSERT INTO t (id, nam) VALUES (2, 'x')", "42703", "did you mean \"name\"?"),
        ("INSERT INTO s VALUES (2)", "42P01", "relation \"s\" does not exist"),
        ("INSERT INTO t SELECT id + 1, NULL FROM t", "23502", "column \"name\""),
        ("INSERT INTO t SELECT true, 'x'", "42804", "column \"id\""),
    ] {
        let error = refused(&mut session, sql).await;
        assert_eq!(error.sqlstate(), sqlstate, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
    assert_eq!(rows(&mut session, "SELECT * FROM t").await, ["1,one"]);
    assert_eq!(database.catalog().generation, generation);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_inserts_fill_pages_and_keep_their_keys() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id bigint PRIMARY KEY, filler text)").await;
    let filler = "f".repeat(200);
    for part in 0..60 {
        // Keys in no order, as from many statements.
        let values: Vec<String> = (0..20)
            .map(|row| format!("({}, '{filler}')", (part * 20 + row) * 7919 % 1_000_003))
            .collect();
        run(&mut session, &format!("INSERT INTO t VALUES {}", values.join(", "))).await;
    }
    let counts = "SELECT count(*), count(DISTINCT id) FROM t";
    assert_eq!(row(&mut session, counts).await, "1200,1200");
    let catalog = database.snapshot(SnapshotKind::Flushed).await.unwrap();
    assert_eq!(row(&mut session, counts).await, "1200,1200");
    let tablet = &catalog.table("t").unwrap().tablets[0];
    assert_eq!(tablet.heap.len(), 1);
    let pages = tablet.heap[0].pages.len();
    assert!((12..40).contains(&pages), "{pages} pages for 240 kB");
    drop(catalog);
    assert_eq!(refused(&mut session, "INSERT INTO t VALUES (7919, '')").await.sqlstate(), "23505");
    assert_no_leak(&database);
    drop((session, database));

    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(refused(&mut session, "INSERT INTO t VALUES (7919, '')").await.sqlstate(), "23505");
    assert_eq!(row(&mut session, "SELECT id FROM t WHERE id = 15838").await, "15838");
    assert_eq!(rows(&mut session, "SELECT id FROM t WHERE id = 1").await, Vec::<String>::new());
    run(&mut session, "INSERT INTO t VALUES (1, 'new')").await;
    assert_eq!(row(&mut session, "SELECT filler FROM t WHERE id = 1").await, "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memtables_go_to_runs_and_hot_segments_are_sealed() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, filler text)").await;
    series(&mut session, 9000).await;
    // 14 statements of 9,000 rows: 126,000 keys of about 53 bytes are more than one memtable, and
    // their rows more than one hot segment.
    for part in 0..14 {
        run(
            &mut session,
            &format!("INSERT INTO t SELECT id + {}, repeat('y', 60) FROM series", part * 9000),
        )
        .await;
    }
    let check = "SELECT count(*), min(id), max(id), count(DISTINCT id) FROM t";
    assert_eq!(row(&mut session, check).await, "126000,1,126000,126000");
    let catalog = database.catalog();
    let tablet = &catalog.table("t").unwrap().tablets[0];
    let index = &tablet.indexes[0];
    assert!(index.runs().len() > 0, "the memtable was flushed");
    assert!(index.vid_covered > 1);
    assert!(tablet.heap.len() > 1, "hot segments were sealed");
    assert!(tablet.heap.iter().rev().skip(1).all(|segment| segment.sealed));
    drop(catalog);
    for id in [1, 9000, 60_000, 126_000] {
        let error = refused(&mut session, &format!("INSERT INTO t VALUES ({id}, '')")).await;
        assert_eq!(error.sqlstate(), "23505", "{id}: {error}");
    }
    assert_no_leak(&database);
    drop((session, database));
    let database = open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, check).await, "126000,1,126000,126000");
    for id in [1, 9000, 60_000, 126_000] {
        let error = refused(&mut session, &format!("INSERT INTO t VALUES ({id}, '')")).await;
        assert_eq!(error.sqlstate(), "23505", "{id}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_insert_is_loaded_and_checked_alike() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    series(&mut session, 50_000).await;
    run(&mut session, "INSERT INTO t SELECT id FROM series").await;
    assert_eq!(row(&mut session, "SELECT count(*), sum(id) FROM t").await, "50000,1250025000");
    let again = "INSERT INTO t SELECT id + 49999 FROM series";
    let error = refused(&mut session, again).await;
    assert!(error.to_string().contains("(id)=(50000)"), "{error}");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "50000");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_values_overflow_and_come_back() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, body text)").await;
    for id in 1..6 {
        let sql = format!("INSERT INTO t VALUES ({id}, repeat('{id}', {}))", id * 100_000);
        run(&mut session, &sql).await;
    }
    run(&mut session, "INSERT INTO t VALUES (6, 'short')").await;
    assert_eq!(
        rows(&mut session, "SELECT id, length(body) FROM t ORDER BY id").await,
        ["1,100000", "2,200000", "3,300000", "4,400000", "5,500000", "6,5"]
    );
    assert_eq!(row(&mut session, "SELECT body FROM t WHERE id = 3").await, "3".repeat(300_000));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_sessions_insert_each_key_once() {
    let (_directory, database) = fresh().await;
    run(&mut database.session(), "CREATE TABLE t (id int PRIMARY KEY, who int)").await;
    let mut tasks = tokio::task::JoinSet::new();
    for who in 0..4 {
        let mut session = database.session();
        tasks.spawn(async move {
            let mut inserted = 0;
            for id in 0..25 {
                let sql = format!("INSERT INTO t VALUES ({id}, {who})");
                match session.run(&sql).await {
                    Ok(_) => inserted += 1,
                    Err(error) => assert_eq!(error.sqlstate(), "23505", "{error}"),
                }
            }
            inserted
        });
    }
    let mut inserted = 0;
    while let Some(count) = tasks.join_next().await {
        inserted += count.unwrap();
    }
    assert_eq!(inserted, 25);
    let found = row(&mut database.session(), "SELECT count(*), count(DISTINCT id) FROM t").await;
    assert_eq!(found, "25,25");
}

/// A literal, the type of its column, and the value stored or the code of the error; as in PostgreSQL.
const LITERALS: [(&str, &str, Result<&str, &str>); 50] = [
    ("1.5", "int", Ok("2")),
    ("2.5", "int", Ok("3")),
    ("-2.5", "int", Ok("-3")),
    ("0.4", "smallint", Ok("0")),
    ("1e2", "int", Ok("100")),
    ("125e-2", "bigint", Ok("1")),
    ("-9223372036854775808", "bigint", Ok("-9223372036854775808")),
    ("32767.5", "smallint", Err("22003")),
    ("3e9", "int", Err("22003")),
    ("3000000000", "int", Err("22003")),
    ("'1.5'", "int", Err("22P02")),
    ("' 7 '", "int", Ok("7")),
    ("true", "int", Err("42804")),
    ("1.005", "numeric(5, 2)", Ok("1.01")),
    ("1e2", "numeric(5, 2)", Ok("100.00")),
    ("1e3", "numeric(5, 2)", Err("22003")),
    ("true", "numeric(5, 2)", Err("42804")),
    ("1.5", "double precision", Ok("1.5")),
    ("1", "real", Ok("1")),
    ("false", "real", Err("42804")),
    ("'NaN'", "real", Ok("NaN")),
    ("1", "boolean", Err("42804")),
    ("0.0", "boolean", Err("42804")),
    ("'1'", "boolean", Ok("t")),
    ("true", "boolean", Ok("t")),
    ("20240229", "date", Err("42804")),
    ("'20240229'", "date", Ok("2024-02-29")),
    ("true", "date", Err("42804")),
    ("123", "bytea", Err("42804")),
    ("'123'", "bytea", Ok("\\x313233")),
    ("1", "uuid", Err("42804")),
    ("1", "interval", Err("42804")),
    ("'1 day'", "interval", Ok("1 day")),
    ("1", "time", Err("42804")),
    ("1", "timestamp", Err("42804")),
    ("1", "timestamptz", Err("42804")),
    ("false", "timestamp", Err("42804")),
    ("1e3", "text", Ok("1000")),
    ("1.50", "text", Ok("1.50")),
    ("-0.5", "varchar(4)", Ok("-0.5")),
    (".5", "text", Ok("0.5")),
    ("007", "text", Ok("7")),
    ("15e-1", "text", Ok("1.5")),
    ("1.25e1", "text", Ok("12.5")),
    ("25e-4", "text", Ok("0.0025")),
    ("12345", "varchar(4)", Err("22001")),
    ("'1e3'", "text", Ok("1e3")),
    ("'007'", "char(5)", Ok("007")),
    ("true", "text", Ok("true")),
    ("NULL", "boolean", Ok("NULL")),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn literals_are_assigned_as_their_kind_says_whatever_stands_beside_them() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    for (literal, column_type, expected) in LITERALS {
        run(&mut session, &format!("CREATE TABLE t (v {column_type}, n int)")).await;
        // Alone, and beside an expression, with which DataFusion reads the row.
        for beside in ["1", "1 + 0"] {
            let case = format!("{literal} as {column_type} beside {beside}");
            match session.run(&format!("INSERT INTO t VALUES ({literal}, {beside})")).await {
                Ok(_) => {
                    assert!(expected.is_ok(), "{case}: taken");
                    let found = row(&mut session, "SELECT v FROM t").await;
                    assert_eq!(Ok(found.as_str()), expected, "{case}");
                }
                Err(error) => assert_eq!(Err(error.sqlstate()), expected, "{case}: {error}"),
            }
            run(&mut session, "DROP TABLE t").await;
            run(&mut session, &format!("CREATE TABLE t (v {column_type}, n int)")).await;
        }
        run(&mut session, "DROP TABLE t").await;
    }
    for (default, column_type, expected) in
        [("1.5", "int", Some("2")), ("1e3", "text", Some("1000")), ("1", "date", None)]
    {
        let create = format!("CREATE TABLE t (v {column_type} DEFAULT {default}, n int)");
        let Some(expected) = expected else {
            assert_eq!(refused(&mut session, &create).await.sqlstate(), "42804");
            continue;
        };
        run(&mut session, &create).await;
        run(&mut session, "INSERT INTO t VALUES (DEFAULT, 1), (DEFAULT, 1)").await;
        assert_eq!(rows(&mut session, "SELECT v FROM t").await, [expected; 2]);
        run(&mut session, "DROP TABLE t").await;
    }
}
