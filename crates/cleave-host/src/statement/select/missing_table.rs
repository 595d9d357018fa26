//! A column of a table that a query does not read, or calls otherwise: what the engine takes for a column that is not
//! there.
//!
//! Source: PostgreSQL, `parser/parse_relation.c`, `errorMissingRTE`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};

use crate::error::{Error, Fault, NameKind};
use crate::statement::names::{fold, name_and_alias};

/// `error`, which binding `query` gave, or what it comes from: the table of a column that is not in it.
pub(super) fn named_table(error: Error, query: &ast::Query) -> Error {
    let mut tables = Tables::default();
    let _: ControlFlow<()> = query.visit(&mut tables);
    let table = match &error {
        Error::UnknownName { kind: NameKind::Column, name, of: None, .. } => {
            let Some((table, _)) = name.rsplit_once('.') else { return error };
            table.rsplit('.').next().unwrap_or(table).to_owned()
        }
        // Beside GROUP BY the engine misses it among the groups.
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
fn ordered_by(query: &ast::Query, tables: &Tables) -> Option<String> {
    struct Names<'a>(&'a Tables);
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
    query.order_by.as_ref()?.visit(&mut Names(tables)).break_value()
}

/// What `part` of a statement calls its tables, and those of queries within it.
pub(crate) fn called_in(part: &impl Visit) -> BTreeSet<String> {
    let mut tables = Tables::default();
    let _: ControlFlow<()> = part.visit(&mut tables);
    tables.called
}

/// The tables of a query and of those within it.
#[derive(Default)]
struct Tables {
    /// What they are called.
    called: BTreeSet<String>,
    /// Names of those that are called otherwise, and how.
    hidden: BTreeMap<String, String>,
}

impl Visitor for Tables {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        let Some((name, alias)) = name_and_alias(factor) else { return ControlFlow::Continue(()) };
        let name = name.and_then(|name| name.0.last()?.as_ident());
        match (name.map(fold), alias.map(|alias| fold(&alias.name))) {
            (Some(name), Some(alias)) => {
                self.hidden.insert(name, alias.clone());
                self.called.insert(alias);
            }
            (name, alias) => self.called.extend(name.or(alias)),
        }
        ControlFlow::Continue(())
    }
}
