//! Where a statement keeps the rows that it makes (`output_on`): the setting and a statement in, a placement or an
//! error out.
//!
//! `local`: the devices that make the rows write them, each its own, and none of them crosses a link. Names: a new
//! table lies there; one that is there already must. A statement that says `WITH (devices = …)` is taken at its word.

use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::{Prescribed, Settings};
use cleave_sql::statement::Statement;
use cleave_sql::statement::hint::Hint;
use cleave_sql::statement::parse::Define;
use cleave_sql::statement::placement::{DeviceShare, Placement, device_list};

use super::Session;
use super::insert_fragment::is_query;

/// The setting.
const OUTPUT_ON: &str = "output_on";

/// Whether rows are to stay on the devices that make them.
pub(super) fn is_local(settings: &Settings) -> bool {
    settings.outputs() == Prescribed::Local
}

/// The error of rows that were to stay where they are made, and cannot.
pub(super) fn not_local(why: &str) -> Error {
    Error::unsupported(format!("output_on \"local\" for {why}"))
}

/// Refuses a hint about the output of `statement`, if it keeps no rows; None: a query.
///
/// # Errors
/// [`Error::Unsupported`].
pub(super) fn check_hints(statement: Option<&Statement>, hints: &[Hint]) -> Result<()> {
    let is_asked = |hint: &Hint| hint.name.eq_ignore_ascii_case(OUTPUT_ON);
    match statement.is_some_and(keeps_rows) || !hints.iter().any(is_asked) {
        true => Ok(()),
        false => Err(Error::unsupported("output_on for a statement that keeps no rows")),
    }
}

/// Whether rows of a query go to a table by `statement`.
fn keeps_rows(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(insert) => insert.source.as_ref().is_some_and(|query| is_query(query)),
        Statement::Define(define) => {
            matches!(&**define, Define::CreateTableAs(_) | Define::CreateMaterialized(_))
        }
        // Its hints are those of the prepared statement, too.
        Statement::Execute(_) => true,
        Statement::ChangingWith(with) => keeps_rows(&with.main.statement),
        Statement::Prepare(prepare) => keeps_rows(&prepare.statement),
        Statement::Explain { statement, .. } => keeps_rows(statement),
        _ => false,
    }
}

/// Puts a new table, of which a statement says `placement`, where `settings` have the rows of a query, which `makers`
/// make; None: the host makes them. Whether they say anything.
///
/// # Errors
/// [`Error::Unsupported`] for rows that the host makes and that are to stay where they are made; those of the names.
pub(super) fn place(
    settings: &Settings,
    makers: Option<&[DeviceShare]>,
    placement: &mut Placement,
) -> Result<bool> {
    if settings.outputs() == Prescribed::Any || !placement.devices.is_empty() {
        return Ok(!placement.devices.is_empty());
    }
    placement.devices = match (settings.outputs(), makers) {
        (Prescribed::Named(names), _) => DeviceShare::of_all(device_list(names)?),
        (_, Some(makers)) => makers.to_vec(),
        (_, None) => return Err(not_local("rows that the host makes")),
    };
    Ok(true)
}

/// Refuses rows of a query for `table`, unless all of its tablets lie on the devices that the settings name for them.
///
/// # Errors
/// [`Error::Unsupported`]; those of the names.
pub(super) fn check_table(session: &Session, table: &TableState) -> Result<()> {
    let Prescribed::Named(names) = session.in_force().outputs() else { return Ok(()) };
    let mut named = Vec::new();
    for name in device_list(names)? {
        named.push(session.database.device_named(&name)?.id());
    }
    let mut others = table.tablets.iter().filter(|tablet| !named.contains(&tablet.device));
    let Some(other) = others.next() else { return Ok(()) };
    let device = session.database.attached(other.device)?;
    let (table, device) = (&table.schema.name, device.name());
    Err(Error::unsupported(format!(
        "output_on \"{names}\" for table \"{table}\", which lies on \"{device}\" too,"
    )))
}
