//! How far a statement is: what a session's handle reads when it has ended.

use crate::support::{batches, fragments, fresh, numbered, rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_index_builds_files_and_backups_are_counted_to_their_end() {
    let (_directory, database) = fresh().await;
    let beside = tempfile::tempdir().unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text); SET split = host").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    let progress = session.progress();
    let file = beside.path().join("rows.csv");
    std::fs::write(&file, "100001,one\n100002,two\n").unwrap();
    let copy = format!("COPY t FROM '{}'", file.display());
    let backup = format!("BACKUP TO '{}'", beside.path().join("backup").display());
    for (sql, total) in [
        ("SELECT count(*) FROM t WHERE note LIKE '%7%'", None),
        ("CREATE INDEX t_note ON t (note)", None),
        (copy.as_str(), Some(22)),
        (backup.as_str(), None),
    ] {
        progress.begin();
        run(&mut session, sql).await;
        let (done, all) = progress.read();
        assert!(all > 0 && done == all, "{sql}: {done} of {all}");
        assert!(total.is_none_or(|total| total == all), "{sql}: {all}");
    }
    progress.begin();
    assert_eq!(progress.read(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_device_runs_alone_is_counted_to_its_end() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    let progress = session.progress();
    for split in ["h0", "ndp"] {
        run(&mut session, &format!("SET split = {split}")).await;
        progress.begin();
        let sql = "EXPLAIN ANALYZE SELECT id, note FROM t WHERE note LIKE '%7%'";
        let plan = rows(&mut session, sql).await.join("\n");
        let (done, all) = progress.read();
        assert!(plan.contains("on device") && !plan.contains("ran on the host: "), "{plan}");
        assert!(all > 0 && done == all, "{split}: {done} of {all}");
    }
    run(&mut session, "SET update_placement = device").await;
    let update = "UPDATE t SET note = 'none' WHERE note LIKE '%7%'";
    for sql in [update, "DELETE FROM t WHERE note = 'none'"] {
        let before = fragments(&database).await;
        progress.begin();
        run(&mut session, sql).await;
        let (done, all) = progress.read();
        assert!(fragments(&database).await > before, "{sql}: no device ran it");
        assert!(all > 0 && done == all, "{sql}: {done} of {all}");
    }
}
