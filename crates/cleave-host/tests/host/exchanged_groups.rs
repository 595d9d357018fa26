//! Tests of groups that are completed by devices which send each other partial ones: they are the groups that the host
//! makes, whatever the keys, the conditions above and the devices' behaviour.

use crate::exchanges::{Refuses, Three};
use crate::nodes::analyzed;
use crate::support::{assert_no_leak, row, rows, sorted};

/// Each of them is completed by devices.
const COMPLETE: [&str; 12] = [
    "SELECT w, count(*), sum(v), min(v), avg(v) FROM l GROUP BY w",
    "SELECT k, count(*), max(w) FROM l GROUP BY k",
    "SELECT w, k, count(*) FROM l WHERE v < 3500 GROUP BY w, k HAVING count(*) > 1",
    "SELECT DISTINCT w FROM l",
    "SELECT v::double precision / 500 > 3, -v::double precision * 0, count(*) FROM l GROUP BY 1, 2",
    "SELECT k, sum(v) AS s FROM l GROUP BY k ORDER BY s DESC, k LIMIT 7",
    "SELECT w, count(*) AS c FROM r GROUP BY w HAVING max(v) > 100 ORDER BY c DESC, w LIMIT 5",
    "SELECT l.k, count(*), sum(r.v) FROM l JOIN r ON l.k = r.k GROUP BY l.k",
    "SELECT r.k, l.w, count(*) FROM l JOIN r ON l.k = r.k GROUP BY r.k, l.w HAVING count(*) > 1",
    "SELECT l.k, l.w, min(r.id) FROM l JOIN r ON l.w = r.w AND l.k = r.k GROUP BY l.w, l.k",
    "SELECT l.k, count(r.id) AS c FROM l LEFT JOIN r ON l.k = r.k GROUP BY l.k \
     ORDER BY c DESC, l.k LIMIT 5",
    "SELECT l.k, count(*) FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k) GROUP BY l.k",
];

/// The host completes these: their rows come from several devices.
const INCOMPLETE: [&str; 3] = [
    "SELECT l.w, count(*), sum(r.v) FROM l JOIN r ON l.k = r.k GROUP BY l.w",
    "SELECT r.k, count(*) FROM l LEFT JOIN r ON l.k = r.k GROUP BY r.k",
    "SELECT count(*), sum(c) FROM (SELECT k, count(*) AS c FROM l GROUP BY k) AS g",
];

/// Asserts that `sql` has the same rows by exchange as with no cut.
async fn assert_same(three: &mut Three, sql: &str) {
    three.run("SET split = host").await;
    let expected = sorted(&mut three.session, sql).await;
    assert!(!expected.is_empty(), "{sql}");
    three.run("SET split = h0; SET exchange = always").await;
    assert_eq!(sorted(&mut three.session, sql).await, expected, "{sql}");
}

/// Whether the host completes groups in `plan`.
fn host_groups(plan: &str) -> bool {
    plan.lines().any(|line| line.trim_start().starts_with("AggregateExec: mode=Final"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_the_same_by_exchange_and_by_the_host() {
    let mut three = Three::new(Refuses::Nothing).await;
    for sql in COMPLETE {
        assert_same(&mut three, sql).await;
        let plan = analyzed(&mut three.session, sql).await;
        assert!(plan.contains("ExchangeExec: devices=") && !host_groups(&plan), "{plan}");
        assert!(!plan.contains("ran on the host"), "{plan}");
    }
    for sql in INCOMPLETE {
        assert_same(&mut three, sql).await;
        let plan = analyzed(&mut three.session, sql).await;
        assert!(plan.contains("ExchangeExec: devices=") && host_groups(&plan), "{plan}");
    }
    assert_no_leak(&three.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_the_own_transaction_are_completed_too() {
    let mut three = Three::new(Refuses::Nothing).await;
    three
        .run(
            "BEGIN;
             INSERT INTO l SELECT s, s % 90, 'own', s FROM generate_series(5001, 5400) s;
             DELETE FROM l WHERE id % 5 = 0",
        )
        .await;
    for sql in [COMPLETE[0], COMPLETE[1], COMPLETE[5], COMPLETE[7]] {
        assert_same(&mut three, sql).await;
    }
    three.run("ROLLBACK").await;
    assert_same(&mut three, COMPLETE[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_best_groups_of_each_device() {
    let mut three = Three::new(Refuses::Nothing).await;
    three.run("SET exchange = always").await;
    let plan =
        rows(&mut three.session, &format!("EXPLAIN VERBOSE {}", COMPLETE[6])).await.join("\n");
    let place = |what: &str| {
        let found = plan.lines().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {plan}"))
    };
    let exchange = place("ExchangeExec: devices=");
    assert!(place("SortExec: TopK") < exchange, "the host merges: {plan}");
    let on_devices = [
        place("] SortExec: TopK"),
        place("] FilterExec: "),
        place("] AggregateExec: mode=Final"),
        place("] PeerRowsExec: rows=0"),
        place("] AggregateExec: mode=Partial"),
    ];
    assert!(exchange < on_devices[0] && on_devices.is_sorted(), "{plan}");
    assert!(plan.contains("by hash of (w)"), "{plan}");
    // Few groups are not worth it.
    three.run("SET exchange = on").await;
    let plan =
        rows(&mut three.session, &format!("EXPLAIN VERBOSE {}", COMPLETE[0])).await.join("\n");
    assert!(!plan.contains("ExchangeExec") && host_groups(&plan), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_groups_where_a_device_does_not_take_part() {
    for (refuses, why) in [
        (Refuses::Peers, "another device, \"c\""),
        (Refuses::Outputs, "rows go to the host alone"),
        (Refuses::Memory, "no memory for rows of others"),
    ] {
        let mut three = Three::new(refuses).await;
        for sql in [COMPLETE[6], COMPLETE[7]] {
            assert_same(&mut three, sql).await;
            let plan = analyzed(&mut three.session, sql).await;
            assert!(plan.contains("ran on the host: ") && plan.contains(why), "{why}: {plan}");
        }
        assert_no_leak(&three.database);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_device_fails_its_groups_and_no_other() {
    let mut three = Three::new(Refuses::Nothing).await;
    three.run("SET exchange = always").await;
    assert!(!rows(&mut three.session, COMPLETE[6]).await.is_empty());
    three.served.pop().unwrap().stop().await;
    let error = three.session.run(COMPLETE[6]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "58030", "{error}");
    let others = "SELECT count(*) FROM (SELECT w, count(*) FROM l GROUP BY w) AS g";
    assert_eq!(row(&mut three.session, others).await, "100");
}
