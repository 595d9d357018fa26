//! An expression by itself: the text that the catalog keeps of a default or a check in, its tree out.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::nesting::{PARSED_LEVELS_MAX, flatten};
use crate::error::{Error, Result};

/// Reads one.
///
/// # Errors
/// [`Error::Syntax`].
pub(crate) fn parse_expression(text: &str) -> Result<ast::Expr> {
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).with_recursion_limit(PARSED_LEVELS_MAX);
    let read = parser.try_with_sql(text).and_then(|mut parser| parser.parse_expr());
    let mut read = read.map_err(|error| Error::Syntax {
        message: error.to_string(),
        near: Some(text.to_owned()),
        position: None,
    })?;
    flatten(&mut read)?;
    Ok(read)
}
