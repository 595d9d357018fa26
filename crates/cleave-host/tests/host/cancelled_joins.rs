//! Tests of statements that end in the midst of a join which could keep every thread busy for minutes.

use std::time::Duration;

use crate::support::{fresh, refused, row, run};

/// Billions of pairs of rows are looked at before a row could come: all of them, and those of equal keys.
const SLOW: [&str; 2] = [
    "FROM generate_series(1, 300000) a(v), generate_series(1, 300000) b(w) WHERE v + w < 0",
    "FROM generate_series(1, 300000) a(v) JOIN generate_series(1, 300000) b(w) ON v % 16 = w % 16 WHERE v + w < 0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_join_leaves_a_thread_to_end_it() {
    let (_directory, database) = fresh().await;
    let (mut session, mut other) = (database.session(), database.session());
    run(&mut session, "CREATE TABLE t (a int8)").await;
    for (threads, sql, from) in [
        (1, "SELECT count(*)", SLOW[0]),
        (4, "INSERT INTO t SELECT v", SLOW[0]),
        (2, "SELECT count(*)", SLOW[1]),
    ] {
        let sql = format!("{sql} {from}");
        run(&mut session, &format!("SET threads = {threads}; SET statement_timeout = 200")).await;
        let error = refused(&mut session, &sql).await;
        assert_eq!(error.sqlstate(), "57014", "{sql}: {error}");
        run(&mut session, "RESET statement_timeout").await;
        assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
        let dropped = tokio::time::timeout(Duration::from_millis(100), session.run(&sql)).await;
        assert!(dropped.is_err(), "{sql}");
        assert_eq!(row(&mut other, "SELECT count(*) FROM generate_series(1, 9)").await, "9");
    }
}
