//! Tests of pages through the buffer pool, over each stack; damage is named and contained.

use std::fs::File;
use std::os::unix::fs::FileExt;

use cleave_host::settings::Stack;
use cleave_host::{Database, DeviceId, OpenOptions};
use cleave_media::BLOCK_SIZE;
use cleave_store::{ColumnRef, PageRead};

use crate::support::{batches, embedded, fresh, note, numbered, open, refused, row, rows, run};

/// Reads of `columns` of every page of table `t`.
fn reads(database: &Database, columns: &[ColumnRef]) -> Vec<PageRead> {
    let catalog = database.catalog();
    let table = catalog.table("t").unwrap();
    let segments = table.tablets.iter().flat_map(|tablet| tablet.heap.clone());
    segments
        .flat_map(|segment| {
            let reference = segment.segment_ref();
            let pages = segment.pages.clone();
            pages.into_iter().map(move |entry| PageRead {
                segment: reference,
                page: entry.page,
                columns: columns.to_vec(),
            })
        })
        .collect()
}

async fn loaded() -> (tempfile::TempDir, std::sync::Arc<Database>) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..200_000)]), None).await.unwrap();
    (directory, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stacks_give_the_same_chunks_and_native_fewer_bytes() {
    let (_directory, database) = loaded().await;
    let wanted = [ColumnRef::User(1), ColumnRef::Commit];
    let mut answers = Vec::new();
    let mut bytes = Vec::new();
    for stack in [Stack::Blk, Stack::Native] {
        database.buffer_pool().clear();
        let pages = database.host_pages(DeviceId::EMBEDDED, stack).unwrap();
        let mut chunks = Vec::new();
        for read in reads(&database, &wanted) {
            let source: &dyn cleave_store::PageSource = &*pages;
            chunks.extend(source.read(vec![read]).await.unwrap().into_iter().map(|p| p.chunks));
        }
        bytes.push(pages.counters().link_bytes);
        answers.push(chunks);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(bytes[1] * 3 < bytes[0], "the other column stays where it is: {bytes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_once_is_read_from_the_pool() {
    let (_directory, database) = loaded().await;
    for stack in [Stack::Blk, Stack::Native] {
        database.buffer_pool().clear();
        let pages = database.host_pages(DeviceId::EMBEDDED, stack).unwrap();
        let source: &dyn cleave_store::PageSource = &*pages;
        let one = source.read(reads(&database, &[ColumnRef::User(2)])).await.unwrap();
        let cold = pages.counters();
        let two = source.read(reads(&database, &[ColumnRef::User(2)])).await.unwrap();
        let warm = pages.counters();
        assert_eq!(cold.link_bytes, warm.link_bytes, "{stack}");
        assert!(warm.pool_bytes > cold.pool_bytes, "{stack}");
        for (one, two) in one.iter().zip(&two) {
            assert_eq!(one.chunks, two.chunks);
        }
        let page = reads(&database, &[])[0].page;
        let pool = database.buffer_pool();
        assert_eq!(pool.held_count(DeviceId::EMBEDDED, &page, &[ColumnRef::User(2)]), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_a_tenth_of_the_table_keeps_to_its_budget() {
    let (directory, database) = loaded().await;
    let size: usize = reads(&database, &[]).iter().map(|read| read.page.extent.bytes()).sum();
    drop(database);
    let budget = (size / 10) as u64;
    let options = OpenOptions::new(embedded()).buffer_pool_bytes(budget);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    for stack in ["blk", "native"] {
        run(&mut session, &format!("SET stack = {stack}")).await;
        let found = row(&mut session, "SELECT count(*), sum(length(note)) FROM t").await;
        let expected: usize = (0..200_000).map(|id| note(id).len()).sum();
        assert_eq!(found, format!("200000,{expected}"));
        assert!(database.buffer_pool().status().bytes <= budget);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_is_named_and_contained() {
    let (directory, database) = loaded().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE other (id int)").await;
    run(&mut session, "INSERT INTO other VALUES (1)").await;
    let damaged = reads(&database, &[])[1].page;
    drop((session, database));
    let media = File::options().write(true).open(directory.path().join("device-0.media")).unwrap();
    let header = damaged.extent.start.0 * BLOCK_SIZE as u64;
    media.write_all_at(b"oops", header + 100).unwrap();
    drop(media);

    let database = open(directory.path()).await;
    let mut session = database.session();
    for settings in ["SET stack = blk", "SET stack = native", "SET stack = ndp"] {
        run(&mut session, settings).await;
        let error = refused(&mut session, "SELECT count(note) FROM t").await;
        let message = error.to_string();
        assert!(message.contains("page 1 of segment"), "{settings}: {message}");
        assert!(message.contains("corrupt"), "{settings}: {message}");
        assert_eq!(error.sqlstate(), "XX001", "{settings}: {message}");
        assert_eq!(rows(&mut session, "SELECT * FROM other").await, ["1"]);
        // Rows of other pages are not concerned.
        assert_eq!(row(&mut session, "SELECT note FROM t WHERE id = 0").await, note(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_media_that_was_cut_off_is_an_error_of_the_tables_behind_the_cut() {
    let (directory, database) = loaded().await;
    let expected = database.devices()[0].space().high_water * BLOCK_SIZE as u64;
    drop(database);
    let media = File::options().write(true).open(directory.path().join("device-0.media")).unwrap();
    media.set_len(BLOCK_SIZE as u64 * 4).unwrap();
    drop(media);
    let database = open(directory.path()).await;
    let mut session = database.session();
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        let error = refused(&mut session, "SELECT count(note) FROM t").await;
        assert_eq!(error.sqlstate(), "58030", "{error}");
        let message = error.to_string();
        for part in ["device-0.media was cut off", "it has 16384 bytes", "restore it from a copy"] {
            assert!(message.contains(part), "{part} is not said: {message}");
        }
        assert!(message.contains(&format!("the first {expected}")), "{message}");
    }
    run(&mut session, "CREATE TABLE u (id int)").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM u").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_miss_the_same_chunks_fetch_them_once() {
    let (_directory, database) = loaded().await;
    database.buffer_pool().clear();
    let before = database.buffer_pool().status().loaded_bytes;
    let wanted = reads(&database, &[ColumnRef::User(1), ColumnRef::User(2)]);
    let (alone, expected) = {
        let pages = database.host_pages(DeviceId::EMBEDDED, Stack::Native).unwrap();
        let source: &dyn cleave_store::PageSource = &*pages;
        let answers = source.read(wanted.clone()).await.unwrap();
        (pages.counters().link_bytes, std::sync::Arc::new(answers))
    };
    let loaded_alone = database.buffer_pool().status().loaded_bytes - before;
    database.buffer_pool().clear();
    let before = database.buffer_pool().status().loaded_bytes;
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..8 {
        let pages = database.host_pages(DeviceId::EMBEDDED, Stack::Native).unwrap();
        let (mut wanted, expected) = (wanted.clone(), std::sync::Arc::clone(&expected));
        // Some want one column, some both, in either order.
        for read in &mut wanted {
            match reader % 4 {
                0 => read.columns.truncate(1),
                1 => read.columns.reverse(),
                _ => {}
            }
        }
        readers.spawn(async move {
            let source: &dyn cleave_store::PageSource = &*pages;
            let answers = source.read(wanted.clone()).await.unwrap();
            for ((read, answer), expected) in wanted.iter().zip(&answers).zip(expected.iter()) {
                let chunk = |column: &ColumnRef| {
                    expected.chunks[usize::from(*column == ColumnRef::User(2))].clone()
                };
                assert_eq!(answer.chunks, read.columns.iter().map(chunk).collect::<Vec<_>>());
            }
            pages.counters().link_bytes
        });
    }
    let together: u64 = readers.join_all().await.iter().sum();
    let loaded = database.buffer_pool().status().loaded_bytes - before;
    // A header may come twice, with another column each time; a chunk never does.
    assert!(together < alone + alone / 20, "{together} bytes for {alone}");
    assert!(loaded < loaded_alone + loaded_alone / 20, "{loaded} loaded for {loaded_alone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_goes_away_leaves_its_fetch_to_those_who_wait() {
    let (_directory, database) = loaded().await;
    let wanted = reads(&database, &[ColumnRef::User(2)]);
    for _ in 0..20 {
        database.buffer_pool().clear();
        let pages = database.host_pages(DeviceId::EMBEDDED, Stack::Native).unwrap();
        let source: &dyn cleave_store::PageSource = &*pages;
        // Started, and never polled again while the second one waits for what it fetches.
        let mut first = source.read(wanted.clone());
        assert!(futures::poll!(&mut first).is_pending());
        let second = source.read(wanted.clone()).await.unwrap();
        assert_eq!(second.len(), wanted.len());
        drop(first);
    }
}

/// The figure of EXPLAIN ANALYZE of `sql` under `name`.
async fn measured(session: &mut cleave_host::Session, sql: &str, name: &str) -> String {
    let lines = rows(session, &format!("EXPLAIN ANALYZE {sql}")).await;
    let line = lines.iter().find_map(|line| line.trim().strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} is not among {lines:#?}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_side_has_read_the_other_finds_in_the_pool() {
    let (_directory, database) = loaded().await;
    let mut session = database.session();
    let sql = "SELECT count(note), max(id) FROM t";
    for (first, second) in [("h0", "host"), ("host", "h0"), ("h0", "h0")] {
        database.buffer_pool().clear();
        run(&mut session, &format!("SET split = {first}")).await;
        let cold = measured(&mut session, sql, "bytes at media: ").await;
        assert_ne!(cold, "0 B", "{first}");
        run(&mut session, &format!("SET split = {second}")).await;
        let warm = measured(&mut session, sql, "bytes at media: ").await;
        assert_eq!(warm, "0 B", "{second} after {first}");
        let pool = measured(&mut session, sql, "buffer pool: ").await;
        assert!(pool.contains(" 0 misses") && pool.contains("; holds "), "{pool}");
    }
}
