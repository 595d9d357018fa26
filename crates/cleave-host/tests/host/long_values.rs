//! Tests of rows with long values: operators combine batches by rows, so such batches have fewer rows.

use cleave_host::Outcome;

use crate::support::{fresh, row, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_long_values_have_few_rows() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, a text)").await;
    let filled =
        "INSERT INTO t SELECT g, repeat(md5(g::text), 31250) FROM generate_series(1, 100) AS s(g)";
    run(&mut session, filled).await;
    for split in ["host", "h0", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let mut outcomes =
            session.run("SELECT id, a FROM t WHERE right(a, 1) >= '0'").await.unwrap();
        let Outcome::Rows { batches, .. } = outcomes.remove(0) else { panic!("no rows") };
        let counts: Vec<usize> = batches.iter().map(|batch| batch.num_rows()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 100, "{split}");
        // 32 MiB of a megabyte each.
        assert!(counts.iter().all(|count| *count <= 33), "{split}: {counts:?}");
    }
    run(&mut session, "RESET split; DELETE FROM t WHERE right(a, 1) >= '0'").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "0");
}
