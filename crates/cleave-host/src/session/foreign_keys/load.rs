//! Foreign keys of loaded rows, and of existing rows when a key is added: one join over all of them.

use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_engine::write::load::LoadCheck;
use cleave_query::select;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::names::in_quotes;
use cleave_sql::statement::parse::parse_query;
use cleave_txn::LockMode;
use futures::future::BoxFuture;

use super::super::Session;
use super::Reference;
use super::keys::{Columns, Target};
use crate::database::Database;
use crate::session::locking;

/// Locks the referenced tables against writers until the statement ends, since a load locks no keys.
pub(in crate::session) async fn hold_targets(session: &mut Session, table_id: u32) -> Result<()> {
    let state = session.names();
    let Some(table) = state.table_by_id(table_id) else { return Ok(()) };
    for key in &table.rules.foreign_keys {
        let target = state.table_by_id(key.target).filter(|_| !session.owns(key.target));
        let Some(target) = target else { continue };
        let mode = match key.target == table_id {
            true => LockMode::ShareRowExclusive,
            false => LockMode::Share,
        };
        locking::lock_table(session, target, mode, false).await?;
    }
    Ok(())
}

/// Refuses rows of a load that refer to no row.
pub(in crate::session) struct CheckedLoad<'a> {
    pub(in crate::session) database: &'a Arc<Database>,
    pub(in crate::session) settings: &'a Settings,
}

impl LoadCheck for CheckedLoad<'_> {
    fn check<'a>(&'a self, loaded: &'a CatalogState, table: u32) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.check_references(loaded, table))
    }
}

impl CheckedLoad<'_> {
    async fn check_references(&self, loaded: &CatalogState, table: u32) -> Result<()> {
        let Some(table) = loaded.table_by_id(table).map(Arc::clone) else { return Ok(()) };
        if table.rules.foreign_keys.is_empty() {
            return Ok(());
        }
        let view = ReadView::of_state(Arc::new(loaded.clone()));
        for reference in Reference::all_of(loaded, &table)? {
            if !reference.key.not_valid {
                check_all(self.database, self.settings, &view, &reference).await?;
            }
        }
        Ok(())
    }
}

/// Refuses rows that break one foreign key, in what `view` has.
///
/// # Errors
/// [`Error::Violation`]; those of a query.
pub(in crate::session) async fn check_all(
    database: &Arc<Database>,
    settings: &Settings,
    view: &ReadView,
    reference: &Reference,
) -> Result<()> {
    let (child, parent) = (&reference.child.schema, &reference.parent.schema);
    for schema in [child, parent] {
        if view.state.table(&schema.name).map(|table| table.schema.table_id)
            != Some(schema.table_id)
        {
            return Err(hidden(&schema.name));
        }
    }
    for text in broken(reference) {
        let query = parse_query(text)?;
        let parameters = Parameters::default();
        let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(view) };
        let mut running = Box::pin(select::run_query(database, settings, asked)).await?;
        while let Some(batch) = running.next().await? {
            let rows = Columns { ids: &reference.key.columns, rows: &batch };
            if let Some(target) = reference.targets(rows)?.into_iter().next() {
                return Err(match target {
                    Target::Mixed | Target::Nothing => reference.mixed(),
                    Target::Nowhere(values) | Target::Key(_, values) => reference.absent(&values),
                });
            }
        }
    }
    Ok(())
}

/// The queries for a row that breaks the foreign key.
fn broken(reference: &Reference) -> Vec<String> {
    let name = |table: &TableState, id: u32| {
        let column = table.schema.column_by_id(id);
        in_quotes(column.map_or("", |column| &column.name))
    };
    let key = &reference.key;
    let own = key.columns.iter().map(|id| name(&reference.child, *id));
    let other = key.target_columns.iter().map(|id| name(&reference.parent, *id));
    let pairs: Vec<(String, String)> = own.zip(other).collect();
    let joined = |text: fn(&(String, String)) -> String, by: &str| {
        pairs.iter().map(text).collect::<Vec<_>>().join(by)
    };
    let listed = joined(|(own, _)| format!("c.{own}"), ", ");
    let equal = joined(|(own, other)| format!("c.{own} = p.{other}"), " AND ");
    let known = joined(|(own, _)| format!("c.{own} IS NOT NULL"), " AND ");
    let child = in_quotes(&reference.child.schema.name);
    let parent = in_quotes(&reference.parent.schema.name);
    let select = format!("SELECT {listed} FROM {child} AS c WHERE {known}");
    let absent = format!("NOT EXISTS (SELECT 1 FROM {parent} AS p WHERE {equal})");
    let mut queries = vec![format!("{select} AND {absent} LIMIT 1")];
    if key.match_full && pairs.len() > 1 {
        let null = joined(|(own, _)| format!("c.{own} IS NULL"), " AND ");
        let from = format!("SELECT {listed} FROM {child} AS c");
        queries.push(format!("{from} WHERE NOT (({known}) OR ({null})) LIMIT 1"));
    }
    queries
}

/// The error of a check on a table that a temporary one hides.
pub(super) fn hidden(name: &str) -> Error {
    Error::Unsupported {
        what: format!("a foreign key of table \"{name}\" while a temporary table hides it"),
        hint: Some("drop the temporary table first".to_owned()),
        position: None,
    }
}
