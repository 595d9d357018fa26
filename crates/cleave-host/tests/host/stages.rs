//! Tests of stages: queries of WITH that a device writes before the rest is planned. They give the rows of the same
//! statement without stages, leave no space behind, and are used again only while their tables have the same rows.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::activity::Act;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_host::Database;
use cleave_host::session::Session;
use cleave_media::BLOCK_SIZE;

use crate::devices::{Served, with_nas};
use crate::support::{assert_no_leak_soon, batches, numbered, refused, row, rows, run};

/// Its stage has every second row of the table, and the rest a few of them.
const STAGED: &str = "WITH x AS (SELECT id, note, id % 10 AS d FROM far WHERE id % 2 = 0)
    SELECT count(*), sum(a.id), min(a.note) FROM x a JOIN x b ON a.id = b.id + 2 WHERE b.d < 5";

/// How many stages were made, and how many were there already.
fn made(database: &Database) -> (u64, u64) {
    let activity = database.activity();
    (activity.count(Act::Stage), activity.count(Act::ReusedStage))
}

async fn held(session: &mut Session) -> String {
    let sets =
        "SELECT count(*), sum(bytes) > 0 FROM cleave.result_sets WHERE owner = 'result cache'";
    row(session, sets).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_those_of_the_statement_without_stages() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    let several = "WITH x AS MATERIALIZED (SELECT id % 100 AS g, count(*) AS n FROM far GROUP BY 1),
         y AS MATERIALIZED (SELECT g, n FROM x WHERE g < 50), z AS MATERIALIZED (SELECT id FROM near)
         SELECT x.g, y.n, z.id FROM x JOIN y ON x.n = y.n AND x.g = y.g + 1, z ORDER BY 1";
    let ordered =
        "WITH x AS MATERIALIZED (SELECT id FROM far ORDER BY id DESC LIMIT 20) SELECT id FROM x";
    let random =
        "WITH x AS (SELECT random() AS r, id FROM far WHERE id < 100) SELECT count(*) FROM x
         JOIN x AS y ON x.r = y.r";
    let failing = "WITH x AS MATERIALIZED (SELECT 1 / (id - 7) AS q FROM far WHERE id < 9) SELECT sum(q) FROM x";
    for (sql, stages) in [(STAGED, 1), (several, 3), (ordered, 0), (random, 0)] {
        run(&mut session, "SET stages = off").await;
        let expected = rows(&mut session, sql).await;
        for split in ["auto", "h0", "h1"] {
            let before = made(&database).0;
            run(&mut session, &format!("SET stages = always; SET split = {split}")).await;
            assert_eq!(rows(&mut session, sql).await, expected, "{sql}, {split}");
            assert_eq!(made(&database).0 - before, stages, "{sql}, {split}");
        }
        run(&mut session, "SET split = auto").await;
    }
    let error = session.run(failing).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22012", "{error}");
    let plan = rows(&mut session, &format!("EXPLAIN VERBOSE {STAGED}")).await.concat();
    assert!(plan.contains("x: to be written to nas before the rest is planned: about"), "{plan}");
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {STAGED}")).await.concat();
    assert!(
        plan.contains("x: on nas: 10001 rows") && plan.contains("TableScanExec: WITH x"),
        "{plan}"
    );
    // What a cursor has still to give stays; readers of other versions are no hindrance.
    run(
        &mut session,
        "BEGIN; DECLARE c CURSOR FOR WITH x AS MATERIALIZED (SELECT id FROM far) SELECT id FROM x",
    )
    .await;
    run(&mut database.session(), "DELETE FROM far; VACUUM far").await;
    let shown = "SELECT owner, state, rows, device FROM cleave.result_sets";
    assert_eq!(row(&mut session, shown).await, "run,in use,20001,nas");
    assert_eq!(rows(&mut session, "FETCH ALL FROM c").await.len(), 20_001);
    run(&mut session, "COMMIT").await;
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_is_used_again_while_its_tables_have_the_same_rows() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = with_nas(outside.path()).await;
    let (mut session, mut plain) = (database.session(), database.session());
    run(&mut session, "SET stages = always; SET result_cache_bytes = 0; SET result_reuse = on")
        .await;
    run(&mut session, "CREATE VIEW v AS SELECT id, note FROM far").await;
    let over_view = "WITH x AS MATERIALIZED (SELECT id FROM v) SELECT count(*), sum(id) FROM x";
    let again = |database: &Arc<Database>| made(database).1;
    for change in [
        "SELECT 1",
        "INSERT INTO far VALUES (30000, 'more')",
        "DELETE FROM far WHERE id = 4",
        "UPDATE far SET note = 'other' WHERE id = 6",
        "ALTER TABLE far RENAME TO other; ALTER TABLE near RENAME TO far",
        "ALTER TABLE far RENAME TO near; ALTER TABLE other RENAME TO far",
        "CREATE OR REPLACE VIEW v AS SELECT id + 1 AS id, note FROM far WHERE id < 100",
    ] {
        run(&mut plain, change).await;
        for sql in [STAGED, over_view] {
            let expected = rows(&mut plain, sql).await;
            for _ in 0..2 {
                assert_eq!(rows(&mut session, sql).await, expected, "{sql} after {change}");
            }
            let before = again(&database);
            assert_eq!(rows(&mut session, sql).await, expected, "{sql} after {change}");
            // Where one has few rows, it may lie elsewhere.
            assert_eq!(again(&database) - before, 1, "{sql} after {change}");
        }
    }
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {STAGED}")).await.concat();
    assert!(plan.contains("from result set") && plan.contains("ago, saves"), "{plan}");
    // Neither another role's, nor beside uncommitted changes.
    let before = made(&database);
    run(&mut session, "CREATE ROLE ada; GRANT SELECT ON far TO ada; SET ROLE ada").await;
    rows(&mut session, STAGED).await;
    run(&mut session, "RESET ROLE; BEGIN; DELETE FROM far WHERE id = 8").await;
    rows(&mut session, STAGED).await;
    run(&mut session, "ROLLBACK").await;
    assert_eq!(made(&database), (before.0 + 2, before.1));
    // Nor of somebody who may not read the table any more.
    let (granted, revoked) = (
        [
            "GRANT SELECT ON far TO ada",
            "CREATE ROLE readers; GRANT SELECT ON far TO readers; GRANT readers TO ada",
        ],
        ["REVOKE SELECT ON far FROM ada", "REVOKE readers FROM ada"],
    );
    for (grant, revoke) in granted.into_iter().zip(revoked) {
        run(&mut session, &format!("{grant}; SET ROLE ada")).await;
        rows(&mut session, STAGED).await;
        let before = again(&database);
        rows(&mut session, STAGED).await;
        assert_eq!(again(&database) - before, 1, "{grant}");
        run(&mut plain, revoke).await;
        assert_eq!(refused(&mut session, STAGED).await.sqlstate(), "42501", "{revoke}");
        run(&mut session, "RESET ROLE").await;
    }
    // A device that was restarted may have lost it.
    let address = served.address;
    served.stop().await;
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    let (before, expected) = (made(&database), rows(&mut plain, STAGED).await);
    assert_eq!(rows(&mut session, STAGED).await, expected);
    assert_eq!(made(&database), (before.0 + 1, before.1));
    assert_ne!(held(&mut session).await, "0,NULL");
    run(&mut session, "SET result_device_bytes = 0").await;
    run(&mut plain, "DELETE FROM far WHERE id = 10").await;
    rows(&mut session, STAGED).await;
    run(&mut plain, "DROP TABLE far CASCADE; DROP DEVICE nas").await;
    assert_eq!(held(&mut session).await, "0,NULL");
}

/// Overwrites what the device has of no table.
async fn damage_what_is_unnamed(database: &Database, media: &Path) {
    let catalog = database.snapshot(SnapshotKind::Flushed).await.unwrap();
    let device = database.device_named("nas").unwrap();
    let named = catalog.extents(device.id());
    let is_named =
        |block: u64| named.iter().any(|extent| (extent.start.0..extent.end().0).contains(&block));
    let first = named.iter().map(|extent| extent.start.0).min().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(media).unwrap();
    for block in (first..device.space().high_water).filter(|block| !is_named(*block)) {
        file.write_all_at(&[0x5a; BLOCK_SIZE], block * BLOCK_SIZE as u64).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_whose_pages_are_damaged_is_made_again() {
    let outside = tempfile::tempdir().unwrap();
    let media = outside.path().join("nas.media");
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let (mut session, mut plain) = (database.session(), database.session());
    run(&mut plain, "CHECKPOINT; SET stages = off").await;
    let expected = rows(&mut plain, STAGED).await;
    run(
        &mut session,
        "SET stages = always; SET result_cache_bytes = 0; SET result_reuse = on; SET split = h0",
    )
    .await;
    assert_eq!(rows(&mut session, STAGED).await, expected);
    let before = made(&database);
    damage_what_is_unnamed(&database, &media).await;
    for _ in 0..3 {
        assert_eq!(rows(&mut session, STAGED).await, expected);
    }
    // It was found and could not be read, was made, and was found again.
    assert_eq!(made(&database), (before.0 + 1, before.1 + 2));
    // The same of one that is made and not read yet.
    run(&mut session, "SET result_reuse = off").await;
    let cursor = "WITH x AS MATERIALIZED (SELECT id, note FROM far) SELECT id FROM x";
    run(&mut session, &format!("BEGIN; DECLARE c CURSOR FOR {cursor}")).await;
    damage_what_is_unnamed(&database, &media).await;
    assert_eq!(rows(&mut session, "FETCH ALL FROM c").await.len(), 20_001);
    run(&mut session, "COMMIT").await;
    database.give_up_versions();
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_cursor_is_written_while_nobody_waits() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let (mut session, mut other) = (database.session(), database.session());
    run(&mut session, "SET stages = always; BEGIN; INSERT INTO far VALUES (30000, 'own')").await;
    let query = "SELECT note AS n, id, id AS n FROM far ORDER BY id DESC";
    run(&mut session, &format!("DECLARE c CURSOR WITH HOLD FOR {query}")).await;
    run(&mut session, "DECLARE gone CURSOR WITH HOLD FOR SELECT id FROM far").await;
    run(&mut session, "DECLARE few CURSOR WITH HOLD FOR SELECT id FROM far ORDER BY 1 LIMIT 2")
        .await;
    run(&mut session, "CLOSE gone; COMMIT").await;
    let sets = "SELECT name, owner, rows, device FROM cleave.result_sets";
    for _ in 0..500 {
        let shown = rows(&mut other, sets).await;
        if shown.len() == 1 && shown[0].starts_with("c ") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shown = row(&mut other, sets).await;
    assert!(shown.starts_with("c ") && shown.ends_with(",cursor,20002,nas"), "{shown}");
    // It keeps no page of the table.
    assert_eq!(row(&mut session, "FETCH 1 FROM few").await, "0");
    run(&mut session, "CLOSE few").await;
    run(&mut other, "DELETE FROM far WHERE id < 30000; VACUUM far; CHECKPOINT").await;
    let nas = database.device_named("nas").unwrap();
    run(&mut other, "INSERT INTO near VALUES (7, 'reclaims'); CHECKPOINT").await;
    assert_eq!(nas.space().retired_blocks, 0);
    assert_eq!(row(&mut session, "FETCH 1 FROM c").await, "own,30000,30000");
    let rest = rows(&mut session, "FETCH ALL FROM c").await;
    assert_eq!((rest.len(), &*rest[0]), (20_001, "far away,20000,20000"));
    assert!(rest.last().unwrap().ends_with(",0,0"), "{:?}", rest.last());
    let failing = "DECLARE f CURSOR WITH HOLD FOR SELECT 1 / (id - 30000) FROM far";
    run(&mut session, failing).await;
    assert_eq!(refused(&mut session, "FETCH ALL FROM f").await.sqlstate(), "22012");
    run(&mut session, "BEGIN; DECLARE r CURSOR WITH HOLD FOR SELECT id FROM far; ROLLBACK").await;
    assert_eq!(refused(&mut session, "FETCH 1 FROM r").await.sqlstate(), "34000");
    drop(session);
    assert_no_leak_soon(&database).await;
}

/// Each core has pages of its own, which numbers its rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cores_of_a_device_write_a_stage_together() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    session
        .load(
            "far",
            batches((1..10).map(|part| numbered(30_000 * part..30_000 * (part + 1))).collect()),
            None,
        )
        .await
        .unwrap();
    run(&mut session, "DELETE FROM far WHERE id % 3 = 1").await;
    let staged = "WITH x AS MATERIALIZED (SELECT id, note FROM far WHERE id > 5)
        SELECT count(*), sum(a.id), max(b.note) FROM x a JOIN x b ON a.id = b.id + 2";
    run(&mut session, "SET stages = off").await;
    let expected = rows(&mut session, staged).await;
    run(&mut session, "SET stages = always").await;
    for memory in ["64MB", "16MB"] {
        run(&mut session, &format!("SET device_memory = '{memory}'")).await;
        assert_eq!(rows(&mut session, staged).await, expected, "{memory}");
        let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {staged}")).await.concat();
        assert!(plan.contains("written to 2 tablets in "), "{memory}: {plan}");
    }
    // What is known of its columns: a key has as many values as rows.
    let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {staged}")).await.concat();
    assert!(plan.contains("rows, NULLs and ends of columns counted by its device"), "{plan}");
    drop(session);
    assert_no_leak_soon(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_write_the_rows_of_a_stage_that_they_have() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = with_nas(outside.path()).await;
    let (mut session, mut plain) = (database.session(), database.session());
    run(
        &mut session,
        "CREATE TABLE spread (id int PRIMARY KEY, note text) WITH (devices = (embedded, nas), tablets = 4);
         INSERT INTO spread SELECT id, note FROM far",
    )
    .await;
    run(&mut plain, "SET stages = off").await;
    run(&mut session, "SET stages = always; SET result_cache_bytes = 0; SET result_reuse = on")
        .await;
    let rest = "SELECT count(*), sum(a.id), max(b.note) FROM x a JOIN x b ON a.id = b.id + 2 WHERE b.id % 10 < 5";
    let linear = format!("WITH x AS (SELECT id, note FROM spread WHERE id % 2 = 0) {rest}");
    // Its groups are made of rows of both.
    let grouped = "WITH x AS MATERIALIZED (SELECT id % 10 AS g, count(*) FROM spread GROUP BY 1) SELECT sum(g) FROM x";
    for (sql, stages) in [(&*linear, 1), (grouped, 0)] {
        let before = made(&database).0;
        assert_eq!(rows(&mut session, sql).await, rows(&mut plain, sql).await, "{sql}");
        assert_eq!(made(&database).0 - before, stages, "{sql}");
    }
    let sets = "SELECT owner, state, rows, device FROM cleave.result_sets";
    assert_eq!(row(&mut session, sets).await, "result cache,valid,10001,embedded, nas");
    // What its join collects is sent to both.
    let joined =
        "WITH x AS MATERIALIZED (SELECT s.id, n.note FROM spread s JOIN near n ON s.id % 50 = n.id)
        SELECT count(*), sum(x.id), max(x.note) FROM x";
    let before = made(&database).0;
    assert_eq!(rows(&mut session, joined).await, rows(&mut plain, joined).await);
    assert_eq!(made(&database).0 - before, 1);
    let of_join = format!("{sets} WHERE rows = 400");
    assert_eq!(row(&mut session, &of_join).await, "result cache,valid,400,embedded, nas");
    // The rows of a cursor stay on both, too.
    let cursor = "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id, note FROM spread; COMMIT";
    run(&mut session, cursor).await;
    let of_cursor = "SELECT rows, device FROM cleave.result_sets WHERE owner = 'cursor'";
    for _ in 0..500 {
        if !rows(&mut plain, of_cursor).await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(row(&mut plain, of_cursor).await, "20001,embedded, nas");
    assert_eq!(rows(&mut session, "FETCH ALL FROM c").await.len(), 20_001);
    run(&mut session, "CLOSE c").await;
    let before = made(&database);
    rows(&mut session, &linear).await;
    assert_eq!(made(&database), (before.0, before.1 + 1));
    // Half of it is lost.
    let address = served.address;
    served.stop().await;
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    let (before, expected) = (made(&database), rows(&mut plain, &linear).await);
    assert_eq!(rows(&mut session, &linear).await, expected);
    assert_eq!(made(&database), (before.0 + 1, before.1));
    run(&mut session, "SET result_device_bytes = 0").await;
    run(&mut plain, "DROP TABLE spread").await;
    drop(session);
    database.give_up_versions();
    assert_no_leak_soon(&database).await;
}
