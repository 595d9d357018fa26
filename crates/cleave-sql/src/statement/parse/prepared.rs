//! `PREPARE name [(types)] AS statement`, `EXECUTE name [(values)]` and `DEALLOCATE [PREPARE] name | ALL`: tokens in,
//! [`Prepare`] and [`Execute`] out.
//!
//! Source: PostgreSQL's manual, "PREPARE", "EXECUTE", "DEALLOCATE".

use cleave_catalog::error::{Error, Result};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Cursor, Reader, Statement};
use crate::statement::catalog_syntax::type_of_catalog;
use crate::statement::ddl::column_type;
use crate::statement::names::{fold, position_of};
use crate::statement::parameters::item_type;

/// PREPARE name (types) AS statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepare {
    /// Its name.
    pub name: String,
    /// Types of its first parameters, as listed; None: to be inferred, as PostgreSQL's `unknown` is.
    pub types: Vec<Option<ColumnType>>,
    /// A [`Statement::Query`] or [`Statement::Insert`].
    pub statement: Box<Statement>,
    /// Text of that statement.
    pub text: String,
    /// Where it begins in the script, in bytes.
    text_start: usize,
}

/// EXECUTE name (values).
#[derive(Debug, Clone, PartialEq)]
pub struct Execute {
    /// The prepared statement.
    pub name: String,
    /// Values of its parameters.
    pub values: Vec<ast::Expr>,
}

impl Prepare {
    /// Takes the statement's text out of `script`, where it ends at `end`.
    pub(super) fn cut_text(&mut self, script: &str, end: usize) {
        self.text = script.get(self.text_start..end).unwrap_or_default().trim().to_owned();
    }
}

impl Reader<'_> {
    pub(super) fn prepare(&mut self) -> Result<Prepare> {
        self.parser.advance_token();
        let name = self.prepared_name()?;
        let mut types = Vec::new();
        if self.parser.consume_token(&Token::LParen) {
            loop {
                types.push(self.parameter_type()?);
                if self.parser.consume_token(&Token::RParen) {
                    break;
                }
                if !self.parser.consume_token(&Token::Comma) {
                    return Err(self.expected("a comma or a closing parenthesis"));
                }
            }
        }
        if !self.take("as") {
            return Err(self.expected("AS and a statement"));
        }
        let start = self.parser.peek_token().span.start;
        let position = position_of(start);
        let unsupported = || Error::Unsupported {
            what: "PREPARE of this statement".into(),
            hint: Some("it prepares SELECT, VALUES, WITH, INSERT, UPDATE and DELETE".into()),
            position,
        };
        // Checked before reading: each would recurse once more, and no depth is counted here.
        if self.take("prepare") || self.take("explain") {
            return Err(unsupported());
        }
        let text_start = Cursor::new(self.script).offset_of(start);
        match self.statement()? {
            statement @ (Statement::Query(_)
            | Statement::Locking(_)
            | Statement::LockedParts(_)
            | Statement::ChangingWith(_)
            | Statement::Insert(_)
            | Statement::Modify(_)) => {
                let statement = Box::new(statement);
                Ok(Prepare { name, types, statement, text: String::new(), text_start })
            }
            _ => Err(unsupported()),
        }
    }

    pub(super) fn execute(&mut self) -> Result<Execute> {
        self.parser.advance_token();
        let name = self.prepared_name()?;
        let mut values = Vec::new();
        if self.parser.consume_token(&Token::LParen) {
            let list = self.parser.parse_comma_separated(Parser::parse_expr);
            values = self.lowered(list.map_err(|error| self.syntax(error))?)?;
            if !self.parser.consume_token(&Token::RParen) {
                return Err(self.expected("a comma or a closing parenthesis"));
            }
        }
        Ok(Execute { name, values })
    }

    pub(super) fn deallocate(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let _ = self.take("prepare");
        if self.take("all") {
            return Ok(Statement::Deallocate { name: None });
        }
        Ok(Statement::Deallocate { name: Some(self.prepared_name()?) })
    }

    fn prepared_name(&mut self) -> Result<String> {
        let Token::Word(_) = self.parser.peek_token().token else {
            return Err(self.expected("the name of a prepared statement"));
        };
        let name = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
        Ok(fold(&name))
    }

    fn parameter_type(&mut self) -> Result<Option<ColumnType>> {
        if self.take("unknown") {
            return Ok(None);
        }
        let position = position_of(self.parser.peek_token().span.start);
        let data_type = self.parser.parse_data_type().map_err(|error| self.syntax(error))?;
        // A parameter that is a list is known by what it is compared with or cast to.
        if let Some(item) = item_type(&data_type) {
            column_type(item).map_err(|error| error.at(position))?;
            return Ok(None);
        }
        let of_catalog = || type_of_catalog(&data_type);
        column_type(&data_type)
            .or_else(|error| of_catalog().ok_or(error))
            .map(Some)
            .map_err(|error| error.at(position))
    }
}
