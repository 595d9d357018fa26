//! Prepared statements whose parameters name files, as `read_csv($1)`.
//!
//! 1. Such a statement is described without its files ([`of_files`]): other parameters have the types that the
//!    statement and the columns of tables say. Rows that hold columns of the files are told late.
//! 2. Each run puts the names of its files into the statement ([`PreparedStatement::with_files`]) and goes on with
//!    that. It is an ordinary statement with constants then, whatever kind it is.
//! 3. With its values it can be described as any other ([`PreparedStatement::described_with`]); nothing runs for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::error::Result;
use cleave_query::select;
use cleave_sql::statement::files::has_parameters;
use cleave_sql::statement::locked_parts::GivenRows;
use cleave_sql::statement::parse::Define;
use cleave_sql::statement::{Parameters, Statement, parameters};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast;

use super::{Described, PreparedStatement, Source, describe_over, returned_columns};
use crate::session::{Session, explain, insert, modify, upsert};

impl PreparedStatement {
    /// It with the files that `values` name.
    pub(in crate::session) fn with_files(
        self: Arc<Self>,
        values: &Parameters,
    ) -> Result<Arc<Self>> {
        if !self.names_files {
            return Ok(self);
        }
        let mut source = self.source.clone();
        values.put_files_into(&mut source.statement)?;
        let of = |source| Self::new(source, Arc::clone(&self.described), Vec::new());
        let explained = match &source.statement {
            Statement::Explain { statement, analyze, .. } => {
                let statement = explain::explained(*analyze, (**statement).clone())?;
                Some(Arc::new(of(Source { statement, ..source.clone() })))
            }
            _ => None,
        };
        Ok(Arc::new(Self { explained, ..of(source) }))
    }

    /// Its description with these values.
    pub(super) async fn described_with(
        self: Arc<Self>,
        session: &Session,
        values: &Parameters,
    ) -> Result<Arc<Described>> {
        if !self.described.is_told_late {
            return Ok(Arc::clone(&self.described));
        }
        let declared = self.described.parameters.iter().copied().map(Some).collect();
        let source = Source { declared, ..self.with_files(values)?.source.clone() };
        let described = Box::pin(describe_over(session, source, &GivenRows::default())).await?;
        // Other values may tell others.
        let described = Described { is_told_late: true, ..(*described.described).clone() };
        Ok(Arc::new(described))
    }
}

/// The description of a statement whose parameters name files; None: none does. A parameter whose type nothing tells is
/// text if `is_open`, else an error.
pub(super) async fn of_files(
    session: &Session,
    source: &Source,
    is_open: bool,
) -> Result<Option<PreparedStatement>> {
    if !source.text.may_name_files() {
        return Ok(None);
    }
    let queries = queries_of(session, &source.statement)?;
    let (mut names_files, mut count, mut lists) = (false, 0_usize, BTreeSet::new());
    for query in &queries {
        names_files |= has_parameters(query)?;
        count = count.max(parameters::count(query)?);
        lists.append(&mut parameters::list_places(query)?);
    }
    if !names_files {
        return Ok(None);
    }
    let mut types = source.declared.clone();
    types.resize(count.max(types.len()), None);
    column_types(session, &source.statement, &mut types)?;
    for query in &queries {
        parameters::written_types(query, &mut types)?;
    }
    let mut source = source.clone();
    source.declared.resize(types.len(), None);
    if is_open {
        for (known, declared) in types.iter_mut().zip(&mut source.declared) {
            if known.is_none() {
                // When the statement is described again it is what it was.
                (*known, *declared) = (Some(ColumnType::Text), Some(ColumnType::Text));
            }
        }
    }
    let parameters = select::all_known(&types)?;
    let told = Box::pin(told_columns(session, &source.statement, &parameters)).await?;
    let (columns, is_told_late) = match told {
        Told::Now(columns) => (columns, false),
        Told::Late => (None, true),
    };
    let described = Arc::new(Described { parameters, lists, columns, is_told_late });
    let prepared = PreparedStatement::new(source, described, Vec::new());
    Ok(Some(PreparedStatement { reads_outside: true, names_files, ..prepared }))
}

/// The columns of a statement's rows.
enum Told {
    /// They are known without its files; None: it gives no rows.
    Now(Option<SchemaRef>),
    /// Its files tell them.
    Late,
}

async fn told_columns(
    session: &Session,
    statement: &Statement,
    parameters: &[ColumnType],
) -> Result<Told> {
    let statement = match statement {
        Statement::LockedParts(parts) => &*parts.plain,
        other => other,
    };
    let (query, schema) = match statement {
        Statement::Query(_) | Statement::Locking(_) => return Ok(Told::Late),
        // RETURNING may read rows of its parts.
        Statement::ChangingWith(with) => {
            return Ok(match &with.main.statement {
                Statement::Insert(insert) if insert.returning.is_empty() => Told::Now(None),
                Statement::Modify(modify) if modify.returning.is_empty() => Told::Now(None),
                _ => Told::Late,
            });
        }
        Statement::Explain { .. } => return Ok(Told::Now(Some(select::explained_columns()))),
        Statement::Insert(insert) => match insert::returning_query(insert)? {
            Some(query) => (query, insert::insert_target(session, insert)?),
            None => return Ok(Told::Now(None)),
        },
        Statement::Modify(modify) if modify.returning.is_empty() => return Ok(Told::Now(None)),
        // Names in RETURNING may be those of the files' columns.
        Statement::Modify(modify) if modify.returns_beside() => return Ok(Told::Late),
        Statement::Modify(modify) => {
            (modify.returning_query()?, modify::modify_target(session, modify)?)
        }
        _ => return Ok(Told::Now(None)),
    };
    if has_parameters(&query)? {
        return Ok(Told::Late);
    }
    let returned = Some((query, RecordBatch::new_empty(schema.arrow())));
    Box::pin(returned_columns(session, returned, parameters)).await.map(Told::Now)
}

/// Queries that hold all parameters of a statement.
fn queries_of(session: &Session, statement: &Statement) -> Result<Vec<ast::Query>> {
    let queries = match statement {
        Statement::Query(query) => [Some(query.clone()), None, None],
        Statement::Locking(locking) => [Some(locking.query.clone()), None, None],
        Statement::Declare(declare) => [Some(declare.query.clone()), None, None],
        Statement::LockedParts(parts) => return queries_of(session, &parts.plain),
        Statement::Explain { statement, .. } => return queries_of(session, statement),
        Statement::ChangingWith(with) => {
            let parts = with.parts.iter().chain([&with.main]);
            let queries = parts.map(|part| queries_of(session, &part.statement));
            return Ok(queries.collect::<Result<Vec<_>>>()?.concat());
        }
        Statement::Insert(insert) => {
            let updated = upsert::update_query(session, insert)?;
            [insert.source.clone(), updated, insert::returning_query(insert)?]
        }
        Statement::Modify(modify) => {
            let target = modify::modify_target(session, modify)?;
            let query = modify.query(&target)?;
            let returned = (!modify.returning.is_empty()).then(|| modify.returning_query());
            [Some(query), returned.transpose()?, None]
        }
        Statement::Define(define) => match define.as_ref() {
            Define::CreateTableAs(create) => [Some(create.query.clone()), None, None],
            _ => [None, None, None],
        },
        _ => [None, None, None],
    };
    Ok(queries.into_iter().flatten().map(|query| *query).collect())
}

/// Notes in `types` those of parameters that go into columns of the statement's tables.
fn column_types(
    session: &Session,
    statement: &Statement,
    types: &mut [Option<ColumnType>],
) -> Result<()> {
    match statement {
        Statement::LockedParts(parts) => column_types(session, &parts.plain, types),
        Statement::Explain { statement, .. } => column_types(session, statement, types),
        Statement::ChangingWith(with) => {
            let mut parts = with.parts.iter().chain([&with.main]);
            parts.try_for_each(|part| column_types(session, &part.statement, types))
        }
        Statement::Insert(insert) => {
            let schema = insert::insert_target(session, insert)?;
            insert::filled_types(insert, &schema, types)?;
            upsert::assigned_types(insert, &schema, types)
        }
        Statement::Modify(modify) => {
            let schema = modify::modify_target(session, modify)?;
            modify::assigned_types(modify.assignments(), &schema, types)
        }
        _ => Ok(()),
    }
}
