//! Finds where in a query an operator stands that does not exist for its operand types.
//!
//! The parser keeps the places of operands, and of operators none: an operator stands behind its left operand.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Spanned, Visitor};
use datafusion::sql::sqlparser::tokenizer::Location;

use cleave_catalog::error::{NoOperator, Position};
use cleave_sql::statement::names::{fold, position_of};
use cleave_sql::visiting::visit;

/// The place of the first operator of `query` that may be `wanted`.
pub(super) fn operator_in(query: &ast::Query, wanted: &NoOperator) -> Option<Position> {
    let mut search = Search { wanted, found: None, loosely: None };
    let _: ControlFlow<()> = visit(query, &mut search);
    search.found.or(search.loosely).and_then(position_of)
}

struct Search<'a> {
    wanted: &'a NoOperator,
    /// The first with the same operands.
    found: Option<Location>,
    /// The first with the same operator.
    loosely: Option<Location>,
}

impl Search<'_> {
    fn note(&mut self, operator: &str, left: &Expr, right: &Expr) {
        if operator != self.wanted.operator {
            return;
        }
        let Some(place) = between(left, operator, right) else { return };
        let [one, other] = &self.wanted.operands;
        if is_it(left, one.as_deref()) && is_it(right, other.as_deref()) {
            self.found = self.found.or(Some(place));
        }
        self.loosely = self.loosely.or(Some(place));
    }
}

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::BinaryOp { left, op, right } => self.note(&op.to_string(), left, right),
            Expr::InList { expr, list, .. } => {
                list.iter().for_each(|item| self.note("=", expr, item));
            }
            Expr::InSubquery { expr, .. } => self.note("=", expr, expr),
            Expr::Between { expr, low, high, .. } => {
                self.note(">=", expr, low);
                self.note("<=", expr, high);
            }
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.note("=", left, right);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether an operand in the text may be the one that has the name or value `wanted`.
fn is_it(operand: &Expr, wanted: Option<&str>) -> bool {
    let written = match operand {
        Expr::Nested(inner) => return is_it(inner, wanted),
        Expr::Identifier(name) => Some(fold(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(fold),
        Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => Some(digits.clone()),
            value => value.clone().into_string(),
        },
        _ => None,
    };
    written.as_deref() == wanted
}

/// Behind `left`, and before `right` where the end of `left` is not told.
fn between(left: &Expr, operator: &str, right: &Expr) -> Option<Location> {
    let (end, start) = (left.span().end, right.span().start);
    if end.line == 0 {
        return None;
    }
    let length = u64::try_from(operator.len()).unwrap_or(1);
    let is_told =
        matches!(left, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_));
    let is_close = start.line == end.line && start.column == end.column.saturating_add(length);
    let column = match is_close {
        true => end.column,
        // A parenthesis may stand between.
        false if !is_told && start.line == end.line => {
            start.column.saturating_sub(length.saturating_add(1))
        }
        false => end.column.saturating_add(1),
    };
    Some(Location { line: end.line, column })
}
