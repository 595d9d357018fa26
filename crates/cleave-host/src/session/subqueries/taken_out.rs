//! Decides which subqueries are taken out of a statement: those that are values, `EXISTS`, and those of `IN` that every
//! row of the result must satisfy.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr};

use cleave_sql::statement::modify::{Action, Modify};
use cleave_sql::visiting::visit_mut;

/// The kind of result that a subquery gives to the outer statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Gives {
    /// The value of its row, or NULL.
    Value,
    /// The values of its rows.
    List,
    /// Whether it has a row.
    Existence,
}

/// The subqueries taken out of a statement, in the order of the parameters that replace them.
#[derive(Debug)]
pub(super) struct TakenOut {
    pub(super) queries: Vec<(Gives, ast::Query)>,
    /// Number of the statement's own parameters.
    own_count: usize,
}

impl TakenOut {
    /// Takes them out of `query`, which has that many parameters; None: one stays.
    pub(super) fn of_query(query: &mut ast::Query, own_count: usize) -> Option<Self> {
        let mut taken = Self { queries: Vec::new(), own_count };
        let ast::SetExpr::Select(select) = query.body.as_mut() else { return None };
        if let Some(condition) = &mut select.selection {
            taken.lists(condition);
        }
        visit_mut(query, &mut taken).is_continue().then_some(taken)
    }

    /// As [`TakenOut::of_query`]; subqueries of RETURNING stay.
    pub(super) fn of_modify(modify: &mut Modify, own_count: usize) -> Option<Self> {
        let mut taken = Self { queries: Vec::new(), own_count };
        if let Some(condition) = &mut modify.selection {
            taken.lists(condition);
            if visit_mut(condition, &mut taken).is_break() {
                return None;
            }
        }
        if let Action::Update(assignments) = &mut modify.action {
            for set in assignments {
                let Some(value) = &mut set.value else { continue };
                // A row is several values.
                if set.of_row.is_some() || visit_mut(value, &mut taken).is_break() {
                    return None;
                }
            }
        }
        Some(taken)
    }

    fn take(&mut self, gives: Gives, query: &ast::Query) -> Expr {
        self.queries.push((gives, query.clone()));
        let name = format!("${}", self.own_count + self.queries.len());
        Expr::value(ast::Value::Placeholder(name))
    }

    /// Takes out those that give a list, among conditions that must all hold: there, NULL counts as false.
    fn lists(&mut self, condition: &mut Expr) {
        let (left, query) = match condition {
            Expr::Nested(inner) => return self.lists(inner),
            Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
                self.lists(left);
                return self.lists(right);
            }
            Expr::InSubquery { expr, subquery, negated: false } => (expr, subquery),
            _ => return,
        };
        if !matches!(**left, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            return;
        }
        let list = self.take(Gives::List, query);
        *condition = Expr::AnyOp {
            left: left.clone(),
            compare_op: ast::BinaryOperator::Eq,
            right: Box::new(list),
            is_some: false,
        };
    }
}

impl ast::VisitorMut for TakenOut {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::Subquery(query) => *expression = self.take(Gives::Value, query),
            Expr::Exists { subquery, negated } => {
                let exists = self.take(Gives::Existence, subquery);
                *expression = match negated {
                    false => exists,
                    true => Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(exists) },
                };
            }
            Expr::InSubquery { .. } => return ControlFlow::Break(()),
            // A list in that place, and no value.
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } if is_query(right) => {
                return ControlFlow::Break(());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether `expression` is a query.
fn is_query(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_query(inner),
        Expr::Subquery(_) => true,
        _ => false,
    }
}
