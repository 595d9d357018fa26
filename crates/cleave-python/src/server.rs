//! The session of a server: the same statements and values in, over PostgreSQL's protocol.
//!
//! A server gives one result at a time. Before the next statement of a connection, what is left of the result of
//! another cursor is read into memory, and a query that was given up has been cancelled ([`Server::settle`]). Rows are
//! loaded as CSV by COPY, which the server reads as values of the table's columns.

use std::io::{ErrorKind, Read};
use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_client::{Address, Answer, CancelHandle, Client, TransactionStatus, Value as SentValue};
use cleave_host::Error;
use cleave_host::address_file::{Found, Listens};
use cleave_host::copy::{CsvOptions, CsvWriter};
use cleave_host::statement::{Statement, parse_script};
use cleave_store::ColumnType;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use tokio::sync::Mutex;
use tokio::task::block_in_place;

use crate::arrow_stream::Stream;
use crate::embedded::changes_or_locks;
use crate::errors::{self, Failure};
use crate::held::Held;
use crate::outside::of_stream;
use crate::parameters::{Listed, Target, Value, for_each_row, quoted};
use crate::plain_types::{plain_batch, plain_schema};
use crate::rows::Source;
use crate::statement_run::StatementRun;

/// Rows that are encoded at a time.
const PIECE_ROWS: usize = 8192;
/// NULL in CSV, where it is not quoted.
const NULL: &str = "\\N";
/// As whom a process logs in to the shell beside it: as the shell's own user.
const USER_OF_SHELL: &str = "cleave";
/// What a server is told for a session that only reads.
const ONLY_READS: &str = "cleave.only_reads";
/// What the rows of a load are called in errors.
const ROWS: &str = "the rows";

/// A session of a server.
pub(crate) struct Server {
    client: Client,
    /// The result that is being read.
    open: Weak<Mutex<Source>>,
}

/// The outcome of a statement.
pub(crate) enum Answered {
    /// Rows with these columns.
    Rows(Box<Answer>, SchemaRef, Cancel),
    /// None, with the command tag.
    Done(String),
}

/// What stops a statement.
pub(crate) struct Cancel {
    pub(crate) handle: CancelHandle,
    /// Whether nothing but its rows is lost then: no change of its own, and no transaction.
    pub(crate) loses_rows_alone: bool,
}

impl Held for Server {
    fn stopped(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.stop())
    }
}

impl Server {
    /// Connects to the server of a URL.
    pub(crate) async fn connect(
        url: String,
        settings: Vec<(String, String)>,
        read_only: bool,
    ) -> Result<Self, Failure> {
        let mut address = with_settings(Address::from_url(&url)?, &settings, read_only);
        if read_only {
            // PostgreSQL does not know the other one.
            address = address.with_setting("default_transaction_read_only", "on");
        }
        let client = Box::pin(Client::connect_to(address)).await?;
        Ok(Self { client, open: Weak::new() })
    }

    /// Connects to the process that has a database open; None: it is a shell that is just ending.
    pub(crate) async fn beside(
        found: &Found,
        settings: &[(String, String)],
        read_only: bool,
    ) -> Result<Option<Self>, Failure> {
        let address = match &found.listens {
            Listens::Tcp(socket) => Address::of_socket(*socket, &found.database),
            Listens::Unix(path) => Address::of_unix_socket(path, USER_OF_SHELL, &found.database),
        };
        let address = with_settings(address, settings, read_only);
        match Box::pin(Client::connect_to(address)).await {
            Ok(client) => Ok(Some(Self { client, open: Weak::new() })),
            Err(error) if found.is_ending(error.sqlstate()) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The state of its transaction: idle, open or failed.
    pub(crate) fn status(&self) -> &'static str {
        match self.client.transaction_status() {
            TransactionStatus::Idle => "idle",
            TransactionStatus::Active => "open",
            TransactionStatus::Failed => "failed",
        }
    }

    /// Notes the source of the rows that it gave last.
    pub(crate) fn note_open(&mut self, source: &Arc<Mutex<Source>>) {
        self.open = Arc::downgrade(source);
    }

    /// Reads what is left of an open result, or waits until one that was given up has been cancelled, so that the next
    /// statement can run.
    async fn settle(&mut self) {
        // Until that is done: a statement that is stopped meanwhile leaves it to the next one.
        if let Some(source) = self.open.upgrade() {
            source.lock().await.buffer().await;
        }
        self.open = Weak::new();
        self.client.freed().await;
    }

    /// Runs the statements of `sql`, and gives the outcome of the last one.
    pub(crate) async fn run(
        &mut self,
        sql: &str,
        values: &[Value],
        implicit: bool,
    ) -> Result<Answered, Failure> {
        self.settle().await;
        // What this parser does not know, the server may.
        let Ok(mut statements) = parse_script(sql) else {
            return self.run_one(sql, values, implicit).await;
        };
        let Some(last) = statements.pop() else { return Ok(Answered::Done(String::new())) };
        if !values.is_empty() && !statements.is_empty() {
            return Err(Error::unsupported("several statements with parameters").into());
        }
        // The only one is sent as it is, so that positions in errors are those of its text.
        let text = if statements.is_empty() { sql } else { last.text.as_str() };
        for statement in statements {
            let begins = implicit && changes_or_locks(&statement.statement);
            if let Answered::Rows(mut answer, ..) =
                self.run_one(&statement.text, &[], begins).await?
            {
                answer.collect().await?;
            }
        }
        let begins = implicit && changes_or_locks(&last.statement);
        let mut answered = self.run_one(text, values, begins).await?;
        if let Answered::Rows(_, _, cancel) = &mut answered {
            let is_query = matches!(last.statement, Statement::Query(_));
            cancel.loses_rows_alone = is_query && !self.client.in_transaction();
        }
        Ok(answered)
    }

    /// Runs one statement, in the transaction that it begins if it has to.
    async fn run_one(
        &mut self,
        sql: &str,
        values: &[Value],
        begins: bool,
    ) -> Result<Answered, Failure> {
        let begins = self.begin(begins).await?;
        let values: Vec<SentValue> = values.iter().map(sent).collect();
        let answered = Box::pin(self.answered(sql, &values)).await;
        self.end_failed(begins, answered).await
    }

    async fn answered(&mut self, sql: &str, values: &[SentValue]) -> Result<Answered, Failure> {
        let mut answer = self.client.run(sql, values).await?;
        match answer.schema().cloned() {
            Some(schema) => {
                let handle = self.client.cancel_handle();
                let cancel = Cancel { handle, loses_rows_alone: false };
                Ok(Answered::Rows(Box::new(answer), schema, cancel))
            }
            None => {
                answer.collect().await?;
                Ok(Answered::Done(answer.tag().unwrap_or_default().to_owned()))
            }
        }
    }

    /// Begins a transaction if `begins` says so and none is open; says whether it did.
    async fn begin(&mut self, begins: bool) -> Result<bool, Failure> {
        let begins = begins && !self.client.in_transaction();
        if begins {
            self.done("BEGIN").await?;
        }
        Ok(begins)
    }

    async fn done(&mut self, sql: &str) -> Result<(), Failure> {
        Box::pin(self.client.run(sql, &[])).await?.collect().await?;
        Ok(())
    }

    /// The outcome, after the end of a transaction that the failed statement has begun itself.
    async fn end_failed<T>(
        &mut self,
        begins: bool,
        outcome: Result<T, Failure>,
    ) -> Result<T, Failure> {
        if outcome.is_err() && begins && !self.client.is_closed() {
            self.done("ROLLBACK").await?;
        }
        outcome
    }

    /// Adds the rows of a stream to a table.
    pub(crate) async fn append(
        &mut self,
        table: &Target,
        stream: Stream,
        run: Arc<StatementRun>,
    ) -> Result<u64, Failure> {
        let schema = plain_schema(stream.schema());
        let schema = schema.map_err(|error| errors::outside_data(format!("{ROWS}: {error}")))?;
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let sql = copy_statement(table, &names);
        self.settle().await;
        let mut encoded = Encoded { stream, schema, text: Vec::new(), at: 0, run };
        Ok(Box::pin(self.client.copy_in(&sql, &mut encoded)).await?)
    }

    /// Adds rows, which are CSV, to columns of a table, in the transaction that it begins if it has to. None: it does
    /// not have as many columns, and nothing was done.
    pub(crate) async fn load(
        &mut self,
        table: &Target,
        columns: Listed,
        csv: Vec<u8>,
        implicit: bool,
    ) -> Result<Option<u64>, Failure> {
        self.settle().await;
        let names = match columns {
            Listed::Named(names) => names,
            Listed::First(count) => {
                let query = format!("SELECT * FROM {} LIMIT 0", table.quoted());
                let answer = Box::pin(self.client.run(&query, &[])).await;
                let Ok(mut answer) = answer else { return Ok(None) };
                let schema = answer.schema().cloned();
                answer.collect().await?;
                let all: Vec<String> = schema
                    .map(|schema| {
                        schema.fields().iter().map(|field| field.name().clone()).collect()
                    })
                    .unwrap_or_default();
                let Some(first) = all.get(..count) else { return Ok(None) };
                first.to_vec()
            }
        };
        let begins = self.begin(implicit).await?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let sql = copy_statement(table, &names);
        let copied = Box::pin(self.client.copy_in(&sql, &mut csv.as_slice())).await;
        self.end_failed(begins, copied.map(Some).map_err(Failure::from)).await
    }
}

/// Rows of Python's values as CSV.
pub(crate) fn csv_of(rows: &Bound<'_, PyAny>, width: usize) -> PyResult<Vec<u8>> {
    let mut text = String::new();
    for_each_row(rows, width, |row| {
        for (place, value) in row.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            match &value.text {
                None => text.push_str(NULL),
                Some(value) => {
                    text.push('"');
                    text.push_str(&value.replace('"', "\"\""));
                    text.push('"');
                }
            }
        }
        text.push('\n');
        Ok(())
    })?;
    Ok(text.into_bytes())
}

/// Batches of a stream as CSV, encoded as they are read.
struct Encoded {
    stream: Stream,
    schema: SchemaRef,
    text: Vec<u8>,
    at: usize,
    run: Arc<StatementRun>,
}

impl Encoded {
    /// Encodes the next batch; false: there is none.
    fn fill(&mut self) -> Result<bool, Error> {
        (self.text, self.at) = (Vec::new(), 0);
        let reading = self.run.reading();
        let batch = self.stream.next().map_err(|error| of_stream(ROWS, &error))?;
        drop(reading);
        let Some(batch) = batch else { return Ok(false) };
        let options = CsvOptions { null: NULL.to_owned(), ..CsvOptions::csv() };
        let mut writer = CsvWriter::new(&mut self.text, ROWS, &self.schema, options)?;
        for from in (0..batch.num_rows()).step_by(PIECE_ROWS) {
            let rows = batch.slice(from, PIECE_ROWS.min(batch.num_rows() - from));
            let rows: RecordBatch =
                plain_batch(&rows, &self.schema).map_err(|error| of_stream(ROWS, &error))?;
            writer.write(&rows)?;
        }
        writer.finish()?;
        Ok(true)
    }
}

impl Read for Encoded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.at >= self.text.len() {
            // It may wait for Python's lock, or for a query that this runtime has to run.
            match block_in_place(|| self.fill()) {
                // A batch without rows: its reader looks whether it is stopped.
                Ok(true) if self.text.is_empty() => return Err(ErrorKind::Interrupted.into()),
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
        let left = self.text.get(self.at..).unwrap_or_default();
        let count = left.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), left.get(..count)) {
            to.copy_from_slice(from);
        }
        self.at += count;
        Ok(count)
    }
}

/// The same address, for a session that begins with these settings.
fn with_settings(address: Address, settings: &[(String, String)], read_only: bool) -> Address {
    let settings = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let reading = read_only.then_some((ONLY_READS, "on"));
    settings
        .chain(reading)
        .fold(address, |address, (name, value)| address.with_setting(name, value))
}

fn copy_statement(table: &Target, columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let (table, columns) = (table.quoted(), columns.join(", "));
    format!("COPY {table} ({columns}) FROM STDIN (FORMAT csv, NULL '{NULL}')")
}

/// A value as the client sends it, with its type.
fn sent(value: &Value) -> SentValue {
    let Some(text) = value.text.clone() else { return SentValue::Null };
    let type_oid = match value.column_type {
        None => return SentValue::Text(text),
        Some(ColumnType::Boolean) => 16,
        Some(ColumnType::Bytea) => 17,
        Some(ColumnType::BigInt) => 20,
        Some(ColumnType::SmallInt) => 21,
        Some(ColumnType::Int) => 23,
        Some(ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_)) => 25,
        Some(ColumnType::Real) => 700,
        Some(ColumnType::Double) => 701,
        Some(ColumnType::Date) => 1082,
        Some(ColumnType::Time) => 1083,
        Some(ColumnType::Timestamp) => 1114,
        Some(ColumnType::TimestampTz) => 1184,
        Some(ColumnType::Interval) => 1186,
        Some(ColumnType::Numeric { .. }) => 1700,
        Some(ColumnType::Uuid) => 2950,
    };
    SentValue::Typed { type_oid, text }
}
