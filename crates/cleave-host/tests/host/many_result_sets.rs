//! Tests of very many result sets: all of them are listed, those that are held stay within their limits, and nothing is
//! left of them in the end.

use std::time::Duration;

use cleave_host::Database;

use crate::support::{assert_no_leak_soon, checks_out, fresh, row, rows, run, sorted};

/// Cursors of one session, at most 1,000, each with a result set; and statements that hold one or two. More would take
/// long to plan.
const CURSORS: usize = 400;
const STATEMENTS: usize = 150;

/// Bytes of held results on the device, and in memory.
const DEVICE_BYTES: usize = 200 << 10;
const CACHE_BYTES: usize = 8 << 10;

fn reserved(database: &Database) -> usize {
    database.query_runtime().memory_pool.reserved()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_result_sets_are_listed_bounded_and_gone() {
    let (directory, database) = fresh().await;
    let (mut cursors, mut other) = (database.session(), database.session());
    run(
        &mut other,
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 2000) AS g (i); CHECKPOINT",
    )
    .await;
    let before = reserved(&database);
    // A few rows are made ahead, a batch each; the others are read from the device.
    run(&mut cursors, "SET stages = always; SET batch_size = 1").await;
    for number in 0..CURSORS {
        let query = format!("SELECT id, v FROM t WHERE id > {number} AND id <= {number} + 12");
        run(&mut cursors, &format!("DECLARE c{number} CURSOR WITH HOLD FOR {query}")).await;
    }
    let listed = "SELECT count(*), sum(rows), count(DISTINCT name), min(state)
        FROM cleave.result_sets WHERE owner = 'cursor'";
    let all = format!("{CURSORS},{},{CURSORS},in use", 12 * CURSORS);
    let mut shown = row(&mut other, listed).await;
    for _ in 0..1000 {
        if shown == all {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        shown = row(&mut other, listed).await;
    }
    assert_eq!(shown, all);
    run(&mut other, "DELETE FROM t WHERE id % 2 = 0").await;
    for number in [0, 7, CURSORS - 1] {
        let fetched = sorted(&mut cursors, &format!("FETCH ALL FROM c{number}")).await;
        let expected = (number + 1..=number + 12).map(|id| format!("{id},{}", id % 7));
        let mut expected: Vec<_> = expected.collect();
        expected.sort_unstable();
        assert_eq!(fetched, expected);
    }

    let mut holding = database.session();
    run(
        &mut holding,
        &format!(
            "SET stages = always; SET result_reuse = on; SET look_up_rows = 0;
             SET result_device_bytes = '{DEVICE_BYTES}B'; SET result_cache_bytes = '{CACHE_BYTES}B'"
        ),
    )
    .await;
    let held = "SELECT count(*) FILTER (WHERE device = 'embedded'), count(*) FILTER (WHERE device = 'host'),
        sum(bytes) FILTER (WHERE device = 'embedded'), sum(bytes) FILTER (WHERE device = 'host')
        FROM cleave.result_sets WHERE owner = 'result cache'";
    for number in 0..STATEMENTS {
        let staged = format!(
            "WITH x AS MATERIALIZED (SELECT id, v FROM t WHERE id > {number} AND id <= {number} + 2)
             SELECT sum(id) FROM x"
        );
        // Of two numbers one is odd. The second time it is held as a whole.
        let odd = (number + 1 + number % 2).to_string();
        for _ in 0..2 {
            assert_eq!(row(&mut holding, &staged).await, odd, "{number}");
        }
    }
    let held = row(&mut other, held).await;
    let figures: Vec<usize> = held.split(',').map(|figure| figure.parse().unwrap()).collect();
    let [sets, results, set_bytes, result_bytes] = figures[..] else { panic!("{held}") };
    assert!((10..STATEMENTS).contains(&sets) && results > 2, "{held}");
    assert!(set_bytes <= DEVICE_BYTES && result_bytes <= CACHE_BYTES, "{held}");

    let released = row(&mut holding, "SELECT cleave.release_results()").await;
    assert_eq!(released, (sets + results).to_string());
    run(&mut cursors, "CLOSE ALL").await;
    for _ in 0..1000 {
        if row(&mut other, "SELECT count(*) FROM cleave.result_sets").await == "0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        rows(&mut other, "SELECT name, owner, state FROM cleave.result_sets").await,
        [""; 0]
    );
    drop((cursors, holding, other));
    assert_no_leak_soon(&database).await;
    for _ in 0..1000 {
        if reserved(&database) == before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(reserved(&database), before);
    drop(database);
    checks_out(directory.path()).await;
}
