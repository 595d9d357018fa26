//! Names without a schema when the session's `search_path` leaves `public` out: existing objects are not found, and new
//! ones need a schema.

use cleave_catalog::error::{Error, Fault, Result};
use cleave_sql::statement::catalog_tables::is_catalog_table;
use cleave_sql::statement::parse::names_without_schema;

use super::{Outcome, Session};

/// Fails if the statement `text` names something that its search path does not find, before any of it is done. Returns
/// the outcome of a DROP … IF EXISTS of such a name.
///
/// # Errors
/// [`Error::UnknownName`] for a name, [`Fault::NoSchema`] where something would be made.
pub(super) fn check_path(session: &Session, text: &str) -> Result<Option<Outcome>> {
    if session.in_force().search_path.has_public() {
        return Ok(None);
    }
    let found = names_without_schema(text);
    let state = session.names();
    let is_own = |name: &str| {
        let table = state.table(name).map(|table| table.schema.table_id);
        let id = table.or_else(|| state.view(name).map(|view| view.schema.table_id));
        let id = id.or_else(|| state.sequences.get(name).map(|sequence| sequence.id));
        id.is_some_and(|id| session.defined().is_temporary(id))
    };
    let mut missing = found
        .names
        .iter()
        .filter(|(_, name, _)| !is_catalog_table(name) && !is_own(name))
        .peekable();
    if missing.peek().is_some()
        && missing.clone().count() == found.names.len()
        && let Some(tag) = found.drops_if_exists
    {
        return Ok(Some(Outcome::done(tag)));
    }
    if let Some((kind, name, position)) = missing.next() {
        let known = state.table(name).map(|_| format!("public.{name}"));
        return Err(match known {
            Some(known) => Error::UnknownName {
                kind: *kind,
                name: name.clone(),
                of: None,
                suggestion: Some(known),
                position: None,
            },
            None => Error::unknown(*kind, name, []),
        }
        .at(*position));
    }
    if found.creates {
        return Err(Error::Invalid {
            message: "no schema has been selected to create in".to_owned(),
            fault: Fault::NoSchema,
            position: None,
        });
    }
    Ok(None)
}
