//! A device without space: what grows is refused, what gives space back works, and then all does again.

use std::sync::Arc;

use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError, Memory};

use crate::durability::Slot;
use crate::support::{assert_no_leak, batches, numbered, row, run};

/// Blocks of the media of these tests: 8 MiB.
pub(crate) const BLOCK_COUNT: u64 = 2048;

/// Memory that does not grow beyond a limit.
#[derive(Debug)]
pub(crate) struct Bounded {
    memory: Memory,
    block_count_max: u64,
}

impl Bounded {
    pub(crate) fn new(block_count_max: u64) -> Self {
        Self { memory: Memory::new(), block_count_max }
    }
}

impl Media for Bounded {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        self.memory.read(extent)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        self.memory.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.memory.sync()
    }

    fn block_count(&self) -> u64 {
        self.memory.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        if block_count > self.block_count_max {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gives_space_back_works_where_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let slot = Slot::new(Arc::new(Bounded::new(BLOCK_COUNT)));
    let database = slot.open(directory.path()).await;
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
    // All that is there can be read, and what only ends rows is done and kept.
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, end.to_string());
    run(&mut session, "DELETE FROM t WHERE id < 5000").await;
    run(&mut session, "DELETE FROM t WHERE id = 6000; CHECKPOINT").await;
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
