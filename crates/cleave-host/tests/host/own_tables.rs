//! Tests of the tables `cleave.devices`, `cleave.filter_history` and `cleave.tablets`: what they show of devices that
//! answer and of others, and to whom.

use std::time::Duration;

use cleave_host::{Database, OpenOptions, Session};

use crate::devices::{FAR, Served, TOKEN, attach_nas, with_nas};
use crate::support::{batches, embedded, numbered, refused, row, rows, run};

const DEVICES: &str = "SELECT name, kind, address, state, error, cores, capabilities, runs IS NULL \
    FROM cleave.devices ORDER BY name";
const EMBEDDED: &str = "embedded,embedded,NULL,online,NULL,2,columns, fragments,f";

/// Nothing in the table is what lets a host in.
async fn assert_no_secret(session: &mut Session) {
    let shown = rows(session, "SELECT * FROM cleave.devices").await.join("\n");
    assert!(!shown.contains(TOKEN) && !shown.contains("PRIVATE KEY"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_gone_is_offline_and_the_others_are_shown() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = Box::pin(with_nas(outside.path())).await;
    let address = served.address;
    let mut session = database.session();
    run(&mut session, "CHECKPOINT").await;
    let nas = format!("nas,remote,{address},online,NULL,2,columns, fragments,f");
    assert_eq!(rows(&mut session, DEVICES).await, [EMBEDDED, nas.as_str()]);
    let sound = "SELECT name FROM cleave.devices WHERE used_bytes > 0 AND used_bytes % 4096 = 0 \
         AND retired_bytes >= 0 AND memory_bytes > 0 AND free_memory_bytes BETWEEN 0 AND memory_bytes AND runs >= 0 \
         AND media_bytes_read >= 0 AND media_bytes_written > 0 AND commands > 0 ORDER BY name";
    assert_eq!(rows(&mut session, sound).await, ["embedded", "nas"]);
    let crossed =
        "SELECT bytes_sent > 0 AND bytes_received > 0 FROM cleave.devices WHERE name = 'nas'";
    assert_eq!(row(&mut session, crossed).await, "t");
    assert_no_secret(&mut session).await;

    served.stop().await;
    let shown = rows(&mut session, DEVICES).await;
    assert_eq!(shown[0], EMBEDDED);
    let begins = format!("nas,remote,{address},offline,device \"nas\" at {address} is offline: ");
    assert!(shown[1].starts_with(&begins) && shown[1].ends_with(",NULL,NULL,t"), "{shown:?}");
    // What the host knows of it is there.
    let known = "SELECT used_bytes > 0, memory_bytes, media_bytes_written, round_trip_ms \
         FROM cleave.devices WHERE name = 'nas'";
    assert_eq!(row(&mut session, known).await, "t,NULL,NULL,NULL");
    assert_no_secret(&mut session).await;

    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(rows(&mut session, DEVICES).await, [EMBEDDED, nas.as_str()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_is_waited_for_no_longer_than_the_device_timeout() {
    let (outside, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let timeout = Duration::from_secs(3);
    let options = OpenOptions::new(embedded()).create(true).device_timeout(timeout);
    let database = Database::open(directory.path(), options).await.unwrap();
    let (served, _) = attach_nas(&database, outside.path()).await;
    let address = served.address;
    let mut session = database.session();
    served.stop().await;
    // It takes connections, and says nothing.
    let _silent = std::net::TcpListener::bind(address).unwrap();
    for _ in 0..2 {
        let shown = tokio::time::timeout(timeout * 5, rows(&mut session, DEVICES)).await;
        let shown = shown.expect("the device timeout ends it");
        assert_eq!(shown[0], EMBEDDED);
        let begins = format!("nas,remote,{address},offline,device \"nas\"");
        assert!(shown[1].starts_with(&begins) && shown[1].ends_with(",NULL,NULL,t"), "{shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_the_link_are_shown_once_they_were_measured() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = Box::pin(with_nas(outside.path())).await;
    let mut session = database.session();
    let figures = "SELECT round_trip_ms, link_bytes_per_second, media_read_bytes_per_second, \
         media_write_bytes_per_second FROM cleave.devices ORDER BY name";
    let unknown = "NULL,NULL,NULL,NULL";
    assert_eq!(rows(&mut session, figures).await, [unknown, unknown]);
    let nas = database.device_named("nas").unwrap().id();
    database.profile(nas, false).await.unwrap();
    assert_eq!(rows(&mut session, figures).await[0], unknown);
    let measured = "SELECT round_trip_ms > 0 AND link_bytes_per_second > 0 \
         AND media_read_bytes_per_second > 0 AND media_write_bytes_per_second > 0 \
         FROM cleave.devices WHERE name = 'nas'";
    assert_eq!(row(&mut session, measured).await, "t");
    // The embedded device has no link.
    database.profile(cleave_host::DeviceId::EMBEDDED, false).await.unwrap();
    let link =
        "SELECT round_trip_ms, link_bytes_per_second FROM cleave.devices ORDER BY name LIMIT 1";
    assert_eq!(row(&mut session, link).await, "NULL,NULL");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_broke_are_counted() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = Box::pin(with_nas(outside.path())).await;
    let mut session = database.session();
    let counts = "SELECT fragments_refused, messages_corrupt, connections_lost, connects_failed \
         FROM cleave.devices ORDER BY name";
    let none = "0,0,0,0";
    assert_eq!(rows(&mut session, counts).await, [none, none]);
    let address = served.address;
    database.buffer_pool().clear();
    run(&mut session, "SET shipped_delta_bytes = 0").await;
    served.stop().await;
    refused(&mut session, FAR).await;
    // The first may have broken with its connection; this one finds none.
    refused(&mut session, FAR).await;
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    let shown = rows(&mut session, counts).await;
    assert_eq!(shown[0], none);
    let (others, failed) = shown[1].rsplit_once(',').unwrap();
    assert!(others == "0,0,1" && failed.parse::<u64>().unwrap() > 0, "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_are_listed_with_their_devices_rows_and_bytes() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = Box::pin(with_nas(outside.path())).await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id int PRIMARY KEY, note text) WITH (devices = (embedded, nas), tablets = 4)",
    )
    .await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "INSERT INTO t VALUES (20000, 'one more'); DELETE FROM t WHERE id < 10")
        .await;
    run(&mut session, "CHECKPOINT").await;
    let placed =
        "SELECT tablet, device, division FROM cleave.tablets WHERE table_name = 't' ORDER BY 1";
    let expected =
        ["0,embedded,hash (id)", "1,nas,hash (id)", "2,embedded,hash (id)", "3,nas,hash (id)"];
    assert_eq!(rows(&mut session, placed).await, expected);
    let catalog = database.catalog();
    let tablets = catalog.table("t").unwrap().tablets.iter();
    let bytes: usize = tablets.flat_map(|tablet| tablet.extents()).map(|e| e.bytes()).sum();
    let totals = "SELECT count(*), sum(rows), sum(bytes), min(segments) > 0, min(pages) > 0 \
         FROM cleave.tablets WHERE table_name = 't'";
    let totals = row(&mut session, totals).await;
    assert_eq!(totals, format!("4,19991,{bytes},t,t"));
    let whole = "SELECT table_name, tablet, device, division, rows FROM cleave.tablets \
         WHERE table_name <> 't' ORDER BY 1";
    assert_eq!(rows(&mut session, whole).await, ["far,0,nas,NULL,20001", "near,0,embedded,NULL,1"]);
    // A session sees its own tables before they are committed, and no device is asked.
    served.stop().await;
    run(&mut session, "BEGIN; CREATE TABLE own (id int) WITH (device = embedded)").await;
    let own = "SELECT rows, bytes, segments, pages FROM cleave.tablets WHERE table_name = 'own'";
    assert_eq!(rows(&mut session, own).await, ["0,0,0,0"]);
    assert!(rows(&mut database.session(), own).await.is_empty());
    run(&mut session, "ROLLBACK").await;
    assert_eq!(rows(&mut session, placed).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_for_superusers_and_rows_for_those_who_may_read_them() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = Box::pin(with_nas(outside.path())).await;
    let mut owner = database.session();
    run(&mut owner, "CHECKPOINT").await;
    run(
        &mut owner,
        "CREATE ROLE bob LOGIN; GRANT SELECT (id) ON near TO bob;
         CREATE TABLE tablets (id int PRIMARY KEY); CREATE TABLE devices (id int PRIMARY KEY)",
    )
    .await;
    let mut bob = database.session();
    bob.log_in("bob").unwrap();
    let listed = "SELECT table_name, device, rows, bytes > 0 FROM cleave.tablets ORDER BY 1";
    let far = "far,nas,NULL,t";
    let all = ["devices,embedded,NULL,f", far, "near,embedded,1,t", "tablets,embedded,NULL,f"];
    assert_eq!(rows(&mut bob, listed).await, all);
    run(&mut owner, "GRANT SELECT ON far TO bob").await;
    assert!(rows(&mut bob, listed).await.contains(&"far,nas,20001,t".to_owned()));
    run(&mut owner, "REVOKE SELECT ON far FROM bob").await;
    assert!(rows(&mut bob, listed).await.contains(&far.to_owned()));
    for sql in [
        "SELECT * FROM cleave.devices",
        "SELECT count(*) FROM CLEAVE.\"devices\"",
        "SELECT * FROM cleave.cleave.devices",
        "SELECT t.rows FROM cleave.tablets t JOIN cleave.devices d ON d.name = t.device",
        "EXPLAIN SELECT error FROM cleave.devices",
        "COPY (SELECT address FROM cleave.devices) TO STDOUT",
        "SELECT * FROM cleave.filter_history",
        "SELECT * FROM tablets",
        "SELECT * FROM public.devices",
    ] {
        let error = refused(&mut bob, sql).await;
        assert_eq!(error.sqlstate(), "42501", "{sql}: {error}");
    }
    for sql in ["INSERT INTO cleave.tablets (rows) VALUES (1)", "DROP TABLE cleave.devices"] {
        assert_eq!(refused(&mut owner, sql).await.sqlstate(), "3F000", "{sql}");
    }
    let joined = "SELECT t.table_name, d.kind FROM cleave.tablets t JOIN cleave.devices d \
         ON d.name = t.device WHERE t.table_name IN ('near', 'far') ORDER BY 1";
    assert_eq!(rows(&mut owner, joined).await, ["far,remote", "near,embedded"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_conditions_have_found_is_listed_for_host_and_devices() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, _) = Box::pin(with_nas(outside.path())).await;
    let mut session = database.session();
    run(&mut session, "SET filter_history = always").await;
    let listed = "SELECT device, conditions, entries > 0, bytes > 0 AND bytes < bytes_max, hits > 0, error IS NULL
         FROM cleave.filter_history ORDER BY device NULLS FIRST";
    assert_eq!(
        rows(&mut session, listed).await,
        ["NULL,0,f,f,f,t", "nas,0,f,f,f,t"],
        "the embedded device has the host's"
    );
    for split in ["h0", "host"] {
        for _ in 0..2 {
            run(
                &mut session,
                &format!("SELECT /*+ split({split}) */ count(*) FROM far WHERE note < 'row 5'"),
            )
            .await;
        }
    }
    assert_eq!(rows(&mut session, listed).await, ["NULL,1,t,t,t,t", "nas,1,t,t,t,t"]);
    served.stop().await;
    let lost = "SELECT conditions IS NULL AND bytes_max IS NULL, error LIKE '%nas%'
         FROM cleave.filter_history WHERE device = 'nas'";
    assert_eq!(row(&mut session, lost).await, "t,t");
}
