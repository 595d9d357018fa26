//! Clients that go away in the midst of large results: their sessions end, and nothing stays of what was written for
//! them: no result set, no space on the device, no memory.

use super::activity::until;
use super::client::{Server, read};

/// 12 MB of text.
const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, note text);
    INSERT INTO t SELECT i, lpad(i::text, 600, 'x') FROM generate_series(1, 20000) AS g (i)";
/// Each gives 24 MB, of rows that a device has written.
const STAGED: &str = "WITH x AS MATERIALIZED (SELECT id, note FROM t)
    SELECT a.note, b.note FROM x a JOIN x b ON a.id = b.id";
const DECLARE: &str =
    "DECLARE c CURSOR WITH HOLD FOR SELECT note, id, note AS again FROM t ORDER BY id DESC";
const FETCH: &str = "FETCH ALL FROM c";

/// What is in use on the device.
const IN_USE: &str =
    "SELECT runs || ' ' || (used_bytes - retired_bytes) || ' ' || free_memory_bytes
    FROM cleave.devices";
const ROUNDS: usize = 9;

#[test]
fn clients_that_vanish_leave_nothing_of_their_results() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--query-memory", "64MB", "--buffer-pool", "8MB"]);
    let mut other = server.client();
    assert_eq!(other.query(TABLE).tags, ["CREATE TABLE", "INSERT 0 20000"]);
    assert_eq!(other.query("CHECKPOINT").tags, ["CHECKPOINT"]);
    let in_use = other.value(IN_USE);
    let mut resident = Vec::new();
    for round in 0..ROUNDS {
        let mut client = server.client();
        client.query("SET stages = always; SET batch_size = 256");
        if round % 3 == 0 {
            // Nobody waits for the rows.
            assert_eq!(client.query(DECLARE).tags, ["DECLARE CURSOR"]);
        } else {
            let (query, owner) = match round % 3 {
                1 => (STAGED, "run"),
                _ => (FETCH, "cursor"),
            };
            if query == FETCH {
                client.query(DECLARE);
            }
            client.send('Q', format!("{query}\0").as_bytes());
            let kinds: String = (0..10).map(|_| read(&mut client.stream).unwrap().0).collect();
            assert_eq!(kinds, "TDDDDDDDDD", "{query}");
            assert_eq!(other.value("SELECT owner FROM cleave.result_sets"), owner);
        }
        drop(client);
        until(&mut other, "SELECT count(*) FROM pg_stat_activity", "1");
        until(&mut other, "SELECT count(*) FROM cleave.result_sets", "0");
        until(&mut other, IN_USE, &in_use);
        resident.push(server.resident_bytes());
    }
    // The first ones fill buffers. Six that left the rows of their table behind would take 72 MB.
    assert!(resident[ROUNDS - 1] < resident[2] + (48 << 20), "{resident:?}");
    assert_eq!(other.value("SELECT count(*) || ' ' || max(length(note)) FROM t"), "20000 600");
}
