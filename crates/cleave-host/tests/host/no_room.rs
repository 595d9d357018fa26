//! Tests of devices that are full at each extent, and at each write, of a statement in turn: it gives its rows or says
//! that there is no room (53100), what was there before can be read, and no space stays behind.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_catalog::activity::Act;
use cleave_fragment::command::{Command, DeviceError, DeviceErrorCause, Execute, Reply, Request};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::check::{CheckOptions, check};
use cleave_host::{Database, EmbeddedFactory, Error, OpenOptions, Outcome, Session};
use cleave_media::{AlignedBuffer, BlockAddress, Extent, Media, MediaError, Memory};
use cleave_store::PageCache;

use crate::devices::{Served, TOKEN, anywhere, remote, token_file};
use crate::support::{DEVICE, assert_no_leak_soon, fresh, over, refused, row, rows, run, text_of};

/// What a device takes no more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Extents that a statement asks for.
    Extent,
    /// Writes into extents that it has got.
    Write,
    /// The same; they fail for another reason.
    Fault,
}

/// What a device takes.
#[derive(Debug, Default)]
struct Room {
    /// So many of these, and then none; None: everything.
    end: Mutex<Option<(What, u64)>>,
    refused: AtomicU64,
}

impl Room {
    /// What becomes of `sql` while the device takes so many of one thing, and whether it was asked for more.
    async fn with(
        &self,
        end: (What, u64),
        session: &mut Session,
        sql: &str,
    ) -> (Result<Vec<Outcome>, Error>, bool) {
        self.refused.store(0, Ordering::SeqCst);
        *self.end.lock().unwrap() = Some(end);
        let outcome = session.run(sql).await;
        *self.end.lock().unwrap() = None;
        (outcome, self.refused.load(Ordering::SeqCst) > 0)
    }

    fn takes(&self, what: What) -> bool {
        match self.end.lock().unwrap().as_mut() {
            Some((limited, left)) if *limited == what => match left.checked_sub(1) {
                Some(less) => {
                    *left = less;
                    true
                }
                None => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    false
                }
            },
            _ => true,
        }
    }
}

/// Memory that takes only what there is room for.
#[derive(Debug)]
struct TightMedia {
    memory: Memory,
    room: Arc<Room>,
}

impl Media for TightMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        self.memory.read(extent)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        if !self.room.takes(What::Write) {
            return Err(MediaError::Full {
                media: "tight memory".to_owned(),
                block_count: self.block_count(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        if !self.room.takes(What::Fault) {
            return Err(MediaError::Injected { operation: "write" });
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
        self.memory.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.memory.bytes_read()
    }

    fn bytes_written(&self) -> u64 {
        self.memory.bytes_written()
    }
}

/// A device over it, which reserves only what there is room for: media that have grown once do not tell.
#[derive(Debug)]
struct TightDevice {
    device: Arc<dyn DeviceService>,
    room: Arc<Room>,
}

impl TightDevice {
    fn over(media: &Arc<TightMedia>, identity: [u8; 16]) -> Result<Self, Error> {
        let device = over(Arc::clone(media) as Arc<dyn Media>, identity)?;
        Ok(Self { device, room: Arc::clone(&media.room) })
    }
}

#[async_trait]
impl DeviceService for TightDevice {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let asks_for_room = matches!(command.request, Request::Reserve { .. });
        if asks_for_room && !self.room.takes(What::Extent) {
            return Err(DeviceError::new(DeviceErrorCause::OutOfSpace, "there is no space"));
        }
        self.device.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.device.execute(request, slots).await
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }

    fn use_cache(&self, cache: Arc<dyn PageCache>) {
        self.device.use_cache(cache);
    }
}

fn tight() -> Arc<TightMedia> {
    Arc::new(TightMedia { memory: Memory::new(), room: Arc::default() })
}

fn embedded(media: &Arc<TightMedia>) -> EmbeddedFactory {
    let media = Arc::clone(media);
    Arc::new(move |_: &Path| {
        let device = TightDevice::over(&media, DEVICE);
        device.map(|device| Arc::new(device) as Arc<dyn DeviceService>)
    })
}

/// Rows of several pages, which take more room than is expected of text.
const ROWS: &str =
    "INSERT INTO t SELECT i, i % 10, md5(i::text) || md5((-i)::text) || md5((7 * i)::text)
    FROM generate_series(1, 30000) AS g (i); CHECKPOINT";
/// All of them.
const QUERY: &str = "SELECT id, v, note FROM t WHERE v % 10 < 10";
/// More extents and writes than any statement needs here.
const COUNT_MAX: u64 = 60;

/// A database with these rows.
async fn with_rows(media: &Arc<TightMedia>) -> (tempfile::TempDir, Arc<Database>, Session) {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(embedded(media)).create(true);
    let database = Database::open(directory.path(), options).await.unwrap();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, v int, note text)").await;
    run(&mut session, ROWS).await;
    (directory, database, session)
}

fn staged() -> String {
    format!(
        "WITH x AS MATERIALIZED ({QUERY})
         SELECT count(*), sum(a.id), min(b.note) FROM x a JOIN x b ON a.id = b.id + 1"
    )
}

/// What tells the rows of `table` from others.
async fn sums(session: &mut Session, table: &str) -> String {
    let sums = "count(*), sum(id), sum(v), min(note), max(note), sum(length(note))";
    row(session, &format!("SELECT {sums} FROM {table} AS x")).await
}

/// The rows of the only query among several statements.
fn given(outcomes: &[Outcome]) -> Vec<String> {
    let batches = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Rows { batches, .. } => Some(batches),
        Outcome::Done { .. } => None,
    });
    batches.flat_map(|batches| text_of(batches)).collect()
}

/// Blocks that are in use on each device, but for those that only older versions name.
fn used(database: &Database) -> Vec<u64> {
    let spaces = database.devices().into_iter().map(|device| device.space());
    let used = spaces.map(|space| {
        assert_eq!(space.doubtful_blocks, 0, "{space:?}");
        space.used_blocks - space.retired_blocks
    });
    used.collect()
}

/// No more blocks are in use than `before`, as soon as all writes have ended.
async fn nothing_stays(database: &Arc<Database>, before: &[u64]) {
    assert_no_leak_soon(database).await;
    assert_eq!(used(database), before);
}

/// It says of a statement that has met the end of the room that there is none, and where.
fn says_so(error: &Error, was_refused: bool) {
    assert!(was_refused, "{error}");
    assert_eq!(error.sqlstate(), "53100", "{error}");
    assert!(error.to_string().contains("device \"embedded\""), "{error}");
}

async fn checks_out(directory: &Path, media: &Arc<TightMedia>) {
    let options = OpenOptions::new(embedded(media));
    let report = check(directory, options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
}

/// Runs `sql`, which writes one result set, where there is room for ever more of `what`, until there is enough.
async fn does_without(
    (database, room): (&Arc<Database>, &Room),
    session: &mut Session,
    (sql, expected): (&str, &[String]),
    what: What,
) {
    let before = used(database);
    for count in 0..COUNT_MAX {
        let stages = database.activity().count(Act::Stage);
        let (outcome, was_refused) = room.with((what, count), session, sql).await;
        let outcomes = outcome.unwrap_or_else(|error| panic!("{sql}, {what:?} {count}: {error}"));
        assert!(given(&outcomes) == expected, "{sql} has other rows, {what:?} {count}");
        nothing_stays(database, &before).await;
        if !was_refused {
            assert!(count > 0, "{sql} needs no {what:?}");
            assert_eq!(database.activity().count(Act::Stage), stages + 1, "{sql}");
            return;
        }
    }
    panic!("{sql} needs more than {COUNT_MAX} of {what:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_and_held_cursors_do_without_room() {
    let media = tight();
    let (directory, database, mut session) = with_rows(&media).await;
    let ordered = format!("{QUERY} ORDER BY id");
    let held = format!("DECLARE c CURSOR WITH HOLD FOR {ordered}; FETCH ALL FROM c; CLOSE c");
    for (sql, plain) in [(staged(), staged()), (held, ordered)] {
        run(&mut session, "SET stages = off").await;
        let expected = rows(&mut session, &plain).await;
        run(&mut session, "SET stages = always").await;
        for what in [What::Extent, What::Write, What::Fault] {
            let there = (&database, &*media.room);
            does_without(there, &mut session, (&sql, &expected), what).await;
        }
    }
    drop((session, database));
    checks_out(directory.path(), &media).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_over_two_devices_does_without_one_of_them() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database) = fresh().await;
    let media = tight();
    let own = Arc::clone(&media);
    let device =
        move || Arc::new(TightDevice::over(&own, [1; 16]).unwrap()) as Arc<dyn DeviceService>;
    let served = Served::of(device, anywhere()).await;
    let far = remote(served.address, token_file(outside.path(), TOKEN));
    database.add_device("nas", far).await.unwrap();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id int PRIMARY KEY, v int, note text)
             WITH (devices = (embedded, nas), tablets = 4)",
    )
    .await;
    run(&mut session, ROWS).await;
    run(&mut session, "SET stages = off").await;
    let expected = rows(&mut session, &staged()).await;
    run(&mut session, "SET stages = always").await;
    for what in [What::Extent, What::Write, What::Fault] {
        let there = (&database, &*media.room);
        does_without(there, &mut session, (&staged(), &expected), what).await;
    }
    drop((session, database));
    crate::support::checks_out(directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn materialized_views_that_find_no_room_are_not_there() {
    let media = tight();
    let (directory, database, mut session) = with_rows(&media).await;
    let expected = sums(&mut session, &format!("({QUERY})")).await;
    let create = format!("CREATE MATERIALIZED VIEW m AS {QUERY}");
    for (placement, what) in [
        ("device", What::Extent),
        ("device", What::Write),
        ("host", What::Extent),
        ("host", What::Write),
    ] {
        run(&mut session, &format!("SET update_placement = {placement}")).await;
        let before = used(&database);
        for count in 0..=COUNT_MAX {
            let (outcome, was_refused) =
                media.room.with((what, count), &mut session, &create).await;
            match outcome {
                Ok(_) => {
                    assert_eq!(sums(&mut session, "m").await, expected, "{what:?} {count}");
                    run(&mut session, "DROP MATERIALIZED VIEW m").await;
                }
                Err(error) => {
                    says_so(&error, was_refused);
                    assert_eq!(refused(&mut session, "TABLE m").await.sqlstate(), "42P01");
                }
            }
            nothing_stays(&database, &before).await;
            if !was_refused {
                assert!(count > 0, "{placement}: it needs no {what:?}");
                break;
            }
            assert!(count < COUNT_MAX, "{placement}, {what:?}");
        }
    }
    drop((session, database));
    checks_out(directory.path(), &media).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn materialized_views_that_find_no_room_keep_their_rows() {
    let media = tight();
    let (directory, database, mut session) = with_rows(&media).await;
    run(&mut session, &format!("CREATE MATERIALIZED VIEW m AS {QUERY}")).await;
    for (method, placement, what) in [
        ("all", "device", What::Extent),
        ("all", "device", What::Write),
        ("changes", "device", What::Extent),
        ("changes", "device", What::Write),
    ] {
        let set = format!("SET refresh_method = {method}; SET update_placement = {placement}");
        run(&mut session, &set).await;
        for count in 0..=COUNT_MAX {
            run(&mut session, "UPDATE t SET v = v + 1 WHERE id <= 50; CHECKPOINT").await;
            let old = sums(&mut session, "m").await;
            let new = sums(&mut session, &format!("({QUERY})")).await;
            assert_ne!(old, new);
            let (refresh, before) = ("REFRESH MATERIALIZED VIEW m", used(&database));
            let (outcome, was_refused) =
                media.room.with((what, count), &mut session, refresh).await;
            let found = sums(&mut session, "m").await;
            match outcome {
                Ok(_) => {
                    assert_eq!(found, new, "{method}, {placement}, {what:?} {count}");
                    assert_no_leak_soon(&database).await;
                }
                Err(error) => {
                    says_so(&error, was_refused);
                    assert_eq!(found, old, "{method}, {placement}, {what:?} {count}");
                    nothing_stays(&database, &before).await;
                }
            }
            if !was_refused {
                assert!(count > 0, "{method}, {placement}: it needs no {what:?}");
                break;
            }
            assert!(count < COUNT_MAX, "{method}, {placement}, {what:?}");
        }
    }
    drop((session, database));
    checks_out(directory.path(), &media).await;
}
