//! Gives casts in grouped queries names of their own.
//!
//! DataFusion names `CAST(x AS t)` as `x`. A group by `x` and `x::text`, or `sum(x)` beside `sum(x::numeric)`, would
//! have two columns of one name, which it refuses. While such a query is planned, the operand of each cast is wrapped:
//!
//! ```text
//!   CAST(x AS t)  ─▶  CAST(first_of(x, 't') AS t)  ─▶ planned ─▶  CAST(x AS t), as a column of the first name
//! ```
//!
//! [`TypedLiterals`](super::TypedLiterals) removes the wrapping, before anything asks what the expression is.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Visitor};

use super::functions::FIRST_OF;
use crate::statement::catalog_syntax::call;
use crate::visiting::{visit, visit_expressions_mut};

/// Wraps the operands of casts in `query` if it groups, or casts within the arguments of a function.
pub(super) fn name_casts(query: &mut ast::Query) {
    if visit(query, &mut Search { in_call: 0, casts: false, groups: false }).is_continue() {
        return;
    }
    let flow: ControlFlow<()> = visit_expressions_mut(query, |expression| {
        if let Expr::Cast { expr, data_type, .. } = expression
            && names_column(expr)
        {
            let operand = std::mem::replace(expr.as_mut(), Expr::value(ast::Value::Null));
            let name = Expr::value(ast::Value::SingleQuotedString(data_type.to_string()));
            **expr = call(FIRST_OF, vec![operand, name]);
        }
        ControlFlow::Continue(())
    });
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

/// Finds a cast in a query that has groups, or one within a function's arguments.
struct Search {
    in_call: usize,
    casts: bool,
    groups: bool,
}

impl Visitor for Search {
    type Break = ();

    fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<()> {
        self.groups |=
            !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(_) => self.in_call += 1,
            Expr::Cast { expr, .. } if names_column(expr) => {
                self.casts = true;
                if self.in_call > 0 {
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        if self.casts && self.groups { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Function(_)) {
            self.in_call -= 1;
        }
        ControlFlow::Continue(())
    }
}

/// Whether `expr` names a column outside of subqueries: constants are read as their type.
fn names_column(expr: &Expr) -> bool {
    struct Names {
        depth: usize,
    }
    impl Visitor for Names {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) if self.depth == 0 => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    visit(expr, &mut Names { depth: 0 }).is_break()
}
