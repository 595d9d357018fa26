//! Which statements may have a cached plan: those with the same result for the same values.

use cleave_sql::visiting::visit;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast;

use cleave_sql::statement::key_predicate::{Clauses, plain_select};
use cleave_sql::statement::parameters::any_of;

/// Functions of values that may be cached.
const FUNCTIONS: [&str; 9] =
    ["abs", "ceil", "coalesce", "floor", "length", "lower", "nullif", "round", "upper"];
/// Functions of rows that may be cached.
const AGGREGATES: [&str; 5] = ["avg", "count", "max", "min", "sum"];

/// Whether `query` has aggregates; None: it contains something that may not be cached.
pub(super) fn plain(query: &ast::Query) -> Option<bool> {
    plain_select(query, Clauses::Grouped)?;
    let mut seen = Walk { queries: 0, has_aggregates: false };
    let flow: ControlFlow<()> = visit(query, &mut seen);
    (flow.is_continue() && seen.queries == 1).then_some(seen.has_aggregates)
}

/// Whether `query` has the same result for the same rows.
pub fn is_plain(query: &ast::Query) -> bool {
    plain(query).is_some()
}

/// Whether `items` contain only what may be cached.
pub fn are_plain(items: &[ast::SelectItem]) -> bool {
    let mut seen = Walk { queries: 0, has_aggregates: false };
    let is_plain = |item: &ast::SelectItem| visit(item, &mut seen).is_continue();
    items.iter().all(is_plain) && !seen.has_aggregates && seen.queries == 0
}

struct Walk {
    queries: usize,
    has_aggregates: bool,
}

impl ast::Visitor for Walk {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        use ast::Expr;
        let may_be = match expression {
            Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::Nested(_)
            | Expr::UnaryOp { .. }
            | Expr::BinaryOp { .. }
            | Expr::Cast { .. }
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::Between { .. }
            | Expr::InList { .. }
            | Expr::Like { any: false, .. }
            | Expr::Case { .. } => true,
            Expr::AnyOp { .. } => any_of(expression).is_some(),
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let is_aggregate = AGGREGATES.contains(&name.as_str());
                self.has_aggregates |= is_aggregate;
                (is_aggregate || FUNCTIONS.contains(&name.as_str()))
                    && function.over.is_none()
                    && function.within_group.is_empty()
            }
            _ => false,
        };
        if may_be { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
