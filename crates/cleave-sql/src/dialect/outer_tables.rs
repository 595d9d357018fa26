//! Full names for columns of outer tables in subqueries.
//!
//! `a.b` is column `b` of the nearest table `a`. In a query without a table `a` but with a column of that name,
//! DataFusion takes it for a field of this column, and does not look further. No column has the name of the catalog, so
//! a name with the catalog and the schema before it always means a table.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_catalog::identifiers::CATALOG;
use datafusion::sql::sqlparser::ast::{self, Expr, SetExpr, TableFactor, VisitorMut};

use crate::statement::names::{SCHEMA, fold, name_and_alias};
use crate::visiting::visit_mut;

/// Writes out such names everywhere in `query`.
pub(super) fn name_outer_tables(query: &mut ast::Query) {
    let flow = visit_mut(query, &mut Scopes::default());
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

/// The table names of the queries around a place, from the outermost to the innermost.
#[derive(Default)]
struct Scopes {
    tables: Vec<BTreeSet<String>>,
}

impl VisitorMut for Scopes {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let mut tables = BTreeSet::new();
        note_tables(&query.body, &mut tables);
        self.tables.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.tables.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expression
            && let [table, _] = parts.as_slice()
            && let Some((own, around)) = self.tables.split_last()
        {
            let table = fold(table);
            if !own.contains(&table) && around.iter().any(|tables| tables.contains(&table)) {
                let before = [CATALOG, SCHEMA].map(ast::Ident::new);
                parts.splice(0..0, before);
            }
        }
        ControlFlow::Continue(())
    }
}

/// The table names in `body`, except those with a schema.
pub(super) fn note_tables(body: &SetExpr, tables: &mut BTreeSet<String>) {
    match body {
        SetExpr::Select(select) => {
            for from in &select.from {
                note_factor(&from.relation, tables);
                for join in &from.joins {
                    note_factor(&join.relation, tables);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            note_tables(left, tables);
            note_tables(right, tables);
        }
        _ => {}
    }
}

fn note_factor(factor: &TableFactor, tables: &mut BTreeSet<String>) {
    if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
        note_factor(&table_with_joins.relation, tables);
        for join in &table_with_joins.joins {
            note_factor(&join.relation, tables);
        }
        return;
    }
    let Some((name, alias)) = name_and_alias(factor) else { return };
    match (alias, name.map(|name| name.0.as_slice())) {
        (Some(alias), _) => {
            tables.insert(fold(&alias.name));
        }
        (None, Some([only])) => tables.extend(only.as_ident().map(fold)),
        (None, _) => {}
    }
}
