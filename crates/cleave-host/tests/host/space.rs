//! Tests of physical space: nothing leaks, nothing is reused too early.

use crate::support::{assert_no_leak, batches, fresh, numbered, open, row, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_tables_give_back_their_space() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    let device = std::sync::Arc::clone(&database.devices()[0]);
    let mut marks = Vec::new();
    for _ in 0..5 {
        run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
        session.load("t", batches(vec![numbered(0..50_000)]), None).await.unwrap();
        assert_no_leak(&database);
        marks.push(device.space().high_water);
        run(&mut session, "DROP TABLE t").await;
    }
    assert!(marks.windows(2).all(|pair| pair[0] == pair[1]), "the media does not grow: {marks:?}");
    run(&mut session, "CREATE TABLE u (id int)").await;
    assert_eq!(device.space().used_blocks, 0);
    let left: Vec<_> = std::fs::read_dir(directory.path().join("segments")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_that_a_reader_may_read_is_not_reused() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..50_000)]), None).await.unwrap();
    let held = database.catalog();
    let extents = held.extents(cleave_host::DeviceId::EMBEDDED);
    run(&mut session, "DROP TABLE t").await;
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..50_000)]), None).await.unwrap();
    let taken = database.catalog().extents(cleave_host::DeviceId::EMBEDDED);
    for old in &extents {
        assert!(taken.iter().all(|new| !new.overlaps(*old)), "{old} is still held by a reader");
    }
    assert!(database.devices()[0].space().retired_blocks > 0);
    drop(held);
    run(&mut session, "CREATE TABLE other (id int)").await;
    assert_eq!(database.devices()[0].space().retired_blocks, 0);
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "50000");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_reuse_the_space_of_tails_they_replaced() {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    for id in 0..200 {
        run(&mut session, &format!("INSERT INTO t VALUES ({id}, 'a note')")).await;
        if id % 5 == 0 {
            run(&mut session, "CHECKPOINT").await;
        }
    }
    // 200 rewritten tails of up to 16 KiB would be 800 blocks.
    let space = database.devices()[0].space();
    assert!(space.high_water < 80, "{space:?}");
    drop((session, database));
    let database = open(directory.path()).await;
    assert_no_leak(&database);
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t").await, "200");
}
