//! `has_table_privilege` and its like.
//!
//! Source: PostgreSQL's manual, "Access Privilege Inquiry Functions".

use cleave_catalog::catalog::rights::{FIRST, Object, Privilege};
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::identifiers::unqualified;
use cleave_sql::statement::catalog_tables::numbers::{name_of_catalog, oid_of};
use datafusion::common::ScalarValue;

use super::roles::Owned;
use super::view::{View, number};

/// What a function of privileges is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Table,
    AnyColumn,
    Column,
    Sequence,
    Schema,
    Database,
    Role,
}

/// An argument: a number of a thing, or text.
pub(super) enum Argument {
    Number(i64),
    Text(String),
}

impl Argument {
    /// None: NULL, or of a type that no such function takes.
    pub(super) fn of(value: &ScalarValue) -> Option<Self> {
        use datafusion::arrow::datatypes::DataType;
        if value.is_null() {
            return None;
        }
        if value.data_type().is_integer() {
            return match value.cast_to(&DataType::Int64).ok()? {
                ScalarValue::Int64(Some(number)) => Some(Self::Number(number)),
                _ => None,
            };
        }
        match value.cast_to(&DataType::Utf8).ok()? {
            ScalarValue::Utf8(Some(text)) => Some(Self::Text(text)),
            _ => None,
        }
    }
}

/// Whether a role has a privilege, as the arguments of a function ask; None: what they ask about is not there.
///
/// # Errors
/// [`Error::UnknownName`]; [`Error::Invalid`] for a privilege that there is not.
pub(super) fn has(view: &View, about: About, arguments: &[Argument]) -> Result<Option<bool>> {
    let without_role = if about == About::Column { 3 } else { 2 };
    let (role, rest) = match arguments {
        [role, rest @ ..] if rest.len() == without_role => (role_of(view, role)?, rest),
        rest => (Some(view.actor()), rest),
    };
    let Some(role) = role else { return Ok(None) };
    let rights = &view.state().rights;
    let (Some(what), Some(Argument::Text(asked))) = (rest.first(), rest.last()) else {
        return Ok(None);
    };
    if rest.len() != without_role {
        let message = "a function of privileges has another number of arguments".to_owned();
        return Err(Error::Invalid { message, fault: Fault::Statement, position: None });
    }
    if about == About::Role {
        let Some(of) = role_of(view, what)? else { return Ok(None) };
        let is = |word: &str| match word {
            "USAGE" => rights.is_superuser(role) || rights.inherits(role, of),
            _ => rights.is_superuser(role) || rights.is_member(role, of),
        };
        let words = asked.split(',').map(|word| word.trim().to_ascii_uppercase());
        return Ok(Some(
            words.into_iter().any(|word| is(word.split_whitespace().next().unwrap_or_default())),
        ));
    }
    let mut found = false;
    for word in asked.split(',') {
        let word = word.trim().to_ascii_uppercase();
        let (name, with_option) = match word.strip_suffix("WITH GRANT OPTION") {
            Some(name) => (name.trim(), true),
            None => (word.as_str(), false),
        };
        let privilege = Privilege::named(name).ok_or_else(|| Error::Invalid {
            message: format!("unrecognized privilege type: \"{name}\""),
            fault: Fault::Parameter,
            position: None,
        })?;
        let Some(answer) = one(view, (about, role), rest, (privilege, with_option))? else {
            return Ok(None);
        };
        found |= answer;
    }
    Ok(Some(found))
}

fn one(
    view: &View,
    (about, role): (About, u32),
    arguments: &[Argument],
    (privilege, with_option): (Privilege, bool),
) -> Result<Option<bool>> {
    let rights = &view.state().rights;
    let Some(what) = arguments.first() else { return Ok(None) };
    let object = match about {
        About::Schema => match is_public(what) {
            false if is_no_schema(what)? => return Ok(None),
            // Everyone may read the tables that every database has.
            false => return Ok(Some(privilege == Privilege::Usage || rights.is_superuser(role))),
            true => Object::Schema,
        },
        About::Database => match what {
            Argument::Number(oid) if *oid != number::DATABASE => return Ok(None),
            _ => Object::Database,
        },
        _ => {
            let Some(known) = find(view, what)? else {
                if let Argument::Number(number) = what
                    && name_of_catalog(*number).is_none()
                {
                    return Ok(None);
                }
                // A table of PostgreSQL's own.
                return Ok(Some(privilege == Privilege::Select || rights.is_superuser(role)));
            };
            if about == About::Column {
                let Some(asked) = arguments.get(1) else { return Ok(None) };
                let Some(column) = column_of(&known, asked) else {
                    return match asked {
                        Argument::Number(_) => Ok(None),
                        Argument::Text(name) => {
                            let columns = known.schema.iter().flat_map(|schema| &schema.columns);
                            let names = columns.map(|column| column.name.as_str());
                            Err(Error::unknown_column(known.name, name, names))
                        }
                    };
                };
                let may = match with_option {
                    true => rights.options(role, known.object, column).has(privilege),
                    false => rights.may_column(role, known.object, privilege, column),
                };
                return Ok(Some(may));
            }
            if about == About::AnyColumn && !with_option {
                return Ok(Some(rights.may_some(role, known.object, privilege)));
            }
            known.object
        }
    };
    Ok(Some(match with_option {
        true => rights.options(role, object, 0).has(privilege),
        false => rights.may(role, object, privilege),
    }))
}

/// Whether there is no schema of this number. A name of none is an error.
fn is_no_schema(schema: &Argument) -> Result<bool> {
    let known = [
        ("pg_catalog", number::PG_CATALOG),
        ("information_schema", number::INFORMATION_SCHEMA),
        ("cleave", number::CLEAVE),
    ];
    match schema {
        Argument::Number(oid) => Ok(!known.iter().any(|(_, number)| number == oid)),
        Argument::Text(name) => match unqualified(name) {
            Some(own) if known.iter().any(|(known, _)| *known == own) => Ok(false),
            _ => Err(Error::unknown(NameKind::Schema, name, known.map(|(name, _)| name))),
        },
    }
}

fn is_public(schema: &Argument) -> bool {
    match schema {
        Argument::Number(oid) => *oid == number::PUBLIC,
        Argument::Text(name) => unqualified(name).as_deref() == Some("public"),
    }
}

/// The table, view or sequence; None: it is one that every database has.
fn find<'a>(view: &'a View, what: &Argument) -> Result<Option<Owned<'a>>> {
    let is_it = |known: &Owned<'_>, oid: i64| matches!(known.object, Object::Relation(id) if oid_of(id) == oid);
    match what {
        Argument::Number(oid) => Ok(view.owned().find(|known| is_it(known, *oid))),
        Argument::Text(name) => {
            let found = unqualified(name);
            let found = found.and_then(|name| view.owned().find(|known| known.name == name));
            if found.is_none() && view.relation(name).is_none() {
                let names = view.tables().map(|table| table.schema.name.as_str());
                return Err(Error::unknown(NameKind::Relation, name, names));
            }
            Ok(found)
        }
    }
}

fn column_of(known: &Owned<'_>, column: &Argument) -> Option<u32> {
    let columns = &known.schema?.columns;
    let found = match column {
        Argument::Number(place) => columns.get(usize::try_from(place.checked_sub(1)?).ok()?),
        Argument::Text(name) => columns.iter().find(|column| column.name == *name),
    };
    found.map(|column| column.id)
}

fn role_of(view: &View, role: &Argument) -> Result<Option<u32>> {
    let rights = &view.state().rights;
    match role {
        Argument::Number(oid) => {
            let id = u32::try_from(*oid).ok();
            Ok(id.filter(|id| *id == FIRST || rights.role(*id).is_some()))
        }
        Argument::Text(name) if name == view.client.first_name() => Ok(Some(FIRST)),
        Argument::Text(name) => match rights.role_named(name) {
            Some(role) => Ok(Some(role.id)),
            None => {
                let names = rights.roles().map(|role| role.name.as_str());
                Err(Error::unknown(NameKind::Role, name, names))
            }
        },
    }
}
