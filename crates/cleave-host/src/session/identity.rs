//! Identity columns: decides between a statement's value and the column's own.

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::modify::Assignment;
use cleave_sql::statement::parse::Overriding;

/// Refuses values for columns that are GENERATED ALWAYS, except those that `is_default` reports, by their place in the
/// input, as DEFAULT. Under OVERRIDING USER VALUE the values of identity columns are ignored.
///
/// # Errors
/// [`Error::Invalid`].
pub(super) fn check_insert(
    (state, table): (&CatalogState, &TableState),
    overriding: Option<Overriding>,
    conform: &mut Conform,
    is_default: impl Fn(usize) -> bool,
) -> Result<()> {
    let table_id = table.schema.table_id;
    let owners = state.sequences.values().filter_map(|sequence| sequence.owner);
    let identities = owners.filter(|owner| owner.table == table_id && owner.is_identity);
    for identity in identities {
        let targets = conform.targets();
        let target = targets.iter().find(|(_, column)| column.id == identity.column);
        let Some((place, column)) = target else { continue };
        match overriding {
            Some(Overriding::System) => {}
            Some(Overriding::User) => conform.without(identity.column),
            None if table.rules.always.contains(&identity.column) && !is_default(*place) => {
                return Err(Error::Invalid {
                    message: format!(
                        "cannot insert a non-DEFAULT value into column \"{}\", which is GENERATED ALWAYS; use \
                         OVERRIDING SYSTEM VALUE to override",
                        column.name
                    ),
                    fault: Fault::GeneratedAlways,
                    position: None,
                });
            }
            None => {}
        }
    }
    Ok(())
}

/// Refuses an UPDATE of a column that is GENERATED ALWAYS to anything but DEFAULT.
///
/// # Errors
/// [`Error::Invalid`].
pub(super) fn check_update(table: &TableState, assignments: &[Assignment]) -> Result<()> {
    for assignment in assignments.iter().filter(|assignment| assignment.value.is_some()) {
        let column = table.schema.column(&assignment.column);
        if column.is_some_and(|column| table.rules.always.contains(&column.id)) {
            return Err(Error::Invalid {
                message: format!("column \"{}\" can only be updated to DEFAULT", assignment.column),
                fault: Fault::GeneratedAlways,
                position: assignment.position,
            });
        }
    }
    Ok(())
}
