//! Tests of subqueries of few rows: the statements around them need no plan, flush nothing, and give the rows of a
//! plan.

use std::sync::Arc;

use cleave_host::{Database, Outcome, Session};

use crate::support::{fresh, planned, refused, row, rows, run};

/// Accounts with movements, and a small change of each table that no page has yet.
async fn bank() -> (tempfile::TempDir, Arc<Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE account (id integer PRIMARY KEY, owner text, amount numeric(10, 2), last bigint);
         CREATE INDEX ON account (owner);
         CREATE TABLE movement (id bigint PRIMARY KEY, account integer, sum numeric(8, 2) NOT NULL, day date);
         CREATE INDEX ON movement (account, day);
         INSERT INTO account SELECT i, 'owner ' || (i % 4), i * 10, NULL FROM generate_series(1, 20) AS s(i);
         INSERT INTO movement SELECT i, nullif(1 + i % 10, 7), i / 4.0, ('2026-01-0' || (1 + i % 9))::date
             FROM generate_series(1, 60) AS s(i)",
    )
    .await;
    run(
        &mut session,
        "INSERT INTO account VALUES (21, 'owner 9', 5, 0); INSERT INTO movement VALUES (61, 21, 1.25, '2026-02-02');
         UPDATE movement SET sum = 99 WHERE id = 3; DELETE FROM movement WHERE id = 4",
    )
    .await;
    (directory, database, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_of_few_rows_need_no_plan_and_flush_nothing() {
    let (_directory, database, mut session) = bank().await;
    let before = planned(&database);
    let statements: [(&str, &[&str]); 19] = [
        ("SELECT owner FROM account WHERE id = (SELECT account FROM movement WHERE id = 61)", &["owner 9"]),
        // Of another width than the column, and an aggregate.
        ("SELECT id FROM movement WHERE id = (SELECT max(id) FROM account WHERE owner = 'owner 9')", &["21"]),
        (
            "SELECT id, sum FROM movement WHERE account IN (SELECT id FROM account WHERE owner = 'owner 9')",
            &["61,1.25"],
        ),
        (
            "SELECT count(*), sum(sum) FROM movement WHERE account IN (SELECT id FROM account WHERE owner IN ('owner \
                2', 'owner 9'))",
            &["19,136.25"],
        ),
        ("SELECT owner FROM account WHERE id = 3 AND EXISTS (SELECT 1 FROM movement WHERE account = 21)", &["owner 3"]),
        ("SELECT owner FROM account WHERE id = 3 AND NOT EXISTS (SELECT * FROM movement WHERE account = 21)", &[]),
        ("SELECT owner FROM account WHERE id = 3 AND NOT EXISTS (SELECT 1 FROM movement WHERE id = 4)", &["owner 3"]),
        // No row gives NULL, which nothing is equal to.
        ("SELECT owner FROM account WHERE id = (SELECT account FROM movement WHERE id = 4)", &[]),
        ("SELECT count(*) FROM account WHERE id = (SELECT account FROM movement WHERE id = 6)", &["0"]),
        (
            "SELECT id FROM account \
             WHERE id IN (SELECT account FROM movement WHERE id BETWEEN 5 AND 8) ORDER BY 1",
            &["6", "8", "9"],
        ),
        ("SELECT id FROM account WHERE id IN (SELECT account FROM movement WHERE id = 4)", &[]),
        (
            "SELECT id FROM account \
             WHERE id >= (SELECT max(account) FROM movement WHERE id > 50) ORDER BY id LIMIT 2",
            &["21"],
        ),
        // In the list: names and types are those of the subquery.
        (
            "SELECT id, (SELECT max(sum) FROM movement WHERE account = 4), (SELECT day FROM movement WHERE id = 61) \
                AS last
             FROM account WHERE id = 2",
            &["2,99.00,2026-02-02"],
        ),
        ("SELECT *, (SELECT sum * 2 FROM movement WHERE id = 61) FROM account WHERE id = 21", &["21,owner \
            9,5.00,0,2.50"]),
        ("SELECT amount + (SELECT sum(sum) FROM movement WHERE account = 21) FROM account WHERE id = 21", &["6.25"]),
        ("SELECT EXISTS (SELECT 1 FROM movement WHERE account = 21)", &["t"]),
        ("SELECT NOT EXISTS (SELECT 1 FROM movement WHERE account = 21), 5 AS five", &["f,5"]),
        (
            "SELECT (SELECT count(*) FROM movement WHERE account = 21) + 1, \
             (SELECT owner FROM account WHERE id = 99)",
            &["2,NULL"],
        ),
        (
            "SELECT m.id FROM account a JOIN movement m ON m.account = a.id
             WHERE a.id = (SELECT account FROM movement WHERE id = 61) AND m.sum > 1",
            &["61"],
        ),
    ];
    for (sql, expected) in &statements {
        let without = rows(&mut session, sql).await;
        assert_eq!(planned(&database), before, "{sql}");
        assert_eq!(without, *expected, "{sql}");
    }
    // Also of what a block has changed itself.
    run(
        &mut session,
        "BEGIN; INSERT INTO movement VALUES (70, 5, 7, NULL); DELETE FROM movement WHERE id = 61",
    )
    .await;
    let own = "SELECT owner, (SELECT count(*) FROM movement WHERE account = 21) FROM account
               WHERE id = (SELECT account FROM movement WHERE id = 70)";
    assert_eq!(rows(&mut session, own).await, ["owner 1,0"]);
    run(&mut session, "ROLLBACK").await;
    assert!(rows(&mut session, own).await.is_empty());
    assert_eq!(planned(&database), before);
    let Outcome::Rows { schema, .. } = session.run(statements[12].0).await.unwrap().remove(0)
    else {
        panic!("no rows");
    };
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "max", "last"]);
    assert_eq!(planned(&database), before);
    // A plan gives the same.
    for (sql, expected) in &statements {
        run(&mut session, "SET look_up_rows = 0").await;
        assert_eq!(rows(&mut session, sql).await, *expected, "{sql}");
        run(&mut session, "RESET look_up_rows").await;
    }
    assert_eq!(planned(&database).0, before.0 + statements.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_with_subqueries_need_no_plan() {
    let (_directory, database, mut session) = bank().await;
    for (name, sql) in [
        (
            "read",
            "SELECT owner, $2::int FROM account WHERE id = (SELECT account FROM movement WHERE id = $1) AND amount > \
                $2",
        ),
        (
            "set",
            "UPDATE account SET last = (SELECT max(id) FROM movement WHERE account = $1) WHERE id = $1 RETURNING id, \
                last",
        ),
        ("go", "DELETE FROM movement WHERE account IN (SELECT id FROM account WHERE owner = $1)"),
    ] {
        session.prepare(name, sql, &[]).await.unwrap();
    }
    let before = planned(&database);
    for (name, values, expected) in [
        ("read", vec!["61", "1"], "owner 9,1"),
        ("read", vec!["61", "9"], ""),
        ("set", vec!["21"], "21,61"),
        ("set", vec!["7"], "7,NULL"),
        ("set", vec!["8"], "8,57"),
        ("go", vec!["owner 9"], "DELETE 1"),
        ("set", vec!["21"], "21,NULL"),
    ] {
        let values: Vec<Option<&str>> = values.into_iter().map(Some).collect();
        let found = match session.execute(name, &values).await.unwrap() {
            Outcome::Done { tag } => tag,
            Outcome::Rows { batches, .. } => {
                let batch = &batches[0];
                let mut shown = Vec::new();
                for column in batch.columns().iter().filter(|_| batch.num_rows() > 0) {
                    let text = cleave_host::value::value_text(column, 0).unwrap();
                    shown.push(text.unwrap_or_else(|| "NULL".to_owned()));
                }
                shown.join(",")
            }
        };
        assert_eq!(found, expected, "{name}");
        assert_eq!(planned(&database), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_with_subqueries_need_no_plan() {
    let (_directory, database, mut session) = bank().await;
    let before = planned(&database);
    for (sql, tag) in [
        (
            "UPDATE account SET last = (SELECT max(id) FROM movement WHERE account = 3), owner = 'x' WHERE id = 3",
            "UPDATE 1",
        ),
        (
            "UPDATE account SET amount = amount + (SELECT sum FROM movement WHERE id = 61) WHERE id = (SELECT \
                account FROM movement WHERE id = 61)",
            "UPDATE 1",
        ),
        (
            "UPDATE account SET last = 1 WHERE id IN (SELECT account FROM movement WHERE id IN (1, 2)) AND owner <> \
                'x'",
            "UPDATE 1",
        ),
        ("DELETE FROM account WHERE id IN (SELECT account FROM movement WHERE id = 5)", "DELETE 1"),
        (
            "DELETE FROM account WHERE id = 20 AND EXISTS (SELECT 1 FROM movement WHERE account = 20)",
            "DELETE 0",
        ),
        (
            "DELETE FROM movement WHERE id = 61 AND sum < (SELECT amount FROM account WHERE id = 21)",
            "DELETE 1",
        ),
    ] {
        let outcomes = run(&mut session, sql).await;
        let [Outcome::Done { tag: done }] = outcomes.as_slice() else { panic!("{outcomes:?}") };
        assert_eq!(done, tag, "{sql}");
        assert_eq!(planned(&database), before, "{sql}");
    }
    let changed =
        "SELECT id, owner, amount, last FROM account WHERE id IN (2, 3, 6, 20, 21) ORDER BY id";
    assert_eq!(
        rows(&mut session, changed).await,
        ["2,owner 2,20.00,1", "3,x,30.00,52", "20,owner 0,200.00,NULL", "21,owner 9,6.25,0"]
    );
    assert_eq!(planned(&database), before);
    assert_eq!(row(&mut session, "SELECT count(*) FROM movement").await, "59");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_that_are_none_of_this_way_are_planned() {
    let (_directory, database, mut session) = bank().await;
    let several =
        "SELECT owner FROM account WHERE id = (SELECT account FROM movement WHERE id IN (1, 2))";
    assert_eq!(refused(&mut session, several).await.sqlstate(), "21000");
    let several =
        "UPDATE account SET last = (SELECT id FROM movement WHERE account = 1) WHERE id = 1";
    assert_eq!(refused(&mut session, several).await.sqlstate(), "21000");
    let unknown = "SELECT owner FROM account WHERE id = (SELECT none FROM movement WHERE id = 1)";
    assert_eq!(refused(&mut session, unknown).await.sqlstate(), "42703");
    for (sql, expected) in [
        // Of the rows around them.
        (
            "SELECT id, (SELECT count(*) FROM movement m WHERE m.account = a.id) FROM account a WHERE id = 21",
            "21,1",
        ),
        (
            "SELECT count(*) FROM account a WHERE id = 21 AND EXISTS (SELECT 1 FROM movement m WHERE m.account = \
                a.id AND m.id = 61)",
            "1",
        ),
        // NULL is not false there.
        (
            "SELECT count(*) FROM account WHERE id = 21 AND id NOT IN (SELECT account FROM movement WHERE id = 6)",
            "0",
        ),
        // Any row of a table.
        ("SELECT count(*) FROM account WHERE id = (SELECT max(account) FROM movement)", "1"),
    ] {
        let before = planned(&database).0;
        assert_eq!(row(&mut session, sql).await, expected, "{sql}");
        assert_eq!(planned(&database).0, before + 1, "{sql}");
    }
    let sql = "SELECT owner FROM account WHERE id = (SELECT account FROM movement WHERE id = 61)";
    let look_up = "Range look-up on account by index account_pkey (id), on the host, without a plan up to 1000 rows, \
        with one beyond; \
                   before it, a range look-up on movement by index movement_pkey (id), on the host, without a plan \
        up to 1000 rows, with \
                   one beyond";
    assert_eq!(rows(&mut session, &format!("EXPLAIN {sql}")).await, [look_up]);
    let sql = "DELETE FROM account WHERE id = (SELECT account FROM movement WHERE id = 61)";
    let explained = rows(&mut session, &format!("EXPLAIN {sql}")).await;
    assert_eq!(explained, [format!("Delete by {}", look_up.replacen("Range", "range", 1))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_subquery_reads_counts_at_level_serializable() {
    let (_directory, database, mut one) = bank().await;
    let mut two = database.session();
    for (session, own, other) in [(&mut one, 1, 2), (&mut two, 2, 1)] {
        run(session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
        // Each reads by a subquery what the other one writes.
        let sql = format!(
            "UPDATE account SET last = (SELECT max(last) FROM account WHERE id = {other}) WHERE id = {own}"
        );
        run(session, &sql).await;
    }
    run(&mut one, "COMMIT").await;
    assert_eq!(refused(&mut two, "COMMIT").await.sqlstate(), "40001");
}
