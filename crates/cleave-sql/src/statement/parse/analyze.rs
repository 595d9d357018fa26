//! ANALYZE, and the tables that VACUUM names: tokens in, names out.

use cleave_catalog::error::{Position, Result};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::Reader;
use crate::statement::names::fold;

/// `ANALYZE [VERBOSE] [table [(column, …)], …]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Analyze {
    /// VERBOSE.
    pub verbose: bool,
    /// Tables, each with its columns as listed (none: all); no table: all tables.
    pub tables: Vec<AnalyzeTable>,
}

/// A table that ANALYZE names.
#[derive(Debug, Clone, PartialEq)]
pub struct AnalyzeTable {
    /// Its name.
    pub name: String,
    /// The columns; empty: all.
    pub columns: Vec<String>,
    /// Where its name stands.
    pub position: Option<Position>,
}

impl Reader<'_> {
    /// ANALYZE [VERBOSE | (VERBOSE [value])] [table [(column, ...)], ...].
    pub(super) fn analyze(&mut self) -> Result<Analyze> {
        self.parser.advance_token();
        let mut verbose = self.take("verbose");
        if !verbose && self.parser.consume_token(&Token::LParen) {
            loop {
                if !self.take("verbose") {
                    return Err(self.expected("VERBOSE"));
                }
                verbose = self.switch()?;
                if self.parser.consume_token(&Token::RParen) {
                    break;
                }
                if !self.parser.consume_token(&Token::Comma) {
                    return Err(self.expected("a comma or a closing parenthesis"));
                }
            }
        }
        Ok(Analyze { verbose, tables: self.analyzed_tables()? })
    }

    /// [table [(column, ...)], ...].
    pub(super) fn analyzed_tables(&mut self) -> Result<Vec<AnalyzeTable>> {
        let mut tables = Vec::new();
        while !matches!(self.parser.peek_token().token, Token::EOF | Token::SemiColon) {
            let (name, position) = self.table()?;
            let columns = if self.parser.consume_token(&Token::LParen) {
                let columns = self.parser.parse_comma_separated(Parser::parse_identifier);
                let columns = columns.map_err(|error| self.syntax(error))?;
                if !self.parser.consume_token(&Token::RParen) {
                    return Err(self.expected("a comma or a closing parenthesis"));
                }
                columns.iter().map(fold).collect()
            } else {
                Vec::new()
            };
            tables.push(AnalyzeTable { name, columns, position });
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        Ok(tables)
    }
}
