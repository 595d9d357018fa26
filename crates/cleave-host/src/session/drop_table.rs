//! DROP TABLE: removes tables from the catalog, and with CASCADE the objects that depend on them.

use std::collections::BTreeSet;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, NameKind, Result};

use super::{Outcome, Session, definitions, foreign_key_rules, indexes, views};

/// Runs DROP TABLE.
pub(super) async fn run(
    session: &mut Session,
    if_exists: bool,
    names: &[String],
    cascade: bool,
) -> Result<Outcome> {
    let referring = match cascade {
        true => foreign_key_rules::referring(&session.names(), names),
        false => Vec::new(),
    };
    let named = (names, &*referring);
    let begun = views::begin_with_dependents(session, "DROP TABLE", named, cascade, &[]);
    let (mut definition, locked) = begun.await?;
    let edit = &mut definition.edit;
    let ids = |state: &CatalogState| -> BTreeSet<u32> {
        let sound = state.tables().map(|table| table.schema.table_id);
        sound.chain(state.damaged_tables().map(|table| table.schema.table_id)).collect()
    };
    let before = ids(&edit.next);
    let mut dropped = false;
    for name in names {
        if edit.next.tables.get(name).is_some_and(|table| table.materialized.is_some()) {
            return Err(indexes::wrong_kind(name, "a table"));
        }
        if edit.drop_table(name) {
            dropped = true;
        } else if edit.next.is_name_taken(name) {
            return Err(indexes::wrong_kind(name, "a table"));
        } else if !if_exists {
            let names = edit.next.table_names();
            return Err(Error::unknown(NameKind::Table, name, names));
        }
    }
    if dropped {
        let gone = &before - &ids(&edit.next);
        views::drop_dependents(&mut edit.next, &gone, cascade)?;
        let what = format!("table \"{}\"", names.join("\", \""));
        let (next, what) = (&mut edit.next, (what.as_str(), cascade));
        foreign_key_rules::drop_references(next, (&gone, &locked), |_| true, what)?;
        definitions::end_definition(session, definition).await?;
    }
    Ok(Outcome::done("DROP TABLE"))
}
