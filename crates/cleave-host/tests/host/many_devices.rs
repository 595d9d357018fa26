//! Tests of a table over as many devices as it can have, each of one core.

use std::sync::Arc;

use cleave_device::{ListenOptions, Listener, Node, Runtime, RuntimeOptions};
use cleave_fragment::link::Token;
use cleave_host::Database;
use cleave_host::activity::Act;
use cleave_media::Memory;
use tokio::task::JoinSet;

use crate::devices::{TOKEN, anywhere, remote, token_file};
use crate::support::{assert_no_leak, fresh, row, rows, run};

const COUNT: u8 = 64;

const STATEMENTS: [&str; 5] = [
    "SELECT count(*), sum(id), min(note), max(v) FROM t",
    "SELECT v % 50, count(*), sum(id) FROM t WHERE note LIKE '%7%' GROUP BY 1 ORDER BY 1",
    "SELECT id, note FROM t WHERE v = 17 ORDER BY id",
    "SELECT id FROM t ORDER BY note DESC, id LIMIT 7",
    "SELECT k.name, count(*), max(t.id) FROM t JOIN kinds k ON k.v = t.v GROUP BY 1 ORDER BY 1",
];

/// Attaches the devices `d0`, `d1` and so on, those of a node; they end with what is returned.
async fn attach_all(database: &Arc<Database>, outside: &std::path::Path) -> JoinSet<()> {
    let token = token_file(outside, TOKEN);
    let node = Node::new("n");
    let mut listeners = JoinSet::new();
    for number in 0..COUNT {
        let options = RuntimeOptions {
            cores: 1,
            io_threads: 1,
            fragment_memory_bytes: 16 << 20,
            filter_history_bytes: 1 << 20,
            ..RuntimeOptions::new([number + 100; 16])
        };
        let device = Runtime::in_node(Arc::new(Memory::new()), options, &node).unwrap();
        let options = ListenOptions {
            address: anywhere(),
            identity: None,
            token: Token::new(TOKEN, "the test").unwrap(),
            rate_cap: None,
            log: Arc::new(|_: &str| {}),
        };
        let listener = Listener::bind(device, options).await.unwrap();
        let way = remote(listener.local_address(), token.clone());
        listeners.spawn(listener.serve());
        database.add_device(&format!("d{number}"), way).await.unwrap();
    }
    listeners
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_devices_of_one_core_are_read_and_changed_as_one() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database) = fresh().await;
    let _devices = attach_all(&database, outside.path()).await;
    let mut session = database.session();
    let names: Vec<String> = (0..COUNT).map(|number| format!("d{number}")).collect();
    run(
        &mut session,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, v int, note text) WITH (devices = ({}));
             INSERT INTO t SELECT i, i % 997, 'note ' || i FROM generate_series(1, 32000) AS s(i);
             CREATE TABLE kinds (v int PRIMARY KEY, name text);
             INSERT INTO kinds SELECT i, 'kind ' || i % 3 FROM generate_series(1, 30) AS s(i);
             CHECKPOINT",
            names.join(", ")
        ),
    )
    .await;
    let placed =
        "SELECT count(*), count(DISTINCT device) FROM cleave.tablets WHERE table_name = 't'";
    assert_eq!(row(&mut session, placed).await, "64,64");
    for sql in STATEMENTS {
        run(&mut session, "SET split = host; RESET stealing; RESET filter_history").await;
        let expected = rows(&mut session, sql).await;
        for (split, when) in [("auto", "on"), ("h0", "always"), ("h0", "off")] {
            let set =
                format!("SET split = {split}; SET stealing = {when}; SET filter_history = {when}");
            run(&mut session, &set).await;
            database.buffer_pool().clear();
            assert_eq!(rows(&mut session, sql).await, expected, "{split}, {when}: {sql}");
        }
    }

    run(&mut session, "RESET split; SET update_placement = device; BEGIN").await;
    run(&mut session, "UPDATE t SET v = v + 1000").await;
    run(&mut session, "ROLLBACK; UPDATE t SET v = v + 1").await;
    assert!(database.activity().count(Act::UpdateFragment) >= 2 * u64::from(COUNT));
    let sum = "SELECT sum(v - id % 997), min(v - id % 997), max(v - id % 997) FROM t";
    assert_eq!(row(&mut session, sum).await, "32000,1,1");
    run(&mut session, "CHECKPOINT").await;
    assert_eq!(row(&mut session, sum).await, "32000,1,1");
    assert_no_leak(&database);
}
