//! Which queries are planned in place: those of a few tables, which take about a millisecond. All others are planned on
//! a thread of their own, which costs waking it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self};

use cleave_catalog::catalog::CatalogState;
use cleave_sql::visiting::visit;

/// Tables that such a query names at most: their orders are few.
const TABLE_COUNT_MAX: usize = 4;
/// Expressions that it has at most, with all that they are made of.
const EXPRESSION_COUNT_MAX: usize = 200;

/// Whether `query` is one, over the tables of `state`: it has no query within, and names no view.
pub(super) fn is_small(query: &ast::Query, state: &CatalogState) -> bool {
    let mut looked = Looked { state, queries: 0, tables: 0, expressions: 0 };
    visit(query, &mut looked).is_continue()
}

struct Looked<'a> {
    state: &'a CatalogState,
    queries: usize,
    tables: usize,
    expressions: usize,
}

impl Looked<'_> {
    fn go_on(is_small: bool) -> ControlFlow<()> {
        match is_small {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

impl ast::Visitor for Looked<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        let is_plain = matches!(*query.body, ast::SetExpr::Select(_)) && query.with.is_none();
        Self::go_on(is_plain && self.queries == 1)
    }

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        self.tables += 1;
        let table = name.0.last().and_then(|part| part.as_ident());
        let is_view = table.is_some_and(|table| self.state.view(&table.value).is_some());
        Self::go_on(self.tables <= TABLE_COUNT_MAX && !is_view)
    }

    fn pre_visit_expr(&mut self, _expression: &ast::Expr) -> ControlFlow<()> {
        self.expressions += 1;
        Self::go_on(self.expressions <= EXPRESSION_COUNT_MAX)
    }
}
