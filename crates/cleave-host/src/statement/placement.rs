//! Where CREATE TABLE puts a table: `WITH (device = name)`.
//!
//! PostgreSQL's form for storage parameters, because a table may come to lie on several devices and a
//! tablespace is one name. Deliberately absent: PostgreSQL's own parameters (`fillfactor`, …), none of which
//! means anything here; each is refused by name.

use datafusion::sql::sqlparser::ast;

use crate::error::{Error, Fault, Result};
use crate::statement::names::{fold, position_of};

/// Where a new table is to lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Name of the device; `None`: as the session's settings say.
    pub device: Option<String>,
}

/// Reads what stands behind the column list of CREATE TABLE.
///
/// # Errors
/// [`Error::Unsupported`] for other clauses and parameters, [`Error::Invalid`] for a device given twice, or by
/// something that is no name.
pub(crate) fn placement(options: &ast::CreateTableOptions) -> Result<Placement> {
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
        if fold(key) != "device" {
            let name = fold(key);
            return Err(unsupported(
                &format!("storage parameter \"{name}\""),
                Some("there is one, device: WITH (device = name)"),
            )
            .at(position));
        }
        let invalid =
            |message: String| Error::Invalid { message, fault: Fault::Statement, position };
        let name = device_name(value)
            .ok_or_else(|| invalid(format!("{value} is not the name of a device")))?;
        if placement.device.replace(name).is_some() {
            return Err(invalid("parameter \"device\" specified more than once".to_owned()));
        }
    }
    Ok(placement)
}

fn device_name(value: &ast::Expr) -> Option<String> {
    match value {
        ast::Expr::Identifier(name) => Some(fold(name)),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(name) if !name.is_empty() => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn unsupported(what: &str, hint: Option<&str>) -> Error {
    Error::Unsupported { what: what.to_owned(), hint: hint.map(str::to_owned), position: None }
}
