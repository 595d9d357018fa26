//! Parses a single expression or query: the text of a default, a check or a view in the catalog, or a query that Cleave
//! writes itself.

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::ast;

use super::dialect::read_text;
use super::file_names::name_files;
use super::nesting::flatten;
use crate::statement::files::may_call;

/// Reads one.
///
/// # Errors
/// [`Error::Syntax`].
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    let mut read = read_text(text, |parser| parser.parse_expr()).map_err(|error| {
        Error::Syntax { message: error.to_string(), near: Some(text.to_owned()), position: None }
    })?;
    flatten(&mut read)?;
    Ok(read)
}

/// Reads a query, as a view has it: with the calls of functions that read files.
///
/// # Errors
/// [`Error::Syntax`]; those of such a call.
pub fn parse_query(text: String) -> Result<Box<ast::Query>> {
    let has_files = may_call(&text);
    let mut read = read_text(&text, |parser| parser.parse_query()).map_err(|error| {
        Error::Syntax { message: error.to_string(), near: Some(text), position: None }
    })?;
    flatten(&mut read)?;
    if has_files {
        name_files(&mut *read)?;
    }
    Ok(read)
}
