//! Prepared statements: a statement with parameters in, once; values in, any number of times, and the outcomes out.
//!
//! 1. [`Session::prepare`] (PREPARE) parses and describes the statement: the types of its parameters and the columns of
//!    its result ([`Session::describe`]).
//! 2. [`Session::execute`] (EXECUTE) reads the values by these types. A query by the key of an index is looked up
//!    ([`PreparedPoint`]). Any other query is planned for these values, so that join order, index and split fit them.
//! 3. [`Session::deallocate`] (DEALLOCATE) forgets it.
//!
//! A statement belongs to its session. It is described again if one of its tables has changed since: an error if the
//! table is gone, the new types if it was created again.
//!
//! Deliberately absent: generic plans. A plan holds the pages that remain for its values, and a split that is right for
//! one value is wrong for another (`docs/design/sql-and-planning.md`). The database's plan cache keeps what depends on
//! no rows, for any query.
//!
//! Source: PostgreSQL's manual, "PREPARE", and "Extended Query" of its protocol.

mod of_files;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::session_objects::ShownStatement;
use cleave_catalog::settings::When;
use cleave_query::point_path::{PointQuery, PreparedPoint};
use cleave_query::range_path::RangeTemplate;
use cleave_query::select;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_query::statements::Shape;
use cleave_sql::statement::hint::Hint;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::names::quoted;
use cleave_sql::statement::parameters;
use cleave_sql::statement::parameters::{StatementText, parameter_type, type_name};
use cleave_sql::statement::parse::{CreateTableAs, Define};
use cleave_sql::statement::{
    Execute, Parameter, Parameters, ParsedStatement, Prepare, Statement, parse_script_in,
};
use cleave_store::{ColumnType, TableSchema};
use futures::future::BoxFuture;

use super::concerned::patiently;
use super::insert::ConstantInsert;
use super::kept::{Kept, KeptMemory};
use super::modify::Returns;
use super::modify_row::KeyedChange;
use super::place::check_place;
use super::rights::Allowed;
use super::subqueries::{NestedChange, NestedQuery};
use super::{
    Outcome, Session, Started, changing_with, counted, cursors, define, explain, insert,
    locked_parts, locking, look_ups, modify, modify_row, output, ranges, returning, rights,
    search_path, started, subqueries, under, upsert, within,
};
use of_files::of_files;
use values::check_count;
pub(super) use values::values_of;

/// Statements that a session may keep.
const STATEMENT_COUNT_MAX: usize = 10_000;
/// Bytes of their text in all.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// What is made of a text takes so many times as much.
const TEXT_TIMES: usize = 10;
/// Bytes of a prepared statement besides.
const STATEMENT_BYTES: usize = 8 << 10;

/// The description of a prepared statement without values.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Types of its parameters, `$1` first; for a list, that of its items.
    pub parameters: Vec<ColumnType>,
    /// The parameters that are lists, from 0.
    pub lists: BTreeSet<usize>,
    /// Columns of its rows; `None`: it gives none, or they are told late and it was described without values.
    pub columns: Option<SchemaRef>,
    /// It gives rows whose columns only the values of its parameters tell: they name files.
    pub is_told_late: bool,
}

/// The prepared statements of a session, by name.
#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    by_name: BTreeMap<String, Arc<PreparedStatement>>,
    /// Bytes of their text in all.
    text_bytes: usize,
    /// What the session keeps for them.
    kept: Option<Kept>,
}

/// A prepared statement.
#[derive(Debug, Clone)]
pub(super) struct PreparedStatement {
    /// The statement before it was described: a query, INSERT, UPDATE, DELETE or DECLARE.
    source: Source,
    pub(super) described: Arc<Described>,
    /// The tables that it names, as they were then.
    pub(super) tables: Vec<Arc<TableSchema>>,
    /// It names others, of which nothing tells whether they have changed.
    reads_outside: bool,
    /// Its parameters name files: each run puts their names into it.
    names_files: bool,
    /// Its look-up by key, if it has one.
    point: Option<PreparedPoint>,
    /// Its range path, if it has one.
    range: Option<Arc<RangeTemplate>>,
    /// Its change of rows by key, if it is one.
    change: Option<Arc<KeyedChange>>,
    /// Its subqueries, if they can be looked up first.
    nested: Option<Nested>,
    /// For an INSERT of constants, what is known without values.
    constants: Option<Arc<ConstantInsert<'static>>>,
    /// For EXPLAIN, the statement that it explains.
    explained: Option<Arc<PreparedStatement>>,
    /// The permission to run it.
    allowed: Option<Allowed>,
    /// As it is counted.
    shape: OnceLock<Shape>,
}

/// A statement with subqueries that are looked up.
#[derive(Debug, Clone)]
enum Nested {
    Query(Arc<NestedQuery>),
    Change(Arc<NestedChange>),
}

/// A statement that is to be described.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) statement: Statement,
    pub(super) text: StatementText,
    pub(super) hints: Vec<Hint>,
    /// The types that were declared.
    pub(super) declared: Vec<Option<ColumnType>>,
}

impl PreparedStatements {
    /// The hints of the prepared statement that `statement` runs or explains; none if there is no such statement.
    pub(super) fn hints_of(&self, statement: &Statement) -> &[Hint] {
        let execute = match statement {
            Statement::Execute(execute) => Some(execute),
            Statement::Explain { statement, .. } => match statement.as_ref() {
                Statement::Execute(execute) => Some(execute),
                _ => None,
            },
            _ => None,
        };
        let prepared = execute.and_then(|execute| self.by_name.get(&execute.name));
        prepared.map_or(&[], |prepared| &prepared.source.hints)
    }

    /// The statement prepared as `name`.
    pub(super) fn statement(&self, name: &str) -> Option<&Statement> {
        self.by_name.get(name).map(|prepared| prepared.statement())
    }

    /// The shape of the statement prepared as `name`.
    pub(super) fn shape(&self, name: &str) -> Option<&Shape> {
        self.by_name.get(name).map(|prepared| prepared.shape())
    }

    /// Fails if the session has no room for one more statement of `byte_count` bytes of text.
    fn check_room(&self, byte_count: usize) -> Result<()> {
        let text_bytes = self.text_bytes.saturating_add(byte_count);
        match self.by_name.len() < STATEMENT_COUNT_MAX && text_bytes <= TEXT_BYTES_MAX {
            true => Ok(()),
            false => Err(Error::Invalid {
                message: format!(
                    "a session keeps at most {STATEMENT_COUNT_MAX} prepared statements, of {} MiB of text; \
                        DEALLOCATE those \
                     that are done",
                    TEXT_BYTES_MAX >> 20
                ),
                fault: Fault::TooLong,
                position: None,
            }),
        }
    }

    /// Keeps `prepared` as `name`, in the place of what that was.
    fn put(
        &mut self,
        name: &str,
        prepared: Arc<PreparedStatement>,
        memory: &Arc<KeptMemory>,
    ) -> Result<()> {
        let bytes_of = |prepared: &PreparedStatement| prepared.source.text.byte_count();
        let before = self.by_name.get(name);
        let count = self.by_name.len() + usize::from(before.is_none());
        let text_bytes = self.text_bytes + bytes_of(&prepared);
        let text_bytes = text_bytes - before.map_or(0, |before| bytes_of(before));
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => none.insert(memory.keep("prepared statements", 0)?),
        };
        kept.set(count * STATEMENT_BYTES + text_bytes * TEXT_TIMES)?;
        self.text_bytes = text_bytes;
        self.by_name.insert(name.to_owned(), prepared);
        Ok(())
    }

    fn remove(&mut self, name: &str) {
        let Some(before) = self.by_name.remove(name) else { return };
        self.text_bytes -= before.source.text.byte_count();
        if let Some(kept) = &mut self.kept {
            // To keep fewer bytes is never refused.
            drop(kept.set(self.by_name.len() * STATEMENT_BYTES + self.text_bytes * TEXT_TIMES));
        }
    }

    fn find(&self, name: &str) -> Result<&Arc<PreparedStatement>> {
        let names = || self.by_name.keys().map(String::as_str);
        self.by_name
            .get(name)
            .ok_or_else(|| Error::unknown(NameKind::PreparedStatement, name, names()))
    }
}

impl PreparedStatement {
    /// A statement that is planned each time.
    fn new(source: Source, described: Arc<Described>, tables: Vec<Arc<TableSchema>>) -> Self {
        Self {
            source,
            described,
            tables,
            reads_outside: false,
            names_files: false,
            point: None,
            range: None,
            change: None,
            nested: None,
            constants: None,
            explained: None,
            allowed: None,
            shape: OnceLock::new(),
        }
    }

    pub(super) fn statement(&self) -> &Statement {
        &self.source.statement
    }

    fn shape(&self) -> &Shape {
        self.shape.get_or_init(|| Shape::of(&self.source.text.with(&Parameters::default())))
    }

    /// A statement of which only this is known: types of parameters, which of them are lists, and columns.
    pub(super) fn planned(
        source: Source,
        (parameters, lists, columns): (Vec<ColumnType>, BTreeSet<usize>, Option<SchemaRef>),
        tables: Vec<Arc<TableSchema>>,
    ) -> Self {
        let described = Described { parameters, lists, columns, is_told_late: false };
        Self::new(source, Arc::new(described), tables)
    }

    /// Its look-up with these values on `state`; None: it is planned.
    pub(super) fn point_query(
        &self,
        parameters: &Parameters,
        state: &CatalogState,
    ) -> Option<PointQuery> {
        self.point.as_ref().filter(|point| point.holds(state))?.bind(parameters)
    }

    /// Its range path, if it has one and locks nothing.
    pub(super) fn range(&self) -> Option<&Arc<RangeTemplate>> {
        self.range.as_ref().filter(|_| matches!(self.source.statement, Statement::Query(_)))
    }

    /// The subqueries of a query, if they can be looked up before it.
    pub(super) fn nested(&self) -> Option<&Arc<NestedQuery>> {
        match &self.nested {
            Some(Nested::Query(nested)) => Some(nested),
            _ => None,
        }
    }

    /// Whether the tables that it names, and its look-up, are unchanged in `state`.
    fn holds(&self, state: &CatalogState) -> bool {
        !self.reads_outside
            && self.tables.iter().all(|schema| state.has(schema))
            && self.point.as_ref().is_none_or(|point| point.holds(state))
    }
}

impl Session {
    /// Prepares the statement of `sql` as `name`, as PREPARE does; `types` are those of its first parameters, None
    /// where one is to be inferred. The statement without a name, `""`, takes the place of the one before.
    ///
    /// # Errors
    /// [`Error::NameTaken`]; what the text gives, and what describing it gives; [`Error::Unsupported`] for what is no
    /// query, no INSERT, no UPDATE and no DELETE.
    pub fn prepare<'a>(
        &'a mut self,
        name: &'a str,
        sql: &'a str,
        types: &'a [Option<ColumnType>],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let database = &self.settings.client.database;
            let mut statements = parse_script_in(sql, Some(database))?;
            let (Some(parsed), true) = (statements.pop(), statements.is_empty()) else {
                return Err(Error::Invalid {
                    message: "one statement is prepared at a time".to_owned(),
                    fault: Fault::Statement,
                    position: None,
                });
            };
            self.prepare_statement(name, parsed, types).await
        })
    }

    /// As [`Session::prepare`], of a statement that is parsed already.
    ///
    /// # Errors
    /// Those of [`Session::prepare`].
    pub fn prepare_statement<'a>(
        &'a mut self,
        name: &'a str,
        parsed: ParsedStatement,
        types: &'a [Option<ColumnType>],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let parsed = self.with_exact_names(parsed)?;
            if !parsed.statement.properties().takes_parameters {
                return Err(Error::Unsupported {
                    what: "PREPARE of this statement".to_owned(),
                    hint: Some(
                        "it prepares SELECT, VALUES, WITH, INSERT, UPDATE and DELETE".to_owned(),
                    ),
                    position: Some(parsed.position),
                });
            }
            let prepare = (parsed.statement, parsed.text, types.to_vec());
            search_path::check_path(self, &prepare.1)?;
            let outcome = prepare_source(self, name, prepare, (parsed.hints, true)).await;
            outcome.map_err(|error| error.at(Some(parsed.position)))?;
            show(self, name, false);
            Ok(())
        })
    }

    /// The description of the prepared statement `name`.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; and, where a table has changed, those of [`Session::prepare`].
    pub fn describe<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<Arc<Described>>> {
        Box::pin(async move { Ok(Arc::clone(&prepared_now(self, name).await?.described)) })
    }

    /// The description of the prepared statement `name` with `values`, as of [`Session::execute`]. If they name files,
    /// its columns are those that it has with these files.
    ///
    /// # Errors
    /// Those of [`Session::execute`] that do not need its rows.
    pub fn describe_with<'a>(
        &'a mut self,
        name: &'a str,
        values: &'a [Option<&'a str>],
    ) -> BoxFuture<'a, Result<Arc<Described>>> {
        Box::pin(async move {
            let prepared = prepared_now(self, name).await?;
            let values = read_texts(&prepared, name, values)?;
            prepared.described_with(self, &values).await
        })
    }

    /// Runs the prepared statement `name` with `values`, `$1` first, as text by PostgreSQL's input rules; None: NULL.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; [`Error::Invalid`] for more or fewer values; [`Error::Parameter`]; and what the
    /// statement gives.
    pub fn execute<'a>(
        &'a mut self,
        name: &'a str,
        values: &'a [Option<&'a str>],
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            if let Some(started) = self.start_look_up(name, values) {
                return started.collect().await;
            }
            let limit_ms = self.settings.statement_timeout_ms;
            let run = async { self.start_prepared(name, values).await?.collect().await };
            let outcome = within(limit_ms, Box::pin(run)).await;
            if matches!(outcome, Err(Error::StatementTimeout)) {
                self.fail_block();
            }
            outcome
        })
    }

    /// As [`Session::execute`], but streams the rows.
    ///
    /// # Errors
    /// Those of [`Session::execute`].
    pub fn start_prepared<'a>(
        &'a mut self,
        name: &'a str,
        values: &'a [Option<&'a str>],
    ) -> BoxFuture<'a, Result<Started>> {
        Box::pin(async move {
            let known = Arc::clone(self.prepared.find(name)?);
            output::check_hints(Some(known.statement()), &known.source.hints)?;
            self.hinted = under(&self.settings, &known.source.hints)?;
            self.begin_statement()?;
            let counting = self.begin_counting(known.shape(), None);
            let is_own = returning::begin_returning(self, known.statement());
            let limit_ms = self.in_force().statement_timeout_ms;
            let (database, tables) =
                (Arc::clone(&self.database), self.concerned(known.statement()));
            let started = Box::pin(start_texts(self, name, values));
            let started = patiently(&database, tables, started);
            let started = within(limit_ms, Box::pin(started)).await;
            let started = self.end_statement(started).await;
            let started = returning::end_returning(self, is_own, started).await;
            self.hinted = None;
            counted::started(counting, started.map(|started| self.with_locks(started)))
        })
    }

    /// Forgets the prepared statement `name`, or all of them.
    ///
    /// # Errors
    /// [`Error::UnknownName`].
    pub fn deallocate(&mut self, name: Option<&str>) -> Result<()> {
        match name {
            None => {
                self.prepared = PreparedStatements::default();
                self.settings.client.objects.remove_statement(None);
            }
            Some(name) => {
                self.prepared.find(name)?;
                self.prepared.remove(name);
                self.settings.client.objects.remove_statement(Some(name));
            }
        }
        Ok(())
    }

    /// The description of the prepared statement `name`, if it may run and its tables are unchanged.
    pub fn described_at_hand(&self, name: &str) -> Option<Arc<Described>> {
        let known = self.prepared.by_name.get(name)?;
        let is_allowed = rights::check_again(self, known.statement(), known.allowed.as_ref(), None);
        let holds = self.in_force().search_path.has_public()
            && known.holds(&self.names())
            && is_allowed.ok()?.is_none();
        holds.then(|| Arc::clone(&known.described))
    }
}

/// Runs PREPARE.
pub(super) async fn prepare_parsed(
    session: &mut Session,
    prepare: Prepare,
    hints: Vec<Hint>,
) -> Result<Outcome> {
    let Prepare { name, types, statement, text, .. } = prepare;
    prepare_source(session, &name, (*statement, text, types), (hints, false)).await?;
    show(session, &name, true);
    Ok(Outcome::done("PREPARE"))
}

/// Runs EXECUTE.
pub(super) async fn execute_parsed(session: &mut Session, execute: &Execute) -> Result<Started> {
    let prepared = prepared_now(session, &execute.name).await?;
    let values = values_of(session, &prepared, execute).await?;
    let prepared = prepared.with_files(&values)?;
    run_prepared(session, &prepared, &values).await
}

/// Runs DEALLOCATE.
pub(super) fn deallocated(session: &mut Session, name: Option<&str>) -> Result<Outcome> {
    session.deallocate(name)?;
    Ok(Outcome::done(if name.is_some() { "DEALLOCATE" } else { "DEALLOCATE ALL" }))
}

async fn start_texts(
    session: &mut Session,
    name: &str,
    values: &[Option<&str>],
) -> Result<Started> {
    let prepared = prepared_now(session, name).await?;
    let values = read_texts(&prepared, name, values)?;
    if let Statement::Query(query) = prepared.statement() {
        started::set_configs(session, query, &values)?;
    }
    let prepared = prepared.with_files(&values)?;
    Box::pin(run_prepared(session, &prepared, &values)).await
}

/// The values that a client gives to the statement prepared as `name`.
fn read_texts(
    prepared: &PreparedStatement,
    name: &str,
    values: &[Option<&str>],
) -> Result<Parameters> {
    let Described { parameters: types, lists, .. } = &*prepared.described;
    check_count(name, types.len(), values.len())?;
    let read = types.iter().zip(values).zip(1..).map(|((column_type, text), number)| {
        let value = match lists.contains(&(number - 1)) {
            true => Parameter::read_list(*column_type, *text),
            false => Parameter::read(*column_type, *text),
        };
        value.map_err(|source| Error::Parameter { number, source: Box::new(source) })
    });
    Ok(Parameters::new(read.collect::<Result<_>>()?))
}

async fn prepare_source(
    session: &mut Session,
    name: &str,
    (statement, text, declared): (Statement, String, Vec<Option<ColumnType>>),
    (hints, is_open): (Vec<Hint>, bool),
) -> Result<()> {
    if !name.is_empty() && session.prepared.by_name.contains_key(name) {
        let (kind, name) = (NameKind::PreparedStatement, name.to_owned());
        return Err(Error::NameTaken { kind, name });
    }
    if !name.is_empty() {
        session.prepared.check_room(text.len())?;
    }
    // Settings that SET would refuse are refused now, and not with the first values.
    under(&session.settings, &hints)?;
    let declared = declared.into_iter().map(|known| known.map(parameter_type)).collect();
    let source = Source { statement, text: StatementText::of(&text), hints, declared };
    let prepared = describe_source(session, source, is_open).await?;
    session.prepared.put(name, Arc::new(prepared), &session.kept)?;
    Ok(())
}

/// Shows the prepared statement `name` in `pg_prepared_statements`.
fn show(session: &Session, name: &str, is_of_sql: bool) {
    let Some(prepared) = session.prepared.by_name.get(name).filter(|_| !name.is_empty()) else {
        return;
    };
    let Described { parameters, lists, .. } = &*prepared.described;
    let type_of = |(place, column_type): (usize, &ColumnType)| {
        let list = if lists.contains(&place) { "[]" } else { "" };
        format!("{}{list}", type_name(*column_type))
    };
    let types = parameters.iter().enumerate().map(type_of).collect();
    let text = prepared.source.text.with(&Parameters::default());
    let text = match is_of_sql {
        true => format!("PREPARE {} AS {text}", quoted(name)),
        false => text,
    };
    let made_us = session.moment().now_us;
    let shown = ShownStatement { text, made_us, types, is_of_sql };
    session.settings.client.objects.put_statement(name, shown);
}

/// The look-up of the prepared statement `name` with these values on `state`.
pub(super) fn prepared_look_up(
    session: &Session,
    name: &str,
    values: &[Option<&str>],
    state: &CatalogState,
) -> Option<PointQuery> {
    let known = session.prepared.by_name.get(name)?;
    let point = known.point.as_ref().filter(|point| point.has_one_row())?;
    let is_plain =
        matches!(known.statement(), Statement::Query(_)) && known.source.hints.is_empty();
    let types = &known.described.parameters;
    if !is_plain || types.len() != values.len() || !known.described.lists.is_empty() {
        return None;
    }
    let is_allowed = rights::check_again(session, known.statement(), known.allowed.as_ref(), None);
    if is_allowed.ok()?.is_some() || !known.holds(state) {
        return None;
    }
    let read = types.iter().zip(values);
    let read = read.map(|(column_type, text)| Parameter::read(*column_type, *text).ok());
    point.bind(&Parameters::new(read.collect::<Option<_>>()?))
}

/// The prepared statement `name`, described for the present tables.
pub(super) async fn prepared_now(
    session: &mut Session,
    name: &str,
) -> Result<Arc<PreparedStatement>> {
    let known = Arc::clone(session.prepared.find(name)?);
    if !session.in_force().search_path.has_public() {
        search_path::check_path(session, &known.source.text.with(&Parameters::default()))?;
    }
    if session.defined().has_any_temporary() || session.defined().is_exact() {
        let text = known.source.text.with(&Parameters::default());
        if session.decide_names(&text)?.is_some() {
            let message = format!(
                "the names in prepared statement \"{name}\" have another meaning since a temporary object hides one of \
                 them; prepare it anew"
            );
            return Err(Error::Invalid { message, fault: Fault::Statement, position: None });
        }
    }
    let allowed =
        rights::check_prepared(session, known.statement(), known.allowed.as_ref()).await?;
    let holds = known.holds(&session.names());
    let anew = match (holds, allowed) {
        (true, None) => return Ok(known),
        (true, allowed) => PreparedStatement { allowed, ..PreparedStatement::clone(&known) },
        (false, allowed) => {
            let anew = describe_source(session, known.source.clone(), false).await?;
            let allowed = allowed.or_else(|| known.allowed.clone());
            PreparedStatement { allowed, ..anew }
        }
    };
    let anew = Arc::new(anew);
    session.prepared.put(name, Arc::clone(&anew), &session.kept)?;
    Ok(anew)
}

/// The description of a statement; `is_open`: a client may give a type to what it leaves open.
async fn describe_source(
    session: &Session,
    source: Source,
    is_open: bool,
) -> Result<PreparedStatement> {
    if let Some(of_files) = of_files(session, &source, is_open).await? {
        return Ok(of_files);
    }
    Box::pin(describe_over(session, source, &GivenRows::default())).await
}

/// The description of a statement that may refer to the rows `given`.
pub(super) async fn describe_over(
    session: &Session,
    source: Source,
    given: &GivenRows,
) -> Result<PreparedStatement> {
    if let Statement::ChangingWith(with) = &source.statement {
        return Box::pin(changing_with::describe_changing_with(session, with, &source)).await;
    }
    if let Statement::LockedParts(parts) = &source.statement {
        let plain = Source { statement: (*parts.plain).clone(), ..source.clone() };
        let described = Box::pin(describe_over(session, plain, given)).await?;
        let planned = PreparedStatement::new(source, described.described, described.tables);
        return Ok(PreparedStatement { constants: described.constants, ..planned });
    }
    if let Statement::Explain { statement, analyze, .. } = &source.statement {
        let statement = explain::explained(*analyze, (**statement).clone())?;
        let plain = Source { statement, ..source.clone() };
        let explained = Box::pin(describe_over(session, plain, given)).await?;
        let columns = Some(select::explained_columns());
        let described = Described { columns, ..(*explained.described).clone() };
        let tables = explained.tables.clone();
        let prepared = PreparedStatement::new(source, Arc::new(described), tables);
        return Ok(PreparedStatement { explained: Some(Arc::new(explained)), ..prepared });
    }
    let made;
    let query = match &source.statement {
        Statement::Query(query) => Some(query),
        Statement::Locking(locking) => Some(&locking.query),
        Statement::Declare(declare) => Some(&declare.query),
        Statement::Insert(insert) => insert.source.as_ref(),
        Statement::Define(define) => match define.as_ref() {
            Define::CreateTableAs(create) => Some(&create.query),
            _ => None,
        },
        Statement::Modify(modify) => {
            let target = modify::modify_target(session, modify)?;
            made = modify.query(&target)?;
            Some(&made)
        }
        _ => None,
    };
    let mut count = query.map_or(Ok(0), |query| parameters::count(query))?;
    if let Statement::Insert(insert) = &source.statement {
        count = count.max(upsert::update_parameters(session, insert)?);
    }
    let lists = query.map_or(Ok(BTreeSet::new()), |query| parameters::list_places(query))?;
    let mut types = source.declared.clone();
    types.resize(count.max(types.len()), None);
    if let Statement::Insert(insert) = &source.statement {
        let described = Box::pin(insert::describe_insert(session, insert, types, given)).await?;
        let (parameters, tables) = described;
        let rows = RecordBatch::new_empty(insert::insert_target(session, insert)?.arrow());
        let returning = insert::returning_query(insert)?;
        let returned = returning.map(|query| (query, rows));
        let columns = returned_columns(session, returned, &parameters).await?;
        let described = Arc::new(Described { parameters, lists, columns, is_told_late: false });
        let constants = match tables.last() {
            Some(target) => ConstantInsert::of(insert, target)?,
            None => None,
        };
        let constants = constants.map(|own| Arc::new(own.into_owned()));
        let prepared = PreparedStatement::new(source, described, tables);
        return Ok(PreparedStatement { constants, ..prepared });
    }
    if let Statement::Modify(modify) = &source.statement {
        let described = Box::pin(modify::describe_modify(session, modify, types, given)).await?;
        let (parameters, tables, returned) = described;
        let columns = returned_columns(session, returned, &parameters).await?;
        let state = session.names();
        let change = KeyedChange::of(modify, &parameters, &state);
        let nested = NestedChange::of(modify, &parameters, &state);
        let nested = nested.map(|nested| Nested::Change(Arc::new(nested)));
        let described = Arc::new(Described { parameters, lists, columns, is_told_late: false });
        let prepared = PreparedStatement::new(source, described, tables);
        return Ok(PreparedStatement { change, nested, ..prepared });
    }
    let Some(query) = query else {
        return Err(Error::unsupported("PREPARE of this statement"));
    };
    let view = ReadView::of_state(session.names());
    let read = (Some(&view), given);
    let described =
        select::describe_over(&session.database, session.in_force(), read, query, types);
    let select::Described { types, schema, tables, outside, .. } = Box::pin(described).await?;
    let point = PreparedPoint::of(query, &types, &view.state);
    let numbered = matches!(source.statement, Statement::Locking(_));
    let range = RangeTemplate::of(query, &types, &view.state, numbered).map(Arc::new);
    let nested = match &source.statement {
        Statement::Query(query) => NestedQuery::of(query, &types, &view.state),
        _ => None,
    };
    let nested = nested.map(|nested| Nested::Query(Arc::new(nested)));
    let (columns, point, range) = match &source.statement {
        Statement::Declare(_) | Statement::Define(_) => (None, None, None),
        _ => (Some(schema), point, range),
    };
    let described = Arc::new(Described { parameters: types, lists, columns, is_told_late: false });
    let prepared = PreparedStatement::new(source, described, tables);
    let reads_outside = !outside.is_empty();
    Ok(PreparedStatement { reads_outside, point, range, nested, ..prepared })
}

/// The columns of RETURNING, from its query without rows.
async fn returned_columns(
    session: &Session,
    returning: Returns,
    parameters: &[ColumnType],
) -> Result<Option<SchemaRef>> {
    let Some((query, rows)) = returning else { return Ok(None) };
    let none = |(column_type, number): (&ColumnType, usize)| {
        let value = Parameter::read(*column_type, None);
        value.map_err(|source| Error::Parameter { number, source: Box::new(source) })
    };
    let values = parameters.iter().zip(1..).map(none).collect::<Result<_>>()?;
    let parameters = &Parameters::new(values);
    let view = ReadView::of_state(session.names());
    let (context, query) =
        ((session.database.queries(), session.in_force()), (&*query, parameters));
    let told = select::described_over_rows(context, query, &view, &rows);
    Box::pin(told).await.map(Some)
}

pub(super) async fn run_prepared(
    session: &mut Session,
    prepared: &PreparedStatement,
    values: &Parameters,
) -> Result<Started> {
    check_place(session, &prepared.source.statement.properties())?;
    let query = match &prepared.source.statement {
        Statement::Query(query) => query,
        Statement::Insert(insert) => {
            let known = prepared.constants.as_deref();
            let outcome = Box::pin(insert::run(session, insert, known, values)).await?;
            return Ok(started::charged(&session.database, outcome));
        }
        Statement::Modify(modify) => {
            if let Some(change) = &prepared.change
                && let Some(outcome) =
                    Box::pin(modify_row::modify_keyed(session, modify, change, values)).await?
            {
                return Ok(outcome.into());
            }
            if let Some(Nested::Change(nested)) = &prepared.nested
                && let Some(outcome) =
                    Box::pin(subqueries::modify_nested(session, nested, values)).await?
            {
                return Ok(outcome.into());
            }
            let outcome = Box::pin(modify::run(session, modify, values)).await?;
            return Ok(started::charged(&session.database, outcome));
        }
        Statement::Locking(locking) => {
            let point: locking::Point<'_> = &|state| prepared.point_query(values, state);
            let by = (point, prepared.range.as_deref().map(|range| (range, values)));
            let outcome = Box::pin(locking::run(session, locking, values, by)).await?;
            return Ok(started::charged(&session.database, outcome));
        }
        Statement::LockedParts(parts) => {
            let text = prepared.source.text.with(values);
            let run = Box::pin(locked_parts::run_locked_parts(session, parts, values, &text));
            return run.await.map(Started::from);
        }
        Statement::ChangingWith(with) => {
            let text = prepared.source.text.with(values);
            let run = Box::pin(changing_with::run_changing_with(session, with, values, &text));
            return run.await.map(Started::from);
        }
        Statement::Declare(declare) => {
            let text = prepared.source.text.with(values);
            return Box::pin(cursors::declare(session, declare, values, &text))
                .await
                .map(Started::from);
        }
        Statement::Explain { analyze, format, .. } => {
            let Some(explained) = &prepared.explained else {
                return Err(Error::unsupported("EXPLAIN of this statement"));
            };
            let asked = (&**explained, values);
            let outcome = Box::pin(explain::run_prepared(session, *analyze, *format, asked));
            return outcome.await.map(Started::from);
        }
        Statement::Define(define) => match define.as_ref() {
            Define::CreateTableAs(create) => {
                let create = CreateTableAs::clone(create);
                let outcome = Box::pin(define::create_table_as(session, create, values));
                return outcome.await.map(Started::from);
            }
            _ => return Err(Error::unsupported("EXECUTE of this statement")),
        },
        _ => return Err(Error::unsupported("EXECUTE of this statement")),
    };
    locking::wait_for_tables(session, query).await?;
    if prepared.point.is_some() && session.in_force().index_scan != When::Never {
        let live = session.live().await?;
        if let Some(point) = prepared.point_query(values, &live.state)
            && let Some(outcome) = look_ups::run_point_query(session, live, &point).await?
        {
            return Ok(outcome.into());
        }
    }
    if let Some(template) = &prepared.range
        && let Some(outcome) = Box::pin(ranges::run_range(session, template, values)).await?
    {
        return Ok(outcome.into());
    }
    if let Some(nested) = prepared.nested()
        && let Some(outcome) = Box::pin(subqueries::run_nested(session, nested, values)).await?
    {
        return Ok(outcome.into());
    }
    let view = session.view().await?;
    let text = prepared.source.text.with(values);
    started::started(
        &session.database,
        session.in_force(),
        QueryRequest { query, parameters: values, view: Some(&view) },
        &text,
    )
    .await
}
