//! Placement of a new table: `WITH (devices = (nas, san), tablets = 4, tablet_by = hash (id))`.
//!
//! The syntax is PostgreSQL's for storage parameters, because a table lies on any number of devices and a tablespace is
//! one name. PostgreSQL's own parameters concern pages that are changed in place, and its vacuum. Those that tools send
//! (`fillfactor`, `autovacuum_…`, `parallel_workers`) change no row and are accepted without effect; any other is
//! refused by name.

use cleave_catalog::catalog::division::{Division, TABLET_COUNT_MAX};
use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast;

use crate::statement::names::{fold, position_of};

/// The devices and tablets of a new table. Missing parts follow the session's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Names of the devices, no two the same; none: not given.
    pub devices: Vec<String>,
    /// Tablets, from 1 to [`TABLET_COUNT_MAX`].
    pub tablet_count: Option<u32>,
    /// The columns that decide the tablet of a row.
    pub division: Option<Division>,
}

/// Reads the clauses behind the column list of CREATE TABLE of `schema`.
///
/// # Errors
/// [`Error::Unsupported`] for other clauses and parameters, [`Error::Invalid`] for a repeated one and for an invalid
/// name or number, [`Error::UnknownName`] for a column.
pub fn placement(options: &ast::CreateTableOptions, schema: &TableSchema) -> Result<Placement> {
    let parameters = match options {
        ast::CreateTableOptions::None => return Ok(Placement::default()),
        ast::CreateTableOptions::With(parameters) => parameters,
        ast::CreateTableOptions::Plain(clauses)
            if clauses.iter().any(|clause| matches!(clause, ast::SqlOption::TableSpace(_))) =>
        {
            return Err(unsupported(
                "TABLESPACE",
                Some("say WITH (device = name) behind the column list"),
            ));
        }
        _ => return Err(unsupported("options after the column list of CREATE TABLE", None)),
    };
    let mut placement = Placement::default();
    for parameter in parameters {
        let ast::SqlOption::KeyValue { key, value } = parameter else {
            return Err(unsupported(&format!("WITH ({parameter})"), None));
        };
        let position = position_of(key.span.start);
        let name = fold(key);
        let is_new = match name.as_str() {
            "device" | "devices" => {
                let devices = devices(value).map_err(|error| error.at(position))?;
                std::mem::replace(&mut placement.devices, devices).is_empty()
            }
            "tablets" => {
                let count = tablet_count(value).map_err(|error| error.at(position))?;
                placement.tablet_count.replace(count).is_none()
            }
            "tablet_by" => {
                let division = division(value, schema).map_err(|error| error.at(position))?;
                placement.division.replace(division).is_none()
            }
            "fillfactor" | "parallel_workers" | "toast_tuple_target" => true,
            name if name.starts_with("autovacuum_") => true,
            _ => {
                let hint = "there are device (or devices), tablets and tablet_by";
                let what = format!("storage parameter \"{name}\"");
                return Err(unsupported(&what, Some(hint)).at(position));
            }
        };
        if !is_new {
            return Err(
                invalid(format!("parameter \"{name}\" specified more than once")).at(position)
            );
        }
    }
    Ok(placement)
}

/// The names in a list that is written without quotes around the whole: in the form of the setting `default_device`.
///
/// # Errors
/// [`Error::Invalid`] for a name that is empty or comes twice.
pub fn device_list(text: &str) -> Result<Vec<String>> {
    distinct(text.split(',').map(|name| name.trim().to_owned()).collect())
}

fn devices(value: &ast::Expr) -> Result<Vec<String>> {
    let names = match value {
        ast::Expr::Tuple(names) => names.iter().map(device_name).collect::<Result<_>>()?,
        ast::Expr::Nested(name) => vec![device_name(name)?],
        name => vec![device_name(name)?],
    };
    distinct(names)
}

fn distinct(names: Vec<String>) -> Result<Vec<String>> {
    for (place, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(invalid("the name of a device is missing".to_owned()));
        }
        if names.iter().take(place).any(|before| before == name) {
            return Err(invalid(format!("device \"{name}\" is named twice")));
        }
    }
    Ok(names)
}

fn device_name(value: &ast::Expr) -> Result<String> {
    let name = match value {
        ast::Expr::Identifier(name) => Some(fold(name)),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    name.ok_or_else(|| {
        invalid(format!("{value} is not the name of a device: say (a, b) for several"))
    })
}

fn tablet_count(value: &ast::Expr) -> Result<u32> {
    let number = value.to_string();
    let count = number.parse().ok().filter(|count| (1..=TABLET_COUNT_MAX).contains(count));
    count.ok_or_else(|| Error::Invalid {
        message: format!("tablets = {number}: a table has 1 to {TABLET_COUNT_MAX} tablets"),
        fault: Fault::Parameter,
        position: None,
    })
}

fn division(value: &ast::Expr, schema: &TableSchema) -> Result<Division> {
    match value {
        ast::Expr::Identifier(name) if fold(name) == "load_order" => Ok(Division::LoadOrder),
        ast::Expr::Function(function) if function.name.to_string().to_lowercase() == "hash" => {
            let ast::FunctionArguments::List(list) = &function.args else {
                return Err(no_division(value));
            };
            let mut ids = Vec::with_capacity(list.args.len());
            for argument in &list.args {
                let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Identifier(
                    column,
                ))) = argument
                else {
                    return Err(no_division(value));
                };
                ids.push(hash_column(column, schema)?);
            }
            if ids.is_empty() {
                return Err(no_division(value));
            }
            Ok(Division::Hash(ids))
        }
        _ => Err(no_division(value)),
    }
}

fn hash_column(column: &ast::Ident, schema: &TableSchema) -> Result<u32> {
    let name = fold(column);
    let position: Option<Position> = position_of(column.span.start);
    let names = schema.columns.iter().map(|column| column.name.as_str());
    schema
        .column(&name)
        .map(|column| column.id)
        .ok_or_else(|| Error::unknown_column(&schema.name, &name, names).at(position))
}

fn no_division(value: &ast::Expr) -> Error {
    invalid(format!("invalid tablet_by {value}: say hash (column, ...) or load_order"))
}

fn invalid(message: String) -> Error {
    Error::Invalid { message, fault: Fault::Statement, position: None }
}

fn unsupported(what: &str, hint: Option<&str>) -> Error {
    Error::Unsupported { what: what.to_owned(), hint: hint.map(str::to_owned), position: None }
}
