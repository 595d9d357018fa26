//! A session: one client's settings, and its statements, which run one after the other.
//!
//! 1. [`Session::run`] parses a whole script before the first statement runs.
//! 2. Before a statement runs, [its row](Statement::properties) in the table of statements tells where it may stand
//!    ([`place`]) and which rights it needs ([`rights`]). [`roles`] and [`grants`] define who has which rights.
//! 3. Each statement goes to its handler. Definitions go to [`indexes`], settings to [`set`] and [`show`], ANALYZE to
//!    [`statistics`]. Rows in go to [`insert`] (and [`upsert`]) and [`copy`]. Rows out come from [`look_ups`] or,
//!    planned, from [`select`](cleave_query::select); rows that a query locks go through [`locking`]. [`prepared`]
//!    keeps statements that run again with other values, [`started`] streams rows, [`cursors`] give some rows at a
//!    time, a [`batch`] runs several queries at once. A handler is a function that takes what it needs: the database,
//!    settings or the cursors. It takes the session if it runs other statements or takes part in a transaction.
//! 4. The [transaction](block) decides what a statement reads and what becomes of the rows that it changes;
//!    [`definitions`] does the same for what a statement defines.
//!
//! Dropping the future of a statement stops it. A statement that has not begun its commit leaves nothing behind; one
//! that has begun it is committed.

mod alter;
mod alter_identity;
mod alter_rules;
mod append;
mod background;
mod batch;
mod block;
mod catalog_room;
mod changed_rows;
mod changing_with;
mod charge;
mod comments;
mod concerned;
mod copy;
mod counted;
mod cursors;
mod define;
mod definitions;
mod devices;
mod discard;
mod drop_table;
mod exact_names;
mod explain;
mod foreign_key_rules;
mod foreign_keys;
mod grants;
mod identity;
mod indexes;
mod insert;
mod insert_fragment;
mod kept;
mod key_locks;
mod later_privileges;
mod lifted;
mod lock_range;
mod locked_parts;
mod locking;
mod locking_fragment;
mod look_ups;
mod lost_waits;
mod materialized;
mod modify;
mod modify_row;
mod output;
mod place;
mod prepared;
mod ranges;
mod rebuild;
mod refresh_by_changes;
mod replacing_fragment;
mod returning;
mod rights;
mod roles;
mod rules;
mod search_path;
mod sequences;
mod serializable;
mod set;
mod shapes;
mod show;
mod started;
mod statistics;
mod subqueries;
mod summary;
mod system;
mod tablet_moves;
mod transaction_locks;
mod update_fragment;
mod upsert;
mod vacuum;
mod views;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::advisory_locks::AdvisoryLocks;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::catalog::sequence::NumberSource;
use cleave_catalog::commitment::unless;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::transaction::Began;
use cleave_catalog::settings::{Client, Settings};
use cleave_catalog::storage_error::StorageError;
use cleave_engine::device::DISK_FULL;
use cleave_engine::write::load;
use cleave_engine::write::load::{LoadCheck, RowChecks};
use cleave_fragment::progress::Progress;
use cleave_fragment::{waiting, wanted};
use cleave_media::{Clock, SystemClock};
use cleave_query::outside_tables::{self, OutsideTables};
use cleave_query::point_path::{PointQueries, PointQuery};
use cleave_query::statements::Shape;
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::hint::Hint;
use cleave_sql::statement::moment::{Moment, Taker};
use cleave_sql::statement::parse::Scope;
use cleave_sql::statement::{Parameters, ParsedStatement, Statement, parse_script_in};
use cleave_store::TableSchema;
use cleave_txn::Tracked;
use cleave_txn::locks::LockMark;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use block::{Block, modes, own};
pub use charge::{ScriptMemory, SentRows};
pub use copy::{ClientStreams, CountedFile};
pub use cursors::BEGUN_QUERY_BYTES;
pub(crate) use kept::KeptByAll;
pub use kept::{Kept, KeptMemory};
pub use prepared::Described;
pub use started::{ResultRows, Started};

use crate::database::Database;

use changing_with::Parts;
use concerned::patiently;
use cursors::Cursors;
use definitions::Defined;
use explain::Measuring;
use foreign_keys::{CheckedLoad, Followed, References, deferred};
use modify_row::RowChanges;
use place::check_place;
use prepared::PreparedStatements;
use ranges::RangeQueries;
use returning::Returned;
use rights::CheckedStatement;
use shapes::Shapes;
use subqueries::NestedStatements;
use transaction_locks::TransactionLocks;
use upsert::pairs::PairsPlans;

/// One client's session. See the module's description.
pub struct Session {
    database: Arc<Database>,
    settings: Settings,
    /// Settings of a statement with hints, while it runs, or until the next one if it was given up.
    hinted: Option<Settings>,
    point_queries: PointQueries,
    row_changes: RowChanges,
    range_queries: RangeQueries,
    shapes: Shapes,
    nested: NestedStatements,
    followed: Followed,
    pairs_plans: PairsPlans,
    returned: Returned,
    /// State of a statement with data-modifying parts of WITH, while it runs.
    parts: Option<Box<Parts>>,
    /// State of EXPLAIN ANALYZE, while a statement that changes rows runs.
    measuring: Option<Measuring>,
    kept: Arc<KeptMemory>,
    prepared: PreparedStatements,
    cursors: Cursors,
    /// The runtime that computes the rows of cursors; None: the task that fetches them does.
    runtime: Option<tokio::runtime::Handle>,
    /// What it has begun that goes on while it does other things.
    background: background::Background,
    /// The block, from BEGIN on.
    block: Option<Block>,
    /// Temporary tables, which this session alone sees.
    temporary: Defined,
    /// Outside of a block: the locks of the running statement.
    statement_locks: Option<TransactionLocks>,
    /// The same at level SERIALIZABLE: the record of what the statement reads and writes.
    statement_tracked: Option<Arc<Tracked>>,
    /// Set once a statement that writes has locked its table: the point to which it gives locks back to lock the whole
    /// table.
    table_mark: Option<LockMark>,
    /// The work that foreign keys require of the running statement.
    references: References,
    /// The end of the log up to which its statements have read.
    seen_log: AtomicU64,
    /// The running statement, if its rights were checked.
    asked: Option<Arc<CheckedStatement>>,
    /// In a lock so that the futures of statements may move between threads; never locked.
    client: Mutex<ClientStreams>,
    /// The batch whose rows are being given. In a lock for the same reason.
    batch: Mutex<Option<batch::Batch>>,
    /// Its block is one statement with RETURNING.
    returns_alone: bool,
    /// How many sessions its thread serves; None: not known, or several threads may poll the session.
    thread_sessions: Option<Arc<AtomicUsize>>,
    /// How often settings were changed.
    settings_version: u64,
}

/// The outcome of a statement.
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
        /// The command tag, as PostgreSQL words it: "CREATE TABLE", "INSERT 0 3", "COPY 5".
        tag: String,
    },
}

impl Outcome {
    fn done(tag: impl Into<String>) -> Self {
        Self::Done { tag: tag.into() }
    }
}

impl Session {
    /// The memory of rows that a server encodes for its client.
    pub fn sent_rows(&self) -> SentRows<'_> {
        SentRows::new(&self.database)
    }

    /// The memory that it keeps for its client, of which a server takes what it keeps for him.
    pub fn kept(&self) -> &Arc<KeptMemory> {
        &self.kept
    }

    /// A session on `database` with default settings.
    pub fn new(database: Arc<Database>) -> Self {
        let settings = Settings::default();
        let cursors = Cursors::of(settings.client.objects.clone());
        let kept = KeptMemory::of(&database);
        Self {
            database,
            settings,
            hinted: None,
            point_queries: PointQueries::default(),
            row_changes: RowChanges::default(),
            range_queries: RangeQueries::default(),
            shapes: Shapes::default(),
            nested: NestedStatements::default(),
            followed: Followed::default(),
            pairs_plans: PairsPlans::default(),
            returned: Returned::default(),
            parts: None,
            measuring: None,
            prepared: PreparedStatements::default(),
            kept,
            cursors,
            runtime: None,
            background: background::Background::default(),
            block: None,
            temporary: Defined::default(),
            statement_locks: None,
            statement_tracked: None,
            table_mark: None,
            seen_log: AtomicU64::new(0),
            references: References::default(),
            asked: None,
            client: Mutex::default(),
            batch: Mutex::default(),
            returns_alone: false,
            thread_sessions: None,
            settings_version: 0,
        }
    }

    /// Another session of the same client, with the settings of the running statement.
    fn beside(&self) -> Self {
        let mut other = Self::new(Arc::clone(&self.database));
        let (user, database) =
            (self.settings.client.user.clone(), self.settings.client.database.clone());
        let acting = self.settings.client.acting.clone();
        let objects = other.settings.client.objects.clone();
        let (outside, serves_files) =
            (self.settings.client.outside.clone(), self.settings.client.serves_files);
        let only_reads = self.settings.client.only_reads.clone();
        let client = Client {
            user,
            database,
            acting,
            objects,
            outside,
            serves_files,
            only_reads,
            ..Client::default()
        };
        other.settings = Settings { client, ..self.in_force().clone() };
        other.runtime.clone_from(&self.runtime);
        other
    }

    /// Waits until nothing that the session has begun goes on in the background, and returns what has failed.
    pub async fn finish_background(&mut self) -> Vec<String> {
        self.background.finish().await
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How far its present statement is, for another thread than the one that runs it. Who runs statements says where
    /// one [begins](Progress::begin).
    pub fn progress(&self) -> Progress {
        self.settings.client.progress.clone()
    }

    /// Sets a setting, as `SET name = value` does.
    ///
    /// # Errors
    /// [`Error::UnknownName`] or [`Error::SettingValue`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.change_settings(Scope::Session, |settings| settings.set(name, value))
    }

    /// Sets the client's identity.
    pub fn set_client(&mut self, client: Client) {
        let advisory = AdvisoryLocks::new(client.backend);
        let objects = self.settings.client.objects.clone();
        let outside = self.settings.client.outside.clone();
        let progress = self.progress();
        let only_reads = self.settings.client.only_reads.clone();
        let only_reads = only_reads.or_else(|| client.only_reads.clone());
        self.settings.client =
            Client { advisory, objects, outside, progress, only_reads, ..client };
    }

    /// Refuses everything but reads from now on, whatever statements set; `why` says why in errors. Nothing takes that
    /// back.
    pub fn only_read(&mut self, why: &str) {
        self.settings.client.only_reads = Some(why.into());
        self.settings.default_transaction_read_only = true;
        self.settings_version += 1;
    }

    /// Sets the tables that are not of the database and that its statements may name; None: there are none.
    pub fn set_outside_tables(&mut self, tables: Option<Arc<dyn OutsideTables>>) {
        self.settings.client.outside = outside_tables::offered(tables);
        self.settings_version += 1;
    }

    /// Sets the streams that COPY … STDIN reads and COPY … STDOUT writes.
    pub fn set_client_streams(&mut self, client: ClientStreams) {
        self.client = Mutex::new(client);
    }

    /// The settings of the running statement.
    fn in_force(&self) -> &Settings {
        self.hinted.as_ref().unwrap_or(&self.settings)
    }

    /// The statement time of a statement that begins now.
    fn moment(&self) -> Moment {
        self.moment_on(self.names())
    }

    /// As [`Session::moment`], with the sequences of the catalog version `state`.
    fn moment_on(&self, state: Arc<CatalogState>) -> Moment {
        let values = &self.settings.client.sequences;
        let role = self.settings.client.acting.role;
        let (is_owner, temporary) = match role {
            Some(_) => (self.references.is_running, self.defined().temporary_ids()),
            None => Default::default(),
        };
        let taker = Taker { role, is_owner, temporary };
        Moment::new(
            self.in_force().client.began.transaction_us,
            Arc::clone(self.database.storage()) as Arc<dyn NumberSource>,
            state,
            values,
            taker,
        )
    }

    /// The settings of a statement that begins now.
    fn shared_settings(&self) -> Arc<Settings> {
        Arc::new(self.in_force().clone())
    }

    /// Runs the statements of a script, one after the other, up to the first that fails.
    ///
    /// # Errors
    /// Those of the script's text or of a statement; the statements before it are done.
    pub fn run<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            self.run_into(sql, &mut outcomes).await?;
            Ok(outcomes)
        })
    }

    /// As [`Session::run`], with the outcomes also of statements before one that fails: a batch of queries that has
    /// failed has the rows of the others.
    ///
    /// # Errors
    /// Those of [`Session::run`].
    pub fn run_into<'a>(
        &'a mut self,
        sql: &'a str,
        outcomes: &'a mut Vec<Outcome>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let began = SystemClock.now();
            if self.block.is_none()
                && let Some((query, outcome)) = look_ups::look_up(self, sql).await
            {
                self.count_look_up(query.counted_as(sql), began, &outcome);
                outcomes.push(outcome);
                return Ok(());
            }
            for parsed in parse_script_in(sql, Some(&self.settings.client.database))? {
                let position = parsed.position;
                let counting = self.begin_counting(&Shape::of(&parsed.text), Some(&parsed.text));
                let outcome = Box::pin(self.run_hinted(parsed)).await;
                counted::end_with(counting, &outcome);
                outcomes.push(outcome.map_err(|error| error.at(Some(position)))?);
            }
            Ok(())
        })
    }

    /// Loads rows into a table, all or nothing, and returns their number. Columns of the batches are found by name;
    /// missing ones get their default. `progress` is told the number of rows taken so far. Who drops it before its end
    /// calls [`Session::fail_block`], which frees its locks.
    ///
    /// # Errors
    /// Those of `batches`; [`Error::NotNull`], [`Error::Value`], [`Error::DuplicateKey`]; and those of the device.
    pub fn load<'a>(
        &'a mut self,
        table: &'a str,
        batches: BoxStream<'a, Result<RecordBatch>>,
        progress: Option<&'a (dyn Fn(u64) + Send + Sync)>,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            self.hinted = None;
            block::check_outside_block(self, "a bulk load")?;
            if let Some(tables) = self.concerned_by_load(table) {
                self.database.retry_blocked(&tables).await;
            }
            rights::check_may(self, Privilege::Insert, table)?;
            let schema = Arc::clone(&self.names().find_table(table)?.schema);
            if self.owns(schema.table_id) {
                return Err(Error::unsupported("a bulk load into a temporary table"));
            }
            self.begin_statement()?;
            let settings = self.shared_settings();
            let moment = self.moment();
            locking::lock_for_writing(self, table).await?;
            // Another table may have come in its place.
            rights::check_may(self, Privilege::Insert, table)?;
            serializable::prepare_load(self, schema.table_id).await?;
            let check = CheckedLoad { database: &self.database, settings: &settings };
            let made = |schema: &Arc<TableSchema>, batch: &RecordBatch| {
                Conform::by_name(schema, &batch.schema(), moment.clone())?.rows(batch)
            };
            let checks: Arc<dyn RowChecks> = Arc::clone(self.database.queries()) as _;
            let within = (checks, &check as &dyn LoadCheck);
            let load =
                load::load(&self.database, &settings, table, batches, progress, &made, within);
            let loaded = load.await;
            if loaded.as_ref().is_err_and(|error| error.sqlstate() == DISK_FULL) {
                self.database.give_up_versions();
            }
            serializable::end_load(self.tracked(), &loaded);
            let loaded = loaded.map_err(|error| rights::without_values(self, error));
            self.statement_locks = None;
            serializable::end_tracked(&mut self.statement_tracked, loaded)
        })
    }

    /// Runs a statement under the settings of its hints, which follow those of the prepared statement that it names.
    async fn run_hinted(&mut self, mut parsed: ParsedStatement) -> Result<Outcome> {
        let mut hints = self.prepared.hints_of(&parsed.statement).to_vec();
        hints.append(&mut parsed.hints);
        let ends = parsed.statement.properties().place.is_in_failed_block();
        // They go on with what BATCH BEGIN has begun.
        let goes_on = matches!(parsed.statement, Statement::Batched | Statement::BatchEnd);
        if ends {
            batch::forget(self);
        } else if !goes_on {
            self.begin_statement()?;
            parsed = match self.with_exact_names(parsed) {
                Ok(parsed) => parsed,
                Err(error) => return self.end_statement(Err(error)).await,
            };
        }
        output::check_hints(Some(&parsed.statement), &hints)?;
        self.hinted = under(&self.settings, &hints)?;
        parsed.hints = hints;
        let is_own = returning::begin_returning(self, &parsed.statement);
        // The outcome of a commit must not be left unknown.
        let limit_ms = if ends { 0 } else { self.in_force().statement_timeout_ms };
        let ends_at = if goes_on { batch::ends_at(self) } else { end_after(limit_ms) };
        let (database, tables) = (Arc::clone(&self.database), self.concerned(&parsed.statement));
        let running = patiently(&database, tables, Box::pin(self.run_statement(parsed)));
        let outcome = before(ends_at, Box::pin(running)).await;
        // The queries of a batch go on in its time.
        batch::set_end(self, ends_at);
        let outcome = self.end_statement(outcome).await;
        let outcome = returning::end_returning(self, is_own, outcome).await;
        self.hinted = None;
        outcome
    }

    /// The steps before a statement.
    ///
    /// # Errors
    /// In a block that has failed.
    fn begin_statement(&mut self) -> Result<()> {
        if self.returns_alone {
            // The statement before was given up.
            block::note_failure(self);
        }
        block::check_not_failed(self)?;
        self.statement_locks = None;
        self.settings.client.advisory.end_statement();
        self.statement_tracked = None;
        self.table_mark = None;
        self.note_began();
        self.asked = None;
        (self.parts, self.measuring) = (None, None);
        batch::forget(self);
        own::forget_own(self);
        Ok(())
    }

    /// Records when the statement and its transaction began.
    fn note_began(&mut self) {
        let statement = Began::now();
        let transaction = self.block.as_ref().and_then(Block::began_us);
        let began =
            Began { transaction_us: transaction.unwrap_or(statement.transaction_us), ..statement };
        self.settings.client.began = began;
        if let Some(hinted) = &mut self.hinted {
            hinted.client.began = began;
        }
    }

    /// The steps after a statement, before its outcome is reported. What the statement has seen is made durable, since
    /// it may not be lost afterwards (rule 27). A block in which the statement failed is marked as failed.
    async fn end_statement<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let outcome = match outcome {
            Ok(outcome) => self.harden_seen().await.map(|()| outcome),
            Err(error) => Err(error),
        };
        let outcome = serializable::end_tracked(&mut self.statement_tracked, outcome);
        self.statement_locks = None;
        self.forget_names();
        self.settings.client.advisory.end_statement();
        let outcome = outcome.map_err(|error| rights::without_values(self, error));
        if let Err(error) = &outcome {
            block::note_failure(self);
            if error.sqlstate() == DISK_FULL {
                // The oldest is dropped first.
                self.database.give_up_versions();
            }
        }
        outcome
    }

    /// Records that a statement has seen commits up to the position `end` of the log.
    fn note_seen(&self, end: u64) {
        self.seen_log.fetch_max(end, Ordering::Relaxed);
    }

    /// Records that a statement has seen the snapshot `state`, whose commits are in its own pages or in those that
    /// recovery found.
    fn note_state(&self, state: &CatalogState) {
        self.note_seen(state.log_end.max(self.database.replication.replicas.opened_end()));
    }

    /// Waits until all that its statements have seen is durable. A session with a thread of its own syncs the log
    /// itself, or waits for the syncing session. Its thread serves nobody else, and handing the sync to the log's
    /// thread and back would cost two thread switches.
    async fn harden_seen(&self) -> Result<()> {
        let end = self.seen_log();
        let sessions = self.thread_sessions.as_ref();
        let keeps_thread = sessions.is_some_and(|sessions| sessions.load(Ordering::Relaxed) == 1);
        let waits_for_others =
            self.database.replication.replicas.are_on() || self.database.keeper.awaits_pages(end);
        let hardened = match keeps_thread && !waits_for_others {
            true => self.database.harden_now(end),
            false => self.database.harden(end).await,
        };
        if let Err(Error::Storage(error)) = &hardened
            && matches!(**error, StorageError::NotReplicated { .. })
        {
            // The error was reported; what it reads from now on is recorded anew.
            self.seen_log.store(0, Ordering::Relaxed);
        }
        hardened
    }

    /// Sets the number of sessions that the thread serves which alone polls this session's statements.
    pub fn share_thread(&mut self, sessions: Arc<AtomicUsize>) {
        self.thread_sessions = Some(sessions);
    }

    fn seen_log(&self) -> u64 {
        self.seen_log.load(Ordering::Relaxed)
    }

    async fn run_statement(&mut self, parsed: ParsedStatement) -> Result<Outcome> {
        if let Some(outcome) = search_path::check_path(self, &parsed.text)? {
            return Ok(outcome);
        }
        rights::check_rights(self, || parsed.statement.clone()).await?;
        let properties = parsed.statement.properties();
        check_place(self, &properties)?;
        let tag = properties.tag.words();
        match parsed.statement {
            Statement::CreateTable(create) => Box::pin(indexes::create_table(self, create)).await,
            Statement::DropTable { if_exists, names, cascade } => {
                Box::pin(drop_table::run(self, if_exists, &names, cascade)).await
            }
            Statement::CreateIndex(create) => Box::pin(indexes::create_index(self, create)).await,
            Statement::DropIndex { if_exists, names, cascade } => {
                Box::pin(indexes::drop_indexes(self, if_exists, &names, cascade)).await
            }
            Statement::Define(define) => Box::pin(define::run(self, *define)).await,
            Statement::Comment(comment) => {
                Box::pin(comments::run(self, *comment)).await?;
                Ok(Outcome::done(tag))
            }
            Statement::Sequence(sequence) => Box::pin(sequences::run(self, *sequence)).await,
            Statement::Insert(insert) => {
                insert::run(self, &insert, None, &Parameters::default()).await
            }
            Statement::Modify(modify) => {
                match Box::pin(modify_row::modify_plain(self, &modify)).await? {
                    Some(outcome) => Ok(outcome),
                    None => Box::pin(modify::run(self, &modify, &Parameters::default())).await,
                }
            }
            Statement::Copy(copy) => Box::pin(copy::run(self, *copy)).await,
            Statement::Query(query) => {
                started::set_configs(self, &query, &Parameters::default())?;
                started::start_query(self, &query, &parsed.text).await?.collect().await
            }
            Statement::Locking(locking) => {
                let none = Parameters::default();
                let point: locking::Point<'_> = &|state| PointQuery::detect(&locking.query, state);
                match ranges::range_of(self, &locking.query, true) {
                    None => Box::pin(locking::run(self, &locking, &none, (point, None))).await,
                    Some((range, values)) => {
                        let by = (point, Some((&*range, &values)));
                        Box::pin(locking::run(self, &locking, &none, by)).await
                    }
                }
            }
            Statement::LockedParts(parts) => {
                let none = Parameters::default();
                Box::pin(locked_parts::run_locked_parts(self, &parts, &none, &parsed.text)).await
            }
            Statement::ChangingWith(with) => {
                let none = Parameters::default();
                Box::pin(changing_with::run_changing_with(self, &with, &none, &parsed.text)).await
            }
            Statement::LockTable(lock) => locking::run_lock_table(self, &lock).await,
            Statement::Prepare(prepare) => {
                prepared::prepare_parsed(self, prepare, parsed.hints).await
            }
            Statement::Execute(execute) => {
                Box::pin(prepared::execute_parsed(self, &execute)).await?.collect().await
            }
            Statement::Deallocate { name } => prepared::deallocated(self, name.as_deref()),
            Statement::Explain { analyze, format, statement } => {
                Box::pin(explain::run(self, analyze, format, *statement)).await
            }
            Statement::Summary(summary) => Box::pin(summary::run(self, &summary)).await,
            Statement::Show { name } => show::one(self, &name),
            Statement::ShowAll => show::all(self.in_force()),
            Statement::ShowTables => show::tables(self).await,
            Statement::ShowStatistics { table } => statistics::shown(self, table.as_deref()).await,
            Statement::Analyze(analyze) => statistics::run(self, analyze).await,
            Statement::Set { name, value, scope } => {
                set::set_one(self, &name, value.as_deref(), scope)
            }
            Statement::ResetAll => {
                set::reset_all(self)?;
                Ok(Outcome::done("RESET"))
            }
            Statement::Discard(what) => discard::run(self, what, tag),
            Statement::Declare(declare) => {
                let none = Parameters::default();
                Box::pin(cursors::declare(self, &declare, &none, &parsed.text)).await
            }
            Statement::Fetch(fetch) => self.cursors.fetch(&fetch).await?.collect().await,
            Statement::CloseCursor { name } => {
                self.cursors.close(name.as_deref())?;
                Ok(Outcome::done(tag))
            }
            Statement::Batch(queries) => Box::pin(batch::run(self, queries)).await,
            Statement::Batched => Box::pin(batch::next_outcome(self)).await,
            Statement::BatchEnd => batch::end(self),
            Statement::Vacuum(vacuum) => Box::pin(vacuum::run(self, vacuum)).await,
            Statement::Nothing { tag } => Ok(Outcome::done(tag)),
            Statement::Begin(modes) => block::begin(self, modes),
            Statement::SetTransaction(modes) => modes::set_transaction(self, modes),
            Statement::SetConstraints(set) => Box::pin(deferred::set_constraints(self, &set)).await,
            Statement::SetCharacteristics(modes) => modes::set_characteristics(self, modes),
            Statement::Commit { chain: false } => block::commit(self).await,
            Statement::Rollback { chain: false } => Ok(block::rollback(self)),
            Statement::Commit { chain: true } => Box::pin(modes::chain(self, true)).await,
            Statement::Rollback { chain: true } => Box::pin(modes::chain(self, false)).await,
            Statement::Checkpoint => {
                Box::pin(system::checkpoint(&self.database)).await?;
                Ok(Outcome::done(tag))
            }
            Statement::System(statement) => {
                let progress = self.progress();
                Box::pin(system::run(&self.database, statement, progress)).await?;
                Ok(Outcome::done(tag))
            }
            Statement::Device(statement) => {
                Box::pin(devices::run(self, *statement)).await?;
                Ok(Outcome::done(tag))
            }
            Statement::Role(statement) => Box::pin(roles::run(self, *statement, tag)).await,
            Statement::Savepoint { name } => block::savepoints::savepoint(self, &name),
            Statement::RollbackTo { name } => block::savepoints::rollback_to(self, &name),
            Statement::Release { name } => block::savepoints::release(self, &name),
        }
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

/// The settings of a statement with these hints; None: no hints.
fn under(settings: &Settings, hints: &[Hint]) -> Result<Option<Settings>> {
    if hints.is_empty() {
        return Ok(None);
    }
    let mut hinted = settings.clone();
    hints.iter().try_for_each(|hint| hinted.set(&hint.name, &hint.value))?;
    Ok(Some(hinted))
}

/// The outcome of `statement` within its time limit; 0: no limit.
async fn within<T>(limit_ms: u32, statement: impl Future<Output = Result<T>>) -> Result<T> {
    before(end_after(limit_ms), statement).await
}

/// When the time of a statement that begins now is over, by the system's clock; None, and 0: never.
fn end_after(limit_ms: u32) -> Option<Duration> {
    let limit = Duration::from_millis(u64::from(limit_ms));
    (limit_ms > 0).then(|| SystemClock.now() + limit)
}

/// The outcome of `statement`, whose time is over at `end`; None: never.
async fn before<T>(end: Option<Duration>, statement: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(end) = end else { return statement.await };
    let is_late = move || SystemClock.now() >= end;
    let left = end.saturating_sub(SystemClock.now());
    // A function that takes long sees by itself that it is late.
    let done = unless(wanted::until(is_late, statement), waiting::sleep(left)).await;
    match done {
        Ok(Err(error)) if is_late() && error.sqlstate() == "57014" => Err(Error::StatementTimeout),
        done => done.unwrap_or(Err(Error::StatementTimeout)),
    }
}
