//! SQL in, rows out: every file of `cases/` runs under every stack and split, embedded and across a link.
//!
//! One script, one expected result: a split may change where work is done, never the result. Configurations
//! `remote_every_split` and `divided_every_split` run each query again under every split that it has. Files are named
//! after their subject; `skipif NAME` and `onlyif NAME` may name a configuration of [`CONFIGURATIONS`]. A file in which
//! only the parser, the binder or the catalog can err has a line `# Configurations: …` that names those it runs in.
//! `CLEAVE_SQL_CASES=roles,views` runs these files alone, in all configurations.

#![recursion_limit = "256"]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cleave_device::{
    ListenOptions, Listener, LocalListener, LocalOptions, Node, Runtime, RuntimeOptions,
};
use cleave_fragment::link::tls::Token;
use cleave_host::value::text::value_text;
use cleave_host::{
    Database, EmbeddedFactory, Error, LocalDevice, OpenOptions, Outcome, RemoteDevice, Session,
    TransactionStatus,
};
use cleave_media::Memory;
use futures::future::BoxFuture;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner, TestError};
use tempfile::TempDir;
use tokio::runtime;
use tokio::task::JoinSet;

/// Settings by name and value.
type SettingList = &'static [(&'static str, &'static str)];

/// The devices of a configuration's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Embedded,
    Local,
    Remote,
    /// Five tablets each, on the embedded device and a remote one.
    Divided,
    /// The same, on four devices of two storage nodes.
    Nodes,
    /// A mirror of two remote devices.
    Mirrored,
}

/// A name, settings, and on what kind of device the tables lie.
type Configuration = (&'static str, SettingList, On);

/// Means every split that a query has.
const EVERY: &str = "every";
/// The delta is flushed before a query reads; elsewhere it is shipped.
const FLUSHED: (&str, &str) = ("shipped_delta_bytes", "0");
/// More joins than any case has.
const JOIN_COUNT_MAX: usize = 8;

/// Each finds what no other one does; what each is for, and which faults were put in to see that some configuration
/// finds them, is in `docs/design/testing.md`.
const CONFIGURATIONS: [Configuration; 10] = [
    // No cut: the oracle. The newest rows are read as a shipped delta.
    ("host", &[("split", "host")], On::Embedded),
    // As a database of one process runs.
    ("auto", &[("split", "auto"), FLUSHED], On::Embedded),
    // Slots of a few rows, one at a time: batches that are cut, and a device that waits for the host. Queries of WITH
    // are stages.
    (
        "small_slots",
        &[
            ("split", "h0"),
            ("slot_bytes", "4kB"),
            ("slot_count", "1"),
            ("batch_size", "7"),
            ("stages", "always"),
            ("filter_history", "always"),
        ],
        On::Embedded,
    ),
    // The link through shared memory.
    ("local_h0", &[("split", "h0")], On::Local),
    // Pages over a link, as blocks and by column.
    ("remote_blk", &[("stack", "blk")], On::Remote),
    ("remote_native", &[("stack", "native"), ("threads", "1"), FLUSHED], On::Remote),
    // Fragments over a link, cut in every way, with all filters from above, late materialisation and stages. Pages that
    // the host reads are filtered by the device.
    (
        "remote_every_split",
        &[
            ("split", EVERY),
            ("key_filters", "always"),
            ("late_materialisation", "always"),
            ("page_filter", "always"),
            ("stages", "always"),
            ("filter_history", "always"),
        ],
        On::Remote,
    ),
    // Other join orders, a host that takes morsels of the device, and pages that lie on two copies.
    ("mirrored_other_orders", &[("join_order_with_split", "always"), FLUSHED], On::Mirrored),
    // Tables over two devices: broadcasts, and the merged rows of several fragments.
    (
        "divided_every_split",
        &[
            ("default_tablets", "5"),
            ("split", EVERY),
            ("stages", "always"),
            ("filter_history", "always"),
        ],
        On::Divided,
    ),
    // Four devices of two nodes, whose morsels the host takes, and which note what conditions are true for.
    (
        "four_devices",
        &[
            ("default_tablets", "5"),
            ("split", "h0"),
            ("threads", "1"),
            ("stealing", "always"),
            ("filter_history", "always"),
            FLUSHED,
        ],
        On::Nodes,
    ),
];

#[test]
fn cases_give_the_same_rows_in_every_configuration() {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql/cases"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
    files.sort();
    assert!(files.len() >= 5, "the cases are missing");
    if let Ok(wanted) = std::env::var("CLEAVE_SQL_CASES") {
        let stems = |file: &PathBuf| file.file_stem().map(|stem| stem.to_owned());
        files.retain(|file| {
            stems(file).is_some_and(|stem| wanted.split(',').any(|one| *one == stem))
        });
        assert!(!files.is_empty(), "no case is named {wanted}");
    }
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let is_chosen = std::env::var_os("CLEAVE_SQL_CASES").is_some();
    let all = files.iter().flat_map(|file| {
        let configurations = if is_chosen { CONFIGURATIONS.to_vec() } else { those_of(file) };
        configurations.into_iter().map(move |configuration| (file, configuration))
    });
    let left = Mutex::new(all.collect::<Vec<_>>().into_iter());
    let failures = Mutex::new(Vec::new());
    // A script runs one statement at a time: one script for each processor keeps all of them busy.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((file, configuration)) = { left.lock().unwrap().next() } {
                    if let Err(error) = run_file(&runtime, file, configuration) {
                        let failure = format!("{}: {error}", configuration.0);
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// The configurations that `file` runs in: all of them, or those that it names.
fn those_of(file: &Path) -> Vec<Configuration> {
    let text = std::fs::read_to_string(file).unwrap();
    let Some(names) = text.lines().find_map(|line| line.strip_prefix("# Configurations: ")) else {
        return CONFIGURATIONS.to_vec();
    };
    let named = |name: &str| CONFIGURATIONS.into_iter().find(|(known, _, _)| *known == name);
    let of_name =
        |name| named(name).unwrap_or_else(|| panic!("{}: no such: {name}", file.display()));
    names.split(", ").map(of_name).collect()
}

/// Runs one script in a database of its own.
fn run_file(
    runtime: &runtime::Runtime,
    file: &Path,
    (name, settings, on): Configuration,
) -> Result<(), TestError> {
    let place = Arc::new(runtime.block_on(Place::new(on)));
    let mut runner = Runner::new(|| {
        let place = Arc::clone(&place);
        async move { Ok(place.connection(settings)) }
    });
    runner.add_label(name);
    // Statements that are not run under every split follow configuration `divided`.
    if name == "divided_every_split" {
        runner.add_label("divided");
    }
    runtime.block_on(runner.run_file_async(file))
}

/// A database of its own, with devices beside it if asked for.
struct Place {
    database: Arc<Database>,
    /// The `default_device` of its sessions.
    device: &'static str,
    /// Those of the devices beside it; they end with this.
    listeners: JoinSet<()>,
    directory: TempDir,
}

impl Place {
    async fn new(on: On) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let embedded: EmbeddedFactory = Arc::new(|_| Ok(device(1) as _));
        let options = OpenOptions::new(embedded).create(true);
        let database = Database::open(&directory.path().join("db"), options).await.unwrap();
        let device_names = match on {
            On::Embedded => "embedded",
            On::Local | On::Remote => "beside",
            On::Divided => "embedded, beside",
            On::Nodes => "n1:a, n1:b, n2:c, n2:d",
            On::Mirrored => "m",
        };
        let listeners = JoinSet::new();
        let mut place = Self { database, device: device_names, listeners, directory };
        match on {
            On::Embedded => {}
            On::Local => place.attach_local(device(2)).await,
            On::Remote | On::Divided => place.attach("beside", device(2)).await,
            On::Nodes => {
                for (node, names) in [("n1", ["n1:a", "n1:b"]), ("n2", ["n2:c", "n2:d"])] {
                    let node = Node::new(node);
                    for name in names {
                        place.attach(name, device_of(&node, name)).await;
                    }
                }
            }
            On::Mirrored => {
                place.attach("a", device(2)).await;
                place.attach("b", device(3)).await;
                let mut session = place.database.session();
                session.run("CREATE DEVICE m WITH (mirrors = 'a, b')").await.unwrap();
            }
        }
        place
    }

    /// Attaches `runtime` as device `beside`, through shared memory.
    async fn attach_local(&mut self, runtime: Arc<Runtime>) {
        let socket = self.directory.path().join("device.sock");
        let options =
            LocalOptions { socket: socket.clone(), rate_cap: None, log: Arc::new(|_| ()) };
        self.listeners.spawn(LocalListener::bind(runtime, options).await.unwrap().serve());
        let near = LocalDevice { socket, rate_cap: None };
        self.database.add_device("beside", near).await.unwrap();
    }

    /// Attaches `runtime` as device `name`, over a link.
    async fn attach(&mut self, name: &str, runtime: Arc<Runtime>) {
        let token_file = self.directory.path().join("token");
        cleave_media::files::write_durably(&token_file, b"0123456789abcdef0123456789abcdef")
            .unwrap();
        let options = ListenOptions {
            address: "127.0.0.1:0".parse().unwrap(),
            identity: None,
            token: Token::from_file(&token_file).unwrap(),
            rate_cap: None,
            log: Arc::new(|_| ()),
        };
        let listener = Listener::bind(runtime, options).await.unwrap();
        let remote = RemoteDevice {
            host: "127.0.0.1".into(),
            port: listener.local_address().port(),
            token_file: Some(token_file),
            ca_pem: None,
            rate_cap: None,
        };
        self.listeners.spawn(listener.serve());
        self.database.add_device(name, remote).await.unwrap();
    }

    fn connection(self: Arc<Self>, settings: &[(&str, &str)]) -> Connection {
        let mut session = self.database.session();
        session.set("default_device", self.device).unwrap();
        let every_split = settings.contains(&("split", EVERY));
        for (name, value) in settings.iter().filter(|(_, value)| *value != EVERY) {
            session.set(name, value).unwrap();
        }
        Connection { session, every_split, _place: self }
    }
}

/// Whether a query gives the same rows each time it runs.
fn is_repeatable(sql: &str) -> bool {
    let sql = sql.trim().to_lowercase();
    let varies = [
        "random(",
        "uuid(",
        "now(",
        "current_",
        "explain",
        "limit",
        "fetch first",
        "offset",
        "nextval(",
        "setval(",
        "advisory_",
        "returning",
    ];
    ["select", "with", "execute"].iter().any(|verb| sql.starts_with(verb))
        && !varies.iter().any(|word| sql.contains(word))
}

impl Connection {
    /// Panics where a split gives other rows than `expected`.
    async fn run_under_every_split(&mut self, sql: &str, expected: &[Vec<String>]) {
        let Ok(DBOutput::Rows { rows: usual, .. }) = self.run_once("SHOW split").await else {
            panic!("SHOW gives no row")
        };
        let numbered = (1..=JOIN_COUNT_MAX).flat_map(|n| [format!("h{n}"), format!("h{n}+")]);
        let splits =
            ["host", "h0", "ndp", "g0", "g1", "g2"].into_iter().map(str::to_owned).chain(numbered);
        for split in splits {
            self.session.set("split", &split).unwrap();
            match self.run_once(sql).await {
                Ok(DBOutput::Rows { rows, .. }) => {
                    assert!(
                        are_alike(&rows, expected),
                        "{split} of {sql}: {rows:?}, not {expected:?}"
                    );
                }
                Ok(_) => panic!("{split} of {sql}: no rows"),
                // The statement has no such split.
                Err(error) => {
                    let message = error.to_string();
                    assert!(
                        message.contains("cannot run this statement"),
                        "{split} of {sql}: {message}"
                    );
                    if split.starts_with('h') && !split.ends_with('+') {
                        break;
                    }
                }
            }
        }
        self.session.set("split", &usual[0][0]).unwrap();
    }

    async fn run_once(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
        let Some(outcome) = self.session.run(sql).await?.pop() else {
            return Ok(DBOutput::StatementComplete(0));
        };
        let (schema, batches) = match outcome {
            Outcome::Rows { schema, batches } => (schema, batches),
            Outcome::Done { tag } => {
                let count = tag.rsplit(' ').next().and_then(|count| count.parse().ok());
                return Ok(DBOutput::StatementComplete(count.unwrap_or(0)));
            }
        };
        let mut rows = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let mut cells = Vec::new();
                for column in batch.columns() {
                    let text = value_text(column, row)?;
                    cells.push(match text {
                        None => "NULL".to_owned(),
                        Some(text) if text.is_empty() => "(empty)".to_owned(),
                        Some(text) => text,
                    });
                }
                rows.push(cells);
            }
        }
        let types = vec![DefaultColumnType::Any; schema.fields().len()];
        Ok(DBOutput::Rows { types, rows })
    }
}

/// Whether these are the same rows in any order; floats may differ by a relative 1e-9 (rule 5).
fn are_alike(rows: &[Vec<String>], expected: &[Vec<String>]) -> bool {
    let sorted = |rows: &[Vec<String>]| {
        let mut rows = rows.to_vec();
        rows.sort();
        rows
    };
    let is_alike = |one: &String, other: &String| {
        let numbers = one.parse::<f64>().ok().zip(other.parse::<f64>().ok());
        one == other
            || numbers.is_some_and(|(one, other)| (one - other).abs() <= 1e-9 * other.abs())
    };
    let (rows, expected) = (sorted(rows), sorted(expected));
    rows.len() == expected.len()
        && rows
            .iter()
            .flatten()
            .zip(expected.iter().flatten())
            .all(|(one, other)| is_alike(one, other))
}

fn device(id: u8) -> Arc<Runtime> {
    Runtime::new(Arc::new(Memory::new()), RuntimeOptions::new([id; 16])).unwrap()
}

/// A device of `node`, with one core.
fn device_of(node: &Arc<Node>, name: &str) -> Arc<Runtime> {
    let id = name.bytes().next_back().unwrap();
    let options = RuntimeOptions { cores: 1, io_threads: 2, ..RuntimeOptions::new([id; 16]) };
    Runtime::in_node(Arc::new(Memory::new()), options, node).unwrap()
}

struct Connection {
    session: Session,
    every_split: bool,
    _place: Arc<Place>,
}

impl Connection {
    /// [`Self::run_checked`] as a future that is known to be [`Send`]. The compiler proves that here, once; where
    /// lifetimes have bounds, as in the trait's function, it caches nothing of that.
    fn boxed_run<'f>(
        &'f mut self,
        sql: &'f str,
    ) -> BoxFuture<'f, Result<DBOutput<DefaultColumnType>, Error>> {
        Box::pin(self.run_checked(sql))
    }

    async fn run_checked(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
        let output = self.run_once(sql).await?;
        if let DBOutput::Rows { rows, .. } = &output
            && self.every_split
            // A split that a query does not have would end the block.
            && self.session.transaction_status() == TransactionStatus::Idle
            && is_repeatable(sql)
        {
            self.run_under_every_split(sql, rows).await;
        }
        Ok(output)
    }
}

#[async_trait::async_trait]
impl AsyncDB for Connection {
    type Error = Error;
    type ColumnType = DefaultColumnType;

    fn run<'a, 's, 'f>(
        &'a mut self,
        sql: &'s str,
    ) -> BoxFuture<'f, Result<DBOutput<DefaultColumnType>, Error>>
    where
        'a: 'f,
        's: 'f,
    {
        self.boxed_run(sql)
    }

    async fn shutdown(&mut self) {}

    fn error_sql_state(error: &Error) -> Option<String> {
        Some(error.sqlstate().to_owned())
    }
}
