//! Statements with locking clauses in subqueries: each subquery runs as a query that locks rows, then the statement
//! runs over their results ([`LockedParts`]).
//!
//! The statement takes its own view after the rows are locked, so it sees them as they were locked. PostgreSQL gets the
//! same result by evaluating their conditions again.

use arrow::compute::concat_batches;
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_query::point_path::PointQuery;
use cleave_query::select::QueryRequest;
use cleave_sql::statement::locked_parts::{GivenRows, LockedParts, NAMES_OTHERS, put_values};
use cleave_sql::statement::modify::{Action, Modify};
use cleave_sql::statement::{Parameters, Statement};
use datafusion::sql::sqlparser::ast;

use super::locking::Point;
use super::{Outcome, Session, block, insert, locking, modify, modify_row, serializable, started};

/// Runs such a statement, whose text is `text`. At level SERIALIZABLE, where the reads of each part are recorded until
/// the end of its transaction, it forms one transaction outside of a block.
pub(super) async fn run_locked_parts(
    session: &mut Session,
    parts: &LockedParts,
    parameters: &Parameters,
    text: &str,
) -> Result<Outcome> {
    if session.block.is_some() || !serializable::is_serializable_alone(&session.settings) {
        return Box::pin(run_parts(session, parts, parameters, text)).await;
    }
    session.begin_implicit();
    let outcome = Box::pin(run_parts(session, parts, parameters, text)).await;
    match outcome {
        Ok(outcome) => block::commit(session).await.map(|_| outcome),
        Err(error) => {
            block::rollback(session);
            Err(error)
        }
    }
}

async fn run_parts(
    session: &mut Session,
    parts: &LockedParts,
    parameters: &Parameters,
    text: &str,
) -> Result<Outcome> {
    let mut given = parameters.clone();
    for part in &parts.parts {
        let point: Point<'_> = &|state| PointQuery::detect(&part.query, state);
        let outcome = match Box::pin(locking::run(session, part, &given, (point, None))).await {
            Ok(outcome) => outcome,
            Err(error) => return Err(of_another(session, error, parts).await),
        };
        let Outcome::Rows { schema, batches } = outcome else {
            return Err(Error::unsupported("a subquery without rows"));
        };
        given.rows.push(concat_batches(&schema, &batches)?);
    }
    match &*parts.statement {
        Statement::Query(query) => {
            let mut query = query.clone();
            put_values(&mut query, &given.rows, false)?;
            locking::wait_for_tables(session, &query).await?;
            let view = session.view().await?;
            let asked = QueryRequest { query: &query, parameters: &given, view: Some(&view) };
            started::started(&session.database, session.in_force(), asked, text)
                .await?
                .collect()
                .await
        }
        Statement::Insert(insert) => {
            let mut insert = insert.clone();
            if let Some(source) = &mut insert.source {
                put_values(source, &given.rows, false)?;
            }
            insert::run(session, &insert, None, &given).await
        }
        Statement::Modify(modify) => {
            let mut modify = modify.clone();
            put_into(&mut modify, &given.rows)?;
            match Box::pin(modify_row::modify_plain(session, &modify)).await? {
                Some(outcome) => Ok(outcome),
                None => Box::pin(modify::run(session, &modify, &given)).await,
            }
        }
        Statement::Locking(locking) => {
            let mut locking = locking.clone();
            put_values(&mut locking.query, &given.rows, false)?;
            Box::pin(locking::run(session, &locking, &given, (&|_| None, None))).await
        }
        _ => Err(Error::unsupported("a locking clause in this statement")),
    }
}

/// `error` of a part; an unknown column may be one of the outer statement.
async fn of_another(session: &mut Session, error: Error, parts: &LockedParts) -> Error {
    let Error::UnknownName { kind: NameKind::Column, name, .. } = &error else { return error };
    let Ok(view) = session.view().await else { return error };
    let tables = parts.tables.iter().filter_map(|table| view.state.table(table));
    let has_column = tables.into_iter().any(|table| table.schema.column(name).is_some());
    match has_column {
        true => Error::unsupported(NAMES_OTHERS),
        false => error,
    }
}

fn put_into(modify: &mut Modify, given: &GivenRows) -> Result<()> {
    if let Action::Update(assignments) = &mut modify.action {
        let values = assignments.iter_mut().filter_map(|set| set.value.as_mut());
        values.into_iter().try_for_each(|value| put_values(value, given, false))?;
    }
    if let Some(with) = &mut modify.with {
        put_values::<ast::With>(with, given, false)?;
    }
    modify.selection.iter_mut().try_for_each(|condition| put_values(condition, given, true))?;
    put_values(&mut modify.from, given, false)?;
    put_values(&mut modify.returning, given, false)
}
