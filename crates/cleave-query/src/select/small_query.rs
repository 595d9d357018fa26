//! Which queries are small: in themselves, or in what they read.
//!
//! - Queries of a few tables, whose planning takes a millisecond or two, are planned in place. All others are planned
//!   on a thread of their own, which costs waking it, and freeing there what was made here.
//! - Queries of a few rows run in one partition. Exchanges between partitions, and the tasks that they need, cost more
//!   than all other work on so few rows: they are a third of the processor's time for a join of 6,000 rows
//!   (`docs/design/sql-and-planning.md`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast;

use cleave_catalog::catalog::CatalogState;
use cleave_sql::statement::files::is_file;
use cleave_sql::statement::names::fold;
use cleave_sql::visiting::visit;

use super::statement_context::StatementContext;

/// Tables that such a query names at most: their orders are few.
const TABLE_COUNT_MAX: usize = 4;
/// Queries that it has at most, with itself: those in parentheses, those of WITH, and branches of set operations. What
/// a name of WITH stands for is planned each time that it is used, but names are tables, so they cannot multiply.
const QUERY_COUNT_MAX: usize = 6;
/// Expressions that it has at most, with all that they are made of.
const EXPRESSION_COUNT_MAX: usize = 200;
/// Bytes of a constant of it.
const CONSTANT_BYTES_MAX: usize = 4096;
/// Functions that it does not call: they make long values of short ones.
const MAKES_LONG: [&str; 7] =
    ["repeat", "lpad", "rpad", "array_repeat", "array_fill", "range", "generate_series"];
/// Rows of all tables that a query of few rows reads.
const ROW_COUNT_MAX: u64 = 10_000;
/// Tables that it names: the more, the more rows their joins may have.
const READ_TABLE_COUNT_MAX: usize = 8;

/// Whether `query` is one, over the tables of `state`: it is short, and names no view.
pub(super) fn is_small(query: &ast::Query, state: &CatalogState) -> bool {
    let mut looked = Looked { state, queries: 0, tables: 0, expressions: 0 };
    visit(query, &mut looked).is_continue()
}

/// Whether `query` reads at most [`ROW_COUNT_MAX`] rows of tables, and no others that could be many.
pub(super) fn reads_few_rows(query: &ast::Query, context: &StatementContext) -> bool {
    visit(query, &mut Read { context, tables: 0, rows: 0 }).is_continue()
}

struct Read<'a> {
    context: &'a StatementContext,
    tables: usize,
    rows: u64,
}

impl ast::Visitor for Read<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        go_on(!query.with.as_ref().is_some_and(|with| with.recursive))
    }

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        // A function may make any number of rows.
        let is_plain = match factor {
            ast::TableFactor::Table { args, .. } => args.is_none(),
            ast::TableFactor::Derived { .. } | ast::TableFactor::NestedJoin { .. } => true,
            _ => false,
        };
        go_on(is_plain)
    }

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        let table = name.0.last().and_then(|part| part.as_ident());
        let is_alone = name.0.len() == 1;
        let Some(name) = table.map(fold) else { return ControlFlow::Break(()) };
        // A view stands for any number of tables. What is neither is a query of WITH, or a system table.
        if self.context.state().view(&name).is_some() {
            return ControlFlow::Break(());
        }
        // Nor is it known how many rows a table from outside the database has.
        if is_alone && self.context.outside_table(&name).is_some() {
            return ControlFlow::Break(());
        }
        let rows = self.context.table(&name).map_or(0, |table| table.row_count());
        self.rows = self.rows.saturating_add(rows);
        self.tables += 1;
        go_on(self.tables <= READ_TABLE_COUNT_MAX && self.rows <= ROW_COUNT_MAX)
    }
}

fn go_on(is_small: bool) -> ControlFlow<()> {
    match is_small {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

/// Queries that set operations make one of, as far as they count; what stands in parentheses is a query of its own. A
/// chain of them may be thousands deep.
fn branch_count(body: &ast::SetExpr) -> usize {
    let (mut count, mut waiting) = (0, vec![body]);
    while let Some(body) = waiting.pop()
        && count <= QUERY_COUNT_MAX
    {
        match body {
            ast::SetExpr::SetOperation { left, right, .. } => waiting.extend([&**left, &**right]),
            ast::SetExpr::Query(_) => {}
            _ => count += 1,
        }
    }
    count
}

/// Whether a value may be so long that functions of constants, which are computed as they are planned, take long.
fn is_long(expression: &ast::Expr) -> bool {
    match expression {
        ast::Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold);
            name.is_some_and(|name| MAKES_LONG.contains(&name.as_str()))
        }
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => text.len() > CONSTANT_BYTES_MAX,
            _ => false,
        },
        _ => false,
    }
}

struct Looked<'a> {
    state: &'a CatalogState,
    queries: usize,
    tables: usize,
    expressions: usize,
}

impl ast::Visitor for Looked<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.queries += branch_count(&query.body);
        go_on(self.queries <= QUERY_COUNT_MAX)
    }

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        self.tables += 1;
        let table = name.0.last().and_then(|part| part.as_ident());
        let is_view = table.is_some_and(|table| self.state.view(&fold(table)).is_some());
        // Their first rows are read as the query is planned.
        go_on(self.tables <= TABLE_COUNT_MAX && !is_view && !is_file(name))
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        self.expressions += 1;
        go_on(self.expressions <= EXPRESSION_COUNT_MAX && !is_long(expression))
    }
}

#[cfg(test)]
mod tests {
    use cleave_sql::statement::parse::parse_query;

    use super::*;

    fn branches(sql: impl Into<String>) -> usize {
        branch_count(&parse_query(sql.into()).unwrap().body)
    }

    #[test]
    fn branches_of_set_operations_count_and_parentheses_do_not() {
        assert_eq!(branches("SELECT 1"), 1);
        assert_eq!(branches("SELECT 1 UNION SELECT 2 EXCEPT VALUES (3)"), 3);
        // The visitor comes to the query in parentheses by itself.
        assert_eq!(branches("SELECT 1 UNION (SELECT 2 EXCEPT SELECT 3)"), 1);
        assert_eq!(branches("((SELECT 1))"), 0);
    }

    #[test]
    fn a_long_chain_is_not_followed_to_its_end() {
        let chain = vec!["SELECT 1"; 200].join(" UNION ALL ");
        let count = branches(chain);
        assert!((QUERY_COUNT_MAX + 1..=200).contains(&count), "{count}");
    }
}
