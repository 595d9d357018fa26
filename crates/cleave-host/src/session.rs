//! A session: one client's settings, and its statements, one after the other.
//!
//! 1. [`Session::run`] reads a whole script before the first statement runs.
//! 2. Each statement goes to its handler: definitions to [`indexes`], settings here, rows in to [`insert`] and
//!    [`copy`], rows out to [`point_path`] or, planned, to
//!    [`select`].
//! 3. Each statement that writes commits by itself.
//!
//! Dropping the future of a statement stops it: one that has not begun its commit leaves nothing
//! behind, one that has is there. Deliberately absent: transactions over several statements; BEGIN is
//! refused rather than ignored.

mod copy;
mod indexes;
mod insert;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_media::{Clock, SystemClock};
use datafusion::sql::sqlparser::ast;
use futures::stream::BoxStream;

pub use copy::ClientStreams;

use crate::catalog::commit::Transaction;
use crate::catalog::{CatalogState, TableState};
use crate::database::Database;
use crate::error::{Error, NameKind, Result};
use crate::point_path::{self, PointQuery};
use crate::settings::Settings;
use crate::statement::{ExplainFormat, Statement, parse_script, select};
use crate::write::load;

/// One client's session. See the module's description.
pub struct Session {
    database: Arc<Database>,
    settings: Settings,
    /// In a lock so that the futures of statements may move between threads; never locked.
    client: Mutex<ClientStreams>,
}

/// What a statement gave.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Rows.
    Rows {
        /// Their columns.
        schema: SchemaRef,
        /// The rows.
        batches: Vec<RecordBatch>,
    },
    /// No rows.
    Done {
        /// What was done, as PostgreSQL says it: "CREATE TABLE", "INSERT 0 3", "COPY 5".
        tag: String,
    },
}

impl Outcome {
    fn done(tag: impl Into<String>) -> Self {
        Self::Done { tag: tag.into() }
    }
}

impl Session {
    /// A session on `database` with default settings.
    pub fn new(database: Arc<Database>) -> Self {
        Self { database, settings: Settings::default(), client: Mutex::default() }
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets a setting, as `SET name = value` does.
    ///
    /// # Errors
    /// [`Error::UnknownName`] or [`Error::SettingValue`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings.set(name, value)
    }

    /// Where COPY … STDIN reads and COPY … STDOUT writes.
    pub fn set_client_streams(&mut self, client: ClientStreams) {
        self.client = Mutex::new(client);
    }

    fn client(&mut self) -> &mut ClientStreams {
        self.client.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the statements of a script, one after the other, up to the first that fails.
    ///
    /// # Errors
    /// What the script's text or a statement gives; those before it are done.
    pub async fn run(&mut self, sql: &str) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for parsed in parse_script(sql)? {
            let position = parsed.position;
            let outcome = Box::pin(self.run_statement(parsed.statement)).await;
            outcomes.push(outcome.map_err(|error| error.at(Some(position)))?);
        }
        Ok(outcomes)
    }

    /// Loads rows into a table, all or nothing, and returns how many. Columns of the batches are found
    /// by name; those that are missing get their default. `progress` is told of rows taken so far.
    ///
    /// # Errors
    /// Those of `batches`; [`Error::NotNull`], [`Error::Value`], [`Error::DuplicateKey`]; and those of
    /// the device.
    pub async fn load(
        &mut self,
        table: &str,
        batches: BoxStream<'_, Result<RecordBatch>>,
        progress: Option<&(dyn Fn(u64) + Send + Sync)>,
    ) -> Result<u64> {
        load::load(&self.database, table, batches, progress, now_us()).await
    }

    async fn run_statement(&mut self, statement: Statement) -> Result<Outcome> {
        match statement {
            Statement::CreateTable(create) => self.create_table(create).await,
            Statement::DropTable { if_exists, names } => self.drop_tables(if_exists, &names).await,
            Statement::CreateIndex(create) => self.create_index(create).await,
            Statement::DropIndex { if_exists, names } => self.drop_indexes(if_exists, &names).await,
            Statement::Insert(insert) => self.insert(insert).await,
            Statement::Copy(copy) => self.copy(*copy).await,
            Statement::Query(query) => self.query(&query).await,
            Statement::Explain { analyze, verbose: _, format, statement } => {
                self.explain(analyze, format, *statement).await
            }
            Statement::Show { name } => self.show(&name),
            Statement::ShowAll => self.show_all(),
            Statement::ShowTables => self.show_tables(),
            Statement::Set { name, value } => {
                let Some(value) = value else {
                    self.settings.reset(&name)?;
                    return Ok(Outcome::done("RESET"));
                };
                self.settings.set(&name, &value)?;
                Ok(Outcome::done("SET"))
            }
            Statement::ResetAll => {
                self.settings.reset_all();
                Ok(Outcome::done("RESET"))
            }
            Statement::Begin => Err(no_transactions("BEGIN")),
            Statement::Commit => Err(no_transactions("COMMIT")),
            Statement::Rollback => Err(no_transactions("ROLLBACK")),
        }
    }

    async fn drop_tables(&self, if_exists: bool, names: &[String]) -> Result<Outcome> {
        let mut transaction = Transaction::begin(&self.database).await?;
        let mut dropped = false;
        for name in names {
            if transaction.drop_table(name) {
                dropped = true;
            } else if transaction.next.index(name).is_some() {
                return Err(indexes::wrong_kind(name, "a table"));
            } else if !if_exists {
                let names = transaction.next.table_names();
                return Err(Error::unknown(NameKind::Table, name, names));
            }
        }
        if dropped {
            transaction.commit().await?;
        }
        Ok(Outcome::done("DROP TABLE"))
    }

    async fn query(&self, query: &ast::Query) -> Result<Outcome> {
        let state = self.database.catalog();
        if let Some(point) = self.point_query(query, &state) {
            let rows = point_path::run(&self.database, &state, &point, self.settings.stack).await?;
            if let Some(batch) = rows {
                return Ok(Outcome::Rows { schema: batch.schema(), batches: vec![batch] });
            }
        }
        drop(state);
        let running = Box::pin(select::run_query(&self.database, &self.settings, query)).await?;
        let (schema, batches, _) = Box::pin(running.collect()).await?;
        Ok(Outcome::Rows { schema, batches })
    }

    fn point_query(&self, query: &ast::Query, state: &CatalogState) -> Option<PointQuery> {
        if self.settings.index_scan { PointQuery::detect(query, state) } else { None }
    }

    async fn explain(
        &self,
        analyze: bool,
        format: ExplainFormat,
        statement: Statement,
    ) -> Result<Outcome> {
        let query = match statement {
            Statement::Query(query) => query,
            Statement::Insert(insert) if !analyze => match insert.source {
                Some(query) => query,
                None => return Err(Error::unsupported("EXPLAIN of INSERT ... DEFAULT VALUES")),
            },
            Statement::Insert(_) => {
                return Err(Error::unsupported("EXPLAIN ANALYZE of INSERT, which would insert,"));
            }
            _ => return Err(Error::unsupported("EXPLAIN of this statement")),
        };
        let state = self.database.catalog();
        let point = self.point_query(&query, &state);
        if let Some(point) = point.filter(|_| format == ExplainFormat::Text && !analyze) {
            return text_rows("QUERY PLAN", vec![point.explain(&state)]);
        }
        drop(state);
        let explained = select::explain(&self.database, &self.settings, &query, analyze, format);
        let (schema, batches) = Box::pin(explained).await?;
        Ok(Outcome::Rows { schema, batches })
    }

    fn show(&self, name: &str) -> Result<Outcome> {
        text_rows(&name.to_lowercase(), vec![self.settings.show(name)?])
    }

    fn show_all(&self) -> Result<Outcome> {
        let rows = self.settings.show_all();
        let column = |name: &str| Field::new(name, DataType::Utf8, false);
        let schema =
            Arc::new(Schema::new(vec![column("name"), column("setting"), column("description")]));
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(rows.iter().map(|row| Some(row.name)).collect::<StringArray>()),
                Arc::new(rows.iter().map(|row| Some(row.value.as_str())).collect::<StringArray>()),
                Arc::new(rows.iter().map(|row| Some(row.description)).collect::<StringArray>()),
            ],
        )?;
        Ok(Outcome::Rows { schema, batches: vec![batch] })
    }

    fn show_tables(&self) -> Result<Outcome> {
        let state = self.database.catalog();
        let tables: Vec<&Arc<TableState>> = state.tables().collect();
        let schema = Arc::new(Schema::new(vec![
            Field::new("table_name", DataType::Utf8, false),
            Field::new("rows", DataType::UInt64, false),
        ]));
        let names: StringArray = tables.iter().map(|table| Some(&*table.schema.name)).collect();
        let rows: UInt64Array = tables.iter().map(|table| Some(table.row_count())).collect();
        let batch =
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(names), Arc::new(rows)])?;
        Ok(Outcome::Rows { schema, batches: vec![batch] })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("database", &self.database)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn text_rows(column: &str, lines: Vec<String>) -> Result<Outcome> {
    let schema = Arc::new(Schema::new(vec![Field::new(column, DataType::Utf8, false)]));
    let batch =
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(lines))])?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}

fn no_transactions(what: &str) -> Error {
    Error::Unsupported {
        what: what.to_owned(),
        hint: Some("every statement commits by itself".to_owned()),
        position: None,
    }
}

/// The statement's time in microseconds since 1970.
fn now_us() -> i64 {
    SystemClock.wall()
}
