//! Errors for a column of a table that a query does not read, or has under an alias: DataFusion reports a missing
//! column, PostgreSQL a missing FROM entry.
//!
//! Source: PostgreSQL, `parser/parse_relation.c`, `errorMissingRTE`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visitor};

use cleave_catalog::error::{Error, Fault, NameKind};
use cleave_sql::statement::names::{NamedTables, fold};
use cleave_sql::visiting::visit;

/// `error`, which binding `query` gave, or what it comes from: the table of a column that is not in it.
pub(super) fn named_table(error: Error, query: &ast::Query) -> Error {
    let mut tables = NamedTables::default();
    let _: ControlFlow<()> = visit(query, &mut tables);
    let table = match &error {
        Error::UnknownName { kind: NameKind::Column, name, of: None, .. } => {
            let Some((table, _)) = name.rsplit_once('.') else { return error };
            table.rsplit('.').next().unwrap_or(table).to_owned()
        }
        // With GROUP BY DataFusion reports it as missing among the groups.
        Error::Query(_) if error.sqlstate() == "42803" => {
            let Some(table) = ordered_by(query, &tables) else { return error };
            table
        }
        _ => return error,
    };
    let table = table.as_str();
    if tables.called.contains(table) {
        return error;
    }
    let message = match tables.hidden.get(table) {
        Some(alias) => format!(
            "invalid reference to FROM-clause entry for table \"{table}\"; perhaps \"{alias}\" is meant"
        ),
        None => format!("missing FROM-clause entry for table \"{table}\""),
    };
    Error::Invalid { message, fault: Fault::MissingTable, position: error.position() }
}

/// A table that ORDER BY of `query` names a column of, and that none of `tables` is.
fn ordered_by(query: &ast::Query, tables: &NamedTables) -> Option<String> {
    struct Names<'a>(&'a NamedTables);
    impl Visitor for Names<'_> {
        type Break = String;

        fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<String> {
            let ast::Expr::CompoundIdentifier(parts) = expression else {
                return ControlFlow::Continue(());
            };
            let [.., table, _] = parts.as_slice() else { return ControlFlow::Continue(()) };
            let table = fold(table);
            match self.0.called.contains(&table) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(table),
            }
        }
    }
    visit(query.order_by.as_ref()?, &mut Names(tables)).break_value()
}
