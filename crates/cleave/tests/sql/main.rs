//! SQL in, rows out: every file of `cases/` runs under every stack and split, embedded and across a link.
//!
//! One script, one expected result: a cut may change where work is done, never what comes out. Files
//! name what they are about; `skipif NAME` and `onlyif NAME` may name a configuration of [`CONFIGURATIONS`].

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_device::{
    ListenOptions, Listener, LocalListener, LocalOptions, Runtime, RuntimeOptions,
};
use cleave_fragment::link::tls::Token;
use cleave_host::value::text::value_text;
use cleave_host::{
    Database, EmbeddedFactory, Error, LocalDevice, OpenOptions, Outcome, RemoteDevice, Session,
};
use cleave_media::Memory;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Settings by name and value.
type SettingList = &'static [(&'static str, &'static str)];

/// Where the tables of a configuration lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Embedded,
    Local,
    Remote,
    /// Five tablets each, on the embedded device and a remote one.
    Divided,
}

/// Name, settings, and on what kind of device the tables lie.
const CONFIGURATIONS: [(&str, SettingList, On); 12] = [
    ("blk", &[("stack", "blk")], On::Embedded),
    ("native", &[("stack", "native")], On::Embedded),
    ("host", &[("split", "host")], On::Embedded),
    ("h0", &[("split", "h0")], On::Embedded),
    ("auto", &[("split", "auto")], On::Embedded),
    (
        "small_slots",
        &[("split", "h0"), ("slot_bytes", "4kB"), ("slot_count", "1"), ("batch_size", "7")],
        On::Embedded,
    ),
    ("local_h0", &[("split", "h0")], On::Local),
    ("remote_blk", &[("stack", "blk")], On::Remote),
    ("remote_native", &[("stack", "native"), ("threads", "1")], On::Remote),
    ("remote_h0", &[("split", "h0")], On::Remote),
    ("divided", &[("default_tablets", "5")], On::Divided),
    ("divided_h0", &[("default_tablets", "5"), ("split", "h0"), ("threads", "1")], On::Divided),
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut failures = Vec::new();
    for file in &files {
        for (name, settings, on) in CONFIGURATIONS {
            let place = Arc::new(runtime.block_on(Place::new(on)));
            let mut runner = Runner::new(|| {
                let place = Arc::clone(&place);
                async move { Ok(place.connection(settings)) }
            });
            runner.add_label(name);
            if let Err(error) = runtime.block_on(runner.run_file_async(file)) {
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// A database of its own, with a device beside it if asked for.
struct Place {
    database: Arc<Database>,
    device: &'static str,
    /// The listener of the device beside; it ends with this.
    _listener: JoinSet<()>,
    _directory: TempDir,
}

impl Place {
    async fn new(on: On) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let embedded: EmbeddedFactory = Arc::new(|_| Ok(device(1) as _));
        let options = OpenOptions::new(embedded).create(true);
        let mut listeners = JoinSet::new();
        let database = Database::open(&directory.path().join("db"), options).await.unwrap();
        if on == On::Local {
            let socket = directory.path().join("device.sock");
            let options =
                LocalOptions { socket: socket.clone(), rate_cap: None, log: Arc::new(|_| ()) };
            listeners.spawn(LocalListener::bind(device(2), options).await.unwrap().serve());
            let near = LocalDevice { socket, rate_cap: None };
            database.add_device("beside", near).await.unwrap();
        }
        if matches!(on, On::Remote | On::Divided) {
            let token_file = directory.path().join("token");
            std::fs::write(&token_file, "0123456789abcdef0123456789abcdef").unwrap();
            let options = ListenOptions {
                address: "127.0.0.1:0".parse().unwrap(),
                identity: None,
                token: Token::from_file(&token_file).unwrap(),
                rate_cap: None,
                log: Arc::new(|_| ()),
            };
            let listener = Listener::bind(device(2), options).await.unwrap();
            let remote = RemoteDevice {
                host: "127.0.0.1".into(),
                port: listener.local_address().port(),
                token_file: Some(token_file),
                ca_pem: None,
                rate_cap: None,
            };
            listeners.spawn(listener.serve());
            database.add_device("beside", remote).await.unwrap();
        }
        let device = match on {
            On::Embedded => "embedded",
            On::Local | On::Remote => "beside",
            On::Divided => "embedded, beside",
        };
        Self { database, device, _listener: listeners, _directory: directory }
    }

    fn connection(self: Arc<Self>, settings: &[(&str, &str)]) -> Connection {
        let mut session = self.database.session();
        session.set("default_device", self.device).unwrap();
        for (name, value) in settings {
            session.set(name, value).unwrap();
        }
        Connection { session, _place: self }
    }
}

fn device(id: u8) -> Arc<Runtime> {
    Runtime::new(Arc::new(Memory::new()), RuntimeOptions::new([id; 16])).unwrap()
}

struct Connection {
    session: Session,
    _place: Arc<Place>,
}

#[async_trait::async_trait]
impl AsyncDB for Connection {
    type Error = Error;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
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

    async fn shutdown(&mut self) {}

    fn error_sql_state(error: &Error) -> Option<String> {
        Some(error.sqlstate().to_owned())
    }
}
