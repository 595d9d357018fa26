//! ON CONFLICT of INSERT: a parsed clause in; out, its unique indexes, and the query for the rows that it updates.
//!
//! ```text
//!  INSERT INTO t AS x … ON CONFLICT (a) DO UPDATE SET b = x.b + excluded.b WHERE x.b < 9
//!    ─▶ SELECT x.VID, x.a, x.b + excluded.b, x.c FROM target AS x, excluded AS excluded
//!       WHERE x.VID = excluded.VID AND (x.b < 9)
//! ```
//!
//! Here [`VID`] numbers the pairs of an existing row and an input row; both tables are in memory.
//!
//! Source: PostgreSQL's manual, "ON CONFLICT Clause".

use crate::visiting::visit;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast;

use super::modify::{Assignment, VID, assigned_items, assignments, over_target};
use super::names::{fold, position_of, table_name};
use super::parse::refuse_in_query;

/// The name by which a query reads the input rows.
pub const EXCLUDED: &str = "\u{1}excluded";

/// `ON CONFLICT [target] action`.
#[derive(Debug, Clone, PartialEq)]
pub struct OnConflict {
    /// The keys in question; None: every unique one.
    pub target: Option<ConflictTarget>,
    /// What to do if one of them exists already.
    pub action: ConflictAction,
    /// Where the table's name stands.
    pub position: Option<Position>,
}

/// The conflict target: keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictTarget {
    /// Those of a unique index over exactly these columns, in any order.
    Columns(Vec<(String, Option<Position>)>),
    /// Those of a constraint.
    Constraint(String),
}

/// The action for a row whose key exists already.
#[derive(Debug, Clone, PartialEq)]
pub enum ConflictAction {
    /// DO NOTHING.
    Nothing,
    /// DO UPDATE of the existing row.
    Update {
        /// SET.
        assignments: Vec<Assignment>,
        /// WHERE.
        selection: Option<Box<ast::Expr>>,
    },
}

impl OnConflict {
    /// The unique indexes of `table` in the conflict target.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a column or constraint that the table does not have; [`Error::Invalid`] where no
    /// unique index is meant.
    pub fn arbiters(&self, table: &TableState) -> Result<Vec<Arc<IndexDefinition>>> {
        let schema = &table.schema;
        let unique = table.indexes.iter().filter(|index| index.unique);
        let found: Vec<Arc<IndexDefinition>> = match &self.target {
            None => return Ok(unique.cloned().collect()),
            Some(ConflictTarget::Constraint(name)) => {
                let named = table.indexes.iter().find(|index| index.name == *name);
                let Some(named) = named.filter(|index| index.constraint) else {
                    return Err(Error::Invalid {
                        message: format!(
                            "constraint \"{name}\" for table \"{}\" does not exist",
                            schema.name
                        ),
                        fault: Fault::UnknownConstraint,
                        position: self.position,
                    });
                };
                vec![Arc::clone(named)]
            }
            Some(ConflictTarget::Columns(names)) => {
                let mut wanted = Vec::with_capacity(names.len());
                for (name, position) in names {
                    let column = schema.column(name).ok_or_else(|| {
                        let known = schema.columns.iter().map(|column| column.name.as_str());
                        Error::unknown_column(&schema.name, name, known).at(*position)
                    })?;
                    wanted.push(column.id);
                }
                wanted.sort_unstable();
                wanted.dedup();
                let is_meant = |index: &&Arc<IndexDefinition>| {
                    let mut columns: Vec<_> =
                        index.columns.iter().map(|column| column.column).collect();
                    columns.sort_unstable();
                    columns == wanted
                };
                unique.filter(is_meant).cloned().collect()
            }
        };
        if found.is_empty() {
            return Err(Error::Invalid {
                message: "there is no unique or exclusion constraint matching the ON CONFLICT \
                          specification"
                    .to_owned(),
                fault: Fault::ConflictTarget,
                position: self.position,
            });
        }
        Ok(found)
    }

    /// The query for the rows updated by DO UPDATE, over pairs of rows in [`TARGET`](super::modify::TARGET) and
    /// `excluded`; None: DO NOTHING.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a column that the table does not have; what a query cannot have.
    pub fn query(
        &self,
        schema: &TableSchema,
        target: &ast::Ident,
        excluded: &str,
    ) -> Result<Option<Box<ast::Query>>> {
        let ConflictAction::Update { assignments, selection } = &self.action else {
            return Ok(None);
        };
        let column = |table: &ast::Ident| {
            let parts = [table.clone(), ast::Ident::with_quote('"', VID)];
            ast::Expr::CompoundIdentifier(parts.to_vec())
        };
        let pair = ast::Ident::with_quote('"', "excluded");
        let mut condition = equal(column(target), column(&pair));
        if let Some(selection) = selection {
            let nested = Box::new(ast::Expr::Nested(selection.clone()));
            let (left, op) = (Box::new(condition), ast::BinaryOperator::And);
            condition = ast::Expr::BinaryOp { left, op, right: nested };
        }
        let items = assigned_items(schema, target, assignments)?;
        let named = over_target(&pair, Vec::new(), Vec::new(), None)?;
        let ast::SetExpr::Select(mut named) = *named.body else {
            return Err(Error::unsupported("this statement"));
        };
        if let Some(ast::TableFactor::Table { name, .. }) =
            named.from.first_mut().map(|table| &mut table.relation)
        {
            *name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', excluded)]);
        }
        let query = over_target(target, items, named.from, Some(condition))?;
        refuse_in_query(&query)?;
        Ok(Some(query))
    }
}

fn equal(left: ast::Expr, right: ast::Expr) -> ast::Expr {
    let (left, right) = (Box::new(left), Box::new(right));
    ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right }
}

/// A parsed ON CONFLICT.
///
/// # Errors
/// [`Error::Unsupported`] for ON DUPLICATE KEY, and for subqueries in DO UPDATE; [`Error::Invalid`] for DO UPDATE
/// without a target.
pub fn on_conflict(on: ast::OnInsert, position: Option<Position>) -> Result<OnConflict> {
    let ast::OnInsert::OnConflict(clause) = on else {
        return Err(Error::Unsupported {
            what: "INSERT ... ON DUPLICATE KEY UPDATE".to_owned(),
            hint: Some("write ON CONFLICT (columns) DO UPDATE SET ...".to_owned()),
            position,
        });
    };
    let target = match clause.conflict_target {
        None => None,
        Some(ast::ConflictTarget::Columns(names)) => {
            let place = |name: &ast::Ident| (fold(name), position_of(name.span.start));
            Some(ConflictTarget::Columns(names.iter().map(place).collect()))
        }
        Some(ast::ConflictTarget::OnConstraint(name)) => {
            Some(ConflictTarget::Constraint(table_name(&name)?))
        }
    };
    let action = match clause.action {
        ast::OnConflictAction::DoNothing => ConflictAction::Nothing,
        ast::OnConflictAction::DoUpdate(_) if target.is_none() => {
            return Err(Error::Invalid {
                message: "ON CONFLICT DO UPDATE requires inference specification or constraint \
                          name, as in ON CONFLICT (id) DO UPDATE"
                    .to_owned(),
                fault: Fault::Statement,
                position,
            });
        }
        ast::OnConflictAction::DoUpdate(update) => {
            let assignments = assignments(update.assignments)?;
            let values = assignments.iter().filter_map(|assignment| assignment.value.as_ref());
            if values.chain(&update.selection).any(has_subquery) {
                return Err(Error::unsupported("a subquery in ON CONFLICT DO UPDATE").at(position));
            }
            ConflictAction::Update { assignments, selection: update.selection.map(Box::new) }
        }
    };
    Ok(OnConflict { target, action, position })
}

/// Whether `expression` contains a query.
pub fn has_subquery(expression: &ast::Expr) -> bool {
    struct Queries;
    impl ast::Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    visit(expression, &mut Queries).is_break()
}
