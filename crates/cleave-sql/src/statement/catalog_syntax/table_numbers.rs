//! `tableoid` of PostgreSQL's catalog tables: a constant number per table, which replaces the column.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, JoinOperator, TableFactor, Value, VisitorMut,
};

use super::{catalog_table, null};
use crate::statement::catalog_tables::numbers::number_of_catalog;
use crate::statement::catalog_tables::{CATALOG_SCHEMA, columns};
use crate::statement::names::fold;
use crate::visiting::visit_mut;

const COLUMN: &str = "tableoid";

/// A table in FROM.
struct Named {
    /// Its name or alias there.
    name: Ident,
    number: i64,
    /// A column that is NULL only if a join has found no row; None: there is always a row.
    present: Option<String>,
}

/// Replaces `tableoid` in `select` by the numbers of its tables.
pub(super) fn lower_table_numbers(select: &mut ast::Select) {
    let mut tables = Vec::new();
    let mut count = 0;
    for from in &select.from {
        let keeps = from.joins.iter().all(|join| keeps_left(&join.join_operator));
        count += 1 + from.joins.len();
        tables.extend(named(&from.relation, keeps));
        tables.extend(from.joins.iter().filter_map(|join| named(&join.relation, false)));
    }
    if tables.is_empty() {
        return;
    }
    let mut lower = Lower { tables, is_alone: count == 1, depth: 0 };
    let flow = visit_mut(select, &mut lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

fn keeps_left(operator: &JoinOperator) -> bool {
    use JoinOperator as Op;
    matches!(
        operator,
        Op::Join(_) | Op::Inner(_) | Op::CrossJoin(_) | Op::Left(_) | Op::LeftOuter(_)
    )
}

fn named(factor: &TableFactor, is_kept: bool) -> Option<Named> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let table = catalog_table(name)?;
    let number = number_of_catalog(&table)?;
    let present = match is_kept {
        true => None,
        false => columns(CATALOG_SCHEMA, &table)?.into_iter().next(),
    };
    let name = match alias {
        Some(alias) => alias.name.clone(),
        None => Ident::new(table),
    };
    Some(Named { name, number, present })
}

struct Lower {
    tables: Vec<Named>,
    /// It is the only table in FROM, so a column without a table is its own.
    is_alone: bool,
    /// Depth of queries around the place of the visit, within the SELECT.
    depth: usize,
}

impl VisitorMut for Lower {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let found = match &*expression {
            Expr::Identifier(column) if fold(column) == COLUMN => {
                self.tables.first().filter(|_| self.is_alone && self.depth == 0)
            }
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] if fold(column) == COLUMN => {
                    self.tables.iter().find(|known| fold(&known.name) == fold(table))
                }
                _ => None,
            },
            _ => None,
        };
        if let Some(found) = found {
            *expression = found.written();
        }
        ControlFlow::Continue(())
    }
}

impl Named {
    fn written(&self) -> Expr {
        let number = Expr::value(Value::Number(self.number.to_string(), false));
        let Some(present) = &self.present else { return number };
        let column = vec![self.name.clone(), Ident::new(present.as_str())];
        let column = Box::new(Expr::CompoundIdentifier(column));
        Expr::Case {
            case_token: ast::helpers::attached_token::AttachedToken::empty(),
            end_token: ast::helpers::attached_token::AttachedToken::empty(),
            operand: None,
            conditions: vec![ast::CaseWhen { condition: Expr::IsNotNull(column), result: number }],
            else_result: Some(Box::new(null())),
        }
    }
}
