//! Helpers of the tests: databases in temporary directories, rows as text.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::activity::Act;
use cleave_host::check::{CheckOptions, check};
use cleave_host::value::value_text;
use cleave_host::{Database, EmbeddedFactory, Error, OpenOptions, Outcome, Session, SnapshotKind};
use cleave_media::{DirectFile, FaultPlan, FaultyMedia, Media, OpenMode};
use datafusion::common::runtime::SpawnedTask;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

/// Runs `sql` on a task of its own; gives the session back, and what became of it.
pub(crate) fn beside(mut session: Session, sql: &'static str) -> SpawnedTask<(Session, String)> {
    SpawnedTask::spawn(async move {
        let outcome = match session.run(sql).await {
            Ok(_) => "done".to_owned(),
            Err(error) => error.sqlstate().to_owned(),
        };
        (session, outcome)
    })
}

/// Whether the task still waits after a moment that is long for what it does.
pub(crate) async fn waits<T: 'static>(task: &mut SpawnedTask<T>) -> bool {
    tokio::time::timeout(Duration::from_millis(300), task).await.is_err()
}

/// Identity of the embedded device of all tests.
pub(crate) const DEVICE: [u8; 16] = [7; 16];

/// Options of a small device.
pub(crate) fn runtime_options(device_id: [u8; 16]) -> RuntimeOptions {
    RuntimeOptions { cores: 2, io_threads: 2, ..RuntimeOptions::new(device_id) }
}

/// The device over a file.
pub(crate) fn embedded() -> EmbeddedFactory {
    embedded_as(DEVICE)
}

/// The same with another identity.
pub(crate) fn embedded_as(device_id: [u8; 16]) -> EmbeddedFactory {
    Arc::new(move |path: &Path| {
        let mode = if path.exists() { OpenMode::Existing } else { OpenMode::Create };
        let media = DirectFile::open(path, mode)
            .map_err(|error| Error::io("open", path, std::io::Error::other(error)))?;
        over(Arc::new(media), device_id)
    })
}

/// The device over a file that keeps only what was synced: a killed process loses the rest, as a machine does on a
/// power loss.
pub(crate) fn forgetful() -> EmbeddedFactory {
    Arc::new(|path: &Path| {
        let file = DirectFile::open_or_create(path, &path.with_extension("no-identity"))
            .map_err(|error| Error::io("open", path, std::io::Error::other(error)))?;
        over(Arc::new(FaultyMedia::over(Arc::new(file), FaultPlan::default())), DEVICE)
    })
}

/// The device over media that the test keeps a handle of.
pub(crate) fn over(
    media: Arc<dyn Media>,
    device_id: [u8; 16],
) -> Result<Arc<dyn DeviceService>, Error> {
    let runtime = Runtime::new(media, runtime_options(device_id))
        .map_err(|error| Error::io("start", Path::new("a device"), std::io::Error::other(error)))?;
    Ok(runtime)
}

/// The database in `directory`, made if it is not there.
pub(crate) async fn open(directory: &Path) -> Arc<Database> {
    Database::open(directory, OpenOptions::new(embedded()).create(true)).await.unwrap()
}

/// Opens or makes a database whose device forgets what was not synced, as it is when it is dropped.
pub(crate) async fn open_forgetful(directory: &Path) -> Arc<Database> {
    Database::open(directory, OpenOptions::new(forgetful()).create(true)).await.unwrap()
}

/// `check` finds nothing in the database in `directory`, which is not open.
pub(crate) async fn checks_out(directory: &Path) {
    let options = OpenOptions::new(embedded());
    let report = check(directory, options, &CheckOptions::default()).await.unwrap();
    assert!(report.findings.kept().is_empty(), "{:#?}", report.findings);
}

/// Tablets in which a fragment has changed or inserted rows.
pub(crate) async fn fragments(database: &Database) -> u64 {
    database.activity().count(Act::UpdateFragment)
}

/// A database of its own.
pub(crate) async fn fresh() -> (tempfile::TempDir, Arc<Database>) {
    let directory = tempfile::tempdir().unwrap();
    let database = open(directory.path()).await;
    (directory, database)
}

/// Runs statements that must succeed.
pub(crate) async fn run(session: &mut Session, sql: &str) -> Vec<Outcome> {
    match session.run(sql).await {
        Ok(outcomes) => outcomes,
        Err(error) => panic!("{sql}: {error}"),
    }
}

/// The rows of `query`, sorted unless it sorts them itself.
pub(crate) async fn answer(session: &mut Session, query: &str) -> Vec<String> {
    let mut found = rows(session, query).await;
    if !query.contains("ORDER BY") {
        found.sort();
    }
    found
}

/// The rows of one query, values as text joined by commas, in the order in which they come.
pub(crate) async fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let outcomes = run(session, sql).await;
    let [Outcome::Rows { batches, .. }] = outcomes.as_slice() else {
        panic!("{sql} gives {outcomes:?}");
    };
    text_of(batches)
}

/// The rows of `batches`, values as text joined by commas.
pub(crate) fn text_of(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| {
                value_text(column, row).unwrap().unwrap_or_else(|| "NULL".to_owned())
            });
            rows.push(values.collect::<Vec<_>>().join(","));
        }
    }
    rows
}

/// The only row of one query.
pub(crate) async fn row(session: &mut Session, sql: &str) -> String {
    let rows = rows(session, sql).await;
    assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
    rows.into_iter().next().unwrap()
}

/// The error of a statement that must fail.
pub(crate) async fn refused(session: &mut Session, sql: &str) -> Error {
    match session.run(sql).await {
        Ok(outcomes) => panic!("{sql} gives {outcomes:?}"),
        Err(error) => error,
    }
}

/// Rows of `(id integer, note text)` with these ids.
pub(crate) fn numbered(ids: impl Iterator<Item = i32>) -> RecordBatch {
    let ids: Vec<i32> = ids.collect();
    let notes: StringArray = ids.iter().map(|id| Some(note(*id))).collect();
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("note", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int32Array::from(ids)), Arc::new(notes)])
        .unwrap()
}

/// The note that row `id` has.
pub(crate) fn note(id: i32) -> String {
    format!("note {id} {}", "x".repeat(usize::try_from(id % 50).unwrap()))
}

/// Batches as a stream that never fails.
pub(crate) fn batches(batches: Vec<RecordBatch>) -> BoxStream<'static, Result<RecordBatch, Error>> {
    stream::iter(batches.into_iter().map(Ok)).boxed()
}

/// Checks that the devices use exactly the space that the catalog names. Flushes first, since room is reserved until
/// then for what has been committed.
pub(crate) fn assert_no_leak(database: &Arc<Database>) {
    let flushed = tokio::task::block_in_place(|| {
        tokio::runtime::Handle::current().block_on(database.snapshot(SnapshotKind::Flushed))
    });
    let catalog = flushed.expect("what is committed can be flushed");
    for device in database.devices() {
        let named: u64 =
            catalog.extents(device.id()).iter().map(|e| u64::from(e.block_count)).sum();
        let space = device.space();
        assert_eq!(space.used_blocks - space.retired_blocks, named, "{space:?}");
    }
}

/// As [`assert_no_leak`], once the writes of a statement that failed or was given up have ended.
pub(crate) async fn assert_no_leak_soon(database: &Arc<Database>) {
    for _ in 0..500 {
        let catalog = database.snapshot(SnapshotKind::Flushed).await.unwrap();
        let is_sound = database.devices().iter().all(|device| {
            let named = catalog.extents(device.id());
            let named: u64 = named.iter().map(|extent| u64::from(extent.block_count)).sum();
            let space = device.space();
            space.used_blocks - space.retired_blocks == named
        });
        if is_sound {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_no_leak(database);
}

/// The number of plans made, and of requests for rows in the delta.
pub(crate) fn planned(database: &Database) -> (u64, u64) {
    let activity = database.activity();
    let asked = activity.count(Act::Flush) + activity.count(Act::ShippedDelta);
    (activity.count(Act::Plan), asked)
}

/// The rows of `sql` as text, in order of their text.
pub(crate) async fn sorted(session: &mut Session, sql: &str) -> Vec<String> {
    let mut found = rows(session, sql).await;
    found.sort_unstable();
    found
}
