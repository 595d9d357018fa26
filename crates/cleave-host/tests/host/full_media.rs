//! Tests of a device without space: what needs space is refused, what frees space works, and then everything works
//! again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cleave_host::Database;
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError, Memory, SplitMix64};

use datafusion::common::runtime::SpawnedTask;

use crate::durability::Slot;
use crate::support::{assert_no_leak, assert_no_leak_soon, batches, numbered, refused, row, run};

/// Blocks of the media of these tests: 8 MiB.
pub(crate) const BLOCK_COUNT: u64 = 2048;

/// Memory that does not grow beyond a limit.
#[derive(Debug)]
pub(crate) struct Bounded {
    memory: Memory,
    block_count_max: AtomicU64,
    gate: Mutex<Gate>,
    moved: Condvar,
}

/// The fate of the next write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    /// It is to wait.
    Shut,
    /// It waits.
    Waiting,
}

impl Bounded {
    pub(crate) fn new(block_count_max: u64) -> Self {
        Self {
            memory: Memory::new(),
            block_count_max: AtomicU64::new(block_count_max),
            gate: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    /// Lets it grow up to so many blocks from now on.
    pub(crate) fn limit(&self, block_count_max: u64) {
        self.block_count_max.store(block_count_max, Ordering::SeqCst);
    }

    fn set_gate(&self, gate: Gate) {
        *self.gate.lock().unwrap() = gate;
        self.moved.notify_all();
    }

    async fn until_a_write_waits(&self) {
        for _ in 0..1000 {
            if *self.gate.lock().unwrap() == Gate::Waiting {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("nothing is written");
    }
}

impl Media for Bounded {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        self.memory.read(extent)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        let mut gate = self.gate.lock().unwrap();
        if *gate == Gate::Shut {
            *gate = Gate::Waiting;
            drop(self.moved.wait_while(gate, |gate| *gate != Gate::Open).unwrap());
        } else {
            drop(gate);
        }
        self.memory.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.memory.sync()
    }

    fn block_count(&self) -> u64 {
        self.memory.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        if block_count > self.block_count_max.load(Ordering::SeqCst) {
            return Err(MediaError::Full {
                media: "bounded memory".to_owned(),
                block_count,
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        self.memory.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.memory.bytes_read()
    }

    fn bytes_written(&self) -> u64 {
        self.memory.bytes_written()
    }
}

/// A database whose media has at most so many blocks, and how to open it again.
async fn bounded(block_count_max: u64) -> (tempfile::TempDir, Arc<Bounded>, Slot, Arc<Database>) {
    let directory = tempfile::tempdir().unwrap();
    let media = Arc::new(Bounded::new(block_count_max));
    let slot = Slot::new(Arc::clone(&media) as Arc<dyn Media>);
    let database = slot.open(directory.path()).await;
    (directory, media, slot, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gives_space_back_works_where_there_is_none() {
    let (directory, _, slot, database) = bounded(BLOCK_COUNT).await;
    let mut session = database.session();
    for table in ["t", "other"] {
        let create = format!("CREATE TABLE {table} (id int PRIMARY KEY, note text)");
        run(&mut session, &create).await;
        session.load(table, batches(vec![numbered(0..20_000)]), None).await.unwrap();
    }
    // Until what the media has is used up.
    let mut end = 20_000;
    let error = loop {
        let loaded = session.load("t", batches(vec![numbered(end..end + 50_000)]), None).await;
        match loaded {
            Ok(_) => end += 50_000,
            Err(error) => break error,
        }
        assert!(end < 2_000_000, "it grows");
    };
    assert_eq!(error.sqlstate(), "53100", "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("DROP")), "{error}");
    // All rows can be read, and a statement that only ends rows works and stays.
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, end.to_string());
    run(&mut session, "DELETE FROM t WHERE id < 5000").await;
    run(&mut session, "DELETE FROM t WHERE id = 6000; CHECKPOINT").await;
    // There is no room for a stage.
    run(&mut session, "SET stages = always").await;
    let staged =
        "WITH x AS MATERIALIZED (SELECT id, note FROM t) SELECT count(*), max(note) <> '' FROM x";
    assert_eq!(row(&mut session, staged).await, format!("{},t", end - 5001));
    drop((session, database));
    let database = slot.open(directory.path()).await;
    let mut session = database.session();
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, (end - 5001).to_string());
    // The room that a table leaves is used at once.
    run(&mut session, "DROP TABLE other").await;
    run(&mut session, "INSERT INTO t VALUES (-1, 'in its place'); CHECKPOINT").await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, (end - 5000).to_string());
    assert_no_leak(&database);
}

/// Results that are held to be used again go before a statement fails for want of space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_results_make_room_for_rows() {
    let (_directory, media, _, database) = bounded(BLOCK_COUNT).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    session.load("t", batches(vec![numbered(0..20_000)]), None).await.unwrap();
    run(&mut session, "SET stages = always; SET result_cache_bytes = 0; SET result_reuse = on")
        .await;
    let staged =
        "WITH x AS MATERIALIZED (SELECT id, note FROM t) SELECT count(*), min(note) FROM x";
    let expected = row(&mut session, staged).await;
    let held = "SELECT count(*) FROM cleave.result_sets";
    assert_eq!(row(&mut session, held).await, "1");
    media.limit(database.devices()[0].space().high_water);
    session.load("t", batches(vec![numbered(20_000..30_000)]), None).await.unwrap();
    assert_eq!(row(&mut session, held).await, "0");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "30000");
    assert_ne!(row(&mut session, staged).await, expected);
    drop(session);
    database.give_up_versions();
    assert_no_leak_soon(&database).await;
}

/// Acknowledged rows can be read, though there is no room for a due run of keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_wait_in_memory_where_there_is_no_room_for_a_run_of_them() {
    let (_directory, _, _, database) = bounded(2 * BLOCK_COUNT).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (word text PRIMARY KEY, id int)").await;
    for table in ["filler", "room"] {
        run(&mut session, &format!("CREATE TABLE {table} (id int PRIMARY KEY, note text)")).await;
    }
    // More than a memtable takes, of incompressible words.
    let mut random = SplitMix64::new(7);
    let mut word = || (0..50).map(|_| format!("{:016x}", random.next_u64())).collect::<String>();
    let mut count = 0;
    while count < 5600 {
        let rows: Vec<_> = (count..count + 100).map(|id| format!("('{}', {id})", word())).collect();
        run(&mut session, &format!("INSERT INTO t VALUES {}", rows.join(", "))).await;
        if count % 1000 == 0 {
            let flushed = row(&mut session, "SELECT count(*) FROM t WHERE id >= 0").await;
            assert_eq!(flushed, (count + 100).to_string());
        }
        count += 100;
    }
    session.load("room", batches(vec![numbered(0..15_000)]), None).await.unwrap();
    let mut end = 0;
    for step in [20_000, 2_000, 200] {
        let refused = loop {
            let rows = numbered(end..end + step);
            match session.load("filler", batches(vec![rows]), None).await {
                Ok(_) => end += step,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.sqlstate(), "53100", "{refused}");
    }
    // Room for a few rows, and not for a run.
    run(&mut session, "DROP TABLE room").await;
    for _ in 0..3 {
        run(&mut session, &format!("INSERT INTO t VALUES ('{}', {count})", word())).await;
        count += 1;
        let found = row(&mut session, "SELECT count(*), max(id) FROM t WHERE id >= 0").await;
        assert_eq!(found, format!("{count},{}", count - 1));
    }
    assert_no_leak(&database);
    run(&mut session, "DROP TABLE filler").await;
    run(&mut session, &format!("INSERT INTO t VALUES ('{}', {count}); CHECKPOINT", word())).await;
    let found = row(&mut session, "SELECT count(*) FROM t WHERE id >= 0").await;
    assert_eq!(found, (count + 1).to_string());
    assert_no_leak(&database);
}

/// Pages that a reader has flushed give their reserved room back: a concurrent commit does not fail for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_commits_beside_a_reader_that_flushes_has_the_room_that_there_is() {
    let (directory, media, slot, database) = bounded(u64::MAX).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    let mut random = SplitMix64::new(3);
    let mut insert = |id: i32| {
        let note: String = (0..2500).map(|_| format!("{:016x}", random.next_u64())).collect();
        format!("INSERT INTO t VALUES ({id}, '{note}')")
    };
    let (first, second, third) = (insert(1), insert(2), insert(3));
    run(&mut session, &first).await;
    media.set_gate(Gate::Shut);
    let mut reader = database.session();
    // Its tables are flushed first.
    run(&mut reader, "SET shipped_delta_bytes = 0").await;
    let reading = SpawnedTask::spawn(async move {
        row(&mut reader, "SELECT count(*), sum(length(note)) FROM t").await
    });
    media.until_a_write_waits().await;
    // There is room for one copy of what is committed and for this, and not for two.
    media.limit(media.block_count());
    let opening = SpawnedTask::spawn({
        let media = Arc::clone(&media);
        async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            media.set_gate(Gate::Open);
        }
    });
    run(&mut session, &second).await;
    opening.join().await.unwrap();
    assert_eq!(reading.join().await.unwrap(), "1,40000");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE id IN (1, 2)").await, "2");
    // And the other way round: the holder of the writer lock waits for pages that are being written, and does not write
    // them again.
    media.limit(u64::MAX);
    run(&mut session, &third).await;
    media.set_gate(Gate::Shut);
    let mut reader = database.session();
    // Its tables are flushed first.
    run(&mut reader, "SET shipped_delta_bytes = 0").await;
    let reading = SpawnedTask::spawn(async move {
        row(&mut reader, "SELECT count(*) FROM t WHERE note > ''").await
    });
    media.until_a_write_waits().await;
    let before = media.block_count();
    media.limit(before);
    let opening = SpawnedTask::spawn({
        let media = Arc::clone(&media);
        async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            media.set_gate(Gate::Open);
        }
    });
    run(&mut session, "CHECKPOINT").await;
    opening.join().await.unwrap();
    assert_eq!(reading.join().await.unwrap(), "3");
    assert_no_leak(&database);
    drop((session, database));
    let database = slot.open(directory.path()).await;
    let found = row(&mut database.session(), "SELECT count(*), sum(length(note)) FROM t").await;
    assert_eq!(found, "3,120000");
    assert_no_leak(&database);
}

/// A flush that waits for pages being written elsewhere blocks no other commit meanwhile, and can be cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_device_that_takes_long_to_write_holds_up_only_those_who_need_its_pages() {
    let (directory, media, slot, database) = bounded(u64::MAX).await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "INSERT INTO t VALUES (0, 'before')").await;
    media.set_gate(Gate::Shut);
    let mut reader = database.session();
    // Its tables are flushed first.
    run(&mut reader, "SET shipped_delta_bytes = 0").await;
    let reading = SpawnedTask::spawn(async move {
        row(&mut reader, "SELECT count(*) FROM t WHERE note > ''").await
    });
    media.until_a_write_waits().await;
    let mut flushing = database.session();
    let flushed = SpawnedTask::spawn(async move { drop(run(&mut flushing, "CHECKPOINT").await) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    for id in 1..5 {
        let insert = format!("INSERT INTO t VALUES ({id}, 'beside')");
        let inserted = tokio::time::timeout(Duration::from_secs(30), session.run(&insert)).await;
        inserted.expect("it does not wait for the device").unwrap();
    }
    let mut impatient = database.session();
    run(&mut impatient, "SET statement_timeout = 300").await;
    let limited =
        tokio::time::timeout(Duration::from_secs(30), refused(&mut impatient, "CHECKPOINT"));
    let error = limited.await.expect("it ends");
    assert_eq!(error.sqlstate(), "57014", "{error}");
    media.set_gate(Gate::Open);
    flushed.join().await.unwrap();
    assert_eq!(reading.join().await.unwrap(), "1");
    assert_eq!(row(&mut session, "SELECT count(*) FROM t WHERE note > ''").await, "5");
    assert_no_leak(&database);
    drop((session, impatient, database));
    let database = slot.open(directory.path()).await;
    assert_eq!(row(&mut database.session(), "SELECT count(*) FROM t").await, "5");
}
