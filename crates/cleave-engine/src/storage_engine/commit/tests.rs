//! Tests of what a commit leaves behind when it is cut off.

use super::manifest::StopIfDying;
use super::*;
use crate::device::testing::fresh;

fn die(database: Arc<Engine>) {
    let _stop = StopIfDying(database);
    panic!("as a defect would");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_dies_while_it_commits_stops_the_database() {
    let (_directory, database) = fresh().await;
    let dying = Arc::clone(&database);
    assert!(tokio::task::spawn_blocking(move || die(dying)).await.is_err());
    let Err(error) = CatalogEdit::begin(&database).await else { panic!("it goes on") };
    assert!(error.to_string().contains("was stopped"), "{error}");
}
