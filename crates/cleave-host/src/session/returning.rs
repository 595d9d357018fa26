//! RETURNING by a cached plan over the changed rows. The plan is kept with a prepared statement, or else by the
//! session, for all statements with the same RETURNING list on the same table.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_query::range_path;
use cleave_query::range_path::Kept;
use cleave_query::range_path::template::{are_plain, expanded, with_numbers};
use cleave_query::select::ReadView;
use cleave_sql::statement::modify::{TARGET, over_target};
use cleave_sql::statement::parse::refuse_in_query;
use cleave_sql::statement::{Insert, Parameters, Statement};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast;

use super::lifted::StatementCache;
use super::{Outcome, Session, modify};
use crate::database::Database;

/// The session's cached plans: by table, the statement's name for it, and the list.
pub(super) type Returned = StatementCache<(String, ast::Ident, Vec<ast::SelectItem>), Returning>;

/// A RETURNING list, planned once.
#[derive(Debug)]
pub(super) struct Returning {
    schema: Arc<TableSchema>,
    query: Box<ast::Query>,
    columns: SchemaRef,
    kept: Kept,
}

impl Returning {
    /// The cached plan of RETURNING for a statement that calls the table `name`; None: no RETURNING, or it is planned
    /// each time.
    pub(super) fn of(
        schema: &Arc<TableSchema>,
        name: &ast::Ident,
        items: &[ast::SelectItem],
    ) -> Option<Self> {
        if items.is_empty() || !are_plain(items) {
            return None;
        }
        let query = over_target(name, expanded(items, schema)?, Vec::new(), None).ok()?;
        refuse_in_query(&query).ok()?;
        let (schema, columns) = (Arc::clone(schema), with_numbers(schema));
        Some(Self { schema, query, columns, kept: Kept::default() })
    }
}

/// Outside of a block, begins one for `statement` alone if it has RETURNING, so that its change is undone if RETURNING
/// fails. Returns whether it did.
pub(super) fn begin_returning(session: &mut Session, statement: &Statement) -> bool {
    if session.block.is_none() && has_returning(session, statement) {
        session.begin_implicit();
        session.returns_alone = true;
    }
    session.returns_alone
}

/// Commits what [`begin_returning`] began; if the statement failed, it is undone by now.
pub(super) async fn end_returning<T>(
    session: &mut Session,
    is_own: bool,
    outcome: Result<T>,
) -> Result<T> {
    if is_own && outcome.is_ok() {
        session.returns_alone = false;
        session.end_implicit().await?;
    }
    outcome
}

fn has_returning(session: &Session, statement: &Statement) -> bool {
    let own = statement.properties();
    let prepared = own.runs.and_then(|execute| session.prepared.statement(&execute.name));
    own.returns_changes || prepared.is_some_and(|prepared| has_returning(session, prepared))
}

/// The result of `returning` over `rows`; None: that needs a plan.
pub(super) async fn kept_returned(
    database: &Arc<Database>,
    settings: &Settings,
    returning: &Returning,
    rows: &RecordBatch,
    parameters: &Parameters,
) -> Result<Option<Outcome>> {
    let types = range_path::types(parameters);
    let context = (&**database.queries(), settings);
    let slot = (TARGET, &returning.columns);
    let Some(kept) = returning.kept.plan(context, &returning.query, slot, types).await else {
        return Ok(None);
    };
    let (wanted, _) = kept.input();
    let own = wanted.iter().filter_map(|place| rows.columns().get(*place).map(Arc::clone));
    let input = (own.collect(), rows.num_rows(), rows.num_columns());
    let rows = kept.run(vec![range_path::input(&kept, input, parameters)?]).await?;
    Ok(Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] }))
}

/// The outcome of an INSERT that has inserted or updated `rows`; its subqueries read `view`, and `query` is that of its
/// RETURNING list, if it has one.
pub(super) async fn inserted(
    session: &mut Session,
    insert: &Insert,
    (schema, rows): (&Arc<TableSchema>, &RecordBatch),
    query: Option<Box<ast::Query>>,
    (parameters, view): (&Parameters, Option<&ReadView>),
) -> Result<Outcome> {
    let count = rows.num_rows();
    let Some(query) = query else { return Ok(Outcome::done(format!("INSERT 0 {count}"))) };
    let name = insert.target_name();
    let list = (schema.name.clone(), name, insert.returning.clone());
    let returning = session.returned.get_or_make(
        &list,
        |known| Arc::ptr_eq(&known.schema, schema),
        || Returning::of(schema, &list.1, &list.2).map(Arc::new),
    );
    if let Some(returning) = returning
        && let Some(outcome) =
            kept_returned(&session.database, session.in_force(), &returning, rows, parameters)
                .await?
    {
        return Ok(outcome);
    }
    modify::outcome(
        &session.database,
        session.in_force(),
        ("INSERT 0", count),
        Some((query, rows)),
        parameters,
        view,
    )
    .await
}
