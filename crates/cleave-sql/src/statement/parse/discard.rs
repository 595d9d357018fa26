//! DISCARD, and statements of connection poolers that have no effect here.

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};
use crate::statement::names::fold;

/// What DISCARD resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// All of the session's state.
    All,
    /// Cached plans, which depend on no catalog version here, and so stay.
    Plans,
    /// The last numbers drawn from sequences.
    Sequences,
    /// Its temporary tables, views and sequences.
    Temporary,
}

impl Reader<'_> {
    /// DISCARD, which poolers of connections send.
    pub(super) fn discard(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let words = [
            ("all", Discard::All),
            ("plans", Discard::Plans),
            ("sequences", Discard::Sequences),
            ("temp", Discard::Temporary),
            ("temporary", Discard::Temporary),
        ];
        let said = words.into_iter().find(|(word, _)| self.take(word));
        let said = said.ok_or_else(|| self.expected("ALL, PLANS, SEQUENCES or TEMP"))?;
        Ok(Statement::Discard(said.1))
    }

    /// CREATE EXTENSION of PL/pgSQL, which scripts that PostgreSQL's dumps are made of begin with.
    pub(super) fn create_extension(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        self.parser.advance_token();
        if self.take("if") {
            self.must_take("not")?;
            self.must_take("exists")?;
        }
        let name = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
        if fold(&name) != "plpgsql" {
            return Err(Error::unsupported(format!("CREATE EXTENSION {name}")));
        }
        // WITH SCHEMA name, and the like.
        while !matches!(self.parser.peek_token().token, Token::EOF | Token::SemiColon) {
            self.parser.advance_token();
        }
        Ok(Statement::Nothing { tag: "CREATE EXTENSION" })
    }

    /// A statement of one name or star that has no effect here.
    pub(super) fn nothing(&mut self, tag: &'static str) -> Result<Statement> {
        self.parser.advance_token();
        if !self.parser.consume_token(&Token::Mul) {
            self.setting_name()?;
        }
        Ok(Statement::Nothing { tag })
    }
}
