//! Tests of the list of running queries: who looks on sees a query's fragments while it runs, and for a while after.

use std::sync::Arc;

use cleave_fragment::strip::Strip;
use cleave_host::backends::Stopper;
use cleave_host::cooperative::running_queries::SeenFragment;
use cleave_host::statement::parse_script_in;
use cleave_host::{Client, Started};

use crate::devices::with_nas;
use crate::exchanges::{Refuses, Three};
use crate::support::{assert_no_leak, assert_no_leak_soon, run};

struct Nobody;

impl Stopper for Nobody {
    fn cancel(&self) {}
    fn terminate(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_seen_with_its_fragment_while_it_runs_and_after() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    session.set_client(Client { backend: 7, ..Client::default() });
    // The device stalls before it is done: it has one slot.
    run(&mut session, "SET slot_bytes = 4096; SET slot_count = 1; SET batch_size = 100").await;
    run(&mut session, "SET split = h0; SET stealing = off").await;
    let text = "SELECT id, note FROM far WHERE note LIKE '%7%'";
    assert!(database.running_queries().seen().is_empty(), "a session without a connection");
    let listed = database.backends().enter(7, ("ada", None), None, Arc::new(Nobody));
    listed.begins(text);
    let parsed = parse_script_in(text, None).unwrap().pop().unwrap();
    let Started::Rows(mut rows) = session.start(parsed).await.unwrap() else {
        panic!("a query has rows")
    };
    let mut count = rows.next().await.unwrap().unwrap().num_rows() as u64;
    let seen = database.running_queries().seen();
    let [query] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((query.backend, query.text.as_str(), query.is_over), (7, text, false));
    assert_eq!((query.split.unwrap().to_string(), query.rows), ("h0".to_owned(), count));
    let [fragment] = query.fragments.as_slice() else { panic!("{query:?}") };
    assert_eq!((fragment.device.as_str(), fragment.mode.as_str()), ("nas", "remote"));
    assert!(fragment.arrived.amounts().iter().sum::<u64>() > 0, "{fragment:?}");
    fragment.ongoing.as_ref().unwrap().ask().await;
    let running = database.running_queries().running();
    let progress = running[0].fragments[0].progress.clone().unwrap();
    assert!(progress.begun > 0 && progress.begun <= progress.kept, "{progress:?}");
    let (ended, ended_count) = database.running_queries().ended_after(0);
    assert!(ended.iter().all(|query| query.text.as_str() != text), "{ended:?}");
    while let Some(batch) = rows.next().await.unwrap() {
        count += batch.num_rows() as u64;
    }
    drop(rows);
    // The session's next statement does not change what is seen of this one.
    listed.begins("SELECT 1");
    let seen = database.running_queries().seen();
    let [query] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(query.is_over && query.rows == count, "{query:?}");
    assert_eq!((query.text.as_str(), query.split.unwrap().to_string().as_str()), (text, "h0"));
    let [fragment] = query.fragments.as_slice() else { panic!("{query:?}") };
    let work = fragment.device_work.as_ref().unwrap();
    assert!(fragment.is_over && work.media_bytes > 0, "{fragment:?}");
    assert!(fragment.ongoing.is_none(), "it has ended");
    let (ended, all) = database.running_queries().ended_after(ended_count);
    assert_eq!((ended.len() as u64, all), (1, ended_count + 1));
    drop((listed, session));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fragments_of_an_update_are_one_entry_with_what_their_devices_did() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served, _) = with_nas(outside.path()).await;
    let mut session = database.session();
    session.set_client(Client { backend: 7, ..Client::default() });
    let listed = database.backends().enter(7, ("ada", None), None, Arc::new(Nobody));
    run(&mut session, "SET update_placement = device").await;
    let text = "UPDATE far SET note = 'changed' WHERE id % 2 = 0";
    listed.begins(text);
    run(&mut session, text).await;
    let seen = database.running_queries().seen();
    let changes: Vec<_> = seen.iter().filter(|query| query.changes.is_some()).collect();
    let [query] = changes.as_slice() else { panic!("{seen:?}") };
    assert!(query.is_over && query.text.as_str() == text, "{query:?}");
    let fragment = query.fragments.first().unwrap();
    assert_eq!((fragment.table.as_str(), fragment.device.as_str()), ("far", "nas"));
    let work = fragment.device_work.as_ref().unwrap();
    assert!(fragment.is_over && work.media_bytes > 0, "{fragment:?}");
    assert!(fragment.refused.is_none() && fragment.ongoing.is_none(), "{fragment:?}");
    drop((listed, session));
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_is_seen_to_wait_for_each_device_that_joins_rows_of_others() {
    let mut three = Three::new(Refuses::Nothing).await;
    three.session.set_client(Client { backend: 7, ..Client::default() });
    let listed = three.database.backends().enter(7, ("ada", None), None, Arc::new(Nobody));
    three.run("SET exchange = always").await;
    let text = "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k";
    listed.begins(text);
    three.run(text).await;
    let seen = three.database.running_queries().seen();
    let query = seen.iter().find(|query| query.text.as_str() == text).unwrap();
    let is_consumer = |run: &&SeenFragment| run.table.starts_with("rows of ");
    let consumers: Vec<_> = query.fragments.iter().filter(is_consumer).collect();
    let sum = |strip: &Strip| strip.amounts().iter().sum::<u64>();
    assert!(consumers.len() > 1 && consumers.iter().all(|run| sum(&run.waited) > 0), "{query:?}");
    assert!(consumers.iter().any(|run| sum(&run.arrived) > 0), "{query:?}");
    drop(listed);
    assert_no_leak_soon(&three.database).await;
}
