//! Tests of devices that serve pages correctly and send wrong rows from fragments: the statement fails with an error
//! that names the device, and the next statement works. Runs that break midway are finished by the host.

use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryArray, Int32Array, RecordBatch, StringArray,
    make_array, new_null_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Decimal128Type, Field, Schema, SchemaRef};
use async_trait::async_trait;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::slot::{SlotDecoder, encode_batch};
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, Payload, Reply, Slot, SlotPayload,
};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_host::value::value_text;
use cleave_host::{Database, Error, OpenOptions, Outcome, Session};

use crate::devices::{Served, TOKEN, anywhere, broken_by, pass_on, remote, token_file};
use crate::support::{embedded, embedded_as, rows, run};

/// The falsification of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// A NULL in the first column; it says that there may be one.
    Null,
    /// The first column is a text.
    Text,
    /// There is one column more.
    Column,
    /// Numbers have all the digits that fit into 128 bits.
    Digits,
    /// Every value is the greatest of its type.
    Greatest,
    /// Every value is the least of its type.
    Least,
    /// Every value that is bytes, such as a sketch of a table, is replaced.
    Bytes,
    /// Every value that is bytes ends early.
    Short,
    /// Runs end with an error of this cause after their second slot.
    Breaks(DeviceErrorCause),
}

impl Lie {
    /// Those that keep the columns as they are.
    const OF_VALUES: [Self; 4] = [Self::Greatest, Self::Least, Self::Bytes, Self::Short];
}

/// A device that falsifies rows as set.
#[derive(Debug)]
struct Liar {
    device: Arc<dyn DeviceService>,
    lie: Arc<Mutex<Lie>>,
}

#[async_trait]
impl DeviceService for Liar {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.device.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let (sender, events) = SlotSender::channel(slots.form());
        let schema = self.device.execute(request, sender).await?;
        let lie = *self.lie.lock().unwrap();
        let told = lie.told(&RecordBatch::new_empty(Arc::clone(&schema))).schema();
        let decoder = SlotDecoder::new(&schema);
        pass_on(events, slots, move |slot_count, event| {
            ready(match (lie, event) {
                (Lie::Breaks(cause), _) if slot_count == 3 => broken_by(cause),
                (_, RunEvent::Slot(slot)) => RunEvent::Slot(lie.of_slot(slot, &decoder)),
                (_, other) => other,
            })
        });
        Ok(told)
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }
}

impl Lie {
    fn of_slot(self, slot: Slot, decoder: &SlotDecoder) -> Slot {
        let payload = match slot.payload {
            SlotPayload::Batch(batch) => SlotPayload::Batch(self.told(&batch)),
            SlotPayload::Encoded(payload) => {
                let batch = decoder.decode(payload.bytes).unwrap();
                let told = encode_batch(&self.told(&batch)).unwrap();
                SlotPayload::Encoded(Payload::new(told.into()))
            }
        };
        Slot { payload, ..slot }
    }

    /// `batch`, falsified.
    fn told(self, batch: &RecordBatch) -> RecordBatch {
        let count = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        match (self, columns.first_mut()) {
            (Self::None | Self::Breaks(_), _) => return batch.clone(),
            (Self::Null, Some(first)) => *first = new_null_array(first.data_type(), count),
            (Self::Text, Some(first)) => *first = Arc::new(StringArray::from(vec!["x"; count])),
            (Self::Column, _) => columns.push(Arc::new(Int32Array::from(vec![1; count]))),
            _ => columns.iter_mut().for_each(|column| *column = self.of_column(column)),
        }
        let field = |(place, column): (usize, &ArrayRef)| {
            let known = batch.schema().fields().get(place).map(|field| field.name().clone());
            Field::new(known.unwrap_or_default(), column.data_type().clone(), true)
        };
        let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap()
    }

    fn of_column(self, column: &ArrayRef) -> ArrayRef {
        match (self, column.data_type()) {
            (Self::Digits, DataType::Decimal128(..)) => {
                let digits = column.as_primitive::<Decimal128Type>();
                let digits = digits.unary::<_, Decimal128Type>(|_| i128::MAX);
                Arc::new(digits.with_data_type(column.data_type().clone()))
            }
            (Self::Greatest, _) => extreme(column, 0xff, 0x7f),
            (Self::Least, _) => extreme(column, 0, 0x80),
            (Self::Bytes | Self::Short, DataType::Binary) => {
                let told = |bytes: &[u8]| match self {
                    Self::Bytes => bytes.iter().map(|byte| byte ^ 0x5a).collect(),
                    _ => bytes.iter().copied().take(bytes.len() / 2).collect::<Vec<u8>>(),
                };
                let values = column.as_binary::<i32>().iter();
                Arc::new(values.map(|value| value.map(told)).collect::<BinaryArray>())
            }
            _ => Arc::clone(column),
        }
    }
}

/// `column` with numbers and times whose bytes are all `low`, and the last, that of the sign, `high`.
fn extreme(column: &ArrayRef, low: u8, high: u8) -> ArrayRef {
    let Some(width) = column.data_type().primitive_width() else { return Arc::clone(column) };
    let one: Vec<u8> = (1..=width).map(|byte| if byte == width { high } else { low }).collect();
    let values = Buffer::from(one.repeat(column.len()));
    let data = ArrayData::builder(column.data_type().clone())
        .len(column.len())
        .nulls(column.nulls().cloned())
        .add_buffer(values)
        .align_buffers(true)
        .build();
    make_array(data.unwrap())
}

/// A database whose embedded device lies, and a remote one called nas too.
struct Lied {
    _directory: tempfile::TempDir,
    _served: Served,
    database: Arc<Database>,
    lie: Arc<Mutex<Lie>>,
}

impl Lied {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let lie = Arc::new(Mutex::new(Lie::None));
        let told = Arc::clone(&lie);
        let factory = Arc::new(move |path: &Path| {
            let device = embedded()(path)?;
            Ok(Arc::new(Liar { device, lie: Arc::clone(&told) }) as Arc<dyn DeviceService>)
        });
        let path = directory.path().join("database");
        let database = Database::open(&path, OpenOptions::new(factory).create(true)).await.unwrap();
        let (told, media) = (Arc::clone(&lie), directory.path().join("nas.media"));
        let make = move || {
            let device = embedded_as([1; 16])(&media).unwrap();
            Arc::new(Liar { device, lie: told }) as Arc<dyn DeviceService>
        };
        let served = Served::of(make, anywhere()).await;
        let nas = remote(served.address, token_file(directory.path(), TOKEN));
        database.add_device("nas", nas).await.unwrap();
        let lied = Self { _directory: directory, _served: served, database, lie };
        for (table, device) in [("near", "embedded"), ("far", "nas")] {
            let mut session = lied.session().await;
            run(&mut session, &format!("SET default_device = '{device}'")).await;
            let columns = "id int PRIMARY KEY, at timestamp NOT NULL, day date NOT NULL, price numeric(12, 2) NOT \
                NULL, \
                 note text, big bigint NOT NULL, ratio double precision, done boolean, t time";
            run(&mut session, &format!("CREATE TABLE {table} ({columns})")).await;
            let values: Vec<String> = (0..500)
                .map(|id| {
                    format!(
                        "({id}, '2001-02-03 04:05:06', '2001-02-{:02}', {id}.25, 'note {}', {id}, {id}.5, {}, \
                            '12:34:56')",
                        id % 28 + 1,
                        id % 7,
                        id % 2 == 0
                    )
                })
                .collect();
            run(&mut session, &format!("INSERT INTO {table} VALUES {}", values.join(", "))).await;
            run(&mut session, &format!("CREATE INDEX ON {table} (note)")).await;
            run(&mut session, "CHECKPOINT").await;
        }
        lied
    }

    /// A session whose fragments run on devices.
    async fn session(&self) -> Session {
        let mut session = self.database.session();
        session.set("split", "ndp").unwrap();
        session
    }

    fn lies(&self, lie: Lie) {
        *self.lie.lock().unwrap() = lie;
    }
}

/// The client's output of `sql`, which must always be writable.
async fn seen(session: &mut Session, sql: &str) -> Result<usize, Error> {
    let mut count = 0;
    for outcome in session.run(sql).await? {
        if let Outcome::Rows { batches, .. } = outcome {
            for batch in &batches {
                for (row, column) in (0..batch.num_rows())
                    .flat_map(|row| batch.columns().iter().map(move |c| (row, c)))
                {
                    count += 1;
                    drop(value_text(column, row));
                }
            }
        }
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_cannot_be_are_an_error_that_names_the_device() {
    let lied = Lied::new().await;
    let mut session = lied.session().await;
    for (table, device) in [("near", "embedded"), ("far", "nas")] {
        let all = format!("SELECT id, price FROM {table}");
        let price = format!("SELECT price FROM {table}");
        assert_eq!(rows(&mut session, &all).await.len(), 500);
        for (lie, sql, expected) in [
            (Lie::Null, &all, "column \"id\" has a NULL, where there can be none"),
            (Lie::Text, &all, "has type Utf8, and not Int32"),
            (Lie::Column, &all, "columns, and not"),
            (Lie::Digits, &price, "has a number of more than 12 digits"),
        ] {
            lied.lies(lie);
            let error = seen(&mut session, sql).await.expect_err(table).to_string();
            assert!(error.contains(expected) && error.contains(device), "{lie:?}: {error}");
            lied.lies(Lie::None);
            assert_eq!(rows(&mut session, sql).await.len(), 500, "the session goes on");
        }
    }
}

/// Runs `sql` while devices lie: it ends, with rows or with an error that has a code, and no thread panics.
async fn ends(lied: &Lied, session: &mut Session, lie: Lie, sql: &str) {
    lied.lies(lie);
    let outcome = tokio::time::timeout(Duration::from_secs(60), seen(session, sql)).await;
    lied.lies(Lie::None);
    if let Err(error) = outcome.unwrap_or_else(|_| panic!("{lie:?}: {sql} hangs")) {
        let text = error.to_string();
        assert!(!text.contains("panic"), "{lie:?}: {sql}: {text}");
        assert_ne!(error.sqlstate(), "XX000", "{lie:?}: {sql}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extreme_values_are_told_or_refused() {
    let lied = Lied::new().await;
    let mut session = lied.session().await;
    for table in ["near", "far"] {
        for lie in Lie::OF_VALUES {
            for sql in [
                format!("SELECT * FROM {table}"),
                format!(
                    "SELECT at + interval '1 day', day + 1, price * 2, big - 1 FROM {table} WHERE id < 9"
                ),
                format!(
                    "SELECT count(*), sum(price), avg(big), min(at), max(day), avg(ratio) FROM {table}"
                ),
                format!(
                    "SELECT note, sum(id), avg(price) FROM {table} GROUP BY note ORDER BY note"
                ),
                format!("SELECT id, at FROM {table} ORDER BY price DESC LIMIT 5"),
                format!(
                    "SELECT a.id FROM {table} AS a JOIN {table} AS b ON a.big = b.id WHERE a.note = 'note 1'"
                ),
                format!("SELECT id FROM {table} WHERE note = 'note 3' AND big > 100"),
            ] {
                ends(&lied, &mut session, lie, &sql).await;
                let count = format!("SELECT count(*), sum(id) FROM {table}");
                assert_eq!(rows(&mut session, &count).await, ["500,124750"], "the session goes on");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoilt_statistics_are_refused_or_harmless() {
    let lied = Lied::new().await;
    let mut session = lied.session().await;
    for table in ["near", "far"] {
        for lie in Lie::OF_VALUES {
            ends(&lied, &mut session, lie, &format!("ANALYZE {table}")).await;
            // Plans are made with what is kept of it.
            for (sql, expected) in [
                (format!("SELECT count(*) FROM {table} WHERE note = 'note 3' AND id < 100"), "14"),
                (
                    format!("SELECT count(*) FROM {table} WHERE day > '2001-02-20' AND ratio < 50"),
                    "10",
                ),
                (
                    format!(
                        "SELECT count(*) FROM {table} AS a JOIN {table} AS b USING (note) WHERE a.big = 3"
                    ),
                    "71",
                ),
            ] {
                assert_eq!(rows(&mut session, &sql).await, [expected], "{lie:?}: {sql}");
            }
            run(&mut session, "SHOW STATISTICS").await;
        }
        run(&mut session, &format!("ANALYZE {table}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_by_lies_are_undone_or_refused() {
    let lied = Lied::new().await;
    let mut session = lied.session().await;
    for table in ["near", "far"] {
        let changes = [
            format!("DELETE FROM {table} WHERE price > 100 AND note <> 'note 2'"),
            format!("UPDATE {table} SET note = 'other' WHERE big % 3 = 1"),
            format!("UPDATE {table} SET id = id + 1000 WHERE big % 3 = 1"),
            format!("UPDATE {table} SET big = big + id WHERE big % 3 = 1"),
            format!("UPDATE {table} SET big = 9 WHERE big % 3 = 1 RETURNING id, note, big"),
            format!("SELECT id FROM {table} WHERE big % 3 = 1 FOR UPDATE"),
            format!(
                "INSERT INTO {table} SELECT id + 1000, at, day, price, note, big FROM {table} WHERE id < 7"
            ),
        ];
        let count =
            format!("SELECT count(*), sum(id), count(DISTINCT note), sum(big) FROM {table}");
        for placement in ["host", "device", "keys"] {
            run(&mut session, &format!("SET update_placement = {placement}")).await;
            for change in &changes {
                for lie in Lie::OF_VALUES {
                    run(&mut session, "BEGIN").await;
                    ends(&lied, &mut session, lie, change).await;
                    run(&mut session, "ROLLBACK").await;
                    assert_eq!(
                        rows(&mut session, &count).await,
                        ["500,124750,7,124750"],
                        "{placement}, {lie:?}: {change}"
                    );
                }
            }
        }
        run(&mut session, "RESET update_placement").await;
        run(&mut session, &format!("DELETE FROM {table} WHERE id % 2 = 0")).await;
        run(&mut session, "CHECKPOINT").await;
        for lie in Lie::OF_VALUES {
            ends(&lied, &mut session, lie, &format!("VACUUM {table}")).await;
            let count = format!("SELECT count(*), min(id), max(big) FROM {table}");
            assert_eq!(rows(&mut session, &count).await, ["250,1,499"], "{lie:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_not_inserted_by_lies() {
    let lied = Lied::new().await;
    let mut session = lied.session().await;
    run(&mut session, "SET update_placement = device").await;
    for (table, device) in [("near", "embedded"), ("far", "nas")] {
        run(&mut session, &format!("SET default_device = '{device}'")).await;
        run(&mut session, "CREATE TABLE copied (id int PRIMARY KEY, note text)").await;
        let copy = format!("INSERT INTO copied SELECT id, note FROM {table}");
        for lie in [Lie::Null, Lie::Text, Lie::Column, Lie::Bytes, Lie::Short] {
            lied.lies(lie);
            let error = seen(&mut session, &copy).await.expect_err(table);
            assert!(error.to_string().contains(device), "{lie:?}: {error}");
            lied.lies(Lie::None);
            assert_eq!(rows(&mut session, "SELECT count(*) FROM copied").await, ["0"], "{lie:?}");
        }
        run(&mut session, &copy).await;
        assert_eq!(
            rows(&mut session, "SELECT count(*), sum(id) FROM copied").await,
            ["500,124750"]
        );
        run(&mut session, "DROP TABLE copied").await;
        // Where a stage cannot be believed, its rows come to the host.
        let staged =
            format!("WITH x AS MATERIALIZED (SELECT id, note FROM {table}) SELECT count(*) FROM x");
        run(&mut session, "SET stages = always; SET split = h0").await;
        for lie in [Lie::Null, Lie::Text, Lie::Column, Lie::Bytes, Lie::Short] {
            ends(&lied, &mut session, lie, &staged).await;
            assert_eq!(rows(&mut session, &staged).await, ["500"], "{lie:?}");
        }
        // What it says of pages neither, and the host reads them all.
        let filtered = format!("SELECT count(*), sum(id) FROM {table} WHERE note LIKE '%1%'");
        run(&mut session, "SET split = host").await;
        let expected = rows(&mut session, &filtered).await;
        run(&mut session, "SET page_filter = always").await;
        let (lost, full) = (DeviceErrorCause::UnknownRun, DeviceErrorCause::OutOfMemory);
        let breaks = [Lie::Breaks(lost), Lie::Breaks(full)];
        for lie in [Lie::Null, Lie::Column, Lie::Greatest, Lie::Least].into_iter().chain(breaks) {
            lied.lies(lie);
            assert_eq!(rows(&mut session, &filtered).await, expected, "{lie:?}");
        }
        lied.lies(Lie::None);
        run(&mut session, "RESET split; RESET page_filter").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_breaks_after_its_first_rows_is_finished_by_the_host() {
    let lied = Lied::new().await;
    let mut session = lied.session().await;
    run(&mut session, "SET slot_bytes = '1kB'; SET default_device = 'nas'").await;
    run(&mut session, "CREATE TABLE more AS SELECT id % 50 AS id, note FROM far").await;
    for (split, stealing) in [("h0", "off"), ("ndp", "off"), ("h1", "off"), ("h0", "on")] {
        run(&mut session, &format!("SET split = {split}; SET stealing = {stealing}")).await;
        run(&mut session, "SET stages = always").await;
        for sql in [
            "SELECT id, note, price FROM far",
            "SELECT note, note FROM more WHERE id < 40",
            "SELECT far.note, count(*) FROM far JOIN more ON more.id = far.id GROUP BY 1",
            "SELECT far.id, more.note FROM far JOIN more ON more.id = far.id WHERE price < 30",
            "SELECT sum(id) FROM (SELECT id FROM far WHERE id < 450) AS q",
            "SELECT id, count(*), sum(price) FROM far GROUP BY id",
            "SELECT id, count(*), avg(ratio), sum(ratio) FROM far GROUP BY id",
            "SELECT DISTINCT id, note FROM far WHERE id > 30",
            "SELECT id, rank() OVER (ORDER BY price) FROM far",
            "SELECT far.id, q.n FROM far
                 JOIN (SELECT id, count(*) AS n FROM more GROUP BY id) AS q ON q.id = far.id % 50",
            "WITH x AS MATERIALIZED (SELECT id, note FROM far) SELECT id, note, note FROM x",
        ] {
            lied.lies(Lie::None);
            if session.run(sql).await.is_err() {
                // The split leaves nothing of it to the host.
                continue;
            }
            let mut expected = rows(&mut session, sql).await;
            expected.sort_unstable();
            for cause in [DeviceErrorCause::OutOfMemory, DeviceErrorCause::UnknownRun] {
                lied.lies(Lie::Breaks(cause));
                let mut found = rows(&mut session, sql).await;
                found.sort_unstable();
                assert_eq!(found, expected, "{sql}, {split}, {stealing}, {cause:?}");
            }
        }
    }
    run(&mut session, "SET split = h0").await;
    lied.lies(Lie::Breaks(DeviceErrorCause::OutOfMemory));
    let all = "SELECT id, note, price FROM far";
    assert_eq!(rows(&mut session, &format!("{all} LIMIT 300")).await.len(), 300);
    let told = rows(&mut session, &format!("EXPLAIN ANALYZE {all}")).await;
    assert!(told.concat().contains("rows, which are left out"), "{told:#?}");
    // Of groups that differ from run to run none is given out before the end.
    let groups = "SELECT id, avg(ratio), sum(ratio) FROM far GROUP BY id";
    run(&mut session, "SET split = ndp; SET stealing = off").await;
    let told = rows(&mut session, &format!("EXPLAIN ANALYZE {groups}")).await.concat();
    assert!(told.contains("ran on the host") && !told.contains("left out"), "{told}");
    run(&mut session, "SET split = h0").await;
    // Damage is not read around.
    lied.lies(Lie::Breaks(DeviceErrorCause::Corrupt));
    assert!(seen(&mut session, all).await.is_err());
}
