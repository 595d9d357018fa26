//! Short queries that statements are made of: a table or a value in, a query out.

use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Result};
use cleave_sql::statement::names::in_quotes;
use cleave_sql::statement::parse::parse_query;
use cleave_sql::visiting::visit;
use datafusion::sql::sqlparser::ast;

/// `SELECT columns FROM table`, or `SELECT function(columns) FROM table`.
pub fn table_query(
    table: &str,
    columns: &[&str],
    function: Option<&str>,
) -> Result<Box<ast::Query>> {
    let list = columns.iter().map(|column| in_quotes(column)).collect::<Vec<_>>().join(", ");
    let list = function.map_or(list.clone(), |function| format!("{function}({list})"));
    parse_query(format!("SELECT {list} FROM {}", in_quotes(table)))
}

/// `SELECT value`, of a value that needs no table.
pub fn value_query(value: &ast::Expr) -> Result<Box<ast::Query>> {
    let has_query: ControlFlow<()> = visit_query(value);
    if has_query.is_break() {
        return Err(Error::unsupported("a subquery among the values of EXECUTE"));
    }
    parse_query(format!("SELECT {value}"))
}

/// Stops at the first query within `value`.
fn visit_query(value: &ast::Expr) -> ControlFlow<()> {
    struct Queries;
    impl ast::Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    visit(value, &mut Queries)
}
