//! The session of a database of this process: statements and values in, [`Started`] out.
//!
//! A statement with values is prepared once, and found again by its text and the types of its values. Outside of a
//! transaction, tables of which many rows have changed are analysed at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use cleave_host::outside_tables::OutsideTables;
use cleave_host::statement::parse::Define;
use cleave_host::statement::{Copy, ParsedStatement, Statement, parse_script_in};
use cleave_host::temporary::TemporaryFolder;
use cleave_host::value::ColumnBuilder;
use cleave_host::{Changes, Database, Effort, Error, Session, Started, TransactionStatus};
use cleave_store::{Column, ColumnType};
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use pyo3::prelude::*;

use crate::databases::Opening;
use crate::errors;
use crate::held::Held;
use crate::parameters::{Listed, Target, Value, for_each_row};
use crate::process::{self, Count};

/// Prepared statements that a session has at a time.
const PREPARED_MAX: usize = 100;
/// SQLSTATE of a parameter whose type nothing tells.
const UNKNOWN_TYPE: &str = "42P18";
/// Rows of a batch that is made of Python's values.
const BATCH_ROWS: usize = 8192;
/// Changed rows of a table after which it is analysed, so that the next query is planned with statistics.
const LARGE_CHANGE: u64 = 10_000;

/// A session with its database.
pub(crate) struct Embedded {
    session: Session,
    database: Arc<Database>,
    /// Names of prepared statements, by types of values and text.
    prepared: BTreeMap<String, String>,
    prepared_count: u64,
    /// What its tables had when it was opened, or when they could not be analysed.
    before: Changes,
    /// Grows with each statement that begins outside of a transaction, so that each transaction has a number.
    epoch: u64,
    /// The folder of a database in memory, removed with it.
    folder: Option<TemporaryFolder>,
}

impl Held for Embedded {
    fn stopped(&mut self) -> BoxFuture<'_, ()> {
        self.session.set_outside_tables(None);
        self.session.fail_block();
        Box::pin(ready(()))
    }
}

impl Embedded {
    /// Opens the database in the folder `path`, with these settings; None: one in a folder that is made now. With
    /// `read_only` its session only reads.
    pub(crate) async fn open(
        path: Option<String>,
        settings: Vec<(String, String)>,
        opening: Opening,
        read_only: bool,
    ) -> Result<Self, Error> {
        let (folder, opening) = match path {
            Some(_) => (None, opening),
            None => (Some(new_folder()?), Opening { create: true, ..opening }),
        };
        let place = path.as_deref().map(Path::new);
        let place = place.or(folder.as_ref().map(TemporaryFolder::path)).unwrap_or(Path::new(""));
        let Some(databases) = process::databases() else {
            return Err(Error::unsupported("opening a database in a fork"));
        };
        let database = databases.open(place, opening).await?;
        let mut session = database.session();
        let set = settings.iter().try_for_each(|(name, value)| session.set(name, value));
        if read_only {
            session.only_read("its connection was opened with read_only=True");
        }
        let before = database.changes();
        let (prepared, prepared_count) = (BTreeMap::new(), 0);
        let opened = Self { session, database, prepared, prepared_count, before, epoch: 0, folder };
        if let Err(error) = set {
            Box::pin(opened.close()).await;
            return Err(error);
        }
        Ok(opened)
    }

    /// Closes it. What was not committed leaves nothing behind.
    pub(crate) async fn close(self) {
        let Self { mut session, database, folder, .. } = self;
        if session.transaction_status() != TransactionStatus::Idle {
            drop(session.run("ROLLBACK").await);
        }
        drop(session.finish_background().await);
        drop(session);
        if let Some(databases) = process::databases() {
            databases.close(database).await;
        }
        drop(folder);
    }

    /// How far its present statement is.
    pub(crate) fn count(&self) -> Count {
        let progress = self.session.progress();
        Arc::new(move || progress.read())
    }

    /// The state of its transaction.
    pub(crate) fn status(&self) -> TransactionStatus {
        self.session.transaction_status()
    }

    /// The number of its transaction, or of its last statement outside of one.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// `statement_timeout`, in milliseconds; 0: there is none.
    pub(crate) fn limit_ms(&self) -> u32 {
        self.session.settings().statement_timeout_ms
    }

    /// Reports that rows of a query, which began at `epoch`, have failed on their way. A later transaction goes on.
    pub(crate) fn fail(&mut self, epoch: u64) {
        if self.epoch == epoch {
            self.session.fail_block();
        }
    }

    /// As [`Self::run`], of statements that may name `tables`.
    pub(crate) async fn run_with(
        &mut self,
        sql: &str,
        values: &[Value],
        implicit: bool,
        tables: Option<Arc<dyn OutsideTables>>,
    ) -> Result<Started, Error> {
        let has_tables = tables.is_some();
        self.session.set_outside_tables(tables);
        let started = self.run(sql, values, implicit).await;
        if has_tables {
            self.session.set_outside_tables(None);
        }
        started
    }

    /// Runs the statements of `sql` up to the first rows of the last one.
    async fn run(&mut self, sql: &str, values: &[Value], implicit: bool) -> Result<Started, Error> {
        self.session.progress().begin();
        if values.is_empty()
            && let Some(started) = self.session.start_seen(sql).await
        {
            return Ok(started);
        }
        if !values.is_empty()
            && let Some(name) = self.prepared.get(&key_of(sql, values))
            && let Some(started) = self.session.start_look_up(name, &texts_of(values))
        {
            return Ok(started);
        }
        let database = self.session.settings().client.database.clone();
        let parsed = parse_script_in(sql, Some(&database));
        let mut statements = parsed.inspect_err(|_| self.session.fail_block())?;
        let Some(last) = statements.pop() else {
            return Ok(Started::Done { tag: String::new() });
        };
        if !values.is_empty() && !statements.is_empty() {
            return Err(Error::unsupported("several statements with parameters"));
        }
        for statement in statements {
            self.run_one(statement, (sql, &[]), implicit).await?.collect().await?;
        }
        self.run_one(last, (sql, values), implicit).await
    }

    /// Runs one statement, with values if there are any, in the transaction that it begins if it has to.
    async fn run_one(
        &mut self,
        parsed: ParsedStatement,
        (sql, values): (&str, &[Value]),
        implicit: bool,
    ) -> Result<Started, Error> {
        let begins = self.begins() && implicit && changes_or_locks(&parsed.statement);
        if begins {
            self.session.run("BEGIN").await?;
        }
        let started = match values.is_empty() {
            true => self.session.start(parsed).await,
            false => self.run_prepared(parsed, sql, values).await,
        };
        if started.is_err() && begins {
            // Nothing is lost, and the caller need not know of it.
            self.session.run("ROLLBACK").await?;
        }
        if let Ok(Started::Done { tag }) = &started {
            self.note_filled(row_count_of(tag)).await;
        }
        started
    }

    /// Whether a statement that begins now, and needs a transaction, begins one.
    fn begins(&mut self) -> bool {
        let is_outside = self.session.transaction_status() == TransactionStatus::Idle;
        self.epoch += u64::from(is_outside);
        is_outside
    }

    async fn run_prepared(
        &mut self,
        parsed: ParsedStatement,
        sql: &str,
        values: &[Value],
    ) -> Result<Started, Error> {
        let (key, texts) = (key_of(sql, values), texts_of(values));
        if let Some(name) = self.prepared.get(&key) {
            match self.session.start_prepared(name, &texts).await {
                // DISCARD or DEALLOCATE has removed it.
                Err(error) if error.sqlstate() == "26000" => {}
                started => return started,
            }
        }
        if self.prepared.len() >= PREPARED_MAX {
            for name in std::mem::take(&mut self.prepared).values() {
                self.session.deallocate(Some(name)).unwrap_or_default();
            }
        }
        self.prepared_count += 1;
        let name = format!("python_{}", self.prepared_count);
        let mut types: Vec<Option<ColumnType>> =
            values.iter().map(|value| value.column_type).collect();
        let mut prepared = self.session.prepare_statement(&name, parsed.clone(), &types).await;
        if prepared.as_ref().is_err_and(|error| error.sqlstate() == UNKNOWN_TYPE) {
            // Nothing tells the type of a text: it is one.
            types.iter_mut().for_each(|known| *known = known.or(Some(ColumnType::Text)));
            prepared = self.session.prepare_statement(&name, parsed, &types).await;
        }
        prepared.inspect_err(|_| self.session.fail_block())?;
        let started = self.session.start_prepared(&name, &texts).await;
        self.prepared.insert(key, name);
        started
    }

    /// Adds rows to a table, in the transaction that it begins if it has to.
    pub(crate) async fn append(
        &mut self,
        table: &Target,
        batches: BoxStream<'static, Result<RecordBatch, Error>>,
    ) -> Result<u64, Error> {
        if table.is_public && self.session.has_temporary(&table.name) {
            let what = format!("adding rows to {}, which a temporary table hides,", table.quoted());
            return Err(Error::unsupported(what));
        }
        self.session.progress().begin();
        self.begins();
        let appended = self.session.append(&table.name, batches).await?;
        self.note_filled(appended).await;
        Ok(appended)
    }

    /// The same of rows whose values were read as those of `columns`, in the transaction that it begins if it has to.
    /// None: the table has other columns by now, and nothing was added.
    pub(crate) async fn append_as(
        &mut self,
        table: &str,
        columns: &[Column],
        batches: BoxStream<'static, Result<RecordBatch, Error>>,
        implicit: bool,
    ) -> Result<Option<u64>, Error> {
        self.session.progress().begin();
        let begins = self.begins() && implicit;
        if begins {
            self.session.run("BEGIN").await?;
        }
        let appended = self.session.append_as(table, columns, batches).await;
        if begins && !matches!(appended, Ok(Some(_))) {
            self.session.run("ROLLBACK").await?;
        }
        let appended = appended?;
        self.note_filled(appended.unwrap_or(0)).await;
        Ok(appended)
    }

    /// The columns of a table that values go to, as the session sees it; None: it is no plain table, is hidden, or
    /// does not have them.
    pub(crate) fn targets(&self, table: &Target, listed: &Listed) -> Option<Vec<Column>> {
        if table.is_public && self.session.has_temporary(&table.name) {
            return None;
        }
        let columns = self.session.columns_of(&table.name)?;
        match listed {
            Listed::First(count) => columns.get(..*count).map(<[Column]>::to_vec),
            Listed::Named(names) => {
                let named = |name: &String| columns.iter().find(|own| own.name == *name).cloned();
                names.iter().map(named).collect()
            }
        }
    }

    async fn note_filled(&mut self, row_count: u64) {
        if row_count >= LARGE_CHANGE {
            self.analyze_filled().await;
        }
    }

    /// Analyses tables of which many rows have changed. What cannot be analysed is left to the upkeep.
    async fn analyze_filled(&mut self) {
        if self.session.transaction_status() != TransactionStatus::Idle {
            return;
        }
        let filled =
            Box::pin(self.database.analyze_filled(&self.before, LARGE_CHANGE, Effort::Quick));
        if !filled.await.is_empty() {
            self.before = self.database.changes();
        }
    }
}

/// Whether a statement changes or locks rows, which a transaction could undo or hold. EXECUTE may: only the session
/// knows what it runs, and that may be a server's.
pub(crate) fn changes_or_locks(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(_)
        | Statement::Modify(_)
        | Statement::ChangingWith(_)
        | Statement::Locking(_)
        | Statement::LockedParts(_)
        | Statement::LockTable(_)
        | Statement::Execute(_) => true,
        Statement::Copy(copy) => matches!(**copy, Copy::From { .. }),
        Statement::Define(define) => matches!(**define, Define::Truncate(_)),
        Statement::Explain { analyze, statement, .. } => *analyze && changes_or_locks(statement),
        _ => false,
    }
}

/// The rows that a command tag counts.
fn row_count_of(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// By which a statement is found that was prepared for values of these types.
fn key_of(sql: &str, values: &[Value]) -> String {
    let types = values.iter().map(|value| value.column_type);
    let types = types.map(|known| known.map_or_else(String::new, |known| known.sql_name()));
    format!("{}\n{sql}", types.collect::<Vec<_>>().join(","))
}

fn texts_of(values: &[Value]) -> Vec<Option<&str>> {
    values.iter().map(|value| value.text.as_deref()).collect()
}

/// A new folder for a database in memory.
fn new_folder() -> Result<TemporaryFolder, Error> {
    Database::temporary_folder()
        .map_err(|error| Error::io("make a folder in", &std::env::temp_dir(), error))
}

/// Rows of Python's values as batches of these columns.
pub(crate) fn batches_of(
    targets: &[Column],
    rows: &Bound<'_, PyAny>,
) -> PyResult<Vec<RecordBatch>> {
    let py = rows.py();
    let fields = targets.iter().map(|column| column.arrow().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let new = || -> Vec<ColumnBuilder> {
        let builders = targets.iter();
        builders.map(|column| ColumnBuilder::new(&column.column_type, BATCH_ROWS)).collect()
    };
    let (mut batches, mut builders, mut row_count) = (Vec::new(), new(), 0);
    let finished = |builders: &mut Vec<ColumnBuilder>| {
        let columns = std::mem::replace(builders, new()).into_iter().map(|mut one| one.finish());
        RecordBatch::try_new(Arc::clone(&schema), columns.collect())
            .map_err(|error| errors::exception(py, &Error::from(error)))
    };
    for_each_row(rows, targets.len(), |row| {
        for ((column, builder), value) in targets.iter().zip(&mut builders).zip(row) {
            append_value(builder, column, value).map_err(|error| errors::exception(py, &error))?;
        }
        row_count += 1;
        if row_count == BATCH_ROWS {
            batches.push(finished(&mut builders)?);
            row_count = 0;
        }
        Ok(())
    })?;
    if row_count > 0 {
        batches.push(finished(&mut builders)?);
    }
    Ok(batches)
}

/// Adds a value to a column, by the rules of an assignment.
fn append_value(builder: &mut ColumnBuilder, column: &Column, value: &Value) -> Result<(), Error> {
    let Some(text) = &value.text else {
        builder.append_null();
        return Ok(());
    };
    let is_whole =
        matches!(column.column_type, ColumnType::SmallInt | ColumnType::Int | ColumnType::BigInt);
    let appended = match value.column_type {
        Some(ColumnType::Double | ColumnType::Numeric { .. }) if is_whole => {
            builder.append_number(text)
        }
        _ => builder.append_text(text),
    };
    appended
        .map_err(|source| Error::Value { column: column.name.clone(), source: Box::new(source) })
}
