//! A column of a table that a query does not read, or calls otherwise: what the engine takes for a column that is not there.
//!
//! Source: PostgreSQL, `parser/parse_relation.c`, `errorMissingRTE`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};

use crate::error::{Error, Fault, NameKind};
use crate::statement::names::{fold, name_and_alias};

/// `error`, which binding `query` gave, or what it comes from: the table of a column that is not in it.
pub(super) fn named_table(error: Error, query: &ast::Query) -> Error {
    let Error::UnknownName { kind: NameKind::Column, name, of: None, .. } = &error else {
        return error;
    };
    let Some((table, _)) = name.rsplit_once('.') else { return error };
    let table = table.rsplit('.').next().unwrap_or(table);
    let mut tables = Tables::default();
    let _: ControlFlow<()> = query.visit(&mut tables);
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
