//! INSERT: constants are read as values of their columns; any other source is a query whose rows are cast.
//!
//! A string in VALUES has no type until its column is known, as in PostgreSQL: `'2024-02-29'` is a date in a date
//! column. A number keeps its digits (`1.10`) and is assigned only to number columns ([`Literal`]). A function, an
//! operator or a subquery in any row makes the whole of VALUES a query. DataFusion does not know DEFAULT: it gets NULL
//! in its place, and [`Defaults`] remembers where a column's default goes.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::types::UInt64Type;
use arrow::array::{ArrayRef, AsArray, BooleanArray, NullArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Schema};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::value::literal::Literal;
use cleave_catalog::value::{ColumnBuilder, value_text};
use cleave_engine::write::insert;
use cleave_engine::write::insert::{Gathered, TableChange, route};
use cleave_query::select;
use cleave_query::select::{Measured, QueryRequest, ReadView, all_known, describe_over};
use cleave_sql::statement::Insert;
use cleave_sql::statement::assigned::check_inserted;
use cleave_sql::statement::conform::{Conform, converted};
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::modify::{over_target, returns_nested};
use cleave_sql::statement::moment::Moment;
use cleave_sql::statement::parameters::{Parameters, parameter_type, place_of};
use cleave_sql::statement::parse::{is_default, refuse_in_query};
use cleave_sql::statement::upsert::ConflictAction;
use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::block::many;
use super::block::own;
use super::block::{OwnRows, Taken};
use super::charge::{all_of, share_of};
use super::foreign_keys::CheckedLoad;
use super::{
    Outcome, Session, block, definitions, identity, insert_fragment, locking, returning,
    serializable, upsert,
};

/// The query for the RETURNING list, over rows of the table alone; None: there is no RETURNING.
///
/// # Errors
/// Those of a clause that a query cannot have.
pub(super) fn returning_query(insert: &Insert) -> Result<Option<Box<ast::Query>>> {
    if insert.returning.is_empty() {
        return Ok(None);
    }
    let query = over_target(&insert.target_name(), insert.returning.clone(), Vec::new(), None)?;
    refuse_in_query(&query)?;
    Ok(Some(query))
}

/// The EXPLAIN of an INSERT of written-out rows; None: a query is planned for them.
pub(super) fn explain_insert(insert: &Insert, schema: &TableSchema) -> Option<String> {
    let count = match &insert.source {
        None => 1,
        Some(_) => read_rows(schema, insert)?.len(),
    };
    let rows = if count == 1 { "row" } else { "rows" };
    let conflict = match insert.on_conflict.as_ref().map(|clause| &clause.action) {
        None => "",
        Some(ConflictAction::Nothing) => ", but where its key is found, which is looked up",
        Some(ConflictAction::Update { .. }) => {
            ", or update of what has its key, which is looked up"
        }
    };
    Some(format!(
        "Insert of {count} {rows} into {}{conflict}, on the host, without a plan",
        schema.name
    ))
}

/// Runs INSERT; `known` is what was read of it before, if anything.
pub(super) async fn run(
    session: &mut Session,
    insert: &Insert,
    known: Option<&ConstantInsert<'_>>,
    parameters: &Parameters,
) -> Result<Outcome> {
    session.check_may_write("INSERT")?;
    let returning = returning_query(insert)?;
    let locked = locking::lock_for_writing(session, &insert.table).await;
    let schema = locked.map_err(|error| error.at(insert.position))?;
    let made;
    let constants = match known.filter(|known| Arc::ptr_eq(&known.schema, &schema)) {
        Some(known) => Some(known),
        None => {
            let read = ConstantInsert::of(insert, &schema);
            // An error in the RETURNING list comes before that of too many values.
            made = read.or_else(|error| check_listed(insert, &schema).and(Err(error)))?;
            made.as_ref()
        }
    };
    if constants.is_none() {
        check_listed(insert, &schema)?;
        if let Some(query) = &insert.source {
            locking::wait_for_tables(session, query).await?;
        }
    }
    block::fix_snapshot(session).await?;
    // Subqueries of RETURNING read what was there before the INSERT.
    let view = match &returning {
        Some(query) if returns_nested(&insert.returning) => {
            locking::wait_for_tables(session, query).await?;
            Some(session.view().await?)
        }
        _ => None,
    };
    let with = (parameters, view.as_ref());
    let rows = match constants {
        Some(constants) => {
            let rows = made_of_constants(session, insert, constants, parameters)?;
            if insert.on_conflict.is_none() && returning.is_none() && insert::are_few(&rows) {
                let count = Box::pin(put_few(session, &schema, vec![rows])).await?;
                return Ok(Outcome::Done { tag: format!("INSERT 0 {count}") });
            }
            stream::iter([Ok(rows)]).boxed()
        }
        None => {
            let by_fragment = insert_fragment::run(session, &schema, (insert, parameters));
            if let Some(inserted) = Box::pin(by_fragment).await? {
                if returning.is_none() {
                    return Ok(Outcome::Done { tag: format!("INSERT 0 {}", inserted.count) });
                }
                let (rows, _charge) = Box::pin(inserted.rows(session, &schema)).await?;
                return returning::inserted(session, insert, (&schema, &rows), returning, with)
                    .await;
            }
            insert_source(session, &schema, insert, parameters).await?
        }
    };
    if let Some(on_conflict) = &insert.on_conflict {
        let (rows, _charge) = all_of(&session.database, Vec::new(), rows).await?;
        let rows = concat_batches(&schema.arrow(), &rows)?;
        let clause = (on_conflict, &insert.target_name());
        let rows = Box::pin(upsert::run(session, &schema, rows, clause, parameters)).await?;
        return returning::inserted(session, insert, (&schema, &rows), returning, with).await;
    }
    if returning.is_none() {
        let count = Box::pin(put_rows(session, &schema, rows)).await?;
        return Ok(Outcome::Done { tag: format!("INSERT 0 {count}") });
    }
    let (rows, _charge) = all_of(&session.database, Vec::new(), rows).await?;
    let rows = concat_batches(&schema.arrow(), &rows)?;
    let put = stream::iter([Ok(rows.clone())]).boxed();
    Box::pin(put_rows(session, &schema, put)).await?;
    returning::inserted(session, insert, (&schema, &rows), returning, with).await
}

/// Inserts rows, which conform to the table that `schema` describes, and returns their number. Outside of a block, many
/// rows are loaded as a bulk segment.
pub(super) async fn put_rows(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    rows: BoxStream<'_, Result<RecordBatch>>,
) -> Result<u64> {
    let few = match insert::gather(rows).await? {
        Gathered::Few(rows) => rows,
        Gathered::Many(first, rest) if session.owns(schema.table_id) => {
            return Box::pin(definitions::load_own(session, schema, first, rest)).await;
        }
        Gathered::Many(first, rest) if block::is_alone(session) => {
            let settings = session.shared_settings();
            Box::pin(serializable::prepare_load(session, schema.table_id)).await?;
            let check = CheckedLoad { database: &session.database, settings: &settings };
            let checks = Arc::clone(session.database.queries());
            let load =
                insert::load(&session.database, &settings, schema, (first, rest), (checks, &check));
            let loaded = Box::pin(load).await;
            serializable::end_load(session.tracked(), &loaded);
            return loaded;
        }
        Gathered::Many(first, rest) => {
            let share = share_of(&session.database);
            let may_move = many::may_move(session, schema.table_id);
            match insert::gather_up_to(first, rest, share).await? {
                Gathered::Few(rows) => rows,
                Gathered::Many(first, rest) if may_move => {
                    return Box::pin(definitions::load_own(session, schema, first, rest)).await;
                }
                Gathered::Many(first, rest) => {
                    let (rows, _charge) = all_of(&session.database, first, rest).await?;
                    return put_few(session, schema, rows).await;
                }
            }
        }
    };
    put_few(session, schema, few).await
}

/// As [`put_rows`], for rows that are not to be loaded.
async fn put_few(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    rows: Vec<RecordBatch>,
) -> Result<u64> {
    let count = rows.iter().map(|rows| rows.num_rows() as u64).sum();
    let newest = session.names();
    let table = newest.find_writable_table(&schema.name)?;
    let mut change = TableChange::new(Arc::clone(schema));
    let rows = match insert::are_few_in_all(&rows) {
        true => vec![concat_batches(&schema.arrow(), &rows)?],
        false => rows,
    };
    for rows in rows {
        for (place, rows) in route(table, rows)? {
            change.rows.entry(place).or_default().push(&rows)?;
        }
    }
    while let Taken::Again = own::take_rows(session, change.clone(), OwnRows::new(), None).await? {}
    Ok(count)
}

/// The table that rows go to, which has the columns that are listed.
pub(super) fn insert_target(session: &Session, insert: &Insert) -> Result<Arc<TableSchema>> {
    let state = session.names();
    let table = state.find_writable_table(&insert.table);
    let table = table.map_err(|error| error.at(insert.position))?;
    check_listed(insert, &table.schema)?;
    Ok(Arc::clone(&table.schema))
}

/// The description of an INSERT without values: the types of its parameters, of which `types` are known, and the tables
/// that it names. A parameter that fills a column takes its type.
///
/// # Errors
/// Those of the INSERT that do not depend on values.
pub(super) async fn describe_insert(
    session: &Session,
    insert: &Insert,
    mut types: Vec<Option<ColumnType>>,
    given: &GivenRows,
) -> Result<(Vec<ColumnType>, Vec<Arc<TableSchema>>)> {
    let schema = insert_target(session, insert)?;
    filled_types(insert, &schema, &mut types)?;
    let source = insert.source.as_ref();
    upsert::describe_update(session, insert, &schema, &mut types).await?;
    let Some(query) = source else { return Ok((all_known(&types)?, vec![schema])) };
    if let Some(rows) = constant_rows(query) {
        let count = rows.iter().map(Vec::len).max().unwrap_or_default();
        conform_of(&schema, insert, count, 0)?;
        return Ok((all_known(&types)?, vec![schema]));
    }
    let mut query = query.clone();
    let hidden_count = usize::from(Defaults::take(&mut query)?.is_some());
    let view = ReadView::of_state(session.names());
    let read = (Some(&view), given);
    let described = describe_over(&session.database, session.in_force(), read, &query, types);
    let described = Box::pin(described).await?;
    let count = described.schema.fields().len().saturating_sub(hidden_count);
    let conform = conform_of(&schema, insert, count, 0)?;
    check_inserted(&query, &conform, &described.schema)?;
    let mut tables = described.tables;
    tables.push(schema);
    Ok((described.types, tables))
}

/// Records in `types` those of parameters that fill columns of the table, which `schema` describes.
pub(super) fn filled_types(
    insert: &Insert,
    schema: &TableSchema,
    types: &mut [Option<ColumnType>],
) -> Result<()> {
    let listed = |place: usize| match insert.columns.as_slice() {
        [] => schema.columns.get(place),
        names => schema.columns.get(schema.column_index(names.get(place)?)?),
    };
    let source = insert.source.as_ref();
    for (place, cell) in source.map(|query| filling(&query.body)).unwrap_or_default() {
        let Some(parameter) = place_of(cell)? else { continue };
        if let (Some(unknown @ None), Some(column)) = (types.get_mut(parameter), listed(place)) {
            *unknown = Some(parameter_type(column.column_type));
        }
    }
    Ok(())
}

/// The rows of an INSERT of constants, as the table stores them.
fn made_of_constants(
    session: &Session,
    insert: &Insert,
    constants: &ConstantInsert<'_>,
    parameters: &Parameters,
) -> Result<RecordBatch> {
    let (state, rows) = (session.names(), &constants.rows);
    let table = state.find_writable_table(&insert.table)?;
    let mut conform = constants.conform.at(session.moment());
    let is_default =
        |place: usize| rows.iter().all(|row| row.get(place) == Some(&Constant::Default));
    identity::check_insert((&state, table), insert.overriding, &mut conform, is_default)?;
    let (columns, defaults) = values(&constants.schema, &conform, (rows, parameters))?;
    conform.rows_of_columns(&columns, rows.len(), &defaults)
}

/// The rows to insert, as the table stores them.
async fn insert_source(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    insert: &Insert,
    parameters: &Parameters,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let moment = session.moment();
    let state = session.names();
    let table = state.find_writable_table(&insert.table)?;
    let Some(mut query) = insert.source.clone() else {
        let rows = one_row(&Conform::by_name(schema, &Schema::empty(), moment)?);
        return Ok(stream::iter([rows]).boxed());
    };
    let defaults = Defaults::take(&mut query)?;
    let view = session.view().await?;
    let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
    let measuring = session.measuring.clone();
    let (database, settings) = (&session.database, session.in_force());
    let running = match &measuring {
        Some(_) => Box::pin(select::run_measured(database, settings, asked)).await?,
        None => Box::pin(select::run_query(database, settings, asked)).await?,
    };
    // If a DEFAULT occurs, the row's number follows the values.
    let hidden_count = usize::from(defaults.is_some());
    let count = running.schema().fields().len().saturating_sub(hidden_count);
    let mut conform = conform_of(schema, insert, count, moment)?;
    check_inserted(&query, &conform, &running.schema())?;
    let is_default =
        |place: usize| defaults.as_ref().is_some_and(|defaults| defaults.are_all(place));
    identity::check_insert((&state, table), insert.overriding, &mut conform, is_default)?;
    let source = (running, conform, (defaults, measuring));
    let rows = stream::try_unfold(source, |(mut running, conform, rest)| async move {
        let (defaults, measuring) = &rest;
        let Some(batch) = running.next().await? else {
            if let Some(measuring) = measuring {
                measuring.put(Measured::of(&mut running).await?);
            }
            return Ok(None);
        };
        let rows = match defaults {
            Some(defaults) => conform.rows_with_defaults(&batch, &defaults.of(&batch)?)?,
            None => conform.rows(&batch)?,
        };
        Ok(Some((rows, (running, conform, rest))))
    });
    Ok(rows.boxed())
}

/// Refuses columns that the table does not have.
fn check_listed(insert: &Insert, schema: &Arc<TableSchema>) -> Result<()> {
    conform_of(schema, insert, insert.columns.len(), 0).map(drop)
}

/// As [`Conform::by_position`], of what `insert` lists.
///
/// # Errors
/// Of a column that the table does not have, with its place.
pub(super) fn conform_of(
    schema: &Arc<TableSchema>,
    insert: &Insert,
    count: usize,
    moment: impl Into<Moment>,
) -> Result<Conform> {
    Conform::by_position(schema, &insert.columns, count, moment).map_err(|error| {
        let Error::UnknownName { kind: NameKind::Column, name, .. } = &error else { return error };
        let listed = insert.columns.iter().zip(&insert.column_places);
        let place = listed.into_iter().find(|(column, _)| *column == name);
        let place = place.and_then(|(_, place)| *place);
        error.at(place)
    })
}

/// The defaults of columns that the INSERT does not list, each with the place of its column.
fn filling(body: &ast::SetExpr) -> Vec<(usize, &ast::Expr)> {
    match body {
        ast::SetExpr::Values(values) => {
            values.rows.iter().flat_map(|row| row.iter().enumerate()).collect()
        }
        ast::SetExpr::Select(select) => {
            let items = select.projection.iter().enumerate();
            let plain = items.filter_map(|(place, item)| match item {
                ast::SelectItem::UnnamedExpr(expr) => Some((place, expr)),
                ast::SelectItem::ExprWithAlias { expr, .. } => Some((place, expr)),
                _ => None,
            });
            plain.collect()
        }
        _ => Vec::new(),
    }
}

/// One row of defaults.
fn one_row(conform: &Conform) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(Schema::empty());
    conform.rows(&RecordBatch::try_new_with_options(schema, Vec::new(), &options)?)
}

/// The places of DEFAULT in VALUES: for each column, for each row.
#[derive(Debug)]
struct Defaults(Vec<Vec<bool>>);

impl Defaults {
    /// Takes DEFAULT out of VALUES that DataFusion is to plan. NULL stands in for it. The row's number follows the last
    /// column, since DataFusion may return the rows in another order.
    fn take(query: &mut ast::Query) -> Result<Option<Self>> {
        let is_plain = is_plain(query);
        let ast::SetExpr::Values(values) = query.body.as_mut() else { return Ok(None) };
        if !values.rows.iter().any(|row| row.iter().any(is_default)) {
            return Ok(None);
        }
        if !is_plain {
            return Err(Error::Invalid {
                message: "DEFAULT is not allowed in this context".to_owned(),
                fault: Fault::Statement,
                position: None,
            });
        }
        let column_count = values.rows.iter().map(|row| row.len()).max().unwrap_or_default();
        let mut columns = vec![vec![false; values.rows.len()]; column_count];
        for (number, row) in values.rows.iter_mut().enumerate() {
            for (value, column) in row.content.iter_mut().zip(&mut columns) {
                if !is_default(value) {
                    continue;
                }
                *value = ast::Expr::value(ast::Value::Null);
                if let Some(flag) = column.get_mut(number) {
                    *flag = true;
                }
            }
            row.content.push(ast::Expr::value(ast::Value::Number(number.to_string(), false)));
        }
        Ok(Some(Self(columns)))
    }

    /// Whether all rows have the default of the column at `place`.
    fn are_all(&self, place: usize) -> bool {
        self.0.get(place).is_some_and(|column| column.iter().all(|is_default| *is_default))
    }

    /// For each column, which of a batch's rows get their default; None: none of them.
    fn of(&self, batch: &RecordBatch) -> Result<Vec<Option<BooleanArray>>> {
        let Some(numbers) = batch.columns().last() else { return Ok(Vec::new()) };
        let numbers = cast(numbers, &DataType::UInt64)?;
        let numbers = numbers.as_primitive::<UInt64Type>().values();
        let of_column = |column: &Vec<bool>| {
            let flag = |number: &u64| {
                let number = usize::try_from(*number).ok()?;
                column.get(number).copied()
            };
            let flags = numbers.iter().map(|number| flag(number).unwrap_or(false));
            column.contains(&true).then(|| BooleanArray::from(flags.collect::<Vec<bool>>()))
        };
        Ok(self.0.iter().map(of_column).collect())
    }
}

/// An expression that needs no DataFusion.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant<'a> {
    Null,
    Default,
    Literal(Literal, Cow<'a, str>),
    /// The value of this parameter, from 0.
    Parameter(usize),
    /// The time of the statement.
    Now,
}

/// An INSERT of written-out rows, as far as it can be read without values.
#[derive(Debug)]
pub(super) struct ConstantInsert<'a> {
    schema: Arc<TableSchema>,
    rows: Vec<Vec<Constant<'a>>>,
    conform: Conform,
}

impl<'a> ConstantInsert<'a> {
    /// What `insert` is, whose table `schema` describes; None: its rows come from a query or are defaults.
    ///
    /// # Errors
    /// Those of [`Conform::by_position`].
    pub(super) fn of(insert: &'a Insert, schema: &Arc<TableSchema>) -> Result<Option<Self>> {
        let Some(rows) = read_rows(schema, insert) else { return Ok(None) };
        let count = rows.iter().map(Vec::len).max().unwrap_or_default();
        let conform = conform_of(schema, insert, count, 0)?;
        Ok(Some(Self { schema: Arc::clone(schema), rows, conform }))
    }

    /// The same, with its own texts.
    pub(super) fn into_owned(self) -> ConstantInsert<'static> {
        let Self { schema, rows, conform } = self;
        let row = |row: Vec<Constant<'_>>| row.into_iter().map(Constant::into_owned).collect();
        ConstantInsert { schema, rows: rows.into_iter().map(row).collect(), conform }
    }
}

impl Constant<'_> {
    fn into_owned(self) -> Constant<'static> {
        match self {
            Self::Literal(kind, text) => Constant::Literal(kind, Cow::Owned(text.into_owned())),
            Self::Null => Constant::Null,
            Self::Default => Constant::Default,
            Self::Parameter(place) => Constant::Parameter(place),
            Self::Now => Constant::Now,
        }
    }
}

/// The written-out rows of `insert`; None: they come from a query or are defaults.
fn read_rows<'a>(schema: &TableSchema, insert: &'a Insert) -> Option<Vec<Vec<Constant<'a>>>> {
    constant_rows(insert.source.as_ref()?).filter(|rows| are_read(schema, insert, rows))
}

/// Whether every constant is read as DataFusion would read it: the time only in date and time columns.
fn are_read(schema: &TableSchema, insert: &Insert, rows: &[Vec<Constant<'_>>]) -> bool {
    let takes_time = |place: usize| {
        let column = match insert.columns.get(place) {
            Some(name) => schema.column(name),
            None => schema.columns.get(place).filter(|_| insert.columns.is_empty()),
        };
        column.is_none_or(|column| {
            matches!(column.column_type, ColumnType::Timestamp | ColumnType::TimestampTz)
        })
    };
    let is_read =
        |(place, value): (usize, &Constant<'_>)| *value != Constant::Now || takes_time(place);
    rows.iter().all(|row| row.iter().enumerate().all(is_read))
}

/// The rows of a query that consists only of VALUES of constants.
fn constant_rows(query: &ast::Query) -> Option<Vec<Vec<Constant<'_>>>> {
    let ast::SetExpr::Values(values) = query.body.as_ref() else { return None };
    if !is_plain(query) {
        return None;
    }
    values.rows.iter().map(|row| row.iter().map(constant).collect()).collect()
}

/// Whether the query consists of its body alone.
fn is_plain(query: &ast::Query) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
}

pub(super) fn constant(expression: &ast::Expr) -> Option<Constant<'_>> {
    if is_default(expression) {
        return Some(Constant::Default);
    }
    match expression {
        ast::Expr::Nested(inner) => constant(inner),
        ast::Expr::Function(function) if is_now(function) => Some(Constant::Now),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match constant(expr)? {
            Constant::Literal(Literal::Number, digits) if !digits.starts_with('-') => {
                Some(Constant::Literal(Literal::Number, format!("-{digits}").into()))
            }
            _ => None,
        },
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Null => Some(Constant::Null),
            ast::Value::Boolean(value) => {
                let word = if *value { "true" } else { "false" };
                Some(Constant::Literal(Literal::Boolean, word.into()))
            }
            ast::Value::Number(digits, _) => {
                Some(Constant::Literal(Literal::Number, digits.into()))
            }
            ast::Value::SingleQuotedString(text)
            | ast::Value::EscapedStringLiteral(text)
            | ast::Value::UnicodeStringLiteral(text) => {
                Some(Constant::Literal(Literal::String, text.into()))
            }
            ast::Value::DollarQuotedString(text) => {
                Some(Constant::Literal(Literal::String, (&text.value).into()))
            }
            ast::Value::Placeholder(_) => {
                place_of(expression).ok().flatten().map(Constant::Parameter)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether it is `now()` or CURRENT_TIMESTAMP.
fn is_now(function: &ast::Function) -> bool {
    let text = function.to_string();
    text.eq_ignore_ascii_case("now()") || text.eq_ignore_ascii_case("current_timestamp")
}

/// For each column of an input, which of its rows get the default.
type DefaultRows = Vec<Option<BooleanArray>>;

/// Constants as columns of the types of their target columns, and the places of DEFAULT among them.
fn values(
    schema: &TableSchema,
    conform: &Conform,
    (rows, parameters): (&[Vec<Constant<'_>>], &Parameters),
) -> Result<(Vec<ArrayRef>, DefaultRows)> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    if rows.iter().any(|row| row.len() != count) {
        return Err(Error::Invalid {
            message: "VALUES lists must all be the same length".to_owned(),
            fault: Fault::Statement,
            position: None,
        });
    }
    let targets = conform.targets();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(count);
    let mut defaults = Vec::with_capacity(count);
    for place in 0..count {
        let Some((_, column)) = targets.iter().find(|(known, _)| *known == place) else {
            // It is overridden.
            columns.push(Arc::new(NullArray::new(rows.len())));
            defaults.push(None);
            continue;
        };
        let mut builder = ColumnBuilder::new(&column.column_type, rows.len());
        for row in rows {
            let value = row.get(place).unwrap_or(&Constant::Null);
            append(schema, &mut builder, column, (value, parameters), conform.moment().now_us)?;
        }
        let is_default = |row: &Vec<Constant<'_>>| row.get(place) == Some(&Constant::Default);
        let flags = || BooleanArray::from_iter(rows.iter().map(|row| Some(is_default(row))));
        defaults.push(rows.iter().any(is_default).then(flags));
        columns.push(builder.finish());
    }
    Ok((columns, defaults))
}

pub(super) fn append(
    schema: &TableSchema,
    builder: &mut ColumnBuilder,
    column: &Column,
    (value, parameters): (&Constant<'_>, &Parameters),
    now_us: i64,
) -> Result<()> {
    let bad = |source| Error::Value { column: column.name.clone(), source: Box::new(source) };
    match value {
        Constant::Null if column.not_null => {
            Err(Error::NotNull { table: schema.name.clone(), column: column.name.clone() })
        }
        Constant::Null => {
            builder.append_null();
            Ok(())
        }
        Constant::Parameter(place) => {
            let value = parameters.get(*place)?;
            let Some(text) = value.text() else {
                return append(schema, builder, column, (&Constant::Null, parameters), now_us);
            };
            if value.column_type() == column.column_type {
                return builder.append_text(text).map_err(bad);
            }
            // As the column of a query is assigned.
            let value = converted(column, &value.array().map_err(bad)?)?;
            match value_text(&value, 0)? {
                Some(text) => builder.append_text(&text).map_err(bad),
                None => append(schema, builder, column, (&Constant::Null, parameters), now_us),
            }
        }
        Constant::Literal(kind, text) if !kind.fits(&column.column_type) => Err(Error::Invalid {
            message: format!(
                "column \"{}\" is of type {} but expression is of type {}",
                column.name,
                column.column_type.sql_name(),
                kind.type_name(text)
            ),
            fault: Fault::Type,
            position: None,
        }),
        Constant::Literal(kind, text) => kind.append(builder, text).map_err(bad),
        // Only date and time columns have it.
        Constant::Now => {
            builder.append_moment(now_us);
            Ok(())
        }
        // Its default comes in its place.
        Constant::Default => {
            builder.append_null();
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
