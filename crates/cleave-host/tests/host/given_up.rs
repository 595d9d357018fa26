//! Tests of log replicas that were given up while their devices were offline: which devices are told, when the replicas
//! end, and what a failover reports about them.

use std::path::Path;
use std::sync::Arc;

use cleave_host::log_replica::Witnesses;
use cleave_host::{Database, RemoteDevice};

use crate::devices::{Served, anywhere, with_nas};
use crate::failover::{reopened, shown, taken, taken_though_stale};
use crate::support::{assert_no_leak, open, refused, row, rows, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_given_up_takes_no_device_from_the_host_that_has_it() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, nas) = with_nas(outside.path()).await;
    let address = served.address;
    let other_media = outside.path().join("other.media");
    let other_served = Served::start(&other_media, [2; 16], anywhere()).await;
    let other = RemoteDevice { port: other_served.address.port(), ..nas.clone() };
    database.add_device("other", other.clone()).await.unwrap();
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "SET default_device = 'other'").await;
    run(&mut session, "CREATE TABLE o (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO o VALUES (1, 'on both')").await;
    served.stop().await;
    run(&mut session, "ALTER SYSTEM SET log_replica = 'other'").await;
    run(&mut session, "INSERT INTO o VALUES (2, 'not on nas')").await;
    // It is back, and knows nothing of that.
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    let folder = outside.path().join("second");
    let error = taken(&folder, &nas).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("\"other\""), "{error}");
    assert!(error.to_string().contains("take over from that device"), "{error}");
    run(&mut session, "INSERT INTO o VALUES (3, 'the host has its devices')").await;
    run(&mut session, "INSERT INTO far VALUES (-1, 'all of them')").await;
    drop((session, database, directory));
    taken(&folder, &nas).await.unwrap_err();
    taken(&folder, &other).await.unwrap();
    let database = reopened(&folder).await;
    let found = rows(&mut database.session(), "SELECT id FROM o ORDER BY id").await;
    assert_eq!(found, ["1", "2", "3"]);
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM far WHERE id < 0").await, "1");
    assert_no_leak(&database);
}

/// A log replica on "nas", which was offline when it was given up without a replacement, and is back; "other" was there
/// all the time.
async fn given_up_for_none(
    outside: &Path,
) -> (tempfile::TempDir, Arc<Database>, [Served; 2], RemoteDevice) {
    let (directory, database, served, nas) = with_nas(outside).await;
    let address = served.address;
    let other_served = Served::start(&outside.join("other.media"), [2; 16], anywhere()).await;
    let other = RemoteDevice { port: other_served.address.port(), ..nas.clone() };
    database.add_device("other", other).await.unwrap();
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'; SET default_device = 'other'").await;
    run(&mut session, "CREATE TABLE o (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO o VALUES (1, 'on both')").await;
    served.stop().await;
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    run(&mut session, "INSERT INTO o VALUES (2, 'not on nas')").await;
    assert_no_leak(&database);
    let served = Served::start(&outside.join("nas.media"), [1; 16], address).await;
    (directory, database, [served, other_served], nas)
}

/// Its device knows nothing of it, and all are of one epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_given_up_for_none_is_one_of_which_others_were_told() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, nas) = given_up_for_none(outside.path()).await;
    let mut session = database.session();
    let folder = outside.path().join("second");
    let error = taken(&folder, &nas).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("given up, as device \"other\""), "{error}");
    run(&mut session, "INSERT INTO o VALUES (3, 'the host has its devices')").await;
    // It is erased, with what others were told about it; then there is one again.
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    assert_no_leak(&database);
    assert_eq!(database.remove_device("other").await.unwrap_err().sqlstate(), "2BP01");
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO o VALUES (4, 'on both')").await;
    drop((session, database, directory));
    taken(&folder, &nas).await.unwrap();
    let database = reopened(&folder).await;
    let found = rows(&mut database.session(), "SELECT id FROM o ORDER BY id").await;
    assert_eq!(found, ["1", "2", "3", "4"]);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_of_a_copy_ends_when_it_is_failed_over_all_the_same() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, nas) = given_up_for_none(outside.path()).await;
    drop((database, directory));
    let folder = outside.path().join("second");
    taken(&folder, &nas).await.unwrap_err();
    taken_though_stale(&folder, &nas).await.unwrap();
    let database = reopened(&folder).await;
    let mut session = database.session();
    run(&mut session, "INSERT INTO far VALUES (-3, 'in the copy again')").await;
    drop((session, database));
    let third = outside.path().join("third");
    taken(&third, &nas).await.unwrap();
    let database = reopened(&third).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM far WHERE id < 0").await, "1");
}

/// No other device could tell that later commits were acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_given_up_ends_as_soon_as_its_device_is_back() {
    for by_checkpoint in [false, true] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, served, nas) = with_nas(outside.path()).await;
        let (address, media) = (served.address, outside.path().join("nas.media"));
        let mut session = database.session();
        run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
        run(&mut session, "INSERT INTO near VALUES (2, 'in the copy')").await;
        served.stop().await;
        run(&mut session, "ALTER SYSTEM RESET log_replica").await;
        run(&mut session, "INSERT INTO near VALUES (3, 'not in the copy')").await;
        database.look_after_replicas().await.unwrap();
        let status = shown(&mut session, "log_replica_status").await;
        assert!(status.contains("still has a dropped replica"), "{status}");
        let _served = Served::start(&media, [1; 16], address).await;
        match by_checkpoint {
            true => drop(run(&mut session, "CHECKPOINT").await),
            false => database.look_after_replicas().await.unwrap(),
        }
        assert_eq!(shown(&mut session, "log_replica_status").await, "off");
        assert_no_leak(&database);
        let error = taken(&outside.path().join("second"), &nas).await.unwrap_err();
        assert!(error.to_string().contains("it has no log replica"), "{error}");
        run(&mut session, "INSERT INTO far VALUES (-1, 'the host has its device')").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_offline_too_is_told_when_it_is_back() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, served, nas) = with_nas(outside.path()).await;
    let address = served.address;
    let other_media = outside.path().join("other.media");
    let other_served = Served::start(&other_media, [2; 16], anywhere()).await;
    let other_address = other_served.address;
    let other = RemoteDevice { port: other_address.port(), ..nas.clone() };
    database.add_device("other", other).await.unwrap();
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (2, 'in the copy')").await;
    served.stop().await;
    other_served.stop().await;
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    run(&mut session, "INSERT INTO near VALUES (3, 'not in the copy')").await;
    let other_served = Served::start(&other_media, [2; 16], other_address).await;
    for _ in 0..3 {
        // Once, however often it is asked for.
        database.look_after_replicas().await.unwrap();
        assert_no_leak(&database);
    }
    drop((session, database));
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    let folder = outside.path().join("second");
    let error = taken(&folder, &nas).await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(error.to_string().contains("given up, as device \"other\""), "{error}");
    // With the old folder everything ends properly.
    let database = open(directory.path()).await;
    let mut session = database.session();
    database.look_after_replicas().await.unwrap();
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    assert_no_leak(&database);
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (4, 'in the copy')").await;
    drop((session, database, directory, other_served));
    let taken = taken(&folder, &nas).await.unwrap();
    let silent = vec!["other".to_owned()];
    assert_eq!(taken.witnesses, Some(Witnesses { asked: Vec::new(), silent }));
}

/// Otherwise it would again acknowledge commits that the host of the database does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_was_failed_over_gives_no_copy_up() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, nas) = with_nas(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (2, 'in the copy')").await;
    let folder = outside.path().join("second");
    let taken = taken(&folder, &nas).await.unwrap();
    assert_eq!(taken.witnesses, Some(Witnesses::default()));
    let check = async |database: &Arc<Database>| {
        let mut session = database.session();
        for statement in [
            "ALTER SYSTEM RESET log_replica",
            "UPDATE near SET note = 'lost'",
            "CREATE TABLE t (id int)",
        ] {
            let error = refused(&mut session, statement).await;
            assert_eq!(error.sqlstate(), "55006", "{statement}: {error}");
            assert!(!error.to_string().contains("RESET"), "{statement}: {error}");
        }
    };
    check(&database).await;
    drop((session, database));
    check(&open(directory.path()).await).await;
    let database = reopened(&folder).await;
    let mut session = database.session();
    run(&mut session, "INSERT INTO far VALUES (-2, 'of the host that has it'); CHECKPOINT").await;
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    assert_no_leak(&database);
}

/// The error for --stale tells how far the log replica goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_failover_says_how_far_the_copy_goes() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, [_served, _other], nas) = given_up_for_none(outside.path()).await;
    drop((database, directory));
    let folder = outside.path().join("second");
    let error = taken(&folder, &nas).await.unwrap_err().to_string();
    let (_, behind) = error.split_once("goes up to commit ").unwrap();
    let (commit, behind) = behind.split_once(" of ").unwrap();
    assert!(behind.starts_with("20"), "{error}");
    let taken = taken_though_stale(&folder, &nas).await.unwrap();
    assert_eq!(taken.witnesses, None);
    // Recovery has made a checkpoint of it.
    assert_eq!(taken.commit, commit.parse::<u64>().unwrap() + 1, "{error}");
}

/// It is not told of that, and no manifest names what it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_removed_while_it_is_offline_has_no_copy_when_it_is_attached_again() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, served, nas) = with_nas(outside.path()).await;
    let address = served.address;
    let other_media = outside.path().join("other.media");
    let other_served = Served::start(&other_media, [2; 16], anywhere()).await;
    let other = RemoteDevice { port: other_served.address.port(), ..nas.clone() };
    database.add_device("other", other).await.unwrap();
    let mut session = database.session();
    run(&mut session, "DROP TABLE far; ALTER SYSTEM SET log_replica = 'nas'").await;
    run(&mut session, "INSERT INTO near VALUES (2, 'in the copy')").await;
    assert_eq!(database.remove_device("nas").await.unwrap_err().sqlstate(), "22023");
    served.stop().await;
    run(&mut session, "ALTER SYSTEM RESET log_replica").await;
    // It may never be back.
    assert!(database.remove_device("nas").await.unwrap().is_some());
    run(&mut session, "INSERT INTO near VALUES (3, 'not in the copy')").await;
    assert_eq!(shown(&mut session, "log_replica_status").await, "off");
    let _served = Served::start(&outside.path().join("nas.media"), [1; 16], address).await;
    // The device that was told still knows it.
    database.look_after_replicas().await.unwrap();
    let folder = outside.path().join("second");
    let error = taken(&folder, &nas).await.unwrap_err();
    assert!(error.to_string().contains("given up, as device \"other\""), "{error}");
    database.add_device("nas again", nas.clone()).await.unwrap();
    let error = taken(&folder, &nas).await.unwrap_err();
    assert!(error.to_string().contains("it has no log replica"), "{error}");
    assert_no_leak(&database);
    run(&mut session, "ALTER SYSTEM SET log_replica = 'nas again'").await;
    run(&mut session, "INSERT INTO near VALUES (4, 'in the copy')").await;
    drop((session, database));
    assert_eq!(taken(&folder, &nas).await.unwrap().offline, Vec::<String>::new());
}
