//! What RETURNING lists of the rows that a statement has changed, by a plan that is kept: with the statement where that is kept
//! itself, else by the session, for all statements that return the same of the same table.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast;

use super::lifted::Seen;
use super::{Outcome, Session};
use crate::error::Result;
use crate::range_path::template::{are_plain, expanded, with_numbers};
use crate::range_path::{self, Kept};
use crate::statement::modify::{TARGET, over_target};
use crate::statement::parse::refuse_in_query;
use crate::statement::{Insert, Parameters};

/// What a session has returned: by table, what the statement calls it, and the list.
pub(super) type Returned = Seen<(String, ast::Ident, Vec<ast::SelectItem>), Returning>;

/// What RETURNING says, planned once.
#[derive(Debug)]
pub(super) struct Returning {
    schema: Arc<TableSchema>,
    query: Box<ast::Query>,
    columns: SchemaRef,
    kept: Kept,
}

impl Returning {
    /// What a statement that calls the table `name` returns of its rows; None: nothing, or something that is planned each time.
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

impl Session {
    /// What `returning` lists of `rows`; None: that needs a plan.
    pub(super) async fn kept_returned(
        &self,
        returning: &Returning,
        rows: &RecordBatch,
        parameters: &Parameters,
    ) -> Result<Option<Outcome>> {
        let values = range_path::arrays(parameters)?;
        let types: Vec<DataType> = values.iter().map(|value| value.data_type().clone()).collect();
        let context = (&*self.database, self.in_force());
        let slot = (TARGET, &returning.columns);
        let Some(kept) = returning.kept.plan(context, &returning.query, slot, types).await else {
            return Ok(None);
        };
        let wanted = kept.wanted(0);
        let own = wanted.iter().filter_map(|place| rows.columns().get(*place).map(Arc::clone));
        let input = (own.collect(), rows.num_rows(), rows.num_columns());
        let rows = kept.run(vec![range_path::input(&kept, input, &wanted, &values)?]).await?;
        Ok(Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] }))
    }

    /// What an INSERT gives that has inserted or updated `rows`; `query` is that for what it returns, if it returns anything.
    pub(super) async fn inserted(
        &mut self,
        insert: &Insert,
        (schema, rows): (&Arc<TableSchema>, &RecordBatch),
        query: Option<Box<ast::Query>>,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        let count = rows.num_rows();
        let Some(query) = query else { return Ok(Outcome::done(format!("INSERT 0 {count}"))) };
        let name = insert.target_name();
        let list = (schema.name.clone(), name, insert.returning.clone());
        let returning = self.returned.get_or_make(
            &list,
            |known| Arc::ptr_eq(&known.schema, schema),
            || Returning::of(schema, &list.1, &list.2).map(Arc::new),
        );
        if let Some(returning) = returning
            && let Some(outcome) = self.kept_returned(&returning, rows, parameters).await?
        {
            return Ok(outcome);
        }
        self.outcome("INSERT 0", count, Some((query, rows)), parameters).await
    }
}
