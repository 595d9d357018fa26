//! Tests of the table `cleave.statements`: statements by text without constants, what they cost and to whom they are
//! shown; and of `cleave.locks` and `cleave.fragments` beside it.

use cleave_host::Session;

use crate::devices::with_nas;
use crate::rights::as_user;
use crate::support::{beside, fresh, refused, row, rows, run, waits};

/// Calls, failures and rows of the statements whose text is like this.
async fn counted(session: &mut Session, text: &str) -> Vec<String> {
    let text = text.replace('\'', "''");
    let query = format!(
        "SELECT text, calls, failures, rows FROM cleave.statements WHERE text LIKE '{text}' ORDER BY text"
    );
    rows(session, &query).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_differ_in_constants_are_counted_together() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (a int PRIMARY KEY, b text)").await;
    run(&mut session, "INSERT INTO t VALUES (1, 'x'); INSERT INTO t VALUES (2, 'it''s')").await;
    // A look-up that was seen before takes another way than the first.
    for value in [1, 1, 2, 3] {
        run(&mut session, &format!("SELECT b FROM t WHERE a = {value} -- of ada")).await;
    }
    session.prepare("p", "SELECT b FROM t WHERE a = $1 AND a < 9", &[None]).await.unwrap();
    for value in ["1", "2", "3"] {
        session.execute("p", &[Some(value)]).await.unwrap();
    }
    let mut watcher = database.session();
    watcher.look_on();
    run(&mut watcher, "SELECT b FROM t WHERE a = 1; SELECT b FROM t WHERE a < 2 AND b > 'x'").await;
    refused(&mut session, "INSERT INTO t VALUES (1, 'again')").await;
    refused(&mut session, "SELECT 7 / (a - 1) FROM t WHERE b = 'x'").await;
    run(&mut session, "SELECT a FROM t WHERE a IN (1, 2); SELECT a FROM t WHERE a IN (1, 2, 3, 4)")
        .await;
    for (text, expected) in [
        ("INSERT INTO t%", "INSERT INTO t VALUES ($1, $2),3,1,2"),
        ("SELECT b FROM t WHERE a = $1", "SELECT b FROM t WHERE a = $1,4,0,3"),
        ("%a < $2", "SELECT b FROM t WHERE a = $1 AND a < $2,3,0,2"),
        ("SELECT $1 / %", "SELECT $1 / (a - $2) FROM t WHERE b = $3,1,1,0"),
        ("% IN (%", "SELECT a FROM t WHERE a IN ($1, ...),2,0,4"),
    ] {
        assert_eq!(counted(&mut session, text).await, [expected], "{text}");
    }
    assert!(counted(&mut session, "% a < $1 AND %").await.is_empty(), "who looks on is counted");
    let sound = "SELECT count(*) FROM cleave.statements WHERE role IS NULL AND min_ms BETWEEN 0 AND mean_ms * 1.001 \
         AND mean_ms <= max_ms * 1.001 AND max_ms <= total_ms * 1.001";
    let all = row(&mut session, "SELECT count(*) FROM cleave.statements").await;
    let all = all.parse::<u64>().unwrap() + 1;
    assert_eq!(row(&mut session, sound).await, all.to_string());
    let kinds = "SELECT kind FROM cleave.statements WHERE text LIKE '%INTO t%' OR text LIKE 'CREATE%' ORDER BY 1";
    assert_eq!(rows(&mut session, kinds).await, ["definition", "insert"]);
    let forgotten = row(&mut session, "SELECT cleave.reset_statements()").await;
    assert!(forgotten.parse::<u64>().unwrap() > 5, "{forgotten}");
    assert!(counted(&mut session, "INSERT%").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_devices_tell_their_split_and_what_crossed_the_link() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = Box::pin(with_nas(outside.path())).await;
    let mut session = database.session();
    run(&mut session, "SET split = h0; SET stealing = off").await;
    let query = "SELECT count(*) FROM far WHERE note LIKE '%77%'";
    run(&mut session, query).await;
    // By rows that are streamed, and given up.
    let parsed = cleave_host::statement::parse_script_in(query, None).unwrap().remove(0);
    drop(session.start(parsed).await.unwrap());
    let figures = "SELECT calls, split, link_bytes > 0, device_cpu_ms > 0, refused FROM cleave.statements \
         WHERE text = 'SELECT count(*) FROM far WHERE note LIKE $1'";
    assert_eq!(row(&mut session, figures).await, "2,h0,t,t,0");
    let there = "SELECT count(*) FROM cleave.fragments WHERE error IS NULL AND device NOT IN ('embedded', 'nas')";
    assert_eq!(row(&mut session, there).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_others_are_hidden_and_passwords_from_all() {
    let (_directory, database) = fresh().await;
    let mut owner = database.session();
    run(&mut owner, "CREATE ROLE ada LOGIN PASSWORD 'pencil'; CREATE ROLE bob LOGIN").await;
    let (mut ada, mut bob) = (as_user(&database, "ada").await, as_user(&database, "bob").await);
    run(&mut ada, "SELECT 'of ada'").await;
    let shown = "SELECT role, text, statement_id IS NULL FROM cleave.statements \
         WHERE calls = 1 AND kind = 'select' AND role = 'ada'";
    assert_eq!(rows(&mut bob, shown).await, ["ada,<insufficient privilege>,t"]);
    assert_eq!(rows(&mut ada, shown).await, ["ada,SELECT $1,f"]);
    assert_eq!(rows(&mut owner, shown).await.len(), 2);
    let all = rows(&mut owner, "SELECT text FROM cleave.statements").await.join("\n");
    assert!(all.contains("CREATE ROLE ada LOGIN PASSWORD $1") && !all.contains("pencil"), "{all}");
    // Everybody forgets what he may see.
    run(&mut bob, "SELECT cleave.reset_statements()").await;
    assert_eq!(rows(&mut owner, shown).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_locks_say_for_whom() {
    let (_directory, database) = fresh().await;
    let mut owner = database.session();
    run(&mut owner, "CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1)").await;
    run(&mut owner, "BEGIN; LOCK TABLE t IN EXCLUSIVE MODE").await;
    let mut waiting = beside(database.session(), "UPDATE t SET b = 2 WHERE a = 1");
    assert!(waits(&mut waiting).await);
    let locks = "SELECT kind, table_name, mode, granted, pid, blocked_by FROM cleave.locks WHERE table_name = 't' \
         ORDER BY granted DESC";
    let mut looking = database.session();
    let found = rows(&mut looking, locks).await;
    assert_eq!(found[0], "table,t,EXCLUSIVE,t,0,NULL");
    assert_eq!(found[1], "table,t,ROW EXCLUSIVE,f,0,0");
    run(&mut owner, "COMMIT").await;
    let (_, outcome) = waiting.await.unwrap();
    assert_eq!(outcome, "done");
    assert!(database.locks().figures().waits > 0);
}
