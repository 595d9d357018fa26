//! CHECK of CREATE TABLE: what was written in, with the columns that it names, out.

use std::ops::ControlFlow;

use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast::{self, Spanned, Visit, Visitor};

use crate::error::{Error, Position, Result};
use crate::statement::names::{fold, position_of};

/// CHECK, as a statement has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenCheck {
    /// The name, where one was given.
    pub name: Option<String>,
    /// SQL text of the expression.
    pub expression: String,
    /// Ids of the columns that it names.
    pub columns: Vec<u32>,
    /// Where it stands.
    pub position: Option<Position>,
}

/// CHECK of a column or a table, before all columns are known.
pub(super) struct WrittenCheck {
    name: Option<String>,
    expression: ast::Expr,
    position: Option<Position>,
}

/// Reads one.
///
/// # Errors
/// [`Error::Unsupported`] for what no check can have.
pub(super) fn check(
    name: Option<String>,
    constraint: &ast::CheckConstraint,
    position: Option<Position>,
) -> Result<WrittenCheck> {
    let position = position_of(constraint.expr.span().start).or(position);
    let refused = |what: &str| Err(Error::unsupported(what).at(position));
    if constraint.enforced == Some(false) {
        return refused("CHECK ... NOT ENFORCED");
    }
    let mut expression = (*constraint.expr).clone();
    while let ast::Expr::Nested(inner) = expression {
        expression = *inner;
    }
    if Visit::visit(&expression, &mut Queries).is_break() {
        return refused("a subquery in a check constraint");
    }
    let name = name.or_else(|| constraint.name.as_ref().map(fold));
    Ok(WrittenCheck { name, expression, position })
}

/// `written` for the table that `schema` describes.
pub(super) fn given(written: Vec<WrittenCheck>, schema: &TableSchema) -> Vec<GivenCheck> {
    let given = written.into_iter().map(|check| {
        let mut mentioned = Mentioned { schema, columns: Vec::new() };
        let flow = Visit::visit(&check.expression, &mut mentioned);
        debug_assert!(flow.is_continue(), "nothing stops the visit");
        GivenCheck {
            name: check.name,
            expression: check.expression.to_string(),
            columns: mentioned.columns,
            position: check.position,
        }
    });
    given.collect()
}

/// Stops at the first subquery.
struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// The columns of a table that an expression names.
struct Mentioned<'a> {
    schema: &'a TableSchema,
    columns: Vec<u32>,
}

impl Visitor for Mentioned<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        let name = match expression {
            ast::Expr::Identifier(name) => Some(name),
            ast::Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some(column) = name.and_then(|name| self.schema.column(&fold(name)))
            && !self.columns.contains(&column.id)
        {
            self.columns.push(column.id);
        }
        ControlFlow::Continue(())
    }
}
