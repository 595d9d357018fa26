//! Gives casts in grouped queries names of their own.
//!
//! DataFusion names `CAST(x AS t)` as `x`. A group by `x` and `x::text`, or `sum(x)` beside `sum(x::numeric)`, would
//! have two columns of one name, which it refuses. While such a query is planned, the operand of each cast is wrapped:
//!
//! ```text
//!   CAST(x AS t)  ─▶  CAST(first_of(x, 't') AS t)  ─▶ planned ─▶  CAST(x AS t), as a column of the first name
//! ```
//!
//! So it is with lists that are unnested beside each other, of which DataFusion would make one column: there, casts of
//! constants have names too.
//!
//! [`TypedLiterals`](super::TypedLiterals) removes the wrapping, before anything asks what the expression is.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Visitor};

use super::functions::FIRST_OF;
use crate::statement::catalog_syntax::call;
use crate::visiting::{visit, visit_expressions_mut};

/// Wraps the operands of casts in `query` if it groups, orders by columns of a table, or casts within the
/// arguments of a function.
pub(super) fn name_casts(query: &mut ast::Query) {
    let mut search = Search { in_call: 0, unnested: 0, casts: false, groups: false };
    if visit(query, &mut search).is_continue() {
        return;
    }
    let flow: ControlFlow<()> = visit_expressions_mut(query, |expression| {
        match expression {
            Expr::Cast { expr, data_type, .. } if names_column(expr) => name_cast(expr, data_type),
            Expr::Function(function) => {
                if let Some(Expr::Cast { expr, data_type, .. }) = unnested(function)
                    && !names_column(expr)
                {
                    name_cast(expr, data_type);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

fn name_cast(operand: &mut Expr, data_type: &ast::DataType) {
    let own = std::mem::replace(operand, Expr::value(ast::Value::Null));
    let name = Expr::value(ast::Value::SingleQuotedString(data_type.to_string()));
    *operand = call(FIRST_OF, vec![own, name]);
}

fn is_unnest(function: &ast::Function) -> bool {
    matches!(function.name.0.as_slice(), [ast::ObjectNamePart::Identifier(name)]
        if name.value.eq_ignore_ascii_case("unnest"))
}

/// The list that the function unnests.
fn unnested(function: &mut ast::Function) -> Option<&mut Expr> {
    if !is_unnest(function) {
        return None;
    }
    let ast::FunctionArguments::List(list) = &mut function.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(list))] = list.args.as_mut_slice()
    else {
        return None;
    };
    let mut list = list;
    while let Expr::Nested(inner) = list {
        list = inner;
    }
    Some(list)
}

/// Finds a cast in a query that has groups, one within a function's arguments, or lists unnested beside each other.
struct Search {
    in_call: usize,
    unnested: usize,
    casts: bool,
    groups: bool,
}

impl Visitor for Search {
    type Break = ();

    /// A key that is found in the rows below the select list stands beside its casts for a while.
    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let order = query.order_by.as_ref().map(|order| &order.kind);
        if let Some(ast::OrderByKind::Expressions(keys)) = order {
            self.groups |= keys.iter().any(|key| matches!(key.expr, Expr::CompoundIdentifier(_)));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<()> {
        self.groups |=
            !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                self.in_call += 1;
                self.unnested += usize::from(is_unnest(function));
                if self.unnested > 1 {
                    return ControlFlow::Break(());
                }
            }
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
