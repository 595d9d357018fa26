//! DO UPDATE by a cached plan: over one table in memory, each of whose rows is an existing row beside the input row.
//!
//! ```text
//!  INSERT INTO t AS x … ON CONFLICT (a) DO UPDATE SET b = x.b || excluded.b WHERE x.b < $1
//!    ─▶ SELECT x.VID, x.a, x.b || x."excluded b" FROM target AS x WHERE x.b < $1
//! ```
//!
//! [`VID`] numbers the pairs. A session remembers the plans of the clauses that it has seen. A clause that names a
//! column without its table, or calls functions that are not known to be deterministic, is planned as a query over two
//! tables.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_query::range_path;
use cleave_query::range_path::Kept;
use cleave_query::range_path::template::are_plain;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::modify::{Assignment, TARGET, VID, assigned_items, over_target};
use cleave_sql::statement::names::fold;
use cleave_sql::statement::upsert::{ConflictAction, OnConflict};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast;

use super::super::lifted::StatementCache;
use crate::database::Database;
use cleave_sql::visiting::visit_mut;

/// Prefix of the names of the input row's columns.
const EXCLUDED: &str = "\u{1}excluded ";

/// The cached plans of a session, by table, the statement's name for it, SET and WHERE.
pub(in crate::session) type PairsPlans =
    StatementCache<(String, ast::Ident, Vec<Assignment>, Option<Box<ast::Expr>>), PairsPlan>;

/// See the module's description.
#[derive(Debug)]
pub(in crate::session) struct PairsPlan {
    schema: Arc<TableSchema>,
    query: Box<ast::Query>,
    pairs: SchemaRef,
    kept: Kept,
}

impl PairsPlan {
    /// The plan of SET and WHERE of a statement that calls the table `name`; None: it is planned as a query each time.
    fn of(
        schema: &Arc<TableSchema>,
        name: &ast::Ident,
        (assignments, selection): (&[Assignment], Option<&ast::Expr>),
    ) -> Option<Self> {
        let mut items = assigned_items(schema, name, assignments).ok()?;
        if let Some(selection) = selection {
            items.push(ast::SelectItem::UnnamedExpr(selection.clone()));
        }
        let mut one_table = OneTable { schema, name, target: fold(name) };
        let flow = items.iter_mut().try_for_each(|item| visit_mut(item, &mut one_table));
        if flow.is_break() || one_table.target == "excluded" || !are_plain(&items) {
            return None;
        }
        let selection = match selection.and_then(|_| items.pop()) {
            Some(ast::SelectItem::UnnamedExpr(selection)) => Some(selection),
            _ => None,
        };
        let query = over_target(name, items, Vec::new(), selection).ok()?;
        let own = schema.arrow();
        let excluded = own.fields().iter().map(|field| {
            let name = format!("{EXCLUDED}{}", field.name());
            Arc::new(Field::clone(field).with_name(name))
        });
        let number = Arc::new(Field::new(VID, DataType::UInt64, false));
        let fields = own.fields().iter().map(Arc::clone).chain(excluded).chain([number]);
        let pairs = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Some(Self { schema: Arc::clone(schema), query, pairs, kept: Kept::default() })
    }
}

/// Replaces columns of `excluded` by columns of the one table; stops at a column that may be of either.
struct OneTable<'a> {
    schema: &'a TableSchema,
    name: &'a ast::Ident,
    target: String,
}

impl ast::VisitorMut for OneTable<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
        let parts = match expression {
            ast::Expr::Identifier(_) => return ControlFlow::Break(()),
            ast::Expr::CompoundIdentifier(parts) => parts,
            _ => return ControlFlow::Continue(()),
        };
        let [table, name] = parts.as_slice() else { return ControlFlow::Break(()) };
        let (table, name) = (fold(table), fold(name));
        if table == self.target {
            return ControlFlow::Continue(());
        }
        if table != "excluded" || self.schema.column_index(&name).is_none() {
            return ControlFlow::Break(());
        }
        let name = ast::Ident::with_quote('"', format!("{EXCLUDED}{name}"));
        *parts = vec![self.name.clone(), name];
        ControlFlow::Continue(())
    }
}

/// The cached plan of `on_conflict`; None: it is planned each time.
pub(super) fn kept_pairs(
    plans: &mut PairsPlans,
    schema: &Arc<TableSchema>,
    on_conflict: &OnConflict,
    name: &ast::Ident,
) -> Option<Arc<PairsPlan>> {
    let ConflictAction::Update { assignments, selection } = &on_conflict.action else {
        return None;
    };
    let mut assignments = assignments.clone();
    assignments.iter_mut().for_each(|assignment| assignment.position = None);
    let clause = (schema.name.clone(), name.clone(), assignments, selection.clone());
    plans.get_or_make(
        &clause,
        |known| Arc::ptr_eq(&known.schema, schema),
        || PairsPlan::of(schema, name, (&clause.2, selection.as_deref())).map(Arc::new),
    )
}

/// The numbers of pairs, and the rows as `plan` makes them; None: they need the query.
pub(super) async fn made_of_pairs(
    database: &Arc<Database>,
    settings: &Settings,
    plan: &PairsPlan,
    (there, excluded): (&RecordBatch, &RecordBatch),
    parameters: &Parameters,
) -> Result<Option<RecordBatch>> {
    let types = range_path::types(parameters);
    let context = (&**database.queries(), settings);
    let slot = (TARGET, &plan.pairs);
    let Some(kept) = plan.kept.plan(context, &plan.query, slot, types).await else {
        return Ok(None);
    };
    let width = there.num_columns() + excluded.num_columns();
    let (wanted, _) = kept.input();
    let all: Vec<_> = there.columns().iter().chain(excluded.columns()).collect();
    let own = wanted.iter().filter_map(|place| all.get(*place).map(|own| Arc::clone(own)));
    let rows = (own.collect(), there.num_rows(), width);
    let input = range_path::input(&kept, rows, parameters)?;
    // The query reports what fails.
    Ok(kept.run(vec![input]).await.ok())
}
